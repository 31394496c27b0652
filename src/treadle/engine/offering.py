"""Offering: the tools of one run, step by step: its agent's own, and those of its toolsets, which live as long as the run or longer.

A toolset that fails takes its tools with it and nothing else. Runs no tool.
"""

import asyncio
import inspect
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, Self

import msgspec

from treadle.concurrency import Kept
from treadle.engine.interrupts import Interrupt
from treadle.engine.opening import Opened, failure_message, first_of, hold, leave, let_go
from treadle.engine.rules.failures import FailureText, contained, is_being_cancelled, pass_interrupts, told
from treadle.engine.spec import AgentSpec
from treadle.errors import ConfigurationError, ToolDefinitionError, shown
from treadle.events import AnyEvent, ToolsetFailed, ToolsetListed
from treadle.permissions.policies import unmatched
from treadle.ports import OpenToolset, SessionView, Toolset, ToolsetContext, ToolSpec
from treadle.redaction import redacted_logger, shown_error
from treadle.sessions.ledger import Ledger
from treadle.sessions.views import ReadOnlyView
from treadle.tooling.toolbox import Contracts, Offer, fix, is_visible, spec_of
from treadle.tools import CallStatus, JsonObject, Tool, ToolContext, Unfinished

__all__ = ["Offering", "check_deps"]

logger = redacted_logger(__name__)

_OPENING = "It is still being opened. Its tools are offered in a later step."
_FREE_CHOICES = ("auto", "none", "required")
"""Choices that name no tool."""


def check_deps(tools: Iterable[Tool], deps: Any) -> None:  # Any: the application's own object
    """Refuse a run that lacks what the annotation of a tool says it finds in `ctx.deps`.

    Raises:
        ConfigurationError: There are none.
    """
    needing = None if deps is not None else next((tool for tool in tools if tool.needs_deps), None)
    if needing is not None:
        raise ConfigurationError(
            f"Tool {needing.name!r} needs `ctx.deps` of the type {needing.needs_deps}, and the run was given none. Pass it: "
            "run(..., deps=...), and the same to resume, Agents.resume and Worker. A tool that can do without says "
            f"`ToolContext[{needing.needs_deps} | None]`."
        )


class Offering:
    """The tools of one run. Open while its steps run:

    async with offering:
        stop = await loop.run()

    Args:
        session: What toolsets and `visible=` are shown of the session.
        deps: What the application gave to the run.
        is_called: Whether it is the run of an agent that another one calls: its rules may be its caller's, who has other tools.
    """

    def __init__(
        self,
        about: AgentSpec,
        *,
        ledger: Ledger,
        session: ReadOnlyView,
        interrupt: Interrupt,
        deps: Any,
        is_called: bool = False,
    ) -> None:
        self._toolbox = about.toolbox
        self._policy = None if is_called else about.policy
        self._failure_text: FailureText = about.failure_text
        self._ledger = ledger
        self.session = session
        """The session as policies, conditions, drivers and toolsets are shown it."""
        self._interrupt = interrupt
        self._context = ToolsetContext(session=session, deps=deps)
        self._seconds = about.toolset_seconds
        self._opened = about.opened
        self._sources = [_Source(toolset) for toolset in about.toolsets]
        self._tool_choice = about.tool_choice
        self.required = about.required
        """Names of tools and toolsets without which the run does not continue."""
        self._listed: dict[str, tuple[Tool, _Source]] = {}
        """Every tool of the toolsets that there is now, visible or not."""
        self.contracts = Contracts(self._toolbox.contracts) if self._sources else self._toolbox.contracts
        self.current = self._toolbox.offer(self._toolbox.visible(session))
        """What the request offers whose response is being carried out."""
        self._fixed = self.current if self._toolbox.is_fixed else None
        self._is_fresh = False  # whether the toolsets were asked for their tools since the last call
        self.polling: Container[str] = self._toolbox.polling
        """Names of tools that are meant to be called again and again."""
        self.ending: Container[str] = self._toolbox.ending
        """Names of tools whose success ends the run. Empty where no tool may."""
        self.validates = self._toolbox.validates or bool(self._sources)
        """Whether a tool may check its arguments by code of its own."""
        if self._sources:
            self.polling = _Names(self, lambda tool: tool.polling)
            self.ending = _Names(self, lambda tool: tool.ends_run)

    async def __aenter__(self) -> Self:
        """Open the toolsets, side by side. A call that a dead process left open is judged by the request that it answers."""
        if self._sources:
            for source in self._sources:
                source.begin(self._context, self._opened)
            await asyncio.gather(*(self._open(source) for source in self._sources if self._waits_for(source)))
            await self._list()
            self._is_fresh = not self._ledger.state.has_open_calls
            self.current = self._made(tool for tool in self._there() if is_visible(tool, self.session))
        self._tell_unmatched()
        state = self._ledger.state
        asked = None if state.run is None else state.run.offered
        if state.has_open_calls and asked is not None:
            self.current = self._made(
                tool for tool in self._there() if tool.name in asked and tool.visible is not False
            )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close every toolset that the run has opened, side by side, whatever ended the run and whatever another one does."""
        if self._opened is None:
            await asyncio.gather(*(self._close(source) for source in self._sources))

    def check_deps(self) -> None:
        """Refuse the run if a tool of its toolsets lacks its `ctx.deps`: see `check_deps`."""
        check_deps(self._there(), self._context.deps)

    async def renew(self) -> Offer:
        """Return what the next request offers: the same object as before where nothing has changed."""
        if not self._sources:
            self.current = self._fixed or self._toolbox.offer(self._toolbox.visible(self.session))
            return self.current
        if not self._is_fresh:
            await self._list()
        self._is_fresh = False
        offered = [tool for tool in self._there() if is_visible(tool, self.session)]
        if not _are_same(offered, self.current.tools) or self.current.unavailable != self._unavailable:
            self.current = self._made(offered)
        return self.current

    def absence(self, name: str) -> tuple[str, str] | None:
        """Return the toolset that a missing tool belongs to and why it is unavailable; None for a tool of no toolset.

        The reason is empty where the toolset is well and has no such tool any more.
        """
        owner = self._owners.get(name)
        source = next((one for one in self._sources if one.name == owner), None)
        if source is None or (source.problem is None and name in self._listed):
            return None
        problem = source.problem or (_OPENING if source.is_opening else "")
        return source.name, problem if self._failure_text == "whole" else source.told or problem

    def lacking(self) -> tuple[str, str] | None:
        """Return a tool or toolset that the run needs and that is unavailable, and why; None where all are there."""
        for name in self.required:
            source = next((one for one in self._sources if name in (one.name, self._owners.get(name))), None)
            if source is not None and source.problem is not None:
                return name, source.problem
            is_there = self.named(name) is not None if source is None else name == source.name or name in self._listed
            if not is_there:
                return name, "There is no tool and no toolset of this name."
        return None

    # --- what there is

    def _there(self) -> list[Tool]:
        """Return all tools that there are, visible or not, sorted by name."""
        there = [*self._toolbox, *(tool for tool, _ in self._listed.values())]
        return sorted(there, key=lambda tool: tool.name)

    @property
    def _has_ended(self) -> bool:
        return self._interrupt.stop is not None

    @property
    def _unavailable(self) -> tuple[str, ...]:
        return tuple(source.name for source in self._sources if source.problem is not None)

    def named(self, name: str) -> Tool | None:
        """Return a tool, visible or not."""
        return self._listed[name][0] if name in self._listed else self._toolbox.get(name)

    def _made(self, offered: Iterable[Tool]) -> Offer:
        tools = tuple(offered)
        sources = {name: source for name, (_, source) in self._listed.items()}
        return Offer(tools, self._specs(tools), sources=sources, unavailable=self._unavailable)

    def _specs(self, tools: Sequence[Tool]) -> tuple[ToolSpec, ...]:
        """Return what the model is told of tools: what it was told before, where that is equal, so that it is encoded once."""
        before = {spec.name: spec for spec in self.current.specs}
        new = [spec_of(tool, has_hints=self._toolbox.has_hints) for tool in tools]
        specs = tuple(before[spec.name] if before.get(spec.name) == spec else spec for spec in new)
        return self.current.specs if _are_same(specs, self.current.specs) else specs

    @property
    def _owners(self) -> Mapping[str, str]:
        """The toolset that each tool has belonged to in this run."""
        run = self._ledger.state.run
        return {} if run is None else run.tool_owners

    def _tell_unmatched(self) -> None:
        """Warn of each rule that matches no call of these tools, once for an agent: somebody relies on it."""
        if self._policy is None:
            return
        tools, told = self._there(), self._toolbox.told
        if told.of == (names := tuple(tool.name for tool in tools)):
            return
        is_whole = not self._unavailable and not any(source.is_opening for source in self._sources)
        told.of, are_all = names, is_whole and not self._toolbox.calls_agents
        for one in unmatched(self._policy, tools, are_all=are_all):
            if one not in told.rules:
                told.rules.add(one)
                logger.warning("%s", one.message)

    # --- opening and closing

    def _waits_for(self, source: "_Source") -> bool:
        """Whether the first request needs a toolset that is being opened: its tools are required, forced, or were offered before."""
        if self._opened is None or self._opened.is_awaited:
            return True
        named = (*self.required, *(() if self._tool_choice in _FREE_CHOICES else (self._tool_choice,)))
        is_named = any(name == source.name or self._toolbox.get(name) is None for name in named)
        return is_named or source.name in self._owners.values()

    async def _open(self, source: "_Source") -> None:
        kept = source.kept
        assert kept is not None
        if self._opened is not None:  # it has a limit of its own, and stays for the next run
            await self._interrupt.wait_for(kept.opened)
        elif not await self._interrupt.wait_for(kept.opened, self._seconds):
            kept.cut()
            if not self._has_ended:
                source.fail("open", f"It did not open within {self._seconds:g} seconds.")

    async def _close(self, source: "_Source") -> None:
        if source.kept is not None:
            is_known, seconds = source.problem is not None, self._seconds
            await let_go(source.name, source.kept, self._ledger.clock, seconds=seconds, is_known=is_known)

    # --- listing

    async def _list(self) -> None:
        """Ask every toolset for its tools, side by side, and record what has changed. A run that ends asks nobody."""
        if self._has_ended:
            return
        asked = [source for source in self._sources if source.is_asked(self.session)]
        await asyncio.gather(*(self._wait_for(source) for source in asked))
        if asked and self._interrupt.stop is not None:
            return
        listed: dict[str, tuple[Tool, _Source]] = {}
        for source in self._sources:
            source.refused = source.left_out()
            for tool in source.tools:
                if (reason := self._refusal(tool, source, listed)) is None:
                    listed[tool.name] = (tool, source)
                else:
                    source.refused[tool.name] = reason
        if not _are_same([tool for tool, _ in listed.values()], [tool for tool, _ in self._listed.values()]):
            self.contracts.forget_but(tool for tool, _ in listed.values())
        self._listed = listed
        events = [event for source in self._sources for event in source.changes(self._owners)]
        if events and self._ledger.is_deferring:  # a resume for which nothing has arrived adds nothing
            self._ledger.defer(*events)
        elif events:
            await self._ledger.record(*events)

    async def _wait_for(self, source: "_Source") -> None:
        asking, source.asking = source.asking, None
        assert asking is not None
        if await self._interrupt.wait_for(asking, self._seconds):
            source.take(asking.result)
            return
        asking.cancel()
        leave(asking)
        if not self._has_ended:
            source.fail("list", f"It did not list its tools within {self._seconds:g} seconds.")

    def _refusal(self, tool: Tool, source: "_Source", listed: Mapping[str, tuple[Tool, "_Source"]]) -> str | None:
        """Return why a tool is not offered; None where it may be. A name keeps its meaning: nobody takes it over in a session."""
        rename = "Wrap the toolset in Prefixed or Renamed."
        if self._toolbox.get(tool.name) is not None:
            return f"The agent has a tool named {tool.name!r} of its own. {rename}"
        if tool.name in listed:
            other = listed[tool.name][1]
            return f"Toolset {other.name!r} has a tool named {tool.name!r} too. {rename}"
        owner = self._owners.get(tool.name, source.name)
        if owner != source.name and any(one.name == owner for one in self._sources):
            return f"In this session {tool.name!r} is a tool of toolset {owner!r}. {rename}"
        fix(tool)
        before = self._listed.get(tool.name)
        if before is not None and (before[0] is tool or self.contracts.inherit(tool, before[0])):
            return None
        try:
            self.contracts.compile(tool)
        except ToolDefinitionError as error:
            return shown_error(error)
        return None


class _Names:
    """The names of the tools of which something holds, as they are now."""

    def __init__(self, offering: Offering, holds: Callable[[Tool], bool]) -> None:
        self._offering = offering
        self._holds = holds

    def __contains__(self, name: object) -> bool:
        tool = self._offering.named(str(name))
        return tool is not None and self._holds(tool)


class _Source:
    """One toolset of a run: what it is held open by, its tools as it listed them last, and what is wrong with it."""

    def __init__(self, toolset: Toolset) -> None:
        self.name = toolset.name
        self.tools: tuple[Tool, ...] = ()
        self.told = ""
        """What the model reads of the exception that made it fail; empty where none did."""
        self.refused: dict[str, str] = {}
        """Why tools of it are not offered, by name."""
        self.kept: Kept[OpenToolset] | None = None
        self.asking: asyncio.Future[Any] | None = None
        self._toolset = toolset
        self._found: Sequence[Tool] = ()
        self._failed: tuple[Literal["open", "list", "run"], str] | None = None
        self._reported: tuple[object, ...] = ()

    @property
    def problem(self) -> str | None:
        """Why its tools are unavailable; None while they are there."""
        kept = self.kept
        if self._failed is None and kept is not None and kept.failure is not None:
            self._fail_by("run" if kept.has_opened else "open", kept.failure)
        return None if self._failed is None else self._failed[1]

    @property
    def is_opening(self) -> bool:
        return self.kept is not None and not self.kept.opened.done()

    def fail(self, phase: Literal["open", "list", "run"], why: str) -> None:
        """Note that its tools are unavailable. The first reason stays."""
        self._failed = self._failed or (phase, why)
        self.tools, self._found = (), ()

    def _fail_by(self, phase: Literal["open", "list", "run"], error: BaseException) -> None:
        if self._failed is None:
            self.told = f"{told(first_of(error), 'short')}."
        self.fail(phase, failure_message(error))

    def begin(self, ctx: ToolsetContext, opened: Opened | None) -> None:
        """Begin to open it for this run, or take it as it is held for several."""
        self.kept = (
            hold(self._toolset, lambda: self._toolset.open(ctx)) if opened is None else opened.begin(self._toolset)
        )

    def is_asked(self, session: SessionView) -> bool:
        """Ask it for its tools. Return whether the answer must be waited for."""
        self.asking = None
        if self._failed is not None and self._failed[0] == "list":
            self._failed = None  # it may be well again
        opened = None if self.kept is None else self.kept.value
        if self.problem is not None or opened is None:
            return False
        self.take(lambda: opened.tools(session))
        return self.asking is not None

    def left_out(self) -> dict[str, str]:
        """Return why the toolset itself leaves tools out, by name, where it says so as `OpenToolset.tools` describes."""
        opened = None if self.kept is None or self.problem is not None else self.kept.value
        found = getattr(opened, "left_out", None)  # no part of the port: most toolsets leave nothing out
        there = {tool.name for tool in self.tools}
        said = found.items() if isinstance(found, Mapping) else ()
        return {str(name): str(why) for name, why in said if name not in there}

    def take(self, ask: Callable[[], Any]) -> None:  # Any: whatever a stranger's function returns
        """Take its tools, or begin to wait for them. A toolset that raises is unavailable."""
        try:
            found = ask()
            if inspect.isawaitable(found):
                self.asking = asyncio.ensure_future(contained(found))
            else:
                self._take(found)
        except BaseException as error:  # noqa: BLE001 - a stranger's code; Ctrl-C alone is passed on
            if not isinstance(error, asyncio.CancelledError):
                pass_interrupts(error)
            self._fail_by("list", error)

    def _take(self, found: Any) -> None:
        if not isinstance(found, Sequence) or isinstance(found, str | bytes):
            raise ToolDefinitionError(f"tools() must return a list of tools; got {shown(found)}.")
        if _are_same(found, self._found):
            return
        if (wrong := next((one for one in found if not isinstance(one, Tool)), None)) is not None:
            raise ToolDefinitionError(f"tools() must return a list of tools; it holds {shown(wrong)}.")
        before = {id(one): bound for one, bound in zip(self._found, self.tools, strict=True)}
        self._found = tuple(found)
        self.tools = tuple(before.get(id(one)) or self._bound(one) for one in found)

    def _bound(self, tool: Tool) -> Tool:
        """Return a tool whose call ends when the toolset does: nobody would answer it any more. A thread cannot be cut."""
        if not inspect.iscoroutinefunction(tool.run):
            return tool
        ended = self._ended

        async def run(arguments: JsonObject, ctx: ToolContext) -> Any:
            ended(is_first=ctx.attempt == 1)
            work = asyncio.ensure_future(contained(tool.run(arguments, ctx)))
            assert self.kept is not None
            holder = self.kept.task

            def cut(_: object) -> None:
                work.cancel()

            holder.add_done_callback(cut)
            try:
                return await work
            except asyncio.CancelledError:
                if not is_being_cancelled():
                    ended(is_first=False)
                raise
            finally:
                holder.remove_done_callback(cut)

        return msgspec.structs.replace(tool, run=run)

    def _ended(self, *, is_first: bool) -> None:
        """Raise where the toolset has ended: a call that has not begun is told that it did not run.

        Raises:
            Unfinished: It had ended before the first attempt.
            ConnectionError: It has ended since, and the attempt may have done something.
        """
        if self.kept is None or not self.kept.task.done():
            return
        why = f"Toolset {self.name} is unavailable. {self.problem or 'It is closed.'}"
        if is_first:
            raise Unfinished(CallStatus.FAILED, why, code="toolset_unavailable", may_have_acted=False)
        raise ConnectionError(why)

    def changes(self, owners: Mapping[str, str]) -> list[AnyEvent]:
        """Return what is to be recorded of it: nothing where it is as it was."""
        if self.problem is not None and self._failed is not None:
            phase, why = self._failed
            if self._reported == (phase, why):
                return []
            self._reported = (phase, why)
            gone = tuple(sorted(name for name, owner in owners.items() if owner == self.name))
            logger.warning("Toolset %s is unavailable (%s): %s", self.name, phase, why)
            return [ToolsetFailed(toolset=self.name, phase=phase, message=why, tools=gone)]
        if self.kept is None or self.kept.value is None:
            return []
        events: list[AnyEvent] = []
        ended = getattr(self.kept.value, "ended", None)  # no part of the port: as `left_out`
        if ended is not None and (why := ended()):
            events.append(ToolsetFailed(toolset=self.name, phase="run", message=str(why)))
        names = tuple(tool.name for tool in self.tools if tool.name not in self.refused)
        if self._reported == (names, self.refused):
            return events
        self._reported = (names, dict(self.refused))
        for name, why in self.refused.items():
            logger.warning("Tool %s of toolset %s is not offered: %s", name, self.name, why)
        return [*events, ToolsetListed(toolset=self.name, tools=names, refused=dict(self.refused))]


def _are_same(some: Iterable[object], others: Iterable[object]) -> bool:
    some, others = list(some), list(others)
    return len(some) == len(others) and all(one is other for one, other in zip(some, others, strict=True))
