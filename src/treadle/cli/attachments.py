"""Mentions: what `@file` in a message attaches, and what `-a FILE` attaches to a task."""

import base64
import mimetypes
import os
import re
import stat
from collections.abc import Sequence
from pathlib import Path

import msgspec

from treadle import Message
from treadle.cli.exits import UsageError
from treadle.cli.output.text import one_line, shown_json

__all__ = ["mentioned", "message_of", "named_in", "not_attached"]

_MENTION = re.compile(r"(?<!\S)@((?:[^\s@\"]|\\ )+|\"[^\"]+\")")
_MAX_TEXT_BYTES = 200_000
_MAX_MEDIA_BYTES = 20_000_000


def mentioned(text: str, root: Path) -> list[Path]:
    """Return the files that a message names as `@path`, each once. What does not name a file stays a word of the message."""
    found: dict[Path, None] = {}
    for one in _MENTION.finditer(text):
        name = one[1].strip('"').rstrip(".,;:!?)")
        for spelling in (one[1].strip('"'), name):
            path = root / spelling
            try:
                if path.is_file():
                    found[path] = None
                    break
            except (OSError, ValueError):
                continue
    return list(found)


def not_attached(text: str, root: Path) -> list[str]:
    """Return a sentence for each `@path` of a message that names no file, where it is a folder or looks like a path."""
    found: dict[str, None] = {}
    for one in _MENTION.finditer(text):
        name = one[1].strip('"').rstrip(".,;:!?)")
        if mentioned(one[0], root):
            continue
        if _is_folder(root / name):
            found[
                f"@{one_line(name, 200)} is a folder and is sent as text: name a file in it, or let the model read it."
            ] = None
        elif "/" in name or "." in name:
            found[f"@{one_line(name, 200)} is not a file here, and is sent as text."] = None
    return list(found)


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False


def named_in(path: Path, root: Path) -> str:
    """Return a file's path from a folder, whole where it is elsewhere."""
    return str(path.relative_to(root)) if path.is_relative_to(root) else str(path)


def message_of(text: str, files: Sequence[Path], root: Path) -> str | Message:
    """Return a message with files attached: texts below it, each under its path, and pictures, sounds and documents as they are.

    Raises:
        UsageError: A file cannot be read or is too large.
    """
    parts: list[dict[str, str]] = []
    whole = text
    for path in files:
        name = named_in(path, root)
        kind = mimetypes.guess_type(path.name)[0] or ""
        is_media = kind.startswith(("image/", "audio/", "video/")) or kind == "application/pdf"
        content = _content(path, _MAX_MEDIA_BYTES if is_media else _MAX_TEXT_BYTES)
        if is_media:
            encoded = base64.b64encode(content).decode()
            parts.append({"kind": "media", "media_type": kind, "base64": encoded, "name": path.name})
        else:
            whole += f"\n\n# File {shown_json(name, 1000)}\n\n{_decoded(content, name)}"
    if not parts:
        return whole
    return msgspec.convert({"role": "user", "parts": [{"kind": "text", "text": whole}, *parts]}, Message)


def _content(path: Path, limit: int) -> bytes:
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:  # noqa: PTH123 - a descriptor
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise UsageError(f"{path} is not a regular file and cannot be attached.")
            content = file.read(limit + 1)
    except (OSError, ValueError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) and exc.strerror else str(exc)
        raise UsageError(f"The file {path} cannot be attached: {reason}.") from exc
    if len(content) > limit:
        raise UsageError(
            f"The file {path} is larger than {limit:,} bytes and cannot be attached: name it in the task, and let the model read it."
        )
    return content


def _decoded(content: bytes, name: str) -> str:
    if b"\0" in content[:8192]:
        raise UsageError(
            f"The file {name} is binary, and neither a picture, a sound, a film nor a PDF: it cannot be attached."
        )
    return content.decode("utf-8", "replace")
