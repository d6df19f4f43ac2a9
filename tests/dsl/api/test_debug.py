"""`kg.debug`: values are shown and checked at each call, in the order of the program, and kernels stay as they are."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from tests.dsl.core.test_errors import refused
from tests.dsl.functions.test_refusals import here

X = np.arange(1.0, 7.0).reshape(2, 3)


def shown(call: Any, file: io.StringIO) -> str:
    call()
    text = file.getvalue()
    file.seek(0)
    file.truncate()
    return text


def test_print_is_pythons_at_every_call() -> None:
    file = io.StringIO()

    def program(x: Any, n: int) -> Any:
        y = x * n
        kg.debug.print("y:", y, {"sum": y.sum(), "rows": [y[0], (1, "a", None)]}, sep=" | ", end="!\n", file=file)
        for i in range(2):
            kg.debug.print(i, y[i] + 1, file=file)
        return y - 1

    decorated = kg.kernel_graph(program, device="cpu")
    for x, n in ((X, 2.0), (X + 1, 3.0), (X, 2.0)):
        expected = shown(lambda x=x, n=n: program(x, n), file)
        assert shown(lambda x=x, n=n: decorated(x, n), file) == expected
        assert expected.startswith("y: | [[")
    with kg.override(disable=True):
        assert shown(lambda: decorated(X, 2.0), file) == shown(lambda: program(X, 2.0), file)
    assert decorated.why().count("compiled") == 1


def test_print_of_arrays_outside_of_a_trace() -> None:
    file = io.StringIO()
    kg.debug.print("x", kg.asarray(X, device="cpu"), file=file)
    assert file.getvalue() == f"x {X}\n"


def test_looking_makes_no_kernel_but_its_own() -> None:
    def plain(x: Any) -> Any:
        return np.exp(x * 2) + 1

    def looking(x: Any) -> Any:
        y = x * 2
        kg.debug.print(y)
        return np.exp(y) + 1

    def checking(x: Any) -> Any:
        return np.exp(kg.debug.check_finite(x * 2)) + 1

    big = np.ones(1000)
    programs = [kg.kernel_graph(f, device="cpu").program(big) for f in (plain, looking, checking)]
    assert [len(p.tasks) for p in programs[:2]] == [1, 1]
    assert len(programs[2].tasks) <= 2
    outputs = [sorted(p.buffers[b].nbytes for b in p.outputs) for p in programs]
    assert outputs == [[8000], [8000, 8000], [8, 8, 8000]]  # the checked array itself is not kept


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.complex64])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_found(dtype: Any, bad: float) -> None:
    def program(x: Any) -> Any:
        y = x * 1
        return kg.debug.check_finite(y, "the state") + 1  # here

    decorated = kg.kernel_graph(program, device="cpu")
    good = X.astype(dtype)
    np.testing.assert_array_equal(decorated(good), good + 1)
    wrong = good.copy()
    wrong[1, 0] = wrong[1, 2] = bad
    with np.errstate(all="ignore"):
        for call in (decorated, program):  # the same outside of a trace
            refused(
                lambda call=call: call(wrong),
                kg.NotFiniteError,
                "2 of 6 values of the state are not finite, the first at [1, 0]",
                line=here(program),
            )
    assert issubclass(kg.NotFiniteError, FloatingPointError)
    np.testing.assert_array_equal(decorated(good), good + 1)


def test_integers_and_empty_arrays_are_finite() -> None:
    decorated = kg.kernel_graph(lambda x, y: (kg.debug.check_finite(x), kg.debug.check_finite(y)), device="cpu")
    program = decorated.program(np.arange(3), np.ones((0, 2)))
    assert len(program.outputs) == 2


def test_arguments_are_assigned_before_the_check_raises() -> None:
    @kg.kernel_graph(device="cpu")
    def program(x: Any) -> Any:
        x[0] = np.log(x[0])
        kg.debug.check_finite(x)

    x = X - 1
    with pytest.raises(kg.NotFiniteError, match=r"1 of 6 values of a float64\[2,3\]"):
        program(x)
    assert x[0, 0] == -np.inf


def test_programs_in_parts_print_each_time() -> None:
    file = io.StringIO()

    def program(x: Any) -> Any:
        while x.max() > 1:
            x = x / 2
            kg.debug.print("halved", x.max(), file=file)
        kg.debug.print("end", file=file)
        return x

    decorated = kg.kernel_graph(program, device="cpu", untraceable="split")
    for top in (4.0, 4.0, 9.0, 4.0):  # traced, kept, grown, kept
        x = np.array([0.0, top])
        assert shown(lambda x=x: decorated(x), file) == shown(lambda x=x: program(x), file)


def test_bodies_of_loops_are_refused() -> None:
    def prints(i: Any, x: Any) -> Any:
        kg.debug.print(i)  # here
        return x * 2

    def checks(i: Any, x: Any) -> Any:
        return kg.debug.check_finite(x * 2)  # here

    for body in (prints, checks):
        decorated = kg.kernel_graph(lambda x, body=body: kg.fori_loop(0, 3, body, x), device="fake")
        refused(lambda f=decorated: f(X), kg.UnsupportedError, "Python for loop", line=here(body))


def test_python_loops_are_looked_into() -> None:
    """Also where they would become loops again."""
    file = io.StringIO()

    def program(x: Any) -> Any:
        for i in range(60):
            x = x * 0.5 + 1
            if i % 20 == 0:
                kg.debug.print(i, x.max(), file=file)
        return x

    decorated = kg.kernel_graph(program, device="cpu")
    assert shown(lambda: decorated(X), file) == shown(lambda: program(X), file)


def looked_up(x: Any, i: Any) -> Any:
    kg.debug.print("begin", x[0])
    found = x[i[0]]
    kg.debug.print("end", found)
    return found


def caught(x: Any, i: Any) -> Any:
    kg.debug.print("begin", x[0])
    try:
        found = x[i[0]]
    except IndexError:
        kg.debug.print("caught")
        found = -1.0
    kg.debug.print("end", found)
    return found


@pytest.mark.parametrize("function", [looked_up, caught])
@pytest.mark.parametrize("places", [(7, 1, 7), (1, 7, 7, 1)])
def test_what_python_comes_to_is_printed_once(function: Any, places: Any, capsys: Any) -> None:
    compiled = kg.kernel_graph(function, device="cpu")
    for place in places:
        said = []
        for f in (function, compiled):
            try:
                f(np.arange(3.0), np.array([place]))
            except IndexError:
                print("IndexError")
            said.append(capsys.readouterr().out)
        assert said[0] == said[1]
