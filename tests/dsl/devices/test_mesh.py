"""Functions on a mesh: what each device computes, and what devices exchange, against NumPy."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph.compiler.placement import replicate
from kernelgraph.runtime.program.plan import Launch
from tests import plan_parts, rank_cases
from tests.counts import examples

RNG = np.random.default_rng(0)
X = RNG.random((12, 6))


@pytest.fixture(autouse=True)
def four() -> Iterator[None]:
    with kg.override(cpu_devices=5, verify=True):
        yield


def mesh_of(count: int) -> kg.Mesh:
    return kg.Mesh([f"cpu:{i}" for i in range(count)])


def on_mesh(count: int, body: Callable[..., Any], in_axes: Any = 0, out_axes: Any = 0) -> Any:
    return kg.kernel_graph(body, mesh=mesh_of(count), in_axes=in_axes, out_axes=out_axes)


def parts(x: Any, count: int, axis: int = 0) -> list[Any]:
    return np.split(x, count, axis)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_one_body_runs_on_each_device(count: int) -> None:
    f = on_mesh(count, lambda x, k: (np.sqrt(x) * k, x.sum(keepdims=True)), (0, None), (0, 1))
    for k in (2.0, 3.0):
        y, total = f(X, k)
        np.testing.assert_array_equal(y, np.sqrt(X) * k)
        assert [p.device for p in y.parts] == ["cpu", "cpu:1", "cpu:2"][:count]
        np.testing.assert_allclose(total, [[p.sum() for p in parts(X, count)]], rtol=1e-13)


@pytest.mark.parametrize("count", [1, 2, 3, 4])
@pytest.mark.parametrize("op", ["sum", "mean", "max", "min", "prod"])
def test_all_reduce(count: int, op: str) -> None:
    y = on_mesh(count, lambda x: kg.all_reduce(x, op))(X)
    want: Any = getattr(np, op)(parts(X, count), axis=0)
    for part in y.parts:
        np.testing.assert_allclose(part, want, rtol=1e-13)
        np.testing.assert_array_equal(part, y.parts[0])


def test_a_large_sum_is_shared_by_the_devices() -> None:
    big = RNG.random((4, 3, 16384)).astype(np.float32)
    f = on_mesh(4, lambda x: kg.all_reduce(x) * 2)
    y = f(big)
    want = ((big[0] + big[1]) + big[2]) + big[3]
    for part in y.parts:
        np.testing.assert_array_equal(part, want[None] * 2)
    plan = f.plan(big)
    assert plan.copied_bytes == 2 * 3 * big.nbytes // 4  # each of 4 devices sends 3 quarters twice


def results_on(mesh: kg.Mesh, body: Any, x: Any) -> list[list[np.ndarray[Any, Any]]]:
    program = kg.kernel_graph(body, mesh=mesh, in_axes=0, out_axes=None)
    return [[np.asarray(part) for part in result.parts] for result in program(x)]


@pytest.mark.parametrize("count", [2, 3, 4])
def test_devices_that_read_each_other_give_the_same_bits(count: int) -> None:
    """Random collectives, and large ones, which devices share. Nothing is copied but results of other devices."""
    mesh = kg.Mesh(tuple(f"cpu:{i}" for i in range(count)))
    large = np.random.default_rng(count).random((count, 1 << 19), np.float32)
    bodies = [(rank_cases.draw(seed, count).body, rank_cases.draw(seed, count).given) for seed in range(8)]
    bodies += [(lambda x: [kg.all_reduce(np.sqrt(x)), kg.broadcast(x * 2, count - 1), kg.all_gather(x * 3)], large)]
    for body, given in bodies:
        found = []
        for way in ("reads", "root", "copies"):
            with kg.override(collectives=way, verify=True):
                found.append(results_on(mesh, body, given))
        for results in zip(*found, strict=True):
            for a, b, c in zip(*results, strict=True):
                assert a.dtype == b.dtype == c.dtype and a.tobytes() == b.tobytes() == c.tobytes()
    with kg.override(collectives="reads"):
        plan = kg.kernel_graph(lambda x: kg.all_reduce(np.sqrt(x)), mesh=mesh, out_axes=None).plan(large)
    assert plan.reads_peers and not plan.copied_bytes


@pytest.mark.parametrize("count", [3, 4, 5])
def test_a_large_broadcast_goes_in_levels(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the size, and however many levels. The root is read once, but for the piece that all read last."""
    rng, mesh = random.Random(count), kg.Mesh(tuple(f"cpu:{i}" for i in range(count)))
    monkeypatch.setattr(replicate, "STEP_BYTES", 64)
    monkeypatch.setattr(replicate, "PIECE_ELEMENTS", 4)
    for _ in range(examples(6)):
        levels, size, root = rng.randint(2, 5), rng.randint(100, 3000), rng.randrange(count)
        monkeypatch.setattr(replicate, "BROADCAST_LEVELS", ((0, levels),))
        given = np.arange(count * size, dtype=np.float32).reshape(count, size)
        for made in (lambda x: x, lambda x: x * 2 + 1, lambda x: np.cumsum(x, 1)):
            body = partial(lambda x, made, root: kg.broadcast(made(x), root), made=made, root=root)
            with kg.override(collectives="reads", verify=True):
                found = on_mesh(count, body, 0, None)
                plan = found.plan(given)
                got = found(given)
            with kg.override(collectives="copies"):
                want = kg.kernel_graph(body, mesh=mesh, in_axes=0, out_axes=None)(given)
            for a, b in zip(got.parts, want.parts, strict=True):
                assert a.numpy().tobytes() == b.numpy().tobytes()
            buffers, read = plan.program.buffers, 0
            for step in plan.steps:
                if isinstance(step, Launch) and plan.homes[step.stream] != root:
                    regions = [r for r in plan.tasks[step.task].reads if buffers[r.buffer].device == root]
                    read += sum(4 * math.prod(r.shape) for r in regions)
            pieces = (count - 1) * (levels - 1) + 1
            last = 4 * (size - size // pieces // 4 * 4 * (pieces - 1))
            assert read == 4 * size + (count - 2) * last, f"{plan}\n{plan.program}"


@pytest.mark.parametrize("op", [kg.all_reduce, kg.all_gather, kg.reduce_scatter, kg.broadcast])
def test_a_small_collective_of_arguments_is_one_task_on_each_device(op: Any) -> None:
    """Which does what is between them, where that is little: else devices would wait for each other."""
    bodies = {True: lambda x: op(x * 2 + 1), False: lambda x: op(np.cumsum(x * 2 + 1, axis=0))}
    for one_part, body in bodies.items():
        f = on_mesh(4, body, 0, None)
        with kg.override(collectives="reads"):
            plan = f.plan(X[:, :4].repeat(4, 0))
        assert (len(plan_parts.parts(plan)) == 4 and not plan.copied_bytes) == one_part


@pytest.mark.parametrize("op", [kg.all_reduce, kg.all_gather, kg.reduce_scatter, kg.broadcast])
def test_one_device_may_do_it_for_all(op: Any) -> None:
    """It reads the others' arguments, and they get copies of what it makes of them."""
    with kg.override(collectives="root"):
        plan = on_mesh(4, lambda x: op(np.sqrt(x) * 2), 0, None).plan(np.ones((16, 1 << 16), np.float32))
    assert [home for home, _ in plan_parts.computing(plan)] == [0] and len(plan_parts.parts(plan)) == 4


@pytest.mark.parametrize("op", [kg.all_reduce, kg.reduce_scatter, kg.all_gather])
def test_large_collectives_of_arguments_are_one_task_on_each_device(op: Any) -> None:
    """Where it reads no more of what is computed from arguments than of the result."""
    given = np.ones((16, 1 << 16), np.float32)
    for one_part, body in ((True, lambda x: op(np.sqrt(x) * 2)), (False, lambda x: op(x + x[::-1]))):
        with kg.override(collectives="reads"):
            plan = on_mesh(4, body, 0, None).plan(given)
        assert (len(plan_parts.parts(plan)) == 4 and not plan.copied_bytes) == one_part


@pytest.mark.parametrize("count", [1, 2, 3])
def test_gather_scatter_and_the_rest(count: int) -> None:
    def body(x: Any) -> Any:
        return (
            kg.all_gather(x, 1),
            kg.reduce_scatter(np.concatenate([x] * count) + 1, axis=0),
            kg.broadcast(x, count - 1),
            kg.all_to_all(np.stack([x, x + 1, x * 2, x, x - 1, x]), 0, 1),
            kg.permute(x, [(i, (i + 1) % count) for i in range(count)]),
            kg.permute(x, [(0, count - 1)]) if count > 1 else x,
        )

    found = on_mesh(count, body)(X)
    local = parts(X, count)
    stacked = [np.stack([x, x + 1, x * 2, x, x - 1, x]) for x in local]
    for r in range(count):
        gathered, scattered, told, exchanged, turned, sent = (f.parts[r] for f in found)
        np.testing.assert_array_equal(gathered, np.concatenate(local, axis=1))
        np.testing.assert_allclose(scattered, sum(x + 1 for x in local), rtol=1e-13)
        np.testing.assert_array_equal(told, local[-1])
        np.testing.assert_array_equal(exchanged, np.concatenate([parts(s, count)[r] for s in stacked], axis=1))
        np.testing.assert_array_equal(turned, local[r - 1])
        np.testing.assert_array_equal(sent, local[0] if r == count - 1 else np.zeros_like(X[: 12 // count]))


def test_sharded_arrays() -> None:
    mesh = mesh_of(2)
    x = kg.shard({"a": X, "b": [kg.asarray(X, device="cpu:3")]}, mesh, axis=1)
    assert x["a"].shape == (12, 6) and x["a"].parts[1].shape == (12, 3) and x["a"].dtype == X.dtype
    assert repr(x["a"]) == "Sharded(float64[12, 6], in parts along axis 1 on cpu:0, cpu:1)"
    for part in (x["a"], x["b"][0], kg.replicate(X, mesh)):
        np.testing.assert_array_equal(part, X)
        np.testing.assert_array_equal(part.wait().numpy(), X)
        assert part.is_ready() and len(part) == 12
    assert kg.shard(x["a"], mesh, axis=1) is x["a"]
    np.testing.assert_array_equal(kg.shard(x["a"], mesh, axis=0).parts[1], X[6:])
    f = on_mesh(2, lambda x: x * 2, 1, 1)
    y = f(x["a"])
    np.testing.assert_array_equal(f(y), X * 4)


def test_a_training_step_is_the_same_on_any_mesh() -> None:
    w, y = RNG.random((6, 3)), RNG.random((12, 3))

    def step(w: Any, x: Any, y: Any) -> Any:
        loss, g = kg.value_and_grad(lambda w: ((np.tanh(x @ w) - y) ** 2).mean())(w)
        return w - 0.1 * kg.all_reduce(g, "mean"), kg.all_reduce(loss, "mean")

    want = None
    for count in (1, 2, 4):
        f, now = on_mesh(count, step, (None, 0, 0), (None, None)), w
        for _ in range(3):
            now, loss = f(now, X, y)
        want = now.numpy() if want is None else want
        np.testing.assert_allclose(now, want, rtol=1e-12)
        assert float(loss) > 0


def test_gradients_pass_collectives() -> None:
    """Of the sum over all devices of each device's loss."""

    def total(x: Any) -> Any:
        return (kg.all_gather(x, 0) ** 2).sum() + (kg.all_reduce(x) ** 3).sum()

    g = on_mesh(2, lambda x: kg.grad(total)(x))(X)
    a, b = parts(X, 2)
    for part, own in zip(g.parts, (a, b), strict=True):
        np.testing.assert_allclose(part, 2 * 2 * own + 2 * 3 * (a + b) ** 2, rtol=1e-12)


def test_structures_and_static_arguments() -> None:
    @kg.kernel_graph(mesh=mesh_of(2), in_axes=(0, None), out_axes=0, static_argnames="how")
    def f(batch: Any, how: str) -> Any:
        return {"y": batch["x"] + batch["z"][0], "how": how}

    for how in ("a", "b"):
        found = f({"x": X, "z": (X,)}, how=how)
        np.testing.assert_array_equal(found["y"], X + X)
        assert found["how"] == how
    assert len(f.why().splitlines()) == 2


def test_failures_are_raised_where_they_are_read() -> None:
    y, z = on_mesh(2, lambda x: (kg.all_reduce(np.linalg.inv(x)), x + 1))(np.zeros((4, 2, 2)))
    np.testing.assert_array_equal(z, np.ones((4, 2, 2)))
    with pytest.raises(np.linalg.LinAlgError):
        y.wait()


def test_what_makes_no_sense_is_refused() -> None:
    mesh = mesh_of(2)
    with pytest.raises(kg.ShapeError, match=r"65 rows, which 2 devices cannot share equally; pad it"):
        kg.shard(np.zeros((65, 2)), mesh)
    with pytest.raises(kg.ShapeError, match=r"test_mesh.py:\d+: .*7 rows"):
        on_mesh(2, lambda x: x)(np.zeros(7))
    with pytest.raises(kg.ArgumentsError, match=r"kg\.all_reduce is for functions that run on a mesh"):
        kg.all_reduce(X)
    with pytest.raises(kg.OptionError, match="each once"):
        kg.Mesh(("cpu:0", "cpu"))
    with pytest.raises(kg.OptionError, match="of one kind"):
        kg.Mesh(("cpu:0", "fake"))
    with pytest.raises(kg.OptionError, match="names of devices"):
        kg.Mesh(2.5)  # type: ignore[arg-type]
    with pytest.raises(kg.OptionError, match=r"kg.Mesh\(\("):
        kg.kernel_graph(lambda x: x, mesh="cpu")
    with pytest.raises(kg.OptionError, match="leave device= out"):
        kg.kernel_graph(lambda x: x, mesh=mesh, device="cpu")
    with pytest.raises(kg.OptionError, match="one for each of the 1 parameters"):
        on_mesh(2, lambda x: x, (0, 0))(X)
    with pytest.raises(kg.ShapeError, match="cannot be joined along axis 0; reduce it"):
        on_mesh(2, lambda x: x.sum())(X)
    with pytest.raises(kg.ArgumentsError, match="in_axes says 0"):
        on_mesh(2, lambda x: x)(kg.replicate(X, mesh))
    with pytest.raises(kg.ArgumentsError, match="runs on"):
        on_mesh(3, lambda x: x)(kg.shard(X, mesh))
    with pytest.raises(kg.DTypeError, match=r"test_mesh.py:\d+: a mean over devices of int64"):
        on_mesh(2, lambda x: kg.all_reduce(x, "mean"))(np.arange(4))
    for pairs in ([0, 1], 1, [(0, 1, 1)], "01"):
        with pytest.raises(kg.OptionError, match=r"test_mesh.py:\d+: pairs=.*: write \(source, target\) pairs"):
            on_mesh(2, partial(kg.permute, pairs=pairs))(X)
    for axis in ("x", 0.0, True):
        with pytest.raises(kg.ShapeError, match=r"test_mesh.py:\d+: axis .* is none of its axes"):
            on_mesh(2, partial(kg.all_gather, axis=axis))(X)
    with pytest.raises(kg.OptionError, match="op='any'"):
        on_mesh(2, lambda x: kg.all_reduce(x, "any"))(X)
    with pytest.raises(kg.UserError, match=r"leave kg\.place out"):
        on_mesh(2, lambda x: kg.place(x, "cpu:1"))(X)

    def assigns(x: Any) -> Any:
        x[0] = 1
        return x

    with pytest.raises(kg.ArgumentsError, match="return the new one"):
        on_mesh(2, assigns)(X)

    def turned(x: Any) -> Any:
        return kg.while_loop(lambda x: (x < 30).any(), lambda x: kg.all_reduce(x, "mean") * 2, x)

    with pytest.raises(kg.UserError, match=r"test_mesh.py:\d+: devices exchange nothing within a branch, or a loop"):
        on_mesh(2, turned)(X)

    def long(x: Any) -> Any:
        return kg.fori_loop(0, 100_000, lambda i, x: kg.all_reduce(x, "mean"), x)

    with pytest.raises(kg.UserError, match=r"test_mesh.py:\d+: a loop of 100000 iterations in which devices exchange"):
        on_mesh(2, long)(X)


@pytest.mark.parametrize("count", [1, 2, 4])
def test_loops_in_which_devices_exchange_arrays(count: int) -> None:
    """`fori_loop` and `scan`, within each other, of what is carried, of rows, of the iteration's number; none too."""
    x = np.arange(16.0).reshape(8, 2)
    local = parts(x, count)

    def carried(x: Any) -> Any:
        return kg.fori_loop(0, 9, lambda i, c: c * 0.5 + kg.all_reduce(c, "mean") * i, x)

    def rows(x: Any) -> Any:
        return kg.scan(lambda c, v: (c + kg.all_reduce(v), {"twice": c * 2, "far": kg.all_gather(c)}), np.zeros(2), x)

    def nested(x: Any) -> Any:
        return kg.fori_loop(0, 3, lambda i, c: kg.fori_loop(i, 4, lambda j, d: d + kg.all_reduce(x) * (i + j), c), x)

    def none(x: Any) -> Any:
        return kg.scan(lambda c, v: (c, kg.all_reduce(v) > 1), x, x[:0])

    want = [*local]
    for i in range(9):
        mean = sum(want) / count
        want = [w * 0.5 + mean * i for w in want]
    c, twice, far = np.zeros(2), [], []
    for row in range(len(local[0])):
        twice.append(c * 2)
        far.append(np.tile(c, count))
        c = c + sum(part[row] for part in local)
    total = sum(local)
    for r in range(count):
        np.testing.assert_allclose(on_mesh(count, carried)(x).parts[r], want[r], rtol=1e-12)
        last, ys = on_mesh(count, rows, 0, None)(x)
        np.testing.assert_allclose(last.parts[r], c)
        np.testing.assert_allclose(ys["twice"].parts[r], twice)
        np.testing.assert_allclose(ys["far"].parts[r], far)
        pairs = sum(i + j for i in range(3) for j in range(i, 4))
        np.testing.assert_allclose(on_mesh(count, nested)(x).parts[r], local[r] + total * pairs)
        _, empty = on_mesh(count, none)(x)
        assert empty.parts[r].shape == (0, 2) and empty.dtype == bool


def test_results_are_awaited() -> None:
    """Others run meanwhile, and errors are raised at the `await`."""
    f, g = on_mesh(2, lambda x: kg.all_gather(x + 1), 0, None), kg.kernel_graph(lambda x: x * 2, device="cpu")
    ran: list[int] = []

    async def one(i: int) -> tuple[Any, Any]:
        a, b = await f(X + i), await g(X + i)
        ran.append(i)
        assert a.is_ready() and b.is_ready()
        return a, b

    async def all_of_them() -> list[Any]:
        return await asyncio.gather(*(one(i) for i in range(6)))

    for i, (a, b) in enumerate(asyncio.run(all_of_them())):
        np.testing.assert_array_equal(a, X + i + 1)
        np.testing.assert_array_equal(b, (X + i) * 2)
    assert sorted(ran) == [*range(6)]

    async def failing() -> None:
        await kg.kernel_graph(lambda x, i: x[i], device="cpu")(X, np.array([99]))

    with pytest.raises(IndexError):
        asyncio.run(failing())


def test_numbers_that_do_not_fit_and_numbers_that_decide() -> None:
    f = on_mesh(2, lambda x, n: x * n, (0, None))
    for n in (2, 2.5, 3, True):
        np.testing.assert_array_equal(f(X, n), X * n)
    turns = on_mesh(2, lambda x, n: sum([x] * n), (0, None))
    for n in (2, 5, 2):
        np.testing.assert_allclose(turns(X, n), X * n, rtol=1e-13)


def test_methods() -> None:
    class Model:
        def __init__(self, k: float) -> None:
            self.k = k

        @kg.kernel_graph(mesh=kg.Mesh(("cpu",)), in_axes=(None, 0))
        def scaled(self, x: Any) -> Any:
            return x * self.k

    for k in (2.0, 3.0):
        np.testing.assert_array_equal(Model(k).scaled(X), X * k)


def test_what_the_function_raises_is_raised() -> None:
    def f(x: Any) -> Any:
        x[0] = 0
        raise KeyError("its own")

    with pytest.raises(KeyError, match="its own"):
        on_mesh(2, f)(X)
    with pytest.raises(kg.OptionError, match="cannot be split"):
        kg.kernel_graph(lambda x: x, mesh=mesh_of(2), untraceable="split")


FACTOR = 2.0


def test_a_call_like_an_earlier_one_sees_what_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    mesh = mesh_of(2)
    program = kg.kernel_graph(lambda x, y: x * FACTOR + y, mesh=mesh, in_axes=(0, None))
    x, y = kg.shard(X, mesh), kg.replicate(X[:6], mesh)
    with kg.override(verify=False):  # which has every call take the long way
        for factor in (2.0, 2.0, 3.0, 3.0):
            monkeypatch.setitem(globals(), "FACTOR", factor)
            np.testing.assert_array_equal(program(x, y), X * factor + np.concatenate([X[:6], X[:6]]))
        with pytest.raises(kg.UserError, match="split along axis None"):
            program(y, x)


def test_a_collective_in_a_long_loop_is_traced_turn_by_turn() -> None:
    @kg.kernel_graph(mesh=kg.Mesh(["cpu:0", "cpu:1"]), in_axes=0, out_axes=None)
    def mean_of_all(x: Any) -> Any:
        total = x.sum()
        for _ in range(100):
            total = 0.5 * total + 0.25 * kg.all_reduce(total)
        return total

    a, b = 1.0, 5.0
    for _ in range(100):
        a, b = 0.5 * a + 0.25 * (a + b), 0.5 * b + 0.25 * (a + b)
    np.testing.assert_allclose(mean_of_all(np.array([0.0, 1.0, 2.0, 3.0])), a, rtol=1e-12)
