"""Several devices of one kind in one process: where arrays are, what moves them, and what refuses to."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph.dsl.array.array import Array
from kernelgraph.dsl.array.devices import open_device

X = np.linspace(0, 1, 1000)


@pytest.fixture(autouse=True)
def four() -> Iterator[None]:
    with kg.override(cpu_devices=4):
        yield


@kg.kernel_graph
def anywhere(x: Any) -> Any:
    return np.sqrt(x) * 2


def on_second(x: Any, y: Any) -> Any:
    return x + y


def test_a_function_runs_on_the_device_that_it_names() -> None:
    y = kg.kernel_graph(on_second, device="cpu:1")(X, X)
    assert y.device == "cpu:1"
    np.testing.assert_array_equal(y, X + X)


def test_a_function_that_names_none_follows_its_arguments() -> None:
    with kg.device("cpu"):
        assert anywhere(X).device == "cpu"
        assert kg.asarray(X).device == "cpu"
    for name in ("cpu:3", "cpu:1"):
        y = anywhere(kg.asarray(X, device=name))
        assert y.device == name
        np.testing.assert_array_equal(y, np.sqrt(X) * 2)


def test_a_default_device_is_of_one_thread_and_ends_with_its_block() -> None:
    seen = []
    with kg.device("cpu:2"):
        with kg.device("cpu:1"):
            seen += [kg.asarray(X).device, anywhere(X).device]
        seen.append(kg.asarray(X).device)
        thread = threading.Thread(target=lambda: seen.append(kg.asarray(X, device="cpu").device))
        thread.start()
        thread.join()
    assert seen == ["cpu:1", "cpu:1", "cpu:2", "cpu"]


def test_arrays_of_two_devices_are_refused() -> None:
    x, y = kg.asarray(X, device="cpu:1"), kg.asarray(X, device="cpu:2")
    with pytest.raises(kg.ArgumentsError, match=r"test_devices.*runs on cpu:1, and an argument is on cpu:2.*to_device"):
        kg.kernel_graph(on_second, device="cpu:1")(x, y)
    with pytest.raises(kg.ArgumentsError, match="on cpu:1 and on cpu:2"):
        x + y

    @kg.kernel_graph
    def both(x: Any, y: Any) -> Any:
        return x + y

    with pytest.raises(kg.ArgumentsError, match="to_device"):
        both(x, y)


def test_an_array_goes_to_another_device() -> None:
    x = kg.asarray(X, device="cpu:1")
    y = x.to_device("cpu:2")
    assert (y.device, x.device, y.to_device("cpu:2") is y) == ("cpu:2", "cpu:1", True)
    np.testing.assert_array_equal(y, X)
    assert x._memory.address != y._memory.address


def test_a_copy_follows_the_call_that_makes_the_array() -> None:
    @kg.kernel_graph(device="cpu:1")
    def slow(x: Any) -> Any:
        for _ in range(3):
            x = x @ x
        return x / 3

    a = np.random.default_rng(0).random((400, 400)) / 200
    y = slow(kg.asarray(a, device="cpu:1")).to_device("cpu:3")
    assert y.device == "cpu:3"
    np.testing.assert_array_equal(y, kg.kernel_graph(slow._function, device="cpu")(a))


def test_a_copy_of_what_failed_fails() -> None:
    @kg.kernel_graph(device="cpu:1")
    def fails(x: Any) -> Any:
        return np.linalg.inv(x) @ x

    x = fails(np.zeros((300, 300)))
    y = x.to_device("cpu:2")
    for array in (x, y):
        with pytest.raises(np.linalg.LinAlgError):
            array.numpy()


def test_no_more_devices_than_there_are() -> None:
    with pytest.raises(kg.OptionError, match="KERNELGRAPH_CPU_DEVICES"):
        kg.asarray(X, device="cpu:4")
    with kg.override(cpu_devices=0), pytest.raises(kg.OptionError, match="'cpu:1'"):
        kg.asarray(X, device="cpu:1")
    with pytest.raises(kg.OptionError, match="no device 'gpu'"), kg.device("gpu"):
        pass


def test_the_fake_device_copies_from_its_like() -> None:
    one, two = open_device(("fake", 1)), open_device(("fake", 2))
    x = kg.asarray(X, device="fake:1")
    assert type(x) is Array
    y = x.to_device("fake:2")
    log: Any = two
    assert log.log[-1][:2] == ("copy", 1)
    assert (y._device, x._device) == (two, one)
