"""What was too long for the model on the command line: it reads on there, also in another process. And what it writes down for itself."""

import json
import re
from typing import Any

from treadle.testing import MockProvider, RecordedRequest, call, text

LOG = """
from treadle import tool

@tool(effect="read")
async def log() -> str:
    \"\"\"Return the log.\"\"\"
    return "a" * 70_000 + " the needle " + "b" * 70_000
"""


def offered(request: RecordedRequest) -> list[str]:
    return [tool["function"]["name"] for tool in request.body.get("tools", [])]


def test_the_model_reads_on_in_a_long_result_also_in_another_process(treadle):
    (treadle.folder / "log.py").write_text(LOG, encoding="utf-8")

    def turn(body: dict[str, Any]) -> Any:
        said = json.dumps(body["messages"])
        marks = re.findall(r"artifact (a_[0-9a-f]+)", said)
        if not marks:
            return call("log")
        if body["messages"][-1]["role"] == "tool" and "read_artifact" not in said:
            return text("It is long.")
        return text("Found.") if "the needle" in said else call("read_artifact", artifact=marks[0], search="needle")

    with MockProvider(turn).in_thread() as provider:
        flags = ["run", *treadle.served(provider), "--tools", "log.py", "--session", "s"]
        treadle(*flags, "Read the log", code=0)
        treadle(*flags, "What is in it?", code=0)

    first, second, third, last = provider.requests
    assert offered(first) == ["log"]
    assert offered(second) == offered(third) == ["log", "read_artifact"]
    assert "the needle" in json.dumps(last.body["messages"][-1])


def test_the_list_of_todos_is_kept_and_shown_with_its_session(treadle):
    items = [{"text": "Count the jars", "state": "done"}, {"text": "Weigh the tea", "state": "in_progress"}]
    model = treadle.script(
        "s.json", [{"calls": [{"name": "todo", "arguments": {"items": items}}]}, {"text": "One is left."}]
    )

    treadle("run", "-m", model, "--tools", "todo", "--session", "shop", "Go", code=0)
    shown = treadle("sessions", "show", "shop", code=0).stdout

    assert "todos:\n  [x] Count the jars\n  [>] Weigh the tea\n" in shown


def test_a_note_of_one_run_is_seen_in_the_next(treadle):
    (treadle.folder / "agent-notes").mkdir()
    (treadle.folder / "agent-notes" / "tea.md").write_text("Green tea stands on shelf 3.", encoding="utf-8")

    with MockProvider(["I know."]).in_thread() as provider:
        treadle("run", *treadle.served(provider), "--tools", "notes", "Where is the tea?", code=0)

    assert "Green tea stands on shelf 3." in json.dumps(provider.requests[0].body)
    assert offered(provider.requests[0]) == ["read_note", "write_note"]
