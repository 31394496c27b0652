"""Seed 002's story from outside: the program, its own grep over the story's files, and a strict provider."""

import json
from typing import Any

import pytest

from treadle.testing import MockProvider, call, text

TASK = "Keep searching for errors in every file"
SUMMARY = (
    "I was searching through files but reached the tool call limit (3 calls). I found errors in main.c and config.c. "
    "To continue searching, you can ask me to resume or increase the limit."
)
FILES = {
    "src/main.c": (12, 'log_error("Failed to initialize");'),
    "src/config.c": (45, "return CONFIG_ERROR;"),
    "src/parser.c": (78, "parse_error(line, col);"),
}
LIMIT = {"limit_reached": True, "limit_message": "Tool call limit reached (3). Stopping tool loop."}


def asked(number: int, path: str) -> dict[str, Any]:
    function = {"name": "grep", "arguments": json.dumps({"pattern": "error", "path": path})}
    return {
        "role": "assistant",
        "tool_calls": [{"id": f"call_grep{number}", "type": "function", "function": function}],
    }


def told(number: int, path: str) -> dict[str, Any]:
    line, words = FILES[path]
    content = {"output": f"{path}:{line}: {words}", "count": 1, **(LIMIT if number == 3 else {})}
    return {"role": "tool", "tool_call_id": f"call_grep{number}", "content": content}


def normal(message: dict[str, Any]) -> dict[str, Any]:
    """Contents of results are compared as JSON; an assistant's content may be absent or null."""
    kept = {key: value for key, value in message.items() if value is not None}
    return {**kept, "content": json.loads(kept["content"])} if kept["role"] == "tool" else kept


@pytest.mark.row("L07", "W01", "K01", "Q01")
def test_the_program_tells_the_story_of_the_tool_limit_over_real_files(treadle):
    for path, (line, words) in FILES.items():
        (treadle.folder / path).parent.mkdir(exist_ok=True)
        (treadle.folder / path).write_text("\n" * (line - 1) + words + "\n", encoding="utf-8")
    calls = [
        call("grep", id=f"call_grep{number}", arguments=json.dumps({"pattern": "error", "path": path}))
        for number, path in enumerate(FILES, 1)
    ]

    with MockProvider([*calls, text(SUMMARY)]).in_thread() as provider:
        model = ["-m", "openai-chat:gpt-5-mini", "--base-url", provider.base_url]
        report = treadle.json("run", *model, "--max-tool-calls", "3", "--json", TASK, code=10)

    pairs = [message(number, path) for number, path in enumerate(FILES, 1) for message in (asked, told)]
    expected = [{"role": "user", "content": TASK}, *pairs]
    bodies = [request.body for request in provider.requests]
    for number, body in enumerate(bodies):
        assert [normal(message) for message in body["messages"] if message["role"] != "system"] == expected[
            : 1 + 2 * number
        ]
        assert (body["model"], body["stream"], body["tools"]) == ("gpt-5-mini", True, bodies[0]["tools"])
    assert [body["tool_choice"] for body in bodies] == ["auto", "auto", "auto", "none"]
    assert report["text"] == SUMMARY
    shown = treadle.json("sessions", "show", report["session_id"], "--json")
    assert len(shown["messages"]) == 8
