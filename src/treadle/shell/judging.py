"""Judge what a line would start: which of its commands start others, which options write, and which paths are touched. Runs nothing."""

import re
from functools import lru_cache, partial
from itertools import islice

from treadle.shell.knowing import (
    STARTED_BY_GIT,
    UNKNOWN,
    hides,
    is_risky,
    known,
    loads_files,
    operands,
    options,
    sets_variables,
)
from treadle.shell.programs import (
    BEFORE_SUBCOMMAND,
    INTERPRETERS,
    SELF_DESCRIBING,
    SUBCOMMANDS,
    WRAPPERS,
    Program,
    has_option,
    is_known,
    program_name,
)
from treadle.shell.reaching import JOINING, MAX_FOLDERS, MAX_TAILS, folders, join, joins_names, paths, target
from treadle.shell.reading import MAX_COMMANDS, Doubt, Invocation, Line, Touched, read

__all__ = ["analyse", "changes_nothing", "reads_only"]

_MAX_INNER = 3
"""How deep lines within lines (`sh -c "sh -c '...'"`) are looked into for what they start."""
_MAX_WORDS = 500
"""A command of more words is asked about."""
_MAX_TOUCHED = 1000
"""A line that may touch more paths is asked about."""
_ASSIGNMENT = re.compile(r"^\w+=")
_NAMES = re.compile(r"[\w./+-]*\w")
_MAX_NAMES = 3000
_MAX_LETTERS = 6
"""How far into joined short options one may stand that takes a value."""
_SHOWS_ENVIRONMENT = re.compile(r"\bENV\b|(?<![.\w$])env\b")
"""How a program of jq shows what stands in the environment. `.env` is a field of its input."""
_SIGNED = re.compile(r"%[-+ ]?G|%\(\*?signature")
"""How a format of git shows a signature."""
_ELSEWHERE = re.compile(r"/|\.{1,2}/|\.\.$|~|file:", re.IGNORECASE)
"""How the address of a repository on this machine begins."""


@lru_cache(maxsize=128)  # effect, risk, review and rules each ask about the same line
def analyse(source: str) -> Line:
    """Say what a line of shell would start, write and read.

    Never raises for the text. Work is bounded by the line's length; what is beyond the bound is a doubt.

    Args:
        source: What would be given to `bash -c`.

    Example:
        >>> analyse("git log | head -3").is_understood
        True
        >>> analyse("echo $(id)").doubts[0].text
        '$(id)'
    """
    return _judged(read(source), depth=0)


def reads_only(line: Line) -> bool:
    """Whether a line certainly changes nothing: every command of it is known to read, with no option that does more."""
    if not line.is_understood or any(one.writes for one in line.redirections):
        return False
    if any(one.access == "write" for one in line.touched):
        return False
    return all(map(changes_nothing, line.invocations))


def changes_nothing(one: Invocation) -> bool:
    """Whether a command is known to read, with no option that does more. What its paths and redirections say is not looked at."""
    return not one.risks and not one.via and known(one)[1].reads_only


def _judged(line: Line, *, depth: int) -> Line:
    invocations: list[Invocation] = []
    possible: list[Invocation] = []
    within: list[Touched] = []
    made: list[Doubt] = []
    doubts = list(line.doubts)
    for one in line.invocations:
        if len(one.words) > _MAX_WORDS:
            doubts.append(Doubt(reason="The command has too many arguments to analyse.", text=one.text[:80]))
            invocations.append(one)
            continue
        judged = Invocation(
            words=one.words, text=one.text, via=one.via, folders=folders(one), risks=(*one.risks, *_risks(one))
        )
        if len(judged.folders) > MAX_FOLDERS:
            doubts.append(
                Doubt(reason="The folders that this command works in are too many to analyse.", text=one.text[:80])
            )
        inner, reached = _inner(judged, depth=depth) if judged.risks else ([], [])
        invocations += [judged, *inner]
        within += reached
        possible += [] if is_known(one.program) else _inner(judged, depth=depth)[0]
        possible += _named_in(judged)
        made += joins_names(judged)
    joined = next(
        (word for one in invocations for word in one.words if sum(map(word.count, JOINING)) > MAX_TAILS), None
    )
    if joined is not None:
        doubts.append(Doubt(reason="A word has too many parts to analyse.", text=joined[:80]))
    if len(invocations) > MAX_COMMANDS * MAX_COMMANDS:
        doubts.append(Doubt(reason="The line runs too many commands to analyse.", text=line.source[:80]))
        invocations = invocations[: MAX_COMMANDS * MAX_COMMANDS]
    outer = [one for one in invocations if not one.via]
    is_decided = partial(_is_decided, depth=depth)
    found = ((one, hides(one, program_name(one.program), is_decided)) for one in invocations)
    hidden = [*made, *(Doubt(reason=reason, text=one.text[:80]) for one, reason in found if reason is not None)]
    if len(possible) > MAX_COMMANDS * MAX_COMMANDS:
        hidden.append(Doubt(reason="The line names too many programs that it might run.", text=line.source[:80]))
    touched = dict.fromkeys(
        [
            *(path for one in outer if len(one.words) <= _MAX_WORDS for path in paths(one)),
            *(target(one, at) for one in line.redirections for at in one.folders),
            *within,
        ]
    )
    if len(touched) > _MAX_TOUCHED:
        doubts.append(Doubt(reason="The line names too many paths to analyse.", text=line.source[:80]))
    return Line(
        source=line.source,
        invocations=tuple(invocations),
        redirections=line.redirections,
        touched=tuple(touched)[: _MAX_TOUCHED if joined is None else MAX_TAILS],
        possible=tuple(possible[: MAX_COMMANDS * MAX_COMMANDS]),
        doubts=tuple(doubts),
        hidden=tuple(hidden),
        patterns=line.patterns,
        unknown=(*line.unknown, *made),
    )


def _is_decided(text: str, *, depth: int) -> bool:
    """Whether a text that a shell is given is understood, and hides nothing. One that is nested too deeply is not looked into."""
    return depth < _MAX_INNER and _judged_within(text, depth + 1).is_decided


@lru_cache(maxsize=256)
def _judged_within(text: str, depth: int) -> Line:
    return _judged(read(text), depth=depth)


def _risks(one: Invocation) -> list[str]:
    """Say why no rule by prefix may allow a command."""
    name = program_name(one.program)
    command, program = known(one)
    if program.reads_only and (name in WRAPPERS or name in INTERPRETERS):
        return []
    if name in WRAPPERS:
        return [f"`{name}` runs another program, or acts on another machine."]
    if name in INTERPRETERS:
        return [f"`{name}` runs code that this line does not show."]
    found: list[str] = []
    first = next((word for word in one.arguments if word not in BEFORE_SUBCOMMAND), "")
    if one.program in SUBCOMMANDS and first.startswith("-") and one.words not in SELF_DESCRIBING:
        found.append(f"`{first}` before the subcommand changes what `{one.program}` reads or runs.")
    elif one.program in SUBCOMMANDS and program is UNKNOWN:
        found.append(f"`{command}` is unknown: it may be an alias, or run other commands.")
    found += [
        f"`{argument}` lets `{command}` write a file, run a program or read settings from a file."
        for argument in options(one)
        if is_risky(argument, program)
    ]
    found += _risks_of_git(one, command) if name == "git" else []
    if program.reads_only and len(operands(one, program)) > (program.max_operands or len(one.words)):
        found.append(f"`{command}` writes the file that its last argument names.")
    if (reason := sets_variables(one, name)) is not None:
        found.append(reason)
    return found + _risks_of_words(one, name, program)


def _risks_of_words(one: Invocation, name: str, program: Program) -> list[str]:
    """Say why a command does more than it seems to, by words that are not options."""
    found: list[str] = []
    if loads_files(one, name):
        found.append(
            f"The program of `{name}` may read files that the line does not name (`import`, `include`, `load`)."
        )
    if name == "jq" and any(_SHOWS_ENVIRONMENT.search(argument) for argument in one.arguments):
        found.append("jq's `env` and `$ENV` show environment variables.")
    if name == "gh" and "--" in one.arguments:
        found.append("`gh` passes what follows `--` on to git, which may run programs that it names.")
    if name == "ps" and _shows_environments(one, program):
        found.append("`ps e`, without a dash, shows the environment variables of other programs.")
    if name in ("date", "hostname") and any(not word.startswith("+") for word in operands(one, program)):
        found.append(f"`{name}` with an argument changes a setting of this machine.")
    return found


def _shows_environments(one: Invocation, program: Program) -> bool:
    """Whether `ps` shows more than commands: `ps axe`. With `x` among its options, a sign before the `e` changes nothing."""
    bare = "".join(word for word in operands(one, program) if word.isalpha())
    signed = "".join(word for word in one.arguments if word.startswith("-") and not word.startswith("--"))
    return "e" in bare or ("e" in signed and "x" in signed)


def _risks_of_git(one: Invocation, command: str) -> list[str]:
    """Say why a command of git may start programs that are not git's: those of a signature, or those of another repository."""
    found: list[str] = []
    if any(map(_SIGNED.search, one.arguments)):
        found.append("A format with `%G` or `%(signature)` runs the program that verifies signatures.")
    if command in ("git push", "git fetch", "git pull"):
        values = [argument.partition("=")[2] if argument.startswith("--") else argument for argument in one.arguments]
        hosts = [word.partition("/") for word in _repositories(one)]
        if any(_ELSEWHERE.match(value) or STARTED_BY_GIT.match(value) for value in values) or any(
            slash and ":" not in host for host, slash, _ in hosts
        ):
            found.append(f"`{command}` runs the hooks and uses the settings of the repository at that path.")
        if any(":" in host for host, _, _ in hosts):
            found.append(f"`{command}` uses a repository address from the line, not one from the settings.")
    return found


def _repositories(one: Invocation) -> list[str]:
    """Return the words by one of which git is told the other repository: the first that is surely not the value of an option, and those before."""
    texts = known(one)[1].texts
    found: list[str] = []
    is_after_option = False
    for last, word in zip(one.arguments, one.arguments[1:], strict=False):
        is_long = last.startswith("--") and last != "--" and "=" not in last
        takes = has_option(last, texts) if is_long else last.startswith("-") and f"-{last[-1]}" in texts
        if not word.startswith("-") and not (takes and not is_after_option):
            found.append(word)
            if not takes:
                break
        is_after_option = last.startswith("-")
    return found


def _inner(one: Invocation, *, depth: int) -> tuple[list[Invocation], list[Touched]]:
    """Return what a command may start and touch in its turn, so that a rule that forbids finds it: each tail of its words, each text in them."""
    via = (*one.via, program_name(one.program))
    found = [
        Invocation(words=one.words[at:], text=one.text, via=via, folders=one.folders)
        for at in range(1, min(len(one.words), MAX_COMMANDS))
        if not one.words[at].startswith("-") and not _ASSIGNMENT.match(one.words[at])
    ]
    touched = list(islice((path for tail in found for path in paths(tail)), _MAX_TOUCHED + 1))
    if depth < _MAX_INNER:
        for argument in one.arguments:
            text = argument.partition("=")[2] if argument.startswith("--") and "=" in argument else argument
            if any(sign in text for sign in " \t\n;|&"):
                started, reached = _within(text, one, via=via, depth=depth)
                found += started
                touched += reached
    return found, touched


def _named_in(one: Invocation) -> list[Invocation]:
    """Return what the texts and the values of options name, of a command that may start it: `--hook=rm`, `-Xrm`, `--run='x("rm")'`."""
    name = program_name(one.program)
    if name in WRAPPERS or name in INTERPRETERS or (is_known(one.program) and not one.risks):
        return []
    found: dict[tuple[str, ...], None] = {}
    for at, argument in enumerate(one.arguments):
        is_short = argument.startswith("-") and not argument.startswith("--")
        for text in (argument, *(argument[start:] for start in range(2, _MAX_LETTERS) if is_short)):
            names = _NAMES.findall(text)
            for place in range(min(len(names), _MAX_NAMES)):
                found[(*names[place : place + MAX_COMMANDS], *one.arguments[at + 1 :][:MAX_COMMANDS])] = None
    return [Invocation(words=words, text=one.text, via=(*one.via, name), folders=one.folders) for words in found]


def _within(
    text: str, outer: Invocation, *, via: tuple[str, ...], depth: int
) -> tuple[list[Invocation], list[Touched]]:
    inner = _judged_within(text, depth + 1)
    started = [
        Invocation(words=one.words, text=outer.text, via=(*via, *one.via), folders=outer.folders)
        for one in inner.invocations[:MAX_COMMANDS]
    ]
    reached = [
        Touched(path=join(at, one.path), access=one.access, text=one.text, extent=one.extent, is_program=one.is_program)
        for one in inner.touched
        for at in outer.folders
    ]
    return started, reached
