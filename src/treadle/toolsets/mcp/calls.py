"""Calls: one tool call at a server: sent, reported on, answered; and what the server asks a person meanwhile."""

import asyncio
import base64
import binascii
import json
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

import mcp_types as types
import msgspec
from mcp import MCPError
from mcp.client import ClientRequestContext
from mcp_types.jsonrpc import (
    CONNECTION_CLOSED,
    HEADER_MISMATCH,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
)
from pydantic import TypeAdapter, ValidationError

from treadle.messages import Media
from treadle.state import Suspended
from treadle.tools import CallStatus, JsonObject, ToolContext, ToolOutput, Unfinished
from treadle.tools.tool import ServiceLost
from treadle.toolsets.mcp.servers import McpServer, shortened, visible

if TYPE_CHECKING:
    from mcp import Client

__all__ = [
    "DECLINED",
    "Calls",
    "Connected",
    "Refusal",
    "Unfit",
    "answer_for",
    "fail",
    "noted",
    "output_of",
    "question_of",
    "refusal_in",
    "text_of",
]


# --- Questions: what a server asks a person in mid-call, and how a person's words become the answer that its form
# wants. Asks nobody.

DECLINED = object()
"""What `answer_for` returns where the person has declined."""
_DECLINING = ("decline", "declined", "cancel")
_NO = ("no", "n", "false", *_DECLINING)
_YES = ("yes", "y", "ok", "okay", "accept", "true", "done")


class Unfit(Exception):
    """An answer that does not fit the server's form; the message says why."""


def question_of(server: str, message: str, schema: dict[str, Any], url: str | None = None) -> str:
    """Return a server's question, as a person is shown it."""
    asked = f"MCP server {server!r} asks: {shortened(visible(message), 2_000)}"
    if url is not None:
        return f"{asked}\nOpen {visible(url)} if you trust it, and answer yes once you are done, or no."
    fields = _fields(schema)
    if not fields:
        return f"{asked}\nAnswer yes or no."
    shown = ", ".join(_described(name, field) for name, field in fields.items())
    form = "Answer with" if len(fields) == 1 else "Answer with a JSON object of"
    return f"{asked}\n{form} {shown}; or no."


def answer_for(given: Any, schema: dict[str, Any]) -> Any:  # Any: what a person gave, and the form's content
    """Return the content that a form wants, of what a person has answered; DECLINED where they do not want to.

    Raises:
        Unfit: The answer does not fit the form.
    """
    fields = _fields(schema)
    is_flag = [field.get("type") for field in fields.values() if isinstance(field, dict)] == ["boolean"]
    word = given.strip().lower() if isinstance(given, str) else given
    if word is None or (word in _DECLINING if is_flag else word is False or word in _NO):
        return DECLINED
    if isinstance(given, str) and given.lstrip().startswith("{"):
        try:
            given = json.loads(given)
        except ValueError:
            raise Unfit("the answer begins like JSON and is not valid JSON") from None
    if word in _YES and len(fields) > 1:
        given = {}  # the form as it is, with its defaults
    if isinstance(given, dict) and (fields or not given):
        return {name: _value(name, value, fields.get(name)) for name, value in _complete(given, fields, schema).items()}
    if not fields:
        if given is True or (isinstance(given, str) and given.strip().lower() in _YES):
            return {}
        raise Unfit("the answer must be yes or no")
    if len(fields) > 1:
        raise Unfit(f"the answer must be a JSON object with {', '.join(map(visible, fields))}")
    ((name, field),) = fields.items()
    return {name: _value(name, given, field)}


def _fields(schema: dict[str, Any]) -> dict[str, Any]:
    fields = schema.get("properties")
    return fields if isinstance(fields, dict) else {}


def _described(name: str, field: Any) -> str:
    kind = field.get("type", "value") if isinstance(field, dict) else "value"
    choices = _choices(field)
    about = field.get("description") or field.get("title") or "" if isinstance(field, dict) else ""
    words = f": {shortened(visible(str(about)), 200)}" if about else ""
    default = _defaults({name: field})
    said = f", by default {shortened(visible(json.dumps(default[name], ensure_ascii=False)), 200)}" if default else ""
    shown = " | ".join(visible(str(one)) for one in choices) if choices else visible(str(kind))
    return f"{visible(name)} ({shown}{said}{words})"


def _choices(field: Any) -> Sequence[Any]:
    if not isinstance(field, dict):
        return ()
    listed = field.get("enum")
    if isinstance(listed, list):
        return listed
    titled = field.get("oneOf")
    return [one.get("const") for one in titled if isinstance(one, dict)] if isinstance(titled, list) else ()


def _defaults(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the values that a form gives its fields, but for those that do not fit them."""
    defaults = {}
    for name, field in fields.items():
        if isinstance(field, dict) and "default" in field:
            with suppress(Unfit):
                defaults[name] = _value(name, field["default"], field)
    return defaults


def _complete(given: dict[str, Any], fields: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    given = {**_defaults(fields), **given}
    unknown = [name for name in given if name not in fields]
    required = schema.get("required")
    missing = [name for name in required if name not in given] if isinstance(required, list) else []
    if unknown or missing:
        problem = f"{visible(str((unknown or missing)[0]))} is {'not asked for' if unknown else 'missing'}"
        raise Unfit(f"{problem}; the fields are {', '.join(map(visible, fields))}")
    return given


def _value(name: str, value: Any, field: Any) -> Any:
    """Return a value in the type that its field has: what a person types is text."""
    kind = field.get("type") if isinstance(field, dict) else None
    try:
        fit = _converted(value, kind)
    except ValueError:
        raise Unfit(f"{visible(name)} must be a value of type {kind}; got {visible(str(value))[:60]!r}") from None
    choices = _choices(field)
    if choices and fit not in choices:
        raise Unfit(f"{visible(name)} must be one of {', '.join(visible(str(one)) for one in choices)}")
    return fit


def _converted(value: Any, kind: Any) -> Any:
    """Raises ValueError: The value is not of that type, and no text that stands for one."""
    if isinstance(value, str) and kind in _FROM_TEXT:
        return _FROM_TEXT[kind](value.strip())
    wanted = _TYPES.get(kind, object)
    if not isinstance(value, wanted) or (isinstance(value, bool) and kind in ("integer", "number")):
        raise ValueError
    return value


def _flag(text: str) -> bool:
    if text.lower() not in (*_YES, *_NO):
        raise ValueError
    return text.lower() in _YES


_FROM_TEXT: dict[Any, Callable[[str], Any]] = {"boolean": _flag, "integer": int, "number": float}
_TYPES: dict[Any, type | tuple[type, ...]] = {
    "boolean": bool,
    "integer": int,
    "number": (int, float),
    "string": str,
    "array": list,
}


# --- Refusals: what an HTTP status of a server means for a request: who must act, and whether the server can have
# begun. Sends nothing.

_KEY = "treadle/refusal"
"""Where the data of an error has its refusal: the package passes data on, and knows no status."""
_SESSION_LOST = {
    400: re.compile(r"session|not initialized", re.IGNORECASE),
    401: re.compile(r"session not found", re.IGNORECASE),
    404: re.compile(r""),
    410: re.compile(r""),
}
"""Statuses and words by which a server says that it does not know a request's session. By the protocol that is 404; the example servers of
the TypeScript package say 400, and early ones of the Rust package 401."""
_REFUSED = frozenset({401, 403, 404, 410, 429})
"""Statuses of a request that was not carried out, whatever else the answer says."""
_WORDS = {
    401: "it wants a valid sign-in: the token or key is missing, wrong or has expired",
    403: "the token or key does not allow it, or has expired",
    404: "nothing answers at this address",
    410: "nothing answers at this address any more",
    429: "it is busy: too many requests",
    502: "its gateway got no answer",
    503: "it is busy or down",
    504: "its gateway got no answer in time",
}
_CODES = {401: "auth_expired", 403: "auth_expired", 429: "rate_limited"}


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """An answer to a request by HTTP that was an error."""

    status: int | None = None
    """None where nobody was reached."""
    said: str = ""
    retry_after: str = ""
    has_session: bool = False
    """Whether the request named a session."""

    @property
    def never_began(self) -> bool:
        """Whether the request may be repeated over a new connection: nobody was reached, or the server has forgotten the session."""
        return self.status is None or (self.has_session and self._says_session_lost)

    @property
    def not_done(self) -> bool:
        """Whether the request was surely not carried out, whatever the error's code."""
        return self.status is None or self.status in _REFUSED or self._says_session_lost

    @property
    def _says_session_lost(self) -> bool:
        words = _SESSION_LOST.get(self.status or 0)
        return words is not None and words.search(self.said) is not None

    @property
    def code(self) -> str:
        """What the model and rules know it by."""
        return _CODES.get(self.status or 0, "mcp_error")

    @property
    def words(self) -> str:
        """What happened, for a person."""
        if self.status is None:
            return "nobody answers at its address"
        about = _WORDS.get(self.status)
        wait = f"; it asks to wait {self.retry_after[:40]} s" if self.retry_after.isdecimal() else ""
        return f"HTTP status {self.status}{f' ({about}{wait})' if about else wait}"


def noted(refusal: Refusal, data: Any) -> dict[str, Any]:
    """Return an error's data with its refusal."""
    return {**(data if isinstance(data, dict) else {}), _KEY: msgspec.to_builtins(refusal)}


def refusal_in(data: Any) -> Refusal | None:
    """Return the refusal of an error's data; None where it did not come by an HTTP error."""
    try:
        return msgspec.convert(data[_KEY], Refusal) if isinstance(data, dict) and _KEY in data else None
    except msgspec.ValidationError:  # the server's own words under our key
        return None


# --- Results: what a server answered, as a result of ours. Believes nothing: what is not fit for a model is named in
# its place.

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


# --- Calls: one tool call at a server: sent, reported on, answered; and what the server asks a person meanwhile.

_MAX_ROUNDS = 10
"""How many times in one call a server may ask for more before it answers."""
_ANSWER: TypeAdapter[types.CallToolResult | types.InputRequiredResult] = TypeAdapter(
    types.CallToolResult | types.InputRequiredResult
)
_MOST_QUOTED = 500
"""How many characters a person sees of what a server said before it was called again."""
_SHOWN_LEVELS = frozenset({"info", "notice", "warning", "error", "critical", "alert", "emergency"})


class Connected(Protocol):
    """What calls need of the connection to their server."""

    server: McpServer

    async def connected(self) -> "Client":
        """Return the connection. Raises ConnectionError: There is none."""
        ...

    def restart(self, client: "Client") -> None:
        """Make a new connection in place of this one, where that has not happened already."""
        ...


class _Call:
    """One call under way."""

    def __init__(self, name: str, ctx: ToolContext) -> None:
        self.name = name
        self.ctx = ctx
        self.inputs = list(ctx.inputs)
        """What a person has answered, and no question has used yet."""
        self.question: str | None = None
        """What a person must answer before the call can be made; None where nothing is open."""
        self.form: JsonObject | None = None
        """JSON Schema of that answer."""


class Calls:
    """The calls at one server.

    Args:
        link: The connection that they use.
    """

    def __init__(self, link: Connected) -> None:
        self._link = link
        self._server = link.server
        self._under_way: dict[int, _Call] = {}
        self._unanswered: dict[asyncio.Future[None], Client] = {}

    async def call(self, name: str, arguments: JsonObject, ctx: ToolContext, is_read: bool) -> ToolOutput:
        """Call a tool of the server.

        Raises:
            ConnectionError: The connection was lost on the way.
            Suspended: The server asks a person.
            Unfinished: The server says that it failed, or it is not connected.
        """
        client = await self._connected(ctx)
        call = _Call(name, ctx)
        self._under_way[id(call)] = call
        try:
            answer = await self._answered(client, call, arguments)
        except MCPError as error:
            self._raise_open_question(call, None if is_read else error.message)
            fail(error, server=self._server.name, is_read=is_read)
        except ValidationError as error:
            raise Unfinished(
                CallStatus.UNEXPECTED_RESULT_SHAPE,
                f"MCP server {self._server.name!r} sent a result that does not follow the protocol.",
                code="mcp_error",
                may_have_acted=not is_read,
            ) from error
        finally:
            del self._under_way[id(call)]
        self._raise_open_question(call, None if is_read else text_of(answer))
        return output_of(answer, server=self._server.name, is_read=is_read)

    async def _connected(self, ctx: ToolContext) -> "Client":
        try:
            return await self._link.connected()
        except ConnectionError as error:
            if ctx.attempt > 1:  # an attempt before this one may have done something
                raise
            raise Unfinished(
                CallStatus.FAILED,
                f"MCP server {self._server.name!r} is not connected, and the call was not made. {error}",
                code="toolset_unavailable",
                may_have_acted=False,
            ) from error

    async def _answered(self, client: "Client", call: _Call, arguments: JsonObject) -> types.CallToolResult:
        """Send a call until it is answered; a server that asks for more in its answer is given that."""
        responses: dict[str, Any] | None = None
        state: str | None = None
        for _ in range(_MAX_ROUNDS):
            answer, client = await self._sent(client, call, arguments, responses, state)
            if isinstance(answer, types.CallToolResult):
                return answer
            responses, state = {}, answer.request_state
            for key, request in (answer.input_requests or {}).items():
                context = ClientRequestContext(session=client.session, request_id=key)
                given = await self._input(context, request, call)
                if isinstance(given, types.ErrorData):
                    raise MCPError.from_error_data(given)
                responses[key] = given
            self._raise_open_question(call)
        raise MCPError(INVALID_REQUEST, f"The server asked for more {_MAX_ROUNDS} times in one call.")

    async def _sent(
        self, client: "Client", call: _Call, arguments: JsonObject, responses: dict[str, Any] | None, state: str | None
    ) -> "tuple[types.CallToolResult | types.InputRequiredResult, Client]":
        """Send a call once. It is sent again only where the server has surely not begun: it knows neither session nor schema."""
        params = types.CallToolRequestParams(
            name=call.name, arguments=arguments, input_responses=responses or None, request_state=state
        )
        request = types.CallToolRequest(params=params)

        async def report(progress: float, total: float | None, message: str | None) -> None:
            self._progress(call, message or "", done=progress, total=total)

        async def send() -> "tuple[types.CallToolResult | types.InputRequiredResult, Client]":
            answered = asyncio.get_running_loop().create_future()
            self._unanswered[answered] = client
            try:
                return await client.session.send_request(request, _ANSWER, progress_callback=report), client
            finally:
                del self._unanswered[answered]
                answered.set_result(None)

        try:
            return await send()
        except MCPError as error:
            refusal = refusal_in(error.data)
            if error.code == HEADER_MISMATCH:
                await client.session.list_tools()
            elif refusal is not None and refusal.never_began:
                self._link.restart(client)
                client = await self._connected(call.ctx)
            else:
                raise
        return await send()

    async def settle(self, client: "Client", *, seconds: float) -> None:
        """Wait until nothing more is unanswered over a connection that is to be replaced, but not for long."""
        waiting = [answered for answered, over in self._unanswered.items() if over is client]
        if waiting:
            await asyncio.wait(waiting, timeout=seconds)

    # --- what the server says meanwhile

    async def on_log(self, params: types.LoggingMessageNotificationParams) -> None:
        """Show a server's log to the people who watch the calls under way."""
        if params.level in _SHOWN_LEVELS:
            said = _text_of_log(params.data)
            for call in list(self._under_way.values()):
                self._progress(call, f"{params.level}: {said}")

    def _progress(self, call: _Call, message: str, *, done: float | None = None, total: float | None = None) -> None:
        call.ctx.progress(shortened(visible(message), 500), done=done, total=total)

    # --- what it asks

    async def on_question(
        self, context: ClientRequestContext, params: types.ElicitRequestParams
    ) -> types.ElicitResult | types.ErrorData:
        """Answer a question that the server asks while calls are under way. It is unknown which of several asks."""
        calls = list(self._under_way.values())
        if len(calls) != 1:
            return types.ElicitResult(action="cancel")
        return await self._answer(params, calls[0])

    async def _input(self, context: ClientRequestContext, request: types.InputRequest, call: _Call) -> Any:
        if isinstance(request, types.ElicitRequest):
            return await self._answer(request.params, call)
        return await context.session.dispatch_input_request(context, request)

    async def _answer(self, params: types.ElicitRequestParams, call: _Call) -> types.ElicitResult:
        """Answer with what a person has said. Where nobody has, the server is told that the person has left the question open, so that
        it does nothing, and the call waits for a person."""
        is_form = isinstance(params, types.ElicitRequestFormParams)
        schema = dict(params.requested_schema) if isinstance(params, types.ElicitRequestFormParams) else {}
        url = None if isinstance(params, types.ElicitRequestFormParams) else params.url
        question, problem = question_of(self._server.name, params.message, schema, url), ""
        while True:
            if call.inputs:
                given = call.inputs.pop(0)
            elif self._server.ask is not None:
                given = await self._server.ask(question + problem, schema)
            else:
                if call.question is None:
                    call.question, call.form = question + problem, schema or None
                return types.ElicitResult(action="cancel")
            try:
                content = answer_for(given, schema)
            except Unfit as error:
                problem = f"\n(The answer before this one did not fit: {error}.)"
                continue
            if content is DECLINED:
                return types.ElicitResult(action="decline")
            return types.ElicitResult(action="accept", content=content if is_form else None)

    def _raise_open_question(self, call: _Call, ended_with: str | None = None) -> None:
        """Let the call wait for a person, where the server has asked one.

        Args:
            ended_with: What a server said that had begun, of a tool that may act, once it was told that nobody answers now. An
                answer makes the call again: the person must know that it may have acted. None where nothing can have happened.

        Raises:
            Suspended: A person must answer before the call can be made.
        """
        if call.question is None:
            return
        if ended_with is None:
            raise Suspended(call.question, form=call.form)
        said = shortened(visible(ended_with).strip(), _MOST_QUOTED) or "nothing"
        raise Suspended(
            f"{call.question}\nYour answer calls the tool again. The server was told that nobody could answer yet, and ended the first "
            f"call with: {said}\nIf that says that something was done, do not answer: cancel the run.",
            form=call.form,
        )


def _text_of_log(data: Any) -> str:  # Any: JSON of a stranger
    """Return the text of a log message: FastMCP sends it as `msg`, beside what else it logs."""
    if isinstance(data, dict):
        said = next((data[key] for key in ("msg", "message", "text") if isinstance(data.get(key), str)), None)
        return said if said is not None else json.dumps(data, ensure_ascii=False)
    return data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
