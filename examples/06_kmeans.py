"""k-means: the eight colours that a photograph is made of. Needs matplotlib: pip install '.[demo]'.

python examples/06_kmeans.py
"""

import matplotlib.image
import numpy as np
from matplotlib.cbook import get_sample_data

import kernelgraph as kg


@kg.kernel_graph
def sweep(pixels: np.ndarray, centres: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, ...]:
    """One sweep of Lloyd's algorithm (1982): the new centres, each pixel's centre, and the mean squared distance."""
    # |p - c|^2 = |p|^2 - 2 p.c + |c|^2
    distance = (pixels**2).sum(1, keepdims=True) - 2 * (pixels @ centres.T) + (centres**2).sum(1)
    nearest = distance.argmin(1)
    member = (nearest[:, np.newaxis] == labels).astype(np.float32)  # one row a pixel, one 1 in it
    count = member.sum(0)[:, np.newaxis]
    moved = (member.T @ pixels) / np.maximum(count, 1)
    return np.where(count > 0, moved, centres), nearest, distance.min(1).mean()


def photograph() -> np.ndarray:
    image = matplotlib.image.imread(get_sample_data("grace_hopper.jpg", asfileobj=False))
    return image.reshape(-1, 3).astype(np.float32)


def main(k: int = 8, sweeps: int = 12) -> tuple[np.ndarray, np.ndarray]:
    pixels = photograph()
    labels = np.arange(k)
    centres, nearest = pixels[:: len(pixels) // k][:k].copy(), labels
    for i in range(sweeps):
        centres, nearest, error = sweep(pixels, centres, labels)
        if i % 3 == 0 or i == sweeps - 1:
            print(f"sweep {i:2}  mean squared distance {float(error):8.2f}")
    share = np.bincount(np.asarray(nearest), minlength=k) / len(pixels)
    colours = np.asarray(centres).round().astype(int)
    for part, (red, green, blue) in sorted(zip(share, colours.tolist(), strict=True), reverse=True):
        print(f"#{red:02x}{green:02x}{blue:02x} {part:6.1%} {'#' * round(60 * part)}")
    return centres, nearest


if __name__ == "__main__":
    main()
