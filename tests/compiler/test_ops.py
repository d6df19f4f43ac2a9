"""Every map row on every dtype: its expansion, run by the evaluator of primitives, against NumPy."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kernelgraph.compiler.ops import OPS, UFUNC_PARTS, Op, resolve
from kernelgraph.compiler.primitives import PRIMITIVES
from kernelgraph.compiler.types import DTYPES, FLOAT32, FLOAT64, INT64, SHORT_NAMES, DType, bfloat16, kind_of, real_of

from .op_cases import Array, build, cases, complex_values, finfo, inputs, part_of, run

FLOAT16 = DTYPES["f16"]

# Rows that must give NumPy's bits for real numbers. Signs of zero are free where IEEE 754 leaves them free.
EXACT = {
    *("add", "subtract", "multiply", "divide", "floor_divide", "remainder", "fmod", "negative", "positive", "absolute"),
    *("fabs", "sign", "square", "reciprocal", "conjugate", "heaviside", "less", "less_equal", "greater", "sqrt"),
    *("greater_equal", "equal", "not_equal", "maximum", "minimum", "fmax", "fmin", "isnan", "isinf", "isfinite"),
    *("signbit", "floor", "ceil", "trunc", "rint", "copysign", "nextafter", "spacing", "ldexp", "frexp_mantissa"),
    *("frexp_exp", "modf_frac", "modf_int", "degrees", "rad2deg", "radians", "deg2rad", "relu", "where", "cast"),
    *("clip", "real", "imag", "nan_to_num"),
}
FREE_ZERO = {"maximum", "minimum", "fmax", "fmin", "clip"}

# What the error is measured against, where it is not the result itself: the function is ill-conditioned there.
Scale = Callable[..., Any]
SCALES: dict[str, Scale] = {
    "logaddexp": lambda wide, a, b: np.maximum(np.maximum(abs(a), abs(b)), abs(wide)),
    "logaddexp2": lambda wide, a, b: np.maximum(np.maximum(abs(a), abs(b)), abs(wide)),
    "gelu": lambda wide, x: abs(wide) * (1 + x * x),
    "power": lambda wide, z, w: abs(wide) * (1 + exponent(z, w)),
    "float_power": lambda wide, z, w: abs(wide) * (1 + exponent(z, w)),
}


def exponent(z: Array, w: Array) -> Array:
    """|w log z|, by which a complex power multiplies the error of log z."""
    return np.nan_to_num(abs(w * np.log(z))) if z.dtype.kind == "c" else np.zeros(len(z))


def log1p_of_complex(z: Any) -> Any:
    """NumPy's own has no digits for small z, in any precision."""
    x, y = z.real, z.imag
    small = 0.5 * np.log1p(x * (x + 2) + y * y) + 1j * np.arctan2(y, 1 + x)
    return np.where(abs(z) < 0.25, small, np.log(1 + z))


def reference(row: Op, arrays: list[Array], result: DType) -> Array:
    with np.errstate(all="ignore"):
        return np.asarray(row.numpy(*arrays)).astype(result)  # type: ignore[misc]


def widened(row: Op, arrays: list[Array]) -> Array:
    """The row in a wider type."""
    wider = {FLOAT16: "f8", bfloat16: "f8", FLOAT32: "f8", FLOAT64: np.longdouble}
    wide = [
        x.astype(wider[x.dtype]) if kind_of(x.dtype) == "f" else x.astype("G" if x.dtype.itemsize == 16 else "D")
        for x in arrays
    ]
    function = log1p_of_complex if row.name == "log1p" and arrays[0].dtype.kind == "c" else row.numpy
    with np.errstate(all="ignore"):
        return np.asarray(function(*wide))  # type: ignore[misc]


def as_wide(x: Array) -> Array:
    return x.astype("G" if x.dtype.kind == "c" else "g")


def ulps(row: Op, got: Array, wide: Array, arrays: list[Array]) -> Array:
    info = finfo(got.dtype)
    with np.errstate(all="ignore"):
        scale = SCALES.get(row.name, lambda w, *_: abs(w))(wide, *map(as_wide, arrays))
        unit = np.maximum(scale * np.longdouble(float(info.eps)), float(info.smallest_subnormal))
        return abs(as_wide(got) - wide) / unit


def allowed(row: Op, arrays: list[Array]) -> list[Array]:
    """Without the arguments that NumPy refuses or leaves undefined."""
    if row.name == "power" and arrays[0].dtype.kind == "i":
        return [x[arrays[1] >= 0] for x in arrays]
    return [x[x != 0] for x in arrays] if row.name == "reciprocal" and arrays[0].dtype.kind in "iu" else arrays


def same_class(got: Array, want: Array, signs: Array) -> Array:
    """Where both are NaN, or both are infinite, zero or neither, with equal sign if `signs`."""
    infinite, zero = np.isinf(want), want == 0
    agree = (np.isinf(got) == infinite) & (~np.isnan(got)) & ((np.signbit(got) == np.signbit(want)) | ~signs)
    agree &= (got == 0) == zero
    return np.where(np.isnan(want), np.isnan(got), agree | ~(infinite | zero | np.isnan(got) | np.isinf(got)))


@pytest.mark.parametrize(("row", "loop", "result"), cases())
def test_expansion_agrees_with_numpy(row: Op, loop: tuple[DType, ...], result: DType) -> None:
    arrays = allowed(row, inputs(loop))
    got, want = run(row, arrays, result), reference(row, arrays, result)
    kind = kind_of(result)
    if kind in "biu":
        np.testing.assert_array_equal(got, want)
    elif kind == "c" or loop[0].kind == "c":
        check_complex(row, arrays, got, want)
    else:
        check_real(row, arrays, got, want)


def check_real(row: Op, arrays: list[Array], got: Array, want: Array) -> None:
    known = np.zeros(len(got), bool)
    if row.name == "power" and got.dtype == FLOAT16:  # NaN**0 is 1 in C99 and in NumPy's other loops
        known = np.isnan(arrays[0]) & (arrays[1] == 0)
    if row.name == "sign" and got.dtype == bfloat16:  # ml_dtypes keeps -0, NumPy does not
        known = arrays[0] == 0
    signs = (want != 0) | (row.name not in FREE_ZERO)
    with np.errstate(all="ignore"):
        wide_got, wide_want = got.astype("g"), want.astype("g")
    if row.name in EXACT:
        equal = (wide_got == wide_want) & ((np.signbit(got) == np.signbit(want)) | ~signs)
        np.testing.assert_array_equal(equal | (np.isnan(wide_got) & np.isnan(wide_want)) | known, True)
        return
    wide = widened(row, arrays)
    error, numpys = ulps(row, got, wide, arrays), ulps(row, want, wide, arrays)
    finite = np.isfinite(wide_want) & np.isfinite(wide)
    close = finite & (error <= np.maximum(4, 2 * numpys))
    assert (close | known | ~finite).all()
    assert (same_class(wide_got, wide_want, signs) | known | (close & (wide != 0))).all()


def check_complex(row: Op, arrays: list[Array], got: Array, want: Array) -> None:
    wide = widened(row, arrays)
    error, numpys = ulps(row, got, wide, arrays), ulps(row, want, wide, arrays)
    with np.errstate(all="ignore"):
        finite = np.isfinite(want) & np.isfinite(wide) & (abs(wide) < float(finfo(got.dtype).max))
    bad = finite & ~(error <= np.maximum(4, 2 * numpys))
    assert not bad.any(), [(*(x[k] for x in arrays), got[k], want[k]) for k in np.flatnonzero(bad)[:5]]
    close = np.isfinite(wide) & (error <= 4)
    free = free_signs(arrays, want)
    skip = close | extreme(row, arrays)
    for part in range(2 if got.dtype.kind == "c" else 1):
        good = same_class(part_of(got, part), part_of(want, part), ~free) | skip
        good |= np.isfinite(part_of(got, part)) & np.isfinite(part_of(want, part)) & finite & free
        assert good.all(), [(*(x[k] for x in arrays), got[k], want[k]) for k in np.flatnonzero(~good)[:5]]


def free_signs(arrays: list[Array], want: Array) -> Array:
    """Where C99 Annex G leaves signs of zeros and infinities open: the angle is not a number."""
    free = np.isnan(want)
    for z in arrays:
        free |= np.isnan(z) | (~np.isfinite(z.real) & ~np.isfinite(z.imag)) if z.dtype.kind == "c" else False
    return free


def extreme(row: Op, arrays: list[Array]) -> Array:
    """Where a partial product overflows or underflows: NumPy's own result depends on how it was compiled."""
    found = np.zeros(len(arrays[0]), bool)
    if row.name in ("multiply", "square", "power", "float_power"):
        for z, part in itertools.product(arrays, (0, 1)):
            size, info = abs(part_of(z, part)), finfo(z.dtype)
            found |= np.isfinite(size) & (size > np.sqrt(float(info.max))) & (size != 0)
            found |= (size < np.sqrt(float(info.smallest_normal))) & (size > 0)
    return found


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
                    resolve(name, given)
            else:
                part = want if ufunc.nout == 1 else want[number]
                assert resolve(name, given)[1] == part.dtype, (name, given)


@pytest.mark.parametrize("name", ["add", "exp", "less", "floor_divide", "arctan2"])
def test_requested_dtype(name: str) -> None:
    row = OPS[name]
    for given, asked in itertools.product(SHORT_NAMES, repeat=2):
        arrays = [np.ones(1, given)] * row.arity
        try:
            want = row.numpy(*arrays, dtype=asked)  # type: ignore[misc]
        except TypeError:
            with pytest.raises(TypeError):
                resolve(row, [given] * row.arity, asked)
        else:
            assert resolve(row, [given] * row.arity, asked)[1] == want.dtype


@pytest.mark.parametrize("name", ["sum", "prod", "min", "max", "any", "all", "argmin", "argmax"])
def test_reductions_are_typed_as_numpys(name: str) -> None:
    row = OPS[name]
    for dtype in SHORT_NAMES:
        assert row.numpy is not None
        assert resolve(row, [dtype])[1] == row.numpy(np.ones(3, dtype)).dtype
        if row.identity is None:
            with pytest.raises(ValueError, match=r"empty|identity"):
                row.numpy(np.ones(0, dtype))
        else:
            assert row.identity == row.numpy(np.ones(0, dtype))


@pytest.mark.parametrize("dtype", [d for d in SHORT_NAMES if kind_of(d) == "f"], ids=str)
@pytest.mark.parametrize(
    ("name", "attrs"),
    [
        ("gelu", {"approximate": True}),
        ("angle", {"deg": True}),
        ("nan_to_num", {"nan": 2.0}),
        ("nan_to_num", {"posinf": 1.0, "neginf": -3.0}),
    ],
)
def test_attributes(name: str, attrs: dict[str, Any], dtype: DType) -> None:
    row = OPS[name]
    arrays = inputs([dtype])
    got = run(row, arrays, dtype, attrs).astype("f8")
    with np.errstate(all="ignore"):
        want = row.numpy(*arrays, **attrs).astype("f8")  # type: ignore[misc]
    size = abs(arrays[0].astype("f8")) if name == "gelu" else 0  # 1 + tanh cancels for negative arguments
    finite = np.isfinite(want)
    with np.errstate(all="ignore"):
        bound = 4 * float(finfo(dtype).eps) * (abs(want) + size) + float(finfo(dtype).smallest_subnormal)
        assert (abs(got - want)[finite] <= bound[finite]).all()
    np.testing.assert_array_equal(got[~finite], want[~finite])


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
        resolve(name, [np.dtype(d) for d in dtypes])


def test_ordinary_expansions_are_short() -> None:
    """Instructions of a float32 kernel less loads and store: a formula that grows is noticed."""
    limits = {"add": 1, "relu": 3, "sigmoid": 5, "exp": 1, "maximum": 1, "absolute": 1, "sign": 9, "where": 1}
    for name, limit in limits.items():
        row = OPS[name]
        loop, result = resolve(row, [np.dtype("f4")] * row.arity)
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
    assert resolve("argmax", [FLOAT32])[1] == INT64
    assert real_of(np.dtype("c8")) == FLOAT32
    assert set(PRIMITIVES) >= {i.op for i in build(OPS["power"], [FLOAT32] * 2, FLOAT32)[0].instrs} - {"load", "store"}


@pytest.mark.parametrize("dtype", [d for d in SHORT_NAMES if kind_of(d) == "f"], ids=str)
def test_ldexp_rounds_once_among_subnormals(dtype: DType) -> None:
    rng = np.random.default_rng(0)
    loop, result = resolve("ldexp", [dtype, np.dtype("i4")])
    low, high = np.log2(float(finfo(result).smallest_subnormal)), np.log2(float(finfo(result).max))
    x = rng.normal(size=4000) * 2.0 ** rng.uniform(low / 2, high / 2, 4000)
    arrays = [x.astype(dtype).astype(loop[0]), rng.integers(1.2 * low, 1.2 * high, 4000).astype(loop[1])]
    np.testing.assert_array_equal(run(OPS["ldexp"], arrays, result), reference(OPS["ldexp"], arrays, result))
    whole = run(OPS["frexp_exp"], arrays[:1], np.dtype("i4"))
    back = [run(OPS["frexp_mantissa"], arrays[:1], loop[0]), whole]
    np.testing.assert_array_equal(run(OPS["ldexp"], back, loop[0]), arrays[0])
