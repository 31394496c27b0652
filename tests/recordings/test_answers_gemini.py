"""Recorded answers and quirks of Gemini, beside what an independent reader makes of them."""

import json
from typing import Any

import pytest
from _oracle_gemini import HOSTS, ORACLE, model_of, parts_of, pieces_of, streamed
from _replay import Recording, heard, recorded

from treadle import Agent, Tool, resolve_model
from treadle.errors import ModelRejected
from treadle.messages import Finish, Text, Thinking, ToolCall
from treadle.ports import CallReady, ModelEnd, TextDelta, ThinkingDelta
from treadle.testing import MockProvider, Turn

# --- the parser ------------------------------------------------------------------------------------------------------

EVERY_ANSWER = [*recorded("loops", "gemini"), *recorded("quirks", "gemini")]


@pytest.mark.row("W05", "W06", "W09")
@pytest.mark.parametrize("form", [str, streamed])
@pytest.mark.parametrize("recording", EVERY_ANSWER, ids=str)
async def test_every_recorded_answer_is_read_as_another_reader_reads_it(recording: Recording, form: Any):
    answers = [one for one in recording.of(*HOSTS) if one.status == 200]
    for one in answers:
        parts = await heard(model_of(one), form(one.body), stream=True)
        end = parts[-1]
        assert isinstance(end, ModelEnd)
        compare(end, one.body)
        assert "".join(part.text for part in parts if isinstance(part, TextDelta)) == ORACLE.text(one.body)
        thoughts = [part.text for part in end.parts if isinstance(part, Thinking)]
        assert "".join(part.text for part in parts if isinstance(part, ThinkingDelta)) == "".join(thoughts)
        calls = [part for part in end.parts if isinstance(part, ToolCall)]
        assert [part.call for part in parts if isinstance(part, CallReady)] == calls


def compare(end: ModelEnd, body: str) -> None:
    whole = json.loads(body)
    counts = whole["usageMetadata"]
    thoughts = counts.get("thoughtsTokenCount", 0)
    calls = [part for part in end.parts if isinstance(part, ToolCall)]
    signatures = [part["thoughtSignature"] for part in parts_of(body) if "thoughtSignature" in part]
    assert "".join(part.text for part in end.parts if isinstance(part, Text)) == ORACLE.text(body)
    assert [(one.name, json.loads(one.arguments)) for one in calls] == [
        (one.name, one.arguments) for one in ORACLE.calls(body)
    ]
    assert [
        part.signature for part in end.parts if isinstance(part, Text | Thinking | ToolCall) and part.signature
    ] == signatures
    assert end.usage is not None
    assert end.usage.input_tokens == counts["promptTokenCount"]
    assert end.usage.output_tokens == counts.get("candidatesTokenCount", 0) + thoughts
    assert end.usage.reasoning_tokens == thoughts


# --- what goes back --------------------------------------------------------------------------------------------------


def compare_echoes(request: Any, bodies: list[str], *, is_streamed: bool) -> None:
    """Assert that each answer went back as it came: words, calls and signatures, in their order."""
    echoed = [content["parts"] for content in request["contents"] if content["role"] == "model"]
    assert len(echoed) == len(bodies)
    for ours, body in zip(echoed, bodies, strict=True):
        theirs = parts_of(streamed_whole(body)) if is_streamed else parts_of(body)
        assert [without_id(part) for part in ours] == [without_id(part) for part in theirs]


def streamed_whole(body: str) -> str:
    """Return an answer with its signed words in two parts, as a stream leaves them: the signature stays on the last piece."""
    whole = json.loads(body)
    parts: list[Any] = []
    for part in whole["candidates"][0]["content"].get("parts", ()):
        pieces = pieces_of(part)
        is_cut = len(pieces) > 1 and "thoughtSignature" in part
        first = [{**pieces[0], "text": pieces[0]["text"] + pieces[1]["text"]}] if is_cut else []
        parts += [*first, pieces[-1]] if is_cut else [part]
    whole["candidates"][0]["content"]["parts"] = parts
    return json.dumps(whole)


def without_id(part: Any) -> Any:
    if "functionCall" not in part:
        return part
    return {**part, "functionCall": {key: value for key, value in part["functionCall"].items() if key != "id"}}


# --- the quirks ------------------------------------------------------------------------------------------------------

QUIRKS = {
    "test_google_model_max_tokens": (Finish.LENGTH, "The capital of France is"),
    "test_google_model_max_tokens_thinking_model_empty_response": (Finish.LENGTH, ""),
    "test_google_model_safety_settings": (Finish.REFUSED, ""),
    "test_google_model_thinking_part": (Finish.STOP, None),
    "test_model_name_suggestion_google": (ModelRejected, "is not found for API version"),
    "test_multimodal_tool_return_matrix_direct_binary_audio_google_gemini3": (Finish.CALLS, ""),
    "test_multimodal_tool_return_matrix_tool_return_content_uploaded_file_video_google_vertex": (Finish.CALLS, ""),
    "test_tool_choice_matrix_list_single_google": (Finish.CALLS, ""),
}
"""What the first answer of each file comes to, and its words."""


@pytest.mark.row("W05")
@pytest.mark.parametrize("recording", recorded("quirks", "gemini"), ids=str)
async def test_every_quirk_comes_to_what_the_table_says(recording: Recording):
    first = recording.exchanges[0]
    expected, words = QUIRKS[recording.name]
    asking = heard(model_of(first), first.body, status=first.status, stream=False)

    if expected is ModelRejected:
        with pytest.raises(ModelRejected, match=words) as caught:
            await asking
        assert (caught.value.status, caught.value.may_retry) == (404, False)
        return
    end = (await asking)[-1]
    assert end.finish is expected
    assert words is None or "".join(part.text for part in end.parts if isinstance(part, Text)) == words


@pytest.mark.row("W05")
@pytest.mark.parametrize("is_streamed", [False, True], ids=["as-recorded", "synthetic-stream"])
@pytest.mark.parametrize("recording", recorded("quirks", "gemini", "*video_google_vertex.json"), ids=str)
async def test_a_call_of_an_undeclared_tool_and_one_with_a_made_up_argument_are_answered_and_the_loop_goes_on(
    recording: Recording, is_streamed: bool
):
    bodies = [streamed(one.body) if is_streamed else one.body for one in recording.exchanges]
    runs: list[Any] = []
    get_file = Tool(
        name="get_file",
        description="",
        parameters={"type": "object", "properties": {}, "additionalProperties": False},
        effect="read",
        run=lambda arguments, ctx: runs.append(arguments) or "File attached",
    )
    async with MockProvider([Turn(body=body.encode()) for body in bodies]) as provider:
        model = resolve_model(model_of(recording.exchanges[0]), base_url=provider.base_url, stream=is_streamed)
        result = await Agent(model, tools=[get_file]).run("Use the get_file tool now.")

    assert result.text == ORACLE.text(recording.exchanges[-1].body)
    assert runs == [{}]
    assert [one["status"] for one in result.report()["tool_calls"]] == ["unknown_tool", "invalid_arguments", "ok"]
    assert [request.status for request in provider.requests] == [200] * 4
    compare_echoes(provider.requests[-1].body, [one.body for one in recording.exchanges[:-1]], is_streamed=is_streamed)


def test_the_table_names_every_quirk():
    found = [recording for recording in recorded("quirks", "gemini") if isinstance(recording, Recording)]
    if not found:
        pytest.skip("no recorded provider traffic: expected ../shared/recordings beside the project")

    assert {recording.name for recording in found} == QUIRKS.keys()
