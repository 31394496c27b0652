"""Protected files are written after a question only: in every mode, by every spelling, also where they do not exist yet."""

import os

import pytest

from treadle import Agent, Tool, allow, file_tools, first_of, open_session, shell_tool
from treadle.journals.memory import MemoryJournal
from treadle.testing import ScriptedModel, call, text
from treadle.tools.protected import SEALED, is_protected, may_name_protected
from treadle.toolsets import writing_tools

NAMES = [
    ".git/hooks/pre-commit", ".git/config", ".git/info/attributes", "sub/.git/hooks/x", ".git", ".treadle/config.toml", ".claude/settings.json",
    ".mcp.json", ".envrc", "src/.ugrep", ".bash_completion", ".mailcap", ".env", ".env.local", ".bashrc", ".zshenv", ".profile", ".npmrc",
    ".gitconfig", ".gitmodules", ".vscode/tasks.json", ".husky/pre-push", ".ssh/authorized_keys", ".pre-commit-config.yaml", "lib/site.pth",
    "lib/sitecustomize.py", "keys/server.pem", "id_ed25519", ".config/git/config", ".GIT/hooks/x", ".Git/Config", ".BASHRC", "./a/../.git/hooks/x",
    ".git//hooks/x", ".\uff27\uff29\uff34/hooks/x", ".g\u200cit/hooks/x", ".git./hooks/x", ".git /hooks/x", ".git::$INDEX_ALLOCATION/x",
    ".ba\u017fhrc", ".hg/hgrc", ".cargo/config.toml", ".mvn/extensions.xml", ".yarn/releases/yarn.cjs", ".bazelrc", ".tool-versions",
    ".devcontainer.json", ".CARGO/Config", ".\uff28g/hgrc", "rust-toolchain.toml", "HEAD", "sub/HEAD", "sub/Head", "\uff28EAD",
    "repo.git/hooks/update", "repo.GIT/config", "lefthook-local.yml", ".lefthook-local.jsonc", "mise.local.toml", ".mise.production.toml",
    "mise/config.local.toml", "sub/mise/config.toml", ".github/hooks/x.json", ".GitHub/Hooks/x.json", "a.code-workspace", "opencode.json",
    ".opencode/plugin/x.ts",
]  # fmt: skip

PLAIN = [
    "src/a.py", "notes.txt", ".gitignore", ".github/workflows/ci.yml", "gitconfig", "hooks/x.py", ".env.example", "a.path", "treadle.py", "objects/a",
    "refs/heads/b", "HEADER.md", "HEAD/a", "a.git", "mise/notes.toml", "mise.md", "hooks/config.toml", ".github/copilot.md", "lefthook.md",
]  # fmt: skip

MODES = ["ask", "accept-edits", "bypass"]


def names_in(folder) -> list[str]:
    return sorted(one.name for one in folder.iterdir())


@pytest.mark.row("D-PROTECTED")
def test_each_name_that_a_sandbox_protects_is_asked_about_wherever_it_is():
    names = [one.replace("*", "x") for one in SEALED]
    spelled = (*names, *map(str.upper, names), *(f"sub/{one}" for one in names), *(f"/srv/me/{one}" for one in names))

    assert [one for one in spelled if not is_protected([one])] == []


async def outcome(calls, tools, *, mode="ask", policy=None) -> str:
    agent = Agent(ScriptedModel([calls, text("Done.")]), tools=tools, policy=policy)
    async with open_session(MemoryJournal(), id="s") as session:
        await session.set_mode(mode)
        result = await agent.run("Go", session=session)
    if result.approvals:
        return result.approvals[0].rule
    return result.tool_calls[0].status


@pytest.mark.row("D-PROTECTED", "AT-PATHS-PROTECTED")
@pytest.mark.parametrize("name", NAMES)
async def test_a_write_of_a_protected_file_asks_in_every_mode(tmp_path, name):
    (tmp_path / "a").mkdir()

    for mode in MODES:
        found = await outcome(
            call("write", path=name, content="x"), writing_tools(tmp_path), mode=mode, policy=allow("write")
        )
        assert found == "protected file", mode
    absolute = str(tmp_path / name)
    assert (
        await outcome(call("write", path=absolute, content="x"), writing_tools(tmp_path), policy=allow("write"))
        == "protected file"
    )
    for mode, status in (("plan", "denied"), ("deny-unlisted", "denied")):
        assert (
            await outcome(
                call("write", path=name, content="x"), writing_tools(tmp_path), mode=mode, policy=allow("write")
            )
            == status
        )
    assert names_in(tmp_path) == ["a"]


@pytest.mark.parametrize("name", PLAIN)
async def test_other_files_are_written(tmp_path, name):
    found = await outcome(call("write", path=name, content="x"), writing_tools(tmp_path), policy=allow("write"))

    assert found == "ok"


@pytest.mark.row("D-PROTECTED")
@pytest.mark.parametrize("mode", MODES)
async def test_a_link_to_a_protected_file_is_one(tmp_path, mode):
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "config").write_text("old")
    (tmp_path / "notes.txt").symlink_to(".git/config")
    (tmp_path / "folder").symlink_to(".git")
    (tmp_path / "later").symlink_to(".git/hooks/pre-commit")
    tools = [*file_tools(tmp_path), *writing_tools(tmp_path)]

    for name in ("notes.txt", "folder/config", "later", "folder/hooks/new"):
        found = await outcome(call("write", path=name, content="x"), tools, mode=mode, policy=allow("write"))
        assert found == "protected file", name
    found = await outcome(
        call("edit", path="notes.txt", old_text="old", new_text="new"), tools, mode=mode, policy=allow("edit")
    )
    assert found == "protected file"
    assert (tmp_path / ".git" / "config").read_text() == "old"


@pytest.mark.row("D-PROTECTED")
@pytest.mark.parametrize(
    "line",
    ["echo x >> notes.txt", "echo x > notes.txt", "tee -a d/../notes.txt", "dd of=notes.txt", "truncate -s0 notes.txt", "cp x notes.txt",
     "any notes.txt", "cd d && tee ../notes.txt"],
)  # fmt: skip
async def test_another_name_of_a_protected_file_is_one_for_a_command_that_changes_it_in_its_place(tmp_path, line):
    (tmp_path / "d").mkdir()
    (tmp_path / ".git").mkdir()
    for name in ("x", ".git/config", "plain.txt"):
        (tmp_path / name).write_text("old")
    os.link(tmp_path / ".git" / "config", tmp_path / "notes.txt")
    tools = [shell_tool(tmp_path)]

    assert await outcome(call("shell", command=line), tools, policy=allow("*")) == "protected file"
    assert (tmp_path / ".git" / "config").read_text() == "old"
    harmless = line.replace("notes.txt", "plain.txt").replace("any", "touch")
    assert await outcome(call("shell", command=harmless), tools, policy=allow("*")) == "ok"


LINES = [
    "touch .git/hooks/x", "cp x .git/hooks/pre-commit", "cd .git && touch config", "cd .git; cp ../x hooks/y", "echo x > .bashrc",
    "echo x >> a/../.envrc", "tee .zshrc", "dd if=x of=.git/config", "install -t .git/hooks x", "ln -s x .mcp.json", "mv x .GIT/hooks/post-checkout",
    "sed -i s/a/b/ .git/config", "git config core.pager x", "git -C . config core.hooksPath x", "git config --global alias.x '!id'",
    "git remote add o file:///x", "X=.git/hooks; touch $X/y", "touch .g?t/hooks/x", "touch .{git,x}/hooks/y",
    "for f in a; do touch .git/hooks/$f; done", "bash -c 'touch .git/hooks/x' $Y", "touch $'\\x2egit/hooks/x'", "touch .gi''t/hooks/$X",
    'python -c \'open(".bashrc", "w")\'', "touch link/x", "sort -o .git/hooks/x a", "sort -no.git/hooks/x a", "sort --outp=link/x a",
    "tree -o .git/hooks/x", "find . -maxdepth 0 -fprintf .git/hooks/x y", "git diff --output=.git/hooks/x", "git diff --output .git/hooks/x",
    "mv -t.git/hooks x", "file -C -m .git/hooks/x",
]  # fmt: skip


@pytest.mark.row("D-PROTECTED", "AT-PATHS-PROTECTED")
@pytest.mark.parametrize("command", LINES)
async def test_a_line_that_may_write_a_protected_file_asks_in_every_mode(tmp_path, command):
    (tmp_path / ".git").mkdir()
    (tmp_path / "link").symlink_to(".git")
    before = names_in(tmp_path / ".git")

    for mode in MODES:
        found = await outcome(
            call("shell", command=command), [shell_tool(tmp_path)], mode=mode, policy=first_of(allow("shell"))
        )
        assert found == "protected file", mode
    assert names_in(tmp_path / ".git") == before
    assert names_in(tmp_path) == [".git", "link"]


@pytest.mark.row("D-PROTECTED")
async def test_a_person_is_told_that_the_line_names_a_protected_file_though_a_word_of_it_is_expanded(tmp_path):
    (tmp_path / ".git").mkdir()
    agent = Agent(
        ScriptedModel([call("shell", command="touch $'\\x2egit/hooks/x'"), text("ok")]),
        tools=[shell_tool(tmp_path)],
        policy=allow("shell"),
    )

    asked = (await agent.run("go")).approvals[0]

    assert asked.reason.startswith("The line names a protected file, and what it does with that file is unknown")


@pytest.mark.parametrize(
    "command",
    ["cat .bashrc", "git config --get user.name", "git config --list", "git remote -v", "grep x .git/config", "ls .git", "touch x", "echo $HOME"],
)  # fmt: skip
async def test_a_line_that_only_reads_is_not_asked_about(tmp_path, command):
    found = await outcome(call("shell", command=command), [shell_tool(tmp_path)], mode="bypass", policy=allow("shell"))

    assert found == "ok"


async def test_a_tool_that_does_not_say_what_it_names_is_looked_at_as_it_is_written():
    ran = []

    async def save(arguments, ctx):
        ran.append(arguments)

    tool = Tool(name="save", description="Save.", parameters={"type": "object"}, run=save)

    assert await outcome(call("save", file_path="/srv/me/.bashrc"), [tool], mode="bypass") == "protected file"
    assert await outcome(call("save", file_path="/srv/me/notes"), [tool], mode="bypass") == "ok"
    assert len(ran) == 1


def test_the_folder_that_holds_the_root_does_not_count():
    assert not is_protected(("src/a.py", "/srv/me/.config/project/src/a.py"))
    assert is_protected(("/srv/me/.config/project/src/a.py",))


@pytest.mark.parametrize(
    "text", ["ls $X", "echo ${Y} > out", 'git commit -m "$(cat msg)"', "for f in *.py; do wc $f; done", "rm ..*", "cat .gitignore $X"]
)  # fmt: skip
def test_a_line_that_mentions_nothing_protected_is_not_hinted_at(text):
    assert not may_name_protected(text)


@pytest.mark.row("D-PROTECTED")
@pytest.mark.parametrize(
    "command",
    [
        "rm -rf .", "rm -rf ./", "rm -r d/..", "rm --recursive .", "/bin/rm -fR .", "cd d && rm -rf ..", "find . -delete", "find . -name config -delete",
        "find -delete", "chmod -R 777 .", "chown -R me .", "sudo rm -rf .", "bash -c 'rm -rf .'", "true; rm -rf .", "rm -rf .*",
    ],
)  # fmt: skip
async def test_the_root_folder_is_not_taken_away_with_the_protected_files_in_it(tmp_path, command):
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "config").write_text("old")
    (tmp_path / "d" / "sub").mkdir(parents=True)
    (tmp_path / "d" / "sub" / ".env").write_text("KEY=1")

    for mode in MODES:
        found = await outcome(call("shell", command=command), [shell_tool(tmp_path)], mode=mode, policy=allow("shell"))
        assert found == "protected file", mode
    assert (tmp_path / ".git" / "config").read_text() == "old"
    assert (tmp_path / "d" / "sub" / ".env").exists()


@pytest.mark.parametrize(
    "command",
    [
        "rm -rf build", "mv build out", "cp -r build out", "chmod -R u+w build", "find build -delete", "rm a.txt", "rm -rf b*", "tar cf a.tar build",
        "tar -tf a.tar; true", "tar -xf a.tar -C build; true", "unzip -l a.zip; true", "unzip a.zip -d build; true",
        "git checkout main; true", "git pull; true", "git reset HEAD a.txt; true", "git stash list; true", "git restore a.txt; true",
        "git checkout -- build; true", "git worktree list; true", "git clone x y; true", "git init; true", "gzip a.txt", "rsync -a build/ out; true",
    ],
)  # fmt: skip
async def test_folders_without_protected_files_are_taken_away(tmp_path, command):
    (tmp_path / ".git").mkdir()
    (tmp_path / "build").mkdir()
    (tmp_path / "build" / "a.py").write_text("x")
    (tmp_path / "a.txt").write_text("x")

    assert (
        await outcome(call("shell", command=command), [shell_tool(tmp_path)], mode="bypass", policy=allow("shell"))
        == "ok"
    )
