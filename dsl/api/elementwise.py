"""`@kg.elementwise`: a scalar Python function with loops and branches in; a function of arrays, fused like ops, out."""

from __future__ import annotations

import dis
import functools
import importlib
import inspect
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from ...compiler.core.types import FLOAT32, FLOAT64, HALVES, complex_dtype, dtype_kind, real_dtype
from ...compiler.graph.graph import Value
from ...runtime.codegen.numba_errors import ScalarFunctionError
from ...runtime.codegen.numba_functions import infer_user_function_dtypes
from ...runtime.core.readable_text import with_article
from ...runtime.core.settings import settings
from ...runtime.program.user_function import (
    ImportableFunctionName,
    UserFunction,
    UserFunctionSource,
    apply_user_function_over_arrays,
    nested_code_of_user_function,
)
from ..array.array import Array
from ..array.conversion import device_of_arguments
from ..array.devices import name_of
from ..core.errors import ArgumentsError, DTypeError, UnsupportedError, show_user_line
from ..environment.environment import TracedGlobals
from ..functions.masked_values import MaskedSelection, masked_arguments_as_arrays, masked_operands_together
from ..jit.pickling import PicklableDecoratedFunction
from ..trace.dispatch import NumpyProtocols
from ..trace.operands import new_traced_result, to_graph_operand, trace_of_operands
from ..trace.trace import Trace, current_trace
from ..trace.tracer import Tracer

MODULES = ("math", "cmath", "numpy", "operator", "builtins")
_NUMBERS = (bool, int, float, complex, np.generic)

# What has no place in a kernel, by the start of the instruction's name: what it is, and what to write instead.
_REFUSED = {
    "RAISE_VARARGS": ("raises an error", "return np.nan, or a second result that tells"),
    "LOAD_ASSERTION_ERROR": ("asserts", "check the arrays before, or return a second result that tells"),
    "IMPORT_NAME": ("imports a module", "import it outside of the function"),
    "YIELD_VALUE": ("is a generator", "return the results as a tuple"),
    "STORE_GLOBAL": ("assigns to a global name", "return the value"),
    "STORE_DEREF": ("assigns to a name of an outer function", "return the value"),
    "STORE_ATTR": ("assigns to an attribute", "return the value"),
    "BUILD_MAP": ("makes a dict", "use numbers and tuples of numbers"),
    "BUILD_CONST_KEY_MAP": ("makes a dict", "use numbers and tuples of numbers"),
    "BUILD_LIST": ("makes a list", "use numbers and tuples of numbers"),
    "BUILD_SET": ("makes a set", "use numbers and tuples of numbers"),
    "BUILD_STRING": ("makes a string", "use numbers"),
    "FORMAT_": ("makes a string", "use numbers"),
    "SETUP_WITH": ("has a with statement", "leave it out"),
    "BEFORE_WITH": ("has a with statement", "leave it out"),
    "PUSH_EXC_INFO": ("catches errors", "test the numbers with if"),
}


class Elementwise(PicklableDecoratedFunction):
    """A scalar function, for arrays. Calls broadcast; they return one array, or a tuple of as many as the function
    returns. With numbers alone it is the function itself.

    Examples
    --------
    >>> kg.elementwise(lambda x: x + 1)(np.zeros(2)).tolist()
    [1.0, 1.0]
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        """Raises ArgumentsError, UnsupportedError."""
        if type(function) is not FunctionType:
            raise ArgumentsError(f"kg.elementwise takes a Python function, not {function!r}")
        functools.update_wrapper(self, function)
        self.__name__ = function.__name__
        self.function = function
        self.signature = inspect.signature(function)
        for p in self.signature.parameters.values():
            if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD, p.KEYWORD_ONLY):
                raise ArgumentsError(
                    f"{function.__name__}: the parameter {p} is not of a scalar function; give it a place and a name",
                    show_user_line(function.__code__.co_filename, function.__code__.co_firstlineno),
                )
        _check_elementwise_function(function)
        self._eager: dict[str, Any] = {}

    def _pickled(self) -> tuple[Callable[..., Any], Mapping[str, Any]]:
        return self.function, {}

    def __call__(self, *args: Any, **options: Any) -> Any:
        try:
            bound = self.signature.bind(*args, **options)
        except TypeError as error:
            raise ArgumentsError(f"{self.__name__}() {error}") from None
        bound.apply_defaults()
        given = bound.args
        if not any(
            isinstance(x, (NumpyProtocols, np.ndarray, Array)) or hasattr(x, "__array_interface__") for x in given
        ):
            return self.function(*given)
        if current_trace() is not None:
            return self._trace_call_of_elementwise(given)
        return self._call_eagerly(given) if not settings.disable else self._call_element_by_element(given)

    def _trace_call_of_elementwise(self, given: Sequence[Any], where: Value | None = None) -> Any:
        if any(type(x) is MaskedSelection for x in given):
            return self._call_elementwise_on_masked_selection(given)
        trace = trace_of_operands(*given)
        operands = [
            to_graph_operand(self._checked_operand(name, x))
            for name, x in zip(self.signature.parameters, given, strict=True)
        ]
        function = self._function_for_dtypes(operands, trace)
        results = tuple(
            new_traced_result(value, *given) for value in trace.builder.call(function, *operands, where=where)
        )
        return results if function.several else results[0]

    def _call_elementwise_on_masked_selection(self, given: Sequence[Any]) -> Any:
        """Of elements that a mask has chosen: only they are computed."""
        found = masked_operands_together(given)
        if found is None:
            return self._trace_call_of_elementwise(masked_arguments_as_arrays(given))
        first, every = found
        rank = max(np.ndim(x) for x in every)
        mask = first._mask.reshape((*first._mask.shape, *(1,) * (rank - first._mask.ndim)))
        results = self._trace_call_of_elementwise(every, mask._value)
        several = isinstance(results, tuple)
        parts = tuple(MaskedSelection(r, first._mask, first._line) for r in (results if several else (results,)))
        return parts if several else parts[0]

    def _call_element_by_element(self, given: tuple[Any, ...]) -> Any:
        """Element by element in Python."""
        arrays = [x if isinstance(x, _NUMBERS) else np.asarray(x) for x in given]
        function = self._function_for_dtypes(arrays, None)
        results = tuple(
            apply_user_function_over_arrays(function, part, *arrays) for part in range(len(function.results))
        )
        return results if function.several else results[0]

    def _function_for_dtypes(self, operands: list[Any], trace: Trace | None) -> UserFunction:
        """The function for these arguments. Raises UnsupportedError at the user's line."""
        source = source_of_user_function(self.function, trace)
        dtypes = elementwise_argument_dtypes(operands)
        try:
            return infer_user_function_dtypes(source, dtypes)
        except ScalarFunctionError as error:
            code = self.function.__code__
            place = show_user_line(error.file or code.co_filename, error.line or code.co_firstlineno)
            reason = f"{self.__name__}({', '.join(dtypes)}) cannot be compiled: {error.reason}"
            raise UnsupportedError(reason, place) from None

    def _checked_operand(self, name: str, x: Any) -> Any:
        if isinstance(x, (str, bytes, list, tuple, dict, set)) or x is None or callable(x):
            raise DTypeError(
                f"{self.__name__}: the argument {name} is {with_article(type(x).__name__)}; a scalar function takes "
                "numbers and arrays of them; let it capture other things"
            )
        return x

    def _call_eagerly(self, given: tuple[Any, ...]) -> Any:
        """Outside of a trace: one kernel, on the device of the arrays."""
        from ..jit.kernel_graph import KernelGraph

        device = device_of_arguments(*given)
        place = "cpu" if device is None else name_of(device)
        compiled = self._eager.get(place)
        if compiled is None:

            def call_on_tracers(*args: Any) -> Any:
                return self._trace_call_of_elementwise(args)

            call_on_tracers.__name__ = self.__name__
            compiled = self._eager[place] = KernelGraph(call_on_tracers, device=place, untraceable="refuse")
        return compiled(*given)

    def __repr__(self) -> str:
        return f"<elementwise {self.__name__}{self.signature}>"


def elementwise(function: Callable[..., Any]) -> Elementwise:
    """A scalar Python function, compiled by numba, as a function of arrays. It fuses like any operation.

    Its arguments and results are numbers: bool, integers, floats, complex; several results come as a tuple. It may have
    loops, branches and helper functions, use `math`, `cmath` and NumPy's scalar functions, and capture numbers, tuples
    of numbers and functions from outside. See the page about users' functions for dtypes and what is refused.

    Parameters
    ----------
    function : callable
        A NumPy function.

    Returns
    -------
    Elementwise

    Raises
    ------
    ArgumentsError
        (at its line) for what cannot be compiled.
    UnsupportedError
        (at its line) for what cannot be compiled.

    Examples
    --------
    >>> @kg.elementwise
    ... def halvings(x):
    ...     count = 0
    ...     while x > 1:
    ...         x, count = x / 2, count + 1
    ...     return count
    >>> halvings(np.array([1.0, 8.0, 9.0])).tolist()
    [0, 3, 4]
    """
    return Elementwise(function)


def elementwise_argument_dtypes(operands: list[Any]) -> tuple[str, ...]:
    """The dtypes that a scalar function gets: of arrays their own, but float32 for 16-bit floats; a Python float or
    complex number has the precision of the arrays' widest float, float64 where there is none; an int is an int64."""
    kinds = [_dtype_of_elementwise_operand(x) for x in operands]
    floats = [
        FLOAT32 if k in HALVES else real_dtype(k) for k in kinds if isinstance(k, np.dtype) and dtype_kind(k) in "fc"
    ]
    real = max(floats, key=lambda d: d.itemsize, default=FLOAT64)
    weak = {bool: np.dtype(bool), int: np.dtype(np.int64), float: real, complex: complex_dtype(real)}
    return tuple((weak[k] if isinstance(k, type) else FLOAT32 if k in HALVES else k).name for k in kinds)


def _dtype_of_elementwise_operand(x: Any) -> Any:
    if isinstance(x, Value):
        return x.promotes_as
    return x.dtype if isinstance(x, (np.generic, np.ndarray)) else type(x)


# what a function captured


# NumPy does not run scalar functions either
_unfit = functools.partial(UnsupportedError, needs_values=False)


def source_of_user_function(
    function: FunctionType, trace: Trace | None = None, above: tuple[CodeType, ...] = (), kernel: bool = False
) -> UserFunctionSource:
    """The function as plain data. What it captured is read now, and guarded by the trace in progress.

    kernel: it is one of numba.cuda's, and may use what that offers."""
    code = function.__code__
    if not kernel:
        _check_elementwise_function(function)
    if code in above:
        raise _unfit(f"{function.__name__} calls itself; write a loop", _first_line_of_elementwise(code))
    captured = {}
    for name, holder, how in _names_captured_by_elementwise(function):
        if trace is not None:
            trace.world.read_guarded(holder, name, name, how)
        value = holder.cell_contents if how == "cell" else holder[name]
        captured[name] = _elementwise_capture_as_data(value, name, code, trace, (*above, code), kernel)
    return UserFunctionSource.from_code(code, captured, tuple(function.__defaults__ or ()))


def _names_captured_by_elementwise(function: FunctionType) -> Iterator[tuple[str, Any, str]]:
    """(name, where it is found, how) of all that the code names outside of itself."""
    code, scope = function.__code__, function.__globals__
    scope = scope._real if isinstance(scope, TracedGlobals) else scope
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        yield name, cell, "cell"
    for name in dict.fromkeys(n for c in nested_code_of_user_function(code) for n in c.co_names):
        if name in scope and _elementwise_code_loads_global(code, name):
            yield name, scope, "item"


def _elementwise_code_loads_global(code: CodeType, name: str) -> bool:
    return any(
        i.opname == "LOAD_GLOBAL" and i.argval == name
        for c in nested_code_of_user_function(code)
        for i in dis.get_instructions(c)
    )


def _elementwise_capture_as_data(
    value: Any, name: str, code: CodeType, trace: Trace | None, above: tuple[CodeType, ...], kernel: bool
) -> Any:
    """A captured value as plain data. Raises UnsupportedError."""
    if isinstance(value, _NUMBERS) or (type(value) is tuple and all(isinstance(v, _NUMBERS) for v in value)):
        return value
    value = getattr(value, "py_func", value)  # of numba's own functions
    if isinstance(value, Elementwise):
        value = value.function
    module = getattr(value, "__module__", None) or ("numpy" if isinstance(value, np.ufunc) else None)
    if isinstance(value, ModuleType):
        if value.__name__ in MODULES or (kernel and value.__name__.split(".")[0] in ("numba", "cuda")):
            return ImportableFunctionName(value.__name__)
        raise _unfit_elementwise_capture_error(
            f"the module {name}; read the number outside of the function", name, code
        )
    found = getattr(value, "__name__", "")
    if module in MODULES and getattr(__import__(module), found, None) is value:
        return ImportableFunctionName(module, found)
    if isinstance(value, types.FunctionType):
        return source_of_user_function(value, trace, above, kernel)
    if kernel:
        for place in ("numba", "numba.cuda"):
            if getattr(importlib.import_module(place), name, None) is value:
                return ImportableFunctionName(place, name)
    if isinstance(value, Tracer):
        raise _unfit_elementwise_capture_error(f"{name}, a traced value; pass it as an argument", name, code)
    kind = type(value).__name__
    raise _unfit_elementwise_capture_error(
        f"{name}, {with_article(kind)}; capture numbers, tuples of numbers and functions, or pass it", name, code
    )


def _unfit_elementwise_capture_error(what: str, name: str, code: CodeType) -> UnsupportedError:
    for instruction in dis.get_instructions(code):
        if instruction.argval == name and instruction.positions and instruction.positions.lineno:
            return _unfit(
                f"the scalar function {code.co_name} uses {what}",
                show_user_line(code.co_filename, instruction.positions.lineno),
            )
    return _unfit(f"the scalar function {code.co_name} uses {what}", _first_line_of_elementwise(code))


def _first_line_of_elementwise(code: CodeType) -> str:
    return show_user_line(code.co_filename, code.co_firstlineno)


def _check_elementwise_constants_overflow(
    code: CodeType, a: dis.Instruction, b: dis.Instruction, operation: dis.Instruction
) -> None:
    """Raises UnsupportedError for a calculation with two whole numbers that is too long to fold. Python leaves it for
    later: it would wrap around, where Python's own numbers do not."""
    x, y = a.argval, b.argval
    constants = all(i.opname in ("LOAD_CONST", "LOAD_SMALL_INT") and type(i.argval) is int for i in (a, b))
    if not constants or operation.argrepr not in _GROWING:
        return
    long = operation.argrepr != "*" and y > 4096  # is not worked out
    if long or not -(1 << 63) <= _GROWING[operation.argrepr](x, y) < 1 << 64:
        line = (operation.positions and operation.positions.lineno) or code.co_firstlineno
        raise _unfit(
            f"the scalar function {code.co_name} uses {x} {operation.argrepr} {y}, which has more than 64 bits; write "
            "floats: 2.0**100",
            show_user_line(code.co_filename, line),
        )


_GROWING: dict[str, Callable[[int, int], Any]] = {
    "**": lambda x, y: x**y if y >= 0 else 0,
    "<<": lambda x, y: x << y if y >= 0 else 0,
    "*": lambda x, y: x * y,
}


def _check_elementwise_function(function: FunctionType) -> None:
    """Raises UnsupportedError, at the line, for what has no place in a kernel."""
    code = function.__code__
    instructions = list(dis.get_instructions(code))
    for at, instruction in enumerate(instructions):
        if instruction.opname == "BINARY_OP" and at > 1:
            _check_elementwise_constants_overflow(code, *instructions[at - 2 : at + 1])
        for start, (does, instead) in _REFUSED.items():
            if instruction.opname.startswith(start):
                lines = (i.positions.lineno for i in instructions[at:] if i.positions and i.positions.lineno)
                raise _unfit(
                    f"the scalar function {code.co_name} {does}, which a kernel cannot; {instead}",
                    show_user_line(code.co_filename, next(lines, code.co_firstlineno)),
                )
