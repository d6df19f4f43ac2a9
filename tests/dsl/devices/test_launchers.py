"""What `docs/machines.md` says to write for Slurm, Kubernetes, Dask and Ray, as it stands there, with two ranks of this
machine: MPI's launcher stands for `srun` and the operator's, and where Dask or Ray is not installed, a thread."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from kernelgraph.run import find_launcher, launcher_options
from tests.interop import library

ROOT = Path(__file__).parent.parent.parent.parent
PAGE = (ROOT / "docs/machines.md").read_text(encoding="utf-8")
PROGRAM = """
import numpy as np
import kernelgraph as kg

kg.distributed.init()
with kg.device("cpu"):
    mesh = kg.Mesh(kg.distributed.size())
    total = kg.kernel_graph(lambda x: kg.all_reduce(x), mesh=mesh, in_axes=None, out_axes=None)
    print(f"TOTAL {float(np.asarray(total(np.full(1, kg.distributed.rank() + 1.0)))[0])}", flush=True)
"""
STAND_INS = {
    "dask.distributed": """
import contextlib, sys, types

class Client(contextlib.nullcontext):
    def __init__(self, **options):
        super().__init__(self)

    def submit(self, call, *given, pure):
        return types.SimpleNamespace(result=lambda: call(*given))

sys.modules["dask.distributed"] = types.SimpleNamespace(Client=Client)
""",
    "ray": """
import sys, types

def remote(**options):
    return lambda call: types.SimpleNamespace(remote=call)

sys.modules["ray"] = types.SimpleNamespace(remote=remote, get=lambda found: found, init=lambda **options: None)
""",
}


def block_after(words: str, language: str) -> str:
    """The first block of a language on the page that comes after these words."""
    found = re.search(rf"```{language}\n(.*?)```", PAGE[PAGE.index(words) :], re.DOTALL)
    assert found is not None
    return found[1]


def run(command: list[str], folder: Path) -> str:
    """The output of two ranks; both must have all arrays' sum."""
    library("mpi4py")
    (folder / "program.py").write_text(PROGRAM)
    paths = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    given = {**os.environ, "PYTHONPATH": paths, "PYTHONFAULTHANDLER": "1"}
    done = subprocess.run(command, cwd=folder, env=given, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("TOTAL 3.0") == 2, done.stdout + done.stderr
    return done.stdout


def as_ranks_of_mpi(rest: list[str]) -> list[str]:
    """What comes behind a launcher and its options, started by MPI's launcher."""
    library("mpi4py")
    assert rest[0] == "python"
    launcher = find_launcher()
    assert launcher is not None
    return [*launcher, *launcher_options(launcher[0], False), "-n", "2", sys.executable, *rest[1:]]


def test_slurm(tmp_path: Path) -> None:
    """`srun` starts the ranks; what it runs there is the program itself."""
    last = block_after("**Slurm**", "sh").strip().splitlines()[-1]
    assert last.startswith("srun --mpi=pmix ")
    run(as_ranks_of_mpi(shlex.split(last.removeprefix("srun --mpi=pmix "))), tmp_path)


def test_pbs(tmp_path: Path) -> None:
    found = re.search(r"PBS: `mpiexec -n 32 (.*?)`", PAGE)
    assert found is not None
    run(as_ranks_of_mpi(shlex.split(found[1])), tmp_path)


def test_kubernetes(tmp_path: Path) -> None:
    found = re.search(r"command: \[(.*?)\]", block_after("**Kubernetes**", "yaml"))
    assert found is not None
    words = [word.strip().strip('"') for word in found[1].split(",")]
    assert words[:3] == ["mpirun", "-n", "32"]
    run(as_ranks_of_mpi(words[3:]), tmp_path)


@pytest.mark.parametrize("name", ["dask.distributed", "ray"])
def test_tasks_that_start_ranks(name: str, tmp_path: Path) -> None:
    text = block_after("**Dask and Ray**", "py")
    if name == "ray":
        said = re.search(r"With Ray: `(@ray.*?)` above `start_ranks`, and `(.*?)`\.", PAGE)
        assert said is not None
        text = text.replace("from dask.distributed import Client", "import ray")
        text = text.replace("def start_ranks", f"{said[1]}\ndef start_ranks")
        text = text[: text.index("if __name__")] + f"{said[2]}\n"
    package = name.partition(".")[2] or name
    stand_in = "" if importlib.util.find_spec(package) else STAND_INS[name]
    (tmp_path / "start.py").write_text(stand_in + text)
    run([sys.executable, "start.py"], tmp_path)
