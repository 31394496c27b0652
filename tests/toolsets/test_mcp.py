"""MCP servers as toolsets: real processes, a run each."""

import json
import os
import re
import sys
from pathlib import Path

import pytest

from treadle import Agent, ConfigurationError, Tool, allow, mcp_server, open_session
from treadle.testing import ScriptedModel, call, text
from treadle.toolsets import McpTools

RAW = Path(__file__).with_name("mcp_raw_server.py")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the raw server notes what happens to it."""
    return tmp_path


def raw(folder: Path, mode: str = "", **options) -> McpTools:
    return mcp_server("raw", [sys.executable, "-S", "-E", str(RAW), str(folder), mode], **options)


def log(folder: Path) -> list[str]:
    return (folder / "log").read_text().splitlines()


async def run(server: McpTools, *calls, policy=None, budget=None, subscribers=(), session=None):
    """Run a task in which the model makes these calls, a response each, and then answers."""
    model = ScriptedModel([*calls, text("Done.")])
    agent = Agent(model, tools=[server], policy=policy or allow("*"), budget=budget, subscribers=subscribers)
    return await agent.run("Go", session=session), model


def results(result) -> list:
    return [part for message in result.messages for part in message.results]


async def test_tools_are_named_for_their_server_and_their_text_is_the_result(folder):
    result, model = await run(raw(folder), call("mcp__raw__echo", text="hello"))

    assert result.completed
    assert results(result)[0].content == "hello"
    assert "mcp__raw__double" in [spec.name for spec in model.requests[0].tools]
    assert log(folder)[-1] == "end of input"


@pytest.mark.row("D-VARIANTS", "AT-APPROVAL-SERVERS")
async def test_a_servers_tool_takes_the_place_of_no_other_tool(folder):
    def own(name: str) -> Tool:
        async def answer(arguments, ctx):
            return "ours"

        return Tool(
            name=name, description="Ours.", parameters={"type": "object", "properties": {}}, effect="read", run=answer
        )

    for place in ("one", "two"):
        (folder / place).mkdir()
    servers = [
        mcp_server(name, [sys.executable, "-S", "-E", str(RAW), str(folder / name), ""]) for name in ("one", "two")
    ]
    model = ScriptedModel(
        [call("mcp__one__echo", text="first"), call("echo"), call("mcp__two__echo", text="second"), text("Done.")]
    )

    result = await Agent(model, tools=[*servers, own("echo")], policy=allow("*")).run("Go")

    assert [one.content for one in results(result)] == ["first", "ours", "second"]
    names = [spec.name for spec in model.requests[0].tools]
    assert len(set(names)) == len(names)


async def test_structured_content_is_the_value_and_its_schema_is_enforced(folder):
    result, _ = await run(raw(folder), call("mcp__raw__double", n=4), call("mcp__raw__wrong"))

    right, wrong = results(result)
    assert json.loads(right.content) == {"twice": 8}
    assert json.loads(wrong.content)["type"] == "unexpected_result_shape"


async def test_invalid_arguments_never_reach_the_server(folder):
    result, _ = await run(raw(folder), call("mcp__raw__double", n="four"))

    assert json.loads(results(result)[0].content)["type"] == "invalid_arguments"
    assert "called double" not in log(folder)


async def test_a_picture_is_media_and_what_no_provider_takes_is_named(folder):
    result, _ = await run(raw(folder), call("mcp__raw__picture"), call("mcp__raw__files"))

    picture, files = results(result)
    assert (picture.content, [one.media_type for one in picture.media]) == ("a dot", ["image/png"])
    assert files.media == ()
    assert files.content.splitlines() == [
        "[resource file:///a.txt]",
        "inside",
        "[application/zip, file:///a.zip: 3 bytes, not shown]",
        "[link to resource file:///b.txt: b]",
        "[image/png: left out, because its base64 is invalid]",
        "[image/x-hostile: 70 bytes, not shown]",
    ]


async def test_an_error_of_the_tool_is_a_failure_in_its_own_words(folder):
    result, _ = await run(raw(folder), call("mcp__raw__fail"), call("mcp__raw__refuse"), call("mcp__raw__odd"))

    failed, refused, odd = (json.loads(one.content) for one in results(result))
    assert (failed["type"], failed["details"], failed["may_have_acted"]) == ("failed", ["disk full"], True)
    assert (refused["type"], refused["may_have_acted"]) == ("failed", False)
    assert "no such<U+200B> thing" in refused["message"]
    assert odd["type"] == "unexpected_result_shape"


@pytest.mark.row("I02", "AT-APPROVAL-SERVERS")
async def test_no_call_is_allowed_by_what_a_server_says_of_itself(folder):
    model = ScriptedModel([call("mcp__raw__echo", text="hello"), text("Done.")])
    for trusted in (False, True):
        agent = Agent(model, tools=[raw(folder, trusted=trusted)])
        result = await agent.run("Go")

        assert result.reason == "approval_required"
        assert result.approvals[0].effect == ("read" if trusted else "unsafe")
        model = ScriptedModel([call("mcp__raw__echo", text="hello"), text("Done.")])
    assert "called echo" not in log(folder)


async def test_your_own_word_on_an_effect_allows_a_read(folder):
    result, _ = await run(
        raw(folder, effects={"echo": "read"}), call("mcp__raw__echo", text="hello"), policy=allow("none")
    )

    assert results(result)[0].content == "hello"


async def test_hints_that_contradict_each_other_are_not_believed(folder):
    result = await Agent(ScriptedModel([call("mcp__raw__die")]), tools=[raw(folder, trusted=True)]).run("Go")

    assert result.approvals[0].effect == "unsafe"


@pytest.mark.row("AT-DATA-SERVERS")
async def test_a_server_that_dies_in_a_call_leaves_its_outcome_unknown_and_is_started_again(folder):
    result, _ = await run(raw(folder), call("mcp__raw__die"), call("mcp__raw__echo", text="still here"))

    died, after = results(result)
    assert json.loads(died.content)["type"] == "outcome_unknown"
    assert after.content == "still here"
    assert [line.split()[0] for line in log(folder)].count("started") == 2
    assert log(folder).count("called die") == 1


async def test_a_read_whose_server_died_is_tried_again_at_the_new_one(folder):
    result, _ = await run(raw(folder, trusted=True), call("mcp__raw__die_reading"))

    assert results(result)[0].content == "alive again"


@pytest.mark.row("AT-DATA-SERVERS")
async def test_a_call_that_runs_out_of_time_is_cancelled_at_the_server_which_stays(folder):
    result, _ = await run(raw(folder, timeout=0.5), call("mcp__raw__hang"))

    assert json.loads(results(result)[0].content)["type"] == "outcome_unknown"
    assert [line.split()[0] for line in log(folder)] == ["started", "called", "cancelled", "end"]


@pytest.mark.row("AT-DATA-SERVERS")
async def test_an_answer_of_60_million_bytes_fails_its_call_and_no_other(folder):
    result, _ = await run(raw(folder), call("mcp__raw__big", n=60_000_000), call("mcp__raw__echo", text="next"))

    big, after = results(result)
    assert json.loads(big.content)["type"] == "failed"
    assert "bytes" in json.loads(big.content)["message"]
    assert after.content == "next"
    assert [line.split()[0] for line in log(folder)].count("started") == 1


async def test_progress_and_logs_of_a_server_are_progress_of_the_call(folder):
    seen = []
    await run(raw(folder), call("mcp__raw__report"), subscribers=[seen.append])

    progress = [(one.message, one.done, one.total) for one in seen if one.type == "tool.progress"]
    assert ("one<U+200B>", 1, 4) in progress
    logged = [message for message, _, total in progress if total is None]
    said = ["careful", "slowly", "now", '{"left": 3}', '["a"]']
    assert [one for one in logged if one.startswith("warning")] == [f"warning: {one}" for one in said]


async def test_a_question_of_the_server_waits_for_a_person_and_the_answer_reaches_it(folder):
    async with open_session(folder / "journal.db") as session:
        result, _ = await run(raw(folder), call("mcp__raw__ask", id="c1"), session=session)
        assert result.reason == "input_required"
        assert 'elicitation/create: {"action": "cancel"}' in log(folder)

        await session.input("c1", "12")
        agent = Agent(ScriptedModel([text("Done.")]), tools=[raw(folder)], policy=allow("*"))
        result = await agent.resume(session)

    assert json.loads(results(result)[0].content) == {"action": "accept", "content": {"size": 12}}


DEFAULTS = {
    "name": {"type": "string", "default": "tea"},
    "age": {"type": "integer", "default": 30},
    "size": {"type": "string", "enum": ["s", "m"], "default": "m"},
    "flag": {"type": "boolean", "default": True},
}


@pytest.mark.row("E-MCP-CONFORM")
@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ({}, {"name": "tea", "age": 30, "size": "m", "flag": True}),
        ("yes", {"name": "tea", "age": 30, "size": "m", "flag": True}),
        ('{"age": 7, "flag": "no"}', {"name": "tea", "age": 7, "size": "m", "flag": False}),
    ],
    ids=["nothing changed", "yes", "some changed"],
)
async def test_fields_that_a_person_leaves_out_have_the_forms_defaults(folder, given, sent):
    shown = []

    async def ask(question, schema):
        shown.append(question)
        return given

    asked = call("mcp__raw__ask_with", properties=DEFAULTS, required=["name"])
    result, _ = await run(raw(folder, ask=ask), asked)

    assert json.loads(results(result)[0].content) == {"action": "accept", "content": sent}
    assert "age (integer, by default 30)" in shown[0]
    assert 'size (s | m, by default "m")' in shown[0]


@pytest.mark.row("E-MCP-CONFORM")
@pytest.mark.parametrize("default", ["many", True, None, [7]])
async def test_a_default_that_does_not_fit_its_field_is_not_sent(folder, default):
    asked, problems = [{}, {"age": 5}], []

    async def ask(question, schema):
        problems.append(question)
        return asked.pop(0)

    fields = {"age": {"type": "integer", "default": default}}
    result, _ = await run(raw(folder, ask=ask), call("mcp__raw__ask_with", properties=fields, required=["age"]))

    assert "age is missing" in problems[1]
    assert json.loads(results(result)[0].content)["content"] == {"age": 5}


async def test_a_person_knows_before_the_answer_what_the_first_call_of_a_tool_that_acts_came_to(folder):
    async with open_session(folder / "journal.db") as session:
        result, _ = await run(raw(folder), call("mcp__raw__ask", id="c1"), session=session)

    assert result.message.count("Your answer calls the tool again") == 1
    assert '{"action": "cancel"}' in result.message.partition("ended the first call with:")[2]


async def test_a_question_of_a_read_or_of_the_newest_version_says_nothing_of_a_first_call(folder):
    reads = raw(folder, effects={"ask": "read"})
    result, _ = await run(reads, call("mcp__raw__ask", id="c1"))
    assert result.reason == "input_required"
    assert "again" not in result.message

    result, _ = await run(raw(folder, "modern"), call("mcp__raw__ask"))
    assert result.reason == "input_required"
    assert "again" not in result.message


async def test_a_question_of_the_server_is_put_to_the_function_that_asks(folder):
    asked = []

    async def ask(question, schema):
        asked.append((question, sorted(schema["properties"])))
        return "twelve" if len(asked) == 1 else None

    result, _ = await run(raw(folder, ask=ask), call("mcp__raw__ask"))

    assert json.loads(results(result)[0].content) == {"action": "decline"}
    assert asked[0] == ("MCP server 'raw' asks: How large?\nAnswer with size (integer); or no.", ["size"])
    assert "did not fit" in asked[1][0]


async def test_a_server_of_the_newest_version_asks_in_its_answer(folder):
    async def ask(question, schema):
        return {"size": 3}

    result, _ = await run(raw(folder, "modern", ask=ask), call("mcp__raw__ask"))
    assert json.loads(results(result)[0].content) == ["s-1", {"q": {"action": "accept", "content": {"size": 3}}}]

    result, _ = await run(raw(folder, "modern"), call("mcp__raw__ask"))
    assert result.reason == "input_required"


async def test_sampling_is_refused_and_roots_are_given(folder):
    result, _ = await run(raw(folder, roots=[folder]), call("mcp__raw__sample"), call("mcp__raw__roots"))

    sampled, roots = results(result)
    assert "not supported" in sampled.content
    assert json.loads(roots.content)["result"]["roots"] == [{"uri": folder.as_uri(), "name": folder.name}]


async def test_a_tool_that_appears_in_mid_run_is_offered_with_the_next_request(folder):
    _, model = await run(raw(folder), call("mcp__raw__change"))

    before, after = ({spec.name for spec in request.tools} for request in model.requests)
    assert after - before == {"mcp__raw__fresh"}


async def test_secrets_of_a_server_are_recorded_nowhere_and_our_variables_never_reach_it(folder):
    server = raw(folder, env={"SERVICE_TOKEN": "canary-7f3a9b2c1d"})
    async with open_session(folder / "journal.db") as session:
        result, _ = await run(server, call("mcp__raw__secret"), session=session)
        said = results(result)[0].content

    assert "canary" not in repr(server)
    assert "SERVICE_TOKEN" in said
    assert "PYTEST_CURRENT_TEST" in os.environ
    assert "PYTEST_CURRENT_TEST" not in said
    assert b"canary-7f3a9b2c1d" not in b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize(
    "name", ["github__evil", "a__b", "github_", "a__", "github..evil", "github.", "a. b", "é_", "__", "_", "n" * 49]
)
def test_a_server_whose_tools_a_rule_for_another_could_mean_is_refused(name):
    with pytest.raises(ConfigurationError, match="name"):
        mcp_server(name, ["true"])


@pytest.mark.parametrize("name", ["github", "my.server", "my server", "_a", "a_b", "a-b", "éa", "n" * 48])
async def test_a_rule_for_a_server_means_its_tools_and_no_others(folder, name):
    """Also where a name is so long that the name of the tool is shortened."""
    plain = re.sub("[^A-Za-z0-9_-]", "_", name)
    server = mcp_server(name, [sys.executable, "-S", "-E", str(RAW), str(folder), ""])
    _, model = await run(server)
    names = [spec.name for spec in model.requests[0].tools]
    assert len(names) > 10
    assert all(one.startswith(f"mcp__{plain}__") and len(one) <= 64 for one in names)
