"""A plan over several devices: plans of one device each, and copies of values between. Plain data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ..core.frozen import dataclass, field
from .plan import Plan
from .report import Report


@dataclass(frozen=True, slots=True)
class DeviceValue:
    """An array in memory of its own on a device, written once in a call. device: a place in the plan's devices. source:
    the number of the call's array that fills it before the first step; -1 for what a step writes."""

    nbytes: int
    device: int
    source: int = -1


@dataclass(frozen=True, slots=True)
class RunPart:
    """Run plan `part` on a device. reads, writes: the values that are its program's inputs and outputs, in order.
    scalars: which of the call's numbers are the program's."""

    part: int
    device: int
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    scalars: tuple[int, ...] = ()

    def __str__(self) -> str:
        reads, writes = (", ".join(f"v{v}" for v in values) for values in (self.reads, self.writes))
        return f"run p{self.part} on d{self.device}: {writes} <- {reads}"


@dataclass(frozen=True, slots=True)
class CopyValue:
    """Copy a value to another device, as another value."""

    source: int
    target: int

    def __str__(self) -> str:
        return f"copy v{self.target} <- v{self.source}"


@dataclass(frozen=True, slots=True)
class Collective:
    """What this rank and all others do together: each has `reads` and gets `writes`, as contiguous arrays of a dtype.

    op: a method of World. counts: elements of each read; how: the operation of a reduction; root, pairs: of ranks. A
    reduction of several values is one message. line: the user's; meanings: for each read the user's collective, in
    words, on which all ranks must agree. devices: so many of this plan are ranks; then reads
    and writes are those of the first, of the second, and so on. groups: of ranks, each of which does it apart; none for
    all together."""

    op: str
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    counts: tuple[int, ...]
    dtype: str
    how: str = ""
    root: int = 0
    pairs: tuple[tuple[int, int], ...] = ()
    line: str = field(default="", compare=False)
    devices: int = 1
    meanings: tuple[str, ...] = field(default=(), compare=False)
    groups: tuple[tuple[int, ...], ...] = ()

    def __str__(self) -> str:
        reads, writes = (", ".join(f"v{v}" for v in values) for values in (self.reads, self.writes))
        return f"{writes} <- {self.meaning} of {reads}"

    def of_device(self, values: Sequence[Any], device: int) -> Sequence[Any]:
        """Of reads or writes, or of what belongs to each, those of a device."""
        each = len(self.counts)
        return values[device * each : (device + 1) * each]

    @property
    def meaning(self) -> str:
        """What ranks exchange, in words."""
        detail = self.how or (f"from {self.root}" if self.op == "broadcast" else "")
        if self.op == "permute":
            detail = " ".join(f"{a}->{b}" for a, b in self.pairs)
        sizes = "+".join(map(str, self.counts))
        groups = f" in groups {' '.join(map(str, self.groups))}" if self.groups else ""
        return f"{self.op}{f' {detail}' if detail else ''} {self.dtype}[{sizes}]{groups}"

    def written_count(self, number: int, size: int) -> int:
        """Elements of a write, in a world of so many ranks."""
        count = self.counts[number]
        size = len(self.groups[0]) if self.groups else size
        return count * size if self.op == "all_gather" else count // size if self.op == "reduce_scatter" else count


DeviceStep = RunPart | CopyValue | Collective


@dataclass(frozen=True, slots=True)
class MultiDevicePlan:
    """Steps in issue order. A step starts when the values that it reads are written, and waits for nothing else.

    Each part is a plan of its own device: its streams, events and arena are there. outputs: values, in the order of the
    call's results. A value's memory goes back when all steps of the call are over. ranks: how many processes run this
    plan, each its own copy, and meet in its collectives, in the order of the steps. exchanged_by: what does these.
    axes: along which the ranks' arguments and results lie. reads_peers: parts read values in other devices' memory.
    """

    devices: tuple[tuple[str, int], ...]
    values: tuple[DeviceValue, ...]
    parts: tuple[Plan, ...]
    steps: tuple[DeviceStep, ...]
    outputs: tuple[int, ...]
    name: str = "plan"
    ranks: int = 1
    exchanged_by: str = field(default="", compare=False)
    axes: str = field(default="", compare=False)
    reads_peers: bool = False
    predicted: float = field(default=0.0, compare=False)
    report: Report | None = field(default=None, compare=False, repr=False)

    @property
    def copied_bytes(self) -> int:
        """What a call moves between devices, beside its arguments."""
        return sum(self.values[s.target].nbytes for s in self.steps if isinstance(s, CopyValue))

    @property
    def meeting(self) -> int:
        """How many meet in a collective: ranks, or the devices of this process."""
        return self.ranks if self.ranks > 1 else len(self.devices)

    @property
    def collectives(self) -> list[Collective]:
        return [s for s in self.steps if isinstance(s, Collective)]

    def peak_bytes(self, device: int) -> int:
        """Bytes that one call needs on a device: values, and the arenas of the parts that run there."""
        values = sum(v.nbytes for v in self.values if v.device == device)
        return values + sum(
            self.parts[s.part].arena_bytes for s in self.steps if isinstance(s, RunPart) and s.device == device
        )

    def lines(self) -> Iterator[str]:
        names = ", ".join(f"d{i} {kind}:{number}" for i, (kind, number) in enumerate(self.devices))
        runs = sum(isinstance(s, RunPart) for s in self.steps)
        met = len(self.collectives)
        copies = len(self.steps) - runs - met
        ranks = f", {met} collectives" if met or self.ranks > 1 else ""
        ranks += f" of {self.ranks} ranks" if self.ranks > 1 else ""
        ranks += f" by {self.exchanged_by}" if self.exchanged_by else ""
        yield f"plan {self.name} on {names}: {runs} runs, {copies} copies of {self.copied_bytes} bytes{ranks}"
        yield from (f"  {step}" for step in self.steps)
        for number, value in enumerate(self.values):
            given = f", argument {value.source}" if value.source >= 0 else ""
            yield f"  v{number} on d{value.device}, {value.nbytes} bytes{given}"
        for number, part in enumerate(self.parts):
            yield from (f"  p{number} {line}" if not i else f"  {line}" for i, line in enumerate(part.lines()))
        yield "  return " + ", ".join(f"v{v}" for v in self.outputs)

    def __str__(self) -> str:
        return "\n".join(self.lines())
