"""Elements that a mask chooses written into an array, and no others: `np.copyto(target, values, where=mask)` without a
branch for each, by the masked stores of a CPU that has them."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import numpy as np

from ..codegen.llvm_jit import compile_llvm_ir, llvm_cpu_features

LEAST_BYTES = 1 << 15  # of a target: before, NumPy is done before a call of machine code has begun
_LANES = 32
_TEXT = """
define void @copy_where(ptr %target, ptr %values, ptr %mask, i64 %n, i64 %step) {
entry:
  %one = load WORD, ptr %values, align ALIGN
  %head = insertelement <LANES x WORD> poison, WORD %one, i64 0
  %same = shufflevector <LANES x WORD> %head, <LANES x WORD> poison, <LANES x i32> zeroinitializer
  %single = icmp eq i64 %step, 0
  %whole = and i64 %n, -LANES
  br label %test
test:
  %i = phi i64 [0, %entry], [%next, %write]
  %more = icmp ult i64 %i, %whole
  br i1 %more, label %block, label %rest
block:
  %m = getelementptr i8, ptr %mask, i64 %i
  %bytes = load <LANES x i8>, ptr %m, align 1
  %chosen = icmp ne <LANES x i8> %bytes, zeroinitializer
  br i1 %single, label %write, label %read
read:
  %v = getelementptr WORD, ptr %values, i64 %i
  %several = load <LANES x WORD>, ptr %v, align ALIGN
  br label %write
write:
  %new = phi <LANES x WORD> [%same, %block], [%several, %read]
  %t = getelementptr WORD, ptr %target, i64 %i
  call void @llvm.masked.store.vLANESWORD.p0(<LANES x WORD> %new, ptr %t, i32 ALIGN, <LANES x i1> %chosen)
  %next = add i64 %i, LANES
  br label %test
rest:
  %j = phi i64 [%i, %test], [%after, %on]
  %left = icmp ult i64 %j, %n
  br i1 %left, label %look, label %done
look:
  %mj = getelementptr i8, ptr %mask, i64 %j
  %byte = load i8, ptr %mj, align 1
  %set = icmp ne i8 %byte, 0
  br i1 %set, label %store, label %on
store:
  %at = mul i64 %j, %step
  %vj = getelementptr WORD, ptr %values, i64 %at
  %w = load WORD, ptr %vj, align ALIGN
  %tj = getelementptr WORD, ptr %target, i64 %j
  store WORD %w, ptr %tj, align ALIGN
  br label %on
on:
  %after = add i64 %j, 1
  br label %rest
done:
  ret void
}
declare void @llvm.masked.store.vLANESWORD.p0(<LANES x WORD>, ptr, i32, <LANES x i1>)
"""


def copy_where(target: Any, values: Any, mask: Any) -> None:
    """`np.copyto(target, values, where=mask)` of values of the target's dtype."""
    single = values.size == 1
    if target.nbytes >= LEAST_BYTES and target.shape == mask.shape and (single or values.shape == target.shape):
        plain = target.flags.writeable and all(x.flags.c_contiguous and x.flags.aligned for x in (target, values, mask))
        same = target.dtype == values.dtype and target.dtype.isnative and mask.dtype == np.bool_
        function = _masked_copy_function(target.itemsize) if plain and same else None
        if function is not None:
            function(target.ctypes.data, values.ctypes.data, mask.ctypes.data, target.size, not single)
            return
    np.copyto(target, values, where=mask)


@cache
def _masked_copy_function(item_bytes: int) -> Any:
    """Machine code for elements of so many bytes; None where the CPU has no such stores."""
    needed = {1: "avx512bw", 2: "avx512bw", 4: "avx2", 8: "avx2"}.get(item_bytes)
    if needed not in llvm_cpu_features():
        return None
    text = _TEXT.replace("LANES", str(_LANES)).replace("WORD", f"i{8 * item_bytes}").replace("ALIGN", str(item_bytes))
    code = compile_llvm_ir(text, "copy_where")
    return code.function("copy_where", None, *[ctypes.c_void_p] * 3, ctypes.c_int64, ctypes.c_int64)
