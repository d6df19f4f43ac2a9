"""explain() fits a screen and says what matters, source() whose kernels these are, why() what differs and costs."""

from __future__ import annotations

import logging
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from tests.dsl.inspection.viewed import turns, two_ways

IMAGE, MASK = kg.spec((200, 300), np.float32), kg.spec((64, 64), np.float32)


@pytest.mark.parametrize("device", ["cpu", "fake"])
@pytest.mark.parametrize(("function", "args"), [(two_ways, (IMAGE, MASK)), (turns, (kg.spec((99,), np.float64),))])
def test_an_explanation_is_short(device: str, function: Any, args: Any) -> None:
    f = kg.kernel_graph(device=device)(function)
    text = f.explain(*args)
    lines = text.splitlines()
    assert len(lines) <= 15 and max(map(len, lines)) <= 118 and repr(text) == text
    assert lines[0].startswith(f"{function.__name__}(float") and "viewed.py:" in text
    assert "plan:" in text and "memory:" in text
    whole = f.explain(*args, verbose=True)
    assert len(whole.splitlines()) > len(lines) and "prepared for fusion" in whole


def test_what_an_explanation_says() -> None:
    f = kg.kernel_graph(device="fake")(two_ways)
    text = f.explain(IMAGE, MASK)
    assert "a library call reads it" in text and "the least possible" in text and "matmul" in text
    assert "float64" not in text
    grown = kg.kernel_graph(device="fake")(lambda x: np.sin(x) * np.arange(9.0))
    assert "computes in float64" in grown.explain(kg.spec((9,), np.float32))


def test_a_loop_that_is_traced_turn_by_turn_is_named_with_its_reason() -> None:
    def eliminated(a: Any, x: Any) -> Any:
        for i in range(1, 30):
            for j in range(i):
                a[i, j] -= a[i, :j] @ a[:j, j]
        for i in range(20):  # sorted
            x[i:] = np.partition(x[i:], 3) + a[i, i:]
        return a, x

    text = kg.kernel_graph(eliminated, device="cpu").explain(np.eye(30), np.arange(30.0))
    line = next(i for i, s in enumerate(Path(__file__).read_text().splitlines(), 1) if "# sorted" in s)
    assert f"test_explanation.py:{line}: this loop is traced turn by turn, since np.partition is called in it" in text


def test_everything_numbers_the_graph_that_it_prints() -> None:
    """Each %n of the groups is a line of the printed graph."""
    whole = kg.kernel_graph(device="fake")(two_ways).explain(IMAGE, MASK, verbose=True)
    graph, _, groups = whole.partition("groups, and what passes between them:")
    for word in groups.replace(",", " ").replace(";", " ").split():
        if word.startswith("%"):
            assert f"\n  {word}: " in graph


def test_a_source_has_a_heading_for_each_task() -> None:
    f = kg.kernel_graph(device="fake")(two_ways)
    text, plan = f.source(IMAGE, MASK), f.plan(IMAGE, MASK)
    for number, task in enumerate(plan.tasks):
        assert text.count(f"# t{number} {task.name} (") == 1
    looped = kg.kernel_graph(device="cpu")(turns).source(kg.spec((99,), np.float64))
    assert "t0.t0 " in looped and "define" in looped


def test_why_says_what_differs_what_it_cost_and_who_called(caplog: pytest.LogCaptureFixture) -> None:
    f = kg.kernel_graph(device="cpu")(lambda x, y: x + y)
    assert f.why() == "<lambda> has not been traced yet"
    with caplog.at_level(logging.DEBUG, logger="kernelgraph"):
        f(np.ones(3), np.ones(3))
    f(np.ones(3), np.ones(3, np.float32))
    lines = f.why().splitlines()
    assert all("called at test_explanation.py:" in line for line in lines if line.startswith("traced"))
    assert lines[2].endswith("; differs in y: float32[3], not float64[3]")
    assert " us, called" in lines[0] or " ms, called" in lines[0]
    assert next(r.message for r in caplog.records) == "<lambda>: traced for (float64[3], float64[3])"


def test_what_keeps_changing_is_warned_of_once() -> None:
    scale = {"value": 0}
    f = kg.kernel_graph(device="cpu")(lambda x: x * scale["value"])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for value in range(20):
            scale["value"] = value
            np.testing.assert_array_equal(f(np.ones(2)), [value] * 2)
    found = [str(w.message) for w in caught if "keeps changing" in str(w.message)]
    assert len(found) == 1 and "16 times" in found[0]


def test_values_show_as_their_text_and_no_more_than_fits_a_screen() -> None:
    f = kg.kernel_graph(device="fake", streams="max")(two_ways)
    for value in (f.graph(IMAGE, MASK), f.program(IMAGE, MASK), f.plan(IMAGE, MASK)):
        text = repr(value)
        assert str(value).startswith(text.partition("\n... and ")[0]) and len(text.splitlines()) <= 40
    long = kg.kernel_graph(device="fake")(lambda x: [np.sin(x + i) for i in range(60)]).graph(kg.spec((3,), np.float32))
    assert repr(long).endswith(f"and {len(str(long).splitlines()) - 39} more lines, which print shows")


def test_in_a_block_of_a_precision_or_a_device_the_call_is_shown_as_it_would_be_made() -> None:
    f = kg.kernel_graph(lambda x: x @ x, device="fake")
    x = kg.spec((64, 64), np.float32)
    with kg.precision("tf32"):
        assert f.inspect((x,), {}).options.precision == "tf32" and "'tf32'" in str(f.report(x).data)
    assert f.inspect((x,), {}).options.precision is None and "'tf32'" not in str(f.report(x).data)
    with kg.device("fake"):
        assert "on fake" in kg.kernel_graph(lambda x: x @ x).explain(x)
