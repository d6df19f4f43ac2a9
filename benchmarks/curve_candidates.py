"""What `curves.py` times: a workload and libraries in, for each a function that makes its call for given arrays out."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from common import Peers

WARM = 0.15  # seconds
Call = Callable[[], Any]
Make = Callable[[tuple[Any, ...], list[tuple[int, ...]]], Call]  # arrays of NumPy and the outputs' shapes -> a call


def shapes_of(name: str, n: int) -> tuple[tuple[int, ...], ...]:
    """The arguments' shapes for n elements, a power of 4."""
    side = math.isqrt(n)
    columns = min(2048, side)
    return {"softmax": ((n // columns, columns),), "stencil": ((side, side),), "black-scholes": ((n,),) * 3}.get(
        name, ((n,),)
    )


def arrays_of(name: str, n: int) -> tuple[Any, ...]:
    """A few million random numbers, again and again: they take time to make."""
    import numpy as np

    some = np.random.default_rng(0).uniform(0.1, 2.0, 1 << 20).astype(np.float32)
    return tuple(np.resize(np.roll(some, k), shape) for k, shape in enumerate(shapes_of(name, n)))


def leaves(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, tuple | list) else (value,)


def numpy_maker(work: Any, special: Any) -> dict[str, Make]:
    import numpy as np
    from cpu_workloads import words

    if special is None and work.name == "black-scholes":
        return {}
    m = words(np, special and special.erf)
    return {"NumPy": lambda arrays, _: lambda: work.body(m, *arrays)}


def cpu_makers(work: Any, peers: Peers, threads: int) -> dict[str, Make]:
    """What is compiled is compiled once for all sizes, where the candidate can."""
    from concurrent.futures import ThreadPoolExecutor
    from itertools import pairwise

    import numpy as np
    from cpu_workloads import words

    import kernelgraph as kg

    ne, jax, torch, special = map(peers.get, ("numexpr", "jax", "torch", "scipy.special"))
    ours = kg.kernel_graph(lambda *a: work.body(words(np, kg.erf), *a))

    def mine(arrays: tuple[Any, ...], shapes: list[tuple[int, ...]]) -> Call:
        return lambda: [output.wait() for output in leaves(ours(*arrays))]

    found: dict[str, Make] = {"kernelgraph": mine, **numpy_maker(work, special)}
    if ne and work.numexpr:
        ne.set_num_threads(threads)
        formula = work.numexpr.replace("0.5", "half")  # 0.5 is a double to numexpr, which would compute in float64

        def with_numexpr(arrays: tuple[Any, ...], shapes: list[tuple[int, ...]]) -> Call:
            given = {**dict(zip("abc", arrays, strict=False)), "half": np.float32(0.5)}
            return lambda: ne.evaluate(formula, local_dict=given, global_dict={})

        found["numexpr"] = with_numexpr
    if jax:
        body = getattr(jax.nn, work.library) if work.library else _bound(work.body, words(jax.numpy, jax.lax.erf))
        jitted = jax.jit(body)

        def with_jax(arrays: tuple[Any, ...], shapes: list[tuple[int, ...]]) -> Call:
            given = [jax.device_put(a) for a in arrays]
            return lambda: jax.block_until_ready(jitted(*given))

        found["jax"] = with_jax
    if torch:
        torch.set_num_threads(threads)
        torch._dynamo.reset()  # or the workloads before count against its limit of recompilations
        body = _torch_body(work, torch)
        fresh = torch.compile(body)

        @torch.compile
        def into(outs: Any, *given: Any) -> None:
            for out, value in zip(outs, leaves(body(*given)), strict=True):
                out.copy_(value)

        def with_torch(arrays: tuple[Any, ...], shapes: list[tuple[int, ...]]) -> Call:
            given = [torch.from_numpy(a) for a in arrays]
            return lambda: fresh(*given)

        def into_memory(arrays: tuple[Any, ...], shapes: list[tuple[int, ...]]) -> Call:
            given, outs = [torch.from_numpy(a) for a in arrays], [torch.zeros(s) for s in shapes]
            return lambda: into(outs, *given)

        found |= {"torch.compile fresh": with_torch, "torch.compile warm": into_memory}
    pool = ThreadPoolExecutor(threads)

    def copy(arrays: tuple[Any, ...], shapes: list[tuple[int, ...]]) -> Call:
        half = traffic(arrays, shapes) // 2
        source, target = np.ones(half, np.uint8), np.zeros(half, np.uint8)
        if half < 1 << 20:  # handing it to a thread takes longer
            return lambda: np.copyto(target, source)
        cuts = [half * i // threads // 64 * 64 for i in range(threads)] + [half]
        parts = [(target[a:b], source[a:b]) for a, b in pairwise(cuts)]
        return lambda: list(pool.map(lambda part: np.copyto(*part), parts))

    return found | {"copy (limit)": copy}


def _bound(body: Callable[..., Any], m: Any) -> Callable[..., Any]:
    return lambda *a: body(m, *a)


def _torch_body(work: Any, torch: Any) -> Callable[..., Any]:
    return (lambda x: getattr(torch, work.library)(x, -1)) if work.library else lambda *a: work.body(torch, *a)


def cuda_makers(work: Any, peers: Peers) -> dict[str, Make]:
    import numpy as np
    from cpu_workloads import words

    import kernelgraph as kg

    jax, torch, cupy, special = map(peers.get, ("jax", "torch", "cupy", "scipy.special"))
    ours = kg.kernel_graph(device="cuda")(lambda *a: work.body(words(np, kg.erf), *a))

    def mine(arrays: tuple[Any, ...], shapes: list[tuple[int, ...]]) -> Call:
        given = [kg.asarray(a, device="cuda") for a in arrays]
        call = partial(ours, *given)
        end = time.perf_counter() + WARM  # in which it measures its plans and settles on one
        while time.perf_counter() < end:
            first = leaves(call())[0]
        first.wait()
        return call

    found: dict[str, Make] = {"kernelgraph": mine, **numpy_maker(work, special)}
    if not torch:
        raise SystemExit("needs torch: the peers share its arrays, and the copy is its")
    shared: dict[int, list[Any]] = {}

    def tensors(arrays: tuple[Any, ...]) -> list[Any]:
        """On the GPU, once for all peers."""
        if id(arrays) not in shared:
            shared.clear()
            shared[id(arrays)] = [torch.from_numpy(a).cuda() for a in arrays]
        return shared[id(arrays)]

    def with_torch(arrays: tuple[Any, ...], shapes: list[tuple[int, ...]]) -> Call:
        torch._dynamo.reset()
        return partial(torch.compile(_torch_body(work, torch), dynamic=False), *tensors(arrays))

    def copy(arrays: tuple[Any, ...], shapes: list[tuple[int, ...]]) -> Call:
        source = torch.empty(traffic(arrays, shapes) // 8, dtype=torch.float32, device="cuda")
        return partial(torch.empty_like(source).copy_, source)

    found |= {"torch.compile": with_torch, "copy (limit)": copy}
    if jax:
        body = getattr(jax.nn, work.library) if work.library else _bound(work.body, words(jax.numpy, jax.lax.erf))
        jitted = jax.jit(body)
        found["jax.jit"] = lambda arrays, _: partial(jitted, *map(jax.dlpack.from_dlpack, tensors(arrays)))
    if cupy:
        from cupyx.scipy import special as cupy_special

        body = _bound(work.body, words(cupy, cupy_special.erf))
        fused = cupy.fuse(kernel_name="chain")(body) if work.name == "chain" else body
        found["cupy"] = lambda arrays, _: partial(fused, *map(cupy.from_dlpack, tensors(arrays)))
    return found


def outputs_of(name: str, n: int) -> list[tuple[int, ...]]:
    (first, *_) = shapes_of(name, n)
    if name == "stencil":
        return [(first[0] - 2, first[1] - 2)]
    return {"sum": [()], "black-scholes": [first, first]}.get(name, [first])


def traffic(arrays: tuple[Any, ...], shapes: list[tuple[int, ...]]) -> int:
    """The bytes that must be read and written at least once."""
    return int(sum(a.nbytes for a in arrays) + sum(4 * math.prod(shape) for shape in shapes))
