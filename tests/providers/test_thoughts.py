"""Reasoning as text: between tags at the beginning of a response it is thinking, in every dialect, however the stream is cut."""

import json
from typing import Any

import pytest
from chat_server import DONE, answer, chunk, json_answer, serving
from test_usage import BODIES
from wire import Till

from treadle import Agent, RunResult, resolve_model
from treadle.errors import ConfigurationError
from treadle.messages import Part, Text, Thinking
from treadle.ports import ModelEnd, ModelRequest, TextDelta, ThinkingDelta
from treadle.testing import MockProvider, Turn, call, text

SAID = "<think>\nhm\n</think>\n\nans"
PARTED = (Thinking(text="hm"), Text("ans"))


async def streamed(name: str, *pieces: str, **options: Any) -> tuple[str, str, tuple[Part, ...]]:
    """Return what was streamed as thinking and as text, and the parts of the whole message."""
    body = "".join(chunk(content=piece) for piece in pieces) + chunk("stop") + DONE
    async with serving(answer(body)) as server:
        model = resolve_model(f"{name}:m", base_url=server.url, api_key="k", **options)
        parts = [part async for part in model.stream(ModelRequest(messages=()))]
    end = parts[-1]
    assert isinstance(end, ModelEnd)
    thought = "".join(part.text for part in parts if isinstance(part, ThinkingDelta))
    return thought, "".join(part.text for part in parts if isinstance(part, TextDelta)), end.parts


@pytest.mark.parametrize("size", [1, 3, 100])
@pytest.mark.parametrize(
    ("said", "parts"),
    [
        (SAID, PARTED),
        ("\n<think>hm</think>ans", PARTED),
        ("<think>\n\n</think>\n\nans", (Text("ans"),)),
        ("<think>hm</think>", (Thinking(text="hm"),)),
        ("<think>hm", (Thinking(text="hm"),)),
        ("<think>a < b </thin> c</think>ans", (Thinking(text="a < b </thin> c"), Text("ans"))),
        ("<think>a</think>\n<think>b</think>ans", (Thinking(text="ab"), Text("ans"))),
        ("<thinking>hm</thinking>\nans", PARTED),
        ("<thought>hm</thought>ans", PARTED),
        ("[THINK]hm[/THINK]ans", PARTED),
        ("◁think▷hm◁/think▷ans", PARTED),
        ("<seed:think>hm</seed:think>ans", PARTED),
        ("<think>hm</think>ans <think>no</think>", (Thinking(text="hm"), Text("ans <think>no</think>"))),
    ],
)
async def test_what_stands_between_tags_at_the_beginning_is_thinking(
    said: str, parts: tuple[Part, ...], size: int
) -> None:
    thought, told, found = await streamed("openai-chat", *(said[at : at + size] for at in range(0, len(said), size)))

    assert found == parts
    assert thought.strip() == "".join(part.text for part in parts if isinstance(part, Thinking))
    assert told == "".join(part.text for part in parts if isinstance(part, Text))


@pytest.mark.parametrize(
    "said",
    ["ans", "<", "  <thi", "<thinker>x</thinker>", "a <think>hm</think>", "`<think>`", " \n", "<b>think</b>", "hm\n</think>\n\nans"],
)  # fmt: skip
async def test_any_other_text_stays_as_it_is(said: str) -> None:
    thought, told, parts = await streamed("openai-chat", *said)

    assert (thought, told, parts) == ("", said, (Text(said),))


def bodies() -> dict[str, Any]:
    return {
        name: json.loads(json.dumps(body).replace("four char", json.dumps(SAID)[1:-1])) for name, body in BODIES.items()
    }


@pytest.mark.parametrize("name", BODIES)
async def test_it_is_so_in_a_whole_answer_of_every_dialect(name: str) -> None:
    async with serving(json_answer(bodies()[name])) as server:
        model = resolve_model(f"{name}:m", base_url=server.url, api_key="k", stream=False)
        result = await Agent(model).run("go")

    assert (result.text, result.messages[-1].parts[0]) == ("ans", Thinking(text="hm"))


async def run(name: str, *turns: Any, **options: Any) -> RunResult:
    async with MockProvider(list(turns)) as mock:
        return await Agent(resolve_model(f"{name}:m", base_url=mock.base_url, api_key="k"), **options).run("go")


@pytest.mark.parametrize("name", BODIES)
async def test_it_is_so_in_a_stream_of_every_dialect(name: str) -> None:
    result = await run(name, text(SAID))

    assert (result.text, result.messages[-1].parts[0]) == ("ans", Thinking(text="hm"))


async def test_a_structured_answer_is_read_behind_it() -> None:
    result = await run("vllm", text('<think>\nIs it {"a": 2}?\n</think>\n\n{"a": 1}'), output=dict[str, int])

    assert (result.completed, result.output) == (True, {"a": 1})


async def test_calls_beside_it_run() -> None:
    result = await run(
        "vllm", Turn(text="<think>hm</think>", calls=(call("look", x=1),)), text("end"), tools=Till().tools
    )

    assert (result.text, [one.status for one in result.tool_calls]) == ("end", ["ok"])
    assert result.messages[1].parts[0] == Thinking(text="hm")


async def test_reasoning_that_never_ended_is_no_answer() -> None:
    result = await run("openai-chat", text("<think>\nhm"))

    assert (result.reason, result.text) == ("no_final_answer_or_tool_call", "")


async def test_reasoning_that_also_has_a_field_of_its_own_counts_once() -> None:
    body = chunk(reasoning_content="hm") + chunk(content=SAID) + chunk("stop") + DONE
    async with serving(answer(body)) as server:
        result = await Agent(resolve_model("openai-chat:m", base_url=server.url, api_key="k")).run("go")

    assert result.messages[-1].parts == PARTED


@pytest.mark.parametrize("name", ["llamacpp", "vllm", "ollama", "lmstudio", "huggingface"])
async def test_the_opening_tag_may_be_missing_where_a_vendor_is_known_to_leave_it_out(name: str) -> None:
    _, _, parts = await streamed(name, "hm\n</think>", "\n\nans")

    assert parts == PARTED


@pytest.mark.parametrize("said", ["The tag `</think>` ends it.", "a <think> b </think> c", "none"])
async def test_a_tag_that_is_only_spoken_of_stays(said: str) -> None:
    _, _, parts = await streamed("vllm", said)

    assert parts == (Text(said),)


@pytest.mark.parametrize("name", ["openai-chat", "vllm"])
async def test_an_option_of_the_model_turns_it_off(name: str) -> None:
    assert await streamed(name, *SAID, thinking_tags="off") == ("", SAID, (Text(SAID),))


async def test_an_option_of_the_model_expects_a_missing_opening_tag_anywhere() -> None:
    assert (await streamed("together", "hm</think>ans", thinking_tags="closing"))[2] == PARTED


@pytest.mark.parametrize("option", ["thinking_tags", "text_calls"])
def test_an_unknown_word_for_the_option_is_refused(option: str) -> None:
    with pytest.raises(ConfigurationError, match=option):
        resolve_model("vllm:m", **{option: "maybe"})
