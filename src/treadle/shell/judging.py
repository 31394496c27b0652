"""Judge what a line would start: which of its commands start others, which options write, and which paths are touched. Runs nothing."""

import posixpath
import re
from collections.abc import Sequence
from functools import partial
from itertools import islice

from treadle.shell.hiding import LOADING, STARTED_BY_GIT, hides, sets_variables
from treadle.shell.parsed import Doubt, Invocation, Line, Redirection, Touched
from treadle.shell.programs import (
    AMBIGUOUS_OPTIONS,
    EVALUATING,
    INTERPRETERS,
    PROGRAMS,
    RUNNING_OPTIONS,
    SHOWING_GIT,
    SUBCOMMANDS,
    WRAPPERS,
    Program,
    is_known,
    program_name,
)
from treadle.shell.reading import MAX_COMMANDS, leads_up, read

__all__ = ["analyse", "reads_only"]

_MAX_INNER = 3
"""How deep lines within lines (`sh -c "sh -c '...'"`) are looked into for what they start."""
_JOINING = "=:,@"
"""Signs that may join a path to something."""
_MAX_TAILS = 32
_MOVES = ("-C", "-D", "--chdir", "--cwd", "--directory", "--wd", "--work-tree", "--prefix")
"""Options with which programs go to another folder first."""
_MAX_FOLDERS = 16
_UNKNOWN = Program()
_ASSIGNMENT = re.compile(r"^\w+=")
_NAMES = re.compile(r"[\w./+-]*\w")
_MAX_NAMES = 3000
_MAX_LETTERS = 6
"""How far into joined short options one may stand that takes a value."""
_SHOWS_ENVIRONMENT = re.compile(r"\$ENV\b|(?<![.\w$])env\b")
"""How a program of jq shows what stands in the environment. `.env` is a field of its input."""
_ELSEWHERE = re.compile(r"/|\.{1,2}/|\.\.$|~|file:", re.IGNORECASE)
"""How the address of a repository on this machine begins."""


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
    return all(not one.risks and not one.via and _known(one)[1].reads_only for one in line.invocations)


def _judged(line: Line, *, depth: int) -> Line:
    invocations: list[Invocation] = []
    possible: list[Invocation] = []
    within: list[Touched] = []
    doubts = list(line.doubts)
    for one in line.invocations:
        judged = Invocation(
            words=one.words, text=one.text, via=one.via, folders=_folders(one), risks=(*one.risks, *_risks(one))
        )
        inner, reached = _inner(judged, depth=depth) if judged.risks else ([], [])
        invocations += [judged, *inner]
        within += reached
        possible += [] if is_known(one.program) else _inner(judged, depth=depth)[0]
        possible += _named_in(judged)
    joined = next(
        (word for one in invocations for word in one.words if sum(map(word.count, _JOINING)) > _MAX_TAILS), None
    )
    if joined is not None:
        doubts.append(Doubt(reason="A word has too many parts to analyse.", text=joined[:80]))
    if len(invocations) > MAX_COMMANDS * MAX_COMMANDS:
        doubts.append(Doubt(reason="The line runs too many commands to analyse.", text=line.source[:80]))
        invocations = invocations[: MAX_COMMANDS * MAX_COMMANDS]
    outer = [one for one in invocations if not one.via]
    is_decided = partial(_is_decided, depth=depth)
    found = ((one, hides(one, program_name(one.program), is_decided)) for one in invocations)
    hidden = [Doubt(reason=reason, text=one.text[:80]) for one, reason in found if reason is not None]
    if len(possible) > MAX_COMMANDS * MAX_COMMANDS:
        hidden.append(Doubt(reason="The line names too many programs that it might run.", text=line.source[:80]))
    touched = [
        *(path for one in outer for path in _paths(one)),
        *(_target(one, at) for one in line.redirections for at in one.folders),
        *within,
    ]
    return Line(
        source=line.source,
        invocations=tuple(invocations),
        redirections=line.redirections,
        touched=tuple(dict.fromkeys(touched)),
        possible=tuple(possible[: MAX_COMMANDS * MAX_COMMANDS]),
        doubts=tuple(doubts),
        hidden=tuple(hidden),
        patterns=line.patterns,
        unknown=line.unknown,
    )


def _is_decided(text: str, *, depth: int) -> bool:
    """Whether a text that a shell is given is understood, and hides nothing. One that is nested too deeply is not looked into."""
    return depth < _MAX_INNER and _judged(read(text), depth=depth + 1).is_decided


def _risks(one: Invocation) -> list[str]:
    """Say why no rule by prefix may allow a command."""
    name = program_name(one.program)
    if name in WRAPPERS:
        return [f"`{name}` runs another program, or acts on another machine."]
    if name in INTERPRETERS:
        return [f"`{name}` runs code that this line does not show."]
    found: list[str] = []
    command, known = _known(one)
    if one.program in SUBCOMMANDS and one.words[1:2] and one.words[1].startswith("-"):
        found.append(f"`{one.words[1]}` before the subcommand changes what `{one.program}` reads or runs.")
    elif one.program in SUBCOMMANDS and known is _UNKNOWN:
        found.append(f"`{command}` is unknown: it may be an alias, or run other commands.")
    found += [
        f"`{argument}` lets `{command}` write a file, run a program or read settings from a file."
        for argument in _options(one)
        if _is_risky(argument, known)
    ]
    found += _risks_of_git(one, command) if name == "git" else []
    if known.reads_only and len(_operands(one, known)) > (known.max_operands or len(one.words)):
        found.append(f"`{command}` writes the file that its last argument names.")
    if (reason := sets_variables(one, name)) is not None:
        found.append(reason)
    return found + _risks_of_words(one, name, known)


def _risks_of_words(one: Invocation, name: str, known: Program) -> list[str]:
    """Say why a command does more than it seems to, by words that are not options."""
    found: list[str] = []
    if name in EVALUATING and any("[" in argument and set(argument) & set("$`") for argument in one.arguments):
        found.append(f"`{name}` evaluates an array subscript, which can run programs.")
    if name == "jq" and any(LOADING.search(argument) for argument in one.arguments):
        found.append("jq's `import`, `include` and `modulemeta` read files that the line does not name.")
    if name == "jq" and any(_SHOWS_ENVIRONMENT.search(argument) for argument in one.arguments):
        found.append("jq's `env` and `$ENV` show environment variables.")
    if name == "ps" and _shows_environments(one, known):
        found.append("`ps e`, without a dash, shows the environment variables of other programs.")
    if name in ("date", "hostname") and any(not word.startswith("+") for word in _operands(one, known)):
        found.append(f"`{name}` with an argument changes a setting of this machine.")
    return found


def _shows_environments(one: Invocation, known: Program) -> bool:
    """Whether `ps` shows more than commands: `ps axe`. With `x` among its options, a sign before the `e` changes nothing."""
    bare = "".join(word for word in _operands(one, known) if word.isalpha())
    signed = "".join(word for word in one.arguments if word.startswith("-") and not word.startswith("--"))
    return "e" in bare or ("e" in signed and "x" in signed)


def _risks_of_git(one: Invocation, command: str) -> list[str]:
    """Say why a command of git may start programs that are not git's: those of a signature, or those of another repository."""
    found: list[str] = []
    if any("%G" in argument or "%(signature" in argument for argument in one.arguments):
        found.append("A format with `%G` or `%(signature)` runs the program that verifies signatures.")
    if command in ("git push", "git fetch", "git pull"):
        values = [argument.partition("=")[2] if argument.startswith("--") else argument for argument in one.arguments]
        first = _repository(one).partition("/")
        if any(_ELSEWHERE.match(value) or STARTED_BY_GIT.match(value) for value in values) or (
            first[1] and ":" not in first[0]
        ):
            found.append(f"`{command}` runs the hooks and uses the settings of the repository at that path.")
        if ":" in first[0]:
            found.append(f"`{command}` uses a repository address from the line, not one from the settings.")
    return found


def _repository(one: Invocation) -> str:
    """Return the operand by which git is told the other repository: the first that is not the value of an option."""
    texts = _known(one)[1].texts
    for last, word in zip(one.arguments, one.arguments[1:], strict=False):
        is_long = last.startswith("--") and last != "--" and "=" not in last
        takes = _has_option(last, texts) if is_long else last.startswith("-") and f"-{last[-1]}" in texts
        if not word.startswith("-") and not takes:
            return word
    return ""


def _operands(one: Invocation, known: Program) -> list[str]:
    """Return the arguments that are neither options nor surely their values."""
    before = ("", *one.arguments)
    found: list[str] = []
    for last, word in zip(before, one.arguments, strict=False):
        is_behind = bool(found) and known.max_operands is not None  # `xxd x -o` writes a file `-o`
        if is_behind or ((word == "-" or not word.startswith("-")) and last not in known.texts):
            found.append(word)
    return found


def _known(one: Invocation) -> tuple[str, Program]:
    """Return a command's name with its subcommand, and what is known of it. A program named by its path is not known."""
    if one.program not in SUBCOMMANDS:
        return one.program, PROGRAMS.get(one.program, _UNKNOWN)
    subcommand = next((word for word in one.arguments if not word.startswith("-")), "")
    return f"{one.program} {subcommand}".strip(), SUBCOMMANDS[one.program].get(subcommand, _UNKNOWN)


def _options(one: Invocation) -> list[str]:
    """Return the arguments that may be options. Those behind `--` are not, but some programs take them so: only GNU's rule counts."""
    risky = _known(one)[1].risky
    found: list[str] = []
    for argument in one.arguments:
        if argument == "--":
            break
        if (argument.startswith(("-", "@")) and argument != "-") or argument in risky:
            found.append(argument)
    return found


def _is_risky(argument: str, known: Program) -> bool:
    name = argument.partition("=")[0]
    if known is _UNKNOWN:
        return name in RUNNING_OPTIONS and name not in AMBIGUOUS_OPTIONS
    if argument.startswith("@"):
        return "@" in known.risky
    if known.style == "words":
        return name in known.risky or f"-{name.lstrip('-')}" in known.risky
    if name.startswith("--"):
        return any(risky.startswith(name) for risky in known.risky if risky.startswith("--"))
    letters = {risky[1] for risky in known.risky if len(risky) == len("-x")}
    return name in known.risky or bool(letters & set(argument[1:]))


def _inner(one: Invocation, *, depth: int) -> tuple[list[Invocation], list[Touched]]:
    """Return what a command may start and touch in its turn, so that a rule that forbids finds it: each tail of its words, each text in them."""
    via = (*one.via, program_name(one.program))
    found = [
        Invocation(words=one.words[at:], text=one.text, via=via, folders=one.folders)
        for at in range(1, min(len(one.words), MAX_COMMANDS))
        if not one.words[at].startswith("-") and not _ASSIGNMENT.match(one.words[at])
    ]
    touched = [path for tail in found for path in _paths(tail)]
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
    inner = _judged(read(text), depth=depth + 1)
    started = [
        Invocation(words=one.words, text=outer.text, via=(*via, *one.via), folders=outer.folders)
        for one in inner.invocations[:MAX_COMMANDS]
    ]
    reached = [
        Touched(path=_join(at, one.path), access=one.access, text=one.text, extent=one.extent)
        for one in inner.touched
        for at in outer.folders
    ]
    return started, reached


def _target(one: Redirection, at: str) -> Touched:
    return Touched(path=_join(at, one.target), access="write" if one.writes else "read", text=one.text)


def _paths(one: Invocation) -> list[Touched]:
    """Return every path that the arguments may name. Where a program is not known each argument may be one, and it may be written."""
    _, known = _known(one)
    arguments = one.arguments[1 if one.program in SUBCOMMANDS else 0 :]
    goes_deep = known.recursive is None or any(_has_option(argument, known.recursive) for argument in arguments)
    shows_all = program_name(one.program) == "git" and bool(SHOWING_GIT & set(one.arguments[:4]))
    extent = "tree" if goes_deep else known.folder
    # With an option that may write, nobody says which of its paths it writes.
    is_read = known.reads_only and not any(_is_risky(argument, known) for argument in _options(one))
    seen = 0
    named: list[tuple[str, str, bool]] = []
    has_text = known.operands == "first_text" and not any(_has_option(one, known.texts) for one in arguments)
    is_over = may_be_value = False
    for argument in arguments:
        is_option = argument.startswith("-") and argument != "-" and not is_over
        is_over = is_over or argument == "--"
        if is_option:
            texts = _values(argument, known)
            may_be_value = not _is_flag(argument, known.flags)
        else:
            seen += 1
            is_text = known.operands == "text" or (has_text and seen == 1 and not may_be_value)
            texts = [] if is_text or argument in ("-", "--") else _operand(argument)
            may_be_value = False
        reads = is_read and not (known.max_operands is not None and not is_option and seen > known.max_operands)
        named += [(text, argument, reads) for text in texts]
    named += [(".git/config", one.text, False)] if _changes_settings(one) else []
    if shows_all or (goes_deep and not _names_a_path(arguments, known)):
        named.append((".", one.text, is_read or shows_all))
    return [
        Touched(path=_join(at, text), access="read" if reads else "write", text=argument, extent=extent)
        for text, argument, reads in named
        for at in one.folders
    ]


def _folders(one: Invocation) -> tuple[str, ...]:
    """Return the folders that the paths of a command may be relative to: also those that an option such as `-C` names."""
    found, words = list(one.folders), one.words
    for at, word in enumerate(words):
        option = next((option for option in _MOVES if word.startswith(option)), None)
        if option is None or at == 0:
            continue
        values = [word.removeprefix(option).lstrip("="), *words[at + 1 : at + 2]]
        found += [
            _join(base, value) for base in tuple(found) for value in values if value and len(found) < _MAX_FOLDERS
        ]
    return tuple(dict.fromkeys(found))


def _changes_settings(one: Invocation) -> bool:
    """Whether a command changes what git runs later."""
    words = [word for word in one.arguments if not word.startswith("-")]
    at = next((at for at, word in enumerate(words) if word in ("config", "remote", "submodule")), None)
    if program_name(one.program) != "git" or at is None:
        return False
    reads = any(word.startswith(("--get", "--list", "--show", "-l")) for word in one.arguments)
    return not (reads or words[at + 1 : at + 2] in (["get"], ["list"], ["status"], ["show"]) or len(words) <= at + 1)


def _has_option(argument: str, wanted: frozenset[str]) -> bool:
    name = argument.partition("=")[0]
    if name.startswith("--"):
        return any(one.startswith(name) for one in wanted)
    return argument.startswith("-") and any(len(one) == len("-x") and one[1] in argument[1:] for one in wanted)


def _names_a_path(arguments: Sequence[str], known: Program) -> bool:
    """Whether a program that goes through folders is surely told where to begin: else it begins where it is."""
    if known.revisions:
        after = [*arguments[arguments.index("--") + 1 :]] if "--" in arguments else []
        operands_ = [one for one in arguments if not one.startswith("-")]
        return bool(after) or (bool(operands_) and all(":" in one[1:] for one in operands_))
    if known.style == "words":  # find: its paths stand before its expression
        first = next((argument for argument in arguments if argument not in ("-H", "-L", "-P")), "-")
        return not first.startswith(("-", "(", "!", ","))
    operands, may_be_value, has_text = 0, False, known.operands != "first_text"
    for at, argument in enumerate(arguments):
        if argument == "--":
            operands += len(arguments) - at - 1
            break
        if argument.startswith("-") and argument != "-":
            has_text = has_text or _has_option(argument, known.texts)
            may_be_value = not _is_flag(argument, known.flags)
        else:
            operands += not may_be_value
            may_be_value = False
    return operands >= (1 if has_text else 2)


def _is_flag(argument: str, flags: frozenset[str]) -> bool:
    if argument.startswith("--"):
        return "=" in argument or argument in flags
    return all(f"-{letter}" in flags for letter in argument[1:])


def _operand(argument: str) -> list[str]:
    """Return what an operand may name: itself, and what follows a sign that joins a path to something (`if=FILE`, `@FILE`, `HEAD:FILE`)."""
    return [argument, *_tails(argument)]


def _values(argument: str, known: Program) -> list[str]:
    """Return the paths that an option may carry: `--to=../x`, `--to=x`, `-I/usr`, `-o../x`, and `-ox` of a program that may write.

    Behind a letter that may write, in a group too (`-no.git/x`), what follows is one in any case.
    """
    starts = [at for at in (argument.find("/"), argument.find("..")) if at > 0]
    is_short = not argument.startswith("--")
    found = [argument[2:]] if is_short and (starts or not known.reads_only) else []
    found += [argument[min(starts) :]] if starts else []
    if is_short and known.style == "gnu":
        letters = {risky[1] for risky in known.risky if len(risky) == len("-x")}
        found += [argument[at + 1 :] for at, letter in enumerate(argument[:_MAX_TAILS]) if at and letter in letters]
    return [text for text in (*found, *_tails(argument)) if text]


def _tails(argument: str) -> list[str]:
    """Return what follows each sign that may join a path to something."""
    tails = (argument[at + 1 :] for at, sign in enumerate(argument) if sign in _JOINING)
    return [tail for tail in islice(tails, _MAX_TAILS) if tail]


def _join(folder: str, path: str) -> str:
    """Return a path in a folder. A `..` behind a name stays as it is: where that is a link, it leads elsewhere than its text says."""
    joined = posixpath.join(folder, path) if path else folder
    return joined if leads_up(joined) else posixpath.normpath(joined)
