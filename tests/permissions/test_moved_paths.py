"""A path that leads elsewhere once it was decided on: nothing is opened but what was decided on, and consent covers nothing else."""

import shutil
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from treadle import Agent, Tool, allow, ask, deny, file_tools, first_of, open_session, shell_tool
from treadle.budgets import Guards
from treadle.events import ApprovalRequested
from treadle.messages import Result, ToolCall
from treadle.permissions import can_use_tool
from treadle.testing import ScriptedModel, call, text
from treadle.tools import JsonObject, ToolContext
from treadle.toolsets import writing_tools

QUIET = Guards(repeats=None, denials=None, no_progress=None)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, content in {
        "secrets/key": "hidden\n",
        ".git/config": "[core]\n",
        "pub/key": "shown\n",
        "out/a": "a\n",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    return tmp_path


def moving(root: Path) -> Tool:
    """A tool after which a path leads elsewhere, as a script of a build may do it."""

    async def link(arguments: JsonObject, ctx: ToolContext) -> str:
        swap(root, arguments["name"], arguments["to"])
        return "linked"

    return Tool(name="link", description="Link.", parameters={"type": "object"}, permission="allow", run=link)


def swap(root: Path, name: str, to: str) -> None:
    if (root / name).is_dir():
        shutil.rmtree(root / name)
    (root / name).unlink(missing_ok=True)
    (root / name).symlink_to(to)


def tools(root: Path) -> list[Any]:
    return [*file_tools(root), *writing_tools(root), moving(root)]


def results(result: Any) -> list[Result]:
    return [one for message in result.messages for one in message.results]


@pytest.mark.row("AT-PATHS-SWAPPED", "AT-PATHS-DENIED")
@pytest.mark.parametrize(
    ("link", "then"),
    [
        (("l", "secrets/key"), call("read", path="l")),
        (("pub/key", "../secrets/key"), call("read", path="pub/key")),
        (("pub", "secrets"), call("read", path="pub/key")),
        (("pub", "secrets"), call("grep", pattern=".", path="pub")),
        (("l", "secrets"), call("grep", pattern=".", path="l/key")),
        (("pub", "secrets"), call("list", path="pub")),
        (("pub", "secrets"), call("glob", pattern="*", path="pub")),
    ],
)
async def test_a_link_that_an_earlier_call_of_the_response_has_made_leads_past_no_rule(root, link, then):
    model = ScriptedModel([[call("link", name=link[0], to=link[1]), then], text("Done.")])
    rules = first_of(*(deny(f"{name}(path=secrets/**)") for name in ("read", "list", "glob")))

    result = await Agent(model, tools=tools(root), policy=rules).run("Go")

    assert [one.status for one in result.tool_calls] == ["ok", "rejected"]
    assert "when the call was decided on" in results(result)[1].content
    assert "hidden" not in "".join(one.content for one in results(result))


@pytest.mark.row("AT-PATHS-SWAPPED", "AT-PATHS-PROTECTED")
@pytest.mark.parametrize("path", ["out/hooks/pre-commit", "out/config", "out/new"])
async def test_a_write_that_would_go_elsewhere_by_now_is_refused(root, path):
    model = ScriptedModel(
        [
            call("read", path=".git/config"),
            [call("link", name="out", to=".git"), call("write", path=path, content="x")],
            text("Done."),
        ]
    )

    result = await Agent(model, tools=tools(root), policy=allow("write(path=out/**)")).run("Go")

    assert [one.status for one in result.tool_calls] == ["ok", "ok", "rejected"]
    assert [one.name for one in (root / ".git").iterdir()] == ["config"]
    assert (root / ".git/config").read_text() == "[core]\n"


async def test_the_next_call_by_the_same_path_is_decided_on_as_it_leads_now(root):
    first = [call("link", name="l", to="pub"), call("read", path="l/key")]
    model = ScriptedModel([first, call("read", path="l/key"), text("Done.")])

    result = await Agent(model, tools=tools(root), policy=deny("read(path=secrets/**)")).run("Go")

    assert [one.status for one in result.tool_calls] == ["ok", "rejected", "ok"]
    assert "shown" in results(result)[2].content


@pytest.mark.row("AT-PATHS-SWAPPED", "AT-APPROVAL-BOUND")
@pytest.mark.parametrize(
    ("to", "rule"), [(".git", "protected file"), ("pub", "tool write permission"), ("secrets", None)]
)
async def test_consent_to_a_path_is_none_to_where_it_leads_later(root, to, rule):
    async with open_session(root / "agent.db", id="s") as session:
        model = ScriptedModel([call("write", path="out/new", content="x"), text("Done.")])
        agent = Agent(model, tools=tools(root), policy=deny("write(path=secrets/**)"))
        paused = await agent.run("Go", session=session)
        swap(root, "out", to)
        await session.answer(paused.approvals[0].id, "allow")

        result = await agent.resume(session)

    assert [(one.rule, one.target) for one in result.approvals] == ([(rule, f"{to}/new")] if rule else [])
    assert not (root / to / "new").exists()


@pytest.mark.row("AT-APPROVAL-BOUND")
async def test_consent_to_a_path_through_a_link_covers_it_in_another_process_and_place(root, tmp_path_factory):
    swap(root, "out", "pub")
    async with open_session(root / "agent.db", id="s") as session:
        model = ScriptedModel([call("write", path="./out/new", content="x"), text("Done.")])
        paused = await Agent(model, tools=tools(root)).run("Go", session=session)
        await session.answer(paused.approvals[0].id, "allow")
    other = tmp_path_factory.mktemp("worker") / "copy"
    shutil.copytree(root, other, symlinks=True)
    async with open_session(root / "agent.db", id="s") as session:
        result = await Agent(ScriptedModel([text("Done.")]), tools=tools(other)).resume(session)
        asked = [one async for one in session.events() if isinstance(one, ApprovalRequested)]

    assert (result.completed, len(asked), (other / "pub/new").read_text()) == (True, 1, "x")


@pytest.mark.row("AT-PATHS-SWAPPED")
async def test_a_tool_learns_what_its_call_was_decided_to_name(root):
    found: list[Any] = []

    async def look(arguments: JsonObject, ctx: ToolContext) -> str:
        found.append(dict(ctx.subjects))
        return "looked"

    files = {tool.name: tool for tool in file_tools(root)}
    named = files["read"].subjects
    tool = Tool(
        name="look", description="Look.", parameters={"type": "object"}, effect="read", subjects=named, run=look
    )
    swap(root, "out", "pub")
    model = ScriptedModel([call("look", path="out/../pub/./key"), text("Done.")])
    await Agent(model, tools=[tool], policy=ask("never")).run("Go")

    assert found == [{"path": ("pub/key", f"{root}/pub/key")}]


LINES = (deny("read(path=secrets/**)", "write(path=secrets/**)"), allow("shell(cd:*)", "shell(cat:*)", "shell(rm:*)", "shell(ls:*)"))  # fmt: skip


@pytest.mark.row("AT-PATHS-DENIED", "S21")
@pytest.mark.parametrize(
    ("folder", "line", "status"),
    [("secrets", "cat key", "denied"), ("secrets", "rm key", "denied"), ("pub", "ls", "ok"), ("pub", "cat key", "ok")],
)
async def test_a_line_is_decided_on_for_the_folder_in_which_an_earlier_line_of_its_response_leaves_it(
    root, folder, line, status
):
    model = ScriptedModel([[call("shell", command=f"cd {folder}"), call("shell", command=line)], text("Done.")])

    result = await Agent(model, tools=[shell_tool(root)], policy=first_of(*LINES)).run("Go")

    assert [one.status for one in result.tool_calls] == ["ok", status]
    assert (root / "secrets/key").read_text() == "hidden\n"
    assert "hidden" not in "".join(one.content for one in results(result))


@pytest.mark.row("AT-PATHS-PROTECTED")
async def test_a_protected_file_is_asked_about_where_a_line_of_the_same_response_has_gone_to_its_folder(root):
    model = ScriptedModel([[call("shell", command="cd .git"), call("shell", command="rm config")], text("Done.")])

    result = await Agent(model, tools=[shell_tool(root)], policy=first_of(*LINES)).run("Go")

    assert [one.rule for one in result.approvals] == ["protected file"]
    assert "in the folder .git" in result.approvals[0].preview.text
    assert (root / ".git/config").exists()


@pytest.mark.row("AT-APPROVAL-BOUND")
async def test_consent_to_a_line_is_none_to_it_in_another_folder(root):
    async with open_session(root / "agent.db", id="s") as session:
        model = ScriptedModel([[call("shell", command="rm key"), call("shell", command="cd pub")], text("Done.")])
        agent = Agent(model, tools=[shell_tool(root)], policy=allow("shell(cd:*)"))
        paused = await agent.run("Go", session=session)
        assert "in the folder" not in paused.approvals[0].preview.text
        await session.answer(paused.approvals[0].id, "allow")
        again = await agent.resume(session)
        assert again.approvals[0].reason == "No rule allows this command yet. It starts in the folder pub."
        assert ("in the folder pub" in again.approvals[0].preview.text, (root / "pub/key").exists()) == (True, True)
        await session.answer(again.approvals[0].id, "allow")
        result = await agent.resume(session)

    assert (result.completed, (root / "pub/key").exists()) == (True, False)


@pytest.mark.row("AT-APPROVAL-BOUND", "AT-PATHS-PROTECTED")
async def test_consent_to_a_line_is_none_to_a_protected_file_that_it_reaches_by_now(root):
    async with open_session(root / "agent.db", id="s") as session:
        model = ScriptedModel([call("shell", command="echo x > out/config"), text("Done.")])
        agent = Agent(model, tools=[shell_tool(root)])
        paused = await agent.run("Go", session=session)
        swap(root, "out", ".git")
        await session.answer(paused.approvals[0].id, "allow")
        again = await agent.resume(session)
        assert ([one.rule for one in again.approvals], (root / ".git/config").read_text()) == (
            ["protected file"],
            "[core]\n",
        )
        await session.answer(again.approvals[0].id, "allow")
        result = await agent.resume(session)

    assert (result.completed, (root / ".git/config").read_text()) == (True, "x\n")


WRITES = ("echo x > pub/key", "cp out/a pub/key", "cp out/a pub", "tee pub/key < out/a", "sed -i s/a/b/ pub/key", "my-tool --out=pub/key", "for i in 1; do echo x > pub/key; done", "chmod 600 pub/k*")  # fmt: skip


@pytest.mark.row("AT-PATHS-SWAPPED", "AT-APPROVAL-BOUND")
@pytest.mark.parametrize("line", WRITES)
@pytest.mark.parametrize("to", ["{outside}", "../out/b"])
async def test_consent_to_a_line_is_none_to_where_a_path_of_it_leads_by_now(root, tmp_path_factory, line, to):
    outside = tmp_path_factory.mktemp("outside") / "victim"
    for one in (outside, root / "out/b"):
        one.write_text("mine\n")
    target = to.format(outside=outside)
    name = "pub/a" if line.endswith(" pub") else "pub/key"
    async with open_session(root / "agent.db", id="s") as session:
        model = ScriptedModel([call("shell", command=line), text("Done.")])
        paused = await Agent(model, tools=[shell_tool(root)]).run("Go", session=session)
        swap(root, name, target)
        await session.answer(paused.approvals[0].id, "allow")
    async with open_session(root / "agent.db", id="s") as session:  # as another process does it
        again = await Agent(ScriptedModel([text("Done.")]), tools=[shell_tool(root)]).resume(session)
        assert [one.id for one in again.approvals] != [paused.approvals[0].id]
        assert (root / name).resolve().name in again.approvals[0].preview.text
        assert (outside.read_text(), (root / "out/b").read_text()) == ("mine\n", "mine\n")
        await session.answer(again.approvals[0].id, "allow")
        result = await Agent(ScriptedModel([text("Done.")]), tools=[shell_tool(root)]).resume(session)

    assert (result.completed, result.approvals) == (True, ())


@pytest.mark.row("AT-PATHS-SWAPPED")
async def test_a_line_that_a_policy_allows_after_a_while_is_decided_on_as_its_paths_lead_then(root, tmp_path):
    (tmp_path / "victim").write_text("mine\n")
    asked: list[str] = []

    async def may(name: str, arguments: JsonObject, session: Any) -> bool:
        asked.append(arguments["command"])
        if len(asked) == 1:  # a person has read it
            swap(root, "pub/key", "../out/a")
        return len(asked) == 1

    model = ScriptedModel([call("shell", command="echo x > pub/key"), text("Done.")])
    result = await Agent(model, tools=[shell_tool(root)], policy=can_use_tool(may)).run("Go")

    assert [one.status for one in result.tool_calls] == ["denied"]
    assert (len(asked), (root / "out/a").read_text()) == (2, "a\n")


@pytest.mark.row("AT-PATHS-SWAPPED", "AT-PATHS-DENIED")
async def test_a_link_that_never_stops_moving_leads_past_no_rule(root):
    stop = threading.Event()

    def flip() -> None:
        while not stop.is_set():
            for to in ("pub", "secrets"):
                (root / "next").symlink_to(to)
                (root / "next").rename(root / "l")

    (root / "l").symlink_to("pub")
    calls = [call("read", path="l/key"), call("grep", pattern=".", path="l"), call("write", path="l/new", content="x")]
    rules = first_of(deny("read(path=secrets/**)", "write(path=secrets/**)"), allow("write"))
    agent = Agent(ScriptedModel([*[calls] * 40, text("Done.")]), tools=tools(root), policy=rules, guards=QUIET)
    flipping = threading.Thread(target=flip)
    flipping.start()
    try:
        result = await agent.run("Go")
    finally:
        stop.set()
        flipping.join()

    assert len(results(result)) == 120
    assert "hidden" not in "".join(one.content for one in results(result))
    assert [one.name for one in (root / "secrets").iterdir()] == ["key"]


@pytest.mark.row("AT-PATHS-PROTECTED", "AT-APPROVAL-BOUND")
@pytest.mark.parametrize("path", ["out/hook", ".git/hook"])
async def test_edited_arguments_that_reach_a_protected_file_are_confirmed(root, path):
    swap(root, "out", ".git")
    edit = {"path": path, "content": "x"}
    async with open_session(root / "agent.db", id="s") as session:
        model = ScriptedModel([call("write", path="new", content="x"), text("Done.")])
        agent = Agent(model, tools=tools(root))
        paused = await agent.run("Go", session=session)
        await session.answer(paused.approvals[0].id, "allow", arguments=edit)
        again = await agent.resume(session)
        assert [one.approval_type for one in again.approvals] == ["unfit_edit"]
        assert ".git/hook is protected" in again.approvals[0].reason
        assert not (root / ".git/hook").exists()
        await session.answer(again.approvals[0].id, "allow", arguments=edit)
        result = await agent.resume(session)

    assert (result.completed, (root / ".git/hook").read_text(), (root / "new").exists()) == (True, "x", False)


@pytest.mark.parametrize("path", ["l/new", "l/deep/new"])
async def test_a_link_to_a_folder_that_does_not_exist_yet_is_written_through(root, path):
    (root / "l").symlink_to("later/on")
    model = ScriptedModel(
        [call("write", path="later/on/first", content="x"), call("write", path=path, content="x"), text("Done.")]
    )

    result = await Agent(model, tools=tools(root), policy=allow("write(path=later/on/**)")).run("Go")

    assert [one.status for one in result.tool_calls] == ["ok", "ok"]


async def test_folders_are_made_where_a_link_leads_that_leads_nowhere_yet(root):
    (root / "l").symlink_to("later/on")
    model = ScriptedModel([call("write", path="l/new", content="x"), text("Done.")])

    result = await Agent(model, tools=tools(root), policy=allow("write(path=later/on/**)")).run("Go")

    assert ([one.status for one in result.tool_calls], (root / "later/on/new").read_text()) == (["ok"], "x")


@pytest.mark.row("AT-PATHS-SWAPPED", "AT-PATHS-DENIED")
@pytest.mark.parametrize(("to", "status"), [("secrets/key", "denied"), ("pub/key", "ok")])
async def test_a_line_is_decided_again_where_an_earlier_call_of_its_response_has_moved_what_it_touches(
    root, to, status
):
    asked: list[str] = []

    def noted(call: ToolCall) -> ToolCall:
        asked.append(call.name)
        return call

    model = ScriptedModel(
        [
            [call("link", name="l", to=to), call("shell", command="cat l"), call("shell", command="cat out/a")],
            text("Done."),
        ]
    )
    hook = SimpleNamespace(before=noted, after=lambda call, result: result)
    agent = Agent(model, tools=[moving(root), shell_tool(root)], policy=first_of(*LINES), interceptors=[hook])

    result = await agent.run("Go")

    assert [one.status for one in result.tool_calls] == ["ok", status, "ok"]
    assert asked == ["link", "shell", "shell", "shell"]  # the last line touches what it did
    assert "hidden" not in "".join(one.content for one in results(result))


def naming(root: Path) -> Tool:
    """A tool that gives a file another name, as a script of a build may do it."""

    async def name(arguments: JsonObject, ctx: ToolContext) -> str:
        (root / arguments["name"]).unlink(missing_ok=True)
        (root / arguments["name"]).hardlink_to(root / arguments["to"])
        return "named"

    return Tool(name="name", description="Name.", parameters={"type": "object"}, permission="allow", run=name)


@pytest.mark.row("AT-PATHS-SWAPPED", "AT-PATHS-DENIED")
@pytest.mark.parametrize(("to", "status"), [("secrets/key", "denied"), ("out/a", "ok")])
@pytest.mark.parametrize(
    ("name", "then"),
    [
        ("l", call("read", path="l")),
        ("pub/key", call("read", path="pub/key")),
        ("l", call("shell", command="cat l")),
        ("pub/key", call("shell", command="cat pub/key")),
    ],
)
async def test_a_hard_link_that_an_earlier_call_of_the_response_has_made_leads_past_no_rule(
    root, to, status, name, then
):
    model = ScriptedModel([[call("name", name=name, to=to), then], text("Done.")])
    rules = first_of(deny("grep(path=secrets/**)"), *LINES)

    result = await Agent(model, tools=[*tools(root), naming(root), shell_tool(root)], policy=rules).run("Go")

    assert [one.status for one in result.tool_calls] == ["ok", status]
    assert "hidden" not in "".join(one.content for one in results(result))
