"""`kg.KVStore`: values by key that devices push to and pull from, with the names and meanings of MXNet's KVStore."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..array.array import Array, asarray
from ..array.devices import name_of
from ..core.errors import ArgumentsError, DTypeError, OptionError, ShapeError
from ..jit.kernel_graph import KernelGraph
from .mesh import Sharded

KINDS = ("local", "device")
Key = int | str
Updater = Callable[[Any, Any, Any], Any]


class KVStore:
    """A store in this process. `local` sums what is pushed on the CPU, `device` on the device of the stored value.

    Calls on arrays of one kind of device return at once; a pull follows the pushes before it. priority: of no
    effect, since work starts as soon as what it reads is there.

        store = kg.KVStore("device")
        store.init("w", weights)
        store.push("w", [gradient0, gradient1])  # on two devices
        store.pull("w", out=[w0, w1])
    """

    def __init__(self, kind: str = "local") -> None:
        """Raises OptionError."""
        if kind not in KINDS:
            raise OptionError(f"kg.KVStore({kind!r}): write one of {', '.join(map(repr, KINDS))}")
        self.type = kind
        self._values: dict[Key, Array] = {}
        self._updater: Updater | None = None
        self._compiled: dict[Key, KernelGraph] = {}
        self._lock = threading.RLock()

    rank = 0  # of this process
    num_workers = 1

    def init(self, key: Any, value: Any) -> None:
        """Give keys their first values. key, value: one of each, or lists of both. Raises ArgumentsError."""
        for one, its in self._pairs(key, value, "init"):
            with self._lock:
                if one in self._values:
                    raise ArgumentsError(f"key {one!r} has a value already; push to it")
                first = its[0] if isinstance(its, (list, tuple)) else its
                self._values[one] = self._own(first)

    def push(self, key: Any, value: Any, priority: int = 0) -> None:
        """Join the arrays of a key (one, or a list of one from each device) by their sum, and give it to the updater;
        without one the sum is the key's new value. Raises ArgumentsError, ShapeError."""
        for one, its in self._pairs(key, value, "push"):
            with self._lock:
                stored = self._stored(one)
                joined = self._sum(one, stored, its)
                if self._updater is None:
                    self._values[one] = self._own(joined)
                else:
                    self._update(one, joined, stored)

    def pull(self, key: Any, out: Any = None, priority: int = 0) -> Any:
        """Copy the values of keys to arrays. out: an array of a key or a list of arrays; None: the values are the
        result, where they are stored."""
        if out is None:
            keys = key if isinstance(key, (list, tuple)) else [key]
            with self._lock:
                values = [self._stored(one) for one in keys]
            found = [_copied(name_of(one._device))(one) for one in values]
            return found if isinstance(key, (list, tuple)) else found[0]
        for one, its in self._pairs(key, out, "pull"):
            with self._lock:
                stored = self._stored(one)
                for target in its if isinstance(its, (list, tuple)) else [its]:
                    _assign(target, stored)
        return None

    def pushpull(self, key: Any, value: Any, out: Any = None, priority: int = 0) -> None:
        """`push`, then `pull` into `out`, or into what was pushed."""
        self.push(key, value, priority)
        self.pull(key, value if out is None else out, priority)

    def broadcast(self, key: Any, value: Any, out: Any, priority: int = 0) -> None:
        """`init`, then `pull` into `out`."""
        self.init(key, value)
        self.pull(key, out, priority)

    def set_updater(self, updater: Updater) -> None:
        """updater(key, pushed, stored) assigns to `stored`, e.g. `stored -= 0.1 * pushed`. It is compiled once for each
        key and kind of arrays."""
        if not callable(updater):
            raise ArgumentsError(f"set_updater takes a function of (key, pushed, stored), not {updater!r}")
        with self._lock:
            self._updater = updater
            self._compiled.clear()

    def _update(self, key: Key, joined: Array, stored: Array) -> None:
        made = self._compiled.get(key)
        if made is None:
            updater = self._updater
            assert updater is not None

            def update(pushed: Any, stored: Any) -> None:
                updater(key, pushed, stored)

            update.__name__ = getattr(updater, "__name__", "update")
            made = self._compiled[key] = KernelGraph(update, device=name_of(stored._device))
        made(joined, stored)

    def _sum(self, key: Key, stored: Array, given: Any) -> Array:
        """In the order of the list, whichever array is there first."""
        parts = list(given.parts) if isinstance(given, Sharded) else given
        parts = parts if isinstance(parts, (list, tuple)) else [parts]
        if not parts:
            raise ArgumentsError(f"nothing is pushed for key {key!r}")
        at = name_of(stored._device)
        moved: list[Array] = []
        for part in parts:
            if tuple(np.shape(part)) != stored.shape:
                raise ShapeError(f"key {key!r} has shape {stored.shape}, and an array of shape {np.shape(part)} comes")
            moved.append(asarray(part, device=at))
            if moved[-1].dtype != stored.dtype:
                raise DTypeError(f"key {key!r} has dtype {stored.dtype}, and an array of {moved[-1].dtype} comes")
        if len(moved) == 1:
            return moved[0]
        return _joined(at, len(moved))(moved)  # type: ignore[no-any-return]

    def _own(self, value: Any) -> Array:
        """A copy that nobody else has."""
        found = value.parts[0] if isinstance(value, Sharded) else value
        moved = asarray(found, device="cpu") if self.type == "local" else asarray(found)
        return _copied(name_of(moved._device))(moved) if moved is found else moved

    def _stored(self, key: Key) -> Array:
        try:
            return self._values[key]
        except KeyError:
            raise ArgumentsError(f"key {key!r} has no value; write store.init({key!r}, value)") from None

    @staticmethod
    def _pairs(keys: Any, values: Any, what: str) -> list[tuple[Key, Any]]:
        """Each key and what belongs to it. Raises ArgumentsError."""
        several = isinstance(keys, (list, tuple))
        if several and (not isinstance(values, (list, tuple)) or len(keys) != len(values)):
            raise ArgumentsError(f"{what} of {len(keys)} keys takes a list of as many values")
        pairs = list(zip(keys, values, strict=True)) if several else [(keys, values)]
        for key, _ in pairs:
            if not isinstance(key, (int, str)) or isinstance(key, bool):
                raise ArgumentsError(f"{key!r} is no key; write a string or a whole number")
        return pairs

    def __repr__(self) -> str:
        return f"<kvstore {self.type} of {len(self._values)} keys>"


@functools.cache
def _copied(device: str) -> KernelGraph:
    """A copy on a device, which may still be on its way."""

    def copied(x: Any) -> Any:
        return np.copy(x)

    return KernelGraph(copied, device=device)


@functools.cache
def _joined(device: str, count: int) -> KernelGraph:
    """The sum of so many arrays, on a device."""

    def joined(parts: Sequence[Any]) -> Any:
        return functools.reduce(np.add, parts)

    return KernelGraph(joined, device=device)


def _assign(target: Any, stored: Array) -> None:
    if isinstance(target, Sharded):
        for part in target.parts:
            _assign(part, stored)
    elif isinstance(target, Array):
        if target.shape != stored.shape or target.dtype != stored.dtype:
            raise ShapeError(
                f"a {stored.dtype} value of shape {stored.shape} does not fit into {target.dtype} {target.shape}"
            )
        copy = asarray(asarray(stored, device=name_of(target._device)), copy=True)
        target._memory, target._event, target._host = copy._memory, copy._event, None
    elif isinstance(target, np.ndarray):
        target[...] = stored.numpy()
    else:
        raise ArgumentsError(f"values are pulled into arrays, not {type(target).__name__}")
