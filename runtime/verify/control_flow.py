"""Proves that a plan's loops and branches are safe, or says what is wrong.

A body is a plan like any other, and is proved like one; `between` proves that one iteration after another is: an
iteration reads what the iteration before wrote, and writes over what that one read. It trusts neither the rotation nor
the lowering.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ..program.plan import FRESH, Branch, ControlFlowArguments, Loop, LoopRotation, Plan, control_flow_arguments
from ..program.program import Argument, Pointer, Region, Task

Found = tuple[str, str]  # a kind of violation, and why
Between = Callable[[Plan, Plan, Sequence[tuple[int, int]]], list[str]]
MOST = 64  # pairs of iterations that are proved; the pattern of most loops has two


def control_flow_violations(task: Task, between: Between) -> Iterator[Found]:
    """What is wrong with how a loop or branch uses memory. between: the races of a plan with its next run, given the
    pairs (buffer of the first, buffer of the second) that are the same memory."""
    kernel = task.kernel
    if isinstance(kernel, Branch):
        yield from _branch_violations(task, kernel)
        return
    assert isinstance(kernel, Loop)
    given, rotation = control_flow_arguments(task), kernel.rotation
    wrong = [*_loop_rotation_violations(kernel, rotation), *_loop_buffer_violations(task, kernel, given)]
    yield from wrong
    if not wrong:
        yield from _races_between_iterations(kernel, rotation, between)


def _loop_rotation_violations(loop: Loop, rotation: LoopRotation) -> Iterator[Found]:
    """Every iteration's values lie apart, none is lost, and each result ends where it belongs."""
    carried, sizes = len(loop.follows), loop.sizes
    places: dict[int, int] = dict(enumerate(sizes))
    for row, (held, fresh) in enumerate(zip(rotation.held, rotation.fresh, strict=True)):
        after = rotation.held[row + 1 if row + 1 < len(rotation.held) else rotation.lead]
        if len({*held, *fresh}) != len(held) + len(fresh):
            yield "loop", f"turn {row} reads and writes one place, or writes it twice"
        if any(place < carried for place in fresh):
            yield "loop", f"turn {row} writes over an initial value"
        new = iter(fresh)
        for i, source in enumerate(loop.follows):
            wanted = next(new) if source == FRESH else held[source]
            if after[i] != wanted:
                yield "loop", f"after turn {row} carried value {i} is not where the turn left it"
            if places.setdefault(wanted, sizes[i]) != sizes[i]:
                yield "loop", f"place {wanted} holds values of different sizes"
        names = rotation.names[row]
        if sorted(names) != list(range(len(names))):
            yield "loop", f"two places of turn {row} are one buffer"
        elif not loop.flag:
            ends = ((i, place) for i, place in enumerate(held) if place >= carried)
            if any(names[place - carried] != i for i, place in ends):
                yield "loop", f"a loop that ends before turn {row} leaves a result in another's place"


def _loop_buffer_violations(task: Task, loop: Loop, given: ControlFlowArguments) -> Iterator[Found]:
    """The buffers are large enough for all iterations, what is written is declared, and lies apart from all else."""
    carried, program, sizes = len(loop.follows), loop.body.program, loop.sizes
    owners = [*range(carried), *(i for i, source in enumerate(loop.follows) if source == FRESH)]
    last = max(0, (loop.count or 1) - 1)
    inputs = [program.buffers[b].nbytes for b in program.inputs[carried:]]
    stacked = [program.buffers[b].nbytes for b in program.outputs[len(owners) - carried :]]
    moves = loop.moves
    rows: list[tuple[str, Argument, int, int, bool]] = []
    rows += [(f"initial value {i}", a, sizes[i], 0, False) for i, a in enumerate(given.initial)]
    rows += [(f"input {i}", a, inputs[i], moves[i], False) for i, a in enumerate(given.others)]
    rows += [(f"buffer {i} of the pool", a, sizes[owners[i]], 0, True) for i, a in enumerate(given.pool)]
    for i, a in enumerate(given.stacked):
        move = moves[len(inputs) + i]
        if abs(move) < stacked[i] and last:
            yield "loop", f"stacked result {i} moves on by {move} bytes, and a turn writes {stacked[i]}"
        rows.append((f"stacked result {i}", a, stacked[i], move, True))
    if given.workspace is not None:
        rows.append(("the workspace", given.workspace, loop.body.arena_bytes, 0, True))
    if loop.flag:
        rows += [(f"result {i}", a, sizes[i], 0, True) for i, a in enumerate(given.results)]
    elif given.results != given.pool[:carried]:
        yield "loop", "the results are not the first buffers of the pool"
    if loop.count != 0:
        yield from _undeclared_access_violations(task, rows, last)
    yield from _overlapping_loop_buffer_violations(rows, last)


def _byte_span_of_moving_argument(argument: Pointer, nbytes: int, move: int, last: int) -> tuple[int, int]:
    return argument.offset + min(0, move * last), argument.offset + max(0, move * last) + nbytes


def _undeclared_access_violations(
    task: Task, rows: Sequence[tuple[str, Argument, int, int, bool]], last: int
) -> Iterator[Found]:
    for what, argument, nbytes, move, writes in rows:
        if not nbytes:
            continue
        if not isinstance(argument, Pointer):
            yield "loop", f"{what} has no address"
            continue
        low, high = _byte_span_of_moving_argument(argument, nbytes, move, last)
        regions: tuple[Region, ...] = task.writes if writes else task.reads
        spans = [r.span for r in regions if r.buffer == argument.buffer]
        if not any(a <= low and high <= b for a, b in spans):
            yield "loop", f"{what} takes bytes {low}:{high} of b{argument.buffer}, which the task does not declare"


def _overlapping_loop_buffer_violations(
    rows: Sequence[tuple[str, Argument, int, int, bool]], last: int
) -> Iterator[Found]:
    for i, (what, a, nbytes, move, writes) in enumerate(rows):
        for other, b, size, step, wrote in rows[:i]:
            if not (writes or wrote) or not isinstance(a, Pointer) or not isinstance(b, Pointer):
                continue
            (low, high), (first, end) = (
                _byte_span_of_moving_argument(a, nbytes, move, last),
                _byte_span_of_moving_argument(b, size, step, last),
            )
            if a.buffer == b.buffer and low < end and first < high:
                yield "loop", f"{what} and {other} share bytes of b{a.buffer}"


def _races_between_iterations(loop: Loop, rotation: LoopRotation, between: Between) -> Iterator[Found]:
    """Each iteration against the next, on the memory that they share."""
    program, carried = loop.body.program, len(loop.follows)

    def iteration_buffers(row: int) -> dict[int, int]:
        found = dict(zip(rotation.held[row], program.inputs[:carried], strict=True))
        return found | dict(zip(rotation.fresh[row], program.outputs, strict=False))

    for row in range(min(len(rotation.held), MOST)):
        following = row + 1 if row + 1 < len(rotation.held) else rotation.lead
        first, second = iteration_buffers(row), iteration_buffers(following)
        shared = [(first[place], second[place]) for place in sorted(first.keys() & second.keys())]
        for why in between(loop.body, loop.body, shared):
            yield "turns", f"turns {row} and {row + 1}: {why}"


def _branch_violations(task: Task, branch: Branch) -> Iterator[Found]:
    for body in branch.bodies:
        program = body.program
        inputs, outputs = len(program.inputs), len(program.outputs)
        rows = [("the flag", task.arguments[0], 1, 0, False)]
        for i, b in enumerate(program.inputs):
            rows.append((f"input {i}", task.arguments[1 + i], program.buffers[b].nbytes, 0, False))
        for i, b in enumerate(program.outputs):
            rows.append((f"result {i}", task.arguments[1 + inputs + i], program.buffers[b].nbytes, 0, True))
        if body.arena_bytes:
            rows.append(("the workspace", task.arguments[1 + inputs + outputs], body.arena_bytes, 0, True))
        yield from _undeclared_access_violations(task, rows, 0)
        yield from _overlapping_loop_buffer_violations(rows, 0)
