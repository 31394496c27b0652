"""Calls whose end the server never sends, in the dialects that send one, or whose start it sends again: no arguments are lost."""

import json

import pytest
from wire import Till, events_of, outcome, said, stream_of

from treadle import Agent, RunResult, StopReason, resolve_model
from treadle.testing import MockProvider, Turn, call

ONE = '{"sum": 1}'


DIALECTS = {
    "anthropic": ("content_block_start", "content_block_stop"),
    "bedrock": ("contentBlockStart", "contentBlockStop"),
    "cohere": ("tool-call-start", "tool-call-end"),
}
"""How each begins and ends a call."""


def stream(name: str, arguments: str, *, is_ended: bool, begins_again: bool = False) -> bytes:
    start, end = DIALECTS[name]
    turn = Turn(calls=(call("pay", id="a", arguments=arguments or "{}"),), pieces=1)
    events = events_of(name, said(name, turn))
    kinds = [kind or payload["type"] for kind, payload in events]
    again = [events[kinds.index(start)]] if begins_again else []
    at = kinds.index(end)
    return stream_of(name, [*events[:at], *again, *events[at if is_ended else at + 1 :]])


async def ran(dialect: str, body: bytes, till: Till) -> RunResult:
    async with MockProvider([Turn(body=body), "Done."]) as provider:
        model = resolve_model(f"{dialect}:m", base_url=provider.base_url, api_key="k")
        return await Agent(model, tools=till.tools).run("go")


@pytest.mark.row("N02", "PF22")
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_call_without_arguments_whose_end_is_missing_is_not_executed(dialect: str) -> None:
    till = Till()

    result = await ran(dialect, stream(dialect, "", is_ended=False), till)

    assert outcome(result) == (True, ["skipped"])
    assert till.paid == []


@pytest.mark.row("N02", "PF22")
@pytest.mark.parametrize(("arguments", "is_ended"), [("", True), (ONE, False)], ids=["none", "whole"])
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_call_that_ended_or_has_whole_arguments_is_executed(
    dialect: str, arguments: str, is_ended: bool
) -> None:
    till = Till()

    result = await ran(dialect, stream(dialect, arguments, is_ended=is_ended), till)

    assert outcome(result) == (True, ["ok"])
    assert till.paid == [json.loads(arguments or "{}")]


@pytest.mark.row("N02", "PF21")
@pytest.mark.parametrize("arguments", [ONE, '{"sum"'], ids=["whole", "half"])
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_call_that_begins_again_and_ends_at_once_does_not_lose_its_arguments(
    dialect: str, arguments: str
) -> None:
    till = Till()

    result = await ran(dialect, stream(dialect, arguments, is_ended=True, begins_again=True), till)

    assert result.reason is StopReason.APPROVAL_REQUIRED
    assert till.paid == ([{"sum": 1}] if arguments == ONE else [])
