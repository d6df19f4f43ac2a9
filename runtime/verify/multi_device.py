"""Is a plan over several devices safe? Each value written once, by what comes before all that reads it, on its device.

What such a plan can get wrong beside the plans of its parts, which `plan` proves: a step that reads what is not written
yet, or lies on another device that the plan does not let it read, a copy within a device or of another size, two
writers of one value, an output that nobody writes. Steps wait for values alone, and every value's writer is issued
before its readers; so each step's waits are for steps issued earlier, and no set of steps can wait for each other:
there is no deadlock, whatever the order in which devices take up their work. A collective of several devices is one
step, which has a part on each: no device can come to collectives in another order than the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ..core.errors import PlanError
from ..program.multi_device import Collective, CopyValue, DeviceStep, DeviceValue, MultiDevicePlan


def find_multi_device_violations(plan: MultiDevicePlan) -> list[str]:
    """What is wrong, in words; nothing for a safe plan."""
    return [*_multi_device_violations(plan)]


def require_safe_multi_device_plan(plan: MultiDevicePlan) -> None:
    """Raises PlanError with the first violation."""
    for wrong in _multi_device_violations(plan):
        raise PlanError(f"plan {plan.name} is not safe: {wrong}")


def _multi_device_violations(plan: MultiDevicePlan) -> Iterator[str]:
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
        reads, writes = ((step.source,), (step.target,)) if isinstance(step, CopyValue) else (step.reads, step.writes)
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
        yield from (f"step {place} ({step}) {wrong}" for wrong in _multi_device_step_violations(plan, step, values))
    for v in plan.outputs:
        if v not in written or not 0 <= v < count:
            yield f"output v{v} is never written"


def _multi_device_step_violations(
    plan: MultiDevicePlan, step: DeviceStep, values: Sequence[DeviceValue]
) -> Iterator[str]:
    if isinstance(step, Collective):
        yield from _collective_violations(plan, step, values)
        return
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
            peer = plan.reads_peers and how == "reads"
            if values[v].device != step.device and not peer:
                yield f"{how} v{v}, which is on d{values[v].device}"
            if values[v].nbytes < program.buffers[buffer].nbytes:
                yield f"{how} {program.buffers[buffer].nbytes} bytes of v{v}, which has {values[v].nbytes}"
    if len(step.scalars) != len(program.scalars):
        yield f"passes {len(step.scalars)} numbers of {len(program.scalars)}"


def _collective_violations(plan: MultiDevicePlan, step: Collective, values: Sequence[DeviceValue]) -> Iterator[str]:
    meeting, each = plan.meeting, len(step.counts)
    if not len(step.reads) == len(step.writes) == each * step.devices:
        yield (
            f"has {len(step.reads)} reads, {len(step.writes)} writes and {each} sizes"
            + (f" of {step.devices} devices" if step.devices > 1 else "")
        )
        return
    if step.devices != (1 if plan.ranks > 1 else meeting):
        yield f"is one of {step.devices} devices, and {meeting} meet"
        return
    places = [
        {values[v].device for vs in (step.reads, step.writes) for v in step.of_device(vs, d)}
        for d in range(step.devices)
    ]
    if any(len(found) > 1 for found in places):
        yield "has values on several devices"
    elif len(set.union(*places)) < len(places):
        yield "comes twice to a device, and never to another"
    yield from _exchanged_size_violations(step, values, meeting)
    if each > 1 and step.op != "all_reduce":
        yield "joins several values"
    if not 0 <= step.root < meeting or not all(0 <= r < meeting for pair in step.pairs for r in pair):
        yield f"names a rank beyond the {meeting}"
    if any(len({*ranks}) < len(ranks) for ranks in zip(*step.pairs, strict=True)):
        yield "sends twice to or from a rank"


def _exchanged_size_violations(step: Collective, values: Sequence[DeviceValue], meeting: int) -> Iterator[str]:
    itemsize, each = np.dtype(step.dtype).itemsize, len(step.counts)
    for number, (read, write) in enumerate(zip(step.reads, step.writes, strict=True)):
        count = step.counts[number % each]
        if values[read].nbytes < count * itemsize:
            yield f"sends {count * itemsize} bytes of v{read}, which has {values[read].nbytes}"
        received = step.written_count(number % each, meeting) * itemsize
        if values[write].nbytes < received:
            yield f"receives {received} bytes in v{write}, which has {values[write].nbytes}"
        if step.op in ("reduce_scatter", "all_to_all") and count % meeting:
            yield f"cuts {count} elements into {meeting} parts"
