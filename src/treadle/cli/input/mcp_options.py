"""What `treadle mcp` takes. Reads nothing and acts on nothing."""

from collections.abc import Sequence

from treadle.cli.input.flags import Flags, add_running
from treadle.cli.input.readers import port

__all__ = ["add_acp", "add_mcp", "add_program", "split_program"]


def split_program(arguments: Sequence[str]) -> tuple[list[str], list[str] | None]:
    """Return our own arguments, and those of the program that follows `--`; None for a command that takes no program."""
    words = list(arguments)
    if words[:1] != ["mcp"]:
        return words, None
    if "--" not in words:
        return words, []
    place = words.index("--")
    return words[:place], words[place + 1 :]


def add_program(given: Sequence[str], unknown: Sequence[str], program: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the program or address, and the arguments that are unknown. An address may stand after the flags."""
    flags = [one for one in unknown if one.startswith("-")]
    return [*given, *([] if flags else unknown), *program], flags


def add_mcp(parser: Flags) -> None:
    """Add what is done with which server."""
    parser.add_argument(
        "action", nargs="?", default=None, choices=("list", "add", "remove", "approve", "revoke", "test", "serve"),
        help="list (the default), change, start one and list its tools, or serve an agent to the MCP client that started this",
    )  # fmt: skip
    parser.add_argument("name", nargs="?", default=None, metavar="NAME", help="of the server")
    parser.add_argument(
        "command_line",
        nargs="*",
        metavar="COMMAND",
        help="with add: -- and the program with its arguments; or an address",
    )
    parser.flag(
        "-e", "--env", dest="variables", action="append", metavar="NAME=VALUE",
        help="with add: a variable of the program; ${NAME} as the value takes it from yours; repeatable",
    )  # fmt: skip
    parser.flag(
        "--header", dest="headers", action="append", metavar="NAME:VALUE",
        help="with add: a header of each request to the address; repeatable",
    )  # fmt: skip
    parser.flag(
        "--scope",
        dest="place",
        choices=("user", "project"),
        help="whose file: yours (user), or the folder's .mcp.json (project)",
    )
    parser.flag(
        "--offer",
        choices=("agent", "tools", "both"),
        help="with serve: an agent that takes tasks (the default), the tools of --tools by themselves, or both",
    )
    parser.flag(
        "--description", metavar="TEXT", help="with serve: what the agent is for, as the client's model reads it"
    )
    parser.flag(
        "--http", dest="http_port", type=port, metavar="PORT",
        help="with serve: over HTTP at this port of this machine (0 for a free one), for clients with the token of TREADLE_MCP_TOKEN",
    )  # fmt: skip
    parser.flag(
        "--no-token", dest="has_no_token", action="store_true",
        help="with serve --http: let in every program of this machine",
    )  # fmt: skip
    parser.flag("--by", metavar="NAME", help="with serve: who answers approvals, for the record (default: your login)")
    add_running(parser)


def add_acp(parser: Flags) -> None:
    """Add how the agent of an editor is set up."""
    parser.flag("--by", metavar="NAME", help="who answers permissions, for the record (default: your login)")
    add_running(parser)
