"""Gradients in one or two bits an element: MXNet's gradient compression, with error feedback.

What an element loses is kept as its residual and added to the next gradient. A code of two bits is 3 for the threshold,
2 for its negative and 0 for zero; one of a bit is 1 for one and 0 for its negative. The first of a byte's codes is in
its highest bits, as in MXNet.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ...compiler.core.types import dtype_kind
from ...runtime.core.frozen import frozen
from ...runtime.core.readable_text import with_article
from ..array.array import Array, on_device
from ..array.devices import name_of
from ..core.errors import DTypeError, OptionError
from ..core.spec import Spec
from ..jit.kernel_graph import KernelGraph

THRESHOLD = 0.5  # MXNet's


@frozen
class Quantizer:
    """A type of compression. bits: of a code. codes: of values, by the threshold. steps: what codes stand for, as
    multiples of the step that a threshold makes."""

    bits: int
    codes: Callable[[Any, float], Any]
    steps: Callable[[Any], Any]
    step: Callable[[float], float]


def _codes_of_one_bit(x: Any, threshold: float) -> Any:
    return (x > threshold).astype(np.uint8)


def _codes_of_two_bits(x: Any, threshold: float) -> Any:
    return np.where(x >= threshold, np.uint8(3), np.where(x <= -threshold, np.uint8(2), np.uint8(0)))


def _steps_of_one_bit(codes: Any) -> Any:
    return codes.astype(np.int8) * np.int8(2) - np.int8(1)


def _steps_of_two_bits(codes: Any) -> Any:
    return (codes == 3).astype(np.int8) - (codes == 2).astype(np.int8)


QUANTIZERS = {
    "1bit": Quantizer(1, _codes_of_one_bit, _steps_of_one_bit, lambda threshold: 1.0),
    "2bit": Quantizer(2, _codes_of_two_bits, _steps_of_two_bits, lambda threshold: threshold),
}


@frozen
class GradientCompression:
    """How gradients are compressed. type: `1bit` or `2bit`."""

    type: str
    threshold: float = THRESHOLD

    def __str__(self) -> str:
        return f"{self.type} of threshold {self.threshold!r}"

    def check(self, key: Any, spec: Spec) -> None:
        """Raises DTypeError where values of a spec are not compressed."""
        if dtype_kind(spec.dtype) != "f":
            raise DTypeError(
                f"gradients of floats are compressed, and key {key!r} has {with_article(spec.dtype)} value"
            )

    def compress(self, gradient: Array, residual: Array | None) -> tuple[Array, Array]:
        """The codes of a gradient, packed, and what is left of it. residual: what was left before; None for nothing."""
        device = gradient._device
        zeros = np.zeros(gradient.shape, gradient.dtype)
        before = on_device(zeros if residual is None else residual, device)
        found: tuple[Array, Array] = _compressor(self, name_of(device))(gradient, before)
        return found

    def sum_of(self, packed: Any, spec: Spec, device: str) -> Array:
        """The sum of gradients whose packed codes are the rows of an array."""
        found: Array = _summation(self, spec, device)(packed)
        return found


def checked_compression(given: Any) -> GradientCompression:
    """MXNet's dict of `type` and `threshold`. Raises OptionError."""
    options = dict(given) if isinstance(given, Mapping) else {}
    kind, threshold = options.pop("type", None), options.pop("threshold", THRESHOLD)
    if kind not in QUANTIZERS or options:
        raise OptionError(
            f"compression_params={given!r}: write {{'type': '2bit', 'threshold': {THRESHOLD}}}, or '1bit'"
        )
    try:
        threshold = float(threshold)
    except (TypeError, ValueError):
        threshold = float("nan")
    if not (threshold > 0 or (kind == "1bit" and threshold == threshold)):
        raise OptionError(f"compression_params={given!r}: write a threshold that is a number above 0")
    return GradientCompression(kind, threshold)


@functools.lru_cache(maxsize=64)
def _compressor(compression: GradientCompression, device: str) -> KernelGraph:
    quantizer, threshold = QUANTIZERS[compression.type], compression.threshold
    step, bits = quantizer.step(threshold), quantizer.bits
    places = 8 // bits

    def compressed(gradient: Any, residual: Any) -> Any:
        """Each byte has several codes."""
        whole = gradient + residual
        codes = quantizer.codes(whole, threshold)
        left = whole - quantizer.steps(codes).astype(whole.dtype) * step
        flat = codes.reshape(-1)
        rows = np.concatenate([flat, np.zeros(-flat.size % places, np.uint8)]).reshape(-1, places)
        packed = rows[:, 0] << np.uint8(8 - bits)
        for place in range(1, places):
            packed = packed | rows[:, place] << np.uint8(8 - bits * (place + 1))
        return packed, left

    return KernelGraph(compressed, device=device)


@functools.lru_cache(maxsize=1024)
def _summation(compression: GradientCompression, spec: Spec, device: str) -> KernelGraph:
    """spec: of the sum."""
    quantizer, bits = QUANTIZERS[compression.type], QUANTIZERS[compression.type].bits
    step = quantizer.step(compression.threshold)

    def summed(packed: Any) -> Any:
        rows = np.stack(packed) if isinstance(packed, (list, tuple)) else packed
        shifts = np.arange(8 - bits, -1, -bits).astype(np.uint8)
        codes = (rows[:, :, None] >> shifts) & np.uint8((1 << bits) - 1)
        count = quantizer.steps(codes).sum(axis=0, dtype=np.int32)
        return (count.reshape(-1)[: spec.size].astype(np.float32) * step).astype(spec.dtype).reshape(spec.shape)

    return KernelGraph(summed, device=device)
