"""`kg.fori_loop`, `while_loop`, `cond` and `scan`: the user's functions in, one node with a body of its own out.

Inside a trace each body is traced once, whatever the number of turns. Outside of one they are plain Python loops on
arrays. The order of arguments is JAX's; any structure of tuples, lists, dicts and dataclasses can be carried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ...compiler.core.types import BOOL, ArrayType, WeakType
from ...compiler.graph.builder import WEAK_DTYPES
from ...compiler.graph.control_flow import (
    ITERATION,
    Branch,
    Cut,
    Loop,
    Window,
    add_control_flow_node,
    cut_body_graphs_from_builder,
)
from ...compiler.graph.graph import Value
from ...runtime.core.frozen import dataclass
from ..array.array import Array
from ..array.conversion import to_kg_arrays
from ..array.devices import open_device
from ..core.errors import ArgumentsError, DTypeError, ShapeError
from ..core.pytree import Tree, flatten, unflatten
from ..trace.operands import new_traced_result, to_graph_operand, to_traced_array
from ..trace.trace import Trace, current_trace
from ..trace.tracer import SCALAR, Tracer
from .control_flow_arguments import OPERANDS, checks_functions_given_to_loop
from .control_flow_counts import condition_of_while_or_cond, fori_loop_count, fori_loop_index, scan_length

Body = Callable[..., Any]


@dataclass(slots=True)
class _UserLoopCarry:
    """A structure that is carried: its leaves as nodes. weak: of those that a Python number began."""

    tree: Tree
    values: list[Value]
    weak: list[WeakType | None]


@checks_functions_given_to_loop(body_fun=("i", "x"))
def fori_loop(lower: Any, upper: Any, body_fun: Body, init_val: Any) -> Any:
    """`x = init_val; for i in range(lower, upper): x = body_fun(i, x); return x`.

    Parameters
    ----------
    lower
        Python ints, known or passed at each call, or traced integers; none of them compiles anything anew.
    upper
        Python ints, known or passed at each call, or traced integers; none of them compiles anything anew.
    body_fun : callable
        What a turn does, (i, value) or (value) to the next value.
    init_val
        The value before the first turn.

    Returns
    -------
    object
        The value after the last turn.

    Raises
    ------
    DTypeError
        Where the body gives something else than it takes.
    ShapeError
        Where the body gives something else than it takes.
    ArgumentsError
        Where the body gives something else than it takes.

    Examples
    --------
    >>> kg.fori_loop(0, 4, lambda i, x: x + i, 10)
    array(16)
    """
    trace = current_trace()
    if trace is None:
        init_val = _arrays_copied_for_user_body(init_val)
        for i in range(int(lower), int(upper)):
            init_val = body_fun(i, init_val)
        return _control_flow_result_as_arrays(init_val)
    count = fori_loop_count(trace, lower, upper)
    carried = _loop_carry_of_init_value(init_val)

    def trace_fori_iteration(trace: Trace, stand_ins: list[Value], index: Value) -> list[Value]:
        i = fori_loop_index(trace, index, lower)
        return _user_body_results_as_carried(
            "fori_loop", carried, body_fun(i, _body_argument_structure(trace, carried, stand_ins))
        )

    cut = _retrace_user_body_until_settled(trace, "fori_loop", carried, trace_fori_iteration)
    loop = Loop(cut.body, len(carried.values), (), count if isinstance(count, int) else None)
    extra = [] if isinstance(count, int) else [count]
    args = [*carried.values, *map(trace.builder.at, cut.inputs), *extra, *map(trace.builder.at, cut.numbers)]
    return _tracers_carried_by_user_loop(carried.tree, add_control_flow_node(trace.builder, loop, args))


@checks_functions_given_to_loop(cond_fun=("x",), body_fun=("x",))
def while_loop(cond_fun: Body, body_fun: Body, init_val: Any) -> Any:
    """`x = init_val; while cond_fun(x): x = body_fun(x); return x`.

    Parameters
    ----------
    cond_fun : callable
        Value to whether another turn comes.
    body_fun : callable
        What a turn does, (i, value) or (value) to the next value.
    init_val
        The value before the first turn.

    Returns
    -------
    object
        The value for which `cond_fun` is false.

    Raises
    ------
    DTypeError
        Where the body gives something else than it takes.
    ShapeError
        Where the body gives something else than it takes.
    ArgumentsError
        Where the body gives something else than it takes.

    Examples
    --------
    >>> kg.while_loop(lambda x: x < 100, lambda x: 2 * x, 3)
    array(192)
    """
    trace = current_trace()
    if trace is None:
        init_val = _arrays_copied_for_user_body(init_val)
        while bool(np.asarray(cond_fun(init_val))):
            init_val = body_fun(init_val)
        return _control_flow_result_as_arrays(init_val)
    carried = _loop_carry_of_init_value(init_val)

    def trace_while_iteration(trace: Trace, stand_ins: list[Value], index: Value) -> list[Value]:
        new = _user_body_results_as_carried(
            "while_loop", carried, body_fun(_body_argument_structure(trace, carried, stand_ins[1:]))
        )
        return [
            condition_of_while_or_cond(trace, "while_loop", cond_fun(_body_argument_structure(trace, carried, new))),
            *new,
        ]

    with _trace_body_of_user_loop(trace):
        start = condition_of_while_or_cond(
            trace, "while_loop", cond_fun(_body_argument_structure(trace, carried, carried.values))
        )
    cut = _retrace_user_body_until_settled(trace, "while_loop", carried, trace_while_iteration, [ArrayType((), BOOL)])
    loop = Loop(cut.body, 1 + len(carried.values), flag=True)
    args = [start, *carried.values, *map(trace.builder.at, (*cut.inputs, *cut.numbers))]
    return _tracers_carried_by_user_loop(carried.tree, add_control_flow_node(trace.builder, loop, args)[1:])


@checks_functions_given_to_loop(f=("carry", "x"))
def scan(f: Body, init: Any, xs: Any = None, length: int | None = None) -> Any:
    """`carry = init; ys = []; for x in xs: carry, y = f(carry, x); ys += [y]; return carry, stack(ys)`.

    Parameters
    ----------
    f : callable
        (carry, x) to (carry, y).
    init
        The carry before the first turn.
    xs : optional
        Arrays of one first length, or None with `length`; f gets a row of each.
    length : int, optional
        How many turns, where no array says it.

    Returns
    -------
    tuple
        The last carry, and what the turns gave, stacked.

    Raises
    ------
    DTypeError
        Where the body gives something else than it takes.
    ShapeError
        Where the body gives something else than it takes.
    ArgumentsError
        Where the body gives something else than it takes.

    Examples
    --------
    >>> last, sums = kg.scan(lambda total, x: (total + x, total + x), 0.0, np.arange(4.0))
    >>> np.asarray(sums)
    array([0., 1., 3., 6.])
    """
    leaves: list[Any] = []
    tree = flatten(xs, leaves) if xs is not None else None
    trace = current_trace()
    if trace is None:
        return _scan_eagerly(f, init, tree, [x if isinstance(x, Array) else np.asarray(x) for x in leaves], length)
    arrays = [to_traced_array(leaf) for leaf in leaves]
    count = scan_length([a.shape for a in arrays], length)
    carried = _loop_carry_of_init_value(init)
    ys: list[Tree] = []

    def trace_scan_iteration(trace: Trace, stand_ins: list[Value], index: Value) -> list[Value]:
        rows = stand_ins[len(carried.values) :]
        parts = [new_traced_result(trace.builder.reshape(row, row.shape[1:])) for row in rows]
        x = unflatten(tree, parts) if tree is not None else None
        pair = f(_body_argument_structure(trace, carried, stand_ins[: len(carried.values)]), x)
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise ArgumentsError(f"the function of scan gives {type(pair).__name__}; return a pair (carry, y)")
        found: list[Any] = []
        ys[:] = [flatten(pair[1], found)]
        if pair[1] is None:
            ys.clear()
            found.clear()
        return [*_user_body_results_as_carried("scan", carried, pair[0]), *(to_traced_array(y)._value for y in found)]

    types = [ArrayType((1, *a.shape[1:]), a.dtype) for a in arrays]
    cut = _retrace_user_body_until_settled(trace, "scan", carried, trace_scan_iteration, after=types)
    windows = tuple(
        Window((0,) * a.ndim, (1,) * a.ndim, tuple(1 if i == 0 else 0 for i in range(a.ndim))) for a in arrays
    )
    loop = Loop(cut.body, len(carried.values), windows, count)
    args = [*carried.values, *(a._value for a in arrays), *map(trace.builder.at, (*cut.inputs, *cut.numbers))]
    results = add_control_flow_node(trace.builder, loop, args)
    split = len(carried.values)
    return _tracers_carried_by_user_loop(carried.tree, results[:split]), _tracers_carried_by_user_loop(
        ys[0], results[split:]
    ) if ys else None


@checks_functions_given_to_loop(true_fun=OPERANDS, false_fun=OPERANDS)
def cond(pred: Any, true_fun: Body, false_fun: Body, *operands: Any) -> Any:
    """`true_fun(*operands) if pred else false_fun(*operands)`, of which only one runs.

    Parameters
    ----------
    pred
        A boolean, traced or not.
    true_fun : callable
        What is computed where it is true.
    false_fun : callable
        What is computed where it is false.
    *operands
        What both functions take.

    Returns
    -------
    object
        What the function that ran gives.

    Raises
    ------
    DTypeError
        Where the two give different things.
    ShapeError
        Where the two give different things.
    ArgumentsError
        Where the two give different things.

    Examples
    --------
    >>> kg.cond(2 > 1, lambda x: x + 1, lambda x: x - 1, 5)
    array(6)
    """
    trace = current_trace()
    if trace is None:
        return _control_flow_result_as_arrays(
            (true_fun if bool(np.asarray(pred)) else false_fun)(*_arrays_copied_for_user_body(operands))
        )
    if type(pred) is bool:
        return (true_fun if pred else false_fun)(*operands)
    flag = condition_of_while_or_cond(trace, "cond", pred)
    carried = _loop_carry_of_init_value(operands)
    first = len(trace.builder.nodes)
    stand_ins, results, trees = [], [], []
    for function in (true_fun, false_fun):
        places = [trace.builder.placeholder(v.type) for v in carried.values]
        with _trace_body_of_user_loop(trace):
            found: list[Any] = []
            given = _body_argument_structure(trace, carried, places)
            trees.append(flatten(function(*given), found))
            results.append([to_graph_operand(x) for x in found])
        stand_ins.append(places)
    values = _cond_results_of_one_type(trace, trees, results)
    cuts = cut_body_graphs_from_builder(trace.builder, stand_ins, values, first, hoist=False)
    branch = Branch((cuts[0].body, cuts[1].body))
    at = trace.builder.at
    args = [flag, *carried.values, *map(at, cuts[0].inputs), *map(at, cuts[0].numbers)]
    return _tracers_carried_by_user_loop(trees[0], add_control_flow_node(trace.builder, branch, args))


# what is carried


def _loop_carry_of_init_value(init: Any) -> _UserLoopCarry:
    leaves: list[Any] = []
    tree = flatten(init, leaves)
    values, weak = [], []
    for leaf in leaves:
        found = to_graph_operand(leaf)
        kind: Any = found.weak if isinstance(found, Value) else type(found) if type(found) in WEAK_DTYPES else None
        value = to_traced_array(leaf)._value
        values.append(Value(value.number, value.type))
        weak.append(kind if kind is not bool else None)
    return _UserLoopCarry(tree, values, weak)


def _body_argument_structure(trace: Trace, carried: _UserLoopCarry, values: Sequence[Value]) -> Any:
    """What a body gets: arrays of its own, which it may assign to. What began as a Python number promotes like one."""
    leaves = []
    for value, weak in zip(values, carried.weak, strict=True):
        held = Value(value.number, value.type, weak)
        leaves.append(Tracer(trace, held, SCALAR if value.shape == () else None))
    return unflatten(carried.tree, leaves)


def _user_body_results_as_carried(name: str, carried: _UserLoopCarry, result: Any) -> list[Value]:
    """A body's results as the types that it takes.

    What is weak takes the type of what comes back: `_UserLoopCarryPromoted`."""
    leaves: list[Any] = []
    tree = flatten(result, leaves)
    if tree != carried.tree:
        raise ArgumentsError(f"the body of {name} takes {carried.tree} and gives {tree}; return what it takes")
    found = []
    for number, (leaf, value, weak) in enumerate(zip(leaves, carried.values, carried.weak, strict=True)):
        new = to_graph_operand(leaf)
        if not isinstance(new, Value):
            new = (
                to_traced_array(leaf)._value
                if isinstance(new, np.generic)
                else _constant_carried_by_user_loop(leaf, value)
            )
        what = f"carried value {number} of {name}"
        if new.shape != value.shape:
            raise ShapeError(
                f"{what} begins with shape {value.shape}, and the body gives {new.shape}; begin with what it gives"
            )
        kept = new.dtype if new.weak is None else np.result_type(value.dtype, new.weak(0))
        if kept != value.dtype:
            if weak is not None:
                raise _UserLoopCarryPromoted(number, kept, new.weak)
            raise DTypeError(
                f"{what} begins as {value.dtype}, and the body gives {kept}; begin with "
                f"np.{kept}, or return x.astype(np.{value.dtype})"
            )
        found.append(_trace_for_control_flow().builder.cast(new, value.dtype))
    return found


def _constant_carried_by_user_loop(leaf: Any, value: Value) -> Value:
    """A Python number in a carried value's place: of its dtype where that can hold it."""
    kind = np.result_type(value.dtype, type(leaf)(0)) if type(leaf) is not bool else BOOL
    return _trace_for_control_flow().builder.const(leaf, value.dtype if kind == value.dtype else None)


class _UserLoopCarryPromoted(Exception):
    """A carried Python number comes back as another dtype or kind: it begins as that, too."""

    def __init__(self, number: int, dtype: np.dtype[Any], weak: WeakType | None) -> None:
        super().__init__(number, dtype, weak)
        self.number, self.dtype, self.weak = number, dtype, weak


def _retrace_user_body_until_settled(
    trace: Trace,
    name: str,
    carried: _UserLoopCarry,
    trace_body: Callable[[Trace, list[Value], Value], list[Value]],
    before: Sequence[ArrayType] = (),
    after: Sequence[ArrayType] = (),
) -> Cut:
    """The body, traced again where a carried number takes another dtype in it.

    before, after: the types of its inputs around the carried ones."""
    while True:
        first = len(trace.builder.nodes)
        types = [*before, *(v.type for v in carried.values), *after]
        stand_ins = [trace.builder.placeholder(t) for t in types]
        index = trace.builder.placeholder(ITERATION)
        try:
            with _trace_body_of_user_loop(trace):
                outputs = trace_body(trace, stand_ins, index)
        except _UserLoopCarryPromoted as promoted:
            i = promoted.number
            carried.values[i], carried.weak[i] = trace.builder.cast(carried.values[i], promoted.dtype), promoted.weak
            continue
        (cut,) = cut_body_graphs_from_builder(trace.builder, [stand_ins], [outputs], first, index)
        return cut


@contextmanager
def _trace_body_of_user_loop(trace: Trace) -> Iterator[None]:
    """While a body is traced: arrays from outside of it cannot be assigned to."""
    trace.depth += 1
    try:
        yield
    finally:
        trace.depth -= 1


def _trace_for_control_flow() -> Trace:
    trace = current_trace()
    assert trace is not None
    return trace


def _tracers_carried_by_user_loop(tree: Tree, values: Sequence[Value]) -> Any:
    return unflatten(tree, [new_traced_result(v) for v in values])


# the results of branches


def _cond_results_of_one_type(
    trace: Trace, trees: Sequence[Tree], results: Sequence[Sequence[Any]]
) -> list[list[Value]]:
    """The results of two functions as the same types."""
    if trees[0] != trees[1]:
        raise ArgumentsError(f"the functions of cond give {trees[0]} and {trees[1]}; return the same structure")
    values: list[list[Value]] = [[], []]
    for number, pair in enumerate(zip(*results, strict=True)):
        kinds = [x.weak(0) if isinstance(x, Value) and x.weak else x.dtype if isinstance(x, Value) else x for x in pair]
        weak = [(isinstance(x, Value) and x.weak is not None) or type(x) in WEAK_DTYPES for x in pair]
        dtype = np.result_type(*kinds)
        made = [trace.builder.cast(trace.builder.value(x, dtype), dtype) for x in pair]
        strong = {x.dtype for x, w in zip(pair, weak, strict=True) if not w}
        if strong - {dtype}:
            raise DTypeError(f"result {number} of cond is {kinds[0]} or {kinds[1]}; convert one with x.astype(...)")
        if made[0].shape != made[1].shape:
            raise ShapeError(f"result {number} of cond has shape {made[0].shape} or {made[1].shape}; broadcast one")
        for side, value in zip(values, made, strict=True):
            side.append(value)
    return values


# outside of a trace


def _arrays_copied_for_user_body(value: Any) -> Any:
    """The value with arrays of its own: a body may assign to them."""
    leaves: list[Any] = []
    tree = flatten(value, leaves)
    return unflatten(tree, [x.copy() if isinstance(x, (np.ndarray, Array)) else x for x in leaves])


def _control_flow_result_as_arrays(result: Any) -> Any:
    """The result with arrays for its leaves."""
    leaves: list[Any] = []
    tree = flatten(result, leaves)
    device = open_device(("cpu", 0))
    return unflatten(tree, [x if isinstance(x, Array) else to_kg_arrays(np.asarray(x), device, (x,)) for x in leaves])


def _scan_eagerly(f: Body, carry: Any, tree: Tree | None, arrays: Sequence[Any], length: Any) -> Any:
    count = scan_length([a.shape for a in arrays], length)
    if count == 0:  # only a trace tells what f would give
        from ..jit.kernel_graph import KernelGraph

        def scan_of_no_elements(carry: Any, arrays: list[Any]) -> Any:
            return scan(f, carry, unflatten(tree, arrays) if tree is not None else None, 0)

        return KernelGraph(scan_of_no_elements, device="cpu")(carry, list(arrays))
    carry = _arrays_copied_for_user_body(carry)
    rows: list[list[Any]] = []
    shape: Tree | None = None
    for i in range(count):
        carry, y = f(carry, unflatten(tree, [a[i].copy() for a in arrays]) if tree is not None else None)
        found: list[Any] = []
        shape = flatten(y, found) if y is not None else None
        rows.append(found)
    ys = (
        None
        if shape is None
        else unflatten(shape, [np.stack([np.asarray(y) for y in c]) for c in zip(*rows, strict=True)])
    )
    return _control_flow_result_as_arrays(carry), None if ys is None else _control_flow_result_as_arrays(ys)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "fori_loop": fori_loop,
    "while_loop": while_loop,
    "cond": cond,
    "scan": scan,
}
