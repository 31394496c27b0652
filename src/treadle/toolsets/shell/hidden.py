"""Hidden: programs that a command did not find, because the sandbox hides their folder. Starts nothing."""

import re
import shutil

from treadle.sandboxes.processes import clean_environment

__all__ = ["hidden_programs"]

_MISSED = re.compile(
    r"^(?:[\w/.-]*bash: line \d+: |env: )[\u2018'`]?([^\s:'\u2019]+)[\u2019']?: (?:command not found|No such file or directory)",
    re.MULTILINE,
)


def hidden_programs(stderr: str) -> list[str]:
    """Return a hint for each program that is installed, and that a command in a sandbox did not find."""
    missed = {name: shutil.which(name, path=clean_environment()["PATH"]) for name in _MISSED.findall(stderr)}
    return [
        f"`{name}` is installed as {path}, in a folder that the sandbox hides. A person opens it by `read` under [sandbox] of the "
        "configuration, or in code by Confinement(readable=[...]). Or call again with `unconfined` and a `reason`: a person is asked."
        for name, path in missed.items()
        if path is not None
    ]
