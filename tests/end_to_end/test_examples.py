"""Every example runs as a user runs it, and its results agree with NumPy."""

from __future__ import annotations

import importlib.util
import math
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
PATHS = sorted(EXAMPLES.glob("[0-9]*.py"))
erf = np.vectorize(math.erf, otypes=[np.float64])


def load(name: str) -> ModuleType:
    (path,) = EXAMPLES.glob(f"{name}.py")
    spec = importlib.util.spec_from_file_location(f"example_{path.stem}", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def close(ours: Any, expected: Any, tolerance: float = 1e-5) -> None:
    ours = np.asarray(ours)
    assert ours.shape == np.shape(expected)
    np.testing.assert_allclose(ours, expected, rtol=tolerance, atol=tolerance * float(np.abs(expected).max()))


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_runs_and_says_something(path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    shown = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, env=environment, timeout=300)
    assert shown.returncode == 0, shown.stderr
    assert len(shown.stdout.splitlines()) >= 3
    assert "nan" not in shown.stdout


def test_quick_start() -> None:
    wave, envelope = load("01_*").main()
    t = np.linspace(0, 5, 1_000_000, dtype=np.float32).astype(np.float64)
    close(envelope, np.exp(-t))
    close(wave, np.exp(-t) * np.sin(2 * np.pi * 3 * t))


def test_black_scholes() -> None:
    example = load("02_*")
    market = example.options(10_000, seed=1)
    prices = example.black_scholes(*market)
    spot, strike, years = (a.astype(np.float64) for a in market)
    rate, volatility = 0.03, 0.2

    def cdf(x: Any) -> Any:
        return 0.5 * (1 + erf(x / np.sqrt(2)))

    d1 = (np.log(spot / strike) + (rate + volatility**2 / 2) * years) / (volatility * np.sqrt(years))
    d2 = d1 - volatility * np.sqrt(years)
    call = spot * cdf(d1) - strike * np.exp(-rate * years) * cdf(d2)
    close(prices["call"], call)
    close(prices["put"], strike * np.exp(-rate * years) * cdf(-d2) - spot * cdf(-d1))
    close(prices["call delta"], cdf(d1))
    close(prices["put delta"], cdf(d1) - 1)


def test_time_loop() -> None:
    example = load("09_*")
    n, steps = 30, 40
    u, heights, small = example.main(n, steps)
    before = now = example.string(n)
    expected = []
    for _ in range(steps):
        after = np.zeros(n)
        after[1:-1] = 2 * now[1:-1] - before[1:-1] + 0.25 * (now[2:] - 2 * now[1:-1] + now[:-2])
        before, now = now, after
        expected.append(now[n // 2])
    close(u, now)
    close(heights, expected)
    close(small, example.string(n) / 128)


def test_heat_equation() -> None:
    example = load("03_*")
    steps, n = 40, 32
    expected = example.plate(n).astype(np.float64)
    for _ in range(steps):
        u = expected.copy()
        around = expected[:-2, 1:-1] + expected[2:, 1:-1] + expected[1:-1, :-2] + expected[1:-1, 2:]
        u[1:-1, 1:-1] += 0.2 * (around - 4 * expected[1:-1, 1:-1])
        expected = u
    close(example.main(n, steps), expected)


def test_softmax_and_layer_norm() -> None:
    example = load("04_*")
    x, scale, shift = example.data(37, 91, seed=1)
    scale, shift = scale + np.linspace(0, 1, 91, dtype=np.float32), shift - 0.5
    wide = x.astype(np.float64)
    e = np.exp(wide - wide.max(-1, keepdims=True))
    close(example.softmax(x), e / e.sum(-1, keepdims=True))
    normal = (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True) + 1e-5)
    close(example.layer_norm(x, scale, shift), normal * scale + shift)


def test_matmul_ensemble() -> None:
    example = load("05_*")
    x, members = example.data(seed=1)
    votes = example.ensemble(x, members)
    assert len(votes) == len(members) == 8
    for vote, weights in zip(votes, members, strict=True):
        hidden = x.astype(np.float64)
        for weight in weights:
            hidden = np.maximum(hidden @ weight, 0)
        close(vote, hidden)


def test_kmeans() -> None:
    example = load("06_*")
    pixels = example.photograph()[::50]
    centres = pixels[:5].copy()
    moved, nearest, error = example.sweep(pixels, centres, np.arange(5))
    distance = ((pixels[:, np.newaxis].astype(np.float64) - centres) ** 2).sum(-1)
    # Equal or nearly equal distances may go either way.
    chosen = distance[np.arange(len(pixels)), np.asarray(nearest)]
    close(chosen, distance.min(1), 1e-4)
    close(error, distance.min(1).mean(), 1e-4)
    for label in range(5):
        if (np.asarray(nearest) == label).any():
            close(np.asarray(moved)[label], pixels[np.asarray(nearest) == label].astype(np.float64).mean(0), 1e-4)


def test_demo_writes_pictures(tmp_path: Path) -> None:
    """The demo on real input: every output agrees with NumPy, and each is a picture."""
    arguments = [sys.executable, str(EXAMPLES / "demo.py"), "--output", str(tmp_path), "--repeat", "1"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "MPLBACKEND": "agg"}
    shown = subprocess.run(arguments, capture_output=True, text=True, env=environment, timeout=300)
    assert shown.returncode == 0, shown.stderr
    assert len(shown.stdout.splitlines()) <= 20
    assert (tmp_path / "report.html").exists() and (tmp_path / "contact-sheet.png").exists()
    pictures = [path for path in tmp_path.glob("*.png") if path.stem != "contact-sheet"]
    assert len(pictures) == 9
    rows = [line.split() for line in shown.stdout.splitlines() if line.split()[:1] and line.split()[0] in NAMES]
    assert {row[0] for row in rows} == NAMES == {picture.stem for picture in pictures}
    for row in rows:
        assert float(row[-1]) < 1e-4, row


def test_digits(tmp_path: Path) -> None:
    """The gradient is that of differences, and the network learns."""
    example = load("10_*")
    x, y = (a[:64] for a in example.load_digits(return_X_y=True))
    p = {k: a.astype(np.float64) for k, a in example.start(hidden=4).items()}
    gradient = example.kg.grad(example.loss)(p, x / 16, y)
    loss = example.kg.kernel_graph(example.loss)
    for name, place in (("w", (20, 1)), ("b", (2,)), ("v", (3, 7)), ("c", (5,))):
        ends = []
        for sign in (1, -1):
            moved = {k: a.copy() for k, a in p.items()}
            moved[name][place] += sign * 1e-6
            ends.append(float(loss(moved, x / 16, y)))
        assert abs(np.asarray(gradient[name])[place] - (ends[0] - ends[1]) / 2e-6) < 1e-6
    curve, right = example.main(epochs=10, path=tmp_path / "curve.png")
    assert curve[-1] < 0.2 * curve[0] and right > 0.85
    assert (tmp_path / "curve.png").stat().st_size > 5000


NAMES = {"blur-1", "blur-3", "blur-8", "edges", "sharp", "contrast", "slope", "aspect", "hillshade"}


def test_monte_carlo() -> None:
    """Each seed's price agrees with NumPy's own paths, within five standard errors of both."""
    example = load("07_*")
    paths, steps = 400_000, example.STEPS
    noise = np.random.default_rng(1).standard_normal((paths, steps))
    price = 100.0 * np.exp(np.cumsum((0.03 - 0.2**2 / 2) / steps + 0.2 * np.sqrt(1 / steps) * noise, axis=1))
    payoff = np.exp(-0.03) * np.maximum(price.mean(1) - 105.0, 0)
    own = payoff.std() / paths**0.5
    results = example.main(seeds=2)
    assert results[0] != results[1]
    for mean, error in results:
        assert abs(error / own - (paths / example.PATHS) ** 0.5) < 0.05
        assert abs(mean - payoff.mean()) < 5 * np.hypot(error, own)


def test_ensembles() -> None:
    """Each system ends where NumPy has it end, after as many steps."""
    example = load("12_*")
    ends, steps = example.main(300, checked=3)
    starts, rho = 1.0 + np.random.default_rng(1).normal(size=(300, 3)), np.linspace(1.0, 99.0, 300)
    expected = [example.trajectory(*row) for row in zip(starts, rho, strict=True)]
    np.testing.assert_array_equal(ends, [end for end, _ in expected])
    np.testing.assert_array_equal(steps, [number for _, number in expected])
    assert steps.max() > 10 * steps.min()


def test_mandelbrot() -> None:
    example = load("08_*")
    shades, inside = example.main(width=40, height=11)
    x, y = np.linspace(-2.1, 0.7, 40), np.linspace(1.15, -1.15, 11)
    steps = np.vectorize(lambda c: example.escape(complex(c))[0])(x + 1j * y[:, None])
    np.testing.assert_allclose(inside, (steps == 100).mean(1))
    np.testing.assert_array_equal(np.asarray(shades)[steps == 100], 9)
    assert np.asarray(shades).dtype == np.int8 and len(np.unique(shades)) == 10


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_an_example_that_needs_more_says_so_in_its_first_line(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    needs_more = re.search(r"^\s*(from|import) (matplotlib|sklearn)", text, re.MULTILINE) is not None
    assert ("pip install '.[demo]'" in text.splitlines()[0]) == needs_more
