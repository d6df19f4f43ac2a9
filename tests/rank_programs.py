"""Random programs over ranks of other histories, with arguments that may differ: NumPy's answer or one PlanError.

    python -m tests.rank_programs COUNT [SEED]                                   ranks are threads
    python -m kernelgraph.run -n 3 -m tests.rank_programs COUNT [SEED]           ranks are processes, of one launch

A program is a list of calls that all ranks make. Between them a rank alone may trace a function again, only plan a call
of it, or change a number that it reads; over MPI one rank has an empty disk cache, and another tries no plans. In half
of the programs one rank makes one call in another way (shape, dtype, operation, axis, root, function, axes of results),
once more, or not at all. What a rank was given and got is written down, and judged afterwards from all ranks' notes.
"""

from __future__ import annotations

import functools
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

import kernelgraph as kg
from tests.rank_cases import dtype_named

SHAPES = ((12,), (12, 2), (2, 12), (24,), (3, 4), (4, 3), (12, 30), (30, 12), (240, 60), ())
DTYPES = ("int8", "uint8", "int16", "float16", "bfloat16", "int32", "float32", "int64", "float64", "complex64")
JOINS: dict[str, np.ufunc] = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}
TIMEOUT = 20.0


@dataclass(frozen=True)
class Call:
    """What all ranks call, and what of it they must agree on. into: along which axis what is exchanged is joined; out:
    the axis of results; split: the axis of a whole argument, of which each rank takes its part; rows: of a call that
    takes any shape, this rank's."""

    kind: str
    shape: tuple[int, ...]
    dtype: str
    op: str = "sum"
    axis: int = 0
    into: int = 0
    root: int = 0
    out: int | None = None
    split: int | None = None
    rows: int = 0

    @property
    def key(self) -> Call:
        names = {"all_reduce": ("op",), "total": (), "two": ("op",), "all_gather": ("axis",), "twice": ("op",)}
        names |= {"reduce_scatter": ("op", "axis"), "broadcast": ("root",), "all_to_all": ("axis", "into")}
        names |= {"permute": ("root",), "pair": ("op", "axis"), "own all_reduce": ("op",), "own broadcast": ("root",)}
        read = {name: getattr(self, name) for name in names.get(self.kind, ())}
        if self.kind == "barrier":
            return Call("barrier", (), "int8")
        shape = () if self.kind == "total" else self.shape
        return Call(self.kind, shape, self.dtype, out=self.out, split=self.split, **read)


# on a mesh, what each rank runs on its own array
BODIES: dict[str, Callable[[Any, Any, Call, int], Any]] = {
    "all_reduce": lambda x, y, c, n: [kg.all_reduce(x, c.op)],
    "total": lambda x, y, c, n: [kg.all_reduce(x.sum(dtype=x.dtype))],
    "two": lambda x, y, c, n: [kg.all_reduce(x, c.op), kg.all_reduce(np.negative(x[::-1]), c.op)],
    "twice": lambda x, y, c, n: [kg.all_reduce(kg.all_reduce(x, c.op) + x, c.op)],
    "pair": lambda x, y, c, n: [kg.all_reduce(x, c.op), kg.all_gather(y, c.axis)],
    "all_gather": lambda x, y, c, n: [kg.all_gather(x, c.axis)],
    "reduce_scatter": lambda x, y, c, n: [kg.reduce_scatter(x, c.op, c.axis)],
    "broadcast": lambda x, y, c, n: [kg.broadcast(x, c.root)],
    "all_to_all": lambda x, y, c, n: [kg.all_to_all(x, c.axis, c.into)],
    "permute": lambda x, y, c, n: [kg.permute(x, [(r, (r + c.root) % n) for r in range(n)])],
}
# of the program itself
OWN: dict[str, Callable[[Any, Call], Any]] = {
    "own all_reduce": lambda x, c: kg.distributed.all_reduce(x, c.op),
    "own all_gather": lambda x, c: kg.distributed.all_gather(x),
    "own broadcast": lambda x, c: kg.distributed.broadcast(x, c.root),
    "barrier": lambda x, c: np.zeros(0) if kg.distributed.barrier() is None else x,
}


def joined(op: str, given: Sequence[Any]) -> Any:
    dtype = given[0].dtype
    wide = np.dtype(np.float32) if dtype.itemsize == 2 and dtype.kind in "fV" else dtype
    return functools.reduce(JOINS[op], [x.astype(wide) for x in given]).astype(dtype)


def wanted(call: Call, given: Sequence[Any], others: Sequence[Any]) -> list[list[Any]]:
    """Each rank's results. others: second arguments."""
    size, kind = len(given), call.kind
    if kind == "pair":
        return [[joined(call.op, given), np.concatenate(others, call.axis)]] * size
    if kind in ("all_reduce", "own all_reduce"):
        return [[joined(call.op, given)]] * size
    if kind == "total":
        return [[joined("sum", [x.sum(dtype=x.dtype) for x in given])]] * size
    if kind == "two":
        return [[joined(call.op, given), joined(call.op, [np.negative(x[::-1]) for x in given])]] * size
    if kind == "twice":
        first = joined(call.op, given)
        return [[joined(call.op, [first + x for x in given])]] * size
    if kind == "all_gather":
        return [[np.concatenate(given, call.axis)]] * size
    if kind == "reduce_scatter":
        return [[part] for part in np.split(joined(call.op, given), size, call.axis)]
    if kind in ("broadcast", "own broadcast"):
        return [[given[call.root]]] * size
    if kind == "all_to_all":
        pieces = [np.split(x, size, call.axis) for x in given]
        return [[np.concatenate([p[r] for p in pieces], call.into)] for r in range(size)]
    if kind == "permute":
        return [[given[(r - call.root) % size]] for r in range(size)]
    return [[np.zeros(0) if kind == "barrier" else np.array(given)]] * size


def makes_sense(call: Call, size: int) -> bool:
    dims, dtype = len(call.shape), dtype_named(call.dtype)
    if call.op in ("max", "min") and dtype.kind == "c":
        return False
    if not dims and call.kind not in ("all_reduce", "broadcast", "permute", "total") and call.kind not in OWN:
        return False
    if dims and not (call.axis < dims and call.into < dims):
        return False
    if call.split is not None and (not dims or call.kind in OWN or call.kind == "total"):
        return False
    shared = call.kind in ("reduce_scatter", "all_to_all")
    if shared and call.shape[call.axis] % size:
        return False
    return call.root < size and (call.out is None or (call.out < dims and call.kind in BODIES and call.kind != "total"))


def draw_call(rng: random.Random, size: int, out: bool) -> Call:
    while True:
        kind = rng.choice([*BODIES, *BODIES, *OWN])
        call = Call(
            kind, rng.choice(SHAPES), rng.choice(DTYPES), rng.choice([*JOINS]), rng.randrange(2), rng.randrange(2),
            rng.randrange(size), rng.choice([None, None, 0, 1]) if out and kind in BODIES else None,
            rng.choice([None, None, 0]),
        )  # fmt: skip
        if makes_sense(call, size):
            return call


def draw_other(rng: random.Random, call: Call, size: int) -> Call:
    """The call in another way, on which ranks cannot agree."""
    while True:
        name = rng.choice(["kind", "shape", "shape", "dtype", "dtype", "op", "axis", "into", "root", "out", "split"])
        values: dict[str, Sequence[Any]] = {
            "kind": [*BODIES, *OWN], "shape": SHAPES, "dtype": DTYPES, "op": [*JOINS], "axis": (0, 1), "into": (0, 1),
            "root": range(size), "out": (None, 0, 1), "split": (None, 0),
        }  # fmt: skip
        other = replace(call, **{name: rng.choice(values[name])})
        alike = name != "dtype" or dtype_named(other.dtype).itemsize == dtype_named(call.dtype).itemsize
        if name == "shape" and rng.random() < 0.7:
            alike = np.prod(other.shape) == np.prod(call.shape)
        if alike and makes_sense(other, size) and other.key != call.key:
            return other
        if call.kind == "barrier":
            return Call("own all_reduce", (12,), "float64")


@dataclass
class Step:
    """calls: of each rank. acts: what each does before. later: whether results are read only at the end; chained:
    whether the argument is what the last call gave, if it fits."""

    calls: list[list[Call]]
    acts: list[list[str]]
    later: bool = False
    chained: bool = False


@dataclass
class Program:
    text: str
    size: int
    steps: list[Step]


ACTS = ("trace again", "plan only", "another number", "warm", "wait")


def draw(seed: int, size: int | None = None) -> Program:
    rng = random.Random(seed)
    size = size or rng.randint(2, 4)
    shifted = rng.random() < 0.2
    pool = [draw_call(rng, size, not shifted) for _ in range(rng.randint(1, 3))]
    steps = []
    for _ in range(rng.randint(2, 6)):
        call = rng.choice(pool)
        calls = [[replace(call, rows=rng.randint(1, 4)) if call.kind == "total" else call] for _ in range(size)]
        acts = [rng.sample(ACTS, rng.randint(1, 2)) if rng.random() < 0.35 else [] for _ in range(size)]
        steps.append(Step(calls, acts, rng.random() < 0.4, rng.random() < 0.3))
    for _ in range(rng.randint(0, 2)):
        step, rank = rng.choice(steps), rng.randrange(size)
        if shifted:
            step.calls[rank] = rng.choice([[], step.calls[rank] * 2])
        elif len(step.calls[rank]) == 1:
            step.calls[rank] = [draw_other(rng, step.calls[rank][0], size)]
    count = [sum(len(step.calls[r]) for step in steps) for r in range(size)]
    pads = [[Call("barrier", (), "int8")] * (max(count) - n) for n in count]
    steps.append(Step(pads, [[] for _ in range(size)]))
    return Program(f"seed {seed}, {size} ranks", size, steps)


def data(call: Call, number: int, rank: int) -> Any:
    """Small whole numbers, whose sums and products are exact."""
    rng = np.random.default_rng([number, rank])
    shape = (call.rows, 2) if call.kind == "total" else call.shape
    return np.asarray(rng.integers(0, 3, shape)).astype(dtype_named(call.dtype))


@dataclass
class Note:
    """What a rank came to: on what it must agree, what it gave (None: nothing that could be read), what it got."""

    key: Any
    given: Any
    other: Any = None
    got: Any = None
    error: str = ""
    number: int = 1


@dataclass
class Rank:
    """A rank that runs a program. number: by which the functions multiply what they are given."""

    program: Program
    rank: int = field(default_factory=kg.distributed.rank)
    number: int = 1
    notes: list[Note] = field(default_factory=list)
    functions: dict[Call, Any] = field(default_factory=dict)
    unread: list[tuple[Note, Any]] = field(default_factory=list)
    last: Any = None  # the result before

    def run(self) -> list[Note]:
        for place, step in enumerate(self.program.steps):
            for call in step.calls[self.rank]:
                self.act(step.acts[self.rank], call)
                self.call(call, place, step)
        for note, results in self.unread:
            self.read(note, results)
        return self.notes

    def act(self, acts: Sequence[str], call: Call) -> None:
        if call.kind in OWN:
            return
        for act in acts:
            if act == "trace again":
                self.functions.pop(call, None)
            elif act == "plan only":
                self.function(call).plan(*self.arguments(call, 0))
            elif act == "another number":
                self.number = 3 - self.number
            elif act == "wait":
                time.sleep(0.002)
            elif self.unread:
                self.read(*self.unread.pop(0))

    def function(self, call: Call) -> Any:
        if call not in self.functions:
            body, size, state = BODIES[call.kind], self.program.size, self

            def run(x: Any, y: Any) -> Any:
                return body(x * state.number, y, call, size)

            mesh = kg.Mesh(size)
            axes = (call.split, None)
            self.functions[call] = kg.kernel_graph(run, mesh=mesh, in_axes=axes, out_axes=call.out, device=None)
        return self.functions[call]

    def arguments(self, call: Call, place: int) -> tuple[Any, Any]:
        """Of a call on a mesh."""
        own = data(call, place, self.rank)
        if call.split is None:
            return own, own
        return np.concatenate([data(call, place, r) for r in range(self.program.size)], call.split), own

    def call(self, call: Call, place: int, step: Step) -> None:
        given = other = data(call, place, self.rank)
        argument, second = self.arguments(call, place)
        if step.chained and call.kind in BODIES and (call.kind == "pair" or call.split is None) and self.fits(given):
            try:
                before = self.last.parts[0].numpy()
            except kg.PlanError:
                before = None
            if call.kind == "pair":
                second, other = self.last, before
            else:
                argument, given, other = self.last, before, before
        number = self.number if call.kind in BODIES else 1
        factor = given.dtype.type(number) if given is not None else None
        note = Note(call.key, None if given is None else given * factor, other, number=number)
        self.notes.append(note)
        try:
            made = OWN[call.kind](given, call) if call.kind in OWN else self.function(call)(argument, second)
        except kg.PlanError as error:
            note.error, self.last = str(error), None
            return
        results = made if isinstance(made, list) else [made]
        self.last = results[0]
        if call.out is not None or not step.later:
            self.read(note, results)
        else:
            self.unread.append((note, results))
        if call.out is not None and not note.error:
            self.read_whole(results[0])

    def fits(self, given: Any) -> bool:
        """Whether the result before may take the place of an argument."""
        if not isinstance(self.last, kg.Sharded) or self.last.axis is not None:
            return False
        return bool(self.last.parts[0].shape == given.shape and self.last.dtype == given.dtype)

    def read(self, note: Note, results: Sequence[Any]) -> None:
        try:
            note.got = [x.parts[0].numpy() if isinstance(x, kg.Sharded) else x for x in results]
        except kg.PlanError as error:
            note.error = str(error)

    def read_whole(self, result: Any) -> None:
        """What lies in parts, which is another collective."""
        own = result.parts[0].numpy()
        note = Note(("read", result.shape, str(result.dtype), result.axis), own, own)
        self.notes.append(note)
        try:
            note.got = [result.numpy()]
        except kg.PlanError as error:
            note.error = str(error)


def judge(program: Program, notes: Sequence[Sequence[Note]]) -> Iterator[str]:
    """What is wrong with what the ranks came to."""
    if len({len(each) for each in notes}) > 1:
        yield f"{program.text}: ranks came to {[len(each) for each in notes]} collectives"
    for place, each in enumerate(zip(*notes, strict=False)):
        first = each[0]
        errors = [note.error for note in each]
        text = f"{program.text}, collective {place}, {first.key}"
        agreed = all(note.key == first.key for note in each) and all(
            note.given is not None and note.other is not None for note in each
        )
        if not agreed:
            if not all(errors):
                yield f"{text}: no PlanError on all, though they differ: {[n.key for n in each]}, {errors}"
            continue
        several = isinstance(first.key, Call) and first.key.kind == "two"
        if several and len({note.number for note in each}) > 1 and all(errors):
            continue  # whose functions are not the same may send in another order
        if any(errors):
            yield f"{text}: PlanError, though they agree: {errors}"
            continue
        given = [note.given for note in each]
        if isinstance(first.key, Call):
            want = wanted(first.key, given, [note.other for note in each])
        else:
            want = [[np.concatenate(given, first.key[-1])]] * len(given)
        for rank, note in enumerate(each):
            for got, right in zip(note.got, want[rank], strict=True):
                got = np.asarray(got)
                if got.dtype != right.dtype or got.shape != right.shape or got.tobytes() != right.tobytes():
                    yield f"{text}: rank {rank} has {got.dtype}{got.shape} {got.ravel()[:4]}, not {right.ravel()[:4]}"


def on_threads(program: Program) -> list[str]:
    """What is wrong with a program whose ranks are threads."""

    def live() -> list[Note]:
        with kg.device("cpu"):
            return Rank(program).run()

    try:
        with kg.override(collective_timeout=TIMEOUT):
            return [*judge(program, kg.distributed.run_threads(program.size, live))]
    except Exception as error:
        return [f"{program.text}: {type(error).__name__}: {error}"]


def on_processes(count: int, seed: int) -> list[str]:
    """The same of programs of one launch, which rank 0 judges."""
    from mpi4py import MPI

    kg.distributed.init()
    world, wrong, rank = MPI.COMM_WORLD.Dup(), list[str](), kg.distributed.rank()
    with ExitStack() as stack:
        if rank == 1:
            stack.enter_context(kg.override(cache_dir=stack.enter_context(tempfile.TemporaryDirectory())))
        stack.enter_context(kg.override(collective_timeout=TIMEOUT, tune=rank != 0))
        stack.enter_context(kg.device("cpu"))
        for number in range(seed, seed + count):
            program = draw(number, kg.distributed.size())
            notes = world.gather(Rank(program).run())
            wrong += judge(program, notes) if notes is not None else ()
    return wrong


def main(count: int, seed: int = 0) -> int:
    start = time.time()
    if "OMPI_COMM_WORLD_SIZE" in os.environ:
        wrong, where = on_processes(count, seed), f"processes, {kg.distributed.size()} ranks"
        if kg.distributed.rank():
            return 0
    else:
        wrong, where = [], "threads"
        for number in range(seed, seed + count):
            wrong += on_threads(draw(number))
    for text in wrong[:20]:
        print(text[:600])
    seeds = len({text.split(",")[0].split(":")[0] for text in wrong})
    print(f"{count} programs from seed {seed} on {where}: {seeds} wrong, {time.time() - start:.0f} s")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
