"""Rules that allow commands of git: what a rule by prefix leaves to a question, and what is offered."""

import pytest

from treadle.shell.judging import analyse
from treadle.shell.rules import CommandPattern, suggested


def allowed(source: str, pattern: str) -> bool:
    line = analyse(source)
    return line.is_understood and all(CommandPattern.parse(pattern).allows(one) for one in line.invocations)


LOSING = [
    "git fetch origin --prune", "git fetch origin '+refs/heads/*:refs/heads/*'", "git fetch -p", "git fetch --pru", "git fetch -vf origin a:b",
    "git fetch --refmap=+a:b", "git fetch --depth=1", "git --no-pager fetch -P", "git commit --amend", "git commit -m -- --amend", "git commit --no-verify -m x",
    "git commit -anm x", "git commit --ame", "git add -f x", "git add -Af", "git pull --force", "git pull origin +a:b", "git push --force",
    "git push -uf origin main", "git push --force-with-lease", "git push origin +main", "git push origin :main", "git push -d origin x",
    "git push --mirror", "git push --no-verify", "git push origin -- +main", "git tag -d x", "git tag -f x", "git branch -D x", "git branch -d x",
    "git branch -M x", "git stash drop", "git stash clear", "git checkout -- .", "git checkout .", "git checkout -f", "git checkout main -- f",
    "git switch --discard-changes x", "git switch -C x", "git reset --hard", "git merge --abort", "git worktree remove x", "git mv -f a b",
    "git rm -f x", "git update-ref -d x", "git update-ref refs/heads/x 0000000000000000000000000000000000000000", "git checkout ./",
    "git checkout ':(top)'", "git checkout HEAD ./", "git checkout notes.txt", "git checkout HEAD notes.txt", "git checkout HEAD notes",
]  # fmt: skip


@pytest.mark.parametrize("source", LOSING)
def test_a_rule_by_prefix_leaves_what_git_takes_away_to_a_question(source: str):
    subcommand = source.replace("--no-pager ", "").split()[1]
    assert not allowed(source, f"git {subcommand}:*")
    assert not allowed(source, "git:*")
    assert not allowed(source, "*")


@pytest.mark.parametrize("source", LOSING)
def test_only_the_same_command_is_offered_where_git_takes_something_away(source: str):
    (pattern,) = suggested(analyse(source)) or ("",) if "*" not in source else ("",)
    assert not pattern.endswith(":*")
    assert not pattern or allowed(source, pattern)


@pytest.mark.parametrize(
    ("source", "pattern", "is_allowed"),
    [
        ("git push --force origin main", "git push --force:*", True),
        ("git push --force origin main", "git push --force origin main", True),
        ("git push --force --no-verify", "git push --force:*", False),
        ("git push --force origin +main", "git push --force:*", False),
        ("git commit --amend -m x", "git commit --amend:*", True),
        ("git tag -d x", "git tag -d *", True),
        ("git push -u origin main:main", "git push:*", True),
        ("git fetch -j 4 origin a:b", "git fetch:*", True),
        ("git fetch --all --tags", "git fetch:*", True),
        ("git add -- -f", "git add:*", True),
        ("git add -A", "git add:*", True),
        ("git commit -am 'more --amend'", "git commit:*", True),
        ("git stash", "git stash:*", True),
        ("git checkout -b x", "git checkout:*", True),
        ("git checkout -b x origin/main", "git checkout:*", True),
        ("git checkout feature/x", "git checkout:*", True),
        ("git checkout -", "git checkout:*", True),
        ("git restore .", "git:*", False),
        ("git clean -n", "git:*", False),
        ("git restore --staged x", "git restore:*", True),
        ("git commit -mnow", "git commit:*", True),
        ("git commit -amnow", "git commit:*", True),
        ("git commit -nmx", "git commit:*", False),
        ("git tag -mfix v1", "git tag:*", True),
        ("git reset x", "git reset:*", True),
        ("mytool --force", "mytool:*", True),
    ],
)
def test_a_rule_that_names_such_a_word_allows_it(source: str, pattern: str, is_allowed: bool):
    assert allowed(source, pattern) is is_allowed


def test_pull_that_rebases_in_short_is_a_risk_too():
    assert not allowed("git pull -r", "git pull:*")


def test_a_rule_says_that_it_leaves_out_what_takes_away():
    end = "but no option that writes a file, starts a program, or makes git delete or overwrite something, and no redirection to a file"
    assert CommandPattern.parse("git fetch:*").covers == f"`git fetch` with any arguments, {end}"
