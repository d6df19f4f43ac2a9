"""What goes wrong outside of programs has a defined outcome: caches, drivers, CPU names, Ctrl-C, forks, callbacks."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph.dsl.array import devices
from kernelgraph.runtime.codegen import llvm_jit
from kernelgraph.runtime.core.errors import DeviceLost
from kernelgraph.runtime.devices.cuda.driver import context as cuda_context
from kernelgraph.runtime.devices.fake import FakeDevice
from tests.faults import opened


def script(text: str, **environment: str) -> str:
    """What a program prints in a process of its own."""
    header = """
        import faulthandler, os, signal, sys, threading, time
        import numpy as np
        import kernelgraph as kg
        from tests.processes import forked, interrupt
        faulthandler.dump_traceback_later(280, exit=True)
        @kg.kernel_graph(device="cpu")
        def f(x):
            return np.exp(x) + 1
        @kg.kernel_graph(device="cpu")
        def slow(x):
            return np.sort(x) + 1
    """
    given = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment}
    command = [sys.executable, "-c", textwrap.dedent(header) + textwrap.dedent(text)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, env=given)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def test_a_full_disk_is_no_cache(tmp_path: Path) -> None:
    """The limit on the size of files is zero: every write fails, as on a full disk."""
    out = script(
        """
        import resource
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        np.testing.assert_allclose(np.asarray(f(np.zeros(5))), 2)
        print(sum(len(files) for _, _, files in os.walk(kg.settings.cache_dir)))
        """,
        KERNELGRAPH_CACHE_DIR=str(tmp_path / "cache"),
    )
    assert out == "0\n"


@pytest.mark.parametrize("place", ["/proc/none", "/dev/null/below"])
def test_a_folder_that_cannot_be_written_is_no_cache(place: str) -> None:
    out = script("print(np.asarray(f(np.zeros(2))))", KERNELGRAPH_CACHE_DIR=place)
    assert out == "[2. 2.]\n"


@pytest.mark.parametrize(("name", "features"), [("nonsense", ""), ("i386", ""), ("", "-64bit")])
def test_a_cpu_that_llvm_does_not_know_is_an_error(name: str, features: str) -> None:
    """LLVM would end the process, or compile for another CPU."""
    with kg.override(cpu_name=name, cpu_features=features, cache_dir=""):
        with pytest.raises(kg.CompileError, match=r"KERNELGRAPH_CPU_NAME=.*(recognized|ERROR|ends)"):
            llvm_jit.compile_llvm_ir("define void @f() { ret void }", "f")
        f = kg.kernel_graph(device="cpu")(lambda x: np.exp(x) - 4.25)
        device: Any = devices.open_device(("cpu", 0))
        device._loaded.clear()
        with pytest.raises(kg.CompileError, match="KERNELGRAPH_CPU_NAME"):
            f(np.zeros(3))
    assert np.asarray(f(np.zeros(3))).tolist() == [-3.25] * 3


@pytest.mark.parametrize(
    ("problem", "words"),
    [(OSError("libcuda.so.1"), "no NVIDIA driver was found"), (AttributeError("cuX"), "too old"), (None, "CUDA 11.8")],
)
def test_a_driver_that_is_missing_or_too_old_is_said(
    problem: Exception | None, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Driver:
        def __init__(self) -> None:
            if problem is not None:
                raise problem

        def version(self) -> tuple[int, int]:
            return (11, 8)

    monkeypatch.setattr(cuda_context, "CudaDriver", Driver)
    with pytest.raises(cuda_context.DeviceNotFound, match=words):
        cuda_context.GpuDriverContext(0)
    monkeypatch.delitem(devices._open, ("cuda", 0), raising=False)
    with pytest.raises(kg.DeviceUnavailableError, match=f"{words}.*device='cpu'"):
        kg.asarray(np.ones(3), device="cuda")


def test_a_lost_device_leaves_the_others() -> None:
    device = FakeDevice(eager=False)
    with opened("fake", device):
        f = kg.kernel_graph(device="fake")(lambda x: x * 3 - 1)
        x = kg.asarray(np.ones(4), device="fake")
        device.fail("work", error=DeviceLost("GPU 0 is lost"))
        lost = f(x)
        for read in (lost.wait, lost.numpy, x.numpy, lambda: f(x), lambda: kg.asarray(np.ones(3), device="fake")):
            for _ in range(2):
                with pytest.raises(kg.DeviceLost, match="GPU 0 is lost"):
                    read()
        on_cpu = kg.kernel_graph(device="cpu")(lambda x: x * 3 - 1)
        assert np.asarray(on_cpu(np.ones(4))).tolist() == [2.0] * 4


def test_an_exception_in_a_users_function_between_parts() -> None:
    def check(total: float) -> float:
        if total > 10:
            raise ValueError(f"{total} is too much")
        return total

    @kg.kernel_graph(device="cpu", untraceable="split")
    def f(x: Any) -> Any:
        total = float((x * 2).sum())
        return x * check(total)

    for _ in range(2):
        with pytest.raises(ValueError, match=r"20\.0 is too much"):
            f(np.ones(10))
        assert np.asarray(f(np.ones(2))).tolist() == [4.0, 4.0]


def test_an_exception_of_a_host_step_is_raised_at_every_read_and_names_its_line() -> None:
    @kg.kernel_graph(device="cpu")
    def f(a: Any, b: Any) -> Any:
        return np.linalg.solve(a, b)

    after = kg.kernel_graph(device="cpu")(lambda x: x + 1)
    singular = [kg.asarray(x, device="cpu") for x in (np.zeros((3, 3)), np.ones(3))]
    solved = f(*singular)
    for read in (solved.wait, solved.numpy, after(solved).numpy, solved.wait):
        with pytest.raises(np.linalg.LinAlgError) as caught:
            read()
        (note,) = caught.value.__notes__
        assert note.startswith("in task ") and " of f, test_outcomes.py:" in note
    assert f(np.eye(3), np.ones(3)).numpy().tolist() == [1.0] * 3


def test_an_exception_of_a_users_callback_is_raised_at_every_read_and_names_its_line() -> None:
    def check(x: Any, out: Any) -> None:
        if x[0] > 5:
            raise ZeroDivisionError("too much")
        out[...] = x + 1

    @kg.kernel_graph(device="cpu")
    def f(x: Any) -> Any:
        return kg.host(check, x * 2, kg.spec(x.shape, x.dtype)) * 10

    good, bad = (kg.asarray(np.full(4, v), device="cpu") for v in (1.0, 3.0))
    poisoned = f(bad)
    dependent = kg.kernel_graph(device="cpu")(lambda x: x - 1)(poisoned)
    for read in (poisoned.wait, poisoned.numpy, dependent.numpy, poisoned.wait):
        with pytest.raises(ZeroDivisionError, match="too much") as caught:
            read()
        assert any("test_outcomes.py:" in note for note in caught.value.__notes__)
    assert f(good).numpy().tolist() == [30.0] * 4


def test_ctrl_c_interrupts_every_kind_of_wait_and_leaves_the_work() -> None:
    out = script(
        """
        x = kg.asarray(np.random.default_rng(0).random(3_000_000), device="cpu")
        wanted = np.sort(x.numpy()) + 1
        np.asarray(slow(x[:5]))
        for turn in range(2):
            for way in ("wait", "numpy", "waitall"):
                waits = slow(x)
                interrupt(looks=2 + 5 * turn)
                try:
                    (kg.waitall if way == "waitall" else getattr(waits, way))()
                    threading.Event().wait()  # where it is interrupted if the work was over
                except KeyboardInterrupt:
                    pass
                assert np.array_equal(waits.numpy(), wanted), way
        print("right")
        """
    )
    assert out == "right\n"


def test_a_fork_after_use_works_and_what_was_in_flight_is_the_parents() -> None:
    out = script(
        """
        x = np.random.default_rng(0).random(2_000_000)
        done, here = f(np.zeros(3)), kg.asarray(x, device="cpu")
        flying = slow(here)
        def child():
            assert done.numpy().tolist() == [2.0] * 3
            try:
                flying.numpy()
                print("it was over", flush=True)
            except kg.KernelGraphError as error:
                assert "in flight when the process forked" in str(error)
            kg.waitall()
            np.testing.assert_array_equal(slow(here).numpy(), np.sort(x) + 1)
            np.testing.assert_allclose(f(np.zeros(1_000_000)).numpy(), 2)
            return 7
        assert forked(child) == 7
        np.testing.assert_array_equal(flying.numpy(), np.sort(x) + 1)
        print("right")
        """
    )
    assert out.splitlines()[-1] == "right"


def test_forks_while_blas_is_at_work() -> None:
    """OpenBLAS ends its threads before a fork: in the middle of a product that never returned."""
    out = script(
        """
        product = kg.kernel_graph(device="cpu")(lambda x: (x @ x).sum())
        factors = kg.kernel_graph(device="cpu")(lambda x: np.linalg.svd(x)[1] + 1)
        x, small = kg.asarray(np.ones((500, 500)), device="cpu"), np.eye(60)
        product(x).wait(), product(small).wait(), factors(small).wait()
        over = threading.Event()
        def work(f):
            while not over.is_set():
                f(small).wait()
        threads = [threading.Thread(target=work, args=(f,)) for f in (product, factors)]
        for thread in threads:
            thread.start()
        for turn in range(30):
            flying = product(x)
            assert forked(lambda: int(product(small).numpy()) % 7) == 60 % 7
        over.set()
        assert flying.numpy() == 500.0**3
        print("right")
        """
    )
    assert out == "right\n"


LOOPS = {  # by who runs them: the caller, a thread that others help, who does NumPy's steps, another loop
    "inline": "loop(lambda v: v * 0.5)",
    "engine": "loop(lambda v: v * 0.5)",
    "steps": "loop(lambda v: v @ v)",
    "nested": "loop(lambda v: kg.while_loop(lambda s: s[1] >= 0, lambda s: (s[0] * 0.5, s[1] + 1), (v, 0.0))[0])",
}


@pytest.mark.parametrize("way", LOOPS)
def test_a_signal_whose_handler_raises_ends_a_loop(way: str) -> None:
    out = script(
        f"""
        def loop(body):
            return kg.kernel_graph(device="cpu")(
                lambda x, n: kg.while_loop(lambda s: s[1] < n, lambda s: (body(s[0]), s[1] + 1), (x, 0))[0]
            )
        class Stop(Exception):
            pass
        def stop(number, frame):
            raise Stop
        f = {LOOPS[way]}
        x = np.ones({dict(inline=3, engine=1_000_000, nested=300).get(way, (20, 20))!r})
        if {way != "nested"}:
            np.asarray(f(x, 2))
        signal.signal(signal.SIGALRM, stop)
        for number, error in ((signal.SIGINT, KeyboardInterrupt), (signal.SIGALRM, Stop)):
            for given in (x, kg.asarray(x, device="cpu")):
                interrupt(number)
                try:
                    result = f(given, 10**12)
                    result.wait()
                    print("it ended")
                except error:
                    pass
        if {way != "nested"}:
            np.testing.assert_array_equal(f(x, 0), x)
        print("right")
        """,
        KERNELGRAPH_THREADS="2",
    )
    assert out == "right\n"


def test_what_a_loop_that_was_ended_should_have_made_raises() -> None:
    out = script(
        """
        f = kg.kernel_graph(device="cpu")(
            lambda x, n: kg.while_loop(lambda s: s[1] < n, lambda s: (s[0] * 0.5, s[1] + 1), (x, 0))[0]
        )
        x = kg.asarray(np.ones(200_000), device="cpu")
        f(x, 2).wait()
        def others():
            return time.process_time() - time.thread_time()
        before, results = others(), [f(x, 10**12)]
        while others() < before + 0.05:  # until the one worker has the first: it alone can work that long
            time.sleep(0.01)
        results += [f(x, 10**12) for _ in range(2)]
        interrupt()
        for turn in range(2):
            try:
                results[2].wait()
            except KeyboardInterrupt:
                print("interrupted")
            except kg.KernelGraphError as error:
                print(error)
        assert not results[0]._event.query()
        """,
        KERNELGRAPH_THREADS="2",
    )
    assert out.startswith("interrupted\nCtrl-C, or a signal handler")


def test_a_loop_in_another_thread_holds_up_no_one() -> None:
    """A small loop runs in its caller, who keeps the interpreter lock: for moments, not for good."""
    out = script(
        """
        f = kg.kernel_graph(device="cpu")(
            lambda x, n: kg.while_loop(lambda s: s[1] < n, lambda s: (s[0] * 0.5, s[1] + 1), (x, 0))[0]
        )
        x = np.ones(3)
        f(x, 2), f(x, 2)
        threading.Thread(target=f, args=(x, 10**12), daemon=True).start()
        for turn in range(5):
            time.sleep(0.05)
        print("right", flush=True)
        os._exit(0)
        """
    )
    assert out == "right\n"


def test_the_interpreter_exits_with_work_in_flight() -> None:
    out = script(
        """
        x = kg.asarray(np.random.default_rng(0).random(2_000_000), device="cpu")
        kept = [slow(x) for _ in range(3)]
        [slow(x) for _ in range(3)]
        print("leaving")
        """
    )
    assert out == "leaving\n"
