"""Every kernel family on a GPU agrees with NumPy on random shapes, layouts and dtypes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.end_to_end.families import FAMILIES, check


@pytest.mark.parametrize("family", FAMILIES)
@given(data=st.data())
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
def test_families(device: Any, family: str, data: Any) -> None:
    check(data.draw(FAMILIES[family]()), "cuda")
