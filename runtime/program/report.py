"""Why a plan is as it is: candidates, choice and cost. The cost is in waits, records and bytes. Plain data."""

from __future__ import annotations

from collections.abc import Iterator

from ..core.frozen import frozen


@frozen
class SyncCount:
    """Event records and event waits."""

    records: int = 0
    waits: int = 0

    def __str__(self) -> str:
        return f"{self.records} records, {self.waits} waits"


@frozen
class Candidate:
    """One assignment of tasks to streams, with the predicted makespan in microseconds.

    inner: its records and waits, before join points.
    """

    name: str
    streams: int
    inner: SyncCount
    predicted: float

    def __str__(self) -> str:
        return f"{self.name}: {self.streams} streams, {self.inner}, predicted {self.predicted:.1f} us"


@frozen
class AddedDependence:
    """An order of two tasks added to save memory. `cost` is by how many microseconds it lengthens the critical path."""

    before: int
    after: int
    cost: float

    def __str__(self) -> str:
        return f"t{self.before} before t{self.after} (+{self.cost:.1f} us)"


@frozen
class Report:
    """What the scheduler decided for one plan.

    width: the most tasks that could run side by side (Dilworth); None where the program was too large to say.
    inner: between the plan's tasks. entry, exit: to fork from a caller's stream and to join back to it (a call without
    one needs neither; the exit waits for the outputs' own events, see `plan_boundary`). completion: what those need
    beyond `inner`.
    crossing: the events of a scheduler that records one for every dependence between two streams.
    critical_path: microseconds of the longest chain of tasks. live: a lower bound of the arena, the most bytes open
    at one task. added: the orders that `memory="small"` added. joins: join points among the tasks.
    """

    width: int | None
    streams: int
    inner: SyncCount
    entry: SyncCount
    exit: SyncCount
    completion: SyncCount
    crossing: int
    critical_path: float
    candidates: tuple[Candidate, ...]
    chosen: str
    reason: str
    memory: str
    arena: int
    live: int
    added: tuple[AddedDependence, ...] = ()
    joins: int = 0

    def lines(self) -> Iterator[str]:
        width = "unknown" if self.width is None else self.width
        yield f"width {width}, {self.streams} streams, critical path {self.critical_path:.1f} us"
        yield f"inner {self.inner} ({self.joins} join points; {self.crossing} with one event per crossing edge)"
        yield f"entry {self.entry}; exit {self.exit}; completion {self.completion}"
        for candidate in self.candidates:
            yield f"{'*' if candidate.name == self.chosen else ' '} {candidate}"
        yield f"chosen: {self.chosen}, {self.reason}"
        yield f"memory {self.memory}: arena {self.arena} bytes"
        yield from (f"added for memory: {edge}" for edge in self.added)

    def __str__(self) -> str:
        return "\n".join(self.lines())
