"""What every dialect must do alike, form by form: hostile bodies, cut calls, lost streams, long prompts, figures, foreign histories."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from itertools import permutations
from typing import Any, Literal

import pytest

from invariants import check_session
from treadle import Agent, Budget, Tool, ToolContext, allow, open_session, resolve_model, tool
from treadle.context import Handoff
from treadle.drivers import ReActDriver
from treadle.errors import ConfigurationError, JournalError, ModelResponseInvalid
from treadle.events import AnyEvent, ModelDelta, ModelDiscarded, ModelFailed, ModelFinished, ToolStarted
from treadle.journals.memory import MemoryJournal
from treadle.messages import Finish, Text, ToolCall, Usage, user_message
from treadle.ports import Model, ModelEnd, ModelPart, ModelRequest, RequestNeed
from treadle.testing import MockProvider, Turn, call
from treadle.tools import JsonObject
from treadle.toolsets import OnDemand

DIALECTS = ("openai-chat", "openai", "anthropic", "gemini", "bedrock", "cohere")
FORMS = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
READERS = ("openai-chat", "bedrock")
"""One dialect for each way to read a body. The others share theirs: `make soak` goes through all."""
every_reader = pytest.mark.parametrize(
    "dialect", [pytest.param(one, marks=() if one in READERS else pytest.mark.soak) for one in DIALECTS]
)
NEXT = set(zip(DIALECTS, DIALECTS[1:] + DIALECTS[:1], strict=True))
PAIRS = [
    pytest.param(*pair, marks=() if pair in NEXT or pair[::-1] in NEXT else pytest.mark.soak)
    for pair in permutations(DIALECTS, 2)
]
"""Each dialect goes to two others and comes from two; `make soak` has all pairs."""
every_dialect = pytest.mark.parametrize("dialect", DIALECTS)
ASK = ModelRequest(messages=(user_message("go"),))
LIMITS = r"larger than|without data|prelude is damaged"
NOWHERE = "http://127.0.0.1:9/v1"
HUGE = 80 * 1024 * 1024
"""More than one answer may hold, unpacked."""


def model_of(dialect: str, mock: MockProvider, *, stream: bool = True, **options: Any) -> Model:
    return resolve_model(f"{dialect}:m", base_url=mock.base_url, api_key="k", stream=stream, options=options)


def look(*, ran: list[str], effect: Literal["read", "unsafe"] = "read") -> Tool:
    async def run(arguments: JsonObject, ctx: ToolContext) -> str:
        ran.append(arguments["key"])
        return f"value of {arguments['key']}"

    parameters = {"type": "object", "properties": {"key": {"type": "string"}}, "required": ["key"]}
    return Tool(
        name="look", description="Look a key up.", parameters=parameters, effect=effect, permission="allow", run=run
    )


async def everything(model: Model) -> list[ModelPart]:
    return [part async for part in model.stream(ASK)]


# --- hostile bodies


@pytest.mark.row("PF16")
@every_reader
@FORMS
async def test_an_answer_that_never_ends_is_cut_at_the_limit(dialect, stream):
    async with MockProvider([Turn(text="hello", cut="before-terminal", cut_by="endless")]) as mock, asyncio.timeout(60):
        with pytest.raises(ModelResponseInvalid, match=LIMITS):
            await everything(model_of(dialect, mock, stream=stream))


@pytest.mark.row("PF16")
@every_reader
@FORMS
async def test_an_answer_that_unpacks_to_a_huge_one_is_cut_at_the_limit(dialect, stream):
    turn = Turn(body=b": hello\n\n" if stream else b'{"', bomb_bytes=HUGE)
    async with MockProvider([turn]) as mock, asyncio.timeout(60):
        with pytest.raises(ModelResponseInvalid, match=LIMITS):
            await everything(model_of(dialect, mock, stream=stream))


# --- responses that break off


class Cutting:
    """A model whose adapter marks a call as cut off, although its response says nothing of the kind."""

    name = "cutting:m"
    price = None

    def __init__(self) -> None:
        self._answers = [
            ModelEnd(
                parts=(
                    ToolCall(id="same", name="look", arguments='{"key": "whole"}'),
                    ToolCall(id="cut", name="look", arguments='{"key": "/"}'),
                ),
                finish=Finish.CALLS,
                cut_calls=frozenset({"cut"}),
            ),
            ModelEnd(parts=(Text("done"),), finish=Finish.STOP),
        ]

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelPart]:
        yield self._answers.pop(0)


@pytest.mark.row("PF14", "L26")
async def test_a_call_marked_as_cut_off_never_starts_whatever_the_response_says():
    ran: list[str] = []

    result = await Agent(Cutting(), tools=[look(ran=ran, effect="unsafe")]).run("go")

    assert ran == ["whole"]
    assert [one.status for one in result.tool_calls] == ["ok", "skipped"]
    assert "cut off" in result.session.messages[2].results[1].content


@pytest.mark.row("R07")
@every_dialect
async def test_a_stream_lost_after_a_read_ran_is_told_and_the_read_is_not_run_again(dialect):
    ran: list[str] = []
    gate = asyncio.Event()
    calls = (call("look", key="a"), call("look", key="b"))
    lost = Turn(text="Let me look.", calls=calls, gate=gate, hold_after_call=0, cut="mid-arguments")
    events = []
    async with MockProvider([lost, Turn(text="Let me look.", calls=calls), "done"]) as mock, asyncio.timeout(30):
        agent = Agent(model_of(dialect, mock), tools=[look(ran=ran)])
        async with agent.stream("go") as run:
            async for event in run:
                events.append(event)
                if isinstance(event, ToolStarted):
                    gate.set()
                if dialect == "gemini" and isinstance(event, ModelDelta):
                    gate.set()

    assert mock.refusals == []
    assert run.result.completed, run.result.message
    assert sorted(ran) == ["a", "b"]
    assert [event for event in events if isinstance(event, ModelFailed)]
    assert [event for event in events if isinstance(event, ModelDiscarded)]
    assert run.result.text == "done"
    said = [message.text for message in run.result.session.messages if message.role == "assistant"]
    assert said == ["Let me look.", "done"]


# --- arguments that leak into the text


@pytest.mark.row("D07")
@every_dialect
@FORMS
async def test_a_text_that_only_repeats_the_arguments_is_dropped_in_every_dialect(dialect, stream):
    turns: list[Turn | str] = [
        Turn(text='{ "key":"a" }', calls=(call("look", key="a"),)),
        Turn(text='{"key": "c"}', calls=(call("look", key="b"),)),
        "done",
    ]
    async with MockProvider(turns) as mock:
        result = await Agent(model_of(dialect, mock, stream=stream), tools=[look(ran=[])]).run("go")

    assert mock.refusals == []
    said = [message.text for message in result.session.messages if message.role == "assistant"]
    assert said == ["", '{"key": "c"}', "done"]


# --- prompts that are too long


TOO_LONG: dict[str, list[Turn]] = {
    "openai-chat": [
        Turn(status=400, error={"message": "This model's maximum context length is 8192 tokens.", "code": "context_length_exceeded"}),
        Turn(status=413, error="Request Entity Too Large"),
        Turn(status=400, error="the request exceeds the available context size, try increasing it"),
        Turn(status=400, error="Your request exceeded model token limit: 262144"),
        Turn(status=422, error="Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000"),
        Turn(status=422, error="Input validation error: `inputs` must have less than 4096 tokens. Given: 5000"),
        Turn(status=413, error={"code": "tokens_limit_reached", "message": "Request body too large. Max size: 8000 tokens."}),
    ],
    "openai": [
        Turn(status=400, error={"message": "Your input exceeds the context window of this model.", "code": "context_length_exceeded"}),
        Turn(status=413, error="too large"),
    ],
    "anthropic": [
        Turn(status=400, error="prompt is too long: 208310 tokens > 200000 maximum"),
        Turn(status=413, error={"type": "request_too_large", "message": "Request exceeds the maximum size"}),
        Turn(status=400, error="input length and `max_tokens` exceed context limit: 190000 + 16384 > 200000"),
    ],
    "bedrock": [
        Turn(status=400, error="The model returned the following errors: Input is too long for requested model."),
        Turn(status=400, error="Input Tokens Exceeded: Number of input tokens exceeds maximum length. Please update the input to try again."),
        Turn(status=400, error="Malformed input request: expected maxLength: 400000, actual: 500000, please reformat your input and try again."),
        Turn(status=400, error="The model returned the following errors: prompt is too long: 208310 tokens > 200000 maximum"),
        Turn(status=413, error="Request Entity Too Large"),
    ],
    "cohere": [
        Turn(status=400, error={"error_type": "TOO_MANY_TOKENS", "message": "too many tokens: size limit exceeded by 25836 tokens. Try using shorter or fewer inputs. The limit for this model is 288000 tokens."}),
        Turn(status=400, error="too many tokens: total number of tokens in the prompt cannot exceed 4081 - received 4292."),
        Turn(status=413, error="too large"),
    ],
    "gemini": [
        Turn(status=400, error="The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)."),
        Turn(status=413, error="Request payload size exceeds the limit"),
    ],
}  # fmt: skip


@pytest.mark.row("W11", "PF18")
@pytest.mark.parametrize(
    ("dialect", "turn"), [(dialect, turn) for dialect, turns in TOO_LONG.items() for turn in turns]
)
async def test_a_prompt_that_is_too_long_stops_the_run_and_says_what_to_do(dialect, turn):
    async with MockProvider([turn]) as mock:
        result = await Agent(model_of(dialect, mock)).run("go")

    report = result.report()
    assert (report["reason"], report["status"], report["completed"]) == ("context_overflow", "failed", False)
    assert report["next_safe_action"]
    assert len(mock.requests) == 1


@pytest.mark.row("W11")
async def test_too_many_tokens_a_minute_are_no_long_prompt():
    turn = Turn(text="He", error={"message": "Too many tokens per minute. Try again."})
    async with MockProvider([turn, "done"]) as mock:
        result = await Agent(model_of("openai-chat", mock)).run("go")

    assert result.completed, result.message


@pytest.mark.row("W11")
@every_dialect
@pytest.mark.parametrize("status", [400, 404, 422, 429, 529])
async def test_only_what_may_pass_is_tried_again(dialect, status):
    turn = Turn(status=status, error="no", headers={"retry-after-ms": "1"})
    async with MockProvider([turn, "done"]) as mock:
        result = await Agent(model_of(dialect, mock)).run("go")

    assert result.completed == (status >= 429)
    assert len(mock.requests) == (2 if status >= 429 else 1)


# --- figures


@pytest.mark.row("W09")
@every_dialect
@FORMS
async def test_each_call_of_the_model_is_recorded_with_its_tokens_and_times(dialect, stream):
    usage = Usage(input_tokens=70, output_tokens=9, cached_input_tokens=50)
    async with MockProvider([Turn(text="done", usage=usage)]) as mock:
        result = await Agent(model_of(dialect, mock, stream=stream)).run("go")
    [finished] = [event for event in await result.session.events() if isinstance(event, ModelFinished)]

    assert (finished.usage.input_tokens, finished.usage.output_tokens) == (70, 9)
    assert finished.usage.cached_input_tokens == 50
    assert not finished.usage.estimated
    assert finished.duration_seconds > 0
    assert finished.first_token_seconds is not None
    assert 0 < finished.first_token_seconds <= finished.duration_seconds


# --- foreign histories


@pytest.mark.row("M15", "W06")
@pytest.mark.parametrize(("first", "then"), PAIRS)
async def test_a_conversation_begun_on_one_dialect_goes_on_with_another(tmp_path, first, then):
    """Thinking, parallel calls, broken arguments, an unknown tool and an id of no vendor's form are all in it."""
    begun: list[Turn | str] = [
        Turn(thinking="Hm.", text="I look.", calls=(call("look", id="a.b:c/1", key="x"), call("look", key="y"))),
        Turn(calls=(call("look", arguments='{"key": '), call("lost", key="z"))),
        "So far.",
    ]
    ran: list[str] = []
    async with open_session(tmp_path / "s.db") as session, MockProvider(begun) as one, MockProvider(["Here."]) as other:
        before = await Agent(model_of(first, one), tools=[look(ran=ran)]).run("go", session=session)
        stored = session.messages
        after = await Agent(model_of(then, other), tools=[look(ran=ran)]).run("and on", session=session)

    assert (one.refusals, other.refusals) == ([], [])
    assert (before.text, after.text) == ("So far.", "Here.")
    assert sorted(ran) == ["x", "y"]
    assert session.messages[: len(stored)] == stored
    sent = str(other.requests[-1].body)
    assert all(word in sent for word in ("value of x", "value of y", "unknown_tool", "So far.", "and on"))
    assert "Hm." not in sent


@pytest.mark.row("M15", "W06")
@pytest.mark.parametrize(("first", "then"), PAIRS)
async def test_a_turn_begun_on_one_dialect_goes_on_with_another_in_its_middle(tmp_path, first, then):
    """The second model is asked with results that the first one's calls had, and makes a call of its own behind them."""
    begun = Turn(thinking="Hm.", text="I look.", calls=(call("look", key="x"), call("look", key="y")))
    going_on = [Turn(thinking="So.", calls=(call("look", key="z"),)), "Here."]
    ran: list[str] = []
    async with (
        open_session(tmp_path / "s.db") as session,
        MockProvider([begun]) as one,
        MockProvider(going_on) as other,
    ):
        first_agent = Agent(
            model_of(first, one), tools=[look(ran=ran)], budget=Budget(max_model_turns=1), on_limit="report"
        )
        before = await first_agent.run("go", session=session)
        after = await Agent(model_of(then, other), tools=[look(ran=ran)]).resume(session, budget=Budget())

    assert (one.refusals, other.refusals) == ([], [])
    assert (before.reason, after.text) == ("step_limit_reached", "Here.")
    assert sorted(ran[:2]) == ["x", "y"]
    assert ran[2:] == ["z"]
    sent = [str(request.body) for request in other.requests]
    assert all(word in body for body in sent for word in ("I look.", "value of x", "value of y"))
    assert not any("Hm." in body for body in sent)
    assert "value of z" in sent[1]


# --- tools that the server runs


FUNCTIONS: dict[str, JsonObject] = {
    "openai-chat": {"type": "function", "function": {"name": "x"}},
    "openai": {"type": "function", "name": "x"},
    "anthropic": {"name": "x", "input_schema": {}},
    "gemini": {"functionDeclarations": []},
    "bedrock": {"toolSpec": {"name": "x"}},
    "cohere": {"type": "function", "function": {"name": "x"}},
}


@pytest.mark.row("W10")
@every_dialect
def test_what_is_no_server_tool_is_refused(dialect):
    wrong: list[Any] = [[FUNCTIONS[dialect]], {"type": "web"}, ["web"], [{}], 3]
    for given in wrong:
        with pytest.raises(ConfigurationError, match="server_tools"):
            resolve_model(f"{dialect}:m", base_url=NOWHERE, api_key="k", options={"server_tools": given})
    with pytest.raises(ConfigurationError, match="must not contain tools"):
        resolve_model(f"{dialect}:m", base_url=NOWHERE, api_key="k", options={"tools": []})


# --- long work, under every driver -----------------------------------------------------------------------------------


DRIVERS = ("native", "react")
every_way = [
    pytest.param(dialect, driver, marks=() if driver == "native" or dialect == "anthropic" else pytest.mark.soak)
    for dialect in DIALECTS
    for driver in DRIVERS
]


def turn(driver: str, *calls: Any, text: str = "") -> Any:
    """Return what a model answers: by the dialect's own calls, or in words that the driver reads."""
    if driver == "native":
        return Turn(calls=tuple(calls)) if calls else text
    if calls:
        (one,) = calls
        arguments = one.arguments if isinstance(one.arguments, dict) else json.loads(one.arguments)
        return json.dumps({"thought": None, "type": "call_tool", "tool": one.name, "args": arguments})
    return json.dumps({"thought": None, "type": "final_answer", "answer": text})


def driver_of(name: str) -> Any:
    return ReActDriver() if name == "react" else None


def looking(ran: list[Any], name: str = "look") -> Tool:
    async def run(arguments: JsonObject, ctx: ToolContext) -> str:
        ran.append(arguments["n"])
        return f"found {arguments['n']} " + "x" * 400

    parameters = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    return Tool(name=name, description=f"Look into {name}.", parameters=parameters, effect="read", run=run)


@pytest.mark.parametrize(("dialect", "driver"), every_way)
async def test_one_round_of_calls_is_completed_as_such(dialect, driver):
    ran: list[Any] = []
    async with MockProvider([turn(driver, call("look", n=1)), turn(driver, text="Seen.")]) as mock:
        agent = Agent(model_of(dialect, mock), tools=[looking(ran)], driver=driver_of(driver))
        result = await agent.run("Look", single_turn=True)
        await check_session(result.session)

    assert (result.completed, ran) == (True, [1])


@pytest.mark.parametrize(("dialect", "driver"), every_way)
async def test_tools_are_found_on_demand(dialect, driver):
    ran: list[Any] = []
    tools = [looking(ran, f"look_{number}") for number in range(60)]
    turns = [
        turn(driver, call("search_tools", query="look_37")),
        turn(driver, call("look_37", n=7)),
        turn(driver, text="Found."),
    ]
    async with MockProvider(turns) as mock:
        agent = Agent(model_of(dialect, mock), tools=[OnDemand(tools)], driver=driver_of(driver))
        result = await agent.run("Look into 37")
        first = json.dumps(mock.requests[0].body)

    assert (result.text, ran) == ("Found.", [7])
    assert sum(f"look_{number}" in first for number in range(60)) < 10


@pytest.mark.parametrize(("dialect", "driver"), every_way)
async def test_a_handoff_keeps_the_task_and_what_was_done(dialect, driver):
    class AtSix(Handoff):
        def is_due(self, need: RequestNeed, tokens: int) -> bool:
            return need.step == 6

    ran: list[Any] = []
    looks = [turn(driver, call("look", n=number)) for number in range(1, 6)]
    turns = [*looks, "The next thing is to answer.", turn(driver, text="Done.")]
    async with MockProvider(turns) as mock, open_session("memory:") as session:
        agent = Agent(model_of(dialect, mock), tools=[looking(ran)], driver=driver_of(driver), compactor=AtSix())
        result = await agent.run("Look everywhere: never in the cellar", session=session)
        compacted = [event for event in await session.events() if event.type == "context.compacted"]
        bodies = [json.dumps(request.body) for request in mock.requests]
        await check_session(session)

    assert (result.text, ran, len(compacted)) == ("Done.", [1, 2, 3, 4, 5], 1)
    assert "never in the cellar" in bodies[-1]
    assert "The next thing is to answer." in bodies[-1]
    assert ["found 1 x" in body for body in (bodies[4], bodies[-1])] == [True, False]


@pytest.mark.parametrize(("dialect", "driver"), every_way)
async def test_a_helper_works_below_the_budget_and_answers_its_caller(dialect, driver):
    ran: list[Any] = []
    turns: Sequence[Any] = [
        turn(driver, call("helper", task="Look")),
        turn(driver, call("look", n=3)),
        turn(driver, text="Three."),
        turn(driver, text="It is three."),
    ]
    async with MockProvider(turns) as mock:
        model = model_of(dialect, mock)
        helper = Agent(model, tools=[looking(ran)], driver=driver_of(driver)).as_tool("helper", "Looks.", effect="read")
        result = await Agent(model, tools=[helper], driver=driver_of(driver), policy=allow("*")).run("How many?")
        await check_session(result.session)

    assert (result.text, ran) == ("It is three.", [3])
    assert len(mock.requests) == 4


# --- killed in a call, at each dialect and each cloud ----------------------------------------------------------------


NAMES = (
    *("openai-chat:m", "openai:m", "anthropic:m", "gemini:m", "cohere:m"),
    *("azure:m", "azure-responses:m", "bedrock:us.amazon.nova-lite-v1:0", "bedrock-claude:us.anthropic.claude-sonnet-4-5-v1:0"),
    *("vertex:gemini-2.5-pro", "vertex:claude-sonnet-4-5@20250929"),
)  # fmt: skip


class Dying(MemoryJournal):
    """A journal whose process is killed before the second result of a call is stored."""

    results_left = 1

    async def append(self, session_id: str, events: Sequence[AnyEvent], *, state: str, durable: bool) -> None:
        if any(event.type == "tool.finished" for event in events):
            self.results_left -= 1
            if self.results_left == -1:
                raise JournalError("gone")
        await super().append(session_id, events, state=state, durable=durable)


@pytest.mark.row("P-CONVERSE", "P-INVOKE", "P-VERTEX", "P-AZURE", "P-COHERE")
@pytest.mark.parametrize("form", ["stream", "whole"])
@pytest.mark.parametrize("name", NAMES)
async def test_another_run_goes_on_with_the_results_that_were_recorded(name, form):
    looked, journal = [], Dying()

    @tool(effect="keyed", permission="allow")
    async def look(key: str) -> str:
        """Look a key up."""
        looked.append(key)
        return f"value of {key}"

    def agent() -> Agent:
        model = resolve_model(name, base_url=provider.base_url, api_key="k", stream=form == "stream")
        return Agent(model, tools=[look], budget=Budget(max_parallel_tool_calls=1))

    asked = Turn(thinking="Hm.", text="I look.", calls=(call("look", key="a"), call("look", key="b")))
    async with MockProvider([asked, "done"]) as provider:
        async with open_session(journal, id="s") as session:
            with pytest.raises(JournalError, match="gone"):
                await agent().run("go", session=session)
        async with open_session(journal, id="s") as session:
            result = await agent().resume(session)

    assert (result.text, result.completed) == ("done", True)
    assert (provider.refusals, len(provider.requests)) == ([], 2)
    assert looked == ["a", "b", "b"]  # under the same key
    told = provider.requests[1].raw.decode()
    assert all(f"value of {key}" in told for key in "ab")
    if name.startswith(("anthropic", "bedrock", "cohere", "vertex:claude")):  # what these think goes back to them
        assert "Hm." in told
