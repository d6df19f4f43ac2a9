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


def body(text: str, *words: str, argument: str = "np.arange(1.0, 5.0)") -> Mistake:
    """A mistake in a decorated function of x."""
    return Mistake(f"@kg.kernel_graph(device='cpu')\ndef f(x):\n    {text}\n\n\nnp.asarray(f({argument}))\n", words)


def lines(text: str, *words: str) -> Mistake:
    return Mistake(text + "\n", words)


F = "f = kg.kernel_graph(lambda x: x + 1, device='cpu')\ny = f(np.ones(3))\n"

MISTAKES = {
    "shapes of a product": body("return x @ np.ones((3, 3))", "matmul", "4", "3"),
    "a misspelt method": body("return x.maen()", "maen", "did you mean mean?"),
    "a misspelt attribute": body("return x.shpae", "shpae", "did you mean shape?"),
    "a misspelt function": body("return np.exppp(x)", "exppp"),
    "PyTorch's detach": body("return x.detach()", "detach", "kg.stop_gradient"),
    "PyTorch's unsqueeze": body("return x.unsqueeze(0)", "unsqueeze", "np.expand_dims"),
    "JAX's at": body("return x.at[0].set(1)", "'at'", "y[i] = v"),
    "Tensor's float": body("return x.float()", "float", "astype"),
    "CuPy's get": lines(F + "y.get()", "'get'", "np.asarray(y)"),
    "JAX's block_until_ready": lines(F + "y.block_until_ready()", "y.wait()"),
    "PyTorch's cpu": lines(F + "y.cpu()", "np.asarray(y)"),
    "PyTorch's to": lines(F + "y.to('cuda')", "kg.to_device"),
    "a misspelt method of a result": lines(F + "y.resahpe(3, 1)", "did you mean reshape?"),
    "jax's static_argnums": lines("kg.kernel_graph(static_argnums=0)", "static_argnames"),
    "numba's nopython": lines("kg.kernel_graph(nopython=True)", "untraceable='refuse'"),
    "numba's cache": lines("kg.kernel_graph(cache=True)", "always kept"),
    "torch's fullgraph": lines("kg.kernel_graph(fullgraph=True)", "untraceable='refuse'"),
    "a misspelt option": lines("kg.kernel_graph(stream=2)", "did you mean streams?"),
    "jax.jit": lines("kg.jit(np.exp)", "kg.kernel_graph"),
    "numba.njit": lines("kg.njit(np.exp)", "kg.kernel_graph"),
    "jax.numpy": lines("kg.jnp.exp(1)", "import numpy as np"),
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
    "a misspelt dtype": body("return x.astype('flaot32')", "flaot32", "did you mean float32?"),
    "another library's dtype": body("import torch\n    return x.astype(torch.float16)", "did you mean float16?"),
    "a misspelt setting": lines("kg.override(treads=2).__enter__()", "did you mean threads?"),
    "a setting's value": lines("kg.override(threads='many').__enter__()", "write a whole number"),
    "PyTorch's dim": body("return x.sum(dim=0)", "no argument dim=", "write axis="),
    "PyTorch's keepdim": body("return x.mean(keepdim=True)", "no argument keepdim=", "write keepdims="),
    "PyTorch's clamp": body("return x.clamp(0, 1)", "clamp", "np.clip(y, low, high)"),
    "a misspelt layer": lines("kg.nn.rellu(np.ones(2))", "rellu", "did you mean relu?"),
    "a misspelt distribution": lines("kg.random.unifrom(1, 2)", "did you mean uniform?"),
    "a seed for a key": lines("kg.random.uniform(0, (3,))", "is no key", "kg.random.key(seed)"),
    "a device of PyTorch's": lines("kg.kernel_graph(np.sin, device='mps')", "there is no device 'mps'", "'cuda'"),
    "a device with capitals": lines("kg.to_device(np.ones(3), 'CPU')", "there is no device 'CPU'", "'cpu'"),
    "an option's value": lines("kg.kernel_graph(streams='maximum')", "streams='maximum'", '"max"'),
    "no stream": lines("kg.kernel_graph(streams=0)", "streams=0", "1 or more"),
    "a memory mode": lines("kg.kernel_graph(memory='tiny')", "'tiny' is no memory mode", "'small'"),
    "a fallback's name": lines("kg.kernel_graph(untraceable='error')", "write 'warn', 'numpy', 'split' or 'refuse'"),
    "a static argument that is not there": lines(
        "kg.kernel_graph(lambda x: x, static_argnames='y')(np.ones(2))", "names 'y'", "write one of its parameters"
    ),
    "a static list": lines(
        "kg.kernel_graph(lambda x, k: x, static_argnames='k')(np.ones(2), [1])", "has no hash", "pass a tuple"
    ),
    "a class": lines("@kg.kernel_graph\nclass A: ...", "not the class A", "decorate its methods"),
    "a method without self": lines(
        "class K:\n    @kg.kernel_graph\n    def m(x): return x\nK().m(np.ones(3))", "too many", "called as m(x)"
    ),
    "a read-only argument": body(
        "x[0] = 2\n    return x", "is read-only", "pass x.copy()", argument="np.broadcast_to(np.ones(3), (2, 3))"
    ),
    "a broadcast array": body("y = np.broadcast_to(x, (2, 4))\n    y[0] = 1\n    return y", "read-only", "x.copy()"),
    "floats in integers": body(
        "x += 0.5\n    return x", "int64", "x.astype(np.float64)", argument="np.ones(3, np.int64)"
    ),
    "a ragged list": body("return np.array([x, x[:2]])", "(4,), (2,)", "give them one shape, or pad them"),
    "lengths in vmap": lines(
        "kg.vmap(lambda a, b: a + b)(np.ones((3, 2)), np.ones((4, 2)))", "got 3, 4", "write in_axes=None"
    ),
    "a product in vmap": lines("kg.vmap(lambda a: a @ np.ones((3, 3)))(np.ones((5, 4)))", "(4,) and (3, 3)", "reshape"),
    "a gradient of an array": lines("kg.grad(lambda x: x * 2)(np.ones(3))", "needs one number", "write .sum()"),
    "a gradient by integers": lines("kg.grad(lambda x: x.sum())(np.ones(3, int))", "has no gradient", "pass floats"),
    "a gradient's argument": lines("kg.grad(lambda x: x.sum(), argnums=3)(np.ones(3))", "argument 3", "argnums="),
    "a condition of several": body("return kg.while_loop(lambda v: v > 9, lambda v: v, x)", "one bool", ".any()"),
    "a carried shape": body("return kg.fori_loop(0, 3, lambda i, v: v[1:], x)", "(4,)", "begin with what it gives"),
    "sides of cond": body("return kg.cond(x[0] > 0, lambda: x, lambda: x[:2])", "(4,) or (2,)", "broadcast one"),
    "a format of several": lines(F + "f'{y:.2f}'", "takes one number", "np.array2string"),
    "a result as a key": lines(F + "{y: 1}", "hash", "np.asarray(x).tobytes()"),
    "a set": body("return {x.sum()}", "member of a set", "use a list"),
    "a generator": body("return (v for v in x)", "runs after the trace is over", "a list of them"),
    "a list outside": body("LIST.append(x)\n    return x", "cannot change the list LIST", "return the value instead"),
    "a collective alone": lines("kg.all_reduce(np.ones(3))", "run on a mesh", "kg.Mesh"),
    "an optimizer": lines("kg.optimizer.create('adamw')", "no optimizer 'adamw'", "'adam'"),
    "a store": lines("kg.KVStore('dist')", "'dist'", "'dist_sync'"),
    "an element deleted": body("del x[0]\n    return x", "cannot delete", "np.delete(x, i)"),
    "a tensor's function": body("import torch\n    return torch.relu(x)", "Tensor", "write the NumPy function"),
    "JAX's function": body(
        "import jax.numpy as jnp\n    return jnp.exp(x)", "jax knows no traced values", "write the NumPy function"
    ),
    "JAX's function in a gradient": lines(
        "import jax.numpy as jnp\nkg.grad(lambda x: jnp.sum(x * x))(np.ones(3))",
        "jax knows no traced values",
        "write the NumPy function",
    ),
    "a decorated lambda pickled": lines(
        "import pickle\npickle.dumps(kg.kernel_graph(lambda x: x))", "mistake.<lambda>", "with def", "cloudpickle"
    ),
    "a gradient of a lambda pickled": lines(
        "import pickle\npickle.dumps(kg.grad(lambda x: x.sum()))", "grad_<lambda>", "with def", "cloudpickle"
    ),
    "a value as an index in a gradient": lines(
        "f = eval(compile('lambda x: x[0] if int(x[1]) > 2 else x[1]', 'mistake.py', 'eval'))\nkg.grad(f)(np.ones(3))",
        "is no Python int",
        "the control flow of <lambda> is not compiled, since its source",
    ),
}
NEEDS = {
    "a sparse argument": "scipy",
    "a function of SciPy's without a kernel": "scipy",
    "a DataFrame's method": "pandas",
    "a tensor's function": "torch",
    "another library's dtype": "torch",
    "JAX's function": "jax",
    "JAX's function in a gradient": "jax",
}


def run(mistake: Mistake) -> tuple[list[str], Exception | None]:
    """What the program is warned of, and the error that it ends in."""
    linecache.cache["mistake.py"] = (len(mistake.program), None, mistake.program.splitlines(True), "mistake.py")
    code = compile(mistake.program, "mistake.py", "exec")
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        error = None
        try:
            exec(code, {"np": np, "kg": kg, "LIST": [], "__name__": "mistake"})
        except Exception as raised:
            error = raised
    return [str(w.message) for w in given if issubclass(w.category, kg.FallbackWarning)], error


def outcome(mistake: Mistake) -> str:
    """What people read: the warnings, then the error with its notes, or nothing."""
    said, error = run(mistake)
    if error is not None:
        said.append("".join(traceback.format_exception_only(error)).strip())
    return "\n".join(said)


if __name__ == "__main__":
    for name, mistake in MISTAKES.items():
        print(f"{name}: {outcome(mistake)}")
