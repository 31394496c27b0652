"""The demo model's brain: fixed rules from one Chat Completions request to one response. No language model, no I/O.

It keeps nothing between requests: like any model it sees the transcript, and decides from the task and the real results.
The order of its work: look which files there are, search them a few at a time, look closer at the best place, answer.
"""

import posixpath
from collections.abc import Sequence

import msgspec

from treadle.messages import Usage
from treadle.mock.demo.answers import NO_TOOLS, introduce, report
from treadle.mock.demo.findings import Findings, gather
from treadle.mock.demo.task import Kind, Task, understand
from treadle.mock.demo.transcript import Exchange, Transcript, read_request
from treadle.mock.turns import Turn, call
from treadle.tools import JsonObject

__all__ = ["brain"]

_KNOWN = ("glob", "list", "grep", "read")
_BATCH = 4
_MISTAKE_AT = 2  # in a batch: so that calls before it have already brought something
_MAX_FAILURES = 3


class _Proposal(msgspec.Struct, frozen=True, kw_only=True):
    """What to do next, and what to say about it."""

    text: str
    calls: Sequence[tuple[str, JsonObject]]


def brain(body: JsonObject) -> Turn:
    """Return the demo model's response to a Chat Completions request. The same for the same request.

    Raises:
        msgspec.ValidationError: The body is no such request.
    """
    transcript = read_request(body)
    task = understand(transcript.task)
    proposal = _propose(transcript, task)
    text = proposal.text if proposal else _answer(transcript, task)
    calls = tuple(
        call(name, id=f"demo_{transcript.calls_so_far + number}", arguments=arguments)
        for number, (name, arguments) in enumerate(proposal.calls if proposal else (), start=1)
    )
    written = len(text) + sum(len(one.arguments) for one in calls)
    return Turn(
        text=text,
        calls=calls,
        usage=Usage(input_tokens=len(msgspec.json.encode(body)) // 4, output_tokens=written // 4 + 1),
    )


def _propose(transcript: Transcript, task: Task) -> _Proposal | None:
    """Return the next calls, or None when it is time to answer."""
    if task.kind is Kind.TALK or transcript.must_stop or transcript.failures_in_a_row >= _MAX_FAILURES:
        return None
    findings = gather(transcript, task)
    match task.kind:
        case Kind.READ:
            return _read_named(transcript, task)
        case Kind.SEARCH:
            return (
                _look_around(transcript, task) or _search(transcript, task, findings) or _closer(transcript, findings)
            )
        case _:
            return _look_around(transcript, task)


def _answer(transcript: Transcript, task: Task) -> str:
    if task.kind is Kind.TALK:
        return introduce(transcript)
    if not any(name in transcript.tools for name in _KNOWN):
        return NO_TOOLS
    return report(transcript, task, gather(transcript, task))


# --- looking around ---------------------------------------------------------------------------------------------------


def _look_around(transcript: Transcript, task: Task) -> _Proposal | None:
    if transcript.exchanges or (task.kind is Kind.SEARCH and task.file):
        return None
    glob: tuple[str, JsonObject] = ("glob", {"pattern": task.glob})
    listing: tuple[str, JsonObject] = ("list", {"path": "."})
    wanted = [glob, listing] if task.kind is Kind.SURVEY else [glob] if "glob" in transcript.tools else [listing]
    calls = [(name, arguments) for name, arguments in wanted if name in transcript.tools]
    return _Proposal(text="First I will look at which files there are.", calls=calls) if calls else None


# --- searching --------------------------------------------------------------------------------------------------------


def _search(transcript: Transcript, task: Task, findings: Findings) -> _Proposal | None:
    """Search the next few places; with them, repeat what broke its schema, repaired."""
    tool = next((name for name in ("grep", "read") if name in transcript.tools), None)
    if tool is None:
        return None
    repaired = _repaired(transcript)
    repeated = {arguments.get("path") for _, arguments in repaired}
    targets = findings.targets or (() if transcript.exchanges else (".",))
    left = [path for path in targets if path not in (*findings.searched, *findings.failed, *repeated)]
    batch = left[: _BATCH - len(repaired)]
    calls = [(tool, _arguments(transcript, task, tool, path)) for path in batch]
    if batch and not any(one.name == tool for one in transcript.exchanges):
        _make_a_mistake(transcript, calls)
    if not calls and not repaired:
        return None
    return _Proposal(text=_searching_words(task, calls, repaired, len(left)), calls=[*repaired, *calls])


def _arguments(transcript: Transcript, task: Task, tool: str, path: str) -> JsonObject:
    if tool == "read":
        return {"path": path}
    arguments: JsonObject = {"pattern": task.pattern, "path": path}
    if task.term.islower() and "ignore_case" in _properties(transcript, tool):
        arguments["ignore_case"] = True
    return arguments


def _make_a_mistake(transcript: Transcript, calls: list[tuple[str, JsonObject]]) -> None:
    """Break the schema of one call, once: the demonstration is to show what happens to it."""
    at = min(_MISTAKE_AT, len(calls) - 1)
    name, arguments = calls[at]
    for field, wrong in (("max_matches", "200"), ("limit", "2000")):
        if _properties(transcript, name).get(field, {}).get("type") == "integer":
            calls[at] = (name, {**arguments, field: wrong})
            return


def _repaired(transcript: Transcript) -> list[tuple[str, JsonObject]]:
    broken = [one for one in transcript.problems if one.problem == "invalid_arguments"]
    calls = [(one.name, _mend(transcript, one)) for one in broken]
    return [made for made in calls if made[0] in transcript.tools and not transcript.has_proposed(*made)]


def _mend(transcript: Transcript, broken: Exchange) -> JsonObject:
    """Leave out what does not belong, and make numbers of digits where numbers are wanted."""
    properties = _properties(transcript, broken.name)
    return {
        field: int(value)
        if properties[field].get("type") == "integer" and isinstance(value, str) and value.isdecimal()
        else value
        for field, value in broken.arguments.items()
        if field in properties
    }


def _properties(transcript: Transcript, tool: str) -> dict[str, JsonObject]:
    properties = transcript.tools.get(tool, {}).get("properties", {})
    return {name: schema for name, schema in properties.items() if isinstance(schema, dict)}


def _searching_words(task: Task, calls: Sequence[object], repaired: Sequence[tuple[str, JsonObject]], left: int) -> str:
    excuse = "One call did not match its schema, so I will correct it. " if repaired else ""
    if not calls:
        return excuse.strip()
    remaining = f", {left - len(calls)} after that" if left > len(calls) else ""
    return f"{excuse}I will search for “{task.term}” in {_number(len(calls), 'place')} at once{remaining}."


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _closer(transcript: Transcript, findings: Findings) -> _Proposal | None:
    """Read around the first match of the file that has most of them."""
    has_read = any(one.name == "read" for one in transcript.exchanges)
    if has_read or "read" not in transcript.tools or not findings.matches:
        return None
    paths = [match.path for match in findings.matches]
    best = max(dict.fromkeys(paths), key=paths.count)
    line = next(match.line for match in findings.matches if match.path == best)
    calls = [("read", {"path": best, "offset": max(1, line - 2), "limit": 6})]
    return _Proposal(text=f"Most of it is in {best}. I will read the lines around line {line}.", calls=calls)


# --- reading one file -------------------------------------------------------------------------------------------------


def _read_named(transcript: Transcript, task: Task) -> _Proposal | None:
    """Read the file that the task names; when it does not exist, look for its name elsewhere, once."""
    if "read" not in transcript.tools or any(transcript.of("read")):
        return None
    if repaired := _repaired(transcript):
        return _Proposal(text="One call did not match its schema, so I will correct it.", calls=repaired)
    if not transcript.exchanges:
        calls = [("read", {"path": task.file})]
        _make_a_mistake(transcript, calls)
        return _Proposal(text=f"I will read {task.file}.", calls=calls)
    name = posixpath.basename(task.file)
    elsewhere: JsonObject = {"pattern": f"**/{name}"}
    if "glob" in transcript.tools and not any(one.name == "glob" for one in transcript.exchanges):
        return _Proposal(
            text=f"{task.file} does not exist. I will look for {name} elsewhere.", calls=[("glob", elsewhere)]
        )
    found = next((line for one in transcript.of("glob") for line in one.lines), None)
    if found is None or transcript.has_proposed("read", {"path": found}):
        return None
    return _Proposal(text=f"There is {found}. I will read it.", calls=[("read", {"path": found})])
