"""What a trace may need of the user's objects before the call goes on; the call is then made again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ..core.errors import is_refusal
from ..core.object_journal import ObjectJournal
from ..trace.trace import TraceRestart
from .guards import GuardSet


class NeedCachedProperty(TraceRestart):
    """The trace needs a cached property of an object, computed by Python and kept there."""

    guards = GuardSet(())  # that it is needed
    known: frozenset[int] = frozenset()  # the leaves whose values decided that

    def __init__(self, holder: Any, member: Any) -> None:
        """holder: the object, or its number among what is opened in the arguments. member: what its class has."""
        super().__init__()
        self.holder, self.member = holder, member

    def raise_again(self, *_: Any) -> Any:
        """For the next call of this kind."""
        raise NeedCachedProperty(self.holder, self.member)

    @contextmanager
    def computed(self, holders: Sequence[Any]) -> Iterator[None]:
        """The property is in the object; it is taken out again where the call is refused."""
        holder = holders[self.holder] if type(self.holder) is int else self.holder
        before = ObjectJournal()
        before.note_all_within(holder)
        self.member.__get__(holder, type(holder))
        try:
            yield
        except BaseException as error:
            if is_refusal(error):
                before.undo()
            raise


class NeedOpenedArguments(TraceRestart):
    """The call is made again with its arguments opened, or with other parts of them."""

    def __init__(self, attributes: frozenset[str] | None = frozenset(), told_apart: type | None = None) -> None:
        """attributes: the names of those that are read, None for all. told_apart: a class whose objects are."""
        super().__init__()
        self.attributes, self.told_apart = attributes, told_apart
