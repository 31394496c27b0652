"""MCP questions: an approval as a form for the client's person, and what was filled in as an answer. Sends nothing."""

import json
from collections.abc import Callable

import mcp_types as types

from treadle import Answer, Approval

__all__ = ["answer_of", "can_ask", "form_of"]

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
    """Return the whole call for a person. What a preview leaves out stands in the arguments."""
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
