"""Heat equation: explicit steps on a plate, a 5-point stencil written with slices.

python examples/03_heat_equation.py
"""

import numpy as np

import kernelgraph as kg


@kg.kernel_graph
def step(u: np.ndarray, diffusivity: float) -> np.ndarray:
    """One time step. The border of the plate keeps its temperature."""
    laplacian = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - 4 * u[1:-1, 1:-1]
    new = u.copy()
    new[1:-1, 1:-1] += diffusivity * laplacian
    return new


def plate(n: int) -> np.ndarray:
    u = np.zeros((n, n), np.float32)
    u[0] = 100.0  # one hot edge
    return u


def main(n: int = 128, steps: int = 2000) -> np.ndarray:
    u = plate(n)
    for i in range(steps + 1):
        if i % (steps // 4) == 0:
            column = np.asarray(u)[:: n // 8, n // 2]
            print(f"step {i:5}  down the middle:", " ".join(f"{value:5.1f}" for value in column))
        if i < steps:
            u = step(u, 0.2)  # the array stays on the device; the next step waits for this one
    print("launches per step:", len(step.program(u, 0.2).tasks), "(the stencil, and the four edges)")
    return u


if __name__ == "__main__":
    main()
