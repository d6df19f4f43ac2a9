"""Rules of Fourier transforms."""

from __future__ import annotations

from ..core.kinds import Refused, Rule

_NOT_YET = Refused("it has no derivative yet; give it one with kg.custom_vjp")
_WITHOUT = """
    fft.fft fft.ifft fft.rfft fft.irfft fft.hfft fft.ihfft fft.fft2 fft.ifft2 fft.rfft2 fft.irfft2 fft.fftn
    fft.ifftn fft.rfftn fft.irfftn
"""

FOURIER: dict[str, Rule] = {**dict.fromkeys(_WITHOUT.split(), _NOT_YET)}
