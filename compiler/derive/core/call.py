"""One operation of the graph that is being differentiated, as rules see it. It has all of its results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from ....runtime.core.frozen import frozen
from ...core.types import dtype_kind
from ...graph.builder import GraphBuilder
from ...graph.graph import Node, Value, Values, own_maximum_of_comparison


@frozen
class ReverseOptions:
    """budget: bytes that a loop may keep of its states. ieee: whether a cotangent of zero that comes out of a `where`
    is multiplied as IEEE's arithmetic does; else nothing comes back from what was not taken, be it infinite."""

    budget: int = 2**30
    ieee: bool = False


class RuleWalks(Protocol):
    """The two walks, for rules of operations that have bodies."""

    @property
    def options(self) -> ReverseOptions: ...

    def pull_back(
        self,
        builder: GraphBuilder,
        outputs: Values,
        cotangents: Sequence[Value | None],
        inputs: Values,
        replaced: dict[int, int],
        masks: dict[int, Value] | None = None,
    ) -> list[Value | None]: ...

    def push_forward(
        self,
        builder: GraphBuilder,
        inputs: Values,
        tangents: Sequence[Value | None],
        outputs: Values,
        replaced: dict[int, int],
    ) -> list[Value | None]: ...

    def following(self, builder: GraphBuilder, inputs: Values, outputs: Values) -> list[bool]: ...


@frozen
class RuleCall:
    """An operation. results: by part, those that the graph has. active: for each argument, whether it follows what is
    differentiated. masks: node -> where its elements may be other than zero, a bool value; rules may add to it.
    replaced: node -> the node that takes its place when all is done, such as that of a loop which keeps more."""

    builder: GraphBuilder
    node: Node
    args: tuple[Value, ...]
    results: Mapping[int, Value]
    active: tuple[bool, ...]
    masks: dict[int, Value]
    replaced: dict[int, int]
    walks: RuleWalks

    def attr(self, name: str) -> Any:
        return self.node.attr(name)

    def copy(self, *args: Value) -> Value:
        """The operation on others."""
        return self.builder.copy(self.node, args)

    def put_under_mask_of(self, ct: Value, turned: Value, turn: Callable[[Value], Value]) -> Value:
        """A value with the mask of the cotangent that it is made of, turned as that was."""
        mask = self.masks.get(ct.number)
        if mask is not None and mask.shape == ct.shape:
            self.masks[turned.number] = turn(mask)
        return turned

    @property
    def result(self) -> Value:
        """Of an operation that has one."""
        return self.results[0]

    @property
    def options(self) -> dict[str, Any]:
        """Of a host call."""
        return self.node.options

    @property
    def name(self) -> str:
        """What the user knows it as."""
        return str(self.node.attr("function")) if self.node.op == "host" else self.node.op


def rule_can_differentiate_value(value: Value) -> bool:
    """Whether its elements are real or complex floats: only those have derivatives."""
    return dtype_kind(value.dtype) in "fc"


def zero_cotangent(builder: GraphBuilder, like: Value) -> Value:
    """Zeros of a value's type."""
    return builder.broadcast(builder.const(0, like.dtype), like.shape)


def copied_tangents(call: RuleCall, tangents: Sequence[Value | None]) -> dict[int, Value | None]:
    """The same operation of the only tangent."""
    (t,) = tangents
    return {0: None if t is None else call.copy(t)}


def zeros_for_none(builder: GraphBuilder, values: Sequence[Value | None], like: Values) -> list[Value]:
    """The values, zeros in the place of None."""
    return [zero_cotangent(builder, v) if t is None else t for t, v in zip(values, like, strict=True)]


def conjugated_cotangent(builder: GraphBuilder, value: Value) -> Value:
    """The conjugate of complex numbers; real ones as they are."""
    if value.dtype.kind != "c":
        return value
    node = builder.nodes[value.number]
    return builder.at(node.args[0]) if node.op == "conjugate" else builder.map("conjugate", value)


def cotangent_fitted_to(builder: GraphBuilder, value: Value, like: Value) -> Value:
    """A cotangent of what was broadcast or converted, as one of `like`: summed over the axes that were broadcast, its
    real part where that is real."""
    if value.dtype.kind == "c" and like.dtype.kind != "c":
        value = builder.map("real", value)
    if value.shape != like.shape:
        value = sum_cotangent_over_broadcast_axes(builder, value, like.shape)
    return builder.cast(value, like.dtype)


def sum_cotangent_over_broadcast_axes(builder: GraphBuilder, value: Value, shape: tuple[int, ...]) -> Value:
    """Sums over the axes along which `shape` was broadcast to the value's."""
    wide = _broadcast_axes(value.shape, shape)
    return builder.reshape(_sum_of_product(builder, value, wide) if wide else value, shape)


def mask_fitted_to(builder: GraphBuilder, mask: Value, shape: tuple[int, ...]) -> Value:
    """Where sums of a cotangent under a mask, over axes along which `shape` was broadcast, may be other than zero."""
    wide = _broadcast_axes(mask.shape, shape)
    if not wide:
        return builder.reshape(mask, shape)
    same = _same_along(builder, mask.number, mask.shape, wide)
    if same is None:
        return builder.reshape(builder.reduce("any", mask, wide), shape)
    kept = [n for axis, n in enumerate(mask.shape) if axis not in wide]
    return builder.reshape(builder.broadcast(same, kept), shape)


def _broadcast_axes(wide: Sequence[int], shape: Sequence[int]) -> list[int]:
    """The axes of a shape along which another was broadcast to it."""
    extra = len(wide) - len(shape)
    return [i for i, n in enumerate(wide) if i < extra or (shape[i - extra] == 1 and n != 1)]


def _sum_of_product(builder: GraphBuilder, value: Value, axes: Sequence[int]) -> Value:
    """sum(a * c), where c is the same along the axes, as sum(a) * c: so sums differ in factors alone are one sum, which
    the function itself may have made. Only where no sum of a can overflow: a large one may have a small factor."""
    node = builder.nodes[value.number]
    if node.op == "negative":
        return builder.map("negative", _sum_of_product(builder, builder.at(node.args[0]), axes))
    for place in (0, 1) if node.op == "multiply" else (1,) if node.op in ("divide", "approximate_divide") else ():
        rest, factor = builder.at(node.args[1 - place]), _same_along(builder, node.args[place], value.shape, axes)
        if factor is not None and rest.shape == value.shape and _sums_cannot_overflow(builder, rest):
            return builder.map(node.op, builder.reduce("sum", rest, axes, rest.dtype), factor)
    return builder.reduce("sum", value, axes, value.dtype)


WITHIN_ONE = frozenset({"sin", "cos", "tanh", "erf", "sigmoid"})


def _sums_cannot_overflow(builder: GraphBuilder, value: Value) -> bool:
    """Whether no element is beyond 1, by what it is: one of these functions, or exp(x - max(x))."""
    node = builder.nodes[value.number]
    if value.dtype.kind != "f" or not 0 < value.size <= float(np.finfo(value.dtype).max):
        return False  # of no elements it is 0, whatever the factor
    if node.op != "exp":
        return node.op in WITHIN_ONE
    power = builder.nodes[node.args[0]]
    return power.op == "subtract" and own_maximum_of_comparison(builder.nodes, power) is not None


def _same_along(builder: GraphBuilder, number: int, shape: tuple[int, ...], axes: Sequence[int]) -> Value | None:
    """A value that is broadcast to `shape`, without the axes, if it is the same along them."""
    while builder.nodes[number].op == "broadcast":
        number = builder.nodes[number].args[0]
    value = builder.at(number)
    lengths = (*(1,) * (len(shape) - value.ndim), *value.shape)
    if any(lengths[axis] != 1 for axis in axes):
        return None
    return builder.reshape(value, [n for axis, n in enumerate(lengths) if axis not in axes])


def transpose_matrices_in_rule(builder: GraphBuilder, value: Value) -> Value:
    """Matrices transposed."""
    last = value.ndim - 1
    return builder.permute(value, (*range(last - 1), last, last - 1))


def adjoint_matrices_in_rule(builder: GraphBuilder, value: Value) -> Value:
    """Matrices transposed and conjugated."""
    return conjugated_cotangent(builder, transpose_matrices_in_rule(builder, value))
