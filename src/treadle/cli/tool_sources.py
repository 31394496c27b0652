"""Tool sources: from `--tools` to tools and toolsets: built-in names, Python files, module:attribute, subagents. Runs and opens nothing."""

import importlib
import importlib.util
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from treadle import Agent, Agents, ConfigurationError, Tool, TreadleError, file_tools, shell_tool
from treadle.agents import Subagent, load_subagents, subagent_tool
from treadle.cli.exits import EXIT_USAGE, UsageError, code_of
from treadle.cli.input.mcp import tools_of
from treadle.cli.input.near import hint_for
from treadle.cli.input.places import names_file, project_config, user_config
from treadle.cli.input.settings import Settings, ToolSource
from treadle.cli.output.text import one_line
from treadle.ports import SessionView, Toolset, is_toolset
from treadle.toolsets import (
    McpTools,
    ShellTools,
    artifact_tool,
    ask_user_tool,
    exit_plan_tool,
    fetch_tool,
    notes_tools,
    todo_tool,
    writing_tools,
)

if TYPE_CHECKING:  # loads all that workers need
    from treadle.workers import AgentMaker

__all__ = [
    "carried_out_apart",
    "found_subagents",
    "known_tools",
    "load_agents",
    "load_function",
    "load_tools",
    "subagents_of",
]

_OURS = str(Path(__file__).parents[1])


def load_tools(settings: Settings, *, may_write: bool = False) -> tuple[Tool | Toolset, ...]:
    """Return the tools and toolsets of a call of the program.

    Args:
        may_write: Whether those that write and run programs are among the tools where none are named: a person can be asked.

    Raises:
        UsageError: A name is unknown, or a file cannot be loaded; with the line.
    """
    reading = file_tools(settings.root)
    acting = (*reading, *writing_tools(settings.root), shell_tool(settings.root))
    others = [source for source in settings.tools if not _defines_subagents(source)]
    subagents = subagents_of(settings) if may_write else _named_subagents(settings)
    spawning: list[Tool | Toolset] = [subagent_tool(subagents)] if subagents else []
    if not others:
        return (*(_of_a_conversation(settings) if may_write else reading), *spawning, *_servers(settings))
    telling = (artifact_tool(), ask_user_tool(), exit_plan_tool(), todo_tool())
    own: dict[str, Tool | Toolset] = {tool.name: tool for tool in (*acting, fetch_tool(), *telling)}
    own["background"] = ShellTools(settings.root)
    own["notes"] = notes_tools(Path(settings.root) / "agent-notes")
    # By identity: one tool may be named twice, two tools of one name are a conflict.
    found: dict[int, Tool | Toolset] = {}
    for source in others:
        found.update({id(tool): tool for tool in _load(source, own)})
    if any("mcp" in source.text.split(",") for source in others):
        spawning += _servers(settings)
    if id(own["background"]) in found:  # it has the shell tool, too
        found.pop(id(own["shell"]), None)
    return (*found.values(), *spawning)


def subagents_of(settings: Settings) -> tuple[Subagent, ...]:
    """Return the subagents of a conversation: those that `--tools` names, and those that are found."""
    return (*_named_subagents(settings), *found_subagents(settings).subagents)


def _named_subagents(settings: Settings) -> tuple[Subagent, ...]:
    files = [source.folder / source.text.strip() for source in settings.tools if _defines_subagents(source)]
    return tuple(load_subagents(*files)) if files else ()


def known_tools(settings: Settings) -> tuple[Tool | Toolset, ...]:
    """Return the tools of a conversation, as far as they are known without a session, and the toolsets whose tools are not."""
    found: list[Tool | Toolset] = []
    for one in load_tools(settings, may_write=True):
        match one:
            case ShellTools():
                found += one.known_tools
            case Tool(name="ask_user"):  # what resumes may call agents, whose tools are not known: this asks a person
                found.append(msgspec.structs.replace(one, resumes=False))
            case _:
                found.append(one)
    return tuple(found)


def _of_a_conversation(settings: Settings) -> tuple[Tool | Toolset, ...]:
    """Return the tools that a person's conversation has where none are named."""
    root = settings.root
    # In the other modes there is no plan to propose: the tool would only invite one.
    planning = msgspec.structs.replace(exit_plan_tool(), visible=_is_planning, guidance=_PLANNING)
    working: tuple[Tool | Toolset, ...] = (*file_tools(root), *writing_tools(root), ShellTools(root), fetch_tool())
    return (*working, todo_tool(), planning, ask_user_tool())


_PLANNING = (
    "The session is in plan mode: nothing can be changed. Read what you need, then propose a plan with exit_plan. Once "
    "the person has accepted it, carry it out."
)


def _is_planning(session: SessionView) -> bool:
    return session.mode == "plan"


def _servers(settings: Settings) -> list[McpTools]:
    """Return the toolsets of the MCP servers that are used. One whose entry is wrong is reported with its file."""
    return [tools_of(one, settings.root) for one in settings.mcp if one.is_used]


def _defines_subagents(source: ToolSource) -> bool:
    text = source.text.strip()
    return names_file(text) and not text.endswith(".py")


def _load(source: ToolSource, own: dict[str, Tool | Toolset]) -> Iterable[Tool | Toolset]:
    text = source.text.strip()
    if text.endswith(".py"):
        return _tools_of_file(source.folder / text)
    if ":" in text:
        return _tools_of_attribute(text)
    return [_own(name.strip(), own) for name in text.split(",") if name.strip() != "mcp"]


def _own(name: str, own: dict[str, Tool | Toolset]) -> Tool | Toolset:
    if name in own:
        return own[name]
    raise UsageError(
        f"There is no tool {name!r}.{hint_for(name, own)} Built-in tools: {', '.join(own)}. Or name FILE.py, module:attr, or a file or folder/ of subagents."
    )


def _tools_of_file(path: Path) -> list[Tool | Toolset]:
    module = module_of_file(path, "--tools")
    tools = [value for value in vars(module).values() if _is_source(value)]
    if not tools:
        raise UsageError(
            f"The tools file {path} defines no tool: decorate a function with @tool, or create a Tool(...)."
        )
    return tools


def module_of_file(path: Path, flag: str) -> ModuleType:
    """Import a Python file that a flag names.

    Raises:
        UsageError: There is no such file, or it cannot be loaded; with the line.
    """
    if not path.is_file():
        raise UsageError(f"The {flag.strip('-')} file {path} does not exist. Check the path of {flag}.")
    spec = importlib.util.spec_from_file_location(f"treadle_{flag.strip('-')}_{path.stem}", path)
    assert spec is not None  # for a name that ends in .py
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # annotations of its functions are looked up there
    folder = str(path.absolute().parent)
    sys.path.insert(0, folder)  # as Python does for a script: its neighbours can be imported
    assert spec.loader is not None
    try:
        spec.loader.exec_module(module)
    except KeyboardInterrupt:
        raise
    except BaseException as exc:  # it is a stranger's code: even SystemExit must not end us silently
        raise _broken(str(path), exc, flag) from exc
    finally:
        # Later imports look there last: a model that may write in the folder puts nothing in place of a module of ours.
        sys.path.remove(folder)
        sys.path.append(folder)
    return module


def _is_source(value: object) -> bool:
    """Whether a value of a module is a tool or a toolset. A module that was imported is neither: `os` has a name, and opens."""
    return isinstance(value, Tool) or (not isinstance(value, ModuleType | type) and is_toolset(value))


def _tools_of_attribute(text: str) -> list[Tool | Toolset]:
    value = attribute_of(text, "--tools")
    values = value if isinstance(value, Sequence) and not isinstance(value, str | bytes) else [value]
    tools = [one for one in values if isinstance(one, Tool) or is_toolset(one)]
    if not tools:
        raise UsageError(f"--tools {text} is neither a Tool, a toolset nor a list of them.")
    return tools


def attribute_of(text: str, flag: str) -> Any:
    """Return what `module:attribute` names.

    Raises:
        UsageError: There is no such module or attribute, or the module cannot be loaded; with the line.
    """
    name, _, attribute = text.partition(":")
    value: Any = _module(name, text, flag)
    try:
        for part in attribute.split("."):
            value = getattr(value, part)
    except AttributeError as exc:
        raise UsageError(f"{flag} {text}: module {name} has no {attribute!r}.") from exc
    return value


def _module(name: str, text: str, flag: str) -> ModuleType:
    if "" not in sys.path:
        sys.path.append("")  # modules of the working directory, after all others
    try:
        return importlib.import_module(name)
    except KeyboardInterrupt:
        raise
    except ModuleNotFoundError as exc:
        raise UsageError(f"{flag} {text}: there is no module {exc.name or name!r}.") from exc
    except BaseException as exc:  # as in module_of_file
        raise _broken(name, exc, flag) from exc


def _broken(name: str, error: BaseException, flag: str) -> UsageError:
    """Say in one sentence what is wrong with a file that a flag names, and where."""
    kind = flag.strip("-")
    if isinstance(error, SyntaxError):
        place = f"{error.filename or name}, line {error.lineno}"
        return UsageError(f"The {kind} of {name} cannot be loaded: {place}: {type(error).__name__}: {error.msg}.")
    place = _place(name, error)
    text = one_line(str(error), 300).rstrip(".")
    error_name = "" if isinstance(error, TreadleError) else f"{type(error).__name__}: "
    return UsageError(f"The {kind} of {name} cannot be loaded: {place}{error_name}{text}.")


def _place(name: str, error: BaseException) -> str:
    """Return the line of the file in which an error arose, or else the last that is neither Python's import nor ours."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename in (name, str(Path(name).absolute()))]
    others = [frame for frame in frames if "importlib" not in frame.filename and not frame.filename.startswith(_OURS)]
    found = own or others
    return f"{found[-1].filename}, line {found[-1].lineno}: " if found else ""


# --- Found subagents: those of the person's own `agents` folder, and of the project's where its folder is trusted.

_FORMS: Mapping[str, Literal["markdown", "yaml", "json"]] = {
    ".md": "markdown",
    ".yaml": "yaml",
    ".yml": "yaml",
    ".json": "json",
}
_LARGEST_FILE = 1_000_000


class FoundSubagents(NamedTuple):
    """The subagents that a conversation has without being told of them."""

    subagents: tuple[Subagent, ...] = ()
    notes: tuple[str, ...] = ()
    """Why a definition is not used: each a sentence."""


def found_subagents(settings: Settings) -> FoundSubagents:
    """Return the subagents that are found. Of two with one name the person's own is taken."""
    if settings.is_bare:
        return FoundSubagents()
    found: dict[str, Subagent] = {}
    notes: list[str] = []
    brought = project_config(settings.root).absolute().with_name("agents")
    theirs = {
        path: content
        for path, content in settings.held.contents.items()
        if path.parent == brought and path.suffix in _FORMS
    }
    for path, content in {**_own_definitions(notes), **theirs}.items():
        try:
            one = Subagent.from_text(content.decode("utf-8-sig"), _FORMS[path.suffix], name=path.stem)
        except (ConfigurationError, UnicodeDecodeError) as exc:
            notes.append(f"the subagent of {path} is not used: {one_line(str(exc), 300)}")
        else:
            found.setdefault(one.name, one)
    if settings.held.folder is None and any(one.suffix in _FORMS for one in _files_in(brought, notes)):
        notes.append(
            "the subagents of .treadle/agents are not used: the folder is not trusted. Run: treadle trust approve"
        )
    return FoundSubagents(tuple(found.values()), tuple(notes))


def _own_definitions(notes: list[str]) -> dict[Path, bytes]:
    files = _files_in(user_config(os.environ).with_name("agents"), notes)
    return {path: path.read_bytes() for path in files if path.stat().st_size <= _LARGEST_FILE}


def _files_in(folder: Path, notes: list[str]) -> list[Path]:
    """Return the definitions of a folder; none where there is no such folder."""
    try:
        return sorted(path for path in folder.iterdir() if path.suffix in _FORMS and path.is_file())
    except FileNotFoundError:
        return []
    except OSError as exc:
        notes.append(f"the subagents of {folder} cannot be read: {exc.strerror}.")
        return []


# --- Agent sources: from `--agents` to functions that make agents, by name: Python files, module:attribute. Runs none
# of them.


def load_agents(sources: Iterable[str], folder: Any) -> "dict[str, AgentMaker]":
    """Return what makes each agent, by its name.

    Raises:
        UsageError: A file or module cannot be loaded, holds no agent, or two have one name.
    """
    found: dict[str, AgentMaker] = {}
    for source in sources:
        for name, make in _load_agents(source, folder, "--agents").items():
            if name in found:
                raise UsageError(f"--agents names two agents {name!r}. Give each a name of its own.")
            found[name] = make
    return found


def load_agent(source: str, folder: Any) -> "AgentMaker":
    """Return what makes the one agent of a source. It needs no name.

    Raises:
        UsageError: The file or module cannot be loaded, or holds no agent, or several.
    """
    found = _load_agents(source, folder, "--agent")
    if len(found) > 1:
        raise UsageError(f"--agent {source} has several agents ({', '.join(found)}). Name one: module:attr.")
    return next(iter(found.values()))


def _load_agents(source: str, folder: Any, flag: str) -> "Mapping[str, AgentMaker]":
    """Return the agents of a source. Without a name, one that is alone has that of its variable."""
    text = source.strip()
    agents: Mapping[str, AgentMaker]
    if text.endswith(".py"):
        module = module_of_file(folder / text, flag)
        agents = _agents_in(getattr(module, "AGENTS", None)) or _agents_in(list(vars(module).values()))
        if not agents and flag == "--agent":
            agents = {name: partial(_same, one) for name, one in vars(module).items() if isinstance(one, Agent)}
        hint = "Make an Agent(..., name='support') there, or a dict AGENTS of functions by name."
    else:
        if ":" not in text:
            raise UsageError(f"{flag} {text}: name FILE.py or module:attr, such as {flag} agents.py.")
        value = attribute_of(text, flag)
        if isinstance(value, Agent) and flag == "--agent":
            value = partial(_same, value)
        agents = _agents_in(value) or ({text.rpartition(":")[2].rpartition(".")[2]: value} if callable(value) else {})
        hint = "Name an Agent with a name, a list of them, a dict of functions by name, or a function."
    if not agents:
        raise UsageError(f"{flag} {text} holds no agent. {hint}")
    return agents


def load_function(source: str, flag: str, folder: Any) -> Callable[..., Any]:
    """Return the function that `FILE.py:name` or `module:name` names.

    Raises:
        UsageError: It cannot be loaded, or it is not a function; with the line.
    """
    place, _, name = source.strip().rpartition(":")
    if not place or not name:
        raise UsageError(f"{flag} {source}: name FILE.py:function or module:function.")
    if place.endswith(".py"):
        found = getattr(module_of_file(folder / place, flag), name, None)
    else:
        found = attribute_of(source.strip(), flag)
    if not callable(found):
        raise UsageError(f"{flag} {source}: {place} has no function {name!r}.")
    return found  # type: ignore[no-any-return]  # it is callable


def _agents_in(value: Any) -> "dict[str, AgentMaker]":
    """Return the agents of a value; empty where there are none."""
    match value:
        case Agent():
            return {value.name: partial(_same, value)} if value.name else {}
        case Agents():
            return _agents_in(list(value))
        case Mapping():
            return {str(name): make if callable(make) else partial(_same, make) for name, make in value.items()}
        case list() | tuple():
            return {name: make for one in value if isinstance(one, Agent) for name, make in _agents_in(one).items()}
        case _:
            return {}


def _same(agent: Any) -> Any:
    return agent


# --- Apart: work that runs a stranger's code, in a child process. A child that ends without its result is a failure,
# whatever its exit code.


def carried_out_apart(work: Callable[[], Any], doing: str) -> Any:
    """Return what a function returns, a JSON value, from a fork of this process.

    Args:
        doing: What it does, for the sentence about a child that has ended.

    Raises:
        UsageError: The function raised it, or the child has ended without a result.
        TreadleError: The function raised another error.
    """
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    ours, theirs = os.pipe()
    child = os.fork()
    if not child:
        os.close(ours)
        _carry_out(work, theirs)
    os.close(theirs)
    try:
        with open(ours, "rb") as said:  # noqa: PTH123 - a descriptor
            result = said.readline()  # not to its end: a process that the child has started may hold the pipe
    except BaseException:
        os.kill(child, signal.SIGINT)
        raise
    finally:
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return _result(result, status, doing)


def _carry_out(work: Callable[[], Any], result: int) -> None:
    """Write the result, or the error, and end this process: nothing of it returns into what the parent does."""
    try:
        try:
            said = {"value": work()}
        except TreadleError as error:
            said = {"error": str(error), "code": code_of(error)}
        except Exception as error:  # noqa: BLE001 - a stranger's code, or a defect: the parent says which
            said = {"error": f"unexpected {type(error).__name__}: {error}", "code": 1}
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        with open(result, "wb") as told:
            told.write(json.dumps(said).encode() + b"\n")
    finally:
        os._exit(1)  # what this says counts for nothing


def _result(result: bytes, status: int, doing: str) -> Any:
    try:
        said = json.loads(result)
    except ValueError:
        how = f"by signal {-status}" if status < 0 else f"with exit code {status}"
        raise UsageError(
            f"The process that {doing} ended {how} before it had a result: a file of tools, or a toolset, ends the process. Take that out of it."
        ) from None
    if "error" not in said:
        return said["value"]
    raise (UsageError if said["code"] == EXIT_USAGE else TreadleError)(said["error"])
