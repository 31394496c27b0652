"""Protection: a call that writes a protected file is asked about, whoever allows it and in every mode. Asks nobody itself."""

from collections.abc import Sequence

import msgspec

from treadle.permissions.lines import JudgedLine, judged
from treadle.permissions.views import subjects_of
from treadle.tools import CheckedCall, Decision, DecisionKind, JsonObject, Subject
from treadle.tools.protected import is_protected, lies_in, makes_repository, may_name_protected

__all__ = ["PROTECTED", "with_protection"]

PROTECTED = "protected file"
"""The rule by which a person is asked."""

_PATHS = frozenset(
    [
        "path",
        "file",
        "file_path",
        "filepath",
        "filename",
        "file_name",
        "target",
        "target_file",
        "target_path",
        "destination",
        "dest",
        "notebook_path",
        "uri",
    ]
)
"""Arguments that name a file, of a tool that does not say what its arguments name."""


def with_protection(decision: Decision, call: CheckedCall, facts: JsonObject) -> Decision:
    """Return a question in place of a decision that lets a protected file be written, or one of the person's home be reached by another name.

    Args:
        facts: What tools have remembered in the session.
    """
    if decision.kind == DecisionKind.DENY:
        return decision
    line = judged(call, facts)
    found = None if call.effect.is_read else _protected(call, line)
    if found is not None:
        reason: str | None = (
            f"{found}: it controls what runs later, or holds keys. A person must allow each change to it."
        )
    else:
        reason = _of_the_home(call, line)
    if reason is None:
        return decision
    is_boxed = decision.kind == DecisionKind.SANDBOX or decision.consent == "sandbox"
    return msgspec.structs.replace(
        decision,
        kind=DecisionKind.ASK,
        rule=PROTECTED,
        reason=reason,
        scope="runtime",
        by="runtime",
        consent="sandbox" if is_boxed else "allow",
    )


def _of_the_home(call: CheckedCall, line: JudgedLine | None) -> str | None:
    """Say that a call reaches a protected file of the person's home by another name (a hard link); None where it surely does not."""
    if line is None:
        subjects = _subjects(call) if call.tool.subjects is not None else []
    elif line.is_decided and not line.line.patterns:
        subjects = [one.subject for one in line.reached]
    else:  # it may reach anything in its folder
        subjects = [one.subject for one in line.reached] + [Subject(names=(), extent="tree", among=line.among)]
    for one in subjects:
        path = next((name for name in one.names if name.startswith("/")), None)
        names = () if one.among is None else one.among.home_names(path, one.extent)
        if names is None:
            return "The call reaches too many files to check whether one is a hard link to a key or a startup file in your home folder."
        if names:
            return f"The call reaches {min(names)} in your home folder through a hard link: it holds keys, or controls what runs later."
    return None


def _protected(call: CheckedCall, line: JudgedLine | None) -> str | None:
    """Return what of a call is protected, in words; None where nothing is."""
    if line is not None:
        written = [one.subject for one in line.reached if one.access == "write"]
        return _protected_in(line, () if line.among is None else line.among.obeyed_files(_from_the_top(written)))
    for subject in _subjects(call):
        own = () if subject.among is None else subject.among.obeyed_files(_from_the_top([subject]))
        if _is_kept(subject.names, own) or makes_repository(subject.names):
            return f"{subject.names[0]} is protected"
    return None


def _from_the_top(subjects: Sequence[Subject]) -> list[str]:
    return [name for one in subjects for name in one.names if name.startswith("/")]


def _is_kept(names: Sequence[str], own: Sequence[str]) -> bool:
    """Whether one of the names of a thing is that of a protected file, or of what Treadle itself obeys, wherever that lies."""
    return is_protected(names) or lies_in(names, own)


def _protected_in(line: JudgedLine, own: Sequence[str]) -> str | None:
    """Return what of a line of shell is protected, in words; None where nothing is."""
    written = [one.subject for one in line.reached if one.access == "write"]
    found = next(filter(None, (_written(one, own) for one in written)), None)
    if found is not None:
        return found
    inside = next((names for names in line.swept if _is_kept(names, own)), None)
    if inside is not None:
        return f"The line changes or removes a folder that contains the protected file {inside[0]}"
    if line.unseen:
        return f"The line changes or removes more files than can be searched for protected ones: {line.unseen}"
    if line.is_decided:
        return None
    if may_name_protected(line.line.source) or any(_is_kept(names, own) for names in line.mentioned):
        return "The line names a protected file, and what it does with that file is unknown"
    unknown = next((one.text for one in line.unknown), "")
    return f"The line may write a protected file: what {unknown!r} expands to is unknown" if unknown else None


def _written(written: Subject, own: Sequence[str]) -> str | None:
    """Say that a file which is written is a protected one, perhaps by another name (a hard link); None where it is not."""
    if _is_kept(written.names, own):
        return f"The line may write the protected file {written.names[0]}"
    path = next((name for name in written.names if name.startswith("/")), None)
    if written.among is None or path is None:
        return None
    names = written.among.all_names(path)
    if names is None:
        return f"{written.names[0]} has several names (hard links), and there are too many files to find them all"
    root = path.removesuffix(written.names[0])
    found = next((name for name in names if _is_kept([name, f"{root}{name}"], own)), None)
    return None if found is None else f"{written.names[0]} is a hard link to the protected file {found}"


def _subjects(call: CheckedCall) -> list[Subject]:
    found = subjects_of(call)
    return _as_written(call) if found is None else [one for one in found.values() if isinstance(one, Subject)]


def _as_written(call: CheckedCall) -> list[Subject]:
    written = (value for key, value in call.arguments.items() if key in _PATHS)
    return [Subject(names=(value,)) for value in written if isinstance(value, str)]
