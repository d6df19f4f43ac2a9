"""Random functions that assign to their arguments; while a call writes, somebody else changes all other elements.

Each step of a function is an assignment as NumPy users write it (a key, a mask, index arrays, `out=`, a view). Beside
each stands which elements it assigns to. A call must leave what NumPy leaves there, and elsewhere what the other one
has put: it is let in when results are about to be written.

    python -m tests.argument_writes --count 10000 --seed 1
"""

from __future__ import annotations

import argparse
import random
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import kernelgraph as kg
from kernelgraph.dsl.jit import launcher
from kernelgraph.dsl.jit.launcher import Launcher

Host = np.ndarray[Any, Any]
ROWS, COLUMNS = 5, 6
SENTINEL = 77


def of_base(make: Callable[[Host], Host], rows: int, columns: int) -> Callable[[Host], Host]:
    """An array of such a layout with the values of one of (ROWS, COLUMNS), in the middle of a larger array."""

    def laid_out(values: Host) -> Host:
        base = np.zeros((rows + 2, columns + 2), values.dtype)
        view = make(base[1:-1, 1:-1])
        view[...] = values
        return view

    return laid_out


def unaligned(values: Host) -> Host:
    memory = np.zeros(values.nbytes + 1, np.uint8)[1:]
    view = memory.view(values.dtype).reshape(values.shape)
    view[...] = values
    return view


LAYOUTS: dict[str, Callable[[Host], Any]] = {
    "C": lambda a: a.copy(),
    "F": lambda a: np.asfortranarray(a),
    "part": of_base(lambda b: b, ROWS, COLUMNS),
    "steps": of_base(lambda b: b[::2, ::3], 2 * ROWS, 3 * COLUMNS),
    "reversed": of_base(lambda b: b[::-1, ::-1], ROWS, COLUMNS),
    "transposed": of_base(lambda b: b.T, COLUMNS, ROWS),
    "swapped": lambda a: a.astype(a.dtype.newbyteorder(">")),
    "unaligned": unaligned,
    "row": lambda a: a[0].copy(),
    "column": lambda a: np.asfortranarray(a).copy("C")[:, 1],
    "number": lambda a: np.array(a[0, 0]),
    "empty": lambda a: a[:0].copy(),
    "kg": lambda a: kg.asarray(a, device="cpu"),
    "kg row": lambda a: kg.asarray(a[0], device="cpu"),
    "kg held": lambda a: kg.asarray(a, device="cpu"),
}
DTYPES = ("f8", "f4", "i8", "i4", "i1", "u2", "?", "c16", "f2")

Key = Any
KEYS: dict[int, tuple[Key, ...]] = {
    0: ((), ...),
    1: (
        0, -1, slice(None), slice(1, 3), slice(None, None, 2), slice(None, None, -1), slice(4, 1, -2), slice(3, 3),
        ..., None, (None, slice(1, None)), (slice(0, 2), None), (..., 1),
    ),
    2: (
        0, -2, (1, 2), (-1, -1), slice(1, 3), slice(None, None, -2), slice(None), (slice(None), 1),
        (slice(None), slice(1, -1)), (slice(1, -1), slice(None, None, 3)), (..., 0), (0, ...), (None, 1),
        (slice(0, 2), None, slice(2, 4)), (slice(3, None, -1), slice(None, None, -1)), (slice(2, 2), slice(None)), ...,
    ),
}  # fmt: skip
INDICES: dict[int, tuple[Key, ...]] = {
    1: (np.array([1, 3]), np.array([-1, 0, -1]), np.array([[0, 1], [2, 2]]), np.array([], np.int64)),
    2: (
        np.array([1, 3]), (np.array([0, 2]), np.array([1, -1])), (slice(None), np.array([0, 2])),
        (np.array([[0], [2]]), np.array([1, 3])), (2, np.array([0, 1, 0])), (slice(1, 4, 2), np.array([-1, 1])),
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Step:
    """kind: a row of `STEPS`; key, other: where; value: what is assigned; op: an operation."""

    kind: str
    key: Any = None
    other: Any = None
    value: str = "number"
    op: str = "add"

    def __str__(self) -> str:
        return f"{self.kind} x[{self.key}] [{self.other}] {self.value} {self.op}".replace("\n", "")


def value_of(step: Step, x: Any, part: Any, y: Any, n: Any) -> Any:
    """What a step assigns to a part of x."""
    if step.value == "number":
        return 3
    if step.value == "scalar":
        return n
    if step.value == "argument":
        return y.reshape(-1)[:1] if np.ndim(part) else y.reshape(-1)[0]
    if step.value == "same":
        return part
    if step.value == "sum":
        return (x.sum() % 5).astype(x.dtype)
    if step.value == "reversed":
        return part[::-1] if np.ndim(part) else part
    return part + part


def basic(x: Any, y: Any, n: Any, s: Step) -> None:
    x[s.key] = value_of(s, x, x[s.key], y, n)


def changed(x: Any, y: Any, n: Any, s: Step) -> None:
    value = value_of(s, x, x[s.key], y, n)
    if s.op == "add":
        x[s.key] += value
    elif s.op == "multiply":
        x[s.key] *= value
    else:
        x[s.key] = np.maximum(x[s.key], value)


def out(x: Any, y: Any, n: Any, s: Step) -> None:
    np.add(x[s.key], 1, out=x[s.key], casting="unsafe")


def swap(x: Any, y: Any, n: Any, s: Step) -> None:
    x[0], x[-1] = x[-1].copy(), x[0].copy()


def moved(x: Any, y: Any, n: Any, s: Step) -> None:
    x[0], x[-1] = x[-1], x[0]


def shifted(x: Any, y: Any, n: Any, s: Step) -> None:
    x[1:] = x[:-1]


def through(x: Any, y: Any, n: Any, s: Step) -> None:
    view = x[s.key]
    view[...] = value_of(s, x, view, y, n)


def transposed(x: Any, y: Any, n: Any, s: Step) -> None:
    x.T[s.key] = value_of(s, x, x.T[s.key], y, n)


def flat(x: Any, y: Any, n: Any, s: Step) -> None:
    x.flat[1:5:2] = 3


def flat_element(x: Any, y: Any, n: Any, s: Step) -> None:
    x.flat[3] = n


def reshaped(x: Any, y: Any, n: Any, s: Step) -> None:
    x.reshape(-1)[2:9] = 4


def masked(x: Any, y: Any, n: Any, s: Step) -> None:
    x[chosen(x)] = 3 if s.value != "scalar" else n


def masked_part(x: Any, y: Any, n: Any, s: Step) -> None:
    part = x[1:]
    part[chosen(part)] = 3


def masked_itself(x: Any, y: Any, n: Any, s: Step) -> None:
    x[chosen(x)] += 1


def masked_out(x: Any, y: Any, n: Any, s: Step) -> None:
    np.add(x, 1, out=x, where=chosen(x), casting="unsafe")


def masked_copy(x: Any, y: Any, n: Any, s: Step) -> None:
    np.copyto(x, y.reshape(-1)[:1], where=chosen(x))


def put_back(x: Any, y: Any, n: Any, s: Step) -> None:
    x[...] = np.where(chosen(x), x, 4).astype(x.dtype)


def chosen(x: Any) -> Any:
    return abs(x * 1) > 2


def indexed(x: Any, y: Any, n: Any, s: Step) -> None:
    x[s.other] = value_of(s, x, x[s.other], y, n)


def added_at(x: Any, y: Any, n: Any, s: Step) -> None:
    np.add.at(x, s.other, np.ones((), x.dtype))


def put(x: Any, y: Any, n: Any, s: Step) -> None:
    np.put(x, np.array([1, -1]), 3)


def diagonal(x: Any, y: Any, n: Any, s: Step) -> None:
    np.fill_diagonal(x, 3)


def row_sorted(x: Any, y: Any, n: Any, s: Step) -> None:
    x[1].sort()


def real_part(x: Any, y: Any, n: Any, s: Step) -> None:
    x.real[1:] = 3


def whole(x: Any, y: Any, n: Any, s: Step) -> None:
    x[...] = x * 2


def filled(x: Any, y: Any, n: Any, s: Step) -> None:
    x.fill(5)


def rows_in_turn(x: Any, y: Any, n: Any, s: Step) -> None:
    for i in range(1, x.shape[0], 2):
        x[i] = x[i - 1] + 1


def decided(x: Any, y: Any, n: Any, s: Step) -> None:
    if y.sum() > 0:
        x[0] = 3
    else:
        x[1] = 4


def keyed(mark: Host, x: Any, s: Step) -> None:
    mark[s.key] = True


def rows(*which: int) -> Callable[[Host, Any, Step], None]:
    def mark_rows(mark: Host, x: Any, s: Step) -> None:
        for i in which:
            mark[i] = True

    return mark_rows


def flatly(key: Any) -> Callable[[Host, Any, Step], None]:
    return lambda mark, x, s: mark.flat.__setitem__(key, True)


def everywhere(mark: Host, x: Any, s: Step) -> None:
    mark[...] = True


def where_chosen(mark: Host, x: Any, s: Step) -> None:
    mark[chosen(x)] = True


Do = Callable[[Any, Any, Any, Step], None]
Marks = Callable[[Host, Any, Step], None]
# kind -> what it does, the elements that it assigns to, of how many axes
STEPS: dict[str, tuple[Do, Marks, tuple[int, ...]]] = {
    "key": (basic, keyed, (0, 1, 2)),
    "changed": (changed, keyed, (1, 2)),
    "out": (out, keyed, (1, 2)),
    "through": (through, keyed, (1, 2)),
    "swap": (swap, rows(0, -1), (2,)),
    "moved": (moved, rows(0, -1), (2,)),
    "shifted": (shifted, lambda mark, x, s: mark.__setitem__(slice(1, None), True), (1, 2)),
    "transposed": (transposed, lambda mark, x, s: mark.T.__setitem__(s.key, True), (2,)),
    "flat": (flat, flatly(slice(1, 5, 2)), (1, 2)),
    "flat element": (flat_element, flatly(3), (1, 2)),
    "reshaped": (reshaped, flatly(slice(2, 9)), (2,)),
    "masked": (masked, where_chosen, (0, 1, 2)),
    "masked part": (masked_part, lambda mark, x, s: mark[1:].__setitem__(chosen(x[1:]), True), (1, 2)),
    "masked itself": (masked_itself, where_chosen, (1, 2)),
    "masked out": (masked_out, where_chosen, (0, 1, 2)),
    "masked copy": (masked_copy, where_chosen, (0, 1, 2)),
    "put back": (put_back, lambda mark, x, s: mark.__setitem__(~chosen(x), True), (1, 2)),
    "indexed": (indexed, lambda mark, x, s: mark.__setitem__(s.other, True), (1, 2)),
    "added at": (added_at, lambda mark, x, s: mark.__setitem__(s.other, True), (1, 2)),
    "put": (put, flatly([1, -1]), (1, 2)),
    "diagonal": (diagonal, lambda mark, x, s: np.fill_diagonal(mark, True), (2,)),
    "row sorted": (row_sorted, rows(1), (2,)),
    "real part": (real_part, lambda mark, x, s: mark.__setitem__(slice(1, None), True), (2,)),
    "whole": (whole, everywhere, (0, 1, 2)),
    "filled": (filled, everywhere, (0, 1, 2)),
    "rows in turn": (rows_in_turn, lambda mark, x, s: mark.__setitem__(slice(1, None, 2), True), (1, 2)),
    "decided": (decided, rows(0, 1), (2,)),
}
VALUES = ("number", "scalar", "argument", "same", "sum", "reversed", "twice")
RESULTS: dict[str, Callable[[Any], Any]] = {
    "nothing": lambda x: None,
    "itself": lambda x: x,
    "sum": lambda x: x.sum(),
    "copy": lambda x: x + 0,
    "part": lambda x: x[..., :1] if np.ndim(x) else x * 1,
}


@dataclass(frozen=True)
class Case:
    layout: str
    dtype: str
    steps: tuple[Step, ...]
    result: str = "nothing"

    def __str__(self) -> str:
        return f"{self.layout} {self.dtype}: " + "; ".join(map(str, self.steps)) + f" -> {self.result}"

    @property
    def axes(self) -> int:
        return {"row": 1, "column": 1, "kg row": 1, "number": 0}.get(self.layout, 2)

    def function(self, x: Any, y: Any, n: Any) -> Any:
        for step in self.steps:
            STEPS[step.kind][0](x, y, n, step)
        return RESULTS[self.result](x)


def drawn(seed: int, number: int) -> Case:
    pick = random.Random(f"{seed}:{number}")
    case = Case(pick.choice(list(LAYOUTS)), pick.choice(DTYPES), (), pick.choice(list(RESULTS)))
    kinds = [kind for kind, (_, _, axes) in STEPS.items() if case.axes in axes]
    steps = []
    for _ in range(pick.choice((1, 1, 2, 3, 5))):
        kind = pick.choice(kinds)
        key, other = pick.choice(KEYS[case.axes]), pick.choice(INDICES.get(case.axes, (0,)))
        steps.append(Step(kind, key, other, pick.choice(VALUES), pick.choice(("add", "multiply", "most"))))
    return replace(case, steps=tuple(steps))


def table() -> Iterator[Case]:
    """Each step with each key that it has, on layouts in turn."""
    layouts = {axes: [name for name in LAYOUTS if Case(name, "f8", ()).axes == axes] for axes in (0, 1, 2)}
    turn = 0
    for kind, (_, _, ranks) in STEPS.items():
        for axes in ranks:
            for key in KEYS[axes] if kind in ("key", "changed", "out", "through", "transposed") else KEYS[axes][:1]:
                others = INDICES.get(axes, (None,)) if kind in ("indexed", "added at") else (None,)
                for other in others:
                    turn += 1
                    layout = layouts[axes][turn % len(layouts[axes])]
                    value = VALUES[turn % len(VALUES)]
                    yield Case(layout, DTYPES[turn % 3], (Step(kind, key, other, value),), [*RESULTS][turn % 5])


def arguments(case: Case, turn: int) -> tuple[Any, Any, Any]:
    values = np.random.default_rng(turn).integers(0, 6, (ROWS, COLUMNS))
    dtype = np.dtype(case.dtype)
    return values.astype(dtype), np.array([2 - 2 * turn, 1]).astype(dtype), dtype.type(turn % 2)


def in_numpy(case: Case, layout: str, turn: int) -> tuple[Any, Host, Host]:
    """The result or the error's type, the argument afterwards, and which elements were assigned."""
    values, y, n = arguments(case, turn)
    name = layout.removesuffix(" held").removeprefix("kg ").replace("kg", "C")
    x = LAYOUTS[name](values)
    mark = np.zeros(x.shape, bool)
    try:
        for step in case.steps:
            do, marks, _ = STEPS[step.kind]
            marks(mark, x, step)
            do(x, y, n, step)
        result: Any = RESULTS[case.result](x)
    except Exception as error:
        result = type(error)
    return np.array(result) if not isinstance(result, type) else result, x, mark


class Other:
    """Somebody else, who changes the elements of an array that a call does not assign to."""

    def __init__(self) -> None:
        self.x: Any = None
        self.mark: Any = None
        self.came = False

    def comes(self) -> None:
        if self.x is not None and not self.came:
            self.came = True
            self.x[~self.mark] = SENTINEL

    def write_back(self, *args: Any) -> None:
        self.comes()
        _WRITE_BACK(*args)

    def ndarray(self, *args: Any) -> Any:
        self.comes()
        return np.ndarray(*args)


_WRITE_BACK = launcher.write_back_to_arguments


@contextmanager
def other_writer() -> Iterator[Other]:
    other = Other()
    launcher.write_back_to_arguments = other.write_back  # type: ignore[assignment]
    try:
        yield other
    finally:
        launcher.write_back_to_arguments = _WRITE_BACK


def wrong(case: Case, calls: int = 3) -> str:
    """What a case does wrong; empty where nothing."""
    with other_writer() as other, warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        f = kg.kernel_graph(case.function, device="cpu")
        for turn in range(calls):
            expected, reference, mark = in_numpy(case, case.layout, turn % 2)
            values, y, n = arguments(case, turn % 2)
            x = LAYOUTS[case.layout](values)
            held = np.asarray(x) if case.layout == "kg held" else None
            base = x if isinstance(x, kg.Array) or x.base is None else x.base
            original, around = np.array(x), np.array(base)
            other.x, other.mark, other.came = x, mark, False
            for entry in f._versions.entries.values():
                if isinstance(entry, Launcher) and hasattr(entry.fast, "__globals__"):
                    entry.fast.__globals__["ndarray"] = other.ndarray
            try:
                result: Any = f(x, y, n)
                result = np.array(result)
            except kg.UnsupportedError:
                return ""
            except Exception as error:
                result = type(error)
            came, other.x = other.came, None
            after = np.asarray(x)
            if isinstance(expected, type) or isinstance(result, type):
                kinds = [
                    next((k for k in (IndexError, TypeError, ValueError) if issubclass(e, k)), e)
                    for e in (expected, result)
                    if isinstance(e, type)
                ]
                if len({*kinds}) != 1 or len(kinds) != 2:
                    return f"call {turn}: {expected} expected, {result} came"
                continue
            if not np.array_equal(after[mark], reference[mark], equal_nan=True):
                return f"call {turn}:\n{reference}\nexpected\n{after}\ncame"
            rest = np.full((), SENTINEL).astype(after.dtype) if came else reference[~mark]
            if not (after[~mark] == rest).all():
                return f"call {turn}: elements were written that are not assigned:\n{mark}\n{after}"
            itself = case.result == "itself"  # of which the other has changed parts
            if not itself and not np.array_equal(result, expected, equal_nan=result.dtype.kind in "fc"):
                return f"call {turn}: {expected} expected, {result} came"
            if held is not None and not np.array_equal(held, original):
                return f"call {turn}: what was read before has changed"
            if base is not x:
                x[...] = original
                if not np.array_equal(base, around):
                    return f"call {turn}: memory around the argument was written"
    return ""


def smaller(case: Case) -> Case:
    """The case without the steps that are not needed for what is wrong."""
    for i in range(len(case.steps)):
        less = replace(case, steps=case.steps[:i] + case.steps[i + 1 :])
        if less.steps and wrong(less):
            return smaller(less)
    return case


def explore(count: int, seed: int, show: int = 10, first: int = 0) -> list[tuple[Case, str]]:
    found = []
    for number in range(first, first + count):
        case = drawn(seed, number)
        text = wrong(case)
        if text:
            if len(found) < show:
                case = smaller(case)
                print(f"# {number}: {case}\n{wrong(case)}\n", flush=True)
            found.append((case, text))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0)
    given = parser.parse_args()
    found = explore(given.count, given.seed, first=given.first)
    print(f"{given.count} functions, {len(found)} wrong")
    raise SystemExit(1 if found else 0)


if __name__ == "__main__":
    main()
