"""OpenTelemetry of the program: a collector on loopback receives what real processes send."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
TRACE_ID = CALLER.split("-")[1]

ASKING = """
import sys
from treadle import tool
from treadle.sandboxes import run_process

@tool(effect="read")
async def ask() -> str:
    '''Ask a program what trace it is in.'''
    ran = await run_process([sys.executable, "-c", "import os; print(os.environ.get('TRACEPARENT'))"])
    return ran.stdout
"""


class Collector:
    """Keeps what is sent to it."""

    def __init__(self) -> None:
        self.bodies: list[tuple[str, bytes]] = []
        collector = self

        class Receiver(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                collector.bodies.append((self.path, self.rfile.read(int(self.headers["content-length"]))))
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
        self.address = f"http://127.0.0.1:{self.server.server_address[1]}"

    def spans(self) -> dict[str, Any]:
        got = [ExportTraceServiceRequest.FromString(body) for path, body in self.bodies if path == "/v1/traces"]
        resources = [resource for one in got for resource in one.resource_spans]
        return {span.name: span for one in resources for scope in one.scope_spans for span in scope.spans}


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    threading.Thread(target=made.server.serve_forever, daemon=True).start()
    yield made
    made.server.shutdown()
    made.server.server_close()


@pytest.mark.row("E-OTEL-CLI")
def test_the_standard_variables_send_a_run_below_the_callers_trace(treadle: Any, collector: Collector):
    (treadle.folder / "asking.py").write_text(ASKING)
    model = treadle.script("ask.json", [{"calls": [{"name": "ask", "arguments": {}}]}, {"text": "Done."}])
    variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.address, "TRACEPARENT": CALLER}

    treadle("run", "-m", model, "--tools", "asking.py", "go", code=0, **variables)

    spans = collector.spans()
    assert {"treadle run", "invoke_agent", "execute_tool ask"} <= set(spans)
    assert {one.trace_id.hex() for one in spans.values()} == {TRACE_ID}
    assert spans["treadle run"].parent_span_id.hex() == CALLER.split("-")[2]
    assert spans["invoke_agent"].parent_span_id == spans["treadle run"].span_id
    called = spans["execute_tool ask"].span_id.hex()
    assert f"00-{TRACE_ID}-{called}-" in treadle("sessions", "show", "--last", code=0).stdout
    assert "/v1/metrics" in {path for path, _ in collector.bodies}
    assert any(b"treadle" in body for _, body in collector.bodies)


@pytest.mark.row("E-OTEL-CLI")
def test_a_resumed_run_links_to_the_trace_of_the_process_before(paying: Any, collector: Collector):
    variables = {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"{collector.address}/v1/traces"}
    paying("run", "-m", "script:pay.json", "--tools", "paying.py", "go", **variables)
    first = collector.spans()["invoke_agent"].trace_id
    collector.bodies.clear()
    paying("approve", "--last", code=0, **variables)
    paying("resume", "--last", code=0, **variables)

    resumed = collector.spans()["invoke_agent"]
    assert resumed.trace_id != first
    assert [one.trace_id for one in resumed.links] == [first]


@pytest.mark.row("E-OTEL-CLI")
@pytest.mark.parametrize(
    ("said", "has_content"),
    [("", False), ("true", True), ("SPAN_ONLY", True), ("span_and_event", True), ("EVENT_ONLY", False), ("sure", False)],
)  # fmt: skip
def test_the_standard_variable_says_whether_content_is_captured(
    treadle: Any, collector: Collector, said: str, has_content: bool
):
    model = treadle.script("answer.json", [{"text": "An answer."}])
    variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.address}
    name = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"

    ran = treadle("run", "-m", model, "A task.", code=0, **variables, **({name: said} if said else {}))

    sent = b"".join(body for path, body in collector.bodies if path == "/v1/traces")
    assert (b"An answer." in sent) is has_content
    assert (name in ran.stderr) is (said == "sure")


@pytest.mark.row("E-OTEL-CLI")
@pytest.mark.parametrize(
    "wrong",
    [["-m", "no-such:m"], ["-m", "script:missing.json"], ["-m", "demo", "--tools", "missing.py"], ["-m", "demo", "-C", "nowhere"]],
)  # fmt: skip
def test_a_wrong_option_sends_no_path_and_no_stack_trace(treadle: Any, collector: Collector, wrong: list[str]):
    treadle("run", *wrong, "go", OTEL_EXPORTER_OTLP_ENDPOINT=collector.address)

    sent = b"".join(body for path, body in collector.bodies if path == "/v1/traces")
    for said in (b"Traceback", b"exception", b".py", b"missing", str(treadle.folder).encode()):
        assert said not in sent


@pytest.mark.row("E-OTEL-CLI")
@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"OTEL_SDK_DISABLED": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"},
        {"OTEL_TRACES_EXPORTER": "none", "OTEL_METRICS_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"},
        {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "OTEL_EXPORTER_OTLP_TIMEOUT": "1"},
    ],
    ids=["off", "disabled", "no exporter", "grpc", "nobody there"],
)  # fmt: skip
def test_without_a_collector_a_run_is_what_it_was_and_hands_the_callers_trace_on(
    treadle: Any, variables: dict[str, str]
):
    (treadle.folder / "asking.py").write_text(ASKING)
    model = treadle.script("ask.json", [{"calls": [{"name": "ask", "arguments": {}}]}, {"text": "Done."}])

    done = treadle("run", "-m", model, "--tools", "asking.py", "go", code=0, TRACEPARENT=CALLER, **variables)

    assert done.stdout.strip() == "Done."
    assert TRACE_ID in treadle("sessions", "show", "--last", code=0).stdout
    assert ("is not supported" in done.stderr) == (variables.get("OTEL_EXPORTER_OTLP_PROTOCOL") == "grpc")
