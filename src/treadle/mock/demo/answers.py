"""The demo model's answers: sentences made of the counts and lines that its calls really brought. Decides nothing."""

from collections import Counter
from collections.abc import Iterable, Sequence

from treadle.mock.demo.findings import Findings
from treadle.mock.demo.task import Kind, Task
from treadle.mock.demo.transcript import Transcript

__all__ = ["NO_TOOLS", "introduce", "report"]

SIGNATURE = "(Treadle's built-in demo model wrote this: fixed rules over real tool results, not a language model.)"
NO_TOOLS = (
    "I can look into files with the tools grep, glob, read and list, but this request offers none of them, "
    f"so I did nothing.\n\n{SIGNATURE}"
)
_MAX_SHOWN = 10
_MAX_TEXT_CHARS = 120


def introduce(transcript: Transcript) -> str:
    """Answer a task that is not about files."""
    known = [name for name in ("grep", "glob", "read", "list") if name in transcript.tools]
    tools = f"with {', '.join(known)} " if known else "(given grep, glob, read or list) "
    return (
        "Hello. I am the demo model built into Treadle: a few fixed rules, not a language model, so all that I can do "
        f"is look into the files of this folder {tools}and report what is there. Try "
        "“Keep searching for errors in every file”, “Which files mention TODO?”, “List the files” or “Read README.md”."
    )


def report(transcript: Transcript, task: Task, findings: Findings) -> str:
    """Answer with what was found, what went wrong, and what is left."""
    match task.kind:
        case Kind.SEARCH:
            body = _searched(transcript, task, findings)
        case Kind.READ:
            body = _read(transcript, task)
        case _:
            body = _surveyed(transcript, task, findings)
    parts = [_stopped(transcript), *body, _problems(transcript), SIGNATURE]
    return "\n\n".join(part for part in parts if part)


def _stopped(transcript: Transcript) -> str:
    if not transcript.must_stop:
        return ""
    reason = transcript.stop_message or "no further call is allowed."
    return f"I was stopped before I finished: {reason} This is what I know so far."


# --- a search ---------------------------------------------------------------------------------------------------------


def _searched(transcript: Transcript, task: Task, findings: Findings) -> list[str]:
    if not {"grep", "read"} & transcript.tools.keys():
        return [f"I cannot look inside files: neither grep nor read is offered. {_file_count(findings)}"]
    if not findings.searched and not findings.targets and any(transcript.of("glob", "list")):
        return [f"There is no file here to search for “{task.term}”."]
    return [_found(task, findings), _closer_look(transcript), _left(transcript, findings)]


def _found(task: Task, findings: Findings) -> str:
    searched = _number(len(findings.searched), "place")
    skipped = f" {findings.skipped} skipped as binary or unreadable." if findings.skipped else ""
    if not findings.matches:
        return f"I found no line with “{task.term}” in the {searched} that I searched.{skipped}"
    by_path = Counter(match.path for match in findings.matches)
    least = "at least " if findings.more_matches else ""
    head = (
        f"I found {least}{_number(len(findings.matches), 'line')} with “{task.term}” in {_number(len(by_path), 'file')}; "
        f"{searched} searched.{skipped}"
    )
    return "\n".join([head, *_first_lines(by_path, findings)])


def _first_lines(by_path: Counter[str], findings: Findings) -> Iterable[str]:
    first = {match.path: match for match in reversed(findings.matches)}
    for path, count in by_path.most_common(_MAX_SHOWN):
        text = _short(first[path].text.strip())
        yield f"- {path}: {_number(count, 'line')}; line {first[path].line}: {text}"
    if len(by_path) > _MAX_SHOWN:
        yield f"- and {_number(len(by_path) - _MAX_SHOWN, 'more file')}"


def _closer_look(transcript: Transcript) -> str:
    read = next(iter(transcript.of("read")), None) if "grep" in transcript.tools else None
    if read is None or not read.lines:
        return ""
    first = int(read.arguments.get("offset", 1))
    lines = [f"    {number}: {_short(line)}" for number, line in enumerate(read.lines, start=first)]
    return "\n".join([f"Around it, in {read.path}:", *lines])


def _left(transcript: Transcript, findings: Findings) -> str:
    parts = []
    if findings.left:
        parts.append(f"Not searched yet: {_names(findings.left)}. Resume with a larger limit to continue.")
    elif transcript.must_stop and not findings.targets:
        parts.append("I had not yet seen which files there are. Resume with a larger limit to continue.")
    if findings.more_files and "." in findings.searched:
        parts.append("The tool listed only some of the files; the search covered them anyway.")
    elif findings.more_files:
        parts.append("There are more files than the tool listed; those are not searched.")
    return " ".join(parts)


# --- a file, a folder -------------------------------------------------------------------------------------------------


def _read(transcript: Transcript, task: Task) -> list[str]:
    if "read" not in transcript.tools:
        return [f"I cannot read {task.file}: the tool read is not offered."]
    read = next(iter(transcript.of("read")), None)
    if read is None:
        return [f"I could not read {task.file}."]
    shown = [f"    {_short(line)}" for line in read.lines[:_MAX_SHOWN]]
    more = " and continues" if "next_offset" in read.result else ""
    begin = " It begins:" if shown else ""
    return ["\n".join([f"{read.path}: I read {_number(len(read.lines), 'line')}{more}.{begin}", *shown])]


def _surveyed(transcript: Transcript, task: Task, findings: Findings) -> list[str]:
    if not any(transcript.of("glob", "list")):
        return ["I could not see which files there are."]
    top = [line for one in transcript.of("list") for line in one.lines]
    matching = "" if task.glob == "**/*" else f" ({task.glob})"
    names = f"{_file_count(findings)}{matching}: {_names(findings.files)}." if findings.files else "I found no files."
    return [names, _kinds(findings.files), f"At the top: {_names(top)}." if top else ""]


def _file_count(findings: Findings) -> str:
    least = "at least " if findings.more_files else ""
    return f"There are {least}{_number(len(findings.files), 'file')}"


def _kinds(files: Sequence[str]) -> str:
    endings = Counter("." + path.rpartition(".")[2] for path in files if "." in path.rpartition("/")[2][1:])
    return "By ending: " + ", ".join(f"{count} {ending}" for ending, count in endings.most_common(6)) if endings else ""


# --- words ------------------------------------------------------------------------------------------------------------


def _problems(transcript: Transcript) -> str:
    """Name what failed, but for the calls that were repaired."""
    failed = [one for one in transcript.problems if one.problem not in ("invalid_arguments", "invalid_json")]
    if not failed:
        return ""
    reasons = dict.fromkeys(f"{one.name} {one.path}: {_short(one.message)}" for one in failed)
    return "\n".join([f"{_number(len(failed), 'call')} went wrong:", *(f"- {reason}" for reason in [*reasons][:5])])


def _names(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_MAX_SHOWN])
    return f"{shown} and {len(names) - _MAX_SHOWN} more" if len(names) > _MAX_SHOWN else shown


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _short(text: str) -> str:
    return text if len(text) <= _MAX_TEXT_CHARS else text[:_MAX_TEXT_CHARS] + "…"
