"""Comprehensions as loops: a list's elements are rows of one array, what a builtin folds is carried by the turns.

Each `for` of a comprehension is a `ComprehensionClause`, whose body gives for an item the pairs (test, value) of one
turn: `value()` is an element, or the clause within.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from types import BuiltinFunctionType, FunctionType
from typing import Any

from ..trace.trace import LoopNotRecordable, current_trace, loop_recorder_of_trace
from .decisions import call, choose, if_, is_undecided_condition, not_
from .loops import for_

Turn = Sequence[tuple[Any, Callable[[], Any]]]


class ComprehensionClause:
    """One `for` of a comprehension, its `if`s, and what is in it."""

    __slots__ = ("body", "iterable")

    def __init__(self, iterable: Iterable[Any], body: Callable[[Any], Turn]) -> None:
        self.iterable, self.body = iterable, body


def new_list(items: list[Any]) -> list[Any]:
    """A list that may grow: while a loop is recorded, what is appended to it is recorded too."""
    recorder = loop_recorder_of_trace()
    return items if recorder is None else recorder.new_list(items)


def listed(iterable: Iterable[Any], body: Callable[[Any], Turn]) -> list[Any]:
    """`[value for item in iterable]`."""
    recorder = loop_recorder_of_trace()
    _kernelgraph_list: Any = [] if recorder is None else recorder.new_list([], body.__code__)

    def run(clause: ComprehensionClause) -> None:
        body = clause.body

        def turn(item: Any) -> None:
            for test, value in body(item):
                if loop_recorder_of_trace() is not None and is_undecided_condition(test):
                    raise LoopNotRecordable("a comprehension keeps the elements that a value chooses")
                if test:
                    element = value()
                    if type(element) is ComprehensionClause:
                        run(element)
                    else:
                        _kernelgraph_list.append(element)

        for_(clause.iterable, body_at_place_of(turn, body), None)

    run(ComprehensionClause(iterable, body))
    items = None if recorder is None else _kernelgraph_list.items
    found: list[Any] = _kernelgraph_list if items is None else items
    return found


def generated(function: Any, iterable: Iterable[Any], body: Callable[[Any], Turn]) -> Any:
    """`function(value for item in iterable)`."""
    clause, trace = ComprehensionClause(iterable, body), current_trace()
    if trace is not None and isinstance(function, BuiltinFunctionType):
        if function is sum:
            return _sum_of_clause(clause)
        if function in (any, all):
            return _truth_of_clause(clause, function is any)
        if function in (max, min):
            return call(function, listed(iterable, body))
    return function(_elements_of_clause(clause, iter(iterable), function is sum))


def folded(function: Any, iterable: Iterable[Any], body: Callable[[Any], Turn]) -> Any:
    """`function([value for item in iterable])`, where a builtin is given what a generator gives."""
    if isinstance(function, BuiltinFunctionType):
        return generated(function, iterable, body)
    return function(listed(iterable, body))


def _elements_of_clause(clause: ComprehensionClause, items: Iterator[Any], is_summed: bool) -> Iterator[Any]:
    for item in items:
        for test, value in clause.body(item):
            if is_summed and is_undecided_condition(test):
                yield choose(test, value, lambda: 0)
            elif test:
                element = value()
                if type(element) is ComprehensionClause:
                    yield from _elements_of_clause(element, iter(element.iterable), is_summed)
                else:
                    yield element


def body_at_place_of(function: Callable[..., Any], body: Callable[..., Any]) -> Callable[..., Any]:
    """A function of ours with a code of its own for each code of the user's: loops are known by these."""
    code = function.__code__
    made = FunctionType(
        code.replace(co_consts=(*code.co_consts, body.__code__)), function.__globals__, closure=function.__closure__
    )
    return made


def _run_clause(clause: ComprehensionClause, use: Callable[[Any], None], stop: Callable[[], Any] | None = None) -> None:
    """The loops of a clause: each element is used, until `stop()`."""

    def take(value: Callable[[], Any]) -> None:
        element = value()
        if type(element) is ComprehensionClause:
            _run_clause(element, use, stop)
        else:
            use(element)

    body = clause.body

    def turn(item: Any) -> None:
        for test, value in body(item):
            if test is True:
                take(value)
            else:
                if_(test, lambda value=value: take(value), None)  # type: ignore[misc]

    for_(clause.iterable, body_at_place_of(turn, body), stop)


def _sum_of_clause(clause: ComprehensionClause) -> Any:
    _kernelgraph_sum: Any = 0

    def add(element: Any) -> None:
        nonlocal _kernelgraph_sum
        _kernelgraph_sum = _kernelgraph_sum + element

    _run_clause(clause, add)
    return _kernelgraph_sum


def _truth_of_clause(clause: ComprehensionClause, is_any: bool) -> Any:
    """What any() gives, else all()."""
    _kernelgraph_found: Any = False

    def find() -> None:
        nonlocal _kernelgraph_found
        _kernelgraph_found = True

    def look(element: Any) -> None:
        if is_any:
            if_(element, find, None)
        else:
            if_(element, _go_on, find)

    _run_clause(clause, look, lambda: _kernelgraph_found)
    return _kernelgraph_found if is_any else not_(_kernelgraph_found)


def _go_on() -> None: ...
