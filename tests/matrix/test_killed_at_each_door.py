"""A run that ends as by a kill in a call, at each dialect and each cloud's door: another one continues, and the strict server takes its history."""

from collections.abc import Sequence

import pytest

from treadle import Agent, Budget, JournalError, open_session, resolve_model, tool
from treadle.events import AnyEvent
from treadle.journals.memory import MemoryJournal
from treadle.testing import MockProvider, Turn, call

NAMES = (
    *("openai-chat:m", "openai:m", "anthropic:m", "gemini:m", "cohere:m"),
    *("azure:m", "azure-responses:m", "bedrock:us.amazon.nova-lite-v1:0", "bedrock-claude:us.anthropic.claude-sonnet-4-5-v1:0"),
    *("vertex:gemini-2.5-pro", "vertex:claude-sonnet-4-5@20250929"),
)  # fmt: skip


class Dying(MemoryJournal):
    """A journal whose process is killed before the second result of a call is stored."""

    results_left = 1

    async def append(self, session_id: str, events: Sequence[AnyEvent], *, state: str, durable: bool) -> None:
        if any(event.type == "tool.finished" for event in events):
            self.results_left -= 1
            if self.results_left == -1:
                raise JournalError("gone")
        await super().append(session_id, events, state=state, durable=durable)


@pytest.mark.row("P-CONVERSE", "P-INVOKE", "P-VERTEX", "P-AZURE", "P-COHERE")
@pytest.mark.parametrize("form", ["stream", "whole"])
@pytest.mark.parametrize("name", NAMES)
async def test_another_run_goes_on_with_the_results_that_were_recorded(name, form):
    looked, journal = [], Dying()

    @tool(effect="keyed", permission="allow")
    async def look(key: str) -> str:
        """Look a key up."""
        looked.append(key)
        return f"value of {key}"

    def agent() -> Agent:
        model = resolve_model(name, base_url=provider.base_url, api_key="k", stream=form == "stream")
        return Agent(model, tools=[look], budget=Budget(max_parallel_tool_calls=1))

    asked = Turn(thinking="Hm.", text="I look.", calls=(call("look", key="a"), call("look", key="b")))
    async with MockProvider([asked, "done"]) as provider:
        async with open_session(journal, id="s") as session:
            with pytest.raises(JournalError, match="gone"):
                await agent().run("go", session=session)
        async with open_session(journal, id="s") as session:
            result = await agent().resume(session)

    assert (result.text, result.completed) == ("done", True)
    assert (provider.refusals, len(provider.requests)) == ([], 2)
    assert looked == ["a", "b", "b"]  # under the same key
    told = provider.requests[1].raw.decode()
    assert all(f"value of {key}" in told for key in "ab")
    if name.startswith(("anthropic", "bedrock", "cohere", "vertex:claude")):  # what these think goes back to them
        assert "Hm." in told
