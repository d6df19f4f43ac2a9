"""The numerical contract as checks: a row, its arguments and a result in, an AssertionError out where it falls short.

Bit-exact for bool, integers and the rows of EXACT; elsewhere the error against a wider type is at most 4 ulp or twice
NumPy's own, normwise for complex. NaNs, infinities, zeros and their signs are NumPy's.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import itertools
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from kernelgraph.compiler.core.types import DTYPES, FLOAT32, FLOAT64, DType, bfloat16, dtype_kind
from kernelgraph.compiler.ops.special import SPECIAL_FUNCTIONS
from kernelgraph.compiler.ops.table import OPS, Op

from .op_cases import Array, finfo, part_of

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
    "lgamma": lambda wide, x: np.where(x < 0, np.maximum(abs(wide), 1), abs(wide)),  # zeros between the poles
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


def extended(name: str) -> Callable[..., Any]:
    """C's function of long doubles rounded to a double, where there is one: the math module's lgamma is a rough one."""
    library = ctypes.util.find_library("m")
    if library is None or sys.platform == "win32":
        return OPS[name].numpy  # type: ignore[return-value]
    function = getattr(ctypes.CDLL(library), name + "l")
    function.restype, function.argtypes = ctypes.c_longdouble, [ctypes.c_longdouble]
    return lambda x: np.array([function(v) for v in x.astype("f8").tolist()])


def erfc_of_long(x: Any) -> Any:
    """With the first order of what a double has not of x."""
    near = x.astype("f8").astype(x.dtype)
    return extended("erfc")(near) - (x - near) * np.exp(-near * near) * (2 / np.sqrt(np.pi))


WIDER: dict[tuple[str, str], Callable[..., Any]] = {
    ("log1p", "c"): log1p_of_complex,
    **{(name, "f"): extended(name) for name in ("erf", "erfc", "lgamma")},
    ("sigmoid", "f"): lambda x: 1 / (1 + np.exp(-x)),
    ("gelu", "f"): lambda x: 0.5 * x * erfc_of_long(x * -np.sqrt(x.dtype.type(0.5))),
}


def widened(row: Op, arrays: list[Array]) -> Array:
    """The row in a wider type."""
    wider = {FLOAT16: "f8", bfloat16: "f8", FLOAT32: "f8", FLOAT64: np.longdouble}
    wide = [
        x.astype(wider[x.dtype]) if dtype_kind(x.dtype) == "f" else x.astype("G" if x.dtype.itemsize == 16 else "D")
        for x in arrays
    ]
    function: Any = WIDER.get((row.name, dtype_kind(arrays[0].dtype)), row.numpy)
    with np.errstate(all="ignore"):
        return np.asarray(function(*wide))


def as_wide(x: Array) -> Array:
    return x.astype("G" if x.dtype.kind == "c" else "g")


def ulps(row: Op, got: Array, wide: Array, arrays: list[Array]) -> Array:
    """The error in units in the last place of `wide` (of its modulus, or of the row's scale)."""
    info = finfo(got.dtype)
    size = SCALES.get(row.name, lambda w, *_: abs(w))(wide, *map(as_wide, arrays)).astype("g")
    least = np.longdouble(float(info.smallest_subnormal))
    if row.name == "gelu":  # x times what is subnormal
        least = least * np.maximum(1, abs(np.nan_to_num(as_wide(arrays[0]))))
    return abs(as_wide(got) - wide) / np.maximum(np.ldexp(np.longdouble(float(info.eps)), np.frexp(size)[1] - 1), least)


def allowed(row: Op, arrays: list[Array]) -> Array | slice:
    """Where the arguments are such that NumPy neither refuses them nor leaves the result undefined."""
    if row.name == "power" and arrays[0].dtype.kind == "i":
        return arrays[1] >= 0
    if row.name == "reciprocal" and arrays[0].dtype.kind in "iu":
        return arrays[0] != 0
    return slice(None)


def check(row: Op, arrays: list[Array], result: DType, got: Array) -> None:
    """`got` is the row's result on `arrays`, of the loop's dtypes, as the contract wants it."""
    if row.name == "cast":
        return check_cast(arrays[0], result, got)
    if row.name in SPECIAL_FUNCTIONS:
        return check_special(row, arrays, got)
    where = allowed(row, arrays)
    arrays, got = [x[where] for x in arrays], got[where]
    want = reference(row, arrays, result)
    assert (got.dtype, got.shape) == (result, want.shape)
    with np.errstate(all="ignore"):
        if dtype_kind(result) in "biu":
            agree(got == want, arrays, got, want)
        elif result.kind == "c" or arrays[0].dtype.kind == "c":
            check_complex(row, arrays, got, want)
        else:
            check_real(row, arrays, got, want)


def agree(good: Array, arrays: list[Array], got: Array, want: Array) -> None:
    """Fails with the first few arguments, results and wanted results."""
    bad = np.flatnonzero(~good)
    few = [(*(x[k] for x in arrays), got[k], want[k]) for k in bad[:5]]
    assert not len(bad), f"{len(bad)} of {len(good)} differ; (arguments, got, want): {few}"


def check_real(row: Op, arrays: list[Array], got: Array, want: Array) -> None:
    known = np.zeros(len(got), bool)
    if row.name == "power" and got.dtype == FLOAT16:  # NaN**0 is 1 in C99 and in NumPy's other loops
        known = np.isnan(arrays[0]) & (arrays[1] == 0)
    if row.name == "sign" and got.dtype == bfloat16:  # ml_dtypes keeps -0, NumPy does not
        known = arrays[0] == 0
    signs = (want != 0) | (row.name not in FREE_ZERO)
    wide_got, wide_want = got.astype("g"), want.astype("g")
    if row.name in EXACT:
        equal = (wide_got == wide_want) & ((np.signbit(got) == np.signbit(want)) | ~signs)
        agree(equal | (np.isnan(wide_got) & np.isnan(wide_want)) | known, arrays, got, want)
        return
    wide = widened(row, arrays)
    error, numpys = ulps(row, got, wide, arrays), ulps(row, want, wide, arrays)
    finite = np.isfinite(wide_want) & np.isfinite(wide)
    close = finite & (error <= np.maximum(4, 2 * numpys))
    agree(close | known | ~finite, arrays, got, want)
    agree(same_class(wide_got, wide_want, signs) | known | (close & (wide != 0)), arrays, got, want)


# Where SciPy's function has few digits, or what it is computed from: the size of its error's measure beside its own.
SPECIAL_SCALES: dict[str, Scale] = {
    **{name: lambda x: np.sqrt(1 + abs(x)) for name in ("j0", "j1", "y0", "y1")},
    "psi": lambda x: 1 + np.where(x < 0, abs(x) * OPS["psi"].numpy(x) ** 2, 0),  # type: ignore[misc]
    "log_ndtr": lambda x: 1e-290,  # subnormal probabilities
    "cosm1": lambda x: 1e-3 * (abs(x) > 1),
    "kl_div": lambda x, y: abs(x) + abs(y),
    "beta": lambda a, b: abs(OPS["beta"].numpy(a, b)) * (abs(a) + abs(b)) * 0.01,  # type: ignore[misc]
    "betaln": lambda a, b: 1 + (abs(a) + abs(b)) * 0.01,
}
BEYOND = {
    "j0": 1e4,
    "j1": 1e4,
    "y0": 1e4,
    "y1": 1e4,
    "inv_boxcox1p": 1e100,
    "rgamma": 1e6,
    "beta": 1e9,
    "betaln": 1e9,
}  # SciPy's phases lose their digits there, and differences of its logarithms of gamma


def check_special(row: Op, arrays: list[Array], got: Array) -> None:
    """SciPy's function of doubles, to 1e-12 and two units of the dtype: neither has the last digits everywhere."""
    wide = [x.astype("f8") for x in arrays]
    with np.errstate(all="ignore"):
        want = np.asarray(row.numpy(*wide))  # type: ignore[misc]
        size = abs(want) + np.nan_to_num(SPECIAL_SCALES.get(row.name, lambda *_: 0.0)(*wide))
        info = finfo(got.dtype)
        bound = size * (1e-12 + 2 * float(info.eps)) + max(2 * float(info.smallest_normal), 1e-307)
        near = abs(got.astype("f8") - want) <= bound
        rounded = want.astype(got.dtype)
        same = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
        bound_of_x = BEYOND.get(row.name, np.inf)
        far = np.any([(abs(x) > bound_of_x) | (abs(x) < 1 / bound_of_x) for x in wide], axis=0)
        agree(np.where(np.isfinite(rounded), near, same) | far, arrays, got, want)


def check_complex(row: Op, arrays: list[Array], got: Array, want: Array) -> None:
    wide = widened(row, arrays)
    error, numpys = ulps(row, got, wide, arrays), ulps(row, want, wide, arrays)
    finite = np.isfinite(want) & np.isfinite(wide) & (abs(wide) < float(finfo(got.dtype).max))
    agree(~finite | (error <= np.maximum(4, 2 * numpys)), arrays, got, want)
    close = np.isfinite(wide) & (error <= 4)
    free = free_signs(arrays, want)
    if row.name in SCALES:  # so ill-conditioned that the angle has no digits
        free |= SCALES[row.name](np.ones(len(got)), *arrays) * float(finfo(got.dtype).eps) > 0.25
    skip = close | extreme(row, arrays)
    for part in range(2 if got.dtype.kind == "c" else 1):
        good = same_class(part_of(got, part), part_of(want, part), ~free) | skip
        good |= np.isfinite(part_of(got, part)) & np.isfinite(part_of(want, part)) & finite & free
        agree(good, arrays, got, want)


# Rows with other than their default attributes.
ATTRIBUTES: list[tuple[str, dict[str, Any]]] = [
    ("gelu", {"approximate": True}),
    ("angle", {"deg": True}),
    ("nan_to_num", {"nan": 2.0}),
    ("nan_to_num", {"posinf": 1.0, "neginf": -3.0}),
]


def check_attributes(row: Op, attrs: dict[str, Any], x: Array, got: Array) -> None:
    """Real floats, within 4 units of the dtype's precision."""
    info = finfo(x.dtype)
    with np.errstate(all="ignore"):
        want = row.numpy(x, **attrs)  # type: ignore[misc]
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        wide_got, wide_want = got.astype("f8"), want.astype("f8")
        size = abs(x.astype("f8")) if row.name == "gelu" else 0  # 1 + tanh cancels for negative arguments
        bound = 4 * float(info.eps) * (abs(wide_want) + size) + float(info.smallest_subnormal)
        same = (wide_got == wide_want) | (np.isnan(wide_got) & np.isnan(wide_want))
        agree(np.where(np.isfinite(wide_want), abs(wide_got - wide_want) <= bound, same), [x], got, want)


def check_cast(x: Array, result: DType, got: Array) -> None:
    """astype to the bit; what an integer cannot hold is left open."""
    with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore", category=np.exceptions.ComplexWarning):
        want = x.astype(result)
        assert (got.dtype, got.shape) == (result, want.shape)
        good = got == want
        if dtype_kind(want.dtype) == "f":
            good = (good & (np.signbit(got) == np.signbit(want))) | (np.isnan(got) & np.isnan(want))
        elif want.dtype.kind == "c":
            good |= np.isnan(got) & np.isnan(want)
        elif want.dtype.kind in "iu" and dtype_kind(x.dtype) in "fc":
            whole, info = np.trunc(x.real.astype("g")), np.iinfo(want.dtype)
            good |= ~((whole >= info.min) & (whole <= info.max))
    agree(good, [x], got, want)


def same_class(got: Array, want: Array, signs: Array) -> Array:
    """Where both are NaN, or both are infinite, zero or neither, with equal sign if `signs`."""
    infinite, zero = np.isinf(want), want == 0
    same = (np.isinf(got) == infinite) & (~np.isnan(got)) & ((np.signbit(got) == np.signbit(want)) | ~signs)
    same &= (got == 0) == zero
    return np.where(np.isnan(want), np.isnan(got), same | ~(infinite | zero | np.isnan(got) | np.isinf(got)))


def free_signs(arrays: list[Array], want: Array) -> Array:
    """Where C99 Annex G leaves signs of zeros and infinities open: the angle is not a number."""
    free = np.isnan(want)
    for z in arrays:
        free |= np.isnan(z) | (~np.isfinite(z.real) & ~np.isfinite(z.imag)) if z.dtype.kind == "c" else False
    return free


def extreme(row: Op, arrays: list[Array]) -> Array:
    """Where a partial product underflows, or one of a power overflows: C's own power depends on how it was compiled."""
    found = np.zeros(len(arrays[0]), bool)
    if row.name in ("multiply", "square", "power", "float_power"):
        for z, part in itertools.product(arrays, (0, 1)):
            size, info = abs(part_of(z, part)), finfo(z.dtype)
            if "power" in row.name:
                found |= np.isfinite(size) & (size > np.sqrt(float(info.max)))
            found |= (size < np.sqrt(float(info.smallest_normal))) & (size > 0)
    return found
