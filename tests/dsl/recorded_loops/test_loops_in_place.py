"""Loops that change an argument: they write to the caller's array itself where nothing can tell, else to a copy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(7)
N = 400


def largest(x: Array) -> Any:
    best = x[0]
    for i in range(1, x.shape[0]):
        best = max(best, x[i])
        x[i] = best
    return x


def two(x: Array, y: Array) -> Any:
    for i in range(1, x.shape[0]):
        x[i] = 0.5 * x[i - 1] + y[i]
        y[i] = y[i - 1] - x[i]
    return x.sum()


def table(c: Array) -> Any:
    for i in range(1, c.shape[0]):
        for j in range(1, c.shape[1]):
            c[i, j] = max(c[i - 1, j], c[i, j - 1]) + c[i, j]


def old_beside(x: Array) -> Any:
    old = x.copy()
    for i in range(1, x.shape[0]):
        x[i] = 0.5 * x[i - 1] + old[x.shape[0] - i]


def old_in_the_end(x: Array) -> Any:
    old = x.copy()
    for i in range(1, x.shape[0]):
        x[i] = 0.5 * x[i - 1] + x[i]
    return old, x[::2]


def old_used_later(x: Array) -> Any:
    twice = x * 2
    for i in range(1, x.shape[0]):
        x[i] = 0.5 * x[i - 1] + x[i]
    return twice + x


def old_part(x: Array) -> Any:
    tail = x[-3:].copy()
    for i in range(1, x.shape[0]):
        x[i] = 0.5 * x[i - 1] + tail[i % 3]


def changed_later(x: Array) -> Any:
    for i in range(1, x.shape[0]):
        x[i] = 0.5 * x[i - 1] + x[i]
    x *= 2.0


def changed_before(x: Array) -> Any:
    x += 1.0
    for i in range(1, x.shape[0]):
        x[i] = 0.5 * x[i - 1] + x[i]


def same_result_twice(x: Array) -> Any:
    for i in range(1, x.shape[0]):
        x[i] = 0.5 * x[i - 1] + x[i]
    return x.copy(), x


VECTORS: dict[str, Callable[[], Array]] = {
    "dense": lambda: RNG.random(N),
    "strided": lambda: RNG.random(2 * N)[::2],
    "reversed": lambda: RNG.random(N)[::-1],
    "offset": lambda: RNG.random(N + 1)[1:],
    "swapped": lambda: RNG.random(N).astype(">f8"),
    "odd address": lambda: np.frombuffer(bytearray(8 * N + 1), np.float64, N, 1),
}
FUNCTIONS = (largest, old_beside, old_in_the_end, old_used_later, old_part, changed_later, changed_before)


def compare(function: Callable[..., Any], *args: Array) -> None:
    """Three calls, the first by another way than the later ones."""
    decorated = kg.kernel_graph(device="cpu")(function)
    for _ in range(3):
        want_args, got_args = [a.copy() for a in args], [*args]
        for a, b in zip(want_args, got_args, strict=True):
            np.copyto(b, a)
        with kg.override(verify=True):
            got = decorated(*got_args)
        want = function(*want_args)
        for ours, numpys in zip(
            [*(got if isinstance(got, tuple) else [got]), *got_args],
            [*(want if isinstance(want, tuple) else [want]), *want_args],
            strict=True,
        ):
            if numpys is None:
                assert ours is None
            else:
                np.testing.assert_allclose(np.asarray(ours), numpys, rtol=1e-12)


@pytest.mark.parametrize("kind", VECTORS)
@pytest.mark.parametrize("function", [*FUNCTIONS, same_result_twice], ids=lambda f: f.__name__)
def test_what_a_loop_makes_of_its_argument(function: Callable[..., Any], kind: str) -> None:
    compare(function, VECTORS[kind]())


def test_two_arguments_and_a_table() -> None:
    compare(two, RNG.random(N), RNG.random(N))
    compare(table, RNG.random((30, 40)))
    compare(table, np.asfortranarray(RNG.random((30, 40))))
    compare(table, RNG.random((30, 80))[:, 1::2])


def written_over(function: Callable[..., Any], *args: Array) -> int:
    """How many arguments are outputs of the program too."""
    program = kg.kernel_graph(device="cpu")(function).program(*args)
    return len({*program.inputs} & {*program.outputs})


def test_the_callers_array_is_written_to_where_nothing_reads_what_it_was() -> None:
    x = RNG.random(N)
    assert written_over(largest, x) == 1
    assert written_over(two, x, x.copy()) == 2
    assert written_over(table, RNG.random((30, 40))) == 1
    for function in (old_beside, old_in_the_end, old_used_later, old_part):
        assert written_over(function, x) == 0
    assert written_over(largest, x[::2]) == 0
    assert written_over(largest, kg.asarray(x)) == 0


def test_a_loop_that_may_fail_writes_to_a_copy() -> None:
    def by_index(x: Array, at: Array) -> Any:
        for i in range(x.shape[0]):
            x[at[i]] = x[i] + 1.0

    x, at = RNG.random(N), np.arange(N)
    assert written_over(by_index, x, at) == 0
    compare(by_index, x, at)


def test_arguments_that_share_memory_are_refused_before_anything_is_written_or_run_in_numpy() -> None:
    refusing = kg.kernel_graph(device="cpu", untraceable="refuse")(two)
    decorated = kg.kernel_graph(device="cpu", untraceable="numpy")(two)
    x = RNG.random(N + 1)
    y = x.copy()
    before = x.copy()
    for _ in range(3):
        refusing(RNG.random(N), RNG.random(N))
        with pytest.raises(kg.ArgumentsError):
            refusing(x[1:], x[:-1])
    np.testing.assert_array_equal(x, before)
    for _ in range(3):
        assert float(decorated(x[1:], x[:-1])) == two(y[1:], y[:-1])
        np.testing.assert_array_equal(x, y)


def test_memory_that_is_read_only_is_refused_before_anything_is_written() -> None:
    decorated = kg.kernel_graph(device="cpu")(two)
    x = RNG.random(N + 1)
    before = x.copy()
    x.flags.writeable = False
    with pytest.raises(kg.ReadOnlyError):
        decorated(x[1:], RNG.random(N))
    np.testing.assert_array_equal(x, before)
