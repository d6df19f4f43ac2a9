"""NPBench's programs (Ziogas et al., ICS 2021), from a checkout of it, with nothing but the decorator, against NumPy.

python -m tests.npbench PATH [--device cpu] [--size S] [--seconds 60] [--only lu]
"""

from __future__ import annotations

import argparse
import importlib
import json
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import kernelgraph as kg


def made(info: dict[str, Any], size: str) -> tuple[Any, dict[str, Any]]:
    """A program's function, and its arguments by name."""
    package = f"npbench.benchmarks.{info['relative_path'].replace('/', '.')}"
    values: dict[str, Any] = dict(info["parameters"][size])
    if "init" in info:
        module = importlib.import_module(f"{package}.{info['module_name']}")
        initialize = getattr(module, info["init"]["func_name"])
        found = initialize(*(values[name] for name in info["init"]["input_args"]))
        names = info["init"]["output_args"]
        values |= dict(zip(names, found if len(names) > 1 else (found,), strict=True))
    module = importlib.import_module(f"{package}.{info['module_name']}_numpy")
    return getattr(module, info["func_name"]), {name: values[name] for name in info["input_args"]}


def copied(arguments: dict[str, Any]) -> list[Any]:
    return [x.copy() if isinstance(x, np.ndarray) else x for x in arguments.values()]


def arrays_of(result: Any) -> list[Any]:
    """All arrays of a result; other things as they are."""
    if result is None:
        return []
    if isinstance(result, (tuple, list)):
        return [x for part in result for x in arrays_of(part)]
    return [result.toarray() if hasattr(result, "toarray") else np.asarray(result)]


def compared(got: list[Any], want: list[Any]) -> str:
    """In words, how results differ; nothing where they do not."""
    if len(got) != len(want):
        return f"{len(got)} results for {len(want)}"
    for number, (a, b) in enumerate(zip(got, want, strict=True)):
        if a.shape != b.shape or a.dtype != b.dtype:
            return f"result {number} is {a.dtype}{list(a.shape)} for {b.dtype}{list(b.shape)}"
        scale = np.abs(b[np.isfinite(b)]).max(initial=0) if b.dtype.kind in "fc" else 0
        near = 1e-3 if b.dtype.char in "fF" else 1e-8
        if not np.allclose(a, b, near, near * scale, equal_nan=True):
            return f"result {number} differs"
    return ""


def run(name: str, info: dict[str, Any], size: str, device: str, pipe: Any) -> None:
    """What became of one program, in words, and its times in seconds: NumPy's, the first call's and the third's."""
    function, arguments = made(info, size)
    theirs = copied(arguments)
    start = time.perf_counter()
    want = arrays_of(function(*theirs))
    times = [time.perf_counter() - start]
    ours = kg.kernel_graph(function, device=device)
    got: list[Any] = []
    for _ in range(3):
        given = copied(arguments)
        start = time.perf_counter()
        try:
            got = arrays_of(ours(*given))
        except Exception as error:
            words = "refused" if isinstance(error, kg.KernelGraphError) else "error"
            pipe.send((f"{words}: {type(error).__name__}: {str(error).splitlines()[0][:160]}", times))
            return
        times.append(time.perf_counter() - start)
    written = [(a, b) for a, b in zip(given, theirs, strict=True) if isinstance(b, np.ndarray)]
    wrong = compared(got, want) or compared([a for a, _ in written], [b for _, b in written])
    pipe.send((f"WRONG: {wrong}" if wrong else "right", times))


def print_outcome(name: str, seconds: float, run: Callable[..., None], *args: Any) -> str:
    """Runs one program in a process of its own, prints what became of it, and returns that in a few words.

    run: takes args and a pipe, into which it sends words and times in seconds."""
    ours, theirs = multiprocessing.Pipe(False)
    process = multiprocessing.get_context("fork").Process(target=run, args=(*args, theirs))
    process.start()
    theirs.close()
    words, times = f"no answer in {seconds:g} s", []
    if ours.poll(seconds):
        try:
            words, times = ours.recv()
        except EOFError:
            words = "died"
    process.kill()
    process.join()
    labels = zip(("numpy", "first", "", "call"), times, strict=False)
    print(f"{name:28} {words} ", *(f"{label} {t * 1e3:.1f} ms" for label, t in labels if label), flush=True)
    return words.split(":")[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", type=Path)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--size", default="S")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--only", default="")
    given = parser.parse_args()
    sys.path.insert(0, str(given.path))
    counts: Counter[str] = Counter()
    for path in sorted((given.path / "bench_info").glob("*.json")):
        info = json.loads(path.read_text())["benchmark"]
        if given.only and given.only not in path.stem:
            continue
        counts[print_outcome(path.stem, given.seconds, run, path.stem, info, given.size, given.device)] += 1
    print(", ".join(f"{n} {kind}" for kind, n in sorted(counts.items())))
    raise SystemExit(1 if set(counts) - {"right"} else 0)


if __name__ == "__main__":
    main()
