"""A NumPy module's source in, the same for jax.numpy out: the changes that a person makes without thinking.

`x[i] = v` becomes `x = x.at[i].set(v)`, `x[i] += v` likewise; a function that returns nothing returns the parameters
that it assigned to, and its callers rebind them; lists as indices become arrays. With `masks`, `x[m] = f(y[m])` becomes
`x = np.where(m, f(y), x)`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator


def functional(source: str, masks: bool = False) -> str:
    """The module rewritten. Assignments to parts of parts (`x[i][j] = v`, `self.x[i] = v`) stay as they are."""
    tree = ast.parse(source.replace("import numpy as np", "import jax.numpy as np"))
    changed: dict[str, list[int]] = {}
    for _ in range(3):  # a function that calls one that assigns, assigns too
        changed = {
            f.name: found for f in tree.body if isinstance(f, ast.FunctionDef) and (found := _changes(f, changed))
        }
    for function in tree.body:
        if isinstance(function, ast.FunctionDef):
            _Rewriter(changed, masks).visit(function)
            if function.name in changed:
                names = [function.args.args[i].arg for i in changed[function.name]]
                function.body.append(ast.parse(f"return ({', '.join(names)},)").body[0])
    return ast.unparse(ast.fix_missing_locations(tree))


def _changes(function: ast.FunctionDef, known: dict[str, list[int]]) -> list[int]:
    """The places of the parameters that a function without results assigns to."""
    if any(isinstance(node, ast.Return) and node.value is not None for node in _own(function)):
        return []
    found = set()
    for node in ast.walk(function):
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AugAssign) else []
        )
        for target in targets:
            for part in target.elts if isinstance(target, ast.Tuple) else [target]:
                if isinstance(part, ast.Subscript) and isinstance(part.value, ast.Name):
                    found.add(part.value.id)
                elif isinstance(node, ast.AugAssign) and isinstance(part, ast.Name):
                    found.add(part.id)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            found |= {a.id for i in known.get(node.func.id, ()) if isinstance(a := node.args[i], ast.Name)}
    return [i for i, parameter in enumerate(function.args.args) if parameter.arg in found]


def _own(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function, not those of functions within it."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, (ast.FunctionDef, ast.Lambda)):
            yield child
            yield from _own(child)


class _Rewriter(ast.NodeTransformer):
    def __init__(self, changed: dict[str, list[int]], masks: bool) -> None:
        self.changed, self.masks = changed, masks

    def _set(self, target: ast.expr, value: ast.expr) -> ast.stmt:
        """`target = value`, or `x = x.at[key].set(value)`."""
        if not isinstance(target, ast.Subscript) or not isinstance(target.value, ast.Name):
            return ast.Assign([target], value)
        name, key, new = target.value.id, ast.unparse(target.slice), ast.unparse(value)
        if self.masks and isinstance(target.slice, (ast.Name, ast.Compare)) and f"[{key}]" in new:
            return ast.parse(f"{name} = np.where({key}, {new.replace(f'[{key}]', '')}, {name})").body[0]
        place = ast.unparse(ast.Subscript(ast.Name(f"{name}.at"), target.slice))
        return ast.parse(f"{name} = {place}.set({new})").body[0]

    def visit_Assign(self, node: ast.Assign) -> ast.AST | list[ast.stmt]:
        self.generic_visit(node)
        (target, *more) = node.targets
        if more:
            return node
        if isinstance(target, ast.Tuple) and any(isinstance(part, ast.Subscript) for part in target.elts):
            parts = [ast.Name(f"_part{i}", ast.Store()) for i in range(len(target.elts))]
            first: ast.stmt = ast.Assign([ast.Tuple(list(parts), ast.Store())], node.value)
            rest = [self._set(part, ast.Name(new.id, ast.Load())) for part, new in zip(target.elts, parts, strict=True)]
            return [first, *rest]
        return self._set(target, node.value)

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        self.generic_visit(node)
        if not _is_part(node.target):
            return node
        old = ast.parse(ast.unparse(node.target), mode="eval").body
        return self._set(node.target, ast.BinOp(old, node.op, node.value))

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        self.generic_visit(node)
        call = node.value
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in self.changed:
            places = [call.args[i] for i in self.changed[call.func.id]]
            if all(isinstance(place, ast.Name) for place in places):
                names = ", ".join(ast.unparse(place) for place in places)
                return ast.parse(f"({names},) = {ast.unparse(call)}").body[0]
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        self.generic_visit(node)
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        new = [
            ast.parse(f"np.array({ast.unparse(p)})", mode="eval").body if isinstance(p, ast.List) else p for p in parts
        ]
        node.slice = ast.Tuple(new, ast.Load()) if isinstance(node.slice, ast.Tuple) else new[0]
        return node


def _is_part(target: ast.expr) -> bool:
    return isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name)
