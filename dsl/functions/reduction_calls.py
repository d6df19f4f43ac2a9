"""Calls of reductions with keywords. NumPy is asked on arrays of ones: its errors, dtypes and shapes are the call's.

What the rule of the function does not give so, NumPy does on the host. Plain calls are not asked about.
"""

from __future__ import annotations

import functools
import math
import operator
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar

import numpy as np

from ...compiler.core.types import dtype_kind
from ...runtime.interpret.numpy_calls import ARRAY, numpy_function_of_call
from ..core.errors import Refusal, UnsupportedError, UserError, numpy_error_as_ours
from ..trace.dispatch import ERRORS, FUNCTIONS, METHODS, LoopOperand
from ..trace.operands import to_traced_array
from ..trace.tracer import SCALAR, TracedNumber, Tracer
from .host_calls import assign_to_out, host_call, require_known_numpy_option

F = TypeVar("F", bound=Callable[..., Any])
MOST = 1 << 14  # elements of an array of ones; of larger arrays its lengths are cut to 2
NO_VALUE: Any = getattr(np, "_NoValue", None)
_KNOWN = frozenset({Tracer, int, float, complex, bool, str, slice, np.ndarray, np.dtype})
REDUCED_BY: dict[Any, Any] = {  # what a ufunc's `reduce` is
    np.add: np.sum,
    np.multiply: np.prod,
    np.minimum: np.min,
    np.maximum: np.max,
    np.logical_and: np.all,
    np.logical_or: np.any,
}
_PLAIN: dict[str, tuple[type, ...]] = {"axis": (int, type(None)), "keepdims": (bool,), "ddof": (int,)}


def implements_reduction(*functions: Any, method: bool = False, options: bool = True) -> Callable[[F], F]:
    """Registers the rule of NumPy functions, and of the method of that name, held to what NumPy says of each call.

    options: whether a plain call has no error that the rule does not see."""

    def register_rule(rule: F) -> F:
        name = functions[0].__name__
        module = "linalg." if functions[0].__module__ == "numpy.linalg" else ""
        for function in functions:
            FUNCTIONS[function] = _rule_held_to_numpy(module + name, rule, options)
        if method:
            METHODS[name] = _rule_held_to_numpy(f"ndarray.{name}", rule, options)
        return rule

    return register_rule


def _rule_held_to_numpy(path: str, rule: Callable[..., Any], options: bool) -> Callable[..., Any]:
    @functools.wraps(rule)
    def call_as_numpy_would(*args: Any, **given: Any) -> Any:
        plain = options and len(args) < 3 and all(type(a) in _PLAIN["axis"] for a in args[1:])
        if plain and all(type(v) in _PLAIN.get(k, ()) for k, v in given.items()):
            return rule(*args, **given)
        return call_as_numpy(path, rule, args, given)

    return call_as_numpy_would


def call_as_numpy(path: str, rule: Callable[..., Any], args: tuple[Any, ...], given: dict[str, Any]) -> Any:
    """What the rule gives if that is of NumPy's dtypes and shapes; else what NumPy gives on the host. Raises what NumPy
    raises for such arrays."""
    given = {k: v for k, v in given.items() if v is not NO_VALUE}
    try:
        answer = _answer_for_ones(numpy_function_of_call(path), args, given)
    except Exception as error:
        raise _error_of_call(error, rule, args, given) from None
    if answer is None:
        return rule(*args, **given)
    out = _out_of_call(given)
    if out is not None and not _writes_its_own_dtype(path, args, given, out):
        return _numpys_result(path, args, given, answer, out, out)
    try:
        result = rule(*args, **given)
    except Refusal:
        raise
    except UserError:
        if not answer.whole:
            raise
        return _numpys_result(path, args, given, answer, out)
    return result if answer.has_kinds_of(result) else _numpys_result(path, args, given, answer, out, result)


def _error_of_call(error: Exception, rule: Callable[..., Any], args: tuple[Any, ...], given: Any) -> Exception:
    """NumPy's error as ours; the rule's, which says more, if it is of that kind. Numbers may decide: they must be
    known."""
    for number in _leaves_of_call((args, given), TracedNumber):
        raise number._need_number_value()
    for number in _leaves_of_call((args[1:], given), Tracer):
        if number._owner == SCALAR and number.dtype.kind in "biu":
            operator.index(number)
    ours = error if isinstance(error, (RuntimeError, ZeroDivisionError)) else numpy_error_as_ours(error)
    try:
        rule(*args, **given)
    except UserError as said:
        return said if isinstance(said, type(ours)) else ours
    except Exception:  # the rule was not written for such arguments
        return ours
    return ours


def error_of_class_that_numpy_raises(error: Exception, function: Any, args: Any, given: Any) -> Exception:
    """The error of a call's rule, or what NumPy says of ones in its place, where another `except` catches that.

    A refusal, where NumPy takes them: NumPy does the call."""
    values = any(x._owner == SCALAR and x.dtype.kind in "biu" for x in _leaves_of_call((args[1:], given), Tracer))
    if isinstance(error, Refusal) or values or not all(map(_is_known_to_numpy, (*args, *given.values()))):
        return error
    try:
        answer = _answer_for_ones(function, args, given)
    except Exception as said:
        ours = numpy_error_as_ours(said)
        return error if isinstance(error, type(ours)) else ours
    if not (isinstance(error, UserError) and answer and answer.whole and answer.is_of_numbers()):
        return error
    line, _, text = str(error).partition(": ")
    return UnsupportedError(text, line)


def _is_known_to_numpy(x: Any) -> bool:
    """Whether an argument is an array or known, and nothing that would call the user's code."""
    if isinstance(x, (list, tuple)):
        return all(map(_is_known_to_numpy, x))
    return x is None or x is NO_VALUE or type(x) in _KNOWN or isinstance(x, np.generic)


ERRORS.append(error_of_class_that_numpy_raises)


class Answer(NamedTuple):
    """NumPy's results for ones. whole: for as many as the arrays have."""

    results: Any
    whole: bool

    @property
    def every(self) -> tuple[Any, ...]:
        return tuple(self.results) if isinstance(self.results, tuple) else (self.results,)

    def is_of_numbers(self) -> bool:
        return all(np.asarray(y).dtype.kind in "biufc" for y in self.every)

    def has_kinds_of(self, result: Any) -> bool:
        every = result if isinstance(result, tuple) else (result,)
        return len(every) == len(self.every) and all(
            hasattr(x, "dtype")
            and x.dtype == np.asarray(y).dtype
            and (x.shape == np.shape(y) if self.whole else len(x.shape) == np.ndim(y))
            for x, y in zip(every, self.every, strict=True)
        )


def _answer_for_ones(function: Any, args: tuple[Any, ...], given: dict[str, Any]) -> Answer | None:
    """None where ones say nothing, of dtypes that NumPy has not. Raises NumPy's errors."""
    arrays = list(_leaves_of_call((args, given), Tracer, np.ndarray, LoopOperand))
    if any(dtype_kind(a.dtype) not in "biufc" or a.dtype.kind == "V" for a in arrays):
        return None
    whole = all({int} >= {*map(type, a.shape)} and math.prod(a.shape) <= MOST for a in arrays)
    plain = {k: _ones_of_call(v, whole or k == "q") for k, v in given.items()}
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        results = function(*(_ones_of_call(a, whole) for a in args), **plain)
    return Answer(results, whole)


def _leaves_of_call(x: Any, *kinds: type) -> Iterator[Any]:
    if issubclass(type(x), kinds):
        yield x
    elif isinstance(x, (dict, list, tuple)):
        for part in x.values() if isinstance(x, dict) else x:
            yield from _leaves_of_call(part, *kinds)


def _ones_of_call(x: Any, whole: bool) -> Any:
    """An argument with ones in place of what is traced."""
    if type(x) is TracedNumber:
        return x.__class__(1)
    if isinstance(x, (list, tuple)):
        return (list if isinstance(x, list) else tuple)(_ones_of_call(part, whole) for part in x)
    traced = isinstance(x, (Tracer, LoopOperand))
    if not traced and (whole or not isinstance(x, np.ndarray)):
        return x
    lengths = (n if type(n) is int else 2 for n in x.shape)
    ones = np.ones(tuple(n if whole else min(n, 2) for n in lengths), x.dtype)
    return ones[()] if traced and x._owner == SCALAR else ones


def _out_of_call(given: dict[str, Any]) -> Any:
    out = given.get("out")
    return out[0] if type(out) is tuple and len(out) == 1 else out


def _writes_its_own_dtype(path: str, args: tuple[Any, ...], given: dict[str, Any], out: Any) -> bool:
    """Whether `out` is of the dtype that the result would have without it: else that of the computation changes."""
    answer = _answer_for_ones(numpy_function_of_call(path), args, {k: v for k, v in given.items() if k != "out"})
    return answer is not None and all(np.asarray(r).dtype == out.dtype for r in answer.every)


def _numpys_result(
    path: str, args: tuple[Any, ...], given: dict[str, Any], answer: Answer, out: Any, like: Any = None
) -> Any:
    """What NumPy gives on the host; in `out`, if that is given. like: results of the same shapes."""
    arrays: list[Tracer] = []

    def template_of(x: Any) -> Any:
        if isinstance(x, (Tracer, np.ndarray, np.generic)):
            arrays.append(to_traced_array(x))
            return ARRAY
        return tuple(map(template_of, x)) if isinstance(x, (list, tuple)) else require_known_numpy_option(x)

    plain = tuple(template_of(a) for a in args)
    named = tuple((k, template_of(v)) for k, v in sorted(given.items()) if k != "overwrite_input")
    every = like if isinstance(like, tuple) else (like,) * len(answer.every)
    shapes = [np.shape(w) if answer.whole else tuple(x.shape) for w, x in zip(answer.every, every, strict=True)]
    dtypes = [np.asarray(w).dtype for w in answer.every]
    results = host_call("call", arrays, shapes, dtypes, path=path, places=plain, named=named)
    return assign_to_out(results[0], out) if len(results) == 1 else tuple(results)
