"""Permission: every call is decided before it runs; consent covers exactly one action; garbage allows nothing."""

import asyncio

import msgspec
import pytest

from invariants import check_session
from pipeline_tools import Recorder, act, content, on_fake_clock, read, run_calls, statuses, tool_of, types
from treadle import (
    Agent,
    ApprovalExpired,
    ConfigurationError,
    Decision,
    StopReason,
    Tool,
    allow,
    ask,
    deny,
    first_of,
    open_session,
)
from treadle.errors import UnknownApproval
from treadle.journals.memory import MemoryJournal
from treadle.testing import FakeClock, ScriptedModel, call, text

N = {"type": "object", "properties": {"n": {"type": "integer", "maximum": 12}}, "required": ["n"]}


class Answering:
    def __init__(self, answer):
        self.answer = answer

    def decide(self, call, session):
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


class Later(Answering):
    async def decide(self, call, session):
        await asyncio.sleep(0)
        return self.answer


class Before:
    def __init__(self, answer):
        self.answer = answer
        self.seen = []

    def before(self, call):
        self.seen.append(call.arguments)
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer(call) if callable(self.answer) else self.answer

    def after(self, call, result):
        return result


def rewriting(arguments):
    return Before(lambda call: msgspec.structs.replace(call, arguments=arguments))


async def paused(recorder, *calls, agent=None, journal=None):
    """Run until a call waits for a person; return the agent and the result."""
    model = ScriptedModel([list(calls), text("Done.")])
    agent = agent or Agent(model, tools=[tool_of(recorder, "pay", parameters=N), read(Recorder())])
    result = await agent.run("go")
    assert result.reason is StopReason.APPROVAL_REQUIRED
    return agent, result


@pytest.mark.row("P02", "P03")
@pytest.mark.parametrize(
    ("kind", "status", "code"),
    [("allow", "ok", None), ("deny", "denied", "permission_denied"), ("sandbox", "denied", "sandbox_unavailable")],
)
async def test_allow_deny_and_sandbox_behave_differently(kind, status, code):
    recorder = Recorder()
    run = await run_calls(
        call("pay", n=1), tools=[tool_of(recorder, "pay")], policy=Answering(Decision(kind=kind, reason="so"))
    )

    assert statuses(run) == [status]
    assert recorder.runs == (status == "ok")
    if code is not None:
        told = content(run)
        assert (told["status"], told["type"], told["code"]) == ("error", "denied", code)
        assert told["next_valid_actions"]
        assert run.messages[2].results[0].is_error


@pytest.mark.row("P01")
async def test_every_start_has_a_decision_before_it():
    run = await run_calls(
        call("look"), call("act"), call("pay"), tools=[read(Recorder()), act(Recorder()), tool_of(Recorder(), "pay")]
    )
    events = await types(run, "call.decided", "tool.started", "approval.requested")

    assert [event.type for event in events if event.call_id == "call_1"] == ["call.decided", "tool.started"]
    assert [event.type for event in events if event.call_id == "call_2"] == ["call.decided", "tool.started"]
    assert [event.type for event in events if event.call_id == "call_3"] == ["call.decided", "approval.requested"]
    await check_session(run.session)


@pytest.mark.row("P02")
@pytest.mark.parametrize(
    "answer",
    [RuntimeError("broken"), "allow", 1, {"kind": "allow"}, Decision(kind="maybe"), Decision(kind=["allow"]), Decision(kind=None)],
)  # fmt: skip
@pytest.mark.parametrize("policy", [Answering, Later])
async def test_a_policy_that_raises_or_talks_nonsense_allows_nothing(answer, policy):
    if policy is Later and isinstance(answer, BaseException):
        answer = "yes"
    recorder = Recorder()
    run = await run_calls(call("act"), tools=[act(recorder)], policy=policy(answer))

    assert statuses(run) == ["denied"]
    assert recorder.runs == 0
    await check_session(run.session)


@pytest.mark.parametrize("effect", ["read", "unsafe"])
async def test_a_policy_is_asked_once_about_a_call(effect):
    asked = []

    class Counting:
        def decide(self, call, session):
            asked.append(call.id)
            return Decision(kind="deny")

    await run_calls(call("act"), call("act", n=1), tools=[tool_of(Recorder(), effect=effect)], policy=Counting())

    assert asked == ["call_1", "call_2"]


async def test_a_decision_whose_words_are_no_text_can_be_recorded():
    run = await run_calls(
        call("act"), tools=[act(Recorder())], policy=Answering(Decision(kind="deny", reason=None, rule="\ud800"))
    )

    assert statuses(run) == ["denied"]
    await check_session(run.session)


async def test_what_a_policy_does_to_the_arguments_does_not_reach_the_tool():
    recorder = Recorder()

    class Mutating:
        def decide(self, call, session):
            call.arguments["n"] = 99
            return Decision(kind="allow")

    await run_calls(call("pay", n=1), tools=[tool_of(recorder, "pay", parameters=N)], policy=Mutating())

    assert recorder.log[0] == ("begin", 1)


async def test_a_policy_that_never_answers_does_not_outlive_the_run():
    begun = asyncio.Event()

    class Hanging:
        async def decide(self, call, session):
            if call.arguments["n"] == 1:
                return Decision(kind="allow")
            begun.set()
            return await asyncio.Event().wait()

    # The second is decided once the response is whole: nothing starts early behind a call that acts.
    model = ScriptedModel([[call("act", n=1), call("act", n=2)]])
    agent = Agent(model, tools=[act(Recorder())], policy=Hanging())
    async with agent.stream("go") as run:
        await begun.wait()
        run.cancel()

    assert run.result.reason is StopReason.CANCELLED
    assert statuses(run.result) == ["cancelled", "skipped"]
    await check_session(run.result.session)


@pytest.mark.row("E03")
async def test_an_interceptor_may_rewrite_arguments_and_they_are_validated_again():
    recorder = Recorder()
    tools = [act(recorder, "pay", parameters=N)]
    good = await run_calls(call("pay", n=1), tools=tools, interceptors=[rewriting('{"n": 7}')])
    bad = await run_calls(call("pay", n=1), tools=tools, interceptors=[rewriting('{"n": 99}')])

    assert (statuses(good), statuses(bad)) == (["ok"], ["invalid_arguments"])
    assert [n for word, n in recorder.log if word == "begin"] == [7]
    [decided] = await types(good, "call.decided")
    assert decided.arguments == {"n": 7}


@pytest.mark.row("E03")
@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (Decision(kind="deny", reason="no"), "denied"),
        (RuntimeError("broken"), "denied"),
        (None, "denied"),
        ("call", "denied"),
        (Decision(kind="allow"), "denied"),  # it never widens: the policy says no
    ],
)
async def test_an_interceptor_may_block_and_never_widen_and_the_batch_goes_on(answer, status):
    recorder = Recorder()
    policy = first_of(deny("act"), allow("*")) if getattr(answer, "kind", "") == "allow" else None
    run = await run_calls(
        call("act"), call("look"), tools=[act(recorder), read(Recorder())], interceptors=[Before(answer)], policy=policy
    )

    assert statuses(run)[0] == status
    assert recorder.runs == 0
    assert run.completed
    await check_session(run.session)


@pytest.mark.row("E03")
@pytest.mark.parametrize("kind", ["changed", "raise", "none", "surrogate", "long"])
async def test_an_interceptor_may_change_a_result_and_cannot_lose_it(kind):
    class After(Before):
        async def after(self, call, result):
            match kind:
                case "changed":
                    return msgspec.structs.replace(result, content="[redacted]", call_id="forged")
                case "raise":
                    raise RuntimeError("broken")
                case "none":
                    return None
                case "surrogate":
                    return msgspec.structs.replace(result, content="\ud800")
                case _:
                    return msgspec.structs.replace(result, content="x" * 100_000)

    run = await run_calls(
        call("look"), tools=[read(Recorder(), result_limit=500)], interceptors=[After(lambda call: call)]
    )

    told = run.messages[2].results[0]
    assert told.call_id == "call_1"
    assert len(told.content) <= 500
    assert told.content == {"changed": "[redacted]", "long": told.content}.get(kind, "done")
    await check_session(run.session)


async def test_an_early_read_that_an_interceptor_rewrote_runs_once():
    recorder = Recorder()
    run = await run_calls(call("look", n=1), tools=[read(recorder)], interceptors=[rewriting('{"n": 7}')])

    assert [n for word, n in recorder.log if word == "begin"] == [7]
    await check_session(run.session)


async def test_siblings_of_a_call_that_waits_run_once_and_resume_does_not_repeat_them():
    recorder, sibling = Recorder(), Recorder()
    model = ScriptedModel([[call("look"), call("pay", n=1), call("act")], text("Done.")])
    agent = Agent(model, tools=[read(sibling), tool_of(recorder, "pay"), act(sibling)])
    run = await agent.run("go")

    assert run.reason is StopReason.APPROVAL_REQUIRED
    assert (sibling.runs, recorder.runs) == (2, 0)
    await run.session.answer(run.approvals[0].id, "allow")
    run = await agent.resume(run.session)

    assert run.completed
    assert (sibling.runs, recorder.runs) == (2, 1)
    assert statuses(run) == ["ok", "ok", "ok"]
    assert [result.name for result in run.messages[2].results] == ["look", "pay", "act"]
    await check_session(run.session)


async def test_a_denied_call_tells_the_model_the_persons_reason():
    recorder = Recorder()
    agent, run = await paused(recorder, call("pay", n=1))
    await run.session.answer(run.approvals[0].id, "deny", reason="Too much.")
    run = await agent.resume(run.session)

    assert run.completed
    assert content(run)["reason"] == "Too much."
    assert recorder.runs == 0


async def test_a_persons_no_stands_though_the_policy_allows_by_now():
    recorder = Recorder()
    agent, run = await paused(recorder, call("pay", n=1))
    await run.session.answer(run.approvals[0].id, "deny")
    lax = Agent(ScriptedModel([text("Done.")]), tools=agent.tools, policy=allow("*"))
    run = await lax.resume(run.session)

    assert statuses(run) == ["denied"]
    assert recorder.runs == 0


async def test_edited_arguments_are_what_runs():
    recorder = Recorder()
    agent, run = await paused(recorder, call("pay", n=1))
    await run.session.answer(run.approvals[0].id, "allow", arguments={"n": 3})
    run = await agent.resume(run.session)

    assert statuses(run) == ["ok"]
    assert [n for word, n in recorder.log if word == "begin"] == [3]


@pytest.mark.row("ST11", "HF1")
@pytest.mark.parametrize("edited", [{"n": 99}, {"n": "three"}, {"m": 3}])
async def test_edited_arguments_that_do_not_fit_are_asked_about_again_under_a_new_id_alone(edited):
    recorder = Recorder()
    agent, run = await paused(recorder, call("pay", n=1))
    [asked] = run.approvals
    await run.session.answer(asked.id, "allow", arguments=edited)
    again = await agent.resume(run.session)
    [waiting] = again.approvals

    assert (again.reason, waiting.replaces, waiting.digest) == ("approval_required", asked.id, asked.digest)
    assert "edited arguments are invalid" in waiting.reason
    assert [one.id for one in await run.session.approvals()] == [waiting.id]
    assert recorder.runs == 0

    with pytest.raises(UnknownApproval, match="has replaced it"):
        await run.session.answer(asked.id, "allow", arguments={"n": 3})
    await run.session.answer(waiting.id, "allow", arguments={"n": 3})
    done = await agent.resume(run.session)
    assert [n for word, n in recorder.log if word == "begin"] == [3]
    assert statuses(done) == ["ok"]
    await check_session(run.session)


@pytest.mark.parametrize("edited", ['{"n": 3}', {"n": float("nan")}, {"n": {1}}])
async def test_an_edit_that_is_no_json_object_is_refused_where_it_is_given(edited):
    recorder = Recorder()
    agent, run = await paused(recorder, call("pay", n=1))
    with pytest.raises(ConfigurationError, match="Edited arguments"):
        await run.session.answer(run.approvals[0].id, "allow", arguments=edited)

    await agent.resume(run.session)
    assert recorder.runs == 0


async def test_an_edit_for_a_tool_that_has_changed_since_is_asked_about_again():
    recorder = Recorder()
    _, run = await paused(recorder, call("pay", n=1))
    await run.session.answer(run.approvals[0].id, "allow", arguments={"n": 3})
    changed = {**N, "properties": {"n": {"type": "integer", "maximum": 13}}}
    other = Agent(ScriptedModel([text("Done.")]), tools=[tool_of(recorder, "pay", parameters=changed)])
    again = await other.resume(run.session)

    assert again.reason is StopReason.APPROVAL_REQUIRED
    assert again.approvals[0].id != run.approvals[0].id
    assert recorder.runs == 0


@pytest.mark.parametrize("arguments", [None, {"n": 3}])
async def test_consent_given_too_late_is_asked_for_again(arguments):
    recorder, clock = Recorder(), FakeClock()
    model = ScriptedModel([call("pay", n=1), text("Done.")])
    agent = Agent(model, tools=[tool_of(recorder, "pay", parameters=N)])
    async with open_session(MemoryJournal(), clock=clock) as session:
        run = await agent.run("go", session=session)
        clock.shift(8 * 24 * 3600)
        with pytest.raises(ApprovalExpired, match="expired"):
            await session.answer(run.approvals[0].id, "allow", arguments=arguments)
        again = await agent.resume(session)

    assert again.reason is StopReason.APPROVAL_REQUIRED
    assert again.approvals[0].id != run.approvals[0].id
    assert recorder.runs == 0


async def test_an_interceptor_cannot_turn_an_edited_call_into_another_one():
    recorder = Recorder()
    tools = [tool_of(recorder, "pay", parameters=N)]
    agent = Agent(ScriptedModel([call("pay", n=1), text("Done.")]), tools=tools, interceptors=[rewriting('{"n": 7}')])
    run = await agent.run("go")
    assert run.approvals[0].arguments == {"n": 7}
    await run.session.answer(run.approvals[0].id, "allow", arguments={"n": 3})
    again = await agent.resume(run.session)

    assert again.reason is StopReason.APPROVAL_REQUIRED
    assert recorder.runs == 0


@pytest.mark.row("T05")
@pytest.mark.parametrize(
    ("permission", "expected"), [("allow", "ok"), ("deny", "denied"), ("ask", "approval_required")]
)
async def test_the_authors_permission_decides_where_no_policy_speaks(permission, expected):
    run = await run_calls(call("pay"), tools=[tool_of(Recorder(), "pay", permission=permission)], policy=ask("other"))

    assert (statuses(run) or [run.reason.value])[0] == expected


@pytest.mark.row("T05")
async def test_every_other_word_of_a_tool_changes_what_happens():
    runs = []

    async def flaky(arguments, ctx):
        runs.append(ctx.attempt)
        raise ConnectionError("no")

    async def long(arguments, ctx):
        return "x" * 1000

    tool = read(flaky, "flaky", retries=1, guidance="Call it twice.", examples=[{"n": 1}])
    limited = read(long, "long", result_limit=200)
    hidden = read(Recorder(), "hidden", visible=False)
    model = ScriptedModel([[call("flaky"), call("long"), call("hidden")], text("Done.")])
    async with on_fake_clock() as session:
        run = await Agent(model, tools=[tool, limited, hidden]).run("go", session=session)

    assert statuses(run) == ["failed", "ok", "unknown_tool"]
    assert runs == [1, 2]
    assert len(run.messages[2].results[1].content) <= 200
    request = model.requests[0]
    assert "Call it twice." in request.instructions
    assert [spec.name for spec in request.tools] == ["flaky", "long"]
    assert '{"n":1}' in request.tools[0].description
    assert isinstance(tool, Tool)


@pytest.mark.row("P01")
@pytest.mark.parametrize(
    "make", [lambda: allow(3), lambda: ask("rm", None), lambda: first_of("rm"), lambda: first_of(deny)]
)
def test_a_policy_made_of_what_is_none_is_told_at_once(make):
    with pytest.raises(ConfigurationError):
        make()


@pytest.mark.row("P01")
@pytest.mark.parametrize(
    ("rule", "ran"),
    [("act(path=src/*)", 1), ("act( path =src/*)", 1), ("act(path=doc/*)", 0), ("act(other=*)", 0), ("a*(n=3)", 1)],
)
async def test_a_rule_with_a_pattern_holds_for_the_arguments_that_fit_it(rule, ran):
    recorder = Recorder()
    await run_calls(call("act", path="src/a.c", n=3), tools=[tool_of(recorder)], policy=allow(rule))

    assert recorder.runs == ran


@pytest.mark.parametrize("rule", ["act(", "(x=1)", "act(src/*)", "act(=x)", "act(a b=c)", " "])
def test_a_rule_that_is_none_is_told(rule):
    with pytest.raises(ConfigurationError, match="Rule"):
        deny(rule)
