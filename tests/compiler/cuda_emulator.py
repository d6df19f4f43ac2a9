"""CUDA kernel text run in plain Python, one thread after another, on checked memory.

Every access is checked: inside its buffer, aligned as its vector needs, shared memory written and read by different
threads only across a barrier, and no global element written by two threads or read by one and written by another.
A block's threads are generators: `barrier()` and exchanges become yields, so a divergent one is an error.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import ml_dtypes
import numpy as np

from kernelgraph.compiler.primitives import PRIMITIVES
from kernelgraph.compiler.types import DTYPES, real_of
from kernelgraph.runtime.function import Function, vectorized

CELLS: dict[str, tuple[Any, int | None]] = {
    **{name: (dtype, None) for name, dtype in DTYPES.items()},
    **{f"{name}{part}": (DTYPES[name], k) for name in ("c64", "c128") for k, part in enumerate(("re", "im"))},
}
RAW = {"f16": np.uint16, "bf16": np.uint16}


class I32(int):
    """An int32 constant or index; arithmetic gives plain (64-bit) integers, as numba's does."""

    def __new__(cls, value: Any) -> I32:
        assert -(2**31) <= int(value) < 2**31, f"{value} needs more than 32 bits"
        return super().__new__(cls, int(value))


Access = tuple[Any, int, Any]  # block, number of barriers before, thread (None: several)


@dataclass
class Pointer:
    """Byte `origin` of a buffer of bytes (whose byte 0 counts as 256-aligned)."""

    data: np.ndarray[Any, Any]
    origin: int = 0
    name: str = ""
    loads: Counter[int] = field(default_factory=Counter)
    stores: Counter[int] = field(default_factory=Counter)
    writer: dict[int, Access] = field(default_factory=dict)
    reader: dict[int, Access] = field(default_factory=dict)


@dataclass
class Shared:
    data: np.ndarray[Any, Any]
    writer: dict[int, Access] = field(default_factory=dict)
    reader: dict[int, Access] = field(default_factory=dict)


class Thread:
    """The state of the running thread that the vocabulary needs."""

    def __init__(self) -> None:
        self.bid = self.tid = self.bdim = (0, 0, 0)
        self.calls = self.epoch = 0
        self.shared: list[Shared] = []

    @property
    def now(self) -> Access:
        return (self.bid, self.epoch, self.tid)

    def sees(self, access: Access | None) -> bool:
        """Whether an access is this thread's own or lies before the block's last barrier."""
        if access is None:
            return True
        block, epoch, tid = access
        return block == self.bid and (epoch < self.epoch or tid == self.tid)

    def joined(self, access: Access | None) -> Access:
        """This thread's access together with an earlier one to the same place."""
        if access is None or self.sees(access):
            return self.now
        return (self.bid if access[0] == self.bid else None, self.epoch, None)


def lanes(value: Any) -> np.ndarray[Any, Any]:
    if isinstance(value, tuple):
        return np.concatenate([lanes(v) for v in value])
    if isinstance(value, np.ndarray):
        return np.atleast_1d(value)
    if isinstance(value, I32):
        return np.full(1, value, np.int32)
    if isinstance(value, (bool, np.bool_)):
        return np.full(1, value, np.bool_)
    return np.full(1, value, np.int64) if isinstance(value, int) else np.atleast_1d(value)


def whole(value: Any) -> int:
    """An index, which may have come out of an array."""
    return int(value[0]) if isinstance(value, np.ndarray) and value.ndim else int(value)


def spread(*values: Any) -> list[np.ndarray[Any, Any]]:
    arrays = [lanes(v) for v in values]
    count = max(a.size for a in arrays)
    assert all(count % a.size == 0 for a in arrays)
    return [np.resize(a, count) for a in arrays]


def vocabulary(thread: Thread, name: str) -> Any:
    bare = name.rstrip("_")
    if bare in PRIMITIVES:
        return lambda *args: _primitive(bare, args)
    for pattern, make in _PATTERNS:
        if match := re.fullmatch(pattern, name):
            return make(thread, *match.groups())
    raise KeyError(name)


def _primitive(op: str, args: Sequence[Any]) -> Any:
    arrays = spread(*args)
    rule = PRIMITIVES[op]
    assert len({a.dtype for a in arrays[rule.same_from :]}) == 1, f"{op} of {[a.dtype for a in arrays]}"
    assert arrays[-1].dtype in rule.accepts, f"{op} of {arrays[-1].dtype}"
    dtype = rule.result or arrays[-1].dtype
    with np.errstate(all="ignore"):
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
        with np.errstate(all="ignore"):
            return PRIMITIVES["cast"].numpy(x, DTYPES[target])

    return function


def _constant(thread: Thread, dtype: str) -> Any:
    if dtype == "i32":
        return I32
    if dtype == "i64":
        return int
    if dtype in RAW:
        return lambda x: np.full(1, x, np.uint16).view(DTYPES[dtype])
    return lambda x: np.full(1, x, DTYPES[dtype])


def _numbers(i: Any, gs: Any, ls: Any, length: int, groups: int) -> np.ndarray[Any, Any]:
    return (whole(i) + whole(gs) * np.arange(groups)[:, None] + whole(ls) * np.arange(length)[None, :]).reshape(-1)


def _bytes_of(pointer: Pointer, number: int, size: int) -> slice:
    start = pointer.origin + number * size
    assert start >= 0 and start + size <= pointer.data.size, f"{pointer.name}[{number}] is outside its buffer"
    return slice(start, start + size)


def _check_vectors(pointer: Pointer, numbers: np.ndarray[Any, Any], length: int, size: int) -> None:
    access = min(16, length * size)
    for first in numbers[::length]:
        assert (pointer.origin + int(first) * size) % access == 0, f"{pointer.name}[{first}] is not aligned to {access}"


def _load(thread: Thread, vector: str, cell: str, length: str, groups: str, masked: str | None) -> Any:
    dtype, part = CELLS[cell]

    def function(pointer: Pointer, i: Any, gs: Any, *rest: Any) -> Any:
        numbers = _numbers(i, gs, 1 if vector else rest[0], int(length), int(groups))
        flags = np.resize(lanes(rest[-1]), numbers.size) if masked else np.ones(numbers.size, bool)
        if vector and flags.all():
            _check_vectors(pointer, numbers, int(length), dtype.itemsize)
        result = np.zeros(numbers.size, dtype)
        for k, number in enumerate(numbers):
            if flags[k]:
                where = _bytes_of(pointer, int(number), dtype.itemsize)
                assert thread.sees(pointer.writer.get(int(number))), f"race on {pointer.name}[{number}]"
                pointer.reader[int(number)] = thread.joined(pointer.reader.get(int(number)))
                pointer.loads[int(number)] += 1
                result[k] = pointer.data[where].view(dtype)[0]
        return result if part is None else (result.real, result.imag)[part].copy()

    return function


def _gather(thread: Thread, vector: str, cell: str, length: str, groups: str, masked: str | None) -> Any:
    load = _load(thread, "", cell, "1", "1", None)

    def function(pointer: Pointer, i: Any, gs: Any, *rest: Any) -> Any:
        offsets = lanes(rest[-2] if masked else rest[-1])
        numbers = _numbers(i, gs, 1 if vector else rest[0], int(length), int(groups))
        count = max(numbers.size, offsets.size)
        flags = np.resize(lanes(rest[-1]), count) if masked and count > 1 else np.ones(count, bool)
        if vector and offsets.size == 1 and flags.all():
            _check_vectors(pointer, numbers + offsets[0], int(length), CELLS[cell][0].itemsize)
        where = np.resize(numbers, count) + np.resize(offsets, count)
        found = [load(pointer, int(k), 0, 0) if flag else None for k, flag in zip(where, flags, strict=True)]
        dtype, part = CELLS[cell]
        zero = np.zeros(1, dtype if part is None else np.zeros(0, dtype).real.dtype)
        return np.concatenate([zero if x is None else x for x in found])

    return function


def _report(thread: Thread) -> Any:
    def function(pointer: Pointer, value: Any, condition: Any) -> None:
        value, condition = spread(value, condition)
        assert value.dtype == np.int64 and condition.dtype == np.bool_
        if condition.any():
            pointer.data[_bytes_of(pointer, 0, 8)] = value[condition][:1].view(np.uint8)

    return function


def _atomic(thread: Thread, where: str, op: str, dtype: str) -> Any:
    def function(memory: Any, i: Any, x: Any) -> Any:
        number, kind = whole(i), DTYPES[dtype]
        assert lanes(x).dtype == kind
        cells = memory.data if where == "s" else memory.data[_bytes_of(memory, number, kind.itemsize)].view(kind)
        at = number if where == "s" else 0
        before = cells[at : at + 1].copy()
        cells[at] = before[0] + lanes(x)[0] if op == "add" else max(before[0], lanes(x)[0])
        return before

    return function


def _peek(thread: Thread) -> Any:
    return lambda p, i: p.data[_bytes_of(p, whole(i), 8)].view(np.uint64).copy()


def _post(thread: Thread) -> Any:
    def function(p: Pointer, i: Any, x: Any) -> None:
        assert lanes(x).dtype == np.uint64
        p.data[_bytes_of(p, whole(i), 8)] = lanes(x)[:1].view(np.uint8)

    return function


def _store(thread: Thread, vector: str, cell: str, length: str, groups: str, masked: str | None) -> Any:
    dtype = DTYPES[cell]
    parts = 2 if dtype.kind == "c" else 1

    def function(pointer: Pointer, i: Any, gs: Any, *rest: Any) -> None:
        numbers = _numbers(i, gs, 1 if vector else rest[0], int(length), int(groups))
        values = [np.resize(lanes(v), numbers.size) for v in (rest if vector else rest[1:])[:parts]]
        if dtype.kind != "c":
            assert values[0].dtype == dtype, (values[0].dtype, dtype)
        flags = np.resize(lanes(rest[-1]), numbers.size) if masked else np.ones(numbers.size, bool)
        if vector and flags.all():
            _check_vectors(pointer, numbers, int(length), dtype.itemsize)
        for k, number in enumerate(numbers):
            if flags[k]:
                where = _bytes_of(pointer, int(number), dtype.itemsize)
                assert pointer.writer.get(int(number)) is None, f"{pointer.name}[{number}] is written twice"
                assert thread.sees(pointer.reader.get(int(number))), f"race on {pointer.name}[{number}]"
                pointer.writer[int(number)] = thread.now
                pointer.stores[int(number)] += 1
                pointer.data[where] = np.stack([v[k] for v in values[:parts]]).view(np.uint8)

    return function


def _shared(thread: Thread, dtype: str, count: str) -> Any:
    def function() -> Shared:
        if thread.calls == len(thread.shared):
            thread.shared.append(Shared(np.zeros(int(count), DTYPES[dtype])))
        found = thread.shared[thread.calls]
        thread.calls += 1
        assert found.data.size == int(count) and found.data.dtype == DTYPES[dtype]
        return found

    return function


def _sload(thread: Thread, dtype: str, length: str, groups: str = "1") -> Any:
    def function(memory: Shared, i: Any, gs: Any = 0, ls: Any = 1) -> Any:
        where = _numbers(i, gs, ls, int(length), int(groups))
        assert where.min() >= 0 and where.max() < memory.data.size
        for k in where:
            assert thread.sees(memory.writer.get(k)), f"shared memory [{k}] is read without a barrier"
            memory.reader[k] = thread.joined(memory.reader.get(k))
        return memory.data[where]

    return function


def _sstore(thread: Thread, dtype: str, length: str, groups: str = "1") -> Any:
    def function(memory: Shared, i: Any, *rest: Any) -> None:
        gs, ls, value = rest if len(rest) == 3 else (0, 1, rest[0])
        where = _numbers(i, gs, ls, int(length), int(groups))
        assert where.min() >= 0 and where.max() < memory.data.size
        for k in where:
            for access in (memory.writer.get(k), memory.reader.get(k)):
                assert thread.sees(access), f"shared memory [{k}] is overwritten without a barrier"
            memory.writer[k] = thread.now
        assert lanes(value).dtype == DTYPES[dtype]
        memory.data[where] = np.resize(lanes(value), len(where))

    return function


def _user(function: Function) -> dict[str, Any]:
    """A user's function, on lanes and on those of a mask."""

    def call(*args: Any, mask: Any = True) -> list[Any]:
        *values, exists = spread(*args, mask)
        reals, given = list(values), []
        for dtype in map(np.dtype, function.arguments):
            first = reals.pop(0)
            assert first.dtype == (real_of(dtype)), (first.dtype, dtype)
            given.append(first + 1j * reals.pop(0) if dtype.kind == "c" else first)
        found: list[Any] = []
        for part, dtype in enumerate(map(np.dtype, function.results)):
            result = np.zeros(exists.size, dtype)
            result[exists] = vectorized(function, part, *(g[exists] for g in given))
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


_D = "(b1|[iu](?:8|16|32|64)|f(?:16|32|64)|bf16)"
_C = "(b1|[iu](?:8|16|32|64)|f(?:16|32|64)|bf16|c(?:64|128)(?:re|im)?)"
_INDEX: dict[str, Callable[[int, int], int]] = {"udiv": lambda a, b: a // b, "urem": lambda a, b: a % b, "least": min}
_PATTERNS: tuple[tuple[str, Callable[..., Any]], ...] = (
    (_D, _constant),
    (rf"{_D}_(from|bits)_{_D}", _convert),
    (r"lanes_(\d+)x(\d+)", lambda t, n, g: lambda i, gs, ls: _numbers(i, gs, ls, int(n), int(g)).astype(np.int64)),
    (r"below_(\d+)x(\d+)", lambda t, n, g: lambda i, gs, ls, m: _numbers(i, gs, ls, int(n), int(g)) < whole(m)),
    (rf"load(v?)_{_C}_(\d+)x(\d+)(_if)?", _load),
    (rf"gather(v?)_{_C}_(\d+)x(\d+)(_if)?", _gather),
    ("report", _report),
    (r"(s|g)(add|max)_([iu](?:32|64))", _atomic),
    ("peek_u64", _peek),
    ("post_u64", _post),
    (rf"store(v?)_{_C}_(\d+)x(\d+)(_if)?", _store),
    (rf"shared_{_D}_(\d+)", _shared),
    (rf"sload_{_D}_(\d+)", _sload),
    (rf"sstore_{_D}_(\d+)", _sstore),
    (rf"sget_{_D}_(\d+)x(\d+)", _sload),
    (rf"sput_{_D}_(\d+)x(\d+)", _sstore),
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


def _as_generator(source: str) -> str:
    """Barriers and shuffles become yields."""
    source = source.replace("barrier()", "(yield None)")
    source = re.sub(r"shuffle_(\w+)\((\w+), (\w+)\)", r"(yield ('\1', \2, \3))", source)
    source = re.sub(r"match_8\((\w+)\)", r"(yield ('match', \1, 0))", source)
    source = re.sub(r"warp_(\w+)\((\w+), (\w+(?:\(\d+\))?)\)", r"(yield from butterfly(\1, \2, \3))", source)
    assert "shuffle_" not in source and "warp_" not in source
    return source


def run(
    source: str,
    name: str,
    grid: Sequence[int],
    block: Sequence[int],
    arguments: Sequence[Any],
    order: Any = None,
    functions: Sequence[Function] = (),
) -> None:
    """Launch the kernel. order: a random generator that shuffles the threads between barriers.

    functions: the user's, which the text calls."""
    thread = Thread()
    namespace: dict[str, Any] = {}
    text = _as_generator(source)
    exec(compile(text, f"<kernel {name}>", "exec"), namespace)
    function = namespace[name]
    own = {n: call for f in functions for n, call in _user(f).items()}
    namespace.update({n: own.get(n) or vocabulary(thread, n) for n in function.__code__.co_names})
    thread.bdim = tuple(block)
    for bid in product(*(range(n) for n in reversed(grid))):
        thread.bid, thread.shared, thread.epoch = bid[::-1], [], 0
        tids = [(x, y, z) for z, y, x in product(*(range(n) for n in reversed(block)))]
        if "yield" in text:
            _block(thread, function, arguments, tids, order)
        else:
            for tid in tids:
                thread.tid, thread.calls = tid, 0
                function(*arguments)


def _block(thread: Thread, function: Any, arguments: Sequence[Any], tids: list[Any], order: Any) -> None:
    running = [function(*arguments) for _ in tids]
    calls = [0] * len(tids)
    answers: list[Any] = [None] * len(tids)
    alive = set(range(len(tids)))
    asked: dict[int, Any] = {}  # by those that wait: None for a barrier, else an exchange
    while alive:
        turn = sorted(alive - asked.keys())
        if order is not None:
            order.shuffle(turn)
        for k in turn:
            thread.tid, thread.calls = tids[k], calls[k]
            try:
                asked[k] = running[k].send(answers[k])
            except StopIteration:
                alive.discard(k)
            calls[k] = thread.calls
        answers = [None] * len(tids)
        exchanges = {k: a for k, a in asked.items() if a is not None}
        if not exchanges and asked:
            assert len(asked) == len(tids), "a barrier that some threads of the block never reach"
            thread.epoch += 1
            asked = {}
        for k, (kind, x, which) in exchanges.items():
            warp = range(k // 32 * 32, min(k // 32 * 32 + 32, len(tids)))
            same = all(t in exchanges and exchanges[t][0] == kind for t in warp)
            assert same, "an exchange diverges within a warp"
            assert kind == "idx" or all(exchanges[t][2] == which for t in warp)
            answers[k] = _exchanged(k, warp, kind, x, whole(which), [exchanges[t][1] for t in warp])
            del asked[k]


def _exchanged(k: int, warp: range, kind: str, x: Any, which: int, values: list[Any]) -> Any:
    """What thread k gets; `values` are those of its warp."""
    lane = k - warp[0]
    if kind == "match":
        bits = sum(1 << t for t, y in enumerate(values) if (int(lanes(y)[0]) ^ int(lanes(x)[0])) & 255 == 0)
        return np.full(1, bits, np.uint32)
    other = {"xor": lane ^ which, "up": lane - which, "idx": which}[kind]
    return values[other] if 0 <= other < len(values) else x


def pointer(array: np.ndarray[Any, Any], offset: int = 0, name: str = "") -> Pointer:
    """A pointer to byte `offset` of a contiguous array's memory; writes go to the array."""
    return Pointer(array.reshape(-1).view(np.uint8), offset, name)


__all__ = ["Pointer", "ml_dtypes", "pointer", "run"]
