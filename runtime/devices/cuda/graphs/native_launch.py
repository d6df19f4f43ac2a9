"""Graphs launched by one native call each: new addresses into their nodes, the launch, and the event after it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from ..driver import words as w
from ..driver.driver import CudaDriver
from ..driver.events import CudaEvent, EventPool
from ..driver.native_calls import native_driver_calls
from ..modules.launch import KernelArgumentBlock

Start = Callable[..., CudaEvent | None]


class NativelyLaunchedGraph(Protocol):
    """A graph for one stream. start: `native_graph_start`."""

    stream: int
    start: Start


def native_graph_record(
    driver: CudaDriver,
    executable: int,
    stream: int,
    nodes: Sequence[KernelArgumentBlock],
    order: Sequence[int],
    bound: Sequence[tuple[int, int, int]] = (),
    context: int = 0,
) -> Any:
    """What `native_graph_launch` takes of a graph. order: the places that a call's addresses have in the nodes; a
    plan's numbers come behind them, as `words_of_kernel_scalars` gives them. bound: places, each with those bits of its
    address that must be as they were, and what they were. context: to be made current. Raises KeyError for a place that
    the order lacks."""
    numbers = {place: i for i, place in enumerate(order)}
    handles = {
        w.EXECUTABLE: executable, w.STREAM: stream, w.CONTEXT: context,
        w.UPDATE: driver.address("cuGraphExecKernelNodeSetParams_v2"), w.LAUNCH: driver.address("cuGraphLaunch"),
        w.RECORD: driver.address("cuEventRecord"), w.ENTER: driver.address("cuCtxSetCurrent") if context else 0,
    }  # fmt: skip
    calls = native_driver_calls()
    assert calls is not None
    rows = [node.native_rows(numbers, len(order)) for node in nodes]
    return calls.graph_record(handles, [(numbers[place], bits, were) for place, bits, were in bound], rows)


def native_graph_launch(records: Sequence[Any], held: Any) -> Callable[..., int]:
    """f(*events, *addresses, *numbers): the result code of a launch of each graph. held: what these need."""
    calls = native_driver_calls()
    assert calls is not None
    return calls.launch_graphs(records, held)


def native_graph_start(
    events: EventPool, record: Any, stream: int, note: Callable[[CudaEvent], None], held: Any
) -> Start:
    """f(*addresses, *numbers): the event after a launch of a graph, which `note` has got; None where there is no event
    free, and where the driver refuses: the GPU may not be current in this thread yet, for example. stream: as events
    tell it. held: what these need."""
    calls = native_driver_calls()
    assert calls is not None
    return calls.start_graph(record, events.free.pop, events.maker(stream), note, held)


def make_native_graph_call(
    device: Any,
    choose: Callable[[Sequence[CudaEvent], int, Sequence[int]], NativelyLaunchedGraph | None],
) -> Start:
    """f(after, caller, *addresses, *numbers): launches a plan where that takes nothing but a launch, and gives the
    event of its end; else None, and nothing is done. after: events of this device that may not have happened, to wait
    for. caller: the handle of somebody's stream to launch on, which is not being captured; 0 for one of the device's.
    choose: the graph for these; it gets the numbers behind the addresses."""
    clock, events, free = device.clock, device.events, device.events.free
    wait, alone, enter = device.context.driver.wait, device.context.alone, device.context.enter

    def start_graph(after: Sequence[CudaEvent], caller: int, *addresses: int) -> CudaEvent | None:
        graph = choose(after, caller, addresses) if clock.end is None else None
        if graph is None:
            return None
        if not alone:  # the default stream is that of the current GPU
            enter()
        for each in after:
            if type(each) is not CudaEvent:
                return None
            pending = each.stream != graph.stream and not each.query()  # what is seen to be over costs no more calls
            if each.error is not None or (pending and wait(graph.stream, each.handle, 0)):
                return None
        clock.runs += 1
        if not free:
            events.add_free_handle()
        return graph.start(*addresses)

    return start_graph
