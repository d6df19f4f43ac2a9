"""NumPy programs of loops with nothing but the decorator, on both devices, beside NumPy, numba and CuPy.

    python benchmarks/programs.py --device cpu cuda --workers 8 --minutes 9 --json programs.json
    python benchmarks/programs.py --only lu crc16 --processor       # on a machine with other work on it
    python benchmarks/programs.py --show programs.json              # the tables of a run once more

PolyBench/C's 30 kernels, 20 textbook programs (`tests/end_to_end/numpy_kernels`) and those of `recorded_loops.py`.
numba gets the same source with `njit` on every function, CuPy the same functions with its module for NumPy's.

Each program runs in processes of its own, on cores of its own, one for a device and two more for its turns, that are
ended after `--limit` seconds; what they have said by then stands in the table. First calls are those of a process
that has called another function before, with an empty cache of kernels; numba's likewise. All modules have their
bytecode. Each call gets copies of the arguments, made before the clock starts, on the device that is timed; the least
of many calls counts, candidates in turns. On a GPU one process at a time is timed. CuPy's time is that of its first
call where that is longer than 5 s.
"""

# ruff: noqa: E402
from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(Path(__file__).parent), str(ROOT), str(ROOT / "src")]

PARSER = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
PARSER.add_argument("--device", nargs="*", default=["cpu"], help="cpu, cuda, or both")
PARSER.add_argument("--only", nargs="*", default=[], help="names of programs or suites")
PARSER.add_argument("--workers", type=int, default=1, help="programs at a time; they share the cores out")
PARSER.add_argument("--threads", type=int, default=1, help="of every candidate")
PARSER.add_argument("--seconds", type=float, default=1.0, help="for the calls of a program's candidates")
PARSER.add_argument("--limit", type=float, default=75, help="seconds of one process")
PARSER.add_argument("--minutes", type=float, default=60, help="for all of them; then the table of what there is")
PARSER.add_argument("--processor", action="store_true", help="the processor's time for calls; not on a GPU")
PARSER.add_argument("--small", action="store_true", help="the sizes of the tests: checks the benchmark")
PARSER.add_argument("--turns", type=int, default=10, help="first calls at this many turns, and at 100 times as many")
PARSER.add_argument("--no-turns", action="store_true", help="leave the latter out")
PARSER.add_argument("--only-turns", action="store_true", help="leave all else out")
PARSER.add_argument("--no-peers", action="store_true", help="neither numba nor CuPy")
PARSER.add_argument("--json", type=Path, help="where the rows go, after each")
PARSER.add_argument("--show", type=Path, nargs="+", help="print the tables of such files, one run of each device")
PARSER.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
PARSER.add_argument("--lock", default="", help=argparse.SUPPRESS)
OPTIONS = PARSER.parse_args()

import contextlib
import json
import shutil
import signal
import statistics
import subprocess
import tempfile
import time
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

Row = dict[str, Any]
FEW = 3  # calls at least of each candidate
LONG = 5.0  # seconds of CuPy's first call that stand for all of them
SETTLING = 12  # calls among which a plan is chosen


# ---------------------------------------------------------------- one program, in a process of its own


def programs() -> dict[str, Any]:
    """Name -> program, suite by suite; a suite's name is part of it."""
    import numpy as np
    import recorded_loops

    from tests.end_to_end.numpy_kernels import LOOPS, Case, cases

    found = {f"{case.field}/{case.name}": case for case in cases(LOOPS)}
    sizes = {"shortest_paths": 48, "seidel": 60, "distances": 160, "gram_schmidt": 100, "recurrence": 100}
    sizes |= {"longest_common": 160, "symmetric_product": 80, "triangular_product": 100}
    for name, (function, make) in recorded_loops.PROGRAMS.items():
        of = lambda n, make=make: make(n, np.random.default_rng(n))  # noqa: E731
        found[f"recorded/{name}"] = Case(function, of, 12, sizes.get(name, 160), "", turns=of)
    for name, (function, make) in recorded_loops.TURNS.items():
        if name not in recorded_loops.PROGRAMS:
            of = lambda n, make=make: make(n, np.random.default_rng(n))  # noqa: E731
            found[f"recorded/{name}"] = Case(function, of, 50, 5000, "", turns=of)
    return found


def say(**entries: Any) -> None:
    """A part of this process's row, which the parent has even if the process is ended."""
    print("ROW " + json.dumps(entries), flush=True)


def reason_of(error: BaseException) -> str:
    from program_peers import short

    return short(error) if isinstance(error, Exception) else type(error).__name__


def with_names(function: Any, change: Callable[[dict[str, Any]], None]) -> Any:
    """The function, and those of its module, with other globals."""
    names = dict(function.__globals__)
    own = {
        k: v for k, v in names.items() if isinstance(v, types.FunctionType) and v.__globals__ is function.__globals__
    }
    for name, value in own.items():
        names[name] = types.FunctionType(value.__code__, names, name, value.__defaults__, value.__closure__)
    change(names)
    return names[function.__name__]


def in_numba(function: Any) -> Any:
    import numba

    def compiled(names: dict[str, Any]) -> None:
        for name, value in list(names.items()):
            if isinstance(value, types.FunctionType) and value.__globals__ is names:
                names[name] = numba.njit(value)

    numba.njit(lambda x: x + 1.0)(1.0)  # what any first call loads
    return with_names(function, compiled)


def in_cupy(function: Any) -> Any:
    import cupy

    return with_names(function, lambda names: names.update(np=cupy))


@contextlib.contextmanager
def alone(device: str) -> Iterator[None]:
    """One process at a time has a GPU to itself while it is timed."""
    if device != "cuda" or not OPTIONS.lock:
        yield
        return
    import fcntl

    with open(OPTIONS.lock, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


class Candidate:
    """How one library calls the program: what its arguments are, and what waits for its results."""

    def __init__(self, call: Any, place: Callable[[Any], Any], wait: Callable[[Any], Any], clock: Callable[[], float]):
        self.call, self.place, self.wait, self.clock = call, place, wait, clock
        self.best = float("inf")

    def timed(self, given: Any) -> tuple[float, list[Any]]:
        """Seconds of one call, its result and what became of its arguments."""
        mine = [self.place(x) for x in given]
        self.wait(None)
        start = self.clock()
        result = self.call(*mine)
        self.wait(result)
        took = self.clock() - start
        self.best = min(self.best, took)
        return took, [result, *mine]


def copied(value: Any) -> Any:
    return value.copy() if hasattr(value, "copy") else value


def candidate(who: str, device: str, function: Any) -> Candidate:
    import numpy as np
    from program_peers import waited

    clock = time.process_time if OPTIONS.processor and device == "cpu" else time.perf_counter
    if who == "ours":
        import kernelgraph as kg

        def place(x: Any) -> Any:
            return kg.asarray(copied(x), device=device) if device != "cpu" and isinstance(x, np.ndarray) else copied(x)

        def wait(result: Any) -> None:
            if device != "cpu":
                kg.synchronize()
            elif result is not None:
                waited(result)

        return Candidate(kg.kernel_graph(function, device=device), place, wait, clock)
    if who == "cupy":
        import cupy

        return Candidate(
            in_cupy(function),
            lambda x: cupy.asarray(x) if isinstance(x, np.ndarray) else x,
            lambda _: cupy.cuda.Device().synchronize(),
            clock,
        )
    call = in_numba(function) if who == "numba" else function
    return Candidate(call, copied, lambda result: None if result is None else waited(result), clock)  # as long for all


def leaves(values: list[Any]) -> list[Any]:
    """Results and arguments as NumPy arrays."""
    import numpy as np

    found: list[Any] = []
    for value in values:
        if isinstance(value, (tuple, list)):
            found += leaves(list(value))
        elif value is not None and not isinstance(value, (int, float)):
            found.append(np.asarray(value.get() if type(value).__module__.startswith("cupy") else value))
        elif value is not None:
            found.append(np.asarray(value))
    return found


def differs(got: list[Any], want: list[Any]) -> str:
    import numpy as np

    got, want = leaves(got), leaves(want)
    if len(got) != len(want):
        return f"{len(got)} results for {len(want)}"
    for number, (a, b) in enumerate(zip(got, want, strict=True)):
        if a.shape != b.shape:
            return f"result {number} has shape {a.shape} for {b.shape}"
        scale = np.abs(b[np.isfinite(b)]).max(initial=0) if b.dtype.kind == "f" else 0
        if not np.allclose(a, b, 1e-8, 1e-9 * scale, equal_nan=True):
            return f"result {number} differs"
    return ""


def settle(chosen: dict[str, Candidate], given: Any, seconds: float, end: float) -> None:
    """The least of many calls of each, in turns; one whose call is long is called less often."""
    stop = min(time.perf_counter() + seconds, end)
    spent = dict.fromkeys(chosen, 0.0)
    calls = dict.fromkeys(chosen, 0)
    while time.perf_counter() < end:
        waiting = [n for n in chosen if calls[n] < FEW]
        if not waiting and time.perf_counter() > stop:
            return
        name = min(waiting or chosen, key=lambda n: spent[n])
        spent[name] += chosen[name].timed(given)[0] + 1e-9
        calls[name] += 1


def first_of(ours: Candidate, given: Any) -> tuple[float, list[Any]]:
    """A first call's seconds by the clock, whatever clock counts for the others."""
    start = time.perf_counter()
    took, found = ours.timed(given)
    return (took if ours.clock is time.perf_counter else min(took, time.perf_counter() - start)), found


def warm_up(device: str) -> None:
    """What any first call loads: the compiler, the device, its libraries."""
    import numpy as np

    import kernelgraph as kg

    start = time.perf_counter()
    np.asarray(kg.kernel_graph(lambda x: np.exp(x) + 1, device=device)(np.ones(3)))
    say(start=time.perf_counter() - start)


def compare(name: str, device: str) -> None:
    """A program's calls beside its peers', as entries of its row."""
    from program_peers import at_most

    case = programs()[name]
    end = time.perf_counter() + OPTIONS.limit - 8
    given = case.make(case.small if OPTIONS.small else case.large)
    warm_up(device)
    ours = candidate("ours", device, case.function)
    first, found = first_of(ours, given)
    found = leaves(found)
    say(first=first, call=ours.best)
    chosen = {"ours": ours}
    if device == "cpu":
        plain = candidate("numpy", device, case.function)
        try:
            with at_most(max(1, int(end - time.perf_counter()))):
                took, want = plain.timed(given)
        except TimeoutError:
            say(numpy_reason="longer than the limit")
            want = []
        else:
            say(numpy=took)
            chosen["numpy"] = plain
    else:
        want = []
    if OPTIONS.no_peers:
        peer = ""
    else:
        peer = "numba" if device == "cpu" else "cupy"
        try:
            theirs = candidate(peer, device, case.function)
            start, longest = time.perf_counter(), max(1, min(40, int((end - time.perf_counter()) / 2)))
            with at_most(longest):
                _, others = theirs.timed(given)
            say(**{f"{peer}_first": time.perf_counter() - start, peer: theirs.best})
            if peer == "numba" or theirs.best < LONG:
                chosen[peer] = theirs
                theirs.best = float("inf")
            if want and (wrong := differs(others, want)):
                say(**{f"{peer}_reason": "other results: " + wrong})
        except TimeoutError:
            say(**{f"{peer}_reason": f"longer than {longest} s", f"{peer}_at_least": time.perf_counter() - start})
        except Exception as error:
            say(**{f"{peer}_reason": reason_of(error)})
    if not want:
        want = reference(case, given, end)
    if want:
        say(right=differs(found, want) or True)
    ours.best = float("inf")
    for _ in range(SETTLING):
        if time.perf_counter() < end:
            found = ours.timed(given)[1]
    say(call=min(ours.best, first))
    if want:
        say(right=differs(found, want) or True)
    with alone(device):
        settle(chosen, given, OPTIONS.seconds, max(end, time.perf_counter() + 2))
    say(
        **{("call" if who == "ours" else who): found.best for who, found in chosen.items() if found.best < float("inf")}
    )
    say(in_numpy="runs in NumPy" in ours.call.why())


def reference(case: Any, given: Any, end: float) -> list[Any]:
    """What the results are, by numba where NumPy is slow, else by NumPy; nothing where neither is done in time."""
    from program_peers import at_most

    for who in ("numpy", "numba"):
        try:
            with at_most(max(1, min(25, int((end - time.perf_counter()) / 2)))):
                return leaves(candidate(who, "cpu", case.function).timed(given)[1])
        except Exception as error:
            say(**{f"reference_{who}": reason_of(error)})
    return []


def first_calls(name: str, device: str, turns: int) -> None:
    """A first call with so many turns, and a later one, which is taken off."""
    warm_up(device)
    given = programs()[name].turns(turns)
    ours = candidate("ours", device, programs()[name].function)
    first, _ = first_of(ours, given)
    say(**{f"first_{turns}": first})
    later = min(ours.timed(given)[0] for _ in range(FEW))
    say(**{f"call_{turns}": later, f"compile_{turns}": max(first - later, 1e-4)})


def child(name: str, what: str) -> None:
    warnings.simplefilter("ignore")
    device, _, turns = what.partition(":")
    try:
        if turns:
            first_calls(name, device, int(turns))
        else:
            compare(name, device)
    except Exception as error:
        say(error=reason_of(error))


# ---------------------------------------------------------------- all of them


BYTECODE = str(Path(tempfile.gettempdir(), "programs-bytecode"))


def compile_modules() -> None:
    """Gives the processes the modules' bytecode, as an installed package has it: first calls import some."""
    environment = dict(os.environ, PYTHONPYCACHEPREFIX=BYTECODE)
    folders = [str(folder) for folder in (ROOT / "src" / "kernelgraph").iterdir()]  # links, which it does not follow
    words = [sys.executable, "-m", "compileall", "-q", *folders]
    subprocess.run(words, env=environment, stdout=subprocess.DEVNULL, check=False)


class Worker:
    """Some cores, and the process that has them."""

    def __init__(self, cores: set[int]) -> None:
        self.cores, self.process = cores, None
        self.job: tuple[str, str] = ("", "")

    def start(self, job: tuple[str, str], lock: str) -> None:
        self.job, self.cache, self.began = job, tempfile.mkdtemp(prefix="programs-"), time.monotonic()
        environment = dict(os.environ, KERNELGRAPH_CACHE_DIR=self.cache, NUMBA_CACHE_DIR=self.cache)
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # modules are compiled when a package is installed
        environment["PYTHONPYCACHEPREFIX"] = BYTECODE
        for variable in ("OMP", "MKL", "OPENBLAS", "NUMBA", "KERNELGRAPH"):
            environment[f"{variable}_{'' if variable == 'KERNELGRAPH' else 'NUM_'}THREADS"] = str(OPTIONS.threads)
        self.said, self.errors = Path(self.cache, "said"), Path(self.cache, "errors")
        flags = [flag for flag in ("processor", "small", "no_peers") if getattr(OPTIONS, flag)]
        words = [sys.executable, str(Path(__file__).resolve()), "--child", *job, "--lock", lock]
        words += ["--seconds", str(OPTIONS.seconds), "--limit", str(OPTIONS.limit)]
        words += ["--" + flag.replace("_", "-") for flag in flags]
        with self.said.open("w") as said, self.errors.open("w") as errors:
            self.process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=said, stderr=errors, env=environment, start_new_session=True
            )
        if hasattr(os, "sched_setaffinity"):
            with contextlib.suppress(OSError):
                os.sched_setaffinity(self.process.pid, self.cores)

    def ended(self, now: bool) -> Row | None:
        """The row, if the process has ended, or is ended now or for its time."""
        assert self.process is not None
        late = time.monotonic() - self.began > OPTIONS.limit
        if self.process.poll() is None:
            if not (late or now):
                return None
            with contextlib.suppress(OSError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        row: Row = {}
        for line in self.said.read_text().splitlines():
            if line.startswith("ROW "):
                with contextlib.suppress(ValueError):  # a line that was cut off
                    row |= json.loads(line[4:])
        if self.process.returncode and "error" not in row:
            last = (self.errors.read_text().strip().splitlines() or [""])[-1][:120]
            row["error"] = f"no end in {OPTIONS.limit:g} s" if late else f"died ({self.process.returncode}): {last}"
        row["seconds"] = time.monotonic() - self.began
        shutil.rmtree(self.cache, ignore_errors=True)
        self.process = None
        return row


def jobs(names: list[str]) -> list[tuple[str, str]]:
    """Names and what to do with them: first the comparisons, the long ones of a GPU before the others."""
    found = [(name, device) for device in sorted(OPTIONS.device, reverse=True) for name in names]
    found = [] if OPTIONS.only_turns else found
    if not OPTIONS.no_turns:
        for device in OPTIONS.device:
            for name in names:
                if programs()[name].turns is not None:
                    found += [(name, f"{device}:{n}") for n in (OPTIONS.turns, 100 * OPTIONS.turns)]
    return found


def run(names: list[str], rows: dict[str, dict[str, Row]], save: Callable[[], None]) -> None:
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))
    each = max(1, len(cores) // OPTIONS.workers)
    workers = [Worker(set(cores[i * each % len(cores) : i * each % len(cores) + each])) for i in range(OPTIONS.workers)]
    left = jobs(names)
    end = time.monotonic() + OPTIONS.minutes * 60 - 5
    done, every = 0, len(left)
    with tempfile.NamedTemporaryFile(prefix="programs-lock-") as lock:
        while left or any(w.process for w in workers):
            over = time.monotonic() > end
            for worker in workers:
                if worker.process is not None and (row := worker.ended(over)) is not None:
                    name, what = worker.job
                    if "error" in row and ":" in what:  # of its turns
                        row[f"error_{what.partition(':')[2]}"] = row.pop("error")
                    before = rows.setdefault(name, {}).setdefault(what.partition(":")[0], {})
                    rows[name][what.partition(":")[0]] = before | row if ":" not in what else {**row, **before}
                    done += 1
                    print(f"# {done}/{every} {name} {what} {brief(row)}", file=sys.stderr, flush=True)
                    save()
                if worker.process is None and left and not over:
                    worker.start(left.pop(0), lock.name)
            if over:
                left.clear()
            time.sleep(0.05)


def brief(row: Row) -> str:
    from common import show

    return " ".join(f"{k}={show(v) if isinstance(v, float) else v}" for k, v in row.items())


# ---------------------------------------------------------------- its tables


def grown(row: Row) -> float | None:
    """How many times as long a first call takes to compile at 100 times the turns."""
    counts = sorted(int(key.split("_")[1]) for key in row if key.startswith("compile_"))
    if len(counts) < 2:
        return None
    least, most = (row.get(f"compile_{n}") for n in counts)
    return most / least if least and most else None


def ratio(row: Row, who: str) -> float | None:
    """How many times as long as ours another takes."""
    return row[who] / row["call"] if row.get(who) and row.get("call") and not row.get(f"{who}_wrong") else None


def tables(rows: dict[str, dict[str, Row]]) -> str:
    """One table of all devices, and how many programs reach what they are to reach."""
    devices = [(d, peer) for d, peer in (("cpu", "numba"), ("cuda", "cupy")) if any(d in row for row in rows.values())]
    titles = ["program", "right"]
    for device, _ in devices:
        where = "CPU" if device == "cpu" else "GPU"
        titles += [f"{where}: first call", "at 100 times the turns", "a call"]
        titles += ["NumPy / ours", "numba: first call", "numba / ours"] if device == "cpu" else ["CuPy / ours"]
    lines = [f"| {' | '.join([*titles, 'notes'])} |", "|--|--|" + "--:|" * (len(titles) - 2) + "--|"]
    for name, row in sorted(rows.items(), key=lambda item: item[0].partition("/")[0]):
        mine = [row.get(device, {}) for device, _ in devices]
        right = (
            "yes" if all(r.get("right") is True for r in mine) else "-" if not any("right" in r for r in mine) else "NO"
        )
        cells = [
            name,
            right,
            *(cell for found, (d, p) in zip(mine, devices, strict=True) for cell in times(d, p, found)),
        ]
        remarks = [text for found, (_, peer) in zip(mine, devices, strict=True) if (text := notes(found, peer))]
        lines.append(f"| {' | '.join([*cells, '; '.join(remarks)])} |")
    for device, peer in devices:
        lines += ["", *summary(device, peer, {name: row[device] for name, row in rows.items() if device in row})]
    return "\n".join(["", *lines])


def times(device: str, peer: str, row: Row) -> list[str]:
    """The cells of one program on one device."""
    from common import show

    def time_of(key: str) -> str:
        return show(row[key]) if row.get(key) else "-"

    def ratio_of(who: str) -> str:
        if (found := ratio(row, who)) is not None:
            return f"{found:.2f}"
        least = row.get(f"{who}_at_least") if who != "numba" else None  # which is compilation
        return f"> {least / row['call']:.0f}" if least and row.get("call") else "-"

    more = grown(row)
    cells = [time_of("first"), "-" if more is None else f"{more:.2f} x", time_of("call")]
    return cells + (
        [ratio_of("numpy"), time_of("numba_first"), ratio_of("numba")] if device == "cpu" else [ratio_of(peer)]
    )


def notes(row: Row, peer: str) -> str:
    found = [str(row["error"])] if "error" in row else []
    found += [f"{k[6:]} turns: {v}" for k, v in row.items() if k.startswith("error_")]
    if isinstance(row.get("right"), str):
        found.append(row["right"])
    if row.get("in_numpy"):
        found.append("runs in NumPy")
    if f"{peer}_reason" in row:
        found.append(f"{'CuPy' if peer == 'cupy' else peer}: {row[f'{peer}_reason']}")
    return "; ".join(found).replace("|", "/")


def summary(device: str, peer: str, rows: dict[str, Row]) -> list[str]:
    from common import show

    def over(label: str, values: dict[str, float], bound: float, worst: Callable[..., Any]) -> str:
        if not values:
            return f"- {label}: not measured"
        good = sum(v <= bound if worst is max else v >= bound for v in values.values())
        name = worst(values, key=lambda n: values[n])
        unit = show if "call" in label and worst is max else "{:.2f}".format
        text = f"- {label}: {good} of {len(values)}; median {unit(statistics.median(values.values()))}"
        if worst is min:
            text += f", geometric mean {statistics.geometric_mean(values.values()):.2f}"
        return f"{text}, worst {unit(values[name])} ({name})"

    right = [row.get("right") is True for row in rows.values()]
    bad = [n for n, row in rows.items() if row.get("right") is not True or "error" in row]
    lines = [f"- {device}: {sum(right)} of {len(right)} right" + (f"; not: {', '.join(bad)}" if bad else "")]
    most = 3 if device == "cpu" else 8
    firsts = {n: row["first"] for n, row in rows.items() if "first" in row}
    growth = {n: g for n, row in rows.items() if (g := grown(row)) is not None}
    lines.append(over(f"first call at most {most} s", firsts, most, max))
    lines.append(over("1.5 times as long at most at 100 times the turns", growth, 1.5, max))
    for who, bound in (("numpy", 1.0), ("numba", 0.6)) if device == "cpu" else (("cupy", 1.0),):
        ratios = {n: r for n, row in rows.items() if (r := ratio(row, who)) is not None}
        lines.append(over(f"{who} / ours at least {bound}", ratios, bound, min))
    return lines


def main() -> None:
    if OPTIONS.show:
        shown: dict[str, dict[str, Row]] = {}
        for path in OPTIONS.show:
            kept = json.loads(path.read_text())
            print(kept["machine"] + "\n")
            for name, row in kept["rows"].items():
                for device, found in row.items():
                    before = shown.setdefault(name, {}).setdefault(device, {})
                    shown[name][device] = {**found, **before}
        print(tables(shown))
        return
    if OPTIONS.child:
        child(*OPTIONS.child)
        return
    from common import machine

    compile_modules()
    names = [n for n in programs() if not OPTIONS.only or {n, *n.split("/")} & set(OPTIONS.only)]
    text = machine(OPTIONS.threads, ("numpy", "llvmlite", "numba", "numba-cuda", "cupy-cuda12x", "cupy-cuda13x"))
    if "cuda" in OPTIONS.device:
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
            text += "\n- GPU: " + subprocess.run(query, capture_output=True, text=True, timeout=20).stdout.strip()
    rows: dict[str, dict[str, Row]] = {}

    def save() -> None:
        if OPTIONS.json:
            OPTIONS.json.parent.mkdir(parents=True, exist_ok=True)
            fresh = OPTIONS.json.with_suffix(".new")
            fresh.write_text(json.dumps({"machine": text, "rows": rows}, indent=0))
            fresh.replace(OPTIONS.json)

    run(names, rows, save)
    print(text + "\n" + tables(rows), flush=True)


if __name__ == "__main__":
    main()
