"""MCP service: an agent, or tools, for any MCP client: calls become runs of sessions. Draws nothing, and reads no configuration."""

import asyncio
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeAlias
from urllib.parse import quote

import mcp_types as types
import msgspec
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from treadle import Approval, Effect, RunResult, Session, StopReason, Tool, TreadleError, open_session
from treadle.errors import UnknownApproval
from treadle.events import AnyEvent, ModelStarted, ToolFinished, ToolStarted
from treadle.ports import Journal
from treadle.serve.work import Setup, Work
from treadle.tools import Answer, ToolResult

__all__ = ["McpService", "Offer", "service_tools"]


# --- MCP answers: the tools that a client is offered, and the ends of runs as results of its calls. Values only.

RUN_TASK = "run_task"
RESUME_TASK = "resume_task"
_MOST_REFERENCES = 20

_SESSION = {"type": "string", "minLength": 1, "maxLength": 200}
_WAITING = {
    "type": "object",
    "properties": {
        "id": {"type": "string"},
        "tool": {"type": "string"},
        "arguments": {"type": "object"},
        "command": {"type": "string", "description": "What a person runs in a terminal to allow the call."},
    },
    "required": ["id", "tool", "arguments", "command"],
}
_OUTCOME: dict[str, Any] = {
    "type": "object",
    "properties": {
        "session_id": {"type": "string", "description": "Give it to continue the same conversation."},
        "status": {"type": "string", "enum": ["completed", "stopped", "paused", "failed"]},
        "reason": {"type": "string"},
        "answer": {"type": "string"},
        "output": {"description": "The structured answer, where the agent has one."},
        "message": {"type": "string", "description": "One sentence on how the run ended."},
        "next_step": {"type": "string"},
        "approvals": {"type": "array", "items": _WAITING, "description": "Calls that wait for a person."},
        "denied": {"type": "array", "items": {"type": "string"}, "description": "Tools whose calls were denied."},
        "steps": {"type": "integer"},
        "cost": {"anyOf": [{"type": "string"}, {"type": "null"}]},
    },
    "required": ["session_id", "status", "reason", "answer", "message", "next_step", "approvals"],
}


def agent_tools(description: str) -> list[types.Tool]:
    """Return an agent as two tools: a task, and the continuation of one that was paused."""
    task = {"type": "string", "minLength": 1, "description": "The whole task, in words."}
    session = {**_SESSION, "description": "A session of an earlier call, to continue its conversation."}
    acts = types.ToolAnnotations(read_only_hint=False, destructive_hint=True, open_world_hint=True)
    return [
        types.Tool(
            name=RUN_TASK,
            title="Run a task",
            description=f"{description} Returns its answer, and the id of its session.",
            input_schema=_object({"task": task, "session_id": session}, "task"),
            output_schema=_OUTCOME,
            annotations=acts,
        ),
        types.Tool(
            name=RESUME_TASK,
            title="Resume a task",
            description="Continue a run that was paused for a person's approval, that stopped at a limit, or that was cut off.",
            input_schema=_object({"session_id": session}, "session_id"),
            output_schema=_OUTCOME,
            annotations=acts,
        ),
    ]


def _object(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


def offered_tool(tool: Tool) -> types.Tool:
    """Return a tool as a client is offered it. Its effect becomes the protocol's hints."""
    effect = Effect.UNSAFE if callable(tool.effect) else Effect(tool.effect)
    hints = types.ToolAnnotations(
        read_only_hint=effect is Effect.READ,
        idempotent_hint=effect in (Effect.READ, Effect.IDEMPOTENT),
        destructive_hint=effect is Effect.UNSAFE,
    )
    return types.Tool(
        name=tool.name,
        description=tool.description,
        input_schema=dict(tool.parameters),
        output_schema=_offered_output(tool),
        annotations=hints,
    )


def _offered_output(tool: Tool) -> dict[str, Any] | None:
    """Return the schema of the structured content, which must be an object: another value is the field `result` of one, as FastMCP has it."""
    if tool.output_schema is None:
        return None
    schema = dict(tool.output_schema)
    if _is_object(schema):
        return {**schema, "type": "object"}
    named: dict[str, Any] = {key: schema.pop(key) for key in ("$defs", "definitions") if key in schema}
    return {**_object({"result": schema}, "result"), **named, "x-fastmcp-wrap-result": True}


def _is_object(schema: dict[str, Any]) -> bool:
    """Whether each value that fits is an object, as far as its first words say."""
    named, seen = schema, 0
    while isinstance(reference := named.get("$ref"), str) and seen < _MOST_REFERENCES:
        where, _, name = reference.removeprefix("#/").partition("/")
        found = schema.get(where, {}).get(name) if reference.startswith("#/") else None
        named, seen = found if isinstance(found, dict) else {}, seen + 1
    return named.get("type") == "object"


def outcome(result: RunResult, *, approve: str, tool: str = "") -> types.CallToolResult:
    """Return how a run ended.

    Args:
        approve: The command that allows a call that waits, where `{id}` stands for the id.
        tool: The tool that the client has called by itself; empty for a task of the agent.
    """
    waiting = [
        {"id": one.id, "tool": one.tool, "arguments": one.arguments, "command": approve.replace("{id}", one.id)}
        for one in result.approvals
    ]
    cost = result.spent.cost
    said = {
        "session_id": result.session_id,
        "status": result.status.value,
        "reason": result.reason.value,
        "answer": result.text,
        "message": result.message,
        "next_step": result.next_step,
        "approvals": waiting,
        "denied": list(dict.fromkeys(one.tool for one in result.denials)),
        "steps": result.steps,
        "cost": None if cost is None else str(cost),
        **({} if result.stop.output is None else {"output": result.stop.output}),
    }
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=_summary(result, waiting, approve, tool))],
        structured_content=msgspec.to_builtins(said),
        is_error=result.status.value in ("failed", "stopped"),
    )


def _summary(result: RunResult, waiting: list[dict[str, Any]], approve: str, tool: str) -> str:
    if result.completed:
        return result.text
    lines = [result.text] if result.text else []
    lines.append(f"{result.status} ({result.reason}): {result.message} {result.next_step}")
    if result.reason is StopReason.APPROVAL_REQUIRED:
        lines += [
            f"The call of {one['tool']} waits for a person, who allows it with: {one['command']}" for one in waiting
        ]
    elif result.reason is StopReason.INPUT_REQUIRED:
        answer = approve.replace("treadle approve {id}", f'treadle answer {result.session_id} "ANSWER"')
        lines.append(f"A person answers with: {answer}")
    if result.status.value == "paused" and tool:
        resume = approve.replace("treadle approve {id}", f"treadle resume {result.session_id}")
        lines.append(
            f"Then this call is run with: {resume}. If you call {tool} again, that is another call, which asks anew."
        )
    elif result.status.value == "paused":
        lines.append(f"Then call {RESUME_TASK} with the session_id {result.session_id!r}.")
    return "\n".join(lines)


def tool_outcome(
    tool: Tool, result: RunResult, called: ToolResult | None, whole: bytes | None, *, approve: str
) -> types.CallToolResult:
    """Return how the call of one tool ended: its own value, and ids beside it. A call that waits, or never began, says so as a run does.

    Args:
        whole: The whole text of a value of which the model is shown a part.
    """
    about = {"treadle/session_id": result.session_id}
    if called is None or result.approvals:
        said = outcome(result, approve=approve, tool=tool.name)
        about = {**about, "treadle/run": said.structured_content}
        return types.CallToolResult(content=said.content, is_error=True, _meta=about)
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=called.content), *map(_block, called.media)],
        structured_content=None if called.is_error else _structured(tool, called, whole),
        is_error=called.is_error,
        _meta={**about, "treadle/call_id": called.call_id, "treadle/status": str(called.status)},
    )


def _structured(tool: Tool, called: ToolResult, whole: bytes | None) -> dict[str, Any] | None:
    value = called.data
    if value is None and whole is not None and tool.output_schema is not None:
        text = whole.decode("utf-8", "replace")
        value = text if tool.output_schema.get("type") == "string" else json.loads(text)
    if tool.output_schema is not None and not _is_object(tool.output_schema):
        return {"result": value}
    return value if isinstance(value, dict) else None


def _block(media: Any) -> types.ContentBlock:  # Any: a Media, which no public module names
    kind, name = media.media_type.partition("/")[0], media.name or "file"
    if media.base64 is None:
        return types.ResourceLink(type="resource_link", uri=media.url or "", name=name, mime_type=media.media_type)
    if kind == "image":
        return types.ImageContent(type="image", data=media.base64, mime_type=media.media_type)
    if kind == "audio":
        return types.AudioContent(type="audio", data=media.base64, mime_type=media.media_type)
    blob = types.BlobResourceContents(uri=f"treadle:///{quote(name)}", blob=media.base64, mime_type=media.media_type)
    return types.EmbeddedResource(type="resource", resource=blob)


def failure(message: str) -> types.CallToolResult:
    """Return a call that did not begin."""
    return types.CallToolResult(content=[types.TextContent(type="text", text=message)], is_error=True)


# --- MCP questions: an approval as a form for the client's person, and what was filled in as an answer. Sends nothing.

_MAX_CHARS = 20_000


def can_ask(capabilities: types.ClientCapabilities | None) -> bool:
    """Whether the client shows forms. One that names no kind of elicitation means forms."""
    asked = None if capabilities is None else capabilities.elicitation
    return asked is not None and (asked.form is not None or asked.url is None)


def form_of(approval: Approval, redact: Callable[[str], str]) -> types.ElicitRequestFormParams:
    """Return what a person is shown and asked: the whole call, and allow or deny."""
    return types.ElicitRequestFormParams(
        message=redact(_shown(approval)),
        requested_schema={
            "type": "object",
            "properties": {
                "decision": {
                    "type": "string",
                    "title": "Decision",
                    "description": "Whether this one call may run.",
                    "enum": ["deny", "allow"],
                },
                "reason": {
                    "type": "string",
                    "title": "Reason",
                    "description": "Of a denial: the model reads it.",
                    "maxLength": 2000,
                    "default": "",  # a client that makes a typed form of it sends every field
                },
            },
            "required": ["decision"],
        },
    )


def answer_of(result: types.ElicitResult) -> Answer | None:
    """Return what a person answered; None for one who did not.

    Only the word `allow` allows: a client that sends an empty form has asked nobody.
    """
    content = result.content or {}
    reason = content.get("reason")
    said = reason if isinstance(reason, str) else ""
    if result.action == "accept" and content.get("decision") == "allow":
        return Answer(answer="allow")
    if result.action == "decline" or (result.action == "accept" and content.get("decision") == "deny"):
        return Answer(answer="deny", reason=said)
    return None


def _shown(approval: Approval) -> str:
    """Return the whole call for a person. What a preview leaves out is in the arguments."""
    lines = [f"Allow the call of {approval.tool}?", ""]
    facts = (
        ("Action", approval.action),
        ("Target", approval.target),
        ("Effect", str(approval.effect)),
        ("Risk", approval.risk),
        ("Asked because", approval.reason or approval.rule),
        ("Result", approval.expected_result),
        ("Undo", approval.rollback),
        ("Asked by", " > ".join(approval.path)),
    )
    lines += [f"{name}: {text}" for name, text in facts if text]
    arguments = json.dumps(approval.arguments, indent=2)  # ASCII: nothing in it is invisible
    if approval.preview is not None and approval.preview.kind != "arguments":
        lines += ["", approval.preview.text]
    lines += ["", "Arguments:", arguments]
    text = "\n".join(lines)
    if len(text) <= _MAX_CHARS:
        return text
    left_out = len(text) - _MAX_CHARS
    return f"{text[:_MAX_CHARS]}\n... {left_out:,} more characters are not shown. To see all: treadle approvals --json"


# --- MCP service: an agent, or tools, for any MCP client: calls become runs of sessions. Draws nothing, and reads no
# configuration.

_AT_ONCE = 16
"""Calls that are carried out at the same time; further ones wait."""
_SERVED_BY = "mcp"

_Context: TypeAlias = ServerRequestContext[Any, Any]
_Result: TypeAlias = types.CallToolResult | types.InputRequiredResult


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """What is served, and where it is kept."""

    journal: Journal
    """Where its sessions are; whoever opened it closes it."""
    agent: Setup | None = None
    """The agent that carries out tasks; None to offer none."""
    description: str = "Give a task to an agent."
    """Of the agent, for the client's model."""
    tools: tuple[Tool, ...] = ()
    """Tools that are offered by themselves."""
    caller: Callable[[str, dict[str, Any] | None], Setup] | None = None
    """Returns an agent that has those tools, makes one call, by its name and arguments, and ends; without arguments, one that continues such a run."""
    approve: str = "treadle approve {id}"
    """The command that allows a call that waits."""
    by: str = "mcp"
    """Who answers by this client, for the record."""
    redact: Callable[[str], str] = str
    """Takes secrets out of what a person is shown."""


class McpService:
    """Serves one client, or all of one address. `finish` waits for what is under way, and `leave` ends it first."""

    def __init__(self, offer: Offer, *, version: str, has_ended: Callable[[], bool]) -> None:
        self._offer = offer
        self._has_ended = has_ended
        self._tools = {tool.name: tool for tool in offer.tools}
        self._room = asyncio.Semaphore(_AT_ONCE)
        self._tasks: dict[asyncio.Task[_Result], Served] = {}
        self.server: Server[Any] = Server("treadle", version=version, on_list_tools=self._list, on_call_tool=self._call)

    async def finish(self) -> None:
        """Wait until all that was under way is recorded."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def leave(self) -> None:
        """End what is under way, as if its clients had gone."""
        for served in list(self._tasks.values()):
            served.stop(has_left=True)

    # --- what the client asks

    async def _list(self, _: _Context, __: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        own = agent_tools(self._offer.description) if self._offer.agent is not None else []
        return types.ListToolsResult(tools=[*own, *map(offered_tool, self._tools.values())])

    async def _call(self, ctx: _Context, params: types.CallToolRequestParams) -> _Result:
        """Carry out a call in a task of its own: a cancellation ends the run, and the run is recorded before it ends."""
        served = Served(self._offer, ctx, self._tools)
        task: asyncio.Task[_Result] = asyncio.create_task(self._in_turn(served, params))
        self._tasks[task] = served
        task.add_done_callback(lambda _: self._tasks.pop(task))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            served.stop(has_left=self._has_ended())
            raise

    async def _in_turn(self, served: "Served", params: types.CallToolRequestParams) -> _Result:
        async with self._room:
            try:
                return await served.carry_out(params)
            except TreadleError as error:
                return failure(self._offer.redact(str(error)))


class Served:
    """One call of the client."""

    def __init__(self, offer: Offer, ctx: _Context, tools: dict[str, Tool]) -> None:
        self._offer = offer
        self._ctx = ctx
        self._tools = tools
        self._work: Work | None = None
        self._is_stopped = False
        self._progress = 0
        self._called: ToolResult | None = None

    def stop(self, *, has_left: bool) -> None:
        """End it: the client cancelled it, or has gone."""
        self._is_stopped = True
        if self._work is not None:
            (self._work.leave if has_left else self._work.cancel)()

    async def carry_out(self, params: types.CallToolRequestParams) -> _Result:
        """Carry out the call.

        Raises:
            TreadleError: It could not begin.
        """
        if self._is_stopped:
            return failure("The call was cancelled before it had begun.")
        arguments = params.arguments or {}
        agent, caller = self._offer.agent, self._offer.caller
        if agent is not None and params.name in (RUN_TASK, RESUME_TASK):
            if (problem := _invalid(params.name, arguments)) is not None:
                return failure(problem)
            is_new = params.name == RUN_TASK and params.request_state is None
            session_id = arguments.get("session_id") if params.request_state is None else params.request_state
            return await self._run(agent, params, session_id, arguments["task"] if is_new else None)
        if caller is not None and params.name in self._tools:
            is_new = params.request_state is None
            setup = caller(params.name, arguments if is_new else None)
            return await self._run(setup, params, params.request_state, f"Call {params.name}." if is_new else None)
        known = [*([RUN_TASK, RESUME_TASK] if agent is not None else []), *self._tools]
        return failure(f"There is no tool {params.name!r:.80}. Known: {', '.join(known)}.")

    async def _run(
        self, setup: Setup, params: types.CallToolRequestParams, session_id: str | None, task: str | None
    ) -> _Result:
        setup = msgspec.structs.replace(setup, origin={**setup.origin, "served_by": _SERVED_BY})
        await self._check_known(session_id)
        async with open_session(self._offer.journal, id=session_id, on_store_failure="degrade") as session:
            _check_own(session, session_id)
            self._work = work = Work(setup, session, see=self._see, ask=self._ask, by=self._offer.by)
            shown = params.input_responses or {}
            if task is None:
                await self._take_answers(session, shown)
            result = await (work.resume() if task is None else work.start(task))
            # A person who was asked and gave no answer is not asked again by the same call.
            if self._is_modern and any(one.id not in shown for one in result.approvals):
                return self._required(session)
            return await self._result(result, params)

    async def _check_known(self, session_id: str | None) -> None:
        """Refuse an id of no session: to open it would make one."""
        if session_id is None:
            return
        if not any(one.id == session_id and one.status != "deleted" for one in await self._offer.journal.sessions()):
            raise _Unknown.named(session_id)

    async def _result(self, result: RunResult, params: types.CallToolRequestParams) -> types.CallToolResult:
        if (tool := self._tools.get(params.name)) is not None:
            called = self._called
            kept = None if called is None or called.data is not None else called.artifact
            whole = None if kept is None else await self._offer.journal.blob(kept)
            return tool_outcome(tool, result, called, whole, approve=self._offer.approve)
        return outcome(result, approve=self._offer.approve)

    # --- its person

    @property
    def _is_modern(self) -> bool:
        """Whether the client is asked by a result, which it answers by calling again."""
        is_so = self._ctx.protocol_version in MODERN_PROTOCOL_VERSIONS
        return is_so and can_ask(self._ctx.session.client_capabilities)

    def _required(self, session: Session) -> types.InputRequiredResult:
        asked: dict[str, Any] = {
            one.id: types.ElicitRequest(params=form_of(one, self._offer.redact)) for one in session.approvals()
        }
        return types.InputRequiredResult(input_requests=asked, request_state=session.id)

    async def _take_answers(self, session: Session, responses: dict[str, Any]) -> None:
        for approval in await session.approvals():
            given = responses.get(approval.id)
            answer = answer_of(given) if isinstance(given, types.ElicitResult) else None
            if answer is not None:
                with suppress(UnknownApproval):  # it expired and is asked again, or somebody else was first
                    await session.answer(approval.id, answer.answer, reason=answer.reason, by=self._offer.by)

    async def _ask(self, approval: Approval) -> Answer | None:
        """Ask the client's person; None where the client shows no forms, or has gone."""
        session = self._ctx.session
        if not can_ask(session.client_capabilities) or self._ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
            return None
        form = form_of(approval, self._offer.redact)
        try:
            result = await session.elicit_form(form.message, form.requested_schema, self._ctx.request_id)
        except Exception:  # noqa: BLE001 - whatever the client makes of the question, nobody has answered it
            return None
        return answer_of(result)

    async def _see(self, event: AnyEvent) -> None:
        match event:
            case ModelStarted():
                says = f"Step {event.step}"
            case ToolStarted():
                says = f"{event.tool} has started"
            case ToolFinished():
                self._called = event.result
                says = f"{event.result.name}: {event.result.status}"
            case _:
                return
        self._progress += 1
        with suppress(Exception):  # progress is a courtesy: a client that has gone is noticed elsewhere
            await self._ctx.session.report_progress(self._progress, message=self._offer.redact(says))


def _check_own(session: Session, given: str | None) -> None:
    """Refuse a session that no MCP client began: what other sessions hold is not this client's.

    Raises:
        TreadleError: It is unknown, or not one of ours.
    """
    if given is None:
        return
    run = session.state.run
    if run is None or (run.origin or {}).get("served_by") != _SERVED_BY:
        raise _Unknown.named(given)


class _Unknown(TreadleError):
    """The client named a session that is not its own."""

    @classmethod
    def named(cls, given: str) -> "_Unknown":
        return cls(f"There is no session {given!r:.80} of an MCP client. Leave session_id out to begin one.")


def _invalid(name: str, arguments: dict[str, Any]) -> str | None:
    """Return what is wrong with the arguments of a task; None where nothing is."""
    required, known = ("task", {"task", "session_id"}) if name == RUN_TASK else ("session_id", {"session_id"})
    if unknown := sorted(arguments.keys() - known):
        return f"{name} has no parameter {unknown[0]!r:.80}. It takes: {', '.join(sorted(known))}."
    for key in sorted({required, *arguments}):
        value = arguments.get(key)
        if not isinstance(value, str) or not value.strip():
            return f"`{key}` must be a string that is not empty."
    return None


def service_tools(tools: Sequence[object]) -> tuple[Tool, ...]:
    """Return the plain tools among tools and toolsets: only those can be offered by themselves."""
    return tuple(one for one in tools if isinstance(one, Tool))
