"""Random calls of every reduction with every keyword, on arrays of every dtype and of empty shapes, beside NumPy.

python -m tests.reduction_keywords [--count N] [--seed S] [--only NAME]

Compared are values, dtypes and shapes, also of `out=`, or the type of the exception. `wrong` must be 0; `refused`
counts what is left to NumPy.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

import kernelgraph as kg
from tests.scalars import DTYPES, REFUSALS, _interpreted, caught_by, compared, kind_of, outcome

SHAPES = ((), (1,), (0,), (3,), (4,), (2, 3), (0, 3), (2, 0), (1, 1), (3, 3), (2, 3, 2), (1, 0, 2))
REALS = (0.0, 1.0, 3.0, -2.0, float("nan"), 100.0, 0.5, -7.0)
Draw = Callable[[random.Random, Any], Any]  # the value of a keyword, for an array


def array(rng: random.Random, shape: Sequence[int], dtype: Any) -> np.ndarray[Any, Any]:
    """Small numbers of one dtype; now and then NaN among floats."""
    kind, size = np.dtype(dtype).kind, int(np.prod(shape))
    pool = REALS if kind in "fc" and rng.random() < 0.4 else (0, 1, 3, 2, 7, 5, 1, 4)
    values: Any = np.array([rng.choice(pool) for _ in range(size)])
    if kind == "c":
        values = values + 1j * np.array([rng.choice(pool) for _ in range(size)])
    return np.asarray(values).reshape(shape).astype(dtype)


def one_of(*values: Any) -> Draw:
    return lambda rng, x: rng.choice(values)


def axes(rng: random.Random, x: Any) -> Any:
    """Mostly axes that there are, in every form."""
    some = tuple(rng.sample(range(x.ndim), rng.randint(0, x.ndim)))
    return rng.choice((None, 0, -1, 1, some, some, (0,), np.int64(0), [0], 5, (0, 0), (0, -1), 1.0, True))


def axis(rng: random.Random, x: Any) -> Any:
    return rng.choice((None, 0, -1, 1, np.int8(0), 2, -3, (0,), 1.0))


def mask(rng: random.Random, x: Any) -> Any:
    some = array(rng, x.shape, "?")
    last = array(rng, x.shape[-1:], "?")
    return rng.choice(
        (True, False, some, some, some, last, np.bool_(False), array(rng, (5,), "?"), array(rng, x.shape, "i8"))
    )


def weights(rng: random.Random, x: Any) -> Any:
    alternating = np.array([(-1.0) ** i for i in range(x.size)]).reshape(x.shape)
    dtype = rng.choice(("f8", "i8", "f4", "?", "c16"))
    some = array(rng, x.shape, dtype)
    along = array(rng, x.shape[:1], dtype)
    return rng.choice(
        (None, some, some, along, x[..., 0] if x.ndim and x.shape[-1] else some, np.zeros(x.shape), alternating)
    )


def quantiles(rng: random.Random, x: Any) -> Any:
    values = (
        0.5,
        0,
        1,
        0.25,
        [0.25, 0.5],
        [[0, 0.25], [0.75, 1]],
        [],
        (0.1,),
        1.5,
        -0.1,
        np.float32(0.5),
        np.float64(0.3),
    )
    return rng.choice((*values, np.array([0.2, 0.7]), np.array(0.4), np.zeros((2, 0)), True, [[[0.5]]], [0.5, 2.0]))


def percents(rng: random.Random, x: Any) -> Any:
    q = quantiles(rng, x)
    return q * 100 if isinstance(q, (float, np.ndarray)) else q


def centre(rng: random.Random, x: Any) -> Any:
    return rng.choice((None, np.float64(1.5), 2.0, np.full(tuple(1 for _ in x.shape), 1.0)))


METHODS = (
    "linear",
    "lower",
    "higher",
    "midpoint",
    "nearest",
    "hazen",
    "weibull",
    "inverted_cdf",
    "median_unbiased",
    "bad",
)
DTYPE: Draw = one_of(None, *DTYPES, float, int, np.float32, "f8")
KEEP: Draw = one_of(True, True, False, np.True_, 1, 0)
AXIS, OUT = {"axis": axes}, {"out": one_of(*DTYPES, "shape")}
NUMBERS: Draw = one_of(0, 1, 2.5, None, -1, np.float32(3), True, float("nan"), 1j, np.int8(4), 300)
REDUCED = {**AXIS, **OUT, "keepdims": KEEP}
SUMS = {**REDUCED, "dtype": DTYPE, "initial": NUMBERS, "where": mask}
EXTREMES = {**REDUCED, "initial": NUMBERS, "where": mask}
TRUTHS = {**REDUCED, "where": mask}
MEANS = {**REDUCED, "dtype": DTYPE, "where": mask}
VARIANCES = {
    **MEANS,
    "ddof": one_of(0, 1, 2.5, 100, True, -1, np.float32(1)),
    "correction": one_of(0, 1, 1.5),
    "mean": centre,
}
ARGS = {"axis": axis, **OUT, "keepdims": KEEP}
MEDIANS = {**REDUCED, "overwrite_input": one_of(True, False)}
QUANTILES = {"q": quantiles, **MEDIANS, "method": one_of(*METHODS), "weights": weights}
PERCENTILES = {**QUANTILES, "q": percents}
SCANS = {"axis": axis, "dtype": DTYPE, **OUT}
ORDERS = one_of(None, 1, 2, -1, 0, np.inf, -np.inf, "fro", "nuc", 3, 0.5, "bad")

Row = tuple[Callable[..., Any], dict[str, Draw]]


def methods(names: str, keywords: dict[str, Draw]) -> dict[str, Row]:
    """The function, and the method of arrays."""
    functions: dict[str, Row] = {f"np.{name}": (getattr(np, name), keywords) for name in names.split()}
    for name in names.split():
        if hasattr(np.ndarray, name):
            functions[f"x.{name}"] = (lambda x, name=name, **options: getattr(x, name)(**options)), keywords
    return functions


def reduces(*ufuncs: np.ufunc) -> dict[str, Row]:
    return {f"np.{u.__name__}.reduce": (u.reduce, SUMS) for u in ufuncs}


ROWS: dict[str, Row] = {
    **methods("sum prod nansum nanprod", SUMS),
    **methods("min max nanmin nanmax", EXTREMES),
    **methods("any all", TRUTHS),
    **methods("mean nanmean", MEANS),
    **methods("var std nanvar nanstd", VARIANCES),
    **methods("argmin argmax nanargmin nanargmax", ARGS),
    **methods("ptp", REDUCED),
    **methods("count_nonzero", {**AXIS, "keepdims": KEEP}),
    **methods("average", {**AXIS, "keepdims": KEEP, "weights": weights, "returned": one_of(True, False)}),
    **methods("median nanmedian", MEDIANS),
    **methods("quantile nanquantile", QUANTILES),
    **methods("percentile nanpercentile", PERCENTILES),
    **methods("cumsum cumprod nancumsum nancumprod", SCANS),
    **methods("cumulative_sum cumulative_prod", {**SCANS, "include_initial": one_of(True, False)}),
    **methods("trace", {"offset": one_of(0, 1, -1, 9), "axis1": axis, "axis2": axis, "dtype": DTYPE, **OUT}),
    **reduces(np.add, np.multiply, np.maximum, np.minimum, np.logical_or, np.logical_and, np.logaddexp, np.bitwise_or),
    "np.linalg.norm": (np.linalg.norm, {**AXIS, "ord": ORDERS, "keepdims": KEEP}),
    "np.linalg.vector_norm": (np.linalg.vector_norm, {**AXIS, "ord": ORDERS, "keepdims": KEEP}),
    "np.bincount": (np.bincount, {"weights": weights, "minlength": one_of(0, 3, 10, -1)}),
    "np.cov": (
        np.cov,
        {"rowvar": KEEP, "bias": KEEP, "ddof": one_of(0, 1, None, 2.5), "fweights": weights, "dtype": DTYPE},
    ),
}
REQUIRED = {"q"}


class Case(NamedTuple):
    """One call: `function(x, **options)`."""

    name: str
    x: np.ndarray[Any, Any]
    options: dict[str, Any]

    def call(self, x: Any, options: dict[str, Any]) -> Any:
        result = ROWS[self.name][0](x, **options)
        return (result.copy(), options["out"].copy()) if "out" in options else result

    def __str__(self) -> str:
        options = ", ".join(f"{k}={v!r}" for k, v in self.options.items())
        return f"{self.name}({self.x!r}, {options})".replace("\n", "")


def case(rng: random.Random, names: Sequence[str]) -> Case:
    name = rng.choice(names)
    x = array(rng, rng.choice(SHAPES), rng.choice(DTYPES))
    keywords = ROWS[name][1]
    few = rng.choice((0.15, 0.4))
    options = {k: draw(rng, x) for k, draw in keywords.items() if k in REQUIRED or rng.random() < few}
    if "out" in options:
        options["out"] = _fitting_out(ROWS[name][0], x, options)
    return Case(name, x, {k: v for k, v in options.items() if k != "out" or v is not None})


def _fitting_out(function: Callable[..., Any], x: Any, options: dict[str, Any]) -> Any:
    """An array of the result's shape (or of another) and of a drawn dtype; None where there is no result."""
    rest = {k: v for k, v in options.items() if k != "out"}
    found, error, _ = outcome(lambda: function(x.copy(), **rest))
    if error is not None:
        return None
    wrong, result = options["out"] == "shape", np.asarray(found)
    return np.full((*result.shape, 2) if wrong else result.shape, 0, result.dtype if wrong else options["out"])


def ours(case: Case) -> Any:
    """What the trace gives, interpreted."""
    arrays = {k: v for k, v in case.options.items() if isinstance(v, np.ndarray)}
    known = {k: v for k, v in case.options.items() if k not in arrays}

    def traced(x: Any, *given: Any) -> Any:
        return case.call(x, known | dict(zip(arrays, given, strict=True)))

    decorated = kg.kernel_graph(traced, device="cpu", untraceable="refuse")
    return _interpreted(decorated, case.x.copy(), *(a.copy() for a in arrays.values()))


def numpys(case: Case, options: dict[str, Any]) -> tuple[Any, Exception | None, bool]:
    copies = {k: v.copy() if isinstance(v, np.ndarray) else v for k, v in options.items()}
    return outcome(lambda: case.call(case.x.copy(), copies))


def judge(case: Case) -> tuple[str, str]:
    """(`right`, `refused` or `wrong`, what was wrong)."""
    expected, error, undefined = numpys(case, case.options)
    found, raised, _ = outcome(lambda: ours(case))
    if error is not None and raised is not None:
        kinds = {caught_by(error), *_other_errors(case)}
        good = isinstance(raised, (*kinds, *REFUSALS))
        return ("right" if good else "wrong"), f"NumPy raises {error!r}; got {raised!r}"
    if isinstance(raised, REFUSALS):
        return "refused", f"{raised}"
    if error is not None:
        return "wrong", f"NumPy raises {error!r}; got {found!r}"
    if raised is not None:
        return "wrong", f"NumPy gives {expected!r}; got {raised!r}"
    return compared(expected, found, undefined)


def _other_errors(case: Case) -> set[type[Exception]]:
    """What NumPy raises without one keyword: of two mistakes either may be named."""
    found = set()
    for gone in case.options.keys() - REQUIRED:
        error = numpys(case, {k: v for k, v in case.options.items() if k != gone})[1]
        if error is not None:
            found.add(caught_by(error))
    return found


def run(count: int, seed: int = 0, only: str = "", shown: int = 0) -> tuple[Counter[str], Counter[str], list[str]]:
    """The verdicts, why calls were refused, and the wrong ones."""
    names = [name for name in ROWS if only in name]
    verdicts: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    wrong: list[str] = []
    for number in range(count):
        one = case(random.Random(f"{seed} {number}"), names)
        verdict, why = judge(one)
        verdicts[verdict] += 1
        if verdict == "refused":
            refused[f"{one.name}: {kind_of(why)}"] += 1
        if verdict == "wrong":
            wrong.append(f"{number}: {one}: {why[:400]}")
            if len(wrong) <= shown:
                print(wrong[-1], flush=True)
    return verdicts, refused, wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="functions whose name has this in it")
    parser.add_argument("--shown", type=int, default=1000)
    options = parser.parse_args()
    verdicts, refused, wrong = run(options.count, options.seed, options.only, options.shown)
    for text, times in refused.most_common():
        print(f"refused {times} times: {text}")
    print(f"seed {options.seed}: {len(ROWS)} functions, {options.count} calls: {dict(verdicts)}")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
