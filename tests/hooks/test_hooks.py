"""Hooks: one port around the moments of a run. They may change, add and tighten; nothing that one answers allows a call."""

import asyncio
import threading
from typing import Any

import msgspec
import pytest

from invariants import check_session
from pipeline_tools import Recorder, act, content, on_fake_clock, raising, read, results, run_calls, statuses, types
from treadle import Agent, Budget, ConfigurationError, Decision, allow, deny, open_session
from treadle.budgets import Guards
from treadle.journals.memory import MemoryJournal
from treadle.permissions import can_use_tool
from treadle.ports import Hook, HookContext, Moment
from treadle.testing import ScriptedModel, Turn, call, text

N = {"type": "object", "properties": {"n": {"type": "integer", "maximum": 12}}, "required": ["n"]}


def texts(result):
    return [(message.role, message.text) for message in result.messages if message.role != "tool"]


# --- moments and context
@pytest.mark.row("R-HOOKS")
async def test_every_moment_of_a_run_has_its_hook_with_what_it_is_about():
    seen = []

    async def note(context):
        seen.append(context)

    hooks = [Hook(at=moment, run=note) for moment in Moment]
    async with open_session(MemoryJournal(), id="s") as session:
        await session.set_mode("bypass")
        model = ScriptedModel([call("act", n=1), text("Done.")])
        result = await Agent(model, tools=[act(Recorder("did"), parameters=N)], hooks=hooks).run("go", session=session)
        await check_session(session)

    assert [str(one.at) for one in seen] == [
        "prompt", "session_start", "before_request", "after_response", "before_tool", "after_tool", "before_request",
        "after_response", "stop", "session_end",
    ]  # fmt: skip
    assert {one.session_id for one in seen} == {"s"}
    assert len({one.run_id for one in seen}) == 1
    assert seen[0].message.text == "go"
    before, after = (one for one in seen if one.tool)
    assert (before.tool, before.effect, before.arguments, before.mode) == ("act", "unsafe", {"n": 1}, "bypass")
    assert (after.result.content, after.step) == ("did", 1)
    assert seen[3].message.calls[0].name == "act"
    assert [one.stop.reason for one in seen[-2:]] == ["completed", "completed"]
    assert result.completed


@pytest.mark.row("R-HOOKS")
async def test_the_highest_priority_comes_first_and_interceptors_are_hooks_among_them():
    order = []

    class Interceptor:
        def before(self, call):
            order.append("interceptor")
            return call

        def after(self, call, result):
            return result

    def hook(name, priority, **words):
        return Hook(at="before_tool", run=lambda context: order.append(name), priority=priority, **words)

    await run_calls(
        call("act"),
        tools=[act(Recorder())],
        interceptors=[Interceptor()],
        hooks=[hook("low", -1), hook("high", 9), hook("same", 0), hook("other tool", 99, tools="write*")],
    )
    assert order == ["high", "interceptor", "same", "low"]


# --- around a call
@pytest.mark.row("R-HOOKS")
@pytest.mark.parametrize(
    ("policy", "kind", "expected"),
    [
        (deny("act"), "allow", ["denied"]), (allow("act"), "deny", ["denied"]), (allow("act"), "allow", ["ok"]),
        (allow("act"), "sandbox", ["denied"]), (allow("act"), "ask", []),
    ],
)  # fmt: skip
async def test_a_hook_tightens_and_never_allows(policy, kind, expected):
    recorder = Recorder()
    hook = Hook(at="before_tool", run=lambda context: Decision(kind=kind, reason="so"))
    result = await run_calls(call("act"), tools=[act(recorder)], policy=policy, hooks=[hook])

    assert (statuses(result), recorder.runs) == (expected, expected.count("ok"))
    assert (result.reason == "approval_required") is (kind == "ask")


@pytest.mark.row("V12", "R-HOOKS")
@pytest.mark.parametrize(("n", "status"), [(5, "ok"), (99, "invalid_arguments"), (7, "denied")])
async def test_a_hook_changes_arguments_which_are_validated_and_decided_on(n, status):
    recorder = Recorder()
    hook = Hook(at="before_tool", run=lambda context: Decision(kind="allow", arguments={**context.arguments, "n": n}))
    tools = [act(recorder, parameters=N)]
    result = await run_calls(call("act", n=1), tools=tools, hooks=[hook], policy=deny("act(n=7)"))

    assert statuses(result) == [status]
    assert [n for word, n in recorder.log if word == "begin"] == [n] * (status == "ok")
    assert content(result).get("arguments_changed", False) is (status == "ok")


@pytest.mark.row("R-HOOKS", "P04")
@pytest.mark.parametrize("who", ["hook", "policy"])
async def test_the_model_reads_who_changed_its_arguments_to_invalid_ones(who):
    recorder = Recorder()
    options: dict[str, Any] = {
        "hook": {"hooks": [Hook(at="before_tool", run=lambda _: Decision(kind="allow", arguments={"n": 99}))]},
        "policy": {"policy": can_use_tool(lambda *_: {"behavior": "allow", "updatedInput": {"n": 99}})},
    }[who]
    result = await run_calls(call("act", n=1), tools=[act(recorder, parameters=N)], **options)

    assert (statuses(result), recorder.runs) == (["invalid_arguments"], 0)
    assert content(result)["message"].startswith(
        f"A {who} changed the arguments of this call, and it did not run. The arguments are invalid: `n` must be "
    )
    assert content(result)["details"][0]["value"] == 99


@pytest.mark.row("R-HOOKS")
async def test_a_hook_after_a_tool_changes_what_the_model_is_told():
    async def mask(context):
        return msgspec.structs.replace(context.result, content="[masked]")

    result = await run_calls(call("look"), tools=[read(Recorder())], hooks=[Hook(at="after_tool", run=mask)])
    assert results(result) == ["[masked]"]


@pytest.mark.parametrize(
    ("tools", "status"), [("*", "denied"), ("act", "denied"), ("a*", "denied"), ("A*", "ok"), ("other", "ok")]
)
async def test_a_hook_is_asked_about_the_tools_that_it_names(tools, status):
    hook = Hook(at="before_tool", run=lambda context: Decision(kind="deny"), tools=tools)
    assert statuses(await run_calls(call("act"), tools=[act(Recorder())], hooks=[hook])) == [status]


# --- failures and time
def _raises(context):
    raise RuntimeError("broken")


@pytest.mark.row("R-HOOKS")
@pytest.mark.parametrize(("fails", "expected"), [(None, "denied"), ("closed", "denied"), ("open", "ok")])
async def test_a_hook_that_raises_fails_closed_or_open_as_told(fails, expected):
    recorder = Recorder()
    hook = Hook(at="before_tool", run=_raises, fails=fails)
    result = await run_calls(call("act"), tools=[act(recorder)], hooks=[hook])

    assert (statuses(result), recorder.runs) == ([expected], int(expected == "ok"))
    await check_session(result.session)


def _says_seven(context):
    return 7


@pytest.mark.row("R-HOOKS")
@pytest.mark.parametrize("run", [_raises, _says_seven])
@pytest.mark.parametrize(("fails", "is_withheld"), [(None, False), ("open", False), ("closed", True)])
async def test_a_failure_after_a_tool_loses_no_result_and_may_withhold_it(run, fails, is_withheld):
    hook = Hook(at="after_tool", run=run, fails=fails)
    result = await run_calls(call("act"), tools=[act(Recorder())], hooks=[hook])

    told = f"The result is withheld: hook {run.__name__} failed." if is_withheld else "done"
    assert (statuses(result), results(result)) == (["ok"], [told])


@pytest.mark.row("R-HOOKS")
@pytest.mark.parametrize("blocks", [True, False])
async def test_a_hook_that_takes_too_long_is_left_behind(blocks):
    released = threading.Event()

    def block(context):
        released.wait(60)

    async def hang(context):
        await asyncio.Event().wait()

    recorder = Recorder()
    hook = Hook(at="before_tool", run=block if blocks else hang, timeout=5)
    try:
        async with on_fake_clock() as session:
            result = await run_calls(call("act"), tools=[act(recorder)], hooks=[hook], session=session)
    finally:
        released.set()

    assert (statuses(result), recorder.runs) == (["denied"], 0)
    assert "TimeoutError" in content(result)["message"]


# --- prompts
@pytest.mark.row("L18", "R-HOOKS")
async def test_a_prompt_may_be_kept_out_or_added_to_and_resume_asks_again():
    is_closed = True

    async def guard(context):
        return Decision(kind="deny", reason="not today") if is_closed else "Today is Monday."

    agent = Agent(ScriptedModel([text("Hello.")]), hooks=[Hook(at="prompt", run=guard)])
    async with open_session(MemoryJournal(), id="s") as session:
        denied = await agent.run("secret plans", session=session)
        assert (denied.reason, denied.messages, denied.steps) == ("task_denied", (), 0)
        assert "not today" in denied.message
        [acted] = await types(denied, "hook.acted")
        assert (acted.hook, acted.at_moment, acted.answer, acted.reason) == (
            "hook guard",
            "prompt",
            "deny",
            "not today",
        )
        is_closed = False
        done = await agent.resume(session)
        await check_session(session)

    assert texts(done) == [("user", "secret plans"), ("user", "Today is Monday."), ("assistant", "Hello.")]


@pytest.mark.row("R-HOOKS")
async def test_words_for_a_run_under_way_are_prompts_too():
    sources = []

    async def guard(context):
        sources.append(context.source)
        return Decision(kind="deny", reason="no") if context.message.text == "bad" else None

    async with open_session(MemoryJournal(), id="s") as session:
        await session.steer("bad")
        await session.steer("good")
        done = await Agent(ScriptedModel([text("Hello.")]), hooks=[Hook(at="prompt", run=guard)]).run(
            "go", session=session
        )
        await check_session(session)

    assert sources == ["task", "steer", "steer"]
    assert [words for _, words in texts(done)] == ["go", "good", "Hello."]


# --- requests and responses
@pytest.mark.row("R-HOOKS")
async def test_a_hook_before_a_request_adds_words_or_ends_the_run():
    async def add(context):
        return "Be brief." if context.step == 0 else Decision(kind="deny", message="Enough.")

    model = ScriptedModel([call("look"), text("never")])
    result = await Agent(model, tools=[read(Recorder())], hooks=[Hook(at="before_request", run=add)]).run("go")

    assert [message.text for message in model.requests[0].messages] == ["go", "Be brief."]
    assert (result.reason, len(model.requests), statuses(result)) == ("task_denied", 1, ["ok"])
    await check_session(result.session)


@pytest.mark.parametrize(
    ("said", "answers", "reason"),
    [
        ("Look.", ["message"], "completed"), *((one, [], "completed") for one in ("  ", None, Decision(kind="allow"))),
        *((Decision(kind=kind, reason="No."), ["deny"], "task_denied") for kind in ("deny", "ask")),
    ],
    ids=range(6),
)  # fmt: skip
async def test_what_a_hook_before_a_request_answers_is_recorded_where_it_does_something(said, answers, reason):
    hook = Hook(at="before_request", run=lambda context: said, timeout=None)
    result = await run_calls(call("act"), tools=[act(Recorder())], hooks=[hook])
    acted = await types(result, "hook.acted")

    assert (sorted({event.answer for event in acted}), result.reason) == (answers, reason)
    assert {(event.at_moment, event.interrupt) for event in acted} <= {("before_request", False)}


@pytest.mark.row("R-HOOKS")
@pytest.mark.parametrize("interrupt", [True, False])
async def test_a_hook_after_a_response_keeps_all_its_calls_from_starting_early_ones_too(interrupt):
    recorder = Recorder()

    async def look(context):
        if context.message.calls:
            return Decision(kind="deny", reason="not these", interrupt=interrupt)
        return None

    result = await run_calls(
        call("look"), call("act"), tools=[read(recorder), act(recorder)], hooks=[Hook(at="after_response", run=look)]
    )

    assert (recorder.runs, statuses(result)) == (0, ["skipped", "skipped"])
    assert "not these" in content(result)["message"]
    assert result.reason == ("cancelled" if interrupt else "completed")
    await check_session(result.session)


async def test_a_crash_before_the_end_was_stored_does_not_lift_the_interrupt_of_a_hook():
    async def look(context):
        return Decision(kind="deny", reason="not these", interrupt=True) if context.message.calls else None

    recorder = Recorder()
    hooks = [Hook(at="after_response", run=look)]
    first = await run_calls(call("act"), tools=[act(recorder)], hooks=hooks)
    events = await first.session.events()
    ends = [number for number, event in enumerate(events) if event.type in ("hook.acted", "run.finished")]
    for end in (ends[0] + 1, ends[-1]):  # the response is not stored, or its calls have their results
        broken, model = MemoryJournal(), ScriptedModel([text("What now?")])
        await broken.adopt("s", events[:end], state="running")
        async with open_session(broken, id="s") as session:
            result = await Agent(model, tools=[act(recorder)], hooks=hooks).resume(session)
            await check_session(session)
        assert (result.reason, result.message, model.requests) == ("cancelled", first.message, [])

    assert (first.reason, recorder.runs) == ("cancelled", 0)


# --- the stop
@pytest.mark.row("L25", "R-HOOKS")
async def test_a_stop_may_go_on_with_a_message_but_not_for_ever():
    async def more(context):
        return f"Continue, {context.continued + 1}."

    model = ScriptedModel([text("I am done.")])
    result = await Agent(model, hooks=[Hook(at="stop", run=more)], guards=Guards(continuations=2)).run("go")

    assert (result.completed, result.text, len(model.requests)) == (True, "I am done.", 3)
    assert [words for role, words in texts(result) if role == "user"] == ["go", "Continue, 1.", "Continue, 2."]
    assert [one.answer for one in await types(result, "hook.acted")] == ["continued", "continued"]
    await check_session(result.session)


@pytest.mark.row("R-HOOKS")
async def test_a_done_condition_may_be_told_to_go_on_and_a_limit_may_not():
    async def more(context):
        return "More." if context.continued == 0 else None

    ending = act(Recorder("paid"), "finish", ends_run=True)
    model = ScriptedModel([call("finish"), text("And done.")])
    result = await Agent(model, tools=[ending], hooks=[Hook(at="stop", run=more)]).run("go")
    assert (result.reason, result.text) == ("completed", "And done.")
    await check_session(result.session)

    limited = await Agent(
        ScriptedModel([call("look")]), tools=[read(Recorder())], hooks=[Hook(at="stop", run=more)],
        budget=Budget(max_model_turns=1), on_limit="report",
    ).run("go")  # fmt: skip
    assert (limited.reason, len(await types(limited, "hook.acted"))) == ("step_limit_reached", 0)


@pytest.mark.row("R-HOOKS")
async def test_the_bound_on_going_on_counts_over_a_resume():
    async def more(context):
        return "Continue."

    hooks = [Hook(at="stop", run=more)]
    async with open_session(MemoryJournal(), id="s") as session:
        stopping = ScriptedModel([text("one"), call("look")])
        agent = Agent(stopping, tools=[read(Recorder())], hooks=hooks, guards=Guards(continuations=1))
        run = agent.stream("go", session=session)
        async with run:
            async for event in run:
                if event.type == "tool.started":
                    run.cancel()
        model = ScriptedModel([text("two")])
        done = await Agent(model, tools=[read(Recorder())], hooks=hooks, guards=Guards(continuations=1)).resume(session)

    assert (done.completed, len(model.requests)) == (True, 1)


# --- agents below, and what is refused
@pytest.mark.row("R-HOOKS")
async def test_the_hooks_of_a_caller_hold_for_the_calls_of_its_agents():
    recorder, seen = Recorder(), []

    async def no(context):
        seen.append(context.tool)
        return Decision(kind="deny", reason="no paying") if context.tool == "pay" else None

    child = Agent(ScriptedModel([call("pay"), text("ok")]), tools=[act(recorder, "pay")])
    lead = Agent(
        ScriptedModel([call("clerk", task="pay"), text("Done.")]),
        tools=[child.as_tool("clerk", "Pays.")],
        policy=allow("*"),
        hooks=[Hook(at="before_tool", run=no)],
    )
    assert (await lead.run("go")).completed
    assert (recorder.runs, seen) == (0, ["clerk", "pay"])


@pytest.mark.parametrize("words", [{"at": "sometimes"}, {"timeout": 0}, {"fails": "maybe"}])
def test_a_hook_with_a_wrong_word_is_refused(words):
    with pytest.raises(ConfigurationError):
        Hook(**{"at": "stop", "run": _raises, **words})


@pytest.mark.parametrize("denies", [False, True])
async def test_what_a_hook_says_when_a_run_goes_on_comes_behind_the_results_that_it_waits_for(denies):
    def words(context):
        if context.source != "resume":
            return None
        return Decision(kind="deny", reason="Not today.") if denies else "Mind the costs."

    recorder = Recorder()
    hooks = [Hook(at="session_start", run=words)]
    tools = [act(recorder, "pay", permission=None)]
    async with open_session(MemoryJournal(), id="s") as session:
        await Agent(ScriptedModel([[call("pay")]]), tools=tools).run("go", session=session)
        [waiting] = await session.approvals()
        await session.answer(waiting.id, "allow")
        model = ScriptedModel([text("Done.")])
        result = await Agent(model, tools=tools, hooks=hooks).resume(session)
        await check_session(session)
        acted = [event for event in await session.events() if event.type == "hook.acted"]

    assert [event.answer for event in acted] == (["deny"] if denies else ["message"])
    assert recorder.runs == (0 if denies else 1)
    assert result.reason == ("task_denied" if denies else "completed")
    if not denies:
        assert [message.role for message in model.requests[0].messages] == ["user", "assistant", "tool", "user"]
        assert model.requests[0].messages[-1].text == "Mind the costs."


async def test_an_answer_that_a_hook_denies_for_a_person_ends_the_run_as_stopped():
    async def look(context):
        return Decision(kind="deny", reason="Let a person read it.", interrupt=True)

    run = await Agent(ScriptedModel([text("Secret.")]), hooks=[Hook(at="after_response", run=look)]).run("go")

    assert run.reason == "cancelled"
    assert "Let a person read it." in run.message


# --- errors
@pytest.mark.row("E05")
@pytest.mark.parametrize("fails", ["tool", "model"])
async def test_hooks_at_an_error_are_told_of_a_tool_that_raised_and_of_a_model_that_failed(fails):
    seen = []

    async def note(context):
        seen.append((context.tool, type(context.error).__name__, str(context.error)))
        raise RuntimeError("the hook fails too")

    broken = Turn(status=400, error="no such model")
    model = ScriptedModel([call("look"), text("Done.")] if fails == "tool" else [broken])
    look = read(raising(LookupError("row 7")), retries=0)
    result = await Agent(model, tools=[look], hooks=[Hook(at="error", run=note)]).run("go")
    await check_session(result.session)

    assert [tool for tool, _, _ in seen] == ["look" if fails == "tool" else ""]
    assert seen[0][1:] == ("LookupError", "row 7") if fails == "tool" else seen[0][1] == "ModelRejected"
    assert result.reason == ("completed" if fails == "tool" else "model_error")


@pytest.mark.parametrize(
    ("kinds", "status", "asked"),
    [(["deny", "ask"], ["denied"], []), (["ask", "deny"], ["denied"], []), (["ask", "ask"], [], [{"n": 1}])],
)
async def test_of_two_hooks_on_a_call_the_stricter_counts_and_a_person_is_asked_about_the_last_arguments(
    kinds, status, asked
):
    def says(kind: Any, n: int) -> Hook:
        return Hook(at="before_tool", run=lambda context: Decision(kind=kind, arguments={"n": n}))

    hooks = [says(kind, n) for n, kind in enumerate(kinds)]
    run = await run_calls(call("act", n=9), tools=[act(Recorder())], hooks=hooks)

    assert (statuses(run), [one.arguments for one in run.approvals]) == (status, asked)


async def broken(context: HookContext) -> Any:
    raise RuntimeError("broken")


async def silent(context: HookContext) -> None:
    return None


async def denies(context: HookContext) -> Decision:
    return Decision(kind="deny", reason="No.")


@pytest.mark.row("R-HOOKS")
@pytest.mark.parametrize("first", [broken, silent])
@pytest.mark.parametrize("at", [*Moment])
async def test_every_hook_of_a_moment_is_asked_where_one_before_it_fails_open(at, first):
    asked: list[str] = []

    async def second(context: HookContext) -> None:
        asked.append(str(context.at))

    hooks = [Hook(at=at, run=first, fails="open"), Hook(at=at, run=second, fails="open")]
    async with on_fake_clock() as session:
        model = ScriptedModel([call("act"), text("Done.")])
        result = await Agent(
            model, tools=[act(raising(ValueError()) if at is Moment.ERROR else Recorder())], hooks=hooks
        ).run("go", session=session)

    assert result.completed
    assert set(asked) == {at.value}
