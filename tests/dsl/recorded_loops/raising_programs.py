"""Programs whose loops raise errors as values decide; not in a test module, whose assertions pytest rewrites."""

from __future__ import annotations

from typing import Any

import numpy as np


def roots(x: Any, y: Any) -> Any:
    for i in range(len(x)):
        if x[i] < 0:
            raise ValueError("negative")
        x[i] = np.sqrt(x[i])
    return x


def steps(x: Any, y: Any) -> Any:
    s = 0.0
    for i in range(1, len(x)):
        assert x[i] != x[i - 1], "equal"
        if x[i] > 30:
            s += 1
            y[i] = s
        else:
            x[i] += 1
            if y[i] > 7:
                raise RuntimeError
        s += x[i]
    return s


def nearest(x: Any, y: Any) -> Any:
    out = np.zeros(len(x), int)
    for i in range(len(x)):
        out[i] = np.argmin(abs(x[i] - y) ** 2) + np.argmax(y[: i + 1])
        x[i] = y[y.argmin()] + y[np.argmax(-y)]
    return out


def of_nothing(x: Any, y: Any) -> Any:
    out = np.zeros(len(x), int)
    for i in range(len(x)):
        x[i] = 1
        out[i] = np.argmin(x[:i])
    return out
