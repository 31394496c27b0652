"""On demand: many tools of which a request offers a few. The model searches for more, and what it found stays in the session."""

import re
from collections import Counter
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from inspect import isawaitable
from typing import Any

import msgspec

from treadle.errors import ConfigurationError, shown
from treadle.fields import checked
from treadle.ports import OpenToolset, SessionView, Toolset, ToolsetContext
from treadle.tools import JsonObject, Tool, ToolContext, ToolOutput
from treadle.tools.tool import closed_schema
from treadle.toolsets.wrappers import toolset_of

__all__ = ["OnDemand"]

_FACT = "tools_found"
_LONGEST_LINE = 200


class OnDemand:
    """A toolset whose tools are offered once the model has searched for them.

    It adds one tool, by default `search_tools`. What a search finds is offered from the next request on, also after a restart
    and in forks: it is a fact of the session. The tools found last are kept, so that a request stays small.

    Wrappers that change names belong inside it: the search tells names as they are there.

    Example:
        Agent(model, tools=[OnDemand(catalogue, always=["read_ticket"])])

    Args:
        source: A toolset, or a list of tools.
        search: Name of the tool that searches.
        always: Names of tools that are offered without a search.
        found: How many tools one search finds at most.
        kept: How many tools that were found are offered at most.
    """

    @checked
    def __init__(
        self,
        source: Toolset | Sequence[Tool],
        *,
        search: str = "search_tools",
        always: Sequence[str] = (),
        found: int = 5,
        kept: int = 20,
    ) -> None:
        for word, number in (("found", found), ("kept", kept)):
            if number < 1:
                raise ConfigurationError(
                    f"OnDemand({word}=) must be a whole number of at least 1; got {shown(number)}."
                )
        self._source = toolset_of(source)
        self.name = self._source.name
        self._search = search
        self._always = frozenset(always)
        self._limits = (found, max(found, kept))

    @asynccontextmanager
    async def open(self, ctx: ToolsetContext) -> AsyncIterator[OpenToolset]:
        """Open the toolset inside."""
        async with self._source.open(ctx) as opened:
            yield _Catalogue(opened, self.name, self._search, self._always, self._limits)


class _Catalogue:
    """The tools of one run, and the tool that searches them."""

    def __init__(
        self, opened: OpenToolset, name: str, search: str, always: frozenset[str], limits: tuple[int, int]
    ) -> None:
        self._opened = opened
        self._name = name
        self._always = always
        self._found, self._kept = limits
        self._tools: dict[str, Tool] = {}
        self._hidden: dict[int, tuple[Tool, Tool]] = {}
        self._searcher = Tool(
            name=search,
            description="",
            parameters=closed_schema(
                ["query"],
                query={"type": "string", "minLength": 1, "description": "What the tool should do, or its name."},
            ),
            effect="read",
            run=self._run,
        )

    @property
    def left_out(self) -> Mapping[str, str]:
        """Why the toolset inside cannot offer some of its tools."""
        return getattr(self._opened, "left_out", {})  # no part of the port

    async def tools(self, session: SessionView) -> Sequence[Tool]:
        found = self._opened.tools(session)
        own = await found if isawaitable(found) else found
        before, self._hidden = self._hidden, {}
        self._tools = {tool.name: tool for tool in own}
        for tool in self._tools.values():
            self._hidden[id(tool)] = before.get(id(tool)) or (tool, self._shown_when_found(tool))
        self._searcher = _counted(self._searcher, len(self._tools))
        return [self._searcher, *(hidden for _, hidden in self._hidden.values())]

    def _shown_when_found(self, tool: Tool) -> Tool:
        if tool.name in self._always:
            return tool
        name, inside = tool.name, tool.visible

        def visible(session: SessionView) -> bool:
            is_found = name in _found_in(session.state.facts.values, self._name)
            return is_found and (inside(session) if callable(inside) else inside)

        return msgspec.structs.replace(tool, visible=visible)

    async def _run(self, arguments: JsonObject, ctx: ToolContext) -> ToolOutput:
        names = [tool.name for tool in _matching(str(arguments["query"]), self._tools.values())][: self._found]
        if not names:
            return ToolOutput(data={"found": [], "message": "No tool matches. Try other words, or part of a name."})
        lines = [{"name": name, "description": _line(self._tools[name].description)} for name in names]
        known = [name for name in _found_in(ctx.facts, self._name) if name in self._tools and name not in names]
        kept = [*known, *names][-self._kept :]
        # A new order for those found again; None removes what is kept no longer.
        marks: dict[str, Any] = dict.fromkeys(_found_in(ctx.facts, self._name))
        number = max([*_found_in(ctx.facts, self._name).values(), 0]) + 1
        marks |= {name: number + place for place, name in enumerate(kept)}
        message = "You can call these tools from now on."
        return ToolOutput(data={"found": lines, "message": message}, facts={_FACT: {self._name: marks}})


def _counted(searcher: Tool, count: int) -> Tool:
    description = f"Search {count} more tools. You can call the tools that it finds from your next message on."
    return (
        searcher if searcher.description == description else msgspec.structs.replace(searcher, description=description)
    )


def _found_in(facts: JsonObject, name: str) -> dict[str, int]:
    """Return the tools of a toolset that were found, the one found last at the end."""
    found = facts.get(_FACT, {}).get(name, {})
    return dict(sorted(found.items(), key=lambda one: one[1]))


def _matching(query: str, tools: Iterable[Tool]) -> list[Tool]:
    """Return the tools that have a word of the query in their name or description, the best first."""
    wanted = set(_words(query))
    scored = [(_score(wanted, query, tool), tool) for tool in tools]
    return [tool for score, tool in sorted(scored, key=lambda one: (-one[0], one[1].name)) if score > 0]


def _score(wanted: set[str], query: str, tool: Tool) -> float:
    if query.strip().casefold() == tool.name.casefold():
        return 1000.0
    names, said = set(_words(tool.name)), Counter(_words(tool.description))
    fields = tool.parameters.get("properties", {})
    inside = {word for field in fields for word in _words(str(field))} if isinstance(fields, dict) else set()
    return sum(3.0 * _fits(word, names) + 1.0 * _fits(word, said) + 0.5 * _fits(word, inside) for word in wanted)


def _fits(word: str, words: Collection[str]) -> bool:
    """Whether a word is among others, or a form of one of them: `issue` and `issues`."""
    if word in words:
        return True
    return any(min(len(word), len(one)) > 2 and (one.startswith(word) or word.startswith(one)) for one in words)


_WORD = re.compile(r"[^\W_]+")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def _words(text: str) -> list[str]:
    return [word.casefold() for part in _WORD.findall(text) for word in _HUMP.split(part)]


def _line(text: str) -> str:
    first = text.strip().partition("\n")[0]
    return first if len(first) <= _LONGEST_LINE else first[: _LONGEST_LINE - 3] + "..."
