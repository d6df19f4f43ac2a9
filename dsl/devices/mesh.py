"""`kg.Mesh`, `kg.Sharded`, `kg.shard`, `kg.replicate`: several devices as one, and arrays that lie on all of them.

A mesh is of devices of this process, or of ranks: then each process has its own part of every array.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping, Sequence
from typing import Any

import numpy as np

from ...runtime.engine.communicator import EngineCommunicator, rank_agreement_on_collective
from ...runtime.program.device import Device
from ..array.array import Array, on_device
from ..array.devices import device_named, device_place_of_name, name_of, open_device
from ..core.errors import ArgumentsError, OptionError, ShapeError
from ..core.pytree import flatten, unflatten
from .copies import first_copy_of_array
from .distributed import broadcast, current

Axis = int | None | tuple[int | None, ...]  # of an array; a tuple has one for each dimension of the mesh


class Mesh:
    """Devices of one kind, or ranks, in one or more dimensions. A function with `mesh=` runs on all of them.

    Parameters
    ----------
    *devices
        Their names, in lists within lists for more dimensions; or how many ranks there are along each: all of
        `kg.distributed`, each on its default device.
    axis : str, default 'data'
        The axis of a mesh with one.
    names : Sequence[str], optional
        What the dimensions go by.

    Raises
    ------
    OptionError

    Examples
    --------
    >>> kg.Mesh(["cpu:0", "cpu:1"])
    Mesh(('cpu:0', 'cpu:1'), axis='data')
    """

    __slots__ = ("_size", "axes", "communicator", "first", "names", "places", "shape")

    def __init__(self, *devices: Any, axis: str = "data", names: Sequence[str] | None = None) -> None:
        if devices[1:] and isinstance(devices[-1], str):  # an axis by its place
            *devices, axis = devices  # type: ignore[assignment]
        if not isinstance(axis, str):
            raise OptionError(f"axis={axis!r}: write a name, such as 'data'")
        self.communicator: EngineCommunicator | None = None  # of the ranks of the mesh
        self.first = 0  # the place in the mesh of this process' first device
        if devices and all(isinstance(n, int) and not isinstance(n, bool) for n in devices):
            self.shape: tuple[int, ...] = tuple(devices)
            self._join_ranks(self.shape)
        else:
            self._take_devices(devices[0] if len(devices) == 1 else devices)
        self.axes: tuple[str, ...] = (axis,) if names is None else tuple(names)
        wrong = isinstance(names, str) or not all(isinstance(name, str) for name in self.axes)
        if wrong or len({*self.axes}) != len(self.shape):
            raise OptionError(f"names={names!r}: write a name for each of the {len(self.shape)} dimensions of the mesh")

    def _take_devices(self, given: Any) -> None:
        names, shape = _names_and_shape(given)
        places = [device_place_of_name(name) for name in names]
        self.places: tuple[tuple[str, int], ...] = tuple(place for place in places if place is not None)
        if len(self.places) < len(names) or len({*self.places}) < len(names):
            raise OptionError(f"kg.Mesh takes the name of each device, each once, not {given!r}")
        if len({kind for kind, _ in self.places}) > 1:
            raise OptionError(f"the devices of a mesh are of one kind, not {given!r}")
        self.names, self.shape, self._size = names, shape, len(names)

    def _join_ranks(self, shape: tuple[int, ...]) -> None:
        self.communicator = current()
        world = self.communicator.world
        if math.prod(shape) != world.size or min(shape) < 1:
            raise OptionError(
                f"kg.Mesh({', '.join(map(str, shape))}) is of ranks, of which there are {world.size}; write numbers "
                "whose product that is"
            )
        device = device_named(None)
        self.places, self.names = ((device.kind, device.index),), (name_of(device),)
        self.first, self._size = world.rank, world.size

    @property
    def axis(self) -> str:
        """What the first dimension goes by."""
        return self.axes[0]

    def dimension(self, name: str) -> int:
        """The place of a dimension.

        Raises
        ------
        OptionError
        """
        if name not in self.axes:
            raise OptionError(f"{name!r} is none of the mesh's names {', '.join(map(repr, self.axes))}")
        return self.axes.index(name)

    def groups_along(self, name: str) -> tuple[tuple[int, ...], ...]:
        """The places of the devices that differ along one dimension alone.

        Raises
        ------
        OptionError
        """
        found = np.moveaxis(np.arange(len(self)).reshape(self.shape), self.dimension(name), -1)
        return tuple(tuple(group) for group in found.reshape(-1, found.shape[-1]).tolist())

    @property
    def devices(self) -> list[Device]:
        """Those of this process, open.

        Raises
        ------
        DeviceUnavailableError
        """
        return [open_device(place) for place in self.places]

    @property
    def positions(self) -> range:
        """The places in the mesh of this process' devices."""
        return range(self.first, self.first + len(self.places))

    def __len__(self) -> int:
        return self._size

    def _identity(self) -> tuple[Any, ...]:
        return self.places, self.axes, self.shape, id(self.communicator)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mesh) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def __repr__(self) -> str:
        if len(self.shape) > 1:
            of = np.array(self.names).reshape(self.shape).tolist() if self.communicator is None else self.shape
            return f"Mesh({', '.join(map(repr, of))}, names={self.axes!r})"
        return f"Mesh({self.names!r}, axis={self.axis!r})" if self.communicator is None else f"Mesh({len(self)})"

    def __str__(self) -> str:
        return ", ".join(self.names) if self.communicator is None else f"{len(self)} ranks"


def _names_and_shape(given: Any) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Names in lists within lists, in a row, and how many there are along each dimension. Raises OptionError."""
    if isinstance(given, str) or not isinstance(given, Sequence) or not given:
        raise OptionError(f"kg.Mesh takes the names of devices, as in ('cuda:0', 'cuda:1'), not {given!r}")
    if all(isinstance(name, str) for name in given):
        return tuple(given), (len(given),)
    rows = [_names_and_shape(row) for row in given]
    if len({shape for _, shape in rows}) > 1:
        raise OptionError(f"the rows of a mesh are of one length, not as in {given!r}")
    return tuple(name for names, _ in rows for name in names), (len(rows), *rows[0][1])


def axis_on_mesh(mesh: Mesh, axis: Any, ndim: int) -> Axis:
    """An axis of an array with so many, counted from the front: a number, None, or (where a dict has an axis for some
    of the mesh's names) one for each dimension. Raises ShapeError, OptionError."""
    if isinstance(axis, Mapping):
        by_place = {mesh.dimension(name): one for name, one in axis.items()}
        axis = tuple(by_place.get(place) for place in range(len(mesh.shape)))
    if isinstance(axis, tuple) and len(axis) == len(mesh.shape):
        each = [axis_on_mesh(mesh, one, ndim) for one in axis]
        return each[0] if len({*each}) == 1 else tuple(each)  # type: ignore[arg-type]
    if axis is None:
        return None
    if isinstance(axis, bool) or not isinstance(axis, (int, np.integer)) or not -ndim <= axis < ndim:
        raise ShapeError(f"axis {axis!r} of an array of {ndim} axes cannot be split; write None for a whole array")
    return int(axis) % ndim


def counts_of_parts(mesh: Mesh, axis: Axis) -> dict[int, int]:
    """In how many parts an array lies along which of its axes."""
    counts: dict[int, int] = {}
    for length, one in zip(mesh.shape, _axis_of_each_dimension(mesh, axis), strict=True):
        if one is not None:
            counts[one] = counts.get(one, 1) * length
    return counts


def place_of_part(mesh: Mesh, axis: Axis, number: int) -> dict[int, int]:
    """Which part along these axes a device of the mesh has."""
    places: dict[int, int] = {}
    for length, place, one in zip(
        mesh.shape, np.unravel_index(number, mesh.shape), _axis_of_each_dimension(mesh, axis), strict=True
    ):
        if one is not None:
            places[one] = places.get(one, 0) * length + int(place)
    return places


def _axis_of_each_dimension(mesh: Mesh, axis: Axis) -> tuple[int | None, ...]:
    return axis if isinstance(axis, tuple) else (axis,) * len(mesh.shape)


def shape_of_part(shape: Sequence[int], mesh: Mesh, axis: Axis) -> tuple[int, ...]:
    counts = counts_of_parts(mesh, axis)
    return tuple(n // counts.get(i, 1) for i, n in enumerate(shape))


class Sharded:
    """An array on all devices of a mesh, in parts or whole on each. Whole is axis None.

    On a mesh with more dimensions an array may be in parts along one and whole along another. Then `axis` has one for
    each.

    Attributes
    ----------
    parts
        Those of this process. On a mesh of ranks to read the whole of an array in parts is a collective.

    Examples
    --------
    >>> kg.shard(np.arange(4.0), kg.Mesh(["cpu:0", "cpu:1"])).shape
    (4,)
    """

    __slots__ = ("__weakref__", "axis", "mesh", "parts")

    def __init__(self, parts: Sequence[Array], mesh: Mesh, axis: Axis) -> None:
        self.parts, self.mesh, self.axis = tuple(parts), mesh, axis

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the whole array."""
        counts = counts_of_parts(self.mesh, self.axis)
        return tuple(n * counts.get(i, 1) for i, n in enumerate(self.parts[0].shape))

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.parts[0].dtype

    @property
    def ndim(self) -> int:
        return len(self.parts[0].shape)

    @property
    def nbytes(self) -> int:
        """Of the whole array."""
        return self.parts[0].nbytes * math.prod(counts_of_parts(self.mesh, self.axis).values())

    def wait(self) -> Sharded:
        """Wait for all parts. Raises what the work that makes them raised."""
        for part in self.parts:
            part.wait()
        return self

    def is_ready(self) -> bool:
        return all(part.is_ready() for part in self.parts)

    def __await__(self) -> Generator[Any, None, Sharded]:
        for part in self.parts:
            yield from part.__await__()
        return self

    def numpy(self) -> np.ndarray[Any, Any]:
        """The whole array, its parts joined."""
        if self.axis is None:
            return self.parts[0].numpy()
        parts = [part.numpy() for part in self.parts]
        communicator = self.mesh.communicator
        if communicator is not None:
            own = np.ascontiguousarray(parts[0])
            every = np.empty((len(self.mesh), *own.shape), own.dtype)
            raw, whole = own.reshape(-1).view(np.uint8), every.reshape(-1).view(np.uint8)
            agreement = rank_agreement_on_collective(f"reading along axis {self.axis}", self.dtype, self.shape)
            communicator.run(agreement, lambda: communicator.world.all_gather(raw, whole))
            parts = list(every)
        if isinstance(self.axis, int):
            return np.concatenate(parts, axis=self.axis)
        whole = np.empty(self.shape, self.dtype)
        for number, part in enumerate(parts):
            whole[key_of_part(self.shape, self.mesh, self.axis, number)] = part
        return whole

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return np.array(self.numpy(), dtype) if copy else np.asarray(self.numpy(), dtype)

    def __float__(self) -> float:
        return float(self.numpy())

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        how = "whole on each of" if self.axis is None else f"in parts along axis {self.axis} on"
        if isinstance(self.axis, tuple):
            along = [
                f"{one} by {name!r}" for one, name in zip(self.axis, self.mesh.axes, strict=True) if one is not None
            ]
            how = f"in parts along axis {', '.join(along)} on"
        return f"Sharded({self.dtype}{list(self.shape)}, {how} {self.mesh})"


def shard(x: Any, mesh: Mesh, axis: Any = 0) -> Any:
    """An array in equal parts along an axis, one on each device of a mesh.

    The parts are copies; a `kg.Sharded` that already is as asked for comes back itself.

    Parameters
    ----------
    x : array_like
        An array, or any structure of arrays.
    mesh : Mesh
        A `kg.Mesh`.
    axis : int, default 0
        `{"data": 0}` for parts along that dimension of the mesh alone.

    Returns
    -------
    Sharded

    Raises
    ------
    ShapeError
        Where the axis is not a multiple of the mesh.

    Examples
    --------
    >>> kg.shard(np.arange(4.0), kg.Mesh(["cpu:0", "cpu:1"]))
    Sharded(float64[4], in parts along axis 0 on cpu:0, cpu:1)
    """
    return _spread_over_mesh(x, mesh, axis)


def replicate(x: Any, mesh: Mesh) -> Any:
    """An array whole on each device of a mesh.

    Each device has a copy; a `kg.Sharded` that already is as asked for comes back itself.

    Parameters
    ----------
    x : array_like
        An array, or any structure of arrays; of ranks rank 0's counts.
    mesh : Mesh
        A `kg.Mesh`.

    Returns
    -------
    Sharded

    Raises
    ------
    ArgumentsError
        For a mesh of ranks before `kg.distributed.init`.

    Examples
    --------
    >>> np.asarray(kg.replicate(np.arange(2.0), kg.Mesh(["cpu:0", "cpu:1"]))).tolist()
    [0.0, 1.0]
    """
    return _spread_over_mesh(x, mesh, None)


def _spread_over_mesh(x: Any, mesh: Mesh, axis: Any) -> Any:
    if not isinstance(mesh, Mesh):
        raise ArgumentsError(f"mesh={mesh!r} is no kg.Mesh")
    leaves: list[Any] = []
    tree = flatten(x, leaves)
    return unflatten(tree, [_spread_array_over_mesh(leaf, mesh, axis) for leaf in leaves])


def _spread_array_over_mesh(given: Any, mesh: Mesh, axis: Any) -> Sharded:
    axis = axis if axis is None else local_axis(np.shape(given), mesh, axis)
    if isinstance(given, Sharded):
        if given.mesh == mesh and given.axis == axis:
            return given
        given = given.numpy()
    if axis is None and mesh.communicator is not None and len(mesh) > 1:
        given = broadcast(np.asarray(given))
    parts = []
    for number, device in zip(mesh.positions, mesh.devices, strict=True):
        part = part_for_mesh_device(given, mesh, axis, number)
        moved = on_device(part, device)
        parts.append(first_copy_of_array(moved) if moved is part else moved)
    return Sharded(parts, mesh, axis)


def local_axis(shape: tuple[int, ...], mesh: Mesh, axis: Any) -> Axis:
    """The axis, counted from the front. Raises ShapeError where it cannot be split."""
    found = axis_on_mesh(mesh, axis, len(shape))
    for one, count in counts_of_parts(mesh, found).items():
        if shape[one] % count:
            raise ShapeError(
                f"axis {one} of an array of shape {shape} has {shape[one]} rows, which {count} devices cannot share "
                "equally; pad it, or write None for an array that is whole on each"
            )
    return found


def key_of_part(shape: Sequence[int], mesh: Mesh, axis: Axis, number: int) -> tuple[slice, ...]:
    """Where in the whole array the part of a device of the mesh is."""
    counts, places = counts_of_parts(mesh, axis), place_of_part(mesh, axis, number)
    lengths = {one: shape[one] // count for one, count in counts.items()}
    return tuple(
        slice(places[i] * lengths[i], (places[i] + 1) * lengths[i]) if i in lengths else slice(None)
        for i in range(1 + max(lengths, default=-1))
    )


def part_for_mesh_device(given: Any, mesh: Mesh, axis: Axis, number: int) -> Any:
    """The part of an array that a device of the mesh has, wherever it is."""
    if isinstance(given, Sharded):
        return given.parts[number - mesh.first]
    if axis is None:
        return given
    key = key_of_part(np.shape(given), mesh, axis, number)
    return given[key] if isinstance(given, Array) else np.asarray(given)[key]
