"""Runs loops and branches from Python, iteration by iteration, with what a device can do.

What every device without a way of its own does, and what the others must agree with.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from ..core.frozen import frozen
from ..program.plan import FOREVER, Branch, Loop, Plan, control_flow_arguments
from ..program.program import Argument, Int, Pointer, Scalar, Task

RunIteration = Callable[[Sequence[Any], Sequence[Any]], None]  # the body's addresses and numbers: run it once


class LoopDevice(Protocol):
    """What `run_control_flow` needs done with memory, by its address."""

    def integer(self, address: int) -> int: ...

    def boolean(self, address: int) -> bool: ...

    def copy(self, target: int, source: int, nbytes: int) -> None: ...

    def repeat(self, rows: Sequence[Sequence[int]], numbers: Sequence[Any], times: int) -> int:
        """Run iterations with these addresses of the body's buffers, `times` over, where that is quicker than one by
        one and no iteration needs its number; how often it was done."""
        ...


@frozen
class InterpretedLoopAddresses:
    """Where a call of a loop has what: its addresses by the number of an iteration. count: the iterations (FOREVER for
    a flag)."""

    loop: Loop
    count: int
    carried: list[int]  # the places of the rotation
    moving: list[int]  # the other inputs and the stacked outputs at iteration 0
    results: list[int]
    workspace: int | None
    numbers: list[Any]

    def buffers_of_iteration(self, number: int, flags: int = 0, first: int = 0) -> list[int]:
        """The address of every buffer of the body. flags: where the flag of iteration i is at byte i, instead of where
        it was carried. first: the number that the first iteration has in the rotation."""
        loop = self.loop
        row = loop.rotation.at(number)
        inputs = len(loop.body.program.inputs) - len(loop.follows)
        at = [address + move * (number - first) for address, move in zip(self.moving, loop.moves, strict=True)]
        ins = [*(self.carried[p] for p in loop.rotation.held[row]), *at[:inputs]]
        outs = [*(self.carried[p] for p in loop.rotation.fresh[row]), *at[inputs:]]
        if flags:
            ins[0], outs[0] = flags + number - first, flags + number - first + 1
        return interpreted_loop_body_addresses(loop.body, ins, outs, self.workspace)

    def flag_address(self, number: int) -> int:
        """Where the flag of an iteration is."""
        return self.carried[self.loop.rotation.held[self.loop.rotation.at(number)][0]]

    def initial_copies(self, number: int) -> list[tuple[int, int, int]]:
        """(target, source, bytes) of the initial values, but for a flag, to where iteration `number` reads them."""
        held = self.loop.rotation.held[self.loop.rotation.at(number)]
        rows = zip((self.carried[p] for p in held), self.carried, self.loop.sizes, strict=False)
        return [row for row in list(rows)[int(self.loop.flag) :] if row[0] != row[1]]

    def result_copies(self, number: int, flag: int = 0) -> list[tuple[int, int, int]]:
        """(target, source, bytes) of the results that a loop of so many iterations leaves elsewhere. flag: where the
        flag is, if not where it was carried."""
        held = self.loop.rotation.held[self.loop.rotation.at(number)]
        sources = [self.carried[p] for p in held]
        if flag:
            sources[0] = flag
        rows = zip(self.results, sources, self.loop.sizes, strict=True)
        return [row for row in rows if row[0] != row[1]]


def task_argument_value(argument: Argument, addresses: Sequence[int], scalars: Sequence[Any]) -> Any:
    """What a task is given: an address or a number."""
    if isinstance(argument, Pointer):
        return addresses[argument.buffer] + argument.offset
    if isinstance(argument, Scalar):
        return scalars[argument.index]
    return argument.value if isinstance(argument, Int) else argument.number


def bind_interpreted_loop_addresses(
    task: Task, addresses: Sequence[int], scalars: Sequence[Any], integer: Callable[[int], int] | None = None
) -> InterpretedLoopAddresses:
    """integer: what is in memory at an address, for a count that is there. Without it the count is as good as unknown:
    FOREVER."""
    loop = task.kernel
    assert isinstance(loop, Loop)
    given = control_flow_arguments(task)

    def loop_argument_values(arguments: Sequence[Argument]) -> list[Any]:
        return [task_argument_value(a, addresses, scalars) for a in arguments]

    count, pool = FOREVER, loop_argument_values(given.pool)
    if given.count is not None and integer is not None:
        (found,) = loop_argument_values([given.count])
        count = integer(found) if isinstance(given.count, Pointer) else int(found)
    names = tuple(range(len(pool))) if count == FOREVER else loop.rotation.names[loop.rotation.at(max(0, count))]
    return InterpretedLoopAddresses(
        loop,
        count,
        [*loop_argument_values(given.initial), *(pool[name] for name in names)],
        loop_argument_values((*given.others, *given.stacked)),
        loop_argument_values(given.results),
        loop_argument_values([given.workspace])[0] if given.workspace is not None else None,
        loop_argument_values(given.numbers),
    )


def run_control_flow(
    task: Task, iterations: Sequence[RunIteration], hands: LoopDevice, addresses: Sequence[int], scalars: Sequence[Any]
) -> None:
    """Run a loop or branch task. iterations: one for each body. addresses: of every buffer of the task's program."""
    if isinstance(task.kernel, Branch):
        flag, *bodies = bind_interpreted_branch_addresses(task, addresses, scalars)
        which = 0 if hands.boolean(flag) else 1
        iterations[which](*bodies[which])
        return
    places = bind_interpreted_loop_addresses(task, addresses, scalars, hands.integer)
    loop, rotation, count, number = places.loop, places.loop.rotation, places.count, 0
    while number < count:
        if loop.flag and not hands.boolean(places.flag_address(number)):
            break
        if number == rotation.lead and not loop.flag and not any(loop.moves):
            period = len(rotation.held) - rotation.lead
            rows = [places.buffers_of_iteration(number + i) for i in range(period)]
            number += period * hands.repeat(rows, places.numbers, (count - number) // period)
            if number == count:
                break
        iterations[0](places.buffers_of_iteration(number), [number, *places.numbers])
        number += 1
    for row in places.result_copies(number):
        hands.copy(*row)


def bind_interpreted_branch_addresses(task: Task, addresses: Sequence[int], scalars: Sequence[Any]) -> tuple[Any, ...]:
    """Of a branch task: where its flag is, then for each body its addresses and its numbers."""
    branch = task.kernel
    assert isinstance(branch, Branch)
    values = [task_argument_value(a, addresses, scalars) for a in task.arguments]
    program = branch.bodies[0].program
    inputs, outputs = len(program.inputs), len(program.outputs)
    workspace = values[1 + inputs + outputs] if any(b.arena_bytes for b in branch.bodies) else None
    ins, outs = values[1 : 1 + inputs], values[1 + inputs : 1 + inputs + outputs]
    numbers = values[len(values) - len(program.scalars) :]
    return (
        values[0],
        *((interpreted_loop_body_addresses(body, ins, outs, workspace), numbers) for body in branch.bodies),
    )


def interpreted_loop_body_addresses(
    body: Plan, ins: Sequence[int], outs: Sequence[int], workspace: int | None
) -> list[int]:
    """The address of every buffer of a body."""
    program = body.program
    found = [0 if offset is None else (workspace or 0) + offset for offset in body.offsets]
    for buffer, address in (*zip(program.inputs, ins, strict=True), *zip(program.outputs, outs, strict=True)):
        found[buffer] = address
    return found
