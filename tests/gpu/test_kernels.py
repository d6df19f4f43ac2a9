"""Kernels of every strategy on a GPU mean what NumPy says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import kernelgraph as kg
from kernelgraph.compiler.core.cost import CLUSTER
from kernelgraph.compiler.core.types import DTYPES
from kernelgraph.compiler.kernel.loop_nest import LoopNest, Operand
from kernelgraph.compiler.kernel.primitives import PRIMITIVES
from kernelgraph.compiler.targets.cuda.kernel import cuda_kernel_of_nest, cuda_threads_of_resident_row
from tests.compiler.cuda_nests import F32, I64, Builder, array
from tests.compiler.targets.cuda.test_cuda_text import SEEDS, elementwise, layout_changes, reductions, softmax
from tests.gpu.gpu_runs import check_nest, run_nest

some = settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@some
@given(elementwise(), SEEDS)
def test_elementwise(device: Any, case: Any, seed: int) -> None:
    check_nest(device, *case, seed, rtol=1e-3)


@some
@given(reductions(), SEEDS)
def test_reductions(device: Any, case: Any, seed: int) -> None:
    check_nest(device, *case, seed, rtol=1e-4)


@some
@given(layout_changes(), SEEDS)
def test_layout_changes(device: Any, case: Any, seed: int) -> None:
    check_nest(device, *case, seed, rtol=1e-3)


LENGTHS = [1, 3, 31, 128, 600, 1200, 4096, 16384, 16385, 65536, 100_000, 262_144, 300_000]


def _softmax_rows(length: int, aligned: bool) -> LoopNest:
    return softmax("s1", cuda_threads_of_resident_row(length, 4, CLUSTER)[0], aligned=aligned)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("aligned", [True, False])
def test_softmax_rows(loaded: Any, length: int, aligned: bool) -> None:
    check_nest(loaded, _softmax_rows(length, aligned), (37, length), length)


@pytest.mark.parametrize("sizes", [(1, 5), (33, 40), (130, 1000), (2048, 300)])
def test_softmax_columns(loaded: Any, sizes: tuple[int, int]) -> None:
    check_nest(loaded, softmax("1s", 1), sizes, 3)
    check_nest(loaded, softmax("1s", 1, aligned=False), sizes, 3)


def _total(width: int) -> LoopNest:
    b = Builder()
    b.loop()
    total = b.reduce("sum", b.load(0))
    b.point()
    b.store(1, b.result(total))
    operands = [Operand(F32, "in", "s1"), Operand(F32, "out", "s0")]
    return b.nest("total", 1, 1, operands, index_bits=32, width=width)


def test_sums_are_as_good_as_pairwise_and_repeat(device: Any) -> None:
    """float32 sums of 2^22 numbers: error near NumPy's, the same bits each time."""
    nest, sizes = _total(0), (4, 1 << 20)
    arrays = [array(np.random.default_rng(0), o, sizes) for o in nest.operands]
    arrays[0].view[...] = np.random.default_rng(1).random(sizes, dtype="f4")
    exact = arrays[0].view.astype("f8").sum(axis=1)
    found = []
    for _ in range(3):
        run_nest(device, nest, arrays, sizes)
        found.append(arrays[1].view[:, 0].copy())
    assert (found[0] == found[1]).all() and (found[0] == found[2]).all()
    pairwise = np.abs(arrays[0].view.sum(axis=1) - exact).max()
    assert np.abs(found[0] - exact).max() <= max(2 * pairwise, 1e-6 * exact.max())


def _samples(dtype: Any, rng: np.random.Generator) -> np.ndarray[Any, Any]:
    if dtype == DTYPES["b1"]:
        return rng.random(64) < 0.5
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        edges = np.array([info.min, info.max, 0, 1, 2, 3], dtype)
        return np.concatenate([edges, rng.integers(info.min, info.max, 250, dtype, endpoint=True)])
    edges = np.array([0.0, -0.0, 1, -1, 0.5, np.inf, -np.inf, np.nan, 1e-30, -1e-30, 88.0, -88.0], dtype)
    return np.concatenate([edges, rng.normal(size=250), rng.normal(size=250) * 1e3]).astype(dtype)


ULPS = {"lgamma": 2000, "pow": 16, "sinh": 8, "tan": 8, "gamma": 64}  # others 4


CASES = [
    (op, name)
    for op, rule in PRIMITIVES.items()
    for name in ("f32", "f64", "i8", "i32", "i64", "u16", "u64", "b1")
    if op not in ("cast", "bitcast") and DTYPES[name] in rule.accepts
]


def _primitive(op: str, name: str) -> LoopNest:
    rule, dtype = PRIMITIVES[op], DTYPES[name]
    b = Builder()
    b.point()
    kinds = [DTYPES["b1"] if k < rule.same_from else dtype for k in range(rule.arity)]
    args = [b.load(k, kind) for k, kind in enumerate(kinds)]
    out = rule.result if isinstance(rule.result, np.dtype) else dtype
    b.store(len(args), b(op, *args, dtype=out))
    return b.nest("k", 1, 0, [Operand(kind, "in", "1") for kind in kinds] + [Operand(out, "out", "1")])


@pytest.mark.parametrize(("op", "name"), CASES)
def test_primitives(loaded: Any, op: str, name: str) -> None:
    rule, dtype = PRIMITIVES[op], DTYPES[name]
    rng = np.random.default_rng(7)
    columns = [_samples(dtype, rng) for _ in range(rule.arity)]
    for column in columns[1:]:
        rng.shuffle(column)
    if op in ("quot", "rem"):
        columns[1][columns[1] == 0] = 3
        if dtype.kind == "i":
            columns[1][columns[1] == -1] = 3
    if op in ("shl", "shr"):
        columns[1] = rng.integers(0, 8 * dtype.itemsize, columns[1].size).astype(dtype)
    nest = _primitive(op, name)
    out = nest.operands[-1].dtype
    arrays = [array(rng, o, columns[0].shape) for o in nest.operands]
    for a, column in zip(arrays, columns, strict=False):
        a.view[...] = column.astype(a.view.dtype)
    run_nest(loaded, nest, arrays, columns[0].shape)
    with np.errstate(all="ignore"):
        inputs = [a.view for a in arrays[:-1]]
        wide = [x.astype("f8") if x.dtype == F32 else x for x in inputs]
        wanted = np.asarray(rule.numpy(*wide, np.dtype("f8") if dtype == F32 and out == F32 else out)).astype(out)
        if op in ("fmod", "fma", "gcd", "ipow"):
            wanted = np.asarray(rule.numpy(*inputs, out))
    got = arrays[-1].view
    if out.kind != "f":
        np.testing.assert_array_equal(got, wanted)
        return
    np.testing.assert_array_equal(np.isnan(got), np.isnan(wanted))
    fine = np.isfinite(wanted)
    np.testing.assert_array_equal(got[~fine & ~np.isnan(wanted)], wanted[~fine & ~np.isnan(wanted)])
    step = np.spacing(np.maximum(np.abs(wanted[fine]), np.finfo(out).tiny))
    assert (np.abs(got[fine].astype("f8") - wanted[fine]) / step).max(initial=0) <= ULPS.get(op, 4)


@pytest.mark.parametrize("op", ["div", "sqrt"])
def test_quotients_and_roots_are_correctly_rounded(loaded: Any, op: str) -> None:
    """A million random numbers, of all exponents and of ordinary ones: NumPy's results to the bit."""
    nest, rng = _primitive(op, "f32"), np.random.default_rng(5)
    sizes = (1 << 20,)
    for exponents in (0xFF, 0x1F):
        arrays = [array(rng, o, sizes) for o in nest.operands]
        for a in arrays[:-1]:
            bits = rng.integers(0, 2**32, sizes, np.uint32)
            exponent = ((bits >> 23) & exponents) + (127 - exponents // 2)
            a.view[...] = ((bits & 0x807FFFFF) | (exponent << 23)).astype(np.uint32).view(F32)
        run_nest(loaded, nest, arrays, sizes)
        with np.errstate(all="ignore"):
            wanted = np.divide(*(a.view for a in arrays[:-1])) if op == "div" else np.sqrt(arrays[0].view)
        np.testing.assert_array_equal(arrays[-1].view, wanted)
        np.testing.assert_array_equal(np.signbit(arrays[-1].view)[wanted == 0], np.signbit(wanted)[wanted == 0])


def test_approximate_quotients_are_near_for_all_exponents(loaded: Any) -> None:
    """Two units in the last place, where numbers or quotients are subnormal too."""
    nest, rng = _primitive("approx_div", "f32"), np.random.default_rng(5)
    sizes = (1 << 20,)
    arrays = [array(rng, o, sizes) for o in nest.operands]
    for a in arrays[:-1]:
        a.view[...] = rng.integers(0, 2**32, sizes, np.uint32).view(F32)
    arrays[0].view[:100] = np.repeat(np.array([0, -0.0, np.inf, np.nan, 1, 1e-45, 1e-40, 3e38, -1, 1e-38], F32), 10)
    arrays[1].view[:100] = np.tile(np.array([0, -0.0, np.inf, np.nan, 1, 1e-45, 1e-40, 3e38, -1, 1e-38], F32), 10)
    run_nest(loaded, nest, arrays, sizes)
    with np.errstate(all="ignore"):
        wanted = np.divide(*(a.view for a in arrays[:-1]))
    got, fine = arrays[-1].view, np.isfinite(wanted) & (abs(wanted) < 3e38)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(wanted))
    np.testing.assert_array_equal(got[np.isinf(wanted)], wanted[np.isinf(wanted)])
    assert (abs(got[fine].astype("f8") - wanted[fine]) / np.spacing(abs(wanted[fine]))).max() <= 2
    np.testing.assert_array_equal(np.signbit(got)[fine], np.signbit(wanted)[fine])


TARGETS = ["f32", "f64", "f16", "bf16", "i8", "i32", "u8", "u32", "i64", "u64", "b1"]
SOURCES = ["f32", "f64", "f16", "bf16", "i8", "i64", "u32", "b1"]


def _cast(source: str, target: str) -> LoopNest:
    b = Builder()
    b.point()
    b.store(1, b("cast", b.load(0, DTYPES[source]), dtype=DTYPES[target]))
    return b.nest("k", 1, 0, [Operand(DTYPES[source], "in", "1"), Operand(DTYPES[target], "out", "1")])


@pytest.fixture(scope="session")
def loaded(device: Any) -> Any:
    """The device with the kernels of all cases, compiled side by side."""
    nests = [_primitive(*case) for case in CASES] + [_cast(s, t) for s in SOURCES for t in TARGETS]
    nests += [_softmax_rows(length, aligned) for length in LENGTHS for aligned in (True, False)]
    nests += [softmax("1s", 1, aligned=aligned) for aligned in (True, False)]
    device.load([cuda_kernel_of_nest(nest) for nest in nests])
    return device


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("source", SOURCES)
def test_casts(loaded: Any, source: str, target: str) -> None:
    """As NumPy casts, where the value fits."""
    rng = np.random.default_rng(3)
    values = (rng.random(300) * 100).astype("f8")
    values[:3] = 0, 1, 2
    nest = _cast(source, target)
    arrays = [array(rng, o, (300,)) for o in nest.operands]
    arrays[0].view[...] = values.astype(DTYPES[source])
    run_nest(loaded, nest, arrays, (300,))
    wanted = PRIMITIVES["cast"].numpy(arrays[0].view, DTYPES[target])
    np.testing.assert_array_equal(arrays[1].view, wanted)


def test_indices_beyond_31_bits(device: Any) -> None:
    """A strided operand whose offsets need 64 bits; the memory is virtual where the strides skip."""
    b = Builder()
    b.point()
    b.store(0, b("cast", b("index", dtype=I64, attr=1), dtype=DTYPES["u8"]))
    nest = b.nest("k", 2, 0, [Operand(DTYPES["u8"], "out", "s1", False)], index_bits=64)
    sizes, stride = (3, 100), 1 << 30
    data = np.zeros(2 * stride + 100, np.uint8)
    view = np.ndarray(sizes, np.uint8, data, 0, (stride, 1))
    from tests.compiler.cuda_nests import Array

    found = Array(data, 0, view, (stride, 1))
    run_nest(device, nest, [found], sizes)
    np.testing.assert_array_equal(view, np.broadcast_to(np.arange(100, dtype=np.uint8), sizes))


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint32"])
@pytest.mark.parametrize("name", ["min", "max"])
def test_the_least_and_the_greatest_of_negated_integers(dtype: str, name: str) -> None:
    rng = np.random.default_rng(0)

    def f(x: Any) -> Any:
        return getattr(-x, name)(), getattr(np.abs(x), name)(), np.minimum(np.minimum(-x, -x[::-1]), x)

    g = kg.kernel_graph(f, device="cuda")
    for size in (1, 3, 4, 5, 32, 1000, 100_000):
        x = rng.integers(0 if dtype[0] == "u" else -100, 100, size).astype(dtype)
        for got, wanted in zip(g(x), f(x), strict=True):
            np.testing.assert_array_equal(np.asarray(got), wanted)
