"""Mistakes that people make in their first hour, each as a small program, with what has to be said of it.

python -m tests.mistakes    # prints what each is told
"""

from __future__ import annotations

import linecache
import traceback
import warnings
from typing import NamedTuple

import numpy as np

import kernelgraph as kg


class Mistake(NamedTuple):
    """A program, which ends in an error or a warning, and the words of cause and remedy that this must hold."""

    program: str
    words: tuple[str, ...]
    told_line: bool = True  # whether the line of the program is named


def body(text: str, *words: str, argument: str = "np.arange(1.0, 5.0)", told_line: bool = True) -> Mistake:
    """A mistake in a decorated function of x."""
    return Mistake(
        f"@kg.kernel_graph(device='cpu')\ndef f(x):\n    {text}\n\n\nnp.asarray(f({argument}))\n", words, told_line
    )


def lines(text: str, *words: str, told_line: bool = True) -> Mistake:
    return Mistake(text + "\n", words, told_line)


F = "f = kg.kernel_graph(lambda x: x + 1, device='cpu')\ny = f(np.ones(3))\n"

MISTAKES = {
    "shapes of a product": body("return x @ np.ones((3, 3))", "matmul", "4", "3"),
    "a misspelt method": body("return x.maen()", "maen", "did you mean mean?"),
    "a misspelt attribute": body("return x.shpae", "shpae", "did you mean shape?"),
    "a misspelt function": body("return np.exppp(x)", "exppp", told_line=False),
    "PyTorch's detach": body("return x.detach()", "detach", "kg.stop_gradient"),
    "PyTorch's unsqueeze": body("return x.unsqueeze(0)", "unsqueeze", "np.expand_dims"),
    "JAX's at": body("return x.at[0].set(1)", "'at'", "y[i] = v"),
    "Tensor's float": body("return x.float()", "float", "astype"),
    "CuPy's get": lines(F + "y.get()", "'get'", "np.asarray(y)", told_line=False),
    "JAX's block_until_ready": lines(F + "y.block_until_ready()", "y.wait()", told_line=False),
    "PyTorch's cpu": lines(F + "y.cpu()", "np.asarray(y)", told_line=False),
    "PyTorch's to": lines(F + "y.to('cuda')", "kg.to_device", told_line=False),
    "a misspelt method of a result": lines(F + "y.resahpe(3, 1)", "did you mean reshape?", told_line=False),
    "jax's static_argnums": lines("kg.kernel_graph(static_argnums=0)", "static_argnames"),
    "numba's nopython": lines("kg.kernel_graph(nopython=True)", "untraceable='refuse'"),
    "numba's cache": lines("kg.kernel_graph(cache=True)", "always kept"),
    "torch's fullgraph": lines("kg.kernel_graph(fullgraph=True)", "untraceable='refuse'"),
    "a misspelt option": lines("kg.kernel_graph(stream=2)", "did you mean streams?"),
    "jax.jit": lines("kg.jit(np.exp)", "kg.kernel_graph", told_line=False),
    "numba.njit": lines("kg.njit(np.exp)", "kg.kernel_graph", told_line=False),
    "jax.numpy": lines("kg.jnp.exp(1)", "import numpy as np", told_line=False),
    "a device that is not there": lines("kg.kernel_graph(np.sin, device='gpu')(np.ones(3))", "gpu", "cuda"),
    "a shape that values decide": body("return np.unique(x)", "shape of its result depends on data"),
    "a clock": body("import time\n    return x + time.perf_counter()", "perf_counter", "pass what is needed"),
    "NumPy's random numbers": body("return x + np.random.rand()", "random"),
    "a file": body("open('/dev/null').close()\n    return x", "open would be called while tracing"),
    "a format": body("print(f'{x[0]:.2f}')\n    return x", "kg.debug.print"),
    "an integer that does not fit": body("return x + 1000", "1000 does not fit int8", argument="np.ones(3, np.int8)"),
    "objects": body("return x + x", "dtype object", "np.asarray(x, dtype=np.float64)", argument="np.array([1, None])"),
    "a matrix": body("return x * x", "matrix", argument="np.matrix([[1.0]])"),
    "a sparse argument": body("return x", "x.toarray()", argument="__import__('scipy.sparse').sparse.eye(3)"),
    "a function of SciPy's without a kernel": body(
        "import scipy.special\n    return scipy.special.jv(1, x)",
        "jv cannot be traced",
        "outside of the traced function",
    ),
    "an error on a value": body("if x.sum() > 0:\n        raise ValueError('negative')\n    return x", "negative"),
    "an assertion on a value": body("assert x.sum() < 0, 'too large'\n    return x", "too large"),
    "a singular matrix": body("return np.linalg.inv(x)", "Singular matrix", argument="np.zeros((2, 2))"),
    "an index out of range": body("return x[9]", "index 9 is out of bounds"),
    "too many arguments": lines(F + "f(1, 2, 3)", "argument"),
    "more memory than there is": body("return np.zeros((1 << 21, 1 << 21)) + x[0]", "32 TiB", "parts of its arguments"),
    "a DataFrame's method": body(
        "return x.rolling(2).mean()", "labels", "x.to_numpy()", argument="__import__('pandas').Series([1.0, 2.0])"
    ),
    "a tensor's function": body("import torch\n    return torch.relu(x)", "Tensor", told_line=True),
}
NEEDS = {
    "a sparse argument": "scipy",
    "a function of SciPy's without a kernel": "scipy",
    "a DataFrame's method": "pandas",
    "a tensor's function": "torch",
}


def outcome(mistake: Mistake) -> str:
    """What people read: the warnings, then the error with its notes, or nothing."""
    linecache.cache["mistake.py"] = (len(mistake.program), None, mistake.program.splitlines(True), "mistake.py")
    code = compile(mistake.program, "mistake.py", "exec")
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        error = None
        try:
            exec(code, {"np": np, "kg": kg, "__name__": "mistake"})
        except Exception as raised:
            error = raised
    said = [str(w.message) for w in given if issubclass(w.category, kg.FallbackWarning)]
    if error is not None:
        said.append("".join(traceback.format_exception_only(error)).strip())
    return "\n".join(said)


if __name__ == "__main__":
    for name, mistake in MISTAKES.items():
        print(f"{name}: {outcome(mistake)}")
