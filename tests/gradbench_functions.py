"""The functions of GradBench's twelve evaluations, in NumPy: for each, what it computes of the inputs that it is sent.

They are written as GradBench's tools for JAX and PyTorch write them, which are vectorised; `TOOL` has a row for each
function of each evaluation: (preparation of what was sent, computation, what is answered).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from itertools import combinations
from typing import Any

import numpy as np

import kernelgraph as kg

Row = tuple[Callable[[Any], tuple[Any, ...]], Callable[..., Any], Callable[[Any], Any]]


def as_list(x: Any) -> Any:
    return np.asarray(x).tolist()


def floats(x: Any) -> Any:
    return np.array(x, float)


# hello


def square(x: Any) -> Any:
    return x * x


# lse, llsq, det, ode, kmeans


def logsumexp(x: Any) -> Any:
    m = x.max()
    return np.log(np.exp(x - m).sum()) + m


def least_squares(x: Any, n: int) -> Any:
    t = -1 + np.arange(n) * 2 / (n - 1)
    powers = np.cumprod(np.concatenate([np.ones((n, 1)), np.repeat(t[:, None], len(x) - 1, 1)], 1), 1)
    return ((np.sign(t) - (powers * x).sum(1)) ** 2).sum() / 2


@cache
def minors(size: int, of: int) -> tuple[Any, Any]:
    """For each set of `size` columns the columns, and where each set without one of them is among the smaller ones."""
    smaller = {s: k for k, s in enumerate(combinations(range(of), size - 1))}
    sets = list(combinations(range(of), size))
    without = [[smaller[s[:j] + s[j + 1 :]] for j in range(size)] for s in sets]
    return np.array(sets), np.array(without)


def determinant(a: Any, n: int) -> Any:
    """By minors: those of the last rows, then of one row more each."""
    a = a.reshape(n, n)
    found = a[-1]
    for size in range(2, n + 1):
        columns, without = minors(size, n)
        found = (a[n - size][columns] * found[without] * (-1.0) ** np.arange(size)).sum(1)
    return found[0]


def ode(x: Any, steps: int) -> Any:
    def f(y: Any) -> Any:
        return np.concatenate([x[:1], x[1:] * y[:-1]])

    h = 2 / steps
    y = np.zeros_like(x)
    for _ in range(steps):
        k1 = f(y)
        k2 = f(y + h / 2 * k1)
        k3 = f(y + h / 2 * k2)
        k4 = f(y + h * k3)
        y = y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    return y


def cost(centres: Any, points: Any) -> Any:
    distances = (points**2).sum(1)[None] + (centres**2).sum(1)[:, None] - 2 * (centres @ points.T)
    return distances.min(0).sum()


def direction(centres: Any, points: Any) -> Any:
    gradient, hessian = kg.jvp(kg.grad(cost), (centres, points), (np.ones_like(centres), None))
    return gradient / hessian


# gmm


def mixture(p: Any, x: Any, m: int, gamma: float) -> Any:
    alpha, mu, q, lower = p["alpha"], p["mu"], p["q"], p["l"]
    (n, d), k = x.shape, len(alpha)
    columns, rows = np.triu_indices(d, 1)
    factors = np.zeros((k, d, d))
    factors[:, rows, columns] = lower
    diagonals, sums = np.exp(q), q.sum(1)
    centred = x[:, None] - mu
    scaled = diagonals * centred + np.einsum("ijk,mik->mij", factors, centred)
    inner = alpha + sums - 0.5 * (scaled**2).sum(2)
    top = inner.max(1, keepdims=True)
    likelihood = (np.log(np.exp(inner - top).sum(1)) + top[:, 0]).sum()
    squares = (diagonals**2).sum(1) + (lower**2).sum(1)
    degrees = d + m + 1
    multigamma = d * (d - 1) / 4 * math.log(math.pi) + sum(math.lgamma((degrees - j) / 2) for j in range(d))
    prior = k * (degrees * d * math.log(gamma / math.sqrt(2)) - multigamma)
    prior = prior - (0.5 * gamma * gamma * squares - m * sums).sum()
    return -n * d * 0.5 * math.log(2 * math.pi) + likelihood - n * logsumexp(alpha) + prior


def mixture_inputs(given: Any) -> tuple[Any, ...]:
    return {k: floats(given[k]) for k in ("alpha", "mu", "q", "l")}, floats(given["x"]), given["m"], given["gamma"]


# lstm


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def lstm_cell(weight: Any, bias: Any, hidden: Any, cell: Any, x: Any) -> Any:
    forget, within, out, change = np.split(np.concatenate([x, hidden, x, hidden]) * weight + bias, 4)
    cell = cell * sigmoid(forget) + sigmoid(within) * np.tanh(change)
    return sigmoid(out) * np.tanh(cell), cell


def lstm(params: Any, state: Any, sequence: Any) -> Any:
    main, extra = params

    def turn(state: Any, xs: Any) -> Any:
        given, wanted = xs
        x = given * extra[0]
        state = state.copy()
        for i in range(0, len(state), 2):
            state[i], state[i + 1] = lstm_cell(main[i], main[i + 1], state[i], state[i + 1], x)
            x = state[i]
        y = x * extra[1] + extra[2]
        return state, (wanted * (y - np.log(np.exp(y).sum() + 2))).sum()

    _, losses = kg.scan(turn, state, (sequence[:-1], sequence[1:]))
    return -losses.sum() / sequence[1:].size


def lstm_inputs(given: Any) -> tuple[Any, ...]:
    main, extra, state, sequence = (floats(given[k]) for k in ("main_params", "extra_params", "state", "sequence"))
    return (main, extra), state, sequence


def lstm_answer(found: Any) -> Any:
    return [v for part in found for v in np.asarray(part).ravel().tolist()]


# ba


def rotated(rotation: Any, x: Any) -> Any:
    squares = (rotation**2).sum()
    if squares != 0:
        angle = np.sqrt(squares)
        w = rotation / angle
        return x * np.cos(angle) + np.cross(w, x) * np.sin(angle) + w * ((w * x).sum() * (1 - np.cos(angle)))
    return x + np.cross(rotation, x)


def reprojection(camera: Any, point: Any, weight: Any, feature: Any) -> Any:
    seen = rotated(camera[:3], point - camera[3:6])
    flat = seen[:2] / seen[2]
    squares = (flat**2).sum()
    distorted = flat * (1 + camera[9] * squares + camera[10] * squares**2)
    return weight * (distorted * camera[6] + camera[7:9] - feature)


def bundle(cameras: Any, points: Any, weights: Any, seen: Any, features: Any) -> Any:
    return kg.vmap(reprojection)(cameras[seen[:, 0]], points[seen[:, 1]], weights, features), 1 - weights**2


def bundle_jacobian(cameras: Any, points: Any, weights: Any, seen: Any, features: Any) -> Any:
    """Of each observation the (2, 15) derivatives by its camera, point and weight; and those of the weights' errors."""

    def errors(given: Any, feature: Any) -> Any:
        return reprojection(given[:11], given[11:14], given[14], feature)

    given = np.concatenate([cameras[seen[:, 0]], points[seen[:, 1]], weights[:, None]], 1)
    blocks, of_weights = kg.vmap(kg.jacobian(errors))(given, features), kg.vmap(kg.grad(lambda w: 1 - w**2))(weights)
    return blocks, of_weights, len(cameras), len(points)


def bundle_inputs(given: Any) -> tuple[Any, ...]:
    n, m, p = given["n"], given["m"], given["p"]
    cameras, points, features = (np.tile(given[k], (c, 1)) for k, c in (("cam", n), ("x", m), ("feat", p)))
    seen = np.stack([np.arange(p) % n, np.arange(p) % m], 1)
    return cameras, points, np.full(p, float(given["w"])), seen, features


def bundle_answer(found: Any) -> Any:
    errors, weights = found
    return {
        "reproj_error": {"elements": as_list(errors[0]), "repeated": len(errors)},
        "w_err": {"element": float(weights[0]), "repeated": len(weights)},
    }


def bundle_jacobian_answer(found: Any) -> Any:
    """The sparse matrix as GradBench writes it: its first 30 entries, and the last."""
    blocks, weights, n, m = found
    p = len(weights)
    columns = [*range(11), *(11 * n + k for k in range(3)), 11 * n + 3 * m]
    return {
        "rows": [*range(0, 15 * 30, 15), 15 * 2 * p + p],
        "cols": columns * 2 + [11 * n + 3 * m + p - 1],
        "vals": [*np.asarray(blocks[0]).ravel().tolist(), float(weights[-1])],
    }


# ht


def pose(theta: Any, bones: int) -> Any:
    found = np.zeros((bones + 3, 3))
    found[0], found[1], found[2] = theta[:3], 1.0, theta[3:6]
    at, row = 6, 5
    for _ in range(5):
        for k in range(3):
            found[row, 0] = theta[at]
            at += 1
            if k == 0:
                found[row, 1] = theta[at]
                at += 1
            row += 1
        row += 1
    return found


def euler(angles: Any) -> Any:
    """Rotations of shape (bones, 4, 4) by angles about x, z and y."""
    c, s = np.cos(angles), np.sin(angles)
    x, y, z = (np.zeros((len(angles), 4, 4)) + np.eye(4) for _ in range(3))
    x[:, 1, 1], x[:, 2, 1], x[:, 1, 2], x[:, 2, 2] = c[:, 0], s[:, 0], -s[:, 0], c[:, 0]
    y[:, 0, 0], y[:, 2, 0], y[:, 0, 2], y[:, 2, 2] = c[:, 2], s[:, 2], -s[:, 2], c[:, 2]
    z[:, 0, 0], z[:, 1, 0], z[:, 0, 1], z[:, 1, 1] = c[:, 1], s[:, 1], -s[:, 1], c[:, 1]
    return z @ y @ x


def axis_rotation(axis: Any) -> Any:
    n = np.sqrt((axis**2).sum())
    if n < 0.0001:
        return np.eye(3)
    x, y, z = axis / n
    s, c = np.sin(n), np.cos(n)
    rows = [
        [x * x + (1 - x * x) * c, x * y * (1 - c) - z * s, x * z * (1 - c) + y * s],
        [x * y * (1 - c) + z * s, y * y + (1 - y * y) * c, y * z * (1 - c) - x * s],
        [x * z * (1 - c) - y * s, z * y * (1 - c) + x * s, z * z + (1 - z * z) * c],
    ]
    return np.stack([np.stack(row) for row in rows])


def vertices(theta: Any, model: Any) -> Any:
    parents, relatives, inverses, positions, weights = model
    params = pose(theta, len(parents))
    posed = relatives @ euler(params[3:])
    absolute: list[Any] = []
    for k, parent in enumerate(parents):
        absolute.append(posed[k] if parent == -1 else absolute[parent] @ posed[k])
    transforms = np.stack(absolute) @ inverses
    moved = (transforms @ positions.T).transpose(2, 0, 1)
    skinned = (moved * weights[:, :, None]).sum(1)[:, :3]
    return skinned @ (axis_rotation(params[0]) * params[1]).T + params[2]


def hand(theta: Any, us: Any, model: Any, points: Any, places: Any) -> Any:
    """places: of each point a vertex, or with `us` the three of a triangle."""
    found = vertices(theta, model)
    if us is None:
        return points - found[places]
    a, b, c = (found[places[:, k]] for k in range(3))
    u, v = us[:, :1], us[:, 1:]
    return points - (u * a + v * b + (1 - u - v) * c)


def hand_jacobian(theta: Any, us: Any, model: Any, points: Any, places: Any) -> Any:
    rows = kg.jacobian(hand)(theta, us, model, points, places).reshape(-1, len(theta))
    if us is None:
        return rows
    tangents = [np.zeros_like(us) + np.eye(2)[k] for k in range(2)]  # each point has its own u and v
    by_us = [kg.jvp(lambda u: hand(theta, u, model, points, places), (us,), (t,))[1].reshape(-1, 1) for t in tangents]
    return np.concatenate([*by_us, rows], 1)


def hand_inputs(given: Any) -> tuple[Any, ...]:
    data = given["data"]
    model = data["model"]
    arrays = [floats(model[k]) for k in ("base_relatives", "inverse_base_absolutes", "base_positions", "weights")]
    us = floats(given["us"]) if len(given["us"]) else None
    places = np.array(data["correspondences"])
    if us is not None:
        places = np.array(model["triangles"])[places]
    return floats(given["theta"]), us, (tuple(model["parents"]), *arrays), floats(data["points"]), places


# particle, saddle: gradient descent of functions that have gradients, or whole descents, within


def by_reverse(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return kg.grad(f)


def by_forward(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The gradient of a function of a vector, a tangent for each place."""

    def gradient(x: Any) -> Any:
        return np.stack([kg.jvp(f, (x,), (direction,))[1] for direction in np.eye(len(x))])

    return gradient


MODES = {"r": by_reverse, "f": by_forward}


def argmin(f: Callable[[Any], Any], gradient_of: Any, start: Any) -> Any:
    """GradBench's own descent."""
    gradient = gradient_of(f)
    x, value, slope = start, f(start), gradient(start)
    step, good = 1e-5, 0
    while np.sqrt((slope**2).sum()) > 1e-5:
        if good == 10:
            step, good = step * 2, 0
        else:
            trial = x - step * slope
            if np.sqrt(((x - trial) ** 2).sum()) <= 1e-5:
                break
            found = f(trial)
            if found < value:
                x, value, slope, good = trial, found, gradient(trial), good + 1
            else:
                step, good = step / 2, 0
    return x


def saddle(outer: str, inner: str) -> Callable[[Any], Any]:
    def f(a: Any, b: Any) -> Any:
        return (a**2).sum() - (b**2).sum()

    def compute(start: Any) -> Any:
        def highest(a: Any) -> Any:
            return f(a, argmin(lambda b: -f(a, b), MODES[inner], start))

        a = argmin(highest, MODES[outer], start)
        return np.concatenate([a, argmin(lambda b: -f(a, b), MODES[outer], start)])

    return compute


def particle(outer: str, inner: str) -> Callable[[Any], Any]:
    def missed(w: Any) -> Any:
        def potential(x: Any) -> Any:
            first, second = np.stack([10 + 0 * w[0], 10 - w[0]]), np.array([10.0, 0.0])
            return 1 / np.sqrt(((x - first) ** 2).sum()) + 1 / np.sqrt(((x - second) ** 2).sum())

        force = MODES[inner](potential)
        x, v, dt = np.array([0.0, 8.0]), np.array([0.75, 0.0]), 0.1
        a = -force(x)
        x = x + dt * v
        while x[1] > 0:
            v = v + dt * a
            a = -force(x)
            x = x + dt * v
        return (x[0] - x[1] / v[1] * v[0]) ** 2

    return lambda w: argmin(missed, MODES[outer], w)[0]


def jitted(function: Callable[..., Any]) -> Callable[..., Any]:
    return kg.kernel_graph(function, device="cpu")


@cache
def tool() -> dict[str, dict[str, Row]]:
    """By evaluation and function."""

    def runs(prepare: Any, value: Any, both: Any, names: tuple[str, str], answers: tuple[Any, Any]) -> dict[str, Row]:
        return {n: (prepare, jitted(f), a) for n, f, a in zip(names, (value, both), answers, strict=True)}

    plain, adbench = ("primal", "gradient"), ("objective", "jacobian")

    def last(x: Any, steps: int) -> Any:
        return ode(x, steps)[-1]

    def one(key: str, *others: str) -> Callable[[Any], tuple[Any, ...]]:
        return lambda given: (floats(given[key]), *(given[k] for k in others))

    def listed(found: Any) -> Any:
        return {k: as_list(v) for k, v in found.items()}

    def gradient_of_last(x: Any, steps: int) -> Any:
        return kg.grad(last)(x, steps)

    modes = [a + b for a in "rf" for b in "rf"]
    return {
        "hello": {
            n: (lambda x: (float(x),), jitted(f), float) for n, f in (("square", square), ("double", kg.grad(square)))
        },
        "lse": runs(one("x"), logsumexp, kg.grad(logsumexp), plain, (float, as_list)),
        "llsq": runs(one("x", "n"), least_squares, kg.grad(least_squares), plain, (float, as_list)),
        "det": runs(one("A", "ell"), determinant, kg.grad(determinant), plain, (float, as_list)),
        "ode": runs(one("x", "s"), ode, gradient_of_last, plain, (as_list, as_list)),
        "kmeans": runs(
            lambda g: (floats(g["centroids"]), floats(g["points"])), cost, direction, ("cost", "dir"), (float, as_list)
        ),
        "gmm": runs(mixture_inputs, mixture, kg.grad(mixture), adbench, (float, listed)),
        "lstm": runs(lstm_inputs, lstm, kg.grad(lstm), adbench, (float, lstm_answer)),
        "ba": runs(bundle_inputs, bundle, bundle_jacobian, adbench, (bundle_answer, bundle_jacobian_answer)),
        "ht": runs(hand_inputs, hand, hand_jacobian, adbench, (lambda x: np.asarray(x).ravel().tolist(), as_list)),
        "saddle": {m: (one("start"), jitted(saddle(*m)), as_list) for m in modes},
        "particle": {m: (lambda g: (floats([g["w"]]),), jitted(particle(*m)), float) for m in modes},
    }
