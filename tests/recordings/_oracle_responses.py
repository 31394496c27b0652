"""OpenAI Responses, read without any code of its adapter: items of bodies, or of `response.output_item.done` events."""

import json
import re
from collections.abc import Iterator
from typing import Any

from _replay import Call, Exchange, Outcome, Stretch, said_again

from treadle.messages import Media
from treadle.mock.dialects.openai_responses import Responses
from treadle.tools import JsonObject

HOST = "api.openai.com"


class Oracle:
    """Reads recorded traffic of this dialect."""

    def tools(self, request: Any) -> Iterator[tuple[str, str, JsonObject]]:
        for tool in request.get("tools") or []:
            if tool["type"] == "function":
                yield tool["name"], tool.get("description") or "", tool["parameters"]

    def task(self, request: Any) -> str:
        said = [item["content"] for item in request["input"] if item.get("role") == "user"]
        return next(words for words in reversed(said) if isinstance(words, str))

    def calls(self, body: str) -> list[Call]:
        return calls_in(items(body))

    def text(self, body: str) -> str:
        return "".join(
            piece["text"]
            for item in items(body)
            if item["type"] == "message"
            for piece in item["content"]
            if piece["type"] == "output_text"
        )

    def told(self, request: Any) -> list[Call]:
        return calls_in(request["input"])

    def outcomes(self, request: Any) -> dict[str, Outcome]:
        outputs = [item for item in request["input"] if item.get("type") == "function_call_output"]
        return {item["call_id"]: outcome(item["output"]) for item in outputs}


ORACLE = Oracle()


def items(body: str) -> list[Any]:
    if body.lstrip().startswith("{"):
        return json.loads(body)["output"]
    events = [json.loads(line[6:]) for line in body.splitlines() if line.startswith("data: {")]
    return [event["item"] for event in events if event["type"] == "response.output_item.done"]


def usage(body: str) -> JsonObject:
    if body.lstrip().startswith("{"):
        return json.loads(body)["usage"]
    events = [json.loads(line[6:]) for line in body.splitlines() if line.startswith("data: {")]
    return next(event["response"]["usage"] for event in events if event["type"] == "response.completed")


def calls_in(found: list[Any]) -> list[Call]:
    calls = [item for item in found if item.get("type") == "function_call"]
    return [Call(item["call_id"], item["name"], json.loads(item["arguments"])) for item in calls]


def outcome(output: Any) -> Outcome:
    if isinstance(output, str):
        return Outcome(output)
    words = "".join(piece["text"] for piece in output if piece["type"] == "input_text")
    return Outcome(words, tuple(media_of(piece) for piece in output if piece["type"] != "input_text"))


def media_of(piece: Any) -> Media:
    url = piece.get("image_url") or piece.get("file_data") or piece.get("file_url") or piece["file_id"]
    if data := re.fullmatch(r"data:([^;]+);base64,(.*)", url, re.DOTALL):
        return Media(media_type=data[1], base64=data[2])
    return Media(media_type="image/png" if piece["type"] == "input_image" else "application/pdf", url=url)


# --- playing ---------------------------------------------------------------------------------------------------------


def stretch(exchanges: tuple[Exchange, ...], *, in_other_form: bool = False) -> Stretch:
    return said_again(exchanges, Responses(), ORACLE, "openai:m", in_other_form=in_other_form)
