"""Calls: one tool call at a server: sent, reported on, answered; and what the server asks a person meanwhile."""

import asyncio
import json
from typing import TYPE_CHECKING, Any, Protocol

import mcp_types as types
from mcp import MCPError
from mcp.client import ClientRequestContext
from mcp_types.jsonrpc import HEADER_MISMATCH, INVALID_REQUEST
from pydantic import TypeAdapter, ValidationError

from treadle.state import Suspended
from treadle.tools import CallStatus, JsonObject, ToolContext, ToolOutput, Unfinished
from treadle.toolsets.mcp.questions import DECLINED, Unfit, answer_for, question_of
from treadle.toolsets.mcp.refusals import refusal_in
from treadle.toolsets.mcp.results import fail, output_of, text_of
from treadle.toolsets.mcp.servers import McpServer
from treadle.toolsets.mcp.texts import shortened, visible

if TYPE_CHECKING:
    from mcp import Client

__all__ = ["Calls", "Connected"]

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
        """Answer a question that the server asks while calls are under way. Which of several asks, nobody can tell."""
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
                call.question = call.question or question + problem
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
            raise Suspended(call.question)
        said = shortened(visible(ended_with).strip(), _MOST_QUOTED) or "nothing"
        raise Suspended(
            f"{call.question}\nYour answer calls the tool again. The server was told that nobody could answer yet, and ended the first "
            f"call with: {said}\nIf that says that something was done, do not answer: cancel the run."
        )


def _text_of_log(data: Any) -> str:  # Any: JSON of a stranger
    """Return the text of a log message: FastMCP sends it as `msg`, beside what else it logs."""
    if isinstance(data, dict):
        said = next((data[key] for key in ("msg", "message", "text") if isinstance(data.get(key), str)), None)
        return said if said is not None else json.dumps(data, ensure_ascii=False)
    return data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
