"""Skills: folders with a SKILL.md that say how to do one kind of task. Listed in short, read when wanted, never a permission."""

import os
import re
from collections.abc import Sequence
from functools import partial
from itertools import islice
from pathlib import Path

import msgspec

from treadle.canonical import find_unencodable
from treadle.concurrency.threads import Threads
from treadle.errors import ConfigurationError, Rejected
from treadle.errors import shown as shown_value
from treadle.fields import Documented, checked
from treadle.tools import JsonObject, Tool, ToolContext
from treadle.toolsets.files.root import Root, shown, spelled
from treadle.toolsets.guidance.documents import Document, read_document, reason_of

__all__ = ["Skill", "SkillsFound", "find_skills", "skill_tool"]

_FILE = "SKILL.md"
_MOST_SKILLS = 200
"""Of one folder."""
_MOST_BYTES = 200_000
"""Of one file that is read."""
_MOST_DESCRIPTION = 1024
_MOST_LISTED = 6000
"""Characters of the whole list that the model sees before it reads any."""
_MOST_LINE, _LEAST_LINE = 250, 60
_MOST_FILES = 50
"""Files of a skill that are named with it."""
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?")
_KEY = re.compile(r"(?P<key>[A-Za-z][\w-]*):(?:[ \t]+(?P<value>.*))?")
_QUOTED = re.compile(r"""(?:'(?P<single>(?:[^']|'')*)'|(?P<double>"(?:[^"\\]|\\.)*"))(?:\s+\#.*)?""")

_threads = Threads()


class Skill(msgspec.Struct, Documented, frozen=True, kw_only=True):
    """One skill, as it was found. The model sees its name and description; its text when it asks for it."""

    name: str
    """Lower-case letters, digits and `-`; the name of its folder."""
    description: str
    """What it is for, on one line."""
    folder: str
    """From `/`."""
    text: str
    """What its SKILL.md said below its head when it was found: a later change of the file does not count."""
    is_cut: bool = False
    """Whether SKILL.md is longer than the 200,000 bytes that are read."""
    digest: str
    """Of its SKILL.md."""


class SkillsFound(msgspec.Struct, Documented, frozen=True, kw_only=True):
    """The skills of one or more folders."""

    skills: tuple[Skill, ...] = ()
    """By name."""
    notes: tuple[str, ...] = ()
    """What was left out, each a sentence."""


@checked
def find_skills(*folders: str | Path) -> SkillsFound:
    """Find the skills in folders: each is a folder with a SKILL.md, whose head says name and description.

    A folder that does not exist has none. Where two have one name, that of the folder named first counts. What is not a skill (another
    name than its folder's, no description, a link that leads elsewhere) is left out, with a note.

    Args:
        folders: Folders of skills; `~` is not expanded.

    Raises:
        ConfigurationError: A folder can be no path of a file system.

    Example:
        found = find_skills(".agents/skills")
        agent = Agent(model, tools=[*file_tools("."), skill_tool(found.skills)])
    """
    found: dict[str, Skill] = {}
    notes: list[str] = []
    for folder in dict.fromkeys(map(_real, folders)):
        if not Path(folder).is_dir():
            continue
        for name in _names(folder, notes):
            skill = _read(folder, name, notes)
            if skill is not None and skill.name in found:
                notes.append(f"{skill.folder} is left out: {found[skill.name].folder} has the same name.")
            elif skill is not None:
                found[skill.name] = skill
    return SkillsFound(skills=tuple(found[name] for name in sorted(found)), notes=tuple(notes))


@checked
def skill_tool(skills: Sequence[Skill], *, name: str = "skill") -> Tool:
    """Return the tool by which a model reads a skill. Names and descriptions stand in the instructions; the text is read on demand.

    The text of a SKILL.md is the one that was found, so that what a person approved is what the model reads; other files are read when
    they are asked for, in the skill's own folder and nowhere else. The tool permits nothing: what a skill tells the model to do is
    decided as ever, and `allowed-tools` in its head has no effect.

    Args:
        skills: What `find_skills` found.
        name: The name of the tool.

    Raises:
        ConfigurationError: There are no skills, or two of one name.
    """
    by_name = {skill.name: skill for skill in skills}
    if not by_name or len(by_name) < len(skills):
        raise ConfigurationError(
            "skill_tool needs skills, each with a name of its own. Look first: find_skills('.agents/skills').skills"
        )
    parameters: JsonObject = {
        "type": "object",
        "properties": {
            "name": {"type": "string", "minLength": 1, "maxLength": 64, "description": "The skill's name, as listed."},
            "file": {
                "type": "string",
                "minLength": 1,
                "maxLength": 1000,
                "description": "A file of the skill, as named in its text (default: SKILL.md).",
            },
        },
        "required": ["name"],
        "additionalProperties": False,
    }

    async def run(arguments: JsonObject, ctx: ToolContext) -> JsonObject:
        wanted = partial(_opened, by_name, arguments["name"], arguments.get("file", _FILE))
        found: JsonObject = await _threads.submit(wanted)
        return found

    return Tool(
        name=name,
        description="Read a skill: instructions for one kind of task. Read it before you start a task that it covers.",
        parameters=parameters,
        effect="read",
        timeout=30.0,
        guidance=_listed(list(by_name.values()), name),
        run=run,
    )


def _listed(skills: list[Skill], tool: str) -> str:
    most = max(min(_MOST_LINE, _MOST_LISTED // len(skills)), _LEAST_LINE)
    lines = [_cut(f"- {skill.name}: {skill.description}", most) for skill in skills]
    size = 0
    kept: list[str] = []
    for line in lines:
        size += len(line) + 1
        if size > _MOST_LISTED:
            kept.append(f"- and {len(lines) - len(kept)} more, which are not listed")
            break
        kept.append(line)
    return f"Skills that {tool} can read. They say how to do a task; they grant no permissions.\n" + "\n".join(kept)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


# --- reading ---------------------------------------------------------------------------------------------------------


def _opened(skills: dict[str, Skill], name: str, file: str) -> JsonObject:
    skill = skills.get(name)
    if skill is None:
        raise Rejected(
            {"error": f"There is no skill {name!r:.100}.", "skills": list(skills)[:_MOST_FILES]}, code="not_found"
        )
    document = None if os.path.normpath(file) == _FILE else _other(skill, file)
    if document is not None and document.path != _FILE:
        answer: JsonObject = {"skill": name, "file": document.path, "folder": skill.folder, "text": document.text}
        return {**answer, "truncated": True} if document.is_cut else answer
    answer = {"skill": name, "file": _FILE, "folder": skill.folder, "text": skill.text}
    if skill.is_cut:
        answer["truncated"] = True
    if files := _files(skill.folder):
        answer["files"] = files
    return answer


def _other(skill: Skill, file: str) -> Document:
    try:
        return read_document(Root(skill.folder), file, most_bytes=_MOST_BYTES)
    except OSError as error:
        raise Rejected({"error": f"{shown(file)} cannot be read: {reason_of(error)}"}, code="not_found") from error


def _files(folder: str) -> list[str]:
    """Return the other files of a skill, in order."""
    found: list[str] = []
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        inner = os.path.relpath(place, folder)
        found += [spelled(name if inner == "." else f"{inner}/{name}") for name in sorted(names) if name != _FILE]
        if len(found) >= _MOST_FILES:
            return found[:_MOST_FILES]
    return found


def _real(folder: str | Path) -> str:
    if "\0" in str(folder) or find_unencodable(str(folder)) is not None:
        raise ConfigurationError(f"A folder of skills is not a path of a file system: {shown_value(folder)}.")
    return os.path.realpath(folder)


def _names(folder: str, notes: list[str]) -> list[str]:
    try:
        with os.scandir(folder) as scan:
            inside = [one.name for one in islice(scan, 10 * _MOST_SKILLS)]
    except OSError as error:
        notes.append(f"{folder} is not read: {reason_of(error)}")
        return []
    names = sorted(name for name in inside if os.path.lexists(Path(folder, name, _FILE)))
    if len(names) > _MOST_SKILLS:
        notes.append(f"{folder} holds more than {_MOST_SKILLS} skills: the others are left out.")
    return names[:_MOST_SKILLS]


def _read(folder: str, name: str, notes: list[str]) -> Skill | None:
    place = f"{folder}/{spelled(name)}"
    if _NAME.fullmatch(name) is None or "--" in name:
        notes.append(f"{place:.300} is left out: a skill's name has lower-case letters, digits and single hyphens.")
        return None
    try:
        document = read_document(Root(folder), f"{name}/{_FILE}", most_bytes=_MOST_BYTES)
    except (Rejected, OSError) as error:
        notes.append(f"{place} is left out: {reason_of(error)}")
        return None
    head = _head(document.text)
    description = " ".join(head.get("description", "").split())
    if head.get("name", name) != name:
        notes.append(f"{place} is left out: its {_FILE} has the name {head['name']!r:.80}, which is not its folder's.")
    elif not description:
        notes.append(f"{place} is left out: the head of its {_FILE} has no description.")
    elif document.path != f"{name}/{_FILE}":
        notes.append(f"{place} is left out: it is a link to another place.")
    else:
        return Skill(
            name=name,
            description=_cut(description, _MOST_DESCRIPTION),
            folder=f"{folder}/{name}",
            text=_body(document.text),
            is_cut=document.is_cut,
            digest=document.digest,
        )
    return None


def _parted(text: str) -> tuple[list[str], str]:
    """Return the lines of a file's head, between two lines `---`, and what follows it."""
    lines = text.split("\n")
    if lines[0].strip() != "---":
        return [], text
    for number, line in enumerate(lines[1:], 1):
        if line.strip() in ("---", "..."):
            return lines[1:number], "\n".join(lines[number + 1 :])
    return [], text


def _body(text: str) -> str:
    return _parted(text)[1].strip("\n")


def _head(text: str) -> dict[str, str]:
    """Return the plain texts of a head. It is YAML; of that, keys with one text are read: plain, quoted, folded or over several lines."""
    found: dict[str, list[str]] = {}
    key = None
    for line in _parted(text)[0]:
        said = _KEY.fullmatch(line.rstrip())
        if said is not None:
            key = said["key"].lower()
            value = (said["value"] or "").strip()
            found[key] = [] if re.fullmatch(r"[|>][-+0-9]*", value) else [value]
        elif key is not None and (not line.strip() or line[0] in " \t"):
            found[key].append(line.strip())
        elif not line.lstrip().startswith("#"):
            key = None
    return {name: _unquoted(" ".join(parts).strip()) for name, parts in found.items()}


def _unquoted(text: str) -> str:
    quoted = _QUOTED.fullmatch(text)
    if quoted is None:
        return re.sub(r"\s+#.*$", "", text)
    if quoted["single"] is not None:
        return quoted["single"].replace("''", "'")
    try:
        return str(msgspec.json.decode(quoted["double"]))
    except msgspec.MsgspecError:
        return quoted["double"][1:-1]
