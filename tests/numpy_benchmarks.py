"""The programs of numpy-benchmarks (Guelton et al.), from a checkout of it, with nothing but the decorator, against
NumPy.

python -m tests.numpy_benchmarks PATH [--device cpu] [--seconds 60] [--only wave]
"""

from __future__ import annotations

import argparse
import copy
import re
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import kernelgraph as kg

from .npbench import arrays_of, compared, print_outcome


def run(path: Path, device: str, pipe: Any) -> None:
    """What became of one program, in words, and its times in seconds: NumPy's, the first call's and the third's."""
    text = path.read_text()
    (setup,), (call,) = (re.findall(rf"^#{what}:(.*)$", text, re.M) for what in ("setup", "run"))
    function, _, given = call.strip().rstrip(";").partition("(")
    names: dict[str, Any] = {"__name__": path.stem}
    exec(compile(text, str(path), "exec"), names)
    exec(setup.strip(), names)
    arguments: tuple[Any, ...] = eval(f"(lambda *args: args)({given}", names)
    theirs = copy.deepcopy(arguments)
    start = time.perf_counter()
    want = arrays_of(names[function](*theirs))
    times = [time.perf_counter() - start]
    ours = kg.kernel_graph(names[function], device=device)
    mine: tuple[Any, ...] = ()
    got: list[Any] = []
    for _ in range(3):
        mine = copy.deepcopy(arguments)
        start = time.perf_counter()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                got = arrays_of(ours(*mine))
        except Exception as error:
            words = "refused" if isinstance(error, kg.KernelGraphError) else "error"
            pipe.send((f"{words}: {type(error).__name__}: {str(error).splitlines()[0][:160]}", times))
            return
        times.append(time.perf_counter() - start)
    wrong = compared(got, want) or compared(arrays_of(mine), arrays_of(theirs))
    by_numpy = "right, by NumPy" if "runs in NumPy" in ours.why() else "right"
    pipe.send((f"WRONG: {wrong}" if wrong else by_numpy, times))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", type=Path)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--only", default="")
    given = parser.parse_args()
    counts: Counter[str] = Counter()
    for path in sorted(given.path.glob("numpy_benchmarks/benchmarks/*.py")):
        if given.only not in path.stem:
            continue
        counts[print_outcome(path.stem, given.seconds, run, path, given.device)] += 1
    print(", ".join(f"{n} {kind}" for kind, n in sorted(counts.items())))
    raise SystemExit(1 if {*counts} - {"right", "right, by NumPy"} else 0)


if __name__ == "__main__":
    main()
