"""`treadle trust`: list, approve and revoke the folders whose own configuration and hooks count."""

import os
import time
from pathlib import Path
from typing import Any

from treadle.cli.exits import UsageError
from treadle.cli.guidance import Guidance, guidance_in
from treadle.cli.input.commands import TrustOptions
from treadle.cli.input.trust import Trusted, brought_by, changes, trusted_folders, with_trust, without_trust
from treadle.cli.output.terminal import Terminal
from treadle.cli.output.text import one_line
from treadle.cli.running import is_confirmed

__all__ = ["trust"]

_LONGEST_FILE = 20_000


def trust(options: TrustOptions, terminal: Terminal) -> int:
    """List what is trusted, or change it."""
    match options.action:
        case "approve":
            return _approve(_folder(options), terminal)
        case "revoke":
            return _revoke(_folder(options), terminal)
        case _:
            return _list(options, terminal)


def _folder(options: TrustOptions) -> Path:
    folder = Path(options.name)
    if not folder.is_dir() and options.action == "approve":
        raise UsageError(f"The folder {str(folder)!r} does not exist.")
    return folder


def _list(options: TrustOptions, terminal: Terminal) -> int:
    folders = trusted_folders(os.environ)
    rows = [
        {"folder": folder, "at": one.at, "files": list(one.files), **_state(folder, one)}
        for folder, one in sorted(folders.items())
    ]
    if options.as_json:
        terminal.data(rows)
        return 0
    for row in rows:
        when = time.strftime("%Y-%m-%d", time.localtime(folders[str(row["folder"])].at))
        terminal.line(f"{row['state']:<9} {when}  {one_line(str(row['folder']), 300)}")
        for change in row["changes"]:
            terminal.line(f"            {one_line(change, 300)}")
    if not rows:
        terminal.line("No folder is trusted. To trust this one: treadle trust approve")
    return 0


def _state(folder: str, trusted: Trusted) -> dict[str, Any]:
    """Return whether a folder is as it was approved, and which files are not."""
    try:
        now = brought_by(Path(folder))
    except UsageError as error:
        return {"state": "changed", "changes": [str(error)]}
    guidance = guidance_in(folder) if Path(folder).is_dir() else Guidance()
    is_same = (now.digest, guidance.digest) == (trusted.digest, trusted.guidance)
    found = changes(trusted.digests, {**now.digests, **guidance.digests})
    return {"state": "trusted" if is_same else "changed", "changes": [] if is_same else list(found)}


def _approve(folder: Path, terminal: Terminal) -> int:
    """Show all that comes with the folder, and trust it as it is."""
    brought = brought_by(folder)
    guidance = guidance_in(brought.folder)
    if not brought.digest and not guidance.digest:
        was_trusted = without_trust(brought.folder, os.environ)
        terminal.line(
            f"{one_line(brought.folder, 300)} has no .treadle, no AGENTS.md, no skills and no commands: there is nothing to trust"
            f"{', and what was trusted is forgotten' if was_trusted else ''}."
        )
        return 0
    for name, content in zip(brought.files, brought.contents, strict=True):
        _show_file(name, content, terminal)
    _show_guidance(guidance, terminal)
    if not is_confirmed("Trust these files as they are?", terminal):
        terminal.line("Not trusted: nothing is changed.")
        return 1
    with_trust(brought, os.environ, guidance=guidance.digest, guides=guidance.digests)
    terminal.line(
        f"Trusted: {one_line(brought.folder, 300)} ({(brought.digest or guidance.digest)[:19]}). "
        "If these files change, you are asked again."
    )
    return 0


def _show_file(name: str, content: bytes, terminal: Terminal) -> None:
    """Show the beginning of a file, and say how much more there is."""
    shown_name = one_line(name, 300)
    terminal.line(f"--- {shown_name}")
    for line in content[:_LONGEST_FILE].decode("utf-8", "replace").splitlines():
        terminal.line(f"  {line}")
    if left := len(content[_LONGEST_FILE:]):
        terminal.line(
            f"--- {left:,} more bytes of {shown_name} are not shown: read them before you rely on this folder"
        )


def _show_guidance(guidance: Guidance, terminal: Terminal) -> None:
    """Show what the model is told, as it is told: what includes what has its place there. Nothing is read a second time."""
    if guidance.instructions.files:
        terminal.line("--- what instruction files tell the model")
        for line in guidance.instructions.text.splitlines():
            terminal.line(f"  {line}")
    for skill in guidance.brought:
        told = f"{skill.description}\n\n{skill.text}"
        _show_file(f"{skill.folder}/SKILL.md", told.encode(), terminal)
    for command in guidance.commands:
        _show_file(command.path, command.text.encode(), terminal)


def _revoke(folder: Path, terminal: Terminal) -> int:
    real = os.path.realpath(folder)
    if not without_trust(real, os.environ):
        raise UsageError(f"The folder {real} is not trusted. `treadle trust` lists those that are.")
    terminal.line(f"No longer trusted: {one_line(real, 300)}")
    return 0
