"""A routine as LLVM IR text for the CPU, for one thread. Loops of independent turns run as vectors.

LLVM's vectoriser gets told which loops have independent turns, and that folds may be summed in any order.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import partial, reduce
from operator import and_
from typing import Any

import numpy as np

from ....runtime.program.program import Kernel
from ...core.combiners import COMBINERS
from ...core.types import FLOAT32, FLOAT64, INT64, DType, real_dtype
from ...sequential.form import (
    Block,
    Fold,
    For,
    If,
    Let,
    Routine,
    Set,
    Statement,
    Stop,
    Store,
    While,
    blocks_in_routine_statement,
)
from .llvm_ir import METADATA, UNLIKELY, LlvmFunction, LlvmModule, LlvmValue
from .primitives import emit_llvm_cast, emit_llvm_primitive, llvm_memory_type, llvm_register_type, llvm_scalar_constant
from .rows import RowsInVectors, deciding_rows_for_vectors, lanes_of_rows, loop_over_deciding_rows, rows_of_group

_NAME = "k_seq_"  # stands for the kernel's name in a text that decides it
ZERO_AND_ONE = {n.to_bytes(8, "little") for n in (0, 1)}  # as attributes of constants
GRAIN = 64  # rows that a thread takes at least
_FIRST_NOTE = 100  # metadata numbers of the loops; those below are `llvm_ir`'s


def cpu_kernel_of_routine(routine: Routine, vector_library: str | None = None, width: int = 32) -> Kernel:
    """The kernel of a routine, in one unit, or of rows, each a unit. Its parameters are its arrays; for each that
    starts from another one, in order, that other one; its numbers less one; and how many bytes each of those copies
    has. width: bytes of a vector."""
    body = _LlvmRoutinePrinter(routine, vector_library, width).text()
    name = f"k_seq_{hashlib.sha256(body.encode()).hexdigest()[:16]}"
    copies = sum(a.role == "inout" for a in routine.arrays)
    signature = ("ptr",) * (len(routine.arrays) + copies) + ("i64",) * (routine.numbers + copies)
    return Kernel(name, "cpu", body.replace(_NAME, name), signature, form=routine)


def units_and_grain_of_rows(routine: Routine, numbers: Sequence[int]) -> tuple[int, int]:
    """Rows, and how many of them a thread takes at a time. numbers: those that the routine takes."""
    if (loop := loop_over_deciding_rows(routine)) is None:
        return 1, 1
    known = {s.number: s.instr for s in routine.body if isinstance(s, Let)}

    def value(number: int) -> int:
        instr = known[number]
        return numbers[instr.attr] if instr.op == "number" else int(np.frombuffer(instr.attr, INT64)[0])

    return value(loop.stop) - value(loop.start), GRAIN


class _LlvmRoutinePrinter:
    def __init__(self, routine: Routine, vector_library: str | None, width: int) -> None:
        self.routine, self.width = routine, width
        self.rows = loop_over_deciding_rows(routine)
        self.module = LlvmModule(vector_library)
        self.f = LlvmFunction(self.module)
        self.values: dict[int, LlvmValue] = {}
        self.dtypes: dict[int, DType] = {}
        self.notes: list[str] = []
        self.groups: list[int] = []  # of the loops around whose turns are independent
        self.constants: dict[int, Any] = {}  # the attributes of values that are constants
        self.factors: set[int] = set()  # values that are 0 or 1 for a whole loop, as those of broadcast axes

    def text(self) -> str:
        f = self.f
        slots = LlvmValue(f, "%slots", "ptr")
        arrays = self.routine.arrays
        starts = [i for i, a in enumerate(arrays) if a.role == "inout"]
        words = iter(range(2 * len(starts) + len(arrays) + self.routine.numbers))
        self.pointers = [slots.at(next(words), "i64").load("ptr") for _ in arrays]
        sources = [slots.at(next(words), "i64").load("ptr") for _ in starts]
        # LLVM would make vectors for a stride of 1 alone where the stride is a bare unknown; it is a sum so.
        self.numbers = [slots.at(next(words), "i64").load("i64") + 1 for _ in range(self.routine.numbers)]
        for i, source in zip(starts, sources, strict=True):
            self.copy(self.pointers[i], source, slots.at(next(words), "i64").load("i64"))
        self.variables = [f.slot(llvm_register_type(dtype)) for dtype in self.routine.variables]
        for slot, dtype in zip(self.variables, self.routine.variables, strict=True):
            slot.store(f.const(0, llvm_register_type(dtype)))
        if self.routine.checks:
            for word in range(2):
                self.pointers[-1].at(word, "i64").store(f.const(0, "i64"))
        self.block(self.routine.body)
        f.jump("finished")
        f.block("finished")
        f.do("ret void")
        text = f.render(f"define void @{_NAME}(ptr noundef %slots, i64 %begin, i64 %end)")
        return "\n".join([str(self.module), text, METADATA, *self.notes, ""])

    def copy(self, target: LlvmValue, source: LlvmValue, nbytes: LlvmValue) -> None:
        name = "@llvm.memcpy.p0.p0.i64"
        self.module.declare(name, f"void {name}(ptr, ptr, i64, i1)")
        self.f.do(f"call void {name}({target.typed}, {source.typed}, {nbytes.typed}, i1 false)")

    def block(self, block: Block) -> None:
        for statement in block:
            WRITERS[type(statement)](self, statement)

    def note(self, text: str) -> int:
        number = _FIRST_NOTE + len(self.notes)
        self.notes.append(f"!{number} = {text.replace('SELF', f'!{number}')}")
        return number

    @property
    def access(self) -> str:
        """The note of a load or store: which loops it is independent in."""
        if not self.groups:
            return ""
        if len(self.groups) == 1:
            return f", !llvm.access.group !{self.groups[0]}"
        together = self.note("!{" + ", ".join(f"!{g}" for g in self.groups) + "}")
        return f", !llvm.access.group !{together}"

    # statements

    def let(self, s: Let) -> None:
        instr, f = s.instr, self.f
        if instr.op == "const":
            self.constants[s.number] = instr.attr
            found = llvm_scalar_constant(f, instr.dtype, instr.attr)
        elif instr.op == "load":
            elem = llvm_memory_type(instr.dtype)
            raw = self.pointers[instr.attr].at(self.values[instr.args[0]], elem).load(elem, note=self.access)
            found = raw.ne(0) if instr.dtype.kind == "b" else raw
        elif instr.op == "number":
            found = self.numbers[instr.attr]
        elif instr.op == "get":
            found = self.variables[instr.attr].load(llvm_register_type(instr.dtype))
        else:
            source = self.dtypes[instr.args[-1]]
            found = emit_llvm_primitive(instr.op, source, instr.dtype, [self.values[a] for a in instr.args])
        if instr.op == "select" and {self.constants.get(a) for a in instr.args[1:]} == ZERO_AND_ONE:
            self.factors.add(s.number)
        self.put(s.number, found, instr.dtype)

    def put(self, number: int, value: LlvmValue, dtype: DType) -> None:
        self.values[number], self.dtypes[number] = value, dtype

    def store(self, s: Store) -> None:
        array = self.routine.arrays[s.array]
        elem, value = llvm_memory_type(real_dtype(array.dtype)), self.values[s.value]
        value = value.to("zext", "i8") if value.elem == "i1" else value
        self.pointers[s.array].at(self.values[s.place], elem).store(value, note=self.access)

    def set(self, s: Set) -> None:
        self.variables[s.variable].store(self.values[s.value])

    def run_for(self, s: For) -> None:
        if s is self.rows:
            self.run_rows(s)
            return
        index = self.index_dtype(s.start)
        if s.parallel:
            group = self.note("distinct !{}")
            self.groups.append(group)

            def write_body(i: LlvmValue) -> None:
                self.put(s.index, i, index)
                self.block(s.body)

            if _is_innermost_llvm_loop(s.body):
                self.loop_with_known_strides(s, write_body, group)
            else:
                self.loop(s, write_body)
            self.groups.pop()
            return
        outside, self.groups = self.groups, []
        done = None if s.until is None else f"done{self.f.fresh('')}"

        def write_iteration(i: LlvmValue) -> None:
            self.put(s.index, i, index)
            self.block(s.body)
            if s.until is not None:
                self.branch_out(self.values[s.until], f"{done}")

        self.loop(s, write_iteration)
        if done is not None:
            self.f.jump(done)
            self.f.block(done)
        self.groups = outside

    def run_rows(self, s: For) -> None:
        """The rows of this call's units."""
        low, high = (self.values[s.start] + LlvmValue(self.f, name, "i64") for name in ("%begin", "%end"))
        rows, lanes = deciding_rows_for_vectors(s), lanes_of_rows(self.width)
        if rows is not None and (group := rows_of_group(self.routine, rows, lanes)):
            RowsInVectors(self, rows, lanes, group).write(low, high)
            return

        with self.f.loop(low, high, note=None, flags="nsw") as i:
            self.put(s.index, i, self.index_dtype(s.start))
            self.block(s.body)

    def loop_with_known_strides(self, s: For | Fold, body: Callable[[LlvmValue], None], group: int) -> None:
        """An innermost loop, twice where axes may be broadcast in it: vectors need to know that none is."""
        products = [t.instr.args for t in s.body if isinstance(t, Let) and t.instr.op == "mul"]
        factors = {a: self.values[a] for args in products if s.index in args for a in args if a in self.factors}

        def write_loop(known: dict[int, LlvmValue]) -> None:
            self.values |= known
            self.loop(s, body, self.loop_note(group))

        if factors:
            ones = dict.fromkeys(factors, self.f.const(1, "i64"))
            dense = reduce(and_, [value.ne(0) for value in factors.values()])
            self.f.fork(dense, partial(write_loop, ones), partial(write_loop, factors))
        else:
            write_loop({})

    def index_dtype(self, number: int) -> DType:
        return self.dtypes[number]

    def branch_out(self, condition: LlvmValue, label: str) -> None:
        """Goes on at a label where the condition holds."""
        rest = f"on{self.f.fresh('')}"
        self.f.do(f"br i1 {condition}, label %{label}, label %{rest}")
        self.f.block(rest)

    def loop_note(self, group: int) -> int:
        part = self.note(f'!{{!"llvm.loop.parallel_accesses", !{group}}}')
        return self.note(f"distinct !{{SELF, !{part}}}")

    def loop(self, s: For | Fold, body: Callable[[LlvmValue], None], note: int | None = None) -> None:
        with self.f.loop(self.values[s.start], self.values[s.stop], note=note, flags="nsw") as i:
            body(i)

    def fold(self, s: Fold) -> None:
        f, row = self.f, COMBINERS[s.combine]
        wide = FLOAT64 if s.combine == "sum" and s.dtype == FLOAT32 else s.dtype  # rounded once
        elem = llvm_register_type(wide)
        total = f.slot(elem)
        total.store(f.const(row.identity(wide), elem))
        inner = _is_innermost_llvm_loop(s.body)

        def write_fold_step(i: LlvmValue) -> None:
            self.put(s.index, i, self.index_dtype(s.start))
            self.block(s.body)
            value = emit_llvm_cast(self.dtypes[s.value], wide, self.values[s.value])
            before = total.load(elem)
            if wide.kind == "f" and row.primitive in ("add", "mul"):
                total.store(before.binary(f"f{row.primitive} reassoc contract", value))
            else:
                total.store(emit_llvm_primitive(row.primitive, wide, wide, [before, value]))

        group = self.note("distinct !{}") if inner else 0
        if group:
            self.groups.append(group)
        vectors = inner and wide.kind == "f" and row.primitive in ("add", "mul")
        if vectors:
            self.loop_with_known_strides(s, write_fold_step, group)
        else:
            self.loop(s, write_fold_step)
        if group:
            self.groups.pop()
        self.put(s.number, emit_llvm_cast(wide, s.dtype, total.load(elem)), s.dtype)

    def run_if(self, s: If) -> None:
        self.f.fork(self.values[s.condition], lambda: self.block(s.then), lambda: self.block(s.otherwise))

    def run_while(self, s: While) -> None:
        f, number = self.f, self.f.fresh("")
        outside, self.groups = self.groups, []
        f.jump(f"test{number}")
        f.block(f"test{number}")
        self.block(s.test)
        f.do(f"br i1 {self.values[s.condition]}, label %turn{number}, label %done{number}")
        f.block(f"turn{number}")
        self.block(s.body)
        f.jump(f"test{number}")
        f.block(f"done{number}")
        self.groups = outside

    def stop(self, s: Stop) -> None:
        f, number = self.f, self.f.fresh("")
        f.do(f"br i1 {self.values[s.condition]}, label %fail{number}, label %on{number}{UNLIKELY}")
        f.block(f"fail{number}")
        for word, value in enumerate((f.const(s.number, "i64"), self.values[s.value])):
            self.pointers[-1].at(word, "i64").store(value)
        f.jump("finished")
        f.block(f"on{number}")


def _is_innermost_llvm_loop(block: Block) -> bool:
    return not any(blocks_in_routine_statement(s) for s in block)


WRITERS: dict[type[Statement], Callable[..., None]] = {
    Let: _LlvmRoutinePrinter.let,
    Store: _LlvmRoutinePrinter.store,
    Set: _LlvmRoutinePrinter.set,
    For: _LlvmRoutinePrinter.run_for,
    Fold: _LlvmRoutinePrinter.fold,
    If: _LlvmRoutinePrinter.run_if,
    While: _LlvmRoutinePrinter.run_while,
    Stop: _LlvmRoutinePrinter.stop,
}
