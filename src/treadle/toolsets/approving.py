"""A program as an approver: it reads a request for consent as JSON, and says yes, no, or nothing. Runs that one program."""

from collections.abc import Sequence
from typing import Literal

import msgspec

from treadle.errors import ConfigurationError, InvalidArguments, shown
from treadle.fields import checked
from treadle.sandboxes.processes import run_process
from treadle.state import Approval
from treadle.tools import Answer, ProcessResult
from treadle.validation import NotJson, parse_arguments

__all__ = ["ProgramApprover"]

_EXIT_DENY = 2
_MAX_REASON = 500


class ProgramApprover:
    """Asks a program about each call that needs consent.

    The program reads the request as one JSON object, with the fields of `Approval`. It prints a JSON object with the fields of `Answer`,
    such as `{"answer": "allow"}`. Exit code 2 denies, with what it writes to its standard error as the reason.

    Example:
        Agent(model, tools=tools, approver=ProgramApprover(["./may-it.py"], otherwise="deny"))

    Args:
        command: The program and its arguments; no shell reads them.
        timeout: Seconds after which it has said nothing.
        otherwise: What happens to a call where the program says nothing, fails or does not exist: `pause` leaves it to a person.

    Raises:
        ConfigurationError: The command or `otherwise` is invalid.
    """

    @checked
    def __init__(
        self, command: Sequence[str], *, timeout: float = 60.0, otherwise: Literal["pause", "deny"] = "pause"
    ) -> None:
        if isinstance(command, str) or not command or not all(isinstance(one, str) for one in command):
            raise ConfigurationError(f"command must be a list, such as ['./may-it.py']; got {shown(command)}.")
        if otherwise not in ("pause", "deny"):
            raise ConfigurationError(f"otherwise must be 'pause' or 'deny'; got {shown(otherwise)}.")
        self._command = tuple(command)
        self._timeout = timeout
        self._otherwise = otherwise
        self.name = self._command[0]

    @checked
    async def approve(self, asked: Approval) -> Answer | None:
        """Run the program, and return what it says."""
        try:
            result = await run_process(self._command, stdin=msgspec.json.encode(asked), timeout=self._timeout)
        except OSError as error:
            return self._nothing(f"{self.name} cannot be run: {error}")
        if result.exit_code == _EXIT_DENY and not result.timed_out:
            return Answer(answer="deny", reason=result.stderr.strip()[:_MAX_REASON], by=f"program:{self.name}")
        return self._read(result)

    def _read(self, result: ProcessResult) -> Answer | None:
        if result.timed_out:
            return self._nothing(f"{self.name} did not answer within {self._timeout:g} seconds.")
        if result.exit_code != 0:
            return self._nothing(f"{self.name} ended with exit code {result.exit_code}.")
        try:
            said = _read_answer(result.stdout)
        except ValueError as error:
            return self._nothing(f"{self.name} did not print an answer: {error}")
        return msgspec.structs.replace(said, by=f"program:{said.by or self.name}")

    def _nothing(self, why: str) -> Answer | None:
        return None if self._otherwise == "pause" else Answer(answer="deny", reason=why, by=f"program:{self.name}")


def _read_answer(text: str) -> Answer:
    """Read an answer strictly: one that says two things, or that is not understood, does not count.

    Raises:
        ValueError: It is not an answer.
    """
    try:
        said = parse_arguments(text)
    except (NotJson, InvalidArguments) as error:
        raise ValueError(str(error)) from error
    if unknown := [name for name in said if name not in Answer.__struct_fields__]:
        raise ValueError(f"unknown field `{unknown[0]}`")
    return msgspec.convert(said, Answer)
