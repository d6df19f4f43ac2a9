"""Lists of Python numbers that loops go over, or index by their turn: one small graph, and NumPy's bits."""

from __future__ import annotations

import itertools
import random
import textwrap
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from tests.turn_programs import repeated

TURNS = 60
RNG = random.Random(3)
NUMBERS: dict[str, Callable[[], Any]] = {
    "float": lambda: RNG.uniform(-1, 1),
    "int": lambda: RNG.randrange(-4, 5),
    "bool": lambda: RNG.random() < 0.5,
    "complex": lambda: complex(RNG.uniform(-0.5, 0.5), RNG.uniform(-0.5, 0.5)),
}
DTYPES = ("f8", "f4", "i8", "i1", "c8")
HEADS = {  # how a loop comes to a number `c`, and to `b` of another list
    "items": "for c in A:",
    "items of a tuple": "for c in tuple(A):",
    "index": "for i in range(len(A)):\n    c = A[i]",
    "index behind": "for i in range(len(A) - 2):\n    c, b = A[i + 2], A[i]",
    "negative index": "for i in range(1, len(A)):\n    c, b = A[-i], B[i - len(B)]",
    "every other": "for i in range(0, len(A), 2):\n    c, b = A[i], A[i + 1]",
    "enumerate": "for i, c in enumerate(A):\n    b = B[i]",
    "zip": "for c, b in zip(A, B):",
    "zip with a range": "for c, i in zip(B, range(len(B), 0, -1)):\n    b = A[i - 1]",
    "enumerate of zip": "for i, (c, b) in enumerate(zip(A, B), 1):",
    "reversed": "for c in reversed(A):",
    "backwards": "for c in A[::-1]:",
    "slice": "for c in A[3:-2]:",
    "pairs": "for c, b in PAIRS:",
    "nested pairs": "for i, (c, (b, d)) in enumerate(NESTED):",
    "index of pairs": "for i in range(len(PAIRS)):\n    c, b = PAIRS[i][0], PAIRS[i][1]",
    "attribute": "for i in range(len(M.A)):\n    c, b = M.A[i], M.B[i]",
    "items of an attribute": "for c in M.A:",
    "made within": "made = [a for a in A]\nfor i in range(len(made)):\n    c = made[i]",
    "dict": "for i in range(len(A)):\n    c = TABLE[i]",
    "arithmetic": "for i, a in enumerate(A):\n    c = -a + B[i]\n    b = a - 1",
    "helper": "for i in range(len(A)):\n    c = item_of(i)",
}
BODIES = (
    "x = x * 2 + c",
    "x = b - x * c",
    "x = np.multiply(x, c) + np.float32(1)",
    "s = s + c\nx = x + s",
    "x = x + np.where(x > 0, x, 1) * c",
    "y[1:] -= c\nx = y * c + x",
    "x = np.where(x > c, x * b, c - x)",
)


def text_of(name: str, head: str, body: str) -> str:
    """A function of one loop."""
    lines = ["    b, s, y = 1, 0.0, x.astype(np.result_type(x, c_type()))", *textwrap.indent(head, "    ").splitlines()]
    lines += textwrap.indent(body, "        ").splitlines()
    return "\n".join([f"def {name}(x, m, c_type=type(A[0])):", *lines, "    return x, c, b, y"])


def loaded(tmp_path: Path, text: str, numbers: Callable[[], Any]) -> dict[str, Any]:
    """The functions of a file that has lists of numbers."""
    a, b = ([numbers() for _ in range(TURNS)] for _ in range(2))
    nested = [(x, (y, x)) for x, y in zip(a, b, strict=True)]
    scope: dict[str, Any] = {"np": np, "A": a, "B": b, "PAIRS": [*zip(a, b, strict=True)], "NESTED": nested}
    scope |= {"M": SimpleNamespace(A=a, B=b), "TABLE": dict(enumerate(a)), "__name__": "numbers_by_turn"}
    path = tmp_path / "numbers_by_turn.py"
    text = "def item_of(i):\n    return A[i]\n\n\n" + text
    path.write_text(text)
    exec(compile(text, str(path), "exec"), scope)
    return scope


def assert_same(function: Callable[..., Any], dtype: str, m: Any) -> Any:
    """Checks a call against NumPy's; what is compiled."""
    x = np.random.default_rng(4).integers(-5, 6, 7).astype(dtype)
    ours = kg.kernel_graph(function, device="cpu")
    with np.errstate(all="ignore"):
        want, got = function(x.copy(), m), ours(x.copy(), m)
    for mine, numpys in zip(got, want, strict=True):
        assert np.asarray(mine).dtype == np.asarray(numpys).dtype
        np.testing.assert_array_equal(np.asarray(mine), numpys)
    return ours


@pytest.mark.parametrize("kind", NUMBERS)
@pytest.mark.parametrize("head", HEADS)
def test_numbers_of_one_type_are_rows_of_a_constant(head: str, kind: str, tmp_path: Path) -> None:
    """Each spelling with some bodies and dtypes: the graph has one loop, and stays small."""
    bodies = [body for body in BODIES if kind == "float" or "s = s" not in body]
    rows = [*enumerate(itertools.product(bodies, DTYPES if kind != "complex" else ("f8", "f4", "c8")))]
    rows = random.Random(f"{head} {kind}").sample(rows, 5)
    scope = loaded(tmp_path, "\n\n\n".join(text_of(f"f{n}", HEADS[head], body) for n, (body, _) in rows), NUMBERS[kind])
    for n, (body, dtype) in rows:
        with warnings.catch_warnings(), repeated():
            warnings.simplefilter("error", kg.FallbackWarning)
            graph = assert_same(scope[f"f{n}"], dtype, None).graph(np.ones(7, dtype), None)
        assert "loop" in {node.op for node in graph.nodes} and len(graph.nodes) < 40, (body, dtype)


def decided(x: Any, m: Any) -> Any:
    for c in m.A:
        if c > 0:
            x = x + c
    return x, c


def never_decided(x: Any, m: Any) -> Any:
    for i, c in enumerate(m.A):
        x = x + (c if c > -9 else x[i])
    return x, i


def counted(x: Any, m: Any) -> Any:
    for n in m.N:
        for k in range(n):
            x = x + k
    return x, n


def shaped(x: Any, m: Any) -> Any:
    for n in m.N:
        x = x + np.ones(n + 1).sum()
    return x, n


def placed(x: Any, m: Any) -> Any:
    for n in m.N:
        x = x + x[n] * 0.5
    return x, n


def placed_by_list(x: Any, m: Any) -> Any:
    for i in range(len(m.N)):
        x = x * 0.5 + m.A[m.N[i]]
    return x, i


def stored(x: Any, m: Any) -> Any:
    x = x.copy()
    for n, a in zip(m.N, m.A):  # noqa: B905
        x[n] = a
    return x, a


def mixed(x: Any, m: Any) -> Any:
    for c in m.MIXED:
        x = x + c
    return x, c


def large(x: Any, m: Any) -> Any:
    for c in m.LARGE:
        x = x.astype(np.float64) * 0.5 + c
    return x, c


def divided(x: Any, m: Any) -> Any:
    for c in m.A:
        try:
            x = x + 1 / (c - m.A[40])
        except ZeroDivisionError:
            x = x - 1
    return x, c


def grown(x: Any, m: Any) -> Any:
    values = [0.5] * 60
    for c in values:
        x = x + c
        if len(values) < 70:
            values.append(c + 1)
    return x, c, len(values)


def changed_ahead(x: Any, m: Any) -> Any:
    values = [*m.A]
    for i in range(59):
        x = x * 0.5 + values[i]
        values[i + 1] = values[i] * 0.5
    return x, values[-1]


def changed_behind(x: Any, m: Any) -> Any:
    values = [*m.A]
    for c in values:
        x = x * 0.5 + c
        values[50] = 0.25
    return x, c


def popped(x: Any, m: Any) -> Any:
    values = [*m.A]
    for c in values:
        x = x + c
        values.pop()
    return x, c


def of_turn_before(x: Any, m: Any) -> Any:
    before = 0.0
    for c in m.A:
        x = x + before
        before = c
    return x, before


def told_apart(x: Any, m: Any) -> Any:
    for c in m.A:
        x = x + (1 if isinstance(c, float) else 2) + (c is not None)
    return x, c


def of_python(x: Any, m: Any) -> Any:
    total, names = 0.0, []
    for c, n in zip(m.A, m.N):  # noqa: B905
        total += c * 2**n % 3 // 1 + abs(c) + float(n) + round(c, 1)
        names.append(f"{n}")
        x = x + total
    return x, total, len(names)


def flags(x: Any, m: Any) -> Any:
    for i, flag in enumerate(m.FLAGS):
        if flag:
            x = x * 0.5 + i
    return x, flag


def powers(x: Any, m: Any) -> Any:
    for n in m.N:
        x = (x % 3) ** n + (x > n) + x // (n + 1)
    return x, n


def collected(x: Any, m: Any) -> Any:
    rows = []
    for c in m.A:
        x = x * 0.5 + c
        rows.append(x * c)
    return x, np.stack(rows)


def beyond_its_end(x: Any, m: Any) -> Any:
    for i in range(61):
        x = x + m.A[i]
    return x, i


USES = (
    decided, never_decided, counted, shaped, placed, placed_by_list, stored, mixed, large, divided, grown,
    changed_ahead, changed_behind, popped, of_turn_before, told_apart, of_python, flags, powers, collected,
)  # fmt: skip


def lists() -> Any:
    rng = random.Random(6)
    a = [rng.uniform(-1, 1) for _ in range(TURNS)]
    small = [rng.randrange(4) for _ in range(TURNS)]
    mixed_list: list[Any] = [x if i % 7 else 2 for i, x in enumerate(a)]
    many = [2**60 + 2**i for i in range(30)] * 2
    return SimpleNamespace(A=a, N=small, MIXED=mixed_list, LARGE=many, FLAGS=[x > 0 for x in a])


@pytest.mark.parametrize("dtype", ["f4", "i8"])
@pytest.mark.parametrize("function", USES)
def test_what_python_asks_of_numbers_is_never_wrong(function: Callable[..., Any], dtype: str) -> None:
    """Numbers that Python itself decides by are followed turn by turn, or the function runs in NumPy."""
    with warnings.catch_warnings(), repeated():
        warnings.simplefilter("ignore", kg.FallbackWarning)
        assert_same(function, dtype, lists())


def test_an_index_beyond_the_end_raises() -> None:
    with repeated(), pytest.raises(IndexError, match="list index out of range"):
        kg.kernel_graph(beyond_its_end, device="cpu")(np.ones(3), lists())


COEFFICIENTS = [0.5] * 30 + [0.25] * 30


def by_coefficients(x: Any) -> Any:
    for c in COEFFICIENTS:
        x = x * c + 1
    for i in range(len(COEFFICIENTS)):
        x = x * 0.5 + COEFFICIENTS[i]
    return x


def test_a_list_that_has_changed_is_traced_again() -> None:
    ours, x = kg.kernel_graph(by_coefficients, device="cpu"), np.arange(4.0)
    with repeated():
        for place, value in ((3, 0.5), (3, 0.75), (59, -1.0), (0, 2)):
            COEFFICIENTS[place] = value
            np.testing.assert_array_equal(ours(x), by_coefficients(x))


def test_derivatives_by_what_numbers_multiply() -> None:
    def loss(x: Any) -> Any:
        for c in COEFFICIENTS:
            x = np.sin(x * c) + c
        return x.sum()

    x, step = np.linspace(0.1, 1, 5), 1e-6
    with repeated():
        got = kg.kernel_graph(lambda x: kg.grad(loss)(x), device="cpu")(x)
    for i, part in enumerate(np.eye(5) * step):
        assert abs(got[i] - (loss(x + part) - loss(x - part)) / (2 * step)) < 1e-8
