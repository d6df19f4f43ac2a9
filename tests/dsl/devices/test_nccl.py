"""Collectives by NCCL, which a stand-in is for, on two GPUs in memory: values against NumPy, order, faults."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph.dsl.array import devices
from kernelgraph.dsl.devices import exchange_ways, exchanges
from kernelgraph.runtime.core.frozen import replace
from kernelgraph.runtime.devices.cuda import device as cuda
from kernelgraph.runtime.devices.cuda.libraries import nccl
from kernelgraph.runtime.program.plan import Launch
from kernelgraph.runtime.tune import links
from kernelgraph.runtime.verify.plan import find_plan_violations
from tests import rank_reductions
from tests.dsl.two_gpus_in_memory import Machine
from tests.runtime.nccl_fake import SYSTEM_ERROR, FakeNccl

X = np.arange(32, dtype=np.float32).reshape(8, 4)
MESH = ("cuda:0", "cuda:1")
KINDS = (
    *("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"),
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
)


class Two:
    """The devices `cuda:0` and `cuda:1`, and NCCL between them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seed: int = 0) -> None:
        monkeypatch.setattr(cuda, "compile_cubins", lambda kernels, cc: list(kernels))
        monkeypatch.setattr(devices, "_default", ("cpu", 0))  # for other tests, it is decided without these
        self.machine = Machine(seed)
        for gpu in self.machine.devices:
            monkeypatch.setitem(devices._open, ("cuda", gpu.index), gpu)
        self.library = FakeNccl(self.machine)
        monkeypatch.setattr(nccl, "nccl_library", lambda: self.library)
        self.watch = nccl.CollectiveWatch()
        self.watch._thread = threading.current_thread()  # tests look themselves
        self.looking = threading.Lock()
        monkeypatch.setattr(nccl, "_watch", self.watch)


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> Iterator[Two]:
    with kg.override(collectives="nccl", verify=True):
        yield Two(monkeypatch)
        kg.waitall()


def on_mesh(body: Any, in_axes: Any = 0, out_axes: Any = 0) -> Any:
    return kg.kernel_graph(body, mesh=kg.Mesh(MESH), in_axes=in_axes, out_axes=out_axes)


def values(kind: str) -> Any:
    dtype = np.dtype(getattr(ml_dtypes, kind, kind))
    found = np.array([[1, 0, 3, 5], [2, 4, 1, 0], [1, 1, 0, 0], [3, 2, 2, 1]] * 2)
    return (found + (1j * found[::-1] if dtype.kind == "c" else 0)).astype(dtype)


def reduced(op: str, x: Any) -> Any:
    joins: dict[str, Any] = {"sum": np.add, "mean": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}
    a, b = np.split(x, 2)
    found = joins[op](a, b)
    return found / x.dtype.type(2) if op == "mean" else found


def reductions() -> Iterator[tuple[str, str]]:
    """Those that make sense."""
    for kind in KINDS:
        yield from [(kind, "max")] if kind == "bool" else [(kind, "sum")]
    for kind in ("int8", "uint16", "int64", "float16", "bfloat16", "float32"):
        yield from ((kind, op) for op in ("prod", "max", "min"))
    yield from (
        ("bool", "min"),
        ("complex64", "prod"),
        ("complex128", "mean"),
        ("float16", "mean"),
        ("float64", "mean"),
    )


@pytest.mark.parametrize("count", [1, 8, 100])
def test_reductions_of_all_dtypes_and_sizes(two: Two, count: int) -> None:
    for name, _ in rank_reductions.table([count]):
        assert rank_reductions.check(kg.Mesh(MESH), name, count)


@pytest.mark.parametrize(("kind", "op"), [*reductions()])
def test_reductions_are_numpys(two: Two, kind: str, op: str) -> None:
    x = values(kind)
    both = on_mesh(lambda x: (kg.all_reduce(x, op), kg.reduce_scatter(x, op, axis=1)))
    whole, parts = both(x)
    want = reduced(op, x)
    for r in range(2):
        assert whole.parts[r].dtype == x.dtype and parts.parts[r].dtype == x.dtype
        np.testing.assert_array_equal(np.asarray(whole.parts[r]), want)
        np.testing.assert_array_equal(np.asarray(parts.parts[r]), want[:, 2 * r : 2 * r + 2])
    assert {"all_reduce", "reduce_scatter", "all_gather", "send"} & {call[0] for call in two.library.calls}
    assert not two.machine.driver.log or all(entry[0] != "to_peer" for entry in two.machine.driver.log)


@pytest.mark.parametrize("op", ["max", "min"])
def test_a_maximum_is_nan_where_one_is(two: Two, op: str) -> None:
    x = X.copy()
    x[1, 2] = x[6, 1] = np.nan
    found = on_mesh(lambda x: (kg.all_reduce(x, op), kg.reduce_scatter(x, op, axis=0)))(x)
    want = reduced(op, x)
    np.testing.assert_array_equal(np.asarray(found[0].parts[1]), want)
    np.testing.assert_array_equal(np.asarray(found[1]), want)


@pytest.mark.parametrize("kind", ["bool", "uint16", "bfloat16", "float32", "float64", "complex128"])
def test_what_moves_arrives(two: Two, kind: str) -> None:
    x = values(kind)

    def body(x: Any) -> Any:
        return (
            kg.all_gather(x, 1),
            kg.broadcast(x, 1),
            kg.all_to_all(x, 0, 1),
            kg.permute(x, [(0, 1), (1, 0)]),
            kg.permute(x, [(0, 1)]),
        )

    found = [[np.asarray(p) for p in result.parts] for result in on_mesh(body)(x)]
    a, b = np.split(x, 2)
    for r in range(2):
        gathered, told, exchanged, turned, sent = (each[r] for each in found)
        np.testing.assert_array_equal(gathered, np.concatenate([a, b], axis=1))
        np.testing.assert_array_equal(told, b)
        np.testing.assert_array_equal(exchanged, np.concatenate([p[2 * r : 2 * r + 2] for p in (a, b)], axis=1))
        np.testing.assert_array_equal(turned, (b, a)[r])
        np.testing.assert_array_equal(sent, a if r else np.zeros_like(a))


def test_one_group_holds_a_part_of_each_gpu_on_its_communication_stream(two: Two) -> None:
    f = on_mesh(lambda x: (kg.all_reduce(x), kg.all_gather(x * 2)))
    f(X)
    calls = [call for call in two.library.calls if call[0] not in ("comm_init_all",)]
    shape = [call[0] for call in calls]
    groups = [["group_start", name, name, "group_end"] for name in ("all_reduce", "all_gather")]
    assert shape == groups[0] + groups[1]
    streams = [gpu.communication_stream for gpu in two.machine.devices]
    for first in (1, 5):
        assert [call[1:3] for call in calls[first : first + 2]] == [(0, streams[0]), (1, streams[1])]
    assert calls[1][3:] == (16, 7, 0) and calls[5][3:] == (64, 1)
    assert [gpu.context.high >= {s} for gpu, s in zip(two.machine.devices, streams, strict=True)]
    assert two.library.calls[0] == ("comm_init_all", (0, 1))


def test_small_reductions_are_one_group(two: Two) -> None:
    found = on_mesh(lambda x: [kg.all_reduce(x + i) for i in range(5)])(X)
    assert [c[0] for c in two.library.calls].count("group_start") == 1
    for i, one in enumerate(found):
        np.testing.assert_array_equal(np.asarray(one.parts[1]), reduced("sum", X + i))


@pytest.mark.parametrize("seed", range(3))
def test_calls_in_flight_keep_to_their_own_memory(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    with kg.override(collectives="nccl"):
        Two(monkeypatch, seed)
        mesh = kg.Mesh(MESH)
        body = lambda x: kg.all_reduce(np.sqrt(x) * 2) + kg.all_gather(x).sum()  # noqa: E731
        program, kept = kg.kernel_graph(body, mesh=mesh, in_axes=0, out_axes=None), []
        shared = kg.shard(X, mesh)
        for i in range(12):
            result = program(shared)  # most are dropped while they are computed
            if i % 4 == 1:
                kept.append(result)
        for result in kept:
            np.testing.assert_allclose(np.asarray(result), reduced("sum", np.sqrt(X) * 2) + X.sum(), rtol=1e-6)
        kg.waitall()


def test_training_is_that_of_copies(two: Two) -> None:
    x, y = X / 32, np.ones((8, 1), np.float32)
    found = []
    for way in ("nccl", "copies"):
        with kg.override(collectives=way):
            train = kg.DataParallel(
                lambda p, x, y: ((np.tanh(x @ p[0]) @ p[1] - y) ** 2).mean(),
                kg.Mesh(MESH),
                lambda p, g: [a - np.float32(0.1) * b for a, b in zip(p, g, strict=True)],
            )
            p: Any = [np.ones((4, 3), np.float32), np.ones((3, 1), np.float32)]
            for _ in range(3):
                p, value = train(p, x, y)
            found.append([*(np.asarray(a) for a in p), np.asarray(value)])
            assert (" by NCCL 2.28.9" in str(train.plan(p, x, y))) == (way == "nccl")
    for a, b in zip(*found, strict=True):
        np.testing.assert_array_equal(a, b)


def take(monkeypatch: pytest.MonkeyPatch, **times: Any) -> None:
    """What trials say, by the way and the bytes of an array."""

    def measure(devices: Any, op: str, nbytes: int, way: str, communicator: Any) -> float:
        assert (communicator is None) == (way != "nccl") or way != "nccl"
        if way not in times:
            raise kg.LaunchError("gave up")
        return float(times[way](nbytes))

    monkeypatch.setattr(exchanges, "microseconds_of_trial", measure)
    monkeypatch.setattr(links, "_known", {})
    monkeypatch.setattr(links._cache, "get", lambda key: None)


def test_explain_says_what_is_used_and_why(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    """The way that takes least, on the line between the nearest sizes that were timed."""
    f = on_mesh(kg.all_reduce)
    assert f.explain(X).splitlines()[0] == "collectives by NCCL 2.28.9"
    with kg.override(collectives="auto"):
        take(
            monkeypatch,
            nccl=lambda n: 90 + n * 1e-4,
            copies=lambda n: 40 + n * 1e-3,
            reads=lambda n: 10 + n * 2e-3,
            root=lambda n: 9 + n * 4e-3,
        )
        names = {
            "reads": "kernels that read the others' memory",
            "copies": "copies between devices",
            "nccl": "NCCL 2.28.9",
            "root": "one device that reads and writes for all",
        }
        cases = {
            4: ("root", "reads", "copies", "nccl"),
            1 << 13: ("copies", "reads", "nccl", "root"),
            1 << 20: ("nccl", "copies", "reads", "root"),
        }
        for count, order in cases.items():
            g = on_mesh(kg.all_reduce)
            text = g.explain(np.ones((2, count), np.float32))
            first, *others = (names[way] for way in order)
            assert text.startswith(f"collectives by {first}: ")
            assert [text.index(f", by {name} ") for name in others] == sorted(text.index(f", by {n} ") for n in others)
            assert "us as measured" in text and (order[0] == "nccl") == ("1 collectives by NCCL" in text)
            assert f"collectives by {first}" in g.why()
        small = on_mesh(kg.all_reduce)
        assert small.explain(np.ones((2, 1), np.float32)).startswith(
            "collectives by one device that reads and writes for all: 9 us as measured, by kernels that read the "
            "others' memory 10 us, by copies between devices 40 us, by NCCL 2.28.9 90 us"
        )


def test_a_trial_that_fails_leaves_the_other_ways(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(nbytes: int) -> float:
        raise kg.LaunchError("gave up")

    with kg.override(collectives="auto"):
        take(monkeypatch, nccl=fail, copies=lambda n: 10, reads=lambda n: 20)
        text = on_mesh(kg.all_reduce).explain(X)
        assert text.startswith("collectives by copies between devices: 10 us as measured, by kernels that read the")
        assert "; by NCCL 2.28.9: gave up" in text.splitlines()[0]
        take(monkeypatch, nccl=fail, copies=fail, reads=fail)
        assert on_mesh(kg.all_reduce).explain(X).startswith("collectives by copies between devices: by NCCL")


@pytest.mark.parametrize("op", ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all", "permute"])
def test_trials_run_each_way(two: Two, op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    two.machine.reads_peers = True
    monkeypatch.setattr(exchange_ways, "ROUNDS", 1)
    communicator = two.machine.devices[0].communicator_with(two.machine.devices[1:])
    for way in ("nccl", "copies", "reads", "root"):
        assert exchange_ways.microseconds_of_trial(two.machine.devices, op, 64, way, communicator) > 0
    assert [call for call in two.library.calls if call[0] == "group_start"]


def test_a_way_that_gives_something_else_is_none(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where GPUs seem to reach each other's memory, and read rubbish."""
    two.machine.reads_peers = True
    right = exchange_ways.run_plan

    def run_plan(executable: Any, given: Any, *rest: Any) -> Any:
        far = given[:1] * 2 if executable.plan.reads_peers else given
        return right(executable, far, *rest)

    monkeypatch.setattr(exchange_ways, "run_plan", run_plan)
    monkeypatch.setattr(exchanges, "TRIAL_BYTES", (4, 64))
    monkeypatch.setattr(exchange_ways, "ROUNDS", 1)
    monkeypatch.setattr(links, "_known", {})
    monkeypatch.setattr(links._cache, "get", lambda key: None)
    with kg.override(collectives="auto"):
        text = on_mesh(kg.all_reduce).explain(X).splitlines()[0]
    assert not text.startswith("collectives by kernels that read")
    assert "by kernels that read the others' memory: all_reduce between cuda:0, cuda:1 gave something else" in text


def test_without_nccl_copies_do_it(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nccl, "nccl_library", lambda: None)
    for gpu in two.machine.devices:
        gpu._communicators.clear()
    with pytest.raises(
        kg.DeviceUnavailableError, match=r"test_nccl.py:\d+.*NCCL is not installed; run pip install '.\[multi]'"
    ):
        on_mesh(kg.all_reduce)(X)
    with kg.override(collectives="auto", tune=False):
        f = on_mesh(kg.all_reduce)
        np.testing.assert_array_equal(np.asarray(f(X).parts[0]), reduced("sum", X))
        assert f.explain(X).startswith("collectives by copies between devices: NCCL is not installed")


def test_one_gpu_under_two_names_is_no_communicator(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(two.machine.contexts[0]), "uuid", b"one GPU")
    with kg.override(collectives="auto", tune=False):
        np.testing.assert_array_equal(np.asarray(on_mesh(kg.all_reduce)(X).parts[0]), reduced("sum", X))
    assert not two.library.calls


def test_nccl_that_cannot_start_leaves_it_to_copies(two: Two) -> None:
    two.library.refuse["comm_init_all"] = SYSTEM_ERROR
    with kg.override(collectives="auto", tune=False):
        f = on_mesh(kg.all_reduce)
        np.testing.assert_array_equal(np.asarray(f(X).parts[0]), reduced("sum", X))
        assert "NCCL 2.28.9 failed: SystemError (2): of a test, what NCCL says of it" in f.explain(X)


@pytest.mark.parametrize("call", ["group_start", "all_reduce", "group_end"])
def test_a_collective_that_fails_poisons_names_the_line_and_is_aborted(two: Two, call: str) -> None:
    f = on_mesh(lambda x: kg.all_reduce(x) + 1)
    np.testing.assert_array_equal(np.asarray(f(X).parts[0]), reduced("sum", X) + 1)
    two.library.refuse[call] = SYSTEM_ERROR
    y = f(X)
    line = r"in all_reduce sum float32\[4, 4\], collective 0 of <lambda> at .*test_nccl.py:\d+"
    for part in y.parts:
        with pytest.raises(kg.LaunchError, match=f"NCCL 2.28.9 failed: SystemError.*{line}"):
            np.asarray(part)
    assert [comm.state for comm in two.library.comms] == ["aborted"] * 2
    np.testing.assert_array_equal(np.asarray(f(X).parts[1]), reduced("sum", X) + 1)  # with new communicators
    assert [comm.state for comm in two.library.comms[2:]] == ["alive"] * 2


def test_what_failed_before_a_collective_fails_on_all_gpus_and_starts_nothing(two: Two) -> None:
    f = on_mesh(lambda x: kg.all_reduce(x * 2))
    f(X)
    kg.waitall()
    started = len(two.library.calls)
    two.machine.driver.refuse["launch"] = 1
    y = f(X)
    for part in y.parts:
        with pytest.raises(kg.LaunchError):
            np.asarray(part)
    assert len(two.library.calls) == started
    np.testing.assert_array_equal(np.asarray(f(X).parts[1]), reduced("sum", X * 2))


def test_what_nccl_finds_out_later_loses_the_gpus(two: Two) -> None:
    f = on_mesh(lambda x: kg.all_reduce(x) + 1)
    y = f(X)
    two.library.comms[0].error = SYSTEM_ERROR
    while two.watch._coming:
        two.watch.look()
        if not two.library.comms[0].error:
            break
    if two.library.comms[0].state == "aborted":  # it had not ended when somebody looked
        for part in y.parts:
            with pytest.raises(
                kg.DeviceLost,
                match=r"all_reduce sum float32\[4, 4\], collective 0 of <lambda> at .*: NCCL 2.28.9 failed",
            ):
                np.asarray(part)


def test_communicators_are_destroyed_once_and_in_order(two: Two) -> None:
    f = on_mesh(kg.all_reduce)
    y = f(X)
    nccl.close_nccl_communicators()
    nccl.close_nccl_communicators()
    assert [c for c in two.library.calls if c[0] == "comm_destroy"] == [("comm_destroy", 0), ("comm_destroy", 1)]
    np.testing.assert_array_equal(np.asarray(y.parts[0]), reduced("sum", X))
    with pytest.raises(kg.LaunchError, match="closed"):
        np.asarray(f(X).parts[0])


@pytest.fixture
def patient(two: Two, monkeypatch: pytest.MonkeyPatch) -> Two:
    """Who waits for a GPU lets other threads put work on it."""
    driver = two.machine.driver

    def wait(event: int) -> int:
        until = time.monotonic() + 60
        while driver.query(event):
            assert time.monotonic() < until, "an event that nothing records"
            with two.looking:
                two.watch.look()
            time.sleep(0)
        return 0

    for gpu in two.machine.devices:
        for pool in (gpu.events, gpu.timed_events):
            monkeypatch.setattr(pool, "wait", wait)
    return two


def test_ranks_with_a_gpu_each_exchange_in_its_memory(patient: Two) -> None:
    def live() -> Any:
        with kg.device(f"cuda:{kg.distributed.rank()}"):
            mesh = kg.Mesh(2)
            f = kg.kernel_graph(
                lambda x: (kg.all_reduce(x * 2) + 1, kg.all_gather(x)), mesh=mesh, in_axes=0, out_axes=(None, None)
            )
            found = [[np.asarray(y.parts[0]) for y in f(X + i)] for i in range(6)]
            return found, f.explain(X)

    for found, text in kg.distributed.run_threads(2, live):
        assert text.startswith("collectives by NCCL 2.28.9\n") and "of 2 ranks by NCCL 2.28.9" in text
        for i, (added, gathered) in enumerate(found):
            np.testing.assert_array_equal(added, reduced("sum", (X + i) * 2) + 1)
            np.testing.assert_array_equal(gathered, X + i)
    assert sorted(c[2:] for c in patient.library.calls if c[0] == "comm_init_rank") == [(0, 0), (1, 1)]
    assert [comm.state for comm in patient.library.comms] == ["destroyed"] * 2


def test_ranks_of_which_one_has_no_nccl_all_go_through_the_host(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    address = cuda.CUDADevice.communicator_address
    lacking = property(lambda self: b"" if self.index else address.fget(self))  # type: ignore[attr-defined]
    monkeypatch.setattr(cuda.CUDADevice, "communicator_address", lacking)

    def live() -> Any:
        with kg.device(f"cuda:{kg.distributed.rank()}"):
            f = kg.kernel_graph(kg.all_reduce, mesh=kg.Mesh(2), in_axes=0, out_axes=None)
            return np.asarray(f(X).parts[0]), f.explain(X)

    with kg.override(collectives="auto"):
        for found, text in kg.distributed.run_threads(2, live):
            np.testing.assert_array_equal(found, reduced("sum", X))
            assert text.startswith("collectives by copies through the host: NCCL is not installed on rank 1")


@pytest.mark.parametrize("late", [False, True])
def test_a_rank_that_cannot_start_a_collective_tells_the_others(
    patient: Two, late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """late: it finishes what it had begun after the other has come to the collective."""
    for context in patient.machine.contexts if late else ():

        def finish(right: Any = context.synchronize) -> None:
            while patient.library.calls.count(("group_end",)) < 3:
                time.sleep(0.001)
            right()

        monkeypatch.setattr(context, "synchronize", finish)

    def live() -> str:
        with kg.device(f"cuda:{kg.distributed.rank()}"):
            f = kg.kernel_graph(lambda x: kg.all_reduce(x), mesh=kg.Mesh(2), in_axes=0, out_axes=None)
            np.asarray(f(X).parts[0])
            kg.distributed.barrier()
            if kg.distributed.rank() == 0:
                patient.library.refuse["group_start"] = SYSTEM_ERROR
            kg.distributed.barrier()
            try:
                np.asarray(f(X).parts[0])
            except kg.KernelGraphError as error:
                return f"{type(error).__name__}: {error}"
            return "nothing"

    found = sorted(kg.distributed.run_threads(2, live))
    what = "all_reduce sum float32[4, 4], collective 0 of <lambda> at "
    assert "has ended or failed" in found[0] and what in found[0] and "test_nccl.py" in found[0]
    assert "LaunchError: NCCL 2.28.9 failed: SystemError (2)" in found[1] and what in found[1]


def test_a_gpu_that_does_not_come_is_named_and_nobody_waits_on(two: Two) -> None:
    f = on_mesh(lambda x: kg.all_reduce(x * 2) + 1)
    np.testing.assert_array_equal(np.asarray(f(X).parts[0]), reduced("sum", X * 2) + 1)
    kg.waitall()
    y = f(X)
    ahead, _ = two.watch._coming[-1].began
    while not ahead.query():
        pass
    for one in two.watch._coming:
        object.__setattr__(one, "began", (ahead, _Never()))
        object.__setattr__(one, "ended", (_Never(), _Never()))
    two.watch.look()
    assert two.library.comms[0].state == "alive"
    with kg.override(collective_timeout=1e-9):
        two.watch.look()
    assert [comm.state for comm in two.library.comms] == ["aborted"] * 2
    text = (
        r"all_reduce sum float32\[4, 4\], collective 0 of <lambda> at .*test_nccl.py:\d+.*: it has not ended within "
        r"1e-09 s \(KERNELGRAPH_COLLECTIVE_TIMEOUT\); cuda:1 did not come to it"
    )
    for part in y.parts:
        with pytest.raises(kg.DeviceLost, match=text):
            np.asarray(part)


class _Never:
    """An event that does not happen."""

    error = None

    def query(self) -> bool:
        return False


def test_unsafe_groups_are_refused(two: Two) -> None:
    plan = on_mesh(lambda x: kg.all_reduce(x * 2) + 1).plan(X)
    assert find_plan_violations(plan) == []
    (kernel,) = plan.collectives
    (task,) = (task for task in plan.tasks if task.kernel is kernel)
    (a, b), (c, _) = task.reads, task.writes
    mutants = {
        "has 1 reads, 2 writes and 1 sizes of 2 devices": replace(task, reads=(a,)),
        "is one of 1 devices, and 2 meet": replace(task, reads=(a,), writes=(c,), kernel=replace(kernel, devices=1)),
        "has values on several devices": replace(task, reads=(b, a)),
        "comes twice to a device, and never to another": replace(task, reads=(a, a), writes=(c, c)),
        "sends 128 bytes of": replace(task, kernel=replace(kernel, counts=(32,))),
        "names a rank beyond the 2": replace(task, kernel=replace(kernel, root=2)),
    }
    for text, mutant in mutants.items():
        tasks = tuple(mutant if t is task else t for t in plan.tasks)
        wrong = replace(plan, program=replace(plan.program, tasks=tasks))
        assert any(text in str(violation) for violation in find_plan_violations(wrong)), text
    launch = next(s for s in plan.steps if isinstance(s, Launch) and plan.tasks[s.task] is task)
    late = replace(plan, steps=tuple(sorted(plan.steps, key=lambda s: s is launch)))
    assert {"race", "order"} & {violation.kind for violation in find_plan_violations(late)}


def test_whole_calls_are_timed_by_ways_whose_collectives_take_long(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside products another way may be faster. Every call is right, whichever way is on trial."""
    two.machine.reads_peers = True
    take(monkeypatch, nccl=lambda n: 9000, copies=lambda n: 800, reads=lambda n: 600, root=lambda n: 900)
    w = np.random.default_rng(0).normal(size=(24, 24)).astype(np.float32)
    with kg.override(collectives="auto"):
        f = on_mesh(lambda x: kg.all_reduce((x @ w).sum(0)) * 2, 0, None)
        elementwise = on_mesh(kg.all_reduce)
        x = np.random.default_rng(1).normal(size=(2, 24, 24)).astype(np.float32)
        want = (x @ w).sum((0, 1)) * 2
        for _ in range(60):
            np.testing.assert_allclose(np.asarray(f(x.reshape(48, 24))), want, rtol=1e-3, atol=1e-4)
            elementwise(X)
            if "reads: " in f.why():
                break
        assert "reads: measured" in f.why() and "copies: " in f.why() and "root: " not in f.why()
        assert "reads: " not in elementwise.why()
        assert f.plan(x.reshape(48, 24)).tasks
