"""What a trace took from outside of its arguments, as a check that every call makes: is it all as it was?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import is_
from typing import Any

import numpy as np

from .array import Array

Same = Callable[[Any], bool]
PLAIN = frozenset({bool, int, float, complex, str, bytes, type(None), range, slice, type(Ellipsis)})


class Guard:
    """One thing that was read. how: `item` (holder[key]), `attribute` (holder.key), `cell` (its contents), `itself`.
    Arrays and other objects must be the same object, plain data and containers of it equal."""

    __slots__ = ("holder", "how", "key", "name", "same", "strict", "value")

    def __init__(self, name: str, how: str, holder: Any, key: str, value: Any) -> None:
        """name: what `why()` calls it."""
        self.name, self.how, self.holder, self.key, self.value = name, how, holder, key, value
        self.same = sameness(value)
        self.strict = self.same is not None and type(value) not in PLAIN  # may have changed and be the same object

    def holds(self) -> bool:
        """Whether it is as it was."""
        try:
            now = READERS[self.how](self.holder, self.key)
        except Exception:
            return False
        if self.same is None:
            return now is self.value
        return (now is self.value and not self.strict) or self.same(now)


READERS: dict[str, Callable[[Any, str], Any]] = {
    "item": lambda holder, key: holder[key],
    "attribute": getattr,
    "cell": lambda holder, key: holder.cell_contents,
    "itself": lambda holder, key: holder,
}
_TEXTS = {"item": "h{0}[{1!r}]", "attribute": "h{0}.{1}", "cell": "h{0}.cell_contents", "itself": "h{0}"}


class Guards:
    """All guards of a trace. `hold()` says whether all hold, by a function written for them."""

    __slots__ = ("hold", "rows")

    def __init__(self, rows: Sequence[Guard]) -> None:
        self.rows = tuple(rows)
        self.hold: Callable[[], bool] = _written(self.rows)

    def __bool__(self) -> bool:
        return bool(self.rows)

    def failed(self) -> str | None:
        """The name of the first thing that has changed, if any."""
        return None if self.hold() else next((row.name for row in self.rows if not row.holds()), "something")


def _written(rows: Sequence[Guard]) -> Callable[[], bool]:
    scope: dict[str, Any] = {}
    checks = []
    for i, row in enumerate(rows):
        if row.how == "attribute" and not row.key.isidentifier():
            scope[f"s{i}"] = row.holds
            checks.append(f"s{i}()")
            continue
        scope.update({f"h{i}": row.holder, f"v{i}": row.value, f"s{i}": row.same})
        read = _TEXTS[row.how].format(i, row.key)
        same = f"{read} is v{i}"
        checks.append(same if row.same is None else f"s{i}({read})" if row.strict else f"({same} or s{i}({read}))")
    lines = ["def hold():", "    try:", f"        return {' and '.join(checks) or 'True'}"]
    lines += ["    except Exception:", "        return False"]
    exec(compile("\n".join(lines), "<kernelgraph guards>", "exec"), scope)
    hold: Callable[[], bool] = scope["hold"]
    return hold


def sameness(value: Any, above: tuple[int, ...] = ()) -> Same | None:
    """A predicate that says whether another value is as good as this one is now; None where only itself is.

    above: the identities of the containers that hold the value."""
    kind = type(value)
    if kind in PLAIN or isinstance(value, np.generic):
        return lambda now: _equal(now, value)
    if id(value) in above:
        return None
    if kind in (list, tuple) or (isinstance(value, tuple) and hasattr(kind, "_fields")):
        return _sequence(kind, list(value), (*above, id(value)))
    if kind is dict:
        names, items = list(value), _sequence(list, list(value.values()), (*above, id(value)))
        return lambda now: type(now) is dict and list(now) == names and items([*now.values()])
    if kind in (set, frozenset):
        members = frozenset(value)
        return lambda now: type(now) is kind and now == members
    if kind is np.ndarray:
        shape, strides, dtype = value.shape, value.strides, value.dtype
        return lambda now: now is value and now.strides == strides and now.shape == shape and now.dtype == dtype
    if kind is Array:
        memory = value._memory  # another one once the array was assigned to
        return lambda now: now is value and now._memory is memory
    return None


def _equal(now: Any, then: Any) -> bool:
    """For plain data; tells 0.0 from -0.0 and 1 from True, and NaN equals itself."""
    return now is then or (type(now) is type(then) and repr(now) == repr(then))


def _sequence(kind: Any, items: list[Any], above: tuple[int, ...]) -> Same:
    """Equal length, and each item as good as it was."""
    nested = [(i, check) for i, x in enumerate(items) if type(x) not in PLAIN and (check := sameness(x, above))]
    special = {i for i, _ in nested}

    def equal(now: Any) -> bool:
        if type(now) is not kind or len(now) != len(items):
            return False
        if not all(map(is_, now, items)):
            for i, (a, b) in enumerate(zip(now, items, strict=True)):
                if a is not b and i not in special and not (type(b) in PLAIN and _equal(a, b)):
                    return False
        return all(check(now[i]) for i, check in nested)

    return equal


def contents_guard(array: np.ndarray[Any, Any], values: np.ndarray[Any, Any]) -> Guard:
    """An array that is no argument must still hold these values: they decided how the trace went on."""
    guard = Guard("the contents of an array that the trace looked at", "itself", array, "", array)
    data = values.tobytes()
    guard.same, guard.strict = lambda now: now.tobytes() == data, True
    return guard
