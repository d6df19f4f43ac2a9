"""Softmax and layer norm: several reductions over each row, read once and written once, one kernel each.

python examples/04_softmax_layer_norm.py
"""

import numpy as np

import kernelgraph as kg


@kg.kernel_graph
def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


@kg.kernel_graph
def layer_norm(x, scale, shift, epsilon=1e-5):
    centred = x - x.mean(axis=-1, keepdims=True)
    variance = (centred * centred).mean(axis=-1, keepdims=True)
    return centred / np.sqrt(variance + epsilon) * scale + shift


def data(rows=512, columns=768, seed=0):
    random = np.random.default_rng(seed)
    x = random.normal(2.0, 3.0, (rows, columns)).astype(np.float32)
    return x, np.ones(columns, np.float32), np.zeros(columns, np.float32)


def main():
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
