"""Products of a matrix and a vector: the kernels of their own agree with exact sums however the matrix lies."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kernelgraph as kg
from kernelgraph.compiler.core.types import dtype_of
from kernelgraph.compiler.targets.cpu.matvec import llvm_matvec_columns_kernel, llvm_matvec_rows_kernel
from kernelgraph.runtime.codegen import llvm_jit
from tests.counts import examples

LENGTHS = st.sampled_from([1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 64, 65, 130])
KERNELS: dict[tuple[Any, str, int], Any] = {}  # compiled


def launch(make: Any, dtype: str, vector_bytes: int, slots: list[int], begin: int, end: int) -> None:
    key = make, dtype, vector_bytes
    if key not in KERNELS:
        kernel = make(dtype_of(dtype), vector_bytes)
        code = llvm_jit.compile_llvm_ir(kernel.source, kernel.name)
        KERNELS[key] = code.function(kernel.name, None, *[ctypes.c_uint64] * 3), code
    given = (ctypes.c_uint64 * len(slots))(*slots)
    KERNELS[key][0](ctypes.addressof(given), begin, end)


@settings(max_examples=examples(50))
@given(st.sampled_from(["float32", "float64"]), st.sampled_from([16, 32, 64]), LENGTHS, LENGTHS, st.data())
def test_kernels_on_any_length(dtype: str, vector_bytes: int, count: int, length: int, data: st.DataObject) -> None:
    """Near the exact sums; nothing beside the results is written, and any split of the units gives the same bits."""
    rng = np.random.default_rng(data.draw(st.integers(0, 9)))
    a = rng.standard_normal((count + 1, length + 3)).astype(dtype)
    x, item = rng.standard_normal(length).astype(dtype), a.itemsize
    exact = a[:count, :length].astype(np.longdouble) @ x.astype(np.longdouble)
    bound = 4 * length * np.finfo(dtype).eps * (abs(a[:count, :length]).astype(np.longdouble) @ abs(x))
    along = np.asfortranarray(a)
    block = data.draw(st.sampled_from([count, -(-count // 2), 3]))
    rows = [a.ctypes.data, x.ctypes.data, 0, count, length, a.strides[0], item]
    columns = [along.ctypes.data, x.ctypes.data, 0, count, length, along.strides[1], item, block]
    for make, slots, units in (
        (llvm_matvec_rows_kernel, rows, -(-count // 4)),
        (llvm_matvec_columns_kernel, columns, -(-count // block)),
    ):
        found = []
        for cut in (0, data.draw(st.integers(0, units))):
            y = np.full(count + 2, 7, dtype)
            slots[2] = y[1:].ctypes.data
            launch(make, dtype, vector_bytes, slots, 0, cut)
            launch(make, dtype, vector_bytes, slots, cut, units)
            assert y[0] == y[-1] == 7
            found.append(y[1:-1])
        assert (abs(found[0] - exact) <= bound).all()
        assert found[0].tobytes() == found[1].tobytes()


CALLS = (
    lambda a, b, x: (a @ x, b.T @ x),
    lambda a, b, x: (x @ a, b @ x[:, None]),
    lambda a, b, x: (a[::-1] @ x, a[:, ::-1].T @ x, b[::2] @ x, a[3:, 5:] @ x[5:], a @ x[::-1]),
    lambda a, b, x: (np.exp(a) @ x, a @ np.exp(x), np.tanh(a @ x + 1), x[None] @ b),
    lambda a, b, x: np.linalg.norm(a @ (b @ (a.T @ x))),
)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("n", [23, 64, 610])
def test_calls_agree_with_numpy(n: int, dtype: str, order: str) -> None:
    rng = np.random.default_rng(n)
    a, b = (np.array(rng.uniform(-1, 1, (n, n)) / n, dtype, order=order) for _ in range(2))
    x = rng.uniform(-1, 1, n).astype(dtype)
    for call in CALLS:
        results = kg.kernel_graph(call, device="cpu")(a, b, x)
        for mine, theirs in zip(*(r if isinstance(r, tuple) else (r,) for r in (results, call(a, b, x))), strict=True):
            tolerance = 64 * float(np.finfo(dtype).eps * abs(theirs).max())
            np.testing.assert_allclose(mine, theirs, rtol=0, atol=tolerance, strict=np.ndim(theirs) > 0)


def test_special_values() -> None:
    a = np.ones((40, 40))
    a[1, 2], a[3, 39], a[7, 0], a[8] = np.nan, np.inf, -np.inf, -0.0
    x = np.ones(40)
    for call in (lambda a, x: a @ x, lambda a, x: x @ a, lambda a, x: a[8:9].repeat(30, 0) @ x):
        mine, theirs = np.asarray(kg.kernel_graph(call, device="cpu")(a, x)), call(a, x)
        np.testing.assert_array_equal(mine, theirs)
        assert not np.signbit(mine[mine == 0]).any()
