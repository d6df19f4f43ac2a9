"""Pictures."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from . import Case


def sobel_edges(image):
    p = np.pad(image, 1, mode="edge")
    gx = (p[:-2, 2:] + 2 * p[1:-1, 2:] + p[2:, 2:]) - (p[:-2, :-2] + 2 * p[1:-1, :-2] + p[2:, :-2])
    gy = (p[2:, :-2] + 2 * p[2:, 1:-1] + p[2:, 2:]) - (p[:-2, :-2] + 2 * p[:-2, 1:-1] + p[:-2, 2:])
    magnitude = np.hypot(gx, gy)
    return magnitude / magnitude.max(), np.arctan2(gy, gx)


def gaussian_blur(image, sigma):
    """Separable, with a kernel made on the spot."""
    radius = int(3 * sigma)
    x = np.arange(-radius, radius + 1)
    kernel = np.exp(-0.5 * (x / sigma) ** 2)
    kernel /= kernel.sum()
    padded = np.pad(image, radius, mode="reflect")
    rows = np.zeros((padded.shape[0], image.shape[1]))
    for i, w in enumerate(kernel):
        rows += w * padded[:, i : i + image.shape[1]]
    out = np.zeros_like(image)
    for i, w in enumerate(kernel):
        out += w * rows[i : i + image.shape[0]]
    return out


def unsharp_mask(image, amount):
    p = np.pad(image, 1, mode="edge")
    blurred = sum(p[i : i + image.shape[0], j : j + image.shape[1]] for i in range(3) for j in range(3)) / 9
    return np.clip(image + amount * (image - blurred), 0, 1)


def histogram_equalize(image):
    """Grey levels spread by their own cumulative distribution."""
    counts, edges = np.histogram(image, bins=64, range=(0, 1))
    cdf = counts.cumsum()
    cdf = cdf / cdf[-1]
    return np.interp(image.ravel(), edges[:-1], cdf).reshape(image.shape)


def otsu_threshold(image):
    """The threshold that separates two classes of grey best."""
    counts, edges = np.histogram(image, bins=32, range=(0, 1))
    centres = (edges[:-1] + edges[1:]) / 2
    w0 = np.cumsum(counts)
    w1 = np.cumsum(counts[::-1])[::-1]
    m0 = np.cumsum(counts * centres) / np.maximum(w0, 1)
    m1 = (np.cumsum((counts * centres)[::-1]) / np.maximum(np.cumsum(counts[::-1]), 1))[::-1]
    between = w0[:-1] * w1[1:] * (m0[:-1] - m1[1:]) ** 2
    level = centres[:-1][np.argmax(between)]
    return level, image > level


def bilinear_resize(image, height, width):
    y = np.linspace(0, image.shape[0] - 1, height)
    x = np.linspace(0, image.shape[1] - 1, width)
    y0 = np.minimum(np.floor(y).astype(int), image.shape[0] - 2)
    x0 = np.minimum(np.floor(x).astype(int), image.shape[1] - 2)
    wy, wx = (y - y0)[:, None], (x - x0)[None, :]
    a, b = image[y0][:, x0], image[y0][:, x0 + 1]
    c, d = image[y0 + 1][:, x0], image[y0 + 1][:, x0 + 1]
    return a * (1 - wy) * (1 - wx) + b * (1 - wy) * wx + c * wy * (1 - wx) + d * wy * wx


def rgb_to_hsv(rgb):
    """Hexcone model, with masks as matplotlib does it."""
    out = np.zeros_like(rgb)
    top = rgb.max(-1)
    delta = np.ptp(rgb, -1)
    s = np.zeros_like(delta)
    positive = top > 0
    s[positive] = delta[positive] / top[positive]
    grey = delta == 0
    safe = np.where(grey, 1, delta)
    red = (rgb[..., 0] == top) & ~grey
    out[red, 0] = ((rgb[..., 1] - rgb[..., 2]) / safe)[red]
    green = (rgb[..., 1] == top) & ~grey & ~red
    out[green, 0] = (2.0 + (rgb[..., 2] - rgb[..., 0]) / safe)[green]
    blue = (rgb[..., 2] == top) & ~grey & ~red & ~green
    out[blue, 0] = (4.0 + (rgb[..., 0] - rgb[..., 1]) / safe)[blue]
    out[..., 0] = (out[..., 0] / 6.0) % 1.0
    out[..., 1] = s
    out[..., 2] = top
    return out


def median_filter(image):
    windows = sliding_window_view(np.pad(image, 1, mode="edge"), (3, 3))
    return np.median(windows.reshape(*image.shape, 9), axis=-1)


def ordered_dither(image, levels):
    """Ordered dithering with a Bayer matrix."""
    bayer = np.array([[0, 8, 2, 10], [12, 4, 14, 6], [3, 11, 1, 9], [15, 7, 13, 5]]) / 16
    tiled = np.tile(bayer, (image.shape[0] // 4, image.shape[1] // 4))
    return np.floor(image * (levels - 1) + tiled) / (levels - 1)


def azimuthal_mean(data, radius, npt):
    """The mean of a diffraction image over rings."""
    rmax = radius.max()
    res = np.zeros(npt, dtype=np.float64)
    for i in range(npt):
        r1 = rmax * i / npt
        r2 = rmax * (i + 1) / npt
        mask = np.logical_and(r1 <= radius, radius < r2)
        res[i] = data[mask].mean()
    return res


def picture(n: int, *more: Any) -> tuple[Any, ...]:
    rng = np.random.default_rng(19)
    x = np.linspace(0, 6, n)
    return (np.clip(0.5 + 0.3 * np.sin(x)[:, None] * np.cos(2 * x) + 0.1 * rng.normal(size=(n, n)), 0, 0.999), *more)


def colours(n: int) -> tuple[Any, ...]:
    rgb = np.random.default_rng(20).random((n, n, 3))
    rgb[0, 0] = 0.5
    return (rgb,)


def rings(n: int) -> tuple[Any, ...]:
    rng = np.random.default_rng(21)
    return rng.random(n), rng.random(n), 8


CASES = [
    Case(sobel_edges, picture, 20, 1000, "Sobel & Feldman, 1968"),
    Case(gaussian_blur, lambda n: picture(n, 1.5), 20, 1000, "Gonzalez & Woods, Digital Image Processing"),
    Case(unsharp_mask, lambda n: picture(n, 0.7), 20, 1000, "Gonzalez & Woods, Digital Image Processing"),
    Case(histogram_equalize, picture, 20, 1000, "Hummel, 1975"),
    Case(otsu_threshold, picture, 20, 1000, "Otsu, 1979"),
    Case(bilinear_resize, lambda n: picture(n, n // 2, 2 * n), 20, 500, "Gonzalez & Woods, Digital Image Processing"),
    Case(rgb_to_hsv, colours, 12, 500, "Smith, 1978"),
    Case(median_filter, picture, 16, 300, "Tukey, 1977"),
    Case(ordered_dither, lambda n: picture(n, 4), 16, 1000, "Bayer, 1973"),
    Case(azimuthal_mean, rings, 200, 400_000, "Kieffer et al., pyFAI, 2015", ulps=256),
]
