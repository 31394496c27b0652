"""Configuration files: one TOML file in, one checked layer of settings out. Does not know which layer wins."""

import os
import re
import stat
import tomllib
from collections.abc import Callable, Collection, Mapping
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, Literal, NoReturn, TypeAlias, get_args, get_type_hints

import msgspec

from treadle import Budget, ConfigurationError, Price, allow, deny
from treadle.budgets import Guards
from treadle.cli.exits import UsageError
from treadle.cli.input.near import hint_for
from treadle.cli.input.options import LONGEST_SECONDS, Mode, OnApproval, OnLimit, Sandbox
from treadle.ports import ErrorForm, ModelFacts, TextCalls
from treadle.redaction import Redactor
from treadle.workers import Limit

__all__ = [
    "COUNTS",
    "EACH",
    "KEYS",
    "LIMIT_WORDS",
    "NOTIFY_WORDS",
    "SERVER_KEYS",
    "Layer",
    "Owner",
    "Profile",
    "Redaction",
    "read_layer",
]

Owner: TypeAlias = Literal["person", "project", "managed"]

_MAX_BYTES = 1_000_000
_WORDS = {
    "on_limit": get_args(OnLimit),
    "on_approval": get_args(OnApproval),
    "mode": get_args(Mode),
    "sandbox": get_args(Sandbox),
    "text_calls": get_args(TextCalls),
    "error_form": get_args(ErrorForm),
}
_SECONDS = ("first_byte_seconds", "idle_seconds")
KEYS = (
    "model",
    "base_url",
    "model_options",
    "system",
    "budget",
    "profiles",
    "guards",
    "price",
    "facts",
    "tools",
    "allow",
    "ask",
    "deny",
    "redaction",
    "mcp",
    "workers",
    "approval_seconds",
    "notify",
    "notify_after_seconds",
    *_WORDS,
    *_SECONDS,
)
NOTIFY_WORDS = ("bell", "osc9", "off")
SERVER_KEYS = ("command", "args", "env", "cwd", "type", "url", "headers", "trusted", "effects", "timeout")
"""What is said of an MCP server, by the names of `.mcp.json`."""
_OWN_SERVER_KEYS = ("trusted", "effects", "timeout")
_RULE_KEYS = ("allow", "ask", "deny")
"""What the file of an organisation can set."""
_NOT_FOR_PROJECTS = {
    "model": "it could send your files to a model that you did not choose",
    "base_url": "it could send your files and your key to a server that you did not choose",
    "model_options": "it would change what is sent to a model that you choose yourself",
    "system": "it would give the model instructions that you did not choose",
    "price": "it could make a cost limit meaningless",
    "facts": "it describes a model, which you choose yourself",
    "text_calls": "it describes a model, which you choose yourself",
    "error_form": "it describes a model, which you choose yourself",
    "first_byte_seconds": "it describes a model, which you choose yourself",
    "idle_seconds": "it describes a model, which you choose yourself",
    "tools": "it would run code that you did not choose",
    "allow": "it would permit calls that you did not permit",
    "notify": "it would run a program that you did not choose",
    "notify_after_seconds": "it concerns you and not the project",
    "redaction": "it would show secrets that you did not want to show",
}
"""What the file of a project cannot set, since opening a folder must not be a risk."""


_FOR_TRUSTED = frozenset({"allow", "system"})
"""What it can set once its folder is trusted."""

COUNTS = ("sessions", "requests_per_minute", "tokens_per_minute")
LIMIT_WORDS = {
    "sessions": "sessions",
    "requests": "requests_per_minute",
    "tokens": "tokens_per_minute",
    **{same: same for same in ("each", "tenants", "agents", "models")},
}
"""The words of a limit, in files and in `--limit`, and which field of a limit each is."""
EACH = tuple(word for word in get_args(get_type_hints(Limit)["each"]) if word)
_WHERE = ("workers", "limits")
_LONGEST_LIMIT_NAME = 100


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """A whole set-up for one kind of task, or what a file says of it. None or empty for what it leaves to the rest of the configuration."""

    budget: dict[str, Any] = {}
    """The limits of a run: see [budget]."""
    on_limit: OnLimit | None = None
    """At a turn or call limit: ask the model for a summary, or only report."""
    on_approval: OnApproval | None = None
    """What happens to a call that needs a person."""
    model: str | None = None
    """The model, such as `openai-chat:gpt-5-mini`."""
    base_url: str | None = None
    """The provider's address."""
    model_options: dict[str, Any] = {}
    """Fields of each request to the model, as `-o` has them: see [model_options]."""
    price: Price | None = None
    """What the model costs: see [price]."""
    facts: ModelFacts | None = None
    """What the model can do."""
    text_calls: TextCalls | None = None
    """What happens to calls that the model's server leaves in the text."""
    error_form: ErrorForm | None = None
    """What the model reads of a tool's error: a sentence, or all fields."""
    first_byte_seconds: float | None = None
    """How long the model may read before it answers."""
    idle_seconds: float | None = None
    """How long it may pause in its answer."""
    system: str | None = None
    """Instructions for the model, or `@` and a file next to this one."""
    tools: tuple[str, ...] | None = None
    """Built-in tools by name, Python files, or `module:attribute`."""
    mode: Mode | None = None
    """How much happens without a question in a new session."""
    sandbox: Sandbox | None = None
    """Whether commands are confined: `on`, `network` for confined but with the network, or `off`."""
    allow: tuple[str, ...] = ()
    """Rules of calls that are allowed."""
    ask: tuple[str, ...] = ()
    """Rules of calls that a person is asked about, though another rule allows them."""
    deny: tuple[str, ...] = ()
    """Rules of calls that are denied; a denial wins."""


class Redaction(msgspec.Struct, frozen=True, kw_only=True):
    """What is redacted in all that is shown, beyond what is by default."""

    enabled: bool | None = None
    """Whether well-known forms and fields are hidden; `false` hides only the secret values of the environment."""
    patterns: tuple[str, ...] = ()
    """Secrets of your own: literal texts with at most one `*` each."""


class Layer(Profile, frozen=True, kw_only=True):
    """What one file says. None or empty for what it leaves out."""

    origin: str
    folder: Path
    """Where the paths of tool files begin."""
    owner: Owner = "person"
    """A project's layer may tighten what holds without it, and loosen nothing."""
    is_profile: bool = False
    """Whether it is a profile that was asked for, not a whole file."""
    untrusted: tuple[str, ...] = ()
    """What a project's file says and does not count, because nobody has trusted its folder: names of keys."""
    sandbox_read: tuple[str, ...] = ()
    """Private places that confined commands may read, by whole paths: see [sandbox]."""
    sandbox_hide: tuple[str, ...] = ()
    """Files and folders that confined commands may not read, as paths or globs: see [sandbox]."""
    approval_seconds: float | None = None
    """How long a person may take to answer; 7 days without it."""
    notify: str | tuple[str, ...] | None = None
    """The sign for a person who looks elsewhere: `bell`, `osc9`, `off`, or a program with its arguments."""
    notify_after_seconds: float | None = None
    """After so long a person may look elsewhere."""
    profiles: dict[str, Profile] = {}
    """Kinds of tasks with limits of their own: see [profiles.NAME]."""
    guards: dict[str, Any] = {}
    """Limits on behaviour that makes no progress: see [guards]."""
    redaction: Redaction = Redaction()
    """What is hidden in all that is shown: see [redaction]."""
    mcp: dict[str, dict[str, Any]] = {}
    """MCP servers by name: see [mcp.servers.NAME]. Those of a project wait until a person has approved them."""
    worker_limits: dict[str, Limit] = {}
    """Limits over all workers: see [workers.limits.NAME]. A project adds some, and changes none of the person's."""


# --- Page: the values of one TOML file, each read as what it must be, and the line to blame where it is not.

_INSTEAD = {
    "api_key": "Keys are never in a configuration: set the vendor's variable, such as OPENAI_API_KEY.",
    "permissions": "Write `allow`, `ask` and `deny` at the top of the file, outside any table.",
}
"""What people write in files of other programs, and what they do here."""


class _Page:
    """A file, for messages that say where in it something is wrong."""

    def __init__(self, path: Path, text: str) -> None:
        self.path = path
        self._lines = text.splitlines()

    def fail(self, problem: str, where: tuple[str, ...], key: str) -> NoReturn:
        line = self._line_of(where, key)
        raise UsageError(f"{self.path}{f', line {line}' if line else ''}: {problem}")

    def check_names(
        self, values: Mapping[str, Any], known: Collection[str], where: tuple[str, ...], *, noun: str = "key"
    ) -> None:
        for name in values:
            if name not in known:
                hint = _INSTEAD.get(name) or hint_for(name, known).strip()
                self.fail(f"unknown {noun} {name!r}.{hint and ' '}{hint} Known: {', '.join(known)}.", where, name)

    def attempt(self, kind: Callable[..., object], values: dict[str, Any], where: tuple[str, ...], key: str) -> None:
        try:
            kind(**values)
        except ConfigurationError as exc:
            self.fail(str(exc).replace("None", '"none"'), where, key)

    def text(self, values: Mapping[str, Any], name: str, where: tuple[str, ...] = ()) -> str | None:
        value = values.get(name)
        if value is not None and (not isinstance(value, str) or not value.strip()):
            self.fail(f"{name!r} must be a string; got {value!r:.60}.", where, name)
        return value

    def texts(self, values: Mapping[str, Any], name: str, where: tuple[str, ...] = ()) -> tuple[str, ...] | None:
        value = values.get(name)
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(item, str) and item.strip() for item in value):
            self.fail(f'{name!r} must be a list of strings, such as ["grep"]; got {value!r:.60}.', where, name)
        return tuple(value)

    def word(self, values: Mapping[str, Any], name: str, known: Collection[str], where: tuple[str, ...]) -> Any:
        """Return one of the known words: Any, because each name has its own Literal."""
        value = values.get(name)
        if value is not None and value not in known:
            self.fail(f"{name!r} must be one of {', '.join(known)}; got {value!r:.60}.", where, name)
        return value

    def seconds(self, values: Mapping[str, Any], name: str) -> float | None:
        value = values.get(name)
        is_number = isinstance(value, int | Decimal) and not isinstance(value, bool)
        is_finite = is_number and Decimal(value or 0).is_finite()  # a comparison with NaN raises
        if value is not None and not (is_finite and 0 < value <= LONGEST_SECONDS):
            self.fail(f"{name!r} must be a number of seconds above 0, at most 100 years; got {value!r:.60}.", (), name)
        return None if value is None else float(value)

    def table(self, values: Mapping[str, Any], name: str, where: tuple[str, ...]) -> dict[str, Any]:
        value = values.get(name, {})
        if not isinstance(value, dict):
            self.fail(f"{name!r} must be a table: write [{'.'.join((*where, name))}]; got {value!r:.60}.", where, name)
        return value

    def _line_of(self, where: tuple[str, ...], key: str) -> int | None:
        """Find a key by reading headers and assignments; good enough to point at, and silent where it is not sure."""
        here: tuple[str, ...] = ()
        for number, line in enumerate(self._lines, 1):
            if header := re.match(r"\s*\[+\s*([^\[\]]+?)\s*\]+", line):
                here = tuple(part.strip(" \"'") for part in header[1].split("."))
                if here[: len(where) + 1] == (*where, key):
                    return number
            elif (said := re.match(r"\s*([^=#\[\]]+?)\s*=", line)) is not None:
                path = (*here, *(part.strip(" \"'") for part in said[1].split(".")))
                if path[: len(where) + 1] == (*where, key):
                    return number
        return None


# --- Reading.


def read_layer(path: Path, owner: Owner, *, trusted: bytes | None = None) -> Layer:
    """Read one file.

    Args:
        trusted: What the project's file held when a person's approval was found to cover it: then it may allow calls.

    Raises:
        UsageError: It cannot be read, is not valid TOML, or holds what is unknown, wrong or not its to say; with file and line.
    """
    is_trusted = trusted is not None
    text = _text_of(path, _content_of(path, owner) if trusted is None else trusted)
    try:
        values = tomllib.loads(text, parse_float=Decimal)
    except (tomllib.TOMLDecodeError, RecursionError, ValueError, InvalidOperation) as exc:
        raise UsageError(
            f"{path} is not valid TOML: {exc or 'it is nested too deeply'}. Fix it or move it away."
        ) from exc
    page = _Page(path, text)
    page.check_names(values, _RULE_KEYS if owner == "managed" else KEYS, ())
    untrusted: tuple[str, ...] = ()
    if owner == "project":
        values, untrusted = _of_project(page, values, is_trusted=is_trusted)
    values, readable, hidden = _sandbox(page, values, owner)
    layer = _layer(page, values, owner)
    return msgspec.structs.replace(layer, sandbox_read=readable, sandbox_hide=hidden, untrusted=untrusted)


def _sandbox(
    page: _Page, values: dict[str, Any], owner: Owner
) -> tuple[dict[str, Any], tuple[str, ...], tuple[str, ...]]:
    """Return the values with `sandbox` as one word, what `[sandbox]` lets confined commands read, and what it hides from them."""
    if not isinstance(table := values.get("sandbox"), dict):
        return values, (), ()
    page.check_names(table, ("mode", "read", "hide"), ("sandbox",))
    if owner == "project" and "read" in table:
        page.fail(
            "a project's file cannot set 'read': it would show commands files that you did not choose. Set it in your own file.",
            ("sandbox",),
            "read",
        )
    mode = page.word(table, "mode", get_args(Sandbox), ("sandbox",))
    named = page.texts(table, "read", ("sandbox",)) or ()
    paths = tuple(os.path.normpath(page.path.parent.absolute() / Path(one).expanduser()) for one in named)
    return {**values, "sandbox": mode}, paths, tuple(page.texts(table, "hide", ("sandbox",)) or ())


def _content_of(path: Path, owner: Owner) -> bytes:
    # Opening a pipe waits for a writer: what comes with a strange folder must be a plain file, and never waits.
    wait = os.O_NONBLOCK if owner == "project" else 0
    try:
        with open(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | wait), "rb") as file:  # noqa: PTH123 - a descriptor
            if owner == "project" and not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise UsageError(
                    f"The configuration {path} is not a regular file. Move it away, or name another with --config."
                )
            return file.read(_MAX_BYTES + 1)
    except (OSError, ValueError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) and exc.strerror else str(exc)
        raise UsageError(f"The configuration {path} cannot be read: {reason}. Name another with --config.") from exc


def _text_of(path: Path, content: bytes) -> str:
    if len(content) > _MAX_BYTES:
        raise UsageError(
            f"The configuration {path} is larger than {_MAX_BYTES:,} bytes: check that it is the right file."
        )
    try:
        return content.decode("utf-8-sig")  # some editors begin a file with a byte order mark
    except UnicodeDecodeError as exc:
        raise UsageError(f"The configuration {path} is not UTF-8 text (byte {exc.start}): save it as UTF-8.") from exc


def _of_project(page: _Page, values: Mapping[str, Any], *, is_trusted: bool) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return what a project's file may say, in its profiles too, and the names of what counts only once its folder is trusted."""
    kept, untrusted = _allowed_of_project(page, values, (), is_trusted=is_trusted)
    profiles = page.table(values, "profiles", ())
    for name, profile in profiles.items():
        if isinstance(profile, dict):
            profiles[name], more = _allowed_of_project(page, profile, ("profiles", name), is_trusted=is_trusted)
            untrusted |= more
    return kept, tuple(untrusted)


def _allowed_of_project(
    page: _Page, values: Mapping[str, Any], where: tuple[str, ...], *, is_trusted: bool
) -> tuple[dict[str, Any], dict[str, None]]:
    for name, reason in _NOT_FOR_PROJECTS.items():
        if name in values and name not in _FOR_TRUSTED:
            page.fail(
                f"a project's file cannot set {name!r}: {reason}. Set it with an option or in your own file.",
                where,
                name,
            )
    untrusted = {} if is_trusted else dict.fromkeys(name for name in values if name in _FOR_TRUSTED)
    return {name: value for name, value in values.items() if name not in untrusted}, untrusted


def _layer(page: _Page, values: Mapping[str, Any], owner: Owner) -> Layer:
    return Layer(
        **_common(page, values, (), owner),
        owner=owner,
        origin=str(page.path),
        folder=page.path.parent,
        approval_seconds=page.seconds(values, "approval_seconds"),
        notify=_notify(page, values),
        notify_after_seconds=page.seconds(values, "notify_after_seconds"),
        profiles={
            name: _profile(page, profile, name, owner) for name, profile in page.table(values, "profiles", ()).items()
        },
        guards=_guards(page, page.table(values, "guards", ())),
        redaction=_redaction(page, page.table(values, "redaction", ())),
        mcp=_servers(page, page.table(values, "mcp", ()), owner),
        worker_limits=_worker_limits(page, page.table(values, "workers", ())),
    )


def _common(page: _Page, values: Mapping[str, Any], where: tuple[str, ...], owner: Owner) -> dict[str, Any]:
    """Return what a file and each of its profiles can say, by the names of both."""
    return {
        "budget": _limits(page, page.table(values, "budget", where), (*where, "budget")),
        "model": page.text(values, "model", where),
        "base_url": page.text(values, "base_url", where),
        "model_options": _model_options(page, values, where),
        "price": _price(page, values, where),
        "facts": _facts(page, values, where),
        "system": _system(page, values, where, owner),
        "tools": page.texts(values, "tools", where),
        **{name: page.word(values, name, known, where) for name, known in _WORDS.items()},
        **{name: _rules(page, values, name, where) for name in _RULE_KEYS},
        **{name: page.seconds(values, name) for name in _SECONDS},
    }


def _notify(page: _Page, values: Mapping[str, Any]) -> str | tuple[str, ...] | None:
    given = values.get("notify")
    if isinstance(given, list) and given:
        return page.texts(values, "notify")
    if given is not None and given not in NOTIFY_WORDS:
        page.fail(
            f"'notify' must be one of {', '.join(NOTIFY_WORDS)}, or a program with its arguments such as "
            f'["notify-send", "Treadle"]; got {given!r:.60}.',
            (),
            "notify",
        )
    return given


def _servers(page: _Page, values: Mapping[str, Any], owner: Owner) -> dict[str, dict[str, Any]]:
    """Return the MCP servers as `.mcp.json` would have them. What is wrong inside an entry is told when it is used."""
    page.check_names(values, ("servers",), ("mcp",))
    servers = page.table(values, "servers", ("mcp",))
    for name, said in servers.items():
        where = ("mcp", "servers", name)
        if not isinstance(said, dict):
            page.fail(f"MCP server {name!r} must be a table: write [mcp.servers.{name}].", ("mcp", "servers"), name)
        page.check_names(said, SERVER_KEYS, where)
        if ("command" in said) is ("url" in said):
            page.fail(f"MCP server {name!r} needs either 'command', with 'args', or 'url'.", ("mcp", "servers"), name)
        for key in _OWN_SERVER_KEYS if owner == "project" else ():
            if key in said:
                page.fail(
                    f"a project's file cannot set {key!r} of an MCP server: it controls what the server may do.",
                    where,
                    key,
                )
    return {name: {key: _plain(value) for key, value in said.items()} for name, said in servers.items()}


def _plain(value: Any) -> Any:
    """Return a value of TOML as JSON has it."""
    return float(value) if isinstance(value, Decimal) else value


def _system(page: _Page, values: Mapping[str, Any], where: tuple[str, ...], owner: Owner) -> str | None:
    """Return instructions, a file of them by its whole path. That of a project stays in its folder, whose content is what is trusted."""
    given = page.text(values, "system", where)
    if given is None or not given.startswith("@"):
        return given
    folder = page.path.parent.absolute()
    path = Path(os.path.normpath(folder / Path(given[1:]).expanduser()))
    if owner == "project" and not path.is_relative_to(folder):
        page.fail(f"'system' names {given[1:]!r:.200}, which is outside {folder}: keep it there.", where, "system")
    return f"@{path}"


def _profile(page: _Page, values: Any, name: str, owner: Owner) -> Profile:
    where = ("profiles", name)
    if not isinstance(values, dict):
        page.fail(f"profile {name!r} must be a table: write [profiles.{name}.budget].", ("profiles",), name)
    page.check_names(values, Profile.__struct_fields__, where)
    return Profile(**_common(page, values, where, owner))


def _limits(page: _Page, values: Mapping[str, Any], where: tuple[str, ...]) -> dict[str, Any]:
    """Return checked budgets. The word "none" stands for no limit, which TOML cannot say."""
    page.check_names(values, Budget.__struct_fields__, where, noun="budget")
    limits: dict[str, Any] = {}
    for name, given in values.items():
        value = None if given == "none" else given
        if isinstance(value, Decimal) and (name != "max_total_cost" or not value.is_finite()):
            value = float(value)  # only money is counted in decimals
        page.attempt(Budget, {name: value}, where, name)
        limits[name] = value
    return limits


def _guards(page: _Page, values: Mapping[str, Any]) -> dict[str, Any]:
    page.check_names(values, Guards.__struct_fields__, ("guards",), noun="guard")
    guards = {name: None if value == "none" else value for name, value in values.items()}
    for name, value in guards.items():
        page.attempt(Guards, {name: value}, ("guards",), name)
    return guards


def _redaction(page: _Page, values: Mapping[str, Any]) -> Redaction:
    page.check_names(values, Redaction.__struct_fields__, ("redaction",))
    enabled, patterns = values.get("enabled"), page.texts(values, "patterns") or ()
    if enabled is not None and not isinstance(enabled, bool):
        page.fail(f"'enabled' must be true or false; got {enabled!r:.60}.", ("redaction",), "enabled")
    try:
        Redactor(patterns=patterns)
    except ConfigurationError as exc:
        page.fail(str(exc), ("redaction",), "patterns")
    return Redaction(enabled=enabled, patterns=patterns)


def _facts(page: _Page, values: Mapping[str, Any], where: tuple[str, ...]) -> ModelFacts | None:
    if "facts" not in values:
        return None
    table, here = page.table(values, "facts", where), (*where, "facts")
    page.check_names(table, [name for name in ModelFacts.__struct_fields__ if name != "price"], here)
    for name, value in table.items():
        page.attempt(ModelFacts, {name: value}, here, name)
    return ModelFacts(**table)


def _model_options(page: _Page, values: Mapping[str, Any], where: tuple[str, ...]) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for name, value in page.table(values, "model_options", where).items():
        try:
            options[name] = _plain_value(value)
        except ValueError as exc:
            page.fail(f"{name!r} {exc}", (*where, "model_options"), name)
    return options


def _price(page: _Page, values: Mapping[str, Any], where: tuple[str, ...]) -> Price | None:
    if "price" not in values:
        return None
    table, here = page.table(values, "price", where), (*where, "price")
    page.check_names(table, Price.__struct_fields__, here)
    for name in ("input", "output"):
        if name not in table:
            page.fail(f"a price needs {name!r}, per million tokens.", where, "price")
    for name, value in table.items():
        is_number = isinstance(value, int | Decimal) and not isinstance(value, bool)
        if not is_number or not Decimal(value or 0).is_finite() or not 0 <= value < 10**9:
            page.fail(
                f"the price {name!r} must be a number of 0 or more, per million tokens; got {value!r:.60}.",
                here,
                name,
            )
    return Price(**table)


def _rules(page: _Page, values: Mapping[str, Any], name: str, where: tuple[str, ...]) -> tuple[str, ...]:
    rules = page.texts(values, name, where) or ()
    for rule in rules:
        try:
            (allow if name == "allow" else deny)(rule)
        except ConfigurationError as exc:
            page.fail(str(exc), where, name)
    return rules


def _plain_value(value: Any) -> Any:  # Any: TOML, and JSON
    """Return a value of TOML as JSON has it. Raises ValueError for one that JSON does not have."""
    match value:
        case Decimal() if value.is_finite():
            return float(value)
        case bool() | int() | str():
            return value
        case list():
            return [_plain_value(one) for one in value]
        case dict():
            return {name: _plain_value(one) for name, one in value.items()}
    raise ValueError(
        f"must be a value that JSON has: text, a number, true or false, a list or a table; got {value!r:.60}."
    )


def _worker_limits(page: _Page, workers: Mapping[str, Any]) -> dict[str, Limit]:
    page.check_names(workers, ("limits",), ("workers",))
    return {name: _worker_limit(page, said, name) for name, said in page.table(workers, "limits", ("workers",)).items()}


def _worker_limit(page: _Page, said: Any, name: str) -> Limit:
    here = (*_WHERE, name)
    if not isinstance(said, dict):
        page.fail(f"limit {name!r:.120} must be a table: write [workers.limits.NAME].", _WHERE, name)
    if not 0 < len(name) <= _LONGEST_LIMIT_NAME or not name.isprintable():
        page.fail(f"the name of a limit has 1 to 100 printable characters; got {name!r:.120}.", _WHERE, name)
    page.check_names(said, LIMIT_WORDS, here)
    values: dict[str, Any] = {"each": page.word(said, "each", EACH, here) or ""}
    for word in ("tenants", "agents", "models"):
        values[word] = page.texts(said, word, here)
    for word in ("sessions", "requests", "tokens"):
        count = said.get(word)
        if count is not None and (type(count) is not int or count < 1):
            page.fail(f"{word!r} must be a whole number above 0; got {count!s:.60}.", here, word)
        values[LIMIT_WORDS[word]] = count
    if all(values[field] is None for field in COUNTS):
        page.fail(f"the limit {name!r} limits nothing. Set one of: sessions, requests, tokens.", _WHERE, name)
    return Limit(name=name, **values)
