"""One row for every function of the Array API standard and of NumPy's common rest: traced, in NumPy's spelling and in
`kg`'s, and done at once on `kg.Array`s, each gives what NumPy gives."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph.dsl.core.pytree import flatten, unflatten
from tests.dsl.tracing import assert_same, interpreted

from .test_namespace import FFT, LINALG, STANDARD

RNG = np.random.default_rng(0)
DATA: dict[str, np.ndarray[Any, Any]] = {
    "a": RNG.normal(size=(3, 4)),
    "b": RNG.normal(size=(3, 4)),
    "p": RNG.uniform(0.1, 0.9, (3, 4)),  # between 0 and 1
    "n": np.array([[1.0, np.nan, 2.0, 0.5], [np.nan, 3.0, -1.0, 2.0], [4.0, 1.0, 1.5, -2.0]]),  # with NaN
    "s": np.eye(3) * 4 + RNG.normal(size=(3, 3)) * 0.1,  # a matrix without trouble
    "h": np.array([[4.0, 1.0, 0.5], [1.0, 5.0, 0.25], [0.5, 0.25, 6.0]]),  # symmetric and positive
    "v": np.array([3.0, 1.0, 2.0, 5.0, 4.0]),
    "w": np.array([0.5, 1.5, 2.5, 3.5, 4.5]),  # ascending
    "u": RNG.normal(size=3),
    "i": np.array([[4, 1, 3], [2, 6, 5]]),
    "j": np.array([2, 0, 1]),
    "k": np.array([0, 1, 1, 3, 2]),
    "t": np.array([[True, False, True, True], [False, False, True, False], [True, True, False, False]]),
    "z": RNG.normal(size=8) + 1j * RNG.normal(size=8),
    "c": RNG.normal(size=(2, 3)) + 1j * RNG.normal(size=(2, 3)),
    "d": RNG.normal(size=(2, 3, 4)),
}


def added(xp: Any, v: Any, k: Any) -> Any:
    v = v.copy()
    xp.add.at(v, k, 1.0)
    return v


def subtracted(xp: Any, v: Any, k: Any) -> Any:
    v = v.copy()
    xp.subtract.at(v, k, v)
    return v


def put(xp: Any, v: Any) -> Any:
    v = v.copy()
    xp.put(v, [0, 3], [9.0, 8.0])
    return v


def copied_to(xp: Any, a: Any, p: Any) -> Any:
    a = a.copy()
    xp.copyto(a, p, where=a > 0)
    return a


def filled(xp: Any, s: Any) -> Any:
    s = s.copy()
    xp.fill_diagonal(s, 7.0)
    return s


UNARY = (
    "abs acos asin atan asinh atanh cos cosh exp expm1 log log1p log2 log10 sin sinh sqrt square tan tanh ceil floor"
)
UNARY += " trunc round sign signbit negative positive reciprocal isfinite isinf isnan conj real logical_not"
BINARY = (
    "add subtract multiply divide pow atan2 copysign hypot logaddexp maximum minimum nextafter remainder floor_divide"
)
BINARY += " equal not_equal less less_equal greater greater_equal logical_and logical_or logical_xor"
BITS = "bitwise_and bitwise_or bitwise_xor"
REDUCTIONS = "sum mean std var max min prod all any argmax argmin count_nonzero"


def named(names: str, row: Callable[[str], Any]) -> dict[str, Any]:
    return {name: row(name) for name in names.split()}


# the Array API standard
ARRAY_API: dict[str, Callable[..., Any]] = {
    **named(UNARY, lambda f: lambda xp, p: getattr(xp, f)(p)),
    **named(BINARY, lambda f: lambda xp, p, b: (getattr(xp, f)(p, b), getattr(xp, f)(p, 2))),
    **named(BITS, lambda f: lambda xp, i: (getattr(xp, f)(i, i[::-1]), getattr(xp, f)(i, 3))),
    **named(REDUCTIONS, lambda f: lambda xp, a: (getattr(xp, f)(a), getattr(xp, f)(a, axis=1, keepdims=True))),
    "acosh": lambda xp, i: xp.acosh(i),
    "imag": lambda xp, c: xp.imag(c),
    "bitwise_invert": lambda xp, i: xp.bitwise_invert(i),
    "bitwise_left_shift": lambda xp, i: xp.bitwise_left_shift(i, 2),
    "bitwise_right_shift": lambda xp, i: xp.bitwise_right_shift(i, 1),
    "clip": lambda xp, a: xp.clip(a, -0.5, 0.5),
    "astype": lambda xp, a: xp.astype(a, xp.float32),
    "can_cast": lambda xp, a: xp.can_cast(xp.int8, a.dtype),
    "finfo": lambda xp, a: float(xp.finfo(a.dtype).eps),
    "iinfo": lambda xp, i: int(xp.iinfo(i.dtype).max),
    "isdtype": lambda xp, a: xp.isdtype(a.dtype, "real floating"),
    "result_type": lambda xp, a, i: str(xp.result_type(a, i)),
    "arange": lambda xp, a: xp.arange(2, 9, 3) + a[0, 0],
    "asarray": lambda xp, a: xp.asarray(a),
    "empty": lambda xp, a: xp.empty((2, 3)) * 0 * a[0, 0] == 0.5,
    "empty_like": lambda xp, a: xp.empty_like(a) * 0 == 0.5,
    "eye": lambda xp, a: xp.eye(3, 4, k=1) + a,
    "full": lambda xp, a: xp.full((2, 2), 3.5) + a[0, 0],
    "full_like": lambda xp, a: xp.full_like(a, 2),
    "linspace": lambda xp, a: xp.linspace(0, 1, 5) + a[0, 0],
    "meshgrid": lambda xp, v, u: xp.meshgrid(v, u, indexing="ij"),
    "ones": lambda xp, a: xp.ones((3, 4)) + a,
    "ones_like": lambda xp, a: xp.ones_like(a, dtype=xp.int32),
    "tril": lambda xp, a: xp.tril(a, k=1),
    "triu": lambda xp, a: xp.triu(a, k=-1),
    "zeros": lambda xp, a: xp.zeros(4) + a,
    "zeros_like": lambda xp, a: xp.zeros_like(a),
    "take": lambda xp, a, j: xp.take(a, j, axis=1),
    "take_along_axis": lambda xp, a: xp.take_along_axis(a, xp.argsort(a, axis=1), axis=1),
    "matmul": lambda xp, s, a: xp.matmul(s, a),
    "matrix_transpose": lambda xp, d: xp.matrix_transpose(d),
    "tensordot": lambda xp, d, a: (xp.tensordot(d, a, axes=2), xp.tensordot(d, a, axes=((1,), (0,)))),
    "vecdot": lambda xp, a, b: xp.vecdot(a, b),
    "broadcast_arrays": lambda xp, s, u: tuple(xp.broadcast_arrays(s, u)),
    "broadcast_to": lambda xp, u: xp.broadcast_to(u, (2, 3)),
    "concat": lambda xp, a, b: (xp.concat([a, b], axis=1), xp.concat((a, b), axis=None)),
    "expand_dims": lambda xp, a: xp.expand_dims(a, axis=1),
    "flip": lambda xp, a: (xp.flip(a), xp.flip(a, axis=1)),
    "moveaxis": lambda xp, d: xp.moveaxis(d, 0, -1),
    "permute_dims": lambda xp, d: xp.permute_dims(d, (2, 0, 1)),
    "repeat": lambda xp, a: xp.repeat(a, 2, axis=0),
    "reshape": lambda xp, a: xp.reshape(a, (2, -1)),
    "roll": lambda xp, a: (xp.roll(a, 1), xp.roll(a, (1, -2), axis=(0, 1))),
    "squeeze": lambda xp, a: xp.squeeze(a[:, :1], axis=1),
    "stack": lambda xp, a, b: xp.stack([a, b], axis=1),
    "tile": lambda xp, u: xp.tile(u, (2, 2)),
    "unstack": lambda xp, d: xp.unstack(d, axis=1),
    "searchsorted": lambda xp, w, v: xp.searchsorted(w, v),
    "where": lambda xp, t, a, b: xp.where(t, a, b),
    "argsort": lambda xp, a: xp.argsort(a, axis=0, stable=True),
    "sort": lambda xp, a: xp.sort(a, axis=1),
    "cumulative_sum": lambda xp, v: (xp.cumulative_sum(v), xp.cumulative_sum(v, include_initial=True)),
    "cumulative_prod": lambda xp, v: xp.cumulative_prod(v),
    "diff": lambda xp, a: xp.diff(a, n=2, axis=1),
    "nonzero": lambda xp, t: xp.nonzero(t),
    "unique_all": lambda xp, k: tuple(xp.unique_all(k)),
    "unique_counts": lambda xp, k: tuple(xp.unique_counts(k)),
    "unique_inverse": lambda xp, k: tuple(xp.unique_inverse(k)),
    "unique_values": lambda xp, k: xp.unique(k) if xp is np else xp.unique_values(k),  # NumPy's are in no order
}
LINEAR: dict[str, Callable[..., Any]] = {
    "cholesky": lambda xp, h: (xp.linalg.cholesky(h), xp.linalg.cholesky(h, upper=True)),
    "cross": lambda xp, a, u: xp.linalg.cross(a[:, :3], u),
    "det": lambda xp, s: xp.linalg.det(s),
    "diagonal": lambda xp, a: xp.linalg.diagonal(a, offset=1),
    "eigh": lambda xp, h: tuple(abs(x) for x in xp.linalg.eigh(h)),
    "eigvalsh": lambda xp, h: xp.linalg.eigvalsh(h),
    "inv": lambda xp, s: xp.linalg.inv(s),
    "matmul": lambda xp, s, a: xp.linalg.matmul(s, a),
    "matrix_norm": lambda xp, a: (xp.linalg.matrix_norm(a), xp.linalg.matrix_norm(a, ord=1)),
    "matrix_power": lambda xp, s: xp.linalg.matrix_power(s, 3),
    "matrix_rank": lambda xp, a: xp.linalg.matrix_rank(a),
    "matrix_transpose": lambda xp, a: xp.linalg.matrix_transpose(a),
    "outer": lambda xp, u, v: xp.linalg.outer(u, v),
    "pinv": lambda xp, a: xp.linalg.pinv(a),
    "qr": lambda xp, a: tuple(abs(x) for x in xp.linalg.qr(a)),
    "slogdet": lambda xp, s: tuple(xp.linalg.slogdet(s)),
    "solve": lambda xp, s, a, u: (xp.linalg.solve(s, a), xp.linalg.solve(s, u)),
    "svd": lambda xp, a: tuple(abs(x) for x in xp.linalg.svd(a, full_matrices=False)),
    "svdvals": lambda xp, a: xp.linalg.svdvals(a),
    "tensordot": lambda xp, d, a: xp.linalg.tensordot(d, a, axes=2),
    "trace": lambda xp, d: xp.linalg.trace(d),
    "vecdot": lambda xp, a, b: xp.linalg.vecdot(a, b),
    "vector_norm": lambda xp, a: (xp.linalg.vector_norm(a), xp.linalg.vector_norm(a, axis=1, ord=1)),
}
FOURIER: dict[str, Callable[..., Any]] = {
    **named("fft ifft hfft", lambda f: lambda xp, z: getattr(xp.fft, f)(z)),
    **named("rfft ihfft", lambda f: lambda xp, a: getattr(xp.fft, f)(a)),
    **named("fftn ifftn", lambda f: lambda xp, c: getattr(xp.fft, f)(c)),
    "irfft": lambda xp, z: xp.fft.irfft(z),
    "rfftn": lambda xp, a: xp.fft.rfftn(a),
    "irfftn": lambda xp, c: xp.fft.irfftn(c),
    "fftfreq": lambda xp, v: xp.fft.fftfreq(5, d=0.5) + v,
    "rfftfreq": lambda xp, u: xp.fft.rfftfreq(5, d=0.5) + u,
    "fftshift": lambda xp, a: xp.fft.fftshift(a, axes=1),
    "ifftshift": lambda xp, a: xp.fft.ifftshift(a),
}
# the common rest of NumPy
REST: dict[str, Callable[..., Any]] = {
    "einsum": lambda xp, s, a: (xp.einsum("ij,jk->ik", s, a), xp.einsum("ii", s), xp.einsum("ij->j", a)),
    "outer": lambda xp, u, v: xp.outer(u, v),
    "inner": lambda xp, a, b: xp.inner(a, b),
    "dot": lambda xp, s, a: xp.dot(s, a),
    "vdot": lambda xp, u, j: xp.vdot(u, j),
    "cross": lambda xp, s, u: xp.cross(s, u),
    "kron": lambda xp, s, a: xp.kron(s, a),
    "trace": lambda xp, a: xp.trace(a, offset=1),
    "diag": lambda xp, u, s: (xp.diag(u, 1), xp.diag(s)),
    "diagonal": lambda xp, a: xp.diagonal(a),
    "triu and tril": lambda xp, a: xp.triu(a, 1) + xp.tril(a, -1),
    "gradient": lambda xp, a, w: (*xp.gradient(a), xp.gradient(w, 0.5)),
    "ediff1d": lambda xp, v: xp.ediff1d(v),
    "convolve": lambda xp, v, u: (xp.convolve(v, u), xp.convolve(v, u, "same"), xp.convolve(v, u, "valid")),
    "correlate": lambda xp, v, u: xp.correlate(v, u, "full"),
    "interp": lambda xp, p, w, v: xp.interp(p, w, v),
    "pad": lambda xp, a: tuple(xp.pad(a, 2, mode=m) for m in ("constant", "edge", "reflect", "wrap", "symmetric")),
    "rot90": lambda xp, a: (xp.rot90(a), xp.rot90(a, 2)),
    "fliplr": lambda xp, a: xp.fliplr(a),
    "flipud": lambda xp, a: xp.flipud(a),
    "swapaxes": lambda xp, d: xp.swapaxes(d, 0, 2),
    "rollaxis": lambda xp, d: xp.rollaxis(d, 2),
    "ravel": lambda xp, a: xp.ravel(a),
    "hstack": lambda xp, a, b: xp.hstack([a, b]),
    "vstack": lambda xp, a, b: xp.vstack([a, b]),
    "dstack": lambda xp, a, b: xp.dstack([a, b]),
    "column_stack": lambda xp, u, j: xp.column_stack([u, j]),
    "split": lambda xp, a: (*xp.split(a, 2, axis=1), *xp.split(a, [1])),
    "array_split": lambda xp, v: tuple(xp.array_split(v, 2)),
    "hsplit": lambda xp, a: tuple(xp.hsplit(a, 2)),
    "append": lambda xp, v, u: xp.append(v, u),
    "insert": lambda xp, v: xp.insert(v, 2, 9.0),
    "delete": lambda xp, v: xp.delete(v, [0, 2]),
    "block": lambda xp, s, a: xp.block([[s, a]]),
    "logspace": lambda xp, v: xp.logspace(0, 2, 5) + v,
    "geomspace": lambda xp, v: xp.geomspace(1, 16, 5) + v,
    "identity": lambda xp, s: xp.identity(3) + s,
    "tri": lambda xp, s: xp.tri(3) + s,
    "vander": lambda xp, u: xp.vander(u, 3),
    "indices": lambda xp, a: xp.indices((3, 4)) + a,
    "histogram": lambda xp, a: xp.histogram(a, bins=4, range=(-2, 2)),
    "bincount": lambda xp, k: xp.bincount(k, minlength=5),
    "digitize": lambda xp, v, w: xp.digitize(v, w),
    "percentile": lambda xp, a: (xp.percentile(a, 30), xp.percentile(a, [10, 90], axis=1)),
    "quantile": lambda xp, a: xp.quantile(a, 0.7, axis=0),
    "median": lambda xp, a: (xp.median(a), xp.median(a, axis=1)),
    **named(
        "nansum nanmean nanstd nanvar nanmax nanmin nanprod nanmedian nanargmax nanargmin nancumsum nancumprod",
        lambda f: lambda xp, n: (getattr(xp, f)(n), getattr(xp, f)(n, axis=0)),
    ),
    "nanpercentile": lambda xp, n: xp.nanpercentile(n, 40, axis=1),
    "nanquantile": lambda xp, n: xp.nanquantile(n, 0.4),
    "nan_to_num": lambda xp, n: xp.nan_to_num(n, nan=-1.0),
    "average": lambda xp, a, p: (xp.average(a), xp.average(a, axis=1, weights=p)),
    "cov": lambda xp, a: (xp.cov(a), xp.cov(a, rowvar=False)),
    "corrcoef": lambda xp, a: xp.corrcoef(a),
    "ptp": lambda xp, a: xp.ptp(a, axis=1),
    "cumsum": lambda xp, a: (xp.cumsum(a), xp.cumsum(a, axis=1)),
    "cumprod": lambda xp, a: xp.cumprod(a, axis=0),
    "trapezoid": lambda xp, v, w: xp.trapezoid(v, w),
    "select": lambda xp, a: xp.select([a < -1, a < 0], [a, a * 2], 7.0),
    "piecewise": lambda xp, v: xp.piecewise(v, [v < 2, v >= 4], [lambda x: -x, lambda x: x * 10, 0.0]),
    "choose": lambda xp, j, u: xp.choose(j, [u, u * 2, u * 3]),
    "isclose": lambda xp, a, b: xp.isclose(a, b),
    "allclose": lambda xp, a: xp.allclose(a, a + 1e-12),
    "array_equal": lambda xp, a, b: xp.array_equal(a, b),
    "isin": lambda xp, i: xp.isin(i, [1, 2, 3]),
    "lexsort": lambda xp, u, j: xp.lexsort((u, j)),
    "partition": lambda xp, v: xp.sort(xp.partition(v, 2)[:3]),
    "argpartition": lambda xp, v: xp.sort(xp.argpartition(v, 2)[:3]),
    "polyval": lambda xp, u, v: xp.polyval(u, v),
    "polyfit": lambda xp, w, v: xp.polyfit(w, v, 2),
    "unwrap": lambda xp, v: xp.unwrap(v * 2),
    "angle": lambda xp, z: xp.angle(z),
    "sinc": lambda xp, v: xp.sinc(v),
    "i0": lambda xp, v: xp.i0(v),
    "heaviside": lambda xp, a: xp.heaviside(a, 0.5),
    "fmax": lambda xp, n, a: (xp.fmax(n, a), xp.fmin(n, a)),
    "fmod": lambda xp, a: xp.fmod(a, 0.3),
    "modf": lambda xp, a: xp.modf(a),
    "frexp": lambda xp, a: xp.frexp(a),
    "ldexp": lambda xp, a: xp.ldexp(a, 3),
    "divmod": lambda xp, i: xp.divmod(i, 4),
    "gcd": lambda xp, i: (xp.gcd(i, 6), xp.lcm(i, 6)),
    "cbrt": lambda xp, a: xp.cbrt(a),
    "exp2": lambda xp, a: xp.exp2(a),
    "deg2rad": lambda xp, a: (xp.deg2rad(a), xp.rad2deg(a)),
    "float_power": lambda xp, i: xp.float_power(i, 0.5),
    "around": lambda xp, a: xp.around(a, 1),
    "rint": lambda xp, a: (xp.rint(a), xp.fix(a)),
    "hanning": lambda xp, v: (xp.hanning(5) + v, xp.hamming(5) + v, xp.blackman(5) + v, xp.kaiser(5, 3.0) + v),
    "lstsq": lambda xp, s, u: xp.linalg.lstsq(s, u)[0],
    "norm": lambda xp, a: (xp.linalg.norm(a), xp.linalg.norm(a, axis=1), xp.linalg.norm(a, "fro")),
    "cond": lambda xp, s: xp.linalg.cond(s),
    "multi_dot": lambda xp, s, a, b: xp.linalg.multi_dot([s, a, b.T]),
    "fft2": lambda xp, a: (xp.fft.fft2(a), xp.fft.ifft2(a)),
    "rfft2": lambda xp, a: xp.fft.irfft2(xp.fft.rfft2(a)),
    "atleast_2d": lambda xp, u: (xp.atleast_1d(u), xp.atleast_2d(u), xp.atleast_3d(u)),
    "apply_along_axis": lambda xp, a: xp.apply_along_axis(lambda row: row * row.sum(), 1, a),
    "compress": lambda xp, a: xp.compress([True, False, True], a, axis=0),
    "unravel_index": lambda xp, j: xp.unravel_index(j, (2, 3)),
    "ravel_multi_index": lambda xp, j: xp.ravel_multi_index((j, j), (3, 3)),
    "fill_diagonal": filled,
    "put": put,
    "copyto": copied_to,
}
# methods of ufuncs, which `kg`'s functions do not have
METHODS: dict[str, Callable[..., Any]] = {
    "add.outer": lambda xp, u, v: (xp.add.outer(u, v), xp.multiply.outer(v, u)),
    "add.reduce": lambda xp, a: (xp.add.reduce(a), xp.maximum.reduce(a, axis=1), xp.logical_or.reduce(a > 1)),
    "add.accumulate": lambda xp, a: (xp.add.accumulate(a), xp.maximum.accumulate(a, axis=1)),
    "add.reduceat": lambda xp, v: xp.add.reduceat(v, [0, 2, 4]),
    "add.at": added,
    "subtract.at": subtracted,
    "sliding_window_view": lambda xp, v: xp.lib.stride_tricks.sliding_window_view(v, 3).sum(-1),
    "mgrid": lambda xp, v: xp.mgrid[0:3, 0:5] + v,
    "r_ and c_": lambda xp, u, j: (xp.r_[u, 1.0, j], xp.c_[u, j]),
}
ROWS = {
    **{("array api", name): row for name, row in ARRAY_API.items()},
    **{("linalg", name): row for name, row in LINEAR.items()},
    **{("fft", name): row for name, row in FOURIER.items()},
    **{("rest", name): row for name, row in REST.items()},
    **{("methods", name): row for name, row in METHODS.items()},
}
BY_DATA = {"nonzero", "unique_all", "unique_counts", "unique_inverse", "unique_values"}  # whose shape values decide
CASES = [pytest.param(*key, id="-".join(key)) for key in ROWS]


def prepared(group: str, name: str) -> tuple[Callable[..., Any], list[np.ndarray[Any, Any]], Any]:
    """The row, its arguments, and what NumPy makes of them."""
    row = ROWS[group, name]
    arguments = [DATA[parameter] for parameter in [*inspect.signature(row).parameters][1:]]
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return row, arguments, row(np, *(a.copy() for a in arguments))


def same(found: Any, expected: Any) -> None:
    assert_same(settled(found), settled(expected), 64)


def settled(value: Any) -> Any:
    """With NumPy arrays for `kg.Array`s, scalars and truth values, and tuples for lists and named tuples."""
    if isinstance(value, (tuple, list)):
        return tuple(map(settled, value))
    return np.asarray(value) if isinstance(value, (kg.Array, np.generic, np.ndarray, bool)) else value


@pytest.mark.parametrize("group, name", CASES)
@pytest.mark.parametrize("xp", [np, kg], ids=["np", "kg"])
def test_traced(group: str, name: str, xp: Any) -> None:
    if xp is kg and group == "methods":
        pytest.skip("functions of kg are no ufuncs")
    row, arguments, expected = prepared(group, name)

    def traced(*args: Any) -> Any:
        return row(xp, *args)

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        if name in BY_DATA:
            found = kg.kernel_graph(traced, device="cpu", untraceable="split")(*arguments)
        else:
            found = interpreted(traced, *arguments)
    same(found, expected)


@pytest.mark.parametrize("group, name", [case for case in CASES if case.values[0] != "methods"])
def test_at_once(group: str, name: str) -> None:
    row, arguments, expected = prepared(group, name)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        found = row(kg, *(kg.asarray(a, device="cpu") for a in arguments))
    leaves: list[Any] = []
    tree = flatten(found, leaves)
    assert not any(isinstance(leaf, np.ndarray) for leaf in leaves), "a NumPy array, not a kg.Array"
    same(unflatten(tree, leaves), expected)


def test_the_table_has_the_whole_standard() -> None:
    other = {"e", "inf", "nan", "newaxis", "pi", "bool", "__array_namespace_info__", "from_dlpack"}
    dtypes = {name for name in STANDARD.split() if isinstance(getattr(np, name, None), type)}
    assert set(STANDARD.split()) - other - dtypes - set(ARRAY_API) == {"finfo", "iinfo"} - set(ARRAY_API)
    assert set(LINALG.split()) == set(LINEAR) and set(FFT.split()) == set(FOURIER)


@pytest.mark.parametrize(
    "name", ["put", "copyto", "fill_diagonal", "add.at", "subtract.at", "putmask", "put_along_axis"]
)
def test_changes_of_an_array_at_once(name: str) -> None:
    calls: dict[str, Callable[[Any], Any]] = {
        "put": lambda x: np.put(x, [1, 2], 9.0),
        "copyto": lambda x: np.copyto(x, np.arange(3.0), where=[True, False, True]),
        "fill_diagonal": lambda x: np.fill_diagonal(x, 5.0),
        "add.at": lambda x: np.add.at(x, [0, 0, 2], 1.0),
        "subtract.at": lambda x: np.subtract.at(x, (np.array([1, 1]), np.array([0, 0])), np.ones(2)),
        "putmask": lambda x: np.putmask(x, np.asarray(x) > 4, 0.0),
        "put_along_axis": lambda x: np.put_along_axis(x, np.array([[0], [1], [2]]), 7.0, 1),
    }
    host = np.arange(9.0).reshape(3, 3)
    array = kg.asarray(host, device="cpu")
    before = np.asarray(array)
    assert calls[name](array) is None
    np.testing.assert_array_equal(before, host)  # what was read before keeps its values
    calls[name](host)
    np.testing.assert_array_equal(array, host)


def test_operations_on_a_gpu_share_kernels() -> None:
    """Each operation outside of a trace is a program; sizes of one class share a kernel, which is compiled once."""
    for row in (lambda x: x + x, lambda x: x.sum(axis=1), lambda x: np.exp(x), lambda x: x.T.copy()):
        decorated = kg.kernel_graph(row, device="fake")
        kernels = {decorated.program(kg.spec((64 * n, 1024), "f4")).tasks[0].kernel for n in (2, 3, 16)}
        assert len(kernels) == 1
