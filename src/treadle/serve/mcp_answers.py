"""MCP answers: the tools that a client is offered, and the ends of runs as results of its calls. Values only."""

import json
from typing import Any
from urllib.parse import quote

import mcp_types as types
import msgspec

from treadle import Effect, RunResult, StopReason, Tool, ToolResult

__all__ = ["RESUME_TASK", "RUN_TASK", "agent_tools", "failure", "offered_tool", "outcome", "tool_outcome"]

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


def outcome(result: RunResult, *, approve: str) -> types.CallToolResult:
    """Return how a run ended.

    Args:
        approve: The command that allows a call that waits, where `{id}` stands for the id.
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
        content=[types.TextContent(type="text", text=_summary(result, waiting, approve))],
        structured_content=msgspec.to_builtins(said),
        is_error=result.status.value in ("failed", "stopped"),
    )


def _summary(result: RunResult, waiting: list[dict[str, Any]], approve: str) -> str:
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
    if result.status.value == "paused":
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
        said = outcome(result, approve=approve)
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
