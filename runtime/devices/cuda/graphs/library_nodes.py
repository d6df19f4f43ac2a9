"""What a call of a library launches, as nodes of a graph that get new addresses as those of our own kernels do.

A library's kernels take addresses among their arguments, some within descriptions of arrays. Captures of one call tell
where: nothing but the places of its arrays differs between them. What depends on these in another way cannot be moved.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ....core.errors import LaunchError
from ....core.frozen import frozen
from ..driver.driver import CAPTURE_RELAXED, SUCCESS, CudaDriver
from ..modules.launch import ALL_BITS, SLOT, Launched, LibraryArgumentBlock, block_of_library_arguments
from .nodes import MISTAKES

# by how much the arrays of a call lie further apart in the second and the third capture: addresses stay positive, and
# within the bits that descriptions of arrays have for them
MOVES = (1 << 30, (5 << 30) + (1 << 16))

CHANGED = "a library does not launch what it launched before"
Words = tuple[tuple[int, int, int], ...]  # byte in the arguments, buffer, what is added to its address


@frozen
class LibraryLaunch:
    """A node that a library's call has made, and where in its arguments the addresses of buffers are."""

    launched: Launched
    words: Words

    def node(self, handle: int, kept: Sequence[int], moved: Mapping[int, int]) -> LibraryArgumentBlock:
        """See `KernelStep.node`."""
        return LibraryArgumentBlock(
            handle, self.launched, [(at, moved[b], add) for at, b, add in self.words if b in moved]
        )


def find_library_launches(
    driver: CudaDriver, step: Any, addresses: Sequence[int], scalars: Any, stream: int, moving: Sequence[int]
) -> tuple[Words, ...] | None:
    """For each node that a step makes the words that move with these buffers. None where there is more that moves."""
    captures = list[list[Launched]]()
    for move in (0, *MOVES):
        given = list(addresses)
        for turn, buffer in enumerate(moving, 1):
            given[buffer] += turn * move
        launches = _captured_launches(driver, step, given, scalars, stream)
        if launches is None:
            return None
        captures.append(launches)
    if len({tuple((config, *map(len, arguments)) for config, arguments in nodes) for nodes in captures}) > 1:
        return None
    nodes = zip(*captures, strict=True)
    rows = [_moving_words([arguments for _, arguments in each], addresses, moving) for each in nodes]
    found = tuple(row for row in rows if row is not None)
    return found if len(found) == len(rows) else None


def _captured_launches(
    driver: CudaDriver, step: Any, addresses: Sequence[int], scalars: Any, stream: int
) -> list[Launched] | None:
    """What a step launches; None where that is not all known."""
    if driver.begin_capture(stream, CAPTURE_RELAXED) != SUCCESS:
        return None
    try:
        code = step(addresses, scalars, stream)
        found = [driver.launch_of_node(node) for node in driver.captured_nodes(stream)]
    except MISTAKES:
        raise
    except Exception:  # of a library: its call cannot be captured so
        code, found = 1, []
    finally:
        ended, graph = driver.end_capture(stream)
    if graph:
        driver.destroy_graph(graph)
    known = [each for each in found if each is not None]
    return known if code == ended == SUCCESS and len(known) == len(found) > 0 else None


def _moving_words(captures: Sequence[Sequence[bytes]], addresses: Sequence[int], moving: Sequence[int]) -> Words | None:
    """Of one launch in three captures the words that move; None where something moves otherwise."""
    moves = {tuple(turn * move for move in MOVES): buffer for turn, buffer in enumerate(moving, 1)}
    found, start = [], 0
    for given in zip(*captures, strict=True):
        for at in range(0, len(given[0]), SLOT):
            first, *others = (int.from_bytes(argument[at : at + SLOT], "little") for argument in given)
            if any(other != first for other in others):
                buffer = moves.get(tuple(other - first for other in others))
                if buffer is None or at + SLOT > len(given[0]):
                    return None
                found.append((start + at, buffer, first - addresses[buffer] & ALL_BITS))
        start += -(-len(given[0]) // SLOT) * SLOT
    return tuple(found)


def library_launches_of_nodes(
    driver: CudaDriver, handles: Sequence[int], every: Sequence[Words], addresses: Sequence[int]
) -> list[tuple[LibraryLaunch, int]]:
    """The nodes that have words which move. Raises LaunchError where they are not what was found before."""
    found = []
    if len(handles) != len(every):
        raise LaunchError(CHANGED)
    for handle, words in zip(handles, every, strict=True):
        launched = driver.launch_of_node(handle)
        block = b"".join(block_of_library_arguments(launched[1])) if launched else b""
        there = [int.from_bytes(block[at : at + SLOT], "little") for at, *_ in words]
        wanted = [addresses[buffer] + add & ALL_BITS for _, buffer, add in words]
        if launched is None or there != wanted:
            raise LaunchError(CHANGED)
        if words:
            found.append((LibraryLaunch(launched, words), handle))
    return found
