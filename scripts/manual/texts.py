"""Texts: the pages of the reference as Markdown, for the site (with directives) and for machines (written out)."""

import re

import griffe

from manual import tables
from manual.names import Page, documented, find, pages, sentence
from manual.struct_signatures import code_examples, constructor, is_struct

__all__ = ["reference", "written_out"]

_DIRECTIVE = re.compile(r"^::: (?P<name>[\w.]+)\n(?:    .*\n)*", re.MULTILINE)


def reference() -> dict[str, str]:
    """Return every page of the reference by its path below `docs`, with a directive for each Python name."""
    made = {page.path: _page(page) for page in pages()}
    return {
        "reference/index.md": _index(),
        **made,
        "reference/events.md": tables.events(),
        "reference/statuses.md": tables.statuses(),
        "reference/command-line.md": tables.command_line(),
        "reference/configuration-keys.md": tables.configuration(),
    }


def _index() -> str:
    rows = [
        f"| [`{name}`][{name}] | {_kind(find(name))} | {sentence(find(name)).replace('|', chr(92) + '|')} |\n"
        for name in sorted(documented(), key=lambda name: name.rpartition(".")[2].lower())
    ]
    return (
        "# All names\n\nThe reference is generated from the code. Everything else in the package may change without notice.\n\n"
        "| Name | Kind | Meaning |\n| --- | --- | --- |\n" + "".join(rows)
    )


def _kind(one: griffe.Object) -> str:
    bases = {str(base).rpartition(".")[2] for base in one.bases} if isinstance(one, griffe.Class) else set()
    if "Protocol" in bases:
        return "protocol"
    if one.kind is griffe.Kind.ATTRIBUTE:
        return "constant" if one.name.isupper() else "type"
    return str(one.kind.value)


def _page(page: Page) -> str:
    return f"# {page.title}\n\n{page.intro}\n\n" + "\n".join(f"::: {name}\n" for name in page.names)


# --- for machines ----------------------------------------------------------------------------------------------------


def written_out(text: str) -> str:
    """Return a page with each directive replaced by the signature and docstring that it stands for."""
    text = re.sub(r" \{#[^}]+\}$", "", text, flags=re.MULTILINE)
    text = re.sub(r"\[(`[^`]+`)\]\[[\w.]+\]", r"\1", text)
    return _DIRECTIVE.sub(lambda match: _described(match["name"]), text)


def _described(name: str) -> str:
    one = find(name)
    parts = [f"## {name}\n", _signature(one, name), _docstring(one)]
    if isinstance(one, griffe.Class):
        parts += [_member(member) for member in one.all_members.values() if _is_public(member)]
    return "\n".join(part for part in parts if part) + "\n"


def _is_public(member: griffe.Object | griffe.Alias) -> bool:
    home = member.final_target.path if isinstance(member, griffe.Alias) else member.path
    return not member.name.startswith("_") and home.startswith("treadle.")


def _member(member: griffe.Object | griffe.Alias) -> str:
    if member.is_function:
        return f"### {member.name}\n\n{_signature(member, member.name)}\n{_docstring(member)}"
    annotation = f": {member.annotation}" if getattr(member, "annotation", None) is not None else ""
    value = f" = {member.value}" if getattr(member, "value", None) is not None else ""
    return f"- `{member.name}{annotation}{value}` {' '.join(_docstring(member).split())}"


def _signature(one: griffe.Object | griffe.Alias, name: str) -> str:
    """Return how the thing is called, as a block of code; empty where it is no function and no class."""
    function = one.members.get("__init__") if one.is_class else one
    if function is None and isinstance(one, griffe.Class) and is_struct(one):
        function = constructor(one)
    if function is None or not function.is_function:
        return ""
    shown = [_parameter(parameter) for parameter in function.parameters if parameter.name not in ("self", "cls")]
    stars = _star_before(function.parameters)
    if stars is not None:
        shown.insert(stars, "*")
    returns = f" -> {function.returns}" if getattr(function, "returns", None) is not None and not one.is_class else ""
    inside = ", ".join(shown) if len(", ".join(shown)) < 80 else "\n    " + ",\n    ".join(shown) + ",\n"
    return f"```python\n{name}({inside}){returns}\n```\n"


def _parameter(one: griffe.Parameter) -> str:
    """Return a parameter as it is written in a signature."""
    stars = {griffe.ParameterKind.var_positional: "*", griffe.ParameterKind.var_keyword: "**"}.get(one.kind, "")
    annotation = "" if one.annotation is None else f": {one.annotation}"
    default = "" if one.default is None or stars else f" = {one.default}" if annotation else f"={one.default}"
    return f"{stars}{one.name}{annotation}{default}"


def _star_before(parameters: griffe.Parameters) -> int | None:
    listed = [one for one in parameters if one.name not in ("self", "cls")]
    first = next((at for at, one in enumerate(listed) if one.kind is griffe.ParameterKind.keyword_only), None)
    has_star = any(one.kind is griffe.ParameterKind.var_positional for one in listed)
    return None if first is None or has_star else first


def _docstring(one: griffe.Object | griffe.Alias) -> str:
    return code_examples(one.docstring.value) + "\n" if one.docstring else ""
