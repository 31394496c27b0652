"""Gemini's JSON, read by plain means and without any code of its adapter."""

import json
from collections.abc import Iterator
from typing import Any

from _replay import Call, Exchange, Outcome, Stretch

from treadle.messages import Media
from treadle.tools import JsonObject

HOSTS = ("generativelanguage.googleapis.com", "aiplatform.googleapis.com")


def model_of(exchange: Exchange) -> str:
    return "gemini:" + exchange.path.rpartition("/")[2].partition(":")[0]


def either(holder: Any, camel: str, snake: str) -> Any:
    return holder.get(camel, holder.get(snake))


def parts_of(body: str) -> list[Any]:
    """Return the parts of an answer that is whole or, as the synthetic ones are, a stream."""
    if not body.startswith("data:"):
        return parts_in(body)
    return [part for line in body.splitlines() if line for part in parts_in(line.removeprefix("data: "))]


def parts_in(chunk: str) -> list[Any]:
    candidates = json.loads(chunk).get("candidates") or [{}]
    return candidates[0].get("content", {}).get("parts", [])


class Oracle:
    """Reads recorded traffic of this dialect."""

    def tools(self, request: Any) -> Iterator[tuple[str, str, JsonObject]]:
        listed = request.get("tools") or []
        for one in [listed] if isinstance(listed, dict) else listed:
            for declared in either(one, "functionDeclarations", "function_declarations") or ():
                schema = either(declared, "parametersJsonSchema", "parameters_json_schema") or declared["parameters"]
                # The recorded client refused unknown arguments and told the model so; here the stub tells it the same words.
                open_schema = {word: value for word, value in schema.items() if word != "additionalProperties"}
                yield declared["name"], declared.get("description", ""), open_schema

    def task(self, request: Any) -> str:
        said = [
            "".join(part.get("text", "") for part in content["parts"])
            for content in request["contents"]
            if content["role"] == "user"
        ]
        return [words for words in said if words][-1]

    def calls(self, body: str) -> list[Call]:
        return calls_in(parts_of(body))

    def text(self, body: str) -> str:
        return "".join(part["text"] for part in parts_of(body) if "text" in part and not part.get("thought"))

    def told(self, request: Any) -> list[Call]:
        return [call for content in request["contents"] for call in calls_in(content["parts"])]

    def outcomes(self, request: Any) -> dict[str, Outcome]:
        found: dict[str, Outcome] = {}
        for content in request["contents"]:
            for part in content["parts"]:
                response = either(part, "functionResponse", "function_response")
                media = media_of(part)
                if response is not None:
                    last = response.get("id") or f"#{len(found)}"
                    inside = [one for file in response.get("parts", ()) for one in media_of(file)]
                    found[last] = outcome_of(response["response"], tuple(inside))
                elif media and found and content["role"] == "user":  # files that follow the results
                    told = found[last]
                    found[last] = told._replace(media=(*told.media, *media))
        return found


ORACLE = Oracle()


def calls_in(parts: list[Any]) -> list[Call]:
    calls = [either(part, "functionCall", "function_call") for part in parts]
    return [Call(one.get("id", ""), one["name"], one["args"]) for one in calls if one is not None]


def outcome_of(response: Any, media: tuple[Media, ...]) -> Outcome:
    for word in ("return_value", "output", "error"):
        if response.keys() == {word}:
            value = response[word]
            words = value if isinstance(value, str) else json.dumps(value)
            return Outcome(words, media, is_error=word == "error")
    return Outcome(json.dumps(response), media)


def media_of(part: Any) -> list[Media]:
    blob, link = either(part, "inlineData", "inline_data"), either(part, "fileData", "file_data")
    if blob is not None:
        content = blob["data"].replace("-", "+").replace("_", "/")
        return [Media(media_type=either(blob, "mimeType", "mime_type"), base64=content)]
    if link is not None:
        return [Media(media_type=either(link, "mimeType", "mime_type"), url=either(link, "fileUri", "file_uri"))]
    return []


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


# --- playing ---------------------------------------------------------------------------------------------------------


def stretch(exchanges: tuple[Exchange, ...], *, in_other_form: bool = False) -> Stretch:
    """Return how exchanges are played: as recorded, which is whole, or as a stream."""
    return Stretch(
        exchanges=exchanges,
        oracle=ORACLE,
        model=model_of(exchanges[0]),
        stream=in_other_form,
        bodies=[streamed(one.body) for one in exchanges] if in_other_form else None,
    )


def streamed(body: str) -> str:
    """Return the same answer as a stream: each text in three pieces, each other part by itself, the end last. Synthetic."""
    whole = json.loads(body)
    (candidate,) = whole["candidates"]
    parts = [piece for part in candidate["content"].get("parts", ()) for piece in pieces_of(part)]
    ending = {**candidate, "content": {"role": "model", "parts": [{"text": ""}]}}
    chunks = [{"candidates": [{"content": {"role": "model", "parts": [part]}, "index": 0}]} for part in parts]
    chunks.append({**whole, "candidates": [ending]})
    return "".join(f"data: {json.dumps(one)}\r\n\r\n" for one in chunks)


def pieces_of(part: Any) -> list[Any]:
    if "text" not in part:
        return [part]
    words = part["text"]
    third = len(words) // 3
    plain = {key: value for key, value in part.items() if key != "thoughtSignature"}
    cut = [words[:third], words[third : 2 * third], words[2 * third :]]
    # The signature comes with the last piece.
    return [{**plain, "text": one} for one in cut[:2]] + [{**part, "text": cut[2]}]
