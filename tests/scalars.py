"""Every function of NumPy's on arrays of every dtype and scalars of every kind, compared with NumPy.

python -m tests.scalars [--count N] [--only NAME] [--shard I/N]

Compared are values, dtypes and shapes, or the type of the exception. The rows are made from NumPy's own namespaces, so
a function that is added there is tested. Each scalar comes in two ways: known while tracing, and as an argument of the
call. `wrong` must be 0; `refused` counts what raises UnsupportedError or TraceError where NumPy has an answer or raises
something else. `--shard I/N` takes every Nth case of the whole table from the Ith on: all cases on 16 cores are

for i in $(seq 0 15); do python -m tests.scalars --shard $i/16 > scalars.$i & done; wait; tail -qn 1 scalars.*
"""

from __future__ import annotations

import argparse
import inspect
import itertools
import operator
import random
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

import kernelgraph as kg
from kernelgraph.compiler.graph.interpret import interpret
from kernelgraph.dsl.core.pytree import flatten, unflatten

Row = Callable[[Any, Any], Any]

DTYPES = ("?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16")
SCALARS: tuple[Any, ...] = (
    *(0, 1, -1, 2, 255, 256, 2**31, 2**63, 2**64, -(2**63)),
    *(0.0, 1.0, 0.5, -0.0, -2.5, float("nan"), float("inf"), 1e300),
    *(True, False, 1j, complex("nan+1j")),
    *(np.float32(1.5), np.float64(-0.0), np.int8(1), np.uint64(2**63), np.bool_(True), np.complex64(2j)),
)
DATA = (0.0, 1.0, 3.0, -0.0, -2.0, float("nan"), float("inf"), 100.0)

# What is no function of values, by name: printing, files, Python objects, types, memory, settings.
OTHER = set(
    [
        "array2string",
        "array_repr",
        "array_str",
        "array2string",
        "base_repr",
        "binary_repr",
        "format_float_positional",
        "typename",
        "mintypecode",
        "format_float_scientific",
        "get_printoptions",
        "set_printoptions",
        "printoptions",
        "fromfile",
        "fromregex",
        "fromstring",
        "frombuffer",
        "frompyfunc",
        "genfromtxt",
        "loadtxt",
        "savetxt",
        "load",
        "save",
        "savez",
        "savez_compressed",
        "memmap",
        "from_dlpack",
        "can_cast",
        "common_type",
        "min_scalar_type",
        "promote_types",
        "result_type",
        "issubdtype",
        "isdtype",
        "dtype",
        "finfo",
        "iinfo",
        "shares_memory",
        "may_share_memory",
        "get_include",
        "getbufsize",
        "setbufsize",
        "geterr",
        "seterr",
        "geterrcall",
        "seterrcall",
        "errstate",
        "info",
        "show_config",
        "show_runtime",
        "test",
        "nditer",
        "ndenumerate",
        "ndindex",
        "flatiter",
        "broadcast",
        "nested_iters",
        "vectorize",
        "poly1d",
        "matrix",
        "recarray",
        "record",
        "asmatrix",
        "bmat",
        "char",
        "core",
        "ctypeslib",
        "datetime_as_string",
        "datetime_data",
        "busday_count",
        "busday_offset",
        "busdaycalendar",
        "is_busday",
        "get_array_wrap",
        "ndarray",
        "generic",
        "piecewise",
        "apply_along_axis",
        "apply_over_axes",
        "fromfunction",
        "fromiter",
        "einsum",
        "einsum_path",
        "iterable",
        "isfortran",
        "isscalar",
        "asarray_chkfinite",
        "get_no_gufunc",
        "require",
        "mask_indices",
        "lib",
        "isnat",
        "datetime64",
        "timedelta64",
        "broadcast_shapes",
        "arange",
    ]
)
# Parameters that are no values.
OPTIONS = set(
    [
        "axis",
        "axes",
        "dtype",
        "out",
        "order",
        "keepdims",
        "subok",
        "casting",
        "like",
        "device",
        "copy",
        "mode",
        "method",
        "kind",
        "sorter",
        "side",
        "assume_unique",
        "where",
        "return_index",
        "return_inverse",
        "return_counts",
        "equal_nan",
        "sparse",
        "indexing",
        "invert",
        "endpoint",
        "retstep",
        "num",
        "n",
        "m",
        "deg",
        "full",
        "rowvar",
        "bias",
        "hermitian",
        "full_matrices",
        "compute_uv",
        "upper",
        "overwrite_input",
        "returned",
        "density",
        "edge_order",
        "size",
        "shape",
        "newshape",
        "new_shape",
        "M",
        "N",
        "k",
        "offset",
        "axis1",
        "axis2",
        "axisa",
        "axisb",
        "axisc",
        "reps",
        "repeats",
        "decimals",
        "bins",
        "norm",
        "s",
        "ord",
        "stable",
        "sorted",
        "strict",
        "correction",
        "ddof",
        "mean",
        "minlength",
        "ndmin",
        "ndmax",
        "seq",
        "arrays",
        "tup",
        "condlist",
        "choicelist",
        "nbins",
        "extobj",
        "signature",
        "trim",
        "cov",
        "unpack",
        "optimize",
        "UPLO",
        "include_initial",
        "bitorder",
        "count",
        "dims",
        "multi_index",
        "sections",
        "indices_or_sections",
        "func1d",
        "func",
        "window_shape",
        "writeable",
        "shift",
        "source",
        "destination",
        "pad_width",
        "keepdims",
        "max_rows",
        "interpolation",
        "key",
        "obj",
        "ind",
        "indices",
        "mask",
        "N",
        "start",
        "stop",
    ]
)
REQUIRED = {"where": 3, "concatenate": 1, "dot": 2, "vdot": 2, "inner": 2, "putmask": 3, "bincount": 1, "lexsort": 1,
            "copyto": 2, "array": 1, "asarray": 1}  # of those without a signature  # fmt: skip


class Case(NamedTuple):
    """One call. given: whether the scalar is an argument of the call, else it is known while tracing."""

    name: str
    row: Row
    dtype: str
    scalar: Any
    given: bool


def array_for(dtype: str, square: bool = False) -> np.ndarray[Any, Any]:
    kind = np.dtype(dtype).kind
    values: Any = np.array(DATA)
    if kind in "biu":
        values = np.array([0, 1, 3, 2, 7, 100, 5, 1])
    if kind == "c":
        values = values.astype(complex)
        values.imag = values.real[::-1]
    x = values.astype(dtype)
    return x[:4].reshape(2, 2).copy() if square else x


# the rows


def rows() -> dict[str, Row]:
    """All rows by name; what comes before the first bracket is the function."""
    found: dict[str, Row] = {**OPERATORS, **ASSIGNMENTS, **JOINS}
    for module, prefix in ((np, "np."), (np.linalg, "np.linalg."), (np.fft, "np.fft.")):
        for name in sorted(dir(module)):
            function = getattr(module, name)
            if name.startswith("_") or name in OTHER or isinstance(function, type) or not callable(function):
                continue
            made = _of_ufunc(function) if isinstance(function, np.ufunc) else _of_function(name, function)
            found.update({f"{prefix}{name}{text}": row for text, row in made})
    return found


def _of_ufunc(f: Any) -> Iterator[tuple[str, Row]]:
    if f.signature is not None or f.nin == 2:
        yield "(x, s)", lambda x, s: f(x, s)
        yield "(s, x)", lambda x, s: f(s, x)
        yield "(s, s)", lambda x, s: f(s, s)
    if f.signature is not None or f.nin > 2:
        return
    if f.nin == 1:
        yield "(x)", lambda x, s: f(x)
        yield "(s)", lambda x, s: f(s)
        return
    if f.nout == 1:
        yield "(x, s, out)", lambda x, s: f(x, s, out=x.copy())
        yield ".outer(x, s)", lambda x, s: f.outer(x, s)
        yield ".reduce(initial=s)", lambda x, s: f.reduce(x, initial=s)


def _of_function(name: str, f: Any) -> Iterator[tuple[str, Row]]:
    try:
        parameters = [*inspect.signature(f).parameters.values()]
    except ValueError:
        parameters = []
    plain = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    count = REQUIRED.get(name, sum(p.default is p.empty for p in plain))
    arrays = [p.name not in OPTIONS for p in plain[:count]] or [True] * count
    if name not in REQUIRED and (not all(arrays) or not 0 < count <= 4):
        return
    for choice in itertools.product((False, True), repeat=count):
        text = ", ".join("s" if c else "x" for c in choice)
        yield f"({text})", lambda x, s, choice=choice: _changed(f, [s if c else x.copy() for c in choice])
    for p in parameters:
        if p.name not in OPTIONS and (p.kind == p.KEYWORD_ONLY or (p in plain and p.default is not p.empty)):
            yield (
                f"({'x, ' * count}{p.name}=s)",
                lambda x, s, p=p: _changed(f, [x.copy() for _ in range(count)], {p.name: s}),
            )


def _changed(f: Any, args: list[Any], options: dict[str, Any] = {}) -> Any:  # noqa: B006
    """The result, or the argument that the function has changed."""
    result = f(*args, **options)
    return args[0] if result is None else result


_NAMES = "add sub mul truediv floordiv mod pow lshift rshift and_ or_ xor lt le gt ge eq ne matmul"
_INPLACE = "iadd isub imul itruediv ifloordiv imod ipow ilshift irshift iand ior ixor imatmul"


def _inplace(f: Any) -> Row:
    def row(x: Any, s: Any) -> Any:
        y = x.copy()
        return f(y, s)

    return row


def _both(name: str) -> Iterator[tuple[str, Row]]:
    f = divmod if name == "divmod" else getattr(operator, name)
    yield f"operator.{name}(x, s)", lambda x, s: f(x, s)
    yield f"operator.{name}(s, x)", lambda x, s: f(s, x)
    yield f"operator.{name}(x[0], s)", lambda x, s: f(x[0], s)


OPERATORS: dict[str, Row] = {
    **{text: row for name in f"{_NAMES} divmod".split() for text, row in _both(name)},
    **{f"operator.{name}(x, s)": _inplace(getattr(operator, name)) for name in _INPLACE.split()},
}


def plain(s: Any) -> bool:
    return isinstance(s, (int, float)) and not isinstance(s, (bool, np.generic))


def _assigned(change: Callable[[Any, Any], Any]) -> Row:
    def row(x: Any, s: Any) -> Any:
        y = x.copy()
        change(y, s)
        return y

    return row


ASSIGNMENTS: dict[str, Row] = {
    f"assignment({text})": _assigned(change)
    for text, change in {
        "x[...] = s": lambda x, s: operator.setitem(x, Ellipsis, s),
        "x[:] = s": lambda x, s: operator.setitem(x, slice(None), s),
        "x[0] = s": lambda x, s: operator.setitem(x, 0, s),
        "x[1:3] = s": lambda x, s: operator.setitem(x, slice(1, 3), s),
        "x[[0, 2]] = s": lambda x, s: operator.setitem(x, [0, 2], s),
        "x[x == 1] = s": lambda x, s: operator.setitem(x, x == 1, s),
        "x[:2] = [s, s]": lambda x, s: operator.setitem(x, slice(2), [s, s]),
        "x[[0, 2]] = [s, s]": lambda x, s: operator.setitem(x, [0, 2], [s, s]),
        "x.fill": lambda x, s: x.fill(s),
        "np.copyto(x, s, where)": lambda x, s: np.copyto(x, s, where=x == 1),
        "np.put(x, [0], s)": lambda x, s: np.put(x, [0], s),
        "np.place": lambda x, s: np.place(x, x == 1, [s, s]),
        "np.add.at(x, [0], s)": lambda x, s: np.add.at(x, [0], s),
        "np.fill_diagonal": lambda x, s: np.fill_diagonal(x.reshape(2, 4), s),
    }.items()
}
JOINS: dict[str, Row] = {
    "np.array([s])": lambda x, s: np.array([s]),
    "np.array([x[0], s])": lambda x, s: np.array([x[0], s]),
    "np.array(s, dtype)": lambda x, s: np.array(s, x.dtype),
    "np.array([s], dtype)": lambda x, s: np.array([s, s], x.dtype),
    "np.asarray(s, dtype)": lambda x, s: np.asarray(s, x.dtype),
    "np.full(2, s)": lambda x, s: np.full(2, s),
    "np.full(2, s, dtype)": lambda x, s: np.full(2, s, x.dtype),
    "np.full(2, [s, s], dtype)": lambda x, s: np.full(2, [s, s], x.dtype),
    "np.full_like(x, [s] * 8)": lambda x, s: np.full_like(x, [s] * 8),
    "np.stack": lambda x, s: np.stack([x[0], s]),
    "np.hstack": lambda x, s: np.hstack([x, s]),
    "np.hstack([x, [s]])": lambda x, s: np.hstack([x, [s]]),
    "np.vstack": lambda x, s: np.vstack([x[0], s]),
    "np.dstack": lambda x, s: np.dstack([x[0], s]),
    "np.column_stack": lambda x, s: np.column_stack([x[:1], s]),
    "np.block": lambda x, s: np.block([x, s]),
    "np.concatenate": lambda x, s: np.concatenate([x, [s]]),
    "np.concatenate(axis=None)": lambda x, s: np.concatenate([x, s], axis=None),
    "np.insert(x, 1, s)": lambda x, s: np.insert(x, 1, s),
    "np.r_[x, s]": lambda x, s: np.r_[x, s],
    "np.r_[s, x, s]": lambda x, s: np.r_[s, x, s],
    "np.r_[x, [s]]": lambda x, s: np.r_[x, [s]],
    "np.r_[s]": lambda x, s: np.r_[s, s],
    "np.c_[x, s]": lambda x, s: np.c_[x[:1], s],
    "np.pad": lambda x, s: np.pad(x, 1, constant_values=s),
    "np.pad(values of each side)": lambda x, s: np.pad(x, 1, constant_values=(s, 1)),
    "np.pad(end_values)": lambda x, s: np.pad(x, 2, "linear_ramp", end_values=s),
    "np.where(x == 1, s, x[0])": lambda x, s: np.where(x == 1, s, x[0]),
    "np.where(x == 1, x, s)": lambda x, s: np.where(x == 1, x, s),
    "np.where(x == 1, s, 0)": lambda x, s: np.where(x == 1, s, 0),
    "np.select": lambda x, s: np.select([x == 1], [x], s),
    "np.select([s])": lambda x, s: np.select([x == 1], [s], x),
    "np.choose": lambda x, s: np.choose(np.arange(8) % 2, [x, s]),
    "np.piecewise": lambda x, s: np.piecewise(x, [x == 1], [s, 0]),
    "np.isin(x, [s])": lambda x, s: np.isin(x, [s]),
    "np.einsum": lambda x, s: np.einsum("i,->i", x, s),
    "np.clip(s, 1)": lambda x, s: np.clip(x, s, 1),
    "np.clip(0, s)": lambda x, s: np.clip(x, 0, s),
    "np.clip(None, s)": lambda x, s: np.clip(x, None, s),
    "x.clip": lambda x, s: x.clip(s, s),
    "np.sum(where)": lambda x, s: x.sum(where=x == 1, initial=s),
    "np.max(initial)": lambda x, s: x.max(initial=s),
    "np.prod(initial)": lambda x, s: x.prod(initial=s),
    "np.diff(prepend)": lambda x, s: np.diff(x, prepend=s, append=s),
    "np.average(weights)": lambda x, s: np.average(x, weights=[s] * 8),
    "np.linspace(s, 9)": lambda x, s: np.linspace(s, 9, 4) + 0 * x[0],
    "np.linspace(x[1], s)": lambda x, s: np.linspace(x[1], s, 4),
    "np.linspace(s, 9, dtype)": lambda x, s: np.linspace(s, 9, 4, dtype=x.dtype),
    "np.logspace(s, 2)": lambda x, s: np.logspace(s, 2, 4) + 0 * x[0],
    "np.geomspace(s, 9)": lambda x, s: np.geomspace(s, 9, 4) + 0 * x[0],
    "np.arange(s)": lambda x, s: np.arange(s) if plain(s) and s in (0, 1, 2, 0.5, 255) else s,
    "np.arange(0, 4, s)": lambda x, s: np.arange(0, 4, s) if plain(s) and s in (1, 2, 0.5, 255, -1) else s,
    "np.quantile": lambda x, s: np.quantile(x, s),
    "np.percentile": lambda x, s: np.percentile(x, s),
    "np.polyval": lambda x, s: np.polyval([s, 1], x),
    "np.polyval(x, s)": lambda x, s: np.polyval(x, s),
    "np.convolve(x, [s, 1])": lambda x, s: np.convolve(x, [s, 1]),
    "np.correlate(x, [s, 1])": lambda x, s: np.correlate(x, [s, 1]),
    "np.gradient": lambda x, s: np.gradient(x, s),
    "np.trapezoid": lambda x, s: np.trapezoid(x, dx=s),
    "np.round": lambda x, s: np.round(s, 1),
    "np.meshgrid": lambda x, s: np.meshgrid(x[:2], s),
    "np.histogram(range)": lambda x, s: np.histogram(x[:5], bins=3, range=(0, s))[0],
    "np.nan_to_num": lambda x, s: np.nan_to_num(x, nan=s, posinf=s),
    "np.tile": lambda x, s: np.tile(s, 2),
    "np.repeat": lambda x, s: np.repeat(s, 2),
    "np.roll": lambda x, s: np.roll(x, s) if isinstance(s, int) else x,
    "np.linalg.norm(ord)": lambda x, s: np.linalg.norm(x, s),
}


# one case


def outcome(function: Callable[[], Any]) -> tuple[Any, Exception | None, bool]:
    """The result or the exception; and whether a float was cast to an integer type that cannot hold it, which NumPy
    leaves undefined: of such results the dtypes and shapes are compared, not the values."""
    with warnings.catch_warnings(record=True) as caught, np.errstate(all="warn"):
        warnings.simplefilter("always")
        try:
            result, error = function(), None
        except Exception as raised:
            result, error = None, raised
    return result, error, any("in cast" in str(w.message) and "invalid" in str(w.message) for w in caught)


def ours(case: Case, x: Any) -> Any:
    """What the trace gives, interpreted."""
    row = case.row
    if case.given:
        return _interpreted(kg.kernel_graph(lambda x, s: row(x, s), device="cpu"), x, case.scalar)
    scalar = case.scalar
    return _interpreted(kg.kernel_graph(lambda x: row(x, scalar), device="cpu"), x)


def _interpreted(decorated: Any, *args: Any) -> Any:
    captured, _, leaves = decorated._looked_at(args, {})
    try:
        numbers = captured.host(leaves)
    except Exception:  # as a call does it: its numbers do not fit this trace
        known = frozenset(i for i, leaf in enumerate(leaves) if type(leaf) in (int, float, complex))
        tree = decorated._leaves(args, {})[0]
        captured, _, _ = decorated._versions.trace(tree, leaves, known)
        numbers = captured.host(leaves)
    arrays = [np.asarray(leaves[i]) for i in captured.feeds]
    outputs = interpret(captured.graph, [*arrays, *captured.arrays], numbers)
    found = {"array": outputs.__getitem__, "number": numbers.__getitem__, "static": lambda v: v}
    return unflatten(captured.tree, [found[kind](value) for kind, value in captured.results])


def caught_by(error: Exception) -> type[Exception]:
    """The class that a program would name to catch it: the first one that everybody knows."""
    public = (np.linalg.LinAlgError, np.exceptions.AxisError)
    return next(k for k in type(error).__mro__ if k in public or k.__module__ == "builtins")  # type: ignore[return-value]


def judge(case: Case, compiled: bool = False) -> tuple[str, str]:
    """(`right`, `refused` or `wrong`, what was wrong)."""
    square = case.name.startswith("np.linalg.")
    x = array_for(case.dtype, square)
    expected, error, undefined = outcome(lambda: case.row(x.copy(), case.scalar))
    found, raised, _ = outcome(lambda: ours(case, x.copy()))
    if is_object(case.scalar) and (error is not None or raised is not None or _objects(expected)):
        return "right", ""
    if raised is not None and isinstance(error, AttributeError):
        return "right", ""
    if isinstance(raised, REFUSALS) and not isinstance(raised, kg.DTypeError):
        right = error is not None and isinstance(raised, caught_by(error))
        return ("right" if right else "refused"), f"{raised}"
    if raised is not None and error is not None:
        if isinstance(raised, caught_by(error)) or any(isinstance(raised, kind) for kind in other_errors(case, x)):
            return "right", ""
        return "wrong", f"NumPy raises {caught_by(error).__name__}: {error}; got {type(raised).__name__}: {raised}"
    if error is not None:
        if case.name in DIFFERENT:
            return "right", ""
        return "wrong", f"NumPy raises {type(error).__name__}: {error}; got {found!r}"
    if raised is not None:
        return "wrong", f"NumPy gives {expected!r}; got {type(raised).__name__}: {raised}"
    return compared(expected, found, undefined or case.name.startswith(UNDEFINED + SCALAR_PRODUCTS))


REFUSALS = (kg.UnsupportedError, kg.TraceError)

# What is not compared, all in this place.
# Rows whose values NumPy leaves undefined: memory as it was, a search in what is not sorted.
UNDEFINED = ("np.empty_like", "np.searchsorted(x, x", "np.searchsorted(x, s", "np.interp")
# BLAS gives 0 for NaN times a scalar 0, and what has been added to 0.0 for half of the dtypes.
SCALAR_PRODUCTS = ("np.dot(", "np.inner(")
# Rows for which NumPy raises and we do not: a documented one, and `a_min` without `a_max`, which `kg.clip` takes.
DIFFERENT = ("np.average(weights)", "np.clip(x, a_min=s)", "np.clip(x, a_max=s)")


def is_object(scalar: Any) -> bool:
    """A Python int beyond 64 bits, of which NumPy makes an array of Python objects: whatever we raise is right."""
    return type(scalar) is int and not -(2**63) <= scalar < 2**64


def _objects(result: Any) -> bool:
    leaves: list[Any] = []
    flatten(result, leaves)
    return any(getattr(getattr(leaf, "dtype", None), "kind", "") == "O" for leaf in leaves)


def other_errors(case: Case, x: Any) -> Iterator[type[Exception]]:
    """What NumPy raises for the same call with one thing mended: of two mistakes either may be named."""
    if case.name.startswith("np.linalg") and case.dtype == "f2":
        yield TypeError
    ones = np.ones(x.shape)
    s = case.scalar
    many = np.full(x.shape, s)
    mended = (x, 1), (ones, s), (ones.astype(x.dtype), s), (ones, 1), (ones > 1, ones[0]), (x, many), (ones, many)
    for array, scalar in mended:
        error = outcome(lambda a=array, s=scalar: case.row(a.copy(), s))[1]
        if error is not None:
            yield caught_by(error)


def compared(expected: Any, found: Any, undefined: bool) -> tuple[str, str]:
    wanted: list[Any] = []
    results: list[Any] = []
    flatten(expected, wanted)
    flatten(found, results)
    if len(wanted) != len(results):
        return "wrong", f"NumPy gives {len(wanted)} results; got {len(results)}"
    for a, b in zip(wanted, results, strict=True):
        p, q = np.asarray(a), np.asarray(b)
        if p.dtype.kind not in "biufc":
            continue
        if p.dtype != q.dtype or p.shape != q.shape:
            return "wrong", f"NumPy gives {p.dtype}{p.shape}; got {q.dtype}{q.shape}"
        if not undefined and not equal(p, q):
            return "wrong", f"NumPy gives {p.tolist()} {p.dtype}; got {q.tolist()}"
    return "right", ""


def equal(p: np.ndarray[Any, Any], q: np.ndarray[Any, Any], ulps: float = 8) -> bool:
    """Special values and the signs of zeros are the same, and others within some units in the last place (of the
    largest, since sums of terms of both signs cancel)."""
    if p.dtype.kind in "biu":
        return bool(np.array_equal(p, q))
    if p.dtype.kind == "c":
        if np.isnan(p).any() or not np.isfinite(p).all():
            return bool(np.array_equal(np.isnan(p), np.isnan(q)))
        scale = float(np.abs(p).max(initial=0)) * ulps * float(np.finfo(p.dtype).eps)
        return bool((np.abs(p.astype(complex) - q.astype(complex)) <= scale).all())
    if not np.array_equal(np.isnan(p), np.isnan(q)):
        return False
    with np.errstate(all="ignore"):
        same = (p == q) | np.isnan(p)
        zeros = (p == 0) & (q == 0)
        if (np.signbit(p) != np.signbit(q))[zeros].any():
            return False
        finite = np.abs(p[np.isfinite(p)]).astype(np.float64)
        scale = float(finite.max()) if finite.size else 0.0
        limit = ulps * float(np.finfo(p.dtype).eps) * scale + float(np.finfo(p.dtype).smallest_subnormal)
        near = np.abs(p.astype(np.float64) - q.astype(np.float64)) <= limit
    return bool((same | near).all())


# many cases


def cases(only: str = "") -> list[Case]:
    every = itertools.product(rows().items(), DTYPES, SCALARS, (False, True))
    chosen = (Case(name, row, dtype, s, given) for (name, row), dtype, s, given in every if only in name)
    return [c for c in chosen if not (c.given and isinstance(c.scalar, (bool, np.generic))) and not _endless(c)]


def _endless(case: Case) -> bool:
    """Whether NumPy would compute Python's integers with more digits than memory holds."""
    return type(case.scalar) is int and case.scalar == 2**64 and any(word in case.name for word in ("pow", "shift"))


def namespace() -> set[str]:
    """The functions in NumPy's namespaces."""
    modules = (np, "np."), (np.linalg, "np.linalg."), (np.fft, "np.fft.")
    names = ((module, prefix, name) for module, prefix in modules for name in dir(module) if name[0] != "_")
    functions = ((prefix + name, getattr(module, name)) for module, prefix, name in names)
    return {name for name, f in functions if callable(f) and not isinstance(f, type)}


def function_of(name: str) -> str:
    """The function that a row tests."""
    return re.sub(r"(np\.(?!linalg)\w+)\.(outer|reduce|at)$", r"\1", re.split(r"[(\[]", name)[0])


def kind_of(message: str) -> str:
    """The message without the line and the numbers in it."""
    return re.sub(r"\b[\d.]+(e[+-]?\d+)?", "#", re.sub(r"^\S+:\d+: ", "", message.split("\n")[0]))[:110]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=0, help="so many random cases; all by default")
    parser.add_argument("--only", default="", help="rows whose name has this in it")
    parser.add_argument("--shard", default="0/1", help="I/N: the cases I, I + N, I + 2 N, ... of the table")
    parser.add_argument("--shown", type=int, default=1000, help="how many wrong cases are printed")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    first, step = map(int, options.shard.split("/"))
    every = cases(options.only)[first::step]
    if options.count:
        every = random.Random(options.seed).sample(every, min(options.count, len(every)))
    verdicts: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    shown = 0
    for number, case in enumerate(every):
        verdict, why = judge(case)
        verdicts[verdict] += 1
        if verdict == "refused":
            refused[f"{function_of(case.name)}: {kind_of(why)}"] += 1
        if verdict == "wrong" and (shown := shown + 1) <= options.shown:
            way = "argument" if case.given else "known"
            print(f"wrong: {case.name} {case.dtype} s={case.scalar!r} ({way}): {why[:300]}")
        if sys.stderr.isatty() and number % 1000 == 0:
            print(f"\r{number} of {len(every)}", end="", file=sys.stderr)
    for text, times in refused.most_common():
        print(f"refused {times} times: {text}")
    covered, functions = {function_of(case.name) for case in every}, namespace()
    print(
        f"{len(covered & functions)} of {len(functions)} functions, {len(every)} cases: {verdicts['right']} right, "
        f"{verdicts['refused']} refused, {verdicts['wrong']} wrong"
    )
    return verdicts["wrong"] > 0


if __name__ == "__main__":
    sys.exit(main())
