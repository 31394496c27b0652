"""What `treadle approve`, `answer` and `resolve` take: what a person says of a call. Reads nothing and acts on nothing."""

from treadle.cli.input.flags import Flags, add_id, add_listing

__all__ = ["add_answer", "add_approve", "add_resolve"]


def add_approve(parser: Flags) -> None:
    """Add what an answer to a request for approval is."""
    add_id(parser, "the approval, as `treadle approvals` lists it", "the newest approval")
    parser.flag("--deny", dest="is_denied", action="store_true", help="deny the call")
    parser.flag(
        "--scope", choices=("once", "session", "rule"),
        help="what to allow: only this call (once, the default), or calls that match the suggested rules, in this session or in this folder (rule)",
    )  # fmt: skip
    parser.flag("--arguments", metavar="JSON", help="run the call with these arguments instead: one JSON object")
    parser.flag("--reason", metavar="TEXT", help="the reason; the model reads it")
    parser.flag("--by", metavar="NAME", help="name to record for the answer (default: your login)")
    add_listing(parser)


def add_answer(parser: Flags) -> None:
    """Add the answer to a question."""
    parser.add_argument("id", nargs="?", metavar="ID", help="the session, or a prefix of its id")
    parser.add_argument("task", nargs="?", metavar="ANSWER", help="the answer: text, or a JSON object for a form")
    parser.flag("--by", metavar="NAME", help="name to record for the answer (default: your login)")
    add_listing(parser)


def add_resolve(parser: Flags) -> None:
    """Add what is said of a call in doubt."""
    add_id(parser, "the call or its key, as `treadle doubts` lists it", "the newest call in doubt")
    parser.flag("--done", metavar="JSON", help="the call succeeded with this result, as JSON; null for none")
    parser.flag("--not-done", dest="is_not_done", action="store_true", help="the call did not happen; it may run again")
    parser.flag(
        "--unknown", dest="is_unknown", action="store_true", help="the outcome stays unknown; stop listing the call"
    )
    parser.flag("--session", metavar="ID", help="the session, if the id is in doubt in more than one")
    parser.flag("--reason", metavar="TEXT", help="how you know; recorded with the outcome")
    parser.flag("--by", metavar="NAME", help="name to record for the decision (default: your login)")
    add_listing(parser)
