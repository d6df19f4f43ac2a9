"""What a plan over several devices or ranks can get wrong beside the order of its steps.

A task that touches memory of another device than its stream's, a copy of another size, collectives that devices or
ranks could come to in different orders, or whose sizes, ranks or devices do not fit. A collective of several devices is
one task, which has a part on each, and all are on one stream: none can come to them in another order than the rest.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..program.collective import Collective
from ..program.plan import Launch, Plan
from ..program.program import Library, Scalar, Task

Found = tuple[str, str, str]  # a kind of violation, the step, and why


def device_violations(plan: Plan) -> Iterator[Found]:
    """What is wrong with devices; the plan's regions are within its buffers."""
    count = max(1, len(plan.devices))
    if len({kind for kind, _ in plan.devices}) > 1 or len({*plan.devices}) != len(plan.devices):
        yield "device", "plan", f"the devices {plan.devices} are not different ones of one kind"
    for b, buffer in enumerate(plan.program.buffers):
        if not 0 <= buffer.device < count:
            yield "device", f"b{b}", f"it is on device {buffer.device}, of {count}"
    if plan.homes and (len(plan.homes) != plan.streams or not all(0 <= home < count for home in plan.homes)):
        yield "device", "plan", f"its {plan.streams} streams are on devices {plan.homes}, of {count}"
        return
    met: set[int] = set()
    for step in plan.steps:
        if not isinstance(step, Launch) or not 0 <= step.task < len(plan.tasks) or not 0 <= step.stream < plan.streams:
            continue
        task, name = plan.tasks[step.task], f"t{step.task} {plan.tasks[step.task].name}"
        if isinstance(task.kernel, Collective):
            met.add(step.stream)
            yield from (("collective", name, why) for why in _collective_violations(plan, task, task.kernel))
        elif plan.devices:
            home = plan.homes[step.stream] if plan.homes else 0
            yield from (("device", name, why) for why in _task_device_violations(plan, task, home))
    if len(met) > 1:
        yield "collective", "plan", f"collectives are on streams {sorted(met)}: nothing orders them for all ranks"


def _task_device_violations(plan: Plan, task: Task, home: int) -> Iterator[str]:
    buffers = plan.program.buffers
    given = [a.index for a in task.arguments if isinstance(a, Scalar) and not 0 <= a.index < len(plan.program.scalars)]
    yield from (f"it takes number {i} of {len(plan.program.scalars)}" for i in given)
    touched = (*task.reads, *task.writes)
    if task.kernel == Library("copy") and len({buffers[region.buffer].device for region in touched}) > 1:
        sizes, spans = [buffers[region.buffer].nbytes for region in touched], [region.span for region in touched]
        if len(sizes) != 2 or sizes[0] != sizes[1] or any(span != (0, sizes[0]) for span in spans):
            yield f"it copies bytes {spans} of buffers of {sizes} bytes to another device"
        return
    for how, regions in (("reads", task.reads), ("writes", task.writes)):
        for b in dict.fromkeys(region.buffer for region in regions):
            if buffers[b].device != home and not (plan.reads_peers and how == "reads"):
                yield f"it {how} b{b}, which is on d{buffers[b].device}, on a stream of d{home}"


def _collective_violations(plan: Plan, task: Task, kernel: Collective) -> Iterator[str]:
    meeting, each = plan.meeting, len(kernel.counts)
    buffers, devices = plan.program.buffers, range(kernel.devices)
    if not len(task.reads) == len(task.writes) == each * kernel.devices:
        of_devices = f" of {kernel.devices} devices" if kernel.devices > 1 else ""
        yield f"it has {len(task.reads)} reads, {len(task.writes)} writes and {each} sizes{of_devices}"
        return
    if kernel.devices != (1 if plan.ranks > 1 else meeting):
        yield f"it is one of {kernel.devices} devices, and {meeting} meet"
        return
    places = [
        {buffers[r.buffer].device for rs in (task.reads, task.writes) for r in kernel.of_device(rs, d)} for d in devices
    ]
    if any(len(found) > 1 for found in places):
        yield "it has values on several devices"
    elif len(set.union(*places)) < len(places):
        yield "it comes twice to a device, and never to another"
    yield from _exchanged_size_violations(plan, task, kernel)
    if each > 1 and kernel.op != "all_reduce":
        yield "it joins several values"
    if not 0 <= kernel.root < meeting or not all(0 <= r < meeting for pair in kernel.pairs for r in pair):
        yield f"it names a rank beyond the {meeting}"
    if any(len({*ranks}) < len(ranks) for ranks in zip(*kernel.pairs, strict=True)):
        yield "it sends twice to or from a rank"


def _exchanged_size_violations(plan: Plan, task: Task, kernel: Collective) -> Iterator[str]:
    itemsize, each, meeting = np.dtype(kernel.dtype).itemsize, len(kernel.counts), plan.meeting
    for number, (read, write) in enumerate(zip(task.reads, task.writes, strict=True)):
        count = kernel.counts[number % each]
        if read.span[0] or read.span[1] < count * itemsize:
            yield f"it sends {count * itemsize} bytes of b{read.buffer}, and reads {read.span}"
        received = kernel.written_count(number % each, meeting) * itemsize
        if write.span[0] or write.span[1] < received:
            yield f"it receives {received} bytes in b{write.buffer}, and writes {write.span}"
        if kernel.op in ("reduce_scatter", "all_to_all") and count % meeting:
            yield f"it cuts {count} elements into {meeting} parts"
