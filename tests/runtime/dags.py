"""Random DAGs and random Programs."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from kernelgraph.runtime.program.program import Buffer, Kernel, Program, Region, Task

KERNEL = Kernel("k", "fake", "", ())
WORD = 4  # every region is made of 4-byte elements at multiples of 4


# Random DAGs: for each task the earlier tasks that it follows.


def random_dag(rng: Random, n: int) -> list[frozenset[int]]:
    """One of several shapes: sparse or dense, layered, chains with crossings, forks and joins, or bipartite."""
    return [frozenset(p) for p in rng.choice(SHAPES)(rng, n)]


def _uniform(rng: Random, n: int) -> list[set[int]]:
    density = rng.choice([0.05, 0.15, 0.3, 0.5, 0.8]) if n < 20 else rng.choice([0.5, 1, 2, 4]) / n
    return [{p for p in range(v) if rng.random() < density} for v in range(n)]


def _layered(rng: Random, n: int) -> list[set[int]]:
    width = rng.randint(1, max(1, n // 2))
    density = rng.choice([0.3, 0.7, 1.0])
    return [
        {p for p in range(v // width * width - width, v // width * width) if p >= 0 and rng.random() < density}
        for v in range(n)
    ]


def _chains(rng: Random, n: int) -> list[set[int]]:
    width = rng.randint(1, max(1, min(n, 12)))
    result: list[set[int]] = []
    for v in range(n):
        sources = {v - width} if v >= width else set()
        if v and rng.random() < 0.2:
            sources.add(rng.randrange(v))
        result.append(sources)
    return result


def _forks(rng: Random, n: int) -> list[set[int]]:
    """Grows branches from open ends, and joins several open ends in one task, at random."""
    ends: list[int] = []
    result: list[set[int]] = []
    for v in range(n):
        if not ends or rng.random() < 0.1:
            result.append(set())
        elif rng.random() < 0.3:
            chosen = rng.sample(ends, rng.randint(1, len(ends)))
            ends = [e for e in ends if e not in chosen]
            result.append(set(chosen))
        else:
            result.append({rng.choice(ends)})
            if rng.random() < 0.6:
                ends = [e for e in ends if e not in result[-1]]
        ends.append(v)
    return result


def _bipartite(rng: Random, n: int) -> list[set[int]]:
    """Blocks of sources that all precede a block of sinks, sometimes with an edge missing."""
    result: list[set[int]] = []
    previous: list[int] = []
    while len(result) < n:
        block = range(len(result), min(n, len(result) + rng.randint(1, 5)))
        result += [{p for p in previous if rng.random() < 0.95} for _ in block]
        previous = list(block)
    return result


SHAPES = (_uniform, _layered, _chains, _forks, _bipartite)


# Random programs.


def region(buffer: int, start: int, count: int, step: int = 1) -> Region:
    return Region(buffer, start * WORD, (count,), (step * WORD,), WORD, "f32")


def program_of(preds: Sequence[frozenset[int]], rng: Random, words: Sequence[int] = (4, 40, 100, 300)) -> Program:
    """Task `v` writes a buffer of its own and reads those of `preds[v]`: these dependences. Exits are outputs."""
    read = {p for sources in preds for p in sources}
    buffers = [Buffer(64, "input")]
    tasks = []
    for v, sources in enumerate(preds):
        buffers.append(Buffer(rng.choice(words) * WORD, "temp" if v in read else "output"))
        reads = tuple(region(p + 1, 0, buffers[p + 1].nbytes // WORD) for p in sorted(sources))
        writes = (region(v + 1, 0, buffers[v + 1].nbytes // WORD),)
        tasks.append(_task(rng, v, reads or (region(0, 0, 16),), writes))
    outputs = tuple(v + 1 for v in range(len(preds)) if v not in read)
    return Program(tuple(buffers), tuple(tasks), (0,), outputs)


def _task(
    rng: Random, v: int, reads: tuple[Region, ...], writes: tuple[Region, ...], same: frozenset[int] = frozenset()
) -> Task:
    cost = rng.choice([1.0, 2.0, 5.0, 20.0])
    units = rng.choice([1, 4, 16, 100])
    return Task(f"k{v}", KERNEL, (), reads, writes, same, units=units, grid=(units, 1, 1), cost=cost, line=f"m.py:{v}")


def random_program(rng: Random, n: int) -> Program:
    """About `n` tasks: elementwise, in place, updates of slices, stencils into a second buffer, stacked branches.

    Buffers that nothing reads become outputs, with some others and every input that is written.
    """
    kinds = ["input", "input"]
    words = [rng.choice([16, 64]), rng.choice([16, 64])]
    tasks: list[Task] = []
    written_inputs: set[int] = set()

    def new() -> int:
        kinds.append("temp")
        words.append(rng.choice([4, 16, 64, 64, 200, 600]))
        return len(kinds) - 1

    def slice_of(b: int) -> Region:
        count = rng.randint(1, words[b])
        step = rng.choice([1, 1, 2, 3])
        count = max(1, min(count, (words[b] - 1) // step))
        start = rng.randint(0, words[b] - 1 - (count - 1) * step)
        return region(b, start, count, step)

    def source() -> int:
        low = 0 if rng.random() < 0.2 else max(0, len(kinds) - 8)
        return rng.randrange(low, len(kinds))

    def whole(b: int) -> Region:
        return region(b, 0, words[b])

    def sources(most: int = 3) -> tuple[Region, ...]:
        chosen = {source() for _ in range(rng.randint(1, most))}
        return tuple(whole(b) if rng.random() < 0.7 else slice_of(b) for b in sorted(chosen))

    def add(reads: tuple[Region, ...], writes: tuple[Region, ...], same: frozenset[int] = frozenset()) -> None:
        tasks.append(_task(rng, len(tasks), reads, writes, same))
        written_inputs.update(w.buffer for w in writes if kinds[w.buffer] == "input")

    while len(tasks) < n:
        match rng.choice(["map", "map", "map", "in place", "update", "stencil", "stack"]):
            case "map":
                reads = sources()
                add(reads, (whole(new()),))
            case "in place":
                target = source()
                touched = whole(target) if rng.random() < 0.5 else slice_of(target)
                others = tuple(r for r in sources(2) if r.buffer != target)
                add((touched, *others), (touched,), frozenset({target}))
            case "update":
                target = source()
                others = tuple(r for r in sources(2) if r.buffer != target)
                add(others, (slice_of(target),))
            case "stencil":
                old = source()
                if words[old] > 3:
                    kinds.append("temp")
                    words.append(words[old])
                    size = words[old] - 2
                    add(tuple(region(old, i, size) for i in range(3)), (whole(len(kinds) - 1),))
            case "stack":
                parts = rng.randint(2, 5)
                length = rng.choice([4, 16])
                apart = rng.random() < 0.5
                inputs = [sources(2) for _ in range(parts)]
                kinds.append("temp")
                words.append(parts * length)
                for i, reads in enumerate(inputs):
                    place = (i * length, length, 1) if apart else (i, length, parts)
                    add(reads, (region(len(kinds) - 1, *place),))
    read = {r.buffer for task in tasks for r in task.reads}
    touched_by = {r.buffer for task in tasks for r in (*task.reads, *task.writes)}
    for b, kind in enumerate(kinds):
        if kind == "temp" and b in touched_by and (b not in read or rng.random() < 0.1):
            kinds[b] = "output"
    if "output" not in kinds and not written_inputs:
        kinds[max(b for b in touched_by if kinds[b] == "temp")] = "output"
    outputs = [b for b, kind in enumerate(kinds) if kind == "output" or b in written_inputs]
    rng.shuffle(outputs)
    buffers = tuple(Buffer(count * WORD, kind) for count, kind in zip(words, kinds, strict=True))
    return Program(buffers, tuple(tasks), (0, 1), tuple(outputs))
