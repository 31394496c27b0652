"""Tools: what a tool is, its call once it is checked, and the one result that each call gets. Runs nothing."""

import warnings
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Generic, Literal, TypeAlias, get_args

import msgspec
from msgspec import UNSET

from treadle.canonical import MAX_SCHEMA_VALUES, copied, find_unencodable
from treadle.errors import ConfigurationError, ToolDefinitionError, ToolError, shown
from treadle.fields import Documented, NamedOptions, explained
from treadle.messages import Media, ToolCall
from treadle.tools.contexts import Command, Deps_contra, JsonObject, ShellLine, ToolContext
from treadle.tools.effects import CallStatus, Decision, Effect, FileNames, Review, Risk
from treadle.tools.needs import UNCONFINED, Need

__all__ = [
    "CheckedCall",
    "Done",
    "NotDone",
    "Permission",
    "ServiceLost",
    "ServiceSilent",
    "Subject",
    "Tool",
    "ToolExample",
    "ToolOutput",
    "ToolResult",
    "Unfinished",
    "Unknown",
    "answer_of_check",
    "business_key",
    "closed_schema",
    "stricter_permission",
]


# --- Examples: recorded calls of a tool: arguments, and what it returned then. Values only; runs and checks nothing.


class ToolExample(msgspec.Struct, Documented, frozen=True, kw_only=True, metaclass=NamedOptions):
    """A recorded call of a tool. `treadle tools check` holds it to the tool's contracts as they are now.

    Example:
        @tool(effect="read", examples=[ToolExample(arguments={"product": "teapot"}, result=24.5)])
        async def price(product: str) -> float: ...
    """

    arguments: JsonObject
    """The arguments of the call. The model is shown them, in the tool's description."""
    result: Any = UNSET
    """What the tool returned, as JSON; a refusal of its service too. Left out for arguments alone."""
    deterministic: bool = False
    """Whether the same arguments give the same result whenever the tool is called: `tools check --run` calls it and compares."""

    @property
    def has_result(self) -> bool:
        return self.result is not UNSET


# --- Tools: what a tool is, its call once it is checked, and the one result that each call gets. Runs nothing.

Permission: TypeAlias = Literal["allow", "ask", "deny", "always_ask"]
"""The author's word on calls: `always_ask` even if a policy allows them, the others if no policy decides."""


class Subject(msgspec.Struct, Documented, frozen=True, kw_only=True, metaclass=NamedOptions):
    """The one thing that an argument names, whatever its spelling. Rules are matched against it."""

    names: tuple[str, ...]
    """Its canonical names, such as a path relative to the root, links resolved, and the same path from `/`."""
    extent: Literal["itself", "children", "tree"] = "itself"
    """How much below it the call may reach: for a listing its children, for a search of a folder everything."""
    below: str = ""
    """The folder below it to which the call confines itself, such as `docs/api`."""
    resolve: Callable[[str], Sequence[str]] | None = None
    """Returns the canonical names of another path, for rules that name a link."""
    among: FileNames | None = None
    """The folder of files that it is one of: it knows which names in rules are links, so that many rules are judged quickly."""


_SHAPES = {"$ref", "anyOf", "oneOf", "allOf"}
"""Keywords by which a schema may give its type without `type`."""

Run: TypeAlias = Callable[[JsonObject, ToolContext], Awaitable[Any] | Any]


class Tool(
    msgspec.Struct, Documented, Generic[Deps_contra], frozen=True, kw_only=True, eq=False, metaclass=NamedOptions
):
    """One tool: what the model reads, what the runtime enforces, and the function that acts.

    Type checkers know a tool as `Tool[Deps]`: the type of the `ctx.deps` that it needs, `object` for a tool that needs none.

    Example:
        Tool(name="get_rate", description="Today's rate.", parameters={"type": "object", "properties": {}},
             effect="read", run=get_rate)
    """

    name: str
    """Its name for the model, unique among the agent's tools."""
    description: str
    """What the tool does and when to use it, for the model."""
    parameters: JsonObject
    """JSON Schema of the arguments: what the model sees is what is enforced."""
    run: Run
    """Called as run(arguments, ctx). A coroutine function, or a function that runs in a thread."""
    aliases: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Other names that models use for parameters, such as {"file_path": "path"}. They also work in objects of a list."""
    output_schema: JsonObject | None = None
    """JSON Schema of the result; None to accept any JSON value."""
    error_schema: JsonObject | None = None
    """A result that fits this schema and not the output schema is a refusal by the service: `rejected`."""
    effect: Effect | Literal["read", "idempotent", "keyed", "unsafe"] | Callable[[JsonObject], Effect | str] = (
        Effect.UNSAFE
    )
    """What it does to the world, or a function of the arguments that returns this; if it raises, the call is `unsafe`."""
    timeout: float | None = 120.0
    """Seconds that one attempt may take; None for the run's own limit only."""
    retries: int | None = None
    """Attempts beyond the first, if the effect allows any; None for the budget's."""
    resources: Callable[[JsonObject], Mapping[str, str]] | None = None
    """What a call touches, such as {"file:/a": "write"}: calls on different resources may run in parallel. `*` means anything."""
    check: Callable[[JsonObject, ToolContext], Awaitable[Any]] | None = None
    """Asked whether a call of unknown outcome was done: `Done(value)`, `NotDone` or `Unknown`. It needs a `timeout`.
    A plain value that is neither empty nor false means `Done(value)`; None, False, 0, "", [] and {} are not an answer.
    """
    key: Callable[[JsonObject], Any] | None = None
    """What a call is about, such as `lambda arguments: arguments["invoice"]`: a JSON value.

    A call with the same tool and key as a call in doubt needs approval before it runs. Without a key, equal arguments count.
    """
    permission: Permission | Callable[[Any], Permission | None] | None = None
    """`allow`, `ask` or `deny` if no policy decides; `always_ask` even if a policy allows the call; None for the effect's default. Or a
    function of the CheckedCall that returns one of these (if it raises, a person is asked)."""
    risk: Risk | str | Callable[[JsonObject], Risk | str] | None = None
    """Its risk class, one of `treadle.tools.Risk`, or a function of the arguments that returns one; if it raises, the class is
    `privileged_admin`. None: `read_only` for the effect `read`, else `write_external`."""
    review: Callable[[JsonObject, JsonObject], Review] | None = None
    """What a person sees who is asked about a call, in addition to its arguments: a function of the arguments and the session's facts.
    If it raises, it is ignored."""
    draft: str | None = None
    """The tool that prepares what this one commits, with the same arguments. A decision `draft` runs that tool instead."""
    requires_approval: bool | Callable[[Any], bool] = False
    """The old spelling of `permission="always_ask"`, or of a function that returns it. It works for one version."""
    ends_plan: bool = False
    """Whether its calls propose a plan: a person is asked about each, and allowing the plan ends the mode `plan`."""
    result_limit: int | None = None
    """Characters of a result that the model is shown, if fewer than the budget's."""
    visible: bool | Callable[[Any], bool] = True
    """Whether the tool is offered; a function of the session's view decides before each request."""
    guidance: str | None = None
    """Longer advice for the model, placed in the instructions."""
    ends_run: bool = False
    """Whether an `ok` result ends the run with its value as the output."""
    strict: bool = False
    """Whether a scalar in quotes, such as `"42"` for a number, is refused; otherwise it is read as what the schema wants, if only one
    reading fits."""
    polling: bool = False
    """Whether the model is meant to call it repeatedly until something has happened: its calls never count as repetition."""
    interrupt: Literal["cancel", "block"] = "cancel"
    """What a cancellation does to a running call: `cancel` cuts it off, `block` waits for it, up to its own time limit."""
    resumes: bool = False
    """Whether an interrupted call continues when it is started again with the same key, because its work keeps its own record,
    such as an agent's session or a workflow. Such a call is never in doubt, and a cancellation waits for its end."""
    needs_deps: str = ""
    """The type of `ctx.deps` that its function is annotated with: a run that was given none is refused; empty for a tool that needs none."""
    sandbox: Callable[[JsonObject], Command] | Literal["runner"] | None = None
    """How a call runs if it is decided as `sandbox`; None if it cannot, and is then denied.

    A function of the arguments returns the command that the sandbox runs instead; its `ProcessResult` is then the result.
    `"runner"` promises that everything the tool does outside of its process goes through `ctx.runner` whenever that is not None."""
    leaves_sandbox: bool | Callable[[Any], bool] = False
    """Whether a call asks to run without the sandbox; or a function of the CheckedCall. If it would run in one, a person is asked."""
    needs: Callable[[JsonObject], Sequence[Need]] | None = None
    """What of the sandbox's border a call needs lifted, such as `Need("network", "api.example.com")`: a function of the arguments. If it
    raises, the call needs to run without the sandbox. What is not allowed by a rule or a person is not lifted."""
    examples: Sequence[JsonObject | ToolExample] = ()
    """Arguments of good calls, shown to the model; or recorded calls, which `treadle tools check` compares with the contracts."""
    line: Callable[[JsonObject, JsonObject], ShellLine] | None = None
    """A function of the arguments and the session's facts that returns the line of shell a call would run. The line is parsed: rules
    decide on each of its simple commands, and paths outside its root need approval."""
    subjects: Callable[[JsonObject], Mapping[str, "Subject"]] | None = None
    """What some arguments name once they are resolved, such as {"path": Subject(names=("src/a.py",))}. Rules see these names."""
    validate: Callable[[JsonObject], Awaitable[None] | None] | None = None
    """A check after the schema and before any decision. Raises InvalidArguments, or Rejected with its own message."""
    convert: Callable[[JsonObject], JsonObject] | None = None
    """Turns checked JSON arguments into Python values. Raises InvalidArguments."""

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.isprintable() or not 0 < len(self.name) <= 256:
            raise ToolDefinitionError(f"Tool name {shown(self.name)} must be 1 to 256 printable characters.")
        self._check_schemas()
        self._check_options()
        if self.requires_approval:
            self._translate_requires_approval()

    def _translate_requires_approval(self) -> None:
        message = f'Tool {self.name!r}: write permission="always_ask", or a function that returns it: requires_approval= goes.'
        warnings.warn(message, DeprecationWarning, stacklevel=4)
        msgspec.structs.force_setattr(self, "permission", stricter_permission(self.permission, self.requires_approval))
        msgspec.structs.force_setattr(self, "requires_approval", False)

    def _check_schemas(self) -> None:
        if isinstance(self.parameters, dict) and "type" not in self.parameters and not self.parameters.keys() & _SHAPES:
            # Providers refuse a schema that does not say it is an object; a tool without parameters says nothing else.
            whole = {"type": "object", "properties": {}, **self.parameters}
            msgspec.structs.force_setattr(self, "parameters", whole)
        if not isinstance(self.parameters, dict) or not _takes_objects(self.parameters):
            raise ToolDefinitionError(
                f'Tool {self.name!r}: parameters must be the JSON Schema of an object, such as {{"type": "object", '
                f'"properties": {{...}}}}; got {shown(self.parameters)}.'
            )
        for word, schema in (("output_schema", self.output_schema), ("error_schema", self.error_schema)):
            if schema is not None and not isinstance(schema, dict):
                raise ToolDefinitionError(
                    f"Tool {self.name!r}: {word} must be a JSON Schema or None; got {shown(schema)}."
                )
        for word in ("parameters", "output_schema", "error_schema"):
            if (problem := find_unencodable(getattr(self, word), max_values=MAX_SCHEMA_VALUES)) is not None:
                raise ToolDefinitionError(f"Tool {self.name!r}: {word} cannot be a JSON Schema: {problem}.")

    def _check_options(self) -> None:
        for option, wanted, fits in _OPTIONS:
            value = getattr(self, option)
            if not fits(value):
                raise ToolDefinitionError(f"Tool {self.name!r}: {option} must be {wanted}; got {shown(value)}.")
        if not callable(self.effect) and not (isinstance(self.effect, str) and self.effect in set(Effect)):
            names = ", ".join(Effect)
            raise ToolDefinitionError(
                f"Tool {self.name!r}: effect {shown(self.effect)} is not one of {names}, nor a function."
            )
        is_class = isinstance(self.risk, str) and self.risk in set(Risk)
        if self.risk is not None and not callable(self.risk) and not is_class:
            raise ToolDefinitionError(
                f"Tool {self.name!r}: risk {shown(self.risk)} is not a risk class. The classes are: {', '.join(Risk)}."
            )
        if self.draft is not None and (not isinstance(self.draft, str) or self.draft in ("", self.name)):
            raise ToolDefinitionError(
                f"Tool {self.name!r}: draft must be the name of another tool; got {shown(self.draft)}."
            )
        if self.interrupt == "block" and self.timeout is None:
            raise ToolDefinitionError(
                f"Tool {self.name!r}: interrupt='block' needs a timeout, because nothing else ends the call."
            )

        if self.check is not None and self.timeout is None:
            raise ToolDefinitionError(
                f"Tool {self.name!r}: a check needs a timeout. After a crash, NotDone is believed only once the timeout has "
                "passed. Give the number of seconds that one request may take at most."
            )

    @property
    def recorded(self) -> tuple[ToolExample, ...]:  # its examples, those without a result too
        return tuple(one if isinstance(one, ToolExample) else ToolExample(arguments=one) for one in self.examples)

    def effect_of(self, arguments: JsonObject) -> Effect:
        """Return the effect of a call with these arguments. Fails closed: anything unclear is `unsafe`."""
        if not callable(self.effect):
            return Effect(self.effect)
        try:
            return Effect(self.effect(copied(arguments)))
        except KeyboardInterrupt:
            raise
        except BaseException:  # noqa: BLE001 - a predicate that raises, SystemExit too, means unsafe (design section 1)
            return Effect.UNSAFE

    def risk_of(self, arguments: JsonObject, effect: Effect) -> Risk:
        """Return the risk class of a call with these arguments. Fails closed: anything unclear is `privileged_admin`.

        Args:
            effect: What the call does to the world.
        """
        if self.risk is None:
            try:
                return Risk.READ_ONLY if effect.is_read else Risk.WRITE_EXTERNAL
            except AttributeError:
                raise ConfigurationError(f"effect must be an Effect; got {shown(effect)}.") from None
        if not callable(self.risk):
            return Risk(self.risk)
        try:
            return Risk(self.risk(copied(arguments)))
        except KeyboardInterrupt:
            raise
        except BaseException:  # noqa: BLE001 - as for the effect
            return Risk.PRIVILEGED_ADMIN


@explained
def business_key(tool: Tool, arguments: JsonObject) -> str | None:
    """Return what a call is about, as JSON; "" for a tool without a key, and None where its function raises."""
    if tool.key is None:
        return ""
    try:
        return msgspec.json.encode(tool.key(dict(arguments)), order="deterministic").decode()
    except Exception:  # noqa: BLE001 - a stranger's function; who calls this errs on the safe side
        return None


def stricter_permission(
    permission: Permission | Callable[[Any], Permission | None] | None, asks: bool | Callable[[Any], bool]
) -> Permission | Callable[[Any], Permission | None] | None:
    """Return a tool's permission that also asks about each call of which this is true, whatever a policy allows."""
    if not callable(asks):
        return "always_ask" if asks else permission
    return lambda call: "always_ask" if asks(call) else permission(call) if callable(permission) else permission


def closed_schema(required: Sequence[str], /, **properties: Any) -> JsonObject:
    """Return the JSON Schema of an object that has these properties and no others."""
    needed = {"required": list(required)} if required else {}
    return {"type": "object", "properties": properties, **needed, "additionalProperties": False}


def _takes_objects(schema: JsonObject) -> bool:
    kinds = schema.get("type", "object")
    return "object" in kinds if isinstance(kinds, list) else kinds == "object"


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_flag(value: object) -> bool:
    return isinstance(value, bool)


def _is_flag_or_function(value: object) -> bool:
    return isinstance(value, bool) or callable(value)


def _is_function_or_none(value: object) -> bool:
    return value is None or callable(value)


_OPTIONS: tuple[tuple[str, str, Callable[[Any], bool]], ...] = (
    ("description", "a string", lambda value: isinstance(value, str)),
    ("guidance", "a string or None", lambda value: value is None or isinstance(value, str)),
    (
        "permission",
        "allow, ask, deny, always_ask or a function",
        lambda value: value is None or callable(value) or value in get_args(Permission),
    ),
    ("interrupt", "cancel or block", lambda value: value in ("cancel", "block")),
    ("ends_run", "true or false", _is_flag),
    ("polling", "true or false", _is_flag),
    ("strict", "true or false", _is_flag),
    ("resumes", "true or false", _is_flag),
    ("visible", "true, false or a function", _is_flag_or_function),
    ("requires_approval", "true, false or a function", _is_flag_or_function),
    ("leaves_sandbox", "true, false or a function", _is_flag_or_function),
    ("needs", "a function of the arguments", _is_function_or_none),
    ("run", "a function of (arguments, ctx)", callable),
    ("check", "a function of (arguments, ctx)", _is_function_or_none),
    ("resources", "a function of the arguments", _is_function_or_none),
    ("subjects", "a function of the arguments", _is_function_or_none),
    ("line", "a function of the arguments and the facts", _is_function_or_none),
    ("review", "a function of the arguments and the facts", _is_function_or_none),
    ("key", "a function of the arguments", _is_function_or_none),
    ("validate", "a function of the arguments", _is_function_or_none),
    ("convert", "a function of the arguments", _is_function_or_none),
    (
        "sandbox",
        "'runner' or a function of the arguments that returns a Command",
        lambda value: value == "runner" or _is_function_or_none(value),
    ),
    (
        "aliases",
        'names of parameters, such as {"file_path": "path"}',
        lambda value: (
            isinstance(value, Mapping) and all(isinstance(one, str) for pair in value.items() for one in pair)
        ),
    ),
    (
        "examples",
        "a list of arguments, each an object or a ToolExample",
        lambda value: isinstance(value, list | tuple) and all(isinstance(one, dict | ToolExample) for one in value),
    ),
    (
        "timeout",
        "more than 0 seconds",
        lambda value: value is None or ((_is_whole(value) or isinstance(value, float)) and value > 0),
    ),
    ("retries", "0 or more", lambda value: value is None or (_is_whole(value) and value >= 0)),
    ("result_limit", "1 character or more", lambda value: value is None or (_is_whole(value) and value > 0)),
)
"""What options must be, for errors that name the tool."""


class CheckedCall(msgspec.Struct, Documented, frozen=True, kw_only=True):
    """A call with a known tool and valid arguments: policies decide on it, and the scheduler orders it."""

    call: ToolCall
    """The call as the model proposed it."""
    tool: Tool
    """The tool that it names."""
    arguments: JsonObject
    """Parsed, complete with the schema's defaults."""
    is_converted: bool = False
    """Whether they differ from what the model wrote by quotes around a scalar, or by the list around one value."""
    values: JsonObject
    """The same as Python values, for the tool."""
    effect: Effect
    """What the call does to the world."""
    position: int
    """Place of the call in its response."""
    digest: str
    """Of tool and canonical arguments: equal calls have equal digests."""
    key: str
    """The idempotency key."""
    subjects: Mapping[str, Subject] | None = None
    """What its arguments named when it was checked, from `Tool.subjects`: rules judge that, and the tool acts on that. None where its
    tool does not say, or could not."""
    folder: str = "."
    """Where its line of shell starts, relative to the root folder, as it was checked: see `Tool.line`. `.` for any other call."""
    files: tuple[tuple[str, str, str, bool], ...] = ()
    """What the paths of its line led to as it was checked. Of each: its name; the path in the line, where that goes through a link; `read` or
    `write`; and whether it has other names (hard links)."""
    decision: Decision | None = None
    """The decision by which it runs. A policy sees the one so far here: its own, when it is asked about what it changed; or the
    recorded one of a call that continues after a pause or a crash. None where nothing is decided yet."""
    is_confined: bool = False
    """Whether it runs in a sandbox without network of which it needs nothing lifted, if it runs: what the sandbox enforces needs no proof."""

    @property
    def id(self) -> str:
        return self.call.id

    @property
    def name(self) -> str:
        return self.tool.name

    @property
    def risk(self) -> Risk:
        """Its risk class."""
        return self.tool.risk_of(self.arguments, self.effect)

    @property
    def permission(self) -> Permission | None:
        """What the author of its tool says of it. A function that raises, or returns anything else, asks."""
        said = self.tool.permission
        if not callable(said):
            return said
        try:
            found = said(self._copy())
        except KeyboardInterrupt:
            raise
        except BaseException:  # noqa: BLE001 - a stranger's function, SystemExit too: one that cannot say asks
            return "always_ask"
        return found if found is None or found in get_args(Permission) else "always_ask"

    @property
    def needs(self) -> tuple[Need, ...]:
        """What of the sandbox's border it needs lifted; nothing for a call that can run confined."""
        try:
            leaves = self.tool.leaves_sandbox
            found = [UNCONFINED] if (leaves(self._copy()) if callable(leaves) else leaves) else []
            found += [] if self.tool.needs is None else self.tool.needs(copied(self.arguments))
        except KeyboardInterrupt:
            raise
        except BaseException:  # noqa: BLE001 - a stranger's function, SystemExit too: one that cannot say asks for all
            return (UNCONFINED,)
        return tuple(dict.fromkeys(found))

    def _copy(self) -> "CheckedCall":
        arguments = copied(self.arguments)
        return msgspec.structs.replace(self, arguments=arguments, values=arguments)

    @property
    def named(self) -> Mapping[str, tuple[str, ...]]:
        """The canonical names of what its arguments named when it was checked, by argument."""
        found = (self.subjects or {}).items()
        return {key: one.names for key, one in found if isinstance(one, Subject) and one.names}


class ToolResult(msgspec.Struct, Documented, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The one result that each call gets."""

    call_id: str
    """Id of the call."""
    name: str
    """Name of the tool."""
    status: CallStatus
    """What happened to the call, such as `ok`, `denied` or `timeout`."""
    content: str
    """What the model is shown: bounded text, or JSON if the value is not text."""
    data: Any = None
    """The value itself (JSON), if the status is `ok` or `rejected` and the value was not too large."""
    display: str | None = None
    """What a person sees instead of the content."""
    message: str | None = None
    """The error, in one sentence."""
    code: str | None = None
    """More exact than the status, such as `budget_exceeded`."""
    media: tuple[Media, ...] = ()
    """Images and files for the model."""
    attempts: int = 0
    """How often the tool was started; 0 if never."""
    duration_seconds: float = 0.0
    """Seconds that the call took."""
    execution_id: str = ""
    """Id of this execution; the result in the transcript carries it too."""
    artifact: str | None = None
    """Digest of the whole text in the journal, if the content shows only a part."""
    facts: JsonObject | None = None
    """The facts that it stores in the session: see `ToolOutput.facts`."""
    may_have_acted: bool = False
    """Whether the world may have changed although the call failed."""

    @property
    def is_error(self) -> bool:
        return self.status is not CallStatus.OK


# --- Outputs: what a tool's functions return: a result with several parts, a call without a value, the answer of a
# check.


class Done(msgspec.Struct, Documented, frozen=True):
    """Answer of a tool's `check`: the call was done, with this result. `Done()` has no value.

    Example:
        async def was_paid(arguments, ctx):
            return Done({"receipt": 7})
    """

    value: Any = None
    """What the tool would have returned: checked against its output contract."""


class NotDone:
    """Answer of a tool's `check`: the call certainly did not happen."""


class Unknown:
    """Answer of a tool's `check`: it cannot be determined."""


def answer_of_check(value: object) -> "type[NotDone | Unknown] | Done | None":
    """Return the answer of a tool's `check`; None if its value is not an answer, such as None, False or an empty list.

    A plain value that is neither empty nor false means `Done(value)`.
    """
    try:
        return _answer(value)
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - looking at a stranger's object may raise anything
        return None


def _answer(value: object) -> "type[NotDone | Unknown] | Done | None":
    if value is NotDone or isinstance(value, NotDone):
        return NotDone
    if value is Unknown or isinstance(value, Unknown):
        return Unknown
    if isinstance(value, Done):
        return value
    if value is Done:
        return Done()
    return None if _says_nothing(value) else Done(value)


def _says_nothing(value: object) -> bool:
    """Whether a value of `check` reads like a search that found nothing, or a `return` or `await` that was forgotten."""
    found = value.data if isinstance(value, ToolOutput) else value
    return not found or isinstance(found, Awaitable)


class ServiceLost(ToolError, ConnectionError):
    """Raised by Treadle's own tools where a connection was lost: the call may have been carried out."""


class ServiceSilent(ToolError, TimeoutError):
    """Raised by Treadle's own tools where no answer has come: the call may have been carried out."""


class Unfinished(Exception):
    """Raised by a tool whose call ended without a value, and that knows what happened to it, such as an agent that is a tool.

    Args:
        message: One sentence for the model.
        body: Details: any JSON value.
        code: A more precise code than the status.
        may_have_acted: Whether the world may have changed.
    """

    def __init__(
        self, status: CallStatus, message: str, *, body: Any = None, code: str | None = None, may_have_acted: bool
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.body = body
        self.code = code
        self.may_have_acted = may_have_acted


class ToolOutput(msgspec.Struct, Documented, frozen=True, kw_only=True):
    """A result with several parts: a value for the model, media, a text for people, facts."""

    data: Any = None
    """The value: checked against the output contract and shown to the model as JSON."""
    media: tuple[Media, ...] = ()
    """Images and files for the model."""
    display: str | None = None
    """What a person sees instead of the data."""
    artifact: bytes | None = None
    """The whole, if the data is only a part of it, such as the complete output of a command. It is kept in the journal, and the
    result's `artifact` names it."""
    facts: JsonObject | None = None
    """Facts to store in the session, by name, such as {"read": {"a.py": "sha256..."}}: a JSON merge patch.

    Objects are merged into the existing facts, and None removes one. Tools read them as `ctx.facts`; the model does not see them."""
