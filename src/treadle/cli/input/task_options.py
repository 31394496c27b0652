"""What the commands that begin or resume a run take beside what all runs take. Reads nothing and acts on nothing."""

from treadle.cli.input.flags import Flags, add_running

__all__ = ["add_chat", "add_goal", "add_resume", "add_run"]


def add_run(parser: Flags) -> None:
    """Add a task."""
    parser.add_argument(
        "task", nargs="?", help="the task; - reads it from standard input; piped input is appended to it"
    )
    parser.flag("--session", dest="id", metavar="ID", help="continue this session, or create it if it does not exist")
    _add_task_flags(parser)
    parser.flag(
        "--single-turn", dest="is_single_turn", action="store_true",
        help="allow tool calls in one response only: the next response must be the answer",
    )  # fmt: skip
    add_running(parser)


def add_goal(parser: Flags) -> None:
    """Add a goal."""
    parser.add_argument("task", nargs="?", metavar="FILE", help="the goal, as TOML")
    parser.flag("--session", dest="id", metavar="ID", help="the session to work in (default: derived from the goal)")
    add_running(parser)


def add_chat(parser: Flags) -> None:
    """Add a conversation."""
    parser.add_argument("task", nargs="?", help="the first message")
    parser.flag("--session", dest="id", metavar="ID", help="continue this session, or create it if it does not exist")
    _add_task_flags(parser)
    _add_acceptance(parser)
    add_running(parser)


def add_resume(parser: Flags) -> None:
    """Add which run is resumed."""
    parser.add_argument("id", nargs="?", metavar="ID", help="the session")
    parser.flag("--last", dest="is_last", action="store_true", help="the most recently changed session")
    _add_acceptance(parser)
    add_running(parser)


def _add_acceptance(parser: Flags) -> None:
    change = "continue a run that a program's own agent started, without that agent"
    parser.flag("--accept-change", dest="accepts_change", action="store_true", help=change)


def _add_task_flags(parser: Flags) -> None:
    """Add what belongs to one task."""
    parser.flag(
        "-a", "--attach", dest="attached", action="append", metavar="FILE",
        help="attach a file to the task: text, image, PDF or audio; repeatable",
    )  # fmt: skip
    parser.flag(
        "-c",
        "--continue",
        "--last",
        dest="is_last",
        action="store_true",
        help="continue the most recently changed session of this folder",
    )
