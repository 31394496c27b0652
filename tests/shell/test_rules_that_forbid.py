"""Rules that forbid commands: found behind every option, in every spelling, and not where another subcommand only names the word."""

import pytest

from treadle.shell.judging import analyse
from treadle.shell.rules import CommandPattern


def forbidden(source: str, pattern: str) -> bool:
    return any(CommandPattern.parse(pattern).forbids(one) for one in analyse(source).invocations)


@pytest.mark.parametrize(
    ("source", "pattern"),
    [
        ("kubectl -n prod delete pod x", "kubectl delete:*"), ("kubectl --context prod delete ns x", "kubectl delete:*"),
        ("aws --profile prod --region r s3 rm s3://x", "aws s3 rm:*"), ("npm -w pkg publish", "npm publish:*"),
        ("npm run --workspace pkg deploy", "npm run deploy:*"), ("docker compose -f x.yml down -v", "docker compose down:*"),
        ("docker --context x compose -f x.yml down", "docker compose down:*"), ("helm -n prod uninstall x", "helm uninstall:*"),
        ("gh -R o/r pr merge 1", "gh pr merge:*"), ("gh pr -R o/r merge 1", "gh pr merge:*"), ("cargo +nightly publish", "cargo publish:*"),
        ("cargo --color never publish", "cargo publish:*"), ("make -C x deploy", "make deploy"), ("make CC=gcc deploy", "make deploy:*"),
        ("make -j4 clean deploy", "make deploy:*"), ("make clean deploy x", "make deploy"), ("git push -o x origin main", "git push origin main:*"),
        ("git push -uo x origin main", "git push origin main"), ("git -C push push origin", "git push origin:*"), ("git -C d push -- origin", "git push origin"),
        ("apt -o a=b install y", "apt install:*"), ("systemctl -H h stop x", "systemctl stop:*"), ("terraform -chdir=x destroy", "terraform destroy:*"),
    ],
)  # fmt: skip
def test_a_subcommand_is_found_behind_options_with_separate_values(source: str, pattern: str):
    assert forbidden(source, pattern)


@pytest.mark.parametrize(
    ("source", "pattern"),
    [
        ("git commit -n -m x", "git commit --no-verify:*"), ("git commit --no-verify", "git commit -n:*"), ("git commit -anm x", "git commit --no-verify:*"),
        ("git push --force-with-lease", "git push --force*"), ("git push -f", "git push -*"), ("git push origin +main", "git push --force:*"),
        ("git push origin +main", "git push -f:*"), ("git push origin :main", "git push --delete:*"), ("git push origin HEAD:main", "git push origin main:*"),
        ("git push origin +HEAD:refs/heads/main", "git push origin main"), ("git branch -D x", "git branch --delete --force:*"),
        ("git branch --delete --force x", "git branch -D:*"), ("git branch -df x", "git branch -D:*"), ("kubectl --namespace=prod get x", "kubectl -n:*"),
        ("kubectl -n prod delete x", "kubectl delete -n prod:*"), ("kubectl -nprod delete x", "kubectl delete -n prod:*"),
        ("kubectl --namespace=prod delete x", "kubectl delete -n prod:*"), ("docker run --volume=/ x", "docker run -v /:*"),
        ("git commit -m -- --amend", "git commit --amend:*"), ("git push -o -- --force origin", "git push --force:*"),
        ("git push -o -- --force origin", "git push origin:*"), ("docker run --name -- --privileged x", "docker run --privileged:*"),
        ("docker run x -v /", "docker run -v /:*"), ("kubectl --namespace x delete --all y", "kubectl delete -a:*"),
    ],
)  # fmt: skip
def test_an_option_is_found_in_each_of_its_forms_and_with_its_value(source: str, pattern: str):
    assert forbidden(source, pattern)


@pytest.mark.parametrize(
    ("source", "pattern"),
    [
        ("git push", "git * main"), ("git commit -m push", "git push:*"), ("git --no-pager log push", "git push:*"), ("git log push", "git push:*"),
        ("kubectl get delete", "kubectl delete:*"), ("docker run -p 80:80 x", "docker run --privileged:*"), ("git branch -d x", "git branch -D:*"),
        ("git push --force-with-lease", "git push --force:*"), ("git push origin main next", "git push origin main"), ("npm test deploy", "npm deploy:*"),
        ("kubectl -n dev delete x", "kubectl delete -n prod:*"), ("git push --no-verify=x", "git push --force:*"), ("make deploys", "make deploy:*"),
        ("git -C push status", "git push origin:*"),
    ],
)  # fmt: skip
def test_other_commands_are_not_found(source: str, pattern: str):
    assert not forbidden(source, pattern)


@pytest.mark.parametrize(
    ("source", "is_found"),
    [
        ("git push origin main", True),
        ("git --no-pager push x y main", True),
        ("git main", True),
        ("git push origin", False),
    ],
)
def test_a_star_by_itself_is_any_number_of_words(source: str, is_found: bool):
    assert forbidden(source, "git * main") is is_found


def test_a_value_that_looks_like_the_subcommand_is_found_too():
    assert forbidden("kubectl -n delete get pods", "kubectl delete:*")
