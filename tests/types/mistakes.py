"""Mistakes, which type checkers find: an error on each line that says so, and no other."""

import numpy as np

import kernelgraph as kg

x = kg.asarray([1.0, 2.0])


@kg.kernel_graph
def scaled(a: kg.Array, factor: float = 2.0) -> kg.Array:
    return a * factor


@kg.kernel_graph
def plain(a: np.ndarray) -> np.ndarray:
    return a


class Model:
    @kg.kernel_graph
    def loss(self, a: kg.Array) -> kg.Array:
        return a.sum()


kg.expp(x)  # error
kg.linalg.nrom(x)  # error
kg.nn.softmx(x)  # error
kg.sum(x, axes=0)  # error
kg.sum(x, axis="rows")  # error
kg.zeros("3")  # error
kg.exp()  # error
kg.clip(x, 0, 1, 2, 3, 4)  # error
kg.asarray(x, device=0)  # error
x.sums()  # error
x.sum(axes=0)  # error
x.mean().shap  # error
x + {}  # error
x + None  # error
x.shape = (2, 1)  # error
x.reshape(2).wiat()  # error
scaled()  # error
scaled(x, 2.0, 3.0)  # error
scaled(x, scale=2.0)  # error
scaled("x")  # error
scaled(x, factor="2")  # error
scaled.plann(x)  # error
number: int = scaled(x)  # error
Model().loss()  # error
Model().loss(x, 2)  # error
kg.kernel_graph(scaled, device=0)  # error
kg.kernel_graph(device="gpu")  # error
kg.kernel_graph(device="CUDA")  # error
kg.kernel_graph(device=("cpu", "tpu"))  # error
kg.kernel_graph(steams=2)  # error
kg.kernel_graph(streams="maximum")  # error
kg.kernel_graph(memory="tiny")  # error
kg.kernel_graph(untraceable="maybe")  # error
kg.kernel_graph(2)  # error
kg.grad(lambda a: a)(x, x)  # error
kg.value_and_grad(scaled)(x, 2.0)[2]  # error
kg.random.normal(0, (2, 3))  # error
plain(np.ones(2)).wiat()  # error
singles = kg.zeros(3, dtype=np.float32)
doubles: kg.Array[np.float64] = singles  # error
kg.wait()  # error
kg.split(x, 2).sum()  # error
kg.Array([1, 2])  # error
np.exp(x)  # what NumPy's own stubs know of it is NumPy's matter
