"""Is a plan over several devices safe? Each value written once, by what comes before all that reads it, on its device.

What such a plan can get wrong beside the plans of its parts, which `plan` proves: a step that reads what is not written
yet or lies on another device, a copy within a device or of another size, two writers of one value, an output that
nobody writes. Steps wait for values alone, and every value's writer is issued before its readers; so each step's waits
are for steps issued earlier, and no set of steps can wait for each other: there is no deadlock, whatever the order in
which devices take up their work.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..core.errors import PlanError
from ..program.multi_device import CopyValue, DeviceValue, MultiDevicePlan, RunPart


def find_device_violations(plan: MultiDevicePlan) -> list[str]:
    """What is wrong, in words; nothing for a safe plan."""
    return [*_violations(plan)]


def require_safe_devices(plan: MultiDevicePlan) -> None:
    """Raises PlanError with the first violation."""
    for wrong in _violations(plan):
        raise PlanError(f"plan {plan.name} is not safe: {wrong}")


def _violations(plan: MultiDevicePlan) -> Iterator[str]:
    values = plan.values
    count = len(values)
    for number, value in enumerate(values):
        if not 0 <= value.device < len(plan.devices):
            yield f"v{number} is on device {value.device}, of {len(plan.devices)}"
            return
    kinds = {kind for kind, _ in plan.devices}
    if len(kinds) != 1 or len({*plan.devices}) != len(plan.devices):
        yield f"the devices {plan.devices} are not different ones of one kind"
    written = {number for number, value in enumerate(values) if value.source >= 0}
    for place, step in enumerate(plan.steps):
        reads, writes = (step.reads, step.writes) if isinstance(step, RunPart) else ((step.source,), (step.target,))
        if not all(0 <= v < count for v in (*reads, *writes)):
            yield f"step {place} ({step}) names a value that is not there"
            return
        for v in reads:
            if v not in written:
                yield f"step {place} ({step}) reads v{v} before it is written"
        for v in writes:
            if v in written:
                yield f"step {place} ({step}) writes v{v}, which is written already"
            written.add(v)
        if len({*writes}) != len(writes):
            yield f"step {place} ({step}) writes a value twice"
        yield from (f"step {place} ({step}) {wrong}" for wrong in _step_violations(plan, step, values))
    for v in plan.outputs:
        if v not in written or not 0 <= v < count:
            yield f"output v{v} is never written"


def _step_violations(plan: MultiDevicePlan, step: RunPart | CopyValue, values: Sequence[DeviceValue]) -> Iterator[str]:
    if isinstance(step, CopyValue):
        source, target = values[step.source], values[step.target]
        if source.device == target.device:
            yield "copies within a device"
        if source.nbytes != target.nbytes:
            yield f"copies {source.nbytes} bytes to {target.nbytes}"
        return
    if not 0 <= step.part < len(plan.parts):
        yield "runs a part that is not there"
        return
    program = plan.parts[step.part].program
    for given, buffers, how in ((step.reads, program.inputs, "reads"), (step.writes, program.outputs, "writes")):
        if len(given) != len(buffers):
            yield f"{how} {len(given)} values, and its program {len(buffers)}"
            continue
        for v, buffer in zip(given, buffers, strict=True):
            if values[v].device != step.device:
                yield f"{how} v{v}, which is on d{values[v].device}"
            if values[v].nbytes < program.buffers[buffer].nbytes:
                yield f"{how} {program.buffers[buffer].nbytes} bytes of v{v}, which has {values[v].nbytes}"
    if len(step.scalars) != len(program.scalars):
        yield f"passes {len(step.scalars)} numbers of {len(program.scalars)}"
