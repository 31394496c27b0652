"""The exception tree. A mistake of the programmer or a failure of the machine is an exception; a mistake of the model is a ToolResult.

TreadleError
├── ConfigurationError          an option, name or file is wrong; says which and what to do
│   ├── UnknownModel            no adapter has that name
│   ├── MissingCredential       a provider needs a key that is not set
│   ├── UnknownAgent            no registered agent has the name that the run recorded
│   ├── WorkerNameTaken         a live worker has this name
│   ├── UnknownBudget           a misspelt budget name
│   ├── ToolNameConflict        two tools with one name
│   └── ToolDefinitionError     a tool that cannot be described to a model
├── SessionError
│   ├── SessionHeld             another process (or task) runs this session
│   ├── SessionConflict         the journal has moved on: this writer is fenced
│   │   └── RunHandedOver       `run.hand_over()` has let go of the run: any process may resume it
│   ├── NothingToResume         the session has no paused or stopped run
│   │   ├── NoRunYet            it was never given a task
│   │   └── RunCompleted        its last run is completed: give it a new task
│   ├── AgentChanged            the agent differs from the one that began the run
│   ├── UnknownSession          no session has that id
│   ├── UnknownApproval         no pending approval has that id, or it has been answered
│   │   └── ApprovalExpired     the request was not answered in time; `resume` asks again
│   ├── UnknownDoubt            no call with that id is in doubt, or a person has resolved it
│   ├── UnknownInput            no call with that id waits for an input, or it has already got one
│   ├── SessionExists           a session with that id exists already
│   ├── TaskCancelled           a submitted task was cancelled before a worker began its run
│   ├── SessionNotActive        people have suspended, closed or deleted the session
│   │   └── SessionMoved        the session continues elsewhere; the message says where
│   └── NoSuchPoint             no such point to fork from or rewind to, or a call is open there
├── JournalError                the store failed: full, read-only, corrupt, newer than this program
│   └── IntentNotStored         a call that changes the world may not start, because its start cannot be stored
├── SandboxUnavailable          this machine has no sandbox that can do what is required
├── ModelError                  a model call failed
│   ├── ModelUnavailable        transient: may be retried (429, 5xx, connection, stall)
│   ├── IncompleteStream        the stream ended without its terminal event; may be retried
│   ├── ModelRejected           the provider refused the request (other 4xx)
│   ├── ContextOverflow         the request does not fit the model's context
│   ├── BudgetUsedUp            the budget leaves no room for a request outside the run's steps
│   └── ModelResponseInvalid    an answer that does not follow the protocol (HTML, empty, too large)
└── (about one call)
    ├── Rejected                the service refused; its body reaches the model
    ├── ToolError               the tool failed; its message reaches the model
    │   └── Transient           a transient error; may be retried unless the tool is unsafe
    ├── InvalidJson             the arguments are not valid JSON; says where
    └── InvalidArguments        the arguments do not fit the schema; has every violation
"""

import difflib
import reprlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

__all__ = [
    "AgentChanged",
    "ApprovalExpired",
    "BudgetUsedUp",
    "ConfigurationError",
    "ContextOverflow",
    "IncompleteStream",
    "IntentNotStored",
    "InvalidArguments",
    "InvalidJson",
    "JournalError",
    "MissingCredential",
    "ModelError",
    "ModelRejected",
    "ModelResponseInvalid",
    "ModelUnavailable",
    "NoRunYet",
    "NoSuchPoint",
    "NothingToResume",
    "Rejected",
    "RunCompleted",
    "RunHandedOver",
    "SandboxUnavailable",
    "SessionConflict",
    "SessionError",
    "SessionExists",
    "SessionHeld",
    "SessionMoved",
    "SessionNotActive",
    "TaskCancelled",
    "ToolDefinitionError",
    "ToolError",
    "ToolNameConflict",
    "Transient",
    "TreadleError",
    "UnknownAgent",
    "UnknownApproval",
    "UnknownBudget",
    "UnknownDoubt",
    "UnknownInput",
    "UnknownModel",
    "UnknownSession",
    "WorkerNameTaken",
]

_MANY_CHARS = 2000


class _Bounded(reprlib.Repr):
    """Shows a little of any value: few items, few levels, and only the beginning of a long text or number."""

    def __init__(self) -> None:
        super().__init__()
        self.maxdict = self.maxlist = self.maxtuple = self.maxset = self.maxfrozenset = self.maxdeque = 20

    def repr_str(self, x: str, level: int) -> str:
        return repr(x[:_MANY_CHARS])

    def repr_bytes(self, x: bytes, level: int) -> str:
        return repr(x[:_MANY_CHARS])

    def repr_int(self, x: int, level: int) -> str:
        return repr(x) if x.bit_length() < _MANY_CHARS else f"a number of {x.bit_length():,} bits"

    def repr_Decimal(self, x: object, level: int) -> str:  # noqa: N802 - reprlib looks for the name of the type
        return str(x)

    def repr_instance(self, x: object, level: int) -> str:
        return repr(x)


_bounded = _Bounded()


def shown(value: object, chars: int = 80) -> str:
    """Return a value for a message, as `repr` shows it and at most so many characters of it.

    Never fails: a value may be nested without end, have more digits than Python prints, or refuse to be shown.
    """
    try:
        return _bounded.repr(value)[:chars]
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - what a stranger's __repr__ raises says nothing about the mistake that is reported
        return f"<{type(value).__name__}>"[:chars]


class TreadleError(Exception):
    """The root of every exception that Treadle raises on purpose."""


class ConfigurationError(TreadleError):
    """An option, a name or a file is wrong. The message says which, and what to do."""


class UnknownModel(ConfigurationError):
    """No adapter has this model's name."""


class MissingCredential(ConfigurationError):
    """A provider needs a key, and none is set. Raised before any request."""


class WorkerNameTaken(ConfigurationError):
    """A live worker has this name."""


class UnknownAgent(ConfigurationError):
    """No registered agent has the name of the agent that started the run, or that agent had no name."""


class UnknownBudget(ConfigurationError):
    """A budget's name is misspelt."""


class ToolNameConflict(ConfigurationError):
    """Two tools of one agent share a name."""


class ToolDefinitionError(ConfigurationError):
    """A tool that cannot be described to a model: an annotation without a schema, an invalid schema."""


class SandboxUnavailable(TreadleError):
    """A sandbox is required, and this machine has none that can do what is required. Nothing was run."""


class SessionError(TreadleError):
    """The state of a session does not allow the request."""


class SessionHeld(SessionError):
    """Another process or task is running this session. The message says who."""


class SessionConflict(SessionError):
    """The journal moved on under this writer. Nothing was written."""


class RunHandedOver(SessionConflict):
    """This process has let go of the run, and records nothing more of it. Any process may resume it."""


class NothingToResume(SessionError):
    """The session has no paused, stopped or interrupted run."""


class NoRunYet(NothingToResume):
    """The session was never given a task. Start one with `run`."""


class RunCompleted(NothingToResume):
    """The last run of the session is completed. Give it a new task."""


class AgentChanged(SessionError):
    """The agent has changed since the run began. The message says what differs. Nothing was done."""


class UnknownSession(SessionError):
    """The journal has no session with that id."""


class UnknownApproval(SessionError):
    """No pending approval has that id, or it has been answered already: the first answer wins."""


class ApprovalExpired(UnknownApproval):
    """The request was not answered in time. Resume the session to be asked again."""


class UnknownDoubt(SessionError):
    """No call with that id is in doubt in the session, or a person has already recorded how it ended."""


class UnknownInput(SessionError):
    """No call with that id is suspended in the session, or it already got its input: the first one wins."""


class TaskCancelled(SessionError):
    """A submitted task was cancelled before a worker began its run."""


class SessionExists(SessionError):
    """A session with that id exists already, or existed and was deleted: an id is never used twice."""


class SessionNotActive(SessionError):
    """People have suspended, completed, failed or deleted the session: no run may begin in it."""


class SessionMoved(SessionNotActive):
    """The session was moved and continues elsewhere. The message says where."""


class NoSuchPoint(SessionError):
    """The session has no such point, or a call is open at it: no point may separate a call from its result."""


class JournalError(TreadleError):
    """The store failed or is not ours: full, read-only, locked, corrupt, or written by a newer version."""


class IntentNotStored(JournalError):
    """A call that changes the world may not start, because nothing would record it after a crash. Nothing was stored."""


class ModelError(TreadleError):
    """A model call failed.

    Args:
        status: The HTTP status, or None when no answer came.
        retry_after_seconds: How long the provider asked us to wait, or None.
    """

    may_retry = False

    def __init__(self, message: str, *, status: int | None = None, retry_after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after_seconds = retry_after_seconds
        self.usage: Any = None  # Any: a Usage, and a Pricing; errors know no other noun
        """Tokens that the server had counted when the response broke off; None if it had not counted."""
        self.price: Any = None
        """The price of the model that failed, if that is not the model that was asked; None if it is."""


class ModelUnavailable(ModelError):
    """A transient error: rate limit, overload, server error, refused or lost connection, a stall."""

    may_retry = True


class IncompleteStream(ModelError):
    """The stream ended without its terminal event. What was received is never final."""

    may_retry = True


class ModelRejected(ModelError):
    """The provider refuses the request as it is: a bad key, an unknown model, an invalid body."""


class ContextOverflow(ModelError):
    """The request is longer than the model's context."""


class BudgetUsedUp(ModelError):
    """The run's budget leaves no room for a request outside its own steps, such as that of a summary."""


class ModelResponseInvalid(ModelError):
    """The server's answer does not follow the protocol: HTML, nothing, invalid JSON, too many bytes."""

    may_retry = True


class Rejected(TreadleError):
    """Raised by a tool when its service refuses. The body reaches the model unchanged, and the call is never retried.

    Example:
        raise Rejected({"error": "TIME_CORRIDOR_UNAVAILABLE", "retry_after": 1800})

    Args:
        body: The service's own response: any JSON value.
        code: A more precise code for the model, such as `not_found` or `rate_limited`.
    """

    def __init__(self, body: Any, *, code: str | None = None) -> None:
        super().__init__(body)
        self.body = body
        self.code = code


class ToolError(TreadleError):
    """Raised by a tool that failed. Its message reaches the model, whatever `Agent(failure_text=...)` says of other exceptions.

    Example:
        raise ToolError("The order 7 was shipped yesterday, so it cannot be changed.")
    """


class Transient(ToolError):
    """Raised by a tool for a transient error. Retried for every effect but `unsafe`.

    Args:
        retry_after_seconds: How long the service asked us to wait, or None. Too long a wait is reported to the model instead.
        code: A more precise code for the model, if no attempt is left.
    """

    def __init__(self, message: str = "", *, retry_after_seconds: float | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds
        self.code = code


class InvalidJson(TreadleError):
    """The arguments of a call are not valid JSON.

    Args:
        where: line, column, snippet and reason.
    """

    def __init__(self, message: str, where: Mapping[str, Any]) -> None:
        check_kind("where", where, Mapping, "a mapping, such as {'line': 1}")
        super().__init__(message)
        self.where = dict(where)


class InvalidArguments(TreadleError):
    """The arguments of a call do not fit. A tool's own `validate` raises it too. It has every violation.

    Args:
        details: One mapping a violation: field, constraint, value.
    """

    def __init__(self, message: str, details: Sequence[Mapping[str, Any]] = ()) -> None:
        check_kind("details", details, (list, tuple), "a list of mappings, one a violation")
        super().__init__(message)
        self.details = tuple(details)


# --- misspelt options: not public; checks names only, never values


def check_options(owner: str, given: Collection[str], known: Collection[str]) -> None:
    """Refuse options that do not exist.

    Raises:
        TypeError: One of them is unknown; the message has the nearest that is known.
    """
    for name in given:
        if name not in known:
            hint = suggestion(name, known) or f"Its options are: {', '.join(known)}."
            raise TypeError(f"{owner} has no option {name!r}. {hint}")


def _by_name(names_by_answer: Mapping[str, str]) -> Mapping[str, str]:
    return {name: answer for answer, names in names_by_answer.items() for name in names.split()}


_OF_OTHERS: Mapping[str, str] = _by_name(
    {
        "@tool(ends_run=True) on the tool that ends a run": "tool_use_behavior",
        "Agent(resolve_model(name, api_key=...))": "api_key",
        "Agent(resolve_model(name, base_url=...))": "base_url",
        "Agent(resolve_model(name, options={...}))": "max_tokens model_settings temperature",
        "Agent[Deps, Output](...), and run(deps=...)": "context_schema deps_type",
        "agent.resume(session)": "resume",
        "agent.stream(task)": "stream streaming",
        "approver=, a function of the request": "can_use_tool",
        "approver=, or @tool(permission='always_ask')": "approval human_in_the_loop human_input",
        "budget=Budget(...)": "usage_limits",
        "budget=Budget(max_input_tokens=...)": "input_tokens_limit request_tokens_limit",
        "budget=Budget(max_input_tokens=..., max_output_tokens=...)": "total_tokens_limit",
        "budget=Budget(max_model_turns=...)": (
            "max_iter max_iterations max_llm_calls max_loops max_model_calls max_requests max_rounds max_steps "
            "max_tool_iterations max_turns recursion_limit request_limit"
        ),
        "budget=Budget(max_output_tokens=...)": "output_tokens_limit response_tokens_limit",
        "budget=Budget(max_parallel_tool_calls=...)": "max_concurrency parallel_tool_calls",
        "budget=Budget(max_retries_per_model_call=...)": "max_retries",
        "budget=Budget(max_retries_per_tool_call=...), or @tool(retries=...)": "retries",
        "budget=Budget(max_tool_calls=...)": "tool_call_limit tool_calls_limit",
        "budget=Budget(max_total_cost=...)": "cost_limit max_budget_usd max_cost max_usd usd",
        "budget=Budget(max_wall_time_seconds=...)": "max_execution_time max_seconds max_time timeout",
        "compactor=": "conversation_manager max_history num_history_runs",
        "compiler= or compactor=": "history_processors",
        "file_tools(folder), for tools with a folder": "cwd",
        "guards=": "stop termination_condition",
        "hooks=[...]": "after_model before_model guardrails input_guardrails middleware output_guardrails post_hooks pre_hooks tool_hooks",
        "instructions=": (
            "additional_context additional_instructions backstory goal instruction message_modifier prompt prompt_template "
            "role state_modifier system system_instruction system_message system_prompt"
        ),
        "instructions=, or as_tool(name, description)": "description",
        "model=": "llm model_client model_id model_name",
        "output=, a type or a JSON Schema": "output_schema output_type response_format response_model result_type",
        "output=, or instructions=": "expected_output",
        "output=, which the model may correct twice": "max_result_retries output_retries",
        "policy=": "permission_mode permissions",
        "policy=allow(names)": "allowed_tools",
        "policy=ask(names)": "interrupt_before interrupt_on",
        "policy=deny(names)": "disallowed_tools",
        "run(deps=...)": "context dependencies deps state_schema",
        "run(session=...)": "chat_history message_history messages previous_response_id",
        "run(session=...), run(deps=...) or budget=": "config",
        "run(session=...), with open_session(journal, id=...)": "checkpointer conversation_id db memory saver session_id storage store thread_id",
        "run.cancel(), of agent.stream(task)": "cancel_token cancellation_token",
        "run(metadata={...})": "metadata user_id",
        "subscribers=[...]": "callback_handler callbacks event_handler event_stream_handler step_callbacks verbose",
        "subscribers=[Telemetry()]": "instrument",
        "the task as the first argument": "user_prompt",
        "tools=[...]": "functions",
        "tools=[...], which takes toolsets too": "toolsets",
        "tools=[agent.as_tool(name, description)]": "agents handoffs managed_agents",
        "tools=[mcp_server(name, command)]": "mcp_servers",
    }
)
"""What to write here, by what other libraries call an option (pydantic-ai, openai-agents, langchain, langgraph, smolagents, agno, crewai,
claude-agent-sdk)."""
_OF_OTHERS_TOOLS: Mapping[str, str] = _by_name(
    {
        "Agent(failure_text=...)": "failure_error_function handle_tool_error",
        "a docstring in the function": "description description_override title",
        "a parameter `ctx: ToolContext` in the function": "takes_ctx",
        "annotations in the function, or Tool(parameters=...)": "args_schema input_schema parameters",
        "effect=": "annotations side_effects",
        'effect="idempotent"': "idempotent",
        'effect="read"': "readOnlyHint read_only readonly",
        'effect="unsafe"': "destructive",
        "ends_run=True": "result_as_answer return_direct stop_after_tool_call",
        "name=": "name_override tool_name",
        "nothing: arguments are always checked": "strict strict_mode",
        "nothing: every style is understood": "docstring_format",
        "nothing: results are not reused": "cache cache_function",
        "nothing: the docstring is always read": "parse_docstring",
        "permission=": "approval_mode needs_approval requires_confirmation",
        "resources=, which says what a call touches": "sequential",
        "retries=": "max_retries",
        "risk=": "risk_level",
        "timeout=": "timeout_seconds",
        "visible=": "is_enabled prepare",
    }
)
"""The same for the options of a tool."""
_OF_AGENTS = [
    "approver",
    "driver",
    "guards",
    "hooks",
    "instructions",
    "model",
    "output",
    "policy",
    "sandbox",
    "subscribers",
    "tools",
]
_TASKS = ("input", "message", "prompt", "query", "user_message")
_IDS = ("conversation_id", "session_id", "thread_id")


def suggestion(name: str, known: Collection[str], *, of_tool: bool = False) -> str:
    """Return what to write in place of an option that does not exist; empty where that is not known."""
    if of_tool and name in _OF_OTHERS_TOOLS:
        return f"Write {_OF_OTHERS_TOOLS[name]}."
    if "task" in known and name in _TASKS:
        return "Write the task as the first argument."
    if name in _IDS and (own := {"id", "session_id"}.intersection(known)):
        return f"Write {own.pop()}=."
    is_of_agents = not {"instructions", "max_model_turns", "session"}.isdisjoint(known)
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    if not of_tool and name in _OF_OTHERS and (is_of_agents or not near):
        return f"Write {_OF_OTHERS[name]}."
    if "session" in known and name in _OF_AGENTS:
        return f"Write Agent({name}=...)."
    return f"Did you mean {near[0]!r}?" if near else ""


def check_kind(option: str, value: object, kinds: type | tuple[type, ...], expected: str) -> None:
    """Refuse the value of an option that is of a wrong kind. True and false are not numbers.

    Args:
        expected: What the option must be.

    Raises:
        ConfigurationError: It is of another kind.
    """
    wanted = kinds if isinstance(kinds, tuple) else (kinds,)
    if not isinstance(value, wanted) or (isinstance(value, bool) and bool not in wanted):
        raise ConfigurationError(f"{option} must be {expected}; got {shown(value)}.")


def check_path(option: str, value: object) -> None:
    """Refuse what is not a path.

    Raises:
        ConfigurationError: It is neither a text nor a path, or no file can have that name.
    """
    if not isinstance(value, str) and not hasattr(type(value), "__fspath__"):
        raise ConfigurationError(f"{option} must be a path, as a string or a Path; got {shown(value)}.")
    try:
        name = str(value).encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        name = b""
    if not name or b"\0" in name:
        raise ConfigurationError(f"{option} is a path that no file can have: {shown(value)}.")
