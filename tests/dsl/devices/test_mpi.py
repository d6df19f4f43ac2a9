"""Four ranks that MPI joins run the suite of `tests.rank_suite`; launching, and what a lost rank does to the others."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from kernelgraph import run
from tests import rank_children, rank_suite
from tests.counts import examples
from tests.interop import library

ROOT = Path(__file__).parent.parent.parent.parent


def on_mpi(*arguments: str, ranks: int = 4, **environment: str) -> subprocess.CompletedProcess[str]:
    """The launcher's output. Of ranks that hang the stacks are in it, and the status is that of SIGABRT."""
    library("mpi4py")
    paths = os.pathsep.join([str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    settings = {"PYTHONPATH": paths, "PYTHONFAULTHANDLER": "1", "KERNELGRAPH_COLLECTIVE_TIMEOUT": "100"}
    given = {**os.environ, **settings, **environment}
    command = [sys.executable, "-m", "kernelgraph.run", "-n", str(ranks), *arguments]
    for _ in range(3):  # Open MPI 5.0.11's launcher does not always come up on a busy machine
        launcher = subprocess.Popen(
            command, cwd=ROOT, env=given, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace"
        )
        try:
            output, errors = launcher.communicate(timeout=150)
        except subprocess.TimeoutExpired:
            started = ranks_of_launcher(launcher.pid)
            for rank in started:
                os.kill(rank, signal.SIGABRT)  # its stacks are printed
            with suppress(subprocess.TimeoutExpired):
                launcher.wait(10)
            launcher.kill()
            output, errors = launcher.communicate()
            if not started:
                continue
        if "listener thread failed to start" not in output + errors:
            break
    return subprocess.CompletedProcess(command, launcher.returncode, output, errors)


def ranks_of_launcher(launcher: int) -> list[int]:
    """The processes that a launcher has started, as Linux shows them."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if int((folder / "stat").read_text().rpartition(")")[2].split()[1]) == launcher:
                found.append(int(folder.name))
    return found


def test_the_suite_of_four_ranks() -> None:
    done = on_mpi("-m", "tests.rank_suite")
    assert done.returncode == 0, done.stdout + done.stderr
    for part in rank_suite.PARTS:
        assert f"{part.__name__} passed" in done.stdout


def test_random_programs_of_processes_with_other_histories() -> None:
    done = on_mpi("-m", "tests.rank_programs", str(examples(15)), ranks=3)
    assert done.returncode == 0 and " 0 wrong" in done.stdout, done.stdout + done.stderr


def test_what_a_rank_starts_is_no_rank() -> None:
    done = on_mpi("-m", "tests.rank_children", ranks=2)
    assert done.returncode == 0 and "WRONG" not in done.stdout, done.stdout + done.stderr
    assert done.stdout.count("TOLD") == 2 * len(rank_children.WAYS)


def test_a_child_that_joins_before_the_rank_does() -> None:
    done = on_mpi("-m", "tests.rank_children", "--early", ranks=2)
    assert done.returncode == 0 and done.stdout.count("TOLD") == 2, done.stdout + done.stderr


def test_the_launcher_passes_signals_on(tmp_path: Path) -> None:
    library("mpi4py")
    script = tmp_path / "script.py"
    script.write_text(
        "import os, sys, time, kernelgraph as kg\nkg.distributed.init()\nkg.distributed.barrier()\n"
        "print('HERE', os.getpid(), flush=True)\ntime.sleep(200)"
    )
    paths = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "kernelgraph.run", "-n", "2", str(script)]
    given = {**os.environ, "PYTHONPATH": paths}
    launcher = subprocess.Popen(command, env=given, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert launcher.stdout is not None
    pids = [int(launcher.stdout.readline().split()[1]) for _ in range(2)]
    launcher.terminate()
    assert launcher.wait(100) != 0
    for _ in range(1000):
        if not any(Path(f"/proc/{pid}").exists() for pid in pids):
            return
        time.sleep(0.05)
    raise AssertionError("ranks go on without their launcher")


@pytest.mark.parametrize(("kind", "waits"), [("raise", "collective"), ("kill", "pull"), ("stop", "barrier")])
def test_in_an_elastic_world_all_name_the_rank_that_failed(kind: str, waits: str) -> None:
    done = on_mpi("--elastic", "-m", "tests.rank_suite", "--blame", kind, waits, "1", ranks=3)
    told = [line for line in done.stdout.splitlines() if "BLAMES" in line]
    assert told and all("BLAMES (1,): " in line and "rank 1" in line for line in told), done.stdout + done.stderr


@pytest.mark.parametrize("kind", ["kill", "raise", "status"])
def test_in_an_elastic_world_those_that_are_left_go_on(kind: str) -> None:
    done = on_mpi("--elastic", "-m", "tests.rank_suite", "--survive", kind, "2", "1", "1", ranks=4)
    left = [done.stdout.count(f"of {size}") for size in (3, 2)]
    assert done.returncode == 0 and left == [3, 2], done.stdout + done.stderr
    assert ("the disk is full" in done.stderr) == (kind == "raise")


@pytest.mark.parametrize("kind", ["kill", "raise"])
def test_in_an_elastic_world_nobody_waits_at_the_end_for_a_rank_that_fails(kind: str) -> None:
    done = on_mpi("--elastic", "-m", "tests.rank_suite", "--blame", kind, "nothing", "1", ranks=3)
    assert "BLAMES" not in done.stdout and "kernelgraph: " not in done.stderr, done.stdout + done.stderr


@pytest.mark.parametrize("kind", ["kill", "raise", "stop"])
def test_a_lost_rank_ends_all_with_its_text(kind: str) -> None:
    done = on_mpi("-m", "tests.rank_suite", "--fault", kind, "2", "1", ranks=2)
    ended = time.time()
    assert done.returncode != 0
    began = float(re.search(r"FAULT ([\d.]+)", done.stdout)[1])  # type: ignore[index]
    assert ended - began < 60
    text = {
        "kill": "signal 9",
        "raise": "ValueError: the disk is full",
        "stop": "waited 3 s (KERNELGRAPH_COLLECTIVE_TIMEOUT) in all_reduce sum float64[3], collective 0 of <lambda>",
    }
    assert text[kind] in done.stderr


def test_each_rank_has_its_share_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "count_gpus", lambda: 4)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(16), raising=False)
    for rank, size in run.LOCAL:
        shared = run.share_machine({rank: "2", size: "4", "OMP_NUM_THREADS": "7"})
        assert shared["CUDA_VISIBLE_DEVICES"] == "2" and shared["KERNELGRAPH_THREADS"] == "4"
        assert "OMP_NUM_THREADS" not in shared
        assert run.share_machine({rank: "3", size: "4", "CUDA_VISIBLE_DEVICES": "5,7"})["CUDA_VISIBLE_DEVICES"] == "7"
    assert run.share_machine({}) == {}


def test_one_rank_needs_no_mpi(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import sys, kernelgraph as kg\nkg.distributed.init()\nprint(kg.distributed.size(), sys.argv[1:], __file__)\n"
        "sys.exit(3)"
    )
    paths = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    command: list[Any] = [sys.executable, "-m", "kernelgraph.run", script, "a", "-n"]
    given = {**os.environ, "PYTHONPATH": paths}
    done = subprocess.run(command, env=given, capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stdout) == (3, f"1 ['a', '-n'] {script}\n"), done.stderr


def test_launching_without_an_mpi(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(run, "find_launcher", lambda: None)
    with pytest.raises(SystemExit) as ended:
        run.main(["-n", "2", __file__])
    assert ended.value.code == 2 and ".[mpi]" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["-n", "0", __file__], "-n takes a number of ranks"),
        (["-n", "2", "no_script.py"], "there is no file no_script.py"),
        (["no_script.py"], "there is no file no_script.py"),
        (["-n", "2", "-m", "no_module.part"], "there is no module no_module.part"),
        (["-n", "2", "--mpiexec", "no_launcher -x", __file__], "there is no program 'no_launcher -x'"),
    ],
)
def test_what_cannot_be_launched(arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run.main(arguments)
    assert ended.value.code == 2 and text in capsys.readouterr().err
