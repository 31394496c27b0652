"""Wrappers: tools made of tools. Each returns a new Tool; the one inside is untouched."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from inspect import isawaitable
from typing import Any, Literal, TypeAlias

import msgspec

from treadle.concurrency import Breaker, Kept, bury, watch
from treadle.errors import ConfigurationError, InvalidArguments, Rejected, shown
from treadle.fields import checked
from treadle.ports import Clock, OpenToolset, SessionView, Toolset, ToolsetContext, is_toolset
from treadle.sandboxes.processes import run_process
from treadle.state import Approval
from treadle.tools import Answer, CheckedCall, JsonObject, ProcessResult, Tool, ToolContext
from treadle.tools.tool import stricter_permission
from treadle.validation import NotJson, parse_arguments

__all__ = [
    "Filtered",
    "Prefixed",
    "ProgramApprover",
    "Renamed",
    "RequireApproval",
    "Shared",
    "ToolList",
    "VisibleWhen",
    "guarded_by_breaker",
]


@checked
def guarded_by_breaker(tool: Tool, *, clock: Clock, failures: int = 5, open_seconds: float = 30.0) -> Tool:
    """Return a tool that is left alone for a while after so many failures in a row, and then tried once.

    Until then each call is answered at once: rejected, with code `circuit_open` and when to try again. A service that
    refuses a call (`Rejected`) has not failed.

    Args:
        failures: How many failures in a row open the breaker.
        open_seconds: How many seconds the tool is left alone.
    """
    breaker = Breaker(failures=failures, open_seconds=open_seconds)

    @contextmanager
    def guarded() -> Iterator[None]:
        now = clock.monotonic()
        if not breaker.begin(now):
            wait = round(breaker.seconds_until_trial(now), 3)
            body = {"error": f"{tool.name} keeps failing and is left alone for now.", "retry_after": wait}
            raise Rejected(body, code="circuit_open")
        try:
            yield
        except Rejected:
            breaker.succeeded()
            raise
        except Exception:
            breaker.failed(clock.monotonic())
            raise
        except BaseException:
            breaker.gave_up()
            raise
        breaker.succeeded()

    async def awaited(arguments: JsonObject, ctx: ToolContext) -> Any:
        with guarded():
            return await tool.run(arguments, ctx)

    def called(arguments: JsonObject, ctx: ToolContext) -> Any:
        with guarded():
            return tool.run(arguments, ctx)

    return msgspec.structs.replace(tool, run=awaited if inspect.iscoroutinefunction(tool.run) else called)


# --- A program as an approver: it reads a request for consent as JSON, and says yes, no, or nothing. Runs that one
# program.

_EXIT_DENY = 2
_MAX_REASON = 500


class ProgramApprover:
    """Asks a program about each call that needs consent.

    The program reads the request as one JSON object, with the fields of `Approval`. It prints a JSON object with the fields of `Answer`,
    such as `{"answer": "allow"}`. Exit code 2 denies, with what it writes to its standard error as the reason.

    Example:
        Agent(model, tools=tools, approver=ProgramApprover(["./may-it.py"], otherwise="deny"))

    Args:
        command: The program and its arguments; no shell reads them.
        timeout: Seconds after which it has said nothing.
        otherwise: What happens to a call where the program says nothing, fails or does not exist: `pause` leaves it to a person.

    Raises:
        ConfigurationError: The command or `otherwise` is invalid.
    """

    @checked
    def __init__(
        self, command: Sequence[str], *, timeout: float = 60.0, otherwise: Literal["pause", "deny"] = "pause"
    ) -> None:
        if not command:
            raise ConfigurationError(f"command must be a list, such as ['./may-it.py']; got {shown(command)}.")
        self._command = tuple(command)
        self._timeout = timeout
        self._otherwise = otherwise
        self.name = self._command[0]

    @checked
    async def approve(self, asked: Approval) -> Answer | None:
        """Run the program, and return what it says."""
        try:
            result = await run_process(self._command, stdin=msgspec.json.encode(asked), timeout=self._timeout)
        except OSError as error:
            return self._nothing(f"{self.name} cannot be run: {error}")
        if result.exit_code == _EXIT_DENY and not result.timed_out:
            return Answer(answer="deny", reason=result.stderr.strip()[:_MAX_REASON], by=f"program:{self.name}")
        return self._read(result)

    def _read(self, result: ProcessResult) -> Answer | None:
        if result.timed_out:
            return self._nothing(f"{self.name} did not answer within {self._timeout:g} seconds.")
        if result.exit_code != 0:
            return self._nothing(f"{self.name} ended with exit code {result.exit_code}.")
        try:
            said = _read_answer(result.stdout)
        except ValueError as error:
            return self._nothing(f"{self.name} did not print an answer: {error}")
        return msgspec.structs.replace(said, by=f"program:{said.by or self.name}")

    def _nothing(self, why: str) -> Answer | None:
        return None if self._otherwise == "pause" else Answer(answer="deny", reason=why, by=f"program:{self.name}")


def _read_answer(text: str) -> Answer:
    """Read an answer strictly: one that says two things, or that is not understood, does not count.

    Raises:
        ValueError: It is not an answer.
    """
    try:
        said = parse_arguments(text)
    except (NotJson, InvalidArguments) as error:
        raise ValueError(str(error)) from error
    if unknown := [name for name in said if name not in Answer.__struct_fields__]:
        raise ValueError(f"unknown field `{unknown[0]}`")
    return msgspec.convert(said, Answer)


# --- Reshaped: toolsets made of toolsets: with other names, fewer tools, or a person's word before each call. The one
# inside is untouched.

_Change: TypeAlias = Callable[[Tool], Tool | None]


class ToolList:
    """A toolset of tools that are there already.

    Example:
        ToolList(file_tools("."), name="files")
    """

    @checked
    def __init__(self, tools: Sequence[Tool], *, name: str = "") -> None:
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

    @checked
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

    @checked
    def __init__(self, source: Toolset | Sequence[Tool], names: Mapping[str, str]) -> None:
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

    @checked
    def __init__(self, source: Toolset | Sequence[Tool], keep: Callable[[Tool], bool] | Collection[str]) -> None:
        stays = keep if callable(keep) else partial(_is_named, frozenset(keep))
        super().__init__(source, lambda tool: tool if stays(tool) else None)


class RequireApproval(_Reshaped):
    """A toolset each of whose calls a person must allow, though a policy allows it: its tools get `permission="always_ask"`.

    Example:
        RequireApproval(tickets, when=lambda call: not call.effect.is_read)

    Args:
        source: A toolset, or a list of tools.
        when: Says of a call whether a person must allow it; without it, of every call. One that raises asks.
    """

    @checked
    def __init__(self, source: Toolset | Sequence[Tool], *, when: Callable[[CheckedCall], bool] | None = None) -> None:
        super().__init__(
            source,
            lambda tool: msgspec.structs.replace(tool, permission=stricter_permission(tool.permission, when or True)),
        )


class VisibleWhen(_Reshaped):
    """A toolset whose tools are offered while a condition on the session holds.

    Example:
        VisibleWhen(deployment, lambda session: "plan" in session.state.facts.values)

    Args:
        source: A toolset, or a list of tools.
        condition: A function of the session, asked before each request. Where it raises, the tools are not offered.
    """

    @checked
    def __init__(self, source: Toolset | Sequence[Tool], condition: Callable[[SessionView], bool]) -> None:
        super().__init__(source, lambda tool: msgspec.structs.replace(tool, visible=_both(tool, condition)))


@checked
def toolset_of(source: Toolset | Sequence[Tool]) -> Toolset:
    """Return a toolset as it is, and a list of tools as a toolset."""
    return source if is_toolset(source) else ToolList(source)  # type: ignore[arg-type]  # the other of the two


def _is_named(names: frozenset[str], tool: Tool) -> bool:
    return tool.name in names


def _check_name(what: str, name: str) -> None:
    if not name or not name.isprintable():
        raise ConfigurationError(f"The {what} must be a printable text; got {shown(name)}.")


def _both(tool: Tool, condition: Callable[[SessionView], bool]) -> bool | Callable[[SessionView], bool]:
    inside = tool.visible
    if inside is False:
        return False
    if inside is True:
        return condition
    return lambda session: inside(session) and condition(session)


# --- Shared: a toolset that several runs use while it is open once. Knows no run; each counts itself in and out.


class Shared:
    """A toolset that is opened for the first of the runs that use it side by side, and closed after the last.

    `ctx` is that of the first run: what depends on a run's `deps` or session must not be shared. Each event loop and each
    forked process opens its own. A toolset that has failed is opened anew for the next run.

    Example:
        browser = Shared(Browser())
        agent = Agent(model, tools=[browser])
    """

    def __init__(self, source: Toolset | Sequence[Tool]) -> None:
        self._source = toolset_of(source)
        self.name = self._source.name
        self._held: dict[asyncio.AbstractEventLoop, _Held] = {}
        watch(self)

    def after_fork(self) -> None:
        """Leave what is open to the parent: it is neither used nor closed here."""
        bury(self._held)
        self._held = {}

    @asynccontextmanager
    async def open(self, ctx: ToolsetContext) -> AsyncIterator[OpenToolset]:
        """Open the toolset inside, unless another run has."""
        loop = asyncio.get_running_loop()
        held = self._held.get(loop)
        if held is None or held.kept.failure is not None:
            held = self._held[loop] = _Held(Kept(lambda: self._source.open(ctx), name=f"shared toolset {self.name}"))
        held.users += 1
        try:
            async with _in_use(held.kept) as opened:
                yield opened
        finally:
            held.users -= 1
            if not held.users:
                if self._held.get(loop) is held:
                    del self._held[loop]
                await _close(held.kept)


class _Held:
    """A toolset that is open, and how many runs use it."""

    def __init__(self, kept: Kept[OpenToolset]) -> None:
        self.kept = kept
        self.users = 0


@asynccontextmanager
async def _in_use(kept: Kept[OpenToolset]) -> AsyncIterator[OpenToolset]:
    """Use what is being opened. Its failure, then or later, is raised in each run that uses it."""
    await asyncio.shield(kept.opened)  # a run that gives up must not cancel what others wait for
    if (opened := kept.value) is None:
        raise _failure(kept)
    async with asyncio.TaskGroup() as group:
        watcher = group.create_task(_watch(kept))
        yield opened
        watcher.cancel()


async def _watch(kept: Kept[OpenToolset]) -> None:
    await asyncio.wait({kept.task})
    raise _failure(kept)


def _failure(kept: Kept[OpenToolset]) -> BaseException:
    failure = kept.failure
    return RuntimeError("It was closed.") if failure is None or isinstance(failure, asyncio.CancelledError) else failure


async def _close(kept: Kept[OpenToolset]) -> None:
    if kept.has_opened:
        kept.end()
    else:
        kept.cut()
    try:
        await asyncio.wait({kept.task})
    except asyncio.CancelledError:
        kept.cut()
        raise
