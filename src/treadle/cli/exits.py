"""Exits: the exit code and the one sentence that each failure gets. Catches nothing."""

from importlib.util import find_spec

from treadle import ConfigurationError, SessionHeld, TreadleError
from treadle.errors import SessionConflict, SessionError
from treadle.stops import EXIT_NOT_STORED, EXIT_SESSION_HELD, EXIT_USAGE, exit_code

__all__ = ["EXIT_NOT_STORED", "EXIT_USAGE", "UsageError", "check_installed", "code_of", "exit_code"]


class UsageError(ConfigurationError):
    """The command line, or what it names, is wrong."""


def check_installed(extra: str, *packages: str) -> None:
    """Refuse to do what needs the packages of an extra.

    Raises:
        UsageError: One of them is not installed.
    """
    if missing := [name for name in packages if find_spec(name) is None]:
        how = f"pip install '.[{extra}]' in the project's folder"
        raise UsageError(f"This needs the package {missing[0]}. Install it: {how}")


def code_of(error: TreadleError) -> int:
    """Return the documented exit code of an error that ended the program."""
    match error:
        case SessionHeld() | SessionConflict():
            return EXIT_SESSION_HELD
        case ConfigurationError() | SessionError():
            return EXIT_USAGE
        case _:
            return 1
