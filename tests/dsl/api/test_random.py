"""`kg.random`: what is drawn depends on key, distribution and place alone, and is distributed as it says."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph.compiler.ops.philox import philox_reference
from kernelgraph.compiler.pipeline import compile_graph_to_program
from kernelgraph.dsl.core.pytree import flatten
from tests.dsl.tracing import interpreted

N = 20_000
KEY = kg.random.key(7)

Draw = Callable[[Any, Any], Any]
DRAWS: dict[str, Draw] = {
    "bits": lambda key, shape: kg.random.bits(key, shape),
    "bits64": lambda key, shape: kg.random.bits(key, shape, np.uint64),
    "uniform": lambda key, shape: kg.random.uniform(key, shape),
    "uniform64": lambda key, shape: kg.random.uniform(key, shape, np.float64, -2, 3.5),
    "integers": lambda key, shape: kg.random.integers(key, shape, -5, 100, np.int16),
    "normal": lambda key, shape: kg.random.normal(key, shape),
    "normal64": lambda key, shape: kg.random.normal(key, shape, np.float64),
    "exponential": lambda key, shape: kg.random.exponential(key, shape),
    "bernoulli": lambda key, shape: kg.random.bernoulli(key, shape, 0.3),
    "choice": lambda key, shape: kg.random.choice(key, np.arange(11) ** 2, shape),
}
EXACT = ("bits", "bits64", "uniform", "uniform64", "integers", "bernoulli", "choice")


def numbers(x: Any) -> np.ndarray[Any, Any]:
    return np.asarray(x)


@pytest.fixture(params=DRAWS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def draw(name: str) -> Draw:
    return DRAWS[name]


# the key and the place alone


def words(key: int, count: int) -> np.ndarray[Any, Any]:
    """The blocks of a key, laid end to end."""
    low, high = key & 0xFFFFFFFF, key >> 32
    blocks = [philox_reference(np.arange(count // 4 + 1), 0, 0, 0, low, high, word=w) for w in range(4)]
    return np.stack(blocks, axis=1).ravel()[:count]


@pytest.mark.parametrize("shape", [(3, 7), (5, 8), (2, 3, 6), (1,), (4, 1)])
def test_bits_are_philoxs(shape: tuple[int, ...]) -> None:
    seed, n = 5 + (9 << 32), math.prod(shape)
    got = numbers(kg.random.bits(kg.random.key(seed), shape))
    np.testing.assert_array_equal(got.ravel(), words(seed, n))
    wide = numbers(kg.random.bits(kg.random.key(seed), shape, np.uint64))
    low, high = words(seed, 2 * n).astype(np.uint64).reshape(-1, 2).T
    np.testing.assert_array_equal(wide.ravel(), low | high << np.uint64(32))


def test_the_same_eager_and_fused_on_any_streams(draw: Draw) -> None:
    want = numbers(draw(KEY, (50, 31)))
    for streams in (1, "max"):

        @kg.kernel_graph(device="cpu", streams=streams)
        def f(x: Any, key: Any) -> Any:
            other = draw(key.fold_in(1), x.shape)
            return draw(key, x.shape), other.astype(np.float64) * x + draw(key, x.shape)

        alone, fused = f(np.zeros((50, 31)), KEY)
        np.testing.assert_array_equal(alone, want)
        np.testing.assert_array_equal(fused, want)


def test_a_place_decides_in_any_shape(draw: Draw) -> None:
    flat = numbers(draw(KEY, 240))
    for shape in ((240,), (24, 10), (2, 1, 3, 40), (240, 1), (1, 240)):
        np.testing.assert_array_equal(numbers(draw(KEY, shape)).ravel(), flat)
    np.testing.assert_array_equal(numbers(draw(KEY, 100)), flat[:100])
    assert numbers(draw(KEY, ())) == flat[0] and numbers(draw(KEY, (0, 3))).shape == (0, 3)


def test_the_interpreter_agrees(name: str, draw: Draw) -> None:
    got, want = numbers(draw(KEY, (30, 20))), interpreted(lambda key: draw(key, (30, 20)), KEY)
    assert got.dtype == want.dtype
    if name in EXACT:
        np.testing.assert_array_equal(got, want)
    else:
        np.testing.assert_array_max_ulp(got, want, 4)


def test_without_compiling(draw: Draw) -> None:
    want = numbers(draw(KEY, 50))
    with kg.override(disable=True):
        np.testing.assert_array_equal(numbers(draw(KEY, 50)), want)


# keys


def test_keys_made_inside_and_outside_are_the_same() -> None:
    def keys(seed: Any, step: Any) -> list[Any]:
        key = kg.random.key(seed)
        return [key, key.fold_in(step), key.fold_in(2), *kg.random.split(key.fold_in(step), 3)]

    for seed, step in ((3, 4), (-1, 2**40), (2**63 + 5, -7)):
        traced = kg.kernel_graph(keys, device="cpu")
        want: list[int] = []
        flatten(keys(seed, step), want)
        for given in ((seed, step), (np.uint64(seed % 2**64), np.int64(step))):
            got: list[Any] = []
            flatten(traced(*given), got)
            assert [int(word) for word in got] == want


def test_a_returned_key_is_a_key() -> None:
    @kg.kernel_graph(device="cpu")
    def step(key: Any) -> Any:
        return kg.random.uniform(key, 3), key.fold_in(0)

    first, second = step(KEY)
    want = KEY.fold_in(0)
    np.testing.assert_array_equal(first, kg.random.uniform(KEY, 3))
    np.testing.assert_array_equal(step(second)[0], kg.random.uniform(want, 3))
    np.testing.assert_array_equal(kg.random.uniform(second, 3), kg.random.uniform(want, 3))
    assert second.fold_in(5) == want.fold_in(5)


def test_a_new_key_or_seed_compiles_nothing() -> None:
    @kg.kernel_graph(device="cpu")
    def f(key: Any, seed: int, step: int, high: int) -> Any:
        keys = key, kg.random.key(seed), key.fold_in(step)
        return [kg.random.uniform(k, 10) for k in keys] + [kg.random.integers(key, 5, -high, high)]

    f(KEY, 1, 2, 3)
    before = f.why()
    for seed in range(3):
        f(kg.random.key(seed), 10**6 * seed, seed, 10 + seed)
    assert f.why() == before


def test_keys_differ() -> None:
    key = kg.random.key(0)
    keys = [key, kg.random.key(1), kg.random.key(1 << 32), *(key.fold_in(i) for i in range(100))]
    keys += [*kg.random.split(key, 100), *kg.random.split(key.fold_in(1), 100), key.fold_in(1 << 32)]
    assert len(set(keys)) == len(keys)
    assert kg.random.split(key, 5) == kg.random.split(key, 9)[:5]
    assert len({int(numbers(kg.random.bits(k))) for k in keys}) > len(keys) - 2


def test_known_keys_make_one_kernel() -> None:
    """The words of a key are arguments of the kernels."""

    @kg.kernel_graph(device="cpu")
    def f(x: Any) -> Any:
        return [x + kg.random.uniform(k, x.shape) for k in kg.random.split(KEY, 4)]

    x = np.zeros(1 << 16, np.float32)
    assert len({task.kernel for task in f.program(x).tasks}) <= 1
    for got, key in zip(f(x), kg.random.split(KEY, 4), strict=True):
        np.testing.assert_array_equal(got, kg.random.uniform(key, x.shape))


@pytest.mark.parametrize("shape", [(1 << 20,), (1024, 1024)])
def test_a_gpu_thread_computes_each_block_once(shape: tuple[int, ...]) -> None:
    """Eight float32 in two groups are two blocks of ten rounds of two products; so many again where a row ends."""
    pytest.importorskip("numba_cuda", reason="needs the extra cuda")
    from kernelgraph.runtime.devices.cuda.compile.compile import compile_ptx

    f = kg.kernel_graph(lambda key: kg.random.uniform(key, shape) * 1.5, device="cpu")
    (task,) = compile_graph_to_program(f.graph(KEY), "cuda").tasks
    assert compile_ptx(task.kernel, (9, 0)).count("mul.hi.u32") < 100  # 180 and more where each has its own


# distributions


def distance(sample: Any, cumulative: Callable[[float], float]) -> float:
    """Kolmogorov and Smirnov's: sqrt(n) times the largest distance of the distribution functions."""
    x = np.sort(numbers(sample).ravel().astype(np.float64))
    want = np.array([cumulative(v) for v in x.tolist()])
    steps = np.arange(len(x) + 1) / len(x)
    return math.sqrt(len(x)) * max(float(np.max(want - steps[:-1])), float(np.max(steps[1:] - want)))


CUMULATIVE: dict[str, Callable[[float], float]] = {
    "uniform": lambda x: x,
    "uniform64": lambda x: (x + 2) / 5.5,
    "normal": statistics.NormalDist().cdf,
    "normal64": statistics.NormalDist().cdf,
    "exponential": lambda x: -math.expm1(-x),
}


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("which", CUMULATIVE)
def test_distribution(which: str, seed: int) -> None:
    sample = numbers(DRAWS[which](kg.random.key(seed), N))
    assert distance(sample, CUMULATIVE[which]) < 1.95  # of 1000 samples one is farther
    with pytest.raises(AssertionError):  # the test can fail
        assert distance(sample * 1.05 + 0.01, CUMULATIVE[which]) < 1.95


def test_neighbours_and_keys_are_not_correlated() -> None:
    a, b = (numbers(kg.random.normal(KEY.fold_in(i), N, np.float64)) for i in range(2))
    for x, y in ((a[1:], a[:-1]), (a, b), (a**2, b**2), (a[::2], a[1::2])):
        assert abs(np.corrcoef(x, y)[0, 1]) < 5 / math.sqrt(len(x))


@pytest.mark.parametrize("dtype", [np.uint32, np.uint64])
def test_every_bit_is_fair(dtype: Any) -> None:
    x = numbers(kg.random.bits(KEY, N, dtype))
    for bit in range(8 * x.itemsize):
        ones = int(np.sum(x >> dtype(bit) & dtype(1)))
        assert abs(ones - N / 2) < 5 * math.sqrt(N) / 2


def test_integers_are_fair_and_in_range() -> None:
    x = numbers(kg.random.integers(KEY, N, -3, 7))
    count = np.bincount(x + 3, minlength=10)
    assert x.dtype == np.int64 and len(count) == 10 and abs(count - N / 10).max() < 5 * math.sqrt(N / 10)
    p = numbers(kg.random.bernoulli(KEY, N, 0.3)).mean()
    assert abs(p - 0.3) < 5 * math.sqrt(0.21 / N)


def exactly(n: int, low: int, span: int) -> list[int]:
    """What `integers` says it is, in Python's own integers."""
    return [int(b) * span // 2**64 + low for b in numbers(kg.random.bits(KEY, n, np.uint64))]


@pytest.mark.parametrize(
    ("low", "high", "dtype"),
    [
        (0, 1, np.int8),
        (-128, 128, np.int8),
        (5, 5 + 2**32 - 1, np.int64),
        (0, 2**32, np.uint32),
        (-(2**63), 2**63, np.int64),
        (0, 2**64, np.uint64),
        (2**63, 2**63 + 10, np.uint64),
    ],
)
def test_integers_are_the_upper_half_of_a_product(low: int, high: int, dtype: Any) -> None:
    want = np.array(exactly(200, low, high - low), dtype)
    np.testing.assert_array_equal(numbers(kg.random.integers(KEY, 200, low, high, dtype)), want)
    if low >= -(2**63) and high < 2**63:  # with bounds that are arrays
        bounds = np.array([low, high])
        np.testing.assert_array_equal(numbers(kg.random.integers(KEY, 200, bounds[0], bounds[1:], dtype)), want)


def test_bounds_broadcast() -> None:
    low = np.arange(5)[:, None]
    got = numbers(kg.random.integers(KEY, (5, 40), low, low + 2))
    assert ((got == low) | (got == low + 1)).all() and len(np.unique(got - low)) == 2
    u = numbers(kg.random.uniform(KEY, (5, 40), np.float64, low, low + 0.5))
    assert ((u >= low) & (u < low + 0.5)).all()
    p = np.array([0.0, 1.0])
    assert (numbers(kg.random.bernoulli(KEY, (9, 2), p)) == p).all()


def test_choice() -> None:
    names = np.arange(12.0).reshape(4, 3)
    got = numbers(kg.random.choice(KEY, names, (5, 2)))
    np.testing.assert_array_equal(got, names[numbers(kg.random.choice(KEY, 4, (5, 2)))])


# mistakes


@pytest.mark.parametrize(
    ("mistake", "error", "text"),
    [
        (lambda: kg.random.uniform(3, 5), kg.DTypeError, r"kg\.random\.key"),
        (lambda: kg.random.key(0.5), kg.DTypeError, "seed"),
        (lambda: KEY.fold_in("a"), kg.DTypeError, "fold in"),
        (lambda: kg.random.uniform(KEY, 5, np.int32), kg.DTypeError, "float32 or float64"),
        (lambda: kg.random.bits(KEY, 5, np.int32), kg.DTypeError, "uint32 or uint64"),
        (lambda: kg.random.integers(KEY, 5, 3, 3), kg.ShapeError, "no integers"),
        (lambda: kg.random.integers(KEY, 5, 0, 300, np.uint8), kg.NumberError, "does not hold"),
        (lambda: kg.random.integers(KEY, 5, 0.5, 3), kg.DTypeError, "integers"),
        (lambda: kg.random.uniform(KEY, -1), kg.ShapeError, "negative"),
        (lambda: kg.random.uniform(KEY, 3, low=np.zeros((4, 3))), kg.ShapeError, "shape"),
    ],
)
def test_mistakes(mistake: Any, error: Any, text: str) -> None:
    with pytest.raises(error, match=text):
        mistake()
    with pytest.raises(error, match=text):
        kg.kernel_graph(lambda: mistake(), device="cpu")()


def test_numpys_own_names_ours() -> None:
    """It is drawn by NumPy, anew in each call, where that is not refused."""
    rng, same = np.random.default_rng(0), np.random.default_rng(0)
    for function in (lambda x: x + np.random.rand(3), lambda x: x + rng.normal(size=3)):
        with pytest.raises(kg.UnsupportedError, match=r"kg\.random"):
            kg.kernel_graph(function, device="cpu", untraceable="refuse")(np.zeros(3))
    f = kg.kernel_graph(lambda x: x + rng.normal(size=3), device="cpu")
    with pytest.warns(UserWarning, match=r"kg\.random"):
        first = f(np.zeros(3))
    for found in (first, f(np.zeros(3))):
        np.testing.assert_array_equal(found, same.normal(size=3))
