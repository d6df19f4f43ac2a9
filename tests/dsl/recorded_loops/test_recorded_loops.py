"""Loops that are recorded: what they give is what NumPy gives, and their size that of their source; or unrolled."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph.dsl.control_flow.repeated_loops import RepeatedBodyLoop
from kernelgraph.dsl.recorded_loops.memory import LoopMemory
from kernelgraph.dsl.trace.trace import KnownLoops
from tests.turn_programs import recorded, repeated

Array = np.ndarray[Any, Any]


@pytest.fixture
def notes() -> Iterator[list[KnownLoops]]:
    """Loops are recorded however short the trace is."""
    with recorded() as found:
        yield found


def reasons(notes: list[KnownLoops]) -> list[str]:
    return [reason for each in notes for reason in each.reasons.values()]


def square(n: int) -> Array:
    return np.random.default_rng(n).normal(size=(n, n)) + n * np.eye(n)


def lu(a: Any) -> Any:
    for i in range(a.shape[0]):
        for j in range(i):
            a[i, j] -= a[i, :j] @ a[:j, j]
            a[i, j] /= a[j, j]
        for j in range(i, a.shape[0]):
            a[i, j] -= a[i, :i] @ a[:i, j]
    return a


def eliminated(a: Any) -> Any:
    for k in range(a.shape[0] - 1):
        a[k + 1 :, k] /= a[k, k]
        a[k + 1 :, k + 1 :] -= np.outer(a[k + 1 :, k], a[k, k + 1 :])
    return a


def cholesky(a: Any) -> Any:
    a[:] = a @ a.T
    a[0, 0] = np.sqrt(a[0, 0])
    for i in range(1, a.shape[0]):
        for j in range(i):
            a[i, j] -= np.dot(a[i, :j], a[j, :j])
            a[i, j] /= a[j, j]
        a[i, i] -= np.dot(a[i, :i], a[i, :i])
        a[i, i] = np.sqrt(a[i, i])
    return a


def solved(a: Any) -> Any:
    x = np.zeros_like(a[0])
    for i in range(len(x) - 1, -1, -1):
        x[i] = (a[0, i] - a[i, i + 1 :] @ x[i + 1 :]) / a[i, i]
    return x


def durbin(a: Any) -> Any:
    r = a[0] / 40
    y = np.empty_like(r)
    alpha, beta = -r[0], 1.0
    y[0] = -r[0]
    for k in range(1, r.shape[0]):
        beta *= 1.0 - alpha * alpha
        alpha = -(r[k] + np.dot(np.flip(r[:k]), y[:k])) / beta
        y[:k] += alpha * np.flip(y[:k])
        y[k] = alpha
    return y


def gram_schmidt(a: Any) -> Any:
    q, r = np.zeros_like(a), np.zeros_like(a)
    for k in range(a.shape[1]):
        r[k, k] = np.sqrt(np.dot(a[:, k], a[:, k]))
        q[:, k] = a[:, k] / r[k, k]
        for j in range(k + 1, a.shape[1]):
            r[k, j] = np.dot(q[:, k], a[:, j])
            a[:, j] -= q[:, k] * r[k, j]
    return q, r


def smoothed(a: Any) -> Any:
    for _ in range(3):
        for i in range(1, a.shape[0] - 1):
            for j in range(1, a.shape[1] - 1):
                a[i, j] = (a[i - 1, j] + a[i, j - 1] + a[i, j] + a[i, j + 1] + a[i + 1, j]) / 5.0
    return a


def longest(a: Any) -> Any:
    """The longest common subsequence of signs: dynamic programming."""
    s, t = a[0] > 0, a[1] > 0
    table = np.zeros((len(s) + 1, len(t) + 1), np.int64)
    for i in range(1, len(s) + 1):
        for j in range(1, len(t) + 1):
            if s[i - 1] == t[j - 1]:
                table[i, j] = table[i - 1, j - 1] + 1
            else:
                table[i, j] = max(table[i - 1, j], table[i, j - 1])
    return table


def sorted_by_insertion(a: Any) -> Any:
    x = a.reshape(-1)[:20].copy()
    for i in range(1, len(x)):
        key, j = x[i], i - 1
        while j >= 0 and x[j] > key:
            x[j + 1] = x[j]
            j -= 1
        x[j + 1] = key
    return x


def first_large(a: Any) -> Any:
    at = -1
    for i in range(a.shape[0]):
        if a[i].sum() > 13:
            at = i
            break
    else:
        at = 99
    return at


PROGRAMS: list[Callable[[Any], Any]] = [
    lu, eliminated, cholesky, solved, durbin, gram_schmidt, smoothed, longest, sorted_by_insertion, first_large,
]  # fmt: skip


def compared(function: Callable[..., Any], ours: Callable[..., Any], *given: Any) -> None:
    theirs = [x.copy() if isinstance(x, np.ndarray) else x for x in given]
    want, got = function(*theirs), ours(*given)
    pairs = zip(got if isinstance(got, tuple) else (got,), want if isinstance(want, tuple) else (want,), strict=True)
    for a, b in (*pairs, *zip(given, theirs, strict=True)):
        assert np.asarray(a).dtype == np.asarray(b).dtype and np.shape(a) == np.shape(b)
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("function", PROGRAMS)
def test_published_loops(function: Callable[..., Any], notes: list[KnownLoops]) -> None:
    ours = kg.kernel_graph(function, device="cpu")
    compared(function, ours, square(12))
    assert not reasons(notes)
    graphs = [ours.graph(square(n)).nodes for n in (12, 31)]
    routines = [{node.attr("routine") for node in nodes if node.op == "sequential"} for nodes in graphs]
    sizes = [sum(r.size for r in each) for each in routines]
    assert max(map(len, graphs)) < 40 and sizes[0] == sizes[1]


def test_a_long_trace_begins_again_with_its_loops_recorded() -> None:
    """Without anybody's asking: LU of 40 x 40 would be 60,000 nodes."""
    ours = kg.kernel_graph(lu, device="cpu")
    compared(lu, ours, square(40))
    assert len(ours.graph(square(40)).nodes) < 20


def test_an_index_out_of_range_raises(notes: list[KnownLoops]) -> None:
    @kg.kernel_graph(device="cpu")
    def f(x: Any, i: Any) -> Any:
        total = 0.0
        for k in range(20):
            total = total + x[i[k]]
        return total

    x, i = np.arange(5.0), np.arange(20) % 5
    assert float(f(x, i)) == 40.0
    i[7] = -5
    assert float(f(x, i)) == 38.0
    i[7] = -6
    with pytest.raises(IndexError, match="index -6 is out of bounds for axis 0 with size 5"):
        float(f(x, i))
    i[7] = 5
    with pytest.raises(IndexError, match="index 5 is out of bounds"):
        float(f(x, i))
    assert not reasons(notes)


def test_negative_indices_wrap_where_they_are_negative(notes: list[KnownLoops]) -> None:
    def f(x: Any) -> Any:
        for k in range(len(x)):
            x[k] += 2 * x[k - 3] + x[k - len(x)]
        return x

    compared(f, kg.kernel_graph(f, device="cpu"), np.arange(11.0))
    assert not reasons(notes)


def test_what_is_read_while_it_is_written_is_what_it_was(notes: list[KnownLoops]) -> None:
    def f(a: Any) -> Any:
        for i in range(1, a.shape[0]):
            before = a[i - 1] * 2
            a[i, 1:] = a[i, :-1] + before[1:]
            a[i - 1] = a[i]
            a[i] += before
            a[i, 1:] = a[i, :-1]
            a[:-1, i] = a[1:, i]
            a[i, :] = a[i, ::-1]
            a[:i] = a[i]
            a[:i, i] = a[i, :i]
        return a

    compared(f, kg.kernel_graph(f, device="cpu"), square(10))
    assert not reasons(notes)


def test_numbers_grow_as_they_do_in_python(notes: list[KnownLoops]) -> None:
    def f(x: Any) -> Any:
        total, count = 0, 0
        for i in range(len(x)):
            total += x[i]
            count += i // 2 + i % 3
        return total, count

    ours = kg.kernel_graph(f, device="cpu")
    total, count = ours(np.arange(12.0))
    assert (float(total), int(count)) == f(np.arange(12.0)) and np.asarray(total).dtype == np.float64
    assert not reasons(notes)


def test_a_name_of_the_last_turn_lives_on(notes: list[KnownLoops]) -> None:
    def f(x: Any) -> Any:
        for i in range(len(x)):
            last = x[i] * 2
        return last + i

    compared(f, kg.kernel_graph(f, device="cpu"), np.arange(11.0))
    assert not reasons(notes)


@pytest.mark.parametrize("n", [9, 10])
def test_loops_that_do_not_run(n: int, notes: list[KnownLoops]) -> None:
    def f(x: Any) -> Any:
        for i in range(len(x)):
            for _ in range(i, 3):
                x[i] += 1
            for j in range(i - 1):
                x[j] -= 0.5
        return x

    compared(f, kg.kernel_graph(f, device="cpu"), np.zeros(n))
    assert not reasons(notes)


def test_what_is_not_followed_is_unrolled(notes: list[KnownLoops]) -> None:
    """With NumPy's values, and a reason."""
    table = [1.0, -2.0, 0.5] * 5

    def of_a_list(x: Any) -> Any:
        for i in range(len(x)):
            x[i] = x[i] * table[i]
        return x

    def of_an_array_of_the_last_turn(x: Any) -> Any:
        for i in range(len(x)):
            part = x[: i + 1] * 2
        return part

    def of_a_library(x: Any) -> Any:
        for i in range(len(x)):
            x[i] = np.linalg.det(x[i] * np.eye(2))
        return x

    for function in (of_a_list, of_an_array_of_the_last_turn, of_a_library):
        notes.clear()
        compared(function, kg.kernel_graph(function, device="cpu"), np.arange(10.0))
        assert reasons(notes)


def test_arrays_that_are_views_share_their_memory(notes: list[KnownLoops]) -> None:
    def f(a: Any) -> Any:
        part, turned = a[2:, 1:], a.T
        for i in range(1, 9):
            part[i, i] = turned[i, i - 1] + 1
            turned[i] += a[i - 1, 0]
        return a, part.sum()

    compared(f, kg.kernel_graph(f, device="cpu"), square(12))
    assert not reasons(notes)


def test_symbols_are_what_they_stand_for(notes: list[KnownLoops]) -> None:
    """Python's own questions have the answers that the turns have, or the loop is unrolled."""
    texts = {"w0": 1.0, "w7": 2.0}

    def of_types(x: Any) -> Any:
        for i in range(12):
            x[i] += 1.0 if isinstance(i, int) and type(i) is int else 7.0
            x[i] += 2.0 if isinstance(x[i], float) and isinstance(x[:i], np.ndarray) else 7.0
        return x

    def of_texts(x: Any) -> Any:
        for i in range(12):
            x[i] += texts.get(f"w{i}", 3.0) + len(str(i))
        return x

    def of_attributes(x: Any) -> Any:
        for i in range(12):
            x[i] += 1.0 if hasattr(i, "shape") else 7.0
        return x

    for function in (of_types, of_texts, of_attributes):
        notes.clear()
        compared(function, kg.kernel_graph(function, device="cpu"), np.zeros(12))
        assert bool(reasons(notes)) == (function is not of_types)


def test_numbers_that_were_traced_before_are_carried(notes: list[KnownLoops]) -> None:
    def f(x: Any) -> Any:
        total, held = x[0] * 2, {"s": x[1]}
        for i in range(len(x)):
            total += x[i]
            held["s"] -= i
        for i in range(len(x)):
            total += i
            held["s"] += total
        return total, held["s"]

    compared(f, kg.kernel_graph(f, device="cpu"), np.arange(11.0))
    assert not reasons(notes)


WEIGHTS = np.random.default_rng(3).random((14, 14))


def test_outs_captured_arrays_and_verified_traces(notes: list[KnownLoops]) -> None:
    """A trace that is made twice is the same, its checks included."""

    def f(a: Any) -> Any:
        large, sums = np.zeros(14, bool), np.empty(14)
        for i in range(14):
            np.multiply(a[i], 2.0, out=a[i])
            sums[i] = WEIGHTS[i, : i + 1] @ a[: i + 1, i]
            large[i] = (a[i, : i + 1] > 1.0).any() and not large[int(a[i, 0]) - 1]
        return sums, large

    with kg.override(verify=True):
        compared(f, kg.kernel_graph(f, device="cpu"), np.random.default_rng(1).random((14, 14)))
    assert not reasons(notes)


@pytest.mark.parametrize("layout", [lambda a: a[::2, ::2], lambda a: a[::-1, ::-1][:14, :14], np.asfortranarray])
def test_arguments_of_any_layout(layout: Callable[[Array], Array], notes: list[KnownLoops]) -> None:
    given, other = layout(square(28)), layout(square(28))
    lu(other)
    kg.kernel_graph(lu, device="cpu")(given)
    np.testing.assert_allclose(given, other, rtol=1e-9)
    assert not reasons(notes)


@pytest.mark.parametrize("start", [2.5, 2, np.float64(2.5)])
def test_a_number_that_a_loop_without_turns_leaves_keeps_its_digits(start: Any) -> None:
    """It is Python's there, and NumPy's functions make a float64 of it."""

    def clipping(a: Any, s: Any) -> Any:
        for i in range(9):
            for j in range(i - 1, -1, -1):
                for k in range(9):
                    s = np.clip(s + a[j % 3][k], -9, 9)
            else:
                s = np.clip(s + 1, -9, 9)
        return s

    a = np.full((9, 9), 0.1, "f4")
    got, want = np.asarray(kg.kernel_graph(clipping, device="cpu")(a, start)), clipping(a, start)
    assert got.dtype == want.dtype
    np.testing.assert_allclose(got, want, rtol=1e-12)


def test_a_number_that_is_of_two_kinds_as_values_decide_is_of_neither(notes: list[KnownLoops]) -> None:
    """Where a loop without turns, or a side of an `if`, leaves a Python number, of which NumPy makes its own."""

    def of_turns(x: Any) -> Any:
        s = 2
        for i in range(9):
            for _ in range(i - 1):
                for k in range(9):
                    s = np.clip(s + x[k], -9, 9)
            s = np.clip(s + 1, -9, 9)
        return s

    def of_sides(x: Any) -> Any:
        s = 1
        for i in range(9):
            s = np.clip(s + (x[i] if x[i] > 1 else 1), -9, 9)
        return s

    def of_roots(x: Any) -> Any:
        norms = np.zeros(9)
        for i in range(9):
            s = 2
            for j in range(i):
                s += x[j]
            norms[i] = np.sqrt(s)
        return norms

    for function in of_turns, of_sides, of_roots:
        notes.clear()
        ours = kg.kernel_graph(function, device="cpu")
        ours(np.ones(9, "f4"))
        assert reasons(notes)[0] == "a number has one dtype or another one, as values decide"
        notes.clear()
        compared(function, kg.kernel_graph(function, device="cpu"), np.full(9, 2.0))
        assert not reasons(notes)


def test_a_long_loop_over_elements_is_recorded_however_regular_it_is() -> None:
    def filtered(x: Any) -> Any:
        y = np.zeros_like(x)
        for i in range(2, len(x)):
            y[i] = x[i] - 0.3 * y[i - 1] + 0.2 * y[i - 2]
        return y

    def smoothed_rows(x: Any) -> Any:
        for i in range(1, len(x)):
            x[i] = 0.9 * x[i - 1] + 0.1 * x[i]
        return x

    for function, x in (filtered, np.arange(5000.0)), (smoothed_rows, np.arange(4000.0).reshape(1000, 4)):
        ours = kg.kernel_graph(function, device="cpu")
        assert len(ours.graph(x).nodes) < 10
        compared(function, ours, x)


def test_a_loop_divides_by_a_number_that_only_numbers_decide() -> None:
    """`p` is the same float in every call, and differs from turn to turn."""

    def kalman(z: Any, q: float, r: float) -> Any:
        x, guess, p = np.zeros_like(z), z[0], 1.0
        for k in range(len(z)):
            p = p + q
            gain = p / (p + r)
            guess = guess + gain * (z[k] - guess)
            p = (1.0 - gain) * p
            x[k] = guess
        return x

    z = np.random.default_rng(1).random(600)
    ours = kg.kernel_graph(kalman, device="cpu")
    np.testing.assert_allclose(np.asarray(ours(z, 1e-3, 0.1)), kalman(z, 1e-3, 0.1), rtol=1e-12)
    assert len(ours.graph(z, 1e-3, 0.1).nodes) < 20


def row_sums(a: Any) -> Any:
    for i in range(a.shape[0]):
        a[i, i] = np.sum(a[i, i:])
    return a


def sum_of_rows(a: Any) -> Any:
    total = np.zeros(a.shape[1])
    for i in range(a.shape[0]):
        total = total + a[i] * i
    return total


@pytest.mark.parametrize(
    ("mode", "function", "lost"),
    [
        (recorded, row_sums, (LoopMemory, "_note_loop_size")),
        (repeated, sum_of_rows, (RepeatedBodyLoop, "_moving_part")),
    ],
)
def test_a_mistake_of_our_own_is_no_reason_not_to_record(
    monkeypatch: pytest.MonkeyPatch, mode: Callable[[], Any], function: Any, lost: tuple[type, str]
) -> None:
    with mode() as notes:
        np.testing.assert_allclose(np.asarray(kg.kernel_graph(function)(square(40))), function(square(40)))
        assert notes and not reasons(notes)
        monkeypatch.delattr(*lost)
        with pytest.raises(AttributeError, match=lost[1]):
            kg.kernel_graph(function)(square(41))


def test_an_attribute_that_a_turn_lacks_is_a_reason_not_to_record(notes: list[KnownLoops]) -> None:
    def bits(a: Any) -> Any:
        for i in range(a.shape[0]):
            a[i] += i.bit_length()
        return a

    assert np.array_equal(kg.kernel_graph(bits)(np.ones(40)), bits(np.ones(40)))
    assert any("bit_length" in reason for reason in reasons(notes))


@pytest.mark.parametrize("size", [0, 1, 7, 100, 300])
def test_the_step_of_a_slice_that_is_assigned_to_may_differ_from_turn_to_turn(
    size: int, notes: list[KnownLoops]
) -> None:
    def crossed_out(x: Any, limit: int) -> Any:
        for i in range(2, 40):
            if i < limit:
                x[i * i :: i] = -i
                x[5 - i : 60 : i + 1] = i
        return x

    ours = kg.kernel_graph(crossed_out, device="cpu")
    assert np.array_equal(np.asarray(ours(np.arange(float(size)), 30)), crossed_out(np.arange(float(size)), 30))
    assert not reasons(notes)


@pytest.mark.parametrize("size", [3, 100])
def test_steps_that_differ_from_turn_to_turn_may_be_negative_and_of_what_is_read(
    size: int, notes: list[KnownLoops]
) -> None:
    def backwards(x: Any) -> Any:
        for i in range(12):
            x[:: i - 15] = i
            x[1 :: i + 1] *= 0.5
        return x

    ours = kg.kernel_graph(backwards, device="cpu")
    assert np.array_equal(np.asarray(ours(np.arange(float(size)))), backwards(np.arange(float(size))))
    assert not reasons(notes)
