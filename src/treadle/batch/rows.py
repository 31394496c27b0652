"""Rows: what came of each task, and the file that collects them. A row is made of a session; the file loses to the journal."""

import fcntl
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, BinaryIO, Literal

import msgspec

from treadle.batch.tasks import BatchTask
from treadle.budgets import plain
from treadle.engine.spec import RunResult
from treadle.errors import ConfigurationError, check_path
from treadle.events import AnyEvent, RunFinished, RunPaused
from treadle.fields import Documented, checked
from treadle.redaction import Redactor
from treadle.state import SessionState
from treadle.stops import StopReason
from treadle.tools import JsonObject

__all__ = ["BatchRow", "Ending", "RowFile", "ending_in", "ending_of", "read_rows", "row_of"]

TOTAL = "tenant_budget"
"""The budget that a run names which the total budget of its batch has ended."""


class BatchRow(msgspec.Struct, Documented, frozen=True, kw_only=True):
    """What came of one task: one line of the results."""

    id: str
    """The id of the task."""
    repeat: int = 1
    """Which repetition of the task it is, from 1."""
    task: str
    """The task."""
    status: str
    """`completed`, `stopped`, `failed` or `paused`; `error` if the run or its scoring raised an exception."""
    reason: str = ""
    """The stop reason, such as `completed`."""
    message: str = ""
    """How the run ended, in one sentence."""
    text: str = ""
    """The answer, or the last text before an abnormal stop."""
    output: Any = None
    """The structured answer, or the payload of the tool that ended the run. A JSON value."""
    expected: Any = None
    """The answer that was expected; None for none."""
    score: float | None = None
    """What the scoring says, from 0 to 1; None without one."""
    passed: bool | None = None
    """Whether the score is at least 0.5; None without a score."""
    cost: str | None = None
    """What its model calls have cost, as an exact decimal; None if a price is unknown."""
    input_tokens: int = 0
    """Tokens that the model has read."""
    output_tokens: int = 0
    """Tokens that the model has written."""
    steps: int = 0
    """Responses of the model."""
    tool_calls: int = 0
    """Calls that have a result."""
    tool_failures: dict[str, int] = {}
    """How many calls have failed, by tool and status, such as `search: timeout`."""
    seconds: float = 0.0
    """How long its run was under way."""
    budget: str | None = None
    """The budget that ended the run; None if none did."""
    session_id: str = ""
    """Its session in the journal."""
    metadata: JsonObject = {}
    """What else was known of the task."""

    @property
    def key(self) -> tuple[str, int]:
        """Which task it is, and which repetition."""
        return self.id, self.repeat

    @property
    def is_final(self) -> bool:
        """Whether the same command leaves it as it is. What was cut off from outside, or waits for a person, is looked at again."""
        is_cut = self.reason == StopReason.CANCELLED or self.budget == TOTAL
        return self.status in ("completed", "stopped", "failed") and not is_cut

    @property
    def has_failed(self) -> bool:
        """Whether its run did not complete, and does not wait for a person."""
        return self.status not in ("completed", "paused")

    @property
    def amount(self) -> Decimal:
        """The cost as a number; 0 if it is unknown."""
        return Decimal(self.cost or 0)


_SAID = ("id", "task", "message", "text", "output", "expected", "tool_failures", "metadata")
"""What of a row others have written, and may hold a secret."""


class Ending(msgspec.Struct, frozen=True):
    """How a run ended, as far as the state of its session does not say."""

    status: str
    reason: str
    message: str = ""
    text: str = ""
    output: Any = None  # Any: a JSON value
    budget: str | None = None


def ending_of(result: RunResult) -> Ending:
    """Return how a run ended that has just ended here."""
    stop = result.stop
    reached = None if stop.reached is None else stop.reached.budget
    return Ending(str(result.status), str(result.reason), stop.message, result.text, stop.output, reached)


def ending_in(events: Sequence[AnyEvent]) -> Ending | None:
    """Return how the last run of a session ended, as its events say; None if it has not."""
    for event in reversed(events):
        if isinstance(event, RunFinished):
            return Ending(event.status, event.reason, event.message, event.text, event.output, event.budget)
        if isinstance(event, RunPaused):
            return Ending("paused", event.reason)
    return None


def row_of(task: BatchTask, repeat: int, state: SessionState, ending: Ending) -> BatchRow:
    """Return the row of a task from its session, which has no score yet."""
    run = state.run
    assert run is not None
    calls, spent = state.call_records(), run.spent
    failed = [f"{call.name}: {call.status}" for call in calls if call.status != "ok"]
    return BatchRow(
        id=task.id,
        repeat=repeat,
        task=task.task,
        status=ending.status,
        reason=ending.reason,
        message=ending.message,
        text=ending.text or run.text,
        output=ending.output,
        expected=task.expected,
        cost=None if spent.cost is None else str(plain(spent.cost)),
        input_tokens=spent.usage.input_tokens,
        output_tokens=spent.usage.output_tokens,
        steps=run.steps,
        tool_calls=len(calls),
        tool_failures=dict(Counter(failed)) if failed else {},
        seconds=round(spent.wall_seconds, 3),
        budget=ending.budget,
        session_id=state.id,
        metadata=task.metadata,
    )


@checked
def read_rows(path: str | Path) -> Iterator[BatchRow]:
    """Yield the rows of a results file, as `run_batch` and `treadle batch` write it. A last line that a kill has cut off is left out.

    Example:
        failed = [row.id for row in read_rows("results.jsonl") if row.status != "completed"]

    Raises:
        ConfigurationError: The file cannot be read, or a line is not a row; the message has its number.
    """
    check_path("path", path)
    try:
        with Path(path).open("rb") as file:
            yield from _rows_in(file, str(path))
    except OSError as error:
        raise ConfigurationError(f"The results in {str(path)!r} cannot be read: {error.strerror}.") from error


def _rows_in(file: BinaryIO, name: str) -> Iterator[BatchRow]:
    decoder = msgspec.json.Decoder(BatchRow)
    for number, line in enumerate(file, 1):
        if not line.endswith(b"\n"):
            return
        try:
            yield decoder.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ConfigurationError(
                f"{name}, line {number} is not a row of a batch: {error}. Name another file for the results."
            ) from error


class RowFile:
    """A file of rows, one a task, which one process writes. What it holds already is kept where it is final.

    Args:
        keeps: Whether a row stays; one that does not is made again.
    """

    def __init__(self, path: Path, keeps: Callable[[BatchRow], bool]) -> None:
        self.path = path
        self._keeps = keeps
        self._encoder = msgspec.json.Encoder()
        self._redactor = Redactor()
        self._file: BinaryIO | None = None

    def begin(self) -> Iterator[BatchRow]:
        """Lock the file, and yield the rows that stay; the others are gone once all were taken.

        Raises:
            ConfigurationError: Another process writes it, it cannot be written, or it is not a file of rows.
        """
        fresh: BinaryIO | None = None
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._locked(self.path, "a+b")
            self._file.seek(0)
            fresh = self._locked(self.path.with_name(self.path.name + ".new"), "w+b")
            for row in _rows_in(self._file, str(self.path)):
                if self._keeps(row):
                    fresh.write(self._encoder.encode(row) + b"\n")
                    yield row
            fresh.flush()
            Path(fresh.name).replace(self.path)
            self._file, fresh = fresh, self._file
        except OSError as error:
            raise self._unwritable(error) from error
        finally:
            if fresh is not None:
                fresh.close()
                self.path.with_name(self.path.name + ".new").unlink(missing_ok=True)

    def _locked(self, path: Path, mode: Literal["a+b", "w+b"]) -> BinaryIO:
        file = path.open(mode)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.close()
            raise ConfigurationError(
                f"Another process writes the results {str(self.path)!r}. Wait for it, or name another file."
            ) from error
        return file

    def _unwritable(self, error: OSError) -> ConfigurationError:
        return ConfigurationError(f"The results in {str(self.path)!r} cannot be written: {error.strerror}.")

    def add(self, row: BatchRow) -> None:
        """Add a row, without the secrets that are known.

        Raises:
            ConfigurationError: The file cannot be written.
        """
        assert self._file is not None
        said = self._redactor.value(msgspec.to_builtins([getattr(row, name) for name in _SAID]))
        shown = msgspec.structs.replace(row, **dict(zip(_SAID, said, strict=True)))
        try:
            self._file.write(self._encoder.encode(shown) + b"\n")
            self._file.flush()
        except OSError as error:
            raise self._unwritable(error) from error

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            self._file.close()
