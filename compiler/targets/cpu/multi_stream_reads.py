"""Where the copies of an unrolled loop over a long stretch of memory are: in SECTIONS parts of it, read side by side.

A core that reads one place after another waits for memory it could have asked for: each stream of reads has a few
misses under way, and starts anew at each page. Four streams read a quarter more than one (measured), if they do not
lie a power of two apart, where they would meet in the same sets of the caches. A short stretch, which the caches hold,
is read from front to back. The order of a sum depends on the stretch's length alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from ....runtime.core.frozen import dataclass
from .llvm_ir import LlvmValue

SECTIONS = 4
LONG = 1 << 17  # elements of a stretch that is read in sections
PAGE = 1024  # elements: a section is whole pages and
SKEW = 320  # these


@dataclass(frozen=True)
class ReadSections:
    """The loop is for position in range(start, end, advance), its copies at position + offsets[copy]; rest: where what
    no copy does begins."""

    end: LlvmValue
    advance: LlvmValue
    offsets: Sequence[LlvmValue]
    rest: LlvmValue


def split_into_sections(start: LlvmValue, stop: LlvmValue, wide: int, copies: int) -> ReadSections:
    """For [start, stop) in vectors of `wide` lanes; copies: a multiple of SECTIONS."""
    f, per = start.f, copies // SECTIONS
    unit = wide * per
    length = stop - start
    long = length.compare("uge", LONG)
    skew = -(-SKEW // unit) * unit
    size = ((length.binary("lshr", SECTIONS.bit_length() - 1) - skew) & -max(PAGE, unit)) + skew
    whole = length & -(wide * copies)
    apart = long.pick(size, unit)
    return ReadSections(
        end=start + long.pick(size, whole),
        advance=long.pick(unit, f.const(wide * copies, "i64")),
        offsets=[apart * (copy // per) + wide * (copy % per) for copy in range(copies)],
        rest=start + long.pick(size * SECTIONS, whole),
    )
