"""What the commands take that show or change what is set up on this machine. Reads nothing and acts on nothing."""

from treadle.cli.input.flags import Flags, add_config, add_journal, add_json, add_places, add_running

__all__ = ["add_completion", "add_config_command", "add_doctor", "add_models", "add_trust"]


def add_config_command(parser: Flags) -> None:
    """Add what of the configuration is shown."""
    parser.add_argument(
        "action",
        nargs="?",
        default=None,
        choices=("show", "schema"),
        help="show: every value and where it comes from; schema: the JSON Schema of the file",
    )
    parser.flag(
        "--origin", dest="shows_origin", action="store_true", help="show where each value comes from (always on)"
    )
    add_running(parser)


def add_trust(parser: Flags) -> None:
    """Add a folder to approve or revoke."""
    parser.add_argument(
        "action", nargs="?", default=None, choices=("list", "approve", "revoke"), help="what to do (default: list)"
    )
    parser.add_argument("name", nargs="?", default=None, metavar="FOLDER", help="the folder (default: this one)")
    add_json(parser)


def add_models(parser: Flags) -> None:
    """Add which models are listed."""
    parser.add_argument("name", nargs="?", default=None, metavar="NAME", help="a model or a vendor (default: all)")
    parser.flag("--offered", dest="offered", action="store_true", help="ask the vendor's server for its models")
    parser.flag("--base-url", dest="base_url", metavar="URL", help="with --offered: the server's address")
    add_json(parser)


def add_doctor(parser: Flags) -> None:
    """Add where the doctor looks."""
    add_places(parser)
    add_json(parser)


def add_completion(parser: Flags) -> None:
    """Add the shell."""
    parser.add_argument(
        "action", choices=("bash", "zsh", "fish", "words"), help="the shell; `words` is used by the completion scripts"
    )
    parser.add_argument("task", nargs="?", metavar="LINE", help="with `words`: the line to complete")
    add_config(parser)
    add_journal(parser)
