"""Ensembles: a function of one system, with a `while` that its own values end, for many systems at once.

python examples/12_ensembles.py [systems]
"""

import sys
import time
from typing import Any

import numpy as np

import kernelgraph as kg

END, TOLERANCE = 2.0, 1e-5


def slope(s: Any, rho: Any) -> Any:
    """The equations of Lorenz (1963)."""
    x, y, z = s[0], s[1], s[2]
    return np.stack([10.0 * (y - x), x * (rho - z) - y, x * y - 8.0 / 3.0 * z])


def trajectory(s: Any, rho: Any) -> tuple[Any, Any]:
    """Where a system ends, and its number of steps, as long as errors allow (Bogacki and Shampine 1989)."""
    t, h, steps = 0.0, 0.01, 0
    while t < END:
        h = min(h, END - t)
        k1 = slope(s, rho)
        k2 = slope(s + 0.5 * h * k1, rho)
        k3 = slope(s + 0.75 * h * k2, rho)
        after = s + h * (2.0 * k1 + 3.0 * k2 + 4.0 * k3) / 9.0
        k4 = slope(after, rho)
        errors = h * np.abs(-5.0 * k1 / 72.0 + k2 / 12.0 + k3 / 9.0 - k4 / 8.0)
        error = np.max(errors)
        if error < TOLERANCE:
            t, s = t + h, after
        h = h * min(2.0, max(0.3, 0.9 * np.sqrt(TOLERANCE / (error + 1e-30))))
        steps = steps + 1
    return s, steps


ensemble = kg.kernel_graph(kg.vmap(trajectory))


def main(count: int = 20_000, checked: int = 20) -> tuple[np.ndarray, np.ndarray]:
    starts, rho = 1.0 + np.random.default_rng(1).normal(size=(count, 3)), np.linspace(1.0, 99.0, count)
    ensemble(starts, rho)  # compiles
    began = time.perf_counter()
    ends, steps = (np.asarray(part) for part in ensemble(starts, rho))
    taken = time.perf_counter() - began
    print(f"{count} systems: {steps.min()} to {steps.max()} steps, {steps.sum() / taken / 1e6:.1f} million a second")
    rows = np.linspace(0, count - 1, checked).astype(int)
    began = time.perf_counter()
    for row in rows:
        end, number = trajectory(starts[row], rho[row])
        assert number == steps[row] and np.array_equal(end, ends[row])
    each = (time.perf_counter() - began) / steps[rows].sum()
    print(f"the same to the bit in NumPy, one by one: {1e-6 / each:.3f} million a second")
    print(f"all of them up to the last one's end would be {steps.max() / steps.mean():.1f} times the work")
    return ends, steps


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
