"""Tasks of a batch: read from lines of JSON, a table or plain lines, checked, and sampled. Runs none of them."""

import csv
import hashlib
import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO

import msgspec

from treadle.errors import ConfigurationError, check_path, shown
from treadle.fields import Documented, NamedOptions, check_fields, checked
from treadle.tools import JsonObject

__all__ = ["BatchTask", "as_task", "read_tasks", "sample_tasks"]


class BatchTask(msgspec.Struct, Documented, frozen=True, kw_only=True, metaclass=NamedOptions):
    """One task of a batch.

    Example:
        BatchTask(id="q1", task="What is 6 times 7?", expected="42", metadata={"level": "easy"})
    """

    id: str
    """Its name in the batch, unique there. Its session's id is made of it."""
    task: str
    """What the agent is asked to do."""
    expected: Any = None
    """The answer that is expected, for scoring; None for none."""
    metadata: JsonObject = {}
    """Whatever else is known of it: recorded with its session, and in its row."""

    def __post_init__(self) -> None:
        check_fields("BatchTask", self)
        if not self.id or not self.id.isprintable() or len(self.id) > 200:
            raise ConfigurationError(f"BatchTask(id=...) has 1 to 200 printable characters; got {shown(self.id)}.")
        if not self.task.strip():
            raise ConfigurationError(f"Task {self.id!r} is empty: BatchTask(task=...) needs a text.")


_OWN = ("id", "task", "expected")


@checked
def read_tasks(path: str | Path) -> Iterator[BatchTask]:
    """Yield the tasks of a file, one line at a time: of a table if it ends with .csv, else a JSON object or a text a line.

    An object or a row needs the field `task`; `id` and `expected` are known, and all others become metadata. Without an id, the number
    of the line in the file is the id.

    Example:
        tasks = list(read_tasks("tasks.jsonl"))

    Raises:
        ConfigurationError: The file cannot be read, or a line is invalid or has the id of another; the message has its number.
    """
    check_path("path", path)
    where = Path(path)
    seen: set[str] = set()
    try:
        with where.open(encoding="utf-8-sig", newline="") as file:
            for place, task in (_of_table if where.suffix.lower() == ".csv" else _of_lines)(file, where.name):
                if task.id in seen:
                    raise ConfigurationError(
                        f"{place}: a task before it has the id {task.id!r} too. Give each an id of its own."
                    )
                seen.add(task.id)
                yield task
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigurationError(f"The tasks in {str(path)!r} cannot be read: {reason}.") from error


def _of_lines(file: TextIO, name: str) -> Iterator[tuple[str, BatchTask]]:
    for number, line in enumerate(file, 1):
        if text := line.strip():
            where = f"{name}, line {number}"
            yield where, _made(_value(text, where), number, where)


def _value(line: str, where: str) -> Any:  # Any: a JSON object or a text
    if line[0] not in '{["':
        return line
    try:
        return msgspec.json.decode(line)
    except msgspec.DecodeError as error:
        raise ConfigurationError(f"{where} begins like JSON and is not valid JSON: {error}.") from error


def _of_table(file: TextIO, name: str) -> Iterator[tuple[str, BatchTask]]:
    rows = csv.DictReader(file, strict=True)
    try:
        columns = list(rows.fieldnames or ())
        if columns.count("task") != 1:
            known = ", ".join(columns) or "none"
            raise ConfigurationError(f"{name} needs one column `task` in its first line; its columns are: {known}.")
        if twice := [column for column, count in Counter(columns).items() if count > 1]:
            raise ConfigurationError(f"{name} has two columns {twice[0]!r}. Rename one.")
        for number, row in enumerate(rows, 1):
            where = f"{name}, row {number}"
            if None in row or None in row.values():
                raise ConfigurationError(f"{where} has another number of fields than the first line has columns.")
            yield where, _made({key: value for key, value in row.items() if value != ""}, number, where)
    except csv.Error as error:
        raise ConfigurationError(f"{name}, line {rows.line_num} is not valid CSV: {error}.") from error


def _made(value: Any, number: int, where: str) -> BatchTask:  # Any: whatever the line held
    try:
        return as_task(value, number)
    except ConfigurationError as error:
        raise ConfigurationError(f"{where}: {error}") from error


def as_task(value: object, number: int) -> BatchTask:
    """Return a task from what stands for one: a text, or an object with the field `task`.

    Args:
        number: Its place in the batch, from 1: the id of one that has none.

    Raises:
        ConfigurationError: It is something else.
    """
    if isinstance(value, BatchTask):
        return value
    if isinstance(value, str):
        return BatchTask(id=str(number), task=value)
    if not isinstance(value, Mapping):
        raise ConfigurationError(
            f'A task is a text, or an object such as {{"id": "q1", "task": "..."}}; got {shown(value)}.'
        )
    task, name = value.get("task"), value.get("id", number)
    if not isinstance(task, str):
        raise ConfigurationError(f"A task needs the field `task` with a text; got {shown(task)}.")
    if isinstance(name, bool) or not isinstance(name, str | int):
        raise ConfigurationError(f"The id of a task is a text or a whole number; got {shown(name)}.")
    metadata = {str(key): one for key, one in value.items() if key not in _OWN}
    return BatchTask(id=str(name), task=task, expected=value.get("expected"), metadata=metadata)


@checked
def sample_tasks(tasks: Iterable[BatchTask], count: int) -> list[BatchTask]:
    """Return so many tasks, chosen by their ids: the same ones each time, so that a sample can be continued too.

    Example:
        some = sample_tasks(read_tasks("tasks.jsonl"), 100)
    """
    chosen = heapq.nsmallest(count, ((hashlib.sha256(one.id.encode()).digest(), n, one) for n, one in enumerate(tasks)))
    return [one for _, _, one in sorted(chosen, key=lambda found: found[1])]
