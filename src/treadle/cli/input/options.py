"""Options: the commands and flags, and what a person gave of them. Reads the command line only; acts on nothing."""

import argparse
import re
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import msgspec

from treadle.cli.exits import UsageError
from treadle.cli.input.flags import (
    Flags,
    Mode,
    OnApproval,
    OnLimit,
    Sandbox,
    add_id,
    add_json,
    add_limits,
    add_listing,
    add_output,
    add_places,
    add_running,
)
from treadle.cli.input.mcp_options import add_acp, add_mcp, add_program, split_program
from treadle.cli.input.near import hint_for, instead_of_command, instead_of_option
from treadle.cli.input.person_options import add_answer, add_approve, add_resolve
from treadle.cli.input.readers import LONGEST_SECONDS, parted, port, seconds
from treadle.cli.input.session_options import ACTIONS, add_actions, add_filters
from treadle.cli.input.setup_options import (
    add_completion,
    add_config_command,
    add_doctor,
    add_models,
    add_trust,
)
from treadle.cli.input.task_options import add_chat, add_goal, add_resume, add_run
from treadle.cli.input.tool_options import add_permissions, add_tools
from treadle.cli.input.worker_options import add_submit, add_worker, add_workers

__all__ = [
    "APPROVAL_SECONDS",
    "COMMANDS",
    "LONGEST_SECONDS",
    "Mode",
    "OnApproval",
    "OnLimit",
    "Options",
    "Sandbox",
    "flags_of",
    "help_text",
    "parse",
]

APPROVAL_SECONDS = 7 * 86400.0
"""How long a person may take to answer where nothing else is said, as for `Agent`."""

COMMANDS = {
    "chat": "chat with a model in this terminal; `treadle` alone does the same",
    "run": "run one task",
    "goal": "work on the goal in a file until its validation passes",
    "resume": "resume a run that was paused, stopped or interrupted",
    "sessions": "list sessions; show, explain, fork, rewind, export, import or delete one",
    "approvals": "list the calls that are waiting for approval",
    "approve": "allow or deny a call that is waiting for approval",
    "answer": "answer the question that a paused run asks",
    "doubts": "list the calls whose outcome is unknown",
    "resolve": "record the outcome of a call in doubt",
    "submit": "queue a task for a worker that has its agent",
    "worker": "run submitted tasks until a signal stops it",
    "workers": "list the workers on a journal, and what each of them is running",
    "cancel": "cancel a run that is active, paused or interrupted",
    "budgets": "show the ten budgets, and how much of each a session has used",
    "permissions": "list the permission rules in effect and where each comes from, or test them on a call",
    "tools": "list the tools, or check their contracts",
    "describe": "show the agent that these options and the configuration define",
    "mcp": "list, add, remove, approve or test MCP servers; serve an agent to an MCP client",
    "acp": "serve an agent to an editor that speaks the Agent Client Protocol, such as Zed",
    "models": "list known models, or the models a server offers: context windows, limits, prices",
    "config": "show the configuration, and where each value comes from",
    "trust": "list trusted folders, or trust a folder so that its own rules and hooks apply",
    "demo": "run a demonstration from start to end: no key, no network",
    "replay": "replay a recorded session as it happened, without running anything",
    "doctor": "check this machine, and name the next step",
    "completion": "print a shell completion script for this program",
    "mock": "serve a script as a strict mock provider on this machine",
}


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What a person gave on the command line; None or empty for what was left out."""

    command: str
    action: str | None = None
    """The action after the command, such as `show`."""
    task: str | None = None
    id: str | None = None
    ids: list[str] = []
    """Of sessions."""
    new_id: str | None = None
    """Of a session that is to be made."""
    name: str | None = None
    """Of a mark, or a worker."""
    at: int | str | None = None
    """A point of a session: an event's number or a mark."""
    step: int | None = None
    message: int | None = None
    file: str | None = None
    target: str | None = None
    """The journal that a session is moved to."""
    takes_open: bool = False
    older_than_days: float | None = None
    is_purged: bool = False
    is_exact: bool = False
    form: str | None = None
    """In which a session is exported; None for that of the file's name."""
    is_unpaged: bool = False
    """Whether a long text goes to the terminal as it is."""
    is_open_too: bool = False
    """Whether a deletion takes also sessions in which something waits for a person."""
    shows_deleted: bool = False
    is_last: bool = False
    script: str | None = None
    port: int = 0
    record: str | None = None
    is_denied: bool = False
    scope: str = "once"
    """How far the consent to a call reaches."""
    reason: str = ""
    by: str | None = None
    """Who answers; None for the login."""
    arguments: str | None = None
    """Edited arguments of a call, as JSON."""
    done: str | None = None
    """The result of a call in doubt, as JSON."""
    is_not_done: bool = False
    is_unknown: bool = False
    session: str | None = None
    """The session that a call belongs to."""
    states: list[str] = []
    """Only sessions in one of these states."""
    match: str | None = None
    """Only sessions whose task or id holds this."""
    limit: int | None = None
    """At most so many sessions."""
    tenant: str | None = None
    """Only sessions of this tenant; empty for those of none. Of a task: whose it is."""
    parent: str | None = None
    """Only forks of this session, and sessions that carry out its calls."""
    since: float | None = None
    """Only sessions changed since, in seconds since 1970."""
    agent: str | None = None
    agents: list[str] = []
    tenants: list[str] = []
    concurrency: int = 4
    worker_limits: list[str] = []
    """Limits over all workers, each as NAME and words such as sessions=20."""
    drain_seconds: float = 30.0
    health_port: int | None = None
    log_format: str = "text"
    queue: str = "journal"
    priority: int = 0
    begins_at: float | None = None
    """Seconds since 1970."""
    key: str | None = None
    is_waiting: bool = False
    after: int = 0
    """The number of an event."""
    command_line: list[str] = []
    """Of an MCP server: its program and arguments, or its address."""
    variables: list[str] = []
    headers: list[str] = []
    place: str | None = None
    """Whose file of MCP servers: `user` or `project`."""
    offer: str = "agent"
    """What an MCP client is offered: `agent`, `tools` or `both`."""
    description: str | None = None
    """Of the agent that is offered."""
    after_session: str | None = None
    """Of a list: the last session of the page before."""
    http_port: int | None = None
    """Of this machine, where MCP clients come in over HTTP; 0 for a free one."""
    has_no_token: bool = False
    """Whether every program of this machine may come in there."""
    model: str | None = None
    base_url: str | None = None
    offered: bool = False
    """Whether a server is asked which models it offers."""
    model_options: dict[str, Any] = {}
    """Further fields of each request to the model."""
    system: str | None = None
    """Instructions for the model, or `@` and a file."""
    schema: str | None = None
    """A file with the JSON Schema of the answer."""
    is_single_turn: bool = False
    """Whether the model may call tools in one response only."""
    attached: list[str] = []
    """Files that go along with the task."""
    mode: Mode | None = None
    """How much happens without a question; None to leave the session's."""
    sandbox: Sandbox | None = None
    """Whether commands are confined."""
    journal: str | None = None
    deadline: float | None = None
    """Seconds since 1970."""
    limits: dict[str, Any] = {}
    """Budgets by name: int, float, Decimal or None."""
    on_limit: OnLimit | None = None
    on_approval: OnApproval | None = None
    approval_seconds: float | None = None
    """How long a person may take to answer."""
    accepts_change: bool = False
    """Whether a run that a program's agent began continues with the command line's agent."""
    remembered: tuple[str, ...] = ()
    """Names of the options that no one gave this time: the session remembers them."""
    allow: list[str] = []
    ask: list[str] = []
    deny: list[str] = []
    tools: list[str] = []
    recorded: list[str] = []
    """Files of recorded calls."""
    runs_again: bool = False
    """Whether recorded calls are made again."""
    config: str | None = None
    profile: str | None = None
    folder: str | None = None
    shows_origin: bool = False
    """Whether the origin of each value is asked for; it is always shown."""
    as_json: bool = False
    as_lines: bool = False
    speed: float | None = None
    """How many times as fast as it happened."""
    is_bare: bool = False
    """Whether what comes with the folder, hooks, skills and built-in instructions are left out."""
    is_quiet: bool = False
    is_verbose: bool = False


def parse(arguments: Sequence[str]) -> Options:
    """Read a command line.

    Raises:
        UsageError: It cannot be understood; the message says what to write instead.
        SystemExit: Help or the version was asked for, and printed.
    """
    arguments = _with_command(arguments)
    _check_command(arguments)
    parser = _parser()
    words, program = split_program(arguments)
    namespace, unknown = parser.parse_known_args(words)
    given = vars(namespace)
    if program is not None:  # what argparse would take for more arguments of ours
        given["command_line"], unknown = add_program(given.get("command_line", []), unknown, program)
    if unknown:
        _refuse(unknown[0], str(given.get("command")))
    if given.get("tools"):
        given["tools"] = [part for source in given["tools"] for part in parted(source)]
    return Options(**given)


def help_text() -> str:
    """Return what `treadle --help` prints."""
    return _parser().format_help()


def _with_command(arguments: Sequence[str]) -> Sequence[str]:
    """Return a command line with its command: options without one begin a conversation.

    Raises:
        UsageError: They are before a command.
    """
    if not arguments or not arguments[0].startswith("-") or arguments[0] in ("-h", "--help", "--version"):
        return arguments
    talk = ["chat", *arguments]
    message = vars(_parser().parse_known_args(talk)[0]).get("task")
    if message in COMMANDS:
        _misplace(arguments[0], message)
    return talk


def _check_command(arguments: Sequence[str]) -> None:
    word = next((word for word in arguments if not word.startswith("-")), None)
    if not arguments or arguments[0].startswith("-") or word in COMMANDS:
        return
    hint = instead_of_command(str(word), ACTIONS) or hint_for(str(word), COMMANDS).strip()
    raise UsageError(f"Unknown command {word!r}.{hint and ' '}{hint} To list all: treadle --help")


def _refuse(unknown: str, command: str) -> NoReturn:
    if not unknown.startswith("-"):
        raise UsageError(
            f"Unexpected {unknown[:80]!r} after `treadle {command}`: put quotes around an argument with spaces."
        )
    flag = unknown.partition("=")[0]
    taken = _all_flags_of(command)
    known = [one for one in taken if one.startswith("--")]
    if flag in known:
        _misplace(flag, command)
    hint = instead_of_option(flag, taken) or hint_for(flag, known).strip()
    raise UsageError(f"Unknown option {flag!r}.{hint and ' '}{hint} `treadle {command} --help` lists all.")


def _misplace(flag: str, command: str) -> NoReturn:
    raise UsageError(f"Write {flag} after the command: `treadle {command} ... {flag}`.")


class _Formatter(argparse.HelpFormatter):
    """argparse's, with one word for all options in the usage: the lists below it name them."""

    def add_usage(self, usage: Any, actions: Any, groups: Any, prefix: Any = None) -> None:  # Any: argparse's own types
        arguments = [one for one in actions if not one.option_strings]
        options = argparse.Action((), "options", metavar="[OPTIONS]")
        super().add_usage(usage, [options, *arguments], [], prefix)


class _Parser(argparse.ArgumentParser):
    """argparse with one sentence instead of a usage text for a mistake, and without guessing at shortened flags."""

    def __init__(self, **options: Any) -> None:  # Any: argparse's own keywords
        ours = {"allow_abbrev": False, "argument_default": argparse.SUPPRESS, "formatter_class": _Formatter}
        super().__init__(**{**ours, **options})
        self.flags: list[str] = []
        self._place: argparse._ActionsContainer = self

    def error(self, message: str) -> NoReturn:
        if (
            wrong := re.search(r"argument ([^:]*): invalid choice: '([^']*)' \(choose from (.*)\)$", message)
        ) is not None:
            name = wrong[1] if wrong[1].startswith("-") else wrong[1].lower()
            known = re.findall(r"[\w-]+", wrong[3])
            raise UsageError(
                f"Invalid {name} {wrong[2]!r}.{hint_for(wrong[2], known)} Choose from {', '.join(known)}. "
                f"See `{self.prog} --help`."
            )
        raise UsageError(f"{message[:1].upper()}{message[1:].rstrip('.')}. `{self.prog} --help` says how to write it.")

    def flag(self, *names: str, **options: Any) -> None:
        """Add an option."""
        self.flags.extend(names)
        self._place.add_argument(*names, **options)

    def heading(self, title: str) -> None:
        """Show the options that follow below a heading."""
        self._place = self.add_argument_group(title)


_ParserAction = argparse._SubParsersAction  # noqa: SLF001 - argparse has no public name for it


def _parser() -> _Parser:
    parser = _Parser(
        prog="treadle",
        description="Let a language model act through tools. Every call is checked against rules, recorded, limited, and run once.",
        epilog="To list the options of a command: treadle COMMAND --help. To see a first run: treadle demo",
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    commands = parser.add_subparsers(
        prog=parser.prog, title="commands", dest="command", metavar="COMMAND", required=True
    )
    for name in COMMANDS:
        _add_command(commands, name)
    return parser


def _add_command(commands: "_ParserAction[Any]", name: str) -> _Parser:
    says = COMMANDS[name]
    parser: _Parser = commands.add_parser(name, help=says, description=f"{says[0].upper()}{says[1:]}.")
    _FILLERS[name](parser)
    return parser


def flags_of(command: str) -> list[str]:
    """Return the long names of a command's flags; those of `sessions` are also its actions'."""
    return [flag for flag in _all_flags_of(command) if flag.startswith("--")]


def _all_flags_of(command: str) -> list[str]:
    return _add_command(_Parser().add_subparsers(), command).flags


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: Any, **__: Any) -> None:
        from importlib.metadata import version  # noqa: PLC0415 - slow, and rarely asked for

        print(f"treadle {version('treadle')}")
        parser.exit()


# --- what the commands take ------------------------------------------------------------------------------------------


def _add_sessions(parser: _Parser) -> None:
    add_listing(parser)
    add_filters(parser)
    add_actions(parser.add_subparsers(prog=parser.prog, title="actions", dest="action", metavar="ACTION"))


def _add_cancel(parser: Flags) -> None:
    add_id(parser, "the session", "the most recently changed session")
    add_listing(parser)


def _add_budgets(parser: Flags) -> None:
    parser.add_argument("id", nargs="?", metavar="SESSION", help="show what the last run of this session has used")
    parser.flag("--last", dest="is_last", action="store_true", help="the most recently changed session")
    add_limits(parser)
    add_places(parser)
    add_json(parser)


def _add_replay(parser: Flags) -> None:
    parser.add_argument(
        "id", nargs="?", metavar="ID", help="the session, or a file written by `treadle sessions export`"
    )
    parser.flag("--last", dest="is_last", action="store_true", help="the most recently changed session")
    parser.flag(
        "--speed",
        type=seconds,
        metavar="N",
        help="replay N times as fast (default: 1 at a terminal, otherwise all at once)",
    )
    add_listing(parser)


def _add_demo(parser: Flags) -> None:
    add_limits(parser)
    add_places(parser)
    add_output(parser)


def _add_mock(parser: Flags) -> None:
    parser.add_argument("script", metavar="SCRIPT", help="a JSON file with the model's turns")
    parser.flag("--port", type=port, metavar="N", help="the port to listen on (default 0: any free port)")
    parser.flag("--record", metavar="FILE", help="write each request to this file as a line of JSON")


_FILLERS: dict[str, Callable[[_Parser], None]] = {
    "chat": add_chat,
    "run": add_run,
    "goal": add_goal,
    "resume": add_resume,
    "sessions": _add_sessions,
    "approvals": add_listing,
    "approve": add_approve,
    "answer": add_answer,
    "doubts": add_listing,
    "resolve": add_resolve,
    "submit": add_submit,
    "worker": add_worker,
    "workers": add_workers,
    "cancel": _add_cancel,
    "budgets": _add_budgets,
    "permissions": add_permissions,
    "tools": add_tools,
    "describe": add_running,
    "mcp": add_mcp,
    "acp": add_acp,
    "models": add_models,
    "config": add_config_command,
    "replay": _add_replay,
    "trust": add_trust,
    "demo": _add_demo,
    "doctor": add_doctor,
    "completion": add_completion,
    "mock": _add_mock,
}
