"""A decision travels with its call: to the attempt, into the journal, over a crash; and may change the call, stop the run or box it."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from invariants import check_session
from pipeline_tools import Recorder, act, content, read, run_calls, statuses, tool_of, types
from treadle import Agent, Budget, Decision, StopReason, allow, ask, deny, first_of, open_session, resolve_model
from treadle.drivers import ReActDriver
from treadle.events import CallDecided, ToolStarted
from treadle.journals.memory import MemoryJournal
from treadle.providers import RecordingModel, ReplayModel
from treadle.sandboxes import Bubblewrap, Confinement, run_process
from treadle.testing import MockProvider, ScriptedModel, Turn, call, text
from treadle.tools import Command, ProcessResult

N = {"type": "object", "properties": {"n": {"type": "integer", "maximum": 12}, "note": {"type": "string", "default": ""}}, "required": ["n"]}  # fmt: skip


class Changing:
    """A policy that puts other arguments in the place of the model's, as a dialog of `can_use_tool` does."""

    def __init__(self, change: Any, **words: Any) -> None:
        self.change, self.words = change, words
        self.asked: list[Any] = []

    async def decide(self, call, session):
        self.asked.append((call.arguments["n"], None if call.decision is None else call.decision.kind))
        await asyncio.sleep(0)
        return Decision(kind="allow", rule="dialog", arguments=self.change(call.arguments), **self.words)


def to(n: int) -> Any:
    return lambda arguments: {**arguments, "n": n}


class Box(Bubblewrap):
    """The real sandbox, with one folder to write; it notes what it was given to run."""

    def __init__(self, folder: Path) -> None:
        super().__init__(Confinement(writable=(str(folder),)))
        self.ran: list[tuple[str, ...]] = []

    async def run(self, command):
        self.ran.append(command.arguments)
        return await super().run(command)


class Says:
    """A policy that always decides the same."""

    def __init__(self, kind: str = "sandbox", **words: Any) -> None:
        self.decision = Decision(kind=kind, **words)

    def decide(self, call, session):
        return self.decision


def boxed() -> Says:
    return Says(rule="foreign", scope="project")


# --- it travels
@pytest.mark.row("R-DECISION")
async def test_the_decision_is_in_the_start_and_in_the_context_of_the_call():
    contexts = []

    async def run(arguments, ctx):
        contexts.append(ctx.decision)
        return "done"

    tools = [read(run), act(run), tool_of(run, "pay")]
    result = await run_calls(
        call("look"), call("act"), call("pay"), tools=tools, policy=first_of(allow("pay", scope="project"))
    )

    started = [event for event in await types(result, "tool.started") if isinstance(event, ToolStarted)]
    expected = [
        ("allow", "default for read", "default", "default", "ask"),
        ("allow", "tool act permission", "tool", "tool", "ask"),
        ("allow", "allow pay", "project", "policy", "ask"),
    ]
    assert [(one.decision, one.rule, one.scope, one.by, one.mode) for one in started] == expected
    assert [(one.kind, one.rule, one.scope, one.by, one.mode) for one in contexts] == expected
    decided = [event for event in await types(result, "call.decided") if isinstance(event, CallDecided)]
    assert [(one.decision, one.rule, one.scope, one.by, one.mode) for one in decided] == expected


@pytest.mark.row("R-DECISION")
async def test_a_persons_consent_is_the_decision_that_the_call_runs_by():
    recorder = Recorder()
    agent = Agent(ScriptedModel([call("pay", n=1), text("Done.")]), tools=[tool_of(recorder, "pay", parameters=N)])
    paused = await agent.run("go")
    asked = paused.approvals[0].id
    await paused.session.answer(asked, "allow", arguments={"n": 2}, by="ada", reason="less")
    done = await agent.resume(paused.session)

    decision = recorder.contexts[0].decision
    assert (decision.kind, decision.scope, decision.by, decision.rule) == ("allow", "call", "ada", f"approval {asked}")
    assert decision.arguments == {"n": 2, "note": ""}
    [started] = [one for one in await types(done, "tool.started") if isinstance(one, ToolStarted)]
    assert (started.scope, started.by) == ("call", "ada")
    told = content(done)
    assert (told["output"], told["arguments_changed"], told["arguments"]) == ("done", True, {"n": 2, "note": ""})
    about = await done.session.explain()
    assert (about.tried[0].scope, about.tried[0].by, about.tried[0].mode) == ("call", "ada", "ask")
    await check_session(done.session)


async def test_an_edit_that_changes_nothing_is_told_as_none():
    agent = Agent(ScriptedModel([call("pay", n=1), text("Done.")]), tools=[tool_of(Recorder(), "pay", parameters=N)])
    paused = await agent.run("go")
    await paused.session.answer(paused.approvals[0].id, "allow", arguments={"n": 1, "note": ""})
    done = await agent.resume(paused.session)

    assert content(done) == "done"


# --- changed arguments
@pytest.mark.row("R-DECISION")
@pytest.mark.parametrize("effect", ["read", "unsafe"])
async def test_a_policy_may_change_arguments_and_the_model_is_told_with_the_result(effect):
    recorder = Recorder({"receipt": 7})
    policy = Changing(to(3), message="Three is the most.")
    result = await run_calls(
        call("pay", n=9), tools=[tool_of(recorder, "pay", parameters=N, effect=effect)], policy=policy
    )

    assert [n for word, n in recorder.log if word == "begin"] == [3]
    assert content(result) == {
        "receipt": 7,
        "decision_message": "Three is the most.",
        "arguments_changed": True,
        "arguments": {"n": 3, "note": ""},
    }
    [decided] = await types(result, "call.decided")
    [started] = await types(result, "tool.started")
    assert (decided.arguments, decided.digest) == ({"n": 3, "note": ""}, started.digest)
    assert policy.asked == [(9, None), (3, "allow")]  # asked again about what it changed, and sees its own word
    assert recorder.contexts[0].call.arguments == '{"n":3,"note":""}'
    await check_session(result.session)


@pytest.mark.row("R-DECISION")
@pytest.mark.parametrize(
    ("wrong", "status"),
    [
        *((one, "invalid_arguments") for one in ({"n": 99}, {"m": 1}, {})),
        *((one, "denied") for one in ("n=1", [1], {"n": float("nan")}, {"n": {1}})),
    ],
    ids=range(7),
)  # fmt: skip
async def test_what_a_policy_puts_in_is_validated_like_the_models_own(wrong, status):
    recorder = Recorder()
    tools = [tool_of(recorder, "pay", parameters=N)]
    result = await run_calls(call("pay", n=1), tools=tools, policy=Changing(lambda _: wrong))

    assert (statuses(result), recorder.runs) == ([status], 0)


@pytest.mark.row("R-DECISION")
async def test_other_rules_hold_for_what_a_policy_has_put_in():
    recorder = Recorder()
    policy = first_of(deny("pay(n=7)", reason="not seven"), Changing(to(7)))
    result = await run_calls(call("pay", n=1), tools=[tool_of(recorder, "pay", parameters=N)], policy=policy)

    assert (statuses(result), recorder.runs) == (["denied"], 0)
    assert content(result)["message"] == "pay was denied: not seven"


class Noting:
    def decide(self, call, session):
        if call.name != "pay":
            return None
        return Decision(kind="allow", arguments={**call.arguments, "note": "by order"})


@pytest.mark.row("R-DECISION")
@pytest.mark.parametrize(
    ("n", "rule", "ran"), [(7, deny("pay(n=7)"), []), (3, Noting(), [{"n": 3, "note": "by order"}])]
)
async def test_what_a_childs_policy_puts_in_is_held_to_the_rules_of_its_caller_and_both_changes_count(n, rule, ran):
    recorder = Recorder()
    model = ScriptedModel([call("pay", n=1), text("Paid.")])
    child = Agent(model, tools=[tool_of(recorder, "pay", parameters=N)], policy=Changing(to(n)))
    tools, above = [child.as_tool("clerk", "Pays.")], ScriptedModel([call("clerk", task="Pay"), text("Done.")])
    assert (await Agent(above, tools=tools, policy=first_of(allow("clerk"), rule)).run("go")).completed
    assert [context.decision.arguments for context in recorder.contexts] == ran


@pytest.mark.row("R-DECISION")
async def test_a_policy_that_never_leaves_the_arguments_alone_denies():
    recorder = Recorder()
    policy = Changing(lambda arguments: {**arguments, "note": arguments["note"] + "!"})
    result = await run_calls(call("pay", n=1), tools=[tool_of(recorder, "pay", parameters=N)], policy=policy)

    assert (statuses(result), recorder.runs) == (["denied"], 0)
    assert content(result)["rule"] == "policy never settles"


@pytest.mark.row("R-DECISION")
async def test_consent_is_asked_for_what_the_policy_has_put_in_and_covers_it():
    recorder = Recorder()

    class Asking(Changing):
        async def decide(self, call, session):
            return Decision(kind="ask", rule="dialog", arguments=self.change(call.arguments))

    tools = [tool_of(recorder, "pay", parameters=N)]
    agent = Agent(ScriptedModel([call("pay", n=9), text("Done.")]), tools=tools, policy=Asking(to(3)))
    paused = await agent.run("go")
    assert paused.approvals[0].arguments == {"n": 3, "note": ""}
    await paused.session.answer(paused.approvals[0].id, "allow")
    done = await agent.resume(paused.session)

    assert [n for word, n in recorder.log if word == "begin"] == [3]
    assert content(done)["arguments_changed"] is True


async def test_long_changed_arguments_leave_room_for_the_result():
    policy = Changing(lambda arguments: {"n": 1, "note": "x" * 5000})
    tool = tool_of(Recorder({"receipt": 7}), "pay", parameters=N)
    result = await run_calls(call("pay", n=9), tools=[tool], policy=policy, budget=Budget(max_tool_result_chars=1000))

    told = content(result)
    assert len(result.messages[2].results[0].content) <= 1000
    assert (told["receipt"], told["arguments_changed"]) == (7, True)


@pytest.mark.row("R-DECISION")
async def test_a_react_driver_shows_the_model_what_was_changed():
    recorder = Recorder()
    model = ScriptedModel(
        [
            text('{"thought": null, "type": "call_tool", "tool": "pay", "args": {"n": 9}, "answer": null}'),
            text('{"thought": null, "type": "final_answer", "tool": null, "args": null, "answer": "Done."}'),
        ]
    )
    agent = Agent(model, tools=[tool_of(recorder, "pay", parameters=N)], driver=ReActDriver(), policy=Changing(to(3)))
    result = await agent.run("go")

    assert [n for word, n in recorder.log if word == "begin"] == [3]
    assert '"arguments_changed":true' in str(model.requests[1].messages).replace(" ", "").replace("\\", "")
    assert result.steps == 2
    await check_session(result.session)


# --- interrupt
@pytest.mark.row("R-DECISION")
@pytest.mark.parametrize("place", [0, 1, 2])
async def test_a_decision_may_stop_the_run_and_no_sibling_starts(place):
    recorder = Recorder()

    class Stopping:
        async def decide(self, call, session):
            if call.position == place:
                return Decision(kind="deny", message="Ask me first.", interrupt=True)
            return Decision(kind="allow")

    calls = [call("act", n=n) for n in range(3)]
    result = await run_calls(*calls, tools=[act(recorder)], policy=Stopping())

    assert recorder.runs == 0
    assert [status == "denied" for status in statuses(result)] == [n == place for n in range(3)]
    assert statuses(result).count("skipped") == 2
    assert (result.reason, result.status, result.completed) == (StopReason.CANCELLED, "stopped", False)
    assert "act was denied: Ask me first." in result.message
    assert result.stop.details["tool"] == "act"
    await check_session(result.session)
    done = await Agent(ScriptedModel([text("What now?")]), tools=[act(recorder)]).resume(result.session)
    assert (done.completed, recorder.runs) == (True, 0)


class Stopping:
    """A policy that stops the run at `pay`, and allows the rest."""

    def decide(self, call, session):
        if call.name == "pay":
            return Decision(kind="deny", message="Ask me first.", interrupt=True)
        return Decision(kind="allow")


@pytest.mark.row("R-DECISION")
@pytest.mark.parametrize(
    ("names", "lost", "requests", "words"),
    [(("act", "pay"), "run.finished", 1, {}), (("pay", "act"), "tool.finished", 0, {"done_when": lambda session: True})],
    ids=["before the end was stored", "before a sibling had its result"],
)  # fmt: skip
async def test_a_crash_does_not_lift_an_interrupt(names, lost, requests, words):
    recorder = Recorder()
    tools, calls = [act(recorder), act(recorder, "pay")], [call(name) for name in names]
    first = await run_calls(*calls, tools=tools, policy=Stopping())
    events = await first.session.events()
    last = max(place for place, event in enumerate(events) if event.type == lost)
    broken, model = MemoryJournal(), ScriptedModel([text("What now?")])
    await broken.adopt("s", events[:last], state="running")
    async with open_session(broken, id="s") as session:
        result = await Agent(model, tools=tools, policy=Stopping(), **words).resume(session)
        await check_session(session)
        assert model.requests == []
        again = await Agent(model, tools=tools, **words).resume(session) if requests else None

    assert statuses(result) == statuses(first)
    assert (result.reason, result.message, result.stop.details) == (first.reason, first.message, first.stop.details)
    assert (result.reason, recorder.runs, len(model.requests)) == (StopReason.CANCELLED, 0, requests)
    assert again is None or again.completed


@pytest.mark.row("R-DECISION")
async def test_a_person_may_deny_a_call_and_stop_the_run():
    recorder = Recorder()
    agent = Agent(
        ScriptedModel([[call("pay", n=1), call("pay", n=2)], text("never")]),
        tools=[tool_of(recorder, "pay", parameters=N)],
    )
    paused = await agent.run("go")
    first, second = paused.approvals
    await paused.session.answer(first.id, "deny", interrupt=True, reason="stop that")
    await paused.session.answer(second.id, "allow")
    stopped = await agent.resume(paused.session)

    assert (stopped.reason, stopped.steps, recorder.runs) == (StopReason.CANCELLED, 1, 0)
    assert statuses(stopped) == ["denied", "skipped"]
    await check_session(stopped.session)


@pytest.mark.parametrize("words", [{"answer": "allow", "interrupt": True}, {"answer": "deny", "interrupt": "yes"}])
async def test_an_interrupt_goes_with_a_denial_only(words):
    agent = Agent(ScriptedModel([call("pay", n=1)]), tools=[tool_of(Recorder(), "pay", parameters=N)])
    paused = await agent.run("go")

    with pytest.raises(Exception, match="True only with 'deny'"):
        await paused.session.answer(paused.approvals[0].id, **words)


# --- the sandbox
def shell(form: Any) -> Any:
    """A real tool that writes a file by a program."""

    async def run(arguments, ctx):
        command = write_command(arguments)
        done = await (run_process(command.arguments) if ctx.runner is None else ctx.runner.run(command))
        return {"exit_code": done.exit_code, "ran_in": "bare" if ctx.runner is None else ctx.runner.name}

    return tool_of(run, "shell", sandbox=form)


def write_command(arguments) -> Command:
    return Command(arguments=("sh", "-c", f"echo hi > {arguments['path']}"))


@pytest.mark.row("R-SANDBOX")
@pytest.mark.parametrize("form", ["runner", write_command])
async def test_a_sandboxed_call_runs_inside_by_the_form_of_its_tool(form, tmp_path):
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    box = Box(inside)
    agent = Agent(
        ScriptedModel([[call("shell", path=str(inside / "a")), call("shell", path=str(outside / "a"))], text("Done.")]),
        tools=[shell(form)],
        policy=boxed(),
        sandbox=box,
    )
    result = await agent.run("go")

    codes = [one["exit_code"] for one in (content(result, 0), content(result, 1))]
    assert (codes[0], codes[1] != 0) == (0, True)
    assert ((inside / "a").exists(), (outside / "a").exists(), len(box.ran)) == (True, False, 2)
    started = [one for one in await types(result, "tool.started") if isinstance(one, ToolStarted)]
    assert [(one.decision, one.sandbox, one.scope) for one in started] == [("sandbox", "bubblewrap", "project")] * 2
    assert "sandbox" in [one.decision for one in (await result.session.explain()).approved]
    assert result.denials == ()
    await check_session(result.session)


@pytest.mark.row("R-SANDBOX")
@pytest.mark.parametrize(("form", "has_box"), [(None, True), ("runner", False), (write_command, False)])
async def test_without_a_form_or_a_sandbox_such_a_call_never_runs_bare(form, has_box, tmp_path):
    box = Box(tmp_path) if has_box else None
    result = await run_calls(call("shell", path=str(tmp_path / "a")), tools=[shell(form)], policy=boxed(), sandbox=box)

    assert (statuses(result), content(result)["code"]) == (["denied"], "sandbox_unavailable")
    assert not (tmp_path / "a").exists()
    assert [one.tool for one in result.denials] == ["shell"]


@pytest.mark.row("R-SANDBOX")
async def test_consent_to_a_call_does_not_lift_the_sandbox_that_another_rule_demands(tmp_path):
    box = Box(tmp_path)
    child = Agent(
        ScriptedModel([call("shell", path=str(tmp_path / "a")), text("ok")]),
        tools=[shell("runner")],
        policy=ask("shell"),
    )
    lead = Agent(
        ScriptedModel([call("clerk", task="write"), text("Done.")]),
        tools=[child.as_tool("clerk", "Writes.")],
        policy=first_of(allow("clerk"), boxed()),
        sandbox=box,
    )
    paused = await lead.run("go")
    await paused.session.answer(paused.approvals[0].id, "allow")
    done = await lead.resume(paused.session)

    assert (done.completed, len(box.ran)) == (True, 1)


async def test_a_person_may_deny_what_would_run_in_the_sandbox(tmp_path):
    box, model = Box(tmp_path), ScriptedModel([call("shell", path=str(tmp_path / "a")), text("ok")])
    agent = Agent(model, tools=[shell("runner")], policy=Says("ask", consent="sandbox"), sandbox=box)
    paused = await agent.run("go")
    await paused.session.answer(paused.approvals[0].id, "deny")
    done = await agent.resume(paused.session)

    assert (statuses(done), box.ran) == (["denied"], [])


CHILD = """
import asyncio, os, sys
sys.path.insert(0, sys.argv[2])
from test_travelling_decisions import crash_agent
from treadle import open_session

async def main():
    async with open_session(sys.argv[1] + "/agent.db", id="s") as session:
        await crash_agent(sys.argv[1], is_first=True).run("go", session=session)

asyncio.run(main())
"""


def crash_agent(folder: str, *, is_first: bool, seen: list[Any] | None = None) -> Agent:
    """An agent whose keyed tool dies in its first life, decided to run in a sandbox, with other arguments than the model's."""

    async def run(arguments, ctx):
        if seen is not None:
            seen.append((arguments["n"], ctx.decision.kind, ctx.runner is not None, ctx.idempotency_key))
        await ctx.runner.run(Command(arguments=("sh", "-c", f"echo {ctx.idempotency_key} >> {folder}/box/keys")))
        if is_first:
            os.kill(os.getpid(), signal.SIGKILL)
        return "done"

    class Policy:
        def decide(self, call, session):
            if is_first:
                return Decision(kind="sandbox", rule="foreign", arguments={**call.arguments, "n": 5})
            return Decision(
                kind="allow", arguments={**call.arguments, "n": 6}
            )  # it has become laxer, and says another number

    tool = tool_of(run, "pay", parameters=N, effect="keyed", sandbox="runner")
    model = ScriptedModel([call("pay", n=1), text("Done.")] if is_first else [text("Done.")])
    return Agent(model, tools=[tool], policy=Policy(), sandbox=Box(Path(folder) / "box"))


@pytest.mark.row("R-SANDBOX")
async def test_a_killed_call_goes_on_by_the_decision_that_it_started_with(tmp_path):
    (tmp_path / "box").mkdir()
    here = str(Path(__file__).parent)
    paths = os.pathsep.join([here, str(Path(__file__).parent.parent)])
    died = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", CHILD, str(tmp_path), here],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert died.returncode == -signal.SIGKILL, died.stderr
    seen: list[Any] = []
    async with open_session(str(tmp_path / "agent.db"), id="s") as session:
        done = await crash_agent(str(tmp_path), is_first=False, seen=seen).resume(session)
        await check_session(session)

    keys = (tmp_path / "box" / "keys").read_text().split()
    assert [one[:3] for one in seen] == [(5, "sandbox", True)]
    assert keys == [seen[0][3]] * 2
    assert (done.completed, content(done)["arguments"]) == (True, {"n": 5, "note": ""})


# --- early reads and replay
@pytest.mark.row("R-DECISION")
async def test_an_early_read_runs_once_with_what_the_policy_has_put_in():
    recorder, ended = Recorder("seen"), asyncio.Event()
    turn = Turn(calls=(call("look", n=9), call("act", n=1)), gate="rest", hold_after_call=0)
    async with MockProvider([turn, text("Done.")]) as provider:

        def watch(event):
            if event.type == "tool.finished" and not ended.is_set():
                ended.set()
                provider.gate("rest").open()  # the stream continues only once the read has its result

        result = await Agent(
            resolve_model("openai-chat:mock", base_url=provider.base_url),
            tools=[read(recorder, parameters=N), act(Recorder(), parameters=N)],
            policy=OnlyLooks(),
            subscribers=[watch],
        ).run("go")

    started = [one for one in await types(result, "tool.started") if isinstance(one, ToolStarted)]
    assert [(one.tool, one.early, one.decision, one.rule) for one in started] == [
        ("look", True, "allow", "dialog"),
        ("act", False, "allow", "tool act permission"),
    ]
    assert [n for word, n in recorder.log if word == "begin"] == [3]
    assert content(result)["arguments"] == {"n": 3, "note": ""}
    await check_session(result.session)


class OnlyLooks:
    def decide(self, call, session):
        if call.name != "look":
            return None
        return Decision(kind="allow", rule="dialog", arguments={**call.arguments, "n": 3})


@pytest.mark.row("R-DECISION")
@pytest.mark.parametrize("effect", ["read", "unsafe"])
async def test_a_recorded_run_with_changed_arguments_is_replayed_and_without_the_change_it_is_refused(tmp_path, effect):
    path = tmp_path / "trip.jsonl"
    recorder = Recorder("seen")
    tools = [tool_of(recorder, "pay", effect=effect, parameters=N)]
    model = ScriptedModel([call("pay", n=9), text("Paid 3.")])

    recorded = await Agent(RecordingModel(model, path), tools=tools, policy=Changing(to(3))).run("go")
    replayed = await Agent(ReplayModel(path), tools=tools, policy=Changing(to(3))).run("go")
    other = await Agent(ReplayModel(path), tools=tools, policy=Changing(to(4))).run("go")

    assert (replayed.text, content(replayed)) == (recorded.text, content(recorded))
    assert content(replayed)["arguments"] == {"n": 3, "note": ""}
    assert [n for word, n in recorder.log if word == "begin"] == [3, 3, 4]
    assert other.reason == "model_error"  # the model was never shown what 4 came to
    await check_session(replayed.session)


class Bare:
    """A sandbox that only what is decided so may run in."""

    name = "bare"

    def __init__(self, kind: str) -> None:
        self.kind = kind

    async def run(self, command: Command) -> ProcessResult:
        assert self.kind == "sandbox"
        return ProcessResult(exit_code=0, stdout="", stderr="")


@pytest.mark.parametrize(("kind", "named"), [("sandbox", "bare"), ("allow", ""), ("ask", "")])
async def test_a_call_names_the_sandbox_that_it_runs_in_and_outside_of_it_none(kind, named):
    tools = [act(Recorder(), sandbox=lambda arguments: Command(arguments=("true",)))]
    agent = Agent(ScriptedModel([call("act"), text("Done.")]), tools=tools, policy=Says(kind), sandbox=Bare(kind))
    result = await agent.run("go")
    if kind == "ask":
        await result.session.answer(result.approvals[0].id, "allow")
        result = await agent.resume(result.session)

    (started,) = await types(result, "tool.started")
    assert (started.sandbox, statuses(result)) == (named, ["ok"])
