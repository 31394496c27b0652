"""Shell: tools that start processes."""

from treadle.sandboxes.processes import ProcessResult, clean_environment, run_process
from treadle.toolsets.shell.background import ShellTools
from treadle.toolsets.shell.tool import shell_tool

__all__ = ["ProcessResult", "ShellTools", "clean_environment", "run_process", "shell_tool"]
