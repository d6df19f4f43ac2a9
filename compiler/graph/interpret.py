"""The meaning of a Graph: its nodes evaluated one by one with NumPy. Everything else has to agree with this."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...runtime.interpret.library_calls import numpy_matmul_with_epilogue
from ...runtime.interpret.numpy_calls import HOST
from ...runtime.program.custom_calls import invoke_custom_call_callback
from ..core.combiners import COMBINERS
from ..ops.table import OPS
from ..sequential.evaluate import evaluate_routine
from .control_flow import memory_argument_count_of_node
from .graph import Graph, Node

Array = np.ndarray[Any, Any]


def interpret_graph(graph: Graph, arrays: Sequence[Any], numbers: Sequence[Any] = ()) -> list[Array]:
    """The graph's outputs as C-contiguous arrays of their own. arrays and numbers fill its inputs and its numbers."""
    values: list[Array] = []
    with np.errstate(all="ignore"):
        for node in graph.nodes:
            args = [values[a] for a in node.args]
            if node.op == "input":
                value = np.asarray(arrays[node.attr("index")])
            elif node.op == "number":
                value = np.asarray(numbers[node.attr("index")], node.dtype)
            else:
                value = interpret_node(node, args)
            if value.shape != node.shape or value.dtype != node.dtype:
                raise AssertionError(f"{node.op} gave {value.dtype}{list(value.shape)}, typed {node.type}")
            values.append(value)
    return [np.array(values[o], order="C", copy=True) for o in graph.outputs]


def interpret_node(node: Node, args: Sequence[Array]) -> Array:
    """One node on NumPy arrays of its arguments' types."""
    special = _STRUCTURAL.get(node.op)
    if special is not None:
        return np.asarray(special(node, *args))
    if node.kind == "reduce":
        return _interpret_reduction(node, args[0])
    with np.errstate(all="ignore"):
        result = interpreter_function_of_op(node.op)(*args, **dict(node.attrs))
    return np.broadcast_to(np.asarray(result).astype(node.dtype, copy=False), node.shape)


def interpret_view_node(node: Node, args: Sequence[Array]) -> Array:
    """A view, join or update of arrays, whatever their elements are."""
    return np.asarray(_STRUCTURAL[node.op](node, *args))


def interpreter_function_of_op(op: str) -> Callable[..., Any]:
    """What NumPy does for a row."""
    function = OPS[op].numpy
    if function is None:
        raise AssertionError(f"row {op} has no reference")
    return function


def _interpret_host_call(node: Node, *args: Array) -> Array:
    results = HOST[node.attr("function")](*args, **node.options)
    return np.asarray(results[node.attr("part")] if isinstance(results, tuple) else results)


def _interpret_loop_node(node: Node, *args: Array) -> Array:
    """One part of a loop: all its iterations, each an interpretation of the body."""
    loop = node.attr("control")
    count, memory = loop.count, memory_argument_count_of_node(node)
    if loop.counted:
        count = int(args[memory])
    body, numbers = loop.body, args[memory + loop.counted :]
    carried = [np.array(a, order="C") for a in args[: loop.carried]]
    split = loop.carried + len(loop.windows)
    arrays, rest = args[loop.carried : split], args[split:memory]
    stacked = [np.zeros(t.shape, t.dtype) for t in loop.types[loop.carried :]]
    iteration = 0
    while bool(carried[0]) if loop.flag else iteration < count:
        seen = []
        for array, window, number in zip(arrays, loop.windows, body.inputs[loop.carried :], strict=False):
            starts = [s + iteration * m for s, m in zip(window.starts, window.moves, strict=True)]
            seen.append(interpret_slice_node(array, starts, window.steps, body.nodes[number].shape))
        results = interpret_graph(body, [*carried, *seen, *rest], [iteration, *numbers])
        carried = results[: loop.carried]
        for out, part in zip(stacked, results[loop.carried :], strict=True):
            out[iteration] = part
        iteration += 1
    return np.asarray((*carried, *stacked)[node.attr("part")])


def _interpret_branch_node(node: Node, *args: Array) -> Array:
    branch, memory = node.attr("control"), memory_argument_count_of_node(node)
    body = branch.bodies[0 if bool(args[0]) else 1]
    return np.asarray(interpret_graph(body, args[1:memory], args[memory:])[node.attr("part")])


def _interpret_kernel_node(node: Node, *args: Array) -> Array:
    own, writes = node.attr("own"), node.attr("writes")
    if own.cpu is None:
        raise AssertionError(f"the kernel {own.name} has no function for the CPU")
    reads = len(args) - sum(w.starts is not None for w in writes)
    return np.asarray(
        invoke_custom_call_callback(*args, callback=own.cpu, reads=reads, writes=writes)[node.attr("part")]
    )


def _interpret_reduction(node: Node, a: Array) -> Array:
    axes, row = node.attr("axes"), COMBINERS[node.op]
    if row.carries_index:
        kept = [i for i in range(a.ndim) if i not in axes]
        flat = a.transpose(*kept, *axes).reshape(*(a.shape[i] for i in kept), math.prod(a.shape[i] for i in axes))
        return np.asarray(interpreter_function_of_op(node.op)(flat, axis=-1)).astype(node.dtype)
    return np.asarray(row.ufunc.reduce(a, axis=axes, dtype=node.dtype))


def interpret_slice_node(a: Array, starts: Sequence[int], steps: Sequence[int], shape: Sequence[int]) -> Array:
    """The view whose element i is element `starts + i * steps` of `a`."""
    key: list[Any] = []
    for start, step, n in zip(starts, steps, shape, strict=True):
        if n == 0:
            key.append(slice(0, 0))
        else:
            stop = start + step * n
            key.append(slice(start, stop if stop >= 0 else None, step))
    return a[(*key, Ellipsis)]


def _interpret_index_node(node: Node) -> Array:
    axis = node.attr("axis")
    shape = [1] * node.ndim
    shape[axis] = -1
    return np.broadcast_to(np.arange(node.shape[axis], dtype=np.int64).reshape(shape), node.shape)


def _interpret_update_node(node: Node, base: Array, value: Array) -> Array:
    result = base.copy()
    interpret_slice_node(result, node.attr("starts"), node.attr("steps"), value.shape)[...] = value
    return result


def _interpret_assembly_node(node: Node, *parts: Array) -> Array:
    result = np.zeros(node.shape, node.dtype)
    for part, (starts, steps) in zip(parts, node.attr("regions"), strict=True):
        interpret_slice_node(result, starts, steps, part.shape)[...] = part
    return result


def _interpret_gather(node: Node, a: Array, *indices: Array) -> Array:
    shape = node.shape
    at: dict[int, Array] = dict(zip(node.attr("axes"), indices, strict=True))
    rest = iter(node.attr("rest"))

    def index_along_axis(axis: int) -> Array:
        if axis in at:
            return at[axis]
        own = next(rest)
        return np.arange(shape[own]).reshape([-1 if i == own else 1 for i in range(len(shape))])

    found: Array = a[tuple(index_along_axis(axis) for axis in range(a.ndim))]
    return np.broadcast_to(found, shape)


_STRUCTURAL: dict[str, Callable[..., Any]] = {
    "const": lambda node: np.frombuffer(node.attr("value"), node.dtype)[0],
    "index": _interpret_index_node,
    "gather": _interpret_gather,
    "slice": lambda node, a: interpret_slice_node(a, node.attr("starts"), node.attr("steps"), node.shape),
    "permute": lambda node, a: a.transpose(node.attr("axes")),
    "broadcast": lambda node, a: np.broadcast_to(a, node.shape),
    "reshape": lambda node, a: a.reshape(node.shape),
    "windows": lambda node, a: np.lib.stride_tricks.sliding_window_view(a, node.attr("length"), node.attr("axis")),
    "concat": lambda node, *parts: np.concatenate(parts, axis=node.attr("axis")),
    "update": _interpret_update_node,
    "assemble": _interpret_assembly_node,
    "matmul": lambda node, a, b, *bias: numpy_matmul_with_epilogue(
        a, b, node.dtype, dict(node.attrs).get("epilogue", ()), *bias
    ),
    "host": _interpret_host_call,
    "loop": _interpret_loop_node,
    "branch": _interpret_branch_node,
    "kernel": _interpret_kernel_node,
    "custom": lambda node, *args: args[node.attr("part")],
    "sequential": lambda node, *args: evaluate_routine(node.attr("routine"), args)[node.attr("part")],
    "cast": lambda node, a: a.astype(node.dtype),
}
