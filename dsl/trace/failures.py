"""Errors that values decide: which one a call meets first is a number, carried by branches and loops like any other.

A call reads the number once it has run. Where it may, it then runs again in NumPy, so that Python raises the error, or
catches it; else the error is raised as it is known here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial, reduce
from typing import Any

import numpy as np

from ...compiler.graph.graph import Node, Value
from ...runtime.core.errors import add_note_to_error_once
from ...runtime.core.frozen import dataclass, field
from ...runtime.core.readable_text import with_article
from ..core.errors import (
    ConversionError,
    IndexingError,
    TraceError,
    UnsupportedError,
    UserError,
    is_error_awaited,
    line_of_traceback,
    may_be_of_stand_ins,
    user_line,
)
from ..core.object_model import slots_of_object
from .dispatch import METHODS
from .number_kinds import may_number_differ, number_kinds_of_operand
from .trace import NO_FAILURE, Trace
from .tracer import SCALAR, Tracer


def fail_where(trace: Trace, flag: Value, error: Exception) -> None:
    """Notes that Python raises an error here where `flag`, of shape (), is set; a call goes on as if it did not."""
    kept = copy_of_error(error)
    if not isinstance(error, UserError):  # whose text says it
        add_note_to_error_once(kept, f"at {line_of_traceback(error.__traceback__)}")
    trace.errors.append(kept)
    _put_number_where(trace, flag, len(trace.errors))


def _put_number_where(trace: Trace, flag: Value, error: int) -> None:
    """The number of the error that is met first is this one where `flag` is set, and none was met before."""
    builder = trace.builder
    first, number = first_failure(trace), builder.const(error, np.int64)
    if trace.has_failure:
        number = builder.map("where", builder.map("equal", first, 0), number, first)
    put_first_failure(trace, builder.map("where", flag, number, first))


def copy_of_error(error: Exception) -> Exception:
    """Another error like it, causes and notes included, that no traceback has yet.

    Its class's `__init__` is not called, since it may take other arguments than the error holds."""
    kind: Any = type(error)
    builtin: Any = next(base for base in kind.__mro__ if not base.__flags__ & _HEAP_TYPE)
    copied: Exception = builtin.__new__(kind, *error.args)
    copied.args = error.args
    for slot, held in slots_of_object(error):
        with suppress(AttributeError):  # those of a group of errors are read alone
            slot.__set__(copied, held)
    copied.__dict__.update(error.__dict__)
    if hasattr(error, "__notes__"):
        copied.__notes__ = [*error.__notes__]
    copied.__cause__, copied.__context__ = error.__cause__, error.__context__
    copied.__suppress_context__ = error.__suppress_context__
    return copied


_HEAP_TYPE = 1 << 9  # a flag of classes that Python code makes


def can_failure_be_noted(trace: Trace) -> bool:
    """Whether what is traced is in no body but those of functions that are differentiated."""
    return trace.depth == trace.deriving and not trace.mapping


def check_failure_is_possible(trace: Trace, error: Exception) -> None:
    """Raises UnsupportedError where nobody would raise what is noted, or something would catch it."""
    kind = type(error).__name__
    if trace.handlers and not trace.reruns:
        text = f"{with_article(kind)} that depends on a traced value cannot be caught in the traced function; let the "
        text += "call raise it"
    elif can_failure_be_noted(trace):
        return
    elif trace.deriving:
        text = f"that {kind} depends on a traced value, and a function under kg.vmap or in a compiled loop cannot "
        text += "raise it; return the condition beside the number (has_aux=True), and raise outside"
    else:
        text = f"{with_article(kind)} that depends on a traced value cannot be raised in a compiled loop; carry a flag "
        text += "out of the loop, and raise there"
    raise UnsupportedError(text) from error


def check_error_is_of_python(trace: Trace, error: Exception) -> None:
    """Raises TraceError for an error that Python raises of what stands for values, and may not raise of these;
    NeedValue, where it may be about the call's numbers."""
    line = line_of_traceback(error.__traceback__)
    unbound = {*str(error).split("'")} & trace.half_bound if isinstance(error, NameError) else None
    if unbound:
        text = f"{unbound.pop()!r} has a value on one side only of what a traced value decides; assign it before"
    elif trace.rewriting and isinstance(error, NameError) and "free variable" in str(error):
        text = f"a name has no value where it is read, and may be the function's own: {error}"
    elif may_be_of_stand_ins(error):
        if trace.numbers:
            raise trace.need_values(trace.numbers) from None
        text = f"code that may know no traced values raises a TypeError: {error}"
    else:
        return
    raise TraceError(text, line) from None


def fail_here(trace: Trace, error: Exception) -> None:
    """Notes that Python raises an error wherever what is traced runs. Raises TraceError as the checks do."""
    check_error_is_of_python(trace, error)
    check_failure_is_possible(trace, error)
    fail_where(trace, trace.builder.const(np.True_), error)


def fail_in_loop(trace: Trace, words: Value, error: Exception) -> None:
    """Notes that a recorded loop raises an error where the first of its error words is not 0."""
    trace.loop_failures.append((words, error))
    if trace.path or trace.loops:
        _join_failures_of_loops(trace)


def _join_failures_of_loops(trace: Trace) -> None:
    """From here on the number says what has failed in recorded loops, too."""
    for words, error in trace.loop_failures:
        first = trace.builder.reshape(trace.builder.slice(words, [0], [1], [1]), ())
        fail_where(trace, trace.builder.map("not_equal", first, 0), error)
    trace.loop_failures.clear()


def is_reached(trace: Trace) -> Any:
    """Whether Python comes to what is traced: True, or a traced flag."""
    _join_failures_of_loops(trace)
    flags = [*trace.path, *([has_not_failed(trace)._value] if trace.has_failure else [])]
    if not flags:
        return True
    return Tracer(trace, reduce(partial(trace.builder.map, "logical_and"), flags), SCALAR)


def has_not_failed(trace: Trace) -> Any:
    """Whether nothing has failed so far: True, or a traced flag."""
    if not trace.has_failure:
        return True
    return Tracer(trace, trace.builder.map("equal", first_failure(trace), 0), SCALAR)


def is_failure_awaited(trace: Trace) -> bool:
    """Whether an error of values has to be noted where it may be: it may not be reached, or is caught."""
    if trace.depth:
        _let_numpy_run_rows_that_catch(trace)
        return False
    may_skip = trace.path or trace.loops > (trace.turn is not None)  # all turns of a loop with a number run
    return bool(may_skip or (trace.reruns and is_error_awaited()))


def may_run_rows_in_numpy(trace: Trace) -> bool:
    """Whether a function of rows is traced that runs in NumPy, row by row, where an error cannot be noted."""
    return trace.reruns and 0 < trace.mapping == trace.depth


def _let_numpy_run_rows_that_catch(trace: Trace) -> None:
    """Raises UnsupportedError where a function of rows catches an error of values."""
    if may_run_rows_in_numpy(trace) and is_error_awaited():
        raise UnsupportedError("kg.vmap sees no error that the function catches")


def first_failure(trace: Trace) -> Value:
    """The number of the error that is met first; 0 for none."""
    held = trace.failure["first"]
    return held._value if isinstance(held, Tracer) else trace.builder.const(held)


@contextmanager
def failures_of_region(trace: Trace) -> Iterator[Callable[[], Value | None]]:
    """While a function is traced that has a graph of its own: what gives which error it has met first, if it may have
    met any. Afterwards nothing of it is noted: see `note_failure_of_region`."""
    before, trace.failure["first"] = trace.failure["first"], NO_FAILURE
    try:
        yield lambda: first_failure(trace) if trace.has_failure else None
    finally:
        trace.failure["first"] = before


def note_failure_of_region(trace: Trace, number: Value) -> None:
    """Notes which error a function has met first that had a graph of its own; 0 for none."""
    if trace.has_failure:
        first = first_failure(trace)
        number = trace.builder.map("where", trace.builder.map("equal", first, 0), number, first)
    put_first_failure(trace, number)


def put_first_failure(trace: Trace, value: Value) -> None:
    """From here on `value` says which error is met first."""
    trace.failure["first"] = Tracer(trace, Value(value.number, value.type), SCALAR)


class IndexCheck:
    """Indices along an axis that may be out of range."""

    def __init__(self, index: Tracer, axis: int, length: int, writes: bool, behind_write: bool) -> None:
        """writes: elements are assigned, none of them if one is out of range. behind_write: arguments were written."""
        self.index, self.axis, self.length, self.line = index, axis, length, user_line()
        self.late = behind_write or not writes

    def fail(self) -> Any:
        """Notes where Python raises. Returns which of them are out of range."""
        index: Any = self.index
        outside = (index < -self.length) | (index >= self.length)
        error = IndexingError(f"an index is out of bounds for axis {self.axis} with size {self.length}", self.line)
        fail_where(self.index._trace, METHODS["any"](outside)._value, error)
        return outside


def note_host_call(trace: Trace, function: str, results: Sequence[Value]) -> None:
    """To be called of what NumPy may raise an error for once it has run. Raises UnsupportedError where that is caught
    and cannot be seen."""
    if trace.depth:
        _let_numpy_run_rows_that_catch(trace)
        return
    awaited = is_error_awaited()
    if awaited and (trace.path or trace.loops or not trace.reruns):
        raise UnsupportedError(
            f"an error of np.{function} depends on its values, and cannot be caught in the traced function; let the "
            "call raise it"
        )
    if trace.path or trace.loops:
        trace.may_raise.update(value.number for value in results)
        if not trace.deriving and results[0].type.size:
            _need_result_where_reached(trace, results[0])
        results = ()
    trace.host_calls.append((tuple(results), awaited))


def _need_result_where_reached(trace: Trace, result: Value) -> None:
    """Sees to it that what may raise an error runs where a call comes to it, though nobody may need what it gives: that
    decides, as it were, whether there is a failure, by what is never the case."""
    builder, rank = trace.builder, len(result.shape)
    element = builder.reshape(builder.slice(result, [0] * rank, [1] * rank, [1] * rank), ())
    never = builder.map(
        "logical_and", builder.map("equal", element, element), builder.map("not_equal", element, element)
    )
    _put_number_where(trace, never, 1)  # whichever: the body of a loop has to be the same each time it is traced


def fail_where_number_differs(trace: Trace, value: Value) -> None:
    """Notes a failure where values decide that a number is of another type than compiled code gives."""
    if not trace.reruns or trace.depth or not may_number_differ(number_kinds_of_operand(value)):
        return
    if (flag := trace.differing.get(value.number)) is not None:
        fail_where(trace, flag, ConversionError("a number is of one type or another one, as values decide"))


def outputs_of_failures(trace: Trace, outputs: list[Value], writes: bool) -> Failures:
    """To be called at the end of a trace: what tells of failures is added to the outputs.

    writes: calls write to what they are given, so that failures must be known before; else kernels find indices out of
    range, where any need the elements."""
    unneeded = unneeded_index_checks(trace, outputs, 0)
    for check in trace.index_checks:
        if (writes and check.late) or check in unneeded:
            check.fail()
    needed = _needed_nodes(trace, outputs)[0] if trace.host_calls else set()
    kept = [v[0] for v, _ in trace.host_calls if v and needed.isdisjoint(x.number for x in v)]
    found = [(first_failure(trace), tuple(trace.errors))] if trace.has_failure else []
    found += [(words, (error,)) for words, error in trace.loop_failures]
    if not (found or kept or any(writes or awaited for _, awaited in trace.host_calls)):
        return ()
    errors = tuple(errors for _, errors in found)
    kinds = tuple(tuple(map(type, group)) for group in errors)
    at = len(outputs)
    outputs += [*(number for number, _ in found), *kept]
    return ((tuple(range(at, at + len(found))), FailureCheck(kinds, errors)),)


def unneeded_index_checks(trace: Trace, outputs: Sequence[Value], first: int) -> list[IndexCheck]:
    """Of the indices that kernels check, from the `first` on, those that no kernel looks up if it computes these."""
    if len(trace.index_checks) <= first:
        return []
    looked_up = _needed_nodes(trace, outputs)[1]
    checks = trace.index_checks[first:]
    return [check for check in checks if (check.index._value.number, check.length) not in looked_up]


def _needed_nodes(trace: Trace, outputs: Sequence[Value]) -> tuple[set[int], set[tuple[int, int]]]:
    """The nodes that the outputs need all elements of; those of them that are indices along axes of such lengths."""
    nodes, found, seen = trace.builder.nodes, set[tuple[int, int]](), set[int]()
    todo = [v.number for v in (*outputs, *(v for values, _ in trace.watched for v in values))]
    while todo:
        number = todo.pop()
        if number in seen:
            continue
        seen.add(number)
        node = nodes[number]
        kind, args = node.kind, node.args
        lengths = _lengths_of_indexed_axes(nodes, node)
        found.update(
            (n, length) for a, length in zip(args[1:], lengths, strict=False) for n in _same_elements(nodes, a)
        )
        if kind == "gather":
            source, inner, args = args[0], nodes[args[0]], args[1:]
            if inner.op == node.op and _varying_axes(nodes, inner).isdisjoint(node.attr("axes")):
                todo.append(source)
        todo += [a for a in args if kind != "view" or nodes[a].type.size <= node.type.size]  # not parts
    return seen, found


def _lengths_of_indexed_axes(nodes: Sequence[Node], node: Node) -> list[int]:
    """The lengths of the axes along which the arguments behind the first are looked up, and checked, as indices."""
    if node.op == "gather" and node.attr("checked"):
        return [nodes[node.args[0]].shape[axis] for axis in node.attr("axes")]
    if node.op != "host" or node.attr("function") != "setitem":
        return []
    axes = [entry for entry in node.options["key"] if entry is not None and entry is not Ellipsis]
    return [n for n, entry in zip(node.shape, axes, strict=False) if type(entry) is str]  # an array's place


def _varying_axes(nodes: Sequence[Node], gather: Node) -> set[int]:
    """The axes of a gather's result along which its indices differ."""
    rank = len(gather.shape)
    shapes = [nodes[a].shape for a in gather.args[1:]]
    return {rank - len(shape) + i for shape in shapes for i, n in enumerate(shape) if n > 1}


def _same_elements(nodes: Sequence[Node], number: int) -> Iterator[int]:
    """A node, and those of which it is another shape or dtype."""
    yield number
    while nodes[number].kind == "view" or nodes[number].op == "cast":
        (inner,) = nodes[number].args
        if nodes[inner].type.size > nodes[number].type.size:  # a part
            return
        number = inner
        yield number


@dataclass(frozen=True)
class FailureCheck:
    """Raises the error that a call has met first, if it has met any: of each group the one that an array tells."""

    kinds: tuple[tuple[type[Exception], ...], ...]
    errors: tuple[tuple[Exception, ...], ...] = field(compare=False)

    def error(self, numbers: Sequence[Any], arrays: Sequence[Any]) -> Exception | None:
        """numbers: arrays that begin with the place of an error in its group, or 0; arrays: all that the call makes."""
        try:
            for number, group in zip(numbers, self.errors, strict=True):
                place = int(np.asarray(number).item(0))
                if place:
                    return copy_of_error(group[min(place, len(group)) - 1])
            for array in arrays:
                array.wait()
        except Exception as error:
            return error.with_traceback(None)
        return None


Failures = tuple[tuple[tuple[int, ...], FailureCheck], ...]  # outputs that tell of failures, and how they are read
