"""Programs whose reports are looked at."""

from __future__ import annotations

from typing import Any

import numpy as np

import kernelgraph as kg


def smooth(x: Any, weight: float) -> Any:
    return x[1:-1] * (1 - weight) + weight * (x[2:] + x[:-2]) / 2


def two_ways(image: Any, mask: Any) -> dict[str, Any]:
    fine = smooth(image, 0.5)
    coarse = smooth(smooth(image, 0.9), 0.9)
    product = mask @ np.tanh(mask)
    return {"fine": np.sqrt(fine), "coarse": coarse.sum(0), "product": product}


def turns(x: Any) -> Any:
    def body(i: Any, y: Any) -> Any:
        z = np.sort(y * 0.5, axis=0)
        return z + np.cos(i)

    return kg.fori_loop(0, 7, body, x)
