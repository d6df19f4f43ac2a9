"""What calls have made of the values in some memory alone, kept for as long as that memory lives and holds them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any
from weakref import WeakKeyDictionary, WeakSet, ref


class MadeOfMemory:
    """What one compiled call makes of memories: of each first one the others, and what was made."""

    def __init__(self) -> None:
        self._kept: WeakKeyDictionary[Any, tuple[list[ref[Any]], Any]] = WeakKeyDictionary()
        _alive.add(self)

    def find(self, memories: Sequence[Any]) -> Any:
        """What was made of them; None where that is not there."""
        found = self._kept.get(memories[0])
        if found is None or [other() for other in found[0]] != [*memories[1:]]:
            return None
        return found[1]

    def keep(self, memories: Sequence[Any], made: Any) -> None:
        """Remember what was made of memories that nobody writes to again."""
        if _rewritten.isdisjoint(memories):
            self._kept[memories[0]] = [ref(memory) for memory in memories[1:]], made

    def forget(self) -> bool:
        """Let all go; whether there was any."""
        kept, self._kept = self._kept, WeakKeyDictionary()
        return bool(kept)


_alive: WeakSet[MadeOfMemory] = WeakSet()
_rewritten: WeakSet[Any] = WeakSet()
_lent: WeakSet[Any] = WeakSet()


def forget_all_made_of_memory() -> bool:
    """Let all go that was made of arrays; whether there was any. Calls make it again."""
    return any([made.forget() for made in [*_alive]])


def note_memory_is_rewritten(memories: Iterable[Any]) -> None:
    """Others may write to these at any time: another library, or a graph that is launched again."""
    _rewritten.update([memory for memory in memories if hasattr(memory, "__weakref__")])
    forget_all_made_of_memory()


def lend_memory(memory: Any) -> bool:
    """Whether several arrays may have this memory from now on: nobody can write to it."""
    if hasattr(memory, "streams") or memory in _rewritten:
        return False
    _lent.add(memory)
    return True


def is_memory_lent(memory: Any) -> bool:
    """Whether `lend_memory` has let several arrays have it."""
    return memory in _lent
