"""ACP prompts: what an editor sends as a task, the questions it is asked, and how a run's end is called there. Values only."""

from collections.abc import Iterator
from typing import Any, Literal, TypeAlias

import acp
import msgspec
from acp.schema import (
    AllowedOutcome,
    McpServerStdio,
    PermissionOption,
    RequestPermissionResponse,
    SessionConfigOptionBoolean,
    SessionConfigOptionSelect,
    SessionConfigSelectOption,
    SessionMode,
    SessionModeState,
    ToolCallUpdate,
)

from treadle import Answer, Approval, McpTools, Message, RunResult, StopReason, mcp_server

__all__ = [
    "MODES",
    "MODE_OPTION",
    "answer_of",
    "choices",
    "config_options",
    "explanation",
    "mode_state",
    "question_of",
    "servers_of",
    "stop_of",
    "task_of",
]

_Stop: TypeAlias = Literal["end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled"]

MODES = {
    "ask": ("Ask", "A person is asked about what no rule allows."),
    "accept-edits": ("Accept edits", "Edits of files in the folder are not asked about."),
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
