"""What the tests of the pipeline share: raw tools, gates that prove overlap, and readers of events. Patches nothing."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from treadle import Agent, CheckedCall, RunResult, Tool, ToolCall, ToolContext, allow, open_session, tool
from treadle.errors import JournalError
from treadle.events import AnyEvent
from treadle.journals.memory import MemoryJournal
from treadle.ports import Journal, ModelRequest
from treadle.testing import FakeClock, FaultyJournal, FixedRandomness, ScriptedModel, call, text
from treadle.tools import JsonObject

__all__ = [
    "ANYTHING",
    "DyingJournal",
    "Recorder",
    "act",
    "called_through",
    "checked_call",
    "content",
    "hang",
    "on_fake_clock",
    "paying",
    "raising",
    "read",
    "results",
    "run_calls",
    "statuses",
    "tool_of",
    "types",
]


class DyingJournal(FaultyJournal):
    """A journal whose process is killed right before an event is stored, or right after: nothing is stored from then on.

    With `dies = False` it works again, as for the next process.

    Args:
        journal: Where the rest is stored; None for memory.
        before: The type of the event that is lost; None for that of a call's result, if there is no `after`.
        after: The type of the last event that is stored.
        call_id: Of the only call whose events count; None for any.
        spares: The only session whose events do not count.
    """

    def __init__(
        self, journal: Journal | None = None, before: str | None = None, *, after: str = "", call_id: str | None = None, spares: str = ""
    ) -> None:  # fmt: skip
        super().__init__(MemoryJournal() if journal is None else journal, fail_at=0)
        self.dies = True
        self._is_dead = False
        self._lost = ("" if after else "tool.finished") if before is None else before
        self._last, self._call_id, self._spares = after, call_id, spares

    async def append(self, session_id: str, events: Sequence[AnyEvent], *, state: str, durable: bool) -> None:
        counts = self.dies and session_id != self._spares
        named = {event.type for event in events if counts and self._call_id in (None, event.call_id)}
        self._is_dead = self.dies and (self._is_dead or self._lost in named)
        if self._is_dead:
            raise JournalError("gone")
        await super().append(session_id, events, state=state, durable=durable)
        self._is_dead = self._last in named


ANYTHING: JsonObject = {"type": "object", "additionalProperties": True}


def tool_of(run: Callable[..., Any], name: str = "act", **words: Any) -> Tool:
    """Make a raw tool of run(arguments, ctx)."""
    words.setdefault("parameters", ANYTHING)
    return Tool(name=name, description=f"Do {name}.", run=run, **words)


def read(run: Callable[..., Any], name: str = "look", **words: Any) -> Tool:
    return tool_of(run, name, effect="read", **words)


def act(run: Callable[..., Any], name: str = "act", **words: Any) -> Tool:
    """Make an unsafe tool that needs no consent."""
    words = {"effect": "unsafe", "permission": "allow", **words}
    return tool_of(run, name, **words)


def checked_call(tool: Tool, **arguments: Any) -> CheckedCall:
    """Return a call of a tool as the checks leave it."""
    return CheckedCall(
        call=ToolCall(id="c", name=tool.name, arguments="{}"),
        tool=tool,
        arguments=arguments,
        values=arguments,
        effect=tool.effect_of(arguments),
        position=0,
        digest="",
        key="",
    )


def paying(done: Counter[str]) -> Callable[[], Agent]:
    """Return what makes agents that pay what their task names, once, and count it."""

    @tool(effect="unsafe", permission="allow")
    async def pay(invoice: str) -> str:
        """Pay."""
        done[invoice] += 1
        return "paid"

    def answer(request: ModelRequest) -> Any:
        task = request.messages[0].text
        return text("paid") if request.messages[-1].role == "tool" else call("pay", invoice=task)

    return lambda: Agent(ScriptedModel([answer]), tools=[pay])


def called_through(agent: Agent, *names: str, answer: Any = None, **words: Any) -> Agent:
    """Return an agent that has an agent as its tool, and so on down to this one. `names`: of these tools, from the bottom up."""
    for name in names:
        model = ScriptedModel([call(name, task="Act"), answer or text("Done.")], follows_history=True)
        agent = Agent(model, tools=[agent.as_tool(name, "Acts.", **words)], policy=allow(name))
    return agent


async def hang(arguments: JsonObject, ctx: ToolContext) -> Any:
    """Run until it is cancelled."""
    await asyncio.Event().wait()


def raising(error: BaseException) -> Callable[..., Any]:
    async def run(arguments: JsonObject, ctx: ToolContext) -> Any:
        raise error

    return run


def on_fake_clock(journal: Journal | None = None) -> Any:
    """Open a session whose clock jumps on by itself, in a journal that stays open for questions."""
    return open_session(journal or MemoryJournal(), clock=FakeClock(auto=True), randomness=FixedRandomness([0.5]))


class Recorder:
    """A tool function that writes down when it begins and ends."""

    def __init__(self, result: Any = "done") -> None:
        self.log: list[tuple[str, Any]] = []
        self.contexts: list[ToolContext] = []
        self._result = result

    @property
    def runs(self) -> int:
        return sum(word == "begin" for word, _ in self.log)

    async def __call__(self, arguments: JsonObject, ctx: ToolContext) -> Any:
        self.contexts.append(ctx)
        self.log.append(("begin", arguments.get("n")))
        await asyncio.sleep(0)  # let others in, if the scheduler does
        self.log.append(("end", arguments.get("n")))
        return self._result


async def run_calls(*calls: Any, tools: list[Tool], answer: str = "Done.", **words: Any) -> RunResult:
    """Run one turn of calls and one answer."""
    session = words.pop("session", None)
    model = ScriptedModel([list(calls), text(answer)])
    return await Agent(model, tools=tools, **words).run("go", session=session)


def results(run: RunResult) -> list[Any]:
    """Return the contents of all results, decoded where they are JSON."""
    return [_decoded(result.content) for message in run.messages for result in message.results]


def content(run: RunResult, index: int = 0) -> Any:
    return results(run)[index]


def statuses(run: RunResult) -> list[str]:
    return [record.status for record in run.tool_calls]


async def types(run: RunResult, *wanted: str) -> list[AnyEvent]:
    """Return the run's events of these types."""
    return [event for event in await run.session.events() if event.type in wanted]


def _decoded(words: str) -> Any:
    try:
        return msgspec.json.decode(words)
    except msgspec.DecodeError:
        return words
