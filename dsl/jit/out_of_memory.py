"""An allocation that failed in; an error that says what the call needs, and what less it could do with, out."""

from __future__ import annotations

from ...runtime.core.errors import OutOfMemory
from ...runtime.program.device import Device
from ...runtime.program.plan import Plan
from ...runtime.schedule.cost_model import machine_of
from ...runtime.schedule.schedule import schedule
from ..array.devices import name_of


def too_large(plan: Plan, device: Device, error: OutOfMemory) -> OutOfMemory:
    """Names the peak of a call, the memory mode in use, and what `memory="small"` would need."""
    mode = plan.report.memory if plan.report is not None else "balanced"
    peak, outputs = plan.peak_bytes, plan.peak_bytes - plan.arena_bytes
    if mode == "small":
        advice = "memory='small', the least there is, is in use; pass smaller arrays or free others"
    else:
        small = schedule(plan.program, "auto", "small", machine=machine_of(device.kind, device.properties)).peak_bytes
        advice = f"memory='small' would need {small} bytes"
        if small >= peak:
            advice += ", no less; pass smaller arrays or free others"
    return OutOfMemory(
        f"a call of {plan.program.name} needs {peak} bytes beside its inputs on {name_of(device)}: {outputs} of "
        f"outputs and {plan.arena_bytes} of temporaries with memory={mode!r}; {advice} ({error})"
    )
