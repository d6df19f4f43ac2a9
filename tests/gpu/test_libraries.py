"""cuFFT and cuSOLVER against NumPy, and operations on arrays of a GPU outside of a traced function."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgraph as kg

pytestmark = pytest.mark.usefixtures("device")
RNG = np.random.default_rng(0)
DTYPES = ["f4", "f8", "c8", "c16"]


def array(dtype: str, *shape: int) -> np.ndarray[Any, Any]:
    values = RNG.normal(size=shape)
    return (values + 1j * RNG.normal(size=shape) if dtype[0] == "c" else values).astype(dtype)


def near(found: Any, expected: Any, ulps: float = 2000) -> None:
    found, expected = np.asarray(found), np.asarray(expected)
    assert found.dtype == expected.dtype and found.shape == expected.shape
    bound = ulps * float(np.finfo(expected.dtype).eps) * max(1.0, float(np.abs(expected).max()))
    np.testing.assert_allclose(found, expected, rtol=0, atol=bound)


def on_gpu(call: Any, *arguments: Any) -> Any:
    """What the call gives, on two calls; none of its library tasks goes to the host."""
    decorated = kg.kernel_graph(call, device="cuda")
    first = decorated(*arguments)
    text = decorated.explain(*arguments, verbose=True)
    assert "runs on the host" not in text, text
    again = decorated(*arguments)
    for a, b in zip(first, again, strict=True):
        np.testing.assert_array_equal(a, b)
    return again


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("norm", [None, "ortho", "forward"])
def test_fourier_transforms(dtype: str, norm: str | None) -> None:
    x, z = array(dtype, 5, 12, 16), array("c8" if dtype == "f4" else "c16", 5, 12, 16)

    def call(x: Any, z: Any) -> Any:
        return (
            np.fft.fft(z, norm=norm), np.fft.ifft(z, norm=norm), np.fft.rfft(x, norm=norm), np.fft.irfft(z, norm=norm),
            np.fft.fft2(z, norm=norm), np.fft.ifftn(z, norm=norm), np.fft.rfftn(x, norm=norm),
            np.fft.irfft2(z, norm=norm), np.fft.irfft(z, 31, norm=norm), z * 1,
        )  # fmt: skip

    for found, expected in zip(on_gpu(call, x, z), call(x, z), strict=True):
        near(found, expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_solvers(dtype: str) -> None:
    n = 150
    a = array(dtype, n, n) + (2 * n**0.5 * np.eye(n)).astype(dtype)
    b, v = array(dtype, n, 7), array(dtype, n)

    def call(a: Any, b: Any, v: Any) -> Any:
        return np.linalg.solve(a, b), np.linalg.solve(a, v), np.linalg.inv(a), a * 1

    for found, expected in zip(on_gpu(call, a, b, v), call(a, b, v), strict=True):
        near(found, expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_decompositions(dtype: str) -> None:
    n = 130
    m = array(dtype, n, n)
    h = (m @ m.conj().T / n + np.eye(n)).astype(dtype)
    (factor,) = on_gpu(lambda h: (np.linalg.cholesky(h),), h)
    near(factor, np.linalg.cholesky(h))
    for uplo in "LU":
        w, v = map(np.asarray, on_gpu(lambda h, u=uplo: tuple(np.linalg.eigh(h, u)), h))
        near(w, np.linalg.eigvalsh(h))
        near(h @ v, (v * w).astype(dtype), 5000)
        near(v.conj().T @ v, np.eye(n, dtype=dtype))
    near(on_gpu(lambda h: (np.linalg.eigvalsh(h),), h)[0], np.linalg.eigvalsh(h))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(100, 180), (180, 100), (90, 90)])
@pytest.mark.parametrize("full", [False, True])
def test_singular_values(dtype: str, shape: tuple[int, int], full: bool) -> None:
    a = array(dtype, *shape)
    k = min(shape)
    u, s, vh = map(np.asarray, on_gpu(lambda a: tuple(np.linalg.svd(a, full_matrices=full)), a))
    near(s, np.linalg.svd(a, compute_uv=False))
    near((u[:, :k] * s) @ vh[:k], a, 5000)
    near(u.conj().T @ u, np.eye(u.shape[1], dtype=dtype))
    near(vh @ vh.conj().T, np.eye(vh.shape[0], dtype=dtype))
    near(on_gpu(lambda a: (np.linalg.svdvals(a),), a)[0], s)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("mode", "shape"), [("reduced", (90, 70)), ("complete", (90, 70)), ("reduced", (70, 90)), ("complete", (64, 99))]
)
def test_orthogonal_factors(dtype: str, mode: Any, shape: tuple[int, int]) -> None:
    a = array(dtype, *shape)
    q, r = map(np.asarray, on_gpu(lambda a: tuple(np.linalg.qr(a, mode)), a))
    assert [x.shape for x in (q, r)] == [x.shape for x in np.linalg.qr(a, mode)]
    near(q @ r, a)
    near(q.conj().T @ q, np.eye(q.shape[1], dtype=dtype))
    np.testing.assert_array_equal(r, np.triu(r))
    near(on_gpu(lambda a: (np.linalg.qr(a, "r"),), a)[0], r[: min(shape)])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(3, 100, 100), (2, 150, 7, 7)])
def test_stacks_of_matrices(dtype: str, shape: tuple[int, ...]) -> None:
    n = shape[-1]
    a = array(dtype, *shape) + (2 * n**0.5 * np.eye(n)).astype(dtype)
    h = (a @ a.swapaxes(-1, -2).conj() / n).astype(dtype)
    v, b = array(dtype, *shape[:-1], 1), array(dtype, *shape[:-1], 5)

    def call(a: Any, h: Any, v: Any) -> Any:
        return np.linalg.solve(a, v), np.linalg.inv(a), np.linalg.cholesky(h), *np.linalg.slogdet(a)

    for found, expected in zip(on_gpu(call, a, h, v), call(a, h, v), strict=True):
        near(found, expected)
    near(on_gpu(lambda a: (np.linalg.det(a / n**0.5),), a)[0] / np.linalg.det(a / n**0.5), np.ones(shape[:-2], dtype))
    if n >= 64:
        near(on_gpu(lambda a, b: (np.linalg.solve(a, b),), a, b)[0], np.linalg.solve(a, b))
        near(on_gpu(lambda h: (np.linalg.eigvalsh(h),), h)[0], np.linalg.eigvalsh(h))
        q, r = map(np.asarray, on_gpu(lambda a: tuple(np.linalg.qr(a)), a))
        near(q @ r, a)
    assert (np.asarray(on_gpu(lambda a: (np.linalg.slogdet(a)[1],), a * 0)[0]) == -np.inf).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(40, 5, 5), (3, 70, 32, 32), (700, 2, 2), (50, 3, 20), (90, 30, 4)])
def test_vectors_of_many_small_matrices(dtype: str, shape: tuple[int, ...]) -> None:
    a = array(dtype, *shape)
    k = min(shape[-2:])
    for full in (False, True):
        u, s, vh = map(np.asarray, on_gpu(lambda a, f=full: tuple(np.linalg.svd(a, f)), a))
        assert [x.shape for x in (u, s, vh)] == [x.shape for x in np.linalg.svd(a, full)]
        near(s, np.linalg.svd(a, compute_uv=False), 500)
        near((u[..., :k] * s[..., None, :]) @ vh[..., :k, :], a, 500)
        near(
            u.conj().swapaxes(-1, -2) @ u,
            np.broadcast_to(np.eye(u.shape[-1], dtype=dtype), u.shape[:-2] + (u.shape[-1],) * 2),
            500,
        )
        near(
            vh @ vh.conj().swapaxes(-1, -2),
            np.broadcast_to(np.eye(vh.shape[-2], dtype=dtype), vh.shape[:-2] + (vh.shape[-2],) * 2),
            500,
        )
    near(on_gpu(lambda a: (np.linalg.svdvals(a),), a)[0], s, 500)
    near(on_gpu(lambda a: (np.linalg.svd(a)[1],), a)[0], s, 500)
    if shape[-1] == shape[-2]:
        eigenvectors((a + a.conj().swapaxes(-1, -2)).astype(dtype))


@pytest.mark.parametrize("dtype", DTYPES)
def test_eigenvectors_of_many_matrices(dtype: str) -> None:
    """In more than one part, for the workspace."""
    a = array(dtype, 1100, 50, 50)
    eigenvectors((a + a.conj().swapaxes(-1, -2)).astype(dtype))


def eigenvectors(h: Any) -> None:
    n = h.shape[-1]
    for uplo in "LU":
        kept = np.tril(h) if uplo == "L" else np.triu(h)  # the other triangle is not read
        w, v = map(np.asarray, on_gpu(lambda h, u=uplo: tuple(np.linalg.eigh(h, u)), kept))
        near(w, np.linalg.eigvalsh(h), 500)
        near(h @ v, (v * w[..., None, :]).astype(h.dtype), 500)
        near(v.conj().swapaxes(-1, -2) @ v, np.broadcast_to(np.eye(n, dtype=h.dtype), h.shape), 500)
    near(on_gpu(lambda h: (np.linalg.eigvalsh(h),), h)[0], np.linalg.eigvalsh(h), 500)
    near(on_gpu(lambda h: (np.linalg.eigh(h)[0],), h)[0], np.linalg.eigvalsh(h), 500)


def test_singular_matrices_raise() -> None:
    decorated = kg.kernel_graph(lambda a: np.linalg.solve(a, a[0]), device="cuda")
    with pytest.raises(np.linalg.LinAlgError, match="Singular"):
        decorated(np.zeros((100, 100))).wait()
    good = np.eye(100) * 2
    near(decorated(good), np.linalg.solve(good, good[0]))
    many = np.stack([np.eye(5) * 2] * 200)
    many[77, 2] = 0
    with pytest.raises(np.linalg.LinAlgError, match="Singular"):
        kg.kernel_graph(lambda a: np.linalg.inv(a), device="cuda")(many).wait()
    with pytest.raises(np.linalg.LinAlgError, match="positive definite"):
        kg.kernel_graph(lambda a: np.linalg.cholesky(a), device="cuda")(many).wait()
    with pytest.raises(np.linalg.LinAlgError, match="positive definite"):
        kg.kernel_graph(lambda a: np.linalg.cholesky(a), device="cuda")(-good).wait()


def test_operations_outside_of_a_trace() -> None:
    x, y = array("f4", 300, 40), array("f4", 300, 40)
    a, b = kg.asarray(x, device="cuda"), kg.asarray(y, device="cuda")
    pairs = [
        (a + b, x + y), (np.exp(a) * 2, np.exp(x) * 2), (a.sum(axis=0), x.sum(axis=0)),
        (kg.sqrt(kg.abs(a)), np.sqrt(np.abs(x))),
        (a @ b.T, x @ y.T), (a[10:20, ::2], x[10:20, ::2]), (kg.where(a > 0, a, b), np.where(x > 0, x, y)),
        (kg.sort(a, axis=0), np.sort(x, axis=0)), (-a.T, -x.T), (a > b, x > y), (kg.fft.rfft(a), np.fft.rfft(x)),
    ]  # fmt: skip
    for found, expected in pairs:
        assert isinstance(found, kg.Array) and found.device.startswith("cuda")
        if expected.dtype.kind == "b":
            np.testing.assert_array_equal(found, expected)
        else:
            near(found, expected)


def test_what_has_no_kernel_is_done_on_the_host() -> None:
    x = array("f4", 40, 5)
    a = kg.asarray(x, device="cuda")
    pairs = [
        (kg.unique_values(a), np.unique(x)), (kg.nonzero(a > 0)[0], np.nonzero(x > 0)[0]), (a[a > 0], x[x > 0]),
        (kg.clip(a, 0, None), np.clip(x, 0, None)), (kg.sum(a, axis=1, keepdims=True), x.sum(1, keepdims=True)),
    ]  # fmt: skip
    for found, expected in pairs:
        assert isinstance(found, kg.Array) and found.device.startswith("cuda")
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)
    with pytest.raises(kg.ShapeError):
        a + kg.asarray(np.ones(7), device="cuda")
