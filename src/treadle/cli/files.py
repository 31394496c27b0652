"""Files that a person names, or that the program keeps: read up to a limit, and written whole or not at all. Knows no content."""

import os
import secrets
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from treadle.cli.exits import UsageError

__all__ = ["content_of", "reason_of", "write_new", "write_whole"]


def content_of(
    path: Path | str,
    most: int,
    *,
    cannot: str,
    large: str,
    waits: bool = False,
    is_plain: bool = False,
    flags: int = 0,
) -> bytes:
    """Return what a file holds.

    Args:
        most: Bytes.
        cannot: What is said of one that cannot be read, with `{}` for the reason.
        large: What is said of one that holds more.
        waits: Whether a pipe is waited for, as of a command in the shell.
        is_plain: Whether only a regular file is read.
        flags: More of those of `os.open`.

    Raises:
        UsageError: It cannot be read, or holds more.
    """
    try:
        flags |= 0 if waits else os.O_NONBLOCK
        descriptor = os.open(path, os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC | flags)
        with open(descriptor, "rb") as file:  # noqa: PTH123 - a descriptor
            if is_plain and not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise UsageError(cannot.replace("{}", "it is not a regular file"))
            content = file.read(most + 1) or b""
    except (OSError, ValueError) as exc:
        raise UsageError(cannot.replace("{}", reason_of(exc))) from exc
    if len(content) > most:
        raise UsageError(large)
    return content


def reason_of(fault: OSError | ValueError) -> str:
    """Return why a file could not be read or written, for the end of a sentence."""
    return (fault.strerror if isinstance(fault, OSError) else None) or str(fault)


def write_whole(path: Path, content: bytes, *, cannot: str, mode: int = 0o600, keeps_mode: bool = False) -> None:
    """Write a file whole or not at all; its folder is made where there is none. A link to the file stays one.

    Args:
        cannot: What is said where it cannot be written, with `{}` for the reason.
        mode: Of the new file, without what the umask takes.
        keeps_mode: Whether an existing file keeps its own.

    Raises:
        UsageError: It cannot be written.
    """
    place = Path(os.path.realpath(path))
    new = place.with_name(f".{place.name}.{secrets.token_hex(6)}.new")
    try:
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode), "wb") as file:  # noqa: PTH123 - a descriptor
            if keeps_mode and place.exists():
                os.fchmod(file.fileno(), stat.S_IMODE(place.stat().st_mode))
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        new.replace(place)
    except OSError as exc:
        new.unlink(missing_ok=True)
        raise UsageError(cannot.replace("{}", reason_of(exc))) from exc


def write_new(path: Path | str, lines: Iterable[bytes]) -> None:
    """Write a file that does not exist yet, for its owner alone; a failure leaves none.

    Raises:
        UsageError: It exists, or cannot be written.
    """
    name = f"{str(path)!r:.200}"
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except (OSError, ValueError) as exc:
        raise UsageError(f"{name} cannot be created: {reason_of(exc)}. Name a file that does not exist yet.") from exc
    try:
        with open(descriptor, "wb") as file:  # noqa: PTH123 - a descriptor
            file.writelines(line + b"\n" for line in lines)
    except OSError as exc:
        with suppress(OSError):
            Path(path).unlink()
        raise UsageError(f"{name} cannot be written: {reason_of(exc)}.") from exc
