"""What emulated threads share: values in lanes, and memory on which every access is checked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kernelgraph.compiler.core.types import DTYPES

CELLS: dict[str, tuple[Any, int | None]] = {
    **{name: (dtype, None) for name, dtype in DTYPES.items()},
    **{f"{name}{part}": (DTYPES[name], k) for name in ("c64", "c128") for k, part in enumerate(("re", "im"))},
}


class I32(int):
    """An int32 constant or index; arithmetic gives plain (64-bit) integers, as numba's does."""

    def __new__(cls, value: Any) -> I32:
        assert -(2**31) <= int(value) < 2**31, f"{value} needs more than 32 bits"
        return super().__new__(cls, int(value))


# Block, number of its barriers before, warp and number of its own barriers before (None: several), thread (as warp).
Access = tuple[Any, int, Any, int, Any]


@dataclass
class Pointer:
    """Byte `origin` of a buffer of bytes (whose byte 0 counts as 256-aligned). again: elements may be written again,
    after a barrier."""

    data: np.ndarray[Any, Any]
    origin: int = 0
    name: str = ""
    loads: Counter[int] = field(default_factory=Counter)
    stores: Counter[int] = field(default_factory=Counter)
    writer: dict[int, Access] = field(default_factory=dict)
    reader: dict[int, Access] = field(default_factory=dict)
    again: bool = False


@dataclass
class Shared:
    data: np.ndarray[Any, Any]
    writer: dict[int, Access] = field(default_factory=dict)
    reader: dict[int, Access] = field(default_factory=dict)


class Thread:
    """The state of the running thread that the vocabulary needs."""

    def __init__(self, block: Sequence[int] = (1, 1, 1)) -> None:
        self.bdim = tuple(block)
        self.calls = 0
        self.shared: list[Shared] = []
        self.shared_of: dict[int, list[Shared]] = {}  # by block
        self.cluster = 1  # blocks of one
        self.together = 0  # the last barrier of all blocks of a cluster
        self.become((0, 0, 0), (0, 0, 0), 0, 0, 0)

    def become(self, bid: tuple[int, ...], tid: tuple[int, int, int], calls: int, epoch: int, turn: int) -> None:
        """From now on run as this thread."""
        (x, y, z), (width, height, _) = tid, self.bdim
        self.bid, self.tid, self.calls, self.epoch, self.turn = bid, tid, calls, epoch, turn
        self.warp = (x + width * (y + height * z)) // 32
        self.now: Access = (bid, epoch, self.warp, turn, tid)

    def sees(self, access: Access | None) -> bool:
        """Whether an access is this thread's own or lies before the last barrier of the block or of its warp."""
        if access is None:
            return True
        block, epoch, warp, turn, tid = access
        near = tid == self.tid or (warp == self.warp and turn < self.turn)
        return epoch < self.together or (block == self.bid and (epoch < self.epoch or near))

    def joined(self, access: Access | None) -> Access:
        """This thread's access together with an earlier one to the same place."""
        if access is None or self.sees(access):
            return self.now
        if access[:3] == self.now[:3]:
            return (*self.now[:4], None)
        return (self.bid if access[0] == self.bid else None, max(self.epoch, access[1]), None, 0, None)


def lanes(value: Any) -> np.ndarray[Any, Any]:
    if isinstance(value, np.ndarray):
        return value if value.ndim else value.reshape(1)
    if isinstance(value, tuple):
        return np.concatenate([lanes(v) for v in value])
    if isinstance(value, I32):
        return np.array([value], np.int32)
    if isinstance(value, (bool, np.bool_)):
        return np.array([value], np.bool_)
    return np.array([value], np.int64) if isinstance(value, int) else np.atleast_1d(value)


def whole(value: Any) -> int:
    """An index, which may have come out of an array."""
    return int(value[0]) if isinstance(value, np.ndarray) and value.ndim else int(value)


def spread(*values: Any) -> list[np.ndarray[Any, Any]]:
    arrays = [lanes(v) for v in values]
    count = max([a.size for a in arrays])
    return [a if a.size == count else resized(a, count) for a in arrays]


def resized(value: Any, count: int) -> np.ndarray[Any, Any]:
    """A value in so many lanes."""
    found = lanes(value)
    assert count % found.size == 0
    return found if found.size == count else found.repeat(count) if found.size == 1 else np.resize(found, count)


def elements(i: Any, gs: Any, ls: Any, length: int, groups: int) -> np.ndarray[Any, Any]:
    if length == groups == 1:
        return np.array([whole(i)])
    return (whole(i) + whole(gs) * np.arange(groups)[:, None] + whole(ls) * np.arange(length)[None, :]).reshape(-1)


def _bytes_of(pointer: Pointer, number: int, size: int) -> slice:
    start = pointer.origin + number * size
    assert start >= 0 and start + size <= pointer.data.size, f"{pointer.name}[{number}] is outside its buffer"
    return slice(start, start + size)


def _bytes_of_all(pointer: Pointer, numbers: np.ndarray[Any, Any], size: int) -> Any:
    """The places of each element's bytes."""
    if numbers.size == 1:
        return _bytes_of(pointer, int(numbers[0]), size)
    for number in (numbers.min(), numbers.max()) if numbers.size else ():
        _bytes_of(pointer, int(number), size)
    return (pointer.origin + numbers * size)[:, None] + np.arange(size)


def _check_vectors(pointer: Pointer, numbers: np.ndarray[Any, Any], length: int, size: int) -> None:
    access = min(16, length * size)
    for first in numbers[::length]:
        assert (pointer.origin + int(first) * size) % access == 0, f"{pointer.name}[{first}] is not aligned to {access}"


def load(thread: Thread, vector: str, cell: str, length: str, groups: str, masked: str | None) -> Any:
    dtype, part = CELLS[cell]

    n, m, size = int(length), int(groups), dtype.itemsize

    def function(pointer: Pointer, i: Any, gs: Any, *rest: Any) -> Any:
        numbers = elements(i, gs, 1 if vector else rest[0], n, m)
        flags = resized(rest[-1], numbers.size) if masked else slice(None)
        chosen = numbers[flags]
        if vector and chosen.size == numbers.size:
            _check_vectors(pointer, numbers, n, size)
        writer, reader, where = pointer.writer, pointer.reader, _bytes_of_all(pointer, chosen, size)
        for number in chosen.tolist():
            assert thread.sees(writer.get(number)), f"race on {pointer.name}[{number}]"
            reader[number] = thread.joined(reader.get(number))
            pointer.loads[number] += 1
        result = np.zeros(numbers.size, dtype)
        result[flags] = pointer.data[where].view(dtype).reshape(-1)
        return result if part is None else (result.real, result.imag)[part].copy()

    return function


def gather(thread: Thread, vector: str, cell: str, length: str, groups: str, masked: str | None) -> Any:
    one = load(thread, "", cell, "1", "1", None)

    def function(pointer: Pointer, i: Any, gs: Any, *rest: Any) -> Any:
        offsets = lanes(rest[-2] if masked else rest[-1])
        numbers = elements(i, gs, 1 if vector else rest[0], int(length), int(groups))
        count = max(numbers.size, offsets.size)
        flags = np.resize(lanes(rest[-1]), count) if masked and count > 1 else np.ones(count, bool)
        if vector and offsets.size == 1 and flags.all():
            _check_vectors(pointer, numbers + offsets[0], int(length), CELLS[cell][0].itemsize)
        where = np.resize(numbers, count) + np.resize(offsets, count)
        found = [one(pointer, int(k), 0, 0) if flag else None for k, flag in zip(where, flags, strict=True)]
        dtype, part = CELLS[cell]
        zero = np.zeros(1, dtype if part is None else np.zeros(0, dtype).real.dtype)
        return np.concatenate([zero if x is None else x for x in found])

    return function


def report(thread: Thread) -> Any:
    def function(pointer: Pointer, value: Any, condition: Any) -> None:
        value, condition = spread(value, condition)
        assert value.dtype == np.int64 and condition.dtype == np.bool_
        if condition.any():
            pointer.data[_bytes_of(pointer, 0, 8)] = value[condition][:1].view(np.uint8)

    return function


def atomic(thread: Thread, where: str, op: str, dtype: str) -> Any:
    def function(memory: Any, i: Any, x: Any) -> Any:
        number, kind = whole(i), DTYPES[dtype]
        assert lanes(x).dtype == kind
        cells = memory.data if where == "s" else memory.data[_bytes_of(memory, number, kind.itemsize)].view(kind)
        at = number if where == "s" else 0
        before = cells[at : at + 1].copy()
        cells[at] = before[0] + lanes(x)[0] if op == "add" else max(before[0], lanes(x)[0])
        return before

    return function


def peek(thread: Thread) -> Any:
    return lambda p, i: p.data[_bytes_of(p, whole(i), 8)].view(np.uint64).copy()


def post(thread: Thread) -> Any:
    def function(p: Pointer, i: Any, x: Any) -> None:
        assert lanes(x).dtype == np.uint64
        p.data[_bytes_of(p, whole(i), 8)] = lanes(x)[:1].view(np.uint8)

    return function


def store(thread: Thread, vector: str, cell: str, length: str, groups: str, masked: str | None) -> Any:
    dtype = DTYPES[cell]
    parts, n, m, size = 1 + (dtype.kind == "c"), int(length), int(groups), dtype.itemsize

    def function(pointer: Pointer, i: Any, gs: Any, *rest: Any) -> None:
        numbers = elements(i, gs, 1 if vector else rest[0], n, m)
        values = [resized(v, numbers.size) for v in (rest if vector else rest[1:])[:parts]]
        if dtype.kind != "c":
            assert values[0].dtype == dtype, (values[0].dtype, dtype)
        flags = resized(rest[-1], numbers.size) if masked else slice(None)
        chosen = numbers[flags]
        if vector and chosen.size == numbers.size:
            _check_vectors(pointer, numbers, n, size)
        writer, reader, where = pointer.writer, pointer.reader, _bytes_of_all(pointer, chosen, size)
        for number in chosen.tolist():
            before = writer.get(number)
            twice = not thread.sees(before) if pointer.again else before is not None
            assert not twice, f"{pointer.name}[{number}] is written twice"
            assert thread.sees(reader.get(number)), f"race on {pointer.name}[{number}]"
            writer[number] = thread.now
            pointer.stores[number] += 1
        stored = np.stack([v[flags] for v in values], 1).view(np.uint8)
        pointer.data[where] = stored[0] if chosen.size == 1 else stored

    return function


def shared(thread: Thread, dtype: str, count: str) -> Any:
    def function() -> Shared:
        if thread.calls == len(thread.shared):
            thread.shared.append(Shared(np.zeros(int(count), DTYPES[dtype])))
        found = thread.shared[thread.calls]
        thread.calls += 1
        assert found.data.size == int(count) and found.data.dtype == DTYPES[dtype]
        return found

    return function


def sload(thread: Thread, dtype: str, length: str, groups: str = "1") -> Any:
    n, m = int(length), int(groups)

    def function(memory: Shared, i: Any, gs: Any = 0, ls: Any = 1) -> Any:
        where = elements(i, gs, ls, n, m)
        for k in where.tolist():
            assert 0 <= k < memory.data.size, f"shared memory has no [{k}]"
            assert thread.sees(memory.writer.get(k)), f"shared memory [{k}] is read without a barrier"
            memory.reader[k] = thread.joined(memory.reader.get(k))
        return memory.data[where]

    return function


def cstore(thread: Thread, dtype: str) -> Any:
    """A store into the memory that another block of the cluster has under the same name."""

    def function(memory: Shared, block: Any, i: Any, value: Any) -> None:
        number = next(k for k, found in enumerate(thread.shared) if found is memory)
        first = thread.bid[0] // thread.cluster * thread.cluster
        assert 0 <= int(whole(block)) < thread.cluster
        there = thread.shared_of.setdefault(first + int(whole(block)), [])
        assert thread.together, "memory of a block that may not run yet"
        while len(there) <= number:
            mine = thread.shared[len(there)].data
            there.append(Shared(np.zeros(mine.size, mine.dtype)))
        sstore(thread, dtype, "1")(there[number], i, value)

    return function


def sstore(thread: Thread, dtype: str, length: str, groups: str = "1") -> Any:
    n, m = int(length), int(groups)

    def function(memory: Shared, i: Any, *rest: Any) -> None:
        gs, ls, value = rest if len(rest) == 3 else (0, 1, rest[0])
        where = elements(i, gs, ls, n, m)
        for k in where.tolist():
            assert 0 <= k < memory.data.size, f"shared memory has no [{k}]"
            for access in (memory.writer.get(k), memory.reader.get(k)):
                assert thread.sees(access), f"shared memory [{k}] is overwritten without a barrier"
            memory.writer[k] = thread.now
        assert lanes(value).dtype == DTYPES[dtype]
        memory.data[where] = np.resize(lanes(value), len(where))

    return function
