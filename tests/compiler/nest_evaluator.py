"""What a kernel's loop nest means: its phases run with NumPy, which every target's code is compared with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from kernelgraph.compiler.core.types import INT64
from kernelgraph.compiler.kernel.loop_nest import EFFECTS, LOOP, Instr, Phase, Reduction
from kernelgraph.compiler.kernel.primitives import PRIMITIVES, Array
from kernelgraph.runtime.program.user_function import apply_user_function_over_arrays

Load: TypeAlias = Callable[[int, int], Array]
Store: TypeAlias = Callable[[int, int, Array], None]
Gather: TypeAlias = Callable[[int, int, Array], Array]


def evaluate_phases_of_loop_nest(
    phases: Sequence[Phase],
    shape: Sequence[int],
    parallel: int,
    load: Load,
    store: Store,
    scalars: Sequence[Any] = (),
    gather: Gather | None = None,
) -> None:
    """Runs a kernel's phases with NumPy, all points of `shape` at once. Parallel axes come first, then reduced ones.

    load(operand, part) gives an array that broadcasts against shape; store(operand, part, value) takes one of the
    shape's rank, whose reduced axes have length 1 where it was stored in a POINT phase. gather(operand, part, i) gives
    the elements i beyond those that load would.
    """
    reduced = tuple(range(parallel, len(shape)))
    values: dict[int, Array] = {}
    results: dict[tuple[int, int, int], Array] = {}
    sources: dict[str, Callable[[Instr], Array]] = {
        "const": lambda i: np.frombuffer(i.attr, i.dtype),
        "load": lambda i: np.asarray(load(*i.attr)),
        "scalar": lambda i: np.full(1, scalars[i.attr], i.dtype),
        "index": lambda i: np.arange(shape[i.attr]).reshape([-1 if a == i.attr else 1 for a in range(len(shape))]),
        "size": lambda i: np.full(1, shape[i.attr], INT64),
        "result": lambda i: results[i.attr],
        "gather": lambda i: gather(*i.attr[:2], np.broadcast_to(values[i.args[0]], points)),  # type: ignore[misc, call-arg]
    }

    def run_primitive(i: Instr) -> Array:
        run = partial(_evaluate_user_function_primitive, i) if i.op == "call" else PRIMITIVES[i.op].numpy
        with np.errstate(all="ignore"):
            return np.asarray(run(*[values[a] for a in i.args], i.dtype))

    for number, phase in enumerate(phases):
        points = tuple(n if phase.kind == LOOP or a < parallel else 1 for a, n in enumerate(shape))
        for at, instr in enumerate(phase.instrs, phase.first):
            if instr.op == "store":
                operand, half = instr.attr
                store(operand, half, np.broadcast_to(values[instr.args[0]], points))
            elif instr.op == "report":
                value, bad = (np.broadcast_to(values[a], points) for a in instr.args)
                if bad.any():
                    store(instr.attr[0], 0, value[bad][:1].reshape((1,) * len(points)))
            else:
                values[at] = np.atleast_1d(sources.get(instr.op, run_primitive)(instr))
            if instr.op not in EFFECTS and values[at].dtype != instr.dtype:
                raise TypeError(f"v{at} is {values[at].dtype}, not {instr.dtype}: {instr}")
        for r, reduction in enumerate(phase.reductions):
            parts = [np.broadcast_to(values[v], points) for v in reduction.values]
            for part, value in enumerate(_evaluate_kernel_reduction(reduction, parts, reduced)):
                results[number, r, part] = value


def sums_of_runs(value: Array, parallel: int, run: int) -> Array:
    """What an operand of role `sum` holds: values added up over so many parallel points at a time."""
    rows = value.reshape(-1, *value.shape[parallel:]).reshape(-1, value.shape[-1])
    return np.add.reduceat(rows, range(0, len(rows), run), axis=0)


def _evaluate_user_function_primitive(instr: Instr, *args: Any) -> Array:
    """A result of a user's scalar function; a complex value comes, and goes, as two."""
    function, wanted = instr.attr
    given, rest = [], list(args[:-1])
    for dtype in map(np.dtype, function.arguments):
        re = rest.pop(0)
        given.append(re + 1j * rest.pop(0) if dtype.kind == "c" else re)
    given += rest  # whether it is called
    halves = [
        (k, half) for k, r in enumerate(function.results) for half in (("real", "imag") if r[0] == "c" else ("",))
    ]
    part, half = halves[wanted]
    result = apply_user_function_over_arrays(function, part, *given)
    return np.asarray(getattr(result, half)) if half else result


def _evaluate_kernel_reduction(
    reduction: Reduction, parts: Sequence[Array], axes: tuple[int, ...]
) -> tuple[Array, ...]:
    row, dtype = reduction.combiner, reduction.dtype
    if row.carries_index:
        return _evaluate_kernel_arg_reduction(parts[0], parts[1], axes, row.ufunc)
    empty = {"initial": row.identity(dtype)} if 0 in (parts[0].shape[a] for a in axes) else {}
    return (row.ufunc.reduce(parts[0], axis=axes, keepdims=True, dtype=dtype, **empty),)


def _evaluate_kernel_arg_reduction(
    value: Array, index: Array, axes: tuple[int, ...], join: np.ufunc
) -> tuple[Array, Array]:
    """The least (greatest) value and the least index that has it; NaN comes before every number."""
    best = join.reduce(value, axis=axes, keepdims=True)
    hit = (value == best) | ((value != value) & (best != best))
    last = np.iinfo(np.int64).max
    return best, np.min(np.where(hit, index, last), axis=axes, keepdims=True)
