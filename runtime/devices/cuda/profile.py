"""What a profile sees of a GPU. Each step and copy lies between two events that tell the time."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ...core.profile import ProfileRecorder, Span
from ...program.collective import Collective
from ...program.plan import Launch, Plan, is_device_copy, least_bytes_of_task
from ...program.program import Kernel
from .driver.driver import SUCCESS
from .driver.events import CudaEvent, EventPool

COPIES = {"to_device": "to device", "to_host": "to host", "on_device": "on device", "to_peer": "to another GPU"}


class CudaProfileMarks:
    """Events on one GPU's streams, read when the profile ends. Times count from `base`, which the host saw happen."""

    def __init__(self, recorder: ProfileRecorder, device: Any) -> None:
        self._recorder, self._device, self._driver = recorder, device, device.context.driver
        self._pool = EventPool(device.context, device.failure, timed=True)
        self._names: dict[int, str] = {}
        device.synchronize()
        self._base = self._pool.record(device.streams_for_plan((False,), ())[0])
        self._base.wait()
        self._offset = recorder.microseconds_since_start(time.monotonic_ns())

    def timed_step(self, plan: Plan, what: Any, number: int, run_number: int) -> Any:
        """What does a step of a plan, and notes its time; copies to other devices and collectives note their own."""
        step = plan.steps[number]
        assert isinstance(step, Launch)
        task = plan.tasks[step.task]
        if isinstance(task.kernel, Collective) or is_device_copy(plan.program, task):
            return what
        kind = "kernel" if isinstance(task.kernel, Kernel) else "library"
        own = (task.line, plan.program.name, least_bytes_of_task(task), run_number, step.task)

        def run_and_add_span(addresses: Sequence[int], scalars: Sequence[Any], stream: int) -> int:
            start = self._pool.record(stream)
            code = what(addresses, scalars, stream)
            self.add_span_until_now(start, kind, task.name, stream, *own)
            return int(code)

        return run_and_add_span

    def add_span_of_stream_wait(self, wait: Callable[..., None], bad: Any, s: int, stream: int, event: Any) -> None:
        """A wait of a stream for an event."""
        start = self._pool.record(stream)
        wait(bad, s, stream, event)
        if getattr(event, "stream", stream) != stream:
            self.add_span_until_now(start, "wait", f"for {self._stream_name(event.stream)}", stream)

    def measure_copies(self) -> Iterator[tuple[Any, str, Any]]:
        """Measure the driver's copies from now on; what was there before, to be put back."""
        for name, words in COPIES.items():
            plain = getattr(self._driver, name)
            yield self._driver, name, plain
            setattr(self._driver, name, functools.partial(self._copy_with_span, plain, words))

    def _copy_with_span(self, plain: Any, words: str, *given: Any) -> int:
        """given: what the driver's call takes, at last the number of bytes and the stream."""
        nbytes, stream = given[-2:]
        start = self._pool.record(stream)
        code = plain(*given)
        self.add_span_until_now(start, "copy", words, stream, nbytes=nbytes)
        return int(code)

    def record(self, stream: int) -> CudaEvent:
        """The start of a span."""
        return self._pool.record(stream)

    def add_span_until_now(
        self,
        start: CudaEvent,
        kind: str,
        name: str,
        stream: int,
        line: str = "",
        program: str = "",
        nbytes: int = 0,
        run: int = -1,
        task: int = -1,
    ) -> None:
        """A span from an event to what was put on the stream by now."""
        end, track = self._pool.record(stream), self._stream_name(stream)

        def read_span_times() -> list[Span]:
            try:
                end.wait()
            except Exception:  # of a lost device: its arrays raise it
                return []
            codes_times = [self._driver.elapsed(self._base.handle, event.handle) for event in (start, end)]
            if any(code != SUCCESS for code, _ in codes_times):
                return []
            begun, ended = (self._offset + us for _, us in codes_times)
            process = f"cuda:{self._device.index}"
            return [Span(kind, name, begun, ended, process, track, line, program, nbytes, run, task)]

        self._recorder.read_device_times_at_end(read_span_times)

    def _stream_name(self, stream: int) -> str:
        return self._names.setdefault(stream, f"stream {len(self._names)}")
