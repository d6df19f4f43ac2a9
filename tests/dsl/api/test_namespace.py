"""`kg` as a namespace of the Array API standard: names, signatures, dtypes, and functions that run at once."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph.dsl.api.namespace import NAMESPACE, NumpyNamespace

STANDARD = """
    astype can_cast finfo iinfo isdtype result_type arange asarray empty empty_like eye from_dlpack full full_like
    linspace meshgrid ones ones_like tril triu zeros zeros_like abs acos acosh add asin asinh atan atan2 atanh
    bitwise_and bitwise_left_shift bitwise_invert bitwise_or bitwise_right_shift bitwise_xor ceil clip conj copysign
    cos cosh divide equal exp expm1 floor floor_divide greater greater_equal hypot imag isfinite isinf isnan less
    less_equal log log1p log2 log10 logaddexp logical_and logical_not logical_or logical_xor maximum minimum multiply
    negative nextafter not_equal positive pow real reciprocal remainder round sign signbit sin sinh square sqrt
    subtract tan tanh trunc take take_along_axis matmul matrix_transpose tensordot vecdot broadcast_arrays
    broadcast_to concat expand_dims flip moveaxis permute_dims repeat reshape roll squeeze stack tile unstack argmax
    argmin count_nonzero nonzero searchsorted where unique_all unique_counts unique_inverse unique_values argsort sort
    cumulative_prod cumulative_sum max mean min prod std sum var all any diff e inf nan newaxis pi bool int8 int16
    int32 int64 uint8 uint16 uint32 uint64 float32 float64 complex64 complex128 __array_namespace_info__
"""
LINALG = """
    cholesky cross det diagonal eigh eigvalsh inv matmul matrix_norm matrix_power matrix_rank matrix_transpose outer
    pinv qr slogdet solve svd svdvals tensordot trace vecdot vector_norm
"""
FFT = "fft ifft fftn ifftn rfft irfft rfftn irfftn hfft ihfft fftfreq rfftfreq fftshift ifftshift"


def test_every_name_of_the_standard_is_there() -> None:
    for place, names in ((kg, STANDARD), (kg.linalg, LINALG), (kg.fft, FFT)):
        assert [n for n in names.split() if not hasattr(place, n)] == []


def test_signatures_are_numpys() -> None:
    for name in ("sum", "cumsum", "take", "std"):
        assert inspect.signature(getattr(kg, name)) == inspect.signature(getattr(np, name))
    assert inspect.signature(kg.linalg.pinv) == inspect.signature(np.linalg.pinv)


def test_names_that_are_not_there() -> None:
    for place in (kg, kg.linalg, kg.fft, kg.nn):
        with pytest.raises(AttributeError, match="no_such_name"):
            place.no_such_name  # noqa: B018


def test_limits_and_kinds() -> None:
    x = kg.asarray(np.ones(2, np.float32), device="cpu")
    assert kg.finfo(x).eps == np.finfo(np.float32).eps and kg.iinfo(kg.int8).max == 127
    assert kg.finfo(kg.bfloat16).eps == 2.0**-7
    for dtype in (np.float16, np.float32, np.float64, np.complex64):
        for name in ("bits", "eps", "max", "min", "smallest_normal", "dtype"):
            assert getattr(kg.finfo(dtype), name) == getattr(np.finfo(dtype), name)
    with pytest.raises(kg.DTypeError, match="iinfo"):
        kg.finfo(kg.int8)
    with pytest.raises(kg.DTypeError, match="finfo"):
        kg.iinfo(kg.float32)
    assert kg.isdtype(kg.int8, ("bool", "signed integer")) and not kg.isdtype(x.dtype, kg.float64)


def test_what_the_namespace_says_of_itself() -> None:
    info = kg.__array_namespace_info__()
    assert info.default_device() in info.devices() and "cpu" in info.devices()
    assert set(info.dtypes(kind="complex floating")) == {"complex64", "complex128"}
    assert len(info.dtypes()) == 13
    assert info.default_dtypes()["integral"] == np.int64


def test_from_dlpack() -> None:
    x = np.arange(3.0)
    found = kg.from_dlpack(x)
    x[:] = 0
    assert isinstance(found, kg.Array)
    np.testing.assert_array_equal(found, [0, 1, 2])
    with pytest.raises(kg.TraceError, match="no memory"):
        kg.kernel_graph(lambda x: kg.from_dlpack(x), device="cpu").graph(x)


@pytest.mark.parametrize("name", ["eigh", "qr", "slogdet", "svd"])
def test_named_tuples_stay_such(name: str) -> None:
    x = np.eye(2) * 3
    real = getattr(np.linalg, name)(x)

    def call(x: Any) -> Any:
        return getattr(kg.linalg, name)(x)

    for found in (call(kg.asarray(x, device="cpu")), kg.kernel_graph(call, device="cpu")(x)):
        assert found._fields == real._fields
        assert all(isinstance(part, kg.Array) for part in found)


def test_functions_at_once_give_arrays() -> None:
    x = kg.asarray(np.array([[3.0, 1.0], [2.0, 5.0]]), device="cpu")
    assert isinstance(kg.sort(x), kg.Array)
    values, counts = kg.unique_counts(x)
    assert isinstance(values, kg.Array) and isinstance(counts, kg.Array)
    np.testing.assert_allclose(kg.nn.softmax(x).sum(-1), [1, 1])
    np.testing.assert_array_equal(kg.einsum("ij->j", x), [5, 6])
    np.testing.assert_array_equal(kg.nonzero(x > 2)[0], [0, 1])


def test_each_function_has_a_name_and_a_text() -> None:
    def functions(names: dict[str, Any]) -> Any:
        for name, value in names.items():
            if isinstance(value, NumpyNamespace):
                yield from functions(vars(value))
            elif inspect.isfunction(value):
                yield name, value

    found = list(functions(NAMESPACE))
    assert len(found) > 300
    assert [name for name, f in found if not f.__doc__] == []
