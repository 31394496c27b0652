"""Permission: every call is decided before it runs; consent covers exactly one action; garbage allows nothing."""

import asyncio
import json
from typing import Any

import msgspec
import pytest

from invariants import check_session
from pipeline_tools import Recorder, act, content, read, run_calls, statuses, tool_of, types
from treadle import (
    Agent,
    ConfigurationError,
    Decision,
    StopReason,
    ToolCall,
    allow,
    ask,
    deny,
    first_of,
    open_session,
    tool,
)
from treadle.errors import UnknownApproval
from treadle.permissions import default_decision, is_answered
from treadle.ports import Hook, HookContext, SessionView
from treadle.testing import ScriptedModel, call, text
from treadle.tools import CheckedCall, JsonObject, ToolResult

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
        return super().decide(call, session)


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
    tools = [read(Recorder()), act(Recorder()), tool_of(Recorder(), "pay")]
    run = await run_calls(call("look"), call("act"), call("pay"), tools=tools)
    events = await types(run, "call.decided", "tool.started", "approval.requested")

    for call_id, then in (("call_1", "tool.started"), ("call_2", "tool.started"), ("call_3", "approval.requested")):
        assert [event.type for event in events if event.call_id == call_id] == ["call.decided", then]
    await check_session(run.session)


CONTRACT = "interrupt or consent is invalid."


@pytest.mark.row("P01", "P02", "P03")
@pytest.mark.parametrize(
    ("said", "why"),
    [
        (KeyError("n"), "KeyError"), ("allow", "The policy returned a str, which is not a valid Decision."), (1, "a int, which is not"),
        ({"kind": "allow"}, "The policy returned a dict, which is not a valid Decision"),
        *((Decision(kind=odd), "The policy returned a Decision, which is not a valid Decision.") for odd in ("maybe", ["allow"], None)),
        *((Decision(kind="allow", arguments=odd), "changed the arguments to something other than a JSON object.") for odd in ([1], {"n": {1}})),
        *((Decision(kind="allow", interrupt=odd), CONTRACT) for odd in (0, 1, "yes", None)), (Decision(kind="ask", consent="deny"), CONTRACT),
    ],
    ids=range(14),
)  # fmt: skip
@pytest.mark.parametrize("policy", [Answering, Later])
async def test_a_policy_that_raises_or_breaks_its_contract_denies_in_the_name_of_the_runtime(said, why, policy):
    recorder = Recorder()
    run = await run_calls(call("act"), tools=[act(recorder)], policy=policy(said))
    [decided] = await types(run, "call.decided")

    assert (statuses(run), recorder.runs) == (["denied"], 0)
    assert (decided.decision, decided.scope, decided.by) == ("deny", "runtime", "runtime")
    assert why in decided.reason
    assert why in content(run)["message"]
    assert isinstance(said, Exception) or decided.rule == "policy broke its contract"
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
    policy = Answering(Decision(kind="deny", reason=None, rule="\ud800"))
    run = await run_calls(call("act"), tools=[act(Recorder())], policy=policy)

    assert statuses(run) == ["denied"]
    await check_session(run.session)


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
@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"content": "[redacted]", "call_id": "forged"}, "[redacted]"), ({"content": "\ud800"}, "done"), ({"content": "x" * 100_000}, None),
        (RuntimeError("broken"), "done"), (None, "done"),
    ],
    ids=["changed", "surrogate", "long", "raise", "none"],
)  # fmt: skip
async def test_an_interceptor_may_change_a_result_and_cannot_lose_it(change, told):
    class After(Before):
        async def after(self, call, result):
            if isinstance(change, Exception):
                raise change
            return None if change is None else msgspec.structs.replace(result, **change)

    tools = [read(Recorder(), result_limit=500)]
    run = await run_calls(call("look"), tools=tools, interceptors=[After(lambda call: call)])

    (found,) = run.messages[2].results
    assert found.call_id == "call_1"
    assert len(found.content) <= 500
    assert told is None or found.content == told
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

    assert (run.reason, sibling.runs, recorder.runs) == (StopReason.APPROVAL_REQUIRED, 2, 0)
    await run.session.answer(run.approvals[0].id, "allow")
    run = await agent.resume(run.session)

    assert (run.completed, sibling.runs, recorder.runs) == (True, 2, 1)
    assert statuses(run) == ["ok", "ok", "ok"]
    assert [result.name for result in run.messages[2].results] == ["look", "pay", "act"]
    await check_session(run.session)


async def test_a_persons_no_stands_though_the_policy_allows_by_now():
    recorder = Recorder()
    agent, run = await paused(recorder, call("pay", n=1))
    await run.session.answer(run.approvals[0].id, "deny")
    lax = Agent(ScriptedModel([text("Done.")]), tools=agent.tools, policy=allow("*"))
    run = await lax.resume(run.session)

    assert statuses(run) == ["denied"]
    assert recorder.runs == 0


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


@pytest.mark.row("P01")
@pytest.mark.parametrize(
    ("rule", "ran"),
    [("act(path=src/*)", 1), ("act( path =src/*)", 1), ("act(path=doc/*)", 0), ("act(other=*)", 0), ("a*(n=3)", 1)],
)
async def test_a_rule_with_a_pattern_holds_for_the_arguments_that_fit_it(rule, ran):
    recorder = Recorder()
    await run_calls(call("act", path="src/a.c", n=3), tools=[tool_of(recorder)], policy=allow(rule))

    assert recorder.runs == ran


NUMBER: JsonObject = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


# --- a tool that always asks
@pytest.mark.parametrize(
    ("required", "decided"),
    [
        ("always_ask", ["ask", "ask"]),
        ("ask", ["allow", "allow"]),
        (lambda made: "always_ask" if made.arguments["n"] > 1 else None, ["allow", "ask"]),
        (lambda made: "always_ask" if made.values["n"] > 1 else "deny", ["allow", "ask"]),
        (lambda made: made.arguments["missing"], ["ask", "ask"]),
        (lambda made: "perhaps", ["ask", "ask"]),
    ],
    ids=["always", "if no policy decides", "by arguments", "by values", "fails", "says nothing known"],
)
async def test_a_tool_that_always_asks_is_asked_about_whatever_a_policy_allows(required, decided):
    recorder = Recorder()
    tools = [act(recorder, "pay", parameters=NUMBER, permission=required)]
    paused = await run_calls(call("pay", n=1), call("pay", n=2), tools=tools, policy=allow("pay"))

    found = await types(paused, "call.decided")
    assert [one.decision for one in found] == decided
    assert recorder.runs == decided.count("allow")
    asked = [(one.rule, one.reason, one.scope, one.by) for one in found if one.decision == "ask"]
    assert asked == [("tool pay permission", "A person must allow this call.", "tool", "tool")] * decided.count("ask")


@pytest.mark.parametrize(
    ("permission", "decided"),
    [
        (lambda made: "always_ask" if made.arguments["n"] > 1 else "allow", ["allow", "ask"]),
        (lambda made: "deny" if made.arguments["n"] > 1 else None, ["ask", "deny"]),
        ("always_ask", ["ask", "ask"]),
    ],
    ids=["allows or asks", "the effect's default or denied", "always asks"],
)
async def test_a_tools_permission_may_depend_on_the_call_where_no_policy_decides(permission, decided):
    tools = [act(Recorder(), "pay", parameters=NUMBER, permission=permission)]
    paused = await run_calls(call("pay", n=1), call("pay", n=2), tools=tools)

    assert [one.decision for one in await types(paused, "call.decided")] == decided


@pytest.mark.parametrize(
    ("old", "kept", "decided"),
    [
        (True, None, ["ask", "ask"]),
        (lambda made: made.arguments["n"] > 1, "allow", ["allow", "ask"]),
        (lambda made: made.arguments["n"] > 1, lambda made: "allow", ["allow", "ask"]),
    ],
    ids=["always", "beside a word", "beside a function"],
)
async def test_the_old_spelling_of_always_ask_works_and_names_the_new_one(old, kept, decided):
    with pytest.warns(DeprecationWarning, match='write permission="always_ask"'):
        tools = [act(Recorder(), "pay", parameters=NUMBER, requires_approval=old, permission=kept)]
    paused = await run_calls(call("pay", n=1), call("pay", n=2), tools=tools)

    assert [one.decision for one in await types(paused, "call.decided")] == decided
    assert not tools[0].requires_approval


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: first_of("grep"), "policies must be a Policy, which has decide; got 'grep'."),
        (lambda: first_of(allow("a"), None), "policies must be a Policy, which has decide; got None."),
        (allow, "allow() needs at least one tool's name, or '*' for every tool."),
        (deny, "deny() needs at least one tool's name, or '*' for every tool."),
        (lambda: ask("a", 3), "names must be a string; got 3."),
        (lambda: allow(b"pay"), "names must be a string; got b'pay'."),
    ],
)
def test_what_is_not_a_policy_or_a_name_is_refused_where_it_is_given(make, message):
    with pytest.raises(ConfigurationError) as refused:
        make()

    assert str(refused.value) == message


class Unattended:
    """Denies what would be asked about, unless a person has answered: the policy of a program without people."""

    def __init__(self):
        self.kinds = []
        self.answered = []

    def decide(self, call, session):
        self.kinds.append(str(default_decision(call).kind))
        self.answered.append(is_answered(call, session))


@pytest.mark.parametrize(
    ("effect", "permission", "kind"),
    [
        ("read", None, "allow"), ("read", "deny", "deny"), ("read", "ask", "ask"),
        ("unsafe", None, "ask"), ("keyed", None, "ask"), ("unsafe", "allow", "allow"),
    ],
)  # fmt: skip
async def test_the_default_decision_is_what_is_decided_without_a_policy(effect, permission, kind):
    policy, tools = Unattended(), [tool_of(Recorder(), "pay", effect=effect, permission=permission)]
    with_policy = await run_calls(call("pay"), tools=tools, policy=policy)
    without = await run_calls(call("pay"), tools=tools)

    assert policy.kinds == [kind]
    assert with_policy.reason == without.reason
    assert (with_policy.reason is StopReason.APPROVAL_REQUIRED) == (kind == "ask")


async def test_a_call_is_answered_once_a_person_has_answered_it():
    policy, recorder = Unattended(), Recorder()
    model = ScriptedModel([[call("pay")], text("Paid.")])
    agent = Agent(model, tools=[tool_of(recorder, "pay", effect="unsafe")], policy=policy)

    paused = await agent.run("go")
    paused = await agent.resume(paused.session)  # nobody has answered yet
    await paused.session.answer(paused.approvals[0].id, "allow")
    result = await agent.resume(paused.session)

    assert result.text == "Paid."
    assert policy.answered == [False, False, True]
    assert policy.kinds == ["ask", "ask", "ask"]


async def test_a_policy_that_changes_arguments_leaves_those_that_a_person_has_put_in_their_place():
    class Capped:
        def decide(self, call, session):
            return Decision(kind="ask", arguments={"n": min(call.arguments["n"], 100)})

    recorder = Recorder()
    model = ScriptedModel([[call("pay", n=500)], text("Paid.")])
    agent = Agent(model, tools=[tool_of(recorder, "pay", effect="unsafe")], policy=Capped())

    paused = await agent.run("go")
    assert paused.approvals[0].arguments == {"n": 100}
    await paused.session.answer(paused.approvals[0].id, "allow", arguments={"n": 50})
    result = await agent.resume(paused.session)

    assert result.text == "Paid.", result.message
    assert recorder.log == [("begin", 50), ("end", 50)]


said: list[str] = []


@tool(effect="unsafe")
async def say(words: str) -> str:
    """Say words."""
    said.append(words)
    return f"said {words}"


def loud(words: str) -> str:
    return words if words.endswith("!") else f"{words}!"


async def hook(context: HookContext) -> Decision:
    assert context.arguments is not None
    return Decision(kind="allow", arguments={"words": loud(context.arguments["words"])})


class Interceptor:
    def before(self, call: ToolCall) -> ToolCall:
        words = json.loads(call.arguments)["words"]
        return msgspec.structs.replace(call, arguments=json.dumps({"words": loud(words)}))

    def after(self, call: ToolCall, result: ToolResult) -> ToolResult:
        return result


class Policy:
    def decide(self, call: CheckedCall, session: SessionView) -> Decision:
        return Decision(kind="ask", rule="loud", arguments={"words": loud(call.arguments["words"])})


WHO: dict[str, dict[str, Any]] = {
    "hook": {"hooks": [Hook(at="before_tool", run=hook)]},
    "interceptor": {"interceptors": [Interceptor()]},
    "policy": {"policy": Policy()},
}


@pytest.mark.parametrize("who", WHO)
async def test_a_second_question_is_about_the_edited_call_until_it_has_run(who, tmp_path):
    said.clear()
    agent = Agent(ScriptedModel([call("say", words="buy"), text("Done.")]), tools=[say], **WHO[who])
    async with open_session(tmp_path / "j.db", id="s") as session:
        first = (await agent.run("Go", session=session)).approvals[0]
        await session.answer(first.id, "allow", arguments={"words": "wait"})
        (second,) = (await agent.resume(session)).approvals
    assert (first.arguments, second.arguments) == ({"words": "buy!"}, {"words": "wait!"})
    assert second.reason.startswith("The edited arguments were changed")
    assert second.edited == {"words": "wait"}

    async with open_session(tmp_path / "j.db", id="s") as session:
        (still,) = (await agent.resume(session)).approvals
        assert still.id == second.id
        await session.answer(second.id, "allow")
        result = await agent.resume(session)

    assert result.completed
    assert said == ["wait!"]


async def test_an_edit_of_an_edit_counts_from_itself():
    said.clear()
    agent = Agent(ScriptedModel([call("say", words="buy"), text("Done.")]), tools=[say], **WHO["hook"])
    async with open_session("memory:") as session:
        result = await agent.run("Go", session=session)
        for words in ("wait", "sell", "stop!"):
            await session.answer(result.approvals[0].id, "allow", arguments={"words": words})
            result = await agent.resume(session)

    assert result.completed
    assert said == ["stop!"]
