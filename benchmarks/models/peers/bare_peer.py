"""A bare loop: the calls that the server returns are run, errors go back as text, and an answer without a call ends it."""

import inspect
import json
import sys
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

sys.path.insert(0, str(Path(__file__).parents[1]))
import runs

KINDS = {int: "integer", float: "number", str: "string"}


class Bare:
    """The loop that everybody writes first."""

    def run(self, base_url: str, tools: Sequence[Callable[..., Any]], task: str) -> runs.Outcome:
        by_name = {function.__name__: function for function in tools}
        messages: list[dict[str, Any]] = [
            {"role": "system", "content": runs.INSTRUCTIONS},
            {"role": "user", "content": task},
        ]
        calls: list[tuple[str, bool]] = []
        for _ in range(runs.MOST_REQUESTS):
            message = _asked(base_url, {"model": runs.MODEL, "messages": messages, "tools": list(map(_schema, tools))})
            messages.append(message)
            if not message.get("tool_calls"):
                return runs.Outcome(message.get("content") or "", True, calls)
            for call in message["tool_calls"]:
                name = call["function"]["name"]
                try:
                    result, is_good = str(by_name[name](**json.loads(call["function"]["arguments"]))), True
                except Exception as error:  # noqa: BLE001 - a bare loop hands on whatever a tool raises
                    result, is_good = f"Error: {error!r}", False
                calls.append((name, is_good))
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
        return runs.Outcome("", False, calls, "out of requests")


def _asked(base_url: str, body: dict[str, Any]) -> dict[str, Any]:
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(f"{base_url}/chat/completions", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)["choices"][0]["message"]


def _schema(function: Callable[..., Any]) -> dict[str, Any]:
    text, _, rest = inspect.getdoc(function).partition("\n\nArgs:\n")
    said = dict(line.strip().split(": ", 1) for line in rest.splitlines())
    properties = {
        name: {**_kind(one.annotation), "description": said[name]}
        for name, one in inspect.signature(function).parameters.items()
    }
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    return {"type": "function", "function": {"name": function.__name__, "description": text, "parameters": parameters}}


def _kind(annotation: Any) -> dict[str, Any]:
    if get_origin(annotation) is Literal:
        return {"type": "string", "enum": list(get_args(annotation))}
    return {"type": KINDS[annotation]}


if __name__ == "__main__":
    runs.main(Bare())
