"""Loops and branches as conditional nodes of one CUDA graph. No iteration waits for the host.

A `while` is a conditional node. To enter its body costs the GPU some 4 us (measured on an H200), a launch 1 us; so the
body holds several iterations, and the kernels of all but the first look whether theirs is to run
(`predicated_kernels`). Where an iteration has steps that cannot look, such as cuBLAS's, a conditional node is around
it.

Flag i of a block says whether iteration i runs: conditions are written there. A body of n iterations, after `lead`
iterations before it, writes the flags lead + 1 to lead + n, and is entered again if the last one is true, too. In the
end the first flag that is not true tells how many iterations it was, but for whole rounds, and so where the carried
values are.

A loop that counts enters its node for whole rounds only, whose iterations need no look, and has the iterations that are
left after it. What kernels are given of an iteration's number, and of places that move on with it, they add up
themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....core.errors import CompileError
from ....interpret.control_flow import (
    bind_interpreted_branch_addresses,
    bind_interpreted_loop_addresses,
    task_argument_value,
)
from ....program.plan import FRESH, Branch, Launch, Loop, LoopRotation, Plan, control_flow_arguments
from ....program.program import Kernel, Pointer, Scalar, Task, control_flow_bodies
from ..driver.driver import IF, WHILE
from ..libraries.steps import BatchedMatmulStep, CopyStep, MatmulSequenceStep, MatmulStep
from ..modules.launch import KernelStep, NumpyHostStep
from ..modules.predicated_kernels import (  # fmt: skip
    FLAGS,
    LEAVES,
    LaunchPredicate,
    gpu_kernel_has_predicated_form,
    kernel_has_advancing_form,
    launch_predicate_always_true,
    launch_predicate_on_first_flag,
    launch_predicate_on_flags_up_to,
    make_flag_initialization_kernel_task,
    make_iteration_advance_kernel_task,
    make_loop_count_kernel_task,
    make_predicated_kernel_task,
    make_selected_copies_kernel_task,
)
from ..modules.ptx_kernels import make_ptx_copy_task
from .nodes import GraphNodeSequence

ROUND = 16  # launches of a body of several iterations, at most
MOST_LOOK = 16  # launches: of more, a conditional node around them is cheaper, should they not run
UNROLLED = 64  # launches of iterations of a known number: more become a node that counts
LIBRARY = (MatmulStep, MatmulSequenceStep, BatchedMatmulStep)


class GraphLoopOrBranchBody:
    """A body's steps in the order of its one stream, and how they become nodes."""

    def __init__(self, device: Any, plan: Plan, runners: Sequence[Any]) -> None:
        """runners: what does each task; `whole` of one that does a loop or branch is its `ControlFlowGraph`."""
        order = [s.task for s in plan.steps if isinstance(s, Launch) and not runners[s.task].empty]
        self.steps = [(plan.tasks[i], runners[i]) for i in order]
        self.wholes: list[ControlFlowGraph] = [runner.whole for task, runner in self.steps if control_flow_bodies(task)]
        self.library = any(isinstance(r, LIBRARY) for _, r in self.steps) or any(w.library for w in self.wholes)
        self.predicated = len(self.steps) <= MOST_LOOK and all(
            _task_reads_iteration_numbers(task, runner) for task, runner in self.steps
        )
        self._device, self._numbers = device, len(plan.program.scalars)
        self._predicated_steps: list[Any] = []
        self._turned: list[tuple[int, ...]] = [()] * len(self.steps)

    def refusal(self) -> str | None:
        """Why it cannot be part of a graph."""
        for task, runner in self.steps:
            if control_flow_bodies(task):
                if runner.whole.refusal is not None:
                    return str(runner.whole.refusal)
            elif not isinstance(runner, (KernelStep, CopyStep, *LIBRARY)):
                why = (
                    "waits for the host"
                    if isinstance(runner, NumpyHostStep)
                    else "is of a library that keeps memory of its own"
                )
                return f"{task.name} {why}"
        return None

    def load(self, moved: dict[int, int] | None = None) -> None:
        """Have the kernels compiled that look. moved: of a loop that counts, what buffers move on by at an iteration.
        Raises CompileError."""
        if moved is not None:
            self._turned = [_graph_argument_strides(task, moved) for task, _ in self.steps]
        if self.predicated:
            tasks = [self._plan_task_node(i, task, runner) for i, (task, runner) in enumerate(self.steps)]
            self._device.load([task.kernel for task in tasks if task is not None])  # at once
            self._predicated_steps = [
                self._device.kernel_step_of_task(task) if task is not None else None for task in tasks
            ]

    @property
    def turned(self) -> bool:
        """Whether some kernel adds up what changes by an iteration."""
        return any(any(moves) for moves in self._turned)

    def _plan_task_node(self, number: int, task: Task, runner: Any) -> Task | None:
        if control_flow_bodies(task):
            return None
        own = make_ptx_copy_task([runner.row], self._device.properties) if isinstance(runner, CopyStep) else task
        return make_predicated_kernel_task(own, self._numbers, self._turned[number])

    def add(
        self,
        nodes: GraphNodeSequence,
        addresses: Sequence[int],
        numbers: Sequence[Any],
        guard: LaunchPredicate | None,
        flags: int = 0,
    ) -> None:
        """guard: what has to hold for it to run, if that is not known. flags: the block of a loop that counts."""
        if guard is not None and not self.predicated:
            with nodes.only(IF, guard):
                self.add(nodes, addresses, numbers, None, flags)
            return
        for i, (task, runner) in enumerate(self.steps):
            looks = guard or (launch_predicate_always_true(flags) if flags and any(self._turned[i]) else None)
            if control_flow_bodies(task):
                runner.whole.add(nodes, addresses, numbers, guard)
            elif looks is None:
                nodes.run(runner, addresses, numbers)
            else:
                nodes.run(self._predicated_steps[i], addresses, [*numbers, *looks.words])


def _task_reads_iteration_numbers(task: Task, runner: Any) -> bool:
    if control_flow_bodies(task):
        return not runner.whole.counted or all(part.predicated for part in runner.whole.parts)
    return isinstance(runner, CopyStep) or (
        isinstance(task.kernel, Kernel) and gpu_kernel_has_predicated_form(task.kernel)
    )


def _graph_argument_strides(task: Task, moved: dict[int, int]) -> tuple[int, ...]:
    """What each argument changes by at an iteration."""
    return tuple(
        moved.get(a.buffer, 0) if isinstance(a, Pointer) else int(isinstance(a, Scalar) and a.index == 0)
        for a in task.arguments
    )


class ControlFlowGraph:
    """A loop or branch with all that is in it."""

    def __init__(self, device: Any, task: Task, runners: Sequence[Sequence[Any]]) -> None:
        """runners: of each body, what does its tasks."""
        self._device, self._task = device, task
        self.parts = [
            GraphLoopOrBranchBody(device, body, each)
            for body, each in zip(control_flow_bodies(task), runners, strict=True)
        ]
        self.library: bool = any(part.library for part in self.parts)
        self.counted = isinstance(task.kernel, Loop) and not task.kernel.flag
        self.known = self.counted and not isinstance(control_flow_arguments(task).count, Pointer)
        self.depth: int = 2 + max((whole.depth for part in self.parts for whole in part.wholes), default=0)  # at most
        self._moved = (
            _graph_buffers_moving_by_iteration(task.kernel) if isinstance(task.kernel, Loop) and self.counted else None
        )
        self.alone: str | None = self._why_host_must_continue() if isinstance(task.kernel, Loop) else None
        self.refusal = self._why_not_in_graph()
        if self.refusal is None:
            try:
                for part in self.parts:
                    part.load(self._moved if self.alone is None else None)
            except CompileError as error:
                self.refusal = self.alone = str(error)

    def _why_not_in_graph(self) -> str | None:
        """Why it cannot be done in a graph."""
        if not self._device.context.driver.conditionals:
            return "the driver is older than CUDA 12.4"
        for part in self.parts:
            if (why := part.refusal()) is not None:
                return why
        return None if self.known else self.alone  # iterations of a known number can be nodes one after another

    def _why_host_must_continue(self) -> str | None:
        """Why the GPU cannot go on with iterations of its own accord."""
        loop, part = self._task.kernel, self.parts[0]
        assert isinstance(loop, Loop)
        if self._moved is None:
            outputs = loop.body.program.outputs
            if loop.follows[0] != FRESH or len(set(outputs)) < len(outputs):
                return "its condition is a value that it carries"
            if do_loop_iterations_differ(loop):
                return "its turns use their number"
        else:
            for task, runner in part.steps:
                touched = {r.buffer for r in (*task.reads, *task.writes)} & self._moved.keys()
                able = part.predicated and isinstance(runner, KernelStep) and kernel_has_advancing_form(task.kernel)  # type: ignore[arg-type]
                if not able and (touched or any(_graph_argument_strides(task, self._moved))):
                    return f"{task.name} uses the number of the turn"
        rotation = loop.rotation
        round_, start = len(rotation.held) - rotation.lead, rotation.held[rotation.lead]
        own = all(place >= len(start) or place == i for i, place in enumerate(start))
        if (
            round_ >= FLAGS
            or (len(rotation.held) >= FLAGS and not own)
            or (self.counted and _graph_loop_results_overlap(rotation))
        ):
            return "its carried values change places in too many ways"
        return None

    def key(self, addresses: Sequence[int], scalars: Sequence[Any]) -> tuple[Any, ...]:
        """What its nodes follow from."""
        given = self._task.arguments
        places = [addresses[a.buffer] for a in given if isinstance(a, Pointer)]
        return (*places, *(scalars[a.index] for a in given if isinstance(a, Scalar)))

    def add(
        self,
        nodes: GraphNodeSequence,
        addresses: Sequence[int],
        scalars: Sequence[Any],
        guard: LaunchPredicate | None = None,
    ) -> None:
        if isinstance(self._task.kernel, Branch):
            self._add_branch_nodes(nodes, addresses, scalars, guard)
        elif self.counted and self._unrolls_iterations(self.iterations(addresses, scalars), guard):
            self._add_unrolled_iterations(nodes, addresses, scalars, guard)
        elif self.counted:
            self._add_counted_loop(nodes, addresses, scalars, guard)
        else:
            self._add_while_loop(nodes, addresses, scalars, guard)

    def _add_branch_nodes(
        self, nodes: GraphNodeSequence, addresses: Sequence[int], scalars: Sequence[Any], guard: LaunchPredicate | None
    ) -> None:
        flag, *bodies = bind_interpreted_branch_addresses(self._task, addresses, scalars)
        flags = nodes.flags()
        nodes.launch(make_flag_initialization_kernel_task(flags, flag, guard))
        for part, (places, numbers), value in zip(self.parts, bodies, (True, False), strict=True):
            part.add(nodes, places, numbers, launch_predicate_on_first_flag(flags, value))

    def iterations(self, addresses: Sequence[int], scalars: Sequence[Any]) -> int | None:
        """The number of iterations; None where it is in memory."""
        count = control_flow_arguments(self._task).count
        assert count is not None
        return None if isinstance(count, Pointer) else max(0, int(task_argument_value(count, addresses, scalars)))

    def _unrolls_iterations(self, iterations: int | None, guard: LaunchPredicate | None) -> bool:
        """Whether iterations become nodes one after another. What adds up by a guard's block needs a block of its
        own."""
        if iterations is None or self.alone is not None:
            return iterations is not None
        return iterations * len(self.parts[0].steps) <= UNROLLED and (guard is None or not self.parts[0].turned)

    def _add_unrolled_iterations(
        self, nodes: GraphNodeSequence, addresses: Sequence[int], scalars: Sequence[Any], guard: LaunchPredicate | None
    ) -> None:
        """One iteration after another: there is nothing to decide."""
        places = bind_interpreted_loop_addresses(self._task, addresses, scalars, _refuse_memory_read_in_graph)
        for number in range(places.count):
            self.parts[0].add(nodes, places.buffers_of_iteration(number), [number, *places.numbers], guard)
        self._add_copy_nodes(nodes, places.result_copies(places.count), guard)

    def _add_counted_loop(
        self, nodes: GraphNodeSequence, addresses: Sequence[int], scalars: Sequence[Any], guard: LaunchPredicate | None
    ) -> None:
        """Whole rounds without a look, then the iterations that are left."""
        part, places = self.parts[0], bind_interpreted_loop_addresses(self._task, addresses, scalars)
        first, end = self._rotation_of_iterations(places.loop)
        lead, flags, number = places.loop.rotation.lead, nodes.flags(), self.iterations(addresses, scalars)
        count = control_flow_arguments(self._task).count
        source = task_argument_value(count, addresses, scalars) if count is not None and number is None else 0
        nodes.launch(make_loop_count_kernel_task(flags, source, number or 0, guard))
        if first:
            self._add_copy_nodes(nodes, places.initial_copies(first), guard)

        def add_loop_iteration(number: int, predicated: bool) -> None:
            holds = launch_predicate_on_flags_up_to(flags, number - first) if predicated else None
            part.add(
                nodes, places.buffers_of_iteration(number, 0, first), [number - first, *places.numbers], holds, flags
            )

        for number in range(first, lead):
            add_loop_iteration(number, True)
        with nodes.only(WHILE, launch_predicate_on_flags_up_to(flags, end - 1 - first)):
            for number in range(lead, end):
                add_loop_iteration(number, False)
            nodes.launch(make_iteration_advance_kernel_task(flags, end - lead))
        for number in range(lead, end - 1):
            add_loop_iteration(number, True)
        self._add_copies_of_results(nodes, flags, [places.result_copies(number) for number in range(first, end)])

    def _add_while_loop(
        self, nodes: GraphNodeSequence, addresses: Sequence[int], scalars: Sequence[Any], guard: LaunchPredicate | None
    ) -> None:
        part, places = self.parts[0], bind_interpreted_loop_addresses(self._task, addresses, scalars)
        first, end = self._rotation_of_iterations(places.loop)
        lead, flags = places.loop.rotation.lead, nodes.flags()
        nodes.launch(make_flag_initialization_kernel_task(flags, places.flag_address(0), guard))
        if first:
            self._add_copy_nodes(nodes, places.initial_copies(first), guard)

        def add_while_iteration(number: int, guard: LaunchPredicate | None) -> None:
            part.add(nodes, places.buffers_of_iteration(number, flags, first), [number, *places.numbers], guard)

        for number in range(first, lead):
            add_while_iteration(number, launch_predicate_on_flags_up_to(flags, number - first))
        with nodes.only(WHILE, launch_predicate_on_flags_up_to(flags, end - first)):
            for number in range(lead, end):
                add_while_iteration(
                    number, None if number == lead else launch_predicate_on_flags_up_to(flags, number - first)
                )
        self._add_copies_of_results(
            nodes, flags, [places.result_copies(number, flags + FLAGS) for number in range(first, end + 1)]
        )

    def _add_copies_of_results(
        self, nodes: GraphNodeSequence, flags: int, copies: Sequence[Sequence[tuple[int, int, int]]]
    ) -> None:
        """copies: of (target, source, bytes), by the flag that is the first that is not true."""
        ends: dict[tuple[int, int, int], int] = {}
        for number, rows in enumerate(copies):
            for row in rows:
                ends[row] = ends.get(row, 0) | 1 << number
        masked = [(*row, mask) for row, mask in ends.items()]
        for i in range(0, len(masked), LEAVES):
            nodes.launch(make_selected_copies_kernel_task(flags, masked[i : i + LEAVES], self._device.properties))

    def _rotation_of_iterations(self, loop: Loop) -> tuple[int, int]:
        """The first iteration of the rotation that there is, which may be one whose buffers the initial values are
        copied to, and the one that the node's body ends before."""
        lead, part = loop.rotation.lead, self.parts[0]
        period = len(loop.rotation.held) - lead
        first = lead if lead + period >= FLAGS else 0
        if not part.predicated or part.wholes:
            return first, lead + period
        most = min(FLAGS - 1 - lead + first, ROUND // max(1, len(part.steps)))
        return first, lead + period * max(1, most // period)

    def _add_copy_nodes(
        self, nodes: GraphNodeSequence, rows: Sequence[tuple[int, int, int]], guard: LaunchPredicate | None
    ) -> None:
        """Copies of (target, source, bytes)."""
        rows = [row for row in rows if row[2]]
        for i in range(0, len(rows), LEAVES):
            some = rows[i : i + LEAVES]
            places = [(Pointer(2 * k), Pointer(2 * k + 1), n) for k, (_, _, n) in enumerate(some)]
            task = make_ptx_copy_task(places, self._device.properties)
            step = self._device.kernel_step_of_task(task if guard is None else make_predicated_kernel_task(task, 0))
            nodes.run(step, [a for row in some for a in row[:2]], guard.words if guard else ())


def _graph_buffers_moving_by_iteration(loop: Loop) -> dict[int, int]:
    """The buffers of a body that move on at each iteration, and the bytes."""
    program, carried = loop.body.program, len(loop.follows)
    buffers = (*program.inputs[carried:], *program.outputs[loop.follows.count(FRESH) :])
    return {buffer: move for buffer, move in zip(buffers, loop.moves, strict=True) if move}


def _graph_loop_results_overlap(rotation: LoopRotation) -> bool:
    """Whether the results of some iteration lie in each other's places, so that they cannot be copied at once."""
    for held in rotation.held:
        carried = len(held)
        wrong = {carried + i for i, place in enumerate(held) if place != carried + i}
        if wrong & set(held):
            return True
    return False


def do_loop_iterations_differ(loop: Loop) -> bool:
    """Whether its iterations differ in an argument, once the carried values have gone round."""
    return any(loop.moves) or graph_body_uses_iteration_number(loop.body)


def graph_body_uses_iteration_number(body: Plan) -> bool:
    """Whether some argument is the number of the iteration."""
    return any(isinstance(a, Scalar) and a.index == 0 for t in body.tasks for a in t.arguments)


def _refuse_memory_read_in_graph(address: int) -> int:
    raise AssertionError(f"the number of turns is in memory, at {address:#x}")
