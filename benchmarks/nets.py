"""Attention and convolutions with their gradients on a GPU, beside PyTorch, in one run.

    python benchmarks/nets.py [--only attention] [--without-cudnn]

`gpu` is the time of the work alone, captured into a graph by both (ours with loops: of a run alone); `call` is that of
a call with its host's time.
torch/ours above 1 means that ours is faster. PyTorch's TF32 is off; of 16 bits it gets arrays with channels last, which
it computes faster, ours gets them with channels second. `difference` is the largest one, relative to the largest value.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from common import clock_of, interleave, machine
from gpu_time import device_microseconds

import kernelgraph as kg

PARSER = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
PARSER.add_argument("--only", default="", help="rows whose names have this (default: all)")
PARSER.add_argument("--seconds", type=float, default=0.2, help="time for the calls of each row")
PARSER.add_argument("--without-cudnn", action="store_true", help="also what is done without the library")
DTYPES = {"bf16": ml_dtypes.bfloat16, "f16": np.float16, "f32": np.float32}
Function = Callable[..., Any]


def _plain_attention(q: Any, k: Any, v: Any) -> Any:
    scores = q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1])
    rows, columns = scores.shape[-2:]
    scores = np.where(np.tril(np.ones((rows, columns), bool)), scores, -np.inf)
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return (powers / powers.sum(-1, keepdims=True)) @ v


def _attention_rows() -> dict[str, tuple[str, Any, Function, Function]]:
    from torch.nn.functional import scaled_dot_product_attention as peer

    rows = {}
    for dtype, shape, causal in (
        ("bf16", (4, 16, 1024, 64), False), ("bf16", (4, 16, 1024, 64), True), ("bf16", (2, 16, 4096, 128), False),
        ("bf16", (2, 16, 4096, 128), True), ("f16", (8, 12, 512, 64), True), ("f32", (4, 16, 1024, 64), False),
    ):  # fmt: skip
        name = f"attention {dtype} {'x'.join(map(str, shape))}{', causal' * causal}"

        def ours(q: Any, k: Any, v: Any, causal: bool = causal) -> Any:
            return kg.nn.attention(q, k, v, causal=causal).astype(q.dtype)

        def theirs(q: Any, k: Any, v: Any, causal: bool = causal) -> Any:
            return peer(q, k, v, is_causal=causal)

        rows[name] = (dtype, [shape] * 3, ours, theirs)
    rows["attention bf16 2x16x4096x128, causal, plain NumPy"] = (
        "bf16",
        [(2, 16, 4096, 128)] * 3,
        lambda q, k, v: _plain_attention(q, k, v).astype(q.dtype),
        lambda q, k, v: peer(q, k, v, is_causal=True),
    )
    return rows


def _convolution_rows() -> dict[str, tuple[str, Any, Function, Function]]:
    from torch.nn.functional import conv2d

    rows = {}
    for what, image, weights, stride, padding in (
        ("3x3", (32, 64, 56, 56), (64, 64, 3, 3), 1, 1), ("3x3", (32, 256, 14, 14), (256, 256, 3, 3), 1, 1),
        ("1x1", (32, 256, 56, 56), (64, 256, 1, 1), 1, 0), ("7x7/2", (32, 3, 224, 224), (64, 3, 7, 7), 2, 3),
    ):  # fmt: skip
        for dtype in ("bf16", "f32"):
            name = f"conv {what} {dtype} {'x'.join(map(str, image))} to {weights[0]}"

            def ours(x: Any, w: Any, stride: int = stride, padding: int = padding) -> Any:
                return kg.nn.conv2d(x, w, stride=stride, padding=padding)

            def theirs(x: Any, w: Any, stride: int = stride, padding: int = padding) -> Any:
                return conv2d(x, w, stride=stride, padding=padding)

            rows[name] = (dtype, [image, weights], ours, theirs)
    return rows


def _with_gradient(ours: Function, theirs: Function) -> tuple[Function, Function]:
    """The gradients of the sum of all elements times the last argument."""
    import torch

    def our_gradient(*args: Any) -> Any:
        def loss(*args: Any) -> Any:
            return (ours(*args[:-1]).astype(np.float32) * args[-1].astype(np.float32)).sum()

        return kg.grad(loss, tuple(range(len(args) - 1)))(*args)

    def their_gradient(*args: Any) -> Any:
        given = [a.detach().requires_grad_() for a in args[:-1]]
        return torch.autograd.grad(theirs(*given), given, args[-1])

    return our_gradient, their_gradient


def _torch_microseconds(call: Callable[[], Any]) -> float:
    """The time of the GPU's work of a call."""
    import torch

    stream, graph, calls = torch.cuda.Stream(), torch.cuda.CUDAGraph(), 20
    with torch.cuda.stream(stream):
        for _ in range(3):
            call()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
        for _ in range(calls):
            call()
    samples = []
    for _ in range(10):
        first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        first.record()
        graph.replay()
        last.record()
        torch.cuda.synchronize()
        samples.append(first.elapsed_time(last) * 1e3 / calls)
    return statistics.median(samples)


def _measured_row(dtype: str, shapes: Any, ours: Function, theirs: Function, seconds: float, gradient: bool) -> str:
    import torch

    rng = np.random.default_rng(0)
    arrays = [(rng.normal(size=s) / (math.prod(s[1:]) ** 0.5 if i and len(s) < 3 else 1)) for i, s in enumerate(shapes)]
    kind = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}[dtype]
    tensors = [torch.from_numpy(a.astype("f4")).cuda().to(kind) for a in arrays]
    is_image = len(shapes) == 2 and dtype != "f32"
    if gradient:
        ct = rng.normal(size=tuple(theirs(*tensors).shape))
        arrays, tensors = [*arrays, ct], [*tensors, torch.from_numpy(ct.astype("f4")).cuda().to(kind)]
        ours, theirs = _with_gradient(ours, theirs)
    if is_image:
        tensors = [t.contiguous(memory_format=torch.channels_last) for t in tensors]
    given = [kg.asarray(a.astype("f4").astype(DTYPES[dtype]), device="cuda") for a in arrays]
    function, began = kg.kernel_graph(ours, device="cuda"), time.perf_counter()
    found = function(*given)
    found = found if isinstance(found, (list, tuple)) else [found]
    hosts = [np.asarray(a).astype("f4") for a in found]
    first = time.perf_counter() - began
    wanted = theirs(*tensors)
    wanted = [t.float().cpu().numpy() for t in (wanted if isinstance(wanted, (list, tuple)) else [wanted])]
    difference = max(float(np.abs(a - b).max() / np.abs(b).max()) for a, b in zip(hosts, wanted, strict=True))
    plan = function.plan(*given)
    gpu = [device_microseconds(function, given), _torch_microseconds(lambda: theirs(*tensors))]

    def wait() -> None:
        kg.waitall()
        torch.cuda.synchronize()

    calls = interleave({"o": lambda: function(*given), "t": lambda: theirs(*tensors)}, seconds, clock_of(wait))
    whole = [statistics.median(calls[name]) * 1e6 for name in "ot"]
    peak = plan.peak_bytes / 2**20
    return (
        f"{gpu[0]:.1f} | {gpu[1]:.1f} | {gpu[1] / gpu[0]:.2f} | {whole[0]:.0f} | {whole[1]:.0f} | "
        f"{whole[1] / whole[0]:.2f} | {difference:.1e} | {peak:.0f} | {first:.1f}"
    )


def _without_cudnn() -> None:
    """The first GPU as one without the library."""
    from kernelgraph.dsl.array.devices import open_device
    from kernelgraph.runtime.core.frozen import replace

    device = open_device(("cuda", 0))
    device.properties = replace(device.properties, dnn=None)


def main() -> None:
    import torch

    options = PARSER.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    packages = ("kernelgraph", "numpy", "torch", "nvidia-cudnn-frontend")
    print(machine(None, packages, torch.cuda.get_device_name()))
    print("| program | us, gpu | torch | torch/ours | us, call | torch | torch/ours | difference | MiB | s, first |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for without in (False, True)[: 1 + options.without_cudnn]:
        if without:
            _without_cudnn()
        for name, (dtype, shapes, ours, theirs) in {**_convolution_rows(), **_attention_rows()}.items():
            for gradient in (False, True):
                label = name + ", gradient" * gradient + ", without cuDNN" * without
                if options.only not in label:
                    continue
                try:
                    row = _measured_row(dtype, shapes, ours, theirs, options.seconds, gradient)
                except Exception as error:  # named, not hidden
                    row = f"fails: {type(error).__name__}: {' '.join(str(error).split())[:200]}"
                print(f"| {label} | {row} |", flush=True)


if __name__ == "__main__":
    main()
