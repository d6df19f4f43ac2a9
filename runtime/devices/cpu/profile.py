"""What a profile sees of the CPU. A run that noted the times of its steps in, spans out; calls that note their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ...core.profile import ProfileRecorder, Span
from ...engine.encode_plan import PlanLayout
from ...engine.run import NativeRun
from ...engine.words import records as e
from ...program.plan import Launch, Plan, Wait, least_bytes_of_task
from ...program.program import Kernel, Task

SHORT_US = 1.0  # a stream's wait below this was none


def cpu_profile_spans_of_run(
    recorder: ProfileRecorder, plan: Plan, layout: PlanLayout, run: NativeRun, number: int
) -> Iterator[Span]:
    """A span for each launch and each wait of a run on the engine, the profile's `number`th; waits until it is over."""
    if not run.released and not run.lost:
        run.wait(run.record.address + e.RUN_EVENT, 0)
    for index, place in layout.stamps.items():
        start, end = (recorder.microseconds_since_start(run.record.words[place // 8 + i]) for i in range(2))
        step = plan.steps[index]
        track, program = f"stream {step.stream}", plan.program.name
        if isinstance(step, Launch):
            task = plan.tasks[step.task]
            yield Span(
                cpu_profile_span_kind(task),
                task.name,
                start,
                end,
                "cpu",
                track,
                task.line,
                program,
                least_bytes_of_task(task),
                run=number,
                task=step.task,
            )
        elif isinstance(step, Wait) and end - start >= SHORT_US:
            name = f"for event {step.event}"
            yield Span("wait", name, start, end, "cpu", track, "", program, run=number, event=step.event)


def profile_cpu_task_calls(
    recorder: ProfileRecorder, plan: Plan, calls: Sequence[Callable[..., None]]
) -> list[Callable[..., None]]:
    """The same calls for one run of the plan, each a span of the thread that makes it."""
    number = recorder.next_run()

    def time_task_call(place: int, task: Task, call: Callable[..., None]) -> Callable[..., None]:
        own = (cpu_profile_span_kind(task), task.name, task.line, plan.program.name, least_bytes_of_task(task))

        def run_and_add_span(*args: Any) -> None:
            with recorder.host_span(*own, run=number, task=place):
                call(*args)

        return run_and_add_span

    return [time_task_call(i, task, call) for i, (task, call) in enumerate(zip(plan.tasks, calls, strict=True))]


def cpu_profile_span_kind(task: Task) -> str:
    return "kernel" if isinstance(task.kernel, Kernel) else "library"
