"""Processes that no launcher started as a rank, although their environment says so."""

from __future__ import annotations

import os
import sys

import pytest

from kernelgraph.runtime.core.errors import RankError
from kernelgraph.runtime.worlds import launched


@pytest.fixture(autouse=True)
def in_no_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*launched.LAUNCHED, *launched.NAMED, launched.JOINED):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(launched, "_claims", [])


@pytest.mark.parametrize("name", launched.LAUNCHED)
def test_every_launcher_is_known(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    assert not launched.is_launched()
    monkeypatch.setenv(name, "2")
    assert launched.is_launched()


@pytest.mark.parametrize("name", launched.NAMED)
def test_a_child_of_a_rank_may_not_join_but_a_rank_of_another_launch_may(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "first launch")
    monkeypatch.setenv(launched.JOINED, "")
    launched.mark_rank(1, 4)
    with pytest.raises(
        RankError, match=rf"process {os.getpid()} is no rank: rank 1 of 4 \(process {os.getpid()}\) started"
    ):
        launched.claim_rank()
    monkeypatch.setenv(name, "second launch")
    launched.claim_rank()
    launched._drop_claims_in_forked_child()


@pytest.mark.skipif(sys.platform != "linux", reason="no abstract sockets")
def test_the_second_of_two_that_begin_at_once_may_not_join(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PMIX_NAMESPACE", f"a test of process {os.getpid()}")
    launched.claim_rank()
    with pytest.raises(RankError, match="another process"):
        launched.claim_rank()
    launched._drop_claims_in_forked_child()
    launched.claim_rank()
    launched._drop_claims_in_forked_child()
