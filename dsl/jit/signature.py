"""A call's arguments bound to parameters and taken apart: the leaves, and the key that finds what was compiled."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import FunctionType
from typing import Any, ParamSpec, TypeVar, cast

import numpy as np

from ...compiler.core.types import SHORT_NAMES, ArrayType, array_type_of, dtype_of
from ..array.array import Array
from ..core.errors import ArgumentKindError, ArgumentsError, DTypeError, EscapedValueError, OptionError, TraceError
from ..core.exact import ATOMS, exact_key_of_value
from ..core.object_model import PLAIN, is_user_class
from ..core.pytree import Tree, flatten
from ..core.spec import (
    Spec,
    address,
    array_subclass_spec_error,
    is_plain_array,
    kernel_readable_copy,
    native_byte_order,
    spec_of,
)
from ..environment.argument_properties import NeedOpenedArguments
from ..interop.device_sharing import SharedArray, gpu_of_foreign_array, import_array, shared_array_as_call_leaf
from ..interop.fast_import import import_foreign_array, register_foreign_type
from ..interop.host_import import NO_ARRAYS, foreign_as_numpy, is_foreign_array
from ..state.holders import is_object_holder, is_opened_object, open_holders_of_argument
from ..state.opening import OpenedTree, Opening
from ..trace.trace import current_trace
from ..trace.tracer import TracedNumber, Tracer
from .traced_function import TracedArgument

P = ParamSpec("P")
R = TypeVar("R")


def check_function(function: Any) -> None:
    """Raises OptionError for what cannot be decorated."""
    if not callable(function):
        raise OptionError(f"kernel_graph decorates functions, not {function!r}; write @kg.kernel_graph(name=value)")
    if isinstance(function, type):
        raise OptionError(f"kernel_graph decorates functions, not the class {function.__name__}; decorate its methods")
    kinds = (inspect.isgeneratorfunction, inspect.iscoroutinefunction, inspect.isasyncgenfunction)
    if any(is_kind(f) for is_kind in kinds for f in (function, type(function).__call__)):
        name = getattr(function, "__name__", type(function).__name__)
        raise OptionError(f"{name} is a generator or async, and runs after its trace is over; return a list instead")


NUMPYS = (np.ufunc, type(np.mean))  # NumPy's own functions, whose defaults are no values to be passed


def _is_numpys_own(function: Any) -> bool:
    """Whether it is one of NumPy's, a method of a ufunc, or such a one with some of its arguments."""
    while isinstance(function, functools.partial):
        function = function.func
    return isinstance(function, NUMPYS) or isinstance(getattr(function, "__self__", None), np.ufunc)


def _signature_with_place_of_each_out(function: Callable[..., Any]) -> inspect.Signature:
    """That of a function; of a ufunc of several results NumPy tells one place, which is by name alone."""
    found, kinds = inspect.signature(function), inspect.Parameter
    if not (isinstance(function, np.ufunc) and function.nout > 1):
        return found
    read = [kinds(f"x{i + 1}", kinds.POSITIONAL_ONLY) for i in range(function.nin)]
    outs = [kinds(f"out{i + 1}", kinds.POSITIONAL_ONLY, default=None) for i in range(function.nout)]
    named = [p.replace(kind=kinds.KEYWORD_ONLY) for p in [*found.parameters.values()][function.nin :]]
    return found.replace(parameters=[*read, *outs, *named])


_DEFAULT = object()  # in place of a default


def _defaults_of_function(function: FunctionType) -> dict[str, Any]:
    values, code = function.__defaults__ or (), function.__code__
    found = dict(zip(code.co_varnames[code.co_argcount - len(values) : code.co_argcount], values, strict=True))
    return found | function.__kwdefaults__ if function.__kwdefaults__ else found


class DecoratedFunctionParameters:
    """A function's parameters, for fast binding."""

    def __init__(self, function: Callable[..., Any], static: Sequence[str]) -> None:
        self.name = getattr(function, "__name__", "function")
        self.leaves_out = _is_numpys_own(function) or getattr(function, "leaves_out_defaults", False)
        self._whole = function
        self._function: Any = getattr(function, "__func__", function)
        self._read_signature()
        kinds = inspect.Parameter
        parameters = list(self.signature.parameters.values())
        self.names = tuple(p.name for p in parameters if p.kind in (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD))
        self.simple = len(self.names) == len(parameters) and not static
        self.rest = next((p.name for p in parameters if p.kind is kinds.VAR_POSITIONAL), "")
        self.variadic = bool(self.rest)
        self.every = (*self.names, self.rest)
        self.positional = len(self.names) + self.variadic == len(parameters) and not static
        only_named = tuple(p.name for p in parameters if p.kind is kinds.KEYWORD_ONLY)
        others = {p.kind for p in parameters[len(self.names) + len(only_named) :]}
        fixed = others <= {kinds.VAR_KEYWORD} and not (static or self.leaves_out)
        self.named = only_named if fixed else ()  # those with a name alone, where each argument is known by its name
        self.gathers = fixed and bool(others)  # whether there are names beside
        self.by_name = bool(self.named) or self.gathers
        self.least = sum(p.name in self.names and p.default is inspect.Parameter.empty for p in parameters)
        self.places = self._counts_of_placed_arguments(bool(static))
        self.by_keyword = frozenset(
            p.name for p in parameters if p.kind in (kinds.POSITIONAL_OR_KEYWORD, kinds.KEYWORD_ONLY)
        )
        unknown = [name for name in static if name not in self.signature.parameters]
        if unknown:
            raise ArgumentsError(
                f"static_argnames names {unknown[0]!r}, which {self} does not have; write one of its parameters"
            )
        self.static = frozenset(static)

    def _counts_of_placed_arguments(self, static: bool) -> tuple[int, int]:
        """From how many to how many arguments a call may give, each of which has its place, and no others are there."""
        if self.leaves_out and not static:
            return self.least, sys.maxsize if self.variadic else len(self.names)
        if not self.positional:
            return 0, -1
        return len(self.names), sys.maxsize if self.variadic else len(self.names)

    def __str__(self) -> str:
        every = _signature_with_place_of_each_out(self._whole).parameters.values()
        return f"{self.name}{inspect.Signature([p.replace(annotation=inspect.Parameter.empty) for p in every])}"

    def quick_key(self, args: tuple[Any, ...], places: list[int]) -> tuple[Hashable, ...] | None:
        """`quick_key` of all arguments, if it tells their names too; else None."""
        return None if self.gathers else quick_key(args, places)

    def _read_signature(self) -> None:
        """The function's signature; defaults that it has itself are not kept."""
        found = _signature_with_place_of_each_out(self._whole)
        optional = [p for p in found.parameters.values() if p.default is not inspect.Parameter.empty]
        plain = type(self._function) is FunctionType and not self.leaves_out
        if plain and not any(hasattr(self._function, name) for name in ("__wrapped__", "__signature__")):
            self._defaults: Callable[[], dict[str, Any]] = partial(_defaults_of_function, self._function)
            bare = {p.name: p.replace(default=_DEFAULT) for p in optional}
            found = found.replace(parameters=[bare.get(name, p) for name, p in found.parameters.items()])
        else:
            self._defaults = {p.name: p.default for p in optional if not self.leaves_out}.copy
        self.signature, self._optional = found, {*self._defaults()}

    def bind(self, args: tuple[Any, ...], options: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """All arguments, with defaults where these are passed; by position where they can be. Raises ArgumentsError."""
        defaults = self._defaults()
        if defaults.keys() != self._optional:
            self._read_signature()
        if (self.simple or self.named or self.gathers) and len(args) <= len(self.names):
            rest, more = [], dict(options)
            for name in (*self.names[len(args) :], *self.named):
                if name in more and name in self.by_keyword:
                    rest.append(more.pop(name))
                elif name in defaults:
                    rest.append(defaults[name])
                else:
                    break
            else:
                if not more or (self.gathers and self.by_keyword.isdisjoint(more)):
                    every = (*args, *rest)
                    named = dict(zip(self.named, every[len(self.names) :], strict=True))
                    return every[: len(self.names)], {**named, **more}
        try:
            bound = self.signature.bind(*args, **options)
        except TypeError as error:
            raise ArgumentsError(f"{self.name}: {error}; it is called as {self}") from None
        if not self.leaves_out:
            bound.apply_defaults()
            bound.arguments |= {n: defaults[n] for n, value in bound.arguments.items() if value is _DEFAULT}
        return bound.args, bound.kwargs


class StaticArgument:
    """A value that is part of the key. Values are told apart as Python tells literals apart (1, 1.0, True, -0.0,
    NaN)."""

    __slots__ = ("_exact", "_hash", "value")

    def __init__(self, value: Any) -> None:
        """Raises TypeError for what has no hash."""
        kind = type(value)
        self.value = value
        if kind in ATOMS:
            self._exact: Hashable = (kind, value)
        elif isinstance(value, IdentityKey):
            self._exact = value
        else:
            hash((value.start, value.stop, value.step) if kind is slice else value)  # Python 3.11 hashes no slices
            self._exact = exact_key_of_value(value)
        self._hash = hash(self._exact)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return type(other) is StaticArgument and self._exact == other._exact

    def is_like(self, value: Any) -> bool:
        """Whether the value would be part of the same key."""
        return type(value) is type(self.value) and exact_key_of_value(value) == self._exact

    def __repr__(self) -> str:
        return repr(self.value)


class IdentityKey:
    """An object without a hash, as a dict key."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IdentityKey) and self.value is other.value


class ContentsKey(IdentityKey):
    """An array of text, dates or plain objects, or a set of them: one with the same contents is as good."""

    __slots__ = ("_contents",)

    def __init__(self, value: Any) -> None:
        """Raises TypeError for what holds more than plain data."""
        super().__init__(value)
        array = type(value) is np.ndarray
        if array and not value.dtype.hasobject:
            self._contents: Hashable = value.dtype, value.shape, value.tobytes()
            return
        items = value.ravel().tolist() if array else value
        if (not array and type(value) is not set) or not PLAIN.issuperset(map(type, items)):
            raise TypeError
        exact = map(exact_key_of_value, items)
        self._contents = (value.dtype, value.shape, tuple(exact)) if array else frozenset(exact)

    def __hash__(self) -> int:
        return hash(self._contents)

    def __eq__(self, other: object) -> bool:
        return type(other) is ContentsKey and self._contents == other._contents

    def is_like(self, value: Any) -> bool:
        """Whether it has the same contents."""
        if type(value) is not type(self.value):
            return False
        try:
            return self == ContentsKey(value)
        except TypeError:
            return False


def _is_array_or_hashable(leaf: Any) -> bool:
    return (
        isinstance(leaf, (np.ndarray, Array)) or is_foreign_array(leaf) or getattr(leaf, "__hash__", None) is not None
    )


FRAMES_OF_A_LEVEL = 5  # at most, of what walks over a structure


def _within_recursion_limit(take_apart: Callable[P, R]) -> Callable[P, R]:
    """The same; raises ArgumentKindError for a structure that nests too deep for what is done with it next."""

    @functools.wraps(take_apart)
    def take_apart_within_limit(*args: P.args, **options: P.kwargs) -> R:
        try:
            found = take_apart(*args, **options)
            level, most = [found[0]], sys.getrecursionlimit() // FRAMES_OF_A_LEVEL  # type: ignore[index]
            while level:
                if not most:
                    raise RecursionError
                level, most = [child for tree in level for child in tree.children], most - 1
        except RecursionError:
            raise ArgumentKindError(
                "the arguments nest too deep for a trace, as a long chain of objects does; pass a list of them, or "
                "call sys.setrecursionlimit with more"
            ) from None
        return found

    return take_apart_within_limit


@_within_recursion_limit
def flatten_arguments_of_call(
    parameters: DecoratedFunctionParameters, args: tuple[Any, ...], options: dict[str, Any]
) -> tuple[Tree, list[Any]]:
    """The structure of bound arguments and their leaves."""
    leaves: list[Any] = []
    positional = tuple(
        _argument_structure(name, value, parameters, leaves) for name, value in _arguments_by_name(parameters, args)
    )
    keywords = tuple(_argument_structure(name, value, parameters, leaves) for name, value in options.items())
    return Tree(tuple, (), (Tree(tuple, (), positional), Tree(dict, tuple(options), keywords))), leaves


@_within_recursion_limit
def open_arguments(
    parameters: DecoratedFunctionParameters, args: tuple[Any, ...], options: dict[str, Any], opening: Opening
) -> tuple[OpenedTree, list[Any], list[Any]]:
    """The structure of bound arguments with one place for each changeable list, dict and object; the leaves as they are
    given, and those holders. opening: what is opened of objects; it gets the classes that are met first."""
    before = opening.attributes, opening.by_identity
    given: list[Any] = []
    holders: list[Any] = []
    seen: dict[int, Tree] = {}

    def open_argument_of_call(name: str, value: Any) -> Tree:
        return (
            _argument_structure(name, value, parameters, given)
            if name in parameters.static
            else open_holders_of_argument(value, given, holders, seen, opening.contents)
        )

    positional = tuple([open_argument_of_call(name, value) for name, value in _arguments_by_name(parameters, args)])
    keywords = tuple([open_argument_of_call(name, value) for name, value in options.items()])
    children = Tree(tuple, (), positional), Tree(dict, tuple(options), keywords)
    if before != (opening.attributes, opening.by_identity):
        return open_arguments(parameters, args, options, opening)
    return OpenedTree(children, opening.attributes, bool(opening.by_identity)), given, holders


MOST_NUMBERS = 2048  # in containers of a call: each is an argument of a trace, and takes some 50 us there


def require_few_numbers(leaves: Sequence[Any]) -> None:
    """Raises ArgumentKindError for more numbers than a trace is to have as arguments."""
    count = sum(map((PLAIN | GENERICS).__contains__, map(type, leaves)))
    if count > MOST_NUMBERS:
        text = (
            f"the arguments' containers hold {count} numbers, each an argument of its own; pass np.array(...) of them"
        )
        raise ArgumentKindError(text)


def require_no_objects(tree: Tree, leaves: Sequence[Any]) -> None:
    """Raises NeedOpenedArguments where an object is among arguments that are not opened."""
    kinds = {part.kind for part in tree.nodes() if part.kind is not None and part.kind not in _KNOWN}
    if any(map(is_object_holder, kinds)) or any(is_opened_object(x) for x in leaves if type(x) not in _KNOWN):
        raise NeedOpenedArguments


def to_opened_call_leaf(value: Any) -> Any:
    """`to_call_leaf`, of what an argument may hold: what has no hash is told apart by contents, or by identity."""
    if type(value) in LEAF_TYPES:
        return value
    if _is_array_or_hashable(value):
        with suppress(DTypeError, TypeError):  # of text, dates
            return to_call_leaf(value)
    try:
        return StaticArgument(ContentsKey(value))
    except TypeError:
        return StaticArgument(IdentityKey(value))


def _arguments_by_name(parameters: DecoratedFunctionParameters, args: tuple[Any, ...]) -> list[tuple[str, Any]]:
    names = (*parameters.names, *("",) * (len(args) - len(parameters.names)))
    return list(zip(names, args, strict=False))


def _argument_structure(name: str, value: Any, parameters: DecoratedFunctionParameters, leaves: list[Any]) -> Tree:
    if name not in parameters.static:
        return flatten(value, leaves)
    try:
        leaves.append(StaticArgument(value))
    except TypeError:
        raise ArgumentsError(
            f"the static argument {name!r} of {parameters.name} has no hash ({type(value).__name__}); "
            "pass a tuple in place of a list or array, or take it out of static_argnames"
        ) from None
    return Tree(None)


def to_call_leaf(value: Any) -> Any:
    """A leaf as calls use it: NumPy array, kg.Array, Spec, Python number or Static. Raises UserError."""
    kind = type(value)
    if kind in (Array, Spec, StaticArgument):
        return value
    if isinstance(value, (Tracer, TracedNumber)) or kind is TracedNumber:
        if current_trace() is None:
            raise EscapedValueError(f"{value!r} escaped the trace that made it; return it from the traced function")
        raise TraceError("a traced value cannot be passed here")
    if kind in GENERICS:
        return value
    if isinstance(value, np.generic) and not isinstance(value, (np.str_, np.bytes_, np.void)):
        array = _array_leaf_of_call(np.asarray(value), np.ndarray)  # raises for its dtype
        return array.astype(dtype_of(array.dtype))[
            ()
        ]  # of np.int64, which np.longlong is not though the dtypes are equal
    if isinstance(value, np.ndarray):
        return _array_leaf_of_call(value, kind)
    if kind in (int, float, complex):
        return value
    if kind is SharedArray:
        return shared_array_as_call_leaf(value)
    seen = import_foreign_array(value)
    if seen is not None:
        return seen if isinstance(seen, Array) else _array_leaf_of_call(seen, np.ndarray)
    register_foreign_type(kind)
    gpu = gpu_of_foreign_array(value)
    if gpu is not None:
        return shared_array_as_call_leaf(import_array(value, gpu))
    if isinstance(value, NO_ARRAYS):
        raise ArgumentKindError(
            f"an argument of type {kind.__name__} is a buffer or polynomial, whose items and operators are not an "
            "array's; pass np.asarray(it)"
        )
    if is_user_class(kind) and hasattr(kind, "__array__"):
        raise array_subclass_spec_error(kind)
    found = foreign_as_numpy(value)
    if found is not None:
        return _array_leaf_of_call(found, np.ndarray)
    try:
        return StaticArgument(value)
    except (TypeError, ValueError):
        if hasattr(kind, "toarray"):  # SciPy's sparse arrays
            raise ArgumentKindError(f"an argument of type {kind.__name__} is sparse; pass x.toarray()") from None
        raise ArgumentKindError(
            f"an argument of type {kind.__name__} is neither an array nor a number and has no hash; pass "
            "arrays, numbers, or tuples, lists, dicts and dataclasses of them"
        ) from None


def _array_leaf_of_call(value: np.ndarray[Any, Any], kind: type) -> np.ndarray[Any, Any]:
    if kind is not np.ndarray:
        if not is_plain_array(kind):
            raise array_subclass_spec_error(kind)
        value = value.view(np.ndarray)
    try:
        dtype_of(native_byte_order(value.dtype))
    except TypeError as error:
        raise ArgumentKindError(str(error)) from None
    return kernel_readable_copy(value)


GENERICS = frozenset(dtype.type for dtype in SHORT_NAMES)  # the types of NumPy's scalars
LEAF_TYPES = frozenset({Array, Spec, StaticArgument, int, float, complex})  # what `to_call_leaf` gives back as it is


def quick_key(leaves: Sequence[Any], places: list[int]) -> tuple[Hashable, ...] | None:
    """`cache_key_of_leaf` all leaves at once, and the addresses of the NumPy arrays.

    None where a leaf needs `to_call_leaf` first."""
    key: list[Any] = []
    for leaf in leaves:
        kind = type(leaf)
        if kind is np.ndarray:
            place = address(leaf)
            places.append(place)
            key += (leaf.dtype, leaf.shape, leaf.strides, place & 15)
        elif kind is Array:
            key.append(leaf._spec)
        elif kind is float or kind is int or kind in GENERICS:
            key.append(kind)
        elif kind in _PLAIN:
            key.append(StaticArgument(leaf))
        else:
            return None
    return tuple(key)


def add_nested_leaves_of_call(values: Iterable[Any], shape: list[Any], leaves: list[Any], depth: int = 0) -> bool:
    """Add the leaves in arguments, and what tells how they are nested; False for what `flatten_arguments_of_call` alone
    knows."""
    for value in values:
        kind = type(value)
        if kind not in _NESTED:
            shape.append(None)
            leaves.append(value)
            continue
        inside = value
        if kind is dict:
            inside = value.values()
            if not all([type(name) is str for name in value]):
                return False
        shape += kind, tuple(value) if kind is dict else len(value)
        if _NESTED.isdisjoint(map(type, inside)):
            leaves += inside
        else:
            shape.append(_NESTED)  # each of its items follows
            if depth > _DEEP or not add_nested_leaves_of_call(inside, shape, leaves, depth + 1):
                return False
    return True


_PLAIN = frozenset({bool, str, type(None)})
_NESTED = frozenset({list, tuple, dict})
_KNOWN = LEAF_TYPES | GENERICS | _PLAIN | _NESTED | {np.ndarray, None}  # which are no objects of the user's
_DEEP = 8  # what contains itself is deeper


def cache_key_of_leaf(leaf: Any) -> tuple[Hashable, ...]:
    """The part of the key that a leaf (of `to_call_leaf`) stands for."""
    kind = type(leaf)
    if kind is np.ndarray:
        return (leaf.dtype, leaf.shape, leaf.strides, address(leaf) & 15)
    if kind is Array:
        return (leaf._spec,)
    if kind in (int, float, complex) or kind in GENERICS:
        return (cast(Hashable, kind),)
    return (leaf,)


def is_number(leaf: Any) -> bool:
    """Whether its value can be a part of the key: a number, a NumPy scalar or an array of no axis."""
    kind = type(leaf)
    return kind in (int, float, complex) or kind in GENERICS or (kind is np.ndarray and not leaf.ndim)


def is_copy_of_array(leaf: Any, given: Any) -> bool:
    """Whether a leaf is a copy of the NumPy array that the caller gave."""
    return leaf is not given and isinstance(given, np.ndarray) and not np.may_share_memory(given, leaf)


def argument_of(leaf: Any, known: bool) -> TracedArgument:
    """What the trace sees of a leaf. known: its value, or the layout of an array, is part of the key."""
    kind = type(leaf)
    whole = kind is Array and not leaf._device.host_memory
    if kind is StaticArgument:
        value, own = leaf.value, type(leaf.value) is ContentsKey
        return TracedArgument(None, value.value if isinstance(value, IdentityKey) else value, leaf, True, own=own)
    if known and (strides := byte_strides_of_leaf(leaf)) is not None:
        spec = spec_of(ArrayType(leaf.shape, leaf.dtype))
        return TracedArgument(spec, None, (spec, strides, whole), strides=strides, whole=whole)
    if known:
        number = python_number_of_call_leaf(leaf)
        if kind is not np.ndarray:
            return TracedArgument(None, number, StaticArgument(number), True)
        spec = _spec_of_call_array(leaf)  # an array, though its value is known
        return TracedArgument(spec, leaf.copy(), (spec, StaticArgument(number)), strides=())
    if kind is np.ndarray or kind in GENERICS:
        spec = _spec_of_call_array(leaf)
        if leaf.ndim:
            return TracedArgument(spec, None, spec)
        return TracedArgument(spec, leaf, (spec,) if kind is np.ndarray else (spec, kind))
    if kind is Array:
        spec = leaf._spec if leaf._spec.aligned and leaf._spec.contiguous else spec_of(leaf._spec.type)
        return TracedArgument(spec, None, (spec, "whole") if whole else spec, whole=whole)
    if kind is Spec:
        return TracedArgument(leaf, None, leaf)
    return TracedArgument(None, leaf, cast(Hashable, kind))


def byte_strides_of_leaf(leaf: Any) -> tuple[int, ...] | None:
    """In bytes, those of lengths of 1 left out, as NumPy does; None for what is no array of one axis or more."""
    if not isinstance(leaf, (np.ndarray, Array, Spec)) or not leaf.shape:
        return None
    strides = leaf._spec.strides if isinstance(leaf, Array) else leaf.strides
    return tuple(0 if n == 1 else s for n, s in zip(leaf.shape, strides, strict=True))


def python_number_of_call_leaf(leaf: Any) -> Any:
    """The value of a leaf that is a number, NumPy scalar or 0-d array."""
    return leaf[()] if type(leaf) is np.ndarray else leaf


def _spec_of_call_array(array: np.ndarray[Any, Any]) -> Spec:
    return spec_of(array_type_of(array))


def lowest_byte_offset_of_call_array(shape: tuple[int, ...], strides: tuple[int, ...]) -> int:
    """Bytes from the first element to the lowest one; 0 or negative."""
    if 0 in shape:
        return 0
    return sum(min(0, s) * (n - 1) for n, s in zip(shape, strides, strict=True))
