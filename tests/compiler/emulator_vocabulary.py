"""The vocabulary of CUDA kernel text, in Python: the function that each name of the text stands for."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from kernelgraph.compiler.core.types import DTYPES, real_dtype
from kernelgraph.compiler.kernel.primitives import PRIMITIVES
from kernelgraph.runtime.program.user_function import UserFunction, apply_user_function_over_arrays

from .emulator_memory import (
    I32,
    Thread,
    atomic,
    cstore,
    elements,
    gather,
    lanes,
    load,
    peek,
    post,
    report,
    shared,
    sload,
    spread,
    sstore,
    store,
    whole,
)


def vocabulary(thread: Thread, name: str) -> Any:
    bare = name.rstrip("_")
    if bare in PRIMITIVES:
        return lambda *args: _primitive(bare, args)
    make, *given = _maker(name)
    return make(thread, *given)


@cache
def _maker(name: str) -> tuple[Any, ...]:
    return next((make, *match.groups()) for pattern, make in _PATTERNS if (match := re.fullmatch(pattern, name)))


def _primitive(op: str, args: Sequence[Any]) -> Any:
    arrays = spread(*args)
    rule, kind = PRIMITIVES[op], arrays[-1].dtype
    assert all([a.dtype == kind for a in arrays[rule.same_from :]]), f"{op} of {[a.dtype for a in arrays]}"
    assert kind in rule.accepts, f"{op} of {kind}"
    dtype = rule.result or kind
    return np.asarray(rule.numpy(*arrays, dtype)).astype(dtype, copy=False)


def _prefer(thread: Thread, which: str) -> Any:
    def function(x: Any, i: Any, y: Any, j: Any) -> Any:
        x, i, y, j = spread(x, i, y, j)
        better = y > x if which == "argmax" else y < x
        x_nan, y_nan = x != x, y != y
        tie = (x == y) | (x_nan & y_nan)
        return better | (y_nan & ~x_nan) | (tie & (j < i))

    return function


def _convert(thread: Thread, target: str, verb: str, source: str) -> Any:
    def function(x: Any) -> Any:
        (x,) = spread(x)
        assert x.dtype == DTYPES[source], (x.dtype, source)
        if verb == "bits":
            return x.view(DTYPES[target])
        return PRIMITIVES["cast"].numpy(x, DTYPES[target])

    return function


def _constant(thread: Thread, dtype: str) -> Any:
    if dtype == "i32":
        return I32
    if dtype == "i64":
        return int
    if dtype in ("f16", "bf16"):  # given as bits
        return lambda x: np.full(1, x, np.uint16).view(DTYPES[dtype])
    return lambda x: np.array([x], DTYPES[dtype])


def user(function: UserFunction) -> dict[str, Any]:
    """A user's function, on lanes and on those of a mask."""

    def call(*args: Any, mask: Any = True) -> list[Any]:
        *values, exists = spread(*args, mask)
        reals, given = list(values), []
        for dtype in map(np.dtype, function.arguments):
            first = reals.pop(0)
            assert first.dtype == (real_dtype(dtype)), (first.dtype, dtype)
            given.append(first + 1j * reals.pop(0) if dtype.kind == "c" else first)
        found: list[Any] = []
        for part, dtype in enumerate(map(np.dtype, function.results)):
            result = np.zeros(exists.size, dtype)
            result[exists] = apply_user_function_over_arrays(function, part, *(g[exists] for g in given))
            found += [result.real, result.imag] if dtype.kind == "c" else [result]
        return found

    def masked(*args: Any) -> list[Any]:
        return call(*args[:-1], mask=args[-1])

    return {function.symbol: call, f"{function.symbol}_if": masked}


def _fold(op: str, x: Any, until: int) -> Any:
    while x.size > until:
        x = _primitive(op.rstrip("_"), (x[: x.size // 2], x[x.size // 2 :]))
    return x


def _butterfly(combine: Any, x: Any, among: int) -> Any:
    for offset in (16, 8, 4, 2, 1):
        y = yield ("xor", x, offset)
        if among > offset:
            x = combine(x, y)
    return x


def _register(thread: Thread, name: str, axis: str) -> Any:
    return lambda: I32(getattr(thread, name)["xyz".index(axis)])


def _window(thread: Thread, length: str, groups: str, first: str) -> Any:
    size, skip = int(length), int(first)
    values = 1 + (skip > 0)

    def function(*parts: Any) -> Any:
        assert len(parts) == values * int(groups)
        joined = [np.concatenate([lanes(x) for x in parts[k : k + values]]) for k in range(0, len(parts), values)]
        assert values == 1 or all(lanes(x).size == size for x in parts[::2])
        assert all(row.size >= skip + size for row in joined)
        return np.concatenate([row[skip : skip + size] for row in joined])

    return function


_D = "(b1|[iu](?:8|16|32|64)|f(?:16|32|64)|bf16)"
_C = "(b1|[iu](?:8|16|32|64)|f(?:16|32|64)|bf16|c(?:64|128)(?:re|im)?)"
_INDEX: dict[str, Callable[[int, int], int]] = {"udiv": lambda a, b: a // b, "urem": lambda a, b: a % b, "least": min}
_PATTERNS: tuple[tuple[str, Callable[..., Any]], ...] = (
    (_D, _constant),
    (rf"{_D}_(from|bits)_{_D}", _convert),
    (r"window_(\d+)x(\d+)_(\d+)", _window),
    (r"lanes_(\d+)x(\d+)", lambda t, n, g: lambda i, gs, ls: elements(i, gs, ls, int(n), int(g)).astype(np.int64)),
    (r"below_(\d+)x(\d+)", lambda t, n, g: lambda i, gs, ls, m: elements(i, gs, ls, int(n), int(g)) < whole(m)),
    (rf"load(v?)_{_C}_(\d+)x(\d+)(_if)?", load),
    (rf"gather(v?)_{_C}_(\d+)x(\d+)(_if)?", gather),
    ("report", report),
    (r"(s|g)(add|max)_([iu](?:32|64))", atomic),
    ("peek_u64", peek),
    ("post_u64", post),
    (rf"store(v?)_{_C}_(\d+)x(\d+)(_if)?", store),
    (rf"shared_{_D}_(\d+)", shared),
    (rf"sload_{_D}_(\d+)", sload),
    (rf"sstore_{_D}_(\d+)", sstore),
    (rf"cstore_{_D}", cstore),
    (rf"sget_{_D}_(\d+)x(\d+)", sload),
    (rf"sput_{_D}_(\d+)x(\d+)", sstore),
    (r"repeat_(\d+)", lambda t, n: lambda x: np.resize(lanes(x), int(n))),
    (r"fold_(\w+?)_(\d+)", lambda t, op, n: lambda x: _fold(op, lanes(x), int(n))),
    ("butterfly", lambda t: _butterfly),
    ("lo", lambda t: lambda x: lanes(x)[: lanes(x).size // 2]),
    ("hi", lambda t: lambda x: lanes(x)[lanes(x).size // 2 :]),
    ("(tid|bid|bdim)_([xyz])", _register),
    (r"part_(\d+)_(\d+)", lambda t, k, n: lambda x: x[int(k)] if len(x) == int(n) else None),
    ("(udiv|urem|least)", lambda t, n: lambda a, b: _INDEX[n](whole(a), whole(b))),
    ("prefer_(argmax|argmin)", _prefer),
    ("inf", lambda t: float("inf")),
    ("nan", lambda t: float("nan")),
)
