"""Random programs over arrays: views, aliases, assignment, `out=` and masks on every layout, compared with NumPy.

Compared are values, dtypes, shapes, **and what was written to the arguments**; where NumPy raises, ours does in kind.

python -m tests.programs --count 50000 --seed 1
"""

from __future__ import annotations

import ast
import copy
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import kernelgraph as kg
from tests import random_cases
from tests.program_parts import COMPUTED, DTYPES, KEYS, LAYOUTS, MADE, NAMED, NUMBERS, PRELUDE, SHAPES, WHOLE, WRITES
from tests.random_cases import Outcome, describe_refusal, names_in_file, under_alarm

MOST, LARGEST = 64, 100  # elements of an array, and their size: sums are exact, casts to int8 defined
NEAR = {"e": 1e-2, "f": 1e-5, "d": 1e-12, "F": 1e-5, "D": 1e-12}
_SCOPE: dict[str, Any] = {}
exec(PRELUDE, _SCOPE)


@dataclass(frozen=True)
class Program:
    """One function's text, and how its arguments are made."""

    name: str
    setup: tuple[tuple[str, str], ...]  # (name, expression); `K` in it is the turn's number
    arguments: tuple[str, ...]
    lines: tuple[str, ...]
    results: tuple[str, ...]
    split: bool = False

    @property
    def text(self) -> str:
        body = "\n".join(self.lines).replace("\n", "\n    ")
        ends = ", ".join(self.results) + ("," if len(self.results) == 1 else "")
        heads = ", ".join(_parameters(self.arguments))
        return f"def {self.name}({heads}):\n    {body or 'pass'}\n    return {f'({ends})' if ends else 'None'}\n"

    def program(self) -> str:
        """A program that prints both: `python FILE` NumPy's, `python FILE traced` ours."""
        options = ", untraceable='split'" if self.split else ""
        made = "".join(f"    {name} = {text}\n" for name, text in self.setup)
        kept = ", ".join(name for name, _ in self.setup)
        return (
            f"import sys\n\nimport kernelgraph as kg\n{PRELUDE}\n\n{self.text}\n\n"
            f"f = kg.kernel_graph({self.name}, device='cpu'{options}) if sys.argv[1:] else {self.name}\n"
            f"for K in range(2):\n{made}    print(f({', '.join(self.arguments)}))\n    print('arguments', {kept})\n"
        )


def _parameters(arguments: tuple[str, ...]) -> list[str]:
    """The parameters' names: `a b c`, whatever is passed."""
    return list("abc"[: len(arguments)])


# making them


def random_program(rng: random.Random, name: str) -> Program:
    """Statements that are tried in NumPy as they are drawn; the last may be one that NumPy refuses."""
    program = Program(name, *_drawn_arguments(rng), (), (), rng.random() < 0.25)
    state = _started(program, 0)
    while state is None or not _is_small(state):
        program = Program(name, *_drawn_arguments(rng), (), (), rng.random() < 0.25)
        state = _started(program, 0)
    for _ in range(rng.randint(3, 10)):
        for _ in range(20):
            template = rng.choice(MADE if rng.random() < 0.55 else WRITES)
            line = _filled(rng, template, state)
            problem = _run(line, state)
            if problem is None and _is_small(state):
                program = replace(program, lines=(*program.lines, line))
                break
            if isinstance(problem, (ValueError, TypeError, IndexError, OverflowError)) and rng.random() < 0.01:
                failing = _returned(replace(program, lines=(*program.lines, line)), state)
                made = re.match(r"(v\d+) = ", line)
                return replace(failing, results=(*failing.results, made[1])) if made else failing
            state = _replayed(program)
    return _returned(program, state)


def _returned(program: Program, state: dict[str, Any]) -> Program:
    names = [n for n, v in state.items() if len(n) < 4 and isinstance(v, (np.ndarray, np.generic)) and n not in "abc"]
    return replace(program, results=tuple(names[-6:]) or ("a",))


def _drawn_arguments(rng: random.Random) -> tuple[tuple[tuple[str, str], ...], tuple[str, ...]]:
    setup, arguments, shape = [], [], rng.choice(SHAPES)
    dtype = rng.choice(DTYPES)
    for name in "xyz"[: rng.choice((1, 2, 2, 3))]:
        shape = shape if rng.random() < 0.6 else rng.choice(SHAPES)
        dtype = dtype if rng.random() < 0.7 else rng.choice(DTYPES)
        text = rng.choice(LAYOUTS).replace("$x", f"made({shape}, {dtype!r}, K + {len(setup)})")
        setup.append((name, text))
        arguments.append(name)
    kind = rng.random()
    if kind < 0.05 and len(arguments) > 1:
        arguments[1] = arguments[0]
    elif kind < 0.1 and len(arguments) > 1:
        arguments[:2] = ["x[1:]", "x[:-1]"]
    elif kind < 0.15:
        arguments[0] = "x.T"
    return tuple(setup), tuple(arguments)


def _started(program: Program, turn: int) -> dict[str, Any] | None:
    state: dict[str, Any] = {**_SCOPE, "K": turn}
    try:
        for name, text in program.setup:
            state[name] = eval(text, state)
        given = [eval(text, state) for text in program.arguments]
    except (ValueError, IndexError):
        return None
    return {**_SCOPE, **dict(zip("abc", given, strict=False))}


def _replayed(program: Program) -> dict[str, Any]:
    state = _started(program, 0)
    assert state is not None
    for line in program.lines:
        _run(line, state)
    return state


def _run(line: str, state: dict[str, Any]) -> Exception | None:
    try:
        exec(_compiled(line), state)
    except Exception as error:
        return error
    return None


_CODES: dict[str, Any] = {}


def _compiled(line: str) -> Any:
    if len(_CODES) > 20_000:
        _CODES.clear()
    if line not in _CODES:
        _CODES[line] = compile(line, "<program>", "exec")
    return _CODES[line]


def _is_small(state: dict[str, Any]) -> bool:
    """Whether all arrays are small and of small finite numbers."""
    for value in state.values():
        if isinstance(value, (np.ndarray, np.generic)):
            if value.size > MOST or value.ndim > 3 or value.dtype.kind not in "?biufc" or value.dtype.kind == "u":
                return False
            if value.size and not (np.abs(value).max() <= LARGEST if value.dtype != bool else True):
                return False
    return True


def _filled(rng: random.Random, template: str, state: dict[str, Any]) -> str:
    """A template with names, indices and numbers; new names follow the old ones."""
    arrays = [n for n, v in state.items() if len(n) < 4 and isinstance(v, (np.ndarray, np.generic))]
    fresh = sum(n[0] == "v" and n[1:].isdigit() for n in state)
    text = template
    chosen = {s: rng.choice(arrays) for s in "abc"}
    while "$k" in text:
        at = text.index("$k")
        subject = re.search(r"(\$[abc])[.\w]*\[$", text[:at]) or re.search(r"(\$[abc])", text)
        text = text[:at] + _key(rng, state, chosen[subject[1][1]] if subject else "a") + text[at + 2 :]
    for slot, options in (("$j", COMPUTED), ("$s", NUMBERS), ("$d", NAMED), ("$i", ("0", "-1", "1"))):
        while slot in text:
            text = text.replace(slot, rng.choice(options), 1)
    for slot, name in chosen.items():
        text = text.replace(f"${slot}", name)
    return text.replace("$n", f"v{fresh}").replace("$m", f"v{fresh + 1}")


def _key(rng: random.Random, state: dict[str, Any], name: str) -> str:
    array = state[name]
    if rng.random() < 0.4 or not array.ndim:
        return rng.choice(WHOLE).replace("$a", name)
    return ", ".join(rng.choice(KEYS) for _ in range(rng.randint(1, array.ndim)))


# running them


def _called(function: Any, program: Program, turn: int) -> tuple[Any, dict[str, Any], BaseException | None]:
    state: dict[str, Any] = {**_SCOPE, "K": turn}
    for name, text in program.setup:
        state[name] = eval(text, state)
    given = [eval(text, state) for text in program.arguments]
    try:
        result, problem = function(*given), None
        if function.__class__ is kg.KernelGraph and result is not None:
            for leaf in result:
                if isinstance(leaf, kg.Array):
                    leaf.wait()
    except Exception as error:
        result, problem = None, error
    return result, {name: state[name] for name, _ in program.setup}, problem


class Apart(np.ndarray[Any, Any]):
    """An array that reads what is assigned to its elements, and where, before it writes, as NumPy does not always where
    memory overlaps (numpy/numpy#26844): `b[1] = b[:, -1]` reads in row 1 what it has written there."""

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(copy.deepcopy(key), value.copy() if isinstance(value, np.ndarray) else value)


class Wrapping(Apart):
    """One that also wraps NumPy's integers that it cannot hold: NumPy raises, and no call can know it beforehand."""

    def __setitem__(self, key: Any, value: Any) -> None:
        wraps = isinstance(value, np.integer) and self.dtype.kind == "i"
        super().__setitem__(key, value.astype(self.dtype) if wraps else value)


def _wanted_in(
    kind: type[Apart], function: Any, program: Program, turn: int
) -> tuple[Any, dict[str, Any], BaseException | None]:
    """What NumPy gives of arrays of this kind."""
    return _called(lambda *given: function(*(x.view(kind) for x in given)), program, turn)


def _wraps_as_documented(function: Any, program: Program, turn: int, got: Any, ours: dict[str, Any]) -> bool:
    """Whether all that differs is that a computed integer of NumPy's, assigned to an element, is wrapped."""
    wanted, written, problem = _wanted_in(Wrapping, function, program, turn)
    return problem is None and not _compared(program, turn, got, ours, wanted, written)


def _is_exact(value: Any) -> bool:
    return _is_small({"v": value})


def checked(program: Program, function: Any, device: str) -> Outcome:
    """Two calls with other numbers; the first difference ends it."""
    options = {"untraceable": "split"} if program.split else {}
    traced = kg.kernel_graph(function, device=device, **options)
    for turn in range(2):
        wanted, written, problem = _called(function, program, turn)
        if problem is None and turn and not all(map(_is_exact, [*_leaves(wanted), *written.values()])):
            return Outcome(turn)
        if isinstance(problem, (NameError, AttributeError)):
            return Outcome(turn)  # no program (one that is being made smaller)
        got, ours, refusal = _called(traced, program, turn)
        words, refused = "", ""
        if refusal is not None:
            if problem is not None and isinstance(refusal, _public(problem)):
                return Outcome(turn + 1)
            if not isinstance(refusal, kg.KernelGraphError):
                words = f"error {refusal!r} for {_shown(wanted)}"
            elif not re.match(r"\S+\.py:\d+: ", str(refusal)):
                words = f"a refusal without a line: {refusal}"
            else:
                kind = "" if problem is None else f"for {_public(problem).__name__} "
                refused = kind + describe_refusal(refusal)
                clean = _called(lambda *_: None, program, turn)[1]
                words = _difference(ours, clean)
                if problem is not None and not _difference(ours, written):
                    words = ""  # NumPy's error, of another class, comes after the same writes
                words = words and f"refused ({refusal}), but an argument was written: {words}"
        elif problem is not None:
            known = (
                _wraps_as_documented(function, program, turn, got, ours)
                if isinstance(problem, OverflowError)
                else (
                    _by_values(problem) and (_is_unchecked_on(device, problem) or _is_unread(program, turn, got, ours))
                )
            )
            if known:
                return Outcome(turn + 1)
            words = f"NumPy raises {problem!r}, ours gives {_shown(got)}"
        else:
            words = _compared(program, turn, got, ours, wanted, written)
            if words:
                wanted, written, problem = _wanted_in(Apart, function, program, turn)
                if problem is None and not _compared(program, turn, got, ours, wanted, written):
                    words = ""
        if words or refused:
            return Outcome(turn + 1, (refused,) if refused else (), f"call {turn + 1}: {words}" if words else "")
    return Outcome(2)


def _compared(program: Program, turn: int, got: Any, ours: Any, wanted: Any, written: Any) -> str:
    """The first difference in results or in what was written, in words."""
    pairs = enumerate(zip(_leaves(got), _leaves(wanted), strict=True))
    wrong = ((i, g, v, w) for i, (g, v) in pairs if (w := _unlike(g, v)))
    words = next((f"result {i}: {w}" for i, g, v, w in wrong if not is_rounding(program, turn, g, v)), "")
    return words or _difference(ours, written)


def _public(problem: BaseException) -> type[BaseException]:
    """The error's type, as far as programs can name it."""
    return next(kind for kind in type(problem).__mro__ if not kind.__module__.startswith("numpy._core"))


def _by_values(problem: BaseException) -> bool:
    """Whether it depends on values: these are checked only where somebody reads what comes of them."""
    words = "out of bounds for (axis|size)|zero-size|input values to the"
    return re.search(words, str(problem)) is not None


def _is_unchecked_on(device: str, problem: BaseException) -> bool:
    """Whether nothing waits there to see that index or number of elements."""
    return device.startswith("cuda") and "input values to the" not in str(problem)


class _AnyElements(ast.NodeTransformer):
    """`a[key]` becomes `any_elements(a, key)`, `a.max()` `any_extreme(a, "max")`."""

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        if not isinstance(node.func, ast.Attribute) or node.func.attr not in ("max", "min") or node.args:
            return node
        return ast.Call(ast.Name("any_extreme", ast.Load()), [node.func.value, ast.Constant(node.func.attr)], [])

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        self.generic_visit(node)
        if not isinstance(node.ctx, ast.Load):
            return node
        key = ast.Subscript(ast.Name("s_", ast.Load()), node.slice, ast.Load())
        return ast.Call(ast.Name("any_elements", ast.Load()), [node.value, key], [])


def _any_extreme(array: Any, name: str) -> Any:
    """The least or greatest element; of no elements any number."""
    return getattr(array, name)() if np.size(array) else np.ones((), array.dtype)[()]


def _any_elements(array: Any, key: Any) -> Any:
    """array[key]; where an index is out of bounds, elements of that shape."""
    try:
        return array[key]
    except IndexError:
        keys = key if isinstance(key, tuple) else (key,)
        return array[tuple(np.zeros_like(k) if getattr(k, "dtype", np.dtype(bool)).kind in "iu" else k for k in keys)]


def _is_unread(program: Program, turn: int, got: Any, ours: dict[str, Any]) -> bool:
    """Whether all comes out as if the statements that fail in NumPy were not there, or found any elements: nobody reads
    what they compute."""
    theirs: dict[str, Any] = {**_SCOPE, "K": turn}
    for name, text in program.setup:
        theirs[name] = eval(text, theirs)
    given = [eval(text, theirs) for text in program.arguments]
    state = {
        **_SCOPE,
        "any_elements": _any_elements,
        "any_extreme": _any_extreme,
        "s_": np.s_,
        **dict(zip("abc", given, strict=False)),
    }
    for line in program.lines:
        problem = _run(line, state)
        if isinstance(problem, IndexError) or "zero-size" in str(problem):
            _run(ast.unparse(_AnyElements().visit(ast.parse(line))), state)
    wanted = [state.get(name) for name in program.results]
    if any(value is None for value in wanted) or any(map(_unlike, _leaves(got), wanted)):
        return False
    return not _difference(ours, {name: theirs[name] for name in ours})


def is_rounding(program: Program, turn: int, got: Any, want: Any) -> bool:
    """Whether a result differs by some last digits of a less precise array that it was computed from: complex64 signs
    are as good as complex64 where they have become complex128."""
    got, want, state = np.asarray(got), np.asarray(want), _started(program, turn)
    if state is None or want.dtype.kind not in "fc" or (got.dtype, got.shape) != (want.dtype, want.shape):
        return False
    precision = 0.0
    for line in program.lines:
        _run(line, state)
        arrays = [v for v in state.values() if isinstance(v, (np.ndarray, np.generic)) and v.dtype.char in "fdFD"]
        precision = max([precision, *(float(np.finfo(v.dtype).eps) for v in arrays)])
    most = np.abs(want).max(initial=0)
    return bool(np.allclose(got, want, rtol=0, atol=4 * precision * most, equal_nan=True))


def _leaves(result: Any) -> list[Any]:
    return [] if result is None else list(result)


def _difference(ours: dict[str, Any], theirs: dict[str, Any]) -> str:
    return next((f"written to {name}: {w}" for name in ours if (w := _unlike(ours[name], theirs[name]))), "")


def _unlike(got: Any, want: Any) -> str:
    """In words, how one array differs from the other."""
    got, want = np.asarray(got), np.asarray(want)
    if got.dtype != want.dtype or got.shape != want.shape:
        return f"{got.dtype}{list(got.shape)} for {want.dtype}{list(want.shape)}"
    near = NEAR.get(want.dtype.char)
    if near is None:
        same = np.array_equal(got, want)
    else:
        same = np.allclose(got, want, rtol=near, atol=near * LARGEST, equal_nan=True)
    return "" if same else f"{got.tolist()} for {want.tolist()}"


def _shown(value: Any) -> str:
    return re.sub(r" at 0x\w+", "", repr([np.asarray(v).tolist() for v in _leaves(value)]))[:200]


def outcomes(programs: Sequence[Program], folder: Path, device: str, label: str) -> Iterator[tuple[Program, Outcome]]:
    """Each program's outcome; all stand in one file."""
    names = names_in_file([PRELUDE, *(p.text for p in programs)], folder, label)
    return under_alarm(programs, lambda program: checked(program, names[program.name], device))


# making them smaller


def _smaller(program: Program) -> Iterator[Program]:
    for i in reversed(range(len(program.lines))):
        yield replace(program, lines=program.lines[:i] + program.lines[i + 1 :])
    for i in range(len(program.results)):
        if len(program.results) > 1:
            yield replace(program, results=program.results[:i] + program.results[i + 1 :])
    if program.split:
        yield replace(program, split=False)
    if program.results != ("a",):
        yield replace(program, results=("a",))
    for i, (name, text) in enumerate(program.setup):
        for simple in (
            re.sub(r"K \+ \d", "K", text),
            (re.findall(r"made\(\([^)]*\), '[^']*', [^)]*\)", text) or [text])[0],
        ):
            if simple != text:
                yield replace(program, setup=(*program.setup[:i], (name, simple), *program.setup[i + 1 :]))
    if len(program.arguments) > 1:
        yield replace(program, arguments=program.arguments[:-1])


# reporting


def _shown_case(program: Program, outcome: Outcome) -> str:
    setup = "; ".join(f"{name} = {text}" for name, text in program.setup)
    called = ", ".join(program.arguments) + (" (split)" if program.split else "")
    return f"# {outcome.wrong[:400]}\n# {setup}; called with {called}\n{program.text}"


SUITE = random_cases.Suite(
    "programs",
    50,
    lambda seed, number: random_program(random.Random(f"{seed}:{number}"), f"p{number}"),
    outcomes,
    _smaller,
    _shown_case,
)


if __name__ == "__main__":
    random_cases.report_and_exit(SUITE, random_cases.command_line(__doc__).parse_args())
