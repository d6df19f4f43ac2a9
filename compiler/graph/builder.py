"""Builder: the only thing that makes nodes. Requests in; typed, broadcast nodes out, each made once."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from ...runtime.program.custom_calls import CustomKernel, NewArray
from ...runtime.program.user_function import UserFunction
from ..core.combiners import COMBINERS
from ..core.types import INT64, ArrayType, WeakType
from ..ops.table import OPS, resolve_op_row_dtypes
from ..sequential.form import Routine
from .graph import Attrs, Graph, GraphError, Node, Value, Values, needed_nodes
from .precision import precision_attrs

Scalar = bool | int | float | complex
Operand = Value | Scalar | np.generic

WEAK_DTYPES: dict[type, np.dtype[Any]] = {
    bool: np.dtype(bool),
    int: np.dtype(np.int64),
    float: np.dtype(np.float64),
    complex: np.dtype(np.complex128),
}


class GraphBuilder:
    """Makes nodes: types, broadcasts and refuses. A node that it has is returned again.

    error: makes what is raised for nonsense, of a text and the built-in class that NumPy raises there (ValueError)."""

    def __init__(
        self,
        name: str = "graph",
        where: Callable[[], str] = lambda: "",
        error: Callable[..., Exception] = GraphError,
    ) -> None:
        self.name = name
        self.where = where
        self.error = error
        self.nodes: list[Node] = []
        self.lines: list[str] = []
        self.inputs: list[int] = []
        self.numbers: list[int] = []
        self.place: tuple[str, int] | None = None  # the device that operations are to run on, where the user says so
        self.limit = 1 << 62  # with so many nodes `at_limit` is called before each further one
        self.at_limit: Callable[[], None] = lambda: None
        self._known: dict[tuple[Any, ...], int] = {}  # what a node is made of: that is hashed faster than the node

    # sources

    def input(self, type: ArrayType) -> Value:
        """The caller's next array."""
        value = self.add("input", (), type, (("index", len(self.inputs)),))
        self.inputs.append(value.number)
        return value

    def scalar(self, kind: WeakType) -> Value:
        """The caller's next Python number; its value is known only when the program runs."""
        value = self.add("number", (), ArrayType((), WEAK_DTYPES[kind]), (("index", len(self.numbers)),))
        self.numbers.append(value.number)
        return Value(value.number, value.type, kind)

    def from_front(self, index: Value, length: int) -> Value:
        """Indices in an axis, where the negative ones count from its end."""
        negative = self.map("less", index, np.int64(0))
        return self.map("where", negative, self.map("add", index, np.int64(length)), index)

    def element_numbers(self, shape: Sequence[int], indices: Sequence[Value]) -> Value:
        """The numbers of elements in C order, from their index along each axis, as broadcast together."""
        found: Value | None = None
        for axis, index in enumerate(indices):
            step = math.prod(shape[axis + 1 :])
            index = self.map("multiply", index, np.int64(step)) if step != 1 else index
            found = index if found is None else self.map("add", found, index)
        return self.const(np.int64(0), np.int64) if found is None else found

    def placeholder(self, type: ArrayType) -> Value:
        """What stands for a value of this type until it is replaced, or falls away."""
        return self.add("placeholder", (), type, (("id", len(self.nodes)),))

    def const(self, value: Scalar | np.generic, dtype: Any = None) -> Value:
        """A 0-d constant of `dtype` (default: the value's own)."""
        wanted = np.dtype(dtype) if dtype is not None else np.asarray(value).dtype
        try:
            if type(value) is int and wanted.kind in "bO":
                np.array(value, np.uint64 if value > 0 and wanted.kind == "O" else np.int64)  # as NumPy does
            if type(value) is float and value:  # 0.0 is -0.0 to a cache
                return self.add("const", (), ArrayType((), wanted), _node_constant_from_float(value, wanted))
            with np.errstate(over="ignore"):
                data = np.asarray(value).astype(wanted) if isinstance(value, np.generic) else np.array(value, wanted)
        except OverflowError:
            instead = f"convert the array first, e.g. x.astype({np.min_scalar_type(value)})"
            place = f"{wanted}; {instead}" if wanted.kind != "O" else "64 bits; write it as a float"
            raise self.error(f"the Python integer {value} does not fit {place}", OverflowError) from None
        return self.add("const", (), ArrayType((), wanted), (("value", data.tobytes()),))

    def index(self, shape: Sequence[int], axis: int) -> Value:
        """int64 array of `shape` that holds each element's index along `axis`."""
        return self.add("index", (), ArrayType(tuple(shape), np.dtype(np.int64)), (("axis", axis),))

    # elementwise

    def map(self, op: str, *args: Operand, dtype: Any = None, **attrs: Any) -> Value:
        """Row `op` on broadcast arguments, in NumPy's loop for their dtypes. dtype: as ufuncs take it."""
        shape = self.broadcast_shapes(op, [a.shape for a in args if isinstance(a, Value)])
        try:
            loop, result = _resolved_dtypes_of_node(op, tuple(_weak_kind_of_node_operand(a) for a in args), dtype)
        except TypeError as error:
            raise self.error(str(error), TypeError) from None
        operands = [self.cast(self.value(a, to), to) for a, to in zip(args, loop, strict=True)]
        key = tuple(sorted(attrs.items())) if attrs else ()
        return self.add(op, tuple(v.number for v in operands), ArrayType(shape, result), key)

    def value(self, arg: Operand, dtype: Any = None) -> Value:
        """The operand as a node; a Python or NumPy scalar becomes a constant of `dtype`."""
        if isinstance(arg, Value):
            return arg
        return self.const(arg, dtype if not isinstance(arg, np.generic) else None)

    def cast(self, a: Value, dtype: Any) -> Value:
        """astype: `a` itself where it has that dtype already."""
        wanted = np.dtype(dtype)
        if a.dtype == wanted:
            return a if a.weak is None else Value(a.number, a.type)
        node = self.nodes[a.number]
        if node.op == "const":  # a constant stays a constant, converted by NumPy
            with np.errstate(all="ignore"):
                return self.const(np.frombuffer(node.attr("value"), a.dtype)[0].astype(wanted), wanted)
        return self.add("cast", (a.number,), ArrayType(a.shape, wanted))

    def call(self, function: UserFunction, *args: Operand, where: Value | None = None) -> list[Value]:
        """The results of a user's scalar function on broadcast arguments. These are cast to its arguments' dtypes.

        where: the elements for which it is called; the others' results are of no use."""
        row = "call_loop" if function.loops else "call"
        values = [self.cast(self.value(a, d), d) for a, d in zip(args, function.arguments, strict=True)]
        values += [] if where is None else [where]
        shape = self.broadcast_shapes(function.source.name, [v.shape for v in values])
        numbers = tuple(v.number for v in values)
        return [
            self.add(row, numbers, ArrayType(shape, np.dtype(d)), (("function", function), ("part", part)))
            for part, d in enumerate(function.results)
        ]

    # views

    def slice(self, a: Value, starts: Sequence[int], steps: Sequence[int], shape: Sequence[int]) -> Value:
        """Element i of the result is element `starts + i * steps` of `a`."""
        if (
            tuple(shape) == a.shape
            and all(s == 0 for s in starts)
            and all(step == 1 or n <= 1 for step, n in zip(steps, shape, strict=True))
        ):
            return a
        attrs = (("starts", tuple(starts)), ("steps", tuple(steps)))
        return self.add("slice", (a.number,), ArrayType(tuple(shape), a.dtype), attrs)

    def permute(self, a: Value, axes: Sequence[int]) -> Value:
        """Axis i of the result is axis `axes[i]` of `a`."""
        if tuple(axes) == tuple(range(a.ndim)):
            return a
        shape = tuple(a.shape[i] for i in axes)
        return self.add("permute", (a.number,), ArrayType(shape, a.dtype), (("axes", tuple(axes)),))

    def broadcast(self, a: Value, shape: Sequence[int]) -> Value:
        """NumPy's broadcast_to."""
        wanted = tuple(shape)
        if a.shape == wanted:
            return a
        if self.broadcast_shapes("broadcast_to", [a.shape, wanted]) != wanted:
            raise self.error(f"an array of shape {a.shape} cannot be broadcast to {wanted}")
        return self.add("broadcast", (a.number,), ArrayType(wanted, a.dtype))

    def reshape(self, a: Value, shape: Sequence[int]) -> Value:
        """The same elements in C order in another shape. One entry may be negative, and is found."""
        wanted = tuple(int(n) for n in shape)
        if sum(n < 0 for n in wanted) == 1:
            rest = int(np.prod([n for n in wanted if n >= 0], dtype=np.int64))
            if rest == 0 or a.size % rest:
                raise self.error(f"an array of shape {a.shape} cannot be reshaped to {wanted}: {a.size} elements")
            wanted = tuple(a.size // rest if n < 0 else n for n in wanted)
        if any(n < 0 for n in wanted) or ArrayType(wanted, a.dtype).size != a.size:
            raise self.error(f"an array of shape {a.shape} cannot be reshaped to {wanted}: {a.size} elements")
        if wanted == a.shape:
            return a
        node = self.nodes[a.number]
        if node.op == "reshape":
            return self.reshape(self.at(node.args[0]), wanted)
        return self.add("reshape", (a.number,), ArrayType(wanted, a.dtype))

    def windows(self, a: Value, axis: int, length: int) -> Value:
        """Sliding windows of `length` along an axis. Element (..., i, ..., j) of the result, i along that axis and j
        along a new last one, is element (..., i + j, ...) of `a`."""
        shape = (*(n - length + 1 if i == axis else n for i, n in enumerate(a.shape)), length)
        return self.add("windows", (a.number,), ArrayType(shape, a.dtype), (("axis", axis), ("length", length)))

    def concat(self, parts: Values, axis: int) -> Value:
        """Joins parts along an axis. They have one dtype, and equal shapes but for that axis."""
        first = parts[0]
        for part in parts:
            if len(part.shape) != first.ndim or any(
                m != n for i, (m, n) in enumerate(zip(part.shape, first.shape, strict=True)) if i != axis
            ):
                shapes = ", ".join(str(p.shape) for p in parts)
                raise self.error(f"concatenate needs equal shapes but for axis {axis}, got {shapes}")
        if len(parts) == 1:
            return first
        length = sum(p.shape[axis] for p in parts)
        shape = (*first.shape[:axis], length, *first.shape[axis + 1 :])
        return self.add("concat", tuple(p.number for p in parts), ArrayType(shape, first.dtype), (("axis", axis),))

    def update(self, base: Value, value: Value, starts: Sequence[int], steps: Sequence[int]) -> Value:
        """`base` with the elements `starts + i * steps` replaced by `value[i]`. The value has base's dtype and rank."""
        if value.size == 0:
            return base
        attrs = (("starts", tuple(starts)), ("steps", tuple(steps)))
        return self.add("update", (base.number, value.number), base.type, attrs)

    # the rest

    def reduce(self, op: str, a: Value, axes: Sequence[int], dtype: Any = None) -> Value:
        """Reduce over `axes` (sorted, in range); the axes vanish. dtype: the result's, default as NumPy's."""
        row = OPS[op]
        try:
            loop, result = resolve_op_row_dtypes(row, [a.dtype], dtype)
        except TypeError as error:
            raise self.error(str(error), TypeError) from None
        shape = tuple(n for i, n in enumerate(a.shape) if i not in axes)
        if row.identity is None and any(a.shape[i] == 0 for i in axes):
            raise self.error(f"zero-size array to reduction operation {op} which has no identity")
        if not axes:  # each element alone: itself, or index 0
            zero = COMBINERS[op].carries_index
            alone = self.broadcast(self.const(0, result), shape) if zero else self.cast(a, loop[0])
            return self.cast(alone, result)
        source = self.cast(a, loop[0])
        return self.add(op, (source.number,), ArrayType(shape, result), (("axes", tuple(axes)),))

    def gather(
        self, a: Value, indices: Values, axes: Sequence[int], rest: Sequence[int], shape: Sequence[int],
        checked: bool = True,
    ) -> Value:  # fmt: skip
        """Loads elements of `a` at computed indices. Element i of the result, of `shape`, is that of `a` at
        indices[k][i] along axis axes[k], and at i[r] along each other axis of `a`, in order with the r of `rest`.
        indices: int64, of shapes that broadcast to `shape`.

        checked: a negative index counts from the end, and one out of range is an IndexError where the call is
        checked, else some element. Not checked: all must be in range."""
        attrs = (("axes", tuple(axes)), ("rest", tuple(rest)), ("checked", checked))
        args = (a.number, *(self.cast(i, INT64).number for i in indices))
        return self.add("gather", args, ArrayType(tuple(shape), a.dtype), attrs)

    def matmul(self, a: Value, b: Value, *, precision: str | None = None) -> Value:
        """The batched matrix product of (..., m, k) and (..., k, n), batches broadcast. Both have two axes or more.
        precision: as `precision_attrs` takes it."""
        if a.shape[-1] != b.shape[-2]:
            raise self.error(
                f"matmul: {a.shape} @ {b.shape} has {a.shape[-1]} columns against {b.shape[-2]} rows; "
                "transpose one of them, or reshape"
            )
        try:
            dtype = np.matmul.resolve_dtypes((a.dtype, b.dtype, None))[-1]
        except TypeError:
            dtype = np.result_type(a.dtype, b.dtype)
        batch = self.broadcast_shapes("matmul", [a.shape[:-2], b.shape[:-2]])
        shape = (*batch, a.shape[-2], b.shape[-1])
        args = self.cast(a, dtype).number, self.cast(b, dtype).number
        return self.add("matmul", args, ArrayType(shape, dtype), precision_attrs(dtype, precision))

    def host(self, function: str, args: Values, types: Sequence[ArrayType], **options: Any) -> list[Value]:
        """What row `function` of `runtime/interpret/numpy_calls.py`'s table gives for the arrays and options
        (hashable, in any order): one value for each of `types`. `compiler/decompose` says who does it."""
        fixed = ("function", function), ("options", tuple(sorted(options.items())))
        numbers = tuple(a.number for a in args)
        return [self.add("host", numbers, type, (*fixed, ("part", i))) for i, type in enumerate(types)]

    def kernel(self, own: CustomKernel, args: Values, writes: Sequence[NewArray]) -> list[Value]:
        """What a GPU kernel of the user's writes, given its arrays. Those that it reads come first, then initial
        values."""
        numbers, fixed = tuple(a.number for a in args), (("own", own), ("writes", tuple(writes)))
        types = [ArrayType(w.shape, np.dtype(w.dtype)) for w in writes]
        return [self.add("kernel", numbers, type, (*fixed, ("part", i))) for i, type in enumerate(types)]

    def sequential(self, routine: Routine, args: Values) -> list[Value]:
        """What a loop nest writes, given its arrays. They are those that it reads and those that it starts from, in its
        order."""
        numbers, fixed = tuple(a.number for a in args), (("routine", routine),)
        types = [ArrayType(a.shape, a.dtype) for a in routine.arrays if a.role in ("out", "inout")]
        return [self.add("sequential", numbers, type, (*fixed, ("part", i))) for i, type in enumerate(types)]

    def add(self, op: str, args: tuple[int, ...], type: ArrayType, attrs: Attrs = ()) -> Value:
        """The node's number; an equal node is made once."""
        if self.place is not None and args and OPS[op].kind != "device":
            args = tuple(self.placed(self.at(a), self.place).number for a in args)
        key = (op, args, type.shape, type.dtype, exact_node_attrs(op, attrs) if attrs else attrs)
        number = self._known.get(key)
        if number is None:
            if len(self.nodes) >= self.limit:
                self.at_limit()
            if len(type.shape) > 64:
                raise self.error(f"{op}: {len(type.shape)} dimensions; NumPy's arrays have at most 64; reshape first")
            number = self._known[key] = len(self.nodes)
            self.nodes.append(Node(op, args, type, attrs))
            self.lines.append(self.where())
        return Value(number, type)

    def copy(self, node: Node, args: Iterable[Value], type: ArrayType | None = None) -> Value:
        """A node of this graph or another, on other arguments; of another type, where one is given."""
        return self.add(node.op, tuple([a.number for a in args]), type or node.type, node.attrs)

    def placed(self, a: Value, device: tuple[str, int]) -> Value:
        """The same array on a device, a kind and a number. What is made of no array is everywhere."""
        node = self.nodes[a.number]
        if node.op in ("const", "number", "index") or (node.op == "place" and node.attr("device") == device):
            return a
        return self.add("place", (a.number,), a.type, (("device", device),))

    def at(self, number: int) -> Value:
        return Value(number, self.nodes[number].type)

    def broadcast_shapes(self, op: str, shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
        first = shapes[0] if shapes else ()
        if shapes.count(first) == len(shapes):
            return first
        try:
            return np.broadcast_shapes(*shapes)
        except RuntimeError as error:  # NumPy's own limit of dimensions here
            raise self.error(f"{op}: {error} Reshape first") from None
        except ValueError:
            text = " and ".join(map(str, shapes))
            if max((math.prod(s) for s in shapes), default=0) >= 2**63:
                raise self.error(f"{op}: arrays of shapes {text} have more elements than there can be") from None
            raise self.error(f"{op}: shapes {text} do not broadcast; insert axes with x[:, None] or reshape") from None

    def finish_copy(self, graph: Graph, new: Mapping[int, Value] | Values) -> Graph:
        """The graph whose inputs, numbers and outputs are the copies of a graph's. new: of each of its nodes."""
        self.inputs, self.numbers = ([new[n].number for n in numbers] for numbers in (graph.inputs, graph.numbers))
        return self.finish([new[n] for n in graph.outputs])

    def finish(self, outputs: Values) -> Graph:
        """The graph of all that `outputs` need; inputs and numbers stay even when unused."""
        keep = {*self.inputs, *self.numbers}
        order = sorted(keep.union(needed_nodes(self.nodes, [o.number for o in outputs], keep)))
        nodes, lines = tuple(self.nodes), tuple(self.lines)
        new: Mapping[int, int] | range = range(len(nodes))
        if len(order) < len(nodes):
            new = places = {old: i for i, old in enumerate(order)}
            nodes = tuple([_with_renumbered_args(nodes[old], places) for old in order])
            lines = tuple(lines[old] for old in order)
        return Graph(
            nodes,
            tuple(new[i] for i in self.inputs),
            tuple(new[i] for i in self.numbers),
            tuple(new[o.number] for o in outputs),
            lines,
            self.name,
        )


def nodes_to_copy(graph: Graph, builder: GraphBuilder) -> Iterator[tuple[int, Node]]:
    """The nodes of a graph by their numbers. What is built for one has its line."""
    line = ""
    builder.where = lambda: line
    for number, node in enumerate(graph.nodes):
        line = graph.lines[number] if graph.lines else ""
        yield number, node


def _with_renumbered_args(node: Node, places: Mapping[int, int]) -> Node:
    args = tuple([places[a] for a in node.args])
    return node if args == node.args else Node(node.op, args, node.type, node.attrs)


def exact_node_attrs(op: str, attrs: Attrs) -> Any:
    """Equal for attributes that mean the same. Of the user's numbers 1, 1.0 and True differ, and 0.0 and -0.0."""
    return (attrs, _exact_kinds_of_node_attr(attrs)) if attrs and OPS[op].kind in ("map", "library") else attrs


def _exact_kinds_of_node_attr(value: Any) -> Any:
    if type(value) is tuple:
        return tuple(map(_exact_kinds_of_node_attr, value))
    return repr(value) if isinstance(value, (float, complex)) else type(value)


@lru_cache(4096)
def _resolved_dtypes_of_node(op: str, kinds: tuple[Any, ...], dtype: Any) -> Any:
    """`resolve`, kept; of Python numbers alone, what NumPy makes of them."""
    if all(isinstance(k, type) for k in kinds):
        kinds = tuple(WEAK_DTYPES[k] for k in kinds)
    return resolve_op_row_dtypes(OPS[op], kinds, dtype)


@lru_cache(4096)
def _node_constant_from_float(value: float, dtype: np.dtype[Any]) -> Attrs:
    with np.errstate(all="ignore"):
        return (("value", np.array(value, dtype).tobytes()),)


def _weak_kind_of_node_operand(arg: Operand) -> Any:
    """What NumPy's promotion sees: the weak Python type, or the dtype."""
    if isinstance(arg, Value):
        return arg.promotes_as
    if isinstance(arg, np.generic):
        return arg.dtype
    return np.dtype(bool) if isinstance(arg, bool) else type(arg)
