"""Loads and stores of kernel text. Global memory with the widest legal accesses, masks, and shared memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir

from .lanes import (
    NUMBA,
    Typed,
    all_numba_lane_flags_hold,
    emit_nvvm_branch,
    make_numba_lane_intrinsic,
    numba_cuda_type_of_lanes,
    numba_lane_count,
    numba_lane_element_numbers,
    widen_numba_integers,
)
from .numba_parts import types
from .primitives import BITS, I8, I32, I64, LLVM, Value

GLOBAL, SHARED = 1, 3  # LLVM address spaces
VECTOR_BYTES = 16  # the widest access of one thread


class NumbaElementAccess:
    """How an array element lies in memory: `parts` scalars of `dtype` (2 for complex), bools as bytes."""

    def __init__(self, name: str, space: int = GLOBAL) -> None:
        bare = name.removesuffix("re").removesuffix("im")
        self.dtype = {"c64": "f32", "c128": "f64"}.get(bare, bare)
        self.parts = 1 if bare == self.dtype else 2
        self.part = int(name.endswith("im"))
        self.storage = I8 if self.dtype == "b1" else LLVM[self.dtype]
        self.bytes = max(1, BITS[self.dtype] // 8)
        self.space = space

    @property
    def zero(self) -> Value:
        return LLVM[self.dtype](0.0 if self.dtype in ("f32", "f64") else 0)

    def _nvvm_pointer_to_element(self, b: ir.IRBuilder, base: Value, scalar: Value, storage: Any) -> Value:
        (wide, _) = widen_numba_integers(b, scalar, I64(0))
        address = b.add(base, b.mul(wide, I64(self.bytes)))
        return b.inttoptr(address, storage.as_pointer(self.space))

    def _llvm_type_of_access(self, length: int) -> tuple[Any, int]:
        """(LLVM type of one access to `length` scalars, scalars in each of its elements).

        Scalars smaller than 4 bytes travel as 4-byte words: an access has at most 4 elements.
        """
        if length == 1:
            return self.storage, 1
        nbytes = length * self.bytes
        if self.bytes >= 4 or nbytes < 4:
            return ir.VectorType(self.storage, length), 1
        return (I32 if nbytes == 4 else ir.VectorType(I32, nbytes // 4)), 4 // self.bytes

    def _accesses_of_elements(self, b: ir.IRBuilder, element: Value, scalars: int) -> list[tuple[int, int, Value]]:
        """(first scalar, scalars, number of the first) of each access."""
        first = b.mul(element, element.type(self.parts)) if self.parts > 1 else element
        length = min(scalars, VECTOR_BYTES // self.bytes)
        return [(k, length, b.add(first, first.type(k)) if k else first) for k in range(0, scalars, length)]

    def load(self, b: ir.IRBuilder, base: Value, element: Value, length: int) -> list[Value]:
        """This part of `length` consecutive elements, which start at a multiple of the access."""
        scalars: list[Value] = []
        for _, width, number in self._accesses_of_elements(b, element, length * self.parts):
            storage, per_word = self._llvm_type_of_access(width)
            found = b.load(self._nvvm_pointer_to_element(b, base, number, storage))
            found.align = width * self.bytes
            words = [found]
            if isinstance(storage, ir.VectorType):
                words = [b.extract_element(found, I32(j)) for j in range(storage.count)]
            scalars += (
                words
                if per_word == 1
                else [x for word in words for x in self._split_word_into_scalars(b, word, per_word)]
            )
        lanes = scalars[self.part :: self.parts]
        return [b.icmp_unsigned("!=", x, I8(0)) for x in lanes] if self.dtype == "b1" else lanes

    def store(self, b: ir.IRBuilder, base: Value, element: Value, scalars: Sequence[Value]) -> None:
        """Consecutive elements; real and imaginary parts come side by side."""
        if self.dtype == "b1":
            scalars = [b.zext(x, I8) for x in scalars]
        for k, width, number in self._accesses_of_elements(b, element, len(scalars)):
            storage, per_word = self._llvm_type_of_access(width)
            words = list(scalars[k : k + width])
            if per_word > 1:
                words = [self._join_scalars_into_word(b, words[j : j + per_word]) for j in range(0, width, per_word)]
            value = words[0]
            if isinstance(storage, ir.VectorType):
                value = storage(ir.Undefined)
                for j, word in enumerate(words):
                    value = b.insert_element(value, word, I32(j))
            b.store(value, self._nvvm_pointer_to_element(b, base, number, storage), align=width * self.bytes)

    def _split_word_into_scalars(self, b: ir.IRBuilder, word: Value, count: int) -> list[Value]:
        """The scalars in a word, lowest bits first."""
        bits = 8 * self.bytes
        return [b.trunc(b.lshr(word, I32(bits * j)) if j else word, self.storage) for j in range(count)]

    def _join_scalars_into_word(self, b: ir.IRBuilder, scalars: Sequence[Value]) -> Value:
        word = b.zext(scalars[0], I32)
        for j, scalar in enumerate(scalars[1:], 1):
            word = b.or_(word, b.shl(b.zext(scalar, I32), I32(8 * self.bytes * j)))
        return word


def load_intrinsic(name: str, vector: str, dtype: str, lanes: str, groups: str, masked: str | None) -> Any:
    """load(pointer, first, group stride[, lane stride][, mask])"""
    cell, length, repeats = NumbaElementAccess(dtype), int(lanes), int(groups)

    def generate_nvvm(b: ir.IRBuilder, base: Any, first: Any, gs: Any, *rest: Sequence[Value]) -> list[Value]:
        stride = gs[0].type(1) if vector else rest[0][0]
        rows = numba_lane_element_numbers(b, first[0], gs[0], stride, length, repeats)
        flags = rest[-1] if masked else None

        def load_single_lane(number: Value, flag: Value | None) -> list[Value]:
            def load_element() -> list[Value]:
                return cell.load(b, base[0], number, 1)

            return load_element() if flag is None else emit_nvvm_branch(b, flag, load_element, lambda: [cell.zero])

        def load_group_by_lanes(row: Sequence[Value], flags: Sequence[Value | None]) -> list[Value]:
            return [x for number, flag in zip(row, flags, strict=True) for x in load_single_lane(number, flag)]

        def load_whole_group(row: Sequence[Value]) -> list[Value]:
            return cell.load(b, base[0], row[0], length) if vector else load_group_by_lanes(row, [None] * length)

        def load_all_groups() -> list[Value]:
            return [x for row in rows for x in load_whole_group(row)]

        def load_masked_groups(flags: Sequence[Value]) -> list[Value]:
            result = []
            for g, row in enumerate(rows):
                mine = flags[g * length : (g + 1) * length]
                result += emit_nvvm_branch(
                    b,
                    all_numba_lane_flags_hold(b, mine),
                    lambda: load_whole_group(row),  # noqa: B023
                    lambda: load_group_by_lanes(row, mine),  # noqa: B023
                )
            return result

        if flags is None:
            return load_all_groups()
        flags = _repeat_mask_over_lanes(flags, length * repeats)
        return emit_nvvm_branch(
            b, all_numba_lane_flags_hold(b, flags), load_all_groups, lambda: load_masked_groups(flags)
        )

    return make_numba_lane_intrinsic(
        name,
        3 + (not vector) + bool(masked),
        (numba_cuda_type_of_lanes(NUMBA[cell.dtype], length * repeats), generate_nvvm),
    )


def _repeat_mask_over_lanes(lanes: Sequence[Value], total: int) -> list[Value]:
    return [lanes[k % len(lanes)] for k in range(total)]


def gather_intrinsic(name: str, vector: str, dtype: str, lanes: str, groups: str, masked: str | None) -> Any:
    """gather(pointer, first, group stride[, lane stride], offset[, mask]): `load_intrinsic` at `first + offset`. An
    offset of several lanes has one for each."""
    cell, length, repeats = NumbaElementAccess(dtype), int(lanes), int(groups)

    def numba_typing_rule(*argtypes: Any) -> Typed:
        own = numba_lane_count(argtypes[-2 if masked else -1])
        count = max(length * repeats, own)

        def generate_nvvm(b: ir.IRBuilder, base: Any, first: Any, gs: Any, *rest: Sequence[Value]) -> list[Value]:
            stride = gs[0].type(1) if vector else rest[0][0]
            offsets = rest[-2 if masked else -1]
            flags = _repeat_mask_over_lanes(rest[-1], count) if masked and count > 1 else None
            rows = numba_lane_element_numbers(b, first[0], gs[0], stride, length, repeats)
            flat = [number for row in rows for number in row]

            def gather_one_lane(k: int) -> list[Value]:
                return cell.load(b, base[0], b.add(*widen_numba_integers(b, flat[k % len(flat)], offsets[k % own])), 1)

            def gather_all_lanes() -> list[Value]:
                if vector and own == 1:
                    wide = [b.add(*widen_numba_integers(b, row[0], offsets[0])) for row in rows]
                    return [x for number in wide for x in cell.load(b, base[0], number, length)]
                return [x for k in range(count) for x in gather_one_lane(k)]

            def gather_masked_lanes(flags: Sequence[Value]) -> list[Value]:
                found = [
                    emit_nvvm_branch(b, flags[k], lambda: gather_one_lane(k), lambda: [cell.zero])  # noqa: B023
                    for k in range(count)
                ]
                return [x for lane in found for x in lane]

            return (
                gather_all_lanes()
                if flags is None
                else emit_nvvm_branch(
                    b, all_numba_lane_flags_hold(b, flags), gather_all_lanes, lambda: gather_masked_lanes(flags)
                )
            )

        return numba_cuda_type_of_lanes(NUMBA[cell.dtype], count), generate_nvvm

    return make_numba_lane_intrinsic(name, 4 + (not vector) + bool(masked), numba_typing_rule)


def report_bad_index_intrinsic(name: str) -> Any:
    """report(pointer, value, condition): one of the int64 values for which the condition holds is stored, if any."""
    cell = NumbaElementAccess("i64")

    def generate_nvvm(b: ir.IRBuilder, base: Any, values: Sequence[Value], bad: Sequence[Value]) -> list[Value]:
        some, value = bad[0], values[0]
        for k in range(1, max(len(bad), len(values))):
            value = b.select(bad[k % len(bad)], values[k % len(values)], value)
            some = b.or_(some, bad[k % len(bad)])

        def store_bad_index() -> list[Value]:
            cell.store(b, base[0], I64(0), [value])
            return []

        emit_nvvm_branch(b, some, store_bad_index, list)
        return []

    return make_numba_lane_intrinsic(name, 3, (types.void, generate_nvvm))


def store_intrinsic(name: str, vector: str, dtype: str, lanes: str, groups: str, masked: str | None) -> Any:
    """store(pointer, first, group stride[, lane stride], value[, imaginary value][, mask])"""
    cell, length, repeats = NumbaElementAccess(dtype), int(lanes), int(groups)

    def generate_nvvm(b: ir.IRBuilder, base: Any, first: Any, gs: Any, *rest: Sequence[Value]) -> list[Value]:
        stride = gs[0].type(1) if vector else rest[0][0]
        values = rest[0 if vector else 1 :][: cell.parts]
        rows = numba_lane_element_numbers(b, first[0], gs[0], stride, length, repeats)
        parts = [_repeat_mask_over_lanes(v, length * repeats) for v in values]
        scalars = list(zip(*parts, strict=True))  # (re, im) or (x,) of each lane

        def store_lanes(number: Value, lanes: Sequence[tuple[Value, ...]]) -> list[Value]:
            cell.store(b, base[0], number, [x for lane in lanes for x in lane])
            return []

        def store_whole_group(g: int) -> list[Value]:
            mine = scalars[g * length : (g + 1) * length]
            if vector:
                return store_lanes(rows[g][0], mine)
            for number, lane in zip(rows[g], mine, strict=True):
                store_lanes(number, [lane])
            return []

        def store_masked_group(g: int, flags: Sequence[Value]) -> list[Value]:
            for j, number in enumerate(rows[g]):
                lane = scalars[g * length + j]
                emit_nvvm_branch(b, flags[j], lambda: store_lanes(number, [lane]), list)  # noqa: B023
            return []

        flags = _repeat_mask_over_lanes(rest[-1], length * repeats) if masked else None
        for g in range(repeats):
            if flags is None:
                store_whole_group(g)
            else:
                mine = flags[g * length : (g + 1) * length]
                emit_nvvm_branch(
                    b,
                    all_numba_lane_flags_hold(b, mine),
                    lambda: store_whole_group(g),  # noqa: B023
                    lambda: store_masked_group(g, mine),  # noqa: B023
                )
        return []

    return make_numba_lane_intrinsic(name, 3 + (not vector) + cell.parts + bool(masked), (types.void, generate_nvvm))


def shared_memory_intrinsic(name: str, dtype: str, elements: str) -> Any:
    """The address of shared memory of `elements`, as an integer."""
    cell = NumbaElementAccess(dtype, SHARED)

    def generate_nvvm(b: ir.IRBuilder) -> list[Value]:
        array = ir.ArrayType(cell.storage, int(elements))
        memory = ir.GlobalVariable(b.module, array, b.module.get_unique_name("shared"), SHARED)
        memory.linkage = "internal"
        memory.initializer = array(ir.Undefined)
        memory.align = VECTOR_BYTES
        return [b.ptrtoint(memory, I64)]

    return make_numba_lane_intrinsic(name, 0, (types.int64, generate_nvvm))


def shared_load_intrinsic(name: str, dtype: str, lanes: str) -> Any:
    """sload(memory, first)"""
    cell = NumbaElementAccess(dtype, SHARED)

    def generate_nvvm(b: ir.IRBuilder, base: Any, first: Any) -> list[Value]:
        return cell.load(b, base[0], first[0], int(lanes))

    return make_numba_lane_intrinsic(name, 2, (numba_cuda_type_of_lanes(NUMBA[dtype], int(lanes)), generate_nvvm))


def shared_store_intrinsic(name: str, dtype: str, lanes: str) -> Any:
    """sstore(memory, first, value)"""
    cell = NumbaElementAccess(dtype, SHARED)

    def generate_nvvm(b: ir.IRBuilder, base: Any, first: Any, value: Sequence[Value]) -> list[Value]:
        cell.store(b, base[0], first[0], _repeat_mask_over_lanes(value, int(lanes)))
        return []

    return make_numba_lane_intrinsic(name, 3, (types.void, generate_nvvm))


def cluster_store_intrinsic(name: str, dtype: str) -> Any:
    """cstore(memory, block, number, value): into the memory that another block of the cluster has under this name"""
    cell = NumbaElementAccess(dtype, SHARED)
    bits = 8 * cell.bytes
    word = I64 if bits == 64 else I32
    text = f"{{ .reg .b32 a; mapa.shared::cluster.u32 a, $0, $1; st.shared::cluster.b{bits} [a], $2; }}"
    asm = ir.InlineAsm(
        ir.FunctionType(ir.VoidType(), [I32, I32, word]), text, f"r,r,{'l' if bits == 64 else 'r'}", side_effect=True
    )

    def generate_nvvm(b: ir.IRBuilder, base: Any, block: Any, number: Any, value: Sequence[Value]) -> list[Value]:
        x = value[0] if dtype == "b1" else b.bitcast(value[0], ir.IntType(bits))
        x = x if x.type == word else b.zext(x, word)
        address = b.ptrtoint(cell._nvvm_pointer_to_element(b, base[0], number[0], cell.storage), I32)
        b.call(asm, [address, block[0], x])
        return []

    return make_numba_lane_intrinsic(name, 4, (types.void, generate_nvvm))


def shared_gather_intrinsic(name: str, dtype: str, lanes: str, groups: str) -> Any:
    """sget(memory, first, group stride, lane stride)"""
    cell = NumbaElementAccess(dtype, SHARED)

    def generate_nvvm(b: ir.IRBuilder, base: Any, first: Any, gs: Any, ls: Any) -> list[Value]:
        rows = numba_lane_element_numbers(b, first[0], gs[0], ls[0], int(lanes), int(groups))
        return [x for row in rows for number in row for x in cell.load(b, base[0], number, 1)]

    return make_numba_lane_intrinsic(
        name, 4, (numba_cuda_type_of_lanes(NUMBA[dtype], int(lanes) * int(groups)), generate_nvvm)
    )


def shared_scatter_intrinsic(name: str, dtype: str, lanes: str, groups: str) -> Any:
    """sput(memory, first, group stride, lane stride, value)"""
    cell = NumbaElementAccess(dtype, SHARED)

    def generate_nvvm(b: ir.IRBuilder, base: Any, first: Any, gs: Any, ls: Any, value: Any) -> list[Value]:
        rows = numba_lane_element_numbers(b, first[0], gs[0], ls[0], int(lanes), int(groups))
        places = [number for row in rows for number in row]
        for number, x in zip(places, _repeat_mask_over_lanes(value, len(places)), strict=True):
            cell.store(b, base[0], number, [x])
        return []

    return make_numba_lane_intrinsic(name, 5, (types.void, generate_nvvm))
