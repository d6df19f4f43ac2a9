"""A value that turns hand on in a variable is the one that they would have handed on through memory."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph.compiler.sequential.evaluate import evaluate_routine
from kernelgraph.compiler.sequential.form import Block, For, Let, Routine, blocks_in_routine_statement
from kernelgraph.compiler.sequential.forwarding import routine_with_stores_forwarded
from tests.turn_programs import Program, load, recorded


def routine_of(function: Any, *args: Any) -> Routine:
    with recorded():
        nodes = kg.kernel_graph(function, device="cpu").graph(*args).nodes
    (routine,) = {n.attr("routine") for n in nodes if n.op == "sequential"}
    return routine


def given_to(routine: Routine, seed: int) -> list[Any]:
    rng = np.random.default_rng(seed)
    return [rng.integers(-4, 5, a.shape).astype(a.dtype) for a in routine.arrays if a.role in ("in", "inout")]


def same(routine: Routine, other: Routine) -> bool:
    given = given_to(routine, 1)
    both = zip(evaluate_routine(routine, given), evaluate_routine(other, given), strict=True)
    return all(np.array_equal(a, b, equal_nan=a.dtype.kind == "f") for a, b in both)


def loads_of_turns(block: Block) -> Iterator[int]:
    """How many elements a turn of each innermost loop loads."""
    for s in block:
        inner = [x for b in blocks_in_routine_statement(s) for x in b]
        if isinstance(s, For) and not any(isinstance(x, For) for x in inner):
            yield sum(isinstance(x, Let) and x.instr.op == "load" for x in inner)
        yield from loads_of_turns(tuple(inner))


def summed(x: Any) -> Any:
    for i in range(1, len(x)):
        x[i] = x[i] + x[i - 1]
    return x


def filtered(x: Any) -> Any:
    y = np.zeros_like(x)
    for i in range(2, len(x)):
        y[i] = x[i] - 2 * y[i - 1] + y[i - 2]
    return y


def backwards(x: Any) -> Any:
    for i in range(len(x) - 3, -1, -1):
        x[i] = x[i] - x[i + 1] * x[i + 2]
    return x


def multiplied(x: Any) -> Any:
    found = np.zeros_like(x)
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            for k in range(x.shape[0]):
                found[i, j] += x[i, k] * x[k, j]
    return found


def table(x: Any) -> Any:
    for i in range(1, x.shape[0]):
        for j in range(1, x.shape[1]):
            x[i, j] = min(x[i - 1, j] + 1, x[i, j - 1] + 1, x[i - 1, j - 1] + x[i, j])
    return x


def until_large(x: Any) -> Any:
    for i in range(1, len(x)):
        x[i] = x[i] + x[i - 1]
        if x[i] > 3:
            break
    return x


@pytest.mark.parametrize(
    ("function", "shape", "saved"),
    [(summed, (20,), 1), (filtered, (20,), 2), (backwards, (20,), 2), (multiplied, (12, 12), 1), (table, (12, 12), 1)],
)
def test_what_turns_hand_on_is_not_loaded(function: Any, shape: tuple[int, ...], saved: int) -> None:
    """saved: the loads that a turn of the innermost loop does without."""
    routine = routine_of(function, np.ones(shape))
    forwarded = routine_with_stores_forwarded(routine)
    before, now = (max(loads_of_turns(r.body)) for r in (routine, forwarded))
    assert same(routine, forwarded) and before - now == saved


def other_place(x: Any) -> Any:
    for i in range(1, len(x)):
        x[i] = x[i - 1] + x[0]
        x[0] = x[i]
    return x


def moving_with_values(x: Any) -> Any:
    for i in range(1, len(x) - 9):
        x[i + int(x[0])] = x[i - 1 + int(x[0])] + 1
    return x


def in_a_branch(x: Any) -> Any:
    for i in range(1, len(x)):
        if x[i] > 0:
            x[i] = x[i] + x[i - 1]
    return x


@pytest.mark.parametrize("function", [other_place, moving_with_values, in_a_branch])
def test_what_may_have_changed_is_loaded(function: Any) -> None:
    routine = routine_of(function, np.ones(20))
    assert same(routine, routine_with_stores_forwarded(routine))


@pytest.mark.parametrize("n", [0, 1, 2, 3, 9])
@pytest.mark.parametrize("function", [summed, filtered, backwards, until_large])
def test_loops_of_few_turns_touch_nothing_else(function: Any, n: int) -> None:
    """Also where there is no turn, and nothing that it could load."""
    with recorded():
        ours = kg.kernel_graph(function, device="cpu")
        mine, plain = np.arange(1.0, n + 1), np.arange(1.0, n + 1)
        assert np.array_equal(np.asarray(ours(mine)), function(plain)) and np.array_equal(mine, plain)


def random_recurrence(number: int) -> Program:
    """Sums of elements near the turn's, in nested loops; some turns end early."""
    rng = random.Random(number)

    def element(depth: int) -> str:
        at = [f"{rng.choice(('i', 'j')[:depth])} + {rng.randrange(-3, 4)}" for _ in range(2)]
        return rng.choice([f"x[{at[0]}]", f"y[{at[0]}]", f"A[{at[0]}, {at[1]}]"])

    def turn(depth: int) -> list[str]:
        lines = []
        for _ in range(rng.randrange(1, 4)):
            target = element(depth)
            lines.append(f"{target} = {' + '.join(element(depth) for _ in range(rng.randrange(1, 4)))} - {target}")
        if rng.random() < 0.3:
            test, what = element(depth), rng.choice(["break", "continue"])
            lines.insert(rng.randrange(len(lines) + 1), f"if {test} > 2: {what}")
        return lines

    def loop(name: str) -> str:
        return rng.choice([f"for {name} in range(3, n - 3):", f"for {name} in range(n - 4, 2, -1):"])

    lines = [f"def recurrence_{number}(A, B, x, y, s, n):", "    " + loop("i")]
    lines += ["        " + line for line in (turn(1) if rng.random() < 0.6 else [])]
    lines += ["        " + loop("j"), *("            " + line for line in turn(2))]
    return Program(f"recurrence_{number}", "\n".join([*lines, "    return A, x, y"]), ("int64", "int64"), 20)


def test_random_recurrences_mean_what_they_meant() -> None:
    made, changed = [random_recurrence(n) for n in range(160)], 0
    with tempfile.TemporaryDirectory() as folder, recorded():
        scope = load(made, Path(folder))
        for p in made:
            nodes = kg.kernel_graph(scope[p.name], device="cpu").graph(*p.arguments(0)).nodes
            for routine in {n.attr("routine") for n in nodes if n.op == "sequential"}:
                forwarded = routine_with_stores_forwarded(routine)
                changed += forwarded is not routine
                assert same(routine, forwarded), f"{p.text}\n{routine}\n{forwarded}"
    assert changed > 20
