"""The identity of a streamed call, in each dialect: what a piece belongs to, and what becomes of a response with a piece of which nobody
can say it."""

from typing import Any

import pytest
from wire import Anthropics, Chats, Geminis, Responseses, blocks, cohere, converse, given, named, sse, used

from invariants import check_session
from treadle import Agent, RunResult, resolve_model
from treadle.testing import MockProvider, Turn
from treadle.tools import Tool

PATH = '{"path":"build"}'
BUILD = {"path": "build"}
SCHEMA = {
    "type": "object",
    "properties": {"path": {"type": "string"}, "options": {"type": "object"}},
}


class Disk:
    """What was cleaned and looked at."""

    def __init__(self) -> None:
        self.cleaned: list[Any] = []
        self.looked: list[Any] = []

    async def clean(self, arguments: Any, ctx: Any) -> str:
        self.cleaned.append(arguments)
        return "cleaned"

    async def look(self, arguments: Any, ctx: Any) -> str:
        self.looked.append(arguments)
        return "looked"

    @property
    def tools(self) -> list[Tool]:
        allowed: Any = {"effect": "unsafe", "permission": "allow"}
        return [
            Tool(name="clean", description="Clean.", run=self.clean, parameters=SCHEMA, **allowed),
            Tool(name="look", description="Look.", run=self.look, parameters=SCHEMA, effect="read"),
        ]


async def ran(dialect: str, body: str | bytes, disk: Disk) -> RunResult:
    turn = Turn(body=body.encode() if isinstance(body, str) else body)
    async with MockProvider([turn, "Done."]) as provider:
        model = resolve_model(f"{dialect}:m", base_url=provider.base_url, api_key="k")
        return await Agent(model, tools=disk.tools).run("go")


# --- pieces whose call is known --------------------------------------------------------------------------------------


def piece(call_id: str | None, name: str | None, arguments: Any, index: int | None = 0) -> dict[str, Any]:
    """A fragment of Chat Completions. Its name is null where it has none, as many servers write it."""
    return {**Chats.call(call_id, arguments, index=index), "function": {"name": name, "arguments": arguments}}


def chat(*pieces: dict[str, Any], finish: str = "tool_calls") -> str:
    return sse(*map(Chats.calls, pieces), Chats.delta(finish), "[DONE]")


KNOWN = {
    "a new id in the second piece": chat(piece("a1", "clean", ""), piece("b2", None, PATH)),
    "a new id in each piece": chat(piece("a1", "clean", ""), piece("b2", None, '{"path"'), piece("c3", "", ':"bui'), piece("d4", None, 'ld"}')),
    "a new id in each piece, and no index": chat(
        piece("a1", "clean", "", None), piece("b2", None, '{"path":', None), piece("c3", None, '"build"}', None)
    ),
    "no id and no index after the first": chat(piece("a1", "clean", "", None), piece(None, None, PATH, None)),
    "an index in the first only": chat(piece("a1", "clean", ""), piece("a1", None, PATH, None)),
    "another index under the same id": chat(piece("a1", "clean", ""), piece("a1", None, PATH, 1)),
    "a name of blanks": chat(piece("a1", "clean", ""), piece("b2", " ", PATH)),
    "arguments beside the id": chat(piece("a1", "clean", ""), {"index": 0, "id": "b2", "arguments": PATH}),
    "all of it beside the id": chat({"index": 0, "id": "a1", "name": "clean", "arguments": PATH}),
    "a name after the id": chat(piece("a1", None, ""), piece("a1", "clean", ""), piece("b2", None, PATH)),
    "an empty piece behind": chat(piece("a1", "clean", PATH), piece("b2", None, ""), piece("", "", "", 1)),
}  # fmt: skip


@pytest.mark.row("N02", "PF22")
@pytest.mark.parametrize("body", KNOWN.values(), ids=KNOWN)
async def test_a_piece_without_a_name_goes_on_with_the_call_at_its_index(body: str) -> None:
    disk = Disk()

    result = await ran("openai-chat", body, disk)

    assert [(one.id, one.name, one.status) for one in result.tool_calls] == [("a1", "clean", "ok")]
    assert disk.cleaned == [BUILD]
    await check_session(result.session)


@pytest.mark.row("N02", "PF22")
async def test_indexes_keep_calls_apart_whose_ids_change() -> None:
    disk = Disk()
    begun = (piece("a1", "clean", "", 0), piece("b2", "look", "", 1))

    result = await ran("openai-chat", chat(*begun, piece("c3", None, '{"path":"x"}', 1), piece("d4", None, PATH)), disk)

    assert (disk.cleaned, disk.looked) == ([BUILD], [{"path": "x"}])
    assert [(one.id, one.status) for one in result.tool_calls] == [("a1", "ok"), ("b2", "ok")]


# --- pieces whose call nobody knows ----------------------------------------------------------------------------------


def claude(*values: Any) -> str:
    return sse(Anthropics.start, *values, Anthropics.reason("tool_use"), Anthropics.stop)


def part(index: int, text: str) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": {"type": "input_json_delta", "partial_json": text}}


CLEAN = Responseses.call("a1", "", name="clean")
LOST = Responseses.call("b2", PATH, name="")


def responses(*values: Any) -> str:
    return sse(*values, Responseses.completed())


STRAYS: dict[str, tuple[str, str | bytes]] = {
    **{
        f"chat: {name}": ("openai-chat", body)
        for name, body in {
            "a name of blanks": chat(piece("a1", "clean", ""), piece("b2", " ", PATH, 1)),
            "an index that was never begun": chat(piece("a1", "clean", ""), piece("b2", None, PATH, 1)),
            "an index that was never begun, no id": chat(piece("a1", "clean", ""), piece(None, None, PATH, 1)),
            "before its call": chat(piece("b2", None, PATH), piece("a1", "clean", "")),
            "an index and then none, first": chat(piece("a1", "clean", "", None), piece("b2", None, PATH, 0)),
            "a second object": chat(piece("a1", "clean", "{}"), piece("b2", None, PATH)),
            "a second object, no id": chat(piece("a1", "clean", PATH), piece(None, None, PATH)),
            "an id of one call and the index of another": chat(
                piece("a1", "clean", ""), piece("b2", "look", "", 1), piece("b2", None, PATH)
            ),
            "two calls begun at one index": chat(piece("a1", "clean", ""), piece("b2", "look", ""), piece("c3", None, PATH)),
            "two calls begun without an index": chat(
                piece("a1", "clean", "", None), piece("b2", "look", "", None), piece(None, None, PATH, None)
            ),
            "an id and a name in each piece": chat(piece("a1", "clean", ""), piece("b2", "clean", PATH)),
            "an id and a name in each piece of an object": chat(
                *(piece("a1", "clean", ""), piece("b2", "clean", '{"options":'), piece("c3", "clean", PATH)),
                piece("d4", "clean", "}"),
            ),
            "one id at two indexes": chat(piece("a1", "clean", ""), piece("a1", "clean", PATH, 1)),
            "a message after its deltas": sse(
                Chats.calls(piece("a1", "clean", "")),
                Chats.message("tool_calls", tool_calls=[piece("a1", "clean", ""), piece("b2", None, PATH)]),
                "[DONE]",
            ),
            "the end of another call": chat(piece("a1", "clean", ""), piece("b2", None, PATH, 1), finish="stop"),
        }.items()
    },
    "responses: an item that was never begun": ("openai", responses(Responseses.done(0, CLEAN), Responseses.piece(1, "fc_b2", PATH))),
    "responses: an item without a name": ("openai", responses(Responseses.done(0, CLEAN), Responseses.done(1, LOST))),
    "responses: an item with a name of blanks": ("openai", responses(Responseses.done(0, CLEAN), Responseses.done(1, {**LOST, "name": " "}))),
    "responses: after the end of an empty object": (
        "openai",
        responses(
            *(Responseses.added(0, CLEAN), Responseses.done(0, {**CLEAN, "arguments": "{}"}), Responseses.piece(0, "fc_a1", PATH)),
        ),
    ),
    "responses: an item of words": (
        "openai",
        responses(
            *(Responseses.added(0, Responseses.message("")), Responseses.added(1, CLEAN)),
            *(Responseses.piece(0, "msg_1", PATH), Responseses.done(0, Responseses.message("Hm.")), Responseses.done(1, CLEAN)),
        ),
    ),
    "responses: after its end": ("openai", responses(Responseses.added(0, CLEAN), Responseses.done(0, CLEAN), Responseses.piece(0, "fc_a1", PATH))),
    "responses: an index that is another's": (
        "openai",
        responses(Responseses.added(0, CLEAN), Responseses.piece(1, "fc_a1", PATH), Responseses.done(0, CLEAN)),
    ),
    "responses: two items begun, neither index nor id": (
        "openai",
        responses(
            *(Responseses.added(0, CLEAN), Responseses.added(1, Responseses.call("b2", "", name="look"))),
            {"type": "response.function_call_arguments.delta", "delta": PATH},
            *(Responseses.done(0, CLEAN), Responseses.done(1, Responseses.call("b2", "", name="look"))),
        ),
    ),
    "responses: one call twice, the second with arguments": (
        "openai",
        sse(Responseses.done(0, CLEAN), Responseses.completed(Responseses.call("a1", PATH, name="clean"))),
    ),
    "anthropic: a block that was never begun": ("anthropic", claude(*Anthropics.call(0, "a1", name="clean"), part(1, PATH))),
    "anthropic: a block that has ended": ("anthropic", claude(*Anthropics.call(0, "a1", name="clean"), part(0, PATH))),
    "anthropic: a block without a name": ("anthropic", claude(*Anthropics.call(0, "a1", name="clean"), *Anthropics.call(1, "b2", PATH, name=""))),
    "anthropic: a block with a name of blanks": (
        "anthropic",
        claude(*Anthropics.call(0, "a1", name="clean"), *Anthropics.call(1, "b2", PATH, name=" ")),
    ),
    "anthropic: a block without a type": (
        "anthropic",
        claude(
            *Anthropics.call(0, "a1", name="clean"),
            *blocks(1, {"id": "b2", "name": "look", "input": {}}, {"type": "input_json_delta", "partial_json": PATH}),
        ),
    ),
    "anthropic: a whole block without a type": (
        "anthropic",
        claude(*Anthropics.call(0, "a1", name="clean"), *blocks(1, {"id": "b2", "name": "look", "input": BUILD})),
    ),
    "anthropic: an empty block": ("anthropic", claude(*Anthropics.call(0, "a1", name="clean"), blocks(1, {})[0], part(1, PATH), blocks(1, {})[1])),
    "anthropic: a block of words": (
        "anthropic",
        claude(
            *(Anthropics.text(0, "Hm.")[0], *Anthropics.call(1, "a1", name="clean"), part(0, PATH), Anthropics.text(0, "Hm.")[2]),
        ),
    ),
    "anthropic: a whole block without a name": (
        "anthropic",
        claude(
            *Anthropics.call(0, "a1", name="clean"),
            *blocks(1, {"type": "tool_use", "id": "b2", "name": None, "input": BUILD}),
        ),
    ),
    "bedrock: a block that was never begun": (
        "bedrock",
        converse(("start", 0, used("a1", "clean")), ("stop", 0, {}), ("delta", 1, given(PATH)), ("stop", 1, {})),
    ),
    "bedrock: a block without a name": (
        "bedrock",
        converse(
            *(("start", 0, used("a1", "clean")), ("stop", 0, {}), ("start", 1, used("b2", None))),
            *(("delta", 1, given(PATH)), ("stop", 1, {})),
        ),
    ),
    "bedrock: a block with a name of blanks": (
        "bedrock",
        converse(
            *(("start", 0, used("a1", "clean")), ("stop", 0, {}), ("start", 1, used("b2", " "))),
            *(("delta", 1, given(PATH)), ("stop", 1, {})),
        ),
    ),
    "bedrock: a block of words": (
        "bedrock",
        converse(
            *(("delta", 0, {"delta": {"text": "Hm."}}), ("start", 1, used("a1", "clean")), ("delta", 0, given(PATH))),
            *(("stop", 0, {}), ("stop", 1, {})),
        ),
    ),
    "cohere: a call that was never begun": (
        "cohere",
        cohere(("start", 0, named("clean")), ("end", 0, {}), ("delta", 1, named(None, PATH, None)), ("end", 1, {})),
    ),
    "cohere: a call with a name of blanks": (
        "cohere",
        cohere(("start", 0, named("clean")), ("end", 0, {}), ("start", 1, named(" ", PATH, "b2")), ("end", 1, {})),
    ),
    "cohere: a call without a name": (
        "cohere",
        cohere(("start", 0, named("clean")), ("end", 0, {}), ("start", 1, named(None, PATH, "b2")), ("end", 1, {})),
    ),
    "gemini: a part with a name of blanks": (
        "gemini",
        sse(Geminis.chunk({"functionCall": {"name": "clean"}}, {"functionCall": {"name": "\n", "args": BUILD}}, finish="STOP")),
    ),
    "gemini: a part without a name": (
        "gemini",
        sse(Geminis.chunk({"functionCall": {"name": "clean"}}, {"functionCall": {"args": BUILD}}, finish="STOP")),
    ),
}  # fmt: skip


@pytest.mark.row("N02", "PF22")
@pytest.mark.parametrize(("dialect", "body"), STRAYS.values(), ids=STRAYS)
async def test_where_nobody_can_say_whose_a_piece_is_no_call_runs_and_the_model_is_told(
    dialect: str, body: str | bytes
) -> None:
    disk = Disk()

    result = await ran(dialect, body, disk)

    assert (disk.cleaned, disk.looked) == ([], [])
    assert result.completed, result.stop
    assert "" not in {one.name for one in result.tool_calls}
    told = [one.content for message in result.session.messages for one in message.results]
    assert told
    assert all("arguments whose call it does not say" in one for one in told)
    await check_session(result.session)


@pytest.mark.row("N02", "PF22")
@pytest.mark.parametrize("empty", ["", "{}"])
@pytest.mark.parametrize("output", [(), (CLEAN,), ({**CLEAN, "arguments": "{}"},)])
async def test_an_item_that_ends_without_the_arguments_that_were_streamed_of_it_has_those(
    empty: str, output: tuple[Any, ...]
) -> None:
    disk = Disk()
    ended = Responseses.done(0, {**CLEAN, "arguments": empty})

    await ran(
        "openai",
        sse(Responseses.added(0, CLEAN), Responseses.piece(0, "fc_a1", PATH), ended, Responseses.completed(*output)),
        disk,
    )

    assert disk.cleaned == [BUILD]


@pytest.mark.row("N02", "PF22")
@pytest.mark.parametrize("body", [chat(piece("b2", None, PATH)), chat(piece("b2", "", PATH), piece(None, None, "", 1))])
async def test_a_response_of_nothing_but_a_call_without_a_name_is_told_to_the_model(body: str) -> None:
    disk = Disk()

    result = await ran("openai-chat", body, disk)

    assert (result.completed, disk.cleaned) == (True, [])
    assert [(one.name, one.status) for one in result.tool_calls] == [("", "skipped")]


@pytest.mark.row("N02", "PF22")
@pytest.mark.parametrize(
    ("dialect", "body"),
    [
        ("anthropic", claude(*Anthropics.text(0, "Hm."), part(1, PATH))),
        ("bedrock", converse(("delta", 0, given(PATH)), ("stop", 0, {}))),
        ("cohere", cohere(("delta", 0, named(None, PATH, None)))),
    ],
)
async def test_a_response_with_arguments_and_no_call_is_asked_for_again(dialect: str, body: str | bytes) -> None:
    result = await ran(dialect, body, Disk())

    (failed,) = [event for event in await result.session.events() if event.type == "model.failed"]
    assert "a piece of a call that it did not begin" in failed.message
    assert result.text == "Done."
