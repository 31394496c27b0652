"""What a survey of mutations showed that no test noticed: words, fields and marks that people and programs read."""

import json
from typing import Any

import pytest

from invariants import check_session
from pipeline_tools import Recorder, act, content, raising, read, results, run_calls, statuses, tool_of, types
from treadle import Agent, Budget, Decision, Suspended, Tool, ToolOutput, allow, ask, deny, open_session
from treadle.context.compaction import ClearResults
from treadle.errors import ModelUnavailable
from treadle.journals.memory import MemoryJournal
from treadle.testing import ScriptedModel, Turn, call, text
from treadle.tools import JsonObject, ToolContext

NUMBER: JsonObject = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


# --- a tool that requires approval


@pytest.mark.parametrize(
    ("required", "decided"),
    [
        (True, ["ask", "ask"]),
        (False, ["allow", "allow"]),
        (lambda made: made.arguments["n"] > 1, ["allow", "ask"]),
        (lambda made: made.values["n"] > 1, ["allow", "ask"]),
        (lambda made: made.arguments["missing"], ["ask", "ask"]),
    ],
    ids=["always", "never", "by arguments", "by values", "fails"],
)
async def test_a_tool_that_requires_approval_is_asked_about_whatever_a_policy_allows(
    required: Any, decided: Any
) -> None:
    recorder = Recorder()
    tools = [act(recorder, "pay", parameters=NUMBER, requires_approval=required)]
    paused = await run_calls(call("pay", n=1), call("pay", n=2), tools=tools, policy=allow("pay"))

    found = await types(paused, "call.decided")
    assert [one.decision for one in found] == decided
    assert recorder.runs == decided.count("allow")
    asked = [(one.rule, one.reason, one.scope, one.by) for one in found if one.decision == "ask"]
    assert asked == [("tool requires approval", "A person must allow this call.", "tool", "tool")] * decided.count(
        "ask"
    )


async def test_what_a_tool_asks_about_its_arguments_with_cannot_change_them() -> None:
    recorder = Recorder()

    def changes(made: Any) -> bool:
        made.arguments["n"] = 99
        made.values["n"] = 99
        return False

    result = await run_calls(
        call("pay", n=1), tools=[act(recorder, "pay", parameters=NUMBER, requires_approval=changes)]
    )

    assert (statuses(result), recorder.log[0]) == (["ok"], ("begin", 1))


async def test_what_is_denied_is_denied_also_where_a_tool_requires_approval() -> None:
    recorder = Recorder()
    result = await run_calls(
        call("pay", n=1), tools=[act(recorder, "pay", requires_approval=True)], policy=deny("pay", reason="Closed.")
    )

    assert (statuses(result), result.approvals) == (["denied"], ())


# --- who decided


async def test_the_decision_of_a_policy_that_fails_names_the_runtime() -> None:
    class Fails:
        def decide(self, made: Any, session: Any) -> Decision:
            raise KeyError("n")

    result = await run_calls(call("pay", n=1), tools=[act(Recorder(), "pay")], policy=Fails())

    [decided] = await types(result, "call.decided")
    assert (decided.decision, decided.scope, decided.by) == ("deny", "runtime", "runtime")
    assert "KeyError" in decided.reason


async def test_a_denial_by_mode_is_a_persons_and_of_the_session() -> None:
    async with open_session(MemoryJournal(), id="s") as session:
        await session.set_mode("plan")
        tools = [act(Recorder(), "pay", permission=None)]
        result = await Agent(ScriptedModel([call("pay"), text("Done.")]), tools=tools).run("go", session=session)

        [decided] = await types(result, "call.decided")
        assert (decided.rule, decided.scope, decided.by, decided.message) == ("mode plan", "session", "person", "")


async def test_bypass_keeps_a_call_in_the_sandbox_that_consent_would_only_let_in_there() -> None:
    recorder = Recorder()

    class Boxes:
        def decide(self, made: Any, session: Any) -> Decision:
            return Decision(kind="ask", consent="sandbox", reason="Only in there.")

    async with open_session(MemoryJournal(), id="s") as session:
        await session.set_mode("bypass")
        agent = Agent(ScriptedModel([call("pay"), text("Done.")]), tools=[act(recorder, "pay")], policy=Boxes())
        result = await agent.run("go", session=session)

        [decided] = await types(result, "call.decided")
        assert (decided.decision, decided.rule, recorder.runs) == ("sandbox", "mode bypass", 0)


async def test_a_second_question_keeps_the_words_of_the_policy_for_the_model() -> None:
    """A call that may be a repetition is asked about; what the policy said to the model still comes beside its result."""
    recorder = Recorder()

    class Says:
        def decide(self, made: Any, session: Any) -> Decision:
            return Decision(kind="allow", message="Mind the costs.")

    async with open_session(MemoryJournal(), id="s") as session:
        twice = ScriptedModel([[call("pay", id="a", n=1), call("pay", id="a", n=2)]])
        tools = [act(recorder, "pay", parameters=NUMBER)]
        paused = await Agent(twice, tools=tools, policy=Says()).run("go", session=session)
        for approval in paused.approvals:
            await session.answer(approval.id, "allow")
        model = ScriptedModel([text("Done.")])
        await Agent(model, tools=tools, policy=Says()).resume(session)
        told = [one.content for message in model.requests[0].messages for one in message.results]

    assert paused.approvals
    assert all("Mind the costs." in words for words in told)


# --- what the model is told


@pytest.mark.parametrize(
    ("finish", "words"),
    [("refused", "ended by the provider's content filter"), ("length", "cut off by its output limit")],
)
async def test_a_call_of_a_response_that_did_not_end_well_is_answered_with_the_reason(finish: str, words: str) -> None:
    recorder = Recorder()
    model = ScriptedModel([Turn(calls=(call("pay"),), finish=finish), text("Done.")])

    result = await Agent(model, tools=[act(recorder, "pay")]).run("go")

    assert recorder.runs == 0
    assert words in content(result)["message"]


async def test_an_equal_call_too_many_says_how_often_it_has_run_in_this_response() -> None:
    recorder = Recorder()
    calls = [call("pay", id=name) for name in "abc"]

    result = await run_calls(*calls, tools=[act(recorder, "pay")])

    assert (recorder.runs, statuses(result)) == (2, ["ok", "ok", "skipped"])
    assert "2 times" in content(result, 2)["message"]
    assert "3 times" not in content(result, 2)["message"]


async def test_a_result_whose_media_are_none_is_of_an_unexpected_shape_and_the_model_reads_why() -> None:
    async def run(arguments: JsonObject, ctx: ToolContext) -> Any:
        return ToolOutput(data=1, media=(object(),))

    result = await run_calls(call("look"), tools=[read(run)])

    assert statuses(result) == ["unexpected_result_shape"]
    assert "display must be text and media a tuple of Media" in json.dumps(content(result))


# --- sessions


async def test_a_word_that_the_runtime_adds_at_a_resume_is_marked_as_its_own() -> None:
    async with open_session(MemoryJournal(), id="s") as session:
        first = ScriptedModel([call("look"), text("Half.")])
        await Agent(first, tools=[read(Recorder())], budget=Budget(max_model_turns=1)).run("go", session=session)
        await Agent(ScriptedModel([text("Done.")]), tools=[read(Recorder())]).resume(session, budget=Budget())
        added = [event for event in await session.events() if event.type == "message.added"]

    assert [(event.source, event.message.text) for event in added] == [("task", "go"), ("runtime", "Please continue.")]


async def test_the_events_of_a_session_after_a_number_begin_behind_it() -> None:
    async with open_session(MemoryJournal(), id="s") as session:
        await Agent(ScriptedModel([text("Done.")])).run("go", session=session)
        whole = await session.events()

        assert await session.events(after=2) == whole[2:]
        assert [event async for event in session.events(after=2)] == list(whole[2:])


async def test_a_policy_is_shown_the_mode_of_the_session_itself() -> None:
    seen: list[str] = []

    class Looks:
        def decide(self, made: Any, session: Any) -> Decision:
            seen.append(session.mode)
            return Decision(kind="allow")

    async with open_session(MemoryJournal(), id="s") as session:
        await session.set_mode("deny-unlisted")
        await Agent(ScriptedModel([call("pay"), text("Done.")]), tools=[act(Recorder(), "pay")], policy=Looks()).run(
            "go", session=session
        )

    assert seen == ["deny-unlisted"]


@pytest.mark.parametrize(("asks", "reason"), [(True, "approval_required"), (False, "input_required")])
async def test_a_suspension_says_whether_it_waits_for_consent_or_for_an_input(asks: bool, reason: str) -> None:
    below = Agent(ScriptedModel([call("pay", id="p")]), tools=[act(Recorder(), "pay")], policy=ask("pay"))

    async def waits(arguments: JsonObject, ctx: ToolContext) -> Any:
        raise Suspended("a number")

    tool: Tool = below.as_tool("clerk", "Pays.") if asks else tool_of(waits, "clerk", effect="unsafe")
    model = ScriptedModel([call("clerk", task="pay")])
    paused = await Agent(model, tools=[tool], policy=allow("clerk")).run("go")

    [event] = await types(paused, "tool.suspended")
    assert (event.reason, paused.reason) == (reason, reason)


async def test_an_agent_that_is_a_tool_treats_doubts_as_its_caller_does() -> None:
    """`in_doubt` of the caller holds where the child says nothing, and the child's own where it does."""
    said = {}
    for own, above in (("tell", None), (None, "tell"), ("ask", "tell")):
        journal = MemoryJournal()
        async with open_session(journal, id="s") as session:
            below = Agent(
                ScriptedModel([call("pay", id="p"), text("Paid.")], follows_history=True),
                tools=[act(raising(ModelUnavailable("gone")), "pay")],
                in_doubt=own,
            )
            agent = Agent(
                ScriptedModel([call("clerk", task="pay"), text("Done.")], follows_history=True),
                tools=[below.as_tool("clerk", "Pays.")],
                policy=allow("clerk"),
                in_doubt=above,
            )
            result = await agent.run("go", session=session)
            await check_session(session)
            said[(own, above)] = result.status

    assert said == dict.fromkeys(said, "completed")


# --- reports and explanations


async def test_a_report_has_these_fields() -> None:
    report = (await run_calls(call("look"), tools=[read(Recorder())])).report()

    assert [*report] == [
        "status", "reason", "completed", "next_safe_action", "message", "signals", "details", "phase", "budget", "used",
        "limit", "profile", "text", "output", "session_id", "degraded", "unstored", "usage", "cached_share", "cost", "wall_seconds",
        "steps", "retries", "tool_calls", "failed_tool_calls", "tool_seconds", "children", "approvals", "in_doubt", "running_on", "denials",
    ]  # fmt: skip


async def test_an_explanation_has_the_inputs_that_people_gave_and_the_costs_of_what_was_asked_beside() -> None:
    async def form(arguments: JsonObject, ctx: ToolContext) -> Any:
        if not ctx.inputs:
            raise Suspended("a number")
        return ctx.inputs[-1]

    tools = [tool_of(form, "form", effect="unsafe", permission="allow")]
    async with open_session(MemoryJournal(), id="s") as session:
        await Agent(ScriptedModel([call("form", id="f")]), tools=tools).run("go", session=session)
        await session.input("f", {"n": 7}, by="ada")
        result = await Agent(ScriptedModel([text("Done.")]), tools=tools).resume(session)
        explanation = await session.explain()

    assert results(result) == [{"n": 7}]
    assert [(one.call_id, one.value, one.by) for one in explanation.inputs] == [("f", {"n": 7}, "ada")]


async def test_a_call_whose_result_broke_its_contract_is_certain_to_have_acted() -> None:
    schema = {"type": "object", "properties": {"receipt": {"type": "integer"}}, "required": ["receipt"]}
    tools = [act(Recorder("no receipt"), "pay", output_schema=schema)]
    result = await run_calls(call("pay", id="p"), tools=tools)
    explanation = await result.session.explain()

    assert statuses(result) == ["unexpected_result_shape"]
    assert [(one.call_id, one.is_certain) for one in explanation.changed] == [("p", True)]


async def test_a_compactor_that_fails_three_times_is_not_asked_again_in_this_run() -> None:
    asked: list[int] = []

    class Fails(ClearResults):
        def is_due(self, need: Any, tokens: int) -> bool:
            asked.append(need.step)
            return True

        async def compact(self, context: Any) -> Any:
            raise ValueError("no idea")

    model = ScriptedModel([*([call("look", n=n)] for n in range(6)), text("Done.")])
    result = await Agent(model, tools=[read(Recorder())], compactor=Fails()).run("go")

    assert (result.completed, asked) == (True, [1, 2, 3])
