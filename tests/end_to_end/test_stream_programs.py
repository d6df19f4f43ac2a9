"""The programs of `examples/streams` compute what NumPy does, on every engine; their page and pictures are of today."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph.runtime.core.settings import override
from kernelgraph.runtime.program.plan import Wait
from kernelgraph.runtime.verify.plan import find_plan_violations
from tests.stream_programs import HEAD, PAGE, PICTURES, PROGRAMS, load_program, page_and_pictures


@pytest.fixture(autouse=True)
def on_the_cpu() -> Iterator[None]:
    with kg.device("cpu:0"):
        yield


def test_all_of_them_are_there() -> None:
    assert [int(path.name[1:3]) for path in PROGRAMS] == list(range(1, 15))


@pytest.mark.parametrize("engine", ["async", "sync", "chaos"])
@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_values_are_those_of_numpy(path: Path, engine: str) -> None:
    with override(engine=engine):
        found = load_program(path).main()
    assert found
    for name, (ours, right) in found.items():
        np.testing.assert_allclose(np.asarray(ours), right, rtol=1e-9, err_msg=name)


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_each_names_the_original_and_ours(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert "PyTorch:\n" in text or "MXNet:\n" in text
    assert "# ours" in text and len(text.splitlines()) <= 80


def test_what_races_elsewhere_gives_the_same_bits_here() -> None:
    """A thousand runs with random delays, each of the same bytes."""
    program = next(path for path in PROGRAMS if "races" in path.name)
    load_program(program).main(runs=1000)


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_no_wait_is_missing_or_superfluous(path: Path) -> None:
    """Each plan is safe, and without any one of its waits it is not."""
    plan = load_program(path).plan()
    assert not find_plan_violations(plan)
    for wait in [step for step in plan.steps if isinstance(step, Wait)]:
        without = replace(plan, steps=tuple(step for step in plan.steps if step is not wait))
        assert find_plan_violations(without), wait


def test_the_page_and_pictures_are_those_of_the_programs(request: pytest.FixtureRequest) -> None:
    page, pictures = page_and_pictures()
    if request.config.getoption("--update-golden", default=False):
        PAGE.write_text(page, encoding="utf-8")
        for name, svg in pictures.items():
            (PICTURES / name).write_text(svg, encoding="utf-8")
    assert page.startswith(HEAD) and PAGE.read_text(encoding="utf-8") == page
    assert {path.name for path in PICTURES.glob("*.svg")} == {*pictures}
    for name, svg in pictures.items():
        assert (PICTURES / name).read_text(encoding="utf-8") == svg, name
