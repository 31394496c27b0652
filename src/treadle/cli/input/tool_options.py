"""What `treadle tools` takes beside where the tools are. Reads nothing and acts on nothing."""

from treadle.cli.input.flags import Flags

__all__ = ["add_checking"]


def add_checking(parser: Flags) -> None:
    """Add whether the tools are checked, and against what."""
    parser.add_argument(
        "action", nargs="?", default=None, choices=("check",), help="check: check all tools against their contracts"
    )
    parser.flag(
        "--examples", dest="recorded", action="append", metavar="FILE",
        help="recorded calls that the check compares with the contracts: JSON lines of tool, arguments and result; repeatable",
    )  # fmt: skip
    parser.flag(
        "--run", dest="runs_again", action="store_true",
        help="call the examples that are marked as deterministic again, and compare their results",
    )  # fmt: skip
