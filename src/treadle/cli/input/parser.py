"""Parser: from a command line to the options of its command, or to one sentence that says what to write instead. Acts on nothing."""

import argparse
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn, get_origin, get_type_hints

from treadle.cli.exits import UsageError
from treadle.cli.input.commands import COMMANDS, SessionsOptions
from treadle.cli.input.near import hint_for, instead_of_command, instead_of_option
from treadle.cli.input.options import Declared, Options, Parser
from treadle.cli.input.places import has_piped_input, names_file

__all__ = ["ACTIONS", "flags_of", "full_parser", "help_text", "parse"]

ACTIONS = {kind.command.split()[1]: kind for kind in SessionsOptions.actions}
"""What may be said after `treadle sessions`."""


def parse(arguments: Sequence[str], *, is_interactive: bool = True) -> Options | None:
    """Read a command line; return None for one that says nothing, where nobody could be asked and nothing is piped in.

    Args:
        is_interactive: Whether a person sits at a terminal: a message or an option alone begins a conversation then, else a run.

    Raises:
        UsageError: It cannot be understood; the message says what to write instead.
        SystemExit: Help was asked for, and printed.
    """
    if not arguments and not is_interactive and not has_piped_input():
        return None
    arguments = _with_command(arguments, "chat" if is_interactive else "run")
    words, program = _split_program(arguments)
    shows_all = _HELP_ALL in words
    namespace, unknown = _parser(arguments[0], shows_all=shows_all).parse_known_args(words)
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
    hints = get_type_hints(kind)
    fields: dict[str, Any] = {
        name: get_origin(hints[name])(value) if isinstance(value, list) else value
        for name, value in given.items()
        if value is not None and name in kind.__struct_fields__
    }
    return kind(**fields)


def full_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands, with all that their help can show."""
    return _parser(*COMMANDS, shows_all=True)


def help_text() -> str:
    """Return what `treadle --help` prints."""
    return _parser().format_help()


def flags_of(command: str) -> list[str]:
    """Return the names of a command's flags; of `sessions`, those of the list."""
    return [name for _, _, _, declared in _declared(COMMANDS[command]) for name in declared.names]


_HELP_ALL = "--help-all"
_HELP = ("-h", "--help", _HELP_ALL)


def _with_command(arguments: Sequence[str], default: str) -> Sequence[str]:
    """Return a command line with its command: options or a message without one begin a conversation, or a run."""
    word = arguments[0] if arguments else ""
    if word in COMMANDS or word in _HELP:
        return arguments
    if word and not word.startswith("-") and not _is_message(word, default):
        hint = _hint(word)
        raise UsageError(f"Unknown command {word!r}.{hint and ' '}{hint} To list all: treadle --help")
    with_command = [default, *arguments]
    message = str(vars(_parser(default).parse_known_args(with_command)[0]).get("task"))
    if message in COMMANDS:
        _misplace(word, message)
    return with_command


def _is_message(word: str, default: str) -> bool:
    """Whether a first word is a message and not a misspelt command: it has several words, or something to work on is piped in."""
    return len(word.split()) > 1 or (default == "run" and has_piped_input() and not _hint(word))


def _hint(word: str) -> str:
    return instead_of_command(word, ACTIONS) or hint_for(word, COMMANDS).strip()


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
    raise UsageError(
        f"Unknown option {flag!r}.{hint and ' '}{hint} `treadle {command} {_help_of(COMMANDS[command])}` lists all."
    )


def _help_of(kind: type[Options]) -> str:
    return _HELP_ALL if kind.unusual else "--help"


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


_Subparsers = argparse._SubParsersAction  # noqa: SLF001 - argparse has no public name for it


class _Formatter(argparse.HelpFormatter):
    """argparse's, with one word for all options in the usage: the lists below it name them."""

    def add_usage(self, usage: Any, actions: Any, groups: Any, prefix: Any = None) -> None:  # Any: argparse's own types
        arguments = [action for action in actions if not action.option_strings]
        options = argparse.Action((), "options", metavar="[OPTIONS]")
        super().add_usage(usage, [options, *arguments], [], prefix)

    def add_argument(self, action: argparse.Action) -> None:
        super().add_argument(action)
        if isinstance(action, _Subparsers):  # argparse forgets that the names of commands are indented
            self._action_max_length += self._indent_increment

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        """Wrap each line by itself: argparse makes one paragraph of all."""
        fill = super()._fill_text
        return "\n".join(
            fill(line, width, indent + line[: len(line) - len(line.lstrip())]) for line in text.split("\n")
        )


class _Unlisted:
    """A parser, or a group of one, whose help leaves out what is added here."""

    def __init__(self, parser: Parser) -> None:
        self._parser = parser

    def add_argument(self, *names: str, **given: Any) -> Any:  # Any: argparse's own keywords
        return self._parser.add_argument(*names, **{**given, "help": argparse.SUPPRESS})


def _parser(*filled: str, shows_all: bool = False) -> _Parser:
    """Return the parser, with the options of some commands: one reads a command line, and all list themselves.

    Args:
        shows_all: Whether help shows every command and every option.
    """
    parser = _Parser(
        prog="treadle",
        description="Let a language model act through tools. Every call is checked against rules, recorded, limited, and run once.",
        epilog=("" if shows_all else f"{_groups()}\n")
        + "To list the options of a command: treadle COMMAND --help. To see a first run: treadle demo",
    )
    parser.add_argument(_HELP_ALL, action="help", help="describe every command and exit")
    parser.add_argument("--version", action="store_true", help="print the version and exit")  # alone: see `main`
    commands = parser.add_subparsers(
        prog=parser.prog, title="commands", dest="command", metavar="COMMAND", required=True
    )
    for name, kind in COMMANDS.items():
        is_filled = name in filled
        made = _added(
            commands, name, kind, is_filled=is_filled, is_listed=shows_all or not kind.group, shows_all=shows_all
        )
        if kind.actions and is_filled:
            actions = made.add_subparsers(prog=made.prog, title="actions", dest="session_action", metavar="ACTION")
            for action, below in ACTIONS.items():
                _added(actions, action, below, is_filled=True, is_listed=True, shows_all=shows_all)
    return parser


def _groups() -> str:
    """Return a line for each command that has others in its group."""
    groups = dict.fromkeys(kind.group for kind in COMMANDS.values() if kind.group)
    named = (
        f"  {group}: {', '.join(name for name, kind in COMMANDS.items() if kind.group == group)}" for group in groups
    )
    return "\n".join(["more commands:", *named, ""])


def _added(
    parsers: "_Subparsers[Any]", name: str, kind: type[Options], *, is_filled: bool, is_listed: bool, shows_all: bool
) -> _Parser:
    sentence = kind.__doc__ or f"{name}."  # Python leaves docstrings out where it is told so
    listed: dict[str, Any] = {"help": sentence[0].lower() + sentence[1:-1]} if is_listed else {}
    parser: _Parser = parsers.add_parser(name, description=sentence, **listed)
    shown = "show every option and exit" if kind.unusual else argparse.SUPPRESS
    parser.add_argument(_HELP_ALL, action="help", help=shown)
    groups: dict[str, Parser] = {"": parser}
    for heading, field, hint, declared in _declared(kind) if is_filled else ():
        if heading not in groups:
            groups[heading] = parser.add_argument_group(heading)
        group = groups[heading] if shows_all or field not in kind.unusual else _Unlisted(groups[heading])
        declared.add(group, field, hint)
    return parser


def _declared(kind: type[Options]) -> Iterator[tuple[str, str, Any, Declared]]:
    """Yield what a command takes: heading, field, type and declaration; its own fields before those that it shares."""
    hints = get_type_hints(kind)
    bases = [base for base in reversed(kind.__mro__) if issubclass(base, Options) and base is not Options]
    own = {name: one for base in bases for name, one in base.declared.items()}
    yield from (("", name, hints[name], one) for name, one in own.items())
    for heading, names in kind.shared.items():
        yield from ((heading, name, hints[name], Options.declared[name]) for name in names if name not in own)
