"""Chat Completions, read without any code of its adapter: one message, or the deltas of a stream put together by index."""

import json
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from _replay import Call, Exchange, Outcome, Stretch, said_again

from treadle.messages import Media
from treadle.mock.dialects.openai_chat import ChatCompletions
from treadle.tools import JsonObject

_AUDIO = {"mp3": "audio/mpeg", "wav": "audio/wav"}


class Oracle:
    """Reads recorded traffic of this dialect."""

    def tools(self, request: Any) -> Iterator[tuple[str, str, JsonObject]]:
        for tool in request.get("tools") or []:
            one = tool["function"]
            yield one["name"], one.get("description") or "", one["parameters"]

    def task(self, request: Any) -> str:
        """Return the last words of the person, but for those that only show the files of results."""
        messages = [{"role": "nobody"}, *request["messages"]]
        said = [
            later["content"]
            for earlier, later in pairwise(messages)
            if later["role"] == "user" and earlier["role"] != "tool"
        ]
        return text_of(said[-1])

    def calls(self, body: str) -> list[Call]:
        found: dict[int, list[str]] = {}
        for delta in deltas(body):
            for place, one in enumerate(delta.get("tool_calls") or []):
                parts = found.setdefault(one.get("index", place), ["", "", ""])
                parts[0] = parts[0] or one.get("id") or ""
                parts[1] = parts[1] or one["function"].get("name") or ""
                parts[2] += one["function"].get("arguments") or ""
        return [Call(one[0], one[1], json.loads(one[2] or "{}")) for _, one in sorted(found.items())]

    def text(self, body: str) -> str:
        return "".join(delta.get("content") or delta.get("refusal") or "" for delta in deltas(body))

    def told(self, request: Any) -> list[Call]:
        made = [one for message in request["messages"] for one in message.get("tool_calls") or []]
        return [Call(one["id"], one["function"]["name"], json.loads(one["function"]["arguments"])) for one in made]

    def outcomes(self, request: Any) -> dict[str, Outcome]:
        found: dict[str, Outcome] = {}
        last = ""
        for message in request["messages"]:
            if message["role"] == "tool":
                last = message["tool_call_id"]
                found[last] = Outcome(text_of(message["content"]))
            elif message["role"] == "user" and last:  # it shows the files of the results before it
                found[last] = found[last]._replace(media=tuple(media_in(message["content"])))
                last = ""
            else:
                last = ""
        return found


ORACLE = Oracle()


def deltas(body: str) -> list[Any]:
    if body.lstrip().startswith("{"):
        return [json.loads(body)["choices"][0].get("message", {})]
    chunks = [json.loads(line[6:]) for line in body.splitlines() if line.startswith("data: {")]
    return [choice["delta"] for chunk in chunks for choice in chunk["choices"]]


def thought(body: str) -> str:
    return "".join(delta.get("reasoning_content") or delta.get("reasoning") or "" for delta in deltas(body))


def text_of(content: Any) -> str:
    return content if isinstance(content, str) else "".join(piece.get("text", "") for piece in content)


def media_in(content: Any) -> Iterator[Media]:
    for piece in content if isinstance(content, list) else []:
        match piece:
            case {"type": "input_audio", "input_audio": {"data": data, "format": form}}:
                yield Media(media_type=_AUDIO[form], base64=data)
            case {"type": "image_url", "image_url": {"url": url}} | {"type": "file", "file": {"file_data": url}}:
                found = re.fullmatch(r"data:([^;]+);base64,(.*)", url, re.DOTALL)
                yield Media(media_type=found[1], base64=found[2]) if found else Media(media_type="image/png", url=url)


# --- playing ---------------------------------------------------------------------------------------------------------


def of(exchanges: tuple[Exchange, ...]) -> tuple[Exchange, ...]:
    """Return what was asked in this dialect: some recordings hold other traffic, too."""
    return tuple(one for one in exchanges if one.path.endswith("/chat/completions"))


def stretch(exchanges: tuple[Exchange, ...], *, in_other_form: bool = False) -> Stretch:
    return said_again(exchanges, ChatCompletions(), ORACLE, "openai-chat:m", in_other_form=in_other_form)
