"""`kg.Mesh`, `kg.Sharded`, `kg.shard`, `kg.replicate`: several devices as one, and arrays that lie on all of them.

A mesh is of devices of this process, or of ranks: then each process has its own part of every array.
"""

from __future__ import annotations

from collections.abc import Sequence
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


class Mesh:
    """Devices in a row, of one kind, each once, or ranks; a function with `mesh=` runs on all of them.

    devices: their names, or how many ranks: all of `kg.distributed`, each on its default device. axis: what the row
    goes by. Raises OptionError.

    >>> kg.Mesh(["cpu:0", "cpu:1"])
    Mesh(('cpu:0', 'cpu:1'), axis='data')
    """

    __slots__ = ("_size", "axis", "communicator", "first", "names", "places")

    def __init__(self, devices: Sequence[str] | int, axis: str = "data") -> None:
        if not isinstance(axis, str):
            raise OptionError(f"axis={axis!r}: write a name, such as 'data'")
        self.axis = axis
        self.communicator: EngineCommunicator | None = None  # of the ranks of the mesh
        self.first = 0  # the place in the mesh of this process' first device
        if isinstance(devices, int) and not isinstance(devices, bool):
            self._join_ranks(devices)
            return
        if isinstance(devices, str) or not isinstance(devices, Sequence) or not devices:
            raise OptionError(f"kg.Mesh takes the names of devices, as in ('cuda:0', 'cuda:1'), not {devices!r}")
        places = [device_place_of_name(name) for name in devices]
        self.places: tuple[tuple[str, int], ...] = tuple(place for place in places if place is not None)
        if len(self.places) < len(devices) or len({*self.places}) < len(devices):
            raise OptionError(f"kg.Mesh takes the name of each device, each once, not {devices!r}")
        if len({kind for kind, _ in self.places}) > 1:
            raise OptionError(f"the devices of a mesh are of one kind, not {devices!r}")
        self.names, self._size = tuple(devices), len(devices)

    def _join_ranks(self, count: int) -> None:
        self.communicator = current()
        world = self.communicator.world
        if count != world.size:
            raise OptionError(f"kg.Mesh({count}) is of ranks, of which there are {world.size}; write that number")
        device = device_named(None)
        self.places, self.names = ((device.kind, device.index),), (name_of(device),)
        self.first, self._size = world.rank, world.size

    @property
    def devices(self) -> list[Device]:
        """Those of this process, open. Raises DeviceUnavailableError."""
        return [open_device(place) for place in self.places]

    @property
    def positions(self) -> range:
        """The places in the mesh of this process' devices."""
        return range(self.first, self.first + len(self.places))

    def __len__(self) -> int:
        return self._size

    def _identity(self) -> tuple[Any, ...]:
        return self.places, self.axis, self._size, id(self.communicator)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mesh) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def __repr__(self) -> str:
        return f"Mesh({self.names!r}, axis={self.axis!r})" if self.communicator is None else f"Mesh({len(self)})"

    def __str__(self) -> str:
        return ", ".join(self.names) if self.communicator is None else f"{len(self)} ranks"


class Sharded:
    """An array on all devices of a mesh: in parts along an axis, one for each, or (axis None) whole on each.

    parts: those of this process. On a mesh of ranks to read the whole of an array in parts is a collective.

    >>> kg.shard(np.arange(4.0), kg.Mesh(["cpu:0", "cpu:1"])).shape
    (4,)
    """

    __slots__ = ("__weakref__", "axis", "mesh", "parts")

    def __init__(self, parts: Sequence[Array], mesh: Mesh, axis: int | None) -> None:
        self.parts, self.mesh, self.axis = tuple(parts), mesh, axis

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the whole array."""
        first = self.parts[0].shape
        return tuple(n * len(self.mesh) if i == self.axis else n for i, n in enumerate(first))

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.parts[0].dtype

    @property
    def ndim(self) -> int:
        return len(self.parts[0].shape)

    @property
    def nbytes(self) -> int:
        """Of the whole array."""
        return self.parts[0].nbytes * (1 if self.axis is None else len(self.mesh))

    def wait(self) -> Sharded:
        """Wait for all parts. Raises what the work that makes them raised."""
        for part in self.parts:
            part.wait()
        return self

    def is_ready(self) -> bool:
        return all(part.is_ready() for part in self.parts)

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
        return np.concatenate(parts, axis=self.axis)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return np.array(self.numpy(), dtype) if copy else np.asarray(self.numpy(), dtype)

    def __float__(self) -> float:
        return float(self.numpy())

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        how = "whole on each of" if self.axis is None else f"in parts along axis {self.axis} on"
        return f"Sharded({self.dtype}{list(self.shape)}, {how} {self.mesh})"


def shard(x: Any, mesh: Mesh, axis: int = 0) -> Any:
    """An array in equal parts along an axis, one on each device of a mesh. x: an array, or any structure of arrays.

    The parts are copies; a `kg.Sharded` that already is as asked for comes back itself.
    Raises ShapeError where the axis is not a multiple of the mesh.

    >>> kg.shard(np.arange(4.0), kg.Mesh(["cpu:0", "cpu:1"]))
    Sharded(float64[4], in parts along axis 0 on cpu:0, cpu:1)
    """
    return _spread_over_mesh(x, mesh, axis)


def replicate(x: Any, mesh: Mesh) -> Any:
    """An array whole on each device of a mesh. x: an array, or any structure of arrays; of ranks rank 0's counts.

    Each device has a copy; a `kg.Sharded` that already is as asked for comes back itself.

    >>> np.asarray(kg.replicate(np.arange(2.0), kg.Mesh(["cpu:0", "cpu:1"]))).tolist()
    [0.0, 1.0]
    """
    return _spread_over_mesh(x, mesh, None)


def _spread_over_mesh(x: Any, mesh: Mesh, axis: int | None) -> Any:
    if not isinstance(mesh, Mesh):
        raise ArgumentsError(f"mesh={mesh!r} is no kg.Mesh")
    leaves: list[Any] = []
    tree = flatten(x, leaves)
    return unflatten(tree, [_spread_array_over_mesh(leaf, mesh, axis) for leaf in leaves])


def _spread_array_over_mesh(given: Any, mesh: Mesh, axis: int | None) -> Sharded:
    if isinstance(given, Sharded):
        if given.mesh == mesh and given.axis == axis:
            return given
        given = given.numpy()
    if axis is not None:
        axis = local_axis(np.shape(given), mesh, axis)
    if axis is None and mesh.communicator is not None and len(mesh) > 1:
        given = broadcast(np.asarray(given))
    parts = []
    for number, device in zip(mesh.positions, mesh.devices, strict=True):
        part = part_for_mesh_device(given, mesh, axis, number)
        moved = on_device(part, device)
        parts.append(first_copy_of_array(moved) if moved is part else moved)
    return Sharded(parts, mesh, axis)


def local_axis(shape: tuple[int, ...], mesh: Mesh, axis: int) -> int:
    """The axis, counted from the front. Raises ShapeError where it cannot be split."""
    if isinstance(axis, bool) or not isinstance(axis, (int, np.integer)) or not -len(shape) <= axis < len(shape):
        raise ShapeError(f"axis {axis!r} of an array of shape {shape} cannot be split; write None for a whole array")
    axis = int(axis) % len(shape)
    if shape[axis] % len(mesh):
        raise ShapeError(
            f"axis {axis} of an array of shape {shape} has {shape[axis]} rows, which {len(mesh)} devices cannot share "
            "equally; pad it, or write None for an array that is whole on each"
        )
    return axis


def part_for_mesh_device(given: Any, mesh: Mesh, axis: int | None, number: int) -> Any:
    """The part of an array that a device of the mesh has, wherever it is."""
    if isinstance(given, Sharded):
        return given.parts[number - mesh.first]
    if axis is None:
        return given
    length = np.shape(given)[axis] // len(mesh)
    key = (slice(None),) * axis + (slice(number * length, (number + 1) * length),)
    return given[key] if isinstance(given, Array) else np.asarray(given)[key]
