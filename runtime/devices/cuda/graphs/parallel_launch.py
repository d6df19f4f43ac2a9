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
from ....program.device import MultiDeviceReplay
from ....program.plan import Launch, Plan
from ....program.program import buffers_of_task
from ..driver.events import CudaEvent, pending_gpu_events
from ..driver.native_calls import native_driver_calls
from ..modules.launch import KernelStep
from .native_launch import native_graph_launch
from .nodes import MISTAKES
from .one_launch import OneNodeGraph
from .replay import WARM_CALLS


def are_launches_parallel(plan: Plan, runners: Mapping[int, Any]) -> bool:
    """Whether a plan is one launch on each of its devices, of which none reads what another writes. runners: of the
    tasks that are no copies."""
    launches = [step for step in plan.steps if isinstance(step, Launch)]
    homes = [plan.homes[step.stream] for step in launches]
    tasks = [plan.tasks[step.task] for step in launches]
    if len(runners) != len(launches) or len({*homes}) != len(homes) or native_driver_calls() is None:
        return False
    written = {region.buffer for task in tasks for region in task.writes}
    kinds = {plan.program.buffers[b].kind for task in tasks for b in buffers_of_task(task)}
    steps = [runners[step.task] for step in launches]
    return (
        kinds <= {"input", "output"}
        and written.isdisjoint(region.buffer for task in tasks for region in task.reads)
        and all(isinstance(step, KernelStep) and not (step.empty or step.numbers) for step in steps)
    )


class CudaParallelLaunch(MultiDeviceReplay):
    """The launches of one plan."""

    def __init__(self, plan: Plan, devices: Sequence[Any], runners: Mapping[int, Any]) -> None:
        self.name, self.devices = plan.program.name, devices
        self._lock = threading.Lock()
        self._calls = 0
        self._broken = False
        self._graphs: list[OneNodeGraph] = []
        self._labels = (f"{self.name} on several GPUs",)
        launches = [step for step in plan.steps if isinstance(step, Launch)]
        self._order = [plan.homes[step.stream] for step in launches]
        self._steps = [runners[step.task] for step in launches]
        self._reads = [[region.buffer for region in plan.tasks[step.task].reads] for step in launches]

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
                ends = [self.devices[d].events.take(g.known) for d, g in zip(self._order, graphs, strict=True)]
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
            warn_at_user_line(f"{self.name}: {text}; its steps are issued one by one")
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
        for which, step in zip(self._order, self._steps, strict=True):
            device = self.devices[which]
            device.context.enter()
            places = {b: b for b in step.buffers}
            (stream,) = device.take_common_streams(1)
            made.append(OneNodeGraph(device, step, places, len(addresses), 0, addresses, stream))
        self._launch = native_graph_launch([graph.record for graph in made], [graph.node for graph in made])
        self._graphs = made
        return made

    def _wait_for_arguments(self, events: Sequence[CudaEvent | None]) -> None:
        """Each launch waits for what it reads, wherever that is computed."""
        for which, reads, graph in zip(self._order, self._reads, self._graphs, strict=True):
            device = self.devices[which]
            for event in {events[v] for v in reads}:
                if event is not None and event.stream != graph.stream and not event.done:
                    device.context.enter()
                    if code := device.context.driver.wait(graph.stream, event.handle, 0):
                        raise device.failure(code, "waiting for an event")
