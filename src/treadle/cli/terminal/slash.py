"""Slash: the commands of a conversation. Each says what it did; none of them goes to the model."""

import asyncio
import os
import subprocess
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, Protocol

import msgspec

from treadle import Agent, Price, Session, open_session
from treadle.cli.exits import UsageError
from treadle.cli.files import write_new
from treadle.cli.guidance import OwnCommand
from treadle.cli.input.commands import ChatOptions
from treadle.cli.input.keys import has_key
from treadle.cli.input.mcp import NO_SERVER, SOME_WAIT
from treadle.cli.input.places import absolute
from treadle.cli.input.rules import Kind
from treadle.cli.input.settings import Settings
from treadle.cli.origins import folder_of, is_same_folder, other_folder
from treadle.cli.output.terminal import Terminal
from treadle.cli.output.text import counted, one_line, shown_name, shown_time
from treadle.cli.output.transcript import form_of, page_of
from treadle.cli.rewinding import changes_since, diff_of, listed, not_covered, undone_calls
from treadle.cli.sessions import UNREADABLE, described, find_session, person
from treadle.cli.snapshots import Comparison, Snapshots
from treadle.cli.terminal.background import Background, listed_commands
from treadle.cli.terminal.board import Said
from treadle.cli.terminal.faces import Ended, Face, Grants, Option, ThemeName, shown_tokens
from treadle.cli.terminal.prompts import INIT, REVIEW, filled_in
from treadle.cli.tool_sources import subagents_of
from treadle.events import AnyEvent, MessageAdded, ModelFinished, RunStarted
from treadle.ports import Journal, ModelFacts, SessionInfo
from treadle.resolve import known_models
from treadle.toolsets import folder_changes

__all__ = ["COMMANDS", "carry_out", "must_wait", "recall"]

_LISTED = 12
_PARTS = {
    "both": "the conversation and the files",
    "files": "the files alone",
    "conversation": "the conversation alone",
}
_RULES: tuple[tuple[str, Kind], ...] = (("allowed", "allow"), ("asked about", "ask"), ("denied", "deny"))
_MODES = ("plan", "ask", "accept-edits", "auto", "deny-unlisted", "bypass")


class Conversation(Protocol):
    """What commands act on: see `Chat`."""

    face: Face
    journal: Journal
    session: Session
    settings: Settings
    options: ChatOptions
    terminal: Terminal
    grants: Grants
    model: str | None
    note: str
    snapshots: Snapshots
    background: Background
    own_commands: dict[str, OwnCommand]
    examine: Callable[[], object]

    shows_thinking: bool

    @property
    def agent(self) -> Agent: ...

    async def acting(self) -> Agent: ...

    async def open(self, session_id: str | None) -> None: ...

    async def go_on(self) -> None: ...

    async def give(self, text: str) -> None: ...

    def use_model(self, name: str) -> None: ...

    def stand(self) -> None: ...


Work = Callable[[Conversation, str], Awaitable[None]]


class _Command(NamedTuple):
    says: str
    work: Work
    is_quiet: bool = False
    """Whether it may be given while a run is under way."""


async def carry_out(chat: Conversation, text: str, *, is_working: bool) -> None:
    """Carry out a command as it was entered.

    Args:
        is_working: Whether a run is under way, which most commands must wait for.

    Raises:
        UsageError: There is no such command, or what comes after it is wrong.
    """
    command = _find(chat, text)
    if is_working and not command.is_quiet:
        raise UsageError(f"{text.split(maxsplit=1)[0]} cannot run during a run: press Esc to interrupt it, or wait.")
    await command.work(chat, "".join(text.split(maxsplit=1)[1:]).strip())


def must_wait(chat: Conversation, text: str) -> bool:
    """Whether a command as it was entered is one that waits for the end of a run."""
    with suppress(UsageError):
        return not _find(chat, text).is_quiet
    return False


def _find(chat: Conversation, text: str) -> _Command:
    """Return the command that a text names. What Treadle has itself counts before what a file defines."""
    name = text.split(maxsplit=1)[0][1:]
    own = {one.name: _Command(one.says, partial(_send, one)) for one in chat.own_commands.values()}
    known = {**own, **{other: _COMMANDS[meant] for other, meant in _OTHER_NAMES.items()}, **_COMMANDS}
    if name in known:
        return known[name]
    near = sorted(one for one in known if name and one.startswith(name))
    if len({id(known[one]) for one in near}) == 1:
        return known[near[0]]
    hint = f" Did you mean {' or '.join(f'/{one}' for one in near)}?" if near else ""
    raise UsageError(f"Unknown command /{name[:40]}.{hint} To list all: /help")


# --- what each does


async def _send(command: OwnCommand, chat: Conversation, rest: str) -> None:
    """Send what the file of a command says."""
    text, left = await filled_in(command, rest, chat.settings.root)
    if not text:
        raise UsageError(f"{command.path} is empty: there is nothing to send.")
    if not command.is_approved:
        ran = ", and its shell commands are not run" if left else ""
        chat.face.tell(
            f"note: {one_line(command.path, 200)} came with the folder, and you have not approved it{ran}. To review and approve it: treadle trust approve"
        )
    await chat.give(text)


async def _init(chat: Conversation, rest: str) -> None:
    await chat.give(f"{INIT}\n{rest}".strip())


async def _review(chat: Conversation, rest: str) -> None:
    what = (
        rest
        or "what has changed in this folder since the last commit: `git diff HEAD`, and the new files of `git status`"
    )
    await chat.give(REVIEW.format(what=what).strip())


async def _help(chat: Conversation, rest: str) -> None:
    own = {name: one.says for name, one in chat.own_commands.items() if name not in _COMMANDS}
    lines = ["Commands:", *(f"  /{name:<12}  {says}" for name, says in {**COMMANDS, **own}.items()), ""]
    lines += [
        "Keys:",
        "  Enter          send; while calls run, the message is sent with their results",
        "  Ctrl+J         new line (also Shift+Enter, if the terminal supports it)",
        "  Esc            interrupt the run",
        "  Ctrl+C         the same; twice to quit",
        "  Shift+Tab      next mode",
        "  Ctrl+O         unfold the last results",
        "  Ctrl+R         search the input history",
        "  Ctrl+G         write in your editor (also Ctrl+X Ctrl+E)",
        "  Ctrl+D         quit",
        "  !COMMAND       run it in your own shell",
        "  @PATH          attach a file, its lines (@PATH:10-20), or the names in a folder",
    ]
    chat.face.tell("\n".join(lines))


async def _clear(chat: Conversation, rest: str) -> None:
    before = chat.session.id
    has_messages = bool(chat.session.messages)
    await chat.open(None)
    chat.grants.clear()
    chat.face.standing.context_tokens = 0
    chat.stand()
    kept = f" To go back to the previous one: /resume {before}" if has_messages else ""
    chat.face.tell(f"New session: {chat.session.id}.{kept}")


async def _compact(chat: Conversation, rest: str) -> None:
    await chat.session.compact(by=person(chat.options))
    chat.face.tell("The conversation will be summarized before the next model request. The journal keeps all of it.")


async def _resume(chat: Conversation, rest: str) -> None:
    if not rest:
        found = await sessions_to_resume(chat)
        if not found:
            chat.face.tell("There is no other session.")
            return
        if (place := await chat.face.choose("Continue which session?", [one for _, one in found])) is None:
            return
        rest = found[place][0]
    info = await find_session(chat.journal, rest)
    await chat.open(info.id)
    chat.face.tell(f"Session {info.id}: {counted(len(chat.session.messages), 'message')}. {one_line(info.task, 100)}")
    if says := other_folder(chat.session, chat.settings.root):
        chat.face.tell(f"note: {says}")
    await recall(chat)
    run = chat.session.state.run
    if run is not None and run.status in ("paused", "running"):
        chat.face.tell("Its run did not finish, and continues now.")
        await chat.go_on()


async def _rewind(chat: Conversation, rest: str) -> None:
    seen, events = set(chat.session.state.message_seqs), await chat.session.events()
    said = [one for one in events if isinstance(one, MessageAdded) and one.source == "task" and one.seq in seen]
    if not said:
        chat.face.tell("There is no message to go back to yet.")
        return
    if not rest:
        options = [Option(one_line(event.message.text, 80), shown_time(event.at)) for event in said]
        if (place := await chat.face.choose("Go back to the point before which message?", options)) is None:
            return
        rest = str(place + 1)
    number, what, *more = [*rest.split(), ""][:3]
    if (
        not number.isdecimal()
        or not 1 <= int(number) <= len(said)
        or what not in ("", *_PARTS)
        or more not in ([], [""], ["all"])
    ):
        raise UsageError(
            f"/rewind takes a number from 1 to {len(said)}, then both, files or conversation, then all for your own changes too; got {rest[:40]!r}. "
            "To list the messages: /rewind"
        )
    event = said[int(number) - 1]
    begun = [one.seq for one in events if isinstance(one, RunStarted) and one.seq < event.seq]
    to = begun[-1] - 1 if begun else event.seq - 1
    found = await asyncio.to_thread(changes_since, chat.snapshots, chat.session.id, events, to)
    if found is None or not found.changes:
        if what == "files":
            raise UsageError("No file in the folder has changed since that message.")
    elif not what:
        chat.face.diff(diff_of(chat.snapshots, found))
        chat.face.tell("\n".join([*listed(found.changes), *_of_person(found), *not_covered(found)]))
        place = await chat.face.choose("Go back with what?", [Option(part, says) for part, says in _PARTS.items()])
        if place is None:
            return
        what = list(_PARTS)[place]
    is_whole = what in ("", "both", "conversation")
    undone = (
        await _put_back(chat, found, events, to, even_own=more == ["all"])
        if found and what in ("files", "both")
        else ()
    )
    if not is_whole:
        chat.note = (
            f"(The person has put the files of the folder back to before the message: {event.message.text[:200]})"
        )
        return
    rewound = await chat.session.rewind(to, undone=undone)
    left = ", ".join(dict.fromkeys(one_line(one.tool, 60) for one in rewound.effects))
    chat.face.tell(
        f"Rewound to the point before: {one_line(event.message.text, 80)}. The journal keeps what came after."
        + (f" Not undone: {left}." if left else "")
    )
    chat.face.prefill(event.message.text)
    chat.stand()


def _of_person(found: Comparison) -> list[str]:
    """Name the files that stay because the person has changed them."""
    names = [one_line(one.shown, 100) for one in found.changes if one.is_persons]
    said = f"You have changed these since, and they stay unless you add `all`: {', '.join(names[:_LISTED])}"
    return [said] if names else []


async def _put_back(
    chat: Conversation, found: Comparison, events: Sequence[AnyEvent], to: int, *, even_own: bool
) -> tuple[str, ...]:
    """Put the files back, and return the calls that this has undone."""
    changes = [one for one in found.changes if even_own or not one.is_persons]
    faults = await asyncio.to_thread(chat.snapshots.restore, chat.session.id, changes)
    own = [] if even_own else _of_person(found)
    chat.face.tell("\n".join(["Files put back:", *listed(changes), *own, *not_covered(found)]))
    if faults:
        lines = [f"  {one_line(one, 200)}" for one in faults]
        chat.face.tell("\n".join(["These could not be put back:", *lines]), is_bad=True)
    return undone_calls(events, to)


async def _model(chat: Conversation, rest: str) -> None:
    if not rest:
        offered = _models_to_choose(chat.model)
        place = await chat.face.choose(f"Which model instead of {one_line(chat.model or 'none', 60)}?", offered)
        if place is None:
            return
        rest = offered[place].label
    chat.use_model(rest)
    chat.face.tell(f"The model is now {one_line(rest, 80)}.")


def _models_to_choose(now: str | None) -> list[Option]:
    """Return the known models, each with its window and its prices: first those of vendors whose key is at hand."""
    known = {name: facts for name, facts in known_models().items() if name != now}
    vendors = {name.partition(":")[0] for name in known}
    ready = {one for one in vendors if has_key(one)}
    names = sorted(known, key=lambda name: name.partition(":")[0] not in ready)
    return [Option(name, _known_of(known[name], has_key=name.partition(":")[0] in ready)) for name in names]


def _known_of(facts: ModelFacts, *, has_key: bool) -> str:
    window = "" if facts.window is None else f"{shown_tokens(facts.window)} window"
    price = facts.price
    cost = f"${price.input} / ${price.output} a million" if isinstance(price, Price) else ""
    return " · ".join(filter(None, ("" if has_key else "needs a key", window, cost)))


async def _permissions(chat: Conversation, rest: str) -> None:
    if rest:
        if rest not in _MODES:
            raise UsageError(f"The mode must be one of {', '.join(_MODES)}; got {rest[:40]!r}.")
        await chat.session.set_mode(rest, by=person(chat.options))  # type: ignore[arg-type]  # checked above
        chat.stand()
    settings = chat.settings
    rows = [("mode", chat.session.mode), *((name, ", ".join(settings.texts(kind))) for name, kind in _RULES)]
    granted = [rule for one in chat.session.state.granted for rule in one.rules]
    rows.append(("allowed in this session", ", ".join([*granted, *chat.grants.rules])))
    lines = [f"  {name:<24} {value or 'nothing'}" for name, value in rows]
    chat.face.tell("\n".join(["Permissions:", *lines, "To change the mode: Shift+Tab, or /permissions MODE."]))


async def _cost(chat: Conversation, rest: str) -> None:
    run = chat.session.state.run
    if run is None:
        chat.face.tell("Nothing has been spent yet.")
        return
    spent, budget = run.spent, chat.settings.budget
    cost = "unknown: the price of the model is not known" if spent.cost is None else f"${spent.cost:.6f}"
    rows: list[tuple[str, Any, Any]] = [
        ("cost", cost, budget.max_total_cost),
        ("model turns", spent.model_turns, budget.max_model_turns),
        ("tool calls", spent.tool_calls, budget.max_tool_calls),
        ("input tokens", f"{spent.usage.input_tokens:,}", budget.max_input_tokens),
        ("output tokens", f"{spent.usage.output_tokens:,}", budget.max_output_tokens),
        ("seconds", f"{spent.wall_seconds:.1f}", budget.max_wall_time_seconds),
    ]
    lines = [f"  {name:<14} {used}" + ("" if limit is None else f" of {limit:,}") for name, used, limit in rows]
    chat.face.tell("\n".join(["Used by the last task:", *lines]))


async def _context(chat: Conversation, rest: str) -> None:
    standing, messages = chat.face.standing, chat.session.messages
    kinds = {"user": 0, "assistant": 0, "tool": 0}
    for message in messages:
        kinds[message.role] += len(msgspec.json.encode(message))
    window = "unknown" if standing.window is None else f"{standing.window:,} tokens"
    lines = [f"  {role:<10} {size:,} bytes" for role, size in kinds.items()]
    title = (
        f"{counted(len(messages), 'message')}; the last request and its answer had {standing.context_tokens:,} tokens."
    )
    chat.face.tell("\n".join([title, f"Context window: {window}.", "By role:", *lines]))


async def _diff(chat: Conversation, rest: str) -> None:
    text = await asyncio.to_thread(folder_changes, chat.settings.root)
    chat.face.diff(text) if text.strip() else chat.face.tell("No file in the folder has changed since the last commit.")


async def _export(chat: Conversation, rest: str) -> None:
    path = chat.settings.root / (rest or f"treadle-{chat.session.id}.jsonl")
    form = form_of(path.name)
    if form == "json":
        lines = await chat.session.export(redactor=chat.terminal.redactor)
    else:
        page = page_of(form, await described(chat.session), chat.terminal.redactor)
        lines = [line.encode() for line in page.rstrip("\n").split("\n")]
    write_new(path, [line.removesuffix(b"\n") for line in lines])
    chat.face.tell(f"{counted(len(lines), 'line')} written to {path}, with secrets removed.")


async def _status(chat: Conversation, rest: str) -> None:
    settings, agent = chat.settings, chat.agent
    names = [*(tool.name for tool in agent.tools), *(toolset.name for toolset in agent.toolsets)]
    rows = [
        ("session", chat.session.id),
        ("folder", absolute(str(settings.root))),
        ("model", chat.model or "none"),
        ("profile", settings.profile or "none"),
        ("mode", chat.session.mode),
        ("sandbox", settings.sandbox),
        ("journal", chat.journal.location),
        ("tools", ", ".join(sorted(names))),
        ("messages", str(len(chat.session.messages))),
        ("time", time.strftime("%Y-%m-%d %H:%M")),
    ]
    chat.face.tell("\n".join(f"  {name:<10} {value}" for name, value in rows))


async def _doctor(chat: Conversation, rest: str) -> None:
    await asyncio.to_thread(chat.examine)  # it has an event loop of its own


async def _mcp(chat: Conversation, rest: str) -> None:
    servers = chat.settings.mcp
    states = (await chat.acting()).toolset_states if any(one.is_used for one in servers) else {}
    rows: list[str] = []
    for one in servers:
        state = states.get(one.entry.name, one.state) if one.is_used else one.state
        is_fault = state not in ("opening", "open", "ended", one.state)
        rows.append(f"  {one.entry.name:<16} {'failed' if is_fault else state:<9} {one.entry.shown}")
        rows += [f"    {one_line(state, 300)}"] if is_fault else []
    waits = [SOME_WAIT] if any(one.is_waiting for one in servers) else []
    chat.face.tell("\n".join([*rows, *waits] or [NO_SERVER]))


async def _agents(chat: Conversation, rest: str) -> None:
    rows = [f"  {shown_name(one.name):<16} {one_line(one.description, 100)}" for one in subagents_of(chat.settings)]
    none = [
        "No subagent is defined. To define one, write .treadle/agents/NAME.md, and trust the folder: treadle trust approve"
    ]
    chat.face.tell("\n".join(["Subagents that the model can call:", *rows] if rows else none))


async def _thinking(chat: Conversation, rest: str) -> None:
    chat.shows_thinking = not chat.shows_thinking
    shown = (
        "is shown from the next message on, as far as the vendor sends it"
        if chat.shows_thinking
        else "is no longer shown"
    )
    chat.face.tell(f"What the model thinks {shown}.")


async def _copy(chat: Conversation, rest: str) -> None:
    said = next(
        (one.text for one in reversed(chat.session.messages) if one.role == "assistant" and one.text.strip()), ""
    )
    text = chat.terminal.redactor.text(said).strip()
    if not text:
        raise UsageError("There is no answer to copy yet.")
    if await asyncio.to_thread(_is_copied, text):
        chat.face.tell(f"The last answer is in the clipboard: {counted(len(text), 'character')}.")
    elif chat.face.copy(text):
        chat.face.tell(
            f"The last answer was sent to your terminal for its clipboard: {counted(len(text), 'character')}."
        )
    else:
        raise UsageError(
            "This terminal has no clipboard, and none of pbcopy, wl-copy, xclip and xsel works here. To a file: /export FILE.md"
        )


async def _theme(chat: Conversation, rest: str) -> None:
    if not rest:
        options = [Option(name, says) for name, says in _THEMES.items()]
        if (place := await chat.face.choose("Which theme for this conversation?", options)) is None:
            return
        rest = list(_THEMES)[place]
    if rest not in _THEMES:
        raise UsageError(f"/theme takes {', '.join(_THEMES)}; got {rest[:40]!r}.")
    if not chat.face.use_theme(rest):
        raise UsageError("This terminal shows no colours.")
    chat.face.tell(f"The theme is now {rest}.")


_THEMES: dict[ThemeName, str] = {
    "dark": "for a dark background",
    "light": "for a light background",
    "none": "no colours, as with NO_COLOR",
}
_CLIPBOARDS = (
    ("SSH_CONNECTION", ()),  # the clipboard of the other machine is not the person's: only the terminal reaches theirs
    ("WAYLAND_DISPLAY", ("wl-copy",)),
    ("DISPLAY", ("xclip", "-selection", "clipboard")),
    ("DISPLAY", ("xsel", "--clipboard", "--input")),
    ("WSL_DISTRO_NAME", ("clip.exe",)),
    ("", ("pbcopy",)),
)
"""What takes a text for the clipboard, and the variable without which it cannot work, if any."""


def _is_copied(text: str) -> bool:
    for variable, command in _CLIPBOARDS:
        if variable and variable not in os.environ:
            continue
        if not command:
            return False
        with suppress(OSError, subprocess.SubprocessError):
            # Its output is not read: xclip stays, and would hold a pipe open.
            subprocess.run(  # noqa: S603 - our own words
                command,
                input=text.encode(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=5,
                check=True,
            )
            return True
    return False


async def _bashes(chat: Conversation, rest: str) -> None:
    found = await chat.background.of(chat.session.id)
    if not found:
        chat.face.tell("No command runs in the background.")
        return
    chat.face.tell("\n".join(["Background commands of this session:", *listed_commands(found)]))


async def _exit(chat: Conversation, rest: str) -> None:
    chat.face.enter(Ended())


_COMMANDS = {
    "help": _Command("list commands and keys", _help, is_quiet=True),
    "clear": _Command("start a new session; this one is kept", _clear),
    "compact": _Command("summarize the conversation before the next request", _compact, is_quiet=True),
    "resume": _Command("list sessions, or continue one", _resume),
    "rewind": _Command("list your messages, or go back to before one", _rewind),
    "model": _Command("show the model, or change it", _model),
    "permissions": _Command("show the mode and the rules, or change the mode", _permissions, is_quiet=True),
    "cost": _Command("show how much of its limits the last task has used", _cost, is_quiet=True),
    "context": _Command("show what fills the model's context", _context, is_quiet=True),
    "diff": _Command("show changes to files since the last commit", _diff, is_quiet=True),
    "copy": _Command("copy the last answer to the clipboard", _copy, is_quiet=True),
    "theme": _Command("choose colours for a dark or a light background, or none", _theme, is_quiet=True),
    "thinking": _Command("show what the model thinks, or stop showing it", _thinking, is_quiet=True),
    "agents": _Command("list subagents", _agents, is_quiet=True),
    "init": _Command("have the model write AGENTS.md, or complete it", _init),
    "review": _Command("have the model review your changes, or what you name", _review),
    "export": _Command("write the session to FILE (.jsonl, .md or .html), with secrets removed", _export),
    "status": _Command("show the session, folder, model and tools", _status, is_quiet=True),
    "doctor": _Command("check this machine", _doctor, is_quiet=True),
    "bashes": _Command("list background commands with their last lines", _bashes, is_quiet=True),
    "mcp": _Command("list MCP servers and their states", _mcp, is_quiet=True),
    "exit": _Command("quit", _exit, is_quiet=True),
}
_OTHER_NAMES = {"quit": "exit"}
"""Not listed, but understood."""
COMMANDS = {name: one.says for name, one in _COMMANDS.items()}
"""What each command does, by its name."""


# --- Recalling: what a person is shown of sessions that they come back to: the list of them, and the last exchange of
# one.

_MOST_SESSIONS = 100
_ANSWER_LINES = 12
_ANSWER_CHARS = 1_500


async def recall(chat: Conversation) -> None:
    """Show the last exchange of the session, shortened, and how much of the model's context it fills."""
    session, redactor = chat.session, chat.terminal.redactor
    seen = set(session.state.message_seqs)
    events = [event for event in await session.events() if event.seq in seen]
    asked = [event for event in events if isinstance(event, MessageAdded) and event.source == "task"]
    answers = [event for event in events if isinstance(event, ModelFinished)]
    if answers:
        usage = answers[-1].usage
        chat.face.standing.context_tokens = usage.input_tokens + usage.output_tokens
        chat.face.refresh()
    if not asked:
        return
    chat.face.tell(f"You: {one_line(redactor.text(asked[-1].message.text), 300)}")
    said = [one.message.text for one in answers if one.seq > asked[-1].seq and one.message.text.strip()]
    if said:
        chat.face.show(Said(_shortened(redactor.text(said[-1]))))


def _shortened(text: str) -> str:
    lines = text.strip().split("\n")
    kept = "\n".join(lines[:_ANSWER_LINES])[:_ANSWER_CHARS]
    return kept if len(kept) == len(text.strip()) else f"{kept} ..."


async def sessions_to_resume(chat: Conversation) -> list[tuple[str, Option]]:
    """Return the sessions that can be continued here by their ids, the last changed first, with its folder where it is another one."""
    found: list[tuple[str, Option]] = []
    for info in await chat.journal.sessions():
        if info.status == "deleted" or info.run_status == "queued" or info.id == chat.session.id:
            continue
        if len(found) == _MOST_SESSIONS:
            break
        if (where := await _place(chat, info)) is not None:
            says = f"{shown_time(info.updated_at)}  {info.run_status}{where}  {info.id}"
            found.append((info.id, Option(one_line(info.task, 50) or "(no task yet)", says)))
    return found


async def _place(chat: Conversation, info: SessionInfo) -> str | None:
    """Return where a session works, where that is not here; None for one that carries out a call of another."""
    try:
        async with open_session(chat.journal, id=info.id) as session:
            folder, is_own = folder_of(session), session.state.caller is None
    except UNREADABLE:  # to continue it will say what is wrong
        return ""
    if not is_own:
        return None
    return f"  in {one_line(folder, 200)}" if folder and not is_same_folder(folder, chat.settings.root) else ""
