"""Batch: thousands of tasks, each a session with a key of its own, so that a batch can be killed anywhere and continued."""

from typing import TYPE_CHECKING

from treadle.lazy import lazy_names

if TYPE_CHECKING:
    from treadle.batch.comparing import Comparison as Comparison
    from treadle.batch.comparing import ComparisonSide as ComparisonSide
    from treadle.batch.comparing import compare as compare
    from treadle.batch.report import report_page as report_page
    from treadle.batch.rows import BatchRow as BatchRow
    from treadle.batch.rows import read_rows as read_rows
    from treadle.batch.runner import BatchProgress as BatchProgress
    from treadle.batch.runner import run_batch as run_batch
    from treadle.batch.scoring import contains as contains
    from treadle.batch.scoring import exact as exact
    from treadle.batch.summary import BatchSummary as BatchSummary
    from treadle.batch.summary import summarize as summarize
    from treadle.batch.tables import write_table as write_table
    from treadle.batch.tasks import BatchTask as BatchTask
    from treadle.batch.tasks import read_tasks as read_tasks
    from treadle.batch.tasks import sample_tasks as sample_tasks

__all__, __getattr__, __dir__ = lazy_names(
    __name__,
    {
        "comparing": "Comparison ComparisonSide compare",
        "report": "report_page",
        "rows": "BatchRow read_rows",
        "runner": "BatchProgress run_batch",
        "scoring": "contains exact",
        "summary": "BatchSummary summarize",
        "tables": "write_table",
        "tasks": "BatchTask read_tasks sample_tasks",
    },
)
