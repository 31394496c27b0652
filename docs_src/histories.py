"""Histories from other code, checked against the rules of each vendor."""

from typing import Any

from treadle.testing import Refusal, check_chat_history

question: dict[str, Any] = {"role": "user", "content": "What is there?"}
function = {"name": "look", "arguments": "{}"}
asked: dict[str, Any] = {
    "role": "assistant",
    "tool_calls": [{"id": "call_1", "type": "function", "function": function}],
}
answered: dict[str, Any] = {"role": "tool", "tool_call_id": "call_1", "content": "nothing"}


def fault_of(history: list[dict[str, Any]]) -> str | None:
    try:
        check_chat_history(history)
    except Refusal as refusal:
        return str(refusal)
    return None


print(fault_of([question, asked, question]))
assert fault_of([question, asked, answered]) is None
assert "call_1" in str(fault_of([question, asked, question]))
