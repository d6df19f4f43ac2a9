"""`python -m kernelgraph.run -n 4 script.py`: start ranks of a program with the MPI that is installed.

Each rank has its share of the machine's cores and one GPU. An exception that nobody handles ends all ranks.
This file is also what each rank runs, before anything is imported: libraries read how many threads they have early.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import runpy
import shlex
import shutil
import subprocess
import sys
import sysconfig

RANK = "--kernelgraph-rank"
# of each launcher, what holds this rank's number among those of the machine, and how many those are
LOCAL = (
    ("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    ("PALS_LOCAL_RANKID", "PALS_LOCAL_SIZE"),
    ("SLURM_LOCALID", "SLURM_NTASKS_PER_NODE"),
)
THREADS = ("KERNELGRAPH_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def main(arguments: list[str]) -> int:
    """Become the launcher of the ranks; where a process cannot, wait for it and return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m kernelgraph.run", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("-n", "--ranks", type=int, default=1, help="how many ranks (default 1)")
    parser.add_argument("--mpiexec", help="the launcher and options of its own, as one text")
    parser.add_argument("--elastic", action="store_true", help="ranks may be lost: Open MPI with ULFM")
    parser.add_argument("-m", dest="module", action="store_true", help="run a module, as python -m does")
    parser.add_argument("script", help="the program")
    parser.add_argument("rest", nargs=argparse.REMAINDER, help="its arguments")
    options = parser.parse_args(arguments)
    if options.ranks < 1:
        parser.error("-n takes a number of ranks, 1 or more")
    if options.mpiexec and not shutil.which((shlex.split(options.mpiexec) or [""])[0]):
        parser.error(f"--mpiexec: there is no program {options.mpiexec!r}")
    if options.module and importlib.util.find_spec(options.script.split(".")[0]) is None:
        parser.error(f"there is no module {options.script}")
    if not options.module and not os.path.exists(options.script):
        parser.error(f"there is no file {options.script}")
    program = [sys.executable, os.path.abspath(__file__), RANK, *(["-m"] if options.module else [])]
    program += [options.script, *options.rest]
    if options.ranks == 1 and not options.mpiexec:
        return become(program)
    launcher = shlex.split(options.mpiexec) if options.mpiexec else find_launcher()
    if launcher is None:
        parser.exit(
            2, "there is no mpiexec; run pip install '.[mpi]' in kernelgraph's folder, or load your site's MPI\n"
        )
    return become([*launcher, *launcher_options(launcher[0], options.elastic), "-n", str(options.ranks), *program])


def become(command: list[str]) -> int:
    """Run a program in this one's place: signals that are meant for it, as a batch system sends them, reach it."""
    if os.name == "posix":
        os.execvp(command[0], command)
    return subprocess.call(command)


def find_launcher() -> list[str] | None:
    """The mpiexec of this environment, else the first on the path."""
    own = sysconfig.get_path("scripts")
    found = shutil.which("mpiexec", path=own) or shutil.which("mpiexec") or shutil.which("mpirun")
    return [found] if found else None


def launcher_options(launcher: str, elastic: bool) -> list[str]:
    """Of Open MPI: ranks may be more than cores, and use several each."""
    shown = subprocess.run([launcher, "--version"], capture_output=True, text=True).stdout
    if not any(name in shown for name in ("Open MPI", "OpenRTE", "PRRTE")):
        return []
    root = ["--allow-run-as-root"] if hasattr(os, "getuid") and os.getuid() == 0 else []
    return ["--oversubscribe", "--bind-to", "none", *root, *(["--with-ft", "ulfm"] if elastic else [])]


def share_machine(environment: dict[str, str]) -> dict[str, str]:
    """What a rank's environment lacks: its GPU, and its share of the cores."""
    for rank_name, size_name in LOCAL:
        if rank_name in environment:
            rank, size = int(environment[rank_name]), int(environment.get(size_name, "1"))
            break
    else:
        return {}
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    threads = str(max(1, cores // size))
    added = {name: threads for name in THREADS if name not in environment}
    given = environment.get("CUDA_VISIBLE_DEVICES")
    gpus = given.split(",") if given else [str(i) for i in range(count_gpus())]
    if len(gpus) > 1:
        added["CUDA_VISIBLE_DEVICES"] = gpus[rank % len(gpus)]
    return added


def count_gpus() -> int:
    """The NVIDIA GPUs of this machine, as Linux shows them."""
    folder = "/proc/driver/nvidia/gpus"
    return len(os.listdir(folder)) if os.path.isdir(folder) else 0


def run_rank(arguments: list[str]) -> None:
    """Run the program as one rank."""
    os.environ.update(share_machine(dict(os.environ)))
    as_module = arguments[0] == "-m"
    sys.argv = arguments[as_module:]
    sys.path[0] = os.getcwd() if as_module else os.path.dirname(os.path.abspath(sys.argv[0]))
    try:
        if as_module:
            runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as end:
        if end.code:
            distributed = sys.modules.get("kernelgraph.dsl.devices.distributed")
            if distributed is not None:
                distributed.end_all_ranks_of_program(f"ended with status {end.code}")
        raise


if __name__ == "__main__":
    if sys.argv[1:2] == [RANK]:
        run_rank(sys.argv[2:])
    else:
        sys.exit(main(sys.argv[1:]))
