"""What the commands that begin or resume a run take beside what all runs take. Reads nothing and acts on nothing."""

from treadle.cli.input.flags import Flags, add_running

__all__ = ["add_chat", "add_goal", "add_resume", "add_run"]


def add_run(parser: Flags) -> None:
    """Add a task."""
    parser.add_argument(
        "task", nargs="?", help="what to do; - reads it from standard input; piped input is added to it"
    )
    parser.flag("--session", dest="id", metavar="ID", help="continue with this session (made when there is none)")
    _add_task_flags(parser)
    parser.flag(
        "--single-turn", dest="is_single_turn", action="store_true",
        help="the model may call tools in one response only: its next one must be the answer",
    )  # fmt: skip
    add_running(parser)


def add_goal(parser: Flags) -> None:
    """Add a goal."""
    parser.add_argument("task", nargs="?", metavar="FILE", help="the goal, as TOML")
    parser.flag("--session", dest="id", metavar="ID", help="the session of the work (made from the goal)")
    add_running(parser)


def add_chat(parser: Flags) -> None:
    """Add a conversation."""
    parser.add_argument("task", nargs="?", help="the first message")
    parser.flag("--session", dest="id", metavar="ID", help="continue this session (made when there is none)")
    _add_task_flags(parser)
    _add_acceptance(parser)
    add_running(parser)


def add_resume(parser: Flags) -> None:
    """Add which run is resumed."""
    parser.add_argument("id", nargs="?", metavar="ID", help="the session")
    parser.flag("--last", dest="is_last", action="store_true", help="the session that changed last")
    _add_acceptance(parser)
    add_running(parser)


def _add_acceptance(parser: Flags) -> None:
    change = "continue a run that the agent of a program began, without that agent"
    parser.flag("--accept-change", dest="accepts_change", action="store_true", help=change)


def _add_task_flags(parser: Flags) -> None:
    """Add what belongs to one task."""
    parser.flag(
        "-a", "--attach", dest="attached", action="append", metavar="FILE",
        help="a file that is sent with the task: text, a picture, a PDF, a sound; repeatable",
    )  # fmt: skip
    parser.flag(
        "-c", "--continue", "--last", dest="is_last", action="store_true", help="continue the session that changed last"
    )
