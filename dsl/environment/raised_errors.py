"""What leaves a trace with an error that the user's function raises: the user's own objects in place of what stands for
them, and objects that the function has made as objects of the user's own classes.

Traced values stay: who uses one later is told so."""

from __future__ import annotations

import contextlib
from collections import OrderedDict, deque
from collections.abc import Callable
from types import MemberDescriptorType, MethodType
from typing import Any

from ..core.object_state import PLAIN, builtin_container_base_of_class, is_slot_set, state_pairs_of_dict
from ..core.pytree import ORIGINAL

_VARS = type.__dict__["__dict__"].__get__  # past a metaclass's own way


def replace_proxies_in_error(error: BaseException, original_value: Callable[[Any], Any]) -> None:
    """Put the user's objects in place of proxies in an error, in what it holds at any depth, and in its causes."""
    _ProxyReplacer(original_value).replace(error)


def _slots_of_object(value: Any) -> list[tuple[Any, Any]]:
    """The slots that are set, and what is in them."""
    members = [m for kind in type.mro(type(value)) for m in _VARS(kind).values() if type(m) is MemberDescriptorType]
    return [(slot, slot.__get__(value)) for slot in members if is_slot_set(value, slot)]


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
        if id(value) in self._replacements:
            return self._replacements[id(value)][1]
        self._replacements[id(value)] = (value, value)
        base: Any = builtin_container_base_of_class(kind)
        if isinstance(value, BaseException):
            args = tuple(map(self.replace, value.args))
            if any(a is not b for a, b in zip(value.args, args, strict=True)):
                value.args = args
            self.replace(value.__cause__)
            self.replace(value.__context__)
            for member, held in _slots_of_object(value):  # as `code`, `value` and `obj` are
                if (own := self.replace(held)) is not held:
                    member.__set__(value, own)
            value.__dict__.update({name: self.replace(x) for name, x in value.__dict__.items()})
        elif kind is MethodType:
            return MethodType(self.replace(value.__func__), self.replace(value.__self__))
        elif ORIGINAL in _VARS(kind):
            return self._make_object_of_users_class(value, _VARS(kind)[ORIGINAL], base)
        elif base in (tuple, frozenset):
            items = [*map(self.replace, base.__iter__(value))]
            return value if all(a is b for a, b in zip(value, items, strict=True)) else base.__new__(kind, items)
        elif base is not None:
            self._fill_container(value, value, base)
        return value

    def _make_object_of_users_class(self, value: Any, original: type, base: Any) -> Any:
        """An object of the user's own class, like one that the function has made."""
        items = [[*map(self.replace, base.__iter__(value))]] if base in (tuple, frozenset) else []
        try:
            found = (base or object).__new__(original, *items)
        except TypeError:  # it is a number or a text, too
            return value
        self._replacements[id(value)] = (value, found)
        self._fill_container(found, value, base)
        for name, x in self._replaced_attributes(value).items():
            object.__setattr__(found, name, x)
        return found

    def _replaced_attributes(self, value: Any) -> dict[str, Any]:
        held = {slot.__name__: x for slot, x in _slots_of_object(value)}
        with contextlib.suppress(AttributeError):
            held |= object.__getattribute__(value, "__dict__")
        return {name: self.replace(x) for name, x in held.items()}

    def _fill_container(self, container: Any, value: Any, base: Any) -> None:
        """Put into a container what shall be in it in place of what a value holds."""
        if base is dict:
            kind: Any = OrderedDict if isinstance(value, OrderedDict) else dict
            pairs = [(self.replace(k), self.replace(x)) for k, x in state_pairs_of_dict(value)]
            kind.clear(container)
            for key, x in pairs:
                kind.__setitem__(container, key, x)
        elif base in (list, set, deque):
            items = [*map(self.replace, base.__iter__(value))]
            base.clear(container)
            (base.update if base is set else base.extend)(container, items)
