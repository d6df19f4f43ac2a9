"""Calls of users' scalar functions: `void @symbol(arguments, ptr ...)`, lane by lane, those lanes alone that exist.

A bool is a byte, a complex number two reals. The function itself is linked when the kernel is compiled.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....runtime.program.user_function import Function as UserFunction
from ...core.types import BOOL, DType, real_of
from .llvm_ir import PLAIN, Function, Value
from .primitives import elem_of, memory_elem


def parts_of(dtypes: Sequence[str]) -> list[DType]:
    """The dtypes of values in registers: of both parts of the complex ones."""
    found = []
    for dtype in map(np.dtype, dtypes):
        found += [real_of(dtype)] * (1 + (dtype.kind == "c"))
    return found


def call_user(
    f: Function, function: UserFunction, args: Sequence[Value], lanes: int, mask: Value | None
) -> list[Value]:
    """The parts of all results. mask: the lanes for which it is called, as does one more argument than it has; what the
    others get is of no use."""
    given, results = parts_of(function.arguments), parts_of(function.results)
    for chosen in args[len(given) :]:
        mask = chosen.splat(lanes) if mask is None else mask & chosen.splat(lanes)
    args = args[: len(given)]
    symbol = "@" + function.symbol
    kinds = [*(memory_elem(d) for d in given), *("ptr" for _ in results)]
    f.module.declare(symbol, f"void {symbol}({', '.join(kinds)})")
    values = [a.to("zext", "i8") if d == BOOL else a for a, d in zip(args, given, strict=True)]
    outputs = [f.slot(_kind(d, lanes)) for d in results]
    if lanes == 1 and mask is not None:
        with f.when(mask):
            _call(f, symbol, values, outputs)
    elif lanes == 1:
        _call(f, symbol, values, outputs)
    else:
        places = {i: _spilled(f, v) for i, v in enumerate(values) if v.lanes > 1}
        exists = None if mask is None else _spilled(f, mask.to("zext", "i8"))
        note = PLAIN if function.loops or exists is not None else _vectorized(f)
        with f.loop(f.const(0, "i64"), f.const(lanes, "i64"), note=note) as lane:
            one = [places[i].at(lane, v.elem).load(v.elem) if i in places else v for i, v in enumerate(values)]
            here = [o.at(lane, memory_elem(d)) for o, d in zip(outputs, results, strict=True)]
            if exists is None:
                _call(f, symbol, one, here)
            else:
                with f.when(exists.at(lane, "i8").load("i8").ne(0)):
                    _call(f, symbol, one, here)
    return [_loaded(o, d, lanes) for o, d in zip(outputs, results, strict=True)]


def _vectorized(f: Function) -> int:
    """The note of a loop whose branches LLVM may turn into vectors of its own."""
    f.module.parts.setdefault("!7", "!7 = distinct !{!7, !3}")
    return 7


def _kind(dtype: DType, lanes: int) -> str:
    return memory_elem(dtype) if lanes == 1 else f"<{lanes} x {memory_elem(dtype)}>"


def _spilled(f: Function, value: Value) -> Value:
    place = f.slot(value.kind)
    place.store(value, 64)
    return place


def _call(f: Function, symbol: str, args: Sequence[Value], outputs: Sequence[Value]) -> None:
    f.do(f"call void {symbol}({', '.join(v.typed for v in (*args, *outputs))})")


def _loaded(place: Value, dtype: DType, lanes: int) -> Value:
    value = place.load(memory_elem(dtype), lanes, 64)
    return value.ne(0) if dtype == BOOL else Value(value.f, value.text, elem_of(dtype), lanes)
