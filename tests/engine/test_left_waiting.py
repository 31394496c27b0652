"""A call that waits when its run ends for another reason: it is answered as one that had started, and never as undone."""

import msgspec

from invariants import check_session
from loop_tools import ANYTHING
from treadle import Agent, Tool, ToolContext, open_session
from treadle.journals.memory import MemoryJournal
from treadle.state import Suspended
from treadle.testing import ScriptedModel, call, text
from treadle.tools import JsonObject


async def test_a_call_that_still_waits_when_its_sibling_ends_the_run_is_told_as_given_up() -> None:
    letters: list[str] = []

    async def read_letter(arguments: JsonObject, ctx: ToolContext) -> str:
        if not letters:
            raise Suspended("a letter")
        return letters[0]

    async def wait_for_bank(arguments: JsonObject, ctx: ToolContext) -> str:
        raise Suspended("the bank")

    words = {"description": "Wait.", "parameters": ANYTHING, "effect": "unsafe", "permission": "allow"}
    tools = [
        Tool(name="letter", run=read_letter, ends_run=True, **words),  # type: ignore[arg-type]
        Tool(name="bank", run=wait_for_bank, **words),  # type: ignore[arg-type]
    ]
    journal = MemoryJournal()
    async with open_session(journal, id="s") as session:
        model = ScriptedModel([[call("letter", id="a"), call("bank", id="b")]])
        paused = await Agent(model, tools=tools).run("go", session=session)
        assert paused.reason == "input_required"
        letters.append("yes")
        done = await Agent(ScriptedModel([text("never")]), tools=tools).resume(session)
        await check_session(session)

    assert (done.reason, done.output) == ("done_condition_satisfied", "yes")
    [told] = [result for message in done.messages for result in message.results if result.call_id == "b"]
    said = msgspec.json.decode(told.content)
    assert (said["type"], said["code"]) == ("cancelled", "suspended_call_ended")
    assert "waited for the bank" in said["message"]
