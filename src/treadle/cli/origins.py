"""Origins: how a session's run was set up, so that `resume` sets it up again from any folder. Runs nothing."""

import shlex
import sys
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from treadle import Agent, Session, open_session
from treadle.cli.exits import UsageError
from treadle.cli.guidance import guidance_of
from treadle.cli.input.commands import GoalOptions, ResumeOptions
from treadle.cli.input.options import Options
from treadle.cli.input.places import absolute, names_file, same_journal, shown_address
from treadle.cli.input.settings import Settings, ToolSource
from treadle.cli.input.values import instructions_of
from treadle.cli.output.terminal import Terminal
from treadle.cli.output.text import one_line, shown_name
from treadle.cli.sessions import is_held, stranded_in
from treadle.errors import UnknownSession
from treadle.ports import Journal
from treadle.workers import list_workers

__all__ = [
    "absolute_model",
    "activating",
    "check_agent",
    "check_tools",
    "continuing",
    "folder_of",
    "is_same_folder",
    "origin_in",
    "origin_of",
    "other_folder",
    "program_of",
    "restored",
    "resuming",
    "tell_other_folder",
]

_Given = TypeVar("_Given", bound=Options)
_SCRIPT = "script:"


def origin_of(settings: Settings, model: str | None, options: Options | None = None) -> dict[str, Any]:
    """Return what a session is to remember of its run: folder, tools, model, its address, profile and configuration file.

    No secret is part of it, and no rule that allows.
    """
    address = settings.base_url
    is_shown = address is not None and shown_address(address) == address
    given = {
        "system": None if settings.system is None else instructions_of(settings.system, settings.held),
        "sandbox": None if settings.sandbox == "auto" else settings.sandbox,
        "schema": None if options is None or options.schema is None else absolute(options.schema),
        "model_options": None if options is None else options.model_options or None,
        "bare": True if settings.is_bare else None,
        "goal": _goal_file(options),
        "guidance": guidance_of(settings).record or None,
    }
    return {
        **{name: value for name, value in given.items() if value is not None},
        "folder": absolute(str(settings.root)),
        "working_folder": str(Path.cwd()),
        "tools": [_tool_text(source) for source in settings.tools],
        "model": None if model is None else absolute_model(model),
        "base_url": address if is_shown else None,
        "profile": settings.profile,
        "config": None if settings.config is None else absolute(settings.config),
        "has_secret_address": address is not None and not is_shown,
    }


def _goal_file(options: Options | None) -> str | None:
    if not isinstance(options, GoalOptions) or not options.task:
        return None
    return str(Path(options.task).resolve())


def absolute_model(model: str) -> str:
    """Return a model's name as any folder understands it."""
    if not model.startswith(_SCRIPT):
        return model
    return _SCRIPT + absolute(model.removeprefix(_SCRIPT))


def _tool_text(source: ToolSource) -> str:
    text = source.text.strip()
    return absolute(str(source.folder / text)) if names_file(text) else text


def restored(options: _Given, session: Session, terminal: Terminal) -> _Given:
    """Return the options with what the session remembers of its run, where nothing else was given. Tells what differs.

    Raises:
        UsageError: What it remembers is gone, and nothing was given in its place.
    """
    origin, its = origin_in(session), f"Session {session.id}"
    tell_other_folder(options, session, terminal)
    folder = options.folder or _existing(origin.get("folder"), f"{its} worked in", "Name its folder with -C.")
    config = options.config or _existing(
        origin.get("config"), f"{its} ran with the configuration", "Name one with --config."
    )
    found = msgspec.structs.replace(
        options,
        folder=folder,
        tools=options.tools or _tools(origin, session.id),
        model=options.model or origin.get("model"),
        base_url=options.base_url or origin.get("base_url"),
        system=options.system if options.system is not None else _literal(origin.get("system")),
        sandbox=options.sandbox or origin.get("sandbox"),
        schema=options.schema or origin.get("schema"),
        model_options=options.model_options or origin.get("model_options") or {},
        is_bare=options.is_bare or bool(origin.get("bare")),
        profile=options.profile or origin.get("profile"),
        config=config,
        remembered=tuple(
            name for name in ("profile", "config", "sandbox") if getattr(options, name) is None and origin.get(name)
        ),
    )
    if origin.get("has_secret_address") and options.base_url is None:
        terminal.say(
            f"treadle: session {session.id} ran with a base URL that contains a secret, which is not stored. Pass it with --base-url."
        )
    return found


def _literal(text: str | None) -> str | None:
    """Return stored instructions so that they are never taken for the name of a file: a session that was imported may say anything."""
    return f"\n{text}" if text is not None and text.startswith("@") else text


def program_of(session: Session) -> str:
    """Return the name of the agent of a program that began the session's run; empty where the command line did."""
    run = session.state.run
    if run is None or (run.origin or {}).keys() - {"trace"}:  # the trace is of whoever measured it
        return ""
    return run.agent


def resuming(session: Session) -> str:
    """Return the words of the command that continues the session's run: the goal's own, where it works on one."""
    run = session.state.run
    file = (run.origin or {}).get("goal") if run is not None else None
    if not isinstance(file, str):
        return f"treadle resume {session.id}"
    is_named = session.id.startswith("goal-")
    return f"treadle goal {shlex.quote(file)}" + ("" if is_named else f" --session {shlex.quote(session.id)}")


async def continuing(journal: Journal, root_id: str, options: Options) -> str:
    """Return the sentence that says what continues a run whose person has answered, with a command that works for it."""
    if await is_held(journal, root_id):
        return f"Session {root_id} is already running, and continues with this answer."
    if stranded := await stranded_in(journal, options, session_ids=[root_id]):
        return stranded[0].message
    try:
        async with open_session(journal, id=root_id, must_exist=True, on_store_failure="degrade") as root:
            tail = same_journal(options)
            below = [activating(one, tail) for one in await _suspended_below(root)]
            return " ".join([*await _waiting(root, tail), await _continuing(root, tail), *below])
    except UnknownSession:  # its agent's session was moved alone
        return f"It continues with session {root_id}, which is not in this journal."


def activating(session_id: str, tail: str) -> str:
    """Return the sentence that says how a suspended session may continue."""
    return f"Session {session_id} is suspended. To allow runs again: treadle sessions activate {shlex.quote(session_id)}{tail}"


async def _waiting(root: Session, tail: str) -> list[str]:
    """Return the sentences that say what a person must answer before the run continues."""
    approvals = [f"A call waits for approval: treadle approve {one.id}{tail}." for one in await root.approvals()]
    given = {body.get("call_id") for body in map(msgspec.to_builtins, await root.journal.inbox(root.id))}
    asked = [one for one in root.state.questions if one.call.id not in given]
    answers = [f'A question waits: treadle answer {shlex.quote(root.id)} "ANSWER"{tail}.'] if asked else []
    return [*approvals[:3], *answers]


async def _suspended_below(session: Session) -> list[str]:
    """Return the suspended sessions that carry out an open call of this one, at any depth."""
    found: list[str] = []
    for one in session.state.unanswered:
        for child_id in session.state.carried_out.get(one.call.id, ()):
            async with open_session(session.journal, id=child_id, on_store_failure="degrade") as child:
                if child.state.status == "suspended" and not child.state.moved_to:
                    found.append(child_id)
                found += await _suspended_below(child)
    return found


async def _continuing(root: Session, tail: str) -> str:
    if root.state.status == "suspended":
        return activating(root.id, tail)
    agent = "" if root.state.run is None else root.state.run.agent
    workers = [one.name for one in await list_workers(root.journal) if agent in one.agents and not one.is_draining]
    if agent and workers:
        return f"A worker continues session {root.id}: {one_line(workers[0])} has its agent {shown_name(agent)}."
    if program := program_of(root):
        return f"Resume the run in the program that has the agent {shown_name(program)}: it is not known here."
    return f"Resume with: {resuming(root)}{tail}"


def check_agent(session: Session, *, accepts_change: bool) -> None:
    """Refuse to continue a run whose agent is not known here.

    Raises:
        UsageError: A program's agent began the run, and the change was not accepted; or it works on a goal, whose rules are in its file.
    """
    if not (then := resuming(session)).startswith("treadle resume"):
        raise UsageError(
            f"Session {session.id} works on a goal, and the goal's rules and validation are in its file. To continue: {then}"
        )
    if (name := program_of(session)) and not accepts_change:
        raise UsageError(
            f"The run of session {session.id} belongs to the agent {shown_name(name)} of a program: its instructions, tools and objects "
            f"are not known here. Resume it in that program: await Agents([agent]).resume(journal, {session.id!r}). "
            "To continue without them: add --accept-change."
        )


def check_tools(agent: Agent, session: Session) -> None:
    """Refuse to lose an open call because its tool was left out this time: it waits, had started, or was about to."""
    owners = {} if session.state.run is None else session.state.run.tool_owners
    known, toolsets = {tool.name for tool in agent.tools}, {toolset.name for toolset in agent.toolsets}
    waiting = {approval.tool for approval in session.approvals() if approval.session_id == session.id}
    waiting |= {
        state.call.name
        for state in session.state.unanswered
        if state.approval is not None
        or state.started is not None
        or (state.decision is not None and state.decision.decision in ("allow", "ask"))
    }
    if missing := sorted(name for name in waiting - known if owners.get(name) not in toolsets):
        raise UsageError(
            f"An unfinished call needs the tool {', '.join(missing)}, which is not among {', '.join(sorted(known | toolsets))}. "
            "Pass the same --tools as before."
        )


def tell_other_folder(options: Options, session: Session, terminal: Terminal) -> None:
    """Say, before anything runs, that a session is to work in another folder than before."""
    before = folder_of(session)
    is_new_task = not isinstance(options, ResumeOptions | GoalOptions)
    now = absolute(options.folder) if options.folder is not None else str(Path.cwd()) if is_new_task else before
    if now is not None and (says := other_folder(session, Path(now))):
        terminal.say(f"treadle: {says}")


def other_folder(session: Session, now: Path) -> str:
    """Return the sentence that a session is to work in another folder than before; empty where it is the same."""
    before = folder_of(session)
    if before is None or is_same_folder(before, now):
        return ""
    return f"session {session.id} ran in the folder {one_line(before, 400)}; now it uses {one_line(str(now), 400)}."


def is_same_folder(one: str, other: Path) -> bool:
    """Whether both are the same folder, past links."""
    return Path(one).resolve() == other.resolve()


def origin_in(session: Session) -> dict[str, Any]:
    """Return what a session remembers of the set-up of its run; nothing where the command line did not run it."""
    run = session.state.run
    return (run.origin if run is not None else None) or {}


def folder_of(session: Session) -> str | None:
    """Return the folder in which a session works; None where it remembers none."""
    folder = origin_in(session).get("folder")
    return folder if isinstance(folder, str) else None


def _existing(path: str | None, what: str, advice: str) -> str | None:
    """Return a path that a session has recorded. Raises UsageError where it does not exist here."""
    if path is not None and not Path(path).exists():
        raise UsageError(f"{what} {path!r:.200}, which does not exist here. {advice}")
    return path


def _tools(origin: dict[str, Any], session_id: str) -> tuple[str, ...]:
    """Return the sources of the tools, and let modules of the folder be found in which the run was started."""
    tools = tuple(str(text) for text in origin.get("tools") or ())
    for text in tools:
        if names_file(text) and not Path(text).exists():
            raise UsageError(
                f"The tools of session {session_id} came from {text!r:.200}, which does not exist here. Name them with --tools."
            )
    working = origin.get("working_folder")
    if working and any(":" in text for text in tools) and working not in sys.path:
        sys.path.append(working)
    return tools
