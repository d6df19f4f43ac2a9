"""A place in the trace to which a loop can go back: what was traced since then counts as if it had never been."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any
from weakref import WeakValueDictionary

from ..core.errors import Refusal
from ..trace.trace import Trace
from ..trace.tracer import Tracer
from .effects import Journal

_GROWING = ("watched", "refusals", "errors", "index_checks", "host_calls")  # lists that only get longer
_SETS = ("assigned", "shared", "may_raise", "half_bound")
_FIELDS = ("depth", "loops", "handlers", "printed_line", "restart", "recorder", "turn", "walked_values")


class Savepoint(Journal):
    """What names, containers, objects, arrays and the trace held when it was made. Nodes stay: nobody uses them."""

    made: Any

    def __init__(self, trace: Trace, functions: Iterable[Callable[..., Any]]) -> None:
        self.trace, self.around = trace, trace.journal
        self.refusals = len(trace.refusals)
        self.lengths = [(held, len(held)) for held in (getattr(trace, name) for name in _GROWING)]
        sets = [*(getattr(trace, name) for name in _SETS), *trace.chosen.notes]
        self.sets = [(held, held.copy()) for held in sets]
        self.fields = [(name, getattr(trace, name)) for name in _FIELDS]
        self.lists = [(held, [*held]) for held in (trace.path, trace.loop_failures)]
        self.path, self.is_reversible, walked = trace.path, True, trace.walked_values
        try:
            super().__init__(functions)
        except Refusal:  # of iterators that cannot be put back
            del trace.refusals[self.refusals :]
            self.is_reversible = False
        trace.walked_values = walked
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
        trace = self.trace
        trace.journal = self.around
        if len(trace.refusals) > self.refusals:  # what is refused once may not be refused again
            return False
        if not self.is_reversible or self.has_changed_others():
            return False
        self.undo()
        for held, length in self.lengths:
            del held[length:]
        for held, before in self.sets:
            held.clear()
            held.update(before)
        trace.path = self.path
        for held, items in self.lists:
            held[:] = items
        for name, value in self.fields:
            setattr(trace, name, value)
        return True
