"""A routine as Python text for numba.cuda: a block, or a cluster of them, whose threads share independent turns and
meet after each step.

What is not shared all threads compute alike, and one of them stores it; what a reduction gives each block computes for
itself. Blocks of a cluster run at the same time, and have a barrier in hardware. A barrier stands where a thread may
read what another one writes, or write what another one reads.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import partial

import numpy as np

from ....runtime.core.frozen import frozen
from ....runtime.program.program import Kernel
from ...core.combiners import COMBINERS
from ...core.cost import CLUSTER
from ...core.types import FLOAT32, FLOAT64, SHORT_NAMES, DType, real_dtype
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
    statements_in_routine_block,
)
from ...sequential.interchange import routine_with_loops_interchanged
from .kernel_text import IndentedLines, cuda_constant_text

INT32 = np.dtype(np.int32)
_NAME = "k_seq_"  # stands for the kernel's name in a text that decides it
WARP, MOST_THREADS = 32, 512
FEW_THREADS, MOST_BLOCKS = 64, 1024  # of a loop whose turns are all independent
SHARE = 4  # turns of a long loop for each thread; one where a turn sums
WIDE = 4096  # elements of a step by and large from which a cluster is faster than a block, whose barrier is cheaper
_KEYWORDS = {"and": "and_", "or": "or_", "not": "not_"}


@frozen
class RoutineShape:
    """The threads of a routine's kernel: blocks and threads of each, powers of two. together: the blocks are one
    cluster, whose threads can wait for each other; else there is one, or nobody has to wait."""

    blocks: int
    threads: int
    together: bool = False


def cuda_routine_and_shape(routine: Routine, clusters: bool) -> tuple[Routine, RoutineShape]:
    """The routine as its kernel runs it, and the shape of that. clusters: whether the GPU has clusters."""
    found = routine_with_loops_interchanged(routine)
    return found, _cuda_routine_shape(found, clusters, SHARE if found is routine else 1)


def _cuda_routine_shape(routine: Routine, clusters: bool, share: float) -> RoutineShape:
    if _is_one_parallel_cuda_step(routine):
        return RoutineShape(_power_of_two_threads(routine.width / FEW_THREADS, MOST_BLOCKS), FEW_THREADS)
    threads = WARP * _power_of_two_threads(routine.width / share / WARP, MOST_THREADS // WARP)
    together = clusters and routine.wide >= WIDE and routine.width > MOST_THREADS
    return RoutineShape(CLUSTER if together else 1, threads, together)


def _power_of_two_threads(x: float, most: int) -> int:
    """The least that is no less than x, or `most`."""
    found = 1
    while found < most and found < x:
        found *= 2
    return found


def _is_one_parallel_cuda_step(routine: Routine) -> bool:
    """Whether it is nothing but independent turns."""
    steps = [s for s in routine.body if not isinstance(s, (Let, Set))]
    loads = [s.instr.attr for s in routine.body if isinstance(s, Let) and s.instr.op == "load"]
    fixed = all(routine.arrays[array].role == "in" for array in loads)
    return len(steps) == 1 and isinstance(steps[0], For) and steps[0].parallel and fixed and not routine.checks


def cuda_kernel_of_routine(routine: Routine, shape: RoutineShape) -> Kernel:
    """The kernel of a routine, for this shape. It takes the arrays, and the numbers less one."""
    text = _CudaRoutinePrinter(routine, shape).text()
    name = f"k_seq_{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    signature = ("ptr",) * len(routine.arrays) + ("i64",) * routine.numbers
    options = (("fastmath", False), *((("cluster", shape.blocks),) if shape.together else ()))
    return Kernel(name, "cuda", text.replace(_NAME, name), signature, options, form=routine)


class _CudaRoutinePrinter(IndentedLines):
    def __init__(self, routine: Routine, shape: RoutineShape) -> None:
        super().__init__()
        self.routine, self.threads, self.blocks, self.together = routine, shape.threads, shape.blocks, shape.together
        self.dtypes: dict[int, DType] = {}
        self.shared = False  # whether the turns being written are shared among the threads
        self.read = self.wrote = False  # what has happened since the threads last met
        self.names = 0

    def text(self) -> str:
        routine = self.routine
        given = [f"a{i}" for i in range(len(routine.arrays))] + [f"n{i}" for i in range(routine.numbers)]
        self.add("zero = 0", "own = i64(tid_x())", f"many = i64({self.threads * self.blocks})")
        self.add("tid = own" if self.blocks == 1 else f"tid = i64(bid_x()) * i64({self.threads}) + own")
        for i in range(routine.numbers):
            self.add(f"n{i} = n{i} + 1")
        for i, dtype in enumerate(self.routine.variables):
            self.add(f"x{i} = {cuda_constant_text(dtype, dtype.type(0))}")
        for dtype in sorted(_cuda_shared_fold_dtypes(self.routine.body), key=str):
            self.add(f"s_{SHORT_NAMES[dtype]} = shared_{SHORT_NAMES[dtype]}_{self.threads // WARP}()")
        if self.routine.checks:
            self.error("i64(0)", "i64(0)")
            self.wrote = True
        self.statements(self.routine.body)
        head = f"THREADS = {self.threads}\ndef {_NAME}({', '.join(given)}):\n"
        return head + "\n".join([*self.lines, "    return", ""])

    def fresh(self, hint: str) -> str:
        self.names += 1
        return f"{hint}{self.names}"

    def statements(self, block: Block) -> None:
        for statement in block:
            WRITERS[type(statement)](self, statement)

    # threads

    @property
    def barrier(self) -> str:
        if self.together:
            return "cluster_barrier()"
        return "barrier()" if self.threads > WARP else "sync_warp()"

    def meet(self) -> None:
        """All threads wait for each other, if there is a reason."""
        if self.shared:  # what was read and written before still is, as far as the threads know
            return
        alone = self.blocks > 1 and not self.together  # nobody reads what another one writes
        if (self.read or self.wrote) and not alone:
            self.add(self.barrier)
        self.read = self.wrote = False

    def before(self, reads: bool, writes: bool) -> None:
        """To be called before something that reads or writes memory."""
        if not self.shared:
            if (reads and self.wrote) or (writes and (self.read or self.wrote)):
                self.meet()
            self.read |= reads
            self.wrote |= writes

    # statements

    def let(self, s: Let) -> None:
        instr = s.instr
        self.dtypes[s.number] = instr.dtype
        args = [f"v{a}" for a in instr.args]
        if instr.op == "const":
            text = cuda_constant_text(instr.dtype, np.frombuffer(instr.attr, instr.dtype)[0])
        elif instr.op == "load":
            self.before(True, False)
            text = f"load_{SHORT_NAMES[instr.dtype]}_1x1(a{instr.attr}, {args[0]}, zero, zero)"
        elif instr.op in ("get", "number"):
            text = f"{'x' if instr.op == 'get' else 'n'}{instr.attr}"
        elif instr.op in ("cast", "bitcast"):
            source = self.dtypes[instr.args[0]]
            verb = "from" if instr.op == "cast" else "bits"
            text = f"{SHORT_NAMES[instr.dtype]}_{verb}_{SHORT_NAMES[source]}({args[0]})"
            text = args[0] if source == instr.dtype else text
        else:
            text = f"{_KEYWORDS.get(instr.op, instr.op)}({', '.join(args)})"
        self.add(f"v{s.number} = {text}")

    def store(self, s: Store) -> None:
        dtype = real_dtype(self.routine.arrays[s.array].dtype)
        self.before(False, True)
        line = f"store_{SHORT_NAMES[dtype]}_1x1(a{s.array}, v{s.place}, zero, zero, v{s.value})"
        if self.shared:
            self.add(line)
        else:
            with self.block("if tid == 0:"):
                self.add(line)

    def set(self, s: Set) -> None:
        self.add(f"x{s.variable} = v{s.value}")

    def run_for(self, s: For) -> None:
        self.dtypes[s.index] = np.dtype(np.int64)
        if s.parallel and not self.shared:
            self.before(*_cuda_routine_block_accesses(s.body))
            self.shared = True
            if _is_cuda_nest_of_parallel_loops(s):
                self.run_nest(s)
            else:
                self.loop(s, f"v{s.start} + tid", "many", lambda: self.statements(s.body))
            self.shared = False
            return

        def print_loop_iteration() -> None:
            self.statements(s.body)
            self.meet()
            if s.until is not None:
                with self.block(f"if v{s.until}:"):
                    self.add("break")

        self.meet()
        self.loop(s, f"v{s.start}", "i64(1)", print_loop_iteration)

    def run_nest(self, s: For) -> None:
        """Independent turns in which others are: each outermost one is for a power of two of threads that lie side by
        side, as many as there are for each, and these share its innermost turns."""
        bits, count = self.fresh("h"), f"(v{s.stop} - v{s.start})"
        self.add(f"{bits} = i64(5)")
        with self.block(f"while (many >> ({bits} + 1)) >= {count} and (many >> ({bits} + 1)) > 0:"):
            self.add(f"{bits} = {bits} + 1")

        def print_nest_iteration(block: Block) -> None:
            for statement in block:
                if not isinstance(statement, For):
                    WRITERS[type(statement)](self, statement)
                    continue
                self.dtypes[statement.index] = np.dtype(np.int64)
                if _is_cuda_nest_of_parallel_loops(statement):
                    self.loop(statement, f"v{statement.start}", "i64(1)", partial(print_nest_iteration, statement.body))
                else:
                    start, step = f"v{statement.start} + (tid & ((i64(1) << {bits}) - 1))", f"i64(1) << {bits}"
                    self.loop(statement, start, step, lambda b=statement.body: self.statements(b))  # type: ignore[misc]

        self.loop(s, f"v{s.start} + (tid >> {bits})", f"many >> {bits}", lambda: print_nest_iteration(s.body))

    def loop(self, s: For | Fold, start: str, step: str, body: Callable[[], None]) -> None:
        index = self.fresh("at")
        self.add(f"{index} = {start}")
        with self.block(f"while {index} < v{s.stop}:"):
            self.add(f"v{s.index} = {index}", f"{index} = {index} + ({step})")
            body()

    def fold(self, s: Fold) -> None:
        wide = _cuda_fold_dtype(s)
        self.dtypes[s.index] = np.dtype(np.int64)
        joins = _cuda_fold_join_names(s)
        total, identity = self.fresh("t"), cuda_constant_text(wide, _cuda_fold_identity_text(s, wide))
        mine = not self.shared
        if mine:
            reads, _ = _cuda_routine_block_accesses(s.body)
            self.before(reads, False)
            self.shared = True
        self.add(f"{total} = {identity}")

        def print_fold_step() -> None:
            self.statements(s.body)
            value = self.cast(f"v{s.value}", self.dtypes[s.value], wide)
            self.add(f"{total} = {joins}({total}, {value})")

        self.loop(
            s,
            f"v{s.start} + own" if mine else f"v{s.start}",
            f"i64({self.threads})" if mine else "i64(1)",
            print_fold_step,
        )
        if mine:
            self.shared = False
            self.add_parts(total, joins, wide, identity)
        self.dtypes[s.number] = s.dtype
        self.add(f"v{s.number} = {self.cast(total, wide, s.dtype)}")

    def add_parts(self, total: str, joins: str, dtype: DType, identity: str) -> None:
        """Each thread's part becomes the whole in all of them."""
        self.add(f"{total} = warp_{joins}({total}, 32)")
        if self.threads == WARP:
            return
        short, warps = SHORT_NAMES[dtype], self.threads // WARP
        self.add("barrier()")  # nobody reads an earlier one any more
        with self.block("if (own & 31) == 0:"):
            self.add(f"sput_{short}_1x1(s_{short}, own >> 5, zero, zero, {total})")
        self.add("barrier()", f"{total} = {identity}")
        for warp in range(warps):
            self.add(f"{total} = {joins}({total}, sget_{short}_1x1(s_{short}, {warp}, zero, zero))")
        if self.blocks == 1:
            self.read = self.wrote = False

    def cast(self, text: str, source: DType, target: DType) -> str:
        return text if source == target else f"{SHORT_NAMES[target]}_from_{SHORT_NAMES[source]}({text})"

    def run_if(self, s: If) -> None:
        before = self.read, self.wrote
        after = [False, False]
        for head, block in ((f"if v{s.condition}:", s.then), ("else:", s.otherwise)):
            self.read, self.wrote = before
            with self.block(head):
                self.statements(block)
                self.add("pass")
            after = [after[0] or self.read, after[1] or self.wrote]
        self.read, self.wrote = after

    def run_while(self, s: While) -> None:
        self.meet()
        with self.block("while True:"):
            self.statements(s.test)
            tested = self.read, self.wrote
            with self.block(f"if not v{s.condition}:"):
                self.add("break")
            self.statements(s.body)
            self.meet()
        self.read, self.wrote = tested

    def stop(self, s: Stop) -> None:
        with self.block(f"if v{s.condition}:"):
            self.error(f"i64({s.number})", f"v{s.value}")
            self.add("return")

    def error(self, number: str, value: str) -> None:
        words = len(self.routine.arrays) - 1
        with self.block("if tid == 0:"):
            for word, text in enumerate((number, value)):
                self.add(f"store_i64_1x1(a{words}, {word}, zero, zero, {text})")


def _cuda_fold_dtype(s: Fold) -> DType:
    """What a fold is computed in: sums of float32 are rounded once, truth values are numbers."""
    if s.dtype.kind == "b":
        return INT32
    return FLOAT64 if s.combine == "sum" and s.dtype == FLOAT32 else s.dtype


def _cuda_fold_join_names(s: Fold) -> str:
    if s.dtype.kind == "b":
        return "maximum" if COMBINERS[s.combine].primitive in ("or", "maximum") else "minimum"
    primitive = COMBINERS[s.combine].primitive
    return _KEYWORDS.get(primitive, primitive)


def _cuda_fold_identity_text(s: Fold, wide: DType) -> np.generic:
    row = COMBINERS[s.combine]
    found: np.generic = wide.type(row.identity(s.dtype if s.dtype.kind == "b" else wide))
    return found


def _cuda_routine_block_accesses(block: Block) -> tuple[bool, bool]:
    """Whether it reads and whether it writes memory."""
    return bool(_arrays_in_cuda_routine_block(block, Let)), bool(_arrays_in_cuda_routine_block(block, Store))


def _arrays_in_cuda_routine_block(block: Block, kind: type[Let] | type[Store]) -> set[int]:
    """The arrays that it reads, or those that it writes."""
    if kind is Store:
        return {s.array for s in statements_in_routine_block(block) if isinstance(s, Store)}
    lets = (s for s in statements_in_routine_block(block) if isinstance(s, Let))
    return {s.instr.attr for s in lets if s.instr.op == "load"}


def _is_cuda_nest_of_parallel_loops(s: For) -> bool:
    """Whether it is independent turns of nothing but values and independent turns, of which none writes what another
    statement of the turn touches: the threads of a turn do not wait for each other."""
    inner = [x for x in s.body if isinstance(x, For)]
    if not (s.parallel and inner and all(isinstance(x, Let) or (isinstance(x, For) and x.parallel) for x in s.body)):
        return False
    others = [(x, tuple(y for y in s.body if y is not x)) for x in inner]
    return not any(
        _arrays_in_cuda_routine_block((x,), Store)
        & (_arrays_in_cuda_routine_block(rest, Let) | _arrays_in_cuda_routine_block(rest, Store))
        for x, rest in others
    )


def _cuda_shared_fold_dtypes(block: Block) -> set[DType]:
    """What the folds that threads share are computed in."""
    return {_cuda_fold_dtype(s) for s in statements_in_routine_block(block) if isinstance(s, Fold)}


WRITERS: dict[type[Statement], Callable[..., None]] = {
    Let: _CudaRoutinePrinter.let,
    Store: _CudaRoutinePrinter.store,
    Set: _CudaRoutinePrinter.set,
    For: _CudaRoutinePrinter.run_for,
    Fold: _CudaRoutinePrinter.fold,
    If: _CudaRoutinePrinter.run_if,
    While: _CudaRoutinePrinter.run_while,
    Stop: _CudaRoutinePrinter.stop,
}
