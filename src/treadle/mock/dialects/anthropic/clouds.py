"""Anthropic Messages behind a cloud's door: Bedrock's InvokeModel and Vertex's rawPredict. Checks what differs there; the rest is the dialect."""

import re
from base64 import b64encode
from collections.abc import Iterator, Mapping
from typing import Any, Literal, TypeAlias

import msgspec

from treadle.mock.dialects.answers import Answer, Dialect, Piece, Refusal
from treadle.mock.dialects.anthropic.dialect import AnthropicMessages
from treadle.mock.dialects.aws_errors import aws_error, aws_exception
from treadle.mock.dialects.event_stream import event_frame, exception_frame
from treadle.mock.dialects.rendering import json_bytes
from treadle.mock.turns import Turn
from treadle.tools import JsonObject

__all__ = ["ClaudeAtACloud", "claude_dialects"]

_Cloud: TypeAlias = Literal["bedrock", "vertex"]

_VERSIONS = {"bedrock": "bedrock-2023-05-31", "vertex": "vertex-2023-10-16"}
_PATHS = {
    ("bedrock", False): ("/invoke", re.compile(r"/model/([A-Za-z0-9._~-]|%[0-9A-F]{2}){1,2048}/invoke")),
    ("bedrock", True): (
        "/invoke-with-response-stream",
        re.compile(r"/model/([A-Za-z0-9._~-]|%[0-9A-F]{2}){1,2048}/invoke-with-response-stream"),
    ),
    ("vertex", False): (":rawPredict", re.compile(r"/publishers/anthropic/models/[A-Za-z0-9._@%-]+:rawPredict")),
    ("vertex", True): (
        ":streamRawPredict",
        re.compile(r"/publishers/anthropic/models/[A-Za-z0-9._@%-]+:streamRawPredict"),
    ),
}
_DATA = re.compile(rb"data: (.*?)[\r\n]")


class ClaudeAtACloud:
    """Claude at one cloud, streamed or whole: the path says which.

    Args:
        cloud: Whose door it is.
        is_stream: Whether its answers are streams.
    """

    def __init__(self, cloud: _Cloud, *, is_stream: bool) -> None:
        self.path, self._whole_path = _PATHS[cloud, is_stream]
        self._cloud = cloud
        self._is_stream = is_stream
        self._inner = AnthropicMessages()

    def with_head(self, path: str, headers: Mapping[str, str]) -> "ClaudeAtACloud":
        if self._whole_path.search(path) is None:
            raise Refusal("The provided model identifier is invalid.")
        return self

    def check(self, body: Any) -> JsonObject:  # Any: JSON of strangers
        if not isinstance(body, dict):
            raise Refusal("Malformed input request: expected an object")
        version = _VERSIONS[self._cloud]
        if body.get("anthropic_version") != version:
            raise Refusal(f"anthropic_version: Input should be '{version}'")
        for key in ("model", *(("stream",) if self._cloud == "bedrock" else ())):
            if key in body:
                raise Refusal(f"{key}: Extra inputs are not permitted")
        if self._cloud == "vertex" and body.get("stream", False) is not self._is_stream:
            raise Refusal("stream: Input should agree with the method")
        if self._cloud == "bedrock" and _has_url(body.get("messages")):
            raise Refusal("messages: URL sources are not supported")
        betas = body.get("anthropic_beta", [])
        if not isinstance(betas, list) or not all(isinstance(beta, str) for beta in betas):
            raise Refusal("anthropic_beta: Input should be a valid list")
        rest = {key: value for key, value in body.items() if key not in ("anthropic_version", "anthropic_beta")}
        return self._inner.check({**rest, "model": "claude", "stream": self._is_stream})

    def answer(self, turn: Turn, body: JsonObject, *, number: int, ids: Iterator[str]) -> Answer:
        answer = self._inner.answer(turn, body, number=number, ids=ids)
        if self._cloud == "vertex":
            return answer
        if not self._is_stream:
            if turn.error is not None:
                return Answer(pieces=(Piece(kind="whole", content=aws_error(turn.status, turn.error)),))
            return answer
        pieces = tuple(_framed(piece, turn) for piece in answer.pieces)
        return Answer(pieces=pieces, content_type="application/vnd.amazon.eventstream", is_stream=True)

    def error(
        self, status: int, error: str | JsonObject, *, param: str | None = None, code: str | None = None
    ) -> bytes:
        return aws_error(status, error) if self._cloud == "bedrock" else self._inner.error(status, error)


def claude_dialects() -> list[Dialect]:
    """Return all doors."""
    return [
        ClaudeAtACloud("bedrock", is_stream=True),
        ClaudeAtACloud("bedrock", is_stream=False),
        ClaudeAtACloud("vertex", is_stream=True),
        ClaudeAtACloud("vertex", is_stream=False),
    ]


def _framed(piece: Piece, turn: Turn) -> Piece:
    """Return an event as Bedrock sends it: in base64, inside one of its own."""
    if piece.kind == "error" and turn.error is not None:
        return msgspec.structs.replace(piece, content=exception_frame(*aws_exception(turn.status, turn.error)))
    found = _DATA.search(piece.content)
    data = found[1] if found else b""
    content = event_frame("chunk", json_bytes({"bytes": b64encode(data).decode(), "p": "abc"}))
    return msgspec.structs.replace(piece, content=content)


def _has_url(value: Any) -> bool:
    if isinstance(value, list):
        return any(map(_has_url, value))
    if not isinstance(value, dict):
        return False
    source = value.get("source")
    return (isinstance(source, dict) and source.get("type") == "url") or _has_url(value.get("content"))
