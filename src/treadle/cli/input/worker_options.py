"""What `treadle worker`, `submit` and `workers` take. Reads nothing and acts on nothing."""

from treadle.cli.input.flags import Flags, add_listing, add_running
from treadle.cli.input.readers import instant, number_reader, port, whole_reader

__all__ = ["add_submit", "add_worker", "add_workers"]

_COUNT = whole_reader(1, 99999, "a number from 1 to 99999")
_PRIORITY = whole_reader(-999_999_999, 999_999_999, "a priority is a whole number such as 5")


def add_worker(parser: Flags) -> None:
    """Add what a worker is and which agents it has."""
    parser.flag(
        "--agents", action="append", metavar="WHAT",
        help="agents to run: FILE.py or module:attr with agents, or functions that make them, by name; repeatable "
        "(default: one agent named `default`, with the model, tools and rules given here)",
    )  # fmt: skip
    parser.flag(
        "--name", metavar="NAME", help="the worker's name, unique in its journal (default: machine and process)"
    )
    parser.flag("--concurrency", type=_COUNT, metavar="N", help="how many sessions to run in parallel (default: 4)")
    parser.flag(
        "--tenant", dest="tenants", action="append", metavar="NAME", help="take only tasks of this tenant; repeatable"
    )
    parser.flag(
        "--accept-change", dest="accepts_change", action="store_true",
        help="continue runs whose agent has changed since they began, with the agent as it is now",
    )  # fmt: skip
    parser.flag(
        "--limit", dest="worker_limits", action="append", metavar="WORDS",
        help='a limit shared by all workers that use its name: "NAME sessions=20 requests=500 tokens=200000 each=tenant", requests and tokens '
        "per minute; tenants=A,B, agents= and models= restrict what it applies to; repeatable",
    )  # fmt: skip
    parser.flag(
        "--drain-seconds", type=number_reader("seconds are a number such as 30"), metavar="N",
        help="seconds that runs may take to finish after SIGTERM or Ctrl-C, before other workers take them over (default: 30)",
    )  # fmt: skip
    parser.flag(
        "--queue", choices=("journal", "pgqueuer"),
        help="what distributes the sessions: the journal itself, or pgqueuer in its PostgreSQL (default: journal)",
    )  # fmt: skip
    parser.flag(
        "--health", dest="health_port", type=port, metavar="PORT",
        help="serve /live, /health and /metrics on this port of 127.0.0.1 (0: any free port)",
    )  # fmt: skip
    parser.flag(
        "--log-format", choices=("text", "json"),
        help="format of the log on standard error: text, or one JSON object per line (default: text)",
    )  # fmt: skip
    add_running(parser)


def add_submit(parser: Flags) -> None:
    """Add what a task is and when it begins."""
    parser.add_argument("task", nargs="?", help="the task; - reads it from standard input")
    parser.flag("--agent", metavar="NAME", help="the agent to run it with (default: `default`)")
    parser.flag("--tenant", metavar="NAME", help="the tenant it belongs to; tenants take turns")
    parser.flag(
        "--priority", type=_PRIORITY, metavar="N", help="among one tenant's tasks, higher starts first (default: 0)"
    )
    parser.flag(
        "--at", dest="begins_at", type=instant, metavar="TIME", help="earliest time to start, such as 2026-11-30T18:00"
    )
    parser.flag("--key", metavar="KEY", help="idempotency key: submitting the same key twice creates one session")
    parser.flag("--by", metavar="NAME", help="name to record for the submission (default: your login)")
    parser.flag("--wait", dest="is_waiting", action="store_true", help="wait until it ends, and print the answer")
    add_listing(parser)


def add_workers(parser: Flags) -> None:
    """Add what chooses the workers of a list."""
    parser.flag("--all", dest="shows_deleted", action="store_true", help="include workers whose process has ended")
    add_listing(parser)
