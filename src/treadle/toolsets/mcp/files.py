"""Files of MCP servers: `.mcp.json` as other agents write it, to servers. Starts none, and knows nobody's trust."""

import hashlib
import json
import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from treadle.errors import ConfigurationError, check_path, shown
from treadle.fields import checked
from treadle.toolsets.mcp.servers import visible
from treadle.toolsets.mcp.toolset import McpTools, mcp_server

__all__ = ["McpEntry", "mcp_entries", "mcp_servers"]

_MAX_BYTES = 1_000_000
_MAX_SERVERS = 200
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_BY_HTTP = frozenset({"http", "streamable-http", "streamableHttp", "streamable_http"})


class McpEntry:
    """A server as a file describes it, before anybody has trusted it.

    Example:
        McpEntry("time", {"command": "uvx", "args": ["mcp-server-time"]}).tools()

    Args:
        name: Its name in the file.
        said: What the file says of it, with its variables as they are written.
    """

    @checked
    def __init__(self, name: str, said: dict[str, Any]) -> None:
        self.name = name
        """Its name in the file."""
        self.said = dict(said)
        """What the file says of it, with its variables as they are written."""

    @property
    def digest(self) -> str:
        """A digest of all that the file says of it: a change asks the person again."""
        content = json.dumps([self.name, self.said], sort_keys=True, ensure_ascii=True)
        return f"sha256:{hashlib.sha256(content.encode()).hexdigest()}"

    @property
    def shown(self) -> str:
        """What would be started or reached, in one visible line, with the variables that it asks for."""
        said = self.said
        if isinstance(said.get("url"), str):
            words = [said["url"], *(f"header {key}: {value}" for key, value in _table(said, "headers"))]
        else:
            given = said.get("args")
            arguments = given if isinstance(given, list) else []
            words = [shlex.join([str(said.get("command", "")), *map(str, arguments)])]
            words += [f"{key}={value}" for key, value in _table(said, "env")]
            words += [f"in {said['cwd']}"] if said.get("cwd") else []
        return visible("  ".join(words)).replace("\n", "<U+000A>").replace("\t", "<U+0009>")

    @checked
    def tools(
        self, *, environment: Mapping[str, str] | None = None, folder: str | Path | None = None, is_own: bool = False
    ) -> McpTools:
        """Return the server's tools as a toolset, with `${VARIABLE}` and `${VARIABLE:-default}` replaced.

        Args:
            environment: Where the variables are; None for this process's own.
            folder: Where its program starts, and the one root that it is given.
            is_own: Whether the person wrote the entry: then `trusted`, `effects` and `timeout` count, too.

        Raises:
            ConfigurationError: The entry is wrong, or asks for a variable that is not set.
        """
        said = {
            key: self._expanded(value, os.environ if environment is None else environment)
            for key, value in self.said.items()
        }
        own = {key: said[key] for key in ("trusted", "effects", "timeout") if is_own and key in said}
        roots = [] if folder is None else [folder]
        try:
            if "url" in said or said.get("type") in _BY_HTTP:
                headers = self._strings(said, "headers")
                return mcp_server(self.name, url=str(said.get("url", "")), headers=headers, roots=roots, **own)
            cwd = said.get("cwd", folder)
            return mcp_server(
                self.name, self._command(said), env=self._strings(said, "env"), cwd=cwd, roots=roots, **own
            )
        except ConfigurationError as error:
            raise ConfigurationError(f"MCP server {visible(self.name)!r}: {error}") from error

    def _command(self, said: dict[str, Any]) -> list[str]:
        if said.get("type") == "sse":
            raise ConfigurationError(
                "the transport 'sse' was withdrawn from the protocol; give its streamable HTTP address as `url`."
            )
        if said.get("type", "stdio") != "stdio":
            raise ConfigurationError(f"`type` must be stdio or http; got {shown(said['type'])}.")
        arguments = said.get("args", [])
        if not isinstance(said.get("command"), str) or not isinstance(arguments, list):
            raise ConfigurationError("it needs `command`, a string, with `args`, a list of strings; or `url`.")
        return [said["command"], *map(str, arguments)]

    def _strings(self, said: dict[str, Any], key: str) -> dict[str, str]:
        table = said.get(key, {})
        if not isinstance(table, dict) or not all(isinstance(one, str | int | float) for one in table.values()):
            raise ConfigurationError(f"`{key}` must be an object of strings; got {shown(table)}.")
        return {name: str(value) for name, value in table.items()}

    def _expanded(self, value: Any, environment: Mapping[str, str]) -> Any:
        if isinstance(value, list):
            return [self._expanded(item, environment) for item in value]
        if isinstance(value, dict):
            return {key: self._expanded(item, environment) for key, item in value.items()}
        if not isinstance(value, str):
            return value

        def found(match: re.Match[str]) -> str:
            name, default = match.groups()
            if (given := environment.get(name) or default) is None:
                raise ConfigurationError(
                    f"MCP server {visible(self.name)!r} needs the variable {name}, which is not set. Run: export {name}=..."
                )
            return given

        return _VARIABLE.sub(found, value)


@checked
def mcp_servers(path: str | Path = ".mcp.json", *, environment: Mapping[str, str] | None = None) -> list[McpTools]:
    """Return the servers of a `.mcp.json` as toolsets. Reading starts nothing; a run starts them all: read only files that you trust.

    Example:
        agent = Agent(model, tools=[*mcp_servers(".mcp.json")])

    Args:
        environment: Where `${VARIABLE}` is looked up; None for this process's own.

    Raises:
        ConfigurationError: The file cannot be read, or an entry is wrong.
    """
    check_path("path", path)
    place = Path(path)
    return [one.tools(environment=environment, folder=place.absolute().parent) for one in mcp_entries(place)]


@checked
def mcp_entries(path: str | Path) -> list[McpEntry]:
    """Return what a `.mcp.json` says of its servers, before anybody trusts them.

    Raises:
        ConfigurationError: The file cannot be read, or is not of that form.
    """
    check_path("path", path)
    place = Path(path)
    try:
        with place.open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
        if len(content) > _MAX_BYTES:
            raise ConfigurationError(f"{place} is larger than {_MAX_BYTES:,} bytes. Is it the right file?")
        page = json.loads(content.decode("utf-8-sig"))
    except OSError as error:
        raise ConfigurationError(f"{place} cannot be read: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"{place} is not valid JSON: {error}. Fix it or move it away.") from error
    servers = page.get("mcpServers") if isinstance(page, dict) else None
    if not isinstance(servers, dict) or len(servers) > _MAX_SERVERS:
        raise ConfigurationError(
            f'{place} must be {{"mcpServers": {{"NAME": {{"command": "...", "args": [...]}}}}}}, with at most {_MAX_SERVERS} servers.'
        )
    for name, said in servers.items():
        if not isinstance(said, dict):
            raise ConfigurationError(
                f"{place}: MCP server {visible(name)!r} must be an object with `command` or `url`."
            )
    return [McpEntry(name, said) for name, said in servers.items()]


def _table(said: dict[str, Any], key: str) -> list[tuple[str, Any]]:
    table = said.get(key)
    return list(table.items()) if isinstance(table, dict) else []
