"""Lists, dicts and objects that a value chooses, and iterators that a value leaves: what Python does with them.

Each function is made of a way to choose and a way to use what is chosen, or of an iterator, a way to leave it and a way
to read its rest. All of a table are compared with plain Python: results, arguments, which argument a result is.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph.dsl.core.pytree import flatten
from tests.random_cases import names_in_file

PRELUDE = """
import itertools
import numpy as np


class Box:
    def __init__(self, a):
        self.a = a
"""
PAIRS = {
    "dict": ('{"a": 1.0, "b": 3.0}', '{"a": 2.0, "b": 4.0}'),
    "list": ("[1.0, 3.0]", "[2.0, 4.0]"),
    "rows": ("[[1.0], 3.0]", "[[2.0], 4.0]"),
    "array": ("np.array([1.0, 3.0])", "np.array([2.0, 4.0])"),
    "arrays": ("[np.array([1.0, 3.0])]", "[np.array([2.0, 4.0])]"),
    "object": ("Box(1.0)", "Box(2.0)"),
}
CHOICES = (
    "q = o if x[0] > 0 else p",
    "q = o\nif x[0] > 0:\n    q = p",
    "if x[0] > 0:\n    o, p = p, o\nq = o",
    "q = pick(x, o, p)",
    "q = o\nwhile x[0] > 0:\n    q = p\n    x[0] -= 1",
    "q = o\nfor v in x:\n    if v < 0:\n        q = p\n        break",
    "q = (o if x[0] > 0 else p, 1)[0]",
    "d = {0: o}\nif x[0] > 0:\n    d[0] = p\nq = d[0]",
)
USES = {
    "dict": (
        *(
            'q["a"] = 9.0',
            'q["a"] += 1',
            'o["a"] = 9.0',
            "q.update(a=9.0)",
            'del q["b"]',
            'q["c"] = 1.0',
            'r = q["a"] + 1',
        ),
        *("r = q is o", "r = p is not q", 'q.setdefault("d", 2.0)', "q.clear()", "def h(t):\n    t['a'] = 3.0\nh(q)"),
    ),
    "list": (
        *("q[0] = 9.0", "q.append(1.0)", "o[1] = 9.0", "q.reverse()", "q[:] = [0.0, 0.0]", "q += [5.0]", "r = q is p"),
        *("r = q[0] + q[1]", "q[0], q[1] = q[1], q[0]", "r = q.pop()"),
    ),
    "rows": ("q[0][0] = 9.0", "q[0] = [5.0]", "q[0].append(1.0)", "r = q[0] is o[0]", "w = q[0]\nw[0] += 1.0"),
    "array": ("q[0] = 9.0", "q += 1", "o[0] = 9.0", "r = q + 1", "r = q is o", "q.sort()", "np.add(q, 1, out=q)"),
    "arrays": ("q[0][0] = 9.0", "q[0] = q[0] + 1", "q[0] += 1", "o[0][1] = 9.0", "r = q[0] is p[0]", "r = q[0] + 1"),
    "object": ("q.a = 9.0", "q.a += 1", "o.a = 9.0", "r = q is p", "setattr(q, 'a', 5.0)", "r = q.a + 1", "q.b = 4.0"),
}
ITERATORS = (
    *(
        "iter(x)",
        "iter([1.0, 2.0, 3.0])",
        "(v * 2 for v in x)",
        "map(lambda v: v + 1, x)",
        "filter(None, [1.0, 2.0, 3.0])",
    ),
    *("reversed([*x])", "itertools.chain(x, x)", "itertools.islice(iter(x), 2)", "numbers(x)", "iter(range(4))"),
)
LEAVINGS = (
    "for v in it:\n    if v > x[1]:\n        break",
    "for v in it:\n    if v > x[1]:\n        break\nelse:\n    r = 7.0",
    "r = any(v > x[1] for v in it)",
    "r = all(v > x[1] for v in it)",
    "r = any(map(lambda v: v > x[1], it))",
    "r = first(it, x[1])",
    "for v, i in zip(it, range(9)):\n    if v > x[1]:\n        break",
    "for i, v in enumerate(it):\n    if v > x[1]:\n        break",
    "r = next((v for v in it if v > x[1]), -1.0)",
    "if x[1] > 1:\n    next(it)",
    "r = x[1] in it",
    "r = 0.0\nwhile r < x[1]:\n    r += next(it, 9.0)",
    "r = min(v for v in it)",
    "for v in it:\n    for w in it:\n        if w > x[1]:\n            break",
)
HELPERS = """
def pick(x, o, p):
    if x[0] > 0:
        return o
    return p


def first(it, a):
    for v in it:
        if v > a:
            return v
    return 0.0


def numbers(x):
    for v in x:
        yield v
"""


def _functions(bodies: Sequence[str], parameters: str, folder: Path) -> dict[str, Any]:
    texts = [f"def f{i}({parameters}):\n    r = 0.0\n    " + b.replace("\n", "\n    ") for i, b in enumerate(bodies)]
    return names_in_file([PRELUDE, HELPERS, *texts], folder, "chosen")


def _outcome(call: Any, given: Sequence[Any]) -> str:
    arguments = copy.deepcopy([*given])
    try:
        result = call(*arguments)
    except Exception as error:
        return next(kind.__name__ for kind in type(error).__mro__ if kind.__module__ == "builtins")
    found: list[Any] = []
    tree = flatten([result, [vars(a) if hasattr(a, "__dict__") else a for a in arguments]], found)
    return f"{tree} {[np.asarray(x).tolist() for x in found]}"


def _faults(names: dict[str, Any], bodies: Sequence[str], calls: Sequence[Sequence[Any]]) -> list[str]:
    faults = []
    for i, body in enumerate(bodies):
        compiled = kg.kernel_graph(names[f"f{i}"], device="cpu", untraceable="numpy")
        for given in calls:
            want, got = _outcome(names[f"f{i}"], given), _outcome(compiled, given)
            if want != got:
                faults.append(f"{body}\n  of {given}: {got}\n  for {want}")
    return faults


@pytest.mark.parametrize("kind", PAIRS)
def test_what_a_value_chooses_is_what_is_written_to(kind: str, tmp_path: Path) -> None:
    bodies = [f"{choice}\n{use}\nreturn r" for choice in CHOICES for use in USES[kind]]
    names = _functions(bodies, "x, o, p", tmp_path)
    scope = dict(names)
    pair = [eval(text, scope) for text in PAIRS[kind]]
    faults = _faults(names, bodies, [(np.array([v, 1.0]), *pair) for v in (-1.0, 2.0)])
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize("iterator", ITERATORS)
def test_what_a_loop_leaves_of_an_iterator_is_there(iterator: str, tmp_path: Path) -> None:
    bodies = [f"it = {iterator}\n{leaving}\nreturn r, [*it]" for leaving in LEAVINGS]
    names = _functions(bodies, "x", tmp_path)
    faults = _faults(names, bodies, [(np.array(v),) for v in ([1.0, 1.5, 3.0], [3.0, 2.5, 1.0], [0.5, 9.0, 1.0])])
    assert not faults, "\n".join(faults)


def test_new_iterators_that_a_value_ends_are_compiled() -> None:
    def places(x: Any) -> Any:
        for i, v in enumerate(map(lambda v: v * 2, x)):  # noqa: B007
            if v > 2:
                break
        return i

    def pairs(x: Any) -> Any:
        found = -1.0
        for i, j in itertools.product(range(3), range(3)):
            if x[i] + x[j] > 5:
                found = x[i]
                break
        return found

    for function in (places, pairs):
        compiled = kg.kernel_graph(function, device="cpu", untraceable="refuse")
        for x in (np.array([1.0, 2.0, 3.0]), np.array([3.0, 0.0, 0.0])):
            assert float(compiled(x)) == function(x)


def one_beside_its_choice(x: Any) -> Any:
    y = x + 1
    z = y if x[0] > 5 else x * 3
    return z, y, z


def two_choices(x: Any) -> Any:
    y, w = x + 1, x * 2
    return (y if x[0] > 5 else w), (y if x[0] > 0.5 else w)


def written_choice(x: Any) -> Any:
    y = z = x + 1
    if x[0] > 5:
        z = x * 3
    z[0] = 9
    return {"z": z, "y": [y]}


def swapped(x: Any) -> Any:
    a, b = x + 1, x + 2
    if x[0] > 5:
        a, b = b, a
    a[0] = 4
    return a, b


def choice_of_a_choice(x: Any) -> Any:
    a = x + 1
    b = a if x[0] > 5 else x * 2
    return (b if x[1] > 1 else a), b


@pytest.mark.filterwarnings("ignore::kernelgraph.FallbackWarning")
@pytest.mark.parametrize("function", [one_beside_its_choice, two_choices, written_choice, swapped, choice_of_a_choice])
def test_results_are_one_array_where_python_has_one(function: Any) -> None:
    def arrays(value: Any) -> list[Any]:
        parts = [*value.values()] if isinstance(value, dict) else [*value] if isinstance(value, (list, tuple)) else None
        return [value] if parts is None else [a for part in parts for a in arrays(part)]

    compiled = kg.kernel_graph(function, device="cpu")
    for first, second in ((1.0, 2.0), (7.0, 2.0), (0.0, 0.0), (7.0, 0.0)):
        x = np.array([first, second])
        got, want = arrays(compiled(x)), arrays(function(x))
        assert [[a is b for b in got] for a in got] == [[a is b for b in want] for a in want]
        assert all(np.array_equal(a, b) for a, b in zip(got, want, strict=True))
