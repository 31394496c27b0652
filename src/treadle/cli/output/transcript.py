"""Transcript: a session as a page to read, in Markdown or HTML. No text of a model, a tool or a person can pass for a line of the page."""

import html
import json
import re
from collections.abc import Iterator
from typing import Any

from treadle.cli.output.text import counted, one_line, printable, shown_name
from treadle.redaction import Redactor

__all__ = ["form_of", "page_of"]

_WHO = {"user": "Person", "assistant": "Model"}
_STYLE = (
    "body{max-width:56rem;margin:2rem auto;padding:0 1rem;font:16px/1.5 system-ui,sans-serif}"
    "pre{white-space:pre-wrap;overflow-wrap:anywhere;background:#8882;padding:.6rem;border-radius:.4rem}"
    ".said{font-family:inherit;background:none;padding:0}summary{cursor:pointer}.bad{color:#b00}"
)


def form_of(file: str | None) -> str:
    """Return the form that a file's name asks for.

    Example:
        >>> form_of("talk.md")
        'md'
    """
    suffix = (file or "").rpartition(".")[2].lower()
    return {"md": "md", "markdown": "md", "html": "html", "htm": "html"}.get(suffix, "json")


def page_of(form: str, record: dict[str, Any], redactor: Redactor | None) -> str:
    """Return a session's record as a page.

    Args:
        form: `md` or `html`.
        redactor: Takes secrets out of all of it; None for an exact page.
    """
    known = record if redactor is None else redactor.value(record)
    return _html(known) if form == "html" else _markdown(known)


def _entries(record: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield what is on the page, in order: texts by who wrote them, and calls."""
    calls = {call["id"]: call for call in record["calls"]}
    for message in record["messages"]:
        text = "\n\n".join(part["text"] for part in message["parts"] if part.get("kind") == "text").strip()
        if text and message["role"] in _WHO:
            yield message["role"], text
        for part in message["parts"]:
            if part.get("kind") == "call" and (call := calls.pop(part["id"], None)) is not None:
                yield "call", call
            elif part.get("kind") == "media":
                yield "other", str(part.get("media_type") or "file")
    for call in calls.values():  # no message holds it: its response broke off, or it waits
        yield "call", call


def _title(record: dict[str, Any]) -> list[str]:
    counts = f"{counted(len(record['messages']), 'message')}, {counted(len(record['calls']), 'call')}"
    return [f"Session {record['id']}", f"{record['status']}, {counts}"]


def _outcome(call: dict[str, Any]) -> str:
    """Say in one line how a call ended, who decided it, and how long it took."""
    decision, result = call["decision"], call["result"]
    said = [f"{one['answer']} by {shown_name(one['by'])}" for one in call["answers"]]
    if not said and decision is not None:
        said = [f"{decision['kind']} ({one_line(decision['rule'])})"]
    took = f" in {result['duration_seconds']:.1f} s" if result is not None and result["attempts"] else ""
    return ", ".join([*said, "no result" if result is None else f"{result['status']}{took}"])


def _arguments(call: dict[str, Any]) -> str:
    given = call["decided_arguments"] if call["decided_arguments"] is not None else call["arguments"]
    try:
        value = json.loads(given) if isinstance(given, str) else given
    except (ValueError, RecursionError):
        return str(given)
    return json.dumps(value, indent=2, ensure_ascii=False)


def _content(call: dict[str, Any]) -> str:
    """Return what a tool answered: of a command what it wrote, of a listing its lines."""
    result = call["result"] or {}
    text = str(result.get("full") or result.get("content") or "")
    try:
        known = json.loads(text)
    except (ValueError, RecursionError):
        known = None
    match known:
        case {"exit_code": code, "stdout": str(out), "stderr": str(err)}:
            ended = known.get("hint", "") if code is None else f"exit code {code}"
            text = "\n".join(part for part in (out, err, ended) if part)
        case {"output": str(output)}:
            text = output
        case _:
            pass
    return text.rstrip("\n")


# --- Markdown


def _markdown(record: dict[str, Any]) -> str:
    title, about = _title(record)
    parts = [f"# {title}", about]
    for kind, one in _entries(record):
        if kind == "call":
            parts += [
                f"### Call of `{shown_name(one['name'])}`: {_inline(_outcome(one))}",
                _fenced(_arguments(one), "json"),
            ]
            parts += [_fenced(_content(one), "text")] if _content(one) else []
        elif kind == "other":
            parts.append(f"*({one_line(one)} attached)*")
        else:
            parts += [f"## {_WHO[kind]}", "\n".join(f"> {line}".rstrip() for line in printable(one).split("\n"))]
    return "\n\n".join(parts) + "\n"


def _inline(text: str) -> str:
    """Return a line in which no character means anything to Markdown."""
    return re.sub(r"([\\`*_\[\]<>#|~&])", r"\\\1", printable(text))


def _fenced(text: str, language: str) -> str:
    """Return a block of code that its content cannot end."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(longest + 1, 3)
    return f"{fence}{language}\n{printable(text)}\n{fence}"


# --- HTML


def _html(record: dict[str, Any]) -> str:
    title, about = _title(record)
    parts = [f"<h1>{_escaped(title)}</h1>", f"<p>{_escaped(about)}</p>"]
    for kind, one in _entries(record):
        if kind == "call":
            parts.append(_html_call(one))
        elif kind == "other":
            parts.append(f"<p><em>({_escaped(one)} attached)</em></p>")
        else:
            parts.append(f'<h2>{_WHO[kind]}</h2>\n<pre class="said">{_escaped(one)}</pre>')
    body = "\n".join(parts)
    head = f'<meta charset="utf-8"><title>{_escaped(title)}</title><style>{_STYLE}</style>'
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body>\n{body}\n</body></html>\n'


def _html_call(call: dict[str, Any]) -> str:
    result = call["result"]
    mark = ' class="bad"' if result is None or result["status"] != "ok" else ""
    summary = f"<code>{_escaped(shown_name(call['name']))}</code> <span{mark}>{_escaped(_outcome(call))}</span>"
    shown = f"<pre>{_escaped(_arguments(call))}</pre>"
    content = f"<pre>{_escaped(_content(call))}</pre>" if _content(call) else ""
    return f"<details><summary>{summary}</summary>{shown}{content}</details>"


def _escaped(text: str) -> str:
    return html.escape(printable(text))
