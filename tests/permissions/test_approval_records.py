"""What a person who is asked about a call is shown, and how far the answer reaches."""

import asyncio
from typing import Any

import pytest

from pipeline_tools import Recorder, act, tool_of
from treadle import (
    Agent,
    Approval,
    ConfigurationError,
    Decision,
    Session,
    Tool,
    allow,
    ask,
    file_tools,
    open_session,
    resolve_model,
    shell_tool,
    tool,
)
from treadle.events import ApprovalAnswered, ApprovalRequested, RulesGranted
from treadle.journals.memory import MemoryJournal
from treadle.testing import FakeClock, MockProvider, ScriptedModel, Turn, call, text
from treadle.tools import JsonObject, Review
from treadle.toolsets import RequireApproval, ToolList, writing_tools


async def asked_about(*calls, tools, session=None, policy=None) -> tuple[Agent, Session, Approval]:
    agent = Agent(ScriptedModel([*calls, *[text("Done.")] * 3]), tools=tools, policy=policy)
    result = await agent.run("Go", session=session)
    assert result.reason == "approval_required", result.text
    return agent, result.session, result.approvals[0]


@pytest.mark.row("P07")
async def test_a_request_says_what_would_be_done_to_what_and_how_it_is_undone(tmp_path):
    (tmp_path / "notes.txt").write_text("one\ntwo\nthree\n")
    tools = [*file_tools(tmp_path), *writing_tools(tmp_path)]

    _, session, asked = await asked_about(call("edit", path="notes.txt", old_text="two", new_text="zwei"), tools=tools)

    assert (asked.approval_type, asked.action, asked.target) == ("tool_call", "Edit a file", "notes.txt")
    assert (asked.risk, asked.scope) == ("write_local", "call")
    assert asked.preview.kind == "diff"
    assert asked.preview.is_whole
    assert asked.preview.text.splitlines() == [
        "--- a/notes.txt",
        "+++ b/notes.txt",
        "@@ -1,3 +1,3 @@",
        " one",
        "-two",
        "+zwei",
        " three",
    ]
    assert asked.expected_result
    assert asked.rollback == "Write the old content again: the diff holds it."
    (event,) = [one for one in await session.events() if isinstance(one, ApprovalRequested)]
    assert event.preview == asked.preview


@pytest.mark.row("P07")
async def test_a_line_of_shell_is_shown_as_the_commands_that_it_starts(tmp_path):
    _, _, asked = await asked_about(
        call("shell", command="sudo rm 'a b' && make > out.txt"), tools=[shell_tool(tmp_path)]
    )

    assert asked.action == "Run a command"
    assert asked.target == "sudo, make"
    assert asked.risk == "process_execution"
    assert asked.preview.kind == "command"
    assert asked.preview.text == "sudo rm 'a b' && make > out.txt"
    assert asked.reason == "No rule allows this command yet."
    assert asked.rules == ("shell(= sudo rm 'a b' && make > out.txt)",)


async def test_what_a_tool_does_not_say_is_filled_in_and_what_it_raises_is_no_answer():
    def broken(arguments, facts):
        raise OSError("no")

    @tool(review=broken, risk="financial")
    async def pay(amount: int) -> str:
        """Pay."""
        return "paid"

    _, _, asked = await asked_about(call("pay", amount=4), tools=[pay])

    assert (asked.action, asked.risk) == ("Call pay", "financial")
    assert asked.preview.kind == "arguments"
    assert asked.preview.text == '{\n  "amount": 4\n}'
    assert asked.rollback == "Unknown: the tool does not say how to undo it."


HIDING = "a\x1b[2Jb\u202ec\u200bd\u3164e\ufe0ff\U000e0041g\rh\u2028i\x9bj\x00k"


@pytest.mark.row("AT-APPROVAL-SHOWN")
async def test_nothing_in_a_request_hides_or_repaints(tmp_path):
    @tool(
        review=lambda arguments, facts: Review(
            action=HIDING, target=HIDING + "\nx", rollback=HIDING, expected_result=HIDING
        )
    )
    async def act(word: str) -> str:
        """Act."""
        return "done"

    _, _, asked = await asked_about(call("act", word=HIDING), tools=[act])
    _, _, written = await asked_about(call("write", path="x.txt", content=HIDING), tools=writing_tools(tmp_path))

    for one in (asked.action, asked.target, asked.rollback, asked.expected_result):
        assert one.isprintable()
    for shown in (asked.preview.text, written.preview.text, asked.action, asked.target):
        assert not set(shown) & set(HIDING) - set("abcdefghijk[2J\n "), ascii(shown)
    assert asked.target.isprintable()


@pytest.mark.row("P14", "AT-APPROVAL-BOUND")
async def test_an_answer_for_the_session_holds_for_just_this_call(tmp_path):
    ran = tmp_path / "seen"
    tools = writing_tools(tmp_path)
    agent, session, asked = await asked_about(
        call("write", path="seen", content="1"),
        call("write", path="seen", content=""),
        call("write", path="other", content="1"),
        tools=tools,
    )
    assert asked.rules == ("write(path=seen)",)

    await session.answer(asked.id, "allow", scope="session", by="ada")
    result = await agent.resume(session)

    assert ran.exists()
    assert result.reason == "approval_required"  # the third call is of another file
    assert result.approvals[0].target == "other"
    events = await session.events()
    (granted,) = [one for one in events if isinstance(one, RulesGranted)]
    assert (granted.rules, granted.scope, granted.by) == (("write(path=seen)",), "session", "ada")
    (answered,) = [one for one in events if isinstance(one, ApprovalAnswered)]
    assert (answered.scope, answered.expires_at) == ("session", None)


@pytest.mark.row("P14")
@pytest.mark.parametrize(
    "command",
    [
        "bash -c 'ls'", "sudo make", "python -c 1", "env -i make", "= xargs rm", "= echo $HOME", "= ls > x", "= eval ls", "docker run x",
    ],
)  # fmt: skip
async def test_the_exact_words_alone_are_offered_for_shells_wrappers_and_code_in_the_line(tmp_path, command):
    line = command.removeprefix("= ")
    _, _, asked = await asked_about(call("shell", command=line), tools=[shell_tool(tmp_path)])

    assert asked.rules == (f"shell({command})".replace("-c 'ls'", "-c ls"),)


async def test_no_rule_is_offered_where_a_rule_asks(tmp_path):
    _, _, asked = await asked_about(
        call("write", path="x", content="1"), tools=writing_tools(tmp_path), policy=ask("write")
    )

    assert asked.rules == ()


async def test_a_rule_is_offered_for_a_plain_command_and_holds(tmp_path):
    agent, session, asked = await asked_about(
        call("shell", command="touch a"), call("shell", command="touch a; ./b"), tools=[shell_tool(tmp_path)]
    )
    assert asked.rules == ("shell(touch:*)",)

    await session.answer(asked.id, "allow", scope="rule")
    result = await agent.resume(session)

    assert (tmp_path / "a").exists()
    assert result.approvals[0].arguments["command"] == "touch a; ./b"


async def test_a_denial_and_an_edit_are_for_one_call(tmp_path):
    _, session, asked = await asked_about(call("write", path="x", content="1"), tools=writing_tools(tmp_path))

    for answer, arguments in (("deny", None), ("allow", {"path": "y", "content": "1"})):
        with pytest.raises(ConfigurationError, match="requires 'allow'"):
            await session.answer(asked.id, answer, arguments=arguments, scope="session")
    with pytest.raises(ConfigurationError, match="'call', 'session' or 'rule'"):
        await session.answer(asked.id, "allow", scope="ever")


async def test_a_permission_for_one_session_is_not_one_for_its_fork(tmp_path):
    tools = writing_tools(tmp_path)
    journal = tmp_path / "j.db"
    async with open_session(journal, id="one") as session:
        agent, _, asked = await asked_about(call("write", path="x", content="1"), tools=tools, session=session)
        await session.answer(asked.id, "allow", scope="session")
        await agent.resume(session)
        assert session.state.granted
        fork = await session.fork(id="two")
        assert fork.state.granted == ()


async def test_a_diff_of_large_files_takes_bounded_work(tmp_path):
    (tmp_path / "big.txt").write_text("".join(f"{n * 7919 % 100_003}\n" for n in range(50_000)))
    new = "".join(f"{n * 104_729 % 100_003}\n" for n in range(50_000))

    async with asyncio.timeout(30):
        _, _, asked = await asked_about(call("write", path="big.txt", content=new), tools=writing_tools(tmp_path))

    assert asked.preview.kind == "diff"
    assert not asked.preview.is_whole
    assert asked.arguments["content"] == new


N = {"type": "object", "properties": {"n": {"type": "integer", "maximum": 12}}, "required": ["n"]}


# --- consent
class Desk:
    """A session with one call that waits for consent, and what becomes of it under another tool."""

    def __init__(self) -> None:
        self.journal, self.clock, self.recorder = MemoryJournal(), FakeClock(), Recorder()

    def tool(self, **words: Any) -> Tool:
        return tool_of(self.recorder, "pay", **{"parameters": N, "effect": "unsafe", **words})

    async def ask(self, tool: Tool) -> Any:
        async with open_session(self.journal, id="s", clock=self.clock) as session:
            model = ScriptedModel([call("pay", n=1)])
            return await Agent(model, tools=[tool], policy=ask("pay")).run("go", session=session)

    async def answer(self, approval_id: str) -> None:
        async with open_session(self.journal, id="s", clock=self.clock) as session:
            await session.answer(approval_id, "allow")

    async def go_on(self, tool: Tool) -> Any:
        async with open_session(self.journal, id="s", clock=self.clock) as session:
            return await Agent(ScriptedModel([text("Paid.")]), tools=[tool], policy=ask("pay")).resume(session)


@pytest.mark.row("P06")
@pytest.mark.parametrize(
    "change",
    [
        {"effect": "idempotent"},
        {"output_schema": {"type": "string"}},
        {"parameters": {**N, "properties": {"n": {"type": "integer", "maximum": 99}}}},
    ],
    ids=["effect", "output_schema", "parameters"],
)
async def test_consent_to_a_tool_that_has_changed_since_is_asked_again(change):
    desk = Desk()
    paused = await desk.ask(desk.tool())
    await desk.answer(paused.approvals[0].id)

    again = await desk.go_on(desk.tool(**change))

    assert (again.reason, desk.recorder.runs) == ("approval_required", 0)
    assert again.approvals[0].id != paused.approvals[0].id
    assert again.approvals[0].digest != paused.approvals[0].digest


@pytest.mark.row("P05", "P06")
@pytest.mark.parametrize("waits", [61.0, 6.9 * 86_400.0], ids=["1m", "6d"])
async def test_a_question_waits_for_days(waits):
    desk = Desk()
    paused = await desk.ask(desk.tool())
    desk.clock.advance(waits)
    await desk.answer(paused.approvals[0].id)

    done = await desk.go_on(desk.tool())

    assert (desk.recorder.runs, done.completed) == (1, True)


@tool(effect="unsafe")
async def pay(amount: int) -> str:
    """Pay an invoice."""
    raise ConnectionError("the bank hung up")


WHY_ASKED = {
    "the default asks": {"tools": [pay]},
    "a rule asks": {"tools": [pay], "policy": ask("pay")},
    "the tool asks": {"tools": [RequireApproval(ToolList([pay], name="bank"))], "policy": allow("pay")},
}


@pytest.mark.parametrize("why", WHY_ASKED)
async def test_a_question_about_a_call_that_equals_one_in_doubt_says_so(why):
    agent = Agent(ScriptedModel([call("pay", amount=40), call("pay", amount=40), text("Done.")]), **WHY_ASKED[why])
    async with open_session("memory:") as session:
        (first,) = (await agent.run("Pay", session=session)).approvals
        await session.answer(first.id, "allow")
        (second,) = (await agent.resume(session)).approvals

        assert (first.approval_type, second.approval_type) == ("tool_call", "in_doubt")
        assert "whose outcome is unknown" in second.reason
        await session.answer(second.id, "deny")
        result = await agent.resume(session)

    assert [one.status for one in result.tool_calls] == ["outcome_unknown", "denied"]


async def test_a_question_about_a_call_that_may_be_reported_twice_says_so():
    twice = Turn(calls=(call("pay", id="same", amount=40), call("pay", id="same", amount=41)))
    async with MockProvider([twice, text("Done.")]) as provider:
        agent = Agent(resolve_model("openai-chat:any", base_url=provider.base_url), tools=[pay])
        async with open_session("memory:") as session:
            asked = (await agent.run("Pay", session=session)).approvals
    assert [one.approval_type for one in asked] == ["tool_call", "possible_repetition"]


NUMBER: JsonObject = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


async def test_a_second_question_keeps_the_words_of_the_policy_for_the_model():
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
