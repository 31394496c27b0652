"""The toolset of an MCP server: opened by a run, it starts the server or connects to it. The protocol's package is imported then."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from treadle.errors import ConfigurationError, check_kind
from treadle.fields import checked
from treadle.ports import OpenToolset, ToolsetContext
from treadle.redaction import remember
from treadle.tools.effects import effect_from
from treadle.toolsets.mcp.servers import Ask, McpServer

__all__ = ["McpTools", "mcp_server"]


class McpTools:
    """The tools of an MCP server, as a toolset. `mcp_server` makes one.

    Args:
        server: How the server is reached, and what its tools may do.
    """

    def __init__(self, server: McpServer) -> None:
        check_kind("server", server, McpServer, "an McpServer, which mcp_server(...) makes")
        self.server = server
        """How the server is reached, and what its tools may do."""
        self.name = server.name
        """Its name in events and messages."""

    def __repr__(self) -> str:
        """Return its name and place, without variables and headers."""
        return f"McpTools({self.server!r})"

    def open(self, ctx: ToolsetContext) -> AbstractAsyncContextManager[OpenToolset]:
        """Return what starts the server or connects to it, for one run, and ends that with the run.

        Raises:
            ConfigurationError: The package `mcp` is not installed.
        """
        remember(self.server.secrets())
        try:
            from treadle.toolsets.mcp.links import opened  # noqa: PLC0415 - the protocol's package takes half a second to import
        except ImportError as error:
            raise ConfigurationError(
                f"MCP needs the extra of that name: pip install '.[mcp]' in the project's folder ({error})."
            ) from error
        return opened(self.server)


@checked
def mcp_server(
    name: str,
    command: Sequence[str] = (),
    *,
    url: str | None = None,
    env: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
    auth: Any = None,  # Any: an httpx2.Auth, whose package is an extra
    cwd: str | Path | None = None,
    roots: Sequence[str | Path] = (),
    trusted: bool = False,
    effects: Mapping[str, str] | None = None,
    timeout: float = 120.0,
    connect_seconds: float = 25.0,
    max_message_bytes: int = 16_000_000,
    ask: Ask | None = None,
) -> McpTools:
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
        auth: Signs in at the URL: an `httpx2.Auth`, such as the official package's `OAuthClientProvider`.
        cwd: The folder that the program starts in.
        roots: Folders that are reported to the server as those it may work in.
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
    server = McpServer(
        name=name,
        command=tuple(command),
        url=url,
        env=dict(env or {}),
        headers=dict(headers or {}),
        auth=auth,
        cwd=None if cwd is None else str(cwd),
        roots=tuple(str(Path(root).absolute()) for root in roots),
        trusted=trusted,
        effects={tool: effect_from(effect) for tool, effect in (effects or {}).items()},
        timeout=timeout,
        connect_seconds=connect_seconds,
        max_message_bytes=max_message_bytes,
        ask=ask,
    )
    return McpTools(server)
