"""Loops whose turns repeat are traced once: what they give is what NumPy gives, and their length costs nothing."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph.compiler.graph.graph import Graph
from tests.random_cases import names_in_file
from tests.turn_programs import Program, load, outcome, repeated

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(5)


def same(function: Callable[..., Any], *args: Any, exact: bool = True) -> Graph:
    """Checks a call against NumPy's, and what it writes to its arguments; the graph."""
    want_args, got_args = (tuple(a.copy() if isinstance(a, np.ndarray) else a for a in args) for _ in range(2))
    want = function(*want_args)
    decorated = kg.kernel_graph(device="cpu")(function)
    with kg.override(verify=True):
        got = decorated(*got_args)
    every = [want] if not isinstance(want, tuple) else [*want]
    found = [got] if not isinstance(got, tuple) else [*got]
    for ours, numpys in zip([*found, *got_args], [*every, *want_args], strict=True):
        assert np.asarray(ours).dtype == np.asarray(numpys).dtype
        if exact:
            np.testing.assert_array_equal(np.asarray(ours), numpys)
        else:
            np.testing.assert_allclose(np.asarray(ours), numpys, rtol=1e-6)
    return decorated.graph(*args)


def rolled(x: Array, z: Array, turns: int) -> Any:
    out = np.zeros((turns, x.shape[0]))
    for i in range(turns):
        x = x * 0.5 + z[i]
        out[i] = x * i
    return out, x


def in_place(u: Array, turns: int) -> Any:
    for _ in range(turns):
        u[1:-1] += 0.25 * (u[:-2] - 2 * u[1:-1] + u[2:])
    return u


def by_rows(x: Array, w: Array) -> Any:
    total = np.zeros(x.shape[1])
    for n, (row, f) in enumerate(zip(x, w)):  # noqa: B905
        total = total * 0.5 + row * f - n
    return total


def in_time(u: Array, v: Array, dt: float, turns: int) -> Any:
    t = 0.0
    for i in range(turns):
        u = u + dt * v
        v = v - dt * u * np.cos(t) + 0.5 / (i + 1) - (i * dt) * 0.25
        t += dt
    return u, v


def windows(x: Array, turns: int) -> Any:
    found = np.empty(turns)
    for i in range(turns):
        found[i] = (x[i : i + 4] * x[turns - i]).sum() + i / 2
    return found


def last_values(x: Array, turns: int) -> Any:
    for i in range(2, turns):
        y = x * i
        z = y - 1
        k = 2 * i + 1
        x = z * 2.0**-12
    return x, y, k, i, x[i % 3]


def shortest_paths(d: Array) -> Any:
    for k in range(d.shape[0]):
        d[:] = np.minimum(d, d[:, k : k + 1] + d[k])
    return d


def pivots(a: Array) -> Any:
    n = a.shape[0]
    for k in range(n):
        row = a[n - 1 - k]
        a[:] = 0.5 * a - 0.25 * row[k]
        a += row * 0.125 + a[None, k, 2]
    return a


def renamed(a: Array, turns: int) -> Any:
    for k in range(1, turns):
        a = a * 0.5 + a[k] - a[2 * k - k - 1, ..., None][0]
    return a


@pytest.mark.parametrize(
    "function, args",
    [
        (shortest_paths, lambda n: (RNG.random((n // 3, n // 3)),)),
        (pivots, lambda n: (RNG.random((n // 4, n // 4)),)),
        (renamed, lambda n: (RNG.random((n, n // 100)), n)),
        (rolled, lambda n: (RNG.integers(0, 9, 8) * 1.0, RNG.integers(0, 9, (n, 8)) * 1.0, n)),
        (in_place, lambda n: (RNG.random(40), n)),
        (by_rows, lambda n: (RNG.integers(0, 9, (n, 6)) * 1.0, RNG.integers(0, 9, n) * 1.0)),
        (in_time, lambda n: (RNG.random(20), RNG.random(20), 0.01, n)),
        (windows, lambda n: (RNG.integers(0, 9, n + 4) * 1.0, n)),
        (last_values, lambda n: (RNG.integers(0, 9, 6) * 1.0, n)),
    ],
)
def test_loops_of_any_length_are_one_small_graph(function: Callable[..., Any], args: Callable[[int], Any]) -> None:
    """A graph has as many nodes, whether its loop has hundreds of turns or many times as many."""
    sizes = {len(same(function, *args(n), exact=False).nodes) for n in (400, 1600)}
    assert max(sizes) < 90
    kinds = {node.op for node in same(function, *args(400), exact=False).nodes}
    assert kinds & {"loop", "sequential"}


def _by_a_list(x: Array) -> Any:
    factors = [0.5, 0.25, 0.125] * 20
    for i in range(60):
        x = x * factors[i] + 1
    return x


def _by_a_decision(x: Array) -> Any:
    for i in range(60):
        x = x * 0.5 + (1 if i == 50 else 0)
    return x


def _by_a_count(x: Array) -> Any:
    count = 1
    for _ in range(60):
        x = x * 0.5 + count
        count *= 3
    return x


def _of_itself(x: Array) -> Any:
    for i in range(1, 60):
        x[i] = x[i - 1] * 0.5 + x[i]
    return x


def _swapped(x: Array) -> Any:
    y = x * 2
    for _ in range(61):
        x, y = y, x + 1
    y[0] = 5
    return x, y


def _two_names(x: Array) -> Any:
    for _ in range(60):
        x = x * 0.5
        y = x
    y[0] = 7
    return x, y


def _a_row_that_lives_on(x: Array) -> Any:
    z = x.reshape(60, 1)
    for row in z:
        last = row
    last[0] = 9
    return x


def _written_rows(x: Array) -> Any:
    z = x.reshape(60, 1)
    for row in z:
        row += 1
    return x


def _first_turn_promotes(x: Array) -> Any:
    total: Any = 0
    for row in x.astype(np.float32).reshape(60, 1):
        total = total + row
    return total


def _an_error(x: Array) -> Any:
    for i in range(61):
        x[0] = x[i] + 1
    return x


def _caught(x: Array) -> Any:
    for i in range(60):
        try:
            x = x + [1, 2, 3][i]
        except (IndexError, TypeError):
            x = x * 0.5
    return x


def _collected(x: Array) -> Any:
    seen = []
    for _ in range(60):
        x = x * 0.5
        seen.append(x)
    return np.stack(seen)


def _negative(x: Array) -> Any:
    for i in range(60):
        x = x + x[i - 30]
    return x * 2.0**-60


def _small_integers(x: Array) -> Any:
    y = x.astype(np.int8) % 3
    for i in range(60):
        y = y - i + i
    return y


def _divides(x: Array) -> Any:
    for i in range(60):
        x = x + 1 / (i + 0.5) + (i * 2 - 7) / 3 - np.sin(i * 0.1) + np.float32(2) * i
    return x


def _to_a_power(x: Array) -> Any:
    for i in range(60):
        x = x * 0.5 + (x > 100) ** i
    return x


def _never_swaps(x: Array) -> Any:
    a, b, c = x, x + 1, x + 2
    for _ in range(60):
        a, b, c = b, c, a * 0.5
    return a, b, c


def _attributes(x: Array) -> Any:
    state: dict[str, Any] = {"x": x, "n": 0.0}
    for i in range(60):
        state["x"] = state["x"] * 0.5 + i
        state["n"] += 0.5
    return state["x"], state["n"]


def _empty_turns(x: Array) -> Any:
    for _ in range(60):
        pass
    return x + 1


def _other_types_later(x: Array) -> Any:
    u = x[:4].astype(np.float32)
    s = 0.5
    for i in range(60):
        v = u * s
        s = s * 0.5 + x[i]
    return v, s


@pytest.mark.parametrize(
    "function",
    [
        f
        for name, f in sorted(globals().items())
        if name.startswith("_") and callable(f) and "Array" in str(f.__annotations__)
    ],
)
def test_what_turns_may_do(function: Callable[..., Any]) -> None:
    """What the symbol for the turn cannot follow is traced turn by turn; nothing is another answer than NumPy's."""
    x = RNG.integers(1, 9, 60) * 1.0
    with repeated():
        if function is _an_error:
            with pytest.raises(IndexError):
                kg.kernel_graph(device="cpu")(function)(x)
        else:
            same(function, x, exact=function not in (_divides, _first_turn_promotes))


def test_explanations_say_what_became_of_a_loop() -> None:
    decorated = kg.kernel_graph(device="cpu")(in_place)
    assert "1000 turns of" in str(decorated.explain(np.ones(8), 1000))


def oscillate(y: Array, times: Array) -> Any:
    for t in times:
        k = np.array([y[1], np.sin(t) - y[0]])
        y = y + 0.01 * k
    return y


def largest_then_oscillate(x: Array, y: Array, times: Array) -> Any:
    best = x[0]
    for i in range(1, x.shape[0]):
        best = max(best, x[i])
        x[i] = best
    return x, oscillate(y, times)


@pytest.mark.parametrize("turns", [100, 3000])
def test_a_loop_over_elements_that_is_no_routine_is_one_node_of_repeated_turns(turns: int) -> None:
    """Its state is a new array each turn, which a routine does not follow; another loop beside it stays a routine."""
    times = np.linspace(0, 1, turns)
    graph = same(oscillate, RNG.random(2), times, exact=False)
    assert [node.op for node in graph.nodes].count("loop") == 1 and len(graph.nodes) < 10
    graph = same(largest_then_oscillate, RNG.random(600), RNG.random(2), times, exact=False)
    ops = [node.op for node in graph.nodes]
    assert ops.count("loop") == 1 and "sequential" in ops
    text = str(kg.kernel_graph(device="cpu")(oscillate).explain(RNG.random(2), times))
    assert f"{turns} turns of" in text and "turn by turn" not in text


STATEMENTS = (
    "x = small(x * {c} + {a})",
    "y = small({a} - x)",
    "x = small(x + y * {n})",
    "u = x + {a}\n        y = small(u - y)",
    "out[{i}] = x[:4]",
    "M[:, {i}] = y[:3]",
    "z[1:-1] = small(z[2:] + z[:-2])",
    "z += 1\n        z %= 7",
    "s = s * 0.5 + {n}",
    "s = s + x[2]\n        s = small(s)",
    "t += 0.5\n        x = small(x + t)",
    "x, y = y, small(x + 1)",
    "x = small(x + W[{i}, 2:])",
    "y = small(y + W[{i}, 0] + v[{i}])",
    "x = small(x + v[{i} : {i} + 8])",
    "v = small(v - v[{i}])",
    "M[:] = small(M * {c} - M[:, {i} : {i} + 1])",
    "row = W[{i}]\n        W *= 0.5\n        W += small(row)[:1]",
    "if x[0] > y[0]:\n            x = x - 1",
    "w = x if {i} != 11 else y\n        x = w + 1",
    "k = {i} * 2\n        x = small(x + k)",
    "x = small(x + row[:8]) if {i} >= 0 else x",
)


def program(rng: random.Random, name: str) -> str:
    """A function of a loop whose turns may repeat."""
    lines = [f"def {name}(x, y, z, v, W, M, out):", "    s, t, w, row, k, u = 0.0, 0.0, x, W[0], 0, x"]
    for _ in range(rng.choice((1, 1, 2))):
        low = rng.randrange(3)
        head = rng.choice(
            (f"for i in range({low}, 40):", "for i in range(39, -1, -1):", f"for i in range({low}, 40, 2):")
        )
        if rng.random() < 0.3:
            head = "for i, row in enumerate(W[:40]):"
        lines.append(f"    {head}")
        for _ in range(rng.randrange(2, 6)):
            text = rng.choice(STATEMENTS)
            i = rng.choice(("i", "i", "i + 1", "40 - i"))
            n = rng.choice((i, f"(0.5 * ({i}))", f"(({i}) - 3)", f"(({i}) / 4)"))
            a = rng.choice(("x", "y[::-1]", "2", "s", "v[:8]", n))
            lines.append("        " + text.format(i=i, n=n, a=a, c=rng.choice(("0.5", "2", "-1", n))))
    lines.append("    return x, y, s, t, k, w, u, row")
    return "\n".join(lines)


@pytest.mark.parametrize("seed", range(3))
def test_random_loops(seed: int, tmp_path: Path) -> None:
    """Elementwise arithmetic alone, so that every answer is exact."""
    rng = random.Random(seed)
    made = [Program(f"program_{seed}_{i}", program(rng, f"program_{seed}_{i}"), ("f8", "f8"), 9) for i in range(8)]
    scope = load(made, tmp_path)
    for p in made:

        def arguments() -> tuple[Any, ...]:
            values = np.random.default_rng(seed)
            shapes = ((8,), (8,), (12,), (60,), (42, 10), (3, 42), (42, 4))
            return tuple(values.integers(-4, 5, shape) * 1.0 for shape in shapes)

        want_args, got_args = arguments(), arguments()
        want = outcome(scope[p.name], want_args)
        with repeated():
            got = outcome(kg.kernel_graph(scope[p.name], device="cpu"), got_args)
        assert got[0] == want[0], p.text
        for n, (ours, numpys) in enumerate(zip(got[1], want[1], strict=True)):
            np.testing.assert_array_equal(ours, numpys, err_msg=f"{p.text}\n# value {n}")


DECIDED_STORES = {
    "one side": "if m > 0.5:\n            y[i] = m",
    "both sides": "if m > 0.5:\n            y[i] = 1\n        else:\n            y[i] = m",
    "nested": "if m > 0.3:\n            if x[i] > 0.5:\n                y[i] = m",
    "skipped": "if m > 0.5:\n            continue\n        y[i] = m",
    "after another": "y[i] = x[i + 1]\n        if m > 0.5:\n            y[i] = m",
    "read behind": "if m > 0.5:\n            y[i] = m\n        z[i] = y[i] + 1",
    "read before": "z[i] = y[i]\n        if m > 0.5:\n            y[i] = m + z[i]",
    "row": "if m > 0.5:\n            w[i, 1:] = x[i : i + 2]\n        z[i] = w[i, 1:].sum()",
}


@pytest.mark.parametrize("name", DECIDED_STORES)
def test_a_store_that_values_decide_on_keeps_what_was_there(name: str, tmp_path: Path) -> None:
    text = f"""
import numpy as np
def f(x):
    y, z, w = x.copy(), np.zeros(60), np.ones((60, 3))
    for i in range(50):
        m = np.linalg.det(x[i : i + 4].reshape(2, 2)) + 0.5
        {DECIDED_STORES[name]}
    return y, z, w
"""
    function = names_in_file([text], tmp_path, "stores")["f"]
    x = np.random.default_rng(0).random(60)
    with repeated():
        ours = kg.kernel_graph(function, device="cpu")
        for a, b in zip(ours(x), function(x), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12)
        assert any(node.op == "loop" for node in ours.graph(x).nodes)
