"""Subagents: the tool by which a model gives a task to one of several agents by name."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, TypeAlias

import msgspec

from treadle.agents.agent import Agent
from treadle.agents.children import carry_out, host_of
from treadle.budgets import Budget, budget_from
from treadle.engine.assembly import Host
from treadle.errors import ConfigurationError, shown
from treadle.fields import Documented, NamedOptions, check_fields, checked
from treadle.permissions.policies import first_of
from treadle.ports import Model, Policy, SessionView
from treadle.resolve import resolve_model
from treadle.tools import CallStatus, CheckedCall, Decision, Effect, JsonObject, Tool, ToolContext, Unfinished
from treadle.tools.tool import closed_schema

__all__ = ["Subagent", "load_subagents", "subagent_tool"]


# --- Definitions of subagents: agents that others call by name, from files in Markdown, YAML or JSON. Runs nothing.

Form: TypeAlias = Literal["markdown", "yaml", "json"]

_FORMS: dict[str, Form] = {".md": "markdown", ".yaml": "yaml", ".yml": "yaml", ".json": "json"}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_HEAD = re.compile(r"\A---[ \t]*\n(.*?)^---[ \t]*(?:\n|\Z)", re.DOTALL | re.MULTILINE)
_LARGEST_FILE = 1_000_000


class Subagent(msgspec.Struct, Documented, frozen=True, kw_only=True, metaclass=NamedOptions):
    """An agent that another agent may call by name. It gets one task, and has its own session, instructions and limits.

    Example:
        Subagent(
            name="reviewer",
            description="Reads a change and lists what is wrong with it.",
            instructions="You review code. Answer with a list of faults, the worst first.",
            tools=("read", "grep"),
            effect="read",
        )

    Raises:
        ConfigurationError: A value is missing, of a wrong kind, or not one of those that are known.
    """

    name: str
    """The name by which the caller's model calls it: 1 to 64 letters, digits, `_`, `-` and `.`."""
    description: str
    """What it is good for. The caller's model reads this."""
    instructions: str
    """Its system prompt."""
    tools: tuple[str, ...] | None = None
    """Names of the caller's tools that it gets; None for all of them. It never gets others."""
    deny: tuple[str, ...] = ()
    """Names of tools that it does not get, whatever `tools` says."""
    model: str | None = None
    """Name of its model, such as `openai-chat:gpt-5-mini`; None for that of its caller."""
    effect: Literal["read", "unsafe"] = "unsafe"
    """What its calls may do at most. With `read`, its calls that would change something are denied, and such agents run in parallel."""
    budget: Budget = Budget()
    """Its own limits. What it spends also counts against the rest of its caller's budget."""
    output: dict[str, Any] | None = None
    """A JSON Schema for its answer; None for text."""

    def __post_init__(self) -> None:
        check_fields("The subagent's", self)
        if not _NAME.fullmatch(self.name):
            raise ConfigurationError(
                f"A subagent's name has 1 to 64 letters, digits, '_', '-' and '.'; got {shown(self.name)}."
            )
        for name in ("description", "instructions"):
            if not getattr(self, name).strip():
                raise ConfigurationError(f"The subagent {self.name!r} has no {name}.")
        for name in ("tools", "deny"):
            if (names := getattr(self, name)) is not None:
                msgspec.structs.force_setattr(self, name, tuple(names))

    @classmethod
    @checked
    def from_text(cls, text: str, form: Form, *, name: str | None = None) -> "Subagent":
        """Read a definition.

        Args:
            form: `markdown`: its fields as YAML between two lines `---`, then its instructions; `yaml` or `json`: its fields.
            name: Used if the text has none.

        Raises:
            ConfigurationError: The text is not of that form, or a field is missing, unknown or of a wrong kind.
        """
        return _subagent_from(text, form, name, "this text")

    @checked
    def to_text(self, form: Form) -> str:
        """Return it as text, from which `from_text` reads an equal definition.

        Raises:
            ConfigurationError: The form is unknown.
        """
        fields = self._fields()
        if form == "json":
            return json.dumps(fields, indent=2, ensure_ascii=False) + "\n"
        if form == "yaml":
            return _written(fields)
        instructions_text = fields.pop("instructions")
        return f"---\n{_written(fields)}---\n{instructions_text}"

    def _fields(self) -> dict[str, Any]:
        """Return what differs from the defaults, as plain JSON values."""
        plain = Subagent(name=self.name, description=self.description, instructions=self.instructions)
        found: dict[str, Any] = _difference(self, plain)
        return {name: _difference(self.budget, Budget()) if name == "budget" else found[name] for name in found}


def _difference(value: msgspec.Struct, plain: msgspec.Struct) -> dict[str, Any]:
    """Return the fields of a value that are required, or are not as in a plain one."""
    ours, theirs = msgspec.to_builtins(value), msgspec.to_builtins(plain)
    required = {field.name for field in msgspec.structs.fields(value) if field.required}
    return {name: ours[name] for name in ours if name in required or ours[name] != theirs[name]}


@checked
def load_subagents(*paths: str | Path) -> tuple[Subagent, ...]:
    """Read definitions of subagents from files, and from the files of folders: `.md`, `.yaml`, `.yml` and `.json`.

    A definition without a name is named after its file, without the ending.

    Example:
        subagents = load_subagents(".treadle/agents")

    Args:
        paths: Files, or folders whose files are read.

    Raises:
        ConfigurationError: A path does not exist or cannot be read, a folder holds no definition, a definition is invalid, or
            two have one name.
    """
    found: dict[str, tuple[Subagent, Path]] = {}
    for file in [file for path in paths for file in _files_of(Path(path))]:
        subagent = _load(file)
        if subagent.name in found:
            raise ConfigurationError(
                f"Two subagents are named {subagent.name!r}: {found[subagent.name][1]} and {file}. Rename one of them."
            )
        found[subagent.name] = subagent, file
    return tuple(subagent for subagent, _ in found.values())


def _files_of(path: Path) -> list[Path]:
    try:
        if not path.is_dir():
            return [path]
        files = sorted(file for file in path.iterdir() if file.suffix in _FORMS and file.is_file())
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"The definitions of subagents in {str(path)!r} cannot be read: {error}.") from error
    if not files:
        raise ConfigurationError(f"The folder {str(path)!r} holds no definition of a subagent: {', '.join(_FORMS)}.")
    return files


def _load(path: Path) -> Subagent:
    if path.suffix not in _FORMS:
        raise ConfigurationError(
            f"The definition of a subagent is a file with the ending {', '.join(_FORMS)}; got {str(path)!r}."
        )
    try:
        with path.open("rb") as file:
            raw = file.read(_LARGEST_FILE + 1)
        text = raw.decode("utf-8-sig").replace("\r\n", "\n")
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"The subagent file {str(path)!r} cannot be read: {error}.") from error
    if len(raw) > _LARGEST_FILE:
        raise ConfigurationError(f"The subagent file {str(path)!r} is larger than {_LARGEST_FILE} bytes.")
    return _subagent_from(text, _FORMS[path.suffix], path.stem, repr(str(path)))


def _subagent_from(text: str, form: Form, name: str | None, where: str) -> Subagent:
    fields = {**({} if name is None else {"name": name}), **_fields_of(text, form, where)}
    for field in ("tools", "deny"):
        if isinstance(fields.get(field), str):  # as in `tools: read, grep`
            fields[field] = [one.strip() for one in fields[field].split(",") if one.strip()]
    try:
        if isinstance(budget := fields.get("budget"), dict):
            fields["budget"] = budget_from(budget)
        return Subagent(**fields)
    except (ConfigurationError, TypeError) as error:  # a TypeError names a field that is missing or unknown
        raise ConfigurationError(f"The subagent in {where} is invalid: {error}") from error


def _fields_of(text: str, form: Form, where: str) -> dict[str, Any]:
    """Return the fields of a definition by name, the instructions of a page of Markdown among them."""
    instructions_text = None
    if form == "markdown":
        head = _HEAD.match(text)
        if head is None:
            raise ConfigurationError(
                f"The subagent in {where} has no fields: begin the page with a line ---, the fields, and a line ---."
            )
        text, instructions_text = head[1], text[head.end() :]
    try:
        found = json.loads(text) if form == "json" else _read_yaml(text)
    except (ValueError, RecursionError) as error:
        why = " ".join(str(error).split())
        raise ConfigurationError(f"The subagent in {where} is not valid {form}: {why}.") from error
    if not isinstance(found, dict):
        raise ConfigurationError(f"The subagent in {where} must have fields such as `description: ...`.")
    return found if instructions_text is None else {**found, "instructions": instructions_text}


def _written(fields: Mapping[str, Any]) -> str:
    text: str = _yaml().safe_dump(dict(fields), sort_keys=False, allow_unicode=True)
    return text


def _read_yaml(text: str) -> Any:  # Any: what the file holds
    yaml = _yaml()
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error


def _yaml() -> ModuleType:
    """Load PyYAML on first use: it is an extra, and no run needs it."""
    try:
        import yaml  # type: ignore[import-untyped]  # noqa: PLC0415
    except ImportError:
        raise ConfigurationError(
            "Definitions as Markdown and YAML need PyYAML: pip install '.[agents]' in the project's folder, or write them as JSON."
        ) from None
    module: ModuleType = yaml
    return module


# --- Subagents: the tool by which a model gives a task to one of several agents by name.

_DESCRIPTION = "Delegate a task to another agent. It does not see this conversation, so include everything that it needs to know; its answer is the result. You can delegate several tasks in one response. The agents:"


@checked
def subagent_tool(
    subagents: Sequence[Subagent], *, name: str = "spawn_agent", models: Mapping[str, Model] | None = None
) -> Tool:
    """Return the tool by which a model calls agents by name. Each of them is run as by `Agent.as_tool`.

    An agent gets only tools that its caller's last request offered, whatever its definition names. Its calls are decided
    under its caller's rules, so calling it needs no consent.

    Example:
        agent = Agent(model, tools=[*file_tools("."), subagent_tool(load_subagents(".treadle/agents"))])

    Args:
        models: Models by the name that definitions use; other names are resolved by `resolve_model`.

    Raises:
        ConfigurationError: There is no agent, or two have one name.
    """
    known = _by_name(subagents)
    found: dict[str, Model] = dict(models or {})

    async def run(arguments: JsonObject, ctx: ToolContext) -> Any:
        definition, host = known[arguments["agent"]], host_of(ctx)
        agent = _agent(definition, host, found)
        return await carry_out(agent._whole(), agent.model, arguments["task"], ctx, name=definition.name)  # noqa: SLF001 - one room

    return Tool(
        name=name,
        description="\n".join(
            [_DESCRIPTION, *(f"- {one.name}: {' '.join(one.description.split())}" for one in known.values())]
        ),
        parameters=closed_schema(
            ["agent", "task"],
            agent={"type": "string", "enum": list(known), "description": "The agent to call."},
            task={"type": "string", "minLength": 1, "description": "The complete task, as text."},
        ),
        effect=lambda arguments: known[arguments["agent"]].effect,
        permission="allow",
        timeout=None,
        resumes=True,
        run=run,
    )


def _by_name(subagents: Sequence[Subagent]) -> dict[str, Subagent]:
    known: dict[str, Subagent] = {}
    for one in subagents:
        if one.name in known:
            raise ConfigurationError(f"Two subagents are named {one.name!r}. Rename one of them.")
        known[one.name] = one
    if not known:
        raise ConfigurationError("subagent_tool needs at least one subagent: load_subagents(folder) reads them.")
    return known


def _model(definition: Subagent, host: Host, models: dict[str, Model]) -> Model:
    """Return the model of an agent: that of its caller where it names none."""
    if definition.model is None:
        return host.model
    if definition.model not in models:
        models[definition.model] = resolve_model(definition.model)
    return models[definition.model]


def _agent(definition: Subagent, host: Host, models: dict[str, Model]) -> Agent:
    """Return an agent as it is below this caller.

    Raises:
        Unfinished: It cannot be made: its model has no key, or its answer no valid form. The caller may go another way.
    """
    try:
        return _made(definition, host, _model(definition, host, models))
    except ConfigurationError as error:
        message = f"The agent {definition.name} is not available: {error}"
        raise Unfinished(CallStatus.REJECTED, message, code="subagent_unavailable", may_have_acted=False) from error


def _made(definition: Subagent, host: Host, model: Model) -> Agent:
    about = host.about
    return Agent(
        model,
        instructions=definition.instructions,
        tools=_tools(definition, host),
        policy=_policy(definition, about.policy),
        budget=definition.budget,
        output=definition.output,
        compactor=about.compactor,
        step_result_chars=about.step_result_chars,
        guards=about.guards,
        on_limit=about.on_limit,
        unpriced=about.unpriced,
        approval_seconds=about.approval_seconds,
    )


def _tools(definition: Subagent, host: Host) -> list[Tool]:
    """Return the caller's tools that the agent has: what the caller's own request offered, and no more."""
    return [
        msgspec.structs.replace(tool, visible=True)
        for tool in host.offering.current.tools
        if definition.tools is None or tool.name in definition.tools
        if tool.name not in definition.deny
        if definition.effect != "read" or callable(tool.effect) or Effect(tool.effect).is_read
    ]


def _policy(definition: Subagent, callers: Policy | None) -> Policy | None:
    """Return what decides on its calls: what its caller's policy allows, asks about or denies is so for it, too."""
    if definition.effect != "read":
        return callers
    reads_only = _ReadsOnly(definition.name)
    return reads_only if callers is None else first_of(reads_only, callers)


class _ReadsOnly:
    """Denies an agent that only reads every call that may change something."""

    def __init__(self, name: str) -> None:
        self._name = name

    def decide(self, call: CheckedCall, session: SessionView) -> Decision | None:
        if call.effect.is_read:
            return None
        reason = f"The agent {self._name} only reads, and this call may change something."
        return Decision(kind="deny", rule="subagent effect read", reason=reason)
