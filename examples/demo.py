"""A photograph and an elevation model through one function. Needs matplotlib: pip install '.[demo]'.

Blurs, edges, contrast, slope, hill-shade:

    python examples/demo.py [--device cpu|cuda] [--output demo-output] [--repeat 20]

Prints what the function became, its time beside NumPy's, the largest difference from NumPy for each output, and writes
the outputs as PNGs, and a report of all that happened as one HTML page. Both inputs ship inside matplotlib.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib.image
import numpy as np
from matplotlib.cbook import get_sample_data
from matplotlib.figure import Figure

import kernelgraph as kg

COLOUR_MAPS = {"slope": "magma", "aspect": "twilight"}
METRES_PER_DEGREE = 111_200.0


def cut(x: Any, axis: int, start: int, stop: int) -> Any:
    """`x[start:stop]`, along `axis`."""
    return x[(slice(None),) * axis + (slice(start, stop),)]


def correlate(x: Any, weights: Sequence[float], axis: int) -> Any:
    """The weighted sum of each element's neighbours along `axis`, the same shape as `x`; the edges are repeated."""
    n, radius = x.shape[axis], len(weights) // 2
    padded = np.pad(x, [(radius, radius) if i == axis else (0, 0) for i in range(x.ndim)], mode="edge")
    total = weights[0] * cut(padded, axis, 0, n)
    for i, weight in enumerate(weights[1:], 1):
        if weight:
            total = total + weight * cut(padded, axis, i, i + n)
    return total


def blur(x: Any, sigma: float) -> Any:
    """Gaussian blur of the first two axes, as two one-dimensional passes."""
    radius = math.ceil(3 * sigma)
    weights = [math.exp(-((i / sigma) ** 2) / 2) for i in range(-radius, radius + 1)]
    weights = [weight / sum(weights) for weight in weights]
    return correlate(correlate(x, weights, 0), weights, 1)


def sobel(x: Any) -> Any:
    """Length of the Sobel gradient."""
    down = correlate(correlate(x, (-1.0, 0.0, 1.0), 0), (1.0, 2.0, 1.0), 1)
    right = correlate(correlate(x, (1.0, 2.0, 1.0), 0), (-1.0, 0.0, 1.0), 1)
    return np.hypot(down, right)


def develop(photo: Any, height: Any, dx: float, dy: float, azimuth: Any, altitude: Any) -> dict[str, Any]:
    """photo: uint8 (rows, columns, 3); height: metres on a grid of dx by dy metres; angles of the sun in radians."""
    image = photo.astype(np.float32) / 255.0
    grey = 0.299 * image[..., 0] + 0.587 * image[..., 1] + 0.114 * image[..., 2]
    fine, middle, coarse = blur(grey, 1.0), blur(grey, 3.0), blur(grey, 8.0)
    spread = np.sqrt(blur((grey - coarse) ** 2, 8.0))

    z = height.astype(np.float32)
    east = correlate(z, (-0.5, 0.0, 0.5), 1) / dx
    north = correlate(z, (0.5, 0.0, -0.5), 0) / dy
    slope = np.arctan(np.hypot(east, north))
    aspect = np.arctan2(-east, -north)  # the compass direction that the ground falls to
    light = np.cos(slope) * np.sin(altitude) + np.sin(slope) * np.cos(altitude) * np.cos(azimuth - aspect)
    return {
        "blur-1": fine,
        "blur-3": middle,
        "blur-8": coarse,
        "edges": np.clip(sobel(fine) / 2.0, 0.0, 1.0),
        "sharp": np.clip(image + 1.5 * (image - blur(image, 2.0)), 0.0, 1.0),
        "contrast": np.clip(0.5 + 0.25 * (grey - coarse) / (spread + 0.02), 0.0, 1.0),
        "slope": slope,
        "aspect": aspect,
        "hillshade": np.clip(light, 0.0, 1.0),
    }


def inputs() -> tuple[Any, ...]:
    """The arguments of `develop`: Grace Hopper's portrait, and the ground along the Jacksboro fault in Tennessee."""
    photo = matplotlib.image.imread(get_sample_data("grace_hopper.jpg", asfileobj=False))
    with np.load(get_sample_data("jacksboro_fault_dem.npz", asfileobj=False)) as dem:
        height, dx, dy, latitude = dem["elevation"], float(dem["dx"]), float(dem["dy"]), float(dem["ymin"])
    dy *= METRES_PER_DEGREE
    dx *= METRES_PER_DEGREE * math.cos(math.radians(latitude))
    return photo, height, dx, dy, np.float32(math.radians(315)), np.float32(math.radians(45))


def contact_sheet(images: dict[str, Any], path: Path) -> None:
    """All images on one, each with its name."""
    figure = Figure(figsize=(11, 5.2), layout="constrained")
    for axes, (name, image) in zip(figure.subplots(2, -(-len(images) // 2)).flat, images.items(), strict=True):
        axes.imshow(image, cmap=COLOUR_MAPS.get(name, "gray"))
        axes.set_title(name, fontsize=9)
        axes.axis("off")
    figure.savefig(path, dpi=100)


def median_ms(call: Callable[[], Any], repeat: int) -> float:
    """The median milliseconds of a call, warm."""
    call()
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return 1e3 * statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--device", default="cpu", help="cpu (default) or cuda")
    parser.add_argument("--output", type=Path, default=Path("demo-output"), help="folder for the PNGs")
    parser.add_argument("--repeat", type=int, default=20, help="timed calls")
    options = parser.parse_args()

    fused = kg.kernel_graph(device=options.device)(develop)
    arguments = inputs()

    def call() -> dict[str, Any]:
        outputs = fused(*arguments)
        kg.waitall()
        return outputs

    start = time.perf_counter()
    outputs = {name: np.asarray(value) for name, value in call().items()}
    first = time.perf_counter() - start
    expected = develop(*arguments)

    nodes, plan = len(fused.graph(*arguments).nodes), fused.plan(*arguments)
    streams = f"{plan.streams} stream{'s' if plan.streams > 1 else ''}"
    print(f"{nodes} array operations became {len(plan.tasks)} tasks on {streams} ({options.device})")
    print(f"first call, tracing and compiling included: {first:.2f} s")
    numpy_ms = median_ms(lambda: develop(*arguments), max(3, options.repeat // 4))
    fused_ms = median_ms(call, options.repeat)
    print(f"NumPy {numpy_ms:.1f} ms, kernelgraph on {options.device} {fused_ms:.1f} ms: {numpy_ms / fused_ms:.1f} x")

    options.output.mkdir(parents=True, exist_ok=True)
    print("\noutput      shape            largest difference from NumPy")
    for name, value in outputs.items():
        difference = float(np.abs(value - expected[name]).max())
        print(f"{name:11} {value.shape!s:16} {difference:.1e}")
        matplotlib.image.imsave(options.output / f"{name}.png", value, cmap=COLOUR_MAPS.get(name, "gray"))
    contact_sheet({"photo": arguments[0], **outputs}, options.output / "contact-sheet.png")
    print(f"\nwrote {len(outputs)} images and a sheet of all to {options.output}/")
    print(
        f"open {options.output}/report.html in a browser: it shows what ran when, and which of the lines it came from"
    )
    fused.report(*arguments, path=options.output / "report.html")


if __name__ == "__main__":
    main()
