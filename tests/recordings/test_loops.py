"""Recorded loops of every dialect, played through the public face: as recorded, and in the other form (synthetic)."""

import json
import re
from base64 import b64encode
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple
from urllib.parse import quote

import _oracle_anthropic as anthropic
import _oracle_chat as chat
import _oracle_cohere as cohere
import _oracle_converse as converse
import _oracle_gemini as gemini
import _oracle_responses as responses
import pytest
from _dialects import Conversation, loops, text_of
from _replay import Exchange, Played, Recording, Stretch, heard, play, recorded

from treadle.errors import ModelRejected
from treadle.mock.dialects.shared import event_frame
from treadle.tools import JsonObject

# --- how each is played ----------------------------------------------------------------------------------------------


def invoked(loop: Conversation, *, in_other_form: bool) -> Stretch:
    """Return how a conversation with Claude at a cloud is played."""
    first = loop.exchanges[0]
    every = tuple(one.with_body(text_of(one)) for one in loop.exchanges)
    at_vertex = re.search(r"/models/([^:]+):", first.path)
    other: list[str | bytes] = [
        one.body
        if one.status != 200
        else json.dumps(anthropic.message_of(one.body))
        if first.is_stream
        else anthropic.events_of(one)
        if at_vertex
        else chunks(anthropic.events_of(one))
        for one in every
    ]
    return Stretch(
        exchanges=every,
        oracle=anthropic.ORACLE,
        model=f"vertex:{at_vertex[1]}" if at_vertex else f"bedrock-claude:{first.model}",
        stream=first.is_stream is not in_other_form,
        bodies=other if in_other_form else [one.content for one in loop.exchanges],
    )


def chunks(events: bytes) -> bytes:
    """Return Claude's events inside those of AWS."""
    lines = [line.removeprefix(b"data: ") for line in events.splitlines() if line.startswith(b"data: ")]
    framed = (json.dumps({"bytes": b64encode(line).decode()}).encode() for line in lines)
    return b"".join(event_frame("chunk", line) for line in framed)


# --- what goes back --------------------------------------------------------------------------------------------------


def anthropics_blocks_go_back(loop: Recording, played: Played, *, in_other_form: bool) -> None:
    for number, request in enumerate(played.requests):
        spoken = [message["content"] for message in request.body["messages"] if message["role"] == "assistant"]
        assert spoken == [
            [anthropic.without_defaults(block) for block in anthropic.message_of(one.body)["content"]]
            for one in loop.of(anthropic.HOST)[:number]
        ]


def geminis_parts_go_back(loop: Recording, played: Played, *, in_other_form: bool) -> None:
    bodies = [one.body for one in loop.of(*gemini.HOSTS)]
    for number, request in enumerate(played.requests):
        gemini.compare_echoes(request.body, bodies[:number], is_streamed=in_other_form)


def the_items_of_responses_go_back(loop: Recording, played: Played, *, in_other_form: bool) -> None:
    """Every item that the model has made is in the request, reasoning and seal unchanged."""
    exchanges = loop.of(responses.HOST)
    for number, request in enumerate([] if in_other_form else played.requests):
        by_id = {item["id"]: item for item in request.body["input"] if "id" in item}
        for item in (item for one in exchanges[:number] for item in responses.items(one.body)):
            if item["type"] in ("message", "function_call"):
                kept = {key: value for key, value in item.items() if key != "content"}
                assert kept.items() <= by_id[item["id"]].items()
            else:
                assert by_id[item["id"]] == item


def coheres_messages_go_back(loop: Conversation, played: Played, *, in_other_form: bool) -> None:
    """Plan, thinking, calls and citations stand in the next request; but for blocks without words, which are left out."""
    assert {one.path for one in played.requests} == {"/v1/chat"}
    for one, (_, after) in zip(loop.exchanges, pairwise([] if in_other_form else played.requests), strict=False):
        said = [message for message in after.body["messages"] if message["role"] == "assistant"]
        assert with_arguments(said[-1]) == with_arguments(cohere.answer_of(one)["message"])


def with_arguments(message: JsonObject) -> JsonObject:
    calls = [
        {**call, "function": {**call["function"], "arguments": call["function"]["arguments"] or "{}"}}
        for call in message.get("tool_calls", ())
    ]
    return {**message, **({"tool_calls": calls} if calls else {})}


def converse_is_asked_at_its_path(loop: Conversation, played: Played, *, in_other_form: bool) -> None:
    way = "converse-stream" if played.stretches[0].stream else "converse"
    assert {one.path for one in played.requests} == {f"/v1/model/{quote(loop.exchanges[0].model, safe='')}/{way}"}


def vertex_is_asked_at_its_path(loop: Conversation, played: Played, *, in_other_form: bool) -> None:
    def publisher(path: str) -> str:
        return path.partition("/publishers/")[2].partition(":")[0]

    assert {publisher(one.path) for one in played.requests} == {publisher(loop.exchanges[0].path)}


def nothing(loop: Any, played: Played, *, in_other_form: bool) -> None:
    """Nothing more is known of it."""


# --- every dialect ---------------------------------------------------------------------------------------------------


class Loops(NamedTuple):
    """The loops of one dialect."""

    found: list[Any]
    stretch: Callable[..., Stretch]
    check: Callable[..., None] = nothing


CHAT, RESPONSES = recorded("loops", "openai-chat"), recorded("loops", "openai-responses")
DIALECTS = {
    "chat": Loops(CHAT, lambda loop, **form: chat.stretch(chat.of(loop.exchanges), **form)),
    "responses": Loops(
        RESPONSES,
        lambda loop, **form: responses.stretch(loop.of(responses.HOST), **form),
        the_items_of_responses_go_back,
    ),
    "anthropic": Loops(
        [
            *recorded("loops", "anthropic-messages"),
            *recorded("loops", "gemini", "test_cross_provider_*anthropic*.json"),  # its last part was said by Anthropic
        ],
        lambda loop, **form: anthropic.stretch(loop.of(anthropic.HOST), **form),
        anthropics_blocks_go_back,
    ),
    "gemini": Loops(
        recorded("loops", "gemini"),
        lambda loop, **form: gemini.stretch(loop.of(*gemini.HOSTS), **form),
        geminis_parts_go_back,
    ),
    "cohere": Loops(
        [
            one
            for one in loops("cohere", "messages")
            if not isinstance(one, Conversation) or one.exchanges[-1].status == 200
        ],
        cohere.stretch,
        coheres_messages_go_back,
    ),
    "converse": Loops(loops("bedrock_converse", "messages"), converse.stretch, converse_is_asked_at_its_path),
    "invoke": Loops(loops("bedrock_invoke", "anthropic_version", "messages"), invoked),
    "vertex": Loops(loops("vertex_claude"), invoked, vertex_is_asked_at_its_path),
}


def cases() -> Iterator[Any]:
    """Every loop as recorded; in the other form the first of each dialect, and the rest in the long form."""
    for name, dialect in DIALECTS.items():
        for at, loop in enumerate(dialect.found):
            if not isinstance(loop, Recording | Conversation):
                yield pytest.param(dialect, None, False, marks=loop.marks)
                continue
            yield pytest.param(dialect, loop, False, id=f"{name}-{loop}")
            marks = pytest.mark.soak if at >= 4 else ()
            yield pytest.param(dialect, loop, True, marks=marks, id=f"{name}-{loop}-synthetic-other-form")


@pytest.mark.row("W01", "W02", "W03", "W04", "W05", "W06", "W10", "S02")
@pytest.mark.row("P-CONVERSE", "P-INVOKE", "P-COHERE", "P-VERTEX")
@pytest.mark.parametrize(("dialect", "loop", "in_other_form"), [*cases()])
async def test_a_recorded_loop_goes_as_recorded(dialect: Loops, loop: Any, in_other_form: bool) -> None:
    played = await play(dialect.stretch(loop, in_other_form=in_other_form))

    played.check()
    dialect.check(loop, played, in_other_form=in_other_form)


REFUSED = [
    *(
        ("openai-chat:m", "either text or image_url type", one)
        for loop in CHAT
        if isinstance(loop, Recording)
        for one in chat.of(loop.exchanges)
        if one.status != 200
    ),
    *(
        ("openai:m", "file type you uploaded is not supported", one)
        for loop in RESPONSES
        if isinstance(loop, Recording)
        for one in loop.of(responses.HOST)
        if one.status != 200
    ),
]


@pytest.mark.row("W11")
@pytest.mark.parametrize(("name", "words", "exchange"), REFUSED)
async def test_a_recorded_refusal_is_one_that_no_retry_helps(name: str, words: str, exchange: Exchange) -> None:
    with pytest.raises(ModelRejected, match=words) as caught:
        await heard(name, exchange.body, status=exchange.status, stream=True)

    assert (caught.value.status, caught.value.may_retry) == (400, False)


def test_all_recorded_refusals_are_played() -> None:
    assert [name for name, _, _ in REFUSED] == (
        ["openai-chat:m"] * 4 + ["openai:m"] if isinstance(CHAT[0], Recording) else []
    )
