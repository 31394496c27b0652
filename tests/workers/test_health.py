"""A worker's health and numbers over HTTP on loopback: asked as a probe and as Prometheus would ask."""

import asyncio
import json
import os
import re
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from tests.workers.test_worker_limits import told
from tests.workers.test_workers import Waiting, until, working

import program
from postgres_server import PostgresServer
from treadle import Agent, Budget, ConfigurationError, open_journal, open_session, tool
from treadle.cli.input.commands import WorkerOptions
from treadle.cli.input.parser import parse
from treadle.journals.postgres import open_postgres
from treadle.testing import FakeClock, ScriptedModel, call, text
from treadle.tools import Tool
from treadle.workers import Worker, result, submit
from treadle.workers.health import METRICS, Metrics, Queue

pytestmark = pytest.mark.row("W14")


async def ask(worker: Worker, path: str, host: str = "") -> tuple[int, str]:
    """Ask as any program on this machine would."""

    def asked() -> tuple[int, str]:
        request = urllib.request.Request(worker.health_address + path, headers={"Host": host} if host else {})
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    return await asyncio.to_thread(asked)


async def numbers(worker: Worker) -> dict[str, float]:
    status, body = await ask(worker, "/metrics")
    assert status == 200
    return read_prometheus(body)


def read_prometheus(body: str) -> dict[str, float]:
    """Read the text format as strictly as Prometheus: each sample below the HELP and TYPE of its family, no label set twice."""
    found: dict[str, float] = {}
    family = ""
    assert body.endswith("\n")
    for line in body.splitlines():
        if line.startswith("# "):
            family = line.split()[2]
            continue
        matched = re.fullmatch(r'(\w+)(\{(?:\w+="(?:[^"\\\n]|\\[\\n"])*",?)*\})? (\S+)', line)
        assert matched, line
        assert matched[1] == family
        key = matched[1] + (matched[2] or "")
        assert key not in found
        found[key] = float(matched[3])
    return found


def paying(*turns: Any, tools: tuple[Tool, ...] = ()) -> Callable[[], Agent]:
    return lambda: Agent(ScriptedModel(list(turns)), tools=tools)


async def ready(worker: Worker) -> None:
    async def is_ready() -> bool:
        return bool(worker.health_address) and (await ask(worker, "/health"))[0] == 200

    await until(is_ready)


async def test_runs_calls_and_tokens_are_counted_by_tenant_and_agent(address: str) -> None:
    @tool(effect="read")
    async def look() -> str:
        """Look."""
        return "seen"

    agents = {"clerk": paying(call("look"), text("done"), call("nothing_like_it"), text("done"), tools=(look,))}
    async with working(address, agents, health_port=0, concurrency=1) as worker:
        await ready(worker)
        await result(address, await submit(address, "clerk", "One", tenant='a"c\\me\n'), timeout=60)
        await result(address, await submit(address, "clerk", "Two"), timeout=60)
        counted = await numbers(worker)
    whose = r'tenant="a\"c\\me\n",agent="clerk"'
    assert counted[f'treadle_runs_total{{{whose},status="completed",reason="completed"}}'] == 1
    assert counted[f'treadle_tool_calls_total{{{whose},tool="look",status="ok"}}'] == 1
    assert counted['treadle_tool_calls_total{tenant="",agent="clerk",tool="",status="unknown_tool"}'] == 1
    requests = {key: value for key, value in counted.items() if key.startswith("treadle_model_requests_total")}
    assert sum(requests.values()) == 4
    assert all('outcome="ok"' in key and 'model="' in key for key in requests)
    assert any(key.startswith("treadle_tokens_total") and 'kind="input"' in key for key in counted)
    assert counted["treadle_worker_ready"] == 1


@pytest.mark.parametrize("address", ["sqlite", "postgres"], indirect=True)
async def test_what_waits_is_told_by_tenant_with_the_age_of_the_oldest(address: str) -> None:
    for number in range(3):
        await submit(address, "nobody", f"Task {number}", tenant="acme")
    await submit(address, "nobody", "Later", at=4_000_000_000.0)
    async with working(address, health_port=0) as worker:
        await ready(worker)
        counted = await numbers(worker)
    assert counted['treadle_queue_tasks{tenant="acme"}'] == 3
    assert 'treadle_queue_tasks{tenant=""}' not in counted
    assert 0 <= counted['treadle_queue_oldest_seconds{tenant="acme"}'] < 120
    assert counted["treadle_queue_seen"] == 1


async def test_health_says_what_the_worker_does(address: str) -> None:
    waiting = Waiting()
    async with working(address, {"clerk": waiting}, health_port=0, name="w1") as worker:
        await ready(worker)
        await submit(address, "clerk", "Wait for it")
        await waiting.begun.wait()
        status, body = await ask(worker, "/health")
        assert (status, json.loads(body)) == (200, {"status": "ready", "worker": "w1", "sessions": 1, "done": 0})
        worker.stop()
        status, body = await ask(worker, "/health")
        assert (status, json.loads(body)["status"]) == (503, "draining")
        assert (await ask(worker, "/live"))[0] == 200
        waiting.go_on.set()
    assert await told(address) == ()


async def test_a_run_that_another_process_left_is_counted_as_taken_over_and_a_new_one_is_not(address: str) -> None:
    waiting = Waiting()
    first = asyncio.create_task(Worker(address, {"clerk": waiting}).run())
    session_id = await submit(address, "clerk", "Wait for it", tenant="acme")
    await waiting.begun.wait()
    first.cancel()
    await asyncio.wait({first})
    waiting.go_on.set()
    async with working(address, {"clerk": waiting}, health_port=0) as worker:
        await ready(worker)
        await result(address, session_id, timeout=60)
        await result(address, await submit(address, "clerk", "Something new"), timeout=60)
        counted = await numbers(worker)
    takeovers = {key: value for key, value in counted.items() if key.startswith("treadle_takeovers_total")}
    assert takeovers == {'treadle_takeovers_total{tenant="acme",agent="clerk"}': 1}


async def test_a_worker_whose_database_is_away_says_so_lives_on_and_is_ready_again(
    postgres: PostgresServer, postgres_url: str
) -> None:
    async def is_away() -> bool:
        status, body = await ask(worker, "/health")
        return (status, json.loads(body)["status"]) == (503, "waiting_for_journal")

    journal = await open_postgres(postgres_url, lease_seconds=1.0, patience_seconds=0.1, busy_seconds=0.5)
    async with working(journal, {"clerk": paying(text("done"))}, health_port=0) as worker:
        await ready(worker)
        await asyncio.to_thread(postgres.crash)
        try:
            await until(is_away)
            assert (await ask(worker, "/live"))[0] == 200
            assert (await numbers(worker))["treadle_queue_seen"] == 0
        finally:
            await asyncio.to_thread(postgres.restart)
        await ready(worker)
        done = await result(postgres_url, await submit(postgres_url, "clerk", "Go on"), timeout=60)
    await journal.close()
    assert done.completed


async def test_a_taken_port_is_one_clear_sentence(tmp_path: Path) -> None:
    async with working(tmp_path / "a.db", health_port=0) as worker:
        await ready(worker)
        port = int(worker.health_address.rpartition(":")[2])
        with pytest.raises(ConfigurationError, match=f"Port {port} of 127.0.0.1 is taken. Name another one"):
            await Worker(tmp_path / "b.db", {"clerk": paying(text("done"))}, health_port=port).run()


@pytest.mark.parametrize("port", [-1, 65_536, "80", True, 1.5])
def test_an_invalid_port_is_refused(port: Any) -> None:
    with pytest.raises(ConfigurationError, match="health_port"):
        Worker("agent.db", {"clerk": paying()}, health_port=port)


@pytest.mark.row("AT-WEB")
async def test_a_web_page_with_a_name_for_this_machine_reads_nothing(tmp_path: Path) -> None:
    async with working(tmp_path / "a.db", health_port=0) as worker:
        await ready(worker)
        for path in ("/metrics", "/health", "/live", "/"):
            assert (await ask(worker, path, host="rebound.example:80"))[0] == 403
            assert (await ask(worker, path, host="localhost:1"))[0] == 200
        assert (await ask(worker, "/elsewhere"))[0] == 404


async def test_labels_that_never_end_are_counted_together(tmp_path: Path) -> None:
    from treadle.workers.health import MOST_SERIES, Metrics

    metrics = Metrics()
    for number in range(MOST_SERIES + 50):
        metrics.add("treadle_takeovers_total", tenant=f"t{number}", agent="a")
    counted = read_prometheus(metrics.text([]))
    assert len(counted) == MOST_SERIES + 1
    assert counted['treadle_takeovers_total{tenant="(other)",agent="(other)"}'] == 50


def test_the_command_answers_on_its_port_and_logs_with_session_and_run(tmp_path: Path) -> None:
    journal = tmp_path / "agent.db"
    environment = {**os.environ, "TREADLE_HOME": str(tmp_path)}
    (tmp_path / "agents.py").write_text(_AGENTS)
    words = ["worker", "--journal", str(journal), "--agents", str(tmp_path / "agents.py"), "--health", "0"]
    words += ["--log-format", "json", "--name", "w7"]
    nowhere = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
    worker = program.start(words, folder=tmp_path, environment=environment, **nowhere)
    assert worker.stderr is not None
    rows: list[dict[str, Any]] = []
    try:
        while not any(" answers at " in row["message"] for row in rows):
            rows.append(json.loads(worker.stderr.readline()))
        address = re.search(r"http://127\.0\.0\.1:\d+", rows[-1]["message"])
        assert address
        session_id = asyncio.run(submit(journal, "clerk", "Look", tenant="acme"))
        asyncio.run(result(journal, session_id, timeout=60))
        with urllib.request.urlopen(address[0] + "/metrics", timeout=60) as answer:
            assert 'treadle_runs_total{tenant="acme",agent="clerk",status="completed"' in answer.read().decode()
        worker.send_signal(signal.SIGTERM)
        rows += [json.loads(line) for line in worker.stderr]
        assert worker.wait(60) == 0
    finally:
        worker.kill()
        worker.wait()
        worker.stderr.close()
    assert {row["worker"] for row in rows} == {"w7"}
    (told,) = [row for row in rows if row["message"] == "Looking as [redacted]"]
    assert (told["session_id"], told["tenant"], told["agent"], told["level"]) == (
        session_id,
        "acme",
        "clerk",
        "warning",
    )
    assert told["run_id"]
    (ended,) = [row for row in rows if "run" in row]
    assert (ended["level"], ended["session_id"], ended["run_id"]) == ("info", session_id, told["run_id"])
    assert {**ended["run"], "seconds": 0, "tokens": 0} == {
        "status": "completed",
        "reason": "completed",
        "steps": 2,
        "calls": 1,
        "cost": "0",
        "seconds": 0,
        "tokens": 0,
    }


_AGENTS = '''
import logging
from treadle import Agent, tool
from treadle.testing import FakeClock, ScriptedModel, call, text

@tool(effect="read")
async def look() -> str:
    """Look."""
    logging.getLogger("shop").warning("Looking as sk-live-51H8abcdefghijklmnopqrstuv")
    return "seen"

agent = Agent(ScriptedModel([call("look"), text("done")]), tools=[look], name="clerk")
'''


@pytest.mark.parametrize("request_line", ["GET /" + "a" * 100_000, "GET /live HTTP/1.1\r\nX: " + "a" * 100_000])
async def test_a_request_that_is_too_long_is_refused_without_a_traceback(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, request_line: str
) -> None:
    async with working(str(tmp_path / "agent.db"), {"clerk": paying(text("done"))}, health_port=0) as worker:
        await ready(worker)
        reader, writer = await asyncio.open_connection("127.0.0.1", int(worker.health_address.rpartition(":")[2]))
        writer.write(f"{request_line} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        assert b" 400 " in await reader.readline()
        writer.close()
        assert (await ask(worker, "/live"))[0] == 200
    assert not [record for record in caplog.records if record.exc_info]


async def test_a_session_that_a_drain_hands_over_is_no_error(tmp_path: Path) -> None:
    address, waiting = str(tmp_path / "agent.db"), Waiting()
    async with working(address, {"clerk": waiting}, drain_seconds=0) as worker:
        await submit(address, "clerk", "Look")
        await waiting.begun.wait()
    assert "treadle_errors_total{" not in worker._metrics.text([])  # its server has ended with it


# --- What operators are given to watch with.

OPERATIONS = Path(__file__).parents[2] / "docs" / "operations"


def documented() -> dict[str, set[str]]:
    """Return the labels of each metric that the page lists."""
    page = (OPERATIONS.parent / "run" / "operating-workers.md").read_text()
    rows = re.findall(r"^\| (`treadle_[^|]*) \| ([^|]*) ?\|", page, re.MULTILINE)
    return {
        name: {label.strip() for label in labels.split(",") if label.strip()}
        for names, labels in rows
        for name in re.findall(r"treadle_\w+", names)
    }


def asked() -> dict[str, str]:
    """Return what the alert rules and the dashboard ask for, by their titles."""
    rules = yaml.safe_load((OPERATIONS / "alerts.yml").read_text())["groups"][0]["rules"]
    panels = json.loads((OPERATIONS / "dashboard.json").read_text())["panels"]
    found = {rule["alert"]: rule["expr"] for rule in rules}
    found |= {panel["title"]: target["expr"] for panel in panels for target in panel["targets"]}
    assert len(found) == len(rules) + len(panels)
    return found


def test_the_page_lists_every_metric_and_no_other():
    assert documented().keys() == METRICS


def test_every_metric_names_its_unit():
    units = (
        "_total",
        "_seconds",
        "_tasks",
        "_open",
        "_running",
        "_ready",
        "_seen",
        "_info",
        "_concurrency",
        "_waiting",
    )
    states = ("_suspended", "_set_aside", "_stranded", "_expiring")
    assert all(name.endswith((*units, *states)) for name in METRICS)


@pytest.mark.parametrize("title", sorted(asked()))
def test_an_alert_or_panel_asks_for_metrics_and_labels_that_exist(title: str) -> None:
    expression = asked()[title]
    names = set(re.findall(r"treadle_\w+", expression))
    grouped = {label.strip() for group in re.findall(r"by \(([^)]*)\)", expression) for label in group.split(",")}
    matched = set(re.findall(r"[{,]\s*(\w+)!?=", expression))
    assert names
    assert names <= METRICS
    for name in names:
        assert grouped | matched <= documented()[name] | {"outcome", "status"}


def test_alerts_say_what_is_wrong_and_what_to_do():
    rules = yaml.safe_load((OPERATIONS / "alerts.yml").read_text())["groups"][0]["rules"]
    assert all(rule["annotations"]["summary"] and rule["annotations"]["action"] for rule in rules)
    for rule in rules:
        for label in re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]):
            assert re.search(rf"by \([^)]*\b{label}\b", rule["expr"])


def test_the_pods_commands_are_valid_and_their_probes_and_ports_are_served() -> None:
    documents = list(yaml.safe_load_all((OPERATIONS / "kubernetes.yml").read_text()))
    pods = {
        one["metadata"]["name"]: one["spec"]["template"]["spec"] for one in documents if one["kind"] == "Deployment"
    }
    parsed = {name: parse(pod["containers"][0]["args"][1:]) for name, pod in pods.items()}
    worker, (container,) = parsed["treadle-worker"], pods["treadle-worker"]["containers"]
    assert isinstance(worker, WorkerOptions)
    assert (worker.health_host, worker.log_format) == ("0.0.0.0", "json")
    assert worker.health_port == container["ports"][0]["containerPort"]
    assert [container[probe]["httpGet"]["path"] for probe in ("livenessProbe", "readinessProbe")] == [
        "/live",
        "/health",
    ]
    assert pods["treadle-worker"]["terminationGracePeriodSeconds"] > worker.drain_seconds
    (policy,) = [one for one in documents if one["kind"] == "NetworkPolicy"]
    assert policy["spec"]["ingress"][0]["ports"][0]["port"] == worker.health_port


async def test_an_open_port_answers_under_any_name_and_warns_of_what_it_shows(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    options = {"health_port": 0, "health_host": "0.0.0.0"}
    async with working(tmp_path / "a.db", {"clerk": paying(text("done"))}, **options) as worker:
        await until(lambda: _is_ready_at(worker, "pod-7.workers:9464"))
        assert (await ask(worker, "/metrics", host="pod-7.workers:9464"))[0] == 200
    (warned,) = [one.getMessage() for one in caplog.records if "Whoever reaches" in one.getMessage()]
    assert "names of tenants, agents, models and tools, and what they cost" in warned


async def _is_ready_at(worker: Worker, host: str) -> bool:
    return bool(worker.health_address) and (await ask(worker, "/health", host=host))[0] == 200


def test_a_host_without_a_port_is_refused(tmp_path: Path) -> None:
    (tmp_path / "agents.py").write_text(_AGENTS)
    words = ["worker", "--journal", "agent.db", "--agents", "agents.py", "--health-host", "0.0.0.0"]
    said = program.run(words, folder=tmp_path, environment={**os.environ, "TREADLE_HOME": str(tmp_path)}, given=b"")
    assert (said.returncode, b"--health-host is the address of --health PORT" in said.stderr) == (2, True)


@pytest.mark.parametrize("address", ["sqlite"], indirect=True)
async def test_all_numbers_of_a_worker_have_the_labels_of_the_page_for_a_strict_parser(address: str) -> None:
    agents = {"clerk": lambda: Agent(ScriptedModel([call("gone")] * 3), budget=Budget(max_model_turns=2))}
    async with working(address, agents, health_port=0) as worker:
        await ready(worker)
        await result(address, await submit(address, "clerk", "One", tenant="acme"), timeout=60)
        _, body = await ask(worker, "/metrics")
    page, found = documented(), {}
    for family in text_string_to_metric_families(body):
        for sample in family.samples:
            assert set(sample.labels) == page[sample.name]
            found[sample.name] = sample.value
    assert found["treadle_tasks_started_total"] == 1
    assert found["treadle_task_wait_seconds_total"] >= 0
    assert found["treadle_budget_refusals_total"] == 1
    assert 0 <= found["treadle_journal_answer_seconds"] < 60


async def test_what_waits_for_a_person_is_counted_by_tenant_and_read_by_a_strict_parser(tmp_path: Path) -> None:
    @tool(effect="unsafe")
    async def pay(account: str) -> str:
        """Pay an account."""
        return "paid"

    async with open_journal(tmp_path / "agent.db") as journal:
        for tenant in ("acme", "acme", 'gl"obex'):
            async with open_session(journal) as session:
                await session.change(metadata={"tenant": tenant})
                turns = [call("pay", account="DE02"), text("Paid.")]
                await Agent(ScriptedModel(turns), tools=[pay], name="clerk").run("Pay", session=session)
        for by in ("ada", "worker"):
            async with open_session(journal) as session:
                await session.change(status="suspended", by=by)
        queue = Queue(journal, FakeClock(now=session.clock.now() + 100))
        body = Metrics().text(await queue.samples())

    families = {family.name: family for family in text_string_to_metric_families(body)}
    open_ = {sample.labels["tenant"]: sample.value for sample in families["treadle_approvals_open"].samples}
    assert open_ == {"acme": 2, 'gl"obex': 1}
    assert all(sample.value >= 99 for sample in families["treadle_approvals_oldest_seconds"].samples)
    assert families["treadle_sessions_suspended"].samples[0].value == 2
    assert families["treadle_sessions_set_aside"].samples[0].value == 1
    assert families["treadle_doubts_open"].samples[0].value == 0
