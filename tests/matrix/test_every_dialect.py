"""What every dialect must do alike, form by form: hostile bodies, cut calls, lost streams, long prompts, figures, foreign histories."""

import asyncio
from collections.abc import AsyncIterator
from itertools import permutations
from typing import Any

import pytest

from treadle import Agent, Tool, ToolContext, open_session, resolve_model
from treadle.errors import ConfigurationError, ModelResponseInvalid
from treadle.events import ModelDelta, ModelDiscarded, ModelFailed, ModelFinished, ToolStarted
from treadle.messages import Finish, Message, Text, ToolCall, Usage, user_message
from treadle.ports import CallReady, Model, ModelEnd, ModelPart, ModelRequest
from treadle.testing import MockProvider, ScriptedModel, Turn, call
from treadle.tools import JsonObject

DIALECTS = ("openai-chat", "openai", "anthropic", "gemini")
FORMS = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
every_dialect = pytest.mark.parametrize("dialect", DIALECTS)
ASK = ModelRequest(messages=(user_message("go"),))
HUGE = 80 * 1024 * 1024
"""More than one answer may hold, unpacked."""


def model_of(dialect: str, mock: MockProvider, *, stream: bool = True, **options: Any) -> Model:
    return resolve_model(f"{dialect}:m", base_url=mock.base_url, api_key="k", stream=stream, options=options)


def look(*, ran: list[str], effect: str = "read") -> Tool:
    async def run(arguments: JsonObject, ctx: ToolContext) -> str:
        ran.append(arguments["key"])
        return f"value of {arguments['key']}"

    parameters = {"type": "object", "properties": {"key": {"type": "string"}}, "required": ["key"]}
    return Tool(
        name="look", description="Look a key up.", parameters=parameters, effect=effect, permission="allow", run=run
    )


async def everything(model: Model) -> list[ModelPart]:
    return [part async for part in model.stream(ASK)]


# --- hostile bodies


@pytest.mark.row("PF16")
@every_dialect
@FORMS
async def test_an_answer_that_never_ends_is_cut_at_the_limit(dialect: str, stream: bool) -> None:
    async with MockProvider([Turn(text="hello", cut="before-terminal", cut_by="endless")]) as mock, asyncio.timeout(60):
        with pytest.raises(ModelResponseInvalid, match="larger than"):
            await everything(model_of(dialect, mock, stream=stream))


@pytest.mark.row("PF16")
@every_dialect
@FORMS
async def test_an_answer_that_unpacks_to_a_huge_one_is_cut_at_the_limit(dialect: str, stream: bool) -> None:
    turn = Turn(body=b": hello\n\n" if stream else b'{"', bomb_bytes=HUGE)
    async with MockProvider([turn]) as mock, asyncio.timeout(60):
        with pytest.raises(ModelResponseInvalid, match="larger than"):
            await everything(model_of(dialect, mock, stream=stream))
