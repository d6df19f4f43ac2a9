"""Docstrings as they are written here in; reStructuredText with fields for parameters and errors out.

Prose names a parameter and a colon before what it means (`shape: of the result`), several in a row, and says
`Raises OptionError`: each becomes a field, so that the pages of the API have tables of them.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

NAME = r"`?(?:\*{0,2}\w+)`?"
HEAD = re.compile(rf"(?:^|(?<=[.;:] )|(?<=\n))({NAME}(?:(?:, | and ){NAME})*): ")
RAISES = re.compile(r"\bRaises\s+([A-Z]\w+(?:(?:,|\s+and|,\s+and)\s+[A-Z]\w+)*)\s*((?:[^.>]|\.(?=\w))*)\.")


def parameter_names(value: Any) -> list[str]:
    """The parameters of a function, or those with which an object of a class is made; with the keywords of options."""
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return []
    names = [p.name for p in signature.parameters.values()]
    if "options" in names:
        from kernelgraph.dsl.jit.options import KernelGraphKeywords

        names += KernelGraphKeywords.__annotations__
    return [name for name in names if not name.startswith("_") and name not in ("self", "cls")]


def page_of_error(name: str) -> str:
    """The page about an error of this name, with an example, or nothing."""
    page = f"errors/{name}"
    return page if (Path(__file__).parent / f"{page}.md").exists() else ""


def split_docstring(text: str, names: Iterable[str]) -> tuple[str, dict[str, str], dict[str, str], str]:
    """The prose, what each parameter is, when each error is raised, and the example."""
    known = {*names}
    prose, mark, example = text.partition(">>>")
    errors: dict[str, str] = {}
    for match in RAISES.finditer(prose):
        words = " ".join(match[2].split())
        errors |= dict.fromkeys(re.findall(r"[A-Z]\w+", match[1]), words)
    prose = RAISES.sub("", prose)
    parts: list[tuple[list[str], int, int]] = []
    for match in HEAD.finditer(prose):
        said = [name.strip("`*") for name in re.split(r", | and ", match[1])]
        if known.issuperset(said):
            parts.append((said, match.start(), match.end()))
    parameters: dict[str, str] = {}
    ends = [*(start for _, start, _ in parts), len(prose)][1:]
    for (said, _, begin), end in zip(parts, ends, strict=True):
        words = " ".join(prose[begin:end].split()).rstrip(".; ")
        parameters |= dict.fromkeys(said, words)
    before = prose[: parts[0][1]] if parts else prose
    return before.rstrip(), parameters, errors, (mark + example).rstrip()


def escaped_stars(prose: str) -> str:
    """Stars are no emphasis here; between backticks they are the text's own, which letters may follow."""
    parts = prose.split("`")
    outside = [
        re.sub(r"^(?=\w)", r"\\ ", part.replace("*", r"\*")) if i else part.replace("*", r"\*")
        for i, part in enumerate(parts)
    ]
    return "`".join(part if i % 2 else outside[i] for i, part in enumerate(parts))


def with_fields(lines: list[str], names: Iterable[str]) -> list[str]:
    """The lines of a docstring, with a field for each parameter and error that its prose names."""
    before, parameters, errors, example = split_docstring("\n".join(lines), names)
    before = escaped_stars(before)
    fields = [f":param {name}: {escaped_stars(words)}" for name, words in parameters.items()]
    fields += [f":raises {name}: {words or 'see :doc:`errors`'}" for name, words in errors.items()]
    return [*before.splitlines(), "", *example.splitlines(), "", *fields, ""]


# Parameters that mean the same wherever they stand, and are said where something else is meant.
COMMON = {
    "a": "an array",
    "along": "the name of a mesh's dimension: its devices alone take part, each row of them by itself",
    "alpha": "what the negative side tends to",
    "argnames": "the names of arguments to differentiate by, see `kg.grad`",
    "argnums": "the numbers of arguments to differentiate by, see `kg.grad`",
    "args": "the function's arguments",
    "attrs": "approximate=True for the formula with tanh",
    "axis": "a dimension of the array; of a mesh, the name of its row of devices",
    "batch": "arguments of which each device takes its rows",
    "beta1": "how much of the running mean of gradients stays",
    "beta2": "the same of squares",
    "bias": "an array that is added, or None",
    "body_fun": "what a turn does, (i, value) or (value) to the next value",
    "casting": "as in NumPy",
    "classes": "how many there are",
    "concat_axis": "the dimension along which the received parts are joined",
    "cond_fun": "value to whether another turn comes",
    "device": "a name such as 'cpu' or 'cuda:1'; None is the default device",
    "dilation": "the distance of a window's elements",
    "dtype": "a dtype, as NumPy takes it",
    "end": "as in Python's print",
    "eps": "what is added below the root",
    "epsilon": "what is added to the root",
    "f": "(carry, x) to (carry, y)",
    "false_fun": "what is computed where it is false",
    "file": "as in Python's print",
    "first": "the one to compare",
    "fn": "a function of NumPy arrays",
    "folder": "its path",
    "function": "a NumPy function",
    "given": "its two words",
    "groups": "how many groups of channels",
    "has_aux": "whether the function returns a pair, of which the second part is only handed on, see `kg.grad`",
    "high": "the upper end, which is not reached",
    "holomorphic": "whether it is a complex derivative, see `kg.grad`",
    "ieee": "whether NaN and infinities follow IEEE 754 through zeros, see `kg.grad`",
    "init": "the carry before the first turn",
    "init_val": "the value before the first turn",
    "iterable": "of arrays, or of tuples, lists and dicts of arrays",
    "k": "keys, an array",
    "keepdims": "whether the dimensions that are reduced stay, with length 1",
    "key": "a key of `kg.random`",
    "labels": "integers",
    "learning_rate": "what a step is multiplied by",
    "length": "how many turns, where no array says it",
    "logits": "an array of a row for each label",
    "loss": "a NumPy function that gives a number",
    "low": "the lower end",
    "mean": "of each channel",
    "memory": "of temporaries, see `kg.kernel_graph`",
    "mesh": "a `kg.Mesh`",
    "momentum": "how much of the last step stays",
    "n": "how many",
    "name": "what people read it by",
    "named": "its fields by name",
    "nbytes": "how many bytes; 0 for no limit",
    "op": "how parts are joined: sum, mean, max or min",
    "operands": "what both functions take",
    "options": "those of `kg.kernel_graph`",
    "order": "as in NumPy",
    "out": "as in NumPy",
    "p": "the probability",
    "padding": "zeros at each side",
    "pairs": "(from, to) of each device that sends",
    "precision": "what factors of float32 products may be rounded to, see `kg.precision`",
    "pred": "a boolean, traced or not",
    "primals": "the function's arguments, as a tuple",
    "q": "queries, an array",
    "reads": "the arrays that it takes",
    "save": "what the backward pass keeps rather than computes again, see `kg.grad`",
    "scale": "what the products are multiplied by",
    "second": "the one that it is compared with",
    "seed": "an integer",
    "sep": "as in Python's print",
    "shape": "of the result",
    "shared": "arguments of `kg.optimizer.Optimizer`",
    "signature": "as in NumPy",
    "size": "of the window",
    "slope": "of the negative side",
    "split_axis": "the dimension of which each device gets a part",
    "stream": "a `kg.Stream`, another library's stream, or None",
    "stride": "the distance of neighbouring windows",
    "subok": "as in NumPy",
    "tangents": "directions, of the shapes of the arguments",
    "true_fun": "what is computed where it is true",
    "update": "a function of the parameters and their gradients, which gives the new parameters",
    "v": "values, an array",
    "values": "settings by name",
    "var": "of each channel",
    "weight": "an array, or None",
    "where": "as in NumPy",
    "x": "an array, or a tuple, list, dict or dataclass of arrays",
}
# What functions give whose docstring begins with what they do.
NOTHING = "nothing"
RESULTS = {
    "all_to_all": "on each device the parts that it got, joined",
    "checkpoint": "the function, which is called as before",
    "cond": "what the function that ran gives",
    "custom_jvp": "the function, with `defjvp`",
    "custom_vjp": "the function, with `defvjp`",
    "debug.print": NOTHING,
    "device": "a context manager",
    "fori_loop": "the value after the last turn",
    "kernel": "the written arrays, one or a tuple of several",
    "kernel_graph": "a `kg.KernelGraph`; without a function, a decorator that makes one",
    "memory": "a `MemoryAccount`, which prints as a table",
    "override": "a context manager",
    "precision": "a context manager",
    "profile": "a context manager, which gives a `kg.Profile`",
    "save_sharded": NOTHING,
    "scan": "the last carry, and what the turns gave, stacked",
    "spec": "a `kg.Spec`",
    "stream": "a context manager",
    "synchronize": NOTHING,
    "use_allocator": NOTHING,
    "waitall": NOTHING,
    "while_loop": "the value for which `cond_fun` is false",
}
# Errors of functions whose docstring names none, and of layers and collectives, by what precedes a dot.
UNFIT = {
    "TypeError": "for arrays of strings or objects (in a decorated function DTypeError)",
    "ValueError": "for shapes that do not fit (in a decorated function ShapeError)",
}
OF_DEVICES = {
    "OptionError": "for a device that there is no name for",
    "DeviceUnavailableError": "for one that is not here",
}
OF_MESHES = {"ArgumentsError": "outside of a function with `mesh=`", "ShapeError": "for parts that are not equal"}
NO_ERRORS: dict[str, str] = {}
ERRORS = {
    "nn": UNFIT,
    "array": UNFIT,
    **dict.fromkeys(("all_gather", "all_reduce", "all_to_all", "broadcast", "permute", "reduce_scatter"), OF_MESHES),
    "replicate": {"ArgumentsError": "for a mesh of ranks before `kg.distributed.init`"},
    **dict.fromkeys(
        ("default_stream", "memory", "memory_stats", "synchronize", "to_device", "empty_cache"), OF_DEVICES
    ),
    **dict.fromkeys(("current_stream", "stop_gradient", "waitall", "debug.print"), NO_ERRORS),
    "stream": {"DeviceUnavailableError": "for a stream of a device that is not here"},
    "debug.check_finite": {"NotFiniteError": "by the call, where `x` holds NaN or an infinity"},
    "compare": {"TypeError": "for what is no report", "OSError": "for a file that is not there"},
}
AS_OTHERS = re.compile(r"Raises as `(?:kg\.)?(\w+)` does")


def described_result(name: str, value: Any) -> str:
    """What a function gives: what its docstring says after "Returns", or its first sentence; "" for a class."""
    if isinstance(value, type):
        return ""
    prose = " ".join((inspect.getdoc(value) or "").partition(">>>")[0].split())
    said = re.search(r"\bReturns\s+((?:[^.]|\.(?=\w))+)\.", prose)
    if name in RESULTS or said:
        return RESULTS.get(name) or said[1]  # type: ignore[index]
    return re.split(r"(?<=[^.])(?:[.;]|:(?![^(]*\)))(?:\s|$)", prose)[0]


def described_errors(name: str, value: Any, functions: dict[str, Any]) -> dict[str, str] | None:
    """When a function raises which errors, as its docstring says, else by the table; None where nothing is known."""
    text = inspect.getdoc(value) or ""
    if found := split_docstring(text, [])[2]:
        return found
    if other := AS_OTHERS.search(" ".join(text.split())):
        return described_errors(other[1], functions[other[1]], functions)
    return ERRORS.get(name, ERRORS.get(name.partition(".")[0]))


# Classes whose objects functions of ours give: nobody makes them.
GIVEN = frozenset({"Array", "Comparison", "Elementwise", "Event", "KernelGraph", "Profile", "Report", "Sharded"})


def described_parameters(value: Any) -> dict[str, str]:
    """What each parameter is: as the docstring says, else as it is everywhere; "" where nothing says it."""
    if getattr(value, "__name__", "") in GIVEN and isinstance(value, type):
        return {}
    text = inspect.getdoc(value) or ""
    if isinstance(value, type):
        own = value.__init__.__doc__ != object.__init__.__doc__
        text += "\n\n" + (inspect.getdoc(value.__init__) or "" if own else "")
    names = parameter_names(value)
    said = split_docstring(text, names)[1]
    if "options" in names and "options" not in said and "streams" not in said:
        names = names[: names.index("options") + 1]  # those of `kernel_graph`, which it has
    return {name: said.get(name) or COMMON.get(name, "") for name in names if name not in said or said[name]}
