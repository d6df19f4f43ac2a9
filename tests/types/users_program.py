"""A program as users write it, `np.ndarray` in the annotations, and what `kg` gives used as such."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, assert_type

import numpy as np
from numpy.typing import NDArray

import kernelgraph as kg

Floats = NDArray[np.float64]


@dataclass
class Config:
    steps: int = 4
    rate: float = 0.1
    device: kg.DeviceName = "cpu"


@kg.kernel_graph
def smooth(x: np.ndarray, width: int = 3) -> np.ndarray:
    kernel = np.ones(width) / width
    return np.convolve(x, kernel, mode="same")


@kg.kernel_graph(device="cpu:0", streams=2)
def statistics(x: Floats) -> tuple[Floats, Floats]:
    return x.mean(axis=0), x.std(axis=0)


@kg.kernel_graph(device=Config.device)
def as_single(x: Floats) -> NDArray[np.float32]:
    return x.astype(np.float32)


class Model:
    def __init__(self, weights: Floats) -> None:
        self.weights = weights

    @kg.kernel_graph
    def predict(self, x: Floats) -> Floats:
        return np.tanh(x @ self.weights)


def plain_numpy(x: np.ndarray) -> float:
    return float(x.sum())


def on_device(x: kg.Array) -> kg.Array[np.float32]:
    return x.astype(np.float32)


def batches(count: int) -> Iterator[Floats]:
    for seed in range(count):
        yield np.random.default_rng(seed).normal(size=8)


signal = np.linspace(0.0, 1.0, 8)
y = smooth(signal)
y.wait()
assert_type(y.is_ready(), bool)
assert_type(y.device, kg.DeviceName)
assert_type(y.numpy(), np.ndarray)
total = plain_numpy(y) + plain_numpy(y + 1) + plain_numpy(smooth(signal, width=5).wait())
single = as_single(signal).wait()
assert_type(single.dtype, np.dtype[np.float32])
assert_type(on_device(y).dtype, np.dtype[np.float32])
mean, deviation = kg.wait(statistics(np.ones((4, 2))))
assert_type(mean, Floats)
assert_type(plain_numpy(kg.wait(y)), float)
predicted = Model(np.ones((8, 2))).predict(signal)
predicted.wait().to_device("cpu")
as_array: kg.Array = predicted
as_numpy: np.ndarray = predicted
results: dict[str, Any] = kg.wait({"mean": mean, "y": y})

# dtypes of arrays
counts = kg.zeros((3,), dtype=np.int64)
assert_type(counts, kg.Array[np.int64])
assert_type(counts[0], kg.Array[np.int64])
assert_type(counts.reshape(3, 1).T, kg.Array[np.int64])
assert_type(kg.asarray([1, 2], dtype=np.float32).wait(), kg.Array[np.float32])
assert_type(kg.asarray(np.ones(3)).numpy(), Floats)
assert_type(counts > 0, kg.Array[np.bool_])
halved: kg.Array[np.floating] = counts.astype(np.float32)
for batch in kg.prefetch(batches(3), device="cpu"):
    smooth(batch).wait()
with kg.device(f"cpu:{0}"):
    smooth(signal)
