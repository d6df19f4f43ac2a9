"""Digits read by one process or several, in step or not. Needs scikit-learn: pip install '.[demo]'.

python -m kernelgraph.run -n 4 examples/11_ranks.py [sync|async]     (without the launcher: one rank, and no MPI)

sync: each rank has a quarter of every batch, and all take the mean of their gradients (`kg.DataParallel`). async: each
pushes gradients of batches of its own to a store, which updates at each push (`kg.KVStore`).
Several ranks need MPI too: pip install '.[mpi]'.
"""

import sys
from typing import Any

import numpy as np
from sklearn.datasets import load_digits

import kernelgraph as kg

RATE, BATCH, SEEN = 0.5, 128, 1536
W = np.ndarray  # weights: 64 of each digit, and a bias


def logits(w: W, x: np.ndarray) -> Any:
    return x @ w[:-1] + w[-1]


def loss(w: W, x: np.ndarray, digits: np.ndarray) -> kg.Array:
    return kg.nn.cross_entropy(logits(w, x), digits)


def train_in_step(w: W, x: np.ndarray, digits: np.ndarray, epochs: int) -> W:
    train = kg.DataParallel(loss, kg.Mesh(kg.distributed.size()), update=lambda w, g: w - RATE * g)
    for i in [*range(0, SEEN, BATCH)] * epochs:
        w, _ = train(w, x[i : i + BATCH], digits[i : i + BATCH])
    return np.asarray(w)


def train_at_own_pace(w: W, x: np.ndarray, digits: np.ndarray, epochs: int) -> W:
    """Ranks share the batches, and nobody waits: weights may be a few updates old."""
    store, gradient = kg.KVStore("dist_async"), kg.grad(loss)
    store.set_updater(lambda key, pushed, stored: stored.__isub__(RATE * pushed))
    store.init("w", w)
    for i in [*range(kg.distributed.rank() * BATCH, SEEN, kg.distributed.size() * BATCH)] * epochs:
        store.push("w", gradient(w, x[i : i + BATCH], digits[i : i + BATCH]))
        store.pull("w", out=w)
    store.barrier()
    store.pull("w", out=w)
    return w


def main(way: str = "sync", epochs: int = 20) -> tuple[float, float]:
    kg.distributed.init()
    pictures: Any = load_digits()
    x, digits = pictures.images.reshape(-1, 64).astype(np.float32) / 16, pictures.target
    train = train_at_own_pace if way == "async" else train_in_step
    w = train(np.zeros((65, 10), np.float32), x[:SEEN], digits[:SEEN], epochs)
    value = float(kg.kernel_graph(loss)(w, x[:SEEN], digits[:SEEN]))
    right = float((np.asarray(kg.kernel_graph(logits)(w, x[SEEN:])).argmax(1) == digits[SEEN:]).mean())
    if kg.distributed.rank() == 0:
        print(f"{way}, {kg.distributed.size()} ranks\nloss {value:.4f}\nunseen digits right: {right:.1%}")
    return value, right


if __name__ == "__main__":
    main(sys.argv[1] if sys.argv[1:] else "sync")
