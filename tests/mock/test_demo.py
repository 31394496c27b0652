"""The demo model: real numbers from real files, in any folder; a mistake mended; a limit told; honest about what it is."""

import asyncio
import json
import re
from itertools import count
from pathlib import Path
from typing import ClassVar

import jsonschema_rs
import pytest

from treadle import ToolOutput
from treadle.agents.agent import Agent
from treadle.budgets import Budget
from treadle.errors import Rejected
from treadle.messages import Message, Result, ToolCall, Usage, user_message
from treadle.mock.demo import DemoModel, Kind, brain, understand
from treadle.ports import CallReady, ModelEnd, ModelRequest, TextDelta, ToolSpec
from treadle.toolsets.files import file_tools

SIGNATURE = "not a language model"


class Uncancelled:
    cancelled = False
    subjects: ClassVar[dict[str, tuple[str, ...]]] = {}


class Loop:
    """A tool loop of thirty lines: the brain on one side, the real tools on the other."""

    def __init__(self, root: Path, *names: str, max_calls: int = 1000) -> None:
        self.tools = {tool.name: tool for tool in file_tools(root) if not names or tool.name in names}
        self.max_calls = max_calls
        self.calls: list[tuple[str, dict]] = []
        self.results: list[dict] = []
        self.batches: list[int] = []
        self.messages: list[dict] = []

    def run(self, task: str) -> str:
        self.messages.append({"role": "user", "content": task})
        return self.resume()

    def resume(self) -> str:
        for _ in range(100):
            at_limit = len(self.calls) >= self.max_calls
            turn = brain(self.request(tool_choice="none" if at_limit else "auto"))
            if not turn.calls:
                self.messages.append({"role": "assistant", "content": turn.text})
                return turn.text
            assert not at_limit
            self._execute(turn)
        raise AssertionError("the demo model never answers")

    def request(self, **more) -> dict:
        tools = [
            {"type": "function", "function": {"name": t.name, "description": t.description, "parameters": t.parameters}}
            for t in self.tools.values()
        ]
        return {"model": "demo", "messages": self.messages, "tools": tools, **more}

    def _execute(self, turn) -> None:
        made = turn.calls
        self.batches.append(len(made))
        wire = [{"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}} for c in made]
        self.messages.append({"role": "assistant", "content": turn.text, "tool_calls": wire})
        for call in made:
            result = self._result(call.name, json.loads(call.arguments))
            if len(self.calls) == self.max_calls and call is made[-1]:
                result |= {"limit_reached": True, "limit_message": f"Tool call limit reached ({self.max_calls})."}
            self.messages.append({"role": "tool", "tool_call_id": call.id, "content": json.dumps(result)})

    def _result(self, name: str, arguments: dict) -> dict:
        if len(self.calls) >= self.max_calls:
            return {"status": "error", "type": "skipped", "message": "The limit is reached."}
        self.calls.append((name, arguments))
        result = self._run(name, arguments)
        self.results.append(result)
        return result

    def _run(self, name: str, arguments: dict) -> dict:
        tool = self.tools[name]
        errors = [error.message for error in jsonschema_rs.iter_errors(tool.parameters, arguments)]
        if errors:
            return {"status": "error", "type": "invalid_arguments", "message": errors[0], "details": errors}
        try:
            result = tool.run(arguments, Uncancelled())
            return result.data if isinstance(result, ToolOutput) else result
        except Rejected as refused:
            return refused.body

    def paths(self, name: str) -> list[str]:
        return [arguments["path"] for called, arguments in self.calls if called == name]

    @property
    def mistakes(self) -> int:
        return sum(1 for result in self.results if result.get("type") == "invalid_arguments")


@pytest.fixture
def project(tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "main.c").write_text("\n" * 11 + 'log_error("Failed to initialize");\nError again\n')
    (tmp_path / "src" / "config.c").write_text("\n" * 44 + "return CONFIG_ERROR;\n")
    (tmp_path / "src" / "parser.c").write_text("parse(line);\n")
    (tmp_path / "README.md").write_text("# A parser\nNothing special.\n")
    (tmp_path / "notes.txt").write_text("buy milk\n")
    (tmp_path / "logo.png").write_bytes(b"\x89PNG\0\0error")
    return tmp_path


def test_it_searches_every_file_that_it_found_and_tells_true_numbers(project):
    loop = Loop(project)

    answer = loop.run("Keep searching for errors in every file")

    every_file = {"README.md", "logo.png", "notes.txt", "src/config.c", "src/main.c", "src/parser.c"}
    assert set(loop.paths("grep")) == every_file
    assert max(loop.batches) == 4
    assert "3 lines with “error” in 2 files; 6 places searched. 1 skipped as binary or unreadable." in answer
    assert "src/main.c: 2 lines; line 12: log_error" in answer
    assert "src/config.c: 1 line; line 45: return CONFIG_ERROR;" in answer
    assert "12: log_error" in answer.partition("Around it, in src/main.c:")[2]
    assert SIGNATURE in answer


def test_one_call_breaks_its_schema_and_is_mended(project):
    loop = Loop(project)

    answer = loop.run("Which files mention parse?")

    assert loop.mistakes == 1
    broken = next(at for at, result in enumerate(loop.results) if result.get("type") == "invalid_arguments")
    mended = [call for call in loop.calls[broken + 1 :] if call[1].get("path") == loop.calls[broken][1]["path"]]
    assert [type(arguments["max_matches"]) for _, arguments in mended] == [int]
    assert "2 lines with “parse” in 2 files" in answer
    assert "went wrong" not in answer


@pytest.mark.parametrize("max_calls", range(1, 9))
def test_at_a_limit_it_says_what_it_knows_and_what_is_left(project, max_calls):
    loop = Loop(project, max_calls=max_calls)

    answer = loop.run("Keep searching for errors in every file")

    assert f"I was stopped before I finished: Tool call limit reached ({max_calls})." in answer
    done = [result for (name, _), result in zip(loop.calls, loop.results, strict=True) if name == "grep"]
    searched = [result for result in done if "count" in result]
    found = sum(result["count"] for result in searched)
    assert ("Not searched yet" in answer) == (len(searched) < 6)
    assert f"{found} line" in answer if found else "no line" in answer
    assert f"{len(searched)} place" in answer


def test_a_stopped_search_goes_on_where_it_stood(project):
    loop = Loop(project, max_calls=3)
    loop.run("Keep searching for errors in every file")

    loop.max_calls = 1000
    answer = loop.resume()

    assert "3 lines with “error” in 2 files; 6 places searched." in answer
    proposed = [json.dumps(call) for call in loop.calls]
    assert len(proposed) == len(set(proposed))


@pytest.mark.parametrize("words", ["Please continue.", "continue", "Continue!"])
def test_a_wish_to_go_on_continues_the_task(project, words):
    loop = Loop(project, max_calls=3)
    loop.run("Keep searching for errors in every file")
    if words == "continue":
        loop.messages.pop()  # as when the limit was reported without a last request

    loop.max_calls = 1000
    answer = loop.run(words)

    assert "3 lines with “error” in 2 files; 6 places searched." in answer
    assert brain({"messages": [{"role": "user", "content": words}]}).calls == ()


def test_a_new_task_in_the_same_session_starts_afresh_and_ids_stay_unique(project):
    loop = Loop(project)
    loop.run("Find errors")

    answer = loop.run("Now search for milk")

    assert "1 line with “milk” in 1 file" in answer
    ids = [call["id"] for message in loop.messages for call in message.get("tool_calls", [])]
    assert len(ids) == len(set(ids))


def test_a_large_folder_is_searched_by_folders(tmp_path):
    for folder in ("a", "b", "c"):
        for number in range(20):
            (tmp_path / folder / f"{number}").mkdir(parents=True)
            (tmp_path / folder / f"{number}" / "x.log").write_text("warning: hot\n" * (number + 1))
    loop = Loop(tmp_path)

    answer = loop.run("count the warnings")

    assert set(loop.paths("grep")) == {"a", "b", "c"}
    assert "at least 600 lines with “warning”" in answer


def test_an_empty_folder_is_told_as_such(tmp_path):
    loop = Loop(tmp_path)

    assert "There is no file here to search for “error”." in loop.run("Keep searching for errors in every file")
    assert [name for name, _ in loop.calls] == ["glob"]
    assert "I found no files." in Loop(tmp_path).run("List the files")


def test_a_folder_of_binary_files_gives_nothing_but_their_number(tmp_path):
    for name in ("a.bin", "b.bin"):
        (tmp_path / name).write_bytes(b"\0error")

    answer = Loop(tmp_path).run('find "error" everywhere')

    assert "I found no line with “error” in the 2 places that I searched. 2 skipped as binary or unreadable." in answer


@pytest.mark.parametrize(
    ("folder", "told"),
    [
        ("", "The tool listed only some of the files; the search covered them anyway."),
        ("old/", "There are more files than the tool listed; those are not searched."),
    ],
    ids=["the whole folder searched", "the listed folders searched"],
)
def test_what_the_listing_left_out_is_called_searched_only_where_it_was(tmp_path, folder, told):
    (tmp_path / folder).mkdir(exist_ok=True)
    for number in range(1020):
        (tmp_path / f"{folder}f{number:05}.txt").write_text("nothing\n")
    (tmp_path / "zoo").mkdir()
    (tmp_path / "zoo" / "z.txt").write_text("777\n")

    answer = Loop(tmp_path).run("Which files mention 777?")

    assert told in answer
    assert ("zoo/z.txt: 1 line" in answer) == (not folder)


@pytest.mark.parametrize("names", [["grep"], ["list", "grep"], ["glob", "read"], ["list", "read"], ["grep", "read"]])
def test_it_makes_do_with_the_tools_that_there_are(project, names):
    (project / "logo.png").unlink()
    loop = Loop(project, *names)

    answer = loop.run("search for milk")

    assert "1 line with “milk” in 1 file" in answer
    assert "notes.txt" in answer
    assert {name for name, _ in loop.calls} <= set(names)


@pytest.mark.parametrize("names", [["glob"], ["list"]])
def test_without_a_tool_that_looks_inside_it_says_so(project, names):
    assert "I cannot look inside files" in Loop(project, *names).run("search for milk")


def test_without_tools_it_says_so(project):
    for tools in ({}, {"tools": []}, {"tools": None}):
        turn = brain({"messages": [{"role": "user", "content": "find errors"}], **tools})
        assert turn.calls == ()
        assert "offers none of them" in turn.text
        assert SIGNATURE in turn.text


@pytest.mark.parametrize("task", ["hello", "What is 2+2?", "", "Write me a poem", "🙂", "x" * 100_000, "a-" * 50_000])
def test_what_is_no_task_for_files_is_answered_at_once(project, task):
    loop = Loop(project)

    assert SIGNATURE in loop.run(task)
    assert loop.calls == []


def test_a_file_is_read_and_shown(project):
    loop = Loop(project)

    answer = loop.run("Please read README.md")

    assert "README.md: I read 2 lines. It begins:\n    # A parser\n    Nothing special." in answer
    assert loop.mistakes == 1


def test_a_file_that_lies_elsewhere_is_looked_for(project):
    answer = Loop(project).run("show me config.c")

    assert "src/config.c: I read 45 lines" in answer


def test_a_file_that_is_nowhere_is_told_as_missing(project):
    loop = Loop(project)

    answer = loop.run("show me nowhere.c")

    assert "I could not read nowhere.c" in answer
    assert "File not found: nowhere.c" in answer


def test_a_search_may_stay_in_one_file_or_folder(project):
    in_file, in_folder = Loop(project), Loop(project)

    assert "1 line with “error” in 1 file; 1 place searched" in in_file.run("Count errors in src/config.c")
    assert "3 places searched" in in_folder.run("find errors in src")


def test_files_are_counted_by_kind(project):
    answer = Loop(project).run("How many files are there?")
    assert "There are 6 files" in answer
    assert "3 .c" in answer
    assert "src/" in answer
    assert "There are 3 files (**/*.c)" in Loop(project).run("list all *.c files")


def test_denied_calls_end_the_work_after_a_few(project):
    loop = Loop(project)
    loop._run = lambda name, arguments: {"status": "error", "type": "denied", "message": "read only house"}

    answer = loop.run("find errors")

    assert len(loop.calls) <= 4
    assert "read only house" in answer


def test_a_result_that_cannot_be_read_is_told_not_guessed(project):
    loop = Loop(project)
    loop.messages = [
        {"role": "user", "content": [{"type": "text", "text": "find errors"}]},
        {
            "role": "assistant",
            "tool_calls": [{"id": "a", "type": "function", "function": {"name": "glob", "arguments": "{"}}],
        },
        {"role": "tool", "tool_call_id": "a", "content": '{"output": "a.txt\\nb.t... [shortened]'},
    ]

    answer = loop.resume()

    assert "shortened or is not a JSON object" in answer


def test_the_same_request_gets_the_same_response(project):
    loop = Loop(project)
    loop.messages = [{"role": "user", "content": "find errors"}]

    assert brain(loop.request()) == brain(loop.request())
    assert brain(loop.request()).usage.input_tokens > 100


@pytest.mark.parametrize(
    ("words", "kind", "term"),
    [
        ("Keep searching for errors in every file", Kind.SEARCH, "error"),
        ("Find all TODOs", Kind.SEARCH, "TODOs"),
        ("which files mention the word parser?", Kind.SEARCH, "parser"),
        ("where is the function `main()` used", Kind.SEARCH, "main()"),
        ('how many lines contain "foo bar"?', Kind.SEARCH, "foo bar"),
        ("how many errors are there", Kind.SEARCH, "error"),
        ("find main.c", Kind.READ, ""),
        ("what does src/app.py do?", Kind.READ, ""),
        ("how many python files", Kind.SURVEY, ""),
        ("list this folder", Kind.SURVEY, ""),
        ("good morning", Kind.TALK, ""),
    ],
)
def test_plain_words_are_understood(words, kind, term):
    task = understand(words)

    assert (task.kind, task.term) == (kind, term)


def test_the_searched_words_mean_themselves(tmp_path):
    (tmp_path / "a.txt").write_text("f(x) + [y]*{z}? ^$|\\.\nf x\n")

    assert "1 line with “f(x) + [y]*{z}? ^$|\\.”" in Loop(tmp_path).run("find 'f(x) + [y]*{z}? ^$|\\.'")


# --- over HTTP --------------------------------------------------------------------------------------------------------


async def drive(model: DemoModel, root: Path, task: str) -> tuple[str, list[ToolCall], Usage]:
    """Carry a task to its answer with the model over its real server, and the real tools."""
    loop = Loop(root)
    specs = tuple(
        ToolSpec(name=t.name, description=t.description, parameters=t.parameters) for t in loop.tools.values()
    )
    messages = [user_message(task)]
    calls: list[ToolCall] = []
    for _ in count():
        parts = [part async for part in model.stream(ModelRequest(messages=tuple(messages), tools=specs))]
        end = parts[-1]
        assert isinstance(end, ModelEnd)
        reply = Message(role="assistant", parts=end.parts, origin=model.name)
        if not reply.calls:
            assert "".join(part.text for part in parts if isinstance(part, TextDelta)) == reply.text
            return reply.text, calls, end.usage
        assert [part.call for part in parts if isinstance(part, CallReady)] == list(reply.calls)
        calls += reply.calls
        results = tuple(
            Result(call_id=c.id, name=c.name, content=json.dumps(loop._run(c.name, json.loads(c.arguments))))
            for c in reply.calls
        )
        messages += [reply, Message(role="tool", parts=results)]
    raise AssertionError


async def test_over_real_http_it_works_on_the_persons_own_folder(project):
    answer, calls, usage = await drive(DemoModel(), project, "Keep searching for errors in every file")

    assert "3 lines with “error” in 2 files; 6 places searched." in answer
    assert len(calls) > 7
    assert usage.input_tokens > 0


async def test_tasks_side_by_side_share_one_server(project):
    model = DemoModel()

    answers = await asyncio.gather(*(drive(model, project, f"find {word}") for word in ("milk", "errors", "parse")))

    assert [re.search(r"(\d) lines? with", answer)[1] for answer, _, _ in answers] == ["1", "3", "2"]


def test_each_event_loop_gets_its_own_server_which_ends_with_it(project):
    model = DemoModel()
    asyncio.run(drive(model, project, "find milk"))
    before = open_descriptors()

    for _ in range(3):
        answer, _, _ = asyncio.run(drive(model, project, "find milk"))
        assert "1 line with “milk”" in answer

    assert open_descriptors() == before


def open_descriptors() -> int:
    return len(list(Path("/dev/fd").iterdir()))


async def test_in_the_real_loop_a_limit_is_reached_summarised_and_raised(project):
    agent = Agent(DemoModel(), tools=file_tools(project), budget=Budget(max_tool_calls=3))

    stopped = await agent.run("Keep searching for errors in every file")
    report = stopped.report()
    finished = await agent.resume(stopped.session, budget=Budget())

    assert (report["status"], report["budget"], report["completed"]) == ("stopped", "max_tool_calls", False)
    assert "Tool call limit reached (3)." in stopped.text
    assert "in the 2 places that I searched." in stopped.text
    assert "Not searched yet: " in stopped.text
    assert finished.completed
    assert "3 lines with “error” in 2 files; 6 places searched." in finished.text


async def test_in_the_real_loop_a_refusal_is_told_in_the_tools_own_words(project):
    result = await Agent(DemoModel(), tools=file_tools(project)).run("Read none.txt")

    assert "File not found: none.txt" in result.text


async def test_in_the_real_loop_the_mistake_is_seen_and_mended(project):
    result = await Agent(DemoModel(), tools=file_tools(project)).run("Which files mention parse?")

    statuses = [call["status"] for call in result.report()["tool_calls"]]
    assert result.completed
    assert statuses.count("invalid_arguments") == 1
    assert statuses.count("ok") == len(statuses) - 1
    assert "2 lines with “parse” in 2 files" in result.text
