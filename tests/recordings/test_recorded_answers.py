"""Recorded answers and quirks of every dialect, beside what an independent reader makes of them. One body, one reader a dialect."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import _oracle_anthropic as anthropic
import _oracle_chat as chat
import _oracle_cohere as cohere
import _oracle_converse as converse
import _oracle_gemini as gemini
import _oracle_responses as responses
import pytest
from _dialects import Bodied, exchanges, text_of
from _replay import Exchange, Recording, heard, recorded

from treadle import Agent, Tool, resolve_model
from treadle.errors import ContextOverflow, ModelError, ModelRejected
from treadle.messages import Finish, Part, Text, Thinking, ToolCall, Usage
from treadle.ports import CallReady, ModelEnd, ModelPart, TextDelta, ThinkingDelta
from treadle.testing import MockProvider, Turn
from treadle.tools import JsonObject


class Answer(NamedTuple):
    """One recorded answer, and how it is asked for."""

    name: str
    """The name of the model."""
    content: str | bytes
    status: int
    stream: bool
    check: Callable[[ModelEnd, Any], None]
    """Compares the message with what is passed to it."""
    source: Any
    """What the check reads: a body, or an exchange."""

    async def heard(self) -> list[ModelPart]:
        return await heard(self.name, self.content, status=self.status, stream=self.stream)


def calls_of(end: ModelEnd) -> list[ToolCall]:
    return [part for part in end.parts if isinstance(part, ToolCall)]


def text_in(end: ModelEnd) -> str:
    return "".join(part.text for part in end.parts if isinstance(part, Text))


def thought_in(end: ModelEnd) -> str:
    return "".join(part.text for part in end.parts if isinstance(part, Thinking))


# --- OpenAI ----------------------------------------------------------------------------------------------------------


def check_chat(end: ModelEnd, body: str) -> None:
    made = [(one.id or f"call_{at}", one.name, one.arguments) for at, one in enumerate(chat.ORACLE.calls(body))]
    assert [(one.id, one.name, json.loads(one.arguments or "{}")) for one in calls_of(end)] == made
    assert (text_in(end), thought_in(end)) == (chat.ORACLE.text(body), chat.thought(body))
    assert (end.usage is None) == ('"completion_tokens"' not in body)


def check_responses(end: ModelEnd, body: str) -> None:
    assert [(one.id, one.name, json.loads(one.arguments)) for one in calls_of(end)] == responses.ORACLE.calls(body)
    assert text_in(end) == responses.ORACLE.text(body)
    counts = responses.usage(body)
    assert end.usage == Usage(
        input_tokens=counts["input_tokens"],
        output_tokens=counts["output_tokens"],
        cached_input_tokens=counts["input_tokens_details"]["cached_tokens"],
        reasoning_tokens=counts["output_tokens_details"]["reasoning_tokens"],
    )


# --- Anthropic, at its vendor and at the clouds ----------------------------------------------------------------------


def check_anthropic(end: ModelEnd, one: Bodied) -> None:
    message = anthropic.message_of(text_of(one))
    assert end.finish_reason == message["stop_reason"]
    if end.finish in (Finish.CALLS, Finish.STOP):
        assert list(map(anthropic.as_block, end.parts)) == list(map(anthropic.without_defaults, message["content"]))
    counts = message["usage"]
    cached, written = (counts.get(f"cache_{act}_input_tokens", 0) for act in ("read", "creation"))
    assert end.usage == Usage(
        input_tokens=counts["input_tokens"] + written + cached,
        output_tokens=counts["output_tokens"],
        cached_input_tokens=cached,
        cache_written_tokens=written,
        reasoning_tokens=(counts.get("output_tokens_details") or {}).get("thinking_tokens", 0),
    )


# --- Gemini ----------------------------------------------------------------------------------------------------------


def check_gemini(end: ModelEnd, body: str) -> None:
    counts = json.loads(body)["usageMetadata"]
    thoughts = counts.get("thoughtsTokenCount", 0)
    made = [(one.name, one.arguments) for one in gemini.ORACLE.calls(body)]
    assert [(one.name, json.loads(one.arguments)) for one in calls_of(end)] == made
    assert text_in(end) == gemini.ORACLE.text(body)
    signed = [part.signature for part in end.parts if isinstance(part, Text | Thinking | ToolCall) and part.signature]
    assert signed == [part["thoughtSignature"] for part in gemini.parts_of(body) if "thoughtSignature" in part]
    assert end.usage is not None
    assert end.usage.input_tokens == counts["promptTokenCount"]
    assert end.usage.output_tokens == counts.get("candidatesTokenCount", 0) + thoughts
    assert end.usage.reasoning_tokens == thoughts


# --- Cohere ----------------------------------------------------------------------------------------------------------


def check_cohere(end: ModelEnd, one: Bodied) -> None:
    answer = cohere.answer_of(one)
    message, counts = answer["message"], answer["usage"]["tokens"]
    plan = [{"tool_plan": message["tool_plan"]}] if message.get("tool_plan") else []
    called = map(cohere_call, message.get("tool_calls", ()))
    assert list(map(cohere_part, end.parts)) == [*plan, *message.get("content", ()), *called]
    texts = [part for part in end.parts if isinstance(part, Text) and part.signature]
    cited = [cited for text in texts for cited in json.loads(text.signature or "")["citations"]]
    assert cited == message.get("citations", [])
    finish = {"COMPLETE": Finish.STOP, "TOOL_CALL": Finish.CALLS}[answer["finish_reason"]]
    assert (end.finish, end.finish_reason) == (finish, answer["finish_reason"])
    assert end.usage == Usage(
        input_tokens=counts["input_tokens"],
        output_tokens=counts["output_tokens"],
        cached_input_tokens=answer["usage"]["cached_tokens"],
        reasoning_tokens=counts.get("reasoning_tokens", 0),
    )


def cohere_part(part: Part) -> JsonObject:
    match part:
        case Text() if part.text.startswith(("I will", "I'm going")):
            return {"tool_plan": part.text}
        case Text():
            return {"type": "text", "text": part.text}
        case Thinking():
            return {"type": "thinking", "thinking": part.text}
        case ToolCall():
            return {"id": part.id, "name": part.name, "arguments": json.loads(part.arguments)}
    raise AssertionError(part)


def cohere_call(call: JsonObject) -> JsonObject:
    function = call["function"]
    return {"id": call["id"], "name": function["name"], "arguments": json.loads(function["arguments"] or "{}")}


# --- Converse --------------------------------------------------------------------------------------------------------


def check_converse(end: ModelEnd, one: Bodied) -> None:
    answer = converse.answer_of(one)
    content = [converse_block(block) for block in converse.apart(answer["output"]["message"]["content"])]
    assert list(map(converse_part, end.parts)) == [block for block in content if block]
    finishes = {"tool_use": Finish.CALLS, "end_turn": Finish.STOP, "max_tokens": Finish.LENGTH}
    assert end.finish is finishes[answer["stopReason"]]
    counts = answer["usage"]
    cached, written = counts.get("cacheReadInputTokens", 0), counts.get("cacheWriteInputTokens", 0)
    assert end.usage == Usage(
        input_tokens=counts["inputTokens"] + cached + written,
        output_tokens=counts["outputTokens"],
        cached_input_tokens=cached,
        cache_written_tokens=written,
    )


def converse_part(part: Part) -> JsonObject:
    match part:
        case Text(signature=None):
            return {"text": part.text}
        case Text():
            return {"citationsContent": {"content": [{"text": part.text}], **json.loads(part.signature)}}
        case Thinking(payload=None, signature=signature):
            signed = {} if signature is None else {"signature": signature}
            return {"reasoningContent": {"reasoningText": {"text": part.text, **signed}}}
        case Thinking(payload=payload):
            return payload
        case ToolCall():
            return {"toolUse": {"toolUseId": part.id, "name": part.name, "input": json.loads(part.arguments)}}
    raise AssertionError(part)


def converse_block(block: JsonObject) -> JsonObject:
    """Leave out what says nothing: a text without words, and the type of a call."""
    match block:
        case {"text": ""}:
            return {}
        case {"toolUse": call}:
            return {"toolUse": {name: value for name, value in call.items() if name != "type"}}
    return block


# --- every answer ----------------------------------------------------------------------------------------------------

ERRORS = {"cohere": ContextOverflow, "bedrock": ModelRejected}
"""What each recorded refusal of a dialect is, where it has one."""


def of_texts(one: Exchange) -> Iterator[Answer]:
    """Yield the answers of an exchange whose body is text: as recorded; Gemini's also as the stream that nobody recorded."""
    match one.path.rpartition("/")[2]:
        case "messages":
            bodied = Bodied("", one.path, one.request, one.status, one.body.encode())
            yield Answer("anthropic:m", one.body, one.status, anthropic.is_streamed(one), check_anthropic, bodied)
        case "completions":
            yield Answer("openai-chat:m", one.body, one.status, True, check_chat, one.body)
        case "responses":
            yield Answer("openai:m", one.body, one.status, True, check_responses, one.body)
        case place if place.endswith(":generateContent"):
            yield Answer(gemini.model_of(one), one.body, one.status, True, check_gemini, one.body)
            if one.status == 200:
                yield Answer(gemini.model_of(one), gemini.streamed(one.body), 200, True, check_gemini, one.body)


def of_bytes(folder: str, one: Bodied) -> Answer:
    match folder:
        case "vertex_claude":
            name, check = "vertex:" + one.path.partition("/models/")[2].partition(":")[0], check_anthropic
        case "bedrock_invoke":
            name, check = f"bedrock-claude:{one.model}", check_anthropic
        case "bedrock_converse":
            name, check = f"bedrock:{one.model}", check_converse
        case _:
            name, check = f"cohere:{one.model}", check_cohere
    return Answer(name, one.content, one.status, one.is_stream or one.request.get("stream") is True, check, one)


BACKGROUND = "test_background_mode_streaming_without_starting_after_vcr"
"""What it holds is no answer: the table of quirks has it."""
FOLDERS = ("openai-chat", "openai-responses", "anthropic-messages", "gemini")
CLOUDS = {
    "cohere": ("messages",),
    "bedrock_converse": ("messages",),
    "vertex_claude": (),
    "bedrock_invoke": ("anthropic_version", "messages"),
}


def answers() -> Iterator[Any]:
    for kind in ("loops", "quirks"):
        for recording in (one for folder in FOLDERS for one in recorded(kind, folder)):
            if not isinstance(recording, Recording):
                yield pytest.param([], marks=recording.marks)
                continue
            said = [one for one in recording.exchanges if one.status == 200 and recording.name != BACKGROUND]
            yield pytest.param([answer for one in said for answer in of_texts(one)], id=f"{kind}-{recording}")
    for folder, needed in CLOUDS.items():
        for one in exchanges(folder, *needed):
            bodied = isinstance(one, Bodied)
            yield pytest.param([of_bytes(folder, one)], id=str(one)) if bodied else pytest.param([], marks=one.marks)


@pytest.mark.row("W01", "W02", "W05", "W06", "W09", "P-COHERE", "P-CONVERSE", "P-VERTEX", "P-INVOKE")
@pytest.mark.parametrize("found", [*answers()])
async def test_each_recorded_answer_is_what_an_independent_reader_makes_of_it(found: list[Answer]) -> None:
    for answer in found:
        if answer.status != 200:
            words = json.loads(answer.content)["message"]
            with pytest.raises(ModelError) as caught:
                await answer.heard()
            assert words[:40].rstrip(".") in str(caught.value)
            assert isinstance(caught.value, ERRORS.get(answer.name.partition(":")[0], ModelError))
            continue
        *parts, end = await answer.heard()
        assert isinstance(end, ModelEnd)
        answer.check(end, answer.source)
        assert "".join(part.text for part in parts if isinstance(part, TextDelta)) == text_in(end)
        thought = "".join(part.text for part in parts if isinstance(part, ThinkingDelta))
        assert thought.strip() == thought_in(end).strip()  # what stood between tags loses the blanks around it
        assert [part.call for part in parts if isinstance(part, CallReady)] == calls_of(end)


# --- quirks ----------------------------------------------------------------------------------------------------------

QUIRKS: dict[str, list[str | type[ModelError]]] = {
    "test_anthropic_code_execution_tool_stream": ["stop: thinking text opaque opaque text"],
    "test_anthropic_mcp_servers_stream": ["stop: thinking opaque opaque text"],
    "test_anthropic_model_thinking_part_redacted_stream": ["stop: thinking thinking text"],
    "test_anthropic_native_tool_search": ["calls: text opaque opaque text call"],
    "test_anthropic_thinking_with_events_with_no_content": ["stop: thinking text"],
    "test_async_anthropic_message_streaming_with_events_with_content": ["stop: text"],
    "test_model_name_suggestion_anthropic": [ModelRejected],
    "test_stream_events_tool_calls": ["calls: call"],
    "test_google_model_max_tokens": ["length: text"],
    "test_google_model_max_tokens_thinking_model_empty_response": ["length: "],
    "test_google_model_safety_settings": ["refused: "],
    "test_google_model_thinking_part": ["stop: thinking text"],
    "test_model_name_suggestion_google": [ModelRejected],
    "test_multimodal_tool_return_matrix_direct_binary_audio_google_gemini3": ["calls: call"],
    "test_multimodal_tool_return_matrix_tool_return_content_uploaded_file_video_google_vertex": ["calls: call"],
    "test_tool_choice_matrix_list_single_google": ["calls: call"],
    BACKGROUND: [ModelRejected],
    "test_deepseek_responses_structured_output": ["calls: thinking call"],
    "test_gpt5_pro": ["stop: thinking text"],
    "test_openai_responses_model_http_error": [ModelRejected],
    "test_openai_responses_model_web_search_tool_stream": ["stop: thinking opaque thinking text"] * 2,
    "test_web_search_agent_run_in_workflow": ["stop: thinking opaque thinking opaque thinking text"],
}
"""What the first answers of each file come to: a finish and the kinds of parts, or the error."""


def test_the_table_names_every_quirk(recordings: Path) -> None:
    found = {path.stem for folder in FOLDERS[1:] for path in (recordings / "quirks" / folder).glob("*.json")}
    assert found == QUIRKS.keys()


@pytest.mark.row("W05", "W09", "W10", "W11", "PF10")
@pytest.mark.parametrize("quirk", [one for folder in FOLDERS[1:] for one in recorded("quirks", folder)], ids=str)
async def test_a_recorded_quirk_comes_to_what_the_table_says(quirk: Recording) -> None:
    for one, expected in zip(quirk.exchanges, QUIRKS[quirk.name], strict=False):
        asking = next(of_texts(one)).heard()
        if isinstance(expected, str):
            end = (await asking)[-1]
            kinds = " ".join(type(part).__struct_config__.tag for part in end.parts)
            assert f"{end.finish}: {kinds}" == expected
        else:
            with pytest.raises(expected) as caught:
                await asking
            assert (type(caught.value), caught.value.may_retry) == (expected, False)
            assert one.status == 200 or json.loads(one.body)["error"]["message"][:40] in str(caught.value)


@pytest.mark.row("W05")
@pytest.mark.parametrize("is_streamed", [False, True], ids=["as-recorded", "synthetic-stream"])
@pytest.mark.parametrize("recording", recorded("quirks", "gemini", "*video_google_vertex.json"), ids=str)
async def test_a_call_of_an_undeclared_tool_and_one_with_a_made_up_argument_are_answered_and_the_loop_goes_on(
    recording: Recording, is_streamed: bool
):
    bodies = [gemini.streamed(one.body) if is_streamed else one.body for one in recording.exchanges]
    runs: list[Any] = []
    get_file = Tool(
        name="get_file",
        description="",
        parameters={"type": "object", "properties": {}, "additionalProperties": False},
        effect="read",
        run=lambda arguments, ctx: runs.append(arguments) or "File attached",
    )
    async with MockProvider([Turn(body=body.encode()) for body in bodies]) as provider:
        model = resolve_model(gemini.model_of(recording.exchanges[0]), base_url=provider.base_url, stream=is_streamed)
        result = await Agent(model, tools=[get_file]).run("Use the get_file tool now.")

    assert result.text == gemini.ORACLE.text(recording.exchanges[-1].body)
    assert runs == [{}]
    assert [one["status"] for one in result.report()["tool_calls"]] == ["unknown_tool", "invalid_arguments", "ok"]
    assert [request.status for request in provider.requests] == [200] * 4
    gemini.compare_echoes(
        provider.requests[-1].body, [one.body for one in recording.exchanges[:-1]], is_streamed=is_streamed
    )
