"""Names that change what they stand for as a value decides: arrays, numbers, tuples, lists, dicts, objects and None.

Each function is made of a kind of what is chosen among, a way to choose and a way to use what is chosen. All are
compared with plain Python: results, and the arguments afterwards.

python -m tests.dsl.control_flow.test_swaps [STEP [START]] runs every so many-th, and counts what is compiled
"""

from __future__ import annotations

import sys
import textwrap
import warnings
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph.dsl.core.pytree import flatten
from tests.dsl.control_flow.generated_tables import Case, print_table
from tests.random_cases import names_in_file

PRELUDE = """
import numpy as np


class Box:
    def __init__(self, a, n=1.0):
        self.a, self.n = a, n


class Slots:
    __slots__ = ("a", "n")

    def __init__(self, a, n=1.0):
        self.a, self.n = a, n


def pick(x, o, p):
    if x[0] > 0:
        return o
    return p


def ordered(x, o, p):
    if x[0] < 0:
        o, p = p, o
    return o, p
"""
# what o and p are made of: of the arrays a and b that are arguments, and of x
KINDS = {
    "arrays": "o, p = a, b",
    "new arrays": "o, p = a * 2, b + 1",
    "new array and argument": "o, p = a * 2, b",
    "views": "o, p = a[1:], b[:3]",
    "views of one": "o, p = a[1:], a[:3]",
    "rows": "o, p = m[0], m[1]",
    "items of a list": "o, p = given",
    "other dtypes": "o, p = a, b.astype(np.float32)",
    "other shapes": "o, p = a, b[:2]",
    "numbers": "o, p = x[0], x[1]",
    "Python's numbers": "o, p = 1.5, float(x[1])",
    "number and array": "o, p = x[1], b",
    "None and array": "o, p = None, b",
    "tuples": "o, p = (a, x[0]), (b, x[1])",
    "tuples of arrays": "o, p = (a, b), (b, a)",
    "lists": "o, p = [a, x[0]], [b, x[1]]",
    "dicts": "o, p = {'a': a, 'n': x[0]}, {'a': b, 'n': x[1]}",
    "objects": "o, p = Box(a, x[0]), Box(b, x[1])",
    "given objects": "o, p = box, other",
    "given dicts": "o, p = d, e",
    "slots": "o, p = Slots(a, x[0]), Slots(b, x[1])",
}
CHOICES = {
    "swap": "if x[0] < 0:\n    o, p = p, o\nq = o",
    "swap by a third": "if x[0] < 0:\n    t = o\n    o = p\n    p = t\nq = o",
    "one side": "q = p\nif x[0] > 0:\n    q = o",
    "both sides": "if x[0] > 0:\n    q = o\nelse:\n    q = p",
    "conditional expression": "q = o if x[0] > 0 else p",
    "call": "q = pick(x, o, p)",
    "call that swaps": "o, p = ordered(x, o, p)\nq = p",
    "nested": "q = p\nif x[0] > 0:\n    if x[1] > 0:\n        q = o\n    o, p = p, o",
    "elif": "if x[0] > 1:\n    q = o\nelif x[1] > 0:\n    q = p\nelse:\n    q = o",
    "for": "for i in range(3):\n    if x[i] > 0:\n        o, p = p, o\nq = o",
    "long for": "for i in range(30):\n    if x[0] > i:\n        o, p = p, o\nq = o",
    "while": "v = x[0]\nwhile v > 0:\n    o, p = p, o\n    v = v - 1.0\nq = o",
    "match": "match int(x[0]):\n    case 1:\n        q = o\n    case 2:\n        q = p\n    case _:\n        q = o",
    "in a tuple": "q = ((o, p) if x[0] > 0 else (p, o))[1]",
    "in a dict": "h = {0: o}\nif x[0] > 0:\n    h[0] = p\nq = h[0]",
    "behind a write": "if x[0] > 0:\n    {write}\n    q = o\nelse:\n    q = p",
    "twice": "if x[0] > 0:\n    o, p = p, o\nif x[1] > 0:\n    o, p = p, o\nq = p",
}
USES = {
    "read": "r = {q}.sum()",
    "given back": "return q",
    "both given back": "return o, p",
    "element": "{q}[0] = 9.0",
    "element of the first": "{o}[1] = 7.0\nr = {q}[1] + {p}[1]",
    "augmented": "{q} += 1\nr = {o}.sum() + 2 * {p}.sum()",
    "both written": "{q} += 1\n{p}[0] = 5.0\nr = {o} - {p}",
    "slice of a view": "w = {q}[1:]\nw[:] = {p}[1:]\nr = w.sum()",
    "out": "np.multiply({q}, 2.0, out={q})\nr = {o} + 0",
    "written by a value": "if x[1] > 0:\n    {q}[0] = x[2]\nr = {p}[0]",
    "written in a loop": "for i in range(3):\n    {q}[i] = {p}[2 - i]\nr = {o}.sum()",
    "written and given back": "{q}[0] = 9.0\nreturn {q}, r",
    "identity": "r = 1.0 if q is o else 2.0",
    "copied": "w = {q}.copy()\nw[0] = 3.0\nr = w.sum() + {o}[0]",
    "mask": "{q}[{q} > 1] = 0.0\nr = {p}.sum()",
    "argument": "a[0] = 8.0\nr = {q}[0] + {p}[0]",
    "attribute": "r = q.n * 2.0",
    "attribute written": "q.n = 4.0\nr = o.n",
    "array of an object": "q.a = q.a + 1\nr = o.a.sum()",
    "item": "r = q['n'] * 2.0",
    "item written": "q['n'] = 4.0\nr = o['n'] + p['n']",
    "place": "r = q[1] * 2.0",
    "place written": "q[1] = 4.0\nr = o[1] + p[1]",
    "number": "r = q * 2.0 + o - p",
    "number counted": "q += 1.0\nr = q * o",
    "None": "if q is not None:\n    r = q.sum()",
}
ARRAY_USES = [*USES][:16]
USED = {
    "numbers": ["given back", "both given back", "number", "number counted"],
    "None and array": ["given back", "None"],
    "number and array": ["given back", "number", "both given back"],
    "other dtypes": ["given back", "read", "element", "augmented"],
    "other shapes": ["given back", "read", "element", "augmented"],
    "tuples": [*ARRAY_USES, "place"],
    "tuples of arrays": ARRAY_USES,
    "lists": [*ARRAY_USES, "place", "place written"],
    "dicts": [*ARRAY_USES, "item", "item written"],
    "objects": [*ARRAY_USES, "attribute", "attribute written", "array of an object"],
}
USED |= {"Python's numbers": USED["numbers"], "given objects": USED["objects"], "given dicts": USED["dicts"]}
USED["slots"] = USED["objects"]
PATHS = {"tuples": "{0}[0]", "tuples of arrays": "{0}[1]", "lists": "{0}[0]", "dicts": "{0}['a']"}
PATHS["given dicts"] = PATHS["dicts"]
PATHS |= dict.fromkeys(("objects", "given objects", "slots"), "{0}.a")
WITHOUT_ITEMS = ("numbers", "Python's numbers", "number and array", "None and array")
PARAMETERS = "x, a, b, m, given, box, other, d, e"
CASES: list[Case] = [(kind, way, use) for kind, way in product(KINDS, CHOICES) for use in USED.get(kind, ARRAY_USES)]
PARTS = 17
INPUTS = ([-1.0, 2.0, 1.0], [1.0, 2.0, 1.0], [2.0, -1.0, 0.5], [-2.0, -1.0, 3.0], [3.0, 1.0, -1.0])


def source_of(number: int, case: Case) -> str:
    kind, way, use = case
    path = PATHS.get(kind, "{0}")
    names = {name: path.format(name) for name in "qop"}
    write = "{o}[0] = 6.0" if use in ARRAY_USES and kind not in WITHOUT_ITEMS else "pass"
    choice = CHOICES[way].replace("{write}", write)
    body = "\n".join(["r = 0.0", KINDS[kind], choice, USES[use], "return r"])
    for name, text in names.items():
        body = body.replace("{" + name + "}", text)
    return f"def f{number}({PARAMETERS}):\n{textwrap.indent(body, '    ')}"


def _plain(value: Any) -> Any:
    """Objects as dicts."""
    if type(value) in (list, tuple):
        return type(value)(map(_plain, value))
    return {k: getattr(value, k) for k in ("a", "n")} if type(value).__module__ == "swaps" else value


def outcome(names: dict[str, Any], function: Any, x: list[float]) -> str:
    a, b, m = np.arange(4.0), np.arange(3.0, 7.0) * 2, np.arange(8.0).reshape(2, 4)
    given = [np.ones(4), np.zeros(4)]
    arguments = [a, b, m, given, names["Box"](np.ones(4)), names["Box"](np.full(4, 2.0), 3.0)]
    arguments += [{"a": np.arange(4.0), "n": 1.0}, {"a": np.ones(4), "n": 2.0}]
    try:
        result = function(np.array(x), *arguments)
    except Exception as error:
        text = type(error).__name__
        return text + (str(error) if isinstance(error, kg.KernelGraphError) else "")
    found: list[Any] = []
    tree = flatten([_plain(result), *map(_plain, arguments)], found)
    return f"{tree} {[np.asarray(v).tolist() for v in found]}"


def faults_of(cases: list[Case], folder: Path) -> Iterator[tuple[str, bool]]:
    """What is wrong of each function, if anything, and whether it runs in NumPy."""
    names = names_in_file([PRELUDE, *(source_of(i, case) for i, case in enumerate(cases))], folder, "swaps")
    for i, case in enumerate(cases):
        compiled, wrong = kg.kernel_graph(names[f"f{i}"], device="cpu"), ""
        for x in (*INPUTS, INPUTS[0]):
            want = outcome(names, names[f"f{i}"], x)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                got = outcome(names, compiled, x)
            if want != got:
                wrong = f"{' | '.join(case)} of {x}:\n  want {want}\n  got  {got}\n{source_of(i, case)}\n"
                break
        yield wrong, "runs in NumPy" in compiled.why()


@pytest.mark.parametrize("part", range(2))
def test_what_a_value_chooses_is_what_python_chooses(part: int, tmp_path: Path) -> None:
    faults = [wrong for wrong, _ in faults_of(CASES[part * 4 :: PARTS], tmp_path) if wrong]
    assert not faults, "\n".join(faults)


if __name__ == "__main__":
    print_table(CASES, faults_of, (*KINDS, *CHOICES, *USES), *map(int, sys.argv[1:]))


@pytest.mark.parametrize("turns", range(4))
@pytest.mark.parametrize("write", ["x[0] = b[-1]", "x[k] += 1", "x *= 2", "x[1:] = x[:-1]"])
@pytest.mark.parametrize("rebind", ["x = x + 1", "x = -x", "x = b * 1"])
def test_a_loop_begins_with_arrays_as_they_were(turns: int, write: str, rebind: str, tmp_path: Path) -> None:
    """It writes to an array and binds its name anew: with no turn at all what was written in one was there."""
    text = (
        f"def f(a, b):\n    x, k = a * 2, 0\n    while a.sum() > 2 and k < b.size - 1:\n        {write}\n"
        f"        k += 1\n        if b.sum() > k:\n            {rebind}\n        a = a - 2\n    return x, k\n"
    )
    f = names_in_file([text], tmp_path, "loop")["f"]
    a, b = np.ones(4) * turns, np.array([1.0, 2.0, 3.0, -0.5])
    found, wanted = kg.kernel_graph(f, device="cpu")(a, b), f(a, b)
    assert np.asarray(found[0]).tolist() == wanted[0].tolist() and found[1] == wanted[1]
