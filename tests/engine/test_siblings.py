"""What the failure of one call means for the other calls of its response. Order is proved with gates."""

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from invariants import check_session
from pipeline_tools import act
from treadle import Agent, Rejected, Tool, deny, file_tools, open_session
from treadle.testing import ScriptedModel, call, text
from treadle.toolsets import writing_tools

SECONDS = 60
"""After so long a gate hangs."""


def made(
    name: str, run: Callable[..., Any], *, effect: Any = "read", resources: Mapping[str, str] | None = None
) -> Tool:
    named = None if resources is None else lambda _: resources
    return act(run, name, effect=effect, resources=named)


async def told_of(tools: list[Tool], names: list[str], **options: Any) -> list[str]:
    """Propose these calls in one response, and return what the model is told of each."""
    model = ScriptedModel([[call(name) for name in names], text("done")])
    result = await Agent(model, tools=tools, **options).run("go")
    assert result.completed
    return [one.content for one in model.requests[-1].messages[-1].results]


async def fails(arguments: Any, ctx: Any) -> Any:
    raise Rejected({"error": "full"})


async def well(arguments: Any, ctx: Any) -> Any:
    return "fine"


@pytest.mark.row("S13")
async def test_a_write_runs_beside_a_read_of_another_file_and_a_read_of_its_own_waits():
    order: list[str] = []
    read_b = asyncio.Event()

    async def run(arguments: Any, ctx: Any) -> Any:
        name = ctx.call.name
        order.append(name)
        if name == "read_b":
            read_b.set()
        if name == "write_a":
            async with asyncio.timeout(SECONDS):
                await read_b.wait()  # only a read beside it ends it
            order.append("written")

    tools = [
        made("write_a", run, effect="idempotent", resources={"file:/a": "write"}),
        made("read_b", run, resources={"file:/b": "read"}),
        made("read_a", run, resources={"file:/a": "read"}),
    ]

    await told_of(tools, ["write_a", "read_b", "read_a"])
    assert order == ["write_a", "read_b", "written", "read_a"]


@pytest.mark.row("S13")
async def test_what_depends_on_a_failed_call_is_skipped_and_so_is_what_depends_on_that():
    ran: list[str] = []

    async def copy(arguments: Any, ctx: Any) -> Any:
        ran.append("copy")

    tools = [
        made("write_a", fails, effect="idempotent", resources={"file:/a": "write"}),
        made("copy_a_to_c", copy, effect="idempotent", resources={"file:/a": "read", "file:/c": "write"}),
        made("read_c", well, resources={"file:/c": "read"}),
        made("read_b", well, resources={"file:/b": "read"}),
        made("anything", well),
    ]

    told = await told_of(tools, ["write_a", "copy_a_to_c", "read_c", "read_b", "anything"])

    assert "full" in told[0]
    for skipped in told[1:3]:
        assert "Skipped: a prerequisite tool call failed: `write_a` (call_1)" in skipped
        assert '"type":"skipped"' in skipped
        assert '"prerequisite":"call_1"' in skipped
    assert told[3:] == ["fine", "fine"]
    assert ran == []


@pytest.mark.row("S13")
async def test_the_next_response_is_not_bound_by_what_failed_in_this_one():
    tools = [
        made("write_a", fails, effect="idempotent", resources={"file:/a": "write"}),
        made("read_a", well, resources={"file:/a": "read"}),
    ]
    model = ScriptedModel([[call("write_a")], [call("read_a")], text("done")])

    result = await Agent(model, tools=tools).run("go")

    assert [one.status for one in result.tool_calls] == ["rejected", "ok"]


@pytest.mark.row("S13")
async def test_a_read_that_fails_and_a_barrier_that_fails_let_the_others_run():
    tools = [
        made("read_a", fails, resources={"file:/a": "read"}),
        made("shell", fails, effect="unsafe", resources={"*": "write"}),
        made("write_a", well, effect="idempotent", resources={"file:/a": "write"}),
    ]

    assert (await told_of(tools, ["read_a", "shell", "write_a"]))[2] == "fine"


@pytest.mark.row("S13")
async def test_read_and_write_of_ours_name_the_same_file_by_any_path_and_root(tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.txt").write_text("old\n")
    (tmp_path / "link").symlink_to("src/a.txt")
    outer, inner = file_tools(tmp_path), writing_tools(tmp_path / "src")
    read = next(one for one in outer if one.name == "read")
    write = next(one for one in inner if one.name == "write")
    assert read.resources is not None
    assert write.resources is not None

    names = [set(read.resources({"path": path})) for path in ("src/a.txt", "./src/../src/a.txt", "link")]

    assert names == [set(write.resources({"path": "a.txt"}))] * 3
    assert set(read.resources({"path": "src/a.txt"}).values()) == {"read"}


@pytest.mark.row("S13")
async def test_a_stale_write_skips_the_read_of_that_file_and_not_of_another(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).write_text(f"{name}\n")
    turn = [
        call("write", path="a", content="new"),  # never read in this session: refused
        call("read", path="b"),
        call("read", path="./a"),
    ]
    model = ScriptedModel([turn, text("done")])
    tools = [*file_tools(tmp_path), *writing_tools(tmp_path)]

    async with open_session("memory:") as session:
        await session.set_mode("accept-edits")
        result = await Agent(model, tools=tools).run("go", session=session)

    assert [one.status for one in result.tool_calls] == ["rejected", "ok", "skipped"]
    assert (tmp_path / "a").read_text() == "a\n"


@pytest.mark.row("S12")
async def test_a_call_that_acts_and_fails_cancels_its_siblings_where_the_policy_says_so():
    reading, ended = asyncio.Event(), list[str]()

    async def act(arguments: Any, ctx: Any) -> Any:
        async with asyncio.timeout(SECONDS):
            await reading.wait()
        raise Rejected({"error": "full"})

    async def look(arguments: Any, ctx: Any) -> Any:
        reading.set()
        try:
            await asyncio.Event().wait()  # until it is cancelled
        finally:
            ended.append("look")

    tools = [
        made("act", act, effect="unsafe", resources={"a": "write"}),
        made("look", look, resources={"b": "read"}),
        made("other", well, effect="unsafe", resources={"a": "write", "c": "write"}),
    ]

    told = await told_of(tools, ["act", "look", "other"], cancel_siblings="on_unsafe_error")

    assert "full" in told[0]
    for one in told[1:]:
        assert "Cancelled: parallel tool call act errored." in one
        assert '"type":"cancelled"' in one
        assert '"code":"sibling_failed"' in one
        assert '"errored_call":"call_1"' in one
    assert ended == ["look"]


@pytest.mark.row("S12")
async def test_benign_failures_cancel_nothing_and_the_default_cancels_nothing():
    grep = made("grep", fails)
    tools = [
        grep,
        made("act", fails, effect="unsafe", resources={"a": "write"}),
        made("look", well, resources={"b": "read"}),
    ]

    assert (await told_of(tools, ["grep", "look"], cancel_siblings="on_unsafe_error"))[1] == "fine"
    assert (await told_of(tools, ["act", "look"]))[1] == "fine"


@pytest.mark.row("S12")
async def test_a_sibling_that_acts_and_is_under_way_ends_by_itself():
    failed = asyncio.Event()

    async def act(arguments: Any, ctx: Any) -> Any:
        failed.set()
        raise Rejected({"error": "full"})

    async def pay(arguments: Any, ctx: Any) -> Any:
        async with asyncio.timeout(SECONDS):
            await failed.wait()
        return "paid"

    tools = [
        made("pay", pay, effect="unsafe", resources={"b": "write"}),
        made("act", act, effect="unsafe", resources={"a": "write"}),
    ]

    told = await told_of(tools, ["pay", "act"], cancel_siblings="on_unsafe_error")

    assert told[0] == "paid"
    assert "full" in told[1]


# --- what an agent chooses for a failure, and for a denial
async def wrong(arguments: Any, ctx: Any) -> Any:
    raise ValueError("no such row")


async def stops(names: list[str], **options: Any) -> tuple[Any, list[tuple[str, str | None]]]:
    tools = [
        made("look", well), made("wrong", wrong), made("pay", well, effect="unsafe"), made("full", fails, effect="unsafe"),
        made("other", well, effect="unsafe"), made("hidden", well),
    ]  # fmt: skip
    model = ScriptedModel([[call(name) for name in names], text("done")])
    result = await Agent(model, tools=tools, policy=deny("hidden"), **options).run("go")
    await check_session(result.session)
    said = [one for message in result.messages for one in message.results]
    assert len(said) == len(names)
    return result, [
        (one.status, json.loads(told.content).get("code") if told.is_error and one.status != "rejected" else None)
        for one, told in zip(result.tool_calls, said, strict=True)
    ]


OK, SKIPPED = ("ok", None), ("skipped", "run_ended")


@pytest.mark.row("E04")
@pytest.mark.parametrize(
    ("names", "told"),
    [
        (["full", "pay", "look"], [("rejected", None), SKIPPED, SKIPPED]),
        (["pay", "wrong", "other"], [OK, ("failed", "internal_error"), SKIPPED]),
        (["look", "wrong"], [OK, ("failed", "internal_error")]),
    ],
    ids=["those behind", "those before ran", "beside"],
)
async def test_a_run_that_is_to_stop_at_a_failure_starts_no_other_call_and_every_call_has_its_result(names, told):
    result, found = await stops(names, on_failure="stop")
    failed = next(one for one in result.tool_calls if one.status in ("rejected", "failed"))

    assert found == told
    assert (result.reason, result.completed) == ("repeated_failures", False)
    assert result.stop.details == {
        "guard": "on_failure", "call_id": failed.id, "tool": failed.name, "class": failed.status,
    }  # fmt: skip
    resumed = await Agent(ScriptedModel([text("I know why.")]), on_failure="stop").resume(result.session)
    assert (resumed.reason, resumed.text) == ("completed", "I know why.")


@pytest.mark.row("E04")
async def test_what_never_ran_does_not_stop_a_run_that_stops_at_failures():
    result, found = await stops(["hidden", "nothing"], on_failure="stop")

    assert result.completed
    assert [status for status, _ in found] == ["denied", "unknown_tool"]


@pytest.mark.row("E04")
async def test_the_calls_behind_a_denied_one_are_skipped_where_the_agent_wants_that():
    behind = ("skipped", "denied_before")
    result, found = await stops(["pay", "hidden", "look", "other"], on_denial="skip")
    assert found == [OK, ("denied", "permission_denied"), behind, behind]
    assert result.completed

    _, found = await stops(["pay", "hidden", "look", "other"])
    assert found == [OK, ("denied", "permission_denied"), OK, OK]
