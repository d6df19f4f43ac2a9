"""The supported dtypes, `ArrayType`, and the dtype rules of ops. A type is a shape and a dtype, the unit of every cache
key.

A dtype rule: dtypes of the arguments in, dtypes of the loop that runs and of its result out. An argument is a dtype, or
the Python type int, float or complex for a weak Python scalar (NEP 50). Its second argument is what the user asked for
with `dtype=`, or None.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np

from ...runtime.core.frozen import frozen

DType: TypeAlias = np.dtype[Any]
WeakType: TypeAlias = type[bool] | type[int] | type[float] | type[complex]

bfloat16: DType = np.dtype(ml_dtypes.bfloat16)

# Short names as in the Array API and in LLVM-like text; one entry per supported dtype.
DTYPES: dict[str, DType] = {
    "b1": np.dtype(np.bool_),
    "i8": np.dtype(np.int8),
    "i16": np.dtype(np.int16),
    "i32": np.dtype(np.int32),
    "i64": np.dtype(np.int64),
    "u8": np.dtype(np.uint8),
    "u16": np.dtype(np.uint16),
    "u32": np.dtype(np.uint32),
    "u64": np.dtype(np.uint64),
    "f16": np.dtype(np.float16),
    "bf16": bfloat16,
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
    "c64": np.dtype(np.complex64),
    "c128": np.dtype(np.complex128),
}
SHORT_NAMES: dict[DType, str] = {dtype: short for short, dtype in DTYPES.items()}

BOOL, INT64, UINT32, UINT64 = DTYPES["b1"], DTYPES["i64"], DTYPES["u32"], DTYPES["u64"]
FLOAT32, FLOAT64, COMPLEX128 = DTYPES["f32"], DTYPES["f64"], DTYPES["c128"]
HALVES = (DTYPES["f16"], bfloat16)  # stored in 16 bits, computed in float32

_KINDS = {dtype: "f" if dtype == bfloat16 else dtype.kind for dtype in SHORT_NAMES}
_CANONICAL = {dtype: dtype for dtype in SHORT_NAMES}  # one object per dtype: `long` and `longlong` become one
_WEAK_DEFAULTS: dict[type, DType] = {int: INT64, float: FLOAT64, complex: COMPLEX128}
_INSTEAD = {  # what to write in place of an unsupported dtype, by kind
    "O": "an array of numbers, such as np.asarray(x, dtype=np.float64)",
    "U": "numbers; keep text outside the traced function",
    "S": "numbers, or x.view(np.uint8)",
    "T": "numbers; keep text outside the traced function",
    "M": "x.view(np.int64)",
    "m": "x.view(np.int64)",
    "V": "one array per field, or x.astype(np.float32)",
    "f": "x.astype(np.float64)",
    "c": "x.astype(np.complex128)",
}


def dtype_of(dtype: Any) -> DType:
    """The canonical supported dtype for anything `np.dtype` accepts. Raises TypeError, saying what to write instead."""
    given = np.dtype(dtype)
    found = _CANONICAL.get(given)
    if found is not None:
        return found
    if not given.isnative:
        raise TypeError(f"dtype {given} is not in native byte order; write x.astype(x.dtype.newbyteorder('='))")
    instead = _INSTEAD.get(given.kind, "one of the supported dtypes")
    raise TypeError(f"dtype {given} is not supported; write {instead}. Supported: {', '.join(map(str, SHORT_NAMES))}")


@lru_cache(64)
def dtype_name(dtype: DType) -> str:
    """`float32`: what NumPy makes anew each time."""
    return dtype.name


def dtype_kind(dtype: DType) -> str:
    """`b`, `i`, `u`, `f` (bfloat16 too) or `c`."""
    return _KINDS[dtype]


def bits_of_dtype(dtype: DType) -> int:
    return 1 if dtype == BOOL else dtype.itemsize * 8


def real_dtype(dtype: DType) -> DType:
    """The dtype of the parts of a complex dtype; any other dtype itself."""
    return _CANONICAL[np.dtype(f"f{dtype.itemsize // 2}")] if dtype.kind == "c" else dtype


def complex_dtype(dtype: DType) -> DType:
    """The complex dtype whose parts are float32 or float64; a complex dtype itself."""
    return dtype if dtype.kind == "c" else _CANONICAL[np.dtype(f"c{dtype.itemsize * 2}")]


def integer_dtype(dtype: DType, signed: bool = True) -> DType:
    """The integer dtype of the same size."""
    return _CANONICAL[np.dtype(f"{'i' if signed else 'u'}{dtype.itemsize}")]


def promoted_dtype(*dtypes: DType | WeakType) -> DType:
    """NumPy's promotion. The Python types int, float and complex stand for weak Python scalars (NEP 50).

    Where NumPy knows no common dtype (bfloat16 with int16, say) it is the one that `np.add` computes in.
    """
    strong = [d for d in dtypes if isinstance(d, np.dtype)]
    weak: list[Any] = [d for d in dtypes if not isinstance(d, np.dtype)]
    if not strong:
        return _WEAK_DEFAULTS[max(weak, key=list(_WEAK_DEFAULTS).index)]
    try:
        return dtype_of(np.result_type(*strong, *(w(0) for w in weak)))
    except np.exceptions.DTypePromotionError:
        found: Any = strong[0]
        for other in [*strong[1:], *weak]:
            found = np.add.resolve_dtypes((found, other, None))[2]
        return dtype_of(found)


_NORMAL: dict[Any, tuple[tuple[int, ...], DType]] = {}  # shapes and dtypes that are as they should be


@frozen
class ArrayType:
    """A shape (Python ints, no negative ones) and a supported dtype. `ArrayType((3, 4), "f4")` normalises.

    Raises TypeError for a dtype that is not supported and ValueError for a negative length.
    """

    shape: tuple[int, ...]
    dtype: DType

    def __post_init__(self) -> None:
        try:
            known = _NORMAL.get((self.shape, self.dtype))
        except TypeError:  # a list, say
            known = None
        if known is None:
            known = self._normalized()
        object.__setattr__(self, "shape", known[0])
        object.__setattr__(self, "dtype", known[1])

    def _normalized(self) -> tuple[tuple[int, ...], DType]:
        """Shape and dtype as they should be, kept for the next time where they were so."""
        shape = tuple(int(n) for n in self.shape)
        if min(shape, default=0) < 0:
            raise ValueError(f"negative length in shape {shape}")
        found = shape, dtype_of(self.dtype)
        if type(self.shape) is tuple and isinstance(self.dtype, np.dtype):
            if len(_NORMAL) > 4096:
                _NORMAL.clear()
            _NORMAL[found] = found
        return found

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    def __str__(self) -> str:
        return f"{self.dtype.name}[{','.join(map(str, self.shape))}]"


def array_type_of(array: Any) -> ArrayType:
    """The type of anything with `shape` and `dtype`."""
    return ArrayType(array.shape, array.dtype)


Loop: TypeAlias = tuple[tuple[DType, ...], DType]
DTypes: TypeAlias = Sequence[DType | WeakType]
Rule: TypeAlias = Callable[[DTypes, DType | None], Loop]


class NoLoop(TypeError):
    """The op does not take these dtypes. The text is NumPy's reason where it gives one."""


def ufunc_promotion_rule(ufunc: np.ufunc, part: int = 0) -> Rule:
    """NumPy's own promotion (ml_dtypes registers bfloat16 with it); result number `part`."""

    def resolve_ufunc_dtypes(dtypes: DTypes, dtype: DType | None) -> Loop:
        outputs = (None,) * ufunc.nout
        given: Any = (*dtypes, *outputs)
        asked: Any = {} if dtype is None else {"signature": (None,) * ufunc.nin + (dtype,) * ufunc.nout}
        try:
            found = ufunc.resolve_dtypes(given, casting="same_kind", **asked)
        except TypeError as error:
            reason = str(error)
            raise NoLoop("" if reason.startswith(("ufunc", "No loop")) else reason) from None
        return tuple(map(dtype_of, found[: ufunc.nin])), dtype_of(found[ufunc.nin + part])

    return resolve_ufunc_dtypes


def common_kind_promotion_rule(kinds: str = "biufc") -> Rule:
    """All arguments in their common dtype, which is the result's."""

    def resolve_common_dtype(dtypes: DTypes, dtype: DType | None) -> Loop:
        common = dtype or promoted_dtype(*dtypes)
        if dtype_kind(common) not in kinds:
            raise NoLoop("")
        return (common,) * len(dtypes), common

    return resolve_common_dtype


def single_or_double_promotion_rule(dtypes: DTypes, dtype: DType | None) -> Loop:
    """All arguments in float32, or all in float64: the loops of SciPy's functions."""
    common = dtype or promoted_dtype(*dtypes)
    if common not in (FLOAT32, FLOAT64):
        raise NoLoop("")
    return (common,) * len(dtypes), common


def raw_bits_promotion_rule(*names: str) -> Rule:
    """All arguments of one of these dtypes as they are: raw bits are not promoted."""

    def resolve_raw_bits_dtype(dtypes: DTypes, dtype: DType | None) -> Loop:
        first = dtypes[0]
        if isinstance(first, type) or {*dtypes, dtype or first} != {first} or first.str[1:] not in names:
            raise NoLoop("")
        return (first,) * len(dtypes), first

    return resolve_raw_bits_dtype


def clip_promotion_rule(dtypes: DTypes, dtype: DType | None) -> Loop:
    """np.clip: as np.result_type, but bfloat16 with weak scalars as in ufuncs of two arguments."""
    if bfloat16 in dtypes and dtype is None:
        dtype = bfloat16
        for other in sorted(dtypes, key=lambda d: isinstance(d, type)):
            given: Any = (dtype, other, None)
            dtype = dtype_of(np.maximum.resolve_dtypes(given)[2])
    return common_kind_promotion_rule()(dtypes, dtype)


def float_promotion_rule(dtypes: DTypes, dtype: DType | None) -> Loop:
    """As np.exp but for complex: small integers give small floats."""
    loop, result = ufunc_promotion_rule(np.exp)(dtypes, dtype)
    if dtype_kind(result) != "f":
        raise NoLoop("")
    return loop, result


def real_part_dtype_rule(dtypes: DTypes, dtype: DType | None) -> Loop:
    """real and imag: the dtype of the parts."""
    common = dtype or promoted_dtype(*dtypes)
    return (common,), real_dtype(common)


def complex_promotion_rule(dtypes: DTypes, dtype: DType | None) -> Loop:
    """Two halves of the same kind; the dtype of the whole."""
    common = promoted_dtype(*dtypes)
    if common not in (FLOAT32, FLOAT64):
        raise NoLoop("")
    return (common, common), dtype_of(np.result_type(common, np.complex64))


def angle_promotion_rule(dtypes: DTypes, dtype: DType | None) -> Loop:
    """np.angle: as np.arctan2(0, x), but for complex."""
    common = dtype or promoted_dtype(*dtypes)
    if dtype_kind(common) in "biu":
        common = ufunc_promotion_rule(np.arctan2)((int, common), None)[1]
    return (common,), real_dtype(common)


def where_promotion_rule(dtypes: DTypes, dtype: DType | None) -> Loop:
    common = dtype or promoted_dtype(*dtypes[1:])
    return (BOOL, common, common), common


def cast_promotion_rule(dtypes: DTypes, dtype: DType | None) -> Loop:
    source = promoted_dtype(*dtypes)
    return (source,), dtype or source


def sum_promotion_rule(dtypes: DTypes, dtype: DType | None) -> Loop:
    """sum and prod: small integers and bool grow to 64 bits."""
    source = promoted_dtype(*dtypes)
    grown = {"b": INT64, "i": INT64, "u": UINT64}
    result = dtype or grown.get(dtype_kind(source), source)
    return (result,), result


def bool_promotion_rule(dtypes: DTypes, dtype: DType | None) -> Loop:
    return (BOOL,), BOOL


def index_promotion_rule(dtypes: DTypes, dtype: DType | None) -> Loop:
    return (promoted_dtype(*dtypes),), INT64


def no_arguments_promotion_rule(dtypes: DTypes, dtype: DType | None) -> Loop:
    """Sources have no arguments to promote."""
    if dtype is None:
        raise NoLoop("give it a dtype")
    return (), dtype
