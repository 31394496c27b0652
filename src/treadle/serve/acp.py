"""ACP agent: an editor's sessions, prompts and permissions as sessions and runs of ours. Reads no configuration."""

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, TypeAlias

import acp
import msgspec
from acp.helpers import update_available_commands
from acp.schema import (
    AgentCapabilities,
    AgentPlanUpdate,
    AllowedOutcome,
    AvailableCommand,
    CloseSessionResponse,
    ConfigOptionUpdate,
    CurrentModeUpdate,
    FileEditToolCallContent,
    Implementation,
    InitializeResponse,
    ListSessionsResponse,
    LoadSessionResponse,
    McpCapabilities,
    McpServerStdio,
    NewSessionResponse,
    PermissionOption,
    PlanEntryStatus,
    PromptCapabilities,
    PromptResponse,
    RequestPermissionResponse,
    ResumeSessionResponse,
    SessionCapabilities,
    SessionCloseCapabilities,
    SessionConfigOptionBoolean,
    SessionConfigOptionSelect,
    SessionConfigSelectOption,
    SessionDeleteCapabilities,
    SessionInfo,
    SessionListCapabilities,
    SessionMode,
    SessionModeState,
    SessionResumeCapabilities,
    SetSessionConfigOptionResponse,
    SetSessionModeResponse,
    ToolCallLocation,
    ToolCallProgress,
    ToolCallStart,
    ToolCallStatus,
    ToolCallUpdate,
    ToolKind,
)

from treadle import (
    Approval,
    ConfigurationError,
    Message,
    RunResult,
    Session,
    StopReason,
    ToolCall,
    TreadleError,
    mcp_server,
    open_session,
)
from treadle.errors import UnknownInput
from treadle.events import AnyEvent, ModelDelta, ModelFinished, ModelStarted, ToolFinished, ToolStarted
from treadle.ports import Journal, SessionFilter, Toolset
from treadle.ports import SessionInfo as StoredSession
from treadle.serve.wire import Wire
from treadle.serve.work import Setup, Work
from treadle.tools import Answer
from treadle.toolsets import McpTools

__all__ = ["Editor", "serve_acp"]


# --- ACP prompts: what an editor sends as a task, the questions it is asked, and how a run's end is called there.
# Values only.

_Stop: TypeAlias = Literal["end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled"]

MODES = {
    "ask": ("Ask", "A person is asked about what no rule allows."),
    "accept-edits": ("Accept edits", "Edits of files in the folder are not asked about."),
    "auto": ("Auto", "Edits in the folder and commands in the sandbox are not asked about."),
    "plan": ("Plan", "Nothing runs but what only reads."),
}
"""The modes that an editor may choose, with their names and what they mean."""

MODE_OPTION = "mode"
"""The one option of a session."""

_STOPS: dict[StopReason, _Stop] = {
    StopReason.CANCELLED: "cancelled",
    StopReason.STEP_LIMIT_REACHED: "max_turn_requests",
    StopReason.BUDGET_EXCEEDED: "max_turn_requests",
    StopReason.REFUSED: "refusal",
    StopReason.OUTPUT_TRUNCATED: "max_tokens",
}


def mode_state(current: str) -> SessionModeState:
    """Return the modes of a session. One that was set elsewhere is listed, too."""
    names = {**MODES, **({} if current in MODES else {current: (current, "Set outside the editor.")})}
    listed = [SessionMode(id=mode, name=name, description=says) for mode, (name, says) in names.items()]
    return SessionModeState(current_mode_id=current, available_modes=listed)


def config_options(current: str) -> list[SessionConfigOptionSelect | SessionConfigOptionBoolean]:
    """Return the options of a session, which are its mode, in the form that has replaced modes."""
    modes = mode_state(current).available_modes
    options = [SessionConfigSelectOption(value=one.id, name=one.name, description=one.description) for one in modes]
    return [
        SessionConfigOptionSelect(
            id=MODE_OPTION,
            name="Mode",
            description="What a person is asked about.",
            category="mode",
            type="select",
            current_value=current,
            options=options,
        )
    ]


def task_of(blocks: list[Any]) -> str | Message:
    """Return a prompt as a task: texts and embedded files joined, links by their address, pictures and sounds as they are."""
    texts: list[str] = []
    media: list[dict[str, Any]] = []
    for block in blocks:
        match block.type:
            case "text":
                texts.append(block.text)
            case "resource_link":
                texts.append(f"[{block.title or block.name}]({block.uri})")
            case "resource" if hasattr(block.resource, "text"):
                texts.append(f"\n\n# File {block.resource.uri}\n\n{block.resource.text}\n\n")
            case "resource":
                kind = block.resource.mime_type or "application/octet-stream"
                media.append({"kind": "media", "media_type": kind, "base64": block.resource.blob})
            case _:
                media.append({"kind": "media", "media_type": block.mime_type, "base64": block.data})
    text = "".join(texts)
    if not media:
        return text
    return msgspec.convert({"role": "user", "parts": [{"kind": "text", "text": text}, *media]}, Message)


def servers_of(given: list[Any] | None) -> Iterator[McpTools]:
    """Yield the MCP servers that the editor has configured, as toolsets. Every call of them asks, as for any server.

    Raises:
        ConfigurationError: An entry is wrong.
    """
    for one in given or []:
        if isinstance(one, McpServerStdio):
            yield mcp_server(one.name, [one.command, *one.args], env={pair.name: pair.value for pair in one.env})
        elif one.type == "http":
            yield mcp_server(one.name, url=one.url, headers={pair.name: pair.value for pair in one.headers})


def question_of(approval: Approval, content: list[Any] | None, *, title: str) -> ToolCallUpdate:
    """Return the call that a person is asked about: whole, with its diff or preview."""
    facts = (approval.reason, approval.expected_result, approval.rollback and f"Undo: {approval.rollback}")
    says = [text for text in facts if text]
    if approval.preview is not None and approval.preview.kind != "arguments" and not content:
        says.append(f"```\n{approval.preview.text}\n```")
    blocks = [acp.tool_content(acp.text_block("\n\n".join(says)))] if says else []
    return ToolCallUpdate(
        tool_call_id=approval.call_id,
        title=title,
        status="pending",
        content=[*(content or []), *blocks],
        raw_input=approval.arguments,
    )


def choices(approval: Approval) -> list[PermissionOption]:
    """Return what a person may choose. Allowing more than this call is offered where the rules for it are known."""
    always = [
        PermissionOption(option_id="allow_always", name=f"Allow in this session: {', '.join(approval.rules)}", kind="allow_always")
    ]  # fmt: skip
    return [
        PermissionOption(option_id="allow_once", name="Allow once", kind="allow_once"),
        *(always if approval.rules else []),
        PermissionOption(option_id="reject_once", name="Reject", kind="reject_once"),
    ]


def answer_of(response: RequestPermissionResponse, approval: Approval) -> Answer | None:
    """Return what a person chose; None where the question was dismissed. An option that was not offered allows nothing."""
    if not isinstance(response.outcome, AllowedOutcome):
        return None
    match response.outcome.option_id:
        case "allow_once":
            return Answer(answer="allow")
        case "allow_always" if approval.rules:
            return Answer(answer="allow", scope="session")
        case _:
            return Answer(answer="deny")


def stop_of(result: RunResult) -> _Stop:
    """Return why a run ended, in the protocol's words."""
    return _STOPS.get(result.reason, "end_turn")


def explanation(result: RunResult, approve: str) -> str:
    """Return what the person reads where a run ended without an answer; empty where it has one."""
    if result.completed or result.reason is StopReason.CANCELLED:
        return ""
    is_question = result.reason is StopReason.INPUT_REQUIRED
    step = "Send the answer." if is_question else result.next_step
    lines = [f"{result.status} ({result.reason}): {result.message} {step}"]
    lines += [f"To allow {one.tool}: `{approve.replace('{id}', one.id)}`" for one in result.approvals]
    if result.approvals:
        lines.append("Then send: /resume")
    return "\n\n" + "\n".join(lines)


# --- ACP updates: what happens in a run, and what a session holds, as an editor is shown it. Values only; one read of a
# file that is edited.

Update: TypeAlias = Any
"""One of the package's session updates."""

_KINDS: dict[str, ToolKind] = {
    "edit": "edit",
    "fetch": "fetch",
    "glob": "search",
    "grep": "search",
    "list": "read",
    "read": "read",
    "shell": "execute",
    "write": "edit",
}
_PLAN_STATES: dict[str, PlanEntryStatus] = {"done": "completed", "in_progress": "in_progress"}
_TITLE_CHARS = 120
_SUBJECTS = ("path", "command", "pattern", "url", "task")
_MAX_FILE_BYTES = 1_000_000
_MAX_CHARS = 100_000


class Updates:
    """Turns the events of one run into updates. It remembers which calls the editor knows, and what was said of a step."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: set[str] = set()
        self._step = 0
        self._shown = ""
        self._shown_text = ""

    def of(self, event: AnyEvent) -> Iterator[Update]:  # noqa: C901 - one case for each event
        """Yield what the editor is shown of an event."""
        match event:
            case ModelStarted():
                if event.step != self._step:
                    self._step, self._shown = event.step, ""
                self._shown_text = ""
            case ModelDelta():
                if event.thinking:
                    yield acp.update_agent_thought_text(event.thinking)
                yield from self._text(event.text)
            case ModelFinished():
                if not self._shown_text:
                    yield from self._text(event.message.text)
                yield from (self.started(one) for one in event.message.calls if one.id not in self._known)
            case ToolStarted():
                if event.call is not None and event.call.id not in self._known:  # the response still streams
                    yield self.started(event.call)
                if event.call_id in self._known:
                    yield acp.update_tool_call(event.call_id, status="in_progress")
            case ToolFinished():
                yield self._finished(event)
            case _:
                pass

    def started(self, call: ToolCall) -> ToolCallStart:
        """Return a call that the model proposes."""
        self._known.add(call.id)
        return start_of(call.id, call.name, arguments_of(call), self._folder)

    def asked(self, approval: Approval) -> Iterator[Update]:
        """Yield the call that a person is asked about, where the editor does not know it: an agent below has proposed it."""
        if approval.call_id not in self._known:
            self._known.add(approval.call_id)
            yield start_of(approval.call_id, approval.tool, approval.arguments, self._folder)

    def _finished(self, event: ToolFinished) -> ToolCallProgress:
        result = event.result
        status: ToolCallStatus = "failed" if result.is_error else "completed"
        shown = _bounded(result.display or result.content)
        is_diff = result.name in ("write", "edit") and not result.is_error
        kept = [] if is_diff else [acp.tool_content(acp.text_block(shown))]
        return acp.update_tool_call(
            result.call_id, status=status, content=kept or None, raw_output={"status": str(result.status), "content": shown}
        )  # fmt: skip

    def _text(self, new: str) -> Iterator[Update]:
        """Yield text that was not shown before. A repeated request says its text from the start."""
        self._shown_text += new
        if self._shown.startswith(self._shown_text):
            return
        goes_on = self._shown_text.startswith(self._shown)
        more = self._shown_text[len(self._shown) :] if goes_on else f"\n{self._shown_text}"
        self._shown = self._shown_text
        if more:
            yield acp.update_agent_message_text(more)


def start_of(call_id: str, name: str, arguments: dict[str, Any], folder: Path) -> ToolCallStart:
    """Return a call with its kind, the file that it is about, and what it would change there."""
    subject = next((arguments[key] for key in _SUBJECTS if isinstance(arguments.get(key), str)), "")
    path = arguments.get("path")
    places = [ToolCallLocation(path=str(folder / path))] if isinstance(path, str) and path else None
    return acp.start_tool_call(
        call_id,
        _bounded(f"{name}: {subject}" if subject else name, 500),
        kind=_KINDS.get(name, "other"),
        status="pending",
        content=list(diffs_of(name, arguments, folder)) or None,
        locations=places,
        raw_input=arguments,
    )


def diffs_of(name: str, arguments: dict[str, Any], folder: Path) -> Iterator[FileEditToolCallContent]:
    """Yield what a call of a built-in tool would change in a file, as the editor's own kind of diff."""
    path = arguments.get("path")
    if not isinstance(path, str) or not path:
        return
    place = folder / path
    if name == "write" and isinstance(arguments.get("content"), str):
        yield acp.tool_diff_content(str(place), arguments["content"], _text_of(place))
    elif name == "edit":
        pairs = arguments["edits"] if isinstance(arguments.get("edits"), list) else [arguments]
        for one in pairs:
            if isinstance(one, dict) and isinstance(one.get("old_text"), str) and isinstance(one.get("new_text"), str):
                yield acp.tool_diff_content(str(place), one["new_text"], one["old_text"])


def _text_of(place: Path) -> str | None:
    """Return what a file holds now; None where it does not exist, or is not text of at most 1 MB."""
    try:
        if not place.is_file() or place.stat().st_size > _MAX_FILE_BYTES:
            return None
        return place.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return None


def arguments_of(call: ToolCall) -> dict[str, Any]:
    """Return the arguments of a call as the model wrote them; nothing where they are not a JSON object."""
    try:
        found = json.loads(call.arguments)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def history(messages: tuple[Message, ...], folder: Path) -> Iterator[Update]:
    """Yield a whole session, for an editor that loads it."""
    for message in messages:
        if message.role == "user":
            yield acp.update_user_message_text(message.text)
            continue
        if message.text:
            yield acp.update_agent_message_text(message.text)
        for call in message.calls:
            start = start_of(call.id, call.name, arguments_of(call), folder)
            # The file has changed since: what a call would change now is not what it changed.
            yield start.model_copy(update={"content": None} if call.name == "write" else {})
        for result in message.results:
            content = [acp.tool_content(acp.text_block(_bounded(result.content)))]
            yield acp.update_tool_call(
                result.call_id, status="failed" if result.is_error else "completed", content=content
            )


def _bounded(text: str, limit: int = _MAX_CHARS) -> str:
    return text if len(text) <= limit else f"{text[:limit]}\n... {len(text) - limit:,} more characters"


def plan_of(todos: Any) -> AgentPlanUpdate:
    """Return the list of what is to be done as the editor's plan: the whole of it, empty where there is none.

    Args:
        todos: The fact that the tool `todo` keeps. A tool of somebody else's may have written anything there.
    """
    rows = [one for one in todos if isinstance(one, dict)] if isinstance(todos, list) else []
    return acp.update_plan(
        acp.plan_entry(str(one.get("text", "")), status=_PLAN_STATES.get(str(one.get("state")), "pending"))
        for one in rows
    )


def listed(info: StoredSession, session: Session, cwd: str | None) -> SessionInfo | None:
    """Return a session as an editor lists it; None for one that has no folder, or carries out a call of another.

    Args:
        cwd: The folder that the editor asks about: None for all.
    """
    run, caller = session.state.run, session.state.caller
    folder = None if run is None or caller is not None else (run.origin or {}).get("folder")
    if not isinstance(folder, str) or not Path(folder).is_absolute():
        return None
    if cwd is not None and Path(cwd).resolve() != Path(folder).resolve():
        return None
    return SessionInfo(
        session_id=info.id,
        cwd=folder,
        title=" ".join(info.task.split())[:_TITLE_CHARS] or None,
        updated_at=datetime.fromtimestamp(info.updated_at, UTC).isoformat(timespec="seconds"),
    )


# --- ACP agent: an editor's sessions, prompts and permissions as sessions and runs of ours. Reads no configuration.

_RESUME = "/resume"
_SERVED_BY = "acp"
_LISTED = 50
"""Sessions of one page of a list."""


class Editor(msgspec.Struct, frozen=True, kw_only=True):
    """What an editor is served with."""

    journal: Journal
    """Where its sessions are; whoever opened it closes it."""
    setup: Callable[[Path, Sequence[Toolset]], Setup]
    """Who acts in a folder, with the tools of the editor's own MCP servers."""
    mode: str | None = None
    """The mode in which sessions begin; None for `ask`."""
    approve: str = "treadle approve {id}"
    """The command that allows a call that waits."""
    by: str = "editor"
    """Who answers by this editor, for the record."""
    redact: Callable[[str], str] = str
    """Takes secrets out of what is told of failures."""


def _wrong(details: str) -> acp.RequestError:
    return acp.RequestError.invalid_params({"details": details})


class _Place(msgspec.Struct, kw_only=True):
    """One session of the editor."""

    folder: Path
    setup: Setup
    held: AsyncExitStack
    """Its session, and the toolsets that stay open from prompt to prompt."""
    session: Session
    work: Work | None = None
    running: asyncio.Task[RunResult] | None = None


class TreadleAgent:
    """The agent's side of one connection, by the names that the package calls."""

    def __init__(self, editor: Editor, *, version: str) -> None:
        self._editor = editor
        self._version = version
        self._places: dict[str, _Place] = {}
        self._tasks: set[asyncio.Task[RunResult]] = set()
        self._client: Any = None  # the package's connection: it checks what it is given

    def on_connect(self, conn: Any) -> None:
        self._client = conn

    async def finish(self) -> None:
        """End what is under way, since the editor has gone, and wait until it is recorded."""
        for place in self._places.values():
            if place.work is not None:
                place.work.leave()
        while self._tasks:
            await asyncio.wait(self._tasks)
        for place in self._places.values():
            await place.held.aclose()

    # --- what the editor asks

    async def initialize(self, protocol_version: int, **_: Any) -> InitializeResponse:
        return InitializeResponse(
            protocol_version=min(protocol_version, acp.PROTOCOL_VERSION) or acp.PROTOCOL_VERSION,
            agent_info=Implementation(name="treadle", title="Treadle", version=self._version),
            agent_capabilities=AgentCapabilities(
                load_session=True,
                prompt_capabilities=PromptCapabilities(image=True, audio=True, embedded_context=True),
                mcp_capabilities=McpCapabilities(http=True, sse=False),
                session_capabilities=SessionCapabilities(
                    list=SessionListCapabilities(),
                    resume=SessionResumeCapabilities(),
                    close=SessionCloseCapabilities(),
                    delete=SessionDeleteCapabilities(),
                ),
            ),
            auth_methods=[],
        )

    async def authenticate(self, method_id: str, **_: Any) -> None:
        raise _wrong("No authentication is needed: keys come from the environment.")

    async def new_session(self, cwd: str, mcp_servers: list[Any] | None = None, **_: Any) -> NewSessionResponse:
        place = await self._placed(cwd, mcp_servers, None)
        session = place.session
        if self._editor.mode is not None:
            await session.set_mode(self._editor.mode, by=self._editor.by)  # type: ignore[arg-type]  # one of its literals
        self._places[session.id] = place
        await self._offer_commands(session.id)
        mode = session.mode
        return NewSessionResponse(session_id=session.id, modes=mode_state(mode), config_options=config_options(mode))

    async def load_session(
        self, cwd: str, session_id: str, mcp_servers: list[Any] | None = None, **_: Any
    ) -> LoadSessionResponse:
        mode = await self._reopened(cwd, session_id, mcp_servers, shows_history=True)
        return LoadSessionResponse(modes=mode_state(mode), config_options=config_options(mode))

    async def resume_session(
        self, cwd: str, session_id: str, mcp_servers: list[Any] | None = None, **_: Any
    ) -> ResumeSessionResponse:
        """Open a session that the editor shows already: its messages are not sent again."""
        mode = await self._reopened(cwd, session_id, mcp_servers, shows_history=False)
        return ResumeSessionResponse(modes=mode_state(mode), config_options=config_options(mode))

    async def close_session(self, session_id: str, **_: Any) -> CloseSessionResponse:
        """Cancel what is under way in a session, and forget that it is open. It can be opened again."""
        await self._close(self._place(session_id))
        self._places.pop(session_id, None)
        return CloseSessionResponse()

    async def ext_method(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Answer what the package has no name for: see `_Named`."""
        if f"_{method}" != _DELETE:
            raise acp.RequestError.method_not_found(f"_{method}")
        session_id = params.get("sessionId")
        if not isinstance(session_id, str):
            raise _wrong("sessionId must be a string.")
        place = self._places.pop(session_id, None)
        if place is not None:
            await self._close(place)
        if await self._is_known(session_id):
            try:
                async with self._opened(session_id) as session:
                    await session.delete()
            except TreadleError as error:
                raise acp.RequestError.invalid_request({"details": self._editor.redact(str(error))}) from error
        return {}

    async def _close(self, place: _Place) -> None:
        if place.work is not None:
            place.work.cancel()
        if place.running is not None:
            await asyncio.wait({place.running})
        await place.held.aclose()

    async def _is_known(self, session_id: str) -> bool:
        known = await self._editor.journal.sessions()
        return any(one.id == session_id and one.status != "deleted" for one in known)

    async def _reopened(self, cwd: str, session_id: str, servers: list[Any] | None, *, shows_history: bool) -> str:
        """Open a session of the journal; return its mode."""
        if not await self._is_known(session_id):
            raise acp.RequestError.resource_not_found(session_id)
        place = await self._placed(cwd, servers, session_id)
        session = place.session
        if (open_already := self._places.get(session_id)) is not None:
            place.work, place.running = open_already.work, open_already.running
            if open_already.work is None:
                await open_already.held.aclose()
            else:
                place.held.push_async_callback(open_already.held.aclose)
        for update in history(session.messages, place.folder) if shows_history else ():
            await self._client.session_update(session_id, update)
        if todos := session.state.facts.values.get("todos"):
            await self._client.session_update(session_id, plan_of(todos))
        self._places[session_id] = place
        await self._offer_commands(session_id)
        await session.approvals()  # looks into the inbox: a change of the mode may lie there since the last run
        return str(session.mode)

    async def list_sessions(self, cwd: str | None = None, cursor: str | None = None, **_: Any) -> ListSessionsResponse:
        """List what an editor can load, the last changed first: sessions that have worked in a folder. One page at a time."""
        where = SessionFilter(without_deleted=True, limit=_LISTED, after=cursor or "")
        try:
            page = await self._editor.journal.sessions(where)
        except TreadleError as error:
            raise _wrong(self._editor.redact(str(error))) from error
        found = []
        for one in page:
            async with self._opened(one.id) as session:
                row = listed(one, session, cwd)
            found += [] if row is None else [row]
        return ListSessionsResponse(sessions=found, next_cursor=page[-1].id if len(page) == _LISTED else None)

    async def set_session_mode(self, session_id: str, mode_id: str, **_: Any) -> SetSessionModeResponse:
        await self._set_mode(session_id, mode_id)
        await self._client.session_update(
            session_id,
            ConfigOptionUpdate(session_update="config_option_update", config_options=config_options(mode_id)),
        )
        return SetSessionModeResponse()

    async def set_config_option(
        self, session_id: str, config_id: str, value: Any, **_: Any
    ) -> SetSessionConfigOptionResponse:
        if config_id != MODE_OPTION:
            raise _wrong(f"There is no option {config_id!r:.80} here. Known: {MODE_OPTION}.")
        await self._set_mode(session_id, value)
        return SetSessionConfigOptionResponse(config_options=config_options(value))

    async def _set_mode(self, session_id: str, mode: Any) -> None:
        self._place(session_id)
        if mode not in MODES:
            raise _wrong(f"There is no mode {mode!r:.80} here.")
        async with self._opened(session_id) as session:
            await session.set_mode(mode, by=self._editor.by)
        update = CurrentModeUpdate(session_update="current_mode_update", current_mode_id=mode)
        await self._client.session_update(session_id, update)

    async def prompt(self, session_id: str, prompt: list[Any], **_: Any) -> PromptResponse:
        place = self._place(session_id)
        if place.work is not None:
            raise acp.RequestError.invalid_request(
                {"details": "A prompt of this session is under way. Cancel it first."}
            )
        await place.session.refresh()  # another program may have continued it since
        one = Prompted(self._editor, self._client, place.session, place.folder)
        place.work = Work(place.setup, place.session, see=one.see, ask=one.ask, by=self._editor.by)
        task = task_of(prompt)
        is_resumed = isinstance(task, str) and task.strip() == _RESUME
        is_resumed = is_resumed or await _answered(place.session, task, self._editor.by)
        running = asyncio.create_task(place.work.resume() if is_resumed else place.work.start(task))
        self._tasks.add(running)
        place.running = running
        try:
            result = await asyncio.shield(running)
        except TreadleError as error:
            raise acp.RequestError(-32603, self._editor.redact(str(error))) from error
        finally:
            await asyncio.wait({running})  # the session stays open until all is recorded
            self._tasks.discard(running)
            place.work = place.running = None
        if said := explanation(result, self._editor.approve):
            await self._client.session_update(session_id, acp.update_agent_message_text(self._editor.redact(said)))
        return PromptResponse(stop_reason=stop_of(result))

    async def cancel(self, session_id: str, **_: Any) -> None:
        place = self._places.get(session_id)
        if place is not None and place.work is not None:
            place.work.cancel()

    # --- its sessions

    def _place(self, session_id: str) -> _Place:
        if session_id not in self._places:
            raise _wrong(f"Session {session_id!r:.80} was not opened here: load it first.")
        return self._places[session_id]

    async def _placed(self, cwd: str, servers: list[Any] | None, session_id: str | None) -> _Place:
        folder, setup = self._set_up(cwd, servers)
        held = AsyncExitStack()
        session = await held.enter_async_context(self._opened(session_id))
        agent = await held.enter_async_context(setup.agent.open(session=session, in_background=True))
        setup = msgspec.structs.replace(setup, agent=agent, origin={**setup.origin, "served_by": _SERVED_BY})
        return _Place(folder=folder, setup=setup, held=held, session=session)

    def _set_up(self, cwd: str, servers: list[Any] | None) -> tuple[Path, Setup]:
        folder = Path(cwd)
        if not folder.is_absolute() or not folder.is_dir():
            raise _wrong(f"cwd must be the absolute path of a folder; got {cwd!r:.200}.")
        try:
            return folder, self._editor.setup(folder, tuple(servers_of(servers)))
        except ConfigurationError as error:
            raise acp.RequestError(-32603, self._editor.redact(str(error))) from error

    def _opened(self, session_id: str | None) -> Any:
        return open_session(self._editor.journal, id=session_id, on_store_failure="degrade")

    async def _offer_commands(self, session_id: str) -> None:
        resume = AvailableCommand(
            name="resume", description="Continue a run that was paused, stopped at a limit, or cut off."
        )
        await self._client.session_update(session_id, update_available_commands([resume]))


class Prompted:
    """One prompt under way: shows the run to the editor, and asks its person."""

    def __init__(self, editor: Editor, client: Any, session: Session, folder: Path) -> None:
        self._editor = editor
        self._client = client
        self._session = session
        self._folder = folder
        self._updates = Updates(folder)

    async def see(self, event: AnyEvent) -> None:
        for update in self._updates.of(event):
            await self._send(update)
        # As the event tells it: the session's state may be further by now.
        if isinstance(event, ToolFinished) and "todos" in (facts := event.result.facts or {}):
            await self._send(plan_of(facts["todos"]))

    async def ask(self, approval: Approval) -> Answer | None:
        """Ask the editor's person; None where nobody has answered, or the editor has gone."""
        for update in self._updates.asked(approval):
            await self._send(update)
        shown = start_of(approval.call_id, approval.tool, approval.arguments, self._folder)
        question = question_of(approval, shown.content, title=shown.title)
        try:
            response = await self._client.request_permission(
                session_id=self._session.id, tool_call=question, options=choices(approval)
            )
        except (acp.RequestError, ConnectionError, ValueError):
            return None
        return answer_of(response, approval)

    async def _send(self, update: Any) -> None:
        try:
            await self._client.session_update(self._session.id, update)
        except ConnectionError:  # the editor has gone: what ends the run is noticed elsewhere
            return


async def _answered(session: Session, said: object, by: str) -> bool:
    """Give a call that waits for an answer what the person has said; return whether its run continues."""
    asked = session.state.question
    if asked is None or not isinstance(said, str):
        return False
    try:
        await session.input(asked.call.id, said, by=by)
    except UnknownInput:  # it was answered from elsewhere, or its run was cancelled
        left = await session.journal.inbox(session.id)
        if session.state.question is None or any(one.kind == "cancel" for one in left):
            return False
        await session.steer(said)  # that answer counts, and the model reads this one after it
    return True


_DELETE = "_session/delete"


class _Named:
    """A wire whose `session/delete` arrives as an extension: the package knows the method and routes it nowhere."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self.send = wire.send
        self.close = wire.close

    async def receive(self) -> dict[str, Any] | None:
        """Return the next message; None once the client has gone."""
        message = await self._wire.receive()
        is_delete = message is not None and message.get("method") == _DELETE.removeprefix("_")
        return {**message, "method": _DELETE} if message is not None and is_delete else message


async def serve_acp(editor: Editor, wire: Wire, *, version: str) -> None:
    """Serve one editor until it leaves, and return when all that it had begun is recorded."""
    agent = TreadleAgent(editor, version=version)
    # The flag opens `session/resume` and `session/close`, which are stable in the protocol and not yet in the package.
    connection = acp.agent.connection.AgentSideConnection(
        agent, _Named(wire), listening=False, use_unstable_protocol=True
    )
    try:
        await connection.listen()
    finally:
        await agent.finish()
        await connection.close()
