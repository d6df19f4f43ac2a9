"""The vocabulary of CUDA kernel text: a name in, a numba.cuda intrinsic (or type) out.

A value is a scalar or a tuple of lanes, group after group (lane `g*L + j` is element j of group g). Lane k of a value
with m lanes is its lane `k mod m`, so scalars and single groups broadcast. The names:

    add(x, y) ...             a primitive on each lane (`compile.primitives.py`); keywords as `and_`, `or_`, `not_`
    prefer_argmax(x, i, y, j) whether candidate (y, j) replaces (x, i); prefer_argmin
    f32_from_i64(x)           a conversion
    f32_bits_i32(x)           the float32 with the bits of an int32
    f32(x), i64(x), b1(x)     a constant, or an index as that integer
    lo(x), hi(x)              the first and the second half of the lanes
    repeat_8(x)               8 lanes of x
    window_4x2_1(x, y, z, w)  groups of 4 elements, each from its 1st of x and y, of z and w (0th: of x, of z)
    lanes_4x2(i, gs, ls)      int64 lanes `i + g*gs + j*ls`, 2 groups of 4
    below_4x2(i, gs, ls, n)   which of those lanes are below n
    load_f32_4x2(p, i, gs, ls), store_f32_4x2(p, i, gs, ls, x)     elements `p[i + g*gs + j*ls]`
    loadv_f32_4x2(p, i, gs), storev_f32_4x2(p, i, gs, x)           the same for ls = 1, aligned: one vector a group
    gather_f32_4x2(p, i, gs, ls, o), gatherv_f32_4x2(p, i, gs, o)  elements `p[i + g*gs + j*ls + o]`, each lane its o
    report(p, x, c)           one of the int64 x for which c holds is stored to p, if any
    ..._if(..., mask)         only the lanes of a mask (others are zero, or are not stored)
    c64re, c64im              as dtypes of loads: the parts of complex elements; stores of c64 take (re, im)
    shared_f32_512()          512 elements of shared memory, other ones for each call in the text
    sload_f32_4(s, i), sstore_f32_4(s, i, x)                       4 consecutive elements of it
    cstore_f32(s, n, i, x)    element i of this shared memory in block n of the cluster
    fold_add_1(x)             the halves of the lanes added until 1 is left; so for other primitives
    sget_f32_4x2(s, i, gs, ls), sput_f32_4x2(s, i, gs, ls, x)      elements `i + g*gs + j*ls` of it
    shuffle_xor(x, o)         x of the lane of the warp whose number differs in the bits of o
    shuffle_up(x, o), shuffle_idx(x, l)    x of the lane o before (its own where there is none), of lane l
    match_8(x)                the lanes of the warp with the same lowest 8 bits of a u32, as bits
    ballot(c), sync_warp()    the lanes of the warp for which c holds, as bits; a barrier of the warp
    sadd_u32(s, i, x), gadd_u64(p, i, x), gmax_i64(p, i, x)   what shared or global element i was before x was added
    peek_u64(p, i), post_u64(p, i, x)      read, write a word that blocks share
    warp_add(x, n)            the sum over each n neighbouring threads of a warp (n a power of two); so for others
    tid_x() bid_x() bdim_x() tid_y() ...  barrier()  cluster_barrier()  cluster_arrive()  cluster_wait()
    array_f32_2(p, n, m)      the array of numba.cuda's at address p, of n rows of m
    part_0_2(t)               the first of 2 equal parts of a tuple's items
    user_f_1a2b(x, y), user_f_1a2b_if(x, y, mask)                  a user's function on each lane: see
    `user_functions.py` udiv(a, b)  urem(a, b)  least(a, b)                            for indices, which are not
    negative
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache, partial
from typing import Any

from llvmlite import ir

from .lanes import (
    NUMBA,
    Lanes,
    make_numba_lane_intrinsic,
    numba_cuda_type_of_lanes,
    numba_lane_count,
    numba_lane_element_numbers,
    numba_lanes_like,
    widen_numba_integers,
)
from .loads_and_stores import (
    cluster_store_intrinsic,
    gather_intrinsic,
    load_intrinsic,
    report_bad_index_intrinsic,
    shared_load_intrinsic,
    shared_memory_intrinsic,
    shared_store_intrinsic,
    store_intrinsic,
)
from .numba_parts import types
from .primitives import (
    I32,
    I64,
    LLVM,
    PREFER,
    ROWS,
    PrimitiveRow,
    Value,
    call_external_nvvm_function,
    emit_inline_ptx_effect,
    nvvm_dtype_conversion,
)
from .rounded_division import LANES
from .warp_and_atomics import (
    atomic_intrinsic,
    atomic_read_intrinsic,
    atomic_write_intrinsic,
    exchange_lanes_of_warp,
    warp_ballot_intrinsic,
    warp_match_intrinsic,
    warp_shuffle_intrinsic,
)


def _primitive_intrinsic(name: str, row: PrimitiveRow, fastmath: bool) -> Any:
    def generate_nvvm(b: ir.IRBuilder, *lanes: Lanes) -> Sequence[Value]:
        rows, dtype = _broadcast_numba_lanes(lanes), lanes[-1].dtype
        together = None if fastmath or len(rows) == 1 else LANES.get((name, dtype))
        return [row.emit(b, dtype, *args) for args in rows] if together is None else together(b, rows)

    return make_numba_lane_intrinsic(name, row.arity, partial(_type_of_widest, row.result), generate_nvvm)


def _type_of_widest(dtype: str | None, *argtypes: Any) -> Any:
    """As many lanes as the argument that has most, of a dtype or else of that of the last argument."""
    return numba_lanes_like(argtypes[-1], dtype, max(map(numba_lane_count, argtypes)))


def _broadcast_numba_lanes(lanes: Sequence[Lanes]) -> list[tuple[Value, ...]]:
    count = max(map(len, lanes))
    return list(zip(*(v.repeated(count) for v in lanes), strict=True))


def _argmin_or_argmax_preference_intrinsic(name: str) -> Any:
    def generate_nvvm(b: ir.IRBuilder, *lanes: Lanes) -> list[Value]:
        return [PREFER[name](b, lanes[0].dtype, *args) for args in _broadcast_numba_lanes(lanes)]

    return make_numba_lane_intrinsic(name, 4, partial(_type_of_widest, "b1"), generate_nvvm)


def _dtype_conversion_intrinsic(name: str, target: str, source: str) -> Any:
    def generate_nvvm(b: ir.IRBuilder, lanes: Lanes) -> list[Value]:
        return [nvvm_dtype_conversion(b, x, source, target) for x in lanes]

    return make_numba_lane_intrinsic(name, 1, lambda t: numba_lanes_like(t, target), generate_nvvm)


def _bitcast_lanes_intrinsic(name: str, target: str, source: str) -> Any:
    def generate_nvvm(b: ir.IRBuilder, lanes: Lanes) -> list[Value]:
        return [b.bitcast(x, LLVM[target]) for x in lanes]

    return make_numba_lane_intrinsic(name, 1, lambda t: numba_lanes_like(t, target), generate_nvvm)


def _half_conversion_intrinsic(name: str) -> Any:
    def generate_nvvm(b: ir.IRBuilder, lanes: Lanes) -> Sequence[Value]:
        half = len(lanes) // 2
        return lanes[:half] if name == "lo" else lanes[half:]

    return make_numba_lane_intrinsic(
        name, 1, lambda t: numba_lanes_like(t, count=numba_lane_count(t) // 2), generate_nvvm
    )


def _repeat_lanes_intrinsic(name: str, count: str) -> Any:
    def generate_nvvm(b: ir.IRBuilder, lanes: Lanes) -> list[Value]:
        return lanes.repeated(int(count))

    return make_numba_lane_intrinsic(name, 1, lambda t: numba_lanes_like(t, count=int(count)), generate_nvvm)


def _shifted_window_of_lanes_intrinsic(name: str, length: str, groups: str, first: str) -> Any:
    """Groups of consecutive elements: each begins in one value, and ends in the next if not at its element 0."""
    size, skip = int(length), int(first)
    values = 1 + (skip > 0)

    def generate_nvvm(b: ir.IRBuilder, *lanes: Lanes) -> list[Value]:
        joined = [[x for part in lanes[k : k + values] for x in part] for k in range(0, len(lanes), values)]
        return [x for row in joined for x in row[skip : skip + size]]

    def type_of_window(*argtypes: Any) -> Any:
        return numba_lanes_like(argtypes[0], count=size * int(groups))

    return make_numba_lane_intrinsic(name, int(groups) * values, type_of_window, generate_nvvm)


def _lane_numbers_intrinsic(name: str, length: str, groups: str) -> Any:
    def generate_nvvm(b: ir.IRBuilder, first: Lanes, gs: Lanes, ls: Lanes) -> list[Value]:
        rows = numba_lane_element_numbers(b, first[0], gs[0], ls[0], int(length), int(groups))
        return [widen_numba_integers(b, i, I64(0))[0] for row in rows for i in row]

    result = numba_cuda_type_of_lanes(types.int64, int(length) * int(groups))
    return make_numba_lane_intrinsic(name, 3, result, generate_nvvm)


def _lanes_below_length_intrinsic(name: str, length: str, groups: str) -> Any:
    def generate_nvvm(b: ir.IRBuilder, first: Lanes, gs: Lanes, ls: Lanes, n: Lanes) -> list[Value]:
        rows = numba_lane_element_numbers(b, first[0], gs[0], ls[0], int(length), int(groups))
        return [b.icmp_signed("<", *widen_numba_integers(b, i, n[0])) for row in rows for i in row]

    result = numba_cuda_type_of_lanes(types.boolean, int(length) * int(groups))
    return make_numba_lane_intrinsic(name, 4, result, generate_nvvm)


def _lane_fold_intrinsic(name: str, op: str, until: str) -> Any:
    """Combine the halves of the lanes until `until` are left."""

    def generate_nvvm(b: ir.IRBuilder, x: Lanes) -> Sequence[Value]:
        lanes: list[Value] = x
        while len(lanes) > int(until):
            half = len(lanes) // 2
            lanes = [ROWS[op].emit(b, x.dtype, *pair) for pair in zip(lanes[:half], lanes[half:], strict=True)]
        return lanes

    def type_of_fold(t: Any) -> Any:
        return numba_lanes_like(t, count=min(int(until), numba_lane_count(t)))

    return make_numba_lane_intrinsic(name, 1, type_of_fold, generate_nvvm)


def _warp_butterfly_intrinsic(name: str, op: str) -> Any:
    """Butterflies over the first `among` lanes (a power of two) of each aligned run of as many lanes."""

    def generate_nvvm(b: ir.IRBuilder, lanes: Lanes, among: Lanes) -> list[Value]:
        (x,) = lanes
        for offset in (16, 8, 4, 2, 1):
            joined = ROWS[op].emit(b, lanes.dtype, x, exchange_lanes_of_warp(b, "bfly", x, I32(offset)))
            x = b.select(b.icmp_signed(">", among[0], among[0].type(offset)), joined, x)
        return [x]

    return make_numba_lane_intrinsic(name, 2, lambda t, among: t, generate_nvvm)


def block_and_row_of_packed_launch(b: ir.IRBuilder, members: int) -> tuple[Value, Value]:
    """The number of a block among those of its member along x, and the member's. Members have as many blocks each, in
    turns: so what they read on several devices comes from all of these at a time."""
    block, count = _read_special_register(b, "ctaid.x"), I32(members)
    number = b.udiv(block, count)
    return number, b.sub(block, b.mul(number, count))


def _read_special_register(b: ir.IRBuilder, special: str) -> Value:
    return call_external_nvvm_function(b, f"llvm.nvvm.read.ptx.sreg.{special}", I32)


def _cuda_special_register_intrinsic(name: str, special: str) -> Any:
    return make_numba_lane_intrinsic(name, 0, types.int32, lambda b: [_read_special_register(b, special)])


def _packed_block_number_intrinsic(members: int) -> Any:
    return make_numba_lane_intrinsic("bid_x", 0, types.int32, lambda b: [block_and_row_of_packed_launch(b, members)[0]])


_BARRIERS = {
    "barrier": ("llvm.nvvm.barrier0",),
    "sync_warp": ("llvm.nvvm.bar.warp.sync", I32(-1)),
    "cluster_arrive": ("barrier.cluster.arrive.release;",),
    "cluster_wait": ("barrier.cluster.wait.acquire;",),
}


def _barrier_intrinsic(name: str) -> Any:
    """All threads of the block, the warp or the cluster wait for each other, and see what each has written to shared
    memory; or one half of that."""

    def generate_nvvm(b: ir.IRBuilder) -> list[Value]:
        for part in ("cluster_arrive", "cluster_wait") if name == "cluster_barrier" else (name,):
            text, *args = _BARRIERS[part]
            if text.startswith("llvm"):
                call_external_nvvm_function(b, text, ir.VoidType(), *args)
            else:
                emit_inline_ptx_effect(b, text, "~{memory}")
        return []

    return make_numba_lane_intrinsic(name, 0, types.void, generate_nvvm)


def _part_of_lanes_intrinsic(name: str, number: str, among: str) -> Any:
    def part_of_items(items: Sequence[Any]) -> Sequence[Any]:
        count = len(items) // int(among)
        return items[int(number) * count :][:count]

    def type_of_part(t: Any) -> Any:
        kinds = part_of_items(list(t) if isinstance(t, types.BaseTuple) else [t])
        return numba_cuda_type_of_lanes(kinds[0], len(kinds))

    return make_numba_lane_intrinsic(name, 1, type_of_part, lambda b, items: part_of_items(items))


def _numba_array_view_intrinsic(name: str, dtype: str, ndim: str) -> Any:
    """A C-contiguous array of numba.cuda's from an address and its lengths."""
    halves = {"f16": types.float16, "c64": types.complex64, "c128": types.complex128}
    kind = types.Array(halves.get(dtype) or NUMBA[dtype], int(ndim), "C")

    def generate_nvvm(context: Any, b: ir.IRBuilder, address: Any, *lengths: Any) -> list[Value]:
        array = context.make_array(kind)(context, b)
        itemsize = context.get_abi_sizeof(context.get_data_type(kind.dtype))
        strides = [I64(itemsize)]
        for (n,) in lengths[:0:-1]:
            strides.insert(0, b.mul(n, strides[0]))
        items = {"shape": [n for (n,) in lengths], "strides": strides[: len(lengths)]}
        count = I64(1)
        for (n,) in lengths:
            count = b.mul(count, n)
        for field, values in items.items():
            setattr(array, field, _pack_numba_values(b, values))
        array.data = b.inttoptr(address[0], array.data.type)
        array.itemsize, array.nitems = I64(itemsize), count
        array.meminfo = array.meminfo.type(None)
        array.parent = array.parent.type(None)
        return [array._getvalue()]

    return make_numba_lane_intrinsic(name, 1 + int(ndim), kind, generate_nvvm, in_context=True)


def _pack_numba_values(b: ir.IRBuilder, values: Sequence[Value]) -> Value:
    result = ir.ArrayType(I64, len(values))(ir.Undefined)
    for k, value in enumerate(values):
        result = b.insert_value(result, value, k)
    return result


def _numba_index_arithmetic_intrinsic(name: str) -> Any:
    methods = {
        "udiv": lambda b, x, y: b.udiv(x, y),
        "urem": lambda b, x, y: b.urem(x, y),
        "least": lambda b, x, y: b.select(b.icmp_signed("<", x, y), x, y),
    }

    def generate_nvvm(b: ir.IRBuilder, x: Lanes, y: Lanes) -> list[Value]:
        return [methods[name](b, *widen_numba_integers(b, x[0], y[0]))]

    def type_of_wider(x: Any, y: Any) -> Any:
        return types.int64 if types.int64 in (x, y) else types.int32

    return make_numba_lane_intrinsic(name, 2, type_of_wider, generate_nvvm)


_DTYPE = "(b1|[iu](?:8|16|32|64)|f(?:16|32|64)|bf16)"
_CELL = "(b1|[iu](?:8|16|32|64)|f(?:16|32|64)|bf16|c(?:64|128)(?:re|im)?)"
_PATTERNS = tuple(
    (re.compile(pattern), make)
    for pattern, make in (
        (f"{_DTYPE}_from_{_DTYPE}", _dtype_conversion_intrinsic),
        (f"{_DTYPE}_bits_{_DTYPE}", _bitcast_lanes_intrinsic),
        (r"window_(\d+)x(\d+)_(\d+)", _shifted_window_of_lanes_intrinsic),
        (r"lanes_(\d+)x(\d+)", _lane_numbers_intrinsic),
        (r"below_(\d+)x(\d+)", _lanes_below_length_intrinsic),
        (rf"(?:load|sget)(v?)_{_CELL}_(\d+)x(\d+)(_if)?", load_intrinsic),
        (rf"gather(v?)_{_CELL}_(\d+)x(\d+)(_if)?", gather_intrinsic),
        ("report", report_bad_index_intrinsic),
        (rf"(?:store|sput)(v?)_{_CELL}_(\d+)x(\d+)(_if)?", store_intrinsic),
        (rf"shared_{_DTYPE}_(\d+)", shared_memory_intrinsic),
        (rf"sload_{_DTYPE}_(\d+)", shared_load_intrinsic),
        (rf"sstore_{_DTYPE}_(\d+)", shared_store_intrinsic),
        (rf"cstore_{_DTYPE}", cluster_store_intrinsic),
        (r"part_(\d+)_(\d+)", _part_of_lanes_intrinsic),
        (rf"array_{_CELL}_(\d+)", _numba_array_view_intrinsic),
        ("lo|hi", _half_conversion_intrinsic),
        (r"repeat_(\d+)", _repeat_lanes_intrinsic),
        (r"fold_(\w+?)_(\d+)", _lane_fold_intrinsic),
        (r"warp_(\w+)", _warp_butterfly_intrinsic),
        ("shuffle_(xor|up|idx)", warp_shuffle_intrinsic),
        (r"match_(\d+)", warp_match_intrinsic),
        ("ballot", warp_ballot_intrinsic),
        ("(s|g)(add|max)_([iu](?:32|64))", atomic_intrinsic),
        ("peek_u64", atomic_read_intrinsic),
        ("post_u64", atomic_write_intrinsic),
        ("barrier|sync_warp|cluster_(?:barrier|arrive|wait)", _barrier_intrinsic),
        ("udiv|urem|least", _numba_index_arithmetic_intrinsic),
        ("prefer_(?:argmax|argmin)", _argmin_or_argmax_preference_intrinsic),
    )
)
_REGISTERS = {
    f"{name}_{axis}": f"{special}.{axis}"
    for name, special in (("tid", "tid"), ("bid", "ctaid"), ("bdim", "ntid"))
    for axis in "xyz"
}
_CONSTANTS = {"inf": float("inf"), "nan": float("nan")}


@cache
def resolve_name_in_kernel_text(name: str, fastmath: bool = False, members: int = 0) -> Any:
    """What `name` stands for in kernel text. Raises KeyError for a name outside the vocabulary.

    fastmath: leave all roundings to the compiler. members: of a packed launch, whose blocks take turns."""
    if members and name == "bid_x":
        return _packed_block_number_intrinsic(members)
    if name in ROWS:
        return _primitive_intrinsic(name, ROWS[name], fastmath)
    if name in NUMBA:
        return NUMBA[name]
    if name in _CONSTANTS:
        return _CONSTANTS[name]
    if name in _REGISTERS:
        return _cuda_special_register_intrinsic(name, _REGISTERS[name])
    for pattern, make in _PATTERNS:
        if match := pattern.fullmatch(name):
            return make(name, *match.groups())
    raise KeyError(name)
