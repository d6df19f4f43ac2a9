"""What is written before an error that a value decides stays, and nothing else: each kind of write in each place.

python -m tests.dsl.control_flow.test_writes_before_errors [STEP [START]] runs every so many-th of the table
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
from tests.dsl.control_flow.generated_tables import Case, print_table
from tests.random_cases import names_in_file

PRELUDE = """
from collections import OrderedDict, deque
from contextlib import contextmanager
from dataclasses import dataclass
import numpy as np

count = 0.0
table = [0.0, 0.0]


class Box:
    def __init__(self):
        self.value, self.inner, self.items = 1.0, None, [1.0, 2.0]

    def add(self, by):
        self.value += by


class Slots:
    __slots__ = ("value",)

    def __init__(self):
        self.value = 1.0


@dataclass
class Fields:
    value: float = 1.0
    name: str = "a"


@contextmanager
def opened(a):
    a[5] += 1.0
    try:
        yield
    finally:
        a[5] += 2.0


def world():
    box = Box()
    box.inner = Box()
    return dict(
        a=np.zeros(6), box=box, slots=Slots(), fields=Fields(), items=[1.0, 2.0], more=[1.0], d={"k": 1.0},
        ordered=OrderedDict(k=1.0), rows=[np.zeros(2), np.ones(2)],
    )
"""
WRITES = {
    "element": "a[1] = x[0]",
    "slice": "a[1:3] = x[:2]",
    "mask": "a[a == 0] = 3.0",
    "augmented": "a += 1.0",
    "augmented element": "a[2] += x[1]",
    "out": "np.add(a, 1.0, out=a)",
    "method": "a.fill(x[1])",
    "view": "b = a[2:4]\nb[0] = 7.0",
    "number": "a[0] = 4",
    "attribute": "box.value = x[0] + 1.0",
    "plain attribute": "box.value = 5.0",
    "augmented attribute": "box.value += 1.0",
    "new attribute": "box.other = x[0]",
    "method of an object": "box.add(2.0)",
    "dict item": "d['k'] = x[1]",
    "new dict item": "d['new'] = 2.0",
    "ordered dict item": "ordered['k'] = x[1] * 2",
    "removed dict item": "d.pop('k', None)",
    "list item": "items[0] = x[0] * 3",
    "list append": "more.append(x[0])",
    "list of an object": "box.items[1] = 8.0",
    "array in a list": "rows[0][1] = x[0]",
    "swapped items": "items[0], items[1] = items[1], items[0]",
    "nested object": "box.inner.value = x[2]",
    "slot": "slots.value = x[0]",
    "dataclass field": "fields.value = x[0] - 1.0",
    "plain field": "fields.name = 'b'",
    "global": "global count\ncount = count + 1.0",
    "global list": "table[1] = 2.0",
    "closure cell": "nonlocal kept\nkept = 3.0",
}
PLACES = {
    "always": "{write}\na[3] = 1.0\n{fail}\na[4] = 2.0",
    "always in a for": "for i in range(3):\n    {write}\n    if i == 1:\n        {fail}\na[3] = 1.0",
    "always caught": "try:\n    {write}\n    {fail}\nexcept Exception:\n    a[3] = 2.0\na[4] = 1.0",
    "before the if": "{write}\nif x[0] > 0:\n    {fail}\na[3] = 1.0",
    "in the if": "if x[0] > 0:\n    {write}\n    {fail}\na[3] = 1.0",
    "in the other side": "if x[0] > 0:\n    {fail}\nelse:\n    {write}\na[3] = 1.0",
    "in both": "if x[0] > 0:\n    {write}\n    {fail}\nelse:\n    {write}\n    a[4] = 5.0",
    "in a for": "for i in range(4):\n    if x[i] > 2:\n        {fail}\n    {write}\na[3] = 1.0",
    "in a for after": "for i in range(3):\n    {write}\n    if x[i] > 0:\n        {fail}\na[3] = 1.0",
    "in a long for": "for i in range(40):\n    if x[0] > i - 30:\n        {write}\n        {fail}\na[3] = 1.0",
    "in a while": "v = 0.0\nwhile v < 3:\n    {write}\n    if x[0] > v:\n        {fail}\n    v += 1.0\na[3] = 1.0",
    "in a while of values": (
        "v = x[2]\nwhile v > 0:\n    {write}\n    if x[0] > v:\n        {fail}\n    v = v - 1.0\na[3] = 1.0"
    ),
    "nested ifs in a for": (
        "for i in range(3):\n    if x[i] > 0:\n        {write}\n        if x[i] > 1:\n            {fail}\na[3] = 1.0"
    ),
    "behind a raise": "if x[1] > 4:\n    raise LookupError('first')\n{write}\nif x[0] > 0:\n    {fail}\na[3] = 1.0",
    "in a called function": "inner()\na[3] = 1.0",
    "in a with": "with opened(a):\n    if x[0] > 0:\n        {write}\n        {fail}\na[3] = 1.0",
    "in a try": "try:\n    if x[0] > 0:\n        {fail}\n    {write}\nfinally:\n    a[5] += 1.0\na[3] = 1.0",
    "in a finally": "try:\n    if x[0] > 0:\n        {fail}\nfinally:\n    {write}\na[3] = 1.0",
    "in an except": "try:\n    if x[0] > 0:\n        {fail}\nexcept KeyError:\n    a[3] = 2.0\n{write}",
    "caught": "try:\n    if x[0] > 0:\n        {write}\n        {fail}\nexcept Exception:\n    a[3] = 2.0\na[4] = 1.0",
}
FAILURES = {
    "raise": "raise ValueError('no')",
    "assert": "assert x[0] < 0, 'no'",
    "division": "a[4] = 1 / int(x[3])",
    "index": "a[4] = x[int(x[0]) + 9]",
    "singular": "np.linalg.inv(np.zeros((2, 2)) * x[0])",
    "shapes": "a[:4] + np.ones(7)",
    "shape": "x.reshape(3, 3)",
    "axis": "x.sum(axis=3)",
    "missing": "x.nothing",
    "cast": "np.add(x, 1, out=np.zeros(4, int))",
    "group": "raise ExceptionGroup('no', [ValueError('no'), KeyError(3)])",
    "matrix": "np.linalg.det(x)",
    "unpacking": "one, two = x",
    "joined": "np.concatenate([x, np.ones((2, 2))])",
    "read-only": "np.broadcast_to(x, (2, 4))[0, 0] = 1.0",
}
INPUTS = ([-1.0, 0.5, 2.0, 0.0], [1.0, 0.5, 2.0, 0.0], [0.5, 3.0, 0.0, 0.0], [-2.0, 6.0, 1.0, 0.0])
CASES: list[Case] = [*product(WRITES, PLACES, FAILURES)]
PARTS = 149


def source_of(number: int, case: Case) -> str:
    """The text of one function: it is made anew for each call, so that its closure is."""
    write, place, fail = WRITES[case[0]], PLACES[case[1]], FAILURES[case[2]]
    names = [line for line in write.split("\n") if line.startswith(("global", "nonlocal"))]
    write = "\n".join(line for line in write.split("\n") if line not in names)

    def filled(template: str) -> str:
        lines = []
        for line in template.split("\n"):
            part = {"{write}": write, "{fail}": fail}.get(line.strip(), line.strip())
            lines += textwrap.indent(part, line[: len(line) - len(line.lstrip())]).split("\n")
        return "\n".join(lines)

    own = "\n".join(names) + "\n" if names else ""
    inner = own + "if x[0] > 0:\n    {write}\n    {fail}" if "inner()" in place else "pass"
    body = f"def inner():\n{textwrap.indent(filled(inner), '    ')}\n{own}{filled(place)}\nreturn a.sum() + x[1]"
    head = f"def f{number}(x, a, box, slots, fields, items, more, d, ordered, rows):\n"
    text = head + textwrap.indent(body, "    ") + f"\nreturn f{number}, (lambda: kept)"
    return f"def make{number}(kept=0.0):\n{textwrap.indent(text, '    ')}"


def _plain(value: Any) -> Any:
    """What is in a value, as plain data."""
    if isinstance(value, dict):
        return type(value).__name__, [(k, _plain(v)) for k, v in value.items()]
    if isinstance(value, (list, tuple)):
        return type(value).__name__, [_plain(v) for v in value]
    if type(value).__module__ == "writes":
        held = vars(value) if hasattr(value, "__dict__") else {"value": value.value}
        return type(value).__name__, _plain(held)
    return np.asarray(value).tolist()


def outcome(names: dict[str, Any], function: Any, kept: Any, x: list[float], shared: bool) -> Any:
    """What a call gives or raises, and all that it may have written to. shared: with one object at two places."""
    names["count"], names["table"][:] = 0.0, [0.0, 0.0]
    given = names["world"]()
    if shared:
        given["box"].items = given["items"]
    try:
        with np.errstate(all="ignore"):
            found: Any = np.asarray(function(np.array(x), **given)).tolist()
    except kg.TraceError:
        found = "refused"
    except Exception as error:
        found = next(k for k in type(error).__mro__ if k.__module__ in ("builtins", "numpy.linalg")).__name__
        found += str(error.args[0]) * (error.args[:1] == ("no",))
    return repr((found, _plain(given), names["count"], names["table"], kept()))


def faults_of(cases: list[Case], folder: Path) -> Iterator[tuple[str, bool]]:
    """What is wrong of each function, if anything, and whether it runs in NumPy."""
    names = names_in_file([PRELUDE, *(source_of(i, case) for i, case in enumerate(cases))], folder, "writes")
    for i, case in enumerate(cases):
        (plain, kept), (traced, held) = (names[f"make{i}"]() for _ in range(2))
        compiled = kg.kernel_graph(traced, device="cpu")
        wrong = ""
        for x, shared in [*((x, False) for x in INPUTS), (INPUTS[1], True), (INPUTS[0], False)]:
            want = outcome(names, plain, kept, x, shared)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                got = outcome(names, compiled, held, x, shared)
            if want != got:
                wrong = f"{' | '.join(case)} of {x}:\n  want {want}\n  got  {got}\n{source_of(i, case)}\n"
                break
        yield wrong, "runs in NumPy" in compiled.why()


@pytest.mark.parametrize("part", range(4))
def test_what_was_written_before_an_error_stays_and_nothing_else(part: int, tmp_path: Path) -> None:
    faults = [wrong for wrong, _ in faults_of(CASES[part * 10 :: PARTS], tmp_path) if wrong]
    assert not faults, "\n".join(faults)


if __name__ == "__main__":
    print_table(CASES, faults_of, (*WRITES, *PLACES, *FAILURES), *map(int, sys.argv[1:]))
