"""What all strategies share: a loop nest's body as lines of CUDA text.

The text is Python over the names of `runtime/devices/cuda/compile/vocabulary.py`; it imports nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ....runtime.core.frozen import frozen
from ...core.types import FLOAT32, HALVES, SHORT_NAMES
from ...kernel.loop_nest import Instr, LoopNest, Phase, Reduction
from .launch_shape import CudaShape, cuda_reduction_part_dtypes

SUM = Reduction("sum", FLOAT32, ())  # of what an operand of role `sum` holds
_KEYWORDS = {"and": "and_", "or": "or_", "not": "not_"}


@frozen
class LanePlace:
    """Where an operand's lanes lie: element `first + g*group + j*lane`. vector: lane is 1 and aligned."""

    first: str
    group: str = "zero"
    lane: str = "zero"
    length: int = 1
    groups: int = 1
    vector: bool = False


@frozen
class BodyContext:
    """What a body is printed for.

    place: where an operand's lanes lie. index: the lanes of an axis' index. mask: lanes that exist (None: all).
    guard: a condition on stores. prefix: of the names of values. staged: how to get a load that is already in shared
    memory. shifted: how to get a value that several shifts share. absent: values that nothing printed here takes.
    """

    place: Callable[[int], LanePlace]
    index: Callable[[int], str]
    mask: str | None = None
    guard: str | None = None
    prefix: str = "v"
    staged: Callable[[int, int], str | None] = lambda operand, part: None
    shifted: Callable[[int, dict[int, str]], str | None] = lambda value, names: None
    absent: Collection[int] = ()


class IndentedLines:
    """Lines of Python text under construction, within a function."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 1

    def add(self, *lines: str) -> None:
        self.lines += ["    " * self.depth + line for line in lines]

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """An indented suite."""
        self.add(head)
        self.depth += 1
        yield
        self.depth -= 1


class CudaKernelText(IndentedLines):
    """Lines of kernel text under construction. `ix` is the index type, `names` the names of finished values."""

    def __init__(self, nest: LoopNest, shape: CudaShape) -> None:
        super().__init__()
        self.nest, self.shape = nest, shape
        self.ix = f"i{nest.index_bits}"
        self.names: dict[int, str] = {}
        self.results: dict[tuple[int, int, int], str] = {}
        self.known: dict[Any, str] | None = None  # straight-line text: equal values are computed once
        self.called: dict[str, str] = {}  # calls of users' functions in the phase being printed: text -> its name
        self.strides = _cuda_run_time_stride_names(nest)

    def set(self, name: str, value: str) -> str:
        """Assign an index expression, in the index type."""
        self.add(f"{name} = {self.ix}({value})")
        return name

    def pieces(self, name: str, total: str, size: str) -> str:
        """How many pieces of a size make up a total, rounded up. In the index type: a 64-bit division is long."""
        return self.set(name, f"udiv({self.ix}({total} + {size} - 1), {self.ix}({size}))")

    def print(self) -> str:
        operands = [f"a{k}" for k in range(len(self.nest.operands))]
        lengths = [f"n{k}" for k in range(self.nest.axes)]
        strides = [f"st{k}" for k in range(len([s for s in self.strides.values() if s[0] == "s"]))]
        scalars = [f"x{k}" for k in range(len(self.nest.scalars))]
        head = f"def {self.nest.name}({', '.join(operands + lengths + strides + scalars)}):"
        return "\n".join([head, *self.lines, ""])

    def prologue(self) -> None:
        """Lengths and strides in the index type."""
        self.set("zero", "0")
        self.set("one", "1")
        for axis in range(self.nest.axes):
            self.set(f"m{axis}", f"n{axis}")
        for name in self.strides.values():
            if name[0] == "s":
                self.set(name, f"st{name[1:]}")

    def stride(self, operand: int, axis: int) -> str:
        """`zero`, `one` or the name of the operand's stride along the axis."""
        return {"0": "zero", "1": "one"}.get(
            self.nest.operands[operand].layout[axis], self.strides.get((operand, axis), "zero")
        )

    def offset(self, operand: int, indices: Sequence[tuple[int, str]], base: str = "") -> str:
        """The element number at the given (axis, index)."""
        terms = [base] if base else []
        for axis, index in indices:
            stride = self.stride(operand, axis)
            if stride != "zero":
                terms.append(index if stride == "one" else f"{index} * {stride}")
        return " + ".join(terms) or "zero"

    def split(self, flat: str, axes: Sequence[int], name: str) -> list[tuple[int, str]]:
        """The indices along `axes` of the flat number `flat` in row-major order, as variables."""
        indices: list[tuple[int, str]] = []
        for position, axis in reversed(list(enumerate(axes))):
            index = f"{name}{axis}"
            if position == 0:
                self.add(f"{index} = {flat}")
            else:
                self.add(f"{index} = urem({flat}, m{axis})", f"{flat}_{axis} = udiv({flat}, m{axis})")
                flat = f"{flat}_{axis}"
            indices.append((axis, index))
        return indices[::-1]

    def product(self, axes: Sequence[int]) -> str:
        return " * ".join(f"m{axis}" for axis in axes) or "one"

    # values

    def phase(self, phase: Phase, context: BodyContext, keep: bool, late: Sequence[int] = ()) -> dict[int, str]:
        """Print the instructions. The names of all values seen; kept for later phases where `keep`.

        late: operands that are loaded where the value is used, so that they fill no registers until then.
        """
        names = dict(self.names)
        self.called = {}
        waiting: dict[int, dict[int, str]] = {}
        numbered = ((n, i) for n, i in enumerate(phase.instrs, phase.first) if n not in context.absent)
        for number, instr in _sink_late_cuda_loads(numbered, late):
            if instr.op == "store":
                self._print_store(instr, names[instr.args[0]], context, waiting)
            elif instr.op == "report":
                self._print_report(instr, names, context)
            else:
                expression = context.shifted(number, names) or self.expression(instr, names, context)
                names[number] = self._print_value(f"{context.prefix}{number}", expression)
        if waiting:
            raise ValueError(f"{self.nest.name}: a complex store lacks a part: operands {sorted(waiting)}")
        if keep:
            self.names = names
        return names

    def _print_value(self, name: str, expression: str) -> str:
        if not expression.endswith(")"):  # already a name
            return expression
        if self.known is not None:
            if expression in self.known:
                return self.known[expression]
            self.known[expression] = name
        self.add(f"{name} = {expression}")
        return name

    def expression(self, instr: Instr, names: dict[int, str], context: BodyContext) -> str:
        if instr.op == "call":
            return self._user_call_expression(instr, names, context)
        special = _SPECIAL.get(instr.op)
        if special is not None:
            return special(self, instr, names, context)
        return f"{_KEYWORDS.get(instr.op, instr.op)}({', '.join(names[a] for a in instr.args)})"

    def _user_call_expression(self, instr: Instr, names: dict[int, str], context: BodyContext) -> str:
        """A result of a user's function: a part of what it gives. Lanes that do not exist are not computed."""
        function, part = instr.attr
        args = [names[a] for a in instr.args]
        count = sum(1 + (a[0] == "c") for a in function.arguments)
        masks = [m for m in (*args[count:], context.mask) if m]
        mask = [f"and_({', '.join(masks)})"] if len(masks) > 1 else masks
        call = f"{function.symbol}{'_if' if mask else ''}({', '.join([*args[:count], *mask])})"
        if call not in self.called:
            self.called[call] = f"{context.prefix}c{len(self.called)}"
            self.add(f"{self.called[call]} = {call}")
        halves = sum(1 + (r[0] == "c") for r in function.results)
        return f"part_{part}_{halves}({self.called[call]})"

    def dtype_of(self, value: int) -> np.dtype[Any]:
        for phase in self.nest.phases:
            if phase.first <= value < phase.first + len(phase.instrs):
                return phase.instrs[value - phase.first].dtype
        raise ValueError(f"{self.nest.name}: no value v{value}")

    def load(self, operand: int, part: int, context: BodyContext) -> str:
        staged = context.staged(operand, part)
        if staged is not None:
            return staged
        place, cell = context.place(operand), cuda_cell_type_name(self.nest.operands[operand].dtype, part)
        masked = context.mask if place.lane != "zero" else None
        return _cuda_access_expression("load", cell, place, f"a{operand}", [], masked)

    def gather(self, instr: Instr, offset: str, context: BodyContext) -> str:
        """The elements `offset` beyond those of a load."""
        operand, part = instr.attr
        place, cell = context.place(operand), cuda_cell_type_name(self.nest.operands[operand].dtype, part)
        return _cuda_access_expression("gather", cell, place, f"a{operand}", [offset], context.mask)

    def store(self, operand: int, values: list[str], context: BodyContext) -> str:
        place, dtype = context.place(operand), self.nest.operands[operand].dtype
        masked = context.mask if place.lane != "zero" else None
        return _cuda_access_expression("store", SHORT_NAMES[dtype], place, f"a{operand}", values, masked)

    def _print_report(self, instr: Instr, names: dict[int, str], context: BodyContext) -> None:
        value, condition = (names[a] for a in instr.args)
        bad = f"and_({condition}, {context.mask})" if context.mask else condition
        line = f"report(a{instr.attr[0]}, {value}, {bad})"
        if context.guard:
            with self.block(f"if {context.guard}:"):
                self.add(line)
        else:
            self.add(line)

    def _print_store(self, instr: Instr, value: str, context: BodyContext, waiting: dict[int, dict[int, str]]) -> None:
        operand, part = instr.attr
        dtype = self.nest.operands[operand].dtype
        parts = waiting.setdefault(operand, {})
        parts[part] = value
        if len(parts) < (2 if dtype.kind == "c" else 1):
            return
        del waiting[operand]
        values = [parts[k] for k in sorted(parts)]
        if self.nest.operands[operand].role == "sum":
            values = print_cuda_masked_values(self, SUM, values, context.mask, f"more{operand}")
            print_cuda_combine(self, SUM, [f"sum{operand}"], [f"sum{operand}"], values)
            return
        line = self.store(operand, values, context)
        if self.known is not None:  # what was loaded from there is out of date
            self.known = {key: name for key, name in self.known.items() if f"(a{operand}, " not in key}
        if context.guard:
            if self.nest.operands[operand].role == "inout":
                self.add("barrier()")  # all threads may have read it
            with self.block(f"if {context.guard}:"):
                self.add(line)
        else:
            self.add(line)


def _sink_late_cuda_loads(numbered: Iterable[tuple[int, Instr]], late: Sequence[int]) -> Iterator[tuple[int, Instr]]:
    """Each load of the operands `late` comes just before the first instruction that takes it, or at the end."""
    waiting: dict[int, Instr] = {}
    for number, instr in numbered:
        if instr.op == "load" and instr.attr[0] in late:
            waiting[number] = instr
            continue
        yield from ((a, waiting.pop(a)) for a in instr.args if a in waiting)
        yield number, instr
    yield from waiting.items()


def _cuda_access_expression(
    verb: str, cell: str, place: LanePlace, pointer: str, values: list[str], mask: str | None
) -> str:
    name = f"{verb}{'v' if place.vector else ''}_{cell}_{place.length}x{place.groups}{'_if' if mask else ''}"
    where = [pointer, place.first, place.group] + ([] if place.vector else [place.lane])
    return f"{name}({', '.join(where + values + ([mask] if mask else []))})"


def cuda_cell_type_name(dtype: np.dtype[Any], part: int) -> str:
    """What a load of the part is called."""
    return SHORT_NAMES[dtype] + (("re", "im")[part] if dtype.kind == "c" else "")


def _cuda_constant_expression(text: CudaKernelText, instr: Instr, names: dict[int, str], context: BodyContext) -> str:
    return cuda_constant_text(instr.dtype, np.frombuffer(instr.attr, instr.dtype)[0])


def _cuda_cast_expression(text: CudaKernelText, instr: Instr, names: dict[int, str], context: BodyContext) -> str:
    source = text.dtype_of(instr.args[0])
    if source == instr.dtype:
        return names[instr.args[0]]
    verb = "from" if instr.op == "cast" else "bits"
    return f"{SHORT_NAMES[instr.dtype]}_{verb}_{SHORT_NAMES[source]}({names[instr.args[0]]})"


_SPECIAL: dict[str, Callable[[CudaKernelText, Instr, dict[int, str], BodyContext], str]] = {
    "const": _cuda_constant_expression,
    "load": lambda text, instr, names, context: text.load(instr.attr[0], instr.attr[1], context),
    "gather": lambda text, instr, names, context: text.gather(instr, names[instr.args[0]], context),
    "scalar": lambda text, instr, names, context: f"x{instr.attr}",
    "index": lambda text, instr, names, context: context.index(instr.attr),
    "size": lambda text, instr, names, context: f"n{instr.attr}",
    "result": lambda text, instr, names, context: text.results[instr.attr],
    "cast": _cuda_cast_expression,
    "bitcast": _cuda_cast_expression,
}


def cuda_constant_text(dtype: np.dtype[Any], value: Any) -> str:
    """A number as text that gives the same bits (any NaN gives the quiet one)."""
    if dtype in HALVES:
        return f"{SHORT_NAMES[dtype]}({int(np.asarray(value, dtype).view(np.uint16))})"
    if dtype.kind == "f":
        return f"{SHORT_NAMES[dtype]}({float(value)!r})"
    return f"{SHORT_NAMES[dtype]}({int(value)})"


# Reductions: each is a list of parts (value, and index for argmin and argmax) under names.


def cuda_reduction_identities(reduction: Reduction) -> list[str]:
    """What changes nothing, for each part."""
    row, last = reduction.combiner, np.iinfo(np.int64).max
    found = [cuda_constant_text(reduction.dtype, row.identity(reduction.dtype))]
    return [*found, cuda_constant_text(np.dtype(np.int64), last)] if row.carries_index else found


_PREFERENCES = {"maximum": "prefer_argmax", "minimum": "prefer_argmin"}


def _cuda_join_function_name(reduction: Reduction) -> str | None:
    """The function of the vocabulary that joins two values; None where an index comes along."""
    row = reduction.combiner
    return None if row.carries_index else _KEYWORDS.get(row.primitive, row.primitive)


def print_cuda_combine(
    text: CudaKernelText, reduction: Reduction, target: Sequence[str], a: Sequence[str], b: Sequence[str]
) -> None:
    """target = combine(a, b), part by part."""
    joins = _cuda_join_function_name(reduction)
    if joins is None:
        preference = _PREFERENCES[reduction.combiner.primitive]
        text.add(f"other = {preference}({a[0]}, {a[1]}, {b[0]}, {b[1]})")
        for name, x, y in zip(target, a, b, strict=True):
            text.add(f"{name} = select(other, {y}, {x})")
    else:
        text.add(f"{target[0]} = {joins}({a[0]}, {b[0]})")


def print_cuda_lane_fold(
    text: CudaKernelText, reduction: Reduction, names: Sequence[str], lanes: int, until: int = 1
) -> list[str]:
    """Combine the halves of the lanes until only `until` are left. The names of what is left."""
    if lanes == until:
        return list(names)
    if joins := _cuda_join_function_name(reduction):
        text.add(f"{names[0]}_{until} = fold_{joins}_{until}({names[0]})")
        return [f"{names[0]}_{until}"]
    current = list(names)
    while lanes > until:
        lanes //= 2
        following = [f"{name}_{lanes}" for name in names]
        print_cuda_combine(text, reduction, following, [f"lo({x})" for x in current], [f"hi({x})" for x in current])
        current = following
    return current


def print_cuda_warp_butterfly(text: CudaKernelText, reduction: Reduction, names: Sequence[str], among: str) -> None:
    """Combine over each `among` neighbouring threads of a warp (a power of two; what is more counts as 32)."""
    if joins := _cuda_join_function_name(reduction):
        text.add(f"{names[0]} = warp_{joins}({names[0]}, {among})")
        return
    for offset in (16, 8, 4, 2, 1):
        with text.block(f"if {among} > {offset}:"):
            print_cuda_combine(text, reduction, names, names, [f"shuffle_xor({name}, {offset})" for name in names])


def print_cuda_masked_values(
    text: CudaKernelText, reduction: Reduction, values: Sequence[str], mask: str | None, tag: str
) -> list[str]:
    """The values, with the identity in lanes that do not exist."""
    if mask is None:
        return list(values)
    names = []
    for part, (value, identity) in enumerate(zip(values, cuda_reduction_identities(reduction), strict=True)):
        names.append(f"{tag}_{part}")
        text.add(f"{names[-1]} = select({mask}, {value}, {identity})")
    return names


def _cuda_run_time_stride_names(nest: LoopNest) -> dict[tuple[int, int], str]:
    """s0, s1, ... for the run-time strides, in parameter order."""
    found = [(o, axis) for o, op in enumerate(nest.operands) for axis, c in enumerate(op.layout) if c == "s"]
    return {key: f"s{k}" for k, key in enumerate(found)}


__all__ = [
    "BodyContext",
    "CudaKernelText",
    "LanePlace",
    "cuda_reduction_identities",
    "cuda_reduction_part_dtypes",
    "print_cuda_combine",
    "print_cuda_lane_fold",
    "print_cuda_masked_values",
    "print_cuda_warp_butterfly",
]
