"""What the caller calls the arrays of a call: `x`, `points[2]`, `model.bias`. Trees in, names out."""

from __future__ import annotations

from collections.abc import Iterator
from types import MethodType

from ..core.pytree import Tree
from ..jit.specializations import CompiledCall


def names_within_tree(tree: Tree, name: str) -> Iterator[tuple[str, Tree]]:
    """A name for all that `name` holds, itself included, and the structure of each."""
    yield name, tree
    for i, child in enumerate(tree.children):
        if not tree.names:
            part = f"[{i}]"
        elif tree.kind is not None and issubclass(tree.kind, dict):
            part = f"[{tree.names[i]!r}]"
        else:
            part = ".__self__" if tree.kind is MethodType else f".{tree.names[i]}"
        yield from names_within_tree(child, name + part)


def names_of_result_leaves(tree: Tree) -> Iterator[str]:
    """A name for each leaf of a result."""
    return (part for part, inside in names_within_tree(tree, "result") if inside.kind is None)


def names_within_call_arguments(tree: Tree, parameters: tuple[str, ...]) -> Iterator[tuple[str, Tree]]:
    """A name for all that is in a call's bound arguments, and the structure of each."""
    positional, named = tree.children
    *plain, rest = parameters
    names = [*plain, *(f"{rest}[{i}]" for i in range(len(positional.children) - len(plain)))]
    for name, child in zip((*names, *map(str, named.names)), (*positional.children, *named.children), strict=False):
        yield from names_within_tree(child, name)


def names_of_call_arguments(tree: Tree, parameters: tuple[str, ...]) -> list[str]:
    """A name for each leaf of a call's bound arguments."""
    return [name for name, inside in names_within_call_arguments(tree, parameters) if inside.kind is None]


def names_of_program_inputs(inspection: CompiledCall) -> list[str]:
    """A name for each input of the program: arguments, then arrays that the function reads from outside."""
    names, captured = names_of_call_arguments(inspection.tree, inspection.parameters), inspection.captured
    return [names[i] for i in captured.feeds] + [f"captured[{i}]" for i in range(len(captured.arrays))]


def names_of_program_outputs(inspection: CompiledCall) -> list[str]:
    """A name for each output of the program: what is returned, then arguments that are assigned to."""
    captured = inspection.captured
    names = [""] * len(inspection.stages.program.outputs)
    for name, (kind, place) in zip(names_of_result_leaves(captured.tree), captured.results, strict=False):
        if kind == "array":
            names[place] = name.removeprefix("result") if name.startswith("result[") else name
    arguments = names_of_call_arguments(inspection.tree, inspection.parameters)
    for leaf, writes in captured.assigned:
        for place in {place for write in writes for place in write.outputs}:
            names[place] = f"{arguments[leaf]} (assigned)"
    return names
