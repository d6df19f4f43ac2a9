"""Random cases of one suite: drawn from a seed and a number, run in batches under an alarm, counted, made smaller."""

from __future__ import annotations

import argparse
import collections
import faulthandler
import itertools
import re
import signal
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np

from tests import shrinking

SECONDS = 60  # one case's time of the processor, and ten times as much by the clock; more is a hang
_SHRINKS = itertools.count()  # no file's name twice: sources are kept by it
C = TypeVar("C")


class Hang(BaseException):
    """A case took longer than SECONDS."""


@dataclass(frozen=True)
class Outcome:
    """What became of one case: its calls, what was refused, and in words what was wrong (or nothing)."""

    calls: int
    refused: tuple[str, ...] = ()
    wrong: str = ""


@dataclass(frozen=True)
class Suite(Generic[C]):
    """Random cases of one kind.

    draw: the case of a seed and a number. outcomes: of cases, a folder for their file, a device and a label that names
    it. smaller: the cases that lack one thing. text: a wrong case as it is printed."""

    noun: str
    batch: int
    draw: Callable[[int, int], C]
    outcomes: Callable[[Sequence[C], Path, str, str], Iterable[tuple[C, Outcome]]]
    smaller: Callable[[C], Iterable[C]]
    text: Callable[[C, Outcome], str]
    words: int = 1  # how many words of what was wrong tell its mechanism


def under_alarm(cases: Iterable[C], outcome_of: Callable[[C], Outcome]) -> Iterator[tuple[C, Outcome]]:
    """Each case's outcome; a hang and an error of the comparison are wrong ones."""
    previous = signal.signal(signal.SIGALRM, _hangs), signal.signal(signal.SIGPROF, _hangs)
    try:
        for case in cases:
            signal.alarm(10 * SECONDS)
            signal.setitimer(signal.ITIMER_PROF, SECONDS)
            try:
                outcome = outcome_of(case)
            except Hang:
                outcome = Outcome(1, wrong=f"no end in {SECONDS} s")
            except Exception as error:
                outcome = Outcome(1, wrong=f"not comparable: {error!r}")
            finally:
                signal.alarm(0)
                signal.setitimer(signal.ITIMER_PROF, 0)
            yield case, outcome
    finally:
        for number, handler in zip((signal.SIGALRM, signal.SIGPROF), previous, strict=True):
            signal.signal(number, handler)


def _hangs(*_: Any) -> None:
    raise Hang


def names_in_file(texts: Iterable[str], folder: Path, label: str) -> dict[str, Any]:
    """What stands in a file that is made of these texts."""
    path = folder / f"{label}.py"
    path.write_text("\n\n".join(texts))
    names: dict[str, Any] = {"__name__": label, "__file__": str(path)}
    exec(compile(path.read_text(), str(path), "exec", dont_inherit=True), names)
    return names


def describe_refusal(error: BaseException) -> str:
    """A refusal without what differs from case to case."""
    text = re.sub(r"^\S+\.py:\d+: ", "", str(error).split("\n")[0])
    return f"{type(error).__name__}: " + re.sub(r"'[^']*'|[0-9.]+|\[[^]]*\]|\([^)]*\)", "_", text)[:90]


def shrunk(suite: Suite[C], case: C, folder: Path, device: str) -> tuple[C, Outcome]:
    """The smallest case found, by leaving out one thing after the other, that is still wrong in the same way."""

    def outcome_of(candidate: C) -> Outcome:
        try:
            return next(iter(suite.outcomes([candidate], folder, device, f"shrink_{next(_SHRINKS)}")))[1]
        except Exception:
            return Outcome(0)

    def mechanism(outcome: Outcome) -> Any:
        return re.sub(r"^call \d+: ", "", outcome.wrong).split()[: suite.words]

    return shrinking.shrunk(case, outcome_of, suite.smaller, mechanism)


@dataclass
class Report(Generic[C]):
    """Counts over all cases."""

    noun: str
    cases: int = 0
    calls: int = 0
    refused: collections.Counter[str] = field(default_factory=collections.Counter)
    refused_cases: int = 0
    wrong: list[tuple[C, Outcome]] = field(default_factory=list)
    seconds: float = 0.0

    def __str__(self) -> str:
        kinds = "".join(f"\n  {n:7} {words}" for words, n in self.refused.most_common())
        share = 100 * self.refused_cases / max(self.cases, 1)
        return (
            f"{self.cases} {self.noun}, {self.calls} calls, {len(self.wrong)} wrong, {self.refused_cases} with a "
            f"refusal ({share:.1f} %), {self.seconds:.0f} s; refused calls by kind:{kinds}"
        )


def explore(suite: Suite[C], count: int, seed: int, device: str, first: int = 0, most: int = 0) -> Report[C]:
    """So many cases of a seed, from this number on. The first `most` wrong ones are printed, made small."""
    report: Report[C] = Report(suite.noun)
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as made, warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        folder = Path(made)
        for begin in range(first, first + count, suite.batch):
            cases = [suite.draw(seed, n) for n in range(begin, min(begin + suite.batch, first + count))]
            for case, outcome in suite.outcomes(cases, folder, device, f"{suite.noun}_{seed}_{begin}"):
                report.cases += 1
                report.calls += outcome.calls
                report.refused.update(outcome.refused)
                report.refused_cases += bool(outcome.refused)
                if outcome.wrong:
                    report.wrong.append((case, outcome))
                    if len(report.wrong) <= most:
                        small, again = shrunk(suite, case, folder, device)
                        again = again if again.wrong else replace(outcome, wrong=f"{outcome.wrong} (not alone)")
                        print(suite.text(small, again), flush=True)
            for path in folder.iterdir():
                path.unlink()
    report.seconds = time.monotonic() - start
    return report


def command_line(description: str | None) -> argparse.ArgumentParser:
    """What every suite's program is asked with."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="the number of the first case")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--show", type=int, default=20, help="how many wrong cases are printed, made small")
    return parser


def report_and_exit(suite: Suite[C], given: argparse.Namespace) -> None:
    """Runs the cases that were asked for; the exit status is 1 where one was wrong."""
    faulthandler.enable()
    report = explore(suite, given.count, given.seed, given.device, given.first, given.show)
    print(report)
    raise SystemExit(1 if report.wrong else 0)
