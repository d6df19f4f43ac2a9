"""Random functions with `while`, each row of whose arguments takes as many turns as it decides, under `kg.vmap`.

NumPy's run of the rows one by one is the reference, to the bit: values, dtypes, IndexErrors, and arguments that stay as
they were.

python -m tests.ensemble_programs --count 1000 --seed 1 --device cpu
"""

from __future__ import annotations

import argparse
import collections
import random
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import kernelgraph as kg
from kernelgraph.runtime.program.program import Kernel, Library

ROWS = (1, 7, 70, 150)
PRELUDE = "import numpy as np\n"


@dataclass(frozen=True)
class Program:
    """One function of a row (x, v, m) and of what all rows share (s, u): a number, three numbers, a number of turns; a
    number and a table. rows: how many there are."""

    name: str
    text: str
    dtype: str
    rows: int

    def arguments(self, seed: int) -> tuple[Any, ...]:
        rng = np.random.default_rng(seed)
        x = (rng.normal(size=self.rows) * 4).astype(self.dtype)
        v = rng.normal(size=(self.rows, 3)).astype(self.dtype)
        s = np.dtype(self.dtype).type(rng.normal())
        return x, v, rng.integers(0, 12, self.rows), s, rng.normal(size=5).astype(self.dtype)


@dataclass
class _Writer:
    """Writes one function. turns: the counters of the loops around; table: whether it looks up the table by a value."""

    rng: random.Random
    table: bool
    lines: list[str] = field(default_factory=list)
    turns: list[str] = field(default_factory=list)
    budget: int = 10

    def add(self, indent: int, text: str) -> None:
        self.lines.append("    " * indent + text)

    def pick(self, *options: str) -> str:
        return self.rng.choice(options)

    def number(self, depth: int = 0) -> str:
        if depth > 1 or self.rng.random() < 0.3:
            leaf = self.pick("a", "b", "a", "b", "s", "0.5", "2.0", "1.5", f"w[{self.rng.randrange(3)}]", "k")
            return f"u[{self.pick('k % 5', '-(k % 5)', '-k % 5')}]" if self.table and self.rng.random() < 0.4 else leaf
        p, q = self.number(depth + 1), self.number(depth + 1)
        return self.pick(
            f"({p} + {q})", f"({p} - {q})", f"0.5 * ({p} * {q})", f"({p}) / (1.0 + abs({q}))", f"np.sqrt(abs({p}))",
            f"np.minimum({p}, {q})", f"np.maximum({p}, {q})", f"abs({p})", f"-({p})", "np.max(w)", "np.min(w)",
            f"np.where({p} < {q}, {q}, 1.0)", "(w[0] + w[1] + w[2])",
        )  # fmt: skip

    def vector(self, depth: int = 0) -> str:
        if depth > 1 or self.rng.random() < 0.3:
            return self.pick("w", "w", "w[::-1]", "u[1:4]", "np.stack([a * one, b * one, w[0]])")
        p, q = self.vector(depth + 1), self.vector(depth + 1)
        return self.pick(
            f"({p} + {q})", f"0.5 * ({p} - {q})", f"{p} * ({self.number(1)})", f"np.abs({p})", f"np.minimum({p}, {q})",
            f"np.where({p} > {q}, {p}, 0.25)", f"{p} / (1.0 + np.abs({q}))",
        )  # fmt: skip

    def condition(self) -> str:
        return self.pick(
            f"{self.number(1)} < {self.number(1)}", f"abs({self.number(1)}) > 0.75",
            f"k % {self.rng.randrange(2, 5)} == 0", "a < b and k > 2", "not (a > 1.0)",
        )  # fmt: skip

    def block(self, indent: int) -> None:
        for _ in range(self.rng.randrange(1, 4)):
            self.statement(indent)

    def statement(self, indent: int) -> None:
        self.budget -= 1
        kind = self.rng.random() if self.budget > 0 else 0.0
        if kind < 0.35:
            self.add(indent, f"{self.pick('a', 'b')} = {self.number()} * one")
        elif kind < 0.5:
            self.add(indent, f"w = {self.vector()} * one")
        elif kind < 0.6:
            self.add(indent, f"w[{self.rng.randrange(3)}] = {self.number()}")
        elif kind < 0.66:
            self.add(indent, f"k = {self.pick('k + 1', 'k * 3 % 17', 'k // 2', 'k - m')}")
        elif kind < 0.8:
            self.add(indent, f"if {self.condition()}:")
            self.block(indent + 1)
            if self.rng.random() < 0.5:
                self.add(indent, "else:")
                self.block(indent + 1)
        elif kind < 0.87:
            self.add(indent, f"for i in range({self.rng.randrange(1, 4)}):")
            self.add(indent + 1, f"{self.pick('a', 'b')} = ({self.number()} + i) * one")
        elif kind < 0.95 and len(self.turns) < 2:
            self.loop(indent)
        else:
            self.leave(indent)

    def leave(self, indent: int) -> None:
        self.add(indent, f"if {self.condition()}:")
        leaves = self.pick("break", "continue") if self.turns else f"a = {self.number(1)} * one"
        self.add(indent + 1, leaves)

    def loop(self, indent: int) -> None:
        turn = f"n{len(self.turns)}"
        self.add(indent, f"{turn} = 0")
        most = self.pick("m", "m", "m // 2", "9")
        test = self.pick("", "", f"abs({self.number(1)}) > 1e-3 and ", f"{self.condition()} and ")
        self.add(indent, f"while {test}{turn} < {most}:")
        self.add(indent + 1, f"{turn} = {turn} + 1")
        self.turns.append(turn)
        self.block(indent + 1)
        self.turns.pop()


def programs(seed: int, count: int) -> Iterator[Program]:
    rng = random.Random(seed)
    for number in range(count):
        writer = _Writer(rng, rng.random() < 0.2)
        name = f"row_{seed}_{number}"
        writer.add(0, f"def {name}(x, v, m, s, u):")
        writer.add(1, "one = abs(x) * 0.0 + 1.0  # a product with it is no number of Python's")
        writer.add(1, "a, b, k, w = x * one, s * one, m * 1, v * one")
        if rng.random() < 0.3:
            writer.statement(1)
        writer.loop(1)
        if rng.random() < 0.3:
            writer.statement(1)
        writer.add(1, "return " + rng.choice(["a, b, k, w", "a, w", "b, k", "a, k, w * b"]))
        yield Program(name, "\n".join(writer.lines), rng.choice(["f8", "f8", "f8", "f4"]), rng.choice(ROWS))


def outcome(run: Callable[[], Any]) -> tuple[str, list[Any]]:
    """The kind of error, if one was raised, and the results."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return "", [np.asarray(r) for r in run()]
    except kg.KernelGraphError as error:
        return f"refused: {error}", []
    except Exception as error:
        return type(error).__name__, []


def by_rows(function: Callable[..., Any], arguments: tuple[Any, ...]) -> list[Any]:
    """The function for each row in turn, the results stacked."""
    rows = [function(*(a if axis is None else a[i] for a, axis in zip(arguments, (0, 0, 0, None, None), strict=True)))
            for i in range(len(arguments[0]))]  # fmt: skip
    return [np.stack([np.asarray(r) for r in part]) for part in zip(*rows, strict=True)]


def difference(got: tuple[str, list[Any]], want: tuple[str, list[Any]]) -> str:
    """In words, how two outcomes differ; nothing where they do not."""
    if got[0] != want[0]:
        return f"{got[0] or 'no error'} for {want[0] or 'no error'}"
    for i, (a, b) in enumerate(zip(got[1], want[1], strict=True)):
        if a.shape != b.shape or a.dtype != b.dtype:
            return f"value {i} is {a.dtype}{list(a.shape)} for {b.dtype}{list(b.shape)}"
        if not np.array_equal(a, b, equal_nan=True):
            bad = np.nonzero(~((a == b) | ((a != a) & (b != b))))[0]
            return f"value {i} differs in rows {bad[:5]}:\n{a[bad[:5]]}\n{b[bad[:5]]}"
    return ""


def load(made: list[Program], folder: Path) -> dict[str, Callable[..., Any]]:
    """Their functions, from a file."""
    path = folder / f"{made[0].name}.py"
    path.write_text(PRELUDE + "\n\n" + "\n\n\n".join(p.text for p in made) + "\n")
    scope: dict[str, Any] = {"__name__": path.stem}
    exec(compile(path.read_text(), str(path), "exec"), scope)
    return scope


def check(seed: int, count: int, device: str = "cpu") -> tuple[list[str], collections.Counter[str]]:
    """What went wrong, in words, and how often each thing happened."""
    wrong: list[str] = []
    seen: collections.Counter[str] = collections.Counter()
    made = [*programs(seed, count)]
    with tempfile.TemporaryDirectory() as folder:
        scope = load(made, Path(folder))
        for p in made:
            ours = kg.kernel_graph(kg.vmap(scope[p.name], (0, 0, 0, None, None)), device=device, untraceable="refuse")
            for turn in range(2):
                arguments, before = p.arguments(turn), p.arguments(turn)
                want = outcome(partial(by_rows, scope[p.name], p.arguments(turn)))
                got = outcome(partial(ours, *arguments))
                if got[0].startswith("refused"):
                    seen["refused"] += 1
                    seen[f"refused, since {got[0][:150]}"] += 1
                    break
                said = difference(got, want)
                if not said and not all(np.array_equal(a, b) for a, b in zip(arguments, before, strict=True)):
                    said = "an argument was written to"
                if said:
                    wrong.append(f"{p.text}\n# {p.dtype}, {p.rows} rows, arguments {turn}: {said}")
                    break
                seen["an error" if want[0] else "in kernels" if kernels(ours, arguments) else "in part"] += 1
    return wrong, seen


def kernels(ours: Any, arguments: tuple[Any, ...]) -> bool:
    """Whether all of it runs without loops of tasks, or of rows in NumPy."""
    try:
        tasks = ours.program(*arguments).tasks
    except kg.KernelGraphError:
        return False
    return all(isinstance(task.kernel, (Kernel, Library)) for task in tasks)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    given = parser.parse_args()
    start = time.perf_counter()
    wrong, seen = check(given.seed, given.count, given.device)
    print("\n\n".join(wrong))
    for what, times in seen.most_common():
        print(times, what)
    print(f"{len(wrong)} wrong of {given.count}, {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
