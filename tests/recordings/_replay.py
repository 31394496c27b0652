"""Recorded loops, played again through the public face. Knows no dialect: an oracle reads the traffic, by means of its own.

@pytest.mark.parametrize("loop", recorded("loops", "anthropic-messages"), ids=str)
async def test_...(loop: Recording) -> None:
    played = await play(loop.of("api.anthropic.com"), oracle=ORACLE, model="anthropic:m", stream=True)
    played.check()
"""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import pytest

from treadle import Agent, Budget, Rejected, Tool, resolve_model
from treadle.messages import Media
from treadle.reports import RunResult
from treadle.testing import MockProvider, RecordedRequest, Turn
from treadle.tools import JsonObject, ToolContext, ToolOutput

RECORDINGS = Path(__file__).resolve().parents[3] / "shared" / "recordings"
ABSENT = "no recorded provider traffic: expected ../shared/recordings beside the project"


@dataclass(frozen=True)
class Exchange:
    """One recorded request, and what the provider answered."""

    host: str
    path: str
    request: Any
    status: int
    headers: Mapping[str, str]
    body: str


@dataclass(frozen=True)
class Recording:
    """One recorded file."""

    name: str
    exchanges: tuple[Exchange, ...]

    def of(self, host: str) -> tuple[Exchange, ...]:
        """Return the exchanges with one host, in order."""
        return tuple(one for one in self.exchanges if one.host == host)

    def __str__(self) -> str:
        return self.name


def recorded(kind: str, folder: str, pattern: str = "*.json") -> list[Any]:
    """Return the recordings of `loops/<folder>` or `quirks/<folder>` as parameters; one loud skip where there are none."""
    found = sorted((RECORDINGS / kind / folder).glob(pattern))
    if not found:
        return [pytest.param(Recording("absent", ()), marks=pytest.mark.skip(reason=ABSENT))]
    return [_read(path) for path in found]


def _read(path: Path) -> Recording:
    interactions = json.loads(path.read_text(encoding="utf-8"))["interactions"]
    return Recording(
        path.stem,
        tuple(
            Exchange(one["host"], one["path"], one["request"], one["status"], one["headers"] or {}, one["body"] or "")
            for one in interactions
        ),
    )


# --- what an oracle tells --------------------------------------------------------------------------------------------


class Call(NamedTuple):
    """One call in a recorded answer."""

    id: str
    """Empty where the provider gave none."""
    name: str
    arguments: Any


class Outcome(NamedTuple):
    """What a recorded request says of one call."""

    text: str
    media: tuple[Media, ...] = ()
    is_error: bool = False


class Oracle(Protocol):
    """Reads one dialect without any code of its adapter."""

    def tools(self, request: Any) -> Sequence[tuple[str, str, JsonObject]]:
        """Return name, description and parameters of each tool that runs on our side."""
        ...

    def task(self, request: Any) -> str:
        """Return the last words of the person."""
        ...

    def calls(self, body: str) -> list[Call]: ...

    def text(self, body: str) -> str: ...

    def outcomes(self, request: Any) -> dict[str, Outcome]:
        """Return what the request says of each call, by the call's id."""
        ...


# --- playing ---------------------------------------------------------------------------------------------------------


@dataclass
class Played:
    """What came of a recording: compare it with the recording."""

    expected: list[Call]
    outcomes: dict[str, Outcome]
    texts: list[str]
    oracle: Oracle
    executed: list[Call] = field(default_factory=list)
    results: list[RunResult] = field(default_factory=list)
    requests: list[RecordedRequest] = field(default_factory=list)
    bodies: int = 0

    def check(self) -> None:
        """Assert that everything happened once, as recorded, and nothing else."""
        assert [request.status for request in self.requests] == [200] * self.bodies
        assert sorted(map(_key, self.executed)) == sorted(map(_key, self.expected))
        linked = {one.id for one in self.expected if one.id}
        assert not linked or {one.id for one in self.executed} == linked
        assert [result.text for result in self.results] == self.texts
        told = self.oracle.outcomes(self.requests[-1].body)
        for call_id in linked & self.outcomes.keys():
            assert told[call_id] == self.outcomes[call_id]


async def play(
    exchanges: Sequence[Exchange],
    *,
    oracle: Oracle,
    model: str,
    stream: bool,
    bodies: Sequence[str | bytes] | None = None,
    options: Mapping[str, Any] | None = None,
    path: str = "",
) -> Played:
    """Run the recorded tasks with tools that return what was recorded, against a strict server that says what was recorded.

    Args:
        bodies: What the server says instead of what was recorded: the same, in another form.
        path: What the dialect adds to the address of the server.
    """
    said = [one.body for one in exchanges] if bodies is None else bodies
    played = _expectations(exchanges, oracle)
    played.bodies = len(said)
    turns = [Turn(body=body.encode() if isinstance(body, str) else body) for body in said]
    async with MockProvider(turns) as provider:
        agent = Agent(
            resolve_model(model, base_url=provider.base_url + path, api_key="k", stream=stream, options=options),
            tools=_tools(exchanges, oracle, played),
            budget=Budget(max_model_turns=len(said)),
            on_limit="report",
        )
        session = None
        for task in _tasks(exchanges, oracle):
            result = await agent.run(task, session=session)
            session = result.session
            played.results.append(result)
        played.requests = provider.requests
    return played


def _expectations(exchanges: Sequence[Exchange], oracle: Oracle) -> Played:
    outcomes: dict[str, Outcome] = {}
    for one in exchanges:
        outcomes |= oracle.outcomes(one.request)
    calls = [call for one in exchanges for call in oracle.calls(one.body)]
    texts = [oracle.text(one.body) for one in exchanges if not oracle.calls(one.body)]
    if oracle.calls(exchanges[-1].body):  # the recording ends before an answer
        texts.append(oracle.text(exchanges[-1].body))
    return Played(expected=calls, outcomes=outcomes, texts=texts, oracle=oracle)


def _tasks(exchanges: Sequence[Exchange], oracle: Oracle) -> list[str]:
    """Return the first task, and one for each answer that something more was recorded after."""
    answered = [False, *(not oracle.calls(one.body) for one in exchanges[:-1])]
    return [
        oracle.task(one.request)
        for one, is_new in zip(exchanges, answered, strict=True)
        if is_new or one is exchanges[0]
    ]


def _tools(exchanges: Sequence[Exchange], oracle: Oracle, played: Played) -> list[Tool]:
    waiting: dict[str, list[Outcome]] = defaultdict(list)
    in_order = list(played.outcomes.values())
    for place, one in enumerate(played.expected):
        # A provider without ids still has an order.
        by_place = in_order[place] if not one.id and place < len(in_order) else Outcome("ok")
        waiting[_key(one)].append(played.outcomes.get(one.id, by_place))
    found = {
        name: (description, schema) for one in exchanges for name, description, schema in oracle.tools(one.request)
    }

    def stub(name: str, description: str, schema: JsonObject) -> Tool:
        async def run(arguments: JsonObject, ctx: ToolContext) -> Any:
            call = Call(ctx.call.id, name, json.loads(ctx.call.arguments or "{}"))
            played.executed.append(call)
            outcome = waiting[_key(call)].pop(0)
            if outcome.is_error:
                raise Rejected(outcome.text)
            return ToolOutput(data=outcome.text, media=outcome.media)

        return Tool(name=name, description=description, parameters=schema, effect="read", run=run)

    return [stub(name, *told) for name, told in found.items()]


def _key(call: Call) -> str:
    return call.name + json.dumps(call.arguments, sort_keys=True)
