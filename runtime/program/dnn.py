"""Calls of a library for deep neural networks (DNN), as plain data, and what is asked of such a library."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from ..core.frozen import frozen

Order = tuple[int, ...]  # for each axis of an array, which axis of its memory it is
# of an array within another one its shape, its strides, and where it begins, in elements
DnnPart = tuple[tuple[int, ...], tuple[int, ...], int]


@frozen
class DnnTensor:
    """strides: in elements."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str


@frozen
class DnnCall:
    """tensors: those that it reads, then those that it writes."""

    operation: str
    tensors: tuple[DnnTensor, ...]
    options: tuple[tuple[str, Any], ...]

    def option(self, name: str) -> Any:
        """None where the call has none of this name."""
        return dict(self.options).get(name)


class DnnLibrary(Protocol):
    """A library for deep neural networks on one device. Its repr names its version."""

    def workspace(self, call: DnnCall) -> int | str:
        """Bytes of memory that a call takes beside its arrays; or why the library does not do it."""
        ...

    def microseconds(self, call: DnnCall) -> float | None:
        """What a call takes, by the clock; None where nothing was measured."""
        ...


def nbytes_of_dnn_tensor(tensor: DnnTensor) -> int:
    """Of memory without gaps."""
    return math.prod(tensor.shape) * (4 if tensor.dtype == "float32" else 2)


def parts_of_dnn_arrays(options: Mapping[str, Any]) -> list[DnnPart | None]:
    """For each array of a call the part of its memory that it is; None where it is all of it."""
    parts = options.get("parts", ())
    return [*parts, *[None] * (len(options["orders"]) - len(parts))]


def dnn_call_of_arrays(arrays: Iterable[tuple[Sequence[int], str]], options: dict[str, Any]) -> DnnCall:
    """The call of arrays that lie in memory without gaps: of each its shape there and its dtype, those that are written
    last. options: with the operation and, for each array, its `Order`, maybe which `DnnPart` of the memory it is; what
    concerns tasks alone is left out."""
    known = {"operation", "orders", "results", "dtype", "workspace", "flops", "parts"}
    tensors = []
    for (shape, dtype), order, part in zip(arrays, options["orders"], parts_of_dnn_arrays(options), strict=True):
        strides: Sequence[int] = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
        if part is not None:
            shape, strides, _ = part
        tensors.append(DnnTensor(tuple(shape[i] for i in order), tuple(strides[i] for i in order), dtype))
    rest = tuple(sorted((name, value) for name, value in options.items() if name not in known))
    return DnnCall(options["operation"], tuple(tensors), rest)
