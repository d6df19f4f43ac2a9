"""`kg.debug`: values in; printed or checked at each call, once they are there, out. Fusion stays as it is.

What is looked at becomes one more result of the kernel that computes it; the call waits for it.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable, Sequence
from typing import Any, TextIO

import numpy as np

from ...runtime.core.frozen import dataclass
from ...runtime.core.readable_text import with_article
from ..array.conversion import to_numpy_arrays
from ..core.errors import NotFiniteError, UnsupportedError, user_line
from ..environment.printing import call_with_values, file_behind_proxy
from ..functions.elementwise import apply
from ..trace.operands import new_traced_result, to_traced_array
from ..trace.trace import Trace, current_trace

Watcher = Callable[[Sequence[Any]], None]


@dataclass(frozen=True)
class FiniteCheck:
    """Raises where not all values are finite: how many are not, and which comes first."""

    line: str
    name: str
    shape: tuple[int, ...]

    def __call__(self, arrays: Sequence[Any]) -> None:
        count, first = (int(array) for array in arrays)
        if count:
            at = ", ".join(map(str, np.unravel_index(first, self.shape)))
            raise NotFiniteError(
                f"{count} of {math.prod(self.shape)} values of {self.name} are not finite, the first at [{at}]; "
                "look for a division by zero, an overflow, or a root or logarithm of a negative number",
                self.line,
            )


def print(*values: Any, sep: str = " ", end: str = "\n", file: TextIO | None = None) -> None:
    """Python's `print` of the values that arrays have, at each call of the traced function.

    Parameters
    ----------
    *values
        Arrays, numbers, strings, and tuples, lists and dicts of them. Several prints come in the order of the program.
    sep : str, default ' '
        As in Python's print.
    end : str, default newline
        As in Python's print.
    file : TextIO, optional
        As in Python's print.

    Examples
    --------
    >>> @kg.kernel_graph(device="cpu")
    ... def f(x):
    ...     kg.debug.print("the sum is", x.sum())
    ...     return x * 2
    >>> y = f(np.arange(3.0)).wait()
    the sum is 3.0
    """
    trace = current_trace()
    if trace is None:
        builtins.print(*map(to_numpy_arrays, values), sep=sep, end=end, file=file)
        return
    _check_body_is_looked_at(trace)
    options = {"sep": sep, "end": end, "file": file_behind_proxy(file)}
    call_with_values(trace, builtins.print, values, options)


def check_finite(x: Any, name: str = "") -> Any:
    """`x`, of any shape and dtype. The call raises NotFiniteError (a FloatingPointError) at this line if it holds NaN
    or an infinity. Two numbers leave the kernel that computes `x`.

    Parameters
    ----------
    x : array_like
        An array, or a tuple, list, dict or dataclass of arrays.
    name : str, default ''
        What the error calls it.

    Returns
    -------
    Array

    Raises
    ------
    NotFiniteError
        By the call, where `x` holds NaN or an infinity.

    Examples
    --------
    >>> f = kg.kernel_graph(lambda x: kg.debug.check_finite(np.sqrt(x), "root"), device="cpu")
    >>> np.asarray(f(np.array([4.0, 9.0])))
    array([2., 3.])
    """
    trace = current_trace()
    if trace is None:
        _check_finite_eagerly_in_debug(np.asarray(to_numpy_arrays(x)), name)
        return x
    array = to_traced_array(x)
    if array.size and array.dtype.kind not in "biu":
        bad = apply("logical_not", apply("isfinite", array))
        places = apply("where", bad, _debug_element_indices(trace, array.shape), array.size)
        found = [np.sum(bad, dtype=np.int64), np.min(places)]
        _watch_traced_values_for_debug(
            trace, found, FiniteCheck(user_line(), name or with_article(array._value.type), array.shape)
        )
    return x


def _debug_element_indices(trace: Trace, shape: tuple[int, ...]) -> Any:
    """The place of each element in C order."""
    found: Any = 0
    for axis, length in enumerate(shape):
        found = found * length + new_traced_result(trace.builder.index(shape, axis))
    return found


def _check_finite_eagerly_in_debug(array: np.ndarray[Any, Any], name: str) -> None:
    if array.size and array.dtype.kind not in "biu":
        bad = ~np.isfinite(array)
        label = name or with_article(f"{array.dtype}{list(array.shape)}")
        FiniteCheck(user_line(), label, array.shape)((bad.sum(), bad.argmax()))


def _watch_traced_values_for_debug(trace: Trace, arrays: Sequence[Any], watcher: Watcher) -> None:
    _check_body_is_looked_at(trace)
    trace.watched.append((tuple(array._value for array in arrays), watcher))


def _check_body_is_looked_at(trace: Trace) -> None:
    if trace.depth or trace.loops or trace.path:
        raise UnsupportedError(
            "kg.debug cannot look into the body of a loop or branch, which runs on the device; carry the value out, or "
            "write a Python for loop while you look",
            needs_values=False,
        )


FUNCTIONS: dict[str, Callable[..., Any]] = {"print": print, "check_finite": check_finite}
