"""A kernel's function in, its entry in one of its forms out, as LLVM IR: packed, predicated, advancing, in clusters.

The entry reads the arguments, decides whether and with what the function runs, and calls it; NVVM makes one of both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir

from ....core.errors import CompileError
from ....core.frozen import replace
from ....program.program import Kernel
from .kernel_functions import NumbaFunction, function_of_kernel_text
from .primitives import I32, I64, Value
from .vocabulary import block_and_row_of_packed_launch

ENTRY_OPTIONS = ("guarded", "advancing", "cluster")  # options of a kernel that change its entry alone


def ptx_of_kernel_entry(kernel: Kernel, cc: tuple[int, int]) -> str:
    """A kernel's PTX, in the form that its options say."""
    options = tuple(option for option in kernel.options if option[0] not in ENTRY_OPTIONS)
    function, bounds = function_of_kernel_text(replace(kernel, options=options), cc)
    return function.ptx(_kernel_entry_calling_function(kernel, function), bounds, cc)


def _kernel_entry_calling_function(kernel: Kernel, function: NumbaFunction) -> ir.Function:
    """The entry, in a module of its own. The function has a place for its result before the arguments."""
    options, (place, *given) = dict(kernel.options), function.type.args
    predicate = [I64] * 3 if "guarded" in options else []
    members = options.get("packed")
    parameters = [*given, *predicate]
    if members:
        parameters = [ir.ArrayType(I64, members * len(given) + len(predicate)).as_pointer()]
    entry = ir.Function(function.entry_module(), ir.FunctionType(ir.VoidType(), parameters), kernel.name)
    b = ir.IRBuilder(entry.append_basic_block())
    values = list(entry.args)
    if members:
        entry.args[0].add_attribute("byval")
        values = _read_packed_arguments(b, entry.args[0], kernel, given, members)
    values, words = values[: len(given)], values[len(given) :]
    if words:
        block = _return_unless_predicate_holds(b, *words)
        if moves := options.get("advancing"):
            iteration = b.load(b.gep(block, [I64(1)]))
            values = [_advance_argument(b, *pair, iteration, kernel) for pair in zip(values, moves, strict=True)]
    b.call(ir.Function(entry.module, function.type, function.name), [b.alloca(place.pointee), *values])
    b.ret_void()
    if blocks := options.get("cluster"):  # that run side by side at the same time, however it is launched
        _note_cluster_size(entry, blocks)
    return entry


def _read_packed_arguments(
    b: ir.IRBuilder, block: Value, kernel: Kernel, given: Sequence[ir.Type], members: int
) -> list[Value]:
    """A member's arguments and the predicate's words: the pointers of every member lie first, then their numbers."""
    pointers = sum(kind == "ptr" for kind in kernel.signature)
    row = b.zext(block_and_row_of_packed_launch(b, members)[1], I64)

    def read(place: Value, kind: ir.Type) -> Value:
        slot = b.gep(block, [I64(0), place])
        return b.load(b.bitcast(slot, kind.as_pointer()))

    values = []
    for k, kind in enumerate(given):
        first, count = (k, pointers) if k < pointers else (members * pointers + k - pointers, len(given) - pointers)
        values.append(read(b.add(b.mul(row, I64(count)), I64(first)), kind))
    return values + [read(I64(k), I64) for k in range(members * len(given), block.type.pointee.count)]


def _return_unless_predicate_holds(b: ir.IRBuilder, address: Value, mask: Value, expected: Value) -> Value:
    """The entry ends here where (word at `address` & mask) != expected. The word's address."""
    word = b.inttoptr(address, ir.PointerType(I64, 1))
    holds = b.icmp_unsigned("==", b.and_(b.load(word), mask), expected)
    runs, ends = (b.append_basic_block(name) for name in ("runs", "ends"))
    b.cbranch(holds, runs, ends)
    b.position_at_end(ends)
    b.ret_void()
    b.position_at_end(runs)
    return word


def _advance_argument(b: ir.IRBuilder, value: Value, move: int, iteration: Value, kernel: Kernel) -> Value:
    """The argument after `iteration` iterations, at each of which it changes by `move`."""
    if not move:
        return value
    if not isinstance(value.type, ir.IntType):
        raise CompileError(f"kernel {kernel.name}: an argument that advances is no whole number", kernel.name)
    iteration = iteration if value.type == I64 else b.trunc(iteration, value.type)
    return b.add(value, b.mul(iteration, value.type(move)))


def _note_cluster_size(entry: ir.Function, blocks: int) -> None:
    module: Any = entry.module
    row = module.add_metadata((entry, ir.MetaDataString(module, "cluster_dim_x"), I32(blocks)))
    module.add_named_metadata("nvvm.annotations").add(row)
