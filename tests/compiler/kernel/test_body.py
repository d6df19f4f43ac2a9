"""The body builder: numbering, phases, the door's checks, and the evaluator of primitives."""

from __future__ import annotations

import math
import warnings
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgraph.compiler.core.types import BOOL, DTYPES, FLOAT32, FLOAT64, INT64, SHORT_NAMES, bfloat16
from kernelgraph.compiler.kernel.body_builder import KernelBody, KernelValue, complex_kernel_value, kernel_select
from kernelgraph.compiler.kernel.loop_nest import LOOP, POINT, Instr, LoopNest, Reduction
from kernelgraph.compiler.kernel.primitives import PRIMITIVES, UINTS
from kernelgraph.compiler.ops.table import OPS
from tests.compiler.nest_evaluator import evaluate_phases_of_loop_nest

Array = np.ndarray[Any, Any]


def point() -> KernelBody:
    body = KernelBody()
    body.begin_phase(POINT)
    return body


def close(body: KernelBody) -> list[Instr]:
    body.end_phase()
    return [i for phase in body.finish() for i in phase.instrs]


def compute(formula: Any, *arrays: Array) -> Array:
    """A formula of loaded values, evaluated."""
    body = point()
    result = formula(*(body.load(i, a.dtype) for i, a in enumerate(arrays)))
    body.store(len(arrays), result)
    body.end_phase()
    out = np.empty(len(arrays[0]), result.dtype)
    evaluate_phases_of_loop_nest(body.finish(), out.shape, 1, lambda o, _: arrays[o], lambda o, p, v: np.copyto(out, v))
    return out


def test_equal_values_are_made_once() -> None:
    body = point()
    x, y = body.load(0, FLOAT32), body.load(0, FLOAT32)
    assert x.numbers == y.numbers
    assert (x + 1).numbers == (y + 1).numbers != (x - 1).numbers
    body.store(1, (x + 1) * (y + 1))
    assert [i.op for i in close(body)] == ["load", "const", "add", "mul", "store"]


@pytest.mark.parametrize("dtype", [FLOAT32, FLOAT64, bfloat16], ids=str)
def test_constants_are_told_apart_by_their_bytes(dtype: Any) -> None:
    body = point()
    zero, minus, nan = (body.const(v, dtype) for v in (0.0, -0.0, math.nan))
    assert len({zero.numbers, minus.numbers, nan.numbers}) == 3
    assert body.const(math.nan, dtype).numbers == nan.numbers
    assert zero.known == 0
    assert math.isnan(nan.known)
    with pytest.raises(OverflowError):
        body.const(300, DTYPES["u8"])


def test_what_nothing_needs_is_left_out() -> None:
    body = point()
    z = body.load(0, np.dtype("c8"))
    body.store(1, body.apply(OPS["real"], [body.apply(OPS["exp"], [z], z.dtype)], FLOAT32))
    ops = [i.op for i in close(body)]
    assert "sin" not in ops
    assert {"exp", "cos"} <= set(ops)


def test_a_store_ends_the_life_of_loads_of_its_operand() -> None:
    body = point()
    before, other = body.load(0, FLOAT32), body.load(1, FLOAT32)
    body.store(0, before + other)
    assert body.load(0, FLOAT32).numbers != before.numbers
    assert body.load(1, FLOAT32).numbers == other.numbers


def test_values_of_a_loop_stay_in_it() -> None:
    body = KernelBody()
    body.begin_phase(POINT)
    scale = body.scalar(0, FLOAT32) * 2
    body.end_phase()
    body.begin_phase(LOOP)
    x = body.load(0, FLOAT32)
    inside = x * scale
    body.end_phase([Reduction("sum", FLOAT32, inside.numbers)])
    body.begin_phase(LOOP)
    assert (body.scalar(0, FLOAT32) * 2).numbers == scale.numbers
    assert body.load(0, FLOAT32).numbers != x.numbers
    with pytest.raises(ValueError, match="begin"):
        body.begin_phase(POINT)


def test_nothing_is_emitted_outside_a_phase() -> None:
    body = KernelBody()
    with pytest.raises(ValueError, match="no phase"):
        body.index(0)
    with pytest.raises(ValueError, match="reductions"):
        body.end_phase()


def softmax_nest() -> LoopNest:
    """exp(x - max) / sum over the second axis, stored with the row's argmax and size."""
    body = KernelBody()
    body.begin_phase(LOOP)
    x = body.load(0, FLOAT32)
    body.end_phase([Reduction("max", FLOAT32, x.numbers), Reduction("argmax", FLOAT32, x.numbers + body_index(body))])
    body.begin_phase(LOOP)
    e = (body.load(0, FLOAT32) - body.result(0, 0)).exp()
    body.end_phase([Reduction("sum", FLOAT32, e.numbers)])
    body.begin_phase(POINT)
    body.store(2, body.result(0, 1, part=1) * body.size(1))
    body.end_phase()
    body.begin_phase(LOOP)
    body.store(1, (body.load(0, FLOAT32) - body.result(0, 0)).exp() / body.result(1, 0))
    body.end_phase()
    return LoopNest("softmax", 1, 1, (), (), body.finish())


def body_index(body: KernelBody) -> tuple[int, ...]:
    return body.index(1).numbers


def test_phases_are_evaluated_in_order() -> None:
    x = np.random.default_rng(0).normal(size=(5, 7)).astype("f4")
    got: dict[int, Array] = {}
    nest = softmax_nest()
    evaluate_phases_of_loop_nest(nest.phases, x.shape, 1, lambda o, _: x, lambda o, p, v: got.__setitem__(o, v.copy()))
    want = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(got[1], want / want.sum(1, keepdims=True), rtol=1e-6)
    np.testing.assert_array_equal(got[2][:, 0], x.argmax(1) * 7)
    numbers = [p.first + i for p in nest.phases for i in range(len(p.instrs))]
    assert numbers == list(range(len(numbers)))
    assert "argmax" in str(nest)


def test_numbers_after_removal_point_backwards() -> None:
    for phase in softmax_nest().phases:
        for at, instr in enumerate(phase.instrs, phase.first):
            assert all(a < at for a in instr.args)


def test_nan_wins_in_arg_reductions() -> None:
    x = np.array([[1, np.nan, 3, np.nan], [2, 5, 5, 1]])
    for combine in ("argmin", "argmax"):
        body = KernelBody()
        body.begin_phase(LOOP)
        value = body.load(0, FLOAT64)
        index = body.index(1)
        body.end_phase([Reduction(combine, FLOAT64, value.numbers + index.numbers)])
        body.begin_phase(POINT)
        body.store(1, body.result(0, 0, part=1))
        body.end_phase()
        got: list[Array] = []
        evaluate_phases_of_loop_nest(body.finish(), x.shape, 1, lambda o, _: x, lambda o, p, v, got=got: got.append(v))
        np.testing.assert_array_equal(got[0][:, 0], getattr(np, combine)(x, axis=1))


@pytest.mark.parametrize("name", sorted(PRIMITIVES))
def test_primitives_take_their_dtypes_and_no_others(name: str) -> None:
    primitive = PRIMITIVES[name]
    for dtype in SHORT_NAMES:
        if dtype.kind == "c":
            continue
        body = point()
        x = body.load(0, dtype)
        args: list[Any] = [x] * primitive.arity
        if name == "select":
            args[0] = body.const(True, BOOL)
        wanted = {"cast": FLOAT64, "bitcast": np.dtype(f"i{dtype.itemsize}")}.get(name)
        if dtype in primitive.accepts:
            result = body.emit(name, *args, dtype=wanted)
            body.store(1, result)
            body.end_phase()
            data = np.ones(3, dtype)
            evaluate_phases_of_loop_nest(
                body.finish(), (3,), 1, lambda o, _, data=data: data, lambda *_: None
            )  # checks the dtype
        else:
            with pytest.raises(TypeError, match=name):
                body.emit(name, *args, dtype=wanted)


def test_mixed_dtypes_are_refused() -> None:
    body = point()
    x, y = body.load(0, FLOAT32), body.load(1, FLOAT64)
    for wrong in (lambda: x + y, lambda: kernel_select(x, x, x + 1), lambda: x.bitcast(INT64), lambda: x & x):
        with pytest.raises(TypeError):
            wrong()
    with pytest.raises(TypeError, match="truth"):
        bool(x < 1)


@pytest.mark.parametrize("source", SHORT_NAMES, ids=str)
def test_casts_are_numpys(source: Any) -> None:
    rng = np.random.default_rng(0)
    plain = np.array([0, 1, 2, 3.75, 100.5, 0.1, *rng.uniform(0, 120, 20)])
    x = (plain + (1j * plain[::-1] if source.kind == "c" else 0)).astype(source)
    for target in SHORT_NAMES:
        body = point()
        body.store(1, body.load(0, source).cast(target))
        body.end_phase()
        out = np.empty(x.shape, target)

        def load(_: int, part: int, x: Array = x) -> Array:
            return x.imag if part else (x.real if x.dtype.kind == "c" else x)

        def store(_: int, part: int, v: Array, out: Array = out) -> None:
            (out.imag if part else (out.real if out.dtype.kind == "c" else out))[...] = v

        evaluate_phases_of_loop_nest(body.finish(), x.shape, 1, load, store)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", np.exceptions.ComplexWarning)
            np.testing.assert_array_equal(out, x.astype(target))


def test_rounding_to_16_bits_is_numpys() -> None:
    rng = np.random.default_rng(0)
    x = np.concatenate(
        [rng.normal(size=2000) * 10.0 ** rng.uniform(-9, 6, 2000), 1 + 2.0**-9 + rng.normal(size=99) * 1e-9]
    )
    for target in (DTYPES["f16"], bfloat16):
        with np.errstate(over="ignore"):
            np.testing.assert_array_equal(compute(lambda v, t=target: v.cast(t), x), x.astype(target))


@given(
    st.lists(st.tuples(*[st.floats(width=32, min_value=-(2.0**50), max_value=2.0**50)] * 3), min_size=1, max_size=20)
)
def test_fma_rounds_once(rows: list[tuple[float, float, float]]) -> None:
    a, b, c = np.array(rows, np.float32).T.copy()
    exact = [
        np.float32(float_of(Fraction(float(p)) * Fraction(float(q)) + Fraction(float(r))))
        for p, q, r in zip(a, b, c, strict=True)
    ]
    np.testing.assert_array_equal(compute(KernelValue.fma, a, b, c), exact)


def float_of(x: Fraction) -> np.float32:
    """The float32 nearest to x, ties to even."""
    guess = np.float32(float(x))
    around = [np.nextafter(guess, np.float32(-np.inf)), guess, np.nextafter(guess, np.float32(np.inf))]
    return min(around, key=lambda f: (abs(Fraction(float(f)) - x), f.view(np.uint32) & 1))


def test_fma_gives_the_error_of_a_product() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 500)) * 10.0 ** rng.uniform(-60, 60, (2, 500))
    error = compute(lambda x, y: x.fma(y, -(x * y)), a, b)
    exact = [float(Fraction(p) * Fraction(q) - Fraction(p * q)) for p, q in zip(a.tolist(), b.tolist(), strict=True)]
    np.testing.assert_array_equal(error, exact)


@pytest.mark.parametrize("dtype", sorted(UINTS & PRIMITIVES["mulhi"].accepts, key=str), ids=str)
def test_mulhi_is_the_high_half(dtype: Any) -> None:
    rng = np.random.default_rng(0)
    top = np.iinfo(dtype).max
    a, b = (np.append(rng.integers(0, top, 50, dtype=dtype, endpoint=True), np.array([0, top], dtype)) for _ in "ab")
    want = [int(x) * int(y) >> (8 * dtype.itemsize) for x, y in zip(a, b, strict=True)]
    np.testing.assert_array_equal(compute(KernelValue.mulhi, a, b), np.array(want, dtype))


@given(st.lists(st.tuples(st.integers(-128, 127), st.integers(-128, 127)), min_size=1))
def test_quot_and_rem_truncate(rows: list[tuple[int, int]]) -> None:
    safe = [(a, b) for a, b in rows if b not in (0, -1)] or [(7, -2)]
    a, b = np.array(safe, np.int8).T.copy()
    quotient, rest = compute(KernelValue.quot, a, b), compute(KernelValue.rem, a, b)
    assert quotient.tolist() == [math.trunc(Fraction(p, q)) for p, q in safe]
    np.testing.assert_array_equal(quotient * b + rest, a)


def test_complex_values_are_pairs() -> None:
    body = point()
    z = body.load(0, np.dtype("c16"))
    assert len(z.numbers) == 2
    assert complex_kernel_value(z.re, z.im).numbers == z.numbers
    body.store(1, kernel_select(z.re > 0, z, body.const(1j, z.dtype)))
    assert [i.attr for i in close(body) if i.op == "store"] == [(1, 0), (1, 1)]
    with pytest.raises(TypeError):
        kernel_select(point().const(True, BOOL), 1, 2)
