"""Rules of sorting, selection and interpolation."""

from __future__ import annotations

from ..core.kinds import Refused, Rule

_NOT_YET = Refused("it has no derivative yet; give it one with kg.custom_vjp")
_WITHOUT = """
    sort partition topk median nanmedian percentile nanpercentile quantile nanquantile interp choose bincount
    histogram histogramdd i0
"""

ORDER: dict[str, Rule] = {**dict.fromkeys(_WITHOUT.split(), _NOT_YET)}
