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
EXACT = set(
    """add subtract multiply divide floor_divide remainder fmod negative positive absolute fabs sign square reciprocal
    conjugate heaviside less less_equal greater greater_equal equal not_equal maximum minimum fmax fmin isnan isinf
    isfinite signbit floor ceil trunc rint copysign nextafter spacing ldexp frexp_mantissa frexp_exp modf_frac modf_int
    sqrt degrees rad2deg radians deg2rad relu where cast clip real imag nan_to_num""".split()
)
FREE_ZERO = {"maximum", "minimum", "fmax", "fmin", "clip"}

# What the error is measured against, where it is not the result itself: the function is ill-conditioned there.
Scale = Callable[..., Any]
SCALES: dict[str, Scale] = {
    "logaddexp": lambda wide, a, b: np.maximum(np.maximum(abs(a), abs(b)), abs(wide)),
    "logaddexp2": lambda wide, a, b: np.maximum(np.maximum(abs(a), abs(b)), abs(wide)),
    "gelu": lambda wide, x: abs(wide) * (1 + x * x),
    "power": lambda wide, z, w: abs(wide) * (1 + abs(w * np.log(z + 0j))),
    "float_power": lambda wide, z, w: abs(wide) * (1 + abs(w * np.log(z + 0j))),
}


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
    wide_got, wide_want = got.astype("g"), want.astype("g")
    if row.name in EXACT:
        equal = (wide_got == wide_want) & ((np.signbit(got) == np.signbit(want)) | ~signs)
        np.testing.assert_array_equal(equal | (np.isnan(wide_got) & np.isnan(wide_want)) | known, True)
        return
    wide = widened(row, arrays)
    error, numpys = ulps(row, got, wide, arrays), ulps(row, want, wide, arrays)
    finite = np.isfinite(wide_want) & np.isfinite(wide)
    assert (error[finite & ~known] <= np.maximum(4, 2 * numpys[finite & ~known])).all()
    tiny = abs(wide) < float(finfo(got.dtype).smallest_normal)  # flushed or not is a matter of the error
    assert (same_class(wide_got, wide_want, signs) | known | tiny).all()


def check_complex(row: Op, arrays: list[Array], got: Array, want: Array) -> None:
    wide = widened(row, arrays)
    error, numpys = ulps(row, got, wide, arrays), ulps(row, want, wide, arrays)
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
