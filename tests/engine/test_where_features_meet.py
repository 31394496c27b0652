"""Attacks where features meet: each alone is tested elsewhere; here two or three come at once."""

import asyncio
import json
from typing import Any

import pytest

from invariants import check_session
from pipeline_tools import DyingJournal, Recorder, act, read, statuses, tool_of, types
from treadle import Agent, Budget, Suspended, allow, ask, open_session, resolve_model
from treadle.context.compaction import ClearResults
from treadle.drivers import ReActDriver
from treadle.errors import ContextOverflow, JournalError, UnknownApproval
from treadle.journals.memory import MemoryJournal
from treadle.ports import Hook
from treadle.redaction import Redactor, remember
from treadle.testing import Gate, MockProvider, ScriptedModel, Turn, call, text
from treadle.tools import JsonObject, ToolContext


def decides(tool: str, **arguments: Any) -> Any:
    """What a model writes under ReAct to call a tool."""
    return text(json.dumps({"thought": "", "type": "call_tool", "tool": tool, "args": arguments}))


# --- ReAct x tool_choice x closing request
@pytest.mark.parametrize(("choice", "paid", "told"), [("none", 0, None), ("look", 0, None), ("auto", 1, ["ok"])])
async def test_a_choice_of_tools_holds_under_react_also_in_the_closing_request(choice, paid, told):
    pays, limits = Recorder(), Budget(max_model_turns=1)
    model = ScriptedModel([decides("pay", n=1), decides("pay", n=2), decides("pay", n=3)])
    tools = [act(pays, "pay"), read(Recorder())]
    result = await Agent(model, tools=tools, driver=ReActDriver(), tool_choice=choice, budget=limits).run("go")

    assert (pays.runs, result.reason) == (paid, "step_limit_reached")
    assert statuses(result) == told if told else "ok" not in statuses(result)
    await check_session(result.session)


# --- an agent as a tool x cancel x crash
def clerk(paid: Recorder, **words: Any) -> Agent:
    """Return an agent whose tool is an agent that pays."""
    model = ScriptedModel([call("pay", id="p"), text("Paid.")], follows_history=True)
    below = Agent(model, tools=[act(paid, "pay")], **words).as_tool("clerk", "Pays.")
    above = ScriptedModel([call("clerk", id="c", task="pay"), text("Done.")], follows_history=True)
    return Agent(above, tools=[below], policy=allow("clerk"))


@pytest.mark.parametrize("dies", [False, True])
async def test_a_cancelled_run_takes_back_what_its_agents_had_asked_a_person(dies):
    """Also where the process dies before it has carried the cancellation out."""
    paid, journal = Recorder(), MemoryJournal()
    async with open_session(journal, id="s") as session:
        paused = await clerk(paid, policy=ask("pay")).run("go", session=session)
        [waiting] = paused.approvals
        assert await session.cancel()
        if not dies:
            ended = await clerk(paid, policy=ask("pay")).resume(session)
            assert ended.reason == "cancelled"
    async with open_session(journal, id="s") as session:
        assert await session.approvals() == ()
        with pytest.raises(UnknownApproval):
            await session.answer(waiting.id, "allow")
        again = await clerk(paid, policy=ask("pay")).resume(session)
        assert again.reason == ("cancelled" if dies else "completed")
        await check_session(session)

    assert paid.runs == 0


async def test_an_agent_that_dies_after_its_tool_has_paid_is_not_run_again_when_its_caller_is_cancelled():
    paid, journal = Recorder(), MemoryJournal()
    with pytest.raises(JournalError):
        async with open_session(DyingJournal(journal, call_id="p"), id="s") as session:
            await clerk(paid).run("go", session=session)
    async with open_session(journal, id="s") as session:
        assert await session.cancel()
        ended = await clerk(paid).resume(session)
        doubts = await session.doubts()
        await check_session(session)

    assert (ended.reason, paid.runs) == ("cancelled", 1)
    assert [doubt.tool for doubt in doubts] == ["clerk"]


# --- redaction x resume
async def test_a_secret_in_a_call_that_waits_is_shown_redacted_and_runs_as_it_is_after_a_restart(tmp_path):
    remember(["canary-of-meeting"])
    place, recorder = str(tmp_path / "j.db"), Recorder()
    tools = [act(recorder, "login")]
    async with open_session(place, id="s") as session:
        agent = Agent(ScriptedModel([call("login", password="canary-of-meeting")]), tools=tools, policy=ask("login"))
        paused = await agent.run("go", session=session)
        assert paused.reason == "approval_required"
    async with open_session(place, id="s") as session:
        [waiting] = await session.approvals()
        await session.answer(waiting.id, "allow")
        result = await Agent(ScriptedModel([text("In.")]), tools=tools, policy=ask("login")).resume(session)
        shown = [str(await session.explain()), "".join(map(str, await session.export(redactor=Redactor())))]

    assert [json.loads(context.call.arguments) for context in recorder.contexts] == [{"password": "canary-of-meeting"}]
    assert result.completed
    assert not [words for words in shown if "canary-of-meeting" in words]


# --- early start x retry x cancel
async def test_an_early_read_that_a_retry_was_to_adopt_ends_with_the_run_that_is_cancelled_in_between():
    looking, ended = asyncio.Event(), asyncio.Event()

    async def slow(arguments: JsonObject, ctx: ToolContext) -> str:
        looking.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return "never"

    gate = Gate()
    turn = Turn(calls=(call("look", n=1), call("look", n=2)), gate=gate, hold_after_call=0, cut="before-terminal")
    async with MockProvider([turn, Turn(text="Done.")]) as mock:
        model = resolve_model("openai-chat:m", base_url=mock.base_url, api_key="k")
        run = Agent(model, tools=[read(slow)]).stream("go")
        failed = asyncio.Event()
        run.subscribe(lambda event: failed.set() if event.type == "model.failed" else None)
        ending = asyncio.create_task(run.finish())
        await asyncio.wait_for(looking.wait(), 30)
        gate.open()
        await asyncio.wait_for(failed.wait(), 30)
        run.cancel()
        result = await asyncio.wait_for(ending, 30)

    events = await result.session.events()
    finished = [event for event in events if event.type == "tool.finished"]
    assert (result.reason, ended.is_set()) == ("cancelled", True)
    assert len(finished) == len({event.call_id for event in finished}) == 1
    assert events[-1].type == "run.finished"
    await check_session(result.session)


# --- polled tools x repetition x resume
async def test_a_polled_tool_may_be_called_again_and_again_over_a_pause_and_others_begin_anew():
    polled, looked, paid = Recorder("waits"), Recorder("same"), Recorder()
    tools = [
        read(polled, "poll", polling=True), read(looked), act(paid, "pay", permission="ask"),
    ]  # fmt: skip
    turns = [[call("poll")]] * 4 + [[call("look")]] * 2 + [[call("pay"), call("poll")]]
    later = [[call("poll")]] * 4 + [[call("look")]] * 2 + [text("Done.")]
    journal = MemoryJournal()
    async with open_session(journal, id="s") as session:
        paused = await Agent(ScriptedModel(turns), tools=tools).run("go", session=session)
        assert paused.reason == "approval_required"
        [waiting] = await session.approvals()
        await session.answer(waiting.id, "allow")
        result = await Agent(ScriptedModel(later), tools=tools).resume(session)
        await check_session(session)

    assert (result.reason, polled.runs, looked.runs, paid.runs) == ("completed", 9, 4, 1)


# --- strict structured answers x optional properties
NOTE: JsonObject = {
    "type": "object",
    "properties": {"n": {"type": "integer"}, "note": {"type": "string"}},
    "required": ["n"],
    "additionalProperties": False,
}


@pytest.mark.parametrize("dialect", ["openai-chat", "openai", "anthropic", "gemini"])
@pytest.mark.parametrize("answer", [{"n": 3}, {"n": 3, "note": "x"}, {"n": 3, "note": None}])
async def test_an_optional_property_of_a_structured_answer_may_be_left_out_or_null_as_its_request_says(dialect, answer):
    """A strict request makes optional properties nullable: a model that does as it was told must not be refused."""
    async with MockProvider([Turn(text=json.dumps(answer)), Turn(text=json.dumps({"n": 3}))]) as mock:
        model = resolve_model(f"{dialect}:m", base_url=mock.base_url, api_key="k")
        result = await Agent(model, output=NOTE).run("go")
        body = json.dumps(mock.requests[0].body)

    allows_null = '["string", "null"]' in body or '{"type": "null"}' in body
    assert result.completed, result.message
    if answer.get("note", "") is not None or allows_null:
        assert len(mock.requests) == 1
        assert result.output == {key: value for key, value in answer.items() if value is not None}


# --- errors of subscribers and hooks x suspension
async def test_subscribers_and_hooks_that_fail_do_not_keep_a_run_from_waiting_and_going_on():
    def listener(event: Any) -> None:
        if event.type in ("tool.suspended", "run.paused", "tool.input", "run.resumed", "tool.resumed"):
            raise RuntimeError("the subscriber broke")

    def hook(context: Any) -> None:
        raise RuntimeError("the hook broke")

    async def form(arguments: JsonObject, ctx: ToolContext) -> str:
        if not ctx.inputs:
            raise Suspended("a number")
        return f"filled in {ctx.inputs[-1]}"

    hooks = [Hook(at="session_end", run=hook), Hook(at="after_tool", run=hook), Hook(at="stop", run=hook)]
    tools = [tool_of(form, "form", effect="unsafe", permission="allow")]
    options: Any = {"tools": tools, "hooks": hooks, "subscribers": [listener]}
    async with open_session(MemoryJournal(), id="s") as session:
        paused = await Agent(ScriptedModel([call("form", id="f")]), **options).run("go", session=session)
        assert paused.reason == "input_required"
        await session.input("f", 7)
        result = await Agent(ScriptedModel([text("Done.")]), **options).resume(session)
        await check_session(session)

    assert result.completed
    assert [one.content for message in result.messages for one in message.results] == ["filled in 7"]


# --- compaction x resume x overflow
async def test_a_compacted_session_that_waits_is_resumed_and_compacted_again_after_an_overflow():
    long, paid = Recorder("x" * 600), Recorder()
    tools = [read(long), act(paid, "pay", permission="ask")]
    too_long = ContextOverflow("too long")
    first = ScriptedModel([*([call("look", n=n)] for n in range(5)), too_long, [call("pay", n=1), call("look", n=9)]])
    second = ScriptedModel([too_long, text("Done.")])
    journal = MemoryJournal()
    async with open_session(journal, id="s") as session:
        paused = await Agent(first, tools=tools, compactor=ClearResults(keep=2)).run("go", session=session)
        assert paused.reason == "approval_required"
    async with open_session(journal, id="s") as session:
        [waiting] = await session.approvals()
        await session.answer(waiting.id, "allow")
        result = await Agent(second, tools=tools, compactor=ClearResults(keep=1)).resume(session)
        made = await types(result, "context.compacted")
        await check_session(session)

    assert (result.completed, paid.runs, [event.reason for event in made]) == (True, 1, ["overflow", "overflow"])
    shown = [one.content for message in second.requests[-1].messages for one in message.results]
    assert [words[:3] for words in shown[:5]] == ["[Ol"] * 5
    assert len(shown) == 7
    assert sum(len(one.content) for message in result.session.messages for one in message.results) > 6 * 600
