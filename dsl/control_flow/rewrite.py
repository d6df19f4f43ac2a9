"""Python's control flow as calls: a function's syntax tree in, one whose decisions are made by `hooks` out.

`if`, `while`, `for`, conditional expressions, `and`, `or`, `not`, chained comparisons and `assert` become calls of
HOOKS with the parts as functions; jumps become flags. Lines and columns stay the user's. Plain values behave as before
(the technique is AutoGraph's, Moldovan et al. 2018).
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterable, Iterator, Sequence
from inspect import CO_OPTIMIZED
from types import CodeType
from typing import Any

from ..core.spec import SCALAR_TYPES
from ..trace.trace import HOOKS
from .math_functions import MATH_FUNCTIONS
from .source import FunctionNode, SourceUnavailable, syntax_tree_of_function

PREFIX = "_kernelgraph_"
VALUE, CONTINUED = f"{PREFIX}value", f"{PREFIX}continued"  # how the names of these begin
_INSPECTORS = {"locals", "vars", "dir", "eval", "exec"}  # these see the names of a frame
_OF_OTHERS = {"vars", "dir"}  # with an argument these do not
_NESTED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_SUSPENDING = (ast.Yield, ast.YieldFrom, ast.Await, ast.AsyncFor, ast.AsyncWith)
# builtins that ask an array for its value, and NumPy's class, which makes one
DECIDING_CALLS = frozenset(
    {"bool", "complex", "float", "int", "len", "max", "min", "ndarray", "range", "sorted", "sum"}
)
DECIDING_CALLS |= {"round", "floor", "ceil", "trunc"}
DECIDING_CALLS |= {"pow", "ldexp"}  # and these take no stand-in for an int
DECIDING_CALLS |= {function.__name__ for function in MATH_FUNCTIONS}
DECIDING_CALLS |= {kind.__name__ for kind in SCALAR_TYPES} | {"bool_", "intp", "uintp"}
FOLDING_CALLS = frozenset({"all", "any", "max", "min", "sum"})  # builtins that a generator is given to
_FOLDED_BY = {"generated": FOLDING_CALLS, "folded": FOLDING_CALLS - {"all", "any"}}  # by the hook that does it
CONSUMING_CALLS = FOLDING_CALLS | {"dict", "list", "set", "sorted", "tuple"}  # which go through a generator at once
CLAUSE = "ComprehensionClause"
ITERATOR_CALLS = frozenset({"zip", "enumerate", "reversed", "ndindex", "ndenumerate", "repeat"})
ITERATOR_CALLS |= {"filter", "map", "product"}


def code_with_control_flow_calls(code: CodeType) -> CodeType:
    """The code of a function with its control flow as calls. Raises NoSource, saying why that cannot be."""
    key = code, code.co_filename  # equal ones may stand in several files
    known = _REWRITTEN.get(key)
    if known is None:
        try:
            known = _rewrite_control_flow_of_code(code)
        except SourceUnavailable as error:
            known = error
        _REWRITTEN[key] = known
    if isinstance(known, SourceUnavailable):
        raise known
    return known


_REWRITTEN: dict[tuple[CodeType, str], CodeType | SourceUnavailable] = {}


def _rewrite_control_flow_of_code(code: CodeType) -> CodeType:
    source = syntax_tree_of_function(code)
    node = rewrite_function_tree(source.node)
    made: ast.stmt = node if isinstance(node, ast.FunctionDef) else ast.copy_location(ast.Expr(node), node)
    if isinstance(made, ast.FunctionDef):
        made.decorator_list = []
    body: list[ast.stmt] = [made]
    if source.owner:  # private names are mangled with the class's name
        owner = ast.parse(f"class {source.owner}: pass").body[0]
        assert isinstance(owner, ast.ClassDef)
        owner.body = body
        body = [owner]
    free = [name for name in code.co_freevars if not (source.owner and name == "__class__")]
    if free:
        body.insert(0, ast.Assign([ast.Name(name, ast.Store()) for name in free], ast.Constant(None)))
    bound = source.owner or (made.name if isinstance(made, ast.FunctionDef) else "")
    if bound and bound not in free:  # what it calls so within is a global, itself or not
        body.insert(0, ast.Global([bound]))
    factory = _function_definition_node(f"{PREFIX}factory", [], body)
    module = ast.fix_missing_locations(ast.Module([ast.copy_location(factory, source.node)], []))
    flags = code.co_flags & 0x1FF0000
    compiled = compile(module, code.co_filename, "exec", flags, dont_inherit=True)
    found = next(c for c in _rewritten_code_and_nested_code(compiled) if c.co_name == code.co_name)
    if {*found.co_freevars} != {*code.co_freevars}:
        raise SourceUnavailable("its names are not those of its source")
    return _rewritten_code_with_name(found, code.co_name, code.co_qualname)


def _rewritten_code_and_nested_code(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _rewritten_code_and_nested_code(constant)


def _rewritten_code_with_name(code: CodeType, name: str, qualname: str) -> CodeType:
    """Parts of a function bear its name in tracebacks."""
    is_class = not code.co_flags & CO_OPTIMIZED
    constants: list[Any] = []
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            inner = constant.co_name
            if inner.startswith(PREFIX):  # a part
                constant = _rewritten_code_with_name(constant, name, qualname)
            elif constant.co_qualname == inner:  # the name is declared global
                constant = _rewritten_code_with_name(constant, inner, inner)
            else:
                constant = _rewritten_code_with_name(
                    constant, inner, f"{qualname}{'' if is_class else '.<locals>'}.{inner}"
                )
        elif is_class and constant == code.co_qualname:
            constant = qualname
        constants.append(constant)
    return code.replace(co_consts=tuple(constants), co_name=name, co_qualname=qualname)


def rewrite_function_tree(node: FunctionNode) -> FunctionNode:
    """A function's tree with its control flow as calls. Raises NoSource where Python's own is needed."""
    return _FunctionRewriter(copy.deepcopy(node)).rewritten()


Rewritten = tuple[list[ast.stmt], set[str]]  # what replaces a statement, and the flags of the jumps that it may make


class _FunctionRewriter:
    """One function: nested ones are others."""

    def __init__(self, node: FunctionNode) -> None:
        self.node = node
        self.count = 0
        self.depth = 0  # how many parts are around
        self.loops: list[_EnclosingLoop] = []
        self.globals: set[str] = set()
        self.nonlocals: set[str] = set()
        self.returned = self.value = ""  # the names of the flag and of what is returned
        self.flags: set[str] = set()
        self.growing = {*_names_of_growing_lists(node)}  # also by functions within

    def rewritten(self) -> FunctionNode:
        node = self.node
        own = [
            *_syntax_nodes_outside_nested_functions(*(node.body if isinstance(node, ast.FunctionDef) else [node.body]))
        ]
        if any(isinstance(n, _SUSPENDING) for n in own):
            raise SourceUnavailable("it is a generator or a coroutine")
        if any(_rewritten_call_reads_local_names(n) for n in own):
            raise SourceUnavailable("it looks at its own names (locals(), eval() or the like)")
        if isinstance(node, ast.Lambda):
            node.body = self.expression(node.body)
            return node
        for n in own:
            if isinstance(n, ast.Global):
                self.globals.update(n.names)
            if isinstance(n, ast.Nonlocal):
                self.nonlocals.update(n.names)
        statements = node.body
        head: list[ast.stmt] = []
        if ast.get_docstring(node, clean=False) is not None:
            head, statements = statements[:1], statements[1:]
        names = {*_names_bound_by(statements)}
        if _statements_contain_return(statements):
            self.returned, self.value = self.fresh("returned"), self.fresh("value")
            if _statements_fall_through(statements):
                last = statements[-1]
                statements = [*statements, ast.copy_location(ast.Return(ast.Constant(None)), last)]
            head += [
                _assign_statement_node(self.returned, ast.Constant(False)),
                _assign_statement_node(self.value, _control_flow_hook_expression("UNSET")),
            ]
        body, _ = self.block(statements)
        if self.returned:
            body.append(ast.Return(_hook_call_expression("result", ast.Name(self.value, ast.Load()))))
        declared = self.declarations(names)
        split = 1 if head and isinstance(head[0], ast.Expr) else 0
        node.body = [*head[:split], *declared, *head[split:], *body]
        for statement in node.body[split:]:
            _set_places_of_rewritten_nodes(statement, node)
        return node

    def declarations(self, names: set[str]) -> list[ast.stmt]:
        """Whose the names are that are bound."""
        declared: list[ast.stmt] = []
        if self.globals:
            declared.append(ast.Global(sorted(self.globals)))
        if self.nonlocals:
            declared.append(ast.Nonlocal(sorted(self.nonlocals)))
        local = sorted((names | self.flags) - self.globals - self.nonlocals)
        if local:  # names that parts alone assign are still this function's
            unbound = ast.Assign([ast.Name(name, ast.Store()) for name in local], ast.Constant(None))
            declared.append(ast.If(ast.Constant(False), [unbound], []))
        return declared

    def fresh(self, what: str) -> str:
        self.count += 1
        return f"{PREFIX}{what}_{self.count}"

    # statements: each gives what replaces it, and the flags of the jumps that it may have made

    def block(self, statements: Sequence[ast.stmt]) -> Rewritten:
        out: list[ast.stmt] = []
        for i, statement in enumerate(statements):
            new, jumps = self.statement(statement)
            for made in new:
                _set_places_of_rewritten_nodes(made, statement)
            out += new
            if isinstance(statement, (ast.Return, ast.Break, ast.Continue)):
                return out, jumps
            rest = statements[i + 1 :]
            if jumps and rest:
                self.depth += 1
                inner, more = self.block(rest)
                self.depth -= 1
                out += [_node_at_source_place(made, rest[0]) for made in self.unless(jumps, inner)]
                return out, jumps | more
            if jumps:
                return out, jumps
        return out, set()

    def statement(self, s: ast.stmt) -> Rewritten:
        if isinstance(s, (ast.Global, ast.Nonlocal)):
            return [ast.Pass()], set()
        method = getattr(self, f"rewrite_{type(s).__name__}", None)
        if method is not None:
            found: Rewritten = method(s)
            return found
        return [self.children(s)], set()

    def rewrite_Return(self, s: ast.Return) -> Rewritten:
        value = self.expression(s.value) if s.value is not None else ast.Constant(None)
        if not self.depth:
            return [ast.Return(value)], set()
        return [_assign_statement_node(self.value, value), _assign_statement_node(self.returned, ast.Constant(True))], {
            self.returned
        }

    def rewrite_Assign(self, s: ast.Assign) -> Rewritten:
        names = s.targets[0] if len(s.targets) == 1 else None
        s = self.children(s)
        if isinstance(names, ast.Tuple) and isinstance(s.value, ast.Tuple) and len(names.elts) == len(s.value.elts):
            s.value.elts = [*map(self.assigned_expression, names.elts, s.value.elts)]
        else:
            s.value = self.assigned_expression(names, s.value)
        return [s], set()

    def assigned_expression(self, target: ast.expr | None, value: ast.expr) -> ast.expr:
        """What a name is given: a list that may grow as a call of `new_list`, all else as it is."""
        return _new_list_expression(value) if isinstance(target, ast.Name) and target.id in self.growing else value

    def rewrite_Break(self, s: ast.Break) -> Rewritten:
        return [_assign_statement_node(self.loops[-1].broke, ast.Constant(True))], {self.loops[-1].broke}

    def rewrite_Continue(self, s: ast.Continue) -> Rewritten:
        return [_assign_statement_node(self.loops[-1].continued, ast.Constant(True))], {self.loops[-1].continued}

    def rewrite_AnnAssign(self, s: ast.AnnAssign) -> Rewritten:
        if not isinstance(s.target, ast.Name):
            return [self.children(s)], set()
        if s.value is None:
            return [ast.Pass()], set()
        return [ast.Assign([s.target], self.assigned_expression(s.target, self.expression(s.value)))], set()

    def test(self, node: ast.expr) -> Any:
        """An expression of which only the truth counts."""
        return _ExpressionRewriter(self).test(node)

    def rewrite_Assert(self, s: ast.Assert) -> Rewritten:
        if not __debug__:
            return [s], set()
        test = self.expression(s.test)
        failing: list[ast.stmt] = [
            _node_at_source_place(ast.Assert(ast.Constant(False), s.msg and self.expression(s.msg)), s)
        ]
        fail = self.shared(failing, {*_names_bound_by(failing)}, "otherwise")
        return [fail, ast.Expr(_hook_call_expression("assert_", test, _name_expression_node(fail)))], set()

    def rewrite_If(self, s: ast.If) -> Rewritten:
        test = self.test(s.test)
        then, jumps = self.part(s.body, "then")
        other, more = self.part(s.orelse, "otherwise") if s.orelse else (None, set())
        parts = [_name_expression_node(then), _name_expression_node(other) if other else ast.Constant(None)]
        defined: list[ast.stmt] = [then, other] if other else [then]
        return [*defined, ast.Expr(_hook_call_expression("if_", test, *parts))], jumps | more

    def rewrite_While(self, s: ast.While) -> Rewritten:
        test = self.part([ast.copy_location(_ExpressionPart(s.test), s.test)], "test")[0]
        return self.loop(s, "while_", [test], [_name_expression_node(test)], [])

    def rewrite_For(self, s: ast.For) -> Rewritten:
        item = self.fresh("item")
        first = ast.copy_location(ast.Assign([s.target], ast.Name(item, ast.Load())), s.target)
        return self.loop(s, "for_", [], [_loop_iterable_expression(self.expression(s.iter))], [first], [item])

    def loop(
        self,
        s: ast.While | ast.For,
        hook: str,
        before: list[ast.stmt],
        given: list[ast.expr],
        first: list[ast.stmt],
        parameters: Sequence[str] = (),
    ) -> Rewritten:
        loop = _EnclosingLoop(self.fresh("broke"), self.fresh("continued"))
        self.flags |= {loop.broke, loop.continued}
        self.loops.append(loop)
        body, jumps = self.part([*first, *s.body], "body", parameters)
        self.loops.pop()
        out: list[ast.stmt] = []
        if loop.broke in jumps:
            out.append(_assign_statement_node(loop.broke, ast.Constant(False)))
        if loop.continued in jumps:
            nonlocals = [n for n in body.body if isinstance(n, (ast.Global, ast.Nonlocal))]
            at = len(nonlocals)
            body.body.insert(at, _assign_statement_node(loop.continued, ast.Constant(False)))
            out.append(_assign_statement_node(loop.continued, ast.Constant(False)))
        stops = sorted(jumps - {loop.continued})
        stop = [_lambda_expression_node(_any_flag_expression(stops))] if stops else []
        out += [*before, body, ast.Expr(_hook_call_expression(hook, *given, _name_expression_node(body), *stop))]
        jumps = jumps - {loop.broke, loop.continued}
        if s.orelse and stops:
            self.depth += 1
            inner, more = self.block(s.orelse)
            self.depth -= 1
            out += self.unless(set(stops), inner)
            jumps |= more
        elif s.orelse:
            inner, more = self.block(s.orelse)
            out += inner
            jumps |= more
        return out, jumps

    def rewrite_Try(self, s: ast.Try) -> Rewritten:
        if any(
            isinstance(n, (ast.Return, ast.Break, ast.Continue))
            for n in _syntax_nodes_outside_nested_functions(*s.finalbody)
        ):
            raise SourceUnavailable("it jumps out of a finally")
        s.body, jumps = self.block(s.body)
        if s.handlers:
            s.body = [_node_at_source_place(_with_statement_node(_hook_call_expression("handled"), s.body), s.body[0])]
        if s.orelse and jumps:
            self.depth += 1
            inner, more = self.block(s.orelse)
            self.depth -= 1
            s.orelse = self.unless(jumps, inner)
            jumps = jumps | more
        else:
            s.orelse, more = self.block(s.orelse)
            jumps = jumps | more
        for handler in s.handlers:
            handler.type = None if handler.type is None else self.expression(handler.type)
            handler.body, more = self.block(handler.body)
            if handler.name is not None:
                looked_at = _hook_call_expression("caught", ast.Name(handler.name, ast.Load()))
                handler.body = [_node_at_source_place(ast.Expr(looked_at), handler.body[0]), *handler.body]
            jumps = jumps | more
        s.finalbody, _ = self.block(s.finalbody)
        return [s], jumps

    rewrite_TryStar = rewrite_Try

    def rewrite_With(self, s: ast.With) -> Rewritten:
        s.items = [self.children(item) for item in s.items]
        s.body, jumps = self.block(s.body)
        within = _with_statement_node(_hook_call_expression("handled", ast.Constant(0)), s.body)
        s.body = [_node_at_source_place(within, s.body[0])]
        return [s], jumps

    def rewrite_Match(self, s: ast.Match) -> Rewritten:
        s.subject = self.expression(s.subject)
        singletons = [n for case in s.cases for n in ast.walk(case.pattern) if isinstance(n, ast.MatchSingleton)]
        if any(type(n.value) is bool for n in singletons):
            s.subject = _node_at_source_place(_hook_call_expression("matched", s.subject), s.subject)
        jumps: set[str] = set()
        for case in s.cases:
            if case.guard is not None:
                case.guard = self.expression(case.guard)
            case.body, more = self.block(case.body)
            jumps |= more
        return [s], jumps

    def rewrite_ClassDef(self, s: ast.ClassDef) -> Rewritten:
        s.bases = [self.expression(base) for base in s.bases]
        for node in ast.walk(s):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                _rewrite_nested_function(node)
        return [s], set()

    def rewrite_FunctionDef(self, s: ast.FunctionDef) -> Rewritten:
        s.decorator_list = [self.expression(d) for d in s.decorator_list]
        s.args.defaults = [self.expression(d) for d in s.args.defaults]
        s.args.kw_defaults = [d and self.expression(d) for d in s.args.kw_defaults]
        _rewrite_nested_function(s)
        return [s], set()

    def rewrite_AsyncFunctionDef(self, s: ast.AsyncFunctionDef) -> Rewritten:
        return [s], set()

    def part(
        self, statements: Sequence[ast.stmt], what: str, parameters: Sequence[str] = ()
    ) -> tuple[ast.FunctionDef, set[str]]:
        """Statements as a function that shares this function's names."""
        if isinstance(statements[0], _ExpressionPart):
            value = statements[0].value
            body: list[ast.stmt] = [_node_at_source_place(ast.Return(self.test(value)), value)]
            stored, jumps = {*_names_bound_by([ast.Expr(value)])}, set[str]()
        else:
            self.depth += 1
            body, jumps = self.block(statements)
            self.depth -= 1
            stored = {*_names_bound_by(body)}
        return self.shared(body, stored, what, parameters), jumps

    def shared(
        self, body: list[ast.stmt], stored: set[str], what: str, parameters: Sequence[str] = ()
    ) -> ast.FunctionDef:
        outer, inner = sorted(stored & self.globals), sorted(stored - self.globals - {*parameters})
        inner = [n for n in inner if not (n.startswith(PREFIX) and n.rpartition("_")[0] in _PARTS)]
        head: list[ast.stmt] = []
        if outer:
            head.append(ast.Global(outer))
        if inner:
            head.append(ast.Nonlocal(inner))
        return _function_definition_node(self.fresh(what), parameters, [*head, *(body or [ast.Pass()])])

    def unless(self, flags: set[str], body: list[ast.stmt]) -> list[ast.stmt]:
        rest = self.shared(body, {*_names_bound_by(body)}, "rest")
        return [
            rest,
            ast.Expr(
                _hook_call_expression(
                    "if_",
                    _hook_call_expression("not_", _any_flag_expression(sorted(flags))),
                    _name_expression_node(rest),
                    ast.Constant(None),
                )
            ),
        ]

    # expressions

    def expression(self, node: Any) -> Any:
        return _ExpressionRewriter(self).visit(node)

    def children(self, node: Any) -> Any:
        """A node with its expressions rewritten."""
        return _ExpressionRewriter(self).generic_visit(node)


class _ExpressionPart(ast.stmt):
    """A part that gives the value of an expression."""

    def __init__(self, value: ast.expr) -> None:
        super().__init__()
        self.value = value


_PARTS = {f"{PREFIX}{what}" for what in ("then", "otherwise", "test", "body", "rest")}


class _EnclosingLoop:
    def __init__(self, broke: str, continued: str) -> None:
        self.broke, self.continued = broke, continued


_IDENTITY: dict[type, str] = {ast.Is: "is_", ast.IsNot: "is_not"}
_MEMBERSHIP: dict[type, str] = {ast.In: "is_in", ast.NotIn: "is_not_in"}


class _ExpressionRewriter(ast.NodeTransformer):
    """Decisions within an expression."""

    def __init__(self, function: _FunctionRewriter) -> None:
        self.function = function

    def test(self, node: ast.expr) -> Any:
        """An expression of which only the truth counts: what is joined is a bool."""
        if isinstance(node, ast.BoolOp) and all(map(_expression_can_move_into_lambda, node.values[1:])):
            return self._boolean_operator_as_hook_calls(node, [self.test(value) for value in node.values], "test")
        return self.visit(node)

    def _boolean_operator_as_hook_calls(self, node: ast.BoolOp, values: list[Any], suffix: str) -> Any:
        found = values[-1]
        hook = ("and_" if isinstance(node.op, ast.And) else "or_") + suffix
        for value in reversed(values[:-1]):
            found = _node_at_source_place(_hook_call_expression(hook, value, _lambda_expression_node(found)), node)
        return found

    def visit_IfExp(self, node: ast.IfExp) -> Any:
        node.test, node.body, node.orelse = self.test(node.test), self.visit(node.body), self.visit(node.orelse)
        if not (_expression_can_move_into_lambda(node.body) and _expression_can_move_into_lambda(node.orelse)):
            return node
        return _node_at_source_place(
            _hook_call_expression(
                "choose", node.test, _lambda_expression_node(node.body), _lambda_expression_node(node.orelse)
            ),
            node,
        )

    def visit_BoolOp(self, node: ast.BoolOp) -> Any:
        self.generic_visit(node)
        return (
            self._boolean_operator_as_hook_calls(node, node.values, "")
            if all(map(_expression_can_move_into_lambda, node.values[1:]))
            else node
        )

    def visit_Subscript(self, node: ast.Subscript) -> Any:
        """What is indexed by more than constants may be a list of numbers, one for each turn of a loop."""
        self.generic_visit(node)
        by_name = any(isinstance(n, ast.Name) for n in ast.walk(node.slice))
        if isinstance(node.ctx, ast.Load) and by_name and not isinstance(node.slice, (ast.Slice, ast.Tuple)):
            node.value = _node_at_source_place(_hook_call_expression("indexed", node.value), node.value)
        return node

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Any:
        if not isinstance(node.op, ast.Not):
            return self.generic_visit(node)
        return _node_at_source_place(_hook_call_expression("not_", self.test(node.operand)), node)

    def visit_Compare(self, node: ast.Compare) -> Any:
        self.generic_visit(node)
        if len(node.ops) == 1 and (hook := _IDENTITY.get(type(node.ops[0]))) is not None:
            sides = node.left, node.comparators[0]
            known = any(isinstance(side, ast.Constant) and side.value in (None, ...) for side in sides)
            if known:  # a name may stand for several kinds of value, None among them
                node.left = _node_at_source_place(_hook_call_expression("whether_none", node.left), node.left)
                return node
            return _node_at_source_place(_hook_call_expression(hook, *sides), node)
        if len(node.ops) == 1 and (hook := _MEMBERSHIP.get(type(node.ops[0]))) is not None:
            return _node_at_source_place(_hook_call_expression(hook, node.left, node.comparators[0]), node)
        if len(node.ops) == 1 or not all(map(_expression_can_move_into_lambda, node.comparators)):
            return node
        names = ast.Tuple([ast.Constant(type(op).__name__) for op in node.ops], ast.Load())
        return _node_at_source_place(
            _hook_call_expression("compare", node.left, names, *map(_lambda_expression_node, node.comparators)), node
        )

    def visit_ListComp(self, node: ast.ListComp) -> Any:
        loops = _may_comprehension_be_loops(node)
        self.generic_visit(node)
        return _comprehension_clause_expression(node, "listed") if loops else node

    def visit_Call(self, node: ast.Call) -> Any:
        """`super()` finds its arguments in its frame, which may be a part's; float() and its like decide."""
        name, given = _rewritten_call_function_name(node), node.args[0] if node.args else None
        hook = "generated" if isinstance(given, ast.GeneratorExp) else "folded"
        if (
            name in _FOLDED_BY[hook]
            and len(node.args) == 1
            and not node.keywords
            and _may_comprehension_be_loops(given)
        ):
            self.generic_visit(given)  # type: ignore[arg-type]
            return _node_at_source_place(_comprehension_clause_expression(given, hook, node.func), node)
        self.generic_visit(node)
        plain = not node.keywords and not any(isinstance(a, ast.Starred) for a in node.args)
        if name in DECIDING_CALLS and (plain or name == "ndarray"):
            made = ast.Call(_control_flow_hook_expression("call"), [node.func, *node.args], node.keywords)
            return _node_at_source_place(made, node)
        if name == "append" and isinstance(node.func, ast.Attribute) and plain:
            node.args = [*map(_new_list_expression, node.args)]
        if isinstance(node.func, ast.Name) and node.func.id == "super" and not (node.args or node.keywords):
            node.args = self.arguments_of_super()
        return node

    def arguments_of_super(self) -> list[ast.expr]:
        """What it finds in its frame; nothing in a function without parameters."""
        own = self.function.node.args
        first = [*own.posonlyargs, *own.args][:1]
        return [ast.Name(name, ast.Load()) for parameter in first for name in ("__class__", parameter.arg)]

    def visit_Lambda(self, node: ast.Lambda) -> Any:
        node.args.defaults = [self.visit(d) for d in node.args.defaults]
        _rewrite_nested_function(node)
        return node


def _rewrite_nested_function(node: Any) -> None:
    """A function within, where that can be."""
    if isinstance(node, ast.AsyncFunctionDef):
        return
    try:
        made = rewrite_function_tree(node)
    except SourceUnavailable:
        return
    node.body = made.body


# what is in a tree


def _syntax_nodes_outside_nested_functions(*nodes: ast.AST) -> Iterator[ast.AST]:
    """These parts of one function and what is in them. Bodies of functions and classes are left out."""
    todo = [*nodes]
    while todo:
        node = todo.pop()
        yield node
        if isinstance(node, (*_NESTED, ast.ClassDef)):  # what is evaluated outside of them
            for attribute in ("decorator_list", "bases", "keywords"):
                todo += getattr(node, attribute, [])
            todo += [x for x in ast.iter_child_nodes(node.args)] if isinstance(node, _NESTED) else []
        else:
            todo += ast.iter_child_nodes(node)


def _names_bound_by(statements: Iterable[ast.AST]) -> Iterator[str]:
    """The names that statements bind in their function."""
    nodes = [*_syntax_nodes_outside_nested_functions(*statements)]
    others = {id(n) for node in nodes if isinstance(node, ast.comprehension) for n in ast.walk(node.target)}
    others |= {id(n.target) for n in nodes if isinstance(n, ast.AnnAssign) and not n.simple and n.value is None}
    for node in nodes:
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            if id(node) not in others:  # a comprehension's are its own, and `(x): int` binds nothing
                yield node.id
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, ast.alias):
            yield (node.asname or node.name).partition(".")[0]
        elif isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and node.name:
            yield node.name
        elif isinstance(node, ast.MatchMapping) and node.rest:
            yield node.rest


def _names_of_growing_lists(node: ast.AST) -> Iterator[str]:
    """The names whose `append` or `extend` is called, or to which something is added."""
    for n in ast.walk(node):
        if isinstance(n, ast.AugAssign) and isinstance(n.op, ast.Add) and isinstance(n.target, ast.Name):
            yield n.target.id
        elif isinstance(n, ast.Attribute) and n.attr in ("append", "extend") and isinstance(n.value, ast.Name):
            yield n.value.id


def _rewritten_call_reads_local_names(node: ast.AST) -> bool:
    """Whether an expression asks for the names of its frame."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        return False
    return node.func.id in _INSPECTORS and not (node.func.id in _OF_OTHERS and node.args)


def _statements_contain_return(statements: Sequence[ast.stmt]) -> bool:
    """Whether a return stands in a part."""
    found = False
    for statement in statements:
        for node in _syntax_nodes_outside_nested_functions(statement):
            if isinstance(node, (ast.If, ast.While, ast.For)):
                found |= any(isinstance(n, ast.Return) for n in _syntax_nodes_outside_nested_functions(node))
    return found


def _statements_fall_through(statements: Sequence[ast.stmt]) -> bool:
    """Whether the end of a block may be reached."""
    return not any(_always_leaves_block(s) for s in statements)


def _always_leaves_block(s: ast.stmt) -> bool:
    """Whether a statement never ends but by a return or an error."""
    if isinstance(s, (ast.Return, ast.Raise)):
        return True
    if isinstance(s, ast.If):
        return bool(s.orelse) and not _statements_fall_through(s.body) and not _statements_fall_through(s.orelse)
    if isinstance(s, ast.While):
        always = isinstance(s.test, ast.Constant) and bool(s.test.value)
        return always and not any(isinstance(n, ast.Break) for n in _syntax_nodes_outside_nested_functions(*s.body))
    if isinstance(s, (ast.Try, ast.TryStar)):
        ends = [[*s.body, *s.orelse], *(h.body for h in s.handlers)]
        return not _statements_fall_through(s.finalbody) or not any(map(_statements_fall_through, ends))
    if isinstance(s, ast.Match):
        last = s.cases[-1]
        whole = last.guard is None and isinstance(last.pattern, ast.MatchAs) and last.pattern.pattern is None
        return whole and not any(_statements_fall_through(case.body) for case in s.cases)
    return False


def _expression_can_move_into_lambda(node: ast.AST) -> bool:
    """Whether an expression means the same in a lambda."""
    return not any(isinstance(n, (ast.NamedExpr, *_SUSPENDING)) for n in ast.walk(node))


# what is made


def _control_flow_hook_expression(name: str) -> ast.expr:
    return ast.Attribute(ast.Name(HOOKS, ast.Load()), name, ast.Load())


def _hook_call_expression(name: str, *args: ast.expr) -> ast.expr:
    return ast.Call(_control_flow_hook_expression(name), [*args], [])


def _may_comprehension_be_loops(node: ast.AST | None) -> bool:
    """Whether it is a comprehension of lists or a generator, whose names nothing looks at after their turn."""
    if not isinstance(node, (ast.ListComp, ast.GeneratorExp)) or not _expression_can_move_into_lambda(node):
        return False
    inner = [*ast.walk(node)][1:]
    calls = [n for n in inner if isinstance(n, ast.Call) and n.args]
    used_up = [n.args[0] for n in calls if _rewritten_call_function_name(n) in CONSUMING_CALLS]
    late = [n for n in inner if isinstance(n, ast.Lambda) or (isinstance(n, ast.GeneratorExp) and n not in used_up)]
    targets = {n.id for c in node.generators for n in ast.walk(c.target) if isinstance(n, ast.Name)}
    read = {n.id for later in late for n in ast.walk(later) if isinstance(n, ast.Name)}
    return not (targets & read or any(clause.is_async for clause in node.generators))


def _comprehension_clause_expression(node: Any, hook: str, *before: ast.expr) -> ast.expr:
    """A comprehension of lists or a generator as calls of hooks: see `comprehensions`."""
    value: ast.expr = _new_list_expression(node.elt)
    for clause in reversed(node.generators):
        first = clause is node.generators[0]
        tests = clause.ifs or [ast.Constant(True)]
        test = tests[0]
        for other in tests[1:]:
            test = _hook_call_expression("and_test", test, _lambda_expression_node(other))
        turn = ast.Tuple([test, _lambda_expression_node(value)], ast.Load())
        item = ast.Tuple([ast.Name(f"{PREFIX}item", ast.Load())], ast.Load())
        body = ast.ListComp(turn, [ast.comprehension(clause.target, item, [], 0)])
        given = ast.arguments([], [ast.arg(f"{PREFIX}item")], None, [], [], None, [])
        parts = _loop_iterable_expression(clause.iter), ast.Lambda(given, body)
        value = _hook_call_expression(hook, *before, *parts) if first else _hook_call_expression(CLAUSE, *parts)
        _node_at_source_place(value, node)
    return value


def _loop_iterable_expression(node: ast.expr) -> ast.expr:
    """What a `for` goes over. Calls of `zip` and its like are still seen when the loop begins."""
    if not isinstance(node, ast.Call) or _rewritten_call_function_name(node) not in ITERATOR_CALLS:
        return node
    made = ast.Call(
        _control_flow_hook_expression("items"), [node.func, *map(_loop_iterable_expression, node.args)], node.keywords
    )
    found: ast.expr = _node_at_source_place(made, node)
    return found


def _rewritten_call_function_name(node: ast.Call) -> str:
    name: str = getattr(node.func, "id", getattr(node.func, "attr", ""))
    return name


def _new_list_expression(node: ast.expr) -> ast.expr:
    """A list that may grow, or be an element of such a list; other expressions as they are."""
    if not isinstance(node, ast.List):
        return node
    made: ast.expr = _node_at_source_place(_hook_call_expression("new_list", node), node)
    return made


def _lambda_expression_node(node: ast.expr) -> ast.expr:
    nothing = ast.arguments([], [], None, [], [], None, [])
    made: ast.expr = _node_at_source_place(ast.Lambda(nothing, node), node)
    return made


def _any_flag_expression(flags: Sequence[str]) -> ast.expr:
    names = [ast.Name(flag, ast.Load()) for flag in flags]
    return names[0] if len(names) == 1 else _hook_call_expression("any_", *names)


def _with_statement_node(manager: ast.expr, body: list[ast.stmt]) -> ast.stmt:
    return ast.With([ast.withitem(manager)], body)


def _assign_statement_node(name: str, value: ast.expr) -> ast.stmt:
    return ast.Assign([ast.Name(name, ast.Store())], value)


def _name_expression_node(function: ast.FunctionDef | None) -> ast.expr:
    assert function is not None
    return ast.Name(function.name, ast.Load())


def _function_definition_node(name: str, parameters: Sequence[str], body: list[ast.stmt]) -> ast.FunctionDef:
    given = ast.arguments([], [ast.arg(p) for p in parameters], None, [], [], None, [])
    made = ast.parse("def f(): pass").body[0]
    assert isinstance(made, ast.FunctionDef)
    made.name, made.args, made.body = name, given, body
    for attribute in ("lineno", "col_offset", "end_lineno", "end_col_offset"):
        delattr(made, attribute)
    return made


def _node_at_source_place(node: Any, where: Any) -> Any:
    _set_places_of_rewritten_nodes(node, where)
    return node


def _set_places_of_rewritten_nodes(node: ast.AST, where: ast.AST) -> None:
    """Gives lines and columns to what has none."""
    if not hasattr(node, "lineno") and "lineno" in node._attributes:
        ast.copy_location(node, where)
        if isinstance(node, ast.Attribute) and hasattr(
            node, "lineno"
        ):  # of several lines a method's call stands on the last
            node.end_lineno, node.end_col_offset = node.lineno, node.col_offset
    inner = node if hasattr(node, "lineno") else where
    for child in ast.iter_child_nodes(node):
        _set_places_of_rewritten_nodes(child, inner)
