"""Loops over rows in which each row decides how long it runs -> one routine that computes rows in scalars.

A loop whose turns are rows of their own, with a `while` or branches in its body, would start a kernel for every step of
every row. As one routine a CPU computes rows side by side in vectors, and a GPU one row a thread. Bodies whose arrays
are too large for scalars, and those with calls, stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from itertools import chain
from math import prod
from typing import Any, TypeAlias

import numpy as np

from ...runtime.core.frozen import frozen, replace
from ..core.combiners import COMBINERS
from ..core.types import BOOL, FLOAT32, FLOAT64, HALVES, INT64, UINT64, ArrayType, DType
from ..graph.builder import GraphBuilder
from ..graph.control_flow import Branch, Loop, memory_argument_count_of_node
from ..graph.graph import Graph, Node, Typed, Value, Values, bodies_of_node, needed_nodes
from ..graph.interpret import interpret_slice_node, interpret_view_node
from ..kernel.body_builder import KernelValue, kernel_select
from ..ops.table import OPS
from ..sequential.body import RoutineBody, Scope
from ..sequential.dead_code import routine_block_without_dead_code
from ..sequential.form import Block, For, If, Lookup, Routine, RoutineMemory, While, renumbered_routine
from .simplify import rewrite_nodes

MOST = 3072  # elements that a routine computes: LLVM takes about a millisecond for each
LARGEST = 64  # elements of an array: a larger one has work enough for a kernel of its own
UNROLLED = 16  # turns of a counted loop whose windows or results move along
PAIRWISE, ACCUMULATORS = 128, 8  # NumPy's sums: so many elements at a time, in so many parts

Elements: TypeAlias = np.ndarray[Any, Any]  # of KernelValue
RowRoutine: TypeAlias = tuple[Routine, list[int]]
Join: TypeAlias = Callable[[KernelValue, KernelValue], KernelValue]


@frozen
class Table(Typed):
    """An array in memory that all rows share, of which nothing has been read: which of the routine's."""

    array: int
    type: ArrayType


Held: TypeAlias = Elements | Table


class NotInScalars(Exception):
    """A body does what scalars of a routine cannot."""


def compute_rows_in_scalars(graph: Graph) -> Graph:
    """The graph with such loops as routines; itself where there are none."""
    if not any(map(_is_loop_over_deciding_rows, graph.nodes)):
        return graph
    made: dict[tuple[int, ...], RowRoutine | None] = {}

    def routine_in_place_of_loop(builder: GraphBuilder, node: Node, args: Values) -> Value | None:
        if not _is_loop_over_deciding_rows(node):
            return None
        key = id(node.attr("control")), *(a.number for a in args)
        if key not in made:
            made[key] = routine_of_rows(node, [a.type for a in args])
        if (found := made[key]) is None:
            return None
        routine, given = found
        part: int = node.attr("part")
        return builder.sequential(routine, [args[n] for n in given])[part]

    return rewrite_nodes(graph, routine_in_place_of_loop)


def _is_loop_over_deciding_rows(node: Node) -> bool:
    if node.op != "loop":
        return False
    loop: Loop = node.attr("control")
    deciding = any(inner.op in ("loop", "branch") for inner in loop.body.nodes)
    return deciding and bool(loop.count) and not (loop.carried or loop.flag or loop.kept)


def routine_of_rows(node: Node, types: Sequence[ArrayType]) -> RowRoutine | None:
    """The routine of a loop over rows, and the arguments that it reads; None where scalars do not hold a row."""
    loop: Loop = node.attr("control")
    writer = _ScalarWriter()
    body, memory = writer.body, memory_argument_count_of_node(node)
    arrays = [
        *(RoutineMemory(t.dtype, t.shape, "in") for t in types),
        *(RoutineMemory(t.dtype, t.shape, "out") for t in loop.types),
    ]
    try:
        others: list[Held] = [Table(n, type) for n, type in enumerate(types) if n >= len(loop.windows)]
        start, stop = (body.const(n, INT64).numbers[0] for n in (0, loop.count))
        index = body.value(INT64)
        with body.block() as scope:
            rows = [
                writer.loaded(n, types[n], w.starts, loop.body.nodes[number].shape, w.steps, w.moves, index)
                for n, (w, number) in enumerate(zip(loop.windows, loop.body.inputs, strict=False))
            ]
            shared, numbers = others[: memory - len(rows)], map(writer.number, others[memory - len(rows) :])
            for n, values in enumerate(writer.graph(loop.body, [*rows, *shared], [index, *numbers]), len(types)):
                writer.store_row(n, index, values)
            writer.store_bad_indices(len(arrays))
    except NotInScalars:
        return None
    body.add(For(index.numbers[0], start, stop, writer.row_block(scope), apart=True))
    arrays += [RoutineMemory(INT64, (len(writer.lookups),), "report")] * bool(writer.lookups)
    block = routine_block_without_dead_code(tuple(body.scopes[0].statements), ())
    rows_of, count = float(loop.count or 0), writer.count * _expected_turns(loop.body)
    routine = Routine(tuple(arrays), tuple(writer.variables), block, 0, rows_of * count, rows_of, rows_of)
    found, kept = renumbered_routine(routine, range(len(types), len(arrays)))
    return replace(found, lookups=tuple(writer.lookups)), [n for n in kept if n < len(types)]


def _expected_turns(body: Graph) -> float:
    loops = [node.attr("control") for node in body.nodes if node.op == "loop"]
    return max([(loop.count or loop.expected) * _expected_turns(loop.body) for loop in loops], default=1.0)


class _ScalarWriter:
    """Writes graphs into a routine, each element of an array as a value of its own. lookups: those that may miss, and
    the variables that keep an index of theirs that did; reached: whether what is written counts, None for always."""

    def __init__(self) -> None:
        self.body, self.variables, self.count = RoutineBody(), list[DType](), 0
        self.read: dict[int, Elements] = {}  # of tables
        self.lookups: list[Lookup] = []
        self.missed: list[int] = []
        self.reached: KernelValue | None = None

    def take(self, shape: Sequence[int]) -> None:
        """Raises NotInScalars where an array of this shape is too much."""
        self.count += prod(shape)
        if prod(shape) > LARGEST or self.count > MOST:
            raise NotInScalars

    def graph(self, graph: Graph, inputs: Sequence[Held], numbers: Sequence[KernelValue]) -> list[Elements]:
        """The outputs of a graph."""
        values = dict(zip(graph.inputs, inputs, strict=True))
        values |= {n: _element(v) for n, v in zip(graph.numbers, numbers, strict=True)}
        calls: dict[tuple[int, ...], list[Elements]] = {}
        for number in sorted(needed_nodes(graph.nodes, graph.outputs)):
            if number in values:
                continue
            node = graph.nodes[number]
            if node.dtype in HALVES:
                raise NotInScalars
            args = [values[a] for a in node.args]
            if node.op in _CONTROL:
                key = id(node.attr("control")), *node.args
                if key not in calls:
                    calls[key] = _CONTROL[node.op](self, node, args)
                values[number] = calls[key][node.attr("part")]
            elif node.op == "gather":
                line = graph.lines[number] if graph.lines else ""
                values[number] = _write_lookup(self, node, args[0], [*map(self.elements, args[1:])], line)
            else:
                rule = _RULES.get(node.op) or _KINDS.get(node.kind, _refuse_node)
                values[number] = rule(self, node, [*map(self.elements, args)])
        return [np.broadcast_to(self.elements(values[o]), graph.nodes[o].shape) for o in graph.outputs]

    def elements(self, held: Held) -> Elements:
        """Those of an array; a table is read once, before the rows."""
        if not isinstance(held, Table):
            return held
        if held.array not in self.read:
            with self.body.outermost():
                self.read[held.array] = self.loaded(held.array, held.type, 0, held.type.shape)
        return self.read[held.array]

    def number(self, held: Held) -> KernelValue:
        found: KernelValue = self.elements(held).item()
        return found

    # indices out of range

    def index_in_range(self, index: KernelValue, lookup: Lookup) -> KernelValue:
        """The index counted from the start; 0 where it is out of range, which is noted."""
        counted = kernel_select(index < 0, index + lookup.length, index)
        good = counted.bitcast(UINT64) < counted.const(lookup.length).bitcast(UINT64)
        if lookup not in self.lookups:
            self.lookups.append(lookup)
            self.missed.append(len(self.variables))
            self.variables.append(INT64)
        variable = self.missed[self.lookups.index(lookup)]
        fine = good if self.reached is None else good | ~self.reached
        self.body.set(variable, kernel_select(fine, self.body.get(variable, INT64), index))
        return kernel_select(good, counted, 0)

    def row_block(self, scope: Scope) -> Block:
        """The statements of a row, which begins without misses."""
        with self.body.block() as start:
            for variable in self.missed:
                self.body.set(variable, self.body.const(0, INT64))
        return (*start.statements, *scope.statements)

    def store_bad_indices(self, array: int) -> None:
        for slot, variable in enumerate(self.missed):
            index = self.body.get(variable, INT64)
            bad, place = index.ne(0), self.body.const(slot, INT64)
            with self.body.block() as scope:
                self.body.store_element(array, place, index)
            self.body.add(If(bad.numbers[0], tuple(scope.statements), ()))

    # memory

    def loaded(
        self, array: int, type: ArrayType, starts: Any, shape: Sequence[int], steps: Any = 1, moves: Any = 0,
        turn: KernelValue | None = None,
    ) -> Elements:  # fmt: skip
        """The elements `starts + i * steps + turn * moves` of an array of this type."""
        self.take(shape)
        strides = np.array([prod(type.shape[axis + 1 :]) for axis in range(len(type.shape))], int)
        places = np.tensordot(strides * steps, np.indices(shape), 1) + np.sum(strides * starts)
        move = int(np.sum(strides * moves))
        return self.each(shape, (self._load(array, type.dtype, int(p), move, turn) for p in np.ravel(places)))

    def _load(self, array: int, dtype: DType, place: int, move: int, turn: KernelValue | None) -> KernelValue:
        at = self.body.const(place, INT64)
        return self.body.load_element(array, dtype, at if turn is None else turn * move + at)

    def store_row(self, array: int, row: KernelValue, values: Elements) -> None:
        for place, value in enumerate(values.flat):
            self.body.store_element(array, row * values.size + place, value)

    def each(self, shape: Sequence[int], values: Iterable[KernelValue]) -> Elements:
        found = np.empty(prod(shape), object)
        found[:] = [*values]
        return found.reshape(shape)

    # variables

    def new_variables(self, values: Sequence[Elements]) -> list[list[int]]:
        """Variables for each element."""
        found = []
        for elements in values:
            found.append([len(self.variables) + i * len(v.numbers) for i, v in enumerate(elements.flat)])
            for v in elements.flat:
                self.variables += [p.dtype for p in (v.parts if len(v.numbers) == 2 else (v,))]
        return found

    def set(self, places: Sequence[Sequence[int]], values: Sequence[Elements]) -> None:
        for place, value in zip(chain(*places), chain(*(v.flat for v in values)), strict=True):
            self.body.set(place, value)

    def get(self, places: Sequence[Sequence[int]], like: Sequence[Elements]) -> list[Elements]:
        return [
            self.each(v.shape, (self.body.get(place, x.dtype) for place, x in zip(row, v.flat, strict=True)))
            for row, v in zip(places, like, strict=True)
        ]


def _element(value: KernelValue) -> Elements:
    found = np.empty((), object)
    found[()] = value
    return found


# nodes without bodies


def _refuse_node(writer: _ScalarWriter, node: Node, args: Sequence[Elements]) -> Elements:
    raise NotInScalars


def _write_constant(writer: _ScalarWriter, node: Node, args: Sequence[Elements]) -> Elements:
    return _element(writer.body.const(np.frombuffer(node.attr("value"), node.dtype)[0], node.dtype))


def _write_index(writer: _ScalarWriter, node: Node, args: Sequence[Elements]) -> Elements:
    places = np.indices(node.shape)[node.attr("axis")]
    return writer.each(node.shape, (writer.body.const(int(i), INT64) for i in places.flat))


def _write_elementwise(writer: _ScalarWriter, node: Node, args: Sequence[Elements]) -> Elements:
    writer.take(node.shape)
    wide = [np.broadcast_to(a, node.shape).flat for a in args]
    try:
        return writer.each(node.shape, [_applied(writer, node, values) for values in zip(*wide, strict=True)])
    except NotImplementedError:  # a user's function
        raise NotInScalars from None


def _applied(writer: _ScalarWriter, node: Node, values: Sequence[KernelValue]) -> KernelValue:
    if node.op == "cast":
        return values[0].cast(node.dtype)
    return writer.body.apply(OPS[node.op], values, node.dtype, dict(node.attrs))


def _write_view(writer: _ScalarWriter, node: Node, args: Sequence[Elements]) -> Elements:
    found: Elements = interpret_view_node(node, args)
    return found


def _write_reduction(writer: _ScalarWriter, node: Node, args: Sequence[Elements]) -> Elements:
    """In NumPy's order."""
    (a,), axes, row = args, node.attr("axes"), COMBINERS[node.op]
    writer.take(a.shape)
    inexact = node.dtype.kind in "fc" and row.primitive in ("add", "mul")
    last = axes == tuple(range(a.ndim - len(axes), a.ndim)) and len(axes) in (1, a.ndim)
    if row.carries_index or (inexact and len(axes) > 1 and not last):
        raise NotInScalars
    kept = [axis for axis in range(a.ndim) if axis not in axes]
    moved = a.transpose(*kept, *axes).reshape(node.size, prod(a.shape[axis] for axis in axes))
    wide = FLOAT64 if node.op == "sum" and node.dtype == FLOAT32 else node.dtype  # rounded once, as elsewhere
    op = OPS[row.ufunc.__name__]

    def join(x: KernelValue, y: KernelValue) -> KernelValue:
        return writer.body.apply(op, (x, y), wide)

    def reduced_row(values: Sequence[KernelValue]) -> KernelValue:
        if not values:
            return writer.body.const(row.identity(node.dtype), node.dtype)
        wider = [v.cast(wide) for v in values]
        pairs = node.op == "sum" and inexact and last
        return (_sum_in_pairs(wider, join) if pairs else reduce(join, wider)).cast(node.dtype)

    return writer.each(node.shape, [reduced_row([*values]) for values in moved])


def _sum_in_pairs(
    values: Sequence[KernelValue], join: Callable[[KernelValue, KernelValue], KernelValue]
) -> KernelValue:
    """The sum as NumPy rounds it."""
    parts = ACCUMULATORS // len(values[0].numbers)
    if len(values) * len(values[0].numbers) > PAIRWISE:
        raise NotInScalars
    if len(values) < parts:
        return reduce(join, values)
    whole = len(values) - len(values) % parts
    sums = [reduce(join, values[part:whole:parts]) for part in range(parts)]
    while len(sums) > 1:
        sums = [join(x, y) for x, y in zip(sums[::2], sums[1::2], strict=True)]
    return reduce(join, [*sums, *values[whole:]])


def _write_matmul(writer: _ScalarWriter, node: Node, args: Sequence[Elements]) -> Elements:
    """Products summed in their order."""
    dtype = node.dtype
    if len(args) > 2 or len(node.attrs) > 0 or dtype.kind not in "fiu":
        raise NotInScalars
    writer.take((2 * node.size, args[0].shape[-1]))
    found: Elements = args[0] @ args[1]
    return found


def _write_lookup(
    writer: _ScalarWriter, node: Node, source: Held, indices: Sequence[Elements], line: str
) -> Elements:  # fmt: skip
    """Elements where their indices say: loaded from a table, chosen among values."""
    writer.take(node.shape)
    own = source.shape
    if 0 in own:
        raise NotInScalars
    at = dict(zip(node.attr("axes"), (np.broadcast_to(i, node.shape) for i in indices), strict=True))
    found = []
    for place in np.ndindex(node.shape):
        rest, terms, fixed = iter(node.attr("rest")), [], 0
        for axis, length in enumerate(own):
            stride = prod(own[axis + 1 :])
            if axis not in at:
                fixed += place[next(rest)] * stride
                continue
            index = at[axis][place]
            if node.attr("checked"):
                index = writer.index_in_range(index, Lookup(axis, length, line))
            terms.append(index * stride if stride != 1 else index)
        offset = reduce(lambda x, y: x + y, terms) + fixed
        if isinstance(source, Table):
            found.append(writer.body.load_element(source.array, source.dtype, offset))
        else:
            writer.take(own)
            first, *others = enumerate(source.flat)
            found.append(reduce(lambda x, e: kernel_select(offset.eq(e[0]), e[1], x), others, first[1]))
    return writer.each(node.shape, found)


# nodes with bodies


def _write_given(writer: _ScalarWriter, node: Node, args: Sequence[Elements]) -> Elements:
    """What a derivative was given for."""
    part: int = node.attr("part")
    return args[part]


def _write_loop(writer: _ScalarWriter, node: Node, args: Sequence[Held]) -> list[Elements]:
    loop: Loop = node.attr("control")
    memory, split = memory_argument_count_of_node(node), loop.carried + len(loop.windows)
    numbers = [*map(writer.number, args[memory + loop.counted :])]
    initial = [
        np.broadcast_to(writer.elements(a), t.shape) for a, t in zip(args[: loop.carried], loop.types, strict=False)
    ]
    rest = args[split:memory]
    if loop.kept:
        raise NotInScalars
    if loop.windows or len(loop.types) > loop.carried:
        moving = [*map(writer.elements, args[loop.carried : split])]
        return _write_turns(writer, loop, initial, moving, rest, numbers)
    body, flags = writer.body, bool(loop.flag)
    counts = flags and loop.body.numbers[0] in {*needed_nodes(loop.body.nodes, loop.body.outputs)}
    zero = body.const(0, INT64)
    state = [*initial, *[_element(zero)] * counts]
    places = writer.new_variables(state)
    writer.set(places, state)
    if flags:
        with body.block() as test:
            (condition,) = body.get(places[0][0], BOOL).numbers
    index = zero if flags else body.value(INT64)
    with body.block() as turn:
        carried = writer.get(places, state)
        at = carried.pop().item() if counts else index
        after = writer.graph(loop.body, [*carried, *rest], [at, *numbers])
        writer.set(places, [*after, *[_element(at + 1)] * counts])
    if flags:
        body.add(While(tuple(test.statements), condition, tuple(turn.statements)))
    else:
        count = writer.number(args[memory]) if loop.counted else body.const(loop.count, INT64)
        body.add(For(index.numbers[0], zero.numbers[0], count.cast(INT64).numbers[0], tuple(turn.statements)))
    return writer.get(places[: loop.carried], initial)


def _write_turns(
    writer: _ScalarWriter, loop: Loop, carried: list[Elements], moving: Sequence[Elements], rest: Sequence[Held],
    numbers: Sequence[KernelValue],
) -> list[Elements]:  # fmt: skip
    """One after the other, so that each knows its own elements."""
    inner = any(map(bodies_of_node, loop.body.nodes))
    if loop.flag or inner or loop.count is None or not 0 < loop.count <= UNROLLED:
        raise NotInScalars
    stacked = []
    for turn in range(loop.count):
        shapes = (loop.body.nodes[n].shape for n in loop.body.inputs[loop.carried :])
        rows = [
            interpret_slice_node(a, [s + turn * m for s, m in zip(w.starts, w.moves, strict=True)], w.steps, shape)
            for a, w, shape in zip(moving, loop.windows, shapes, strict=False)
        ]
        results = writer.graph(loop.body, [*carried, *rows, *rest], [writer.body.const(turn, INT64), *numbers])
        carried = results[: loop.carried]
        stacked.append(results[loop.carried :])
    return [*carried, *(np.stack(part) for part in zip(*stacked, strict=True))]


def _write_branch(writer: _ScalarWriter, node: Node, args: Sequence[Held]) -> list[Elements]:
    """Both bodies and a choice, but where one of them loops."""
    branch: Branch = node.attr("control")
    memory, condition = memory_argument_count_of_node(node), writer.number(args[0])
    given, numbers = args[1:memory], [*map(writer.number, args[memory:])]
    if not any(bodies_of_node(inner) for body in branch.bodies for inner in body.nodes):
        outside = writer.reached
        results = []
        for body, here in zip(branch.bodies, (condition, ~condition), strict=True):
            writer.reached = here if outside is None else here & outside
            results.append(writer.graph(body, given, numbers))
        writer.reached = outside
        first, second = results
        return [
            writer.each(x.shape, [writer.body.select(condition, *pair) for pair in zip(x.flat, y.flat, strict=True)])
            for x, y in zip(first, second, strict=True)
        ]
    like = [writer.each(t.shape, [writer.body.const(0, t.dtype)] * t.size) for t in branch.types]
    places = writer.new_variables(like)
    blocks = []
    for each in branch.bodies:
        with writer.body.block() as scope:
            writer.set(places, writer.graph(each, given, numbers))
        blocks.append(tuple(scope.statements))
    writer.body.add(If(condition.numbers[0], *blocks))
    return writer.get(places, like)


Rule = Callable[[_ScalarWriter, Node, Sequence[Elements]], Elements]
_KINDS: Mapping[str, Rule] = {"map": _write_elementwise, "reduce": _write_reduction, "view": _write_view}
_RULES: Mapping[str, Rule] = {
    "const": _write_constant,
    "index": _write_index,
    "concat": _write_view,
    "update": _write_view,
    "custom": _write_given,
    "matmul": _write_matmul,
}
_CONTROL: Mapping[str, Callable[[_ScalarWriter, Node, Sequence[Held]], list[Elements]]] = {
    "loop": _write_loop,
    "branch": _write_branch,
}
