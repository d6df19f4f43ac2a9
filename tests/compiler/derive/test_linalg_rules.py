"""Linear algebra: both modes against differences, to the second order, real and complex, of batches, at odd shapes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph import UnsupportedError

from .derivatives import check_function

rng = np.random.default_rng(0)


def numbers(*shape: int, kind: str = "r") -> Any:
    x = rng.normal(size=shape)
    return x + 1j * rng.normal(size=shape) if kind == "c" else x


def well(*shape: int, kind: str = "r") -> Any:
    """Square matrices far from singular ones."""
    return numbers(*shape, kind=kind) + 3 * np.eye(shape[-1])


def definite(x: Any) -> Any:
    """A positive definite matrix of any."""
    return x @ np.conj(np.swapaxes(x, -1, -2)) + np.eye(x.shape[-1])


def symmetric(x: Any) -> Any:
    return (x + np.conj(np.swapaxes(x, -1, -2))) / 2


ONE: dict[str, Any] = {
    "inv": np.linalg.inv,
    "det": np.linalg.det,
    "slogdet": lambda x: np.linalg.slogdet(x)[1],
    "sign": lambda x: np.linalg.slogdet(x)[0] * 2.0,
    "pinv": np.linalg.pinv,
    "cholesky": lambda x: np.linalg.cholesky(definite(x)),
    "cholesky upper": lambda x: np.linalg.cholesky(definite(x), upper=True),
    "qr": lambda x: tuple(np.linalg.qr(x)),
    "r": lambda x: np.linalg.qr(x, "r"),
    "q": lambda x: np.linalg.qr(x, "complete")[0],
    "eigvalsh": lambda x: np.linalg.eigvalsh(symmetric(x)),
    "svdvals": np.linalg.svdvals,
    "svd, values": lambda x: np.linalg.svd(x)[1],
    "svd, compute_uv=False": lambda x: np.linalg.svd(x, compute_uv=False),
    "cond": np.linalg.cond,
    "cond -2": lambda x: np.linalg.cond(x, -2),
    "cond fro": lambda x: np.linalg.cond(x, "fro"),
    "cond nuc": lambda x: np.linalg.cond(x, "nuc"),
    "cond 1": lambda x: np.linalg.cond(x, 1),
    "cond -1": lambda x: np.linalg.cond(x, -1),
    "cond inf": lambda x: np.linalg.cond(x, np.inf),
    "norm 2": lambda x: np.linalg.norm(x, 2, (-2, -1)),
    "norm nuc": lambda x: np.linalg.norm(x, "nuc", (-2, -1)),
    "power": lambda x: np.linalg.matrix_power(x, -2),
    # of vectors what does not follow their phase
    "eigh, projections": lambda x: projections(np.linalg.eigh(symmetric(x))[1]),
    "eigh U": lambda x: projections(np.linalg.eigh(symmetric(x), "U")[1]),
    "svd, projections": lambda x: projections(np.linalg.svd(x)[0]),
    "pinv hermitian": lambda x: np.linalg.pinv(symmetric(x), hermitian=True),
    "svd hermitian": lambda x: np.linalg.svd(symmetric(x), hermitian=True)[1],
}


def projections(v: Any) -> Any:
    """v_i v_i^H for each vector."""
    columns = np.swapaxes(v, -1, -2)
    return columns[..., :, None] * np.conj(columns)[..., None, :]


@pytest.mark.parametrize("kind", ["r", "c"])
@pytest.mark.parametrize("name", ONE)
def test_square_matrices(name: str, kind: str) -> None:
    check_function(ONE[name], well(3, 3, kind=kind), near=2e-5)


@pytest.mark.parametrize(
    "name", ["inv", "det", "pinv", "cholesky", "qr", "eigvalsh", "svd, values", "cond 1", "norm 2"]
)
def test_batches(name: str) -> None:
    check_function(ONE[name], well(2, 3, 3), order=1)


TALL: dict[str, Any] = {
    "pinv": np.linalg.pinv,
    "qr": lambda x: tuple(np.linalg.qr(x)),
    "r": lambda x: np.linalg.qr(x, "r"),
    "svd": lambda x: tuple(np.linalg.svd(x, full_matrices=False)),
    "svd, both": lambda x: rebuilt(*np.linalg.svd(x, full_matrices=False)),
    "svd, values": lambda x: np.linalg.svd(x)[1],
    "cond": np.linalg.cond,
}


def rebuilt(u: Any, s: Any, vh: Any) -> Any:
    return (u * np.sqrt(s)[..., None, :]) @ vh


@pytest.mark.parametrize("shape", [(4, 2), (2, 4), (2, 4, 3)])
@pytest.mark.parametrize("name", TALL)
def test_matrices_that_are_not_square(name: str, shape: tuple[int, ...]) -> None:
    check_function(TALL[name], numbers(*shape), near=2e-5, order=2 if len(shape) == 2 else 1)
    if name != "svd":
        check_function(TALL[name], numbers(*shape, kind="c"), near=2e-5, order=1)


SOLVED = [((3, 3), (3,)), ((3, 3), (3, 2)), ((2, 3, 3), (3,)), ((2, 3, 3), (3, 2)), ((3, 3), (2, 3, 1))]


@pytest.mark.parametrize("kinds", ["rr", "rc", "cr", "cc"])
@pytest.mark.parametrize(
    "a, b", [((3, 3), (3,)), ((3, 3), (3, 2)), ((2, 3, 3), (3,)), ((2, 3, 3), (3, 2)), ((3, 3), (2, 3, 1))]
)
def test_solvers(a: tuple[int, ...], b: tuple[int, ...], kinds: str) -> None:
    check_function(np.linalg.solve, well(*a, kind=kinds[0]), numbers(*b, kind=kinds[1]), near=1e-5)
    check_function(np.linalg.solve, np.array([[2, 1], [1, 3]]), numbers(2, kind=kinds[1]), order=1)


def test_arrays_as_matrices() -> None:
    check_function(lambda x: np.linalg.tensorinv(x), well(6, 6).reshape(2, 3, 3, 2))
    check_function(np.linalg.tensorsolve, well(6, 6).reshape(2, 3, 3, 2), numbers(2, 3))


@pytest.mark.parametrize("kind", ["r", "c"])
@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (3, 3)])
def test_least_squares(shape: tuple[int, int], kind: str) -> None:
    a, b = numbers(*shape, kind=kind), numbers(shape[0], kind=kind)
    check_function(lambda a, b: np.linalg.lstsq(a, b)[0], a, b, near=2e-5)
    check_function(lambda a, b: np.linalg.lstsq(a, b, rcond=1e-8)[::3], a, numbers(shape[0], 2), order=1)


def test_polynomials() -> None:
    x, y, w = np.linspace(-1, 1, 7), numbers(7), np.abs(numbers(7)) + 0.5
    check_function(lambda x, y: np.polyfit(x, y, 2), x, y, near=1e-5)
    check_function(lambda x, y, w: np.polyfit(x, y, 2, w=w), x, numbers(7, 2), w, near=1e-5)


def test_eigenvectors_keep_the_length_and_phase_that_lapack_gives_them() -> None:
    check_function(lambda x: tuple(np.linalg.eig(x)), well(3, 3, kind="c"), near=1e-4, order=1)
    check_function(np.linalg.eigvals, well(3, 3, kind="c"), near=1e-4)


TRIANGLES: dict[str, Any] = {
    "eigvalsh": np.linalg.eigvalsh,
    "eigvalsh U": lambda x: np.linalg.eigvalsh(x, "U"),
    "eigh": lambda x: projections(np.linalg.eigh(x)[1]),
    "cholesky": np.linalg.cholesky,
    "cholesky upper": lambda x: np.linalg.cholesky(x, upper=True),
    "pinv": lambda x: np.linalg.pinv(x, hermitian=True),
    "svd": lambda x: np.linalg.svd(x, hermitian=True)[1],
}


@pytest.mark.parametrize("kind", ["r", "c"])
@pytest.mark.parametrize("name", TRIANGLES)
def test_the_triangle_that_is_read_has_all_of_the_gradient(name: str, kind: str) -> None:
    x = definite(numbers(3, 3, kind=kind))
    check_function(TRIANGLES[name], x, near=2e-5)
    found = np.asarray(kg.grad(lambda a: np.abs(TRIANGLES[name](a)).sum())(x))
    assert not (np.tril(found, -1) if name in ("eigvalsh U", "cholesky upper") else np.triu(found, 1)).any()


def test_equal_eigenvalues_have_a_derivative_and_their_vectors_none() -> None:
    x = np.eye(3)
    np.testing.assert_allclose(kg.grad(lambda a: np.linalg.eigvalsh(a).sum())(x), np.eye(3), atol=1e-12)
    assert not np.isfinite(np.asarray(kg.grad(lambda a: np.linalg.eigh(a)[1][0, 1])(x))).all()


@pytest.mark.parametrize("rank", range(4, 9))
@pytest.mark.parametrize("turn", [1, 1 + 0.5j])
def test_the_gradient_of_a_determinant_is_the_matrix_of_cofactors(rank: int, turn: complex) -> None:
    """Whatever the rank, alone and in a stack; compiled, and for each row of a batch."""
    x = (numbers(8, rank) @ numbers(rank, 8)) * turn
    gradient = kg.grad(np.linalg.det, holomorphic=turn != 1)
    minors = [[np.linalg.det(np.delete(np.delete(x, i, 0), j, 1)) for j in range(8)] for i in range(8)]
    cofactors = np.array(minors) * (-1.0) ** np.add.outer(np.arange(8), np.arange(8))
    scale = 1e-10 * np.linalg.norm(x) ** 7
    np.testing.assert_allclose(gradient(x), cofactors, rtol=1e-7, atol=scale)
    np.testing.assert_allclose(kg.vmap(gradient)(np.stack([np.eye(8) * turn, x]))[1], cofactors, rtol=1e-7, atol=scale)


def test_logarithms_of_determinants_have_no_gradient_where_they_are_infinite() -> None:
    with pytest.raises(np.linalg.LinAlgError):
        np.asarray(kg.grad(lambda x: np.linalg.slogdet(x)[1])(np.ones((2, 2))))


@pytest.mark.parametrize(
    "function, text",
    [
        (lambda x: np.linalg.svd(x)[0].sum(), "full_matrices=False"),
        (lambda x: np.linalg.qr(x, "complete")[0].sum(), "mode='reduced'"),
        (lambda x: np.linalg.qr(x, "raw")[0].sum(), r"np.linalg.qr\(a\)"),
    ],
)
def test_what_is_not_unique_is_refused(function: Any, text: str) -> None:
    with pytest.raises(UnsupportedError, match=text):
        kg.grad(function)(numbers(4, 2))
