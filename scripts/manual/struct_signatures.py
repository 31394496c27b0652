"""Signatures of structs, and examples as code: what griffe cannot see in a msgspec Struct or a docstring. Changes no file."""

import re
import textwrap
from typing import Any

import griffe

__all__ = ["StructSignatures", "code_examples", "constructor", "is_struct"]

_EXAMPLE = re.compile(r"^(?P<head>Example):\n(?P<code>(?:    .*\n?|\n)+)", re.MULTILINE)


class StructSignatures(griffe.Extension):
    """Gives each struct the constructor that msgspec makes, each function its unpacked options, each method that another one makes the
    parameters of that one, and each `Example:` of a docstring the form of code."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = code_examples(obj.docstring.value)

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        _visit(pkg)


def code_examples(docstring: str) -> str:
    """Return a docstring whose `Example:` is a block of code."""
    return _EXAMPLE.sub(_as_code, docstring)


def _as_code(match: re.Match[str]) -> str:
    code = textwrap.dedent(match["code"]).strip("\n")
    language = "pycon" if code.startswith(">>>") else "python"
    return f"**Example**\n\n```{language}\n{code}\n```\n\n"


def _visit(module: griffe.Module) -> None:
    for member in list(module.members.values()):
        if isinstance(member, griffe.Module):
            _visit(member)
        elif isinstance(member, griffe.Class):
            _derive(member)
            if "__init__" not in member.members and is_struct(member):
                member.set_member("__init__", constructor(member))
        elif isinstance(member, griffe.Function):
            _unpack(module, member)


def _derive(owner: griffe.Class) -> None:
    """Show `run = _awaited(stream)` as the method that it is."""
    for name, member in list(owner.members.items()):
        made = isinstance(member, griffe.Attribute) and re.fullmatch(
            r"_(awaited|waited_for)\((\w+)\)", str(member.value)
        )
        if made:
            begin = owner.members[made[2]]
            method = griffe.Function(
                name, parameters=begin.parameters, docstring=member.docstring, lineno=member.lineno
            )
            method.labels |= {"async"} if made[1] == "awaited" else set()
            owner.set_member(name, method)


def _unpack(module: griffe.Module, function: griffe.Function) -> None:
    """Give a function with `**options: Unpack[Options]` each option as a parameter of its own."""
    for parameter in list(function.parameters):
        typed = re.fullmatch(r"Unpack\[(\w+)\]", str(parameter.annotation))
        if typed is not None:
            del function.parameters[parameter.name]
            for name, option in module.members[typed[1]].attributes.items():
                kind = griffe.ParameterKind.keyword_only
                function.parameters.add(griffe.Parameter(name, annotation=option.annotation, kind=kind, default="..."))


def is_struct(one: griffe.Class) -> bool:
    """Return whether a class is a msgspec Struct, itself or by a base of this package."""
    return any(str(base).rpartition(".")[2] == "Struct" for each in (one, *_ancestors(one)) for base in each.bases)


def _ancestors(one: griffe.Class) -> list[griffe.Class]:
    try:
        return [base for base in one.mro() if isinstance(base, griffe.Class)]
    except ValueError:  # a base of another package, which has not been read
        return []


def constructor(struct: griffe.Class) -> griffe.Function:
    """Return the constructor that msgspec makes for a struct: one parameter for each field, a keyword where its class says so."""
    parameters = {
        name: griffe.Parameter(name, annotation=member.annotation, kind=_kind(each), default=member.value)
        for each in (*reversed(_ancestors(struct)), struct)
        for name, member in each.members.items()
        if isinstance(member, griffe.Attribute)
        and member.annotation is not None
        and "instance-attribute" in member.labels  # a ClassVar is not
        and not name.startswith("_")
    }
    own = griffe.Parameter("self", kind=griffe.ParameterKind.positional_or_keyword)
    return griffe.Function("__init__", parameters=griffe.Parameters(own, *parameters.values()), parent=struct)


def _kind(struct: griffe.Class) -> griffe.ParameterKind:
    is_keyword = str(struct.keywords.get("kw_only")) == "True"
    return griffe.ParameterKind.keyword_only if is_keyword else griffe.ParameterKind.positional_or_keyword
