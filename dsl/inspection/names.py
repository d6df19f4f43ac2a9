"""What the caller calls the arrays of a call: `x`, `points[2]`, `model.bias`. Trees in, names out."""

from __future__ import annotations

from collections.abc import Iterator

from ..core.pytree import Tree
from ..jit.specializations import CompiledCall


def names_of_tree_leaves(tree: Tree, name: str) -> Iterator[str]:
    """A name for each leaf of what `name` holds."""
    if tree.kind is None:
        yield name
        return
    for i, child in enumerate(tree.children):
        if not tree.names:
            part = f"[{i}]"
        elif issubclass(tree.kind, dict):
            part = f"[{tree.names[i]!r}]"
        else:
            part = f".{tree.names[i]}"
        yield from names_of_tree_leaves(child, name + part)


def names_of_call_arguments(tree: Tree, parameters: tuple[str, ...]) -> list[str]:
    """A name for each leaf of a call's bound arguments."""
    positional, named = tree.children
    *plain, rest = parameters
    names = [*plain, *(f"{rest}[{i}]" for i in range(len(positional.children) - len(plain)))]
    found = [
        n for name, child in zip(names, positional.children, strict=False) for n in names_of_tree_leaves(child, name)
    ]
    keywords = zip(named.names, named.children, strict=True)
    return found + [n for name, child in keywords for n in names_of_tree_leaves(child, str(name))]


def names_of_program_inputs(inspection: CompiledCall) -> list[str]:
    """A name for each input of the program: arguments, then arrays that the function reads from outside."""
    names, captured = names_of_call_arguments(inspection.tree, inspection.parameters), inspection.captured
    return [names[i] for i in captured.feeds] + [f"captured[{i}]" for i in range(len(captured.arrays))]


def names_of_program_outputs(inspection: CompiledCall) -> list[str]:
    """A name for each output of the program: what is returned, then arguments that are assigned to."""
    captured = inspection.captured
    names = [""] * len(inspection.stages.program.outputs)
    for name, (kind, place) in zip(names_of_tree_leaves(captured.tree, "result"), captured.results, strict=False):
        if kind == "array":
            names[place] = name.removeprefix("result") if name.startswith("result[") else name
    arguments = names_of_call_arguments(inspection.tree, inspection.parameters)
    for leaf, writes in captured.assigned:
        for place in {place for write in writes for place in write.outputs}:
            names[place] = f"{arguments[leaf]} (assigned)"
    return names
