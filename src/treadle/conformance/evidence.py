"""Evidence: what a trial left behind: requests on the wire, executions in the ledger, exits. Read here, judged elsewhere."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec

from treadle.testing import RecordedRequest

__all__ = ["Evidence", "Execution", "Exit", "Item", "Request", "executions_in", "request_of"]

Kind: TypeAlias = Literal["system", "user", "assistant", "call", "result"]


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that a request tells the provider, whatever its dialect."""

    kind: Kind
    text: str = ""
    """What was said; the arguments of a call; the content of a result."""
    id: str = ""
    """The id of a call, and of the call that a result answers."""
    name: str = ""
    """The tool of a call."""
    is_error: bool = False
    """Whether the dialect's own field says that the call failed."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One request that the provider received."""

    status: int
    """What it was answered with."""
    items: tuple[Item, ...]
    """Its history, in order."""
    tools: Mapping[str, Any]
    """The schemas of the tools that it offers, by name."""
    body: Any
    """As it came."""

    def results(self, call_id: str) -> list[Item]:
        """Return the results of one call."""
        return [item for item in self.items if item.kind == "result" and item.id == call_id]


class Execution(msgspec.Struct, frozen=True, kw_only=True):
    """One execution of a tool, as the tool's own process wrote it down."""

    tool: str
    number: int
    arguments: Any
    began: int
    """The line of the ledger at which it began."""
    ended: int | None = None
    """The line at which it was done or failed; None if it never was."""
    is_done: bool = False
    """Whether it had its effect."""


class Exit(msgspec.Struct, frozen=True, kw_only=True):
    """How one process of the subject ended."""

    code: int | None
    """The exit code, negative for a signal; None if the suite had to end it."""
    was_killed: bool = False
    """Whether the scenario killed it."""
    answer: str | None = None
    """The final answer that it printed."""
    outcome: Mapping[str, Any] = {}
    """All that it printed as its outcome."""
    errors: str = ""
    """The end of its standard error."""

    @property
    def is_completed(self) -> bool:
        """Whether it says that the task is done."""
        return self.code == 0 and self.outcome.get("completed") is True


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """All that is judged."""

    dialect: str
    requests: tuple[Request, ...]
    refusals: tuple[str, ...]
    """The provider's reasons to refuse requests as they were."""
    executions: tuple[Execution, ...]
    exits: tuple[Exit, ...]
    proposed: Mapping[str, int] = {}
    """The calls that the provider proposed, in order: by id, how many requests it had received before."""
    is_in_texts: bool = False
    """Whether the loop tells the model calls and results as texts, and not in the dialect's own form."""

    @property
    def last(self) -> Exit:
        """How the last process ended."""
        return self.exits[-1]

    def ran(self, tool: str) -> list[Execution]:
        """Return the executions of one tool."""
        return [one for one in self.executions if one.tool == tool]

    def done(self, tool: str) -> list[Execution]:
        """Return the executions of one tool that had their effect."""
        return [one for one in self.ran(tool) if one.is_done]

    def results(self, call_id: str) -> list[Item]:
        """Return the results of one call in the first request that has any. A loop may have given the call another id.

        Where results are texts, it is all that the next request says in addition as the user.
        """
        if self.is_in_texts:
            return self._texts_after(self.proposed.get(call_id, 0), call_id)
        return next(
            (found for request in self.requests if (found := request.results(self._id_in(request, call_id)))), []
        )

    def _texts_after(self, place: int, call_id: str) -> list[Item]:
        said = ["\n".join(item.text for item in one.items if item.kind == "user") for one in self.requests[place:][:2]]
        text = said[-1].removeprefix(said[0]).strip() if len(said) == 2 else ""
        return [Item(kind="result", id=call_id, text=text)] if text else []

    def _id_in(self, request: Request, call_id: str) -> str:
        calls = [item.id for item in request.items if item.kind == "call"]
        place = list(self.proposed).index(call_id) if call_id in self.proposed else len(calls)
        return call_id if call_id in calls or place >= len(calls) else calls[place]


def executions_in(path: Path) -> Iterator[Execution]:
    """Read the ledger."""
    if not path.exists():
        return
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    ends = {
        (line["tool"], line["number"]): (at, line["event"] == "done")
        for at, line in enumerate(lines)
        if line["event"] != "started"
    }
    for at, line in enumerate(lines):
        if line["event"] == "started":
            ended, is_done = ends.get((line["tool"], line["number"]), (None, False))
            yield Execution(
                tool=line["tool"],
                number=line["number"],
                arguments=line["arguments"],
                began=at,
                ended=ended,
                is_done=is_done,
            )


# --- Requests of four dialects, in neutral words.


def request_of(recorded: RecordedRequest) -> Request:
    """Return what one request says. A body that is not of its dialect says nothing."""
    body = recorded.body if isinstance(recorded.body, dict) else {}
    if recorded.path.endswith("/chat/completions"):
        items, tools = _chat(body.get("messages")), _functions(body.get("tools"), "function", "parameters")
    elif recorded.path.endswith("/responses"):
        items, tools = _responses(body), _functions(body.get("tools"), "", "parameters")
    elif recorded.path.endswith("/messages"):
        items, tools = _anthropic(body), _functions(body.get("tools"), "", "input_schema")
    else:
        items, tools = _gemini(body), _declarations(body.get("tools"))
    return Request(status=recorded.status, items=tuple(items), tools=tools, body=recorded.body)


def _chat(messages: Any) -> Iterator[Item]:
    for message in _objects(messages):
        role, text = message.get("role"), _text(message.get("content"))
        if role == "tool":
            yield Item(kind="result", id=str(message.get("tool_call_id")), text=text)
            continue
        if text:
            yield Item(kind=_role(role), text=text)
        for call in _objects(message.get("tool_calls")):
            function = call.get("function") or {}
            yield Item(
                kind="call",
                id=str(call.get("id")),
                name=str(function.get("name")),
                text=_text(function.get("arguments")),
            )


def _responses(body: Mapping[str, Any]) -> Iterator[Item]:
    if body.get("instructions"):
        yield Item(kind="system", text=str(body["instructions"]))
    given = body.get("input")
    if isinstance(given, str):
        yield Item(kind="user", text=given)
    for item in _objects(given):
        match item.get("type", "message"):
            case "message":
                yield Item(kind=_role(item.get("role")), text=_text(item.get("content")))
            case "function_call":
                yield Item(
                    kind="call",
                    id=str(item.get("call_id")),
                    name=str(item.get("name")),
                    text=_text(item.get("arguments")),
                )
            case "function_call_output":
                yield Item(kind="result", id=str(item.get("call_id")), text=_text(item.get("output")))


def _anthropic(body: Mapping[str, Any]) -> Iterator[Item]:
    if body.get("system"):
        yield Item(kind="system", text=_text(body["system"]))
    for message in _objects(body.get("messages")):
        content = message.get("content")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        for block in _objects(blocks):
            match block.get("type"):
                case "text":
                    yield Item(kind=_role(message.get("role")), text=str(block.get("text")))
                case "tool_use":
                    yield Item(
                        kind="call",
                        id=str(block.get("id")),
                        name=str(block.get("name")),
                        text=_text(block.get("input")),
                    )
                case "tool_result":
                    yield Item(
                        kind="result",
                        id=str(block.get("tool_use_id")),
                        text=_text(block.get("content")),
                        is_error=block.get("is_error") is True,
                    )


def _gemini(body: Mapping[str, Any]) -> Iterator[Item]:
    """Calls may have no id there: a result then answers the call at its place."""
    system = body.get("systemInstruction") or body.get("system_instruction")
    if isinstance(system, dict):
        yield Item(kind="system", text=_text(system.get("parts")))
    open_calls: list[str] = []
    number = 0
    for content in _objects(body.get("contents")):
        calls: list[str] = []
        place = 0
        for part in _objects(content.get("parts")):
            call = part.get("functionCall") or part.get("function_call")
            result = part.get("functionResponse") or part.get("function_response")
            if isinstance(call, dict):
                number += 1
                calls.append(str(call.get("id") or f"call_{number}"))
                yield Item(kind="call", id=calls[-1], name=str(call.get("name")), text=_text(call.get("args")))
            elif isinstance(result, dict):
                here = open_calls[place] if place < len(open_calls) else ""
                place += 1
                yield Item(kind="result", id=str(result.get("id") or here), text=_text(result.get("response")))
            elif part.get("text") and not part.get("thought"):
                yield Item(kind=_role(content.get("role")), text=str(part["text"]))
        open_calls = calls


def _role(role: Any) -> Kind:
    match role:
        case "assistant" | "model":
            return "assistant"
        case "system" | "developer":
            return "system"
        case _:
            return "user"


def _objects(value: Any) -> Iterable[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _text(value: Any) -> str:
    """Return what a content says: a text, the texts of its parts, or its JSON."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(one, dict) and "text" in one for one in value):
        return "".join(str(one["text"]) for one in value)
    return json.dumps(value, ensure_ascii=False)


def _functions(tools: Any, inside: str, schema: str) -> dict[str, Any]:
    declared: Sequence[dict[str, Any]] = [one.get(inside) or {} if inside else one for one in _objects(tools)]
    return {str(one["name"]): one.get(schema) for one in declared if "name" in one}


def _declarations(tools: Any) -> dict[str, Any]:
    listed = [tools] if isinstance(tools, dict) else tools
    declared = [
        one
        for found in _objects(listed)
        for one in _objects(found.get("functionDeclarations") or found.get("function_declarations"))
    ]
    return {
        str(one["name"]): one.get("parametersJsonSchema", one.get("parameters_json_schema", one.get("parameters")))
        for one in declared
        if "name" in one
    }
