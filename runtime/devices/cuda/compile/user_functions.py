"""Users' scalar functions as names of CUDA kernel text. Each is called on every lane, its results come as a tuple.

The arguments are lanes of reals, those of a complex argument in two; so are the results, one after another. numba.cuda
compiles the Python function with the kernel that calls it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from typing import Any

import numpy as np
from llvmlite import ir

from ....codegen import dual_numbers
from ....program.user_function import (
    UserFunction,
    float_constant_dtype_of_user_function,
    rebuild_user_function_in_python,
)
from . import numba_parts
from .lanes import NUMBA, Lanes, emit_nvvm_branch, make_numba_lane_intrinsic, numba_lane_count
from .numba_parts import compile_cuda, jit, signature, types
from .primitives import LLVM, Value


def numba_intrinsics_of_user_functions(functions: Sequence[UserFunction], cc: tuple[int, int]) -> dict[str, Any]:
    """The names that a kernel's text may use for these functions, and the intrinsics that they stand for."""
    found = {}
    if any(function.order for function in functions):
        _register_dual_numbers_with_numba_cuda()
    for function in functions:
        if not function.results:  # a kernel of the user's: see `compiler/targets/cuda/algorithms/custom_kernel.py`
            found[function.symbol] = _compile_numba_cuda_callee(
                cc,
                rebuild_user_function_in_python(function.source, np.float64, partial(_compile_numba_cuda_callee, cc)),
            )
            continue
        found[function.symbol] = _user_function_intrinsic(function, False, cc)
        found[f"{function.symbol}_if"] = _user_function_intrinsic(function, True, cc)
    return found


@cache
def _register_dual_numbers_with_numba_cuda() -> None:
    """Makes dual numbers known to numba.cuda."""
    dual_numbers.register_dual_number_type({name: getattr(numba_parts, name) for name in dual_numbers.PARTS})


def _numba_cuda_real_parts(dtype: str) -> list[str]:
    """The short names of the reals that make up a value."""
    d = np.dtype(dtype)
    if d.kind == "c":
        return [f"f{d.itemsize * 4}"] * 2
    return ["b1" if d.kind == "b" else f"{d.kind}{d.itemsize * 8}"]


def _numba_cuda_type_of_dtype(dtype: str) -> Any:
    d = np.dtype(dtype)
    return (
        NUMBA[_numba_cuda_real_parts(dtype)[0]]
        if d.kind != "c"
        else {8: types.complex64, 16: types.complex128}[d.itemsize]
    )


def _user_function_intrinsic(function: UserFunction, masked: bool, cc: tuple[int, int]) -> Any:
    """The function on lanes; masked: the last argument says for which."""
    arguments, outputs = (
        [_numba_cuda_real_parts(d) for d in dtypes] for dtypes in (function.arguments, function.results)
    )
    flat = [part for parts in outputs for part in parts]
    several = types.Tuple([_numba_cuda_type_of_dtype(r) for r in function.results])
    sig = signature(several if function.several else several[0], *map(_numba_cuda_type_of_dtype, function.arguments))

    given = sum(map(len, arguments))

    def type_of_results(*argtypes: Any) -> Any:
        count = max(map(numba_lane_count, argtypes[:given]))
        items = [NUMBA[part] for part in flat for _ in range(count)]
        return items[0] if len(items) == 1 else types.Tuple(items)

    def generate_nvvm(context: Any, b: ir.IRBuilder, *lanes: Lanes) -> list[Value]:
        plain = rebuild_user_function_in_python(
            function.source,
            float_constant_dtype_of_user_function(function.arguments),
            partial(_compile_numba_cuda_callee, cc),
        )
        count = max(map(len, lanes[:given]))
        made = context.compile_subroutine(b, plain, sig, caching=False)

        def call_in_one_lane(k: int) -> list[Value]:
            reals = [v[k % len(v)] for v in lanes[:given]]
            values = [
                _take_numba_cuda_argument(context, b, d, parts, reals)
                for d, parts in zip(function.arguments, arguments, strict=True)
            ]
            status, result = context.call_internal_no_propagate(b, made.fndesc, sig, values)
            results = _extract_nvvm_parts(b, result, len(outputs), function.several)
            found = [
                part
                for value, parts in zip(results, outputs, strict=True)
                for part in _extract_nvvm_parts(b, value, 2, len(parts) == 2)
            ]
            return [*map(partial(b.select, status.is_ok), found, _nvvm_result_of_failed_user_function(flat))]

        rows = []
        for k in range(count):
            exists = _any_numba_lane_of_mask(b, lanes[-1], k, count) if masked else None
            rows.append(
                call_in_one_lane(k)
                if exists is None
                else emit_nvvm_branch(
                    b, exists, partial(call_in_one_lane, k), partial(_nvvm_result_of_failed_user_function, flat)
                )
            )
        return [row[part] for part in range(len(flat)) for row in rows]

    return make_numba_lane_intrinsic(function.symbol, given + masked, type_of_results, generate_nvvm, in_context=True)


def _extract_nvvm_parts(b: ir.IRBuilder, value: Value, count: int, several: bool) -> list[Value]:
    return [b.extract_value(value, i) for i in range(count)] if several else [value]


def _compile_numba_cuda_callee(cc: tuple[int, int], function: Any) -> Any:
    """A function that a user's function calls, compiled for `cc`; numba itself would ask for a GPU."""
    made: Any = jit(device=True)(function)

    def compile_for_given_gpu(args: Any, return_type: Any = None) -> Any:
        if args not in made.overloads:
            result = compile_cuda(function, return_type, args, forceinline=True, nvvm_options={"opt": 3}, cc=cc)
            made.overloads[args] = result
            result.target_context.insert_user_function(result.entry_point, result.fndesc, [result.library])
        return made.overloads[args]

    made.compile_device = compile_for_given_gpu
    return made


def _any_numba_lane_of_mask(b: ir.IRBuilder, mask: Sequence[Value], k: int, count: int) -> Value:
    """Whether lane k of a mask does; a value that all lanes share is needed where any does."""
    if count > 1:
        return mask[k % len(mask)]
    found = mask[0]
    for flag in mask[1:]:
        found = b.or_(found, flag)
    return found


def _nvvm_result_of_failed_user_function(flat: Sequence[str]) -> list[Value]:
    """What an error gives: nan, or 0 for whole numbers."""
    return [LLVM[part](float("nan") if part[0] == "f" else 0) for part in flat]


def _take_numba_cuda_argument(
    context: Any, b: ir.IRBuilder, dtype: str, parts: Sequence[str], reals: list[Value]
) -> Value:
    """The next argument, taken off the front of the reals."""
    first = reals.pop(0)
    if len(parts) == 1:
        return first
    value = context.make_complex(b, _numba_cuda_type_of_dtype(dtype), None)
    value.real, value.imag = first, reals.pop(0)
    return value._getvalue()
