"""Random programs that write to what their arguments hold, call after call, compared with Python's own run.

Each program is a class or a function whose body assigns to attributes, items and elements at several depths, in place
or anew, under decisions and in loops. After every call its result and all that its arguments hold are the same as
without the decorator: the same values, and the same arrays and containers at the same places.

python -m tests.state_programs --count 5000 --seed 1
"""

from __future__ import annotations

import argparse
import collections
import itertools
import random
import re
import signal
import sys
import tempfile
import types
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import kernelgraph as kg
from tests import shrinking

SECONDS = 20
HEAD = """\
import array
import copy
import dataclasses
import types
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple

import numpy as np

Pair = namedtuple("Pair", "a b")


class Plain:
    pass


class Slotted:
    __slots__ = ("k", "z")


@dataclasses.dataclass
class Fields:
    z: object = None
    k: object = None


class Managed:
    @property
    def z(self):
        return self._z

    @z.setter
    def z(self, value):
        self._z = value
        self.writes = getattr(self, "writes", 0) + 1


class Guarded:
    def __setattr__(self, name, value):
        object.__setattr__(self, name, value)
        object.__setattr__(self, "last", name)


class Linked:
    pass


class Computed:
    __slots__ = ("_z", "k", "__dict__")

    @property
    def z(self):
        return self._z

    @z.setter
    def z(self, value):
        self._z = value
        self.__dict__.pop("twice", None)


@dataclasses.dataclass(slots=True)
class Compact:
    z: object = None
    k: object = None


def made(kind, z, k):
    found = kind()
    found.z = z
    found.k = k
    return found


def shift(sub, by):
    sub.z = sub.z + by


class Model:
    def bump(self, by):
        self.y = self.y + by
        self.n += 1
"""
KINDS = ("Plain", "Slotted", "Fields", "Managed", "Guarded", "types.SimpleNamespace", "Linked", "Computed", "Compact")
ARRAYS = ("o.x", "o.y", "o.p['w']", "o.p['b']", "o.l[0]", "o.l[1]", "o.sub.z", "d['u']", "d['in']['v']", "x")
NUMBERS = ("o.n", "o.t", "o.sub.k", "d['c']", "a")
ARRAY_EXPRESSIONS = (
    "$A + $B", "$A * $N", "np.sin($A)", "$A - $B * 0.5", "np.maximum($A, $B)", "$A.copy()", "$A[::-1] + 0.0", "$A / 2",
    "np.zeros(3)", "np.where($A > $B, $A, $B)", "$A", "$A", "($A + $B)[1:2] + $A", "np.cumsum($A)",
)  # fmt: skip
STATEMENTS = (
    *("$A = $E",) * 6,
    *("$A += $E",) * 4,
    "$A *= $N",
    "$A[0] = $N",
    "$A[1:] = $B[1:]",
    "$A[:2] += 1",
    "$A, $B = $B, $A",
    "v = $A\nv += $E",
    "v = $A\n$B = v\nv[0] = 2.0",
    "v = $E\n$A = v\n$B = v",
    "v = $E\n$A = v\nv -= 1",
    *("$N += 1",) * 3,
    "$N = $N * 0.5 + $M",
    "$N = float($A.sum())",
    "$N = $A.max()",
    "$N = len(o.l)",
    "$N = int($A[0])",
    "o.l.append($E)",
    "o.l.pop()",
    "o.l.insert(0, $A)",
    "o.l[:] = [$A, $E]",
    "o.l.reverse()",
    "o.l = [$A, $B]",
    "o.l += [$A]",
    "o.p['new'] = $E",
    "del o.p['b']",
    "o.p = {'w': $A, 'b': $E}",
    "o.p.update(w=$E)",
    "o.p.pop('new', None)",
    "o.q = o.p",
    "o.p = dict(o.p)",
    "o.sub = made(type(o.sub), $E, $N)",
    "o.both = ($A, $N)",
    "o.name = 'late'",
    "o.flag = True",
    "o.nested = {'a': [$A, {'b': $E}]}",
    "v = [$E]\no.one = v\no.two = v",
    "o.subs = [o.sub, o.sub]",
    "setattr(o, 'x', $E)",
    "o.__dict__['y'] = $E",
    "del o.x",
    "o.sub.z = $E\no.sub.k = $N",
    "shift(o.sub, $E)",
    "o.bump($E)",
    "d['u'] = $A",
    "d['in'] = {'v': $E}",
    "d['more'] = o.p",
    "d['o'] = o",
    "o.sub.up = o",
    "w = vars(o)\nw['y'] = $E",
    "o.l[0], o.l[1] = o.l[1], o.l[0]",
    "o.x = $A[1:]",
    "o.x, o.y = np.split(np.concatenate([$A, $B]), 2)",
    "o.p |= {'b': $E}",
    "d.setdefault('u', $E)",
    "d.setdefault('fresh', $A)",
    "o.l.clear()\no.l.extend([$A, $B])",
    "o.x, o.y = o.y, o.x",
    "o.p, d['in'] = d['in'], o.p",
    "$N, $M = $M, $N",
    "v, w = $A, $B\nv, w = w, v\n$A = v\n$B = w",
    "o.sub.z, o.sub.k = $E, o.n",
    "v = copy.copy(o.sub)\nv.z = $E\no.sub = v",
    "v = copy.deepcopy(o.p)\nv['w'] += 1\no.p = v",
)
KINDS_STATEMENTS = {  # of other containers, which are there where a statement is
    "o.q5": ("deque([np.ones(3), 2.0], maxlen=3)", "o.q5.append($E)", "o.q5.rotate(1)", "o.q5[0] = $E",
    "o.q5.popleft()",
             "o.q5.appendleft($N)", "o.q5.extend([$E, $N])", "$A = o.q5[0] + $A"),
    "o.set": ("{1, 2}", "o.set.add(len(o.l))", "o.set.discard(1)", "o.set |= {7}", "$N = len(o.set)",
    "o.set.add(int($N))"),
    "o.count": ("Counter(a=1)", "o.count['a'] += 1", "o.count.update('ab')", "o.count['b'] = $N", "$N = o.count['a']"),
    "o.many": ("defaultdict(list)", "o.many['k'].append($E)", "o.many[len(o.l)] = [$A]", "o.many['j']",
    "o.many.clear()"),
    "o.order": ("OrderedDict(k=np.ones(3), j=1.0)", "o.order.move_to_end('k')", "o.order['k'] = $E",
    "o.order.popitem()",
                "o.order['new'] = $N", "$A = $A + o.order['j']"),
    "o.bytes": ("bytearray(b'ab')", "o.bytes.append(len(o.l))", "o.bytes[0] += 1", "o.bytes.reverse()",
    "$N = o.bytes[0]"),
    "o.pair": ("Pair(np.ones(3), 1.0)", "o.pair = o.pair._replace(a=$E)", "$A = o.pair.a * o.pair.b",
    "o.pair = Pair($A, $N)"),
    "o.packed": ("array.array('d', [1.0, 2.0])", "o.packed.append($N)", "o.packed[0] = float(len(o.l))",
    "$N = o.packed[0]"),
    "o.nest": ("[[np.ones(3)], {'k': [2.0]}]", "o.nest[0].append($E)", "o.nest[1]['k'][0] = $N", "o.nest.reverse()",
               "o.nest[0], o.nest[1] = o.nest[1], o.nest[0]", "$N = len(o.nest[0])"),
}  # fmt: skip
BLOCKS = (
    "if $A.sum() > $N:\n$1", "if $A.sum() > $N:\n$1\nelse:\n$2", "for i in range(2):\n$1", "if o.n % 2 == 0:\n$1",
    "for v in o.l:\n    v += 1", "for key in list(o.p):\n    o.p[key] = o.p[key] * 2", "try:\n$1\nfinally:\n$2",
    "while $A.sum() < 1:\n    $A += 1\n    o.n += 1", "if $A.max() > 1 and $N > 0:\n$1",
    "v = $A\nwhile v.sum() < $N:\n    v = v + 1\n$B = v",
    "v, w = $A, $B\nwhile v.sum() < $N + 4:\n    v, w = w + 1, v\n$A = w",
    "with_local = lambda: $E\n$A = with_local()",
    "if $N > 2:\n    raise ValueError('large')", "if $A.sum() > $N:\n    raise ValueError('large', o.n)",
    "if o is not None:\n$1\nassert $A.max() > $N - 4, 'small'",
    "if o is not None:\n$1\nif $A.sum() > $N:\n    raise KeyError(o.n)\nif o is not None:\n$2",
    "try:\n$1\n    if $A.sum() > $N:\n        raise ValueError\n$1\nexcept ValueError:\n$2",
    "if $A.sum() > $N:\n    o.x, o.y = o.y, o.x", "if $A.sum() > $N:\n    o.l[0], o.l[1] = o.l[1], o.l[0]",
    "v, w = $A, $B\nif $A.sum() > $N:\n    v, w = w, v\n$A = v + 0\n$B = w * 1",
    "if $A.sum() > $N:\n    $N, $M = $M, $N",
    "if $A.sum() > $N:\n    o.p['w'], o.p['b'] = o.p['b'], o.p['w']",
    "v = o.p\nif $A.sum() > $N:\n    v = d['in']\n$A = v.get('w', x)",
    "if $A.sum() > $N:\n    o.sub = made(type(o.sub), $E, $N)\no.sub.k += 1", "o.x = $E if $A.sum() > $N else o.y",
    "for key, value in d['in'].items():\n    d['in'][key] = value + 1",
)  # fmt: skip
RETURNS = ("$E", "$A", "o", "o.p", "o.l", "d", "$N", "($A, o.n)", "None", "o.sub", "[$E, o.p]", "x")
CHANGES = (
    "o.x = np.array([1.0, 2.0, 3.0])", "o.n = 3", "o.t = 0.25", "o.p['w'] = o.x", "d['u'] = o.y", "o.l[0] = np.ones(3)",
    "o.p = {'w': np.ones(3), 'b': np.zeros(3)}", "d['u'] = np.arange(3.0)",
    "o.sub = made(type(o.sub), np.ones(3), 2.0)",
    "x = o.x", "x = np.array([0.5, 0.25, 2.0])", "o.l.append(np.ones(3))",
    "d = o.p | {'u': o.x, 'c': 1.0, 'in': {'v': o.y}}",
    "o.n = 2.5", "o.name = 'other'", "del o.p['b']", "o.l[0] = o.l[1]", "a = 3", "a = 0.5", "names[0][0] += 1",
    "names[0], names[-1] = o.x, o.l", "pass", "pass", "pass",
)  # fmt: skip


@dataclass(frozen=True)
class Program:
    """A body of statements, each with its own indented blocks; what it returns; what is changed before later calls."""

    body: tuple[str, ...]
    result: str
    turns: tuple[str, ...]
    kind: str
    method: bool

    def text(self) -> str:
        head = "class Program(Model):\n    @deco\n    def f(o, d, x, a):\n" if self.method else (
            "class Program(Model):\n    pass\n\n\n@deco\ndef f(o, d, x, a):\n")  # fmt: skip
        depth = 8 if self.method else 4
        used = "\n".join((*self.body, self.result))
        setup = SETUP.replace("$K", self.kind) + "".join(
            f"{name} = {row[0]}\n" for name, row in KINDS_STATEMENTS.items() if name in used
        )
        lines = [" " * depth + line for part in (*self.body, f"return {self.result}") for line in part.split("\n")]
        return f"{HEAD}\n\n{head}" + "\n".join(lines) + f"\n\n\n{setup}"

    @property
    def call(self) -> str:
        return "o.f(d, x, a)" if self.method else "f(o, d, x, a)"

    def program(self) -> str:
        """A program that prints each call's result and the state: `python FILE` Python's, `python FILE traced` ours."""
        start = "import sys\nimport kernelgraph as kg\n\n\ndef deco(f):\n"
        start += "    return kg.kernel_graph(f, device='cpu') if sys.argv[1:] else f\n\n\n"
        show = "\n\ndef show():\n    try:\n        print('result', " + self.call + ")\n    except Exception as error:\n"
        show += "        print(repr(error))\n"
        show += "    print({k: vars(v) if hasattr(v, '__dict__') else v for k, v in vars(o).items()}, d)\n"
        return start + self.text() + show + "\n\nshow()\n" + "".join(f"{t}\nshow()\n" for t in self.turns)


SETUP = """\
o = Program()
o.x = np.array([1.0, -2.0, 3.0])
o.y = np.array([0.5, 0.25, -1.0])
o.p = {"w": np.array([3.0, 1.0, 2.0]), "b": np.array([0.1, 0.2, 0.3])}
o.l = [np.array([1.0, 1.0, 2.0]), np.array([5.0, 6.0, 7.0])]
o.n = 1
o.t = 0.5
o.sub = made($K, np.array([2.0, 2.0, 1.0]), 1.5)
d = {"u": np.array([4.0, 3.0, 2.0]), "c": 2.0, "in": OrderedDict(v=np.array([1.0, 0.0, 1.0]))}
x = np.array([1.5, 2.5, -0.5])
a = 2.0
names = [o.x, o.y, *o.p.values(), *o.l, o.sub.z, *d.values()]
"""  # names: other names of what the arguments hold, which the program does not see


def random_program(rng: random.Random) -> Program:
    body = [_statement(rng, 0) for _ in range(rng.randint(1, 5))]
    turns = tuple(rng.choice(CHANGES) for _ in range(rng.randint(1, 3)))
    return Program(tuple(body), _filled(rng, rng.choice(RETURNS)), turns, rng.choice(KINDS), rng.random() < 0.5)


def _statement(rng: random.Random, depth: int) -> str:
    if depth < 2 and rng.random() < 0.2:
        text = rng.choice(BLOCKS)
        for mark in ("$1", "$2"):
            block = "\n".join(_statement(rng, depth + 1) for _ in range(rng.randint(1, 2)))
            text = text.replace(mark, "\n".join("    " + line for line in block.split("\n")))
    elif rng.random() < 0.12:
        text = rng.choice(rng.choice(tuple(KINDS_STATEMENTS.values()))[1:])
    else:
        text = rng.choice(STATEMENTS)
    return _filled(rng, text)


def _filled(rng: random.Random, text: str) -> str:
    while "$E" in text:
        text = text.replace("$E", rng.choice(ARRAY_EXPRESSIONS), 1)
    for mark, names in (("$A", ARRAYS), ("$B", ARRAYS), ("$N", NUMBERS), ("$M", NUMBERS)):
        text = text.replace(mark, rng.choice(names))
    return text


def pictured(roots: dict[str, Any], identities: bool = True) -> list[Any]:
    """All that the roots hold, as plain data: values, and, if asked for, which arrays and containers are the same."""
    seen: dict[int, int] = {}
    kept: list[Any] = []

    def walk(value: Any) -> Any:
        if isinstance(value, kg.Array) and value.shape == () and (value._spec.scalar or not identities):
            value = value.numpy()[()]
        if value is None or isinstance(value, (bool, np.bool_, int, float, np.generic, str)):
            return "value", value if isinstance(value, str) or value is None else complex(value)
        if isinstance(value, tuple):
            return "tuple", [walk(v) for v in value]
        if id(value) in seen:
            return "same", seen[id(value)]
        if identities or not isinstance(value, (np.ndarray, kg.Array, list, dict)):
            seen[id(value)] = len(seen)
        kept.append(value)
        if isinstance(value, (np.ndarray, kg.Array)):
            array = np.asarray(value)
            return "array", array.dtype.str, array.shape, array.tolist()
        if isinstance(value, (list, collections.deque)):
            return type(value).__name__, [walk(v) for v in value]
        if isinstance(value, (set, bytearray)):
            return type(value).__name__, sorted(value)
        if type(value).__module__ == "array":
            return "array.array", [walk(v) for v in value]
        if isinstance(value, dict):
            return type(value).__name__, [(k, walk(v)) for k, v in value.items()]
        if isinstance(value, type) or callable(value):
            return "class", value.__name__
        held = dict(getattr(value, "__dict__", {}))
        held |= {n: getattr(value, n) for n in getattr(type(value), "__slots__", ()) if hasattr(value, n)}
        return type(value).__name__, [(k, walk(v)) for k, v in held.items()]

    return [(name, walk(value)) for name, value in roots.items()]


def alike(mine: Any, theirs: Any) -> bool:
    """Equal, floats to rounding."""
    if isinstance(mine, (list, tuple)) and isinstance(theirs, (list, tuple)):
        return len(mine) == len(theirs) and all(map(alike, mine, theirs))
    if isinstance(mine, (float, complex)) and isinstance(theirs, (float, complex)):
        return bool(np.isclose(mine, theirs, rtol=1e-9, atol=1e-9, equal_nan=True))
    return bool(mine == theirs)


@dataclass(frozen=True)
class Outcome:
    """What became of a program: its calls, what was refused, and in words what was wrong (or nothing)."""

    calls: int
    refused: str = ""
    wrong: str = ""
    traces: int = 0


def module_of(text: str, folder: Path, name: str, deco: Callable[[Any], Any]) -> types.ModuleType:
    path = folder / f"{name}.py"
    path.write_text(text)
    module = types.ModuleType(name)
    module.__dict__.update(deco=deco, __file__=str(path))
    sys.modules[name] = module
    exec(compile(text, str(path), "exec"), module.__dict__)
    return module


def _called(module: types.ModuleType, text: str) -> tuple[Any, Exception | None]:
    try:
        found = eval(text, module.__dict__)
        pictured({"result": found})
        return found, None
    except Exception as error:
        return None, error


def _state(module: types.ModuleType) -> Any:
    return pictured({name: vars(module)[name] for name in ("o", "d", "x", "names")})


_labels = itertools.count()


def outcome(program: Program, folder: Path, device: str = "cpu") -> Outcome:
    """Both runs side by side; the first difference ends them."""
    made: list[Any] = []

    def deco(f: Any) -> Any:
        made.append(kg.kernel_graph(f, device=device))
        return made[0]

    label = f"state_{next(_labels)}"  # a file's text is known by its name
    theirs = module_of(program.text(), folder, f"{label}_plain", lambda f: f)
    mine = module_of(program.text(), folder, f"{label}_traced", deco)
    calls = 0
    try:
        for change in ("pass", "pass", *program.turns):
            errors = []
            for module in (mine, theirs):
                try:
                    exec(change, module.__dict__)
                    errors.append("")
                except Exception as error:
                    errors.append(type(error).__name__)
            if errors[0] != errors[1]:
                return Outcome(calls, wrong=f"the change {change!r} gives {errors}")
            before = _state(mine)
            wanted, problem = _called(theirs, program.call)
            got, refusal = _called(mine, program.call)
            calls += 1
            if isinstance(refusal, kg.KernelGraphError) and not isinstance(refusal, type(problem) if problem else ()):
                words = re.sub(r"^\S+\.py:\d+: ", "", str(refusal).split("\n")[0])
                if isinstance(refusal, kg.UserError) and not alike(_state(mine), before):
                    return Outcome(calls, wrong=f"refused, but written: {refusal}")
                return Outcome(calls, f"{type(refusal).__name__}: {re.sub('[0-9.]+', '#', words)[:110]}")
            if (refusal is None) != (problem is None) or (refusal and not isinstance(refusal, type(problem))):
                return Outcome(calls, wrong=f"call {calls}: {refusal!r} for {problem!r}")
            if isinstance(refusal, kg.KernelGraphError):
                break  # which ends a trace before anything is written
            picture, other = (pictured({"result": x}, identities=False) for x in (got, wanted))
            if program.result in ("o", "d", "o.sub"):  # which may hold each other
                picture = other = []
            if not alike(picture, other):
                return Outcome(calls, wrong=f"call {calls}: gives {picture} for {other}")
            if not alike(_state(mine), _state(theirs)):
                pairs = zip(_state(mine), _state(theirs), strict=True)
                which = next(f"{a} for {b}" for a, b in pairs if not alike(a, b))
                return Outcome(calls, wrong=f"call {calls}: state {which}")
            if problem is not None:
                break
        return Outcome(calls, traces=made[0].why().count("traced for"))
    finally:
        for module in (mine, theirs):
            sys.modules.pop(module.__name__, None)


def smaller(program: Program) -> Iterator[Program]:
    for i in range(len(program.body)):
        yield replace(program, body=program.body[:i] + program.body[i + 1 :])
    for i in range(len(program.turns)):
        yield replace(program, turns=program.turns[:i] + program.turns[i + 1 :])
    for i, text in enumerate(program.body):
        lines = text.split("\n")
        if len(lines) > 1 and lines[-1].startswith("    "):
            inner = "\n".join(line[4:] for line in lines[1:] if line.startswith("    "))
            yield replace(program, body=(*program.body[:i], inner, *program.body[i + 1 :]))
    if program.result != "None":
        yield replace(program, result="None")
    if program.kind != "Plain":
        yield replace(program, kind="Plain")


class Hang(BaseException):
    """A program took longer than SECONDS."""


def _hangs(*_: Any) -> None:
    raise Hang


def _tried(program: Program, folder: Path, device: str) -> Outcome:
    previous = signal.signal(signal.SIGALRM, _hangs)
    signal.alarm(SECONDS)
    try:
        return outcome(program, folder, device)
    except SyntaxError:
        return Outcome(0)
    except Hang:
        return Outcome(0, wrong=f"no end in {SECONDS} s")
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, previous)


def _mechanism(found: Outcome) -> str:
    return re.sub(r"^call \d+: ", "", found.wrong)[:5]


@dataclass
class Report:
    """Counts over all programs."""

    programs: int
    calls: int
    traces: int
    refused: collections.Counter[str]
    wrong: list[tuple[Program, Outcome]]

    def __str__(self) -> str:
        kinds = "".join(f"\n  {n:6} {words}" for words, n in self.refused.most_common())
        return (
            f"{self.programs} programs, {self.calls} calls, {len(self.wrong)} wrong, "
            f"{sum(self.refused.values())} refused; {self.traces} traces; refused by kind:{kinds}"
        )


def explore(count: int, seed: int, show: int = 0, device: str = "cpu") -> Report:
    report = Report(0, 0, 0, collections.Counter(), [])
    with tempfile.TemporaryDirectory() as made, warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for number in range(count):
            program = random_program(random.Random(f"{seed}:{number}"))
            found = _tried(program, Path(made), device)
            report.programs += 1
            report.calls += found.calls
            report.traces += found.traces
            if found.refused:
                report.refused[found.refused] += 1
            if found.wrong:
                report.wrong.append((program, found))
                if len(report.wrong) <= show:
                    small, its = shrinking.shrunk(program, lambda p: _tried(p, Path(made), device), smaller, _mechanism)
                    print(
                        f"# {number}: {its.wrong}\n{small.text().split('class Program')[1]}\n# {small.turns}\n",
                        flush=True,
                    )
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--show", type=int, default=10, help="how many wrong programs are printed, made small")
    given = parser.parse_args()
    report = explore(given.count, given.seed, given.show, given.device)
    print(report)
    raise SystemExit(1 if report.wrong else 0)


if __name__ == "__main__":
    main()
