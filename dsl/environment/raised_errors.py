"""What leaves a trace with an error that the user's function raises: the user's own objects in place of what stands for
them, and objects that the function has made as objects of the user's own classes.

Traced values stay: who uses one later is told so."""

from __future__ import annotations

from collections.abc import Callable
from types import MethodType
from typing import Any

from ..core.object_model import (
    ORIGINAL,
    PLAIN,
    VARS,
    are_same_objects,
    attributes_of_object,
    held_by_object,
    make_object,
    named_parts_of_object,
    put_attributes,
    put_parts,
    row_of_class,
)


def replace_proxies_in_error(error: BaseException, original_value: Callable[[Any], Any]) -> None:
    """Put the user's objects in place of proxies in an error, in what it holds at any depth, and in its causes."""
    _ProxyReplacer(original_value).replace(error)


class _ProxyReplacer:
    def __init__(self, original_value: Callable[[Any], Any]) -> None:
        self._original_value = original_value
        self._replacements: dict[int, tuple[Any, Any]] = {}  # a value, kept alive, and what comes in its place

    def replace(self, value: Any) -> Any:
        """What the user shall have in place of a value."""
        real = self._original_value(value)
        kind = type(value)
        if real is not value or kind in PLAIN:
            return real
        if id(value) not in self._replacements:
            self._replacements[id(value)] = (value, value)  # for what is in it
            self._replacements[id(value)] = (value, self._replaced(value, VARS(kind).get(ORIGINAL)))
        return self._replacements[id(value)][1]

    def _replaced(self, value: Any, original: Any) -> Any:
        """original: the user's class of an object that the function has made."""
        kind = type(value)
        row = row_of_class(kind)
        if kind is MethodType:
            return MethodType(*map(self.replace, held_by_object(value)))
        if isinstance(value, BaseException):
            args, *_ = [self.replace(part) for part in held_by_object(value)]
            if args is not value.args:
                value.args = args
            return self._with_attributes(value, value)
        if original is None and row.family is None:
            return value
        found, count = value, len(row.settings)
        names, parts = named_parts_of_object(value, row)
        if original is not None and not row.is_made_whole:
            try:
                found = row.blank(original, *map(self.replace, parts[:count]))
            except TypeError:  # it is a number or a text, too
                return value
            self._replacements[id(value)] = (value, found)
        now = [*map(self.replace, parts[count:])]
        if not row.is_made_whole:
            put_parts(found, [*map(self.replace, names[count:])], now)
        elif original is not None or not are_same_objects(now, parts):
            found = make_object(kind if original is None else original, (), now)
        return found if row.items is None else self._with_attributes(found, value)

    def _with_attributes(self, holder: Any, value: Any) -> Any:
        """An object with what the user shall have in place of the attributes of a value, which it may be itself."""
        held = [(name, x, self.replace(x)) for name, x in attributes_of_object(value).items()]
        return put_attributes(holder, [(name, own) for name, x, own in held if holder is not value or own is not x])
