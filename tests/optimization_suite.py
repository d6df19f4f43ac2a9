"""SciPy's functions of global optimisation, differentiated by kernelgraph and compared with differences of NumPy.

python -m tests.optimization_suite CHECKOUT [name ...]    (or: make optimization-suite SCIPY=CHECKOUT)

CHECKOUT is SciPy's repository, of which benchmarks/benchmarks/go_benchmark_functions is run: some two hundred functions
of vectors, written in NumPy and in Python's loops. At three points within its bounds each gives its value as NumPy, its
gradient by reverse mode, by forward mode along a direction, for all points at once by `vmap`, and its Hessian along a
direction. What differs from differences of NumPy's values is wrong, unless those of another step do too: a kink, or a
function too steep for them. The counter of calls (`self.nfev += 1`) is taken out, for it is no part of the function.
"""

from __future__ import annotations

import sys
import tempfile
import types
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

import kernelgraph as kg

FOLDER = Path("benchmarks") / "benchmarks" / "go_benchmark_functions"
PACKAGE = "go_benchmarks"
STEPS = 1e-4, 1e-5, 1e-6, 1e-7  # of a size of 1 and less
NEAR = 1e-4
Array = Any
Number = Callable[[Array], Any]


def problems(folder: Path, made: Path) -> Iterator[tuple[str, Any]]:
    """Each problem by its name: an object with `fun`, `xmin` and `xmax`. made: where the files without counters go."""
    for name, path in {PACKAGE: [], f"{PACKAGE}.common": [], f"{PACKAGE}.functions": [str(made)]}.items():
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__path__ = path
    vars(sys.modules[f"{PACKAGE}.common"])["safe_import"] = warnings.catch_warnings  # a context around imports
    names: dict[str, Any] = {}
    for path in [folder / "go_benchmark.py", *sorted(folder.glob("go_funcs_*.py"))]:
        name = f"{PACKAGE}.functions.{path.stem}"
        module = sys.modules[name] = types.ModuleType(name)
        file = made / path.name
        file.write_text(path.read_text().replace("self.nfev += 1", "pass"))
        vars(module).update(__package__=f"{PACKAGE}.functions", __file__=str(file))
        exec(compile(file.read_text(), str(file), "exec"), vars(module))
        names |= {k: v for k, v in vars(module).items() if getattr(v, "__module__", "") == name}
    for name, kind in sorted(names.items()):
        if name != "Benchmark":
            yield name, kind()


def differences(function: Callable[[Array], Any], x: Array, direction: Array) -> list[Any]:
    """Central differences along a direction, for each of STEPS."""
    found = []
    for step in STEPS:
        h = step * max(1.0, float(np.max(np.abs(x))))
        ahead, back = (np.asarray(function(x + sign * h * direction), float) for sign in (1, -1))
        found.append((ahead - back) / (2 * h))
    return found


def agrees(found: Any, several: list[Any]) -> bool | None:
    """Whether it is near to one of several approximations; None where no two of those are near to each other."""

    def near(a: Any, b: Any) -> bool:
        scale = 1e-6 + float(np.max(np.abs(b), initial=0))
        return bool(np.all(np.abs(np.asarray(a, float) - b) <= NEAR * scale))

    if any(near(found, s) for s in several):
        return True
    return False if any(near(a, b) for a, b in pairwise(several)) else None


def checks(problem: Any) -> Iterator[tuple[str, bool | None]]:
    """What was checked, and whether it agrees; None where differences say nothing."""
    rng = np.random.default_rng(0)
    low, high = np.asarray(problem.xmin, float), np.asarray(problem.xmax, float)
    points = low + (high - low) * rng.uniform(0.1, 0.9, (3, len(low)))
    function: Number = problem.fun
    gradient = kg.grad(lambda x: _number(function(x)))
    for x in points:
        u = rng.normal(size=x.shape)
        plain = np.asarray(function(x.copy()), float).reshape(())
        value, tangent = kg.jvp(lambda x: _number(function(x)), (x,), (u,))
        yield "value", bool(np.allclose(value, plain, rtol=1e-9, atol=1e-12, equal_nan=True))
        along = [d.reshape(()) for d in differences(lambda x: function(x.copy()), x, u)]
        if not np.all(np.isfinite(along)):
            yield "differences that are not finite", None
            continue
        found = np.asarray(gradient(x))
        yield "gradient", agrees(float(found @ u), along)
        yield "tangent", agrees(float(tangent), along)
        curved = np.asarray(kg.hvp(lambda x: _number(function(x)), (x,), (u,))[0])
        yield "hessian along u", agrees(curved, differences(gradient, x, u))
    each = np.stack([np.asarray(gradient(x)) for x in points])
    yield "vmap", bool(np.allclose(kg.vmap(gradient)(points), each, rtol=1e-8, atol=1e-10, equal_nan=True))


def _number(x: Any) -> Any:
    """Some give arrays of one element."""
    return x.reshape(()) if getattr(x, "shape", ()) else x


def count(name: str, problem: Any, counts: Counter[str]) -> str:
    """Adds what was checked of a problem to the counts. What to say of it, a line or nothing."""
    counts["functions"] += 1
    try:
        found = list(checks(problem))
    except (kg.UnsupportedError, kg.TraceError) as error:
        counts["refused"] += 1
        return f"{name}: refused: {error}\n"
    except Exception as error:
        counts["errors"] += 1
        return f"{name}: {type(error).__name__}: {error}\n"
    counts.update({True: "agree", False: "wrong", None: "differences say nothing"}[ok] for _, ok in found)
    wrong = [what for what, ok in found if ok is False]
    return f"{name}: wrong: {', '.join(wrong)}\n" if wrong else ""


def main() -> int:
    checkout, *wanted = sys.argv[1:] or ["--help"]
    folder = Path(checkout) / FOLDER
    if not folder.is_dir():
        print(__doc__ if checkout == "--help" else f"{checkout} is no checkout of SciPy")
        return 2
    counts: Counter[str] = Counter()
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    with tempfile.TemporaryDirectory() as made:
        for name, problem in problems(folder, Path(made)):
            if not wanted or name in wanted:
                print(count(name, problem, counts), end="", flush=True)
    print(", ".join(f"{n} {what}" for what, n in counts.items()))
    return 1 if counts["wrong"] or counts["errors"] else 0


if __name__ == "__main__":
    sys.exit(main())
