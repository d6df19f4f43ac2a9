"""`kg.DataParallel`: a training step whose batch is shared by the devices of a mesh, written for the user."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...runtime.program.multi_device import MultiDevicePlan
from ..core.errors import ArgumentsError, OptionError
from ..gradients.gradients import value_and_grad
from .collectives import all_reduce
from .mesh import Mesh, replicate, shard
from .mesh_calls import MeshFunction


class DataParallel:
    """One plan trains on a batch split among devices. Each has a copy of the parameters.

    Each device computes the loss and gradients of its part; their means over the devices update the parameters.

    loss(parameters, *batch) -> a number, the mean over its batch. update(parameters, gradients) -> the new parameters.
    Both are NumPy functions, of any structure of arrays. Gradients that are ready are exchanged while others are still
    computed. The result is that of one device with the whole batch, but for the order of sums.

    >>> mesh = kg.Mesh(["cpu:0", "cpu:1"])
    >>> loss = lambda w, x, y: ((x @ w - y) ** 2).mean()
    >>> train = kg.DataParallel(loss, mesh, update=lambda w, g: w - 0.1 * g)
    >>> x, w = np.eye(2), np.zeros(2)
    >>> for step in range(100):
    ...     w, value = train(w, x, np.ones(2))
    >>> np.asarray(w).round(3).tolist()
    [1.0, 1.0]
    """

    def __init__(self, loss: Callable[..., Any], mesh: Mesh, update: Callable[[Any, Any], Any], **options: Any) -> None:
        """options: of `kernel_graph`. Raises OptionError, ArgumentsError."""
        for name, function in (("loss", loss), ("update", update)):
            if not callable(function):
                raise OptionError(f"{name}={function!r} is no function")
        if not isinstance(mesh, Mesh):
            raise OptionError(f"mesh={mesh!r}: write kg.Mesh(('cuda:0', 'cuda:1'))")
        gradients = value_and_grad(loss)

        def step(parameters: Any, batch: tuple[Any, ...]) -> Any:
            value, gradient = gradients(parameters, *batch)
            return update(parameters, all_reduce(gradient, "mean")), all_reduce(value, "mean")

        step.__name__ = step.__qualname__ = getattr(loss, "__name__", "step")
        self.mesh = mesh
        self._step = MeshFunction(step, mesh, (None, 0), (None, None), **options)

    def __call__(self, parameters: Any, *batch: Any) -> tuple[Any, Any]:
        """The new parameters, whole on each device, and the mean loss before the update.

        batch: arrays whose first axes the devices share. Raises ShapeError where they cannot do so equally."""
        if not batch:
            raise ArgumentsError("a step takes the parameters and a batch, as in train(parameters, x, y)")
        new, value = self._step(parameters, batch)
        return new, value

    def plan(self, parameters: Any, *batch: Any) -> MultiDevicePlan:
        """The plan of a step."""
        return self._step.plan(parameters, batch)

    def replicate(self, parameters: Any) -> Any:
        """The parameters, whole on each device."""
        return replicate(parameters, self.mesh)

    def shard(self, batch: Any) -> Any:
        """A batch, a part of it on each device."""
        return shard(batch, self.mesh)
