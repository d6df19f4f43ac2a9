"""Programs whose types are right: type checkers find nothing, and know what `assert_type` says."""

from typing import Any, assert_type

import numpy as np

import kernelgraph as kg

x = kg.asarray([1.0, 2.0])

# operators, methods and properties of arrays
assert_type(x + 1, kg.Array)
assert_type(1 - x, kg.Array)
assert_type(x @ np.ones(2), kg.Array)
assert_type(-x, kg.Array)
assert_type(x == 2, kg.Array[np.bool_])
assert_type(x[0], kg.Array)
assert_type(x.T, kg.Array)
assert_type(x.sum(axis=0, keepdims=True), kg.Array)
assert_type(x.reshape(1, -1).mean(), kg.Array)
assert_type(divmod(x, 2), tuple[kg.Array, kg.Array])
assert_type(x.shape, tuple[int, ...])
assert_type(x.device, kg.DeviceName)
assert_type(float(x[0]), float)
assert_type([row for row in x], list[kg.Array])
x += 1
x[0] = 5
assert_type(x.sort(), None)

# the functions of the namespace
assert_type(kg.exp(x), kg.Array)
assert_type(kg.exp([1, 2.5]), kg.Array)
assert_type(kg.sum(np.ones(3), axis=(0,)), kg.Array)
assert_type(kg.concat([x, x]), kg.Array)
assert_type(kg.split(x, 2), list[kg.Array])
assert_type(kg.meshgrid(x, x), tuple[kg.Array, ...])
assert_type(kg.linspace(0, 1, 5, dtype=kg.float32), kg.Array[np.float32])
assert_type(kg.zeros((2, 3), dtype=kg.int32), kg.Array[np.int32])
assert_type(kg.zeros((2, 3)), kg.Array)
assert_type(kg.unique(x), kg.Array)
assert_type(kg.allclose(x, x), bool)
assert_type(kg.linalg.norm(x), kg.Array)
assert_type(kg.linalg.eigh(np.eye(2)).eigenvalues, kg.Array)
assert_type(kg.linalg.svd(np.eye(2)).Vh, kg.Array)
assert_type(kg.fft.fft(x), kg.Array)
assert_type(kg.nn.softmax(x), kg.Array)
assert_type(kg.random.normal(kg.random.key(0), (2, 3)), kg.Array)
assert_type(kg.lib.stride_tricks.sliding_window_view(x, 2), kg.Array)
assert_type(kg.spec((2, 3), "f4"), kg.Spec)


# decorated functions keep their signature
@kg.kernel_graph
def scaled(a: kg.Array, factor: float = 2.0) -> kg.Array:
    return kg.sqrt(a) * factor


@kg.kernel_graph(device="cpu", streams=2)
def normalised(a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    centred = a - a.mean()
    return centred, np.exp(centred)


@kg.kernel_graph
def untyped(a, b):  # type: ignore[no-untyped-def]
    return a + b


assert_type(scaled(x), kg.Array)
assert_type(scaled(x, factor=3.0), kg.Array)
assert_type(normalised(np.ones(3)), tuple[np.ndarray, np.ndarray])
untyped(x, 2)
scaled.program(kg.spec((2,), "f4"))
assert_type(scaled.explain(x), str)
bare: kg.KernelGraph = scaled
exact: "kg.KernelGraph[[kg.Array], kg.Array]" = kg.kernel_graph(lambda a: a)


class Model:
    def __init__(self, w: kg.Array) -> None:
        self.w = w

    @kg.kernel_graph
    def __call__(self, a: kg.Array) -> kg.Array:
        return a @ self.w

    @kg.kernel_graph(streams=1)
    def loss(self, a: kg.Array, weight: float) -> kg.Array:
        return (a @ self.w).sum() * weight


model = Model(x)
assert_type(model(x), kg.Array)
assert_type(model.loss(x, 0.5), kg.Array)
model.loss.program(x, 0.5)


# functions of functions
def loss(w: kg.Array, target: kg.Array) -> kg.Array:
    return ((w - target) ** 2).mean()


assert_type(kg.value_and_grad(loss)(x, x), tuple[kg.Array, Any])
assert_type(kg.vmap(loss)(x, x), kg.Array)
assert_type(kg.checkpoint(loss)(x, x), kg.Array)
gradient: kg.Array = kg.grad(loss)(x, target=x)

with kg.profile() as p:
    scaled(x)
assert_type(p, kg.Profile)
