"""`python -m kernelgraph`: what is installed, reports and profiles of scripts, the disk cache, a quick benchmark.

Each command prints text, or with `--json` data. What goes wrong in a script is told as Python tells it, and the exit
status is then 1.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import difflib
import functools
import importlib
import inspect
import json
import re
import runpy
import statistics
import sys
import time
import traceback
import webbrowser
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FunctionType
from typing import Any, NoReturn

import numpy as np

from ...runtime.core.cache_contents import cache_entries, clear_cache
from ...runtime.core.readable_text import byte_count_in_words
from ...runtime.core.settings import settings
from ..api.profile import Profile, profile
from ..array.devices import DeviceUnavailableError, device_named
from ..array.in_flight import waitall
from ..jit.kernel_graph import KernelGraph
from ..report.text import duration_as_text
from .machine_info import machine_info, machine_info_text

ARRAY = re.compile(r"(\w+)\[([\d,\s]*)\]")
LINE = re.compile(r"^\S+:\d+: ")  # of this package or of the installed command, which the user did not write
_METHODS = (FunctionType, KernelGraph)
AGE = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def main(words: Sequence[str] | None = None) -> int:
    """Runs a command line; the exit status is returned."""
    parser = _command_line_parser()
    given = parser.parse_args(words)
    if "run" not in given:
        parser.print_help()
        return 0
    try:
        status: int = given.run(given)
    except _Mistake as mistake:
        print(mistake, file=sys.stderr)
        return 2
    return status


class _Mistake(Exception):
    """What is wrong with the words of a command line, in one line."""


class _ParserWithHints(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Names what is meant, where that is one of what there is to choose from."""
        if misspelt := re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)", message):
            near = difflib.get_close_matches(misspelt[1], re.findall(r"[\w-]+", misspelt[2]), 1)
            message += f"; did you mean {near[0]}?" if near else ""
        super().error(message)


def _command_line_parser() -> argparse.ArgumentParser:
    parser = _ParserWithHints(
        prog="kernelgraph" if Path(sys.argv[0]).stem == "kernelgraph" else "python -m kernelgraph",
        description=(__doc__ or "").partition(": ")[2].splitlines()[0],
        epilog="Programs of several ranks are started by python -m kernelgraph.run -n 4 script.py.",
    )
    parser.add_argument(
        "--version", action="version", version=f"kernelgraph {sys.modules[__name__.partition('.')[0]].__version__}"
    )
    commands = parser.add_subparsers(metavar="command")

    def add_subcommand(name: str, run: Callable[[Any], int], text: str) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=text, description=text)
        made.add_argument("--json", action="store_true", help="print data instead of text")
        made.set_defaults(run=run)
        return made

    add_subcommand(
        "info", _run_info_command, "versions, processor, GPUs, settings; exit status 1 if something is broken"
    )
    report = add_subcommand(
        "report", _run_report_command, "run a script; one page about every decorated function that it calls"
    )
    report.add_argument("-o", "--output", type=Path, default=Path("report.html"), help="the page (report.html)")
    report.add_argument("--function", help="only this one")
    report.add_argument("--open", action="store_true", help="show it in a browser")
    timed = add_subcommand(
        "profile", _run_profile_command, "run a script under kg.profile(); print where the time went"
    )
    timed.add_argument("--trace", type=Path, help="a file for https://ui.perfetto.dev")
    timed.add_argument("--report", type=Path, help="a page about every function that was called")
    for each in (report, timed):
        each.add_argument("-m", dest="module", metavar="MODULE", help="a module in place of a script")
        each.add_argument("script", type=Path, nargs="?")
        each.add_argument("arguments", nargs=argparse.REMAINDER, help="the script's own")
    cache = add_subcommand("cache", _run_cache_command, "list or clear what is compiled and kept on disk")
    cache.add_argument("what", choices=["list", "clear"])
    cache.add_argument("--older", metavar="AGE", default="0s", help="clear only what is older, such as 30d or 12h")
    bench = add_subcommand("bench", _run_bench_command, "time a function, plain and decorated")
    bench.add_argument("function", help="module:name, of a plain or decorated function")
    bench.add_argument("values", nargs="*", help="arguments: float32[1000,1000] (random), or Python literals")
    bench.add_argument("--device", help="cpu, cuda, cuda:1")
    bench.add_argument("--calls", type=_positive_count, default=20)
    return parser


def _positive_count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} calls: write at least 1")
    return int(text)


def _print_text_or_json(given: Any, data: Any, text: str) -> None:
    print(json.dumps(data, indent=1, default=str) if given.json else text)


def _run_info_command(given: Any) -> int:
    info = machine_info()
    _print_text_or_json(given, info, machine_info_text(info))
    return 1 if info["problems"] else 0


def _run_profiled_script(given: Any) -> tuple[Profile, int]:
    """The profile of a script or module that runs as `python script.py arguments`, and its exit status."""
    run, name, arguments, folder = _what_to_run(given)
    before = sys.argv, sys.path[:]
    sys.argv, sys.path[0:1] = [name, *arguments], [str(folder.resolve())]
    status = 0
    try:
        with profile() as found:
            try:
                run(name)
                waitall()
            except SystemExit as end:
                status = end.code if isinstance(end.code, int) else int(end.code is not None)
                if isinstance(end.code, str):
                    print(end.code, file=sys.stderr)  # as Python does
            except BaseException:
                traceback.print_exc()
                status = 1
    finally:
        sys.argv, sys.path[:] = before[0], before[1]
    return found, status


def _what_to_run(given: Any) -> tuple[Callable[[str], Any], str, list[str], Path]:
    """What runs the script or module that is named, its name, its arguments, and where it finds its modules."""
    if given.module is not None:
        first = [] if given.script is None else [str(given.script)]
        run = functools.partial(runpy.run_module, run_name="__main__", alter_sys=True)
        return run, given.module, [*first, *given.arguments], Path()
    if given.script is None:
        raise _Mistake("name a script, or a module after -m")
    if not given.script.is_file():
        raise _Mistake(f"there is no file {given.script}")
    run = functools.partial(runpy.run_path, run_name="__main__")
    return run, str(given.script), given.arguments, given.script.parent


def _print_that_nothing_was_called(given: Any, what: str = "no decorated function") -> None:
    print(f"{given.module or given.script} calls {what}", file=sys.stderr)


def _check_writable(path: Path | None) -> None:
    """Raises _Mistake where a file cannot be written there, before a script has run for it."""
    if path is None:
        return
    try:
        is_new = not path.exists()
        path.open("ab").close()
        if is_new:
            path.unlink()
    except OSError as error:
        raise _Mistake(f"{path} cannot be written ({error.strerror}); name a file in a folder that is there") from None


def _run_report_command(given: Any) -> int:
    _check_writable(given.output)
    found, status = _run_profiled_script(given)
    if given.function is not None:
        found.calls = {f: call for f, call in found.calls.items() if f._name == given.function}
    if not found.calls:
        _print_that_nothing_was_called(given, *([f"no function {given.function!r}"] if given.function else []))
        return status or 1
    reports = found.report(given.output)
    if not reports:
        raise _Mistake(f"no call of {given.module or given.script} succeeded, so that there is nothing to show")
    text = "\n\n".join(str(report) for report in reports)
    _print_text_or_json(given, [report.data for report in reports], f"{text}\n\nwrote {given.output}")
    if given.open:
        webbrowser.open(given.output.resolve().as_uri())
    return status


def _run_profile_command(given: Any) -> int:
    _check_writable(given.trace)
    _check_writable(given.report)
    found, status = _run_profiled_script(given)
    if not found.calls:
        _print_that_nothing_was_called(given)
        return status or 1
    if given.trace is not None:
        found.save(given.trace)
    if given.report is not None:
        found.report(given.report)
    names = ("kind", "name", "start", "end", "process", "track", "line", "program", "nbytes", "run", "task", "event")
    _print_text_or_json(given, [{name: getattr(span, name) for name in names} for span in found.spans], found.table())
    return status


def _run_cache_command(given: Any) -> int:
    match = re.fullmatch(r"(\d+)([smhd])", given.older)
    if match is None:
        raise _Mistake(f"--older {given.older}: write a number and s, m, h or d, such as 30d")
    if given.what == "clear":
        removed = clear_cache(int(match[1]) * AGE[match[2]])
        _print_text_or_json(given, {"removed": len(removed), "bytes": sum(e.nbytes for e in removed)},
               f"removed {len(removed)} entries, {byte_count_in_words(sum(e.nbytes for e in removed))}")  # fmt: skip
        return 0
    kinds: dict[str, list[Any]] = {}
    for entry in cache_entries():
        kinds.setdefault(entry.kind, []).append(entry)
    now = time.time()
    rows = [
        {"kind": kind, "entries": len(found), "bytes": sum(e.nbytes for e in found),
         "oldest": now - min(e.modified for e in found), "newest": now - max(e.modified for e in found)}
        for kind, found in kinds.items()
    ]  # fmt: skip
    lines = [f"{settings.cache_dir or 'no disk cache'}"]
    lines += [
        f"{r['kind']:<8} {r['entries']:>6} entries {byte_count_in_words(r['bytes']):>10}, used between "
        f"{r['oldest'] / 86400:.1f} and {r['newest'] / 86400:.1f} days ago"
        for r in rows
    ]
    _print_text_or_json(given, {"folder": settings.cache_dir, "kinds": rows}, "\n".join(lines))
    return 0


def _function_and_values(given: Any) -> tuple[Callable[..., Any], list[Any]]:
    """What `bench` is to time. Raises _Mistake where there is no such function, or none of these arguments."""
    module, mark, name = given.function.partition(":")
    if not mark or not name:
        raise _Mistake(f"{given.function}: write module:function, such as model:step")
    sys.path.insert(0, "")
    try:
        *parts, last = name.split(".")
        holder: Any = functools.reduce(getattr, parts, importlib.import_module(module))
        function: Any = getattr(holder, last)
        if isinstance(holder, type) and isinstance(inspect.getattr_static(holder, last), _METHODS):
            function = getattr(holder(), last)  # of an object that is made without arguments
        plain = function._function if isinstance(function, KernelGraph) else function
        values = [_argument_value_from_text(text) for text in given.values]
        with contextlib.suppress(ValueError):  # a built-in function need not say what it takes
            inspect.signature(plain).bind(*values)
    except (ImportError, AttributeError, ValueError, SyntaxError, TypeError, MemoryError) as error:
        raise _Mistake(
            f"{given.function}: {error}; write module:function (or module:Class.method), and arguments such as "
            "float32[1000,1000] or 0.5"
        ) from None
    finally:
        sys.path.remove("")
    return plain, values


def _run_bench_command(given: Any) -> int:
    plain, values = _function_and_values(given)
    options = {} if given.device is None else {"device": given.device}
    try:
        ours = KernelGraph(plain, **options)
        device_named(given.device)
    except (ValueError, DeviceUnavailableError) as error:
        raise _Mistake(f"--device {given.device}: {LINE.sub('', str(error))}") from None

    def call_and_wait() -> Any:
        result = ours(*values)
        waitall()
        return result

    start = time.perf_counter()
    call_and_wait()
    first = 1e6 * (time.perf_counter() - start)
    times = {
        "numpy": _benchmark_call_microseconds(lambda: plain(*values), given.calls),
        "kernelgraph": _benchmark_call_microseconds(call_and_wait, given.calls),
    }
    rows = {
        name: {"median": statistics.median(each), "least": min(each), "most": max(each)} for name, each in times.items()
    }
    ratio = rows["numpy"]["median"] / rows["kernelgraph"]["median"]
    lines = [
        f"{name:<12} {duration_as_text(r['median']):>9} "
        f"(between {duration_as_text(r['least'])} and {duration_as_text(r['most'])})"
        for name, r in rows.items()
    ]
    text = "\n".join(
        [*lines, f"{ratio:.2f} times as fast, {given.calls} calls each; the first took {duration_as_text(first)}"]
    )
    _print_text_or_json(given, {"microseconds": rows, "ratio": ratio, "first": first}, text)
    return 0


def _benchmark_call_microseconds(call: Callable[[], Any], count: int) -> list[float]:
    """Microseconds of each of some calls, after one to warm up."""
    call()
    found = []
    for _ in range(count):
        start = time.perf_counter()
        call()
        found.append(1e6 * (time.perf_counter() - start))
    return found


def _argument_value_from_text(text: str) -> Any:
    """`float32[2,3]` gives random numbers, of integers small ones; anything else is a Python literal."""
    match = ARRAY.fullmatch(text)
    if match is None:
        try:
            return ast.literal_eval(text)
        except (ValueError, SyntaxError):
            raise ValueError(f"{text!r} is neither an array such as float32[3,4] nor a Python literal") from None
    dtype = np.dtype(match[1])
    shape = tuple(int(n) for n in match[2].split(",") if n.strip())
    rng = np.random.default_rng(0)
    if dtype.kind in "biu":
        return rng.integers(0, 2 if dtype.kind == "b" else 100, shape).astype(dtype)
    return rng.random(shape).astype(dtype)
