"""Hiding: whether a command may start others that its words do not name. A rule that forbids and finds nothing in it has proven nothing.

Closed in the direction that is safe: a form that is not known to name what it starts hides it.
"""

import re
from collections.abc import Callable, Sequence

from treadle.shell.describing import cuts_short, has_option
from treadle.shell.git import BEFORE_SUBCOMMAND, PLAIN_GIT
from treadle.shell.parsed import Invocation
from treadle.shell.programs import (
    EVALUATING,
    INTERPRETERS,
    LISTED,
    LISTING_OPTIONS,
    OPAQUE,
    PROGRAMS,
    READABLE_SHELLS,
    RUNNING_OPTIONS,
    SETTING,
    SHELLS,
    TEXT_PROGRAMS,
    is_known,
)

__all__ = ["STARTED_BY_GIT", "hides", "is_fed", "is_printing", "is_selecting", "loads_files", "sets_variables"]

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
