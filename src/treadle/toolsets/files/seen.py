"""What a session has seen of its files: the digest of each file as it was read or written last, kept as a fact of the session."""

import hashlib
import os
from collections.abc import Sequence

from treadle.tools import ToolContext
from treadle.toolsets.files.root import Opened, Root, spelled

__all__ = ["digest", "digest_of", "fact_name", "seen_digest"]

FACT = "files"
"""The fact that holds `{path: digest}`."""
_MAX_BYTES = 50_000_000
_PIECE_BYTES = 1 << 20


def digest(content: bytes) -> str:
    """Return the digest of a file's content."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def digest_of(opened: Opened) -> str | None:
    """Return the digest of an opened file, wherever its descriptor stands; None for a file of over 50 MB, which cannot be edited."""
    if opened.size > _MAX_BYTES:
        return None
    found = hashlib.sha256()
    at = 0
    while piece := os.pread(opened.descriptor, _PIECE_BYTES, at):
        found.update(piece)
        at += len(piece)
        if at > _MAX_BYTES:
            return None
    return f"sha256:{found.hexdigest()}"


def fact_name(root: Root, names: Sequence[str]) -> str:
    """Return the name by which the session knows a file: its path from `/`, links resolved."""
    return spelled(f"{root.path.rstrip('/')}/{'/'.join(names)}")


def seen_digest(ctx: ToolContext, root: Root, names: Sequence[str]) -> str | None:
    """Return the digest of a file as this session saw it last; None if it has not."""
    seen = ctx.facts.get(FACT, {})
    found = seen.get(fact_name(root, names)) if isinstance(seen, dict) else None
    return found if isinstance(found, str) else None
