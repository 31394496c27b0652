"""Commands: what each takes on the command line, one struct a command. Reads nothing and acts on nothing.

The docstring of a command is its help. Its code is loaded when it is called, since help needs none of it.
"""

import argparse
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Literal, TypeAlias, get_args

import msgspec

from treadle.cli.input.options import (
    LISTING,
    OUTPUT,
    PLACES,
    RULES,
    Options,
    RunningOptions,
    argument,
    flag,
    number_reader,
    read_count,
    read_instant,
    read_named,
    read_port,
    read_seconds,
    read_text,
    repeated,
    switch,
    ungrouped,
    whole_reader,
)

__all__ = [
    "COMMANDS",
    "AcpOptions",
    "AnswerOptions",
    "ApprovalsOptions",
    "ApproveOptions",
    "BatchOptions",
    "BudgetsOptions",
    "BulkOptions",
    "ChatOptions",
    "CheckOptions",
    "CompletionOptions",
    "ConfigOptions",
    "ConformanceOptions",
    "DoctorOptions",
    "DoubtsOptions",
    "ExportOptions",
    "ForkOptions",
    "GoalOptions",
    "ImportOptions",
    "ListOptions",
    "MarkOptions",
    "McpOptions",
    "MockOptions",
    "ModelsOptions",
    "MoveOptions",
    "NamedOptions",
    "NotifyOptions",
    "PermissionsOptions",
    "ReplayOptions",
    "ResolveOptions",
    "ResumeOptions",
    "RetryOptions",
    "RewindOptions",
    "RmOptions",
    "RunOptions",
    "ShowOptions",
    "StatusOptions",
    "SubmitOptions",
    "TaskOptions",
    "ToTestOptions",
    "ToolsOptions",
    "TrustOptions",
    "UsageOptions",
    "WaitingOptions",
    "WatchOptions",
    "WebOptions",
    "WorkerOptions",
    "WorkersOptions",
    "has_conditions",
]

_SESSION = "the session, or a prefix of its id"
_LAST = "the most recently changed session"
_ANSWERS = "name to record for the answer (default: your login)"
_DECIDES = "name to record for the decision (default: your login)"


_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def _since(text: str) -> float:
    """Return a time in seconds since 1970: one without a zone is of this machine, and an age counts from now."""
    for read in (lambda age: time.time() - _age(age), read_instant):
        with suppress(argparse.ArgumentTypeError):
            return read(text)
    raise argparse.ArgumentTypeError(
        f"a time such as 2026-11-30T18:00, or an age such as 90m, 12h or 7d; got {text!r:.60}"
    )


def _age(text: str) -> float:
    """Return an age in seconds."""
    if (age := re.fullmatch(r"(\d{1,9})([smhd])", text, re.ASCII)) is None:
        raise argparse.ArgumentTypeError(f"an age such as 90m, 12h or 7d; got {text!r:.60}")
    return int(age[1]) * _UNITS[age[2]]


def _days(text: str) -> float:
    """Return an age in seconds, whose unit is days where there is none."""
    if re.fullmatch(r"\d{1,7}(\.\d{1,6})?", text, re.ASCII):
        return float(text) * _UNITS["d"]
    return _age(text)


class NamedOptions(Options, frozen=True, kw_only=True):
    """One session or call, by its id or as the last one."""

    id: str | None = argument("ID", _SESSION)
    is_last: bool = switch("--last", _LAST)


_Status: TypeAlias = Literal["active", "queued", "running", "paused", "stopped", "failed", "completed", "suspended"]
_TENANT = flag("--tenant NAME", "all of this tenant; '' for those without one")
_AGENT = flag("--agent NAME", "all of this agent")
_STATUS = flag("--status --state STATUS", "all in this state")
_OLDER_THAN = flag("--older-than AGE", "all that have waited, or not changed, for so long: 90m, 12h or 7d", _age)
_LIMIT = flag("--limit N", "with conditions: at most N, the oldest first (default: 500)", read_count, default=500)
_PREVIEW = switch("--dry-run", "with conditions: only list what it would be")
_SURE = switch("--yes", "with conditions: do it without a question")


class BulkOptions(NamedOptions, frozen=True, kw_only=True):
    """One session or call, or all that fulfil some conditions."""

    tenant: str | None = _TENANT
    agent: str | None = _AGENT
    older_than: float | None = _OLDER_THAN
    limit: int = _LIMIT
    is_preview: bool = _PREVIEW
    is_sure: bool = _SURE


def has_conditions(options: Options) -> bool:
    """Whether a command is about all that fulfil some conditions."""
    names = ("tenant", "agent", "older_than", "status", "tool")
    return any(getattr(options, name, None) is not None for name in names)


# --- Runs: what begins one, or continues it.


class TaskOptions(RunningOptions, frozen=True, kw_only=True):
    """A task for a session."""

    task: str | None = argument("task", "the task (default: what is piped in); piped input is appended to it")
    id: str | None = flag("--session ID", "continue this session, or create it if it does not exist")
    attached: tuple[str, ...] = repeated(
        "-a --attach FILE", "attach a file to the task: text, image, PDF or audio; repeatable"
    )
    is_last: bool = switch("-c --continue --last", "continue the most recently changed session of this folder")


class ChatOptions(TaskOptions, frozen=True, kw_only=True):
    """Chat with a model in this terminal; `treadle` alone does the same."""

    command = "chat"
    code = "chat.chat"
    task: str | None = argument("task", "the first message")
    accepts_change: bool = switch(
        "--accept-change", "continue a run that a program's own agent started, without that agent"
    )


class RunOptions(TaskOptions, frozen=True, kw_only=True):
    """Run one task."""

    command = "run"
    code = "run.run"
    is_single_turn: bool = switch(
        "--single-turn", "allow tool calls in one response only: the next response must be the answer"
    )


class GoalOptions(RunningOptions, frozen=True, kw_only=True):
    """Work on the goal in a file until its validation passes."""

    command = "goal"
    group = "run"
    code = "run.goal"
    task: str | None = argument("FILE", "the goal, as TOML")
    id: str | None = flag("--session ID", "the session to work in (default: derived from the goal)")


class ResumeOptions(RunningOptions, frozen=True, kw_only=True):
    """Resume a run that was paused, stopped or interrupted; or all that fulfil some conditions, one after the other."""

    command = "resume"
    code = "run.resume"
    id: str | None = argument("ID", "the session")
    is_last: bool = switch("--last", _LAST)
    accepts_change: bool = switch(
        "--accept-change", "continue a run that a program's own agent started, without that agent"
    )
    tenant: str | None = _TENANT
    agent: str | None = _AGENT
    status: _Status | None = _STATUS
    older_than: float | None = _OLDER_THAN
    limit: int = _LIMIT
    is_preview: bool = _PREVIEW
    is_sure: bool = _SURE


class DemoOptions(Options, frozen=True, kw_only=True):
    """Run a demonstration from start to end: no key, no network."""

    command = "demo"
    group = "run"
    code = "demo.demo"
    shared = ungrouped("profile", "limits", *PLACES, *OUTPUT)


class CancelOptions(BulkOptions, frozen=True, kw_only=True):
    """Cancel a run that is active, paused or interrupted, or a task that waits; or all that fulfil some conditions."""

    command = "cancel"
    group = "sessions"
    code = "run.cancel"
    status: _Status | None = _STATUS
    by: str | None = flag("--by NAME", _DECIDES, read_text)


class ReplayOptions(NamedOptions, frozen=True, kw_only=True):
    """Replay a recorded session as it happened, without running anything."""

    command = "replay"
    group = "sessions"
    code = "replay.replay"
    id: str | None = argument("ID", "the session, or a file written by `treadle sessions export`")
    speed: float | None = flag(
        "--speed N", "replay N times as fast (default: 1 at a terminal, otherwise all at once)", read_seconds
    )


# --- What waits for a person.


class WaitingOptions(Options, frozen=True, kw_only=True):
    """What waits for a person, or a part of it."""

    tenant: str | None = flag("--tenant NAME", "only of this tenant; '' for those without one")
    agent: str | None = flag("--agent NAME", "only of this agent")
    tool: str | None = flag("--tool NAME", "only calls of this tool")
    older_than: float | None = flag("--older-than AGE", "only what has waited for so long: 90m, 12h or 7d", _age)


class ApprovalsOptions(WaitingOptions, frozen=True, kw_only=True):
    """List the calls that are waiting for approval, or who answered what and when."""

    command = "approvals"
    code = "waiting.approvals"
    is_answered: bool = switch("--answered", "list who answered what and when, over all sessions, the latest first")
    since: float | None = flag("--since TIME", "with --answered: only since 2026-11-30, or an age such as 30d", _since)
    as_csv: bool = switch("--csv", "with --answered: as a table for spreadsheets")


class ApproveOptions(BulkOptions, frozen=True, kw_only=True):
    """Allow or deny a call that is waiting for approval, or all that fulfil some conditions."""

    command = "approve"
    group = "approvals"
    code = "waiting.approve"
    id: str | None = argument("ID", "the approval, as `treadle approvals` lists it, or a prefix of its id")
    is_last: bool = switch("--last", "the newest approval")
    tool: str | None = flag("--tool NAME", "all calls of this tool")
    is_denied: bool = switch("--deny", "deny the call")
    scope: Literal["once", "session", "rule"] = flag(
        "--scope",
        "what to allow: only this call (once, the default), or calls that match the suggested rules, in this session or in this "
        "folder (rule)",
        default="once",
    )
    arguments: str | None = flag("--arguments JSON", "run the call with these arguments instead: one JSON object")
    reason: str = flag("--reason TEXT", "the reason; the model reads it", read_text, default="")
    by: str | None = flag("--by NAME", _ANSWERS, read_text)


class AnswerOptions(NamedOptions, frozen=True, kw_only=True):
    """Answer the question that a paused run asks."""

    command = "answer"
    group = "approvals"
    code = "waiting.answer"
    answer: str | None = argument("ANSWER", "the answer: text, or a JSON object for a form")
    by: str | None = flag("--by NAME", _ANSWERS, read_text)


class DoubtsOptions(WaitingOptions, frozen=True, kw_only=True):
    """List the calls whose outcome is unknown."""

    command = "doubts"
    group = "approvals"
    code = "waiting.doubts"


class ResolveOptions(BulkOptions, frozen=True, kw_only=True):
    """Record the outcome of a call in doubt, or of all that fulfil some conditions."""

    command = "resolve"
    group = "approvals"
    code = "waiting.resolve"
    id: str | None = argument("ID", "the call or its key, as `treadle doubts` lists it, or a prefix of its id")
    is_last: bool = switch("--last", "the newest call in doubt")
    tool: str | None = flag("--tool NAME", "all calls of this tool")
    done: str | None = flag("--done JSON", "the call succeeded with this result, as JSON; null for none")
    is_not_done: bool = switch("--not-done", "the call did not happen; it may run again")
    is_unknown: bool = switch("--unknown", "the outcome stays unknown; stop listing the call")
    session: str | None = flag("--session ID", "the session, if the id is in doubt in more than one")
    reason: str = flag("--reason TEXT", "how you know; recorded with the outcome", read_text, default="")
    by: str | None = flag("--by NAME", _DECIDES, read_text)


# --- Workers.


class SubmitOptions(Options, frozen=True, kw_only=True):
    """Queue a task for a worker that has its agent."""

    command = "submit"
    group = "worker"
    code = "workers.submit"
    shared = ungrouped("deadline", "limits", *LISTING)
    task: str | None = argument("task", "the task; - reads it from standard input")
    agent: str | None = flag("--agent NAME", "the agent to run it with (default: `default`)")
    tenant: str | None = flag("--tenant NAME", "the tenant it belongs to; tenants take turns")
    priority: int = flag(
        "--priority N",
        "among one tenant's tasks, higher starts first (default: 0)",
        whole_reader(-999_999_999, 999_999_999, "a priority is a whole number such as 5"),
        default=0,
    )
    begins_at: float | None = flag("--at TIME", "earliest time to start, such as 2026-11-30T18:00", read_instant)
    key: str | None = flag("--key KEY", "idempotency key: submitting the same key twice creates one session")
    by: str | None = flag("--by NAME", "name to record for the submission (default: your login)", read_text)
    metadata: dict[str, Any] = flag(
        "--metadata NAME=VALUE",
        "metadata of its session; the value is JSON or plain text; repeatable",
        read_named,
        default={},
    )
    is_waiting: bool = switch("--wait", "wait until it ends, and print the answer")


class RetryOptions(BulkOptions, frozen=True, kw_only=True):
    """Submit a task again that failed, stopped or was cancelled; or all that fulfil some conditions.

    Without --key it is the same task: it runs again in its session, and the model reads what was done there. With --key it is
    another task: it begins from nothing in a session of its own.
    """

    command = "retry"
    group = "worker"
    code = "workers.retry"
    shared = ungrouped("deadline", *LISTING)
    status: _Status | None = _STATUS
    key: str | None = flag("--key KEY", "a new idempotency key: begin from nothing")
    may_repeat: bool = switch("--may-repeat", "with --key: begin also if that may do again what was done")
    by: str | None = flag("--by NAME", _DECIDES, read_text)


class WorkerOptions(RunningOptions, frozen=True, kw_only=True):
    """Run submitted tasks until a signal stops it."""

    command = "worker"
    code = "workers.worker"
    agents: tuple[str, ...] = repeated(
        "--agents WHAT",
        "agents to run: FILE.py or module:attr with agents, or functions that make them, by name; repeatable "
        "(default: one agent named `default`, with the model, tools and rules given here)",
    )
    name: str | None = flag("--name NAME", "the worker's name, unique in its journal (default: machine and process)")
    concurrency: int = flag(
        "--concurrency N",
        "how many sessions to run in parallel (default: 4)",
        whole_reader(1, 99999, "a number from 1 to 99999"),
        default=4,
    )
    tenants: tuple[str, ...] = repeated("--tenant NAME", "take only tasks of this tenant; repeatable")
    accepts_change: bool = switch(
        "--accept-change", "continue runs whose agent has changed since they began, with the agent as it is now"
    )
    worker_limits: tuple[str, ...] = repeated(
        "--limit WORDS",
        'a limit shared by all workers that use its name: "NAME sessions=20 requests=500 tokens=200000 each=tenant", requests and '
        "tokens per minute; tenants=A,B, agents= and models= restrict what it applies to; repeatable",
    )
    drain_seconds: float = flag(
        "--drain-seconds N",
        "seconds that runs may take to finish after SIGTERM or Ctrl-C, before other workers take them over (default: 30)",
        number_reader("seconds are a number such as 30"),
        default=30.0,
    )
    queue: Literal["journal", "pgqueuer"] = flag(
        "--queue",
        "what distributes the sessions: the journal itself, or pgqueuer in its PostgreSQL (default: journal)",
        default="journal",
    )
    health_port: int | None = flag(
        "--health PORT", "serve /live, /health and /metrics on this port of 127.0.0.1 (0: any free port)", read_port
    )
    health_host: str | None = flag(
        "--health-host HOST",
        "another address for --health, such as 0.0.0.0 in a pod: whoever reaches it reads the names of tenants, agents and tools, "
        "and what they cost",
    )
    log_format: Literal["text", "json"] = flag(
        "--log-format",
        "format of the log on standard error: text, or one JSON object per line (default: text)",
        default="text",
    )


class BatchOptions(RunningOptions, frozen=True, kw_only=True):
    """Run many tasks, each in a session of its own; killed anywhere, the same command continues. Or compare two results."""

    command = "batch"
    group = "worker"
    code = "batch.batch"
    files: tuple[str, ...] = argument(
        "TASKS",
        "a file of tasks: a text or a JSON object with `task`, `id` and `expected` a line, or .csv with these columns; - for standard input",
        default=(),
    )
    results: str | None = flag(
        "-o --output FILE",
        "where the rows go: .jsonl; for .csv and .parquet, which are made at the end, they are also kept as .jsonl beside it. "
        "A report as .html is written beside it",
    )
    model_options: dict[str, Any] = flag(
        "--option NAME=VALUE", "set a field of each model request; repeatable", read_named, default={}
    )
    agent: str | None = flag(
        "--agent WHAT",
        "the agent: FILE.py or module:attr with one; with --workers, the name that workers have (default: one with the model, tools "
        "and rules given here)",
    )
    name: str | None = flag("--name NAME", "name of the batch in its journal (default: that of the results)")
    concurrency: int | None = flag(
        "--concurrency N",
        "how many tasks run at once (default: 8, or 1000 with --vendor-batch); fewer after a rate limit",
        whole_reader(1, 99999, "a number from 1 to 99999"),
    )
    repeat: int = flag(
        "--repeat N",
        "how often to run each task (default: 1)",
        whole_reader(1, 9999, "a number from 1 to 9999"),
        default=1,
    )
    limit: int | None = flag("--limit N", "only the first N tasks", read_count)
    sample: int | None = flag("--sample N", "only N tasks, the same ones each time", read_count)
    only_failed: bool = switch(
        "--only-failed", "only tasks whose run was stopped or failed: it continues, and its row is replaced"
    )
    score: str | None = flag(
        "--score WHAT",
        "exact or contains, which compare with `expected`, or FILE.py:function or module:function of the task and its row "
        "(default: exact)",
    )
    total_cost: float | None = flag(
        "--total-cost USD",
        "what the whole batch (all tasks of its --name, earlier ones included) may cost; a larger one continues it",
        number_reader("dollars are a number such as 5.50"),
    )
    tokens_per_minute: int | None = flag(
        "--tokens-per-minute N",
        "tokens that the batch may use a minute",
        whole_reader(1, 10**15, "a whole number above 0"),
    )
    requests_per_minute: int | None = flag(
        "--requests-per-minute N",
        "requests that the batch may make a minute",
        whole_reader(1, 10**15, "a whole number above 0"),
    )
    stops_at_error: bool = switch(
        "--stop-on-error", "begin no further task once a run has failed or raised an exception"
    )
    is_vendor_batch: bool = switch(
        "--vendor-batch",
        "for tasks of one step: send the requests as batches of OpenAI or Anthropic, at half the price, within a day",
    )
    is_comparison: bool = switch(
        "--compare", "compare two results instead: treadle batch --compare before.jsonl after.jsonl"
    )
    has_workers: bool = switch("--workers", "submit the tasks to the workers on the journal, and collect their answers")
    shared = {  # noqa: RUF012 - as in Options: it is never changed
        **{heading: names for heading, names in RunningOptions.shared.items() if heading != "limits"},
        "limits": ("on_limit", "profile", "limits"),
        "output": ("as_json", "is_quiet"),
    }


class WorkersOptions(Options, frozen=True, kw_only=True):
    """List the workers on a journal, and what each of them is running."""

    command = "workers"
    group = "worker"
    code = "workers.workers"
    has_ended: bool = switch("--all", "include workers whose process has ended")


class WebOptions(Options, frozen=True, kw_only=True):
    """Open a page in the browser on which sessions can be seen, answered and steered. It is served to this machine only."""

    command = "web"
    group = "worker"
    code = "web.web"
    port: int = flag("--port N", "the port to listen on (default 0: any free port)", read_port, default=0)
    has_no_browser: bool = switch("--no-browser", "print the link, and open no browser")
    is_read_only: bool = switch("--read-only", "let nobody answer or change anything")
    agents: tuple[str, ...] = repeated(
        "--agents WHAT",
        "agents to try on the page, and whose sessions it continues: FILE.py or module:attr, as for `worker`; repeatable",
    )
    by: str | None = flag(
        "--by NAME", "name to record for answers of the link's owner (default: your login)", read_text
    )
    tokens: str | None = flag(
        "--tokens FILE", "named tokens that let people in (default: web-tokens.json beside the configuration)"
    )
    new_token: str | None = flag("--new-token NAME", "make a token for somebody, print it once, and end")
    role: Literal["see", "answer", "operate"] = flag(
        "--role",
        "of the new token: see, answer what waits, or operate: change sessions too (default: answer)",
        default="answer",
    )
    tenants: tuple[str, ...] = repeated("--tenant NAME", "the new token shows only this tenant; repeatable")
    proxy_header: str | None = flag(
        "--proxy-header NAME",
        "believe the name that a proxy writes into this header; only if nobody reaches the page without that proxy",
    )
    hosts: tuple[str, ...] = repeated("--host NAME", "a host name under which a proxy serves the page; repeatable")


class NotifyOptions(Options, frozen=True, kw_only=True):
    """Tell a webhook or a command what waits for a person, is in doubt, was set aside or is over budget, until a signal stops it."""

    command = "notify"
    group = "worker"
    code = "web.notify"
    page: str | None = flag("--page URL", "the address of the web page: each notice has the link to its request there")
    webhook: str | None = flag(
        "--webhook URL", "post JSON to this address, signed with TREADLE_WEBHOOK_SECRET (default: TREADLE_WEBHOOK_URL)"
    )
    line: str | None = flag(
        "--command LINE", "run this command instead, with the text as its last argument and the JSON as its input"
    )


# --- What is set up here.


class BudgetsOptions(NamedOptions, frozen=True, kw_only=True):
    """Show the ten budgets, and how much of each a session has used."""

    command = "budgets"
    group = "sessions"
    code = "showing.budgets"
    shared = ungrouped("profile", "limits", *PLACES, "as_json")
    id: str | None = argument("SESSION", "show what the last run of this session has used")


class PermissionsOptions(Options, frozen=True, kw_only=True):
    """List the permission rules in effect and where each comes from, or test them on a call."""

    command = "permissions"
    group = "config"
    code = "showing.permissions"
    shared = ungrouped(*RULES, "tools", "profile", "folder", "config", "as_json")
    shows_modes: bool = switch("--modes", "show what each mode does here: what runs, asks, or is denied")
    name: str | None = argument("TOOL", "show what would happen to a call of this tool")
    arguments: str | None = argument("ARGUMENTS", "arguments as one JSON object, or the value of the first parameter")


class ToolsOptions(Options, frozen=True, kw_only=True):
    """List the tools, or check their contracts."""

    command = "tools"
    group = "config"
    code = "tools.tools"
    shared = ungrouped("tools", "profile", "folder", "config", "as_json")
    action: Literal["check"] | None = argument("action", "check: check every tool against its contract")
    recorded: tuple[str, ...] = repeated(
        "--examples FILE",
        "recorded calls to check against the contracts, as JSON lines of tool, arguments and result; repeatable",
    )
    runs_again: bool = switch("--run", "rerun the examples that are marked as deterministic, and compare the results")


class DescribeOptions(RunningOptions, frozen=True, kw_only=True):
    """Show the agent that these options and the configuration define."""

    command = "describe"
    group = "config"
    code = "showing.describe"


class ConfigOptions(RunningOptions, frozen=True, kw_only=True):
    """Show the configuration and where each value comes from, or set a value in your own file."""

    command = "config"
    code = "showing.config"
    action: Literal["show", "schema", "set"] = argument(
        "action",
        "show: every value and where it comes from; schema: the JSON Schema of the file; set: KEY VALUE in your own file",
        default="show",
    )
    key: str | None = argument("KEY", "with set: the name, such as model or budget.max_total_cost")
    value: str | None = argument("VALUE", "with set: the value")
    shows_origin: bool = flag("--origin", "show where each value comes from (always on)", default=True)


class ModelsOptions(Options, frozen=True, kw_only=True):
    """List known models, or the models a server offers: context windows, limits, prices. `probe` asks a server of your own."""

    command = "models"
    code = "models.models"
    shared = ungrouped("as_json")
    name: str | None = argument("NAME", "a model or a vendor (default: all); or `probe`")
    model: str | None = argument(
        "MODEL", "with probe: find out what this model can do, such as llamacpp:NAME, and keep it"
    )
    is_offered: bool = switch("--offered", "ask the vendor's server for its models")
    base_url: str | None = flag("--base-url URL", "with --offered or probe: the server's address")


class TrustOptions(Options, frozen=True, kw_only=True):
    """List trusted folders, or trust a folder so that its own rules and hooks apply."""

    command = "trust"
    group = "config"
    code = "trust.trust"
    shared = ungrouped("as_json")
    action: Literal["list", "approve", "revoke"] = argument("action", "what to do (default: list)", default="list")
    name: str = argument("FOLDER", "the folder (default: this one)", default=".")


class DoctorOptions(Options, frozen=True, kw_only=True):
    """Check this machine, and name the next step."""

    command = "doctor"
    code = "doctor.doctor"
    shared = ungrouped(*PLACES, "as_json")


class CompletionOptions(Options, frozen=True, kw_only=True):
    """Print a shell completion script for this program."""

    command = "completion"
    group = "config"
    code = "completion.completion"
    shared = ungrouped("folder", "config", "journal")
    action: Literal["bash", "zsh", "fish", "words"] = argument(
        "action", "the shell; `words` is used by the completion scripts", default=msgspec.NODEFAULT
    )
    line: str | None = argument("LINE", "with `words`: the line to complete")


# --- Protocols: what serves an agent, and servers whose tools are used.


class McpOptions(RunningOptions, frozen=True, kw_only=True):
    """List, add, remove, approve or test MCP servers; serve an agent to an MCP client."""

    command = "mcp"
    code = "mcp.mcp"
    action: Literal["list", "add", "remove", "approve", "revoke", "test", "serve"] = argument(
        "action",
        "list servers (the default), change them, test one and list its tools, or serve an agent to an MCP client",
        default="list",
    )
    name: str | None = argument("NAME", "the server's name")
    command_line: tuple[str, ...] = argument(
        "COMMAND", "with add: the server's address, or -- and its command with arguments", default=()
    )
    variables: tuple[str, ...] = repeated(
        "-e --env NAME=VALUE",
        "with add: an environment variable of the program; ${NAME} copies it from your environment; repeatable",
    )
    headers: tuple[str, ...] = repeated(
        "--header NAME:VALUE", "with add: a header to send with each request; repeatable"
    )
    place: Literal["user", "project"] | None = flag(
        "--scope", "which file: your own (user), or the folder's .mcp.json (project)"
    )
    offer: Literal["agent", "tools", "both"] = flag(
        "--offer",
        "with serve: offer an agent that takes tasks (the default), the tools of --tools themselves, or both",
        default="agent",
    )
    description: str | None = flag(
        "--description TEXT", "with serve: what the agent is for; the client's model reads it"
    )
    http_port: int | None = flag(
        "--http PORT",
        "with serve: serve over HTTP on this port of this machine (0: any free port); clients need the token of TREADLE_MCP_TOKEN",
        read_port,
    )
    has_no_token: bool = switch(
        "--no-token", "with serve --http: accept every program on this machine, without a token"
    )
    by: str | None = flag(
        "--by NAME", "with serve: who answers approvals, for the record (default: your login)", read_text
    )


class AcpOptions(RunningOptions, frozen=True, kw_only=True):
    """Serve an agent to an editor that speaks the Agent Client Protocol, such as Zed."""

    command = "acp"
    group = "mcp"
    code = "serving.acp"
    by: str | None = flag(
        "--by NAME", "name to record for answers to permission requests (default: your login)", read_text
    )


class MockOptions(Options, frozen=True, kw_only=True):
    """Serve a script as a strict mock provider on this machine."""

    command = "mock"
    group = "mcp"
    code = "serving.mock"
    shared = ungrouped()
    script: str = argument("SCRIPT", "a JSON file with the model's turns", default=msgspec.NODEFAULT)
    port: int = flag("--port N", "the port to listen on (default 0: any free port)", read_port, default=0)
    record: str | None = flag("--record FILE", "write each request to this file as a line of JSON")


class ConformanceOptions(Options, frozen=True, kw_only=True):
    """Hold a tool loop, Treadle's or your own, against the conformance suite."""

    command = "conformance"
    group = "mcp"
    code = "conformance.conformance"
    shared = ungrouped()
    names: tuple[str, ...] = argument("GROUP", "groups or scenarios (default: all)", default=())
    is_listed: bool = switch("--list", "list the scenarios, one a line, and run nothing")
    subject: str | None = flag("--subject MODULE:ADAPTER", "the loop: an adapter in Python (default: Treadle's own)")
    program: str | None = flag("--command LINE", "the loop: a program in any language, which reads its job from a file")
    offers: str | None = flag(
        "--offers LIST", "what the loop can do, such as chat,stream,max_steps (default: what it says)"
    )
    python: str | None = flag("--python PATH", "the Python that runs the adapter (default: the one that runs Treadle)")
    dialects: tuple[Literal["chat", "responses", "anthropic", "gemini"], ...] = repeated(
        "--dialect NAME", "only this dialect of the provider; repeatable (default: all four)"
    )
    side_by_side: int = flag(
        "--side-by-side N", "scenarios that run at the same time (default: 8)", read_count, default=8
    )
    file: str | None = flag("--json FILE", "write each verdict with its evidence to this file (- for standard output)")


# --- Sessions: the list, and one struct an action.

_State: TypeAlias = Literal[
    "active",
    "queued",
    "running",
    "paused",
    "stopped",
    "completed",
    "failed",
    "suspended",
    "deleted",
    "in-doubt",
    "stranded",
]


def _point(text: str) -> int | str:
    return int(text) if re.fullmatch(r"\d{1,18}", text, re.ASCII) else text


_PAGER = switch("--no-pager", "do not page long output through PAGER")


class ListOptions(Options, frozen=True, kw_only=True):
    """List sessions, most recently changed first."""

    command = "sessions list"
    code = "sessions.list_sessions"
    shows_deleted: bool = switch("--all", "include deleted sessions")
    states: tuple[_State, ...] = repeated(
        "--status --state STATUS", f"only sessions in this state: {', '.join(get_args(_State))}; repeatable"
    )
    match: str | None = flag("--match TEXT", "only sessions whose id or task contains this text")
    tenant: str | None = flag(
        "--tenant NAME", "only sessions of this tenant (`tenant` in their metadata); '' for sessions without one"
    )
    parent: str | None = flag("--parent ID", "only forks of this session, and the sessions of its subagents")
    since: float | None = flag(
        "--since TIME",
        "only sessions changed since: 2026-11-30, 2026-11-30T18:00, or an age such as 90m, 12h or 7d",
        _since,
    )
    limit: int | None = flag("--limit N", "at most N sessions, most recently changed first", read_count)
    after: str | None = flag("--after ID", "only sessions listed after this one")
    is_unpaged: bool = _PAGER


class UsageOptions(Options, frozen=True, kw_only=True):
    """Report the tokens and the cost of all sessions, in groups."""

    command = "usage"
    group = "sessions"
    code = "usage.usage"
    groups: str = flag(
        "--by WORDS",
        "groups, separated by commas: model, day, month, agent, session, or keys of metadata (default: tenant,model,day)",
        default="tenant,model,day",
    )
    since: float | None = flag(
        "--since TIME", "only since: 2026-11-30, 2026-11-30T18:00, or an age such as 90m, 12h or 7d", _since
    )
    as_csv: bool = switch("--csv", "write comma-separated values, with a head")


class ShowOptions(NamedOptions, frozen=True, kw_only=True):
    """Show the messages and calls of one session."""

    command = "sessions show"
    code = "session_show.show"
    is_unpaged: bool = _PAGER


class ExplainOptions(ShowOptions, frozen=True, kw_only=True):
    """Report what was tried, changed, approved and failed, why it stopped, and what a rerun would do."""

    command = "sessions explain"
    code = "session_show.explain"


class WatchOptions(NamedOptions, frozen=True, kw_only=True):
    """Follow a session live, in whichever process it runs, until its run ends."""

    command = "sessions watch"
    code = "sessions.watch"
    after: int = flag("--after N", "only events after event N", read_count, default=0)


class ForkOptions(NamedOptions, frozen=True, kw_only=True):
    """Create a session that shares the history of another."""

    command = "sessions fork"
    code = "session_acts.fork"
    at: int | str | None = flag("--at POINT", "the last shared event, by number or mark (default: the end)", _point)
    step: int | None = flag("--step N", "share everything through the results of step N", read_count)
    message: int | None = flag("--message N", "share the first N messages", read_count)
    new_id: str | None = flag("--id NEW", "the new session's id (default: generated)")


class MarkOptions(NamedOptions, frozen=True, kw_only=True):
    """Name the current end of a session."""

    command = "sessions mark"
    code = "session_acts.mark"
    name: str = argument("NAME", "the name", default=msgspec.NODEFAULT)


class DiffOptions(NamedOptions, frozen=True, kw_only=True):
    """Show how a session has changed the files of its folder."""

    command = "sessions diff"
    code = "session_acts.diff"


class RewindOptions(NamedOptions, frozen=True, kw_only=True):
    """Go back to an earlier point of the conversation, and with --files of the folder."""

    command = "sessions rewind"
    code = "session_acts.rewind"
    at: int | str = argument(
        "POINT", "a mark, or the number of the last event to keep", _point, default=msgspec.NODEFAULT
    )
    puts_files_back: bool = switch(
        "--files", "also put the files of the folder back; without a terminal, those that you have changed stay"
    )


class ExportOptions(NamedOptions, frozen=True, kw_only=True):
    """Write a session to a file, as lines of JSON or as a readable page."""

    command = "sessions export"
    code = "session_acts.export"
    file: str | None = argument("FILE", "a new file (default: standard output)")
    form: Literal["json", "md", "html"] | None = flag(
        "--format", "json: lines that `import` reads; md, html: a readable page (default: from FILE's suffix, or json)"
    )
    is_exact: bool = switch("--exact", "keep secrets in the file, to continue the session elsewhere")


class ToTestOptions(NamedOptions, frozen=True, kw_only=True):
    """Write the last run of a session as a pytest file, with its model and tools played from what was recorded."""

    command = "sessions to-test"
    code = "to_test.to_test"
    file: str | None = argument("FILE", "a new file, such as test_refund.py (default: standard output)")
    agent: str | None = flag(
        "--agent WHAT", "module:attr with your agent, whose rules and tools' schemas the test then holds"
    )


class StatusOptions(BulkOptions, frozen=True, kw_only=True):
    """A change of the status of a session, or of all that fulfil some conditions."""

    status: _Status | None = _STATUS
    reason: str = flag("--reason TEXT", "reason to record", read_text, default="")
    by: str | None = flag("--by NAME", _DECIDES, read_text)


class MoveOptions(NamedOptions, frozen=True, kw_only=True):
    """Close a session here and continue it in another journal."""

    command = "sessions move"
    code = "session_acts.move"
    target: str | None = flag("--to JOURNAL", "move the session into this journal")
    file: str | None = flag("--file FILE", "or write a new file, for `treadle sessions import` on another machine")
    reason: str = flag("--reason TEXT", "reason to record", read_text, default="")
    by: str | None = flag("--by NAME", _DECIDES, read_text)


class ImportOptions(Options, frozen=True, kw_only=True):
    """Import an exported session into the journal."""

    command = "sessions import"
    code = "session_acts.take_in"
    file: str = argument("FILE", "an exported file; - for standard input", default=msgspec.NODEFAULT)
    new_id: str | None = flag("--id NEW", "the imported session's id (default: its old one)")
    takes_open: bool = switch(
        "--take-open", "activate it even if one of its calls may still be running: its source is closed"
    )


class SuspendOptions(StatusOptions, frozen=True, kw_only=True):
    """Block new runs in a session until it is activated, or in all that fulfil some conditions."""

    command = "sessions suspend"
    code = "session_acts.suspend"


class ActivateOptions(StatusOptions, frozen=True, kw_only=True):
    """Allow runs in a suspended session again, or in all that fulfil some conditions."""

    command = "sessions activate"
    code = "session_acts.activate"


class RmOptions(Options, frozen=True, kw_only=True):
    """Delete sessions: those that are named, the last one, or all that fulfil some conditions."""

    command = "sessions rm"
    code = "session_acts.remove"
    ids: tuple[str, ...] = argument("ID", "the sessions, or prefixes of their ids", default=())
    is_last: bool = switch("--last", _LAST)
    tenant: str | None = _TENANT
    agent: str | None = _AGENT
    status: _Status | None = _STATUS
    older_than: float | None = flag(
        "--older-than AGE", "all that have not changed for so long: 90m, 12h or 7d; a bare number is days", _days
    )
    limit: int | None = flag("--limit N", "with conditions: at most N, the oldest first (default: all)", read_count)
    is_preview: bool = _PREVIEW
    is_sure: bool = _SURE
    is_open_too: bool = switch(
        "--even-open",
        "with conditions: include sessions with a pending approval or input, a waiting task, or a call in doubt",
    )
    is_purged: bool = switch("--purge", "also delete their events; only a record of the deletion remains")


class CheckOptions(Options, frozen=True, kw_only=True):
    """Check that the list of sessions agrees with their events, or which sessions a deploy would strand."""

    command = "sessions check"
    code = "sessions.check"
    agents: tuple[str, ...] = repeated(
        "--agents WHAT",
        "instead, list the open sessions that no worker could continue if it had these agents only, FILE.py or module:attr "
        "as for `treadle worker`; repeatable",
    )


class SessionsOptions(ListOptions, frozen=True, kw_only=True):
    """List sessions; show, explain, fork, rewind, export, import or delete one."""

    command = "sessions"
    actions = (
        *(ListOptions, ShowOptions, ExplainOptions, WatchOptions, ForkOptions, MarkOptions, DiffOptions, RewindOptions),
        *(
            ExportOptions,
            ToTestOptions,
            MoveOptions,
            ImportOptions,
            SuspendOptions,
            ActivateOptions,
            RmOptions,
            CheckOptions,
        ),
    )


COMMANDS: Mapping[str, type[Options]] = {
    kind.command: kind
    for kind in (
        *(ChatOptions, RunOptions, ResumeOptions, SessionsOptions, ApprovalsOptions),
        *(ModelsOptions, ConfigOptions, McpOptions, WorkerOptions, DoctorOptions),
        *(GoalOptions, DemoOptions, CancelOptions, ReplayOptions, BudgetsOptions),
        *(ApproveOptions, AnswerOptions, DoubtsOptions, ResolveOptions),
        *(DescribeOptions, ToolsOptions, PermissionsOptions, TrustOptions, CompletionOptions),
        *(
            AcpOptions,
            MockOptions,
            ConformanceOptions,
            SubmitOptions,
            RetryOptions,
            WorkersOptions,
            WebOptions,
            NotifyOptions,
        ),
        *(UsageOptions, BatchOptions),
    )
}
"""All commands by their names, in the order of the help."""
