"""What raises, where it stands, and what is around it: functions made of each, beside Python's own run of them.

python -m tests.dsl.control_flow.error_table --part 0 --parts 1
"""

from __future__ import annotations

import argparse
import contextlib
import linecache
import math
import signal
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

import kernelgraph as kg

SECONDS = 60  # after which a function is thought to hang


@dataclass(frozen=True)
class Operation:
    """An expression of x (floats), y (ints), k (int(y[0])) and f (float(x[0])) that raises for the second arguments."""

    text: str
    good: tuple[list[float], list[int]]
    bad: tuple[list[float], list[int]]
    error: str


X, Y = [0.5, 2.0, 3.0], [1, 2]
OPERATIONS = {
    "index": Operation("x[y[0]]", (X, Y), (X, [7, 2]), "IndexError"),
    "negative index": Operation("x[y[0]]", (X, [-3, 2]), (X, [-4, 2]), "IndexError"),
    "index of an int": Operation("x[k]", (X, Y), (X, [3, 2]), "IndexError"),
    "index of a sum": Operation("x[k + y[1]]", (X, [0, 2]), (X, [1, 2]), "IndexError"),
    "index of two axes": Operation("z[k, y[1]]", (X, [1, 2]), (X, [1, 3]), "IndexError"),
    "row": Operation("z[y[0]].sum()", (X, Y), (X, [3, 2]), "IndexError"),
    "gather": Operation("x[y].sum()", (X, Y), (X, [1, 9]), "IndexError"),
    "part of a gather": Operation("x[y][0]", (X, Y), (X, [1, 9]), "IndexError"),
    "take": Operation("np.take(x, y).sum()", (X, Y), (X, [1, 9]), "IndexError"),
    "write": Operation("put(x, y[0])", (X, Y), (X, [7, 2]), "IndexError"),
    "division": Operation("6 / k", (X, Y), (X, [0, 2]), "ZeroDivisionError"),
    "floor division": Operation("7 // k", (X, Y), (X, [0, 2]), "ZeroDivisionError"),
    "remainder": Operation("7 % k", (X, Y), (X, [0, 2]), "ZeroDivisionError"),
    "divmod": Operation("divmod(7, k)[1]", (X, Y), (X, [0, 2]), "ZeroDivisionError"),
    "division of floats": Operation("1.0 / f", (X, Y), ([0.0, 2.0, 3.0], Y), "ZeroDivisionError"),
    "division by a count": Operation("6 / count(x)", (X, Y), ([-1.0, -2.0, -3.0], Y), "ZeroDivisionError"),
    "power": Operation("f ** -1", (X, Y), ([0.0, 2.0, 3.0], Y), "ZeroDivisionError"),
    "overflow": Operation("f ** 400", (X, Y), ([1e3, 2.0, 3.0], Y), "OverflowError"),
    "shift": Operation("1 << k", (X, Y), (X, [-1, 2]), "ValueError"),
    "int of NaN": Operation("int(x[0])", (X, Y), ([math.nan, 2.0, 3.0], Y), "ValueError"),
    "int of infinity": Operation("int(x[1])", (X, Y), ([0.5, math.inf, 3.0], Y), "OverflowError"),
    "root": Operation("math.sqrt(x[0])", (X, Y), ([-1.0, 2.0, 3.0], Y), "ValueError"),
    "logarithm": Operation("math.log(f)", (X, Y), ([0.0, 2.0, 3.0], Y), "ValueError"),
    "exponential": Operation("math.exp(f)", (X, Y), ([1e3, 2.0, 3.0], Y), "OverflowError"),
    "raise": Operation("checked(x)", (X, Y), ([9.0, 2.0, 3.0], Y), "ValueError"),
    "assert": Operation("asserted(x)", (X, Y), ([9.0, 2.0, 3.0], Y), "AssertionError"),
    "key": Operation("{0: 0.5, 1: 1.5}[k]", (X, Y), (X, [2, 2]), "KeyError"),
    "unpacking": Operation("pair(x, k)", (X, [2, 2]), (X, [1, 2]), "ValueError"),
    "name": Operation("bound(x)", (X, Y), ([-1.0, 2.0, 3.0], Y), "UnboundLocalError"),
    "masked write": Operation("fill(x, y)", ([0.5, -2.0, 3.0], Y), (X, Y), "ValueError"),
    "least of none": Operation("x[x > 2.5].min()", (X, Y), ([0.5, 2.0, 2.5], Y), "ValueError"),
    "weights": Operation("np.average(x, weights=x)", (X, Y), ([1.0, -1.0, 0.0], Y), "ZeroDivisionError"),
    "axis": Operation("z.sum(axis=k)[0]", (X, Y), (X, [2, 2]), "ValueError"),
    "length": Operation("np.ones(k).sum()", (X, Y), (X, [-1, 2]), "ValueError"),
    "singular": Operation("np.linalg.inv(x[:1].reshape(1, 1))[0, 0]", (X, Y), ([0.0, 2.0, 3.0], Y), "LinAlgError"),
}
PLACES = {
    "plain": "v = {op}",
    "unused": "{op}\nv = 1.0",
    "written over": "v = {op}\nv = 1.0",
    "if": "if c[0] > 0:\n    v = {op}\nelse:\n    v = -1.0",
    "else": "if c[0] <= 0:\n    v = -1.0\nelse:\n    v = {op}",
    "if without use": "v = 0.5\nif c[0] > 0:\n    {op}",
    "and": "v = 1.0 if c[0] > 0 and {op} > -1e9 else 2.0",
    "or": "v = 1.0 if c[0] <= 0 or {op} > -1e9 else 2.0",
    "and of an if": "v = 3.0\nif c[0] > 0 and {op} > 0.75:\n    v = 4.0",
    "conditional expression": "v = {op} if c[0] > 0 else -1.0",
    "comparison": "v = 1.0 if 0 < c[0] < {op} + 9 else 2.0",
    "body of a while": "v, j = 0.0, 0\nwhile j < c[0]:\n    v += {op}\n    j += 1",
    "test of a while": "v = 0.0\nwhile c[0] > v and {op} > -1e9:\n    v += 1.0",
    "for with a break": "v = 0.0\nfor i in range(3):\n    if c[0] <= i:\n        break\n    v += {op}",
    "long for": "v = 0.0\nfor i in range(60):\n    if c[0] > i:\n        v += {op}",
    "long for without use": "v = 0.0\nfor i in range(60):\n    v += i\n    if c[0] > i:\n        {op}",
    "comprehension": "v = sum([{op} for u in c if u > 0])",
    "generator": "v = 1.0 if any({op} > 2.5 for u in c if u > 0) else 2.0",
    "function within": "def inner():\n    return {op}\nv = inner() if c[0] > 0 else -1.0",
    "behind a return": "if c[0] <= 0:\n    return -1.0\nv = {op}",
    "behind a raise": "if c[0] <= 0:\n    raise LookupError('c', c[0])\nv = {op}",
    "behind a while": "v = 0.0\nwhile v < c[0]:\n    v += 1.0\nif v > 0:\n    v = {op}",
}
HANDLERS = {
    "nothing": "{body}",
    "its handler": "try:\n    {body}\nexcept {error}:\n    v = -7.0\n    w[2] += 1.0",
    "its handler with the error": "try:\n    {body}\nexcept {error} as e:\n    v = -float(len(e.args))",
    "another handler": "try:\n    {body}\nexcept (NameError, BufferError):\n    v = -7.0",
    "a bare handler": "try:\n    {body}\nexcept:\n    v = -8.0\nw[2] += 1.0",
    "finally": "try:\n    {body}\nfinally:\n    w[2] += 1.0",
    "else": "try:\n    {body}\nexcept Exception:\n    v = -9.0\nelse:\n    v += 1.0\n    w[2] += 1.0",
    "raise again": "try:\n    {body}\nexcept Exception as e:\n    w[2] += 1.0\n    raise RuntimeError('again') from e",
    "two handlers": (
        "try:\n    try:\n        {body}\n    except NameError:\n        v = -1.0\n    finally:\n        w[2] += 1.0\n"
        "except Exception:\n    v = -2.0"
    ),
    "suppress": "v = -5.0\nwith contextlib.suppress({error}):\n    {body}",
    "a with that looks": "with Looking(w):\n    {body}",
    "a caller's handler": (
        "def body():\n    {body}\n    return v\ntry:\n    v = body()\nexcept Exception:\n    v = -6.0"
    ),
}
PRELUDE = """
def put(a, i):
    a[i] = 4.0
    return a[0]

def count(a):
    n = 0
    for e in a:
        if e > 0:
            n += 1
    return n

def fill(a, values):
    a[a > 0] = values
    return a[0]

def bound(a):
    if a[0] > 0:
        found = a[1]
    return found

def checked(a):
    if a[0] > 5:
        raise ValueError("large", a[0])
    return a[1]

def asserted(a):
    assert a[0] < 5, a[0]
    return a[1]

def pair(a, n):
    first, second = a[:n]
    return first + second

class Looking:
    def __init__(self, w):
        self.w = w
    def __enter__(self):
        return self
    def __exit__(self, kind, error, traceback):
        if kind is not None:
            self.w[2] += 3.0
        return False
"""
PURE = "def function(x, y, c, w):\n    {numbers}\n    {body}\n    return v"
WRITING = "def function(x, y, c, w):\n    {numbers}\n    w[0] += 1.0\n    {body}\n    w[1] += 1.0\n    return v"
_CASES = [*product(OPERATIONS, PLACES, HANDLERS, (True, False))]
COUNT = len(_CASES)
IN_NUMPY: list[tuple[str, str, str, bool]] = []  # those that no trace can, so far


def _filled(template: str, **parts: str) -> str:
    """A template with texts of several lines in the places of its names, each as far in as the name is."""
    lines = []
    for line in template.split("\n"):
        name = line.strip()[1:-1]
        if line.strip().startswith("{") and name in parts:
            lines += textwrap.indent(parts[name], line[: len(line) - len(line.lstrip())]).split("\n")
        else:
            lines.append(line.format(**parts) if "{" in line else line)
    return "\n".join(lines)


def source_of(operation: str, place: str, handler: str, writes: bool) -> str:
    """The text of one function."""
    op = OPERATIONS[operation]
    body = PLACES[place].replace("{op}", op.text)
    body = "\n".join(
        textwrap.indent(body, line[: len(line) - len(line.lstrip())])
        if line.strip() == "{body}"
        else line.replace("{error}", "np.linalg.LinAlgError" if op.error == "LinAlgError" else op.error)
        for line in HANDLERS[handler].split("\n")
    )
    numbers = [
        text for name, text in (("k", "k = int(y[0])"), ("f", "f = float(x[0])"), ("z", "z = np.ones((3, 3))"))
        if f"{name} " in op.text + " " or f"{name})" in op.text or f"{name}]" in op.text or f"{name}[" in op.text
        or f"{name}," in op.text
    ]  # fmt: skip
    template = WRITING if writes else PURE
    return "\n".join(
        textwrap.indent({"{numbers}": "\n".join(numbers) or "pass", "{body}": body}[line.strip()], "    ")
        if line.strip() in ("{numbers}", "{body}")
        else line
        for line in template.split("\n")
    )


def function_of(name: str, text: str) -> Any:
    """A function whose source Python and the compiler can read."""
    whole = PRELUDE + "\n" + text + "\n"
    file = f"<{name}>.py"
    linecache.cache[file] = len(whole), None, whole.splitlines(keepends=True), file
    scope = {"np": np, "math": math, "contextlib": contextlib}
    exec(compile(whole, file, "exec"), scope)
    return scope["function"]


def outcome(function: Any, x: Sequence[float], y: Sequence[int], reached: bool, exactly: bool) -> Any:
    """What a call gives or raises, and what it has written."""
    arrays = np.array(x), np.array(y), np.array([1.0 if reached else -1.0, -1.0]), np.zeros(3)
    try:
        with np.errstate(all="ignore"):
            found: Any = np.asarray(function(*arrays)).astype(float).tolist()
    except (kg.TraceError, kg.UnsupportedError):
        found = "refused"
    except Exception as error:
        kind = next(k for k in type(error).__mro__ if k.__module__ in ("builtins", "numpy.linalg"))
        found = kind.__name__, repr(error.args) if exactly else ""
    return repr((found, [a.tolist() for a in arrays]))


def wrong_calls(operation: str, place: str, handler: str, writes: bool, refuse: bool = False) -> Iterator[str]:
    """The calls of one function that do not do what Python does. refuse: or refuse what they cannot do."""
    text, op = source_of(operation, place, handler, writes), OPERATIONS[operation]
    plain = function_of(f"{operation}, {place}, {handler}, {writes}", text)
    compiled = kg.kernel_graph(plain, device="cpu", untraceable="refuse" if refuse else "numpy")
    exactly = (writes or handler != "nothing") and not refuse
    for arguments, reached in ((op.good, True), (op.bad, True), (op.bad, False), (op.good, False), (op.bad, True)):
        wanted, found = (outcome(f, *arguments, reached, exactly) for f in (plain, _timed(compiled)))
        if wanted != found and not (refuse and "refused" in found):
            case = f"{operation} | {place} | {handler} | {writes}"
            yield f"{case} | {arguments} {reached}:\n  {wanted}\n  {found}\n{text}"

    if "runs in NumPy" in compiled.why():
        IN_NUMPY.append((operation, place, handler, writes))


def _timed(function: Any) -> Any:
    def call(*args: Any) -> Any:
        signal.alarm(SECONDS)
        try:
            return function(*args)
        finally:
            signal.alarm(0)

    return call


def cases(part: int, parts: int) -> Iterator[tuple[str, str, str, bool]]:
    """Every so many-th of all functions."""
    return iter(_CASES[part::parts])


def _main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", type=int, default=0)
    parser.add_argument("--parts", type=int, default=1)
    parser.add_argument("--only", default="")
    parser.add_argument("--refuse", action="store_true", help="functions that nothing catches in, never in NumPy")
    options = parser.parse_args()
    wrong = count = 0
    for case in cases(options.part, options.parts):
        if options.only and options.only not in " | ".join(map(str, case)):
            continue
        if options.refuse and case[2:] != ("nothing", False):
            continue
        count += 1
        for text in wrong_calls(*case, options.refuse):
            wrong += 1
            print(text, flush=True)
    for name in (name for names in zip(*IN_NUMPY, strict=True) for name in dict.fromkeys(names)):
        print(f"{sum(name in case for case in IN_NUMPY):6} in NumPy with {name}")
    print(f"{count} functions, {len(IN_NUMPY)} of them in NumPy, {wrong} calls wrong")
    return wrong > 0


if __name__ == "__main__":
    raise SystemExit(_main())
