"""Loads and stores of kernel text. Global memory with the widest legal accesses, masks, and shared memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from llvmlite import ir

from .lanes import (
    NUMBA,
    Lanes,
    all_numba_lane_flags_hold,
    emit_nvvm_branch,
    make_numba_lane_intrinsic,
    numba_cuda_type_of_lanes,
    numba_lane_count,
    numba_lane_element_numbers,
    widen_numba_integers,
)
from .numba_parts import types
from .primitives import BITS, I8, I32, I64, LLVM, Value, emit_inline_ptx_effect

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

    def zeros(self) -> list[Value]:
        """What is in a lane that is not loaded."""
        return [LLVM[self.dtype](0.0 if self.dtype in ("f32", "f64") else 0)]

    def pointer(self, b: ir.IRBuilder, base: Value, scalar: Value, storage: Any = None) -> Value:
        """To a scalar. storage: the LLVM type of an access to it and its neighbours."""
        (wide, _) = widen_numba_integers(b, scalar, I64(0))
        address = b.add(base, b.mul(wide, I64(self.bytes)))
        return b.inttoptr(address, (storage or self.storage).as_pointer(self.space))

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
            found = b.load(self.pointer(b, base, number, storage))
            found.align = width * self.bytes
            words = [found]
            if isinstance(storage, ir.VectorType):
                words = [b.extract_element(found, I32(j)) for j in range(storage.count)]
            bits = 8 * self.bytes
            for word in words if per_word > 1 else ():  # lowest bits first
                scalars += [b.trunc(b.lshr(word, I32(bits * j)) if j else word, self.storage) for j in range(per_word)]
            scalars += words if per_word == 1 else []
        lanes = scalars[self.part :: self.parts]
        return [b.icmp_unsigned("!=", x, I8(0)) for x in lanes] if self.dtype == "b1" else lanes

    def load_each(
        self, b: ir.IRBuilder, base: Value, elements: Sequence[Value], flags: Sequence[Value] = ()
    ) -> list[Value]:
        """This part of elements wherever they are; zero where there are flags and an element's does not hold."""
        loads = [partial(self.load, b, base, element, 1) for element in elements]
        if flags:
            lanes = [emit_nvvm_branch(b, flag, load, self.zeros) for flag, load in zip(flags, loads, strict=True)]
        else:
            lanes = [load() for load in loads]
        return [x for lane in lanes for x in lane]

    def store(self, b: ir.IRBuilder, base: Value, element: Value, scalars: Sequence[Value]) -> list[Value]:
        """Consecutive elements; real and imaginary parts come side by side. Gives nothing."""
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
            b.store(value, self.pointer(b, base, number, storage), align=width * self.bytes)
        return []

    def _join_scalars_into_word(self, b: ir.IRBuilder, scalars: Sequence[Value]) -> Value:
        word = b.zext(scalars[0], I32)
        for j, scalar in enumerate(scalars[1:], 1):
            word = b.or_(word, b.shl(b.zext(scalar, I32), I32(8 * self.bytes * j)))
        return word


Groups = list[list[Value]]


def _space_of_word(name: str) -> int:
    return SHARED if name.startswith(("sget", "sput")) else GLOBAL


def _groups_of_numbers(
    b: ir.IRBuilder, vector: str, length: int, groups: int, first: Lanes, gs: Lanes, rest: tuple[Lanes, ...]
) -> tuple[Groups, tuple[Lanes, ...]]:
    """The element numbers, group by group, and the arguments that follow those that say where they are."""
    stride, rest = (gs[0].type(1), rest) if vector else (rest[0][0], rest[1:])
    return numba_lane_element_numbers(b, first[0], gs[0], stride, length, groups), rest


def _flags_of_groups(mask: Lanes, rows: Groups) -> Groups:
    flags = iter(mask.repeated(sum(map(len, rows))))
    return [[next(flags) for _ in row] for row in rows]


def _where_all_hold(
    b: ir.IRBuilder, flags: Sequence[Value], yes: Callable[[], Sequence[Value]], no: Callable[[], Sequence[Value]]
) -> list[Value]:
    return emit_nvvm_branch(b, all_numba_lane_flags_hold(b, flags), yes, no)


def load_intrinsic(name: str, vector: str, dtype: str, lanes: str, groups: str, masked: str | None) -> Any:
    """load(pointer, first, group stride[, lane stride][, mask]); sget: from shared memory"""
    cell, length, repeats = NumbaElementAccess(dtype, _space_of_word(name)), int(lanes), int(groups)

    def generate_nvvm(b: ir.IRBuilder, base: Lanes, first: Lanes, gs: Lanes, *rest: Lanes) -> list[Value]:
        rows, rest = _groups_of_numbers(b, vector, length, repeats, first, gs, rest)

        def load_group(row: Sequence[Value]) -> list[Value]:
            return cell.load(b, base[0], row[0], length) if vector else cell.load_each(b, base[0], row)

        def load_all_groups() -> list[Value]:
            return [x for row in rows for x in load_group(row)]

        def load_masked_groups() -> list[Value]:
            result = []
            for row, mine in zip(rows, flags, strict=True):
                by_lanes = partial(cell.load_each, b, base[0], row, mine)
                result += _where_all_hold(b, mine, partial(load_group, row), by_lanes)
            return result

        if not masked:
            return load_all_groups()
        flags = _flags_of_groups(rest[0], rows)
        return _where_all_hold(b, [x for mine in flags for x in mine], load_all_groups, load_masked_groups)

    result = numba_cuda_type_of_lanes(NUMBA[cell.dtype], length * repeats)
    return make_numba_lane_intrinsic(name, 3 + (not vector) + bool(masked), result, generate_nvvm)


def gather_intrinsic(name: str, vector: str, dtype: str, lanes: str, groups: str, masked: str | None) -> Any:
    """gather(pointer, first, group stride[, lane stride], offset[, mask]): `load_intrinsic` at `first + offset`. An
    offset of several lanes has one for each."""
    cell, length, repeats = NumbaElementAccess(dtype), int(lanes), int(groups)

    def type_of_gather(*argtypes: Any) -> Any:
        count = max(length * repeats, numba_lane_count(argtypes[-2 if masked else -1]))
        return numba_cuda_type_of_lanes(NUMBA[cell.dtype], count)

    def generate_nvvm(b: ir.IRBuilder, base: Lanes, first: Lanes, gs: Lanes, *rest: Lanes) -> list[Value]:
        rows, (offsets, *mask) = _groups_of_numbers(b, vector, length, repeats, first, gs, rest)
        flat = Lanes((number for row in rows for number in row), None)
        count = max(len(flat), len(offsets))

        def number_of_lane(k: int) -> Value:
            return b.add(*widen_numba_integers(b, flat[k % len(flat)], offsets[k % len(offsets)]))

        def gather_lane(k: int) -> list[Value]:
            return cell.load(b, base[0], number_of_lane(k), 1)

        def gather_all_lanes() -> list[Value]:
            if vector and len(offsets) == 1:
                wide = [number_of_lane(k) for k in range(0, count, length)]
                return [x for number in wide for x in cell.load(b, base[0], number, length)]
            return [x for k in range(count) for x in gather_lane(k)]

        def gather_masked_lanes() -> list[Value]:
            lanes = (emit_nvvm_branch(b, flag, partial(gather_lane, k), cell.zeros) for k, flag in enumerate(flags))
            return [x for lane in lanes for x in lane]

        if not mask or count == 1:
            return gather_all_lanes()
        flags = mask[0].repeated(count)
        return _where_all_hold(b, flags, gather_all_lanes, gather_masked_lanes)

    return make_numba_lane_intrinsic(name, 4 + (not vector) + bool(masked), type_of_gather, generate_nvvm)


def report_bad_index_intrinsic(name: str) -> Any:
    """report(pointer, value, condition): one of the int64 values for which the condition holds is stored, if any."""
    cell = NumbaElementAccess("i64")

    def generate_nvvm(b: ir.IRBuilder, base: Lanes, values: Lanes, bad: Lanes) -> list[Value]:
        some, value = bad[0], values[0]
        for k in range(1, max(len(bad), len(values))):
            value = b.select(bad[k % len(bad)], values[k % len(values)], value)
            some = b.or_(some, bad[k % len(bad)])
        return emit_nvvm_branch(b, some, lambda: cell.store(b, base[0], I64(0), [value]), list)

    return make_numba_lane_intrinsic(name, 3, types.void, generate_nvvm)


def store_intrinsic(name: str, vector: str, dtype: str, lanes: str, groups: str, masked: str | None) -> Any:
    """store(pointer, first, group stride[, lane stride], value[, imaginary value][, mask]); sput: to shared memory"""
    cell, length, repeats = NumbaElementAccess(dtype, _space_of_word(name)), int(lanes), int(groups)

    def generate_nvvm(b: ir.IRBuilder, base: Lanes, first: Lanes, gs: Lanes, *rest: Lanes) -> list[Value]:
        rows, rest = _groups_of_numbers(b, vector, length, repeats, first, gs, rest)
        parts = [v.repeated(length * repeats) for v in rest[: cell.parts]]
        scalars = list(zip(*parts, strict=True))  # (re, im) or (x,) of each lane

        def store_lane(number: Value, lane: Sequence[Value]) -> list[Value]:
            return cell.store(b, base[0], number, lane)

        def store_group(row: Sequence[Value], lanes: Sequence[Sequence[Value]]) -> list[Value]:
            if vector:
                return store_lane(row[0], [x for lane in lanes for x in lane])
            return [x for number, lane in zip(row, lanes, strict=True) for x in store_lane(number, lane)]

        def store_masked_group(
            row: Sequence[Value], lanes: Sequence[Sequence[Value]], flags: Sequence[Value]
        ) -> list[Value]:
            for number, lane, flag in zip(row, lanes, flags, strict=True):
                emit_nvvm_branch(b, flag, partial(store_lane, number, lane), list)
            return []

        flags = _flags_of_groups(rest[-1], rows) if masked else [[]] * repeats
        for g, (row, mine) in enumerate(zip(rows, flags, strict=True)):
            group = (row, scalars[g * length : (g + 1) * length])
            if masked:
                _where_all_hold(b, mine, partial(store_group, *group), partial(store_masked_group, *group, mine))
            else:
                store_group(*group)
        return []

    arity = 3 + (not vector) + cell.parts + bool(masked)
    return make_numba_lane_intrinsic(name, arity, types.void, generate_nvvm)


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

    return make_numba_lane_intrinsic(name, 0, types.int64, generate_nvvm)


def shared_load_intrinsic(name: str, dtype: str, lanes: str) -> Any:
    """sload(memory, first)"""
    cell = NumbaElementAccess(dtype, SHARED)
    result = numba_cuda_type_of_lanes(NUMBA[dtype], int(lanes))
    return make_numba_lane_intrinsic(
        name, 2, result, lambda b, base, first: cell.load(b, base[0], first[0], int(lanes))
    )


def shared_store_intrinsic(name: str, dtype: str, lanes: str) -> Any:
    """sstore(memory, first, value)"""
    cell = NumbaElementAccess(dtype, SHARED)

    def generate_nvvm(b: ir.IRBuilder, base: Lanes, first: Lanes, value: Lanes) -> list[Value]:
        return cell.store(b, base[0], first[0], value.repeated(int(lanes)))

    return make_numba_lane_intrinsic(name, 3, types.void, generate_nvvm)


def cluster_store_intrinsic(name: str, dtype: str) -> Any:
    """cstore(memory, block, number, value): into the memory that another block of the cluster has under this name"""
    cell = NumbaElementAccess(dtype, SHARED)
    bits = 8 * cell.bytes
    word = I64 if bits == 64 else I32
    text = f"{{ .reg .b32 a; mapa.shared::cluster.u32 a, $0, $1; st.shared::cluster.b{bits} [a], $2; }}"

    def generate_nvvm(b: ir.IRBuilder, base: Lanes, block: Lanes, number: Lanes, value: Lanes) -> list[Value]:
        x = value[0] if dtype == "b1" else b.bitcast(value[0], ir.IntType(bits))
        x = x if x.type == word else b.zext(x, word)
        address = b.ptrtoint(cell.pointer(b, base[0], number[0]), I32)
        emit_inline_ptx_effect(b, text, f"r,r,{'l' if bits == 64 else 'r'}", address, block[0], x)
        return []

    return make_numba_lane_intrinsic(name, 4, types.void, generate_nvvm)
