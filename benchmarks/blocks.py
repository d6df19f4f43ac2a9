"""Blocks of networks, forward and as a training step, beside PyTorch eager and compiled, as one table.

    python benchmarks/blocks.py --device cuda [--only ViT --dtype bf16 f32 --seconds 0.5]
    python benchmarks/blocks.py --device cpu --small

A step gives the loss and weights that a gradient moved. Times are of calls one behind the other with one wait at the
end; `first` is the call that traces and compiles; `MiB` is what a call takes beside its arguments. torch/ours above 1
means that ours is faster than the better of PyTorch's two. TF32 is off; PyTorch gets images of 16 bits with channels
last. `difference` is the largest one of a result's elements, relative to its largest (of weights: to their change).
"""

# ruff: noqa: E402
from __future__ import annotations

import argparse
import gc
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np

sys.path[:0] = [str(Path(__file__).parents[1] / "src"), str(Path(__file__).parent)]
from common import clock_of, interleave, machine

import kernelgraph as kg
from kernelgraph.runtime.core.frozen import dataclass

DTYPES = {"bf16": ml_dtypes.bfloat16, "f16": np.float16, "f32": np.float32}
RATE = 8.0  # of a step: of 16 bits its change of a weight is more than a rounding
SETTLING, SETTLING_SECONDS = 200, 0.8  # calls at most, and seconds, before any is timed
Arrays = list[np.ndarray[Any, Any]]
Body = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Block:
    """body: of words, an input and weights. shapes: of the input and of the weights, by whether they are small."""

    name: str
    body: Body
    shapes: Callable[[bool], Sequence[tuple[int, ...]]]
    step: Body | None = None  # the body that is trained, where it is another one


def transformer(causal: bool, width_of_head: int = 64) -> Body:
    def body(m: Any, x: Any, qkv: Any, out: Any, up: Any, down: Any, *vectors: Any) -> Any:
        batch, places, width = x.shape
        qkv_bias, out_bias, up_bias, down_bias, *norms = vectors
        found = m.linear(m.layer_norm(x, *norms[:2]), qkv, qkv_bias)
        found = found.reshape(batch, places, 3, width // width_of_head, width_of_head)
        attended = m.attention(*(found[:, :, i].swapaxes(1, 2) for i in range(3)), causal)
        x = x + m.linear(attended.swapaxes(1, 2).reshape(batch, places, width), out, out_bias)
        return x + m.linear(m.gelu(m.linear(m.layer_norm(x, *norms[2:]), up, up_bias)), down, down_bias)

    return body


def transformer_shapes(batch: int, places: int, width: int) -> list[tuple[int, ...]]:
    square, wide = (width, width), (4 * width, width)
    matrices = [(3 * width, width), square, wide, wide[::-1]]
    return [(batch, places, width), *matrices, *((rows,) for rows, _ in matrices), *[(width,)] * 4]


def bottleneck(m: Any, x: Any, *weights: Any) -> Any:
    """With the scales of its norms in the weights, as it is served."""
    (reduce, square, expand), (first, second, third) = weights[:3], weights[3:]
    y = m.relu(m.conv(x, reduce, first, 1, 0))
    y = m.relu(m.conv(y, square, second, 1, 1))
    return m.relu(m.conv(y, expand, third, 1, 0) + x)


def bottleneck_with_norms(m: Any, x: Any, *weights: Any) -> Any:
    """With norms of the batch, as it is trained: the biases are theirs."""
    (reduce, square, expand), (first, second, third) = weights[:3], weights[3:]
    y = m.relu(m.batch_norm(m.conv(x, reduce, None, 1, 0), first))
    y = m.relu(m.batch_norm(m.conv(y, square, None, 1, 1), second))
    return m.relu(m.batch_norm(m.conv(y, expand, None, 1, 0), third) + x)


def bottleneck_shapes(batch: int, wide: int, narrow: int, size: int) -> list[tuple[int, ...]]:
    weights = [(narrow, wide, 1, 1), (narrow, narrow, 3, 3), (wide, narrow, 1, 1)]
    return [(batch, wide, size, size), *weights, *((w[0],) for w in weights)]


def unet(m: Any, x: Any, *weights: Any) -> Any:
    """Two levels down and up, two convolutions each, with what the way down gave beside that of the way up."""
    pairs = iter(zip(weights[::2], weights[1::2], strict=True))

    def twice(x: Any) -> Any:
        for _ in range(2):
            x = m.relu(m.conv(x, *next(pairs), 1, 1))
        return x

    first = twice(x)
    second = twice(m.max_pool(first))
    x = twice(m.max_pool(second))
    x = twice(m.concatenate([m.upsample(x), second]))
    x = twice(m.concatenate([m.upsample(x), first]))
    return m.conv(x, *next(pairs), 1, 0)


def unet_shapes(batch: int, size: int, width: int) -> list[tuple[int, ...]]:
    w1, w2, w3 = width, 2 * width, 4 * width
    ways = [(w1, 3), (w1, w1), (w2, w1), (w2, w2), (w3, w2), (w3, w3), (w2, w3 + w2), (w2, w2), (w1, w2 + w1), (w1, w1)]
    weights: list[tuple[int, ...]] = []
    for out, into in ways:
        weights += [(out, into, 3, 3), (out,)]
    return [(batch, 3, size, size), *weights, (2, w1, 1, 1), (2,)]


BLOCKS = (
    Block(
        "ViT block",
        transformer(causal=False),
        lambda small: transformer_shapes(2, 17, 128) if small else transformer_shapes(32, 197, 768),
    ),
    Block(
        "GPT block",
        transformer(causal=True),
        lambda small: transformer_shapes(2, 32, 128) if small else transformer_shapes(8, 1024, 768),
    ),
    Block(
        "ResNet bottleneck",
        bottleneck,
        lambda small: bottleneck_shapes(2, 32, 8, 14) if small else bottleneck_shapes(32, 256, 64, 56),
        bottleneck_with_norms,
    ),
    Block("U-Net", unet, lambda small: unet_shapes(1, 16, 4) if small else unet_shapes(8, 128, 32)),
)


def arrays_of_block(block: Block, small: bool, dtype: Any) -> Arrays:
    rng = np.random.default_rng(0)
    image, *weights = block.shapes(small)

    def weight(shape: tuple[int, ...]) -> Any:
        each = int(np.prod(shape[1:]))
        found = rng.normal(size=shape) * (1.5 / each) ** 0.5 if len(shape) > 1 else rng.uniform(0.05, 0.2, shape)
        return found.astype(np.float32).astype(dtype)

    return [rng.normal(size=image).astype(np.float32).astype(dtype), *map(weight, weights)]


def our_words() -> Any:
    nn = kg.nn
    return SimpleNamespace(
        linear=nn.linear, layer_norm=nn.layer_norm, gelu=kg.gelu, relu=kg.relu,
        attention=lambda q, k, v, causal: nn.attention(q, k, v, causal=causal),
        conv=lambda x, w, bias, stride, padding: nn.conv2d(x, w, bias, stride=stride, padding=padding),
        batch_norm=lambda x, weight: nn.batch_norm(x, weight=weight),
        max_pool=lambda x: nn.max_pool2d(x, 2), upsample=lambda x: x.repeat(2, 2).repeat(2, 3),
        concatenate=lambda parts: np.concatenate(parts, 1),
    )  # fmt: skip


def torch_words() -> Any:
    import torch

    nn = torch.nn.functional
    return SimpleNamespace(
        linear=nn.linear, gelu=nn.gelu, relu=torch.relu,
        layer_norm=lambda x, weight, bias: nn.layer_norm(x, weight.shape, weight, bias),
        attention=lambda q, k, v, causal: nn.scaled_dot_product_attention(q, k, v, is_causal=causal),
        conv=lambda x, w, bias, stride, padding: nn.conv2d(x, w, bias, stride=stride, padding=padding),
        batch_norm=lambda x, weight: nn.batch_norm(x, None, None, weight, training=True),
        max_pool=lambda x: nn.max_pool2d(x, 2), upsample=lambda x: nn.interpolate(x, scale_factor=2, mode="nearest"),
        concatenate=lambda parts: torch.cat(parts, 1),
    )  # fmt: skip


def our_function(body: Body, trained: bool, device: str) -> Any:
    words = our_words()

    def forward(x: Any, *weights: Any) -> Any:
        return body(words, x, *weights)

    def step(x: Any, target: Any, *weights: Any) -> Any:
        def loss(weights: Any) -> Any:
            distance = forward(x, *weights).astype(np.float32) - target.astype(np.float32)
            return (distance * distance).mean()

        value, gradients = kg.value_and_grad(loss)(weights)
        return value, *((w - RATE * g).astype(w.dtype) for w, g in zip(weights, gradients, strict=True))

    return kg.kernel_graph(step if trained else forward, device=device)


def torch_functions(body: Body, trained: bool) -> dict[str, Callable[..., Any]]:
    import torch

    words = torch_words()

    def forward(x: Any, *weights: Any) -> Any:
        return body(words, x, *weights)

    def loss(x: Any, target: Any, *weights: Any) -> Any:
        distance = forward(x, *weights).float() - target.float()
        return (distance * distance).mean()

    def step_of_loss(loss: Callable[..., Any]) -> Callable[..., Any]:
        def step(x: Any, target: Any, *weights: Any) -> Any:
            given = [w.detach().requires_grad_() for w in weights]
            value = loss(x, target, *given)
            gradients = torch.autograd.grad(value, given)
            with torch.no_grad():
                return value.detach(), *torch._foreach_sub(given, gradients, alpha=RATE)

        return step

    def without_gradients(function: Callable[..., Any]) -> Callable[..., Any]:
        return torch.no_grad()(function)

    if trained:
        return {"eager": step_of_loss(loss), "compile": step_of_loss(torch.compile(loss))}
    return {"eager": without_gradients(forward), "compile": without_gradients(torch.compile(forward))}


def as_tensor(array: Any, device: str) -> Any:
    import torch

    found = torch.from_numpy(array.astype(np.float32)).to(device)
    found = found.to({"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}[name_of_dtype(array.dtype)])
    last = array.ndim == 4 and array.dtype.itemsize == 2
    return found.contiguous(memory_format=torch.channels_last) if last else found


def name_of_dtype(dtype: Any) -> str:
    return next(name for name, each in DTYPES.items() if np.dtype(each) == dtype)


def largest_difference(found: Sequence[Any], wanted: Sequence[Any], before: Sequence[Any], rounding: float) -> float:
    """Relative to the largest element wanted; to the largest change of an array that was before, a rounding aside."""

    def difference(found: Any, wanted: Any, before: Any) -> float:
        if before is None:
            return float(np.abs(found - wanted).max() / np.abs(wanted).max())
        beyond = np.abs(found - wanted) - rounding * np.abs(wanted)
        return float(max(beyond.max(), 0) / np.abs(wanted - before).max())

    return max(map(difference, found, wanted, before))


def hosts(found: Any) -> list[Any]:
    parts = found if isinstance(found, (list, tuple)) else [found]
    return [np.asarray(p.float().cpu() if hasattr(p, "cpu") else p).astype(np.float32) for p in parts]


@dataclass(frozen=True, slots=True)
class Candidate:
    call: Callable[[], Any]
    first: float
    mebibytes: float
    difference: float = 0.0


def our_candidate(body: Body, arrays: Sequence[Any], trained: bool, device: str, wanted: Any, before: Any) -> Candidate:
    given = [kg.asarray(a, device=device) for a in arrays]
    function = our_function(body, trained, device)
    began = time.perf_counter()
    found = function(*given)
    kg.waitall()
    first = time.perf_counter() - began
    rounding = float(ml_dtypes.finfo(arrays[0].dtype).eps)
    difference = largest_difference(hosts(found), wanted, before, rounding)
    peak = function.plan(*given).peak_bytes / 2**20
    settle(lambda: function(*given), kg.waitall)
    return Candidate(lambda: function(*given), first, peak, difference)


def settle(call: Callable[[], Any], wait: Callable[[], Any]) -> None:
    """What is chosen by the clock on early calls is chosen."""
    end = time.perf_counter() + SETTLING_SECONDS
    for _ in range(SETTLING):
        call()
        wait()
        if time.perf_counter() > end:
            break


def torch_candidates(
    body: Body, tensors: Sequence[Any], trained: bool, device: str, which: Sequence[str], wait: Callable[[], Any]
) -> tuple[dict[str, Candidate], list[Any]]:
    """And the results of the first."""
    import torch

    made, results = {}, list[Any]()
    for name, function in torch_functions(body, trained).items():
        if name not in which:
            continue
        began = time.perf_counter()
        found = function(*tensors)
        wait()
        first, values = time.perf_counter() - began, hosts(found)
        results = results or values
        del found
        peak = float("nan")
        if device == "cuda":
            function(*tensors)
            wait()
            before = torch.cuda.memory_allocated()
            torch.cuda.reset_peak_memory_stats()
            function(*tensors)
            wait()
            peak = (torch.cuda.max_memory_allocated() - before) / 2**20
        call = lambda function=function: function(*tensors)  # noqa: E731
        made[name] = Candidate(call, first, peak)
    return made, results


def table_of_profile(call: Callable[[], Any], lines: int) -> str:
    """The names of three of our calls that took longest."""
    with kg.profile() as profile:
        for _ in range(3):
            call()
    return "\n".join(profile.table().splitlines()[: lines + 1])


def row_of_block(block: Block, dtype: str, trained: bool, options: argparse.Namespace) -> str:
    import torch

    device = options.device
    wait = torch.cuda.synchronize if device == "cuda" else (lambda: None)
    body = (block.step or block.body) if trained else block.body
    arrays = arrays_of_block(block, options.small, DTYPES[dtype])
    tensors = [as_tensor(a, device) for a in arrays]
    if trained:
        with torch.no_grad():
            target = np.zeros(tuple(body(torch_words(), *tensors).shape), np.float32).astype(DTYPES[dtype])
        arrays, tensors = [arrays[0], target, *arrays[1:]], [tensors[0], as_tensor(target, device), *tensors[1:]]
    peers, wanted = torch_candidates(body, tensors, trained, device, options.peers, wait)
    before = [None, *(a.astype(np.float32) for a in arrays[2:])] if trained else [None]
    ours = our_candidate(body, arrays, trained, device, wanted, before)

    def wait_for_all() -> None:
        kg.waitall()
        wait()

    calls = {"ours": ours.call} | {name: each.call for name, each in peers.items()}
    times = interleave(calls, options.seconds, clock_of(wait_for_all), sample_seconds=10e-3)
    us = {name: statistics.median(samples) * 1e6 for name, samples in times.items()}
    every = {"ours": ours, **{name: peers.get(name) for name in ("eager", "compile")}}

    def cells(show: Callable[[str, Candidate], str]) -> str:
        return " | ".join("-" if each is None else show(name, each) for name, each in every.items())

    if options.profile:
        options.profiles.append((block.name, dtype, trained, table_of_profile(ours.call, options.profile)))
    fastest = min((us[name] for name in peers), default=float("nan"))
    return " | ".join((
        cells(lambda name, each: f"{us[name]:.4g}"), f"{fastest / us['ours']:.2f}",
        cells(lambda name, each: f"{each.first:.2f}"), cells(lambda name, each: f"{each.mebibytes:.0f}"),
        f"{ours.difference:.1e}",
    ))  # fmt: skip


def main() -> None:
    import torch

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--small", action="store_true", help="sizes to see that all of it runs")
    parser.add_argument("--only", nargs="*", default=[], help="rows whose names have one of these (default: all)")
    parser.add_argument("--dtype", nargs="*", default=["bf16"], choices=list(DTYPES))
    parser.add_argument("--peers", nargs="*", default=["eager", "compile"], choices=["eager", "compile"])
    parser.add_argument("--seconds", type=float, default=0.5, help="time for the calls of each row")
    parser.add_argument("--profile", type=int, default=0, help="so many of the names that took longest, of each row")
    options = parser.parse_args(namespace=argparse.Namespace(profiles=[]))
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    device = torch.cuda.get_device_name() if options.device == "cuda" else ""
    print(machine(None, ("kernelgraph", "numpy", "torch", "nvidia-cudnn-frontend"), device))
    three = " | ".join
    print(f"| block | {three(['us, ours', 'eager', 'compile', 'torch/ours', 's, first', 'eager', 'compile'])} | "
          f"{three(['MiB', 'eager', 'compile', 'difference'])} |")  # fmt: skip
    print("|---|" + "--:|" * 11)
    for dtype in options.dtype:
        for block in BLOCKS:
            for trained in (False, True):
                label = f"{block.name} {dtype}, {'step' if trained else 'forward'}"
                if options.only and not any(word in label for word in options.only):
                    continue
                try:
                    row = row_of_block(block, dtype, trained, options)
                except Exception as error:  # named, not hidden
                    row = f"fails: {type(error).__name__}: {' '.join(str(error).split())[:300]}"
                print(f"| {label} | {row} |", flush=True)
                torch.compiler.reset()
                gc.collect()
                if options.device == "cuda":
                    torch.cuda.empty_cache()
    for name, dtype, trained, table in options.profiles:
        print(f"\n{name} {dtype}, {'step' if trained else 'forward'}, three calls\n{table}")


if __name__ == "__main__":
    main()
