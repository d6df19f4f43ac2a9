"""Ints of Python's have as many bits as they need: operators x ways an int arises x magnitudes.

A call whose ints fit into 64 bits is compiled; any other gives what Python gives all the same."""

from __future__ import annotations

from collections.abc import Iterator

WAYS = {
    "int()": "n = int(y[0])",
    "int() of float": "n = int(x[0])",
    "item": "n = y[0].item()",
    "len": "n = len(y) * int(y[0])",
    "while": "n = int(y[0])\ni = 0\nwhile i < t[0]:\n    n += int(y[1])\n    i += 1",
    "while value": "n = int(y[0])\ns = float(t[0])\nwhile s > 0.5:\n    n += int(y[1])\n    s -= 1",
    "doubled": "n = int(y[0])\ni = 0\nwhile i < t[0]:\n    n = n * 2\n    i += 1",
    "counter": "n = int(y[0])\ni = 0\nwhile i < t[0]:\n    n += 1\n    i += 1",
    "shifted": "n = int(y[0])\nfor i in range(20):\n    n = (n << 5) ^ i",
    "long loop": "n = 0\nfor i in range(20):\n    n += int(y[i % 2])",
    "two numbers": "n = 1\nm = int(y[0])\nfor i in range(40):\n    n, m = m, n + m",
    "loop product": "n = 1\nfor i in range(20):\n    n *= int(y[i % 2]) % 1000",
    "sum": "n = sum(int(v) for v in y)",
    "sum of list": "n = sum([int(v) for v in y])",
    "branch": "n = 1\nif x[0] > 0:\n    n = int(y[0])",
    "argument": "n = int(y[0]) + j",
    "long start": "n = 0xCBF29CE484222325\nfor v in y:\n    n = ((n ^ (int(v) & 255)) * 0x100000001B3) % 2**64",
}
USES = (
    *("n", "n + 1", "1 + n", "n - 5", "n + n", "n * 2", "n * n", "-n", "abs(n)", "n * 3 - n * 3", "n ** 2", "n ** 3"),
    *("n << 1", "n << 40", "n + 2**62", "n * 2**40", "n // 2 + n", "n % 7", "~n + n", "divmod(n + n, 7)", "[n + n]"),
    *(
        "(n + n) // 4",
        "n + n > 0",
        "max(n + n, 3)",
        "(n * n) / 2.0",
        "float(n + n)",
        "x + n * 4",
        "n * True",
        "n & 255",
    ),
    *("n * True", "n - y[0]", "n + n == 2 * n", "(n << 13) & 0xFFFFFFFF", "(n * 31 + 7) % 1000003"),
    *(
        "n & (2**64 - 1)",
        "n + 2**63",
        "2**64 - n",
        "n % 2**64",
        "n ^ 2**64",
        "2**64 // (n | 1)",
        "(n > 3) + 2**64",
        "n > 2**64",
    ),
)
MAGNITUDES = (3, 2**31, 2**32 + 5, 2**62, 2**63 - 1, -(2**63), -(2**40))
TURNS = (0, 3, 70)


def programs() -> Iterator[tuple[str, str]]:
    """A name for each, and its text; the function's name is `f` and a number."""
    for number, (way, use) in enumerate((way, use) for way in WAYS for use in USES):
        body = "\n".join(f"    {line}" for line in (*WAYS[way].split("\n"), f"return {use}"))
        yield f"{way}: {use}", f"def f{number}(x, y, t, j):\n{body}\n"
