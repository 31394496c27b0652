"""What the demo model's calls have really brought: the files seen, the places searched, the lines that match."""

import re

import msgspec

from treadle.mock.demo.task import Kind, Task
from treadle.mock.demo.transcript import Exchange, Transcript

__all__ = ["Findings", "Match", "gather"]

_MANY_FILES = 24
"""Beyond it a search goes by folders."""
_MANY_FOLDERS = 40
_MATCH = re.compile(r"(.+?):(\d+): (.*)", re.DOTALL)
_LISTED = re.compile(r"(.+) \(\d+ bytes\)")


class Match(msgspec.Struct, frozen=True, kw_only=True):
    """One line that holds the term."""

    path: str
    line: int
    text: str


class Findings(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the work, folded from the transcript."""

    files: tuple[str, ...]
    """Files and folders that the tools have named, in the task's scope."""
    more_files: bool
    """Whether a tool said that there are more."""
    targets: tuple[str, ...]
    """What there is to search, one call each."""
    searched: tuple[str, ...]
    failed: tuple[str, ...]
    """Those whose search went wrong; it is not tried again."""
    matches: tuple[Match, ...]
    more_matches: bool
    """Whether a tool said that there are more, so that the number is the least."""
    skipped: int
    """What the tools left out: binary files, and what they could not read."""

    @property
    def left(self) -> tuple[str, ...]:
        return tuple(target for target in self.targets if target not in (*self.searched, *self.failed))


def gather(transcript: Transcript, task: Task) -> Findings:
    """Fold the calls so far into what is known."""
    files = _files(transcript, task)
    searches = list(_searches(transcript, task))
    failed = [one.path for one in transcript.problems if not (one.problem or "").startswith("invalid_")]
    matches = dict.fromkeys(match for one in searches for match in _matches(one, task))
    return Findings(
        files=files,
        more_files=any("truncated" in one.result for one in transcript.of("glob", "list")),
        targets=_targets(files, task, by_folder="grep" in transcript.tools),
        searched=tuple(dict.fromkeys(one.path for one in searches)),
        failed=tuple(dict.fromkeys(failed)),
        matches=tuple(matches),
        more_matches=any("truncated" in one.result or "next_offset" in one.result for one in searches),
        skipped=sum(int(one.result.get("skipped", 0)) for one in searches),
    )


def _searches(transcript: Transcript, task: Task) -> list[Exchange]:
    if task.kind is not Kind.SEARCH:
        return []
    return list(transcript.of("grep" if "grep" in transcript.tools else "read"))


def _files(transcript: Transcript, task: Task) -> tuple[str, ...]:
    globbed = [line for one in transcript.of("glob") for line in one.lines]
    listed = [] if globbed else [_listed(one.path, line) for one in transcript.of("list") for line in one.lines]
    found = [path for path in dict.fromkeys(globbed + listed) if not path.endswith("@")]
    folders = {path.split("/")[0] for path in found if "/" in path}
    places = [place for place in task.places if place.split("/")[0] in folders]
    return tuple(path for path in found if not places or any(path.startswith(place + "/") for place in places))


def _listed(folder: str, line: str) -> str:
    name = found[1] if (found := _LISTED.fullmatch(line)) else line
    return name if folder == "." else f"{folder}/{name}"


def _targets(files: tuple[str, ...], task: Task, *, by_folder: bool) -> tuple[str, ...]:
    if task.file:
        named = [path for path in files if path == task.file or path.endswith("/" + task.file)]
        return tuple(named) or (task.file,)
    if not by_folder:
        return tuple(path for path in files if not path.endswith("/"))[:_MANY_FILES]
    if len(files) <= _MANY_FILES:
        return files
    folders = tuple(dict.fromkeys(path.split("/")[0] for path in files))
    return folders if len(folders) <= _MANY_FOLDERS else (".",)


def _matches(search: Exchange, task: Task) -> list[Match]:
    if search.name == "grep":
        parsed = [_MATCH.fullmatch(line) for line in search.lines]
        return [Match(path=found[1], line=int(found[2]), text=found[3]) for found in parsed if found]
    first, term = int(search.arguments.get("offset", 1)), task.term.lower()
    return [
        Match(path=search.path, line=number, text=line)
        for number, line in enumerate(search.lines, start=first)
        if term in line.lower()
    ]
