"""A part of a trace that is differentiated: a function and its arguments in, a graph of its own out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ...compiler.core.types import ArrayType, dtype_kind
from ...compiler.derive.core.inline import inline_graph_into_builder
from ...compiler.graph.control_flow import Cut, cut_body_graphs_from_builder
from ...compiler.graph.graph import Graph, Value
from ...runtime.core.frozen import frozen
from ..array.array import Array
from ..core.errors import ArgumentsError, DTypeError, TraceError
from ..core.pytree import Tree, flatten, unflatten
from ..trace.aliasing import memory_layout_of_tracer
from ..trace.failures import failures_of_region, note_failure_of_region
from ..trace.memory_layout import MemoryLayout
from ..trace.operands import new_traced_result, to_graph_operand, to_traced_array
from ..trace.trace import Trace, current_trace
from ..trace.tracer import SCALAR, TracedNumber, Tracer
from .options import Place
from .user_functions import check_user_functions_have_derivatives


@frozen
class DifferentiatedRegion:
    """What a function computes of some of its arguments, as a graph.

    graph: its first inputs are the chosen leaves, in order; behind them come `outer`. values: the chosen leaves'.
    trees: for each chosen argument its structure and which of its leaves are arrays. tree, leaves: of what the function
    gives; a leaf is the number of an output, or what is no array."""

    graph: Graph
    values: tuple[Value, ...]
    outer: tuple[Value, ...]
    numbers: tuple[Value, ...]
    trees: tuple[tuple[Tree, tuple[bool, ...]], ...]
    tree: Tree
    leaves: tuple[Any, ...]

    def inlined(self, trace: Trace, graph: Graph, extra: Sequence[Value] = ()) -> list[Value]:
        """In the trace, the outputs of a graph derived from this one. That has extra inputs."""
        check_user_functions_have_derivatives(graph)
        builder, first = trace.builder, len(trace.builder.nodes)
        limit, builder.limit = builder.limit, 1 << 62  # these are no turns that were traced
        try:
            return inline_graph_into_builder(builder, graph, [*self.values, *self.outer, *extra], self.numbers)
        finally:
            added = len(builder.nodes) - first
            builder.limit = limit + (added if added > first else 0)  # but those of many gradients are

    def result(self, values: Sequence[Value]) -> Any:
        """What the function gives, of its outputs."""
        return unflatten(
            self.tree, [new_traced_result(values[x.number]) if type(x) is RegionOutput else x for x in self.leaves]
        )

    def result_and_aux(self, what: str) -> tuple[Tree, tuple[Any, ...]]:
        """The structure and the leaves of the first of two results: (result, others). Raises ArgumentsError."""
        if self.tree.kind is not tuple or len(self.tree.children) != 2:
            raise ArgumentsError(f"with has_aux=True {what} needs a function that returns (result, others)")
        first = self.tree.children[0]
        return first, self.leaves[: _leaf_count_of_region(first)]

    def like_arguments(self, values: Sequence[Any]) -> list[Any]:
        """Structures like the chosen arguments', of one value for each chosen leaf; None for a leaf that is none."""
        rest = iter(values)
        return [unflatten(tree, [next(rest) if array else None for array in arrays]) for tree, arrays in self.trees]


@frozen
class RegionOutput:
    """A leaf of a function's result that is an output of its graph."""

    number: int


def _leaf_count_of_region(tree: Tree) -> int:
    return 1 if tree.kind is None else sum(map(_leaf_count_of_region, tree.children))


def trace_region(
    what: str,
    function: Callable[..., Any],
    args: Sequence[Any],
    options: dict[str, Any],
    chosen: Sequence[Place],
    skips: bool = False,
    axes: Mapping[Place, int] | None = None,
) -> DifferentiatedRegion:
    """Runs the function on stand-ins for the chosen arguments; it gets copies of the others' arrays.

    what: the name of the caller, for errors. skips: leaves of the chosen arguments that have no derivative are left
    out, else refused. axes: of chosen arguments that the function gets without this axis, in which the values have it
    first: of these any array is chosen. Raises ArgumentsError, DTypeError."""
    trace = trace_in_progress(what)
    first = len(trace.builder.nodes)
    values: list[Value] = []
    stand_ins: list[Value] = []
    trees: list[tuple[Tree, tuple[bool, ...]]] = []
    found: dict[Place, Any] = {}
    with trace_nested_derivative(trace, axes is not None), failures_of_region(trace) as failed:
        for place in chosen:
            leaves: list[Any] = []
            tree = flatten(_differentiated_argument(what, args, options, place), leaves)
            axis = None if axes is None else axes[place]
            arrays = tuple(
                _is_differentiated_leaf(what, place, leaf, skips)
                if axis is None
                else _is_region_leaf_array_or_number(leaf)
                for leaf in leaves
            )
            trees.append((tree, arrays))
            for i, leaf in enumerate(leaves):
                if not arrays[i]:
                    leaves[i] = _own_copy_of_region_leaf(trace, leaf)
                    continue
                value = _region_leaf_value(leaf)
                if axis is not None:
                    value, row = _with_vmap_axis_first(trace, what, place, value, axis)
                    values.append(value)
                    value = Value(value.number, row)
                else:
                    values.append(Value(value.number, value.type))
                stand_ins.append(trace.builder.placeholder(value.type))
                held = Value(stand_ins[-1].number, value.type, value.weak)
                layout = _memory_layout_of_region_leaf(leaf) if axis is None else None
                scalar = value.shape == () and (axis is not None or _is_number_leaf_of_region(leaf))
                leaves[i] = Tracer(trace, held, SCALAR if scalar else None, layout=layout)
            found[place] = unflatten(tree, leaves)
        given = [found[i] if i in found else copies_of_region_argument(trace, a) for i, a in enumerate(args)]
        named = {k: found[k] if k in found else copies_of_region_argument(trace, v) for k, v in options.items()}
        result = trace.world.proxy_of(function)(*given, **named)
        failure = failed()
    leaves = []
    tree = flatten(result, leaves, results=True)
    outputs = _outputs_among_leaves(leaves)
    cut = _cut_region_graph(trace, stand_ins, values, outputs, failure, first)
    at = trace.builder.at
    outer, numbers = tuple(map(at, cut.inputs)), tuple(map(at, cut.numbers))
    return DifferentiatedRegion(cut.body, tuple(values), outer, numbers, tuple(trees), tree, tuple(leaves))


def _cut_region_graph(
    trace: Trace, stand_ins: Sequence[Value], values: Sequence[Value], outputs: Sequence[Value], failure: Value | None,
    first: int,
) -> Cut:  # fmt: skip
    """The graph of a region. failure: which error it meets first, which of the values themselves the trace computes: no
    derivative needs it."""
    builder = trace.builder
    parts = [outputs] if failure is None else [outputs, [failure]]
    cut, *tests = cut_body_graphs_from_builder(builder, [stand_ins] * len(parts), parts, first)
    for test in tests:
        inputs, numbers = ([*map(builder.at, places)] for places in (test.inputs, test.numbers))
        note_failure_of_region(trace, *inline_graph_into_builder(builder, test.body, [*values, *inputs], numbers))
    return cut


def _outputs_among_leaves(leaves: list[Any]) -> list[Value]:
    """The values of a region's results, in whose place are `RegionOutput`s then."""
    outputs: list[Value] = []
    for i, leaf in enumerate(leaves):
        if isinstance(leaf, (Tracer, np.ndarray, np.generic, Array, TracedNumber)) or type(leaf) in (float, complex):
            leaves[i] = RegionOutput(len(outputs))
            outputs.append(to_traced_array(leaf)._value)
    return outputs


def trace_in_progress(what: str) -> Trace:
    trace = current_trace()
    if trace is None:
        raise TraceError(f"kg.{what} works on traced values; call it in a function that is decorated")
    return trace


@contextmanager
def trace_nested_derivative(trace: Trace, maps: bool = False) -> Iterator[None]:
    """While a function that is differentiated is traced: arrays from outside of it cannot be assigned to. maps: it is
    batched over rows."""
    trace.depth += 1
    trace.deriving += 1
    trace.mapping += maps
    try:
        yield
    finally:
        trace.depth -= 1
        trace.deriving -= 1
        trace.mapping -= maps


def _differentiated_argument(what: str, args: Sequence[Any], options: dict[str, Any], place: Place) -> Any:
    if isinstance(place, str):
        if place not in options:
            raise ArgumentsError(f"{what} is asked for argument {place!r}, which the call does not pass")
        return options[place]
    if not 0 <= place < len(args):
        raise ArgumentsError(f"{what} is asked for argument {place}, and the call passes {len(args)}; write argnums=")
    return args[place]


def _is_differentiated_leaf(what: str, place: Place, leaf: Any, skips: bool) -> bool:
    """Whether a leaf of a chosen argument has a derivative. Raises DTypeError where it should have one."""
    if leaf is None or isinstance(leaf, str) or (callable(leaf) and not isinstance(leaf, Tracer)):
        return False
    value = _region_leaf_value(leaf)
    if dtype_kind(value.dtype) in "fc":
        return True
    if skips:
        return False
    kind = value.weak.__name__ if value.weak else str(value.dtype)
    raise DTypeError(
        f"argument {place!r} of {what} is {kind}, which has no gradient; pass floats, or choose other arguments "
        "with argnums="
    )


def _region_leaf_value(leaf: Any) -> Value:
    """A leaf as a node; a Python number keeps how it promotes."""
    found = to_graph_operand(leaf)
    if isinstance(found, Value):
        return found
    value = to_traced_array(leaf)._value
    weak: Any = type(leaf) if type(leaf) in (int, float, complex) else None
    return Value(value.number, value.type, weak)


def copies_of_region_argument(trace: Trace, given: Any) -> Any:
    """The argument with arrays of its own: the function may assign to them."""
    leaves: list[Any] = []
    tree = flatten(given, leaves)
    return unflatten(tree, [_own_copy_of_region_leaf(trace, leaf) for leaf in leaves])


def _own_copy_of_region_leaf(trace: Trace, leaf: Any) -> Any:
    if isinstance(leaf, Tracer) and leaf._owner != SCALAR:
        return Tracer(trace, leaf._value, None, layout=_memory_layout_of_region_leaf(leaf))
    return leaf


def _is_region_leaf_array_or_number(leaf: Any) -> bool:
    return isinstance(leaf, (Tracer, TracedNumber, np.ndarray, np.generic, Array, int, float, complex))


def _with_vmap_axis_first(trace: Trace, what: str, place: Place, value: Value, axis: int) -> tuple[Value, ArrayType]:
    """A value with this axis first, and the type of its rows. Raises ArgumentsError."""
    rank = len(value.shape)
    if not -rank <= axis < rank:
        raise ArgumentsError(
            f"{what} goes along axis {axis} of argument {place!r}, which has shape {value.shape}; write in_axes=None "
            "for an argument that all share"
        )
    order = [axis % rank, *(i for i in range(rank) if i != axis % rank)]
    moved = trace.builder.permute(value, order)
    return moved, ArrayType(moved.shape[1:], moved.dtype)


def _is_number_leaf_of_region(leaf: Any) -> bool:
    """Whether a leaf of shape () is a number, no array of no axis."""
    return leaf._owner == SCALAR if isinstance(leaf, Tracer) else True


def _memory_layout_of_region_leaf(leaf: Any) -> MemoryLayout | None:
    return memory_layout_of_tracer(leaf) if isinstance(leaf, Tracer) else None
