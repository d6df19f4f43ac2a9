"""Nested tuples, lists, dicts, dataclasses and objects, taken apart into leaves and put together again."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from enum import EnumMeta
from types import BuiltinFunctionType, MemberDescriptorType, MethodType, SimpleNamespace
from typing import Any

from .exact import exact_key_of_value
from .object_state import builtin_container_base_of_class, is_user_class, is_whole_ordered_dict

Make = Callable[[type, tuple[Hashable, ...], list[Any]], Any]  # a container of this kind, names and values
ORIGINAL = "_kernelgraph_original"  # where a class that stands for another one says for which
_VARS = type.__dict__["__dict__"].__get__  # past a metaclass's own way


class Tree:
    """A structure without its leaves. kind: the container's type, or None for a leaf; names: a dict's keys, or the
    attributes of a dataclass or object. Immutable; hashed once."""

    __slots__ = ("_exact_names", "_hash", "children", "kind", "names")

    def __init__(self, kind: type | None, names: tuple[Hashable, ...] = (), children: tuple[Tree, ...] = ()) -> None:
        self.kind = kind
        self.names = names
        self.children = children
        self._exact_names = tuple([n if type(n) is str else exact_key_of_value(n) for n in names]) if names else ()
        self._hash = hash((kind, self._exact_names, children))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Tree) or self._hash != other._hash:
            return False
        return (self.kind, self._exact_names, self.children) == (other.kind, other._exact_names, other.children)

    def __repr__(self) -> str:
        if self.kind is None:
            return "*"
        named = zip(self.names, self.children, strict=True) if self.names else ()
        parts = [f"{n}: {c}" for n, c in named] or map(str, self.children)
        return f"{self.kind.__name__}({', '.join(parts)})"


LEAF = Tree(None)


def is_proxy_class(kind: type) -> bool:
    """Whether a class stands for one of the user's, or extends one that does."""
    return any(ORIGINAL in _VARS(base) for base in type.mro(kind))


def flatten(
    value: Any,
    leaves: list[Any],
    above: tuple[int, ...] = (),
    results: bool = False,
    stop: Callable[[Any], bool] | None = None,
) -> Tree:
    """The structure of `value`, whose leaves are appended to `leaves`.

    above: the identities of the containers that hold the value; what contains itself is a leaf.
    results: so are Python's other containers, and objects that a traced function has made of the user's classes.
    stop: whether a value within is a leaf, whatever it is."""
    kind = type(value)
    if id(value) in above:
        leaves.append(value)
        return LEAF
    inside = (*above, id(value))

    def flatten_children(values: Any) -> tuple[Tree, ...]:
        if stop is None:
            return tuple(flatten(v, leaves, inside, results) for v in values)
        return tuple(
            _append_pytree_leaf(v, leaves) if stop(v) else flatten(v, leaves, inside, results, stop) for v in values
        )

    if kind is tuple or kind is list:
        return Tree(kind, (), flatten_children(value))
    original = _VARS(kind).get(ORIGINAL, kind)
    if original is dict or (original is OrderedDict and is_whole_ordered_dict(value)):
        return Tree(original, tuple(value), flatten_children(value.values()))
    if type(getattr(kind, "__dataclass_fields__", None)) is dict and _is_plain_dataclass(original):
        import dataclasses

        # past properties of the same names
        held = value.__dict__ if kind.__dictoffset__ else {}
        slots = [
            f.name for f in dataclasses.fields(kind) if f.name not in held and _is_slot_of_tree_class(kind, f.name)
        ]
        if slots and not all(_has_slot_value_in_tree(value, n) for n in slots):  # one that was emptied
            leaves.append(value)
            return LEAF
        names = (*slots, *held)  # a cached property too; not a field that was deleted
        return Tree(original, names, flatten_children(held[n] if n in held else getattr(value, n) for n in names))
    if original is list or (isinstance(value, tuple) and hasattr(kind, "_fields")):  # past an __iter__ of its own
        return Tree(original, (), flatten_children((list if original is list else tuple).__iter__(value)))
    whole = not isinstance(value, OrderedDict) or is_whole_ordered_dict(value)
    if results and isinstance(value, _CONTAINERS) and whole and (kind is original or is_user_class(original)):
        tree = _flatten_python_container(value, original, flatten_children)
        own = _attributes_of_object(value)
        return Tree(AttributedContainer, tuple(own), (tree, *flatten_children(own.values()))) if own else tree
    if kind is MethodType and stop is not None and stop(value.__self__):
        return Tree(kind, (value.__func__,), flatten_children([value.__self__]))
    if results and kind is SimpleNamespace:
        return Tree(kind, tuple(vars(value)), flatten_children(vars(value).values()))
    if (
        results
        and kind is not original
        and (_is_tree_class_of_attributes(original) or original is SimpleNamespace)
        and hasattr(value, "__getstate__")
    ):
        state = value.__getstate__()
        held, filled = state if isinstance(state, tuple) else (state, {})
        own = {**(held or {}), **filled}
        return Tree(original, tuple(own), flatten_children(own.values()))
    leaves.append(value)
    return LEAF


def renamed_pytree(tree: Tree, rename: Callable[[Any], Any]) -> Tree:
    """The structure with other names, such as the user's own keys of dicts."""
    if not tree.children:
        return tree
    children = tuple([renamed_pytree(child, rename) for child in tree.children])
    return Tree(tree.kind, tuple(map(rename, tree.names)), children)


def _is_slot_of_tree_class(kind: type, name: str) -> bool:
    return any(type(_VARS(base).get(name)) is MemberDescriptorType for base in type.mro(kind))


def _has_slot_value_in_tree(value: Any, name: str) -> bool:
    """Whether an object has something in a slot, past a `__getattr__` of its own."""
    kind = type(value)
    if is_proxy_class(kind):  # which looks into the user's
        return hasattr(value, name)
    try:
        next(_VARS(b)[name] for b in type.mro(kind) if name in _VARS(b)).__get__(value, kind)
    except AttributeError:
        return False
    return True


_CONTAINERS = (dict, deque, list, tuple, set, frozenset)


class AttributedContainer:
    """What a tree has in place of a container with attributes of its own: the container, and they."""


def _attributes_of_object(value: Any) -> dict[str, Any]:
    """What an object has in its `__dict__` and its slots."""
    names = [n for b in type.mro(type(value)) for n, m in _VARS(b).items() if type(m) is MemberDescriptorType]
    held = getattr(value, "__dict__", {}) if type(value).__dictoffset__ else {}
    return {**held, **{n: getattr(value, n) for n in names if _has_slot_value_in_tree(value, n)}}


def _is_tree_class_of_attributes(kind: type) -> bool:
    """Whether its objects hold nothing but attributes, and others with the same are as good."""
    if isinstance(kind, EnumMeta):
        return False
    return next(b for b in kind.__mro__ if type(_VARS(b).get("__new__")) is BuiltinFunctionType) is object


def _append_pytree_leaf(value: Any, leaves: list[Any]) -> Tree:
    leaves.append(value)
    return LEAF


def _flatten_python_container(value: Any, kind: type, each: Callable[[Any], tuple[Tree, ...]]) -> Tree:
    """One of Python's other containers, past an `__iter__` of its own; first comes what it is made with."""
    if isinstance(value, deque):
        return Tree(kind, (), each([value.maxlen, *deque.__iter__(value)]))
    if isinstance(value, dict):
        names, items = tuple(dict.keys(value)), [*dict.values(value)]
        if isinstance(value, defaultdict):
            return Tree(kind, ("default_factory", *names), each([value.default_factory, *items]))
        return Tree(kind, names, each(items))
    base: Any = builtin_container_base_of_class(kind)
    return Tree(kind, (), each(base.__iter__(value)))


def is_plain_object(kind: type) -> bool:
    """Whether instances are made by `object.__new__` and are all in their `__dict__`."""
    if getattr(kind, "__new__", None) is not object.__new__ or not hasattr(kind, "__dict__") or issubclass(kind, type):
        return False
    if not _has_tree_class_default_access(kind):
        return False
    return bool(kind.__dictoffset__) and not _has_own_slots(kind) and kind.__module__ != "builtins"


def _has_own_slots(kind: type) -> bool:
    """Whether an object has more than a `__dict__` and weak references; Python may keep both before it (negative)."""
    return kind.__basicsize__ > object.__basicsize__ + 8 * ((kind.__dictoffset__ > 0) + (kind.__weakrefoffset__ > 0))


def _is_plain_dataclass(kind: type) -> bool:
    """Whether a dataclass is no enum, and its fields are where it says."""
    return _has_tree_class_default_access(kind) and not isinstance(kind, EnumMeta)


def _has_tree_class_default_access(kind: type) -> bool:
    """Whether its objects do not decide themselves what their attributes are."""
    return getattr(kind, "__getattribute__", None) is object.__getattribute__


def rebuild_container(kind: type, names: tuple[Hashable, ...], values: list[Any]) -> Any:
    """A container of this kind. A dataclass or an object gets its attributes without running its __init__."""
    if kind is dict:
        return dict(zip(names, values, strict=True))
    found: Any
    if kind is MethodType:
        function: Any = names[0]
        return MethodType(function, *values)
    if kind is AttributedContainer:
        found, *held = values
        for name, value in zip(names, held, strict=True):
            object.__setattr__(found, str(name), value)
        return found
    if issubclass(kind, defaultdict):
        found = defaultdict.__new__(kind)
        found.default_factory = values[0]
        dict.update(found, zip(names[1:], values[1:], strict=True))
        return found
    if issubclass(kind, dict):
        base: Any = OrderedDict if issubclass(kind, OrderedDict) else dict
        found = base.__new__(kind)
        for name, value in zip(names, values, strict=True):
            base.__setitem__(found, name, value)
        return found
    if issubclass(kind, deque):
        found = deque.__new__(kind)
        deque.__init__(found, values[1:], values[0])
        return found
    if issubclass(kind, list):
        found = list.__new__(kind)
        list.extend(found, values)
        return found
    if issubclass(kind, tuple):
        return tuple.__new__(kind, values)  # past a __new__ of its own
    if issubclass(kind, frozenset):
        return frozenset.__new__(kind, values)
    if issubclass(kind, set):
        found = set.__new__(kind)
        set.update(found, values)
        return found
    result: Any = (SimpleNamespace if issubclass(kind, SimpleNamespace) else object).__new__(kind)
    if kind.__dictoffset__ and not _has_own_slots(kind):  # past properties of the same names
        object.__getattribute__(result, "__dict__").update(zip(names, values, strict=True))
        return result
    for name, value in zip(names, values, strict=True):
        object.__setattr__(result, str(name), value)
    return result


def rebuild_pytree(tree: Tree, leaves: Iterator[Any], make: Make = rebuild_container) -> Any:
    """The structure with these leaves, in containers that `make` makes."""
    if tree.kind is None:
        return next(leaves)
    return make(tree.kind, tree.names, [rebuild_pytree(c, leaves, make) for c in tree.children])


def unflatten(tree: Tree, leaves: Sequence[Any], make: Make = rebuild_container) -> Any:
    """The structure with these leaves, in containers that `make` makes."""
    return rebuild_pytree(tree, iter(leaves), make)
