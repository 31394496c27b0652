"""Judge what a line would do, by the table of programs: whether each command reads, writes or acts, and which paths it touches. Runs nothing."""

import posixpath
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import accumulate

import msgspec
from msgspec import structs

from treadle.shell.programs import (
    AWK,
    CHANGING_GIT,
    CODE_OPTIONS,
    INTERPRETERS,
    LOSING,
    MODULE_RUNNERS,
    PROGRAMS,
    SEARCHING,
    SHELLS,
    STEADY_NPM,
    SUBCOMMANDS,
    TARGETS,
    TURNING,
    WRAPPERS,
    Does,
    Program,
    program_name,
)
from treadle.shell.reading import MAX_COMMANDS, Access, Doubt, Extent, Invocation, Line, Touched, below, read

__all__ = [
    "NAMING_HOSTS",
    "Known",
    "analyse",
    "changes_nothing",
    "hosts_of",
    "known",
    "losing_words",
    "reads_only",
    "runs_input",
    "runs_text",
    "turning_words",
]

_MAX_WORDS = 500
"""A command of more words is asked about."""
_MAX_TOUCHED = 1000
_MAX_INNER = 3
"""How deep lines within lines (`sh -c "sh -c '...'"`) are read."""


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """What the table says of one command with the options that it has."""

    name: str
    """The program, with its subcommand: `git log`."""
    does: Does = "acts"
    program: Program | None = None
    """What is known of it; None where nothing is."""
    operands: tuple[str, ...] = ()
    """Its words that are neither options nor their values, nor its subcommand."""
    places: tuple[int, ...] = ()
    """Where these stand among its words."""
    paths: tuple[str, ...] = ()
    """The values of its options that are paths."""
    scripts: tuple[str, ...] = ()
    """The values of its options that are patterns or scripts."""
    options: frozenset[str] = frozenset()
    """Its options, without values."""
    problem: str = ""
    """Why only a rule that names this very command allows it, in one sentence: it starts others, or has an option that is not known."""
    hides: bool = False
    """Whether it may start or read something that its arguments do not name: it runs code of its arguments or its input, or has an unknown option."""


@lru_cache(maxsize=128)  # effect, risk, review and rules each ask about the same line
def analyse(source: str) -> Line:
    """Say what a line of shell would start, write and read.

    Never raises for the text. Work is bounded by the line's length; what is beyond the bound is a doubt.

    Args:
        source: What would be given to `bash -c`.

    Example:
        >>> analyse("git log | head -3").is_understood
        True
        >>> analyse("echo $X").doubts[0].text
        '$X'
    """
    return _judged(read(source), depth=0)


def reads_only(line: Line) -> bool:
    """Whether a line certainly changes nothing: every command of it is known to read, with options that are known."""
    if not line.is_understood or any(one.writes for one in line.redirections):
        return False
    return all(map(changes_nothing, line.invocations))


def changes_nothing(one: Invocation) -> bool:
    """Whether a command is known to read, with options that are known. What its paths say is not looked at."""
    found = known(one)
    return found.does == "reads" and not found.problem and not one.via and not one.settings


def _judged(line: Line, *, depth: int) -> Line:
    invocations: list[Invocation] = []
    touched: list[Touched] = []
    doubts, hidden = list(line.doubts), []
    placed: list[tuple[str, bool]] = []
    for one in line.invocations:
        found = known(one)
        there = _in_other_folders(one, found)
        is_bounded = len(one.words) <= _MAX_WORDS and len(there.folders) <= _MAX_ENTERED
        paths = list(_paths(there, found)) if is_bounded else []
        invocations.append(one)
        touched += paths
        reasons = _unclear(one, found, paths, placed) if is_bounded else ["The command has too much in it to analyse."]
        doubts += [Doubt(reason=why, text=one.text[:80]) for why in reasons]
        is_link = _PLACING.get(found.name, False)
        placed += [(path.path, is_link) for path in paths if path.access == "write" and found.name in _PLACING]
        if found.hides:
            reason = found.problem or f"`{found.name}` runs code that these rules do not read."
            hidden.append(Doubt(reason=reason, text=one.text[:80]))
            for inner in _inner(there, depth=depth) if is_bounded else ():
                invocations += inner.invocations[: MAX_COMMANDS - len(invocations)]
                touched += inner.touched
                doubts += inner.doubts
    for redirection in line.redirections:
        access: Access = "write" if redirection.writes else "read"
        named = [Touched(path=_join(at, redirection.target), access=access) for at in redirection.folders]
        touched += named
        if any(_is_placed(path, made, is_link=False) for path in named for made, _ in placed):
            doubts.append(Doubt(reason=_USES_PLACED, text=redirection.target))
    touched = list(dict.fromkeys(touched))
    if len(touched) > _MAX_TOUCHED:
        doubts.append(Doubt(reason="The line names too many paths to analyse.", text=line.source[:80]))
    return Line(
        source=line.source,
        invocations=tuple(invocations),
        redirections=line.redirections,
        touched=tuple(touched[:_MAX_TOUCHED]),
        doubts=tuple(doubts),
        hidden=tuple(hidden),
    )


def _unclear(
    one: Invocation, found: Known, paths: Sequence[Touched], placed: Sequence[tuple[str, bool]]
) -> Iterator[str]:
    """Yield why it is unknown what a command touches."""
    if any(map(_UNPLACED.fullmatch, one.words if found.hides else ())):
        yield "Where this command starts another one, or on what, is unknown."
    if any(_is_placed(path, made, is_link=is_link) for path in paths for made, is_link in placed):
        yield _USES_PLACED


_USES_PLACED = "The line uses what it has put there itself, which may be a link."


def _in_other_folders(one: Invocation, found: Known) -> Invocation:
    """Return a command with the folders, too, that its options name (`make -C d`, `sudo -D d`): what else it is given may lie there."""
    named: list[str] = []
    is_wrapper = program_name(one.program) in WRAPPERS
    for at, word in enumerate(one.words[:_MAX_WORDS] if found.does == "acts" else ()):
        option = _FOLDER.fullmatch(word)
        if option is not None and (is_wrapper or word.startswith("-")) and (is_wrapper or not word.startswith("-D")):
            end = at + (2 if word.startswith("-") else 4)  # `tar xfC a.tar d b`
            named += filter(None, (*option.groups(), *one.words[at + 1 : end]))
    if not named:
        return one
    entered = dict.fromkeys((*named, *accumulate(named, posixpath.join)))
    folders = dict.fromkeys((*one.folders, *(at for name in entered for at in sorted(below(one.folders, name)))))
    return structs.replace(one, folders=tuple(folders))


_MAX_ENTERED = 64
_FOLDER = re.compile(r"-\w*?[CDRdtw](.*)|--(?:bu|ch|cw|d|one|out|pref|proj|ro|w)[\w-]*(?:=(.*))?|[a-z]*C[A-Za-z]*")
"""An option whose value may be the folder in which a program starts, or writes."""
_UNPLACED = re.compile(r"-execdir|-okdir|.+\{\}.*|\{\}.+|-\w*S.*|--split-string.*", re.DOTALL)
"""With these, `find` starts a program where a file lies, it or `xargs` makes a path of one, and `env` takes words from a text."""
_PLACING = {"cp": False, "mv": True, "ln": True, "git mv": True}
"""Programs that can put a link somewhere, and whether by the name that they are given: what is below it is another file then than it is now."""


def _is_placed(path: Touched, made: str, *, is_link: bool) -> bool:
    one, other = posixpath.normpath(path.path), posixpath.normpath(made)
    return one.startswith(f"{other}/") or other == "." or (one == other and (is_link or path.access == "read"))


# --- Known: what the table says of one command.

_BEFORE_SUBCOMMAND = frozenset({"--no-pager", "-P", "--no-optional-locks"})
"""Options of git before the subcommand that change nothing in what it reads or runs."""
_ASKING = frozenset({"--version", "-V"})
_SAYING = frozenset(
    "python pypy node nodejs ruby perl php lua git make gmake cmake gcc g++ clang cc java docker podman kubectl npm uv ruff black isort mypy pylint pip pip3 gh curl wget aws psql deno".split()
)
"""Programs that say their version and do nothing else. Others obey a file of the folder before: `yarnPath`, `.mvn/jvm.config`, plugins of `.flake8`."""
_LISTS = {
    "branch": frozenset("--list --contains --no-contains --points-at --merged --no-merged --show-current".split()),
    "tag": frozenset("-l --list --contains --no-contains --points-at --merged --no-merged".split()),
    "remote": frozenset(),
    "config": frozenset("-l --list --get --get-all --get-regexp".split()),
    "reflog": frozenset(),
}
"""Subcommands of git that only list with one of these options, or with no operand."""
_GIT_SETTINGS = ("~/.gitconfig", "~/.config/git/config", "/etc/gitconfig")
"""What `git config` reads beside the settings of the repository. It may hold tokens."""
_SHOWN = re.compile(r"%[-+ ]?G|%\(\*?(?:signature|raw)")
"""How a format of git shows a signature, which a program checks, or the file that a tag stands for."""
_REMOTE = re.compile(r"[A-Za-z0-9_][\w.-]*")


@lru_cache(maxsize=512)  # its paths, its effect and each rule ask about the same command
def known(one: Invocation) -> Known:
    """Return what is known of a command. A program named by its path is known only if it acts."""
    name, plain = _name(one), program_name(one.program)
    program = None if " " in name else PROGRAMS.get(name)
    is_asked = len(one.words) == len(("x", "--version")) and one.words[1] in (
        *_ASKING,
        "-v" if name == "node" else "-V",
    )
    says = name in _SAYING or (program is not None and program.does != "acts")
    if (is_asked and says and "/" not in one.program) or one.words[:2] in (("command", "-v"), ("command", "-V")):
        return Known(name=name, does="reads", program=PROGRAMS["true"])
    first = 1
    if name in SUBCOMMANDS:
        first = next((at for at, word in enumerate(one.words) if at and word not in _BEFORE_SUBCOMMAND), len(one.words))
        program, name, first = _subcommand(one, name, first)
    if program is None:
        hides = name.startswith("git") or plain in WRAPPERS | INTERPRETERS
        return Known(
            name=name,
            operands=one.words[1:],
            places=tuple(range(1, len(one.words))),
            problem=f"`{name}` may start other programs." if hides else "",
            hides=hides or plain in SEARCHING,
        )
    found = _parsed(one, name, program, first)
    problem = found.problem or _problem(one, found)
    hides = bool(problem) or plain in SHELLS
    if name == "git config" and "--local" not in found.options and program.does == "reads":
        found = structs.replace(found, paths=(*found.paths, *map(posixpath.expanduser, _GIT_SETTINGS)))
    return structs.replace(found, problem=problem, does="acts" if problem else found.does, hides=hides)


def _name(one: Invocation) -> str:
    """Return the name under which the table may know a command: of a program named by its path, only one that acts."""
    name = program_name(one.program)
    program = PROGRAMS.get(name)
    if "/" in one.program and (program is None or program.does != "acts"):
        return one.program if name not in SUBCOMMANDS or name == "git" else name
    return one.program if one.program in PROGRAMS or one.program in SUBCOMMANDS else name


def _subcommand(one: Invocation, name: str, first: int) -> tuple[Program | None, str, int]:
    """Return what is known of a program with its subcommand, both their names, and where what follows them begins."""
    if name == "git" and one.program != "git":
        return None, name, first
    sub, after = (*one.words[first : first + 2], "", "")[:2]
    for words, behind in ((f"{name} {sub} {after}", 2), (f"{name} {sub}", 1)):
        program = PROGRAMS.get(words)
        if program is not None:
            if name == "git" and behind == 1 and sub in _LISTS and not _lists(one.words[first + behind :], sub):
                return CHANGING_GIT.get(sub), words, first + behind
            return program, words, first + behind
    return (None if name == "git" else PROGRAMS.get(name)), f"{name} {sub}".strip(), first


def _lists(words: Sequence[str], sub: str) -> bool:
    names = {word.partition("=")[0] for word in words}
    operands = [word for word in words if not word.startswith("-")]
    if sub == "reflog":
        return operands[:1] not in (["expire"], ["delete"], ["drop"], ["write"])
    if sub == "config":  # `git config user.email` shows one value
        return not names.isdisjoint(_LISTS[sub]) or (len(operands) == 1 and "." in operands[0])
    return not names.isdisjoint(_LISTS[sub]) or not operands


def _parsed(one: Invocation, name: str, program: Program, first: int) -> Known:
    """Take the words of a command apart. An option that is not in the table is a problem, and nothing else is said of it."""
    places, paths, scripts, options, problem = [], [], [], [], ""
    words, at, is_over = one.words, first, program.is_text
    while at < len(words):
        word = words[at]
        if is_over or not word.startswith("-") or word == "-":
            places.append(at)
        elif program.most is not None and places:  # `xxd x -o` writes a file `-o`
            problem = f"`{word}` behind an operand of `{name}` may be one, too."
            places.append(at)
        elif word == "--" and not program.is_words:
            is_over = True
        else:
            found = _option(word, program)
            if found is None:
                problem = problem or f"`{word}` of `{name}` is not known to be harmless."
                places.append(at)
                at += 1
                continue
            option, value = found
            is_letters = not word.startswith("--") and not program.is_words
            options += [f"-{letter}" for letter in word[1 : len(word) - len(value or "")]] if is_letters else [option]
            if value is None:
                at += 1
                value = words[at] if at < len(words) else ""
            if option in program.paths and value:
                paths.append(value)
            elif option in program.texts:
                scripts.append(value)
        at += 1
    if program.is_words:
        places = [at for at in places if words[at] not in program.flags]
    return Known(
        name=name,
        does=program.does,
        program=program,
        operands=tuple(words[at] for at in places),
        places=tuple(places),
        paths=tuple(paths),
        scripts=tuple(scripts),
        options=frozenset(options),
        problem=problem if program.does != "acts" or name in ("curl", "wget", "git clone") else "",
    )


def _option(word: str, program: Program) -> tuple[str, str | None] | None:
    """Return an option and its value; None in place of the value where it is the next word, and of both where it is not known."""
    takes = program.values | program.paths
    option, sign, value = word.partition("=")
    if word.startswith("--") and sign:
        return (option, value) if {option, f"{option}="} & takes else None
    if program.is_words or word.startswith("--") or (len(word) > len("-x") and word in program.flags | takes):
        is_flag = word in program.flags or f"{word}=" in program.values
        return (word, "") if is_flag else (word, None) if word in takes else None
    for at in range(1, len(word)):
        letter = f"-{word[at]}"
        if letter in takes and letter not in program.flags:
            value = word[at + 1 :]
            if word[1].isdigit() or (at > 1 and program.most is not None):  # `head -6c k` are six bytes of `k`
                return None
            return letter, value or None
        if letter not in program.flags:
            return None
    return f"-{word[-1]}", ""


def _problem(one: Invocation, found: Known) -> str:
    """Say why a command does more than its options show."""
    name, program = found.name, found.program
    assert program is not None
    is_addressed = name in ("git fetch", "git pull", "git push") and not all(map(_REMOTE.fullmatch, found.operands[:1]))
    reasons = (
        (name in ("curl", "wget") and not hosts_of(one), "The command names no plain address."),
        (
            (program.most is not None and len(found.operands) > program.most)
            or (program.only is not None and not _is_plain(found, program)),
            f"`{name}` may do more here than read: write a file, start a program, or show what no word names.",
        ),
        (name == "ps" and _shows_environment(one, found), "`ps e` shows the environment variables of other programs."),
        (is_addressed, f"`{name}` uses a repository address from the line, not one from the settings."),
        (
            name.startswith("git ") and any(map(_SHOWN.search, one.words)),
            "A format with `%G`, `%(signature)` or `%(raw)` starts the program that verifies signatures, or shows a file.",
        ),
    )
    return next((why for is_so, why in reasons if is_so), "") or _why_it_starts(one)


def _is_plain(found: Known, program: Program) -> bool:
    """Whether a script, or the operands, are such as the table says."""
    is_script = program.operands == "first_text"
    told = found.scripts or found.operands[: 1 if is_script else None]
    others = found.operands[1:] if found.name in AWK else ()  # which sets variables and reaches the network by them
    is_told = all(re.fullmatch(program.only or "", word, re.DOTALL) for word in told) and (bool(told) or not is_script)
    return is_told and not any("=" in word or "/inet" in word for word in others)


def _shows_environment(one: Invocation, found: Known) -> bool:
    is_named = any("environ" in word.lower() for word in one.words)
    return is_named or any("e" in word for word in found.operands) or {"-e", "-x"} <= found.options


def _why_it_starts(one: Invocation) -> str:
    """Say why a command runs more than a file, module, target or script that its words name."""
    name, words = program_name(one.program), set(one.words[1:])
    if name in WRAPPERS and (words or name != "env"):
        return f"`{name}` may start other programs, or read files that its words do not name."
    if name in ("docker", "podman", "nerdctl", "kubectl") and words & {"run", "exec"}:
        return f"`{name}` runs a program in a container, which may see all of this machine."
    if name in INTERPRETERS and runs_text(one):
        return f"`{name}` runs code that stands in the line, or comes by its input."
    if name in TARGETS and any(
        "=" in word or word.startswith(("-C", "-f", "--file", "--directory", "--eval", "-I")) for word in words
    ):
        return f"An option or a setting changes what `{name}` runs."
    return ""


_WITH_ACTS = frozenset(("node", "nodejs", "deno", "bun", "ruby", "php", "perl"))
"""Interpreters whose `-v` says their version, or which name an act before the file: `deno run x.ts`."""


def runs_text(one: Invocation) -> bool:
    """Whether an interpreter runs code of its words or its input, and not that of a file or a module."""
    name = program_name(one.program)
    if name in ("node", "nodejs") and "--test" in one.arguments:
        return not CODE_OPTIONS.isdisjoint(one.arguments)
    for word in one.arguments:
        if word in ("-m", "--version", "-V", "-h", "--help") or (word in ("run", "-v") and name in _WITH_ACTS):
            return False
        if word in ("-", "/dev/stdin", "-s") or word in CODE_OPTIONS or re.match(r"-[A-Za-z]*[ceEnprR]", word):
            return True
        if not word.startswith("-"):
            return False
    return True


def runs_input(one: Invocation) -> bool:
    """Whether an interpreter takes its program from its input, of which its own words say nothing: `python3`, `bash -s`."""
    given = r"-[A-Za-z]*[ceEpr]|--eval|--print|--command"
    if program_name(one.program) in MODULE_RUNNERS:
        given += r"|-[A-Za-z]*m[A-Za-z_][\w.]*"  # a module may follow its option at once
    is_given = any(re.fullmatch(given, word) for word in one.arguments)
    return program_name(one.program) in INTERPRETERS and runs_text(one) and not is_given


def hosts_of(one: Invocation) -> tuple[str, ...]:
    """Return the hosts, with their ports, that `curl` or its like is given; none where one address is not plain."""
    name = program_name(one.program)
    found = _parsed(one, "curl", PROGRAMS.get(name, PROGRAMS["curl"]), 1)
    hosts = [_ADDRESS.fullmatch(word) for word in found.operands]
    if not hosts or not all(hosts) or any(map(_FILE_OF_CURL.search, one.arguments)):
        return ()
    return tuple(dict.fromkeys(one["host"].lower() for one in hosts if one is not None))


NAMING_HOSTS = frozenset({"curl", "wget"})
"""Programs whose words name the hosts that they reach."""
_FILE_OF_CURL = re.compile(r"^(-[A-Za-z]+|--[a-z-]+=)?@|%output\{")
"""A value that is read from a file, or written to one."""
_ADDRESS = re.compile(r"(?:https?://)?(?P<host>[A-Za-z0-9][A-Za-z0-9.-]*(?::\d+)?)(?:[/?#][^{}\[\]\s]*)?")


# --- Losing: which words of a command make it delete or overwrite what nobody can bring back.

_DELETING = {"rm": frozenset("-r -R --recursive".split()), "chmod": frozenset("-R --recursive".split())}


@lru_cache(maxsize=512)
def losing_words(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the words of a command with which it takes something away: `--prune`, `--amend`, `+main`, `rm -r`.

    Args:
        words: Those of a command, or of a rule on commands.
    """
    program, *rest = plain_words(words)
    if program != "git":
        return tuple(word for word in rest if _has(word, _DELETING.get(program, frozenset())))
    subcommand, *rest = (*rest, "")
    known_values = (CHANGING_GIT.get(subcommand) or PROGRAMS.get(f"git {subcommand}", CHANGING_GIT["tag"])).values
    losing = LOSING.get(subcommand, frozenset())
    # Behind a `--` too, which may be the value of the option before it.
    found = [word for word in rest if _has(_without_value(word, known_values), losing)]
    if subcommand in LOSING.get(subcommand, ()):
        found.append(subcommand)
    if subcommand in ("fetch", "pull", "push"):
        found += [word for word in rest if word.startswith("+") or (word.startswith(":") and subcommand == "push")]
    if subcommand == "checkout" and not {"-b", "-B", "--orphan"} & set(rest):
        operands = [word for word in rest if word and not word.startswith("-")]
        found += operands[1:] or [word for word in operands if "." in word or ":" in word]
    return tuple(dict.fromkeys(found))


_MORE_OF_CURL = {"-L": frozenset({"-L", "--location"}), "-o": frozenset({"-o", "-O", "--output", "--remote-name"})}
"""Options with which `curl` goes to the address to which a host redirects it, and with which it writes a file."""


def turning_words(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the options of a command with which it runs, obeys or asks something else than its kind says: `npm run x --script-shell=./y`.

    Args:
        words: Those of a command, or of a rule on commands, or nothing.
    """
    name = program_name(next(iter(words), ""))
    options = [one for one in words[1 : words.index("--") if "--" in words else None] if one.startswith("-")]
    if name in ("npm", "pnpm", "yarn", "bun"):
        return tuple(one for one in options if one.partition("=")[0] not in STEADY_NPM)
    if name == "curl":
        return tuple(sign for sign, forms in _MORE_OF_CURL.items() if any(_has(one, forms) for one in options))
    return tuple(one for one in options if _has(one.partition("=")[0], TURNING.get(name, frozenset())))


def _without_value(word: str, values: frozenset[str]) -> str:
    """Return joined short options without the value of the last one: the letters after `-m` in `-mnew` are its value."""
    if not word.startswith("-") or word.startswith("--"):
        return word
    return next((word[: at + 1] for at, letter in enumerate(word) if at and f"-{letter}" in values), word)


def _has(word: str, wanted: frozenset[str]) -> bool:
    """Whether a word is one of some options, also among joined letters or cut short."""
    name = word.partition("=")[0]
    if name.startswith("--"):
        return name != "--" and any(one.startswith(name) for one in wanted if one.startswith("--"))
    is_letters = word.startswith("-") and len(word) > 1
    return word in wanted or (is_letters and any(len(one) == len("-x") and one[1] in word[1:] for one in wanted))


def plain_words(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the words of a command without what changes nothing before a subcommand: `git --no-pager log` is `git log`."""
    if words[:1] != ("git",):
        return words
    at = next((at for at, word in enumerate(words) if at and word not in _BEFORE_SUBCOMMAND), len(words))
    return ("git", *words[at:])


# --- Paths: which words of a command are paths, and how much below them it reads or writes.

_ADDRESSED = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_SIGNS = re.compile(r"[=:,@]")
_MAX_TAILS = 32
_OBJECT = re.compile(r"[0-9a-fA-F]{4,64}")


def _join(folder: str, path: str) -> str:
    return path if folder == "." else posixpath.join(folder, path)


def _paths(one: Invocation, found: Known) -> Iterator[Touched]:
    """Yield every path that a command may touch. Where nothing is known of it each word may be one, and it may be written."""
    program = found.program
    extent: Extent = "tree"
    named: list[tuple[str, int, Access]] = [(part, 0, "write") for word in one.settings for part in _parts(word)[1:]]
    if program is None or found.problem:
        access: Access = "read" if one.program in ("source", ".") else "write"
        named += [(text, at, access) for at, word in enumerate(one.words) if at for text in _parts(word)]
        if one.program == "git" and not {"config", "remote", "submodule"}.isdisjoint(one.words):
            named.append((".git/config", 0, "write"))
        if program is not None and program.deep is None and all(word.startswith("-") for word in found.operands):
            named.append((".", 0, "write"))
    elif program.operands in ("git", "git_paths"):
        yield from _of_git(one, found, program)
    else:
        own = _named(one, found, program)
        is_deep = program.deep is None or not program.deep.isdisjoint(found.options)
        extent = "tree" if is_deep else program.folder
        named += own or ([(".", 0, "read")] if is_deep and program.does == "reads" else [])
    for folder in one.folders:
        for text, at, access in named:
            yield Touched(path=_join(folder, text), access=access, extent=extent, is_pattern=at in one.patterns)
        if "/" in one.program:
            yield Touched(path=_join(folder, one.program), access="read", extent="itself", is_program=True)


def _named(one: Invocation, found: Known, program: Program) -> list[tuple[str, int, Access]]:
    """Return what the operands and options of a known command name, where, and whether it is read or written."""
    access: Access = "read" if program.does == "reads" else "write"
    places = list(found.places)
    if program.operands == "text":
        places = []
    elif program.operands == "first_text" and program.texts.isdisjoint(found.options):
        places = places[1:]
    named: list[tuple[str, int, Access]] = []
    for number, at in enumerate(places):
        is_source = (
            program.operands == "sources"
            and number < len(places) - 1
            and program.does == "writes"
            and found.name != "mv"
        )
        word = one.words[at]
        if program.does == "acts":
            named += [(part, at, "write") for part in _parts(word)]
        elif word != "-" and not (access == "read" and word == "/dev/null"):
            named.append((word, at, "read" if is_source else access))
    named += [(path, 0, access) for path in found.paths]
    if program.operands == "sources" and places:  # into a folder they go by their own names
        *_, last = (*found.paths, one.words[places[-1]])[: len(found.paths) or 1]
        named += [(posixpath.join(last, posixpath.basename(one.words[at].rstrip("/"))), 0, "write") for at in places]
    if found.name in ("gzip", "gunzip", "xz", "unxz", "bzip2", "bunzip2", "zstd", "unzstd"):
        named += [(posixpath.splitext(one.words[at])[0], at, "write") for at in places]
    return named


def _parts(word: str) -> list[str]:
    """Return what of a word may be a path, to a program that nothing is known of: all of it, and each part behind a sign."""
    if word in ("-", "--") or _ADDRESSED.match(word):
        return []
    found = [word] if not word.startswith("-") else []
    if word.startswith("-") and not word.startswith("--"):
        found += [word[at:] for at in range(2, min(len(word), 8))]
    parts = _SIGNS.split(word)
    return list(dict.fromkeys([*found, *(part for part in parts[1:_MAX_TAILS] if part)]))


def _of_git(one: Invocation, found: Known, program: Program) -> Iterator[Touched]:
    """Yield what a subcommand of git touches: the files that it names, and all of them where it shows what is in files that it does not name."""
    has_pattern = found.name == "git grep" and "-e" not in found.options
    places = found.places[1:] if has_pattern else found.places  # also behind a `--`
    operands = [one.words[at] for at in places]
    end = one.words.index("--") if "--" in one.words else len(one.words)
    behind = [word for at, word in zip(places, operands, strict=True) if at > end]
    shows = program.shows is None or not program.shows.isdisjoint(found.options)
    objects = [word.partition(":")[2] for word in operands if ":" in word and not word.startswith(":")]
    outside = [
        word for word in operands if word != "/dev/null" and (word.startswith(("/", "..", "~")) or "/../" in word)
    ]
    named: Sequence[str] = behind or operands
    access: Access = "read"
    extent: Extent = "tree"
    if program.does == "writes":
        access = "write"
        is_deep = program.folder == "tree" or any(map(_PATHSPEC.match, named))
        extent = "tree" if is_deep else "itself"
    elif program.operands == "git_paths" and not shows:
        named, extent = operands, program.folder
    elif not shows:
        named = behind or outside
    elif (
        not (behind or (operands and len(objects) == len(operands)))
        or any(map(_PATHSPEC.match, behind))
        or _is_by_number(found, operands)
    ):
        yield Touched(path=".", access="read", from_root=True)
        named = outside  # `git diff` compares files of which one is outside, too
    else:
        named = [word for word in named if ":" not in word] if objects else named
        for text in (
            objects
        ):  # git takes it from the top of a repository, below which the root folder may lie, or from where it starts
            is_here, parts = text.startswith(("./", "../")), text.split("/")
            ends = ("/".join(parts[at:]) or "." for at in range(min(len(parts), _MAX_TAILS)))
            paths = (_join(at, text) for at in one.folders) if is_here else ends
            yield from (Touched(path=path, access="read", from_root=not is_here) for path in paths)
    for text in [*named, *found.paths]:
        for folder in one.folders:
            yield Touched(path=_join(folder, text), access=access, extent=extent)


def _is_by_number(found: Known, operands: Sequence[str]) -> bool:
    return found.name in ("git cat-file", "git show", "git diff") and any(map(_OBJECT.fullmatch, operands))


_PATHSPEC = re.compile(r":|\.(?:/)?$|.*[*?\[]", re.DOTALL)
"""A path of git that may mean more than one file."""


# --- Inner: what a command starts in its turn, as far as its words show it, so that a rule that denies finds it. It allows nothing.

_ASSIGNMENT = re.compile(r"\w+=\S*$")
_BLANK = re.compile(r"[ \t\n;|&]")
_PLAIN_SHELL = re.compile(r"-[ceuxl]+|-s|-|--")


def _inner(one: Invocation, *, depth: int) -> Iterator[Line]:
    """Yield what a wrapper or a shell may start: each tail of its words, and each text among them, read as a line.

    What a shell reads from its input, or a text for a shell that is not of the closed form, is in doubt.
    """
    via, is_shell = (*one.via, program_name(one.program)), False
    for at, word in enumerate(one.words[:MAX_COMMANDS]):
        if word.startswith("-") or _ASSIGNMENT.match(word):
            continue
        tail = Invocation(words=one.words[at:], text=one.text, via=via, folders=one.folders)
        if program_name(word) in SHELLS and not is_shell:
            is_shell = True
            options = [option for option in tail.arguments[:MAX_COMMANDS] if option.startswith(("-", "+"))][:2]
            why = "The shell runs what it reads from its input." if runs_input(tail) else ""
            why = why or ("" if all(map(_PLAIN_SHELL.fullmatch, options)) else "An option changes how the shell reads.")
            yield Line(source=one.text, doubts=(Doubt(reason=why, text=one.text[:80]),) if why else ())
        if at:
            yield Line(source=one.text, invocations=(tail,), touched=tuple(_paths(tail, known(tail))))
        if at and _BLANK.search(word) and depth < _MAX_INNER:
            text = _judged(read(word), depth=depth + 1)
            yield structs.replace(
                text,
                invocations=tuple(
                    structs.replace(inner, text=one.text, via=(*via, *inner.via), folders=one.folders)
                    for inner in text.invocations
                ),
                touched=tuple(
                    structs.replace(path, path=_join(at, path.path)) for path in text.touched for at in one.folders
                ),
                doubts=text.doubts if is_shell else (),
            )
