"""The user's containers as traced code sees them: copies with what stands for their items, which refuse changes."""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from operator import is_
from typing import Any, NoReturn

from ..core.context import context
from ..core.errors import TraceError
from ..core.object_state import (
    builtin_container_base_of_class,
    default_factory_of_object,
    hidden_state_pairs_of_dict,
    listed_pairs_of_ordered_dict,
    state_pairs_of_dict,
)
from ..core.pytree import ORIGINAL


def refuse_frozen_container_change(label: str, line: str | None = None) -> NoReturn:
    """Raises TraceError for a change that no later call would do; NeedOpened where it may be to an argument."""
    world = getattr(context.trace, "world", None)
    if world is not None and world.may_open:
        raise world.open_arguments()
    raise TraceError(
        f"a traced function cannot change {label}, since later calls would not do it again; change a copy, "
        "or return the value instead",
        line,
        needs_values=world is not None and world.tells_apart,  # it may be an argument that is not opened
    )


_SEQUENCE = "__setitem__ __delitem__ __iadd__ __imul__ append clear extend insert pop remove reverse"
_SET = "add clear discard pop remove update difference_update intersection_update symmetric_difference_update"
_DICT = "__setitem__ __delitem__ __ior__ clear pop popitem setdefault update"
# what changes a container
CHANGES: dict[type, tuple[str, ...]] = {
    list: (*_SEQUENCE.split(), "sort"),
    dict: tuple(_DICT.split()),
    set: (*_SET.split(), "__iand__", "__ior__", "__isub__", "__ixor__"),
    deque: (*_SEQUENCE.split(), "appendleft", "extendleft", "popleft", "rotate"),
    bytearray: tuple(_SEQUENCE.split()),
    OrderedDict: (*_DICT.split(), "move_to_end"),
    defaultdict: (*_DICT.split(), "__missing__"),
    Counter: (*_DICT.split(), "subtract", "__iadd__", "__isub__", "__iand__"),
}
_ARRAY = (*_SEQUENCE.split(), "byteswap", "frombytes", "fromfile", "fromlist", "fromunicode")


def mutating_methods_to_freeze(kind: type) -> tuple[str, ...]:
    """The methods that change a container of this kind."""
    for base in kind.__mro__:
        if base in CHANGES:
            return CHANGES[base]
    return _ARRAY if kind.__module__ == "array" else ()


def _label_of_frozen_container(container: Any, base: type) -> str:
    return f"the {base.__name__} {getattr(container, 'label', '')}".rstrip()


def _method_that_refuses_change(name: str, base: type) -> Any:
    def refuse_frozen_method_call(self: Any, *args: Any, **options: Any) -> NoReturn:
        refuse_frozen_container_change(_label_of_frozen_container(self, base))

    refuse_frozen_method_call.__name__ = name
    return refuse_frozen_method_call


def _pickle_frozen_as_plain(kind: type) -> Any:
    """A way to reduce: copies and pickles are plain containers."""

    def reduce_to_plain_container(self: Any, protocol: Any = None) -> Any:
        return _thaw_frozen_container, (
            kind,
            default_factory_of_object(self),
            list(filler_of_frozen_container(kind, self)),
        )

    return reduce_to_plain_container


def _thaw_frozen_container(kind: type, factory: Any, items: list[Any]) -> Any:
    base = builtin_container_base_of_class(kind)
    if kind is defaultdict:
        return defaultdict(factory, items)
    if base is dict:
        made = kind()
        made.update(dict(items))
        return made
    return kind(items)


def filler_of_frozen_container(kind: type, value: Any) -> Any:
    return value.items() if issubclass(kind, dict) else value


_FROZEN: dict[type, type] = {}


def frozen_container_class(kind: type) -> type:
    """A subclass of a library's container whose objects refuse to change."""
    known = _FROZEN.get(kind)
    if known is None:
        members: dict[str, Any] = {
            name: _method_that_refuses_change(name, kind) for name in mutating_methods_to_freeze(kind)
        }
        members |= {
            ORIGINAL: kind,
            "label": "",
            "__reduce_ex__": _pickle_frozen_as_plain(kind),
            "__copy__": _plain_copy_of_frozen_container,
            "copy": _plain_copy_of_frozen_container,
        }
        if kind in (bytearray,) or kind.__module__ == "array":
            del members["__reduce_ex__"], members["__copy__"], members["copy"]
        if builtin_container_base_of_class(kind) in (
            set,
            frozenset,
        ):  # in the order of the user's own, which depends on its history
            members |= {"_order": None, "__iter__": _frozen_items_in_source_order, "__repr__": _frozen_repr_in_order}
        known = _FROZEN[kind] = type(kind.__name__, (kind,), members)
    return known


def _plain_copy_of_frozen_container(self: Any) -> Any:
    kind = vars(type(self))[ORIGINAL]
    if builtin_container_base_of_class(kind) is frozenset:
        return self
    if builtin_container_base_of_class(kind) is set:
        return kind(self)
    return _thaw_frozen_container(kind, default_factory_of_object(self), list(filler_of_frozen_container(kind, self)))


def _frozen_items_in_source_order(self: Any) -> Iterator[Any]:
    base: Any = builtin_container_base_of_class(type(self))
    return base.__iter__(self) if self._order is None else iter(self._order)


def _frozen_repr_in_order(self: Any) -> str:
    kind = vars(type(self))[ORIGINAL]
    items = ", ".join(map(repr, _frozen_items_in_source_order(self)))
    if kind is set and items:
        return f"{{{items}}}"
    return f"{kind.__name__}({{{items}}})" if items else f"{kind.__name__}()"


def fill_frozen_container(lift: Callable[..., Any], container: Any, value: Any, base: type, label: str) -> Any:
    """Puts what stands for the items of `value`, by `lift`, into `container`."""
    if base is list:
        list.extend(container, (lift(i, label) for i in list.__iter__(value)))
    elif base is dict:
        factory = default_factory_of_object(value)
        if factory is not None:
            container.default_factory = lift(factory)
        ordered = isinstance(value, OrderedDict)
        if ordered and listed_pairs_of_ordered_dict(value) is None:
            raise TraceError(
                f"{label}, an OrderedDict, lists keys that were taken out of it past its class; write del o[key]"
            )
        hidden = [k for k, _ in hidden_state_pairs_of_dict(value)] if ordered else ()
        for key, item in state_pairs_of_dict(value):
            put = OrderedDict.__setitem__ if ordered and key not in hidden else dict.__setitem__
            put(container, lift(key), lift(item, label))
    elif base is set:
        order = [*set.__iter__(value)]
        lifted = [lift(i, label) for i in order]
        same = all(map(is_, order, lifted))
        set.update(container, value if same else dict.fromkeys(lifted))  # it lies as Python's own copy would
        if hasattr(type(container), "_order"):
            container._order = lifted
    elif base is deque:
        deque.extend(container, (lift(i, label) for i in deque.__iter__(value)))
    return container


def blank_frozen_container(made: Any, kind: type, value: Any) -> Any:
    """An object of a subclass of the container's kind. It is still empty where its items have to be lifted."""
    base: Any = builtin_container_base_of_class(kind)
    if base.__module__ == "array":
        return base.__new__(made, value.typecode, value.tobytes())
    native: Any = next((b for b in (OrderedDict, defaultdict) if issubclass(kind, b)), base)
    found = native.__new__(made)
    if base is deque:
        deque.__init__(found, (), value.maxlen)
    elif base is bytearray:
        bytearray.__init__(found, value)
    return found
