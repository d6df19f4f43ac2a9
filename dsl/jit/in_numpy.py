"""Calls that run in NumPy, as the function is written, since no trace knows what its values decide, such as shapes.

A call whose arguments are like an earlier one's costs a short look at them, and the function itself."""

from __future__ import annotations

import gc
import operator
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from functools import cache, partial
from itertools import chain, compress
from types import BuiltinFunctionType
from typing import Any

import numpy as np

from ...runtime.core.errors import add_note_to_error_once
from ...runtime.core.frozen import frozen
from ...runtime.engine.native_call import native_test_of_item_types
from ...runtime.program.device import Device
from ..array.array import Array, from_numpy, own_numpy_array
from ..array.conversion import to_kg_arrays
from ..array.mutation import array_before_change, change_values_of_array, values_before_change, write_differing_elements
from ..core.errors import DTypeRefusal, line_of_traceback
from ..core.object_model import (
    attributes_of_object,
    builtin_container_base_of_class,
    contents_of_object,
    is_namespace_class,
    is_user_class,
    put_attributes,
    walk_objects,
)
from ..core.object_state import referents_of_object
from ..core.python_text import PythonText, compiled_functions, function_text, lines_in_try
from ..core.pytree import LEAF, Tree, flatten, unflatten
from ..core.spec import MOST_SCALARS, SCALAR_TYPES, Host, are_many_scalars, is_plain_array
from ..environment.guards import GuardSet, guard_expressions
from ..state.holders import rebuild_opened_arguments
from ..state.reader import compile_reader_of_nested_arguments
from .launcher import NOT_TAKEN, Fast, InNumPy, Launcher, key_test_of_leaf, not_taken_by_fast_launcher
from .signature import IdentityKey, StaticArgument

_NUMBERS: frozenset[type] = frozenset({int, float, complex, bool, str, type(None)})
_SCALARS = _NUMBERS | SCALAR_TYPES
_LEAVES = _SCALARS | {np.ndarray, Array}  # most arguments and results, known without a look into them
_NUMPYS = _LEAVES - {Array}
_PLAIN_CONTAINERS = frozenset({tuple, list, dict})
_CONTAINERS = (list, tuple, dict, set, frozenset, deque)
EMPTY: Mapping[Any, Any] = {}


def call_in_numpy(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    options: Mapping[str, Any],
    device: Device,
    error: Exception,
    known: Sequence[Any] | None = None,
) -> Any:
    """function(*args, **options) on NumPy arrays; of the results arrays are `kg.Array`s, and arguments themselves.

    Lists, dicts and objects hold copies in the place of their `kg.Array`s until the function is done. Raises
    `error` for arguments that are no NumPy arrays and stand for no copies of them. known: the leaves, where arguments
    like these were taken before."""
    flat = not options and _LEAVES.issuperset(map(type, args))
    if flat or known:
        lent = {id(x): x for x in known or args if type(x) is Array}
    else:
        lent = _arrays_within(args, options, error)
    if not lent:
        return call_on_numpy_arrays(function, args, options, device, error=error)
    held = {key: values_before_change(x) for key, x in lent.items()}
    own = {key: before.copy() for key, (_, before) in held.items()}  # of one that comes twice one copy
    back = {id(own[key]): x for key, x in lent.items()}
    if flat:
        given, named = tuple([own.get(id(x), x) for x in args]), options
    else:
        given, named = _with_parts_replaced((args, options), own, set())
    if not (flat or known) and any(type(x) is Array for x in _leaves_of((given, named))):
        _with_parts_replaced((given, named), back, set())
        raise error  # one is in a container that can hold none in its place
    try:
        return call_on_numpy_arrays(function, given, named, device, back, (args, options), error)
    finally:
        if not flat:
            _with_parts_replaced((given, named), back, set())
        for key, values in own.items():
            _write_what_differs(lent[key], values, held[key][1])


def _arrays_within(args: Any, options: Any, error: Exception) -> dict[int, Array]:
    """The `kg.Array`s in arguments, by their identities. Raises the error: see `_leaves_with_values`."""
    levels = [*_levels_of((args, options), _SCALARS)]
    if all(map(_is_level_of_numpys, levels)):
        return {}
    leaves = _leaves_with_values(args, options, error)
    return {id(x): x for x in chain(leaves, *(level for level, _ in levels)) if type(x) is Array}


def _write_what_differs(array: Array, values: Host, before: Host) -> None:
    if values.tobytes() != before.tobytes():
        change_values_of_array(array, partial(write_differing_elements, new=values, before=before))


def call_on_numpy_arrays(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    options: Mapping[str, Any],
    device: Device,
    back: Mapping[int, Any] = EMPTY,
    given: Any = None,
    error: Exception | None = None,
) -> Any:
    """`call_in_numpy` of arguments without `kg.Array`s. back: by the identity of a copy what it is of, with which the
    caller has given `given`."""
    results: list[Any] = []  # all that holds the result, so that its arrays are seen to be nobody else's
    try:
        results.append(call_without_warnings(function, args, options))
    except Exception as raised:
        _raise_better_error(raised, error)
        raise
    kind = type(results[0])
    if kind is np.ndarray and _count_of_references(results, 0) <= _ALONE:
        made = own_numpy_array(results[0], device)
        if made is not None:
            return made
    elif kind in _NUMBERS:
        return results[0]
    owners = _Owners((args, options) if given is None else given, back)
    if kind in _LEAVES:
        _convert_numpy_results(results, owners, device)
        return results[0]
    of_tuples = issubclass(kind, tuple)
    flat = of_tuples and _LEAVES.issuperset(map(type, results[0])) and len(results[0]) <= MOST_SCALARS
    if not flat and _stays_itself(results[0]):
        return results[0]
    if _count_of_references(results, 0) > _ALONE and owners.is_given(results[0]):
        return results[0]
    flat = flat or (kind is list and _LEAVES.issuperset(map(type, results[0])))
    if not flat or getattr(results[0], "__dict__", None):
        return _converted_structure(results, owners, device)
    results = [*results.pop()]
    _convert_numpy_results(results, owners, device)
    return tuple.__new__(kind, results) if of_tuples else results


def _raise_better_error(raised: Exception, error: Exception | None) -> None:
    """Raises what the trace has said of the same line, where that says what to write instead; or adds the line."""
    line = line_of_traceback(raised.__traceback__)
    if isinstance(raised, TypeError) and isinstance(error, DTypeRefusal) and str(error).startswith(f"{line}:"):
        raise error from None
    add_note_to_error_once(raised, f"at {line}")


@np.errstate(all="ignore")
def call_without_warnings(function: Callable[..., Any], args: tuple[Any, ...], options: Mapping[str, Any]) -> Any:
    return function(*args, **options)


class _Owners:
    """What of a result is an argument, or is in one; looked through when that is first asked for."""

    __slots__ = ("_back", "_given", "_kept", "_leaves")

    def __init__(self, given: Any, back: Mapping[int, Any]) -> None:
        self._given, self._back = given, back
        self._kept: set[int] | None = None
        self._leaves: dict[int, Any] | None = None

    def is_given(self, x: Any) -> bool:
        """Whether it is a container or an object among the arguments, or within these."""
        if type(x) in _LEAVES:
            return False
        if any(map(partial(operator.is_, x), self._given[0])):  # most that are
            return True
        if self._kept is None:
            levels = [level for level, kinds in _levels_of(self._given, _SCALARS) if not kinds <= _LEAVES]
            self._kept = {id(x) for level in levels for x in level if type(x) not in _LEAVES}
        return id(x) in self._kept

    def of(self, array: Any) -> Any:
        """The argument that an array is, or is the copy of; None for others."""
        if self._leaves is None:
            levels = [level for level, kinds in _levels_of(self._given, _SCALARS) if np.ndarray in kinds]
            arrays = [x for level in levels for x in level if type(x) is np.ndarray]
            self._leaves = {**{id(x): x for x in arrays}, **self._back}
        return self._leaves.get(id(array))


def _leaves_with_values(args: Any, options: Any, error: Exception) -> list[Any]:
    """Raises the error for what is nested too deep to be looked through, or has no values that NumPy can read."""
    try:
        leaves = _leaves_of((args, options))
    except RecursionError:
        raise error from None
    if not all([type(x) in _LEAVES or _has_host_values(x) for x in leaves]):
        raise error
    return leaves


def _converted_structure(whole: list[Any], owners: _Owners, device: Device) -> Any:
    """whole: the one result, taken out of it: lists, dicts and objects among those given are themselves."""
    leaves: list[Any] = []
    met: dict[int, int] = {}
    shape = flatten(
        whole[0], leaves, results=True, stop=lambda x: owners.is_given(x) or _is_container_of_numbers(x), met=met
    )
    objects = [x for x in leaves if type(x) not in _LEAVES and not owners.is_given(x)] if met else ()
    if _NUMBERS.issuperset(map(type, leaves)) or any(
        id(part) in met for x in objects for part in walk_objects(x, referents_of_object)
    ):
        return whole.pop()  # it may be somebody's; an iterator of one of its lists, say, has to stay that one
    whole.pop()
    _convert_numpy_results(leaves, owners, device)
    return unflatten(shape, leaves)


def _convert_numpy_results(leaves: list[Any], owners: _Owners, device: Device) -> None:
    """Puts arrays of ours in the place of NumPy's, one for each, and in that of a copy what it is of."""
    done: dict[int, Any] = {}
    kept = _SCALARS if len(leaves) > MOST_SCALARS and are_many_scalars(leaves) else _NUMBERS
    for i in range(len(leaves)):
        kind = type(leaves[i])
        if kind in kept:
            continue
        new = _count_of_references(leaves, i) <= _ALONE
        if new and kind is np.ndarray and (made := own_numpy_array(leaves[i], device)) is not None:
            leaves[i] = made
            continue
        x = leaves[i]
        if not new and id(x) in done:
            leaves[i] = done[id(x)][1]
            continue
        owner = None if new else owners.of(x)
        if owner is not None:
            leaves[i] = owner
        elif kind in SCALAR_TYPES:
            leaves[i] = from_numpy(x, device, own=True)
        elif isinstance(x, np.ndarray) and is_plain_array(kind) and x.dtype.type in SCALAR_TYPES:
            leaves[i] = from_numpy(x, device)
        elif not owners.is_given(x):
            leaves[i] = to_kg_arrays(x, device)
        if not new:
            done[id(x)] = x, leaves[i]  # while it lives, nothing else has its identity


def _levels_of(value: Any, plain: frozenset[type]) -> Iterator[tuple[list[Any], Set[type]]]:
    """What containers and objects hold, one depth after another, and its kinds; lists of plain values are not looked
    into."""
    level, seen, are_plain = [value], set[int](), _test_of_types(plain)
    while level:
        kinds: Set[type] = plain if are_plain(level) else {*map(type, level)}
        yield level, kinds
        opened = {
            kind
            for kind in kinds - _SCALARS
            if kind in _PLAIN_CONTAINERS or _is_container_class(kind) or _keeps_attributes(kind)
        }
        if opened != kinds:
            level = [*compress(level, map(opened.__contains__, map(type, level)))] if opened else []
        if list in opened:
            level = [x for x in level if not are_plain(x)]
        if opened != {tuple}:  # of which a structure has each as often as it comes
            met = {*map(id, level)}
            if len(met) < len(level) or not met.isdisjoint(seen):
                level = [x for x in level if type(x) is tuple or not (id(x) in seen or seen.add(id(x)))]  # type: ignore[func-returns-value]
            seen |= met
        level = gc.get_referents(*level)


def _is_container_class(kind: type) -> bool:
    return issubclass(kind, _CONTAINERS) or hasattr(kind, "__dataclass_fields__")


def _is_level_of_numpys(level: tuple[list[Any], Set[type]]) -> bool:
    """Whether nothing there has to be lent to NumPy."""
    return not any(kind is Array or hasattr(kind, "__dlpack__") for kind in level[1] - _NUMPYS)


def _stays_itself(value: Any) -> bool:
    """Whether containers hold numbers and text alone, or many of NumPy's scalars beside these."""
    met: list[list[Any]] = []
    if _test_of_types(_NUMBERS)(value):
        return True
    for level, kinds in _levels_of(value, _NUMBERS):
        if not all(map(_is_container_class, kinds - _SCALARS - _PLAIN_CONTAINERS - {type})):
            return False
        if not SCALAR_TYPES.isdisjoint(kinds):
            met.append(level)
    return not met or are_many_scalars(chain.from_iterable(met))


def _is_container_of_numbers(x: Any) -> bool:
    """Whether it is a container, which may be somebody's, in which nothing is to be converted."""
    family = builtin_container_base_of_class(type(x))
    return family is not None and family is not tuple and _NUMBERS.issuperset(map(type, contents_of_object(x)))


@cache
def _test_of_types(kinds: frozenset[type]) -> Callable[[Any], bool]:
    """Whether something is a list of what is of these kinds alone."""
    return native_test_of_item_types([*kinds]) or (lambda x: type(x) is list and kinds.issuperset(map(type, x)))


def _count_of_references(leaves: list[Any], i: int) -> int:
    return sys.getrefcount(leaves[i])


_ALONE = _count_of_references([object()], 0)  # to what the list alone holds: interpreters count differently


def _with_parts_replaced(value: Any, new: dict[int, Any], done: set[int]) -> Any:
    """A value with others in the place of those of these identities: in its lists, dicts and objects, of classes of
    their own too, and in new tuples."""
    part = new.get(id(value))
    if part is not None:
        return part
    kind = type(value)
    if kind in _LEAVES or (kind in _PLAIN_CONTAINERS and not value):
        return value
    base = kind if kind in _PLAIN_CONTAINERS else builtin_container_base_of_class(kind)
    if base is tuple:
        parts = [_with_parts_replaced(x, new, done) for x in tuple.__iter__(value)]
        return value if all(map(operator.is_, parts, value)) else tuple.__new__(kind, parts)
    if id(value) in done:
        return value
    done.add(id(value))
    if base in (list, deque, dict):
        for key, x in list(dict.items(value) if base is dict else enumerate(base.__iter__(value))):
            part = new.get(id(x)) if type(x) in _LEAVES else _with_parts_replaced(x, new, done)
            if part is not None and part is not x:
                base.__setitem__(value, key, part)
    elif _keeps_attributes(kind):
        held = attributes_of_object(value).items()
        replaced = [(name, x, _with_parts_replaced(x, new, done)) for name, x in held]
        put_attributes(value, [(name, part) for name, x, part in replaced if part is not x])
    return value


def _keeps_attributes(kind: type) -> bool:
    """Whether objects of a class may hold what the caller puts there."""
    return is_user_class(kind) or is_namespace_class(kind) or hasattr(kind, "__dataclass_fields__")


def _leaves_of(value: Any) -> list[Any]:
    leaves: list[Any] = []
    flatten(value, leaves)
    return leaves


def _has_host_values(x: Any) -> bool:
    return isinstance(x, (np.ndarray, np.generic, Array)) or not hasattr(type(x), "__dlpack__")


@frozen
class NumPyCall:
    """function, device, error: see `call_in_numpy`. for_user: an error as the call raises it, in the function that the
    user's code has called: no other entry is in its traceback."""

    function: Callable[..., Any]
    device: Device
    error: Exception
    for_user: Callable[[Exception], Exception]

    def run(self, args: tuple[Any, ...], known: Sequence[Any] | None = None) -> Any:
        """known: the leaves of the arguments, where these were looked through."""
        return call_in_numpy(self.function, args, EMPTY, self.device, self.error, known)

    def run_without_arrays_of_ours(self, args: tuple[Any, ...], known: Any = None) -> Any:
        """The same, of arguments among which is no `kg.Array`."""
        return call_on_numpy_arrays(self.function, args, EMPTY, self.device, error=self.error)


def error_without_frames(error: Exception) -> Exception:
    """The error, which is kept for long: the objects that its frames hold, and those of its causes, may end."""
    todo: list[BaseException | None] = [error]
    while todo:
        at = todo.pop()
        if at is not None and at.__traceback__ is not None:
            at.__traceback__ = None
            todo += [at.__cause__, at.__context__]
    return error


class NumPyLauncher(Launcher):
    """Calls of one key run in NumPy, since there was this error. fast_call(args) is the whole call, without a look at
    its key; it gives NOT_TAKEN where the arguments, or what lies outside, are not as expected."""

    __slots__ = ("error", "fast_call")

    def __init__(self, error: Exception, guards: GuardSet) -> None:
        super().__init__(InNumPy(error).raise_again, "", guards, repeatable=True)
        self.error = error_without_frames(error)
        self.fast_call: Fast = not_taken_by_fast_launcher


def numpy_fast_call(
    entry: NumPyLauncher,
    tree: Tree,
    leaves: Sequence[Any],
    given: Sequence[Any],
    values: Mapping[int, Any],
    function: Any,
    call: NumPyCall,
) -> Fast:
    """What `entry.fast_call` is to be; it takes no arguments where a call needs more than a look.

    leaves, given: as calls use them, and as the caller has them. values: those that are part of the key. function:
    whose defaults are arguments where fewer are given. call: runs a call of such arguments."""
    written = PythonText()
    tests = [_numpy_test_of_leaf(*pair, written.constant) for pair in zip(leaves, given, strict=True)]
    if not all(tests):
        return not_taken_by_fast_launcher
    checks, guarded = guard_expressions(entry.guards.rows)
    fits = " and ".join([*(test.format(f"x{i}") for i, test in enumerate(tests)), *checks]) or "True"
    positional, named = tree.children
    flat = not named.names and all(child == LEAF for child in positional.children)
    whole = flat and not values and not getattr(function, "__defaults__", None)
    ours = any(type(x) is Array for x in given)
    known = ", refusal, leaves)" if ours else ")"
    names = "".join(f"x{i}, " for i in range(len(tests)))
    first = "leaves" if whole else f"leaves[:{len(tests)}]"
    lines = [*lines_in_try([f"({names}) = {first}"], "return NOT_TAKEN", "ValueError")]
    lines += [*lines_in_try([f"fits = {fits}"], "fits = False"), "if not fits: return NOT_TAKEN"]
    run = [f"return run(function, leaves, none, device{known}"]
    lines += lines_in_try(run, "raise for_user(error)", "Exception as error") if whole else ["return leaves"]
    scope = {
        "ndarray": np.ndarray,
        "Array": Array,
        "NOT_TAKEN": NOT_TAKEN,
        "run": call_in_numpy if ours else call_on_numpy_arrays,
        "function": call.function,
        "device": call.device,
        "refusal": call.error,
        "none": EMPTY,
        **written.constants,
        **guarded,
        "for_user": call.for_user,
    }
    fast = compiled_functions(function_text("fast", "leaves, caller=0", lines), scope)["fast"]
    if whole:
        return fast
    read = compile_reader_of_nested_arguments(tree, fast, values, NOT_TAKEN, function)
    if read is None:
        return not_taken_by_fast_launcher

    run_call = call.run if ours else call.run_without_arrays_of_ours

    def call_behind_reader(args: tuple[Any, ...], caller: int = 0) -> Any:
        found = read(args)
        try:
            return found if found is NOT_TAKEN else run_call(args, found)
        except Exception as error:
            raise call.for_user(error)  # noqa: B904  # the same one

    return call_behind_reader


def _numpy_test_of_leaf(leaf: Any, given: Any, constant: Callable[[Any], str]) -> str:
    """An expression that is true of leaves like one; how an array lies in memory is all one to NumPy. Empty: none."""
    if type(given) is np.ndarray:
        like = f"{{0}}.dtype == {constant(given.dtype)} and {{0}}.shape == {given.shape}"
        return f"(type({{0}}) is ndarray and {like})"
    if type(given) is Array:
        return f"(type({{0}}) is Array and {{0}}._spec == {constant(given._spec)})"
    return "" if type(leaf) in (np.ndarray, Array) else key_test_of_leaf(leaf, constant)


def fast_call_by_kinds(args: tuple[Any, ...], least: int, call: NumPyCall, declines: Callable[[], bool]) -> Fast:
    """What runs calls whose arguments are of the same types as these, of arrays with the same dtypes. least: how many
    have to be given. declines: whether a call is to be looked at in full."""
    kinds = _kinds_of_arguments(args)

    def call_of_same_kinds(args: tuple[Any, ...], caller: int = 0) -> Any:
        if not least <= len(args) <= len(kinds) or _kinds_of_arguments(args) != kinds[: len(args)] or declines():
            return NOT_TAKEN
        try:
            return call.run(args)
        except Exception as error:
            raise call.for_user(error)  # noqa: B904  # the same one

    return call_of_same_kinds


def _kinds_of_arguments(args: tuple[Any, ...]) -> list[Any]:
    return [x.dtype if type(x) is np.ndarray else type(x) for x in args]


def fresh_arguments(
    tree: Tree, leaves: Sequence[Any], copy: Callable[[Any], Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments of a structure with copies of these leaves: what is done to them is done to nobody's. Objects have what
    is opened of them alone."""
    positional, named = rebuild_opened_arguments(tree, map(copy, leaves), _empty_object, _itself, _itself, [])
    return tuple(positional), named


def copied_leaf(x: Any) -> Any:
    """A leaf of a call for another call of the same kind."""
    if type(x) is StaticArgument:
        return x.value.value if isinstance(x.value, IdentityKey) else x.value
    return x.copy("K") if type(x) is np.ndarray else array_before_change(x) if type(x) is Array else x


def copied_leaf_for_numpy(x: Any) -> Any:
    """The same, a NumPy array in the place of a `kg.Array`."""
    return x.numpy().copy() if type(x) is Array else copied_leaf(x)


def _empty_object(kind: Any) -> Any:
    """An object of a class past all that the class does. Raises TypeError where that does something at its end."""
    if hasattr(kind, "__del__"):
        raise TypeError
    native = next(base for base in kind.__mro__ if type(vars(base).get("__new__")) is BuiltinFunctionType)
    return native.__new__(kind)


def _itself(x: Any) -> Any:
    return x
