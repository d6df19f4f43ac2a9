"""A small network that reads handwritten digits: value, gradient and Adam's step are one plan.

python examples/10_digits.py [curve.png]    (needs scikit-learn and matplotlib: pip install '.[demo]')

The 1,797 pictures come with scikit-learn (Alpaydin and Kaynak, 1998); nothing is downloaded.
"""

import sys

import numpy as np
from sklearn.datasets import load_digits

import kernelgraph as kg


def logits(p, x):
    return np.maximum(x @ p["w"] + p["b"], 0) @ p["v"] + p["c"]


def loss(p, x, y):
    """The mean cross-entropy; y: the digits."""
    return kg.nn.cross_entropy(logits(p, x), y)


@kg.kernel_graph
def step(p, m, v, t, x, y, rate=0.01):
    """One step of Adam (Kingma and Ba, 2015) on one batch."""
    value, g = kg.value_and_grad(loss)(p, x, y)
    m = {k: 0.9 * m[k] + 0.1 * g[k] for k in p}
    v = {k: 0.999 * v[k] + 0.001 * g[k] ** 2 for k in p}
    scale = rate * np.sqrt(1 - 0.999**t) / (1 - 0.9**t)
    return {k: p[k] - scale * m[k] / (np.sqrt(v[k]) + 1e-8) for k in p}, m, v, value


def data():
    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    x = (digits.data[order] / 16).astype(np.float32)
    y = digits.target[order]
    return (x[:1536], y[:1536]), (x[1536:], y[1536:])


def start(hidden=32, seed=1):
    rng = np.random.default_rng(seed)
    w = rng.normal(0, (2 / 64) ** 0.5, (64, hidden))
    v = rng.normal(0, (2 / hidden) ** 0.5, (hidden, 10))
    p = {"w": w, "b": np.zeros(hidden), "v": v, "c": np.zeros(10)}
    return {k: a.astype(np.float32) for k, a in p.items()}


def accuracy(p, x, y):
    found = np.asarray(kg.kernel_graph(logits)(p, x)).argmax(1)
    return float((found == y).mean())


def picture(curve, path):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 3.5), layout="constrained")
    axes.semilogy(curve)
    axes.set(xlabel="step", ylabel="cross-entropy of the batch", title="A network of 64-32-10 learns digits")
    figure.savefig(path, dpi=150)
    plt.close(figure)


def main(epochs=20, batch=128, path=None):
    (x, y), test = data()
    p = start()
    m, v = ({k: np.zeros_like(a) for k, a in p.items()} for _ in range(2))
    curve, t = [], 0
    for epoch in range(epochs):
        for i in range(0, len(x), batch):
            t += 1
            p, m, v, value = step(p, m, v, float(t), x[i : i + batch], y[i : i + batch])
            curve.append(float(value))
        if epoch % 5 == 4 or epoch == 0:
            mean = np.mean(curve[-len(x) // batch :])
            print(f"epoch {epoch + 1:2}  loss {mean:.4f}  of unseen digits right: {accuracy(p, *test):.1%}")
    if path:
        picture(curve, path)
        print(f"the curve is in {path}")
    return curve, accuracy(p, *test)


if __name__ == "__main__":
    main(path=sys.argv[1] if len(sys.argv) > 1 else None)
