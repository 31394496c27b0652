"""Apart: work that runs a stranger's code, in a child process. A child that ends without its result is a failure, whatever its exit code."""

import json
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from treadle import TreadleError
from treadle.cli.exits import EXIT_USAGE, UsageError, code_of

__all__ = ["carried_out_apart"]


def carried_out_apart(work: Callable[[], Any], doing: str) -> Any:
    """Return what a function returns, a JSON value, from a fork of this process.

    Args:
        doing: What it does, for the sentence about a child that has ended.

    Raises:
        UsageError: The function raised it, or the child has ended without a result.
        TreadleError: The function raised another error.
    """
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    ours, theirs = os.pipe()
    child = os.fork()
    if not child:
        os.close(ours)
        _carry_out(work, theirs)
    os.close(theirs)
    try:
        with open(ours, "rb") as said:  # noqa: PTH123 - a descriptor
            result = said.readline()  # not to its end: a process that the child has started may hold the pipe
    except BaseException:
        os.kill(child, signal.SIGINT)
        raise
    finally:
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return _result(result, status, doing)


def _carry_out(work: Callable[[], Any], result: int) -> None:
    """Write the result, or the error, and end this process: nothing of it returns into what the parent does."""
    try:
        try:
            said = {"value": work()}
        except TreadleError as error:
            said = {"error": str(error), "code": code_of(error)}
        except Exception as error:  # noqa: BLE001 - a stranger's code, or a defect: the parent says which
            said = {"error": f"unexpected {type(error).__name__}: {error}", "code": 1}
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        with open(result, "wb") as told:
            told.write(json.dumps(said).encode() + b"\n")
    finally:
        os._exit(1)  # what this says counts for nothing


def _result(result: bytes, status: int, doing: str) -> Any:
    try:
        said = json.loads(result)
    except ValueError:
        how = f"by signal {-status}" if status < 0 else f"with exit code {status}"
        raise UsageError(
            f"The process that {doing} ended {how} before it had a result: a file of tools, or a toolset, ends the process. Take that out of it."
        ) from None
    if "error" not in said:
        return said["value"]
    raise (UsageError if said["code"] == EXIT_USAGE else TreadleError)(said["error"])
