"""A plan with loops and branches in; the words that the native engine runs it from, bodies and all, out.

A loop is a kernel to the engine: one function, whose first argument is the record of the loop (`words.loops`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, Protocol

from ..core.frozen import replace
from ..program.control_flow import Branch, Loop, control_flow_arguments
from ..program.plan import Plan
from ..program.program import Int, Kernel, Library, Pointer, Task, control_flow_bodies
from .encode_plan import PlanLayout, encode_plan, split_launch_into_chunks, write_native_words
from .engine import EngineFunctions, engine_thread_count
from .words.loops import BY_ADDRESS, BY_FLAG, BY_NUMBER

Function = Callable[[Kernel], int]
HostStep = Callable[[Task], tuple[Task, int]]  # a step that needs Python, as a task with arguments and its function


def is_native_plan(plan: Plan) -> bool:
    """Whether no step needs Python, those of bodies included."""
    return all(_is_native_task(task) for task in plan.tasks)


def _is_native_task(task: Task) -> bool:
    return not isinstance(task.kernel, Library) and all(is_native_plan(body) for body in control_flow_bodies(task))


class Owner(Protocol):
    """What bodies run on: an engine, or what stands for one where there are no other threads."""

    native: EngineFunctions
    address: int


def encode_nested_plan(
    plan: Plan, function: Function, owner: Owner, timed: bool = False, host_step: HostStep | None = None
) -> PlanLayout:
    """`encode_plan`, with a record for each loop and branch that runs natively. function: the address of a kernel.
    host_step: does the steps that need Python; without it they, and what holds them, have no function."""
    functions: list[int] = []
    tasks: list[Task] = []
    keep: list[Any] = []
    for task in plan.tasks:
        if isinstance(task.kernel, Kernel):
            functions.append(function(task.kernel))
        elif isinstance(task.kernel, Library) and host_step is not None:
            task, address = host_step(task)
            functions.append(address)
        elif isinstance(task.kernel, Library) or (host_step is None and not _is_native_task(task)):
            functions.append(0)
        else:
            task, address, owners = encode_control_task(task, function, owner, host_step)
            keep.append(owners)
            functions.append(address)
        tasks.append(task)
    changed = tuple(tasks) != plan.program.tasks
    laid = replace(plan, program=replace(plan.program, tasks=tuple(tasks)), report=None) if changed else plan
    return encode_plan(laid, functions, engine_thread_count(), owner.address, keep, timed)


def encode_control_task(
    task: Task, function: Function, owner: Owner, host_step: HostStep | None = None
) -> tuple[Task, int, Any]:
    """A loop or branch as a kernel: the task with its record as first argument, the function that runs it, and what
    has to live as long."""
    assert isinstance(task.kernel, (Loop, Branch))
    bodies = [encode_nested_plan(body, function, owner, host_step=host_step) for body in task.kernel.bodies]
    looped = isinstance(task.kernel, Loop)
    owners, record = (_encode_loop_words if looped else _encode_branch_words)(task, bodies, owner)
    run = owner.native.run_loop if looped else owner.native.run_branch
    return replace(task, arguments=(Int(record), *task.arguments)), run, (bodies, owners)


def _encode_loop_words(task: Task, layouts: Sequence[PlanLayout], owner: Owner) -> tuple[Any, int]:
    loop = task.kernel
    assert isinstance(loop, Loop)
    given, rotation, program = control_flow_arguments(task), loop.rotation, loop.body.program
    carried, pool = len(loop.follows), len(given.pool)
    inputs = program.inputs[carried:]
    first = carried + pool
    moves: dict[int, int] = {}
    rows: list[dict[int, int]] = []
    for held, fresh in zip(rotation.held, rotation.fresh, strict=True):
        outs = program.outputs[len(fresh) :]
        places = [*held, *range(first, first + len(inputs))]
        row = dict(zip(program.inputs, places, strict=True))
        row |= dict(zip(program.outputs, fresh, strict=False))
        row |= {b: first + len(inputs) + i for i, b in enumerate(outs)}
        moves = dict(zip((*inputs, *outs), loop.moves, strict=True))
        rows.append(row)
    others = len(given.others) + len(given.stacked) + (given.workspace is not None)
    owners, body = _encode_words_of_body(loop.body, layouts[0], rows, moves, first + others - 1, owner)
    names = write_native_words([8 * name for names in rotation.names for name in names])
    final = write_native_words([8 * place for held in rotation.held for place in held])
    sizes = write_native_words(loop.sizes)
    count_at = len(task.arguments) - len(given.numbers) - 1
    kind = BY_FLAG if loop.flag else BY_ADDRESS if isinstance(given.count, Pointer) else BY_NUMBER
    head = [carried, pool, others, rotation.lead, len(rows), names[1], final[1], sizes[1], kind, 8 * count_at]
    record = write_native_words([*head, 8 * (len(task.arguments) - len(given.numbers)), 1, 0, *body])
    return (record, names, final, sizes, owners), record[1]


def _encode_branch_words(task: Task, layouts: Sequence[PlanLayout], owner: Owner) -> tuple[Any, int]:
    branch = task.kernel
    assert isinstance(branch, Branch)
    owners, words = [], []
    numbers = len(branch.bodies[0].program.scalars)
    for body, layout in zip(branch.bodies, layouts, strict=True):
        program = body.program
        row = {b: 1 + i for i, b in enumerate((*program.inputs, *program.outputs))}
        workspace = len(task.arguments) - numbers - 1
        found, part = _encode_words_of_body(body, layout, [row], {}, workspace, owner)
        owners.append(found)
        words += part
    record = write_native_words([*words, 8 * (len(task.arguments) - numbers)])
    return (record, owners), record[1]


def _encode_words_of_body(
    plan: Plan, layout: PlanLayout, rows: Sequence[dict[int, int]], moves: dict[int, int], workspace: int, owner: Owner
) -> tuple[Any, list[int]]:
    """The words of a body. rows: for each state the place of every buffer; workspace: that of the temporaries."""
    last = [workspace] if layout.uses_arena else []
    places = write_native_words([8 * p for row in rows for p in (*(row[b] for b in layout.order), *last)])
    moving = write_native_words([*(moves.get(b, 0) for b in layout.order), *(0 for _ in last)])
    helpers = max(chain((split_launch_into_chunks(task, engine_thread_count())[1] - 1 for task in plan.tasks), [0]))
    columns = len(layout.order) + len(last)
    numbers = len(plan.program.scalars)
    words = [
        layout.plan,
        columns,
        numbers,
        places[1],
        moving[1],
        owner.address,
        min(helpers, engine_thread_count() - 1),
    ]
    return (places, moving, layout), words
