"""Parser: from a command line to the options of its command, or to one sentence that says what to write instead. Acts on nothing."""

import argparse
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn, get_args, get_type_hints

import msgspec

from treadle.cli.exits import UsageError
from treadle.cli.input.commands import COMMANDS, SessionsOptions
from treadle.cli.input.near import hint_for, instead_of_command, instead_of_option
from treadle.cli.input.options import Declared, Options, Parser
from treadle.cli.input.places import names_file

__all__ = ["ACTIONS", "flags_of", "full_parser", "help_text", "parse"]

ACTIONS = {kind.command.split()[1]: kind for kind in SessionsOptions.actions}
"""What may be said after `treadle sessions`."""


def parse(arguments: Sequence[str]) -> Options:
    """Read a command line.

    Raises:
        UsageError: It cannot be understood; the message says what to write instead.
        SystemExit: Help or the version was asked for, and printed.
    """
    arguments = _with_command(arguments)
    _check_command(arguments)
    words, program = _split_program(arguments)
    namespace, unknown = _parser(arguments[0]).parse_known_args(words)
    given = vars(namespace)
    command, action = given.pop("command"), given.pop("session_action", None)
    if program is not None:  # what argparse would take for more arguments of ours
        given["command_line"], unknown = _add_program(given.get("command_line", []), unknown, program)
    if unknown:
        _refuse(unknown[0], command)
    if given.get("tools"):
        given["tools"] = [part for source in given["tools"] for part in _parted(source)]
    kind = ACTIONS[action] if action else COMMANDS[command]
    # Of an action of `sessions`, flags that stand before it are those of the list, and mean nothing.
    fields: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in given.items()
        if value is not None and name in kind.__struct_fields__
    }
    return kind(**fields)


def full_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    return _parser(*COMMANDS)


def help_text() -> str:
    """Return what `treadle --help` prints."""
    return _parser().format_help()


def flags_of(command: str) -> list[str]:
    """Return the names of a command's flags; of `sessions`, those of the list."""
    return [name for _, _, _, declared in _declared(COMMANDS[command]) for name in declared.names]


def _with_command(arguments: Sequence[str]) -> Sequence[str]:
    """Return a command line with its command: options without one begin a conversation."""
    if not arguments[0].startswith("-") or arguments[0] in ("-h", "--help", "--version"):
        return arguments
    talk = ["chat", *arguments]
    message = str(vars(_parser("chat").parse_known_args(talk)[0]).get("task"))
    if message in COMMANDS:
        _misplace(arguments[0], message)
    return talk


def _check_command(arguments: Sequence[str]) -> None:
    word = arguments[0]
    if word.startswith("-") or word in COMMANDS:
        return
    hint = instead_of_command(word, ACTIONS) or hint_for(word, COMMANDS).strip()
    raise UsageError(f"Unknown command {word!r}.{hint and ' '}{hint} To list all: treadle --help")


def _split_program(arguments: Sequence[str]) -> tuple[list[str], list[str] | None]:
    """Return our own arguments, and those of the program that follows `--`; None for a command that takes no program."""
    words = list(arguments)
    if words[:1] != ["mcp"]:
        return words, None
    if "--" not in words:
        return words, []
    place = words.index("--")
    return words[:place], words[place + 1 :]


def _add_program(given: Sequence[str], unknown: Sequence[str], program: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the program or address, and the arguments that are unknown. An address may stand after the flags."""
    flags = [word for word in unknown if word.startswith("-")]
    return [*given, *([] if flags else unknown), *program], flags


def _parted(source: str) -> list[str]:
    """Return the parts of a list of tools that names files too, such as `read,agents/`; a list of built-in names stays one part."""
    parts = source.split(",")
    if len(parts) == 1 or Path(source).exists() or not any(map(names_file, parts)):
        return [source]
    names = ",".join(part for part in parts if not names_file(part))
    return [*([names] if names else []), *(part for part in parts if names_file(part))]


# --- Mistakes: each becomes one sentence.


def _refuse(unknown: str, command: str) -> NoReturn:
    if not unknown.startswith("-"):
        raise UsageError(
            f"Unexpected {unknown[:80]!r} after `treadle {command}`: put quotes around an argument with spaces."
        )
    flag = unknown.partition("=")[0]
    taken = flags_of(command)
    known = [name for name in taken if name.startswith("--")]
    if flag in known:
        _misplace(flag, command)
    hint = instead_of_option(flag, taken) or hint_for(flag, known).strip()
    raise UsageError(f"Unknown option {flag!r}.{hint and ' '}{hint} `treadle {command} --help` lists all.")


def _misplace(flag: str, command: str) -> NoReturn:
    raise UsageError(f"Write {flag} after the command: `treadle {command} ... {flag}`.")


class _Parser(argparse.ArgumentParser):
    """argparse with one sentence instead of a usage text for a mistake, and without guessing at shortened flags."""

    def __init__(self, **options: Any) -> None:  # Any: argparse's own keywords
        ours = {"allow_abbrev": False, "argument_default": argparse.SUPPRESS, "formatter_class": _Formatter}
        super().__init__(**{**ours, **options})

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


# --- Making the parser.


class _Formatter(argparse.HelpFormatter):
    """argparse's, with one word for all options in the usage: the lists below it name them."""

    def add_usage(self, usage: Any, actions: Any, groups: Any, prefix: Any = None) -> None:  # Any: argparse's own types
        arguments = [action for action in actions if not action.option_strings]
        options = argparse.Action((), "options", metavar="[OPTIONS]")
        super().add_usage(usage, [options, *arguments], [], prefix)


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: Any, **__: Any) -> None:
        from importlib.metadata import version  # noqa: PLC0415 - slow, and rarely asked for

        print(f"treadle {version('treadle')}")
        parser.exit()


def _parser(*filled: str) -> _Parser:
    """Return the parser, with the options of some commands: one reads a command line, and all list themselves."""
    parser = _Parser(
        prog="treadle",
        description="Let a language model act through tools. Every call is checked against rules, recorded, limited, and run once.",
        epilog="To list the options of a command: treadle COMMAND --help. To see a first run: treadle demo",
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    commands = parser.add_subparsers(
        prog=parser.prog, title="commands", dest="command", metavar="COMMAND", required=True
    )
    for name, kind in COMMANDS.items():
        made = _added(commands, name, kind, is_filled=name in filled)
        if kind.actions and name in filled:
            actions = made.add_subparsers(prog=made.prog, title="actions", dest="session_action", metavar="ACTION")
            for action, below in ACTIONS.items():
                _added(actions, action, below, is_filled=True)
    return parser


_Subparsers = argparse._SubParsersAction  # noqa: SLF001 - argparse has no public name for it


def _added(parsers: "_Subparsers[Any]", name: str, kind: type[Options], *, is_filled: bool) -> _Parser:
    sentence = kind.__doc__ or f"{name}."  # Python leaves docstrings out where it is told so
    parser: _Parser = parsers.add_parser(name, help=sentence[0].lower() + sentence[1:-1], description=sentence)
    groups: dict[str, Parser] = {"": parser}
    required = {field.name for field in msgspec.structs.fields(kind) if field.required}
    for heading, field, hint, declared in _declared(kind) if is_filled else ():
        if heading not in groups:
            groups[heading] = parser.add_argument_group(heading)
        declared.add(groups[heading], field, hint, is_required=field in required)
    return parser


def _declared(kind: type[Options]) -> Iterator[tuple[str, str, Any, Declared]]:
    """Yield what a command takes: heading, field, type and declaration; its own fields before those that it shares."""
    hints = get_type_hints(kind, include_extras=True)
    bases = [base for base in reversed(kind.__mro__) if issubclass(base, Options) and base is not Options]
    own = dict.fromkeys(name for base in bases for name in base.__annotations__)
    fields = [
        ("", tuple(own)),
        *((heading, tuple(name for name in names if name not in own)) for heading, names in kind.shared.items()),
    ]
    for heading, names in fields:
        for name in names:
            hint, *more = get_args(hints[name])
            yield heading, name, hint, more[0]
