"""Values that are known while tracing, since no argument decides them: a node in, its NumPy array out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...compiler.graph.graph import Value

if TYPE_CHECKING:
    from .trace import Trace

Array = np.ndarray[Any, Any]


def concrete_value(trace: Trace, value: Value) -> Array | None:
    """The value of a node; None where arrays of the call decide it, and the trace may not be split there.

    Raises NeedValue where its numbers do. Arrays that are no arguments are read as they now are, and guarded."""
    from ...compiler.graph.interpret import interpret_node

    nodes, values = trace.builder.nodes, trace.values
    order: list[int] = []
    todo, seen = [value.number], {value.number}
    numbers: set[int] = set()
    while todo:
        number = todo.pop()
        if number in values:
            continue
        order.append(number)
        node = nodes[number]
        if node.op == "placeholder":  # another one at each turn of a loop
            return None
        if node.op == "number":
            numbers |= trace.number_sources[number][0]
        elif node.op == "input" and number not in trace.captured_at:
            leaf = trace.number_inputs.get(number)
            if leaf is None:
                return None if trace.split is None else trace.split.read(trace, value)
            numbers.add(leaf)
        for arg in node.args:
            if arg not in seen:
                seen.add(arg)
                todo.append(arg)
    if numbers:
        raise trace.need_values(numbers)
    for number in sorted(order):
        node = nodes[number]
        if node.op == "number":
            found = np.asarray(trace.number_sources[number][1], node.dtype)
        elif node.op == "input":
            found = trace.read_captured_values(trace.captured_at[number])
        else:
            found = interpret_node(node, [values[a] for a in node.args])
        values[number] = found
    return np.array(values[value.number])


def constant_value_of_traced_node(trace: Trace, value: Value, numbers: bool = False) -> Array | None:
    """The value of a node that is known, or that nothing of a call decides; None for others.

    numbers: its numbers may, and raise NeedValue."""
    todo, seen = [value.number], {value.number}
    while todo:
        number = todo.pop()
        if number in trace.values:
            continue
        node = trace.builder.nodes[number]
        known = number in trace.captured_at or (numbers and number in trace.number_inputs)
        if node.op == "placeholder" or (node.op == "input" and not known):
            return None
        if node.op == "number" and trace.number_sources[number][0] and not numbers:
            return None
        todo.extend(a for a in node.args if a not in seen)
        seen.update(node.args)
    return concrete_value(trace, value)
