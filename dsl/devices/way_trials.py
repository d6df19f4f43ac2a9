"""Which way to exchange arrays is the fastest for a whole program on a mesh: early calls in turns, as the clock says.

What collectives take by themselves does not tell what they take beside the rest: kernels that read other devices'
memory take a share of the processors, copies take none.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...runtime.core import profile
from ...runtime.core.settings import settings
from ...runtime.engine.multi_device import MultiDeviceExecutable
from ...runtime.program.device import error_of_event
from ...runtime.tune.tuner import PlanTuner
from ..array.array import Array
from ..array.in_flight import waitall
from ..core.spec import Spec
from .device_calls import run_plan


class WayTrial:
    """Calls take turns until the clock prefers a way; those that are timed are waited for. The others are dropped then.

    ways: what makes the program ready by each, by its name, the one that is thought to be fastest first. note: is told
    each line of what came out."""

    def __init__(self, ways: Mapping[str, Callable[[], MultiDeviceExecutable]], note: Callable[[str], None]) -> None:
        self._makers, self._note = [*ways.values()], note
        self._made: dict[int, MultiDeviceExecutable] = {}
        self._tuner = PlanTuner(tuple(ways))
        self._lock = threading.Lock()

    @property
    def executable(self) -> MultiDeviceExecutable:
        """What runs calls that are not timed."""
        tuner = self._tuner
        return self._executable_by_way(tuner.start if tuner.winner is None else tuner.winner)

    def _executable_by_way(self, number: int) -> MultiDeviceExecutable:
        with self._lock:
            if number not in self._made:
                self._made[number] = self._makers[number]()
            return self._made[number]

    def run(self, given: Sequence[Any], numbers: Sequence[Any], specs: Sequence[Spec]) -> list[Array]:
        """As `run_plan`."""
        tuner = self._tuner
        if tuner.winner is not None or settings.engine != "async" or profile.active is not None:
            return run_plan(self.executable, given, numbers, specs)
        with self._lock:
            number = tuner.next_candidate()
        if number is None:
            return run_plan(self.executable, given, numbers, specs)
        executable = self._executable_by_way(number)
        waitall()
        start = time.perf_counter()
        results = run_plan(executable, given, numbers, specs)
        errors = [error_of_event(x._event) for x in results if x._event is not None]
        took = (time.perf_counter() - start) * 1e6
        with self._lock:
            tuner.add_sample(number, took if not any(errors) else math.nan)
            if tuner.winner is not None:
                self._made = {n: made for n, made in self._made.items() if n == tuner.winner}
                for line in tuner.lines():
                    self._note(line.strip())
        return results
