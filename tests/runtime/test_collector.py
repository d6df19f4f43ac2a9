"""The collector is off within blocks, and afterwards as it was, however blocks of threads overlap."""

from __future__ import annotations

import gc
from contextlib import ExitStack

import pytest

from kernelgraph.runtime.collector import uncollected


@pytest.mark.parametrize("before", [True, False])
def test_blocks_overlap(before: bool) -> None:
    collects = gc.isenabled()
    try:
        (gc.enable if before else gc.disable)()
        first, second = ExitStack(), ExitStack()
        first.enter_context(uncollected())
        second.enter_context(uncollected())
        first.close()
        assert not gc.isenabled()
        second.close()
        assert gc.isenabled() == before
        with pytest.raises(ZeroDivisionError), uncollected():
            1 / 0  # noqa: B018
        assert gc.isenabled() == before
    finally:
        (gc.enable if collects else gc.disable)()
