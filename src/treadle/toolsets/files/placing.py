"""Put a file in its place below the root: whole or not at all, whatever happens in between. Knows no tool and no text.

A new file is written without a name, synced, given a name of its own, and renamed over the old one. Folders are walked as the
root guard walks them, each opened relative to the one before, so that the file that is replaced is the file that was checked.
"""

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import msgspec

from treadle.errors import Rejected
from treadle.toolsets.files.root import Opened, Root, check_place, from_os_error, listed_as, refusal, shown, split

__all__ = ["Place", "place", "replace"]

_MAX_DETOURS = 40
_PIECE_BYTES = 1 << 20
_SHOWN_OF_NAME = 50
"""Characters of a file's name that the name of its successor has: of four bytes each, with all else still below 255."""
_ACCESS_LIST = "system.posix_acl_access"
_CAPABILITIES = "security.capability"
_ELSE_THERE = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENXIO, errno.ESTALE)
"""What the system says where a name has become something else between two looks at it."""


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where a file is, or will be: a folder that is open, and a name in it."""

    folder: int
    """The descriptor of the folder, open as long as the `with` block."""
    name: str
    names: tuple[str, ...]
    """Where it really is below the root, links resolved."""
    status: os.stat_result | None
    """What is there; None for a new file."""

    def read(self, *, max_bytes: int) -> bytes | None:
        """Return what is there now; None for a new file.

        Raises:
            Rejected: It is larger than the limit, cannot be read, or has become something else.
        """
        if self.status is None:
            return None
        if self.status.st_size > max_bytes:
            raise refusal(
                f"{shown('/'.join(self.names))} has {self.status.st_size:,} bytes; at most {max_bytes:,} can be edited.",
                "too_large",
            )
        try:
            opened = os.open(self.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, dir_fd=self.folder)
        except OSError as error:
            raise _refused(self, error) from error
        if not stat.S_ISREG(os.fstat(opened).st_mode):
            os.close(opened)
            raise _stale(self)
        with os.fdopen(opened, "rb") as file:
            return file.read(max_bytes + 1)


@contextmanager
def place(root: Root, path: str, *, makes_folders: bool = False, names: Sequence[str] | None = None) -> Iterator[Place]:
    """Open the folder that a file is in, or will be in.

    Args:
        makes_folders: Whether folders that do not exist are made.
        names: Where the file must really be, below the root; None for anywhere below it.

    Raises:
        Rejected: The path leads outside, or elsewhere, is a folder or a device, or its folder does not exist.
    """
    way = root.names(path)
    for _ in range(_MAX_DETOURS):
        if not way or way[-1] == "..":
            raise refusal(f"{shown(path)} is a folder.", "is_a_folder")
        if makes_folders:
            _make_folders(root, way if names is None else tuple(names), is_exact=names is not None)
        with root.open(way[:-1]) as opened:
            found = _look(root, path, opened, way[-1])
            if isinstance(found, Place):
                check_place(path, found.names, names)
                yield found
                return
            way = found
    raise refusal(f"Too many links on the way to {shown(path)}", "invalid_path")


def _look(root: Root, path: str, folder: Opened, name: str) -> Place | tuple[str, ...]:
    """Return the place in an open folder; for a link, the names of what it leads to."""
    if not folder.is_folder:
        raise refusal(f"{shown('/'.join(folder.names))} is a file, not a folder.", "not_a_folder")
    try:
        status = _status(name, folder.descriptor)
        if status is None and (listed := listed_as(name, folder.descriptor)) is not None:
            name, status = listed, _status(listed, folder.descriptor)
        if status is None or not stat.S_ISLNK(status.st_mode):
            _check_kind(path, status)
            return Place(folder=folder.descriptor, name=name, names=(*folder.names, name), status=status)
        target = os.readlink(name, dir_fd=folder.descriptor)
    except OSError as error:
        raise from_os_error(path, error) from error
    return root.names(target) if target.startswith("/") else (*folder.names, *split(target))


def replace(at: Place, content: bytes) -> None:
    """Put a content in a place: afterwards the file is the new one, or, where this raises or the process dies, the old one.

    Mode, owner and extended attributes of the old file are kept, but nothing that lets a program do more than who starts it: another content
    does not inherit that. A new file gets the mode that the process's umask leaves.

    Raises:
        Rejected: The folder is read-only, the disk is full, or the file belongs to somebody else and would change its owner.
    """
    temporary = f".{at.name[:_SHOWN_OF_NAME]}.{secrets.token_hex(6)}.treadle-new"
    has_name = False
    try:
        descriptor, has_name = _nameless(at.folder, temporary)
        try:
            _write(descriptor, content)
            _keep(descriptor, at)
            os.fsync(descriptor)
            if not has_name:
                os.link(f"/proc/self/fd/{descriptor}", temporary, dst_dir_fd=at.folder, follow_symlinks=True)
                has_name = True
        finally:
            os.close(descriptor)
        _check_unchanged(at)
        os.rename(temporary, at.name, src_dir_fd=at.folder, dst_dir_fd=at.folder)
        has_name = False
        os.fsync(at.folder)
    except OSError as error:
        raise _refused(at, error) from error
    finally:
        if has_name:
            with contextlib.suppress(OSError):
                os.unlink(temporary, dir_fd=at.folder)


def _nameless(folder: int, name: str) -> tuple[int, bool]:
    """Open a new file, without a name where the system can: a process that dies leaves nothing behind then. True if it has the name."""
    kind = getattr(os, "O_TMPFILE", None)
    if kind is not None and os.path.isdir("/proc/self/fd"):  # noqa: PTH112 - asked once, no path of the person's
        try:
            return os.open(".", kind | os.O_WRONLY | os.O_CLOEXEC, 0o666, dir_fd=folder), False
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL):
                raise
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.open(name, flags, 0o666, dir_fd=folder), True


def _write(descriptor: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view[:_PIECE_BYTES]) :]


def _keep(descriptor: int, at: Place) -> None:
    """Give the new file the owner, the attributes and the mode of the old one, in this order: a change of owner clears mode bits."""
    if at.status is None:
        return
    # Opened for writing: a file that is read-only for this person is not replaced by way of its folder.
    old = os.open(at.name, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, dir_fd=at.folder)
    try:
        own = os.fstat(descriptor)
        if (own.st_uid, own.st_gid) != (at.status.st_uid, at.status.st_gid):
            os.fchown(descriptor, at.status.st_uid, at.status.st_gid)
        kept = _attributes(old)
        if _ACCESS_LIST not in kept and _ACCESS_LIST in _attributes(descriptor):
            os.removexattr(descriptor, _ACCESS_LIST)  # the folder's default for new files, which this is not
        for name in (name for name in kept if name != _CAPABILITIES):
            with contextlib.suppress(OSError):  # such as one of the system's own
                os.setxattr(descriptor, name, os.getxattr(old, name))
    finally:
        os.close(old)
    os.fchmod(descriptor, stat.S_IMODE(at.status.st_mode) & ~(stat.S_ISUID | stat.S_ISGID))


def _attributes(descriptor: int) -> list[str]:
    return os.listxattr(descriptor) if hasattr(os, "listxattr") else []


def _check_unchanged(at: Place) -> None:
    now = _status(at.name, at.folder)
    if _identity(now) != _identity(at.status):
        raise _stale(at)


def _stale(at: Place) -> Rejected:
    return refusal(f"{shown('/'.join(at.names))} was changed by somebody else just now. Read it again.", "stale")


def _identity(status: os.stat_result | None) -> tuple[int, ...] | None:
    return None if status is None else (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


def _status(name: str, folder: int) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _check_kind(path: str, status: os.stat_result | None) -> None:
    if status is None or stat.S_ISREG(status.st_mode):
        return
    if stat.S_ISDIR(status.st_mode):
        raise refusal(f"{shown(path)} is a folder.", "is_a_folder")
    raise refusal(f"Neither a file nor a folder: {shown(path)}", "not_a_file")


def _make_folders(root: Root, way: tuple[str, ...], *, is_exact: bool) -> None:
    """Make the folders of a file that do not exist, one in the other. A `..` behind a missing folder is refused, as it leads nowhere.

    Args:
        is_exact: Whether the names are those of the place itself, so that none of them is a link.
    """
    names = way[:-1]
    for count in range(len(names), -1, -1):
        try:
            with root.open(names[:count], place=names[:count] if is_exact else None) as opened:
                missing = names[count:]
                if missing and (".." in missing or not opened.is_folder):
                    raise refusal(f"Folder not found: {shown('/'.join(names))}", "not_found")
                _make(opened.descriptor, missing)
                return
        except Rejected as error:
            if error.code != "not_found" or count == 0 or (".." in names[count:]):
                raise


def _make(folder: int, names: tuple[str, ...]) -> None:
    here = os.dup(folder)
    try:
        for name in names:
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, dir_fd=here)
            inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=here)
            os.close(here)
            here = inner
    except OSError as error:
        raise refusal(
            f"The folder {shown(error.filename or '')} cannot be created: {error.strerror}.", "cannot_write"
        ) from error
    finally:
        os.close(here)


def _refused(at: Place, error: OSError) -> Rejected:
    path = shown("/".join(at.names))
    match error.errno:
        case errno.EPERM if at.status is not None and at.status.st_uid != os.geteuid():
            return refusal(
                f"{path} belongs to another user, and writing it would change its owner.", "permission_denied"
            )
        case number if number in _ELSE_THERE:
            return _stale(at)
        case errno.EACCES | errno.EPERM | errno.EROFS:
            return refusal(f"Permission denied: {path}", "permission_denied")
        case errno.ENOSPC | errno.EDQUOT | errno.EFBIG:
            return refusal(f"There is no space left to write {path}. The file is unchanged.", "no_space")
        case errno.ENAMETOOLONG:
            return refusal(f"Not a path: {path}", "invalid_path")
        case _:
            return refusal(f"{path} could not be written: {error.strerror}. The file is unchanged.", "cannot_write")
