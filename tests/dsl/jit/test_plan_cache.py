"""Plans of large graphs come from the disk cache as they were made, and only where all that they depend on is equal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph.compiler.graph.graph import Graph, Line
from kernelgraph.compiler.pipeline import compile_graph_to_program
from kernelgraph.dsl.core.errors import call_paths_of_user_line
from kernelgraph.dsl.jit import plan_cache, specializations
from kernelgraph.runtime.program.plan import Plan
from kernelgraph.runtime.program.program import Program
from kernelgraph.runtime.schedule.cost_model import MACHINES
from kernelgraph.runtime.schedule.schedule import plan_by_cost_model


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(plan_cache, "_fingerprint_of_package", lambda: "these files")  # also while one is being edited
    monkeypatch.setattr(specializations, "KEPT", 1)
    with kg.override(cache_dir=str(tmp_path)):
        yield tmp_path


def scaled(x: Any) -> Any:
    return np.sin(x) * 3.0 + x.sum()


def shifted_and_multiplied(x: Any) -> Any:
    y = x.reshape(4, 4)
    x[1:9] = x[:8] * 2.0
    return x, np.tanh(y @ y), np.sort(x)


def graph_of(function: Any, dtype: Any = np.float64) -> Graph:
    graph = kg.kernel_graph(function).graph(kg.spec((16,), dtype))
    assert isinstance(graph, Graph)
    return graph


def plan_of(graph: Graph, target: str) -> tuple[Program, Plan]:
    program = compile_graph_to_program(graph, target)
    return program, plan_by_cost_model(program, "max", "balanced", MACHINES[target])


def refuse() -> Any:
    raise AssertionError("not found in the cache")


@pytest.mark.parametrize("target", ["cpu", "cuda"])
@pytest.mark.parametrize("function", [scaled, shifted_and_multiplied])
def test_what_is_kept_is_what_was_made(function: Any, target: str) -> None:
    made = plan_cache.load_or_make_plan(first := graph_of(function), target, lambda: plan_of(first, target))
    graph = graph_of(function)  # of a trace of its own
    found = plan_cache.load_or_make_plan(graph, target, refuse)
    assert found is not made and found == made and str(found[1]) == str(made[1])
    for task, other in zip(found[0].tasks, made[0].tasks, strict=True):
        assert isinstance(task.line, Line) and task.line == other.line
        assert call_paths_of_user_line(task.line) == call_paths_of_user_line(other.line)
        assert {*task.line.places} <= {place for line in graph.lines for place in getattr(line, "places", ())}


def test_a_function_of_many_nodes_is_not_compiled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.linspace(0, 1, 16)
    expected = kg.kernel_graph(scaled)(x)
    monkeypatch.setattr(specializations, "run_pipeline_stages", lambda *args, **options: refuse())
    assert np.asarray(kg.kernel_graph(scaled)(x)).tolist() == np.asarray(expected).tolist()
    with pytest.raises(AssertionError, match="not found"):
        kg.kernel_graph(scaled, fastmath=True)(x)


def test_what_differs_is_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    def other_number(x: Any) -> Any:
        return np.sin(x) * 4.0 + x.sum()

    keys = [
        plan_cache._plan_cache_key(graph_of(scaled), "cpu"),
        plan_cache._plan_cache_key(graph_of(scaled), "cuda"),
        plan_cache._plan_cache_key(graph_of(scaled, np.float32), "cpu"),
        plan_cache._plan_cache_key(graph_of(other_number), "cpu"),
    ]
    with kg.override(verify=True):
        keys.append(plan_cache._plan_cache_key(graph_of(scaled), "cpu"))
    with kg.override(cache_dir=""):
        assert plan_cache._plan_cache_key(graph_of(scaled), "cpu") == ""
    monkeypatch.setattr(plan_cache, "_fingerprint_of_package", lambda: "other files")
    keys.append(plan_cache._plan_cache_key(graph_of(scaled), "cpu"))
    assert all(keys) and len({*keys}) == len(keys)


def test_numpy_scalars_of_the_same_bytes_are_told_apart() -> None:
    def histogram_up_to(high: Any) -> Any:
        return lambda x: np.histogram(x, 3, range=(0, high))[0]

    number = np.float32(4)
    graphs = [graph_of(histogram_up_to(high)) for high in (number, number.view(np.int32))]
    assert len({plan_cache._plan_cache_key(graph, "cpu") for graph in graphs} - {""}) == 2


def test_functions_of_the_users_are_not_kept(cache: Path) -> None:
    graph = graph_of(lambda x: kg.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * 2.0), (0, x))[1])
    assert plan_cache._plan_cache_key(graph, "cpu") == ""
    plan_cache.load_or_make_plan(graph, "cpu", lambda: plan_of(graph, "cpu"))
    assert not (cache / "plan").exists()


def test_damage_is_made_anew(cache: Path) -> None:
    graph = graph_of(scaled)
    made = plan_cache.load_or_make_plan(graph, "cpu", lambda: plan_of(graph, "cpu"))
    (entry,) = (cache / "plan").iterdir()
    whole = entry.read_bytes()
    for damaged in (b"", whole[:-1], whole[:-9] + b"?" + whole[-8:], whole + b"."):
        entry.write_bytes(damaged)
        with pytest.raises(AssertionError, match="not found"):
            plan_cache.load_or_make_plan(graph, "cpu", refuse)
        assert plan_cache.load_or_make_plan(graph, "cpu", lambda: made) is made
        assert entry.read_bytes() == whole


def test_files_newer_than_what_was_loaded_keep_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    fingerprint = plan_cache._fingerprint_of_package.__wrapped__
    monkeypatch.setattr(plan_cache, "LOADED", 0)
    assert fingerprint() == ""
    monkeypatch.setattr(plan_cache, "LOADED", 1 << 80)
    assert fingerprint() == fingerprint() != ""
