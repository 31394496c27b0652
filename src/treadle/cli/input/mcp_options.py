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
        help="list servers (the default), change them, test one and list its tools, or serve an agent to an MCP client",
    )  # fmt: skip
    parser.add_argument("name", nargs="?", default=None, metavar="NAME", help="the server's name")
    parser.add_argument(
        "command_line",
        nargs="*",
        metavar="COMMAND",
        help="with add: the server's address, or -- and its command with arguments",
    )
    parser.flag(
        "-e", "--env", dest="variables", action="append", metavar="NAME=VALUE",
        help="with add: an environment variable of the program; ${NAME} copies it from your environment; repeatable",
    )  # fmt: skip
    parser.flag(
        "--header", dest="headers", action="append", metavar="NAME:VALUE",
        help="with add: a header to send with each request; repeatable",
    )  # fmt: skip
    parser.flag(
        "--scope",
        dest="place",
        choices=("user", "project"),
        help="which file: your own (user), or the folder's .mcp.json (project)",
    )
    parser.flag(
        "--offer",
        choices=("agent", "tools", "both"),
        help="with serve: offer an agent that takes tasks (the default), the tools of --tools themselves, or both",
    )
    parser.flag("--description", metavar="TEXT", help="with serve: what the agent is for; the client's model reads it")
    parser.flag(
        "--http", dest="http_port", type=port, metavar="PORT",
        help="with serve: serve over HTTP on this port of this machine (0: any free port); clients need the token of TREADLE_MCP_TOKEN",
    )  # fmt: skip
    parser.flag(
        "--no-token", dest="has_no_token", action="store_true",
        help="with serve --http: accept every program on this machine, without a token",
    )  # fmt: skip
    parser.flag("--by", metavar="NAME", help="with serve: who answers approvals, for the record (default: your login)")
    add_running(parser)


def add_acp(parser: Flags) -> None:
    """Add how the agent of an editor is set up."""
    parser.flag("--by", metavar="NAME", help="name to record for answers to permission requests (default: your login)")
    add_running(parser)
