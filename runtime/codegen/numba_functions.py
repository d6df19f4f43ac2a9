"""Scalar Python functions in, their results' dtypes and LLVM IR out. By numba, once for each kind of arguments.

The answers are kept on disk: a warm start imports no numba. The IR is a function `void @symbol(arguments, ptr ...)`
that writes its results through pointers, a complex number as two reals and a bool as a byte, and calls C's library only
where LLVM has no instruction.
"""

from __future__ import annotations

import re
import threading
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np

from ..codegen import elf_loader
from ..core.disk_cache import DiskCache, sha256_digest
from ..core.frozen import replace
from ..program.user_function import (
    UserFunction,
    UserFunctionSource,
    float_constant_dtype_of_user_function,
    rebuild_user_function_in_python,
)
from . import dual_numbers, llvm_jit
from .numba_errors import ScalarFunctionError, explain_numba_error, missing_c_symbols_message

FORMAT = 2
_CACHE = DiskCache("scalar")
_lock = threading.Lock()
_known: dict[tuple[str, UserFunctionSource, tuple[str, ...]], tuple[UserFunction, str]] = {}  # IR says the name


def infer_user_function_dtypes(source: UserFunctionSource, arguments: tuple[str, ...]) -> UserFunction:
    """The function for arguments of these dtypes, with its results' dtypes as numba infers them. Raises ScalarError."""
    return _cached_user_function(source, arguments)[0]


def link_numba_user_functions(text: str, functions: tuple[UserFunction, ...]) -> str:
    """A kernel's LLVM IR with the functions that it declares, to be inlined."""
    return llvm_jit.link_llvm_ir(text, [(f.symbol, _cached_user_function(f.source, f.arguments)[1]) for f in functions])


def machine_code_identity_of_functions(text: str, functions: tuple[UserFunction, ...]) -> str:
    """What decides the machine code of a kernel."""
    return "\n".join([text, *(f"; {_user_function_cache_key(f.source, f.arguments)}" for f in functions)])


@cache
def _numba_version() -> str:
    from importlib.metadata import version

    return version("numba")


def _user_function_cache_key(source: UserFunctionSource, arguments: tuple[str, ...]) -> str:
    return llvm_jit.llvm_cache_key(
        sha256_digest("scalar", FORMAT, source.name, source.digest, arguments, _numba_version())
    )


def _cached_user_function(source: UserFunctionSource, arguments: tuple[str, ...]) -> tuple[UserFunction, str]:
    found = _known.get((source.name, source, arguments))
    if found is None:
        import json

        with _lock:
            key = _user_function_cache_key(source, arguments)
            data = _CACHE.get(key)
            if data is None:
                with import_module("numba.core.compiler_lock").global_compiler_lock:
                    function, ir = _compile_user_function_with_numba(UserFunction(source, arguments, ()))
                entry = {"results": function.results, "several": function.several, "ir": ir}
                _CACHE.put(key, json.dumps(entry).encode(), {"name": source.name, "arguments": list(arguments)})
            else:
                entry = json.loads(data)
                function = UserFunction(source, arguments, tuple(entry["results"]), entry["several"])
                ir = entry["ir"]
            found = _known[source.name, source, arguments] = function, ir
    return found


# numba


def _compile_user_function_with_numba(function: UserFunction) -> tuple[UserFunction, str]:
    """The function with its results, and its IR. Raises ScalarError."""
    numba: Any = import_module("numba")
    core: Any = import_module("numba.core.compiler")
    target = import_module("numba.core.registry").cpu_target
    helpers = numba.njit(error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)
    if function.order:
        register_dual_numbers_with_numba()
    plain = rebuild_user_function_in_python(
        function.source, float_constant_dtype_of_user_function(function.arguments), helpers
    )
    flags = core.Flags()
    flags.no_cpython_wrapper = flags.no_cfunc_wrapper = True
    flags.error_model = "numpy"
    types = tuple(numba.from_dtype(np.dtype(a)) for a in function.arguments)
    try:
        made = core.compile_extra(target.typing_context, target.target_context, plain, types, None, flags, {})
    except numba.core.errors.NumbaError as error:
        raise explain_numba_error(error, function.source.file) from None
    except Exception as error:
        raise ScalarFunctionError(f"numba fails: {type(error).__name__}: {error}") from None
    result = made.signature.return_type
    several = isinstance(result, numba.types.BaseTuple)
    every = tuple(result.types) if several else (result,)
    function = replace(function, results=tuple(_dtype_of_numba_type(t, numba) for t in every), several=several)
    ir = _add_kernel_entry_to_llvm_ir(function, made, target.target_context)
    missing = [n for n in llvm_jit.c_functions_declared_in_llvm_ir(ir) if elf_loader.find_c_function_address(n) is None]
    if missing:
        raise ScalarFunctionError(missing_c_symbols_message(missing))
    return function, ir


@cache
def register_dual_numbers_with_numba() -> None:
    """Makes dual numbers known to numba on the CPU."""
    found = {n: import_module(f"numba.{module}") for n, module in dual_numbers.PARTS.items()}
    dual_numbers.register_dual_number_type({name: getattr(module, name) for name, module in found.items()})


def compile_user_function_for_python(function: UserFunction) -> Any:
    """A function with dual numbers as Python calls it, compiled on its own."""
    register_dual_numbers_with_numba()
    helpers = import_module("numba").njit(error_model="numpy")
    return helpers(
        rebuild_user_function_in_python(
            function.source, float_constant_dtype_of_user_function(function.arguments), helpers
        )
    )


def _dtype_of_numba_type(result: Any, numba: Any) -> str:
    """The name of the dtype of a result's numba type."""
    if isinstance(result, (numba.types.Number, numba.types.Boolean)):
        return str(import_module("numba.np.numpy_support").as_dtype(result).name)
    if isinstance(result, (numba.types.NoneType, numba.types.Optional)):
        raise ScalarFunctionError(
            "a path through it returns nothing; return a number, or a tuple of numbers, on every path"
        )
    raise ScalarFunctionError(f"it returns {result}; return a number, or a tuple of numbers")


def _add_kernel_entry_to_llvm_ir(function: UserFunction, made: Any, context: Any) -> str:
    """The IR of the module that numba made, with the entry that kernels call."""
    ir: Any = import_module("llvmlite.ir")
    types, convention = made.signature.args, context.call_conv
    library = context.codegen().create_library(function.symbol)
    module = library.create_ir_module(function.symbol)
    parameters = [p for a in function.arguments for p in _numba_llvm_types_of_dtype(a, ir)]
    outputs = [p for r in function.results for p in _numba_llvm_types_of_dtype(r, ir)]
    signature = ir.FunctionType(ir.VoidType(), [*parameters, *(ir.PointerType(p) for p in outputs)])
    entry = ir.Function(module, signature, function.symbol)
    b = ir.IRBuilder(entry.append_basic_block())
    given = list(entry.args[: len(parameters)])
    values = [_take_numba_entry_argument(context, b, t, given) for t in types]
    callee = ir.Function(
        module, convention.get_function_type(made.signature.return_type, types), made.fndesc.llvm_func_name
    )
    status, out = convention.call_function(b, callee, made.signature.return_type, types, values)
    results = [b.extract_value(out, i) for i in range(len(function.results))] if function.several else [out]
    parts = []
    for value, dtype in zip(results, function.results, strict=True):
        kind = np.dtype(dtype).kind
        pair = [b.extract_value(value, i) for i in (0, 1)] if kind == "c" else [value]
        parts += [b.zext(value, ir.IntType(8))] if kind == "b" else pair
    for value, place in zip(parts, entry.args[len(parameters) :], strict=True):
        nothing = ir.Constant(value.type, 0 if isinstance(value.type, ir.IntType) else float("nan"))
        b.store(b.select(status.is_ok, value, nothing), place)
    b.ret_void()
    library.add_ir_module(module)
    library.add_linking_library(made.library)
    library.finalize()
    return _strip_shared_llvm_declarations(library.get_llvm_str())


def _numba_llvm_types_of_dtype(dtype: str, ir: Any) -> list[Any]:
    """The LLVM types of a value: of its two parts if it is complex."""
    d = np.dtype(dtype)
    if d.kind == "c":
        return [ir.FloatType() if d.itemsize == 8 else ir.DoubleType()] * 2
    return [{4: ir.FloatType, 8: ir.DoubleType}[d.itemsize]() if d.kind == "f" else ir.IntType(8 * d.itemsize)]


def _take_numba_entry_argument(context: Any, b: Any, t: Any, given: list[Any]) -> Any:
    """The next argument's value, taken off the front."""
    first = given.pop(0)
    if hasattr(t, "underlying_float"):
        value = context.make_complex(b, t, None)
        value.real, value.imag = first, given.pop(0)
        return value._getvalue()
    return b.trunc(first, context.get_value_type(t)) if t.name == "bool" else first


# Functions of numba's own runtime that C's library has under another name.
_IN_C = {"gamma": "tgamma", "gammaf": "tgammaf"} | {n + f: n + f for n in ("ldexp", "frexp") for f in ("", "f")}


def _strip_shared_llvm_declarations(ir: str) -> str:
    """Without what the kernel's text says itself, and with C's functions for numba's."""
    ir = re.sub(r"@numba_(\w+)\b", lambda m: f"@{_IN_C.get(m[1], m[0][1:])}", ir)
    return re.sub(r"^(target \w+|source_filename) = .*\n", "", ir, flags=re.MULTILINE)
