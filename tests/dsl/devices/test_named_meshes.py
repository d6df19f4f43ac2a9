"""Meshes of several dimensions: how arrays lie on them, and what devices exchange along a name, beside NumPy."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from tests.counts import examples
from tests.dsl.devices.test_mpi import on_mpi
from tests.dsl.devices.test_ranks import error_of, on_ranks

SHAPES = ((2, 2), (2, 3), (4, 1), (1, 3), (2, 1, 2), (4,))
NAMES = ("data", "model", "pipe")


@pytest.fixture(autouse=True)
def six() -> Iterator[None]:
    with kg.override(cpu_devices=6, verify=True, collective_timeout=30):
        yield


def mesh_of(shape: tuple[int, ...], ranks: bool = False) -> kg.Mesh:
    names = NAMES[: len(shape)]
    if ranks:
        return kg.Mesh(*shape, names=names)
    return kg.Mesh(np.array([f"cpu:{i}" for i in range(math.prod(shape))]).reshape(shape).tolist(), names=names)


def groups(shape: tuple[int, ...], along: str | None) -> list[list[int]]:
    every = np.arange(math.prod(shape)).reshape(shape)
    if along is None:
        return [every.reshape(-1).tolist()]
    return [list(row) for row in np.moveaxis(every, NAMES.index(along), -1).reshape(-1, shape[NAMES.index(along)])]


# what a collective makes of the arrays of a group, a list in and a list out


def reduced(op: str) -> Callable[[list[Any]], list[Any]]:
    joins: dict[str, Any] = {"sum": np.sum, "mean": np.mean, "max": np.max, "min": np.min}
    return lambda xs: [joins[op](xs, axis=0)] * len(xs)


def scattered(xs: list[Any]) -> list[Any]:
    return np.split(np.sum(xs, axis=0), len(xs), 1)


def exchanged(xs: list[Any]) -> list[Any]:
    cut = [np.split(x, len(xs), 0) for x in xs]
    return [np.concatenate([cut[s][r] for s in range(len(xs))], 1) for r in range(len(xs))]


COLLECTIVES: list[tuple[str, Callable[[Any, str | None], Any], Callable[[list[Any]], list[Any]]]] = [
    ("sum", lambda x, along: kg.all_reduce(x, along=along), reduced("sum")),
    ("mean", lambda x, along: kg.all_reduce(x, "mean", along=along), reduced("mean")),
    ("max", lambda x, along: kg.all_reduce(x, "max", along=along), reduced("max")),
    ("gather", lambda x, along: kg.all_gather(x, 1, along=along), lambda xs: [np.concatenate(xs, 1)] * len(xs)),
    ("scatter", lambda x, along: kg.reduce_scatter(x, axis=1, along=along), scattered),
    ("root", lambda x, along: kg.broadcast(x, 0, along=along), lambda xs: [xs[0]] * len(xs)),
    ("all_to_all", lambda x, along: kg.all_to_all(x, 0, 1, along=along), exchanged),
    ("permute", lambda x, along: kg.permute(x, [(0, 0)], along=along), lambda xs: [xs[0], *(0 * x for x in xs[1:])]),
]


def check_collective(shape: tuple[int, ...], ranks: bool, seed: int) -> None:
    """Two collectives in a row, each along a random name, and their gradient's sum; every device has arrays of its
    own."""
    choose, count = random.Random(seed), math.prod(shape)
    mesh = mesh_of(shape, ranks)
    steps = [(choose.choice(COLLECTIVES), choose.choice((None, *NAMES[: len(shape)]))) for _ in range(2)]
    given = np.random.default_rng(seed).integers(-4, 5, (count, 12, 12)).astype("f8")

    def body(x: Any) -> Any:
        y = x[0]
        for (_, call, _), along in steps:
            y = np.cos(call(y, along)) if y.shape[0] % 12 == 0 and y.shape[1] % 12 == 0 else y
        return y[None]

    wanted = [x for x in given]
    for (_, _, meaning), along in steps:
        if wanted[0].shape[0] % 12 or wanted[0].shape[1] % 12:
            continue
        for group in groups(shape, along):
            for device, value in zip(group, meaning([wanted[d] for d in group]), strict=True):
                given_of_device = np.cos(value)
                wanted[device] = given_of_device
    found = kg.kernel_graph(mesh=mesh, in_axes=0, out_axes=0, device=None)(body)(given)
    names = [f"{name} along {along}" for (name, _, _), along in steps]
    for number, part in zip(mesh.positions, found.parts, strict=True):
        np.testing.assert_allclose(part.numpy()[0], wanted[number], rtol=1e-12, atol=1e-12, err_msg=f"{shape} {names}")


@pytest.mark.parametrize("shape", SHAPES)
def test_devices_exchange_along_a_name(shape: tuple[int, ...]) -> None:
    for seed in range(examples(12)):
        check_collective(shape, False, seed)


@pytest.mark.parametrize("shape", [s for s in SHAPES if math.prod(s) <= 4])
def test_ranks_exchange_along_a_name(shape: tuple[int, ...]) -> None:
    for seed in range(examples(6)):
        on_ranks(math.prod(shape), partial(check_collective, shape, True, seed))


def test_processes_exchange_along_a_name() -> None:
    done = on_mpi("-m", "tests.dsl.devices.test_named_meshes", ranks=4)
    assert done.returncode == 0 and done.stdout.count("PASSED") == 4, done.stdout + done.stderr


def check_layout(mesh: kg.Mesh, seed: int) -> None:
    """An array in random parts: each device has its own, and all of them are the array."""
    choose, shape = random.Random(seed), mesh.shape
    x = np.random.default_rng(seed).random((12, 12, 12))
    axes: dict[str, Any] = {name: choose.choice((None, 0, 1, -1)) for name in mesh.axes if choose.randrange(4)}
    spread = kg.shard(x, mesh, axes)
    assert spread.shape == x.shape and spread.nbytes == x.nbytes
    for number, part in zip(mesh.positions, spread.parts, strict=True):
        wanted = x
        for place, name, size in zip(np.unravel_index(number, shape), mesh.axes, shape, strict=True):
            if axes.get(name) is not None:
                wanted = np.split(wanted, size, axes[name])[place]
        np.testing.assert_array_equal(part.numpy(), wanted)
    np.testing.assert_array_equal(np.asarray(spread), x)
    assert kg.shard(spread, mesh, axes) is spread
    doubled = kg.kernel_graph(mesh=mesh, in_axes=axes, out_axes=axes, device=None)(lambda x: x * 2)
    np.testing.assert_array_equal(np.asarray(doubled(spread)), x * 2)
    np.testing.assert_array_equal(np.asarray(doubled(x)), x * 2)


@pytest.mark.parametrize("shape", SHAPES)
def test_arrays_lie_in_parts_along_names(shape: tuple[int, ...]) -> None:
    for seed in range(examples(12)):
        check_layout(mesh_of(shape), seed)
    if math.prod(shape) <= 4:
        on_ranks(math.prod(shape), lambda: check_layout(mesh_of(shape, True), 0))


def two_by_two(w: Any, x: Any) -> Any:
    """A layer whose columns are on devices along `model`, of rows along `data`."""
    hidden = np.maximum(x @ w, 0)
    return kg.all_reduce(kg.all_reduce((hidden**2).sum(), along="model"), "mean", along="data")


@pytest.mark.parametrize("ranks", [False, True])
def test_a_step_of_data_and_model(ranks: bool) -> None:
    rng = np.random.default_rng(5)
    w, x = rng.standard_normal((6, 8)), rng.standard_normal((10, 6))

    def run() -> Any:
        mesh = mesh_of((2, 2), ranks)
        axes: Any = ({"model": 1}, {"data": 0})

        @kg.kernel_graph(mesh=mesh, in_axes=axes, out_axes=(None, {"model": 1}), device=None)
        def step(w: Any, x: Any) -> Any:
            loss, gradient = kg.value_and_grad(lambda w: (np.maximum(x @ w, 0) ** 2).sum())(w)
            loss = kg.all_reduce(kg.all_reduce(loss, along="model"), along="data")
            return loss, w - 0.01 * kg.all_reduce(gradient, along="data")

        loss, new = step(w, x)
        loss, new = step(new, x)
        return float(loss), np.asarray(new)

    def plain(w: Any) -> Any:
        h = np.maximum(x @ w, 0)
        return (h**2).sum(), w - 0.01 * (x.T @ (2 * h))

    wanted = plain(plain(w)[1])
    for loss, new in on_ranks(4, run) if ranks else [run()]:
        np.testing.assert_allclose(loss, wanted[0], rtol=1e-12)
        np.testing.assert_allclose(new, wanted[1], rtol=1e-12)


@pytest.mark.parametrize("along", [None, "data", "model"])
@pytest.mark.parametrize("name", ["sum", "mean", "gather", "scatter", "all_to_all", "permute"])
def test_gradients_along_a_name(name: str, along: str | None) -> None:
    """Of what all devices make, by each one's array: beside differences."""
    shape = (2, 3)
    _, call, meaning = next(row for row in COLLECTIVES if row[0] == name)
    given = np.random.default_rng(2).standard_normal((6, 6, 6))

    def total(every: Any) -> Any:
        result = 0.0
        for group in groups(shape, along):
            for value in meaning([every[d] for d in group]):
                result += np.sin(value).sum()
        return result

    def body(x: Any) -> Any:
        return kg.grad(lambda x: np.sin(call(x[0], along)).sum())(x)

    found = np.asarray(kg.kernel_graph(mesh=mesh_of(shape), in_axes=0, out_axes=0)(body)(given))
    for place in ((0, 0, 0), (3, 2, 4), (5, 5, 1), (4, 0, 5)):
        moved = [given.copy(), given.copy()]
        moved[0][place] += 1e-6
        moved[1][place] -= 1e-6
        np.testing.assert_allclose(found[place], (total(moved[0]) - total(moved[1])) / 2e-6, rtol=1e-5, atol=1e-7)


def test_what_a_mesh_is() -> None:
    mesh = kg.Mesh([["cpu:0", "cpu:1"], ["cpu:2", "cpu:3"]], names=("data", "model"))
    assert (mesh.shape, mesh.axes, len(mesh), mesh.axis) == ((2, 2), ("data", "model"), 4, "data")
    assert repr(mesh) == "Mesh(['cpu:0', 'cpu:1'], ['cpu:2', 'cpu:3'], names=('data', 'model'))"
    assert mesh == kg.Mesh(["cpu:0", "cpu:1"], ["cpu:2", "cpu:3"], names=["data", "model"])
    assert mesh != kg.Mesh([["cpu:0", "cpu:1"], ["cpu:2", "cpu:3"]], names=("data", "pipe"))
    assert kg.Mesh(("cpu:0", "cpu:1"), "model").axes == ("model",)
    assert "axis 0 by 'data', 1 by 'model'" in repr(kg.shard(np.ones((4, 4)), mesh, {"data": 0, "model": 1}))
    assert repr(kg.shard(np.ones((4, 4)), mesh, {"model": 1})).count("by 'model'") == 1


@pytest.mark.parametrize(
    "call",
    [
        lambda mesh: kg.Mesh([["cpu:0", "cpu:1"], ["cpu:2"]], names=("a", "b")),
        lambda mesh: kg.Mesh([["cpu:0", "cpu:1"], ["cpu:2", "cpu:2"]], names=("a", "b")),
        lambda mesh: kg.Mesh([["cpu:0", "cpu:1"]], names=("a",)),
        lambda mesh: kg.Mesh([["cpu:0", "cpu:1"]], names=("a", "a")),
        lambda mesh: kg.Mesh([["cpu:0", "cpu:1"]], names="ab"),
        lambda mesh: kg.Mesh([["cpu:0", "cpu:1"]]),
        lambda mesh: kg.Mesh(["cpu:0", "cpu:1"], names=mesh.places[:1]),
        lambda mesh: kg.Mesh(),
        lambda mesh: kg.shard(np.ones((4, 4)), mesh, {"pipe": 0}),
        lambda mesh: kg.shard(np.ones((3, 4)), mesh, {"data": 0}),
        lambda mesh: kg.shard(np.ones((6, 4)), mesh, {"data": 0, "model": 0}),
        lambda mesh: kg.shard(np.ones((4, 4)), mesh, {"data": 2}),
        lambda mesh: kg.kernel_graph(mesh=mesh, in_axes=0)(lambda x: kg.all_reduce(x, along="pipe"))(np.ones(4)),
        lambda mesh: kg.kernel_graph(mesh=mesh, in_axes=0, out_axes={"data": 3})(lambda x: x)(np.ones(4)),
    ],
)
def test_meshes_and_axes_that_are_none(call: Callable[[Any], Any]) -> None:
    mesh = kg.Mesh([["cpu:0", "cpu:1"], ["cpu:2", "cpu:3"]], names=("data", "model"))
    assert isinstance(error_of(lambda: call(mesh)), kg.UserError)


def test_as_many_ranks_as_there_are() -> None:
    def run() -> Any:
        return str(error_of(lambda: kg.Mesh(2, 2, names=("data", "model"))))

    assert all("of which there are 3" in text for text in on_ranks(3, run))


if __name__ == "__main__":
    with kg.device("cpu"):
        kg.distributed.init()
        for shape_of_ranks in ((2, 2), (4, 1), (4,)):
            for number in range(8):
                check_collective(shape_of_ranks, True, number)
                check_layout(mesh_of(shape_of_ranks, True), number)
        print("PASSED", flush=True)
