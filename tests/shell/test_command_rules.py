"""Rules on commands: what a pattern vouches for, what it finds, and what may be offered as a rule."""

import pytest

from treadle.errors import ConfigurationError
from treadle.shell.judging import analyse
from treadle.shell.rules import CommandPattern, suggested


def allowed(source: str, *patterns: str) -> bool:
    line = analyse(source)
    rules = [CommandPattern.parse(one) for one in patterns]
    return line.is_understood and all(
        any(rule.allows(one) for rule in rules) for one in line.invocations if not one.via
    )


def forbidden(source: str, pattern: str) -> bool:
    return any(CommandPattern.parse(pattern).forbids(one) for one in analyse(source).invocations)


@pytest.mark.parametrize(
    ("source", "patterns", "is_allowed"),
    [
        ("git log --oneline", ["git log:*"], True),
        ("git log --oneline", ["git log *"], True),
        ("git log", ["git log:*"], True),
        ("git --no-pager log -3", ["git log:*"], True),
        ("git -P log", ["git --no-pager log:*"], True),
        ("git -P push", ["git log:*"], False),
        ("git -P -c a.b=c log", ["git log:*"], False),
        ("git logs", ["git log:*"], False),
        ("git  'log'", ["git log"], True),
        ("git log -5", ["git log"], False),
        ("git log; id", ["git log:*"], False),
        ("git log | head -3", ["git log:*"], False),
        ("git log | head -3", ["git log:*", "head:*"], True),
        ("git log --output=x", ["git log:*"], False),
        ("git log --output=x", ["git log --output=x"], True),
        ("./git log", ["git log:*"], False),
        ("git log $(id)", ["git log:*", "*"], False),
        ("env git log", ["env:*", "git log:*"], False),
        ("python -m pytest", ["python:*"], False),
        ("python -m pytest", ["python -m pytest"], True),
        ("python3", ["python3"], False),
        ("cat f | python3 -", ["cat:*", "python3 -"], False),
        ("python3 -u <<< 'import os'", ["python3 -u"], False),
        ("bash -s < f", ["bash -s"], False),
        ("node <<'E'\nx\nE", ["node"], False),
        ("python3 -c pass", ["python3 -c pass"], True),
        ("python3 -um pytest", ["python3 -um pytest"], True),
        ("perl -ne print f", ["perl -ne print f"], True),
        ("bash -ec ls", ["bash -ec ls"], True),
        ("sh run.sh", ["sh run.sh"], True),
        ("make", ["make"], True),
        ("npm run test", ["npm run *"], True),
        ("npm run test-unit", ["npm run test*"], True),
        ("npm run test rm", ["npm run test*"], False),
        ("rm x", ["*"], True),
        ("rm build/a/b", ["rm build/*"], True),
        ("rm build/../src/main.py", ["rm build/*"], False),
        ("rm build/a/../../src/main.py", ["rm build/*"], False),
        ("rm build/..", ["rm build/*"], False),
        ("rm build/../src/a", ["rm build/../src/*"], True),
        ("rm build/../src/../a", ["rm build/../src/*"], False),
        ("rm build/a..b", ["rm build/*"], True),
        ("my-tool --out=build/../x", ["my-tool --out=*"], False),
        ("my-tool a:../x", ["my-tool a:*"], False),
        ("./scripts/lint", ["./scripts/*"], True),
        ("./scripts/../evil", ["./scripts/*"], False),
        ("./scripts/a/../../evil x", ["./scripts/*:*"], False),
    ],
)
def test_a_rule_vouches_for_each_simple_command_by_its_words(source: str, patterns: list[str], is_allowed: bool):
    assert allowed(source, *patterns) is is_allowed


@pytest.mark.parametrize(
    "source",
    [
        "rm x", "/bin/rm x", "\\rm x", "'r'm x", "ls; rm x", "ls | rm x", "(rm x)", "sudo rm x", "sudo -u bob rm x", "env A=1 rm x",
        "timeout 5 rm x", "xargs rm", "find . -exec rm {} ';'", "bash -c 'rm x'", "bash -c \"sh -c 'rm x'\"", "eval 'rm x'", "busybox rm x",
        "env -S 'rm x'", "ssh host 'rm x'", "true && " * 30 + "rm x", "rm *", "git bisect run rm x",
    ],
)  # fmt: skip
def test_a_rule_that_forbids_finds_a_program_behind_each_wrapper_and_spelling(source: str):
    assert forbidden(source, "rm:*")


@pytest.mark.parametrize(
    ("source", "pattern"),
    [
        ("rm -rf x", "rm -rf:*"), ("rm -fr x", "rm -rf:*"), ("rm -r -f x", "rm -rf:*"), ("rm x -rf", "rm -rf:*"),
        ("rm --recursive --force x", "rm -rf:*"), ("rm --rec -f x", "rm -rf:*"), ("git -C x push", "git push:*"),
        ("git --no-pager push origin", "git push:*"), ("git push --force", "git push --force:*"), ("git push origin -f", "git push --force:*"),
    ],
)  # fmt: skip
def test_a_rule_that_forbids_finds_options_in_any_order_and_form(source: str, pattern: str):
    assert forbidden(source, pattern)


@pytest.mark.parametrize(
    ("source", "pattern"),
    [("ls rm", "rm:*"), ("rm x", "rm -rf:*"), ("git log push", "git push:*"), ("echo 'rm x'", "rm:*")],
)
def test_a_rule_that_forbids_does_not_find_what_is_only_named(source: str, pattern: str):
    assert not forbidden(source, pattern)


@pytest.mark.parametrize(
    ("source", "patterns"),
    [
        ("git log --oneline", ("git log:*",)),
        ("git commit -m 'a b'", ("git commit:*",)),
        ("npm run test", ("npm run test",)),
        ("git push origin main", ("git push origin main",)),
        ("git checkout -b x", ("git checkout -b x",)),
        ("git stash list", ("git stash list",)),
        ("git --no-pager log -3", ("git log:*",)),
        ("git --no-pager push", ("git --no-pager push",)),
        ("git -P add f", ("git add:*",)),
        ("sed -n 1,9p f", ()),
        ("hyperfine x", ()),
        ("npm exec x", ()),
        ("git diff | head -3", ("git diff:*", "head -3")),
        ("bash -c x", ()),
        ("sudo ls", ()),
        ("python x.py", ()),
        ("git log --output=x", ()),
        ("echo $(id)", ()),
        ("mytool 'a|b' 'c; d' '$(x)' '`y`' \"z & a\"", ("mytool 'a|b' 'c; d' '$(x)' '`y`' 'z & a'",)),
        ("touch 'a(b)' 'c<d'", ("touch 'a(b)' 'c<d'",)),
        ("rm '*'", ()),
        ("npm run 'te?t'", ()),
        ("git log '*'", ("git log:*",)),
    ],
)
def test_only_a_rule_that_is_proven_to_match_is_offered(source: str, patterns: tuple[str, ...]):
    assert suggested(analyse(source)) == patterns
    assert not patterns or allowed(source, *patterns)


@pytest.mark.parametrize(
    "text",
    ["", "  ", "git log; id", "git 'log", "a && b", "a $(b)", 'a "$(b)"', "a `b`", "rm:*)", "git log)", "git diff > x", "cat <x", "rm\u200b:*",
     "git\u00a0log:*", "a\rb", "a 'b\x00'", "ls:*foo", "'ls", "a \\"],
)  # fmt: skip
def test_a_pattern_that_is_no_single_command_is_refused(text: str):
    with pytest.raises(ConfigurationError, match="command pattern"):
        CommandPattern.parse(text)


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("grep 'a|b' f", "grep 'a|b' f"),
        ('grep "a;b"', "grep a\\;b"),
        ("echo \\(", "echo '('"),
        ("ls '<x>'", "ls \\<x\\>"),
    ],
)
def test_signs_of_the_shell_in_quotes_are_text_in_a_pattern_too(text: str, source: str):
    assert allowed(source, text)
    assert forbidden(source, text)


def test_a_pattern_with_wildcards_says_so():
    assert (
        CommandPattern.parse("rm 'd*'").covers
        == "the command `rm 'd*'` in the root folder, where `*`, `?` and `[` match any text within a word, but no `..`"
    )
    assert CommandPattern.parse("rm d").covers == "only the command `rm d` in the root folder"
    assert (
        CommandPattern.parse("python3 -u").covers
        == "nothing: `python3 -u` runs what it reads from its input, so a person is asked each time"
    )
