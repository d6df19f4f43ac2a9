"""What functions read from the world outside, or do to it, by every way to reach it: told, or as plain Python does it.

A row of the tables is an expression, and there are programs that evaluate it. `python -m tests.outside_reads` runs all
programs in all modes; the tests run a part of them."""

from __future__ import annotations

import argparse
import contextlib
import io
import itertools
import linecache
import logging
import os
import random
import re
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
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
HEAD_OBJECT = object()
def made():
    yield from range(1000)
MADE = made()
def decorated(f):
    return f if MODE == "python" else kg.kernel_graph(f, device="cpu", untraceable=MODE)
def derived(f):
    return kg.grad(f) if MODE != "python" else lambda x: 2 * x * (f(x) != 0.1)
def rows(f):
    return kg.vmap(f) if MODE != "python" else lambda x: np.array([f(r) for r in x])
def written(name, text):
    with open(name, "a") as file:
        file.write(text)
    return 1.0
"""


# gives another number at each call
CHANGING = """
time.time()
time.perf_counter()
time.monotonic()
time.process_time()
time.perf_counter_ns()
now()
seconds()
time.thread_time()
getattr(time, 'time')()
time.__dict__['time']()
vars(time)['perf_counter']()
sys.modules['time'].perf_counter()
__import__('time').perf_counter()
time.clock_gettime(time.CLOCK_MONOTONIC)
datetime.datetime.now().microsecond
moment.now().timestamp()
moment.today().microsecond
moment.utcnow().microsecond
moment.now(datetime.timezone.utc).microsecond
random.random()
drawn()
RNG.random()
np.random.rand()
np.random.random()
GENERATOR.normal()
LEGACY.rand()
GENERATOR.random()
random.gauss(0, 1)
random.Random().random()
np.random.default_rng().random()
np.random.RandomState().rand()
float(random.getrandbits(40))
secrets.randbits(40) * 1.0
float(int(secrets.token_hex(4), 16))
float(uuid.uuid4().int % 10**9)
float(uuid4().int % 10**9)
float(uuid.uuid1().int % 10**9)
random.SystemRandom().random()
next(TURNS) * 1.0
next(GIVEN) * 1.0
next(MADE) * 1.0
"""
# functions that do so, called with nothing
CALLED = """
time.time
time.perf_counter
time.monotonic
time.process_time
time.perf_counter_ns
now
seconds
time.thread_time
random.random
drawn
RNG.random
np.random.rand
np.random.random
GENERATOR.normal
LEGACY.rand
GENERATOR.random
"""
# what may not be frozen, although its value says nothing of that
TOLD = """
float(time.strftime('%S'))
time.localtime().tm_sec
time.gmtime().tm_sec
len(time.ctime())
time.sleep(0) or 1.0
date.today().day
datetime.date.today().day
float(np.datetime64('now').astype('i8'))
float(os.urandom(4)[0] * 256 + os.urandom(3)[1])
random.shuffle([1, 2]) or 1.0
random.seed(3) or 1.0
float(len(tempfile.mkdtemp()))
float(os.getpid())
float(threading.get_ident() % 1000)
float(threading.current_thread().ident % 1000)
float(gc.collect() * 0)
float(sys.getrefcount(HEAD_OBJECT))
float(len(inspect.stack()))
float(subprocess.run(['true']).returncode)
float(os.system('true'))
float(socket.gethostname() != '')
float(len(os.popen('echo a').read()))
float(inspect.currentframe().f_lineno)
float(sys._getframe().f_lineno)
float(threading.active_count())
float(len(socket.socket().getsockname()) * 0)
float(os.cpu_count())
float(len(os.uname().nodename))
float(asyncio.run(asyncio.sleep(0)) is None)
"""
# what is Python's with all that comes of it, as the world is changed before each call
SAME = """
float(open(NAME).read().count('a'))
float(io.open(NAME).read().count('a'))
float(FILE.read_text().count('a'))
float(FILE.stat().st_size)
float(os.stat(NAME).st_size)
float(os.path.getsize(NAME))
float(exists(NAME + '2'))
float(os.path.exists(NAME + '2'))
float(Path(NAME + '2').exists())
float((FILE.parent / 'file.txt2').is_file())
float(len(os.listdir(FOLDER)))
float(len([*os.scandir(FOLDER)]))
float(len([*FILE.parent.iterdir()]))
float(len(glob.glob(FOLDER + '/*')))
float(len(getcwd()))
float(len(os.getcwd()))
float(len(str(Path.cwd())))
float(os.environ.get('TESTS_OUTSIDE', '0'))
float(os.environ['TESTS_OUTSIDE'])
float(os.getenv('TESTS_OUTSIDE'))
written(NAME + '3', 'x')
float(FILE.with_suffix('.w').write_text('x' * 3))
float(np.load(DATA).sum())
float(np.loadtxt(NAME + '.t').sum())
float(np.genfromtxt(NAME + '.t').sum())
float(np.fromfile(NAME + '.b').sum())
np.save(FOLDER + '/new.npy', np.ones(2)) or 1.0
np.savetxt(FOLDER + '/new.t', np.ones(2)) or 1.0
np.savez(FOLDER + '/new.npz', np.ones(2)) or 1.0
np.ones(2).tofile(FOLDER + '/new.b') or 1.0
json.dump([1], STREAM) or 1.0
STREAM.write('a') * 1.0
pickle.dump(1, open(FOLDER + '/p', 'ab')) or 1.0
float(pathlib.Path(NAME).stat().st_size)
float(len(shutil.copy(NAME, NAME + '4')))
os.mkdir(FOLDER + '/' + str(len(os.listdir(FOLDER)))) or 1.0
print('said') or 1.0
print('said', 2, sep='-', end=';') or 1.0
builtins.print('built in') or 1.0
print(f'{1.5:.3f}') or 1.0
print() or 1.0
sys.stdout.write('written') * 1.0
sys.stderr.write('written') * 1.0
print('to', file=sys.stderr) or 1.0
print('to', file=STREAM) or 1.0
LOG.warning('logged') or 1.0
LOG.info('level %d of %s', 3, 'four') or 1.0
LOG.debug('hidden') or 1.0
logging.warning('root') or 1.0
logging.getLogger('tests.outside').error('by name') or 1.0
CHILD.error('child') or 1.0
ADAPTER.info('adapted') or 1.0
LOG.log(40, 'at %s', 'forty') or 1.0
LOG.exception('no error') or 1.0
LOG.setLevel(10) or 1.0
warnings.warn('warned') or 1.0
print('flushed', flush=True) or 1.0
sys.stdout.flush() or 1.0
float(LOG.isEnabledFor(10))
print([1, 2], {'a': (1,)}) or 1.0
logging.info('root', extra={'a': 1}) or 1.0
"""
# what is said of values: x is the argument, s a number made of it, n a number of the call
SAID = """
print(s)
print(x)
print('a', x, s, 3)
print(x + 1, sep='')
print(x.sum(), x.max(), end='|')
print(f'{s}')
print(f'{s:.3f} and {x}')
print(f'{s:>12.4f}|{s!r}|{s!s}')
print('%.3f' % s)
print('{:.3f}'.format(s))
print(str(s))
print(repr(x))
print([s, s])
print(x.astype('i4'), x > 1)
print(x.astype('f4'))
print(x.astype('f4').sum())
print((x > 1).any())
print(x * 1j)
print(x.shape, x.dtype, len(x))
print(x.tolist())
print(n)
print(n + 1, n * 0.5, [n])
print(f'{n:05.1f}')
print(np.round(x, 1))
print(x[1:3], x[0])
print(n > 1, -n)
LOG.info('at %s', s)
LOG.info('at %.3f of %s', s, x)
LOG.info(f'at {s:.3f}')
LOG.info('%d turns', n)
LOG.info(s)
LOG.debug('hidden %s', s)
LOG.info('%(a)s', {'a': s})
logging.warning('root %s', s)
CHILD.warning('%r', s)
ADAPTER.warning('%s', x)
LOG.log(20, '%s %s', s, n)
sys.stdout.write(f'{s:.2f}')
sys.stdout.write(str(x))
print(s, file=sys.stderr)
print(s, file=STREAM)
warnings.warn(f'{s:.2f}')
print(f'{s:.2e}', f'{x.mean():.1f}')
print('a' + f'{s:.1f}')
print(HEAD_OBJECT is None, x.ndim, s)
print(np.asarray(x))
print(f'{x.shape} {x.dtype} {len(x)}')
print(f'{[s]}')
print(*x)
print(*[s, 2])
print(x.sum() if n else x)
"""
# programs that come to an expression, @E
WAYS = """
## directly
def f(x):
    return x * 0 + (@E)
## helper
def helper():
    return @E
def f(x):
    return x * 0 + helper()
## method
class C:
    def m(self):
        return @E
C1 = C()
def f(x):
    return x * 0 + C1.m()
## made object
class C:
    def __init__(self):
        self.v = @E
def f(x):
    return x * 0 + C().v
## property
class C:
    @property
    def v(self):
        return @E
C1 = C()
def f(x):
    return x * 0 + C1.v
## partial
def helper(k):
    return @E
P = functools.partial(helper, 1)
def f(x):
    return x * 0 + P()
## map
def f(x):
    return x * 0 + sum(map(lambda k: @E, [0]))
## default factory
def f(x):
    return x * 0 + collections.defaultdict(lambda: @E)['a']
## dataclass
@dataclasses.dataclass
class C:
    v: float = dataclasses.field(default_factory=lambda: @E)
def f(x):
    return x * 0 + C().v
## context manager
class T:
    def __enter__(self):
        self.v = @E
        return self
    def __exit__(self, *a):
        pass
def f(x):
    with T() as t:
        y = x * 0
    return y + t.v
## decorator
def timed(g):
    @functools.wraps(g)
    def inner(*a):
        v = @E
        return g(*a) + v
    return inner
@timed
def g(x):
    return x * 0
def f(x):
    return g(x)
## branch
def f(x):
    if x.sum() > 1:
        v = @E
    else:
        v = @E
    return x * 0 + v
## loop
def f(x):
    y = x * 0
    for i in range(2):
        y = y * 0 + (@E)
    return y
## long loop
def f(x):
    y = x * 0
    for i in range(300):
        y[i % 4] = y[(i + 1) % 4] * 0
        if i % 100 == 0:
            y = y * 0 + (@E)
    return y
## comprehension
def f(x):
    return x * 0 + [@E for k in range(2)][-1]
## after a break
def f(x):
    y = x
    if x.max() > 1:
        y = y[x > 1]
    return y.sum() * 0 * x + (@E)
## inner kernel graph
@decorated
def g(x):
    return x * 0 + (@E)
def f(x):
    return g(x) * 1.0
## import inside
def f(x):
    import time, os, random
    return x * 0 + (@E)
## generator
def g():
    yield @E
def f(x):
    return x * 0 + next(g())
## default argument
def h(k=lambda: @E):
    return k()
def f(x):
    return x * 0 + h()
## closure
def outer():
    def inner():
        return @E
    return inner
I = outer()
def f(x):
    return x * 0 + I()
## swallowed
def f(x):
    try:
        v = @E
    except Exception:
        v = -1.0
    return x * 0 + v
## grad
def loss(x):
    return (x * x).sum() + (@E)
G = derived(loss)
def f(x):
    return G(x)
## vmap
def row(x):
    return x * 0 + (@E)
V = rows(row)
def f(x):
    return V(x[None])[0]
"""
# to a function, @F, that C code may call
CALLED_WAYS = """
## partial of it
P = functools.partial(@F)
def f(x):
    return x * 0 + P()
## partial made inside
def f(x):
    return x * 0 + functools.partial(@F)()
## factory
def f(x):
    return x * 0 + collections.defaultdict(@F)['a']
## dataclass factory
@dataclasses.dataclass
class C:
    v: float = dataclasses.field(default_factory=@F)
def f(x):
    return x * 0 + C().v
## mapped
def f(x):
    return x * 0 + [*itertools.starmap(@F, [()])][0]
## iterated
def f(x):
    return x * 0 + next(iter(@F, None))
## in a list
L = [@F]
def f(x):
    return x * 0 + L[0]()
## in a dict
D = {'a': @F}
def f(x):
    return x * 0 + D['a']()
## attribute
class C:
    clock = staticmethod(@F)
C1 = C()
def f(x):
    return x * 0 + C1.clock()
## instance attribute
class C:
    pass
C1 = C()
C1.clock = @F
def f(x):
    return x * 0 + C1.clock()
## default
def h(clock=@F):
    return clock()
def f(x):
    return x * 0 + h()
## argument
def f(x, clock=@F):
    return x * 0 + clock()
"""
# and to what says something
SAID_WAYS = """
## directly
def f(x, n=3):
    s = x.sum()
    @E
    return x * 2
## twice
def f(x, n=3):
    s = x.sum()
    print('before')
    @E
    s = x.max() * 2
    @E
    LOG.info('after')
    return x * 2
## helper
def g(x, s, n):
    @E
    return x * 2
def f(x, n=3):
    return g(x, x.sum(), n)
## loop
def f(x, n=3):
    for i in range(4):
        s = x.sum() + i
        x = x * 0.5
        if i % 2 == 0:
            @E
    return x
## long loop
def f(x, n=3):
    for i in range(300):
        x[i % 4] = x[(i + 1) % 4] * 0.5
        if i % 100 == 0:
            s = x.sum()
            @E
    return x
## branch
def f(x, n=3):
    s = x.sum()
    if s > 7:
        @E
        x = x + 1
    else:
        print('small')
    return x
## before an error
def f(x, n=3):
    s = x.sum()
    @E
    raise ValueError('ends')
## before an error that values decide
def f(x, n=3):
    s = x.sum()
    @E
    if s > 7:
        raise ValueError('ends')
    return x
## before a bad index
def f(x, n=3):
    s = x.sum()
    @E
    return x[(x * s).astype(int)]
## around a loop that values end
def f(x, n=3):
    s = x.sum()
    @E
    while x.sum() > 1:
        x = x * 0.5
    s = x.sum()
    @E
    return x
## number
def f(x, n=3):
    s = n * 2
    @E
    return x * s
## while
def f(x, n=3):
    s = x.sum()
    while s > 3:
        x = x * 0.5
        s = x.sum()
        @E
    return x
## after a write
def f(x, n=3):
    x[0] = 5
    s = x.sum()
    @E
    x[0] = 7
    return x * 1
"""


@dataclass(frozen=True)
class Case:
    """One program in one mode. how: `changes`, `told` or `same`."""

    name: str
    text: str
    how: str
    mode: str


def lines(text: str) -> list[str]:
    return text.strip().splitlines()


def programs(text: str) -> dict[str, str]:
    """By their names."""
    return dict(part.strip().split("\n", 1) for part in text.split("## ")[1:])


# expressions or functions, the mark that they take the place of, the programs, and how their results are compared
TABLES = (
    (CHANGING, "@E", WAYS, "changes"),
    (TOLD, "@E", WAYS, "told"),
    (SAME, "@E", WAYS, "same"),
    (CALLED, "@F", CALLED_WAYS, "changes"),
    (SAID, "@E", SAID_WAYS, "same"),
)


def cases() -> Iterator[Case]:
    """All of them."""
    for sources, mark, ways, how in TABLES:
        for source, (way, text), mode in itertools.product(lines(sources), programs(ways).items(), MODES):
            yield Case(f"{source}: {way}", text.replace(mark, source), how, mode)


@dataclass
class Outcome:
    """What three calls gave: values or errors, what was said, and what lies in the folder."""

    values: list[Any] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    warned: list[str] = field(default_factory=list)  # by the package
    in_numpy: bool = False


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
        Path(path).write_text(text)
    np.save(os.path.join(folder, "data.npy"), np.arange(turn + 1.0))
    np.arange(turn + 2.0).tofile(name + ".b")
    os.makedirs(os.path.join(folder, "d" * (turn + 1)), exist_ok=True)
    os.chdir(os.path.join(folder, "d" * (turn + 1)))
    if turn == 2:
        Path(name + "2").write_text("there")


@contextlib.contextmanager
def logged(text: io.StringIO) -> Iterator[None]:
    """Loggers of programs, and the root's, write to a text."""
    with contextlib.ExitStack() as stack:
        for log in (logging.getLogger("tests.outside"), logging.getLogger()):
            handler = logging.StreamHandler(text)
            handler.setFormatter(logging.Formatter("%(name)s %(levelname)s %(message)s %(funcName)s %(lineno)d"))
            stack.callback(setattr, log, "handlers", log.handlers)
            log.handlers = [handler]
        logging.getLogger("tests.outside").setLevel(logging.INFO)
        yield


@contextlib.contextmanager
def module_of(case: Case, folder: str, mode: str) -> Iterator[Any]:
    """A case's program, as a module whose file is there."""
    name = f"program{next(_NUMBER)}"
    file = os.path.join(folder, f"{name}.py")
    source = f"FOLDER = {folder!r}\nMODE = {mode!r}\n{HEAD}{case.text}\n"
    Path(file).write_text(source)
    sys.modules[name] = module = ModuleType(name)
    module.__file__ = file
    try:
        exec(compile(source, file, "exec"), vars(module))
        yield module
    finally:
        del sys.modules[name]
        linecache.cache.pop(file, None)


_NUMBER = itertools.count()


def run(case: Case, plain: bool) -> Outcome:
    """Three calls of a program, by Python or by the package."""
    random.seed(5)
    np.random.seed(5)
    text, out = io.StringIO(), Outcome()
    with world() as folder, module_of(case, folder, "python" if plain else case.mode) as module, logged(text):
        function = module.decorated(module.f)
        for turn in range(3):
            change(folder, turn)
            with (
                contextlib.redirect_stdout(text),
                contextlib.redirect_stderr(text),
                warnings.catch_warnings(record=True) as warned,
            ):
                warnings.simplefilter("always")
                try:
                    value: Any = np.asarray(function(X * (turn + 1)))
                except Exception as error:
                    value = error
            messages = [str(w.message) for w in warned if w.category is not ResourceWarning]
            ours = [m for m in messages if "runs in NumPy" in m or "was traced" in m]
            out.values.append(value)
            out.warned += ours
            said = text.getvalue() + module.STREAM.getvalue() + "".join(m for m in messages if m not in ours)
            out.said.append(said.replace(folder, ""))
            text.truncate(0)
            text.seek(0)
            names = sorted(n for n in os.listdir(folder) if not n.startswith(("program", "__")))
            out.files.append(" ".join(f"{n}:{os.path.getsize(os.path.join(folder, n))}" for n in names))
        out.in_numpy = not plain and "runs in NumPy" in str(function.why())
    return out


def wrong(case: Case) -> str:
    """What is wrong with a case, in words; nothing where all is right."""
    plain, ours = run(case, True), run(case, False)
    refused = [str(v) for v in ours.values if isinstance(v, (kg.TraceError, kg.UnsupportedError))]
    HOW["refused" if refused else "in NumPy" if ours.in_numpy else "compiled"] += 1
    if refused:
        may_be = case.mode in ("split", "refuse") or case.name.endswith(("grad", "vmap"))
        told = (len(refused) == 3 or case.mode == "split") and all(
            re.search(r"program\d+\.py:\d+: ", text) for text in refused
        )
        return "" if may_be and told else f"is refused: {refused[0][:300]}"
    if case.mode == "warn" and (len({*ours.warned}) < len(ours.warned) or bool(ours.warned) != ours.in_numpy):
        return f"is told {len(ours.warned)} times: {ours.warned}"
    for a, b in zip(plain.values, ours.values, strict=True):
        same = isinstance(b, IndexError) or not isinstance(a, Exception) or str(a) == str(b)
        if not (isinstance(b, type(a)) and same):
            return f"gives {b!r} where Python gives {a!r}"
    return "" if ours.in_numpy and case.how != "same" else difference(case, plain, ours)


def difference(case: Case, plain: Outcome, ours: Outcome) -> str:
    """Where the package's calls have read or done something once."""
    if case.how == "same":
        for name in ("said", "files"):
            if getattr(plain, name) != getattr(ours, name):
                return f"{name}: {getattr(ours, name)} where Python has {getattr(plain, name)}"
        pairs = zip(plain.values, ours.values, strict=True)
        good = all(isinstance(a, Exception) or np.allclose(a, b) for a, b in pairs)
        return "" if good else f"gives {ours.values} where Python gives {plain.values}"
    frozen = case.how == "told" or len({str(v) for v in ours.values}) < 3
    return f"is frozen: {ours.values}" if frozen else ""


HOW: Counter[str] = Counter()  # how cases have run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="cases whose names have this in them")
    parser.add_argument("--mode", default="", help="one mode")
    parser.add_argument("--step", type=int, default=1, help="every n-th case")
    parser.add_argument("--start", type=int, default=0)
    options = parser.parse_args()
    counts: Counter[str] = Counter()
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
