"""The user's containers as traced code sees them: copies with what stands for their items, which refuse changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import is_
from typing import Any, NoReturn

from ..core.context import context
from ..core.errors import TraceError
from ..core.object_model import (
    BUFFERS,
    ORIGINAL,
    VARS,
    builtin_container_base_of_class,
    is_whole_dict,
    make_object,
    mutators_of_class,
    named_parts_of_object,
    row_of_class,
)


def refuse_frozen_container_change(label: str, line: str | None = None) -> NoReturn:
    """Raises TraceError for a change that no later call would do; NeedOpened where it may be to an argument."""
    world = getattr(context.trace, "world", None)
    if world is not None and world.may_open:
        raise world.open_arguments()
    raise TraceError(
        f"a traced function cannot change {label}, since later calls would not do it again; change a copy, "
        "or return the value instead",
        line,
    )


def _label_of_frozen_container(container: Any, base: type) -> str:
    return f"the {base.__name__} {getattr(container, 'label', '')}".rstrip()


def _method_that_refuses_change(name: str, base: type) -> Any:
    def refuse_frozen_method_call(self: Any, *args: Any, **options: Any) -> NoReturn:
        refuse_frozen_container_change(_label_of_frozen_container(self, base))

    refuse_frozen_method_call.__name__ = name
    return refuse_frozen_method_call


_FROZEN: dict[type, type] = {}


def frozen_container_class(kind: type) -> type:
    """A subclass of a library's container whose objects refuse to change."""
    known = _FROZEN.get(kind)
    if known is None:
        members: dict[str, Any] = {name: _method_that_refuses_change(name, kind) for name in mutators_of_class(kind)}
        members |= {ORIGINAL: kind, "label": ""}
        base = builtin_container_base_of_class(kind)
        if base not in BUFFERS:
            members |= {"__reduce_ex__": _reduced_frozen_container, "__copy__": _plain_copy, "copy": _plain_copy}
        if base in (set, frozenset):  # in the order of the user's own, which depends on its history
            members |= {"_order": None, "__iter__": _frozen_items_in_source_order, "__repr__": _frozen_repr_in_order}
        known = _FROZEN[kind] = type(kind.__name__, (kind,), members)
    return known


def _reduced_frozen_container(self: Any, protocol: Any = None) -> Any:
    """A way to reduce: copies and pickles are plain containers."""
    names, parts = named_parts_of_object(self)
    items = [*self] if isinstance(self, (set, frozenset)) else parts
    return make_object, (VARS(type(self))[ORIGINAL], names, items)


def _plain_copy(self: Any) -> Any:
    kind = VARS(type(self))[ORIGINAL]
    base = builtin_container_base_of_class(kind)
    if base is set or base is frozenset:
        return kind(self) if base is set else self
    return make_object(kind, *named_parts_of_object(self))


def _frozen_items_in_source_order(self: Any) -> Iterator[Any]:
    base: Any = builtin_container_base_of_class(type(self))
    return base.__iter__(self) if self._order is None else iter(self._order)


def _frozen_repr_in_order(self: Any) -> str:
    kind = vars(type(self))[ORIGINAL]
    items = ", ".join(map(repr, _frozen_items_in_source_order(self)))
    if kind is set and items:
        return f"{{{items}}}"
    return f"{kind.__name__}({{{items}}})" if items else f"{kind.__name__}()"


def fill_frozen_container(lift: Callable[..., Any], container: Any, value: Any, label: str) -> Any:
    """Puts what stands for the items of `value`, by `lift`, into `container`, which may be among them."""
    row = row_of_class(type(value))
    assert row.put is not None
    if not is_whole_dict(value):
        raise TraceError(f"{label}, an OrderedDict, was changed past its class; write o[key] = value, or del o[key]")
    names, parts = named_parts_of_object(value, row)
    for name, setting in zip(row.settings, parts, strict=False):
        if name in row.assigned:
            setattr(container, name, lift(setting))
    lifted: Any = [lift(part, label) for part in parts[len(row.settings) :]]
    if row.family is dict:
        lifted = [*zip(map(lift, names[len(row.settings) :]), lifted, strict=True)]
    if row.family is set:
        if hasattr(type(container), "_order"):
            container._order = lifted
        lifted = value if all(map(is_, parts, lifted)) else dict.fromkeys(lifted)  # it lies as Python's own copy would
    row.put(container, lifted)
    return container
