"""`kg.grad`, `value_and_grad`, `vjp` and `jvp`: functions of functions, in a trace and outside of one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...compiler.core.types import dtype_kind
from ...compiler.derive.derive import derive_forward, derive_reverse
from ...compiler.graph.graph import Value
from ..core.errors import ArgumentsError, DTypeError, ShapeError
from ..core.pytree import flatten, unflatten
from ..jit.kernel_graph import KernelGraph
from ..trace.operands import new_traced_result, to_traced_array
from ..trace.trace import current_trace
from .derived import derived, plain_function
from .region import DifferentiatedRegion, Place, RegionOutput, trace_in_progress, trace_region

if TYPE_CHECKING:
    from ..jit.kernel_graph import P, R

Chosen = int | Sequence[int]


def grad(
    function: Callable[P, Any],
    argnums: Chosen = 0,
    argnames: str | Sequence[str] = (),
    *,
    has_aux: bool = False,
    holomorphic: bool = False,
    save: int | str = "1 GB",
) -> KernelGraph[P, Any]:
    """The gradient of a function that returns one number, by reverse mode (Linnainmaa, 1970).

    argnums: which arguments, by place; several give a tuple. argnames: which of those passed by name; several, or these
    beside places, give a dict. has_aux: the function returns (number, others), and the gradient is (gradient, others).
    holomorphic: of a complex number, its derivative as a holomorphic function; else of a real one, whose gradient in a
    complex argument a + bi is d/da + i d/db, the direction of steepest ascent. save: bytes, or "256 MB", that a loop
    may keep of its states; one that would keep more goes through its turns again, from snapshots.

    Arguments may be any structure of tuples, lists, dicts and dataclasses. An argument that the function assigns to is
    differentiated with respect to the value it came with, and the caller's array stays as it is.
    Raises ArgumentsError, DTypeError, ShapeError, UnsupportedError at the user's line.

    >>> kg.grad(lambda x: (x**2).sum())(np.array([1.0, 2.0])).tolist()
    [2.0, 4.0]
    """
    return _gradient("grad", function, argnums, argnames, has_aux, holomorphic, save)


def value_and_grad(
    function: Callable[P, R],
    argnums: Chosen = 0,
    argnames: str | Sequence[str] = (),
    *,
    has_aux: bool = False,
    holomorphic: bool = False,
    save: int | str = "1 GB",
) -> KernelGraph[P, tuple[R, Any]]:
    """`kg.grad` with the value before it: (value, gradient), or ((value, others), gradient) with has_aux.

    >>> value, gradient = kg.value_and_grad(lambda x: (x**2).sum())(np.array([1.0, 2.0]))
    >>> float(value), gradient.tolist()
    (5.0, [2.0, 4.0])
    """
    return _gradient("value_and_grad", function, argnums, argnames, has_aux, holomorphic, save)


def _gradient(
    what: str,
    function: Callable[P, Any],
    argnums: Chosen,
    argnames: str | Sequence[str],
    has_aux: bool,
    holomorphic: bool,
    save: int | str,
) -> KernelGraph[P, Any]:
    budget = parse_bytes(what, save)
    numbers, names = _differentiated_argument_places(what, argnums, argnames)
    several = names is not None or not isinstance(argnums, (int, np.integer))

    def body(function: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        args, options, chosen = _differentiated_arguments(function, args, options, numbers, names or ())
        region = trace_region(what, function, args, options, chosen)
        loss = _loss_output(what, region, has_aux, holomorphic)
        trace = trace_in_progress(what)
        graph = derive_reverse(region.graph, range(len(region.values)), [loss], budget)
        kind = region.graph.nodes[region.graph.outputs[loss]].type
        outputs = region.inlined(trace, graph, [trace.builder.const(1, kind.dtype)])
        count = len(region.graph.outputs)
        found = outputs[count:]
        if holomorphic:
            found = [trace.builder.map("conjugate", v) for v in found]
        gradients = region.like_arguments([new_traced_result(v) for v in found])
        result: Any = tuple(gradients) if several else gradients[0]
        if names:
            result = dict(zip([*numbers, *names], gradients, strict=True))
        value = region.result(outputs[:count])
        if what == "value_and_grad":
            return value, result
        return (result, value[1]) if has_aux else result

    return derived(what, function, body, (numbers, names, several, has_aux, holomorphic, budget))


_UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


def parse_bytes(what: str, size: int | str) -> int:
    """A number of bytes, as `256 MB` too. Raises ArgumentsError."""
    if isinstance(size, str):
        number, _, unit = size.strip().rpartition(" ")
        with contextlib.suppress(KeyError, ValueError):
            if float(number) > 0:
                return max(1, int(float(number) * _UNITS[unit]))
    elif isinstance(size, (int, np.integer)) and not isinstance(size, bool) and size > 0:
        return int(size)
    raise ArgumentsError(f"save={size!r} of {what}: write bytes, or a text such as '256 MB'")


def _differentiated_argument_places(
    what: str, argnums: Chosen, argnames: str | Sequence[str]
) -> tuple[tuple[int, ...], tuple[str, ...] | None]:
    """Checked; argnums is not asked for where only names are given. Raises ArgumentsError."""
    names = (argnames,) if isinstance(argnames, str) else tuple(argnames)
    if not all(isinstance(name, str) for name in names):
        raise ArgumentsError(f"argnames={argnames!r} of {what}: write a name, or a tuple of names")
    try:
        numbers = tuple(int(n) for n in ((argnums,) if isinstance(argnums, (int, np.integer)) else argnums))
    except (TypeError, ValueError):
        raise ArgumentsError(f"argnums={argnums!r} of {what}: write a number, or a tuple of numbers") from None
    if len(set(numbers)) != len(numbers) or len(set(names)) != len(names):
        raise ArgumentsError(f"{what} is asked for one argument twice; name each once")
    if not numbers and not names:
        raise ArgumentsError(f"{what} is asked for no argument; write argnums=0")
    return numbers, names or None


def _differentiated_arguments(
    function: Any, args: tuple[Any, ...], options: dict[str, Any], numbers: Sequence[int], names: Sequence[str]
) -> tuple[tuple[Any, ...], dict[str, Any], list[Place]]:
    """The arguments of a call, and where in them those are that are asked for."""
    import inspect

    chosen: list[Place] = [n + len(args) if n < 0 else n for n in numbers]
    if names:
        try:
            parameters = list(inspect.signature(function).parameters)
        except (TypeError, ValueError):
            parameters = []
        for name in names:
            at = parameters.index(name) if name in parameters else len(args)
            chosen.append(name if name in options or at >= len(args) else at)
    return args, options, chosen


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


def vjp(function: Callable[..., Any], *args: Any, has_aux: bool = False) -> Any:
    """(f(*args), pull): `pull(cotangent)`, given one of the structure of what f returns, is its product with the
    Jacobian, a tuple with one for each argument.

    has_aux: f returns (result, others), and this (result, pull, others). What has no derivative, such as an array of
    integers, gets None. Outside of a trace, pull computes f's values again.
    Raises ArgumentsError, DTypeError, ShapeError, UnsupportedError.

    >>> value, pull = kg.vjp(lambda x: x**2, np.array([1.0, 2.0]))
    >>> pull(np.array([1.0, 10.0]))[0].tolist()
    [2.0, 40.0]
    """
    if current_trace() is None:
        value = derived("vjp", function, _value_of, "value", like=False)(*args)
        pulling = derived("vjp", function, _pull_back(has_aux), ("pull", has_aux), like=False)

        def pull_again(cotangent: Any) -> Any:
            return pulling(args, cotangent)

        return (value[0], pull_again, value[1]) if has_aux else (value, pull_again)
    plain = plain_function("vjp", function)[0]
    value, pull = _vjp(plain, args, has_aux)
    return (value[0], pull, value[1]) if has_aux else (value, pull)


def _value_of(function: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    world = trace_in_progress("vjp").world
    return (function if world is None else world.proxy_of(function))(*args, **options)


def _pull_back(has_aux: bool) -> Any:
    def body(function: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        given, cotangent = args
        return _vjp(function, given, has_aux)[1](cotangent)

    return body


def _vjp(function: Callable[..., Any], args: Sequence[Any], has_aux: bool) -> tuple[Any, Callable[[Any], Any]]:
    """The value, and what pulls cotangents back, in a trace."""
    region = trace_region("vjp", function, args, {}, range(len(args)), skips=True)
    graph, count = region.graph, len(region.graph.outputs)
    if has_aux and (region.tree.kind is not tuple or len(region.tree.children) != 2):
        raise ArgumentsError("with has_aux=True vjp needs a function that returns (result, others)")
    tree = region.tree.children[0] if has_aux else region.tree
    leaves = region.leaves[: _leaf_count(tree)]
    seeded = [x.number for x in leaves if type(x) is RegionOutput and _has_tangent(graph, x.number)]
    derived_graph = derive_reverse(graph, range(len(region.values)), seeded)
    trace = trace_in_progress("vjp")
    zero = [trace.builder.broadcast(trace.builder.const(0, t.dtype), t.shape) for t in _types_of_outputs(graph, seeded)]
    value = region.result(region.inlined(trace, derived_graph, zero)[:count])

    def pull(cotangent: Any) -> Any:
        given: list[Any] = []
        if flatten(cotangent, given, results=True) != tree:
            raise ArgumentsError(f"the cotangent is of another structure than the result, which is {tree}")
        seeds = [_cotangent_of_leaf("cotangent", x, graph, leaf) for x, leaf in zip(given, leaves, strict=True)]
        found = region.inlined(trace_in_progress("vjp"), derived_graph, [s for s in seeds if s is not None])[count:]
        return tuple(region.like_arguments([new_traced_result(v) for v in found]))

    return value, pull


def _types_of_outputs(graph: Any, outputs: Sequence[int]) -> list[Any]:
    return [graph.nodes[graph.outputs[i]].type for i in outputs]


def has_derivative(dtype: np.dtype[Any]) -> bool:
    """Whether numbers of a dtype are real or complex floats."""
    return dtype_kind(dtype) in "fc"


def _has_tangent(graph: Any, output: int) -> bool:
    return has_derivative(graph.nodes[graph.outputs[output]].type.dtype)


def _leaf_count(tree: Any) -> int:
    return 1 if tree.kind is None else sum(map(_leaf_count, tree.children))


def _cotangent_of_leaf(what: str, given: Any, graph: Any, leaf: Any) -> Value | None:
    """A cotangent of one leaf of the result, of its type. Raises ShapeError, DTypeError."""
    if type(leaf) is not RegionOutput or not _has_tangent(graph, leaf.number):
        return None
    (wanted,) = _types_of_outputs(graph, [leaf.number])
    return _cotangent_of_type(what, given, wanted)


def _cotangent_of_type(what: str, given: Any, type: Any) -> Value:
    value = to_traced_array(given)._value
    if value.shape != type.shape:
        raise ShapeError(f"the {what} has shape {value.shape}, and what it belongs to is {type}; broadcast it")
    if value.dtype.kind == "c" and type.dtype.kind != "c":
        raise DTypeError(f"the {what} is {value.dtype}, and what it belongs to is {type}; write .real")
    trace = trace_in_progress("vjp")
    return trace.builder.cast(value, type.dtype)


def jvp(function: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any], *, has_aux: bool = False) -> Any:
    """(f(*primals), its tangent): the product of the Jacobian with tangents of the structures of the arguments, by
    forward mode (Wengert, 1964).

    has_aux: f returns (result, others), and this (result, tangent, others). A tangent of None is zero.
    Raises ArgumentsError, DTypeError, ShapeError, UnsupportedError.

    >>> value, tangent = kg.jvp(lambda x: x**2, (np.array([1.0, 2.0]),), (np.array([1.0, 10.0]),))
    >>> tangent.tolist()
    [2.0, 40.0]
    """
    if not isinstance(primals, (tuple, list)) or not isinstance(tangents, (tuple, list)):
        raise ArgumentsError("jvp takes a tuple of arguments and a tuple of their tangents")
    if len(primals) != len(tangents):
        raise ArgumentsError(f"jvp: {len(primals)} arguments and {len(tangents)} tangents; pass one for each")
    if current_trace() is None:
        return derived("jvp", function, _push_forward(has_aux), has_aux, like=False)(tuple(primals), tuple(tangents))
    return _jvp(plain_function("jvp", function)[0], primals, tangents, has_aux)


def _push_forward(has_aux: bool) -> Any:
    return lambda function, args, options: _jvp(function, args[0], args[1], has_aux)


def _jvp(function: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any], has_aux: bool) -> Any:
    chosen = [i for i, t in enumerate(tangents) if t is not None]
    region = trace_region("jvp", function, primals, {}, chosen, skips=True)
    graph, count = region.graph, len(region.graph.outputs)
    given: list[Any] = []
    for (tree, arrays), place in zip(region.trees, chosen, strict=True):
        leaves: list[Any] = []
        if flatten(tangents[place], leaves) != tree:
            raise ArgumentsError(f"the tangent of argument {place} is of another structure than it, {tree}")
        given += [leaf for leaf, array in zip(leaves, arrays, strict=True) if array]
    moving = [i for i, t in enumerate(given) if t is not None]
    pushed = [_cotangent_of_type("tangent", given[i], region.values[i].type) for i in moving]
    if has_aux and (region.tree.kind is not tuple or len(region.tree.children) != 2):
        raise ArgumentsError("with has_aux=True jvp needs a function that returns (result, others)")
    tree = region.tree.children[0] if has_aux else region.tree
    leaves = list(region.leaves[: _leaf_count(tree)])
    wanted = [x.number for x in leaves if type(x) is RegionOutput and _has_tangent(graph, x.number)]
    outputs = region.inlined(trace_in_progress("jvp"), derive_forward(graph, moving, wanted), pushed)
    found = iter(outputs[count:])
    result = [
        new_traced_result(next(found)) if type(x) is RegionOutput and _has_tangent(graph, x.number) else None
        for x in leaves
    ]
    value, tangent = region.result(outputs[:count]), unflatten(tree, result)
    return (value[0], tangent, value[1]) if has_aux else (value, tangent)


def linearize(function: Callable[..., Any], *args: Any) -> Any:
    """(f(*args), push): `push(*tangents)` is the Jacobian's product with tangents of the arguments.

    Outside of a trace, push computes f's values again. Raises as `kg.jvp` does.

    >>> value, push = kg.linearize(lambda x: x**2, np.array([1.0, 2.0]))
    >>> push(np.array([1.0, 10.0])).tolist()
    [2.0, 40.0]
    """
    if current_trace() is None:
        value = derived("linearize", function, _value_of, "value", like=False)(*args)
    else:
        value = _value_of(plain_function("linearize", function)[0], args, {})
    return value, lambda *tangents: jvp(function, args, tangents)[1]
