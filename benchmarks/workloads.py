"""The field's own programs beside PyTorch, JAX, CuPy, NumPy, numba's loops and Halide, as a table.

    python benchmarks/workloads.py --device cuda --minutes 8
    python benchmarks/workloads.py --device cpu --only VEC image
    python benchmarks/workloads.py --device cpu --busy          # on a machine that others use: minima, not medians

`queued`: calls one behind the other, one wait at the end; `waited`: each call is waited for. Ours with `streams="auto"`
and with one stream; PyTorch eager (on a GPU also in one CUDA graph, and with its branches forked by hand to streams of
their own within that graph) and compiled; JAX's jit. All get arrays that are on the device. float32 without TF32.
Results that lie further apart than the program allows are named and not timed.
"""

# ruff: noqa: E402
from __future__ import annotations

import argparse
import importlib
import json
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

sys.path[:0] = [str(Path(__file__).parents[1] / "src"), str(Path(__file__).parent)]
from common import Peers, clock_of, interleave, machine
from field_programs import FIELD_PROGRAMS, FieldProgram
from halide_programs import halide_calls
from image_programs import IMAGE_PROGRAMS

import kernelgraph as kg

SETTLING, SETTLING_SECONDS = 1000, 1.5  # calls at most, and seconds, before any is timed
Candidate = tuple[Callable[[], Any], Callable[[], None], Callable[[Any], Any]]
"""A call, what waits for all of them, and a result as NumPy's."""


def each(*branches: Callable[[], Any]) -> list[Any]:
    return [branch() for branch in branches]


def numpy_words() -> Any:
    def add_at(size: int, index: Any, values: Any) -> Any:
        out = np.zeros(size, np.float32)
        np.add.at(out, index, values)
        return out

    def mean_pool(x: Any, size: int, stride: int, padding: int) -> Any:
        return kg.nn.avg_pool2d(x, size, stride=stride, padding=padding)

    def depthwise(x: Any, w: Any, stride: int, padding: int) -> Any:
        return kg.nn.conv2d(x, w, stride=stride, padding=padding, groups=x.shape[1])

    return SimpleNamespace(
        dot=lambda x, w: (x @ w).astype(x.dtype), like=lambda x, other: x.astype(other.dtype), mean_pool=mean_pool,
        depthwise=depthwise,
        fork=each, exp=np.exp, log=np.log, sqrt=np.sqrt, erf=kg.erf, clip=np.clip, pad=lambda x, n: np.pad(x, n),
        rows=lambda method, keep: method(axis=1, keepdims=keep), argmax_rows=lambda x: x.argmax(axis=1), add_at=add_at,
        relu=lambda x: np.maximum(x, 0), concatenate=lambda parts, axis: np.concatenate(parts, axis),
        conv=lambda x, w, stride, padding: kg.nn.conv2d(x, w, stride=stride, padding=padding),
        max_pool=lambda x, size, stride, padding: kg.nn.max_pool2d(x, size, stride=stride, padding=padding),
        attention=lambda q, k, v: kg.nn.attention(q, k, v),
        whole=lambda x: x.astype(np.int32), real=lambda x: x.astype(np.float32), stack=np.stack, where=np.where,
        maximum=np.maximum, minimum=np.minimum, pad_axes=lambda x, beyond: np.pad(x, [(n, n) for n in beyond]),
    )  # fmt: skip


def torch_words(torch: Any, fork: Callable[..., Any]) -> Any:
    nn = torch.nn.functional

    def add_at(size: int, index: Any, values: Any) -> Any:
        return torch.zeros(size, device=values.device).index_add_(0, index, values)

    def rows(method: Any, keep: bool) -> Any:
        found = method(dim=1, keepdim=keep)
        return found if torch.is_tensor(found) else found.values

    return SimpleNamespace(
        dot=lambda x, w: x @ w, like=lambda x, other: x.to(other.dtype),
        depthwise=lambda x, w, stride, padding: nn.conv2d(x, w, stride=stride, padding=padding, groups=x.shape[1]),
        mean_pool=lambda x, size, stride, padding: nn.avg_pool2d(x, size, stride, padding),
        fork=fork, exp=torch.exp, log=torch.log, sqrt=torch.sqrt, erf=torch.erf, clip=torch.clip,
        pad=lambda x, n: nn.pad(x, (n, n, n, n)), rows=rows, argmax_rows=lambda x: x.argmax(dim=1), add_at=add_at,
        relu=torch.relu, concatenate=lambda parts, axis: torch.cat(parts, axis),
        conv=lambda x, w, stride, padding: nn.conv2d(x, w, stride=stride, padding=padding),
        max_pool=lambda x, size, stride, padding: nn.max_pool2d(x, size, stride, padding),
        attention=lambda q, k, v: nn.scaled_dot_product_attention(q, k, v),
        whole=lambda x: x.to(torch.int32), real=lambda x: x.to(torch.float32), stack=torch.stack, where=torch.where,
        maximum=torch.maximum, minimum=torch.minimum,
        pad_axes=lambda x, beyond: nn.pad(x, [n for each in reversed(beyond) for n in (each, each)]),
    )  # fmt: skip


def jax_words(jax: Any) -> Any:
    jnp, lax = jax.numpy, jax.lax

    def max_pool(x: Any, size: int, stride: int, padding: int) -> Any:
        pads = ((0, 0), (0, 0), (padding, padding), (padding, padding))
        return lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, size, size), (1, 1, stride, stride), pads)

    def attention(q: Any, k: Any, v: Any) -> Any:
        return jax.nn.softmax(q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5) @ v

    def mean_pool(x: Any, size: int, stride: int, padding: int) -> Any:
        pads = ((0, 0), (0, 0), (padding, padding), (padding, padding))
        shapes = (1, 1, size, size), (1, 1, stride, stride)
        return (lax.reduce_window(x, 0.0, lax.add, *shapes, pads) / (size * size)).astype(x.dtype)

    def conv(x: Any, w: Any, stride: int, padding: Any, groups: int = 1) -> Any:
        around = padding if isinstance(padding, tuple) else (padding, padding)
        return lax.conv_general_dilated(x, w, (stride, stride), [(p, p) for p in around], feature_group_count=groups)

    return SimpleNamespace(
        attention=attention, dot=lambda x, w: x @ w, like=lambda x, other: x.astype(other.dtype), mean_pool=mean_pool,
        depthwise=lambda x, w, stride, padding: conv(x, w, stride, padding, x.shape[1]),
        fork=each, exp=jnp.exp, log=jnp.log, sqrt=jnp.sqrt, erf=jax.scipy.special.erf, clip=jnp.clip, pad=jnp.pad,
        rows=lambda method, keep: method(axis=1, keepdims=keep), argmax_rows=lambda x: x.argmax(axis=1),
        add_at=lambda size, index, values: jnp.zeros(size, jnp.float32).at[index].add(values), relu=jax.nn.relu,
        concatenate=lambda parts, axis: jnp.concatenate(parts, axis), max_pool=max_pool,
        conv=conv,
        whole=lambda x: x.astype(jnp.int32), real=lambda x: x.astype(jnp.float32), stack=jnp.stack, where=jnp.where,
        maximum=jnp.maximum, minimum=jnp.minimum, pad_axes=lambda x, beyond: jnp.pad(x, [(n, n) for n in beyond]),
    )  # fmt: skip


def our_candidates(program: FieldProgram, arrays: Sequence[Any], device: str) -> Iterator[tuple[str, Candidate]]:
    words = numpy_words()
    given = [kg.asarray(a, device=device) for a in arrays]
    for label, streams in (("ours", "auto"), ("ours, one stream", 1)):
        function = kg.kernel_graph(lambda *args: program.body(words, *args), device=device, streams=streams)
        yield label, ((lambda f=function: f(*given)), kg.waitall, lambda found: found)


def _torch_array(torch: Any, array: Any, device: str) -> Any:
    """Of 16 bits with channels last, which PyTorch convolves faster."""
    if array.dtype.name != "bfloat16":
        return torch.as_tensor(array, device=device)
    found = torch.as_tensor(array.astype(np.float32), device=device).to(torch.bfloat16)
    return found.contiguous(memory_format=torch.channels_last) if found.ndim == 4 else found


def torch_candidates(
    program: FieldProgram, arrays: Sequence[Any], device: str, torch: Any
) -> Iterator[tuple[str, Candidate]]:
    torch.backends.cudnn.benchmark, torch.backends.cudnn.allow_tf32 = True, False
    torch.backends.cuda.matmul.allow_tf32 = False
    given = [_torch_array(torch, a, device) for a in arrays]
    wait = torch.cuda.synchronize if device == "cuda" else (lambda: None)

    def numpy(found: Any) -> Any:
        parts = [f.float() if f.dtype == torch.bfloat16 else f for f in ([found] if torch.is_tensor(found) else found)]
        hosts = [f.cpu().numpy() for f in parts]
        return hosts[0] if torch.is_tensor(found) else hosts

    def forked(*branches: Callable[[], Any]) -> list[Any]:
        main, found = torch.cuda.current_stream(), []
        for branch in branches[1:]:
            side = torch.cuda.Stream()
            side.wait_stream(main)
            with torch.cuda.stream(side):
                found.append((side, branch()))
        first = branches[0]()
        for side, _ in found:
            main.wait_stream(side)
        return [first, *(result for _, result in found)]

    def graphed(fork: Callable[..., Any]) -> Callable[[], Any]:
        words = torch_words(torch, fork)
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            for _ in range(3):
                program.body(words, *given)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = program.body(words, *given)
        return lambda: (graph.replay(), result)[1]

    words = torch_words(torch, each)
    with torch.no_grad():
        yield "torch", ((lambda: program.body(words, *given)), wait, numpy)
        if device == "cuda":
            yield "torch, one CUDA graph", (graphed(each), wait, numpy)
            yield "torch, forked by hand", (graphed(forked), wait, numpy)
        mode = "reduce-overhead" if device == "cuda" else "default"
        compiled = torch.compile(lambda *args: program.body(words, *args), mode=mode)
        yield "torch.compile", ((lambda: compiled(*given)), wait, numpy)


def numba_candidates(
    program: FieldProgram, arrays: Sequence[Any], device: str, numba: Any
) -> Iterator[tuple[str, Candidate]]:
    if program.numba is not None and device == "cpu":
        compiled = numba.njit(parallel=True)(program.numba)
        yield "numba", ((lambda: compiled(*arrays)), (lambda: None), lambda found: found)


def halide_candidates(
    program: FieldProgram, arrays: Sequence[Any], device: str, halide: Any
) -> Iterator[tuple[str, Candidate]]:
    if device == "cpu":
        for label, call in halide_calls(halide, program.name, arrays):
            yield label, (call, (lambda: None), lambda found: found)


def cupy_words(cupy: Any) -> Any:
    special = importlib.import_module("cupyx.scipy.special")

    def add_at(size: int, index: Any, values: Any) -> Any:
        return cupy.bincount(index, values, size).astype(cupy.float32)

    return SimpleNamespace(
        fork=each, exp=cupy.exp, log=cupy.log, sqrt=cupy.sqrt, erf=special.erf, clip=cupy.clip, pad=cupy.pad,
        rows=lambda method, keep: method(axis=1, keepdims=keep), argmax_rows=lambda x: x.argmax(axis=1), add_at=add_at,
        relu=lambda x: cupy.maximum(x, 0), concatenate=lambda parts, axis: cupy.concatenate(parts, axis),
        whole=lambda x: x.astype(cupy.int32), real=lambda x: x.astype(cupy.float32), stack=cupy.stack, where=cupy.where,
        maximum=cupy.maximum, minimum=cupy.minimum, pad_axes=lambda x, beyond: cupy.pad(x, [(n, n) for n in beyond]),
    )  # fmt: skip


def cupy_candidates(
    program: FieldProgram, arrays: Sequence[Any], device: str, cupy: Any
) -> Iterator[tuple[str, Candidate]]:
    """On one stream, and with branches on streams of their own, between events. What has words that CuPy lacks
    (convolutions, attention) gives none."""
    if device != "cuda":
        return
    words, given = cupy_words(cupy), [cupy.asarray(a) for a in arrays]
    sides = [cupy.cuda.Stream(non_blocking=True) for _ in range(16)]

    def forked(*branches: Callable[[], Any]) -> list[Any]:
        main, found = cupy.cuda.get_current_stream(), []
        start = main.record()
        for branch, side in zip(branches, sides, strict=False):
            side.wait_event(start)
            with side:
                found.append(branch())
                main.wait_event(side.record())
        return found

    def numpy(found: Any) -> Any:
        return [cupy.asnumpy(f) for f in found] if isinstance(found, (list, tuple)) else cupy.asnumpy(found)

    wait = cupy.cuda.Device().synchronize
    streams = SimpleNamespace(**{**vars(words), "fork": forked})
    yield "CuPy", ((lambda: program.body(words, *given)), wait, numpy)
    yield "CuPy, streams by hand", ((lambda: program.body(streams, *given)), wait, numpy)


def jax_candidates(
    program: FieldProgram, arrays: Sequence[Any], device: str, jax: Any
) -> Iterator[tuple[str, Candidate]]:
    jax.config.update("jax_default_matmul_precision", "highest")
    words = jax_words(jax)
    given = [jax.device_put(a) for a in arrays]
    compiled = jax.jit(lambda *args: program.body(words, *args))
    last: list[Any] = []

    def call() -> Any:
        last[:] = [compiled(*given)]
        return last[0]

    yield "JAX", (call, lambda: jax.block_until_ready(last), lambda found: jax.tree.map(np.asarray, found))


def unlike(program: FieldProgram, found: Any, wanted: Any) -> str:
    """In words, how far a result lies from ours, where that is too far."""
    pairs = zip(found, wanted, strict=True) if isinstance(wanted, (list, tuple)) else [(found, wanted)]
    for a, b in pairs:
        a, b = np.asarray(a), np.asarray(b)
        a, b = (x.astype(np.float32) if x.dtype.name == "bfloat16" else x for x in (a, b))
        apart = (
            float(np.mean(a != b)) if b.dtype.kind in "iu" else float(np.abs(a - b).max() / max(1e-30, np.abs(b).max()))
        )
        if not apart <= program.relative:
            return f"{apart:.1e} apart"
    return ""


def settle(call: Callable[[], Any], wait: Callable[[], None]) -> None:
    """Calls one behind the other and alone, until plans are chosen and warm-up is over."""
    end = time.perf_counter() + SETTLING_SECONDS
    for turn in range(SETTLING):
        call()
        if turn % 16 > 10:
            wait()
        if time.perf_counter() > end:
            break
    wait()


def measured(
    program: FieldProgram, device: str, peers: Peers, seconds: float, middle: Callable[[Sequence[float]], float]
) -> dict[str, Any]:
    """Of each candidate its first call, and a call queued and waited for, in seconds; or why there is none. middle: of
    the samples of one, its figure."""
    arrays = program.arrays()
    row: dict[str, Any] = {"program": program.name}
    kinds = [lambda: our_candidates(program, arrays, device)]
    if device == "cpu":
        words = numpy_words()
        kinds.append(
            lambda: iter([("NumPy", ((lambda: program.body(words, *arrays)), lambda: None, lambda found: found))])
        )
    for name, candidates in (("torch", torch_candidates), ("jax", jax_candidates), ("numba", numba_candidates),
                             ("cupy", cupy_candidates), ("halide", halide_candidates)):  # fmt: skip
        if peer := peers.get(name):
            kinds.append(lambda peer=peer, candidates=candidates: candidates(program, arrays, device, peer))
    calls: dict[str, Candidate] = {}
    wanted = None
    for kind in kinds:
        try:
            for label, (call, wait, as_numpy) in kind():
                start = time.perf_counter()
                found = call()
                wait()
                row[label] = {"first": time.perf_counter() - start}
                found = as_numpy(found)
                wanted = found if wanted is None else wanted
                if apart := unlike(program, found, wanted):
                    row[label]["wrong"] = apart
                    continue
                settle(call, wait)
                calls[label] = (call, wait, as_numpy)
        except Exception as error:
            row[f"{type(error).__name__} after {label if calls else 'nothing'}"] = {"wrong": str(error)[:200]}

    def clock(call: Any, count: int) -> float:  # a candidate's own wait
        return clock_of(calls[call.label][1])(calls[call.label][0], count)

    for way in ("queued", "waited"):
        named = {}
        for label, (call, wait, _) in calls.items():
            one = (lambda call=call, wait=wait: (call(), wait())) if way == "waited" else (lambda call=call: call())
            one.label = label  # type: ignore[attr-defined]
            named[label] = one
        ticks = clock if way == "queued" else clock_of(lambda: None)
        for label, samples in interleave(named, seconds, ticks, sample_seconds=5e-3).items():
            row[label][way] = middle(samples)
    return row


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Microseconds queued / waited of each candidate; the best of the others over ours."""
    labels = list(dict.fromkeys(label for row in rows for label in row if label != "program"))
    lines = ["| program | " + " | ".join(labels) + " | best other / ours, queued; waited | first call |",
             "|---|" + "--:|" * (len(labels) + 2)]  # fmt: skip
    for row in rows:
        cells = []
        for label in labels:
            cell = row.get(label, {})
            times = [f"{cell[way] * 1e6:,.4g}" for way in ("queued", "waited") if way in cell]
            cells.append(" / ".join(times) or cell.get("wrong", "-"))
        ratios = []
        for way in ("queued", "waited"):
            ours = row.get("ours", {}).get(way)
            others = [cell[way] for label, cell in row.items() if label[:4] not in ("ours", "prog") and way in cell]
            ratios.append(f"{min(others) / ours:.2f}" if ours and others else "-")
        lines.append(
            f"| {row['program']} | {' | '.join(cells)} | {'; '.join(ratios)} "
            f"| {row.get('ours', {}).get('first', 0):.2f} s |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--only", nargs="*", default=[], help="parts of names")
    parser.add_argument("--seconds", type=float, default=1.0, help="of each way of calling")
    parser.add_argument("--minutes", type=float, default=60.0, help="for all of them")
    parser.add_argument("--peers", nargs="*", default=["torch", "jax", "numba", "cupy", "halide"])
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--busy", action="store_true", help="minima, not medians: on a machine that others use")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    peers = Peers(() if given.no_peers else given.peers).load()
    print(machine(None, ("numpy", "torch", "jax", "cupy-cuda13x", "numba-cuda", "llvmlite", "halide")))
    end, rows = time.monotonic() + 60 * given.minutes, []
    for program in (*FIELD_PROGRAMS, *IMAGE_PROGRAMS):
        if given.only and not any(part in program.name for part in given.only):
            continue
        if time.monotonic() > end:
            print(f"no time for {program.name}")
            continue
        rows.append(measured(program, given.device, peers, given.seconds, min if given.busy else statistics.median))
        print(json.dumps(rows[-1]), flush=True)
        if given.json:
            given.json.write_text(json.dumps(rows))
    print(table(rows))


if __name__ == "__main__":
    main()
