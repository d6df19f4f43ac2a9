"""A scalar function of your own, with its loop and its branch, fused into the kernels around it.

python examples/08_mandelbrot.py
"""

import numpy as np

import kernelgraph as kg

SHADES = " .:-=+*#%@"


@kg.elementwise
def escape(c: complex, most: int = 100) -> tuple[int, float]:
    """How many steps z*z + c takes to leave the circle of radius 2, and how far out it then is."""
    z = 0j
    for step in range(most):
        size = z.real * z.real + z.imag * z.imag
        if size > 4.0:
            return step, size
        z = z * z + c
    return most, 0.0


@kg.kernel_graph
def picture(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Shades from 0 to 9 for the points of a plane, and the part of each row that never leaves."""
    steps, size = escape(x + 1j * y[:, None])
    smooth = np.where(size > 0, steps + 1 - np.log2(np.log2(np.maximum(size, 4.0))), 100)
    return np.clip(np.log2(np.maximum(smooth, 1)) * 1.5, 0, 9).astype(np.int8), (steps == 100).mean(1)


def main(width: int = 76, height: int = 24) -> tuple[np.ndarray, np.ndarray]:
    x, y = np.linspace(-2.1, 0.7, width), np.linspace(1.15, -1.15, height)
    shades, inside = picture(x, y)
    for row in np.asarray(shades):
        print("".join(SHADES[s] for s in row))
    print(f"inside: {float(np.mean(inside)):.1%}; kernels launched: {len(picture.program(x, y).tasks)}")
    return shades, inside


if __name__ == "__main__":
    main()
