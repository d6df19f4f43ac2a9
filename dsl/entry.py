"""One trace made ready for one set of layouts on one device: `Entry.run` is all that a repeated call pays for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..compiler.materialize import Layout
from ..compiler.types import ArrayType
from ..runtime.device import Device, Executable
from ..runtime.plan import Plan
from .array import Array, hold
from .capture import Captured
from .numbers import Respecialise
from .pointer import address
from .signature import low_offset
from .spec import Spec, spec_of
from .tree import LEAF, unflatten


class Entry:
    """Everything about a call that its key decides."""

    __slots__ = (
        "_arena_bytes",
        "_array_leaves",
        "_captured",
        "_device",
        "_executable",
        "_host",
        "_inputs",
        "_lows",
        "_on_cpu",
        "_outputs",
        "_results",
        "_scalars",
        "_single",
        "_template",
        "_tree",
        "guards",
        "used",
    )

    def __init__(
        self,
        captured: Captured,
        plan: Plan,
        executable: Executable,
        device: Device,
        array_leaves: Sequence[int],
        lows: Sequence[int],
    ) -> None:
        """array_leaves: the numbers of the leaves that are arrays. lows: for each of them, from the first to the lowest
        element in bytes."""
        self.guards = captured.guards
        self.used = True
        self._device = device
        self._on_cpu = device.kind == "cpu"
        self._executable = executable
        program = plan.program
        self._template: list[Any] = [None] * len(program.buffers)
        self._inputs = tuple(zip(array_leaves, program.inputs[: len(array_leaves)], lows, strict=True))
        self._captured = tuple(zip(captured.arrays, program.inputs[len(array_leaves) :], strict=True))
        graph = captured.graph
        specs = [spec_of(graph.nodes[o].type) for o in graph.outputs]
        self._outputs = tuple((b, s, max(1, s.nbytes)) for b, s in zip(program.outputs, specs, strict=True))
        self._arena_bytes = plan.arena_bytes
        self._host = captured.host
        self._scalars = len(graph.numbers)
        self._tree, self._results = captured.tree, captured.results
        self._single = captured.tree == LEAF and captured.results == (("array", 0),)

    def run(self, leaves: Sequence[Any]) -> Any:
        """Start the plan on a call's leaves. Returns when no NumPy memory of the caller is still to be read.

        Raises Respecialise if a number does not fit the trace."""
        try:
            numbers = self._host(leaves)
        except Exception:  # 1 / 0 and the like: Python raises it again, at the user's line, when the numbers are known
            raise Respecialise from None
        memories = self._template.copy()
        device = self._device
        allocate = device.allocate
        after: list[Any] = []
        keep: list[Any] = []
        wait = False
        for leaf, buffer, low in self._inputs:
            array = leaves[leaf]
            if type(array) is Array:
                if array._device is not device:
                    array = array.to_device(_name(device))
                if array._event is not None:
                    after.append((buffer, array._event))
                memory = array._memory
                memories[buffer] = memory.address
                keep.append(memory)
            elif self._on_cpu:
                memories[buffer] = address(array) + low
                wait = True
            else:
                self._upload(array, buffer, memories, after, keep)
        for array, buffer in self._captured:
            if self._on_cpu:
                memories[buffer] = address(array) + low_offset(array.shape, array.strides)
                wait = True
            else:
                self._upload(array, buffer, memories, after, keep)
        made = []
        for buffer, spec, nbytes in self._outputs:
            memory = allocate(nbytes)
            memories[buffer] = memory.address
            made.append(Array(memory, spec, device))
        arena = None
        if self._arena_bytes:
            block = allocate(self._arena_bytes)
            arena = block.address
            keep.append(block)
        events = self._executable.run(memories, arena, numbers[: self._scalars], after)
        pending = False
        for array, event in zip(made, events, strict=True):
            array._event = event
            if wait:
                try:
                    event.wait()
                except Exception:  # the array keeps the event, which raises at every read
                    continue
                array._event = None
            elif not event.query():
                pending = True
        if pending:
            keep.extend(array._memory for array in made)
            hold(events, keep)
        if self._single:
            return made[0]
        found = [made[x] if kind == "array" else numbers[x] if kind == "number" else x for kind, x in self._results]
        return unflatten(self._tree, found)

    def _upload(
        self, array: np.ndarray[Any, Any], buffer: int, memories: list[Any], after: list[Any], keep: list[Any]
    ) -> None:
        memory = self._device.allocate(max(1, array.nbytes))
        after.append((buffer, self._device.upload(np.ascontiguousarray(array).reshape(array.shape), memory)))
        memories[buffer] = memory.address
        keep.append(memory)


def _name(device: Device) -> str:
    return f"{device.kind}:{device.index}"


def layout_of(leaf: Any, device_kind: str) -> Layout:
    """How an array argument lies in the memory that the kernels read."""
    if isinstance(leaf, np.ndarray) and device_kind == "cpu" and leaf.size:
        dense = spec_of(ArrayType(leaf.shape, leaf.dtype)).strides
        strides = tuple(d if n == 1 else s for n, s, d in zip(leaf.shape, leaf.strides, dense, strict=True))
        return Layout(strides, address(leaf) % 16 == 0)
    spec = leaf if isinstance(leaf, Spec) else leaf._spec if isinstance(leaf, Array) else None
    return Layout(spec.strides if spec is not None else spec_of(ArrayType(leaf.shape, leaf.dtype)).strides)
