"""Errors in decorated functions end at the line that raises, with one entry of the package's before it at most.

A table: what raises, where it stands, and how it is called, each beside Python's own run of the same function."""

from __future__ import annotations

import linecache
import math
import os
import textwrap
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph import compiler, dsl, runtime

GOOD, BAD = np.array([1.0, 4.0, 2.0]), np.array([-1.0, 4.0, 2.0])

# statements that raise for x[0] == -1.0; the last line of each does
ERRORS = {
    "raise": 'raise ValueError("negative", 3)',
    "raise from": "try:\n    raise KeyError('a')\nexcept KeyError as e:\n    raise LookupError('b') from e",
    "raise in a handler": "try:\n    raise KeyError('a')\nexcept KeyError:\n    raise LookupError('b')",
    "raise from None": "try:\n    raise KeyError('a')\nexcept KeyError:\n    raise LookupError('b') from None",
    "own class": "raise Own(5, 'own')",
    "own class of other arguments": "raise Other(code=5)",
    "own class with slots": "raise Slotted('a', 2)",
    "error with a note": "e = ValueError('n')\ne.add_note('a note')\nraise e",
    "file": "raise FileNotFoundError(2, 'none', 'a.txt')",
    "assert": 'assert x[0] > 0, "negative"',
    "division": "y = 1 / int(x[0] + 1)",
    "remainder": "y = 7 % int(x[0] + 1)",
    "overflow": "y = math.exp(float(x[1]) * 1000)",
    "root": "y = math.sqrt(x[0])",
    "singular": "x = x + np.linalg.inv(x[:1].reshape(1, 1) + 1)[0]",
    "not definite": "x = x + np.linalg.cholesky(x[:1].reshape(1, 1))[0]",
    "floating point": "with np.errstate(all='raise'):\n    y = np.array([1.0]) / (x[:1] + 1)",
    "attribute of an array": "y = x.nothing",
    "attribute of NumPy": "y = np.nothing(x)",
    "attribute of None": "y = None.shape",
    "attribute of an object": "y = HOLDER.nothing",
    "key": "y = {5: 1}[int(x[0])] * x",
    "constant key": "y = {5: 1}[6] * x",
    "index": "y = x[int(x[1])]",
    "constant index": "y = x[7]",
    "index of a list": "y = [1, 2][int(x[1])]",
    "type": 'y = "a" + 1',
    "type of an array": "y = x + None",
    "arguments": "y = helper()",
    "shapes": "y = x + np.zeros(7)",
    "reshape": "y = x.reshape(7, 7)",
    "unpacking": "a, b = x[: int(x[2]) - 1]",
    "name": "y = nowhere",
    "int of text": "y = int('a')",
    "int of NaN": "y = int(x[0] * np.nan)",
    "least of none": "x = x + x[x > 9].min()",
}
PLACES = {
    "always": """
def function(x):
    {error}
    return np.sqrt(x)""",
    "if": """
def function(x):
    if x[0] < 0:
        {error}
    return np.sqrt(x)""",
    "helper": """
def inner(x):
    {error}
    return x

def function(x):
    if x[0] < 0:
        x = inner(x)
    return np.sqrt(x)""",
    "deep": """
def inner(x):
    {error}
    return x

def outer(x, go):
    return go(x)

def function(x):
    if x.min() < 0:
        x = x + outer(x, lambda x: inner(x))
    return np.sqrt(x)""",
    "for": """
def function(x):
    for v in range(3):
        if x[v] < 0:
            {error}
    return np.sqrt(x)""",
    "while": """
def function(x):
    n = 0
    while x[n] < 3:
        if x[n] < 0:
            {error}
        n = n + 1
    return x * n""",
    "method": """
class Model:
    least = 0.0

    def work(self, x):
        if x[0] < self.least:
            {error}
        return np.sqrt(x)""",
    "decorated": """
@kg.kernel_graph(device='cpu', untraceable=HOW)
def inner(x):
    if x[0] < 0:
        {error}
    return np.sqrt(x)

def function(x):
    return inner(x) + 1""",
    "finally": """
def function(x):
    try:
        if x[0] < 0:
            {error}
    finally:
        x = x + 1
    return np.sqrt(x)""",
    "with": """
def function(x):
    with Looking():
        if x[0] < 0:
            {error}
    return np.sqrt(x)""",
    "behind a write": """
def function(x):
    x[1] = 3.0
    if x[0] < 0:
        {error}
    return np.sqrt(x)""",
}


def _decorated_rows(function: Callable[..., Any]) -> Callable[..., Any]:
    return kg.kernel_graph(lambda rows: kg.vmap(function)(rows), device="cpu", untraceable="refuse")


PRELUDE = """
class Own(Exception):
    def __init__(self, code, text):
        super().__init__(text)
        self.code = code

class Other(Exception):
    def __init__(self, *, code):
        self.code = code

class Slotted(Exception):
    __slots__ = ("held",)
    def __init__(self, text, held):
        super().__init__(text)
        self.held = held

class Holder:
    pass

HOLDER = Holder()

def helper(x):
    return x

class Looking:
    def __enter__(self):
        return self
    def __exit__(self, *error):
        return False
"""


def _indented(text: str, line: str) -> str:
    return textwrap.indent(text, line[: len(line) - len(line.lstrip())])


def source_of(error: str, place: str) -> str:
    lines = PLACES[place].split("\n")
    return "\n".join(_indented(ERRORS[error], x) if x.strip() == "{error}" else x for x in lines)


@dataclass(frozen=True)
class Way:
    """How a function is called, for the last time with what raises."""

    untraceable: str = "numpy"
    before: tuple[np.ndarray[Any, Any], ...] = ()
    given: Callable[[Any], Any] = np.copy
    decorate: Callable[..., Any] | None = kg.kernel_graph
    runs: bool = True


WAYS = {
    "first call": Way(),
    "second call": Way(before=(BAD,)),
    "after a good call": Way(before=(GOOD, GOOD)),
    "with kg.Array": Way(before=(GOOD, GOOD), given=lambda x: kg.array(x, device="cpu")),
    "never in NumPy": Way("refuse"),
    "never in NumPy, after a good call": Way("refuse", (GOOD, GOOD)),
    "split": Way("split", (GOOD,)),
    "often": Way(before=(BAD,) * 12),
    "vmap": Way("refuse", given=lambda x: x[None].copy(), decorate=lambda f, **options: kg.vmap(f)),
    "vmap within": Way("refuse", given=lambda x: x[None].copy(), decorate=lambda f, **options: _decorated_rows(f)),
    "grad": Way("refuse", decorate=lambda f, **options: kg.grad(lambda x: f(x).sum())),
    "compile": Way("refuse", decorate=lambda f, **options: kg.kernel_graph(f, **options).compile, runs=False),
}
PYTHON = Way(decorate=None)


@dataclass(frozen=True)
class Outcome:
    """What a call raises. users: the lines and names of the entries in the function's file; ours: of the package's,
    before the first of those and behind it; notes: what is said beside the message; awaited: it comes where the result
    is read."""

    kind: type[BaseException]
    bases: tuple[str, ...]
    args: str
    held: str
    causes: tuple[Any, ...]
    users: tuple[tuple[int | None, str], ...]
    ours: tuple[str, ...]
    notes: tuple[str, ...]
    awaited: bool


def outcome_of(error: str, place: str, way: Way) -> tuple[Outcome | None, str]:
    """What the last call raises, and the name of the function's file."""
    text = f"{PRELUDE}\n{source_of(error, place)}\n"
    file = f"<{error} {place}>.py"
    linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
    scope: dict[str, Any] = {"np": np, "math": math, "kg": kg, "HOW": way.untraceable, "__name__": "error_lines"}
    if way.decorate is None:
        text = text.replace("@kg.kernel_graph(device='cpu', untraceable=HOW)", "#")
    exec(compile(text, file, "exec"), scope)
    options: Any = {"device": "cpu", "untraceable": way.untraceable}
    decorate = (lambda f: f) if way.decorate is None else partial(way.decorate, **options)
    if place == "method" and way.decorate is kg.kernel_graph:
        scope["Model"].work = decorate(scope["Model"].work)
        function = scope["Model"]().work
    else:
        function = decorate(scope["Model"]().work if place == "method" else scope["function"])
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for x in way.before:
            _call(function, way.given(x))
        raised = _call(function, way.given(BAD))
    if raised is None:
        return None, file
    entries = traceback.extract_tb(raised.__traceback__)[1:]  # behind `_call`
    ours = [f"{e.filename}:{e.lineno} {e.name}" for e in entries if _is_ours(e.filename)]
    context = raised.__context__
    causes = type(raised.__cause__), type(context), raised.__suppress_context__ and context is not None
    notes = str(raised), *getattr(raised, "__notes__", ())
    held = repr({k: v for k, v in vars(raised).items() if k != "__notes__"} | {"held": getattr(raised, "held", None)})
    users = tuple((e.lineno, e.name) for e in entries if e.filename == file)
    kind = type(raised)
    named = tuple(k.__name__ for k in kind.__mro__)
    awaited = any("array.py" in entry for entry in ours)
    return Outcome(kind, named, repr(raised.args), held, causes, users, tuple(ours), notes, awaited), file


def _call(function: Any, x: Any) -> Exception | None:
    try:
        np.asarray(function(x))
    except Exception as error:
        return error
    return None


def _is_ours(file: str) -> bool:
    return file.startswith("<kernelgraph") or os.path.realpath(file).startswith(_FOLDERS)


_FOLDERS = tuple(os.path.realpath(folder) + os.sep for m in (dsl, compiler, runtime) for folder in m.__path__)


def faults(error: str, place: str, name: str) -> list[str]:
    """What is wrong with the error of one function called in one way."""
    (wanted, file), (found, _) = outcome_of(error, place, PYTHON), outcome_of(error, place, WAYS[name])
    assert wanted is not None
    if found is None:
        return ["nothing is raised"] if WAYS[name].runs else []
    line, _ = wanted.users[-1]
    named = any(f"{os.path.basename(file)}:{line}" in note for note in found.notes)
    wrong = []
    if "KernelGraphError" in found.bases:
        refused = issubclass(found.kind, (kg.TraceError, kg.UnsupportedError))
        if not (named or (refused and os.path.basename(file) in found.notes[0])):
            wrong.append(f"{found.kind.__name__} names another line: {found.notes}")
        if not (issubclass(found.kind, wanted.kind) or (refused and WAYS[name].untraceable != "numpy")):
            wrong.append(f"{found.kind.__name__} is no {wanted.kind.__name__}: {found.notes}")
    else:
        if WAYS[name].untraceable == "refuse" and found.kind is ZeroDivisionError:  # Python has texts for each operator
            found = replace(found, args=wanted.args)
        parts = "bases", "args", "held", "causes"
        if any(getattr(found, part) != getattr(wanted, part) for part in parts):
            wrong.append(f"another error: {found} instead of {wanted}")
        if found.users != wanted.users and not named:
            wrong.append(f"at other lines: {found.users} instead of {wanted.users}, {found.notes}")
    if len(found.ours) > 1 + (found.awaited or not WAYS[name].runs):
        wrong.append(f"{len(found.ours)} entries of the package: {found.ours}")
    return wrong


@pytest.mark.parametrize("name", WAYS)
@pytest.mark.parametrize("place", PLACES)
def test_errors_end_at_the_line_that_raises(place: str, name: str) -> None:
    """Of every place and way each so many-th error; all of them by `python -m tests.dsl.jit.test_error_lines`."""
    first = ([*PLACES].index(place) + [*WAYS].index(name)) % PARTS
    found = {error: faults(error, place, name) for error in [*ERRORS][first::PARTS]}
    assert not any(found.values()), "\n".join(f"{e}: {'; '.join(w)}" for e, w in found.items() if w)


PARTS = 5


def test_equal_functions_of_two_files_each_name_their_own() -> None:
    way = Way("refuse")
    for place in ("one", "two"):
        PLACES[place] = PLACES["if"]
        try:
            found, file = outcome_of("singular", place, way)
        finally:
            del PLACES[place]
        assert found is not None and file in found.notes[-1], found


def test_what_the_package_raises_without_meaning_to_keeps_its_entries() -> None:
    f: Any = kg.kernel_graph(lambda x: x + 1, device="cpu")
    f._versions.plans = None
    with pytest.raises(AttributeError) as caught:
        f(GOOD)
    assert traceback.extract_tb(caught.value.__traceback__)[-1].name == "compiled"


if __name__ == "__main__":
    for case in product(ERRORS, PLACES, WAYS):
        for text in faults(*case):
            print(" | ".join(case), text)
