"""Calls of users' scalar functions. `void @symbol(arguments, ptr ...)`, lane by lane, those lanes alone that exist.

A bool is a byte, a complex number two reals. The function itself is linked when the kernel is compiled.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....runtime.program.user_function import UserFunction as UserFunction
from ...core.types import BOOL, DType, real_dtype
from .llvm_ir import PLAIN, LlvmFunction, LlvmValue
from .primitives import llvm_memory_type, llvm_register_type


def llvm_register_dtypes(dtypes: Sequence[str]) -> list[DType]:
    """The dtypes of values in registers: of both parts of the complex ones."""
    found = []
    for dtype in map(np.dtype, dtypes):
        found += [real_dtype(dtype)] * (1 + (dtype.kind == "c"))
    return found


def emit_llvm_user_call(
    f: LlvmFunction, function: UserFunction, args: Sequence[LlvmValue], lanes: int, mask: LlvmValue | None
) -> list[LlvmValue]:
    """The parts of all results. mask: the lanes for which it is called, as does one more argument than it has; what the
    others get is of no use."""
    given, results = llvm_register_dtypes(function.arguments), llvm_register_dtypes(function.results)
    for chosen in args[len(given) :]:
        mask = chosen.splat(lanes) if mask is None else mask & chosen.splat(lanes)
    args = args[: len(given)]
    symbol = "@" + function.symbol
    kinds = [*(llvm_memory_type(d) for d in given), *("ptr" for _ in results)]
    f.module.declare(symbol, f"void {symbol}({', '.join(kinds)})")
    values = [a.to("zext", "i8") if d == BOOL else a for a, d in zip(args, given, strict=True)]
    outputs = [f.slot(_llvm_parameter_type(d, lanes)) for d in results]
    if lanes == 1 and mask is not None:
        with f.when(mask):
            _emit_llvm_user_function_call(f, symbol, values, outputs)
    elif lanes == 1:
        _emit_llvm_user_function_call(f, symbol, values, outputs)
    else:
        places = {i: _spill_vector_to_stack(f, v) for i, v in enumerate(values) if v.lanes > 1}
        exists = None if mask is None else _spill_vector_to_stack(f, mask.to("zext", "i8"))
        note = PLAIN if function.loops or exists is not None else _llvm_vectorization_note(f)
        with f.loop(0, lanes, note=note) as lane:
            one = [places[i].at(lane, v.elem).load(v.elem) if i in places else v for i, v in enumerate(values)]
            here = [o.at(lane, llvm_memory_type(d)) for o, d in zip(outputs, results, strict=True)]
            if exists is None:
                _emit_llvm_user_function_call(f, symbol, one, here)
            else:
                with f.when(exists.at(lane, "i8").load("i8").ne(0)):
                    _emit_llvm_user_function_call(f, symbol, one, here)
    return [_load_llvm_lanes_from_stack(o, d, lanes) for o, d in zip(outputs, results, strict=True)]


def _llvm_vectorization_note(f: LlvmFunction) -> int:
    """The note of a loop whose branches LLVM may turn into vectors of its own."""
    f.module.parts.setdefault("!7", "!7 = distinct !{!7, !3}")
    return 7


def _llvm_parameter_type(dtype: DType, lanes: int) -> str:
    return llvm_memory_type(dtype) if lanes == 1 else f"<{lanes} x {llvm_memory_type(dtype)}>"


def _spill_vector_to_stack(f: LlvmFunction, value: LlvmValue) -> LlvmValue:
    place = f.slot(value.kind)
    place.store(value, 64)
    return place


def _emit_llvm_user_function_call(
    f: LlvmFunction, symbol: str, args: Sequence[LlvmValue], outputs: Sequence[LlvmValue]
) -> None:
    f.do(f"call void {symbol}({', '.join(v.typed for v in (*args, *outputs))})")


def _load_llvm_lanes_from_stack(place: LlvmValue, dtype: DType, lanes: int) -> LlvmValue:
    value = place.load(llvm_memory_type(dtype), lanes, 64)
    return value.ne(0) if dtype == BOOL else LlvmValue(value.f, value.text, llvm_register_type(dtype), lanes)
