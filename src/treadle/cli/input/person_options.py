"""What `treadle approve` and `resolve` take: what a person says of a call. Reads nothing and acts on nothing."""

from treadle.cli.input.flags import Flags, add_id, add_listing

__all__ = ["add_approve", "add_resolve"]


def add_approve(parser: Flags) -> None:
    """Add what an answer to a request for approval is."""
    add_id(parser, "the approval, as `treadle approvals` lists it", "the newest approval")
    parser.flag("--deny", dest="is_denied", action="store_true", help="deny the call")
    parser.flag(
        "--scope", choices=("once", "session", "rule"),
        help="what you allow: this call once (the default); by the rules of the request, this session; or this folder from now on",
    )  # fmt: skip
    parser.flag("--arguments", metavar="JSON", help="edited arguments for the call: one object")
    parser.flag("--reason", metavar="TEXT", help="the reason, which the model reads")
    parser.flag("--by", metavar="NAME", help="who answers, for the record (default: your login)")
    add_listing(parser)


def add_resolve(parser: Flags) -> None:
    """Add what is said of a call in doubt."""
    add_id(parser, "the call or its key, as `treadle doubts` lists it", "the newest call in doubt")
    parser.flag("--done", metavar="JSON", help="the call was done, with this result; null for no result")
    parser.flag("--not-done", dest="is_not_done", action="store_true", help="the call was not done: it may run")
    parser.flag("--unknown", dest="is_unknown", action="store_true", help="it stays unknown: stop listing it")
    parser.flag("--session", metavar="ID", help="the session, if several have a call of that id in doubt")
    parser.flag("--reason", metavar="TEXT", help="how you know, for the record")
    parser.flag("--by", metavar="NAME", help="who decided it, for the record (default: your login)")
    add_listing(parser)
