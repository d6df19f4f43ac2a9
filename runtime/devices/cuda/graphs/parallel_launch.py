"""A plan of one launch on each of several GPUs, as a graph of one node for each: one native call launches them all.

No GPU waits for another one within such a plan, so its launches need not be one graph, which costs the host more: it
takes some 10 us for each GPU, and a graph of one node 2 to 3 us. What a launch reads of other GPUs is there when the
events of a call say so.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from ....core.errors import warn_at_user_line
from ....program.device import MultiDeviceReplay, PreparedDevicePart
from ....program.multi_device import MultiDevicePlan
from ....program.plan import Launch
from ..driver.events import CudaEvent, pending_gpu_events
from ..driver.native_calls import native_driver_calls
from ..modules.launch import KernelStep
from .native_launch import native_graph_launch
from .nodes import MISTAKES
from .one_launch import OneNodeGraph
from .replay import WARM_CALLS


def are_launches_parallel(
    plan: MultiDevicePlan, parts: Sequence[PreparedDevicePart], elsewhere: Mapping[int, Any]
) -> bool:
    """Whether a plan is one launch on each of its devices, of which none reads what another writes."""
    outer = {v for v, value in enumerate(plan.values) if value.source >= 0 or v in plan.outputs}
    written = {v for part in parts for v in part.writes}
    if elsewhere or len(parts) != len(plan.steps) or len({part.device for part in parts}) != len(parts):
        return False
    return native_driver_calls() is not None and all(
        _step_of_one_launch(part) is not None
        and written.isdisjoint(v for _, v in part.reads)
        and outer.issuperset(part.values)
        for part in parts
    )


def _step_of_one_launch(part: PreparedDevicePart) -> KernelStep | None:
    """The launch that is all of a part, if its arguments are addresses alone."""
    runners, steps = part.executable.runners, part.executable.plan.steps
    step = runners[0] if len(runners) == sum(isinstance(s, Launch) for s in steps) == 1 else None
    return step if isinstance(step, KernelStep) and not (step.empty or step.numbers) else None


class CudaParallelLaunch(MultiDeviceReplay):
    """The launches of one plan. reads: of each, the values whose events it waits for."""

    def __init__(self, plan: MultiDevicePlan, devices: Sequence[Any], parts: Sequence[PreparedDevicePart]) -> None:
        self.plan, self.devices, self.parts = plan, devices, parts
        self._lock = threading.Lock()
        self._calls = 0
        self._broken = False
        self._graphs: list[OneNodeGraph] = []
        labels = f"{plan.name} on several GPUs"
        self._labels = (labels,)
        self._reads = [[v for _, v in part.reads] for part in parts]
        self._order = [devices.index(part.device) for part in parts]

    def run(
        self, memories: Sequence[Any], scalars: Sequence[Any], events: Sequence[Any]
    ) -> Sequence[CudaEvent | None] | None:
        self._calls += 1
        if self._broken or self._calls <= WARM_CALLS:
            return None
        addresses = [0 if m is None else m.address for m in memories]
        if (pending := pending_gpu_events(events)) is None:
            return None
        try:
            with self._lock:
                graphs = self._graphs or self._make_graphs(addresses)
                if pending:
                    self._wait_for_arguments(events)
                ends = [p.device.events.take(g.known) for p, g in zip(self.parts, graphs, strict=True)]
                code = self._launch(*[end.handle for end in ends], *addresses)
                if code:
                    for graph in graphs:  # some may have started
                        self.devices[0].context.driver.synchronize_stream(graph.stream)
                    raise self.devices[0].failure(code, "launching graphs")
        except MISTAKES:
            raise
        except Exception as error:  # graphs are an optimisation: say so, and go on without
            self._broken, self._graphs = True, []
            text = f"no replay as graphs of several GPUs: {type(error).__name__}: {error}"
            warn_at_user_line(f"{self.plan.name}: {text}; its steps are issued one by one")
            return None
        found: list[CudaEvent | None] = [None] * len(self.devices)
        for which, graph, end in zip(self._order, graphs, ends, strict=True):
            graph.note_end(end)
            self.devices[which].recent_launches.append((end, self._labels))
            found[which] = end
        return found

    def _make_graphs(self, addresses: Sequence[int]) -> list[OneNodeGraph]:
        """addresses: of a call's values. Raises what the driver's answers are as errors."""
        made = []
        for part in self.parts:
            device, step = part.device, _step_of_one_launch(part)
            assert step is not None
            device.context.enter()
            places = {b: v for b, v in enumerate(part.values) if v is not None}
            given = [addresses[v] if v is not None else 0 for v in part.values]
            (stream,) = device.take_common_streams(1)
            with part.executable.lock:
                made.append(OneNodeGraph(device, step, places, len(addresses), (), given, stream))
        self._launch = native_graph_launch([graph.record for graph in made], [graph.node for graph in made])
        self._graphs = made
        return made

    def _wait_for_arguments(self, events: Sequence[CudaEvent | None]) -> None:
        """Each launch waits for what it reads, wherever that is computed."""
        for part, reads, graph in zip(self.parts, self._reads, self._graphs, strict=True):
            for event in {events[v] for v in reads}:
                if event is not None and event.stream != graph.stream and not event.done:
                    part.device.context.enter()
                    if code := part.device.context.driver.wait(graph.stream, event.handle, 0):
                        raise part.device.failure(code, "waiting for an event")
