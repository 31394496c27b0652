"""Objectives: what a goal is, and what keeps one from being worked on: a part that is missing or vague, or a second objective."""

import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from treadle.budgets import Budget, budget_from
from treadle.canonical import digest
from treadle.errors import ConfigurationError, shown
from treadle.fields import Documented, NamedOptions, checked

__all__ = ["Goal", "StopRules", "load_goal"]

_LEAST_WORDS = 3
_VAGUE = re.compile(
    r"\b(something|stuff|things|somehow|whatever|etc|tbd|todo|tba|various|misc|as needed|if possible|and so on|"
    r"better|nicer|improve everything|clean ?up everything|make progress|backlog|good enough|keep going|"
    r"what(?:ever)? (?:is|seems) (?:needed|necessary|right)|everything (?:is|works|that)|"
    r"works? (?:well|fine|properly|correctly|as expected)|"
    r"(?:improve|optimi[sz]e|enhance) (?:the )?(?:overall )?(?:quality|performance|code|codebase|project|app|application|system)|"
    r"(?:tidy|clean)(?:ing)? ?up (?:the |this |our |my )?(?:code|codebase|project|repo|repository)|"
    r"(?:handle|work on|work through|fix|address|resolve|deal with|take care of|do) (?:all|every|any)(?: of)?(?: the)?"
    r"(?: open| remaining| known| other)? (?:issues?|bugs?|tickets?|problems?|tasks?))\b|\?\?|^\s*\W*\s*$",
    re.IGNORECASE,
)
_VERBS = (
    "add analyse analyze archive book build change check clean close collect compare convert correct create delete deploy "
    "deliver describe design document draft email ensure extend extract file find fix implement import improve install integrate "
    "inform investigate list measure mend merge migrate move notify open optimise optimize order organise organize pay plan port prepare "
    "publish redesign reduce refactor release remove rename replace report research resolve review rewrite run schedule send "
    "set ship sort split start stop summarise summarize switch test train translate tidy update upgrade verify write"
)
_NEXT = r"(?:\band\b|\bthen\b|[;,&+/]|\balso\b|\bplus\b|\bas well as\b|\bafterwards\b|\bbefore that\b)"
_SECOND = re.compile(
    rf"{_NEXT}(?:\s+(?:also|then|afterwards|later|finally|after that))*,?\s+(?:{'|'.join(_VERBS.split())})\b",
    re.IGNORECASE,
)
_STATE = r"(?:is|are|has|have|pass|passes|exists?|works?|returns?|says?|holds?|runs?|builds?|succeeds?|reads|shows?)"
_SECOND_CLAUSE = re.compile(
    rf"\b{_STATE}\b.*(?:\band\b|;|&)\s+(?!(?:it|its|they|their|that|this|which|nothing)\b)(?:[\w.'-]+\s+){{1,4}}?{_STATE}\b",
    re.IGNORECASE,
)
_LIST_LINE = re.compile(r"^\s*(?:[-*+•]|\d+[.)])\s+\S", re.MULTILINE)
_NUMBERED = re.compile(r"(?:^|\s)\(?(\d+|[a-d])[.)]\s+\S")
_VERB_LINE = re.compile(rf"^\s*(?:{'|'.join(_VERBS.split())})\b", re.IGNORECASE | re.MULTILINE)
_WORD = re.compile(r"\w{2,}")
_SENTENCE = re.compile(r"[.!?](?:\s+)(?=[A-Z])")


class StopRules(
    msgspec.Struct, Documented, frozen=True, kw_only=True, forbid_unknown_fields=True, metaclass=NamedOptions
):
    """When the work on a goal stops although it is not reached, in addition to its budget. At least one rule is given."""

    false_claims: int | None = None
    """How many times in a row the model may claim to be done while the validation fails."""
    unchanged_checks: int | None = None
    """How many checkpoints in a row may find no change."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if value is not None and (type(value) is not int or value < 1):
                raise ConfigurationError(f"The stop rule {name} is a whole number of at least 1; got {shown(value)}.")


class Goal(msgspec.Struct, Documented, frozen=True, kw_only=True, metaclass=NamedOptions):
    """One objective, and the check that it is reached.

    Example:
        Goal(
            objective="All tests of the parser pass",
            done_condition="pytest ends with exit code 0",
            validation="pytest -q tests/parser",
            budget=Budget(max_model_turns=200, max_total_cost=5),
            checkpoint_every=10,
            plan=["Read the failing tests", "Fix the parser"],
            stop_rules=StopRules(false_claims=5),
        )

    Raises:
        ConfigurationError: A part is missing or vague, or there are two objectives. The message names all that is wrong.
    """

    objective: str
    """What to achieve: one thing."""
    done_condition: str
    """When it is reached, as a condition that can be checked."""
    validation: str
    """The command that checks it: exit code 0 means reached. Run by bash in the root folder, with the person's permissions."""
    budget: Budget
    """Its limits, over all resumes."""
    checkpoint_every: int
    """Steps from one checkpoint to the next."""
    plan: tuple[str, ...]
    """The initial plan."""
    stop_rules: StopRules
    """When it stops although it is not reached."""
    forbidden_actions: tuple[str, ...] = ()
    """Rules for calls that are denied, such as `shell(git push:*)`."""
    approval_required_for: tuple[str, ...] = ()
    """Rules for calls that a person is asked about, such as `write`."""
    validation_seconds: float = 600.0
    """How long the validation may take. If it does not end in time, it has not passed."""

    def __post_init__(self) -> None:
        for name in ("plan", "forbidden_actions", "approval_required_for"):
            value = getattr(self, name)
            if (
                isinstance(value, str)
                or not isinstance(value, list | tuple)
                or not all(isinstance(one, str) for one in value)
            ):
                raise ConfigurationError(f"The goal's {name} is a list of strings; got {shown(value)}.")
            msgspec.structs.force_setattr(self, name, tuple(value))
        if faults := list(_faults_of(self)):
            raise ConfigurationError("This goal cannot be worked on: " + " ".join(faults))

    @property
    def digest(self) -> str:
        """What tells it from any other goal. Its budget may grow."""
        return digest([self.objective, self.done_condition, self.validation])

    @property
    def task(self) -> str:
        """What the model reads."""
        lines = [
            f"Reach this objective: {self.objective}",
            f"It is reached when: {self.done_condition}",
            f"This command decides that, and is run for you: {self.validation}",
            "Say that you are done only when you expect it to pass. If it fails, you see its output and continue.",
            "The plan so far:",
            *(f"{number}. {step}" for number, step in enumerate(self.plan, start=1)),
        ]
        if self.forbidden_actions:
            lines.append(f"Forbidden, and denied: {', '.join(self.forbidden_actions)}")
        return "\n".join(lines)


@checked
def load_goal(path: str | Path) -> Goal:
    """Read a goal from a TOML file.

    Example:
        goal = load_goal("goal.toml")

    Raises:
        ConfigurationError: The file cannot be read, a part is missing, unknown or vague, or there are two objectives.
    """
    try:
        found = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as exc:  # not TOML, not UTF-8, or not a file's name
        why = (exc.strerror if isinstance(exc, OSError) else None) or exc
        raise ConfigurationError(f"The goal file {str(path)!r} cannot be read: {why}.") from exc
    return _goal_from(found, str(path))


def _goal_from(found: Mapping[str, Any], where: str) -> Goal:
    known = Goal.__struct_fields__
    missing = [name for name in known[: known.index("forbidden_actions")] if not found.get(name)]
    unknown = [name for name in found if name not in known]
    if missing or unknown:
        said = [f"It is missing {', '.join(missing)}."] if missing else []
        said += [f"It has unknown fields: {', '.join(unknown)}."] if unknown else []
        raise ConfigurationError(
            f"The goal file {where!r} cannot be worked on: {' '.join(said)} It needs {', '.join(known[:7])}."
        )
    if isinstance(found["objective"], list):
        raise ConfigurationError(
            f"The goal file {where!r} has {len(found['objective'])} objectives. Give each a goal of its own."
        )
    budget, rules = found["budget"], found["stop_rules"]
    for name, value in (("budget", budget), ("stop_rules", rules)):
        if not isinstance(value, Mapping):
            raise ConfigurationError(f"The goal's {name} is a table such as [{name}]; got {shown(value)}.")
    unknown = [name for name in rules if name not in StopRules.__struct_fields__]
    if unknown:
        raise ConfigurationError(
            f"Unknown stop rules: {', '.join(unknown)}. Known: {', '.join(StopRules.__struct_fields__)}."
        )
    return Goal(**{**found, "budget": budget_from(dict(budget)), "stop_rules": StopRules(**rules)})


def _faults_of(goal: Goal) -> Iterator[str]:
    """Yield what keeps a goal from being worked on."""
    for name in ("objective", "done_condition", "validation"):
        value: object = getattr(goal, name)
        if not isinstance(value, str) or not value.strip():
            yield f"It has no {name}."
        elif name != "validation" and (len(_WORD.findall(value)) < _LEAST_WORDS or _VAGUE.search(value)):
            yield f"Its {name} is vague: {shown(value)}. Say what will be different, so that a stranger can check it."
    if _is_several(str(goal.objective)):
        yield f"It has more than one objective: {shown(goal.objective)}. Give each a goal of its own."
    if not any(step.strip() for step in goal.plan):
        yield "It has no plan: name the first steps."
    yield from _faults_of_limits(goal)


def _faults_of_limits(goal: Goal) -> Iterator[str]:
    every, budget, rules = (getattr(goal, name) for name in ("checkpoint_every", "budget", "stop_rules"))
    if not isinstance(budget, Budget):
        yield "It has no budget: Budget(max_model_turns=100)."
    if type(every) is not int or every < 1:
        yield f"checkpoint_every is a whole number of steps of at least 1; got {shown(every)}."
    if not isinstance(rules, StopRules) or rules == StopRules():
        yield "It has no stop rules: StopRules(false_claims=5)."
    if not _is_positive(goal.validation_seconds):
        yield f"validation_seconds is a number above 0; got {shown(goal.validation_seconds)}."


def _is_positive(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


def _is_several(objective: str) -> bool:
    if len(_LIST_LINE.findall(objective)) > 1 or len([one for one in objective.split("\n\n") if one.strip()]) > 1:
        return True
    if len(_NUMBERED.findall(objective)) > 1 or len(_VERB_LINE.findall(objective)) > 1:
        return True
    is_joined = _SECOND.search(objective) or _SECOND_CLAUSE.search(objective)
    return bool(is_joined) or len(_SENTENCE.findall(objective.strip())) > 0
