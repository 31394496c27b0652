"""Telemetry: spans and metrics of real runs, as an exporter of the SDK receives them."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

import pytest
from conventions import ALLOWED, REQUIRED, SCHEMAS
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
from opentelemetry.semconv.schemas import Schemas
from opentelemetry.trace import StatusCode

from treadle import Agent, Price, ToolContext, allow, deny, open_session, resolve_model, tool
from treadle.otel import Telemetry
from treadle.sandboxes import run_process
from treadle.testing import MockProvider, ScriptedModel, call, text


class Seen:
    """A telemetry of its own, and what it has exported."""

    def __init__(self, **options: Any) -> None:
        self.exporter = InMemorySpanExporter()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.reader = InMemoryMetricReader()
        self.meters = MeterProvider([self.reader])
        self.telemetry = Telemetry(tracer_provider=self.tracers, meter_provider=self.meters, **options)

    @property
    def spans(self) -> dict[str, ReadableSpan]:
        return {one.name: one for one in self.exporter.get_finished_spans()}

    def points(self, name: str) -> list[Any]:
        data = self.reader.get_metrics_data()
        metrics = [
            one for resource in data.resource_metrics for scope in resource.scope_metrics for one in scope.metrics
        ]
        return [point for one in metrics if one.name == name for point in one.data.data_points]


@pytest.fixture
def seen() -> Iterator[Seen]:
    made = Seen()
    yield made
    made.tracers.shutdown()
    made.meters.shutdown()


@tool(effect="read")
async def look(place: str) -> str:
    """Look at a place."""
    return f"Nothing at {place}."


@tool(effect="unsafe")
async def pay() -> str:
    """Pay."""
    return "paid"


def above(span: ReadableSpan, other: ReadableSpan) -> bool:
    return span.parent is not None and span.parent.span_id == other.context.span_id


@pytest.mark.row("E10")
async def test_a_run_is_one_tree_of_spans_by_the_conventions_below_the_callers(seen: Seen):
    turns = [call("look", place="A"), text("Nothing there.")]
    with (
        MockProvider(turns).in_thread() as provider,
        seen.tracers.get_tracer("caller").start_as_current_span("request"),
    ):
        model = resolve_model(
            "openai-chat:m-1", base_url=provider.base_url, api_key="k", price=Price(input=1, output=2)
        )
        agent = Agent(model, name="scout", tools=[look], subscribers=[seen.telemetry])
        result = await agent.run("Look at A.")

    assert result.completed
    spans = seen.spans
    run, caller, called = spans["invoke_agent scout"], spans["request"], spans["execute_tool look"]
    chats = [one for one in seen.exporter.get_finished_spans() if one.name == "chat m-1"]
    assert above(run, caller)
    assert len(chats) == 2
    assert all(above(one, run) for one in (*chats, called))
    assert {one.context.trace_id for one in seen.exporter.get_finished_spans()} == {caller.context.trace_id}
    assert run.attributes is not None
    assert run.attributes["gen_ai.operation.name"] == "invoke_agent"
    assert run.attributes["gen_ai.provider.name"] == "openai"
    assert run.attributes["gen_ai.agent.name"] == "scout"
    assert run.attributes["gen_ai.conversation.id"] == result.session_id
    assert run.attributes["gen_ai.usage.input_tokens"] == result.usage.input_tokens > 0
    assert run.attributes["treadle.reason"] == "completed"
    assert chats[0].kind is trace.SpanKind.CLIENT
    assert chats[0].attributes["gen_ai.request.model"] == "m-1"
    assert chats[0].attributes["gen_ai.response.finish_reasons"] == ("tool_call",)
    assert chats[1].attributes["gen_ai.usage.output_tokens"] > 0
    assert chats[1].attributes["treadle.cost"] > 0
    assert called.attributes["gen_ai.tool.name"] == "look"
    assert called.attributes["gen_ai.tool.call.id"]
    assert called.status.status_code is StatusCode.UNSET


@pytest.mark.row("E10")
async def test_what_a_tool_starts_belongs_to_its_span(seen: Seen):
    found: dict[str, Any] = {}

    @tool(effect="read")
    async def ask(ctx: ToolContext) -> str:
        """Ask a program."""
        with seen.tracers.get_tracer("tool").start_as_current_span("inside"):
            found["headers"] = dict(ctx.trace)
        ran = await run_process([sys.executable, "-c", "import os; print(os.environ.get('TRACEPARENT'))"])
        found["program"] = ran.stdout.strip()
        return "asked"

    @tool(effect="read")
    def wait(ctx: ToolContext) -> str:
        """Wait in a thread."""
        with seen.tracers.get_tracer("tool").start_as_current_span("in a thread"):
            found["thread"] = dict(ctx.trace)
        return "waited"

    model = ScriptedModel([[call("ask"), call("wait")], text("Done.")])
    await Agent(model, tools=[ask, wait], subscribers=[seen.telemetry]).run("Ask.")

    spans = seen.spans
    for name, inner, headers in (("ask", "inside", "headers"), ("wait", "in a thread", "thread")):
        outer = spans[f"execute_tool {name}"]
        assert above(spans[inner], outer)
        assert found[headers]["traceparent"].split("-")[1:3] == [
            f"{outer.context.trace_id:032x}",
            f"{outer.context.span_id:016x}",
        ]
    assert found["program"] == found["headers"]["traceparent"]


@pytest.mark.row("E10")
async def test_an_agent_that_a_call_asks_has_its_spans_below_the_call(seen: Seen):
    child = Agent(
        ScriptedModel([call("look", place="B"), text("Nothing.")]),
        name="child",
        tools=[look],
        subscribers=[seen.telemetry],
    )
    model = ScriptedModel([call("ask", task="Look at B."), text("Done.")])
    lead = Agent(model, name="lead", tools=[child.as_tool("ask", "Asks.", effect="read")], subscribers=[seen.telemetry])

    assert (await lead.run("Go")).completed

    spans = seen.spans
    assert above(spans["execute_tool ask"], spans["invoke_agent lead"])
    assert above(spans["invoke_agent child"], spans["execute_tool ask"])
    assert above(spans["execute_tool look"], spans["invoke_agent child"])


@pytest.mark.row("E10")
async def test_a_run_that_waits_ends_its_span_and_links_to_it_when_it_continues(seen: Seen, tmp_path: Any):
    agent = Agent(ScriptedModel([call("pay"), text("Done.")]), tools=[pay], subscribers=[seen.telemetry])
    async with open_session(tmp_path / "j.db", id="s") as session:
        result = await agent.run("Pay.", session=session)
        (first,) = [one for one in seen.exporter.get_finished_spans() if one.name == "invoke_agent"]
        assert first.attributes["treadle.status"] == "paused"
        await session.answer(result.approvals[0].id, "allow")
        assert (await agent.resume(session)).completed

    last = [one for one in seen.exporter.get_finished_spans() if one.name == "invoke_agent"][-1]
    assert [link.context.span_id for link in last.links] == [first.context.span_id]
    assert above(seen.spans["execute_tool pay"], last)


def runs(seen: Seen, name: str = "invoke_agent") -> list[ReadableSpan]:
    return [one for one in seen.exporter.get_finished_spans() if one.name == name]


@pytest.mark.row("E-OTEL-LINKS")
async def test_a_run_that_another_process_continues_links_to_the_trace_it_was_in(tmp_path: Any):
    model = ScriptedModel([call("pay"), call("pay"), text("Done.")])
    traces, links = [], []
    for _ in range(3):  # each with a telemetry that knows nothing of the one before, as in another process
        seen = Seen()
        agent = Agent(model, tools=[pay], subscribers=[seen.telemetry])
        async with open_session(tmp_path / "j.db", id="s") as session:
            with trace.get_tracer("mine", tracer_provider=seen.tracers).start_as_current_span("service") as around:
                result = await (agent.resume(session) if traces else agent.run("Pay.", session=session))
            for approval in result.approvals:
                await session.answer(approval.id, "allow")
        (run,) = runs(seen)
        links.append([link.context.span_id for link in run.links])
        traces.append(around.get_span_context().span_id)

    assert result.completed
    assert links == [[], [traces[0]], [traces[1]]]


@pytest.mark.row("E-OTEL-LINKS")
async def test_an_agent_below_that_continues_in_another_process_links_to_the_call_that_had_asked_it(tmp_path: Any):
    below, above_it = (
        ScriptedModel([call("pay"), text("Paid.")]),
        ScriptedModel([call("ask", task="Pay."), text("Done.")]),
    )
    first, second = Seen(), Seen()
    for seen in (first, second):
        child = Agent(below, name="child", tools=[pay], subscribers=[seen.telemetry])
        lead = Agent(
            above_it,
            name="lead",
            tools=[child.as_tool("ask", "Asks.")],
            subscribers=[seen.telemetry],
            policy=allow("ask"),
        )
        async with open_session(tmp_path / "j.db", id="s") as session:
            result = await (lead.run("Go", session=session) if seen is first else lead.resume(session))
            for approval in await session.approvals():
                await session.answer(approval.id, "allow")

    assert result.completed
    (run,), (asking, *_) = runs(second, "invoke_agent child"), runs(first, "execute_tool ask")
    assert [link.context.span_id for link in run.links] == [asking.context.span_id]


@pytest.mark.row("E-OTEL-LINKS")
async def test_a_tracer_of_runs_that_raises_changes_no_run(tmp_path: Any):
    class Broken:
        def __call__(self, event: Any) -> None: ...

        def headers(self) -> dict[str, str]:
            raise RuntimeError("no headers")

        def link(self, run_id: str, headers: Any) -> None:
            raise RuntimeError("no link")

    seen = Seen()
    agent = Agent(ScriptedModel([text("One."), text("Two.")]), subscribers=[Broken(), seen.telemetry])
    with trace.get_tracer("mine", tracer_provider=seen.tracers).start_as_current_span("service"):
        assert (await agent.run("Go")).completed

    assert len(runs(seen)) == 1


@pytest.mark.row("E10")
async def test_failures_are_marked_and_calls_that_never_started_have_no_span(seen: Seen):
    @tool(effect="read", retries=0)
    async def fail() -> str:
        """Fail."""
        raise RuntimeError("the key is sk-secret-1234567890")

    model = ScriptedModel([[call("fail"), call("pay")], text("Done.")])
    await Agent(model, tools=[fail, pay], policy=deny("pay"), subscribers=[seen.telemetry]).run("Go")

    failed = seen.spans["execute_tool fail"]
    assert failed.status.status_code is StatusCode.ERROR
    assert failed.attributes["error.type"] == "failed"
    assert "execute_tool pay" not in seen.spans
    (refused,) = seen.spans["invoke_agent"].events
    assert refused.attributes["gen_ai.tool.name"] == "pay"
    assert refused.attributes["treadle.status"] == "denied"
    assert "sk-secret" not in str([one.to_json() for one in seen.exporter.get_finished_spans()])


DOORS = {
    "openai-chat:m-1": ("openai", {"temperature": 0.5, "max_tokens": 100, "stop": "END", "seed": 7}),
    "openai:m-1": ("openai", {"temperature": 0.5, "max_output_tokens": 100}),
    "anthropic:m-1": ("anthropic", {"temperature": 0.5, "max_tokens": 100, "stop_sequences": ["END"], "top_k": 3}),
    "gemini:m-1": ("gcp.gemini", {"generationConfig": {"temperature": 0.5, "maxOutputTokens": 100, "stopSequences": ["END"]}}),
    "cohere:m-1": ("cohere", {"temperature": 0.5, "max_tokens": 100, "k": 3, "p": 0.75}),
}  # fmt: skip
PARAMETERS = {
    "openai-chat:m-1": {"temperature": 0.5, "max_tokens": 100, "stop_sequences": ("END",), "seed": 7},
    "openai:m-1": {"temperature": 0.5, "max_tokens": 100},
    "anthropic:m-1": {"temperature": 0.5, "max_tokens": 100, "stop_sequences": ("END",), "top_k": 3},
    "gemini:m-1": {"temperature": 0.5, "max_tokens": 100, "stop_sequences": ("END",)},
    "cohere:m-1": {"temperature": 0.5, "max_tokens": 100, "top_k": 3, "top_p": 0.75},
}
PUBLISHED = {
    value for name, value in vars(gen_ai_attributes).items() if name.startswith("GEN_AI") and isinstance(value, str)
}


def follows_the_conventions(span: ReadableSpan) -> None:
    """Raise AssertionError where a span has what the conventions do not allow, or lacks what they require."""
    operation = span.attributes["gen_ai.operation.name"]
    theirs = {name for name in span.attributes if not name.startswith("treadle.")}
    assert theirs <= ALLOWED[operation], theirs - ALLOWED[operation]
    assert REQUIRED[operation] <= theirs
    assert {name for name in theirs if name.startswith("gen_ai.")} <= PUBLISHED
    for name, schema in SCHEMAS.items():
        if name in span.attributes:
            schema.validate(json.loads(span.attributes[name]))
    scope = span.instrumentation_scope
    assert (scope.name, scope.version) == ("treadle", version("treadle"))
    assert scope.schema_url in {one.value for one in Schemas}


@pytest.mark.row("E10")
@pytest.mark.parametrize(("named", "stream"), [*((one, True) for one in DOORS), ("openai-chat:m-1", False)])
async def test_each_dialects_spans_follow_the_published_conventions(named: str, stream: bool):
    provider_name, options = DOORS[named]
    seen = Seen(content=True)
    with MockProvider([call("look", place="A"), text("Done.")]).in_thread() as provider:
        address = provider.base_url
        model = resolve_model(named, base_url=provider.base_url, api_key="k", options=options, stream=stream)
        agent = Agent(model, instructions="Be brief.", tools=[look], subscribers=[seen.telemetry])
        result = await agent.run("Look at A.")

    assert result.completed, result.message
    spans = seen.exporter.get_finished_spans()
    for span in spans:
        follows_the_conventions(span)
    first, second = (dict(one.attributes) for one in spans if one.name == "chat m-1")
    contents = {name: json.loads(second[name]) for name in SCHEMAS if name in second}
    (tool_,) = contents.pop("gen_ai.tool.definitions")
    assert (tool_["type"], tool_["name"], tool_["description"].split("\n")[0]) == (
        "function",
        "look",
        "Look at a place.",
    )
    called = json.loads(first["gen_ai.output.messages"])[0]["parts"][0]
    assert called == {"type": "tool_call", "id": called["id"], "name": "look", "arguments": {"place": "A"}}
    assert json.loads(first["gen_ai.output.messages"]) == [
        {"role": "assistant", "parts": [called], "finish_reason": "tool_call"}
    ]
    assert contents == {
        "gen_ai.system_instructions": [{"type": "text", "content": "Be brief."}],
        "gen_ai.input.messages": [
            {"role": "user", "parts": [{"type": "text", "content": "Look at A."}]},
            {"role": "assistant", "parts": [called]},
            {
                "role": "tool",
                "parts": [{"type": "tool_call_response", "id": called["id"], "response": "Nothing at A."}],
            },
        ],
        "gen_ai.output.messages": [
            {"role": "assistant", "parts": [{"type": "text", "content": "Done."}], "finish_reason": "stop"}
        ],
    }
    assert {name: first.get(f"gen_ai.request.{name}") for name in PARAMETERS[named]} == PARAMETERS[named]
    assert first.get("gen_ai.request.stream") is (True if stream else None)
    assert (first["gen_ai.provider.name"], first["server.address"]) == (provider_name, "127.0.0.1")
    assert f":{first['server.port']}" in address
    assert first["gen_ai.response.id"]
    assert first["gen_ai.response.id"] != second["gen_ai.response.id"]
    # Cohere's answers name no model, and the mock of Gemini's names itself.
    assert first.get("gen_ai.response.model") == {"cohere:m-1": None, "gemini:m-1": "mock"}.get(named, "m-1")
    (run,) = runs(seen)
    assert run.attributes["gen_ai.response.finish_reasons"] == ("stop",)
    assert json.loads(run.attributes["gen_ai.system_instructions"]) == contents["gen_ai.system_instructions"]
    assert json.loads(run.attributes["gen_ai.output.messages"]) == contents["gen_ai.output.messages"]


@pytest.mark.row("E10")
async def test_content_that_is_too_long_stays_json_of_its_schema():
    seen = Seen(content=True)
    model = ScriptedModel(
        [call("look", place="x" * 40_000), *[call("look", place=f"{n}") for n in range(9)], text("y" * 40_000)]
    )
    await Agent(model, instructions="z" * 40_000, tools=[look], subscribers=[seen.telemetry]).run("Look. " * 10_000)

    spans = seen.exporter.get_finished_spans()
    for span in spans:
        follows_the_conventions(span)
    assert max(len(str(value)) for span in spans for value in span.attributes.values()) <= 16_001
    last = json.loads(spans[-2].attributes["gen_ai.input.messages"])
    assert last[-1]["parts"][0]["response"] == "Nothing at 8."


@pytest.mark.row("E10")
async def test_content_is_left_out_unless_it_is_wanted_and_then_without_secrets():
    secret = "ghp_" + "a1B2" * 9
    for content in (False, True):
        seen = Seen(content=content)
        model = ScriptedModel([call("look", place=f"the vault {secret}"), text(f"An answer with {secret}.")])
        await Agent(model, tools=[look], subscribers=[seen.telemetry]).run(f"A task with {secret} " + "x" * 50_000)

        exported = "".join(one.to_json() for one in seen.exporter.get_finished_spans())
        assert ("An answer with" in exported) is content
        assert ("A task with" in exported) is content
        assert ("the vault" in exported) is content
        assert secret not in exported
        assert len(exported) < 60_000
        seen.tracers.shutdown()


@pytest.mark.row("E10")
async def test_tokens_durations_and_cost_are_measured(seen: Seen):
    with MockProvider([call("look", place="A"), text("Done.")]).in_thread() as provider:
        model = resolve_model(
            "openai-chat:m-1", base_url=provider.base_url, api_key="k", price=Price(input=1, output=2)
        )
        result = await Agent(model, tools=[look], subscribers=[seen.telemetry]).run("Look.")

    tokens = {point.attributes["gen_ai.token.type"]: point.sum for point in seen.points("gen_ai.client.token.usage")}
    assert tokens == {"input": result.usage.input_tokens, "output": result.usage.output_tokens}
    durations = {
        point.attributes["gen_ai.operation.name"]: point for point in seen.points("gen_ai.client.operation.duration")
    }
    assert {name: point.count for name, point in durations.items()} == {"invoke_agent": 1, "chat": 2, "execute_tool": 1}
    assert all(point.sum > 0 for point in durations.values())
    (cost,) = seen.points("treadle.cost")
    assert cost.value == pytest.approx(float(result.report()["cost"]))


class Broken(SpanExporter):
    def export(self, spans: Any) -> SpanExportResult:
        raise RuntimeError("the collector is gone")


class BrokenTracers(TracerProvider):
    def get_tracer(self, *_: Any, **__: Any) -> Any:
        class Tracer:
            def start_span(self, *_: Any, **__: Any) -> Any:
                raise RuntimeError("no span today")

        return Tracer()


@pytest.mark.row("E10")
@pytest.mark.parametrize("kind", ["exporter", "tracer"])
async def test_what_fails_in_telemetry_never_touches_a_run(kind: str, caplog: Any):
    tracers = TracerProvider() if kind == "exporter" else BrokenTracers()
    tracers.add_span_processor(SimpleSpanProcessor(Broken()))
    telemetry = Telemetry(tracer_provider=tracers, meter_provider=MeterProvider())

    model = ScriptedModel([call("look", place="A"), text("Done.")])
    result = await Agent(model, tools=[look], subscribers=[telemetry]).run("Look.")

    assert result.completed
    ours = [one for one in caplog.records if one.name.startswith("treadle.otel")]
    assert len(ours) == (kind == "tracer")
    tracers.shutdown()


@pytest.mark.row("E10")
async def test_runs_side_by_side_and_a_cancelled_one_leave_no_open_span(seen: Seen):
    agents = [
        Agent(ScriptedModel([call("look", place=str(n)), text("x")]), tools=[look], subscribers=[seen.telemetry])
        for n in range(20)
    ]
    await asyncio.gather(*(one.run("Look.") for one in agents))
    begun = asyncio.Event()

    @tool(effect="read")
    async def hang() -> str:
        """Hang."""
        begun.set()
        await asyncio.Event().wait()
        return ""

    agent = Agent(ScriptedModel([call("hang"), text("x")]), tools=[hang], subscribers=[seen.telemetry])
    async with agent.stream("Hang.") as run:
        waiting = asyncio.create_task(run.finish())
        await begun.wait()
        run.cancel()
        await waiting

    finished = seen.exporter.get_finished_spans()
    runs = [one for one in finished if one.name == "invoke_agent"]
    assert len(runs) == 21
    for one in runs[:20]:
        assert len([span for span in finished if above(span, one)]) == 3
    assert seen.spans["execute_tool hang"].attributes["error.type"] == "cancelled"
    assert not seen.telemetry._spans._runs


@pytest.mark.row("E10")
def test_nothing_of_opentelemetry_is_loaded_by_a_run_without_it():
    program = """
import sys
sys.modules["opentelemetry"] = None  # as if it were not installed
from treadle import Agent, ConfigurationError
from treadle.testing import ScriptedModel, text
assert Agent(ScriptedModel([text("Done.")])).run_sync("Go").completed
import treadle.otel
assert not [name for name in sys.modules if name.startswith("opentelemetry.")]
try:
    treadle.otel.Telemetry()
except ConfigurationError as exc:
    print(exc)
"""
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=dict(os.environ), timeout=60
    )
    assert ran.returncode == 0, ran.stderr
    assert "pip install '.[otel]' in the project's folder" in ran.stdout
