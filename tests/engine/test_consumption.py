"""Consumption: what is estimated where a server counts nothing."""

import base64

import pytest

from treadle import Agent, Message, ToolOutput, resolve_model, tool
from treadle.messages import Media, Text
from treadle.testing import MockProvider, Turn, call

PICTURE = Media(media_type="image/png", base64=base64.b64encode(b"\x89PNG" * 500_000).decode())
NOTES = Media(media_type="text/plain", base64=base64.b64encode(b"words" * 4_000).decode())


@tool(effect="read")
async def camera() -> ToolOutput:
    """Take a picture."""
    return ToolOutput(data="taken", media=(PICTURE,))


@pytest.mark.row("PF20")
async def test_a_picture_of_megabytes_is_estimated_as_a_picture_and_a_text_by_its_length() -> None:
    task = Message(role="user", parts=(Text("What do you see?"), PICTURE, NOTES))
    async with MockProvider([Turn(calls=(call("camera"),), usage=None), Turn(text="Nothing.", usage=None)]) as mock:
        result = await Agent(resolve_model("openai-chat:m", base_url=mock.base_url), tools=[camera]).run(task)

    assert result.usage.estimated
    assert 15_000 < result.usage.input_tokens < 25_000  # two requests: 3 pictures, and the notes twice
