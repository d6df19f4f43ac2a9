"""`kg.grad`, `value_and_grad`, `vjp` and `jvp`: functions of functions, in a trace and outside of one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...compiler.core.types import dtype_kind
from ...compiler.derive.core.call import ReverseOptions
from ...compiler.derive.derive import derive_forward, derive_reverse
from ...compiler.graph.graph import Value
from ..array.array import snapshot
from ..core.errors import ArgumentsError, DTypeError, ShapeError
from ..core.pytree import flatten, unflatten
from ..jit.kernel_graph import KernelGraph
from ..trace.operands import new_traced_result, to_traced_array
from ..trace.trace import current_trace
from .derived import derived_kernel_graph, plain_function
from .options import Chosen, choose_differentiated_arguments, reverse_options, tracing_for_reverse_mode
from .region import DifferentiatedRegion, RegionOutput, copies_of_region_argument, trace_in_progress, trace_region

if TYPE_CHECKING:
    from ..jit.kernel_graph import P, R


def grad(
    function: Callable[P, Any],
    argnums: Chosen = 0,
    argnames: str | Sequence[str] = (),
    *,
    has_aux: bool = False,
    holomorphic: bool = False,
    save: int | str = "1 GB",
    ieee: bool = False,
) -> KernelGraph[P, Any]:
    """The gradient of a function that returns one number, by reverse mode (Linnainmaa, 1970).

    Arguments may be any structure of tuples, lists, dicts and dataclasses. An argument that the function assigns to is
    differentiated with respect to the value it came with, and the caller's array stays as it is.

    Parameters
    ----------
    function : callable
        A NumPy function.
    argnums : int or Sequence[int], default 0
        Which arguments, by place; several give a tuple.
    argnames : str or Sequence[str], default ()
        Which of those passed by name; several, or these beside places, give a dict.
    has_aux : bool, default False
        The function returns (number, others), and the gradient is (gradient, others).
    holomorphic : bool, default False
        Of a complex number, its derivative as a holomorphic function; else of a real one, whose gradient in a complex
        argument a + bi is d/da + i d/db, the direction of steepest ascent.
    save : int or str, default '1 GB'
        Bytes, or "256 MB", that a loop may keep of its states; one that would keep more goes through its turns again,
        from snapshots.
    ieee : bool, default False
        What a `where` does not take is multiplied by 0 in IEEE's arithmetic, and infinite derivatives there make NaN,
        as with JAX and PyTorch; else nothing comes back from there.

    Returns
    -------
    callable

    Raises
    ------
    ArgumentsError
        At the user's line.
    DTypeError
        At the user's line.
    ShapeError
        At the user's line.
    UnsupportedError
        At the user's line.

    Examples
    --------
    >>> kg.grad(lambda x: (x**2).sum())(np.array([1.0, 2.0])).tolist()
    [2.0, 4.0]
    """
    return _make_gradient_function("grad", function, argnums, argnames, has_aux, holomorphic, save, ieee)


def value_and_grad(
    function: Callable[P, R],
    argnums: Chosen = 0,
    argnames: str | Sequence[str] = (),
    *,
    has_aux: bool = False,
    holomorphic: bool = False,
    save: int | str = "1 GB",
    ieee: bool = False,
) -> KernelGraph[P, tuple[R, Any]]:
    """`kg.grad` with the value before it: (value, gradient), or ((value, others), gradient) with has_aux.

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
        At the user's line.
    DTypeError
        At the user's line.
    ShapeError
        At the user's line.
    UnsupportedError
        At the user's line.

    Examples
    --------
    >>> value, gradient = kg.value_and_grad(lambda x: (x**2).sum())(np.array([1.0, 2.0]))
    >>> float(value), gradient.tolist()
    (5.0, [2.0, 4.0])
    """
    return _make_gradient_function("value_and_grad", function, argnums, argnames, has_aux, holomorphic, save, ieee)


def _make_gradient_function(
    what: str,
    function: Callable[P, Any],
    argnums: Chosen,
    argnames: str | Sequence[str],
    has_aux: bool,
    holomorphic: bool,
    save: int | str,
    ieee: bool,
) -> KernelGraph[P, Any]:
    reverse = reverse_options(what, save, ieee)
    chosen = choose_differentiated_arguments(what, argnums, argnames)

    def differentiate_in_reverse(function: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        with tracing_for_reverse_mode(reverse):
            region = trace_region(what, function, args, options, chosen.places(function, args, options))
        loss = _loss_output(what, region, has_aux, holomorphic)
        trace = trace_in_progress(what)
        graph = derive_reverse(region.graph, range(len(region.values)), [loss], reverse)
        kind = region.graph.nodes[region.graph.outputs[loss]].type
        outputs = region.inlined(trace, graph, [trace.builder.const(1, kind.dtype)])
        count = len(region.graph.outputs)
        found = outputs[count:]
        if holomorphic:
            found = [trace.builder.map("conjugate", v) for v in found]
        result = chosen.joined(region.like_arguments([new_traced_result(v) for v in found]))
        value = region.result(outputs[:count])
        if what == "value_and_grad":
            return value, result
        return (result, value[1]) if has_aux else result

    return derived_kernel_graph(what, function, differentiate_in_reverse, (chosen, has_aux, holomorphic, reverse))


def _loss_output(what: str, region: DifferentiatedRegion, has_aux: bool, holomorphic: bool) -> int:
    """The output that is the number. Raises ArgumentsError, DTypeError, ShapeError."""
    first: Any = region.leaves[0] if region.leaves else None
    if has_aux:
        tree = region.tree
        if tree.kind is not tuple or len(tree.children) != 2 or tree.children[0].kind is not None:
            raise ArgumentsError(f"with has_aux=True {what} needs a function that returns (number, others)")
    elif len(region.leaves) != 1 or region.tree.kind is not None:
        raise ArgumentsError(
            f"{what} needs one number, got {region.tree}; return one, with has_aux=True for (number, others), or write "
            "kg.vjp with cotangents"
        )
    if type(first) is not RegionOutput:
        raise ArgumentsError(f"{what} needs one number, got {type(first).__name__}; return an array's sum, say")
    found = region.graph.nodes[region.graph.outputs[first.number]].type
    kind = dtype_kind(found.dtype)
    if found.shape != ():
        raise ShapeError(f"{what} needs one number, got {found}; write .sum(), or kg.vjp with a cotangent")
    if holomorphic and (kind != "c" or any(v.dtype.kind != "c" for v in region.values)):
        raise DTypeError(f"{what} with holomorphic=True is of complex numbers; got {found}; leave it out")
    if kind == "c" and not holomorphic:
        raise DTypeError(f"{what} needs a real number, got {found}; write .real, or pass holomorphic=True")
    if kind not in "fc":
        raise DTypeError(f"{what} needs a number that can change a little, got {found}; return floats")
    return first.number


def vjp(
    function: Callable[..., Any],
    *args: Any,
    has_aux: bool = False,
    save: int | str = "1 GB",
    ieee: bool = False,
) -> Any:
    """(f(*args), pull): `pull(cotangent)` is the cotangent's product with the Jacobian.

    The cotangent has the structure of what f returns. The product is a tuple with one for each argument.

    Parameters
    ----------
    function : callable
        A NumPy function.
    *args
        The function's arguments.
    has_aux : bool, default False
        Whether f returns (result, others), and this (result, pull, others). What has no derivative, such as an array of
        integers, gets None. Outside of a trace, pull computes f's values again, of the arguments as they were.
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
    UnsupportedError

    Examples
    --------
    >>> value, pull = kg.vjp(lambda x: x**2, np.array([1.0, 2.0]))
    >>> pull(np.array([1.0, 10.0]))[0].tolist()
    [2.0, 40.0]
    """
    reverse = reverse_options("vjp", save, ieee)
    if current_trace() is None:
        args = _copies_of_differentiated_arguments(args)
        value = derived_kernel_graph("vjp", function, _call_differentiated_function, "value", like=False)(*args)
        pulling = derived_kernel_graph(
            "vjp", function, _pull_back_function(has_aux, reverse), ("pull", has_aux, reverse), like=False
        )

        def pull_back_again(cotangent: Any) -> Any:
            return pulling(args, cotangent)

        return _result_product_and_aux("vjp", value, pull_back_again) if has_aux else (value, pull_back_again)
    plain = plain_function("vjp", function)[0]
    value, pull = _vjp_in_trace(plain, args, has_aux, reverse)
    return _result_product_and_aux("vjp", value, pull) if has_aux else (value, pull)


def _copies_of_differentiated_arguments(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Arguments with arrays of their own: what is assigned to the caller's later does not change a derivative."""
    trace = current_trace()
    if trace is not None:
        return tuple(copies_of_region_argument(trace, a) for a in args)
    leaves: list[Any] = []
    tree = flatten(args, leaves)
    found: tuple[Any, ...] = unflatten(tree, [snapshot(leaf) for leaf in leaves])
    return found


def _result_product_and_aux(what: str, value: Any, product: Callable[..., Any]) -> tuple[Any, Callable[..., Any], Any]:
    """(result, product, others) of a function's (result, others). Raises ArgumentsError."""
    if type(value) is not tuple or len(value) != 2:
        raise ArgumentsError(f"with has_aux=True {what} needs a function that returns (result, others)")
    return value[0], product, value[1]


def _call_differentiated_function(function: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    trace = trace_in_progress("vjp")
    function = trace.world.proxy_of(function)
    return function(*(copies_of_region_argument(trace, a) for a in args), **options)


def _pull_back_function(has_aux: bool, reverse: ReverseOptions) -> Any:
    def pull_back_in_trace(function: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        given, cotangent = args
        return _vjp_in_trace(function, given, has_aux, reverse)[1](cotangent)

    return pull_back_in_trace


def _vjp_in_trace(
    function: Callable[..., Any], args: Sequence[Any], has_aux: bool, reverse: ReverseOptions
) -> tuple[Any, Callable[[Any], Any]]:
    """The value, and what pulls cotangents back, in a trace."""
    with tracing_for_reverse_mode(reverse):
        region = trace_region("vjp", function, args, {}, range(len(args)), skips=True)
    graph, count = region.graph, len(region.graph.outputs)
    tree, leaves = region.result_and_aux("vjp") if has_aux else (region.tree, region.leaves)
    seeded = [x.number for x in leaves if type(x) is RegionOutput and _has_gradient_output_tangent(graph, x.number)]
    derived_graph = derive_reverse(graph, range(len(region.values)), seeded, reverse)
    trace = trace_in_progress("vjp")
    zero = [
        trace.builder.broadcast(trace.builder.const(0, t.dtype), t.shape)
        for t in _types_of_gradient_outputs(graph, seeded)
    ]
    value = region.result(region.inlined(trace, derived_graph, zero)[:count])

    def pull_back_cotangent(cotangent: Any) -> Any:
        given: list[Any] = []
        if flatten(cotangent, given, results=True) != tree:
            raise ArgumentsError(f"the cotangent is of another structure than the result, which is {tree}")
        seeds = [_cotangent_of_leaf(x, graph, leaf) for x, leaf in zip(given, leaves, strict=True)]
        found = region.inlined(trace_in_progress("vjp"), derived_graph, [s for s in seeds if s is not None])[count:]
        return tuple(region.like_arguments([new_traced_result(v) for v in found]))

    return value, pull_back_cotangent


def _types_of_gradient_outputs(graph: Any, outputs: Sequence[int]) -> list[Any]:
    return [graph.nodes[graph.outputs[i]].type for i in outputs]


def is_differentiable_dtype(dtype: np.dtype[Any]) -> bool:
    """Whether numbers of a dtype are real or complex floats."""
    return dtype_kind(dtype) in "fc"


def _has_gradient_output_tangent(graph: Any, output: int) -> bool:
    return is_differentiable_dtype(graph.nodes[graph.outputs[output]].dtype)


def _cotangent_of_leaf(given: Any, graph: Any, leaf: Any) -> Value | None:
    """A cotangent of one leaf of the result, of its type. Raises ShapeError, DTypeError."""
    if type(leaf) is not RegionOutput or not _has_gradient_output_tangent(graph, leaf.number):
        return None
    (wanted,) = _types_of_gradient_outputs(graph, [leaf.number])
    return _cotangent_of_type("cotangent", given, wanted)


def _cotangent_of_type(what: str, given: Any, type: Any) -> Value:
    value = to_traced_array(given)._value
    if value.shape != type.shape:
        raise ShapeError(f"the {what} has shape {value.shape}, and what it belongs to is {type}; broadcast it")
    if value.dtype.kind == "c" and type.dtype.kind != "c":
        raise DTypeError(f"the {what} is {value.dtype}, and what it belongs to is {type}; write .real")
    trace = trace_in_progress("vjp")
    return trace.builder.cast(value, type.dtype)


def jvp(function: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any], *, has_aux: bool = False) -> Any:
    """(f(*primals), its tangent): the product of the Jacobian with tangents of the arguments.

    It is computed by forward mode (Wengert, 1964).

    Parameters
    ----------
    function : callable
        A NumPy function.
    primals : tuple
        The function's arguments, as a tuple.
    tangents : tuple
        Directions, of the shapes of the arguments; None is zero.
    has_aux : bool, default False
        Whether f returns (result, others), and this (result, tangent, others).

    Returns
    -------
    tuple

    Raises
    ------
    ArgumentsError
    DTypeError
    ShapeError
    UnsupportedError

    Examples
    --------
    >>> value, tangent = kg.jvp(lambda x: x**2, (np.array([1.0, 2.0]),), (np.array([1.0, 10.0]),))
    >>> tangent.tolist()
    [2.0, 40.0]
    """
    if not isinstance(primals, (tuple, list)) or not isinstance(tangents, (tuple, list)):
        raise ArgumentsError("jvp takes a tuple of arguments and a tuple of their tangents")
    if len(primals) != len(tangents):
        raise ArgumentsError(f"jvp: {len(primals)} arguments and {len(tangents)} tangents; pass one for each")
    if current_trace() is None:
        return derived_kernel_graph("jvp", function, _push_forward_function(has_aux), has_aux, like=False)(
            tuple(primals), tuple(tangents)
        )
    return _jvp_in_trace(plain_function("jvp", function)[0], primals, tangents, has_aux)


def _push_forward_function(has_aux: bool) -> Any:
    return lambda function, args, options: _jvp_in_trace(function, args[0], args[1], has_aux)


def _jvp_in_trace(function: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any], has_aux: bool) -> Any:
    chosen = [i for i, t in enumerate(tangents) if t is not None]
    region = trace_region("jvp", function, primals, {}, chosen, skips=True)
    graph, count = region.graph, len(region.graph.outputs)
    given: list[Any] = []
    for (tree, arrays), place in zip(region.trees, chosen, strict=True):
        parts: list[Any] = []
        if flatten(tangents[place], parts) != tree:
            raise ArgumentsError(f"the tangent of argument {place} is of another structure than it, {tree}")
        given += [leaf for leaf, array in zip(parts, arrays, strict=True) if array]
    moving = [i for i, t in enumerate(given) if t is not None]
    pushed = [_cotangent_of_type("tangent", given[i], region.values[i].type) for i in moving]
    tree, leaves = region.result_and_aux("jvp") if has_aux else (region.tree, region.leaves)
    wanted = [x.number for x in leaves if type(x) is RegionOutput and _has_gradient_output_tangent(graph, x.number)]
    outputs = region.inlined(trace_in_progress("jvp"), derive_forward(graph, moving, wanted), pushed)
    found = iter(outputs[count:])
    result = [
        new_traced_result(next(found))
        if type(x) is RegionOutput and _has_gradient_output_tangent(graph, x.number)
        else None
        for x in leaves
    ]
    value, tangent = region.result(outputs[:count]), unflatten(tree, result)
    return (value[0], tangent, value[1]) if has_aux else (value, tangent)


def linearize(function: Callable[..., Any], *args: Any, has_aux: bool = False) -> Any:
    """(f(*args), push): `push(*tangents)` is the Jacobian's product with tangents of the arguments.

    Outside of a trace, push computes f's values again, of the arguments as they were.

    Parameters
    ----------
    function : callable
        A NumPy function.
    *args
        The function's arguments.
    has_aux : bool, default False
        Whether f returns (result, others), and this (result, push, others).

    Returns
    -------
    tuple

    Raises
    ------
    ArgumentsError
    DTypeError
    ShapeError
    UnsupportedError

    Examples
    --------
    >>> value, push = kg.linearize(lambda x: x**2, np.array([1.0, 2.0]))
    >>> push(np.array([1.0, 10.0])).tolist()
    [2.0, 40.0]
    """
    args = _copies_of_differentiated_arguments(args)
    if current_trace() is None:
        value = derived_kernel_graph("linearize", function, _call_differentiated_function, "value", like=False)(*args)
    else:
        value = _call_differentiated_function(plain_function("linearize", function)[0], args, {})

    def push_forward_tangents(*tangents: Any) -> Any:
        return jvp(function, args, tangents, has_aux=has_aux)[1]

    return (
        _result_product_and_aux("linearize", value, push_forward_tangents)
        if has_aux
        else (value, push_forward_tangents)
    )
