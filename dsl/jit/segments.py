"""Programs that decide on array values, run in parts: what is traced so far runs, a value of it is read, and tracing
goes on with the value known.

The parts of all calls of one key form a tree: from each part the value that was read leads to the next one. A call
walks down the tree; where it meets a new value, the function is traced again from its start, answered from the record
as far as that goes, and from there on its parts run while it is being traced. The trees of a function keep the parts
that were used lately.

And calls whose first part is of their indices alone, which it is kept with.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any

import numpy as np

from ...compiler.core.types import ArrayType, array_type_of
from ...runtime.core.errors import PlanError
from ...runtime.program.device import Device
from ..array.array import Array, from_numpy
from ..array.made_of import MadeOfMemory
from ..array.mutation import array_before_change
from ..core.errors import ArgumentsError, warn_user
from ..core.host_scalars import Respecialise
from ..core.pytree import Tree, flatten
from ..environment.guards import Guard, GuardSet
from ..trace.trace import Trace, trace_in_progress
from .graph_break import Answer, GraphBreakValueReader, HostError, HostResult, Segment
from .launcher import NOT_TAKEN, FailedCall, Launcher, failing_launcher
from .trace_function import UnfinishedFunction
from .traced_function import TracedFunction

Make = Callable[[TracedFunction, Sequence[Any]], Launcher]  # what runs a part, and leaves like those of the call
MANY_VALUES = 8
MANY_PARTS = 10_000  # of one function: those of a loop share what runs them


class ReplayMismatch(BaseException):
    """The function did not do again what it had done before."""


class LiveSegmentTrace(GraphBreakValueReader):
    """Runs each part as soon as it is traced, behind those that `path` has recorded."""

    def __init__(
        self, splits: SegmentedCall, path: Sequence[tuple[Segment, Answer]], run: Callable[[Segment], Answer]
    ) -> None:
        super().__init__()
        self.path = list(path)
        self.run = run
        self.splits = splits

    def answer(self, trace: Trace, part: Segment) -> Answer:
        if self.path:
            recorded, found = self.path.pop(0)
            if not recorded.same(part):
                raise ReplayMismatch
            return found
        part.captured = self.splits.finish(trace, part)
        with trace_in_progress(None):
            return self.run(part)


class GraphBreakSegmentTrees:
    """The trees of one function. bound: how many plans they may keep, but for those of the call in progress."""

    def __init__(self, bound: int) -> None:
        self.bound = bound
        self._entries: weakref.WeakSet[SegmentedCall] = weakref.WeakSet()
        self._limit = 1.0

    def add(self, entry: SegmentedCall) -> None:
        self._entries.add(entry)

    def make_room_for_segments(self, path: Sequence[Segment]) -> None:
        """What was not used lately makes room, but for this call's parts so far."""
        if self._used_share_of_segment_room() < self._limit:
            return
        before = 0
        while self._used_share_of_segment_room() >= 1 and before != (before := sum(e.parts for e in self._entries)):
            times = sorted(part.last for e in self._entries for part in e.tree())
            for entry in self._entries:
                entry.thin(path, times[len(times) // 2])
        self._limit = max(1, 2 * self._used_share_of_segment_room())  # a call may be longer than what is kept

    def _used_share_of_segment_room(self) -> float:
        """Of the room that there is."""
        return max(sum(e.plans for e in self._entries) / self.bound, sum(e.parts for e in self._entries) / MANY_PARTS)


class SegmentedCall(Launcher):
    """An entry that runs a call in parts. parts, plans: how many of them the tree holds."""

    __slots__ = (
        "__weakref__", "_cache", "_guards", "_lock", "_make", "_name", "_trace", "_trees", "_warned", "finish", "parts",
        "plans", "root",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        make: Make,
        trace: Callable[[GraphBreakValueReader], TracedFunction | frozenset[int]],
        finish: Callable[[Trace, Segment], TracedFunction],
        lock: threading.RLock,
        guards: GuardSet,
        trees: GraphBreakSegmentTrees,
    ) -> None:
        """make: what runs a part. trace: the function, traced with a reader. finish: a part that is complete. trees:
        all those of the function, this one from now on among them."""
        super().__init__(self._run_segments, "", GuardSet(()))
        self._name, self._make, self._trace, self.finish, self._lock = name, make, trace, finish, lock
        self._guards: dict[Hashable, Guard] = {}
        self._cache: dict[Hashable, Launcher] = {}
        self.root: Segment | None = None
        self.parts = self.plans = 0
        self._trees = trees
        self._warned: set[str] = set()
        trees.add(self)
        self.watch(guards.rows)

    def _run_segments(self, leaves: Sequence[Any], places: Sequence[int], caller: Sequence[Any] = ()) -> Any:
        if any(stream.capturing for stream in caller):
            raise ArgumentsError(f"{self._name} reads values of arrays, which a graph in the making does not have yet")
        part = self.root
        kept: list[Array] = []
        path: list[tuple[Segment, Answer]] = []
        while part is not None:
            found = self._run_one_segment(part, leaves, kept, places, caller)
            if not part.line:
                return found
            answer, kept = found
            path.append((part, answer))
            part = part.children.get(_segment_key_of_host_answer(answer))
        with self._lock:
            return self._trace_next_segment(leaves, places, path, kept, caller)

    def _run_one_segment(
        self, part: Segment, leaves: Sequence[Any], kept: Sequence[Array], places: Sequence[int], caller: Sequence[Any]
    ) -> Any:
        """The call's result, or the answer to what is asked and what is kept."""
        assert part.entry is not None
        start = part.last = time.perf_counter()
        found = part.entry.run([*leaves, *kept], places)
        if type(found) is FailedCall:  # what was assigned before it is in place
            raise found.error
        if not part.line:
            return found
        values = [array.numpy() for array in found[: part.count]]
        lasting = [found[i] if i >= 0 else kept[-1 - i] for i in part.kept]
        answer: Answer = values[0]
        if part.function is not None:
            try:
                answer, arrays = _segment_result_on_device(part.function(values), found[0]._device)
                lasting += arrays
            except Exception as error:  # the function may catch it, or have assigned to arguments before it
                answer = HostError(error)
        part.reads += 1
        part.seconds += time.perf_counter() - start
        return answer, lasting

    def _trace_next_segment(
        self,
        leaves: Sequence[Any],
        places: Sequence[int],
        path: list[tuple[Segment, Answer]],
        kept: Sequence[Array],
        caller: Sequence[Any],
    ) -> Any:
        """The rest of a call that has come to a value not known yet."""
        last = path[-1] if path else None
        held = list(kept)
        passed = [part for part, _ in path]
        error: Exception | None = None

        def run_new_segment(part: Segment) -> Any:
            nonlocal last, held
            assert part.captured is not None
            self.watch(part.captured.guards.rows)
            self._trees.make_room_for_segments(passed)
            part.entry = self._launcher_of_segment(part.captured, [*leaves, *held])
            if error is not None:
                part.entry = failing_launcher(part.entry, error)
            self._attach_segment(part, last)
            passed.append(part)
            found = self._run_one_segment(part, leaves, held, places, caller)
            if not part.line:
                return found
            answer, held = found
            last = part, answer
            return answer

        try:
            final = self._trace(LiveSegmentTrace(self, path, run_new_segment))
        except ReplayMismatch:
            self._forget_segments()
            return self._trace_next_segment(leaves, places, [], [], caller)
        except UnfinishedFunction as unfinished:
            final, error = unfinished.captured, unfinished.error
        if isinstance(final, frozenset):
            raise Respecialise  # from now on with its numbers known
        part = Segment()
        part.captured = final
        return run_new_segment(part)

    def _forget_segments(self) -> None:
        self.root, self.parts, self.plans = None, 0, 0
        self._cache.clear()

    def tree(self) -> list[Segment]:
        """All parts, each behind the one that leads to it."""
        found = [] if self.root is None else [self.root]
        for part in found:  # it grows
            found += part.children.values()
        return found

    def thin(self, path: Sequence[Segment], since: float) -> None:
        """Drop the parts not used since a time, but for those of a path."""
        stays = {*map(id, path)}
        for part in reversed(self.tree()):
            part.children = {k: c for k, c in part.children.items() if id(c) in stays}
            if part.last >= since or part.children:
                stays.add(id(part))
        if id(self.root) not in stays:
            self.root = None
        kept = self.tree()
        plans = {id(part.entry) for part in kept}
        self.parts, self.plans = len(kept), len(plans)
        self._cache = {k: e for k, e in self._cache.items() if id(e) in plans}

    def _attach_segment(self, part: Segment, last: tuple[Segment, Answer] | None) -> None:
        self.parts += 1
        if last is None:
            self.root = part
            return
        above, answer = last
        above.children[_segment_key_of_host_answer(answer)] = part
        if len(above.children) > MANY_VALUES and above.line not in self._warned:
            self._warned.add(above.line)
            warn_user(
                f"{self._name} was traced for more than {MANY_VALUES} values read at {above.line}; write np.where, or "
                "a comparison, so that few values decide"
            )

    def _launcher_of_segment(self, captured: TracedFunction, leaves: Sequence[Any]) -> Launcher:
        """What runs a part; the parts of a loop share one. Raises PlanError for what is not of the types that the part
        was traced for."""
        for feed, number in zip(captured.feeds, captured.graph.inputs, strict=False):
            if array_type_of(leaves[feed]) != (wanted := captured.graph.nodes[number].type):
                raise PlanError(
                    f"a part of {self._name} was traced for {wanted} and is given {array_type_of(leaves[feed])}"
                )
        kinds = tuple((type(x), x._spec if type(x) is Array else None) for x in leaves)
        arrays = tuple(map(id, captured.arrays))
        key = (
            captured.graph,
            captured.feeds,
            captured.tree,
            repr(captured.results),
            captured.text,
            arrays,
            kinds,
            captured.watched,
        )
        found = self._cache.get(key)
        if found is None or captured.assigned or captured.uses_holders:
            found = self._cache[key] = self._make(captured, leaves)
            self.plans += 1
        return found

    def watch(self, rows: Sequence[Guard]) -> None:
        """More that must be as it was for any part to serve a call."""
        before = len(self._guards)
        for row in rows:
            self._guards.setdefault((id(row.holder), row.how, row.key), row)
        if len(self._guards) != before:
            self.guards = GuardSet([*self._guards.values()])

    def lines(self) -> Iterator[str]:
        """Each line that splits the function: what is read there, which values, and what a read costs."""
        found: dict[str, list[Segment]] = {}
        parts = self.tree()
        for part in parts:
            if part.line:
                found.setdefault(part.line, []).append(part)
        yield f"{len(parts)} parts so far, split at {len(found)} lines"
        for line, parts in found.items():
            reads, seconds = sum(p.reads for p in parts), sum(p.seconds for p in parts)
            values = Counter(_segment_text_of_host_answer(key) for p in parts for key in p.children)
            shown = ", ".join(f"{v} in {n}" for v, n in values.most_common(MANY_VALUES))
            more = ", ..." if len(values) > MANY_VALUES else ""
            mean = f"{seconds / reads * 1e6:.0f} us each" if reads else "not run"
            yield f"split at {line}: {parts[0].type} read in {len(parts)} parts ({shown}{more}); {reads} reads, {mean}"


class CallWithKeptOrders(Launcher):
    """An entry that runs a call in two parts: what it makes of its indices alone is kept with these arrays."""

    __slots__ = ("__weakref__", "_count", "_device", "_kept", "_orders", "_rest", "_which")

    def __init__(self, orders: Launcher, rest: Launcher, count: int, which: Sequence[int], device: Device) -> None:
        """orders: gives what `rest` takes behind the `count` leaves of a call. which: the leaves that it reads."""
        super().__init__(self._run, rest.text, rest.guards, rest.assigned, self._fast, rest.uses_holders, True)
        self.caught = rest.caught
        self._orders, self._rest, self._count, self._which, self._device = orders, rest, count, which, device
        self._kept = MadeOfMemory()

    def _run(self, leaves: Sequence[Any], places: Sequence[int], caller: Sequence[Any] = ()) -> Any:
        given = [*leaves[: self._count]]
        for i in self._which:
            given[i] = array_before_change(given[i]) if type(given[i]) is Array else given[i]
        memories = [given[i]._memory for i in self._which]
        lasts = not caller and all(map(self._device.owns, memories))
        made = self._kept.find(memories) if lasts else None
        if made is None:
            made = self._orders.run(given, places, caller)
            if lasts:
                self._kept.keep(memories, made)
        return self._rest.run([*leaves[: self._count], *made], places, caller)

    def _fast(self, leaves: Sequence[Any], caller: int = 0) -> Any:
        try:
            given = [leaves[i] for i in self._which]
            made = None if caller else self._kept.find([x._memory for x in given if type(x) is Array])
        except (IndexError, TypeError):  # other leaves
            return NOT_TAKEN
        return NOT_TAKEN if made is None else self._rest.fast((*leaves, *made))


def _segment_result_on_device(result: Any, device: Device) -> tuple[HostResult, list[Array]]:
    """What a Python function gave, and the arrays in it on the device."""
    leaves: list[Any] = []
    tree = flatten(result, leaves)
    arrays = []
    for i, x in enumerate(leaves):
        if isinstance(x, np.ndarray):
            array = from_numpy(x, device)
            leaves[i] = array._spec.type
            arrays.append(array)
    return HostResult(tree, tuple(leaves)), arrays


def _segment_key_of_host_answer(answer: Answer) -> Hashable:
    if not isinstance(answer, np.ndarray):
        return answer.key
    return answer.dtype.str, answer.shape, answer.tobytes()


def _segment_text_of_host_answer(key: Any) -> str:
    if isinstance(key[0], Tree):
        return "(" + ", ".join(str(x) if type(x) is ArrayType else x[1] for x in key[1]) + ")"
    if isinstance(key[0], type):
        return str(key[1])
    dtype, shape, data = key
    value = np.frombuffer(data, dtype).reshape(shape)
    return str(value[()]) if value.ndim == 0 else f"{value.dtype}{list(shape)} of {value.size} values"
