"""Numbers given to functions in C: what takes no stand-in gets the number, or the call runs in NumPy."""

import collections
import importlib.util
import re

import numpy as np
import pytest

from kernelgraph import kernel_graph

EXPRESSIONS = (
    "collections.deque(x, maxlen=n)",
    "collections.deque([1, 2, 3], n)",
    "collections.deque(x, n + 1)",
    "list(itertools.combinations([1, 2, 3], n))",
    "list(itertools.permutations([1, 2, 3], n))",
    "list(itertools.product([1, 2], repeat=n))",
    "list(itertools.islice(x, n))",
    "list(itertools.repeat(1.0, n))",
    "pow(3, n, 7)",
    "divmod(7, n)",
    "math.comb(5, n), math.factorial(n), math.isqrt(n)",
    "str(decimal.Decimal(n) / 7)",
    "str(datetime.timedelta(days=n))",
    "str(fractions.Fraction(n, 3))",
    "statistics.stdev([n, 2, 5])",
    "struct.pack('<i', n)",
    "array.array('i', [n]).tolist()",
    "heapq.nlargest(n, [1, 5, 2])",
    "'ab' * n, 'ab'.ljust(n + 3), chr(n + 60), bytes(n), n.to_bytes(2, 'little')",
    "[1, 2, 3, 4].pop(n), 'a,b,c'.split(',', n)",
)
NUMBERS = {
    "argument": ("n", lambda n: n),
    "int of an element": ("int(n[0])", lambda n: np.array([n, 7])),
    "counter": ("sum(1 for v in n if v > 0)", lambda n: np.array([1.0] * n + [-1.0])),
}
SOURCE = """import array, collections, datetime, decimal, fractions, heapq, itertools, math, statistics, struct

def plain(x, n):
    n = {number}
    return {expression}

def caught(x, n):
    n = {number}
    try:
        return {expression}
    except TypeError:
        return "refused"
"""


@pytest.mark.parametrize("kind", NUMBERS)
@pytest.mark.parametrize("expression", EXPRESSIONS, ids=lambda text: re.sub(r"\W+", "_", text)[:30])
def test_numbers_in_builtins(expression, kind, tmp_path):
    number, made = NUMBERS[kind]
    path = tmp_path / "numbers_in_builtins.py"
    path.write_text(SOURCE.format(number=number, expression=expression))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for function in (module.plain, module.caught):
        compiled = kernel_graph(device="cpu", untraceable="numpy")(function)
        for n in (2, 3, 2, 1):
            x = np.arange(4.0) + n
            assert _shown(compiled(x, made(n))) == _shown(function(x, made(n)))


def _shown(value):
    if isinstance(value, (list, tuple, collections.deque)):
        return type(value).__name__, [*map(_shown, value)]
    return value if isinstance(value, (str, bytes)) else np.asarray(value).tolist()
