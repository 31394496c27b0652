"""MCP servers as values: how a server is reached, what it may do, and what of it is secret. Connects to none."""

import hashlib
import json
import re
import unicodedata
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import msgspec

from treadle.errors import ConfigurationError, shown
from treadle.fields import Documented, NamedOptions, check_fields
from treadle.redaction import is_secret_name, secrets_of_address
from treadle.tools.effects import Effect

__all__ = ["Ask", "McpServer", "fit_schema", "plain_name", "shortened", "tool_name", "visible"]


# --- Texts of a server made fit for a model and a person: names that every dialect takes, nothing invisible, nothing
# endless.

_LONGEST_TEXT_NAME = 64
"""Characters of a tool's name that every provider takes."""
_LONGEST_DESCRIPTION = 1_000
"""Characters of a description inside a schema."""
_LARGEST_SCHEMA = 100_000
"""Characters of a schema as JSON. A larger one cannot be cut without changing what it means."""
_PLAIN_NAME = re.compile(r"[^A-Za-z0-9_-]")
_INVISIBLE = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"})
_BLANKS = frozenset(
    "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180e\u180f\u2800\u2d7f\u3164\uffa0\ufffc\U00016fe4\U0001d159"
)
_ANNOTATIONS = frozenset({"description", "title", "$comment"})


def tool_name(server: str, tool: str) -> str:
    """Return the name by which the model knows a tool: `mcp__server__tool`, in characters and a length that every dialect takes."""
    name = plain_name(f"mcp__{server}__{tool}")
    if len(name) <= _LONGEST_TEXT_NAME:
        return name
    digest = hashlib.sha256(f"{server}\0{tool}".encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{name[: _LONGEST_TEXT_NAME - 9]}_{digest}"


def plain_name(name: str) -> str:
    """Return a name in characters that every provider takes."""
    return _PLAIN_NAME.sub("_", name)


def visible(text: str) -> str:
    """Return a text in which every character shows: an invisible one is written as `<U+200B>`. Line ends and tabs stay."""
    plain = text.replace("\r\n", "\n")
    return plain if plain.isascii() and plain.isprintable() else "".join(map(_shown, plain))


def _shown(char: str) -> str:
    if char in "\n\t" or (char.isascii() and char.isprintable()):
        return char
    number = ord(char)
    is_selector = 0xFE00 <= number <= 0xFE0F or 0xE0100 <= number <= 0xE01EF
    hides = is_selector or char in _BLANKS or unicodedata.category(char) in _INVISIBLE
    return f"<U+{number:04X}>" if hides else char


def shortened(text: str, limit: int) -> str:
    """Return a text of at most so many characters; one that was cut says so."""
    mark = " [cut]"
    return text if len(text) <= limit else text[: limit - len(mark)] + mark


def fit_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a server's schema with visible and short descriptions. What it enforces is unchanged.

    Raises:
        ValueError: It is larger than 100,000 characters, too deep, or has a field whose name does not show.
    """
    try:
        fit: dict[str, Any] = _fit(schema, is_names=False)
        size = len(json.dumps(fit))
    except RecursionError:
        raise ValueError("its schema is nested too deeply") from None
    if size > _LARGEST_SCHEMA:
        raise ValueError(f"its schema has {size:,} characters as JSON, and at most {_LARGEST_SCHEMA:,} are taken")
    return fit


def _fit(value: Any, *, is_names: bool) -> Any:  # Any: a schema of strangers
    """Args: is_names: Whether the keys of this object are names of fields, so that `description` is one of them."""
    if isinstance(value, list):
        return [_fit(item, is_names=False) for item in value]
    if not isinstance(value, dict):
        return value
    fit = {}
    for key, item in value.items():
        if visible(key) != key:
            raise ValueError(f"its schema names {visible(key)[:100]!r}, which has invisible characters")
        if key in _ANNOTATIONS and isinstance(item, str) and not is_names:
            fit[key] = shortened(visible(item), _LONGEST_DESCRIPTION)
        else:
            fit[key] = _fit(item, is_names=not is_names and key in {"properties", "$defs", "definitions"})
    return fit


# --- MCP servers as values: how a server is reached, what it may do, and what of it is secret. Connects to none.

Ask: TypeAlias = Callable[[str, dict[str, Any]], Awaitable[Any]]
"""Asks a person what a server wants to know: called with the question and the JSON Schema of the answer. None declines."""

_LONGEST_NAME = 48
"""So that the name of a tool has the whole name of its server, however it is shortened: rules name the server."""
_LOOKS_SECRET = re.compile(r"(?=.*\d)(?=.*[A-Za-z])[^\s/\\]{12,}", re.DOTALL)


class McpServer(msgspec.Struct, Documented, frozen=True, kw_only=True, eq=False, metaclass=NamedOptions):
    """An MCP server: how it is reached, and what its tools may do. `mcp_server` makes one, in a toolset."""

    name: str
    """Its name: its tools are called `mcp__NAME__TOOL`."""
    command: tuple[str, ...] = ()
    """The program and its arguments, for a server that is started for each run; empty for one that has a URL."""
    url: str | None = None
    """The address of a server that runs already, reached by streamable HTTP."""
    env: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Variables that the program gets beside path, home, user and locale of ours. Never recorded."""
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Headers of each request to the URL, such as `Authorization`. Never recorded."""
    auth: Any = None  # Any: an httpx2.Auth, whose package is an extra
    """Signs in at the URL, as the official package's `OAuthClientProvider` does (an `httpx2.Auth`); None for headers alone."""
    cwd: str | None = None
    """The folder that the program starts in; None for ours."""
    roots: tuple[str, ...] = ()
    """Folders that are reported to the server as those it may work in."""
    trusted: bool = False
    """Whether the server's annotations are believed: `readOnlyHint` makes a call a `read`, `idempotentHint` an `idempotent` one. They
    never allow a call."""
    effects: Mapping[str, Effect] = msgspec.field(default_factory=dict)
    """What tools do to the world, by the server's own name of each: your word, which overrides every annotation."""
    timeout: float = 120.0
    """Seconds that one call may take."""
    connect_seconds: float = 25.0
    """Seconds that the server may take to start and to answer `initialize`."""
    max_message_bytes: int = 16_000_000
    """Bytes of one message of the server. The call that a larger one answers fails."""
    ask: Ask | None = None
    """Asks a person what the server wants to know in mid-call; None suspends the call until the session has an answer."""

    def __post_init__(self) -> None:
        check_fields("McpServer", self)
        _check_name(self.name)
        _check_place(self.name, self.command, self.url, self.auth)
        for word, number in (
            ("timeout", self.timeout),
            ("connect_seconds", self.connect_seconds),
            ("max_message_bytes", self.max_message_bytes),
        ):
            if number <= 0:
                raise ConfigurationError(
                    f"MCP server {self.name!r}: {word} must be a number above 0; got {shown(number)}."
                )
        for what, texts in (("env", self.env), ("headers", self.headers)):
            if any("\0" in one for pair in texts.items() for one in pair):
                raise ConfigurationError(f"MCP server {self.name!r}: {what} must hold strings without a zero byte.")

    def __repr__(self) -> str:
        """Return its name and place, without variables and headers."""
        return f"McpServer(name={self.name!r}, {self.place!r})"

    @property
    def place(self) -> str:
        """Where it is: its command in one line, or its address without what may be a key."""
        if self.url is None:
            return visible(" ".join(self.command))
        parts = urlsplit(self.url)
        return visible(f"{parts.scheme}://{parts.hostname or ''}{f':{parts.port}' if parts.port else ''}{parts.path}")

    def secrets(self) -> list[str]:
        """Return what must not be recorded where the server repeats it."""
        named = [value for name, value in self.env.items() if is_secret_name(name) or _LOOKS_SECRET.fullmatch(value)]
        sent = [part for value in self.headers.values() for part in (value, value.rpartition(" ")[2])]
        return [*named, *sent, *(secrets_of_address(self.url) if self.url else [])]


def _check_name(name: str) -> None:
    if not 0 < len(name) <= _LONGEST_NAME or visible(name) != name or not name.isprintable():
        raise ConfigurationError(
            f"An MCP server's name must be 1 to {_LONGEST_NAME} visible characters, such as 'github'; got {shown(name)}."
        )
    plain = plain_name(name)
    if "__" in plain or plain.endswith("_"):
        raise ConfigurationError(
            f"The name {shown(name)} of an MCP server {f'becomes {plain!r}, which ' if plain != name else ''}"
            "has `__` or ends in `_`: a rule for another server, `mcp__NAME`, could mean its tools. Rename it."
        )


def _check_place(name: str, command: tuple[str, ...], url: str | None, auth: Any) -> None:
    if any("\0" in one for one in command):
        raise ConfigurationError(
            f"MCP server {name!r}: command must be a list of strings, such as ['npx', '-y', 'some-server']; got {shown(command)}."
        )
    if bool(command) == (url is not None):
        raise ConfigurationError(
            f"MCP server {name!r} needs either a command, such as ['npx', '-y', 'some-server'], or a url; "
            f"got {'both' if command else 'neither'}."
        )
    if auth is not None and url is None:
        raise ConfigurationError(
            f"MCP server {name!r}: auth signs in at a url, and this server is a command. Remove auth."
        )
    if auth is not None and not callable(getattr(auth, "async_auth_flow", None)):
        raise ConfigurationError(
            f"MCP server {name!r}: auth must be an httpx2.Auth, such as an OAuthClientProvider; got {shown(auth)}."
        )
    if command and not command[0].strip():
        raise ConfigurationError(f"MCP server {name!r}: the command begins with an empty program name.")
    if url is not None and (urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname):
        raise ConfigurationError(
            f"MCP server {name!r}: url must begin with http:// or https:// and have a host; got {shown(url)}."
        )
