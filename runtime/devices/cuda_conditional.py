"""Loops and branches as nodes of one CUDA graph, in which the GPU decides: no turn waits for the host.

A `while` is a conditional node. To enter its body costs the GPU some 4 us (measured on an H200), a launch 1 us; so the
body holds several turns, and the kernels of all but the first look whether theirs is to run (`cuda_guards`). Where a
turn has steps that cannot look, such as cuBLAS's, a conditional node is around it.

Flag i of a block says whether turn i runs: conditions are written there. A body of n turns, after `lead` turns before
it, writes the flags lead + 1 to lead + n, and is entered again if the last one is true, too. In the end the first flag
that is not true tells how many turns it was, but for whole rounds, and so where the carried values are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..loop import FRESH, Branch, Loop, arguments_of
from ..plan import Launch, Plan
from ..program import Kernel, Pointer, Scalar, Task, bodies_of
from ..turns import branches_of, places_of
from .cuda_driver import IF, WHILE
from .cuda_guards import FLAGS, LEAVES, Guard, begin_task, can_look, first_is, guarded_task, leave_task, true_up_to
from .cuda_launch import KernelStep
from .cuda_library import BatchStep, CopyStep, ManyStep, MatmulStep
from .cuda_nodes import Nodes
from .cuda_texts import copy_task

ROUND = 16  # launches of a body of several turns, at most
MOST_LOOK = 16  # launches: of more, a conditional node around them is cheaper, should they not run
LIBRARY = (MatmulStep, ManyStep, BatchStep)


class Part:
    """A body's steps in the order of its one stream, and how they become nodes."""

    def __init__(self, device: Any, plan: Plan, runners: Sequence[Any]) -> None:
        """runners: what does each task; `whole` of one that does a loop or branch is its `Whole`."""
        order = [s.task for s in plan.steps if isinstance(s, Launch) and not runners[s.task].empty]
        self.steps = [(plan.tasks[i], runners[i]) for i in order]
        self.wholes: list[Whole] = [runner.whole for task, runner in self.steps if bodies_of(task)]
        self.library = any(isinstance(r, LIBRARY) for _, r in self.steps) or any(w.library for w in self.wholes)
        self.looks = len(self.steps) <= MOST_LOOK and all(_looks(task, runner) for task, runner in self.steps)
        self._device, self._numbers = device, len(plan.program.scalars)
        self._looking: list[Any] = []

    def refusal(self) -> str | None:
        """Why it cannot be part of a graph."""
        for task, runner in self.steps:
            if bodies_of(task):
                if runner.whole.refusal is not None:
                    return str(runner.whole.refusal)
            elif not isinstance(runner, (KernelStep, CopyStep, *LIBRARY)):
                return f"{task.name} waits for the host"
        return None

    def load(self) -> None:
        """Have the kernels compiled that look."""
        if self.looks:
            self._looking = [self._look(task, runner) for task, runner in self.steps]

    def _look(self, task: Task, runner: Any) -> Any:
        if bodies_of(task):
            return None
        own = copy_task([runner.row]) if isinstance(runner, CopyStep) else task
        return self._device.step(guarded_task(own, self._numbers))

    def add(self, nodes: Nodes, addresses: Sequence[int], numbers: Sequence[Any], guard: Guard | None) -> None:
        """guard: what has to hold for it to run, if that is not known."""
        if guard is not None and not self.looks:
            with nodes.only(IF, guard):
                self.add(nodes, addresses, numbers, None)
            return
        for i, (task, runner) in enumerate(self.steps):
            if bodies_of(task):
                runner.whole.add(nodes, addresses, numbers, guard)
            elif guard is None:
                nodes.run(runner, addresses, numbers)
            else:
                nodes.run(self._looking[i], addresses, [*numbers, *guard.words])


def _looks(task: Task, runner: Any) -> bool:
    if bodies_of(task):
        return not runner.whole.counted or all(part.looks for part in runner.whole.parts)
    return isinstance(runner, CopyStep) or (isinstance(task.kernel, Kernel) and can_look(task.kernel))


class Whole:
    """A loop or branch with all that is in it."""

    def __init__(self, device: Any, task: Task, runners: Sequence[Sequence[Any]]) -> None:
        """runners: of each body, what does its tasks."""
        self._device, self._task = device, task
        self.parts = [Part(device, body, each) for body, each in zip(bodies_of(task), runners, strict=True)]
        self.library: bool = any(part.library for part in self.parts)
        self.counted = isinstance(task.kernel, Loop) and not task.kernel.flag
        self.depth: int = 2 + max((whole.depth for part in self.parts for whole in part.wholes), default=0)  # at most
        self.refusal = self._refusal()
        if self.refusal is None:
            for part in self.parts:
                part.load()

    def _refusal(self) -> str | None:
        """Why it cannot be done in a graph."""
        if not self._device.context.driver.conditionals:
            return "the driver is older than CUDA 12.4"
        for part in self.parts:
            if (why := part.refusal()) is not None:
                return why
        loop = self._task.kernel
        if not isinstance(loop, Loop):
            return None
        if self.counted:
            in_memory = isinstance(arguments_of(self._task).count, Pointer)
            return "its number of turns is in memory" if in_memory else None
        outputs = loop.body.program.outputs
        if loop.follows[0] != FRESH or len(set(outputs)) < len(outputs):
            return "its condition is a value that it carries"
        if any(loop.moves) or uses_turn(loop.body):
            return "its turns use their number"
        rotation = loop.rotation
        round_, start = len(rotation.held) - rotation.lead, rotation.held[rotation.lead]
        own = all(place >= len(start) or place == i for i, place in enumerate(start))
        if round_ >= FLAGS or (len(rotation.held) >= FLAGS and not own):
            return "its carried values change places in too many ways"
        return None

    def key(self, addresses: Sequence[int], scalars: Sequence[Any]) -> tuple[Any, ...]:
        """What its nodes follow from."""
        given = self._task.arguments
        places = [addresses[a.buffer] for a in given if isinstance(a, Pointer)]
        return (*places, *(scalars[a.index] for a in given if isinstance(a, Scalar)))

    def add(self, nodes: Nodes, addresses: Sequence[int], scalars: Sequence[Any], guard: Guard | None = None) -> None:
        if isinstance(self._task.kernel, Branch):
            self._branch(nodes, addresses, scalars, guard)
        elif self.counted:
            self._counted(nodes, addresses, scalars, guard)
        else:
            self._while(nodes, addresses, scalars, guard)

    def _branch(self, nodes: Nodes, addresses: Sequence[int], scalars: Sequence[Any], guard: Guard | None) -> None:
        flag, *bodies = branches_of(self._task, addresses, scalars)
        flags = nodes.flags()
        nodes.launch(begin_task(flags, flag, guard))
        for part, (places, numbers), value in zip(self.parts, bodies, (True, False), strict=True):
            part.add(nodes, places, numbers, first_is(flags, value))

    def _counted(self, nodes: Nodes, addresses: Sequence[int], scalars: Sequence[Any], guard: Guard | None) -> None:
        """One turn after another: there is nothing to decide."""
        places = places_of(self._task, addresses, scalars, _unread)
        for number in range(places.count):
            self.parts[0].add(nodes, places.turn(number), [number, *places.numbers], guard)
        self._copy(nodes, places.copies(places.count), guard)

    def _while(self, nodes: Nodes, addresses: Sequence[int], scalars: Sequence[Any], guard: Guard | None) -> None:
        part, places = self.parts[0], places_of(self._task, addresses, scalars, _unread)
        first, end = self._turns(places.loop)
        lead, flags = places.loop.rotation.lead, nodes.flags()
        nodes.launch(begin_task(flags, places.flag(0), guard))
        if first:
            self._copy(nodes, places.starts(first), guard)

        def turn(number: int, guard: Guard | None) -> None:
            part.add(nodes, places.turn(number, flags - first), [number, *places.numbers], guard)

        for number in range(first, lead):
            turn(number, true_up_to(flags, number - first))
        with nodes.only(WHILE, true_up_to(flags, end - first)):
            for number in range(lead, end):
                turn(number, None if number == lead else true_up_to(flags, number - first))
        ends: dict[tuple[int, int, int], int] = {}  # what is copied -> by how many turns it is
        for number in range(first, end + 1):
            for row in places.copies(number, flags + FLAGS):
                ends[row] = ends.get(row, 0) | 1 << number - first
        rows = [(*row, mask) for row, mask in ends.items()]
        for i in range(0, len(rows), LEAVES):
            nodes.launch(leave_task(flags, rows[i : i + LEAVES]))

    def _turns(self, loop: Loop) -> tuple[int, int]:
        """The first turn of the rotation that there is, which may be one whose buffers the initial values are copied
        to, and the one that the node's body ends before."""
        lead, part = loop.rotation.lead, self.parts[0]
        period = len(loop.rotation.held) - lead
        first = lead if lead + period >= FLAGS else 0
        if not part.looks or part.wholes:
            return first, lead + period
        most = min(FLAGS - 1 - lead + first, ROUND // max(1, len(part.steps)))
        return first, lead + period * max(1, most // period)

    def _copy(self, nodes: Nodes, rows: Sequence[tuple[int, int, int]], guard: Guard | None) -> None:
        """Copies of (target, source, bytes)."""
        rows = [row for row in rows if row[2]]
        for i in range(0, len(rows), LEAVES):
            some = rows[i : i + LEAVES]
            task = copy_task([(Pointer(2 * k), Pointer(2 * k + 1), n) for k, (_, _, n) in enumerate(some)])
            step = self._device.step(task if guard is None else guarded_task(task, 0))
            nodes.run(step, [a for row in some for a in row[:2]], guard.words if guard else ())


def uses_turn(body: Plan) -> bool:
    """Whether some argument is the number of the turn."""
    return any(isinstance(a, Scalar) and a.index == 0 for t in body.tasks for a in t.arguments)


def _unread(address: int) -> int:
    raise AssertionError(f"the number of turns is in memory, at {address:#x}")
