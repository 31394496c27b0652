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
        help="FILE.py or module:attr with agents, or functions that make them, by name; repeatable "
        "(else one agent `default`, of the model, tools and rules given here)",
    )  # fmt: skip
    parser.flag("--name", metavar="NAME", help="of the worker, unique on its journal (machine and process)")
    parser.flag("--concurrency", type=_COUNT, metavar="N", help="how many sessions it runs side by side (4)")
    parser.flag(
        "--tenant", dest="tenants", action="append", metavar="NAME", help="begin tasks of this tenant only; repeatable"
    )
    parser.flag(
        "--limit", dest="worker_limits", action="append", metavar="WORDS",
        help='over all workers that name it alike: "NAME sessions=20 requests=500 tokens=200000 each=tenant", requests and tokens '
        "a minute; tenants=A,B, agents= and models= say for which it holds; repeatable",
    )  # fmt: skip
    parser.flag(
        "--drain-seconds", type=number_reader("seconds are a number such as 30"), metavar="N",
        help="how long its runs may end by themselves after SIGTERM or Ctrl-C, until others take them over (30)",
    )  # fmt: skip
    parser.flag(
        "--queue", choices=("journal", "pgqueuer"),
        help="what spreads the sessions: the journal itself, or pgqueuer on its PostgreSQL (journal)",
    )  # fmt: skip
    parser.flag(
        "--health", dest="health_port", type=port, metavar="PORT",
        help="answer /live, /health and /metrics on this port of 127.0.0.1 (0: any free one)",
    )  # fmt: skip
    parser.flag(
        "--log-format", choices=("text", "json"),
        help="how it logs to standard error: lines for a person, or a JSON object a line (text)",
    )  # fmt: skip
    add_running(parser)


def add_submit(parser: Flags) -> None:
    """Add what a task is and when it begins."""
    parser.add_argument("task", nargs="?", help="what to do; - reads it from standard input")
    parser.flag("--agent", metavar="NAME", help="which agent of the workers carries it out (default)")
    parser.flag("--tenant", metavar="NAME", help="whose task it is: tenants take turns")
    parser.flag("--priority", type=_PRIORITY, metavar="N", help="higher begins first among a tenant's tasks (0)")
    parser.flag("--at", dest="begins_at", type=instant, metavar="TIME", help="when it begins, as 2026-11-30T18:00")
    parser.flag("--key", metavar="KEY", help="submitting the same key twice makes one session")
    parser.flag("--by", metavar="NAME", help="who submits it, for the record (your login)")
    parser.flag("--wait", dest="is_waiting", action="store_true", help="wait for its end, and print the answer")
    add_listing(parser)


def add_workers(parser: Flags) -> None:
    """Add what chooses the workers of a list."""
    parser.flag("--all", dest="shows_deleted", action="store_true", help="also those whose process has ended")
    add_listing(parser)
