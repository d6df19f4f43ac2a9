"""Arrays of other libraries as arguments, and kg.Array in other libraries: the same memory, nothing copied."""

from __future__ import annotations

import array
import copy
import gc
import pickle
import re
import sys
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph.dsl.interop import device_sharing, dlpack
from kernelgraph.dsl.interop.host_import import foreign_as_numpy
from tests.dsl.core.test_errors import refused
from tests.dsl.tracing import assert_same
from tests.interop import library

X = np.arange(12.0).reshape(3, 4)


def cpu(function: Any) -> Any:
    return kg.kernel_graph(function, device="cpu")


def same_halves(a: Any, b: Any) -> None:
    assert a.dtype == b.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(np.asarray(a, np.float32), np.asarray(b, np.float32))


class Interface:
    """Has NumPy's array interface, and nothing else."""

    def __init__(self, values: np.ndarray[Any, Any]) -> None:
        self.values = values
        self.__array_interface__ = values.__array_interface__


class OnGpu:
    """An array whose memory the CPU cannot read."""

    __cuda_array_interface__: dict[str, Any] = {}  # noqa: RUF012


class OnGpuByDlpack:
    def __dlpack__(self, **options: Any) -> Any:
        raise AssertionError("is not asked")

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 0)


@dataclass
class Layer:
    weight: Any
    bias: Any
    scale: float = 2.0


@pytest.mark.usefixtures("refusing")
def test_numpys_interface_and_buffers() -> None:
    values = X.copy()
    f = cpu(lambda x, y: x * 2 + y)
    for given in (Interface(values), memoryview(values)):
        found = foreign_as_numpy(given)
        assert found is not None and np.shares_memory(found, values)
    assert_same(f(Interface(values), values), values * 3)
    for given in (array.array("d", [1.0]), bytearray(b"a"), memoryview(values), np.poly1d([1.0])):  # of another `+`
        refused(lambda g=given: f(g, X), kg.ArgumentsError, "buffer", "np.asarray")  # type: ignore[misc]


def test_memory_elsewhere_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_gpu(place: Any) -> Any:
        raise kg.DeviceUnavailableError("no driver")

    monkeypatch.setattr(device_sharing, "open_device", no_gpu)
    f = cpu(lambda x: x)
    for given in (OnGpu(), OnGpuByDlpack()):
        refused(lambda g=given: f(g), kg.ArgumentsError, "another device", "copy_to_host")  # type: ignore[misc]


def test_dataclasses_of_arrays() -> None:
    def apply(layer: Layer, x: Any) -> Any:
        return Layer(x @ layer.weight + layer.bias, layer.bias * layer.scale)

    f = cpu(apply)
    result = f(Layer(X.T, np.ones(3)), X)
    assert isinstance(result, Layer) and isinstance(result.weight, kg.Array)
    assert_same(result, apply(Layer(X.T, np.ones(3)), X))
    assert_same(f(Layer(X.T, np.ones(3), 3.0), X).bias, np.full(3, 3.0))
    assert f.why().count("traced for") == 1  # the scale is passed at each call


# a library of our own, so that this is tested wherever the tests run


class Producer:
    """Has DLPack, for memory that the CPU reads."""

    def __init__(self, values: np.ndarray[Any, Any], old: bool = False) -> None:
        self.values, self.old, self.alive, self.asked = values, old, 0, 0

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def __dlpack__(self, **options: Any) -> Any:
        if self.old and set(options) - {"stream"}:
            raise TypeError("unknown options")
        v = self.values
        self.alive += 1
        self.asked += 1
        tensor = dlpack.DLPackTensor(v.ctypes.data, (1, 0), v.shape, v.strides, v.dtype, not v.flags.writeable)
        return dlpack.make_capsule(tensor, not self.old and options.get("max_version") is not None, self._released)

    def _released(self) -> None:
        self.alive -= 1


@pytest.mark.parametrize("old", [False, True])
def test_dlpack_of_a_library_of_our_own(old: bool) -> None:
    f = cpu(lambda x: x * 2 + 1)
    for values in (X.copy(), X.T.copy().T, X[::2, ::-1].copy(), np.zeros((0, 3)), np.array(3.0)):
        producer = Producer(values, old)
        found = foreign_as_numpy(producer)
        assert found is not None and found.ctypes.data == values.ctypes.data and producer.alive == 1
        del found
        gc.collect()
        assert producer.alive == 0
        assert_same(f(producer), values * 2 + 1)
        result = kg.from_dlpack(producer)
        assert_same(result, values)
        gc.collect()
        assert producer.alive == 0


def test_assignment_reaches_a_library_of_our_own() -> None:
    values = X.copy()
    cpu(lambda u: u.__imul__(3))(Producer(values))
    assert_same(values, X * 3)


def test_capsules_say_what_they_hold() -> None:
    for dtype in ("bool", "int8", "uint64", "float16", "float64", "complex128", ml_dtypes.bfloat16):
        values = np.ones((2, 3), dtype).T
        for versioned in (False, True):
            tensor = dlpack.DLPackTensor(
                values.ctypes.data, (2, 1), values.shape, values.strides, values.dtype, versioned
            )
            released: list[int] = []
            capsule = dlpack.make_capsule(tensor, versioned, lambda released=released: released.append(1))  # type: ignore[misc]
            assert dlpack.read_capsule(capsule) == tensor
            del capsule
            assert released == [1]
    with pytest.raises(BufferError, match="no DLPack capsule"):
        dlpack.read_capsule(object())


def test_arrays_as_buffers() -> None:
    a = cpu(lambda x: x * 2)(X)
    view = a.__buffer__(0)
    assert view.readonly and view.shape == X.shape and np.shares_memory(np.asarray(view), a.numpy())
    if sys.version_info >= (3, 12):
        assert np.shares_memory(np.asarray(memoryview(a)), a.numpy()) and bytes(a) == (X * 2).tobytes()
        assert hash(X.dtype) and np.shares_memory(np.asarray(a), a.numpy())
    with pytest.raises(BufferError, match="read-only"):
        a.__buffer__(1)
    with pytest.raises(BufferError, match="no host memory"):
        kg.asarray(X, device="fake").__buffer__(0)


def test_arrays_print_as_numpy_does() -> None:
    a = cpu(lambda x: x / 3)(X)
    with np.printoptions(precision=3):
        assert str(a) == str(X / 3) and repr(a) == repr(X / 3)
    assert f"{a}" == f"{X / 3}" and f"{kg.asarray(2.5, device='cpu'):.2f}" == "2.50"


@kg.kernel_graph
def twice(x: Any) -> Any:
    return x * 2


def test_decorated_functions_are_copied_and_pickled_by_name() -> None:
    assert copy.copy(twice) is twice and copy.deepcopy(twice) is twice
    assert pickle.loads(pickle.dumps(twice)) is twice
    holder = {"f": twice, "a": kg.asarray(X, device="cpu")}
    other = copy.deepcopy(holder)
    assert other["f"] is twice and other["a"] is not holder["a"]
    assert_same(other["a"], X)


def test_an_array_of_a_device_that_is_missing_is_unpickled_on_the_default_one() -> None:
    rebuild, (values, _) = kg.asarray(X, device="cpu").__reduce__()
    assert_same(rebuild(values, "cuda:7"), X)


# torch


def test_torch_tensors() -> None:
    torch = library("torch")
    x = torch.arange(12.0, dtype=torch.float64).reshape(3, 4)
    found = foreign_as_numpy(x)
    assert found is not None and found.ctypes.data == x.data_ptr()
    f = cpu(lambda x, y: (x * 2 + y, x.T))
    assert_same(f(x, X), (X * 3, X.T))
    assert_same(f(x.T, X.T), (X.T * 3, X))
    assert_same(f(x[::2, 1:], 1.0), (X[::2, 1:] * 2 + 1, X[::2, 1:].T))
    half = torch.arange(4, dtype=torch.bfloat16)
    same_halves(cpu(lambda x: x + x)(half), np.arange(4, dtype=ml_dtypes.bfloat16) * 2)
    refused(lambda: f(x.requires_grad_(), X), kg.ArgumentsError, "torch Tensor", "x.detach()")


def test_torch_tensors_that_are_assigned_to() -> None:
    torch = library("torch")

    def function(u: Any) -> Any:
        u[1:] += u[:-1]
        return u

    x, reference = torch.arange(12.0).reshape(3, 4), np.arange(12, dtype=np.float32).reshape(3, 4)
    result = cpu(function)(x)
    function(reference)
    assert result is x
    assert_same(np.asarray(x), reference)


def test_later_calls_see_tensors_as_the_first_one_does() -> None:
    """Calls after the first take a shorter way."""
    torch = library("torch")
    f = cpu(lambda x, y: x * 2 + y)
    x = torch.arange(12.0).reshape(3, 4)
    for _ in range(3):
        assert_same(f(x, x), x.numpy() * 3)
        assert_same(f(x.T, x.T), x.numpy().T * 3)
    x += 1  # the same memory
    assert_same(f(x, x), x.numpy() * 3)
    for other in (x.double(), x.bfloat16(), x[:, ::2], x[:0]):
        assert_same(np.asarray(f(other, other), np.float32), (other.float() * 3).numpy())
    refused(lambda: f(x.clone().requires_grad_(), x), kg.ArgumentsError, "torch Tensor", "x.detach()")
    y = torch.ones(3, 4)
    assert_same(f(y, y), y.numpy() * 3)
    scale = cpu(lambda x, s: x if s is None else x * s)
    for _ in range(2):
        assert_same(scale(X, None), X)
        refused(lambda: scale(X, torch.ones(4).requires_grad_()), kg.ArgumentsError, "x.detach()")
    y = torch.ones(2)
    f(y, y)
    y.resize_(1000)  # no call has made that impossible
    assert_same(f(y[:2], np.float32(1)), np.full(2, 3, np.float32))


def test_tensors_that_are_assigned_to_again_and_again() -> None:
    torch = library("torch")
    add = cpu(lambda u: u.__iadd__(1))
    x = torch.zeros(4)
    assert all(add(x) is x for _ in range(4))
    assert_same(x.numpy(), np.full(4, 4, np.float32))


def test_a_negated_tensor_is_not_read_as_its_memory() -> None:
    """Its values are those of its memory, negated; DLPack cannot say so."""
    torch = library("torch")
    x = torch.tensor([1 + 2j, 3 - 4j]).conj().imag
    f = cpu(lambda x: x + 1)
    for _ in range(3):
        assert_same(f(x.resolve_neg()), np.array([-1, 5], np.float32))
        refused(lambda: f(x), kg.ArgumentsError, "negative bit", "x.resolve_neg()")


def test_tensors_without_values_that_can_be_read() -> None:
    """Whatever their dtype, before and after the short way is known."""
    torch = library("torch")
    freed = torch.ones(4)
    part = freed[2:]  # whose address is its offset then
    freed.untyped_storage().resize_(0)
    cases = [
        (torch.ones(4, dtype=torch.bfloat16, requires_grad=True), "x.detach()"),
        (torch.ones(4, dtype=torch.complex64).conj(), "x.resolve_conj()"),
        (freed, "its storage was resized to nothing"),
        (part, "its storage was resized to nothing"),
        (torch.empty(4, device="meta"), "meta"),
    ]
    for function in (lambda x: x + 1, lambda x: x.__iadd__(1)):
        f = cpu(function)
        for _ in range(2):
            for x, words in cases:
                refused(lambda f=f, x=x: f(x), kg.ArgumentsError, "torch Tensor", words)
            f(torch.ones(4))
            f(torch.ones(4).bfloat16())
    assert (cases[0][0] == 1).all()


def test_arrays_in_torch() -> None:
    torch = library("torch")
    a = cpu(lambda x: x * 2)(X)
    t = torch.from_dlpack(a)
    assert t.data_ptr() != a.numpy().ctypes.data  # PyTorch would write to it
    expected = np.asarray(a).copy()
    del a
    gc.collect()
    others = [cpu(lambda x: x * 3)(X) for _ in range(5)]  # do not take the memory
    assert_same(t.numpy(), expected)
    assert len(others) == 5


# jax


def test_jax_arrays() -> None:
    jax = library("jax")
    x = jax.device_put(np.arange(12, dtype=np.float32).reshape(3, 4), jax.devices("cpu")[0])
    found = foreign_as_numpy(x)
    assert found is not None and found.ctypes.data == x.unsafe_buffer_pointer() and not found.flags.writeable
    reference = np.arange(12, dtype=np.float32).reshape(3, 4)
    f = cpu(lambda x: np.exp(x) + x.sum())
    assert_same(f(x), np.exp(reference) + reference.sum())
    half = x.astype(jax.numpy.bfloat16)
    same_halves(cpu(lambda x: x * 2)(half), reference.astype(ml_dtypes.bfloat16) * 2)
    refused(lambda: cpu(lambda u: u.__setitem__(0, 1))(x), kg.ReadOnlyError, "read-only", "pass x.copy()")


def test_a_key_of_jax_is_no_array() -> None:
    jax = library("jax")
    key = jax.random.key(0)
    refused(lambda: cpu(lambda x: x + 1)(key), kg.DTypeError, "PRNGKeyArray", "jax.random.key_data")
    refused(lambda: kg.asarray(key), kg.DTypeError, "PRNGKeyArray", "jax.random.key_data")
    refused(lambda: kg.array(key, device="cpu"), kg.DTypeError, "PRNGKeyArray", "jax.random.key_data")
    refused(lambda: kg.to_device(key, "cpu"), kg.DTypeError, "PRNGKeyArray", "jax.random.key_data")
    refused(lambda: cpu(lambda x: np.add(x, key))(X), kg.DTypeError, "PRNGKeyArray", "jax.random.key_data")
    assert np.asarray(kg.asarray(jax.random.key_data(key))).dtype == np.uint32


def test_later_calls_see_jax_arrays_as_the_first_one_does() -> None:
    jax = library("jax")
    f, add = cpu(lambda x: x * 2), cpu(lambda u: u.__iadd__(1))
    for i in range(3):
        x = jax.device_put(np.arange(4.0, dtype=np.float32) + i, jax.devices("cpu")[0])
        assert_same(f(x), np.asarray(x) * 2)
        half = x.astype(jax.numpy.bfloat16)
        same_halves(f(half), np.asarray(half) * 2)
        refused(lambda x=x: add(x), kg.ReadOnlyError, "read-only", "pass x.copy()")
    x.delete()
    refused(lambda: f(x), kg.ArgumentsError, "deleted")


def test_arrays_in_jax() -> None:
    jax = library("jax")
    a = cpu(lambda x: x * 2)(X.astype(np.float32))
    assert_same(np.asarray(jax.numpy.from_dlpack(a)), np.asarray(a))
    assert_same(np.asarray(jax.jit(lambda x: x + 1)(np.asarray(a))), np.asarray(a) + 1)


def test_torch_cannot_write_to_what_others_see() -> None:
    torch = library("torch")
    a = cpu(lambda x: x + 1)(np.zeros(3))
    view = np.asarray(a)
    for export in (torch.from_dlpack, torch.utils.dlpack.from_dlpack, torch.asarray, lambda x: torch.tensor(x.numpy())):
        t = export(a)
        t.add_(5)
        assert view.tolist() == a.tolist() == [1, 1, 1] and t.tolist() == [6, 6, 6]
    with pytest.raises(BufferError, match="leave copy=False out"):
        torch.from_dlpack(a, copy=False)


# NumPy


def test_arrays_in_numpy_share_their_memory() -> None:
    a = cpu(lambda x: x * 2)(X)
    b = np.from_dlpack(a)
    assert np.shares_memory(b, a.numpy()) and not b.flags.writeable
    assert np.shares_memory(np.asarray(a), a.numpy()) and not np.asarray(a).flags.writeable
    f = cpu(lambda u: u.__iadd__(1))
    before = b.copy()
    f(a)  # assigned to: its memory is another one from now on
    assert_same(b, before)
    assert_same(a, before + 1)


def _function_without_a_name() -> Any:
    @kg.kernel_graph
    def inner(x: Any) -> Any:
        return x

    return inner


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: kg.kernel_graph(lambda x: x + 1), "<lambda>"),
        (_function_without_a_name, "_function_without_a_name.<locals>.inner"),
        (lambda: kg.kernel_graph(inner_product_of_pickles), "inner_product_of_pickles"),  # the name is another's
        (lambda: kg.grad(lambda x: x.sum()), "grad_<lambda>"),
        (lambda: kg.vmap(lambda x: x.sum()), "vmap_<lambda>"),
    ],
)
@pytest.mark.parametrize("dumps", [pickle.dumps, pickle._dumps])  # type: ignore[attr-defined]  # in C and in Python
def test_what_no_name_leads_to_is_not_pickled_by_name(make: Any, name: str, dumps: Any) -> None:
    with pytest.raises(pickle.PicklingError, match=re.escape(f"{name} is not it; define it with def")) as raised:
        dumps(make())
    assert "_mark" not in str(raised.value) and "test_foreign.py:" in str(raised.value)
    cloudpickle = pytest.importorskip("cloudpickle")
    assert pickle.loads(cloudpickle.dumps(make())) is not None


def inner_product_of_pickles(x: Any) -> Any:
    return x
