"""Rules of linear algebra."""

from __future__ import annotations

from ..core.kinds import Refused, Rule

_NOT_YET = Refused("it has no derivative yet; give it one with kg.custom_vjp")
_WITHOUT = """
    linalg.solve linalg.inv linalg.pinv linalg.det linalg.slogdet linalg.cholesky linalg.qr linalg.svd
    linalg.svdvals linalg.eig linalg.eigvals linalg.eigh linalg.eigvalsh linalg.cond linalg.tensorsolve
    linalg.tensorinv linalg.lstsq polyfit
"""

LINALG: dict[str, Rule] = {**dict.fromkeys(_WITHOUT.split(), _NOT_YET)}
