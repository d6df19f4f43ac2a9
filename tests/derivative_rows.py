"""Functions of NumPy's and of `kg.nn`, the same in mpmath's numbers, and points at which their derivatives are tried.

What is the same text for both is written once: arrays of mpmath's numbers have NumPy's operators, sums and views.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mpmath as mp
import numpy as np

import kernelgraph as kg
from tests.derivative_references import on_arrays

Array = np.ndarray[Any, Any]
exp, log, log1p, sqrt, tanh, sin, cos, power, sinc, maximum = map(
    on_arrays,
    (mp.exp, mp.log, mp.log1p, mp.sqrt, mp.tanh, mp.sin, mp.cos, mp.power, lambda x: mp.sincpi(x), max),
)


def same(function: Callable[..., Any]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """A function that is written in what arrays of mpmath's numbers have too."""
    return function, function


@dataclass(frozen=True)
class Row:
    """function: of an array; reference: the same of mpmath's numbers. points: names of `POINTS`. size: what errors are
    measured beside. side: from where the derivative is taken at a kink. without: points, or pairs of a point and a
    line, at which there is another convention or no derivative."""

    function: Callable[..., Any]
    reference: Callable[..., Any]
    points: str = "plain zeros equal two tiny huge"
    size: float = 1
    side: int = 0
    without: tuple[Any, ...] = ()
    dtypes: str = "efd"


A = np.array([0.5, -1.25, 0.75, 2.0])
POINTS: dict[str, Array] = {
    "plain": A,
    "zeros": np.zeros(4),
    "equal": np.full(4, 0.5),
    "two": np.array([0.0, 0.5, 0.0, -1.0]),
    "tiny": np.array([2e-3, -1e-3, 1e-3, -2e-3]),
    "huge": np.array([30.0, -300.0, 20.0, -40.0]),
    "infinite": np.array([0.5, -np.inf, -1.0, -np.inf]),
    "regular": np.array([[2.0, 0.5, 1], [0.25, -1, 0.5], [1, 0, 3]]),
    "symmetric": np.array([[2.0, 0.5, 1], [0.5, 3, 0.25], [1, 0.25, 4]]),
    "rank 2": np.array([[1.0, 2, 3], [2, 4, 6], [1, 0, 1]]),
    "rank 1": np.array([[1.0, 2, 3], [2, 4, 6], [-1, -2, -3]]),
    "rank 0": np.zeros((3, 3)),
    "identity": np.eye(3),
    "5 of rank 5": np.eye(5) * 2 + np.arange(25.0).reshape(5, 5) % 4 / 8,
    "5 of rank 4": np.diag([1.0, 2, 0.5, 3, 0]) + np.diag([1.0, 0.5, 2, 1], 1),
    "5 of rank 3": np.outer(np.arange(5.0), np.ones(5)) + np.diag([1.0, 2, 0, 0, 0]),
    "5 of rank 2": np.diag([1.0, 0, 2, 0, 0]),
    "5 of rank 1": np.outer(np.arange(5.0), np.arange(1.0, 6)),
    "5 of rank 0": np.zeros((5, 5)),
    "two matrices": np.stack([np.diag([1.0, 2, 0]), np.eye(3)]),
    "image": np.arange(32.0).reshape(1, 2, 4, 4) % 7 / 4 - 0.75,
}
VECTORS, ANYWHERE = "plain zeros equal two tiny", "plain zeros equal two tiny huge"
ORDERED = "plain tiny huge"
SINGULAR = "regular, rank 2, rank 1, rank 0, identity, two matrices"
LARGE = "5 of rank 5, 5 of rank 4, 5 of rank 3, 5 of rank 2, 5 of rank 1, 5 of rank 0"


def determinants(a: Any) -> Any:
    """Of matrices of mpmath's numbers, without a division: by minors of the first rows."""
    if a.ndim > 2:
        return np.array([determinants(x) for x in a], object)
    minors: dict[tuple[int, ...], Any] = {(): mp.mpf(1)}
    for row in a.tolist():
        larger: dict[tuple[int, ...], Any] = {}
        for chosen, minor in minors.items():
            for j in set(range(len(row))) - set(chosen):
                columns, behind = tuple(sorted((*chosen, j))), sum(c > j for c in chosen)
                larger[columns] = larger.get(columns, 0) + (-1) ** behind * minor * row[j]
        minors = larger
    return minors[tuple(range(len(a)))]


def inverses(a: Any) -> Any:
    return np.array((mp.matrix(a.tolist()) ** -1).tolist(), object)


def singular_values(a: Any) -> Any:
    return np.array(list(mp.svd_r(mp.matrix(a.tolist()), compute_uv=False)), object)


def eigenvalues(a: Any) -> Any:
    lower = np.tril(a) + np.tril(a, -1).T
    return np.array(list(mp.eigsy(mp.matrix(lower.tolist()), eigvals_only=True)), object)


def cholesky_factor(a: Any) -> Any:
    return np.array(mp.cholesky(mp.matrix((np.tril(a) + np.tril(a, -1).T).tolist())).tolist(), object)


def logsumexp(x: Any) -> Any:
    return log(exp(x[x != mp.ninf]).sum()) if mp.ninf in x else log(exp(x).sum())


def softmax(x: Any) -> Any:
    powers = exp(x)
    return powers / powers.sum()


def normalized(x: Any) -> Any:
    centred = x - x.mean()
    return centred / mp.sqrt((centred * centred).mean() + mp.mpf(1e-5))


def gelu(x: Any) -> Any:
    return x * mp.erfc(-x / mp.sqrt(2)) / 2


def softplus(x: Any) -> Any:
    return max(x, 0) + mp.log1p(mp.exp(-abs(x)))


def sigmoid(x: Any) -> Any:
    return 1 / (1 + mp.exp(-x))


def attended(x: Any) -> Any:
    scores = np.outer(x, x)
    powers = exp(scores) * np.tril(np.ones((4, 4), int))
    return (powers / powers.sum(1)[:, None]) @ x


def norm_of_order(p: Any) -> Callable[..., Any]:
    return lambda x: mp.power(sum(mp.power(abs(e), p) for e in x), mp.mpf(1) / p)


def pooled(x: Any) -> Any:
    return x.reshape(1, 2, 2, 2, 2, 2).mean((3, 5))


LABELS = np.array([0.1, 0.2, 0.3, 0.4])
LOWER = np.tril(np.ones((4, 4), bool))
ROWS: dict[str, Row] = {
    "sinc": Row(np.sinc, sinc, ANYWHERE, size=1),
    "i0": Row(np.i0, on_arrays(lambda x: mp.besseli(0, x)), VECTORS, dtypes="d"),
    "sum": Row(*same(lambda x: (x * x * x).sum())),
    "mean": Row(*same(lambda x: (x * x * x).mean()), points=VECTORS),
    "prod": Row(*same(lambda x: x.prod()), points=VECTORS),
    "cumprod": Row(*same(lambda x: x.cumprod()), points=VECTORS),
    "nanprod": Row(np.nanprod, np.prod, VECTORS),
    "cumsum": Row(*same(lambda x: x.cumsum() ** 3), points=VECTORS),
    "max": Row(lambda x: np.max(x) ** 3, lambda x: max(x) ** 3, ORDERED),
    "max, equal": Row(lambda x: np.max(x * [1, 1, 0, 0]), lambda x: max(x[0], x[1], 0), "equal"),
    "min": Row(lambda x: np.min(x) ** 3, lambda x: min(x) ** 3, ORDERED),
    "ptp": Row(lambda x: np.ptp(x) ** 3, lambda x: (max(x) - min(x)) ** 3, ORDERED),
    "median": Row(lambda x: np.median(x) ** 3, lambda x: (sum(sorted(x)[1:3]) / 2) ** 3, ORDERED),
    "sort": Row(lambda x: np.sort(x) ** 3, lambda x: np.sort(x) ** 3, ORDERED),
    "var": Row(*same(lambda x: ((x - x.sum() / 4) ** 2).sum() / 4), points=VECTORS),
    "np.var": Row(np.var, lambda x: ((x - x.mean()) ** 2).mean(), VECTORS),
    "std": Row(np.std, lambda x: mp.sqrt(((x - x.mean()) ** 2).mean()), "plain zeros two equal", size=8),
    "norm": Row(np.linalg.norm, lambda x: mp.sqrt((x * x).sum()), "plain zeros two huge", size=8),
    "norm of order 1": Row(lambda x: np.linalg.norm(x, 1), lambda x: abs(x).sum()),
    "norm of order 3": Row(lambda x: np.linalg.norm(x, 3), norm_of_order(3), "plain zeros", size=8),
    "norm of order 4": Row(lambda x: np.linalg.norm(x, 4), norm_of_order(4), "plain zeros two", size=8),
    "norm of order inf": Row(lambda x: np.linalg.norm(x, np.inf), lambda x: max(abs(x)), ORDERED),
    "norm of a matrix": Row(np.linalg.norm, lambda x: mp.sqrt((x * x).sum()), "regular, rank 0, identity", size=8),
    "unit": Row(
        lambda x: np.where(x == 0, 0, x / np.sqrt((x**2).sum())),
        lambda x: np.array([e / mp.sqrt((x**2).sum()) for e in x], object),
        "plain huge",
        size=8,
    ),
    "root of a mask": Row(
        lambda x: np.where(x > 0.25, np.sqrt(x), x * x), on_arrays(lambda x: mp.sqrt(x) if x > 0.25 else x * x)
    ),
    "quotient of a mask": Row(
        lambda x: np.where(x != 0, np.sin(x) / x, 1 + x), on_arrays(lambda x: mp.sin(x) / x), "plain huge equal"
    ),
    "logarithm of a mask": Row(
        lambda x: np.where(x > 0, x * np.log(x), 0) * 1.0,
        on_arrays(lambda x: x * mp.log(x) if x > 0 else x * 0),
        "plain equal huge",
    ),
    "power": Row(lambda x: x**3 + x**2 + x**1 + x**0, lambda x: x**3 + x**2 + x + 1),
    "power of itself": Row(lambda x: (x + 2) ** x, lambda x: power(x + 2, x), VECTORS),
    "power of base": Row(lambda x: 2.0**x, lambda x: power(mp.mpf(2), x), VECTORS),
    "diff": Row(lambda x: np.diff(x) ** 3, lambda x: np.diff(x) ** 3),
    "convolve": Row(lambda x: np.convolve(x, x * x), lambda x: np.convolve(x, x * x), VECTORS),
    "outer": Row(lambda x: np.outer(x, x * x), lambda x: np.outer(x, x * x), VECTORS),
    "matmul": Row(lambda x: (np.outer(x, x) + A) @ x, lambda x: (np.outer(x, x) + A) @ x, VECTORS),
    "logaddexp.reduce": Row(np.logaddexp.reduce, logsumexp),
    "abs of the transform": Row(
        lambda x: np.abs(np.fft.rfft(x)) ** 2,
        lambda x: np.array(
            [x.sum() ** 2, (x[0] - x[2]) ** 2 + (x[1] - x[3]) ** 2, (x[::2].sum() - x[1::2].sum()) ** 2], object
        ),
        "plain",
        size=8,
        dtypes="fd",
    ),
    "angle": Row(lambda x: np.angle(x + 1j), on_arrays(lambda x: mp.atan2(1, x)), dtypes="fd"),
    "abs of complex": Row(
        lambda x: np.abs(x + 1j * x * x),
        on_arrays(lambda x: abs(x) * mp.sqrt(1 + x * x)),
        "plain two zeros",
        dtypes="fd",
    ),
    "clip": Row(lambda x: np.clip(x, -0.75, 0.625) ** 3, on_arrays(lambda x: min(max(x, -0.75), 0.625) ** 3)),
    "interp": Row(
        lambda x: np.interp(x, [-2.0, 0.0, 1.0, 3.0], [1.0, 2, 0, 4]) ** 2,
        on_arrays(
            lambda x: (
                mp.mpf(1) ** 2
                if x < -2
                else (2 + x / 2) ** 2
                if x < 0
                else (2 - 2 * x) ** 2
                if x < 1
                else (2 * x - 2) ** 2
                if x < 3
                else mp.mpf(16)
            )
        ),
        "plain equal tiny",
    ),
    "assigned": Row(
        lambda x: _assigned(x), lambda x: np.array([x[1] * x[2], x[1] ** 3, x[2], x[3] ** 2], object), VECTORS
    ),
    "det": Row(np.linalg.det, determinants, SINGULAR, size=100, dtypes="fd"),
    "det of 5": Row(np.linalg.det, determinants, LARGE, size=2000, dtypes="fd"),
    "log of det": Row(
        lambda a: np.linalg.slogdet(a)[1],
        lambda a: log(abs(determinants(a))),
        "regular, identity",
        size=100,
        dtypes="fd",
    ),
    "inv": Row(np.linalg.inv, inverses, "regular, identity", size=100, dtypes="fd"),
    "solve": Row(
        lambda a: np.linalg.solve(a, A[:3]), lambda a: inverses(a) @ A[:3], "regular, identity", size=100, dtypes="fd"
    ),
    "pinv": Row(np.linalg.pinv, inverses, "regular, identity", size=300, dtypes="fd"),
    "cholesky": Row(np.linalg.cholesky, cholesky_factor, "symmetric, identity", size=100, dtypes="fd"),
    "eigvalsh": Row(np.linalg.eigvalsh, eigenvalues, "symmetric", size=300, dtypes="fd"),
    "svdvals": Row(np.linalg.svdvals, singular_values, "regular", size=300, dtypes="fd"),
    "norm of order nuc": Row(
        lambda a: np.linalg.norm(a, "nuc"), lambda a: singular_values(a).sum(), "regular", size=300, dtypes="fd"
    ),
    "matrix power": Row(
        lambda a: np.linalg.matrix_power(a, 3), lambda a: a @ a @ a, "rank 0, rank 1, identity", size=100
    ),
    # kg.nn
    "relu": Row(kg.nn.relu, on_arrays(lambda x: max(x, 0)), without=("zeros", "two")),
    "gelu": Row(kg.nn.gelu, on_arrays(gelu)),
    "sigmoid": Row(kg.nn.sigmoid, on_arrays(sigmoid)),
    "tanh": Row(kg.nn.tanh, tanh),
    "silu": Row(kg.nn.silu, on_arrays(lambda x: x * sigmoid(x))),
    "softplus": Row(kg.nn.softplus, on_arrays(softplus)),
    "leaky_relu": Row(
        kg.nn.leaky_relu, on_arrays(lambda x: x if x > 0 else x * mp.mpf(0.01)), without=("zeros", "two")
    ),
    "elu": Row(kg.nn.elu, on_arrays(lambda x: x if x > 0 else mp.expm1(x)), without=("zeros", "two")),
    "relu at 0": Row(kg.nn.relu, lambda x: x * 0, "zeros"),
    "leaky_relu at 0": Row(kg.nn.leaky_relu, lambda x: x * mp.mpf(0.01), "zeros"),
    "elu at 0": Row(kg.nn.elu, on_arrays(mp.expm1), "zeros"),
    "logsumexp": Row(kg.nn.logsumexp, logsumexp, ANYWHERE + " infinite"),
    "softmax": Row(kg.nn.softmax, softmax, ANYWHERE + " infinite"),
    "log_softmax": Row(kg.nn.log_softmax, lambda x: x - logsumexp(x)),
    "cross_entropy": Row(lambda x: kg.nn.cross_entropy(x, np.array(2)), lambda x: logsumexp(x) - x[2]),
    "cross_entropy of probabilities": Row(
        lambda x: kg.nn.cross_entropy(x, LABELS), lambda x: (LABELS * (logsumexp(x) - x)).sum()
    ),
    "layer_norm": Row(kg.nn.layer_norm, normalized, "plain two huge", size=64),
    "layer_norm, constant": Row(kg.nn.layer_norm, normalized, "zeros equal", size=1e6, dtypes="fd"),
    "rms_norm": Row(kg.nn.rms_norm, lambda x: x / mp.sqrt((x * x).mean() + mp.mpf(1e-6)), "plain two huge", size=64),
    "rms_norm, zeros": Row(
        kg.nn.rms_norm, lambda x: x / mp.sqrt((x * x).mean() + mp.mpf(1e-6)), "zeros tiny", size=1e9, dtypes="d"
    ),
    "batch_norm": Row(
        lambda x: kg.nn.batch_norm(x[:, None]), lambda x: normalized(x)[:, None], "plain two huge", size=64
    ),
    "group_norm": Row(lambda x: kg.nn.group_norm(x[None], 1), lambda x: normalized(x)[None], "plain two huge", size=64),
    "attention": Row(
        lambda x: kg.nn.attention(x[:, None], x[:, None], x[:, None], LOWER)[:, 0], attended, VECTORS, size=16
    ),
    "causal attention": Row(
        lambda x: kg.nn.attention(x[:, None], x[:, None], x[:, None], causal=True)[:, 0], attended, VECTORS, size=16
    ),
    "attention, mask added": Row(
        lambda x: kg.nn.attention(*[x[:, None]] * 3, np.where(LOWER, 0, -np.inf).astype(x.dtype))[:, 0],
        attended,
        VECTORS,
        size=16,
    ),
    "linear": Row(
        lambda x: kg.nn.linear(x[None], np.outer(x, x)), lambda x: x[None] @ np.outer(x, x), VECTORS, size=16
    ),
    "conv2d": Row(lambda x: kg.nn.conv2d(x, x[:, :, :1, :2]), lambda x: _convolved(x), "image", size=16, dtypes="d"),
    "avg_pool2d": Row(lambda x: kg.nn.avg_pool2d(x**3, 2), lambda x: pooled(x**3), "image", size=16, dtypes="d"),
}


def _assigned(x: Any) -> Any:
    x = x * 1
    x[3] *= x[3]
    x[0] = x[1] * x[2]
    x[1] **= 3
    return x


def _convolved(x: Any) -> Any:
    return sum(x[:, c : c + 1, :, j : j + 3] * x[0, c, 0, j] for c in range(2) for j in range(2))
