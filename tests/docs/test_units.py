"""Each number of the face says its unit: seconds, tokens, bytes, characters, USD, or what is counted."""

import re
from collections.abc import Iterator

import griffe
import pytest

from manual.names import documented, find

NUMBER = re.compile(r"\b(int|float|Decimal)\b")
SPANS = r"seconds?|milliseconds?|minutes?|hours?|days?|1970"
SIZES = r"tokens?|bytes?|characters?|chars|USD|costs?|prices?|pieces|sizes?"
COUNTS = r"how (many|often|much|far)|numbers?|counts?|times|none of|share|from 0 to 1|part|units?"
THINGS = (
    r"attempts?|calls?|turns?|steps?|messages?|events?|sessions?|process(es)?|lines?|items?|entries|results?|requests?|responses?"
    r"|retries|tries|tool_calls|failures|repeats|depth|position|seq|head|code|port|status|version|index|rows?|columns?|places?|workers?"
    r"|questions?|documents|windows?|rank|repetitions?|lives|widths?|heights?|sizes?"
)
UNIT = re.compile(rf"\b({SPANS}|{SIZES}|{COUNTS}|{THINGS})\b", re.IGNORECASE)


def is_number(annotation: object) -> bool:
    text = str(annotation)
    return (
        annotation is not None and NUMBER.search(text) is not None and "Literal" not in text and "Callable" not in text
    )


def says_a_unit(name: str, *sentences: str) -> bool:
    return UNIT.search(" ".join((name.replace("_", " "), *sentences))) is not None


def described(*owners: griffe.Object) -> dict[str, str]:
    """Return the sentence of each parameter in the docstrings."""
    return {
        one.name.lstrip("*"): one.description
        for owner in owners
        if owner.docstring
        for section in owner.docstring.parsed
        if section.kind is griffe.DocstringSectionKind.parameters
        for one in section.value
    }


def text_of(one: griffe.Object) -> str:
    return one.docstring.value if one.docstring else ""


def ports_of(method: griffe.Function) -> list[griffe.Object]:
    """Return the methods of the same name that a port promises: who implements one need not say its units again."""
    ports = (find(name) for name in documented() if name.startswith("treadle.ports."))
    return [port.members[method.name] for port in ports if port.is_class and method.name in port.members]


def without_unit(function: griffe.Function, owner: griffe.Object) -> Iterator[str]:
    sources = [owner, *ports_of(function), function]
    sentences = described(*sources)
    summary = " ".join(map(text_of, (*ports_of(function), function)))
    if is_number(function.returns) and not says_a_unit(function.name, summary):
        yield f"{function.path} returns"
    for parameter in function.parameters:
        name = parameter.name
        is_shown = not name.startswith("_") and name != "self"
        if is_shown and is_number(parameter.annotation) and not says_a_unit(name, sentences.get(name, summary)):
            yield f"{function.path}({name})"


def members(owner: griffe.Class) -> Iterator[griffe.Object]:
    for name, member in owner.all_members.items():
        one = member.final_target if isinstance(member, griffe.Alias) else member
        if one.path.startswith("treadle.") and (name == "__init__" or not name.startswith("_")):
            yield one


def numbers_without_unit(name: str) -> Iterator[str]:
    owner = find(name)
    if isinstance(owner, griffe.Function):
        yield from without_unit(owner, owner)
    for member in members(owner) if isinstance(owner, griffe.Class) else ():
        if isinstance(member, griffe.Function):
            yield from without_unit(member, owner)
        elif isinstance(member, griffe.Attribute) and is_number(member.annotation):
            yield from () if says_a_unit(member.name, text_of(member)) else (member.path,)


@pytest.mark.row("M-REFERENCE")
def test_each_number_of_a_public_name_says_its_unit():
    missing = {where for name in documented() for where in numbers_without_unit(name)}

    assert sorted(missing) == []


@pytest.mark.parametrize(("name", "sentence", "expected"), [
    ("approval_seconds", "", True),
    ("timeout", "", False),
    ("timeout", "How long to wait, in seconds.", True),
    ("wanted", "", False),
    ("limit", "The limit itself.", False),
])  # fmt: skip
def test_a_unit_is_in_the_name_or_in_the_sentence(name, sentence, expected):
    assert says_a_unit(name, sentence) is expected
