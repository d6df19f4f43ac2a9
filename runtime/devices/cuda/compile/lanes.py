"""Values as lanes: intrinsics that take and give tuples of lanes, and the numba type of every dtype."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from llvmlite import ir

from .numba_parts import intrinsic, signature, types
from .primitives import I64, Value

NUMBA: dict[str, Any] = {
    "b1": types.boolean,
    "i8": types.int8,
    "i16": types.int16,
    "i32": types.int32,
    "i64": types.int64,
    "u8": types.uint8,
    "u16": types.uint16,
    "u32": types.uint32,
    "u64": types.uint64,
    "f32": types.float32,
    "f64": types.float64,
    "f16": types.uint16,  # their bits
    "bf16": types.uint16,
}
SHORT = {t: name for name, t in NUMBA.items() if name not in ("f16", "bf16")}


class Lanes(list[Value]):
    """The lanes of an argument, and their dtype (None where they are of several)."""

    def __init__(self, values: Iterable[Value], dtype: Any) -> None:
        super().__init__(values)
        self.dtype = dtype

    def repeated(self, count: int) -> list[Value]:
        """So many lanes, these over and over."""
        return [self[k % len(self)] for k in range(count)]


Codegen = Callable[..., Sequence[Value]]  # (builder, *Lanes of each argument) -> lanes of the result


def numba_lane_element_type(t: Any) -> Any:
    """The numba type of a lane."""
    return types.unliteral(t.dtype if isinstance(t, types.UniTuple) else t)


def numba_lane_count(t: Any) -> int:
    """The number of lanes."""
    return int(t.count) if isinstance(t, types.UniTuple) else 1


def numba_cuda_type_of_lanes(element: Any, count: int) -> Any:
    """One lane is a scalar, several are a tuple."""
    return element if count == 1 else types.UniTuple(element, count)


def numba_lanes_like(t: Any, dtype: str | None = None, count: int | None = None) -> Any:
    """The type of lanes like others, but of another dtype, or another number of them."""
    return numba_cuda_type_of_lanes(
        NUMBA[dtype] if dtype else numba_lane_element_type(t), numba_lane_count(t) if count is None else count
    )


def _unpack_numba_lanes(b: ir.IRBuilder, value: Value, t: Any) -> Lanes:
    values = [b.extract_value(value, k) for k in range(t.count)] if isinstance(t, types.BaseTuple) else [value]
    return Lanes(values, None if isinstance(t, types.Tuple) else SHORT.get(numba_lane_element_type(t)))


def _pack_numba_lanes(b: ir.IRBuilder, lanes: Sequence[Value]) -> Value:
    if len(lanes) == 1:
        return lanes[0]
    kinds = [lane.type for lane in lanes]
    alike = all(kind == kinds[0] for kind in kinds)
    pack = ir.ArrayType(kinds[0], len(lanes)) if alike else ir.LiteralStructType(kinds)
    result = pack(ir.Undefined)
    for k, lane in enumerate(lanes):
        result = b.insert_value(result, lane, k)
    return result


def make_numba_lane_intrinsic(name: str, arity: int, result: Any, generate: Codegen, in_context: bool = False) -> Any:
    """A numba.cuda intrinsic of `arity` arguments. result: its type, or a function of the arguments' types.

    in_context: the code generator is given numba's context before the builder."""

    def define_numba_intrinsic(typingctx: Any, *given: Any) -> Any:
        argtypes = [types.unliteral(t) for t in given]
        found = result if isinstance(result, types.Type) else result(*argtypes)

        def generate_numba_intrinsic(context: Any, builder: ir.IRBuilder, sig: Any, args: Sequence[Value]) -> Value:
            first = (context, builder) if in_context else (builder,)
            lanes = generate(*first, *(_unpack_numba_lanes(builder, a, t) for a, t in zip(args, argtypes, strict=True)))
            return context.get_dummy_value() if found == types.void else _pack_numba_lanes(builder, lanes)

        return signature(found, *argtypes), generate_numba_intrinsic

    names = ["typingctx", *(f"a{k}" for k in range(arity))]
    define_numba_intrinsic.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(p, inspect.Parameter.POSITIONAL_OR_KEYWORD) for p in names]
    )
    define_numba_intrinsic.__name__ = name
    return intrinsic(define_numba_intrinsic)


def widen_numba_integers(b: ir.IRBuilder, *integers: Value) -> list[Value]:
    """The integers in the widest of their types."""
    if all(i.type == integers[0].type for i in integers):
        return list(integers)
    return [i if i.type == I64 else b.sext(i, I64) for i in integers]


def numba_lane_element_numbers(
    b: ir.IRBuilder, first: Value, gs: Value, ls: Value, length: int, groups: int
) -> list[list[Value]]:
    """The element numbers `first + g*gs + j*ls`, group by group."""
    first, gs, ls = widen_numba_integers(b, first, gs, ls)
    rows = []
    for g in range(groups):
        start = b.add(first, b.mul(gs, gs.type(g))) if g else first
        rows.append([b.add(start, b.mul(ls, ls.type(j))) if j else start for j in range(length)])
    return rows


def emit_nvvm_branch(
    b: ir.IRBuilder,
    condition: Value,
    yes: Callable[[], Sequence[Value]],
    no: Callable[[], Sequence[Value]],
) -> list[Value]:
    """What `yes` gives where the condition holds, else what `no` gives. Only one of them runs."""
    first, second, done = (b.append_basic_block(n) for n in ("yes", "no", "done"))
    b.cbranch(condition, first, second)
    ends = []
    for block, make in ((first, yes), (second, no)):
        b.position_at_end(block)
        values = make()
        ends.append((b.block, values))
        b.branch(done)
    b.position_at_end(done)
    results = []
    for choices in zip(*(values for _, values in ends), strict=True):
        phi = b.phi(choices[0].type)
        for (block, _), value in zip(ends, choices, strict=True):
            phi.add_incoming(value, block)
        results.append(phi)
    return results


def all_numba_lane_flags_hold(b: ir.IRBuilder, flags: Sequence[Value]) -> Value:
    """Whether all flags hold."""
    result = flags[0]
    for flag in flags[1:]:
        result = b.and_(result, flag)
    return result
