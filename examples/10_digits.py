"""A small network that reads handwritten digits: value, gradient and Adam's step are one plan.

python examples/10_digits.py [curve.png]    (needs scikit-learn and matplotlib: pip install '.[demo]')
The 1,797 pictures come with scikit-learn (Alpaydin and Kaynak, 1998); nothing is downloaded.
"""

import sys

import matplotlib.figure
import numpy as np
from sklearn.datasets import load_digits

import kernelgraph as kg


def logits(p, x):
    return np.maximum(x @ p["w"] + p["b"], 0) @ p["v"] + p["c"]


def loss(p, x, digits):
    return kg.nn.cross_entropy(logits(p, x), digits)


@kg.kernel_graph
def step(p, m, v, t, x, digits, rate=0.01):
    """One step of Adam (Kingma and Ba, 2015) on one batch."""
    value, g = kg.value_and_grad(loss)(p, x, digits)
    m = {k: 0.9 * m[k] + 0.1 * g[k] for k in p}
    v = {k: 0.999 * v[k] + 0.001 * g[k] ** 2 for k in p}
    scale = rate * np.sqrt(1 - 0.999**t) / (1 - 0.9**t)
    return {k: p[k] - scale * m[k] / (np.sqrt(v[k]) + 1e-8) for k in p}, m, v, value


def start(hidden=32):
    shapes = {"w": (64, hidden), "b": (hidden,), "v": (hidden, 10), "c": (10,)}
    normal = np.random.default_rng(1).normal
    return {k: normal(0, 0.15 * (len(s) - 1), s).astype(np.float32) for k, s in shapes.items()}


def main(epochs=20, batch=128, path=None):
    x, digits = load_digits(return_X_y=True)
    x, p, curve, t = (x / 16).astype(np.float32), start(), [], 0
    m, v = ({k: np.zeros_like(a) for k, a in p.items()} for _ in range(2))
    for epoch in range(epochs):
        for i in range(0, 1536, batch):
            p, m, v, value = step(p, m, v, float(t := t + 1), x[i : i + batch], digits[i : i + batch])
            curve.append(float(value))
        right = (np.asarray(kg.kernel_graph(logits)(p, x[1536:])).argmax(1) == digits[1536:]).mean()  # other writers
        if epoch % 5 == 4 or epoch == 0:
            print(f"epoch {epoch + 1:2}  loss {np.mean(curve[-1536 // batch :]):.4f}  unseen digits right: {right:.1%}")
    if path:
        figure = matplotlib.figure.Figure((6, 3.5), layout="constrained")
        figure.add_subplot(yscale="log", xlabel="step", ylabel="cross-entropy of the batch").plot(curve)
        figure.savefig(path, dpi=120)
    return curve, float(right)


if __name__ == "__main__":
    main(path=sys.argv[1] if len(sys.argv) > 1 else None)
