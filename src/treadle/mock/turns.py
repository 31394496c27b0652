"""Turns: what a scripted model says in one response, faults included. Values only; reads no file, opens no socket."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from treadle.errors import ConfigurationError, check_kind
from treadle.fields import Documented, NamedOptions, checked
from treadle.messages import Finish, Usage

__all__ = [
    "Cut",
    "CutBy",
    "ScriptedCall",
    "Turn",
    "TurnLike",
    "Waitable",
    "as_turn",
    "call",
    "finish_of",
    "fragments",
    "text",
]

CutBy: TypeAlias = Literal["close", "reset", "clean", "stall", "endless"]
Cut: TypeAlias = (
    int
    | Literal["before-answer", "before-body", "mid-text", "mid-arguments", "before-terminal", "before-done", "reset"]
)


class Waitable(Protocol):
    """What a turn can wait at: an `asyncio.Event`, or a `Gate`."""

    async def wait(self) -> object: ...


class ScriptedCall(msgspec.Struct, Documented, frozen=True, kw_only=True, metaclass=NamedOptions):
    """One call that a scripted model proposes. `call(...)` makes it.

    Example:
        >>> ScriptedCall(name="rm", arguments="{broken").id is UNSET
        True
    """

    name: str
    """Name of the tool."""
    arguments: str = "{}"
    """The raw text, which need not be JSON."""
    id: str | UnsetType | None = UNSET
    """Unset for the next of call_1, call_2, ...; None to send no id at all."""


class Turn(msgspec.Struct, Documented, frozen=True, kw_only=True, metaclass=NamedOptions):
    """One scripted response.

    Example:
        >>> Turn(text="I look.", calls=(call("search", query="moon"),)).calls[0].name
        'search'

    Raises:
        ConfigurationError: The fields contradict each other, or a number is out of its range.
    """

    text: str | None = None
    """What the model says."""
    calls: tuple[ScriptedCall, ...] = ()
    """What the model wants done."""
    thinking: str | None = None
    """Reasoning, sent before the text."""
    refusal: str | None = None
    """The words of a refusal, in the dialect's own field."""
    finish: str | UnsetType | None = UNSET
    """Why the response ends: the dialect's word or ours; unset for the one that fits; None to send none."""
    usage: Usage | UnsetType | None = UNSET
    """Tokens to report; unset for an estimate where the client asked for usage; None to send none."""
    status: int = 200
    """The HTTP status."""
    headers: Mapping[str, str] = {}
    """Further headers, such as `retry-after`. A `content-length` is sent as it stands, true or not."""
    body: bytes | None = None
    """The whole body, sent as it stands instead of an answer."""
    error: Any = None  # Any: a message, or the JSON object of a vendor's error
    """What the error body says; in a stream of status 200, an error event after the content."""
    delay_ms: float = 0
    """Milliseconds before the first byte of the answer."""
    gap_ms: float = 0
    """Milliseconds between one write and the next."""
    chunk_size: int | None = None
    """Bytes a write; None for one event a write. A small one splits events and UTF-8 characters."""
    pieces: int = 3
    """Fragments that a text, or the arguments of one call, are streamed in."""
    interleave: bool = False
    """Whether the fragments of several calls come in turns instead of one call after the other."""
    prefix: bytes = b""
    """Bytes before the body: a byte order mark, comment lines."""
    newline: Literal["\n", "\r\n", "\r"] = "\n"
    """How the lines of a stream end."""
    cut: Cut | None = None
    """Where the answer breaks off: after so many bytes of the body, or at a named place."""
    bomb_bytes: int | None = None
    """Bytes of comment lines after the body, which goes out compressed, a thousandth as large."""
    cut_by: CutBy | None = None
    """How it breaks off; None for `clean` at `before-terminal` and `before-done`, `reset` at `reset`, else `close`."""
    gate: Waitable | str | None = None
    """What the answer waits at: an `asyncio.Event`, or the name of a gate of the model or server that plays the turn."""
    hold_after_call: int | None = None
    """Wait at the gate once the call at this position has been sent whole; None to wait before the answer."""
    hold_after_pieces: int | None = None
    """How many pieces of the stream are sent before the answer waits at the gate."""

    def __post_init__(self) -> None:
        _check_kinds(self)
        _check_headers(self.headers)
        _check_ranges(self)
        _check_cut(self)
        _check_hold(self)

    @property
    def header_fields(self) -> dict[str, str]:
        """The headers by lower-case name."""
        return {name.lower(): value for name, value in self.headers.items()}

    @property
    def how_cut(self) -> CutBy:
        """How the answer breaks off, defaults applied."""
        if self.cut_by is not None:
            return self.cut_by
        match self.cut:
            case "before-terminal" | "before-done":
                return "clean"
            case "reset":
                return "reset"
            case _:
                return "close"


TurnLike: TypeAlias = Turn | ScriptedCall | str | Sequence[Turn | ScriptedCall | str]
"""A turn, or what makes one: words, a call, or a list of them."""


@checked
def call(
    name: str,
    /,
    *,
    id: str | UnsetType | None = UNSET,  # noqa: A002 - the word of every wire format
    arguments: str | Mapping[str, Any] | None = None,
    **values: Any,  # Any: the JSON values of the call's arguments
) -> ScriptedCall:
    """Script one call. Arguments are keywords, or an object or raw text in `arguments`.

    Example:
        >>> call("rm", path="/").arguments
        '{"path": "/"}'
        >>> call("rm", arguments='{"path": ').arguments
        '{"path": '

    Raises:
        ConfigurationError: Both forms of arguments are given, or they are not JSON.
    """
    if arguments is not None and values:
        raise ConfigurationError(f"call({name!r}) has both arguments= and keywords; give one of them.")
    if isinstance(arguments, str):
        return ScriptedCall(name=name, arguments=arguments, id=id)
    return ScriptedCall(name=name, arguments=_raw(name, values if arguments is None else arguments), id=id)


@checked
def text(content: str, *, finish: str | UnsetType | None = UNSET, usage: Usage | UnsetType | None = UNSET) -> Turn:
    """Script one answer in words.

    Example:
        >>> text("Done.").text
        'Done.'
    """
    return Turn(text=content, finish=finish, usage=usage)


def as_turn(item: TurnLike) -> Turn:
    """Return one turn made of words, calls, or a list of both.

    In a list at most one turn may carry more than text and calls: its finish, usage and faults are the whole turn's.

    Raises:
        ConfigurationError: It is nothing of the kind.
    """
    match item:
        case Turn():
            return item
        case ScriptedCall():
            return Turn(calls=(item,))
        case str():
            return Turn(text=item)
        case list() | tuple() if item:
            return _joined([as_turn(part) for part in item])
    raise ConfigurationError(f"A turn is text(...), call(...), Turn(...) or a list of them; got {item!r:.80}.")


def finish_of(turn: Turn) -> Finish:
    """Return why a scripted response ends, in neutral words."""
    match turn.finish:
        case "stop" | "end_turn":
            return Finish.STOP
        case "calls" | "tool_calls" | "function_call" | "tool_use":
            return Finish.CALLS
        case "length" | "max_tokens":
            return Finish.LENGTH
        case "refused" | "content_filter" | "refusal":
            return Finish.REFUSED
        case str() | None:
            return Finish.UNKNOWN
        case _:
            return Finish.CALLS if turn.calls else Finish.REFUSED if turn.refusal is not None else Finish.STOP


def fragments(content: str, pieces: int) -> list[str]:
    """Split words into so many pieces of about one size, or fewer where there are fewer characters."""
    size = -(-len(content) // pieces) or 1
    return [content[start : start + size] for start in range(0, len(content), size)]


def _raw(name: str, arguments: Mapping[str, Any]) -> str:
    try:
        return json.dumps(dict(arguments), ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as exc:
        raise ConfigurationError(
            f"The arguments of call({name!r}) are not JSON: {exc}. Give broken ones as raw text in arguments=."
        ) from exc


def _joined(turns: Sequence[Turn]) -> Turn:
    plain = Turn()
    special = [turn for turn in turns if msgspec.structs.replace(turn, text=None, calls=()) != plain]
    if len(special) > 1:
        raise ConfigurationError("Two parts of one turn carry a finish, usage or fault; write them as one Turn(...).")
    texts = [turn.text for turn in turns if turn.text is not None]
    return msgspec.structs.replace(
        special[0] if special else plain,
        text="".join(texts) if texts else None,
        calls=tuple(made for turn in turns for made in turn.calls),
    )


def _check_kinds(turn: Turn) -> None:
    for name, value, kind in (
        ("text", turn.text, str),
        ("thinking", turn.thinking, str),
        ("refusal", turn.refusal, str),
        ("body", turn.body, bytes),
    ):
        if value is not None and not isinstance(value, kind):
            raise ConfigurationError(f"{name} must be {kind.__name__} or None; got {value!r:.80}.")
    if not isinstance(turn.calls, tuple) or not all(isinstance(made, ScriptedCall) for made in turn.calls):
        raise ConfigurationError(f"calls must be a tuple of call(...); got {turn.calls!r:.80}.")


def _check_headers(headers: Mapping[str, str]) -> None:
    check_kind("headers", headers, Mapping, "a mapping of text to text")
    for name, value in headers.items():
        line = f"{name}{value}"
        if (
            not isinstance(name, str)
            or not name
            or set(name) & set(" :")
            or not (line.isascii() and line.isprintable())
        ):
            raise ConfigurationError(
                f"headers has {name!r:.80}: {value!r:.80}, which is not a header on one line of ASCII."
            )


def _check_ranges(turn: Turn) -> None:
    check_kind("status", turn.status, int, "a number from 200 to 599")
    if not 200 <= turn.status <= 599:
        raise ConfigurationError(f"status must be from 200 to 599; got {turn.status}.")
    for name, number, least in (
        ("delay_ms", turn.delay_ms, 0),
        ("gap_ms", turn.gap_ms, 0),
        ("chunk_size", turn.chunk_size, 1),
        ("pieces", turn.pieces, 1),
        ("bomb_bytes", turn.bomb_bytes, 0),
        ("hold_after_call", turn.hold_after_call, 0),
        ("hold_after_pieces", turn.hold_after_pieces, 0),
    ):
        check_kind(name, number, (int, float, type(None)), f"a number of {least} or more")
        if number is not None and not least <= number < float("inf"):
            raise ConfigurationError(f"{name} must be a number of {least} or more; got {number}.")


def _check_cut(turn: Turn) -> None:
    if turn.cut_by is not None and turn.cut is None:
        raise ConfigurationError("cut_by needs cut: the number of bytes after which the answer breaks off.")
    if turn.bomb_bytes is not None and (turn.cut is not None or turn.gate is not None):
        raise ConfigurationError("bomb_bytes compresses the body whole: it goes with neither cut nor gate.")
    if turn.cut == "mid-text" and not turn.text:
        raise ConfigurationError("cut 'mid-text' needs a text.")
    if turn.cut == "mid-arguments" and not turn.calls:
        raise ConfigurationError("cut 'mid-arguments' needs a call.")
    if isinstance(turn.cut, int) and turn.cut < 0:
        raise ConfigurationError(f"cut must be a number of bytes of 0 or more; got {turn.cut}.")


def _check_hold(turn: Turn) -> None:
    holds = [turn.hold_after_call, turn.hold_after_pieces]
    if turn.gate is None and holds != [None, None]:
        raise ConfigurationError("hold_after_call and hold_after_pieces need a gate to wait at.")
    if None not in holds:
        raise ConfigurationError("hold_after_call and hold_after_pieces cannot both be given.")
    if turn.hold_after_call is not None and turn.hold_after_call >= len(turn.calls):
        raise ConfigurationError(
            f"hold_after_call is {turn.hold_after_call}, but the last call is {len(turn.calls) - 1}."
        )
