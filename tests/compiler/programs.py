"""Random graphs for property tests: DAGs of elementwise work, views, reductions, concats and matmuls."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from kernelgraph.compiler.core.types import ArrayType
from kernelgraph.compiler.graph.builder import GraphBuilder
from kernelgraph.compiler.graph.graph import Graph, GraphError, Value
from kernelgraph.compiler.graph.interpret import interpret_graph
from kernelgraph.compiler.ops.table import OPS
from kernelgraph.runtime.program.user_function import UserFunction

UNARY = ("negative", "absolute", "exp", "sin", "square", "sqrt", "tanh", "floor", "sign", "relu", "sigmoid")
BINARY = ("add", "subtract", "multiply", "maximum", "minimum", "divide", "hypot", "copysign", "greater", "less_equal")
REDUCE = ("sum", "prod", "max", "min", "any", "all", "argmax", "argmin")
KINDS = (
    *("unary", "binary", "binary", "scalar", "where", "cast", "slice", "permute", "reshape", "broadcast"),
    *("reduce", "reduce", "concat", "matmul", "index", "update", "update", "gather", "gather"),
)
DTYPES = ("float32", "float64", "int32", "int8", "bool", "float16", "complex64", "uint16")


@st.composite
def graphs(
    draw: st.DrawFn,
    steps: int = 12,
    dtypes: tuple[str, ...] = DTYPES,
    largest: int = 6,
    functions: tuple[UserFunction, ...] = (),
) -> tuple[Graph, list[np.ndarray]]:
    """A graph and arrays for its inputs, some of them strided or reversed. functions: the user's, which it may call."""
    builder = GraphBuilder("random")
    seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    arrays, values = [], []
    for _ in range(draw(st.integers(1, 3))):
        shape = tuple(draw(st.lists(st.integers(1, largest), min_size=0, max_size=3)))
        array = _array(rng, shape, draw(st.sampled_from(dtypes)))
        layout = draw(st.sampled_from(("c", "f", "reversed", "strided")))
        arrays.append(_laid_out(array, layout))
        values.append(builder.input(ArrayType(array.shape, array.dtype)))
    for _ in range(draw(st.integers(1, steps))):
        try:
            if functions and draw(st.integers(0, 2)) == 0:
                values += _call(draw, builder, values, draw(st.sampled_from(functions)))
            else:
                values.append(_step(draw, builder, values))
        except (GraphError, TypeError):
            continue
    count = draw(st.integers(1, min(3, len(values))))
    outputs = values[-count:] if draw(st.booleans()) else [draw(st.sampled_from(values)) for _ in range(count)]
    return builder.finish(outputs), arrays


def _array(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    kind = np.dtype(dtype).kind
    if kind == "b":
        return np.asarray(rng.random(shape) < 0.5)
    if kind in "iu":
        return np.asarray(rng.integers(0 if kind == "u" else -9, 9, shape)).astype(dtype)
    real = np.asarray(rng.normal(size=shape))
    return np.asarray(real + 1j * rng.normal(size=shape) if kind == "c" else real).astype(dtype)


def _laid_out(array: np.ndarray, layout: str) -> np.ndarray:
    if layout == "f" and array.ndim:
        return np.asfortranarray(array)
    if layout == "reversed" and array.ndim:
        return np.ascontiguousarray(array[::-1])[::-1]
    if layout == "strided" and array.ndim:
        wide = np.repeat(array, 2, axis=-1)
        return wide[..., ::2]
    return array


def _step(draw: st.DrawFn, b: GraphBuilder, values: list[Value]) -> Value:
    a = draw(st.sampled_from(values))
    kind = draw(st.sampled_from(KINDS))
    if kind == "unary":
        return b.map(draw(st.sampled_from(UNARY)), a)
    if kind == "binary":
        return b.map(draw(st.sampled_from(BINARY)), a, draw(st.sampled_from(values)))
    if kind == "scalar":
        return b.map(draw(st.sampled_from(BINARY[:6])), a, draw(st.sampled_from((0, 1, 2, 0.5, -1.5))))
    if kind == "where":
        return b.map("where", b.map("greater", a, 0), a, draw(st.sampled_from(values)))
    if kind == "cast":
        return b.cast(
            a, draw(st.sampled_from(("float32", "float64", "int64", "bool"))) if a.dtype.kind != "c" else a.dtype
        )
    if kind in ("slice", "update"):
        return _sliced(draw, b, a, values, kind == "update")
    if kind == "permute":
        return b.permute(a, draw(st.permutations(range(len(a.shape)))))
    if kind == "reshape":
        target = draw(st.sampled_from(((-1,), (-1, 1), (1, -1), (2, -1), (-1, 3), (*a.shape, 1), (1, *a.shape))))
        return b.reshape(a, target)
    if kind == "broadcast":
        return b.broadcast(a, (draw(st.integers(1, 3)), *a.shape))
    if kind == "reduce":
        axes = draw(st.sets(st.integers(0, len(a.shape) - 1))) if a.shape else set()
        op = draw(st.sampled_from(REDUCE))
        return b.reduce(op, a, tuple(sorted(axes)) or tuple(range(len(a.shape))))
    if kind == "concat":
        if not a.shape:
            raise GraphError("0-d")
        return b.concat([a, b.map("add", a, a), a][: draw(st.integers(2, 3))], draw(st.integers(0, len(a.shape) - 1)))
    if kind == "matmul":
        if len(a.shape) < 2:
            raise GraphError("too few axes")
        return b.matmul(a, b.permute(a, (*range(len(a.shape) - 2), len(a.shape) - 1, len(a.shape) - 2)))
    if kind == "gather":
        return _gather(draw, b, a, draw(st.sampled_from(values)))
    if not a.shape:
        raise GraphError("0-d")
    return b.index(a.shape, draw(st.integers(0, len(a.shape) - 1)))


def _sliced(draw: st.DrawFn, b: GraphBuilder, a: Value, values: list[Value], updated: bool) -> Value:
    """A slice, or the array with something in its place."""
    starts, steps, shape = [], [], []
    for n in a.shape:
        m = draw(st.integers(0 if n == 0 else 1, n))
        step = draw(st.sampled_from((1, 1, 2, -1)))
        count = min(m, (n + abs(step) - 1) // abs(step))
        span = (count - 1) * abs(step)
        low = draw(st.integers(0, max(0, n - 1 - span))) if n else 0
        starts.append(low if step > 0 else low + max(span, 0))
        steps.append(step)
        shape.append(count)
    if not updated:
        return b.slice(a, starts, steps, shape)
    other = draw(st.sampled_from(values))
    if draw(st.booleans()):  # what it replaces, or what lies beside it
        beside = draw(st.booleans())
        near = [
            min(first, n - count) if beside and step == 1 else first
            for first, n, count, step in zip(starts, a.shape, shape, steps, strict=True)
        ]
        other = b.slice(a, near, steps, shape)
        other = b.map("add", other, 1)
    if other.dtype.kind == "c" and a.dtype.kind != "c":
        other = b.map("real", other)
    return b.update(a, b.cast(b.broadcast(other, shape), a.dtype), starts, steps)


def _call(draw: st.DrawFn, b: GraphBuilder, values: list[Value], function: UserFunction) -> list[Value]:
    """A user's function of some values, now and then where a condition holds alone."""
    args = [draw(st.sampled_from([v for v in values if v.dtype.kind != "c"])) for _ in function.arguments]
    where = b.map("less", args[0], 1) if draw(st.booleans()) else None
    results = b.call(function, *args, where=where)
    return results if where is None else [b.map("where", where, r, b.const(0, r.dtype)) for r in results]


def _gather(draw: st.DrawFn, b: GraphBuilder, a: Value, shaped: Value) -> Value:
    """Elements of `a` at computed indices of the shape of another value, and all along its other axes."""
    if 0 in a.shape or not a.shape:
        raise GraphError("nothing to look up")
    axes = sorted(draw(st.sets(st.integers(0, len(a.shape) - 1), min_size=1)))
    others = [n for axis, n in enumerate(a.shape) if axis not in axes]
    at = draw(st.integers(0, len(others)))
    shape = (*others[:at], *shaped.shape, *others[at:])
    rest = [i if i < at else i + len(shaped.shape) for i in range(len(others))]
    indices = []
    for axis in axes:
        number = b.const(np.int64(draw(st.integers(0, 9))), np.dtype(np.int64))
        for along in range(len(shaped.shape)):
            if draw(st.booleans()):
                number = b.map("add", b.map("multiply", number, 3), b.index(shaped.shape, along))
        if shaped.dtype.kind in "iu" and draw(st.booleans()):
            number = b.map("add", number, b.cast(shaped, np.dtype(np.int64)))
        n = a.shape[axis]
        inside = b.map("remainder", number, n)
        inside = b.map("subtract", inside, n) if draw(st.booleans()) else inside
        indices.append(b.reshape(inside, (*inside.shape, *(1,) * (len(others) - at))))
    return b.gather(a, indices, axes, rest, shape)


def precision(graph: Graph) -> float:
    """The coarsest float step in the graph: what its results can be compared to."""
    kinds = [n.type.dtype for n in graph.nodes if n.type.dtype.kind in "fc"]
    return max((float(np.finfo(d).eps) for d in kinds), default=0.0)


LINEAR = frozenset({"sum", "add", "subtract", "negative", "cast", "concat", "update", "gather", "where"})


def rooms(graph: Graph, arrays: list[np.ndarray]) -> list[float]:
    """For each output, the largest number among the terms of the sums that it is: their rounding errors do not cancel
    where they do. That of a product of matrices is the largest product, times the number of terms."""
    found: list[float] = []
    values = interpret_graph(replace(graph, outputs=tuple(range(len(graph.nodes)))), arrays)
    for node, value in zip(graph.nodes, values, strict=True):
        finite = np.abs(value[np.isfinite(value)]) if value.dtype.kind in "fc" else np.zeros(0)
        room, args = float(finite.max(initial=0.0)), [found[a] for a in node.args]
        if node.op == "matmul":
            room = max(room, args[0] * args[1] * graph.nodes[node.args[0]].type.shape[-1])
        elif node.op in LINEAR or OPS[node.op].kind == "view":
            room = max(room, *args)
        found.append(room)
    return [found[o] for o in graph.outputs]


def agree(graph: Graph, arrays: list[np.ndarray], results: Iterable[np.ndarray]) -> None:
    """The graph's outputs, as bytes of any shape, are what it means."""
    step = precision(graph)
    for got, wanted, room in zip(results, interpret_graph(graph, arrays), rooms(graph, arrays), strict=True):
        close(np.frombuffer(got.tobytes(), wanted.dtype).reshape(wanted.shape), wanted, step, room)


def close(got: np.ndarray, wanted: np.ndarray, step: float, room: float) -> None:
    """Equal but for the order of sums; integers that came from rounded floats may differ in places."""
    if wanted.dtype.kind in "biu":
        np.testing.assert_array_equal(got, wanted)
        return
    wide = np.complex128 if wanted.dtype.kind == "c" else np.float64
    np.testing.assert_allclose(
        got.astype(wide), wanted.astype(wide), rtol=64 * step, atol=64 * step * room, equal_nan=True
    )
