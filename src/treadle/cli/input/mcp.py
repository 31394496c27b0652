"""MCP servers of a call of the program: the person's own, and those of the folder that the person has approved by their content.

A server of a folder is a program that somebody else has chosen. Nothing of it is started before a person has seen its command; a
changed entry asks again, and so does a changed program of the folder that the entry names.
"""

import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from treadle import ConfigurationError
from treadle.cli.exits import UsageError
from treadle.cli.files import write_whole
from treadle.cli.input.config import Layer
from treadle.cli.input.places import user_config
from treadle.cli.input.trust import exec_line, files_named, read_own_json, write_own
from treadle.toolsets import McpEntry, McpTools, mcp_entries

__all__ = [
    "NO_SERVER",
    "SOME_WAIT",
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


NO_SERVER = "No MCP server is configured. To add one: treadle mcp add NAME -- COMMAND ARGUMENT..."
SOME_WAIT = "Servers marked waiting or changed are not used. Check their commands, then run: treadle mcp approve NAME"


class ListedServer(msgspec.Struct, frozen=True, kw_only=True):
    """A server that a file names."""

    entry: McpEntry
    origin: str
    """The file."""
    state: Literal["own", "approved", "waiting", "changed", "disabled"]
    """Whether it is used: `waiting` and `changed` ask the person first, and `disabled` is what its file says."""

    @property
    def is_used(self) -> bool:
        return self.state in ("own", "approved")

    @property
    def is_waiting(self) -> bool:
        """Whether it is used once the person approves it."""
        return self.state in ("waiting", "changed")


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
        said = one.entry.said  # both are words that other agents read
        is_disabled = bool(said.get("disabled")) or not said.get("enabled", True)
        listed = msgspec.structs.replace(one, state="disabled") if is_disabled else one
        first.setdefault(_OTHER_SIGNS.sub("_", one.entry.name), listed)
    return list(first.values())


_OTHER_SIGNS = re.compile(r"[^A-Za-z0-9_-]")
"""What becomes `_` in the names of tools: `my.server` and `my_server` have the same rules, and are one name here."""


def _state(entry: McpEntry, folder: Path, approved: Mapping[str, str]) -> Literal["approved", "waiting", "changed"]:
    if entry.name not in approved:
        return "waiting"
    return "approved" if approved[entry.name] == _digest(entry, folder) else "changed"


def programs_of(entry: McpEntry, folder: Path) -> dict[str, Path]:
    """Return the files of a folder that an entry names, by their names. Files of data do not count."""
    return {name: path for name, path in _named(entry, folder).items() if path.suffix.lower() not in _DATA}


def _named(entry: McpEntry, folder: Path) -> dict[str, Path]:
    """Return the files that an entry names, its variables replaced as a start would."""
    try:
        server = entry.tools(folder=folder.absolute()).server
        words, env, cwd = server.command, server.env, server.cwd
    except ConfigurationError:  # it cannot be started as it is
        said = entry.said
        words = (str(said.get("command", "")), *map(str, said.get("args") or ()))
        given = said.get("env")
        env = {name: str(value) for name, value in given.items()} if isinstance(given, dict) else {}
        cwd = str(said["cwd"]) if said.get("cwd") else None
    return files_named(Path(os.path.realpath(folder)), exec_line([*words, *env.values()], cwd))


_DATA = frozenset({".csv", ".db", ".jsonl", ".log", ".md", ".pid", ".sqlite", ".sqlite3", ".txt"})
"""Ends of files that a server keeps writing: they are no part of what is approved."""


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
        UsageError: It is disabled.
    """
    _refuse_disabled(server)
    entry, is_own = server.entry, server.state == "own"
    if not is_own and _imports_elsewhere(entry, folder):
        entry = McpEntry(entry.name, {**entry.said, "env": {**(entry.said.get("env") or {}), "PYTHONSAFEPATH": "1"}})
    return entry.tools(folder=folder.absolute(), is_own=is_own)


def _refuse_disabled(server: ListedServer) -> None:
    if server.state == "disabled":
        raise UsageError(
            f"MCP server {server.entry.name!r} is disabled in {server.origin}. To use it, remove `disabled` there."
        )


def _imports_elsewhere(entry: McpEntry, folder: Path) -> bool:
    """Whether a server runs Python with code or a module that is not a file of the folder: Python would look there first for all imports."""
    said = entry.said
    words = [str(said.get("command", "")), *map(str, said.get("args") or ())]
    is_bound = any(name.endswith(".py") for name in programs_of(entry, folder))
    return _PYTHON.search(" ".join(words)) is not None and isinstance(said.get("env") or {}, dict) and not is_bound


_PYTHON = re.compile(r"\b(?:python|pypy)[\d.]*['\"]?(?:\s+-\S+)*?\s+-[A-Za-z]*[cm]")
"""Python with `-c` or `-m`."""


def approve_server(server: ListedServer, folder: Path, environment: Mapping[str, str]) -> None:
    """Remember that a person trusts a folder's server as it is now.

    Raises:
        UsageError: It is disabled.
    """
    _refuse_disabled(server)
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
    """Write a server into a file, in addition to those that are there.

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
    # A file of the project is for all who work in it.
    text = msgspec.json.format(content, indent=2) + b"\n"
    write_whole(place, text, cannot=f"{place} cannot be written: {{}}.", mode=0o666, keeps_mode=True)


def _place(environment: Mapping[str, str]) -> Path:
    return user_config(environment).with_name("mcp-approved.json")


def _approved(environment: Mapping[str, str]) -> _Approved:
    return read_own_json(_place(environment), _Approved, "approve your servers again") or _Approved()
