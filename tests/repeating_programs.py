"""Random programs whose loops repeat: swaps, remainders of the turn, appended lists, earlier turns, indexed lists.

NumPy's run is the reference: values, dtypes, the kind of error, and what was written to the arguments by then. Some
raise in the body. Some are first cut off by Ctrl-C, at a call of a Python function while they are traced or run; the
calls after it count. Arithmetic is elementwise, sums are of whole numbers, so that every answer is exact.

python -m tests.repeating_programs --count 1000 --seed 1 --device cpu
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import kernelgraph as kg
from tests import random_cases
from tests.control_flow_programs import smaller_programs
from tests.random_cases import Outcome, describe_refusal, names_in_file, under_alarm
from tests.turn_programs import captured_late, difference, outcome, recorded, repeated

TURNS = 38
PRELUDE = """
import numpy as np

WEIGHTS = [0.5, -1.0, 0.25, 2.0] * 10 + [3.0, -0.5]
INTS = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7] * 3
FLAGS = [k % 3 == 0 or k == 20 for k in range(42)]
PAIRS = tuple(zip(WEIGHTS, INTS))
MIXED = [1, 0.5] * 21
NAMED = {k: w * 2 for k, w in enumerate(WEIGHTS)}


class Box:
    def __init__(self, x, y):
        self.x, self.y, self.n = x, y, 0

    def step(self, a):
        self.x = small(self.x + a)
        self.n += 1
        return self.x


def small(x):
    return np.clip(x, -9, 9)


def whole(x):
    return np.rint(x)


def stepped(x, k):
    return small(x * WEIGHTS[k % 4] + 1)
"""
# `$i` a place by the turn, `$n` a number of it, `$a` an array of eight or a number, `$c` a factor, `$m` a modulus
PLAIN = (
    "x = small(x * $c + $a)", "y = small($a - x)", "x = small(x + y * $n)", "u = x + $a\ny = small(u - y)",
    "out[$i] = x[:4]", "M[:, $i] = y[:3]", "z[1:-1] = small(z[2:] + z[:-2])", "z += 1\nz %= 7", "s = s * 0.5 + $n",
    "s = s + x[2]\ns = small(s)", "t += 0.5\nx = small(x + t)", "x = small(x + W[$i, 2:])",
    "y = small(y + W[$i, 0] + v[$i])", "x = small(x + v[$i : $i + 8])", "v = small(v - v[$i])",
    "M[:] = small(M * $c - M[:, $i : $i + 1])", "row = W[$i]\nW *= 0.5\nW += small(row)[:1]",
    "if x[0] > y[0]:\n    x = x - 1", "k = $i * 2\nx = small(x + k)", "x = small(x + row[:8]) if $i >= 0 else x",
    "y = x\nx = small(y + 1)", "x[2:5] = small(x[2:5] + $n)", "x += 1\nx %= 5", "s = small(s + whole(x).sum())",
    "y = np.where(x > $n, y, x)", "s = max(s, x.max())", "x = small(x + np.arange(8) * $n)", "x = small(x + c)",
    "s += c * $n", "w = small(y[::-1] + w)", "x = small(x + z[:8])", "count += 1\nx = small(x - count)",
    "for j in range(2):\n    x = small(x + j)\n    z[j] = x[j]", "for j in range(3):\n    s = small(s + W[$i, j])",
    "x = np.concatenate([x[1:], y[:1]])", "k += 1", "k = k + 2\ny = small(y + k)",
)  # fmt: skip
PERIODS = (
    "w = x if $i != 11 else y\nx = w + 1", "if $i % $m == 1:\n    x = small(x + 1)", "if $i > 7:\n    y = y - 1",
    "if $i != 20:\n    s = small(s + 0.5)", "x = small(x + $i // $m)", "x = small(x + ($i & 3))",
    "x = small(x + $i % $m)", "out[$i // $m] = x[:4]", "x[$i % $m] = s", "x = small(x + v[$i % $m])",
    "if $i % 2:\n    x = small(x + 1)\nelse:\n    y = small(y - x)", "x = stepped(x, $i)",
    "if $i % $m == 0 and $i:\n    z[0] += 1", "y = np.roll(y, $i % $m)", "if not $i % $m:\n    s = 0.0",
    "buffer[$i % 2] = small(buffer[1 - $i % 2] + x)", "turns[$i % 2][:] = small(turns[1 - $i % 2] + 1)",
    "if $i == 3:\n    x[0] = 9", "x = small(x + (1 if $i < 5 else -1))", "if i in (2, 30):\n    s = small(s - 1)",
    "if i % 5 == 2:\n    continue", "if i == 33:\n    break", "if x[0] > 8:\n    break",
    "if x[1] > y[1]:\n    continue",
    "x = small(x * 0.5 ** ($i % 3))", "if $i % $m == $m - 1:\n    x, y = y, x", "s = small(s + divmod(i, $m)[1])",
    "x = -x if i % 4 < 2 else x", "if i % 6 < 3:\n    out[i] = x[:4]",
)  # fmt: skip
SWAPS = (
    "x, y = y, small(x + 1)", "p, q = q, p\np += small(x)[:1]", "p[1:] = small(p[1:] + q[:-1])\np, q = q, p",
    "p, q, r = q, r, p\np[0] = x[0]", "box.x, box.y = box.y, box.x\nbox.x += 1", "x = box.step(y)",
    "pair = pair[1], small(pair[0] + x)", "turns[0], turns[1] = turns[1], turns[0]\nturns[0] *= 0.5",
    "held['x'], held['y'] = held['y'], small(held['x'] + x)", "p, q = q, p", "r[:] = p\np, r = r, p\nr += 1",
    "q = p.copy()\np = small(q + 1)", "box.y = box.x\nbox.x = small(box.y * 2 + 1)", "p = x\nx = small(p + 1)",
    "u, x = x, small(u + x)", "q[1:-1] = small(p[2:] - p[:-2])\np, q = q, p", "box, other = other, box\nbox.x += 1",
)  # fmt: skip
APPENDED = (
    "seen.append(x * 2)", "seen.append(small(y))\ny = small(y + 1)", "sums.append(x[1] + $n)", "sums += [x[0], y[1]]",
    "ints.append($i)", "sums.append(s)", "seen.append(x)", "path.append(small(path[-1] + x[0]))", "ints += [k, i % 3]",
    "sums.append(WEIGHTS[i])", "if $i % $m == 0:\n    sums.append(s)", "sums.append($n)", "sums.append(float(i))",
    "if x[0] > 0:\n    ints.append(i)", "ints.append(len(ints))", "seen.append(x.copy())\nx += 1\nx %= 5",
    "sums.append(sum(v[:3]))", "path.append(path[-1] * $c)", "path += [small(path[-1] - path[-2])]",
    "seen.extend([x + 1, y + 2])", "sums.append(whole(y).sum())", "last = seen[-1] if seen else x\nx = small(last + 1)",
)  # fmt: skip
EARLIER = (
    "out[i + 1] = small(out[i] + x[:4])", "out[i + 2] = small(out[i + 1] - out[i])",
    "W[i, 3] = x[0]\nx = small(x + W[i, 3])", "out[i] = small(out[i] * 2 + out[i + 1])",
    "r4 = out[i]\nout[i] = x[:4]\ny = small(y + r4[0])", "v[i + 1] = small(v[i] + v[i + 2])",
    "W[i + 1, :2] = small(W[i, :2] + 1)\nW[i + 1, 2:] = small(W[i, 2:] - y[0])", "v[i + 3] = small(v[i] * $c + 1)",
    "M[:, i + 1] = small(M[:, i] + 1)", "M[:, i + 1] = small(M[:, i] + M[:, i + 2])\nx = small(x + M[0, i + 1])",
    "W[i + 2] = small(W[i + 1] + W[i])", "v[i] += v[i + 1]\nv[i] %= 7", "out[i + 1] += out[i]\nout[i + 1] %= 7",
    "W[i, 1:] = small(W[i, :-1] + v[i])", "v[i + 4], v[i] = v[i] * 1, small(x[1] + 1)", "W[i][0] = s\ns = W[i + 1][0]",
    "v[i : i + 2] = small(v[i + 1 : i + 3])",
)  # fmt: skip
LISTED = (
    "x = small(x * WEIGHTS[$i] + 1)", "x = small(x + WEIGHTS[$i] * INTS[$i])", "s = small(s + WEIGHTS[$i])",
    "y = small(y + WEIGHTS[$i] * WEIGHTS[$i - 1])", "x = small(x + W[INTS[$i], 2:])", "x = small(x + v[INTS[$i]])",
    "if FLAGS[$i]:\n    x = small(x + 1)", "y[INTS[$i] % 8] = s", "x = small(x + INTS[$i] // 2)", "k = INTS[$i]",
    "a, b = PAIRS[$i]\nx = small(x * a - b)", "x = small(x + MIXED[$i])", "x = small(x + NAMED[$i])",
    "x = small(x + max(WEIGHTS[$i], 0.5))", "x = small(x + abs(INTS[$i] - 4))", "s = small(s + INTS[$i] * $n)",
    "x = small(x + (WEIGHTS[$i] if FLAGS[$i] else 1))", "x = small(x * WEIGHTS[$i % 3])", "z[INTS[$i]] = WEIGHTS[$i]",
    "for a in WEIGHTS[:2]:\n    x = small(x + a)", "x = small(x + sum(INTS[:3]))", "s = small(s + INTS[INTS[$i]])",
    "x = small(x + (INTS[$i] > 3))", "x = small(x + INTS[-$i])", "x = small(x - FLAGS[$i])", "x = x ** 1 * WEIGHTS[$i]",
)  # fmt: skip
INDEXED = (
    "counts[int(x[0]) % 9] += 1", "counts[$i % 9] += 1", "floats[$i] = floats[$i - 1] * 0.5 + x[0]", "k = own[$i]",
    "grid[$i % 4][int(x[1]) % 5] += k", "s = small(s + floats[int(y[0])])", "flags[$i] = x[0] > y[0]",
    "if flags[int(x[2]) + 9]:\n    x = small(x + 1)", "own[$i] = own[own[$i] % 42] + 1", "s = small(s + sum(counts))",
    "top = grid[$i % 4]\ntop[0] = top[1] + 1", "floats[$i], floats[0] = floats[0], x[1] * 1.0", "own[-$i] = i",
    "x = small(x + counts[$i % 9])", "again[int(y[0])] = i", "grid[0], grid[1] = grid[1], grid[0]", "again[1] += 1",
    "floats[int(x[0])] = 2", "own[$i] = s", "floats[$i] = s", "s = small(s + max(floats))", "k = len(own) - i",
    "grid[int(x[0]) % 4][$i % 5] = grid[$i % 4][0] + 1", "own[$i] = own[$i] * 3 + 10**17", "counts[flags[0]] += 1",
    "y = small(y + (own[int(x[0])] > 5))", "for j in range(3):\n    grid[j][$i % 5] += counts[j + 1]",
    "flags[$i] = not flags[$i - 1]", "if i in counts:\n    s = 1.0", "floats[1:3] = [s, 1.0]", "counts[3] = k",
    "for j in range(len(grid)):\n    for k in range(j, 5):\n        grid[j][k] = max(grid[j][k - 1], i - k)",
    "floats[own[$i] % 9] += 0.5", "while own[k % 42] % 3:\n    k += 1", "own[$i] = int(x[0]) // 2", "top[2] = i",
    "floats[$i] = floats[$i] / 2 if flags[$i] else c", "held2 = floats\nheld2[$i] = held2[2]", "row4 = list(grid[1])",
    "own.append(i)\nown.pop()", "grid[2] = [i] * 5", "s = grid[i % 4][i % 5] * 0.5", "own[k % 42] = counts[k % 9]",
)  # fmt: skip
RAISING = (
    "counts[int(x[0]) * 4] = 1", "s = floats[own[i] + i]", "grid[int(y[0])][0] = 1",
    "if i == 25:\n    raise ValueError('late')", "if x[1] > 8:\n    raise ValueError('large')",
    "assert i != 17, 'seventeen'", "assert x[2] < 9", "x = small(x + v[i + 30])", "x = small(x + WEIGHTS[i + 12])",
    "s = 1 / (i - 21)", "s = small(s + 1 // (i % 7 - 6))", "x = small(x + W[i * 2, 2:])", "x[i] = 1",
    "if x[0] == y[0] and i > 9:\n    raise KeyError(3)", "s = NAMED[i + 9]", "z[INTS[i] + i] = 1",
    "if i % 11 == 10 and s > 0:\n    raise ValueError('s')", "x = x + np.ones(i // 20 + 8)",
)  # fmt: skip
DECIDED = (
    "row = W[i]\nabove = row > $n\nrow[above] = 0\nrow[~above] = s\ny = small(y + row[above].sum())",
    "if x[0] > $n:\n    out[i] = x[:4]", "if x[0] > y[0]:\n    v[i] = s\nelse:\n    v[i] = y[1]",
    "if s > 1:\n    W[i, 3] = x[0]\n    x = small(x + W[i, 3])", "if y[2] > x[2]:\n    v[i + 1] = small(v[i + 1] + $n)",
    "if x[1] > 0:\n    if y[1] > 0:\n        M[:, i] = y[:3]\n    else:\n        M[:, i] = 2",
    "out[i] = x[4:]\nout[i] = y[:4]",
    "out[i] = x[:4]\nif x[2] > 0:\n    out[i] = small(y[:4] + out[i])",
    "while k % 7 < x[0] and k < 99:\n    k += 1\n    v[i] = k",
    "if x[3] < 0:\n    continue\nW[i, 1] = s", "v[i] = x[0] if y[0] > 0 else v[i]",
    "y = small(y + v[i])\nif s > x[4]:\n    v[i] = 1",
    "if x[0] > 1:\n    out[i] = x[:4]\nif x[1] > 1:\n    out[i] = y[:4]\nx = small(x + out[i, 1])",
)  # fmt: skip
RULES = (PLAIN, PLAIN, PERIODS, SWAPS, APPENDED, EARLIER, LISTED, INDEXED, INDEXED, DECIDED)
HEADS = (
    "for i in range($l, 38):", "for i in range($l, 38):", "for i in range(38, -1, -1):", "for i in range($l, 38, 2):",
    "for i, row in enumerate(W[:38]):", "for i in range($l, 38, 3):", "for i, a in enumerate(WEIGHTS[:38]):",
    "for (a, b), i in zip(PAIRS, range($l, 38)):", "for i, f in zip(range(38), v):", "for i in reversed(range(38)):",
    "i = $l\nwhile i < 38:", "for _ in range(2):\n    for i in range($l, 36):", "for i in INTS:",
    "for i, (row, f) in enumerate(zip(W, v[:38])):",
)  # fmt: skip
TAILS = ("", "", "x[0] = 7", "y += 1", "p[0] = 3\nq[1] = 4", "seen.append(y)", "out[0] = 5", "box.x[0] = 5")
ENDS = "x, y, s, t, k, w, u, row, p, q, r, box.x, box.y, box.n, *held.values(), *pair, *turns, count, last"
LISTS = "np.array(sums), np.array(seen) if seen else 0, np.array(ints), np.array(path)"
INDEXED_LISTS = "counts, floats, flags, own, *grid, top, again is counts"
SHAPES = ((8,), (8,), (12,), (60,), (44, 10), (3, 44), (44, 4))
WAYS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "repeated": repeated, "late": captured_late, "recorded": recorded, "as ever": nullcontext,
}  # fmt: skip


@dataclass(frozen=True)
class Program:
    """One function's text. way: how its loops are captured; cut: at which part of its Python calls Ctrl-C comes."""

    name: str
    text: str
    dtype: str
    way: str
    cut: float | None

    def arguments(self, turn: int) -> tuple[Any, ...]:
        rng = np.random.default_rng(turn)
        return (*(rng.integers(-4, 5, shape).astype(self.dtype) for shape in SHAPES), 0.5)


def random_program(rng: random.Random, name: str) -> Program:
    lines = [
        f"def {name}(x, y, z, v, W, M, out, c):",
        "    s, t, w, row, k, u, count, a, b = 0.0, 0.0, x, W[0], 0, x, 0, 1.0, 2",
        "    p, q, r = x * 2, y * 1, x - y",
        "    box, other, pair, turns, last = Box(x + 1, y * 1), Box(y, x), (x, y), [x * 1, y + 1], y",
        "    held, buffer = {'x': x, 'y': y + 2}, np.zeros((2, 8), x.dtype)",
        "    seen, sums, ints, path = [], [], [], [0.0, x[0] * 1.0]",
        "    counts, floats, flags, own = [0] * 9, [0.5] * 42, [False] * 42, [j % 5 for j in range(42)]",
        "    grid, again = [[j, 0, 0, 1, 0] for j in range(4)], counts",
        "    top = grid[rng]".replace("rng", rng.choice("0123")) if rng.random() < 0.2 else "    top = [0] * 5",
    ]
    raising = rng.random() < 0.25
    for _ in range(rng.choice((1, 1, 2))):
        head = rng.choice(HEADS).replace("$l", str(rng.randrange(3)))
        lines += ["    " + line for line in head.split("\n")]
        indent = "    " * (3 if "    for" in head else 2)
        body = [_filled(rng, rng.choice(rng.choice(RULES))) for _ in range(rng.randrange(2, 6))]
        if raising:
            body.insert(rng.randrange(len(body) + 1), rng.choice(RAISING))
        if "while" in head:
            body = ["i += 1", *(text.replace("continue", "pass") for text in body)]
        lines += [indent + line for text in body for line in text.split("\n")]
    lines += ["    " + line for line in rng.choice(TAILS).split("\n") if line]
    lines.append(f"    return {ENDS}, {LISTS}, {INDEXED_LISTS}")
    cut = rng.random() if rng.random() < 0.25 else None
    dtype = rng.choice(("f8", "f8", "f8", "f4"))
    return Program(name, "\n".join(lines) + "\n", dtype, rng.choice([*WAYS]), cut)


def _filled(rng: random.Random, text: str) -> str:
    place = rng.choice(("i", "i", "i", "i + 1", "39 - i"))
    number = rng.choice((place, f"(0.5 * ({place}))", f"(({place}) - 3)", f"(({place}) / 4)", f"({place} % 3)"))
    names = {
        "$a": rng.choice(("x", "y[::-1]", "2", "s", "v[:8]", "p", number)),
        "$c": rng.choice(("0.5", "2", "-1", number)),
        "$n": number,
        "$m": rng.choice("2345"),
        "$i": place if text == "$i" or place == "i" else f"({place})",
    }
    for name, value in names.items():
        text = text.replace(name, value)
    return text


class _CtrlC:
    """Raises KeyboardInterrupt at one of the Python calls under it, which it counts."""

    def __init__(self, at: int) -> None:
        self.at, self.calls = at, 0

    def __call__(self, frame: Any, event: str, argument: Any) -> None:
        if event == "call":
            self.calls += 1
            if self.calls == self.at:
                sys.setprofile(None)
                raise KeyboardInterrupt

    def __enter__(self) -> _CtrlC:
        sys.setprofile(self)
        return self

    def __exit__(self, *_: Any) -> None:
        sys.setprofile(None)


def _cut_off(decorated: Callable[[], Any], program: Program) -> Any:
    """The decorated function, after a first call that Ctrl-C cut off."""
    if program.cut is None:
        return decorated()
    with _CtrlC(0) as counted:
        outcome(decorated(), program.arguments(0))
    function = decorated()
    try:
        with _CtrlC(1 + int(program.cut * counted.calls)):
            outcome(function, program.arguments(0))
    except KeyboardInterrupt:
        pass
    return function


def checked(program: Program, function: Any, device: str) -> Outcome:
    """Two calls; the first difference ends it."""
    with WAYS[program.way]():
        ours = _cut_off(lambda: kg.kernel_graph(function, device=device), program)
        for turn in range(2):
            wanted, given = program.arguments(turn), program.arguments(turn)
            want = outcome(function, wanted)
            got = outcome(ours, given)
            if got[0].startswith("refused"):
                return Outcome(turn + 1, (describe_refusal(ValueError(got[0])),))
            words = difference(got, want)
            arrays = zip(given[: len(SHAPES)], wanted, strict=False)
            words = words or next((f"argument {k} differs" for k, (a, b) in enumerate(arrays) if not _same(a, b)), "")
            if words:
                return Outcome(turn + 1, wrong=f"call {turn + 1}: {words}")
    return Outcome(2)


def _same(a: Any, b: Any) -> bool:
    return np.array_equal(a, b, equal_nan=True)


def outcomes(programs: Sequence[Program], folder: Path, device: str, label: str) -> Iterator[tuple[Program, Outcome]]:
    """Each program's outcome; all stand in one file."""
    names = names_in_file([PRELUDE, *(p.text for p in programs)], folder, label)
    return under_alarm(programs, lambda program: checked(program, names[program.name], device))


SUITE = random_cases.Suite(
    "repeating_programs",
    25,
    lambda seed, number: random_program(random.Random(f"{seed}:{number}"), f"p{number}"),
    outcomes,
    smaller_programs,
    lambda program, outcome: f"# {outcome.wrong[:600]}\n# {program.dtype} {program.way} {program.cut}\n{program.text}",
    words=2,
)


if __name__ == "__main__":
    random_cases.report_and_exit(SUITE, random_cases.command_line(__doc__).parse_args())
