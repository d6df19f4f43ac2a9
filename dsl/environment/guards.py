"""What a trace took from outside of its arguments, as a check that every call makes: is it all as it was?"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from keyword import iskeyword
from operator import is_
from types import FunctionType, MethodType, ModuleType
from typing import Any
from weakref import getweakrefcount

import numpy as np

from ...compiler.core.types import dtype_of
from ..array.array import Array
from ..core.object_model import PLAIN, builtin_container_base_of_class, contents_of_object, walk_objects
from ..core.object_state import comparable_object_state, referents_of_object
from ..core.python_text import compiled_functions, function_text, lines_in_try
from ..core.spec import native_byte_order

Same = Callable[[Any], bool]
_BY_VALUE = (list, tuple, dict, set, frozenset)  # another one with the same contents is as good


class Guard:
    """One thing that was read, or found missing. how: a key of `READS` or `TESTS`.
    Arrays and other objects must be the same object, plain data and containers of it equal."""

    __slots__ = ("holder", "how", "key", "layout", "name", "same", "strict", "value")

    def __init__(self, name: str, how: str, holder: Any, key: Any, value: Any, same: Same | None = None) -> None:
        """name: what `why()` calls it. same: by default `sameness_predicate_of_guard(value)`."""
        self.name, self.how, self.holder, self.key, self.value = name, how, holder, key, value
        self.same = same or (sameness_predicate_of_guard(value) if how in READS else None)
        plain = same is None and how in READS and type(value) is np.ndarray and _is_guarded_number_dtype(value.dtype)
        self.layout = (value.shape, value.strides, value.dtype) if plain else None
        self.strict = self.same is not None and not _is_guarded_by_identity(
            value
        )  # may have changed and be the same object

    def tell_apart(self) -> None:
        """From now on no container is as good as another one."""
        of_container = builtin_container_base_of_class(type(self.value)) in _BY_VALUE
        if self.how in READS and of_container and self.key not in ("state", "contents"):
            self.same = sameness_predicate_of_guard(self.value, apart=True)

    def is_unchanged(self) -> bool:
        """Whether it is as it was."""
        return _guard_rows_as_text((self,))()

    @property
    def native_aspect(self) -> str | None:
        """What native code can watch in its place: see `watched_words_of_object_aspect`."""
        if self.how == "attribute" and (self.same is None or self.value is None):
            return _OF_FUNCTIONS.get(self.key)
        is_watched = self.how == "item" and self.key not in ("state", "contents") and _is_watched_container(self.value)
        return self.how if is_watched or self.how in ("type", "classes", "size", "bare") else None

    @property
    def is_item_of_dict(self) -> bool:
        """Whether it holds where a dict has one object, or nothing, under a name."""
        by_identity = self.how == "item" and self.layout is None and not self.strict
        return type(self.holder) is dict and type(self.key) is str and (by_identity or self.how == "no item")


_OF_FUNCTIONS = {"__code__": "code", "__defaults__": "defaults", "__kwdefaults__": "keyword defaults"}


# how the text of a guard reads what it compares; {h}: what holds it, {k}: the key there
READS = {
    "item": "{h}[{k}]",
    "attribute": "getattr({h}, {k})",
    "held": "{h}.__dict__[{k}]",
    "cell": "{h}.cell_contents",
    "variable": "{h}.get({k})",
    "call": "{h}()",
    "itself": "{h}",
}
TESTS = {  # and what it asks where there is nothing to compare; {v}: what was there
    "method": "getattr({h}, {k}) == {v}",  # the same function and object
    "type": "{h}.__class__ is {v}",
    "no item": "{k} not in {h}",
    "no attribute": "not hasattr({h}, {k})",
    "not held": "{k} not in {h}.__dict__",
    "size": "len({h}) == {v}",
    "classes": "{h}.__mro__ is {v}",
    "bare": "not {h}.__dict__",
    "unbound": "{v}({h})",
}
READERS = compiled_functions(
    "".join(function_text(how, "h, k", [f"return {text.format(h='h', k='k')}"]) for how, text in READS.items()), {}
)


def _expression_of_guard(how: str, holder: str, key: Any, value: str = "") -> str:
    text = READS.get(how) or TESTS[how]
    if type(key) is str and key.isidentifier() and not iskeyword(key):
        text = text.replace("getattr({h}, {k})", "{h}." + key)
    return text.format(h=holder, k=repr(key), v=value)


class GuardSet:
    """All guards of a trace. `hold()` says whether all hold, by a function written for them."""

    __slots__ = ("hold", "rows")

    def __init__(self, rows: Sequence[Guard]) -> None:
        self.rows = tuple(sorted(rows, key=lambda row: row.how == "size"))  # what tells least comes last
        self.hold: Callable[[], bool] = _guard_rows_as_text(self.rows)

    def __bool__(self) -> bool:
        return bool(self.rows)

    def failed(self) -> str | None:
        """The name of the first thing that has changed, if any."""
        return None if self.hold() else next((row.name for row in self.rows if not row.is_unchanged()), "something")


def guard_expressions(rows: Sequence[Guard], watched: Container[Guard] = ()) -> tuple[list[str], dict[str, Any]]:
    """The guards as expressions, true while they hold, and what their names are. watched: those of which native code
    looks at what is in the object itself."""
    scope: dict[str, Any] = {}
    checks = []
    for i, row in enumerate(rows):
        scope |= {f"h{i}": row.holder, f"v{i}": row.value, f"s{i}": row.same}
        if row.how in TESTS:
            checks.append(_expression_of_guard(row.how, f"h{i}", row.key, f"v{i}"))
            continue
        read = _expression_of_guard(row.how, f"h{i}", row.key)
        same = f"{read} is v{i}"
        if row.layout is not None:  # spelled out: a call takes as long as all of it
            scope.update({f"{n}{i}": x for n, x in zip(("shape", "strides", "dtype"), row.layout, strict=True)})
            checks.append(
                f"(a := {read}) is v{i} and a.strides == strides{i} and a.shape == shape{i} and a.dtype is dtype{i}"
            )
            continue
        by_identity = row.same is None or row in watched
        checks.append(same if by_identity else f"s{i}({read})" if row.strict else f"({same} or s{i}({read}))")
    return checks, scope


def _guard_rows_as_text(rows: Sequence[Guard]) -> Callable[[], bool]:
    checks, scope = guard_expressions(rows)
    lines = lines_in_try([f"return {' and '.join(checks) or 'True'}"], "return False")
    return compiled_functions(function_text("hold", "", lines), scope, "guards")["hold"]


def sameness_predicate_of_guard(value: Any, above: tuple[int, ...] = (), apart: bool = False) -> Same | None:
    """A predicate that says whether another value is as good as this one is now; None where only itself is.

    above: the identities of the containers that hold the value. apart: whether a container with the same contents is
    not as good."""
    kind = type(value)
    if kind in PLAIN or issubclass(kind, np.generic):
        return lambda now: _equal_guarded_data(now, value)
    if id(value) in above:
        return None
    if issubclass(kind, np.ndarray):  # not what says that it is one: a traced value that was kept
        if not _is_guarded_number_dtype(value.dtype):
            return frozen_state_predicate_of_guard(value)
        shape, strides, dtype = value.shape, value.strides, value.dtype
        return lambda now: now is value and now.strides == strides and now.shape == shape and now.dtype == dtype
    if kind is Array:
        memory = value._memory  # another one once the array was assigned to
        return lambda now: now is value and now._memory is memory
    if kind is MethodType:
        return lambda now: type(now) is MethodType and now == value
    if builtin_container_base_of_class(kind) is not None:
        return _same_container_predicate_of_guard(value, (*above, id(value)), apart)
    return None


def _same_container_predicate_of_guard(value: Any, above: tuple[int, ...], apart: bool) -> Same:
    """Equal length, and each item as good as it was."""
    kind = type(value)
    other = not apart and (kind in _BY_VALUE or hasattr(kind, "_fields"))  # whether one will do
    items = contents_of_object(value)
    checks = [sameness_predicate_of_guard(x, above, apart) for x in items]
    changing = [
        (i, c) for i, (x, c) in enumerate(zip(items, checks, strict=True)) if c and not _is_guarded_by_identity(x)
    ]

    def is_container_as_guarded(now: Any) -> bool:
        if type(now) is not kind or not (other or now is value):
            return False
        found = now if kind is list or kind is tuple else contents_of_object(now)
        if len(found) == len(items) and all(map(is_, found, items)):
            return all(check(found[i]) for i, check in changing)
        rows = zip(found, items, checks, strict=False)
        return len(found) == len(items) and all(a is b if same is None else same(a) for a, b, same in rows)

    return is_container_as_guarded


_WATCHED = (list, dict)


def _is_watched_container(value: Any) -> bool:
    """Whether it is a list or dict of what is as it was while it is the same, or of such lists and dicts."""
    parts = walk_objects(value, lambda held: contents_of_object(held) if type(held) in _WATCHED else ())
    return type(value) in _WATCHED and all(type(x) in _WATCHED or _is_guarded_by_identity(x) for x in parts)


def _is_guarded_by_identity(value: Any) -> bool:
    """Whether an object is as it was while it is the same one."""
    kind = type(value)
    if kind is tuple or kind is frozenset:
        return all(map(_is_guarded_by_identity, value))
    return kind in PLAIN or (issubclass(kind, np.generic) and not issubclass(kind, np.void))


def _equal_guarded_data(now: Any, then: Any) -> bool:
    """For plain data; tells 0.0 from -0.0 and 1 from True, and NaN equals itself."""
    return now is then or (type(now) is type(then) and repr(now) == repr(then))


def _is_guarded_number_dtype(dtype: np.dtype[Any]) -> bool:
    try:
        dtype_of(native_byte_order(dtype))
    except TypeError:
        return False
    return True


def frozen_state_predicate_of_guard(
    value: Any, kept: list[Any] | None = None, referred: list[Any] | None = None
) -> Same:
    """Whether it is the same object in the same state.

    kept: what gets all objects that are in it. referred: and those that weak references lead to."""
    kept = [] if kept is None else kept
    then = comparable_object_state(value, kept, None, referred)

    def has_guarded_state(
        now: Any, kept: Any = kept
    ) -> bool:  # the identities in the state stay those of living objects
        return now is value and bool(comparable_object_state(now) == then)

    return has_guarded_state


def contents_guard(array: np.ndarray[Any, Any], values: np.ndarray[Any, Any]) -> Guard:
    """An array that is no argument must still hold these values: they decided how the trace went on."""
    data = values.tobytes()
    name = "the contents of an array that the trace looked at"
    return Guard(name, "itself", array, "contents", array, lambda now: now.tobytes() == data)


def keep_watched_object_alive(guards: Sequence[Guard]) -> bool:
    """Whether they keep an object to which others refer weakly, which may look whether it still lives."""
    held = walk_objects([guard.value for guard in guards], referents_of_object)
    return any(getweakrefcount(x) and not isinstance(x, _MADE_ONCE) for x in held)


_MADE_ONCE = type, FunctionType, ModuleType  # Python itself refers to them weakly
