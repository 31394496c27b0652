"""Which tracer counts, and what a run keeps of its origin."""

from collections.abc import Mapping
from typing import Any

import pytest

from pipeline_tools import Recorder, read
from treadle import Agent
from treadle.engine.spec import link_runs, traced_origin
from treadle.events import AnyEvent
from treadle.state import RunState
from treadle.testing import ScriptedModel, call, text

HEADERS = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}


class Tracer:
    """A subscriber that ties runs to traces, and writes down what it is linked to."""

    def __init__(self, headers: Mapping[str, str] | None) -> None:
        self._headers = headers
        self.linked: list[tuple[str, Mapping[str, str]]] = []

    def __call__(self, event: AnyEvent) -> None:
        pass

    def headers(self) -> Mapping[str, str]:
        if self._headers is None:
            raise RuntimeError("broken")
        return self._headers

    def link(self, run_id: str, headers: Mapping[str, str]) -> None:
        if self._headers is None:
            raise RuntimeError("broken")
        self.linked.append((run_id, headers))


def plain(event: AnyEvent) -> None:
    pass


def run_of(origin: dict[str, Any] | None) -> RunState:
    return RunState(id="r", task="go", origin=origin)


@pytest.mark.parametrize("before", [[plain], [Tracer(None)], [Tracer({})], [plain, Tracer(None), Tracer({})]])
def test_the_first_subscriber_with_a_trace_counts_whatever_those_before_it_do(before):
    others = [*before, Tracer(HEADERS), Tracer({"traceparent": "another"})]

    assert traced_origin(others, None, None) == {"trace": HEADERS}
    assert traced_origin(before, None, None) is None
    assert traced_origin(before, {"by": "ada"}, None) == {"by": "ada"}


@pytest.mark.parametrize(
    ("given", "recorded", "kept"),
    [
        (None, None, {}),
        ({"by": "ada"}, None, {"by": "ada"}),
        (None, {"by": "kim", "trace": {"traceparent": "old"}}, {"by": "kim"}),
        ({"by": "ada"}, {"by": "kim"}, {"by": "ada"}),
    ],
)
def test_the_trace_is_added_to_what_was_given_else_to_what_the_run_had_recorded(given, recorded, kept):
    before = None if recorded is None else run_of(recorded)

    assert traced_origin([Tracer(HEADERS)], given, before) == {**kept, "trace": HEADERS}


def test_every_tracer_is_linked_to_the_headers_that_are_text_though_one_before_it_raises():
    tracers = [Tracer(None), Tracer(HEADERS), Tracer({})]

    link_runs([plain, *tracers], run_of({"trace": {**HEADERS, "number": 7}}))

    assert [one.linked for one in tracers] == [[], [("r", HEADERS)], [("r", HEADERS)]]


@pytest.mark.parametrize("run", [None, run_of(None), run_of({}), run_of({"trace": "text"})])
def test_without_a_recorded_trace_nothing_is_linked(run):
    tracer = Tracer(HEADERS)

    link_runs([tracer], run)

    assert tracer.linked == []


class Contextless:
    """A subscriber that traces calls, and cannot say in which context one runs."""

    def __call__(self, event: Any) -> None:
        pass

    def call_context(self, session_id: str, call_id: str) -> Any:
        raise ValueError("no context")


async def test_a_tracer_that_fails_stops_no_call():
    ran = Recorder()

    result = await Agent(ScriptedModel([call("look"), text("x")]), tools=[read(ran)], subscribers=[Contextless()]).run(
        "go"
    )

    assert (result.completed, ran.runs) == (True, 1)
