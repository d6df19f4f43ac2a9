"""What runs a call on several devices: arguments brought to where they are read, a run, results where they are."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Any

from ...compiler.graph.graph import graph_has_place_nodes
from ...runtime.core.errors import OutOfMemory
from ...runtime.core.settings import settings
from ...runtime.devices.registry import DEVICES
from ...runtime.engine.communicator import EngineCommunicator
from ...runtime.engine.multi_device import MultiDeviceExecutable
from ...runtime.program.device import DeviceCommunicator, error_of_event
from ...runtime.program.plan import Plan
from ...runtime.tune.trial import prepare_plan_on_devices
from ...runtime.tune.tuner import PlanTuner
from ...runtime.verify.plan import require_safe_plan
from ..array.array import Array, asarray, on_device
from ..array.devices import name_of, open_device
from ..array.in_flight import free_memory_in_flight, is_no_call_in_flight, track_call, waitall
from ..array.streams import join_call_to_streams
from ..core.errors import ArgumentsError, OptionError
from ..core.host_scalars import Respecialise
from ..core.pytree import flatten, unflatten
from ..core.spec import Spec, kernel_readable_copy, spec_of
from ..jit.launcher import InNumPy, Launcher
from ..jit.specializations import Specializations
from ..jit.traced_function import SpecializationEvent, TracedFunction, item_of_result
from ..jit.write_back import check_write_back_allowed, values_before_call, write_back_to_arguments
from .device_plans import MultiDevicePlanMaker, plan_over_places

ELSEWHERE = 4  # plans of one call, for arrays that are on the same devices
UNDECIDED = -1  # in place of a candidate's number: one device is still choosing its own plan


def make_multi_device_plan_ready(
    plan: Plan, communicator: EngineCommunicator | None = None, exchange: DeviceCommunicator | None = None
) -> MultiDeviceExecutable:
    """What runs a plan on its devices, which are opened. communicator: of the ranks that it is for; exchange: between
    their devices. Raises PlanError, CompileError, DeviceUnavailableError."""
    if settings.verify:
        require_safe_plan(plan)
    devices = [open_device(place) for place in plan.devices]
    return MultiDeviceExecutable(devices, plan, prepare_plan_on_devices, communicator, exchange)


def launcher(versions: Specializations, captured: TracedFunction, leaves: Sequence[Any]) -> Launcher:
    """What runs a trace that names several devices, for leaves like these."""
    places = versions.options.devices or (versions.place,)
    explicit = graph_has_place_nodes(captured.graph)
    if explicit and versions.options.untraceable == "split":
        lines = captured.graph.lines
        line = next((x for x, node in zip(lines, captured.graph.nodes, strict=False) if node.op == "place"), "")
        raise OptionError("a function with untraceable='split' runs on one device; leave kg.place out", line or None)
    if captured.uses_holders:  # what the call does to what its arguments hold
        if explicit:
            raise ArgumentsError(
                f"{captured.graph.name} changes what its arguments hold, and runs on one device; leave kg.place out"
            )
        return versions.on_one_device(captured, leaves)
    placement = plan_over_places(captured.graph, places, MultiDevicePlanMaker(versions.options))
    alone = not explicit and devices_share_one_kind(places)
    if not explicit and not placement.chosen:
        return versions.on_one_device(captured, leaves)
    executable = make_multi_device_plan_ready(placement.plan)
    text = f"compiled for {', '.join(map(name_of, executable.devices))}"
    versions.note(SpecializationEvent("compiled", text))
    run = MultiDeviceCall(captured, executable, placement.elsewhere)
    assigned = tuple(leaf for leaf, _ in captured.assigned)
    made = Launcher(run, str(placement.plan), captured.guards, assigned)
    if explicit:
        return made
    if not settings.tune:
        return versions.on_one_device(captured, leaves) if alone else made
    return MultiDeviceTrialCall(versions, captured, leaves, made, 0 if alone else 1)


def devices_share_one_kind(places: Sequence[tuple[str, int]]) -> bool:
    """Whether the devices are one machine's cores, which gain nothing from being several."""
    return DEVICES[places[0][0]].host_memory


class MultiDeviceTrialCall(Launcher):
    """Calls on one device and on several take turns until the clock prefers one: see `PlanTuner`.

    One device is timed when its own plan is decided: as it would run from then on. Until then, and where a call is
    timed, calls are waited for. The winner then takes this entry's place."""

    __slots__ = ("_alone", "_candidates", "_lock", "_versions", "tuner")

    def __init__(
        self, versions: Specializations, captured: TracedFunction, leaves: Sequence[Any], several: Launcher, start: int
    ) -> None:
        """start: what runs where the clock cannot tell, 0 for one device."""
        self._alone = versions.ready(captured, leaves)
        one = self._alone.entry(captured, versions.device, leaves, captured.feeds)
        super().__init__(self._run_next_device_trial, several.text, one.guards, one.assigned)
        self._versions, self._candidates, self._lock = versions, (one, several), threading.Lock()
        self.tuner = PlanTuner(("one device", "several devices"), start)

    def _run_next_device_trial(self, leaves: Sequence[Any], places: Sequence[int], caller: Sequence[Any] = ()) -> Any:
        tuner = self.tuner
        with self._lock:
            number = None
            if tuner.winner is None and not caller and settings.engine == "async":
                number = tuner.next_candidate() if self._alone.is_decided else UNDECIDED
            winner = tuner.winner
        if number is None:
            return self._candidates[tuner.start if winner is None else winner].run(leaves, places, caller)
        waitall()
        if number == UNDECIDED:
            result = self._candidates[0].run(leaves, places)
            _wait_for_multi_device_result(result)
            return result
        busy = not is_no_call_in_flight() or any(type(x) is Array and not x.is_ready() for x in leaves)
        start = time.perf_counter()
        result = self._candidates[number].run(leaves, places)
        failed = _wait_for_multi_device_result(result)
        took = (time.perf_counter() - start) * 1e6
        with self._lock:
            tuner.add_sample(number, math.nan if busy or failed else took)
            if tuner.winner is not None:
                self._replace_by_winning_devices(self._candidates[tuner.winner])
        return result

    def _replace_by_winning_devices(self, winner: Launcher) -> None:
        winner.by_value = self.by_value
        entries = self._versions.entries
        for key, entry in list(entries.items()):
            if entry is self:
                entries[key] = winner
        for line in self.tuner.lines():
            self._versions.note(SpecializationEvent("placed", line.strip()))


def _wait_for_multi_device_result(result: Any) -> bool:
    """Wait for the arrays of a result; whether any of them failed."""
    leaves: list[Any] = []
    flatten(result, leaves, results=True)
    events = [x._event for x in leaves if type(x) is Array and x._event is not None]
    return any([error_of_event(event) is not None for event in events])


def device_plan(versions: Specializations, captured: TracedFunction, leaves: Sequence[Any]) -> Plan:
    """The plan of a trace over its devices."""
    places = versions.options.devices or (versions.place,)
    return plan_over_places(captured.graph, places, MultiDevicePlanMaker(versions.options)).plan


class MultiDeviceCall:
    """Runs a plan over several devices. elsewhere: see `PlanOverPlaces`."""

    def __init__(
        self,
        captured: TracedFunction,
        executable: MultiDeviceExecutable,
        elsewhere: Callable[[Mapping[int, int]], Plan],
    ) -> None:
        self._captured, self._executable, self._plan_elsewhere = captured, executable, elsewhere
        self._elsewhere: dict[tuple[tuple[int, int], ...], MultiDeviceExecutable] = {}  # by what is on which device
        self._specs = [spec_of(captured.graph.nodes[o].type) for o in captured.graph.outputs]

    def __call__(self, leaves: Sequence[Any], places: Sequence[int], caller: Sequence[Any] = ()) -> Any:
        captured = self._captured
        arrays = [*(leaves[i] for i in captured.feeds), *captured.arrays]
        for leaf, _ in captured.assigned:
            check_write_back_allowed(leaves[leaf], [a for a in arrays if a is not leaves[leaf]])
        try:
            numbers = captured.host(leaves)
        except Exception:
            raise Respecialise from None
        before = values_before_call(captured.writes, leaves)
        read = [before.get(i, leaves[i]) for i in captured.feeds]
        given = [*read, *map(kernel_readable_copy, captured.arrays)]
        results = run_plan(self._executable_for(given), given, numbers, self._specs, caller)
        for which, check in captured.failures:  # before anything is written
            error = check.error([results[i] for i in which], results)
            if error is not None:
                raise InNumPy(error) if captured.reruns else error
        write_back_to_arguments(captured.writes, leaves, results, before)
        for which, watcher in captured.watched:
            watcher([results[i] for i in which])
        found = [self._result_leaf(kind, x, results, leaves, numbers) for kind, x in captured.results]
        return unflatten(captured.tree, found)

    def _executable_for(self, given: Sequence[Any]) -> MultiDeviceExecutable:
        """What runs calls whose arrays are where these are."""
        devices, places = self._executable.devices, list[tuple[int, int]]()
        for v, device, source, is_result, _ in self._executable.given:
            array = given[source]
            elsewhere = type(array) is Array and array._device is not device and array._device in devices
            if elsewhere and not is_result and array.nbytes and not hasattr(array._memory, "streams"):
                places.append((v, devices.index(array._device)))
        if not places:
            return self._executable
        key = tuple(places)
        if key not in self._elsewhere and len(self._elsewhere) < ELSEWHERE:
            self._elsewhere[key] = make_multi_device_plan_ready(self._plan_elsewhere(dict(key)))
        return self._elsewhere.get(key, self._executable)

    @staticmethod
    def _result_leaf(kind: str, x: Any, arrays: Sequence[Array], leaves: Sequence[Any], numbers: Sequence[Any]) -> Any:
        if kind == "array":
            return arrays[x]
        if kind == "number":
            return numbers[x]
        if kind == "item":
            return item_of_result(arrays[x[0]], x)
        return leaves[x] if kind == "argument" else deepcopy(x) if kind == "fresh" else x


def run_plan(
    executable: MultiDeviceExecutable,
    given: Sequence[Any],
    numbers: Sequence[Any],
    specs: Sequence[Spec],
    caller: Sequence[Any] = (),
) -> list[Array]:
    """One run. given: the call's arrays, by their sources, wherever they are. specs: of the outputs.

    The results, on their devices."""
    if caller and any(stream.capturing for stream in caller):
        raise ArgumentsError("a call on several devices cannot be captured into a graph")
    for stream in caller:  # no part knows it: the host waits for what is on it
        stream.synchronize()
    while True:
        try:
            return _run_plan_on_multiple_devices(executable, given, numbers, specs, caller)
        except OutOfMemory:
            if not free_memory_in_flight():
                raise


def _run_plan_on_multiple_devices(
    executable: MultiDeviceExecutable,
    given: Sequence[Any],
    numbers: Sequence[Any],
    specs: Sequence[Spec],
    caller: Sequence[Any],
) -> list[Array]:
    count = executable.count
    memories: list[Any] = [None] * count
    events: list[Any] = [None] * count
    for v, device, nbytes in executable.results:
        memories[v] = device.allocate(nbytes)
    for v, device, source, _, is_shared in executable.given:
        array = given[source]
        if type(array) is not Array or array._device is not device:
            array = on_device(array, device)
        elif is_shared and hasattr(array._memory, "streams"):  # another library's, which peers may not reach
            array = asarray(array, copy=True)
        memories[v], events[v] = array._memory, array._event
    ends, pending, kept = executable.run(memories, numbers, events)
    if pending:
        nbytes = executable.nbytes + executable.temporary_bytes * bool(kept)
        track_call(tuple(pending), (*memories, *kept), nbytes)
    made: list[Array] = []
    for (v, device, _), event, spec in zip(executable.outputs, ends, specs, strict=True):
        if event is not None and event not in pending and event.query() and error_of_event(event) is None:
            event = None
        made.append(Array(memories[v], spec, device, event))
    if executable.repeats_results:
        firsts = zip(made, executable.outputs, strict=True)
        made = [x if is_first else asarray(x, copy=True) for x, (_, _, is_first) in firsts]
    if caller:
        last = [e for e in ends if e is not None]
        join_call_to_streams(caller, [()] * len(caller), last, range(len(last)), memories)
    return made
