"""Results: what a server answered, as a result of ours. Believes nothing: what is not fit for a model is named in its place."""

import base64
import binascii
from typing import Any, NoReturn

import mcp_types as types
from mcp import MCPError
from mcp_types.jsonrpc import (
    CONNECTION_CLOSED,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
)

from treadle.messages import Media
from treadle.tools import CallStatus, ToolOutput, Unfinished
from treadle.tools.outputs import ServiceLost
from treadle.toolsets.mcp.refusals import refusal_in
from treadle.toolsets.mcp.texts import shortened, visible

__all__ = ["fail", "output_of", "text_of"]

_SHOWN_TYPES = frozenset(
    {"image/png", "image/jpeg", "image/gif", "image/webp", "audio/wav", "audio/mpeg", "audio/mp3", "application/pdf"}
)
_MAX_MEDIA_CHARS = 7_000_000
"""Characters of base64 of one image or file that a model is shown: providers refuse a request that holds a larger one."""
_NOT_DONE = frozenset({INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND})
"""Errors that say that the server did not begin."""
_ENDED = ("Connection closed", "SSE stream ")
_UNREADABLE = ("Failed to parse ", "server answered a request with 202", "Unexpected content type")
"""How the package's own errors begin. The same codes from a server mean what the server says."""


def output_of(answer: types.CallToolResult, *, server: str, is_read: bool) -> ToolOutput:
    """Return a tool's result as ours: structured content is the value where there is any, else the text is.

    Raises:
        Unfinished: The server says that the tool failed; its words are the result's details.
    """
    texts: list[str] = []
    media: list[Media] = []
    for block in answer.content:
        _take(block, texts, media)
    text = "\n".join(texts)
    if answer.is_error:
        said = answer.structured_content if answer.structured_content is not None and not text else text
        raise Unfinished(
            CallStatus.FAILED,
            f"The tool reports an error, in the words of `details`. MCP server {server!r} sent them.",
            body=said,
            code="tool_error",
            may_have_acted=not is_read,
        )
    if answer.structured_content is not None:
        return ToolOutput(data=answer.structured_content, media=tuple(media), display=text or None)
    return ToolOutput(data=text, media=tuple(media))


def text_of(answer: types.CallToolResult) -> str:
    """Return the words of a result alone."""
    texts: list[str] = []
    for block in answer.content:
        _take(block, texts, [])
    return "\n".join(texts)


def fail(error: MCPError, *, server: str, is_read: bool) -> NoReturn:
    """Raise what an error of the protocol means for a call.

    Raises:
        ConnectionError: The connection was lost: the call may have been carried out.
        Unfinished: The server refused the request, or could not carry it out.
    """
    said = shortened(visible(error.message), 500)
    if error.code == CONNECTION_CLOSED and error.message.startswith(_ENDED):
        raise ServiceLost(f"The connection to MCP server {server!r} was lost.") from error
    is_unreadable = error.code in (PARSE_ERROR, INVALID_REQUEST) and error.message.startswith(_UNREADABLE)
    refusal = refusal_in(error.data)
    not_done = refusal.not_done if refusal is not None else False
    not_done = not_done or (error.code in _NOT_DONE and not is_unreadable)
    what = "refused the call" if not_done else "could not carry out the call"
    why = f"error {error.code}" if refusal is None else refusal.words
    raise Unfinished(
        CallStatus.UNEXPECTED_RESULT_SHAPE if is_unreadable else CallStatus.FAILED,
        f"MCP server {server!r} {what} ({why}): {said}",
        code="mcp_error" if refusal is None else refusal.code,
        may_have_acted=not is_read and not not_done,
    ) from error


def _take(block: Any, texts: list[str], media: list[Media]) -> None:  # Any: the union of the package
    match block:
        case types.TextContent(text=text):
            texts.append(text)
        case types.ImageContent(data=data, mime_type=kind) | types.AudioContent(data=data, mime_type=kind):
            _take_media(data, kind, None, texts, media)
        case types.EmbeddedResource(resource=types.TextResourceContents(uri=uri, text=text)):
            texts.append(f"[resource {visible(str(uri))}]\n{text}")
        case types.EmbeddedResource(resource=types.BlobResourceContents(uri=uri, blob=data, mime_type=kind)):
            _take_media(data, kind or "application/octet-stream", visible(str(uri)), texts, media)
        case types.ResourceLink(uri=uri, name=name, mime_type=kind):
            texts.append(
                f"[link to resource {visible(str(uri))}: {visible(name)}{f' ({visible(kind)})' if kind else ''}]"
            )
        case _:
            texts.append(f"[content of an unknown type: {visible(str(getattr(block, 'type', '')))[:50]}]")


def _take_media(data: str, kind: str, name: str | None, texts: list[str], media: list[Media]) -> None:
    """Take an image or a file; one that a provider would refuse, and with it each later request, is named instead."""
    plain = kind.partition(";")[0].strip().lower()
    what = f"{shortened(visible(plain), 100)}{f', {name}' if name else ''}"
    try:
        size = len(base64.b64decode(data, validate=True))
    except (binascii.Error, ValueError):
        texts.append(f"[{what}: left out, because its base64 is invalid]")
        return
    if plain not in _SHOWN_TYPES or len(data) > _MAX_MEDIA_CHARS or not size:
        texts.append(f"[{what}: {size:,} bytes, not shown]")
        return
    media.append(Media(media_type=plain, base64=data, name=name))
