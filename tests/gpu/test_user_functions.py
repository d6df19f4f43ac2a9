"""Users' scalar functions, kernels and callbacks on a GPU agree with the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from tests.dsl.api.test_own_steps import CPP, running, scale_on_the_cpu
from tests.dsl.api.test_user_functions import collatz, escape, parity, piecewise, root, turned


@pytest.fixture(autouse=True)
def gpu(device: Any) -> None:
    """Skips where there is none."""


def both(function: Any, *args: Any, rtol: float = 1e-5) -> None:
    """The same on both devices, dtypes too."""
    on = {d: kg.kernel_graph(function, device=d)(*args) for d in ("cpu", "cuda")}
    for got, want in zip(*((r if isinstance(r, tuple) else (r,)) for r in (on["cuda"], on["cpu"])), strict=True):
        got, want = np.asarray(got), np.asarray(want)
        assert got.dtype == want.dtype and got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=rtol, atol=1e-5)


@pytest.mark.parametrize("shape", [(7,), (300, 1), (33, 65), (3, 1000), (5000, 3), (4, 5, 300)])
@pytest.mark.parametrize("dtype", ["f4", "f8", "i4"])
def test_light_functions(shape: tuple[int, ...], dtype: str) -> None:
    rng = np.random.default_rng(len(shape))
    x, y = rng.integers(-9, 9, shape).astype(dtype), rng.normal(size=shape[-1:]).astype("f4")
    both(lambda x, y: piecewise(x, y), x, y)
    both(lambda x, y: (piecewise(x, y) * 2, parity(abs(x).astype(np.int64), True)), x[::-1], y)
    both(lambda x, y: piecewise(x, y).sum(-1), x, y, rtol=1e-4)
    both(lambda x, y: piecewise(x, y).sum(0), x, y, rtol=1e-4)
    both(lambda x, y: piecewise(x, y).T + 1, x, y)


@pytest.mark.parametrize("n", [1, 31, 33, 128, 1000, 4099])
def test_loops_run_for_elements_that_exist_alone(n: int) -> None:
    a = np.arange(1, 3 * n + 1).reshape(3, n)
    both(lambda a: (collatz(a), collatz(a).sum(1), collatz(a).max(0), collatz(a[:, ::-2]).T), a)


def test_several_results_complex_numbers_and_numbers_of_the_call() -> None:
    rng = np.random.default_rng(1)
    a, b = rng.uniform(0.1, 3, (2, 40, 50))
    both(lambda a, b: root(a, b), a, b)
    z = rng.normal(size=(20, 30)) + 1j * rng.normal(size=(20, 30))
    both(lambda z, angle: turned(z, angle), z.astype("c8"), 0.3, rtol=1e-4)
    both(lambda z, most: escape(z, most) * 2 + 1, z, 100)


def test_outside_of_a_trace() -> None:
    x = np.linspace(-2, 2, 1000)
    got = piecewise(kg.asarray(x, device="cuda"), 0.5)
    assert got.device.startswith("cuda")
    np.testing.assert_allclose(np.asarray(got), np.asarray(piecewise(x, 0.5)), rtol=1e-12)


def test_callbacks() -> None:
    x = np.arange(1000.0).reshape(10, 100)
    both(lambda x: kg.host(running, x[:, ::-1] * 2, [kg.spec(x.shape)] * 2)[0] + 1, x)


def test_kernels_in_cpp_and_of_numba() -> None:
    cuda = pytest.importorskip("numba.cuda")

    @cuda.jit
    def turned_round(x: Any, out: Any, factor: Any) -> None:
        i, j = cuda.grid(2)
        if i < x.shape[0] and j < x.shape[1]:
            out[j, i] = x[i, j] * factor

    def on_the_cpu(x: Any, out: Any, factor: Any) -> None:
        out[...] = x.T * factor

    def add_on_the_cpu(x: Any, u: Any, n: Any) -> None:
        u += x

    adds = """extern "C" __global__ void adds(const double* x, double* u, long long n) {
        long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; if (i < n) u[i] += x[i]; }"""
    x = np.arange(1200.0).reshape(30, 40)
    both(
        lambda x: kg.kernel(
            turned_round, (x * 2, 1.5), kg.spec(x.T.shape, x.dtype), ((2, 3), (16, 16)), on_the_cpu
        ).sum(1),
        x,
    )
    y = np.arange(1000.0)
    both(
        lambda y: (
            kg.kernel(CPP, (y[::2] + 1, 500, 2.0), kg.spec(500), (4, 128), scale_on_the_cpu, "scale") - 1,
            kg.kernel(adds, (y, 1000), y * 3, (8, 128), add_on_the_cpu, "adds"),
        ),
        y,
    )
