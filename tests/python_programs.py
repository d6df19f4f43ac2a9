"""Random functions that decide with Python's own things: guards, errors, side effects, iterators, bools and numbers.

Plain Python is the reference: the result, the kinds of its numbers, what the arguments hold afterwards (also after an
error), the kind and the arguments of the error. Each function is called five times, with values that decide otherwise.

python -m tests.python_programs --count 5000 --seed 1 --device cpu
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import kernelgraph as kg
from tests import random_cases
from tests.control_flow_programs import smaller_programs
from tests.random_cases import Outcome, describe_refusal, names_in_file, under_alarm

TURNS = 5  # calls of each function
LARGEST = 1e9  # whole numbers of a trace are int64
PRELUDE = '''
import json
import math
from collections import Counter, defaultdict, deque
from contextlib import suppress

import numpy as np


def made(k, seed):
    """Arguments of which the kth decide otherwise: floats, places (some out of range), a list, a dict."""
    rng = np.random.default_rng([k, seed])
    return rng.integers(-4, 5, 4) / 2, rng.integers(-2, 6, 3), [1, 2], {"a": 3, "b": 0.5}


def note(log, value):
    log.append(value)
    return value


def reading(x, i):
    return x[i] if -len(x) <= i < len(x) else -1.0


class Watch:
    """Writes down how its block was left."""

    def __init__(self, log):
        self.log = log

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        self.log.append(0 if kind is None else 7 if issubclass(kind, IndexError) else 8)
        return kind is not None and issubclass(kind, ZeroDivisionError)
'''
# `$n` a name of a number, `$k` of a whole number, `$f` of a bool; `$s`, `$w`, `$t` expressions of these; `$i` a place,
# `$c` a constant
NUMBERS = (
    "$n", "$n", "$n", "$c", "$w", "$w", "x[$i]", "x[$i]", "float(x[$i])", "x.sum()", "$n + $s", "$n - $c",
    "$n * $c", "$n / 2", "$n // 2", "$n % 3", "$n ** 2", "-$n", "abs($n)", "($s if $t else $s)", "($t and $s)",
    "($s or $c)", "max($n, $s)", "min($s, $c)", "round($n)", "note(log, $s)", "d['a']", "d['b']", "reading(x, $k)",
    "(x[$k] if 0 <= $k < 4 else $c)", "(x[$k] if $k < len(x) and $k >= 0 else $n)", "x[$k % 4]",
    "sum(z for z in x if z > $c)", "float($k)", "$f + $n", "next(it, $c)", "($n / $k if $k else 0)",
    "math.sqrt(abs($n))", "($n / $k if $k != 0 else $n)", "float($f)", "sum([z for z in x])", "max(x)",
    "(lambda z: z if z > $c else $n)($s)",
)  # fmt: skip
RAISING = (
    "x[$k]", "$n / $k", "$k // $k", "$k % $k", "1 / $n", "[1, 2, 3][$k]", "math.sqrt($n)", "1 << $k", "x[s[$p]]",
    "(1, 2)[$k]", "d[$k]", "$k ** -1", "divmod($k, $k)[0]", "int(1 / x[$i])", "next(it)", "math.log($n)",
    "x[x > $c].min()", "[z for z in x if z > $c][$k]", "np.average(x, weights=x - $c)", "x.sum(axis=$k)", "p.pop($k)",
    "max(z for z in x if z > $c)", "p.index($k)", "math.exp($n * 400)", "float($n) ** 400", "x[x > $c][0]", "v",
)  # fmt: skip
WHOLE = (
    "$k", "$k", "$k", "int(s[$p])", "int(s[$p])", "int(x[$i])", "int($n)", "len(x)", "len(log)", "$k + $k",
    "$k - 1", "$k * 2", "$k // 2", "$k % 3", "-$k", "abs($k)", "($w if $t else $w)", "int($t)", "$f + $f",
    "$f - $f", "-$f", "~$k", "$f + 1", "$f & $f", "$f | $f", "$f ^ $f", "(not $f)", "$k << 1", "$k >> 1", "$k & 3",
    "$k | 1", "$k ^ 2", "$f * 2", "sum([$f, $f, $t])", "sum(z > $c for z in x)", "divmod($k, 3)[0]", "round($n)",
    "math.floor($n)", "math.trunc($n)", "math.ceil($n)", "p[0]", "q[0]", "len(q)", "next(places, 0)", "max($k, $w)",
    "min($k, 2)", "bool($k)", "$k ** 2", "x.argmax()", "int(round($n))", "~int($f)",
)  # fmt: skip
TESTS = (
    "x[$i] > $c", "x[$i] > x[$i]", "$n < $s", "$n == $c", "$k > $c", "$k == $w", "$f", "$f", "(not $f)", "$f is True",
    "$f is False", "$f is not True", "$f == True", "$t and $t", "$t or $t", "not ($t)",
    "0 <= $k < len(x) and x[$k] > $c", "$k >= len(x) or x[$k] > $c", "$k != 0 and $n / $k > 1",
    "$k and 2 // $k > 0", "isinstance($n, int)", "isinstance($f, bool)", "isinstance($s, float)", "type($k) is int",
    "type($f) is bool", "type($n) is float", "any(z > $c for z in it)", "all(z < $c for z in it)",
    "any(z > $c for z in x)", "note(log, $t)", "'a' in d", "p is q", "q is p", "q is not p", "$n is None",
    "$c < $n <= $c", "x[$i] is None", "$k in (0, 1)", "bool($n)", "(x[$i] > $c) is True", "($n > $c) is True",
    "$f is $f", "str($k) == '1'", "float($n).is_integer()", "len(log) > 3", "(x > $c).any()", "$n != $n",
    "repr($f) == 'True'", "$c in it", "hash($k) == 1",
)  # fmt: skip
LINES = (
    "$n = $s", "$n = $s", "$n = $s", "$k = $w", "$k = $w", "$f = $t", "$f = $t", "$f = True", "$f = False",
    "$n += $s", "$k += 1", "$k -= 1", "$k += $w", "log.append($s)", "log.append($w)", "log.append($t)",
    "d['a'] = $s", "d['c'] = $w", "x[$i] = $s", "x[$i] = $s", "x[$i] += $c", "x[:2] = $c", "x[$k % 4] = $s",
    "q = p if $t else q", "p, q = q, p", "q.append($w)", "q[0] = $w", "p[-1] = $s", "note(log, $s)", "pass",
    "$n = $n", "$n, $m = $m, $n", "$k = $f", "r = q if $t else {0: 1}\nr[0] = $w", "if ($m := $s) > $c: $n = $m",
    "x = x * 2", "x *= 2", "log.append(f'{$k}')", "log += [$s]", "q = [z for z in q if z > $c]",
    "$n = max([z for z in x if z > $c], default=0)", "del log[:1]", "log[0] = $s", "log.extend([$n, $k])",
    "$k = int(str($k)) + 1", "s[0] = $w", "d.pop('b', 0)", "log.append(str($f))", "if $t: v = $s", "if $t: v = $w",
    "if $t: $n, $m = $m, $n", "if $t: p, q = q, p", "x[0], x[-1] = x[-1], x[0]", "if $t: x[0], x[1] = x[1], x[0]",
    "if $t: q[0], q[-1] = q[-1], q[0]", "log.append($s)\nassert $t, 'late'",
    "x[$i] = $s\nif $t: raise ValueError('late', $k)",
    "if $t: d['a'], d['b'] = d.get('b', 0), d['a']", "last.append($s)", "last.rotate($k)", "seen.add($k)",
    "count[$k % 3] += 1",
    "many[$k % 2].append($s)", "log.append(len(seen) + len(last))", "log.append(sorted(seen))",
    "log.append(count.most_common(1))",
    "log.append([*many.items()])", "$n = last[0]", "log.append([*last])", "$n, (t, u) = $s, ($n, t)", "q[:] = q[::-1]",
    "log.append(json.dumps($f))", "log.append(round($n, 1))", "p.insert($k, $w)", "with suppress(NameError): $n = v",
)  # fmt: skip
ERRORS = (
    "IndexError", "ZeroDivisionError", "(IndexError, ZeroDivisionError)", "ValueError", "ArithmeticError",
    "LookupError", "Exception", "KeyError", "NameError", "OverflowError",
)  # fmt: skip
SIMPLE = {
    "$s": ("$n", "$k", "$c", "x[$i]"),
    "$w": ("$k", "$k", "1", "2", "int(s[$p])"),
    "$t": ("$n > $c", "$f", "x[$i] < $c"),
}
NAMES = {"$n": ("n", "t", "u"), "$m": ("n", "t"), "$k": ("k", "m", "j"), "$f": ("f", "g"), "$i": ("0", "1", "2", "-1"),
         "$p": ("0", "1", "2"), "$c": ("0", "1", "2", "-1", "0.5", "1.5")}  # fmt: skip
TEMPLATES = {"$s": NUMBERS, "$w": WHOLE, "$t": TESTS}


@dataclass(frozen=True)
class Program:
    """One function's text."""

    name: str
    text: str

    def program(self) -> str:
        """A program that prints both: `python FILE` Python's, `python FILE traced` ours."""
        return (
            f"import sys\n\nimport kernelgraph as kg\n{PRELUDE}\n\n{self.text}\n\n"
            f"f = kg.kernel_graph({self.name}, device='cpu') if sys.argv[1:] else {self.name}\n"
            f"for K in range({TURNS}):\n    given = *made(K, 1), []\n    try:\n"
            "        print(f(*given))\n    except Exception as e:\n"
            "        print(repr(e))\n    print('arguments', given)\n"
        )


_SCOPE: dict[str, Any] = {}
exec(PRELUDE, _SCOPE)


# making them


@dataclass
class _Writer:
    """Writes one function. raising: how often an expression is one that may raise."""

    rng: random.Random
    raising: float
    budget: int
    lines: list[str] = field(default_factory=list)
    loops: int = 0
    counters: int = 0

    def filled(self, template: str, depth: int = 0) -> str:
        def one(found: re.Match[str]) -> str:
            kind = found[0]
            if kind in NAMES:
                return self.rng.choice(NAMES[kind])
            options = TEMPLATES[kind]
            if kind == "$s" and self.rng.random() < self.raising:
                options = RAISING
            elif depth > 2 or (depth and self.rng.random() < 0.5):
                options = SIMPLE[kind]
            return self.filled(self.rng.choice(options), depth + 1)

        return re.sub(r"\$\w", one, template)

    def add(self, indent: int, text: str) -> None:
        self.lines += ["    " * indent + line for line in text.split("\n")]

    def inside(self, indent: int) -> None:
        for _ in range(self.rng.choice((1, 1, 2, 3))):
            self.statement(indent + 1)

    def statement(self, indent: int) -> None:
        rng, kind = self.rng, self.rng.random()
        self.budget -= 1
        if self.budget <= 0 or indent > 4 or kind < 0.48:
            self.add(indent, self.filled(rng.choice(LINES)))
        elif kind < 0.52:
            self.add(indent, self.filled(rng.choice(RAISING)))  # a result that nothing uses
        elif kind < 0.7:
            self.decision(indent)
        elif kind < 0.82:
            self.loop(indent)
        elif kind < 0.86 and self.loops:
            self.add(indent, f"if {self.filled('$t')}:\n    {rng.choice(('break', 'continue'))}")
        elif kind < 0.89:
            self.add(indent, f"if {self.filled('$t')}:\n    return {self.filled('$s, $w, $f')}")
        elif kind < 0.91:
            self.add(indent, self.filled(rng.choice(("assert $t, $n", "assert $t", "assert $t, ('no', $k)"))))
        elif kind < 0.93:
            error = rng.choice(("ValueError('no', $n)", "IndexError", "KeyError($k)", "ZeroDivisionError('no')"))
            self.add(indent, self.filled(f"if $t:\n    raise {error}"))
        else:
            self.attempt(indent)

    def decision(self, indent: int) -> None:
        self.add(indent, f"if {self.filled('$t')}:")
        self.inside(indent)
        if self.rng.random() < 0.2:
            self.add(indent, f"elif {self.filled('$t')}:")
            self.inside(indent)
        if self.rng.random() < 0.5:
            self.add(indent, "else:")
            self.inside(indent)

    def loop(self, indent: int) -> None:
        rng, counter = self.rng, f"c{self.counters}"
        self.counters += 1
        self.loops += 1
        if rng.random() < 0.45:
            head = rng.choice((
                f"{counter} < 5 and ($t)", f"($t) and {counter} < 4", f"{counter} < $k and {counter} < 5",
                f"{counter} < len(x) and x[{counter}] > $c", "True",
            ))  # fmt: skip
            self.add(indent, f"{counter} = 0\nwhile {self.filled(head)}:\n    {counter} += 1")
            if head == "True":
                self.add(indent + 1, self.filled(f"if {counter} > 3 or $t:\n    break"))
        else:
            over = rng.choice((
                "range(3)", "x", "it", "it", "q[:4]", "enumerate(it)", "zip(x, it)", "range(len(x))", "places",
                "(0, 1, 2)", "range(0)", "range(m)", "[z for z in x if z > 0]",
            ))  # fmt: skip
            names = "k, n" if over[0] in "ez" else rng.choice(("z", "n" if over in ("x", "it") else "k"))
            self.add(indent, f"for {names} in {over}:")
            if rng.random() < 0.4:
                self.add(indent + 1, f"if {self.filled('$t')}:\n    break")
        self.inside(indent)
        self.loops -= 1
        if rng.random() < 0.2:
            self.add(indent, "else:")
            self.inside(indent)

    def attempt(self, indent: int) -> None:
        rng = self.rng
        raising, self.raising = self.raising, 0.3
        if rng.random() < 0.25:
            self.add(indent, f"with {rng.choice(('Watch(log)', 'suppress(IndexError)', 'suppress(Exception)'))}:")
            self.inside(indent)
            self.raising = raising
            return
        self.add(indent, "try:")
        self.inside(indent)
        self.raising = raising
        loops, self.loops = self.loops, 0
        if rng.random() < 0.75:
            self.add(indent, f"except {rng.choice(ERRORS)} as e:")
            self.add(indent + 1, rng.choice((self.filled(rng.choice(LINES)), "log.append(type(e).__name__)", "pass",
                                             "log.append(len(e.args))", "raise")))  # fmt: skip
            if rng.random() < 0.3:
                self.add(indent, "else:")
                self.add(indent + 1, self.filled(rng.choice(LINES)))
            if rng.random() < 0.7:
                self.loops = loops
                return
        self.add(indent, "finally:")
        self.add(indent + 1, self.filled(rng.choice(LINES)))
        self.loops = loops


def random_program(rng: random.Random, name: str) -> Program:
    writer = _Writer(rng, rng.choice((0.0, 0.02, 0.06)), rng.randint(4, 14))
    writer.add(0, f"def {name}(x, s, p, d, log):")
    iterators = (
        "iter(x)",
        "iter([1, 2.5, 0])",
        "iter(range(5))",
        "(z for z in x)",
        "iter(p[:])",
        "zip(x, x)",
        "map(abs, x)",
    )
    it = rng.choice(iterators[:5])
    writer.add(1, f"n, t, u, k, m, j, f, g = 0.0, x[0], 1, int(s[0]), 2, int(s[1]), False, x[1] > 0\n"
                  f"q, it, places = [3, 4], {it}, iter(s)\n"
                  "last, seen, count, many = deque([1], maxlen=3), {1}, Counter(), defaultdict(list)")  # fmt: skip
    if rng.random() < 0.5:
        writer.add(1, "g = not x[1]" if rng.random() < 0.5 else "g = bool(x[1] > 0)")
    for _ in range(rng.randint(2, 6)):
        writer.statement(1)
    writer.add(
        1,
        rng.choice(
            ("return n, t, u, k, m, j, f, g, q", "return n, t, k, m, f, list(it)", "return x, f, g, list(it), q")
        ),
    )
    return Program(name, "\n".join(writer.lines) + "\n")


# running them


def plain(value: Any) -> Any:
    """The value as Python's own: containers, the kind of each number, the items of arrays."""
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, dict):
        return {plain_key(k): plain(v) for k, v in value.items()}
    if value is None or isinstance(value, str):
        return value
    array = np.asarray(value)
    return str(value) if array.dtype.kind == "O" else (array.dtype.kind, array.shape, array.tolist())


def plain_key(key: Any) -> Any:
    return key if isinstance(key, str) else np.asarray(key).item()


def _numbers(value: Any) -> Iterator[Any]:
    if isinstance(value, (list, tuple)):
        for v in value:
            yield from _numbers(v)
    elif isinstance(value, dict):
        yield from _numbers(list(value.values()))
    elif isinstance(value, (int, float)):
        yield value


def _outcome(function: Any, seed: int, turn: int) -> tuple[Any, Any, Any]:
    """The result, the arguments afterwards, and the error, as plain values; what cannot be read is the error's text."""
    given = (*_SCOPE["made"](turn, seed), [])
    result: Any = None
    problem: Any = None
    try:
        result = plain(function(*given))
    except Exception as error:
        problem = error
    return result, [_readable(g) for g in given], problem


def _readable(value: Any) -> Any:
    try:
        return plain(value)
    except Exception as error:
        return f"unreadable: {error!r}"


def checked(program: Program, function: Any, device: str) -> Outcome:
    """Five calls whose values decide otherwise; the first difference ends it."""
    traced = kg.kernel_graph(function, device=device)
    seed = int(re.sub(r"\D", "", program.name) or 0)
    for turn in range(TURNS):
        wanted, after, problem = _outcome(function, seed, turn)
        if any(abs(n) > LARGEST for n in _numbers([wanted, after])):
            return Outcome(turn)
        got, ours, refusal = _outcome(traced, seed, turn)
        words = ""
        if isinstance(refusal, kg.KernelGraphError) and not isinstance(problem, kg.KernelGraphError):
            if re.match(r"\S+\.py:\d+: ", str(refusal)):
                return Outcome(turn + 1, (describe_refusal(refusal),))
            words = f"a refusal without a line: {refusal}"
        elif type(refusal) is not type(problem):
            words = f"error {refusal!r} for {problem!r}"
        elif problem is not None and not _alike(_arguments_of(refusal), _arguments_of(problem)):
            words = f"arguments of the error: {refusal!r} for {problem!r}"
        elif not _alike(got, wanted):
            words = f"result {got} for {wanted}"
        elif not _alike(ours, after):
            words = f"arguments afterwards {ours} for {after}"
        if words:
            return Outcome(turn + 1, (), f"call {turn + 1}: {words}")
    return Outcome(TURNS, ("runs in NumPy",) if "runs in NumPy" in str(traced.why()) else ())


def _arguments_of(error: BaseException) -> Any:
    """What an error holds, but for the line that errors of compiled code name first."""
    found = _readable(error.args)
    return [re.sub(r"^\S+\.py:\d+: ", "", v) if isinstance(v, str) else v for v in found]


def _alike(a: Any, b: Any) -> bool:
    """Equal, but for the last places of floats; ints and floats may stand for each other."""
    if isinstance(a, tuple) and isinstance(b, tuple):
        kinds = a[0] == b[0] or {a[0], b[0]} <= {"i", "f", "u"}
        return kinds and a[1] == b[1] and np.allclose(a[2], b[2], rtol=1e-12, atol=1e-12, equal_nan=True)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_alike, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return list(a) == list(b) and all(_alike(a[k], b[k]) for k in a)
    return bool(a == b)


def outcomes(programs: Sequence[Program], folder: Path, device: str, label: str) -> Iterator[tuple[Program, Outcome]]:
    """Each program's outcome; all stand in one file."""
    names = names_in_file([PRELUDE, *(p.text for p in programs)], folder, label)
    return under_alarm(programs, lambda program: checked(program, names[program.name], device))


SUITE = random_cases.Suite(
    "python_programs",
    25,
    lambda seed, number: random_program(random.Random(f"{seed}:{number}"), f"p{number}"),
    outcomes,
    smaller_programs,
    lambda program, outcome: f"# {outcome.wrong[:600]}\n{program.text}",
)


if __name__ == "__main__":
    random_cases.report_and_exit(SUITE, random_cases.command_line(__doc__).parse_args())
