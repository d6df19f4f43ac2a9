"""Random worlds: what a traced function reads or writes outside, changed between its calls, compared with Python.

A world is a value that the function reaches through a root and up to four layers (`world_parts`). Its text is run
twice: once with the function as it is, once decorated. After each change both give the same results and leave the
same world, or the decorated one refuses.

python -m tests.worlds --count 50000 --seed 1
"""

from __future__ import annotations

import collections
import contextlib
import contextvars
import functools
import pathlib
import random
import re
import sys
import textwrap
import types
from collections.abc import Callable, Iterator, Sequence, ValuesView
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import kernelgraph as kg
from tests import random_cases
from tests.object_kinds import ALL_LAYERS as LAYERS
from tests.random_cases import Hang, Outcome, under_alarm
from tests.world_parts import KINDS, PRELUDE, ROOTS

READERS = {
    "in place": "v = $path",
    "helper": "def read():\n    return $path\n\nv = read()",
    "comprehension": "v = [$path for _ in range(1)][0]",
    "lambda": "v = (lambda: $path)()",
    "generator": "v = next($path for _ in (0,))",
    "caught": "try:\n    v = $path\nexcept (AttributeError, LookupError, NameError, TypeError):\n    v = 7.0",
    "twice": "v = $path\nv = $path",
    "late": "y = x + 1\nv = $path",
}
WRITTEN = ("5.0", "x", "x.sum()", "$path + 1", "[$path]", "True")


@dataclass(frozen=True)
class Step:
    """One change between two calls: statements at a level, of a holder's own or the value's."""

    level: int  # 0 is the value, 1 what holds it, ..., one more than there are layers the root
    text: str
    value: str = "0"  # the new value that a replaced part is built from

    def __str__(self) -> str:
        return f"{self.level}: {self.text}"


@dataclass(frozen=True)
class World:
    """All choices that make up one world; its text is a function of them."""

    name: str
    kind: str
    value: str
    use: str
    layers: tuple[tuple[str, str], ...]  # (layer, how it is read), innermost first
    root: str
    reader: str = "in place"
    written: Step | None = None  # what the function itself writes
    turns: tuple[tuple[Step, ...], ...] = ((),)  # the changes before each further call

    @property
    def parts(self) -> frozenset[str]:
        """What the world is made of, in words: `list`, `list: del $o[0]`, `root global`, `writes`."""
        own = {self.kind, f"{self.kind}: {self.use}", f"{self.kind}: {self.value}", f"root {self.root}", self.reader}
        for layer, read in self.layers:
            own |= {layer, f"{layer}: {read}"}
        for step in (s for turn in self.turns for s in turn):
            at = self.kind if not step.level else f"root {self.root}"
            if 0 < step.level <= len(self.layers):
                at = self.layers[step.level - 1][0]
            own |= {f"{at}: {step.text}"}
        return frozenset(own | ({"writes"} if self.written else set()))

    def names(self, text: str, level: int) -> str:
        """A layer's text with the world's own names."""
        text = text.replace("$C", f"{self.name}_C{level}").replace("$R", f"{self.name}_{len(self.layers)}")
        return text.replace("$F", f"{self.name}_F")

    def path(self, level: int) -> str:
        """How the function reaches the holder at a level."""
        text = self.names(ROOTS[self.root].read, 0)
        for place in range(len(self.layers), level, -1):
            text = self.names(self.layers[place - 1][1], place).replace("$o", text)
        return text

    def built(self, value: str, upto: int) -> str:
        """Statements that make the holders up to a level anew."""
        lines = [f"{self.name}_0 = {value}"]
        for place in range(1, upto + 1):
            make = self.names(LAYERS[self.layers[place - 1][0]].make, place)
            lines.append(f"{self.name}_{place} = " + make.replace("$v", f"{self.name}_{place - 1}"))
        return "\n".join(lines)

    def tangent_or_zero(self, step: Step) -> str:
        """The statements of one change."""
        text = self.names(step.text, step.level).replace("$o", f"{self.name}_{step.level}")
        if step.level == 0:
            return text.replace("$v", f"{self.name}_0")
        if "$v" not in text:
            return text
        upto = min(step.level - 1, len(self.layers))
        return self.built(step.value, upto) + "\n" + text.replace("$v", f"{self.name}_{upto}")

    @property
    def body(self) -> str:
        lines = READERS[self.reader].replace("$path", self.path(0))
        if self.written is not None:
            to, level = self.written.text, self.written.level
            to = self.names(to, level).replace("$o", self.path(level)).replace("$v", self.written.value)
            lines += "\n" + to.replace("$path", self.path(0))
        return f"{lines}\nreturn {self.use}\n"

    @property
    def text(self) -> str:
        """What stands in the file: the layers' classes, the holders, the function."""
        defs = [self.names(LAYERS[layer].defs, i + 1) for i, (layer, _) in enumerate(self.layers)]
        root = self.names(ROOTS[self.root].text, 0)
        root = root.replace("$body", textwrap.indent(self.body, "    ")).replace(
            "$deeper", textwrap.indent(self.body, " " * 8)
        )
        return "\n\n".join([*filter(None, defs), self.built(self.value, len(self.layers)), root]) + "\n"

    @property
    def call(self) -> str:
        return self.names(ROOTS[self.root].call, 0)

    def program(self) -> str:
        """A program that prints each call's result: `python FILE` NumPy's, `python FILE traced` ours."""
        head = "import kernelgraph as kg\n\n\ndef deco(f):\n"
        head += "    return kg.kernel_graph(f, device='cpu') if sys.argv[1:] else f\n"
        show = (
            "\n\ndef show():\n    try:\n        print(repr("
            + self.call
            + "))\n    except Exception as error:\n        print(type(error).__name__, error)\n"
        )
        turns = "".join(
            "\n" + "".join(self.tangent_or_zero(s) + "\n" for s in turn) + "show()\n" for turn in self.turns
        )
        return (
            f"{_needed(self.text + turns)}\n{head}\n\nx = np.array([1.0, 2.0])\n{self.text}\n{show}\n\nshow()\n{turns}"
        )


def _needed(text: str) -> str:
    """The prelude's imports, and those of its helpers that the text names."""
    head, *helpers = PRELUDE.split("\n\n\n")
    return (
        "\n\n\n".join([head, *(h for h in helpers if (m := re.match(r"(?:def|class) (\w+)", h)) and m[1] in text)])
        + "\n"
    )


_PRELUDE: dict[str, Any] = {}
exec(PRELUDE, _PRELUDE)


# making them


def random_world(rng: random.Random, name: str, layer: str = "", avoid: frozenset[str] = frozenset()) -> World:
    """A world that Python can compile; if asked, with this layer innermost, and without some parts."""
    while True:
        world = _drawn(rng, name, layer)
        if world.parts & avoid:
            continue
        try:
            compile(world.text + "".join(world.tangent_or_zero(s) + "\n" for t in world.turns for s in t), name, "exec")
            exec(world.text, {**_PRELUDE, "deco": lambda f: f, "__name__": __name__, "__file__": __file__})
        except Exception:  # a set of what has no hash, an array of complex numbers, a property that takes no None
            continue
        return world


def _drawn(rng: random.Random, name: str, wanted: str) -> World:
    only = LAYERS[wanted].only if wanted else ()
    kind = rng.choice(only or [*KINDS, "number", "number", "number", "number", "array"])
    values = KINDS[kind].values
    layers: list[tuple[str, str]] = []
    for level in range(rng.choice((1, 1, 2) if wanted else (0, 1, 1, 1, 2, 2, 3, 4))):
        fitting = [n for n, row in LAYERS.items() if not row.only or (level == 0 and kind in row.only)]
        layer = wanted if wanted in fitting and not layers and rng.random() < 0.9 else rng.choice(fitting)
        layers.append((layer, rng.choice(LAYERS[layer].reads)))
    root = rng.choice([*ROOTS, "global", "global", "global"])
    world = World(name, kind, rng.choice(values), rng.choice(KINDS[kind].uses), tuple(layers), root)
    world = replace(world, reader=rng.choice([*READERS, "in place", "in place"]))
    if rng.random() < 0.2:
        world = replace(world, written=_written(rng, world))
    turns = [tuple(_step(rng, world) for _ in range(rng.choice((0, 1, 1, 1, 1, 2)))) for _ in range(rng.randint(1, 4))]
    return replace(world, turns=tuple(turns))


def _step(rng: random.Random, world: World) -> Step:
    """A change at a random level; now and then one that puts the world back as it was."""
    root = ROOTS[world.root]
    level = rng.randint(0, len(world.layers) + 1)
    value = world.value if rng.random() < 0.2 else rng.choice(KINDS[world.kind].values)
    if level == 0 and KINDS[world.kind].inside:
        return Step(0, rng.choice(KINDS[world.kind].inside))
    if level > len(world.layers) and root.rebind:
        return Step(len(world.layers) + 1, rng.choice(root.rebind), value)
    level = min(max(level, 1), len(world.layers))
    if level:
        row = LAYERS[world.layers[level - 1][0]]
        if row.changes and (not row.others or rng.random() < 0.6):
            return Step(level, rng.choice(row.changes), value)
        if row.others:
            return Step(level, rng.choice(row.others))
    return Step(len(world.layers) + 1, rng.choice(root.rebind or ("pass",)), value)


def _written(rng: random.Random, world: World) -> Step:
    level = rng.randint(0, len(world.layers))
    value = rng.choice(WRITTEN)
    if level == 0 and KINDS[world.kind].inside:
        return Step(0, rng.choice(KINDS[world.kind].inside).replace("$v", "$path"))
    if level:
        row = LAYERS[world.layers[level - 1][0]]
        texts = [t for t in (*row.changes, *row.others) if not t.startswith("($o") or "$C" not in t]
        if texts:
            return Step(level, rng.choice(texts), value)
    if world.root == "global":
        return Step(0, "global $R; $R = $v", value)
    return Step(0, {"closure": "nonlocal r; r = $v"}.get(world.root, "v = $path"), value)


# running them


def plain(value: Any, seen: tuple[int, ...] = ()) -> Any:
    """A value as nested tuples of types, dtypes, shapes and texts: two worlds are the same where these are equal."""
    if isinstance(value, kg.Array):
        value = value.numpy()
    if isinstance(value, (np.ndarray, np.generic)) and value.dtype != object and value.dtype.names is None:
        return "array", value.dtype.str, value.shape, repr(value.tolist())
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes, pathlib.PurePath)):
        return type(value).__name__, repr(value)
    if isinstance(value, np.ufunc):  # which both modules share
        return "ufunc", value.__name__
    if id(value) in seen:
        return "again", len(seen) - seen.index(id(value))
    own = type(value).__name__
    walk = functools.partial(plain, seen=(*seen, id(value)))
    if isinstance(value, np.ndarray):
        return own, value.dtype.str, value.shape, [walk(v) for v in value.ravel().tolist()]
    if isinstance(value, types.CellType):
        try:
            return "cell", walk(value.cell_contents)
        except ValueError:
            return ("cell",)
    if isinstance(value, contextvars.ContextVar):
        return own, walk(value.get(None))
    if isinstance(value, (classmethod, staticmethod)):
        return own, walk(value.__func__)
    if isinstance(value, property):
        return own, walk(value.fget), walk(value.fset)
    held = [] if isinstance(value, type) or not hasattr(value, "__dict__") else [*attributes_of(value).items()]
    if isinstance(value, BaseException):
        return own, walk(value.args), [(n, walk(v)) for n, v in held]
    if isinstance(value, type) and not hasattr(sys.modules.get(value.__module__), "deco"):
        return "class", value.__name__
    if isinstance(value, type):
        held = [(n, v) for n, v in vars(value).items() if not n.startswith("__") or callable(v)]
        return "class", value.__name__, [(n, walk(v)) for n, v in held if n != "f"]
    if isinstance(value, types.FunctionType) and hasattr(value, "registry"):  # what it calls is in a cache, too
        return "function", value.__name__, [(k.__name__, walk(v)) for k, v in value.registry.items()]
    if isinstance(value, types.FunctionType):
        parts = value.__defaults__, value.__kwdefaults__, value.__closure__
        return "function", value.__name__, [walk(p) for p in parts], [(n, walk(v)) for n, v in held]
    if isinstance(value, types.MethodType):
        return "method", walk(value.__func__), walk(value.__self__)
    if isinstance(value, functools.partial):
        return "partial", walk(value.func), walk(value.args), walk(value.keywords)
    for kind in type(value).__mro__:
        slots = vars(kind).get("__slots__", ())
        held += [(n, vars(kind)[n].__get__(value)) for n in slots if n in vars(kind) and _is_set(vars(kind)[n], value)]
    inside = _inside(value, walk, bool(held))
    held = [(n, v) for n, v in held if not (n.startswith("__") and n.endswith("__"))]
    return own, inside, sorted(((str(n), walk(v)) for n, v in held), key=lambda pair: pair[0])


def _inside(value: Any, walk: Callable[[Any], Any], held: bool) -> Any:
    """What a value contains beside its attributes; of one that contains nothing, and holds nothing, its text."""
    if isinstance(value, (dict, types.MappingProxyType)):
        items = dict.items(value) if isinstance(value, dict) else value.items()
        if isinstance(value, collections.OrderedDict):  # whose order `dict` does not know, nor it what `dict` has put
            listed = [k for k in listed_keys(value) if dict.__contains__(value, k)]
            items = [(k, dict.get(value, k)) for k in listed] + [pair for pair in items if pair[0] not in listed]
        return [(walk(k), walk(v)) for k, v in items]
    if isinstance(value, (list, tuple, collections.deque)):
        base = next(b for b in (list, tuple, collections.deque) if isinstance(value, b))
        return [walk(v) for v in base.__iter__(value)]  # type: ignore[attr-defined]
    if isinstance(value, (set, frozenset)):
        return sorted(repr(walk(v)) for v in value)
    if issubclass(type(value), ValuesView):
        return [walk(v) for v in value]
    if hasattr(sys.modules.get(type(value).__module__), "deco"):  # of a class in a world
        return ()
    return "" if held else re.sub(r" at 0x\w+|\w+_(traced|native)\b", "", repr(value))


def listed_keys(value: collections.OrderedDict[Any, Any]) -> Iterator[Any]:
    """An OrderedDict's keys up to the first that was taken out past its class."""
    with contextlib.suppress(KeyError):
        yield from collections.OrderedDict.keys(value)


def attributes_of(value: Any) -> dict[str, Any]:
    """An object's own, whatever its `__getattribute__` says of them."""
    try:
        found: dict[str, Any] = object.__getattribute__(value, "__dict__")
    except AttributeError:  # a method has its function's
        return vars(value)
    return found


def _is_set(slot: Any, holder: Any) -> bool:
    try:
        slot.__get__(holder)
    except AttributeError:
        return False
    return True


def result_of(value: Any, seen: int = 0) -> Any:
    """A result as `plain` has it, but that numbers, NumPy's and ours are the same."""
    if isinstance(value, kg.Array):
        value = value.numpy()
    if isinstance(value, (bool, int, float, complex)) and abs(value) < 2**63:
        value = np.asarray(value)
    if seen < 9 and type(value) in (list, tuple):
        return type(value).__name__, [result_of(v, seen + 1) for v in value]
    if seen < 9 and isinstance(value, dict):
        return type(value).__name__, [(repr(k), result_of(v, seen + 1)) for k, v in value.items()]
    return plain(value)


def loaded(text: str, folder: Path, name: str, deco: Callable[[Any], Any]) -> types.ModuleType:
    """A module of this text, in a file of its own, whose functions are decorated so."""
    path = folder / f"{name}.py"
    if not path.exists():
        path.write_text(text)
    module = types.ModuleType(name)
    module.__dict__.update(deco=deco, __file__=str(path), x=np.array([1.0, 2.0]))
    sys.modules[name] = module
    exec(compile(text, str(path), "exec"), module.__dict__)
    return module


def _world_of(module: types.ModuleType, world: World) -> Any:
    skipped = {f"{world.name}_F", f"{world.name}_F_set", f"{world.name}_F_made"}
    names = [n for n in vars(module) if n.startswith(f"{world.name}_") and n not in skipped]
    return [(n, plain(vars(module)[n])) for n in sorted(names)]


def _outcome(module: types.ModuleType, text: str) -> tuple[Any, BaseException | None]:
    try:
        found = eval(compile(text, str(module.__file__), "eval"), module.__dict__)
        result_of(found)  # errors that follow data come when a result is read
        return found, None
    except Hang:
        raise
    except BaseException as error:
        return None, error.with_traceback(None)  # whose frames hold what the world changes


def _words(error: BaseException) -> str:
    text = re.sub(r"^\S+\.py:\d+: ", "", str(error).split("\n")[0])
    text = re.sub(r"'[^']*'|w\d+_\w+(\.\w+|\[[^]]*\])*", "_", text)
    return f"{type(error).__name__}: {re.sub(r'[0-9.]+', '#', text)[:90]}"


def checked(world: World, mine: types.ModuleType, theirs: types.ModuleType) -> Outcome:
    """The world's calls in both modules; the first difference ends it."""
    calls, refusals = 0, []
    for turn in ((), *world.turns):
        failed = [_changes(world, turn, module) for module in (mine, theirs)]
        if failed[0] != failed[1]:
            return Outcome(calls, tuple(refusals), f"the change {[*map(str, turn)]} gives {failed}")
        before, kept = _world_of(mine, world), _world_of(theirs, world)
        if before != kept:
            return Outcome(
                calls, tuple(refusals), f"the worlds differ after the same change: {_difference(before, kept)}"
            )
        wanted, problem = _outcome(theirs, world.call)
        got, refusal = _outcome(mine, world.call)
        calls += 1
        after, left = _world_of(mine, world), _world_of(theirs, world)
        words = ""
        if isinstance(refusal, kg.KernelGraphError) and not (problem and isinstance(refusal, type(problem))):
            refusals.append(_words(refusal))
            if not re.match(r"\S+\.py:\d+: ", str(refusal)):
                words = f"a refusal without a line: {refusal}"
            elif after not in (before, left):
                words = f"refused, but the world was written: {_difference(after, before)}"
            elif left != kept or world.written:
                break  # the plain function wrote, or what looks the same: from here on the worlds differ
        elif refusal is not None or problem is not None:
            if refusal is None:
                words = f"the plain function raises {problem!r}, ours gives {_shown(got)}"
            elif problem is None:
                words = f"error {refusal!r} for {_shown(wanted)}"
            elif not isinstance(refusal, type(problem)):
                words = f"error {refusal!r} for {problem!r}"
            elif isinstance(refusal, kg.KernelGraphError) and after == before and (left != kept or world.written):
                break  # the plain function wrote before it raised, where ours refused
        elif result_of(got) != result_of(wanted):
            words = f"wrong {_shown(got)} for {_shown(wanted)}"
        if not words and not refusal and after != left:
            words = f"the world differs: {_difference(after, left)}"
        if words:
            return Outcome(calls, tuple(refusals), f"call {calls}: {words}")
    return Outcome(calls, tuple(refusals))


def _difference(one: Any, other: Any) -> str:
    return next((f"{a} for {b}" for a, b in zip(one, other, strict=False) if a != b), "names")[:300]


def _shown(value: Any) -> str:
    return re.sub(r" at 0x\w+", "", repr(result_of(value)))[:160]


def _changes(world: World, turn: tuple[Step, ...], module: types.ModuleType) -> str:
    for step in turn:
        try:
            exec(compile(world.tangent_or_zero(step), str(module.__file__), "exec"), module.__dict__)
        except Exception as error:
            return re.sub(r" at 0x\w+", "", repr(error))
    return ""


def outcomes(worlds: Sequence[World], folder: Path, device: str, label: str) -> Iterator[tuple[World, Outcome]]:
    """Each world's outcome; all stand in one file."""
    text = PRELUDE + "\n\n" + "\n\n".join(w.text for w in worlds)
    theirs = loaded(text, folder, f"{label}_native", lambda f: f)
    mine = loaded(text, folder, f"{label}_traced", lambda f: kg.kernel_graph(f, device=device))
    try:
        yield from under_alarm(worlds, lambda world: checked(world, mine, theirs))
    finally:
        for module in (mine, theirs):
            del sys.modules[module.__name__]


# making them smaller


def _smaller(world: World) -> Iterator[World]:
    for i in range(len(world.turns)):
        if len(world.turns) > 1:
            yield replace(world, turns=world.turns[:i] + world.turns[i + 1 :])
        for j in range(len(world.turns[i])):
            turn = world.turns[i][:j] + world.turns[i][j + 1 :]
            yield replace(world, turns=(*world.turns[:i], turn, *world.turns[i + 1 :]))
    if world.turns == ((),):
        yield replace(world, turns=())
    if world.written:
        yield replace(world, written=None)
    for i in range(len(world.layers)):
        yield _without(world, i)
    if world.root != "global":
        root_level = len(world.layers) + 1
        turns = tuple(tuple(replace(s, text="$R = $v") if s.level == root_level else s for s in t) for t in world.turns)
        yield replace(world, root="global", turns=turns)
    if world.reader != "in place":
        yield replace(world, reader="in place")
    if world.use != "x * v":
        yield replace(world, use="x * v")
    if world.kind != "number":
        number = [tuple(replace(s, value="3.0") for s in t if s.level) for t in world.turns]
        yield replace(world, kind="number", value="2.0", use="x * v", turns=tuple(number))


def _without(world: World, at: int) -> World:
    """The world without a layer; the changes above it move down."""

    def moved(turn: tuple[Step, ...]) -> tuple[Step, ...]:
        kept = (s for s in turn if s.level != at + 1)
        return tuple(replace(s, level=s.level - 1) if s.level > at + 1 else s for s in kept)

    written = world.written
    if written is not None and written.level:
        written = None if written.level == at + 1 else moved((written,))[0]
    layers = world.layers[:at] + world.layers[at + 1 :]
    return replace(world, layers=layers, turns=tuple(moved(t) for t in world.turns), written=written)


# reporting


def suite(layer: str = "", avoid: frozenset[str] = frozenset()) -> random_cases.Suite[World]:
    """Worlds with this layer innermost, if one is given, and without some parts."""
    return random_cases.Suite(
        "worlds",
        20,
        lambda seed, n: random_world(random.Random(f"{seed}:{n}:{layer}"), f"w{n}", layer, avoid),
        outcomes,
        _smaller,
        lambda world, outcome: f"# {world.name}: {outcome.wrong}\n{world.program()}\n",
        words=2,
    )


if __name__ == "__main__":
    parser = random_cases.command_line(__doc__)
    parser.add_argument("--layer", default="", help="worlds with this layer only")
    given = parser.parse_args()
    random_cases.report_and_exit(suite(given.layer), given)
