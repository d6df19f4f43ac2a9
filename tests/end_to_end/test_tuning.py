"""The first calls choose the plan: the clock decides among plans of the same bits, once, and then costs nothing."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph.dsl.array.devices import open_device
from kernelgraph.dsl.array.in_flight import waitall
from kernelgraph.runtime.core.errors import OutOfMemory, PlanError
from kernelgraph.runtime.core.readable_text import byte_count_in_words
from kernelgraph.runtime.core.settings import override
from kernelgraph.runtime.program.plan import Launch, Wait
from kernelgraph.runtime.schedule.cost_model import MACHINES
from kernelgraph.runtime.schedule.schedule import CANDIDATES
from kernelgraph.runtime.tune import trial
from kernelgraph.runtime.tune.tuner import FINAL, WARM

MOST = CANDIDATES * (WARM + FINAL)
SQUARE = np.linspace(0, 1, 512 * 512, dtype=np.float32).reshape(512, 512)


def branches(x, *weights):
    return [np.maximum(np.maximum(x @ w, 0) @ w, 0) for w in weights]


@pytest.fixture
def cache(tmp_path):
    with override(cache_dir=str(tmp_path), tune=True):
        yield tmp_path


@pytest.fixture
def device(cache):
    """The fake device, as new."""
    made: Any = open_device(("fake", 0))
    made.log.clear()
    yield made
    made.time_of, made.capacity, made.eager, made.ways = None, None, True, lambda plan: ("",)
    made.queued_time_of, made.overlaps = None, False
    made._faults.clear()
    made.log.clear()


def decorated(function=branches, **options) -> kg.KernelGraph:
    return kg.kernel_graph(device="fake", **options)(function)


def streams_of(plan) -> int:
    return len({step.stream for step in plan.steps if isinstance(step, Launch)})


def launches(device) -> int:
    return sum(entry[0] == "launch" for entry in device.log)


def only_entry(f: kg.KernelGraph) -> Any:
    (entry,) = f._entries.values()
    return entry


def is_plain(entry: Any) -> bool:
    """Whether calls run the function that was written for the key, and nothing else."""
    return entry.run.__code__.co_filename == "<kernelgraph entry>"


ARGUMENTS = (SQUARE, *[SQUARE] * 4)


@pytest.mark.parametrize("best", [1, 4])
def test_the_clock_decides_and_the_winner_takes_the_entrys_place(device, best):
    device.time_of = lambda plan, way: 10.0 if streams_of(plan) == best else 30.0 + streams_of(plan)
    f = decorated()
    calls = 0
    while f(*ARGUMENTS) and not is_plain(only_entry(f)):
        calls += 1
        assert calls <= MOST
    tasks = len(f.program(*ARGUMENTS).tasks)
    assert launches(device) == (calls + 1) * tasks  # a call runs its program once
    assert streams_of(f.plan(*ARGUMENTS)) == best
    text = f.explain(*ARGUMENTS, verbose=True)
    assert "predicted" in text and "measured" in text and " samples: " in text and "won: " in text
    # exactly the path of a function that was never tuned
    with override(tune=False):
        g = decorated(streams=best)
        g(*ARGUMENTS)
    assert only_entry(f).text == only_entry(g).text


def call_alone_and_queued(f, device, rounds: int) -> tuple[int, int]:
    """Rounds of a call alone and ten queued behind it. How many streams the last round's call alone ran on, and its
    last queued one."""
    for _ in range(rounds):
        streams = []
        for _ in range(11):
            device.log.clear()
            f(*ARGUMENTS)
            streams.append(len({entry[1] for entry in device.log if entry[0] == "launch"}))
        device.synchronize()
    return streams[0], streams[-1]


@pytest.mark.parametrize(("alone", "queued"), [(1, 4), (4, 1), (1, 1), (4, 4)])
def test_each_way_of_calling_has_its_winner(device, alone, queued):
    """A call alone is timed by itself; one behind another by how fast a stretch of them comes to its ends."""
    device.overlaps, device.eager = True, False
    device.time_of = lambda plan, way: 10.0 if streams_of(plan) == alone else 30.0
    device.queued_time_of = lambda plan, way: 7.0 if streams_of(plan) == queued else 20.0
    f = decorated()
    assert call_alone_and_queued(f, device, 5 * MOST) == (alone, queued)
    assert is_plain(only_entry(f)) == (alone == queued)
    text = f.explain(*ARGUMENTS, verbose=True)
    assert "measured 10.0 us" in text and "measured 7.0 us" in text and "calls queued:" in text

    again = decorated()
    assert call_alone_and_queued(again, device, 1) == (alone, queued)
    assert "measured before" in again.explain(*ARGUMENTS, verbose=True)


def test_a_candidate_whose_calls_never_overlap_holds_up_no_other(device):
    """Its work is over as soon as it is launched, so that the next call is no queued one."""

    def time_and_end(plan, way):
        device.eager = way == "launches"
        return 7.0 if streams_of(plan) == 1 else 20.0

    device.overlaps, device.ways = True, lambda plan: ("graph", "launches")
    device.time_of, device.queued_time_of = lambda plan, way: 10.0 if way == "graph" else 30.0, time_and_end
    f = decorated()
    call_alone_and_queued(f, device, 5 * MOST)
    queued = f.inspect(ARGUMENTS, {}).compiled.trial.tuners[trial.QUEUED]
    assert queued.names[queued.winner] == "1 stream, graph" and queued.is_measured
    assert "take the host longer" in f.explain(*ARGUMENTS, verbose=True)


def test_a_way_in_which_nobody_calls_is_not_waited_for(device, monkeypatch):
    monkeypatch.setattr(trial, "UNASKED", 8)
    device.overlaps = True
    device.time_of = lambda plan, way: 10.0 if streams_of(plan) == 1 else 30.0
    f = decorated()
    for _ in range(MOST + 10):
        f(*ARGUMENTS)
    assert is_plain(only_entry(f)) and streams_of(f.plan(*ARGUMENTS)) == 1
    assert "hardly any queued" in f.explain(*ARGUMENTS, verbose=True)


def test_a_stretch_of_several_threads_calls_ends(device):
    """Two threads that begin the last call but one at once make it one call longer."""
    device.overlaps, device.eager = True, False
    device.time_of = device.queued_time_of = lambda plan, way: 10.0
    f = decorated()
    call_alone_and_queued(f, device, 1)
    found = f.inspect(ARGUMENTS, {}).compiled.trial
    for _ in range(MOST):
        f(*ARGUMENTS)
        if (stretch := found._stretch) is not None and stretch.calls == trial.STRETCH - 1:
            break
    for _ in range(2):  # both run as any
        found._note_call(found._latest)
    f(*ARGUMENTS)
    assert found._stretch is not stretch


def test_a_stretch_with_other_work_in_it_does_not_count(device):
    device.overlaps, device.eager = True, False
    device.time_of = lambda plan, way: 10.0
    device.queued_time_of = lambda plan, way: 7.0 if streams_of(plan) == 1 else 20.0
    f, other = decorated(), decorated(lambda x: np.sort(x, axis=0))
    for _ in range(MOST):
        f(*ARGUMENTS)
        other(SQUARE)
    device.synchronize()
    f(*ARGUMENTS)
    found = f.explain(*ARGUMENTS, verbose=True)
    assert "measured 7.0 us" not in found and "measured 10.0 us" in found


def test_one_stream_wins_ties(device):
    device.time_of = lambda plan, way: 100.0 - 0.1 * streams_of(plan)
    f = decorated()
    for _ in range(MOST + 1):
        f(*ARGUMENTS)
    assert streams_of(f.plan(*ARGUMENTS)) == 1
    assert "simpler" in f.explain(*ARGUMENTS, verbose=True)


def test_the_winner_is_remembered_by_program_device_and_size(device):
    device.time_of = lambda plan, way: 10.0 if streams_of(plan) == 1 else 30.0
    f = decorated()
    assert streams_of(f.plan(*ARGUMENTS)) == 4  # by the model
    for _ in range(MOST + 1):
        f(*ARGUMENTS)
    assert streams_of(f.plan(*ARGUMENTS)) == 1

    again = decorated()
    again(*ARGUMENTS)
    assert is_plain(only_entry(again)) and streams_of(again.plan(*ARGUMENTS)) == 1
    assert "measured before" in again.explain(*ARGUMENTS, verbose=True)

    double = tuple(np.tile(a, (2, 2)) for a in ARGUMENTS)
    device.log.clear()
    near = decorated()
    near(*double)
    assert not is_plain(only_entry(near)) and streams_of(near.plan(*double)) == 1
    assert "neighbouring size" in near.explain(*double, verbose=True)
    assert {entry[1] for entry in device.log if entry[0] == "launch"} == {0}

    other = decorated(memory="concurrency")
    other(*ARGUMENTS)
    assert not is_plain(only_entry(other))


def test_without_tuning_the_model_decides_and_nothing_is_written(device, cache):
    device.time_of = lambda plan, way: 1.0 if streams_of(plan) == 1 else 30.0
    with override(tune=False):
        f = decorated()
        model = f.plan(*ARGUMENTS)
        for _ in range(MOST + 1):
            f(*ARGUMENTS)
            assert is_plain(only_entry(f))
        assert f.plan(*ARGUMENTS) == model == decorated().plan(*ARGUMENTS)
    assert not (cache / "tune").exists()


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (lambda x: np.exp(x) + 1, (SQUARE,)),  # a single task
        (lambda x, y: (np.exp(x), np.sin(y).sum()), (SQUARE[:8, :8], SQUARE[:4, :4])),  # tiny
        (lambda x: (x @ x) @ x, (SQUARE,)),  # a chain
    ],
)
def test_where_there_is_nothing_to_gain_nothing_is_tuned(device, function, arguments):
    f = decorated(function)
    f(*arguments)
    assert is_plain(only_entry(f))


def test_asked_for_streams_are_not_second_guessed(device):
    device.time_of = lambda plan, way: float(streams_of(plan))
    for streams in (2, "max"):
        f = decorated(streams=streams)
        f(*ARGUMENTS)
        assert is_plain(only_entry(f))
        assert streams_of(f.plan(*ARGUMENTS)) == (2 if streams == 2 else 4)


def test_ways_to_run_a_plan_compete_too(device):
    device.ways = lambda plan: ("graph", "launches")
    device.time_of = lambda plan, way: 10.0 if way == "launches" else 20.0
    f = decorated(lambda x: ((x @ x) @ x) @ x)
    for _ in range(MOST + 1):
        f(SQUARE)
    assert is_plain(only_entry(f))
    assert "won: 1 stream, launches" in f.explain(SQUARE, verbose=True)


@pytest.fixture
def packing(monkeypatch):
    monkeypatch.setitem(MACHINES, "fake", replace(MACHINES["fake"], packs=True, batches=True))


def tiny(*xs):
    """Small branches, each with several launches that do not fuse."""
    for i in range(8):
        xs = [np.exp(x - x.max(axis=i % 2, keepdims=True)) for x in xs]
    return xs


def test_packing_is_chosen_by_the_model_and_measured_by_the_clock(device, packing):
    arguments = [SQUARE[:64, :64]] * 24
    f = decorated(tiny)
    plan = f.plan(*arguments)
    packed = len(plan.tasks)
    assert packed < len(f.program(*arguments).tasks)
    device.time_of = lambda plan, way: 10.0 if len(plan.tasks) > packed and streams_of(plan) == 1 else 30.0
    for _ in range(MOST + 1):
        f(*arguments)
    assert is_plain(only_entry(f))
    assert f.plan(*arguments).tasks == f.program(*arguments).tasks
    assert "packed: measured" in f.explain(*arguments, verbose=True)


def test_matmuls_are_batched_beforehand(device, packing):
    plain = decorated(lambda x, *weights: [np.tanh(np.tanh(x @ w) @ w) for w in weights])
    names = [t.name for t in plain.program(*ARGUMENTS).tasks if "matmul" in t.name]
    assert names == ["matmul x4"] * 2
    plain(*ARGUMENTS)
    launched = [entry[2] for entry in device.log if entry[0] == "launch" and "matmul" in entry[2]]
    assert launched == names


def test_a_host_that_runs_ahead_is_not_held_up(device):
    """No event has happened, so no time is known: calls go on, and the winner is pinned once times come in."""
    device.eager = False
    device.time_of = lambda plan, way: 10.0 if streams_of(plan) == 1 else 30.0
    f = decorated()
    for _ in range(2 * MOST):
        f(*ARGUMENTS)
    assert not is_plain(only_entry(f))
    device.synchronize()
    f(*ARGUMENTS)
    device.synchronize()
    f(*ARGUMENTS)
    assert is_plain(only_entry(f)) and streams_of(f.plan(*ARGUMENTS)) == 1


def test_calls_that_always_overlap_are_left_to_the_model(device, cache):
    device.time_of = lambda plan, way: float("nan")
    f = decorated()
    model = f.plan(*ARGUMENTS)
    for _ in range(100):
        f(*ARGUMENTS)
    assert is_plain(only_entry(f)) and f.plan(*ARGUMENTS) == model
    assert "left to the model" in f.explain(*ARGUMENTS, verbose=True)
    assert not (cache / "tune").exists()


def test_a_candidate_that_does_not_fit_is_dropped_and_the_call_goes_on(device):
    device.time_of = lambda plan, way: 10.0 / streams_of(plan)
    f = decorated()
    one = decorated(streams=1).plan(*ARGUMENTS)
    many = f.plan(*ARGUMENTS)
    assert many.arena_bytes > one.arena_bytes
    kg.waitall()  # what earlier calls held is not in use
    inputs = sum(a.nbytes for a in ARGUMENTS)
    device.capacity = device.in_use + inputs + one.peak_bytes + (many.arena_bytes - one.arena_bytes) // 4
    for _ in range(MOST + 1):
        f(*ARGUMENTS)
    assert is_plain(only_entry(f))
    assert f.plan(*ARGUMENTS).arena_bytes < many.arena_bytes
    assert "out of memory" in f.explain(*ARGUMENTS, verbose=True)


def test_a_candidate_that_does_not_compile_is_dropped(device):
    device.fail("prepare", 1)
    f = decorated()
    for _ in range(MOST + 1):
        f(*ARGUMENTS)
    assert is_plain(only_entry(f))
    assert "CompileError" in f.explain(*ARGUMENTS, verbose=True)


# On the CPU: the same bits from every candidate.


def heavy(x, *weights):
    """Branches that are worth a stream each, some of them in place."""
    results = []
    for i, w in enumerate(weights):
        y = np.cumsum(x * w, axis=0) if i % 2 else np.sort(x - w, axis=1)
        y[1:] = y[:-1] + np.float32(i)
        results.append(np.exp(-np.abs(y)).sum(axis=1))
    return results


@pytest.mark.parametrize("function", [branches, heavy])
@pytest.mark.parametrize("on_device", [False, True])
def test_every_call_gives_the_same_bits(cache, monkeypatch, function, on_device):
    f = kg.kernel_graph(device="cpu")(function)
    with override(tune=False):
        wanted = [np.array(r) for r in kg.kernel_graph(device="cpu", streams=1)(function)(*small())]
    arguments = [kg.asarray(a, device="cpu") for a in small()] if on_device else small()
    monkeypatch.setattr(trial, "UNASKED", 8)  # these calls are not queued
    for _ in range(MOST + 16):
        for got, want in zip(f(*arguments), wanted, strict=True):
            np.testing.assert_array_equal(np.asarray(got), want)
    assert is_plain(only_entry(f))


@pytest.mark.parametrize("function", [branches, heavy])
@pytest.mark.parametrize("chained", [False, True])
def test_calls_queued_and_alone_in_any_order_give_the_same_bits(cache, monkeypatch, function, chained):
    """Each candidate's queued calls, also of what the call before gave, and of more programs than one."""
    monkeypatch.setattr(trial, "UNASKED", 40)
    f, g = (kg.kernel_graph(device="cpu")(lambda *xs: function(*xs)) for _ in range(2))
    arguments = [kg.asarray(a, device="cpu") for a in small()]
    with override(tune=False):
        plain = kg.kernel_graph(device="cpu", streams=1)(lambda *xs: function(*xs))
        first = [np.array(r) for r in plain(*arguments)]
    rng, queue, given = np.random.default_rng(3), [], arguments
    for _ in range(300):
        queue.append((given, (g if rng.random() < 0.05 else f)(*given)))
        if chained:
            given = [queue[-1][1][0], *arguments[1:]] if queue[-1][1][0].shape == arguments[0].shape else arguments
        if rng.random() < 0.08:
            for taken, results in queue:
                with override(tune=False):
                    wanted = [np.array(r) for r in plain(*taken)] if chained else first
                for got, want in zip(results, wanted, strict=True):
                    np.testing.assert_array_equal(np.asarray(got), want)
            queue, given = [], arguments


def small():
    rng = np.random.default_rng(0)
    return [rng.random((160, 160), np.float32) for _ in range(5)]


def test_threads_share_a_trial(cache):
    f = kg.kernel_graph(device="cpu")(branches)
    arguments = small()
    wanted = [np.array(r) for r in f(*arguments)]
    wrong: list[Any] = []

    def work():
        for _ in range(MOST):
            if any(not np.array_equal(g, w) for g, w in zip(f(*arguments), wanted, strict=True)):
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for _ in range(MOST):
        f(*arguments)
    assert not wrong and is_plain(only_entry(f))


# Bad plans and too little memory.


def without_waits(plan):
    """The plan with all its waits dropped: a race."""
    return replace(plan, steps=tuple(s for s in plan.steps if not isinstance(s, Wait)))


def crossing(x, y):
    a, b = x @ y, y @ x
    return a @ b, np.exp(a) + b


def test_a_plan_that_the_verifier_rejects_never_runs(device, monkeypatch):
    import kernelgraph.dsl.jit.specializations as module

    model_plan = module.plan_by_cost_model
    monkeypatch.setattr(module, "plan_by_cost_model", lambda *args: without_waits(model_plan(*args)))
    with override(verify=True, tune=False):
        f = decorated(crossing, streams=2)
        for _ in range(2):
            with pytest.raises(PlanError) as caught:
                f(SQUARE, SQUARE)
            text = str(caught.value)
            assert "race: t" in text and " and t" in text and "bytes 0:" in text and "test_tuning.py:" in text
    assert launches(device) == 0


@pytest.mark.parametrize("tune", [False, True])
def test_every_candidate_is_verified(device, monkeypatch, tune):
    seen = []
    import kernelgraph.runtime.verify.plan as verifier

    check = verifier.require_safe_plan
    monkeypatch.setattr(verifier, "require_safe_plan", lambda plan, *ends: (seen.append(plan), check(plan, *ends)))
    with override(verify=True, tune=tune):
        f = decorated()
        for _ in range(MOST + 1):
            f(*ARGUMENTS)
    assert len(seen) == (1 if not tune else len({id(p) for p in seen})) and (not tune or len(seen) > 1)


def test_out_of_memory_says_what_would_do_and_leaves_the_device_usable(device):
    def wide(x):
        parts = [np.sort(x * i, axis=0) for i in range(1, 9)]
        return sum(p.sum(axis=1) for p in parts)

    x = np.ones((256, 256), np.float32)
    f = decorated(wide, streams=8, memory="concurrency")
    peak = f.plan(x).peak_bytes
    small = decorated(wide, memory="small").plan(x).peak_bytes
    assert small < peak
    waitall()  # what calls before held goes back now, not in the middle
    device.capacity = device.in_use + x.nbytes + small + 4096
    held = device.in_use
    with pytest.raises(OutOfMemory) as caught:
        f(x)
    text = str(caught.value)
    assert f"needs {byte_count_in_words(peak)} beside" in text and "memory='concurrency'" in text
    assert f"memory='small' would need {byte_count_in_words(small)}" in text
    assert device.in_use == held  # although the error is still at hand
    assert launches(device) == 0
    decorated(wide, memory="small")(x)
    assert launches(device) > 0


def test_out_of_memory_on_the_cpu(cache):
    def total(x):
        return np.sort(x, axis=0)[::2] + np.sort(-x, axis=0)[::2]

    x = np.ones((1 << 20, 4), np.float32)
    f = kg.kernel_graph(device="cpu", memory="concurrency")(total)
    g = kg.kernel_graph(device="cpu")(lambda x: x[:1000] + 1)
    before = np.array(f(x))
    kg.waitall()
    pool: Any = open_device(("cpu", 0))
    pool.trim()
    with override(memory_limit=pool.statistics()["reserved"] + (1 << 20)):
        with pytest.raises(OutOfMemory, match=r"needs 56 MiB .* memory='concurrency'; memory='small'"):
            f(x)
        np.testing.assert_array_equal(np.asarray(g(x)), x[:1000] + 1)
    np.testing.assert_array_equal(np.asarray(f(x)), before)
