"""Pairs of start and check, and what an HTTP status means: what is unknown is asked for, never done again."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from treadle import Agent, Done, NotDone, Rejected, Tool, ToolContext, Unknown, allow
from treadle.errors import ConfigurationError, ToolDefinitionError, Transient
from treadle.testing import ScriptedModel, call, text
from treadle.tools import JsonObject
from treadle.toolsets import http_rejection, operation

AMOUNT: JsonObject = {"type": "object", "properties": {"amount": {"type": "integer"}}, "required": ["amount"]}


class Service:
    """Does what it is told, by id; may keep its answer to itself."""

    def __init__(self, *, fault: BaseException | None = None, answer: Any = None) -> None:
        self.done: dict[str, int] = {}
        self.starts = 0
        self.fault = fault
        self.answer = answer

    async def start(self, arguments: JsonObject, ctx: ToolContext) -> Any:
        self.starts += 1
        self.done[ctx.idempotency_key] = arguments["amount"]
        if self.fault is not None:
            raise self.fault
        return "accepted"

    async def check(self, operation_id: str, ctx: ToolContext) -> Any:
        if self.answer is not None:
            return self.answer
        return {"amount": self.done[operation_id]} if operation_id in self.done else NotDone

    def tools(self, **words: Any) -> tuple[Tool, Tool]:
        return operation(
            "transfer", start=self.start, check=self.check, description="Transfer.", parameters=AMOUNT, **words
        )


def agent(model: ScriptedModel, service: Service, **words: Any) -> Agent:
    return Agent(model, tools=service.tools(**words), policy=allow("start_transfer"))


@pytest.mark.row("F11")
async def test_a_start_tells_the_operations_id_which_is_the_idempotency_key() -> None:
    service = Service()
    model = ScriptedModel([call("start_transfer", amount=5), text("ok")])

    await agent(model, service).run("go")

    (key,) = service.done
    assert f'"operation_id":"{key}"' in model.requests[1].messages[-1].results[0].content


@pytest.mark.row("F11")
@pytest.mark.parametrize("fault", [TimeoutError(), ConnectionResetError("reset"), OSError(5, "I/O")])
async def test_after_a_start_without_an_answer_the_model_can_ask_and_nothing_is_started_again(fault: OSError) -> None:
    service = Service(fault=fault, answer=Unknown)
    model = ScriptedModel([call("start_transfer", amount=5), text("I shall ask.")])
    first = await agent(model, service).run("go")
    (key,) = service.done
    told = model.requests[1].messages[-1].results[0].content
    service.answer = None
    asking = ScriptedModel([call("check_transfer", operation_id=key), text("It was done.")])
    second = await agent(asking, service).run("and?")

    assert [one.status for one in first.tool_calls] == ["outcome_unknown"]
    assert "check_transfer" in told
    assert key in told
    assert [one.status for one in second.tool_calls] == ["ok"]
    assert '"amount":5' in asking.requests[1].messages[-1].results[0].content
    assert service.starts == 1


@pytest.mark.row("F11")
async def test_the_runtime_asks_check_itself_and_the_model_gets_the_answer_of_the_start() -> None:
    service = Service(fault=TimeoutError())
    model = ScriptedModel([call("start_transfer", amount=5), text("Done.")])

    result = await agent(model, service).run("go")

    assert [one.status for one in result.tool_calls] == ["ok"]
    assert '"state":"started"' in model.requests[1].messages[-1].results[0].content
    assert service.starts == 1


async def test_a_start_that_hangs_is_cut_by_its_own_limit() -> None:
    service = Service(answer=Unknown)

    async def hang(arguments: JsonObject, ctx: ToolContext) -> Any:
        await asyncio.get_running_loop().create_future()

    tools = operation("x", start=hang, check=service.check, description="X.", parameters=AMOUNT, timeout=0.01)
    model = ScriptedModel([call("start_x", amount=1), text("ok")])
    result = await Agent(model, tools=tools, policy=allow("*")).run("go")

    assert [one.status for one in result.tool_calls] == ["outcome_unknown"]
    assert "check_x" in model.requests[1].messages[-1].results[0].content


@pytest.mark.row("ST03")
@pytest.mark.parametrize("answer", [False, 0, "", {}])
async def test_a_check_of_an_operation_that_says_nothing_leaves_its_outcome_unknown(answer: Any) -> None:
    model = ScriptedModel([call("start_transfer", amount=5), text("?")])
    service = Service(fault=TimeoutError(), answer=answer)

    result = await agent(model, service).run("go")

    assert [one.status for one in result.tool_calls] == ["outcome_unknown"]


@pytest.mark.parametrize(
    ("answer", "state"), [(NotDone, "unknown"), (Unknown(), "unknown"), (Done("sent"), "started"), (0, "unknown")]
)
async def test_check_says_what_it_does_not_know(answer: Any, state: str) -> None:
    model = ScriptedModel([call("check_transfer", operation_id="op"), text("ok")])

    await agent(model, Service(answer=answer)).run("?")

    assert f'"state":"{state}"' in model.requests[1].messages[-1].results[0].content


@pytest.mark.row("ST02")
@pytest.mark.parametrize(
    ("fault", "timeout", "state"),
    [
        (TimeoutError(), 3600, "unknown"),  # its request may still arrive
        (TimeoutError(), 1e-9, "not_started"),
        (Rejected("no", code="no"), 3600, "not_started"),  # the service has answered
    ],
)
async def test_not_done_is_believed_once_no_request_of_the_start_can_be_under_way(
    fault: Exception, timeout: float, state: str
) -> None:
    keys, answers = list[str](), [Unknown, NotDone]

    async def check(operation_id: str, ctx: ToolContext) -> Any:
        return answers.pop(0)  # the runtime asks first, where nobody knows how the start ended

    async def start(arguments: JsonObject, ctx: ToolContext) -> Any:
        keys.append(ctx.idempotency_key)
        raise fault

    if isinstance(fault, Rejected):
        answers.pop(0)
    pair = operation("x", start=start, check=check, description="X.", parameters=AMOUNT, timeout=timeout)

    def asking(_: Any) -> Any:
        return call("check_x", operation_id=keys[0])

    model = ScriptedModel([call("start_x", amount=1), asking, text("ok")])
    await Agent(model, tools=pair, policy=allow("*")).run("go")

    told = model.requests[2].messages[-1].results[0].content
    assert f'"state":"{state}"' in told
    assert ('"ask_again_in_seconds":3600' in told) == (state == "unknown")


def test_a_pair_that_cannot_be_described_is_refused() -> None:
    with pytest.raises(ToolDefinitionError, match="timeout"):
        Service().tools(timeout=0)


def raising(make: Callable[[], Exception]) -> Tool:
    async def run(arguments: JsonObject, ctx: ToolContext) -> Any:
        raise make()

    return Tool(name="ask", description="Ask.", parameters={}, effect="read", retries=0, run=run)


@pytest.mark.row("F17")
@pytest.mark.parametrize(
    ("status", "code", "outcome"),
    [
        (401, "auth_expired", "rejected"),
        (404, "not_found", "rejected"),
        (429, "rate_limited", "rejected"),
        (409, "conflict", "rejected"),
        (500, "internal_error", "failed"),
        (503, "internal_error", "failed"),
        (418, "rejected", "rejected"),
    ],
)
async def test_each_status_of_a_service_has_its_word(status: int, code: str, outcome: str) -> None:
    model = ScriptedModel([call("ask"), text("ok")])
    tool = raising(lambda: http_rejection(status, {"why": "so"}))

    result = await Agent(model, tools=[tool]).run("?")

    content = model.requests[1].messages[-1].results[0].content
    assert f'"code":"{code}"' in content
    assert [one.status for one in result.tool_calls] == [outcome]
    assert ('"why":"so"' in content) == (outcome == "rejected")


@pytest.mark.row("F17")
async def test_a_rate_limit_that_may_be_retried_is_and_keeps_its_word_when_no_attempt_is_left() -> None:
    model = ScriptedModel([call("ask"), text("ok")])
    tool = raising(lambda: http_rejection(429, {}, retry=True))

    await Agent(model, tools=[tool]).run("?")

    assert '"code":"rate_limited"' in model.requests[1].messages[-1].results[0].content
    assert isinstance(http_rejection(429, {}, retry=True, retry_after_seconds=3), Transient)
    assert isinstance(http_rejection(429, {}), Rejected)


@pytest.mark.parametrize("status", [200, 399, 600, -1, True, "404"])
def test_what_is_no_failure_is_refused(status: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"400 to 599|status must be"):
        http_rejection(status, {})


@pytest.mark.row("N06")
async def test_a_model_may_ask_how_an_operation_went_until_it_is_done() -> None:
    service = Service(answer=Unknown)
    asks = [call("check_transfer", operation_id="k")] * 20

    result = await agent(ScriptedModel([*asks, text("Still unknown.")]), service).run("go")

    assert result.completed
    assert {one.status for one in result.tool_calls} == {"ok"}


class Ahead(asyncio.SelectorEventLoop):
    """An event loop whose clock a test moves on."""

    ahead = 0.0

    def time(self) -> float:
        return super().time() + self.ahead


@pytest.mark.row("ST02")
def test_a_request_of_a_start_that_was_sent_late_may_be_under_way_after_its_time_limit() -> None:
    loop = Ahead()

    keys: list[str] = []

    async def late(arguments: JsonObject, ctx: ToolContext) -> Any:
        keys.append(ctx.idempotency_key)
        loop.ahead += 50
        raise ConnectionResetError("reset")

    async def states() -> list[str]:
        told = []
        service = Service(answer=Unknown)
        tools = operation("x", start=late, check=service.check, description="X.", parameters=AMOUNT, timeout=60)
        agent = Agent(ScriptedModel([call("start_x", amount=1), text("ok")]), tools=tools, policy=allow("*"))
        (started,) = (await agent.run("go")).tool_calls
        assert started.status == "outcome_unknown"
        service.answer = NotDone
        for seconds in (20, 41):
            loop.ahead += seconds
            model = ScriptedModel([call("check_x", operation_id=keys[0]), text("ok")])
            await Agent(model, tools=tools, policy=allow("*")).run("?")
            result = json.loads(model.requests[1].messages[-1].results[0].content)
            told.append(result["state"])
        return told

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        assert runner.run(states()) == ["unknown", "not_started"]
