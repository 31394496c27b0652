"""ACP updates: what happens in a run, and what a session holds, as an editor is shown it. Values only; one read of a file that is edited."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias

import acp
from acp.schema import (
    AgentPlanUpdate,
    FileEditToolCallContent,
    PlanEntryStatus,
    SessionInfo,
    ToolCallLocation,
    ToolCallProgress,
    ToolCallStart,
    ToolCallStatus,
    ToolKind,
)

from treadle import Approval, Message, Session, ToolCall
from treadle.events import AnyEvent, ModelDelta, ModelFinished, ModelStarted, ToolFinished, ToolStarted
from treadle.ports import SessionInfo as StoredSession

__all__ = ["Update", "Updates", "history", "listed", "plan_of", "start_of"]

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

    def of(self, event: AnyEvent) -> Iterator[Update]:
        """Yield what the editor is shown of an event."""
        match event:
            case ModelStarted():
                self._began(event)
            case ModelDelta():
                if event.thinking:
                    yield acp.update_agent_thought_text(event.thinking)
                yield from self._text(event.text)
            case ModelFinished():
                if not self._shown_text:
                    yield from self._text(event.message.text)
                yield from (self.started(one) for one in event.message.calls if one.id not in self._known)
            case ToolStarted():
                yield from self._underway(event)
            case ToolFinished():
                yield self._finished(event)
            case _:
                pass

    def _began(self, event: ModelStarted) -> None:
        if event.step != self._step:
            self._step, self._shown = event.step, ""
        self._shown_text = ""

    def _underway(self, event: ToolStarted) -> Iterator[Update]:
        if event.call is not None and event.call.id not in self._known:  # the response still streams
            yield self.started(event.call)
        if event.call_id in self._known:
            yield acp.update_tool_call(event.call_id, status="in_progress")

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
        kept = (
            []
            if result.name in ("write", "edit") and not result.is_error
            else [acp.tool_content(acp.text_block(shown))]
        )
        return acp.update_tool_call(
            result.call_id, status=status, content=kept or None, raw_output={"status": str(result.status), "content": shown}
        )  # fmt: skip

    def _text(self, new: str) -> Iterator[Update]:
        """Yield text that was not shown before. A repeated request says its text from the start."""
        self._shown_text += new
        if self._shown.startswith(self._shown_text):
            return
        more = (
            self._shown_text[len(self._shown) :]
            if self._shown_text.startswith(self._shown)
            else f"\n{self._shown_text}"
        )
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
