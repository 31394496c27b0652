"""The vendor: what one request is answered with, as the script and the dialect have it. Records it; knows no socket."""

import inspect
import itertools
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, TextIO, TypeAlias

import msgspec

from treadle.fields import Documented
from treadle.mock.dialects.answers import Answer, Dialect, HasHead, Piece, Refusal
from treadle.mock.dialects.listings import is_listing, model_list
from treadle.mock.script import Script, load_script, turn_of
from treadle.mock.server.connection import Received
from treadle.mock.turns import Turn, TurnLike
from treadle.tools import JsonObject

__all__ = ["Playable", "RecordedRequest", "Reply", "Respond", "Vendor"]

Respond: TypeAlias = Callable[[JsonObject], TurnLike | Mapping[str, Any] | Awaitable[TurnLike | Mapping[str, Any]]]
"""A function of the request's body that makes the turn: for many sessions at once, and for models that read."""
Playable: TypeAlias = Script | Sequence[TurnLike | Mapping[str, Any]] | Path | Respond
"""A script, turns, the path of a script's file, or a function."""

_NextTurn: TypeAlias = Callable[[JsonObject], Awaitable[Turn]]


class RecordedRequest(msgspec.Struct, Documented, frozen=True, kw_only=True):
    """One request that came, refused ones included.

    Example:
        >>> RecordedRequest(method="POST", path="/v1/chat/completions", headers={}, raw=b"{", status=400).body is None
        True
    """

    method: str
    """HTTP method, such as `POST`."""
    path: str
    """Path of the URL, with its query."""
    headers: dict[str, str]
    """By lower-case name."""
    raw: bytes
    """The body as it came."""
    body: Any = None  # Any: JSON of strangers; a test reads it as it is
    """The body as a JSON value; None when it is not JSON."""
    status: int = 200
    """The status of the answer."""


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """What one request is answered with."""

    turn: Turn
    """With its faults."""
    answer: Answer
    """Without them."""


class Vendor:
    """Checks requests, plays the script and keeps the record.

    Args:
        script: What to play.
        dialects: The wire formats to answer in; errors without a dialect are in the first one's.
        api_key: The key that requests must carry; None to take any.
    """

    def __init__(self, script: Playable, *, dialects: Sequence[Dialect], api_key: str | None) -> None:
        self._next_turn = _player(script)
        self._dialects = dialects
        self._api_key = api_key
        self._numbers = itertools.count(1)
        self._ids: Iterator[str] = (f"call_{number}" for number in itertools.count(1))
        self.requests: list[RecordedRequest] = []
        self.refusals: list[Refusal] = []
        self.recording: TextIO | None = None
        """Where each request is written as one JSON line, or None."""

    async def reply(self, received: Received) -> Reply:
        """Return the answer to one request. A refused request takes no turn."""
        body: Any = None
        try:
            self._check_key(received)
            if is_listing(received.method, received.path):
                reply = _plain_reply(200, model_list(received.query, received.headers))
            else:
                dialect = self._dialect(received)
                body = _parsed(received.body)
                reply = await self._play(dialect, dialect.check(body))
        except Refusal as refusal:
            self.refusals.append(refusal)
            reply = self.refused(refusal, received.path)
        self._remember(received, body, reply.turn.status)
        return reply

    def refused(self, refusal: Refusal, path: str = "") -> Reply:
        """Return the answer that says no, in the dialect of the path; in the first one's where the path is nobody's."""
        dialect = next((one for one in self._dialects if path.endswith(one.path)), self._dialects[0])
        content = dialect.error(refusal.status, refusal.message, param=refusal.param, code=refusal.code)
        return _plain_reply(refusal.status, content)

    async def _play(self, dialect: Dialect, body: JsonObject) -> Reply:
        try:
            turn = await self._next_turn(body)
        except Refusal:
            raise
        except Exception as exc:
            # A script may be any function, and its fault must reach whoever runs the test: the client.
            raise Refusal(f"The script raised {exc!r}.", code="script_failed") from exc
        if turn.body is not None:
            return Reply(turn=turn, answer=_raw(turn.body))
        if turn.status >= 400:
            error = (
                turn.error if turn.error is not None else f"The server answered with status {turn.status}, as scripted."
            )
            return Reply(turn=turn, answer=_raw(dialect.error(turn.status, error)))
        return Reply(turn=turn, answer=dialect.answer(turn, body, number=next(self._numbers), ids=self._ids))

    def _dialect(self, received: Received) -> Dialect:
        for dialect in self._dialects:
            if received.path.endswith(dialect.path):
                if received.method == "POST":
                    if isinstance(dialect, HasHead):
                        return dialect.with_head(received.path, received.headers)
                    return dialect
                raise Refusal(f"Not allowed to {received.method} on {received.path}. (HINT: use POST)", status=405)
        raise Refusal(f"Unknown request URL: {received.method} {received.path}.", code="unknown_url", status=404)

    def _check_key(self, received: Received) -> None:
        key, headers = self._api_key, received.headers
        shown = (headers.get(name) for name in ("x-api-key", "x-goog-api-key"))
        if key is not None and headers.get("authorization") != f"Bearer {key}" and key not in shown:
            raise Refusal("Incorrect API key provided.", code="invalid_api_key", status=401)

    def _remember(self, received: Received, body: Any, status: int) -> None:
        self.requests.append(
            RecordedRequest(
                method=received.method,
                path=received.path,
                headers=dict(received.headers),
                raw=received.body,
                body=body,
                status=status,
            )
        )
        if self.recording is not None:
            shown = received.body.decode(errors="replace") if body is None else body
            line = {"method": received.method, "path": received.path, "body": shown, "status": status}
            self.recording.write(json.dumps(line) + "\n")
            self.recording.flush()


def _player(script: Playable) -> _NextTurn:
    """Return the function that gives the turn of each request."""
    if callable(script):
        respond: Respond = script

        async def play(body: JsonObject) -> Turn:
            made = respond(body)
            return turn_of(await made if inspect.isawaitable(made) else made)

        return play
    turns = (
        load_script(script) if isinstance(script, Path) else script if isinstance(script, Script) else Script(script)
    )
    indices = itertools.count()

    async def play_next(body: JsonObject) -> Turn:
        turn = turns.turn(next(indices))
        if turn is None:
            raise Refusal(f"The script is used up: it has {len(turns.turns)} turns.", code="script_exhausted")
        return turn

    return play_next


def _parsed(raw: bytes) -> Any:
    try:
        return json.loads(raw.decode(), object_pairs_hook=_no_duplicates, parse_constant=_no_constant)
    except (ValueError, RecursionError) as exc:
        raise Refusal(
            "We could not parse the JSON body of your request. (HINT: This likely means you aren't using your HTTP library "
            f"correctly. The API expects a JSON payload, but what was sent was not valid JSON: {exc}.)"
        ) from exc


def _no_duplicates(pairs: list[tuple[str, Any]]) -> JsonObject:
    if len(result := dict(pairs)) < len(pairs):
        raise ValueError("a key occurs twice in one object")
    return result


def _no_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is not a JSON value")


def _plain_reply(status: int, content: bytes) -> Reply:
    return Reply(turn=Turn(status=status), answer=_raw(content))


def _raw(content: bytes) -> Answer:
    """Return an answer of these bytes, its content type guessed as a careless server would."""
    start = content.lstrip()[:5]
    kind = "text/html" if start[:1] == b"<" else "text/event-stream" if start == b"data:" else "application/json"
    return Answer(
        pieces=(Piece(kind="whole", content=content),), content_type=kind, is_stream=kind == "text/event-stream"
    )
