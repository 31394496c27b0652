"""Unmatched: the rules of a policy that match no call of the tools that there are, so that nobody relies on one in vain. Decides nothing."""

import difflib
from collections.abc import Iterable, Iterator, Sequence

from treadle.permissions.policies import NamedPolicy
from treadle.permissions.rules import Rule
from treadle.ports import DecisionKind, Policy, UnmatchedRule
from treadle.shell.rules import same_tool
from treadle.tools import Tool
from treadle.tools.foreign import FOREIGN_NAMES

__all__ = ["OWN_TOOLS", "unmatched"]

OWN_TOOLS = frozenset(
    {*FOREIGN_NAMES.values(), "list_processes", "read_artifact", "read_note", "write_note", "write_process"}
)
"""The names of Treadle's own tools. A rule on one that is not offered here is not reported, unless it is offered behind a prefix."""
_ORDER = (DecisionKind.DENY, DecisionKind.ASK, DecisionKind.DRAFT, DecisionKind.ALLOW)
_SAYS = {"deny": "denies nothing", "ask": "asks about nothing", "draft": "drafts nothing", "allow": "allows nothing"}
_SEEN_BY_RULES = {"fetch": ("host",)}
"""What a tool's `subjects` name beside its arguments."""
_WILD = frozenset("*?[")
_OPEN = {"patternProperties", "$ref", "anyOf", "oneOf", "allOf"}
"""Keywords by which a schema may have arguments that its `properties` do not name."""
_DEPTH = 12


def unmatched(
    policy: Policy | None, tools: Sequence[Tool], *, are_all: bool, servers: Sequence[str] = ()
) -> tuple[UnmatchedRule, ...]:
    """Return the rules that match no call of these tools, those that deny first.

    Args:
        are_all: Whether there are no other tools: none of toolsets that are not open, none of agents that are called. Otherwise a name
            that no tool has is reported only where it resembles one.
        servers: The names of toolsets that are not open.
    """
    near = _Near(tools, servers, are_all=are_all)
    found = [
        made for one in _named(policy, 0) for rule in one.rules if (made := _judged(one, rule, tools, near)) is not None
    ]
    return tuple(sorted(found, key=lambda one: _ORDER.index(one.kind)))


def _named(policy: object, depth: int) -> Iterator[NamedPolicy]:
    """Yield the rules within a policy, and within those that it names as its `policies`."""
    if isinstance(policy, NamedPolicy):
        yield policy
        return
    inner = getattr(policy, "policies", None)
    for one in inner if isinstance(inner, tuple) and depth < _DEPTH else ():
        yield from _named(one, depth + 1)


def _judged(policy: NamedPolicy, rule: Rule, tools: Sequence[Tool], names: "_Near") -> UnmatchedRule | None:
    meant = [tool for tool in tools if rule.names(tool.name)]
    found = _argument(policy, rule, meant) if meant else _name(rule, names)
    if found is None:
        return None
    reason, near = found
    place = f" of {policy.origin}" if policy.origin else ""
    hint = f" Did you mean `{near}`?" if near else ""
    return UnmatchedRule(
        kind=policy.kind,
        rule=rule.text,
        scope=policy.scope,
        origin=policy.origin,
        near=near,
        message=f"The rule `{policy.kind} {rule.text}`{place} {_SAYS.get(policy.kind, 'does nothing')}: {reason}{hint}",
    )


class _Near:
    """The names that a rule may mean."""

    def __init__(self, tools: Sequence[Tool], servers: Sequence[str], *, are_all: bool) -> None:
        self.are_all = are_all
        self._known = {name.casefold(): name for name in (*OWN_TOOLS, *(tool.name for tool in tools))}
        self._servers = tuple(servers)
        self._tools = tuple(tool.name for tool in tools)

    def renamed(self, tool: str) -> str:
        """Return the name that one of Treadle's own tools has behind a prefix; empty where none has."""
        return next((name for name in self._tools if name.endswith((f"_{tool}", f"-{tool}", f".{tool}"))), "")

    def of(self, tool: str) -> str:
        """Return the name that resembles one; empty for none."""
        if (same := same_tool(tool)) is not None:
            return same
        if self._servers and tool.startswith("mcp__"):  # which tools a server has is known once it is open
            server = tool.split("__")[1]
            close = difflib.get_close_matches(server, self._servers, n=1)
            return f"mcp__{close[0]}" if close and close[0] != server else ""
        close = difflib.get_close_matches(tool.casefold(), self._known, n=1)
        return self._known[close[0]] if close else ""


def _name(rule: Rule, names: _Near) -> tuple[str, str] | None:
    """Return why a rule on an unknown tool matches nothing, and the name that may be meant; None where it may match."""
    if rule.tool in FOREIGN_NAMES or any(rule.names(name) for name in OWN_TOOLS):
        renamed = names.renamed(FOREIGN_NAMES.get(rule.tool, rule.tool))
        return (
            (f"a wrapper has renamed the tool `{rule.tool}`, and rules use the new name.", renamed) if renamed else None
        )
    if set(rule.tool.removesuffix("__*")) & _WILD:
        return (f"there is no tool with a name like `{rule.tool}`.", "") if names.are_all else None
    near = names.of(rule.tool)
    return (f"there is no tool `{rule.tool}`.", near) if names.are_all or near else None


def _argument(policy: NamedPolicy, rule: Rule, meant: Sequence[Tool]) -> tuple[str, str] | None:
    """Return why a rule on one argument matches nothing, and the argument that may be meant; None where it may match."""
    if rule.key is None:
        return None
    if policy.kind == DecisionKind.ALLOW and all(tool.line is not None for tool in meant):
        return "no line of shell is allowed by its text. Write the command, as in `shell(git log:*)`.", ""
    arguments = [_arguments(tool) for tool in meant]
    if any(names is None or rule.key in names for names in arguments):
        return None
    names = sorted({name for one in arguments for name in one or ()})
    close = difflib.get_close_matches(rule.key, names, n=1, cutoff=0.5)
    return f"`{meant[0].name}` has no argument `{rule.key}`.", close[0] if close else ""


def _arguments(tool: Tool) -> Iterable[str] | None:
    """Return the names of all that rules on a tool can speak of; None where its schema or its author does not say."""
    properties = tool.parameters.get("properties")
    is_open = tool.parameters.get("additionalProperties", False) is not False or bool(tool.parameters.keys() & _OPEN)
    if not isinstance(properties, dict) or is_open or (tool.subjects is not None and tool.name not in OWN_TOOLS):
        return None
    return {*properties, *_SEEN_BY_RULES.get(tool.name, ())}
