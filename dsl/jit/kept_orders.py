"""A call in two parts: what it makes of its indices alone is kept with these arrays, and runs once for each of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...runtime.program.device import Device
from ..array.array import Array
from ..array.made_of import MadeOfMemory
from .launcher import NOT_TAKEN, Launcher


class CallWithKeptOrders(Launcher):
    """`orders` gives what `rest` takes behind the leaves of the call; which: the leaves that it makes that of."""

    __slots__ = ("__weakref__", "_device", "_kept", "_orders", "_rest", "_which")

    def __init__(self, orders: Launcher, rest: Launcher, which: Sequence[int], device: Device) -> None:
        super().__init__(self._run, rest.text, rest.guards, rest.assigned, self._fast, rest.uses_holders, True)
        self.caught = rest.caught
        self._orders, self._rest, self._which, self._device = orders, rest, which, device
        self._kept = MadeOfMemory()

    def _run(self, leaves: Sequence[Any], places: Sequence[int], caller: Sequence[Any] = ()) -> Any:
        given = [leaves[i] for i in self._which]
        memories = [array._memory for array in given]
        lasts = not caller and all(type(x) is Array and self._device.owns(x._memory) for x in given)
        made = self._kept.find(memories) if lasts else None
        if made is None:
            made = self._orders.run(leaves, places, caller)
            if lasts:
                self._kept.keep(memories, made)
        return self._rest.run([*leaves, *made], places, caller)

    def _fast(self, leaves: Sequence[Any], caller: int = 0) -> Any:
        try:
            given = [leaves[i] for i in self._which]
            made = None if caller else self._kept.find([x._memory for x in given if type(x) is Array])
        except (IndexError, TypeError):  # other leaves
            return NOT_TAKEN
        return NOT_TAKEN if made is None else self._rest.fast((*leaves, *made))
