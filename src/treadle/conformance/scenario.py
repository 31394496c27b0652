"""Scenarios: what the provider says, what the tools do, and what a right loop makes of it. Values only; runs nothing."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import msgspec

from treadle.conformance.evidence import Evidence
from treadle.fields import Documented, NamedOptions

__all__ = [
    "DIALECTS",
    "Act",
    "Check",
    "DialectName",
    "Playing",
    "Scenario",
    "Severity",
    "ToolUse",
    "decide",
    "resume",
    "start",
    "tool",
]

DialectName: TypeAlias = Literal["chat", "responses", "anthropic", "gemini"]
DIALECTS: tuple[DialectName, ...] = ("chat", "responses", "anthropic", "gemini")
Severity: TypeAlias = Literal["harm", "wrong", "waste"]
"""`harm`: something happens in the world that nobody wanted, or twice. `wrong`: the answer or the history is wrong, or the run never ends.
`waste`: more is spent than needed, or less is learned."""

Check: TypeAlias = Callable[[Evidence], str | None]
"""Returns what is wrong with the evidence, in a sentence; None for nothing."""
Playing: TypeAlias = (
    Sequence[Any] | Callable[[DialectName], Sequence[Any]]
)  # Any: a turn, or what the mock makes one of
"""The provider's turns, or a function of the dialect that returns them."""


class ToolUse(msgspec.Struct, frozen=True, kw_only=True):
    """One tool of a scenario."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    """JSON Schema."""
    effect: Literal["read", "write"] = "read"
    needs_approval: bool = False
    behaviour: Mapping[str, Any] = {}
    """What it does, in the words of `JobTool`: returns, fails, error, hangs, kills, interrupts, size."""


class Act(msgspec.Struct, frozen=True, kw_only=True):
    """One process of the subject."""

    action: Literal["start", "resume", "decide"] = "start"
    prompt: str = "Do the task."
    decisions: tuple[Mapping[str, Any], ...] = ()
    is_elsewhere: bool = False
    """Whether it asks another vendor: the next dialect of the four."""
    is_killed_at: int | None = None
    """The request, counted from 1 over the scenario, at which the suite kills the process."""


class Scenario(msgspec.Struct, Documented, frozen=True, kw_only=True, metaclass=NamedOptions):
    """One failure, and what a right loop makes of it."""

    id: str
    """Group and name, such as `arguments/cut-off`."""
    failure: str
    """What goes wrong."""
    promise: str
    """What a right loop does."""
    source: str
    """Where the failure is known from: a document, a vendor's page, a public report."""
    severity: Severity
    """How bad it is to get it wrong."""
    turns: Playing
    """What the provider says."""
    tools: tuple[ToolUse, ...] = ()
    """What the subject may call."""
    right: tuple[Check, ...] = ()
    """What must be true of the evidence. All of it; alternatives are in one check."""
    acts: tuple[Act, ...] = (Act(),)
    """The processes of the subject, one after the other."""
    needs: frozenset[str] = frozenset()
    """What the subject must offer; without it the scenario is not run."""
    dialects: tuple[DialectName, ...] = DIALECTS
    """In which dialects the failure exists."""
    options: Mapping[str, Any] = {}
    """Values of the job, such as max_steps."""

    @property
    def group(self) -> str:
        """The group, the part of the id before the slash."""
        return self.id.partition("/")[0]

    def turns_in(self, dialect: DialectName) -> Sequence[Any]:
        """Return what the provider says in this dialect."""
        return self.turns(dialect) if callable(self.turns) else self.turns


def tool(
    name: str,
    properties: Mapping[str, Any] | str = "",
    *,
    effect: Literal["read", "write"] = "read",
    needs_approval: bool = False,
    describes: str = "",
    required: Sequence[str] | None = None,
    **behaviour: Any,
) -> ToolUse:
    """Write one tool. Properties are schemas by name, or names of text parameters in one string."""
    schemas = {one: {"type": "string"} for one in properties.split()} if isinstance(properties, str) else properties
    parameters = {
        "type": "object",
        "properties": schemas,
        "required": list(schemas if required is None else required),
        "additionalProperties": False,
    }
    return ToolUse(
        name=name,
        description=describes or f"{name.capitalize()} something.",
        parameters=parameters,
        effect=effect,
        needs_approval=needs_approval,
        behaviour=behaviour,
    )


def start(prompt: str = "Do the task.", **about: Any) -> Act:
    """A process that begins with a prompt, in a conversation that may have begun before."""
    return Act(prompt=prompt, **about)


def resume(**about: Any) -> Act:
    """A process that continues what a killed one had begun."""
    return Act(action="resume", prompt="", **about)


def decide(tool: str, *, allow: bool, **arguments: Any) -> Act:
    """A process that continues once a person has answered."""
    return Act(action="decide", prompt="", decisions=({"tool": tool, "arguments": arguments, "allow": allow},))
