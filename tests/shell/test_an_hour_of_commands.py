"""What Treadle asks in an ordinary coding hour: the 78 commands that it is measured with, with a sandbox and without one."""

import subprocess
from pathlib import Path

import pytest

from pipeline_tools import checked_call
from treadle import allow, deny, shell_tool
from treadle.cli.running import Confined
from treadle.errors import ConfigurationError
from treadle.permissions.consent import offered_rules
from treadle.permissions.denied import with_reachable
from treadle.permissions.modes import in_mode, with_approval, with_protection
from treadle.permissions.policies import decide
from treadle.resolve import memory_session
from treadle.shell.border import border_of
from treadle.shell.judging import analyse, reads_only
from treadle.tools.needs import UNCONFINED, Need

LIST = Path(__file__).parents[3] / "shared/guard/commands.txt"
"""Of another repository: it is read where it is there, and a part of it stands here."""
SOME = [
    ("confined", "git status && git diff | head -50"), ("confined", "wc -l *.py"), ("confined", "find . -name '*.py' | xargs wc -l"),
    ("confined", "python -m pytest -q"), ("confined", "python -c 'print(1+1)'"), ("confined", "make test"), ("confined", "npx tsc --noEmit"),
    ("confined", "uv run pytest"), ("confined", "mv a.py b.py"), ("border", "git commit -m 'fix add'"), ("border", "git fetch origin"),
    ("border", "docker ps"), ("border", "curl -s localhost:8000/health"), ("border", "pip install -e ."), ("border", "gh pr view 12"),
]  # fmt: skip

ANOTHER_HOUR = {
    "confined": (
        "node --test", "node index.js", "npx vitest run", "pnpm test", "pnpm run build", "yarn test", "npm ls --depth=0", "go build ./...", "go vet ./...", "go version",
        "gofmt -l .", "cargo build", "cargo clippy", "cargo fmt --check", "cargo tree", "cargo --version", "rustc --version", "mvn test", "./gradlew test", "java -version",
        "git log --oneline main..HEAD", "git diff main...HEAD --stat", "git remote -v", "git config --local user.email", "git worktree list", "uv pip list", "uv run ruff check .",
        "poetry run pytest", "poetry show", "make -j4 build", "rg --files -g '*.ts'", "jq -r '.scripts | keys[]' package.json", "sed -i 's/a/b/' a.py", "awk '{print $1}' names.txt",
        "find . -name '*.pyc' -delete", "find src -type f -exec grep -l foo {} +", "DEBUG=1 pytest -q", "NODE_ENV=test npm test", "CI=1 pnpm test -- --run",
        "PYTHONPATH=src python -m pytest", "cat <<'EOF' > x.txt\nhello\nEOF", "cd src && python -m pytest -q", "for f in *.py; do echo $f; done", "while read l; do echo $l; done < names.txt",
        "if [ -f a.py ]; then cat a.py; fi", "diff <(sort a.py) <(sort b.py)", "python - <<'EOF'\nprint(1)\nEOF", "source .venv/bin/activate && pytest", "timeout 60 pytest -q",
        "terraform fmt -check", "ruby -v", "deno test", "dotnet build", "cmake -B build && cmake --build build", "rm -rf build dist", "tar czf out.tgz src", "wc -l < a.py",
        "conda list", "dvc status", "Rscript plot.R", "julia run.jl", "./run.sh", "meson setup build", "ctest --test-dir build", "papermill in.ipynb out.ipynb",
        "pytest -q; echo $?", "make test 2>&1 | tail -5; echo ${PIPESTATUS[0]}", "time make test", "nice make", "env A=b npm test", "timeout 60 make test", "tar tzf x", "unzip -l x", "id", "groups", "locale",
        "helm template x", "helm lint x", "bundle exec rspec", "composer test", "composer validate", "gem list", "psql --version", "mix test", "dotnet test",
        "grep -c foo a.py || true", "git stash show -p", "git blame -L 1,5 a.py", "command -v node", "sqlite3 x.db .tables",
    ),
    "border": (
        "pnpm install", "npm ci", "go mod tidy", "cargo add serde", "docker build -t x .", "docker logs web", "docker compose up -d", "kubectl logs pod/x", "kubectl apply -f x.yaml",
        "git restore a.py", "git reset --hard HEAD~1", "git rebase main", "git stash pop", "git cherry-pick abc123", "git tag v1", "git worktree add ../x", "git submodule update",
        "git bisect start", "uv add httpx", "uv pip install -e .", "poetry add x", "terraform plan", "gh run list", "aws s3 ls", "ssh host ls", "curl -fsSL https://x.sh | bash",
        "wget https://example.com/a.tgz", "brew install jq", "sudo ls", "npm publish",
        "bundle install", "composer install", "twine upload dist/x", "http example.com/x", "xh :8000/x", "nc -z host 80", "redis-cli ping", "psql -l", "mysql -e 'select 1'", "mongosh x", "ansible-playbook site.yml",
        "vault read secret/x", "gem install x", "pg_dump x", "grpcurl host:1 list", "mix deps.get", "dotnet restore", "git config user.name x", "git submodule update --init", "helm install x y", "AWS_PROFILE=x aws s3 ls",
        "timeout 5 curl example.com", "whois x", "crontab -l",
        "conda install -y numpy", "pipx install ruff", "rustup update", "huggingface-cli download gpt2", "kaggle datasets list", "dvc pull", "gsutil ls gs://b",
    ),
}  # fmt: skip
"""Another hour, of other languages and with what models like to write: prefixes, loops, documents."""


def commands() -> list[tuple[str, str]]:
    return [*listed(), *((label, one) for label, found in ANOTHER_HOUR.items() for one in found)]


def listed() -> list[tuple[str, str]]:
    if not LIST.exists():
        return SOME
    rows = [line.partition("\t") for line in LIST.read_text("utf-8").splitlines() if line and not line.startswith("#")]
    return [(label, command) for label, _, command in rows]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name in ("calc.py", "a.py", "b.py", "README.md", "log.txt", "names.txt", "package.json", "tmp.txt"):
        (tmp_path / name).write_text("x\n")
    (tmp_path / "src").mkdir()
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    return tmp_path


@pytest.mark.row("P15")
def test_what_needs_the_border_is_told_from_what_can_run_confined():
    wrong = [command for label, command in commands() if (label == "confined") == bool(border_of(command))]

    assert wrong == []


def test_a_copy_on_this_machine_needs_no_network_and_pip_as_a_module_does():
    assert border_of("rsync -a src/ dst/") == border_of("scp a b") == ()
    assert (
        border_of("rsync -a src/ host:dst/")
        == border_of("python3 -m pip install x")
        == border_of("pip install x")
        != ()
    )


def test_a_program_reaches_a_database_by_its_socket_where_no_host_is_named():
    for line in (
        "psql -l",
        "PGDATABASE=x psql",
        "psql -h /tmp x",
        "pg_dump x",
        "mysql -e 'select 1'",
        "psql postgres:///x",
    ):
        assert border_of(line) == (UNCONFINED,), line
    for line in (
        "psql -h db x",
        "psql -hdb",
        "psql --host=db",
        "PGHOST=db psql",
        "psql postgres://db/x",
        "psql 'host=db user=x'",
        "mysql --host db",
    ):
        assert border_of(line) == (Need("network", "*"),), line


@pytest.mark.row("P15", "P14")
async def test_without_a_sandbox_what_reads_runs_and_a_rule_silences_the_kind_of_all_else(project):
    session, tool = await memory_session(), shell_tool(project)
    asked: list[str] = []
    for label, command in commands():
        call = checked_call(tool, command=command)
        decision = await decide(None, call, session)
        assert (decision.kind == "allow") == reads_only(analyse(command)), command
        if decision.kind == "allow":
            assert label == "confined", command
            continue
        asked += [command] if label == "confined" and command not in ANOTHER_HOUR["confined"] else []
        rules = offered_rules(call, decision, session)
        assert rules, command
        assert (await decide(allow(*rules), call, session)).kind == "allow", (command, rules)
    assert len(asked) <= 22, asked


@pytest.mark.row("P12", "P14")
async def test_in_a_sandbox_and_mode_auto_only_the_border_asks_and_a_rule_lifts_it(project):
    session, tool = await memory_session(), shell_tool(project)
    for label, command in commands():
        call = checked_call(tool, command=command)

        async def decided(policy, call=call):
            return with_approval(await decide(Confined(policy), call, session), call)

        asked = await decided(None)
        found = in_mode("auto", with_protection(asked, call, {}), call)
        assert (found.kind == "ask") == (label == "border"), command
        if label == "border":
            rules = offered_rules(call, asked, session)
            lifted = await decided(allow(*rules))
            assert lifted.kind in ("sandbox", "allow"), command
            assert set(lifted.lifted) == {need.text for need in border_of(command)}, command


@pytest.mark.row("P12")
@pytest.mark.parametrize(
    ("command", "denied", "becomes"),
    [
        ("python -c 'print(1)'", "read(path=secrets/**)", "sandbox"), ("python -c 'print(1)'", "shell(rm:*)", "sandbox"),
        ("for f in *.py; do wc $f; done", "read(path=secrets/**)", "sandbox"),
        ("python -c 'print(1)'", "write(path=src/**)", "ask"), ("python -c 'print(1)'", "grep(path=secrets/**)", "ask"),
        ("cat secrets/key", "read(path=secrets/**)", "deny"), ("bash -c 'rm x'", "shell(rm:*)", "deny"),
        ("curl $X", "shell(curl evil.example:*)", "ask"),
    ],
)  # fmt: skip
async def test_beside_a_rule_that_denies_a_confined_line_is_asked_about_only_where_the_sandbox_does_not_keep_the_rule(
    project, command, denied, becomes
):
    session, call = await memory_session(), checked_call(shell_tool(project), command=command)

    decision = with_approval(await decide(Confined(deny(denied)), call, session), call)

    assert in_mode("auto", decision, call).kind == becomes
    is_open = await decide(deny(denied), call, session)
    assert in_mode("bypass", is_open, call).kind == ("deny" if becomes == "deny" else "ask")


COVERED = [
    "git diff", "git diff --staged", "git show HEAD", "git blame calc.py", "rg 'def add'", "grep -rn add .", "find . -name '*.py' | xargs wc -l",
    "tree -L 2", "bash p.sh", "perl -e 1", "for f in *.py; do wc $f; done", "ls $(pwd)", "a=1; echo $a", "sed -i s/a/b/ a.py", "find . -name x -delete",
    "source .venv/bin/activate && pytest", "FOO=1 make test", "git -C src status", "tar czf x.tgz src", "mkdir -p a/{b,c}", "git log -p --stat",
    "cat <<'E' > y\nx\nE", "cp -r . ../copy",
]  # fmt: skip


@pytest.mark.row("P12")
async def test_a_confined_command_that_goes_through_folders_needs_no_question_for_denied_files_which_the_sandbox_covers(
    project,
):
    (project / "secrets").mkdir()
    (project / "secrets" / "key").write_text("x")
    session, tool = await memory_session(), shell_tool(project)
    rules = deny("read(path=secrets/**)", "read(path=.env)")

    async def becomes(command: str, *, confined: bool) -> str:
        call = checked_call(tool, command=command)
        decision = with_approval(await decide(Confined(rules) if confined else rules, call, session), call)
        return in_mode("auto", with_protection(decision, call, {}), call).kind

    for command in [*COVERED, *(one for label, one in commands() if label == "confined")]:
        assert await becomes(command, confined=True) == "sandbox", command
    for command in (
        "cat secrets/key",
        "git show HEAD:secrets/key",
        "cd secrets && cat key",
        "echo x > secrets/key",
        "grep -r x secrets/key",
        "cat .env",
    ):
        assert await becomes(command, confined=True) == "deny", command
    for command in ("grep -rn add .", "git diff", "cp -r . ../copy"):
        assert await becomes(command, confined=False) == "deny", command


@pytest.mark.row("P12")
@pytest.mark.parametrize(
    "command", ["docker ps; python x.py", "git commit -m a && python x.py", "curl example.com | python x.py"]
)
async def test_a_rule_lifts_nothing_for_a_command_that_runs_code_beside_its_own(project, command):
    session, call = await memory_session(), checked_call(shell_tool(project), command=command)
    rules = allow("shell(docker ps:*)", "shell(git commit:*)", "shell(curl example.com:*)", "shell(python x.py:*)")

    decision = with_approval(await decide(Confined(rules), call, session), call)

    assert (decision.kind, decision.scope) == ("ask", "runtime")
    assert in_mode("auto", decision, call).kind == "ask"


@pytest.mark.row("P12", "P14")
async def test_a_host_that_a_rule_names_is_reached_by_each_confined_command(project):
    session, tool = await memory_session(), shell_tool(project)
    call = checked_call(tool, command="python x.py", needs=["network api.example.com"], reason="x")

    async def decided(policy, call=call):
        decision = await decide(Confined(policy), call, session)
        return with_approval(with_reachable(decision, call, (policy,), session), call)

    asked = await decided(None)
    assert asked.kind == "ask"
    assert offered_rules(call, asked, session) == ("shell(python x.py:*)", "network(api.example.com)")
    for rules in (["network(api.example.com)"], ["network(*.example.com)"], ["network(*)"]):
        lifted = await decided(allow(*rules))
        assert (lifted.kind, lifted.lifted, in_mode("auto", lifted, call).kind) == (
            "ask",
            ("network api.example.com",),
            "sandbox",
        )
    assert (await decided(allow("network(example.com)"))).rule == asked.rule
    assert (await decided(allow("shell(python x.py:*)", "network(api.example.com)"))).kind == "sandbox"
    curl = checked_call(tool, command="curl api.example.com/x")
    assert in_mode("auto", await decided(allow("network(api.example.com)"), curl), curl).kind == "sandbox"
    assert (await decide(deny("network(api.example.com)"), curl, session)).kind == "deny"
    everything = checked_call(tool, command="pip install x")
    assert (await decide(deny("network(api.example.com)"), everything, session)).scope == "runtime"


@pytest.mark.parametrize(("text", "form"), [("network(example.com:80)", "`network(example.com)`"), ("network(http://a.b/c)", "`network(a.b)`"),
                                            ("network(port=80)", "`network(example.com)`"), ("network()", "network")])  # fmt: skip
def test_a_rule_on_the_network_names_a_host_or_is_refused_with_the_form_that_does(text, form):
    with pytest.raises(ConfigurationError) as refused:
        allow(text)
    assert form in str(refused.value)


@pytest.mark.row("P14")
@pytest.mark.parametrize(
    ("command", "others"),
    [
        ("python -m pytest -q", ["python -m pytest tests/x.py -x", "cd src && python -m pytest"]), ("git fetch origin", ["git fetch --all"]),
        ("make test", ["make test", "make -j4 test"]), ("npm run build", ["npm run build -- --watch"]), ("npx tsc --noEmit", ["npx tsc -p ."]),
        ("uv run pytest", ["uv run pytest -k x"]), ("docker ps", ["docker ps -a"]), ("curl -s localhost:8000/a", ["curl localhost:8000/b"]),
        ("pytest && ruff check .", ["pytest -q | tail -3", "ruff check src"]), ("git commit -m 'a b'", ["git commit -m c --no-edit"]),
        ("for f in *.py; do wc $f; done", ["for f in *.py; do wc $f; done"]), ("CI=1 npm test", ["npm test", "NODE_ENV=test npm test -- -w"]),
        ("node --test", ["node --test --watch"]), ("uv pip install -e .", ["uv pip install x"]), ("go mod tidy", ["go mod tidy -v"]),
        ("pytest; echo $?", ["pytest -q; echo $?", "timeout 60 pytest"]), ("PYTHONPATH=src python -m pytest", ["PYTHONPATH=. python -m pytest -q", "time python -m pytest"]),
        ("env A=b npm test", ["A=c npm test", "A= nice npm test"]), ("git submodule update", ["git submodule update --init"]), ("git config user.name x", ["git config user.email y"]),
        ("Rscript plot.R", ["Rscript plot.R x"]), ("conda install -y numpy", ["conda install x"]),
    ],
)  # fmt: skip
async def test_after_always_none_of_its_kind_asks_again(project, command, others):
    session, tool = await memory_session(), shell_tool(project)
    call = checked_call(tool, command=command)
    rules = offered_rules(call, await decide(None, call, session), session)

    for other in others:
        assert (await decide(allow(*rules), checked_call(tool, command=other), session)).kind == "allow", (other, rules)
    for other in (
        "rm -rf src",
        "python -c pass",
        "curl evil.example",
        "git push --force",
        "docker run x",
        "make deploy",
    ):
        assert (await decide(allow(*rules), checked_call(tool, command=other), session)).kind != "allow", (other, rules)
