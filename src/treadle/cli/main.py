"""Main: from the command line to an exit code. What needs less than the whole program loads less of it: the version, and help."""

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from treadle import TreadleError

if TYPE_CHECKING:  # what it loads, the version does without
    from treadle.cli.input.options import Options

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Carry out one command and return its exit code.

    Example:
        sys.exit(main(["run", "-m", "demo", "Find TODO"]))
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given == ["--version"]:
        from importlib.metadata import version  # noqa: PLC0415 - loads the parser of mail headers, which no other command needs

        print(f"treadle {version('treadle')}")
        return 0
    from treadle.cli.input.parser import parse  # noqa: PLC0415 - the version needs no parser

    options: Options | TreadleError | None
    try:
        options = parse(given, is_interactive=_is_interactive())
    except TreadleError as exc:
        options = exc
    except SystemExit as exc:  # argparse has printed help
        return int(exc.code or 0)
    from treadle.cli.execution import execute  # noqa: PLC0415 - loads settings and redaction, which help does without

    return execute(options)


def _is_interactive() -> bool:
    """Whether a person sits before it: both what is typed and what is shown belong to a terminal."""
    try:
        return os.isatty(0) and os.isatty(1)
    except OSError:
        return False


if __name__ == "__main__":
    sys.exit(main())
