"""Errors that values decide: raised where Python raises them, once, whoever catches them, and nowhere else."""

from __future__ import annotations

import itertools
import math
import textwrap
import warnings
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph.dsl.jit.launcher import OFTEN

from .error_table import COUNT, OPERATIONS, cases, function_of, outcome, wrong_calls

PARTS = 601  # of the table's functions every so many-th is run here; all of them by `python -m ...error_table`


@pytest.mark.parametrize("part", range(4))
def test_every_error_in_every_place_is_that_of_python(part: int) -> None:
    assert COUNT > 15000
    assert not [text for case in cases(part * 149, PARTS) for text in wrong_calls(*case)]


@pytest.mark.parametrize("operation", OPERATIONS)
def test_what_may_not_run_in_numpy_raises_or_refuses(operation: str) -> None:
    for place in ("if", "body of a while", "behind a raise"):
        assert not [*wrong_calls(operation, place, "nothing", False, refuse=True)]


# what else a function does with indices of which nobody needs the elements
USES_OF_INDICES = (
    "np.sort(s)", "s @ s", "np.cumsum(s)", "sum(s[i % 2] * x[i % 4] for i in range(40))", "np.bincount(s % 9)",
    "np.arange(9.0)[s]", "np.take(np.arange(9), s)", "np.take_along_axis(np.arange(10.0), s, 0)", "x[s[1]]",
    "x[s] if x[0] > 0 else x[:2]", "x[s[0]] * 2 if x[0] > 0 else 1.0", "np.where(x[:2] > 5, x[s], 0.0)", "x[s] + 1",
    "put(np.zeros(10), s)", "put(np.zeros((10, 2)), (s, 0))", "put(np.zeros((2, 10)), (slice(None), s))",
    "put(x * 1, s)",
)  # fmt: skip


def put(y: Any, key: Any) -> Any:
    y[key] = 1
    return y


@pytest.mark.parametrize("condition", ["True", "x[1] > 0", "x[1] < 0"])
@pytest.mark.parametrize("use", USES_OF_INDICES)
def test_an_index_that_nobody_needs_raises_whatever_else_is_made_of_it(use: str, condition: str, tmp_path: Any) -> None:
    path = tmp_path / "unused.py"
    path.write_text(f"def f(x, s):\n    if {condition}:\n        x[s]\n    return {use}\n")
    scope: dict[str, Any] = {"np": np, "put": put}
    exec(compile(path.read_text(), str(path), "exec"), scope)
    compiled = kg.kernel_graph(scope["f"], device="cpu")
    for first, s in itertools.product((0.5, -0.5), ([1, 2], [7, 1], [3, 7], [-4, 0])):
        x, outcomes = np.array([first, 1.0, 2.0, 3.0]), []
        for f in (compiled, scope["f"]):
            try:
                outcomes.append(np.asarray(f(x, np.array(s))).tolist())
            except IndexError:
                outcomes.append("IndexError")
        assert outcomes[0] == outcomes[1], (first, s)


def test_a_call_that_meets_an_error_costs_the_next_ones_nothing() -> None:
    """One that fails runs again in NumPy, and is the only one."""

    def chosen(x: Any, i: Any) -> Any:
        try:
            return x[i[0]]
        except IndexError:
            return -1.0

    compiled = kg.kernel_graph(chosen, device="cpu")
    x = np.arange(3.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for i in (1, 7, 2, -3, -4):
            assert float(compiled(x, np.array([i]))) == chosen(x, np.array([i]))
    assert "runs in NumPy" not in compiled.why()


def test_a_function_that_catches_errors_call_by_call_runs_in_numpy_with_one_warning() -> None:
    def chosen(x: Any, i: Any) -> Any:
        try:
            return x[i[0]]
        except IndexError:
            return -1.0

    compiled = kg.kernel_graph(chosen, device="cpu")
    with pytest.warns(UserWarning, match="often catches an error that values decide") as caught:
        for _ in range(OFTEN + 9):
            assert float(compiled(np.arange(3.0), np.array([7]))) == -1
        assert float(compiled(np.arange(3.0), np.array([1]))) == 1
    assert len(caught) == 1


def looked_up(table: Any, x: Any, i: Any) -> Any:
    table["calls"] = table["calls"] + 1
    try:
        return table["rows"][0][i[0]] * x
    except IndexError:
        table["rows"].append(x)
        x[0] = 5.0
        table["rows"][0][1] = 9.0
        return -x


@pytest.mark.parametrize("first", [7, 1])
def test_arrays_in_lists_and_dicts_of_a_call_that_runs_in_numpy_stay_what_they_are(first: int) -> None:
    compiled = kg.kernel_graph(looked_up, device="cpu")
    for i in (first, 1, 7):
        plain, x = {"calls": 0, "rows": [np.arange(3.0)]}, np.arange(3.0)
        wanted = looked_up(plain, x, np.array([i]))
        row, y = kg.asarray(np.arange(3.0), device="cpu"), kg.asarray(np.arange(3.0), device="cpu")
        table = {"calls": 0, "rows": [row]}
        np.testing.assert_array_equal(compiled(table, y, np.array([i])), wanted)
        np.testing.assert_array_equal(y, x)
        np.testing.assert_array_equal(row, plain["rows"][0])
        assert table["calls"] == 1 and table["rows"][0] is row and all(z is y for z in table["rows"][1:])
        assert len(table["rows"]) == len(plain["rows"])


@pytest.mark.parametrize("handler", ["its handler", "nothing", "a bare handler", "else"])
def test_a_name_that_a_recorded_loop_leaves_unbound_raises_where_nothing_uses_it(handler: str) -> None:
    for writes in (False, True):
        assert not [*wrong_calls("name", "long for without use", handler, writes)]


def test_the_error_is_pythons_own_and_names_the_line() -> None:
    def positive(x: Any) -> Any:
        if x[0] < 0:
            raise ValueError("negative", x[0], x)
        return x + 1

    compiled, x = kg.kernel_graph(positive, device="cpu"), np.array([-2.0, 1.0])
    with pytest.raises(ValueError) as caught:
        compiled(x)
    assert caught.value.args[:2] == ("negative", -2.0) and caught.value.args[2] is x
    assert any("test_errors_of_values.py" in note for note in caught.value.__notes__)
    assert caught.value.__context__ is None


def test_what_was_written_before_an_error_stays_in_arrays_of_the_librarys_own() -> None:
    def counted(x: Any, i: Any) -> Any:
        x += 1
        if x[i[0]] > 2:
            x[0] = 9
            raise ValueError("large")
        x += 1

    compiled = kg.kernel_graph(counted, device="cpu")
    for make in (np.array, kg.asarray):
        x = make([1.0, 2.0, 3.0])
        for i, kind, wanted in ((0, None, [3, 4, 5]), (0, ValueError, [9, 5, 6]), (5, IndexError, [10, 6, 7])):
            if kind is None:
                compiled(x, np.array([i]))
            else:
                with pytest.raises(kind):
                    compiled(x, np.array([i]))
            np.testing.assert_array_equal(x, wanted)


def test_a_loop_of_known_numbers_that_is_not_reached_may_have_no_end() -> None:
    def counted(x: Any, step: int) -> Any:
        k = 0
        if x[0] > 0:
            while k < 6:
                k += step
        return k

    def taken(x: Any) -> Any:
        if x[0] > 0:
            for i in itertools.count():
                if i > 5 * x.shape[0]:
                    return i
        return -1

    compiled = kg.kernel_graph(counted, device="cpu", untraceable="numpy")
    assert [int(compiled(np.array([x]), step)) for x, step in ((-1.0, 0), (1.0, 4), (-1.0, 4))] == [0, 8, 0]
    assert int(kg.kernel_graph(taken, device="cpu", untraceable="numpy")(np.array([1.0]))) == 6


def test_a_loop_behind_an_error_may_have_no_end() -> None:
    """Its turns go on for ever with the numbers for which the error is raised."""

    def steps(x: Any, y: Any) -> Any:
        step, k = float(x[0]), 0.0
        if step <= 0:
            raise ValueError("no step")
        while k < y[0]:
            k += step
        return k

    def turns(x: Any, y: Any) -> Any:
        k, total = 0.0, 0.0
        if x[0] <= 0:
            raise ValueError("no step")
        for i in range(40):
            while k < y[0] * i:
                k += x[0]
            total += k
        return total

    for function in (steps, turns):
        compiled = kg.kernel_graph(function, device="cpu", untraceable="numpy")
        assert float(compiled(np.array([2.0]), np.array([5.0]))) == function(np.array([2.0]), np.array([5.0]))
        with pytest.raises(ValueError, match="no step"):
            compiled(np.array([0.0]), np.array([5.0]))


def test_a_restart_is_not_seen_by_what_runs_in_any_case() -> None:
    class Counter:
        def __init__(self) -> None:
            self.entered = self.left = 0

        def __enter__(self) -> Counter:
            self.entered += 1
            return self

        def __exit__(self, *error: Any) -> None:
            self.left += 1

    def in_finally(x: Any, n: int) -> Any:
        try:
            w = x[:n]
            v = w.sum()
        finally:
            r = v + 1
        return r

    def returned_in_finally(x: Any, n: int) -> Any:
        try:
            for i in range(n):
                x[i] += 1
            if x[0] > 1:
                x[1] = 5
            v = 2.0
        finally:
            return v  # noqa: B012

    def in_with(x: Any, n: int) -> Any:
        counter = Counter()
        with counter:
            found = x[: len(range(n))].sum()
            if found > 2:
                found = found - 1
        return found + counter.entered + 10 * counter.left

    for function in (in_finally, returned_in_finally, in_with):
        compiled = kg.kernel_graph(function, device="cpu", untraceable="numpy")
        for start in (1.0, 0.0):
            x, y = np.full(3, start), np.full(3, start)
            assert float(compiled(x, 2)) == function(y, 2)
            np.testing.assert_array_equal(x, y)


HANDLERS_OF_ALL = (
    "except:\n{}raise ValueError('own')",
    "except BaseException as error:\n{}raise ValueError('own') from error",
    "except:\n{}v = -1.0\n{}break",
    "except:\n{}return -2.0",
    "except:\n{}pass",
    "finally:\n{}v += bound",
)
BODIES = {
    "a loop": "for j in range(40):\n    v += x[j % 3] * c[0]\nbound = 1.0",
    "a comprehension": "v += sum([x[j % 3] * c[0] for j in range(40)])\nbound = 1.0",
    "a key": "v += {0: 1.0, 1: 2.0}[int(c[0])] + sum([x[j] for j in range(3)])\nbound = 1.0",
    "an index": "v += sum([x[int(y)] for y in x if y > 0])\nbound = 1.0",
}


@pytest.mark.parametrize("handler", HANDLERS_OF_ALL)
@pytest.mark.parametrize("body", BODIES)
def test_no_handler_of_the_functions_meets_what_sends_a_loop_back(body: str, handler: str) -> None:
    attempt = "try:\n" + textwrap.indent(BODIES[body], "    ") + "\n" + handler.replace("{}", "    ")
    lines = "v = 0.0\nfor i in range(60):\n" + textwrap.indent(attempt, "    ") + "\nreturn v"
    text = "def function(x, y, c, w):\n" + textwrap.indent(lines, "    ")
    function = function_of(f"{body}, {HANDLERS_OF_ALL.index(handler)}", text)
    for good, bad in ((0.5, 7.0), (7.0, 0.5)):
        compiled = kg.kernel_graph(function, device="cpu", untraceable="numpy")
        for first in (good, bad):
            wanted, found = (outcome(f, [first, 2.0, 1.0], [0, 1], True, True) for f in (function, compiled))
            assert found == wanted


def test_guarded_indices_stay_compiled() -> None:
    def merged(a: Any, b: Any) -> Any:
        out = np.empty(len(a) + len(b))
        i = j = 0
        for k in range(len(out)):
            if j >= len(b) or (i < len(a) and a[i] <= b[j]):
                out[k] = a[i]
                i += 1
            else:
                out[k] = b[j]
                j += 1
        return out

    def found(x: Any, least: float) -> Any:
        i = 0
        while i < len(x) and x[i] < least:
            i += 1
        return i

    compiled = kg.kernel_graph(merged, device="cpu", untraceable="refuse")
    a, b = np.array([1.0, 4.0, 6.0]), np.array([2.0, 3.0])
    np.testing.assert_array_equal(compiled(a, b), merged(a, b))
    compiled = kg.kernel_graph(found, device="cpu", untraceable="refuse")
    for least in (0.0, 5.0, 99.0):
        assert int(compiled(a, least)) == found(a, least)


def test_a_trace_is_the_same_when_it_is_made_again() -> None:
    def function(x: Any, i: Any) -> Any:
        k = int(i[0])
        return math.sqrt(x[k]) / k if k < 3 else 0.0

    with kg.override(verify=True):
        compiled = kg.kernel_graph(function, device="cpu")
        assert float(compiled(np.arange(4.0), np.array([2]))) == function(np.arange(4.0), np.array([2]))
