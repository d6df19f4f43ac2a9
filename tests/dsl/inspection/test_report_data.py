"""A report says of a call what is true: lines, calls, names, times, bytes; its data is plain."""

from __future__ import annotations

import html
import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph.dsl.inspection import report_data
from kernelgraph.dsl.report.remarks import remarks_about_report
from kernelgraph.runtime.schedule.schedule import predicted_microseconds
from tests.dsl.inspection import viewed
from tests.dsl.inspection.viewed import turns, two_ways
from tests.golden.programs import PROGRAMS

IMAGE, MASK = kg.spec((200, 300), np.float32), kg.spec((64, 64), np.float32)


def line_of(text: str) -> int:
    lines = Path(viewed.__file__).read_text(encoding="utf-8").splitlines()
    return next(i for i, line in enumerate(lines, 1) if text in line)


def top(data: dict[str, Any]) -> list[dict[str, Any]]:
    return [task for task in data["tasks"] if "parent" not in task]


@pytest.fixture(scope="module")
def data() -> Any:
    return kg.kernel_graph(device="fake", streams="max")(two_ways).report(IMAGE, MASK).data


def test_the_data_is_json_and_says_what_the_plan_does(data: Any) -> None:
    assert json.loads(json.dumps(data)) == data
    plan = kg.kernel_graph(device="fake", streams="max")(two_ways).plan(IMAGE, MASK)
    tasks = top(data)
    assert [t["name"] for t in tasks] == [t.name for t in plan.tasks]
    assert data["predicted"] == predicted_microseconds(plan) and data["plan"]["streams"] == plan.streams
    assert max(t["end"] for t in tasks) >= data["predicted"] * 0.99
    assert data["memory"]["bound"] <= data["memory"]["arena"] == plan.arena_bytes
    assert data["runs"] == [] and "measured" not in data and all(t["measured"] is None for t in tasks)
    assert [b["name"] for b in data["buffers"] if b["kind"] == "input"] == ["image", "mask"]
    outputs = {b["name"] for b in data["buffers"] if b["kind"] == "output"}
    assert outputs == {"['fine']", "['coarse']", "['product']"}
    assert all(t["nodes"] and t["bytes"] > 0 for t in tasks)


def test_every_task_knows_the_whole_way_to_its_lines(data: Any) -> None:
    shown = {(file["name"].rpartition("/")[2], n): text for file in data["files"] for n, text in file["lines"]}
    ways = set()
    for task in top(data):
        assert task["paths"]
        for path in task["paths"]:
            for file, line, column, end, _ in data["paths"][path]:
                text = shown["viewed.py", line]
                assert 0 <= column < end <= len(text), (text, column, end)
                assert data["files"][file]["name"].endswith("viewed.py")
            ways.add(tuple(place[1] for place in data["paths"][path]))
    inner, twice = line_of("return x[1:-1]"), line_of("coarse = smooth(smooth")
    assert (line_of("fine = smooth"), inner) in ways and (twice, inner) in ways and (line_of("product ="),) in ways
    path = next(p for p in data["paths"] if p[-1][1] == line_of("product =") and p[-1][2] > 14)
    assert path[-1][4] == "two_ways"
    tanh = shown["viewed.py", path[-1][1]][path[-1][2] : path[-1][3]]
    assert tanh == "np.tanh(mask)"


def test_the_prepared_graph_is_the_one_that_tasks_and_cuts_number(data: Any) -> None:
    last = [p for p in data["passes"] if "ops" in p][-1]
    drawn = dict(zip(last["numbers"], last["ops"], strict=True))
    for task in top(data):
        assert any(node in drawn for node in task["nodes"])
    product = next(i for i, t in enumerate(top(data)) if t["name"].startswith("matmul"))
    cut = next(cut for cut in data["cuts"] if cut["to"] == product)
    assert cut["rule"] == "library argument" and drawn[cut["node"]] == "tanh"
    assert all(cut["text"] and cut["from"] is not None and cut["to"] is not None for cut in data["cuts"])
    assert [p["name"] for p in data["passes"]][:2] == ["traced", "simplified"]


def test_a_loops_body_is_there_with_its_turns() -> None:
    data = kg.kernel_graph(device="fake")(turns).report(kg.spec((1000,), np.float64)).data
    (loop,) = top(data)
    inner = [task for task in data["tasks"] if "parent" in task]
    assert loop["kind"] == "control" and inner and {task["parent"] for task in inner} == {0}
    assert {task["turns"] for task in inner} == {7}
    lines = {data["paths"][path][-1][1] for task in inner for path in task["paths"]}
    assert line_of("z = np.sort") in lines or line_of("return z + np.cos") in lines
    assert "np.sort" in loop["label"] or "np.cos" in loop["label"]
    json.dumps(data, allow_nan=False)


def test_calls_are_measured_and_each_run_is_there() -> None:
    f = kg.kernel_graph(device="cpu")(two_ways)
    rng = np.random.default_rng(0)
    arguments = rng.random((200, 300), np.float32), rng.random((64, 64), np.float32)
    data = f.report(*arguments).data
    assert len(data["runs"]) == 3 and data["measured"] > 0
    for run in data["runs"]:
        assert sorted(task for task, _, _ in run["tasks"]) == list(range(len(top(data))))
        assert min(start for _, start, _ in run["tasks"]) == 0
    assert all(task["measured"] > 0 for task in top(data))
    assert f.report(*arguments, calls=0).data["runs"] == []


def test_runs_of_functions_of_one_name_are_told_apart() -> None:
    """By a decorator in a function, on one line, and in shapes of as many bytes."""

    def decorated(function: Any) -> Any:
        @kg.kernel_graph(device="cpu")
        def layer(x: Any) -> Any:
            return function(x)

        return layer

    functions = [lambda x: x + 1, lambda x: x * 2, lambda x: np.exp(x), lambda x: x @ x.T, lambda x: (x + 1).sum(0)]
    for made in ([kg.kernel_graph(f, device="cpu") for f in functions], [*map(decorated, functions)]):
        with kg.profile() as found:
            for count, f in enumerate(made):
                for _ in range(count + 1):
                    f(np.ones((6, 4))).wait()
        assert [len(report.data["runs"]) for report in found.report()] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 400, "{x}%s", "\udce9", "a\0b", "../a", "\x1b[31m", "å </script>"])
def test_a_function_of_any_name_has_reports(name: str, tmp_path: Path) -> None:
    """A file's name may hold bytes that are no text, which are halves of surrogates."""

    def function(x: Any) -> Any:
        return np.exp(x) / x.sum()

    function.__name__ = function.__qualname__ = name
    f, x = kg.kernel_graph(function, device="cpu"), np.ones((5, 7))
    with kg.profile() as found:
        f(x).wait()
    found.report(tmp_path / "all.html")
    found.save(tmp_path / "trace.json")
    report = f.report(x, tmp_path / "page.html")
    report.save(tmp_path / "page.json")
    assert json.loads((tmp_path / "page.json").read_text())["function"]["name"] == f._name
    assert len(str(f.explain(x)).splitlines()) <= 15
    title = html.unescape((tmp_path / "page.html").read_text(encoding="utf-8").partition("<title>")[2])
    assert title.startswith(f._name.replace("\udce9", "\ufffd"))


def test_what_assigns_to_its_arguments_is_not_called_unasked() -> None:
    @kg.kernel_graph(device="cpu")
    def grow(x: Any) -> Any:
        x += 1
        return x.sum()

    x = np.zeros(8)
    data = grow.report(x).data
    assert not x.any() and data["runs"] == []
    assert [b["name"] for b in data["buffers"]][-1:] or data["buffers"]
    assert len(grow.report(x, calls=2).data["runs"]) == 2 and x[0] == 3  # one call compiles


def test_a_function_that_does_something_else_each_time_keeps_its_lines() -> None:
    @kg.kernel_graph(device="fake")
    def odd(x: Any) -> Any:
        return x + int(threading._newname("%d"))  # type: ignore[attr-defined]  # a counter that nothing sees

    (task,) = top(odd.report(kg.spec((9,), np.float32)).data)
    assert task["paths"]


def test_a_report_changes_nothing() -> None:
    f = kg.kernel_graph(device="fake", streams="max")(two_ways)
    before = f.plan(IMAGE, MASK), f.why()
    f.report(IMAGE, MASK)
    assert (f.plan(IMAGE, MASK), f.why()) == before


def test_without_source_no_text_of_the_users_is_in_it() -> None:
    data = kg.kernel_graph(device="fake")(two_ways).report(IMAGE, MASK, source=False).data
    assert "np.tanh" not in json.dumps(data) and data["paths"]


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_kind_of_program_has_a_report(name: str) -> None:
    function, args = PROGRAMS[name]
    f = kg.kernel_graph(device="fake", streams="max")(function)
    report = f.report(*args)
    json.loads(report.json())
    assert report.page() and len(top(report.data)) == len(f.plan(*args).tasks)
    assert all(task["paths"] for task in top(report.data)) and len(f.explain(*args).splitlines()) <= 15


def test_methods_have_reports() -> None:
    class Model:
        def __init__(self) -> None:
            self.weight = np.ones((4, 4), np.float32)

        @kg.kernel_graph(device="fake")
        def __call__(self, x: Any) -> Any:
            return np.tanh(x @ self.weight)

    data = Model().__call__.report(kg.spec((8, 4), np.float32)).data
    names = [b["name"] for b in data["buffers"] if b["kind"] == "input"]
    assert names == ["self.weight", "x"] or names == ["x", "self.weight"]
    assert data["version"] == report_data.VERSION


def test_a_first_call_is_not_called_slow() -> None:
    data = kg.kernel_graph(lambda x: (x * 2).sum(), device="cpu").report(np.ones(9), calls=1).data
    task = max(data["tasks"], key=lambda task: task["cost"])
    task["measured"] = 1e6
    said = [" ".join(r["text"] for r in remarks_about_report({**data, "runs": data["runs"] * n})) for n in (1, 2)]
    assert "also loaded its kernels" in said[0] and "as long as predicted" not in said[0]
    assert "as long as predicted" in said[1]
