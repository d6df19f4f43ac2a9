"""Signals: filters, spectra, waves."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from . import Case


def fir_lowpass(x, taps, cutoff):
    """A windowed sinc, made here and applied by np.convolve."""
    n = np.arange(taps) - (taps - 1) / 2
    h = np.sinc(2 * cutoff * n) * np.hamming(taps)
    h /= np.sum(h)
    return np.convolve(x, h, mode="same")


def savitzky_golay(y, window, order):
    """Least-squares smoothing: the coefficients by a pseudo-inverse, the ends mirrored."""
    half = (window - 1) // 2
    b = np.array([[k**i for i in range(order + 1)] for k in range(-half, half + 1)], dtype=float)
    m = np.linalg.pinv(b)[0]
    first = y[0] - np.abs(y[1 : half + 1][::-1] - y[0])
    last = y[-1] + np.abs(y[-half - 1 : -1][::-1] - y[-1])
    y = np.concatenate((first, y, last))
    return np.convolve(m[::-1], y, mode="valid")


def spectrogram(x, size, hop):
    frames = sliding_window_view(x, size)[::hop] * np.hanning(size)
    power = np.abs(np.fft.rfft(frames, axis=-1)) ** 2
    return 10 * np.log10(power + 1e-12)


def welch(x, size):
    segments = x[: len(x) // size * size].reshape(-1, size)
    segments = segments - segments.mean(axis=1, keepdims=True)
    w = np.hanning(size)
    return (np.abs(np.fft.rfft(segments * w)) ** 2).mean(axis=0) / (w**2).sum()


def spectral_poisson(rho, length):
    """Poisson's equation on a periodic square."""
    n = rho.shape[0]
    k = 2 * np.pi * np.fft.fftfreq(n, d=length / n)
    kx, ky = np.meshgrid(k, k, indexing="ij")
    k2 = kx**2 + ky**2
    k2[0, 0] = 1.0
    phi = -np.fft.fft2(rho - rho.mean()) / k2
    phi[0, 0] = 0
    return np.real(np.fft.ifft2(phi))


def split_step_schroedinger(psi, V, dx, dt, steps):
    """A wave packet at a barrier."""
    k = 2 * np.pi * np.fft.fftfreq(len(psi), dx)
    half = np.exp(-0.5j * V * dt)
    kinetic = np.exp(-0.5j * k**2 * dt)
    for _ in range(steps):
        psi = half * np.fft.ifft(kinetic * np.fft.fft(half * psi))
    return np.abs(psi) ** 2


def goertzel(x, frequencies):
    """Single bins of a Fourier transform, many at once."""
    coeff = 2 * np.cos(2 * np.pi * frequencies)
    s1 = np.zeros_like(frequencies)
    s2 = np.zeros_like(frequencies)
    for sample in x:
        s1, s2 = sample + coeff * s1 - s2, s1
    return s1**2 + s2**2 - coeff * s1 * s2


def zero_crossings(x):
    signs = np.sign(x)
    signs[signs == 0] = 1
    return np.sum(signs[1:] != signs[:-1]), np.sqrt(np.mean(x**2))


def haar_wavelet(x, levels):
    details = []
    for _ in range(levels):
        even, odd = x[0::2], x[1::2]
        details.append((even - odd) / np.sqrt(2))
        x = (even + odd) / np.sqrt(2)
    return x, details


def lms_filter(x, d, taps, mu):
    """An adaptive filter that follows the desired signal."""
    w = np.zeros(taps)
    e = np.zeros(len(x) - taps)
    for n in range(len(x) - taps):
        window = x[n : n + taps][::-1]
        e[n] = d[n + taps] - w @ window
        w += 2 * mu * e[n] * window
    return w, e


def compute(array_1, array_2, a, b, c):
    return np.clip(array_1, 2, 10) * a + array_2 * b + c


def tone(n: int, *more: Any) -> tuple[Any, ...]:
    t = np.arange(n)
    return (np.sin(0.05 * t) + 0.3 * np.sin(0.9 * t) + 0.1 * np.random.default_rng(39).normal(size=n), *more)


def packet(n: int) -> tuple[Any, ...]:
    x = np.linspace(-10, 10, n, endpoint=False)
    psi = np.exp(-((x + 4) ** 2) + 3j * x)
    return psi / np.sqrt(np.sum(np.abs(psi) ** 2)), np.where(np.abs(x) < 0.3, 4.0, 0.0), 20 / n, 0.01, 6


def charges(n: int) -> tuple[Any, ...]:
    return np.random.default_rng(40).normal(size=(n, n)), 1.0


def integers(n: int) -> tuple[Any, ...]:
    rng = np.random.default_rng(41)
    return rng.integers(0, 1000, (n, n)), rng.integers(0, 1000, (n, n)), 4, 3, 9


CASES = [
    Case(fir_lowpass, lambda n: tone(n, 21, 0.1), 100, 500_000, "Oppenheim & Schafer, 1975"),
    Case(savitzky_golay, lambda n: tone(n, 11, 3), 100, 500_000, "Savitzky & Golay, 1964; SciPy Cookbook", ulps=1e3),
    Case(spectrogram, lambda n: tone(n, 32, 16), 200, 200_000, "Gabor, 1946", ulps=1e4),
    Case(welch, lambda n: tone(n, 64), 300, 500_000, "Welch, 1967"),
    Case(spectral_poisson, charges, 16, 512, "Hockney, 1965"),
    Case(split_step_schroedinger, packet, 64, 65_536, "Feit, Fleck & Steiger, 1982", ulps=256),
    Case(goertzel, lambda n: (*tone(20), np.linspace(0.01, 0.4, n)), 30, 100_000, "Goertzel, 1958", ulps=1e4),
    Case(zero_crossings, tone, 100, 1_000_000, "common"),
    Case(haar_wavelet, lambda n: tone(n, 4), 64, 1 << 20, "Haar, 1910"),
    Case(lms_filter, lambda n: (*tone(n), *tone(n), 4, 0.01), 30, 60, "Widrow & Hoff, 1960"),
    Case(compute, integers, 20, 1000, "NPBench; Cython's tutorial"),
]
