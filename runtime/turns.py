"""Loops and branches run turn by turn from Python: a task and what a device can do in, the body's runs out.

What every device without a way of its own does, and what the others must agree with.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from .loop import FOREVER, Branch, Loop, arguments_of
from .plan import Plan
from .program import Argument, Int, Pointer, Scalar, Task

Turn = Callable[[Sequence[Any], Sequence[Any]], None]  # the body's addresses and numbers: run it once


class Hands(Protocol):
    """What `run_control` needs done with memory, by its address."""

    def integer(self, address: int) -> int: ...

    def boolean(self, address: int) -> bool: ...

    def copy(self, target: int, source: int, nbytes: int) -> None: ...

    def repeat(self, rows: Sequence[Sequence[int]], numbers: Sequence[Any], times: int) -> int:
        """Run turns with these addresses of the body's buffers, `times` over, where that is quicker than one by one
        and no turn needs its number; how often it was done."""
        ...


def run_control(
    task: Task, turns: Sequence[Turn], hands: Hands, addresses: Sequence[int], scalars: Sequence[Any]
) -> None:
    """Run a loop or branch task. turns: one for each body. addresses: of every buffer of the task's program."""

    def value(argument: Argument) -> Any:
        if isinstance(argument, Pointer):
            return addresses[argument.buffer] + argument.offset
        if isinstance(argument, Scalar):
            return scalars[argument.index]
        return argument.value if isinstance(argument, Int) else argument.number

    if isinstance(task.kernel, Branch):
        _branch(task, turns, hands, [value(a) for a in task.arguments])
        return
    loop = task.kernel
    assert isinstance(loop, Loop)
    arguments = arguments_of(task)
    carried = len(loop.follows)
    rotation, sizes, program = loop.rotation, loop.sizes, loop.body.program
    results = [value(a) for a in arguments.results]
    moving = [value(a) for a in (*arguments.others, *arguments.stacked)]
    pool = [value(a) for a in arguments.pool]
    workspace = value(arguments.workspace) if arguments.workspace is not None else None
    numbers = [value(a) for a in arguments.numbers]
    count = FOREVER
    if isinstance(arguments.count, Pointer):
        count = hands.integer(value(arguments.count))
    elif arguments.count is not None:
        count = int(value(arguments.count))
    names = rotation.names[0 if loop.flag else rotation.at(max(0, count))]
    places = [*(value(a) for a in arguments.initial), *(pool[name] for name in names)]
    inputs = len(program.inputs) - carried
    number = 0

    def turn_addresses(number: int) -> list[int]:
        row = rotation.at(number)
        at = [address + move * number for address, move in zip(moving, loop.moves, strict=True)]
        ins = [*(places[p] for p in rotation.held[row]), *at[:inputs]]
        outs = [*(places[p] for p in rotation.fresh[row]), *at[inputs:]]
        return body_addresses(loop.body, ins, outs, workspace)

    while number < count:
        if loop.flag and not hands.boolean(places[rotation.held[rotation.at(number)][0]]):
            break
        if number == rotation.lead and not loop.flag and not any(loop.moves):
            period = len(rotation.held) - rotation.lead
            rows = [turn_addresses(number + i) for i in range(period)]
            number += period * hands.repeat(rows, numbers, (count - number) // period)
            if number == count:
                break
        turns[0](turn_addresses(number), [number, *numbers])
        number += 1
    for result, place, size in zip(results, rotation.held[rotation.at(number)], sizes, strict=True):
        if places[place] != result:
            hands.copy(result, places[place], size)


def _branch(task: Task, turns: Sequence[Turn], hands: Hands, values: Sequence[Any]) -> None:
    branch = task.kernel
    assert isinstance(branch, Branch)
    which = 0 if hands.boolean(values[0]) else 1
    body = branch.bodies[which]
    inputs, outputs = len(body.program.inputs), len(body.program.outputs)
    workspace = values[1 + inputs + outputs] if any(b.arena_bytes for b in branch.bodies) else None
    ins, outs = values[1 : 1 + inputs], values[1 + inputs : 1 + inputs + outputs]
    numbers = values[len(values) - len(body.program.scalars) :]
    turns[which](body_addresses(body, ins, outs, workspace), numbers)


def body_addresses(body: Plan, ins: Sequence[int], outs: Sequence[int], workspace: int | None) -> list[int]:
    """The address of every buffer of a body."""
    program = body.program
    found = [0 if offset is None else (workspace or 0) + offset for offset in body.offsets]
    for buffer, address in (*zip(program.inputs, ins, strict=True), *zip(program.outputs, outs, strict=True)):
        found[buffer] = address
    return found
