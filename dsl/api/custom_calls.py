"""`kg.host` and `kg.kernel`: steps of the user's own in a traced function, scheduled and verified like any other."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

import numpy as np

from ...compiler.core.types import HALVES, ArrayType
from ...runtime.program.custom_calls import Callback, CustomKernel, NewArray, Sizes, invoke_custom_call_callback
from ...runtime.program.user_function import UserFunctionSource
from ..core.errors import ArgumentsError
from ..core.spec import Spec, checked_dtype
from ..environment.environment import TracedGlobals
from ..functions.host_calls import require_known_numpy_option
from ..trace.aliasing import assign_to_tracer
from ..trace.operands import new_traced_result, to_traced_array, trace_of_operands
from ..trace.trace import current_trace
from ..trace.tracer import TracedNumber, Tracer
from .elementwise import source_of_user_function

THREADS = 1024  # a block has at most


def host(fn: Callable[..., Any], reads: Any = (), writes: Any = ()) -> Any:
    """Calls `fn(*reads, *writes)` on NumPy arrays, as a step of the traced function.

    `fn` returns nothing. It should depend on its arguments alone, since a step whose results nobody needs is left out,
    and equal steps are done once. What it raises is raised where its results are read. Outside of a traced function it
    is called at once.

    Parameters
    ----------
    fn : callable
        A function of NumPy arrays.
    reads : default ()
        Arrays (one, or a sequence), which `fn` cannot write.
    writes : default ()
        What it fills: `kg.spec(shape, dtype)` for a new array, or an array, which is assigned to.

    Returns
    -------
    Array or tuple of Array
        The written arrays, one or a tuple of several.

    Raises
    ------
    ArgumentsError

    Examples
    --------
    >>> def sort_rows(a, out):
    ...     out[...] = np.sort(a, axis=1)
    >>> @kg.kernel_graph
    ... def f(x):
    ...     return kg.host(sort_rows, [x * 2], [kg.spec(x.shape, x.dtype)])
    >>> f(np.array([[3.0, 1.0]]))[0].tolist()
    [[2.0, 6.0]]
    """
    inputs, outputs, single = _list_of_custom_call_arrays("host", reads), *_specs_written_by_custom_call("host", writes)
    function = _users_function_of_custom_call("host", fn)
    if current_trace() is None:
        return _eager_custom_call(Callback(function), inputs, outputs, single)
    arrays, fresh_ = _arrays_of_custom_call_step(inputs, outputs)
    builder = trace_of_operands(*arrays).builder
    types = [_type_written_by_custom_call(w) for w in fresh_]
    values = builder.host(
        "callback",
        [x._value for x in arrays],
        types,
        callback=Callback(function),
        reads=len(inputs),
        writes=tuple(fresh_),
    )
    return _results_of_custom_call(values, arrays, outputs, single)


def kernel(
    fn: Any,
    reads: Any = (),
    writes: Any = (),
    grid: Any = (1, 1),
    cpu: Callable[..., Any] | None = None,
    name: str = "",
) -> Any:
    """Launches a GPU kernel of the user's as a step of the traced function.

    Parameters
    ----------
    fn
        A numba.cuda kernel (or the plain function), or CUDA C++ text whose `extern "C" __global__` function is `name`.
        Its parameters are the arrays of `reads`, those of `writes` (both C-contiguous; pointers in C++), then the
        numbers among `reads`: int64 and float64, or the dtype of a NumPy scalar.
    reads : default ()
        The arrays that it takes.
    writes : default ()
        As for `kg.host`; what it does not write of a new array is undefined.
    grid : default (1, 1)
        (blocks, threads a block), each an int or a tuple of up to three.
    cpu : callable, optional
        A function of the same arrays and numbers that does the same on the CPU; without one, kg.kernel is refused
        there.
    name : str, default ''
        What people read it by.

    Returns
    -------
    Array or tuple of Array
        The written arrays, one or a tuple of several.

    Raises
    ------
    ArgumentsError
    UnsupportedError

    Examples
    --------
    >>> from numba import cuda  # doctest: +SKIP
    >>> @cuda.jit  # doctest: +SKIP
    ... def double(x, y):
    ...     i = cuda.grid(1)
    ...     if i < x.size:
    ...         y[i] = 2 * x[i]
    >>> f = kg.kernel_graph(lambda x: kg.kernel(double, [x], [kg.spec(x.shape, x.dtype)], (8, 128)))  # doctest: +SKIP
    """
    every, outputs, single = (
        _list_of_custom_call_arrays("kernel", reads),
        *_specs_written_by_custom_call("kernel", writes),
    )
    numbers = [
        x for x in every if isinstance(x, (bool, int, float, np.generic, TracedNumber)) and not _is_custom_call_array(x)
    ]
    inputs = [x for x in every if not any(x is n for n in numbers)]
    values = [require_known_numpy_option(n) if isinstance(n, TracedNumber) else n for n in numbers]
    shape = _custom_kernel_launch_grid(grid)
    plain = (
        None
        if cpu is None
        else Callback(_custom_host_function_with_numbers(_users_function_of_custom_call("kernel", cpu), values))
    )
    if current_trace() is None:
        if plain is None:
            raise ArgumentsError("kg.kernel is a step of a traced function; call it in one, or give it cpu=f")
        return _eager_custom_call(plain, inputs, outputs, single)
    code, called = _custom_kernel_source(fn, name)
    own = CustomKernel(called, code, *shape, tuple(_custom_kernel_constant(v) for v in values), plain)
    arrays, fresh_ = _arrays_of_custom_call_step(inputs, outputs)
    if not isinstance(code, str) and HALVES[1] in (
        *(x.dtype for x in arrays),
        *(_type_written_by_custom_call(w).dtype for w in fresh_),
    ):
        raise ArgumentsError("numba.cuda has no bfloat16 arrays; write x.view(np.uint16), or the kernel in CUDA C++")
    made = trace_of_operands(*arrays).builder.kernel(own, [x._value for x in arrays], fresh_)
    return _results_of_custom_call(made, arrays, outputs, single)


# arguments


def _list_of_custom_call_arrays(what: str, given: Any) -> list[Any]:
    return list(given) if isinstance(given, (list, tuple)) else [given]


def _specs_written_by_custom_call(what: str, given: Any) -> tuple[list[Any], bool]:
    """What is written, and whether it was given alone."""
    several = isinstance(given, (list, tuple))
    found = list(given) if several else [given]
    if not found:
        raise ArgumentsError(f"kg.{what} needs writes=, since a step whose results nobody needs is left out")
    for w in found:
        if not isinstance(w, (Spec, Tracer, np.ndarray)):
            raise ArgumentsError(f"kg.{what}: writes= takes kg.spec(shape, dtype) and arrays, not {type(w).__name__}")
    return found, not several


def _is_custom_call_array(x: Any) -> bool:
    return isinstance(x, (Tracer, np.ndarray))


def _users_function_of_custom_call(what: str, fn: Any) -> Callable[..., Any]:
    """The user's own function, not the copy of it that is traced."""
    trace = current_trace()
    if trace is not None:
        fn = trace.world.original_value(fn)
    if not callable(fn):
        raise ArgumentsError(f"kg.{what} takes a Python function, not {fn!r}")
    if type(fn) is FunctionType and isinstance(fn.__globals__, TracedGlobals):  # defined in the traced function
        raise ArgumentsError(f"kg.{what}: define {fn.__name__} outside of the traced function")
    return fn  # type: ignore[no-any-return]


def _custom_host_function_with_numbers(function: Callable[..., Any], numbers: Sequence[Any]) -> Callable[..., Any]:
    """The function with the numbers after its arrays."""
    if not numbers:
        return function

    def call_custom_function_with_numbers(*arrays: Any) -> Any:
        return function(*arrays, *numbers)

    call_custom_function_with_numbers.__qualname__ = getattr(function, "__qualname__", "function")
    return call_custom_function_with_numbers


def _arrays_of_custom_call_step(inputs: Sequence[Any], outputs: Sequence[Any]) -> tuple[list[Tracer], list[NewArray]]:
    """All arrays of a step (to be read, then initial values), and what it writes."""
    arrays, fresh_ = [to_traced_array(x) for x in inputs], []
    for w in outputs:
        if isinstance(w, Spec):
            fresh_.append(NewArray(w.shape, w.dtype.name))
        else:
            fresh_.append(NewArray(w.shape, w.dtype.name, len(arrays)))
            arrays.append(to_traced_array(w))
    return arrays, fresh_


def _type_written_by_custom_call(w: NewArray) -> ArrayType:
    return ArrayType(w.shape, checked_dtype(w.dtype))


def _results_of_custom_call(
    values: Sequence[Any], arrays: Sequence[Tracer], outputs: Sequence[Any], single: bool
) -> Any:
    results = []
    for value, w in zip(values, outputs, strict=True):
        result = new_traced_result(value, *arrays)
        results.append(result if isinstance(w, Spec) else assign_to_tracer(w, result))
    return results[0] if single else tuple(results)


def _eager_custom_call(callback: Callback, inputs: Sequence[Any], outputs: Sequence[Any], single: bool) -> Any:
    """Outside of a trace."""
    arrays, writes = [np.asarray(x) for x in inputs], []
    for w in outputs:
        if isinstance(w, Spec):
            writes.append(NewArray(w.shape, w.dtype.name))
        else:
            writes.append(NewArray(w.shape, w.dtype.name, len(arrays)))
            arrays.append(w)
    results = invoke_custom_call_callback(*arrays, callback=callback, reads=len(inputs), writes=writes)
    for w, result in zip(outputs, results, strict=True):
        if not isinstance(w, Spec):
            w[...] = result
    found = tuple(r if isinstance(w, Spec) else w for w, r in zip(outputs, results, strict=True))
    return found[0] if single else found


def _custom_kernel_source(fn: Any, name: str) -> tuple[UserFunctionSource | str, str]:
    """The kernel as plain data, and its name."""
    if isinstance(fn, str):
        if not name or f"{name}(" not in fn.replace(" (", "("):
            raise ArgumentsError('kg.kernel of CUDA C++ text needs name=, that of its extern "C" __global__ function')
        return fn, name
    trace = current_trace()
    if trace is not None:
        fn = trace.world.original_value(fn)
    plain = getattr(fn, "py_func", fn)
    if not inspect.isfunction(plain):
        raise ArgumentsError(f"kg.kernel takes a numba.cuda kernel or CUDA C++ text, not {fn!r}")
    return source_of_user_function(plain, trace, kernel=True), plain.__name__


def _custom_kernel_constant(number: Any) -> tuple[bytes, str]:
    value = np.asarray(number)
    return value.tobytes(), value.dtype.name


def _custom_kernel_launch_grid(grid: Any) -> tuple[Sizes, Sizes]:
    """(blocks, threads) along three axes."""
    pair = tuple(grid) if isinstance(grid, (list, tuple)) else ()
    if len(pair) != 2:
        raise ArgumentsError(f"grid={grid!r} is no launch shape; write grid=(blocks, threads)")
    blocks, threads = (_custom_kernel_grid_sizes(x) for x in pair)
    if min(*blocks, *threads) < 1 or threads[0] * threads[1] * threads[2] > THREADS:
        raise ArgumentsError(f"grid={grid!r}: there is at least one block, and 1 to {THREADS} threads in each")
    return blocks, threads


def _custom_kernel_grid_sizes(given: Any) -> Sizes:
    numbers = [int(require_known_numpy_option(n)) for n in (given if isinstance(given, (list, tuple)) else (given,))]
    x, y, z = (*numbers, 1, 1, 1)[:3]
    return x, y, z
