"""Every map row on every dtype: its expansion, run by the evaluator of primitives, against NumPy."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from kernelgraph.compiler.core.types import FLOAT32, INT64, SHORT_NAMES, DType, dtype_kind, real_dtype
from kernelgraph.compiler.kernel.primitives import PRIMITIVES
from kernelgraph.compiler.ops.table import OPS, UFUNC_PARTS, Op, resolve_op_row_dtypes
from tests.compiler.op_cases import build, cases, complex_values, finfo, inputs, run
from tests.compiler.op_checks import ATTRIBUTES, allowed, check, check_attributes, reference


@pytest.mark.parametrize(("row", "loop", "result"), cases())
def test_expansion_agrees_with_numpy(row: Op, loop: tuple[DType, ...], result: DType) -> None:
    arrays = inputs(loop)
    where = allowed(row, arrays)
    arrays = [x[where] for x in arrays]
    check(row, arrays, result, run(row, arrays, result))


def test_every_numpy_ufunc_has_rows() -> None:
    ufuncs = {u for u in vars(np).values() if isinstance(u, np.ufunc) and u.signature is None} - {np.isnat}
    assert ufuncs <= set(UFUNC_PARTS)
    for ufunc, names in UFUNC_PARTS.items():
        assert len(names) == ufunc.nout
        assert all(OPS[name].arity == ufunc.nin for name in names)


@pytest.mark.parametrize("ufunc", sorted(UFUNC_PARTS, key=lambda u: u.__name__), ids=lambda u: u.__name__)
def test_promotion_is_numpys(ufunc: np.ufunc) -> None:
    """All pairs of dtypes, and weak Python scalars on either side, against the dtype of a real call."""
    kinds: list[Any] = [*SHORT_NAMES, int, float, complex]
    for given in itertools.product(kinds, repeat=ufunc.nin):
        if all(isinstance(d, type) for d in given):
            continue
        args = [d(1) if isinstance(d, type) else np.ones(1, d) for d in given]
        try:
            with np.errstate(all="ignore"):
                want = ufunc(*args)
        except TypeError:
            want = None
        for number, name in enumerate(UFUNC_PARTS[ufunc]):
            if want is None:
                with pytest.raises(TypeError, match=name):
                    resolve_op_row_dtypes(name, given)
            else:
                part = want if ufunc.nout == 1 else want[number]
                assert resolve_op_row_dtypes(name, given)[1] == part.dtype, (name, given)


@pytest.mark.parametrize("name", ["add", "exp", "less", "floor_divide", "arctan2"])
def test_requested_dtype(name: str) -> None:
    row = OPS[name]
    for given, asked in itertools.product(SHORT_NAMES, repeat=2):
        arrays = [np.ones(1, given)] * row.arity
        try:
            want = row.numpy(*arrays, dtype=asked)  # type: ignore[misc]
        except TypeError:
            with pytest.raises(TypeError):
                resolve_op_row_dtypes(row, [given] * row.arity, asked)
        else:
            assert resolve_op_row_dtypes(row, [given] * row.arity, asked)[1] == want.dtype


@pytest.mark.parametrize("name", ["sum", "prod", "min", "max", "any", "all", "argmin", "argmax"])
def test_reductions_are_typed_as_numpys(name: str) -> None:
    row = OPS[name]
    for dtype in SHORT_NAMES:
        assert row.numpy is not None
        assert resolve_op_row_dtypes(row, [dtype])[1] == row.numpy(np.ones(3, dtype)).dtype
        if row.identity is None:
            with pytest.raises(ValueError, match=r"empty|identity"):
                row.numpy(np.ones(0, dtype))
        else:
            assert row.identity == row.numpy(np.ones(0, dtype))


@pytest.mark.parametrize("dtype", [d for d in SHORT_NAMES if dtype_kind(d) == "f"], ids=str)
@pytest.mark.parametrize(("name", "attrs"), ATTRIBUTES)
def test_attributes(name: str, attrs: dict[str, Any], dtype: DType) -> None:
    (x,) = inputs([dtype])
    check_attributes(OPS[name], attrs, x, run(OPS[name], [x], dtype, attrs))


@pytest.mark.parametrize("name", ["arcsin", "arccos", "arccosh", "arctanh", "log", "sqrt"])
def test_branch_cuts_follow_the_sign_of_zero(name: str) -> None:
    x = np.array([-3.0, -1.5, -0.5, 0.5, 1.5, 3.0])
    for sign in (0.0, -0.0):
        z = np.empty(len(x), np.complex128)
        z.real, z.imag = x, sign
        got = run(OPS[name], [z], z.dtype)
        np.testing.assert_allclose(got, OPS[name].numpy(z), rtol=1e-15, atol=1e-15)  # type: ignore[misc]


def test_inverse_functions_undo() -> None:
    """f(f^-1(z)) = z, with no reference but itself."""
    z = complex_values(np.dtype("D"), np.random.default_rng(1))[-600:]
    z = z[(abs(z) < 1e3) & (abs(z) > 1e-3)]
    for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh"):
        inverse = run(OPS["arc" + name], [z], z.dtype)
        back = run(OPS[name], [inverse], z.dtype)
        condition = 1 + abs(inverse) + (1 + abs(z * z)) / abs(z)  # of f at f^-1(z), roughly
        assert (abs(back - z) <= 1e-14 * condition * abs(z)).all(), name


def test_integer_power_to_a_negative_exponent_truncates() -> None:
    a = np.array([-3, -1, -1, 0, 1, 2], np.int32)
    n = np.array([-1, -2, -3, -1, -5, -1], np.int32)
    np.testing.assert_array_equal(run(OPS["power"], [a, n], np.dtype("i4")), [0, 1, -1, 0, 1, 0])


@pytest.mark.parametrize(
    ("name", "dtypes", "text"),
    [
        ("arctan2", ["c8", "f4"], r"arctan2 does not take \(complex64, float32\)"),
        ("subtract", ["?", "?"], "bitwise_xor"),
        ("erf", ["c16"], "erf does not take"),
        ("bitwise_and", ["f4", "i4"], "bitwise_and does not take"),
    ],
)
def test_refusals_name_the_op_and_the_dtypes(name: str, dtypes: list[str], text: str) -> None:
    with pytest.raises(TypeError, match=text):
        resolve_op_row_dtypes(name, [np.dtype(d) for d in dtypes])


def test_ordinary_expansions_are_short() -> None:
    """Instructions of a float32 kernel less loads and store: a formula that grows is noticed."""
    limits = {"add": 1, "relu": 3, "sigmoid": 9, "exp": 1, "maximum": 1, "absolute": 1, "sign": 9, "where": 1}
    for name, limit in limits.items():
        row = OPS[name]
        loop, result = resolve_op_row_dtypes(row, [np.dtype("f4")] * row.arity)
        (phase,) = build(row, loop, result)
        count = sum(i.op not in ("load", "store") for i in phase.instrs)
        assert count <= limit, name


def test_operators_are_distinct_methods() -> None:
    operators = [row.operator for row in OPS.values() if row.operator]
    assert len(operators) == len(set(operators))
    assert all(hasattr(np.ndarray, o) for o in operators)


def test_rows_say_what_they_need() -> None:
    for name, row in OPS.items():
        assert row.name == name
        assert row.cost >= 0
        assert row.numpy is not None or row.kind not in ("map", "reduce")
        assert bool(row.formulas) == (row.kind == "map")
    assert resolve_op_row_dtypes("argmax", [FLOAT32])[1] == INT64
    assert real_dtype(np.dtype("c8")) == FLOAT32
    assert set(PRIMITIVES) >= {i.op for i in build(OPS["power"], [FLOAT32] * 2, FLOAT32)[0].instrs} - {"load", "store"}


@pytest.mark.parametrize("dtype", [d for d in SHORT_NAMES if dtype_kind(d) == "f"], ids=str)
def test_ldexp_rounds_once_among_subnormals(dtype: DType) -> None:
    rng = np.random.default_rng(0)
    loop, result = resolve_op_row_dtypes("ldexp", [dtype, np.dtype("i4")])
    low, high = np.log2(float(finfo(result).smallest_subnormal)), np.log2(float(finfo(result).max))
    x = rng.normal(size=4000) * 2.0 ** rng.uniform(low / 2, high / 2, 4000)
    arrays = [x.astype(dtype).astype(loop[0]), rng.integers(1.2 * low, 1.2 * high, 4000).astype(loop[1])]
    np.testing.assert_array_equal(run(OPS["ldexp"], arrays, result), reference(OPS["ldexp"], arrays, result))
    whole = run(OPS["frexp_exp"], arrays[:1], np.dtype("i4"))
    back = [run(OPS["frexp_mantissa"], arrays[:1], loop[0]), whole]
    np.testing.assert_array_equal(run(OPS["ldexp"], back, loop[0]), arrays[0])
