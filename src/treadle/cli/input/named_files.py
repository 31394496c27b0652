"""Named files: which files of a folder a command starts or reads as code, by what it says. Starts nothing.

What these files start or import in their turn is not known here.
"""

import glob
import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, pairwise
from pathlib import Path

import msgspec

from treadle.cli.input.named_code import JAVASCRIPT, loaded_by, spreads
from treadle.cli.input.shell_words import UNKNOWN, Word, commands_in

__all__ = ["BY_CUSTOM", "Named", "exec_line", "files_named", "usual_variables"]

_PROJECT = ("CLAUDE_PROJECT_DIR", "TREADLE_PROJECT_DIR")
_ROOT = re.compile(r"\$\{?(?:CLAUDE|TREADLE)_PROJECT_DIR\b\}?")
_WORDS = re.compile(r"[^\s;|&<>()=,:'\"`]+")
_MODULE = re.compile(r"[A-Za-z_]\w*(\.\w+)*")
_BRACES = re.compile(r"\{([^{}]*,[^{}]*)\}")
_WILD_PARTS = re.compile(r"[^/]*[*?\[][^/]*")
_BEFORE_PROGRAM = re.compile(r"[A-Za-z_]\w*=.*|\d+[smhd]?|", re.DOTALL)
_PYTHON = ("pyproject.toml", "setup.cfg")
_YAML = (".yml", ".yaml")
_COMPOSE = tuple(
    f"{name}{end}"
    for name in ("compose", "docker-compose", "compose.override", "docker-compose.override")
    for end in _YAML
)
_GRADLE = tuple(f"{name}.gradle{end}" for name in ("build", "settings", "init") for end in ("", ".kts"))
_GRADLE += ("gradle.properties", "gradle/wrapper/gradle-wrapper.properties", "gradle/wrapper/gradle-wrapper.jar")
_MAVEN = (
    "pom.xml",
    ".mvn/extensions.xml",
    ".mvn/jvm.config",
    ".mvn/maven.config",
    ".mvn/wrapper/maven-wrapper.properties",
)


def _configs(*names: str) -> tuple[str, ...]:
    """Return the files in which programs of JavaScript look for their settings, by how these begin."""
    ends = ("", ".js", ".mjs", ".cjs", ".ts", ".mts", ".cts", ".json", *_YAML)
    return ("package.json", *(f"{name}{end}" for name in names for end in ends))


_READS: Mapping[str, Sequence[str]] = {
    "make": ("GNUmakefile", "makefile", "Makefile"),
    "just": ("justfile", "Justfile", ".justfile"),
    "task": ("Taskfile.yml", "Taskfile.yaml"),
    "rake": ("Rakefile", "rakefile", "Rakefile.rb"),
    "cargo": ("Cargo.toml", "build.rs", ".cargo/config.toml"),
    "deno": ("deno.json", "deno.jsonc"),
    "nox": ("noxfile.py",),
    "invoke": ("tasks.py",),
    "fab": ("fabfile.py",),
    "pre-commit": (".pre-commit-config.yaml",),
    "tox": ("tox.ini", *_PYTHON),
    "pytest": ("conftest.py", "pytest.ini", "tox.ini", *_PYTHON),
    "uv": ("pyproject.toml", "uv.toml"),
    **dict.fromkeys(("poetry", "pdm", "hatch"), ("pyproject.toml",)),
    **dict.fromkeys(("npm", "npx", "pnpm", "yarn", "bun"), ("package.json",)),
    "eslint": _configs("eslint.config", ".eslintrc"),
    "prettier": _configs("prettier.config", ".prettierrc"),
    "stylelint": _configs("stylelint.config", ".stylelintrc"),
    "jest": _configs("jest.config"),
    "vitest": _configs("vitest.config", "vite.config"),
    "vite": _configs("vite.config"),
    "webpack": _configs("webpack.config"),
    "rollup": _configs("rollup.config"),
    "babel": _configs("babel.config", ".babelrc"),
    "lint-staged": _configs("lint-staged.config", ".lintstagedrc"),
    **dict.fromkeys(("gradle", "gradlew"), _GRADLE),
    **dict.fromkeys(("mvn", "mvnw"), _MAVEN),
    **dict.fromkeys(("docker", "docker-compose", "podman", "podman-compose"), _COMPOSE),
    "composer": ("composer.json",),
    "mise": ("mise.toml", ".mise.toml", "mise.local.toml", ".mise/config.toml", ".config/mise.toml", ".tool-versions"),
    "lefthook": tuple(f"{dot}lefthook{end}" for dot in ("", ".") for end in (*_YAML, ".toml", ".json")),
}
"""Programs, and the files that say what these run."""
BY_CUSTOM = frozenset(name for names in _READS.values() for name in names)
"""All these files."""
_LOCAL = {
    **dict.fromkeys(("npm", "npx", "pnpm", "yarn", "bun", "bunx"), "node_modules/.bin"),
    **dict.fromkeys(("uv", "poetry", "pdm", "hatch"), ".venv/bin"),
}
"""Programs that look for others in a folder of the project."""
_SHELLS = frozenset({"sh", "bash", "dash", "ash", "zsh", "ksh"})
_KEYWORDS = frozenset({"if", "then", "else", "elif", "while", "until", "do", "!", "{", "time"})
_WRAPPERS = frozenset({"env", "exec", "command", "nohup", "nice", "timeout", "sudo", "xargs", "setsid", "stdbuf"})
_RUNNERS = _SHELLS | frozenset(
    """
    . source eval python pypy node nodejs deno bun bunx tsx ts-node perl ruby php lua Rscript julia java osascript uv uvx npx pnpx
    npm pnpm yarn poetry pdm hatch pipx make just
    """.split()  # noqa: SIM905 - a table reads better as words
)
"""Programs whose first argument says what they run."""
_SUBCOMMANDS = frozenset({"run", "exec", "x", "dlx", "tool", "-"})
_CODE_OPTION = re.compile(
    r"--?(?:r|require|import|loader|experimental-loader|c|config.*|f|file|makefile|env-file|init.*|rc.*|preload|plugin.*|settings.*)"
)
_MAX_FOLDERS, _MAX_FOUND, _MAX_WILD = 50, 500, 3


class Named(msgspec.Struct, frozen=True, kw_only=True):
    """The files of a folder that a command names."""

    files: dict[str, Path]
    """By their names in the folder."""
    code: frozenset[str] = frozenset()
    """Those of them that it starts, whatever they look like."""
    unknown: tuple[str, ...] = ()
    """Words that say what is started, and whose files cannot be known before."""


def files_named(root: Path, command: str, environment: Mapping[str, str] | None = None) -> Named:
    """Return the files of a folder that a line of shell may start.

    It finds more than those, and says of what it cannot find that it is unknown.

    Args:
        root: From `/`, links resolved.
        environment: Variables that the line gets.
    """
    variables = {**(environment or {}), **dict.fromkeys(_PROJECT, str(root))}
    commands = list(_all_commands(command, variables))
    code, unknown = list[str](), list[str]()
    for one in commands:
        _look(one, code, unknown)
        names, unclear = loaded_by([word.text for word in one])
        code += names
        unknown += map(_shown, unclear)
    plain = _ROOT.sub(lambda _: str(root), command)
    parts = [part for one in commands for word in one for part in _parts(word.text)]
    parts += [part for one in _WORDS.findall(plain) for part in (one, one.replace("\\", ""))]
    words = [one for one in dict.fromkeys(parts) if one and "\0" not in one]
    folders = _folders(root, words)
    wild = [place for one in commands for word in one for place in _matches(word, folders, unknown)]
    wanted = [place / name for place in folders for name in _names(words, commands, variables)]
    started = {place / name for place in folders for name in code if "\0" not in name}
    if any(spreads([word.text for word in one], _WRAPPERS, _RUNNERS) for one in commands):
        started.update(_files_in(root, folders, [word.text for one in commands for word in one], unknown))
    files, started_names = dict[str, Path](), set[str]()
    for named in sorted({*wanted, *wild, *started}):
        if (found := _file(root, named)) is not None:
            name = os.path.relpath(os.path.normpath(named), root)
            files[name] = found
            if named in started:
                started_names.add(name)
    return Named(files=files, code=frozenset(started_names), unknown=tuple(dict.fromkeys(unknown)))


def _file(root: Path, named: Path) -> Path | None:
    """Return the file of the folder that a name leads to."""
    if not os.path.lexists(named):
        return None
    path = Path(os.path.realpath(named))
    return path if path.is_file() and path.is_relative_to(root) else None


def _all_commands(line: str, variables: Mapping[str, str], depth: int = 0) -> Iterator[list[Word]]:
    """Yield the commands of a line, and those of lines that its shells get as a word: `sh -c './check'`."""
    for words in commands_in(line, variables):
        yield words
        has_shell = any(_plain(word.text) in _SHELLS or word.text == "eval" for word in words)
        if has_shell and depth < _MAX_DEPTH:
            for word in words:
                if re.search(r"[\s$`;'\"\\]", word.text):
                    yield from _all_commands(word.text, variables, depth + 1)


_MAX_DEPTH = 3


def _look(words: Sequence[Word], code: list[str], unknown: list[str]) -> None:
    """Add what a command starts: the name, or the word as far as it is known where nobody knows it."""
    rest = [word.text for word in words]
    while rest and (_BEFORE_PROGRAM.fullmatch(rest[0]) or rest[0] in _KEYWORDS or _is_wrapper(rest[0])):
        is_wrapper = _is_wrapper(rest.pop(0))
        while is_wrapper and rest and rest[0].startswith("-"):
            rest.pop(0)
    if not rest:
        return
    _add(rest[0], code, unknown)
    program = _plain(rest[0])
    if program in ("cd", "pushd"):
        unknown += [_shown(word) for word in rest[1:] if UNKNOWN in word]
    for before, word in pairwise(rest):
        name, _, value = word.partition("=")
        if _CODE_OPTION.fullmatch(before) or (value and _CODE_OPTION.fullmatch(name)):
            _add(value or word, code, [])
    if program in _RUNNERS:
        operands = (word for word in rest[1:] if word not in _SUBCOMMANDS and not word.startswith("-"))
        _add(next(operands, ""), code, unknown)
        unknown += [_shown(word) for word in rest[1:] if word.startswith("-") and UNKNOWN in word and "=" not in word]


def _add(word: str, code: list[str], unknown: list[str]) -> None:
    if UNKNOWN in word and not re.search(r"\s", word):
        unknown.append(_shown(word))
    code += [word, f"{word}/__main__.py", *(f"{word}{end}" for end in JAVASCRIPT)]


def _shown(word: str) -> str:
    return word.replace(UNKNOWN, "...")


def _is_wrapper(word: str) -> bool:
    return os.path.basename(word) in _WRAPPERS  # noqa: PTH119 - a name, not a path


def _plain(word: str) -> str:
    return re.sub(r"[\d.]+$", "", os.path.basename(word)) or word  # noqa: PTH119 - as above


def _parts(word: str) -> Iterator[str]:
    """Yield what may be a name in a word: itself, what stands behind a joined option, and what follows an unknown value."""
    yield word.rpartition(UNKNOWN)[2].lstrip("/") if UNKNOWN in word else word
    yield from re.split(r"[=,:\s]", word)
    if re.match(r"-[A-Za-z]", word):
        yield from (word[at:] for at in range(2, min(len(word), 12)))


def _folders(root: Path, words: Sequence[str]) -> list[Path]:
    """Return the folders in which a command may start a program: it may go to those that it names."""
    found = [root]
    for word in words:
        near = [place / word for place in found if os.path.lexists(place / word)]
        near = [one for one in near if one.is_dir() and Path(os.path.realpath(one)).is_relative_to(root)]
        found += [one for one in near if one not in found][: _MAX_FOLDERS - len(found)]
    return found


def _matches(word: Word, folders: Sequence[Path], unknown: list[str]) -> Iterator[Path]:
    """Yield the files that the shell finds for a word."""
    for pattern in _without_braces(word.pattern) if UNKNOWN not in word.pattern else ():
        if len(_WILD_PARTS.findall(pattern)) > _MAX_WILD:
            unknown.append(word.text)
            continue
        for place in folders:
            if pattern.startswith("/") and not pattern.startswith(f"{folders[0]}/"):
                continue
            names = glob.iglob(pattern, root_dir=place)  # noqa: PTH207 - as the shell: `**` is `*`, and `..` may stand in it
            found = list(islice(names, _MAX_FOUND + 1))
            if len(found) > _MAX_FOUND:
                unknown.append(word.text)
            yield from (place / name for name in found[:_MAX_FOUND])


def _files_in(root: Path, folders: Sequence[Path], words: Sequence[str], unknown: list[str]) -> Iterator[Path]:
    """Yield all files of the folders that a command names: it runs what it finds there. The whole project is too much to bind."""
    named = [one for one in folders if one != root]
    if not named or any(os.path.normpath(root / word) == str(root) for word in words):
        unknown.append("{}")
        return
    number = 0
    for folder in named:
        for place, inner, names in os.walk(folder):
            number += len(names) + len(inner)
            if number > _MAX_FOUND or len(Path(place).relative_to(folder).parts) > _MAX_DEEP:
                unknown.append(str(folder.relative_to(root)))
                return
            yield from (Path(place, name) for name in names)


_MAX_DEEP = 8


def _without_braces(pattern: str) -> list[str]:
    """Return what `{a,b}` stands for."""
    left, done = [pattern] if pattern else [], list[str]()
    while left and len(done) + len(left) < _MAX_FOUND:
        one = left.pop()
        found = _BRACES.search(one)
        if found is None:
            done.append(one)
        else:
            left += [f"{one[: found.start()]}{part}{one[found.end() :]}" for part in found[1].split(",")]
    return done


def _names(words: Sequence[str], commands: Sequence[Sequence[Word]], variables: Mapping[str, str]) -> list[str]:
    """Return the names of files that a command may start: its words, its modules of Python, and what its programs read by custom."""
    given = {word.text for one in commands for word in one} | set(words)
    has_modules = any(re.match(r"-[A-Za-z]*m", word) for word in given)
    modules = [word.split(".") for word in words if has_modules and _MODULE.fullmatch(word)]
    files = [f"{'/'.join(parts)}{end}" for parts in modules for end in (".py", "/__main__.py")]
    packages = [f"{'/'.join(parts[:length])}/__init__.py" for parts in modules for length in range(1, len(parts) + 1)]
    programs = {_plain(word) for word in words}
    customs = [name for program in sorted(programs) for name in _READS.get(program, ())]
    places = {_LOCAL[program] for program in programs if program in _LOCAL}
    root = variables[_PROJECT[0]]
    paths = variables.get("PATH", "").split(os.pathsep)
    places.update(one for one in paths if one and (one.startswith(f"{root}/") or not one.startswith("/")))
    local = [f"{place}/{word}" for place in sorted(places) for word in words if "/" not in word]
    return [*words, *files, *packages, *customs, *local]


def exec_line(words: Sequence[str], folder: str | None = None) -> str:
    """Return the line of shell that means a program and its arguments, started in a folder."""
    return f"{f'cd {shlex.quote(folder)}; ' if folder else ''}{shlex.join(words)}"


def usual_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return those of our variables that every program gets, and that may say where files are."""
    return {name: environment[name] for name in ("HOME", "PATH", "SHELL", "TMPDIR", "USER") if name in environment}
