"""CUDA kernel text means what NumPy says (run in plain Python), and compiles to what is expected without a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelgraph.compiler.core.types import DTYPES
from kernelgraph.compiler.kernel.loop_nest import LoopNest, Operand
from kernelgraph.compiler.targets.cuda.kernel import cuda_threads_of_resident_row, print_cuda_kernel
from tests.compiler.cuda_nests import B1, F32, F64, I64, Builder, array, check, emulate, reference
from tests.counts import examples

SEEDS = st.integers(0, 2**32 - 1)
few = settings(max_examples=examples(40), deadline=None)


@st.composite
def elementwise(draw: st.DrawFn) -> tuple[LoopNest, tuple[int, ...]]:
    """Mixed dtypes and layouts, an index, a constant, a comparison."""
    axes = draw(st.integers(1, 3))
    some = st.sampled_from(["f32", "f64", "i8", "i32", "i64", "u16", "b1", "f16", "bf16"])
    names = draw(st.lists(some, min_size=1, max_size=3))
    operands = []
    for name in names:
        layout = "".join(draw(st.sampled_from("0s")) for _ in range(axes - 1)) + draw(st.sampled_from("011s"))
        operands.append(Operand(DTYPES[name], "in", layout, draw(st.booleans())))
    b = Builder()
    b.point()
    total = b("cast", b("index", dtype=I64, attr=axes - 1), dtype=F64)
    for k, name in enumerate(names):
        value = b("cast", b.load(k, DTYPES[name]), dtype=F64)
        total = b("add", b("mul", total, b.const(0.5, F64)), value)
    out = draw(st.sampled_from(["f32", "f64", "i16", "f16", "b1", "u8"]))
    if out in ("i16", "u8"):
        total = b("abs", total)
    outer = "s" * (axes - 1)
    operands.append(Operand(DTYPES[out], "out", outer + draw(st.sampled_from("11s")), draw(st.booleans())))
    b.store(len(names), b("cast", total, dtype=DTYPES[out]))
    operands.append(Operand(B1, "out", outer + "1", draw(st.booleans())))
    b.store(len(names) + 1, b("lt", total, b.const(1.0, F64), dtype=B1))
    bits = draw(st.sampled_from([32, 64]))
    sizes = tuple(draw(st.integers(1, 40)) if a == axes - 1 else draw(st.integers(1, 5)) for a in range(axes))
    return b.nest("k", axes, 0, operands, index_bits=bits, width=draw(st.sampled_from([1, 2]))), sizes


@few
@given(elementwise(), SEEDS)
def test_elementwise(case: tuple[LoopNest, tuple[int, ...]], seed: int) -> None:
    nest, sizes = case
    pointers = check(nest, sizes, seed, rtol=1e-3)
    for operand, pointer in zip(nest.operands, pointers, strict=True):
        if "0" not in operand.layout:  # each element is touched once
            counts = pointer.loads if operand.role == "in" else pointer.stores
            assert len(counts) == np.prod(sizes) and set(counts.values()) == {1}


@st.composite
def layout_changes(draw: st.DrawFn) -> tuple[LoopNest, tuple[int, ...]]:
    """Inputs that are contiguous along different axes."""
    axes = draw(st.integers(2, 3))
    across = draw(st.integers(0, axes - 2))
    names = draw(st.lists(st.sampled_from(["f32", "f64", "i8", "b1", "c64", "bf16"]), min_size=1, max_size=2))
    operands, b = [], Builder()
    b.point()
    total = b("cast", b("index", dtype=I64, attr=across), dtype=F64)
    for k, name in enumerate(names):
        layout = "".join("1" if a == across else "s" for a in range(axes))
        operands.append(Operand(DTYPES[name], "in", layout, draw(st.booleans())))
        value = b("mul", b.load(k, F32, 0), b.load(k, F32, 1)) if name == "c64" else b.load(k, DTYPES[name])
        total = b("add", total, b("cast", value, dtype=F64))
    other = "".join(draw(st.sampled_from("0s")) for _ in range(axes - 1)) + draw(st.sampled_from("01"))
    operands.append(Operand(F32, "in", other, draw(st.booleans())))
    total = b("add", total, b("cast", b.load(len(names)), dtype=F64))
    operands.append(Operand(F64, "out", "s" * (axes - 1) + "1", draw(st.booleans())))
    b.store(len(names) + 1, total)
    sizes = [draw(st.integers(1, 2))] * axes
    sizes[across], sizes[-1] = draw(st.integers(1, 70)), draw(st.integers(1, 40))
    return b.nest("k", axes, 0, operands, index_bits=draw(st.sampled_from([32, 64]))), tuple(sizes)


@settings(few, max_examples=examples(12))
@given(layout_changes(), SEEDS)
def test_layout_changes(case: tuple[LoopNest, tuple[int, ...]], seed: int) -> None:
    nest, sizes = case
    pointers = check(nest, sizes, seed, rtol=1e-3)
    assert "barrier()" in print_cuda_kernel(nest)
    for operand, pointer in zip(nest.operands, pointers, strict=True):
        if "0" not in operand.layout and operand.dtype.kind != "c":
            assert set((pointer.loads or pointer.stores).values()) == {1}


def test_scalars() -> None:
    b = Builder()
    b.point()
    b.store(1, b("add", b.load(0), b("scalar", dtype=F32, attr=0)))
    nest = b.nest("k", 1, 0, [Operand(F32, "in", "0"), Operand(F32, "out", "1")], scalars=(F32,))
    check(nest, (1,), 0, (2.5,))


def test_in_place_and_complex() -> None:
    b = Builder()
    b.point()
    re, im = b.load(0, F32, 0), b.load(0, F32, 1)
    b.store(0, b("neg", im), 0)
    b.store(1, b("hypot", re, im))
    b.store(0, re, 1)
    for layout, aligned in (("1", True), ("1", False), ("s", True)):
        operands = [Operand(np.dtype("c8"), "inout", layout, aligned), Operand(F32, "out", "1")]
        check(b.nest("k", 1, 0, operands), (1037,), 1)


def softmax(layout: str, width: int, parallel: int = 1, dtype: Any = F32, aligned: bool = True) -> LoopNest:
    b = Builder()
    b.loop()
    largest = b.reduce("max", b.load(0, dtype))
    b.loop()
    total = b.reduce("sum", b("exp", b("sub", b.load(0, dtype), b.result(largest, dtype))))
    b.loop()
    e = b("exp", b("sub", b.load(0, dtype), b.result(largest, dtype)))
    b.store(1, b("div", e, b.result(total, dtype)))
    operands = [Operand(dtype, "in", layout, aligned), Operand(dtype, "out", layout, aligned)]
    return b.nest("softmax", parallel, 1, operands, index_bits=32, width=width)


@pytest.mark.parametrize("length", [1, 3, 4, 31, 128, 130, 600, 1200, 2051])
@pytest.mark.parametrize("aligned", [True, False])
def test_softmax_rows(length: int, aligned: bool) -> None:
    width, _ = cuda_threads_of_resident_row(length, 4)
    pointers = check(softmax("s1", width, aligned=aligned), (3, length), length)
    assert set(pointers[0].loads.values()) == {1}  # the row stays in registers
    check(softmax("s1", 0, aligned=aligned), (3, length), length)


@pytest.mark.parametrize("length", [1, 130, 600, 2051])
@pytest.mark.parametrize("aligned", [True, False])
@pytest.mark.parametrize("width", [16, 32, 64])
def test_softmax_rows_of_clusters(length: int, aligned: bool, width: int) -> None:
    pointers = check(softmax("s1", width, aligned=aligned), (2, length), length)
    assert set(pointers[0].loads.values()) == {1}  # the row stays in the registers of some blocks


@pytest.mark.parametrize("sizes", [(1, 5), (33, 40), (130, 7), (4, 100)])
def test_softmax_columns(sizes: tuple[int, int]) -> None:
    check(softmax("1s", 1), sizes, 3)
    check(softmax("1s", 1, aligned=False), sizes, 3)
    check(softmax("s1s", 1, parallel=2, dtype=F64), (3, *sizes), 3)


CLUSTERED = (16, 64)  # widths of rows that 2 and 8 blocks have together


@pytest.mark.parametrize("order", [("argmax", "max"), ("max", "argmin"), ("argmin", "sum"), ("sum", "argmax")])
def test_several_reductions_of_rows_of_clusters(order: tuple[str, str]) -> None:
    """One that carries a place beside one that does not, and what is then made of both."""
    b = Builder()
    b.loop()
    value = b.load(0)
    found = [
        b.reduce(name, value, b("index", dtype=I64, attr=1)) if name.startswith("arg") else b.reduce(name, value)
        for name in order
    ]
    b.loop()
    total = b.reduce("sum", b("sub", b.load(0), b.result(found[order[0].startswith("arg")])))
    b.point()
    b.store(1, b.result(total))
    b.store(2, b.result(found[order[1].startswith("arg")], I64, 1))
    operands = [Operand(F32, "in", "s1"), Operand(F32, "out", "s0"), Operand(I64, "out", "s0")]
    check(b.nest("k", 1, 1, operands, width=64), (2, 700), 1, rtol=1e-4)


COMBINES = ("sum", "prod", "min", "max", "argmin", "argmax", "any", "all")


@st.composite
def reductions(draw: st.DrawFn) -> tuple[LoopNest, tuple[int, ...]]:
    """Two reductions at once of a product of operands, an epilogue, and a store for every element."""
    parallel, reduced = draw(st.integers(1, 3)), draw(st.integers(1, 2))
    axes = parallel + reduced
    name = draw(st.sampled_from(["f32", "f64", "i32", "i64", "u8"]))
    dtype = DTYPES[name]
    inner = draw(st.sampled_from([axes - 1, parallel - 1]))

    def layout(kinds: str, contiguous: bool) -> str:
        return "".join(
            "1" if contiguous and a == inner else draw(st.sampled_from(kinds)) if kinds else "s" for a in range(axes)
        )

    operands = [
        Operand(dtype, "in", layout(draw(st.sampled_from(["", "00s"])), draw(st.booleans())), draw(st.booleans())),
        Operand(dtype, "in", layout("00s", draw(st.booleans())), draw(st.booleans())),
    ]
    b = Builder()
    if draw(st.booleans()):
        b.point()
        b.const(0.0, F64)
    b.loop()
    value = b("maximum", b.load(0, dtype), b.load(1, dtype))
    found = []
    for combine in (draw(st.sampled_from(COMBINES)), draw(st.sampled_from(COMBINES))):
        if combine.startswith("arg"):
            number = b("index", dtype=I64, attr=axes - 1)
            if reduced == 2:
                row = b("mul", b("index", dtype=I64, attr=axes - 2), b("size", dtype=I64, attr=axes - 1))
                number = b("add", row, number)
            found.append((b.reduce(combine, value, number), I64, 1))
        elif combine in ("any", "all"):
            found.append((b.reduce(combine, b("gt", value, b.const(1, dtype), dtype=B1)), B1, 0))
        else:
            found.append((b.reduce(combine, value), dtype, 0))
    b.point()
    for where, kind, part in found:
        b.store(len(operands), b.result(where, kind, part))
        operands.append(Operand(kind, "out", "s" * parallel + "0" * reduced, draw(st.booleans())))
    if draw(st.booleans()):
        b.loop()
        again = b("cast", b.load(0, dtype), dtype=F64)
        b.store(len(operands), b("add", again, b("cast", b.result(found[0][0], found[0][1], found[0][2]), dtype=F64)))
        operands.append(Operand(F64, "out", layout("", True), draw(st.booleans())))
    lengths = [draw(st.integers(1, 3)) for _ in range(parallel)] + [draw(st.integers(1, 30)) for _ in range(reduced)]
    if draw(st.booleans()):
        lengths[parallel - 1] = draw(st.integers(1, 40))
    own = cuda_threads_of_resident_row(lengths[-1], dtype.itemsize if len(operands) < 5 else 8)[0]
    width = draw(st.sampled_from([0, own, *(CLUSTERED if reduced == 1 else ())]))
    bits = draw(st.sampled_from([32, 64]))
    return b.nest("k", parallel, reduced, operands, index_bits=bits, width=width), tuple(lengths)


@settings(few, max_examples=examples(25))
@given(reductions(), SEEDS)
def test_reductions(case: tuple[LoopNest, tuple[int, ...]], seed: int) -> None:
    check(*case, seed, rtol=1e-4)


@pytest.mark.parametrize("length", [1, 2, 3, 16, 17, 70])
@pytest.mark.parametrize("combine", ["sum", "prod", "max", "argmin"])
def test_a_value_that_is_the_same_all_along_a_row(combine: str, length: int) -> None:
    """One that no element changes, e.g. a broadcast: each element counts."""
    b = Builder()
    b.loop()
    value = b("neg", b.load(0, I64), dtype=I64)
    b.store(1, value)
    arg = combine.startswith("arg")
    found = b.reduce(combine, value, b("index", dtype=I64, attr=1)) if arg else b.reduce(combine, value)
    b.point()
    b.store(2, b.result(found, I64, int(arg)))
    operands = [Operand(I64, "in", "s0"), Operand(I64, "out", "s1"), Operand(I64, "out", "s0")]
    for width in (0, cuda_threads_of_resident_row(length, 8)[0]):
        check(b.nest("k", 1, 1, operands, width=width), (3, length), 1)


@pytest.mark.parametrize("layout", ["s1", "1s"])
@pytest.mark.parametrize("combine", ["max", "min", "argmax", "argmin"])
def test_nan_wins(layout: str, combine: str) -> None:
    b = Builder()
    b.loop()
    value = b.load(0)
    arg = combine.startswith("arg")
    found = b.reduce(combine, value, b("index", dtype=I64, attr=1)) if arg else b.reduce(combine, value)
    b.point()
    b.store(1, b.result(found, I64 if arg else F32, int(arg)))
    nest = b.nest("k", 1, 1, [Operand(F32, "in", layout), Operand(I64 if arg else F32, "out", "s0")], width=1)
    rng = np.random.default_rng(5)
    arrays = [array(rng, o, (9, 50)) for o in nest.operands]
    arrays[0].view[...] = np.round(arrays[0].view)  # ties
    for row in range(8):
        arrays[0].view[row, rng.integers(0, 50, row)] = np.nan
    arrays[0].view[8] = -np.inf if "max" in combine else np.inf
    wanted = [a.copy() for a in arrays]
    emulate(nest, arrays, (9, 50))
    reference(nest, wanted, (9, 50))
    np.testing.assert_array_equal(arrays[1].view, wanted[1].view)
