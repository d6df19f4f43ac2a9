"""Why two kernels are not one: for each array that passes between them through memory, the rule that parted them."""

from __future__ import annotations

from ...runtime.core.frozen import dataclass

# Why a kernel loads what another one has stored. `amount` and `limit` are what was compared, where numbers decide.
RULES = {
    "library result": "a library call makes it",
    "library argument": "a library call reads it",
    "control flow": "it crosses the border of a loop or branch",
    "assembled": "it is made of parts that are written to its memory",
    "computed index": "it is read at computed indices",
    "reshaped": "it is read in another order than it is computed in",
    "nodes": "the kernel would compute more than {limit:.0f} nodes",
    "stores": "the kernel would store more than {limit:.0f} arrays",
    "loads": "the kernel would load more than {limit:.0f} arrays",
    "domain": "the kernels run over different shapes",
    "axes": "the kernels reduce different axes",
    "cycle": "a step that needs the one and feeds the other lies between them",
    "recompute": "computing it again there costs {amount:.0f} flops an element, loading it as much as {limit:.0f}",
    "recompute everywhere": "computing it wherever it is used is worth {amount:.0f} bytes, storing it {limit:.0f}",
    "long rows": "its rows of {amount:.0f} elements are too long, few or far apart to be read twice in one kernel",
    "partial": "the kernel that reads it does not compute each of its elements exactly once",
    "stored anyway": "another kernel stores it anyway",
}
LIMITS = ("nodes", "stores", "loads")  # of one kernel


@dataclass(frozen=True, slots=True)
class Reason:
    """A rule of `RULES`, and the numbers that it compared."""

    rule: str
    amount: float = 0.0
    limit: float = 0.0

    def __str__(self) -> str:
        return RULES[self.rule].format(amount=self.amount, limit=self.limit)


@dataclass(frozen=True, slots=True)
class Cut:
    """A node that group `writer` stores and group `reader` loads, and why they are not one kernel."""

    node: int
    writer: int
    reader: int
    reason: Reason

    def __str__(self) -> str:
        return f"%{self.node} from g{self.writer} to g{self.reader}: {self.reason}"
