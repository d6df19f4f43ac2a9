"""ArrayType and the table of dtypes."""

from __future__ import annotations

import itertools
import pickle
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgraph.compiler.core import types
from kernelgraph.compiler.core.types import (
    DTYPES,
    SHORT_NAMES,
    ArrayType,
    array_type_of,
    bfloat16,
    dtype_kind,
    dtype_of,
    promoted_dtype,
)

DTYPE = st.sampled_from(list(SHORT_NAMES))
SHAPE = st.lists(st.integers(0, 9), max_size=4).map(tuple)


@given(SHAPE, DTYPE)
def test_array_types_are_values(shape: tuple[int, ...], dtype: Any) -> None:
    array = np.zeros(shape, dtype)
    one, other = array_type_of(array), ArrayType(shape, dtype.str if dtype != bfloat16 else dtype)
    assert one == other
    assert hash(one) == hash(other) == hash(pickle.loads(pickle.dumps(one)))
    assert pickle.loads(pickle.dumps(one)) == one
    assert (one.size, one.nbytes, one.ndim) == (array.size, array.nbytes, array.ndim)
    assert str(one) == f"{dtype.name}[{','.join(map(str, shape))}]"


def test_shapes_become_python_ints() -> None:
    assert ArrayType((np.int64(3), 4), "f4").shape == (3, 4)  # type: ignore[arg-type]
    assert type(ArrayType((np.int64(3),), "f4").shape[0]) is int  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="negative"):
        ArrayType((-1,), "f4")


def test_equal_dtypes_are_one_object() -> None:
    assert dtype_of("longlong") is dtype_of("long") is DTYPES["i64"]
    assert dtype_of(float) is DTYPES["f64"]


@pytest.mark.parametrize(
    ("dtype", "text"),
    [
        (object, "dtype=np.float64"),
        ("U5", "text"),
        ("S5", "uint8"),
        ("M8[s]", r"view\(np.int64\)"),
        ("m8[s]", r"view\(np.int64\)"),
        ([("a", "f4")], "one array per field"),
        (np.longdouble, r"astype\(np.float64\)"),
        (np.clongdouble, r"astype\(np.complex128\)"),
        (">f4", "newbyteorder"),
        (ml_dtypes.float8_e4m3fn, r"astype\(np.float32\)"),
    ],
)
def test_unsupported_dtypes_are_refused_with_advice(dtype: Any, text: str) -> None:
    with pytest.raises(TypeError, match=text):
        ArrayType((2,), dtype)


def test_promotion_is_numpys() -> None:
    """Of the values that np.where would give, wherever NumPy has an answer."""
    for a, b in itertools.product(SHORT_NAMES, repeat=2):
        try:
            want = np.result_type(a, b)
        except np.exceptions.DTypePromotionError:
            want = np.add.resolve_dtypes((a, b, None))[2]
        assert promoted_dtype(a, b) == want
    for a, weak in itertools.product(SHORT_NAMES, (int, float, complex)):
        assert promoted_dtype(a, weak) == np.where([True], np.ones(1, a), weak(1)).dtype
    assert promoted_dtype(int, float) == np.float64
    assert promoted_dtype(int, complex) == np.complex128


@pytest.mark.parametrize("dtype", SHORT_NAMES, ids=str)
def test_related_dtypes(dtype: Any) -> None:
    kind = dtype_kind(dtype)
    assert types.real_dtype(dtype).itemsize * (2 if kind == "c" else 1) == dtype.itemsize
    if kind == "f" and dtype.itemsize > 2:
        assert types.real_dtype(types.complex_dtype(dtype)) == dtype
    if kind != "c":
        assert (
            types.integer_dtype(dtype).itemsize == types.integer_dtype(dtype, signed=False).itemsize == dtype.itemsize
        )
    assert types.bits_of_dtype(dtype) == (1 if kind == "b" else 8 * dtype.itemsize)
    assert DTYPES[SHORT_NAMES[dtype]] == dtype
