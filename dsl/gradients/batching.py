"""`kg.vmap`, `jacobian`, `hessian` and `hvp`: functions of many rows at once, and derivatives in all directions."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...compiler.core.types import ArrayType
from ...compiler.derive.batch import batch_graph_over_rows
from ...compiler.derive.core.call import ReverseOptions
from ...compiler.derive.derive import derive_forward, derive_reverse
from ...compiler.graph.graph import Graph, Value
from ..core.errors import ArgumentsError, DTypeError
from ..core.pytree import unflatten
from ..jit.kernel_graph import KernelGraph
from ..trace.operands import new_traced_result
from ..trace.trace import Trace
from .derived import derived_kernel_graph
from .gradients import grad, is_differentiable_dtype, jvp
from .options import Chosen, Place, choose_differentiated_arguments, reverse_options, tracing_for_reverse_mode
from .region import DifferentiatedRegion, RegionOutput, trace_in_progress, trace_region
from .rows import stacked_results_of_rows

if TYPE_CHECKING:
    from ..jit.kernel_graph import P, R

_NO_AXIS: Any = ...  # of an argument for which none is written
Axes = int | None | Sequence[int | None]


def vmap(function: Callable[P, R], in_axes: Axes = 0, out_axes: int = 0) -> KernelGraph[P, R]:
    """The function for each row of its arguments at once: `vmap(f)(x)[i]` is `f(x[i])`.

    What the function computes of shared arguments alone is computed once.

    Parameters
    ----------
    function : callable
        A NumPy function.
    in_axes : int, default 0
        The axis of each argument, or of all; None for an argument that all rows share, as they share what a call leaves
        out and what can be given by name alone.
    out_axes : int, default 0
        Where the results have theirs.

    Returns
    -------
    callable

    Raises
    ------
    ArgumentsError

    Examples
    --------
    >>> kg.vmap(lambda a, b: (a * b).sum(), in_axes=(0, None))(np.eye(2), np.array([3.0, 4.0])).tolist()
    [3.0, 4.0]
    """
    if not isinstance(out_axes, (int, np.integer)):
        raise ArgumentsError(f"out_axes={out_axes!r} of vmap: write a number")
    wanted: Any = tuple(in_axes) if isinstance(in_axes, (tuple, list)) else in_axes
    for axis in wanted if isinstance(wanted, tuple) else (wanted,):
        if axis is not None and not isinstance(axis, (int, np.integer)):
            raise ArgumentsError(f"in_axes={in_axes!r} of vmap: write a number or None, or a tuple of them")

    def vmap_over_mapped_axis(function: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        axes = _axes_by_place(wanted, [*range(len(args)), *_names_of_parameters(function)[len(args) :]], options)
        region = trace_region("vmap", function, args, options, list(axes), axes=axes)
        sizes = {v.shape[0] for v in region.values}
        if len(sizes) != 1:
            lengths = ", ".join(str(v.shape[0]) for v in region.values) or "none"
            raise ArgumentsError(f"vmap needs axes of one length, got {lengths}; write in_axes=None for the others")
        flags = [True] * len(region.values) + [False] * len(region.outer)
        graph = batch_graph_over_rows(region.graph, flags, sizes.pop())
        trace = trace_in_progress("vmap")
        outputs = [_with_vmap_axis_moved(trace, v, int(out_axes)) for v in region.inlined(trace, graph)]
        return region.result(outputs)

    def run_rows_in_numpy(function: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        axes = _axes_by_place(wanted, [*range(len(args)), *_names_of_parameters(function)[len(args) :]], options)
        return stacked_results_of_rows(function, args, options, axes, int(out_axes))

    key = wanted, int(out_axes)
    return derived_kernel_graph(
        "vmap", function, vmap_over_mapped_axis, key, defaults=False, in_numpy=run_rows_in_numpy
    )


def _axes_by_place(in_axes: Any, places: list[Place], options: Mapping[str, Any]) -> dict[Place, int]:
    """The axes of the arguments that a call gives and that have one. Raises ArgumentsError."""
    every = in_axes if isinstance(in_axes, tuple) else (in_axes,) * len(places)
    padded = zip(places, (*every, *[_NO_AXIS] * len(places)), strict=False)
    given = {place: axis for place, axis in padded if type(place) is int or place in options}
    missing = [a for place, a in zip(places, every, strict=False) if place not in given and a is not None]
    if len(every) > len(places) or _NO_AXIS in given.values() or (missing and every is in_axes):
        raise ArgumentsError(f"vmap has {len(every)} in_axes for {len(given)} arguments; write one for each")
    return {place: int(axis) for place, axis in given.items() if axis is not None}


def _names_of_parameters(function: Any) -> list[str]:
    """Of those that can be given by position and by name."""
    try:
        every = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # NumPy's own functions have none
        return []
    return [p.name for p in every if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]


def _with_vmap_axis_moved(trace: Trace, value: Value, axis: int) -> Value:
    """The value with its first axis at another place."""
    rank = len(value.shape)
    if not -rank <= axis < rank:
        raise ArgumentsError(f"out_axes={axis} of vmap: a result has shape {value.shape}")
    order = list(range(1, rank))
    order.insert(axis % rank, 0)
    return trace.builder.permute(value, order)


MODES = ("auto", "forward", "reverse")


def jacobian(
    function: Callable[P, Any],
    argnums: Chosen = 0,
    mode: str = "auto",
    *,
    argnames: str | Sequence[str] = (),
    has_aux: bool = False,
    holomorphic: bool = False,
    save: int | str = "1 GB",
    ieee: bool = False,
) -> KernelGraph[P, Any]:
    """All partial derivatives of a function's results.

    For each result, and in it for each leaf of the argument, there is an array of the result's shape followed by the
    leaf's. Several arguments give a tuple in the place of each result, or a
    dict. Unless `holomorphic`, arguments and results are real, but for results of forward mode.

    Parameters
    ----------
    function : callable
        A NumPy function.
    argnums : int or Sequence[int], default 0
        The numbers of arguments to differentiate by, see `kg.grad`.
    mode : str, default 'auto'
        `reverse`, a pull for each number of the results; `forward`, a push for each number of the arguments; `auto`,
        whichever are fewer. All of them are done at once.
    argnames : str or Sequence[str], default ()
        The names of arguments to differentiate by, see `kg.grad`.
    has_aux : bool, default False
        Whether the function returns a pair, of which the second part is only handed on, see `kg.grad`.
    holomorphic : bool, default False
        Whether it is a complex derivative, see `kg.grad`.
    save : int or str, default '1 GB'
        What the backward pass keeps rather than computes again, see `kg.grad`.
    ieee : bool, default False
        Whether NaN and infinities follow IEEE 754 through zeros, see `kg.grad`.

    Returns
    -------
    callable

    Raises
    ------
    ArgumentsError
    DTypeError
    UnsupportedError

    Examples
    --------
    >>> kg.jacobian(lambda x: x**2)(np.array([1.0, 2.0])).tolist()
    [[2.0, 0.0], [0.0, 4.0]]
    """
    if mode not in MODES:
        raise ArgumentsError(f"mode={mode!r} of jacobian: write one of {', '.join(map(repr, MODES))}")
    chosen = choose_differentiated_arguments("jacobian", argnums, argnames)
    reverse = reverse_options("jacobian", save, ieee)

    def differentiate_jacobian(function: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        with tracing_for_reverse_mode(reverse):
            region = trace_region("jacobian", function, args, options, chosen.places(function, args, options))
        tree, leaves = region.result_and_aux("jacobian") if has_aux else (region.tree, region.leaves)
        outputs = [x.number for x in leaves if type(x) is RegionOutput]
        types = [region.graph.nodes[region.graph.outputs[i]].type for i in outputs]
        if len(outputs) != len(leaves) or not all(is_differentiable_dtype(t.dtype) for t in types):
            raise DTypeError("jacobian is of functions that return floats alone; return those")
        _check_complex_jacobian([v.dtype for v in region.values], [t.dtype for t in types], holomorphic, mode)
        blocks = (
            _jacobian_by_tangents(region, outputs)
            if _is_forward_mode_better(mode, region, types, holomorphic)
            else _jacobian_by_cotangents(region, outputs, reverse, holomorphic)
        )
        rows = [chosen.joined(region.like_arguments([new_traced_result(v) for v in row])) for row in blocks]
        found = unflatten(tree, rows)
        if not has_aux:
            return found
        return found, region.result(region.inlined(trace_in_progress("jacobian"), region.graph))[1]

    return derived_kernel_graph(
        "jacobian", function, differentiate_jacobian, (chosen, mode, has_aux, holomorphic, reverse)
    )


def _is_forward_mode_better(
    mode: str, region: DifferentiatedRegion, types: Sequence[ArrayType], holomorphic: bool
) -> bool:
    """Whether derivatives go forward: where that is asked for, or nothing is and it is less, or all that there is."""
    inside, outside = sum(v.type.size for v in region.values), sum(t.size for t in types)
    only = any(t.dtype.kind == "c" for t in types) and not holomorphic
    return mode == "forward" or (mode == "auto" and (only or inside < outside))


def _check_complex_jacobian(given: Sequence[Any], results: Sequence[Any], holomorphic: bool, mode: str) -> None:
    """Raises DTypeError for a Jacobian of complex numbers that is none."""
    if holomorphic:
        if any(d.kind != "c" for d in (*given, *results)):
            raise DTypeError("jacobian with holomorphic=True is of complex arguments and results; leave it out")
    elif any(d.kind == "c" for d in given):
        raise DTypeError("jacobian is in real numbers; take .real and .imag, or pass holomorphic=True")
    elif mode == "reverse" and any(d.kind == "c" for d in results):
        raise DTypeError("jacobian in reverse mode is of real results; write mode='forward', or take .real and .imag")


def _jacobian_by_cotangents(
    region: DifferentiatedRegion, outputs: Sequence[int], options: ReverseOptions, holomorphic: bool
) -> list[list[Value]]:
    """For each output its derivatives in each value: cotangents of 1 at each of its elements."""
    trace = trace_in_progress("jacobian")
    found = []
    for output in outputs:
        graph = derive_reverse(region.graph, range(len(region.values)), [output], options)
        type = region.graph.nodes[region.graph.outputs[output]].type
        made = _derivatives_in_all_directions(trace, region, graph, [type])
        made = [trace.builder.map("conjugate", v) for v in made] if holomorphic else made
        found.append([trace.builder.reshape(v, (*type.shape, *v.shape[1:])) for v in made])
    return found


def _jacobian_by_tangents(region: DifferentiatedRegion, outputs: Sequence[int]) -> list[list[Value]]:
    """For each output its derivatives in each value: tangents of 1 at each of the value's elements."""
    trace = trace_in_progress("jacobian")
    columns = []
    for i, value in enumerate(region.values):
        made = _derivatives_in_all_directions(trace, region, derive_forward(region.graph, [i], outputs), [value.type])
        turned = [trace.builder.permute(v, (*range(1, len(v.shape)), 0)) for v in made]
        columns.append([trace.builder.reshape(v, (*v.shape[:-1], *value.shape)) for v in turned])
    return [list(row) for row in zip(*columns, strict=True)]


def _derivatives_in_all_directions(
    trace: Trace, region: DifferentiatedRegion, graph: Graph, types: Sequence[Any]
) -> list[Value]:
    """The derived outputs for each unit direction of one more input, in rows."""
    (type,) = types
    size, builder = math.prod(type.shape), trace.builder
    flags = [False] * (len(graph.inputs) - 1) + [True]
    batched = batch_graph_over_rows(graph, flags, size)
    rows, columns = (builder.index((size, size), axis) for axis in (0, 1))
    unit = builder.reshape(builder.cast(builder.map("equal", rows, columns), type.dtype), (size, *type.shape))
    return region.inlined(trace, batched, [unit])[len(region.graph.outputs) :]


def hessian(
    function: Callable[P, Any],
    argnums: Chosen = 0,
    *,
    argnames: str | Sequence[str] = (),
    has_aux: bool = False,
    holomorphic: bool = False,
    save: int | str = "1 GB",
    ieee: bool = False,
) -> KernelGraph[P, Any]:
    """The second derivatives of a function that returns one number: forward mode over reverse mode.

    The options are those of `kg.grad`. In several arguments `found[i][j]` are those in arguments i and j.

    Parameters
    ----------
    function : callable
        A NumPy function.
    argnums : int or Sequence[int], default 0
        The numbers of arguments to differentiate by, see `kg.grad`.
    argnames : str or Sequence[str], default ()
        The names of arguments to differentiate by, see `kg.grad`.
    has_aux : bool, default False
        Whether the function returns a pair, of which the second part is only handed on, see `kg.grad`.
    holomorphic : bool, default False
        Whether it is a complex derivative, see `kg.grad`.
    save : int or str, default '1 GB'
        What the backward pass keeps rather than computes again, see `kg.grad`.
    ieee : bool, default False
        Whether NaN and infinities follow IEEE 754 through zeros, see `kg.grad`.

    Returns
    -------
    callable

    Raises
    ------
    ArgumentsError
    DTypeError
    ShapeError
    UnsupportedError

    Examples
    --------
    >>> kg.hessian(lambda x: (x**3).sum())(np.array([1.0, 2.0])).tolist()
    [[6.0, 0.0], [0.0, 12.0]]
    """
    first = grad(function, argnums, argnames, has_aux=has_aux, holomorphic=holomorphic, save=save, ieee=ieee)
    return jacobian(
        first, argnums, "forward", argnames=argnames, has_aux=has_aux, holomorphic=holomorphic, save=save, ieee=ieee
    )


def hvp(
    function: Callable[..., Any],
    args: Sequence[Any],
    tangents: Sequence[Any],
    *,
    has_aux: bool = False,
    save: int | str = "1 GB",
    ieee: bool = False,
) -> Any:
    """The Hessian of a function that returns one number, times tangents of its arguments.

    The result is a tuple with one product for each argument. No Hessian is made (Pearlmutter, 1994).

    Parameters
    ----------
    function : callable
        A NumPy function.
    args : tuple
        The function's arguments.
    tangents : tuple
        Directions, of the shapes of the arguments; None is zero.
    has_aux : bool, default False
        The function returns (number, others), and this is (product, others).
    save : int or str, default '1 GB'
        As of `kg.grad`.
    ieee : bool, default False
        As of `kg.grad`.

    Returns
    -------
    tuple

    Raises
    ------
    ArgumentsError
    DTypeError
    ShapeError

    Examples
    --------
    >>> kg.hvp(lambda x: (x**3).sum(), (np.array([1.0, 2.0]),), (np.array([1.0, 0.0]),))[0].tolist()
    [6.0, 0.0]
    """
    if not isinstance(args, (tuple, list)) or not isinstance(tangents, (tuple, list)):
        raise ArgumentsError("hvp takes a tuple of arguments and a tuple of their tangents")
    gradient = grad(function, tuple(range(len(args))), has_aux=has_aux, save=save, ieee=ieee)
    found = jvp(gradient, args, tangents, has_aux=has_aux)
    return found[1:] if has_aux else found[1]
