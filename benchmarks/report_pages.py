"""What report pages cost beside their goals: bytes, time to make, to open and to draw, elements, requests (Chromium).

    python benchmarks/report_pages.py [--pictures FOLDER]

The demo, an ensemble of matrix products, a loop, gradients, several devices, and programs of 2,000 and 10,000 nodes.
Nothing runs but what is traced: plans and pages are made for the fake device, of several devices for CPUs. Then what
reports cost those who make none: modules imported, bytes of the package; and how many cuts have a reason.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("KERNELGRAPH_CPU_DEVICES", "2")  # before the import, which counts them

import numpy as np

import kernelgraph as kg

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "examples")]


def ensemble(x: Any, *weights: Any) -> Any:
    return sum(np.tanh(x @ w) for w in weights)


def looped(x: Any) -> Any:
    return kg.fori_loop(0, 100, lambda i, y: y * 0.99 + np.roll(y, 1) * 0.01, x)


def loss(weights: Any, x: Any, y: Any) -> Any:
    for w in weights:
        x = np.tanh(x @ w)
    return ((x - y) ** 2).mean()


def two_devices(x: Any, y: Any) -> Any:
    left = np.tanh(x @ x)
    right = np.exp(kg.place(y, "cpu:1")).sum(axis=1)
    return left, right, left.sum() + right.mean()


def long_program(count: int) -> Callable[[Any, Any], Any]:
    """About `count` nodes that no loop can be made of."""

    rng = random.Random(0)
    ops = (np.add, np.maximum, np.arctan2, np.hypot)
    turns = range(2, round(count / 2.4))
    steps = [(rng.choice(ops), rng.randint(max(-20, -n), -1), rng.randint(max(-20, -n), -1)) for n in turns]

    def program(x: Any, y: Any) -> Any:
        values = [x, y]
        for op, i, j in steps:
            values.append(op(values[i], values[j]) * float(len(values)))
        return values[-1], values[-7], values[-20]

    return program


def cases() -> dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]:
    import demo

    square = kg.spec((512, 512), np.float32)
    line = kg.spec((100_000,), np.float32)
    return {
        "demo": (demo.develop, demo.inputs()),
        "ensemble": (ensemble, (square,) * 9),
        "loop": (looped, (line,)),
        "gradients": (kg.grad(loss), ((square,) * 4, square, square)),
        "two devices": (two_devices, (square, square)),
        "2,000 nodes": (long_program(2_000), (line, line)),
        "10,000 nodes": (long_program(10_000), (line, line)),
    }


# The mean of 20 drawings, each read back, so that it is done and not only asked for.
ZOOM = """(() => {
    const canvas = document.querySelector('#graph canvas'), start = performance.now();
    for (let i = 0; i < 20; i += 1) {
        canvas.dispatchEvent(new WheelEvent('wheel', {deltaY: i % 2 ? 1 : -1, ctrlKey: true, cancelable: true}));
        canvas.getContext('2d').getImageData(0, 0, 1, 1);
    }
    return (performance.now() - start) / 20;
})()"""
# What each page is to stay below: of programs of less than 1,000 nodes, and of others.
GOALS = {
    "to make, s": (0.1, 2.0), "size, kB": (250, 1000), "to open, s": (0.3, 1.0), "a drawing, ms": (16, 16),
    "elements": (3000, 3000), "requests": (0, 0), "cuts without a reason": (0, 0),
}  # fmt: skip


def in_browser(path: Path, pictures: Path | None, name: str) -> dict[str, float]:
    """Seconds until the page is drawn, milliseconds of a drawing of the traced graph, each the least of several;
    elements, requests."""
    from tests.browser import browser_path, open_browser

    if browser_path() is None:
        return {}
    with open_browser() as browser:
        browser.open(path, 1700, 1000)  # its code is compiled
        openings = []
        for _ in range(7):
            start = time.perf_counter()
            browser.open(path, 1700, 1000)
            openings.append(time.perf_counter() - start)
        found = {"to open, s": min(openings)}
        browser.evaluate("document.querySelector('#passes button').click()")  # the traced graph, the largest
        found["a drawing, ms"] = min(browser.evaluate(ZOOM) for _ in range(5))
        found["elements"] = browser.evaluate("document.querySelectorAll('*').length")
        if pictures is not None:
            for look, width, height, dark in LOOKS:
                browser.open(path, width, height, dark)
                browser.picture(pictures / f"{name.replace(',', '').replace(' ', '-')}-{look}.png")
        found["requests"] = len({r for r in browser.requests if not r.startswith("about:")}) - 1
        assert not browser.errors, browser.errors
    return found


LOOKS = (("wide", 1700, 1000, False), ("dark", 1700, 1000, True), ("narrow", 400, 2000, False))
ONLY_IMPORTED = """
import sys
import numpy as np, kernelgraph as kg
f = kg.kernel_graph(device="cpu")(lambda x: x + 1)
np.asarray(f(np.ones(3)))
print(sum(name.startswith(("kernelgraph.dsl.inspection", "kernelgraph.dsl.report")) for name in sys.modules))
"""


def when_nobody_looks() -> tuple[int, float]:
    """How many modules of reports a process has that imports, compiles and calls; kB that they add to the wheel."""
    paths = os.pathsep.join(sys.path)
    command = [sys.executable, "-c", ONLY_IMPORTED]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": paths})
    files = [p for part in ("report", "inspection") for p in (ROOT / "dsl" / part).iterdir() if p.is_file()]
    return int(shown.stdout), sum(len(zlib.compress(p.read_bytes())) for p in files) / 1000


def notebook_picture() -> float:
    """kB of what a notebook shows of a plan of 201 tasks."""
    from kernelgraph.dsl.inspection.notebook import notebook_html_of_plan

    def program(x: Any, weights: Any) -> Any:
        return [np.exp(x @ w) @ w for w in weights]

    square = kg.spec((512, 512), np.float32)
    plan = kg.kernel_graph(device="fake", streams=8)(program).plan(square, (square,) * 67)
    assert len(plan.tasks) == 201
    return len(notebook_html_of_plan(plan)) / 1000


def main() -> None:
    import kernelgraph.dsl.inspection.views  # noqa: F401  # what only the first report takes

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pictures", type=Path, help="a folder for pictures of each page")
    given = parser.parse_args()
    if given.pictures is not None:
        given.pictures.mkdir(parents=True, exist_ok=True)
    missed = []
    print(
        f"{'program':<13} {'nodes':>6} {'tasks':>6} {'plan, s':>8}"
        + "".join(f"{name:>{len(name) + 2}}" for name in GOALS)
    )
    with tempfile.TemporaryDirectory() as folder:
        for name, (function, arguments) in cases().items():
            device = "cpu" if name == "two devices" else "fake"
            f = kg.kernel_graph(device=device, streams="max")(function)
            start = time.perf_counter()
            f.plan(*arguments)
            planned, worked = time.perf_counter(), time.process_time()
            path = Path(folder) / "page.html"
            report = f.report(*arguments, calls=0, path=path)
            found: dict[str, float] = {
                "to make, s": time.process_time() - worked,  # other programs run, too
                "size, kB": path.stat().st_size / 1000,
                "cuts without a reason": sum(not cut["text"] for cut in report.data["cuts"]),
                **in_browser(path, given.pictures, name),
            }
            tasks = sum("parent" not in task for task in report.data["tasks"])
            shown = "".join(f"{_number(found.get(goal)):>{len(goal) + 2}}" for goal in GOALS)
            print(f"{name:<13} {report.data['nodes']:>6} {tasks:>6} {planned - start:>8.2f}{shown}", flush=True)
            large = report.data["nodes"] >= 1000
            missed += [f"{name}, {goal}" for goal, most in GOALS.items() if found.get(goal, 0) > most[large]]
    print(
        f"{'goal':<36}"
        + "".join(f"{'/'.join(map(_number, sorted({*most}))):>{len(goal) + 2}}" for goal, most in GOALS.items())
    )
    modules, added = when_nobody_looks()
    print(f"modules of reports in a process that makes none: {modules} (0); in the wheel: {added:.0f} kB (150)")
    print(f"a plan in a notebook: {notebook_picture():.1f} kB (15)")
    print("missed: " + ("; ".join(missed) or "none"))


def _number(x: float | None) -> str:
    return "-" if x is None else f"{x:.2f}" if 0 < x < 10 and x != int(x) else f"{x:.0f}"


if __name__ == "__main__":
    main()
