"""Softmax and layer norm: several reductions over each row, read once and written once, one kernel each.

python examples/04_softmax_layer_norm.py
"""

import numpy as np

import kernelgraph as kg


@kg.kernel_graph
def softmax(x: kg.Array) -> kg.Array:
    e = kg.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


@kg.kernel_graph
def layer_norm(x: kg.Array, scale: kg.Array, shift: kg.Array, epsilon: float = 1e-5) -> kg.Array:
    centred = x - x.mean(axis=-1, keepdims=True)
    variance = (centred * centred).mean(axis=-1, keepdims=True)
    return centred / kg.sqrt(variance + epsilon) * scale + shift


def data(rows: int = 512, columns: int = 768, seed: int = 0) -> tuple[kg.Array, kg.Array, kg.Array]:
    random = np.random.default_rng(seed)
    x = kg.asarray(random.normal(2.0, 3.0, (rows, columns)), kg.float32)
    return x, kg.ones(columns, kg.float32), kg.zeros(columns, kg.float32)


def main() -> tuple[np.ndarray, np.ndarray]:
    x, scale, shift = data()
    probabilities = softmax(x).numpy()
    print(f"softmax:    rows sum to {probabilities.sum(-1).min():.6f} .. {probabilities.sum(-1).max():.6f}")
    normal = layer_norm(x, scale, shift).numpy()
    print(f"layer norm: |mean| at most {abs(normal.mean(-1)).max():.1e}, deviation {normal.std(-1).mean():.6f}")
    print("kernels:    softmax", len(softmax.program(x).tasks), end=", ")
    print("layer norm", len(layer_norm.program(x, scale, shift).tasks))
    return probabilities, normal


if __name__ == "__main__":
    main()
