"""Reaching: which paths the words of a command name, and how much below them it reads or writes. Opens nothing."""

import posixpath
import re
from collections.abc import Iterator, Sequence
from itertools import islice, pairwise

import msgspec

from treadle.shell.knowing import UNKNOWN, is_risky, known, options, parted, without_subcommand
from treadle.shell.programs import (
    BY_OBJECT,
    INTERPRETERS,
    SHOWING_GIT,
    SUFFIXED,
    UNPACKERS,
    WRAPPERS,
    Program,
    has_option,
    program_name,
)
from treadle.shell.reading import Doubt, Invocation, Redirection, Touched, leads_up

__all__ = [
    "JOINING",
    "MAX_FOLDERS",
    "MAX_TAILS",
    "checked_out",
    "folders",
    "join",
    "joins_names",
    "paths",
    "reads",
    "swept",
    "target",
]

JOINING = "=:,@"
"""Signs that may join a path to something."""
MAX_TAILS = 32
_MOVES = ("-C", "-D", "--chdir", "--cwd", "--directory", "--wd", "--work-tree", "--prefix")
"""Options with which programs go to another folder first."""
MAX_FOLDERS = 32
_MAX_JOINED = 9
"""How far into joined letters one may stand whose value is a path: `curl -fsSLoFILE`."""
_MAX_LETTERS = 6
"""How far into joined letters one may stand that takes a value."""
_GROUPING = frozenset({"tar", "bsdtar", "gtar"})
"""Programs that take the values of joined letters from the words after them."""
_GROUP = re.compile(r"-?[A-Za-z]*C")
_OBJECT = re.compile(r"[0-9a-fA-F]{4,64}")
"""A number that git gives to what it keeps."""
_HIDDEN = re.compile(r"(?:^|/)\.[^./][^/]*$")
_TOO_MANY = 1001
"""More paths than a line may name without a question."""
_SYMBOLIC = frozenset({"-s", "--symbolic"})
_FORMING = frozenset({"-b", "--suffix-format", "--additional-suffix"})
"""Options that say how the names of the files are formed that a program writes."""
_PATTERNS = frozenset({"-e", "-f"})
"""Options with which the first operand of `git grep` is not a pattern."""
_PATCH = frozenset({"--show-current-patch"})
_BY_PATTERN = frozenset({"checkout", "clean", "restore", "rm"})
"""Subcommands of git that write or take away all files that a pattern finds."""
_READ_FIRST = frozenset("-L --decorate-refs --decorate-refs-exclude".split())
_READ_FIRST_BY_GREP = frozenset(
    "-e -f -A -B -C -m --max-count --max-depth --threads --context --after-context --before-context".split()
)
"""Options of git that may take a `--` as their value."""
_FLAGS_OF_GIT = frozenset(
    "-p -s -t -w -b --patch --no-patch --stat --shortstat --numstat --raw --oneline --name-only --name-status --color --no-color".split()
)
"""Options without a value of the subcommands that show what has a name such as `main:x`."""
_SIGNS = re.compile(r"[=:,\s]")
_ENDING = re.compile(r"[\w.*/-]+")
_MAX_ENDS = 300
_PIECES = (re.compile(r"[^\s\"'`|;&<>(){}\[\]=,:@]+"), re.compile(r"[\w.~/-]+"))
"""What may be a path in a text that is a program of its own, or data: `load("a/b")`, `a|b`, `{"path": "a/b"}`."""
_MAGIC = re.compile(r":|.*[*?\[\\]", re.DOTALL)
"""How a word begins, or what it holds, by which git finds files that it does not name: `:/x`, `:!x`, `*.py`."""


def target(one: Redirection, at: str) -> Touched:
    """Return the file of a redirection, in one of the folders that it may be relative to."""
    return Touched(path=join(at, one.target), access="write" if one.writes else "read", text=one.text)


def reads(one: Invocation) -> bool:
    """Whether a command is known to read, with no option that does more: then nobody has to say which of its paths it writes."""
    _, program = known(one)
    return program.reads_only and not any(is_risky(argument, program) for argument in options(one))


def paths(one: Invocation) -> list[Touched]:
    """Return every path that the arguments may name. Where a program is not known each argument may be one, and it may be written."""
    _, program = known(one)
    arguments, is_git = without_subcommand(one), program_name(one.program) == "git"
    goes_deep = program.recursive is None or any(has_option(argument, program.recursive) for argument in arguments)
    follows = program.follows is None or any(has_option(argument, program.follows) for argument in arguments)
    extent = "tree" if goes_deep else program.folder
    named = [*_named(one, program, arguments), *((text, one.text, False) for text in (*_made(one), *_linked(one)))]
    named += [(".git/config", one.text, False)] if _changes_settings(one) else []
    shows_all = is_git and _shows_what_it_does_not_name(one, arguments, goes_deep=goes_deep)
    if shows_all or (goes_deep and not _names_a_path(arguments, program)):
        named.append((".", one.text, reads(one) or shows_all))
    writes_all = is_git and bool(_first(one) & _BY_PATTERN) and any(map(_MAGIC.match, _operands_of_git(one, arguments)))
    named += [(".", one.text, False)] if writes_all else []
    found = [
        Touched(
            path=join(at, text),
            access="read" if is_read else "write",
            text=argument,
            extent=extent,
            follows=follows and extent != "itself" and (not is_git or "mv" in _first(one)),
        )
        for text, argument, is_read in named
        for at in one.folders
    ]
    found += [
        Touched(path=join(at, one.program), access="read", text=one.program, extent="itself", is_program=True)
        for at in one.folders
        if "/" in one.program
    ]
    if not is_git:
        return found
    is_above = goes_deep and "grep" not in _first(one) and not _names_a_path(arguments, program)
    top = Touched(path=".", access="write", text=one.text, from_root=True)
    return [*found, *_from_the_top(one, arguments, shows_all=shows_all or is_above), *([top] if writes_all else [])]


def _named(one: Invocation, program: Program, arguments: tuple[str, ...]) -> list[tuple[str, str, bool]]:
    """Return what the arguments name, each with its argument and with whether it is only read."""
    is_read, seen = reads(one), 0
    found: list[tuple[str, str, bool]] = []
    has_text = program.operands == "first_text" and not any(has_option(word, program.texts) for word in arguments)
    may_read_texts = program is UNKNOWN and program_name(one.program) not in WRAPPERS | INTERPRETERS
    for word, kind, option in parted(arguments, program):
        texts = _values(word, program) if kind in ("option", "doubtful", "either") else []
        is_operand = kind in ("operand", "open", "either")
        if is_operand:
            seen += 1
            is_text = program.operands == "text" or (has_text and seen == 1 and kind == "operand")
            is_no_file = word == "-" or (is_read and word == "/dev/null")
            texts += [] if is_text or is_no_file else [word, *_tails(word)]
        elif kind == "value" and option not in program.plain:
            texts = [word, *_tails(word)]
        texts += [text for form in _PIECES for text in form.findall(word)] if may_read_texts else []
        is_written = program.max_operands is not None and is_operand and seen > program.max_operands
        found += [(text, word, is_read and not is_written) for text in texts]
    return found


def _made(one: Invocation) -> list[str]:
    """Return the names that a program makes of those in its words: without an ending, or with one more (`gunzip x.gz`, `sed -i.bak`)."""
    name, unpacks = program_name(one.program), posixpath.basename(one.program) in UNPACKERS
    if not unpacks and name not in SUFFIXED:
        return []
    endings, found = _endings(one.arguments, SUFFIXED.get(name, "")), []
    for word in one.arguments:
        folder, base = posixpath.split(word)
        stems = [posixpath.splitext(word)[0], *(word.removesuffix(ending) for ending in endings)] if unpacks else []
        whole = [posixpath.join("" if "/" in one else folder, one.replace("*", base)) for one in endings if "*" in one]
        found += [*stems, *whole, *(f"{word}{ending}" for ending in endings)]
    return [one for one in found if one and not one.startswith("-")]


def _linked(one: Invocation) -> list[str]:
    """Return what the links that `ln -s` makes lead to: their text is relative to the folder of the link, wherever the command is."""
    if program_name(one.program) != "ln" or not any(has_option(word, _SYMBOLIC) for word in one.arguments):
        return []
    named = [word for word in one.arguments if not word.startswith("-")]
    places = [*named[-1:], *(posixpath.dirname(word) for word in named[-1:])]
    for word, after in zip(one.arguments, (*one.arguments[1:], ""), strict=False):
        if word.startswith("-"):
            places += [after, word.partition("=")[2], word.partition("t")[2]]
    found = (posixpath.join(place, word) for place in dict.fromkeys(filter(None, places)) for word in named)
    return list(islice(found, _TOO_MANY))


def _endings(arguments: Sequence[str], letter: str) -> list[str]:
    """Return the endings of backups that options name: `-S x`, `-bSx`, `--suffix=x`, `-i.bak`."""
    found: list[str] = []
    for argument, after in zip(arguments, (*arguments[1:], ""), strict=False):
        if argument.startswith(("--su", "--i")):
            found.append(argument.partition("=")[2] or after)
        elif letter and letter in argument and argument.startswith("-") and not argument.startswith("--"):
            found.append(argument.partition(letter)[2] or after)
    return [one for one in found if _ENDING.fullmatch(one)]


def joins_names(one: Invocation) -> list[Doubt]:
    """Say that a program writes files whose names it puts together from parts of which one begins with, or holds, a dot: `split f .env`."""
    if program_name(one.program) not in ("split", "csplit"):
        return []
    parts = [part for one in one.arguments for part in (one, one[2:], one.partition("=")[2])]
    is_hidden = any(_HIDDEN.search(part) for part in parts)
    if not is_hidden and not any(has_option(argument, _FORMING) for argument in one.arguments):
        return []
    return [
        Doubt(reason="The names of the files that this command writes are put together from parts.", text=one.text[:80])
    ]


def _shows_what_it_does_not_name(one: Invocation, arguments: Sequence[str], *, goes_deep: bool) -> bool:
    """Whether git shows or copies what stands in files that no word names: all of them, those of a pattern, or one by its number."""
    first, operands = _first(one), _operands_of_git(one, arguments)
    if SHOWING_GIT & first or (first & {"am", "rebase"} and any(has_option(word, _PATCH) for word in arguments)):
        return True
    if "status" in first and goes_deep:  # it shows all that is staged, whatever it is asked about
        return True
    if "clone" in first and _is_local(operands):
        return True
    is_moving = bool(first & {"checkout", "reset"}) and len(operands) < len(("commit", "path"))
    parts = _SIGNS.split(" ".join([*operands, *(word for word in arguments if word.startswith("-"))]))
    if first & BY_OBJECT and not is_moving and any(map(_OBJECT.fullmatch, parts)):
        return True
    return goes_deep and any(map(_MAGIC.match, operands))


def _operands_of_git(one: Invocation, arguments: Sequence[str]) -> list[str]:
    """Return the arguments without the options, and without the pattern of `git grep`."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    before, after = ([word for word in part if word[:1] != "-"] for part in (arguments[:end], arguments[end:]))
    has_pattern = "grep" in _first(one) and not any(has_option(word, _PATTERNS) for word in arguments[:end])
    return [*before[1 if has_pattern else 0 :], *after]


def _first(one: Invocation) -> set[str]:
    """Return the words among which the subcommand of git is."""
    return {*[word for word in one.arguments if not word.startswith("-")][:2]}


def _is_local(operands: Sequence[str]) -> bool:
    """Whether `git clone` may copy a repository of this machine."""
    at = next((at for at, word in enumerate(operands) if ":" in word), len(operands))
    if any(word.casefold().startswith("file:") for word in operands):
        return True
    return at == len(operands) or any("/" in word or "." in word for word in operands[:at])


def _from_the_top(one: Invocation, arguments: Sequence[str], *, shows_all: bool) -> list[Touched]:
    """Return what git finds from the top of its repository, wherever the line starts: all of it, and what follows a colon (`HEAD:d/x`).

    The root folder may itself lie below the top, so that each end of such a path may be the path from the root folder.
    """
    tails = (argument[at + 1 :] for argument in arguments for at in range(len(argument)) if argument[at] == ":")
    ends = (tail.split("/", times)[-1] for tail in tails for times in range(min(tail.count("/") + 1, MAX_TAILS)))
    named = list(islice(ends, _MAX_ENDS + 1))
    if shows_all or len(named) > _MAX_ENDS:
        named = ["."]
    named = [one for one in dict.fromkeys(named) if one]
    return [Touched(path=path, access="read", text=one.text, extent="tree", from_root=True) for path in named]


def folders(one: Invocation) -> tuple[str, ...]:
    """Return the folders that the paths of a command may be relative to: also those that an option such as `-C` names.

    One more than MAX_FOLDERS where there are too many.
    """
    found = dict.fromkeys(one.folders)
    for value in _moves(one):
        found.update(dict.fromkeys(join(base, value) for base in tuple(found)))
        if len(found) > MAX_FOLDERS:
            break
    for value in _perhaps_moves(one):
        found.update(dict.fromkeys(join(base, value) for base in one.folders))
    return tuple(found)[: MAX_FOLDERS + 1]


def _moves(one: Invocation) -> Iterator[str]:
    """Return what an option names that changes the folder: it may do so several times."""
    for word, after in zip(one.arguments, (*one.arguments[1:], ""), strict=False):
        option = next((option for option in _MOVES if word.startswith(option)), None)
        if option is not None:
            yield from filter(None, (word.removeprefix(option).lstrip("="), after))
        elif word.startswith("--") and has_option(word, _MOVES):
            yield from filter(None, (word.partition("=")[2], after))


def _perhaps_moves(one: Invocation) -> Iterator[str]:
    """Return what may be a folder that a program goes to: of `tar` each argument (`tar cCf d x`), of a wrapper each value of an option."""
    name = program_name(one.program)
    if name in _GROUPING and any(map(_GROUP.match, one.arguments)):
        yield from one.arguments
    elif name in WRAPPERS:
        for word, after in zip(one.arguments, (*one.arguments[1:], ""), strict=False):
            if word.startswith("-"):
                joined = (word[at:] for at in range(2, min(len(word), _MAX_LETTERS)) if word[1] != "-")
                yield from filter(None, (word.partition("=")[2], after, *joined))


def _changes_settings(one: Invocation) -> bool:
    """Whether a command changes what git runs later."""
    words = [word for word in one.arguments if not word.startswith("-")]
    at = next((at for at, word in enumerate(words) if word in ("config", "remote", "submodule")), None)
    if program_name(one.program) != "git" or at is None:
        return False
    if any(has_option(word, ("-e", "--edit")) for word in one.arguments):  # an editor changes them
        return True
    looks = any(word.startswith(("--get", "--list", "--show", "-l")) for word in one.arguments)
    return not (looks or not set(words[at + 1 : at + 2]) - {"get", "get-url", "list", "status", "show"})


def _names_a_path(arguments: tuple[str, ...], program: Program) -> bool:
    """Whether a program that goes through folders is surely told where to begin: else it begins where it is."""
    flags = program.flags | _FLAGS_OF_GIT
    parts = parted(arguments, msgspec.structs.replace(program, flags=flags) if program.revisions else program)
    operands = [word for word, kind, _ in parts if kind == "operand"]
    if program.revisions:
        named = [word for word, kind, _ in parts if kind in ("operand", "open")]
        read_first = _READ_FIRST_BY_GREP if program.operands == "first_text" else _READ_FIRST
        return _has_end(arguments, read_first) or (bool(operands) and all(":" in word[1:] for word in named))
    if program.style == "words":  # find: its paths stand before its expression
        first = next((argument for argument in arguments if argument not in ("-H", "-L", "-P")), "-")
        return not first.startswith(("-", "(", "!", ","))
    is_told = any(kind == "option" and has_option(word, program.texts) for word, kind, _ in parts)
    return len(operands) >= (1 if is_told or program.operands != "first_text" else 2)


def _has_end(arguments: tuple[str, ...], read_first: frozenset[str]) -> bool:
    """Whether git surely finds only paths behind a `--`: it looks for the first one before it reads its options, but for a few of them.

    `git stash list` and `git stash show` take it away.
    """
    if arguments[:1] in (("list",), ("show",)):
        return False
    at = arguments.index("--") if "--" in arguments[:-1] else -1
    before = arguments[at - 1] if at > 0 else ""
    return at >= 0 and (before == "--decorate" or not has_option(before, read_first))


def _values(argument: str, program: Program) -> list[str]:
    """Return the paths that an option may carry: `--to=../x`, `--to=x`, `--to/x`, `-I/usr`, `-o../x`, and `-ox` of a program that may write.

    Behind a letter that may write, in a group too (`-no.git/x`), what follows is one in any case.
    """
    name, sign, _ = argument.partition("=")
    if {name, name + sign, argument[:2]} & program.plain:
        return []
    is_short = not argument.startswith("--")
    starts = [at for at in (argument.find("/"), argument.find("..")) if at > 0 and (is_short or not sign)]
    found = [argument[2:]] if is_short and (starts or not program.reads_only) else []
    found += [argument[min(starts) :]] if starts else []
    if is_short and not program.reads_only:
        found += [argument[at:] for at in range(3, min(len(argument), _MAX_JOINED))]
    if is_short and program.style == "gnu":
        letters = {risky[1] for risky in program.risky if len(risky) == len("-x")}
        found += [argument[at + 1 :] for at, letter in enumerate(argument[:MAX_TAILS]) if at and letter in letters]
    return [text for text in (*found, *_tails(argument)) if text]


def _tails(argument: str) -> list[str]:
    """Return what may be a path in a word that signs join: what follows a sign, what stands before one, and what stands between two."""
    places = [at for at, sign in enumerate(argument) if sign in JOINING][:MAX_TAILS]
    heads = [argument[:at] for at in places] if not argument.startswith("-") else []
    between = [argument[start + 1 : end] for start, end in pairwise(places)]
    return [part for part in dict.fromkeys([*(argument[at + 1 :] for at in places), *heads, *between]) if part]


def join(folder: str, path: str) -> str:
    """Return a path in a folder. A `..` behind a name stays as it is: where that is a link, it leads elsewhere than its text says."""
    joined = posixpath.join(folder, path) if path else folder
    return joined if leads_up(joined) else posixpath.normpath(joined)


# --- Sweeping: which commands take away, move, change or unpack into a folder with all that is in it, and which folders
# they name.

_RECURSIVE = {"rm": "rR", "chmod": "R", "chown": "R", "chgrp": "R", "setfacl": "R", "cp": "rRa", "scp": "r"}
"""Programs that reach into folders with one of these options."""
_RECURSIVELY = ("--recursive", "--archive")
_ALWAYS = frozenset({"mv", "srm", "rimraf", "trash", "trash-put"})
_UNPACKING = frozenset(
    "tar bsdtar gtar unzip cpio pax afio 7z 7za 7zz unrar unar patch gpatch jar ar uudecode unsquashfs cabextract rsync rclone".split()
)
"""Programs that write files whose names stand in their input alone."""
_TAR, _SEVEN, _PATCH_NAME = ("-C", "--directory", "--cd"), ("-o",), ("-d", "--directory")
_INTO = {"tar": _TAR, "bsdtar": _TAR, "gtar": _TAR, "7z": _SEVEN, "7za": _SEVEN, "7zz": _SEVEN, "unzip": ("-d",)} | {
    "patch": _PATCH_NAME,
    "gpatch": _PATCH_NAME,
    "cpio": ("-D", "--directory"),
}
"""How the options begin that name the folder which they write into."""
_LISTING = {
    "tar": "tcrud",
    "bsdtar": "tcru",
    "gtar": "tcrud",
    "unzip": "ltvpZ",
    "cpio": "ot",
    "jar": "tc",
    "ar": "tprqds",
}
"""Letters of the options with which they unpack nothing."""
_TAKING_THE_REST = {
    **dict.fromkeys(("tar", "gtar", "bsdtar", "jar"), "fCbILNFVXKTgH"),
    "unzip": "Pd",
    "cpio": "CDEFHIMOR",
}
"""Letters behind which the rest of a word is a value: `tar -ft` does not list."""
_PATHS_BEHIND_DASHES = frozenset("checkout restore reset stash".split())
"""Subcommands of git that write only what they name behind a `--`. To others it is a commit, or another repository."""
_PLAIN_BEFORE_DASHES = frozenset(
    "push -f --force -q --quiet -p --patch --staged -S -W --worktree --ours --theirs -u -k -a".split()
)
_COPYING = frozenset({"rsync", "rclone"})
"""Programs of these that name the folder which they write into among their words."""
_NAMED_ELSEWHERE = {
    **dict.fromkeys(("gzip", "gunzip", "pigz", "unpigz", "xz", "unxz", "zstd", "unzstd"), ("-N", "--name", "-r", "--recursive")),
    "curl": ("-J", "--remote-header-name"), "wget": ("-r", "-m", "-p", "-x", "--recursive", "--mirror", "--page-requisites", "--content-disposition", "--trust-server-names"),
}  # fmt: skip
"""Options with which a program writes files whose names stand in its input, or in what a server answers."""
_FROM_TEXT = frozenset("apply am fast-import init clone".split())
"""Subcommands of git that write files, and its settings, as a file, a template or another repository says."""
_NAMING = frozenset({"clean", "mv", "rm"})
"""Subcommands of git that take away or move what they name, folders as a whole."""
_FROM_COMMITS = frozenset(
    "checkout switch restore reset stash pull merge rebase cherry-pick revert worktree submodule read-tree checkout-index bisect sparse-checkout".split()
)
_OTHER_STORES = frozenset({"hg", "svn", "jj", "bzr", "fossil", "quilt"})
_UPDATING = frozenset(
    "update up checkout co switch revert pull merge import patch unshelve restore rebase new edit push pop clone".split()
)
"""Subcommands of others that write files whose names stand in their history."""
_LOOKING = {"stash": ("list", "show", "drop", "clear", "create", "store"), "worktree": ("list", "prune", "lock", "unlock", "repair"),
    "submodule": ("status", "summary"), "bisect": ("log", "view", "visualize", "terms"), "sparse-checkout": ("list",)}  # fmt: skip
"""What such a subcommand does without writing files."""


def swept(one: Invocation) -> tuple[str, ...]:
    """Return what a command may take away or change as a whole, as it names it; the folder it is in where it names none."""
    name = program_name(one.program)
    if name == "git":
        return _by_text(one)
    if _has_option(one, _NAMED_ELSEWHERE.get(name, ())):
        return (".",)
    if name in _UNPACKING:
        return () if _only_lists(one, name) else _unpacked_into(one, name)
    named = [word for word in one.arguments if not word.startswith("-")]
    if name == "fd" and _has_option(one, ("-x", "-X", "--exec", "--exec-batch")):
        return (*named, ".")
    is_deleting = name == "find" and "-delete" in one.arguments
    if not (name in _ALWAYS or _goes_deep(one, _RECURSIVE.get(name, "")) or is_deleting):
        return ()
    return tuple(named) or (".",)


def checked_out(one: Invocation) -> tuple[str, ...]:
    """Return the folders in which a command writes files whose names stand in a history alone: `git checkout .`, `git pull`, `hg update`.

    What lies in `.git` is git's own, and not among these files.
    """
    name = program_name(one.program)
    words = [word for word in one.arguments if not word.startswith("-")]
    if name in _OTHER_STORES:
        return (".",) if _UPDATING & set(words[:1]) else ()
    at = next((at for at, word in enumerate(one.arguments) if word in _FROM_COMMITS), None)
    if name != "git" or at is None:
        return ()
    subcommand, rest = one.arguments[at], one.arguments[at + 1 :]
    operands = [word for word in rest if not word.startswith("-")]
    if operands[:1] and operands[0] in _LOOKING.get(subcommand, ()):
        return ()
    if subcommand == "reset" and not _begins(rest, ("--h", "--k", "--me")):
        return ()
    if "--" in rest and subcommand in _PATHS_BEHIND_DASHES:
        end = rest.index("--")
        before = rest[end - 1] if end else ""
        is_end = not before.startswith("-") or "=" in before or before in _PLAIN_BEFORE_DASHES
        return (tuple(rest[end + 1 :]) if is_end else ()) or (".",)
    return tuple(operands) or (".",) if subcommand == "restore" else (".",)


def _by_text(one: Invocation) -> tuple[str, ...]:
    """Return the folder in which git takes files away, or writes what a text, a template or another repository names."""
    at = next((at for at, word in enumerate(one.arguments) if word in {*_FROM_TEXT, *_NAMING}), None)
    if at is None:
        return ()
    subcommand, rest = one.arguments[at], one.arguments[at + 1 :]
    if subcommand == "init":
        return (".",) if _begins(rest, ("--t", "--se")) else ()
    if subcommand == "clone":
        return (".",) if _begins(rest, ("--t", "--c", "--up", "--se")) or _has_letter(rest, "cu") else ()
    if subcommand == "apply" and any(word in ("--check", "--stat", "--numstat", "--summary") for word in rest):
        return ()
    if subcommand == "rm" and not _has_letter(rest, "r") and not any(set(word) & set("*?[:") for word in rest):
        return ()
    named = [word for word in rest if not word.startswith("-")] if subcommand in _NAMING else []
    return tuple(named) or (".",)


def _begins(words: Sequence[str], beginnings: tuple[str, ...]) -> bool:
    return any(word.startswith(beginnings) for word in words)


def _has_letter(words: Sequence[str], letters: str) -> bool:
    return any(word.startswith("-") and not word.startswith("--") and bool(set(word) & set(letters)) for word in words)


def _has_option(one: Invocation, wanted: tuple[str, ...]) -> bool:
    """Whether one of these options is given: a short one also among others, a long one also cut short."""
    letters = {option[1] for option in wanted if not option.startswith("--")}
    return any(
        any(option.startswith(word.partition("=")[0]) for option in wanted if option.startswith("--"))
        if word.startswith("--")
        else word.startswith("-") and bool(letters & set(word[1:]))
        for word in one.arguments
        if word != "--"
    )


def _only_lists(one: Invocation, name: str) -> bool:
    """Whether it surely lists or packs: its first options say so, and none of them unpacks."""
    letters = _LISTING.get(name, "")
    first = one.arguments[0] if one.arguments else ""
    if first.startswith("--") or not letters:
        return first in ("--list", "--create", "--help", "--version")
    end = next((at for at, sign in enumerate(first) if sign in _TAKING_THE_REST.get(name, "")), len(first))
    return bool(set(first[:end]) & set(letters)) and not (set(first) & {"x", "i"}) and "--extract" not in one.arguments


def _unpacked_into(one: Invocation, name: str) -> tuple[str, ...]:
    """Return the folder that files are unpacked into; the one it is in where no option names another."""
    words = [word for word in one.arguments if not word.startswith("-")]
    if name in _COPYING:
        return tuple(words) or (".",)
    options = _INTO.get(name, ())
    named = []
    for option, value in zip(one.arguments, (*one.arguments[1:], ""), strict=False):
        begun = next((name for name in options if option.startswith(name)), None)
        if begun is not None:
            named.append(option[len(begun) :].lstrip("=") or value)
    return tuple(named) or (".",)


def _goes_deep(one: Invocation, letters: str) -> bool:
    return bool(letters) and any(
        any(option.startswith(word) for option in _RECURSIVELY) and len(word) > len("--")
        if word.startswith("--")
        else bool(set(word[1:]) & set(letters))
        for word in one.arguments
        if word.startswith("-")
    )
