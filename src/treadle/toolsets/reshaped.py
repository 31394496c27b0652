"""Reshaped: toolsets made of toolsets: with other names, fewer tools, or a person's word before each call. The one inside is untouched."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from inspect import isawaitable
from typing import TypeAlias

import msgspec

from treadle.errors import ConfigurationError, shown
from treadle.fields import checked
from treadle.ports import OpenToolset, SessionView, Toolset, ToolsetContext, is_toolset
from treadle.tools import CheckedCall, Tool

__all__ = ["Filtered", "Prefixed", "Renamed", "RequireApproval", "ToolList", "VisibleWhen"]

_Change: TypeAlias = Callable[[Tool], Tool | None]


class ToolList:
    """A toolset of tools that are there already.

    Example:
        ToolList(file_tools("."), name="files")
    """

    @checked
    def __init__(self, tools: Sequence[Tool], *, name: str = "") -> None:
        if not isinstance(tools, Sequence) or not all(isinstance(one, Tool) for one in tools):
            raise ConfigurationError(f"ToolList takes a list of tools; got {shown(tools)}.")
        self._tools = tuple(tools)
        self.name = name or ", ".join(tool.name for tool in self._tools[:3]) or "no tools"

    @asynccontextmanager
    async def open(self, ctx: ToolsetContext) -> AsyncIterator[OpenToolset]:
        """Open nothing."""
        yield self

    def tools(self, session: SessionView) -> Sequence[Tool]:
        """Return the tools."""
        return self._tools


class _Reshaped:
    """A toolset whose tools pass through a function: it returns another tool, or None to leave one out."""

    def __init__(self, source: Toolset | Sequence[Tool], change: _Change, *, name: str | None = None) -> None:
        self._source = toolset_of(source)
        self._change = change
        self.name = name or self._source.name

    @asynccontextmanager
    async def open(self, ctx: ToolsetContext) -> AsyncIterator[OpenToolset]:
        """Open the toolset inside."""
        async with self._source.open(ctx) as opened:
            yield _OpenReshaped(opened, self._change)


class _OpenReshaped:
    def __init__(self, opened: OpenToolset, change: _Change) -> None:
        self._opened = opened
        self._change = change
        self._known: dict[int, tuple[Tool, Tool | None]] = {}  # by identity: equal lists cost nothing

    @property
    def left_out(self) -> Mapping[str, str]:
        """Why the toolset inside cannot offer some of its tools, by its names."""
        return getattr(self._opened, "left_out", {})  # no part of the port

    async def tools(self, session: SessionView) -> Sequence[Tool]:
        found = self._opened.tools(session)
        own = await found if isawaitable(found) else found
        known, self._known = self._known, {}
        for tool in own:
            self._known[id(tool)] = known.get(id(tool)) or (tool, self._change(tool))
        return [changed for _, changed in self._known.values() if changed is not None]


class Prefixed(_Reshaped):
    """The tools of a toolset with a prefix before their names.

    Example:
        Agent(model, tools=[Prefixed(tickets, "jira_"), Prefixed(issues, "github_")])

    Args:
        source: A toolset, or a list of tools.
        prefix: Such as `jira_`.
    """

    def __init__(self, source: Toolset | Sequence[Tool], prefix: str) -> None:
        _check_name("prefix", prefix)
        super().__init__(
            source,
            lambda tool: msgspec.structs.replace(
                tool, name=prefix + tool.name, draft=None if tool.draft is None else prefix + tool.draft
            ),
        )


class Renamed(_Reshaped):
    """A toolset some of whose tools have other names.

    Example:
        Renamed(tickets, {"search": "search_tickets"})

    Args:
        source: A toolset, or a list of tools.
        names: New names by old ones.
    """

    def __init__(self, source: Toolset | Sequence[Tool], names: Mapping[str, str]) -> None:
        if not isinstance(names, Mapping):
            raise ConfigurationError(f"Renamed takes new names by old ones; got {shown(names)}.")
        for name in names.values():
            _check_name("each new name", name)
        new = dict(names)
        super().__init__(
            source,
            lambda tool: msgspec.structs.replace(
                tool, name=new.get(tool.name, tool.name), draft=new.get(tool.draft or "", tool.draft)
            ),
        )


class Filtered(_Reshaped):
    """Some of a toolset's tools.

    Example:
        Filtered(tickets, lambda tool: tool.effect == "read")

    Args:
        source: A toolset, or a list of tools.
        keep: Names, or a function that says of a tool whether it stays.
    """

    def __init__(self, source: Toolset | Sequence[Tool], keep: Callable[[Tool], bool] | Sequence[str]) -> None:
        if callable(keep):
            stays = keep
        elif not isinstance(keep, list | tuple | frozenset | set) or not all(isinstance(one, str) for one in keep):
            raise ConfigurationError(
                f"Filtered must keep a list of names or what a function of a tool says; got {shown(keep)}."
            )
        else:
            names = frozenset(keep)
            stays = lambda tool: tool.name in names  # noqa: E731 - the other form of one and the same function
        super().__init__(source, lambda tool: tool if stays(tool) else None)


class RequireApproval(_Reshaped):
    """A toolset each of whose calls a person must allow, though a policy allows it.

    Example:
        RequireApproval(tickets, when=lambda call: not call.effect.is_read)

    Args:
        source: A toolset, or a list of tools.
        when: Says of a call whether a person must allow it; without it, of every call. One that raises asks.
    """

    def __init__(self, source: Toolset | Sequence[Tool], *, when: Callable[[CheckedCall], bool] | None = None) -> None:
        if when is not None and not callable(when):
            raise ConfigurationError(f"RequireApproval(when=) takes a function of a call; got {shown(when)}.")
        super().__init__(source, lambda tool: msgspec.structs.replace(tool, requires_approval=_either(tool, when)))


class VisibleWhen(_Reshaped):
    """A toolset whose tools are offered while a condition on the session holds.

    Example:
        VisibleWhen(deployment, lambda session: "plan" in session.state.facts.values)

    Args:
        source: A toolset, or a list of tools.
        condition: A function of the session, asked before each request. Where it raises, the tools are not offered.
    """

    def __init__(self, source: Toolset | Sequence[Tool], condition: Callable[[SessionView], bool]) -> None:
        if not callable(condition):
            raise ConfigurationError(
                f"The condition of VisibleWhen must be a function of the session; got {shown(condition)}."
            )
        super().__init__(source, lambda tool: msgspec.structs.replace(tool, visible=_both(tool, condition)))


def toolset_of(source: Toolset | Sequence[Tool]) -> Toolset:
    """Return a toolset as it is, and a list of tools as a toolset.

    Raises:
        ConfigurationError: It is neither.
    """
    if is_toolset(source):
        return source
    if isinstance(source, list | tuple):
        return ToolList(source)
    raise ConfigurationError(f"source must be a toolset or a list of tools; got {shown(source)}.")


def _check_name(what: str, name: object) -> None:
    if not isinstance(name, str) or not name or not name.isprintable():
        raise ConfigurationError(f"The {what} must be a printable text; got {shown(name)}.")


def _either(tool: Tool, when: Callable[[CheckedCall], bool] | None) -> bool | Callable[[CheckedCall], bool]:
    inside = tool.requires_approval
    if when is None or inside is True:
        return True
    if inside is False:
        return when
    return lambda call: inside(call) or when(call)


def _both(tool: Tool, condition: Callable[[SessionView], bool]) -> bool | Callable[[SessionView], bool]:
    inside = tool.visible
    if inside is False:
        return False
    if inside is True:
        return condition
    return lambda session: inside(session) and condition(session)
