"""Program -> Program: independent tasks that do the same become one launch. Pure; the result is again right in order.

`schedule_matmul_batches`: matmuls of equal shapes become one library call with the attribute `batch`. A library may
round a batch in another way, so it is the model that decides, never the clock. `pack_small_launches`: tiny launches of
one kernel become one launch of it with the option `pack_small_launches`; each member does exactly what it did.
`program.members` gives the parts back.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import pairwise

from ..core.frozen import replace
from ..program.dag import nearest_order_of_dag
from ..program.program import Kernel, Library, Program, Region, Task, task_dependences_of_program
from .cost_model import MachineModel, machine_share_of_task

PACK_US = 10.0  # a launch that takes longer gains nothing from being packed
PACK_SHARE = 0.5  # neither does one that fills more of the machine
PACK_BYTES = 32_000  # of arguments: a launch takes 32,764, a guard's among them
ALONE = frozenset(("own", "cluster"))  # options of kernels whose blocks are not to lie between others'
BATCH_MOST = 160  # products whose addresses one launch writes into a table
BATCHABLE = ("matmul",)


def schedule_matmul_batches(program: Program, machine: MachineModel) -> Program:
    """The program with its independent matmuls of equal dtypes, shapes and strides in batches. Those with an epilogue
    stay alone, which no library has for addresses in a table."""

    def matmul_batch_kind(task: Task) -> Hashable | None:
        if not isinstance(task.kernel, Library) or task.kernel.name not in BATCHABLE or task.units != 1:
            return None
        if "epilogue" in dict(task.kernel.attrs):
            return None
        return (task.kernel, *map(_batched_region_form, (*task.reads, *task.writes)))

    def join_matmul_tasks(tasks: Sequence[Task]) -> Task:
        first = tasks[0].kernel
        assert isinstance(first, Library)
        return _join_tasks_into_packed_launch(
            tasks, Library(first.name, (*first.attrs, ("batch", len(tasks)))), machine
        )

    return _merge_tasks_of_one_level(program, matmul_batch_kind, join_matmul_tasks, lambda task: BATCH_MOST)


def pack_small_launches(program: Program, machine: MachineModel) -> Program:
    """The program with tiny independent launches of one kernel in one launch. They have one launch shape."""

    def is_small(task: Task) -> bool:
        return task.cost <= PACK_US and machine_share_of_task(task, machine) <= PACK_SHARE

    return _pack_launches(program, machine, lambda task: () if is_small(task) else None)


def pack_launches_that_write_one_buffer(program: Program, machine: MachineModel) -> Program:
    """The same of launches that fill one buffer, however long they take: they may read other devices, whose links are
    then in use at a time."""
    return _pack_launches(program, machine, lambda task: tuple(region.buffer for region in task.writes))


def _pack_launches(program: Program, machine: MachineModel, kind: Callable[[Task], Hashable | None]) -> Program:
    """kind: what those that go together have in common beside a kernel and a launch shape; None of what stays alone."""

    def launch_kind(task: Task) -> Hashable | None:
        own = kind(task)
        if not isinstance(task.kernel, Kernel) or own is None:
            return None
        if not ALONE.isdisjoint(name for name, _ in task.kernel.options):
            return None
        counts = (len(task.arguments), len(task.reads), len(task.writes))
        return (own, task.kernel, task.grid, task.block, task.units, task.grain, counts)

    def join_launches(tasks: Sequence[Task]) -> Task:
        first, n = tasks[0], len(tasks)
        assert isinstance(first.kernel, Kernel)
        kernel = replace(first.kernel, options=(*first.kernel.options, ("packed", n)))
        made = _join_tasks_into_packed_launch(tasks, kernel, machine)
        return replace(made, units=n * first.units, grid=(n * first.grid[0], *first.grid[1:]))

    def most_in_a_launch(task: Task) -> int:
        return max(1, PACK_BYTES // (8 * max(1, len(task.arguments))))

    return _merge_tasks_of_one_level(program, launch_kind, join_launches, most_in_a_launch)


def _batched_region_form(region: Region) -> Hashable:
    return (region.shape, region.strides, region.dtype)


def _join_tasks_into_packed_launch(tasks: Sequence[Task], kernel: Kernel | Library, machine: MachineModel) -> Task:
    """The tasks side by side in one launch: as long as the longest of them, or as the machine's full load."""
    load = sum(task.cost * machine_share_of_task(task, machine) for task in tasks)
    return replace(
        tasks[0],
        name=f"{tasks[0].name} x{len(tasks)}",
        kernel=kernel,
        arguments=tuple(a for task in tasks for a in task.arguments),
        reads=tuple(r for task in tasks for r in task.reads),
        writes=tuple(w for task in tasks for w in task.writes),
        same_element=frozenset[int]().union(*(task.same_element for task in tasks)),
        cost=round(max(max(task.cost for task in tasks), load), 3),
        line=", ".join(
            _unique_regions_of_packed_launch(part for task in tasks for part in task.line.split(", ") if part)
        ),
        flops=sum(task.flops for task in tasks),
        nodes=tuple(node for task in tasks for node in task.nodes),
    )


def _unique_regions_of_packed_launch(parts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(parts))


def _merge_tasks_of_one_level(
    program: Program,
    kind: Callable[[Task], Hashable | None],
    joined: Callable[[Sequence[Task]], Task],
    most: Callable[[Task], int],
) -> Program:
    """Tasks of one kind and one level become one, or as few as may be of at most so many. Levels (the longest path from
    an entry) rise along every dependence: tasks of one level are independent, and no path leaves a group and comes back
    to it."""
    preds = task_dependences_of_program(program)
    level: list[int] = []
    for sources in preds:
        level.append(1 + max((level[p] for p in sources), default=-1))
    groups: dict[Hashable, list[int]] = {}
    for number, task in enumerate(program.tasks):
        what = kind(task)
        groups.setdefault(number if what is None else (level[number], what), []).append(number)
    if len(groups) == len(program.tasks):
        return program
    members = sorted(
        part for numbers in groups.values() for part in _even_parts(numbers, most(program.tasks[numbers[0]]))
    )
    group_of = {number: g for g, numbers in enumerate(members) for number in numbers}
    before = [{group_of[p] for number in numbers for p in preds[number]} for numbers in members]
    tasks = []
    for g in nearest_order_of_dag(before, range(len(before))):
        numbers = members[g]
        each = [program.tasks[number] for number in numbers]
        tasks.append(each[0] if len(each) == 1 else joined(each))
    return replace(program, tasks=tuple(tasks))


def _even_parts(numbers: list[int], most: int) -> list[list[int]]:
    """As few parts as there are of at most so many, as long as each other or shorter by one."""
    count = -(-len(numbers) // most)
    ends = [len(numbers) * i // count for i in range(count + 1)]
    return [numbers[a:b] for a, b in pairwise(ends)]
