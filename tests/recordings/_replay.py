"""Recorded loops, played again through the public face. Knows no dialect: an oracle reads the traffic, by means of its own.

@pytest.mark.parametrize("loop", recorded("loops", "anthropic-messages"), ids=str)
async def test_...(loop: Recording) -> None:
    played = await play(Stretch(exchanges=loop.of("api.anthropic.com"), oracle=ORACLE, model="anthropic:m", stream=True))
    played.check()
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import pytest

from treadle import Agent, Budget, Rejected, Session, Tool, resolve_model
from treadle.engine.spec import RunResult
from treadle.events import Event, ModelFailed
from treadle.messages import Media, user_message
from treadle.mock.dialects.shared import Dialect
from treadle.ports import ModelPart, ModelRequest
from treadle.testing import MockProvider, RecordedRequest, Turn
from treadle.testing import call as scripted
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

    def of(self, *hosts: str) -> tuple[Exchange, ...]:
        """Return the exchanges with these hosts, in order."""
        return tuple(one for one in self.exchanges if one.host in hosts)

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
    """One call in a recorded answer, or in a request."""

    id: str
    """Empty where the provider gave none."""
    name: str
    arguments: Any


class Outcome(NamedTuple):
    """What a request says of one call."""

    text: str
    media: tuple[Media, ...] = ()
    is_error: bool = False


class Oracle(Protocol):
    """Reads one dialect without any code of its adapter."""

    def tools(self, request: Any) -> Iterator[tuple[str, str, JsonObject]]:
        """Yield name, description and parameters of each tool that runs on our side."""
        ...

    def task(self, request: Any) -> str:
        """Return the last words of the person."""
        ...

    def calls(self, body: str) -> list[Call]: ...

    def text(self, body: str) -> str: ...

    def told(self, request: Any) -> list[Call]:
        """Return the calls that a request tells, in order."""
        ...

    def outcomes(self, request: Any) -> dict[str, Outcome]:
        """Return what the request says of each call, by the call's id, in order."""
        ...


# --- what is played --------------------------------------------------------------------------------------------------

_ENDS_HERE = "(The recording ends here.)"
"""What the server says where the recording ends before an answer."""


@dataclass(frozen=True, kw_only=True)
class Stretch:
    """What one vendor was asked in a row, and how it is played."""

    exchanges: tuple[Exchange, ...]
    oracle: Oracle
    model: str
    stream: bool
    bodies: Sequence[str | bytes] | None = None
    """What the server says instead of what was recorded: the same, in another form."""
    options: Mapping[str, Any] | None = None
    is_left_open: bool = False
    """Whether the next vendor continues in the middle of its last turn."""

    def turns(self) -> list[Turn]:
        said = [one.body for one in self.exchanges] if self.bodies is None else self.bodies
        turns = [
            Turn(status=one.status, body=body.encode() if isinstance(body, str) else body)
            for one, body in zip(self.exchanges, said, strict=True)
        ]
        return [*turns, Turn(text=_ENDS_HERE)] if self._needs_end else turns

    @property
    def _needs_end(self) -> bool:
        return bool(self.calls_after(self.exchanges[-1])) and not self.is_left_open

    def calls_after(self, exchange: Exchange) -> list[Call]:
        return self.oracle.calls(exchange.body) if exchange.status == 200 else []

    def tasks(self) -> list[str]:
        """Return the first task, and one for each answer that something more was recorded after."""
        answered = [True, *(not self.calls_after(one) for one in self.exchanges[:-1])]
        return [self.oracle.task(one.request) for one, is_new in zip(self.exchanges, answered, strict=True) if is_new]

    def calls_before_each(self) -> list[int]:
        """Return how many calls were made before each request of it."""
        made = [len(self.calls_after(one)) for one in self.exchanges]
        return [sum(made[:place]) for place in range(len(self.turns()))]

    def ends(self) -> "list[End]":
        """Return how each task ended."""
        ends = [self._end(one) for one in self.exchanges if not self.calls_after(one)]
        return [*ends, End(text=_ENDS_HERE)] if self._needs_end else ends

    def _end(self, exchange: Exchange) -> "End":
        if exchange.status == 200:
            return End(text=self.oracle.text(exchange.body))
        return End(text="", status=exchange.status, words=_reason(json.loads(exchange.body)))

    def executions(self) -> "Iterator[Execution]":
        """Yield every call with what came of it, in order."""
        told: dict[str, Outcome] = {}
        for one in self.exchanges:
            told |= self.oracle.outcomes(one.request)
        in_order = list(told.values())
        calls = [call for one in self.exchanges for call in self.calls_after(one)]
        for place, call in enumerate(calls):
            # A provider without ids still has an order.
            by_place = in_order[place] if not call.id and place < len(in_order) else Outcome("ok")
            yield Execution(call, told.get(call.id, by_place))


def _reason(body: Any) -> str:
    """Return a vendor's words of refusal: most put them into an object of their own."""
    return str(body.get("error", body)["message"])


def said_again(
    exchanges: tuple[Exchange, ...], dialect: Dialect, oracle: Oracle, model: str, *, in_other_form: bool
) -> Stretch:
    """Return how exchanges are played: as recorded, or what was streamed whole and the other way round, by the mock's own hand."""
    was_streamed = not exchanges[0].body.lstrip().startswith("{")
    bodies: list[str | bytes] = []
    for number, one in enumerate(exchanges):
        if one.status != 200:  # a refusal has but one form
            bodies.append(one.body)
            continue
        calls = tuple(scripted(made.name, arguments=made.arguments, id=made.id) for made in oracle.calls(one.body))
        turn = Turn(text=oracle.text(one.body) or None, calls=calls)
        request = {"model": "m", "messages": [], "input": [], "stream": not was_streamed}
        answer = dialect.answer(turn, request, number=number, ids=iter(()))
        bodies.append(b"".join(piece.content for piece in answer.pieces))
    return Stretch(
        exchanges=exchanges,
        oracle=oracle,
        model=model,
        stream=was_streamed is not in_other_form,
        bodies=bodies if in_other_form else None,
    )


class End(NamedTuple):
    """How a run ended: with an answer, or with the status and the words of the vendor who refused it."""

    text: str
    status: int = 200
    words: str = ""


class Execution(NamedTuple):
    """One call, and what came of it."""

    call: Call
    outcome: Outcome


@dataclass
class Played:
    """What came of a recording: compare it with the recording."""

    stretches: tuple[Stretch, ...]
    executed: list[Call] = field(default_factory=list)
    results: list[RunResult] = field(default_factory=list)
    requests: list[RecordedRequest] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)

    def check(self) -> None:
        """Assert that everything happened once, as recorded, in as many requests, and nothing else."""
        expected = [one for stretch in self.stretches for one in stretch.executions()]
        assert [one.status for one in self.requests] == [one.status for each in self.stretches for one in each.turns()]
        assert sorted(map(_key, self.executed)) == sorted(_key(one.call) for one in expected)
        linked = {(one.call.id, _key(one.call)) for one in expected if one.call.id}
        assert linked <= {(one.id, _key(one)) for one in self.executed}
        self._check_ends([end for stretch in self.stretches for end in stretch.ends()])
        self._check_histories()

    def _check_ends(self, ends: list[End]) -> None:
        refused = [end for end in ends if end.words]
        failures = [event for event in self.events if isinstance(event, ModelFailed)]
        assert [(one.error, one.status, one.attempt, one.retry_in_seconds) for one in failures] == [
            ("ModelRejected", end.status, 1, None) for end in refused
        ]
        answers = [result for result in self.results if result.reason != "step_limit_reached"]
        left_open = [stretch for stretch in self.stretches if stretch.is_left_open]
        assert len(self.results) - len(answers) == len(left_open)
        for result, end in zip(answers, ends, strict=True):
            assert (result.reason, result.completed) == (("model_error", False) if end.words else ("completed", True))
            assert result.text == end.text
            assert end.words in result.message

    def _check_histories(self) -> None:
        """Assert that every request tells all calls and results before it, whoever made them, and no other vendor's seals."""
        requests = list(self.requests)
        before: list[Execution] = []
        sealed: set[str] = set()
        for stretch in self.stretches:
            executions = list(stretch.executions())
            asked, requests = requests[: len(stretch.turns())], requests[len(stretch.turns()) :]
            for request, done in zip(asked, stretch.calls_before_each(), strict=True):
                _check_history(stretch.oracle, request.body, [*before, *executions[:done]], own=done)
                assert not {seal for seal in sealed if seal in request.raw.decode()}
            before += executions
            sealed |= {
                seal for turn in stretch.turns() for seal in _SEALS.findall((turn.body or b"").decode(errors="replace"))
            }


def _check_history(oracle: Oracle, request: Any, before: list[Execution], *, own: int) -> None:
    told, outcomes = oracle.told(request), list(oracle.outcomes(request).values())
    assert [one._replace(id="") for one in told] == [one.call._replace(id="") for one in before]
    for ours, (_, given) in zip(outcomes, before, strict=True):
        # What a service refuses is told in our one form, with its words.
        words = json.loads(ours.text)["details"][0] if given.is_error else ours.text
        assert _plain(words) == _plain(given.text)
    # What the dialects of others call a picture or an error, this one may have no way to say.
    of_its_own = [one.outcome for one in before[len(before) - own :]]
    assert [(one.media, one.is_error) for one in outcomes[len(before) - own :]] == [
        (one.media, one.is_error) for one in of_its_own
    ]


_SEALS = re.compile(r'"(?:signature|thoughtSignature|encrypted_content)": ?"([^"]{16,})"')
"""What only the vendor that said it can read."""


async def play(*stretches: Stretch) -> Played:
    """Run the recorded tasks as one session, with tools that return what was recorded.

    The server is strict, and says what was recorded; each run may ask it once more than the recording has requests.
    """
    played = Played(stretches)
    turns = [turn for stretch in stretches for turn in stretch.turns()]
    tools = _tools(played)
    session: Session | None = None
    async with MockProvider(turns) as provider:
        for stretch in stretches:
            model = resolve_model(
                stretch.model, base_url=provider.base_url, api_key="k", stream=stretch.stream, options=stretch.options
            )
            limit = len(stretch.exchanges) if stretch.is_left_open else len(turns) + 1
            budget = Budget(max_model_turns=limit)
            agent = Agent(model, tools=tools, budget=budget, on_limit="report")
            for task in stretch.tasks():
                goes_on = bool(played.results) and played.results[-1].reason == "step_limit_reached"
                result = await (agent.resume(session, budget=budget) if goes_on else agent.run(task, session=session))
                session = result.session
                played.results.append(result)
        played.requests = provider.requests
    assert session is not None
    played.events = list(await session.events())
    return played


async def heard(name: str, content: str | bytes, *, stream: bool, status: int = 200) -> list[ModelPart]:
    """Ask a model, by its name, whose server answers with recorded bytes."""
    body = content if isinstance(content, bytes) else content.encode()
    async with MockProvider([Turn(status=status, body=body)]) as provider:
        model = resolve_model(name, base_url=provider.base_url, api_key="k", stream=stream)
        return [part async for part in model.stream(ModelRequest(messages=(user_message("go"),)))]


def _tools(played: Played) -> list[Tool]:
    waiting: dict[str, list[Outcome]] = defaultdict(list)
    for one in (one for stretch in played.stretches for one in stretch.executions()):
        waiting[_key(one.call)].append(one.outcome)
    found = {
        name: (description, schema)
        for stretch in played.stretches
        for one in stretch.exchanges
        for name, description, schema in stretch.oracle.tools(one.request)
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


def _plain(text: str) -> str:
    """Return a text; one that is JSON in the same words, whoever wrote it."""
    try:
        return json.dumps(json.loads(text), sort_keys=True)
    except ValueError:
        return text
