"""Lists of before a loop whose elements its turns read and assign: NumPy's answers, in one graph of any length."""

from __future__ import annotations

import random
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from tests.random_cases import names_in_file
from tests.turn_programs import recorded

LISTS = {  # what the list `a` is before the loop
    "ints": "[0] * n",
    "own ints": "[j % 7 for j in range(n)]",
    "floats": "[0.5] * n",
    "infinite": "[float('inf')] * n",
    "bools": "[False] * n",
    "numbers of an array": "[v for v in x]",
    "values of an array": "[int(v) for v in x]",
    "a table": "[[0] * n for _ in range(n)]",
    "a table of floats": "[[float(j * k) for j in range(n)] for k in range(n)]",
    "a table that an array fills": "[[v] * n for v in x]",
}
BODIES = {  # what a turn does to it, of numbers; `e(i)` is an element of a table's row or of the list
    "assigned": "$e(i) = x[i]",
    "as the kind it is": "$e(i) = $e(i - 1)",
    "added to": "$e(i) += 1",
    "by a value": "$e(int(x[i])) += $e(i)",
    "by an element": "s += x[int(min($e(i), 9)) % n]",
    "largest so far": "$e(i) = max($e(i - 1), x[i])",
    "where a value decides": "if x[i] > 3:\n    $e(i) = $e(i - 2)\nelse:\n    $e(0) = $e(i)",
    "swapped": "$e(i), $e(i - 1) = $e(i - 1), $e(i)",
    "inner loop": "for j in range(i):\n    if x[j] < x[i] and $e(i) < $e(j) + 1:\n        $e(i) = $e(j) + 1",
    "inner while": "k = i\nwhile k > 0 and $e(k - 1) > $e(k):\n    $e(k - 1) = $e(k)\n    k -= 1",
    "other names": "b = a\nb[i - 1] = a[i]",
    "whole": "s += len(a)",
    "a constant place": "$e(2) = i\ns += $e(i)",
}
PLACES = ("a[$]", "a[$][2]", "a[1][$]", "a[$ - 1][$]", "row[$]")


def text_of(name: str, made: str, body: str, place: str) -> str:
    lines = body
    while "$e(" in lines:
        before, _, rest = lines.partition("$e(")
        depth, end = 1, 0
        while depth:
            depth += {"(": 1, ")": -1}.get(rest[end], 0)
            end += 1
        lines = before + place.replace("$", rest[: end - 1]) + rest[end:]
    inside = "\n".join("        " + line for line in (["row = a[i]"] if "row" in place else []) + lines.split("\n"))
    return f"""
def {name}(x):
    n, s = len(x), 0
    a = {made}
    for i in range(1, n):
{inside}
    return a, s, a[-1]
"""


@pytest.mark.parametrize("body", BODIES)
def test_what_turns_do_to_lists(body: str, tmp_path: Path) -> None:
    rng, rows = random.Random(body), []
    for kind, made in rng.sample([*LISTS.items()], 4):
        place = rng.choice(PLACES[1:]) if "table" in kind else PLACES[0]
        rows.append((f"f{len(rows)}", kind, text_of(f"f{len(rows)}", made, BODIES[body], place)))
    label = f"indexed_lists_{[*BODIES].index(body)}"
    names = names_in_file([text for *_, text in rows], tmp_path, label)
    for name, kind, text in rows:
        for dtype in ("i8", "f8"):
            x: Any = np.random.default_rng(3).integers(0, 9, 9).astype(dtype)
            with recorded(), warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore", kg.FallbackWarning)
                found = kg.kernel_graph(names[name], device="cpu")(x)
                want = names[name](x)
            for ours, numpys in zip(flat(found), flat(want), strict=True):
                np.testing.assert_array_equal(ours, numpys, err_msg=f"{kind} {dtype}\n{text}")
                assert isinstance(numpys, int) or np.asarray(ours).dtype == np.asarray(numpys).dtype, text


def flat(x: Any) -> list[Any]:
    return [z for y in x for z in flat(y)] if isinstance(x, (list, tuple)) else [np.asarray(x)[()]]


def knapsack(weights: Any, values: Any, most: int) -> Any:
    best = [[0] * (most + 1) for _ in range(len(weights) + 1)]
    for i in range(1, len(weights) + 1):
        for w in range(1, most + 1):
            best[i][w] = best[i - 1][w]
            if weights[i - 1] <= w:
                best[i][w] = max(best[i][w], values[i - 1] + best[i - 1][w - weights[i - 1]])
    return best[-1][most]


def jumps(start: Any) -> Any:
    parent = list(range(40))
    for k in range(len(start)):
        i = start[k]
        while parent[i] != i:
            i = parent[i]
        parent[i] = start[k - 1]
    return np.array(parent)


def test_a_table_is_one_array_of_a_routine() -> None:
    rng = np.random.default_rng(1)
    with warnings.catch_warnings():
        warnings.simplefilter("error", kg.FallbackWarning)
        decorated = kg.kernel_graph(knapsack, device="cpu")
        for items in (20, 60):
            weights, values = rng.integers(1, 15, items), rng.integers(1, 50, items)
            assert decorated(weights, values, 60) == knapsack(weights, values, 60)
            assert len(decorated.graph(weights, values, 60).nodes) < 20
        chained = kg.kernel_graph(jumps, device="cpu")
        start = np.arange(0, 40, 3)
        np.testing.assert_array_equal(np.asarray(chained(start)), jumps(start))


def aliased(x: Any) -> Any:
    rows = [[0.0] * 5] * 4
    for i in range(len(x)):
        rows[i % 4][i % 5] += x[i]
    return rows[0], rows[1]


def named_row(x: Any) -> Any:
    rows = [[0.0] * 5 for _ in range(4)]
    top = rows[1]
    for i in range(len(x)):
        rows[i % 4][i % 5] += x[i]
        top[i % 5] += 1
    return rows[1], top


def same_after(x: Any) -> Any:
    rows = [[0.0] * 5 for _ in range(4)]
    top, again = rows[1], rows
    for i in range(len(x)):
        rows[i % 4][i % 5] += x[i]
    top[0] = -1.0
    return rows[1], top is rows[1], again is rows


def of_two_dtypes(x: Any) -> Any:
    found = [0] * len(x)
    for i in range(len(x)):
        if x[i] > 3:
            found[i] = x[i] * 0.5
    return found[0] + found[-1], np.array(found)


def past_the_end(x: Any) -> Any:
    counts = [0] * 5
    for i in range(len(x)):
        counts[int(x[i])] += 1
    return counts


def by_a_bool(x: Any) -> Any:
    counts = [0, 0, 0]
    for i in range(len(x)):
        counts[bool(x[i] > 3)] += 1
    return counts


@pytest.mark.parametrize("function", [aliased, named_row, same_after, of_two_dtypes, by_a_bool])
def test_lists_with_other_names_or_kinds(function: Any) -> None:
    x = np.random.default_rng(2).integers(0, 9, 40) * 1.0
    with recorded(), warnings.catch_warnings():
        warnings.simplefilter("ignore", kg.FallbackWarning)
        found = kg.kernel_graph(function, device="cpu")(x)
    for ours, numpys in zip(flat(found), flat(function(x)), strict=True):
        np.testing.assert_array_equal(ours, numpys)


def test_an_element_that_is_not_there_raises() -> None:
    x = np.arange(9)
    with recorded(), pytest.raises(IndexError), warnings.catch_warnings():
        warnings.simplefilter("ignore", kg.FallbackWarning)
        kg.kernel_graph(past_the_end, device="cpu")(x)


@pytest.mark.parametrize("kind", [round, "math.floor", "math.ceil", "math.trunc"])
def test_whole_numbers_of_floats(kind: Any, tmp_path: Path) -> None:
    word = kind if isinstance(kind, str) else kind.__name__
    text = f"""
import math
import numpy as np


def whole(x):
    out, s = np.zeros(len(x)), 0
    for i in range(len(x)):
        k = {word}(x[i])
        out[i] = x[k % 5] + k // 2
        s += {word}(i * 0.5 - 3) + {word}(i)
    return out, s
"""
    function = names_in_file([text], tmp_path, f"whole_{word.replace('.', '_')}")["whole"]
    x = np.random.default_rng(4).integers(-9, 9, 40) / 4
    with recorded(), warnings.catch_warnings():
        warnings.simplefilter("error", kg.FallbackWarning)
        found = kg.kernel_graph(function, device="cpu")(x)
    for ours, numpys in zip(found, function(x), strict=True):
        np.testing.assert_array_equal(np.asarray(ours), numpys)
    with pytest.raises(ValueError, match="NaN"):
        kg.kernel_graph(function, device="cpu")(np.where(np.arange(40) == 7, np.nan, x))


def member(x: Any) -> Any:
    count, found = 0, np.zeros(len(x), bool)
    for i in range(len(x)):
        if x[i] in (1, 3, 5):
            count += 1
        elif x[i] not in [0, 2.0]:
            count += 10
        found[i] = i in (2, 7) or x[i] in {4, True}
    return count, found


def test_membership_in_a_few_numbers() -> None:
    x = np.random.default_rng(5).integers(0, 7, 50)
    with recorded(), warnings.catch_warnings():
        warnings.simplefilter("error", kg.FallbackWarning)
        found = kg.kernel_graph(member, device="cpu")(x)
    for ours, numpys in zip(found, member(x), strict=True):
        np.testing.assert_array_equal(np.asarray(ours), numpys)
