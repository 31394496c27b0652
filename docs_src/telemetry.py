"""OpenTelemetry: one tree of spans for a run, its requests and its calls. Here they are kept in memory; send yours to a collector."""

import asyncio

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from treadle import Agent, ToolContext, tool
from treadle.otel import Telemetry
from treadle.testing import ScriptedModel, call, text

exporter = InMemorySpanExporter()
tracers = TracerProvider()
tracers.add_span_processor(SimpleSpanProcessor(exporter))


@tool(effect="read")
async def look(place: int, ctx: ToolContext) -> str:
    """Look at one place."""
    return f"Nothing at {place}; asked by {ctx.trace['traceparent'][:2]}."


async def main() -> None:
    model = ScriptedModel([call("look", place=1), text("Nothing.")])
    agent = Agent(model, name="scout", tools=[look], subscribers=[Telemetry(tracer_provider=tracers)])

    await agent.run("Look")

    names = [span.name for span in exporter.get_finished_spans()]
    print(names)
    assert names == ["chat scripted", "execute_tool look", "chat scripted", "invoke_agent scout"]


asyncio.run(main())
