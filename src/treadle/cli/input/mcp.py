"""MCP servers of a call of the program: the person's own, and those of the folder that the person has approved by their content.

A server of a folder is a program that somebody else has chosen. Nothing of it is started before a person has seen its command; a
changed entry asks again, and so does a changed program of the folder that the entry names.
"""

import hashlib
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from treadle import ConfigurationError, McpEntry, McpTools, mcp_entries
from treadle.cli.exits import UsageError
from treadle.cli.input.config import Layer
from treadle.cli.input.places import user_config
from treadle.cli.input.trust import BY_CUSTOM, files_named, read_own, write_own

__all__ = [
    "ListedServer",
    "approve_server",
    "listed_servers",
    "own_file",
    "programs_of",
    "project_file",
    "revoke_server",
    "tools_of",
    "with_server",
    "without_server",
]


class ListedServer(msgspec.Struct, frozen=True, kw_only=True):
    """A server that a file names."""

    entry: McpEntry
    origin: str
    """The file."""
    state: Literal["own", "approved", "waiting", "changed"]
    """Whether it is used: `waiting` and `changed` ask the person first."""

    @property
    def is_used(self) -> bool:
        return self.state in ("own", "approved")


class _Approved(msgspec.Struct, kw_only=True):
    folders: dict[str, dict[str, str]] = {}
    """Digests of approved entries, by folder and name."""


def own_file(environment: Mapping[str, str]) -> Path:
    """Return the place of the person's own servers."""
    return user_config(environment).with_name("mcp.json")


def project_file(folder: Path) -> Path:
    """Return the place of a folder's servers."""
    return folder / ".mcp.json"


def listed_servers(folder: Path, environment: Mapping[str, str], layers: Sequence[Layer] = ()) -> list[ListedServer]:
    """Return the servers that hold in a folder, the person's first: of two with one name, the first one holds.

    Args:
        layers: Configuration files, whose `[mcp.servers]` count as the `.mcp.json` of the same owner.

    Raises:
        ConfigurationError: A file cannot be read.
    """
    found: list[ListedServer] = []
    own, project = own_file(environment), project_file(folder)
    if os.path.lexists(own):
        found += [ListedServer(entry=one, origin=str(own), state="own") for one in mcp_entries(own)]
    configured = [(layer, McpEntry(name, said)) for layer in layers for name, said in layer.mcp.items()]
    found += [
        ListedServer(entry=one, origin=layer.origin, state="own")
        for layer, one in configured
        if layer.owner == "person"
    ]
    brought = [(str(project), one) for one in mcp_entries(project)] if os.path.lexists(project) else []
    brought += [(layer.origin, one) for layer, one in configured if layer.owner != "person"]
    if brought:
        approved = _approved(environment).folders.get(os.path.realpath(folder), {})
        found += [
            ListedServer(entry=one, origin=origin, state=_state(one, folder, approved)) for origin, one in brought
        ]
    first: dict[str, ListedServer] = {}
    for one in found:
        first.setdefault(_OTHER_SIGNS.sub("_", one.entry.name), one)
    return list(first.values())


_OTHER_SIGNS = re.compile(r"[^A-Za-z0-9_-]")
"""What becomes `_` in the names of tools: `my.server` and `my_server` have the same rules, and are one name here."""


def _state(entry: McpEntry, folder: Path, approved: Mapping[str, str]) -> Literal["approved", "waiting", "changed"]:
    if entry.name not in approved:
        return "waiting"
    return "approved" if approved[entry.name] == _digest(entry, folder) else "changed"


def programs_of(entry: McpEntry, folder: Path) -> dict[str, Path]:
    """Return the programs of a folder that an entry names, by their names. Files of data that it names do not count."""
    said, root = entry.said, Path(os.path.realpath(folder))
    given, env = said.get("args"), said.get("env")
    words = [
        said.get("command", ""),
        *(given if isinstance(given, list) else []),
        *(env.values() if isinstance(env, dict) else []),
    ]
    line = shlex.join([*(["cd", str(said["cwd"])] if said.get("cwd") else []), *map(str, words)])
    return {name: path for name, path in files_named(root, line).items() if _is_program(path)}


def _is_program(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return (
                path.suffix.lower() in _PROGRAMS
                or path.name in BY_CUSTOM
                or os.access(path, os.X_OK)
                or file.read(2) == b"#!"
            )
    except OSError:
        return True  # what cannot be read cannot be approved


_PROGRAMS = frozenset(
    {".py", ".js", ".mjs", ".cjs", ".ts", ".mts", ".sh", ".bash", ".rb", ".pl", ".php", ".lua", ".jar", ".ps1"}
)


def _digest(entry: McpEntry, folder: Path) -> str:
    """Return the digest of an entry and of the programs that it names; of the entry alone where it names none."""
    programs = programs_of(entry, folder)
    if not programs:
        return entry.digest
    whole = hashlib.sha256(entry.digest.encode())
    for name, path in programs.items():
        try:
            with path.open("rb") as file:
                content = hashlib.file_digest(file, "sha256").digest()
        except OSError:
            content = b""
        whole.update(os.fsencode(name) + b"\0" + content)
    return f"sha256:{whole.hexdigest()}"


def tools_of(server: ListedServer, folder: Path) -> McpTools:
    """Return the toolset of a server.

    Raises:
        ConfigurationError: Its entry is wrong, or needs a variable that is not set.
    """
    return server.entry.tools(folder=folder.absolute(), is_own=server.state == "own")


def approve_server(server: ListedServer, folder: Path, environment: Mapping[str, str]) -> None:
    """Remember that a person trusts a folder's server as it is now."""
    page = _approved(environment)
    page.folders.setdefault(os.path.realpath(folder), {})[server.entry.name] = _digest(server.entry, folder)
    write_own(_place(environment), msgspec.json.encode(page))


def revoke_server(name: str, folder: Path, environment: Mapping[str, str]) -> bool:
    """Forget a folder's server. Return whether it was approved."""
    page = _approved(environment)
    if page.folders.get(os.path.realpath(folder), {}).pop(name, None) is None:
        return False
    write_own(_place(environment), msgspec.json.encode(page))
    return True


def with_server(place: Path, name: str, said: dict[str, Any], *, is_private: bool) -> None:
    """Write a server into a file, beside those that are there.

    Raises:
        UsageError: There is one by that name, or the file cannot be written.
    """
    servers = _servers_of(place)
    if name in servers:
        raise UsageError(f"{place} has a server {name!r} already. To replace it, run first: treadle mcp remove {name}")
    _write(place, {**servers, name: said}, is_private=is_private)


def without_server(place: Path, name: str, *, is_private: bool) -> bool:
    """Take a server out of a file. Return whether it was there."""
    servers = _servers_of(place)
    if servers.pop(name, None) is None:
        return False
    _write(place, servers, is_private=is_private)
    return True


def _servers_of(place: Path) -> dict[str, Any]:
    return {one.name: one.said for one in mcp_entries(place)} if os.path.lexists(place) else {}


def _write(place: Path, servers: dict[str, Any], *, is_private: bool) -> None:
    content = msgspec.json.encode({"mcpServers": servers})
    if is_private:
        write_own(place, content)
        return
    try:  # a file of the project is for all who work in it
        place.write_bytes(msgspec.json.format(content, indent=2) + b"\n")
    except OSError as error:
        raise UsageError(f"{place} cannot be written: {error.strerror}.") from error


def _place(environment: Mapping[str, str]) -> Path:
    return user_config(environment).with_name("mcp-approved.json")


def _approved(environment: Mapping[str, str]) -> _Approved:
    place = _place(environment)
    content = read_own(place)
    if content is None:
        return _Approved()
    try:
        return msgspec.json.decode(content, type=_Approved)
    except msgspec.MsgspecError as error:
        raise ConfigurationError(
            f"{place} is damaged: {error}. Move it away, and approve your servers again."
        ) from error
