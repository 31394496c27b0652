"""Shell: tools that start processes."""

from treadle.sandboxes.processes import ProcessResult, clean_environment, run_process

__all__ = ["ProcessResult", "clean_environment", "run_process"]
