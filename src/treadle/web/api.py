"""API: its description in the form of OpenAPI, made from one table."""

from typing import Any

from treadle.web.acts import CONSEQUENCES

__all__ = ["OPENAPI"]

_TEXT = {"type": "string"}
_WHERE = ("status", "tenant", "agent", "model", "text", "age", "parent", "below")
_WAITING = ("tenant", "agent", "tool", "age")
_MANY: dict[str, Any] = {
    "requests": {
        "type": "array",
        "items": {"type": "object", "properties": {"session": _TEXT, "id": _TEXT}, "required": ["session", "id"]},
        "description": "What is answered: one, or several with the same answer.",
    },
    "where": {
        "type": "object",
        "properties": dict.fromkeys(_WAITING, _TEXT),
        "description": "In place of `requests`: all that fulfil these conditions.",
    },
    "limit": {"type": "integer", "description": "With `where`: at most so many, the oldest first; 500 at most."},
    "dry_run": {"type": "boolean", "description": "Only say which it would be."},
}
_ANSWER: dict[str, Any] = {
    **_MANY,
    "answer": {"enum": ["allow", "deny"]},
    "reason": _TEXT,
    "arguments": {"type": ["object", "null"], "description": "Edited arguments, for one request."},
    "scope": {"enum": ["call", "session", "rule"]},
    "interrupt": {"type": "boolean"},
}
_ONE: dict[str, Any] = {"session": _TEXT, "id": {"type": "string", "description": "Id of the call."}}
_RESOLVE: dict[str, Any] = {
    **_MANY,
    "outcome": {"enum": ["done", "not_done", "unknown"]},
    "value": {"description": "The result, of a call that was done."},
    "reason": _TEXT,
}
_ACT: dict[str, Any] = {
    "act": {"enum": list(CONSEQUENCES)},
    "ids": {"type": "array", "items": _TEXT},
    "where": {"type": "object", "properties": dict.fromkeys(_WHERE, _TEXT)},
    "limit": {"type": "integer"},
    "dry_run": {"type": "boolean", "description": "Only say which sessions it would be."},
    "reason": _TEXT,
    "text": {"type": "string", "description": "For `steer`: the message."},
    "key": {
        "type": "string",
        "description": "For `retry`: a new key. The task then begins from nothing in a session of its own.",
    },
    "may_repeat": {
        "type": "boolean",
        "description": "For `retry` with a key: begin also if that may repeat what was done.",
    },
    "at": {"description": "For `fork`: a mark, or the number of the last event to share."},
}

_PATHS: tuple[tuple[str, str, str, tuple[str, ...], dict[str, Any] | None, tuple[str, ...]], ...] = (
    # path, method, what it does, its query, the fields of its body, and which of them are required
    ("/me", "get", "Who you are, and what you may do.", (), None, ()),
    ("/inbox", "get", "What waits for a person.", ("kind", *_WAITING, "page", "size"), None, ()),
    ("/approvals", "get", "Requests for consent.", (*_WAITING, "page", "size"), None, ()),
    ("/approvals", "post", "Allow or deny. The first answer wins.", (), _ANSWER, ("answer",)),
    ("/questions", "get", "Calls that wait for an answer.", (*_WAITING, "page", "size"), None, ()),
    (
        "/questions",
        "post",
        "Answer one.",
        (),
        {**_ONE, "value": {"description": "Any JSON."}},
        ("session", "id", "value"),
    ),
    ("/doubts", "get", "Calls of unknown outcome.", (*_WAITING, "page", "size"), None, ()),
    ("/doubts", "post", "Say how calls of unknown outcome ended.", (), _RESOLVE, ("outcome",)),
    ("/sessions", "get", "Sessions, the last changed first.", (*_WHERE, "page", "size"), None, ()),
    ("/sessions", "post", "Do one act on the named sessions, or on those that a filter finds.", (), _ACT, ("act",)),
    ("/sessions/{id}", "get", "One session: its conversation, timeline and figures.", (), None, ()),
    ("/events", "get", "The events of a session, without secrets.", ("session", "after", "limit"), None, ()),
    ("/export", "get", "The lines of a session for an import; `exact=1` with secrets.", ("session", "exact"), None, ()),
    ("/fleet", "get", "Workers, queue, and what is stuck.", (), None, ()),
    ("/costs", "get", "What was used by day; `format=csv` for a table.", ("by", "days", "format"), None, ()),
    ("/agents", "get", "Agents that can be tried here.", (), None, ()),
    (
        "/agents",
        "post",
        "Send a message to one.",
        (),
        {"agent": _TEXT, "text": _TEXT, "session": _TEXT},
        ("agent", "text"),
    ),
    ("/changes", "get", "Server-sent events: `changed` with a version whenever anything has.", (), None, ()),
    (
        "/live",
        "get",
        "Server-sent events of a session: `state`, then `event` and `text`, and `end`.",
        ("session",),
        None,
        (),
    ),
)


def _operation(
    path: str, about: str, query: tuple[str, ...], body: dict[str, Any] | None, required: tuple[str, ...]
) -> dict[str, Any]:
    failed = {"description": "What went wrong, in one sentence: `error`."}
    made: dict[str, Any] = {
        "summary": about,
        "responses": {"200": {"description": "As it says.", "content": {"application/json": {}}}, "default": failed},
        "parameters": [{"name": name, "in": "query", "schema": _TEXT} for name in query],
    }
    if "{id}" in path:
        made["parameters"].append({"name": "id", "in": "path", "required": True, "schema": _TEXT})
    if body is not None:
        schema = {"type": "object", "properties": body, "required": list(required)}
        made["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    return made


def _described() -> dict[str, Any]:
    paths: dict[str, Any] = {}
    for path, method, about, query, body, required in _PATHS:
        paths.setdefault(path, {})[method] = _operation(path, about, query, body, required)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Treadle", "version": "1"},
        "servers": [{"url": "../v1"}],
        "security": [{"token": []}],
        "components": {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "paths": paths,
    }


OPENAPI = _described()
"""The description of the API."""
