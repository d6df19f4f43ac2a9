"""A function with `mesh=`: one body, traced for what one device has, run on all devices in one plan."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from types import MethodType
from typing import Any

import numpy as np

from ...compiler.core.types import ArrayType
from ...compiler.graph.graph import Graph, GraphError
from ...compiler.placement.unroll import graph_with_exchanging_loops_unrolled
from ...runtime.core.frozen import frozen, replace
from ...runtime.core.settings import settings
from ...runtime.engine.multi_device import MultiDeviceExecutable
from ...runtime.program.plan import Plan
from ..array.array import Array
from ..core.context import context
from ..core.errors import ArgumentsError, OptionError, ShapeError, error_at_user_line, locate_graph_error
from ..core.pytree import Tree, unflatten
from ..core.spec import Spec, kernel_readable_copy, native_byte_order, spec_of
from ..environment.argument_properties import NeedOpenedArguments
from ..jit.options import Options, checked_kernel_graph_options
from ..jit.pickling import PicklableDecoratedFunction
from ..jit.signature import (
    LEAF_TYPES,
    DecoratedFunctionParameters,
    check_function,
    flatten_arguments_of_call,
    is_number,
    to_call_leaf,
)
from ..jit.specializations import Specializations, remember_in_bounded_cache
from ..jit.trace_function import UnfinishedFunction
from ..jit.traced_function import SpecializationEvent, TracedFunction, item_of_result
from .device_calls import make_multi_device_plan_ready, run_plan
from .device_plans import MultiDevicePlanMaker
from .exchange_ways import ExchangePartition, partition_by_way
from .exchanges import partition_with_exchange
from .mesh import Axis, Mesh, Sharded, axis_on_mesh, local_axis, part_for_mesh_device, shape_of_part
from .way_trials import WayTrial

Axes = Any  # an axis or None, or a tuple of these: for each parameter, or each result


@frozen
class MeshExecutable:
    """What runs calls of one kind. specs: of the plan's outputs. parts: of each source the leaf, or the array of the
    trace counted on from the leaves, and the place in the mesh. axes: along which each result is joined."""

    captured: TracedFunction
    executable: MultiDeviceExecutable | WayTrial
    specs: tuple[Spec, ...]
    parts: tuple[tuple[int, int], ...]
    takes_numbers: bool
    axes: tuple[Axis, ...]


class MeshFunction(PicklableDecoratedFunction):
    """A decorated function that runs on a mesh. Call it like the function, with whole arrays or `kg.Sharded`."""

    def __init__(
        self,
        function: Callable[..., Any],
        mesh: Any,
        in_axes: Axes = 0,
        out_axes: Axes = 0,
        same_bits: bool = False,
        **options: Any,
    ) -> None:
        """in_axes: the axis along which each parameter's arrays are split, None for whole ones; out_axes: along which
        the devices' results are joined, None where they are equal. same_bits: sums are in the order of the mesh, which
        no library promises. Raises OptionError, ArgumentsError."""
        check_function(function)
        if not isinstance(mesh, Mesh):
            raise OptionError(f"mesh={mesh!r}: write kg.Mesh(('cuda:0', 'cuda:1'))")
        if options.get("device") is not None:
            raise OptionError("a function with mesh= runs on its devices; leave device= out")
        if options.get("untraceable") == "split":
            raise OptionError("a function with mesh= cannot be split, since devices could decide differently")
        self._given = {**options, "mesh": mesh, "in_axes": in_axes, "out_axes": out_axes}
        self._options: Options = checked_kernel_graph_options(**{**options, "device": mesh.names})
        self._mesh, self._in_axes, self._out_axes, self._same_bits = mesh, in_axes, out_axes, same_bits
        self._parameters = DecoratedFunctionParameters(function, self._options.static)
        functools.update_wrapper(self, function)
        self._function = function
        self._versions = Specializations(function, self._parameters.name, self._options)
        self._maker = MultiDevicePlanMaker(self._options)
        self._ready: dict[Any, MeshExecutable] = {}
        self._known: dict[Any, MeshExecutable] = {}  # by what calls give that give nothing but arrays on the mesh
        self._lock = threading.RLock()
        self._of_other_byte_order: MeshFunction | None = None  # the same function, whose traces may not ask for that

    def __call__(self, *args: Any, **options: Any) -> Any:
        """The results as `kg.Sharded`. Raises UserError at the user's line."""
        if context.trace is not None:
            raise ArgumentsError(f"{self._parameters.name} runs on a mesh, which a traced function cannot call")
        try:
            if not (options or settings.special) and (known := self._cached_mesh_executable(args)) is not None:
                given = [args[leaf].parts[place] for leaf, place in known.parts]
                return self._run_mesh_executable(known, given, ())
            args, options = self._parameters.bind(args, options)
            return self._call_with_properties(args, options)
        except Exception as error:
            raise error_at_user_line(error)  # noqa: B904  # the same one

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    def _call_with_properties(self, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """A call, again with each cached property of an argument that its trace needs."""
        try:
            return self._call_on_mesh(args, options)
        except UnfinishedFunction as unfinished:
            raise unfinished.error from None

    def plan(self, *args: Any, **options: Any) -> Plan:
        """The tasks of a call on streams of all devices, with copies and collectives."""
        try:
            tree, _, local, _ = self._mesh_argument_leaves(*self._parameters.bind(args, options))
            executable = self._mesh_executable_for_arguments(tree, local, ()).executable
            return (executable.executable if isinstance(executable, WayTrial) else executable).plan
        except Exception as error:
            raise error_at_user_line(error)  # noqa: B904  # the same one

    def explain(self, *args: Any, **options: Any) -> str:
        """How the devices of a call exchange arrays, and why; then its plan."""
        plan = self.plan(*args, **options)
        reasons = dict.fromkeys(event.text for event in self._versions.log if event.kind == "exchanges")
        return "\n".join((*reasons, str(plan)))

    def why(self) -> str:
        """What was traced and compiled so far, and which guards failed."""
        return "\n".join(event.text for event in self._versions.log)

    def _call_on_mesh(self, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        if settings.disable:
            raise ArgumentsError("a function on a mesh does not run with KERNELGRAPH_DISABLE=1")
        if self._versions.native and not all(
            x.dtype.isnative
            for x in flatten_arguments_of_call(self._parameters, args, options)[1]
            if isinstance(x, np.ndarray)
        ):
            made = self._of_other_byte_order or MeshFunction(self._function, same_bits=self._same_bits, **self._given)
            made._versions.native, self._of_other_byte_order = False, made
            return made._call_on_mesh(args, options)
        tree, leaves, local, axes = self._mesh_argument_leaves(args, options)
        found = self._mesh_executable_for_arguments(tree, local, ())
        try:
            numbers = found.captured.host(local)
        except Exception:  # which do not fit the trace: they are taken by value
            found = self._mesh_executable_for_arguments(
                tree, local, [i for i, leaf in enumerate(local) if is_number(leaf)]
            )
            numbers = found.captured.host(local)
        mesh, own = self._mesh, found.captured.arrays
        given = [
            part_for_mesh_device(leaves[leaf], mesh, axes[leaf], mesh.first + place)
            if leaf < len(leaves)
            else kernel_readable_copy(own[leaf - len(leaves)])
            for leaf, place in found.parts
        ]
        if not (own or found.takes_numbers) and (key := self._key_of_mesh_arguments(leaves)) is not None:
            remember_in_bounded_cache(self._known, (*key, len(args)), found)
        return self._run_mesh_executable(found, given, numbers)

    def _key_of_mesh_arguments(self, given: Sequence[Any]) -> tuple[Any, ...] | None:
        """What tells calls apart that give nothing but arrays on the mesh; None for others."""
        mesh, key = self._mesh, []
        for x in given:
            if type(x) is not Sharded or (x.mesh is not mesh and x.mesh != mesh):
                return None
            key.append((x.parts[0]._spec, x.axis))
        return tuple(key)

    def _cached_mesh_executable(self, args: tuple[Any, ...]) -> MeshExecutable | None:
        """What runs a call, if there was one like it, and it is still right."""
        key = self._key_of_mesh_arguments(args)
        found = None if key is None else self._known.get((*key, len(args)))
        return found if found is not None and found.captured.guards.hold() else None

    def _run_mesh_executable(self, ready: MeshExecutable, given: Sequence[Any], numbers: Sequence[Any]) -> Any:
        captured, count = ready.captured, len(self._mesh.positions)
        executable, specs = ready.executable, ready.specs
        if type(executable) is WayTrial:
            arrays = executable.run(given, numbers, specs)
        else:
            arrays = run_plan(executable, given, numbers, specs)  # type: ignore[arg-type]
        results: list[Any] = []
        for (kind, x), axis in zip(captured.results, ready.axes, strict=True):
            if kind == "array":
                results.append(Sharded(arrays[x * count : (x + 1) * count], self._mesh, axis))
            elif kind == "item":
                results.append(item_of_result(arrays[x[0] * count], x))
            else:
                results.append(numbers[x] if kind == "number" else x)
        return unflatten(captured.tree, results)

    def _mesh_argument_leaves(
        self, args: tuple[Any, ...], options: dict[str, Any]
    ) -> tuple[Tree, list[Any], list[Any], list[Any]]:
        """The structure of the arguments, their leaves, one device's share of each, and their axes."""
        tree, leaves = flatten_arguments_of_call(self._parameters, args, options)
        positional, named = tree.children
        wanted = [*positional.children, *named.children]
        axes: list[Any] = []
        for part, axis in zip(
            wanted, _mesh_axis_for_each_value(self._in_axes, len(wanted), "in_axes", "parameters"), strict=True
        ):
            axes += [axis] * _count_mesh_leaves(part)
        local = []
        for i, leaf in enumerate(leaves):
            if isinstance(leaf, Sharded):
                local.append(self._spec_on_one_device(leaf, axes[i]))
                axes[i] = leaf.axis
                continue
            leaf = leaf if type(leaf) in LEAF_TYPES else to_call_leaf(leaf)
            leaves[i] = leaf
            if isinstance(leaf, (Array, np.ndarray, np.generic, Spec)):
                shape = tuple(leaf.shape)
                if axes[i] is not None:
                    axes[i] = local_axis(shape, self._mesh, axes[i])
                    shape = shape_of_part(shape, self._mesh, axes[i])
                local.append(spec_of(ArrayType(shape, native_byte_order(leaf.dtype))))
            else:
                local.append(leaf)
        return tree, leaves, local, axes

    def _spec_on_one_device(self, given: Sharded, axis: Any) -> Spec:
        if given.mesh != self._mesh:
            raise ArgumentsError(f"an argument is on {given.mesh}, and {self._parameters.name} runs on {self._mesh}")
        axis = axis % max(1, given.ndim) if isinstance(axis, int) else axis_on_mesh(self._mesh, axis, given.ndim)
        if given.axis != axis:
            raise ArgumentsError(
                f"an argument is split along axis {given.axis}, and in_axes says {axis}; write kg.shard or kg.replicate"
            )
        return given.parts[0]._spec

    def _mesh_executable_for_arguments(self, tree: Tree, local: Sequence[Any], known: Sequence[int]) -> MeshExecutable:
        """What runs a call. known: the numbers to take by value."""
        with self._lock, _trace_on_mesh(self._mesh):
            try:
                captured = self._versions.trace(tree, local, frozenset(known))[0]
            except NeedOpenedArguments:
                raise self._argument_assignment_error() from None
            found = self._ready.get(id(captured))
            if found is None or found.captured is not captured:
                found = self._make_mesh_executable(captured, len(local))
                remember_in_bounded_cache(self._ready, id(captured), found)
            return found

    def _argument_assignment_error(self) -> ArgumentsError:
        name = self._parameters.name
        return ArgumentsError(f"{name} assigns to an argument, of which each device has a copy; return the new one")

    def _make_mesh_executable(self, captured: TracedFunction, leaves: int) -> MeshExecutable:
        """leaves: how many a call has."""
        if captured.assigned:
            raise self._argument_assignment_error()
        if captured.watched or captured.failures:
            raise ArgumentsError(
                "kg.debug, or an error that values decide, looks at the values of one device; leave it out of "
                "functions on a mesh"
            )
        mesh = self._mesh
        try:
            graph = graph_with_exchanging_loops_unrolled(captured.graph)
            found = partition_with_exchange(graph, mesh, self._same_bits)
            executable: MultiDeviceExecutable | WayTrial = self._executable_of_partition(graph, found)
        except GraphError as error:
            raise locate_graph_error(error) from None
        if found.why:
            self._note_exchanges(found.why)
        if found.rivals:
            first = executable
            ways: dict[str, Any] = {found.way: lambda: first}
            for way in found.rivals:
                ways[way] = partial(self._executable_by_way, graph, way)
            executable = WayTrial(ways, self._note_exchanges)
        local = range(len(mesh.positions))
        specs = tuple(spec_of(captured.graph.nodes[o].type) for o in captured.graph.outputs for _ in local)
        sources = (*captured.feeds, *(leaves + i for i in range(len(captured.arrays))))
        parts = tuple((leaf, place) for leaf in sources for place in local)
        numbers = bool(captured.graph.numbers or captured.checks)
        takes_numbers = numbers or any(kind == "number" for kind, _ in captured.results)
        axes = self._axes_of_results(captured)
        return MeshExecutable(captured, executable, specs, parts, takes_numbers, axes)

    def _note_exchanges(self, text: str) -> None:
        self._versions.note(SpecializationEvent("exchanges", text))

    def _executable_by_way(self, graph: Graph, way: str) -> MultiDeviceExecutable:
        return self._executable_of_partition(graph, partition_by_way(graph, len(self._mesh), way))

    def _executable_of_partition(self, graph: Graph, exchanged: ExchangePartition) -> MultiDeviceExecutable:
        mesh, exchange = self._mesh, exchanged.communicator
        ranks, name = 1 if mesh.communicator is None else len(mesh), "" if exchange is None else exchange.name
        plan = self._maker.plan(exchanged.partition, mesh.places, graph.name, ranks, name, exchanged.reads_peers)
        plan = replace(plan, axes=f"in_axes={self._in_axes}, out_axes={self._out_axes}")
        return make_multi_device_plan_ready(plan, mesh.communicator, exchange)

    def _axes_of_results(self, captured: TracedFunction) -> tuple[Axis, ...]:
        """Along which axis each result is joined. Raises ShapeError."""
        graph, tree, several = captured.graph, captured.tree, isinstance(self._out_axes, (tuple, list))
        parts = tree.children if several and tree.kind in (tuple, list) else (tree,)
        axes: list[Any] = []
        for part, axis in zip(
            parts, _mesh_axis_for_each_value(self._out_axes, len(parts), "out_axes", "results"), strict=True
        ):
            axes += [axis] * _count_mesh_leaves(part)
        found: list[Axis] = []
        for (kind, x), axis in zip(captured.results, axes, strict=True):
            shape = graph.nodes[graph.outputs[x]].shape if kind == "array" else ()
            try:
                found.append(axis_on_mesh(self._mesh, axis, len(shape)) if kind in ("array", "item") else axis)
            except ShapeError:
                raise ShapeError(
                    f"a result of shape {shape} cannot be joined along axis {axis}; reduce it with kg.all_reduce, and "
                    "write out_axes=None"
                ) from None
        return tuple(found)

    def __repr__(self) -> str:
        return f"<kernel_graph {self._parameters} on {self._mesh}>"

    def _pickled(self) -> tuple[Callable[..., Any], Mapping[str, Any]]:
        return self._function, self._given


def _mesh_axis_for_each_value(axes: Axes, count: int, name: str, what: str) -> list[Any]:
    """An axis for each of so many, or a dict with one for names of the mesh."""
    if not isinstance(axes, (tuple, list)):
        axes = [axes] * count
    if len(axes) != count or not all(
        a is None or (isinstance(a, (int, dict)) and not isinstance(a, bool)) for a in axes
    ):
        raise OptionError(f"{name}={axes!r}: write an axis or None, or one for each of the {count} {what}")
    return list(axes)


def _count_mesh_leaves(tree: Tree) -> int:
    """The leaves of a structure."""
    return 1 if tree.kind is None else sum(map(_count_mesh_leaves, tree.children))


@contextmanager
def _trace_on_mesh(mesh: Mesh) -> Iterator[None]:
    before, context.mesh = context.mesh, mesh
    try:
        yield
    finally:
        context.mesh = before
