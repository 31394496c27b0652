"""What a confined program may reach and use up: folders, network, time, memory, processes, disk. Values only."""

import os
import sys
from collections.abc import Iterable
from pathlib import Path

import msgspec

from treadle.errors import ConfigurationError, shown
from treadle.fields import Documented, NamedOptions
from treadle.sandboxes.closing import Repositories, named
from treadle.sandboxes.configured import configured_names
from treadle.sandboxes.own import obeyed_files, own_places
from treadle.tools.protected import SEALED, UNDER_WAY

__all__ = ["SYSTEM_FOLDERS", "Confinement", "outermost", "protected_names", "protected_places"]

SYSTEM_FOLDERS = (
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix/store",
    "/etc/alternatives", "/etc/bash.bashrc", "/etc/ca-certificates", "/etc/gitconfig", "/etc/group", "/etc/hosts", "/etc/ld.so.cache", "/etc/ld.so.conf",
    "/etc/ld.so.conf.d", "/etc/localtime", "/etc/magic", "/etc/mime.types", "/etc/nsswitch.conf", "/etc/passwd", "/etc/pki",
    "/etc/protocols", "/etc/services", "/etc/ssl/certs", "/etc/ssl/openssl.cnf", "/etc/terminfo", "/etc/timezone",
)  # fmt: skip
"""What programs need of a system to run. No secrets: `/etc/shadow`, host keys and the homes of people are not among them."""


class Confinement(msgspec.Struct, Documented, frozen=True, kw_only=True, metaclass=NamedOptions):
    """What a confined program may reach and use up. Everything else is closed to it.

    Example:
        Confinement(writable=("build",), memory_bytes=2_000_000_000)
    """

    writable: tuple[str, ...] = ()
    """Folders that it may read and change. Their protected files (hooks, settings of this and other programs) stay read-only."""
    readable: tuple[str, ...] = ()
    """Folders and files that it may read, beside those of the system and this Python."""
    protected: tuple[str, ...] = SEALED
    """Names below each writable folder that stay read-only where they exist. A `*` in the last part of one stands for anything."""
    network: bool = False
    """Whether it may use the network: all of it, the machine's own services too."""
    cpu_seconds: float | None = 300.0
    """Processor time of each of its processes; None for no limit."""
    memory_bytes: int | None = 2 << 30
    """Memory of each of its processes, and of all together where the system can count that; None for no limit."""
    max_processes: int | None = 128
    """Processes and threads at one moment; None for no limit."""
    max_file_bytes: int | None = 1 << 30
    """Size of each file that it writes; None for no limit."""
    disk_bytes: int | None = 8 << 30
    """Bytes that all its files together may take in the writable folders; None for no limit. Looked at ten times a second while it runs."""
    temporary_bytes: int = 256 << 20
    """Room in its own `/tmp`, and in its own `/dev/shm`; both end with it. Landlock has no folder of its own to offer: the limit holds for bubblewrap alone."""
    max_output_bytes: int = 1_000_000
    """Bytes of each of its outputs that are kept: the beginning and the end."""

    def __post_init__(self) -> None:
        for name in ("writable", "readable", "protected"):
            value = getattr(self, name)
            if not isinstance(value, list | tuple) or not all(
                isinstance(one, str) and one and "\0" not in one for one in value
            ):
                raise ConfigurationError(f"Confinement: {name} must be a list of paths; got {shown(value)}.")
        for name in (
            "cpu_seconds",
            "memory_bytes",
            "max_processes",
            "max_file_bytes",
            "disk_bytes",
            "temporary_bytes",
            "max_output_bytes",
        ):
            value = getattr(self, name)
            is_optional = name not in ("temporary_bytes", "max_output_bytes")
            if (value is None and is_optional) or (
                isinstance(value, int | float) and not isinstance(value, bool) and value > 0
            ):
                continue
            raise ConfigurationError(f"Confinement: {name} must be a positive number; got {shown(value)}.")

    def writable_folders(self) -> tuple[str, ...]:
        """Return the writable folders from `/`, links resolved.

        Raises:
            ConfigurationError: One does not exist.
        """
        return tuple(_existing(self.writable, "writable"))

    def roots(self) -> dict[str, str]:
        """Return where each named folder and file leads, links resolved."""
        return {one: os.path.realpath(one) for one in (*self.writable, *self.readable)}

    def readable_places(self) -> tuple[str, ...]:
        """Return all that may be read, from `/`, links resolved: the system's, this Python's and what was named.

        Raises:
            ConfigurationError: A named one does not exist.
        """
        python = (sys.prefix, sys.base_prefix, str(Path(os.path.realpath(sys.executable)).parent))
        own = [one for one in (*SYSTEM_FOLDERS, *python) if os.path.lexists(one)]
        found = dict.fromkeys([*own, *_existing(self.readable, "readable")])
        return tuple(one for one in found if not any(_lies_below(one, other) for other in found))

    def own_places(self) -> tuple[str, ...]:
        """Return what Treadle itself runs and obeys, as far as it lies in a writable folder: it stays read-only too."""
        folders = self.writable_folders() if self.protected else ()
        return tuple(one for one in own_places() if any(one.startswith(f"{folder.rstrip('/')}/") for folder in folders))


def protected_names(about: Confinement, found: Repositories) -> tuple[str, ...]:
    """Return the names below each writable folder that stay as they are: the protected ones, what git's configuration names, and what Treadle obeys.

    Args:
        about: What the commands may reach.
        found: The repositories of the writable folders.
    """
    folders = about.writable_folders() if about.protected else ()
    trees = [*found.trees]
    more = [name for one in folders for name in (*configured_names(one, trees), *_obeyed_names(about, one))]
    return (*dict.fromkeys([*about.protected, *more]),)


def protected_places(about: Confinement, names: tuple[str, ...], found: Repositories) -> tuple[str, ...]:
    """Return what stays read-only in the writable folders, as far as it exists.

    Where `.git` is a file, it says which folder is the repository, and with it whose hooks run: it stays as it is.

    Args:
        about: What the commands may reach.
        names: Those of `protected_names`.
        found: The repositories of the writable folders.
    """
    folders = about.writable_folders()
    places = [path for folder in folders for name in names for path in named(folder, name)]
    ways = dict.fromkeys(str(way) for name in names if "/" in name for way in Path(name).parents if str(way) != ".")
    places += [place for folder in folders for way in ways if Path(place := f"{folder}/{way}").is_file()]
    if own := [name[5:] for name in names if name.startswith(".git/")]:
        places += [f"{one}/{name}" for one in found.own for name in (*own, *UNDER_WAY)]
        places += [place for tree in found.trees if Path(place := f"{tree}/.git").is_file()]
    # A link that leads out of the writable folders needs none, since nothing can be written there.
    real = dict.fromkeys(os.path.realpath(one) for one in places if os.path.exists(one))  # noqa: PTH110 - of a hundred names
    return tuple(one for one in real if any(one.startswith(f"{folder.rstrip('/')}/") for folder in folders))


def _obeyed_names(about: Confinement, folder: str) -> list[str]:
    """Return the names below a folder that Treadle obeys, where no folder of its own keeps them already."""
    own = about.own_places()
    files = (one for one in obeyed_files() if one.startswith(f"{folder.rstrip('/')}/"))
    return [os.path.relpath(one, folder) for one in files if not any(_lies_below(one, other) for other in own)]


def _lies_below(path: str, folder: str) -> bool:
    """Whether a folder holds a path, so that the path need not be shown beside it. A link stands for itself."""
    return path.startswith(f"{folder.rstrip('/')}/") and not os.path.islink(folder)  # noqa: PTH114 - one of many names


def outermost(paths: tuple[str, ...], *, within: tuple[str, ...] = ()) -> list[str]:
    """Return the paths that lie below none of the others, nor below some folders: a program that may write in a folder could put a link in place of one."""
    return [one for one in paths if not any(_lies_below(one, other) for other in (*paths, *within))]


def _existing(paths: Iterable[str], name: str) -> list[str]:
    found = []
    for path in paths:
        real = os.path.realpath(path)
        if not Path(real).exists():
            raise ConfigurationError(f"Confinement: the {name} path {shown(path)} does not exist.")
        found.append(real)
    return found
