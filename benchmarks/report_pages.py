"""What a report page costs: bytes, time to make, to open and to draw a graph, elements, requests (in Chromium).

    python benchmarks/report_pages.py [--pictures FOLDER]

The demo, an ensemble of matrix products, a loop, and programs of 2,000 and 10,000 nodes. Nothing runs but what is
traced: plans and pages are made for the fake device.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import kernelgraph as kg

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "examples")]


def ensemble(x: Any, *weights: Any) -> Any:
    return sum(np.tanh(x @ w) for w in weights)


def looped(x: Any) -> Any:
    return kg.fori_loop(0, 100, lambda i, y: y * 0.99 + np.roll(y, 1) * 0.01, x)


def long_program(count: int) -> Callable[[Any, Any], Any]:
    """About `count` nodes that no loop can be made of."""

    rng = random.Random(0)
    ops = (np.add, np.maximum, np.arctan2, np.hypot)
    steps = [
        (rng.choice(ops), rng.randint(max(-20, -n), -1), rng.randint(max(-20, -n), -1)) for n in range(2, count // 3)
    ]

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


def in_browser(path: Path, pictures: Path | None, name: str) -> str:
    """Seconds until the page is drawn, milliseconds a frame, elements, requests."""
    from tests.browser import browser_path, open_browser

    if browser_path() is None:
        return "no browser"
    with open_browser() as browser:
        browser.open(path, 1700, 1000)  # its code is compiled
        start = time.perf_counter()
        browser.open(path, 1700, 1000)
        opened = time.perf_counter() - start
        browser.evaluate("document.querySelector('#passes button').click()")  # the traced graph, the largest
        frame = browser.evaluate(ZOOM)
        elements = browser.evaluate("document.querySelectorAll('*').length")
        if pictures is not None:
            for look, width, dark in (("wide", 1700, False), ("dark", 1700, True), ("narrow", 400, False)):
                browser.open(path, width, 1000, dark)
                browser.picture(pictures / f"{name.replace(',', '').replace(' ', '-')}-{look}.png")
        others = len({r for r in browser.requests if not r.startswith("about:")}) - 1
        assert not browser.errors, browser.errors
    return f"{opened:>8.2f} s {frame:>8.1f} ms {elements:>9} {others:>9}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pictures", type=Path, help="a folder for pictures of each page")
    given = parser.parse_args()
    if given.pictures is not None:
        given.pictures.mkdir(parents=True, exist_ok=True)
    print(f"{'program':<14} {'nodes':>6} {'tasks':>6} {'plan':>8} {'report':>8} {'page':>8} {'kB':>6} "
          f"{'opened':>10} {'frame':>11} {'elements':>9} {'requests':>9}")  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        for name, (function, arguments) in cases().items():
            f = kg.kernel_graph(device="fake", streams="max")(function)
            start = time.perf_counter()
            f.plan(*arguments)
            planned = time.perf_counter()
            report = f.report(*arguments, calls=0)
            made = time.perf_counter()
            path = Path(folder) / "page.html"
            report.save(path)
            saved = time.perf_counter()
            tasks = sum("parent" not in task for task in report.data["tasks"])
            print(
                f"{name:<14} {report.data['nodes']:>6} {tasks:>6} {planned - start:>6.2f} s {made - planned:>6.2f} s "
                f"{saved - made:>6.2f} s {path.stat().st_size // 1000:>6} {in_browser(path, given.pictures, name)}"
            )


if __name__ == "__main__":
    main()
