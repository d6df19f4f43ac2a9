"""Every operation on Python's numbers that values decide: one function for each of a table, compared with plain Python.

python -m tests.python_numbers [--count N] [--seed S] [--shard I/N] [--only TEXT]

The table: each expression of UNARY with each way of WAYS to make a number, and each of BINARY with pairs of ways. A
function is called with several arguments that decide otherwise; compared are the result's value and type, or the type
of the exception. `wrong` must be 0; `compiled` counts the functions that do not run in NumPy. Without --count all run.
What this table leaves to others: errors of values such as ZeroDivisionError, and ints beyond 64 bits, which wrap.
"""

from __future__ import annotations

import argparse
import itertools
import math
import random
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import kernelgraph as kg
from tests.random_cases import names_in_file

PRELUDE = "import math\nimport operator\nimport numpy as np\n"
# how a number of the name $ is made, of the floats x, the ints y and the call's numbers j and u; by its type
WAYS: dict[str, dict[str, str]] = {
    "bool": {
        "not": "$ = not x[0]",
        "bool()": "$ = bool(x[0] > 1)",
        "compared": "$ = int(x[0]) > 1",
        "chain": "$ = 0 <= int(x[0]) <= int(x[1])",
        "if": "$ = False\nif x[0] > 1:\n    $ = True",
        "if/else": "if x[0] > 1:\n    $ = False\nelse:\n    $ = True",
        "loop": "$ = False\nfor v in x:\n    if v > 2:\n        $ = True",
        "break": "$ = True\nfor v in x:\n    if v > 2:\n        $ = False\n        break",
        "long loop": "$ = False\nfor i in range(20):\n    if x[i % 4] > 2:\n        $ = not $",
        "any": "$ = any(float(v) > 2 for v in x)",
        "all": "$ = all(not v for v in x)",
        "and": "$ = not x[0] and not x[1]",
        "choice": "$ = bool(x[0]) if x[1] > 0 else False",
        "while": "$ = False\ns = abs(x[0])\nwhile s > 0.5:\n    $ = not $\n    s = s / 2",
        "argument": "$ = j > 1",
        "known": "$ = True",
    },
    "int": {
        "int()": "$ = int(x[0])",
        "int() of ints": "$ = int(y[0])",
        "if": "$ = 2\nif x[0] > 1:\n    $ += 1",
        "if/else": "$ = 3 if x[0] > 1 else -2",
        "while": "$ = 0\ns = abs(x[0])\nwhile s > 0.5:\n    $ += 1\n    s = s / 2",
        "loop": "$ = 1\nfor v in x:\n    if v > 0:\n        $ += 1",
        "long loop": "$ = 1\nfor i in range(20):\n    if x[i % 4] > 2:\n        $ += i",
        "sum": "$ = sum(1 for v in x if v > 1)",
        "sum of ints": "$ = sum(int(v) for v in x)",
        "sum of bools": "$ = sum(not v for v in x)",
        "or": "$ = int(x[0]) or 5",
        "max": "$ = max(int(x[0]), 1)",
        "len": "$ = len(x)",
        "argument": "$ = j",
        "known": "$ = -3",
    },
    "float": {
        "float()": "$ = float(x[0])",
        "float() of a sum": "$ = float(x.sum())",
        "math": "$ = math.sqrt(abs(x[0]))",
        "if/else": "$ = 1.5 if x[0] > 1 else -0.5",
        "while": "$ = 0.25\ns = abs(x[0])\nwhile s > 0.5:\n    $ += 0.5\n    s = s / 2",
        "long loop": "$ = 0.5\nfor i in range(20):\n    if x[i % 4] > 2:\n        $ += 0.25",
        "divided": "$ = int(x[0]) / 2",
        "choice": "$ = float(x[0]) if x[1] > 0 else 2.0",
        "and": "$ = float(x[0]) and 2.5",
        "argument": "$ = u",
        "known": "$ = -2.5",
    },
    "numpy": {
        "float64": "$ = x[0]",
        "sum": "$ = x.sum()",
        "int64": "$ = y[0]",
        "bool_": "$ = x[0] > 1",
        "array": "$ = x",
    },
    "either": {
        "bool": "$ = False\nif x[0] > 1:\n    $ = y[1] > 0",
        "bool while": "$ = False\nwhile y[0] < 0:\n    $ = y[1] > 0\n    y[0] += 1",
        "int": "$ = 1\nif x[0] > 1:\n    $ = y[1]",
        "int while": "$ = 300\nwhile y[0] < 0:\n    $ = y[1]\n    y[0] += 1",
        "float": "$ = 0.5\nif x[0] > 1:\n    $ = x[1]",
        "float while": "$ = 1.5\nwhile y[0] < 0:\n    $ = y[1]\n    y[0] += 1",
        "bool or int": "$ = True\nif x[0] > 1:\n    $ = 5",
    },
}
METHODS = ("is_integer", "bit_length", "bit_count", "as_integer_ratio", "conjugate", "hex", "item", "sum")
ATTRIBUTES = ("real", "imag", "numerator", "denominator", "dtype", "shape", "ndim", "T", "nothing")
UNARY = (
    *("-a", "+a", "~a", "abs(a)", "not a", "bool(a)", "int(a)", "float(a)", "str(a)", "repr(a)", "f'{a}'", "'%s' % a"),
    *("round(a)", "round(a, 1)", "round(a, 0)", "round(a, -1)", "complex(a)", "operator.index(a)", "operator.neg(a)"),
    *(f"math.{name}(a)" for name, f in vars(math).items() if callable(f) and name not in ("factorial", "fsum", "prod")),
    *(f"a.{name}()" for name in METHODS),
    *(f"a.{name}" for name in ATTRIBUTES),
    *(f"hasattr(a, {name!r})" for name in (*METHODS, *ATTRIBUTES)),
    *(f"isinstance(a, {kind})" for kind in ("bool", "int", "float", "(int, float)", "np.generic", "np.ndarray")),
    *(f"type(a) is {kind}" for kind in ("bool", "int", "float", "np.bool_", "np.int64", "np.float64")),
    *("type(a).__name__", "type(a) in (int, float)", "a is True", "a is False", "a is not True", "True is a"),
    *("a is 3", "-2 is not a", "(a + 1) is 4", "a is 'a'"),
    *("a == True", "a in (True, 3)", "a is None", "[1, 2, 3][a:]", "[4, 5] * a", "a * (4, 5)", "'ab' * a", "range(a)"),
    *("[*range(abs(a))]", "[6, 7][a]", "{a: 1}", "hash(a)", "len(a)", "[*a]", "a[()]", "x[a]", "sorted([a, 1])"),
    *("min(a, 1)", "max(a, 1)", "sum([a, a])", "sum([a], a)", "1 if a else 2", "a or 7", "a and 7", "divmod(a, 3)"),
    *("np.add(a, 1)", "np.sqrt(abs(a))", "np.asarray(a)", "np.where(a, 1, 2)", "np.result_type(a, np.int8)", "x + a"),
    *("-a is True", "(a == 1) is True", "(not a) is False", "(a > 0) + 1", "(a, 1)", "[a, a]", "np.array([a, a])"),
    *("a < 2 < 3", "1 < a < 3", "0 <= a == 1", "a != a", "sum(a for _ in range(3))", "any([a])", "all((a, True))"),
)
TEXTS = ("str(a)", "repr(a)", "f'{a}'", "'%s' % a")
BINARY = (
    *(f"a {sign} b" for sign in ("+", "-", "*", "/", "//", "%", "**", "<<", ">>", "&", "|", "^", "@")),
    *(f"a {sign} b" for sign in ("<", "<=", "==", "!=", ">", ">=", "is", "is not", "and", "or")),
    *(
        "divmod(a, b)",
        "pow(a, b)",
        "pow(a, b, 7)",
        "max(a, b)",
        "min(a, b)",
        "sum((a, b))",
        "a < b < 3",
        "a if b else 0",
    ),
    *("math.hypot(a, b)", "math.atan2(a, b)", "math.copysign(a, b)", "math.fmod(a, b)", "math.pow(a, b)"),
    *("math.gcd(a, b)", "math.isclose(a, b)", "math.log(abs(a), 2.5)", "math.ldexp(a, b)", "[a, b].index(b)"),
    *("np.add(a, b)", "np.multiply(a, b)", "np.maximum(a, b)", "np.logical_and(a, b)", "np.array([a, b])", "(a, b)"),
    *("a + b is True", "(a == b) is False", "(a & b) + 1", "(a + b, type(a + b) is int)", "a in (b, 9)"),
)
STATEMENTS = (
    "a = $0\nmatch a:\n    case True:\n        r = 1\n    case False:\n        r = 2\n    case _:\n        r = 3",
    "a = $0\na += 1\nr = a",
    "a = $0\nr = 0\nwhile r is not True and r < 5:\n    r += 1 if a else 2",
    "a = $0\nr = 1.5\nif a is True:\n    r = 2.5\nelif a is False:\n    r = 3.5",
    "def h(t):\n    return t is True, isinstance(t, bool)\na = $0\nr = h(a)",
)
# x, y, j, u of the calls
ARGUMENTS: tuple[tuple[list[float], list[int], int, float], ...] = (
    ([2.0, 3.0, -1.0, 4.0], [2, 1, 5, 3], 3, 0.5),
    ([-2.5, 0.0, 0.0, 1.0], [-2, 3, 5, 3], -2, -1.5),
    ([0.0, 0.0, 0.0, 0.0], [0, -1, 0, 3], 1, 2.0),
    ([7.0, -1.0, 2.5, 2.5], [-3, 0, 2, 3], 0, 4.0),
)
OTHERS = (ZeroDivisionError, OverflowError)


class Case(NamedTuple):
    """One function: how its numbers are made, and what becomes of them."""

    name: str
    ways: tuple[str, ...]
    expression: str
    text: str


def _case(number: int, ways: Sequence[tuple[str, str]], expression: str) -> Case:
    lines = [text.replace("$", name) for (_, text), name in zip(ways, "ab", strict=False)]
    lines += [expression.replace("$0", "a") if "\n" in expression else f"r = {expression}", "return r"]
    body = "\n".join(lines).replace("\n", "\n    ")
    return Case(f"f{number}", tuple(w for w, _ in ways), expression, f"def f{number}(x, y, j, u):\n    {body}\n")


def cases() -> Iterator[Case]:
    """The whole table."""
    ways = [(f"{kind}: {name}", text) for kind, found in WAYS.items() for name, text in found.items()]
    count = itertools.count()
    for way in ways:
        for expression in (*UNARY, *STATEMENTS):
            if way[0].startswith("numpy") and expression in TEXTS:  # which are refused
                continue
            yield _case(next(count), [way], expression)
    for one, other in itertools.product(ways, ways):
        for expression in BINARY:
            yield _case(next(count), [one, other], expression)


def _outcome(function: Any, arguments: tuple[list[float], list[int], int, float]) -> tuple[Any, type | None]:
    x, y, j, u = arguments
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            found = function(np.array(x), np.array(y), j, u)
            if isinstance(found, kg.Array):
                found.wait()  # an index may be out of range
            return found, None
    except Exception as error:
        return error, next(kind for kind in type(error).__mro__ if kind.__module__ == "builtins")


def difference(want: Any, got: Any) -> str:
    """What is wrong with a result; nothing where it is right."""
    if isinstance(want, (tuple, list)):
        if type(got) is not type(want) or len(got) != len(want):
            return f"{got!r} for {want!r}"
        return next(filter(None, map(difference, want, got)), "")
    if not isinstance(got, (kg.Array, np.ndarray)):
        same = type(got) is type(want) and (got == want or (got != got and want != want))
        return "" if same else f"{got!r} ({type(got).__name__}) for {want!r} ({type(want).__name__})"
    if not isinstance(want, (bool, int, float, complex, np.generic, np.ndarray)):
        return f"an array for {want!r}"
    if type(want) is int and not -(2**63) <= want < 2**63:
        return ""
    found, wanted = np.asarray(got), np.asarray(want)
    widened = type(want) is int and found.dtype == np.float64  # an int or a float, as values decide
    if (found.dtype != wanted.dtype and not widened) or found.shape != wanted.shape:
        return f"{found!r} for {wanted!r}"
    close = np.allclose(found, wanted, 1e-14, 0, equal_nan=True)
    return "" if close else f"{found!r} for {wanted!r}"


def checked(case: Case, function: Any) -> tuple[str, bool]:
    """What is wrong with a case, and whether it was compiled."""
    compiled = kg.kernel_graph(function, device="cpu", untraceable="numpy")
    for arguments in ARGUMENTS:
        want, error = _outcome(function, arguments)
        if error in OTHERS or "negative integer powers" in str(want):
            continue
        got, other = _outcome(compiled, arguments)
        said = f"{case.ways} {case.expression!r} of {arguments}:"
        if error is not other:
            return f"{said} {got if other else ''!r} ({other}) for {want!r} ({error})", False
        if error is None and (text := difference(want, got)):
            return f"{said} {text}", False
    return "", "runs in NumPy" not in compiled.why()


def run(chosen: Sequence[Case], folder: Path, label: str = "") -> tuple[list[str], Counter[str]]:
    """The faults, and how many of each outcome."""
    faults, counts = [], Counter[str]()
    names = names_in_file([PRELUDE, *(case.text for case in chosen)], folder, f"python_numbers{label}")
    for case in chosen:
        fault, compiled = checked(case, names[case.name])
        faults += [fault] if fault else []
        counts["wrong" if fault else "compiled" if compiled else "in NumPy"] += 1
    return faults, counts


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--shard", default="0/1")
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    first, step = map(int, options.shard.split("/"))
    chosen = [c for c in cases() if options.only in f"{c.ways} {c.expression}"][first::step]
    if options.count is not None:
        chosen = random.Random(options.seed).sample(chosen, min(options.count, len(chosen)))
    with tempfile.TemporaryDirectory() as folder:
        faults, counts = run(chosen, Path(folder))
    print(*faults, sep="\n")
    print(f"{len(chosen)} cases: {dict(counts)}")
    return bool(faults)


if __name__ == "__main__":
    raise SystemExit(main())
