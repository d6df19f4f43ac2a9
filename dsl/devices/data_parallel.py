"""`kg.DataParallel`: a training step whose batch is shared by the devices of a mesh, written for the user."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...runtime.program.plan import Plan
from ..array.array import asarray
from ..core.errors import ArgumentsError, OptionError, ShapeError
from ..core.pytree import flatten, unflatten
from ..gradients.gradients import value_and_grad
from .collectives import all_reduce
from .mesh import Mesh, replicate, shard
from .mesh_calls import MeshFunction


class DataParallel:
    """A training step, or a function of a batch, that a mesh's devices share.

    Each device has a copy of the parameters and computes the loss and gradients of its rows; their means over all rows
    update the parameters. Gradients that are ready are exchanged while others are still computed. The result is that of
    one device with the whole batch, but for the order of sums. The last rows of a
    batch, where they are fewer than the devices, are computed by each of them.

    loss(parameters, *batch) -> a number, the mean over its batch. update(parameters, gradients) -> the new parameters.
    Both are NumPy functions, of any structure of arrays. Without update: function(*batch, **batch) -> arrays of as many
    rows, each of which depends on that row of the batch alone.

    Parameters
    ----------
    loss : callable
        A NumPy function that gives a number.
    mesh : Mesh
        A `kg.Mesh`.
    update : callable, optional
        A function of the parameters and their gradients, which gives the new parameters.
    **options
        Those of `kg.kernel_graph`.

    Examples
    --------
    >>> mesh = kg.Mesh(["cpu:0", "cpu:1"])
    >>> loss = lambda w, x, y: ((x @ w - y) ** 2).mean()
    >>> train = kg.DataParallel(loss, mesh, update=lambda w, g: w - 0.1 * g)
    >>> x, w = np.eye(2), np.zeros(2)
    >>> for step in range(100):
    ...     w, value = train(w, x, np.ones(2))
    >>> np.asarray(w).round(3).tolist()
    [1.0, 1.0]
    >>> np.asarray(kg.DataParallel(np.tanh, mesh)(np.zeros((3, 1)))).tolist()
    [[0.0], [0.0], [0.0]]
    """

    def __init__(
        self, loss: Callable[..., Any], mesh: Mesh, update: Callable[[Any, Any], Any] | None = None, **options: Any
    ) -> None:
        """options: of `kernel_graph`. Raises OptionError, ArgumentsError."""
        for name, function in (("loss", loss), ("update", update)):
            if not callable(function) and (name == "loss" or update is not None):
                raise OptionError(f"{name}={function!r} is no function")
        if not isinstance(mesh, Mesh):
            raise OptionError(f"mesh={mesh!r}: write kg.Mesh(('cuda:0', 'cuda:1'))")
        self.mesh = mesh
        if update is None:
            self._step = MeshFunction(_function_of_batch(loss), mesh, **options)
            self._trains = False
            return
        step = _training_step(loss, update, len(mesh))
        self._step = MeshFunction(step, mesh, (None, 0, None), (None, None), **options)
        self._trains = True

    def __call__(self, *given: Any, **named: Any) -> Any:
        """Train: the new parameters, whole on each device, and the mean loss before the update. Else the results.

        given, named: the parameters, of a training step, and the batch: arrays whose first axes the devices share.
        Raises ArgumentsError, ShapeError."""
        if len(given) + len(named) * (not self._trains) < 1 + self._trains or (named and self._trains):
            raise ArgumentsError("a step takes the parameters and a batch, as in train(parameters, x, y)")
        if self._trains:
            new, value = self._step(*self._arguments_of_step(*given))
            return new, value
        batch = given, named
        rows = self._rows_to_cut(batch)
        if rows is None:
            return self._step(batch)
        missing = -rows % len(self.mesh)
        result = self._step(_mapped_rows(batch, lambda x: np.concatenate([x, np.repeat(x[-1:], missing, 0)])))
        return _mapped_rows(result, lambda x: asarray(_without_last(x, rows, missing), device=self.mesh.names[0]))

    def _arguments_of_step(self, parameters: Any, *batch: Any) -> tuple[Any, ...]:
        """The parameters, the rows that the devices share equally, and those that are left, if there are any."""
        rows = self._rows_to_cut(batch)
        if rows is None:
            return parameters, batch, ()
        shared = rows // len(self.mesh) * len(self.mesh)
        left = _mapped_rows(batch, lambda x: x[shared:])
        return parameters, _mapped_rows(batch, lambda x: x[:shared]) if shared else (), left

    def _rows_to_cut(self, batch: tuple[Any, ...]) -> int | None:
        """How many rows a batch has, where the devices cannot share them equally. Raises ShapeError."""
        leaves: list[Any] = []
        flatten(batch, leaves)
        rows: set[int] = {np.shape(x)[0] for x in leaves if np.ndim(x) > 0}
        if len(rows) > 1:  # each device's parts might broadcast where the whole would not
            raise ShapeError(
                f"the arrays of a batch have as many rows each, not {' and '.join(map(str, sorted(rows)))}"
            )
        return next((count for count in rows if count % len(self.mesh)), None)

    def plan(self, *given: Any) -> Plan:
        """The plan of a step."""
        return self._step.plan(*(self._arguments_of_step(*given) if self._trains else ((given, {}),)))

    def replicate(self, parameters: Any) -> Any:
        """The parameters, whole on each device."""
        return replicate(parameters, self.mesh)

    def shard(self, batch: Any) -> Any:
        """A batch, a part of it on each device."""
        return shard(batch, self.mesh)


def _function_of_batch(function: Callable[..., Any]) -> Callable[..., Any]:
    def call_with_batch(batch: tuple[tuple[Any, ...], dict[str, Any]]) -> Any:
        return function(*batch[0], **batch[1])

    call_with_batch.__name__ = call_with_batch.__qualname__ = getattr(function, "__name__", "function")
    return call_with_batch


def _training_step(loss: Callable[..., Any], update: Callable[[Any, Any], Any], devices: int) -> Callable[..., Any]:
    gradients = value_and_grad(loss)

    def step(parameters: Any, shared: tuple[Any, ...], left: tuple[Any, ...]) -> Any:
        """shared: a device's part of the rows that all share. left: rows that each computes."""
        rows = [devices * _count_rows(shared), _count_rows(left)] if left else [1, 0]
        means = []
        if shared:
            value, gradient = gradients(parameters, *shared)
            means.append((all_reduce(gradient, "mean"), all_reduce(value, "mean")))
        if left:
            means.append(gradients(parameters, *left)[::-1])
        gradient, value = means[0] if len(means) == 1 else _weighted_mean(means, rows[0] / sum(rows))
        return update(parameters, gradient), value

    step.__name__ = step.__qualname__ = getattr(loss, "__name__", "step")
    return step


def _weighted_mean(trees: Sequence[Any], weight: float) -> Any:
    """Of two structures of arrays, the first of which has this weight."""
    leaves: tuple[list[Any], list[Any]] = [], []
    tree, _ = (flatten(one, into) for one, into in zip(trees, leaves, strict=True))
    return unflatten(tree, [weight * a + (1 - weight) * b for a, b in zip(*leaves, strict=True)])


def _count_rows(batch: tuple[Any, ...]) -> int:
    leaves: list[Any] = []
    flatten(batch, leaves)
    return next((int(np.shape(x)[0]) for x in leaves if np.ndim(x) > 0), 0)


def _without_last(result: Any, rows: int, added: int) -> Any:
    if len(result) != rows + added:
        raise ShapeError(f"a result has as many rows as its batch; from {rows + added} rows came {len(result)}")
    return np.asarray(result)[:rows]


def _mapped_rows(batch: Any, change: Callable[[Any], Any]) -> Any:
    """The same structure, with other rows in its arrays."""
    leaves: list[Any] = []
    tree = flatten(batch, leaves)
    return unflatten(tree, [change(x) if np.ndim(x) > 0 else x for x in leaves])
