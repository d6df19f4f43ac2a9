"""Dtype rules of the op table: dtypes of the arguments in, dtypes of the loop that runs and of its result out.

An argument is a dtype, or the Python type int, float or complex for a weak Python scalar (NEP 50). The second
argument of a rule is what the user asked for with `dtype=`, or None.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from ..core.types import (
    BOOL,
    FLOAT32,
    FLOAT64,
    INT64,
    UINT64,
    DType,
    WeakType,
    bfloat16,
    dtype_kind,
    dtype_of,
    promoted_dtype,
)
from ..core.types import real_dtype as part_of

Loop: TypeAlias = tuple[tuple[DType, ...], DType]
Rule: TypeAlias = Callable[[Sequence[DType | WeakType], DType | None], Loop]


class NoLoop(TypeError):
    """The op does not take these dtypes; the text is NumPy's reason where it gives one."""


def ufunc_dtype_rule(ufunc: np.ufunc, part: int = 0) -> Rule:
    """NumPy's own promotion (ml_dtypes registers bfloat16 with it); result number `part`."""

    def rule(dtypes: Sequence[DType | WeakType], dtype: DType | None) -> Loop:
        outputs = (None,) * ufunc.nout
        given: Any = (*dtypes, *outputs)
        asked: Any = {} if dtype is None else {"signature": (None,) * ufunc.nin + (dtype,) * ufunc.nout}
        try:
            found = ufunc.resolve_dtypes(given, casting="same_kind", **asked)
        except TypeError as error:
            reason = str(error)
            raise NoLoop("" if reason.startswith(("ufunc", "No loop")) else reason) from None
        return tuple(map(dtype_of, found[: ufunc.nin])), dtype_of(found[ufunc.nin + part])

    return rule


def common_kind_dtype_rule(kinds: str = "biufc") -> Rule:
    """All arguments in their common dtype, which is the result's."""

    def rule(dtypes: Sequence[DType | WeakType], dtype: DType | None) -> Loop:
        common = dtype or promoted_dtype(*dtypes)
        if dtype_kind(common) not in kinds:
            raise NoLoop("")
        return (common,) * len(dtypes), common

    return rule


def raw_bits_dtype_rule(*names: str) -> Rule:
    """All arguments of one of these dtypes as they are: raw bits are not promoted."""

    def rule(dtypes: Sequence[DType | WeakType], dtype: DType | None) -> Loop:
        first = dtypes[0]
        if isinstance(first, type) or {*dtypes, dtype or first} != {first} or first.str[1:] not in names:
            raise NoLoop("")
        return (first,) * len(dtypes), first

    return rule


def clip_dtype_rule(dtypes: Sequence[DType | WeakType], dtype: DType | None) -> Loop:
    """np.clip: as np.result_type, but bfloat16 with weak scalars as in ufuncs of two arguments."""
    if bfloat16 in dtypes and dtype is None:
        dtype = bfloat16
        for other in sorted(dtypes, key=lambda d: isinstance(d, type)):
            given: Any = (dtype, other, None)
            dtype = dtype_of(np.maximum.resolve_dtypes(given)[2])
    return common_kind_dtype_rule()(dtypes, dtype)


def float_dtype_rule(dtypes: Sequence[DType | WeakType], dtype: DType | None) -> Loop:
    """As np.exp but for complex: small integers give small floats."""
    loop, result = ufunc_dtype_rule(np.exp)(dtypes, dtype)
    if dtype_kind(result) != "f":
        raise NoLoop("")
    return loop, result


def real_part_dtype_rule(dtypes: Sequence[DType | WeakType], dtype: DType | None) -> Loop:
    """real and imag: the dtype of the parts."""
    common = dtype or promoted_dtype(*dtypes)
    return (common,), part_of(common)


def complex_dtype_rule(dtypes: Sequence[DType | WeakType], dtype: DType | None) -> Loop:
    """Two halves of the same kind; the dtype of the whole."""
    common = promoted_dtype(*dtypes)
    if common not in (FLOAT32, FLOAT64):
        raise NoLoop("")
    return (common, common), dtype_of(np.result_type(common, np.complex64))


def angle_dtype_rule(dtypes: Sequence[DType | WeakType], dtype: DType | None) -> Loop:
    """np.angle: as np.arctan2(0, x), but for complex."""
    common = dtype or promoted_dtype(*dtypes)
    if dtype_kind(common) in "biu":
        common = ufunc_dtype_rule(np.arctan2)((int, common), None)[1]
    return (common,), part_of(common)


def where_dtype_rule(dtypes: Sequence[DType | WeakType], dtype: DType | None) -> Loop:
    common = dtype or promoted_dtype(*dtypes[1:])
    return (BOOL, common, common), common


def cast_dtype_rule(dtypes: Sequence[DType | WeakType], dtype: DType | None) -> Loop:
    source = promoted_dtype(*dtypes)
    return (source,), dtype or source


def sum_dtype_rule(dtypes: Sequence[DType | WeakType], dtype: DType | None) -> Loop:
    """sum and prod: small integers and bool grow to 64 bits."""
    source = promoted_dtype(*dtypes)
    grown = {"b": INT64, "i": INT64, "u": UINT64}
    result = dtype or grown.get(dtype_kind(source), source)
    return (result,), result


def bool_dtype_rule(dtypes: Sequence[DType | WeakType], dtype: DType | None) -> Loop:
    return (BOOL,), BOOL


def index_dtype_rule(dtypes: Sequence[DType | WeakType], dtype: DType | None) -> Loop:
    return (promoted_dtype(*dtypes),), INT64


def no_arguments_dtype_rule(dtypes: Sequence[DType | WeakType], dtype: DType | None) -> Loop:
    """Sources have no arguments to promote."""
    if dtype is None:
        raise NoLoop("give it a dtype")
    return (), dtype
