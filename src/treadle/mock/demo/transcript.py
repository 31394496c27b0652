"""The demo model's view of one Chat Completions request: the task, the tools, and what its calls have brought so far.

Parses; understands no task and decides nothing.
"""

import re
from collections.abc import Iterator, Mapping
from itertools import takewhile
from typing import Any

import msgspec

from treadle.tools import JsonObject

__all__ = ["Exchange", "Transcript", "read_request"]

_GO_ON = re.compile(r"(?:please\s+)?(?:continue|continue|carry on|keep going|resume|proceed)[\s.!]*", re.IGNORECASE)
_NEVER_RUN = ("skipped", "cancelled")
"""Such a call may be proposed again."""


class Exchange(msgspec.Struct, frozen=True, kw_only=True):
    """One call of the demo model, and what came back."""

    name: str
    arguments: JsonObject
    """Empty when they could not be read back."""
    result: JsonObject
    """The tool's own object; empty when there is none."""
    problem: str | None = None
    """What went wrong, in one word or code; None when the call is fine."""
    message: str = ""
    """The problem in a sentence."""

    @property
    def path(self) -> str:
        return str(self.arguments.get("path", "."))

    @property
    def lines(self) -> list[str]:
        output = self.result.get("output")
        return output.split("\n") if isinstance(output, str) and output else []


class Transcript(msgspec.Struct, frozen=True, kw_only=True):
    """What one request tells."""

    task: str
    """The words of the last user message that is more than a wish to continue."""
    tools: Mapping[str, JsonObject]
    """The schemas of the tools offered, by name."""
    exchanges: tuple[Exchange, ...]
    """Calls since that message that were run or refused, in order."""
    calls_so_far: int
    """Calls in the whole transcript: makes ids that are never used twice."""
    must_stop: bool
    """Whether the request allows no further call, or the last result says that a limit is reached."""
    stop_message: str = ""
    """The limit in the client's words."""

    def of(self, *names: str) -> Iterator[Exchange]:
        """Yield the calls of these tools that went well."""
        return (exchange for exchange in self.exchanges if exchange.name in names and exchange.problem is None)

    def has_proposed(self, name: str, arguments: JsonObject) -> bool:
        return any(one.name == name and one.arguments == arguments for one in self.exchanges)

    @property
    def problems(self) -> list[Exchange]:
        return [exchange for exchange in self.exchanges if exchange.problem is not None]

    @property
    def failures_in_a_row(self) -> int:
        return sum(1 for _ in takewhile(lambda one: one.problem is not None, reversed(self.exchanges)))


def read_request(body: JsonObject) -> Transcript:
    """Read the body of a Chat Completions request.

    Raises:
        msgspec.ValidationError: It is invalid.
    """
    request = msgspec.convert(body, _Request)
    users = [index for index, message in enumerate(request.messages) if _is_task(message)]
    recent = request.messages[users[-1] + 1 :] if users else []
    limits = _limits(recent)
    return Transcript(
        task=_text(request.messages[users[-1]].content) if users else "",
        tools={tool.function.name: tool.function.parameters for tool in request.tools or []},
        exchanges=tuple(one for one in _exchanges(recent) if one.problem not in _NEVER_RUN),
        calls_so_far=sum(len(message.tool_calls or []) for message in request.messages),
        must_stop=request.tool_choice == "none" or bool(limits),
        stop_message=limits[-1] if limits else "",
    )


def _is_task(message: "_Message") -> bool:
    """Tell a task from the wish to continue the one before."""
    return message.role == "user" and not _GO_ON.fullmatch(_text(message.content).strip())


class _Function(msgspec.Struct):
    name: str
    parameters: JsonObject = {}


class _Tool(msgspec.Struct):
    function: _Function


class _CalledFunction(msgspec.Struct):
    name: str
    arguments: str = ""


class _Call(msgspec.Struct):
    id: str
    function: _CalledFunction


class _Message(msgspec.Struct):
    role: str
    content: str | list[JsonObject] | None = None
    tool_calls: list[_Call] | None = None
    tool_call_id: str | None = None


class _Request(msgspec.Struct):
    messages: list[_Message]
    tools: list[_Tool] | None = None
    tool_choice: Any = "auto"  # a word, or the object that names one function


def _limits(messages: list[_Message]) -> list[str]:
    """Return what the results since the last response say of a limit. Once the run continues, it no longer holds."""
    newest = takewhile(lambda message: message.role == "tool", reversed(messages))
    results = [_object(_text(message.content)) or {} for message in newest]
    return [str(result.get("limit_message", "")) for result in results if result.get("limit_reached") is True]


def _exchanges(messages: list[_Message]) -> Iterator[Exchange]:
    results = {message.tool_call_id: _text(message.content) for message in messages if message.role == "tool"}
    for message in messages:
        for call in message.tool_calls or []:
            if call.id in results:
                yield _exchange(call.function, results[call.id])


def _exchange(function: _CalledFunction, content: str) -> Exchange:
    arguments, result = _object(function.arguments) or {}, _object(content)
    problem, message = _problem(result)
    return Exchange(
        name=function.name, arguments=arguments, result=result or {}, problem=problem, message=message or content[:200]
    )


def _problem(result: JsonObject | None) -> tuple[str | None, str]:
    match result:
        case None:
            return "not_readable", "The result came shortened or is not a JSON object."
        case {"status": "error", "type": "rejected", "details": [{"error": str(reason)}, *_]}:
            return "rejected", reason
        case {"status": "error", "type": str(kind)}:
            return kind, str(result.get("message", ""))
        case {"error": reason}:
            return "rejected", str(reason)
        case _:
            return None, ""


def _object(text: str) -> JsonObject | None:
    try:
        value = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return None
    return value if isinstance(value, dict) else None


def _text(content: str | list[JsonObject] | None) -> str:
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content)
    return content or ""
