"""Commands: what each takes on the command line, one struct a command. Reads nothing and acts on nothing.

The docstring of a command is its help. Its code is loaded when it is called, since help needs none of it.
"""

import argparse
import re
import time
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal, TypeAlias, get_args

import msgspec

from treadle.cli.input.options import (
    LISTING,
    OUTPUT,
    PLACES,
    RULES,
    Argument,
    Flag,
    Options,
    RunningOptions,
    StoreOption,
    number_reader,
    read_count,
    read_instant,
    read_port,
    read_seconds,
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
]

_SESSION = "the session, or a prefix of its id"
_LAST = "the most recently changed session"
_ANSWERS = "name to record for the answer (default: your login)"
_DECIDES = "name to record for the decision (default: your login)"


_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def _since(text: str) -> float:
    """Return a time in seconds since 1970. One without a zone is of this machine."""
    if (age := re.fullmatch(r"(\d{1,9})([smhd])", text, re.ASCII)) is not None:
        return time.time() - int(age[1]) * _UNITS[age[2]]
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError):
        raise argparse.ArgumentTypeError(
            f"a time such as 2026-11-30T18:00, or an age such as 90m, 12h or 7d; got {text!r:.60}"
        ) from None


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

    id: Annotated[str | None, Argument("ID", _SESSION)] = None
    is_last: Annotated[bool, Flag("--last", _LAST)] = False


_Status: TypeAlias = Literal["active", "queued", "running", "paused", "stopped", "failed", "completed", "suspended"]
_Tenant: TypeAlias = Annotated[str | None, Flag("--tenant NAME", "all of this tenant; '' for those without one")]
_Agent: TypeAlias = Annotated[str | None, Flag("--agent NAME", "all of this agent")]
_OlderThan: TypeAlias = Annotated[
    float | None,
    Flag("--older-than AGE", "all that have waited, or not changed, for so long: 90m, 12h or 7d", _age),
]
_Limit: TypeAlias = Annotated[
    int, Flag("--limit N", "with conditions: at most N, the oldest first (default: 500)", read_count)
]
_Preview: TypeAlias = Annotated[bool, Flag("--dry-run", "with conditions: only list what it would be")]
_Sure: TypeAlias = Annotated[bool, Flag("--yes", "with conditions: do it without a question")]
_WithStatus: TypeAlias = Annotated[_Status | None, Flag("--status --state STATUS", "all in this state")]


class BulkOptions(NamedOptions, frozen=True, kw_only=True):
    """One session or call, or all that fulfil some conditions."""

    tenant: _Tenant = None
    agent: _Agent = None
    older_than: _OlderThan = None
    limit: _Limit = 500
    is_preview: _Preview = False
    is_sure: _Sure = False

    @property
    def has_conditions(self) -> bool:
        """Whether it is about all that fulfil some conditions."""
        return any(
            getattr(self, name, None) is not None for name in ("tenant", "agent", "older_than", "status", "tool")
        )


# --- Runs: what begins one, or continues it.


class TaskOptions(RunningOptions, frozen=True, kw_only=True):
    """A task for a session."""

    task: Annotated[
        str | None, Argument("task", "the task (default: what is piped in); piped input is appended to it")
    ] = None
    id: Annotated[str | None, Flag("--session ID", "continue this session, or create it if it does not exist")] = None
    attached: Annotated[
        tuple[str, ...], Flag("-a --attach FILE", "attach a file to the task: text, image, PDF or audio; repeatable")
    ] = ()
    is_last: Annotated[
        bool, Flag("-c --continue --last", "continue the most recently changed session of this folder")
    ] = False


class ChatOptions(TaskOptions, frozen=True, kw_only=True):
    """Chat with a model in this terminal; `treadle` alone does the same."""

    command = "chat"
    code = "chat.chat"
    task: Annotated[str | None, Argument("task", "the first message")] = None
    accepts_change: Annotated[
        bool, Flag("--accept-change", "continue a run that a program's own agent started, without that agent")
    ] = False


class RunOptions(TaskOptions, frozen=True, kw_only=True):
    """Run one task."""

    command = "run"
    code = "run.run"
    is_single_turn: Annotated[
        bool, Flag("--single-turn", "allow tool calls in one response only: the next response must be the answer")
    ] = False


class GoalOptions(RunningOptions, frozen=True, kw_only=True):
    """Work on the goal in a file until its validation passes."""

    command = "goal"
    group = "run"
    code = "run.goal"
    task: Annotated[str | None, Argument("FILE", "the goal, as TOML")] = None
    id: Annotated[str | None, Flag("--session ID", "the session to work in (default: derived from the goal)")] = None


class ResumeOptions(RunningOptions, frozen=True, kw_only=True):
    """Resume a run that was paused, stopped or interrupted; or all that fulfil some conditions, one after the other."""

    command = "resume"
    code = "run.resume"
    id: Annotated[str | None, Argument("ID", "the session")] = None
    is_last: Annotated[bool, Flag("--last", _LAST)] = False
    accepts_change: Annotated[
        bool, Flag("--accept-change", "continue a run that a program's own agent started, without that agent")
    ] = False
    tenant: _Tenant = None
    agent: _Agent = None
    status: _WithStatus = None
    older_than: _OlderThan = None
    limit: _Limit = 500
    is_preview: _Preview = False
    is_sure: _Sure = False


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
    status: _WithStatus = None
    by: Annotated[str | None, Flag("--by NAME", _DECIDES)] = None


class ReplayOptions(NamedOptions, frozen=True, kw_only=True):
    """Replay a recorded session as it happened, without running anything."""

    command = "replay"
    group = "sessions"
    code = "replay.replay"
    id: Annotated[str | None, Argument("ID", "the session, or a file written by `treadle sessions export`")] = None
    speed: Annotated[
        float | None,
        Flag("--speed N", "replay N times as fast (default: 1 at a terminal, otherwise all at once)", read_seconds),
    ] = None


# --- What waits for a person.


class WaitingOptions(Options, frozen=True, kw_only=True):
    """What waits for a person, or a part of it."""

    tenant: Annotated[str | None, Flag("--tenant NAME", "only of this tenant; '' for those without one")] = None
    agent: Annotated[str | None, Flag("--agent NAME", "only of this agent")] = None
    tool: Annotated[str | None, Flag("--tool NAME", "only calls of this tool")] = None
    older_than: Annotated[
        float | None, Flag("--older-than AGE", "only what has waited for so long: 90m, 12h or 7d", _age)
    ] = None


class ApprovalsOptions(WaitingOptions, frozen=True, kw_only=True):
    """List the calls that are waiting for approval, or who answered what and when."""

    command = "approvals"
    code = "waiting.approvals"
    is_answered: Annotated[
        bool, Flag("--answered", "list who answered what and when, over all sessions, the latest first")
    ] = False
    since: Annotated[
        float | None, Flag("--since TIME", "with --answered: only since 2026-11-30, or an age such as 30d", _since)
    ] = None
    as_csv: Annotated[bool, Flag("--csv", "with --answered: as a table for spreadsheets")] = False


class ApproveOptions(BulkOptions, frozen=True, kw_only=True):
    """Allow or deny a call that is waiting for approval, or all that fulfil some conditions."""

    command = "approve"
    group = "approvals"
    code = "waiting.approve"
    id: Annotated[
        str | None, Argument("ID", "the approval, as `treadle approvals` lists it, or a prefix of its id")
    ] = None
    is_last: Annotated[bool, Flag("--last", "the newest approval")] = False
    tool: Annotated[str | None, Flag("--tool NAME", "all calls of this tool")] = None
    is_denied: Annotated[bool, Flag("--deny", "deny the call")] = False
    scope: Annotated[
        Literal["once", "session", "rule"],
        Flag(
            "--scope",
            "what to allow: only this call (once, the default), or calls that match the suggested rules, in this session or in this "
            "folder (rule)",
        ),
    ] = "once"
    arguments: Annotated[
        str | None, Flag("--arguments JSON", "run the call with these arguments instead: one JSON object")
    ] = None
    reason: Annotated[str, Flag("--reason TEXT", "the reason; the model reads it")] = ""
    by: Annotated[str | None, Flag("--by NAME", _ANSWERS)] = None


class AnswerOptions(Options, frozen=True, kw_only=True):
    """Answer the question that a paused run asks."""

    command = "answer"
    group = "approvals"
    code = "waiting.answer"
    id: Annotated[str | None, Argument("ID", _SESSION)] = None
    answer: Annotated[str | None, Argument("ANSWER", "the answer: text, or a JSON object for a form")] = None
    by: Annotated[str | None, Flag("--by NAME", _ANSWERS)] = None


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
    id: Annotated[
        str | None, Argument("ID", "the call or its key, as `treadle doubts` lists it, or a prefix of its id")
    ] = None
    is_last: Annotated[bool, Flag("--last", "the newest call in doubt")] = False
    tool: Annotated[str | None, Flag("--tool NAME", "all calls of this tool")] = None
    done: Annotated[str | None, Flag("--done JSON", "the call succeeded with this result, as JSON; null for none")] = (
        None
    )
    is_not_done: Annotated[bool, Flag("--not-done", "the call did not happen; it may run again")] = False
    is_unknown: Annotated[bool, Flag("--unknown", "the outcome stays unknown; stop listing the call")] = False
    session: Annotated[str | None, Flag("--session ID", "the session, if the id is in doubt in more than one")] = None
    reason: Annotated[str, Flag("--reason TEXT", "how you know; recorded with the outcome")] = ""
    by: Annotated[str | None, Flag("--by NAME", _DECIDES)] = None


# --- Workers.


class SubmitOptions(Options, frozen=True, kw_only=True):
    """Queue a task for a worker that has its agent."""

    command = "submit"
    group = "worker"
    code = "workers.submit"
    shared = ungrouped("deadline", "limits", *LISTING)
    task: Annotated[str | None, Argument("task", "the task; - reads it from standard input")] = None
    agent: Annotated[str | None, Flag("--agent NAME", "the agent to run it with (default: `default`)")] = None
    tenant: Annotated[str | None, Flag("--tenant NAME", "the tenant it belongs to; tenants take turns")] = None
    priority: Annotated[
        int,
        Flag(
            "--priority N",
            "among one tenant's tasks, higher starts first (default: 0)",
            whole_reader(-999_999_999, 999_999_999, "a priority is a whole number such as 5"),
        ),
    ] = 0
    begins_at: Annotated[
        float | None, Flag("--at TIME", "earliest time to start, such as 2026-11-30T18:00", read_instant)
    ] = None
    key: Annotated[
        str | None, Flag("--key KEY", "idempotency key: submitting the same key twice creates one session")
    ] = None
    by: Annotated[str | None, Flag("--by NAME", "name to record for the submission (default: your login)")] = None
    metadata: Annotated[
        dict[str, Any],
        Flag(
            "--metadata NAME=VALUE",
            "metadata of its session; the value is JSON or plain text; repeatable",
            action=StoreOption,
        ),
    ] = msgspec.field(default_factory=dict)
    is_waiting: Annotated[bool, Flag("--wait", "wait until it ends, and print the answer")] = False


class RetryOptions(BulkOptions, frozen=True, kw_only=True):
    """Submit a task again that failed, stopped or was cancelled; or all that fulfil some conditions.

    Without --key it is the same task: it runs again in its session, and the model reads what was done there. With --key it is
    another task: it begins from nothing in a session of its own.
    """

    command = "retry"
    group = "worker"
    code = "workers.retry"
    shared = ungrouped("deadline", *LISTING)
    status: _WithStatus = None
    key: Annotated[str | None, Flag("--key KEY", "a new idempotency key: begin from nothing")] = None
    may_repeat: Annotated[bool, Flag("--may-repeat", "with --key: begin also if that may do again what was done")] = (
        False
    )
    by: Annotated[str | None, Flag("--by NAME", _DECIDES)] = None


class WorkerOptions(RunningOptions, frozen=True, kw_only=True):
    """Run submitted tasks until a signal stops it."""

    command = "worker"
    code = "workers.worker"
    agents: Annotated[
        tuple[str, ...],
        Flag(
            "--agents WHAT",
            "agents to run: FILE.py or module:attr with agents, or functions that make them, by name; repeatable "
            "(default: one agent named `default`, with the model, tools and rules given here)",
        ),
    ] = ()
    name: Annotated[
        str | None, Flag("--name NAME", "the worker's name, unique in its journal (default: machine and process)")
    ] = None
    concurrency: Annotated[
        int,
        Flag(
            "--concurrency N",
            "how many sessions to run in parallel (default: 4)",
            whole_reader(1, 99999, "a number from 1 to 99999"),
        ),
    ] = 4
    tenants: Annotated[tuple[str, ...], Flag("--tenant NAME", "take only tasks of this tenant; repeatable")] = ()
    accepts_change: Annotated[
        bool,
        Flag("--accept-change", "continue runs whose agent has changed since they began, with the agent as it is now"),
    ] = False
    worker_limits: Annotated[
        tuple[str, ...],
        Flag(
            "--limit WORDS",
            'a limit shared by all workers that use its name: "NAME sessions=20 requests=500 tokens=200000 each=tenant", requests and '
            "tokens per minute; tenants=A,B, agents= and models= restrict what it applies to; repeatable",
        ),
    ] = ()
    drain_seconds: Annotated[
        float,
        Flag(
            "--drain-seconds N",
            "seconds that runs may take to finish after SIGTERM or Ctrl-C, before other workers take them over (default: 30)",
            number_reader("seconds are a number such as 30"),
        ),
    ] = 30.0
    queue: Annotated[
        Literal["journal", "pgqueuer"],
        Flag(
            "--queue",
            "what distributes the sessions: the journal itself, or pgqueuer in its PostgreSQL (default: journal)",
        ),
    ] = "journal"
    health_port: Annotated[
        int | None,
        Flag(
            "--health PORT", "serve /live, /health and /metrics on this port of 127.0.0.1 (0: any free port)", read_port
        ),
    ] = None
    health_host: Annotated[
        str | None,
        Flag(
            "--health-host HOST",
            "another address for --health, such as 0.0.0.0 in a pod: whoever reaches it reads the names of tenants, agents and tools, "
            "and what they cost",
        ),
    ] = None
    log_format: Annotated[
        Literal["text", "json"],
        Flag(
            "--log-format",
            "format of the log on standard error: text, or one JSON object per line (default: text)",
        ),
    ] = "text"


class BatchOptions(RunningOptions, frozen=True, kw_only=True):
    """Run many tasks, each in a session of its own; killed anywhere, the same command continues. Or compare two results."""

    command = "batch"
    group = "worker"
    code = "batch.batch"
    files: Annotated[
        tuple[str, ...],
        Argument(
            "TASKS",
            "a file of tasks: a text or a JSON object with `task`, `id` and `expected` a line, or .csv with these columns; - for standard input",
        ),
    ] = ()
    results: Annotated[
        str | None,
        Flag(
            "-o --output FILE",
            "where the rows go: .jsonl; for .csv and .parquet, which are made at the end, they are also kept as .jsonl beside it. "
            "A report as .html is written beside it",
        ),
    ] = None
    model_options: Annotated[
        dict[str, Any],
        Flag("--option NAME=VALUE", "set a field of each model request; repeatable", action=StoreOption),
    ] = msgspec.field(default_factory=dict)
    agent: Annotated[
        str | None,
        Flag(
            "--agent WHAT",
            "the agent: FILE.py or module:attr with one; with --workers, the name that workers have (default: one with the model, tools "
            "and rules given here)",
        ),
    ] = None
    name: Annotated[
        str | None, Flag("--name NAME", "name of the batch in its journal (default: that of the results)")
    ] = None
    concurrency: Annotated[
        int | None,
        Flag(
            "--concurrency N",
            "how many tasks run at once (default: 8, or 1000 with --vendor-batch); fewer after a rate limit",
            whole_reader(1, 99999, "a number from 1 to 99999"),
        ),
    ] = None
    repeat: Annotated[
        int,
        Flag("--repeat N", "how often to run each task (default: 1)", whole_reader(1, 9999, "a number from 1 to 9999")),
    ] = 1
    limit: Annotated[int | None, Flag("--limit N", "only the first N tasks", read_count)] = None
    sample: Annotated[int | None, Flag("--sample N", "only N tasks, the same ones each time", read_count)] = None
    only_failed: Annotated[
        bool, Flag("--only-failed", "only tasks whose run was stopped or failed: it continues, and its row is replaced")
    ] = False
    score: Annotated[
        str | None,
        Flag(
            "--score WHAT",
            "exact or contains, which compare with `expected`, or FILE.py:function or module:function of the task and its row "
            "(default: exact)",
        ),
    ] = None
    total_cost: Annotated[
        float | None,
        Flag(
            "--total-cost USD",
            "what the whole batch (all tasks of its --name, earlier ones included) may cost; a larger one continues it",
            number_reader("dollars are a number such as 5.50"),
        ),
    ] = None
    tokens_per_minute: Annotated[
        int | None,
        Flag(
            "--tokens-per-minute N",
            "tokens that the batch may use a minute",
            whole_reader(1, 10**15, "a whole number above 0"),
        ),
    ] = None
    requests_per_minute: Annotated[
        int | None,
        Flag(
            "--requests-per-minute N",
            "requests that the batch may make a minute",
            whole_reader(1, 10**15, "a whole number above 0"),
        ),
    ] = None
    stops_at_error: Annotated[
        bool, Flag("--stop-on-error", "begin no further task once a run has failed or raised an exception")
    ] = False
    is_vendor_batch: Annotated[
        bool,
        Flag(
            "--vendor-batch",
            "for tasks of one step: send the requests as batches of OpenAI or Anthropic, at half the price, within a day",
        ),
    ] = False
    is_comparison: Annotated[
        bool, Flag("--compare", "compare two results instead: treadle batch --compare before.jsonl after.jsonl")
    ] = False
    has_workers: Annotated[
        bool, Flag("--workers", "submit the tasks to the workers on the journal, and collect their answers")
    ] = False
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
    has_ended: Annotated[bool, Flag("--all", "include workers whose process has ended")] = False


class WebOptions(Options, frozen=True, kw_only=True):
    """Open a page in the browser on which sessions can be seen, answered and steered. It is served to this machine only."""

    command = "web"
    group = "worker"
    code = "web.web"
    port: Annotated[int, Flag("--port N", "the port to listen on (default 0: any free port)", read_port)] = 0
    has_no_browser: Annotated[bool, Flag("--no-browser", "print the link, and open no browser")] = False
    is_read_only: Annotated[bool, Flag("--read-only", "let nobody answer or change anything")] = False
    agents: Annotated[
        tuple[str, ...],
        Flag(
            "--agents WHAT",
            "agents to try on the page, and whose sessions it continues: FILE.py or module:attr, as for `worker`; repeatable",
        ),
    ] = ()
    by: Annotated[
        str | None, Flag("--by NAME", "name to record for answers of the link's owner (default: your login)")
    ] = None
    tokens: Annotated[
        str | None,
        Flag("--tokens FILE", "named tokens that let people in (default: web-tokens.json beside the configuration)"),
    ] = None
    new_token: Annotated[str | None, Flag("--new-token NAME", "make a token for somebody, print it once, and end")] = (
        None
    )
    role: Annotated[
        Literal["see", "answer", "operate"],
        Flag("--role", "of the new token: see, answer what waits, or operate: change sessions too (default: answer)"),
    ] = "answer"
    tenants: Annotated[tuple[str, ...], Flag("--tenant NAME", "the new token shows only this tenant; repeatable")] = ()
    proxy_header: Annotated[
        str | None,
        Flag(
            "--proxy-header NAME",
            "believe the name that a proxy writes into this header; only if nobody reaches the page without that proxy",
        ),
    ] = None
    hosts: Annotated[
        tuple[str, ...], Flag("--host NAME", "a host name under which a proxy serves the page; repeatable")
    ] = ()


class NotifyOptions(Options, frozen=True, kw_only=True):
    """Tell a webhook or a command what waits for a person, is in doubt, was set aside or is over budget, until a signal stops it."""

    command = "notify"
    group = "worker"
    code = "web.notify"
    page: Annotated[
        str | None, Flag("--page URL", "the address of the web page: each notice has the link to its request there")
    ] = None
    webhook: Annotated[
        str | None,
        Flag(
            "--webhook URL",
            "post JSON to this address, signed with TREADLE_WEBHOOK_SECRET (default: TREADLE_WEBHOOK_URL)",
        ),
    ] = None
    line: Annotated[
        str | None,
        Flag(
            "--command LINE", "run this command instead, with the text as its last argument and the JSON as its input"
        ),
    ] = None


# --- What is set up here.


class BudgetsOptions(NamedOptions, frozen=True, kw_only=True):
    """Show the ten budgets, and how much of each a session has used."""

    command = "budgets"
    group = "sessions"
    code = "showing.budgets"
    shared = ungrouped("profile", "limits", *PLACES, "as_json")
    id: Annotated[str | None, Argument("SESSION", "show what the last run of this session has used")] = None


class PermissionsOptions(Options, frozen=True, kw_only=True):
    """List the permission rules in effect and where each comes from, or test them on a call."""

    command = "permissions"
    group = "config"
    code = "showing.permissions"
    shared = ungrouped(*RULES, "tools", "profile", "folder", "config", "as_json")
    shows_modes: Annotated[bool, Flag("--modes", "show what each mode does here: what runs, asks, or is denied")] = (
        False
    )
    name: Annotated[str | None, Argument("TOOL", "show what would happen to a call of this tool")] = None
    arguments: Annotated[
        str | None, Argument("ARGUMENTS", "arguments as one JSON object, or the value of the first parameter")
    ] = None


class ToolsOptions(Options, frozen=True, kw_only=True):
    """List the tools, or check their contracts."""

    command = "tools"
    group = "config"
    code = "tools.tools"
    shared = ungrouped("tools", "profile", "folder", "config", "as_json")
    action: Annotated[Literal["check"] | None, Argument("action", "check: check every tool against its contract")] = (
        None
    )
    recorded: Annotated[
        tuple[str, ...],
        Flag(
            "--examples FILE",
            "recorded calls to check against the contracts, as JSON lines of tool, arguments and result; repeatable",
        ),
    ] = ()
    runs_again: Annotated[
        bool, Flag("--run", "rerun the examples that are marked as deterministic, and compare the results")
    ] = False


class DescribeOptions(RunningOptions, frozen=True, kw_only=True):
    """Show the agent that these options and the configuration define."""

    command = "describe"
    group = "config"
    code = "showing.describe"


class ConfigOptions(RunningOptions, frozen=True, kw_only=True):
    """Show the configuration and where each value comes from, or set a value in your own file."""

    command = "config"
    code = "showing.config"
    action: Annotated[
        Literal["show", "schema", "set"],
        Argument(
            "action",
            "show: every value and where it comes from; schema: the JSON Schema of the file; set: KEY VALUE in your own file",
        ),
    ] = "show"
    key: Annotated[str | None, Argument("KEY", "with set: the name, such as model or budget.max_total_cost")] = None
    value: Annotated[str | None, Argument("VALUE", "with set: the value")] = None
    shows_origin: Annotated[bool, Flag("--origin", "show where each value comes from (always on)")] = True


class ModelsOptions(Options, frozen=True, kw_only=True):
    """List known models, or the models a server offers: context windows, limits, prices. `probe` asks a server of your own."""

    command = "models"
    code = "models.models"
    shared = ungrouped("as_json")
    name: Annotated[str | None, Argument("NAME", "a model or a vendor (default: all); or `probe`")] = None
    model: Annotated[
        str | None, Argument("MODEL", "with probe: find out what this model can do, such as llamacpp:NAME, and keep it")
    ] = None
    is_offered: Annotated[bool, Flag("--offered", "ask the vendor's server for its models")] = False
    base_url: Annotated[str | None, Flag("--base-url URL", "with --offered or probe: the server's address")] = None


class TrustOptions(Options, frozen=True, kw_only=True):
    """List trusted folders, or trust a folder so that its own rules and hooks apply."""

    command = "trust"
    group = "config"
    code = "trust.trust"
    shared = ungrouped("as_json")
    action: Annotated[Literal["list", "approve", "revoke"], Argument("action", "what to do (default: list)")] = "list"
    name: Annotated[str, Argument("FOLDER", "the folder (default: this one)")] = "."


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
    action: Annotated[
        Literal["bash", "zsh", "fish", "words"],
        Argument("action", "the shell; `words` is used by the completion scripts"),
    ]
    line: Annotated[str | None, Argument("LINE", "with `words`: the line to complete")] = None


# --- Protocols: what serves an agent, and servers whose tools are used.


class McpOptions(RunningOptions, frozen=True, kw_only=True):
    """List, add, remove, approve or test MCP servers; serve an agent to an MCP client."""

    command = "mcp"
    code = "mcp.mcp"
    action: Annotated[
        Literal["list", "add", "remove", "approve", "revoke", "test", "serve"],
        Argument(
            "action",
            "list servers (the default), change them, test one and list its tools, or serve an agent to an MCP client",
        ),
    ] = "list"
    name: Annotated[str | None, Argument("NAME", "the server's name")] = None
    command_line: Annotated[
        tuple[str, ...],
        Argument("COMMAND", "with add: the server's address, or -- and its command with arguments"),
    ] = ()
    variables: Annotated[
        tuple[str, ...],
        Flag(
            "-e --env NAME=VALUE",
            "with add: an environment variable of the program; ${NAME} copies it from your environment; repeatable",
        ),
    ] = ()
    headers: Annotated[
        tuple[str, ...], Flag("--header NAME:VALUE", "with add: a header to send with each request; repeatable")
    ] = ()
    place: Annotated[
        Literal["user", "project"] | None,
        Flag("--scope", "which file: your own (user), or the folder's .mcp.json (project)"),
    ] = None
    offer: Annotated[
        Literal["agent", "tools", "both"],
        Flag(
            "--offer",
            "with serve: offer an agent that takes tasks (the default), the tools of --tools themselves, or both",
        ),
    ] = "agent"
    description: Annotated[
        str | None, Flag("--description TEXT", "with serve: what the agent is for; the client's model reads it")
    ] = None
    http_port: Annotated[
        int | None,
        Flag(
            "--http PORT",
            "with serve: serve over HTTP on this port of this machine (0: any free port); clients need the token of TREADLE_MCP_TOKEN",
            read_port,
        ),
    ] = None
    has_no_token: Annotated[
        bool, Flag("--no-token", "with serve --http: accept every program on this machine, without a token")
    ] = False
    by: Annotated[
        str | None, Flag("--by NAME", "with serve: who answers approvals, for the record (default: your login)")
    ] = None


class AcpOptions(RunningOptions, frozen=True, kw_only=True):
    """Serve an agent to an editor that speaks the Agent Client Protocol, such as Zed."""

    command = "acp"
    group = "mcp"
    code = "serving.acp"
    by: Annotated[
        str | None, Flag("--by NAME", "name to record for answers to permission requests (default: your login)")
    ] = None


class MockOptions(Options, frozen=True, kw_only=True):
    """Serve a script as a strict mock provider on this machine."""

    command = "mock"
    group = "mcp"
    code = "serving.mock"
    shared = ungrouped()
    script: Annotated[str, Argument("SCRIPT", "a JSON file with the model's turns")]
    port: Annotated[int, Flag("--port N", "the port to listen on (default 0: any free port)", read_port)] = 0
    record: Annotated[str | None, Flag("--record FILE", "write each request to this file as a line of JSON")] = None


class ConformanceOptions(Options, frozen=True, kw_only=True):
    """Hold a tool loop, Treadle's or your own, against the conformance suite."""

    command = "conformance"
    group = "mcp"
    code = "conformance.conformance"
    shared = ungrouped()
    names: Annotated[tuple[str, ...], Argument("GROUP", "groups or scenarios (default: all)")] = ()
    is_listed: Annotated[bool, Flag("--list", "list the scenarios, one a line, and run nothing")] = False
    subject: Annotated[
        str | None, Flag("--subject MODULE:ADAPTER", "the loop: an adapter in Python (default: Treadle's own)")
    ] = None
    program: Annotated[
        str | None, Flag("--command LINE", "the loop: a program in any language, which reads its job from a file")
    ] = None
    offers: Annotated[
        str | None, Flag("--offers LIST", "what the loop can do, such as chat,stream,max_steps (default: what it says)")
    ] = None
    python: Annotated[
        str | None, Flag("--python PATH", "the Python that runs the adapter (default: the one that runs Treadle)")
    ] = None
    dialects: Annotated[
        tuple[Literal["chat", "responses", "anthropic", "gemini"], ...],
        Flag("--dialect NAME", "only this dialect of the provider; repeatable (default: all four)"),
    ] = ()
    side_by_side: Annotated[
        int, Flag("--side-by-side N", "scenarios that run at the same time (default: 8)", read_count)
    ] = 8
    file: Annotated[
        str | None, Flag("--json FILE", "write each verdict with its evidence to this file (- for standard output)")
    ] = None


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


_PAGER = Flag("--no-pager", "do not page long output through PAGER")


class ListOptions(Options, frozen=True, kw_only=True):
    """List sessions, most recently changed first."""

    command = "sessions list"
    code = "sessions.list_sessions"
    shows_deleted: Annotated[bool, Flag("--all", "include deleted sessions")] = False
    states: Annotated[
        tuple[_State, ...],
        Flag("--status --state STATUS", f"only sessions in this state: {', '.join(get_args(_State))}; repeatable"),
    ] = ()
    match: Annotated[str | None, Flag("--match TEXT", "only sessions whose id or task contains this text")] = None
    tenant: Annotated[
        str | None,
        Flag(
            "--tenant NAME",
            "only sessions of this tenant (`tenant` in their metadata); '' for sessions without one",
        ),
    ] = None
    parent: Annotated[
        str | None, Flag("--parent ID", "only forks of this session, and the sessions of its subagents")
    ] = None
    since: Annotated[
        float | None,
        Flag(
            "--since TIME",
            "only sessions changed since: 2026-11-30, 2026-11-30T18:00, or an age such as 90m, 12h or 7d",
            _since,
        ),
    ] = None
    limit: Annotated[int | None, Flag("--limit N", "at most N sessions, most recently changed first", read_count)] = (
        None
    )
    after: Annotated[str | None, Flag("--after ID", "only sessions listed after this one")] = None
    is_unpaged: Annotated[bool, _PAGER] = False


class UsageOptions(Options, frozen=True, kw_only=True):
    """Report the tokens and the cost of all sessions, in groups."""

    command = "usage"
    group = "sessions"
    code = "usage.usage"
    groups: Annotated[
        str,
        Flag(
            "--by WORDS",
            "groups, separated by commas: model, day, month, agent, session, or keys of metadata (default: tenant,model,day)",
        ),
    ] = "tenant,model,day"
    since: Annotated[
        float | None,
        Flag("--since TIME", "only since: 2026-11-30, 2026-11-30T18:00, or an age such as 90m, 12h or 7d", _since),
    ] = None
    as_csv: Annotated[bool, Flag("--csv", "write comma-separated values, with a head")] = False


class ShowOptions(NamedOptions, frozen=True, kw_only=True):
    """Show the messages and calls of one session."""

    command = "sessions show"
    code = "session_show.show"
    is_unpaged: Annotated[bool, _PAGER] = False


class ExplainOptions(ShowOptions, frozen=True, kw_only=True):
    """Report what was tried, changed, approved and failed, why it stopped, and what a rerun would do."""

    command = "sessions explain"
    code = "session_show.explain"


class WatchOptions(NamedOptions, frozen=True, kw_only=True):
    """Follow a session live, in whichever process it runs, until its run ends."""

    command = "sessions watch"
    code = "sessions.watch"
    after: Annotated[int, Flag("--after N", "only events after event N", read_count)] = 0


class ForkOptions(NamedOptions, frozen=True, kw_only=True):
    """Create a session that shares the history of another."""

    command = "sessions fork"
    code = "session_acts.fork"
    at: Annotated[
        int | str | None,
        Flag("--at POINT", "the last shared event, by number or mark (default: the end)", _point),
    ] = None
    step: Annotated[int | None, Flag("--step N", "share everything through the results of step N", read_count)] = None
    message: Annotated[int | None, Flag("--message N", "share the first N messages", read_count)] = None
    new_id: Annotated[str | None, Flag("--id NEW", "the new session's id (default: generated)")] = None


class MarkOptions(NamedOptions, frozen=True, kw_only=True):
    """Name the current end of a session."""

    command = "sessions mark"
    code = "session_acts.mark"
    name: Annotated[str, Argument("NAME", "the name")]


class DiffOptions(NamedOptions, frozen=True, kw_only=True):
    """Show how a session has changed the files of its folder."""

    command = "sessions diff"
    code = "session_acts.diff"


class RewindOptions(NamedOptions, frozen=True, kw_only=True):
    """Go back to an earlier point of the conversation, and with --files of the folder."""

    command = "sessions rewind"
    code = "session_acts.rewind"
    at: Annotated[int | str, Argument("POINT", "a mark, or the number of the last event to keep", _point)]
    puts_files_back: Annotated[
        bool,
        Flag("--files", "also put the files of the folder back; without a terminal, those that you have changed stay"),
    ] = False


class ExportOptions(NamedOptions, frozen=True, kw_only=True):
    """Write a session to a file, as lines of JSON or as a readable page."""

    command = "sessions export"
    code = "session_acts.export"
    file: Annotated[str | None, Argument("FILE", "a new file (default: standard output)")] = None
    form: Annotated[
        Literal["json", "md", "html"] | None,
        Flag(
            "--format",
            "json: lines that `import` reads; md, html: a readable page (default: from FILE's suffix, or json)",
        ),
    ] = None
    is_exact: Annotated[bool, Flag("--exact", "keep secrets in the file, to continue the session elsewhere")] = False


class ToTestOptions(NamedOptions, frozen=True, kw_only=True):
    """Write the last run of a session as a pytest file, with its model and tools played from what was recorded."""

    command = "sessions to-test"
    code = "to_test.to_test"
    file: Annotated[str | None, Argument("FILE", "a new file, such as test_refund.py (default: standard output)")] = (
        None
    )
    agent: Annotated[
        str | None,
        Flag("--agent WHAT", "module:attr with your agent, whose rules and tools' schemas the test then holds"),
    ] = None


class StatusOptions(BulkOptions, frozen=True, kw_only=True):
    """A change of the status of a session, or of all that fulfil some conditions."""

    status: _WithStatus = None
    reason: Annotated[str, Flag("--reason TEXT", "reason to record")] = ""
    by: Annotated[str | None, Flag("--by NAME", _DECIDES)] = None


class MoveOptions(NamedOptions, frozen=True, kw_only=True):
    """Close a session here and continue it in another journal."""

    command = "sessions move"
    code = "session_acts.move"
    target: Annotated[str | None, Flag("--to JOURNAL", "move the session into this journal")] = None
    file: Annotated[
        str | None, Flag("--file FILE", "or write a new file, for `treadle sessions import` on another machine")
    ] = None
    reason: Annotated[str, Flag("--reason TEXT", "reason to record")] = ""
    by: Annotated[str | None, Flag("--by NAME", _DECIDES)] = None


class ImportOptions(Options, frozen=True, kw_only=True):
    """Import an exported session into the journal."""

    command = "sessions import"
    code = "session_acts.take_in"
    file: Annotated[str, Argument("FILE", "an exported file; - for standard input")]
    new_id: Annotated[str | None, Flag("--id NEW", "the imported session's id (default: its old one)")] = None
    takes_open: Annotated[
        bool, Flag("--take-open", "activate it even if one of its calls may still be running: its source is closed")
    ] = False


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
    ids: Annotated[tuple[str, ...], Argument("ID", "the sessions, or prefixes of their ids")] = ()
    is_last: Annotated[bool, Flag("--last", _LAST)] = False
    tenant: _Tenant = None
    agent: _Agent = None
    status: _WithStatus = None
    older_than: Annotated[
        float | None,
        Flag("--older-than AGE", "all that have not changed for so long: 90m, 12h or 7d; a bare number is days", _days),
    ] = None
    limit: Annotated[
        int | None, Flag("--limit N", "with conditions: at most N, the oldest first (default: all)", read_count)
    ] = None
    is_preview: _Preview = False
    is_sure: _Sure = False
    is_open_too: Annotated[
        bool,
        Flag(
            "--even-open",
            "with conditions: include sessions with a pending approval or input, a waiting task, or a call in doubt",
        ),
    ] = False
    is_purged: Annotated[bool, Flag("--purge", "also delete their events; only a record of the deletion remains")] = (
        False
    )

    @property
    def has_conditions(self) -> bool:
        """Whether it is about all that fulfil some conditions."""
        return any(one is not None for one in (self.tenant, self.agent, self.status, self.older_than))


class CheckOptions(Options, frozen=True, kw_only=True):
    """Check that the list of sessions agrees with their events, or which sessions a deploy would strand."""

    command = "sessions check"
    code = "sessions.check"
    agents: Annotated[
        tuple[str, ...],
        Flag(
            "--agents WHAT",
            "instead, list the open sessions that no worker could continue if it had these agents only, FILE.py or module:attr "
            "as for `treadle worker`; repeatable",
        ),
    ] = ()


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
