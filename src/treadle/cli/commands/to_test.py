"""`treadle sessions to-test`: a recorded run as a pytest file: its model's responses, its tools' results, and what came of them."""

import json
import keyword
import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from treadle import Session, ToolCall
from treadle.cli.exits import UsageError
from treadle.cli.files import write_new
from treadle.cli.input.commands import ToTestOptions
from treadle.cli.output.terminal import Terminal
from treadle.cli.sessions import named_session
from treadle.events import AnyEvent, ModelFinished, RunFinished, RunStarted
from treadle.state import CallRecord

__all__ = ["to_test"]


async def to_test(options: ToTestOptions, terminal: Terminal) -> int:
    """Write the last run of a session as a test."""
    if options.agent is not None and not re.fullmatch(r"[\w.]+:\w+", options.agent):
        raise UsageError(f"--agent {options.agent}: name module:attr, as the test is to import it.")
    if options.is_last and options.file is None:  # the one word that was given is the file
        options = msgspec.structs.replace(options, id=None, file=options.id)
    async with named_session(options) as session:
        page = _page(session, _last_run(await session.journal.read(session.id)), terminal, options.agent)
    if options.file is None:
        terminal.page(page)
    else:
        write_new(options.file, page.rstrip("\n").encode().split(b"\n"))
        terminal.say(f"Wrote {options.file}. To run it: pytest {options.file}")
    return 0


def _last_run(events: Sequence[AnyEvent]) -> Sequence[AnyEvent]:
    """Return the events of the last run. Raises UsageError: it has not completed, so nothing says what is right."""
    begins = [n for n, event in enumerate(events) if isinstance(event, RunStarted)]
    if not begins or not any(isinstance(event, RunFinished) and event.completed for event in events[begins[-1] :]):
        raise UsageError("Only a run that has completed becomes a test: of others nothing says what is right.")
    return events[begins[-1] :]


# --- The page: data first, then the agent, then the test.


def _page(session: Session, events: Sequence[AnyEvent], terminal: Terminal, agent: str | None) -> str:
    run, hidden = session.state.run, terminal.redactor.value
    assert run is not None
    finished = next(event for event in reversed(events) if isinstance(event, RunFinished))
    calls = [hidden(msgspec.to_builtins(call)) for call in map(_Call.of, run.calls)]
    played = [one for one in calls if agent is None or one["is_started"]]  # what was refused, the agent has to refuse
    turns = [hidden(_turn(event)) for event in events if isinstance(event, ModelFinished)]
    task, answer = hidden([run.task, finished.text])
    return _PAGE.format(
        session=session.id,
        imports="from treadle import Agent, Budget, Tool, allow"
        if agent is None
        else "from treadle import Budget, Tool",
        own="" if agent is None else "\nfrom {} import {} as own_agent\n".format(*agent.split(":")),
        task=repr(task),
        responses="".join(f"    {_shown_turn(one)},\n" for one in turns),
        results="".join(f"    {one['id']!r}: ({one['status']!r}, {one['value']!r}),\n" for one in played),
        names=repr(sorted({one["name"] for one in calls})),
        made=_OWN_TOOLS if agent is None else _OWN_AGENT,
        test=_name_of(task),
        calls="".join(f"        ({one['name']!r}, {one['arguments']!r}, {one['status']!r}),\n" for one in calls),
        reason=repr(finished.reason),
        answer=repr(answer),
    )


class _Call(msgspec.Struct, frozen=True):
    """A call as the test has it."""

    id: str
    name: str
    arguments: dict[str, Any]
    status: str
    value: Any  # Any: a JSON value, or the message of a failure
    is_started: bool

    @classmethod
    def of(cls, call: CallRecord) -> "_Call":
        value = call.result
        if call.status != "ok" and isinstance(value, Mapping):
            value = str(value.get("message", ""))
        return cls(call.id, call.name, call.arguments, call.status, value, call.attempts > 0)


def _turn(event: ModelFinished) -> dict[str, Any]:
    calls = [part for part in event.message.parts if isinstance(part, ToolCall)]
    return {
        "text": event.message.text,
        "calls": [{"id": one.id, "name": one.name, "given": _given(one)} for one in calls],
    }


def _given(call: ToolCall) -> Any:  # Any: an object, or the text of the model that is not one
    try:
        found = json.loads(call.arguments)
    except (ValueError, RecursionError):
        found = None
    return found if isinstance(found, dict) else call.arguments


def _shown_turn(turn: Mapping[str, Any]) -> str:
    said = [f"text({turn['text']!r})"] if turn["text"] or not turn["calls"] else []
    parts = [*said, *map(_shown_call, turn["calls"])]
    return parts[0] if len(parts) == 1 else f"[{', '.join(parts)}]"


def _shown_call(call: Mapping[str, Any]) -> str:
    given = call["given"]
    are_words = isinstance(given, dict) and all(map(_is_word, given))
    words = [f"{name}={value!r}" for name, value in given.items()] if are_words else [f"arguments={given!r}"]
    return f"call({', '.join([repr(call['name']), 'id=' + repr(call['id']), *words])})"


def _is_word(name: str) -> bool:
    return name.isidentifier() and not keyword.iskeyword(name) and name not in ("id", "arguments")


def _name_of(task: str) -> str:
    words = re.findall(r"[a-z0-9]+", task.lower())[:10]
    return "_".join(["test", *words]) if words else "test_recorded_session"


_OWN_TOOLS = """    # To test your own agent: treadle sessions to-test ID --agent my_module:agent
    return Agent(model, tools=[played(name) for name in TOOLS], policy=allow(*TOOLS))"""

_OWN_AGENT = """    agent = own_agent if hasattr(own_agent, "replace") else own_agent()
    own = {tool.name: tool for tool in agent.tools}
    tools = [played(name, own.get(name)) for name in {**own, **dict.fromkeys(TOOLS)}]
    # The person answers as then.
    return agent.replace(model=model, tools=tools, approver=lambda asked: "allow" if asked.call_id in RESULTS else "deny")"""

_PAGE = '''"""Session {session} as a test: the responses of its model and the results of its tools are played, and nothing else runs.

Made by `treadle sessions to-test`. Change it as you like.
"""

import msgspec

{imports}
from treadle.testing import ScriptedModel, call, text
from treadle.tools import CallStatus, Unfinished
{own}
TASK = {task}
RESPONSES = [
{responses}]
RESULTS = {{
{results}}}
TOOLS = {names}


def played(name, tool=None):
    """Return a tool that returns what it returned then, by the id of the call."""

    def run(arguments, ctx):
        status, value = RESULTS[ctx.call.id]
        if status != "ok":
            raise Unfinished(CallStatus(status), value, may_have_acted=False)
        return value

    tool = tool or Tool(name=name, description="", parameters={{"type": "object"}}, effect="unsafe", run=run)
    return msgspec.structs.replace(tool, run=run)


def make_agent(model):
{made}


def {test}():
    model = ScriptedModel(RESPONSES)

    result = make_agent(model).run_sync(TASK, budget=Budget(max_retries_per_tool_call=0))

    assert [(one.name, one.arguments, one.status) for one in result.tool_calls] == [
{calls}    ]
    assert len(model.requests) == len(RESPONSES)
    assert result.reason == {reason}
    assert result.text == {answer}
'''
