"""Containers of thousands: answers, kinds of numbers and changed arguments are Python's, and no call takes long."""

from __future__ import annotations

import bisect
import copy
import functools
import heapq
import itertools
import time
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kernelgraph as kg
from kernelgraph.dsl.core.spec import MOST_SCALARS
from kernelgraph.dsl.jit.signature import MOST_NUMBERS

SECONDS = 5.0  # of a first call, of the processor's time
RNG = np.random.default_rng(1)
X = RNG.random(600)
TABLE = [[float(i * j % 7) for j in range(40)] for i in range(100)]
WORDS = ["the", "quick", "brown", "fox", "jumps", "over", "the", "lazy", "dog"] * 300
Pair = namedtuple("Pair", "a b")


@dataclass
class Item:
    price: float
    count: int


class Body:
    def __init__(self, x: float) -> None:
        self.x, self.v = x, 1.0

    def step(self, dt: float) -> None:
        self.x += dt * self.v
        self.v -= dt * self.x


def counted(words: Any) -> Any:
    found: dict[str, int] = {}
    for word in words:
        found[word] = found.get(word, 0) + 1
    return found, Counter(words).most_common(2)


def grouped(keys: Any, values: Any) -> Any:
    found = defaultdict(list)
    for key, value in zip(keys, values, strict=True):
        found[key].append(value)
    return {key: sum(held) / len(held) for key, held in found.items()}


def stepped(bodies: Any) -> Any:
    for body in bodies:
        body.step(0.1)
    return sum(body.x for body in bodies)


def averages(x: Any) -> Any:
    window: Any = deque(maxlen=8)
    found = []
    for v in x:
        window.append(v)
        found.append(sum(window) / len(window))
    return found


def by_heap(x: Any) -> Any:
    heap: list[Any] = []
    for v in x:
        heapq.heappush(heap, v)
    return [heapq.heappop(heap) for _ in range(len(heap))]


def appended(values: Any, x: Any) -> Any:
    for v in x:
        values.append(v)
    return len(values)


def rewritten(values: Any, x: Any) -> Any:
    for i in range(len(values)):
        values[i] = values[i] * 2 + 1
    return x.sum() * 0


def added(counts: Any, x: Any) -> Any:
    for key in counts:
        counts[key] += 1
    return x + 1


def degrees(edges: Any, n: Any) -> Any:
    near: list[list[int]] = [[] for _ in range(n)]
    for a, b in edges:
        near[a].append(b)
        near[b].append(a)
    return [len(held) for held in near]


def visited(near: Any) -> Any:
    seen, queue, order = {0}, deque([0]), []
    while queue:
        at = queue.popleft()
        order.append(at)
        for other in near[at]:
            if other not in seen:
                seen.add(other)
                queue.append(other)
    return order


def loop_of_appends(x: Any) -> Any:
    found = []
    for v in x:
        found.append(v * 3)
    return found


def floats(n: int) -> list[float]:
    return [float(i % 13) for i in range(n)]


def rows() -> list[list[float]]:
    return [row[:] for row in TABLE]


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    # numbers in the arguments
    "rows as an array": (lambda a, x: np.array(a).mean(axis=0) * x, (rows(), X[:40])),
    "means of rows": (lambda a: [sum(row) / len(row) for row in a], (rows(),)),
    "columns": (lambda a: [list(column) for column in zip(*a, strict=True)], (rows(),)),
    "means of columns": (lambda a, x: ([np.mean(c) for c in zip(*a, strict=True)], x * 2), (rows(), X)),
    "chosen of rows": (lambda a: [v for row in a for v in row if v > 3], (rows(),)),
    "chained": (lambda a, x: sum(itertools.chain.from_iterable(a)) * x, (rows(), X)),
    "product of lists": (
        lambda a, b: [[sum(p * q for p, q in zip(r, c, strict=True)) for c in zip(*b, strict=True)] for r in a],
        ([floats(50) for _ in range(60)], [floats(20) for _ in range(50)]),
    ),
    "pairs": (lambda pairs, x: sum(a * b for a, b in pairs) * x, ([(float(i), 2.0) for i in range(3000)], X)),
    "named pairs": (lambda pairs: sum(p.a * p.b for p in pairs), ([Pair(float(i), 2.0) for i in range(3000)],)),
    "dataclasses": (lambda items: sum(i.price * i.count for i in items), ([Item(0.5, i) for i in range(2000)],)),
    "objects": (stepped, ([Body(float(i)) for i in range(3000)],)),
    "counted words": (counted, (WORDS,)),
    "sorted words": (lambda words, x: (" ".join(sorted(set(words))), x * len(words)), (WORDS, X)),
    "sorted by a key": (lambda a: sorted(a, key=lambda p: (p[1], -p[0]))[:9], ([(i % 7, i) for i in range(3000)],)),
    "least by a key": (lambda a: min(a, key=lambda p: p[0] ** 2), ([(float(i % 31 - 15), i) for i in range(3000)],)),
    "grouped": (grouped, ([i % 10 for i in range(3000)], floats(3000))),
    "runs": (lambda a: [(k, len([*g])) for k, g in itertools.groupby(a)], ([i // 7 for i in range(3000)],)),
    "least": (lambda a: (heapq.heapify(a), heapq.nsmallest(5, a))[1], (floats(3000),)),
    "running maximum": (lambda a, x: np.array([*itertools.accumulate(a, max)])[:600] * x, (floats(3000), X)),
    "looked up": (lambda d, keys: [d[k] for k in keys], ({f"k{i}": i for i in range(3000)}, ["k7", "k9"] * 99)),
    "ordered": (lambda d: OrderedDict((k, v * 2) for k, v in d.items()), (OrderedDict(enumerate(floats(3000))),)),
    "dicts in a dict": (
        lambda d: {k: {j: v * 2 for j, v in e.items()} for k, e in d.items()},
        ({i: dict(enumerate(floats(50))) for i in range(60)},),
    ),
    "sets": (lambda a, b: (sorted(a & b)[:5], len(a | b)), ({*range(0, 6000, 2)}, {*range(0, 9000, 3)})),
    "degrees": (degrees, ([(i, i * 7 % 900) for i in range(2000)], 2000)),
    "visited": (visited, ([[(i + 1) % 2000, i * 2 % 2000] for i in range(2000)],)),
    "enumerated": (lambda a, x: sum(i * v for i, v in enumerate(a)) * x, (floats(3000), X)),
    "any and all": (lambda a, x: (any(v > 8 for v in a), all(v >= 0 for v in a), x + 1), (floats(3000), X)),
    "a list grows": (appended, (floats(3000), X)),
    "a list is rewritten": (rewritten, (floats(3000), X)),
    "a dict is rewritten": (added, (dict(enumerate(floats(3000))), X)),
    # numbers in the results
    "a list": (lambda x: [v * 2 for v in x], (X,)),
    "appended": (loop_of_appends, (X,)),
    "Python's": (lambda x: ([float(v) * 2 for v in x], [int(v * 9) for v in x], [bool(v > 0.5) for v in x]), (X,)),
    "backwards": (lambda x: [x[i] for i in range(len(x) - 1, -1, -1)], (X,)),
    "of two": (lambda x: [a * b for a, b in zip(x, x[::-1], strict=True)], (X,)),
    "differences": (lambda x: [x[i] - x[i - 1] for i in range(1, len(x))], (X,)),
    "windows": (lambda x: [x[i : i + 3].max() for i in range(len(x) - 3)], (X,)),
    "either": (lambda x: [np.sqrt(v) if v > 0.5 else v * v for v in x], (X,)),
    "chosen": (lambda x: [v for v in x if v > 0.5], (X,)),
    "lists in a list": (lambda x: [[v * w for v in x] for w in x], (X[:50],)),
    "pairs in a list": (lambda x: [(v, i) for i, v in enumerate(x)], (X,)),
    "a dict": (lambda x: {i: v + 1 for i, v in enumerate(x)}, (X,)),
    "some": (lambda x: ([v * 2 for v in x], [x[0] * 3, 3.5, np.float64(2)], {i: x[i] for i in range(3)}), (X,)),
    "a tuple": (lambda x: tuple(v - 1 for v in x), (X,)),
    "of products": (lambda x: [a * b for a, b in itertools.product(x[:30], x[:20])], (X,)),
    "accumulated": (lambda x: [*itertools.accumulate(x[:100])], (X,)),
    "averages": (averages, (X,)),
    "by a heap": (by_heap, (X[:300],)),
    "bisected": (lambda x, q: [bisect.bisect_left(sorted(x.tolist()), v) for v in q], (X[:60], floats(30))),
    "mapped": (lambda x: [*map(lambda v: v * 2, x)], (X,)),
    "reduced": (lambda x: functools.reduce(lambda a, b: a * 0.5 + b, x, 0.0), (X,)),
    # containers outside
    "an element of a table": (lambda x: x * TABLE[3][5], (X,)),
    "a table": (lambda x: np.array(TABLE) @ x, (X[:40],)),
    # arrays in containers
    "a dict of arrays": (lambda d: {k: v * 2 for k, v in d.items()}, ({f"p{i}": X[:3] + i for i in range(200)},)),
    "a list of arrays": (lambda a: np.stack(a).max() + sum(a)[0] * 0, ([X[:3] + i for i in range(200)],)),
}


def same(ours: Any, theirs: Any) -> None:
    """Equal, of the same kinds; but few scalars are arrays."""
    if isinstance(ours, kg.Array):
        assert isinstance(theirs, (np.ndarray, np.generic)) and ours.dtype == theirs.dtype
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)
        return
    assert type(ours) is type(theirs)
    if isinstance(theirs, Body):
        ours, theirs = vars(ours), vars(theirs)
    if isinstance(theirs, dict):
        assert [*ours] == [*theirs]
        ours, theirs = [*ours.values()], [*theirs.values()]
    if isinstance(theirs, (list, tuple)):
        assert len(ours) == len(theirs)
        for pair in zip(ours, theirs, strict=True):
            same(*pair)
    elif isinstance(theirs, (float, np.generic, np.ndarray)):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)
    else:
        assert ours == theirs


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_python_gives(name: str) -> None:
    function, args = PROGRAMS[name]
    ours, theirs = copy.deepcopy(args), copy.deepcopy(args)
    decorated = kg.kernel_graph(device="cpu", untraceable="numpy")(function)
    began = time.process_time()
    same(decorated(*ours), function(*theirs))
    assert time.process_time() - began < SECONDS
    for _ in range(3):
        same(ours, theirs)
        same(decorated(*ours), function(*theirs))


@pytest.mark.parametrize("name", ["a list", "appended", "Python's", "windows", "either", "lists in a list"])
def test_a_list_that_is_returned_is_few_tasks(name: str) -> None:
    function, args = PROGRAMS[name]
    assert len(kg.kernel_graph(device="cpu")(function).program(*args).tasks) <= 4


def test_what_arguments_hold_is_ours_in_large_containers_too() -> None:
    def function(values: Any, held: Any) -> Any:
        held["a"][0] = values[0]
        return held["a"], values, held["b"][1] * 2

    numbers, x = floats(MOST_NUMBERS + 1), kg.asarray(np.zeros(3))
    decorated = kg.kernel_graph(device="cpu", untraceable="numpy")(function)
    for turn in range(3):
        numbers[0] = turn + 1.0
        first, second, third = decorated(numbers, {"a": x, "b": [None, x]})
        assert first is x and second is numbers and x[0] == turn + 1.0 and third[0] == 2 * turn + 2.0
    assert len(numbers) > MOST_NUMBERS and "np.array(...)" in decorated.why()


def test_a_call_that_may_not_run_in_numpy_takes_many_numbers() -> None:
    decorated = kg.kernel_graph(device="cpu", untraceable="refuse")(lambda a, x: x * a[3])
    same(decorated(floats(MOST_NUMBERS + 1), X), X * 3.0)


LEAVES = st.one_of(st.just(1), st.just(2.5), st.just("a"), st.just(np.float64(3)), st.just(np.int8(4)), st.none())
NESTED = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=9),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(st.integers(0, 9), inner, max_size=9),
        inner.map(lambda x: OrderedDict(a=x)),
        inner.map(lambda x: Pair(x, np.float32(1))),
        inner.map(lambda x: [np.ones(2), x]),
        inner.map(lambda x: [x] * 7),
    ),
    max_leaves=30,
)


def leaves_of(value: Any) -> list[Any]:
    parts = value.values() if isinstance(value, dict) else value
    return [x for part in parts for x in leaves_of(part)] if isinstance(value, (dict, list, tuple)) else [value]


def count_of_scalars(value: Any, met: set[int]) -> int:
    """A container that comes twice counts once, but for a tuple."""
    if not isinstance(value, (dict, list, tuple)):
        return isinstance(value, np.generic)
    if type(value) is not tuple:
        if id(value) in met:
            return 0
        met.add(id(value))
    return sum(count_of_scalars(part, met) for part in (value.values() if isinstance(value, dict) else value))


@given(NESTED)
def test_how_many_scalars_there_are_decides_what_they_are(value: Any) -> None:
    decorated = kg.kernel_graph(device="cpu", untraceable="numpy")(lambda x: x.tobytes() and copy.deepcopy(value))
    found, expected = leaves_of(decorated(X[:2])), leaves_of(value)
    many = count_of_scalars(copy.deepcopy(value), set()) > MOST_SCALARS
    for ours, theirs in zip(found, expected, strict=True):
        is_array = isinstance(theirs, np.ndarray) or (isinstance(theirs, np.generic) and not many)
        assert type(ours) is (kg.Array if is_array else type(theirs))
        assert np.array_equal(np.asarray(ours), np.asarray(theirs))


def test_a_table_outside_is_watched() -> None:
    table: list[Any] = [[float(i + j) for j in range(5)] for i in range(4)]
    scope: dict[str, Any] = {"table": table}
    exec("def read(x): return x * table[1][2] + table[3][4]", scope)
    decorated = kg.kernel_graph(device="cpu")(scope["read"])

    def check() -> None:
        for _ in range(3):
            same(decorated(X), scope["read"](X))

    def put(row: int, column: int, value: Any) -> None:
        table[row][column] = value

    changes: list[Callable[[], Any]] = [
        lambda: put(1, 2, 7.0),
        lambda: table.__setitem__(1, [9.0] * 5),
        lambda: table.append([0.0]),
        lambda: put(1, 2, 9),
        lambda: put(3, 4, 0.0),
        lambda: put(3, 4, -0.0),
        lambda: table[1].append(3.0),
        lambda: scope.__setitem__("table", [[*row] for row in table]),
        lambda: scope.__setitem__("table", table),
        lambda: table.__setitem__(3, table[1]),
        lambda: table[1].pop(),
        lambda: table.__setitem__(slice(None), [[1.0] * 5] * 4),
        lambda: put(0, 2, 5.0),
        lambda: table.append(table),
    ]
    for change in (lambda: None, *changes):
        change()
        check()


def test_many_numbers_of_calls_on_several_devices() -> None:
    devices = ("cpu:0", "cpu:1")
    with kg.override(cpu_devices=2):
        on_mesh = kg.kernel_graph(
            lambda x: [kg.all_reduce(x.sum()) + i for i in range(20)], mesh=kg.Mesh(devices), out_axes=None
        )
        x = np.arange(8.0)
        same(on_mesh(x), [x.sum() + i for i in range(20)])
        on_both = kg.kernel_graph(lambda x: ([v * 2 for v in x], [float(v) for v in x]), device=[*devices])
        same(on_both(X[:40]), ([v * 2 for v in X[:40]], X[:40].tolist()))
