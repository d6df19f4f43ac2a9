"""What functions read from the world outside, or do to it, by every way to reach it: told, or as plain Python does it.

A row of SOURCES is an expression and how it is seen that it was evaluated anew at each call; a row of WAYS is a program
that evaluates it. `python -m tests.outside_reads` runs all programs in all modes; the tests run a part of them."""

from __future__ import annotations

import argparse
import contextlib
import io
import itertools
import linecache
import logging
import os
import random
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import kernelgraph as kg

MODES = ("warn", "numpy", "split", "refuse")
X = np.arange(4.0)
HEAD = """
import asyncio, builtins, collections, contextlib, dataclasses, datetime, functools, gc, inspect, io, itertools, json
import logging, os, pathlib, pickle, random, secrets, shutil, socket, subprocess, sys, tempfile, threading, time
import operator, uuid, warnings, glob
import numpy as np
import kernelgraph as kg
from datetime import date, datetime as moment
from os import getcwd
from os.path import exists
from pathlib import Path
from random import random as drawn
from time import perf_counter as now, time as seconds
from uuid import uuid4
LOG = logging.getLogger("tests.outside")
CHILD = LOG.getChild("child")
ADAPTER = logging.LoggerAdapter(LOG, {})
FILE = Path(FOLDER) / "file.txt"
NAME = str(FILE)
DATA = os.path.join(FOLDER, "data.npy")
RNG = random.Random(3)
GENERATOR = np.random.default_rng(3)
LEGACY = np.random.RandomState(3)
TURNS = itertools.count()
GIVEN = iter(range(1000))
STREAM = io.StringIO()
def made():
    yield from range(1000)
MADE = made()
def decorated(f):
    return f if MODE == 'python' else kg.kernel_graph(f, device='cpu', untraceable=MODE)
def written(name, text):
    with open(name, "a") as file:
        file.write(text)
    return 1.0
"""


@dataclass(frozen=True)
class Source:
    """An expression that gives a number. how: `changes` (at each call another), `told` (no call may be frozen, but the
    value says nothing), `same` (what comes of it, with what the world is changed to before each call, is Python's).
    called: what gives it where it is called with no arguments."""

    text: str
    how: str = "changes"
    called: str = ""


def _same(*texts: str) -> list[Source]:
    return [Source(text, "same") for text in texts]


SOURCES: tuple[Source, ...] = (
    # the clock
    *(Source(f"{name}()", "changes", name) for name in (
        "time.time", "time.perf_counter", "time.monotonic", "time.process_time", "time.perf_counter_ns", "now", "seconds",
        "time.thread_time",
    )),
    Source("getattr(time, 'time')()"),
    Source("time.__dict__['time']()"),
    Source("vars(time)['perf_counter']()"),
    Source("sys.modules['time'].perf_counter()"),
    Source("__import__('time').perf_counter()"),
    Source("time.clock_gettime(time.CLOCK_MONOTONIC)"),
    Source("float(time.strftime('%S'))", "told"),
    Source("time.localtime().tm_sec", "told"),
    Source("time.gmtime().tm_sec", "told"),
    Source("len(time.ctime())", "told"),
    Source("time.sleep(0) or 1.0", "told"),
    Source("datetime.datetime.now().microsecond"),
    Source("moment.now().timestamp()"),
    Source("moment.today().microsecond"),
    Source("moment.utcnow().microsecond"),
    Source("moment.now(datetime.timezone.utc).microsecond"),
    Source("date.today().day", "told", ""),
    Source("datetime.date.today().day", "told"),
    Source("float(np.datetime64('now').astype('i8'))", "told"),
    # files
    *_same(
        "float(open(NAME).read().count('a'))", "float(io.open(NAME).read().count('a'))", "float(FILE.read_text().count('a'))",
        "float(FILE.stat().st_size)", "float(os.stat(NAME).st_size)", "float(os.path.getsize(NAME))",
        "float(exists(NAME + '2'))", "float(os.path.exists(NAME + '2'))", "float(Path(NAME + '2').exists())",
        "float((FILE.parent / 'file.txt2').is_file())", "float(len(os.listdir(FOLDER)))", "float(len([*os.scandir(FOLDER)]))",
        "float(len([*FILE.parent.iterdir()]))", "float(len(glob.glob(FOLDER + '/*')))", "float(len(getcwd()))",
        "float(len(os.getcwd()))", "float(len(str(Path.cwd())))", "float(os.environ.get('TESTS_OUTSIDE', '0'))",
        "float(os.environ['TESTS_OUTSIDE'])", "float(os.getenv('TESTS_OUTSIDE'))", "written(NAME + '3', 'x')",
        "float(FILE.with_suffix('.w').write_text('x' * 3))", "float(np.load(DATA).sum())", "float(np.loadtxt(NAME + '.t').sum())",
        "float(np.genfromtxt(NAME + '.t').sum())", "float(np.fromfile(NAME + '.b').sum())",
        "np.save(FOLDER + '/new.npy', np.ones(2)) or 1.0", "np.savetxt(FOLDER + '/new.t', np.ones(2)) or 1.0",
        "np.savez(FOLDER + '/new.npz', np.ones(2)) or 1.0", "np.ones(2).tofile(FOLDER + '/new.b') or 1.0",
        "json.dump([1], STREAM) or 1.0", "STREAM.write('a') * 1.0", "pickle.dump(1, open(FOLDER + '/p', 'ab')) or 1.0",
        "float(pathlib.Path(NAME).stat().st_size)", "float(len(shutil.copy(NAME, NAME + '4')))",
        "os.mkdir(FOLDER + '/' + str(len(os.listdir(FOLDER)))) or 1.0",
    ),
    # random numbers
    *(Source(f"{name}()", "changes", name) for name in (
        "random.random", "drawn", "RNG.random", "np.random.rand", "np.random.random", "GENERATOR.normal", "LEGACY.rand",
        "GENERATOR.random",
    )),
    Source("random.gauss(0, 1)"), Source("random.Random().random()"), Source("np.random.default_rng().random()"),
    Source("np.random.RandomState().rand()"), Source("float(random.getrandbits(40))"), Source("secrets.randbits(40) * 1.0"),
    Source("float(int(secrets.token_hex(4), 16))"), Source("float(uuid.uuid4().int % 10**9)"), Source("float(uuid4().int % 10**9)"),
    Source("float(uuid.uuid1().int % 10**9)"), Source("float(os.urandom(4)[0] * 256 + os.urandom(3)[1])", "told"),
    Source("random.SystemRandom().random()"), Source("random.shuffle([1, 2]) or 1.0", "told"),
    Source("random.seed(3) or 1.0", "told"), Source("float(len(tempfile.mkdtemp()))", "told"),
    # the process, and the interpreter
    *(Source(text, "told") for text in (
        "float(os.getpid())", "float(threading.get_ident() % 1000)", "float(threading.current_thread().ident % 1000)",
        "float(gc.collect() * 0)", "float(sys.getrefcount(HEAD_OBJECT))", "float(len(inspect.stack()))",
        "float(subprocess.run(['true']).returncode)", "float(os.system('true'))", "float(socket.gethostname() != '')",
        "float(len(os.popen('echo a').read()))", "float(inspect.currentframe().f_lineno)", "float(sys._getframe().f_lineno)",
        "float(threading.active_count())", "float(len(socket.socket().getsockname()) * 0)", "float(os.cpu_count())",
        "float(len(os.uname().nodename))", "float(asyncio.run(asyncio.sleep(0)) is None)",
    )),
    Source("next(TURNS) * 1.0"), Source("next(GIVEN) * 1.0"), Source("next(MADE) * 1.0"),
    # what is said
    *_same(
        "print('said') or 1.0", "print('said', 2, sep='-', end=';') or 1.0", "builtins.print('built in') or 1.0",
        "print(f'{1.5:.3f}') or 1.0", "print() or 1.0", "sys.stdout.write('written') * 1.0", "sys.stderr.write('written') * 1.0",
        "print('to', file=sys.stderr) or 1.0", "print('to', file=STREAM) or 1.0", "LOG.warning('logged') or 1.0",
        "LOG.info('level %d of %s', 3, 'four') or 1.0", "LOG.debug('hidden') or 1.0", "logging.warning('root') or 1.0",
        "logging.getLogger('tests.outside').error('by name') or 1.0", "CHILD.error('child') or 1.0", "ADAPTER.info('adapted') or 1.0",
        "LOG.log(40, 'at %s', 'forty') or 1.0", "LOG.exception('no error') or 1.0", "LOG.setLevel(10) or 1.0",
        "warnings.warn('warned') or 1.0", "print('flushed', flush=True) or 1.0", "sys.stdout.flush() or 1.0",
        "float(LOG.isEnabledFor(10))", "print([1, 2], {'a': (1,)}) or 1.0", "logging.info('root', extra={'a': 1}) or 1.0",
    ),
)  # fmt: skip
HEAD += "HEAD_OBJECT = object()\n"

# what is said of values: x is the argument, s a number made of it
SAID = (
    "print(s)", "print(x)", "print('a', x, s, 3)", "print(x + 1, sep='')", "print(x.sum(), x.max(), end='|')", "print(f'{s}')",
    "print(f'{s:.3f} and {x}')", "print(f'{s:>12.4f}|{s!r}|{s!s}')", "print('%.3f' % s)", "print('{:.3f}'.format(s))",
    "print(str(s))", "print(repr(x))", "print([s, s])", "print(x.astype('i4'), x > 1)", "print(x.astype('f4'))",
    "print(x.astype('f4').sum())", "print((x > 1).any())", "print(x * 1j)", "print(x.shape, x.dtype, len(x))", "print(x.tolist())",
    "print(n)", "print(n + 1, n * 0.5, [n])", "print(f'{n:05.1f}')", "print(np.round(x, 1))", "print(x[1:3], x[0])",
    "print(n > 1, -n)", "LOG.info('at %s', s)", "LOG.info('at %.3f of %s', s, x)", "LOG.info(f'at {s:.3f}')", "LOG.info('%d turns', n)",
    "LOG.info(s)", "LOG.debug('hidden %s', s)", "LOG.info('%(a)s', {'a': s})", "logging.warning('root %s', s)",
    "CHILD.warning('%r', s)", "ADAPTER.warning('%s', x)", "LOG.log(20, '%s %s', s, n)", "sys.stdout.write(f'{s:.2f}')",
    "sys.stdout.write(str(x))", "print(s, file=sys.stderr)", "print(s, file=STREAM)", "warnings.warn(f'{s:.2f}')",
    "print(f'{s:.2e}', f'{x.mean():.1f}')", "print('a' + f'{s:.1f}')", "print(HEAD_OBJECT is None, x.ndim, s)", "print(np.asarray(x))",
    "print(f'{x.shape} {x.dtype} {len(x)}')", "print(f'{[s]}')", "print(*x)", "print(*[s, 2])", "print(x.sum() if n else x)",
)  # fmt: skip

# ways to a number v: E is the expression, F what gives it where it is called
WAYS: dict[str, str] = {
    "directly": "def f(x):\n    return x * 0 + (@E)",
    "helper": "def helper():\n    return @E\ndef f(x):\n    return x * 0 + helper()",
    "method": "class C:\n    def m(self):\n        return @E\nC1 = C()\ndef f(x):\n    return x * 0 + C1.m()",
    "made object": "class C:\n    def __init__(self):\n        self.v = @E\ndef f(x):\n    return x * 0 + C().v",
    "property": "class C:\n    @property\n    def v(self):\n        return @E\nC1 = C()\ndef f(x):\n    return x * 0 + C1.v",
    "partial": "def helper(k):\n    return @E\nP = functools.partial(helper, 1)\ndef f(x):\n    return x * 0 + P()",
    "map": "def f(x):\n    return x * 0 + sum(map(lambda k: @E, [0]))",
    "default factory": "def f(x):\n    return x * 0 + collections.defaultdict(lambda: @E)['a']",
    "dataclass": "@dataclasses.dataclass\nclass C:\n    v: float = dataclasses.field(default_factory=lambda: @E)\n"
    "def f(x):\n    return x * 0 + C().v",
    "context manager": "class T:\n    def __enter__(self):\n        self.v = @E\n        return self\n    def __exit__(self, *a):\n"
    "        pass\ndef f(x):\n    with T() as t:\n        y = x * 0\n    return y + t.v",
    "decorator": "def timed(g):\n    @functools.wraps(g)\n    def inner(*a):\n        v = @E\n        return g(*a) + v\n"
    "    return inner\n@timed\ndef g(x):\n    return x * 0\ndef f(x):\n    return g(x)",
    "branch": "def f(x):\n    if x.sum() > 1:\n        v = @E\n    else:\n        v = @E\n    return x * 0 + v",
    "loop": "def f(x):\n    y = x * 0\n    for i in range(2):\n        y = y * 0 + (@E)\n    return y",
    "long loop": "def f(x):\n    y = x * 0\n    for i in range(300):\n        y[i % 4] = y[(i + 1) % 4] * 0\n"
    "        if i % 100 == 0:\n            y = y * 0 + (@E)\n    return y",
    "comprehension": "def f(x):\n    return x * 0 + [@E for k in range(2)][-1]",
    "after a break": "def f(x):\n    y = x\n    if x.max() > 1:\n        y = y[x > 1]\n    return y.sum() * 0 * x + (@E)",
    "inner kernel graph": "@decorated\ndef g(x):\n    return x * 0 + (@E)\ndef f(x):\n"
    "    return g(x) * 1.0",
    "import inside": "def f(x):\n    import time, os, random\n    return x * 0 + (@E)",
    "generator": "def g():\n    yield @E\ndef f(x):\n    return x * 0 + next(g())",
    "default argument": "def h(k=lambda: @E):\n    return k()\ndef f(x):\n    return x * 0 + h()",
    "closure": "def outer():\n    def inner():\n        return @E\n    return inner\nI = outer()\ndef f(x):\n    return x * 0 + I()",
    "swallowed": "def f(x):\n    try:\n        v = @E\n    except Exception:\n        v = -1.0\n    return x * 0 + v",
    "grad": "def loss(x):\n    return (x * x).sum() + (@E)\nG = kg.grad(loss) if MODE != 'python' else lambda x: 2 * x * (loss(x) != 0.1)\n"
    "def f(x):\n    return G(x)",
    "vmap": "def row(x):\n    return x * 0 + (@E)\nV = kg.vmap(row) if MODE != 'python' else lambda x: np.array([row(r) for r in x])\n"
    "def f(x):\n    return V(x[None])[0]",
}  # fmt: skip
CALLED_WAYS: dict[str, str] = {
    "partial of it": "P = functools.partial(@F)\ndef f(x):\n    return x * 0 + P()",
    "partial made inside": "def f(x):\n    return x * 0 + functools.partial(@F)()",
    "factory": "def f(x):\n    return x * 0 + collections.defaultdict(@F)['a']",
    "dataclass factory": "@dataclasses.dataclass\nclass C:\n    v: float = dataclasses.field(default_factory=@F)\n"
    "def f(x):\n    return x * 0 + C().v",
    "mapped": "def f(x):\n    return x * 0 + [*itertools.starmap(@F, [()])][0]",
    "iterated": "def f(x):\n    return x * 0 + next(iter(@F, None))",
    "in a list": "L = [@F]\ndef f(x):\n    return x * 0 + L[0]()",
    "in a dict": "D = {'a': @F}\ndef f(x):\n    return x * 0 + D['a']()",
    "attribute": "class C:\n    clock = staticmethod(@F)\nC1 = C()\ndef f(x):\n    return x * 0 + C1.clock()",
    "instance attribute": "class C:\n    pass\nC1 = C()\nC1.clock = @F\ndef f(x):\n    return x * 0 + C1.clock()",
    "default": "def h(clock=@F):\n    return clock()\ndef f(x):\n    return x * 0 + h()",
    "argument": "def f(x, clock=@F):\n    return x * 0 + clock()",
}
SAID_WAYS: dict[str, str] = {
    "directly": "def f(x, n=3):\n    s = x.sum()\n    @E\n    return x * 2",
    "twice": "def f(x, n=3):\n    s = x.sum()\n    print('before')\n    @E\n    s = x.max() * 2\n    @E\n    LOG.info('after')\n    return x * 2",
    "helper": "def g(x, s, n):\n    @E\n    return x * 2\ndef f(x, n=3):\n    return g(x, x.sum(), n)",
    "loop": "def f(x, n=3):\n    for i in range(4):\n        s = x.sum() + i\n        x = x * 0.5\n        if i % 2 == 0:\n"
    "            @E\n    return x",
    "long loop": "def f(x, n=3):\n    for i in range(300):\n        x[i % 4] = x[(i + 1) % 4] * 0.5\n        if i % 100 == 0:\n"
    "            s = x.sum()\n            @E\n    return x",
    "branch": "def f(x, n=3):\n    s = x.sum()\n    if s > 7:\n        @E\n        x = x + 1\n    else:\n        print('small')\n    return x",
    "before an error": "def f(x, n=3):\n    s = x.sum()\n    @E\n    raise ValueError('ends')",
    "before an error that values decide": "def f(x, n=3):\n    s = x.sum()\n    @E\n    if s > 7:\n        raise ValueError('ends')\n"
    "    return x",
    "number": "def f(x, n=3):\n    s = n * 2\n    @E\n    return x * s",
    "while": "def f(x, n=3):\n    s = x.sum()\n    while s > 3:\n        x = x * 0.5\n        s = x.sum()\n        @E\n    return x",
    "after a write": "def f(x, n=3):\n    x[0] = 5\n    s = x.sum()\n    @E\n    x[0] = 7\n    return x * 1",
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One program in one mode."""

    name: str
    text: str
    how: str
    mode: str


def cases() -> Iterator[Case]:
    """All of them."""
    for source, mode in itertools.product(SOURCES, MODES):
        for way, text in WAYS.items():
            yield Case(f"{source.text}: {way}", text.replace("@E", source.text), source.how, mode)
        for way, text in CALLED_WAYS.items() if source.called else ():
            yield Case(f"{source.called}: {way}", text.replace("@F", source.called), source.how, mode)
    for said, mode in itertools.product(SAID, MODES):
        for way, text in SAID_WAYS.items():
            yield Case(f"{said}: {way}", text.replace("@E", said), "same", mode)


@dataclass
class Outcome:
    """What three calls gave: values or errors, what was said, and what lies in the folder."""

    values: list[Any]
    said: list[str]
    files: list[str]
    how: str = ""


@contextlib.contextmanager
def world() -> Iterator[str]:
    """A folder to write to, and everything as it was afterwards."""
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        try:
            yield folder
        finally:
            os.chdir(before)
            os.environ.pop("TESTS_OUTSIDE", None)


def change(folder: str, turn: int) -> None:
    """What the world is like before a call."""
    os.environ["TESTS_OUTSIDE"] = str(turn)
    name = os.path.join(folder, "file.txt")
    for path, text in ((name, "a" * turn), (name + ".t", f"{turn} 2\n")):
        with open(path, "w") as file:
            file.write(text)
    np.save(os.path.join(folder, "data.npy"), np.arange(turn + 1.0))
    np.arange(turn + 2.0).tofile(name + ".b")
    os.makedirs(os.path.join(folder, "d" * (turn + 1)), exist_ok=True)
    os.chdir(os.path.join(folder, "d" * (turn + 1)))
    if turn == 2:
        with open(name + "2", "w") as file:
            file.write("there")


_NUMBER = itertools.count()


def run(case: Case, plain: bool) -> Outcome:
    """Three calls of a program, by Python or by the package."""
    random.seed(5), np.random.seed(5)
    log = logging.getLogger("tests.outside")
    text = io.StringIO()
    handlers = [logging.StreamHandler(text), logging.StreamHandler(text)]
    for handler in handlers:
        handler.setFormatter(logging.Formatter("%(name)s %(levelname)s %(message)s %(funcName)s %(lineno)d"))
    root = logging.getLogger()
    with world() as folder, contextlib.ExitStack() as stack:
        file = os.path.join(folder, f"program{next(_NUMBER)}.py")
        source = f"FOLDER = {folder!r}\nMODE = {'python' if plain else case.mode!r}\n" + HEAD + case.text + "\n"
        with open(file, "w") as f:
            f.write(source)
        names: dict[str, Any] = {"__name__": f"program_{os.path.basename(file)[7:-3]}", "__file__": file}
        module = type(sys)(names["__name__"])
        vars(module).update(names)
        sys.modules[names["__name__"]] = module
        stack.callback(sys.modules.pop, names["__name__"], None)
        stack.callback(linecache.cache.pop, file, None)
        change(folder, 0)
        exec(compile(source, file, "exec"), vars(module))
        function = vars(module)["f"]
        if not plain:
            function = kg.kernel_graph(function, device="cpu", untraceable=case.mode)
        out = Outcome([], [], [])
        log.handlers, root.handlers = [handlers[0]], [handlers[1]]
        log.setLevel(logging.INFO)
        stack.callback(setattr, log, "handlers", [])
        stack.callback(setattr, root, "handlers", [])
        for turn in range(3):
            change(folder, turn)
            with (
                contextlib.redirect_stdout(text), contextlib.redirect_stderr(text),
                warnings.catch_warnings(record=True) as warned,
            ):  # fmt: skip
                warnings.simplefilter("always")
                try:
                    value: Any = np.asarray(function(X * (turn + 1)))
                except Exception as error:
                    value = error
            out.values.append(value)
            ours = [str(w.message) for w in warned if "runs in NumPy" in str(w.message) or "was traced" in str(w.message)]
            out.how += "".join(f"{turn}: {message}\n" for message in ours)
            said = text.getvalue() + vars(module)["STREAM"].getvalue()
            said += "".join(f"{w.message}\n" for w in warned if str(w.message) not in ours)
            out.said.append(said.replace(folder, ""))
            text.truncate(0), text.seek(0)
            out.files.append(" ".join(sorted(f"{n}:{os.path.getsize(os.path.join(folder, n))}" for n in os.listdir(folder)
                                             if not n.startswith(("program", "__")))))
        if not plain and "runs in NumPy" in str(function.why()):
            out.how += "in NumPy"
        return out


HOW: Counter[str] = Counter()


def wrong(case: Case) -> str:
    """What is wrong with a case, in words; nothing where all is right."""
    plain, ours = run(case, True), run(case, False)
    refused = [isinstance(v, kg.KernelGraphError) for v in ours.values]
    HOW["refused" if any(refused) else "in NumPy" if "in NumPy" in ours.how else "compiled"] += 1
    if all(refused):
        told = [*map(str, ours.values)]
        if case.mode in ("warn", "numpy") and not ("grad" in case.name or "vmap" in case.name):
            return f"is refused: {told[0][:300]}"
        return "" if all("program" in t and ".py:" in t for t in told) else f"the error has no line: {told[0][:300]}"
    if any(refused):
        return f"a later call is refused: {[str(v)[:200] for v in ours.values]}"
    if case.mode == "warn" and "in NumPy" in ours.how and ours.how.count("runs in NumPy") != 1:
        return f"is told {ours.how.count('runs in NumPy')} times: {ours.how}"
    if [type(v) for v in plain.values] != [type(v) for v in ours.values]:
        return f"gives {ours.values} where Python gives {plain.values}"
    if any(isinstance(v, Exception) for v in ours.values):
        pairs = zip(map(str, plain.values), map(str, ours.values), strict=True)
        if any(a != b for a, b in pairs):
            return f"raises {ours.values} where Python raises {plain.values}"
    if case.how == "same":
        for name in ("said", "files"):
            if getattr(plain, name) != getattr(ours, name):
                return f"{name} {getattr(ours, name)} where Python has {getattr(plain, name)}"
        if not all(isinstance(a, Exception) or np.allclose(a, b) for a, b in zip(plain.values, ours.values, strict=True)):
            return f"gives {ours.values} where Python gives {plain.values}"
    elif "in NumPy" not in ours.how:
        if case.how == "told" or len({str(v) for v in ours.values}) < 3:
            if "grad" not in case.name or case.how == "told":
                return f"is frozen: {[np.ravel(v)[:1] for v in ours.values]}"
    return ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="cases whose names have this in them")
    parser.add_argument("--mode", default="", help="one mode")
    parser.add_argument("--step", type=int, default=1, help="every n-th case")
    parser.add_argument("--start", type=int, default=0)
    options = parser.parse_args()
    counts: Counter[str] = Counter()
    HOW.clear()
    chosen = [c for c in cases() if options.only in c.name and options.mode in c.mode][options.start :: options.step]
    for case in chosen:
        try:
            found = wrong(case)
        except Exception as error:
            found = f"cannot be compared: {type(error).__name__}: {error}"
        if found:
            counts[case.name] += 1
            print(f"{case.mode}: {case.name}: {found[:600]}", flush=True)
    print(f"{len(chosen)} programs ({dict(HOW)}), {sum(counts.values())} wrong, of {len(counts)} kinds")


if __name__ == "__main__":
    main()
