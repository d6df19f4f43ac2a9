"""A newcomer's first hour with what is installed, in processes of their own and an empty folder: every command of
`kernelgraph` with what it prints and its exit status, and both type checkers on 60 lines of a user's code.

`make wheel-test` runs it in a fresh environment with nothing but the wheel on its path, and CI there alone.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent
INSTALLED = os.environ.get("KERNELGRAPH_EXPECT_INSTALLED")
pytestmark = pytest.mark.skipif(bool(os.environ.get("CI")) and not INSTALLED, reason="make wheel-test runs it")
FILES = {
    "only.py": "import numpy as np, kernelgraph as kg\nf = kg.kernel_graph(lambda x: np.unique(x))\nf(np.ones(3))\n",
    "several.py": (
        "import numpy as np\nimport kernelgraph as kg\n\n\n@kg.kernel_graph\ndef f(x):\n    return (x * 2).sum()\n\n\n"
        "@kg.kernel_graph\ndef un(x):\n    return np.unique(x)\n\n\n"
        "for n in (3, 4, 5):\n    f(np.ones(n))\nun(np.ones(3))\n"
    ),
    "none.py": "print(1)\n",
    "says.py": "import sys\nsys.exit('no input')\n",
    "exits.py": "import numpy as np, kernelgraph as kg\nkg.kernel_graph(lambda x: x + 1)(np.ones(4)).wait()\nexit(3)\n",
    "model.py": (
        "import numpy as np\n\n\ndef step(x):\n    return np.exp(x) + 1\n\n\nclass K:\n    def m(self, x):\n"
        "        return x * 2\n"
    ),
}


class Row(NamedTuple):
    """The words of a call, its exit status, and what it says; a setting of the environment."""

    words: str
    status: int
    said: tuple[str, ...]
    setting: str = ""


ROWS = [
    Row("", 0, ("usage: ", "kernelgraph.run")),
    Row("--version", 0, ("kernelgraph 0.",)),
    Row("info", 0, ("numpy", "cpu", "cache")),
    Row("info", 1, ("KERNELGRAPH_TREADS is no setting; did you mean KERNELGRAPH_THREADS?",), "KERNELGRAPH_TREADS=2"),
    Row("info", 1, ("nothing can be kept in /proc/none", "KERNELGRAPH_CACHE_DIR"), "KERNELGRAPH_CACHE_DIR=/proc/none"),
    Row("reprot x", 2, ("invalid choice: 'reprot'", "did you mean report?")),
    Row("cache lst", 2, ("invalid choice: 'lst'", "did you mean list?")),
    Row("report", 2, ("name a script, or a module after -m",)),
    Row("report only.py", 0, ("runs in NumPy", "only.py:2", "wrote report.html")),
    Row("report several.py", 0, ("float64[3]", "float64[4]", "float64[5]", "un runs in NumPy")),
    Row("report -o no/such/x.html several.py", 2, ("no/such/x.html cannot be written",)),
    Row("report -o . several.py", 2, ("cannot be written (Is a directory)",)),
    Row("profile --report . several.py", 2, ("cannot be written",)),
    Row("profile --trace /proc/x several.py", 2, ("/proc/x cannot be written",)),
    Row("report says.py", 1, ("no input", "says.py calls no decorated function")),
    Row("report no.py", 2, ("there is no file no.py",)),
    Row("report none.py", 1, ("none.py calls no decorated function",)),
    Row("report exits.py", 3, ("also loaded its kernels", "wrote report.html")),
    Row("profile none.py", 1, ("none.py calls no decorated function",)),
    Row("profile several.py", 0, ("in NumPy un", "several.py:7")),
    Row("profile -m several", 0, ("in NumPy un",)),
    Row("report -m several", 0, ("un runs in NumPy",)),
    Row("bench model:step float32[1000] --device cpu", 0, ("times as fast",)),
    Row("bench model:K.m float32[1000] --device cpu", 0, ("times as fast",)),
    Row("bench model:step", 2, ("missing a required argument: 'x'",)),
    Row("bench model", 2, ("write module:function",)),
    Row("bench model:stpe float32[10]", 2, ("no attribute 'stpe'",)),
    Row("bench numpy:exp float32[1000] --device cpu", 0, ("times as fast",)),
    Row("bench --device cuda model:step float32[10]", 2, ("--device cuda: device 'cuda:0' cannot be used",)),
    Row("bench --device foo model:step float32[10]", 2, ("--device foo: there is no device 'foo'",)),
    Row("bench --calls 0 model:step float32[10]", 2, ("0 calls: write at least 1",)),
    Row("bench --calls abc model:step float32[10]", 2, ("abc calls: write at least 1",)),
    Row("bench model:step float32[-3]", 2, ("'float32[-3]' is neither an array such as float32[3,4] nor a",)),
    Row("bench model:step float32[99999999999999]", 2, ("Unable to allocate",)),
    Row("cache list", 0, ("entries",)),
    Row("cache clear --older abc", 2, ("write a number and s, m, h or d",)),
]


def command() -> list[str]:
    """The installed command, else the module."""
    found = Path(sys.executable).parent / ("kernelgraph.exe" if os.name == "nt" else "kernelgraph")
    return [str(found)] if INSTALLED else [sys.executable, "-m", "kernelgraph"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("stranger")
    for name, text in FILES.items():
        (made / name).write_text(text, encoding="utf-8")
    return made


def run(folder: Path, words: list[str], setting: str = "") -> subprocess.CompletedProcess[str]:
    name, _, value = setting.partition("=")
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", **({name: value} if name else {})}
    if not INSTALLED:
        environment["PYTHONPATH"] = os.pathsep.join(path or os.getcwd() for path in sys.path)
    return subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.words} {row.setting}".strip() or "nothing")
def test_each_command_says_what_it_should(row: Row, folder: Path) -> None:
    if os.name == "nt" and "/proc" in row.setting + row.words:
        pytest.skip("a folder of Linux")
    done = run(folder, [*command(), *row.words.split()], row.setting)
    text = done.stdout + done.stderr
    assert done.returncode == row.status, text
    assert [said for said in row.said if said not in text] == [], text
    assert "Traceback" not in text
    if row.status == 2 and "usage" not in text:
        assert len(text.splitlines()) == 1, text


def test_a_mistyped_setting_is_told_to_a_program(folder: Path) -> None:
    done = run(folder, [sys.executable, "several.py"], "KERNELGRAPH_TREADS=2")
    assert done.returncode == 0 and "did you mean KERNELGRAPH_THREADS?" in done.stderr


@pytest.mark.parametrize("checker", ["mypy", "basedpyright"])
def test_type_checkers_accept_a_users_code(checker: str, folder: Path) -> None:
    if find_spec(checker) is None:
        assert not INSTALLED
        pytest.skip(f"no {checker}")
    names = ["programs.py", "users_program.py"]
    for name in names:
        assert len((ROOT / "tests" / "types" / name).read_text(encoding="utf-8").splitlines()) >= 60
        shutil.copy(ROOT / "tests" / "types" / name, folder)
    options = {"mypy": ["--strict"], "basedpyright": ["--level", "error", "--pythonpath", sys.executable]}[checker]
    done = run(folder, [sys.executable, "-m", checker, *options, *names])
    assert done.returncode == 0, done.stdout
