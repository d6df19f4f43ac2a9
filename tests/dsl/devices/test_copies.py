"""Arrays on a mesh are copies: a write to one is seen by no other, and by nothing that the caller holds."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from tests.dsl.devices.test_ranks import on_ranks

VALUES = np.arange(12.0).reshape(6, 2)


@pytest.fixture(autouse=True)
def several_devices() -> Iterator[None]:
    with kg.override(cpu_devices=4, collective_timeout=30), kg.device("cpu"):
        yield


def mesh_of(count: int) -> kg.Mesh:
    return kg.Mesh([f"cpu:{i}" for i in range(count)])


def fixed(values: Any) -> Any:
    values.flags.writeable = False
    return values


SOURCES: dict[str, Callable[[], Any]] = {
    "NumPy": lambda: VALUES.copy(),
    "steps": lambda: np.repeat(VALUES, 2, axis=0)[::2],
    "reversed": lambda: VALUES[::-1].copy()[::-1],
    "columns": lambda: VALUES.copy(order="F"),
    "read-only": lambda: fixed(VALUES.copy()),
    "big-endian": lambda: VALUES.astype(">f8"),
    "kg": lambda: kg.asarray(VALUES),
    "second device": lambda: kg.asarray(VALUES, device="cpu:1"),
    "part": lambda: kg.asarray(np.stack([VALUES, VALUES]))[1],
    "late": lambda: kg.kernel_graph(lambda x: x + 0)(VALUES),
    "whole": lambda: kg.replicate(VALUES, mesh_of(2)),
    "whole on one": lambda: kg.replicate(VALUES, mesh_of(1)),
    "in parts": lambda: kg.shard(VALUES, mesh_of(2)),
    "in columns": lambda: kg.shard(VALUES, mesh_of(2), axis=1),
}


def step(mesh: kg.Mesh, function: Callable[..., Any], axis: int | None) -> Callable[[Any], Any]:
    run = kg.kernel_graph(function, mesh=mesh, in_axes=axis, out_axes=axis)
    return lambda x: run(x if not isinstance(x, kg.Sharded) or (x.mesh, x.axis) == (mesh, axis) else np.array(x))


def train(mesh: kg.Mesh) -> Callable[[Any], Any]:
    """The parameters are not trained, and come back."""
    trained = kg.DataParallel(lambda w, x: (x @ w.T).mean(), mesh, update=lambda w, g: w)
    return lambda x: trained(trained.replicate(x), trained.shard(np.ones((6, 2))))[0]


WAYS: dict[str, Callable[[kg.Mesh], Callable[[Any], Any]]] = {
    "replicate": lambda mesh: lambda x: kg.replicate(x, mesh),
    "replicate twice": lambda mesh: lambda x: [kg.replicate(x, mesh), kg.replicate(x, mesh)],
    "replicate again": lambda mesh: lambda x: [first := kg.replicate(x, mesh), kg.replicate(first, mesh)],
    "replicate of two": lambda mesh: lambda x: kg.replicate({"a": x, "b": [x]}, mesh)["b"][0],
    "shard": lambda mesh: lambda x: kg.shard(x, mesh),
    "shard columns": lambda mesh: lambda x: kg.shard(x, mesh, axis=-1),
    "shard again": lambda mesh: lambda x: [first := kg.shard(x, mesh), kg.shard(first, mesh)],
    "same": lambda mesh: step(mesh, lambda x: x, None),
    "same twice": lambda mesh: step(mesh, lambda x: (x, x), None),
    "same parts": lambda mesh: step(mesh, lambda x: (x, x[:]), 0),
    "views": lambda mesh: step(mesh, lambda x: (x[1:], x.T), None),
    "training": train,
}


def arrays_of(thing: Any) -> list[Any]:
    if isinstance(thing, (list, tuple)):
        return [array for each in thing for array in arrays_of(each)]
    return [*thing.parts] if isinstance(thing, kg.Sharded) else [thing]


def check_nothing_is_shared(arrays: list[Any]) -> None:
    arrays = [*{id(array): array for array in arrays}.values()]  # what is there already comes back itself
    held = [np.array(array) for array in arrays]
    for number in [*range(len(arrays)), *reversed(range(len(arrays)))]:
        try:
            arrays[number][...] = number + 50
        except ValueError:  # read-only
            continue
        held[number][...] = number + 50
        for other, (array, values) in enumerate(zip(arrays, held, strict=True)):
            np.testing.assert_array_equal(array, values, err_msg=f"{other} after a write to {number}")


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("way", WAYS)
def test_nothing_is_shared(way: str, count: int) -> None:
    make = WAYS[way](mesh_of(count))
    for name in SOURCES:
        source = SOURCES[name]()
        values = np.array(source)
        made = make(source)
        np.testing.assert_array_equal(values, np.array(source))
        check_nothing_is_shared([*arrays_of(source), *arrays_of(made)])


def test_parts_can_be_written_to() -> None:
    """Also those of an array that is a part of another, or is cut."""
    for name, axis in itertools.product(SOURCES, (None, 0, 1)):
        source, mesh = SOURCES[name](), mesh_of(2)
        made = kg.replicate(source, mesh) if axis is None else kg.shard(source, mesh, axis)
        for part in made.parts:
            part[...] = 7
        np.testing.assert_array_equal(np.array(made), np.full((6, 2), 7.0))


def test_nothing_is_shared_by_ranks() -> None:
    """Ranks that are threads could."""
    every: dict[int, list[Any]] = {}

    def run() -> None:
        source, mesh, rank = VALUES.copy(), kg.Mesh(kg.distributed.size()), kg.distributed.rank()
        whole, own = kg.asarray(VALUES), kg.distributed
        made = [own.broadcast(source), own.all_gather(source), own.all_reduce(source), kg.replicate(source, mesh)]
        made += [kg.replicate(whole, mesh), kg.shard(whole, mesh), kg.replicate(made[-1], mesh)]
        every[rank] = [source, whole, *arrays_of(made)]
        own.barrier()
        if not rank:
            check_nothing_is_shared([array for arrays in every.values() for array in arrays])
        own.barrier()

    for size in (1, 2):
        every.clear()
        on_ranks(size, run)


def test_what_is_loaded_is_not_shared(tmp_path: Path) -> None:
    mesh = mesh_of(2)
    saved = {"w": kg.replicate(VALUES, mesh), "x": kg.shard(VALUES, mesh), "y": VALUES}
    kg.save_sharded(tmp_path, saved)
    loaded = [kg.load_sharded(tmp_path, on) for on in (mesh, mesh, None, mesh_of(3))]
    check_nothing_is_shared(arrays_of([[*values.values()] for values in (saved, *loaded)]))
