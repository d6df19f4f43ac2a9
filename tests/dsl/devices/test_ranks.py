"""Meshes of ranks: what each rank computes and what ranks exchange, against NumPy; what happens when one goes wrong."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from tests import rank_cases, rank_faults, rank_programs, rank_reductions
from tests.counts import examples

RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def on_the_cpu() -> Iterator[None]:
    with kg.override(verify=True, collective_timeout=30), kg.device("cpu"):
        yield


def on_ranks(size: int, run: Callable[[], Any]) -> list[Any]:
    def live() -> Any:
        with kg.device("cpu"):
            return run()

    return kg.distributed.run_threads(size, live)


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_random_collectives(size: int) -> None:
    for seed in range(examples(24)):
        case = rank_cases.draw(1000 * size + seed, size)
        on_ranks(size, lambda case=case: rank_cases.check(case))


@pytest.mark.parametrize("count", [1, 8, 5000])
def test_reductions_of_all_dtypes_and_sizes(count: int) -> None:
    """`tests.rank_reductions` has the table, which MPI's ranks run too."""

    def all_dtypes() -> None:
        for name, _ in rank_reductions.table([count]):
            assert rank_reductions.check(kg.Mesh(3), name, count)

    on_ranks(3, all_dtypes)


def summed(how: str = "sum") -> Any:
    return kg.kernel_graph(
        lambda x: kg.all_reduce(x, how), mesh=kg.Mesh(kg.distributed.size()), in_axes=None, out_axes=None
    )


def error_of(run: Callable[[], Any]) -> Exception | None:
    try:
        run()
    except Exception as error:
        return error
    return None


DTYPES = ("f4", "f8", "f2", "i1", "u1", "i4", "u8", "c8", ">f4", "?")


@pytest.mark.parametrize("shape", [(), (3,), (0,), (5, 41), (2, 3, 200)])
def test_eager_collectives_of_small_and_large_arrays(shape: tuple[int, ...]) -> None:
    """What travels with the digest and what does not is joined in the same way."""
    size = 3

    def made(rank: int, dtype: str) -> Any:
        return np.array(np.random.default_rng(rank).integers(0, 2 if dtype == "?" else 4, shape)).astype(dtype)

    def run() -> None:
        own = kg.distributed.rank()
        for dtype in DTYPES:
            every = [made(r, dtype) for r in range(size)]
            joins = {"max": np.maximum, "min": np.minimum, "sum": np.add, "prod": np.multiply}
            for op in ["max", "min"] if dtype == "?" else ["sum", "prod"] if dtype == "c8" else joins:
                got = kg.distributed.all_reduce(every[own], op)
                want = functools.reduce(joins[op], every)
                np.testing.assert_array_equal(got, want)
                assert got.dtype == every[own].dtype and got.shape == shape
            got = kg.distributed.all_gather(every[own])
            np.testing.assert_array_equal(got, np.array(every))
            assert got.dtype == every[own].dtype
            got = kg.distributed.broadcast(every[own], 1)
            np.testing.assert_array_equal(got, every[1])
            assert got.dtype == every[own].dtype and got.shape == shape

    on_ranks(size, run)


def test_eager_collectives_of_what_makes_no_sense() -> None:
    def run() -> list[str]:
        calls = [
            lambda: kg.distributed.all_reduce(np.ones(3, "?")),
            lambda: kg.distributed.all_reduce(np.ones(3, "c8"), "max"),
            lambda: kg.distributed.all_reduce(np.array(["a"])),
            lambda: kg.distributed.all_gather(np.array([None])),
            lambda: kg.distributed.all_reduce(1.0, "mean"),
            lambda: kg.distributed.broadcast(1.0, 2),
            lambda: kg.distributed.broadcast(1.0, True),
            lambda: kg.distributed.all_reduce(1.0, ["sum"]),
            lambda: kg.distributed.all_reduce([[1], [1, 2]]),
            lambda: kg.distributed.all_reduce(np.ma.masked_array([1, 2], [True, False])),
            lambda: kg.distributed.all_gather(np.ma.masked_array([1, 2], [True, False])),
        ]
        return [f"{type(error).__name__}: {error}" for call in calls if (error := error_of(call))]

    for texts in on_ranks(2, run):
        wanted = (
            "bool makes no",
            "complex64 makes no",
            "<U1 makes no",
            "object holds",
            "op='mean'",
            "root=2",
            "root=True",
            "op=['sum']",
            "which this is not",
            "without masks",
            "without masks",
        )
        assert [want in text for want, text in zip(wanted, texts, strict=True)] == [True] * 11
        assert all("test_ranks.py:" in text for text in texts)


@pytest.mark.parametrize("again", [False, True])
def test_ranks_that_come_to_different_collectives_all_say_so(again: bool) -> None:
    """Also where each plan has run before; and they can go on after that."""

    def run() -> Any:
        add, most = summed("sum"), summed("max")
        if again:
            add(RNG.random(3)), most(RNG.random(3))
        mine = most if kg.distributed.rank() == 1 else add
        error = error_of(lambda: mine(np.ones(3)).numpy())
        return error, add(np.ones(3)).numpy()

    for rank, (error, after) in enumerate(on_ranks(3, run)):
        assert isinstance(error, kg.PlanError)
        own, other = ("max", "sum") if rank == 1 else ("sum", "max")
        assert f"rank {rank} comes to all_reduce {own} float64[3]" in str(error), error
        assert f"to all_reduce {other} float64[3]" in str(error) and str(error).count("test_ranks.py:") == 2
        np.testing.assert_array_equal(after, np.full(3, 3.0))


def test_sizes_that_differ() -> None:
    errors = on_ranks(2, lambda: error_of(lambda: summed()(np.ones(3 + kg.distributed.rank())).numpy()))
    assert all(isinstance(e, kg.PlanError) and "float64[3]" in str(e) and "float64[4]" in str(e) for e in errors)


def test_a_rank_that_raises_is_an_error_where_others_wait() -> None:
    errors: list[Any] = []

    def run() -> None:
        f = summed()
        f(np.ones(3)).wait()
        if kg.distributed.rank() == 1:
            raise ValueError("the disk is full")
        errors.append(error_of(lambda: f(np.ones(3)).wait()))
        errors.append(error_of(kg.distributed.barrier))

    with pytest.raises(ValueError, match="the disk is full"):
        on_ranks(3, run)
    assert len(errors) == 4
    for error in errors:
        assert isinstance(error, kg.RankError) and error.ranks == (1,)
        assert "rank 1 raised ValueError: the disk is full" in str(error)


def test_a_rank_that_ends_early() -> None:
    def run() -> Any:
        f = summed()
        return error_of(lambda: [f(np.ones(3)).wait() for _ in range(3 - kg.distributed.rank())])

    early, late = on_ranks(2, run)[::-1]
    assert early is None and isinstance(late, kg.RankError) and "rank 1 has ended" in str(late)


def test_a_rank_that_stops_calling_is_named() -> None:
    release = threading.Event()

    def run() -> Any:
        f = summed()
        f(np.ones(3)).wait()
        if kg.distributed.rank() == 1:
            release.wait(30)
            return None
        try:
            return error_of(lambda: f(np.ones(3)).wait())
        finally:
            release.set()

    with kg.override(collective_timeout=0.3):
        error = on_ranks(2, run)[0]
    assert isinstance(error, kg.RankError) and error.ranks == (1,)
    assert "rank 1 was last in all_reduce sum float64[3]" in str(error) and "within 0.3 s" in str(error)


def test_a_failure_before_a_collective_reaches_all_ranks() -> None:
    def run() -> Any:
        broken_here = kg.distributed.rank() == 1

        def reading(x: Any, y: Any) -> None:
            if broken_here:
                raise ValueError("no such reading")
            y[...] = x

        def body(x: Any) -> Any:
            return kg.all_reduce(kg.host(reading, x, kg.spec(3, float)))

        f = kg.kernel_graph(body, mesh=kg.Mesh(2), in_axes=None, out_axes=None)
        return error_of(lambda: f(np.ones(3)).wait())

    first, second = on_ranks(2, run)
    assert isinstance(first, kg.RankError) and "no such reading" in str(first) and first.ranks == (1,)
    assert "no such reading" in str(second)


def test_collectives_of_the_program_itself() -> None:
    def run() -> Any:
        rank = kg.distributed.rank()
        kg.distributed.barrier()
        mesh = kg.Mesh(3)
        x = kg.shard(np.arange(12).reshape(4, 3), mesh, axis=1)
        same = kg.replicate(np.full(2, rank), mesh)
        return (
            kg.distributed.all_reduce(np.full((2, 2), rank + 1)).tolist(),
            kg.distributed.all_gather(rank).tolist(),
            kg.distributed.broadcast([rank, rank], 2).tolist(),
            np.asarray(x).tolist(),
            same.numpy().tolist(),
            repr(x),
            x.parts[0].shape,
        )

    want = ([[6, 6], [6, 6]], [0, 1, 2], [2, 2], np.arange(12).reshape(4, 3).tolist(), [0, 0])
    text = "Sharded(int64[4, 3], in parts along axis 1 on 3 ranks)"
    assert on_ranks(3, run) == [(*want, text, (4, 1))] * 3


def test_a_world_of_one_needs_no_launcher() -> None:
    def run() -> Any:
        assert (kg.distributed.rank(), kg.distributed.size(), kg.distributed.local_rank()) == (0, 1, 0)
        return summed("mean")(np.arange(3.0)).numpy()

    np.testing.assert_array_equal(on_ranks(1, run)[0], np.arange(3.0))


def test_bad_worlds() -> None:
    with pytest.raises(kg.ArgumentsError, match=r"kg\.distributed\.init\(\) first"):
        kg.Mesh(2)
    for size, run in ((0, list), (True, list), ("2", list), (2, 3)):
        with pytest.raises(kg.OptionError, match=r"test_ranks.py:\d+: run_threads\("):
            kg.distributed.run_threads(size, run)  # type: ignore[arg-type]
    with pytest.raises(kg.OptionError, match="'mpi', 'alone'"):
        kg.distributed.init("gloo")
    with pytest.raises(kg.OptionError, match="elastic='yes'"):
        kg.distributed.init(elastic="yes")  # type: ignore[arg-type]
    with pytest.raises(kg.OptionError, match="of which there are 2"):
        on_ranks(2, lambda: kg.Mesh(3))
    with pytest.raises(kg.OptionError, match="'sum', 'prod'"):
        on_ranks(1, lambda: kg.distributed.all_reduce(1, "mean"))
    with pytest.raises(kg.OptionError, match="none of the 2 ranks"):
        on_ranks(2, lambda: kg.distributed.broadcast(1, 2))


def test_training_on_ranks_is_training_on_one_device() -> None:
    x, y = RNG.random((16, 5)), RNG.random((16, 2))
    weights = [RNG.random((5, 7)), RNG.random((7, 2))]

    def loss(w: Any, x: Any, y: Any) -> Any:
        return ((np.maximum(x @ w[0], 0) @ w[1] - y) ** 2).mean()

    def run() -> Any:
        train = kg.DataParallel(
            loss, kg.Mesh(kg.distributed.size()), update=lambda w, g: [a - 0.05 * b for a, b in zip(w, g, strict=True)]
        )
        w = train.replicate(weights)
        for _ in range(4):
            w, value = train(w, x, y)
        return [*(part.numpy() for part in w), float(value)]

    alone = on_ranks(1, run)[0]
    for size in (2, 4):
        found = on_ranks(size, run)
        for mine in found:
            for got, first, want in zip(mine, found[0], alone, strict=True):
                np.testing.assert_array_equal(got, first)
                np.testing.assert_allclose(got, want, rtol=1e-12)


def test_gradients_leave_as_they_are_ready() -> None:
    """The last layer's first; each alone, if it is large."""
    weights = [np.zeros((300, 300), np.float32) for _ in range(4)]

    def loss(w: Any, x: Any) -> Any:
        for one in w:
            x = np.tanh(x @ one)
        return x.mean()

    def run() -> Any:
        train = kg.DataParallel(loss, kg.Mesh(2), update=lambda w, g: [a - b for a, b in zip(w, g, strict=True)])
        return train.plan(weights, np.zeros((4, 300), np.float32))

    plan = on_ranks(2, run)[0]
    sums = [s for s in plan.collectives if s.counts[-1] == 90_000]
    assert len(sums) == 4
    summed = [task.writes[-1].buffer for task in plan.tasks if task.kernel in sums]
    updates = [next(task for task in plan.tasks if v in {r.buffer for r in task.reads}) for v in summed]
    sources = [{plan.program.buffers[r.buffer].source for r in task.reads} - {-1} for task in updates]
    assert sources == [{3}, {2}, {1}, {0}]


def test_random_programs_of_ranks_with_other_histories() -> None:
    """`python -m tests.rank_programs 2000` runs more, which over processes the launcher does."""
    for seed in range(examples(40)):
        assert rank_programs.on_threads(rank_programs.draw(seed)) == []


def test_where_an_argument_of_one_rank_failed_all_say_so() -> None:
    """The others would wait for it in the second of their collectives."""

    def run() -> list[str]:
        rank, mesh = kg.distributed.rank(), kg.Mesh(2)
        add = summed()
        both = kg.kernel_graph(
            lambda x, y: (kg.all_reduce(x), kg.all_gather(y)), mesh=mesh, in_axes=None, out_axes=None
        )
        good = add(np.ones(3))
        both(good, good), summed("max")(np.ones(3))
        other = kg.kernel_graph(lambda x: kg.all_gather(x), mesh=mesh, in_axes=None, out_axes=None)
        other(np.ones(3)).wait()
        bad = (add if rank == 0 else other)(np.ones(3))
        errors = [str(error_of(lambda: both(good, bad if rank == 0 else good)[1].wait()))]
        errors.append(str(error_of(bad.wait)))
        return [*errors, *map(str, add(np.ones(3)).numpy())]

    for errors in on_ranks(2, run):
        assert all("ranks differ at collective 0" in error for error in errors[:2]) and errors[2:] == ["2.0"] * 3


def test_a_fork_of_a_rank_is_no_rank() -> None:
    def run() -> Any:
        f = summed()
        f(np.ones(3)).wait()
        if kg.distributed.rank() == 0:
            if (child := os.fork()) == 0:
                found = [error_of(lambda: kg.distributed.all_reduce(1.0)), error_of(lambda: f(np.ones(3)).wait())]
                found += [error_of(kg.distributed.init), error_of(kg.distributed.rank)]
                told = all(
                    isinstance(error, kg.RankError) and "is no rank: it is a fork of rank 0" in str(error)
                    for error in found
                )
                os._exit(7 if told else 1)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        return f(np.ones(3)).numpy().tolist()

    assert on_ranks(2, run) == [[2.0] * 3] * 2


def test_faults_of_ranks_reach_all() -> None:
    """`python -m tests.rank_faults 200` injects more."""
    outcomes = rank_faults.inject(15, "threads")
    assert len({o.fault.kind for o in outcomes}) == len(rank_faults.KINDS["threads"])
    for outcome in outcomes:
        assert not (outcome.hangs or outcome.silent or outcome.misnamed), outcome
