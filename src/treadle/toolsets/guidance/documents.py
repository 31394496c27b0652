"""Documents: one text below a folder, of bounded size, whoever wrote it. Knows neither instructions nor skills."""

import hashlib
import os
import unicodedata

import msgspec

from treadle.errors import Rejected
from treadle.toolsets.files.root import Root

__all__ = ["Document", "read_document", "reason_of"]


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """A text that was read."""

    path: str
    """Relative to the folder, links resolved."""
    text: str
    digest: str
    """Of the bytes that were read."""
    is_cut: bool
    """Whether the file has more."""


def read_document(root: Root, path: str, *, most_bytes: int) -> Document:
    """Read the beginning of a text file below a folder. A link that leaves the folder, a pipe or a folder is refused.

    Raises:
        Rejected: There is no such file, or it is not a text; the body says why.
    """
    with root.open(path) as opened:
        if opened.is_folder:
            raise Rejected({"error": f"{path} is a folder, not a file."}, code="not_a_file")
        with os.fdopen(os.dup(opened.descriptor), "rb") as file:
            content = file.read(most_bytes + 1)
        name = "/".join(opened.names)
    if b"\0" in content:
        raise Rejected({"error": f"{path} is not a text file."}, code="binary")
    kept = content[:most_bytes]
    return Document(
        path=name,
        text=_plain(kept),
        digest=f"sha256:{hashlib.sha256(kept).hexdigest()}",
        is_cut=len(content) > most_bytes,
    )


def reason_of(error: Rejected | OSError) -> str:
    """Return in one sentence why a file was not read."""
    if isinstance(error, OSError):
        return f"{error.strerror or type(error).__name__}."
    text = error.body.get("error", error.body) if isinstance(error.body, dict) else error.body
    return f"{str(text).rstrip('.')}."


def _plain(content: bytes) -> str:
    """Return text as people see it: what nobody sees may hide orders from a reader, and is left out; line ends are the same everywhere."""
    text = content.decode("utf-8-sig", "replace").replace("\r\n", "\n").replace("\r", "\n").rstrip("\ufffd")
    return text if text.isascii() and text.isprintable() else "".join(filter(_is_seen, text))


def _is_seen(char: str) -> bool:
    if char in _KEPT or char.isprintable():
        return not "\U000e0100" <= char <= "\U000e01ef"  # selectors of variants: they can spell a text of their own
    return unicodedata.category(char) in ("Zs", "Zl", "Zp")


_KEPT = "\n\t\u200d"
"""The last joins the parts of one picture."""
