"""Labelled arrays of other libraries (pandas, xarray, polars): their values in; values out as such objects again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...runtime.core.frozen import dataclass

# What these libraries compute otherwise than NumPy, or may in a later version: by zero, and of NaN.
DIVISIONS = frozenset({"floor_divide", "remainder", "fmod", "divmod", "power", "integer_power"})
COMPARISONS = frozenset({"equal", "not_equal", "less", "less_equal", "greater", "greater_equal"})
NUMBERS = "biufc"


@dataclass(frozen=True)
class LabelledKind:
    """A class of labelled arrays.

    values: its array, or None where NumPy has none like it; header: what a result's labels depend on beside the
    index; alike: whether two have the same index; relabelled(values, like, first): values with the index of `like`
    and the name of `first`, a result of the library's own. array: what a user writes for the values, as errors
    tell. own: the ops that are not NumPy's."""

    values: Callable[[Any], np.ndarray[Any, Any] | None]
    header: Callable[[Any], Any]
    alike: Callable[[Any, Any], bool]
    relabelled: Callable[[np.ndarray[Any, Any], Any, Any], Any]
    array: str
    own: frozenset[str] = DIVISIONS


def _values_of_dtype(values: Any, dtypes: set[Any]) -> np.ndarray[Any, Any] | None:
    """The array, if all parts are of one dtype of NumPy's numbers."""
    same = len(dtypes) == 1 and all(isinstance(d, np.dtype) and d.kind in NUMBERS for d in dtypes)
    return np.asarray(values) if same else None


def _polars_values(series: Any) -> np.ndarray[Any, Any] | None:
    is_float = str(series.dtype) in ("Float32", "Float64") and not series.null_count()
    return series.to_numpy() if is_float else None


def _relabelled_series(values: np.ndarray[Any, Any], like: Any, first: Any) -> Any:
    return type(like)(values, index=like.index, name=first.name, copy=False)


def _relabelled_frame(values: np.ndarray[Any, Any], like: Any, first: Any) -> Any:
    return type(like)(values, index=like.index, columns=first.columns, copy=False)


def _relabelled_data_array(values: np.ndarray[Any, Any], like: Any, first: Any) -> Any:
    made = like.copy(data=values)
    made.name, made.attrs, made.encoding = first.name, dict(first.attrs), dict(first.encoding)
    return made


def _no_values(_: Any) -> None:
    return None


_AS_WRITTEN: dict[str, Any] = {  # of classes that NumPy has nothing like
    "values": _no_values,
    "header": _no_values,
    "alike": lambda a, b: False,
    "relabelled": lambda values, like, first: values,
}

KINDS = {
    ("pandas", "Series"): LabelledKind(
        lambda x: None if x.attrs else _values_of_dtype(x, {x.dtype}),
        lambda x: x.name,
        lambda a, b: a.index.identical(b.index),
        _relabelled_series,
        "x.to_numpy()",
    ),
    ("pandas", "DataFrame"): LabelledKind(
        lambda x: None if x.attrs else _values_of_dtype(x, {*x.dtypes}),
        lambda x: tuple(x.columns),
        lambda a, b: a.index.identical(b.index) and a.columns.identical(b.columns),
        _relabelled_frame,
        "x.to_numpy()",
    ),
    ("xarray", "DataArray"): LabelledKind(
        lambda x: x.data if type(x.data) is np.ndarray and x.dtype.kind in NUMBERS else None,
        lambda x: (x.name, x.dims, repr(x.attrs), repr(x.encoding)),
        lambda a, b: a.dims == b.dims and a.coords.identical(b.coords),
        _relabelled_data_array,
        "x.values",
        frozenset(),
    ),
    ("polars", "Series"): LabelledKind(
        _polars_values,
        lambda x: x.name,
        lambda a, b: len(a) == len(b),
        lambda values, like, first: type(like)(first.name, values),
        "x.to_numpy()",
        DIVISIONS | COMPARISONS,
    ),
    ("polars", "DataFrame"): LabelledKind(**_AS_WRITTEN, array="x.to_numpy()"),
    ("pandas", "Index"): LabelledKind(**_AS_WRITTEN, array="x.to_numpy()"),
    ("pandas", "RangeIndex"): LabelledKind(**_AS_WRITTEN, array="x.to_numpy()"),
    ("pandas", "DatetimeIndex"): LabelledKind(**_AS_WRITTEN, array="x.to_numpy()"),
    ("xarray", "Variable"): LabelledKind(**_AS_WRITTEN, array="x.values"),
}


_rows: dict[type, LabelledKind | None] = {}  # of the classes that were met


def labelled_kind(kind: type) -> LabelledKind | None:
    """The row of a class; None for any other class."""
    if kind not in _rows:
        _rows[kind] = KINDS.get((kind.__module__.partition(".")[0], kind.__name__))
    return _rows[kind]
