"""A user's scalar Python function as plain data: its code and what it captured. Hashable, picklable, diffable.

`rebuild_user_function_in_python` makes the Python function again, in this process or another.
"""

from __future__ import annotations

import builtins
import dis
import importlib
import marshal
import sys
from collections.abc import Callable, Iterator
from functools import cache
from types import CellType, CodeType, FunctionType
from typing import Any

import numpy as np

from ..core.disk_cache import sha256_digest
from ..core.frozen import field, frozen

Make = Callable[[FunctionType], Any]


@frozen
class ImportableFunctionName:
    """A module, or something that is found in one by its name."""

    module: str
    name: str = ""

    def import_object(self) -> Any:
        module = importlib.import_module(self.module)
        return getattr(module, self.name) if self.name else module


@frozen
class UserFunctionSource:
    """A function's code (marshalled) and what its global names and cells stand for: numbers, tuples of numbers,
    `ImportableFunctionName` things and the `UserFunctionSource` of other functions. Equal digests mean equal functions,
    wherever they are written."""

    name: str
    code: bytes = field(compare=False, repr=False)
    captured: tuple[tuple[str, Any], ...] = field(compare=False, repr=False)
    defaults: tuple[Any, ...] = field(compare=False, repr=False)
    digest: str

    @property
    def file(self) -> str:
        """Where it is written."""
        return str(marshal.loads(self.code).co_filename)

    @classmethod
    def from_code(cls, code: CodeType, captured: dict[str, Any], defaults: tuple[Any, ...] = ()) -> UserFunctionSource:
        items = tuple(sorted(captured.items()))
        shown = [(name, _format_captured_function_value(value)) for name, value in items]
        known = sha256_digest(
            sys.version_info[:2], _identity_of_function_code(code), shown, _format_captured_function_value(defaults)
        )
        name = "".join(c for c in code.co_name if c.isascii() and (c.isalnum() or c == "_")) or "function"
        return cls(name, marshal.dumps(code), items, defaults, known)


@frozen
class UserFunction:
    """A scalar function for arguments of given dtypes: one result, or several as a tuple.

    arguments, results: names of dtypes; bool, integers, floats and complex numbers of 32 and 64 bits a real.
    """

    source: UserFunctionSource
    arguments: tuple[str, ...]
    results: tuple[str, ...]
    several: bool = False

    @property
    def loops(self) -> bool:
        """Whether it, or a function that it calls, has a loop."""
        return _user_function_source_has_loops(self.source)

    @property
    def order(self) -> int:
        """How many times it was differentiated."""
        return _derivative_order_of_function_source(self.source)

    @property
    def symbol(self) -> str:
        """What kernel text calls it."""
        return f"user_{self.source.name}_{sha256_digest(self.source.digest, self.arguments)[:12]}"

    def __str__(self) -> str:
        return self.symbol


_CODEGEN = f"{__name__.rpartition('.program.')[0]}.codegen"  # which imports this folder
DUAL_NUMBERS = f"{_CODEGEN}.dual_numbers"


@cache
def derivatives_of_user_function(function: UserFunction, places: tuple[int, ...]) -> UserFunction:
    """The partial derivatives of each real result in turn by the real arguments in these places.

    It is a function like any other, which calls the given one with dual numbers; see `runtime/codegen/dual_numbers`."""
    tag, n = function.order + 1, len(places)
    names = [f"a{i}" for i in range(len(function.arguments))]
    given = [f"lift({a}, {n}, {places.index(i)}, {tag})" if i in places else a for i, a in enumerate(names)]
    kinds = [(i, np.dtype(r)) for i, r in enumerate(function.results) if np.dtype(r).kind == "f"]
    one = "found[{}]" if function.several else "found"
    parts = [f"partial({one.format(i)}, {k}, {tag}, {8 * d.itemsize})" for i, d in kinds for k in range(n)]
    lines = [
        f"def partials_of_{function.source.name}({', '.join(names)}):",
        f" found = function({', '.join(given)})",
        f" return ({', '.join(parts)},)",
    ]
    (code,) = (c for c in compile("\n".join(lines), function.source.file, "exec").co_consts if isinstance(c, CodeType))
    captured: dict[str, Any] = {name: ImportableFunctionName(DUAL_NUMBERS, name) for name in ("lift", "partial")}
    source = UserFunctionSource.from_code(code, {**captured, "function": function.source})
    return UserFunction(source, function.arguments, tuple(d.name for _, d in kinds for _ in range(n)), True)


@cache
def _derivative_order_of_function_source(source: UserFunctionSource) -> int:
    captured = dict(source.captured)
    lifts = captured.get("lift") == ImportableFunctionName(DUAL_NUMBERS, "lift")
    return 1 + _derivative_order_of_function_source(captured["function"]) if lifts else 0


def float_constant_dtype_of_user_function(arguments: tuple[str, ...]) -> type[np.float32] | type[np.float64]:
    """What float constants of a function are: float32 where the widest float among its arguments is that."""
    kinds = {np.dtype(a) for a in arguments if np.dtype(a).kind in "fc"}
    narrow = kinds and all(d.itemsize <= (8 if d.kind == "c" else 4) for d in kinds)
    return np.float32 if narrow else np.float64


def rebuild_user_function_in_python(
    source: UserFunctionSource, real: type, make: Make = lambda function: function
) -> FunctionType:
    """The function, with its float constants of type `real`, float32 or float64. These are its own and captured ones.

    make: what is to be done with the functions that it calls, such as to compile them."""
    code = narrow_constants_of_function_code(marshal.loads(source.code), real)
    scope: dict[str, Any] = {"__builtins__": builtins, "__name__": "kernelgraph.user"}
    scope.update({name: _rebuild_captured_function_value(value, real, make) for name, value in source.captured})
    cells = tuple(CellType(scope.pop(name)) for name in code.co_freevars)
    return FunctionType(
        code, scope, source.name, _narrow_function_constant(source.defaults, real) or None, cells or None
    )


def _rebuild_captured_function_value(value: Any, real: type, make: Make) -> Any:
    if isinstance(value, UserFunctionSource):
        return make(rebuild_user_function_in_python(value, real, make))
    return (
        value.import_object() if isinstance(value, ImportableFunctionName) else _narrow_function_constant(value, real)
    )


def narrow_constants_of_function_code(code: CodeType, real: type) -> CodeType:
    return code.replace(co_consts=tuple(_narrow_function_constant(c, real) for c in code.co_consts))


def _narrow_function_constant(value: Any, real: type) -> Any:
    """A float becomes the nearest float32 where that is asked for; a Python float stands for float64."""
    if type(value) is tuple:
        return tuple(_narrow_function_constant(v, real) for v in value)
    if isinstance(value, CodeType):
        return narrow_constants_of_function_code(value, real)
    if real is np.float64:
        return value
    with np.errstate(over="ignore"):
        return real(value) if type(value) is float else np.complex64(value) if type(value) is complex else value


@cache
def _user_function_source_has_loops(source: UserFunctionSource) -> bool:
    jumps = (
        dis.opname[op] for code in nested_code_of_user_function(marshal.loads(source.code)) for op in code.co_code[::2]
    )
    return any("BACKWARD" in name for name in jumps) or any(
        _user_function_source_has_loops(value) for _, value in source.captured if isinstance(value, UserFunctionSource)
    )


def nested_code_of_user_function(code: CodeType) -> Iterator[CodeType]:
    """A code object and those within it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from nested_code_of_user_function(constant)


@cache
def python_form_of_user_function(function: UserFunction) -> Callable[..., tuple[Any, ...]]:
    """The function in Python, on scalars of its arguments' dtypes, as a tuple of results.

    Floats are NumPy's, so that a division by zero gives inf or nan; what raises gives nan, or 0 for whole numbers."""
    plain: Callable[..., Any] = rebuild_user_function_in_python(
        function.source, float_constant_dtype_of_user_function(function.arguments)
    )
    if function.order:  # which Python's own numbers cannot do
        plain = ImportableFunctionName(
            f"{_CODEGEN}.numba_functions", "compile_user_function_for_python"
        ).import_object()(function)
    kinds = [np.dtype(a) for a in function.arguments]
    nothing = tuple(np.dtype(r).type(np.nan if np.dtype(r).kind in "fc" else 0) for r in function.results)

    def call_user_function(*values: Any) -> tuple[Any, ...]:
        given = [k.type(v) if k.kind in "fc" else k.type(v).item() for k, v in zip(kinds, values, strict=True)]
        try:
            found = plain(*given)
        except (ArithmeticError, ValueError, LookupError):
            return nothing
        return tuple(found) if function.several else (found,)

    return call_user_function


def apply_user_function_over_arrays(function: UserFunction, part: int, *arrays: Any) -> np.ndarray[Any, Any]:
    """Result `part` for each element of broadcast arrays, by the function in Python. One more array than the function
    has arguments says for which elements; the others are 0."""
    scalar, dtype = python_form_of_user_function(function), np.dtype(function.results[part])
    broadcast = np.broadcast_arrays(*arrays)
    count = len(function.arguments)
    chosen = broadcast[count].ravel() if len(arrays) > count else np.ones(broadcast[0].size, bool)
    results = np.zeros(chosen.size, dtype)
    with np.errstate(all="ignore"):
        for at, values in enumerate(zip(*(a.ravel() for a in broadcast[:count]), strict=True)):
            if chosen[at]:
                results[at] = scalar(*values)[part]
    return results.reshape(broadcast[0].shape)


def _identity_of_function_code(code: CodeType) -> list[Any]:
    """What a code object means, without where it stands."""
    return [
        code.co_code, code.co_argcount, code.co_kwonlyargcount, code.co_flags, code.co_names, code.co_varnames,
        code.co_freevars, code.co_cellvars, code.co_exceptiontable,
        [_format_captured_function_value(c) for c in code.co_consts],
    ]  # fmt: skip


def _format_captured_function_value(value: Any) -> Any:
    if isinstance(value, CodeType):
        return _identity_of_function_code(value)
    if isinstance(value, tuple):
        return [_format_captured_function_value(v) for v in value]
    return value.digest if isinstance(value, UserFunctionSource) else (type(value).__name__, repr(value))
