"""Graph -> Graph: copies where memory must be of its own. So `fuse` and `lower` need no exceptions.

After it, every output is a node that some kernel or library stores (or the only reshape of one), every part of a concat
is stored by one place only, every reshape that is more than unit axes sees memory that lies right for it, and sliding
windows see memory.
A copy is a cast to the same dtype: an elementwise node like any other, so whatever produces its input fuses into it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from ...runtime.core.box_index import Box, boxes_meet
from ...runtime.core.frozen import frozen
from ..core.types import ArrayType
from ..graph.builder import GraphBuilder
from ..graph.control_flow import memory_argument_count_of_node
from ..graph.graph import Graph, Node, Value, Values
from ..layout.operands import (
    contiguous_strides,
    has_matrix_order,
    lies_without_gaps,
    reshape_strides,
    shapes_differ_in_unit_axes_only,
    strides_of_memory_view_node,
)
from ..ops.table import OPS

STORED_KINDS = frozenset({"map", "gather", "reduce", "library", "assembly"})
SMALL_PART = 8  # one element in so many is copied rather than all of them stored
LARGE = 1 << 16  # elements of an array that is not reduced with long strides


@frozen
class MemoryLayout:
    """How an input lies in memory: strides in bytes, and whether it is aligned. Strides are multiples of the itemsize;
    aligned is a first element at a multiple of 16 bytes."""

    strides: tuple[int, ...]
    aligned: bool = True

    @classmethod
    def contiguous(cls, type: ArrayType) -> MemoryLayout:
        return cls(contiguous_strides(type.shape, type.dtype.itemsize))


def materialize_copies(
    graph: Graph,
    layouts: Sequence[MemoryLayout],
    second: frozenset[int] = frozenset(),
    copied: frozenset[int] = frozenset(),
    ordered: bool = False,
) -> Graph:
    """The graph with copies. Layouts belong to its inputs. second: the updates that need a second buffer, since what
    they replace is still read (see `inplace_hazards.Conflict`); the others are done in place. copied: those of them
    whose new elements are computed for them alone, after the rest of that buffer. ordered: products take matrices with
    their rows or columns side by side alone."""
    return _CopyMaterializer(graph, layouts, second, copied, ordered).run()


def can_node_be_materialized(op: str) -> bool:
    """Whether a node of this row can be what a kernel or a library writes."""
    return OPS[op].kind in STORED_KINDS


class _CopyMaterializer:
    def __init__(
        self,
        graph: Graph,
        layouts: Sequence[MemoryLayout],
        second: frozenset[int],
        copied: frozenset[int],
        ordered: bool,
    ) -> None:
        self.graph, self.layouts, self.second, self.copied, self.ordered = graph, layouts, second, copied, ordered
        self.outputs = frozenset(graph.outputs)
        self.turned = _arrays_to_turn(graph) if ordered else frozenset()
        self.builder = GraphBuilder(graph.name)
        self.strides: dict[int, tuple[int, ...] | None] = {}  # of nodes that are views of memory
        self.taken: set[int] = set()  # nodes whose memory is an output or part of a concat
        self.gapped: set[int] = set()  # those of them whose rows are not side by side there
        self.copies: dict[tuple[int, bool], Value] = {}  # what a library gets for a node, with or without gaps
        self.whole: set[int] = set()  # nodes that a reshape sees as contiguous memory

    def run(self) -> Graph:
        lines, line = iter(user_lines_of_rewritten_nodes(self.graph)), ""
        self.builder.where = lambda: line
        new: list[Value] = []
        for number, node in enumerate(self.graph.nodes):
            line = next(lines)
            args, kind = [new[a] for a in node.args], node.kind
            if kind in ("map", "reduce"):
                new.append(self.builder.copy(node, args))
                continue  # which is no plain memory
            if node.op == "input":
                value = self.builder.input(node.type)
                self.strides[value.number] = self.layouts[node.attr("index")].strides
            elif node.op == "number":
                value = self.builder.add("number", (), node.type, node.attrs)
                self.builder.numbers.append(value.number)
            elif node.op == "concat":
                times = Counter(node.args)
                regions = _materialized_regions_of_concat(args, node.attr("axis"))
                strides = contiguous_strides(node.shape, node.dtype.itemsize)
                args = [
                    (self._reshaped_within(v, a, strides) if times[a] == 1 else None)
                    or self._materialize_concat_part(
                        v,
                        a in self.outputs or times[a] > 1,
                        is_materialized_region_contiguous(v.shape, r[1], node.shape),
                    )
                    for v, a, r in zip(args, node.args, regions, strict=True)
                ]
                value = self._add_assembly_node(node.type, args, regions)
            elif node.op == "update":
                value = self._materialize_update(number, node, *args)
            elif kind == "library":
                value = self._materialize_library_call(node, args)
            elif node.op == "gather":
                args[0] = self._copy_for_gather(args[0])
                value = self.builder.copy(node, args)
            elif node.op == "reshape":
                value = self._materialize_reshape(args[0], node.shape)
            elif node.op == "windows":
                if self.strides.get(args[0].number) is None:
                    args = [self._copy_unless_contiguous(args[0])]
                value = self.builder.copy(node, args[:1])
            else:
                value = self.builder.copy(node, args)
                if number in self.turned:
                    part = self._materialize_concat_part(value, False, True)
                    rank = node.ndim
                    value = self._add_assembly_node(node.type, [part], [((0,) * rank, (1,) * rank)])
            self._note_strides(value)
            new.append(value)
        results = []
        for output in self.graph.outputs:
            line = self.graph.lines[output] if self.graph.lines else ""
            results.append(self._materialize_output(new[output]))
        return self.builder.finish(results)

    def _materialize_control_flow_args(self, node: Node, args: Values) -> list[int]:
        """What a loop reads from memory, what it carries C-contiguous; a number that it is given stays one."""
        control, memory = node.attr("control"), memory_argument_count_of_node(node)
        carried = control.carried if node.op == "loop" else 0
        found = []
        for place, a in enumerate(args):
            number = place >= memory and self.builder.nodes[a.number].op == "number"
            key = (a.number, True)
            if place < carried and key not in self.copies:
                self.copies[key] = self._copy_unless_contiguous(a)
            found.append(a.number if number else self._copy_unless_in_memory(a, place < carried))
        return found

    def _copy_unless_contiguous(self, value: Value) -> Value:
        """The value, or a copy, in memory of its own or an input's, without gaps."""
        node = self.builder.nodes[value.number]
        if node.op == "input" and self.strides[value.number] == contiguous_strides(value.shape, value.dtype.itemsize):
            return value
        if not can_node_be_materialized(node.op) or value.number in self.taken:
            value = self._add_copy_node(value)
        self.whole.add(value.number)
        return value

    def _add_assembly_node(self, type: ArrayType, parts: Values, regions: Sequence[object]) -> Value:
        return self.builder.add("assemble", tuple(p.number for p in parts), type, (("regions", tuple(regions)),))

    def _materialize_update(self, number: int, node: Node, base: Value, value: Value) -> Value:
        """In place where the base is a stored node that nothing else takes over; else what the update leaves of the
        base is copied around it."""
        starts, steps = node.attr("starts"), node.attr("steps")
        no_gaps = is_materialized_region_contiguous(value.shape, steps, node.shape)
        if number not in self.copied:  # one kernel writes what it replaces
            spread = self.ordered and steps[-1:] != (1,) and self.builder.nodes[value.number].op == "matmul"
            elsewhere = node.args[1] in self.outputs or self._is_view_of_assembly(value) or spread
            value = self._materialize_concat_part(value, elsewhere, no_gaps)
        own = can_node_be_materialized(self.builder.nodes[base.number].op) and not self._is_claimed(base.number)
        if (
            number in self.second
            or not own
            or node.args[0] in self.outputs
            or self._kernel_reads_what_it_overwrites(node)
        ):
            kept = boxes_to_copy_outside_update(node.shape, starts, steps, value.shape)
            ones = (1,) * len(starts)
            parts = [self._add_copy_node(self.builder.slice(base, first, ones, shape)) for first, shape in kept]
            for part in parts:
                self.taken.add(part.number)
                self._note_strides(part)
            base = self._add_assembly_node(node.type, parts, [(first, ones) for first, _ in kept])
            self._note_strides(base)
        if number in self.copied:
            value = self._materialize_concat_part(self._add_copy_node(value), False, no_gaps)
        self.taken.add(base.number)
        return self.builder.add("update", (base.number, value.number), node.type, (*node.attrs, ("origin", number)))

    def _kernel_reads_what_it_overwrites(self, update: Node) -> bool:
        """Whether the new elements are surely computed in the kernel that stores them, from others of those that they
        replace. In place that is a conflict, which fusion would find too, later."""
        nodes, users = self.graph.nodes, self.graph.users
        base, value = update.args
        shape = nodes[value].shape
        written = extent_of_region(shape, update.attr("starts"), update.attr("steps"))
        todo = [value]
        while todo:
            number = todo.pop()
            node = nodes[number]
            if node.op == "slice" and node.args[0] == base:
                read = extent_of_region(node.shape, node.attr("starts"), node.attr("steps"))
                if read != written and boxes_meet(read, written):
                    return True
            elif node.kind == "map" and node.shape == shape and len(users[number]) == 1:
                todo += node.args
        return False

    def _materialize_library_call(self, node: Node, args: Values) -> Value:
        """A call whose arguments lie in memory; each is copied once, whichever of the call's results needs it."""
        contiguous = OPS[node.op].contiguous or ("contiguous", True) in node.attrs
        if node.op in ("loop", "branch"):
            placed = self._materialize_control_flow_args(node, args)
        else:
            matrices = 2 if node.op == "matmul" else len(args)
            refuses = self._has_no_matrix_order if self.ordered and node.op == "matmul" else lambda value: contiguous
            placed = [self._copy_unless_in_memory(a, refuses(a)) for a in args[:matrices]] + [
                self._materialize_bias_row(a) for a in args[matrices:]
            ]
        value = self.builder.add(node.op, tuple(placed), node.type, node.attrs)
        if contiguous:
            self.whole.add(value.number)
        return value

    def _has_no_matrix_order(self, value: Value) -> bool:
        strides = self._strides_once_stored(value.number)
        return strides is None or not has_matrix_order(value.type, strides)

    def _strides_once_stored(self, number: int) -> tuple[int, ...] | None:
        """Strides of plain memory, and of views of what a kernel is to store; None where a view needs another copy."""
        node = self.builder.nodes[number]
        if (known := self.strides.get(number)) is not None or node.kind != "view":
            return known or contiguous_strides(node.shape, node.dtype.itemsize)
        source = self._strides_once_stored(node.args[0])
        shape = self.builder.nodes[node.args[0]].shape
        return None if source is None else strides_of_memory_view_node(node, shape, source)

    def _materialize_bias_row(self, value: Value) -> int:
        """A bias in memory, its elements side by side; all of its other axes have one element."""
        strides, root = self.strides.get(value.number), self._root_of_views(value.number)
        if not strides or strides[-1] != value.dtype.itemsize or root in self.taken:
            return self._copy_unless_in_memory(value, True)
        self.whole.add(root)
        return self._copy_unless_in_memory(value, False)

    def _copy_unless_in_memory(self, value: Value, contiguous: bool) -> int:
        """The value in memory, without gaps if need be; the same copy for all that need one."""
        key = (value.number, contiguous)
        if key not in self.copies:
            self.copies[key] = value if self._is_in_memory(*key) else self._add_copy_node(value)
        number = self.copies[key].number
        if contiguous:
            self.whole.add(self._root_of_views(number))
        return number

    def _root_of_views(self, number: int) -> int:
        """The node whose memory a view looks at."""
        while self.builder.nodes[number].kind == "view":
            number = self.builder.nodes[number].args[0]
        return number

    def _is_claimed(self, number: int) -> bool:
        """Whether a node's memory is part of another's, or seen as it lies."""
        return number in self.taken or number in self.whole

    def _is_view_of_assembly(self, value: Value) -> bool:
        node = self.builder.nodes[value.number]
        root = self.builder.nodes[node.args[0]] if node.op == "reshape" else node
        return root.kind == "assembly"

    def _copy_for_gather(self, value: Value) -> Value:
        """The value in memory. Of what a kernel computes a small part is copied: the rest need not be there."""
        root = self.builder.nodes[self._root_of_views(value.number)]
        part = root.kind == "map" and SMALL_PART * value.size <= root.type.size
        key = (value.number, False)
        if key not in self.copies:
            self.copies[key] = self._add_copy_node(value) if part or not self._is_in_memory(value.number) else value
        return self.copies[key]

    def _is_in_memory(self, number: int, contiguous: bool = False) -> bool:
        """Whether a library can be handed the node: its own memory, or a view of some. contiguous: without gaps."""
        node = self.builder.nodes[number]
        if contiguous:
            strides = self._strides_once_stored(number)
            if strides is None or self._root_of_views(number) in self.taken:
                return False
            if not lies_without_gaps(node.shape, strides, node.dtype.itemsize):
                return False
        if node.kind == "view":
            return self._is_in_memory(node.args[0])
        return node.op == "input" or can_node_be_materialized(node.op)

    def _note_strides(self, value: Value) -> None:
        """Remember the strides (in bytes) of what is plain memory, None for what is computed on the fly."""
        if value.number in self.strides:
            return
        node = self.builder.nodes[value.number]
        source = self.strides.get(node.args[0]) if node.args else None
        strides: tuple[int, ...] | None = None
        if node.kind in ("library", "assembly"):
            strides = contiguous_strides(node.shape, node.dtype.itemsize)
        elif source is not None and node.kind == "view":
            strides = strides_of_memory_view_node(node, self.builder.nodes[node.args[0]].shape, source)
        self.strides[value.number] = strides

    def _materialize_reshape(self, value: Value, shape: tuple[int, ...]) -> Value:
        """A reshape that is free: of unit axes, of memory that lies right, or of a node stored for its sake."""
        node = self.builder.nodes[value.number]
        if not shapes_differ_in_unit_axes_only(value.shape, shape):
            strides = self.strides.get(value.number)
            lies_right = strides is not None and reshape_strides(value.shape, strides, shape) is not None
            lies_right = lies_right and self._root_of_views(value.number) not in self.gapped
            if not lies_right and (not can_node_be_materialized(node.op) or value.number in self.taken):
                value = self._add_copy_node(value)
            root = self._root_of_views(value.number)
            if can_node_be_materialized(self.builder.nodes[root].op):
                self.whole.add(root)
        return self.builder.reshape(value, shape)

    def _reshaped_within(self, value: Value, part: int, strides: tuple[int, ...]) -> Value | None:
        """A part of a concat that is a reshape of a product, or of a concat, where nothing else reads that, and its
        elements can lie as they do there, so many bytes apart. None of any other."""
        nodes, users, node = self.graph.nodes, self.graph.users, self.builder.nodes[value.number]
        root = nodes[part].args[0] if nodes[part].op == "reshape" else part
        if root == part or node.op != "reshape" or not self.outputs.isdisjoint((part, root)):
            return None
        made = node.args[0]
        own = reshape_strides(value.shape, strides, self.builder.nodes[made].shape)
        alone = self.builder.nodes[made].op in ("matmul", "assemble") and len(users[root]) == len(users[part]) == 1
        if not alone or made in self.taken or not self._may_lie(made, own):
            return None
        self.taken.add(made)
        self.whole.discard(made)
        self.gapped.update(self._nodes_within_assembly(made))
        return value

    def _may_lie(self, number: int, strides: tuple[int, ...] | None) -> bool:
        """Whether a product, and what lies in an assembly, can be stored so."""
        node = self.builder.nodes[number]
        if strides is None or node.kind != "assembly":
            plain = node.op not in ("loop", "branch", "matmul")
            return strides is not None and (plain or (node.op == "matmul" and has_matrix_order(node.type, strides)))
        for arg, (_, steps) in zip(node.args, materialized_regions_of_assembly(node), strict=True):
            part, own = self.builder.nodes[arg], tuple(s * t for s, t in zip(strides, steps, strict=True))
            root = part.args[0] if part.op == "reshape" else arg
            lies = own if root == arg else reshape_strides(part.shape, own, self.builder.nodes[root].shape)
            if root in self.whole or not self._may_lie(root, lies):
                return False
        return True

    def _materialize_concat_part(self, value: Value, elsewhere: bool, no_gaps: bool) -> Value:
        """A part of a concat: stored there and nowhere else. no_gaps: there it is as contiguous as by itself."""
        node = self.builder.nodes[value.number]
        root = value.number
        if node.op == "reshape":
            stacked = no_gaps and self._is_stacked_by_loop(node.args[0])
            inner = self.builder.nodes[node.args[0]]
            joins = shapes_differ_in_unit_axes_only(value.shape, inner.shape)
            spread = self.ordered and not no_gaps and inner.op == "matmul" and value.shape[-1:] != inner.shape[-1:]
            if stacked or (joins and not spread):
                root = node.args[0]
        inside = {*self._nodes_within_assembly(root)}
        within = {root} if no_gaps else inside
        stacked = no_gaps and self._is_stacked_by_loop(root)
        whole = not within.isdisjoint(self.whole) and not stacked
        shared = elsewhere or root in self.taken or whole
        looped = not stacked and any(self.builder.nodes[n].op in ("loop", "branch") for n in inside)
        if shared or not can_node_be_materialized(self.builder.nodes[root].op) or looped:
            value = self._add_copy_node(value)
            root = value.number
            within = {root}
        self.taken.add(root)
        if not no_gaps:
            self.gapped |= within
        return value

    def _nodes_within_assembly(self, number: int) -> Iterator[int]:
        """A node, and what lies in it where it is an assembly: with gaps around it all have other strides."""
        yield number
        node = self.builder.nodes[number]
        if node.kind == "assembly":
            for arg in node.args:
                yield from self._nodes_within_assembly(self._root_of_views(arg))

    def _is_stacked_by_loop(self, number: int) -> bool:
        """Whether a node is what the turns of a loop stack: they write it, and do not read it."""
        node = self.builder.nodes[number]
        return node.op == "loop" and node.attr("part") >= node.attr("control").carried

    def _materialize_output(self, value: Value) -> Value:
        value = self._materialize_reversed_result(value)
        node = self.builder.nodes[value.number]
        root = node.args[0] if node.op == "reshape" else value.number
        if node.op == "reshape" and self.builder.nodes[root].shape == value.shape:
            root = value.number
        alias = (
            node.op == "reshape" and can_node_be_materialized(self.builder.nodes[root].op) and root not in self.taken
        )
        if not alias and (not can_node_be_materialized(node.op) or value.number in self.taken):
            value = self._add_copy_node(value)
            root = value.number
        self.taken.add(root)
        return value

    def _materialize_reversed_result(self, value: Value) -> Value:
        """Of a host call's result that is returned the other way round: the result, written that way round."""
        node = self.builder.nodes[value.number]
        root = node.args[0] if node.op == "slice" else value.number
        if root == value.number or self.builder.nodes[root].op != "host" or self._is_claimed(root):
            return value
        if self.builder.nodes[root].shape != value.shape:
            return value
        self.taken.add(root)
        return self._add_assembly_node(value.type, [self.builder.at(root)], [(node.attr("starts"), node.attr("steps"))])

    def _add_copy_node(self, value: Value) -> Value:
        """A node of its own, even where an equal one exists."""
        number = len(self.builder.nodes)
        self.builder.add("cast", (value.number,), value.type, (("copy", number),))
        return Value(number, value.type)


def _arrays_to_turn(graph: Graph) -> frozenset[int]:
    """Large arrays whose axes are permuted and that a reduction reads beside others that lie as it goes: with long
    strides each element takes a line of memory. A copy takes little beside that."""
    found = set[int]()
    for node in graph.nodes:
        if node.kind == "reduce" and graph.nodes[node.args[0]].type.size >= LARGE:
            read = _arrays_read_element_by_element(graph, node.args[0])
            turned = {n for n in read if _is_innermost_axis_moved(graph, n)}
            found |= turned if turned != read else set()
    return frozenset(found)


def _arrays_read_element_by_element(graph: Graph, number: int) -> set[int]:
    """Of a node's own shape, that it is computed of."""
    shape, found, done, todo = graph.nodes[number].shape, set[int](), set[int](), [number]
    while todo:
        node = graph.nodes[at := todo.pop()]
        if at in done or node.shape != shape or node.op in ("const", "index", "broadcast"):
            continue
        done.add(at)
        if node.kind == "map":
            todo += node.args
        else:
            found.add(at)
    return found


def _is_innermost_axis_moved(graph: Graph, number: int) -> bool:
    node = graph.nodes[number]
    if node.op != "permute" or graph.nodes[node.args[0]].op == "broadcast":
        return False
    moved = [axis for axis, n in zip(node.attr("axes"), node.shape, strict=True) if n != 1]
    return bool(moved) and moved[-1] != max(moved)


Region = tuple[tuple[int, ...], tuple[int, ...]]


def _materialized_regions_of_concat(parts: Values, axis: int) -> list[Region]:
    """(starts, steps) of each part."""
    regions, start = [], 0
    for part in parts:
        rank = len(part.shape)
        regions.append((tuple(start if i == axis else 0 for i in range(rank)), (1,) * rank))
        start += part.shape[axis]
    return regions


def is_materialized_region_contiguous(part: Sequence[int], steps: Sequence[int], shape: Sequence[int]) -> bool:
    """Whether a region of a contiguous array of `shape` is contiguous itself."""
    first = next((axis for axis, n in enumerate(part) if n != 1), len(part))
    whole = all(n == m for n, m in zip(part[first + 1 :], shape[first + 1 :], strict=True))
    return whole and all(step == 1 for step, n in zip(steps, part, strict=True) if n != 1)


def materialized_regions_of_assembly(node: Node) -> tuple[Region, ...]:
    """Where each argument of an assembly lies in it: (starts, steps)."""
    if node.op == "assemble":
        regions: tuple[Region, ...] = node.attr("regions")
        return regions
    rank = node.ndim
    return ((0,) * rank, (1,) * rank), (node.attr("starts"), node.attr("steps"))


def extent_of_region(shape: Sequence[int], starts: Sequence[int], steps: Sequence[int]) -> Box:
    """The lowest and the highest index along each axis of a region of this shape."""
    return tuple(
        [
            (start, start + way) if (way := step * (n - 1)) >= 0 else (start + way, start)
            for n, start, step in zip(shape, starts, steps, strict=True)
        ]
    )


def boxes_to_copy_outside_update(
    shape: Sequence[int], starts: Sequence[int], steps: Sequence[int], region: Sequence[int]
) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Boxes (start, shape) that cover what a region leaves of an array. The whole array where the region has gaps."""
    gaps = any(abs(step) != 1 and n > 1 for step, n in zip(steps, region, strict=True))
    if gaps:
        return [((0,) * len(shape), tuple(shape))]
    low = [start + min(0, step * (n - 1)) for start, step, n in zip(starts, steps, region, strict=True)]
    boxes = []
    for axis, n in enumerate(shape):
        for first, length in ((0, low[axis]), (low[axis] + region[axis], n - low[axis] - region[axis])):
            start = (*low[:axis], first, *(0,) * (len(shape) - axis - 1))
            size = (*region[:axis], length, *shape[axis + 1 :])
            if 0 not in size:
                boxes.append((start, size))
    return boxes


def user_lines_of_rewritten_nodes(graph: Graph) -> Sequence[str]:
    """One line per node, empty where unknown."""
    return graph.lines or ("",) * len(graph.nodes)
