"""Spans: one for each run, request and call that is under way. Holds them between their events; measures nothing."""

import contextvars
from collections import OrderedDict
from collections.abc import Mapping
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from opentelemetry import context as otel_context
from opentelemetry import propagate, trace
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode

from treadle.events import (
    Event,
    MessageAdded,
    ModelDiscarded,
    ModelFailed,
    ModelFinished,
    ModelStarted,
    RunFinished,
    RunPaused,
    RunResumed,
    RunStarted,
    ToolFinished,
    ToolStarted,
    ToolSuspended,
)
from treadle.otel import names
from treadle.otel.contents import answer, arguments_of, definitions, fitted, instructions, messages, said
from treadle.ports import TRACE, Model, ModelRequest, asked_model, place_of
from treadle.redaction import Redactor

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

__all__ = ["Spans", "Working"]

_MOST_RUNS = 10_000
"""Runs whose end was not reported, because their process was stopped in the middle: the oldest is forgotten."""
_MOST_EARLIER = 2_000


class Working:
    """A run that is under way."""

    def __init__(self, span: Span, attributes: dict[str, Any]) -> None:
        self.span = span
        self.attributes = attributes
        """What its spans and metrics share: provider and model."""
        self.models: dict[str, Span] = {}
        """By what the request is for; empty for the run's own steps."""
        self.calls: dict[str, tuple[Span, contextvars.Context]] = {}
        self.arguments: dict[str, str] = {}
        """Of the calls of the last response, where content is wanted."""
        self.finish = "stop"
        """Why the last response ended."""
        self.has_instructions = False
        self.input_tokens = self.output_tokens = 0


class Spans:
    """The open spans of all runs of a process.

    Args:
        redactor: Takes secrets out of content; None where content is left out.
    """

    def __init__(self, provider: "TracerProvider | None", *, redactor: Redactor | None) -> None:
        self._tracer = trace.get_tracer("treadle", version("treadle"), provider, names.SCHEMA_URL)
        self._redactor = redactor
        self._runs: OrderedDict[tuple[str, str], Working] = OrderedDict()
        self._earlier: OrderedDict[str, Link] = OrderedDict()
        """The last span of runs that wait or were stopped, which the next one links to."""

    # --- runs

    def begin_run(self, event: RunStarted | RunResumed) -> None:
        """Begin a run's span, below whatever span is current where the run was started."""
        provider, model = names.provider_of(event.model)
        shared = {names.PROVIDER: provider, names.REQUEST_MODEL: model}
        link = self._earlier.pop(event.run_id, None)
        span = self._tracer.start_span(
            f"invoke_agent {event.agent}".strip(),
            kind=SpanKind.INTERNAL,
            links=[] if link is None else [link],
            attributes={
                names.OPERATION: "invoke_agent",
                names.CONVERSATION: event.session_id,
                names.RUN: event.run_id,
                **({names.AGENT_NAME: event.agent} if event.agent else {}),
                **shared,
            },
        )
        before = self._runs.pop((event.session_id, event.run_id), None)
        if before is not None:  # its end was never reported
            self._close(before, "interrupted")
        self._runs[event.session_id, event.run_id] = Working(span, shared)
        while len(self._runs) > _MOST_RUNS:
            self._close(self._runs.popitem(last=False)[1], "interrupted")

    def headers(self) -> dict[str, str]:
        """Return the span that is current, as W3C headers; empty where there is none."""
        carrier: dict[str, str] = {}
        propagate.inject(carrier)
        return {name: value for name, value in carrier.items() if name in ("traceparent", "tracestate")}

    def link_earlier(self, run_id: str, headers: Mapping[str, str]) -> None:
        """Have the run's next span link to one of another process. What this process knows of the run itself is closer."""
        found = trace.get_current_span(
            propagate.extract(dict(headers), context=otel_context.Context())
        ).get_span_context()
        if found.is_valid:
            self._earlier.setdefault(run_id, Link(found))

    def note_task(self, event: MessageAdded) -> None:
        """Add the task to the run's span, where content is wanted."""
        if event.source == "task" and (run := self._run(event)) is not None:
            self._say(run.span, names.INPUT_MESSAGES, messages([event.message]))

    def end_run(self, event: RunFinished | RunPaused) -> dict[str, Any]:
        """End a run's span; return what its metrics share."""
        run = self._runs.pop((event.session_id, event.run_id), None)
        if run is None:
            return {}
        span = run.span
        span.set_attribute(names.REASON, event.reason)
        span.set_attribute(names.INPUT_TOKENS, run.input_tokens)
        span.set_attribute(names.OUTPUT_TOKENS, run.output_tokens)
        if isinstance(event, RunFinished):
            span.set_attribute(names.STATUS, event.status)
            if event.status == "failed":
                _fail(span, event.reason)
            if event.text:
                self._say(span, names.OUTPUT_MESSAGES, answer(event.text, run.finish))
        else:
            span.set_attribute(names.STATUS, "paused")
        if not (isinstance(event, RunFinished) and event.completed):
            self._earlier[event.run_id] = Link(span.get_span_context())
            while len(self._earlier) > _MOST_EARLIER:
                self._earlier.popitem(last=False)
        self._close(run, "cancelled")
        return run.attributes

    def _close(self, run: Working, why: str) -> None:
        """End a run's span, and those below it that were cut off with it."""
        for span in (*run.models.values(), *(span for span, _ in run.calls.values())):
            span.set_attribute(names.ERROR_TYPE, why)
            span.end()
        run.span.end()

    def _run(self, event: Event) -> Working | None:
        return self._runs.get((event.session_id, event.run_id))

    # --- requests to the model

    def begin_model(self, event: ModelStarted) -> None:
        """Begin the span of one request."""
        run = self._run(event)
        if run is None:
            return
        shared = dict(run.attributes)
        if event.model:
            shared[names.PROVIDER], shared[names.REQUEST_MODEL] = names.provider_of(event.model)
        run.models[event.act or ""] = self._tracer.start_span(
            f"chat {shared[names.REQUEST_MODEL]}",
            context=trace.set_span_in_context(run.span),
            kind=SpanKind.CLIENT,
            attributes={
                names.OPERATION: "chat",
                names.CONVERSATION: event.session_id,
                names.STEP: event.step,
                names.ATTEMPT: event.attempt,
                **({names.PURPOSE: event.act.partition(":")[0]} if event.act else {}),
                **shared,
            },
        )

    def end_model(self, event: ModelFinished | ModelFailed | ModelDiscarded) -> dict[str, Any]:
        """End the span of one request; return what its metrics share."""
        run = self._run(event)
        if run is None:
            return {}
        span = run.models.pop(event.act or "", None)
        if usage := getattr(event, "usage", None):
            run.input_tokens += usage.input_tokens
            run.output_tokens += usage.output_tokens
        if span is None:
            return run.attributes
        if usage:
            told = {
                names.INPUT_TOKENS: usage.input_tokens,
                names.OUTPUT_TOKENS: usage.output_tokens,
                names.CACHE_READ_TOKENS: usage.cached_input_tokens,
                names.CACHE_WRITE_TOKENS: usage.cache_written_tokens,
                names.REASONING_TOKENS: usage.reasoning_tokens,
            }
            span.set_attributes({name: count for name, count in told.items() if count})
        if cost := getattr(event, "cost", None):
            span.set_attribute(names.COST, float(cost))
        match event:
            case ModelFinished():
                self._note_response(run, span, event)
            case ModelFailed():
                _fail(span, str(event.status or event.error))
            case ModelDiscarded():
                _fail(span, "discarded")
        span.end()
        return run.attributes

    def _note_response(self, run: Working, span: Span, event: ModelFinished) -> None:
        finish = names.finish_of(str(event.finish))
        found = {names.RESPONSE_ID: event.response_id, names.RESPONSE_MODEL: event.response_model}
        span.set_attributes({name: value for name, value in found.items() if value})
        span.set_attribute(names.FINISH_REASONS, [finish])
        if event.first_token_seconds is not None:
            span.set_attribute(names.FIRST_CHUNK, event.first_token_seconds)
        self._say(span, names.OUTPUT_MESSAGES, said(event.message.parts, finish))
        if event.act is None:
            run.finish = finish
            run.span.set_attribute(names.FINISH_REASONS, [finish])
            run.arguments = {} if self._redactor is None else {one.id: one.arguments for one in event.message.calls}

    def show_request(self, session_id: str, act: str | None, request: ModelRequest, model: Model) -> None:
        """Add what a request asks, where, and with which parameters."""
        run = next((run for (session, _), run in reversed(self._runs.items()) if session == session_id), None)
        span = None if run is None else run.models.get(act or "")
        if run is None or span is None:
            return
        options, place = place_of(asked_model(model))
        span.set_attributes(names.parameters_of(options))
        if place is not None:
            span.set_attributes({names.SERVER_ADDRESS: place[0], names.SERVER_PORT: place[1]})
        if request.output_schema is not None:
            span.set_attribute(names.OUTPUT_TYPE, "json")
        if self._redactor is None:
            return
        self._say(span, names.INPUT_MESSAGES, messages(request.messages))
        if request.instructions:
            self._say(span, names.SYSTEM_INSTRUCTIONS, instructions(request.instructions))
            if not act and not run.has_instructions:
                run.has_instructions = True
                self._say(run.span, names.SYSTEM_INSTRUCTIONS, instructions(request.instructions))
        if request.tools:
            self._say(span, names.TOOL_DEFINITIONS, definitions(request.tools))

    # --- calls

    def begin_call(self, event: ToolStarted) -> None:
        """Begin the span of a call that starts."""
        run = self._run(event)
        if run is None or event.call_id is None:
            return
        if (before := run.calls.pop(event.call_id, None)) is not None:
            before[0].end()
        above = trace.set_span_in_context(run.span)
        span = self._tracer.start_span(
            f"execute_tool {event.tool}",
            context=above,
            kind=SpanKind.INTERNAL,
            attributes={
                names.OPERATION: "execute_tool",
                names.TOOL_NAME: event.tool,
                names.TOOL_CALL: event.call_id,
                names.TOOL_TYPE: "function",
                names.EFFECT: str(event.effect),
                names.STEP: event.step,
            },
        )
        given = run.arguments.get(event.call_id) if event.call is None else event.call.arguments
        if given is not None:
            self._say(span, names.TOOL_ARGUMENTS, arguments_of(given) if isinstance(given, str) else given)
        run.calls[event.call_id] = (span, _inside(trace.set_span_in_context(span, above)))

    def context_of(self, session_id: str, call_id: str) -> contextvars.Context | None:
        """Return the context of a call that is under way; None where it has no span."""
        for (session, _), run in reversed(self._runs.items()):
            if session == session_id and call_id in run.calls:
                return run.calls[call_id][1].copy()
        return None

    def end_call(self, event: ToolFinished) -> dict[str, Any]:
        """End the span of a call. One that never started has none, and is an event of its run's span."""
        run = self._run(event)
        if run is None:
            return {}
        result, (span, _) = event.result, run.calls.pop(event.call_id or "", (None, None))
        if span is None:
            told = {names.TOOL_NAME: result.name, names.TOOL_CALL: result.call_id, names.STATUS: str(result.status)}
            run.span.add_event("treadle.call.refused", told)
            return run.attributes
        span.set_attributes({names.STATUS: str(result.status), names.ATTEMPTS: result.attempts})
        if event.failure_class is not None:
            _fail(span, event.failure_class)
        self._say(span, names.TOOL_RESULT, result.content)
        span.end()
        return run.attributes

    def suspend_call(self, event: ToolSuspended) -> None:
        """End the span of a call that waits. When it continues, it has another one."""
        run = self._run(event)
        found = None if run is None else run.calls.pop(event.call_id or "", None)
        if found is not None:
            found[0].set_attribute(names.STATUS, "suspended")
            found[0].end()

    # --- content

    def _say(self, span: Span, name: str, value: Any) -> None:
        """Add content, where it is wanted: bounded, and without the secrets that are known."""
        if self._redactor is None:
            return
        span.set_attribute(name, fitted(self._redactor.value(value)))


def _fail(span: Span, kind: str) -> None:
    """Mark a span as failed. What was said of the failure may hold content, and is left out."""
    span.set_attribute(names.ERROR_TYPE, kind)
    span.set_status(Status(StatusCode.ERROR))


def _inside(current: Any) -> contextvars.Context:
    """Return a context of variables in which this context of OpenTelemetry is the current one, its headers beside it."""
    made = contextvars.copy_context()
    headers: dict[str, str] = {}
    propagate.inject(headers, context=current)
    made.run(otel_context.attach, current)
    kept = {name: value for name, value in headers.items() if name in ("traceparent", "tracestate")}
    made.run(TRACE.set, kept)
    return made
