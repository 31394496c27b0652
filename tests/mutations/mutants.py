"""Mutants: small wrong changes of a file's functions, and how one takes effect in a running process. Runs no test.

Left alone: texts for people, types, `assert` (it states what is known), log lines, how long a turn for others takes, defaults of
parameters, and what a module does when it is imported.
"""

import ast
import gc
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType

__all__ = ["Mutant", "Unfit", "apply", "mutants_of"]

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}
_A_WORD = re.compile(r"[a-z_][a-z_.]*\Z")
"""A constant that code compares or stores. Anything else is a text for people."""

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_Edit = tuple[ast.AST, str, int | None, ast.AST]
"""A node, its field, the place in that field where it is a list, and what stands there instead."""


class Unfit(Exception):
    """The mutation cannot take effect in a running process."""


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """One change of one function."""

    path: Path
    function: str
    """The qualified name of the outermost function, such as `Inbox.read`."""
    before: str
    after: str
    nth: int
    """Which of the equal changes in this function it is, from 1."""
    line: int
    lines: tuple[int, ...]
    """The lines of the changed code: tests that execute one of them can notice it."""
    number: int
    """Its place among the changes of the file."""

    @property
    def key(self) -> tuple[str, str, str, str, int]:
        return (self.path.name, self.function, self.before, self.after, self.nth)

    def __str__(self) -> str:
        nth = f" (number {self.nth})" if self.nth > 1 else ""
        return f"{self.path.name}:{self.line} {self.function}{nth}\n    - {self.before}\n    + {self.after}"


def mutants_of(path: Path) -> list[Mutant]:
    """Return all mutants of a file, in the order of its text."""
    seen: Counter[tuple[str, str, str]] = Counter()
    found = []
    for number, (function, (node, field, place, replacement)) in enumerate(_edits(ast.parse(path.read_text()))):
        value = getattr(node, field)
        old = value if place is None else value[place]
        # An operator alone says little: its expression is shown.
        shown = node if isinstance(old, ast.cmpop | ast.operator | ast.boolop) else old
        before = _text(shown)
        _put(node, field, place, replacement)
        after = _text(shown if shown is node else replacement)
        if isinstance(old, ast.Call) and isinstance(replacement, ast.Call):
            before, after = _dropped(old, replacement)
        _put(node, field, place, old)
        seen[function, before, after] += 1
        first, last = _span(shown)
        found.append(
            Mutant(
                path=path,
                function=function,
                before=before,
                after=after,
                nth=seen[function, before, after],
                line=first,
                lines=tuple(range(first, last + 1)),
                number=number,
            )
        )
    return found


def apply(mutant: Mutant) -> None:
    """Give the mutated code to every living function that it is the code of.

    Raises:
        Unfit: No such function lives, or its new code closes over other names.
    """
    tree = ast.parse(mutant.path.read_text())
    _, edit = next(edit for number, edit in enumerate(_edits(tree)) if number == mutant.number)
    _put(*edit)
    mutated = _codes(compile(ast.fix_missing_locations(tree), str(mutant.path), "exec", dont_inherit=True))
    changed = 0
    gc.unfreeze()  # what lived when the tests were collected is frozen, and get_objects() leaves that out
    for function in [
        one for one in gc.get_objects() if type(one) is FunctionType
    ]:  # isinstance would ask hostile objects
        code = function.__code__
        name = code.co_qualname
        if code.co_filename != str(mutant.path) or not f"{name}.".startswith(f"{mutant.function}."):
            continue
        try:
            function.__code__ = mutated[name, code.co_firstlineno]
        except (KeyError, ValueError) as error:
            raise Unfit(str(error)) from error
        changed += 1
    if not changed:
        raise Unfit(f"No function {mutant.function} lives")


def _codes(code: CodeType) -> dict[tuple[str, int], CodeType]:
    found = {(code.co_qualname, code.co_firstlineno): code}
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found |= _codes(constant)
    return found


def _edits(tree: ast.Module) -> Iterator[tuple[str, _Edit]]:
    for name, function in _functions(tree, ""):
        for place, statement in enumerate(function.body):
            if place or ast.get_docstring(function) is None:
                for edit in (*_of_node(function, "body", place, statement), *_inside(statement)):
                    yield name, edit


def _functions(scope: ast.Module | ast.ClassDef, prefix: str) -> Iterator[tuple[str, _Function]]:
    for node in scope.body:
        if isinstance(node, _Function):
            yield prefix + node.name, node
        elif isinstance(node, ast.ClassDef):
            yield from _functions(node, f"{prefix}{node.name}.")


def _inside(node: ast.AST) -> Iterator[_Edit]:
    if _is_left_alone(node):
        return
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "args", "decorator_list", "type_params") and not isinstance(
            node, ast.Call
        ):
            continue
        children = value if isinstance(value, list) else [value]
        for place, child in enumerate(children):
            if isinstance(child, ast.AST):
                yield from _of_node(node, field, place if isinstance(value, list) else None, child)
                yield from _inside(child)


def _is_left_alone(node: ast.AST) -> bool:
    if isinstance(node, ast.Assert | ast.JoinedStr | ast.pattern):
        return True
    if isinstance(node, ast.Raise):
        return True  # its removal is a mutant; its text is for people
    match node:
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id="logger")))):
            return True
        case ast.Call(func=ast.Name(id="cast" | "assert_never")):
            return True
        case ast.Call(func=ast.Attribute(value=ast.Name(id="asyncio"), attr="sleep"), args=[ast.Constant()]):
            return True  # a turn for others: longer or shorter, it is a difference of time alone
    return False


def _of_node(parent: ast.AST, field: str, place: int | None, node: ast.AST) -> Iterator[_Edit]:
    if _is_left_alone(node) and not isinstance(node, ast.Raise):
        return
    for replacement in _replacements(node):
        yield parent, field, place, ast.copy_location(replacement, node)
    match node:
        case ast.Compare(ops=[op]) if type(op) in _COMPARISONS:
            yield node, "ops", 0, _COMPARISONS[type(op)]()
        case ast.BoolOp(op=op):
            yield node, "op", None, ast.Or() if isinstance(op, ast.And) else ast.And()
        case ast.BinOp(op=op) | ast.AugAssign(op=op) if type(op) in _OPERATORS:
            yield node, "op", None, _OPERATORS[type(op)]()


def _replacements(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.stmt):
        yield from _of_statement(node)
    elif isinstance(node, ast.Call):
        for keyword in node.keywords:
            if keyword.arg is not None:
                kept = [one for one in node.keywords if one is not keyword]
                yield ast.Call(func=node.func, args=node.args, keywords=kept)
    elif isinstance(node, ast.Constant):
        yield from _of_constant(node.value)
    else:
        yield from _of_condition(node)


def _of_statement(node: ast.stmt) -> Iterator[ast.AST]:
    match node:
        case ast.Expr(value=ast.Call() | ast.Await() | ast.Yield() | ast.YieldFrom()) | ast.Raise() | ast.AugAssign():
            yield ast.Pass()
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()], value=value) if not isinstance(value, ast.Name):
            yield ast.Pass()
        case ast.Continue():
            yield ast.Break()
        case ast.Break():
            yield ast.Continue()
        case ast.Return(value=ast.Constant(value=None | False)):
            return  # None for False is not a change: a caller asks whether it is true
        case ast.Return(value=ast.expr() as value):
            yield ast.Return(value=ast.copy_location(ast.Constant(value=None), value))
        case ast.If(test=test) if not isinstance(test, ast.Compare):
            yield ast.If(test=_negated(test), body=node.body, orelse=node.orelse)


def _of_condition(node: ast.AST) -> Iterator[ast.AST]:
    match node:
        case ast.IfExp(test=test) if not isinstance(test, ast.Compare):
            yield ast.IfExp(test=_negated(test), body=node.body, orelse=node.orelse)
        case ast.match_case(guard=ast.expr() as guard):
            yield ast.match_case(pattern=node.pattern, guard=_negated(guard), body=node.body)
        case ast.comprehension(ifs=[test]):
            yield ast.comprehension(target=node.target, iter=node.iter, ifs=[_negated(test)], is_async=node.is_async)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield operand


def _of_constant(value: object) -> Iterator[ast.AST]:
    match value:
        case bool():
            yield ast.Constant(value=not value)
        case int() | float():
            yield ast.Constant(value=value + 1)
        case str() if _A_WORD.match(value):
            yield ast.Constant(value=value + "_")


def _negated(test: ast.expr) -> ast.expr:
    return ast.copy_location(ast.UnaryOp(op=ast.Not(), operand=test), test)


def _put(node: ast.AST, field: str, place: int | None, value: ast.AST) -> None:
    if place is None:
        setattr(node, field, value)
    else:
        getattr(node, field)[place] = value


def _text(node: ast.AST) -> str:
    if isinstance(node, ast.match_case):
        node = node.guard or node.pattern
    elif isinstance(node, ast.comprehension):
        node = node.ifs[0]
    elif isinstance(node, ast.If):
        node = node.test
    return ast.unparse(node).split("\n")[0]


def _dropped(call: ast.Call, shorter: ast.Call) -> tuple[str, str]:
    """Return how a call and the same one without one of its keywords are shown."""
    kept = {one.arg for one in shorter.keywords}
    name = ast.unparse(call.func).split("\n")[0]
    keyword = next(one for one in call.keywords if one.arg not in kept)
    return f"{name}(..., {ast.unparse(keyword)})", f"{name}(...)"


def _span(node: ast.AST) -> tuple[int, int]:
    if isinstance(node, ast.match_case):
        node = node.guard or node.pattern
    elif isinstance(node, ast.comprehension):
        node = node.ifs[0]
    elif isinstance(node, ast.If):
        node = node.test
    return node.lineno, node.end_lineno or node.lineno  # type: ignore[attr-defined]
