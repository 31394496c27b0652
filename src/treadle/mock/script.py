"""Scripts: a model's turns from a JSON file, read strictly. Plays nothing; the mock provider and ScriptedModel do.

A script is a JSON list of turns. Every key of a turn is optional:

    text              what the model says
    calls             list of {"name", "arguments", "id"}; arguments an object, or a raw string that need not be JSON;
                      id null to send none, absent for call_1, call_2, ...
    thinking          reasoning, sent before the text
    refusal           the text of a refusal
    finish            stop, tool_calls, length, content_filter, or any other word; "" to send none
    usage             {"input_tokens", "output_tokens", "cached_input_tokens", "cache_written_tokens", "reasoning_tokens"}, or
                      the vendor's names (prompt_tokens, completion_tokens); null to send none
    status            HTTP status (200); from 400 on the body is the vendor's error
    error             the error's message or object; with status 200 an error event inside the stream
    headers           further response headers, such as {"retry-after": "2"}; a content-length may lie
    body              the whole body instead of an answer: text (HTML, nothing, "data: ..." for a stream), or JSON
    body_base64       the same as bytes in base64, for what is not UTF-8
    prefix            text before the body, such as ": keep-alive\n\n" or a byte order mark
    newline           "\n", "\r\n" or "\r": how the lines of a stream end
    delay_ms          milliseconds before the first byte
    gap_ms            milliseconds between two writes
    chunk_size        bytes a write; small ones split events and characters
    pieces            fragments that a text or one call's arguments are streamed in (3)
    interleave        true: the fragments of several calls come in turns
    cut               where the answer breaks off: a number of bytes of the body, "before-answer" (no byte at all),
                      "before-body", "mid-text", "mid-arguments" (of the last call), "before-terminal" (content whole,
                      no finish), "before-done" (finish sent, nothing after it), "reset" (half-way, by a reset)
    cut_by            how: "close" (broken body), "reset" (TCP reset), "clean" (proper end of the body), "stall" (silence),
                      "endless" (comment lines for ever)
    bomb_bytes        so many bytes of comment lines after the body, all of it compressed with gzip into a thousandth
    gate              name of a gate (MockProvider.gate) at which the turn waits
    hold_after_call   wait there after this call, counted from 0, instead of before the answer
    hold_after_pieces wait there after so many pieces of the stream

The last turn repeats when the script is used up.
"""

import asyncio
import contextlib
import difflib
import json
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn, Protocol, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from treadle.errors import ConfigurationError, check_kind, check_path, shown
from treadle.fields import Documented, NamedOptions, checked, checked_but
from treadle.messages import Finish, Usage

__all__ = [
    "Count",
    "Cut",
    "CutBy",
    "Gate",
    "Gates",
    "Script",
    "ScriptedCall",
    "Turn",
    "TurnLike",
    "Waitable",
    "call",
    "finish_of",
    "fragments",
    "load_script",
    "no_constant",
    "no_duplicates",
    "parse_script",
    "text",
    "turn_of",
]


# --- Turns: what a scripted model says in one response, faults included. Values only; reads no file, opens no socket.

CutBy: TypeAlias = Literal["close", "reset", "clean", "stall", "endless"]
CutPlace: TypeAlias = Literal[
    "before-answer", "before-body", "mid-text", "mid-arguments", "before-terminal", "before-done", "reset"
]
Cut: TypeAlias = int | CutPlace


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
    """Further headers, such as `retry-after`. A `content-length` is sent as it is, true or not."""
    body: bytes | None = None
    """The whole body, sent as it is instead of an answer."""
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


def _as_turn(item: TurnLike) -> Turn:
    """Return one turn made of words, calls, or a list of both.

    In a list at most one turn may carry more than text and calls: its finish, usage and faults are the whole turn's.
    """
    match item:
        case Turn():
            return item
        case ScriptedCall():
            return Turn(calls=(item,))
        case str():
            return Turn(text=item)
        case list() | tuple() if item:
            return _joined([_as_turn(part) for part in item])
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


# --- Scripts: a model's turns from a JSON file, read strictly. Plays nothing; the mock provider and ScriptedModel do.


class Script:
    """Turns in their order. The last one repeats when all are used up.

    Example:
        >>> Script([call("look"), "Done."]).turn(5).text
        'Done.'

    Args:
        turns: text, calls, turns, lists of them, or mappings as in a script file.
        exhausted: `repeat` the last turn, or treat a further request as an `error`.
    """

    @checked_but("turns")
    def __init__(
        self, turns: Sequence[TurnLike | Mapping[str, Any]], *, exhausted: Literal["repeat", "error"] = "repeat"
    ) -> None:
        if not isinstance(turns, Sequence) or isinstance(turns, str | bytes) or not turns:
            raise ConfigurationError("A script needs a list of at least one turn.")
        self.turns = tuple(turn_of(turn) for turn in turns)
        self.exhausted = exhausted

    @checked
    def turn(self, index: int) -> Turn | None:
        """Return the turn of the request numbered from 0, or None when the script is used up and does not repeat."""
        if index < len(self.turns):
            return self.turns[index]
        return self.turns[-1] if self.exhausted == "repeat" else None


@checked
def load_script(path: str | Path) -> Script:
    """Read a script from a JSON file.

    Example:
        >>> load_script("nowhere.json")
        Traceback (most recent call last):
        treadle.errors.ConfigurationError: Script 'nowhere.json' cannot be read: No such file or directory. Check its path.

    Raises:
        ConfigurationError: There is no such file, or it is not a script; the message says where and what to write.
    """
    check_path("path", path)
    try:
        content = Path(path).read_bytes()
    except (OSError, ValueError) as exc:
        why = (exc.strerror if isinstance(exc, OSError) else None) or exc
        raise ConfigurationError(f"Script {str(path)!r} cannot be read: {why}. Check its path.") from exc
    return parse_script(content, where=str(path))


@checked
def parse_script(content: str | bytes, *, where: str = "script") -> Script:
    """Read a script from JSON.

    Example:
        >>> parse_script('[{"text": "Hello."}]').turns[0].text
        'Hello.'

    Raises:
        ConfigurationError: It is not a script; the message names `where`, the turn and the key.
    """
    check_kind("content", content, (str, bytes), "a JSON list of turns, as text or bytes")
    try:
        value = json.loads(content, object_pairs_hook=no_duplicates, parse_constant=no_constant)
    except (ValueError, RecursionError) as exc:
        raise ConfigurationError(
            f"{where} is not JSON: {exc}. A script is a JSON list of turns; broken arguments are text in it."
        ) from exc
    if not isinstance(value, list):
        raise ConfigurationError(f"{where} must be a list of turns; got {shown(value)}.")
    if not value:
        raise ConfigurationError(f"{where} is an empty list; a script needs at least one turn.")
    return Script([_parse_turn(turn, where=f"{where}: turn [{index}]") for index, turn in enumerate(value)])


def turn_of(item: TurnLike | Mapping[str, Any]) -> Turn:
    """Return one turn of words, calls, a list of both, or a mapping as a script file has it.

    Raises:
        ConfigurationError: It is nothing of the kind.
    """
    return _parse_turn(dict(item)) if isinstance(item, Mapping) else _as_turn(item)


def _parse_turn(value: Any, *, where: str = "turn") -> Turn:  # Any: JSON of strangers
    """Read one turn from its JSON value."""
    try:
        return _turn(msgspec.convert(value, _WrittenTurn))
    except (msgspec.ValidationError, UnicodeError) as exc:
        raise ConfigurationError(f"{where}{_fault(str(exc))}") from None
    except ConfigurationError as exc:
        raise ConfigurationError(f"{where}: {exc}") from exc


_Number: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
_Span: TypeAlias = Annotated[float, msgspec.Meta(ge=0)]


class _WrittenCall(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    arguments: str | dict[str, Any] = "{}"
    id: str | UnsetType | None = UNSET


class _Details(msgspec.Struct, forbid_unknown_fields=True):
    cached_tokens: _Number = 0
    reasoning_tokens: _Number = 0


class _WrittenUsage(_Details, forbid_unknown_fields=True):
    input_tokens: _Number = 0
    prompt_tokens: _Number = 0
    output_tokens: _Number = 0
    completion_tokens: _Number = 0
    cached_input_tokens: _Number = 0
    cache_written_tokens: _Number = 0
    total_tokens: _Number = 0  # the sum is ours to make
    prompt_tokens_details: _Details | None = None
    completion_tokens_details: _Details | None = None


class _WrittenTurn(msgspec.Struct, forbid_unknown_fields=True):
    """A turn as a script has it."""

    text: str | UnsetType | None = UNSET
    calls: list[_WrittenCall] | UnsetType | None = UNSET
    thinking: str | UnsetType | None = UNSET
    refusal: str | UnsetType | None = UNSET
    finish: str | UnsetType | None = UNSET
    usage: _WrittenUsage | UnsetType | None = UNSET
    status: Annotated[int, msgspec.Meta(ge=200, le=599)] | UnsetType = UNSET
    error: str | dict[str, Any] | UnsetType = UNSET
    headers: dict[str, str | int | float] | UnsetType = UNSET
    body: str | dict[str, Any] | list[Any] | UnsetType = UNSET
    body_base64: bytes | UnsetType = UNSET
    prefix: str | UnsetType = UNSET
    newline: Literal["\n", "\r\n", "\r"] | UnsetType = UNSET
    delay_ms: _Span | UnsetType = UNSET
    gap_ms: _Span | UnsetType = UNSET
    chunk_size: _Number | UnsetType = UNSET
    pieces: _Number | UnsetType = UNSET
    interleave: bool | UnsetType = UNSET
    bomb_bytes: _Number | UnsetType = UNSET
    cut: _Number | CutPlace | UnsetType | None = UNSET
    cut_by: CutBy | UnsetType = UNSET
    gate: str | UnsetType = UNSET
    hold_after_call: _Number | UnsetType = UNSET
    hold_after_pieces: _Number | UnsetType = UNSET


_UNKNOWN = re.compile("Object contains unknown field `(.*)`")
_KEYS = sorted({name for shape in (_WrittenTurn, _WrittenCall, _WrittenUsage) for name in shape.__struct_fields__})


def _fault(error: str) -> str:
    """Return a place in a turn, and what is wrong there, from msgspec's words."""
    words, _, place = error.partition(" - at `$")
    place = place.removesuffix("`")
    if unknown := _UNKNOWN.fullmatch(words):
        near = difflib.get_close_matches(unknown[1].lower(), _KEYS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(_WrittenTurn.__struct_fields__)}."
        return f"{place} has the unknown key {unknown[1]!r}; {hint}"
    return f"{place}: {words}."


def _turn(written: _WrittenTurn) -> Turn:
    fields = {name: value for name, value in msgspec.structs.asdict(written).items() if value is not UNSET}
    if "body_base64" in fields and "body" in fields:
        raise ConfigurationError("A turn has body or body_base64, not both.")
    read = {name: _READERS[name](value) if name in _READERS else value for name, value in fields.items()}
    if "body_base64" in read:
        read["body"] = read.pop("body_base64")
    return Turn(**read)


def _calls(calls: list[_WrittenCall] | None) -> tuple[ScriptedCall, ...]:
    return tuple(call(made.name, arguments=made.arguments, id=made.id) for made in calls or ())


def _usage(counts: _WrittenUsage | None) -> Usage | None:
    if counts is None:
        return None
    prompt, completion = counts.prompt_tokens_details or _Details(), counts.completion_tokens_details or _Details()
    return Usage(
        input_tokens=counts.input_tokens or counts.prompt_tokens,
        output_tokens=counts.output_tokens or counts.completion_tokens,
        cached_input_tokens=counts.cached_input_tokens or counts.cached_tokens or prompt.cached_tokens,
        cache_written_tokens=counts.cache_written_tokens,
        reasoning_tokens=counts.reasoning_tokens or completion.reasoning_tokens,
    )


def _encoded(value: Any) -> bytes:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise ConfigurationError("body and prefix take no lone surrogates; body_base64 takes any bytes.") from None


_READERS: Mapping[str, Callable[[Any], Any]] = {
    "calls": _calls,
    "finish": lambda finish: UNSET if finish is None else finish or None,
    "usage": _usage,
    "headers": lambda headers: {name: str(value) for name, value in headers.items()},
    "body": _encoded,
    "prefix": _encoded,
}
"""What makes the value of a turn's field from what is written."""


def no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object of these pairs, for `json.loads`.

    Raises:
        ValueError: A key occurs twice.
    """
    result = dict(pairs)
    if len(result) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {twice!r} occurs twice in one object")
    return result


def no_constant(word: str) -> NoReturn:
    """Refuse `NaN` and its kind, for `json.loads`.

    Raises:
        ValueError: Always.
    """
    raise ValueError(f"{word} is not a JSON value")


# --- Gates: where a turn waits for a test, and counts that a test waits for. They replace sleeping; they know no turn.


class Gate:
    """A gate that stays shut until somebody opens it. Any thread and any event loop may use it.

    A test awaits `wait_reached()`, looks at what has happened so far, and opens it.

    Example:
        >>> gate = Gate()
        >>> gate.open()
        >>> gate.is_open, gate.is_reached
        (True, False)
    """

    def __init__(self) -> None:
        self._opened = _Latch()
        self._reached = _Latch()

    @property
    def is_open(self) -> bool:
        return self._opened.is_set

    @property
    def is_reached(self) -> bool:
        """Whether a turn is or was here."""
        return self._reached.is_set

    def open(self) -> None:
        """Let everything pass, now and later."""
        self._opened.set()

    async def wait(self) -> None:
        """Stand at the gate: what a turn does."""
        self._reached.set()
        await self._opened.wait()

    async def wait_reached(self) -> None:
        """Return when a turn is at the gate: what a test does."""
        await self._reached.wait()


class Gates:
    """Gates by name, made when first named."""

    def __init__(self) -> None:
        self._by_name: dict[str, Gate] = {}

    def named(self, name: str) -> Gate:
        return self._by_name.setdefault(name, Gate())


class Count:
    """A number that only grows, and wakes whoever waits for it."""

    def __init__(self) -> None:
        self.value = 0
        self._latches: dict[int, _Latch] = {}

    def add(self) -> None:
        self.value += 1
        self._latch(self.value).set()

    async def wait(self, value: int) -> None:
        """Return when the number is at least this."""
        if self.value < value:
            await self._latch(value).wait()

    def _latch(self, value: int) -> "_Latch":
        return self._latches.setdefault(value, _Latch())


class _Latch:
    """A flag that is set once and wakes its waiters on their own event loops."""

    def __init__(self) -> None:
        self.is_set = False
        self._lock = threading.Lock()
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []

    def set(self) -> None:
        with self._lock:
            self.is_set = True
            waiting, self._waiting = self._waiting, []
        for loop, future in waiting:
            with contextlib.suppress(RuntimeError):  # that loop is closed: nobody waits there any more
                loop.call_soon_threadsafe(_wake, future)

    async def wait(self) -> None:
        loop = asyncio.get_running_loop()
        with self._lock:
            if self.is_set:
                return
            future = loop.create_future()
            self._waiting.append((loop, future))
        await future


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
