"""A network that reads digits, one plan a step. Needs scikit-learn and matplotlib: pip install '.[demo]'.

python examples/10_digits.py [curve.png]
The 1,797 pictures come with scikit-learn (Alpaydin and Kaynak, 1998); nothing is downloaded.
"""

import sys
from typing import Any

import matplotlib.figure
import numpy as np
from sklearn.datasets import load_digits

import kernelgraph as kg

P = dict[str, np.ndarray]  # the network's weights, by name


def logits(p: P, x: np.ndarray) -> Any:
    return np.maximum(x @ p["w"] + p["b"], 0) @ p["v"] + p["c"]


def loss(p: P, x: np.ndarray, digits: np.ndarray) -> kg.Array:
    return kg.nn.cross_entropy(logits(p, x), digits)


@kg.kernel_graph
def step(p: P, m: P, v: P, t: float, x: np.ndarray, digits: np.ndarray, rate: float = 0.01) -> tuple[P, P, P, kg.Array]:
    """One step of Adam (Kingma and Ba, 2015) on one batch."""
    value, g = kg.value_and_grad(loss)(p, x, digits)
    m = {k: 0.9 * m[k] + 0.1 * g[k] for k in p}
    v = {k: 0.999 * v[k] + 0.001 * g[k] ** 2 for k in p}
    scale = rate * np.sqrt(1 - 0.999**t) / (1 - 0.9**t)
    return {k: p[k] - scale * m[k] / (np.sqrt(v[k]) + 1e-8) for k in p}, m, v, value


def start(hidden: int = 32) -> P:
    shapes = {"w": (64, hidden), "b": (hidden,), "v": (hidden, 10), "c": (10,)}
    normal = np.random.default_rng(1).normal
    return {k: normal(0, 0.15 * (len(s) - 1), s).astype(np.float32) for k, s in shapes.items()}


def main(epochs: int = 20, batch: int = 128, path: str | None = None) -> tuple[list[float], float]:
    pictures: Any = load_digits()
    x, digits = pictures.images.reshape(-1, 64).astype(np.float32) / 16, pictures.target
    p, curve, t, right = start(), list[float](), 0, 0.0
    m, v = ({k: np.zeros_like(a) for k, a in p.items()} for _ in range(2))
    for epoch in range(epochs):
        for i in range(0, 1536, batch):
            p, m, v, value = step(p, m, v, float(t := t + 1), x[i : i + batch], digits[i : i + batch])
            curve.append(float(value))
        guesses = np.asarray(kg.kernel_graph(logits)(p, x[1536:])).argmax(1)
        right = float((guesses == digits[1536:]).mean())  # of other writers
        if epoch % 5 == 4 or epoch == 0:
            print(f"epoch {epoch + 1:2}  loss {np.mean(curve[-1536 // batch :]):.4f}  unseen digits right: {right:.1%}")
    if path:
        figure = matplotlib.figure.Figure((6, 3.5), layout="constrained")
        figure.add_subplot(yscale="log", xlabel="step", ylabel="cross-entropy of the batch").plot(curve)
        figure.savefig(path, dpi=120)
    return curve, right


if __name__ == "__main__":
    main(path=sys.argv[1] if len(sys.argv) > 1 else None)
