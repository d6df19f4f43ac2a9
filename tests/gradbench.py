"""GradBench's evaluations, run as they are: they send inputs to kernelgraph, and judge what it answers.

python -m tests.gradbench CHECKOUT [evaluation ...] [--text FILE] [--beside jax pytorch]
(or: make gradbench GRADBENCH=CHECKOUT)

CHECKOUT is GradBench's repository, with cpp/json.hpp (its cpp/Makefile says where from), the golden implementations
(`make -C CHECKOUT/tools/manual`) and the packages pydantic and dataclasses-json. `ours` and `golden` are the best
milliseconds of a run: KERNELGRAPH_THREADS=1 gives ours one thread, as the golden ones of C++ have; `first` is the first
run, with compiling, in seconds. `--beside` times GradBench's functions for other libraries on the same inputs; those of
JAX are waited for. `--text` is what the LSTM reads, if the checkout has not got its large files.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import math
import os
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.gradbench_functions import tool

# Of each evaluation the options that make it shorter than hours; without any, all that it has.
OPTIONS: dict[str, str] = {
    "hello": "",
    "lse": "-n 2500 40000 1280000",
    "llsq": "-n 16 256 4096 16392",
    "det": "",
    "ode": "-n 1000 10000 100000 -s 1 10 100",
    "kmeans": "-k 10 100 -n 1000 10000 -d 8 16",
    "gmm": "-d 2 10 32 -k 5 25 100",
    "lstm": "-l 2 4 6 -c 1024 4096",
    "ba": "--max 2",
    "ht": "--max 5",
    "saddle": "",
    "particle": "",
}
WITHOUT_TIME = "hello"
LIMIT = 60  # seconds of one function and input


def run_evaluation(name: str, seconds: float, beside: Sequence[str] = ()) -> list[dict[str, Any]]:
    """What GradBench says of each answer: function, input's description, valid, error, milliseconds."""
    evaluation = importlib.import_module("gradbench.eval")
    module = importlib.import_module(f"gradbench.evals.{name}.run")
    rows: list[dict[str, Any]] = []
    golden: dict[str, float] = {}

    def send(self: Any, message: Any) -> Any:
        answer: dict[str, Any] = {"id": self.id, "success": True}
        self.id += 1
        if message["kind"] == "evaluate":
            answer |= answered(name, message, rows)
            rows[-1] |= {library: milliseconds_of(library, name, message) for library in beside}
        elif message["kind"] == "analysis":
            rows[-1] |= {"valid": message["valid"], "error": message.get("error", ""), **golden}
        return answer

    def measured(**options: Any) -> Any:
        found = evaluated(**options)
        times = [t["nanoseconds"] / 1e6 for t in found.get("timings", ()) if t["name"] == "evaluate"]
        golden.clear()
        golden.update({"golden": min(times)} if times else {})
        return found

    evaluation.SingleModuleValidatedEval.send = send
    if hasattr(module, "cpp"):
        evaluated, module.cpp = module.cpp.evaluate, argparse.Namespace(evaluate=measured)
    limits = [] if name == WITHOUT_TIME else ["--min-seconds", str(seconds)]
    sys.argv = [name, *OPTIONS[name].split(), *limits]
    module.main()
    return rows


def answered(name: str, message: Any, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The answer to a message of kind evaluate; a row for it is added."""
    given = message["input"]
    row = {"function": message["function"], "of": message.get("description", ""), "valid": False, "error": ""}
    rows.append(row)
    try:
        prepare, compute, answer = tool()[name][message["function"]]
        arguments = prepare(given)
        times: list[float] = []
        least = given["min_seconds"] if isinstance(given, dict) else 0
        began = time.perf_counter()
        while len(times) < 2 or sum(times[1:]) < least:
            start = time.perf_counter()
            found = compute(*arguments)
            times.append(time.perf_counter() - start)
            if time.perf_counter() - began > LIMIT:
                break
        row |= {"ours": 1e3 * min(times), "first": times[0]}
        return {"output": answer(found)}
    except Exception:
        row["error"] = traceback.format_exc()
        return {"success": False, "error": row["error"]}


def milliseconds_of(library: str, name: str, message: Any) -> float:
    """The best run of GradBench's function for another library; NaN where there is none, infinity where it fails."""
    module = f"gradbench.tools.{library}.{name}"
    if name == WITHOUT_TIME or importlib.util.find_spec(module) is None:
        return math.nan
    signal.alarm(LIMIT)
    try:
        function = getattr(importlib.import_module(module), message["function"])
        found = function.wrapped(message["input"] | {"min_runs": 3})  # the first compiles
        return float(min(t["nanoseconds"] for t in found["timings"])) / 1e6
    except Exception as error:
        print(f"{library}, {name}: {type(error).__name__}: {str(error)[:200]}", file=sys.stderr)
        return math.inf
    finally:
        signal.alarm(0)


def wait_for_results() -> None:
    """GradBench times functions of JAX until they return, which they do before they are done."""
    wrap, ready = importlib.import_module("gradbench.wrap"), importlib.import_module("jax").block_until_ready
    plain = wrap.multiple_runs
    wrap.multiple_runs = lambda **options: lambda f: plain(**options)(lambda given: ready(f(given)))


def _raise_timeout(*_: Any) -> None:
    raise TimeoutError(f"no end in {LIMIT} s")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("evaluations", nargs="*", default=list(OPTIONS))
    parser.add_argument("--text", type=Path)
    parser.add_argument("--seconds", type=float, default=0.5, help="for each function and input")
    parser.add_argument("--beside", nargs="*", default=[], help="jax, pytorch, tensorflow")
    options = parser.parse_args()
    checkout = options.checkout.resolve()
    if not (checkout / "python" / "gradbench").is_dir():
        print(f"{checkout} is no checkout of GradBench")
        return 2
    text = checkout / "evals" / "lstm" / "data" / "lstm_full.txt"
    if options.text is not None and not text.exists():
        text.parent.mkdir(exist_ok=True)
        shutil.copy(options.text, text)
    sys.path.insert(0, str(checkout / "python" / "gradbench"))
    os.chdir(checkout)
    signal.signal(signal.SIGALRM, _raise_timeout)
    if "jax" in options.beside:
        wait_for_results()
    failures = 0
    for name in options.evaluations:
        try:
            rows = run_evaluation(name, options.seconds, options.beside)
        except Exception:
            rows = [{"function": "", "of": "", "valid": False, "error": traceback.format_exc()}]
        valid = sum(row["valid"] for row in rows)
        failures += not rows or valid < len(rows)
        shown = ("ours", "golden", "first", *options.beside)
        print(f"{name}: {valid} of {len(rows)} valid", flush=True)
        for row in rows:
            times = "".join(f"  {k} {row[k]:.3f}" for k in shown if row.get(k, math.nan) == row.get(k))
            print(f"    {row['function']:10} {row['of']:28}{times}{'' if row['valid'] else '  WRONG'}")
            if row["error"]:
                print("        " + row["error"].strip()[-1500:].replace("\n", "\n        "))
    print(f"{len(options.evaluations) - failures} of {len(options.evaluations)} evaluations valid")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
