"""`kg.place`: an array on a device, within a traced function or outside of one."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...runtime.core.settings import settings
from ..array.array import Array, asarray
from ..array.devices import device_place_of_name
from ..core.errors import OptionError
from ..core.pytree import flatten, unflatten
from ..trace.dispatch import NumpyProtocols
from ..trace.operands import new_traced_result, to_traced_array
from ..trace.trace import current_trace


def place(x: Any, device: str) -> Any:
    """The same values on a device; what is there already is not copied.

    In a traced function what follows from the result is computed there, and the plan copies what other devices have.

    Parameters
    ----------
    x : array_like
        An array, or any structure of arrays.
    device : str
        A name such as 'cpu' or 'cuda:1'; None is the default device.

    Returns
    -------
    Array

    Raises
    ------
    OptionError

    Examples
    --------
    >>> kg.place(kg.ones(2), "cpu:1").device
    'cpu:1'
    """
    where = device_place_of_name(device)
    if where is None:
        raise OptionError("kg.place takes the name of a device, such as 'cuda:1'")
    leaves: list[Any] = []
    tree = flatten(x, leaves)
    return unflatten(tree, [_copied_to_place(leaf, device, where) for leaf in leaves])


def _copied_to_place(leaf: Any, device: str, where: tuple[str, int]) -> Any:
    trace = current_trace()
    if trace is not None and isinstance(leaf, (NumpyProtocols, np.ndarray, np.generic, Array)):
        return new_traced_result(trace.builder.placed(to_traced_array(leaf)._value, where))
    if settings.disable and not isinstance(leaf, Array):  # plain NumPy
        return leaf
    return asarray(leaf, device=device) if isinstance(leaf, (np.ndarray, np.generic, Array)) else leaf
