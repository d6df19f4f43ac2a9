"""A collective of a plan in, the call of a world on arrays in a device's memory out."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..program.device import Device, Event
from ..program.multi_device import Collective, MultiDevicePlan
from ..program.world import Host, World


def collective_lines_of_plan(plan: MultiDevicePlan) -> list[str]:
    """What ranks must agree on before they run a plan: each of its collectives, with the user's line."""
    return [f"{s.meaning} of {plan.name}{f' at {s.line}' if s.line else ''}" for s in plan.collectives]


class CollectiveCall:
    """A collective on a device: where that has memory of its own, by way of the host."""

    def __init__(self, step: Collective, device: Device, world: World) -> None:
        self.step, self._device, self._world = step, device, world
        self._written = [step.written_count(i, world.size) for i in range(len(step.writes))]

    def run(self, before: Sequence[Event], sources: Sequence[Any], targets: Sequence[Any]) -> None:
        """Once `before` has happened. Raises what that raised."""
        for event in before:
            event.wait()
        step, device = self.step, self._device
        dtype = np.dtype(step.dtype)
        if device.host_memory:
            given = [
                _collective_array_at_address(m.address, n, dtype) for m, n in zip(sources, step.counts, strict=True)
            ]
            results = [
                _collective_array_at_address(m.address, n, dtype) for m, n in zip(targets, self._written, strict=True)
            ]
        else:
            given = [np.empty(n, dtype) for n in step.counts]
            results = [np.empty(n, dtype) for n in self._written]
            for memory, array in zip(sources, given, strict=True):
                device.download(memory, array)
        if len(given) == 1:
            call_collective_of_world(self._world, step, given[0], results[0])
        else:
            _call_collective_on_joined_arrays(self._world, step, given, results)
        if not device.host_memory:
            for memory, array in zip(targets, results, strict=True):
                device.upload(array, memory).wait()


def _call_collective_on_joined_arrays(
    world: World, step: Collective, given: Sequence[Host], results: Sequence[Host]
) -> None:
    joined = np.concatenate(given)
    result = np.empty_like(joined)
    call_collective_of_world(world, step, joined, result)
    start = 0
    for array in results:
        array[...] = result[start : start + array.size]
        start += array.size


def call_collective_of_world(world: World, step: Collective, source: Host, target: Host) -> None:
    """source, target: with one axis."""
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


def _collective_array_at_address(address: int, count: int, dtype: np.dtype[Any]) -> Host:
    """The caller keeps the memory alive."""
    if not count:
        return np.empty(0, dtype)
    found: Host = np.frombuffer(memoryview((ctypes.c_char * (count * dtype.itemsize)).from_address(address)), dtype)
    return found
