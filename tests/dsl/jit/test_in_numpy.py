"""Programs whose shapes values decide as no trace can: calls run in NumPy, as the function is written, and say so."""

from __future__ import annotations

import hashlib
import importlib.util
import types
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph.runtime.core.settings import override
from tests.dsl.jit.test_calls_in_numpy import merge_sort

Array = np.ndarray[Any, Any]


def chosen(x: Any) -> Any:
    y = x[x > 0]
    return y, np.sort(y)[::-1], len(y)


def only(x: Any) -> Any:
    return x[x > 1]


def found(x: Any) -> Any:
    places = np.nonzero(x < 0)
    x[places] = 7
    return places, np.flatnonzero(x > 6), np.where(x[0] > 0)[0]


def different(x: Any) -> Any:
    values, counts = np.unique(np.round(x), return_counts=True)
    return {"values": values, "most": values[counts.argmax()]}


def window(x: Any) -> Any:
    low, high = sorted(int(abs(v)) for v in x[0, :2])
    return x[low:high, low:].T


def shapes_of_sides(x: Any) -> Any:
    return x[:1] * 2 if x.sum() > 0 else x[:2]


def each(x: Any) -> Any:
    for place, value in np.ndenumerate(x):
        x[place] = value * place[0]
    return np.vectorize(lambda v: v if v > 1 else 0.5)(x)


def turns_until_again(x: Any) -> Any:
    known: dict[bytes, int] = {}
    y = x > 0
    for i in range(9):
        key = y.tobytes()
        if key in known:
            return i - known[key], y
        known[key] = i
        y = np.roll(y, 1, 1)
    return 9, y


def by_memory(x: Any) -> Any:
    return x.reshape(-1)[:: x.strides[0] // x.itemsize] * x.flags.writeable, x.byteswap()


def digest(x: Any) -> Any:
    return np.frombuffer(hashlib.sha256(x * 2).digest(), np.uint8)


PROGRAMS = [chosen, only, found, different, window, shapes_of_sides, each, turns_until_again, by_memory, digest]


def leaves(x: Any) -> list[Any]:
    if isinstance(x, dict):
        x = [*x.values()]
    return [y for part in x for y in leaves(part)] if isinstance(x, (tuple, list)) else [np.asarray(x)]


def same(got: Any, want: Any) -> None:
    for a, b in zip(leaves(got), leaves(want), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("given", [np.copy, kg.array], ids=["numpy", "kg.Array"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_gives_what_numpy_gives(program: Callable[..., Any], given: Callable[[Array], Any]) -> None:
    decorated = kg.kernel_graph(program, device="cpu")
    for seed in range(3):
        x = np.random.default_rng(seed).normal(size=(4, 5)) * 3
        ours, theirs = given(x), x.copy()
        same(decorated(ours), program(theirs))
        same(ours, theirs)
    assert decorated.why().count("runs in NumPy") == 1
    assert "since at test_in_numpy.py:" in decorated.why()
    assert decorated.explain(ours).startswith(f"{program.__name__} runs in NumPy, as it is written, since at ")


def test_what_is_asked_for_otherwise() -> None:
    x = np.array([1.0, -1.0, 2.0])
    with pytest.warns(UserWarning, match=r"chosen runs in NumPy, as it is written, since at test_in_numpy\.py:\d+"):
        kg.kernel_graph(chosen, device="cpu")(x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        same(kg.kernel_graph(chosen, device="cpu", untraceable="numpy")(x), chosen(x))
    with pytest.raises(kg.UnsupportedError, match="depends on data"):
        kg.kernel_graph(chosen, device="cpu", untraceable="refuse")(x)
    same(kg.kernel_graph(chosen, device="cpu", untraceable="split")(x), chosen(x))
    with pytest.raises(kg.UnsupportedError, match="depends on data"):
        kg.kernel_graph(chosen, device="cpu").graph(x)
    with pytest.raises(kg.OptionError, match="'numpy', 'split' or 'refuse'"):
        kg.kernel_graph(untraceable="python")
    with pytest.raises(kg.UnsupportedError, match="depends on data"):  # NumPy has no derivatives
        kg.grad(lambda x: np.sort(x[x > 0]).sum())(x)


def test_results_are_nobodys() -> None:
    kept = np.arange(3.0)

    def function(x: Any) -> Any:
        y = x[x > 0]
        return y, y[::2], x, kept

    x = np.array([1.0, 2.0, 3.0])
    y, part, given, other = kg.kernel_graph(function, device="cpu")(x)
    assert given is x
    y[0] = kept[0] = 9
    same((part, other), (np.array([1.0, 3.0]), np.arange(3.0)))


def test_what_is_outside_is_read_at_each_call_and_compiled_when_it_can_be() -> None:
    sizes = {"least": 2}

    def function(x: Any) -> Any:
        return x[x > sizes["least"]] if sizes["least"] else x + 1

    decorated = kg.kernel_graph(function, device="cpu")
    x = np.arange(5)
    same(decorated(x), x[3:])
    sizes["least"] = 3
    same(decorated(x), x[4:])
    sizes["least"] = 0
    same(decorated(x), x + 1)
    assert "compiled" in decorated.why()


def test_random_numbers_are_drawn_at_each_call() -> None:
    generator = np.random.default_rng(3)

    def noisy(x: Any) -> Any:
        return x + generator.normal(size=3)

    def shuffled(x: Any) -> Any:
        x = x.copy()
        np.random.shuffle(x)
        return x

    decorated = kg.kernel_graph(noisy, device="cpu", untraceable="numpy")
    got = [np.asarray(decorated(np.zeros(3))) for _ in range(3)]
    again = np.random.default_rng(3)
    same(got, [again.normal(size=3) for _ in range(3)])
    same(np.sort(kg.kernel_graph(shuffled, device="cpu", untraceable="numpy")(np.arange(9))), np.arange(9))
    with pytest.raises(kg.UnsupportedError, match="would draw while tracing"):
        kg.kernel_graph(noisy, device="cpu", untraceable="refuse")(np.zeros(3))


def test_containers_may_grow_as_values_decide() -> None:
    def runs(x: Any) -> Any:
        found: list[Any] = []
        counts: dict[str, int] = {}
        for v in x:
            if v > 0:
                found.append(v)
            else:
                counts[f"{len(found)}"] = len(counts)
        return np.array(found), counts

    decorated = kg.kernel_graph(runs, device="cpu", untraceable="numpy")
    for x in (np.array([1.0, -1, 2, 0]), np.array([-1.0, -1, -2, 5])):
        same(decorated(x), runs(x))


def test_numbers_decide_which_calls_do() -> None:
    def function(x: Any, n: int) -> Any:
        if n > 2:
            return x[x > n]
        return x * n

    decorated = kg.kernel_graph(function, device="cpu")
    for n in (1, 5, 2, 3, 1):
        same(decorated(np.arange(6), n), function(np.arange(6), n))
    assert decorated.why().count("runs in NumPy") == 2


def test_errors_are_numpys() -> None:
    decorated = kg.kernel_graph(lambda x: x[x > 0][100], device="cpu")
    for _ in range(2):
        with pytest.raises(IndexError, match="index 100 is out of bounds for axis 0 with size 2"):
            decorated(np.array([1.0, 2.0]))
    with override(verify=True):
        same(kg.kernel_graph(chosen, device="cpu")(np.arange(-2.0, 3)), chosen(np.arange(-2.0, 3)))


def test_what_objects_hold() -> None:
    class Heap:
        def __init__(self) -> None:
            self.items, self.count = np.arange(6.0), 0

        @kg.kernel_graph(device="cpu")
        def drop(self, least: float) -> Any:
            self.items = self.items[self.items > least]
            self.count += 1
            return self.items.sum()

    heap = Heap()
    for least in (0.5, 2.5, 3.5):
        same(heap.drop(least), np.arange(6.0)[np.arange(6.0) > least].sum())
    assert heap.count == 3 and len(heap.items) == 2


def circle(a: Any, b: Any, c: Any) -> Any:
    """Rougier, From Python to NumPy, voronoi.py."""
    first, second = b - a, c - b
    if np.abs(first[0]) <= 1e-9 and np.abs(second[1]) <= 1e-9:
        x, y = 0.5 * (b[0] + c[0]), 0.5 * (a[1] + b[1])
    else:
        slope, other = first[1] / first[0], second[1] / second[0]
        if np.abs(slope - other) <= 1e-9:
            return None
        x = (slope * other * (a[1] - c[1]) + other * (a[0] + b[0]) - slope * (b[0] + c[0])) / (2 * (other - slope))
        y = -1 * (x - (a[0] + b[0]) / 2) / slope + (a[1] + b[1]) / 2
    return x, y, np.sqrt((x - a[0]) ** 2 + (y - a[1]) ** 2)


def relaxed(costs: Any) -> Any:
    """As BellmanFord there: a loop that ends by value, whose array is a part of another one."""
    padded = np.zeros((costs.shape[0] + 2, costs.shape[1] + 2))
    inner = padded[1:-1, 1:-1]
    inner[0, 0] = 1
    while inner[-1, -1] == 0:
        around = np.stack([padded[:-2, 1:-1], padded[2:, 1:-1], padded[1:-1, :-2], padded[1:-1, 2:], inner])
        inner[...] = around.max(axis=0) * costs
    return inner


def test_programs_of_a_book() -> None:
    decorated = kg.kernel_graph(circle, device="cpu")
    points = np.array([[0.0, 1.0], [2.0, 3.0], [1.0, 5.0]])
    same(decorated(*points), circle(*points))
    assert decorated(*np.array([[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]])) is None
    costs = np.random.default_rng(1).uniform(0.5, 1, (4, 5))
    same(kg.kernel_graph(relaxed, device="cpu")(costs), relaxed(costs))
    counted = kg.kernel_graph(lambda x: np.bincount(x), device="cpu")
    same(counted(np.array([1, 4, 1])), np.bincount([1, 4, 1]))


INSTALLED = """
import numpy as np
state = {"calls": 0}

def counted(x):
    state["calls"] += 1
    return x + state["calls"]

total = 0

def summed(x):
    global total
    total = total + 1
    return x * total

def strided(x):
    return x.reshape(-1)[:: x.strides[0] // x.itemsize]
"""


def installed(folder: Path, text: str) -> Any:
    """A module as an installed package has it."""
    file = folder / "site-packages" / "counting" / "counting.py"
    file.parent.mkdir(parents=True)
    file.write_text(text)
    spec = importlib.util.spec_from_file_location("counting", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("name", "inside"), [("counted", False), ("summed", False), ("strided", False), ("strided", True)]
)
def test_what_an_installed_package_does_that_no_trace_can(name: str, inside: bool, tmp_path: Path) -> None:
    theirs = getattr(installed(tmp_path / "a", INSTALLED), name)
    numpys = getattr(installed(tmp_path / "b", INSTALLED), name)
    function = (lambda x: theirs(x) * 2) if inside else theirs
    ours = kg.kernel_graph(function, device="cpu", untraceable="numpy")
    x = np.arange(12.0).reshape(4, 3)
    for _ in range(3):
        same(ours(x), numpys(x) * 2 if inside else numpys(x))
    assert "runs in NumPy" in ours.why()
    with pytest.raises(kg.KernelGraphError, match="counting.py:[0-9]+: " if not inside else "test_in_numpy.py:"):
        kg.kernel_graph(function, device="cpu", untraceable="refuse")(x)


def test_compiled_code_of_others_gets_values() -> None:
    text = "def picky(x):\n if type(x).__module__ != 'numpy': raise TypeError('no matching signature')\n return x + 1"
    made: dict[str, Any] = {}
    exec(compile(text, "fast/_fast.pyx", "exec"), made)
    ours = kg.kernel_graph(lambda x: made["picky"](x * 2), device="cpu", untraceable="numpy")
    same(ours(np.ones(3)), np.full(3, 3.0))
    assert "compiled code knows no traced values" in ours.why()


def test_each_line_is_warned_of_once() -> None:
    @kg.kernel_graph(device="cpu")
    def levels(x: Any) -> Any:
        return np.unique(x)

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for n in range(3, 8):
            levels(np.arange(float(n)))
    assert len([w for w in said if "runs in NumPy" in str(w.message)]) == 1


class Log:
    def __init__(self) -> None:
        self.seen: list[float] = []


def text_of_number(x: Any, n: Any) -> str:
    return f"{x.sum() if n > 0 else 0.0}"


def text_of_list(x: Any, numbers: Any) -> str:
    return f"{x.sum() + len(numbers)}"


def text_of_object(x: Any, log: Any) -> str:
    log.seen.append(float(x.sum()))
    return f"{log.seen[-1]} {len(log.seen)}"


def text_of_generator(x: Any, rng: Any) -> str:
    return f"{x.sum() + rng.random()}"


NEW_KEYS: dict[Callable[..., str], Callable[[int], Any]] = {  # by what each call differs from those before
    text_of_number: lambda i: 1.0 + i,
    text_of_list: lambda i: [1.0] * i,
    text_of_object: lambda i: Log(),
    text_of_generator: np.random.default_rng,
}


@pytest.mark.parametrize("function", NEW_KEYS)
def test_not_each_call_of_ever_new_keys_is_traced(function: Callable[..., str]) -> None:
    compiled = kg.kernel_graph(function, device="cpu", untraceable="numpy")
    x = np.ones(3)
    for i in range(100):
        assert compiled(x, NEW_KEYS[function](i)) == function(x, NEW_KEYS[function](i))
    assert compiled.why().count("runs in NumPy") < 20


def test_a_key_that_can_be_traced_is_after_many_that_cannot() -> None:
    @kg.kernel_graph(device="cpu", untraceable="numpy")
    def f(x: Any) -> Any:
        return f"{x.sum()}" if len(x) > 1 else x + 1

    for n in range(2, 40):
        assert f(np.ones(n)) == f"{float(n)}"
    for _ in range(40):
        np.testing.assert_array_equal(f(np.ones(1)), [2.0])
    assert f.why().count("traced for") == 1


def steps_to(k: int) -> int:
    return 0 if k == 0 else 1 + steps_to(k - 1)


def added_deeply(x: Any, n: int) -> Any:
    return x if n == 0 else added_deeply(x + 1, n - 1)


def added_by_methods(x: Any, n: int) -> Any:
    class Chain:
        def __init__(self, length: int) -> None:
            self.rest = Chain(length - 1) if length else None

        def total(self, x: Any) -> Any:
            return x if self.rest is None else self.rest.total(x + 1)

    return Chain(n).total(x)


def counted_deeply(x: Any, n: int) -> Any:
    return x * steps_to(n)


@pytest.mark.parametrize("function", [added_deeply, added_by_methods, counted_deeply])
def test_recursion_that_python_allows_is_allowed(function: Any) -> None:
    compiled, x = kg.kernel_graph(function, device="cpu", untraceable="numpy"), np.ones(2)
    for n in (350, 3, 350):
        assert np.asarray(compiled(x, n)).tolist() == function(x, n).tolist()
    with pytest.raises(RecursionError):
        compiled(x, -1)


def test_a_warning_of_loops_says_each_thing_once() -> None:
    x = np.random.default_rng(0).random(100)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert np.array_equal(kg.kernel_graph(merge_sort, device="cpu")(x), np.sort(x))
    assert [str(w.message).count("turn by turn") <= 1 for w in said] == [True]


class Plain:
    def __init__(self, x: Any) -> None:
        self.x = x


class Slotted:
    __slots__ = ("more", "x")

    def __init__(self, x: Any) -> None:
        self.x = x


HOLDERS: dict[str, Any] = {
    "namespace": lambda x: types.SimpleNamespace(x=x),
    "plain": Plain,
    "slots": Slotted,
    "nested": lambda x: Plain(types.SimpleNamespace(x=x)),
    "in a list": lambda x: [Plain(x)],
    "in a tuple": lambda x: (Slotted(x), {"k": Plain(x)}),
}


def innermost(holder: Any) -> Any:
    while isinstance(holder, (list, tuple)) or not isinstance(holder.x, (np.ndarray, kg.Array)):
        holder = holder[0] if isinstance(holder, (list, tuple)) else holder.x
    return holder


@pytest.mark.filterwarnings("ignore::kernelgraph.FallbackWarning")
@pytest.mark.parametrize("kind", HOLDERS)
def test_an_array_of_ours_that_is_stored_in_numpy_stays_itself(kind: str) -> None:
    def store(holder: Any, x: Any) -> Any:
        own = innermost(holder)
        own.more = None if x.sum() > 0 else 1
        x += 1  # which is seen in what holds it
        found = own.x * 2
        own.x = x
        return found

    compiled = kg.kernel_graph(store, device="cpu")
    x, y = kg.asarray(np.ones(2)), kg.asarray(np.zeros(2))
    holder = HOLDERS[kind](x)
    assert compiled(holder, x).numpy().tolist() == [4, 4] and innermost(holder).x is x
    assert compiled(holder, y).numpy().tolist() == [4, 4] and innermost(holder).x is y
    assert (x.numpy().tolist(), y.numpy().tolist()) == ([2, 2], [1, 1])
    assert compiled(holder, y).numpy().tolist() == [4, 4] and innermost(holder).x is y
    assert "runs in NumPy" in compiled.why()


@pytest.mark.parametrize("count", [1, 254, 255, 256, 1000])
def test_lists_of_any_length(count: int) -> None:
    function = kg.kernel_graph(lambda numbers, x: np.unique(x) + sum(numbers), device="cpu", untraceable="numpy")
    for scale in (1, 2, 3):
        assert function([scale] * count, np.ones(2)).tolist() == [1 + scale * count]
