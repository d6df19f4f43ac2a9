"""The tuner gives each candidate its samples, pins the fastest, never a slower one; winners survive on disk."""

from __future__ import annotations

import math
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from kernelgraph.runtime.core.settings import override
from kernelgraph.runtime.program.program import Buffer, Program, Region
from kernelgraph.runtime.tune.tuner import (
    BUCKETS,
    FINAL,
    PATIENCE,
    SAMPLES,
    TIE,
    WARM,
    PlanTuner,
    hodges_lehmann_of_measured_times,
    load_stored_tuning_winner,
    size_bucket_of_program,
    size_free_program_key,
    store_tuning_winner,
)
from tests.counts import examples
from tests.runtime.dags import random_program

NAMES = ("1 stream", "2 streams", "max", "max, packed")


def play(
    tuner: PlanTuner, time_of, rng: Random, lag: int = 0, lost: float = 0.0, limit: int = 1000
) -> list[int | None]:
    """Calls until a winner is pinned: what `next_candidate` answered.

    Times arrive `lag` calls late and out of order.
    """
    turns: list[int | None] = []
    flying: list[tuple[int, float]] = []
    while tuner.winner is None and len(turns) < limit:
        turns.append(tuner.next_candidate())
        if turns[-1] is not None:
            flying.append((turns[-1], math.nan if rng.random() < lost else time_of(turns[-1])))
        while len(flying) > lag or (flying and turns[-1] is None):
            tuner.add_sample(*flying.pop(rng.randrange(len(flying))))
    return turns


@given(st.lists(st.floats(1, 1000), min_size=1, max_size=4), st.integers(0, 30), st.integers(0, 2**32))
@hypothesis_settings(max_examples=examples(200), deadline=None)
def test_the_winner_is_the_fastest_or_a_simpler_one_within_the_tie(speeds, lag, seed):
    rng = Random(seed)
    tuner = PlanTuner(NAMES[: len(speeds)], start=rng.randrange(len(speeds)))
    turns = play(tuner, lambda c: speeds[c], rng, lag)
    assert tuner.winner is not None
    best = min(speeds)
    within = [c for c, speed in enumerate(speeds) if speed <= best * (1 + TIE)]
    assert tuner.winner == within[0]
    assert len(turns) <= len(speeds) * (WARM + FINAL) + 2 * lag
    assert len(speeds) > 1 or not turns


def test_samples_are_interleaved_and_nobody_always_follows_the_same_neighbour():
    tuner = PlanTuner(NAMES)
    turns = play(tuner, lambda c: 100.0, Random(0))
    rounds = [turns[i : i + 4] for i in range(0, len(turns), 4)]
    assert all(sorted(r) == [0, 1, 2, 3] for r in rounds) and len(rounds) == WARM + FINAL
    assert len({r[0] for r in rounds}) == 4
    assert tuner.winner == 0
    assert all(len(times) == FINAL for times in tuner.times)


def test_the_first_sample_of_each_is_not_counted():
    seen: set[int] = set()

    def time_of(c: int) -> float:
        cold = c not in seen
        seen.add(c)
        return 1e6 if cold else 10.0 + c

    tuner = PlanTuner(NAMES)
    play(tuner, time_of, Random(0))
    assert tuner.winner == 0 and max(map(max, tuner.times)) < 100


@given(st.integers(0, 3), st.floats(0.1, 0.4), st.integers(0, 2**32))
@hypothesis_settings(max_examples=examples(100), deadline=None)
def test_samples_that_do_not_count_are_taken_again(best, lost, seed):
    rng = Random(seed)
    tuner = PlanTuner(NAMES)
    play(tuner, lambda c: 50.0 if c == best else 70.0, rng, lag=rng.randrange(8), lost=lost)
    assert tuner.winner == best or "left to the model" in tuner.reason


def test_calls_that_always_overlap_leave_it_to_the_model():
    tuner = PlanTuner(NAMES, start=2)
    turns = play(tuner, lambda c: 1.0, Random(0), lost=1.0)
    assert tuner.winner == 2 and "left to the model" in tuner.reason
    assert len(turns) == PATIENCE


def test_a_host_far_ahead_runs_the_start_untimed():
    """All samples are issued and none is known yet: nothing more is timed."""
    tuner = PlanTuner(NAMES, start=1)
    turns = [tuner.next_candidate() for _ in range(100)]
    assert sum(t is not None for t in turns) == len(NAMES) * (WARM + SAMPLES)
    assert turns[-1] is None and tuner.winner is None


def test_a_hopeless_candidate_is_given_up_early():
    tuner = PlanTuner(NAMES)
    turns = play(tuner, lambda c: 1000.0 if c == 3 else 10.0, Random(0))
    assert tuner.winner == 0
    assert turns.count(3) < WARM + SAMPLES
    assert any("out: more than" in line for line in tuner.lines())


def test_a_candidate_that_cannot_run_never_wins():
    tuner = PlanTuner(NAMES, start=1)
    tuner.next_candidate()
    tuner.drop(1, "out of memory")
    play(tuner, lambda c: 1.0 if c == 1 else 10.0 + c, Random(0))
    assert tuner.winner == 0
    assert "out of memory" in "\n".join(tuner.lines())
    for c in range(4):
        alone = PlanTuner(NAMES)
        for other in range(4):
            if other != c:
                alone.drop(other, "out of memory")
        assert alone.winner == c


def test_samples_that_borrow_from_their_neighbours():
    """Of queued calls on several streams one may seem to take nothing and the next twice as long."""
    won = [0, 0]
    for seed in range(100):
        rng = Random(seed)
        tuner = PlanTuner(NAMES[:2], usual=hodges_lehmann_of_measured_times)
        play(tuner, lambda c, rng=rng: 50.0 if c == 0 else rng.choice((-1.0, 131.0)), rng)
        won[tuner.winner] += 1
    assert won[0] >= 75  # by the lower quartile it never won


def test_noise_costs_little():
    """With 2 % noise and rare outliers the winner is hardly ever far from the fastest."""
    far = 0
    for seed in range(400):
        rng = Random(seed)
        speeds = [rng.uniform(50, 200) for _ in NAMES]

        def time_of(c: int, rng: Random = rng, speeds: list[float] = speeds) -> float:
            return speeds[c] * (1 + abs(rng.gauss(0, 0.02))) * (3 if rng.random() < 0.05 else 1)

        tuner = PlanTuner(NAMES)
        play(tuner, time_of, rng)
        far += speeds[tuner.winner] > min(speeds) * 1.06
    assert far <= 2


def test_close_candidates_are_looked_at_longer():
    """With 3 % noise a winner among close ones is hardly ever 2 % from the fastest; clear races end early."""
    far = 0
    for seed in range(300):
        rng = Random(seed)
        speeds = [rng.uniform(100, 108) for _ in NAMES[:3]] + [150.0]
        tuner = PlanTuner(NAMES)
        turns = play(tuner, lambda c, rng=rng, speeds=speeds: speeds[c] * (1 + abs(rng.gauss(0, 0.03))), rng)
        far += speeds[tuner.winner] > min(speeds) * 1.02
        assert turns.count(3) <= WARM + SAMPLES
    assert far <= 6
    clear = PlanTuner(NAMES)
    assert len(play(clear, lambda c: 100.0 + 12 * c, Random(0))) == len(NAMES) * (WARM + SAMPLES)
    assert clear.winner == 0 and "1.12 times as fast" in clear.reason


def test_bad_start_is_refused():
    with pytest.raises(ValueError, match="start=4"):
        PlanTuner(NAMES, start=4)


# On disk.


def resized(program: Program, factor: int) -> Program:
    """The same tasks on buffers `factor` times as long."""

    def region(r: Region) -> Region:
        return replace(r, offset=r.offset * factor, shape=tuple(n * factor for n in r.shape))

    tasks = tuple(
        replace(t, reads=tuple(map(region, t.reads)), writes=tuple(map(region, t.writes))) for t in program.tasks
    )
    buffers = tuple(Buffer(b.nbytes * factor, b.kind) for b in program.buffers)
    return replace(program, tasks=tasks, buffers=buffers)


@pytest.fixture
def folder(tmp_path):
    with override(cache_dir=str(tmp_path)):
        yield tmp_path


def test_a_program_keeps_its_key_and_changes_its_bucket_with_its_sizes():
    rng = Random(3)
    programs = [random_program(rng, n) for n in range(2, 12)]
    for program in programs:
        big = resized(program, 64)
        assert size_free_program_key(program, "gpu") == size_free_program_key(big, "gpu")
        assert [b - a for a, b in zip(size_bucket_of_program(program), size_bucket_of_program(big), strict=True)] == [
            6
        ] * len(size_bucket_of_program(program))
        assert size_free_program_key(program, "gpu") != size_free_program_key(program, "other gpu")
    assert len({size_free_program_key(p) for p in programs}) == len(programs)


def test_winners_come_back_and_a_new_bucket_starts_from_its_neighbour(folder):
    assert load_stored_tuning_winner("0" * 64, (10, 10)) is None
    store_tuning_winner("0" * 64, (10, 10), "2 streams", {"1 stream": 3.0, "2 streams": 2.0})
    store_tuning_winner("0" * 64, (20, 20), "max", {"max": 7.0})
    exact = load_stored_tuning_winner("0" * 64, (10, 10))
    assert exact is not None and exact.exact and exact.winner == "2 streams" and exact.times["1 stream"] == 3.0
    near = load_stored_tuning_winner("0" * 64, (12, 11))
    assert near is not None and not near.exact and near.winner == "2 streams"
    assert load_stored_tuning_winner("0" * 64, (19, 20)).winner == "max"
    assert load_stored_tuning_winner("0" * 64, (19, 20, 3)) is None
    assert load_stored_tuning_winner("1" * 64, (10, 10)) is None


def test_the_newest_buckets_are_kept(folder):
    for size in range(BUCKETS + 5):
        store_tuning_winner("2" * 64, (size,), f"{size}", {})
    assert load_stored_tuning_winner("2" * 64, (BUCKETS + 4,)).exact
    assert not load_stored_tuning_winner("2" * 64, (0,)).exact


@pytest.mark.parametrize("payload", [b"", b"{", b"[]", b'{"buckets": 3}', b'{"buckets": {"1": {"winner": "x"}}}'])
def test_damage_is_forgotten(folder, payload):
    from kernelgraph.runtime.core.disk_cache import DiskCache

    DiskCache("tune").put("3" * 64, payload)
    assert load_stored_tuning_winner("3" * 64, (1,)) is None
    store_tuning_winner("3" * 64, (1,), "max", {})
    assert load_stored_tuning_winner("3" * 64, (1,)).winner == "max"


def test_without_a_cache_nothing_is_kept(tmp_path):
    with override(cache_dir=""):
        store_tuning_winner("4" * 64, (1,), "max", {})
        assert load_stored_tuning_winner("4" * 64, (1,)) is None
