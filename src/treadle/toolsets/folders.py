"""Folders: where a folder is, in two lines for a model, and which files it has. Starts git only where the folder has it run nothing."""

import os
import subprocess
from collections.abc import Sequence
from datetime import date
from itertools import islice
from pathlib import Path

from treadle.errors import ConfigurationError
from treadle.fields import checked
from treadle.sandboxes.outside import repository_of, started_instead
from treadle.sandboxes.processes import clean_path
from treadle.toolsets.files.root import Root, spelled, walk

__all__ = ["folder_changes", "folder_files", "folder_surroundings"]

_GIT_SECONDS = 2.0
"""A repository that needs longer is described without its state, and its files are looked for in the folders themselves."""
_MOST_FILES = 50_000


@checked
def folder_surroundings(folder: str | Path = ".") -> str:
    """Say in a few words where a model works: the folder, its git branch and whether files have changed, the system, the shell and the date.

    It is what holds now. Call it once for a conversation, so that every request begins with the same text and the vendor's cache
    applies.

    Args:
        folder: Where the work is done.

    Raises:
        ConfigurationError: There is no such folder.

    Example:
        agent = Agent(model, tools=file_tools("project"), instructions=folder_surroundings("project"))
    """
    root, system = Root(folder).path, os.uname()
    state = _state_of_git(root)
    return (
        f"# Where you work\nFolder: {spelled(root)}{f' ({state})' if state else ''}\n"
        f"System: {system.sysname} {system.release} {system.machine}. Shell: bash. Date: {date.today().isoformat()}."  # noqa: DTZ011 - the person's own date
    )


def _state_of_git(root: str) -> str:
    """Return branch and changes; empty outside of a repository."""
    if repository_of(root) is None:
        return ""
    lines = _from_git(root, "status", "--porcelain=v2", "--branch", "-z", "--", ".")
    if lines is None:
        return "a git repository"
    branch = next((line.removeprefix("# branch.head ") for line in lines if line.startswith("# branch.head ")), "")
    changed = sum(line[:2] in ("1 ", "2 ", "u ", "? ") for line in lines)
    state = "no changes" if not changed else f"{changed} changed or new file{'s' if changed > 1 else ''}"
    return f"git branch {spelled(branch)[:100]}, {state} when this began"


@checked
def folder_changes(folder: str | Path = ".") -> str:
    """Return what differs from the last commit in a folder of a git repository, as `git diff HEAD` shows it; empty if nothing does.

    Args:
        folder: Where to look.

    Raises:
        ConfigurationError: There is no such folder, it is in no repository with a commit, or it has git run a program.

    Example:
        print(folder_changes("project"))
    """
    root = Root(folder).path
    if why := started_instead(root, root, "git", "."):
        raise ConfigurationError(f"{why} Run `git diff` yourself if you trust it.")
    words = [
        "-c",
        "core.hooksPath=/dev/null",
        "--no-pager",
        "diff",
        "--no-ext-diff",
        "--no-textconv",
        "--no-color",
        "HEAD",
        "--",
        ".",
    ]
    changes = _written_by_git(root, *words)
    if changes is None:
        raise ConfigurationError(
            f"The folder {root} is in no git repository with a commit, or git is not installed: there is nothing to compare with."
        )
    return changes


@checked
def folder_files(folder: str | Path = ".") -> Sequence[str]:
    """Return the files of a folder by their paths in it, in order, at most 50,000.

    In a git repository those that it ignores are left out; elsewhere hidden folders, and those such as `node_modules`.

    Args:
        folder: Where to look.

    Raises:
        ConfigurationError: There is no such folder.
    """
    root = Root(folder)
    found = None
    if repository_of(root.path) is not None:
        found = _from_git(root.path, "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate")
    if found is None:
        found = ["/".join(names) for names in islice(walk(root, ()), _MOST_FILES)]
    return sorted(found)[:_MOST_FILES]


def _from_git(root: str, *words: str) -> list[str] | None:
    """Return what git writes, parted at NUL; None where it fails, or may run a program that the folder brings."""
    written = _written_by_git(root, *words)
    return None if written is None else [one for one in written.split("\0") if one]


def _written_by_git(root: str, *words: str) -> str | None:
    if started_instead(root, root, "git", root):
        return None
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        ran = subprocess.run(  # noqa: S603 - our own words
            ["git", "--no-optional-locks", "-c", "core.fsmonitor=false", *words],  # noqa: S607 - of the clean path below
            cwd=root,
            # No protocol: where objects are missing, git would ask another machine for them.
            env={**environment, "PATH": clean_path(), "GIT_ALLOW_PROTOCOL": "none"},
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=_GIT_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return ran.stdout.decode("utf-8", "replace")
