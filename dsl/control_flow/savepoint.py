"""A place in the trace to which a loop can go back: what was traced since then counts as if it had never been."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any
from weakref import WeakValueDictionary

from ..core.errors import Refusal
from ..core.object_journal import CONTENTS, Slot, attribute_lens
from ..trace.trace import Trace
from ..trace.tracer import Tracer
from .effects import Journal

_HELD = """
watched refusals errors index_checks host_calls path loop_failures assigned shared may_raise half_bound
"""  # what can get more
_FIELDS = "depth loops handlers printed_line restart recorder turn walked_values path"


class Savepoint(Journal):
    """What names, containers, objects, arrays and the trace held when it was made. Nodes stay: nobody uses them."""

    made: Any

    def __init__(self, trace: Trace, functions: Iterable[Callable[..., Any]]) -> None:
        self.trace, self.around = trace, trace.journal
        self.refusals, walked, self.is_reversible = len(trace.refusals), trace.walked_values, True
        try:
            super().__init__(functions)
        except Refusal:  # of iterators that cannot be put back
            del trace.refusals[self.refusals :]
            self.is_reversible = False
        trace.walked_values = walked
        held = [*(getattr(trace, name) for name in _HELD.split()), *trace.chosen.notes]
        self.note(Slot(each, CONTENTS) for each in held)
        self.note(Slot(trace, attribute_lens(name)) for name in _FIELDS.split())
        self.made = WeakValueDictionary()  # an array that takes a dead one's place was made later too
        trace.journal = self

    def may_detach(self, root: Tracer) -> bool:
        """Whether a view of an array may get memory of its own, which is not put back."""
        if id(root) in self.made:
            return True
        self.is_reversible = False
        return self.around is None or bool(self.around.may_detach(root))

    def close(self) -> None:
        """All that was traced since counts. The journal around learns of it."""
        self.trace.journal = self.around
        if self.around is not None:
            self.around.made.update(self.made)
            for root, old in self.written.values():
                if id(root) not in self.around.made:
                    self.around.written.setdefault(id(root), (root, old))

    def has_changed_others(self) -> bool:
        """Whether iterators have moved, or something else that cannot be put back has changed."""
        try:
            self.check_others_unchanged()
        except Refusal:
            del self.trace.refusals[-1]
            return True
        return False

    def go_back(self) -> bool:
        """Puts all back. Returns whether that was possible: else the function has to be traced again."""
        self.trace.journal = self.around
        if self.trace.caught_refusals(self.refusals):  # what is refused once may not be refused again
            return False
        if not self.is_reversible or self.has_changed_others():
            return False
        self.undo()
        return True
