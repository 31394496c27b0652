"""Rules that could never match a call: refused, with what to write instead."""

import pytest

from treadle import ConfigurationError, allow, deny


@pytest.mark.row("P11")
@pytest.mark.parametrize(
    ("rule", "instead"),
    [
        ("write(src/*, docs/*)", "one rule for each"),
        ("write(src/*,docs/*)", "one rule for each"),
        ("write(path=src/a, docs/b)", "one rule for each"),
        ("read(a)(b)", "one rule with one"),
        ("Bash(ls)(rm:*)", "one rule with one"),
        ("pay(to=ann)(amount=5)", "one rule with one"),
        ("read(path:secrets)", "write `read(secrets)`"),
        ("Edit(path: src/**)", "write `edit(src/**)`"),
        ("shell(command:rm *)", "write `shell(rm *)`"),
        ("fetch(host:example.com)", "write `fetch(example.com)`"),
        ("Task(agent:Explore)", "write `spawn_agent(Explore)`"),
        ("shell(rm: *)", "Write `rm:*`"),
        ("shell('rm -rf')", "without quotes: `rm -rf`"),
        ('shell("git push":*)', "without quotes: `git push`"),
    ],
)
def test_a_rule_that_no_call_matches_is_refused_with_what_to_write(rule: str, instead: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        deny(rule)
    assert instead in str(error.value)


@pytest.mark.row("P11")
@pytest.mark.parametrize(
    "rule",
    ["read(a,b)", "read(a[,] b)", "read(notes/a,b.txt)", "read(a[)](b)", "shell('./my tool' x)", "shell(: *)", "fetch(domain:x.org)", "read(x:y)"],
)  # fmt: skip
def test_a_name_with_such_signs_is_no_mistake(rule: str) -> None:
    assert deny(rule).rules[0].text == rule


def test_spaces_around_the_sign_of_a_rule_are_no_part_of_its_pattern() -> None:
    assert allow("pay(to = ann*)").rules[0].glob == "ann*"
