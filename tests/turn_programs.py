"""Random programs of nested loops over elements and ragged slices: triangles, recurrences, breaks, branches.

NumPy's run is the reference: values, dtypes, what was written to the arguments, IndexErrors. Numbers are small whole
ones, so that every order of a sum gives the same bits.

python -m tests.turn_programs --count 1000 --seed 1 --device cpu
"""

from __future__ import annotations

import argparse
import collections
import importlib
import random
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import kernelgraph as kg
from kernelgraph.dsl.control_flow.loops import FEW
from kernelgraph.dsl.recorded_loops.capture import LoopCapture, UserLoop
from kernelgraph.dsl.trace.trace import REPEATED, ROUTINE, KnownLoops

LENGTHS = (9, 12)
DTYPES = ("f8", "f8", "f4", "i8", "i4")
PRELUDE = """
import numpy as np


def small(x):
    return np.clip(x, -9, 9)


def sign(x):
    if x > 1:
        return 1
    if x < -1:
        return -1
    return 0


def above(x, s):
    count = 0
    for k in range(len(x)):
        if x[k] > s:
            count += 1
    return count
"""


@dataclass(frozen=True)
class Program:
    """One function of (A, B, x, y, s, n), its text, the dtypes of A, B and of x, y, and n."""

    name: str
    text: str
    dtypes: tuple[str, str]
    n: int

    def arguments(self, seed: int) -> tuple[Any, ...]:
        rng = np.random.default_rng(seed)
        square, line = self.dtypes
        matrices = (rng.integers(-4, 5, (self.n, self.n)).astype(square) for _ in range(2))
        return (*matrices, *(rng.integers(-4, 5, self.n).astype(line) for _ in range(2)), 2, self.n)


@dataclass
class _Writer:
    """Writes one function. bounds: of the names of turns, whether each is known to be below the length."""

    rng: random.Random
    lines: list[str] = field(default_factory=list)
    turns: list[str] = field(default_factory=list)
    budget: int = 9
    count: int = 0
    numbers: list[str] = field(default_factory=lambda: ["s"])
    forms: random.Random = field(default_factory=random.Random)
    comprehensions: bool = False
    kept: list[str] = field(default_factory=list)  # lists that are returned

    def add(self, indent: int, text: str) -> None:
        self.lines.append("    " * indent + text)

    def pick(self, *options: str) -> str:
        return self.rng.choice(options)

    def index(self) -> str:
        if not self.turns or self.rng.random() < 0.15:
            return self.pick("0", "1", "-1", "2", "n - 1")
        turn = self.rng.choice(self.turns)
        if self.rng.random() < 0.25:
            return self.pick(
                f"{turn} - 1", f"{turn} - n", f"n - 1 - {turn}", f"{turn} // 2", f"{turn} % 3", f"{turn} + 1"
            )
        return turn

    def bound(self) -> str:
        if not self.turns or self.rng.random() < 0.2:
            return self.pick("0", "1", "3", "n", "n - 2", "-1")
        turn = self.rng.choice(self.turns)
        return self.pick(turn, turn, f"{turn} + 1", f"{turn} + 1", f"{turn} - 1", f"n - {turn}", f"{turn} + 2")

    def slice(self) -> str:
        low, high = self.bound(), self.bound()
        return self.pick(f":{low}", f":{low}", f"{low}:", f"{low}:", f"{low}:{high}", ":")

    def vector(self, part: str | None = None) -> str:
        """An array of one axis; part: a slice, which says how long it is."""
        part = part or self.slice()
        return self.pick(
            f"x[{part}]", f"y[{part}]", f"A[{self.index()}, {part}]", f"A[{part}, {self.index()}]",
            f"B[{part}, {self.index()}]", f"B[{self.index()}, {part}]", f"B.T[{self.index()}, {part}]",
            f"np.flip(x[{part}])", f"y[{part}][::-1]",
        )  # fmt: skip

    def vectors(self, part: str, depth: int = 0) -> str:
        kind = self.rng.random()
        if depth > 1 or kind < 0.4:
            return self.vector(part)
        a, b = self.vectors(part, depth + 1), self.vectors(part, depth + 1)
        return self.pick(
            f"({a} + {b})", f"({a} - {b})", f"small({a} * {b})", f"small({a} * {self.number(2)})",
            f"np.maximum({a}, {b})",
            f"np.where({a} > {b}, {a}, {self.number(2)})", f"-{a}", f"np.abs({a})", f"({a} + {self.number(2)})",
            f"{a}.copy()", f"np.clip({a}, -3, {b})", f"np.squeeze({a}[None])", f"np.expand_dims(np.ravel({a}), 0)[0]",
            f"np.where(np.isclose({a}, {b}), {a}, {self.number(2)})", f"np.round({a})",
            f"small({a} ** {self.pick('2', '3')})", f"({a} // {self.pick('2', '-3')})",
            f"({a} % {self.pick('3', '-4')})",
        )  # fmt: skip

    def number(self, depth: int = 0) -> str:
        kind = self.rng.random()
        if depth > 1 or kind < 0.3:
            return self.pick(*self.numbers, "1", "2", "3", "0.5" if self.rng.random() < 0.3 else "-1", *self.turns[-1:])
        if kind < 0.6:
            i, j = self.index(), self.index()
            return self.pick(f"A[{i}, {j}]", f"B[{i}, {j}]", f"x[{i}]", f"y[{i}]", f"A[{i}][{j}]")
        if kind < 0.75:
            part = self.slice()
            a, b = self.vectors(part, 1), self.vectors(part, 1)
            sums = f"small({a} @ {b})", f"small(np.sum({a}))", f"small(np.dot({a}, {b}))", f"small({a}.sum())"
            sums += f"small(np.vdot({a}, {b}))", f"np.linalg.norm({a}, 1)", f"np.count_nonzero({a})"
            return self.pick(*sums, f"above({self.vector()}, {self.number(2)})")
        a, b = self.number(depth + 1), self.number(depth + 1)
        return self.pick(
            f"({a} + {b})", f"({a} - {b})", f"small({a} * {b})", f"max({a}, {b})", f"min({a}, {b})", f"abs({a})",
            f"({a} if {self.test(1)} else {b})", f"sign({a})", f"int({a})", f"float({a})",
            f"np.minimum({a}, {b})", f"small({a} ** {self.pick('2', '3')})", f"({a} // {self.pick('2', '-3')})",
        )  # fmt: skip

    def test(self, depth: int = 0) -> str:
        a, b = self.number(depth + 1), self.number(depth + 1)
        plain = self.pick(f"{a} > {b}", f"{a} <= {b}", f"{a} == {b}", f"{a} != {b}")
        if depth or self.rng.random() < 0.6:
            return plain
        i, j = self.bound(), self.bound()
        return self.pick(f"{plain} and {self.test(1)}", f"not ({plain})", f"{i} < {j}", f"{plain} or {self.test(1)}")

    def target(self) -> tuple[str, str]:
        """Part of an array to assign to, and the slice that says how long it is, if it is no element."""
        part, i, j = self.slice(), self.index(), self.index()
        kind = self.rng.random()
        if kind < 0.45:
            return self.pick(f"A[{i}, {j}]", f"B[{i}, {j}]", f"x[{i}]", f"y[{i}]"), ""
        return self.pick(f"A[{i}, {part}]", f"A[{part}, {j}]", f"x[{part}]", f"y[{part}]", f"B[{part}, {j}]"), part

    def comprehension(self, indent: int) -> None:
        """A list or a generator, and what becomes of it."""
        pick, turns, numbers = self.forms.choice, [*self.turns], [*self.numbers]
        self.count += 1
        i, j, v = (f"{letter}{self.count}" for letter in "ijv")
        ragged = pick((self.turns[-1] if self.turns else "n", f"{i} + 1", "n", "4"))
        over = f"range({pick(('n', 'n', '1, n', 'n - 1, -1, -1', '2', self.turns[-1] if self.turns else 'n'))})"
        clauses, named, items = pick((
            (f"for {i} in {over}", [i], []),
            (f"for {i} in range(n)", [i], []),
            (f"for {i}, {v} in enumerate({pick(('x', 'y[1:]', 'A[0]', 'B[:, 1]'))})", [i], [v]),
            (f"for {v}, {i} in zip({pick(('x', 'y'))}, range(n))", [i], [v]),
            (f"for {v} in {pick(('x', 'A[1]', '[1, 2]'))}", [], [v]),
            (f"for {i} in range(n) for {j} in range({ragged})", [i, j], []),
            (f"for {i} in range(3) for {j} in range(n)", [i, j], []),
        ))  # fmt: skip
        self.turns += named
        self.numbers += items
        element = self.number(1) if self.forms.random() < 0.8 else f"{self.number(1)} * {self.number(1)}"
        chosen = f" if {self.test(1)}" if self.forms.random() < 0.2 else ""
        made, name = f"{element} {clauses}{chosen}", f"l{self.count}"
        kind = self.forms.random()
        if kind < 0.25:
            self.add(indent, f"s = small({pick(('sum', 'sum', 'max', 'min'))}({pick(('{}', '[{}]')).format(made)}))")
        elif kind < 0.35:
            self.add(indent, f"t = s if {pick(('any', 'all'))}({element} > {self.number(2)} {clauses}{chosen}) else 1")
        elif kind < 0.5 and "for" not in clauses[4:]:
            self.add(indent, f"{name} = np.array([[{element} {clauses}] for {name} in range(n)])")
            self.add(indent, f"s = small({name}[{pick(('0', '-1', '1'))}].sum())")
        elif kind < 0.6:
            row = self.vectors(pick((":", "1:", ":3")), 1)
            self.add(indent, f"{name} = [{row} {clauses}]")
            self.add(indent, f"s = small({pick((f'{name}[1].sum()', f'np.stack({name})[-1, 0]', f'sum({name})[1]'))})")
        else:
            self.add(indent, f"{name} = [{made}]")
            used = (f"{name}[0]", f"{name}[-1] * 2", f"np.array({name}).sum()", f"sum({name})", f"len({name})")
            self.add(indent, f"s = small({pick((*used, f'max({name})'))})")
            self.kept += [name] if indent == 1 else []
        self.turns, self.numbers = turns, numbers

    def growing(self, indent: int) -> None:
        """A list that loops append to, and what becomes of it."""
        pick, turns, numbers = self.forms.choice, [*self.turns], [*self.numbers]
        self.count += 1
        i, j, v, name = (f"{letter}{self.count}" for letter in "ijvg")
        self.add(indent, f"{name} = {pick(('[]', '[]', '[]', '[0.0]', '[s]', '[x[0] * 1.0]'))}")
        filled = not self.lines[-1].endswith("[]")
        over = pick(("range(n)", "range(1, n)", "range(n - 1, -1, -1)", "range(0, n, 2)"))
        outer = self.turns[-1] if self.turns else "n"
        head, items = pick(((f"{i} in {over}", []), (f"{i}, {v} in enumerate(x)", [v]), (f"{i} in range({outer})", [])))
        self.add(indent, f"for {head}:")
        self.turns.append(i)
        self.numbers += items
        at = indent + 1
        if self.forms.random() < 0.2:
            self.statement(at)
        inner = pick(("", "", f"range({i})", f"range({i}, n)", "range(n)", "range(2)"))
        if inner:
            self.add(at, f"for {j} in {inner}:")
            self.turns.append(j)
            at += 1
        read = (f"{name}[-1] * 0.5", f"small({name}[-1] + {{}})") if filled else ()
        element = pick(("{}", "{}", "{} * 1.0", *read)).format(self.number(1))
        kind = self.forms.random()
        if kind < 0.15:
            self.add(at, f"if {self.test(1)}:")
            self.add(at + 1, f"{name}.append({element})")
            if self.forms.random() < 0.8:
                self.add(at, "else:")
                self.add(at + 1, f"{name}.append({self.number(1)})")
        elif kind < 0.3 and not filled:
            self.add(at, f"{name}.append({self.vectors(pick((':', '1:', ':3')), 1)})")
            element = ""
        elif kind < 0.45 and not filled:
            row = f"r{self.count}"
            self.add(at, f"{row} = []")
            self.add(at, f"for k{self.count} in {pick(('range(n)', 'x', 'range(3)', f'range({i})'))}:")
            self.add(at + 1, f"{row}.append({element})")
            self.add(at, f"{name}.append({row})")
            element = ""
        else:
            self.add(at, pick((f"{name}.append({element})", f"{name}.append({element})", f"{name} += [{element}]")))
            if self.forms.random() < 0.2:
                self.add(at, f"s = small({name}[{pick((i, '-1', '0'))}] + len({name}))")
        if self.forms.random() < 0.2:
            self.add(at, f"{name}.append({name}[-1] * 1)" if element else f"s = small(s + len({name}))")
        self.turns, self.numbers = turns, numbers
        used = (f"{name}[0]", f"{name}[-1] * 2", f"sum({name})", f"max({name})", f"sum({v} for {v} in {name})")
        whole = f"np.array({name}).sum()", f"np.stack({name}).sum()", f"len({name})"
        self.add(indent, f"s = small({pick((*used, *whole) if element else whole)})")
        self.kept += [name] if indent == 1 and element else []

    def statement(self, indent: int) -> None:
        self.budget -= 1
        if self.comprehensions and self.forms.random() < 0.3:
            if self.forms.random() < 0.5:
                self.comprehension(indent)
            else:
                self.growing(indent)
            return
        kind = self.rng.random()
        deep = len(self.turns)
        if self.budget > 0 and deep < 3 and kind < 0.22:
            self.loop(indent)
        elif self.budget > 0 and kind < 0.36 and indent < 6:
            self.add(indent, f"if {self.test()}:")
            self.inside(indent)
            if self.rng.random() < 0.4:
                self.add(indent, "else:")
                self.inside(indent)
        elif kind < 0.40 and deep:
            self.add(indent, f"if {self.test()}:")
            self.add(indent + 1, self.pick("break", "continue"))
        elif kind < 0.55:
            name = self.pick("s", "t", "u")
            if name in self.numbers and self.rng.random() < 0.3:
                self.add(indent, f"{name} {self.pick('+', '-')}= {self.number()}")
                self.add(indent, f"{name} = small({name})")
            elif name in self.numbers and self.rng.random() < 0.6:
                self.add(indent, f"{name} = small({name} {self.pick('+', '-')} {self.number()})")
            else:
                self.add(indent, f"{name} = {self.number()}")
        elif kind < 0.62:
            i, j = self.bound(), self.bound()
            block = f"{i}:, {j}:"
            self.add(
                indent,
                f"A[{block}] {self.pick('+=', '-=', '=')} {self.pick(f'B[{block}]', f'small(A[{block}] * 2)', '1')}",
            )
        elif kind < 0.68:
            i, part = self.index(), self.slice()
            whole = self.pick(f"A[:, {part}].T @ x", "A @ x", "x @ B", f"A[{part}] @ y")
            goal = f"x[{part}]" if part in whole else "y[:]"
            self.add(indent, f"{goal} = small({whole})")
        elif kind < 0.74:
            part = self.slice()
            self.add(indent, f"w = {self.vectors(part)}")
            self.add(indent, f"{self.pick('x', 'y')}[{part}] = small(w + w)")
        else:
            target, part = self.target()
            if part and self.rng.random() < 0.3:  # a view, perhaps of the same memory
                self.add(indent, f"{target} = {self.vector(part)}")
                return
            value = self.vectors(part) if part and self.rng.random() < 0.8 else self.number()
            if self.rng.random() < 0.5:
                self.add(indent, f"{target} = small({value})")
            else:
                self.add(indent, f"{target} {self.pick('+', '-')}= {value}")
                self.add(indent, f"{target} = small({target})")

    def inside(self, indent: int) -> None:
        known = [*self.numbers]
        for _ in range(self.rng.choice((1, 2, 2, 3))):
            self.statement(indent + 1)
        self.numbers = known

    def form(self, indent: int, name: str, span: str) -> None:
        """The head of a loop over more than a range."""
        item, other = f"v{self.count}", f"j{self.count}"
        line = self.forms.choice(
            ("x", "y", "x[1:]", "y[::-1]", "A[0]", "B[:, 1]", f"A[{self.turns[-1]}]" if self.turns else "x")
        )
        head, turns, numbers = self.forms.choice((
            (f"{name}, {item} in enumerate({line})", [name], [item]),
            (f"{item} in {line}", [], [item]),
            (f"{item} in reversed({line})", [], [item]),
            (f"{name} in reversed(range({span}))", [name], []),
            (f"{name}, {item} in zip(range({span}), {line})", [name], [item]),
            (f"{item}, {name} in zip({line}, range(n - 1, -1, -2))", [name], [item]),
            (f"{name}, ({item}, {other}) in enumerate(zip({line}, range({span})))", [name, other], [item]),
            (f"{name}, {other} in np.ndindex(3, n - 1)", [name, other], []),
            (f"{name}, {other} in np.ndindex(A.shape)", [name, other], []),
            (f"{name}, r{self.count} in enumerate(A[:, 1:])", [name], []),
        ))  # fmt: skip
        self.add(indent, f"for {head}:")
        if head.endswith("(A[:, 1:])"):
            self.add(indent + 1, f"r{self.count}[1:] {self.forms.choice(('=', '+='))} small(r{self.count}[:-1])")
        self.turns += turns
        self.numbers += numbers

    def loop(self, indent: int) -> None:
        self.count += 1
        name = f"i{self.count}"
        if self.rng.random() < 0.1 and self.turns:
            counter = f"k{self.count}"
            self.add(indent, f"{counter} = 0")
            self.add(indent, f"while {counter} < {self.pick('4', self.turns[-1])} and {self.test(1)}:")
            self.add(indent + 1, f"{counter} += 1")
            self.inside(indent)
            return
        if not self.turns:
            span = self.pick("n", "n", "1, n", "n - 1", "n - 1, -1, -1", "n - 1, 0, -1")
        else:
            outer = self.rng.choice(self.turns)
            span = self.pick(
                "n", outer, f"{outer} + 1", f"{outer}, n", f"{outer} + 1, n", f"{outer} - 1, -1, -1", "0, n, 2",
                f"{outer}, n, 3", "3", f"n - {outer}",
            )  # fmt: skip
        turns, numbers = [*self.turns], [*self.numbers]
        if self.forms.random() < 0.3:
            self.form(indent, name, span)
        else:
            self.add(indent, f"for {name} in range({span}):")
            self.turns.append(name)
        self.inside(indent)
        self.turns, self.numbers = turns, numbers
        if self.rng.random() < 0.1:
            self.add(indent, "else:")
            self.add(indent + 1, "s = small(s + 1)")


def programs(seed: int, count: int, comprehensions: bool = False) -> Iterator[Program]:
    """Random programs: the same for the same seed."""
    for number in range(count):
        rng = random.Random(f"{seed} {number}")
        writer = _Writer(rng, forms=random.Random(f"{seed} {number} forms"), comprehensions=comprehensions)
        name = f"program_{seed}_{number}"
        writer.add(0, f"def {name}(A, B, x, y, s, n):")
        writer.add(1, "t = u = 1")
        writer.numbers += ["t", "u"]
        for _ in range(rng.choice((1, 1, 2))):
            if rng.random() < 0.5:
                writer.add(1, rng.choice(("s = x[1] * 1", "t = np.float64(s) + y[2]", "x = x + 0", "A = A.T.copy()")))
            if comprehensions:
                writer.comprehension(1)
            if not comprehensions or rng.random() < 0.6:
                writer.loop(1)
        writer.add(1, ", ".join(["return A, x, s, t", *writer.kept]))
        yield Program(name, "\n".join(writer.lines), (rng.choice(DTYPES), rng.choice(DTYPES)), rng.choice(LENGTHS))


def recorded() -> AbstractContextManager[list[KnownLoops]]:
    """Sees to it that loops are recorded however short the trace is; what is known of those of each specialisation."""
    return _captured(_AtOnce)


def repeated() -> AbstractContextManager[list[KnownLoops]]:
    """Sees to it that the bodies of loops are traced once, as a graph, however short the trace is."""
    return _captured(_RepeatedAtOnce)


def captured_late() -> AbstractContextManager[list[KnownLoops]]:
    """Sees to it that loops go back after a few turns, however short the trace is."""
    return _captured(_Noting, FEW=2, LONG=4, SURE=12, MANY=24, LOOKS=2)


class _Noting(LoopCapture):
    notes: list[KnownLoops]

    def _captured(self, loop: UserLoop, way: str) -> Any:
        if all(self.known is not known for known in self.notes):
            self.notes.append(self.known)
        return super()._captured(loop, way)


class _AtOnce(_Noting):
    forced, few = ROUTINE, FEW  # the turns of loops that are not captured

    def _way_at_once(self, loop: UserLoop, ways: list[str]) -> str | None:
        if (loop.count or 0) <= self.few or loop.site in self.known.at_once:
            return super()._way_at_once(loop, ways)
        return self.forced if self.forced in ways else REPEATED if REPEATED in ways else None


class _RepeatedAtOnce(_AtOnce):
    forced, few = REPEATED, 2


@contextmanager
def _captured(kind: type[_Noting], **constants: int) -> Iterator[list[KnownLoops]]:
    kind.notes = []
    capture: Any = importlib.import_module("kernelgraph.dsl.recorded_loops.capture")
    before = {name: getattr(capture, name) for name in ("LoopCapture", *constants)}
    vars(capture).update(constants, LoopCapture=kind)
    try:
        yield kind.notes
    finally:
        vars(capture).update(before)


def outcome(function: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[str, list[Any]]:
    """The kind of error, if one was raised, and all values afterwards."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            given = function(*arguments)
            lists = [np.array(len(r)) for r in given if isinstance(r, list)]
            results = [np.asarray(e) for r in given for e in (r if isinstance(r, list) else [r])] + lists
    except kg.KernelGraphError as error:
        return f"refused: {error}", []
    except Exception as error:
        return type(error).__name__, []
    return "", [*results, *(np.asarray(a) for a in arguments if isinstance(a, np.ndarray))]


def difference(got: tuple[str, list[Any]], want: tuple[str, list[Any]]) -> str:
    """In words, how two outcomes differ; nothing where they do not. An int may be a float of its value."""
    if got[0] != want[0]:
        return f"{got[0] or 'no error'} for {want[0] or 'no error'}"
    for i, (a, b) in enumerate(zip(got[1], want[1], strict=False)):
        if a.shape != b.shape or (a.dtype != b.dtype and (a.ndim or a.dtype.kind == b.dtype.kind == "f")):
            return f"value {i} is {a.dtype}{list(a.shape)} for {b.dtype}{list(b.shape)}"
        if not np.array_equal(a, b, equal_nan=not {a.dtype, b.dtype} & {np.dtype(object)}):  # ints beyond 64 bits
            return f"value {i} differs:\n{a}\n{b}"
    return ""


def load(programs: list[Program], folder: Path) -> dict[str, Callable[..., Any]]:
    """Their functions, from a file."""
    path = folder / f"{programs[0].name}.py"
    text = PRELUDE + "\n\n" + "\n\n\n".join(p.text for p in programs) + "\n"
    path.write_text(text)
    scope: dict[str, Any] = {"__name__": path.stem}
    exec(compile(text, str(path), "exec"), scope)
    return scope


def in_columns(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """The same values, the elements of columns side by side."""
    return tuple(np.asfortranarray(a) if isinstance(a, np.ndarray) else a for a in arguments)


def check(
    seed: int, count: int, device: str = "cpu", comprehensions: bool = False, late: bool = False
) -> tuple[list[str], collections.Counter[str]]:
    """What went wrong, in words, and how often each thing happened."""
    wrong: list[str] = []
    seen: collections.Counter[str] = collections.Counter()
    made = [*programs(seed, count, comprehensions)]
    with tempfile.TemporaryDirectory() as folder, captured_late() if late else recorded() as notes:
        scope = load(made, Path(folder))
        for p in made:
            notes.clear()
            plain = scope[p.name]
            ours = kg.kernel_graph(plain, device=device)
            for turn in range(2):
                want = outcome(plain, p.arguments(turn))
                try:
                    got = outcome(ours, p.arguments(turn))
                except BaseException as error:
                    if isinstance(error, KeyboardInterrupt):
                        raise
                    got = f"internal {traceback.format_exc()}", []
                if got[0].startswith("refused"):
                    seen["refused"] += 1
                    seen[f"refused, since {got[0][:150]}"] += 1
                    break
                said = difference(got, want)
                if said and difference(outcome(plain, in_columns(p.arguments(turn))), want):
                    seen["NumPy's own answer depends on memory"] += 1  # where an assignment overlaps itself
                    break
                if said:
                    wrong.append(f"{p.text}\n# {p.dtypes} n={p.n} arguments {turn}: {said}")
                    break
            reasons = [r for n in notes for r in n.reasons.values()]
            seen["recorded" if notes and not reasons else "in part"] += 1
            seen.update(f"because {r}" for r in reasons)
    return wrong, seen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--comprehensions", action="store_true", help="with lists and generators in them")
    parser.add_argument("--late", action="store_true", help="loops are captured after a few turns")
    given = parser.parse_args()
    start = time.perf_counter()
    wrong, seen = check(given.seed, given.count, given.device, given.comprehensions, given.late)
    print("\n\n".join(wrong))
    for what, times in seen.most_common():
        print(times, what)
    print(f"{len(wrong)} wrong of {given.count}, {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
