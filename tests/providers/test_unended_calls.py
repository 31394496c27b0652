"""Calls whose end the server never sends, in the dialects that send one, or whose start it sends again: no arguments are lost."""

import json
from collections.abc import Callable

import pytest
from test_bedrock import events
from wire import Anthropics, Till, outcome, sse

from treadle import Agent, RunResult, StopReason, resolve_model
from treadle.testing import MockProvider, Turn
from treadle.tools import JsonObject

ONE = '{"sum": 1}'


def anthropic(arguments: str, *, is_ended: bool, begins_again: bool = False) -> bytes:
    begin, *pieces, end = Anthropics.call(0, "a", *([arguments] if arguments else []))
    again, ending = [begin] * begins_again, [end] * is_ended
    return sse(
        Anthropics.start, begin, *pieces, *again, *ending, Anthropics.reason("tool_use"), Anthropics.stop
    ).encode()


def bedrock(arguments: str, *, is_ended: bool, begins_again: bool = False) -> bytes:
    begin: JsonObject = {"contentBlockIndex": 0, "start": {"toolUse": {"toolUseId": "a", "name": "pay"}}}
    piece: JsonObject = {"contentBlockIndex": 0, "delta": {"toolUse": {"input": arguments}}}
    return events(
        ("messageStart", {"role": "assistant"}),
        ("contentBlockStart", begin),
        *([("contentBlockDelta", piece)] if arguments else []),
        *([("contentBlockStart", begin)] * begins_again),
        *([("contentBlockStop", {"contentBlockIndex": 0})] if is_ended else []),
        ("messageStop", {"stopReason": "tool_use"}),
    )


def cohere(arguments: str, *, is_ended: bool, begins_again: bool = False) -> bytes:
    def event(kind: str, **function: str) -> JsonObject:
        call = {"id": "a", "type": "function", "function": function}
        return {"type": kind, "index": 0, "delta": {"message": {"tool_calls": call}}}

    return sse(
        {"type": "message-start", "delta": {"message": {"role": "assistant"}}},
        event("tool-call-start", name="pay", arguments=""),
        *([event("tool-call-delta", arguments=arguments)] if arguments else []),
        *([event("tool-call-start", name="pay", arguments="")] * begins_again),
        *([{"type": "tool-call-end", "index": 0}] if is_ended else []),
        {"type": "message-end", "delta": {"finish_reason": "TOOL_CALL", "usage": {}}},
    ).encode()


DIALECTS: dict[str, Callable[..., bytes]] = {"anthropic": anthropic, "bedrock": bedrock, "cohere": cohere}


async def ran(dialect: str, body: bytes, till: Till) -> RunResult:
    async with MockProvider([Turn(body=body), "Done."]) as provider:
        model = resolve_model(f"{dialect}:m", base_url=provider.base_url, api_key="k")
        return await Agent(model, tools=till.tools).run("go")


@pytest.mark.row("N02", "PF22")
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_call_without_arguments_whose_end_is_missing_is_not_executed(dialect: str) -> None:
    till = Till()

    result = await ran(dialect, DIALECTS[dialect]("", is_ended=False), till)

    assert outcome(result) == (True, ["skipped"])
    assert till.paid == []


@pytest.mark.row("N02", "PF22")
@pytest.mark.parametrize(("arguments", "is_ended"), [("", True), (ONE, False)], ids=["none", "whole"])
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_call_that_ended_or_has_whole_arguments_is_executed(
    dialect: str, arguments: str, is_ended: bool
) -> None:
    till = Till()

    result = await ran(dialect, DIALECTS[dialect](arguments, is_ended=is_ended), till)

    assert outcome(result) == (True, ["ok"])
    assert till.paid == [json.loads(arguments or "{}")]


@pytest.mark.row("N02", "PF21")
@pytest.mark.parametrize("arguments", [ONE, '{"sum"'], ids=["whole", "half"])
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_call_that_begins_again_and_ends_at_once_does_not_lose_its_arguments(
    dialect: str, arguments: str
) -> None:
    till = Till()

    result = await ran(dialect, DIALECTS[dialect](arguments, is_ended=True, begins_again=True), till)

    assert result.reason is StopReason.APPROVAL_REQUIRED
    assert till.paid == ([{"sum": 1}] if arguments == ONE else [])
