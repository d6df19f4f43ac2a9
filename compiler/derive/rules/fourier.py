"""Rules of Fourier transforms, all linear: the tangent's transform, and the adjoint for cotangents.

The adjoint of a transform is the one in the other direction, scaled the other way round (`backward` for `forward`), cut
or extended by zeros as the argument was not. Of a real transform half of the frequencies are left out, which the others
stand for, so that they count twice, or by half.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...core.types import ArrayType, complex_dtype, real_dtype
from ...graph.builder import GraphBuilder
from ...graph.graph import Value
from ..core.call import RuleCall, conjugated_cotangent, copied_tangents, cotangent_fitted_to
from ..core.kinds import Choice, Cotangents, Linear, Maybe, Rule, Written

# a transform -> the one in the other direction
_ONE = {"fft": "ifft", "ifft": "fft", "rfft": "irfft", "irfft": "rfft"}
OTHER = {f"{name}{n}": f"{other}{n}" for name, other in _ONE.items() for n in ("", "2", "n")}
_TURNED = {"backward": "forward", "forward": "backward", "ortho": "ortho"}


def _fourier_rule_function_name(call: RuleCall) -> str:
    return str(call.attr("function")).removeprefix("fft.")


def _norm_of_cotangent_transform(call: RuleCall) -> str:
    return _TURNED[call.options.get("norm", "backward")]


def _fourier_rule_axes(call: RuleCall) -> tuple[int, ...]:
    """The axes that are transformed, the real one last."""
    options = call.options
    return (options["axis"],) if "axis" in options else tuple(options["axes"])


def _fourier_rule_lengths(call: RuleCall) -> list[int]:
    """How many points are transformed along each axis."""
    axes, options, shape = _fourier_rule_axes(call), call.options, call.args[0].shape
    if "n" in options:
        return [options["n"]]
    found = [shape[axis] if n == -1 else n for axis, n in zip(axes, options.get("s", [-1] * len(axes)), strict=True)]
    if _fourier_rule_function_name(call).startswith("irfft") and "s" not in options:
        found[-1] = 2 * (shape[axes[-1]] - 1)
    return found


def _fourier_cotangents(call: RuleCall, cts: Cotangents) -> Sequence[Maybe]:
    builder, ct, name, (a,) = call.builder, cts[0], _fourier_rule_function_name(call), call.args
    axes, points = _fourier_rule_axes(call), _fourier_rule_lengths(call)
    shape = list(ct.shape)
    dtype = complex_dtype(ct.dtype)
    if name.startswith("rfft"):
        ct = _weighted_frequencies_of_cotangent(builder, ct, axes[-1], points[-1], 0.5)
        shape[axes[-1]], dtype = points[-1], real_dtype(ct.dtype)
    if name.startswith("irfft"):
        shape[axes[-1]] = points[-1] // 2 + 1
    options = {"n": points[0], "axis": axes[0]} if "axis" in call.options else {"s": tuple(points), "axes": axes}
    type_ = ArrayType(tuple(shape), dtype)
    (found,) = builder.host(f"fft.{OTHER[name]}", [ct], [type_], norm=_norm_of_cotangent_transform(call), **options)
    if name.startswith("irfft"):
        found = _weighted_frequencies_of_cotangent(builder, found, axes[-1], points[-1], 2.0)
    return [cotangent_fitted_to(builder, _cut_or_padded_in_fourier_rule(builder, found, a), a)]


def _weighted_frequencies_of_cotangent(builder: GraphBuilder, ct: Value, axis: int, n: int, factor: float) -> Value:
    """Times a factor, but for the frequencies that stand for themselves alone: 0, and the half of an even n."""
    index = builder.index(ct.shape, axis)
    alone = builder.map("equal", index, np.int64(0))
    if n % 2 == 0:
        alone = builder.map("logical_or", alone, builder.map("equal", index, np.int64(n // 2)))
    kind = real_dtype(ct.dtype)
    return builder.map("multiply", ct, builder.map("where", alone, kind.type(1), kind.type(factor)))


def _cut_or_padded_in_fourier_rule(builder: GraphBuilder, value: Value, like: Value) -> Value:
    """Cut or extended by zeros to another shape."""
    ones, start = (1,) * like.ndim, (0,) * like.ndim
    both = tuple(min(m, n) for m, n in zip(value.shape, like.shape, strict=True))
    value = builder.slice(value, start, ones, both)
    if both == like.shape:
        return value
    return builder.update(builder.broadcast(builder.const(0, value.dtype), like.shape), value, start, ones)


def _fourier_rule_axis_by_axis(call: RuleCall) -> dict[int, Value]:
    """A transform along an axis that comes twice, as NumPy does it: one axis after the other."""
    name, axes, options, builder = (
        _fourier_rule_function_name(call),
        _fourier_rule_axes(call),
        call.options,
        call.builder,
    )
    kind, points = name.rstrip("2n"), [*options.get("s", [-1] * len(_fourier_rule_axes(call)))]
    places = list(range(len(axes)))
    order = places if kind == "irfft" else places[::-1]
    value = call.args[0]
    for i in order:
        real, last = i == len(axes) - 1 and kind in ("rfft", "irfft"), value.shape[axes[i]]
        step = kind if real else kind.replace("r", "")
        n = (
            2 * (last - 1)
            if real and kind == "irfft" and "s" not in options
            else last
            if points[i] == -1
            else points[i]
        )
        shape = list(value.shape)
        shape[axes[i]] = n // 2 + 1 if step == "rfft" else n
        dtype = real_dtype(value.dtype) if step == "irfft" else complex_dtype(value.dtype)
        given = {"norm": options["norm"]} if "norm" in options else {}
        (value,) = builder.host(f"fft.{step}", [value], [ArrayType(tuple(shape), dtype)], n=n, axis=axes[i], **given)
    return {0: value}


def _rewrite_hermitian_fft_for_derivative(call: RuleCall) -> dict[int, Value]:
    """hfft(a, norm) -> irfft(conj(a), the other norm); ihfft(a, norm) -> conj(rfft(a, the other norm))"""
    builder, (a,), options = call.builder, call.args, call.options
    given = {"n": options["n"], "axis": options["axis"], "norm": _norm_of_cotangent_transform(call)}
    if _fourier_rule_function_name(call) == "hfft":
        return {0: builder.host("fft.irfft", [conjugated_cotangent(builder, a)], [call.node.type], **given)[0]}
    return {0: conjugated_cotangent(builder, builder.host("fft.rfft", [a], [call.node.type], **given)[0])}


_TRANSFORM = Linear(copied_tangents, _fourier_cotangents)


def _fourier_transform_rule(call: RuleCall) -> Rule:
    axes = _fourier_rule_axes(call)
    return _TRANSFORM if len(set(axes)) == len(axes) else Written(_fourier_rule_axis_by_axis)


FOURIER: dict[str, Rule] = {
    **{f"fft.{name}": Choice(_fourier_transform_rule) for name in OTHER},
    "fft.hfft": Written(_rewrite_hermitian_fft_for_derivative),
    "fft.ihfft": Written(_rewrite_hermitian_fft_for_derivative),
}
