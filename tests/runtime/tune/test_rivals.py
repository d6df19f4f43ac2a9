"""Contests between compiled code and plain Python: who wins by which times, what is kept, what is broken off."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kernelgraph.runtime.core.settings import override
from kernelgraph.runtime.devices.cpu.device import CPUDevice
from kernelgraph.runtime.devices.fake import FakeDevice
from kernelgraph.runtime.program.program import Program
from kernelgraph.runtime.tune import rivals
from kernelgraph.runtime.tune.rivals import COMPILED, PLAIN, Contest, open_contest, wins_uncompiled
from kernelgraph.runtime.tune.time_limit import ends_within_seconds

from ..dags import random_program

CONTEST = Contest("key", (1, 2), "name", False)


@pytest.fixture(autouse=True)
def nothing_known(tmp_path: Path) -> Iterator[None]:
    with override(cache_dir=str(tmp_path / "cache"), numpy=True):
        yield


def taking(*seconds: float) -> Callable[[], float]:
    """Runs that take so long, the last of them again and again."""
    left = [*seconds]
    return lambda: left.pop(0) if len(left) > 1 else left[0]


def nothing() -> None: ...


@pytest.mark.parametrize(
    ("compiled", "plain", "winner"),
    [
        (taking(2e-6), taking(1e-6), PLAIN),
        (taking(1e-6), taking(2e-6), COMPILED),
        (taking(1e-6), taking(0.97e-6), COMPILED),  # hardly faster
        (taking(9.0, 9.0, 1e-6), taking(5.0, 2e-6), COMPILED),  # first runs do not count
        (taking(1.0), taking(0.5), PLAIN),  # long ones run once
    ],
)
def test_the_faster_one_wins_and_is_kept(compiled: Any, plain: Any, winner: str) -> None:
    assert CONTEST.stored_winner() is None
    found, times = CONTEST.decide_winner(compiled, plain, nothing, lambda: True)
    assert found == winner and times.keys() == {COMPILED, PLAIN}
    assert CONTEST.stored_winner() == (winner, times)
    assert Contest("key", (1, 3), "name", False).stored_winner() is None  # of other sizes
    with override(cache_dir=""):
        assert CONTEST.stored_winner() is None


def test_pairs_begin_when_a_plan_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[str] = []

    def compiled() -> float:
        runs.append(COMPILED)
        return 1e-6

    def plain() -> float:
        runs.append(PLAIN)
        return 2e-6

    monkeypatch.setattr(rivals, "WARM_SECONDS", 1e9)
    CONTEST.decide_winner(compiled, plain, nothing, lambda: len(runs) >= 20)
    assert runs.index(PLAIN) == 20
    assert runs.count(PLAIN) == rivals.PAIRS + 1


def endless() -> None:
    while True:
        pass


def test_runs_in_which_plans_are_made_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long they take: what is chosen there may be a thousand times as fast."""
    monkeypatch.setattr(rivals, "WARM_SECONDS", 1e9)
    runs: list[float] = []

    def compiled() -> float:
        runs.append(0.05 if len(runs) < 6 else 1e-5)
        return runs[-1]

    assert CONTEST.decide_winner(compiled, taking(0.04), nothing, lambda: len(runs) > 6)[0] == COMPILED


def test_a_compiled_run_that_is_held_up_once_does_not_lose() -> None:
    """Where one run in NumPy takes all the time that there is, what was measured before its one pair counts as well."""
    seconds = iter([1e-5, 1e-5, 0.05])
    winner, times = CONTEST.decide_winner(lambda: next(seconds), taking(0.04), nothing, lambda: True)
    assert winner == COMPILED and times[COMPILED] == pytest.approx(10.0)


def test_a_plain_run_that_takes_too_long_is_broken_off() -> None:
    contest = Contest("other", (), "name", True)
    winner, times = contest.decide_winner(taking(1e-6), taking(0.0), endless, lambda: True)
    assert winner == COMPILED and times.keys() == {COMPILED}
    assert contest.stored_winner() == (COMPILED, times)
    assert contest.decide_winner(taking(1e-6), taking(1e-7), nothing, lambda: True)[0] == PLAIN


def test_a_run_that_ends_as_it_is_broken_off_leaves_nothing_behind() -> None:
    """What is raised for it comes within, or not at all."""
    for length in range(200):

        def counting() -> None:
            for _ in range(length * 50):  # noqa: B023
                pass

        ends_within_seconds(length * 1e-6, counting)
    endless_until = [0] * 100_000
    for i in range(len(endless_until)):  # bytecode that something late would be raised at
        endless_until[i] += 1
    assert sum(endless_until) == len(endless_until)


def test_errors_of_a_run_go_through() -> None:
    def failing() -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        Contest("failing", (), "name", True).decide_winner(taking(1e-6), taking(1.0), failing, lambda: True)


def test_many_loops_are_decided_once() -> None:
    device = CPUDevice()
    assert not wins_uncompiled("few", rivals.MANY_LOOPS - 1, device, endless)
    assert not wins_uncompiled("long", rivals.MANY_LOOPS, device, endless)
    assert not wins_uncompiled("long", rivals.MANY_LOOPS, device, nothing)  # as it was found
    assert wins_uncompiled("short", 10**9, device, nothing)
    assert wins_uncompiled("short", 10**9, device, endless)


def test_which_programs_take_part() -> None:
    program: Program = random_program(Random(3), 4)
    device = CPUDevice()
    assert open_contest(program, device, False, "f") is not None
    assert open_contest(program, device, True, "f") is None  # kernels alone, past the engine
    assert open_contest(program, FakeDevice(), False, "f") is None
    for count, cost in ((200, 10.0), (20, 100.0)):  # of many tasks each has its overhead
        long = replace(program, tasks=(replace(program.tasks[0], cost=cost),) * count)
        assert (open_contest(long, device, False, "f") is not None) == (cost < rivals.SMALL_TASK)
    assert open_contest(program, device, False, "f") == open_contest(program, device, False, "f")
    assert open_contest(program, device, False, "g") != open_contest(program, device, False, "f")
    for setting in ({"tune": False}, {"numpy": False}, {"engine": "sync"}, {"verify": True}):
        with override(**setting):
            assert open_contest(program, device, False, "f") is None
