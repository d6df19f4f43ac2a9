"""A Task in; the bytes that it must move at least and its arithmetic out. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from .control_flow import FOREVER, Branch, Loop
from .program import Kernel, Library, Region, Task


def least_bytes_of_task(task: Task) -> int:
    """The bytes that a task moves when it reads and writes each element once; of a loop those of all its iterations.

    Reads that overlap, as a stencil's shifted ones do, count once: for each buffer at most the bytes between the first
    and the last one touched."""
    if isinstance(task.kernel, (Kernel, Library)):
        return union_bytes_of_regions(task.reads) + union_bytes_of_regions(task.writes)
    return sum(
        count * sum(map(least_bytes_of_task, tasks)) for count, tasks in _runs_of_control_flow_bodies(task.kernel)
    )


def flops_of(task: Task) -> float:
    """The floating-point operations of a task, as the cost model counts them; of a loop those of all its iterations."""
    if isinstance(task.kernel, (Kernel, Library)):
        return task.flops
    return sum(count * sum(map(flops_of, tasks)) for count, tasks in _runs_of_control_flow_bodies(task.kernel))


def _runs_of_control_flow_bodies(control: Loop | Branch) -> Iterator[tuple[int, tuple[Task, ...]]]:
    """How often each body runs, as far as that is known, else once; of a branch the first body alone."""
    count = control.count if isinstance(control, Loop) else 1
    yield (1 if count in (None, FOREVER) else count or 0), control.bodies[0].tasks


def union_bytes_of_regions(regions: Iterable[Region]) -> int:
    """The bytes of the elements that regions cover, of each buffer at most those between its ends; an upper bound."""
    buffers: dict[int, list[tuple[int, int, int]]] = {}
    for region in regions:
        low, high = region.span
        if high > low:
            buffers.setdefault(region.buffer, []).append(
                (low, high, _distinct_elements_of_region(region) * region.itemsize)
            )
    return sum(map(_bytes_covered_by_parts, buffers.values()))


def _bytes_covered_by_parts(parts: list[tuple[int, int, int]]) -> int:
    """Of (low, high, bytes): for each run of parts that touch each other, the bytes, at most those between its ends."""
    total = size = 0
    low = high = min(parts)[0]
    for start, end, nbytes in sorted(parts):
        if start > high:
            total += min(size, high - low)
            low, high, size = start, end, 0
        high, size = max(high, end), size + nbytes
    return total + min(size, high - low)


def _distinct_elements_of_region(region: Region) -> int:
    """Those at different places: an axis of stride 0 repeats them."""
    count = 1
    for length, stride in zip(region.shape, region.strides, strict=True):
        count *= length if stride else 1
    return count
