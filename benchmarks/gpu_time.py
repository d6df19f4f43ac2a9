"""A decorated function and its arguments in; the GPU's time for one call, without the host's, out."""

from __future__ import annotations

import statistics
from typing import Any

from kernelgraph.dsl.array.in_flight import waitall
from kernelgraph.runtime.devices.cuda.driver.driver import CAPTURE_RELAXED
from kernelgraph.runtime.program.plan import Launch
from kernelgraph.runtime.program.program import control_flow_bodies

CALLS, ROUNDS = 100, 20


def device_microseconds(f: Any, arguments: Any) -> float:
    """The median over some launches of one CUDA graph that holds CALLS calls in a row: between two events that tell
    the time, per call. All steps of a call follow each other. Of a plan with loops that of a run alone."""
    for _ in range(100):  # the plan is chosen
        result = f(*arguments)
        (result[0] if isinstance(result, list | tuple) else result).wait()
    waitall()
    compiled = f._compiled_for(tuple(arguments), {})
    plan, executable = compiled.plan, compiled.executable
    device = executable._device
    driver, program = device.context.driver, plan.program
    memories: list[Any] = [None] * len(program.buffers)
    for buffer, array in zip(program.inputs, arguments, strict=True):
        memories[buffer] = array._memory.address
    kept = [device.allocate(max(1, program.buffers[b].nbytes)) for b in program.outputs]
    for buffer, memory in zip(program.outputs, kept, strict=True):
        memories[buffer] = memory.address
    arena = device.allocate(max(1, plan.arena_bytes))
    if any(control_flow_bodies(task) for task in plan.tasks):
        return statistics.median(_timed_run(executable, memories, arena.address) for _ in range(ROUNDS))
    addresses = executable.addresses(memories, arena.address)
    stream, capture = device.new_stream(False), device.new_stream(False)
    _done(driver, driver.begin_capture(capture, CAPTURE_RELAXED))
    for _ in range(CALLS):
        for step in plan.steps:
            if isinstance(step, Launch):
                _done(driver, executable.runners[step.task](addresses, (), capture))
    code, graph = driver.end_capture(capture)
    _done(driver, code)
    code, launchable = driver.instantiate(graph)
    _done(driver, code)
    first, last = (device.context.timed_event().handle for _ in range(2))
    samples = []
    for _ in range(ROUNDS):
        _done(driver, driver.record(first, stream))
        _done(driver, driver.launch_graph(launchable, stream))
        _done(driver, driver.record(last, stream))
        _done(driver, driver.synchronize_event(last))
        samples.append(driver.elapsed(first, last)[1] / CALLS)
    driver.destroy_executable(launchable)
    driver.destroy_graph(graph)
    return statistics.median(samples)


def _timed_run(executable: Any, memories: Any, arena: int) -> float:
    """Of a plan with loops, which no other graph holds, on an idle GPU: with its first launch."""
    _, timing = executable.run_timed(memories, arena, (), ())
    executable._device.synchronize()
    return float(timing.query())


def _done(driver: Any, code: int) -> None:
    if code:
        raise RuntimeError(driver.describe(code))
