"""Loops and branches on a GPU. Iterations launched one after another on a stream, those that repeat as a graph of
iterations.

Where a flag or a count is in device memory the GPU decides (`device_control_flow`) if it can, else the host, which
waits for the stream then. Where iterations of a known number differ in no argument once the carried values go round (no
window, no iteration's number), some of them are captured as one graph, which is then launched as often as it takes;
where they differ, the GPU counts.
"""

from __future__ import annotations

import ctypes
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

from ....interpret.control_flow import RunIteration, run_control_flow
from ....program.plan import Launch, Loop, Plan
from ....program.program import Task, control_flow_bodies
from ..driver.driver import CAPTURE_RELAXED, SUCCESS
from ..modules.launch import NumpyHostStep
from .conditional_nodes import ControlFlowGraph, do_loop_iterations_differ
from .device_control_flow import GraphControlFlow, GraphExecutable
from .nodes import MISTAKES, DriverRefusal, require_graph_call_success

GRAPH_NODES, LEAST_NODES = 256, 4  # of a graph of iterations
GRAPHS = 6  # of iterations, of one loop
LEAST_LAUNCHES = 64  # fewer are launched as they are
COUNTED = 128  # fewer of a known number, where iterations differ, are launched as they are

Rows = Sequence[Sequence[int]]


class HostControlFlowStep:
    """A loop or branch. runner: what does a task of a body. notes: for people."""

    empty = False

    def __init__(self, device: Any, task: Task, runner: Callable[[Task], Any], notes: list[str]) -> None:
        self._device, self._driver, self._task, self._notes = device, device.context.driver, task, notes
        runners = [[runner(t) for t in body.tasks] for body in control_flow_bodies(task)]
        self._bodies = [
            _CudaGraphHostLoopBody(body, each) for body, each in zip(control_flow_bodies(task), runners, strict=True)
        ]
        self.whole = ControlFlowGraph(device, task, runners)
        loop, whole = task.kernel, self.whole
        counted, known, waits = whole.counted, whole.known, any(body.waits for body in self._bodies)
        even = isinstance(loop, Loop) and counted and not do_loop_iterations_differ(loop)
        able = whole.refusal is None and not (known and (even or whole.alone))
        self._decided = GraphControlFlow(device, whole) if able else None
        if able:
            self._notes.append(f"{task.name}: the GPU {'counts' if counted else 'decides'}, in a CUDA graph")
        elif not known:
            self._notes.append(f"{task.name}: the host reads what decides: {whole.refusal}")
        self._least = COUNTED // max(1, len(self._bodies[0].order)) if known else 0
        gpu = able and not whole.library
        self.waits = waits or not (known or gpu)  # no graph of somebody else's can hold it
        self._even = even and not waits
        self._graphs: OrderedDict[Any, GraphExecutable] = OrderedDict()  # of iterations, by what they were made of

    def __call__(self, addresses: Sequence[int], scalars: Sequence[Any], stream: int) -> int:
        hands = _CudaGraphLoopDevice(self, stream)
        try:
            decided = self._decided
            if decided is not None and self._least and (self.whole.iterations(addresses, scalars) or 0) < self._least:
                decided = None
            if decided is not None and self._try_as_cuda_graph(decided, addresses, scalars, stream):
                return SUCCESS
            iterations = [body.iteration(stream) for body in self._bodies]
            run_control_flow(self._task, iterations, hands, addresses, scalars)
        except DriverRefusal as refused:
            return refused.code
        return SUCCESS

    def _try_as_cuda_graph(
        self, decided: GraphControlFlow, addresses: Sequence[int], scalars: Sequence[Any], stream: int
    ) -> bool:
        """Whether the GPU does it. Raises Refused where nothing else can: somebody else's graph is half made."""
        try:
            decided.run(addresses, scalars, stream)
        except MISTAKES:
            raise
        except Exception as error:  # a graph is an optimisation: say so, and go on without
            if self._driver.captures(stream)[1]:
                raise
            why = self._explain_why_not_in_graph(error)
            self._notes.append(f"{self._task.name}: the host reads what decides, since there is no graph: {why}")
            self._decided = None
            return False
        return True

    def _explain_why_not_in_graph(self, error: Exception) -> BaseException:
        return self._device.failure(error.code, "making it") if isinstance(error, DriverRefusal) else error

    def repeat(self, rows: Rows, numbers: Sequence[Any], times: int, stream: int) -> int:
        """Iterations with these addresses, over and over: how often they were launched as graphs, of `times`."""
        driver, body = self._driver, self._bodies[0]
        launches = len(body.order) * len(rows)
        if not self._even or launches * times < LEAST_LAUNCHES or driver.captures(stream)[1]:
            return 0
        done, copies = 0, max(1, min(times, GRAPH_NODES // max(1, launches)))
        while done < times and copies * launches >= LEAST_NODES:  # what is left over has a smaller graph
            if times - done >= copies:
                graph = self._graph_of_repeated_iterations(rows, numbers, copies)
                if graph is None:
                    break
                for _ in range((times - done) // copies):
                    graph.launch(self._device, stream)
            done, copies = times - (times - done) % copies, copies // 4
        return done

    def _graph_of_repeated_iterations(self, rows: Rows, numbers: Sequence[Any], copies: int) -> GraphExecutable | None:
        key = (tuple(map(tuple, rows)), tuple(numbers), copies)
        found = self._graphs.pop(key, None)
        if found is None:
            try:
                found = self._capture_graph_of_repeated_iterations(rows, numbers, copies)
            except MISTAKES:
                raise
            except Exception as error:  # a graph is an optimisation: say so, and go on without
                self._notes.append(f"{self._task.name}: no graph of turns: {self._explain_why_not_in_graph(error)}")
                self._even = False
                return None
        self._graphs[key] = found
        while len(self._graphs) > GRAPHS:
            self._graphs.popitem(last=False)
        return found

    def _capture_graph_of_repeated_iterations(self, rows: Rows, numbers: Sequence[Any], copies: int) -> GraphExecutable:
        driver, graphs = self._driver, self._device.graphs
        with graphs.lock:
            lane = graphs.lane() if self.whole.library else None
            stream = graphs.stream_for_capture() if lane is None else lane.streams_for_capture((False,))[0]
            # with memory that what is launched on the lane takes turns with
            workspaces = [] if lane is None else self._device.blas.prepare([stream])
            require_graph_call_success(driver.begin_capture(stream, CAPTURE_RELAXED))
            try:
                iteration = self._bodies[0].iteration(stream)
                for _ in range(copies):
                    for row in rows:
                        iteration(row, [0, *numbers])
            finally:
                code, graph = driver.end_capture(stream)
        require_graph_call_success(code)
        code, executable = driver.instantiate(graph)
        driver.destroy_graph(graph)
        require_graph_call_success(code)
        return GraphExecutable(driver, executable, [self._bodies, workspaces], 0 if lane is None else lane.stream)


class _CudaGraphHostLoopBody:
    """A plan's tasks in the order of its one stream."""

    def __init__(self, plan: Plan, runners: Sequence[Any]) -> None:
        self.order = [runners[s.task] for s in plan.steps if isinstance(s, Launch) and not runners[s.task].empty]
        self.waits = any(isinstance(r, NumpyHostStep) or getattr(r, "waits", False) for r in runners)

    def iteration(self, stream: int) -> RunIteration:
        order = self.order

        def run_body_iteration(addresses: Sequence[int], numbers: Sequence[Any]) -> None:
            for runner in order:
                code = runner(addresses, numbers, stream)
                if code != SUCCESS:
                    raise DriverRefusal(code)

        return run_body_iteration


class _CudaGraphLoopDevice:
    """What loops do with device memory, in the order of a stream."""

    def __init__(self, step: HostControlFlowStep, stream: int) -> None:
        self._step, self._driver, self._stream = step, step._driver, stream

    def _read(self, address: int, nbytes: int) -> int:
        word = ctypes.c_int64(0)
        require_graph_call_success(self._driver.to_host(ctypes.addressof(word), address, nbytes, self._stream))
        require_graph_call_success(self._driver.synchronize_stream(self._stream))
        return word.value

    def integer(self, address: int) -> int:
        return self._read(address, 8)

    def boolean(self, address: int) -> bool:
        return self._read(address, 1) != 0

    def copy(self, target: int, source: int, nbytes: int) -> None:
        if nbytes:
            require_graph_call_success(self._driver.on_device(target, source, nbytes, self._stream))

    def repeat(self, rows: Rows, numbers: Sequence[Any], times: int) -> int:
        return self._step.repeat(rows, numbers, times, self._stream)
