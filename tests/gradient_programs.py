"""Random differentiable programs: forward mode against differences, reverse mode against forward mode, twice.

python -m tests.gradient_programs --count 1000 --seed 1

A program computes matrices of two arguments by NumPy's functions, views, assignments, masks and loops. In every tenth
the gradient that `kg.grad` compiles is compared too, also through `kg.checkpoint`; on a GPU (`--device cuda`) it alone
is compared, in each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

import kernelgraph as kg
from tests.compiler.derive.derivatives import check_function
from tests.random_cases import (
    Outcome,
    Suite,
    command_line,
    describe_refusal,
    names_in_file,
    report_and_exit,
    under_alarm,
)

# of {a} and {b}, matrices of shape (3, 4), such a matrix; {x} is 0 or 1. i: places of 4, j: of 3; m: a mask.
VALUES = """
np.sin({a})
np.tanh({a}) * {b}
{a} + {b}
{a} * {b} - 0.3
{a} / (1.5 + {b} ** 2)
np.exp(-np.abs({a}))
np.log1p({a} ** 2) - {b}
np.where({a} > 0.2, {a}, {b} * 2)
np.where(m, np.sqrt(np.where(m, {a}, 1) ** 2 + 1), {b})
np.maximum({a}, {b} + 0.05)
np.clip({a}, -0.7, 0.8)
np.arctan2({a}, {b} ** 2 + 1) + np.hypot({a}, 1.5)
np.logaddexp({a}, {b})
np.sort({a}, {x})
np.partition({a}, 1, {x})
np.median({a}, {x}, keepdims=True) + {b}
np.quantile({a}, 0.3, {x}, keepdims=True) * {b}
np.cumsum({a}, {x}) / 3
np.cumprod(np.tanh({a}) + 0.5, {x})
np.logaddexp.accumulate({a}, {x})
{a}[::-1, 1:].repeat(2, 1)[:, 1:5]
np.roll({a}, 1, {x})
np.pad({a}, 1)[1:4, 0:4]
{a} - {a}.mean({x}, keepdims=True)
{a} / np.sqrt(1 + ({a} ** 2).sum({x}, keepdims=True))
{a}.var({x}, keepdims=True) * {b}
np.max({a}, {x}, keepdims=True) - {b}
np.prod({a} * 0.5 + 1.3, {x}, keepdims=True) + {b}
np.linalg.norm({a} + 2, axis={x}, keepdims=True) * {b}
np.take({a}, i, axis=1)
{a}[j]
{a}[j[:, None], i]
np.take_along_axis({a}, i[None] % 3, 0) + {b}
np.concatenate([{a}[:1], {b}[1:]])
np.stack([{a}, {b}], 1)[:, 1]
np.lib.stride_tricks.sliding_window_view({a}.ravel(), 3).sum(1).repeat(2)[:12].reshape(3, 4)
np.einsum("ij,kj->ik", {a}, {b}) @ {a} / 4
({a} @ {b}.T) @ {a} / 4
np.linalg.solve({a} @ {a}.T + 3 * np.eye(3), {b})
np.linalg.inv({a} @ {a}.T / 9 + 2 * np.eye(3)) @ {b}
np.linalg.det({a} @ {a}.T / 9 + np.eye(3)) * {b}
np.linalg.cholesky({a} @ {a}.T / 4 + np.eye(3)) @ {b}
np.linalg.eigvalsh({a} @ {a}.T + np.diag([1.0, 3, 9]))[:, None] / 4 + {b}
np.linalg.svd({a} + 2 * np.eye(3, 4), full_matrices=False)[1][:, None] * {b} / 4
np.fft.irfft(np.fft.rfft({a}, axis=1) * np.fft.rfft({b}, axis=1), 4, axis=1) / 4
np.abs(np.fft.fft({a} + 2, axis={x})) / 3
(({a} + 1j * {b}) ** 2).real + np.angle({a} + 4 + 1j * {b})
np.convolve({a}.ravel(), {b}[0], "same").reshape(3, 4) / 2
np.interp({a}, np.array([-2.0, -0.3, 0.4, 2.0]), {b}[1])
np.histogram(np.arange(12) % 5, 4, (0, 4), weights={a}.ravel())[0] / 3 + {b}
np.add.reduceat({a}, np.array([0, 1, 3]), axis=1)[:, :1] * {b} / 2
""".strip().split("\n")
# statements that change {n}, a copy
CHANGES = """
{n}[1:, ::2] = {b}[1:, 1::2]
{n}[m] = {b}[m] * 0.5
{n}[m] *= 0.7
{n}[j] = {b}
{n}[:, i] += {b}
{n}[1] = {n}[0] * {b}[2]
{n} *= 0.9
{n} += {b} * {n}
{n}.sort({x})
np.add.at({n}, j, {b})
np.put_along_axis({n}, i[None] % 3, {b}[:1], 0)
for _ in range(3): {n} = np.sin({n}) + {b} * 0.1
for k in range(2): {n}[k] = {n}[k + 1] * {b}[k]
for k in range(1, 4): {n}[:, k] += 0.5 * {n}[:, k - 1]
""".strip().split("\n")
NEAR = 1e-4


@dataclass(frozen=True)
class Program:
    """Statements, and the names that are given back."""

    seed: int
    number: int
    lines: tuple[str, ...]
    results: tuple[str, ...]

    @property
    def text(self) -> str:
        body = "\n".join(f"    {line}" for line in self.lines)
        return f"def program_{self.number}(p, q, i, j, m):\n{body}\n    return ({', '.join(self.results)},)\n"


def draw(seed: int, number: int) -> Program:
    random = Random(seed * 1_000_003 + number)
    names, lines = ["p", "q"], []
    for k in range(random.randint(2, 7)):
        given = {"a": random.choice(names), "b": random.choice(names), "x": random.randint(0, 1), "n": f"v{k}"}
        if random.random() < 0.3:
            lines += [f"v{k} = {given['a']} * 1.0", random.choice(CHANGES).format(**given)]
        else:
            lines.append(f"v{k} = " + random.choice(VALUES).format(**given))
        names.append(f"v{k}")
    return Program(seed, number, tuple(lines), tuple(names[-1 - random.randint(0, 1) :]))


def arguments(program: Program) -> list[Any]:
    rng = np.random.default_rng([program.seed, program.number])
    p, q = rng.uniform(-1.2, 1.2, (2, 3, 4))
    return [p, q, rng.integers(0, 4, 4), rng.integers(0, 3, 3), rng.random((3, 4)) < 0.5]


def outcome_of(program: Program, function: Any, device: str) -> Outcome:
    given = arguments(program)
    try:
        if device == "cpu":
            check_function(function, *given, order=2 if program.number % 4 == 0 else 1, near=NEAR)
        if device != "cpu" or program.number % 10 == 0:
            _compare_compiled(function, given, device)
    except kg.UnsupportedError as error:
        return Outcome(1, refused=(describe_refusal(error),))
    except NameError:  # what was left out made it
        return Outcome(0)
    except AssertionError as error:
        return Outcome(1, wrong="differs: " + " ".join(str(error).split())[:300])
    return Outcome(1)


def _compare_compiled(function: Any, given: Sequence[Any], device: str) -> None:
    """The gradient of a sum of squares, along a direction; and that of a function that is computed again."""

    def loss(p: Any, q: Any, i: Any, j: Any, m: Any) -> Any:
        return sum((r**2).sum() for r in function(p, q, i, j, m))

    def loss_of_checkpoint(p: Any, q: Any, *rest: Any) -> Any:
        return kg.checkpoint(loss)(p * 1, q * 1, *rest)

    rng = np.random.default_rng(0)
    u = rng.normal(size=(2, 3, 4))
    gradient = kg.grad(loss, (0, 1))
    found = kg.kernel_graph(lambda *arguments: gradient(*arguments), device=device)(*given)
    plain = [loss(given[0] + s * u[0], given[1] + s * u[1], *given[2:]) for s in (1e-6, -1e-6)]
    quotient = (plain[0] - plain[1]) / 2e-6
    along = sum(float(np.sum(np.asarray(f) * d)) for f, d in zip(found, u, strict=True))
    assert abs(along - quotient) <= NEAR * (1 + abs(quotient)), f"compiled {along}, quotient {quotient}"
    if device == "cpu":
        for again, once in zip(kg.grad(loss_of_checkpoint, (0, 1))(*given), found, strict=True):
            np.testing.assert_allclose(again, once, rtol=0, atol=1e-7 * (1 + float(np.max(np.abs(once)))))


def outcomes(cases: Sequence[Program], folder: Path, device: str, label: str) -> Iterator[tuple[Program, Outcome]]:
    names = names_in_file(["import numpy as np", *(c.text for c in cases)], folder, label)
    return under_alarm(cases, lambda c: outcome_of(c, names[f"program_{c.number}"], device))


def smaller(program: Program) -> Iterator[Program]:
    for at in range(len(program.lines) - 1, -1, -1):
        yield replace(program, lines=program.lines[:at] + program.lines[at + 1 :])
    for name in program.results:
        if len(program.results) > 1:
            yield replace(program, results=(name,))


SUITE: Suite[Program] = Suite(
    "gradients", 50, draw, outcomes, smaller, lambda case, outcome: f"{case.text}\n{outcome.wrong}", 2
)

if __name__ == "__main__":
    report_and_exit(SUITE, command_line(__doc__).parse_args())
