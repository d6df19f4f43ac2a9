"""A rewritten function does with plain values what the function does: results, errors, lines, and Python's tests."""

from __future__ import annotations

import builtins
import traceback
from collections.abc import Callable
from types import CellType, FunctionType
from typing import Any

import pytest

from kernelgraph.dsl.control_flow import hooks
from kernelgraph.dsl.control_flow.rewrite import HOOKS, PREFIX, code_with_control_flow_calls
from kernelgraph.dsl.control_flow.source import SourceUnavailable
from tests.dsl.control_flow import hard_functions
from tests.rewritten_python import QUICK, differences, run_apart

NOT_REWRITTEN = (
    hard_functions.jumps_of_finally,
    hard_functions.yields,
    hard_functions.looks_at_names,
    hard_functions.awaits,
)


@pytest.fixture(autouse=True)
def _hooks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builtins, HOOKS, hooks, raising=False)


def again(function: FunctionType) -> FunctionType:
    """The function with its control flow rewritten; its cells are shared."""
    code = code_with_control_flow_calls(function.__code__)
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    closure: tuple[CellType, ...] = tuple(cells[name] for name in code.co_freevars)
    made = FunctionType(code, function.__globals__, function.__name__, function.__defaults__, closure)
    made.__kwdefaults__ = function.__kwdefaults__
    return made


FUNCTIONS = [
    f
    for f in vars(hard_functions).values()
    if isinstance(f, FunctionType) and f.__code__.co_varnames[:1] == ("n",) and f not in NOT_REWRITTEN
]


def outcome(function: Callable[[int], Any], n: int) -> Any:
    """What a call gives or raises, and what it appends to LOG."""
    log = hard_functions.LOG
    log.clear()
    try:
        given: Any = repr(function(n))
    except Exception as error:
        cause = repr(error.__cause__), repr(error.__context__)
        lines = [(frame.lineno, frame.name) for frame in traceback.extract_tb(error.__traceback__)]
        given = type(error), str(error), cause, lines[-1]
    return given, [*log]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_plain_values(function: FunctionType) -> None:
    changed = again(function)
    for n in range(7):
        assert outcome(changed, n) == outcome(function, n)


@pytest.mark.parametrize("n", [0, 2])
def test_errors_stand_at_the_users_line_and_column(n: int) -> None:
    shown = []
    for function in (hard_functions.positions, again(hard_functions.positions)):
        with pytest.raises((KeyError, TypeError)) as raised:
            function(n)
        frame = traceback.extract_tb(raised.value.__traceback__)[-1]
        shown.append((frame.filename, frame.name, frame.lineno, frame.end_lineno, frame.colno, frame.end_colno))
    assert shown[0] == shown[1]


def test_every_instruction_stands_in_the_function() -> None:
    for function in FUNCTIONS:
        last = max(line for _, _, line in function.__code__.co_lines() if line)
        todo = [code_with_control_flow_calls(function.__code__)]
        for code in todo:
            assert code.co_filename == hard_functions.__file__ and not code.co_name.startswith(PREFIX)
            assert not any(PREFIX in code.co_qualname for code in todo)
            for line, end, _, _ in code.co_positions():
                if line is not None and line > 1:
                    assert function.__code__.co_firstlineno <= line <= end
                    assert line <= max(last, end)
            todo += [c for c in code.co_consts if type(c) is type(code)]


def test_the_same_function_in_two_files_is_two(tmp_path: Any) -> None:
    made = []
    for name in ("one", "two"):
        path = tmp_path / f"{name}.py"
        path.write_text("def f(n):\n    if n:\n        return 1 / 0\n")
        scope: dict[str, Any] = {}
        exec(compile(path.read_text(), str(path), "exec"), scope)
        made.append(code_with_control_flow_calls(scope["f"].__code__))
    assert [code.co_filename for code in made] == [str(tmp_path / "one.py"), str(tmp_path / "two.py")]


def no_source() -> Any:
    scope: dict[str, Any] = {}
    exec("def f(n):\n    return 1 if n else 2", scope)
    return scope["f"]


@pytest.mark.parametrize(
    "function, why",
    [
        (hard_functions.yields, "generator"),
        (hard_functions.looks_at_names, "own names"),
        (hard_functions.jumps_of_finally, "finally"),
        (no_source(), "not there"),
    ],
)
def test_what_is_not_rewritten(function: Any, why: str) -> None:
    for _ in range(2):
        with pytest.raises(SourceUnavailable, match=why):
            code_with_control_flow_calls(function.__code__)


def test_a_changed_file_is_not_believed(tmp_path: Any) -> None:
    path = tmp_path / "changed.py"
    path.write_text("def f(n):\n    return 1 if n else 2\n")
    scope: dict[str, Any] = {}
    exec(compile(path.read_text(), str(path), "exec"), scope)
    path.write_text("def f(n):\n    return 2 if n else 2\n")
    with pytest.raises(SourceUnavailable, match="changed"):
        code_with_control_flow_calls(scope["f"].__code__)


def test_pythons_own_tests() -> None:
    pytest.importorskip("test.test_grammar")
    plain, other = run_apart(QUICK, False), run_apart(QUICK, True)
    assert other.functions > 250 and len(other.tests) > 200
    assert not differences(plain, other)
