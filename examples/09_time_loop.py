"""Time loops: a Python loop over time steps is traced, then rolled into one loop that is planned and compiled once.

python examples/09_time_loop.py
"""

import numpy as np

import kernelgraph as kg


def string(n: int) -> np.ndarray:
    """A plucked string at rest."""
    x = np.linspace(0, 1, n)
    return np.minimum(x / 0.3, (1 - x) / 0.7)


@kg.kernel_graph
def vibrate(u: np.ndarray, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """The wave equation: what the string does in so many steps, and the height of its middle after each."""
    before, heights = u, []
    for _ in range(steps):
        after = np.zeros_like(u)
        after[1:-1] = 2 * u[1:-1] - before[1:-1] + 0.25 * (u[2:] - 2 * u[1:-1] + u[:-2])
        before, u = u, after
        heights.append(u[u.size // 2])
    return u, np.stack(heights)


@kg.kernel_graph
def damp(u: np.ndarray, least: float) -> tuple[np.ndarray, int]:
    """Halve the string's height until it is small: how often is known only when the program runs."""
    small: tuple[np.ndarray, int] = kg.while_loop(
        lambda s: s[0].max() > least, lambda s: (s[0] * 0.5, s[1] + 1), (u, 0)
    )
    return small


def main(n: int = 200, steps: int = 1000) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    u, heights = vibrate(string(n), steps)
    for start in range(0, steps, steps // 5):
        print(f"from step {start:4}:", " ".join(f"{h:6.3f}" for h in np.asarray(heights)[start : start + 8]))
    print(f"{len(vibrate.graph(string(n), steps).nodes)} nodes after rolling {steps} steps")
    small, halvings = damp(string(n), 0.01)
    print(f"halved {halvings} times: at most {np.asarray(small).max():.4f}")
    return u, heights, small


if __name__ == "__main__":
    main()
