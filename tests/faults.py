"""A device that is asked for things in; the same device, of which one request fails, and what must follow, out.

`Faults` counts the requests of each kind and lets one fail. `FaultyCPU`, `faulty_fake` and `faulty_cuda` wrap the
methods of a device's objects, so that nothing of this is in the devices themselves. `check` runs a program once for
each request that it makes, lets that fail, and asserts what the pages promise.
"""

from __future__ import annotations

import gc
import inspect
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

import kernelgraph as kg
from kernelgraph.dsl.array import devices
from kernelgraph.dsl.core.pytree import flatten
from kernelgraph.runtime.devices.cpu.device import CPUDevice
from kernelgraph.runtime.devices.fake import FakeDevice

ERRORS: dict[str, type[Exception]] = {
    "allocate": kg.OutOfMemory,
    "compile": kg.CompileError,
    "launch": kg.LaunchError,
    "copy": kg.LaunchError,
}


@dataclass
class Faults:
    """fail: the kind and the number of the request that fails, if any. failed: whether it has."""

    fail: tuple[str, int] | None = None
    asked: Counter[str] = field(default_factory=Counter)
    failed: bool = False

    def hits(self, kind: str) -> bool:
        """Count a request; whether it is the one that fails."""
        self.asked[kind] += 1
        found = self.fail == (kind, self.asked[kind] - 1)
        self.failed = self.failed or found
        return found

    def ask(self, kind: str) -> None:
        if self.hits(kind):
            raise ERRORS[kind](f"this {kind} fails")

    def before(self, kind: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, after a request."""

        def asked(*args: Any) -> Any:
            self.ask(kind)
            return function(*args)

        return asked


class FaultyCPU(CPUDevice):
    """Every allocation, compilation, copy, and every task that Python starts (all of them in the engine `sync`)."""

    def __init__(self, faults: Faults) -> None:
        super().__init__()
        self.faults = faults
        self.allocate = faults.before("allocate", self.pool.allocate)  # type: ignore[method-assign]

    def upload(self, host: Any, memory: Any) -> Any:
        self.faults.ask("copy")
        return super().upload(host, memory)

    def download(self, memory: Any, host: Any) -> None:
        self.faults.ask("copy")
        super().download(memory, host)

    def load(self, kernels: Any) -> Any:
        for kernel in dict.fromkeys(kernels):
            if kernel not in self._loaded and self.faults.hits("compile"):
                super().load([replace(kernel, source=kernel.source + "\nnonsense")])
        return super().load(kernels)

    def prepare(self, plan: Any, way: str = "") -> Any:
        made = super().prepare(plan, way)
        made._calls = [self.faults.before("launch", call) for call in made._calls]
        return made


def faulty_fake(faults: Faults) -> FakeDevice:
    """A fake device whose work is done when it is waited for."""
    device = FakeDevice(eager=False)
    kinds = {"load": "compile", "upload": "copy", "download": "copy", "work": "launch"}
    known = device.count_call

    def fault(what: str) -> BaseException | None:
        kind = kinds.get(what, what)
        if kind not in ERRORS or what == "launch":
            return known(what)
        return ERRORS[kind](f"this {kind} fails") if faults.hits(kind) else known(what)

    device.count_call = fault  # type: ignore[method-assign]
    return device


class FaultyDriver:
    """A CUDA driver of which launches and copies are refused. Everything else is the driver's own."""

    REFUSED = 701  # too many resources requested for launch

    def __init__(self, driver: Any, faults: Faults) -> None:
        self._driver, self._faults = driver, faults
        for name in ("launch", "launch_graph", "to_device", "to_host", "on_device"):
            kind = "launch" if name.startswith("launch") else "copy"
            setattr(self, name, self._refusing(getattr(driver, name), kind))

    def _refusing(self, function: Callable[..., int], kind: str) -> Callable[..., int]:
        def call(*args: Any) -> int:
            return self.REFUSED if self._faults.hits(kind) else function(*args)

        return call

    def __getattr__(self, name: str) -> Any:
        return getattr(self._driver, name)


class FaultyContext:
    """What stands between a CUDA device and the hardware, with faults: see `CUDADevice`."""

    def __init__(self, context: Any, faults: Faults) -> None:
        self._context, self._faults = context, faults
        self.driver = FaultyDriver(context.driver, faults)

    def kernel(self, code: Any, name: str) -> Any:
        if self._faults.hits("compile"):
            raise kg.CompileError(f"the driver cannot load kernel {name}", name)
        return self._context.kernel(code, name)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)


def faulty_cuda(context: Any) -> Callable[[Faults], Any]:
    """Devices on a GPU, or on what stands for one."""

    def make(faults: Faults) -> Any:
        from kernelgraph.runtime.devices.cuda.device import CUDADevice

        device = CUDADevice(0, FaultyContext(context, faults))
        device.allocate = faults.before("allocate", device.allocate)  # type: ignore[method-assign]
        return device

    return make


@contextmanager
def opened(kind: str, device: Any) -> Iterator[None]:
    """The device takes the place of the process' own."""
    before = devices._open.get((kind, 0))
    devices._open[kind, 0] = device
    try:
        yield
    finally:
        kg.waitall()
        if before is None:
            del devices._open[kind, 0]
        else:
            devices._open[kind, 0] = before


def in_use(device: Any) -> int:
    """Bytes that arrays hold, once all work is done."""
    kg.waitall()
    device.synchronize()
    return int(device.in_use if isinstance(device, FakeDevice) else device.statistics()["in_use"])


def is_back(device: Any, before: int) -> bool:
    """Whether no more bytes are in use than before, once garbage is gone: errors hold frames."""
    for generation in range(3):
        if in_use(device) <= before:
            return True
        gc.collect(generation)
    return in_use(device) <= before


KNOWN = ("_loaded", "loaded")  # where other devices have them


def forget(device: Any) -> None:
    """The kernels that were compiled."""
    modules = getattr(device, "modules", None)
    for kernels in (modules._recent, modules._alive) if modules else (getattr(device, n, {}) for n in KNOWN):
        kernels.clear()


def said(error: BaseException) -> str:
    return "\n".join([str(error), *getattr(error, "__notes__", ())])


def raised_by(function: Callable[[], Any]) -> BaseException | None:
    try:
        function()
    except Exception as error:
        return error
    return None


class Scenario:
    """A program with arguments on a device of one kind. make(faults) gives a fresh device."""

    def __init__(
        self, kind: str, make: Callable[[Faults], Any], function: Callable[..., Any], arrays: tuple[Any, ...]
    ) -> None:
        self.kind, self.make, self.function, self.arrays = kind, make, function, arrays
        code, first = inspect.getsourcelines(function)
        self.lines = range(first, first + len(code))
        expected = kg.kernel_graph(device="cpu")(function)(*self._copies())
        self.expected = [np.asarray(leaf).copy() for leaf in leaves(expected)]

    def _copies(self) -> list[Any]:
        return [np.array(a) for a in self.arrays]

    def _right(self, results: Any) -> None:
        for got, wanted in zip(leaves(results), self.expected, strict=True):
            host = np.asarray(got)
            assert host.shape == wanted.shape and host.dtype == wanted.dtype
            if self.kind == "fake":
                assert not host.any()
            else:
                np.testing.assert_allclose(host, wanted, rtol=2e-4, atol=1e-5)

    def __enter__(self) -> Scenario:
        gc.disable()  # garbage stays young, so that collecting it does not walk all that a test process has
        self.faults = Faults()
        self.device = self.make(self.faults)
        self._opened = opened(self.kind, self.device)
        self._opened.__enter__()
        self.program = self._fresh()
        self.after = kg.kernel_graph(device=self.kind)(lambda a: a * 2 + 1)
        self.other = kg.kernel_graph(device=self.kind)(unrelated)
        self.apart = kg.asarray(np.arange(6, dtype=np.float32), device=self.kind)
        for known in (self.after, self.other):
            np.asarray(known(self.apart))
        return self

    def __exit__(self, *_: Any) -> None:
        self._opened.__exit__(None, None, None)
        gc.enable()

    def _fresh(self) -> Any:
        return kg.kernel_graph(device=self.kind)(self.function)

    def _arguments(self) -> list[Any]:
        return [kg.asarray(a, device=self.kind) for a in self._copies()]

    def count(self) -> Counter[str]:
        """The requests of a run in which nothing fails: compilations of a first call, the rest of two later ones."""
        self.faults.asked.clear()
        self._right(self.program(*self._arguments()))
        compiled = self.faults.asked["compile"]
        self.faults.asked.clear()
        for _ in range(2):
            self._right(self.program(*self._arguments()))
        return Counter({**self.faults.asked, "compile": compiled})

    def fail(self, kind: str, number: int) -> str:
        """Let one request fail; how that came out: raised by the call, at each read, by the copy, or made good."""
        if kind == "compile":
            self.program = self._fresh()
            forget(self.device)
        elif self.kind == "cuda":  # a graph that was refused is not tried again
            self.program = self._fresh()
            self._right(self.program(*self._arguments()))
        before, faults = in_use(self.device), self.faults
        faults.asked.clear()
        faults.fail, faults.failed = (kind, number), False
        outcome = self._broken(kind, self.program, self.after, self.other, self.apart)
        if not faults.failed:  # whether a graph's instance is idle, or a second one is captured, is a matter of time
            assert self.kind == "cuda" and outcome == "made good", "no request failed"
            outcome = "not asked"
        assert is_back(self.device, before + self._kept()), "bytes are still in use"
        faults.fail = None
        self._right(self.program(*self._arguments()))  # the next call
        assert is_back(self.device, before + self._kept())
        return outcome

    def _kept(self) -> int:
        """What a GPU's libraries and graphs keep."""
        return 1 << 62 if self.kind == "cuda" else 0

    def _broken(self, kind: str, program: Any, after: Any, other: Any, apart: Any) -> str:
        results, outcome = None, ""
        try:
            for _ in range(2):
                outcome = "raised by the copy"
                arguments = self._arguments()
                outcome = "raised by the call"
                results = program(*arguments)
                outcome = "raised at each read"
                self._right(results)
            return "made good"
        except Exception as error:
            assert type(error) is ERRORS[kind], error
            in_a_task = "in task" in said(error)  # a copy may be part of one
            if kind == "copy" and outcome == "raised at each read" and not in_a_task:
                self._right(results)  # to the host: it may be tried again
                outcome = "raised by the copy"
            if outcome != "raised by the copy":
                self._names_the_line(error, poisoned=outcome == "raised at each read")
        if outcome == "raised at each read":
            self._poisoned(results, after)
        found = np.asarray(other(apart))  # unrelated work goes on
        assert self.kind == "fake" or np.array_equal(found, np.arange(6) + 3)
        return outcome

    def _poisoned(self, results: Any, after: Any) -> None:
        """Every wait and every read raises the same, and so do dependents."""
        bad = 0
        for leaf in leaves(results):
            error = raised_by(leaf.wait)
            if error is None:  # a result that does not depend on what failed
                continue
            bad += 1
            for read in (leaf.wait, leaf.numpy, lambda a=leaf: np.asarray(a), lambda a=leaf: after(a).wait()):
                again = raised_by(read)
                assert again is error or said(again or Exception()) == said(error), again
        assert bad

    def _names_the_line(self, error: BaseException, poisoned: bool) -> None:
        text = said(error)
        assert self.function.__name__ in text, text
        if poisoned or isinstance(error, kg.CompileError):
            assert any(f"fault_programs.py:{line}" in text for line in self.lines), text
        else:
            assert "faults.py:" in text, text


def unrelated(a: Any) -> Any:
    return a + 3


def leaves(results: Any) -> list[Any]:
    found: list[Any] = []
    flatten(results, found)
    return found


def check(
    kind: str, make: Callable[[Faults], Any], function: Callable[..., Any], arrays: Any, only: Sequence[str] = ()
) -> Counter[str]:
    """Fails every request of a program (of the kinds in `only`) once; how many failed, by kind and outcome."""
    outcomes: Counter[str] = Counter()
    with Scenario(kind, make, function, arrays) as scenario:
        for what, number in sorted(scenario.count().items()):
            for i in range(number if not only or what in only else 0):
                outcomes[f"{what}: {scenario.fail(what, i)}"] += 1
    for outcome in [o for o in outcomes if o.endswith("not asked")]:
        del outcomes[outcome]
    return outcomes


def main() -> None:
    """The number of faults by device, kind and outcome; on a GPU with the argument `cuda`."""
    from kernelgraph.runtime.core.settings import override
    from tests.fault_programs import PROGRAMS

    runs: list[tuple[str, Any, str]] = [("fake", faulty_fake, "async"), ("cpu", FaultyCPU, "async")]
    runs.append(("cpu", FaultyCPU, "sync"))
    if "cuda" in sys.argv:
        from kernelgraph.runtime.devices.cuda.driver.context import GpuDriverContext

        runs = [("cuda", faulty_cuda(GpuDriverContext(0)), "async")]
    for kind, make, engine in runs:
        found: Counter[str] = Counter()
        with override(tune=False, engine=engine):
            for function, arrays in PROGRAMS.items():
                found += check(kind, make, function, arrays, ["launch"] if engine == "sync" else ())
        print(f"{kind} ({engine}): {found.total()} faults; " + ", ".join(f"{n} {o}" for o, n in sorted(found.items())))


if __name__ == "__main__":
    main()
