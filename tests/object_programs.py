"""Ten classes as programs have them: a model's parameters in fields, methods that compute with them and change them.

Each program makes an object and a method's arguments from a number; a new object comes at each call. Arrays are written
by their formulas, as in textbooks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Made = tuple[Any, tuple[Any, ...]]


@dataclass(frozen=True)
class ObjectProgram:
    """A method, and what makes an object and its arguments from a number."""

    name: str
    method: Callable[..., Any]
    make: Callable[[np.random.Generator], Made]


def normalized(weights: Any) -> Any:
    return weights / weights.sum(axis=-1, keepdims=True)


class HiddenMarkovModel:
    def __init__(self, transitions: Any, emissions: Any, start: Any) -> None:
        self.parameters = {"transitions": transitions, "emissions": emissions, "start": start}
        self.settings = {"floor": 1e-12, "name": "hidden Markov model"}

    def log_likelihood(self, observations: Any) -> Any:
        p, floor = self.parameters, self.settings["floor"]
        likely = p["emissions"].T[observations]
        alpha, total = p["start"] * likely[0], 0.0
        for t in range(1, len(observations)):
            scale = alpha.sum() + floor
            total = total + np.log(scale)
            alpha = (alpha / scale) @ p["transitions"] * likely[t]
        return total + np.log(alpha.sum() + floor)


class GaussianMixture:
    def __init__(self, count: int, features: int, shares: Any) -> None:
        self.count, self.shares = count, shares
        self.means = [np.zeros(features) for _ in range(count)]
        self.covariances = [np.eye(features) for _ in range(count)]
        self.weights, self.history = np.full(count, 1 / count), [0.0]

    def maximize(self, points: Any) -> None:
        weights = self.shares.sum(axis=0)
        for i in range(self.count):
            share = self.shares[:, i][:, np.newaxis]
            self.means[i] = (share * points).sum(axis=0) / weights[i]
            away = points - self.means[i]
            self.covariances[i] = (share * away).T @ away / weights[i]
        self.weights = weights / weights.sum()


class Kernel:
    """A sum of a Gaussian kernel and a polynomial one."""

    def __init__(self, width: float, degree: int, offset: float) -> None:
        self.parameters: dict[str, Any] = {"width": width, "degree": degree, "offset": offset, "scale": None}

    def __call__(self, x: Any, y: Any) -> Any:
        p = self.parameters
        scale = 1 / x.shape[1] if p["scale"] is None else p["scale"]
        squares = (x**2).sum(axis=1)[:, np.newaxis] + (y**2).sum(axis=1) - 2 * (x @ y.T)
        return np.exp(-0.5 * squares / p["width"] ** 2) + (scale * (x @ y.T) + p["offset"]) ** p["degree"]


class KMeans:
    def __init__(self, centers: Any) -> None:
        self.centers, self.labels, self.turns = centers, None, 0

    def improve(self, points: Any) -> Any:
        squares = ((points[:, np.newaxis, :] - self.centers[np.newaxis, :, :]) ** 2).sum(axis=-1)
        self.labels = squares.argmin(axis=1)
        chosen = (self.labels[:, np.newaxis] == np.arange(len(self.centers))).astype(points.dtype)
        before = self.centers
        self.centers = chosen.T @ points / np.maximum(chosen.sum(axis=0), 1)[:, np.newaxis]
        self.turns += 1
        return np.abs(self.centers - before).max()


class NaiveBayes:
    def __init__(self, labels: list[str], means: Any, variances: Any, priors: Any) -> None:
        self.labels, self.means, self.variances, self.priors = labels, means, variances, priors

    def log_density(self, points: Any, label: int) -> Any:
        away = (points - self.means[label]) ** 2 / self.variances[label]
        return -0.5 * (np.log(2 * np.pi * self.variances[label]) + away).sum(axis=1)

    def posterior(self, points: Any) -> Any:
        found = np.zeros((len(points), len(self.labels)))
        for i in range(len(self.labels)):
            found[:, i] = np.log(self.priors[i]) + self.log_density(points, i)
        return normalized(np.exp(found - found.max(axis=1, keepdims=True)))


class Particles:
    def __init__(self, places: Any, speeds: Any, masses: Any) -> None:
        self.places, self.speeds, self.masses = places, speeds, masses
        self.time, self.softening, self.damping = 0.0, 0.1, 0.999

    def forces(self) -> Any:
        between = self.places[np.newaxis, :, :] - self.places[:, np.newaxis, :]
        distances = np.sqrt((between**2).sum(axis=-1) + self.softening**2)
        return (between * (self.masses / distances**3)[:, :, np.newaxis]).sum(axis=1)

    def step(self, dt: float = 0.01) -> Any:
        self.speeds += self.forces() * dt
        self.speeds *= self.damping
        self.places += self.speeds * dt
        self.time += dt
        return 0.5 * (self.masses * (self.speeds**2).sum(axis=1)).sum()


class HeatPlate:
    def __init__(self, temperature: Any, spacing: tuple[float, float], diffusivity: float) -> None:
        self.temperature, self.spacing, self._diffusivity = temperature, spacing, diffusivity
        self.clock = {"time": 0.0, "steps": 0}

    @property
    def time_step(self) -> float:
        return min(self.spacing) ** 2 / (4 * self._diffusivity)

    def advance(self) -> Any:
        t, (dy, dx), dt = self.temperature, self.spacing, self.time_step
        inner = t[1:-1, 1:-1]
        bend = (t[2:, 1:-1] - 2 * inner + t[:-2, 1:-1]) / dy**2 + (t[1:-1, 2:] - 2 * inner + t[1:-1, :-2]) / dx**2
        t[1:-1, 1:-1] = inner + self._diffusivity * dt * bend
        self.clock["time"] += dt
        self.clock["steps"] += 1
        return t.mean()


class Rectifier:
    def __call__(self, x: Any) -> Any:
        return np.maximum(x, 0)


class Squashing:
    def __init__(self, slope: float) -> None:
        self.slope = slope

    def __call__(self, x: Any) -> Any:
        return np.tanh(self.slope * x)


class Dense:
    def __init__(self, weights: Any, bias: Any, activation: Any) -> None:
        self.weights, self.bias, self.activation = weights, bias, activation
        self.given: Any = None

    def forward(self, x: Any) -> Any:
        self.given = x
        return self.activation(x @ self.weights + self.bias)


class Network:
    def __init__(self, layers: list[Dense]) -> None:
        self.layers, self.losses, self.trained = layers, [1.0], False

    def predict(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer.forward(x)
        return normalized(np.exp(x - x.max(axis=1, keepdims=True)))


class KalmanFilter:
    def __init__(self, state: Any, motion: Any, seen: Any, noise: float) -> None:
        count = len(state)
        self.state, self.spread = state, np.eye(count)
        self.motion, self.seen = motion, seen
        self.motion_noise, self.noise = np.eye(count) * noise, np.eye(len(seen))
        self.control: Any = None
        self.history = [("made", 0.0)]

    def step(self, measured: Any, control: Any = None) -> Any:
        self.state = self.motion @ self.state
        if self.control is not None and control is not None:
            self.state = self.state + self.control @ control
        self.spread = self.motion @ self.spread @ self.motion.T + self.motion_noise
        off = measured - self.seen @ self.state
        across = self.seen @ self.spread @ self.seen.T + self.noise
        gain = self.spread @ self.seen.T @ np.linalg.inv(across)
        self.state = self.state + gain @ off
        kept = np.eye(len(self.state)) - gain @ self.seen
        self.spread = kept @ self.spread @ kept.T + gain @ self.noise @ gain.T
        return self.state.copy()


class Adam:
    def __init__(self, rate: float = 1e-3, decays: tuple[float, float] = (0.9, 0.999)) -> None:
        self.rate, self.decays, self.floor, self.turn = rate, decays, 1e-8, 0
        self.means: dict[str, Any] = {}
        self.squares: dict[str, Any] = {}

    def update(self, weights: dict[str, Any], slopes: dict[str, Any]) -> None:
        self.turn += 1
        first, second = self.decays
        for name, slope in slopes.items():
            if name not in self.means:
                self.means[name], self.squares[name] = np.zeros_like(slope), np.zeros_like(slope)
            self.means[name] = first * self.means[name] + (1 - first) * slope
            self.squares[name] = second * self.squares[name] + (1 - second) * slope**2
            mean = self.means[name] / (1 - first**self.turn)
            square = self.squares[name] / (1 - second**self.turn)
            weights[name] -= self.rate * mean / (np.sqrt(square) + self.floor)


def hidden_markov_model(rng: np.random.Generator) -> Made:
    tables = normalized(rng.random((8, 8))), normalized(rng.random((8, 6))), normalized(rng.random(8))
    return HiddenMarkovModel(*tables), (rng.integers(0, 6, 60),)


def gaussian_mixture(rng: np.random.Generator) -> Made:
    made = GaussianMixture(3, 4, normalized(rng.random((500, 3))))
    made.history = [0.0] * int(rng.integers(1, 9))
    return made, (rng.random((500, 4)),)


def kernel(rng: np.random.Generator) -> Made:
    return Kernel(float(rng.uniform(0.5, 2)), 3, float(rng.uniform(0, 1))), (rng.random((80, 6)), rng.random((60, 6)))


def k_means(rng: np.random.Generator) -> Made:
    return KMeans(rng.random((5, 3))), (rng.random((1000, 3)),)


def naive_bayes(rng: np.random.Generator) -> Made:
    made = NaiveBayes(["a", "b", "c"], rng.random((3, 6)), rng.random((3, 6)) + 0.1, normalized(rng.random(3)))
    return made, (rng.random((400, 6)),)


def particles(rng: np.random.Generator) -> Made:
    return Particles(rng.random((100, 3)), rng.random((100, 3)), rng.random(100)), ()


def heat_plate(rng: np.random.Generator) -> Made:
    return HeatPlate(rng.random((80, 100)), (1.0, 1.5), float(rng.uniform(0.5, 1))), ()


def network(rng: np.random.Generator) -> Made:
    activations = Rectifier(), Squashing(float(rng.uniform(0.5, 1))), Rectifier()
    sizes = (16, 32, 32, 10)
    layers = [
        Dense(rng.normal(size=(n, m)), rng.normal(size=m), activation)
        for n, m, activation in zip(sizes, sizes[1:], activations, strict=False)
    ]
    return Network(layers), (rng.random((64, 16)),)


def kalman_filter(rng: np.random.Generator) -> Made:
    made = KalmanFilter(rng.random(4), np.eye(4) + 0.1 * rng.random((4, 4)), rng.random((2, 4)), 0.1)
    return made, (rng.random(2),)


def adam(rng: np.random.Generator) -> Made:
    shapes = {"weights": (30, 40), "bias": (40,)}
    weights, slopes = ({name: rng.normal(size=shape) for name, shape in shapes.items()} for _ in range(2))
    return Adam(float(rng.uniform(1e-3, 1e-2))), (weights, slopes)


PROGRAMS = (
    ObjectProgram("hidden Markov model", HiddenMarkovModel.log_likelihood, hidden_markov_model),
    ObjectProgram("Gaussian mixture", GaussianMixture.maximize, gaussian_mixture),
    ObjectProgram("kernels", Kernel.__call__, kernel),
    ObjectProgram("k-means", KMeans.improve, k_means),
    ObjectProgram("naive Bayes", NaiveBayes.posterior, naive_bayes),
    ObjectProgram("particles", Particles.step, particles),
    ObjectProgram("finite differences", HeatPlate.advance, heat_plate),
    ObjectProgram("neural network", Network.predict, network),
    ObjectProgram("Kalman filter", KalmanFilter.step, kalman_filter),
    ObjectProgram("optimizer", Adam.update, adam),
)
