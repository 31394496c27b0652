"""MCP servers as toolsets: how a server is reached and what it may do. Connects to none until a run opens it."""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import msgspec

from treadle.errors import ConfigurationError, check_kind, shown
from treadle.fields import Documented, NamedOptions, checked
from treadle.ports import OpenToolset, ToolsetContext
from treadle.redaction import is_secret_name, remember, secrets_of_address
from treadle.tools.effects import Effect, effect_from
from treadle.toolsets.mcp.texts import visible

__all__ = ["Ask", "McpServer", "mcp_server"]

Ask: TypeAlias = Callable[[str, dict[str, Any]], Awaitable[Any]]
"""Asks a person what a server wants to know: called with the question and the JSON Schema of the answer. None declines."""

_LONGEST_NAME = 60
_LOOKS_SECRET = re.compile(r"(?=.*\d)(?=.*[A-Za-z])[^\s/\\]{12,}", re.DOTALL)


class McpServer(msgspec.Struct, Documented, frozen=True, kw_only=True, eq=False, metaclass=NamedOptions):
    """An MCP server: how it is reached, and what its tools may do. Make one with `mcp_server`; it is a toolset."""

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
    cwd: str | None = None
    """The folder that the program starts in; None for ours."""
    roots: tuple[str, ...] = ()
    """Folders that the server is told it may work in."""
    trusted: bool = False
    """Whether the server's annotations are believed: `readOnlyHint` makes a call a `read`, `idempotentHint` an `idempotent` one. They
    never allow a call."""
    effects: Mapping[str, Effect] = msgspec.field(default_factory=dict)
    """What tools do to the world, by the server's own name of each: your word, which overrides every annotation."""
    timeout: float = 120.0
    """Seconds that one call may take."""
    connect_seconds: float = 25.0
    """Seconds that the server may take to start and to introduce itself."""
    max_message_bytes: int = 16_000_000
    """Bytes of one message of the server. The call that a larger one answers fails."""
    ask: Ask | None = None
    """Asks a person what the server wants to know in mid-call; None suspends the call until the session has an answer."""

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

    def open(self, ctx: ToolsetContext) -> AbstractAsyncContextManager[OpenToolset]:
        """Return what starts the server or connects to it, for one run, and ends that with the run.

        Raises:
            ConfigurationError: The package `mcp` is not installed.
        """
        remember(self._secrets())
        try:
            from treadle.toolsets.mcp.links import opened  # noqa: PLC0415 - the protocol's package takes half a second to import
        except ImportError as error:
            raise ConfigurationError(
                f"MCP needs the extra of that name: pip install 'treadle[mcp]' ({error})."
            ) from error
        return opened(self)

    def _secrets(self) -> list[str]:
        """Return what must not be recorded where the server repeats it."""
        named = [value for name, value in self.env.items() if is_secret_name(name) or _LOOKS_SECRET.fullmatch(value)]
        sent = [part for value in self.headers.values() for part in (value, value.rpartition(" ")[2])]
        return [*named, *sent, *(secrets_of_address(self.url) if self.url else [])]


@checked
def mcp_server(
    name: str,
    command: Sequence[str] = (),
    *,
    url: str | None = None,
    env: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
    cwd: str | Path | None = None,
    roots: Sequence[str | Path] = (),
    trusted: bool = False,
    effects: Mapping[str, str] | None = None,
    timeout: float = 120.0,
    connect_seconds: float = 25.0,
    max_message_bytes: int = 16_000_000,
    ask: Ask | None = None,
) -> McpServer:
    """Return the tools of an MCP server as a toolset. Each call asks a person, unless a rule or `effects` says otherwise.

    Example:
        github = mcp_server("github", ["npx", "-y", "@modelcontextprotocol/server-github"], env={"GITHUB_TOKEN": token})
        docs = mcp_server("docs", url="https://docs.example/mcp", effects={"search": "read"})
        agent = Agent(model, tools=[github, docs], policy=allow("mcp__github__list_*"))

    Args:
        name: Its tools are called `mcp__NAME__TOOL`.
        command: The program and its arguments. It is started for each run.
        url: The address of a server that runs already, in place of a command.
        env: Variables that the program gets; of ours it gets no key.
        headers: Headers of each request to the URL.
        cwd: The folder that the program starts in.
        roots: Folders that the server is told it may work in.
        trusted: Whether to believe what the server says its tools do. That decides what runs in parallel and what is
            tried again; it never allows a call.
        effects: What some tools do, by the server's names: "read", "idempotent", "keyed" or "unsafe".
        timeout: Seconds that one call may take.
        connect_seconds: Seconds that the server may take to start.
        max_message_bytes: Bytes of the largest message that is taken.
        ask: Asks a person what the server wants to know, as `await ask(question, schema)`; None suspends the call.

    Raises:
        ConfigurationError: The name is not fit for a tool's name, or there is neither a command nor a URL, or both.
    """
    _check_name(name)
    _check_place(name, command, url)
    check_kind("max_message_bytes", max_message_bytes, int, "a number of bytes")
    for word, number in (
        ("timeout", timeout),
        ("connect_seconds", connect_seconds),
        ("max_message_bytes", max_message_bytes),
    ):
        if not number > 0:
            raise ConfigurationError(f"MCP server {name!r}: {word} must be above 0; got {shown(number)}.")
    return McpServer(
        name=name,
        command=tuple(command),
        url=url,
        env=dict(env or {}),
        headers=dict(headers or {}),
        cwd=None if cwd is None else str(cwd),
        roots=tuple(str(Path(root).absolute()) for root in roots),
        trusted=trusted,
        effects={tool: effect_from(effect) for tool, effect in (effects or {}).items()},
        timeout=timeout,
        connect_seconds=connect_seconds,
        max_message_bytes=max_message_bytes,
        ask=ask,
    )


def _check_name(name: str) -> None:
    if not 0 < len(name) <= _LONGEST_NAME or visible(name) != name or not name.isprintable():
        raise ConfigurationError(
            f"An MCP server's name must be 1 to {_LONGEST_NAME} visible characters, such as 'github'; got {shown(name)}."
        )


def _check_place(name: str, command: Sequence[str], url: str | None) -> None:
    if isinstance(command, str) or any(not isinstance(one, str) or "\0" in one for one in command):
        raise ConfigurationError(
            f"MCP server {name!r}: command must be a list of strings, such as ['npx', '-y', 'some-server']; got {shown(command)}."
        )
    if bool(command) == (url is not None):
        raise ConfigurationError(
            f"MCP server {name!r} needs either a command, such as ['npx', '-y', 'some-server'], or a url; "
            f"got {'both' if command else 'neither'}."
        )
    if command and not command[0].strip():
        raise ConfigurationError(f"MCP server {name!r}: the command begins with an empty program name.")
    if url is not None and (urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname):
        raise ConfigurationError(
            f"MCP server {name!r}: url must begin with http:// or https:// and have a host; got {shown(url)}."
        )
