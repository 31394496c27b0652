"""Knowing: what the tables of programs say of one command, with its subcommand and its options. Judges nothing."""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

from treadle.shell.programs import (
    ABOUT_LISTS,
    AMBIGUOUS_OPTIONS,
    ASKING_FOR_LISTS,
    BEFORE_SUBCOMMAND,
    EVALUATING,
    INTERPRETERS,
    LISTED,
    LISTING,
    LISTING_OPTIONS,
    LOSING,
    OPAQUE,
    PLAIN_GIT,
    PROGRAMS,
    READABLE_SHELLS,
    RUNNING_OPTIONS,
    SELF_DESCRIBING,
    SETTING,
    SHELLS,
    SUBCOMMANDS,
    TEXT_PROGRAMS,
    Program,
    cuts_short,
    has_option,
    is_known,
    reader,
)
from treadle.shell.reading import Invocation

__all__ = [
    "STARTED_BY_GIT",
    "UNKNOWN",
    "Part",
    "hides",
    "is_fed",
    "is_printing",
    "is_risky",
    "is_selecting",
    "known",
    "loads_files",
    "losing_words",
    "operands",
    "options",
    "parted",
    "plain_words",
    "sets_variables",
    "without_subcommand",
]


# --- Hiding: whether a command may start others that its words do not name. A rule that forbids and finds nothing in it
# has proven nothing.

_INLINE = frozenset(
    "-c -e -E -p -r -x -i -m -S -s --eval --print --exec --execute --command --run --source --expression".split()
)
"""Options of interpreters with which a text is carried out, or more is read than the words say."""
_MODULES = frozenset({"-m"})
_FED = SHELLS | frozenset(
    "python pypy ipython perl raku ruby irb jruby node nodejs php lua luajit tclsh julia r guile racket ocaml swipl".split()
)
"""Interpreters that carry out their input where nothing names a program."""
_NAMING_PROGRAMS = {**dict.fromkeys(SHELLS, "c"), **dict.fromkeys(("python", "pypy", "ipython"), "cm")}
"""Letters of the options that name a program, or hold one."""
_ASKING = frozenset({"--version", "--help", "-V", "-v", "-h"})
_PART = r"(?:\[\^?[^\]^\\\[/|#,\n][^\]\\\[/|#,\n]*\]|\\(?!\1)[^\n]|(?!\1)[^\\\[\n])*"
"""Text between the signs of a `s` of sed. A set of characters may hold such a sign, which does not end it: then nothing is harmless. Nor is
`[^]`: there, the `]` belongs to the set, which continues."""
_LINES = r"(?:[0-9]+|\$|/(?:\[\^?[^\]^\\\[/\n][^\]\\\[/\n]*\]|\\[^/\n]|[^/\\\[\n])*/I?)"
"""A line of the input: by its number, or by what is in it."""
_HARMLESS_SED = re.compile(
    rf"(?:{_LINES}(?:,(?:\+[0-9]+|{_LINES}))? ?!? ?)?(?:[pdq=]|s([/|#,]){_PART}\1{_PART}\1[gIip0-9]*)( *; *|$)"
)
_HARMLESS_AWK = re.compile(r"[^|&`@]*(?:&&[^|&`@]+)*")
_AWK_STARTS = re.compile(r"system|getline|ARGV|ARGC|ENVIRON|SYMTAB|PROCINFO|print(?:[^>]|>=)*>(?!=)")
"""What starts a program, reads a file that no word names, or writes one."""
_LOADING = {
    "jq": re.compile(r"\b(import|include|modulemeta)\b"),
    "yq": re.compile(r"(?<!\.)\b(import|include|modulemeta|load\w*|strload)\b"),
}
"""How the programs of jq and yq read a file."""
STARTED_BY_GIT = re.compile(r"(--\w[\w-]*=)?([A-Za-z][\w+.-]*::|!)")
"""A word by which git starts a program: an address with a helper for its transport, or a setting that is a line of shell."""
_JOINING_LETTERS = frozenset({"tar", "bsdtar", "gtar"})
_LISTING = (
    {
        **dict.fromkeys(("tar", "gtar"), ("-T", "--files-from")),
        **dict.fromkeys(("sort", "wc", "du"), ("--files0-from",)),
        **dict.fromkeys(("xz", "unxz", "xzcat", "lzma", "unlzma", "lzcat"), ("--files", "--files0")),
        **dict.fromkeys(("zstd", "unzstd", "zstdcat", "pzstd"), ("--filelist",)),
        **dict.fromkeys(("gpg", "gpg2"), ("--multifile",)),
    }
    | {
        "bsdtar": ("-T", "-I", "--files-from"),
        "zip": ("-@", "--names-stdin"),
        "file": ("-f", "--files-from"),
        "wget": ("-i", "--input-file"),
    }
    | {"git": ("--pathspec-from-file", "--stdin", "--stdin-paths", "--batch", "--batch-check", "--batch-command")}
    | {
        "ack": ("-x", "--files-from"),
        "ctags": ("-L",),
        "cloc": ("--list-file", "--diff-list-file"),
        "curl": ("-K", "--config"),
    }
)
"""Options with which programs read the names of files from a file or from their input, where these go by other names or may be cut shorter."""
_FILE = frozenset({"--file"})
"""An option of its own, and not `--files` cut short."""
_TAKING_OPTIONS = frozenset("jar javac java javadoc gcc g++ cc c++ clang clang++ ld".split())
"""Programs that take more words from a file `@FILE`, beside those in the tables."""
_SET_FOR_MAKE = re.compile(r"(SHELL|\.SHELLFLAGS|MAKEFLAGS|MAKEFILES|GNUMAKEFLAGS)[:+?!]*=")
_PLAIN_WORD = re.compile(r"[\w./:=@%+,^~-]*")
_LETTERS_THAT_SET = {"printf": "v", "wait": "p", "set": "kH"}
"""Options with which builtins set a variable, or have later words of the line read as settings or as history."""
_GLOBBING = frozenset("nullglob failglob globstar dotglob nocaseglob nocasematch".split())
"""Options of `shopt` that only change what a pattern matches. `cdable_vars` changes where a `cd` goes."""
_COUNTING = re.compile(r"%[-+ #0'.*0-9hjlLtz]*n")
_SUBSCRIPT = re.compile(r"(?s)[A-Za-z_]\w*\[.*\]")
_PLAIN_SUBSCRIPT = re.compile(r"\w+\[(?:\w*|[@*])\]")
_WITHIN_THIS_SHELL = frozenset({"eval", "command", "builtin", "time"})
_SHELL_OPTIONS = frozenset({"keyword", "history", "histexpand"})


def hides(one: Invocation, name: str, is_decided: Callable[[str], bool]) -> str | None:
    """Return why a command may start others than its words name; None where it surely does not.

    Args:
        name: The plain name of its program.
        is_decided: Whether a line of shell is understood, and hides nothing.
    """
    for look in (
        _hides_folder,
        _hides_as_shell,
        _hides_as_program,
        _hides_as_git,
        _hides_files,
        _hides_in_options,
        _hides_in_words,
    ):
        if (reason := look(one, name, is_decided)) is not None:
            return reason
    return sets_variables(one, name)


def sets_variables(one: Invocation, name: str) -> str | None:
    """Return why the commands after one may run something else than their words say; None where they do not."""
    letters = set(_LETTERS_THAT_SET.get(name, ""))
    is_set = name == "set" and bool(_SHELL_OPTIONS & set(one.arguments))
    is_set = is_set or (name == "shopt" and any(word[:1] != "-" and word not in _GLOBBING for word in one.arguments))
    is_set = is_set or (name == "printf" and _counts(one.arguments))
    if name in SETTING or is_set or any(word.startswith("-") and letters & set(word) for word in one.arguments):
        return f"`{name}` sets a variable or an option that can change which programs later commands run."
    if name in EVALUATING and any(map(_is_evaluated, one.arguments)):
        return f"`{name}` evaluates an array subscript, which can set variables and run programs."
    return None


def _counts(arguments: Sequence[str]) -> bool:
    """Whether the format of bash's own `printf` sets a variable that an argument names."""
    text = next((word for word in arguments if word != "--"), "")
    return _COUNTING.search(text.replace("%%", "\n")) is not None


def _is_evaluated(word: str) -> bool:
    """Whether a word may be an element of an array, with arithmetic in its subscript: `a[b=1]`, `a[$(id)]`."""
    is_plain = _PLAIN_SUBSCRIPT.fullmatch(word) or not _SUBSCRIPT.fullmatch(word)
    return not is_plain or ("[" in word and bool(set(word) & set("$`")))


def loads_files(one: Invocation, name: str) -> bool:
    """Whether a program of jq or yq reads files that no word needs to name."""
    loading = _LOADING.get(name)
    return loading is not None and any(map(loading.search, one.arguments))


def _hides_folder(one: Invocation, name: str, _: Callable[[str], bool]) -> str | None:
    """A `cd` that another builtin carries out: the paths of the commands after it are not the ones that were looked at."""
    if name not in ("cd", "pushd", "popd") or not set(one.via[-1:]) & _WITHIN_THIS_SHELL:
        return None
    return f"`{one.via[-1]} {name}` changes the folder of the commands that follow."


def _hides_as_shell(one: Invocation, name: str, is_decided: Callable[[str], bool]) -> str | None:
    if name in SHELLS:
        text = _shell_text(one.arguments) if name in READABLE_SHELLS else None
    elif name == "eval":
        text = " ".join(one.arguments) or ":"
    else:
        return None
    return None if text is not None and is_decided(text) else f"`{name}` runs a script that cannot be analysed."


def _hides_as_program(one: Invocation, name: str, _: Callable[[str], bool]) -> str | None:
    if name in OPAQUE:
        return f"`{name}` runs commands from its input, its settings or its arguments."
    if name in TEXT_PROGRAMS:
        return _hides_in_text(one, name)
    if name in ("make", "gmake") and any(map(_SET_FOR_MAKE.match, one.arguments)):
        return f"`{name}` is told which shell to use."
    is_interpreter = name in INTERPRETERS and name not in SHELLS
    if is_interpreter and (_has_program(one.arguments) or not all(map(_PLAIN_WORD.fullmatch, one.arguments))):
        return f"`{name}` runs a script that is not analysed."
    return None


def _hides_as_git(one: Invocation, name: str, _: Callable[[str], bool]) -> str | None:
    """A subcommand that is not known may be an alias, or carry out a text: `git rebase -x`, `git bisect run`."""
    words = [word for word in one.arguments if not word.startswith("-")]
    if name == "git" and any(STARTED_BY_GIT.match(word) for word in one.arguments):
        return "`git` runs the program named in an address such as `ext::PROGRAM`, or in a setting such as `!PROGRAM`."
    first = next((word for word in one.arguments if word not in BEFORE_SUBCOMMAND), "")
    if name == "git" and first.startswith("-") and "=" not in first and one.arguments != (first,):
        return f"`{first}` before the subcommand changes what `git` reads."
    if name != "git" or not words or words[0] in PLAIN_GIT:
        return None
    return f"`git {words[0]}` may run programs that its settings or arguments name."


def _hides_files(one: Invocation, name: str, _: Callable[[str], bool]) -> str | None:
    """What it reads stands in a file or in its input: a rule on a path finds no path."""
    listing = _LISTING.get(name, ("-c", "--check") if name.endswith("sum") else ())
    is_listed = name in LISTED or any(_is_listing(word, listing) for word in one.arguments)
    is_listed = is_listed or (name in _JOINING_LETTERS and "T" in _letters_without_dash(one.arguments))
    is_listed = is_listed or loads_files(one, name)
    takes_options = name in _TAKING_OPTIONS or (name in PROGRAMS and "@" in PROGRAMS[name].risky)
    is_listed = is_listed or (takes_options and any(word.startswith("@") for word in one.arguments))
    return f"`{name}` reads files whose names come from another file, a program or its input." if is_listed else None


def _is_listing(word: str, listing: Sequence[str]) -> bool:
    name = word.partition("=")[0]
    if name in _FILE and "-T" in listing:  # tar's archive
        return False
    return name in LISTING_OPTIONS or cuts_short(name, LISTING_OPTIONS, but=_FILE) or has_option(word, listing)


def _letters_without_dash(arguments: Sequence[str]) -> str:
    """Return the options of one that takes its first word for options, as `tar cf x` does."""
    return arguments[0] if arguments and not arguments[0].startswith("-") else ""


def _hides_in_words(one: Invocation, name: str, is_decided: Callable[[str], bool]) -> str | None:
    """What an unknown program does with a text nobody knows."""
    if is_known(one.program) or not _PLAIN_WORD.fullmatch(one.program):
        return None
    text = next((word for word in one.arguments if set(word) & set("$`") and not is_decided(word)), None)
    return None if text is None else f"`{name}` may run text that cannot be analysed."


def _hides_in_options(one: Invocation, name: str, _: Callable[[str], bool]) -> str | None:
    if name == "env" and any(argument.startswith("--s") or _is_inline(argument, "-S") for argument in one.arguments):
        return "`env -S` splits a string into a command."
    if name == "find" and {"-execdir", "-okdir"} & set(one.arguments):
        return "`find -execdir` runs commands in folders that the line does not name."
    if name in ("sudo", "doas") and any(has_option(argument, ("-i", "--login")) for argument in one.arguments):
        return f"`{name} -i` runs commands in the home folder."
    if name in ("git", "hg", "svn") and any(one.startswith(("-c", "-O")) for one in one.arguments[:4]):
        return f"`{name} -c` can change which programs it runs."
    option = next((one for one in one.arguments if _starts_program(one)), None)
    return None if option is None else f"`{option}` runs another program."


def _shell_text(arguments: Sequence[str]) -> str | None:
    """Return the text behind `-c`; None where a shell reads anything else: a script, its input, start files."""
    takes_text = False
    for argument in arguments:
        if argument.startswith("--") and argument not in ("--norc", "--noprofile", "--posix"):
            return None
        if argument.startswith(("-", "+")) and not argument.startswith("--"):
            if set(argument[1:]) - set(
                "ceuxfnaTvC"
            ):  # `-l` and `-i` read start files, `-s` the input, `-o` takes a value
                return None
            takes_text = takes_text or "c" in argument
        elif not argument.startswith("--"):
            return argument if takes_text else None
    return None


def _has_program(arguments: Sequence[str]) -> bool:
    """Whether an interpreter is given its program in its arguments, or by its input. One that is named as a file or a module is not hidden."""
    for argument in arguments:
        if argument in _MODULES:
            return False
        if argument == "-" or (argument.startswith("-") and any(_is_inline(argument, one) for one in _INLINE)):
            return True
        if not argument.startswith("-"):
            return False
    return not _ASKING & set(arguments)


def is_fed(one: Invocation, name: str) -> bool:
    """Whether an interpreter takes its program from its input, of which its own words say nothing: `python3`, `bash -s`."""
    letters = _NAMING_PROGRAMS.get(name, "ceEmpr")
    if name not in _FED or _ASKING & set(one.arguments):
        return False
    named = (word for word in one.arguments if word != "-")
    return all(
        word.startswith("-") and (word[1:2] == "-" or not set(word) & set(letters)) and "=" not in word
        for word in named
    )


def _is_inline(argument: str, option: str) -> bool:
    if option.startswith("--"):
        return argument.partition("=")[0] == option
    return not argument.startswith("--") and option[1] in argument[1:]


def _hides_in_text(one: Invocation, name: str) -> str | None:
    """Look at the small programs of `sed` and `awk`: plain ones start nothing."""
    is_harmless = _is_harmless_sed(one.arguments, "nrEiuzs") if name in ("sed", "gsed") else is_selecting(one.arguments)
    if is_harmless:
        return None
    return f"`{name}` runs a script that may start other programs."


def is_selecting(arguments: Sequence[str]) -> bool:
    """Whether `awk` only prints parts of what it reads: its program starts nothing, writes no file and reads none that no word names."""
    words = list(arguments)
    while words and words[0].startswith("-F"):
        del words[: 2 if words[0] == "-F" else 1]
    # gawk takes `/inet/...` for a server
    is_plain = bool(words) and not any(word.startswith("-") or "/inet" in word for word in words)
    return is_plain and _HARMLESS_AWK.fullmatch(words[0]) is not None and not _AWK_STARTS.search(words[0])


def is_printing(arguments: Sequence[str]) -> bool:
    """Whether `sed` only prints, leaves out or replaces lines of what it reads: no option and no command of it writes a file."""
    return _is_harmless_sed(arguments, "nrEuzs")


def _is_harmless_sed(arguments: Sequence[str], letters: str) -> bool:
    scripts: list[str] = []
    others: list[str] = []
    takes = False
    for word in arguments:
        if takes:
            scripts.append(word)
            takes = False
        elif word.startswith("-"):
            takes = word.endswith("e")
            if not set(word[1:].removesuffix("e")) <= set(letters):
                return False
        else:
            others.append(word)
    found = scripts or others[:1]
    return not takes and bool(found) and all(re.fullmatch(f"(?:{_HARMLESS_SED.pattern})+", one) for one in found)


def _starts_program(argument: str) -> bool:
    name = argument.partition("=")[0]
    return name in RUNNING_OPTIONS or (
        len(name) > len("--x") and name.startswith("--") and any(option.startswith(name) for option in RUNNING_OPTIONS)
    )


# --- Knowing: what the tables of programs say of one command, with its subcommand and its options. Judges nothing.

Kind = Literal["option", "doubtful", "value", "end", "operand", "open", "either"]
"""`option`: surely one. `doubtful`: an option, or the value of the one before. `value`: surely the value of the one before. `end`: a `--`.
`operand`: surely one. `open`: an operand, or the value of the option before. `either`: an option, or an operand."""
UNKNOWN = Program()
_RUNNING = RUNNING_OPTIONS - AMBIGUOUS_OPTIONS
_TEXTS = reader(operands="text")
_SELECTING = reader(operands="first_text", plain="-F")
_PRINTING = reader(operands="first_text", texts="-e", plain="-e", flags="-n -r -E -u -z -s")


class Part(NamedTuple):
    """One argument of a command."""

    word: str
    kind: Kind
    option: str = ""
    """The option whose value it surely is."""


def known(one: Invocation) -> tuple[str, Program]:
    """Return a command's name with its subcommand, and what is known of it. A program named by its path is not known."""
    if (plain := _as_reader(one)) is not None:
        return one.program, plain
    if one.program not in SUBCOMMANDS:
        return one.program, PROGRAMS.get(one.program, UNKNOWN)
    table, (subcommand, *rest) = SUBCOMMANDS[one.program], (*_behind(one), "")
    command = f"{one.program} {subcommand}".strip()
    if subcommand in LISTING and _lists(subcommand, rest[:-1]):
        return command, _TEXTS
    return command, table.get(f"{subcommand} {rest[0]}" if rest else "", table.get(subcommand, UNKNOWN))


def _lists(subcommand: str, words: Sequence[str]) -> bool:
    """Whether a subcommand that may change something only lists with these arguments."""
    asking = ASKING_FOR_LISTS.get(subcommand, frozenset())
    known = LISTING[subcommand] | asking
    may_name = not asking.isdisjoint(words)
    return all(
        word in known or (word.startswith(ABOUT_LISTS) and bool(asking)) or (may_name and word[:1] != "-")
        for word in words
    )


def _as_reader(one: Invocation) -> Program | None:
    """Return what is known of one that starts or changes something with other words than these: `python --version`, `sed -n 1,9p f`."""
    if one.words in SELF_DESCRIBING or (one.program == "command" and one.words[1:2] in (("-v",), ("-V",))):
        return _TEXTS
    if one.program in ("sed", "gsed"):
        return _PRINTING if is_printing(one.arguments) else None
    return _SELECTING if one.program in TEXT_PROGRAMS and is_selecting(one.arguments) else None


def _behind(one: Invocation) -> tuple[str, ...]:
    """Return the words of one with a subcommand from there on."""
    at = next((at for at, word in enumerate(one.arguments) if not word.startswith("-")), len(one.arguments))
    return one.arguments[at:]


def plain_words(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the words of a command without what changes nothing before a subcommand: `git --no-pager log` is `git log`."""
    if words[:1] == () or words[0] not in SUBCOMMANDS:
        return words
    at = next((at for at, word in enumerate(words) if at and word not in BEFORE_SUBCOMMAND), len(words))
    return (words[0], *words[at:])


def without_subcommand(one: Invocation) -> tuple[str, ...]:
    """Return the arguments of a command, without its subcommand and what may stand before that."""
    return plain_words(one.words)[2 if one.program in SUBCOMMANDS else 1 :]


@lru_cache(maxsize=256)  # its risks, its paths and what it reads are each asked about
def parted(arguments: tuple[str, ...], program: Program) -> tuple[Part, ...]:
    """Say of each argument what it may be to its program, which alone knows which of its options take the next word as their value.

    Only the tables make something sure. A `--` that may be such a value ends nothing, nor does one of a program whose options without a value
    are not known: `git stash list -- --output=x` writes a file.
    """
    can_end = program.reads_only and program.style == "gnu" and bool(program.flags)
    is_over = is_behind = False
    last, takes = "", ""
    found: list[Part] = []
    for word in arguments:
        if is_over:
            found.append(Part(word, "operand"))
        elif takes == "surely":
            takes = ""
            found.append(Part(word, "value", last))
        elif word == "--":
            is_over, is_behind, takes = can_end, True, ""
            found.append(Part(word, "end"))
        elif word.startswith("-") and word != "-":
            is_doubtful, last = takes == "perhaps", word
            takes = _takes_next(word, program)
            takes = "perhaps" if takes and (is_doubtful or is_behind) else takes
            can_end = can_end and takes != "perhaps"
            found.append(Part(word, "either" if is_behind else "doubtful" if is_doubtful else "option"))
        else:
            found.append(Part(word, "open" if takes else "operand"))
            takes = ""
    return tuple(found)


def _takes_next(option: str, program: Program) -> str:
    """Say whether an option takes the next word as its value: `surely`, `perhaps`, or not at all."""
    takes = option in program.texts or option in program.plain
    if option in program.flags or (option.startswith("--") and "=" in option):
        return ""
    if option.startswith("--") or program.style == "words" or len(option) == len("-x"):
        return "surely" if takes else "perhaps"
    first, is_joined = option[:2], program.max_operands is None or option[2].isdigit()  # `xxd -cols 8`
    if is_joined and (first in program.texts or first in program.plain):
        return ""  # its value is joined to it
    return "" if all(f"-{letter}" in program.flags for letter in option[1:]) else "perhaps"


def options(one: Invocation) -> list[str]:
    """Return the arguments that may be options: also those behind a `--`, unless they surely are operands there."""
    program = known(one)[1]
    found = [word for word in one.arguments if word.startswith(("-", "@", "+")) or word in program.risky]
    if "--" in found:
        parts = parted(one.arguments, program)
        found = [word for word, kind, _ in parts if word in found and (kind != "operand" or not word.startswith("-"))]
    return [word for word in found if word not in ("-", "--")]


def is_risky(argument: str, program: Program) -> bool:
    """Whether an option writes a file, starts a program or reads settings."""
    name = argument.partition("=")[0]
    usually_runs = name in _RUNNING and program.operands != "text"
    if usually_runs or program is UNKNOWN:
        return usually_runs or cuts_short(name, _RUNNING, but=AMBIGUOUS_OPTIONS)
    if argument.startswith(("@", "+")):
        return argument[0] in program.risky
    if program.style == "words":
        return _is_risky_word(name, program.risky)
    if program.style == "letters" and any(_letters(risky) == _letters(name) for risky in program.risky):
        return True
    if name.startswith("--"):
        return program.style == "gnu" and any(one.startswith(name) for one in program.risky if one.startswith("--"))
    letters = {risky[1] for risky in program.risky if len(risky) == len("-x")}
    return name in program.risky or bool(letters & set(argument[1:]))


def _is_risky_word(name: str, risky: frozenset[str]) -> bool:
    """Whether one of the options that count as whole words is risky. One with two dashes may be cut short."""
    plain = name.lstrip("-")
    if len(name) > len("--x") and any(one.startswith(name) for one in risky if one.startswith("--")):
        return True
    return name in risky or not risky.isdisjoint({f"-{plain}", f"-{plain.removeprefix('test.')}"})


def _letters(option: str) -> str:
    return option.partition(".")[0].replace("-", "").casefold()


def operands(one: Invocation, program: Program) -> list[str]:
    """Return the arguments that may be operands: all but options and what surely is the value of one."""
    found: list[str] = []
    for word, kind, _ in parted(one.arguments, program):
        is_behind = bool(found) and program.max_operands is not None  # `xxd x -o` writes a file `-o`
        if is_behind or kind in ("operand", "open", "either"):
            found.append(word)
    return found


# --- Losing: which words of a git command make it delete or overwrite what git keeps, or pass over checks. Judges no
# other program.

_WITH_REFSPECS = frozenset({"fetch", "pull", "push"})
_WHOLE = frozenset({"clean", "restore", "update-ref"})
"""Subcommands that overwrite or delete with whatever words: a rule on all of git does not cover them."""
_WITH_VALUES = {"commit": "mFCct", "tag": "mFu", "stash": "m", "notes": "mFCc", "merge": "mF"}
"""Short options by subcommand whose value may follow in the same word: the letters after `-m` in `-mnew` are its value."""
_PATH = re.compile(r"[.:]|.*\.")
"""How a word begins, or what is in it, that may name files to `git checkout`: `./`, `:(top)`, `notes.txt`."""
_BRANCHING = ("-b", "-B", "--orphan", "--track", "-t", "--detach", "-d")


def losing_words(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the words of a command with which it takes something away: `--prune`, `--amend`, `+main`.

    Args:
        words: Those of a command, or of a rule on commands.
    """
    program, subcommand, *rest = (*plain_words(words), "", "")
    if program != "git" or subcommand not in LOSING:
        return ()
    behind = zip(
        ["", *rest], rest, strict=False
    )  # a `--` may be the value of the option before it, and ends nothing then
    end = next(
        (at for at, (before, word) in enumerate(behind) if word == "--" and not before.startswith("-")), len(rest)
    )
    letters = _WITH_VALUES.get(subcommand, "")
    found = [word for word in rest[:end] if word and has_option(_without_value(word, letters), LOSING[subcommand])]
    found += [word for word in rest[end : end + 1] if word in LOSING[subcommand]]
    if subcommand in _WITH_REFSPECS:
        found += [word for word in rest if word.startswith("+") or (word.startswith(":") and subcommand == "push")]
    if subcommand in _WHOLE:
        found += [subcommand, *(word for word in rest if set(word) == {"0"})]
    if subcommand == "checkout":
        found += _paths_in(rest[:end])
    return tuple(dict.fromkeys(found))


def _without_value(word: str, letters: str) -> str:
    """Return joined short options without the value of the last one."""
    if not word.startswith("-") or word.startswith("--"):
        return word
    return next((word[: at + 1] for at, letter in enumerate(word) if at and letter in letters), word)


def _paths_in(rest: list[str]) -> list[str]:
    """Return the words of `git checkout` that may name files, whose changes it overwrites."""
    operands = [word for word in rest if word and not word.startswith("-")]
    if len(operands) > 1 and not any(has_option(word, _BRANCHING) for word in rest):
        return operands[1:]
    return [word for word in operands[:1] if _PATH.match(word)]
