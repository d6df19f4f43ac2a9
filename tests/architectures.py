"""Each CUDA kernel that tests make, compiled for five architectures, without a GPU:

    python -m tests.architectures                       # of the tests of kernels, of goldens and of GPU programs
    python -m tests.architectures tests/golden -n 2     # of these; pytest's options
    python -m tests.architectures --at-most 500         # so many of the kernels, by chance

The tests run once, as for the GPU that they ask for; each kernel of theirs is kept, and compiled at the end. A kernel
that a cluster of blocks runs is for sm_90 and after; one that does not compile for sm_90, on which the tests are, is
wrong on purpose. It ends with a line for each architecture, and fails if one fails.
"""

from __future__ import annotations

import argparse
import os
import pickle
import random
import subprocess
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

OF_TESTS, ARCHITECTURES = (9, 0), ((7, 5), (8, 0), (9, 0), (10, 0), (12, 0))
FOLDER = "KERNELS_OF_TESTS"  # where a run of tests keeps them
TESTS = ("tests/golden", "tests/compiler", "tests/runtime/devices/cuda", "tests/dsl/api", "tests/end_to_end")


def pytest_configure(config: Any) -> None:
    """As a plugin of pytest: keep each CUDA kernel that is made."""
    from kernelgraph.runtime.core.disk_cache import sha256_digest
    from kernelgraph.runtime.program.program import Kernel

    Kernel("first", "cpu", "", ())  # its initializer is made at first use
    folder, make = Path(os.environ[FOLDER]), Kernel.__init__

    def kept(kernel: Kernel, *args: Any, **named: Any) -> None:
        make(kernel, *args, **named)
        if kernel.target == "cuda":
            file = folder / sha256_digest(kernel.name, kernel.source, kernel.signature, repr(kernel.options))
            if not file.exists():
                try:
                    file.write_bytes(pickle.dumps(kernel))
                except Exception:  # a function of the test's own, which no other process finds
                    file.with_suffix(".local").touch()

    Kernel.__init__ = kept  # type: ignore[method-assign]


def compiled(file: Path, architecture: tuple[int, int]) -> tuple[str, str]:
    """What became of a kernel: `compiled`, `newer` or `failed`, and why."""
    from kernelgraph.runtime.devices.cuda.compile.compile import compile_cubin

    kernel = pickle.loads(file.read_bytes())
    if "cluster" in kernel.source and architecture < (9, 0):
        return "newer", kernel.name
    try:
        return ("compiled" if compile_cubin(kernel, architecture).startswith(b"\x7fELF") else "failed"), kernel.name
    except Exception as error:
        return "failed", f"{kernel.name} ({file.name[:12]}): {str(error)[:300]}"


def main() -> int:
    options, rest = _options()
    folder = Path(os.environ.get(FOLDER) or tempfile.mkdtemp())
    tests = rest if any(not r.startswith("-") for r in rest) else [*TESTS, *rest]
    if not options.compile_only:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.architectures", "-p", "no:cacheprovider", *tests]
        found = subprocess.run(command, env=os.environ | {FOLDER: str(folder)}, check=False)
        print(f"# {found.returncode} is pytest's exit")
    files = sorted(f for f in folder.iterdir() if not f.suffix)
    local = sum(f.suffix == ".local" for f in folder.iterdir())
    print(f"{len(files)} kernels, {local} more of functions that are local to a test")
    if options.at_most and len(files) > options.at_most:
        files = sorted(random.Random(options.seed).sample(files, options.at_most))
    wrong = 0
    with ProcessPoolExecutor(options.processes) as pool:
        states = pool.map(partial(compiled, architecture=OF_TESTS), files, chunksize=8)
        right = [file for file, (state, _) in zip(files, states, strict=True) if state == "compiled"]
        print(f"{len(files) - len(right)} of {len(files)} do not compile for the tests' own architecture", flush=True)
        files = right
        for architecture in ARCHITECTURES:
            found = list(pool.map(partial(compiled, architecture=architecture), files, chunksize=8))
            count = {state: sum(s == state for s, _ in found) for state in ("compiled", "newer", "failed")}
            print(f"sm_{architecture[0]}{architecture[1]}: {count}", flush=True)
            for _, why in [f for f in found if f[0] == "failed"][: options.show]:
                print(f"  {why}", flush=True)
            wrong += count["failed"]
    return int(wrong > 0 or not files)


def _options() -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--at-most", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--show", type=int, default=5)
    parser.add_argument("--compile-only", action="store_true", help="what an earlier run kept in $KERNELS_OF_TESTS")
    return parser.parse_known_args()


if __name__ == "__main__":
    sys.exit(main())
