"""Values that a store keeps by key: a push changes all of its values or, where anything fails, none.

A push makes new arrays and changes none in place, so what was there before is kept until it is known that no work of
the push has failed. Where some has, later than the push, what it made is taken back, and the pushes after it are done
again without it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ...runtime.core.frozen import frozen
from ...runtime.program.device import Device, Event, error_of_event
from ..array.array import Array
from ..devices.mesh import Sharded

Key = int | str
Part = tuple[Key, int]  # a key, and the number of a piece of its array


@frozen
class StoredValue:
    """A value, the updater's states of it, and how often it has updated the value. copies: the value and the states on
    each device of a mesh, where a push has left them there."""

    value: Array
    states: tuple[Array, ...] = ()
    count: int = 0
    copies: tuple[Sharded, ...] = ()

    def value_on(self, device: Device | None) -> Array:
        """The value, if it is there, on a device; else where it is."""
        if self.copies and self.value._device is not device:
            return next((x for x in self.copies[0].parts if x._device is device), self.value)
        return self.value


@frozen
class StorePush:
    """What was pushed (a tuple of arrays as their sum), what was stored before, what is stored after it, and what the
    pushed arrays were made of. events: of the push's work that was not known to be over."""

    pushed: Mapping[Part, Any]
    before: Mapping[Part, StoredValue]
    after: Mapping[Part, StoredValue]
    sources: Sequence[Array]
    events: Sequence[Event]

    def read_failure(self) -> Exception | None:
        """Wait for all work of the push; the first error of it. All of its errors count as read then."""
        errors: list[Exception] = []
        for event in self.events:
            try:
                event.wait()
            except Exception as error:
                errors.append(error)
        return errors[0] if errors else None


def _store_push(
    pushed: Mapping[Part, Any],
    before: Mapping[Part, StoredValue],
    after: Mapping[Part, StoredValue],
    sources: Sequence[Array],
) -> StorePush:
    """What is pushed has events that count too, since an updater need not read it, and they come first: sums over ranks
    are done by who waits for them."""
    arrays = [*sources]
    for given in pushed.values():
        arrays += given if type(given) is tuple else [given] if isinstance(given, Array) else []
    for stored in after.values():
        arrays += [x for copies in stored.copies for x in copies.parts] or [stored.value, *stored.states]
    events = dict.fromkeys([x._event for x in arrays if x._event is not None])
    return StorePush(pushed, before, after, sources, [*events])


Update = Callable[[Part, Any, StoredValue], StoredValue]


class StoredValues:
    """What a store keeps on this rank."""

    def __init__(self, update: Update) -> None:
        """update(part, pushed, stored): what is stored after a push of a part; it changes none of the arrays."""
        self._update = update
        self._stored: dict[Part, StoredValue] = {}
        self._pushes: deque[StorePush] = deque()  # which may still fail, in their order
        # the pushes that were taken back, or what they raised, for whoever reads the parts
        self._failures: dict[Part, StorePush | Exception] = {}

    def __contains__(self, part: Part) -> bool:
        return part in self._stored

    @property
    def may_fail(self) -> bool:
        """Whether some push has failed, or still may."""
        return bool(self._pushes or self._failures)

    def set_update(self, update: Update) -> Update:
        """Another way to update, without states; the one before is the result."""
        before = self._update
        self.settle()
        self._update = update
        self._stored = {part: StoredValue(stored.value) for part, stored in self._stored.items()}
        return before

    def replace(self, values: Mapping[Part, StoredValue]) -> None:
        """Store values whatever was there."""
        self.settle()
        self._stored.update(values)

    def push(self, pushed: Mapping[Part, Any], sources: Sequence[Array] = ()) -> None:
        """Update parts with what is pushed. sources: what that was made of, whose failures are those of the push.
        Raises what the updater raises, and nothing has changed then."""
        if self._pushes:
            self._settle_finished_pushes()
        try:
            self._push_now(pushed, sources)
        except Exception:
            earlier = bool(self._pushes)
            self.settle()
            if earlier:  # what was raised may be the error of a push before
                self._push_now(pushed, sources)
                return
            _store_push(pushed, {}, {}, sources).read_failure()
            raise

    def latest(self, part: Part) -> StoredValue:
        """What is stored when all pushes so far are over, if none of them fails."""
        return self._stored[part]

    def settled(self, part: Part) -> StoredValue:
        """What is stored, once no push of the part can fail any more. Raises, once, what one has failed with."""
        if self.may_fail:
            while any(part in push.after for push in self._pushes):
                self._settle_oldest_push()
            self.raise_failure((part,))
        return self._stored[part]

    def settle(self) -> None:
        """Wait until no push can fail any more."""
        while self._pushes:
            self._settle_oldest_push()

    def raise_failure(self, parts: Iterable[Part]) -> None:
        """Raises, once, what a push of some of these parts has failed with, which was taken back."""
        self._settle_finished_pushes()
        failure = next((self._failures[part] for part in parts if part in self._failures), None)
        if failure is not None:
            self._failures = {part: other for part, other in self._failures.items() if other is not failure}
            error = failure.read_failure() if isinstance(failure, StorePush) else failure
            assert error is not None
            raise error

    def clear(self) -> None:
        """Keep nothing."""
        for values in (self._stored, self._pushes, self._failures):
            values.clear()

    def items(self) -> list[tuple[Part, StoredValue]]:
        """All that is stored, once no push can fail any more."""
        self.settle()
        return [*self._stored.items()]

    def _push_now(self, pushed: Mapping[Part, Any], sources: Sequence[Array]) -> None:
        stored, update = self._stored, self._update
        after = {part: update(part, given, stored[part]) for part, given in pushed.items()}
        push = _store_push(pushed, {part: stored[part] for part in pushed}, after, sources)
        if self._pushes or push.events:
            self._pushes.append(push)
        stored.update(after)

    def _settle_finished_pushes(self) -> None:
        while self._pushes and all(event.query() for event in reversed(self._pushes[0].events)):  # results' come last
            self._settle_oldest_push()

    def _settle_oldest_push(self) -> None:
        """Wait for the oldest push; one that has failed is taken back."""
        push = self._pushes[0]
        if all([error_of_event(event) is None for event in push.events]):
            self._pushes.popleft()
            return
        later = [*self._pushes]
        self._pushes.clear()
        for each in reversed(later):
            self._stored.update(each.before)
        self._failures |= dict.fromkeys(push.after, push)
        for each in later[1:]:
            try:
                self._push_now(each.pushed, each.sources)
            except Exception as error:
                self._failures |= dict.fromkeys(each.after, error)
