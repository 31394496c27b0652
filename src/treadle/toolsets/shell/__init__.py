"""Shell: tools that start processes."""

from treadle.toolsets.shell.processes import ProcessResult, clean_environment, run_process

__all__ = ["ProcessResult", "clean_environment", "run_process"]
