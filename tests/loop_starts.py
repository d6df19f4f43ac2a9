"""Numbers that loops replace, or not: kinds of starts x loops x what replaces them x uses.

A number that no turn replaces is the one that it was before the loop, of its own kind."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

STARTS = (
    *("3", "0", "True", "2.5", "np.float64(1.5)", "np.float32(1.5)", "np.int64(4)", "np.int8(4)", "np.bool_(True)"),
    *("None", "'ab'", "j", "int(y[0])", "float(x[0])", "x[0]", "y[0]"),
)
LOOPS = {
    "while": "n = $s\ni = 0\nwhile i < t[0]:\n    $r\n    i += 1",
    "while value": "n = $s\ns = float(t[0])\nwhile s > 0.5:\n    $r\n    s -= 1",
    "for": "n = $s\nfor i in range(int(t[0])):\n    $r",
    "long for": "n = $s\nfor i in range(20):\n    if i < t[0]:\n        $r",
    "break": "n = $s\nfor i in range(20):\n    if i >= t[0]:\n        break\n    $r",
    "array": "n = $s\nfor v in z:\n    if v < t[0]:\n        $r",
    "nested": "n = $s\nfor i in range(5):\n    for k in range(i):\n        if k + 1 < t[0]:\n            $r",
}
REPLACED = (
    *("n = x[1]", "n = 7", "n = 1.25", "n = n + 1", "n = n + 0.5", "n = n + x[1]", "n = int(y[1])", "n = y[1]"),
    *("n = not n", "n = np.float32(2)", "n = n", "pass"),
)
USES = (
    *("n", "[n, 1]", "n + 1", "n * 2.0, n // 2", "np.zeros(2, np.float32) + n", "x.astype(np.float32) * n", "y + n"),
    *("type(n) is int", "isinstance(n, float)", "n is None", "n is not None", "None is n", "n == 7", "n or 5", "not n"),
    *("n if n else 3", "n in (7, 3)", "type(n) in (int, float)", "isinstance(n, (int, np.generic))", "np.array(n)"),
    *("bool(n)", "int(n)", "float(n)", "{'a': n}", "n > 2", "-n", "min(n, 3)", "np.maximum(x, n)", "[n] * 2"),
)
TURNS = (0, 1, 5)


def programs() -> Iterator[str]:
    """The text of each; the function's name is `f` and a number."""
    for number, (start, loop, replaced, use) in enumerate(product(STARTS, LOOPS.values(), REPLACED, USES)):
        text = loop.replace("$s", start).replace("$r", replaced)
        body = "\n".join(f"    {line}" for line in (*text.split("\n"), f"return {use}"))
        yield f"def f{number}(x, y, t, z, j):\n{body}\n"
