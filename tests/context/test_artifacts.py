"""Artifacts: what is too long for the model is kept whole, marked with its id, and read on with a tool; decisions last."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle import Agent, Budget, Session, Tool, ToolContext, open_session, resolve_model
from treadle.context import ClearResults
from treadle.context.compilers import shares
from treadle.drivers.react import ReActDriver
from treadle.engine.model_calls.reservations import estimate
from treadle.engine.rules.bounds import bound
from treadle.errors import ModelRejected, ModelUnavailable
from treadle.events import ContextCompacted, ContractViolated, ToolFinished
from treadle.events.codec import artifacts_of
from treadle.messages import Message, ToolCall
from treadle.ports import Hook, HookContext, RequestNeed
from treadle.redaction import remember
from treadle.resolve import with_fallback
from treadle.testing import MockProvider, ScriptedModel, call, text, tool_context
from treadle.tools import JsonObject, ToolResult
from treadle.toolsets import artifact_tool

DIALECTS = ["openai-chat", "openai", "anthropic", "bedrock", "gemini", "cohere"]


def large(name: str = "large", *, value: Any = None) -> Tool:
    async def run(arguments: JsonObject, ctx: ToolContext) -> Any:
        return (
            value
            if value is not None
            else f"{arguments['n']}:" + "".join(f"line {i}\n" for i in range(arguments["size"]))
        )

    parameters = {"type": "object", "properties": {"n": {"type": "integer"}, "size": {"type": "integer"}}}
    return Tool(name=name, description="Large.", parameters=parameters, effect="read", run=run)


def marked(content: str) -> str:
    """Return the id that a mark names."""
    start = content.index("artifact a_") + len("artifact ")
    return content[start : start + 22]


def shown(message: Message) -> list[str]:
    return [part.content for part in message.results]


@pytest.mark.row("K07", "C10")
async def test_the_mark_names_an_artifact_and_the_model_reads_on_in_it():
    whole = "7:" + "".join(f"line {i}\n" for i in range(20_000))

    def read_on(arguments: JsonObject) -> list[Any]:
        return [call("read_artifact", **arguments)]

    model = ScriptedModel([call("large", n=7, size=20_000), text("stop")])
    agent = Agent(model, tools=[large(), artifact_tool()], budget=Budget(max_tool_result_chars=2_000))
    result = await agent.run("Go", session=None)
    session = result.session
    name = marked(shown(model.requests[-1].messages[-1])[0])

    model = ScriptedModel([*read_on({"artifact": name, "offset": 5000, "length": 1000}), text("done")])
    agent = Agent(model, tools=[large(), artifact_tool()], budget=Budget(max_tool_result_chars=2_000))
    await agent.run("Read on", session=session)

    (content,) = shown(model.requests[-1].messages[-1])
    assert json.loads(content) == {
        "artifact": name,
        "offset": 5000,
        "total_chars": len(whole),
        "text": whole[5000:6000],
        "next_offset": 6000,
    }


@pytest.mark.row("C10")
async def test_an_artifact_is_read_by_another_process_and_in_a_fork_but_in_no_other_session(tmp_path):
    store = tmp_path / "agent.db"
    async with open_session(store, id="one") as session:
        model = ScriptedModel([call("large", n=1, size=20_000), text("stop")])
        await Agent(model, tools=[large()]).run("Go", session=session)
        name = marked(shown(model.requests[-1].messages[-1])[0])
        await session.fork(id="two")
    found = []
    for session_id in ("one", "two", "three"):
        async with open_session(store, id=session_id) as session:
            model = ScriptedModel([call("read_artifact", artifact=name, search="line 19999"), text("done")])
            await Agent(model, tools=[artifact_tool()]).run("Search", session=session)
            found.append(json.loads(shown(model.requests[-1].messages[-1])[0]))

    assert found[0] == found[1]
    assert [one["text"] for one in found[0]["matches"]] == ["line 19999"]
    assert found[2]["type"] == "rejected"
    assert name in found[2]["details"][0]["error"]


@pytest.mark.row("C10")
async def test_what_a_broken_contract_withheld_cannot_be_read():
    async def run(arguments: JsonObject, ctx: ToolContext) -> Any:
        return {"secret": "x" * 5_000}

    schema = {"type": "object", "properties": {"fine": {"type": "string"}}, "required": ["fine"]}
    broken = Tool(
        name="broken", description="?", parameters={"type": "object"}, output_schema=schema, effect="read", run=run
    )
    result = await Agent(ScriptedModel([call("broken"), text("stop")]), tools=[broken]).run("Go")

    assert artifacts_of(await result.session.events())
    assert result.session.state.artifacts == {}


async def test_an_interceptor_that_takes_the_mark_away_withdraws_the_whole():
    class Hides:
        def before(self, call: ToolCall) -> ToolCall:
            return call

        def after(self, call: ToolCall, result: ToolResult) -> ToolResult:
            import msgspec

            return msgspec.structs.replace(result, content="hidden")

    model = ScriptedModel([call("large", n=1, size=20_000), text("stop")])
    result = await Agent(model, tools=[large()], interceptors=[Hides()]).run("Go")

    assert result.session.state.artifacts == {}


@pytest.mark.row("B11")
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_the_results_of_one_step_are_held_in_their_limit_over_every_dialect(dialect):
    sizes = [10, 4_000, 4_000, 20, 4_000]
    batch = [call("large", n=n, size=size) for n, size in enumerate(sizes)]
    async with MockProvider([batch, call("large", n=9, size=1), text("done")]) as mock:
        model = resolve_model(f"{dialect}:m", base_url=mock.base_url, api_key="k")
        result = await Agent(model, tools=[large()], step_result_chars=30_000).run("Go")
        second, third = (json.dumps(one.body) for one in mock.requests[1:])

    assert result.completed, result.message
    (event,) = [one for one in await result.session.events() if isinstance(one, ContextCompacted)]
    ids = [one.id for one in result.tool_calls]
    assert (event.tier, event.reason, set(event.results)) == ("limits", "step", {ids[1], ids[2], ids[4]})
    assert event.step == 2  # the step whose request was made shorter, as a summary's event has it
    assert len(second) < 50_000
    assert "3:line 0" in second
    for content in event.results.values():
        assert json.dumps(json.dumps(content)[1:-1])[1:-1] in third or json.dumps(content)[1:-1] in third
    whole = shown(result.session.messages[2])
    assert len(whole[1]) > 30_000  # the store is never changed
    saved = sum(len(whole[at]) - len(event.results[ids[at]]) for at in (1, 2, 4))
    assert event.tokens_before - event.tokens_after == saved // 4


@pytest.mark.row("B11")
async def test_the_results_of_one_step_are_held_in_their_limit_under_react():
    def decision(n: int) -> str:
        return json.dumps({"thought": "?", "type": "call_tool", "tool": "large", "args": {"n": n, "size": 4_000}})

    final = json.dumps({"thought": "!", "type": "final_answer", "answer": "done"})
    model = ScriptedModel([text(decision(1)), text(final)])
    result = await Agent(model, tools=[large(), artifact_tool()], driver=ReActDriver(), step_result_chars=5_000).run(
        "Go"
    )

    assert result.completed, result.message
    last = model.requests[-1].messages[-1].text
    assert len(last) < 6_000
    assert marked(last) in result.session.state.artifacts


@pytest.mark.row("B11")
async def test_what_was_decided_on_a_step_stays_the_same_in_later_requests_and_after_a_restart(tmp_path):
    batch = [call("large", n=n, size=4_000) for n in range(10)]
    store, first, second = tmp_path / "agent.db", ScriptedModel([batch, text("one")]), ScriptedModel([text("two")])
    async with open_session(store, id="s") as session:
        await Agent(first, tools=[large()], step_result_chars=50_000).run("Go", session=session)
    async with open_session(store, id="s") as session:  # with another limit: what is decided stays
        await Agent(second, tools=[large()], step_result_chars=1_000).run("And now?", session=session)

    contents = shown(first.requests[-1].messages[2])
    assert sum(map(len, contents)) <= 50_000
    assert shown(second.requests[-1].messages[2]) == contents


@pytest.mark.row("B11")
async def test_a_crash_between_the_results_and_the_decision_on_them_changes_nothing(tmp_path):
    """The decision is made before a request, whichever process makes it."""
    store = tmp_path / "agent.db"
    batch = [call("large", n=n, size=4_000) for n in range(10)]
    async with open_session(store, id="s") as session:
        model = ScriptedModel([batch, text("one")])
        budget = Budget(max_model_turns=1)
        await Agent(model, tools=[large()], budget=budget, on_limit="report").run("Go", session=session)
        assert not session.state.compactions.made
    async with open_session(store, id="s") as session:
        model = ScriptedModel([text("one")])
        await Agent(model, tools=[large()], step_result_chars=50_000).resume(session, budget=Budget())

    assert sum(map(len, shown(model.requests[-1].messages[2]))) <= 50_000


async def test_a_known_window_holds_the_results_of_a_step_to_half_of_it():
    model = ScriptedModel([call("large", n=1, size=4_000), text("done")], window=4_000)
    result = await Agent(model, tools=[large()]).run("Go")

    assert result.completed
    assert len(shown(model.requests[-1].messages[-1])[0]) <= 8_000


@pytest.mark.row("B11")
async def test_one_whole_of_which_a_part_was_shown_keeps_its_artifact_when_less_of_it_is_shown():
    value = {"rows": ["é" * 100] * 2_000, "note": "short"}
    batch = [call("large", n=n) for n in range(4)]
    model = ScriptedModel([batch, text("done")])
    result = await Agent(model, tools=[large(value=value)], step_result_chars=20_000).run("Go")

    contents = [json.loads(one) for one in shown(model.requests[-1].messages[-1])]
    assert {one["artifact"] for one in contents} == set(result.session.state.artifacts)
    assert sum(map(len, shown(model.requests[-1].messages[-1]))) <= 20_000
    blob = await result.session.journal.blob(next(iter(result.session.state.artifacts.values())))
    assert json.loads(blob or b"") == value


@given(st.lists(st.integers(0, 1_000), min_size=1, max_size=20), st.integers(1, 5_000))
def test_the_biggest_are_cut_first_and_the_rest_stays_whole(sizes, limit):
    found = shares(sizes, limit)

    assert sum(found) <= max(limit, 0) or sum(sizes) <= limit
    cut = [after for before, after in zip(sizes, found, strict=True) if after < before]
    whole = [after for before, after in zip(sizes, found, strict=True) if after == before]
    assert len(set(cut)) <= 1
    assert not cut or all(size <= cut[0] for size in whole)
    assert bool(cut) == (sum(sizes) > limit)


@given(st.text(min_size=1), st.integers(1, 400), st.booleans())
def test_a_bounded_text_stays_whole_characters_and_json_stays_json(words, limit, is_json):
    value: Any = {"text": words * 50, "n": 1} if is_json else words * 50
    whole = json.dumps(value, ensure_ascii=False) if is_json else value
    content, is_cut = bound(value, whole, limit, artifact="a_" + "0" * 20)

    assert len(content) <= max(limit, 1) or not is_cut
    content.encode()
    if is_json and is_cut and content != "…":
        json.loads(content)


async def test_a_search_finds_in_the_middle_of_one_long_line_once_and_says_when_there_is_more():
    content = ("x" * 3_990 + "needle" + "y" * 6_000).encode()
    ctx = tool_context(artifacts={"a_1": content})
    read = artifact_tool().run

    found = await read({"artifact": "a_1", "search": "NEEDLE"}, ctx)
    assert [(one["offset"] <= 3_990 <= one["offset"] + 300, "needle" in one["text"]) for one in found["matches"]] == [
        (True, True)
    ]

    many = tool_context(artifacts={"a_1": b"needle\n" * 50})
    found = await read({"artifact": "a_1", "search": "needle", "max_matches": 3}, many)
    assert [one["offset"] for one in found["matches"]] == [0, 7, 14]
    assert found["truncated"] is True
    assert (await read({"artifact": "a_1", "search": "no such"}, many))["matches"] == []
    found = await read({"artifact": "a_1", "search": "needle", "offset": 340}, many)
    assert [one["offset"] for one in found["matches"]] == [343]


async def test_a_part_fits_into_the_result_whatever_it_holds():
    ctx = tool_context(artifacts={"a_1": ('"\n\\' * 1_000).encode()}, result_chars=1_000)
    read = artifact_tool().run
    offset, parts = 0, []
    while offset is not None:
        found = await read({"artifact": "a_1", "offset": offset}, ctx)
        assert len(json.dumps(found)) <= 1_000
        parts.append(found["text"])
        offset = found.get("next_offset")

    assert "".join(parts) == '"\n\\' * 1_000


async def limited(session: Session, instructions: str) -> ContextCompacted:
    """Run into a refused request behind a long result, resume, and return the one event of what was shortened."""
    refused = [call("large", n=1, size=4_000), ModelRejected("no", status=400), text("Done.")]
    agent = Agent(ScriptedModel(refused), tools=[large()], step_result_chars=20_000, instructions=instructions)
    assert (await agent.run("Go", session=session)).reason == "model_error"
    assert (await agent.resume(session)).completed
    (event,) = [one for one in await session.events() if isinstance(one, ContextCompacted)]
    return event


@pytest.mark.row("B11")
async def test_results_are_shortened_once_over_a_resume_and_what_is_sent_besides_is_counted():
    async with open_session("memory:") as one, open_session("memory:") as other:
        brief, long = await limited(one, "Go."), await limited(other, "word " * 4_000)

    assert brief.results.keys() == long.results.keys()
    assert long.tokens_before - brief.tokens_before > 3_000
    assert long.tokens_after - brief.tokens_after == long.tokens_before - brief.tokens_before


@pytest.mark.row("B11")
@pytest.mark.parametrize(("left", "made"), [(0, 0), (1, 1)])
async def test_results_that_fill_their_limit_exactly_are_shown_whole(left, made):
    tools, batch = [large(value="x" * 500)], [call("large", n=1), call("large", n=2)]
    model = ScriptedModel([batch, text("Done.")])
    result = await Agent(model, tools=tools, step_result_chars=1_000 - left).run("Go")

    assert len([one for one in await result.session.events() if isinstance(one, ContextCompacted)]) == made


@pytest.mark.row("E09")
@pytest.mark.parametrize("has_schema", [False, True])
async def test_what_is_kept_of_a_long_result_is_without_the_keys_that_are_in_use_here(has_schema):
    key = "key-in-use-of-a-long-result"
    remember([key])

    async def run(arguments: JsonObject, ctx: ToolContext) -> Any:
        return {"token": key, "rest": "x" * 5_000}

    schema: JsonObject = {"type": "object", "required": ["paid"]}
    tool = Tool(
        name="leak", description="Leak.", parameters={}, effect="read", run=run,
        output_schema=schema if has_schema else None,
    )  # fmt: skip
    async with open_session("memory:") as session:
        model = ScriptedModel([call("leak"), text("done")])
        result = await Agent(model, tools=[tool], budget=Budget(max_tool_result_chars=1_000)).run("Go", session=session)
        kept = [one.artifact for one in await session.events() if isinstance(one, ContractViolated)]
        kept += [one.result.artifact for one in await session.events() if isinstance(one, ToolFinished)]
        wholes = [await session.journal.blob(one) for one in kept if one is not None]

    assert result.completed
    assert wholes
    for whole in wholes:
        assert whole is not None
        assert b"[redacted]" in whole
        assert key.encode() not in whole


@pytest.mark.row("B11", "C10")
async def test_what_is_shortened_for_a_smaller_model_is_counted_as_it_is_then():
    """The first request counts a note behind the results; the second shows less of these, and the note is the same."""
    counted: list[int] = []

    class Noting(ClearResults):
        def is_due(self, need: RequestNeed, tokens: int) -> bool:
            counted.append(tokens)
            return False

    async def left(context: HookContext) -> None:
        if context.step == 1:
            await session.steer("A note.")

    large_model = ScriptedModel(
        [call("large", n=1, size=4_000), *[ModelUnavailable("down")] * 9], name="large", window=100_000
    )
    small_model = ScriptedModel([text("Done.")], name="small", window=2_000)
    async with open_session("memory:") as session:
        agent = Agent(
            with_fallback(large_model, small_model, failures=1),
            tools=[large()],
            compactor=Noting(),
            hooks=[Hook(at="after_tool", run=left)],
        )
        result = await agent.run("Go", session=session)

    assert result.completed, result.message
    (request,) = small_model.requests
    assert request.messages[-1].text == "A note."
    anew = tuple(Message(role=one.role, parts=one.parts) for one in request.messages)
    assert counted[-1] == estimate(msgspec.structs.replace(request, messages=anew), ()).input_tokens
