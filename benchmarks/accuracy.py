"""The accuracy of every row of the op table that rounds, on a device: a Markdown table of the largest errors in ulp.

    python benchmarks/accuracy.py [--device cpu|cuda] [--count 1000000] [--dtypes f32,f64] [--length 100000000]

Errors are against a wider type, normwise for complex, in units of the last place of the exact result (where a function
is ill-conditioned, of the scale that tests/compiler/op_checks.py gives). `beyond` counts results further off than
4 ulp and twice NumPy's own error. A second table has reductions of `length` float32 numbers against float64.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
SHARES = {"f32": 1.0, "f64": 0.2, "c64": 0.2, "c128": 0.05, "f16": 0.1, "bf16": 0.1}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--count", type=int, default=1_000_000, help="arguments a row in float32; fewer in others")
    parser.add_argument("--dtypes", default=",".join(SHARES))
    parser.add_argument("--length", type=int, default=10**8, help="numbers of a long reduction; 0: none")
    args = parser.parse_args()
    sys.path[:0] = [str(ROOT), str(ROOT / "src")]
    from kernelgraph.compiler.core.types import DTYPES
    from tests.end_to_end.op_accuracy import sweep
    from tests.end_to_end.sum_accuracy import errors

    if args.device == "cuda":
        from kernelgraph.runtime.devices.cuda.device import CUDADevice as Device
    else:
        from kernelgraph.runtime.devices.cpu.device import CPUDevice as Device
    device = Device()
    start = time.perf_counter()
    print("| row | dtype | max ulp | NumPy's | beyond | worst at |\n|---|---|---|---|---|---|")
    for name in filter(None, args.dtypes.split(",")):
        for a in sweep(device, DTYPES[name], max(1, int(args.count * SHARES[name]))):
            at = ", ".join(map(str, a.at))
            print(f"| {a.row} | {name} | {a.ulp:.2f} | {a.numpys:.2f} | {a.beyond or ''} | {at} |", flush=True)
    if args.length:
        print(f"\n| reduction of {args.length} float32 | numbers | ulp | NumPy's |\n|---|---|---|---|")
        for found in errors(args.device, args.length):
            print(f"| {found.reduction} | {found.numbers} | {found.ulp:.2f} | {found.numpys:.2f} |", flush=True)
    print(f"\n{time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
