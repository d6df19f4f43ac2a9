"""A number of Python's or an element of an array, as values decide: its value and whether it is an int are Python's.

The table: each way to join the two, each number, dtype and use."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from tests.random_cases import names_in_file

WAYS = {
    "choice": "n = $k if x[0] > 0 else x[1]",
    "if": "n = $k\nif x[0] < 0:\n    n = x[1]",
    "if/else": "if x[0] > 0:\n    n = $k\nelse:\n    n = x[1] * 1",
    "nested": "n = $k\nif x[0] < 0:\n    if x[1] > 0:\n        n = x[1]",
    "chained": "n = x[0] if x[0] > 3 else $k\nm = n if x[1] < 0 else $k\nn = m",
    "return": "def made():\n    if x[0] > 0:\n        return $k\n    return x[1]\nn = made()",
    "for": "n = $k\nfor v in x:\n    if v > 3:\n        n = v",
    "break": "n = $k\nfor v in x:\n    if v > 3:\n        n = v\n        break",
    "added": "n = $k\nif x[0] < 0:\n    n += x[1]",
    "or": "n = x[0] and $k",
    "max": "n = max($k, x[1])",
    "min": "n = min($k, x[1], x[0])",
    "sum": "n = sum(v for v in x if v > 3) + $k",
    "item": "items = [$k]\nif x[0] < 0:\n    items[0] = x[1]\nn = items[0]",
    "attribute": "o.n = $k\nif x[0] < 0:\n    o.n = x[1]\nn = o.n",
    "long loop": "n = $k\nfor i in range(40):\n    if x[i % 2] > 3:\n        n = x[i % 2]",
    "while": "n = $k\ni = 0\nwhile i < x[0] - 3:\n    n = x[1]\n    i += 1",
}
USES = ("n", "n + 1, -n, n * 2", "n // 2, n % 3, n / 2, abs(n)", "[n, (n, {'a': n})]")
NUMBERS = ("0", "-20", "7", "True", "0.1", "1000.1", "-1e300", "2**60 + 1", "j", "u")
DTYPES = ("f8", "f4")
XS = ((1.0, 2.5), (-1.0, 2.5), (-1.0, -2.5), (0.0, 0.0), (4.0, 5.5), (3.5, -30.0))


def leaves(value: Any) -> list[Any]:
    if isinstance(value, (list, tuple)):
        return [leaf for part in value for leaf in leaves(part)]
    if isinstance(value, dict):
        return leaves([*value.values()])
    return [np.asarray(value).item()]


def comparable(value: Any) -> Any:
    return [*map(repr, leaves(value))]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("way", [*WAYS])
def test_joined_numbers(way: str, tmp_path: Path) -> None:
    texts = []
    for i, (number, use, _) in enumerate(itertools.product(NUMBERS, USES, DTYPES)):
        lines = [*WAYS[way].replace("$k", number).split("\n"), f"return {use}"]
        body = "\n".join(f"    {line}" for line in lines)
        texts.append(f"def f{i}(x, j, u, o):\n{body}\n")
    names = names_in_file(texts, tmp_path, "joins")
    for number, dtype in enumerate(itertools.islice(itertools.cycle(DTYPES), len(texts))):
        function = names[f"f{number}"]
        compiled = kg.kernel_graph(function, device="cpu")
        for x in XS:
            given = np.array(x, dtype), 3, 0.5
            wanted = function(*given, new_box())
            got = comparable(compiled(*given, new_box()))
            assert got == comparable(wanted), (texts[number], x, dtype)


class Box:
    n: Any = None


def new_box() -> Box:
    return Box()


def whole(x: Any) -> Any:
    return int(x[0])


def whole_in_loop(x: Any) -> Any:
    largest = 0
    for i in range(30):
        largest = max(largest, int(x[i % 2]))
    return largest


def whole_caught(x: Any) -> Any:
    try:
        return int(x[0]) % 7 + int(x[1])
    except (OverflowError, ValueError) as error:
        return str(error)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", ["f8", "f4", "f2"])
@pytest.mark.parametrize("function", [whole, whole_in_loop, whole_caught], ids=lambda f: f.__name__)
def test_ints_of_floats_beyond_64_bits_are_pythons(function: Any, dtype: str) -> None:
    compiled = kg.kernel_graph(function, device="cpu")
    for value in (1.5, 1e300, -1e19, -(2.0**63), 2.0**63, 9.2e18, np.inf, np.nan, -7.9):
        x = np.array([value, 1.0]).astype(dtype)
        found = []
        for call in (function, compiled):
            try:
                found.append(repr(np.asarray(call(x)).item()))
            except (OverflowError, ValueError) as error:
                found.append(repr(error))
        assert found[0] == found[1], (value, found)


def multiplied(x: Any) -> Any:
    return int(x[0]) * 4, int(x[0]) * True, int(x[0]) * 2.0


def factorial(x: Any) -> Any:
    n, product = abs(int(x[0])) % 40, 1
    while n > 1:
        product *= n
        n -= 1
    return product


def powers_of_two(x: Any) -> Any:
    r = 1
    for _ in range(70):
        r = r * 2 if x[0] > 10 else r
    return r % 1000, r


def product_of_turns(x: Any) -> Any:
    r = 1
    for i in range(1, 30):
        if x[0] > i:
            r *= i
    return r


def hashed(x: Any) -> Any:
    h = 5381
    for i in range(40):
        h = h * 33 + int(x[i % 2])
    return h


def written_before(x: Any) -> None:
    x[1] = 9
    x[1] = int(x[0]) * 8 % 1000


@pytest.mark.filterwarnings("ignore::kernelgraph.FallbackWarning")
@pytest.mark.parametrize(
    "function",
    [multiplied, factorial, powers_of_two, product_of_turns, hashed, written_before],
    ids=lambda f: f.__name__,
)
def test_products_of_ints_have_all_their_digits(function: Any) -> None:
    compiled = kg.kernel_graph(function, device="cpu")
    for first in (2**62, 5, 2**31, -(2**62), 0, 30, 3):
        ours, theirs = np.array([first, 3]), np.array([first, 3])
        got, want = compiled(ours), function(theirs)
        assert (want is None and got is None) or list(map(repr, leaves(got))) == list(map(repr, leaves(want)))
        assert np.array_equal(ours, theirs)
