"""Sandboxes: run a program as it is, so that nothing of it outlives its call, or confined. Decides nothing."""

from typing import TYPE_CHECKING

from treadle.lazy import lazy_names

if TYPE_CHECKING:
    from treadle.sandboxes.confinement import Confinement as Confinement
    from treadle.sandboxes.processes import run_process as run_process
    from treadle.sandboxes.runners import Bubblewrap as Bubblewrap
    from treadle.sandboxes.runners import Landlock as Landlock
    from treadle.sandboxes.runners import find_sandbox as find_sandbox

__all__, __getattr__, __dir__ = lazy_names(
    __name__,
    {
        "confinement": "Confinement",
        "processes": "run_process",
        "runners": "Bubblewrap Landlock find_sandbox",
    },
)
