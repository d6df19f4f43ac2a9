"""Every public name has an example in its docstring, and prints what the example says."""

from __future__ import annotations

import doctest
import inspect
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

import kernelgraph as kg
from tests.test_api_page import NAMES, value_of

ROOT = Path(__file__).parent.parent
# what annotations name, a dtype of ml_dtypes, a module with a page of its own, what `kg.override` has the example of
WITHOUT = {"DeviceName", "bfloat16", "distributed", "optimizer", "settings"}


def names() -> list[str]:
    """The public names but for errors, each of which has a page with a program that runs."""
    found = {name: value_of(name) for name in {*kg.__all__, *NAMES}}
    return sorted(
        n for n, x in found.items() if not (isinstance(x, type) and issubclass(x, BaseException)) and n not in WITHOUT
    )


def examples(name: str) -> doctest.DocTest:
    text = inspect.getdoc(value_of(name)) or ""
    return doctest.DocTestParser().get_doctest(text + "\n", {"kg": kg, "np": np}, name, None, 0)


def test_every_public_name_has_an_example() -> None:
    assert [name for name in names() if not examples(name).examples] == []


def test_examples_print_what_they_say() -> None:
    """In a process of their own, with two devices."""
    paths = os.pathsep.join([str(ROOT), *sys.path])
    environment: Any = {**os.environ, "KERNELGRAPH_CPU_DEVICES": "2", "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": paths}
    command = [sys.executable, "-m", "tests.test_docstrings"]
    shown = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert shown.returncode == 0, shown.stdout + shown.stderr


if __name__ == "__main__":
    results = [doctest.DocTestRunner().run(examples(name)) for name in names()]
    print(sum(r.attempted for r in results), "examples")
    sys.exit(sum(r.failed for r in results) > 0)
