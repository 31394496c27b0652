"""Running: one run from its first event to its exit code, with signals, progress, output and the closing lines."""

import asyncio
import inspect
import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache, partial
from typing import Any, Literal, TypeGuard

import msgspec

from treadle import (
    Agent,
    Budget,
    CheckedCall,
    Decision,
    Run,
    RunResult,
    Session,
    StopReason,
    Tool,
    deny,
    first_of,
    open_session,
    resolve_model,
)
from treadle.cli.exits import EXIT_NOT_STORED, UsageError, exit_code
from treadle.cli.guidance import guidance_of, skill_tools, surroundings_of
from treadle.cli.input.keys import use_stored_keys
from treadle.cli.input.options import MODEL_SECONDS, Options
from treadle.cli.input.places import absolute, same_journal, same_world
from treadle.cli.input.rules import rule_sets
from treadle.cli.input.settings import Settings
from treadle.cli.input.values import instructions_of, json_object, schema_of
from treadle.cli.origins import absolute_model, resuming
from treadle.cli.output.progress import Notifier, Progress
from treadle.cli.output.screens import Screen, screen_for
from treadle.cli.output.terminal import Terminal
from treadle.cli.output.text import for_terminal, one_line, shown_name
from treadle.cli.signals import on_signals
from treadle.cli.snapshots import Snapshots
from treadle.cli.telemetry import telemetry
from treadle.cli.tool_sources import known_tools, load_tools
from treadle.context import ClearResults, Handoff, Labelled, Tiers, WholeHistory
from treadle.errors import SandboxUnavailable
from treadle.events import (
    AnyEvent,
    ApprovalRequested,
    CallDecided,
    JournalDegraded,
    MessageAdded,
    RunResumed,
    RunStarted,
)
from treadle.permissions import default_decision, is_answered, scoped
from treadle.ports import Driver, Hook, OpenToolset, Policy, SessionView, Toolset, ToolsetContext, UnmatchedRule
from treadle.providers import Timeouts
from treadle.resolve import local_servers
from treadle.resolve.command_hooks import command_hooks
from treadle.sandboxes import Bubblewrap, Confinement, Landlock, find_sandbox
from treadle.toolsets import McpTools, Shared, artifact_tool

__all__ = [
    "arguments_of",
    "carry_out",
    "covered_by",
    "idle_rules",
    "interactive_policy",
    "is_confirmed",
    "kept_open",
    "make_agent",
    "policy_of",
    "resumed_budget",
    "ruling_of",
    "timeouts_of",
    "unmatched_in",
]


# --- Consent: the policy that the person's rules make, and what happens to a question that nobody is there to answer.

_FAIL = "--on-approval fail"
_REFUSAL = "It needs a person's approval, and nobody can be asked in this run."


def policy_of(settings: Settings) -> Policy | None:
    """Return the policy of the rules: a denial overrides a permission; None where there are no rules."""
    ruled = scoped(*rule_sets(settings.rules, "allow", "ask", "deny")) if settings.rules else None
    policy = _confined(ruled, settings)
    return policy if settings.on_approval == "pause" else Unattended(policy, f"--on-approval {settings.on_approval}")


def interactive_policy(settings: Settings, grants: Policy) -> Policy | None:
    """Return the policy of a conversation: what a person allows while it continues comes after all denials and questions."""
    stricter, looser = rule_sets(settings.rules, "ask", "deny"), rule_sets(settings.rules, "allow")
    return _confined(first_of(scoped(*stricter), grants, scoped(*looser)), settings)


def _confined(policy: Policy | None, settings: Settings) -> Policy | None:
    if settings.sandbox == "off":
        return policy
    return Confined(policy, partial(_confines, settings), has_network=settings.sandbox == "network")


def sandbox_of(settings: Settings) -> Bubblewrap | Landlock | None:
    """Return the sandbox of commands; None where they run as the person: they are to, or none works here and none is demanded.

    Raises:
        SandboxUnavailable: One is demanded, and none works here.
    """
    return (
        None if settings.sandbox == "off" else _found(confinement_of(settings), is_demanded=settings.sandbox != "auto")
    )


@cache  # looking for one runs a program in it
def _found(confinement: Confinement, *, is_demanded: bool) -> Bubblewrap | Landlock | None:
    try:
        return find_sandbox(confinement)
    except SandboxUnavailable:
        if is_demanded:
            raise
        return None


def _confines(settings: Settings, session: SessionView) -> bool:
    """Whether commands of a session are confined. Mode `bypass` lets all run as the person, unless a sandbox is demanded."""
    return not (settings.sandbox == "auto" and session.mode == "bypass") and sandbox_of(settings) is not None


def confinement_of(settings: Settings) -> Confinement:
    """Return what commands may reach in the sandbox: the folder, and what the person has opened to them: places to read, the network."""
    return Confinement(
        writable=(str(settings.root.resolve()),),
        readable=settings.sandbox_read,
        hidden=settings.sandbox_hide,
        network=settings.sandbox == "network",
    )


class Confined:
    """Sends each call that can be confined into the sandbox, whoever allows it: a rule, a person, or the effect's default.

    Args:
        confines: Whether calls of a session are confined.
        has_network: Whether what is confined has the network anyway.
    """

    def __init__(
        self,
        policy: Policy | None,
        confines: Callable[[SessionView], bool] = lambda _: True,
        *,
        has_network: bool = False,
    ) -> None:
        self._policy = policy
        self._has_network = has_network
        self._confines = confines
        self.policies = (policy,)

    async def decide(self, call: CheckedCall, session: SessionView) -> Decision | None:
        is_boxed = call.tool.sandbox is not None and self._confines(session)
        is_closed = is_boxed and not self._has_network and not call.needs
        seen = msgspec.structs.replace(call, is_confined=True) if is_closed else call
        answer = self._policy.decide(seen, session) if self._policy else None
        decision = await answer if inspect.isawaitable(answer) else answer
        if not is_boxed:
            return decision
        made = decision or default_decision(call, session)
        if made.kind == "allow":
            return msgspec.structs.replace(made, kind="sandbox")
        return msgspec.structs.replace(made, consent="sandbox") if made.kind == "ask" else made


class Unattended:
    """Has a denial stand in for each question that is left when the mode has had its say, whoever asks it: also the runtime."""

    def __init__(self, policy: Policy | None, rule: str) -> None:
        self._policy = policy
        self.policies = (policy,)
        self.unattended = _Nobody(rule)

    async def decide(self, call: CheckedCall, session: SessionView) -> Decision | None:
        answer = self._policy.decide(call, session) if self._policy else None
        return await answer if inspect.isawaitable(answer) else answer


class _Nobody:
    """Denies what nobody can be asked about. An answer that a person has given before the run was resumed counts."""

    def __init__(self, rule: str) -> None:
        self._rule = rule

    def decide(self, call: CheckedCall, session: SessionView) -> Decision | None:
        return None if is_answered(call, session) else Decision(kind="deny", rule=self._rule, reason=_REFUSAL)


class StopAtDenial:
    """`--on-approval fail`: ends a run once a call was denied that needs a person, and the calls beside it are done."""

    def __init__(self, run: Run, session: Session) -> None:
        self._run = run
        self._session = session
        self._denied: dict[str, None] = {}  # tools, each once, in their order

    def __call__(self, event: AnyEvent) -> None:
        if isinstance(event, CallDecided) and event.rule == _FAIL:
            self._denied[event.tool] = None
        if self._denied and not self._session.state.has_open_calls:
            names = list(self._denied)
            message = f"Denied by {_FAIL}: {', '.join(names)} needs a person's approval. Allow it beforehand with --allow {names[0]}."
            self._run.stop(StopReason.TASK_DENIED, message)


# --- Running: one run from its first event to its exit code, with signals, progress, output and the closing lines.

_AN_HOUR = 3600
_MAX_DENIED = 5
"""Denials that are listed one by one."""


async def carry_out(run: Run, session: Session, *, settings: Settings, options: Options, terminal: Terminal) -> int:
    """Show a run until it ends, and return its exit code.

    Raises:
        TreadleError: What the run raised.
    """
    progress, screen = Progress(terminal), screen_for(options, terminal)
    notifier = Notifier(settings.notify, settings.notify_after_seconds, terminal.err, time.monotonic)
    for state in session.state.open.values():
        progress.know_open(state.call, state.decision)
    run.subscribe(progress.on_any_event, children=True)
    if screen.shows_children:
        run.subscribe(screen.on_event, children=True)
    if settings.on_approval == "fail":
        run.subscribe(StopAtDenial(run, session), children=True)
    below: list[CallDecided] = []  # denied calls of agents that carry out calls
    run.subscribe(lambda event: below.append(event) if _is_denied_below(event) else None, children=True)
    with _listening(terminal) as signals:
        try:
            result = await _watched(run, signals, progress, screen, terminal)
        except asyncio.CancelledError:
            if signals.received is None:
                raise
            terminal.say("treadle: cancelled before the run started.")
            return exit_code(StopReason.CANCELLED, signals.received)
    report = result.report()
    screen.conclude(report)
    notifier.notify("a call is waiting for you" if result.approvals else f"the run has ended ({result.reason})")
    denied = [(one.tool, one.rule, one.reason) for one in result.denials]
    terminal.say_lines(_denied([*denied, *((one.tool, one.rule, one.reason) for one in below)]))
    _last_words(result, report, session, options, terminal)
    if result.unstored:
        terminal.say(_not_stored(result, session))
        return EXIT_NOT_STORED
    return exit_code(result.reason, signals.received, is_in_doubt=bool(result.in_doubt))


async def _watched(run: Run, signals: "_Signals", progress: Progress, screen: Screen, terminal: Terminal) -> RunResult:
    async with run:
        async for event in run:
            if not screen.shows_children:
                screen.on_event(event)
            progress.on_event(event)
            if isinstance(event, JournalDegraded):
                failed = "the journal failed; the run continues, and its events wait in memory. "
                terminal.say(f"treadle: {'' if event.is_over else failed}{event.message}")
            # Before its first step a run has nothing to cancel; a signal that came then is passed on now.
            if not isinstance(event, RunStarted | RunResumed | MessageAdded):
                signals.pass_on_to(run)
        return run.result


# --- signals ---------------------------------------------------------------------------------------------------------


class _Signals:
    """What a person or the system asked for from outside."""

    def __init__(self, terminal: Terminal) -> None:
        self.received: int | None = None
        self._terminal = terminal
        self._run: Run | None = None

    def pass_on_to(self, run: Run) -> None:
        self._run = run
        if self.received is not None:
            self._cancel(run)

    def on_signal(self, number: int) -> None:
        if self.received is not None:
            if number == signal.SIGINT:
                os._exit(128 + signal.SIGINT)  # the person insists; what is recorded is safe
            return
        self.received = number
        self._terminal.note_column(len("^C"))
        self._terminal.say(
            f"treadle: {signal.Signals(number).name} received: stopping the run, which can be resumed. Press Ctrl-C again to quit at once."
        )
        if self._run is not None:
            self._cancel(self._run)

    def _cancel(self, run: Run) -> None:
        run.cancel(by=signal.Signals(self.received or signal.SIGINT).name)


@contextmanager
def _listening(terminal: Terminal) -> Iterator[_Signals]:
    signals = _Signals(terminal)
    is_nohup = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN  # it asked that SIGHUP be ignored
    with on_signals(signals.on_signal, signal.SIGINT, signal.SIGTERM, *(() if is_nohup else (signal.SIGHUP,))):
        yield signals


# --- endings ---------------------------------------------------------------------------------------------------------


def _last_words(
    result: RunResult, report: dict[str, Any], session: Session, options: Options, terminal: Terminal
) -> None:
    """Tell, on standard error, what the answer alone does not."""
    for doubt in result.in_doubt:
        then = f" is in doubt: find out how it ended, then: treadle resolve {doubt.key}{same_journal(options)} ..."
        terminal.call("  ", doubt.tool, doubt.arguments, then=then)
    if result.advice:
        terminal.say(f"treadle: {for_terminal(result.advice)}")
    if result.completed:
        if report["failed_tool_calls"]:
            terminal.say(_warning(report))
        return
    terminal.say(
        f"treadle: {result.status} ({result.reason}): {for_terminal(f'{_sentence(result)} {result.next_step}')}"
    )
    for approval in result.approvals:
        then = f": treadle approve {approval.id}{same_journal(options)}"
        terminal.call("  ", approval.tool, approval.arguments, then=then)
    if result.reason is StopReason.INPUT_REQUIRED and session.state.question is not None:
        terminal.say(f'  to answer: treadle answer {result.session_id} "ANSWER"{same_journal(options)}')
    if result.reason is not StopReason.CONTEXT_OVERFLOW:
        terminal.say(f"  then: {resuming(session)}{_larger_limit(result)}{same_world(options)}")


def _is_denied_below(event: AnyEvent) -> TypeGuard[CallDecided]:
    return isinstance(event, CallDecided) and event.parent_call is not None and event.decision == "deny"


def _denied(denials: Iterable[tuple[str, str, str]]) -> list[str]:
    """Say which calls were denied, and by what: whoever reads the answer alone would not know."""
    found = Counter(denials)
    lines = []
    for (tool, rule, reason), count in list(found.items())[:_MAX_DENIED]:
        times = f" {count} times" if count > 1 else ""
        lines.append(
            f"denied: {shown_name(tool)}{times} ({one_line(rule)})" + (f": {one_line(reason, 300)}" if reason else "")
        )
    return lines + [f"denied: {len(found) - _MAX_DENIED} more"] * (len(found) > _MAX_DENIED)


def _larger_limit(result: RunResult) -> str:
    """Return the flag that lets a run at its limit continue, a blank before it: twice the limit, or an hour from now."""
    reached = result.stop.reached
    if reached is None:
        return ""
    if "deadline" in (result.stop.details or {}):
        later = datetime.fromtimestamp(time.time() + _AN_HOUR, UTC).isoformat(timespec="seconds")
        return f" --deadline {later}"
    larger = 2 * max(Decimal(str(reached.limit)), Decimal(str(reached.used))) or Decimal(1)
    return f" --{reached.budget.replace('_', '-')} {larger.normalize():f}"


def _not_stored(result: RunResult, session: Session) -> str:
    what = "the last event" if result.unstored == 1 else f"the last {result.unstored} events"
    return f"treadle: not stored: the journal {session.journal.location} is missing {what} of session {result.session_id}. Keep this answer: the journal does not have it."


def _sentence(result: RunResult) -> str:
    if result.reason is StopReason.APPROVAL_REQUIRED:
        return (
            f"{len(result.approvals)} {'call is' if len(result.approvals) == 1 else 'calls are'} waiting for approval."
        )
    return result.message


def _warning(report: dict[str, Any]) -> str:
    failed = [call for call in report["tool_calls"] if call["status"] != "ok"]
    kinds = list(dict.fromkeys(f"{shown_name(call['name'])}: {call['status']}" for call in failed))
    shown = ", ".join(kinds[:5]) + (", ..." if len(kinds) > 5 else "")
    return f"warning: the answer follows {len(failed)} failed {'call' if len(failed) == 1 else 'calls'} ({shown})"


# --- Making: from settings to an agent, checked, and the limits with which a run is resumed. Opens no session.

_UNTRUSTED: dict[str, Literal["untrusted"]] = {"fetch": "untrusted", "mcp__*": "untrusted"}
"""Tools whose results strangers write."""


def timeouts_of(model: str, settings: Settings) -> Timeouts | None:
    """Return the limits of a request's time that were given; None where none was.

    Args:
        model: Its name. A server on the person's own machine has more time for what was not given.
    """
    given = {name: seconds for name in MODEL_SECONDS if (seconds := getattr(settings, name)) is not None}
    if not given:
        return None
    others = {"first_byte_seconds": 900.0, "idle_seconds": 300.0} if model.partition(":")[0] in local_servers() else {}
    limits = {**others, **given}
    return Timeouts(**limits, total_seconds=max(3600.0, *limits.values()))


def make_agent(
    settings: Settings,
    model: str | None,
    *,
    tools: Sequence[Tool | Toolset] | None = None,
    policy: Policy | None = None,
    instructions: str | None = None,
    options: Options | None = None,
    driver: Driver | None = None,
    snapshots: Snapshots | None = None,
) -> Agent:
    """Put the agent together and check all of it: what is wrong is reported before a session is opened or a model asked.

    Args:
        tools: None for those of the settings.
        policy: None for that of the settings' rules.
        instructions: Where the person gives none.
        options: What the person gave for the model: its options, instructions, and the form of the answer.
        driver: None for the model's own.
        snapshots: What keeps the files of the folder from before each run; None for none.

    Raises:
        ConfigurationError: The model, its key, a tool or a rule is wrong.
    """
    if model is None:
        raise UsageError(
            "No model is named. There are three ways: -m demo needs no key and no network; a model server of your own needs no key, "
            "such as -m ollama:NAME (`treadle doctor` lists what runs here); a vendor's model needs its key, such as OPENAI_API_KEY and "
            "-m openai-chat:gpt-5-mini. TREADLE_MODEL, or `model` in your configuration, keeps your choice."
        )
    if settings.config is not None:  # it is protected like the person's own file, by programs started from here too
        os.environ["TREADLE_CONFIG"] = absolute(settings.config)
    use_stored_keys()
    given = options or Options()
    guidance = guidance_of(settings)
    own = instructions if settings.system is None else instructions_of(settings.system, settings.held)
    chosen = load_tools(settings) if tools is None else tools
    has_own = any(isinstance(one, Tool) and one.name == "skill" for one in chosen)
    runs_commands = settings.sandbox != "auto" or any(
        not isinstance(one, Tool) or one.sandbox is not None or one.resumes  # an agent, whose tools are not known here
        for one in chosen
    )
    agent = Agent(
        resolve_model(
            absolute_model(model),
            base_url=settings.base_url,
            price=settings.price,
            facts=settings.facts,
            options=settings.model_options,
            text_calls=settings.text_calls,
            error_form=settings.error_form,
            timeouts=timeouts_of(model, settings),
        ),
        tools=(*chosen, *_reading_on(chosen), *(() if has_own else skill_tools(guidance))),
        policy=policy_of(settings) if policy is None else policy,
        sandbox=sandbox_of(settings) if runs_commands else None,
        hooks=(*_hooks(settings), *(() if snapshots is None else snapshots.hooks())),
        compiler=Labelled(WholeHistory(), _UNTRUSTED),
        compactor=Tiers(ClearResults(), Handoff()),
        instructions="\n\n".join(part for part in (own, surroundings_of(settings), guidance.instructions.text) if part)
        or None,
        output=None if given.schema is None else schema_of(given.schema),
        driver=driver,
        subscribers=telemetry(),
        budget=settings.budget,
        profile=settings.profile,
        guards=settings.guards,
        on_limit=settings.on_limit,
        approval_seconds=settings.approval_seconds,
    )
    agent.check()
    return agent


@asynccontextmanager
async def kept_open(agent: Agent) -> AsyncGenerator[Agent]:
    """Keep the MCP servers of an agent open for all that it does, but not for tenants: a server may carry state from one to another.

    Its other toolsets keep something by session: each run opens them.
    """
    shared = {id(one): Shared(one) for one in agent.toolsets if isinstance(one, McpTools)}
    if not shared:
        yield agent
        return
    toolsets = [_SharedByNoTenants(one, shared[id(one)]) if id(one) in shared else one for one in agent.toolsets]
    holder = Agent("demo", tools=[*shared.values()])  # it never runs
    async with holder.open(in_background=True):
        yield agent.replace(tools=[*agent.tools, *toolsets])


class _SharedByNoTenants:
    """A toolset that runs share, except those of a tenant."""

    def __init__(self, own: Toolset, shared: Toolset) -> None:
        self._own = own
        self._shared = shared
        self.name = own.name

    def open(self, ctx: ToolsetContext) -> AbstractAsyncContextManager[OpenToolset]:
        return (self._own if ctx.session.state.metadata.get("tenant") else self._shared).open(ctx)


def _hooks(settings: Settings) -> list[Hook]:
    found: list[Hook] = []
    for file in settings.hooks:
        content = settings.held.content_of(file)
        if content is None:
            found += command_hooks(file, folder=settings.root)
        else:
            table = json_object(f"The hooks of {file}", content)
            found += command_hooks(table, folder=settings.root, is_approved=settings.held.is_approved)
    return found


def _reading_on(chosen: Sequence[Tool | Toolset]) -> tuple[Tool, ...]:
    """Return the tool that reads on in results that were shortened, offered once the session has one: their marks name it."""
    if any(one.name == "read_artifact" for one in chosen):
        return ()
    return (msgspec.structs.replace(artifact_tool(), visible=lambda session: bool(session.state.artifacts)),)


def resumed_budget(session: Session, settings: Settings) -> Budget:
    """Return the run's own limits, with those that were given for this call."""
    run = session.state.run
    if run is None or run.budget is None:
        return settings.budget
    stored: Any = msgspec.convert(run.budget, Budget)
    return Budget(**{**msgspec.structs.asdict(stored), **settings.overriding})


# --- Ruling: what a rule covers, as a sentence, and what the rules make of one call. Runs no tool.

_KINDS = ("allow", "ask", "deny", "sandbox", "draft")


class Ruling(msgspec.Struct, frozen=True, kw_only=True):
    """What would happen to a call."""

    decision: str
    """`allow`, `ask`, `deny`, `sandbox` or `draft`; `invalid` for a call that can never run."""
    rule: str
    scope: str
    reason: str
    rules: tuple[str, ...] = ()
    """Rules that would spare the question."""


def idle_rules(unmatched: Iterable[UnmatchedRule]) -> list[str]:
    """Return what a person is told, before a run, of the rules that match no call of its tools: those that deny first.

    Not of a permission of their own file for a tool that is not here: it harms nobody, and is listed by `treadle permissions`.
    """
    return [
        f"warning: {one.message}"
        for one in unmatched
        if one.kind != "allow" or one.near or one.scope in ("session", "project")
    ]


def unmatched_in(settings: Settings) -> tuple[UnmatchedRule, ...]:
    """Return the rules of the settings that match no call of the tools that a conversation has."""
    return Agent("demo", tools=known_tools(settings), policy=policy_of(settings)).unmatched_rules()


def covered_by(rule: str) -> str:
    """Say in one sentence which calls a rule covers."""
    return deny(rule).rules[0].covers


def arguments_of(tool: Tool, given: str | None) -> dict[str, Any]:
    """Return the arguments of a call: one JSON object, or the text of the tool's first required parameter.

    Raises:
        UsageError: They cannot be determined.
    """
    if given is None:
        return {}
    try:
        found = json.loads(given)
    except (ValueError, RecursionError):
        found = None
    if isinstance(found, dict):
        return found
    required = tool.parameters.get("required") or list(tool.parameters.get("properties", {}))
    if not required:
        raise UsageError(f"{tool.name} takes no arguments; got {given[:80]!r}.")
    return {required[0]: given}


async def ruling_of(tool: Tool, arguments: dict[str, Any], settings: Settings | None = None) -> Ruling:
    """Return what would happen to a call, by the way that calls go in a run: only the tool's own function is left out.

    Hooks are not asked: they are programs.

    Args:
        settings: With the rules, the mode and the sandbox; None for no rules, mode `ask` and no sandbox.
    """
    from treadle.testing import ScriptedModel, call, text  # noqa: PLC0415 - as above

    harmless = msgspec.structs.replace(
        tool, run=_nothing, output_schema=None, error_schema=None, resumes=False, check=None
    )
    events: list[Any] = []
    model = ScriptedModel([call(tool.name, **arguments), text("That was all.")])
    agent = Agent(
        model,
        tools=[harmless],
        policy=None if settings is None else policy_of(settings),
        sandbox=None if settings is None else sandbox_of(settings),
        subscribers=[events.append],
    )
    async with open_session("memory:") as session:
        if settings is not None and settings.mode != "ask":
            await session.set_mode(settings.mode)
        result = await agent.run("What would happen to this call?", session=session)
    decided = next((one for one in events if isinstance(one, CallDecided)), None)
    asked = next((one for one in events if isinstance(one, ApprovalRequested)), None)
    if decided is None or decided.decision not in _KINDS:
        told = [one.content for message in result.messages for one in message.results]
        return Ruling(decision="invalid", rule="", scope="", reason=str(told[0]) if told else "")
    return Ruling(
        decision=decided.decision,
        rule=decided.rule,
        scope=decided.scope,
        reason=decided.reason,
        rules=() if asked is None else asked.rules,
    )


async def _nothing(arguments: object, ctx: object) -> None: ...


# --- Confirming: a question before an act with wide effects, where a person is at the terminal. A script is not asked:
# its command says it.


def is_confirmed(question: str, terminal: Terminal) -> bool:
    """Return whether the act is to happen: only `y` or `yes` at a terminal, always elsewhere."""
    try:
        is_person = terminal.is_live and os.isatty(0)
    except OSError:
        is_person = False
    if not is_person:
        return True
    with _interrupted_by_ctrl_c():  # from before the question is seen: Ctrl-C at once counts, too
        terminal.prompt(f"{question} [y/N] ")
        answer = sys.stdin.readline()
    if not answer.endswith("\n"):  # Ctrl-D: the cursor is still behind the question
        terminal.write("\n")
    terminal.note_column(0)
    return answer.strip().casefold() in ("y", "yes")


@contextmanager
def _interrupted_by_ctrl_c() -> Iterator[None]:
    """Let Ctrl-C end a read within `asyncio.run`, whose own handler waits for the task to end."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
