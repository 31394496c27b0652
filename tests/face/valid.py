"""Valid values by type, or by the name of a parameter where its type says too little. Makes new ones for each call."""

import collections.abc
import contextlib
import enum
import inspect
import itertools
import logging
import sys
import types
import typing
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import typing_extensions
from faces import Face, faces, struct_face

import treadle
import treadle.agents
import treadle.context
import treadle.drivers
import treadle.providers
import treadle.testing
import treadle.toolsets
from treadle import ports
from treadle.journals.sqlite import SqliteJournal

__all__ = ["World"]

_numbers = itertools.count()


def _event(world: "World") -> Any:
    return treadle.events.SessionMarked(session_id="s", seq=1, name="here")


def _tool(world: "World") -> Any:
    @treadle.tool(effect="read")
    def lookup(city: str = "") -> str:
        """Look up a city."""
        return f"Found {city}."

    return lookup


class World:
    """Makes valid values, and keeps what must be closed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.stack = contextlib.AsyncExitStack()

    async def instance(self, owner: type) -> Any:
        maker = _INSTANCES.get(owner.__name__)
        if maker is not None:
            made = maker(self)
            return await made if inspect.isawaitable(made) else made
        face = _face_of(owner)
        if face is None and issubclass(owner, msgspec.Struct):
            face = struct_face(owner)
        if face is None:
            return owner()
        return await self.made(face)

    async def made(self, face: Face) -> Any:
        values, options = await self.arguments(face)
        return face.callable(*values, **options)

    async def arguments(self, face: Face, **given: Any) -> tuple[list[Any], dict[str, Any]]:
        values: list[Any] = []
        options: dict[str, Any] = {}
        for one in face.parameters:
            if one.name in given:
                value = given[one.name]
            elif f"{face.name}.{one.name}" in NAMED:
                value = await self.valid(face.name, one.name, one.annotation)
            elif not one.is_required or one.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
                continue
            else:
                value = await self.valid(face.name, one.name, one.annotation)
            if one.kind is inspect.Parameter.VAR_KEYWORD or one.kind is inspect.Parameter.KEYWORD_ONLY:
                options[one.name] = value
            elif one.kind is inspect.Parameter.VAR_POSITIONAL:
                values.extend([value] if one.name in given else value)
            elif one.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD and len(values) < face.parameters.index(one):
                options[one.name] = value
            else:
                values.append(value)
        return values, options

    async def valid(self, face: str, name: str, annotation: Any) -> Any:
        for key in (f"{face}.{name}", name):
            if key in NAMED:
                value = NAMED[key]
                if callable(value) and not inspect.isclass(value):
                    value = value(self)
                return await value if inspect.isawaitable(value) else value
        return await self.of_type(annotation)

    async def of_type(self, annotation: Any) -> Any:
        origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
        match origin or annotation:
            case typing_extensions.TypeVar() | typing.TypeVar():
                return None
            case typing.Union | types.UnionType | typing.Annotated:
                return await self.of_type(inner[0])
            case typing.Literal:
                return inner[0]
            case collections.abc.Callable:
                return lambda *_, **__: None
            case kind if kind in _TYPES:
                return _TYPES[kind]
            case type() as kind:
                return next(iter(kind)) if issubclass(kind, enum.Enum) else await self.instance(kind)
        raise TypeError(f"Give valid.py a value of {annotation!r}.")


class _Nothing:
    """An asynchronous iterable without items."""

    async def __aiter__(self) -> typing.AsyncIterator[Any]:
        return
        yield


_TYPES: dict[Any, Any] = {
    Any: "x",
    object: "x",
    str: "x",
    int: 1,
    float: 1.0,
    bool: False,
    bytes: b"x",
    Decimal: Decimal(1),
    datetime: datetime(2030, 1, 1, tzinfo=UTC),
    type(None): None,
    type: treadle.NotDone,
    dict: {},
    collections.abc.AsyncIterable: _Nothing(),
    collections.abc.Mapping: {},
    list: [],
    tuple: (),
    collections.abc.Sequence: (),
    collections.abc.Iterable: (),
    collections.abc.Collection: (),
    collections.abc.Set: frozenset(),
    BaseException: ValueError("x"),
    Exception: ValueError("x"),
    Path: Path("x"),
    logging.LogRecord: logging.LogRecord("shop", logging.INFO, "shop.py", 1, "x", None, None),
}


async def _known_journal(world: World) -> Any:
    session = await _session(world)
    await _agent(world).run("Go.", session=session)
    return session.journal


async def _exported(world: World) -> Any:
    return await (await _session(world)).export()


def _script(world: World) -> Any:
    path = world.folder / "script.json"
    path.write_text('["x"]')
    return path


async def _journal(world: World) -> Any:
    return await treadle.open_journal("memory:")


async def _stored(world: World) -> Any:
    journal = SqliteJournal(world.folder / f"{next(_numbers)}.db")
    await journal.open()
    world.stack.push_async_callback(journal.close)
    return journal


async def _session(world: World) -> Any:
    return await world.stack.enter_async_context(treadle.open_session(await _journal(world), id="s"))


def _agent(world: World) -> Any:
    return treadle.Agent(
        treadle.testing.ScriptedModel(["Done.", "Done."]),
        tools=[_tool(world)],
        policy=treadle.allow("*"),
        name="helper",
    )


async def _run(world: World) -> Any:
    """Return a run that has begun, so that it can be steered."""
    run = _agent(world).stream("Go.", session=await _session(world))
    await world.stack.enter_async_context(run)
    await anext(aiter(run))
    return run


def _started_call(world: World) -> Any:
    call = treadle.ToolCall(id="c", name="lookup", arguments="{}")
    started = treadle.events.ToolStarted(call_id="c", tool="lookup")
    return treadle.state.CallState(call=call, position=0, started=started)


async def _result(world: World) -> Any:
    return await _agent(world).run("Go.", session=await _session(world))


async def _compactable(world: World) -> Any:
    class Shown:
        id = "s"
        messages = (treadle.messages.user_message("x"),)
        state = treadle.state.SessionState("s")
        mode = "ask"
        need = ports.RequestNeed()
        tokens = 1

        async def ask(self, messages: Any, *, instructions: Any = None) -> str:
            return "x"

    return Shown()


async def _state(world: World) -> Any:
    return treadle.state.SessionState("s")


class _Executor:
    def offers(self, name: str) -> bool:
        return True


class _Interceptor:
    def before(self, call: Any) -> Any:
        return call

    def after(self, call: Any, result: Any) -> Any:
        return result


class _Runner:
    async def run(self, command: Any) -> Any:
        return None


class _Timer:
    def cancel(self) -> None: ...


def _mock(world: World) -> Any:
    return treadle.testing.MockProvider([treadle.testing.text("x")])


async def _toolset_context(world: World) -> Any:
    return ports.ToolsetContext(session=await _compactable(world))


async def _checked(world: World) -> Any:
    return treadle.CheckedCall(
        call=treadle.ToolCall(id="c", name="lookup", arguments="{}"),
        tool=_tool(world),
        arguments={},
        values={},
        effect=treadle.Effect.READ,
        position=0,
        digest="d",
        key="k",
    )


async def _recording(world: World) -> Any:
    path = world.folder / "recorded.jsonl"
    if not path.exists():
        model = treadle.providers.RecordingModel(treadle.testing.ScriptedModel(["Done."]), path)
        await treadle.Agent(model).run("Go.")
    return path


async def _replay(world: World) -> Any:
    return treadle.providers.ReplayModel(await _recording(world))


def _goal(world: World) -> Any:
    return treadle.agents.Goal(
        **_GOAL, budget=treadle.Budget(max_model_turns=3), stop_rules=treadle.agents.StopRules(false_claims=2)
    )


_GOAL: dict[str, Any] = {
    "objective": "All tests of the parser pass",
    "done_condition": "pytest ends with exit code 0",
    "validation": "true",
    "checkpoint_every": 10,
    "plan": ("Read the failing tests", "Fix the parser"),
}


def _mcp_tools(world: World) -> Any:
    raw = Path(__file__).parents[1] / "toolsets" / "mcp_raw_server.py"
    return treadle.mcp_server("raw", [sys.executable, str(raw), str(world.folder)])


def _mcp_file(world: World) -> Any:
    path = world.folder / ".mcp.json"
    path.write_text('{"mcpServers": {"x": {"command": "true"}}}')
    return path


def _evaluator_context() -> Any:
    from pydantic_evals.evaluators import EvaluatorContext

    names = EvaluatorContext.__dataclass_fields__
    return EvaluatorContext(**{**dict.fromkeys(names), "attributes": {}, "metrics": {}})


def _server() -> Any:
    from treadle.providers.http.server import DEFAULT_TIMEOUTS, Key, Server

    key = Key(value="k", header="Authorization", variable="")
    return Server("http://127.0.0.1:9/v1", "messages", key=key, headers=None, timeouts=DEFAULT_TIMEOUTS)


_INSTANCES: dict[str, Callable[[World], Any]] = {
    "Asked": lambda world: _server(),
    "McpEntry": lambda world: treadle.toolsets.McpEntry("x", {"command": "true"}),
    "McpTools": _mcp_tools,
    "McpServer": lambda world: _mcp_tools(world).server,
    "Agent": _agent,
    "CheckedCall": _checked,
    "Session": _session,
    "SessionState": _state,
    "Run": _run,
    "CallState": _started_call,
    "Goal": _goal,
    "RunResult": _result,
    "Journal": _journal,
    "StoreJournal": _stored,
    "Clock": lambda world: treadle.testing.FakeClock(),
    "Randomness": lambda world: treadle.testing.FixedRandomness(),
    "Model": lambda world: treadle.testing.ScriptedModel(["Done."]),
    "ScriptedModel": lambda world: treadle.testing.ScriptedModel(["Done."]),
    "Tool": _tool,
    "FunctionTool": _tool,
    "Toolset": lambda world: treadle.toolsets.ToolList([_tool(world)], name="own"),
    "Message": lambda world: treadle.messages.user_message("x"),
    "Compiler": lambda world: treadle.context.WholeHistory(),
    "Compactor": lambda world: treadle.context.ClearResults(),
    "Policy": lambda world: treadle.allow("*"),
    "Driver": lambda world: treadle.drivers.NativeDriver(),
    "Interceptor": lambda world: _Interceptor(),
    "Executor": lambda world: _Executor(),
    "Pricing": lambda world: treadle.Price(input=1, output=1),
    "Runner": lambda world: _Runner(),
    "Timer": lambda world: _Timer(),
    "SessionView": _compactable,
    "RequestView": _compactable,
    "Compactable": _compactable,
    "CheckView": _compactable,
    "ToolsetContext": _toolset_context,
    "ToolContext": lambda world: treadle.testing.tool_context(),
    "FakeToolContext": lambda world: treadle.testing.tool_context(),
    "Budget": lambda world: treadle.Budget(),
    "MockProvider": _mock,
    "Event": _event,
    "FixedRandomness": lambda world: treadle.testing.FixedRandomness(),
    "OpenAIChat": lambda world: treadle.resolve_model("openai-chat:m", base_url="http://127.0.0.1:1/v1", api_key="k"),
    "ReplayModel": _replay,
    "RecordingModel": lambda world: treadle.providers.RecordingModel(
        treadle.testing.ScriptedModel(["Done."]), world.folder / f"{next(_numbers)}.jsonl"
    ),
}


def _face_of(owner: type) -> Face | None:
    for one in faces():
        if one.callable is owner:
            return one
    return None


NAMED: dict[str, Any] = {
    "observe.session": _session,
    "Exact.evaluate.ctx": lambda world: _evaluator_context(),
    "Agent.as_tool.name": "helper",
    "Agents.agents": lambda world: [_agent(world)],
    "Agents.resume.journal": _known_journal,
    "Agents.resume.session_id": "s",
    "Agent.model": lambda world: treadle.testing.ScriptedModel(["Done."]),
    "Agent.instructions": None,
    "Command.arguments": ("true",),
    "Filtered.keep": ["lookup"],
    "FaultyJournal.fail_at": 1000,
    "FaultyModel.fail_at": 1000,
    "Meter.first_reached.counts": (("max_tool_calls", 1),),
    "PgQueuerDispatcher.address": "postgresql://127.0.0.1:1/nowhere?connect_timeout=1",
    "MockProvider.script": ["x"],
    "McpEntry.said": {"command": "true"},
    "mcp_entries.path": _mcp_file,
    "mcp_server.command": ("true",),
    "mcp_servers.path": _mcp_file,
    "ReplayModel.path": _recording,
    "Renamed.names": {"lookup": "find"},
    "Run.remember.origin": {},
    "RunState.end_act.cost": "1.5",
    "RunState.spend_beside.cost": "1.5",
    "Script.turns": ["x"],
    "ScriptedModel.turns": ["x"],
    "Session.resolve.outcome": treadle.NotDone,
    "Session.rewind.to": 1,
    "Spent.plus.cost": "1.5",
    "StoreJournal.append.session_id": "s",
    "StoreJournal.append.events": lambda world: [_event(world)],
    "Tiers.compactors": lambda world: [treadle.context.ClearResults()],
    "allow.names": ["lookup"],
    "ask.names": ["lookup"],
    "draft.names": ["lookup"],
    "ProgramApprover.command": ["true"],
    "shell_tool.root": lambda world: world.folder,
    "ShellTools.root": lambda world: world.folder,
    "check_anthropic_history.messages": [{"role": "user", "content": "x"}],
    "check_chat_history.messages": [{"role": "user", "content": "x"}],
    "check_cohere_history.messages": [{"role": "user", "content": "x"}],
    "check_converse_history.messages": [{"role": "user", "content": [{"text": "x"}]}],
    "check_gemini_history.contents": [{"role": "user", "parts": [{"text": "x"}]}],
    "check_responses_history.items": [{"role": "user", "content": "x"}],
    "decode_event.body": lambda world: treadle.events.encode_event(_event(world)),
    "deny.names": ["lookup"],
    **{f"Goal.{name}": value for name, value in _GOAL.items()},
    "Goal.budget": lambda world: treadle.Budget(max_model_turns=3),
    "Goal.stop_rules": lambda world: treadle.agents.StopRules(false_claims=2),
    "StopRules.false_claims": 2,
    "Worker.agents": lambda world: {"helper": lambda: _agent(world)},
    "result.journal": _known_journal,
    "result.session_id": "s",
    "follow.journal": _known_journal,
    "follow.session_id": "s",
    "http_rejection.status": 404,
    "import_session.lines": _exported,
    "parse_script.content": '["x"]',
    "load_script.path": _script,
    "first_of.policies": lambda world: [treadle.allow("*")],
    "known_facts.name": "openai:gpt-5-mini",
    "offered_models.vendor": "ollama",
    "offered_models.base_url": "http://127.0.0.1:9/v1",
    "offered_models.api_key": "k",
    "resolve_model.name": "openai-chat:m",
    "resolve_model.base_url": "http://127.0.0.1:1/v1",
    "resolve_model.api_key": "k",
    "run_process.arguments": ["true"],
    "tool_context.tool": "lookup",
    "with_fallback.models": lambda world: [treadle.testing.ScriptedModel(["x"]), treadle.testing.ScriptedModel(["y"])],
}
"""By the name of a face and its parameter, or of a parameter alone; a function makes a new one for each call."""
