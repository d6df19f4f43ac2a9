"""`kg.stop_gradient`, `custom_vjp`, `custom_jvp` and `checkpoint`: derivatives as the user says."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Generic

import numpy as np

from ...compiler.core.types import dtype_kind
from ...compiler.derive.derive import derive_reverse
from ...compiler.graph.control_flow import CustomDerivativeNode, cut_body_graphs_from_builder
from ...compiler.graph.graph import Value, needed_nodes
from ..core.errors import ArgumentsError, ShapeError, UnsupportedError
from ..core.pytree import Tree, flatten, unflatten
from ..jit.pickling import PicklableDecoratedFunction
from ..trace.aliasing import root_of_view, roots_of_array, shares_memory
from ..trace.dispatch import NumpyProtocols
from ..trace.operands import new_traced_result, to_traced_array
from ..trace.trace import Trace, current_trace
from ..trace.tracer import Tracer
from .options import reverse_options_of_outer_gradient
from .region import copies_of_region_argument, trace_region

if TYPE_CHECKING:
    from ..jit.kernel_graph import P, R
else:
    from typing import ParamSpec, TypeVar

    P, R = ParamSpec("P"), TypeVar("R")


def stop_gradient(x: Any) -> Any:
    """The same values, which count as constants when a function is differentiated.

    Parameters
    ----------
    x : array_like
        Any structure of arrays.

    Returns
    -------
    Array

    Examples
    --------
    >>> float(kg.grad(lambda x: x * kg.stop_gradient(x))(3.0))
    3.0
    """
    if current_trace() is None:
        return x
    leaves: list[Any] = []
    tree = flatten(x, leaves)
    return unflatten(
        tree,
        [_leaf_without_gradient(leaf) if isinstance(leaf, (NumpyProtocols, np.ndarray)) else leaf for leaf in leaves],
    )


def _leaf_without_gradient(leaf: Any) -> Any:
    value = to_traced_array(leaf)._value
    trace = current_trace()
    assert trace is not None
    return new_traced_result(trace.builder.map("stop_gradient", value))


class _CustomDerivative(PicklableDecoratedFunction, Generic[P, R]):
    """A function with a derivative of its own. Where nothing is differentiated it is the function."""

    _kind = ""

    def __init__(self, function: Callable[P, R]) -> None:
        """Raises ArgumentsError for what cannot be called."""
        if not callable(function):
            raise ArgumentsError(f"kg.{self._kind} takes a function, not {function!r}")
        functools.update_wrapper(self, function)
        self.function = function
        self._rules: tuple[Callable[..., Any], ...] = ()

    def _pickled(self) -> tuple[Callable[..., Any], Mapping[str, Any]]:
        return self.function, {}

    def __call__(self, *args: P.args, **options: P.kwargs) -> R:
        trace = current_trace()
        if trace is None:
            return self.function(*args, **options)
        if not trace.deriving:
            return _custom_rule_in_environment(trace, self.function)(*args, **options)  # type: ignore[no-any-return]
        name = getattr(self.function, "__name__", "the function")
        if not self._rules:
            rule = "defvjp(forward, backward)" if self._kind == "custom_vjp" else "defjvp(rule)"
            raise ArgumentsError(f"{name} has no rule yet; write {name}.{rule}")
        if options:
            bound = inspect.signature(self.function).bind(*args, **options)
            bound.apply_defaults()
            if bound.kwargs:
                raise ArgumentsError(f"{name} has a derivative of its own, and takes its arguments by position")
            return self._trace_with_custom_derivative(trace, name, bound.args)  # type: ignore[no-any-return]
        return self._trace_with_custom_derivative(trace, name, args)  # type: ignore[no-any-return]

    def _trace_with_custom_derivative(self, trace: Trace, name: str, args: tuple[Any, ...]) -> Any:
        raise NotImplementedError


class CustomVJP(_CustomDerivative[P, R]):
    """A function whose product of a cotangent with its Jacobian the user has written."""

    _kind = "custom_vjp"

    def defvjp(self, forward: Callable[..., Any], backward: Callable[..., Any]) -> CustomVJP[P, R]:
        """forward(*args) gives (result, kept); backward(kept, cotangent) gives a tuple, one cotangent for each of args,
        of its structure; None stands for zero."""
        self._rules = (forward, backward)
        return self

    def _trace_with_custom_derivative(self, trace: Trace, name: str, args: tuple[Any, ...]) -> Any:
        forward, backward = (_custom_rule_in_environment(trace, rule) for rule in self._rules)
        with _trace_custom_derivative_rule(trace):
            pair = forward(*args)
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise ArgumentsError(f"the forward function of {name} returns {type(pair).__name__}; return (result, kept)")
        part = _FlattenedDerivativeCall(args, pair[0])
        first = len(trace.builder.nodes)
        stand_ins = [trace.builder.placeholder(v.type) for v in part.moving_results]
        with _trace_custom_derivative_rule(trace):
            found = backward(pair[1], part.like_result([_tracer_in_custom_derivative(v) for v in stand_ins]))
        if not isinstance(found, (tuple, list)) or len(found) != len(args):
            what = f"{len(found)} values" if isinstance(found, (tuple, list)) else type(found).__name__
            raise ArgumentsError(
                f"the backward function of {name} returns {what}; return a tuple of {len(args)}, one for each argument"
            )
        outputs = part.of_arguments(trace, f"the backward function of {name}", found)
        (cut,) = cut_body_graphs_from_builder(trace.builder, [stand_ins], [outputs], first)
        control = CustomDerivativeNode(len(part.results), len(part.inputs), cut.body, None)
        return part.node(trace, control, [*cut.inputs, *cut.numbers])


class CustomJVP(_CustomDerivative[P, R]):
    """A function whose product of its Jacobian with tangents the user has written."""

    _kind = "custom_jvp"

    def defjvp(self, rule: Callable[..., Any]) -> CustomJVP[P, R]:
        """rule(args, tangents), of two tuples, gives (result, its tangent), linear in the tangents. What has no
        derivative, such as an array of integers, has a tangent of None."""
        self._rules = (rule,)
        return self

    def _trace_with_custom_derivative(self, trace: Trace, name: str, args: tuple[Any, ...]) -> Any:
        rule = _custom_rule_in_environment(trace, self._rules[0])
        given = _FlattenedDerivativeCall(args, ())
        first = len(trace.builder.nodes)
        stand_ins = [trace.builder.placeholder(v.type) for v in given.inputs]
        with _trace_custom_derivative_rule(trace):
            pair = rule(args, given.like_arguments([_tracer_in_custom_derivative(v) for v in stand_ins]))
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise ArgumentsError(f"the rule of {name} returns {type(pair).__name__}; return (result, its tangent)")
        part = _FlattenedDerivativeCall(args, pair[0])
        if _depends_on_derivative_stand_ins(trace, part.results, {v.number for v in stand_ins}):
            raise ArgumentsError(f"the result of {name} depends on tangents; compute it of the arguments alone")
        outputs = part.of_result(trace, f"the rule of {name}", pair[1])
        (cut,) = cut_body_graphs_from_builder(trace.builder, [stand_ins], [outputs], first)
        control = CustomDerivativeNode(len(part.results), len(part.inputs), None, cut.body)
        return part.node(trace, control, [*cut.inputs, *cut.numbers])


class Checkpoint(_CustomDerivative[P, R]):
    """A function of which reverse mode keeps the arguments alone, and computes the rest again."""

    _kind = "checkpoint"

    def __init__(self, function: Callable[P, R]) -> None:
        super().__init__(function)
        self._rules = (function,)

    def _trace_with_custom_derivative(self, trace: Trace, name: str, args: tuple[Any, ...]) -> Any:
        function = _custom_rule_in_environment(trace, self.function)
        kept = tuple(copies_of_region_argument(trace, a) for a in args)  # it may assign to them
        part = _FlattenedDerivativeCall(kept, function(*args))
        _check_arguments_of_custom_derivative(name, args, kept)
        first, builder = len(trace.builder.nodes), trace.builder
        stand_ins = [trace.builder.placeholder(v.type) for v in part.moving_results]
        if not stand_ins or not part.inputs:
            return unflatten(part.tree, [new_traced_result(v) for v in part.results])
        after = builder.slice(builder.reshape(stand_ins[0], (-1,)), (0,), (1,), (1,))
        after = builder.reshape(builder.map("real", after) if after.dtype.kind == "c" else after, ())
        late = [builder.map("barrier", v, builder.cast(after, v.dtype)) for v in part.inputs]
        rest = iter(late)
        again = tuple(
            unflatten(
                tree,
                [leaf if v is None else new_traced_result(next(rest)) for leaf, v in zip(leaves, values, strict=True)],
            )
            for (tree, values), leaves in zip(part.trees, part.leaves, strict=True)
        )
        with _trace_custom_derivative_rule(trace):
            region = trace_region(name, function, again, {}, range(len(args)), skips=True)
        count = len(region.graph.outputs)
        graph = derive_reverse(
            region.graph, range(len(region.values)), part.moving_places, reverse_options_of_outer_gradient()
        )
        (cut,) = cut_body_graphs_from_builder(
            builder, [stand_ins], [region.inlined(trace, graph, stand_ins)[count:]], first
        )
        control = CustomDerivativeNode(len(part.results), len(part.inputs), cut.body, None)
        return part.node(trace, control, [*cut.inputs, *cut.numbers])


def checkpoint(function: Callable[P, R]) -> Checkpoint[P, R]:
    """The function, of which reverse mode keeps the arguments alone.

    It computes what is between again when the cotangents of its results are there (Chen et al., Training deep nets with
    sublinear memory cost, 2016). There is no forward mode.

    Parameters
    ----------
    function : callable
        A NumPy function.

    Returns
    -------
    callable
        The function, which is called as before.

    Raises
    ------
    ArgumentsError
        For what cannot be called.

    Examples
    --------
    >>> inner = kg.checkpoint(lambda x: np.sin(np.cos(x)))
    >>> round(float(kg.grad(lambda x: inner(x) ** 2)(1.0)), 6)
    -0.742382
    """
    return Checkpoint(function)


def custom_vjp(function: Callable[P, R]) -> CustomVJP[P, R]:
    """Gives a function a derivative for reverse mode: `f = kg.custom_vjp(f); f.defvjp(forward, backward)`.

    Parameters
    ----------
    function : callable
        A NumPy function.

    Returns
    -------
    callable
        The function, with `defvjp`.

    Raises
    ------
    ArgumentsError
        For what cannot be called.

    Examples
    --------
    >>> clipped = kg.custom_vjp(lambda x: x)
    >>> clipped = clipped.defvjp(lambda x: (x, None), lambda kept, ct: (np.clip(ct, -1, 1),))
    >>> float(kg.grad(lambda x: 5 * clipped(x))(2.0))
    1.0
    """
    return CustomVJP(function)


def custom_jvp(function: Callable[P, R]) -> CustomJVP[P, R]:
    """Gives a function a derivative for both modes: `f = kg.custom_jvp(f); f.defjvp(rule)`.

    Reverse mode transposes what the rule computes of the tangents.

    Parameters
    ----------
    function : callable
        A NumPy function.

    Returns
    -------
    callable
        The function, with `defjvp`.

    Raises
    ------
    ArgumentsError
        For what cannot be called.

    Examples
    --------
    >>> cube = kg.custom_jvp(lambda x: x**3)
    >>> cube = cube.defjvp(lambda args, tangents: (cube(*args), 3 * args[0] ** 2 * tangents[0]))
    >>> float(kg.grad(cube)(2.0))
    12.0
    """
    return CustomJVP(function)


@contextmanager
def _trace_custom_derivative_rule(trace: Trace) -> Iterator[None]:
    """While a rule is traced, which counts as one derivative made: the function that calls itself there is the function
    where no further one is wanted. Arrays from outside of it cannot be assigned to."""
    trace.depth += 1
    trace.deriving -= 1
    try:
        yield
    finally:
        trace.depth -= 1
        trace.deriving += 1


def _custom_rule_in_environment(trace: Trace, function: Callable[..., Any]) -> Callable[..., Any]:
    found: Callable[..., Any] = trace.world.proxy_of(function)
    return found


def _check_arguments_of_custom_derivative(name: str, args: Any, kept: Any) -> None:
    """Raises UnsupportedError where an argument that was assigned to since shares memory with another one."""
    now: list[Any] = []
    before: list[Any] = []
    flatten(args, now)
    flatten(kept, before)
    pairs = [(x, old) for x, old in zip(now, before, strict=True) if isinstance(x, Tracer)]
    for i, (x, old) in enumerate(pairs):
        roots, others = {*map(id, roots_of_array(x))}, [y for j, (y, _) in enumerate(pairs) if j != i]
        others = [y for y in others if not roots.isdisjoint(map(id, roots_of_array(y)))]
        apart = (x is not y and root_of_view(x) is root_of_view(y) and not shares_memory(x, y) for y in others)
        if x._value.number != old._value.number and not all(apart):
            raise UnsupportedError(
                f"{name} assigns to an argument that shares memory with another one, and kg.checkpoint computes it "
                "again of each by itself; pass x.copy()",
                needs_values=False,
            )


def _tracer_in_custom_derivative(value: Value) -> Tracer:
    return new_traced_result(value)


def _depends_on_derivative_stand_ins(trace: Trace, values: Sequence[Value], stand_ins: set[int]) -> bool:
    return not stand_ins.isdisjoint(needed_nodes(trace.builder.nodes, [v.number for v in values]))


def _has_custom_rule_tangent_space(value: Value) -> bool:
    return dtype_kind(value.dtype) in "fc"


class _FlattenedDerivativeCall:
    """Arguments and a result, taken apart. inputs: the arguments' leaves that have derivatives; results: all leaves."""

    def __init__(self, args: tuple[Any, ...], result: Any) -> None:
        self.trees: list[tuple[Tree, list[Value | None]]] = []
        self.leaves: list[list[Any]] = []
        for arg in args:
            leaves: list[Any] = []
            tree = flatten(arg, leaves)
            self.trees.append((tree, [_differentiable_leaf_value(leaf) for leaf in leaves]))
            self.leaves.append(leaves)
        self.inputs = [v for _, values in self.trees for v in values if v is not None]
        found: list[Any] = []
        self.tree = flatten(result, found, results=True)
        self.results = [to_traced_array(x)._value for x in found]
        self.moving_places = [i for i, v in enumerate(self.results) if _has_custom_rule_tangent_space(v)]
        self.moving_results = [self.results[i] for i in self.moving_places]

    def like_result(self, values: Sequence[Any]) -> Any:
        rest = iter(values)
        return unflatten(self.tree, [next(rest) if _has_custom_rule_tangent_space(v) else None for v in self.results])

    def like_arguments(self, values: Sequence[Any]) -> tuple[Any, ...]:
        rest = iter(values)
        return tuple(unflatten(t, [None if v is None else next(rest) for v in values]) for t, values in self.trees)

    def of_arguments(self, trace: Trace, what: str, cotangents: Sequence[Any]) -> list[Value]:
        """Cotangents of the inputs. Raises ArgumentsError, ShapeError."""
        outputs = []
        for place, ((tree, values), given) in enumerate(zip(self.trees, cotangents, strict=True)):
            leaves: list[Any] = []
            if given is None:
                leaves = [None] * len(values)
            elif flatten(given, leaves) != tree:
                raise ArgumentsError(f"{what} gives for argument {place} another structure than it has, {tree}")
            for leaf, value in zip(leaves, values, strict=True):
                if value is not None:
                    outputs.append(_derivative_of_type(trace, f"{what} gives for argument {place}", leaf, value))
        return outputs

    def of_result(self, trace: Trace, what: str, tangent: Any) -> list[Value]:
        """Tangents of the results that have one. Raises ArgumentsError, ShapeError."""
        leaves: list[Any] = []
        if flatten(tangent, leaves, results=True) != self.tree:
            raise ArgumentsError(f"{what} gives a tangent of another structure than the result, which is {self.tree}")
        pairs = zip(leaves, self.results, strict=True)
        return [
            _derivative_of_type(trace, f"{what} gives a tangent", leaf, value)
            for leaf, value in pairs
            if _has_custom_rule_tangent_space(value)
        ]

    def node(self, trace: Trace, control: CustomDerivativeNode, rest: Sequence[int]) -> Any:
        """The result, as nodes that know their derivative."""
        args = (*(v.number for v in (*self.results, *self.inputs)), *rest)
        made = [
            trace.builder.add("custom", args, v.type, (("control", control), ("part", i)))
            for i, v in enumerate(self.results)
        ]
        return unflatten(self.tree, [new_traced_result(v) for v in made])


def _differentiable_leaf_value(leaf: Any) -> Value | None:
    """A leaf of an argument that has a derivative."""
    if leaf is None or isinstance(leaf, (str, bool, int)) or (callable(leaf) and not isinstance(leaf, NumpyProtocols)):
        return None
    value = to_traced_array(leaf)._value
    return value if _has_custom_rule_tangent_space(value) else None


def _derivative_of_type(trace: Trace, what: str, given: Any, like: Value) -> Value:
    """A tangent or cotangent of a value's type; zeros for None. Raises ShapeError."""
    if given is None:
        return trace.builder.broadcast(trace.builder.const(0, like.dtype), like.shape)
    value = to_traced_array(given)._value
    if value.shape != like.shape:
        raise ShapeError(f"{what} of shape {value.shape}, where {like.type} is wanted; broadcast it, or sum it up")
    if value.dtype.kind == "c" and like.dtype.kind != "c":
        value = trace.builder.map("real", value)
    return trace.builder.cast(value, like.dtype)
