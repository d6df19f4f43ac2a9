"""The table of host calls' rules: every row of `runtime/interpret/numpy_calls.py`, one family a file."""

from __future__ import annotations

from ..core.kinds import ZERO, Refused, Rule
from .assignment import ASSIGNMENTS
from .attention import ATTENTION
from .convolution import CONVOLUTIONS
from .cumulative import CUMULATIVE
from .fourier import FOURIER
from .linalg import LINALG
from .order import ORDER

NOT_KNOWN = "a function of the user's has no derivative that is known; give it one with kg.custom_vjp or kg.custom_jvp"

_ZERO = """
    argsort searchsorted digitize nanargmin nanargmax unravel_index ravel_multi_index isin argpartition lexsort
    last_places linalg.matrix_rank
"""

# what passes make of others, after derivatives are made
_MADE_LATER = """
    reduce linalg.lu linalg.eigh_rows linalg.svd_whole linalg.qr_factors linalg.qr_upper linalg.cholesky_factor
    shifted_products shifted_dots dnn places_in_order combine_in_order
"""

HOST_RULES: dict[str, Rule] = {
    **dict.fromkeys(_ZERO.split(), ZERO),
    **ASSIGNMENTS,
    **ATTENTION,
    **CONVOLUTIONS,
    **CUMULATIVE,
    **FOURIER,
    **LINALG,
    **ORDER,
    "callback": Refused(NOT_KNOWN),
    "call": Refused("a call of NumPy with these keywords has no derivative; write it without them, or kg.custom_vjp"),
    **dict.fromkeys(_MADE_LATER.split(), Refused("this call is made of others when a plan is made")),
}
