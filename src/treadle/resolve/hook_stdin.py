"""Standard input of hooks: whether a line of shell would carry it out as code. It holds what the model wrote. Starts nothing.

It reads what an honest author writes. An interpreter that is not known for sure to have a script or code counts as one without.
"""

import re
from collections.abc import Iterator, Mapping
from itertools import chain, pairwise

import msgspec

from treadle.shell.programs import program_name

__all__ = ["reads_code"]

_INNER = r"\$\((?:[^()]|\([^()]*\))*\)"
_TOKEN = re.compile(
    rf"""(?P<blank>[ \t\r]+|\\\n|(?<![^\s;&|(])\#[^\n]*)
    |(?P<number>\d*)(?P<redirect><<<|<<-?|<>|[<>]&|&>>?|>>|>\||[<>](?!\())
    |(?P<end>[;&|()\n]+)
    |(?P<word>(?:\\.|'[^']*'|"(?:{_INNER}|\\.|[^"\\])*"|{_INNER}|\$\{{[^}}]*\}}|`[^`]*`|[<>]\([^()]*\)|[^\s;&|()<>\\'"`])+)""",
    re.VERBOSE | re.DOTALL,
)
_PIECE = re.compile(r"'([^']*)'|\"((?:\\.|[^\"\\])*)\"|\\(.)", re.DOTALL)
_HEREDOC = re.compile(r"(?<!<)<<-?[ \t]*(['\"\\]?)(\w+)['\"]?([^\n]*)\n(.*?)(?:(?<=\n)|\n)[ \t]*\2(?=\n|$)", re.DOTALL)
_PATTERN = re.compile(r"=~\s+[^\s$`;]\S*(?=\s)")
"""A regular expression in `[[ ]]`: its parentheses start nothing."""
_SUBSTITUTED = re.compile(rf"{_INNER}|`[^`]*`|[<>]\([^()]*\)")
_VARIABLE = re.compile(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)(?::?-([^{}]*))?\})")
_FOUND = re.compile(r"(?:\$\(|`)\s*(?:command -v|which|type -p)\s+([\w.+-]+)[^)`]*[)`]")
_INPUT = re.compile(r"-?|/dev/stdin|/dev/fd/\d+|/proc/(?:self|\$\$)/fd/\d+|[<>]\(.*", re.DOTALL)
"""Names of the standard input, and of what a command within the line prints."""
_CARRIED_OUT = re.compile(r"(?:\$\(|`)\s*(?:cat\s*(?:-|/dev/stdin)?|<\s*/dev/stdin)\s*[)`]")
_BEFORE = re.compile(r"[A-Za-z_]\w*=.*|!|\{|if|then|elif|else|while|until|do|coproc", re.DOTALL)
_WRAPPERS: Mapping[str, str] = {
    "env": "-u -C --unset --chdir",
    "sudo": "-u -g -h -p -C -r -t -U -D -T -R --user --group --chdir",
    "doas": "-u -C",
    "nice": "-n --adjustment",
    "timeout": "-k -s --kill-after --signal",
    "ionice": "-c -n",
    "stdbuf": "-i -o -e",
    "time": "-f -o",
    "exec": "-a",
    "flock": "-w -E",
    "xargs": "-I -n -P -L -s -d -E -a",
    "uv": "--with -p --python --extra --group --env-file --directory --project --with-requirements --index",
    "npx": "-p --package",
    **dict.fromkeys(("poetry", "pipenv", "pdm", "hatch", "rye", "mise"), "-C -P"),
    **dict.fromkeys(("command", "builtin", "nohup", "setsid", "chronic", "busybox", "bunx", "pnpx"), ""),
}
"""Programs that start others, and their options that take a value."""
_OPERANDS = {"timeout": 1, "flock": 1}
_STARTING = {"uv": "run", "poetry": "run", "pipenv": "run", "pdm": "run", "hatch": "run", "rye": "run", "mise": "exec"}
_READ_FILES = frozenset(["awk", "gawk", "mawk", "jq", "sed", "make", "gmake"])


class _Interpreter(msgspec.Struct, frozen=True, kw_only=True):
    """The options of an interpreter that say what it runs, and those that take a value."""

    code: str = ""
    """Letters, and words with two dashes, whose value is code or names it."""
    values: str = ""
    joined: str = ""
    """Letters whose value can only be joined to them."""
    asks: str = ""
    """Letters of options that print something and end."""
    runs: tuple[str, ...] = ()
    """Subcommands before a script."""


_SHELL = _Interpreter(code="c --command", values="o O C --rcfile --init-file --init-command")
_NODE = _Interpreter(
    code="e p --eval --print --run",
    values="r C P O --require --import --loader --experimental-loader --conditions --input-type --title --project",
    asks="v h",
)
_INTERPRETERS: Mapping[str, _Interpreter] = {
    **dict.fromkeys(("sh", "bash", "dash", "ash", "ksh", "mksh", "zsh", "fish", "csh", "tcsh"), _SHELL),
    **dict.fromkeys(("node", "nodejs", "tsx", "ts-node"), _NODE),
    **dict.fromkeys(
        ("python", "pypy", "ipython"), _Interpreter(code="c m", values="W X --check-hash-based-pycs", asks="V h ?")
    ),
    "deno": _Interpreter(values="c L --config --import-map --cert --location --ext", asks="V h", runs=("run", "repl")),
    "bun": _Interpreter(code="e p --eval --print", values="r --preload --cwd", asks="v h", runs=("run", "repl")),
    "perl": _Interpreter(code="e E", values="I M m", joined="i F x C D d", asks="v V h"),
    "ruby": _Interpreter(code="e", values="r I C E --encoding", joined="K W T x F i 0", asks="v h"),
    "php": _Interpreter(code="r B R E F f S", values="c d z t", asks="v i m h"),
    "lua": _Interpreter(code="e", values="l", asks="v"),
    "luajit": _Interpreter(code="e b", values="l j", joined="O", asks="v"),
    "tclsh": _Interpreter(values="-encoding"),
    "rscript": _Interpreter(code="e"),
    "julia": _Interpreter(code="e E --eval --print", values="L J t p", asks="v h"),
    "osascript": _Interpreter(code="e", values="l s"),
}


class _Command(msgspec.Struct, kw_only=True):
    words: list[str] = []
    """As written."""
    has_input: bool = False
    """Whether the line gives it an input of its own."""


def reads_code(line: str, environment: Mapping[str, str]) -> bool:
    """Whether a line starts an interpreter without a script or code: it would take the input of the hook for its script.

    A variable that the hook does not get is empty: `bash $SCRIPT` is `bash`.

    Args:
        environment: All variables that the line gets.
    """

    def value(found: re.Match[str]) -> str:
        name = found[1] or found[2]
        is_set_here = re.search(rf"(?<![\w${{]){name}\b", line) is not None
        return found[0] if is_set_here else environment.get(name) or found[3] or ""

    return _is_code(_VARIABLE.sub(value, line), 0)


def _is_code(line: str, depth: int) -> bool:
    return depth < _MAX_DEPTH and any(_takes_input(one, depth) for one in _commands(line))


_MAX_DEPTH = 5


def _commands(line: str) -> Iterator[_Command]:
    def here(found: re.Match[str]) -> str:
        """Return a here-document without its lines: as one that is not known, where a command prints part of them."""
        is_known = bool(found[1]) or _SUBSTITUTED.search(found[4]) is None
        return f"<< {found[2] if is_known else '$x'} {found[3]}"

    one, redirect = _Command(), ""
    text = _PATTERN.sub("=~ x", _HEREDOC.sub(here, line))
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        at = at + 1 if found is None else found.end()
        if found is None or found["blank"]:
            continue
        if found["end"]:
            yield one
            one, redirect = _Command(), ""
        elif found["redirect"]:
            redirect = "" if found["number"] not in ("", "0") else found["redirect"]
            redirect = redirect or ">"
        elif redirect:
            is_printed = (
                redirect.startswith("<<") and not found["word"].startswith("'") and re.search(r"[$`]", found["word"])
            )
            is_file = redirect in ("<", "<<", "<<-", "<<<") and (
                redirect != "<" or not _INPUT.fullmatch(_text(found["word"]))
            )
            one.has_input, redirect = one.has_input or (is_file and not is_printed), ""
        else:
            one.words.append(found["word"])
    yield one


def _text(word: str) -> str:
    """Return a word without its quotes."""
    return _PIECE.sub(lambda found: found[1] or re.sub(r"\\([$`\"\\])", r"\1", found[2] or "") or found[3] or "", word)


def _open(word: str) -> str:
    """Return the parts of a word that the shell expands."""
    return re.sub(r"'[^']*'", "", word)


def _takes_input(command: _Command, depth: int) -> bool:
    """Whether one command, or a line within it, carries out the input of the hook."""
    within = (one[0] for word in command.words for one in _SUBSTITUTED.finditer(_open(word)))
    if any(_is_code(one.lstrip("$<>`(")[:-1], depth + 1) for one in within):
        return True
    rest = _started(command.words)
    if not rest:
        return False
    found = _FOUND.fullmatch(_text(rest[0]))
    name = program_name(found[1] if found else _text(rest[0]))
    if name in ("eval", "trap"):
        return _is_line_code(rest[1:2], depth)
    if name in _INTERPRETERS:
        return _lacks_script(_INTERPRETERS[name], rest[1:], command.has_input, depth)
    return not command.has_input and _reads_file(name, rest, is_started=rest[0] != command.words[0])


def _reads_file(name: str, words: list[str], *, is_started: bool) -> bool:
    """Whether a program that is not an interpreter gets its standard input by a name, as its code."""
    first = [_text(word) for word in words[1:2]]
    if name in (".", "source"):
        return any(map(_INPUT.fullmatch, first))
    if name in _READ_FILES:
        pairs = chain(pairwise(words), ((one[:2], one[2:]) for one in words))
        return any(before in ("-f", "--file") and after and _INPUT.fullmatch(after) for before, after in pairs)
    return is_started and _INPUT.fullmatch(_text(words[0])) is not None  # `uv run -`


def _started(words: list[str]) -> list[str]:
    """Return what a command starts behind the programs that start others; nothing where it only asks for one."""
    rest = list(words)
    while rest:
        name = program_name(_text(rest[0]))
        if _BEFORE.fullmatch(rest[0]):
            rest.pop(0)
            continue
        if name not in _WRAPPERS or (name in _STARTING and _STARTING[name] not in rest):
            return rest
        rest = rest[rest.index(_STARTING[name]) + 1 :] if name in _STARTING else rest[1:]
        while rest and rest[0].startswith("-") and rest[0] != "-":
            option = rest.pop(0)
            if name == "command" and re.fullmatch(r"-p?[vV]", option):
                return []
            if name == "env" and option == "-S" and rest:
                rest[:1] = next(_commands(_text(rest[0]))).words
            if option in _WRAPPERS[name].split() and rest:
                rest.pop(0)
            if option == "--":
                break
        rest = rest[_OPERANDS.get(name, 0) :]
    return rest


def _lacks_script(kind: _Interpreter, words: list[str], has_input: bool, depth: int) -> bool:
    """Whether an interpreter gets neither a script nor code from its words."""
    rest = list(words)
    while rest and ((option := _text(rest[0])) in kind.runs or re.match(r"[-+].", option, re.DOTALL)):
        rest.pop(0)
        if option == "--":
            break
        match _option(kind, option, rest):
            case "asks":
                return False
            case "input":
                return not has_input
            case "code":
                while kind is _SHELL and rest and rest[0].startswith("-"):
                    rest.pop(0)
                return _is_line_code(rest[:1], depth if kind is _SHELL else _MAX_DEPTH)
            case _:
                pass
    if kind is _SHELL and rest[:1] == ["-"]:
        rest.pop(0)
    is_input = not rest or _INPUT.fullmatch(_text(rest[0])) is not None
    return is_input and not has_input


def _option(kind: _Interpreter, option: str, rest: list[str]) -> str:
    """Return what an option says, and take its value from the words behind it."""
    name, is_joined, _ = option.partition("=")
    if name.startswith("--"):
        if name in _ASKING or (name in kind.code.split() and is_joined):
            return "asks"
        if name in kind.values.split() and not is_joined:
            rest[:1] = []
        return "code" if name in kind.code.split() else ""
    found = ""
    for at, letter in enumerate(option[1:], 2):
        is_shell, more = kind is _SHELL, option[at:]
        if letter in kind.asks.split():
            return "asks"
        if letter in kind.code.split():
            found = "code" if is_shell or not more else "asks"
        elif is_shell and letter == "s":
            return "input"
        elif letter in kind.values.split() and (is_shell or not more):
            rest[:1] = []
        if not is_shell and letter in (*kind.code.split(), *kind.values.split(), *kind.joined.split()):
            break
    return found


_ASKING = ("--version", "--help", "--test")
"""Long options that print something and end, or look for scripts by themselves."""


def _is_line_code(words: list[str], depth: int) -> bool:
    """Whether a line that is given as a word is missing, is the input of the hook, or carries it out."""
    if not words or _CARRIED_OUT.search(_open(words[0])):
        return True
    return _is_code(_text(words[0]), depth + 1)
