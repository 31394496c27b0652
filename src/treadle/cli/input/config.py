"""Configuration files: one TOML file in, one checked layer of settings out; and their JSON Schema. Does not know which layer wins."""

import os
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, Literal, NoReturn, TypeAlias, get_args, get_type_hints

import msgspec

from treadle import Budget, ConfigurationError, Effect, Price, allow, deny
from treadle.budgets import Guards
from treadle.cli.exits import UsageError
from treadle.cli.files import content_of
from treadle.cli.input.near import hint_for
from treadle.cli.input.options import LONGEST_SECONDS, Mode, OnApproval, OnLimit, Sandbox
from treadle.ports import ErrorForm, ModelFacts, TextCalls
from treadle.redaction import Redactor
from treadle.workers import Limit

__all__ = [
    "COUNTS",
    "KEYS",
    "LIMIT_WORDS",
    "WORKER_LIMIT",
    "Key",
    "Layer",
    "Owner",
    "Profile",
    "Redaction",
    "config_schema",
    "read_layer",
]

Owner: TypeAlias = Literal["person", "project", "managed"]
_Where: TypeAlias = tuple[str, ...]
"""The tables in which a key stands, from the outermost one."""

_MAX_BYTES = 1_000_000
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
_LONGEST_LIMIT_NAME = 100


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """A whole set-up for one kind of task, or what a file says of it. None or empty for what it leaves to the rest of the configuration.

    `KEYS` says what each field is.
    """

    budget: dict[str, Any] = {}
    on_limit: OnLimit | None = None
    on_approval: OnApproval | None = None
    model: str | None = None
    base_url: str | None = None
    model_options: dict[str, Any] = {}
    price: Price | None = None
    facts: ModelFacts | None = None
    text_calls: TextCalls | None = None
    error_form: ErrorForm | None = None
    first_byte_seconds: float | None = None
    idle_seconds: float | None = None
    system: str | None = None
    tools: tuple[str, ...] | None = None
    mode: Mode | None = None
    sandbox: Sandbox | None = None
    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()


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
    """Private places that confined commands may read, by whole paths."""
    sandbox_hide: tuple[str, ...] = ()
    """Files and folders that confined commands may not read, as paths or globs."""
    approval_seconds: float | None = None
    notify: str | tuple[str, ...] | None = None
    notify_after_seconds: float | None = None
    profiles: dict[str, Profile] = {}
    guards: dict[str, Any] = {}
    redaction: Redaction = Redaction()
    mcp: dict[str, dict[str, Any]] = {}
    workers: dict[str, Limit] = {}
    """Limits over all workers, by name."""


# --- Page: the values of one TOML file, and the line to blame where one is not what it must be.

_INSTEAD = {
    "api_key": "Keys are never in a configuration: set the vendor's variable, such as OPENAI_API_KEY.",
    "permissions": "Write `allow`, `ask` and `deny` at the top of the file, outside any table.",
}
"""What people write in files of other programs, and what they do here."""


class _Page:
    """A file, for messages that say where in it something is wrong."""

    def __init__(self, path: Path, text: str, owner: Owner) -> None:
        self.path = path
        self.owner = owner
        self._lines = text.splitlines()

    def fail(self, problem: str, where: _Where, key: str) -> NoReturn:
        line = self._line_of(where, key)
        raise UsageError(f"{self.path}{f', line {line}' if line else ''}: {problem}")

    def check_names(self, values: Iterable[str], known: Iterable[str], where: _Where, noun: str = "key") -> None:
        names = list(known)
        for name in values:
            if name not in names:
                hint = _INSTEAD.get(name) or hint_for(name, names).strip()
                self.fail(f"unknown {noun} {name!r}.{hint and ' '}{hint} Known: {', '.join(names)}.", where, name)

    def attempt(self, kind: Callable[..., object], where: _Where, key: str, *given: Any, **values: Any) -> None:
        """Make what checks a value by itself, and say where it is wrong."""
        try:
            kind(*given, **values)
        except ConfigurationError as exc:
            self.fail(str(exc).replace("None", '"none"'), where, key)

    def read(self, keys: Mapping[str, "Key"], values: Mapping[str, Any], where: _Where) -> dict[str, Any]:
        """Return what stands at each of these keys."""
        self.check_names(values, keys, where)
        return {name: key.read(self, values, name, where) for name, key in keys.items()}

    def table(self, values: Mapping[str, Any], name: str, where: _Where) -> dict[str, Any]:
        value = values.get(name, {})
        if not isinstance(value, dict):
            self.fail(f"{name!r} must be a table: write [{'.'.join((*where, name))}]; got {value!r:.60}.", where, name)
        return value

    def tables(self, values: Mapping[str, Any], name: str, where: _Where, what: str, end: str = "") -> dict[str, Any]:
        """Return a table of tables, each of which is one thing by its name."""
        found = self.table(values, name, where)
        for key, one in found.items():
            if not isinstance(one, dict):
                place = ".".join((*where, name, key))
                self.fail(f"{what} {key!r:.120} must be a table: write [{place}{end}].", (*where, name), key)
        return found

    def _line_of(self, where: _Where, key: str) -> int | None:
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


# --- Keys: how each is read, and what editors are told of it.

_TEXT = {"type": "string", "minLength": 1}
_TEXTS = {"type": "array", "items": _TEXT}
_NAMED = {"type": "object", "additionalProperties": {"type": "string"}}
_MODES = get_args(Sandbox)


class Key(msgspec.Struct, frozen=True):
    """What may stand at a key of a file."""

    says: str
    schema: Mapping[str, Any]
    read: Callable[["_Page", Mapping[str, Any], str, _Where], Any]
    """Return the value, checked; None or empty where there is none."""

    @property
    def described(self) -> dict[str, Any]:
        """Its JSON Schema, with its description."""
        return {**self.schema, **({"description": self.says} if self.says else {})}


def _table(keys: Mapping[str, Key], **more: Any) -> dict[str, Any]:
    """Return the schema of a table."""
    fields = {name: key.described for name, key in keys.items()}
    return {"type": "object", "properties": fields, "additionalProperties": False, **more}


def _as_is(page: _Page, values: Mapping[str, Any], name: str, where: _Where) -> Any:
    return values.get(name)


def _text(page: _Page, values: Mapping[str, Any], name: str, where: _Where) -> str | None:
    value = values.get(name)
    if value is not None and (not isinstance(value, str) or not value.strip()):
        page.fail(f"{name!r} must be a string; got {value!r:.60}.", where, name)
    return value


def _texts(page: _Page, values: Mapping[str, Any], name: str, where: _Where) -> tuple[str, ...] | None:
    value = values.get(name)
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(item, str) and item.strip() for item in value):
        page.fail(f'{name!r} must be a list of strings, such as ["grep"]; got {value!r:.60}.', where, name)
    return tuple(value)


def _word(says: str, kind: Any) -> Key:  # Any: a Literal
    """Return a key whose value is one of some words."""
    known = [word for word in get_args(kind) if word]

    def read(page: _Page, values: Mapping[str, Any], name: str, where: _Where) -> Any:
        value = values.get(name)
        if value is not None and value not in known:
            page.fail(f"{name!r} must be one of {', '.join(known)}; got {value!r:.60}.", where, name)
        return value

    return Key(says, {"enum": known}, read)


def _seconds(says: str, **schema: Any) -> Key:
    """Return a key whose value is a time."""

    def read(page: _Page, values: Mapping[str, Any], name: str, where: _Where) -> float | None:
        value = values.get(name)
        if value is not None and not (_is_number(value) and 0 < value <= LONGEST_SECONDS):
            rule = "must be a number of seconds above 0, at most 100 years"
            page.fail(f"{name!r} {rule}; got {value!r:.60}.", where, name)
        return None if value is None else float(value)

    return Key(says, {"type": "number", "exclusiveMinimum": 0, **schema}, read)


def _is_number(value: Any) -> bool:
    """Whether a value of TOML is a finite number: a comparison with NaN raises."""
    return isinstance(value, int | Decimal) and not isinstance(value, bool) and Decimal(value).is_finite()


def _count(says: str) -> Key:
    """Return a key whose value is a whole number above 0."""

    def read(page: _Page, values: Mapping[str, Any], name: str, where: _Where) -> Any:
        count = values.get(name)
        if count is not None and (type(count) is not int or count < 1):
            page.fail(f"{name!r} must be a whole number above 0; got {count!s:.60}.", where, name)
        return count

    return Key(says, {"type": "integer", "minimum": 1}, read)


def _rules(says: str, check: Callable[[str], object]) -> Key:
    """Return a key whose value is rules of calls."""

    def read(page: _Page, values: Mapping[str, Any], name: str, where: _Where) -> tuple[str, ...]:
        rules = _texts(page, values, name, where) or ()
        for rule in rules:
            page.attempt(check, where, name, rule)
        return rules

    return Key(says, _TEXTS, read)


def _system(page: _Page, values: Mapping[str, Any], name: str, where: _Where) -> str | None:
    """Return instructions, a file of them by its whole path. That of a project stays in its folder, whose content is what is trusted."""
    given = _text(page, values, name, where)
    if given is None or not given.startswith("@"):
        return given
    folder = page.path.parent.absolute()
    path = Path(os.path.normpath(folder / Path(given[1:]).expanduser()))
    if page.owner == "project" and not path.is_relative_to(folder):
        page.fail(f"{name!r} names {given[1:]!r:.200}, which is outside {folder}: keep it there.", where, name)
    return f"@{path}"


def _model_options(page: _Page, values: Mapping[str, Any], name: str, where: _Where) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for option, value in page.table(values, name, where).items():
        try:
            options[option] = _plain_value(value)
        except ValueError as exc:
            page.fail(f"{option!r} {exc}", (*where, name), option)
    return options


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


def _limits(page: _Page, values: Mapping[str, Any], name: str, where: _Where) -> dict[str, Any]:
    """Return checked budgets. The word "none" stands for no limit, which TOML cannot say."""
    here = (*where, name)
    table = page.table(values, name, where)
    page.check_names(table, Budget.__struct_fields__, here, "budget")
    limits: dict[str, Any] = {}
    for limit, given in table.items():
        value = None if given == "none" else given
        if isinstance(value, Decimal) and (limit != "max_total_cost" or not value.is_finite()):
            value = float(value)  # only money is counted in decimals
        page.attempt(Budget, here, limit, **{limit: value})
        limits[limit] = value
    return limits


def _guards(page: _Page, values: Mapping[str, Any], name: str, where: _Where) -> dict[str, Any]:
    table = page.table(values, name, where)
    page.check_names(table, Guards.__struct_fields__, (name,), "guard")
    guards = {guard: None if value == "none" else value for guard, value in table.items()}
    for guard, value in guards.items():
        page.attempt(Guards, (name,), guard, **{guard: value})
    return guards


def _limits_schema(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the schema of budgets or guards: whole numbers or numbers, or the word `none`."""
    hints = get_type_hints(kind)
    fields: dict[str, Any] = {}
    for field in msgspec.structs.fields(kind):
        hint, value = str(hints[field.name]), field.default
        value = "none" if value is None else list(value) if isinstance(value, tuple) else value
        default = {} if value is msgspec.NODEFAULT else {"default": value}
        number = {"type": "number" if "float" in hint or "Decimal" in hint else "integer", "minimum": 0}
        none = {"const": "none", "description": "no limit"}
        fields[field.name] = {**(_TEXTS if "tuple" in hint else {"anyOf": [number, none]}), **default}
    return {"type": "object", "properties": fields, "additionalProperties": False}


def _price(page: _Page, values: Mapping[str, Any], name: str, where: _Where) -> Price | None:
    if name not in values:
        return None
    table, here = page.table(values, name, where), (*where, name)
    page.check_names(table, Price.__struct_fields__, here)
    for needed in ("input", "output"):
        if needed not in table:
            page.fail(f"a price needs {needed!r}, per million tokens.", where, name)
    for kind, value in table.items():
        if not _is_number(value) or not 0 <= value < 10**9:
            rule = "must be a number of 0 or more, per million tokens"
            page.fail(f"the price {kind!r} {rule}; got {value!r:.60}.", here, kind)
    return Price(**table)


def _facts(page: _Page, values: Mapping[str, Any], name: str, where: _Where) -> ModelFacts | None:
    if name not in values:
        return None
    table, here = page.table(values, name, where), (*where, name)
    page.check_names(table, _FACTS, here)
    for fact, value in table.items():
        page.attempt(ModelFacts, here, fact, **{fact: value})
    return ModelFacts(**table)


def _fact(name: str, hint: str) -> Key:
    if name == "error_form":
        return _word("", ErrorForm)
    kinds = {"type": "array", "items": {"enum": ["text", "image", "pdf", "audio", "video"]}}
    number = {"type": "integer", "minimum": 1}
    return Key("", {"type": "boolean"} if "bool" in hint else number if "int" in hint else kinds, _as_is)


_FACTS = {name: _fact(name, str(hint)) for name, hint in get_type_hints(ModelFacts).items() if name != "price"}
_PRICE = dict.fromkeys(Price.__struct_fields__, Key("", {"type": "number", "minimum": 0}, _as_is))
_COMMON: Mapping[str, Key] = {
    "model": Key("The model, such as `openai-chat:gpt-5-mini`.", _TEXT, _text),
    "base_url": Key("The provider's base URL.", _TEXT, _text),
    "model_options": Key(
        "Fields of each model request, as `-o` has them, such as temperature.", {"type": "object"}, _model_options
    ),
    "system": Key("Instructions for the model, or `@FILE` with a path relative to this file.", _TEXT, _system),
    "budget": Key("The limits of a run: see [budget].", _limits_schema(Budget), _limits),
    "price": Key("What the model costs: see [price].", _table(_PRICE, required=["input", "output"]), _price),
    "facts": Key("What the model can do.", _table(_FACTS), _facts),
    "tools": Key("Built-in tools by name, Python files, or `module:attribute`.", _TEXTS, _texts),
    "allow": _rules("Rules for calls that are allowed.", allow),
    "ask": _rules("Rules for calls that need approval; they override `allow`.", deny),
    "deny": _rules("Rules for calls that are denied; they override `allow` and `ask`.", deny),
    "on_limit": _word("At a turn or call limit: ask the model for a summary, or only report.", OnLimit),
    "on_approval": _word("What happens to a call that needs approval.", OnApproval),
    "mode": _word("Which calls run without asking you, in a new session.", Mode),
    "sandbox": _word(
        "Whether commands are confined: `on`, `network` for confined but with the network, or `off`.", Sandbox
    ),
    "text_calls": _word("What happens to calls that the model's server leaves in the text.", TextCalls),
    "error_form": _word("What the model reads of a tool's error: a sentence, or all fields.", ErrorForm),
    "first_byte_seconds": _seconds("How long the model may read before it answers."),
    "idle_seconds": _seconds("How long it may pause in its answer."),
}
"""What a file and each of its profiles can say."""


def _profiles(page: _Page, values: Mapping[str, Any], name: str, where: _Where) -> dict[str, Profile]:
    found = page.tables(values, name, where, "profile", ".budget")
    return {key: Profile(**page.read(_COMMON, one, (name, key))) for key, one in found.items()}


_SANDBOX = {
    "mode": _COMMON["sandbox"],
    "read": Key("Private places that commands in the sandbox may read.", _TEXTS, _texts),
    "hide": Key("Files and folders that they may not read, as paths or globs.", _TEXTS, _texts),
}


def _sandbox(page: _Page, values: Mapping[str, Any], name: str, where: _Where) -> dict[str, Any]:
    """Return the fields of a layer: `sandbox` as one word, what confined commands may read, and what is hidden from them."""
    table = values.get(name)
    if not isinstance(table, dict):
        return {"sandbox": _SANDBOX["mode"].read(page, values, name, where)}
    if page.owner == "project" and "read" in table:
        reason = "it would show commands files that you did not choose. Set it in your own file."
        page.fail(f"a project's file cannot set 'read': {reason}", (name,), "read")
    said = page.read(_SANDBOX, table, (name,))
    folder = page.path.parent.absolute()
    paths = tuple(os.path.normpath(folder / Path(one).expanduser()) for one in said["read"] or ())
    return {"sandbox": said["mode"], "sandbox_read": paths, "sandbox_hide": said["hide"] or ()}


_NOTIFY = ("bell", "osc9", "off")


def _notify(page: _Page, values: Mapping[str, Any], name: str, where: _Where) -> str | tuple[str, ...] | None:
    given = values.get(name)
    if isinstance(given, list) and given:
        return _texts(page, values, name, where)
    if given is not None and given not in _NOTIFY:
        what = f'one of {", ".join(_NOTIFY)}, or a program with its arguments such as ["notify-send", "Treadle"]'
        page.fail(f"{name!r} must be {what}; got {given!r:.60}.", where, name)
    return given


def _redaction(page: _Page, values: Mapping[str, Any], name: str, where: _Where) -> Redaction:
    said = page.read(_REDACTION, page.table(values, name, where), (name,))
    enabled, patterns = said["enabled"], said["patterns"] or ()
    if enabled is not None and not isinstance(enabled, bool):
        page.fail(f"'enabled' must be true or false; got {enabled!r:.60}.", (name,), "enabled")
    page.attempt(Redactor, (name,), "patterns", patterns=patterns)
    return Redaction(enabled=enabled, patterns=patterns)


_REDACTION = {"enabled": Key("", {"type": "boolean"}, _as_is), "patterns": Key("", _TEXTS, _texts)}
_SERVER = {
    "command": Key("The program to start.", _TEXT, _as_is),
    "args": Key("", {"type": "array", "items": {"type": "string"}}, _as_is),
    "env": Key("Environment variables of the program; ${NAME} copies one of yours.", _NAMED, _as_is),
    "cwd": Key("The folder to start it in.", _TEXT, _as_is),
    "type": Key("", {"enum": ["stdio", "http", "streamable-http"]}, _as_is),
    "url": Key("The address of a server that is already running.", _TEXT, _as_is),
    "headers": Key("Headers of each request; ${NAME} copies one of your environment variables.", _NAMED, _as_is),
    "trusted": Key("Whether to trust the server's hints about its tools.", {"type": "boolean"}, _as_is),
    "effects": Key("", {"type": "object", "additionalProperties": {"enum": [str(one) for one in Effect]}}, _as_is),
    "timeout": Key("Time limit of a call, in seconds.", {"type": "number", "exclusiveMinimum": 0}, _as_is),
}
"""What is said of an MCP server, by the names of `.mcp.json`. What is wrong inside an entry is told when it is used."""


def _servers(page: _Page, values: Mapping[str, Any], name: str, where: _Where) -> dict[str, dict[str, Any]]:
    """Return the MCP servers as `.mcp.json` would have them."""
    mcp = page.table(values, name, where)
    page.check_names(mcp, ("servers",), (name,))
    servers, here = page.tables(mcp, "servers", (name,), "MCP server"), (name, "servers")
    for key, said in servers.items():
        page.check_names(said, _SERVER, (*here, key))
        if ("command" in said) is ("url" in said):
            page.fail(f"MCP server {key!r} needs either 'command', with 'args', or 'url'.", here, key)
        for own in _OWN_SERVER_KEYS if page.owner == "project" else ():
            if own in said:
                reason = "it controls what the server may do."
                page.fail(f"a project's file cannot set {own!r} of an MCP server: {reason}", (*here, key), own)
    return {key: {field: _plain(value) for field, value in said.items()} for key, said in servers.items()}


def _plain(value: Any) -> Any:
    """Return a value of TOML as JSON has it."""
    return float(value) if isinstance(value, Decimal) else value


WORKER_LIMIT = {
    "sessions": _count("How many sessions may run in parallel."),
    "requests": _count("How many model requests may start in any 60 seconds."),
    "tokens": _count("How many tokens the last 60 seconds may have used before the next request starts."),
    "each": _word("What gets a limit of its own; without it, all share one.", get_type_hints(Limit)["each"]),
    **{name: Key(f"Only these {name}.", _TEXTS, _texts) for name in ("tenants", "agents", "models")},
}
"""What can be said of a limit over all workers."""


def _worker_limits(page: _Page, values: Mapping[str, Any], name: str, where: _Where) -> dict[str, Limit]:
    workers = page.table(values, name, where)
    page.check_names(workers, ("limits",), (name,))
    limits = page.tables(workers, "limits", (name,), "limit")
    return {key: _worker_limit(page, said, key, (name, "limits")) for key, said in limits.items()}


def _worker_limit(page: _Page, said: Mapping[str, Any], name: str, where: _Where) -> Limit:
    if not 0 < len(name) <= _LONGEST_LIMIT_NAME or not name.isprintable():
        page.fail(f"the name of a limit has 1 to 100 printable characters; got {name!r:.120}.", where, name)
    values = {LIMIT_WORDS[word]: value for word, value in page.read(WORKER_LIMIT, said, (*where, name)).items()}
    if all(values[field] is None for field in COUNTS):
        page.fail(f"the limit {name!r} limits nothing. Set one of: sessions, requests, tokens.", where, name)
    return Limit(name=name, **{**values, "each": values["each"] or ""})


def _named(inner: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of a table of tables by name."""
    return {"type": "object", "additionalProperties": inner}


def _inside(name: str, inner: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": {name: inner}, "additionalProperties": False}


_ONE_KIND = [{"required": ["command"]}, {"required": ["url"]}]
_SOME_COUNT = [{"required": [name]} for name in ("sessions", "requests", "tokens")]
KEYS: Mapping[str, Key] = {
    **_COMMON,
    "sandbox": Key(
        "Whether commands are confined: a word, or a table.",
        {"anyOf": [_COMMON["sandbox"].described, _table(_SANDBOX)]},
        _sandbox,
    ),
    "approval_seconds": _seconds("How long a person may take to answer; 7 days without it."),
    "notify": Key(
        "How to notify you when a long run needs you or has ended: a word, or a program with its arguments.",
        {"anyOf": [{"enum": list(_NOTIFY)}, {**_TEXTS, "minItems": 1}], "default": "bell"},
        _notify,
    ),
    "notify_after_seconds": _seconds("After so long you may look elsewhere.", default=10),
    "profiles": Key(
        "Kinds of tasks with limits of their own: see [profiles.NAME].", _named(_table(_COMMON)), _profiles
    ),
    "guards": Key("Limits on behaviour that makes no progress: see [guards].", _limits_schema(Guards), _guards),
    "redaction": Key("What is hidden in all that is shown: see [redaction].", _table(_REDACTION), _redaction),
    "mcp": Key(
        "MCP servers by name: see [mcp.servers.NAME]. Those of a project wait until you have approved them.",
        _inside("servers", _named(_table(_SERVER, oneOf=_ONE_KIND))),
        _servers,
    ),
    "workers": Key(
        "Limits over all workers: see [workers.limits.NAME]. A project adds some, and changes none of yours.",
        _inside("limits", _named(_table(WORKER_LIMIT, anyOf=_SOME_COUNT))),
        _worker_limits,
    ),
}
"""What a file can say."""


def config_schema() -> dict[str, Any]:
    """Return the JSON Schema of `config.toml`, for editors and checks."""
    title = "Configuration of Treadle (config.toml)"
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title, **_table(KEYS)}


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
    page = _Page(path, text, owner)
    page.check_names(values, _RULE_KEYS if owner == "managed" else KEYS, ())
    untrusted: tuple[str, ...] = ()
    if owner == "project":
        values, untrusted = _of_project(page, values, is_trusted=is_trusted)
    said = page.read(KEYS, values, ())
    place = {"origin": str(path), "folder": path.parent, "owner": owner, "untrusted": untrusted}
    return Layer(**{**said, **said["sandbox"], **place})


def _content_of(path: Path, owner: Owner) -> bytes:
    # What comes with a strange folder must be a plain file.
    return content_of(
        path,
        _MAX_BYTES,
        cannot=f"The configuration {path} cannot be read: {{}}. Name another with --config.",
        large=f"The configuration {path} is larger than {_MAX_BYTES:,} bytes: check that it is the right file.",
        waits=owner != "project",
        is_plain=owner == "project",
    )


def _text_of(path: Path, content: bytes) -> str:
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
