"""Digits read by several processes: one script on a laptop's one rank and on many, in step or each at its own pace.

python examples/11_ranks.py                                          one rank, no MPI
python -m kernelgraph.run -n 4 examples/11_ranks.py [sync|async]     four; the same on a cluster: srun python ...

sync: each rank has a quarter of every batch, and all take the mean of their gradients (`kg.DataParallel`).
async: each rank pushes gradients of batches of its own to a store, which updates at each push (`kg.KVStore`).
Needs scikit-learn (pip install '.[demo]') and, for several ranks, MPI (pip install '.[mpi]').
"""

import sys
from typing import Any

import numpy as np
from sklearn.datasets import load_digits

import kernelgraph as kg

P = dict[str, np.ndarray]
RATE, BATCH, SEEN = 0.2, 128, 1536


def logits(p: P, x: np.ndarray) -> Any:
    return np.maximum(x @ p["w"] + p["b"], 0) @ p["v"] + p["c"]


def loss(p: P, x: np.ndarray, digits: np.ndarray) -> kg.Array:
    return kg.nn.cross_entropy(logits(p, x), digits)


def descend(p: P, g: P) -> P:
    return {k: p[k] - RATE * g[k] for k in p}


def start(hidden: int = 32) -> P:
    shapes = {"w": (64, hidden), "b": (hidden,), "v": (hidden, 10), "c": (10,)}
    normal = np.random.default_rng(1).normal
    return {k: normal(0, 0.15 * (len(s) - 1), s).astype(np.float32) for k, s in shapes.items()}


def in_step(x: np.ndarray, digits: np.ndarray, epochs: int) -> P:
    """All ranks have the same weights after every step."""
    train = kg.DataParallel(loss, kg.Mesh(kg.distributed.size()), update=descend)
    p = train.replicate(start())
    for _ in range(epochs):
        for i in range(0, SEEN, BATCH):
            p, _ = train(p, x[i : i + BATCH], digits[i : i + BATCH])
    return {k: np.asarray(a) for k, a in p.items()}


def at_own_pace(x: np.ndarray, digits: np.ndarray, epochs: int) -> P:
    """Ranks share the batches, and nobody waits; weights may be a few updates old."""
    rank, size = kg.distributed.rank(), kg.distributed.size()
    store, p = kg.KVStore("dist_async"), start()
    keys = sorted(p)
    store.set_updater(take_step)
    store.init(keys, [p[k] for k in keys])
    gradient = kg.grad(loss)
    for _ in range(epochs):
        for i in range(rank * BATCH, SEEN, size * BATCH):
            g = gradient(p, x[i : i + BATCH], digits[i : i + BATCH])
            store.push(keys, [g[k] for k in keys])
            store.pull(keys, out=[p[k] for k in keys])
    store.barrier()
    store.pull(keys, out=[p[k] for k in keys])
    return p


def take_step(key: str, pushed: np.ndarray, stored: np.ndarray) -> None:
    stored -= RATE * pushed


def main(way: str = "sync", epochs: int = 20) -> tuple[float, float]:
    """The loss of what was learned from, and how many unseen digits are right."""
    kg.distributed.init()
    pictures: Any = load_digits()
    x, digits = pictures.images.reshape(-1, 64).astype(np.float32) / 16, pictures.target
    p = (at_own_pace if way == "async" else in_step)(x[:SEEN], digits[:SEEN], epochs)
    value = float(kg.kernel_graph(loss)(p, x[:SEEN], digits[:SEEN]))
    right = float((np.asarray(kg.kernel_graph(logits)(p, x[SEEN:])).argmax(1) == digits[SEEN:]).mean())
    if kg.distributed.rank() == 0:
        print(f"{way}, {kg.distributed.size()} ranks, {epochs} epochs")
        print(f"loss {value:.4f}")
        print(f"unseen digits right: {right:.1%}")
    return value, right


if __name__ == "__main__":
    main(*sys.argv[1:2])
