"""A rule by its values: how it is read, what it says that it covers, and which calls it applies to."""

from typing import Any

import pytest

from pipeline_tools import checked_call, tool_of
from treadle import ConfigurationError
from treadle.permissions.policies import RuleIndex
from treadle.permissions.rules import Rule, Subjects, Unresolved, as_text, beginnings, spellings
from treadle.tools import CheckedCall, Subject


async def nothing(arguments: Any, ctx: Any) -> Any:
    return None


def of(name: str, /, subjects: Any = None, **arguments: Any) -> CheckedCall:
    return checked_call(tool_of(nothing, name, subjects=subjects), **arguments)


def naming(name: str, path: str, **words: Any) -> CheckedCall:
    return of(name, lambda arguments: {"path": Subject(names=(path,), **words)}, path=path)


@pytest.mark.parametrize(
    ("text", "parts", "covers"),
    [
        ("pay", ("pay", None, None, None), "every call of pay"),
        (" pay ", ("pay", None, None, None), "every call of pay"),
        ("pay(*)", ("pay", None, None, None), "every call of pay"),
        ("*", ("*", None, None, None), "every call of every tool"),
        ("pay(to=ada)", ("pay", "to", "ada", None), "calls of pay whose to is ada"),
        ("pay( to =ada*)", ("pay", "to", "ada*", None), "calls of pay whose to is ada*"),
        ("pay(to=a=b)", ("pay", "to", "a=b", None), "calls of pay whose to is a=b"),
        ("fetch(host=EXAMPLE.com)", ("fetch", "host", "example.com", None), "calls of fetch whose host is example.com"),
        ("fetch(example.com)", ("fetch", "host", "example.com", None), "calls of fetch whose host is example.com"),
        ("pay(host=EXAMPLE.com)", ("pay", "host", "EXAMPLE.com", None), "calls of pay whose host is EXAMPLE.com"),
        ("WebFetch(domain:example.com)", ("WebFetch", "host", "example.com", None), "calls of fetch whose host is example.com"),
        ("write(src/*)", ("write", None, None, "src/*"), "calls of write on the path src/*"),
    ],
)  # fmt: skip
def test_a_rule_is_read_into_its_tool_its_key_and_its_glob(text, parts, covers):
    rule = Rule.parse(text)
    assert (rule.text, rule.tool, rule.key, rule.glob, rule.pattern) == (text, *parts)
    assert rule.covers == covers


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "Rule '' is invalid: write `tool`, or `tool(key=glob)`."),
        ("   (a=b)", "is invalid: write `tool`, or `tool(key=glob)`."),
        ("pay(a", "is invalid: write `tool`, or `tool(key=glob)`."),
        ("pay(src/*)", "for 'pay', write `pay` or `pay(key=glob)`, such as `pay(path=src/*)`."),
        ("pay(a b=c)", "for 'pay', write `pay` or `pay(key=glob)`, such as `pay(path=src/*)`."),
        ("read(path=*.{pem,key})", "is not a list in a rule. Write a rule for each of its names; `[{]` means a brace."),
        ("read({a/b,c/d})", "is not a list in a rule. Write a rule for each of its names; `[{]` means a brace."),
        ("Read(secrets/{a,b}/**)", "is not a list in a rule. Write a rule for each of its names; `[{]` means a brace."),
        ("write( )", "for 'write', write `write` or `write(key=glob)`, such as `write(path=src/*)`."),
    ],
)
def test_what_is_no_rule_is_refused_with_the_form_that_is_one(text, words):
    with pytest.raises(ConfigurationError) as raised:
        Rule.parse(text)
    assert str(raised.value).endswith(words)


@pytest.mark.parametrize(
    ("text", "call", "allows", "forbids"),
    [
        ("pay", of("pay"), True, True), ("pay", of("bill"), False, False), ("p*", of("pay"), True, True), ("pay(to=ada)", of("pay", to="ada"), True, True),
        ("pay(to=ada)", of("pay", to="bob"), False, False), ("pay(to=ada)", of("pay"), False, False), ("pay(to=ada)", of("pay", to=["ada"]), True, True),
        ("pay(to=ada)", of("pay", to=["ada", "bob"]), False, True), ("pay(n=7)", of("pay", n=7), True, True),
        ("write(a.txt)", naming("write", "a.txt"), True, True), ("write(a.txt)", naming("write", "b.txt"), False, False),
        ("write(a.txt)", of("write"), False, True), ("write(path=a.txt)", of("write"), False, False),
        ("write(src/a)", naming("write", "src", extent="tree"), False, True), ("write(src/a)", naming("write", "src", extent="children"), False, True),
        ("write(src/a/b)", naming("write", "src", extent="children"), False, False), ("write(src/a)", naming("write", "src"), False, False),
        ("write(src/**/a)", naming("write", "src/a"), False, True), ("write(src/**/a)", naming("write", "src/b/a"), True, True),
        ("write(src/**/a)", naming("write", "src/ba"), False, False), ("write(src/**/**/b/**/a)", naming("write", "src/b/a"), False, True),
        ("write(s/**/a/**/b/**/c/**/d/**/e)", naming("write", "s/a/b/c/d/e"), False, True),
        ("write(src/[{]a,b}.txt)", naming("write", "src/{a,b}.txt"), True, True), ("write(a{b}.txt)", naming("write", "a{b}.txt"), True, True),
        ("fs_read(path=a.txt)", naming("fs_grep", "a.txt"), False, True), ("*read(path=a.txt)", naming("grep", "a.txt"), False, True),
        ("fs_read(path=a.txt)", naming("grep", "a.txt"), False, False), ("read(a.txt)", naming("fs_grep", "a.txt"), False, False),
        ("Read(a.txt)", naming("read", "a.txt"), True, True), ("Read(a.txt)", naming("grep", "a.txt"), False, True),
        ("Read", naming("grep", "a.txt"), False, False), ("write(a.txt)", naming("grep", "a.txt"), False, False),
    ],
)  # fmt: skip
def test_a_rule_that_allows_needs_certainty_and_one_that_forbids_does_not(text, call, allows, forbids):
    rule = Rule.parse(text)
    assert (rule.matches(call, loosens=True), rule.matches(call)) == (allows, forbids)


def broken(arguments: Any) -> Any:
    raise ValueError("no")


@pytest.mark.parametrize("subjects", [broken, lambda arguments: 7, lambda arguments: {"path": "a.txt"}])
def test_where_a_tool_cannot_say_what_it_names_nothing_is_allowed_and_all_is_forbidden(subjects):
    call, rule = of("write", subjects, path="a.txt"), Rule.parse("write(path=b.txt)")
    assert Subjects(call).of("path") is Unresolved
    assert (rule.matches(call, loosens=True), rule.matches(call)) == (False, True)
    assert spellings(call, "path", Subjects(call)) is None


def test_a_tool_that_could_not_say_what_it_names_is_not_asked_again():
    asked: list[int] = []

    def named(arguments: dict[str, Any]) -> Any:
        asked.append(1)
        if len(asked) == 1:
            raise ValueError("no")
        return {"path": Subject(names=("a.txt",))}

    found = Subjects(of("write", named, path="a.txt"))
    assert (found.of("path"), found.of("path"), found.alike().of("path")) == (Unresolved, Unresolved, Unresolved)
    assert asked == [1]


def test_what_a_call_names_is_asked_for_once_and_for_both_policies():
    asked: list[dict[str, Any]] = []

    def named(arguments: dict[str, Any]) -> Any:
        asked.append(dict(arguments))
        arguments["path"] = "changed"
        return {"path": Subject(names=("a.txt",)), "none": None}

    call = of("write", named, path="a.txt")
    found = Subjects(call)
    wider = Subject(names=("a.txt", "b.txt"))
    assert found.of("path") == Subject(names=("a.txt",))
    assert (found.of("none"), found.of("missing")) == (None, None)
    other = found.alike()
    found.widen("path", wider)
    assert found.of("path") == wider
    assert found.alike().of("path") == other.of("path") == Subject(names=("a.txt",))
    assert (asked, call.arguments) == ([{"path": "a.txt"}], {"path": "a.txt"})
    assert Subjects(of("pay", to="ada")).of("to") is None


@pytest.mark.parametrize(
    ("call", "key", "found"),
    [
        (of("pay", to="a/../b"), "to", {"a/../b", "b"}), (of("pay", to=7), "to", {"7"}), (of("pay", to=["a"]), "to", None), (of("pay"), "to", None),
        (naming("write", "a.txt"), "path", {"a.txt"}), (of("pay", lambda _: {"to": Subject(names=("x", "y"))}), "to", {"x", "y"}),
    ],
)  # fmt: skip
def test_a_call_is_looked_up_by_the_names_that_it_may_mean(call, key, found):
    assert spellings(call, key, Subjects(call)) == found


@pytest.mark.parametrize(
    ("glob", "found"), [("src/a*b", {"src/a"}), ("src/?", {"src/"}), ("src/[ab]", {"src/"}), ("*", {""}), ("a", {"a"})]
)
def test_a_glob_begins_with_what_stands_before_its_first_sign(glob, found):
    assert beginnings(glob) == found


@pytest.mark.parametrize(("value", "text"), [(None, ""), ("a", "a"), (7, "7"), ([1], "[1]"), (True, "true")])
def test_an_argument_is_compared_as_text(value, text):
    assert as_text(value) == text


def test_rule_indexes_of_equal_rules_are_equal():
    rules = tuple(map(Rule.parse, ("pay", "Read(docs/*)")))
    one, same, other = RuleIndex(rules, loosens=True), RuleIndex(rules, loosens=True), RuleIndex(rules, loosens=False)

    assert (one == same, hash(one) == hash(same), one == other, one == rules) == (True, True, False, False)
