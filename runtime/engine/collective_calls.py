"""A collective of a plan in, the call of a world out. Its arrays are in a device's memory."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..program.collective import Collective
from ..program.device import Device, Event
from ..program.plan import Plan
from ..program.world import CONTENT_BYTES, JOINS, Host, World
from .communicator import Agreement, EngineCommunicator


def rank_collective_lines_of_plan(plan: Plan) -> list[str]:
    """What ranks must agree on before they run a plan: which of the user's collectives each message is, and how
    arrays lie on the ranks."""
    by = f" by {plan.exchanged_by}" if plan.exchanged_by else ""
    return [*(" + ".join(s.meanings) for s in plan.collectives), f"the end of {plan.program.name}{by}, {plan.axes}"]


class EngineCollectiveCall:
    """A collective on a device: where that has memory of its own, by way of the host."""

    def __init__(self, step: Collective, device: Device, communicator: EngineCommunicator) -> None:
        self.step, self._device, self._communicator = step, device, communicator
        self._dtype = np.dtype(step.dtype)
        self._written = [step.written_count(i, communicator.world.size) for i in range(len(step.counts))]
        self.nbytes = sum(step.counts) * self._dtype.itemsize
        self.fits_agreement = step.op == "all_reduce" and self.nbytes <= CONTENT_BYTES and not step.groups

    def run(
        self,
        before: Sequence[Event],
        sources: Sequence[Any],
        targets: Sequence[Any],
        agreement: Agreement | None = None,
        arguments: Sequence[Event] = (),
    ) -> None:
        """Once `before` has happened. agreement: made first, or with it, about a call with `arguments`. Raises what
        `before` raised, PlanError."""
        if agreement is not None:
            self._communicator.require_arguments(agreement, arguments)
        for event in before:
            event.wait()
        step, device, dtype = self.step, self._device, self._dtype
        if device.host_memory:
            given = [_array_in_host_memory(m, n, dtype) for m, n in zip(sources, step.counts, strict=True)]
            results = [_array_in_host_memory(m, n, dtype) for m, n in zip(targets, self._written, strict=True)]
        else:
            given = [np.empty(n, dtype) for n in step.counts]
            results = [np.empty(n, dtype) for n in self._written]
            for memory, array in zip(sources, given, strict=True):
                device.download(memory, array)
        if len(given) == 1:
            self._call(given[0], results[0], agreement)
        else:
            self._call_on_joined_arrays(given, results, agreement)
        if not device.host_memory:
            for memory, array in zip(targets, results, strict=True):
                device.upload(array, memory).wait()

    def _call(self, source: Host, target: Host, agreement: Agreement | None) -> None:
        if agreement is not None:
            if self.fits_agreement:
                self._communicator.exchange(agreement, source, target, JOINS[self.step.how])
                return
            self._communicator.exchange(agreement)
        call_collective_from_engine(self._communicator.world, self.step, source, target)

    def _call_on_joined_arrays(
        self, given: Sequence[Host], results: Sequence[Host], agreement: Agreement | None
    ) -> None:
        joined = np.concatenate(given)
        result = np.empty_like(joined)
        self._call(joined, result, agreement)
        start = 0
        for array in results:
            array[...] = result[start : start + array.size]
            start += array.size


def call_collective_from_engine(world: World, step: Collective, source: Host, target: Host) -> None:
    """source, target: with one axis."""
    world = world.within(step.groups) if step.groups else world
    if step.op == "all_reduce":
        world.all_reduce(source, target, step.how)
    elif step.op == "reduce_scatter":
        world.reduce_scatter(source, target, step.how)
    elif step.op == "all_gather":
        world.all_gather(source, target)
    elif step.op == "all_to_all":
        world.all_to_all(source, target)
    elif step.op == "permute":
        world.permute(source, target, step.pairs)
    else:
        if world.rank == step.root:
            target[...] = source
        world.broadcast(target, step.root)


def _array_in_host_memory(memory: Any, count: int, dtype: np.dtype[Any]) -> Host:
    """The caller keeps the memory alive."""
    if not count:
        return np.empty(0, dtype)
    if not isinstance(memory, ctypes.Array):  # which NumPy reads as it is
        memory = (ctypes.c_char * (count * dtype.itemsize)).from_address(memory.address)
    found: Host = np.frombuffer(memory, dtype, count)
    return found
