"""What is wrong of generated functions, counted by the words that they are made of."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

Case = tuple[str, ...]
Faults = Callable[[list[Case], Path], Iterator[tuple[str, bool]]]  # of each: what is wrong, and whether NumPy runs it


def print_table(cases: list[Case], faults_of: Faults, words: Iterable[str], step: int = 1, start: int = 0) -> None:
    """Of the cases with each word, and of all: how many there are, run in NumPy and are wrong. step, start: which."""
    cases, rows = cases[start::step], []
    with tempfile.TemporaryDirectory() as folder:
        for case, (wrong, in_numpy) in zip(cases, faults_of(cases, Path(folder)), strict=True):
            rows.append((case, bool(wrong), in_numpy))
            if wrong:
                print(wrong, flush=True)
    for word in (*words, ""):
        found = [row for row in rows if not word or word in row[0]]
        wrong_, numpy = sum(row[1] for row in found), sum(row[2] for row in found)
        print(f"{word or 'all':24} {len(found):5} functions {numpy:5} in NumPy {wrong_:5} wrong")
