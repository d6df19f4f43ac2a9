"""PyTorch's own tables of convolutions and attention, which it tests itself with, run through `kg.nn` on a CPU.

python -m tests.torch_tables [--only conv2d]    (or: make torch-tables)

The samples, and the inputs that must be refused, are those of `op_db` in the installed PyTorch. A row counts values and
gradients (of real numbers), of each dtype: right, refused by us, wrong; PyTorch computes what is right in float64
(complex128). Samples with dropout are random, and are left out. Arrays of different dtypes, which PyTorch refuses, are
promoted as NumPy does, and are left out too. The exit code is 1 where one is wrong, or accepted and PyTorch refuses it.
"""

from __future__ import annotations

import argparse
import sys
import types
import unittest
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np

import kernelgraph as kg

BOUNDS = {"float64": 1e-9, "complex64": 1e-4, "float32": 1e-4, "bfloat16": 6e-2}  # of the largest element


def attention(q: Any, k: Any, v: Any, *masks: Any, **options: Any) -> Any:
    scale, mask = options.get("scale"), masks[0] if masks else None
    if options.get("enable_gqa"):
        k, v = (np.repeat(a, q.shape[-3] // a.shape[-3], -3) for a in (k, v))
    return kg.nn.attention(q, k, v, mask, causal=options.get("is_causal", False), scale=scale)


def transposed(function: Callable[..., Any]) -> Callable[..., Any]:
    """PyTorch passes options by place too."""
    names = ("stride", "padding", "output_padding", "groups", "dilation")
    return lambda x, w, bias=None, *rest, **options: function(
        x, w, bias, **dict(zip(names, rest, strict=False)), **options
    )


def forward(function: Callable[..., Any]) -> Callable[..., Any]:
    names = ("stride", "padding", "dilation", "groups")
    return lambda x, w, bias=None, *rest, **options: function(
        x, w, bias, **dict(zip(names, rest, strict=False)), **options
    )


TABLES: dict[str, Callable[..., Any]] = {
    **{f"conv{n}d": forward(getattr(kg.nn, f"conv{n}d")) for n in (1, 2, 3)},
    **{f"conv_transpose{n}d": transposed(getattr(kg.nn, f"conv_transpose{n}d")) for n in (1, 2, 3)},
    "scaled_dot_product_attention": attention,
}


def operations() -> dict[str, Any]:
    """PyTorch's rows. Its test tools import a package for tests of printed text, which none of these is."""
    if "expecttest" not in sys.modules:
        stand_in: Any = types.ModuleType("expecttest")
        stand_in.TestCase = unittest.TestCase
        sys.modules["expecttest"] = stand_in
    from torch.testing._internal.common_methods_invocations import op_db

    return {op.name.removeprefix("nn.functional."): op for op in op_db}


def as_numpy(x: Any) -> Any:
    import torch

    if not torch.is_tensor(x):
        return x
    x = x.detach()
    return x.float().numpy().astype(ml_dtypes.bfloat16) if x.dtype == torch.bfloat16 else x.numpy()


def wide(x: Any) -> Any:
    import torch

    if not torch.is_tensor(x) or not (x.is_floating_point() or x.is_complex()):
        return x
    return x.detach().to(torch.complex128 if x.is_complex() else torch.float64)


def is_near(found: Any, wanted: Any, bound: float) -> bool:
    found, wanted = np.asarray(found), np.asarray(wanted)
    if found.shape != wanted.shape:
        return False
    found = found.astype(np.complex128 if wanted.dtype.kind == "c" else np.float64)
    largest = float(np.abs(wanted[np.isfinite(wanted)]).max(initial=1.0))
    return bool(np.allclose(found, wanted, rtol=0, atol=bound * largest, equal_nan=True))


def outcome(compute: Callable[[], Sequence[Any]], wanted: Sequence[Any], bound: float) -> str:
    try:
        found = compute()
    except (kg.KernelGraphError, ValueError, TypeError) as error:
        return f"refused: {type(error).__name__}: {str(error).splitlines()[0][:150]}"
    return "right" if all(map(is_near, found, wanted, [bound] * len(wanted))) else "wrong"


def outcomes_of_sample(ours: Callable[..., Any], op: Any, sample: Any, dtype: str) -> tuple[str, str]:
    """Of values and of gradients."""
    import torch

    given = [sample.input, *sample.args, *(a for a in sample.kwargs.values() if torch.is_tensor(a))]
    options = {name: a for name, a in sample.kwargs.items() if not torch.is_tensor(a)}
    args = [wide(a) for a in given]
    leaves = [a.requires_grad_() for a in args if torch.is_tensor(a) and (a.is_floating_point() or a.is_complex())]
    result = op.op(*args, **options)
    ct = torch.ones_like(result) / max(1, result.numel()) ** 0.5
    slopes = torch.autograd.grad(result, leaves, ct, allow_unused=True, materialize_grads=True)
    arrays = [as_numpy(a) for a in given]
    which = tuple(i for i, a in enumerate(args) if any(a is leaf for leaf in leaves))

    def call(*traced: Any) -> Any:
        return ours(*traced, **options)

    def loss(*traced: Any) -> Any:
        found = call(*traced)
        return (found.astype(np.float32) if dtype == "bfloat16" else found).sum() / max(1, result.numel()) ** 0.5

    def gradients() -> Sequence[Any]:
        return [np.asarray(a) for a in kg.kernel_graph(lambda *a: kg.grad(loss, which)(*a), device="cpu")(*arrays)]

    def values() -> Sequence[Any]:
        return [np.asarray(kg.kernel_graph(call, device="cpu")(*arrays))]

    bound = BOUNDS[dtype]
    is_real = not result.is_complex()
    return (
        outcome(values, [result.detach().numpy()], bound),
        outcome(gradients, [s.numpy() for s in slopes], bound) if is_real else "",
    )


def count_row(name: str, op: Any, shown: Counter[str]) -> list[str]:
    import torch

    lines, ours = [], TABLES[name]
    for dtype in BOUNDS:
        kind = getattr(torch, dtype)
        if not op.supports_dtype(kind, "cpu"):
            continue
        counts = {"values": Counter[str](), "gradients": Counter[str]()}
        for sample in op.sample_inputs("cpu", kind):
            if sample.kwargs.get("dropout_p"):
                continue
            for what, found in zip(counts, outcomes_of_sample(ours, op, sample, dtype), strict=True):
                counts[what][found.partition(":")[0]] += 1
                if found not in ("right", ""):
                    shapes = [tuple(a.shape) if torch.is_tensor(a) else a for a in (sample.input, *sample.args)]
                    shown[f"{name} {dtype} {what} {shapes} {sample.kwargs}: {found}"] += 1
        cells = " | ".join(str(counts[what][each]) for what in counts for each in ("right", "refused", "wrong"))
        lines.append(f"| {name} {dtype} | {cells} |")
    errors = Counter[str]()
    for each in op.error_inputs("cpu") if op.error_inputs_func else ():
        sample = each.sample_input
        if len({a.dtype for a in (sample.input, *sample.args) if torch.is_tensor(a)}) > 1:
            continue
        given = [as_numpy(a) for a in (sample.input, *sample.args)]
        try:
            np.asarray(kg.kernel_graph(lambda *a, o=sample.kwargs: ours(*a, **o), device="cpu")(*given))
            errors["accepted"] += 1
            shown[f"{name} accepts {[getattr(a, 'shape', a) for a in given]} {sample.kwargs}: {each.error_regex}"] += 1
        except (kg.KernelGraphError, ValueError, TypeError):
            errors["refused"] += 1
    return [
        *lines,
        *([f"| {name}, to be refused | {errors['refused']} refused, {errors['accepted']} accepted |"] * bool(errors)),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", nargs="*", default=list(TABLES))
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    shown, rows = Counter[str](), operations()
    print("| | values right | refused | wrong | gradients right | refused | wrong |\n|---|--:|--:|--:|--:|--:|--:|")
    for name in options.only:
        print(*count_row(name, rows[name], shown), sep="\n", flush=True)
    for line, times in shown.items():
        print(f"{times}x {line}")
    return int(any(": wrong" in line or " accepts " in line for line in shown))


if __name__ == "__main__":
    sys.exit(main())
