"""Plans that one process leaves on disk for the next."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph.dsl import planned
from kernelgraph.runtime.cache import Cache

PROGRAMS = """
import numpy as np
import kernelgraph as kg
from kernelgraph.dsl import planned

@kg.elementwise
def collatz(n: int) -> int:
    turns = 0
    while n != 1:
        n = 3 * n + 1 if n % 2 else n // 2
        turns += 1
    return turns

def chain(a, b):
    e = np.exp(b - b.max(axis=1, keepdims=True))
    return a @ a + e / e.sum(axis=1, keepdims=True), a.mean()

def sorted_rows(a, b):
    return np.sort(a, axis=1)[:, ::2], np.linalg.inv(b + 99 * np.eye(12)), np.fft.fft(a)

def turns(a, b):
    for i in range(80):
        a = np.tanh(a * b + i)
    return a

def looped(a, b):
    return kg.while_loop(lambda s: s[0] < 5, lambda s: (s[0] + 1, s[1] * 2 + b), (0, a))[1]

def chosen(a, b):
    return kg.cond(a.sum() > 0, lambda: a + 1, lambda: b - 1), a[a > 0].sum()

def random(a, b):
    key = kg.random.key(7)
    return kg.random.normal(key, (5, 3)) + 1, collatz((np.abs(a) * 9).astype(np.int64) + 1)

def halves(a, b):
    a[2:4] = 0.5
    return (a.astype(kg.bfloat16) * 3).astype(np.float32), a[np.array([3, 1]), 1:]

a = np.cos(np.arange(144.0)).reshape(12, 12)
for function in (chain, sorted_rows, turns, looped, chosen, random, halves):
    f = kg.kernel_graph(function, device="cpu")
    given = a.copy(), a.T
    found = f(*given)
    print([np.asarray(r).tobytes().hex() for r in (found if isinstance(found, tuple) else (found,))])
    print(f.plan(*given), f.source(*given), f.program(*given))
    g = kg.kernel_graph(function, device="fake")
    print(g.plan(*given), g.source(*given))
"""


def run(script: str, folder: Path) -> tuple[str, int, int]:
    """What a script prints, and how many plans it found on disk and did not."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "KERNELGRAPH_CACHE_DIR": str(folder)}
    (folder / "script.py").write_text(f"{script}\nprint(planned._CACHE.hits, planned._CACHE.misses)")
    command = [sys.executable, str(folder / "script.py")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    *printed, last = done.stdout.splitlines()
    hits, misses = last.split()
    return "\n".join(printed), int(hits), int(misses)


def test_the_next_process_finds_them(tmp_path: Path) -> None:
    first, hits, misses = run(PROGRAMS, tmp_path)
    assert hits == 0 and misses > 10
    assert run(PROGRAMS, tmp_path) == (first, misses, 0)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cache]:
    """An empty one."""
    made = Cache("plan")
    monkeypatch.setattr(planned, "_CACHE", made)
    monkeypatch.setattr(planned, "MOST", 4)
    with kg.override(cache_dir=str(tmp_path)):
        yield made


def call(function: Callable[..., Any], *given: Any, **options: Any) -> Any:
    """By a new decorated function, which knows no plan."""
    return np.asarray(kg.kernel_graph(function, device="cpu", **options)(*given))


def wave(x: Any) -> Any:
    return np.sin(x) + 1


X = np.linspace(0, 1, 24).reshape(4, 6)


def test_each_is_made_once(cache: Cache) -> None:
    for _ in range(3):
        assert np.allclose(call(wave, X), np.sin(X) + 1)
    assert (cache.hits, cache.misses) == (2, 1)


@pytest.mark.parametrize(
    "other",
    [
        lambda: call(wave, X.T),
        lambda: call(wave, X, fastmath=True),
        lambda: call(wave, X, streams=2),
        lambda: call(wave, X, memory="small"),
        lambda: call(wave, X.astype(np.float32)),
        lambda: call(lambda x: np.sin(x) + 1, X),  # on another line
    ],
)
def test_what_else_goes_in_gives_others(cache: Cache, other: Callable[[], Any]) -> None:
    call(wave, X)
    other()
    assert (cache.hits, cache.misses) == (0, 2)


@pytest.mark.parametrize("setting", [{"verify": True}, {"cpu_features": "-avx2,-avx512f"}])
def test_so_do_settings(cache: Cache, setting: dict[str, Any]) -> None:
    call(wave, X)
    with kg.override(**setting):
        call(wave, X)
    assert (cache.hits, cache.misses) == (0, 2)


def test_so_do_changes_of_the_package(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    call(wave, X)
    monkeypatch.setattr(planned, "_PACKAGE", ("another",))
    call(wave, X)
    assert (cache.hits, cache.misses) == (0, 2)


def test_damaged_ones_are_made_again(cache: Cache, tmp_path: Path) -> None:
    call(wave, X)
    (entry,) = (tmp_path / "plan").iterdir()
    for damaged in (b"", b"no pickle", b"cnowhere\nnothing\n."):
        cache.put(entry.name, damaged)
        assert np.allclose(call(wave, X), np.sin(X) + 1)


class Doubling:
    """A callback with a state, which pickle would copy."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, x: Any, out: Any) -> None:
        self.calls += 1
        out[...] = 2 * x


def test_a_callback_is_no_value(cache: Cache) -> None:
    doubling = Doubling()
    for _ in range(2):
        assert np.array_equal(call(lambda x: kg.host(doubling, x, kg.spec(x.shape)), X), 2 * X)
    assert doubling.calls == 2 and cache.hits == 0


def test_where_each_call_is_new_few_are_looked_for_and_written(cache: Cache, tmp_path: Path) -> None:
    for n in range(1, 9):
        call(wave, np.ones(n))
    assert cache.misses == len(list((tmp_path / "plan").iterdir())) == planned.MOST
