"""Toolbox: the tools of one agent, what of them one request offers, and their compiled contracts. Decides and runs nothing."""

import asyncio
import difflib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, lru_cache, partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from msgspec.structs import force_setattr, replace

from treadle.canonical import find_unencodable, read_only
from treadle.concurrency import Threads
from treadle.errors import InvalidArguments, InvalidJson, ToolNameConflict
from treadle.ports import SessionView, ToolSpec, UnmatchedRule
from treadle.redaction import redacted_logger
from treadle.tools import Effect, JsonObject, Tool, ToolExample
from treadle.tools.foreign import job_of

if TYPE_CHECKING:
    from types import ModuleType

    from treadle.validation import Schema

__all__ = [
    "PARALLEL_HINT",
    "Completed",
    "Contracts",
    "Offer",
    "Plain",
    "Source",
    "Toolbox",
    "fix",
    "is_visible",
    "spec_of",
    "violation_text",
]

PARALLEL_HINT = "This call is independent and may be issued in parallel with others."
"""What the descriptions of tools that only read say to the model (seed 000: it nudges towards batches)."""

logger = redacted_logger(__name__)

_threads = Threads()
_FEW_VALUES = 10_000
_FEW_CHARS = 256 * 1024
"""What is looked at in the event loop; more is looked at in a thread."""


class Plain(msgspec.Struct, frozen=True, kw_only=True):
    """What a tool returned, as JSON data."""

    data: Any = None
    problem: str | None = None
    """What keeps it from being that; then there is no data."""
    is_large: bool = False
    """Whether it holds so much that whatever looks at it belongs into a thread."""


class Completed(msgspec.Struct, frozen=True, kw_only=True):
    """Arguments that fit their tool."""

    arguments: JsonObject
    is_converted: bool = False
    """Whether a scalar in quotes, or one value for a list, was read as what the schema wants."""


class Source(Protocol):
    """Where a tool comes from that is not the agent's own."""

    @property
    def name(self) -> str: ...

    @property
    def problem(self) -> str | None:
        """Why its tools are unavailable; None while they are there."""
        ...


class Offer:
    """The tools that one request offers. The calls of its response are judged by it, whatever has changed since.

    Args:
        tools: Sorted by name.
        sources: Of the tools that are not the agent's own, by name.
    """

    def __init__(
        self,
        tools: tuple[Tool, ...],
        specs: tuple[ToolSpec, ...],
        *,
        sources: Mapping[str, Source] | None = None,
        unavailable: tuple[str, ...] = (),
    ) -> None:
        self.tools = tools
        self.specs = specs
        """What the model is told of them: the same object for the same tools, so that it is encoded once."""
        self.unavailable = unavailable
        """Names of the toolsets whose tools are missing."""
        self._tools = {tool.name: tool for tool in tools}
        self._sources = sources or {}

    def find(self, name: str) -> Tool | None:
        """Return the tool by that exact name, if it is offered and has not become unavailable since."""
        tool, source = self._tools.get(name), self._sources.get(name)
        return tool if source is None or source.problem is None else None

    def near(self, name: str) -> list[str]:
        """Return the names that the model may have meant, nearest first: of the tools that do what one of this name does elsewhere, or else
        of those that resemble it.
        """
        if job := job_of(name):
            doing = [tool.name for tool in self.tools if job_of(tool.name) == job]
            doing = doing or [tool.name for tool in self.tools if tool.name.endswith((f"_{job}", f"-{job}"))]
            doing = doing or [
                tool.name for tool in self.tools if tool.resumes and job == "spawn_agent" and not job_of(tool.name)
            ]
            if doing:
                return doing[:3]
        folded = {tool.name.casefold(): tool.name for tool in self.tools}
        close = difflib.get_close_matches(name[:100].casefold(), folded, n=3, cutoff=0.6)
        return [folded[match] for match in close]


class Contracts:
    """The compiled contracts of tools, and the checks against them. Each schema is compiled when it is first needed.

    Args:
        base: Contracts that are compiled already; nothing is added to them.
    """

    def __init__(self, base: "Contracts | None" = None) -> None:
        # With the schema itself: as long as it is held, no other object has its id.
        self.compiled: dict[tuple[int, str], tuple[JsonObject, Schema]] = {}
        self._base = {} if base is None else base.compiled

    def parse(self, raw: str) -> JsonObject:
        """Read raw arguments strictly.

        Raises:
            InvalidJson: They are not valid JSON.
            InvalidArguments: They are JSON, but no object.
        """
        validation = _validation()
        try:
            arguments: JsonObject = validation.parse_arguments(raw)
        except validation.NotJson as error:
            where = {"line": error.line, "column": error.column, "snippet": error.snippet, "reason": error.reason}
            raise InvalidJson(str(error), where) from error
        return arguments

    def complete(self, tool: Tool, arguments: JsonObject, *, strict: bool = True) -> Completed:
        """Give arguments the names of the parameters, check them against the full schema, and fill in its defaults.

        Args:
            strict: Whether a scalar in quotes is refused where the schema wants none, as for a tool that is strict itself.

        Raises:
            InvalidArguments: With every violation.
        """
        self._schema(tool, "output_schema", tool.output_schema)  # a broken contract is found before the tool acts
        schema = self._schema(tool, "parameters", tool.parameters)
        if schema is None:
            return Completed(arguments=arguments)
        if tool.aliases:
            arguments = _named(arguments, tool.aliases)
        is_converted = False
        if violations := schema.violations(arguments):
            read = None if strict or tool.strict else _validation().unquoted(arguments, schema)
            if read is None:
                words = _validation().correction(arguments, violations, tool.parameters)
                raise InvalidArguments(words, violations)
            arguments, is_converted = read, True
        filled = schema.with_defaults(arguments, nested=tool.convert is None)  # a Python type has its own defaults
        return Completed(arguments=filled, is_converted=is_converted)

    def result_violations(self, tool: Tool, value: Any) -> list[dict[str, Any]]:
        """Return every way in which a result breaks the tool's output contract."""
        schema = self._schema(tool, "output_schema", tool.output_schema)
        return [] if schema is None else schema.check_result(value)

    async def plain(self, value: Any) -> Plain:
        """Return a tool's value as plain JSON, or what keeps it from being that. A large one is looked at in a thread."""
        if type(value) is str and len(value) <= _FEW_CHARS and (value.isascii() or find_unencodable(value) is None):
            return Plain(data=value)  # most results
        plain = _plain(value, max_values=_FEW_VALUES, max_chars=_FEW_CHARS)
        return plain or await _threads.submit(partial(_large, value))

    def shape_mismatch(self, tool: Tool, value: Any) -> str:
        """Say in one sentence what was expected of a result and what came."""
        return str(_validation().shape_mismatch(tool.output_schema, value))

    def fits_error_schema(self, tool: Tool, value: Any) -> bool:
        """Whether a result is the service saying no, in the form that the tool declares."""
        schema = self._schema(tool, "error_schema", tool.error_schema)
        return schema is not None and not schema.check_result(value)

    def drift(self, tool: Tool, value: Any) -> list[dict[str, Any]]:
        """Return every way in which a recorded result breaks the tool's output contract; none for a refusal that it declares."""
        return [] if self.fits_error_schema(tool, value) else self.result_violations(tool, value)

    def _schema(self, tool: Tool, kind: str, schema: JsonObject | None) -> "Schema | None":
        if schema is None:
            return None
        key = (id(schema), kind)
        known = self._base.get(key) or self.compiled.get(key)
        if known is None:
            known = (schema, _validation().Schema(schema, where=f"{kind} of tool {tool.name!r}"))
            self.compiled[key] = known
        return known[1]

    def compile(self, tool: Tool) -> None:
        """Compile every contract of a tool now.

        Raises:
            ToolDefinitionError: A schema is invalid.
        """
        for problem in self.unfit_defaults(tool):
            _warn_once(f"Tool {tool.name}: a default does not fit and is not filled in: {problem}.")
        self._schema(tool, "output_schema", tool.output_schema)
        self._schema(tool, "error_schema", tool.error_schema)

    def unfit_defaults(self, tool: Tool) -> list[str]:
        """Say of each default that breaks its own schema what is wrong with it: it is not filled in.

        Raises:
            ToolDefinitionError: The schema itself is invalid.
        """
        schema = self._schema(tool, "parameters", tool.parameters)
        if schema is None or tool.convert is not None:
            return []
        return [violation_text(unfit, "the arguments") for unfit in schema.unfit_defaults()]

    def inherit(self, tool: Tool, before: Tool) -> bool:
        """Take over what was compiled of a tool for another object of the same contracts. Return whether they are the same."""
        for kind in _KINDS:
            if getattr(tool, kind) != getattr(before, kind):
                return False
        for kind in _KINDS:
            known = self.compiled.get((id(getattr(before, kind)), kind))
            if known is not None:
                self.compiled[id(getattr(tool, kind)), kind] = (getattr(tool, kind), known[1])
        return True

    def forget_but(self, tools: Iterable[Tool]) -> None:
        """Drop what was compiled for other tools than these."""
        kept = {(id(getattr(tool, kind)), kind) for tool in tools for kind in _KINDS}
        self.compiled = {key: known for key, known in self.compiled.items() if key in kept}


def _plain(value: Any, **limits: int) -> Plain | None:
    """Return a value as plain JSON; None for one that holds more than the limits allow."""
    validation = _validation()
    try:
        data = validation.data_of(value, **limits)
        msgspec.json.encode(data)  # finds what only an encoder refuses, such as an integer of 5,000 digits
    except validation.TooMuch as error:
        return None if limits else Plain(problem=str(error))
    except validation.NotData as error:
        return Plain(problem=str(error))
    except (KeyboardInterrupt, asyncio.CancelledError):
        raise
    except BaseException as error:  # noqa: BLE001 - the value is a stranger's object: looking at it may raise anything
        return Plain(problem=f"$ cannot be read ({type(error).__name__})")
    return Plain(data=data)


def _large(value: Any) -> Plain:
    plain = _plain(value)
    assert plain is not None
    return msgspec.structs.replace(plain, is_large=True)


@lru_cache(maxsize=10_000)
def _warn_once(sentence: str) -> None:
    """Report something about a tool: once in a process, for each run may list its tools anew."""
    logger.warning("%s", sentence)


def _named(given: JsonObject, aliases: Mapping[str, str]) -> JsonObject:
    """Return an object with the parameters' own names. One that is given under two names stays as it is: the schema refuses it."""
    found: JsonObject = {}
    for name, value in given.items():
        own = aliases.get(name, name)
        key = name if own in given else own
        if isinstance(value, list):
            value = [_named(one, aliases) if isinstance(one, dict) else one for one in value]  # noqa: PLW2901 - the same, named
        found[key] = value
    return found


_KINDS = ("parameters", "output_schema", "error_schema")


class Told:
    """Which rules an agent's operator was told of that match none of its tools."""

    def __init__(self) -> None:
        self.of: tuple[str, ...] | None = None
        """The names of the tools that the rules were compared with last."""
        self.rules: set[UnmatchedRule] = set()


class Toolbox:
    """The tools that an agent has by itself. Immutable after construction; shared by all runs of the agent."""

    def __init__(self, tools: Iterable[Tool], *, parallel_hint: bool = False) -> None:
        self.has_hints = parallel_hint
        """Whether descriptions of tools that only read say that calls may be issued in parallel."""
        self.contracts = Contracts()
        self._tools: dict[str, Tool] = {}
        for tool in tools:
            if tool.name in self._tools:
                raise ToolNameConflict(f"Two tools are named {tool.name!r}. Rename one of them.")
            fix(tool)
            self._tools[tool.name] = tool
        self._offers: dict[tuple[str, ...], Offer] = {}
        self.is_fixed = all(tool.visible is True for tool in self._tools.values())
        """Whether each of them is always offered."""
        self._sorted = tuple(self._tools[name] for name in sorted(self._tools))
        self.polling = frozenset(tool.name for tool in self._sorted if tool.polling)
        """Names of tools that are meant to be called again and again."""
        self.ending = frozenset(tool.name for tool in self._sorted if tool.ends_run)
        """Names of tools whose success ends the run."""
        self.validates = any(tool.validate is not None for tool in self._sorted)
        """Whether a tool checks its arguments by code of its own."""
        self.calls_agents = any(tool.resumes for tool in self._sorted)
        """Whether a tool may carry out its calls by other agents, whose tools are not known here."""
        self.told = Told()

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._sorted)

    def __len__(self) -> int:
        return len(self._tools)

    def get(self, name: str) -> Tool | None:
        """Return the tool by that exact name, visible or not."""
        return self._tools.get(name)

    def visible(self, session: SessionView) -> tuple[Tool, ...]:
        """Return the tools that are offered now, sorted by name."""
        return self._sorted if self.is_fixed else tuple(tool for tool in self._sorted if is_visible(tool, session))

    def offer(self, tools: tuple[Tool, ...]) -> Offer:
        """Return the offer of some of these tools: the same object for the same ones."""
        names = tuple([tool.name for tool in tools])
        if names not in self._offers:
            self._offers[names] = Offer(tools, tuple(spec_of(tool, has_hints=self.has_hints) for tool in tools))
        return self._offers[names]

    def compile(self) -> None:
        """Compile every contract now.

        Raises:
            ToolDefinitionError: A schema is invalid.
        """
        for tool in self._sorted:
            self.contracts.compile(tool)


def fix(tool: Tool) -> None:
    """Make a tool's schemas, examples and aliases read-only: an agent has it now, and whoever is shown it changes nothing."""
    for kind in _KINDS:
        force_setattr(tool, kind, read_only(getattr(tool, kind)))
    force_setattr(tool, "examples", tuple(map(_fixed_example, tool.examples)))
    if not isinstance(tool.aliases, MappingProxyType):
        force_setattr(tool, "aliases", MappingProxyType(dict(tool.aliases)))


def _fixed_example(example: JsonObject | ToolExample) -> Any:  # Any: the same of either kind
    if not isinstance(example, ToolExample):
        return read_only(example)
    return replace(example, arguments=read_only(example.arguments), result=read_only(example.result))


def is_visible(tool: Tool, session: SessionView) -> bool:
    """Whether a tool is offered now. One that cannot say so is not."""
    if not callable(tool.visible):
        return tool.visible
    try:
        return bool(tool.visible(session))
    except KeyboardInterrupt:
        raise
    except BaseException:
        logger.warning("visible() of tool %r raised; the tool is not offered", tool.name, exc_info=True)
        return False


def spec_of(tool: Tool, *, has_hints: bool) -> ToolSpec:
    """Return what a model reads about a tool."""
    description = tool.description
    if has_hints and tool.effect == Effect.READ and "parallel" not in description.lower():
        description = f"{description}\n\n{PARALLEL_HINT}".strip()
    if tool.examples:
        shown = "\n".join(msgspec.json.encode(example.arguments).decode() for example in tool.recorded)
        description = f"{description}\n\nExamples of arguments:\n{shown}"
    return ToolSpec(name=tool.name, description=description, parameters=tool.parameters)


def violation_text(row: Mapping[str, Any], whole: str) -> str:
    """Say what does not fit.

    Args:
        whole: What is wrong if it is not a single field.
    """
    field = row.get("field") or whole
    constraint = str(row.get("constraint"))
    if constraint.startswith("required"):  # nothing was given, which is not the same as null
        return f"`{field}` is missing: {constraint}"
    if constraint.startswith(("no such property", "not allowed")):
        return f"`{field}`: {constraint}"
    return f"`{field}`: expected {constraint}; got {_brief(row.get('value'))}"


def _brief(value: Any) -> str:
    """Show a value as the model writes it: JSON. A value that is not JSON is shown by its repr."""
    try:
        text = msgspec.json.encode(value).decode()
    except (TypeError, ValueError, OverflowError):
        text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


@cache
def _validation() -> "ModuleType":
    """Load the validators on first use: `from treadle import Agent` must stay cheap (design section 8)."""
    from treadle import validation

    return validation
