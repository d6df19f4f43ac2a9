"""What runs calls of known arguments in NumPy: a short look whether they are such, then the function as written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...runtime.core.frozen import dataclass
from ..array.array import Array
from ..core.pytree import LEAF, Tree
from ..environment.guards import GuardSet, guard_expressions
from ..state.reader import compile_reader_of_nested_arguments
from .in_numpy import InNumPy
from .launcher import NOT_TAKEN, Fast, Launcher, key_test_of_leaf, not_taken_by_fast_launcher


@dataclass(frozen=True, slots=True)
class NumPyCall:
    """run: does a call, of the arguments and, where these were looked through, their leaves. for_user: an error as the
    call raises it, in the function that the user's code has called: no other entry is in its traceback."""

    run: Callable[..., Any]
    for_user: Callable[[Exception], Exception]


class NumPyLauncher(Launcher):
    """Calls of one key run in NumPy, since there was this error. fast_call(args) is the whole call, without a look at
    its key; it gives NOT_TAKEN where the arguments, or what lies outside, are not as expected."""

    __slots__ = ("error", "fast_call")

    def __init__(self, error: Exception, guards: GuardSet) -> None:
        super().__init__(InNumPy(error).raise_again, "", guards, repeatable=True)
        self.error = error
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
    constants: dict[str, Any] = {}

    def constant(value: Any) -> str:
        name = f"c{len(constants)}"
        constants[name] = value
        return name

    tests = [_numpy_test_of_leaf(*pair, constant) for pair in zip(leaves, given, strict=True)]
    if not all(tests):
        return not_taken_by_fast_launcher
    checks, guarded = guard_expressions(entry.guards.rows)
    fits = " and ".join([*(test.format(f"x{i}") for i, test in enumerate(tests)), *checks]) or "True"
    positional, named = tree.children
    flat = not named.names and all(child == LEAF for child in positional.children)
    whole = flat and not values and not getattr(function, "__defaults__", None)
    names = "".join(f"x{i}, " for i in range(len(tests)))
    text = f"""def fast(leaves, caller=0):
    try: ({names}{"" if whole else "*_, "}) = leaves
    except ValueError: return NOT_TAKEN
    try: fits = {fits}
    except Exception: fits = False
    if not fits: return NOT_TAKEN
    {"try: return run(leaves)" if whole else "return leaves"}
{"    except Exception as error: raise for_user(error)" if whole else ""}
"""
    scope = {
        "ndarray": np.ndarray,
        "Array": Array,
        "NOT_TAKEN": NOT_TAKEN,
        "run": call.run,
        **constants,
        **guarded,
        "for_user": call.for_user,
    }
    exec(compile(text, "<kernelgraph entry>", "exec"), scope)
    fast: Fast = scope["fast"]
    if whole:
        return fast
    read = compile_reader_of_nested_arguments(tree, fast, values, NOT_TAKEN, function)
    if read is None:
        return not_taken_by_fast_launcher

    def call_behind_reader(args: tuple[Any, ...], caller: int = 0) -> Any:
        found = read(args)
        try:
            return found if found is NOT_TAKEN else call.run(args, found)
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


def fast_call_by_kinds(args: tuple[Any, ...], call: NumPyCall, declines: Callable[[], bool]) -> Fast:
    """What runs calls whose arguments are of the same types as these, of arrays with the same dtypes. declines: whether
    a call is to be looked at in full."""
    kinds = _kinds_of_arguments(args)

    def call_of_same_kinds(args: tuple[Any, ...], caller: int = 0) -> Any:
        try:
            return NOT_TAKEN if _kinds_of_arguments(args) != kinds or declines() else call.run(args)
        except Exception as error:
            raise call.for_user(error)  # noqa: B904  # the same one

    return call_of_same_kinds


def _kinds_of_arguments(args: tuple[Any, ...]) -> list[Any]:
    return [x.dtype if type(x) is np.ndarray else type(x) for x in args]
