"""GradBench's evaluations, run as they are: they send inputs to kernelgraph, and judge what it answers.

python -m tests.gradbench CHECKOUT [evaluation ...] [--text FILE]    (or: make gradbench GRADBENCH=CHECKOUT)

CHECKOUT is GradBench's repository, with cpp/json.hpp (its cpp/Makefile says where from), the golden implementations
(`make -C CHECKOUT/tools/manual`) and the packages pydantic and dataclasses-json. `ours` and `golden` are the best
milliseconds of a run: KERNELGRAPH_THREADS=1 gives ours one thread, as the golden ones of C++ have; `first` is the first
run, with compiling, in seconds. `--text` is what the LSTM reads, if the checkout has not got its large files.
"""

from __future__ import annotations

import argparse
import importlib
import os
import shutil
import sys
import time
import traceback
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


def run_evaluation(name: str, checkout: Path, seconds: float) -> list[dict[str, Any]]:
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
            if time.perf_counter() - began > 60:
                break
        row |= {"ours": 1e3 * min(times), "first": times[0]}
        return {"output": answer(found)}
    except Exception:
        row["error"] = traceback.format_exc()
        return {"success": False, "error": row["error"]}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("evaluations", nargs="*", default=list(OPTIONS))
    parser.add_argument("--text", type=Path)
    parser.add_argument("--seconds", type=float, default=0.5, help="for each function and input")
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
    failures = 0
    for name in options.evaluations:
        try:
            rows = run_evaluation(name, checkout, options.seconds)
        except Exception:
            rows = [{"function": "", "of": "", "valid": False, "error": traceback.format_exc()}]
        valid = sum(row["valid"] for row in rows)
        failures += not rows or valid < len(rows)
        print(f"{name}: {valid} of {len(rows)} valid", flush=True)
        for row in rows:
            times = "".join(f"  {k} {row[k]:.3f}" for k in ("ours", "golden", "first") if k in row)
            print(f"    {row['function']:10} {row['of']:28}{times}{'' if row['valid'] else '  WRONG'}")
            if row["error"]:
                print("        " + row["error"].strip()[-1500:].replace("\n", "\n        "))
    print(f"{len(options.evaluations) - failures} of {len(options.evaluations)} evaluations valid")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
