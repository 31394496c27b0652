"""The demo model: rules in place of a language model, behind a real server. Talks to no network but loopback."""

import asyncio
import posixpath
import re
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import takewhile
from typing import Any

import msgspec

from treadle.budgets import Price
from treadle.concurrency import bury, watch
from treadle.messages import Usage
from treadle.mock.script import Turn, call
from treadle.mock.server import MockProvider
from treadle.ports import ModelPart, ModelRequest
from treadle.providers.openai_chat import OpenAIChat
from treadle.tools import JsonObject

__all__ = [
    "NO_TOOLS",
    "DemoModel",
    "Exchange",
    "Findings",
    "Kind",
    "Match",
    "Task",
    "Transcript",
    "brain",
    "gather",
    "introduce",
    "report",
    "understand",
]


# --- What the demo model makes of a task in plain words. A handful of patterns; calls nothing, and knows no result.


class Kind(StrEnum):
    """What a person may want of a folder."""

    SEARCH = "search"
    READ = "read"
    SURVEY = "survey"
    TALK = "talk"


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """A task as far as it was understood."""

    kind: Kind
    term: str = ""
    """The words to search for."""
    file: str = ""
    """The file that the task names."""
    glob: str = "**/*"
    """The files that it is about."""
    places: tuple[str, ...] = ()
    """Words that may name a folder to stay in."""

    @property
    def pattern(self) -> str:
        """The term as a regular expression that means its characters themselves."""
        return re.sub(r"([.^$*+?{}\[\]\\|()])", r"\\\1", self.term)


_QUOTED = re.compile(r"\"([^\"\n]+)\"|`([^`\n]+)`|“([^”\n]+)”|(?<!\w)'([^'\n]+)'(?!\w)")
_FILE = re.compile(
    r"(?<![\w*/.])(?:[\w.-]+/)*[\w.-]*\w\.[A-Za-z]\w{0,7}(?!\w)|\b(?:README|LICENSE|Makefile|Dockerfile)\b"
)
_GLOB = re.compile(r"(?<!\S)[\w./-]*\*[\w.*/{},-]*\w")
_PLACE = re.compile(r"\b(?:in|under|inside|below|within)\s+(?:the\s+|my\s+)?([\w./-]+)")
_TERM = re.compile(
    r"\b(?:mention(?:s|ing)?|contain(?:s|ing)?|search(?:ing)?(?: for)?|look(?:ing)? for|grep(?: for)?|find(?:ing)?"
    r"|occurrences? of|uses? of|where (?:is|are)|count|how many)\s+"
    r"(?:(?:the|all|any|every|each|me|word|words|string|text|of|lines?|with|that|mention|contain|say)\s+)*([\w@#-]+)",
    re.IGNORECASE,
)
_TYPICAL = re.compile(r"\b(error|warning|exception|failure|todo|fixme|bug)s?\b", re.IGNORECASE)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_SEARCHING = _words(
    "search searching find finding grep look looking mention mentions contain contains containing which where count "
    "occurrences lines"
)
_SURVEYING = _words(
    "list files file folder folders directory directories count many glob overview explore tree structure here"
)
_NO_TERM = _SURVEYING | _words("a an the in out it them something anything everything for and")
_MAX_CHARS = 2000
"""A task's beginning says what it asks; piped input may follow it."""
_NO_FILE = frozenset({"e.g", "i.e"})
_LANGUAGES = {
    "python": "py",
    "markdown": "md",
    "javascript": "js",
    "typescript": "ts",
    "rust": "rs",
    "java": "java",
    "toml": "toml",
    "json": "json",
    "yaml": "yaml",
}


def understand(message: str) -> Task:
    """Return what a task asks for. `talk` when it is nothing that one does with files."""
    message = message[:_MAX_CHARS]
    quoted = [next(filter(None, found)) for found in _QUOTED.findall(message)]
    plain = _QUOTED.sub(" ", message)
    known = frozenset(re.findall(r"[a-z]+", plain.lower()))
    file = _file(plain) or next((name for name in quoted if _FILE.fullmatch(name)), "")
    term = _term(plain, [text for text in quoted if text != file], known)
    return Task(
        kind=_kind(term, file, known),
        term=term[:100],
        file=file,
        glob=_glob(plain, known),
        places=tuple(place.strip("./") for place in _PLACE.findall(plain)),
    )


def _kind(term: str, file: str, known: frozenset[str]) -> Kind:
    if term:
        return Kind.SEARCH
    if file:
        return Kind.READ
    return Kind.SURVEY if known & _SURVEYING else Kind.TALK


def _file(plain: str) -> str:
    return next((name for name in _FILE.findall(_GLOB.sub(" ", plain)) if name.lower() not in _NO_FILE), "")


def _glob(plain: str, known: frozenset[str]) -> str:
    if written := _GLOB.search(plain):
        return written[0] if "/" in written[0] else f"**/{written[0]}"
    endings = [ending for language, ending in _LANGUAGES.items() if language in known]
    return f"**/*.{endings[0]}" if endings else "**/*"


def _term(plain: str, quoted: list[str], known: frozenset[str]) -> str:
    if quoted and known & (_SEARCHING | _SURVEYING):
        return quoted[0]
    if known & (_SEARCHING | {"many"}):
        without_files = _FILE.sub(" ", plain)
        named = (word for word in _TERM.findall(without_files) if word.lower() not in _NO_TERM | set(_LANGUAGES))
        word = next(named, "")
        if word:
            return _singular(word)
        if typical := _TYPICAL.search(without_files):
            return typical[1]
    return ""


def _singular(word: str) -> str:
    """Return `error` for `errors`: it finds both."""
    return word[:-1] if word.islower() and word.endswith("s") and not word.endswith("ss") and len(word) > 4 else word


# --- The demo model's view of one Chat Completions request: the task, the tools, and what its calls have brought so
# far.

_GO_ON = re.compile(r"(?:please\s+)?(?:continue|continue|carry on|keep going|resume|proceed)[\s.!]*", re.IGNORECASE)
_NEVER_RUN = ("skipped", "cancelled")
"""Such a call may be proposed again."""


class Exchange(msgspec.Struct, frozen=True, kw_only=True):
    """One call of the demo model, and what came back."""

    name: str
    arguments: JsonObject
    """Empty when they could not be read back."""
    result: JsonObject
    """The tool's own object; empty when there is none."""
    problem: str | None = None
    """What went wrong, in one word or code; None when the call is fine."""
    message: str = ""
    """The problem in a sentence."""

    @property
    def path(self) -> str:
        return str(self.arguments.get("path", "."))

    @property
    def lines(self) -> list[str]:
        output = self.result.get("output")
        return output.split("\n") if isinstance(output, str) and output else []


class Transcript(msgspec.Struct, frozen=True, kw_only=True):
    """What one request tells."""

    task: str
    """The words of the last user message that is more than a wish to continue."""
    tools: Mapping[str, JsonObject]
    """The schemas of the tools offered, by name."""
    exchanges: tuple[Exchange, ...]
    """Calls since that message that were run or refused, in order."""
    calls_so_far: int
    """Calls in the whole transcript: makes ids that are never used twice."""
    must_stop: bool
    """Whether the request allows no further call, or the last result says that a limit is reached."""
    stop_message: str = ""
    """The limit in the client's words."""

    def of(self, *names: str) -> Iterator[Exchange]:
        """Yield the calls of these tools that went well."""
        return (exchange for exchange in self.exchanges if exchange.name in names and exchange.problem is None)

    def has_proposed(self, name: str, arguments: JsonObject) -> bool:
        return any(one.name == name and one.arguments == arguments for one in self.exchanges)

    @property
    def problems(self) -> list[Exchange]:
        return [exchange for exchange in self.exchanges if exchange.problem is not None]

    @property
    def failures_in_a_row(self) -> int:
        return sum(1 for _ in takewhile(lambda one: one.problem is not None, reversed(self.exchanges)))


def _read_request(body: JsonObject) -> Transcript:
    """Read the body of a Chat Completions request."""
    request = msgspec.convert(body, _Request)
    users = [index for index, message in enumerate(request.messages) if _is_task(message)]
    recent = request.messages[users[-1] + 1 :] if users else []
    limits = _limits(recent)
    return Transcript(
        task=_text(request.messages[users[-1]].content) if users else "",
        tools={tool.function.name: tool.function.parameters for tool in request.tools or []},
        exchanges=tuple(one for one in _exchanges(recent) if one.problem not in _NEVER_RUN),
        calls_so_far=sum(len(message.tool_calls or []) for message in request.messages),
        must_stop=request.tool_choice == "none" or bool(limits),
        stop_message=limits[-1] if limits else "",
    )


def _is_task(message: "_Message") -> bool:
    """Tell a task from the wish to continue the one before."""
    return message.role == "user" and not _GO_ON.fullmatch(_text(message.content).strip())


class _Function(msgspec.Struct):
    name: str
    parameters: JsonObject = {}


class _Tool(msgspec.Struct):
    function: _Function


class _CalledFunction(msgspec.Struct):
    name: str
    arguments: str = ""


class _Call(msgspec.Struct):
    id: str
    function: _CalledFunction


class _Message(msgspec.Struct):
    role: str
    content: str | list[JsonObject] | None = None
    tool_calls: list[_Call] | None = None
    tool_call_id: str | None = None


class _Request(msgspec.Struct):
    messages: list[_Message]
    tools: list[_Tool] | None = None
    tool_choice: Any = "auto"  # a word, or the object that names one function


def _limits(messages: list[_Message]) -> list[str]:
    """Return what the results since the last response say of a limit. Once the run continues, it no longer holds."""
    newest = takewhile(lambda message: message.role == "tool", reversed(messages))
    results = [_object(_text(message.content)) or {} for message in newest]
    return [str(result.get("limit_message", "")) for result in results if result.get("limit_reached") is True]


def _exchanges(messages: list[_Message]) -> Iterator[Exchange]:
    results = {message.tool_call_id: _text(message.content) for message in messages if message.role == "tool"}
    for message in messages:
        for made in message.tool_calls or []:
            if made.id in results:
                yield _exchange(made.function, results[made.id])


def _exchange(function: _CalledFunction, content: str) -> Exchange:
    arguments, result = _object(function.arguments) or {}, _object(content)
    problem, message = _problem(result)
    return Exchange(
        name=function.name, arguments=arguments, result=result or {}, problem=problem, message=message or content[:200]
    )


def _problem(result: JsonObject | None) -> tuple[str | None, str]:
    match result:
        case None:
            return "not_readable", "The result came shortened or is not a JSON object."
        case {"status": "error", "type": "rejected", "details": [{"error": str(reason)}, *_]}:
            return "rejected", reason
        case {"status": "error", "type": str(kind)}:
            return kind, str(result.get("message", ""))
        case {"error": reason}:
            return "rejected", str(reason)
        case _:
            return None, ""


def _object(text: str) -> JsonObject | None:
    try:
        value = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return None
    return value if isinstance(value, dict) else None


def _text(content: str | list[JsonObject] | None) -> str:
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content)
    return content or ""


# --- What the demo model's calls have really brought: the files seen, the places searched, the lines that match.

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


# --- The demo model's answers: sentences made of the counts and lines that its calls really brought. Decides nothing.

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


# --- The demo model's brain: fixed rules from one Chat Completions request to one response. No language model, no I/O.

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
    transcript = _read_request(body)
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
    for field, wrong in (("max_matches", [200]), ("limit", [2000])):
        if _properties(transcript, name).get(field, {}).get("type") == "integer":
            calls[at] = (name, {**arguments, field: wrong})
            return


def _repaired(transcript: Transcript) -> list[tuple[str, JsonObject]]:
    broken = [one for one in transcript.problems if one.problem == "invalid_arguments"]
    calls = [(one.name, _mend(transcript, one)) for one in broken]
    return [made for made in calls if made[0] in transcript.tools and not transcript.has_proposed(*made)]


def _mend(transcript: Transcript, broken: Exchange) -> JsonObject:
    """Leave out what does not belong, and the lists around numbers."""
    properties = _properties(transcript, broken.name)
    return {
        field: value[0] if properties[field].get("type") == "integer" and isinstance(value, list) and value else value
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


# --- The demo model as a Model: its brain behind the mock provider, spoken to over real HTTP. Needs no key and no
# network.


class DemoModel:
    """A rule-based model that looks into files with grep, glob, read and list, and says that it is not a language model.

    Its server starts on loopback with the first request of an event loop, and ends with that loop.

    Example:
        agent = Agent(DemoModel(), tools=file_tools("."))
    """

    def __init__(self) -> None:
        self._servers: dict[asyncio.AbstractEventLoop, _Server] = {}
        watch(self)

    def after_fork(self) -> None:
        """The servers are the parent's."""
        bury(self._servers)
        self._servers = {}

    @property
    def name(self) -> str:
        """Always `demo`."""
        return "demo"

    @property
    def price(self) -> Price:
        """Nothing."""
        return Price(input=0, output=0)

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelPart]:
        """Send one request to the demo server and yield the parts of the one response, `ModelEnd` last.

        Raises:
            ModelError: The call failed.
        """
        client = await self._server().client()
        parts = client.stream(request)
        try:
            async for part in parts:
                yield part
        finally:
            if isinstance(parts, AsyncGenerator):
                await parts.aclose()

    def _server(self) -> "_Server":
        """Return the server of the running loop; forget those whose loops are closed."""
        self._servers = {loop: server for loop, server in self._servers.items() if not loop.is_closed()}
        return self._servers.setdefault(asyncio.get_running_loop(), _Server())


class _Server:
    """The demo server of one event loop, and its client."""

    def __init__(self) -> None:
        self._client: OpenAIChat | None = None
        self._starting = asyncio.Lock()
        self._running: AsyncGenerator[str, None] | None = None
        """Held, because the server ends when it is let go."""

    async def client(self) -> OpenAIChat:
        """Return the client; start the server first, if this is the first to ask."""
        async with self._starting:
            if self._client is None:
                self._running = _serve()  # anew after a start that failed or was cancelled
                self._client = OpenAIChat("demo", base_url=await anext(self._running), api_key=None)
            return self._client


async def _serve() -> AsyncGenerator[str, None]:
    """Run the server while this generator is held. `asyncio.run` closes what generators are open when it ends."""
    async with MockProvider(brain) as provider:
        yield provider.base_url
