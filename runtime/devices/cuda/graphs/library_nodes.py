"""What a call of a library launches, as nodes of a graph that get new addresses as those of our own kernels do.

A library's kernels take addresses among their arguments, some within descriptions of arrays. Captures of one call tell
where: nothing but the places of its arrays differs between them. What depends on these in another way cannot be moved.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

from ....core.errors import LaunchError
from ....core.frozen import dataclass
from ..driver.driver import CAPTURE_RELAXED, SUCCESS, CudaDriver, KernelNode
from ..modules.launch import KernelArgumentBlock
from .nodes import MISTAKES

# by how much arrays lie elsewhere in the second and the third capture, one after the other
MOVES = (1 << 30, (5 << 30) + (1 << 16))
WORD = 8
ALL_BITS = (1 << 64) - 1

Launched = tuple[bytes, tuple[bytes, ...]]  # see `CudaDriver.launch_of_node`
Words = tuple[tuple[int, int, int], ...]  # byte in the arguments, buffer, what is added to its address


@dataclass(frozen=True, slots=True)
class LibraryLaunch:
    """A node that a library's call has made, and where in its arguments the addresses of buffers are."""

    launched: Launched
    words: Words

    def node(self, handle: int, kept: Sequence[int], moved: Mapping[int, int]) -> LibraryNode:
        """See `KernelStep.node`."""
        return LibraryNode(handle, self.launched, [(at, moved[b], add) for at, b, add in self.words if b in moved])


def find_library_launches(
    driver: CudaDriver, step: Any, addresses: Sequence[int], scalars: Any, stream: int, moving: Sequence[int]
) -> tuple[Words, ...] | None:
    """For each node that a step makes the words that move with these buffers. None where there is more that moves."""
    captures = list[list[Launched]]()
    for move in (0, *MOVES):
        given = list(addresses)
        for turn, buffer in enumerate(moving, 1):
            given[buffer] -= turn * move
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
    return known if code == ended == SUCCESS and len(known) == len(found) else None


def _moving_words(captures: Sequence[Sequence[bytes]], addresses: Sequence[int], moving: Sequence[int]) -> Words | None:
    """Of one launch in three captures the words that move; None where something moves otherwise."""
    moves = {tuple(turn * move for move in MOVES): buffer for turn, buffer in enumerate(moving, 1)}
    found, start = [], 0
    for given in zip(*captures, strict=True):
        for at in range(0, len(given[0]), WORD):
            first, *others = (int.from_bytes(argument[at : at + WORD], "little") for argument in given)
            if any(other != first for other in others):
                buffer = moves.get(tuple(first - other for other in others))
                if buffer is None or at + WORD > len(given[0]):
                    return None
                found.append((start + at, buffer, first - addresses[buffer] & ALL_BITS))
        start += _whole_words(given[0])
    return tuple(found)


def _whole_words(argument: bytes) -> int:
    return -(-len(argument) // WORD) * WORD


def library_launches_of_nodes(
    driver: CudaDriver, handles: Sequence[int], every: Sequence[Words], addresses: Sequence[int]
) -> list[tuple[LibraryLaunch, int]]:
    """The nodes that have words which move. Raises LaunchError where they are not what was found before."""
    found = []
    for handle, words in zip(handles, every, strict=False):
        launched = driver.launch_of_node(handle)
        block = b"".join(a.ljust(_whole_words(a), b"\0") for a in launched[1]) if launched else b""
        there = [int.from_bytes(block[at : at + WORD], "little") for at, *_ in words]
        wanted = [addresses[buffer] + add & ALL_BITS for _, buffer, add in words]
        if launched is None or there != wanted or len(handles) != len(every):
            raise LaunchError("a library does not launch what it launched before")
        if words:
            found.append((LibraryLaunch(launched, words), handle))
    return found


class LibraryNode(KernelArgumentBlock):
    """A kernel of a library's in a graph, with its own block of arguments: see `KernelArgumentBlock`."""

    def __init__(self, handle: int, launched: Launched, words: Sequence[tuple[int, int, int]]) -> None:
        """words: byte in the block, place of an address in a call, what is added to it."""
        config, arguments = launched
        parts = [argument.ljust(_whole_words(argument), b"\0") for argument in arguments]
        self._block = ctypes.create_string_buffer(b"".join(parts))
        start = ctypes.addressof(self._block)
        starts = [start + sum(map(len, parts[:i])) for i in range(len(parts))]
        self._slots = (ctypes.c_void_p * len(starts))(*starts)
        self._parameters = KernelNode.from_buffer_copy(config)
        self._parameters.parameters = ctypes.addressof(self._slots)
        self.handle, self.address = handle, ctypes.addressof(self._parameters)
        self._words, self._known = [*words], None

    def places(self, count: int, extra: list[int]) -> None:
        """Its fixed addresses lie in its block."""

    def native_rows(self, order: Mapping[int, int], addresses: int) -> tuple[int, int, list[tuple[int, int, int]]]:
        start = ctypes.addressof(self._block)
        return self.handle, self.address, [(start + at, order[place], add) for at, place, add in self._words]

    def fill_arguments(self, memories: Sequence[Any], scalars: Sequence[Any]) -> bool:
        """Write a call's addresses; whether they differ from those of the last call."""
        values = [memories[place] + add & ALL_BITS for _, place, add in self._words]
        if values == self._known:
            return False
        for (at, *_), value in zip(self._words, values, strict=True):
            ctypes.c_uint64.from_buffer(self._block, at).value = value
        self._known = values
        return True
