"""Kernel text for reductions: along rows (contiguous reduced axis) or over columns (contiguous parallel axis)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....runtime.core.frozen import replace
from ...core.types import SHORT_NAMES
from ...kernel.loop_nest import LOOP, LoopNest, Phase, Reduction
from .kernel_text import (
    SUM,
    BodyContext,
    CudaKernelText,
    LanePlace,
    cuda_reduction_identities,
    print_cuda_combine,
    print_cuda_lane_fold,
    print_cuda_masked_values,
    print_cuda_warp_butterfly,
)
from .launch_shape import CudaShape, cuda_operand_moves_along, cuda_reduction_part_dtypes, is_cuda_vector_access

CHUNK = 16  # additions in a row of a float32 sum before it is added to the next level


def print_cuda_row_reduction(nest: LoopNest, shape: CudaShape) -> str:
    """A row is the work of `bdim_x` threads. One block has `bdim_y` rows (more than one only within a warp), or a
    cluster of blocks has one. A block that adds up rows has `run` of them in turn."""
    text = CudaKernelText(nest, shape)
    text.prologue()
    axes = range(nest.parallel)
    text.add("threads = bdim_x()", "x = tid_x()")
    own, among = "bid_x() * bdim_y() + tid_y()", "x"
    if shape.cluster > 1:
        text.add("cluster_arrive()", f"part = urem(bid_x(), i32({shape.cluster}))")
        own, among = f"udiv(bid_x(), i32({shape.cluster}))", "among"
        text.add("among = part * threads + x")
    sums = [k for k, operand in enumerate(nest.operands) if operand.role == "sum"]
    if sums:
        text.add(*(f"sum{k} = repeat_{shape.lanes}({cuda_reduction_identities(SUM)[0]})" for k in sums), "turn = zero")
        text.add(f"while turn < {nest.run}:")
        text.depth += 1
        own = f"bid_x() * {nest.run} + turn"
    text.add(f"number = {own}", f"rows = i64({text.product(axes)})")
    text.set("row", "least(number, rows - 1)")
    text.add(f"length = m{nest.axes - 1} if number < rows else zero", f"first = {among} == 0 and number < rows")
    indices = text.split("row", axes, "p")
    for operand in range(len(nest.operands)):
        text.set(f"base{operand}", text.offset(operand, indices))
    text.set("step", f"threads * {shape.cluster * shape.length}")
    text.set("start", f"{among} * {shape.length}")
    outer = dict(indices)
    point = BodyContext(lambda operand: LanePlace(f"base{operand}"), lambda axis: f"i64({outer[axis]})", guard="first")
    if not shape.loop:
        text.known = {}
        text.add(f"mask = below_{shape.length}x{shape.groups}(start, step, one, length)")
        text.add(f"full = start + (step * {shape.groups - 1} + {shape.length - 1}) < length")
    arrived = "cluster_wait()"  # a block's memory is there once it runs
    for number, phase in enumerate(nest.phases):
        if phase.kind != LOOP:
            text.phase(phase, point, keep=True)
        else:
            finished = (_print_cuda_looped_row if shape.loop else _print_cuda_resident_row)(text, phase, number, outer)
            print_cuda_row_combination(text, number, phase, finished)
            if shape.cluster > 1 and phase.reductions:
                text.add(arrived)
                _print_cuda_cluster_combination(text, number, phase)
                arrived = "pass"
    if sums:
        text.add("barrier()")  # the next row's numbers take the place of this one's
        text.set("turn", "turn + 1")
        text.depth -= 1
        text.known, inner = None, nest.axes - 1
        text.add(f"mask = below_{shape.length}x{shape.groups}(start, step, one, m{inner})")
        context = _cuda_row_body_context(text, {}, "start", "at", "mask")
        for k in sums:
            text.set(f"at{k}", f"bid_x() * m{inner}")
            text.add(text.store(k, [f"sum{k}"], context))
    return text.print()


def _cuda_row_body_context(
    text: CudaKernelText, outer: dict[int, str], start: str, base: str, mask: str | None
) -> BodyContext:
    """The lanes from element `start` of a row, in operands that begin at `base` + operand number."""
    nest, shape, inner = text.nest, text.shape, text.nest.axes - 1

    def operand_place(operand: int) -> LanePlace:
        stride = text.stride(operand, inner)
        if stride == "zero":
            return LanePlace(f"{base}{operand}")
        first = f"{text.ix}({text.offset(operand, [(inner, start)], f'{base}{operand}')})"
        group = "zero" if shape.groups == 1 else "step" if stride == "one" else f"step * {stride}"
        return LanePlace(
            first,
            group,
            stride,
            shape.length,
            shape.groups,
            is_cuda_vector_access(nest, operand, inner) and shape.length > 1,
        )

    def axis_index(axis: int) -> str:
        if axis in outer:
            return f"i64({outer[axis]})"
        return f"lanes_{shape.length}x{shape.groups}({start}, step, one)"

    return BodyContext(operand_place, axis_index, mask, prefix="v")


def _print_cuda_resident_row(text: CudaKernelText, phase: Phase, number: int, outer: dict[int, str]) -> list[list[str]]:
    """The whole row at once; what an earlier phase loaded or computed is used again. What all rows share is near.

    Printed twice, for threads whose lanes all exist and for others; both give values the same names.
    """
    before, after = dict(text.known or {}), dict(text.known or {})
    finished: list[list[str]] = []
    nest = text.nest
    shared = [
        o
        for o in range(len(nest.operands))
        if not any(cuda_operand_moves_along(nest, o, axis) for axis in range(nest.parallel))
    ]
    for head, mask in (("if full:", None), ("else:", "mask")):
        text.known, finished = dict(before), []
        with text.block(head):
            context = _cuda_row_body_context(text, outer, "start", "base", mask)
            names = text.phase(phase, context, keep=False, late=shared)
            for r, reduction in enumerate(phase.reductions):
                values = cuda_masked_lane_values(
                    text, reduction, [names[v] for v in reduction.values], mask, f"r{number}_{r}"
                )
                values = print_cuda_lane_fold(text, reduction, values, text.shape.lanes)
                finished.append([f"t{number}_{r}_{part}" for part in range(len(values))])
                text.add(*(f"{name} = {value}" for name, value in zip(finished[-1], values, strict=True)))
            text.add("pass")
        after |= text.known
    text.known = after
    return finished


def cuda_masked_lane_values(
    text: CudaKernelText, reduction: Reduction, values: Sequence[str], mask: str | None, tag: str
) -> list[str]:
    """`print_cuda_masked_values`, with every lane there: a value that is the same all along the row has one."""
    if mask is not None or text.shape.lanes == 1:
        return print_cuda_masked_values(text, reduction, values, mask, tag)
    names = [f"{tag}_{part}" for part in range(len(values))]
    text.add(*(f"{n} = repeat_{text.shape.lanes}({v})" for n, v in zip(names, values, strict=True)))
    return names


def _print_cuda_looped_row(text: CudaKernelText, phase: Phase, number: int, outer: dict[int, str]) -> list[list[str]]:
    """Whole groups in a loop, then once under a mask. Lanes are accumulators, combined at the end."""
    nest, shape = text.nest, text.shape
    reduced = range(nest.parallel, nest.axes - 1)
    totals = print_cuda_initial_totals(text, phase, number, "r", shape.lanes)
    chunked = any(r.combine == "sum" and r.dtype == np.float32 for r in phase.reductions)
    base = "base"
    scope = dict(outer)
    if reduced:  # every index of the outer reduced axes in turn
        base = "at"
        text.add("turn = zero", f"turns = {text.product(reduced)}", "while turn < turns:")
        text.depth += 1
        scope |= dict(text.split("turn", reduced, "q"))
        for operand in range(len(nest.operands)):
            text.set(f"at{operand}", text.offset(operand, [(a, scope[a]) for a in reduced], f"base{operand}"))
    text.set("span", f"step * {shape.groups}")
    text.set("i", "start")
    text.set("whole", f"length - (step * {shape.groups - 1} + {shape.length - 1})")
    body = _cuda_row_body_context(text, scope, "i", base, None)
    if chunked:
        with text.block("while i < whole:"):
            parts = print_cuda_initial_totals(text, phase, number, "part", shape.lanes)
            text.set("stop", f"least(i64(whole), i + i64(span) * {CHUNK})")
            with text.block("while i < stop:"):
                _print_cuda_accumulation(text, phase, body, parts)
                text.set("i", "i + span")
            for reduction, total, part in zip(phase.reductions, totals, parts, strict=True):
                print_cuda_combine(text, reduction, total, total, part)
    else:
        with text.block("while i < whole:"):
            _print_cuda_accumulation(text, phase, body, totals)
            text.set("i", "i + span")
    with text.block("if i < length:"):
        text.add(f"mask = below_{shape.length}x{shape.groups}(i, step, one, length)")
        _print_cuda_accumulation(text, phase, replace(body, mask="mask", prefix="w"), totals)
    if reduced:
        text.set("turn", "turn + 1")
        text.depth -= 1
    return [
        print_cuda_lane_fold(text, r, names, shape.lanes) for r, names in zip(phase.reductions, totals, strict=True)
    ]


def print_cuda_initial_totals(text: CudaKernelText, phase: Phase, number: int, tag: str, lanes: int) -> list[list[str]]:
    """Accumulators that hold the identity."""
    result = []
    for r, reduction in enumerate(phase.reductions):
        names = [f"{tag}{number}_{r}_{part}" for part in range(len(cuda_reduction_identities(reduction)))]
        for name, identity in zip(names, cuda_reduction_identities(reduction), strict=True):
            text.add(f"{name} = {identity}" if lanes == 1 else f"{name} = repeat_{lanes}({identity})")
        result.append(names)
    return result


def _print_cuda_accumulation(
    text: CudaKernelText, phase: Phase, context: BodyContext, totals: Sequence[Sequence[str]], mask: bool = True
) -> None:
    """Print the body and combine its values into the accumulators."""
    names = text.phase(phase, context, keep=False)
    for r, (reduction, total) in enumerate(zip(phase.reductions, totals, strict=True)):
        values = [names[v] for v in reduction.values]
        values = print_cuda_masked_values(text, reduction, values, context.mask if mask else None, f"only{r}")
        print_cuda_combine(text, reduction, total, total, values)


def print_cuda_row_combination(
    text: CudaKernelText, number: int, phase: Phase, finished: Sequence[Sequence[str]]
) -> None:
    """Combine over the threads of a row: butterflies in the warp, then one number a warp through shared memory.

    Every thread gets the result; all get the same bits, since the combinations commute.
    """
    if not phase.reductions:
        return
    results = []
    for r, (reduction, names) in enumerate(zip(phase.reductions, finished, strict=True)):
        mine = [f"t{number}_{r}_{part}" for part in range(len(names))]
        text.add(*(f"{name} = {value}" for name, value in zip(mine, names, strict=True) if name != value))
        print_cuda_warp_butterfly(text, reduction, mine, "threads")
        results.append(mine)
    memories = []
    for r, reduction in enumerate(phase.reductions):
        memories.append([f"h{number}_{r}_{part}" for part in range(len(cuda_reduction_part_dtypes(reduction)))])
        for place, dtype in zip(memories[-1], cuda_reduction_part_dtypes(reduction), strict=True):
            text.add(f"{place} = shared_{SHORT_NAMES[dtype]}_32()")
    with text.block("if threads > 32:"):
        with text.block("if urem(x, i32(32)) == 0:"):
            for reduction, mine, memory in zip(phase.reductions, results, memories, strict=True):
                for name, place, dtype in zip(mine, memory, cuda_reduction_part_dtypes(reduction), strict=True):
                    text.add(f"sstore_{SHORT_NAMES[dtype]}_1({place}, udiv(x, i32(32)), {name})")
        text.add("barrier()", "warps = udiv(threads, i32(32))", "lane = urem(x, i32(32))")
        text.add("held = least(lane, warps - 1)")
        for reduction, mine, memory in zip(phase.reductions, results, memories, strict=True):
            for name, place, dtype, identity in zip(
                mine, memory, cuda_reduction_part_dtypes(reduction), cuda_reduction_identities(reduction), strict=True
            ):
                found = f"sload_{SHORT_NAMES[dtype]}_1({place}, held)"
                text.add(f"{name} = select(lane < warps, {found}, {identity})")
            print_cuda_warp_butterfly(text, reduction, mine, "i32(32)")
    for r, mine in enumerate(results):
        for part, name in enumerate(mine):
            text.results[number, r, part] = name


def _print_cuda_cluster_combination(text: CudaKernelText, number: int, phase: Phase) -> None:
    """Combine over the blocks of a row: each writes what it has into the shared memory of all, a number a thread, and
    then every thread of a warp's run has that of one block."""
    blocks = text.shape.cluster
    places = {}
    for r, reduction in enumerate(phase.reductions):
        for part, dtype in enumerate(cuda_reduction_part_dtypes(reduction)):
            places[r, part] = SHORT_NAMES[dtype], f"all{number}_{r}_{part}"
            text.add(f"all{number}_{r}_{part} = shared_{SHORT_NAMES[dtype]}_{blocks}()")
    with text.block(f"if x < {blocks}:"):
        for (r, part), (short, memory) in places.items():
            text.add(f"cstore_{short}({memory}, x, part, {text.results[number, r, part]})")
    text.add("cluster_barrier()", f"member = urem(x, i32({blocks}))")
    for r, reduction in enumerate(phase.reductions):
        mine = [text.results[number, r, part] for part in range(len(cuda_reduction_part_dtypes(reduction)))]
        for part, name in enumerate(mine):
            short, memory = places[r, part]
            text.add(f"{name} = sload_{short}_1({memory}, member)")
        print_cuda_warp_butterfly(text, reduction, mine, f"i32({blocks})")


def print_cuda_column_reduction(nest: LoopNest, shape: CudaShape) -> str:
    """A thread has `length` columns. The `bdim_y` threads of a column share its rows and combine in shared memory."""
    text = CudaKernelText(nest, shape)
    text.prologue()
    inner = nest.parallel - 1
    axes, reduced = range(inner), range(nest.parallel, nest.axes)
    text.add("x = tid_x()", "y = tid_y()", "ways = bdim_y()")
    text.set("span", f"bdim_x() * {shape.length}")
    text.pieces("across", f"m{inner}", "span")
    text.set("number", "bid_x()")
    text.set("i", f"urem(number, across) * span + x * {shape.length}")
    text.set("rest", "udiv(number, across)")
    text.set("total", text.product(reduced))
    text.add(f"mask = below_{shape.length}x1(i, zero, one, m{inner})")
    outer = dict(text.split("rest", axes, "p")) if axes else {}
    for operand in range(len(nest.operands)):
        text.set(f"base{operand}", text.offset(operand, [*outer.items(), (inner, "i")]))
        text.set(f"origin{operand}", text.offset(operand, list(outer.items())))
    point = _cuda_column_body_context(text, outer, {}, 1, "v")
    for number, phase in enumerate(nest.phases):
        if phase.kind != LOOP:
            text.phase(phase, replace(point, guard="y == 0"), keep=True)
            continue
        finished = _print_cuda_looped_column(text, phase, number, outer)
        _print_cuda_column_combination(text, number, phase, finished)
    return text.print()


def _cuda_column_body_context(
    text: CudaKernelText, outer: dict[int, str], rows: dict[int, str], groups: int, prefix: str
) -> BodyContext:
    """The lanes of `length` columns and, from reduced indices `rows`, `groups` rows that are `ways` apart."""
    nest, shape, inner = text.nest, text.shape, text.nest.parallel - 1

    def operand_place(operand: int) -> LanePlace:
        along = text.stride(operand, inner)
        row = text.stride(operand, nest.axes - 1) if rows else "zero"
        origin = "base" if along != "zero" else "origin"
        first = f"{text.ix}({text.offset(operand, list(rows.items()), f'{origin}{operand}')})"
        many = groups if row != "zero" else 1
        group = "zero" if many == 1 else "ways" if row == "one" else f"ways * {row}"
        if along == "zero":
            if many == 1:
                return LanePlace(first)
            return LanePlace(first, group, "zero", shape.length, many)
        vector = is_cuda_vector_access(nest, operand, inner) and shape.length > 1
        return LanePlace(first, group, along, shape.length, many, vector)

    def axis_index(axis: int) -> str:
        if axis in outer:
            return f"i64({outer[axis]})"
        if axis == inner:
            return f"lanes_{shape.length}x1(i, zero, one)"
        if groups == 1:
            return f"i64({rows[axis]})"
        return f"lanes_{shape.length}x{groups}({rows[axis]}, ways, zero)"

    return BodyContext(operand_place, axis_index, "mask", prefix=prefix)


def _print_cuda_looped_column(
    text: CudaKernelText, phase: Phase, number: int, outer: dict[int, str]
) -> list[list[str]]:
    """Rows `y`, `y + ways`, ...: `groups` at a time, then one at a time."""
    nest, shape = text.nest, text.shape
    reduced = range(nest.parallel, nest.axes)
    totals = print_cuda_initial_totals(text, phase, number, "r", shape.length)
    text.set("r", "y")
    if shape.groups > 1:
        many = print_cuda_initial_totals(text, phase, number, "many", shape.lanes)
        with text.block(f"while r + ways * {shape.groups - 1} < total:"):
            context = _cuda_column_body_context(text, outer, {reduced[0]: "r"}, shape.groups, "v")
            _print_cuda_accumulation(text, phase, context, many, mask=False)
            text.set("r", f"r + ways * {shape.groups}")
        for reduction, total, part in zip(phase.reductions, totals, many, strict=True):
            print_cuda_combine(
                text, reduction, total, total, print_cuda_lane_fold(text, reduction, part, shape.lanes, shape.length)
            )
    with text.block("while r < total:"):
        rows = dict(text.split("r", reduced, "q"))
        _print_cuda_accumulation(text, phase, _cuda_column_body_context(text, outer, rows, 1, "w"), totals, mask=False)
        text.set("r", "r + ways")
    return totals


def _print_cuda_column_combination(
    text: CudaKernelText, number: int, phase: Phase, totals: Sequence[Sequence[str]]
) -> None:
    """Combine the threads of each column in shared memory, halving their number; every thread gets the results."""
    length = text.shape.length
    results = []
    for r, (reduction, names) in enumerate(zip(phase.reductions, totals, strict=True)):
        dtypes = [SHORT_NAMES[d] for d in cuda_reduction_part_dtypes(reduction)]
        memories = [f"h{number}_{r}_{part}" for part in range(len(names))]
        for name, memory, dtype in zip(names, memories, dtypes, strict=True):
            text.add(f"{memory} = shared_{dtype}_{text.shape.threads * length}()")
            text.add(f"sstore_{dtype}_{length}({memory}, (y * bdim_x() + x) * {length}, {name})")
        text.add("barrier()", "half = ways // 2")
        with text.block("while half > 0:"):
            with text.block("if y < half:"):
                others = [
                    f"sload_{dtype}_{length}({memory}, ((y + half) * bdim_x() + x) * {length})"
                    for memory, dtype in zip(memories, dtypes, strict=True)
                ]
                print_cuda_combine(text, reduction, names, names, others)
                for name, memory, dtype in zip(names, memories, dtypes, strict=True):
                    text.add(f"sstore_{dtype}_{length}({memory}, (y * bdim_x() + x) * {length}, {name})")
            text.add("barrier()", "half = half // 2")
        for part, (memory, dtype) in enumerate(zip(memories, dtypes, strict=True)):
            text.results[number, r, part] = f"t{number}_{r}_{part}"
            text.add(f"t{number}_{r}_{part} = sload_{dtype}_{length}({memory}, x * {length})")
        results.append(names)
