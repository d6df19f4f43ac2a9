"""What the devices of a mesh exchange, in functions with `mesh=`: `kg.all_reduce` and its kin, as operations.

Each takes an array, or any structure of arrays, of which every device has its own; the meanings are those of MPI and of
NCCL. On a mesh of one device they are the identity. along: a name of a mesh with several dimensions; the devices that
differ along it alone do it among themselves, and places are counted along it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...compiler.core.types import ArrayType, dtype_kind
from ...compiler.graph.graph import Value
from ...runtime.core.readable_text import with_article
from ..core.context import context
from ..core.errors import ArgumentsError, DTypeError, OptionError, ShapeError
from ..core.pytree import flatten, unflatten
from ..trace.operands import new_traced_result, to_traced_array
from ..trace.trace import current_trace
from .mesh import Mesh

JOINS = ("sum", "mean", "max", "min", "prod")
TypedCollective = tuple[str, ArrayType, dict[str, Any]]  # an operation, the type of its result, its attributes


def all_reduce(x: Any, op: str = "sum", along: str | None = None) -> Any:
    """On each device the sum (`mean`, `max`, `min`, `prod`) of all devices' arrays. Each has the same bits.

    Parameters
    ----------
    x : array_like
        An array, or a tuple, list, dict or dataclass of arrays.
    op : str, default 'sum'
        How parts are joined: sum, mean, max or min.
    along : str, optional
        The name of a mesh's dimension: its devices alone take part, each row of them by itself.

    Returns
    -------
    Array

    Raises
    ------
    ArgumentsError
        Outside of a function with `mesh=`.
    ShapeError
        For parts that are not equal.

    Examples
    --------
    >>> @kg.kernel_graph(mesh=kg.Mesh(["cpu:0", "cpu:1"]), in_axes=0, out_axes=0)
    ... def f(x):
    ...     return kg.all_reduce(x)
    >>> np.asarray(f(np.array([1.0, 2.0]))).tolist()
    [3.0, 3.0]
    """

    def all_reduce_result_type(value: Value, size: int) -> TypedCollective:
        _check_reduction_operator(op, value)
        return "all_reduce", value.type, {"how": op}

    return _call_on_each_device(x, "all_reduce", along, all_reduce_result_type)


def all_gather(x: Any, axis: int = 0, along: str | None = None) -> Any:
    """On each device all devices' arrays, joined along an axis in the mesh's order.

    Parameters
    ----------
    x : array_like
        An array, or a tuple, list, dict or dataclass of arrays.
    axis : int, default 0
        A dimension of the array; of a mesh, the name of its row of devices.
    along : str, optional
        The name of a mesh's dimension: its devices alone take part, each row of them by itself.

    Returns
    -------
    Array

    Raises
    ------
    ArgumentsError
        Outside of a function with `mesh=`.
    ShapeError
        For parts that are not equal.

    Examples
    --------
    >>> @kg.kernel_graph(mesh=kg.Mesh(["cpu:0", "cpu:1"]), in_axes=0, out_axes=0)
    ... def f(x):
    ...     return kg.all_gather(x)
    >>> np.asarray(f(np.array([1.0, 2.0]))).tolist()
    [1.0, 2.0, 1.0, 2.0]
    """

    def all_gather_result_type(value: Value, size: int) -> TypedCollective:
        at = _collective_axis(value, axis)
        return "all_gather", _collective_result_type(value, {at: (size, 1)}), {"axis": at}

    return _call_on_each_device(x, "all_gather", along, all_gather_result_type)


def reduce_scatter(x: Any, op: str = "sum", axis: int = 0, along: str | None = None) -> Any:
    """The sum of all devices' arrays: on each device its part along an axis.

    Parameters
    ----------
    x : array_like
        An array, or a tuple, list, dict or dataclass of arrays.
    op : str, default 'sum'
        How parts are joined: sum, mean, max or min.
    axis : int, default 0
        A dimension of the array; of a mesh, the name of its row of devices.
    along : str, optional
        The name of a mesh's dimension: its devices alone take part, each row of them by itself.

    Returns
    -------
    Array

    Raises
    ------
    ArgumentsError
        Outside of a function with `mesh=`.
    ShapeError
        For parts that are not equal.

    Examples
    --------
    >>> @kg.kernel_graph(mesh=kg.Mesh(["cpu:0", "cpu:1"]), in_axes=0, out_axes=0)
    ... def f(x):
    ...     return kg.reduce_scatter(x)
    >>> np.asarray(f(np.array([1.0, 2.0, 10.0, 20.0]))).tolist()
    [11.0, 22.0]
    """

    def reduce_scatter_result_type(value: Value, size: int) -> TypedCollective:
        _check_reduction_operator(op, value)
        at = _check_mesh_divides_axis(value, axis, size)
        return "reduce_scatter", _collective_result_type(value, {at: (1, size)}), {"axis": at, "how": op}

    return _call_on_each_device(x, "reduce_scatter", along, reduce_scatter_result_type)


def broadcast(x: Any, root: int = 0, along: str | None = None) -> Any:
    """On each device the array of one of them.

    Parameters
    ----------
    x : array_like
        An array, or a tuple, list, dict or dataclass of arrays.
    root : int, default 0
        Its place in the mesh.
    along : str, optional
        The name of a mesh's dimension: its devices alone take part, each row of them by itself.

    Returns
    -------
    Array

    Raises
    ------
    ArgumentsError
        Outside of a function with `mesh=`.
    ShapeError
        For parts that are not equal.

    Examples
    --------
    >>> @kg.kernel_graph(mesh=kg.Mesh(["cpu:0", "cpu:1"]), in_axes=0, out_axes=0)
    ... def f(x):
    ...     return kg.broadcast(x, root=1)
    >>> np.asarray(f(np.array([1.0, 2.0]))).tolist()
    [2.0, 2.0]
    """

    def mesh_broadcast_result_type(value: Value, size: int) -> TypedCollective:
        return "from_root", value.type, {"root": _checked_mesh_position(root, size)}

    return _call_on_each_device(x, "broadcast", along, mesh_broadcast_result_type)


def all_to_all(x: Any, split_axis: int = 0, concat_axis: int = 0, along: str | None = None) -> Any:
    """Part r of each device's array along `split_axis` goes to device r. That joins what it gets.

    Parameters
    ----------
    x : array_like
        An array, or a tuple, list, dict or dataclass of arrays.
    split_axis : int, default 0
        The dimension of which each device gets a part.
    concat_axis : int, default 0
        The dimension along which the received parts are joined.
    along : str, optional
        The name of a mesh's dimension: its devices alone take part, each row of them by itself.

    Returns
    -------
    Array
        On each device the parts that it got, joined.

    Raises
    ------
    ArgumentsError
        Outside of a function with `mesh=`.
    ShapeError
        For parts that are not equal.

    Examples
    --------
    >>> @kg.kernel_graph(mesh=kg.Mesh(["cpu:0", "cpu:1"]), in_axes=0, out_axes=0)
    ... def f(x):
    ...     return kg.all_to_all(x)
    >>> np.asarray(f(np.array([1.0, 2.0, 10.0, 20.0]))).tolist()
    [1.0, 10.0, 2.0, 20.0]
    """

    def mesh_all_to_all_type(value: Value, size: int) -> TypedCollective:
        split, join = _check_mesh_divides_axis(value, split_axis, size), _collective_axis(value, concat_axis)
        scale = {split: (1, size), join: (size, 1)} if split != join else {}
        return "all_to_all", _collective_result_type(value, scale), {"split": split, "join": join}

    return _call_on_each_device(x, "all_to_all", along, mesh_all_to_all_type)


def permute(x: Any, pairs: Sequence[tuple[int, int]], along: str | None = None) -> Any:
    """Each array sent from one device to another. A device that is sent nothing has zeros.

    Parameters
    ----------
    x : array_like
        An array, or a tuple, list, dict or dataclass of arrays.
    pairs : Sequence[tuple[int, int]]
        (from, to) of each device that sends.
    along : str, optional
        The name of a mesh's dimension: its devices alone take part, each row of them by itself.

    Returns
    -------
    Array

    Raises
    ------
    ArgumentsError
        Outside of a function with `mesh=`.
    ShapeError
        For parts that are not equal.

    Examples
    --------
    >>> @kg.kernel_graph(mesh=kg.Mesh(["cpu:0", "cpu:1"]), in_axes=0, out_axes=0)
    ... def f(x):
    ...     return kg.permute(x, [(0, 1), (1, 0)])
    >>> np.asarray(f(np.array([1.0, 2.0]))).tolist()
    [2.0, 1.0]
    """

    def mesh_permute_result_type(value: Value, size: int) -> TypedCollective:
        if not isinstance(pairs, (list, tuple)) or not all(isinstance(p, (list, tuple)) and len(p) == 2 for p in pairs):
            raise OptionError(f"pairs={pairs!r}: write (source, target) pairs of places in the mesh, as in [(0, 1)]")
        found = tuple((_checked_mesh_position(a, size), _checked_mesh_position(b, size)) for a, b in pairs)
        if len({b for _, b in found}) < len(found) or len({a for a, _ in found}) < len(found):
            raise OptionError(f"pairs={pairs!r}: a device sends once and is sent to once")
        return "exchange", value.type, {"pairs": found}

    return _call_on_each_device(x, "permute", along, mesh_permute_result_type)


def _call_on_each_device(x: Any, name: str, along: str | None, typed: Callable[[Value, int], TypedCollective]) -> Any:
    """along: the dimension of the mesh along which devices exchange; None: all do."""
    trace, mesh = current_trace(), context.mesh
    if trace is None or not isinstance(mesh, Mesh):
        raise ArgumentsError(f"kg.{name} is for functions that run on a mesh; write kernel_graph(mesh=kg.Mesh(...))")
    leaves: list[Any] = []
    tree = flatten(x, leaves)
    groups = () if along is None else mesh.groups_along(along)
    size = len(groups[0]) if groups else len(mesh)
    apart = {"groups": groups} if len(groups) > 1 else {}
    found = []
    for leaf in leaves:
        value = to_traced_array(leaf)._value
        op, type, attrs = typed(value, size)
        fixed = tuple(sorted({**attrs, **apart, "size": size}.items()))
        found.append(new_traced_result(trace.builder.add(op, (value.number,), type, fixed)))
    return unflatten(tree, found)


def _check_reduction_operator(op: str, value: Value) -> None:
    if op not in JOINS:
        raise OptionError(f"op={op!r}: write one of {', '.join(map(repr, JOINS))}")
    kind = dtype_kind(value.dtype)
    if (
        (op == "mean" and kind not in "fc")
        or (kind == "b" and op != "max" and op != "min")
        or (kind == "c" and op in ("max", "min"))
    ):
        raise DTypeError(
            f"{with_article(op)} over devices of {value.dtype} makes no sense; convert it with x.astype(...)"
        )


def _collective_axis(value: Value, axis: int) -> int:
    whole = isinstance(axis, int) and not isinstance(axis, bool)
    if not whole or not -len(value.shape) <= axis < len(value.shape):
        raise ShapeError(f"axis {axis!r} of an array of shape {value.shape} is none of its axes")
    return axis % len(value.shape)


def _check_mesh_divides_axis(value: Value, axis: int, size: int) -> int:
    at = _collective_axis(value, axis)
    if value.shape[at] % size:
        raise ShapeError(f"axis {at} of an array of shape {value.shape} cannot be shared equally by {size} devices")
    return at


def _collective_result_type(value: Value, scale: dict[int, tuple[int, int]]) -> ArrayType:
    shape = tuple(n * scale.get(i, (1, 1))[0] // scale.get(i, (1, 1))[1] for i, n in enumerate(value.shape))
    return ArrayType(shape, value.dtype)


def _checked_mesh_position(number: int, size: int) -> int:
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < size:
        raise OptionError(f"{number!r} is none of the {size} devices of the mesh")
    return number
