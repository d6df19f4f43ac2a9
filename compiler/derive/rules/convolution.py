"""Rules of convolutions."""

from __future__ import annotations

from ..core.kinds import Refused, Rule

_NOT_YET = Refused("it has no derivative yet; give it one with kg.custom_vjp")
_WITHOUT = """
    convolve correlate
"""

CONVOLUTIONS: dict[str, Rule] = {**dict.fromkeys(_WITHOUT.split(), _NOT_YET)}
