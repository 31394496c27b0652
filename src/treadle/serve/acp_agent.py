"""ACP agent: an editor's sessions, prompts and permissions as sessions and runs of ours. Reads no configuration."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import acp
import msgspec
from acp.helpers import update_available_commands
from acp.schema import (
    AgentCapabilities,
    AvailableCommand,
    CloseSessionResponse,
    ConfigOptionUpdate,
    CurrentModeUpdate,
    Implementation,
    InitializeResponse,
    ListSessionsResponse,
    LoadSessionResponse,
    McpCapabilities,
    NewSessionResponse,
    PromptCapabilities,
    PromptResponse,
    ResumeSessionResponse,
    SessionCapabilities,
    SessionCloseCapabilities,
    SessionDeleteCapabilities,
    SessionListCapabilities,
    SessionResumeCapabilities,
    SetSessionConfigOptionResponse,
    SetSessionModeResponse,
)

from treadle import (
    Answer,
    Approval,
    ConfigurationError,
    RunResult,
    Session,
    Toolset,
    TreadleError,
    UnknownInput,
    open_session,
)
from treadle.events import AnyEvent, ToolFinished
from treadle.ports import Journal, SessionFilter
from treadle.serve.acp_prompts import (
    MODE_OPTION,
    MODES,
    answer_of,
    choices,
    config_options,
    explanation,
    mode_state,
    question_of,
    servers_of,
    stop_of,
    task_of,
)
from treadle.serve.acp_updates import Updates, history, listed, plan_of, start_of
from treadle.serve.wire import Wire
from treadle.serve.work import Setup, Work

__all__ = ["Editor", "serve_acp"]

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


class _Place(msgspec.Struct, kw_only=True):
    """One session of the editor."""

    folder: Path
    setup: Setup
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
        raise acp.RequestError.invalid_params(
            {"details": "No authentication is needed: keys come from the environment."}
        )

    async def new_session(self, cwd: str, mcp_servers: list[Any] | None = None, **_: Any) -> NewSessionResponse:
        place = self._placed(cwd, mcp_servers)
        async with open_session(self._editor.journal) as session:
            if self._editor.mode is not None:
                await session.set_mode(self._editor.mode, by=self._editor.by)  # type: ignore[arg-type]  # one of its literals
            self._places[session.id] = place
            await self._offer_commands(session.id)
            mode = session.mode
            return NewSessionResponse(
                session_id=session.id, modes=mode_state(mode), config_options=config_options(mode)
            )

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
            raise acp.RequestError.invalid_params({"details": "sessionId must be a string."})
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

    async def _is_known(self, session_id: str) -> bool:
        known = await self._editor.journal.sessions()
        return any(one.id == session_id and one.status != "deleted" for one in known)

    async def _reopened(self, cwd: str, session_id: str, servers: list[Any] | None, *, shows_history: bool) -> str:
        """Open a session of the journal; return its mode."""
        if not await self._is_known(session_id):
            raise acp.RequestError.resource_not_found(session_id)
        place = self._placed(cwd, servers)
        if (open_already := self._places.get(session_id)) is not None:
            place.work, place.running = open_already.work, open_already.running
        async with self._opened(session_id) as session:
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
            raise acp.RequestError.invalid_params({"details": self._editor.redact(str(error))}) from error
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
            raise acp.RequestError.invalid_params(
                {"details": f"There is no option {config_id!r:.80} here. Known: {MODE_OPTION}."}
            )
        await self._set_mode(session_id, value)
        return SetSessionConfigOptionResponse(config_options=config_options(value))

    async def _set_mode(self, session_id: str, mode: Any) -> None:
        self._place(session_id)
        if mode not in MODES:
            raise acp.RequestError.invalid_params({"details": f"There is no mode {mode!r:.80} here."})
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
        async with self._opened(session_id) as session:
            one = Prompted(self._editor, self._client, session, place.folder)
            place.work = Work(place.setup, session, see=one.see, ask=one.ask, by=self._editor.by)
            task = task_of(prompt)
            is_resumed = isinstance(task, str) and task.strip() == _RESUME
            is_resumed = is_resumed or await _answered(session, task, self._editor.by)
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
            raise acp.RequestError.invalid_params(
                {"details": f"Session {session_id!r:.80} was not opened here: load it first."}
            )
        return self._places[session_id]

    def _placed(self, cwd: str, servers: list[Any] | None) -> _Place:
        folder = Path(cwd)
        if not folder.is_absolute() or not folder.is_dir():
            raise acp.RequestError.invalid_params(
                {"details": f"cwd must be the absolute path of a folder; got {cwd!r:.200}."}
            )
        try:
            setup = self._editor.setup(folder, tuple(servers_of(servers)))
        except ConfigurationError as error:
            raise acp.RequestError(-32603, self._editor.redact(str(error))) from error
        return _Place(
            folder=folder, setup=msgspec.structs.replace(setup, origin={**setup.origin, "served_by": _SERVED_BY})
        )

    def _opened(self, session_id: str) -> Any:
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
