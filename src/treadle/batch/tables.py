"""Tables: the rows of a batch as CSV, or as Parquet where pyarrow is installed. Changes no row."""

import csv
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from treadle.batch.rows import BatchRow, read_rows
from treadle.errors import ConfigurationError, check_path
from treadle.fields import checked

__all__ = ["write_table"]

_COLUMNS = [name for name in BatchRow.__struct_fields__ if name != "metadata"]


@checked
def write_table(results: str | Path, table: str | Path) -> None:
    """Write the rows of a results file as a table: a column a field, and one a key of the metadata, as `metadata.KEY`.

    Example:
        write_table("results.jsonl", "results.parquet")

    Args:
        results: A file that `run_batch` has written.
        table: The file to write: .csv, or .parquet if pyarrow is installed.

    Raises:
        ConfigurationError: A file cannot be read or written, or pyarrow is not installed.
    """
    check_path("table", table)
    path = Path(table)
    if path.suffix not in (".csv", ".parquet"):
        raise ConfigurationError(f"A table ends with .csv or .parquet; got {path.name!r}.")
    keys = sorted({key for row in read_rows(results) for key in row.metadata})
    try:
        if path.suffix == ".csv":
            with path.open("w", encoding="utf-8", newline="") as file:
                writer = csv.DictWriter(file, [*_COLUMNS, *(f"metadata.{key}" for key in keys)])
                writer.writeheader()
                writer.writerows(_flat(row, keys) for row in read_rows(results))
            return
        rows = [_flat(row, keys) for row in read_rows(results)]
        names = [*_COLUMNS, *(f"metadata.{key}" for key in keys)]
        _parquet_writer()({name: _alike([row[name] for row in rows]) for name in names}, path)
    except OSError as error:
        raise ConfigurationError(f"The table {str(table)!r} cannot be written: {error.strerror}.") from error


def _flat(row: BatchRow, keys: list[str]) -> dict[str, Any]:  # Any: scalars
    found = {name: _scalar(getattr(row, name)) for name in _COLUMNS}
    return found | {f"metadata.{key}": _scalar(row.metadata.get(key)) for key in keys}


def _scalar(value: Any) -> Any:  # Any: JSON
    if value is None or isinstance(value, str | int | float | bool):
        return value
    return json.dumps(msgspec.to_builtins(value), ensure_ascii=False)


def _alike(column: list[Any]) -> list[Any]:  # Any: scalars
    """Return a column of one type: of text, if it has several."""
    kinds = {type(value) for value in column if value is not None}
    is_mixed = len(kinds) > 1 and kinds != {int, float}
    return [None if value is None else str(value) for value in column] if is_mixed else column


def _parquet_writer() -> Callable[[Mapping[str, list[Any]], Path], object]:
    try:
        import pyarrow as pa  # noqa: PLC0415 - not every user has it, and it is large
        from pyarrow import parquet  # noqa: PLC0415 - as above
    except ImportError as error:
        raise ConfigurationError(
            "Parquet needs pyarrow: pip install pyarrow. Or name a table that ends with .csv."
        ) from error
    return lambda columns, path: parquet.write_table(pa.table(columns), path)
