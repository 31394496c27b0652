"""Importing: conversations that another library has kept, as messages of a session. Knows their forms, and imports none of them."""

import mimetypes
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import msgspec

from treadle.errors import ConfigurationError, SessionConflict, shown
from treadle.events import MessageAdded
from treadle.fields import checked_but
from treadle.messages import Media, Message, Result, Text, ToolCall
from treadle.redaction import redacted_logger
from treadle.sessions.session import Session

__all__ = ["import_messages"]

logger = redacted_logger(__name__)


class _Dropped(NamedTuple):
    """What is not imported."""

    kind: str
    """What its library calls it."""


_Piece: TypeAlias = Text | Media | ToolCall | Result | _Dropped
_Said: TypeAlias = tuple[str, _Piece]
"""Who said a piece: `user`, `assistant` or `tool`."""

_NO_RESULT = "The conversation was imported without the result of this call."


@checked_but("messages")
async def import_messages(session: Session, messages: Sequence[Any] | bytes | str) -> int:
    """Add the conversation that another library has kept to a session, and return how many messages that are.

    It takes message lists of pydantic-ai (`result.all_messages()`), of the OpenAI Agents SDK (`result.to_input_list()`), of LangChain and
    LangGraph (`state["messages"]`, `messages_to_dict`), and plain lists of OpenAI's Chat Completions and Responses and of Anthropic's Messages: as
    objects, as dicts, or as a JSON list.

    System prompts are left out, because the agent has its instructions, and so is reasoning, which only its provider can read. A call without a result
    gets one that says so. Of tools that a provider ran itself, such as a search of the web, the texts are kept. What is left out else is named in one
    warning: items of such tools without a text, and results at the beginning of a history that was cut after their calls.

    Example:
        async with open_session("agent.db", id="ticket-7") as session:
            await import_messages(session, Path("ticket-7.json").read_bytes())
            await agent.run("Continue", session=session)

    Args:
        session: A session whose calls all have results, such as a new one.
        messages: The messages, from the first to the last.

    Raises:
        ConfigurationError: A message has an unknown form, or a result later in the list answers no call. Nothing was added.
        SessionConflict: A call of the session has no result yet.
        SessionHeld: A run of the session is under way.
    """
    made = _assembled(_listed(messages))
    async with session.held():
        if session.state.has_open_calls:
            raise SessionConflict(f"Session {session.id!r} has calls without a result: resume its run first.")
        if made:
            events = [MessageAdded(message=message, source="import") for message in made]
            await session.ledger.record(*events, durable=True)
    return len(made)


def _listed(messages: Any) -> list[_Said]:
    if isinstance(messages, bytes | str):
        try:
            messages = msgspec.json.decode(messages)
        except (msgspec.DecodeError, UnicodeError) as error:
            raise ConfigurationError(f"The messages are not valid JSON: {error}.") from error
    if not isinstance(messages, Sequence):
        raise ConfigurationError(f"messages is a list of messages, or its JSON; got {shown(messages)}.")
    said: list[_Said] = []
    for number, message in enumerate(messages, start=1):
        try:
            said += _pieces_of(_plain(message))
        except _Unknown as unknown:
            raise ConfigurationError(
                f"Message {number} cannot be imported: {unknown}. Leave that out, or write it as text."
            ) from None
    if dropped := Counter(piece.kind for _, piece in said if isinstance(piece, _Dropped)):
        kinds = ", ".join(f"{count} of {kind}" for kind, count in dropped.items())
        logger.warning("Not imported, because it has no text that another model could read: %s", kinds)
    return [one for one in said if not isinstance(one[1], _Dropped)]


class _Unknown(Exception):
    """A form that nobody here knows; the message says which."""


def _plain(value: Any) -> Any:
    """Return a message as JSON values: an object of a library as its own fields."""
    if isinstance(value, Mapping):
        return dict(value)
    from pydantic_core import to_jsonable_python

    return to_jsonable_python(value)


def _pieces_of(message: Any) -> Iterator[_Said]:
    """Yield what is said in one message of any known library."""
    match message:
        case {"kind": "request" | "response", "parts": list(parts)}:  # pydantic-ai
            for part in parts:
                yield from _of_pydantic_ai(part)
        case {"type": "human" | "ai" | "tool" | "system" as role, "data": dict(data)}:  # LangChain, messages_to_dict
            yield from _of_langchain(role, data)
        case {"type": "human" | "ai" | "tool" | "system" as role}:  # LangChain, an object
            yield from _of_langchain(role, message)
        case _:
            yield from _of_openai(message)


def _of_openai(message: Any) -> Iterator[_Said]:
    """Yield what is said in an item of OpenAI's Responses, or in a message of its Chat Completions or of Anthropic."""
    match message:
        case {"type": "function_call", "call_id": str(call_id), "name": str(name)}:
            yield "assistant", _call(call_id, name, message.get("arguments"))
        case {"type": "function_call_output", "call_id": str(call_id)}:
            yield "tool", _result(call_id, message.get("output"))
        case {"type": "reasoning"} | {"role": "system" | "developer"}:
            return
        case {"role": "tool", "tool_call_id": str(call_id)}:
            yield "tool", _result(call_id, message.get("content"))
        case {"role": "user" | "assistant" as role}:
            for piece in (*_content(message.get("content")), *_content(message.get("refusal"))):
                yield "tool" if isinstance(piece, Result) else role, piece
            for call in message.get("tool_calls") or ():
                function = call.get("function") or {}
                yield "assistant", _call(call.get("id"), function.get("name"), function.get("arguments"))
        case {"type": str(kind)} if _is_hosted(kind):
            yield "assistant", _hosted(message, kind)
        case _:
            raise _Unknown(f"its form is unknown: {shown(message)}")


def _of_pydantic_ai(part: Any) -> Iterator[_Said]:
    match part:
        case {"part_kind": "user-prompt"}:
            for piece in _content(part.get("content")):
                yield "user", piece
        case {"part_kind": "text", "content": str(text)}:
            yield "assistant", Text(text)
        case {"part_kind": "tool-call"}:
            yield "assistant", _call(part.get("tool_call_id"), part.get("tool_name"), part.get("args"))
        case {"part_kind": "tool-return", "tool_call_id": str(call_id)}:
            failed = part.get("outcome") in ("failed", "denied")
            yield "tool", _result(call_id, part.get("content"), is_error=failed)
        case {"part_kind": "retry-prompt", "tool_call_id": str(call_id), "tool_name": str()}:
            yield "tool", _result(call_id, part.get("content"), is_error=True)
        case {"part_kind": "retry-prompt"}:
            yield "user", Text(_text(part.get("content")))
        case {"part_kind": "system-prompt" | "instruction" | "thinking"}:
            return
        case {"part_kind": "builtin-tool-call" | "builtin-tool-return" | "compaction" | "file" as kind}:
            yield "assistant", _hosted(part, kind)
        case _:
            raise _Unknown(f"a part of it has an unknown form: {shown(part)}")


def _of_langchain(role: str, data: dict[str, Any]) -> Iterator[_Said]:
    content = data.get("content")
    if role == "tool":
        yield "tool", _result(data.get("tool_call_id"), content, is_error=data.get("status") == "error")
    elif role != "system":
        calls = data.get("tool_calls") or ()
        for piece in _content(content):
            if not (calls and isinstance(piece, ToolCall)):  # a provider's own block of a call that is listed too
                yield "assistant" if role == "ai" else "user", piece
        for call in calls:
            yield "assistant", _call(call.get("id"), call.get("name"), call.get("args"))


def _content(content: Any) -> Iterator[_Piece]:
    """Yield the pieces of a content: a text, or a list of parts."""
    for part in [content] if isinstance(content, str | dict) else content or ():
        match part:
            case str() | {"type": "text" | "input_text" | "output_text", "text": str()}:
                yield Text(part if isinstance(part, str) else part["text"])
            case {"type": "refusal", "refusal": str(text)}:
                yield Text(text)
            case {"type": "tool_use" | "tool_call", "id": call_id, "name": name}:  # Anthropic, LangChain
                yield _call(call_id, name, part.get("input", part.get("args")))
            case {"type": "tool_result", "tool_use_id": call_id}:
                yield _result(call_id, part.get("content"), is_error=bool(part.get("is_error")))
            case {"type": "thinking" | "redacted_thinking" | "reasoning"}:
                continue
            case {"type": str(kind)} if _is_hosted(kind):
                yield _hosted(part, kind)
            case _:
                yield _media(part)


# --- Tools that a provider ran itself. Nobody can make their calls again, so only their words are imported.

_HOSTED = (
    "_call",
    "_call_output",
    "_tool_use",
    "_tool_result",
    "_list_tools",
    "_approval_request",
    "_approval_response",
)
"""What the types of their items and blocks end with."""
_ALSO_HOSTED = ("compaction", "container_upload", "item_reference", "tool_search_output")


def _is_hosted(kind: str) -> bool:
    return (kind.endswith(_HOSTED) or kind in _ALSO_HOSTED) and kind not in ("function_call", "function_call_output")


def _hosted(item: dict[str, Any], kind: str) -> Text | _Dropped:
    words = "\n".join(_words(item))
    return Text(f"[{item.get('name') or item.get('tool_name') or kind}] {words}") if words else _Dropped(kind)


def _words(value: Any, name: str = "") -> Iterator[str]:
    """Yield what an item says, wherever it stands in it: no names, numbers, addresses or ciphers."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _words(inner, key)
    elif isinstance(value, list):
        for inner in value:
            yield from _words(inner, name)
    elif isinstance(value, str) and value.strip() and name in ("text", "output", "logs", "stdout", "stderr", "content"):
        yield value


def _media(part: Any) -> Media:
    match part:
        case {"type": "image_url" | "input_image", "image_url": {"url": str(url)} | str(url)}:
            return _linked(url, "image/*")
        case {"kind": "image-url" | "document-url" | "audio-url" | "video-url" as kind, "url": str(url)}:
            return _linked(url, f"{kind.partition('-')[0]}/*")
        case {"type": "image" | "document" as kind, "source": {"type": "url", "url": str(url)}}:
            return _linked(url, f"{kind}/*")
        case {"source": {"type": "base64", "media_type": str(media_type), "data": str(data)}}:
            return Media(media_type=media_type, base64=data)
        case {"kind": "binary", "media_type": str(media_type), "data": str(data)}:
            return Media(media_type=media_type, base64=data)
        case _:
            raise _Unknown(f"a part of its content has an unknown form: {shown(part)}")


def _linked(url: str, kind: str) -> Media:
    head, comma, data = url.partition(";base64,")
    if comma and head.startswith("data:"):
        return Media(media_type=head.removeprefix("data:"), base64=data)
    return Media(media_type=mimetypes.guess_type(url)[0] or kind, url=url)


def _call(call_id: Any, name: Any, arguments: Any) -> ToolCall:
    if not isinstance(call_id, str) or not isinstance(name, str):
        raise _Unknown(f"a call needs an id and a name; got {shown(call_id)} and {shown(name)}")
    text = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments or {}).decode()
    return ToolCall(id=call_id, name=name, arguments=text)


def _result(call_id: Any, content: Any, *, is_error: bool = False) -> Result:
    if not isinstance(call_id, str):
        raise _Unknown(f"a result needs the id of its call; got {shown(call_id)}")
    texts, media = _with_media(content)
    return Result(call_id=call_id, name="", content=_text(texts), is_error=is_error, media=media)


def _with_media(content: Any) -> tuple[Any, tuple[Media, ...]]:
    """Return what a result says, and its images and files. A value that is not a list of parts is as it is."""
    texts, media = list[Any](), list[Media]()
    for part in content if isinstance(content, list) else ():
        try:
            media.append(_media(part))
        except _Unknown:
            texts.append(part)
    return (texts, tuple(media)) if media else (content, ())


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list) and all(
        isinstance(part, dict) and isinstance(part.get("text"), str) for part in content
    ):
        return "".join(part["text"] for part in content)
    return msgspec.json.encode(content).decode()


# --- From pieces to messages: the pieces of one speaker in a row are one message, and the results of one message are one, in the
# order of its calls.


def _assembled(said: list[_Said]) -> list[Message]:
    messages: list[Message] = []
    names: dict[str, int] = {}
    speaker, pieces, results = "", list[Any](), dict[str, Result]()
    for role, piece in [*said, ("", Text(""))]:
        if isinstance(piece, Result):
            results[piece.call_id] = piece
            continue
        if role != speaker or results:
            if not speaker and results:
                logger.warning(
                    "The history begins after a call: the results of %s were not imported, because their calls are not in it",
                    ", ".join(results),
                )
                results = {}
            messages += _turn(speaker, pieces, results, names)
            speaker, pieces, results = role, [], {}
        pieces.append(piece)
    return messages


def _turn(speaker: str, pieces: list[Any], results: dict[str, Result], names: dict[str, int]) -> Iterator[Message]:
    calls = [piece for piece in pieces if isinstance(piece, ToolCall)]
    if stray := results.keys() - {call.id for call in calls}:
        raise ConfigurationError(
            f"The result {shown(min(stray))} answers no call of the message before it. Leave it out, or import its call too."
        )
    if not pieces:
        return
    ids = {call.id: _unique(call.id, names) for call in calls}
    parts = [
        msgspec.structs.replace(one, id=ids[one.id]) if isinstance(one, ToolCall) else one
        for one in pieces
        if one != Text("")
    ]
    if parts:
        yield Message(role="assistant" if speaker == "assistant" else "user", parts=tuple(parts))
    if calls:
        answers = []
        for call in calls:
            missing = Result(call_id="", name="", content=_NO_RESULT, is_error=True)
            answers.append(msgspec.structs.replace(results.get(call.id, missing), call_id=ids[call.id], name=call.name))
        yield Message(role="tool", parts=tuple(answers))


def _unique(call_id: str, names: dict[str, int]) -> str:
    """Return an id that no other call of the conversation has: some servers repeat theirs."""
    names[call_id] = count = names.get(call_id, 0) + 1
    return call_id if count == 1 else f"{call_id}_{count}"
