"""Random programs that decide on traced values: nested `if`, `while`, `for` with `break`, returns, errors, state.

NumPy's run is the reference: values, dtypes, shapes, what was written to the arguments, the kind of error. Each program
is called three times, with numbers that decide otherwise.

python -m tests.control_flow_programs --count 5000 --seed 1 --device cpu
"""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

import kernelgraph as kg
from kernelgraph.dsl.core.pytree import flatten
from tests import random_cases
from tests.random_cases import Outcome, describe_refusal, names_in_file, under_alarm

P = TypeVar("P", bound="Program")
TURNS = 3  # calls of each program
LARGEST = 1e9  # numbers below it are exact
DTYPES = ("f8", "f8", "f8", "f4", "i8")
SIZE = 4
PRELUDE = '''
import numpy as np


def made(k, seed, dtype):
    """Small numbers of which the kth has other signs and another order."""
    rng = np.random.default_rng([k, seed])
    return (rng.integers(-8, 9, 4) / (1 if dtype == "i8" else 2)).astype(dtype)


class Box:
    def __init__(self, x, s):
        self.x, self.s, self.n = x, s, 0

    def step(self, t):
        if self.s > t:
            self.s = self.s - 1
            return self.x
        self.n += 1
        self.x = self.x + t
        return self.x


def clipped(x, s):
    if x.max() > s:
        return x - s
    if s < 0:
        x[0] = 0
        return x * 2
    return x


def first_above(x, s):
    for i in range(len(x)):
        if x[i] > s:
            return i
    return -1


def halved(s):
    count = 0
    while abs(s) > 1 and count < 9:
        s = s / 2
        count += 1
    return s, count
'''
# Expressions: `$a` an array, `$s` a number, `$t` a test, `$i` an index, `$c` a constant, `$v` an array that is a name
ARRAYS = (
    "$v", "$v", "$v", "$a + $a", "$a - $s", "$a * $c", "-$a", "np.maximum($a, $a)", "$v.copy()", "np.abs($a)",
    "np.where($a > $s, $a, $a)", "$v[::-1]", "($a if $t else $a)", "clipped($v, $s)", "np.zeros_like($v)",
    "np.minimum($a, $s)", "np.cumsum($v)", "$v[[3, 1, 0, 2]]", "$a[:2].repeat(2)", "o.step($s)", "p[0]", "d['x']",
    "o.x", "np.full(4, $s)", "np.roll($a, 1)", "np.sort($v)",
)  # fmt: skip
NUMBERS = (
    "$n", "$n", "$n", "$c", "$v[$i]", "$v[$i]", "$v.sum()", "$v.max()", "$v[$i] + $c", "($s + $s)", "($s - $s)",
    "($s * $c)", "abs($s)", "max($s, $s)", "min($s, $s, $c)", "float($v[$i])", "int($v[$i])", "float($s)", "int($s)",
    "($s if $t else $s)", "($s or $s)", "($t and $s)", "p[1]", "d['s']", "o.s", "o.n", "len($v)", "m", "$v.argmax()",
    "first_above($v, $s)", "halved($s)[0]", "halved($s)[1]", "bool($s)", "$v.any()", "max($v)", "min($v)", "sum($v)",
    "np.float64($s)", "round($c * 1.0)", "(lambda z: z if z > $s else $s)($s)", "sum([z for z in $v])",
    "sum(z > $s for z in [1, 2])", "max([$s, $s])", "[$s, $s][m % 2]",
)  # fmt: skip
TESTS = (
    "$s > $s", "$s < $s", "$s >= $c", "$s == $s", "$s != $c", "$c < $s <= $s", "$s > $s > $s", "not $t", "$t and $t",
    "$t or $t", "$s", "$v.any()", "($a > $s).all()", "($a == $a).any()", "bool($s)", "$s > $c", "$v[$i] < $v[$i]", "m",
    "m > 1", "$v is $v", "$v is not None", "(($t) == ($t))", "$n is None",
    "any($n > z for z in (0, 1))", "all([$t, $t])", "(1 if $t else $s)", "$n in (1, 2)",
)  # fmt: skip
LINES = (
    "$n = $s", "$n = $s", "$n = $s", "$v = $a", "$v = $a", "$v = $v", "$n += $s", "$n -= $c", "$n *= $c", "$v[$i] = $s",
    "$v[$i] = $s", "$v[$i] += $s", "$v[1:] = $a[1:]", "$v[:] = $a", "$v[:2] += $s", "$v[$v > $s] = $c", "$v += $s",
    "$v *= $c", "$v -= $a", "np.add($v, $a, out=$v)", "p[0] = $a", "p[1] = $s", "p[1] += $c", "d['x'] = $a",
    "d['s'] = $s", "d['s'] += $s", "o.x = $a", "o.s = $s", "o.n += 1", "o.x[$i] = $s", "p[0][$i] = $s", "o.step($s)",
    "clipped($v, $s)", "$v, $w = $w, $v", "$n, $v = $s, $a", "$v[$i], $v[$i] = $v[$i], $v[$i]", "r = $v[1:3]",
    "$v = $v if $t else $v", "$v.sort()", "$v[::2] = $s", "$v = np.array([$n, $s, 1, 2])", "pass",
    "$n = first_above($v, $s)", "$n, k = halved($s)", "if (w := $s) > $c: $n = w", "$v[:] = $v[::-1]",
    "$n = $n", "q = ($v, $n)\n$v, $n = q",
)  # fmt: skip


@dataclass(frozen=True)
class Program:
    """One function's text, and the dtypes of its arrays."""

    name: str
    dtypes: tuple[str, str]
    text: str

    def arguments(self, turn: int) -> tuple[dict[str, Any], Sequence[Any]]:
        made = _SCOPE["made"]
        named = {"a": made(turn, 1, self.dtypes[0]), "b": made(turn, 2, self.dtypes[1])}
        s = made(turn, 3, self.dtypes[0])[0]
        return named, (named["a"], named["b"], s, 2)

    def program(self) -> str:
        """A program that prints both: `python FILE` NumPy's, `python FILE traced` ours."""
        a, b = self.dtypes
        return (
            f"import sys\n\nimport kernelgraph as kg\n{PRELUDE}\n\n{self.text}\n\n"
            f"f = kg.kernel_graph({self.name}, device='cpu') if sys.argv[1:] else {self.name}\n"
            f"for K in range({TURNS}):\n    a, b = made(K, 1, {a!r}), made(K, 2, {b!r})\n    try:\n"
            f"        print(f(a, b, made(K, 3, {a!r})[0], 2))\n    except Exception as e:\n"
            "        print(repr(e))\n    print('arguments', a, b)\n"
        )


_SCOPE: dict[str, Any] = {}
exec(PRELUDE, _SCOPE)


# making them


@dataclass
class _Writer:
    """Writes one function."""

    rng: random.Random
    lines: list[str] = field(default_factory=list)
    budget: int = 0
    loops: int = 0
    counters: int = 0
    whole: bool = True  # whether all state is returned
    names: tuple[str, ...] = ("s", "t", "n")
    arrays: tuple[str, ...] = ("a", "b", "u", "v")

    def filled(self, template: str, depth: int = 0) -> str:
        def one(found: re.Match[str]) -> str:
            kind = found[0]
            if kind == "$v" or kind == "$w":
                return self.rng.choice(self.arrays)
            if kind == "$n":
                return self.rng.choice(self.names)
            if kind == "$i":
                return self.rng.choice(("0", "1", "2", "-1"))
            if kind == "$c":
                return self.rng.choice(("0", "1", "2", "3", "-1", "0.5", "1.5", "-2"))
            options = {"$a": ARRAYS, "$s": NUMBERS, "$t": TESTS}[kind]
            if depth > 2 or (depth and self.rng.random() < 0.5):
                options = {"$a": ("$v",), "$s": ("$n", "$n", "$v[$i]", "$c"), "$t": ("$n > $c", "$v[$i] < $n")}[kind]
            return self.filled(self.rng.choice(options), depth + 1)

        return re.sub(r"\$\w", one, template)

    def add(self, indent: int, text: str) -> None:
        self.lines += ["    " * indent + line for line in text.split("\n")]

    def block(self, indent: int, count: int) -> None:
        for _ in range(count):
            self.statement(indent)

    def inside(self, indent: int) -> None:
        self.block(indent + 1, self.rng.choice((1, 1, 2, 3)))

    def statement(self, indent: int) -> None:
        rng = self.rng
        self.budget -= 1
        kind = rng.random()
        if self.budget <= 0 or indent > 4 or kind < 0.52:
            self.add(indent, self.filled(rng.choice(LINES)))
        elif kind < 0.74:
            self.decision(indent)
        elif kind < 0.88:
            self.loop(indent)
        elif self.loops and kind < 0.93:
            self.add(indent, f"if {self.filled('$t')}:\n    {rng.choice(('break', 'continue'))}")
        elif kind < 0.955:
            self.add(indent, f"if {self.filled('$t')}:\n    return {self.result()}")
        elif kind < 0.965:
            self.add(indent, f"assert {self.filled('$t')}, 'no'")
        elif kind < 0.98:
            error = rng.choice(("ValueError('no')", "IndexError", "ZeroDivisionError('no')"))
            self.add(indent, f"if {self.filled('$t')}:\n    raise {error}")
        else:
            self.attempt(indent)

    def decision(self, indent: int) -> None:
        self.add(indent, f"if {self.filled('$t')}:")
        self.inside(indent)
        while self.rng.random() < 0.3:
            self.add(indent, f"elif {self.filled('$t')}:")
            self.inside(indent)
        if self.rng.random() < 0.6:
            self.add(indent, "else:")
            self.inside(indent)

    def loop(self, indent: int) -> None:
        rng, number = self.rng, self.counters
        self.counters += 1
        self.loops += 1
        kind = rng.random()
        if kind < 0.5:
            self.add(indent, f"k{number} = 0")
            bound = rng.choice(("3", "5", "m"))
            head = (self.filled(f"k{number} < {bound} and ($t)"), self.filled(f"($t) and k{number} < {bound}"),
                    "True", self.filled("$t"))  # fmt: skip
            chosen = rng.randrange(4)
            self.add(indent, f"while {head[chosen]}:\n    k{number} += 1")
            if chosen >= 2:
                self.add(indent + 1, f"if k{number} > {bound}:\n    break")
        else:
            over = rng.choice(("range(4)", "range(12)", "range(5, 0, -2)", "range(m)", "[1, 2.5, 0]", "$v", "(1, 2)",
                               "enumerate($v)", "zip($v, $v)", "range(1, 31, 3)", "[$s, $s]"))  # fmt: skip
            names = {"e": f"k{number}, s", "z": "s, t"}.get(over[0], rng.choice((f"k{number}", f"k{number}", "n")))
            self.add(indent, f"for {names} in {self.filled(over)}:")
            if rng.random() < 0.4:
                self.add(indent + 1, f"if {self.filled('$t')}:\n    break")
            if over[0] == "r" and rng.random() < 0.4:
                self.add(indent + 1, self.filled(f"$n = $n + k{number}" if names[0] == "k" else "$n = $v[n % 4]"))
        self.inside(indent)
        self.loops -= 1
        if rng.random() < 0.25:
            self.add(indent, "else:")
            self.inside(indent)

    def attempt(self, indent: int) -> None:
        self.add(indent, "try:")
        self.inside(indent)
        if self.rng.random() < 0.6:
            self.add(indent, "finally:")
        else:
            self.add(indent, "except (ValueError, AssertionError):")
        loops, self.loops = self.loops, 0
        self.add(indent + 1, self.filled(self.rng.choice(LINES)))
        self.loops = loops

    def result(self) -> str:
        some = self.rng.choice(("$a, $a, $s, $s", "u, v, s, t", "u, v, n, s", "v, u, t, $s"))
        return self.filled(some) + (", n, p, d, o.x, o.s, o.n" if self.whole else "")


def random_program(rng: random.Random, name: str) -> Program:
    dtype = rng.choice(DTYPES)
    writer = _Writer(rng, budget=rng.randint(4, 16), whole=rng.random() < 0.7)
    writer.add(0, f"def {name}(a, b, s, m):")
    writer.add(1, "u, v, t, n = a.copy(), b + 1, 0.5, 1" if rng.random() < 0.7 else "u, v, t, n = a, b[:], s, m")
    writer.add(1, "p, d, o = [a * 1, 2], {'x': b * 1, 's': 1.0}, Box(a * 2, 3)")
    writer.block(1, rng.randint(2, 6))
    writer.add(1, "return u, v, s, t" + (", n, p, d, o.x, o.s, o.n" if writer.whole else ""))
    return Program(name, (dtype, dtype if rng.random() < 0.85 else rng.choice(DTYPES)), "\n".join(writer.lines) + "\n")


# running them


def _called(function: Any, program: Program, turn: int) -> tuple[Any, dict[str, Any], BaseException | None]:
    named, given = program.arguments(turn)
    try:
        result, problem = function(*given), None
        leaves: list[Any] = []
        flatten(result, leaves, results=True)
        result = [x if isinstance(x, (bool, int, float)) else np.asarray(x) for x in leaves]
    except Exception as error:
        result, problem = None, error
    return result, named, problem


def checked(program: Program, function: Any, device: str) -> Outcome:
    """Calls with other numbers; the first difference ends it."""
    traced = kg.kernel_graph(function, device=device)
    refused: tuple[str, ...] = ()
    for turn in range(TURNS):
        wanted, written, problem = _called(function, program, turn)
        if not all(map(_is_exact, [*(wanted or ()), *written.values()])):
            return Outcome(turn, refused)
        got, ours, refusal = _called(traced, program, turn)
        words = ""
        if refusal is not None:
            if problem is not None and isinstance(refusal, type(problem)):
                continue  # what is written when a call raises is not compared
            elif not isinstance(refusal, kg.KernelGraphError):
                words = f"error {refusal!r} for {_shown(wanted) if problem is None else repr(problem)}"
            elif not re.match(r"\S+\.py:\d+: ", str(refusal)):
                words = f"a refusal without a line: {refusal}"
            else:
                refused = refused or (describe_refusal(refusal),)
        elif problem is not None:
            words = f"NumPy raises {problem!r}, ours gives {_shown(got)}"
        elif len(got) != len(wanted):
            words = f"{len(got)} results for {len(wanted)}"
        else:
            pairs = enumerate(zip(got, wanted, strict=True))
            words = next((f"result {i}: {w}" for i, (g, v) in pairs if (w := _unlike(g, v))), "")
            words = words or _difference(ours, written)
        if words:
            return Outcome(turn + 1, refused, f"call {turn + 1}: {words}")
    return Outcome(TURNS, refused)


def _is_exact(value: Any) -> bool:
    value = np.asarray(value)
    return value.dtype.kind == "b" or not value.size or bool(np.abs(value).max() <= LARGEST)


def _difference(ours: dict[str, Any], theirs: dict[str, Any]) -> str:
    return next((f"written to {name}: {w}" for name in ours if (w := _unlike(ours[name], theirs[name]))), "")


def _unlike(got: Any, want: Any) -> str:
    """In words, how one array differs from the other. Where both sides of a decision are one node, a Python number gets
    the dtype of what it stands beside, and so does an array that is made of it."""
    widened = not isinstance(want, np.ndarray)
    got, want = np.asarray(got), np.asarray(want)
    if widened and got.shape == () and got.dtype == np.result_type(got, want.astype(bool)):
        want = want.astype(got.dtype)
    if want.dtype == np.int64 and got.dtype == np.float64:
        want = want.astype(got.dtype)
    if got.dtype != want.dtype or got.shape != want.shape:
        return f"{got.dtype}{list(got.shape)} for {want.dtype}{list(want.shape)}"
    return "" if np.array_equal(got, want, equal_nan=True) else f"{got.tolist()} for {want.tolist()}"


def _shown(value: Any) -> str:
    return repr([np.asarray(v).tolist() for v in value or ()])[:200]


def outcomes(programs: Sequence[Program], folder: Path, device: str, label: str) -> Iterator[tuple[Program, Outcome]]:
    """Each program's outcome; all stand in one file."""
    names = names_in_file([PRELUDE, *(p.text for p in programs)], folder, label)
    return under_alarm(programs, lambda program: checked(program, names[program.name], device))


# making them smaller


def smaller_programs(program: P) -> Iterator[P]:
    """The program with one statement, or one side of an expression, left out."""
    for change in range(10_000):
        tree = ast.parse(program.text)
        if not _change(tree, change):
            return
        text = ast.unparse(ast.fix_missing_locations(tree)) + "\n"
        if text != program.text:
            yield replace(program, text=text)


def _change(tree: ast.Module, wanted: int) -> bool:
    """Makes the tree smaller in the wanted way; False where there is none."""
    at = 0
    for node in ast.walk(tree):
        for attribute in ("body", "orelse", "finalbody"):
            block = getattr(node, attribute, None)
            if not isinstance(block, list) or isinstance(node, ast.Module):
                continue
            for i, statement in enumerate(block):
                inner = getattr(statement, "body", None)
                ways: list[list[ast.stmt]] = [[], *([inner] if isinstance(inner, list) else [])]
                for way in ways:
                    if at == wanted:
                        block[i : i + 1] = way
                        if not block and attribute == "body":
                            block.append(ast.Pass())
                        return True
                    at += 1
        for name, value in ast.iter_fields(node):
            if isinstance(value, (ast.BoolOp, ast.Compare, ast.BinOp, ast.IfExp, ast.Call)):
                for child in ast.iter_child_nodes(value):
                    if isinstance(child, ast.expr):
                        if at == wanted:
                            setattr(node, name, child)
                            return True
                        at += 1
    return False


# reporting


SUITE = random_cases.Suite(
    "control_flow_programs",
    25,
    lambda seed, number: random_program(random.Random(f"{seed}:{number}"), f"p{number}"),
    outcomes,
    smaller_programs,
    lambda program, outcome: f"# {outcome.wrong[:600]}\n# {program.dtypes}\n{program.text}",
)


if __name__ == "__main__":
    random_cases.report_and_exit(SUITE, random_cases.command_line(__doc__).parse_args())
