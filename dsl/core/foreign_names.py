"""Names of other libraries' arrays, options and modules: what to write instead of each."""

from __future__ import annotations

from collections.abc import Iterable

FOREIGN_KEYWORDS = {"dim": "axis=", "dims": "axis=", "keepdim": "keepdims=", "keep_dims": "keepdims=", "input": "a="}
# attributes of arrays of PyTorch, JAX, CuPy, MXNet and TensorFlow
FOREIGN_ATTRIBUTES = {
    "block_until_ready": "y.wait()",
    "wait_to_read": "y.wait()",
    "get": "np.asarray(y), outside of the function",
    "cpu": "np.asarray(y), outside of the function",
    "asnumpy": "np.asarray(y), outside of the function",
    "numpy": "np.asarray(y), outside of the function",
    "cuda": "kg.to_device(y, 'cuda')",
    "to": "y.astype(dtype), or kg.to_device(y, device)",
    "type": "y.astype(dtype)",
    "float": "y.astype(np.float32)",
    "double": "y.astype(np.float64)",
    "long": "y.astype(np.int64)",
    "at": "y[i] = v",
    "detach": "kg.stop_gradient(y)",
    "clone": "y.copy()",
    "backward": "kg.grad(loss)(x)",
    "grad": "kg.grad(loss)(x)",
    "requires_grad": "kg.grad(loss)(x), which needs no marks",
    "requires_grad_": "kg.grad(loss)(x), which needs no marks",
    "clamp": "np.clip(y, low, high)",
    "unsqueeze": "np.expand_dims(y, axis)",
    "permute": "y.transpose(axes)",
    "view_as": "y.reshape(x.shape)",
    "expand": "np.broadcast_to(y, shape)",
    "numel": "y.size",
    "dim": "y.ndim",
    "mul": "y * x",
    "add_": "y += x",
    "mul_": "y *= x",
    "zero_": "y[...] = 0",
    "abs": "np.abs(y)",
    "exp": "np.exp(y)",
    "log": "np.log(y)",
    "sqrt": "np.sqrt(y)",
    "tanh": "np.tanh(y)",
    "relu": "kg.relu(y)",
    "softmax": "kg.nn.softmax(y)",
    "matmul": "y @ x",
    "values": "y itself: a traced argument is an array",
    "iloc": "y[i]: a traced argument is an array",
    "loc": "y[i]: a traced argument is an array",
    "to_numpy": "y itself: a traced argument is an array",
}

# options of numba.jit, jax.jit, torch.compile and cupy.fuse
FOREIGN_OPTIONS = {
    "static_argnums": "static_argnames='n': names in place of numbers",
    "nopython": "untraceable='refuse': an error in place of NumPy",
    "fullgraph": "untraceable='refuse': an error in place of NumPy",
    "forceobj": "nothing: what cannot be traced runs in NumPy",
    "parallel": "nothing: kernels use all cores",
    "nogil": "nothing: kernels run without the lock",
    "cache": "nothing: compiled kernels are always kept",
    "target": "device='cuda'",
    "backend": "device='cuda'",
    "inline": "nothing: calls are traced through",
    "jit": "kg.override(disable=True) around the call, to run plain NumPy",
    "dynamic": "nothing: kernels are of any size",
    "tf32": "precision='tf32'",
    "mode": "streams=, memory= or fastmath=True",
    "donate_argnums": "x[...] = value: an argument that is assigned to is written in place",
    "donate_argnames": "x[...] = value: an argument that is assigned to is written in place",
    "keep_unused": "nothing: unused arguments cost nothing",
    "error_model": "nothing: division is NumPy's",
    "locals": "nothing: dtypes are NumPy's",
    "in_shardings": "mesh= and in_axes=",
    "out_shardings": "mesh= and out_axes=",
    "kernel_name": "nothing: kernels are named by what they compute",
}

# names that other libraries' modules have
FOREIGN_MODULE = {
    **dict.fromkeys(("jit", "njit", "compile", "function", "fuse", "hybridize"), "kg.kernel_graph"),
    **dict.fromkeys(("vectorize", "guvectorize"), "kg.elementwise"),
    **dict.fromkeys(("ElementwiseKernel", "RawKernel", "ReductionKernel"), "kg.kernel"),
    **dict.fromkeys(("numpy", "np", "jnp"), "import numpy as np"),
    **dict.fromkeys(("tensor", "as_tensor", "from_numpy"), "kg.asarray"),
    **dict.fromkeys(("prange", "range"), "range"),
    "block_until_ready": "kg.wait",
    "asnumpy": "np.asarray",
    "no_grad": "nothing: gradients are computed where kg.grad asks for them",
    "device_put": "kg.to_device",
    "lax": "kg.fori_loop, kg.while_loop, kg.cond, kg.scan",
    "cuda": "kernel_graph(device='cuda')",
    "devices": "python -m kernelgraph info, or kg.device(name)",
    "is_available": "python -m kernelgraph info, or kg.device('cuda')",
}


NOTHING = "nothing: "  # what stands for it, and why


def instead_of(name: str, foreign: dict[str, str], known: Iterable[str] = ()) -> str:
    """`; write ...` for a name that another library has, `; did you mean ...?` for a misspelt one, else nothing."""
    if name in foreign:
        needless = foreign[name].startswith(NOTHING)
        return f"; leave it out: {foreign[name].removeprefix(NOTHING)}" if needless else f"; write {foreign[name]}"
    import difflib

    near = difflib.get_close_matches(name, [n for n in known if not n.startswith("_")], 1, 0.7)
    return f"; did you mean {near[0]}?" if near else ""
