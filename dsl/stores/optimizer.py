"""`kg.optimizer`: what a store makes of a gradient, with MXNet's names and meanings.

An optimizer is an updater of `KVStore.set_optimizer`: its `update` is compiled once for all keys of one shape and
dtype, and what changes from call to call (the learning rate, say) comes to it as numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..core.errors import OptionError
from .stored_values import Key

Scheduler = Callable[[int], float]


class Optimizer:
    """Assigns to stored arrays what follows from their gradients. Derive from it for one of your own.

    Parameters
    ----------
    rescale_grad : float, default 1.0
        A factor of each gradient.
    wd : float, default 0.0
        Weight decay.
    clip_gradient : float, optional
        Elements of the rescaled gradient lie between it and its negative.
    learning_rate : float, optional
        None for that of the scheduler, or 0.01.
    lr_scheduler : Scheduler, optional
        The learning rate as a function of the number of updates, its `base_lr` set to `learning_rate`.
    begin_num_update : int, default 0
        Updates that were before.
    multi_precision : bool, default False
        Values of float16 and bfloat16 are updated as float32 arrays, which the store keeps.

    Examples
    --------
    >>> isinstance(kg.optimizer.SGD(), kg.optimizer.Optimizer)
    True
    """

    states = 0  # arrays of the value's shape that `update` takes, zeros at first

    def __init__(
        self,
        rescale_grad: float = 1.0,
        wd: float = 0.0,
        clip_gradient: float | None = None,
        learning_rate: float | None = None,
        lr_scheduler: Scheduler | None = None,
        begin_num_update: int = 0,
        multi_precision: bool = False,
    ) -> None:
        """Raises OptionError."""
        self.rescale_grad, self.wd = _checked_number("rescale_grad", rescale_grad), _checked_number("wd", wd)
        self.clip_gradient = None if clip_gradient is None else _checked_number("clip_gradient", clip_gradient)
        self.lr = 0.01 if learning_rate is None else _checked_number("learning_rate", learning_rate)
        if not (lr_scheduler is None or callable(lr_scheduler)):
            raise OptionError(f"lr_scheduler={lr_scheduler!r}: write a function of the number of updates")
        if learning_rate is not None and hasattr(lr_scheduler, "base_lr"):
            lr_scheduler.base_lr = self.lr  # type: ignore[union-attr]
        self.lr_scheduler, self.multi_precision = lr_scheduler, bool(multi_precision)
        self.begin_num_update = self.num_update = begin_num_update
        self.lr_mult: dict[Key, float] = {}
        self.wd_mult: dict[Key, float] = {}

    @property
    def learning_rate(self) -> float:
        """The learning rate of the latest update."""
        return self.lr if self.lr_scheduler is None else float(self.lr_scheduler(self.num_update))

    @property
    def settings(self) -> dict[str, Any]:
        """All attributes that decide on an update; the number of updates so far is not among them."""
        return {name: value for name, value in vars(self).items() if name != "num_update"}

    def set_learning_rate(self, lr: float) -> None:
        """Change the learning rate from the next push on.

        Raises
        ------
        OptionError
            Where a scheduler decides.
        """
        if self.lr_scheduler is not None:
            raise OptionError("the learning rate is what lr_scheduler gives; change that, or leave it out")
        self.lr = _checked_number("lr", lr)

    def set_lr_mult(self, args_lr_mult: Mapping[Key, float]) -> None:
        """Factors of the learning rate by key; 1 for others."""
        self.lr_mult = {key: _checked_number("lr_mult", value) for key, value in args_lr_mult.items()}

    def set_wd_mult(self, args_wd_mult: Mapping[Key, float]) -> None:
        """Factors of the weight decay by key; 1 for others."""
        self.wd_mult = {key: _checked_number("wd_mult", value) for key, value in args_wd_mult.items()}

    def numbers_of_update(self, key: Key, count: int) -> tuple[float, ...]:
        """What `update` takes after the states: the learning rate, the weight decay and the factor of the gradient.

        Parameters
        ----------
        count : int
            Which update of the key it is, from 1.
        """
        self.num_update = max(self.num_update, self.begin_num_update + count)
        rate = self.learning_rate * self.lr_mult.get(key, 1.0)
        return rate, self.wd * self.wd_mult.get(key, 1.0), self.rescale_grad

    def gradient(self, pushed: Any, stored: Any, wd: float, rescale: float) -> Any:
        """What was pushed, rescaled and clipped, and the weight decay."""
        found = pushed * rescale
        if self.clip_gradient is not None:
            found = np.clip(found, -self.clip_gradient, self.clip_gradient)
        return found + wd * stored

    def update(self, key: Key, pushed: Any, stored: Any, *rest: Any) -> None:
        """Assign to `stored` and to the states; as an updater does, with the numbers of the update at the end."""
        raise NotImplementedError(f"{type(self).__name__} has no update(key, pushed, stored, *states, *numbers)")


class SGD(Optimizer):
    """Stochastic gradient descent, with momentum and weight decay.

    Parameters
    ----------
    learning_rate : float or None, default 0.1
        What a step is multiplied by.
    momentum : float, default 0.0
        How much of the last step stays.
    **shared
        Arguments of `kg.optimizer.Optimizer`.

    Examples
    --------
    >>> store = kg.KVStore("local")
    >>> store.set_optimizer(kg.optimizer.SGD(learning_rate=0.5, momentum=0.9))
    >>> store.init("w", np.ones(2))
    >>> store.push("w", np.ones(2))
    >>> store.pull("w").tolist()
    [0.5, 0.5]
    """

    def __init__(self, learning_rate: float | None = 0.1, momentum: float = 0.0, **shared: Any) -> None:
        """shared: of any `Optimizer`. Raises OptionError."""
        super().__init__(learning_rate=learning_rate, **shared)
        self.momentum = _checked_number("momentum", momentum)
        self.states = 1 if self.momentum else 0

    def update(self, key: Key, pushed: Any, stored: Any, *rest: Any) -> None:
        """momentum = momentum * m - rate * gradient; what is stored moves by it."""
        *moved, rate, wd, rescale = rest
        step = -rate * self.gradient(pushed, stored, wd, rescale)
        for momentum in moved:
            momentum *= self.momentum
            momentum += step
            step = momentum
        stored += step


class Adam(Optimizer):
    """Steps by running means of the gradient and its square (Kingma and Ba, 2015).

    Parameters
    ----------
    learning_rate : float or None, default 0.001
        What a step is multiplied by.
    beta1 : float, default 0.9
        How much of the running mean of gradients stays.
    beta2 : float, default 0.999
        The same of squares.
    epsilon : float, default 1e-08
        What is added to the root.
    **shared
        Arguments of `kg.optimizer.Optimizer`.

    Examples
    --------
    >>> kg.optimizer.Adam(learning_rate=0.01).learning_rate
    0.01
    """

    states = 2

    def __init__(
        self,
        learning_rate: float | None = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        **shared: Any,
    ) -> None:
        """shared: of any `Optimizer`. Raises OptionError."""
        super().__init__(learning_rate=learning_rate, **shared)
        self.beta1, self.beta2 = _checked_number("beta1", beta1), _checked_number("beta2", beta2)
        self.epsilon = _checked_number("epsilon", epsilon)

    def numbers_of_update(self, key: Key, count: int) -> tuple[float, ...]:
        """The numbers of any optimizer, the learning rate corrected for means that began as zeros."""
        rate, *others = super().numbers_of_update(key, count)
        t = self.begin_num_update + count
        return rate * math.sqrt(1 - self.beta2**t) / (1 - self.beta1**t), *others

    def update(self, key: Key, pushed: Any, stored: Any, *rest: Any) -> None:
        """mean and square are running means; what is stored moves by -rate * mean / (sqrt(square) + epsilon)."""
        mean, square, rate, wd, rescale = rest
        gradient = self.gradient(pushed, stored, wd, rescale)
        mean *= self.beta1
        mean += (1 - self.beta1) * gradient
        square *= self.beta2
        square += (1 - self.beta2) * gradient * gradient
        stored -= rate * mean / (np.sqrt(square) + self.epsilon)


class AdaGrad(Optimizer):
    """Steps divided by the root of the sum of all squares (Duchi et al., 2011).

    Parameters
    ----------
    learning_rate : float or None, default 0.01
        What a step is multiplied by.
    epsilon : float, default 1e-06
        What is added to the root.
    **shared
        Arguments of `kg.optimizer.Optimizer`.

    Examples
    --------
    >>> kg.optimizer.AdaGrad(learning_rate=0.01).learning_rate
    0.01
    """

    states = 1

    def __init__(self, learning_rate: float | None = 0.01, epsilon: float = 1e-6, **shared: Any) -> None:
        """shared: of any `Optimizer`. Raises OptionError."""
        super().__init__(learning_rate=learning_rate, **shared)
        self.epsilon = _checked_number("epsilon", epsilon)

    def update(self, key: Key, pushed: Any, stored: Any, *rest: Any) -> None:
        """history is the sum of squares; what is stored moves by -rate * gradient / (sqrt(history) + epsilon)."""
        history, rate, wd, rescale = rest
        gradient = self.gradient(pushed, stored, wd, rescale)
        history += gradient * gradient
        stored -= rate * (gradient / (np.sqrt(history) + self.epsilon))


OPTIMIZERS: dict[str, type[Optimizer]] = {"sgd": SGD, "adam": Adam, "adagrad": AdaGrad}


def create(name: str, **shared: Any) -> Optimizer:
    """An optimizer by its name: `sgd`, `adam` or `adagrad`, in any case.

    Parameters
    ----------
    name : str
        What people read it by.
    **shared
        Arguments of `kg.optimizer.Optimizer`.

    Returns
    -------
    Optimizer

    Raises
    ------
    OptionError

    Examples
    --------
    >>> kg.optimizer.create("sgd", learning_rate=0.1).learning_rate
    0.1
    """
    found = OPTIMIZERS.get(name.lower()) if isinstance(name, str) else None
    if found is None:
        raise OptionError(f"there is no optimizer {name!r}; write one of {', '.join(map(repr, OPTIMIZERS))}")
    return found(**shared)


def _checked_number(name: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise OptionError(f"{name}={value!r}: write a number") from None


__all__ = ["SGD", "AdaGrad", "Adam", "Optimizer", "create"]
