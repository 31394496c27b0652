"""Core names that edges need and that no public module exports yet: the one place to change once one does."""

from treadle.errors import SessionConflict, SessionError
from treadle.state import Approval
from treadle.stops import EXIT_SESSION_HELD, EXIT_USAGE, exit_code
from treadle.tools import CheckedCall
from treadle.toolsets.files import file_tools

__all__ = [
    "EXIT_SESSION_HELD",
    "EXIT_USAGE",
    "Approval",
    "CheckedCall",
    "SessionConflict",
    "SessionError",
    "exit_code",
    "file_tools",
]
