"""Reviews: what a person who is asked about a call is shown, and which rules could spare the question. Asks nobody and runs nothing."""

import re
import shlex

import msgspec

from treadle.canonical import copied
from treadle.permissions.lines import JudgedLine, judged
from treadle.permissions.policies import allow
from treadle.permissions.rules import Rule
from treadle.permissions.views import facts_in, subjects_of
from treadle.ports import Decision, SessionView
from treadle.shell.losing import losing_words
from treadle.shell.rules import suggested
from treadle.tools import CheckedCall, Effect, JsonObject, Preview, Review, Subject

__all__ = ["escaped", "offered_rules", "review_of", "start_of"]

_MAX_PREVIEW = 200_000
"""Characters of a preview. The arguments of a request are whole in any case."""
_MAX_WORDS = 2_000
_INVISIBLE = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u2d7f\u3164\uffa0\ufffc\U00016fe4\U0001d159")
"""Letters and marks that show nothing, though their category says otherwise."""
_EXPECTED = {
    Effect.READ: "Nothing is changed.",
    Effect.IDEMPOTENT: "The change is made once, however often the call is repeated.",
    Effect.KEYED: "The change is made once: the service recognizes a repeated call by its key.",
    Effect.UNSAFE: "The change is made, and repeating the call makes it again.",
}
_UNKNOWN_ROLLBACK = "Unknown: the tool does not say how to undo it."
_GLOB_SIGNS = re.compile(r"[*?\[,]")


def review_of(call: CheckedCall, facts: JsonObject) -> Review:
    """Return what a person is shown of a call, whole: what the tool does not say is filled in. Every text is escaped.

    Args:
        facts: What tools have remembered in the session.
    """
    own = _said_by(call, facts)
    line = judged(call, facts)
    preview = own.preview or (_arguments(call) if line is None else _command(line, start_of(call)))
    return Review(
        action=_words(own.action) or ("Run a shell command" if line is not None else f"Call {_words(call.name)}"),
        target=_names(own.target) or _target(call, line),
        preview=_bounded(preview),
        expected_result=_words(own.expected_result) or _EXPECTED[call.effect],
        rollback=_words(own.rollback) or ("Not needed." if call.effect.is_read else _UNKNOWN_ROLLBACK),
    )


def offered_rules(call: CheckedCall, decision: Decision, session: SessionView) -> tuple[str, ...]:
    """Return the narrow rules that would let this very call run without a question; none where no rule can vouch for it.

    Each is tried on the call before it is offered. None is offered for a shell, an interpreter or a wrapper, nor where the question does
    not come from a default: a rule that asks, a protected file or a tool that requires approval would ask again.

    Args:
        decision: Why a person is asked.
    """
    if decision.scope not in ("default", "tool") or call.tool.requires_approval or decision.consent != "allow":
        return ()
    line = judged(call, facts_in(session))
    texts = _path_rules(call) if line is None else [f"{call.name}({one})" for one in suggested(line.line)]
    if not texts:
        return ()
    proven = allow(*texts).decide(call, session)
    return tuple(texts) if proven is not None and proven.kind == "allow" else ()


def start_of(call: CheckedCall) -> str:
    """Return in one sentence where the line of a call starts; nothing where that is the root folder."""
    return "" if call.folder == "." else f"It starts in the folder {_names(call.folder)}."


def escaped(text: str) -> str:
    """Return a text with every character visible: none of it hides, repaints or changes the direction of another. Line feeds and tabs stay."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(one if one in "\n\t" or _is_visible(one) else _escape(one) for one in text)


def _said_by(call: CheckedCall, facts: JsonObject) -> Review:
    if call.tool.review is None:
        return Review()
    try:
        said = call.tool.review(copied(call.arguments), copied(facts))
        return msgspec.convert(msgspec.to_builtins(said), Review) if isinstance(said, Review) else Review()
    except Exception:  # noqa: BLE001 - the author's function: a person is asked anyway, with the arguments
        return Review()


def _arguments(call: CheckedCall) -> Preview:
    whole = msgspec.json.format(msgspec.json.encode(call.arguments), indent=2)
    return Preview(kind="arguments", text=whole.decode())


def _command(line: JudgedLine, start: str) -> Preview:
    """Say what a line would start, simple command by simple command, what it would write, and what nobody can say."""
    found: list[str] = [start] if start else []
    for one in line.line.invocations:
        found.append(f"{'  ' * len(one.via)}{'may start: ' if one.via else ''}{shlex.join(one.words)}")
        found += [f"{'  ' * len(one.via)}  ! {risk}" for risk in one.risks]
        found += [
            f"{'  ' * len(one.via)}  ! `{word}` deletes or overwrites something, or skips a check."
            for word in losing_words(one.words)
        ]
    found += [f"{'writes' if one.writes else 'reads'} {one.target} ({one.operator})" for one in line.line.redirections]
    found += [f"outside the root folder: {one.subject.names[-1]}" for one in line.reached if one.is_outside]
    found += [f"? {one.shown}" for one in line.line.doubts]
    return Preview(kind="command", text="\n".join([line.line.source, "", *dict.fromkeys(found)]))


def _target(call: CheckedCall, line: JudgedLine | None) -> str:
    if line is not None:
        programs = dict.fromkeys(one.program for one in line.line.invocations if not one.via)
        return _words(", ".join(programs))
    return _names(", ".join(subject.names[0] for subject in _subjects(call).values() if subject.names))


def _subjects(call: CheckedCall) -> dict[str, Subject]:
    found = subjects_of(call) or {}
    return {key: one for key, one in found.items() if isinstance(one, Subject)}


def _path_rules(call: CheckedCall) -> list[str]:
    """Return a rule on the one thing that a call names. A call that names nothing, or several things, has none."""
    subjects = _subjects(call)
    if len(subjects) != 1:
        return []
    ((key, subject),) = subjects.items()
    if not subject.names or subject.extent != "itself" or _words(subject.names[0]) != subject.names[0]:
        return []  # a name that is not what a person would read, were it shown on one line
    rule = f"{call.name}({key}={_GLOB_SIGNS.sub(_bracketed, subject.names[0])})"
    try:
        Rule.parse(rule)
    except Exception:  # noqa: BLE001 - a name that no rule can hold
        return []
    return [rule]


def _bracketed(found: "re.Match[str]") -> str:
    return f"[{found[0]}]"


def _bounded(preview: Preview) -> Preview:
    text = escaped(preview.text)
    if len(text) <= _MAX_PREVIEW:
        return Preview(kind=preview.kind, text=text, is_whole=preview.is_whole)
    left_out = len(text) - _MAX_PREVIEW
    shown = f"{text[:_MAX_PREVIEW]}\n({left_out:,} more characters are not shown.)"
    return Preview(kind=preview.kind, text=shown, is_whole=False)


def _words(text: str) -> str:
    """Return words on one line."""
    return " ".join(escaped(text[:_MAX_WORDS]).split())


def _names(text: str) -> str:
    """Return names on one line: spaces, tabs and line feeds are part of a file's name, and tell it from another."""
    return escaped(text[:_MAX_WORDS]).replace("\n", "\\n").replace("\t", "\\t")


def _is_visible(character: str) -> bool:
    is_mark = character in _INVISIBLE or "\ufe00" <= character <= "\ufe0f" or "\u180b" <= character <= "\u180f"
    return character.isprintable() and not is_mark and not "\U000e0000" <= character <= "\U000e0fff"


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
