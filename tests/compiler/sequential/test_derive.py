"""Derivatives of routines: both ways agree with each other, and with differences of NumPy's own results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph.compiler.sequential.backwards import reverse_routines
from kernelgraph.compiler.sequential.evaluate import evaluate_routine
from kernelgraph.compiler.sequential.form import Routine
from kernelgraph.compiler.sequential.partials import NoDerivative
from kernelgraph.compiler.sequential.tangents import routine_with_tangents
from tests.compiler.sequential.test_routines import arguments, routines
from tests.turn_programs import recorded

Array = np.ndarray[Any, Any]


def written(routine: Routine) -> list[int]:
    return [i for i, a in enumerate(routine.arrays) if a.role in ("out", "inout")]


def given(routine: Routine) -> list[int]:
    return [i for i, a in enumerate(routine.arrays) if a.role in ("in", "inout")]


def both_ways(routine: Routine, rng: Any) -> tuple[float, float]:
    """A direction through the derivative one way, and the other."""
    values = [x + (rng.random(x.shape) if x.dtype.kind == "f" else 0) for x in arguments(routine)]
    along, floats = routine_with_tangents(routine)
    changes = {i: rng.normal(size=routine.arrays[i].shape) for i in given(routine) if i in floats}
    ends = {i: rng.normal(size=routine.arrays[i].shape) for i in written(routine) if i in floats}
    results = dict(zip(written(along), evaluate_routine(along, [*values, *changes.values()]), strict=True))
    twins = {array: len(routine.arrays) + k for k, array in enumerate(floats)}
    first = sum(float((ends[i] * results[twins[i]]).sum()) for i in ends)
    made = reverse_routines(routine)
    kept = evaluate_routine(made.forward, values)
    at_end = dict(zip(written(made.forward), kept, strict=True))
    begun = dict(zip(given(routine), values, strict=True))
    zero = {i: np.zeros(routine.arrays[i].shape) for i in made.outputs}
    back = evaluate_routine(
        made.backward,
        [
            *(ends.get(i, zero[i]) for i in made.outputs),
            *(begun[i] if routine.arrays[i].role == "in" else at_end[i] for i in made.primals),
            kept[-1],
        ],
    )
    cotangents = dict(zip(made.outputs, back, strict=False))
    return first, sum(float((changes[i] * cotangents[i]).sum()) for i in changes)


def test_both_ways_agree_for_random_programs() -> None:
    rng, count = np.random.default_rng(3), 0
    for routine in routines(31, 25):
        if any(a.dtype == np.float32 for a in routine.arrays):
            continue
        try:
            along, back = both_ways(routine, rng)
        except NoDerivative:
            continue
        np.testing.assert_allclose(along, back, rtol=1e-7, atol=1e-7, err_msg=str(routine))
        count += 1
    assert count >= 5


def lu(a: Any) -> Any:
    for i in range(a.shape[0]):
        for j in range(i):
            a[i, j] -= a[i, :j] @ a[:j, j]
            a[i, j] /= a[j, j]
        for j in range(i, a.shape[0]):
            a[i, j] -= a[i, :i] @ a[:i, j]
    return (a * a).sum()


def cholesky(a: Any) -> Any:
    for i in range(a.shape[0]):
        for j in range(i):
            a[i, j] = (a[i, j] - np.dot(a[i, :j], a[j, :j])) / a[j, j]
        a[i, i] = np.sqrt(a[i, i] - np.dot(a[i, :i], a[i, :i]))
    return a[-1].sum()


def durbin(a: Any) -> Any:
    r = a[0] / 20
    y = np.empty_like(r)
    alpha, beta = -r[0], 1.0
    y[0] = -r[0]
    for k in range(1, r.shape[0]):
        beta *= 1.0 - alpha * alpha
        alpha = -(r[k] + np.dot(np.flip(r[:k]), y[:k])) / beta
        y[:k] += alpha * np.flip(y[:k])
        y[k] = alpha
    return (y * y).sum()


def swept(a: Any) -> Any:
    for _ in range(9):
        for i in range(1, a.shape[0] - 1):
            for j in range(1, a.shape[1] - 1):
                if a[i, j] > 0.5:
                    a[i, j] = np.tanh(a[i - 1, j]) * a[i, j] + np.exp(-a[i, j + 1])
                else:
                    a[i, j] = max(a[i, j - 1], a[i + 1, j]) ** 2
    return a.sum()


@pytest.mark.parametrize("function", [lu, cholesky, durbin, swept])
def test_gradients_of_recorded_loops(function: Callable[..., Any]) -> None:
    """Beside central differences; and forward over reverse beside differences of the gradient."""
    n = 11
    a = np.random.default_rng(4).random((n, n)) + n * np.eye(n) * (function is not swept)
    direction = np.random.default_rng(5).normal(size=a.shape)
    if function is cholesky:
        a, direction = a @ a.T, direction + direction.T
    with recorded() as notes:
        gradient = kg.kernel_graph(lambda x: kg.grad(function)(x), device="cpu")
        found = np.asarray(gradient(a.copy()))
        second = kg.kernel_graph(lambda x, t: kg.jvp(kg.grad(function), (x,), (t,))[1], device="cpu")
        turned = np.asarray(second(a.copy(), direction))
        assert not [r for each in notes for r in each.reasons.values()]
    step = 1e-6
    high, low = a + step * direction, a - step * direction
    wanted = (function(high.copy()) - function(low.copy())) / (2 * step)
    np.testing.assert_allclose((found * direction).sum(), wanted, rtol=1e-5)
    of_gradients = (np.asarray(gradient(high)) - np.asarray(gradient(low))) / (2 * step)
    np.testing.assert_allclose(turned, of_gradients, rtol=1e-4, atol=1e-5)


def test_the_size_of_a_gradient_is_that_of_its_source() -> None:
    with recorded():
        sizes = {len(kg.kernel_graph(lambda x: kg.grad(lu)(x), device="cpu").graph(np.eye(n)).nodes) for n in (12, 40)}
    assert len(sizes) == 1 and max(sizes) < 60
