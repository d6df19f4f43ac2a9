"""The rows of the table of `tests.scalars`: calls of every function of NumPy's with an array and a scalar.

Most are made from the functions' signatures; those of what takes lists, shapes or functions are written out."""

from __future__ import annotations

import inspect
import itertools
import operator
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

Row = Callable[[Any, Any], Any]

# What is no function of values, by name: printing, files, Python objects, types, dates, memory, settings.
OTHER = set(
    [
        "arange",
        "array2string",
        "array_repr",
        "array_str",
        "asmatrix",
        "base_repr",
        "binary_repr",
        "bmat",
        "broadcast",
        "broadcast_shapes",
        "busday_count",
        "busday_offset",
        "busdaycalendar",
        "can_cast",
        "char",
        "common_type",
        "core",
        "ctypeslib",
        "datetime64",
        "datetime_as_string",
        "datetime_data",
        "dtype",
        "einsum_path",
        "errstate",
        "finfo",
        "flatiter",
        "format_float_positional",
        "format_float_scientific",
        "from_dlpack",
        "frombuffer",
        "fromfile",
        "frompyfunc",
        "fromregex",
        "fromstring",
        "generic",
        "genfromtxt",
        "get_array_wrap",
        "get_include",
        "get_no_gufunc",
        "get_printoptions",
        "getbufsize",
        "geterr",
        "geterrcall",
        "iinfo",
        "info",
        "is_busday",
        "isdtype",
        "isfortran",
        "isnat",
        "issubdtype",
        "iterable",
        "lib",
        "load",
        "loadtxt",
        "matrix",
        "may_share_memory",
        "memmap",
        "min_scalar_type",
        "mintypecode",
        "ndarray",
        "ndenumerate",
        "ndindex",
        "nditer",
        "nested_iters",
        "poly1d",
        "printoptions",
        "promote_types",
        "recarray",
        "record",
        "result_type",
        "save",
        "savetxt",
        "savez",
        "savez_compressed",
        "set_printoptions",
        "setbufsize",
        "seterr",
        "seterrcall",
        "shares_memory",
        "show_config",
        "show_runtime",
        "test",
        "timedelta64",
        "typename",
        "vectorize",
    ]
)
# Parameters that are no values.
OPTIONS = set(
    [
        "M",
        "N",
        "UPLO",
        "arrays",
        "assume_unique",
        "axes",
        "axis",
        "axis1",
        "axis2",
        "axisa",
        "axisb",
        "axisc",
        "bias",
        "bins",
        "bitorder",
        "casting",
        "choicelist",
        "compute_uv",
        "condlist",
        "copy",
        "correction",
        "count",
        "cov",
        "ddof",
        "decimals",
        "deg",
        "density",
        "destination",
        "device",
        "dims",
        "dtype",
        "edge_order",
        "endpoint",
        "equal_nan",
        "extobj",
        "full",
        "full_matrices",
        "func",
        "func1d",
        "hermitian",
        "include_initial",
        "ind",
        "indexing",
        "indices",
        "indices_or_sections",
        "interpolation",
        "invert",
        "k",
        "keepdims",
        "key",
        "kind",
        "like",
        "m",
        "mask",
        "max_rows",
        "mean",
        "method",
        "minlength",
        "mode",
        "multi_index",
        "n",
        "nbins",
        "ndmax",
        "ndmin",
        "new_shape",
        "newshape",
        "norm",
        "num",
        "obj",
        "offset",
        "optimize",
        "ord",
        "order",
        "out",
        "overwrite_input",
        "pad_width",
        "repeats",
        "reps",
        "retstep",
        "return_counts",
        "return_index",
        "return_inverse",
        "returned",
        "rowvar",
        "s",
        "sections",
        "seq",
        "shape",
        "shift",
        "side",
        "signature",
        "size",
        "sorted",
        "sorter",
        "source",
        "sparse",
        "stable",
        "start",
        "stop",
        "strict",
        "subok",
        "trim",
        "tup",
        "unpack",
        "upper",
        "where",
        "window_shape",
        "writeable",
    ]
)
# Functions of which only the rows below are tested, since what others would do is undefined: a search in what is not
# sorted gives any place, and new memory holds anything.
WRITTEN_OUT = set(["empty", "empty_like", "interp", "searchsorted", "digitize"])
REQUIRED = {"where": 3, "concatenate": 1, "dot": 2, "vdot": 2, "inner": 2, "putmask": 3, "bincount": 1, "lexsort": 1,
            "copyto": 2, "array": 1, "asarray": 1}  # of those without a signature  # fmt: skip


def rows() -> dict[str, Row]:
    """All rows by name; what comes before the first bracket is the function."""
    found: dict[str, Row] = {**OPERATORS, **ASSIGNMENTS, **JOINS, **SHAPES, **SEARCHES}
    for module, prefix in ((np, "np."), (np.linalg, "np.linalg."), (np.fft, "np.fft.")):
        for name in sorted(dir(module)):
            function = getattr(module, name)
            if (
                name.startswith("_")
                or name in OTHER | WRITTEN_OUT
                or isinstance(function, type)
                or not callable(function)
            ):
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
    text if text.startswith("np.") else f"assignment({text})": _assigned(change)
    for text, change in {
        "x[...] = s": lambda x, s: operator.setitem(x, Ellipsis, s),
        "x[:] = s": lambda x, s: operator.setitem(x, slice(None), s),
        "x[0] = s": lambda x, s: operator.setitem(x, 0, s),
        "x[1:3] = s": lambda x, s: operator.setitem(x, slice(1, 3), s),
        "x[[0, 2]] = s": lambda x, s: operator.setitem(x, [0, 2], s),
        "x[x == 1] = s": lambda x, s: operator.setitem(x, x == 1, s),
        "x[:2] = [s, s]": lambda x, s: operator.setitem(x, slice(2), [s, s]),
        "x[:2] = [s, x[3]]": lambda x, s: operator.setitem(x, slice(2), [s, x[3]]),
        "x[[0, 2]] = [s, s]": lambda x, s: operator.setitem(x, [0, 2], [s, s]),
        "x[x == 1] = [s]": lambda x, s: operator.setitem(x, x == 1, [s]),
        "x.flat[:] = s": lambda x, s: operator.setitem(x.flat, slice(None), s),
        "x.flat[0] = s": lambda x, s: operator.setitem(x.flat, 0, s),
        "x.flat = s": lambda x, s: setattr(x, "flat", s),
        "x.real = s": lambda x, s: setattr(x, "real", s),
        "x.fill": lambda x, s: x.fill(s),
        "np.copyto(x, s, where)": lambda x, s: np.copyto(x, s, where=x == 1),
        "np.copyto(x, s, unsafe)": lambda x, s: np.copyto(x, s, casting="unsafe"),
        "np.copyto(x, [s])": lambda x, s: np.copyto(x, [s]),
        "np.put(x, [0], s)": lambda x, s: np.put(x, [0], s),
        "np.put(x, [0], [s])": lambda x, s: np.put(x, [0], [s]),
        "np.put_along_axis(x, [0], s)": lambda x, s: np.put_along_axis(x, np.array([0]), s, 0),
        "np.place(x, m, s)": lambda x, s: np.place(x, x == 1, s),
        "np.place(x, m, [s, s])": lambda x, s: np.place(x, x == 1, [s, s]),
        "np.putmask(x, m, s)": lambda x, s: np.putmask(x, x == 1, s),
        "np.putmask(x, m, [s, s])": lambda x, s: np.putmask(x, x == 1, [s, s]),
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
    "np.clip(a number)": lambda x, s: np.clip(s, x, x) + 1,
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
    "np.round(x)": lambda x, s: (np.round(x, 1), s) if x.dtype.kind in "fc" else s,
    "np.meshgrid": lambda x, s: np.meshgrid(x[:2], s),
    "np.histogram(range)": lambda x, s: np.histogram(x[:5], bins=3, range=(0, s))[0],
    "np.nan_to_num": lambda x, s: np.nan_to_num(x, nan=s, posinf=s),
    "np.tile": lambda x, s: np.tile(s, 2),
    "np.repeat": lambda x, s: np.repeat(s, 2),
    "np.roll": lambda x, s: np.roll(x, s) if isinstance(s, int) else x,
    "np.linalg.norm(ord)": lambda x, s: np.linalg.norm(x, s),
}


def small(s: Any) -> Any:
    """A scalar as a length or a count: no large integers."""
    return s if not isinstance(s, (int, np.integer)) or -1 <= s <= 2 else 3


SHAPES: dict[str, Row] = {
    "np.apply_along_axis": lambda x, s: np.apply_along_axis(lambda row: row + s, 0, x),
    "np.apply_over_axes": lambda x, s: np.apply_over_axes(np.sum, x.reshape(2, 4), [small(s)]),
    "np.take(axis=s)": lambda x, s: np.take(x.reshape(2, 4), [0], axis=small(s)),
    "np.compress(axis=s)": lambda x, s: np.compress([True], x.reshape(2, 4), axis=small(s)),
    "np.trapezoid(axis=s)": lambda x, s: np.trapezoid(x.reshape(2, 4), axis=small(s)),
    "np.squeeze(axis=s)": lambda x, s: np.squeeze(x.reshape(1, 1, 8), axis=small(s)),
    "np.rot90(axes=s)": lambda x, s: np.rot90(x.reshape(2, 4), axes=(0, small(s) if isinstance(s, int) else 1)),
    "np.roll(axis=s)": lambda x, s: np.roll(x.reshape(2, 4), 1, axis=small(s)),
    "np.array_split(x, s)": lambda x, s: np.array_split(x, small(s)),
    "np.array_split(x, [s])": lambda x, s: np.array_split(x, [small(s)]),
    "np.split(x, s)": lambda x, s: np.split(x, small(s)),
    "np.split(x, [1, s])": lambda x, s: np.split(x, [1, small(s)]),
    "np.hsplit": lambda x, s: np.hsplit(x.reshape(2, 2, 2), small(s)),
    "np.vsplit": lambda x, s: np.vsplit(x.reshape(2, 2, 2), small(s)),
    "np.dsplit": lambda x, s: np.dsplit(x.reshape(2, 2, 2), small(s)),
    "np.asarray_chkfinite": lambda x, s: np.asarray_chkfinite([s, s]),
    "np.astype": lambda x, s: np.astype(np.asarray(s), x.dtype),
    "np.atleast_1d": lambda x, s: np.atleast_1d(x, s),
    "np.atleast_2d": lambda x, s: np.atleast_2d(x, s),
    "np.atleast_3d": lambda x, s: np.atleast_3d(x, s),
    "np.broadcast_arrays": lambda x, s: np.broadcast_arrays(x, s),
    "np.broadcast_to(s, 3)": lambda x, s: np.broadcast_to(s, 3),
    "np.broadcast_to(x, s)": lambda x, s: np.broadcast_to(x, (small(s), 8)),
    "np.concat": lambda x, s: np.concat([x, [s]]),
    "np.row_stack": lambda x, s: np.row_stack([x[:1], [s]]),
    "np.cov(ddof)": lambda x, s: np.cov(x[:4], ddof=s),
    "np.cov([x, s])": lambda x, s: np.cov(np.stack([x[:3], x[1] * s + x[2:5]])),
    "np.delete": lambda x, s: np.delete(x, s),
    "np.diag_indices": lambda x, s: np.diag_indices(small(s)),
    "np.diagflat([s])": lambda x, s: np.diagflat([s, s]),
    "np.empty(s)": lambda x, s: np.empty(small(s)).shape,
    "np.empty_like(s)": lambda x, s: np.empty_like(s).shape,
    "np.zeros(s)": lambda x, s: np.zeros(small(s), x.dtype),
    "np.ones(s)": lambda x, s: np.ones((2, small(s)), x.dtype),
    "np.eye(3, s)": lambda x, s: np.eye(3, small(s), dtype=x.dtype),
    "np.eye(k=s)": lambda x, s: np.eye(3, k=small(s), dtype=x.dtype),
    "np.identity": lambda x, s: np.identity(small(s), x.dtype),
    "np.tri(s)": lambda x, s: np.tri(small(s), dtype=x.dtype),
    "np.tri(3, k=s)": lambda x, s: np.tri(3, k=s),
    "np.tril": lambda x, s: np.tril(x.reshape(2, 4), small(s)),
    "np.triu": lambda x, s: np.triu(x.reshape(2, 4), small(s)),
    "np.tril_indices": lambda x, s: np.tril_indices(3, small(s)),
    "np.triu_indices": lambda x, s: np.triu_indices(3, small(s)),
    "np.mask_indices": lambda x, s: np.mask_indices(3, np.triu, small(s)),
    "np.expand_dims(s, 0)": lambda x, s: np.expand_dims(s, 0),
    "np.expand_dims(x, s)": lambda x, s: np.expand_dims(x, small(s)),
    "np.fft.fftfreq": lambda x, s: np.fft.fftfreq(4, s),
    "np.fft.fftfreq(s)": lambda x, s: np.fft.fftfreq(small(s)),
    "np.fft.rfftfreq": lambda x, s: np.fft.rfftfreq(4, s),
    "np.flip(s)": lambda x, s: np.flip(s),
    "np.flip(x, s)": lambda x, s: np.flip(x, small(s)),
    "np.fliplr": lambda x, s: np.fliplr(x.reshape(2, 4) * s),
    "np.flipud": lambda x, s: np.flipud([s, s]),
    "np.fromfunction": lambda x, s: np.fromfunction(lambda i: i * s, (3,)),
    "np.fromiter": lambda x, s: np.fromiter([s, s], x.dtype),
    "np.hamming": lambda x, s: np.hamming(small(s)),
    "np.hanning": lambda x, s: np.hanning(small(s)),
    "np.blackman": lambda x, s: np.blackman(small(s)),
    "np.bartlett": lambda x, s: np.bartlett(small(s)),
    "np.kaiser(s, 1)": lambda x, s: np.kaiser(small(s), 1),
    "np.kaiser(4, s)": lambda x, s: np.kaiser(4, s),
    "np.isscalar": lambda x, s: (np.isscalar(s), np.isscalar(x), np.isscalar(x[0])),
    "np.ix_": lambda x, s: np.ix_([0, 1], [small(s)]),
    "np.linalg.matrix_power": lambda x, s: np.linalg.matrix_power(x, small(s)),
    "np.linalg.multi_dot": lambda x, s: np.linalg.multi_dot([x, x * s, x]),
    "np.moveaxis": lambda x, s: np.moveaxis(x.reshape(2, 2, 2), 0, small(s)),
    "np.rollaxis": lambda x, s: np.rollaxis(x.reshape(2, 2, 2), small(s)),
    "np.swapaxes": lambda x, s: np.swapaxes(x.reshape(2, 2, 2), 0, small(s)),
    "np.rot90": lambda x, s: np.rot90(x.reshape(2, 4), small(s)),
    "np.require(s)": lambda x, s: np.require(s, x.dtype),
    "np.reshape(s, 1)": lambda x, s: np.reshape(s, 1),
    "np.reshape(x, s)": lambda x, s: np.reshape(x, (small(s), -1)),
    "np.resize(s, 3)": lambda x, s: np.resize(s, 3),
    "np.resize(x, s)": lambda x, s: np.resize(x, small(s)),
    "np.take(x, s)": lambda x, s: np.take(x, s),
    "np.take(x, [0, s])": lambda x, s: np.take(x, [0, s]),
    "np.take(x, s, clip)": lambda x, s: np.take(x, s, mode="clip"),
    "np.take(x, s, wrap)": lambda x, s: np.take(x, small(s) if isinstance(s, int) else 9, mode="wrap"),
    "np.take_along_axis": lambda x, s: np.take_along_axis(x, np.asarray([small(s)]), 0),
    "np.ravel_multi_index": lambda x, s: np.ravel_multi_index(([0, 1], [1, s]), (2, 4)),
    "np.unravel_index": lambda x, s: np.unravel_index(s, (2, 4)),
}
SEARCHES: dict[str, Row] = {
    "np.searchsorted(sorted, s)": lambda x, s: np.searchsorted(np.sort(x), s),
    "np.searchsorted(sorted, [s], right)": lambda x, s: np.searchsorted(np.sort(x), [s, s], "right"),
    "np.searchsorted(s, x)": lambda x, s: np.searchsorted([s], x),
    "np.digitize(x, [s])": lambda x, s: np.digitize(x, [s]),
    "np.digitize(s, bins)": lambda x, s: np.digitize(s, [0, 1, 2]),
    "np.interp(s, xp, x)": lambda x, s: np.interp(s, np.arange(8), x),
    "np.interp(x, xp, [s])": lambda x, s: np.interp(x, [0, 2], [s, s]),
    "np.interp(left, right)": lambda x, s: np.interp(x, np.arange(1, 4), np.arange(3), left=s, right=s),
    "np.interp(period)": lambda x, s: np.interp(x, [0, 1, 2], [3, 4, 5], period=s),
    "np.polyfit": lambda x, s: np.polyfit([0, 1, 2, 4], [s, 1, 3, 5], 1),
}
