"""Values of a mesh in files, a file for each part, which a mesh of another size reads: `kg.save_sharded`,
`kg.load_sharded`.

The folder holds `values.json`, which says what there is, and `NUMBER.PART.npy` for each part of each array. Each rank
writes its own parts, and reads what it needs of others'; `values.json` comes last, so a folder with one is complete.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from ...runtime.engine.communicator import EngineCommunicator, rank_agreement_on_collective
from ...runtime.program.world import Host
from ..array.array import on_device
from ..core.errors import ArgumentsError, OptionError
from ..core.spec import checked_dtype
from .distributed import current
from .mesh import Mesh, Sharded, local_axis

CONTENTS = "values.json"
CONTAINERS = {"list": list, "tuple": tuple}


def save_sharded(folder: str | os.PathLike[str], values: Any) -> None:
    """Write what is on a mesh to a folder that all ranks see. All ranks call it, and each writes its parts.

    Parameters
    ----------
    folder : str or os.PathLike[str]
        Its path.
    values
        `kg.Sharded`, arrays and numbers (those of rank 0 count), in dicts with strings or whole numbers as keys, lists
        and tuples.

    Raises
    ------
    ArgumentsError
    DTypeError

    Examples
    --------
    >>> import tempfile
    >>> folder, mesh = tempfile.mkdtemp(), kg.Mesh(["cpu:0", "cpu:1"])
    >>> kg.save_sharded(folder, {"w": kg.shard(np.arange(4.0), mesh)})
    >>> kg.load_sharded(folder, kg.Mesh(["cpu:0"]))["w"].numpy().tolist()
    [0.0, 1.0, 2.0, 3.0]
    """
    into, leaves = Path(folder), list[Any]()
    structure = _checkpoint_structure_as_json(values, leaves)
    arrays = [leaf if isinstance(leaf, Sharded) else _host_array_for_checkpoint(leaf) for leaf in leaves]
    ranks = _communicator_of_ranks()
    first = ranks is None or ranks.world.rank == 0
    if first:
        into.mkdir(parents=True, exist_ok=True)
        (into / CONTENTS).unlink(missing_ok=True)
    _wait_for_ranks(ranks, f"kg.save_sharded of {json.dumps(structure)} begins")
    for number, array in enumerate(arrays):
        if isinstance(array, Sharded):
            for place, part in zip(array.mesh.positions, array.parts, strict=True):
                if array.axis is not None or place == 0:
                    _write_checkpoint_part(into / f"{number}.{place}.npy", part.numpy())
        elif first:
            _write_checkpoint_part(into / f"{number}.0.npy", array)
    _wait_for_ranks(ranks, f"kg.save_sharded of {len(leaves)} arrays ends")
    if first:
        content = {"structure": structure, "arrays": [_sharded_checkpoint_entry(array) for array in arrays]}
        unfinished = into / f"{CONTENTS}.new"
        unfinished.write_text(json.dumps(content))
        unfinished.replace(into / CONTENTS)
    _wait_for_ranks(ranks, f"kg.save_sharded of {len(leaves)} arrays is over")


def load_sharded(folder: str | os.PathLike[str], mesh: Mesh | None = None) -> Any:
    """The values that `save_sharded` wrote, split along the same axes on any mesh.

    Parameters
    ----------
    folder : str or os.PathLike[str]
        Its path.
    mesh : Mesh, optional
        None for NumPy arrays. What was no `kg.Sharded` is a NumPy array.

    Returns
    -------
    object

    Raises
    ------
    ArgumentsError
        Where the folder is not complete, ShapeError where an axis cannot be shared equally.

    Examples
    --------
    >>> import tempfile
    >>> folder, mesh = tempfile.mkdtemp(), kg.Mesh(["cpu:0", "cpu:1"])
    >>> kg.save_sharded(folder, [kg.replicate(np.ones(2), mesh), 3])
    >>> [x.tolist() for x in kg.load_sharded(folder)]
    [[1.0, 1.0], 3]
    """
    if mesh is not None and not isinstance(mesh, Mesh):
        raise OptionError(f"mesh={mesh!r} is no kg.Mesh")
    source = Path(folder)
    try:
        content = json.loads((source / CONTENTS).read_text())
    except OSError:
        raise ArgumentsError(f"{source} holds no {CONTENTS}, which kg.save_sharded writes last") from None
    except ValueError as error:
        raise ArgumentsError(f"{source / CONTENTS} is not whole ({error}); kg.save_sharded writes it last") from None
    found = [_load_checkpoint_array(source, number, entry, mesh) for number, entry in enumerate(content["arrays"])]
    return _structure_of_sharded_checkpoint(content["structure"], found)


def _checkpoint_structure_as_json(value: Any, leaves: list[Any]) -> Any:
    """A structure as JSON has it; its leaves are appended."""
    if isinstance(value, dict):
        for key in value:
            if isinstance(key, bool) or not isinstance(key, (str, int)):
                raise ArgumentsError(f"{key!r} is no key of values that are saved; write a string or a whole number")
        return {"dict": [[key, _checkpoint_structure_as_json(one, leaves)] for key, one in value.items()]}
    for name, kind in CONTAINERS.items():
        if type(value) is kind:
            return {name: [_checkpoint_structure_as_json(one, leaves) for one in value]}
    leaves.append(value)
    return len(leaves) - 1


def _structure_of_sharded_checkpoint(structure: Any, arrays: list[Any]) -> Any:
    if isinstance(structure, int):
        return arrays[structure]
    ((name, parts),) = structure.items()
    if name == "dict":
        return {key: _structure_of_sharded_checkpoint(one, arrays) for key, one in parts}
    return CONTAINERS[name](_structure_of_sharded_checkpoint(one, arrays) for one in parts)


def _host_array_for_checkpoint(leaf: Any) -> Host:
    """Raises DTypeError for what is no array of numbers."""
    array = np.asarray(leaf)
    return np.asarray(array, checked_dtype(array.dtype.newbyteorder("=")))


def _sharded_checkpoint_entry(array: Sharded | Host) -> dict[str, Any]:
    sharded = isinstance(array, Sharded)
    axis = array.axis if isinstance(array, Sharded) else None
    if isinstance(axis, tuple):
        raise ArgumentsError("an array in parts along some dimensions of a mesh is not saved; write kg.shard(x, mesh)")
    parts = len(array.mesh) if isinstance(array, Sharded) and axis is not None else 1
    return {"shape": array.shape, "dtype": str(array.dtype), "axis": axis, "parts": parts, "sharded": sharded}


def _write_checkpoint_part(path: Path, array: Host) -> None:
    """Dtypes that NumPy's files do not have are written as whole numbers."""
    plain = array if array.dtype.isbuiltin == 1 else np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")
    np.save(path, plain)


def _load_checkpoint_array(source: Path, number: int, entry: dict[str, Any], mesh: Mesh | None) -> Any:
    shape, axis = tuple(entry["shape"]), entry["axis"]
    if mesh is None or not entry["sharded"]:
        return _read_checkpoint_rows(source, number, entry, 0, shape[axis] if axis is not None else 1)
    if axis is None:
        return _sharded_from_parts(
            [_read_checkpoint_rows(source, number, entry, 0, 1)] * len(mesh.positions), mesh, None
        )
    local_axis(shape, mesh, axis)
    rows = shape[axis] // len(mesh)
    parts = [_read_checkpoint_rows(source, number, entry, place * rows, (place + 1) * rows) for place in mesh.positions]
    return _sharded_from_parts(parts, mesh, axis)


def _sharded_from_parts(parts: list[Host], mesh: Mesh, axis: int | None) -> Sharded:
    return Sharded([on_device(p, device) for p, device in zip(parts, mesh.devices, strict=True)], mesh, axis)


def _read_checkpoint_rows(source: Path, number: int, entry: dict[str, Any], start: int, stop: int) -> Host:
    """Rows start to stop along an array's axis, of the files that hold some; all of what is not in parts."""
    axis, count, dtype = entry["axis"], entry["parts"], checked_dtype(entry["dtype"])
    length = entry["shape"][axis] // count if axis is not None else 1
    pieces = []
    for part in range(count):
        low, high = max(start, part * length), min(stop, (part + 1) * length)
        if low < high or (start == stop and part == 0):
            path = source / f"{number}.{part}.npy"
            try:
                whole = np.load(path, mmap_mode="r")
                shape = tuple(length if i == axis else n for i, n in enumerate(entry["shape"]))
                if whole.shape != shape or whole.dtype.itemsize != dtype.itemsize:
                    raise ValueError(f"it holds {whole.dtype}{list(whole.shape)}, not {dtype}{list(shape)}")
            except (OSError, ValueError, EOFError) as error:
                raise ArgumentsError(
                    f"{path} cannot be read ({error}); the folder is one that all ranks see, with a file for each part"
                ) from None
            rows = slice(low - part * length, high - part * length)
            pieces.append(np.asarray(whole if axis is None else whole[(slice(None),) * axis + (rows,)]))
    found = np.array(pieces[0]) if len(pieces) == 1 else np.concatenate(pieces, axis=axis)
    return found if found.dtype == dtype else found.view(dtype)


def _communicator_of_ranks() -> EngineCommunicator | None:
    try:
        return current()
    except ArgumentsError:
        return None


def _wait_for_ranks(ranks: EngineCommunicator | None, doing: str) -> None:
    if ranks is not None:
        ranks.run(rank_agreement_on_collective(doing))
