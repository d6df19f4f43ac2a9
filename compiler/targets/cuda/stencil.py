"""Kernel text for stencils. Where operands are shifted views of one array, a warp reads what they share once.

A lane of a warp has `length` columns of `groups` rows. It reads those rows, and the rows that shifted operands have
beyond them, at the windows' corners; what lies in columns beyond comes from the next lanes of the warp. The last lanes
have none to ask: they only read, and the next warp computes their columns. A block that reduces has many such tiles,
one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from ...kernel.loop_nest import LOOP, LoopNest, Phase
from .kernel_text import (
    BodyContext,
    CudaKernelText,
    LanePlace,
    cuda_cell_type_name,
    print_cuda_combine,
    print_cuda_lane_fold,
)
from .launch_shape import (
    WARP,
    CudaShape,
    axes_of_stencil_lanes,
    count_idle_cuda_warp_lanes,
    is_cuda_vector_access,
    stencil_plane_of_row,
    stencil_row_of_thread,
)
from .reduce import CHUNK, cuda_masked_lane_values, print_cuda_initial_totals, print_cuda_row_combination
from .shifted_values import ShiftedValues

_ROWS_TOGETHER = {"div": 4, "sqrt": 4}  # of operations that do several lanes at once


def cuda_window_operands(nest: LoopNest) -> list[int]:
    return [k for window in nest.windows for k in window.operands]


def print_cuda_stencil_kernel(nest: LoopNest, shape: CudaShape) -> str:
    """Warps of a block lie side by side along the innermost axis (x), and along outer axes or further rows (y)."""
    text = CudaKernelText(nest, shape)
    text.prologue()
    inner, across = nest.parallel - 1, shape.across
    outer = [axis for axis in range(inner) if axis != across]
    columns = (WARP - count_idle_cuda_warp_lanes(nest, shape.length)) * shape.length  # of a warp
    text.set("lane", f"urem(tid_x(), {WARP})")
    for k in range(1, 1 + count_idle_cuda_warp_lanes(nest, shape.length)):
        text.set(f"next{k}", f"urem(lane + {k}, {WARP})")
    text.set("span", f"udiv(bdim_x(), {WARP}) * {columns}")
    text.pieces("wide", f"m{inner}", "span")
    text.set("number", "bid_x()")
    text.set("i", f"urem(number, wide) * span + udiv(tid_x(), {WARP}) * {columns}")
    text.set("j", f"i + lane * {shape.length}")
    beyond = min(window.span(inner) for window in nest.windows)
    exists, whole = f"i < m{inner}", f"i + {WARP * shape.length} <= m{inner} + {beyond}"
    if across >= 0:
        text.set("rest", "udiv(number, wide)")
        whole += f" and q + {shape.groups} <= m{across}"
    if outer:
        text.pieces("high", f"m{across}", str(shape.groups))
        text.set("q", f"urem(rest, high) * {shape.groups}")
        text.set("row", "udiv(rest, high) * bdim_y() + tid_y()")
        exists += f" and row < {text.product(outer)}"
    elif across >= 0:
        text.set("q", f"(rest * bdim_y() + tid_y()) * {shape.groups}")
        exists += f" and q < m{across}"
    with text.block(f"if {exists}:"):
        indices = text.split("row", outer, "p") if outer else []
        row = [(across, "q")] if across >= 0 else []
        for operand in range(len(nest.operands)):
            text.set(f"first{operand}", text.offset(operand, [*indices, *row, (inner, "j")]))
        with text.block(f"if {whole}:"):
            _print_cuda_stencil_tile(text, dict(indices), whole=True)
        with text.block("else:"):
            _print_cuda_stencil_tile(text, dict(indices), whole=False)
    return text.print()


def _print_cuda_stencil_tile(text: CudaKernelText, outer: dict[int, str], whole: bool) -> None:
    """A lane's rows and columns. whole: the windows hold all that the warp reads of them."""
    names = dict(text.names)
    context = _cuda_stencil_body_context(text, outer, whole, text.nest.phases)
    for phase in text.nest.phases:
        text.phase(phase, context, keep=True, late=cuda_window_operands(text.nest))
    text.names = names


def _cuda_stencil_body_context(
    text: CudaKernelText, outer: dict[int, str], whole: bool, phases: Sequence[Phase]
) -> BodyContext:
    """The lanes at row `q` and column `j`, in operands that begin at `first` + operand number."""
    nest, shape, inner = text.nest, text.shape, text.nest.axes - 1
    lanes, last = f"{shape.length}x{shape.groups}", WARP - count_idle_cuda_warp_lanes(nest, shape.length)
    exists = [] if last == WARP else [f"lane < {last}"]
    if not whole:
        exists.append(f"below_{lanes}(j, zero, one, m{inner})")
        exists += [f"below_{lanes}(q, one, zero, m{shape.across})"] if shape.across >= 0 else []
        for n, window in enumerate(nest.windows):
            text.add(f"there{n} = below_{shape.length}x1(j, zero, one, m{inner} + {window.span(inner)})")
    if exists:
        text.add(f"mask = {reduce('and_({}, {})'.format, exists)}")

    def operand_place(operand: int) -> LanePlace:
        row = text.stride(operand, shape.across) if shape.across >= 0 else "zero"
        column = text.stride(operand, inner)
        if row == column == "zero":
            return LanePlace(f"first{operand}")
        role, layout = nest.operands[operand].role, nest.operands[operand].layout
        vector = shape.length > 1 and (
            is_cuda_vector_access(nest, operand, inner) if role == "in" else layout[inner] == "1"
        )
        column = "i32(0)" if column == "zero" else column  # it moves, down the rows
        return LanePlace(f"first{operand}", row, column, shape.length, shape.groups, vector)

    def axis_index(axis: int) -> str:
        if axis == inner:
            return f"lanes_{lanes}(j, zero, one)"
        return f"lanes_{lanes}(q, one, zero)" if axis == shape.across else f"i64({outer[axis]})"

    rows = _CudaStencilRows(text, not whole, phases)
    context = BodyContext(
        operand_place, axis_index, "mask" if exists else None, shifted=rows.lanes, absent=rows.values.absent
    )
    rows.context = context
    return context


def print_cuda_stencil_reduction(nest: LoopNest, shape: CudaShape) -> str:
    """A block has all of one result. Its warps take tiles in turn, a thread adds up what its lanes give."""
    text = CudaKernelText(nest, shape)
    text.prologue()
    inner, across, length = nest.axes - 1, shape.across, shape.length
    columns = (WARP - count_idle_cuda_warp_lanes(nest, length)) * length  # of a tile
    rest = [axis for axis in axes_of_stencil_lanes(nest)[:-1] if axis != across]
    text.add("threads = bdim_x()", "x = tid_x()", "row = bid_x()", "first = x == 0")
    text.set("lane", f"urem(x, {WARP})")
    for k in range(1, 1 + count_idle_cuda_warp_lanes(nest, length)):
        text.set(f"next{k}", f"urem(lane + {k}, {WARP})")
    text.pieces("wide", f"m{inner}", str(columns))
    tiles = ["wide"]
    if across >= 0:
        tiles.append(text.pieces("high", f"m{across}", str(shape.groups)))
    text.set("tiles", " * ".join([*tiles, *(f"m{axis}" for axis in rest)]))
    text.set("ways", f"udiv(threads, {WARP})")
    parallel = dict(text.split("row", range(nest.parallel), "p"))
    for operand in range(len(nest.operands)):
        text.set(f"base{operand}", text.offset(operand, [*parallel.items()]))
    point = BodyContext(
        lambda operand: LanePlace(f"base{operand}"), lambda axis: f"i64({parallel[axis]})", guard="first"
    )
    for number, phase in enumerate(nest.phases):
        if phase.kind != LOOP:
            text.phase(phase, point, keep=True)
            continue
        totals = print_cuda_initial_totals(text, phase, number, "r", 1)
        text.set("tile", f"udiv(x, {WARP})")
        with text.block("while tile < tiles:"):
            parts = print_cuda_initial_totals(text, phase, number, "part", 1)
            text.set("stop", f"least(i64(tiles), tile + i64(ways) * {CHUNK})")
            with text.block("while tile < stop:"):
                _print_cuda_stencil_tile_of_reduction(text, phase, parts, parallel, rest, columns)
                text.set("tile", "tile + ways")
            for reduction, total, part in zip(phase.reductions, totals, parts, strict=True):
                print_cuda_combine(text, reduction, total, total, part)
        print_cuda_row_combination(text, number, phase, totals)
    return text.print()


def _print_cuda_stencil_tile_of_reduction(
    text: CudaKernelText,
    phase: Phase,
    totals: Sequence[Sequence[str]],
    parallel: dict[int, str],
    rest: Sequence[int],
    columns: int,
) -> None:
    """A tile of a warp: what its lanes give is combined into the thread's totals."""
    nest, shape, inner = text.nest, text.shape, text.nest.axes - 1
    text.set("i", f"urem(tile, wide) * {columns}")
    text.set("j", f"i + lane * {shape.length}")
    beyond = min(window.span(inner) for window in nest.windows)
    whole = f"i + {WARP * shape.length} <= m{inner} + {beyond}"
    indices = [*parallel.items()]
    if shape.across >= 0:
        text.set("left", "udiv(tile, wide)")
        text.set("q", f"urem(left, high) * {shape.groups}")
        whole += f" and q + {shape.groups} <= m{shape.across}"
        indices.append((shape.across, "q"))
    if rest:
        text.set("turn", "udiv(left, high)")
    outer = text.split("turn", rest, "r") if rest else []
    for operand in range(len(nest.operands)):
        text.set(
            f"first{operand}", text.offset(operand, [*outer, *indices[nest.parallel :], (inner, "j")], f"base{operand}")
        )
    for head, all_there in ((f"if {whole}:", True), ("else:", False)):
        with text.block(head):
            context = _cuda_stencil_body_context(text, parallel | dict(outer), all_there, [phase])
            names = text.phase(phase, context, keep=False, late=cuda_window_operands(nest))
            for r, (reduction, total) in enumerate(zip(phase.reductions, totals, strict=True)):
                values = [names[v] for v in reduction.values]
                values = cuda_masked_lane_values(text, reduction, values, context.mask, f"only{r}")
                folded = print_cuda_lane_fold(text, reduction, values, shape.lanes)
                print_cuda_combine(text, reduction, total, total, folded)


class _CudaStencilRows:
    """Reads windows and computes what several shifts share where they are first used, a plane at a time: the rows that
    differ along the axis of a thread's rows alone. Those of other planes fill no registers meanwhile."""

    def __init__(self, text: CudaKernelText, masked: bool, phases: Sequence[Phase]) -> None:
        self.text, self.masked = text, masked
        self.values = ShiftedValues(text.nest, text.shape, phases)
        self.context: BodyContext | None = None
        self.names: dict[int, str] = {}
        self.there: set[tuple[int, tuple[int, ...]]] = set()

    def lanes(self, value: int, names: dict[int, str]) -> str | None:
        """A value that lies in rows, from values of these names; None for any other."""
        self.names = names
        number, shift = self.values.of.get(value, (-1, ()))
        if number not in self.values.rows:
            return None
        shape = self.text.shape
        return self._window(number, [stencil_row_of_thread(shift, shape, g) for g in range(shape.groups)], shift[-1])

    def _window(self, number: int, rows: Sequence[tuple[int, ...]], columns: int) -> str:
        """A computation in these rows, so many columns beyond a lane's own."""
        for row in rows:
            self._make_plane(number, stencil_plane_of_row(row, self.text.shape))
        skip, first = divmod(columns, self.text.shape.length)
        parts = []
        for row in rows:
            name = self._name(number, row)
            parts += [f"{name}_by{k}" if k else name for k in range(skip, skip + 1 + (first > 0))]
        if len(parts) == 1:
            return parts[0]
        return f"window_{self.text.shape.length}x{len(rows)}_{first}({', '.join(parts)})"

    def _name(self, number: int, row: tuple[int, ...]) -> str:
        """What a row, at these steps along the outer axes, is called."""
        each = self.values.computations[number]
        head = f"{'wy'[each.instr.attr[1]]}{each.window}" if each.window >= 0 else f"t{number}"
        return "_".join([head, *map(str, row)])

    def _make_plane(self, number: int, plane: tuple[int, ...]) -> None:
        if (number, plane) in self.there:
            return
        self.there.add((number, plane))
        each = self.values.computations[number]
        mine = [row for row in self.values.rows[number] if stencil_plane_of_row(row, self.text.shape) == plane]
        if each.window >= 0:
            for row in mine:
                _print_cuda_stencil_row_load(
                    self.text, each.window, each.instr.attr[1], row, self._name(number, row), self.masked
                )
        else:
            self._compute(number, mine)
        for row in mine:
            _stencil_lane_load_name(self.text, self._name(number, row), self.values.rows[number][row])

    def _compute(self, number: int, rows: Sequence[tuple[int, ...]]) -> None:
        """Rows, some at once where that is faster, which are then taken apart."""
        each = self.values.computations[number]
        count = 1 << (min(len(rows), _ROWS_TOGETHER.get(each.instr.op, 1)).bit_length() - 1)
        some, rest = rows[:count], rows[count:]
        names = dict(self.names)
        for value, arg in zip(each.instr.args, each.args, strict=True):
            if arg is not None:
                beyond = arg[1]
                moved = [tuple(map(int.__add__, row, beyond[:-1])) for row in some]
                names[value] = self._window(arg[0], moved, beyond[-1])
        assert self.context is not None
        name = self._name(number, some[0]) + (f"_to_{count}" if count > 1 else "")
        self.text.add(f"{name} = {self.text.expression(each.instr, names, self.context)}")
        self._take_apart(number, name, some)
        if rest:
            self._compute(number, rest)

    def _take_apart(self, number: int, name: str, rows: Sequence[tuple[int, ...]]) -> None:
        half = len(rows) // 2
        if not half:
            return
        for verb, part in (("lo", rows[:half]), ("hi", rows[half:])):
            found = self._name(number, part[0]) + (f"_to_{half}" if half > 1 else "")
            self.text.add(f"{found} = {verb}({name})")
            self._take_apart(number, found, part)


def _print_cuda_stencil_row_load(
    text: CudaKernelText, n: int, part: int, row: tuple[int, ...], name: str, masked: bool
) -> None:
    """The lane's own columns, from the window's corner on."""
    shape, nest, window = text.shape, text.nest, text.nest.windows[n]
    operand, shift = window.operands[0], window.shifts[0]
    steps = [(axis, to - at) for axis, (to, at) in enumerate(zip((*row, 0), shift, strict=True)) if to != at]
    place = text.offset(operand, [(axis, str(step)) for axis, step in steps], f"first{operand}")
    vector = "v" if shape.length > 1 else ""
    cell = cuda_cell_type_name(nest.operands[operand].dtype, part)
    call = f"load{vector}_{cell}_{shape.length}x1{'_if' if masked else ''}"
    arguments = [f"a{operand}", f"{text.ix}({place})", "zero", *([] if vector else ["one"])]
    if masked and shape.across >= 0:
        last = f"q + {row[shape.across]} < m{shape.across} + {window.span(shape.across)}"
        arguments.append(f"and_(there{n}, {last})")
    elif masked:
        arguments.append(f"there{n}")
    text.add(f"{name} = {call}({', '.join(arguments)})")


def _stencil_lane_load_name(text: CudaKernelText, name: str, columns: int) -> None:
    """The elements up to `columns` beyond a lane's own, from the next lanes."""
    length = text.shape.length
    for k in range(1, 1 + -(-columns // length)):
        count = min(length, columns - (k - 1) * length)
        held = name
        if count < length:
            held = f"{name}_few{k}"
            text.add(f"{held} = window_{count}x1_0({name})")
        text.add(f"{name}_by{k} = shuffle_idx({held}, next{k})")
