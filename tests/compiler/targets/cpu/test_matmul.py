"""Products of small matrices: the kernels agree with exact sums however the matrices lie."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kernelgraph as kg
from kernelgraph.compiler.layout.operands import StridedBufferArray
from kernelgraph.compiler.targets.cpu import matmul
from kernelgraph.compiler.targets.cpu.matmul import cpu_matmul_kernel_task
from kernelgraph.runtime.codegen import llvm_jit
from kernelgraph.runtime.program.program import Int, Kernel, Region
from tests.counts import examples

LENGTHS = st.sampled_from([1, 2, 3, 4, 5, 6, 7, 11, 16, 17, 33, 49, 70])
KERNELS: dict[tuple[str, int], Any] = {}  # compiled


def run(kernel: Kernel, vector_bytes: int, slots: list[int], begin: int, end: int) -> None:
    key = kernel.source, vector_bytes
    if key not in KERNELS:
        code = llvm_jit.compile_llvm_ir(kernel.source, kernel.name)
        KERNELS[key] = code.function(kernel.name, None, *[ctypes.c_uint64] * 3), code
    given = (ctypes.c_int64 * len(slots))(*slots)
    KERNELS[key][0](ctypes.addressof(given), begin, end)


def described(array: Any, buffer: int) -> StridedBufferArray:
    return StridedBufferArray(Region(buffer, 0, array.shape, array.strides, array.itemsize, array.dtype.name), False)


def lying(rng: Any, shape: tuple[int, ...], dtype: str, how: str) -> Any:
    """Random numbers of a shape, with memory in some order, gaps, or steps back."""
    *batch, rows, columns = shape
    if how == "rows":
        return rng.standard_normal((*batch, rows, columns + 3)).astype(dtype)[..., :columns]
    if how == "columns":
        return rng.standard_normal((*batch, columns, rows + 1)).astype(dtype).swapaxes(-1, -2)[..., :rows, :]
    if how == "reversed":
        return rng.standard_normal((*batch, rows, columns)).astype(dtype)[..., ::-1, :]
    return np.broadcast_to(rng.standard_normal((rows, columns)).astype(dtype), shape)


HOWS = st.sampled_from(["rows", "columns", "reversed", "shared"])


@pytest.fixture(params=[False, True], ids=["as they are", "packed"])
def packed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[bool]:
    """Whether all products that may be are done in copied panels, of a few rows."""
    if request.param:
        for name, value in (("MOST", 0), ("LEAST_PACKED", 0), ("DEPTH", 16), ("TILE_ROWS", 1), ("FULL", 0)):
            monkeypatch.setattr(matmul, name, value)
    yield request.param


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(["float32", "float64"]), st.sampled_from([16, 32, 64]), st.integers(1, 3), st.data())
def test_kernels_of_any_shape_and_layout(
    packed: bool, dtype: str, vector_bytes: int, count: int, data: st.DataObject
) -> None:
    """Near the exact sums; nothing beside the results is written, and any split of the units gives the same bits."""
    rng = np.random.default_rng(data.draw(st.integers(0, 9)))
    m, n, k = (data.draw(LENGTHS) for _ in range(3))
    a = lying(rng, (count, m, k), dtype, data.draw(HOWS))
    b = lying(rng, (count, k, n), dtype, data.draw(HOWS))
    room = np.full((count, m + 1, n + 2), 7, dtype)
    c = room[:, :m, 1 : n + 1]
    tasks = cpu_matmul_kernel_task(vector_bytes, [described(a, 0), described(b, 1)], [described(c, 2)], "")
    if tasks is None:  # a library does it
        assert packed or b.strides[-1] != b.itemsize
        return
    (task,) = tasks
    assert isinstance(task.kernel, Kernel)
    numbers = [argument.value for argument in task.arguments[3:] if isinstance(argument, Int)]
    slots = [a.ctypes.data, b.ctypes.data, c.ctypes.data, *numbers]
    exact = a.astype(np.longdouble) @ b.astype(np.longdouble)
    bound = 4 * k * np.finfo(dtype).eps * (abs(a).astype(np.longdouble) @ abs(b))
    found = []
    for cut in (0, data.draw(st.integers(0, task.units))):
        room[...] = 7
        run(task.kernel, vector_bytes, slots, 0, cut)
        run(task.kernel, vector_bytes, slots, cut, task.units)
        assert (room[:, m:] == 7).all() and (room[..., 0] == 7).all() and (room[..., -1] == 7).all()
        found.append(c.copy())
    assert (abs(found[0] - exact) <= bound).all()
    assert found[0].tobytes() == found[1].tobytes()


CALLS = (
    lambda a, b: (a @ b, b.T @ a, a @ b.T, a.T @ b.T),
    lambda a, b: (a[::-1] @ b[:, ::-1], a[::2] @ b, a[3:, 5:] @ b[5:, 2:], a[:, ::-1] @ b),
    lambda a, b: np.einsum("kij,nkj->nki", (a @ b)[None], b[:, None]),
    lambda a, b: (np.exp(a) @ b, np.tanh(a @ b + 1) @ np.broadcast_to(b[0], b.shape)),
    lambda a, b: (np.stack([a, b, a + b]) @ b, np.stack([a, b]) @ np.stack([b, a]).swapaxes(1, 2)),
)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("n", [9, 24, 70])
def test_calls_agree_with_numpy(n: int, dtype: str, order: str) -> None:
    rng = np.random.default_rng(n)
    a, b = (np.array(rng.uniform(-1, 1, (n, n)) / n, dtype, order=order) for _ in range(2))
    for call in CALLS:
        results = kg.kernel_graph(call, device="cpu")(a, b)
        for mine, theirs in zip(*(r if isinstance(r, tuple) else (r,) for r in (results, call(a, b))), strict=True):
            tolerance = 64 * float(np.finfo(dtype).eps * abs(theirs).max())
            np.testing.assert_allclose(mine, theirs, rtol=0, atol=tolerance, strict=True)


def test_special_values() -> None:
    """NaN and infinities stay in their rows and columns, and no zero is negative."""
    a = np.ones((20, 40))
    a[1, 2], a[3, 39], a[7, 0], a[8] = np.nan, np.inf, -np.inf, -0.0
    b = np.ones((40, 19))
    for call in (lambda a, b: a @ b, lambda a, b: b.T @ a.T, lambda a, b: a @ np.ascontiguousarray(b.T).T):
        mine, theirs = np.asarray(kg.kernel_graph(call, device="cpu")(a, b)), call(a, b)
        np.testing.assert_array_equal(mine, theirs)
        assert not np.signbit(mine[mine == 0]).any()


def test_a_loop_of_small_products_needs_no_library() -> None:
    def turns(w: Any, h: Any) -> Any:
        for _ in range(6):
            h = np.tanh(h @ w)
        return h

    f = kg.kernel_graph(turns, device="cpu")
    w, h = np.eye(64, dtype=np.float32), np.ones((16, 64), np.float32)
    assert "k_row_products" in str(f.source(w, h))
    np.testing.assert_allclose(f(w, h), turns(w, h), 1e-6)


@pytest.mark.parametrize(
    ("shape", "own"),
    [
        ((20_000, 200, 10), True),
        ((20_000, 200, 16), True),
        ((20_000, 200, 2), False),  # most of a vector is empty
        ((2000, 2000, 10), False),  # rows are fetched late
        ((50, 1000, 10), True),  # small
        ((20_000, 200, 17), False),
        ((2_000_000, 200, 10), True),
        ((8, 1024, 4096), True),
        ((4, 1024, 4096), False),  # too few rows share what is copied
    ],
)
def test_products_that_fill_vectors_are_kernels(shape: tuple[int, int, int], own: bool) -> None:
    """A library packs tall matrices too, for a few columns."""
    m, k, n = shape
    dense = [
        StridedBufferArray(Region(i, 0, s, (4 * s[1], 4), 4, "float32"), False)
        for i, s in enumerate([(m, k), (k, n), (m, n)])
    ]
    assert (cpu_matmul_kernel_task(64, dense[:2], dense[2:], "") is not None) == own
