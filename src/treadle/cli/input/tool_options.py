"""What the commands take that show tools, and the rules for them. Reads nothing and acts on nothing."""

from treadle.cli.input.flags import Flags, add_config, add_json, add_profile, add_rules, add_tools_flag

__all__ = ["add_permissions", "add_tools"]


def add_tools(parser: Flags) -> None:
    """Add whether tools are checked, and where they are."""
    _add_checking(parser)
    add_tools_flag(parser)
    add_profile(parser)
    add_config(parser)
    add_json(parser)


def add_permissions(parser: Flags) -> None:
    """Add a call that the rules are tried on."""
    parser.add_argument(
        "name", nargs="?", default=None, metavar="TOOL", help="show what would happen to a call of this tool"
    )
    parser.add_argument(
        "task",
        nargs="?",
        default=None,
        metavar="ARGUMENTS",
        help="arguments as one JSON object, or the value of the first parameter",
    )
    add_rules(parser)
    add_tools_flag(parser)
    add_profile(parser)
    add_config(parser)
    add_json(parser)


def _add_checking(parser: Flags) -> None:
    """Add whether the tools are checked, and against what."""
    parser.add_argument(
        "action", nargs="?", default=None, choices=("check",), help="check: check every tool against its contract"
    )
    parser.flag(
        "--examples", dest="recorded", action="append", metavar="FILE",
        help="recorded calls to check against the contracts, as JSON lines of tool, arguments and result; repeatable",
    )  # fmt: skip
    parser.flag(
        "--run", dest="runs_again", action="store_true",
        help="rerun the examples that are marked as deterministic, and compare the results",
    )  # fmt: skip
