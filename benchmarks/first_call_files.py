"""Which of the project's files a call visits: a first call that compiles, and one on the hot path.

    python benchmarks/first_call_files.py [--device cpu|cuda|fake] [--imports] [--quiet]

A file counts once a function of it runs; what importing a module runs counts with --imports alone. Nothing comes from
a disk cache. The fake device compiles for a GPU and runs nothing. Default: cpu, fake, and cuda where there is one.
"""

from __future__ import annotations

import argparse
import importlib.util
import inspect
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

PARSER = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
PARSER.add_argument("--device", help="one device only")
PARSER.add_argument("--imports", action="store_true", help="count what runs while modules are imported too")
PARSER.add_argument("--quiet", action="store_true", help="no lists, only the numbers")
WARM = 200  # calls until the hot path is reached: plans have been chosen among


def program(x: Any, y: Any) -> Any:
    import numpy as np

    return np.tanh(x) * y + x.sum(axis=1, keepdims=True)


def visited(call: Callable[[], object], root: str, imports: bool) -> list[str]:
    """The files below `root` of which a function runs during the call, in any thread."""
    files: set[str] = set()

    def note(frame: FrameType, event: str, arg: object) -> None:
        code = frame.f_code
        if event != "call" or code.co_filename in files or not code.co_filename.startswith(root):
            return
        if imports or (code.co_flags & inspect.CO_OPTIMIZED and not importing(frame)):
            files.add(code.co_filename)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    return sorted(str(Path(name).relative_to(root)) for name in files)


def importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_name == "<module>" and "importlib" in (
            frame.f_back.f_code.co_filename if frame.f_back else ""
        ):
            return True
        frame = frame.f_back
    return False


def count(device: str, imports: bool, quiet: bool) -> None:
    import numpy as np

    import kernelgraph as kg

    root = os.path.dirname(kg.__file__) + os.sep
    function = kg.kernel_graph(program, device=device)
    x = np.ones((64, 64), np.float32)
    arguments = (x, x) if device == "cpu" else (kg.asarray(x, device=device), kg.asarray(x, device=device))
    calls = {"first call": visited(lambda: function(*arguments), root, imports)}
    for _ in range(WARM):
        function(*arguments)
    calls["hot path"] = visited(lambda: function(*arguments), root, imports)
    for name, files in calls.items():
        print(f"{device}: {name}: {len(files)} files")
        if not quiet:
            print("".join(f"    {file}\n" for file in files), end="")


def devices() -> list[str]:
    here = ["cpu", "fake"]
    if importlib.util.find_spec("cuda") is not None and os.path.exists("/dev/nvidiactl"):
        here.append("cuda")
    return here


def main() -> None:
    options = PARSER.parse_args()
    if options.device:
        count(options.device, options.imports, options.quiet)
        return
    environment = {**os.environ, "KERNELGRAPH_CACHE_DIR": ""}
    for device in devices():  # each in a process of its own, where nothing has been called yet
        command = [sys.executable, __file__, *sys.argv[1:], "--device", device]
        subprocess.run(command, check=True, env=environment)


if __name__ == "__main__":
    main()
