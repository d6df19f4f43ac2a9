"""What numba says when it refuses a function, in other words. An error of numba's in, a reason and a line out."""

from __future__ import annotations

import os
import re
from typing import Any

from ..core.frozen import dataclass


@dataclass
class ScalarFunctionError(Exception):
    """numba refuses a function. line: the number of the line, of `file`. 0 where numba does not say."""

    reason: str
    file: str = ""
    line: int = 0


_PLACE = re.compile(r'File "([^"]+)", line (\d+)')
_NUMBERS = "use numbers, tuples of numbers and their functions"
_SAYINGS = (
    (r"Untyped global name '(\w+)'", f"{{0}} is no number and no function of numbers; {_NUMBERS}"),
    (r"NameError: name '(\w+)' is not defined", "{0} is not defined"),
    (r"Unknown attribute '(\w+)' of type Module\(<module '(\w+)'", "{1}.{0} cannot be compiled; write it with others"),
    (r"Unknown attribute '(\w+)' of type (\S+)", f"{{1}} has no {{0}}; {_NUMBERS}"),
    (r"Cannot unify (.+?) and (.+?) for '\$", "one path gives {0}, another {1}; give the same kind of result on all"),
    (r"Cannot unify (.+?) and (.+?) for '(\w+)", "{2} is {0} on one path and {1} on another; use another name"),
    (r"Can't unify return type from the following types: (.*)", "its paths return different types: {0}"),
    (r"Invalid use of.*<built-in function getitem>", "a number has no items; only tuples have, at whole numbers"),
    (r"implementation of function Function\(<built-in function getitem>", "a number has no items; only tuples have"),
    (
        r"implementation of function Function\(<[\w-]+(?: function)? '?([\w.]+)",
        f"{{0}} does not take these; {_NUMBERS}",
    ),
    (r"use of yield in a closure", "a generator cannot be compiled; write a loop"),
)

# What only Python or numba's runtime has, by the start of a symbol's name.
_RUNTIME = {
    "NRT_": f"lists, arrays, strings or dicts, which need Python's memory; {_NUMBERS}",
    "Py": f"Python objects; {_NUMBERS}",
    "numba_gil": f"Python itself, as print does; {_NUMBERS}",
    "numba_get_np_random": "random numbers; draw them outside, by kg.random, and pass them",
    "numba_cpow": "a power of complex numbers; write cmath.exp(y * cmath.log(x)), or products",
}


def explain_numba_error(error: Any, file: str) -> ScalarFunctionError:
    """In a few words, and the line of the user's `file` where it names one."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", str(error))
    loc = getattr(error, "loc", None)
    places = [*_PLACE.findall(text), (getattr(loc, "filename", None) or "", getattr(loc, "line", 0) or 0)]
    mine = [int(line) for name, line in places if os.path.basename(name) == os.path.basename(file)]
    line = mine[0] if mine else 0
    for pattern, saying in _SAYINGS:
        if match := re.search(pattern, text):
            return ScalarFunctionError(saying.format(*match.groups()), file, line)
    lines = [s.strip() for s in text.splitlines() if s.strip() and not s.startswith(("Failed in", "- Resolution"))]
    return ScalarFunctionError(lines[0] if lines else type(error).__name__, file, line)


def missing_c_symbols_message(missing: list[str]) -> str:
    """Why a function that calls these symbols cannot be used."""
    for start, what in _RUNTIME.items():
        if any(n.startswith(start) for n in missing):
            return f"it uses {what}"
    return f"it calls {', '.join(missing)}, which only numba's runtime has"
