"""Every function of NumPy's on arrays of every dtype and scalars of every kind, compared with NumPy.

python -m tests.scalars [--count N] [--only NAME] [--shard I/N] [--edges]

Compared are values, dtypes and shapes, or the type of the exception. The rows are made from NumPy's own namespaces, so
a function that is added there is tested. Each scalar comes in two ways: known while tracing, and as an argument of the
call. `wrong` must be 0; `refused` counts what raises UnsupportedError or TraceError where NumPy has an answer or raises
something else. `--shard I/N` takes every Nth case of the whole table from the Ith on: all cases on 16 cores are

for i in $(seq 0 15); do python -m tests.scalars --shard $i/16 > scalars.$i & done; wait; tail -qn 1 scalars.*
"""

from __future__ import annotations

import argparse
import itertools
import random
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

import kernelgraph as kg
from kernelgraph.compiler.graph.interpret import interpret_graph
from kernelgraph.dsl.core.pytree import flatten, unflatten
from kernelgraph.dsl.jit.signature import is_number
from tests.scalar_rows import ASSIGNMENTS, OTHER, Row, rows

DTYPES = ("?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16")
SCALARS: tuple[Any, ...] = (
    *(0, 1, -1, 2, 255, 256, 2**31, 2**63, 2**64, -(2**63)),
    *(0.0, 1.0, 0.5, -0.0, -2.5, float("nan"), float("inf"), 1e300),
    *(True, False, 1j, complex("nan+1j")),
    *(np.float32(1.5), np.float64(-0.0), np.int8(1), np.uint64(2**63), np.bool_(True), np.complex64(2j)),
    *(np.int64(300), np.int64(-1), np.float64(300.5), np.float64("nan"), np.float16("inf")),
)
EDGE_DTYPES, EDGE_SHAPES = ("f8", ">f8", ">i4", ">c16", "u8", "huge", "?"), ((), (1,), (0,), (1, 1), (0, 3))
ASSIGNED = (np.array(300), np.array(-1.5), np.array(float("nan")), np.array([300]))  # in assignments alone
DATA = (0.0, 1.0, 3.0, -0.0, -2.0, float("nan"), float("inf"), 100.0)


class Case(NamedTuple):
    """One call. given: whether the scalar is an argument of the call, else it is known while tracing."""

    name: str
    row: Row
    dtype: str
    scalar: Any
    given: bool
    shape: tuple[int, ...] | None = None  # of an edge case; else a vector, or a matrix for linear algebra


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


def edge_array(dtype: str, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Small numbers, or in 64 bits without a sign what 63 bits do not hold."""
    x = np.resize(np.array([1, 2, 0]), shape).astype("u8" if dtype == "huge" else dtype)
    return np.asarray(x + np.array(2**63, x.dtype)) if dtype == "huge" else x


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
    captured, _, leaves = decorated._trace_for_inspection(args, {})
    try:
        numbers = captured.host(leaves)
    except Exception:  # as a call does it: its numbers do not fit this trace
        known = frozenset(i for i, leaf in enumerate(leaves) if is_number(leaf))
        tree = decorated._leaves_of_arguments(args, {})[0]
        captured, _, _ = decorated._versions.trace(tree, leaves, known)
        numbers = captured.host(leaves)
    arrays = [np.asarray(leaves[i]) for i in captured.feeds]
    outputs = interpret_graph(captured.graph, [*arrays, *captured.arrays], numbers)
    for which, check in captured.failures:
        error = check.error([outputs[i] for i in which[: len(check.errors)]], [])
        if error is not None:
            raise error
    found = {
        "array": outputs.__getitem__,
        "number": numbers.__getitem__,
        "static": lambda v: v,
        "argument": leaves.__getitem__,
    }
    return unflatten(captured.tree, [found[kind](value) for kind, value in captured.results])


def caught_by(error: Exception) -> type[Exception]:
    """The class that a program would name to catch it: the first one that everybody knows."""
    public = (np.linalg.LinAlgError, np.exceptions.AxisError)
    return next(k for k in type(error).__mro__ if k in public or k.__module__ == "builtins")  # type: ignore[return-value]


def judge(case: Case, compiled: bool = False) -> tuple[str, str]:
    """(`right`, `refused` or `wrong`, what was wrong)."""
    square = case.name.startswith("np.linalg.")
    x = array_for(case.dtype, square) if case.shape is None else edge_array(case.dtype, case.shape)
    if isinstance(case.scalar, np.ndarray):
        case = case._replace(scalar=case.scalar.copy())
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
        if isinstance(error, DIFFERENT.get(case.name, ())):
            return "right", ""
        if isinstance(raised, caught_by(error)) or any(isinstance(raised, kind) for kind in other_errors(case, x)):
            return "right", ""
        return "wrong", f"NumPy raises {caught_by(error).__name__}: {error}; got {type(raised).__name__}: {raised}"
    if error is not None:
        if isinstance(error, DIFFERENT.get(case.name, ())):
            return "right", ""
        return "wrong", f"NumPy raises {type(error).__name__}: {error}; got {found!r}"
    if raised is not None:
        return "wrong", f"NumPy gives {expected!r}; got {type(raised).__name__}: {raised}"
    return compared(expected, found, undefined)


REFUSALS = (kg.UnsupportedError, kg.TraceError)

# What is not compared, all in this place: casts of floats that an integer type cannot hold (see `outcome`), which C
# leaves undefined, and divisions by zero: 0 parts (a ShapeError).
DIFFERENT = dict.fromkeys(["np.split(x, s)", "np.hsplit", "np.vsplit", "np.dsplit"], ZeroDivisionError)
DIFFERENT["np.require(x, requirements=s)"] = AttributeError


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
    many = np.full(x.shape, np.ravel(s)[0])
    first = ones[0] if x.ndim and x.size else 1.0
    mended: Any = (x, 1), (ones, s), (ones.astype(x.dtype), s), (ones, 1), (ones > 1, first), (x, many), (ones, many)
    if case.shape is not None:
        longer = np.ones((2,) * x.ndim, x.dtype), np.ones((1, *x.shape), x.dtype), ones.astype("i8")
        mended += ((x, np.ravel(s)[0]), *((one, s) for one in longer))
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
        p = p.astype(p.dtype.newbyteorder("=")) if p.dtype.kind in "biufc" else p  # as all results are
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


def cases(chosen: Callable[[str], bool] = bool, first: int = 0, step: int = 1) -> list[Case]:
    """The cases first, first + step, ... of the chosen rows, always in the same order: a million of all rows."""
    return [*itertools.islice(_every(chosen), first, None, step)]


def _every(chosen: Callable[[str], bool]) -> Iterator[Case]:
    for name, row in ((name, row) for name, row in rows().items() if chosen(name)):
        scalars = (*SCALARS, *ASSIGNED) if name in ASSIGNMENTS else SCALARS
        for dtype, s, given in itertools.product(DTYPES, scalars, (False, True)):
            case = Case(name, row, dtype, s, given)
            if not (given and isinstance(s, bool)) and not _endless(case):
                yield case


def edge_cases() -> list[Case]:
    """Every row on arrays of no, one and no axes' elements, of bytes the other way around, of unsigned 64 bits."""
    scalars = (1, 0.5, np.array([2]))
    every = itertools.product(rows().items(), EDGE_DTYPES, EDGE_SHAPES, scalars, (False, True))
    return [Case(name, row, dtype, s, given, shape) for (name, row), dtype, shape, s, given in every]


def _endless(case: Case) -> bool:
    """Whether NumPy would compute Python's integers with more digits than memory holds."""
    return type(case.scalar) is int and case.scalar == 2**64 and any(word in case.name for word in ("pow", "shift"))


def namespace() -> set[str]:
    """The functions of values in NumPy's namespaces."""
    modules = (np, "np."), (np.linalg, "np.linalg."), (np.fft, "np.fft.")
    names = ((module, prefix, name) for module, prefix in modules for name in dir(module) if name[0] != "_")
    functions = ((prefix + name, getattr(module, name)) for module, prefix, name in names)
    values = ((name, f) for name, f in functions if name.rpartition(".")[2] not in OTHER)
    return {name for name, f in values if callable(f) and not isinstance(f, type)}


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
    parser.add_argument("--edges", action="store_true", help="arrays of no and of one element, and of rare dtypes")
    parser.add_argument("--shown", type=int, default=1000, help="how many wrong cases are printed")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    first, step = map(int, options.shard.split("/"))
    every = edge_cases()[first::step] if options.edges else cases(lambda name: options.only in name, first, step)
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
            print(f"wrong: {case.name} {case.dtype} {case.shape or ''} s={case.scalar!r} ({way}): {why[:300]}")
        if sys.stderr.isatty() and number % 1000 == 0:
            print(f"\r{number} of {len(every)}", end="", file=sys.stderr)
    for text, times in refused.most_common():
        print(f"refused {times} times: {text}")
    covered, functions = {function_of(case.name) for case in every}, namespace()
    print(
        f"{options.shard}: {len(covered & functions)} of {len(functions)} functions, {len(every)} cases: "
        f"{verdicts['right']} right, "
        f"{verdicts['refused']} refused, {verdicts['wrong']} wrong"
    )
    return verdicts["wrong"] > 0


if __name__ == "__main__":
    sys.exit(main())
