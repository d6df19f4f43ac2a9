"""The README is short, and its figures are those that were measured."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
RESULTS = (ROOT / "benchmarks" / "RESULTS.md").read_text(encoding="utf-8")
PEERS = {"kernelgraph": "kernelgraph", "NumPy": "NumPy", "numba": "numba warm", "jax": "jax"}
PEERS["torch.compile"] = "torch.compile warm"
WORDS_IN_A_MINUTE = 250


def prose(text: str) -> str:
    """Without code, tables, pictures and addresses."""
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    text = re.sub(r"^\|.*$|^!\[.*$", "", text, flags=re.MULTILINE)
    return re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text)


def test_it_is_read_in_a_minute() -> None:
    first_page = README.partition("\n[All limits")[0]
    assert len(prose(first_page).split()) <= WORDS_IN_A_MINUTE * 1.15


def test_one_picture_and_one_table() -> None:
    assert len(re.findall(r"!\[", README)) == 1
    assert len(re.findall(r"^\|[-:| ]+\|$", README, re.MULTILINE)) == 1


def rows() -> list[list[str]]:
    table = re.search(r"^\| float32 .*?(?=\n\n)", README, re.MULTILINE | re.DOTALL)
    assert table is not None
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table[0].splitlines()]


@pytest.mark.parametrize("row", rows()[2:], ids=lambda row: row[0][:20])
def test_each_figure_is_in_the_results(row: list[str]) -> None:
    section = re.split(r"^## ", RESULTS, flags=re.MULTILINE)[1]
    assert section.startswith("CPU: 2 cores, AVX-512")
    part = next(p for p in section.split("### ") if row[0] in p.partition("\n")[0])
    for peer, figure in zip(rows()[0][1:], row[1:], strict=True):
        assert f"| {PEERS[peer]} | {figure} ms |" in part, (row[0], peer)


def test_the_figures_in_words_are_in_the_results() -> None:
    found = re.search(
        r"On an H200, (row softmax) of (32768 x 4096) takes (\d+) us: jax.jit (\d+), torch.compile (\d+)", README
    )
    assert found is not None
    part = RESULTS.split(f"### {found[1]}, {found[2]}")[1].split("###")[0]
    for name, figure in zip(("kernelgraph", "jax.jit", "torch.compile"), found.groups()[2:], strict=True):
        assert f"| {name} | {figure} us |" in part
