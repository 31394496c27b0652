"""Options: the commands and flags, and what a person gave of them. Reads the command line only; acts on nothing."""

import argparse
import difflib
import re
from collections.abc import Sequence
from typing import Any, Literal, NoReturn, TypeAlias, get_args

import msgspec

from treadle import Budget, ConfigurationError
from treadle.cli.exits import UsageError
from treadle.cli.input.person_options import add_approve, add_resolve
from treadle.cli.input.readers import LONGEST_SECONDS, instant, limit_reader, port, seconds
from treadle.cli.input.session_options import ACTIONS, add_actions, add_filters
from treadle.cli.input.task_options import add_model_flags, add_task_flags
from treadle.cli.input.worker_options import add_submit, add_worker, add_workers

__all__ = [
    "APPROVAL_SECONDS",
    "COMMANDS",
    "LONGEST_SECONDS",
    "Mode",
    "OnApproval",
    "OnLimit",
    "Options",
    "flags_of",
    "help_text",
    "parse",
]

Mode: TypeAlias = Literal["plan", "ask", "accept-edits", "deny-unlisted", "bypass"]
OnLimit: TypeAlias = Literal["summarize", "report"]
OnApproval: TypeAlias = Literal["pause", "deny", "fail"]

APPROVAL_SECONDS = 7 * 86400.0
"""How long a person may take to answer where nothing else is said, as for `Agent`."""

COMMANDS = {
    "chat": "talk with a model at this terminal, as `treadle` alone does",
    "run": "carry out one task",
    "goal": "work on the goal of a file until its validation passes",
    "resume": "resume a run that was paused, stopped or broke off",
    "sessions": "list sessions; show, explain, fork, rewind, export, import or delete one",
    "approvals": "list the calls that wait for a person",
    "approve": "allow (or --deny) a call that waits",
    "doubts": "list the calls whose outcome is unknown",
    "resolve": "record how a call of unknown outcome ended",
    "submit": "store a task for whichever worker has its agent",
    "worker": "carry out what was submitted, until a signal ends it",
    "workers": "list who works on a journal, and on what",
    "cancel": "cancel a run that is live, paused, or broke off",
    "budgets": "show the ten budgets, and what a session has used of them",
    "tools": "list the tools, or check their contracts",
    "models": "list what is known of models: windows, limits, inputs, prices",
    "config": "show what is configured, and where it comes from",
    "trust": "list, approve or revoke the folders whose own rules and hooks count",
    "demo": "show a whole run: no key, no network",
    "doctor": "check this machine, and say the one next thing to do",
    "completion": "print what makes a shell complete this program's words",
    "mock": "serve a script as a strict model provider on this machine",
}


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What a person gave on the command line; None or empty for what was left out."""

    command: str
    action: str | None = None
    """The word after the command, such as `show`."""
    task: str | None = None
    id: str | None = None
    """Of a session or an approval."""
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
    is_open_too: bool = False
    """Whether a deletion takes also sessions in which something waits for a person."""
    shows_deleted: bool = False
    is_last: bool = False
    script: str | None = None
    port: int = 0
    record: str | None = None
    is_denied: bool = False
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
    words: str | None = None
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
    drain_seconds: float = 30.0
    priority: int = 0
    begins_at: float | None = None
    """Seconds since 1970."""
    key: str | None = None
    is_waiting: bool = False
    after: int = 0
    """The number of an event."""
    model: str | None = None
    base_url: str | None = None
    model_options: dict[str, Any] = {}
    """Further fields of each request to the model."""
    system: str | None = None
    """Instructions for the model, or `@` and a file."""
    schema: str | None = None
    """A file with the JSON Schema of the answer."""
    attached: list[str] = []
    """Files that go along with the task."""
    mode: Mode | None = None
    """How much happens without a question; None to leave the session's."""
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
    deny: list[str] = []
    tools: list[str] = []
    config: str | None = None
    profile: str | None = None
    folder: str | None = None
    as_json: bool = False
    as_lines: bool = False
    is_quiet: bool = False
    is_verbose: bool = False


def parse(arguments: Sequence[str]) -> Options:
    """Read a command line.

    Raises:
        UsageError: It cannot be understood; the message says what to write instead.
        SystemExit: Help or the version was asked for, and printed.
    """
    _check_command(arguments)
    parser = _parser()
    namespace, unknown = parser.parse_known_args(list(arguments))
    given = vars(namespace)
    if unknown:
        _refuse(unknown[0], str(given.get("command")))
    return Options(**given)


def help_text() -> str:
    """Return what `treadle --help` prints."""
    return _parser().format_help()


def _check_command(arguments: Sequence[str]) -> None:
    word = next((word for word in arguments if not word.startswith("-")), None)
    if not arguments or arguments[0].startswith("-") or word in COMMANDS:
        return
    raise UsageError(f"Unknown command {word!r}.{_near(str(word), COMMANDS)} `treadle --help` lists all.")


def _refuse(unknown: str, command: str) -> NoReturn:
    if not unknown.startswith("-"):
        raise UsageError(f"Unexpected {unknown[:80]!r} after `treadle {command}`: quote what belongs together.")
    flag = unknown.partition("=")[0]
    known = flags_of(command)
    if flag in known:
        raise UsageError(f"Write {flag} after the command: `treadle {command} ... {flag}`.")
    raise UsageError(f"Unknown option {flag!r}.{_near(flag, known)} `treadle {command} --help` lists all.")


def _near(word: str, known: Sequence[str] | dict[str, str]) -> str:
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f" Did you mean {near[0]}?" if near else ""


class _Parser(argparse.ArgumentParser):
    """argparse with one sentence in place of a usage text, and without guessing at shortened flags."""

    def __init__(self, **words: Any) -> None:  # Any: argparse's own keywords
        super().__init__(**{"allow_abbrev": False, "argument_default": argparse.SUPPRESS, **words})
        self.flags: list[str] = []

    def error(self, message: str) -> NoReturn:
        if (choice := re.search(r"invalid choice: '([^']*)' \(choose from (.*)\)$", message)) is not None:
            message += "." + _near(choice[1], re.findall(r"[\w-]+", choice[2]))
            raise UsageError(f"{message[:1].upper()}{message[1:]} `{self.prog} --help` lists all.")
        raise UsageError(f"{message[:1].upper()}{message[1:].rstrip('.')}. `{self.prog} --help` says how to write it.")

    def flag(self, *names: str, **words: Any) -> None:
        """Add an option."""
        self.flags.extend(names)
        self.add_argument(*names, **words)


_ParserAction = argparse._SubParsersAction  # noqa: SLF001 - argparse has no public name for it


def _parser() -> _Parser:
    parser = _Parser(
        prog="treadle",
        description="Let a language model act through tools: every call decided, recorded, bounded, and done once.",
        epilog="`treadle COMMAND --help` lists its flags. Try `treadle demo`.",
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
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
    return [flag for flag in _add_command(_Parser().add_subparsers(), command).flags if flag.startswith("--")]


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: Any, **__: Any) -> None:
        from importlib.metadata import version  # noqa: PLC0415 - slow, and rarely asked for

        print(f"treadle {version('treadle')}")
        parser.exit()


class _StoreLimit(argparse.Action):
    """Collects the budgets in one mapping."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        limits = {**vars(namespace).get("limits", {}), self.dest: values}
        try:
            Budget(**{self.dest: values})
        except ConfigurationError as exc:
            parser.error(f"{option_string}: {str(exc).replace('None', 'none')}")
        namespace.limits = limits


# --- what the commands take ------------------------------------------------------------------------------------------


def _add_run(parser: _Parser) -> None:
    parser.add_argument(
        "task", nargs="?", help="what to do; - reads it from standard input; piped input is added to it"
    )
    parser.flag("--session", dest="id", metavar="ID", help="continue with this session (made when there is none)")
    add_task_flags(parser)
    _add_running(parser)


def _add_goal(parser: _Parser) -> None:
    parser.add_argument("task", nargs="?", metavar="FILE", help="the goal, as TOML")
    parser.flag("--session", dest="id", metavar="ID", help="the session of the work (made from the goal)")
    _add_running(parser)


def _add_chat(parser: _Parser) -> None:
    parser.add_argument("task", nargs="?", help="the first message")
    parser.flag("--session", dest="id", metavar="ID", help="continue this session (made when there is none)")
    add_task_flags(parser)
    _add_running(parser)


def _add_resume(parser: _Parser) -> None:
    parser.add_argument("id", nargs="?", metavar="ID", help="the session")
    parser.flag("--last", dest="is_last", action="store_true", help="the session that changed last")
    change = "continue a run that the agent of a program began, without that agent"
    parser.flag("--accept-change", dest="accepts_change", action="store_true", help=change)
    _add_running(parser)


def _add_running(parser: _Parser) -> None:
    parser.flag(
        "-m", "--model", metavar="NAME", help="such as openai-chat:gpt-5-mini, demo, script:FILE; else TREADLE_MODEL"
    )
    parser.flag("--base-url", metavar="URL", help="the provider's address, such as http://127.0.0.1:8080/v1")
    add_model_flags(parser)
    parser.flag("--mode", choices=get_args(Mode), help="how much happens without a question, in this session (ask)")
    _add_tools_flag(parser)
    parser.flag(
        "--allow", action="append", metavar="RULE", help="allow these calls: TOOL or TOOL(key=glob); repeatable"
    )
    parser.flag("--deny", action="append", metavar="RULE", help="deny these calls; wins over --allow; repeatable")
    parser.flag("--on-approval", choices=get_args(OnApproval), help="for a call that needs a person (default: pause)")
    parser.flag(
        "--approval-seconds", type=seconds, metavar="N",
        help="how long a person may take to answer a call that waits (default: 604800, which is 7 days)",
    )  # fmt: skip
    parser.flag(
        "--on-limit", choices=get_args(OnLimit), help="at a turn or call limit: summarize (default) or stop at once"
    )
    parser.flag("--deadline", type=instant, metavar="TIME", help="when the run must end, such as 2026-11-30T18:00")
    _add_limits(parser)
    _add_places(parser)
    _add_output(parser)


def _add_limits(parser: _Parser) -> None:
    parser.flag("--profile", metavar="NAME", help="use the limits of this profile of the configuration")
    for name in Budget.__struct_fields__:
        flags = ["--" + name.replace("_", "-")]
        flags += ["--max-turns"] if name == "max_model_turns" else []
        parser.flag(
            *flags, dest=name, action=_StoreLimit, type=limit_reader(name), metavar="N",
            help=f"budget {name}; none for no limit",
        )  # fmt: skip


def _add_tools_flag(parser: _Parser) -> None:
    parser.flag(
        "--tools", action="append", metavar="WHAT",
        help="grep,glob,read,list (the default), FILE.py or module:attr; repeatable",
    )  # fmt: skip


def _add_places(parser: _Parser) -> None:
    _add_journal(parser)
    _add_config(parser)


def _add_config(parser: _Parser) -> None:
    parser.flag("-C", dest="folder", metavar="DIR", help="root of the file tools and of the project's configuration")
    parser.flag("--config", metavar="FILE", help="a configuration file that overrides the others")


def _add_journal(parser: _Parser) -> None:
    parser.flag(
        "--journal", metavar="PATH",
        help="the file of all sessions, or postgresql://...; else TREADLE_JOURNAL, else the state folder's",
    )  # fmt: skip


def _add_json(parser: _Parser) -> None:
    parser.flag("--json", dest="as_json", action="store_true", help="write JSON to standard output")


def _add_output(parser: _Parser) -> None:
    _add_json(parser)
    parser.flag(
        "--stream-json",
        dest="as_lines",
        action="store_true",
        help="write every event as a line of JSON, the report last",
    )
    parser.flag("-q", "--quiet", dest="is_quiet", action="store_true", help="show no progress on standard error")
    parser.flag("-v", "--verbose", dest="is_verbose", action="store_true", help="show decisions and retries too")


def _add_sessions(parser: _Parser) -> None:
    _add_listing(parser)
    add_filters(parser)
    add_actions(parser.add_subparsers(dest="action", metavar="|".join(ACTIONS)), _add_listing)


def _add_listing(parser: _Parser) -> None:
    _add_journal(parser)
    _add_json(parser)


def _add_id(parser: _Parser, what: str, last: str) -> None:
    parser.add_argument("id", nargs="?", metavar="ID", help=f"{what}, or the beginning of its id")
    parser.flag("--last", dest="is_last", action="store_true", help=last)


def _add_cancel(parser: _Parser) -> None:
    _add_id(parser, "the session", "the session that changed last")
    _add_listing(parser)


def _add_budgets(parser: _Parser) -> None:
    parser.add_argument("id", nargs="?", metavar="SESSION", help="show what its last run has used")
    parser.flag("--last", dest="is_last", action="store_true", help="the session that changed last")
    _add_limits(parser)
    _add_places(parser)
    _add_json(parser)


def _add_tools(parser: _Parser) -> None:
    parser.add_argument(
        "action", nargs="?", default=None, choices=("check",), help="check: compile the contracts of all tools"
    )
    _add_tools_flag(parser)
    _add_config(parser)
    _add_json(parser)


def _add_models(parser: _Parser) -> None:
    parser.add_argument("name", nargs="?", default=None, metavar="NAME", help="a model or a vendor (default: all)")
    _add_json(parser)


def _add_config_command(parser: _Parser) -> None:
    parser.add_argument("action", nargs="?", default=None, choices=("show",), help="show: every value and its origin")
    _add_running(parser)


def _add_trust(parser: _Parser) -> None:
    parser.add_argument(
        "action", nargs="?", default=None, choices=("list", "approve", "revoke"), help="list (the default) or change"
    )
    parser.add_argument("name", nargs="?", default=None, metavar="FOLDER", help="the folder (this one)")
    _add_json(parser)


def _add_demo(parser: _Parser) -> None:
    _add_limits(parser)
    _add_places(parser)
    _add_output(parser)


def _add_doctor(parser: _Parser) -> None:
    _add_places(parser)
    _add_json(parser)


def _add_completion(parser: _Parser) -> None:
    parser.add_argument("action", choices=("bash", "zsh", "fish", "words"), help="the shell; words is for its scripts")
    parser.add_argument("task", nargs="?", metavar="LINE", help="with words: the line that is completed")
    _add_config(parser)
    _add_journal(parser)


def _add_mock(parser: _Parser) -> None:
    parser.add_argument("script", metavar="SCRIPT", help="a JSON file of turns")
    parser.flag("--port", type=port, metavar="N", help="the port to listen on (default 0: any free port)")
    parser.flag("--record", metavar="FILE", help="write each request to this file, as a line of JSON")


_FILLERS = {
    "chat": _add_chat,
    "run": _add_run,
    "goal": _add_goal,
    "resume": _add_resume,
    "sessions": _add_sessions,
    "approvals": _add_listing,
    "approve": lambda parser: add_approve(parser, _add_id, _add_listing),
    "doubts": _add_listing,
    "resolve": lambda parser: add_resolve(parser, _add_id, _add_listing),
    "submit": lambda parser: add_submit(parser, _add_listing),
    "worker": lambda parser: add_worker(parser, _add_running),
    "workers": lambda parser: add_workers(parser, _add_listing),
    "cancel": _add_cancel,
    "budgets": _add_budgets,
    "tools": _add_tools,
    "models": _add_models,
    "config": _add_config_command,
    "trust": _add_trust,
    "demo": _add_demo,
    "doctor": _add_doctor,
    "completion": _add_completion,
    "mock": _add_mock,
}
