"""Modes: what a session's mode makes of a decision. Values only: a mode is changed by a person, through the session's inbox."""

import inspect
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import structs

from treadle.canonical import copied
from treadle.errors import ConfigurationError, shown
from treadle.fields import Documented, NamedOptions, checked
from treadle.permissions.lines import JudgedLine, facts_in, has_other_names, judged, subjects_of
from treadle.permissions.policies import FirstOf, NamedPolicy, allow, ask, deny, stricter
from treadle.permissions.rules import Subjects
from treadle.ports import SessionView
from treadle.shell.judging import reads_only
from treadle.shell.programs import program_name
from treadle.tools import CheckedCall, Decision, DecisionKind, JsonObject, Mode, Risk, Subject
from treadle.tools.needs import UNCONFINED, Need
from treadle.tools.protected import is_protected, lies_in, makes_repository, may_name_protected

__all__ = [
    "BORDER",
    "PROTECTED",
    "UNCONFINED_RULE",
    "CanUseTool",
    "RuleSet",
    "Scoped",
    "can_use_tool",
    "in_mode",
    "is_boxed",
    "is_of_rules",
    "may_be_spared",
    "may_start_again",
    "scoped",
    "with_approval",
    "with_protection",
]


def in_mode(mode: Mode, decision: Decision, call: CheckedCall) -> Decision:
    """Return the decision as it is in a mode. What is denied stays denied in every mode.

    `plan` lets calls run that only read. `deny-unlisted` denies what a person would be asked about. `bypass` asks no person, but where the
    runtime itself asks (about a call that may act a second time, a protected file, a line of which a rule that denies cannot say whether it
    applies) or a hook. `accept-edits` lets calls run that change files of the working folder, where only a default asks. `auto` also lets those
    run that a sandbox confines, as long as nothing of its border is lifted but by a rule. `ask` changes nothing.
    """
    if decision.kind == DecisionKind.DENY:
        return decision
    match mode:
        case "accept-edits" | "auto" if decision.kind == DecisionKind.ASK and _is_spared(mode, decision, call):
            return _lifted(decision, mode)
        case "plan" if not call.effect.is_read:
            return _denied(decision, mode, "Plan mode allows no changes. Describe what you would do instead.")
        case "deny-unlisted" if decision.kind == DecisionKind.ASK:
            return _denied(decision, mode, "This mode asks nobody: only calls that a rule allows may run.")
        case "bypass" if decision.kind == DecisionKind.ASK and decision.scope not in ("runtime", "hook"):
            return _lifted(decision, mode)
        case _:
            return decision


def may_start_again(mode: Mode, call: CheckedCall) -> bool:
    """Whether a call that has started may be tried again, where a person has changed the mode since it was decided on."""
    decision = call.decision
    if decision is None or call.effect.is_read or decision.mode == mode:
        return True
    if decision.rule == f"mode {decision.mode}":
        return False  # only that mode has let it start
    return in_mode(mode, decision, call).kind != DecisionKind.DENY


def _is_spared(mode: Mode, decision: Decision, call: CheckedCall) -> bool:
    """Whether `accept-edits` or `auto` lets a call run that a default asks about."""
    return _is_edit(decision, call) or (mode == "auto" and decision.scope == "default" and is_boxed(decision))


def _is_edit(decision: Decision, call: CheckedCall) -> bool:
    """Whether only a default asks, and the call changes files of the working folder and nothing else."""
    return decision.scope in ("default", "tool") and call.risk == Risk.WRITE_LOCAL and call.permission != "always_ask"


def _lifted(decision: Decision, mode: Mode) -> Decision:
    kind = DecisionKind.SANDBOX if decision.consent == "sandbox" else DecisionKind.ALLOW
    return msgspec.structs.replace(decision, kind=kind, rule=f"mode {mode}", scope="session", by="person")


def _denied(decision: Decision, mode: Mode, reason: str) -> Decision:
    return msgspec.structs.replace(
        decision, kind=DecisionKind.DENY, rule=f"mode {mode}", reason=reason, scope="session", by="person", message=""
    )


# --- Callbacks: a permission function in the manner of other agents, `can_use_tool(name, input, context)`, as a policy.
# Asks nobody itself.

_Answer: TypeAlias = "Decision | Mapping[str, Any] | bool | None"
_Function: TypeAlias = "Callable[[str, JsonObject, SessionView], _Answer | Awaitable[_Answer]]"


class CanUseTool:
    """A policy that asks one function about every call."""

    def __init__(self, function: _Function) -> None:
        self._function = function
        self._name = getattr(function, "__name__", type(function).__name__)

    async def decide(self, call: CheckedCall, session: SessionView) -> Decision | None:
        """Return what the function says. One that raises, or answers with something else, denies the call."""
        given = copied(call.arguments)
        said = self._function(call.name, given, session)
        said = await said if inspect.isawaitable(said) else said
        return self._read(said, call)

    def _read(self, said: Any, call: CheckedCall) -> Decision | None:
        match said:
            case None | Decision():
                return said
            case True:
                return Decision(kind="allow", rule=self._name)
            case False:
                return Decision(kind="deny", rule=self._name)
            case Mapping():
                return self._read_object(said, call)
            case _:
                raise ConfigurationError(
                    f"{self._name} answered with {shown(said)}. Return a Decision, {{'behavior': 'allow'}}, True, False or None."
                )

    def _read_object(self, said: Mapping[str, Any], call: CheckedCall) -> Decision:
        behavior, changed = said.get("behavior"), said.get("updatedInput", said.get("updated_input"))
        if behavior not in ("allow", "deny", "ask"):
            raise ConfigurationError(f"{self._name}: behavior must be allow, deny or ask; got {shown(behavior)}.")
        is_changed = behavior == "allow" and changed is not None and changed != call.arguments
        return Decision(
            kind=behavior,
            rule=self._name,
            message=str(said.get("message") or ""),
            interrupt=behavior == "deny" and said.get("interrupt") is True,
            arguments=changed if is_changed else None,
        )


@checked
def can_use_tool(function: _Function) -> CanUseTool:
    """Return a policy that asks a function about every call: `async def can_use_tool(name, arguments, session)`.

    It returns `{"behavior": "allow", "updatedInput": {...}}`, `{"behavior": "deny", "message": ..., "interrupt": True}`, a `Decision`,
    True, False, or None for no opinion. Changed arguments are validated like the model's own. A tool asks the same function about
    what it does by itself with `ctx.decide(...)`.

    Example:
        agent = Agent(model, tools=tools, policy=can_use_tool(my_function))

    Raises:
        ConfigurationError: It is not a function.
    """
    if not callable(function):
        raise ConfigurationError(
            f"can_use_tool() takes a function of (name, arguments, session); got {shown(function)}."
        )
    return CanUseTool(function)


# --- Required: what a decision becomes where the tool itself requires that a person allows the call. Asks nobody.


BORDER = "needs the border lifted"
UNCONFINED_RULE = "asks to leave the sandbox"
"""The rules by which a person is asked about a call in a sandbox."""


def with_approval(decision: Decision, call: CheckedCall, lifts: Callable[[Need], Need] | None = None) -> Decision:
    """Return a decision that lets the call run only once a person has allowed it, where its tool requires that.

    A call that was decided to run in a sandbox is asked about where it needs more of its border lifted than the decision lifts.

    Args:
        lifts: What the sandbox lifts for a need, where it cannot lift each alone.
    """
    needs = call.needs if is_boxed(decision) else ()
    if lifts is not None and needs:
        decision = structs.replace(decision, lifted=_liftable(decision.lifted, needs, lifts))
        needs = tuple(dict.fromkeys(map(lifts, needs)))
    missing = tuple(one.text for one in needs if one.text not in decision.lifted)
    if UNCONFINED.text in missing:
        is_asked = UNCONFINED in call.needs
        why = (
            "The call asks to run without the sandbox."
            if is_asked
            else f"The call needs {call.needs[0].text}, which the sandbox cannot lift alone: it would run without the sandbox."
        )
        asked = _required(decision, UNCONFINED_RULE, why, by="runtime", to="allow")
        return msgspec.structs.replace(asked, lifted=(UNCONFINED.text,))
    if missing:
        why = f"The call needs more than the sandbox allows: {', '.join(missing)}."
        asked = _required(decision, BORDER, why, by="runtime", to="sandbox")
        return msgspec.structs.replace(asked, lifted=(*decision.lifted, *missing))
    if decision.kind == DecisionKind.SANDBOX and UNCONFINED.text in decision.lifted:  # a rule lets the program out
        decision = structs.replace(decision, kind=DecisionKind.ALLOW)
    if decision.kind not in (DecisionKind.ALLOW, DecisionKind.SANDBOX) or call.permission != "always_ask":
        return decision
    consent = "sandbox" if decision.kind == DecisionKind.SANDBOX else decision.consent
    return _required(decision, f"tool {call.name} permission", "A person must allow this call.", by="tool", to=consent)


def _liftable(lifted: Sequence[str], needs: Sequence[Need], lifts: Callable[[Need], Need]) -> tuple[str, ...]:
    """Return what rules lift in the form in which a sandbox can. A program whose rule lets it write the history leaves the sandbox; a rule on one
    host opens no other."""
    needed = {one.text: one for one in needs}
    kept: list[str] = []
    for text in lifted:
        need = needed.get(text)
        closest = None if need is None else lifts(need)
        if need is None or closest is None:
            kept.append(text)
        elif need.kind != "network" or closest == need:
            kept.append(closest.text)
    return tuple(kept)


def _required(decision: Decision, rule: str, reason: str, *, by: str, to: str) -> Decision:
    """Return the decision to ask a person, whose consent decides so."""
    return msgspec.structs.replace(
        decision, kind=DecisionKind.ASK, rule=rule, reason=reason, scope=by, by=by, consent=to
    )


def is_boxed(decision: Decision) -> bool:
    """Whether the call runs in a sandbox, if it runs."""
    return decision.kind == DecisionKind.SANDBOX or (
        decision.kind == DecisionKind.ASK and decision.consent == "sandbox"
    )


# --- Scopes: the rules of a session, a project, a user and an organisation as one policy. Deny beats ask beats allow,
# whatever the order.

_ORDER = ("managed", "user", "project", "session")
"""Who is named first where several scopes say the same."""


class RuleSet(msgspec.Struct, Documented, frozen=True, kw_only=True, metaclass=NamedOptions):
    """The rules of one scope.

    Example:
        RuleSet(scope="project", allow=("shell(make test)",), ask=("shell(git push:*)",), deny=("read(path=.env)",))
    """

    scope: Literal["managed", "user", "project", "session"]
    """Where they come from. A project's rules count once its folder is trusted: leave them out before."""
    allow: tuple[str, ...] = ()
    """What runs without a question."""
    ask: tuple[str, ...] = ()
    """What a person is asked about, though another rule allows it."""
    deny: tuple[str, ...] = ()
    """What does not run, whatever another rule says."""
    reason: str = ""
    """Why it is denied; the model reads it."""
    origin: str = ""
    """Where they are written, such as a file, for messages about one of them."""

    def __post_init__(self) -> None:
        if self.scope not in _ORDER:
            raise ConfigurationError(f"RuleSet: scope must be one of {', '.join(_ORDER)}; got {shown(self.scope)}.")
        for name in ("allow", "ask", "deny"):
            rules = getattr(self, name)
            if isinstance(rules, str) or not isinstance(rules, Sequence):
                raise ConfigurationError(f"RuleSet: {name} must be a list of rules; got {shown(rules)}.")


class Scoped(msgspec.Struct, frozen=True, kw_only=True):
    """The policy of several scopes."""

    denies: tuple[NamedPolicy, ...]
    asks: tuple[NamedPolicy, ...]
    allows: tuple[NamedPolicy, ...]
    together: tuple[NamedPolicy, ...]
    """All that is allowed as one: the commands of a line may be allowed by rules of different scopes."""

    @property
    def policies(self) -> tuple[NamedPolicy, ...]:
        """What it is made of."""
        return (*self.denies, *self.asks, *self.allows)

    def decide(self, call: CheckedCall, session: SessionView) -> Decision | None:
        """Return what the rules say together: what any scope denies is denied, and what any asks is asked about."""
        line = None if call.tool.line is None else judged(call, facts_in(session))
        subjects = Subjects(call)
        strictest: Decision | None = None
        for policy in (*self.denies, *self.asks):
            found = policy.judge(call, subjects.alike(), line)
            if found is not None and found.kind == DecisionKind.DENY:
                return found
            if found is not None:
                strictest = found if strictest is None else _asked(strictest, found)
        if strictest is not None:
            return strictest
        answers = (policy.judge(call, subjects.alike(), line) for policy in (*self.allows, *self.together))
        return next((one for one in answers if one is not None), None)


def is_of_rules(policy: object) -> bool:
    """Whether a policy consists of rules alone: it waits for nothing, and changes nothing that it is shown."""
    if type(policy) is FirstOf:
        return all(map(is_of_rules, policy.policies))
    return type(policy) in (NamedPolicy, Scoped)


def scoped(*sets: RuleSet) -> Scoped:
    """Return the rules of several scopes as one policy.

    Example:
        policy = scoped(RuleSet(scope="user", allow=("shell(git log:*)",)), RuleSet(scope="managed", deny=("fetch",)))

    Raises:
        ConfigurationError: A rule is invalid.
    """
    if wrong := [one for one in sets if not isinstance(one, RuleSet)]:
        raise ConfigurationError(f"scoped() takes RuleSet(scope=...); got {shown(wrong[0])}.")
    ordered = sorted(sets, key=lambda one: _ORDER.index(one.scope))
    allowing = [one for one in ordered if one.allow]
    together = [rule for one in allowing for rule in one.allow]
    named = "+".join(dict.fromkeys(one.scope for one in allowing))
    return Scoped(
        denies=tuple(_from(one, deny(*one.deny, reason=one.reason, scope=one.scope)) for one in ordered if one.deny),
        asks=tuple(_from(one, ask(*one.ask, scope=one.scope)) for one in ordered if one.ask),
        allows=tuple(_from(one, allow(*one.allow, scope=one.scope)) for one in allowing),
        together=(allow(*together, scope=named),) if len(allowing) > 1 else (),
    )


def _from(rules: RuleSet, policy: NamedPolicy) -> NamedPolicy:
    return msgspec.structs.replace(policy, origin=rules.origin) if rules.origin else policy


def _asked(one: Decision, other: Decision) -> Decision:
    """Return the question of two that no mode lifts, if one of them is such."""
    return other if other.scope == "runtime" and one.scope != "runtime" else stricter(one, other)


# --- Protection: a call that writes a protected file is asked about, whoever allows it and in every mode. Asks nobody
# itself.

PROTECTED = "protected file"
UNREAD = "default for a line that is not understood"
"""The rules by which a person is asked."""

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
    if found is None and line is not None and not is_boxed(decision) and not _IS_EXACT.match(decision.rule):
        found = _named(call, line)
    reason = (
        f"{found}: it controls what runs later, or holds keys. A person must allow each change to it."
        if found is not None
        else _of_the_home(call, line)
        if not is_boxed(decision)
        else None  # in a sandbox they are covered
    )
    if reason is None and decision.kind == DecisionKind.ALLOW and _is_by_rule(decision) and line and line.line.doubts:
        return structs.replace(
            decision, kind=DecisionKind.ASK, rule=UNREAD, reason=line.undecided, scope="default", by="default"
        )
    if reason is None:
        return decision
    consent: Literal["allow", "sandbox"] = "sandbox" if is_boxed(decision) else "allow"
    return structs.replace(
        decision, kind=DecisionKind.ASK, rule=PROTECTED, reason=reason, scope="runtime", by="runtime", consent=consent
    )


def _is_by_rule(decision: Decision) -> bool:
    """Whether a rule or the tool's author allows all lines alike: a hook, a policy of the program and a rule for this very line have seen it."""
    is_general = decision.rule.startswith("allow ") or decision.scope == "tool"
    return is_general and not _IS_EXACT.match(decision.rule)


_IS_EXACT = re.compile(r"allow \S+\(= ")
"""How the rule of a decision begins by which a person has allowed this very line."""


def may_be_spared(decision: Decision, call: CheckedCall, facts: JsonObject) -> bool:
    """Whether a question is there only because nobody can read the line: a rule that names this very line answers it, too."""
    line = judged(call, facts) if decision.rule == PROTECTED else None
    return line is not None and _protected(call, line) is None and _of_the_home(call, line) is None


def _named(call: CheckedCall, line: JudgedLine) -> str | None:
    """Say that a line names a protected file in a part that is not understood, or writes a file that may be one by another name."""
    if call.effect.is_read:
        return None
    if (
        several := next((one for one in line.reached if one.access == "write" and has_other_names(one.subject)), None)
    ) is not None:
        return f"{several.subject.names[0]} has several names (hard links), one of which may be a protected file"
    is_sweeping = any(program_name(one.program) in _SWEEPING for one in line.line.invocations)
    if is_sweeping and any(
        one.access == "write" and one.subject.extent == "tree" and "." in one.subject.names for one in line.reached
    ):
        return "The line removes or changes the root folder, with the protected files in it"
    is_read = line.is_decided or reads_only(structs.replace(line.line, doubts=()))
    if is_read or not may_name_protected(line.line.source):
        return None
    return "The line names a protected file, and what it does with that file is unknown"


def _of_the_home(call: CheckedCall, line: JudgedLine | None) -> str | None:
    """Say that a call reaches a protected file of the person's home by another name (a hard link); None where it surely does not."""
    if line is None:
        subjects = _subjects(call) if call.tool.subjects is not None else []
    else:
        subjects = [one.subject for one in line.reached]
    for one in subjects:
        if name := "" if one.among is None else one.among.home_name(one.names[-1]):
            return f"The call reaches {name} in your home folder through a hard link: it holds keys, or controls what runs later."
    return None


def _protected(call: CheckedCall, line: JudgedLine | None) -> str | None:
    """Return what of a call is protected, in words; None where nothing is."""
    if line is not None:
        written = [one.subject for one in line.reached if one.access == "write"]
        own = () if line.among is None else line.among.obeyed_files(_from_the_top(written))
        found = next((one.names[0] for one in written if _is_kept(one.names, own)), None)
        return None if found is None else f"The line may write the protected file {found}"
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


_SWEEPING = frozenset(["rm", "find", "chmod", "chown", "chgrp", "shred"])
"""Programs that remove or change all that lies in a folder."""


def _subjects(call: CheckedCall) -> list[Subject]:
    found = subjects_of(call)
    return _as_written(call) if found is None else [one for one in found.values() if isinstance(one, Subject)]


def _as_written(call: CheckedCall) -> list[Subject]:
    written = (value for key, value in call.arguments.items() if key in _PATHS)
    return [Subject(names=(value,)) for value in written if isinstance(value, str)]
