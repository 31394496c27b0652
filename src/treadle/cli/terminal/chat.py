"""Chat: one conversation: what a person enters becomes tasks, messages for a run under way, answers and commands. Draws nothing."""

import asyncio
import os
import time
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, suppress
from decimal import Decimal
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import msgspec

from treadle import Agent, Approval, Run, RunResult, Session, SessionHeld, StopReason, TreadleError, open_session
from treadle.cli.exits import UsageError
from treadle.cli.guidance import Attached, commands_of, guidance_of, mentioned, message_of, not_attached
from treadle.cli.input.commands import ChatOptions
from treadle.cli.input.keys import use_stored_keys
from treadle.cli.input.places import rules_file
from treadle.cli.input.rules import save_rule
from treadle.cli.input.settings import Settings, settings_of
from treadle.cli.origins import check_agent, check_tools, origin_of, other_folder
from treadle.cli.output.calls import todos_of
from treadle.cli.output.progress import Notifier
from treadle.cli.output.terminal import Terminal
from treadle.cli.output.text import counted, for_terminal, one_line, one_record, shown_span
from treadle.cli.rewinding import snapshots_of
from treadle.cli.running import idle_rules, interactive_policy, make_agent, resumed_budget, sandbox_of, unmatched_in
from treadle.cli.sessions import apply_mode, person
from treadle.cli.terminal.background import Background, is_started
from treadle.cli.terminal.board import Board, CallView, Greeting, Group, Note
from treadle.cli.terminal.faces import (
    Answer,
    Cleared,
    Ended,
    Entry,
    Face,
    Grants,
    Interrupted,
    ModeCycled,
    Question,
    Typed,
    Unfolded,
    branch_of,
)
from treadle.cli.terminal.prompts import run_line
from treadle.cli.terminal.slash import carry_out, must_wait, recall
from treadle.cli.terminal.starting import (
    ask_about_folder,
    chosen_model,
    is_new_folder,
    with_answered_mode,
    with_only_key,
)
from treadle.cli.tool_sources import found_subagents, load_tools
from treadle.errors import ApprovalExpired, JournalError, UnknownApproval, UnknownInput
from treadle.events import AnyEvent, MessageAdded, ModelFinished, RunFinished, RunPaused, ToolFinished, ToolsetFailed
from treadle.ports import Journal, window_of

__all__ = ["Consulting", "Queued", "talk"]


# --- Queued: what a person enters while something is under way. It goes to the model with the results of a step, or is
# the next task.


class Queued:
    """What waits in one conversation."""

    def __init__(self, face: Face) -> None:
        self._face = face
        self._held: deque[str] = deque()
        """What was entered while no calls were under way."""
        self._leaving: set[asyncio.Task[None]] = set()

    def hold(self, text: str) -> None:
        """Keep a text for the next step, or as the next task."""
        self._held.append(text)
        self._tell(text)

    def leave(self, run: Run, text: str) -> None:
        """Leave a run a text, and say so once it will be read with the results of this step."""
        self.pass_on(run)
        self._begin(run, text, is_told=False)

    def pass_on(self, run: Run) -> None:
        """Leave a run what is kept: it is added after the results of the step that is under way."""
        while self._held:
            self._begin(run, self._held.popleft(), is_told=True)

    async def taken(self, session: Session, journal: Journal) -> str | None:
        """Return what was entered and no step took in, and keep it no more; None where there is nothing."""
        while self._leaving:
            await asyncio.wait(self._leaving)
        left = [one for one in await journal.inbox(session.id) if one.kind == "message"]
        texts = [str(getattr(one, "text", "")) for one in left]
        if left:
            await journal.consume(session.id, [one.id for one in left], session.state.head)
        texts += self._held
        self._held.clear()
        return "\n\n".join(text for text in texts if text) or None

    def _begin(self, run: Run, text: str, *, is_told: bool) -> None:
        task = asyncio.create_task(self._leave(run, text, is_told=is_told))
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    async def _leave(self, run: Run, text: str, *, is_told: bool) -> None:
        try:
            await run.steer(text)
        except Exception:  # noqa: BLE001 - the run ends in this moment, or its journal is away: the text is the next task
            self._held.append(text)
        if not is_told:
            self._tell(text)

    def _tell(self, text: str) -> None:
        self._face.tell(f"Queued: {one_line(text, 200)}")


# --- Consulting: a person is asked about the calls with which a run waits. The session is held meanwhile, so that no
# other process continues it, and an answer that comes from elsewhere closes the question. Draws nothing and runs
# nothing.

_LOOK_SECONDS = 0.5
"""How often the journal is asked whether a request still waits."""
_DESTROYS = ("destructive", "privileged_admin", "financial")
"""Risk classes of which a bare Enter allows none."""
_ANSWERED = {"allow": "Allowed", "deny": "Denied"}


class Consulting:
    """The questions of one conversation."""

    def __init__(
        self,
        face: Face,
        journal: Journal,
        grants: Grants,
        notifier: Notifier,
        *,
        settings: Settings,
        options: ChatOptions,
    ) -> None:
        self._face = face
        self._journal = journal
        self._grants = grants
        self._notifier = notifier
        self._settings = settings
        self._options = options

    async def ask_about(self, session: Session, approvals: Sequence[Approval]) -> None:
        """Ask about each call that still waits, until all are answered or the person cancels the run.

        Raises:
            SessionHeld: Another process has the session.
        """
        lost = asyncio.Event()
        await session.hold(on_lost=lost.set, on_message=lambda: None)
        try:
            for number, approval in enumerate(approvals, 1):
                question = Question(
                    approval=approval,
                    rules=approval.rules,
                    destroys=approval.effect == "unsafe" or approval.risk in _DESTROYS,
                    number=number,
                    total=len(approvals),
                    covers=partial(self._grants.covers, call_id=approval.call_id),
                )
                if not await self._is_settled(session, question, lost):
                    await session.cancel(by=person(self._options))
                    return
        finally:
            await session.release()

    async def _is_settled(self, session: Session, question: Question, lost: asyncio.Event) -> bool:
        """Ask until the call is decided here or elsewhere; return False where the person wants the run to end."""
        one = question.approval
        if not await _waits(session, one):
            self._face.tell(await self._ended(session, one))
            return True
        self._notifier.notify(f"a call to {one.tool} is waiting for you")
        asking = asyncio.ensure_future(self._face.ask(question))
        elsewhere = asyncio.ensure_future(self._elsewhere(session, one, lost))
        try:
            await asyncio.wait((asking, elsewhere), return_when=asyncio.FIRST_COMPLETED)
        finally:
            asking.cancel()
            elsewhere.cancel()
            await asyncio.wait((asking, elsewhere))
        if asking.cancelled():
            self._face.tell(elsewhere.result())
            return True
        self._notifier.attend()
        answer = asking.result()
        if answer is not None:
            await self._record(session, question, answer)
        return answer is not None

    # --- what happens elsewhere

    async def _elsewhere(self, session: Session, approval: Approval, lost: asyncio.Event) -> str:
        """Wait until the request has been answered or withdrawn, and say by whom.

        Raises:
            SessionHeld: Another process has taken the session over: this one was suspended for too long.
        """
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            if lost.is_set():
                raise SessionHeld(
                    f"Session {session.id!r} was taken over by another process. To continue it here later: /resume {session.id}"
                )
            with suppress(JournalError):  # the store has failed: the person can still answer
                if not await _waits(session, approval):
                    return await self._ended(session, approval)

    async def _ended(self, session: Session, approval: Approval) -> str:
        """Say what has happened to a request, and who did it."""
        for left in await self._journal.inbox(approval.session_id or session.id):
            said = left.body
            if left.kind == "answer" and said["approval_id"] == approval.id:
                by = one_line(str(said["approved_by"]), 60)
                edited = ", with other arguments" if "arguments" in said else ""
                reason = f": {one_line(str(said['reason']), 200)}" if said["reason"] else ""
                return f"{_ANSWERED[str(said['answer'])]} by {by} from elsewhere{edited}{reason}."
        is_cancelled = any(left.kind == "cancel" for left in await self._journal.inbox(session.id))
        return "The run was cancelled from elsewhere." if is_cancelled else "The request has been withdrawn."

    # --- answers

    async def _record(self, session: Session, question: Question, answer: Answer) -> None:
        try:
            await self._store(session, question, answer)
        except ApprovalExpired:
            self._face.tell("The request expired before you answered it. Here it is again.", is_bad=True)
        except UnknownApproval:
            ended = await self._ended(session, question.approval)
            self._face.tell(f"Your answer came too late. {ended} Press Ctrl+C to stop the run.", is_bad=True)

    async def _store(self, session: Session, question: Question, answer: Answer) -> None:
        one, by = question.approval, person(self._options)
        scope: Literal["call", "session", "rule"] = "call"
        if answer.rules and answer.rules == one.rules:
            scope = "session" if answer.scope == "session" else "rule"
        await session.answer(
            one.id, answer.answer, reason=answer.reason, arguments=answer.arguments, by=by, scope=scope
        )
        if answer.rules and scope == "call":  # the person has written them otherwise than they were offered
            self._grants.add(*answer.rules, scope="user")
        if answer.mode is not None:
            await session.set_mode(answer.mode, by=by)
        if answer.scope in ("always", "everywhere"):
            for rule in answer.rules:
                save_rule(rules_file(os.environ), self._settings.root if answer.scope == "always" else None, rule)
        where = {"always": "this folder", "everywhere": "all your folders"}.get(answer.scope, "this session")
        rules = f" From now on in {where}: {one_record(', '.join(answer.rules))}" if answer.rules else ""
        mode = f" The mode is now {answer.mode}." if answer.mode else ""
        self._face.show(Note(f"{_ANSWERED[answer.answer]} by {by}.{rules}{mode}"))


async def _waits(session: Session, approval: Approval) -> bool:
    return any(one.id == approval.id for one in await session.approvals())


# --- Chat: one conversation: what a person enters becomes tasks, messages for a run under way, answers and commands.
# Draws nothing.

_MODES = ("ask", "accept-edits", "auto", "plan")
"""Those that Shift+Tab goes through."""
_ENDING_SECONDS = 0.5
"""A command that must wait for the end of the run is refused after so long."""
_TWICE_SECONDS = 2.0
"""Ctrl+C twice within so many seconds ends the program."""
_SHELL_CHARS = 20_000
_INSTRUCTIONS = (
    "You help a person at a terminal with the files and programs of one folder, through your tools. Read what you "
    "talk about before you answer. Answer in Markdown, as briefly as the question allows."
)


class Chat:
    """One conversation in one folder. `run` lasts until the person leaves.

    Args:
        journal: Where its sessions are; whoever opened it closes it.
        examine: Checks this machine, in a thread, and writes what it finds to the terminal.
    """

    def __init__(
        self,
        face: Face,
        journal: Journal,
        *,
        settings: Settings,
        options: ChatOptions,
        terminal: Terminal,
        examine: Callable[[], object],
    ) -> None:
        self.face = face
        self.journal = journal
        self.settings = settings
        self.options = options
        self.terminal = terminal
        self.examine = examine
        self.grants = Grants()
        self.model = settings.model
        self.snapshots = snapshots_of(settings)
        self.own_commands = commands_of(settings)
        self._tools = load_tools(settings, may_write=True)
        self.background = Background(self._tools, face.tell)
        self.session: Session
        self.code = 0
        self._sandbox = ""  # until it is known
        self._agent: Agent | None = None
        self._acting: Agent | None = None
        """The same with its toolsets open, as long as the session; None until then."""
        self._open_tools = AsyncExitStack()
        self._stack = AsyncExitStack()
        self._board: Board | None = None
        self._run: Run | None = None
        self._work: asyncio.Task[None] | None = None
        self._queued = Queued(face)
        self._is_leaving = False
        self._attached = [Attached(Path(file)) for file in options.attached]
        """Files that go along with the first message."""
        self._shell_output = ""
        """What `!` commands wrote since the last message: they are sent with the next one."""
        self.shows_thinking = False
        self.note = ""
        """What the model does not know of what the person did since the last message."""
        self._notifier = Notifier(
            settings.notify, settings.notify_after_seconds, terminal.out, asyncio.get_running_loop().time
        )
        self._consulting = Consulting(face, journal, self.grants, self._notifier, settings=settings, options=options)
        self._last: tuple[CallView, ...] = ()
        """The calls that were shown last."""
        self._failed: set[tuple[str, str]] = set()
        """Toolsets that could not be opened and why, as it was said: each message tries again."""
        self._insisted_at = float("-inf")
        self._cycling = asyncio.Lock()
        self._doing: Literal["run", "command"] = "command"
        """What is under way, where something is."""
        self._is_new = False  # whether the session began here, under an id of its own
        self._has_cut = False  # whether the last Ctrl+C stopped something

    # --- its life

    async def run(self, first: str | None = None) -> int:
        """Continue until the person leaves, and return the exit code.

        Args:
            first: The first message, where there is one.
        """
        self._beside(self._look_for_sandbox())
        try:
            if first is not None:
                self._typed(first)
            while not isinstance(entry := await self.face.entry(), Ended):
                if self._act(entry):
                    return self.code
                if not self.is_working:
                    self.face.rest()
            self.code = entry.code
        finally:
            await self._stop_work()
            await self._leave_session()
        return self.code

    async def open(self, session_id: str | None) -> None:
        """Continue in another session, or in a new one.

        Raises:
            TreadleError: It cannot be opened, or no run may begin in it.
        """
        stack = AsyncExitStack()
        session = await stack.enter_async_context(open_session(self.journal, id=session_id, on_store_failure="degrade"))
        await self._leave_session(next_id=session.id)
        self._stack, self.session, self._is_new = stack, session, session_id is None
        self._last = ()
        await apply_mode(session, self.settings, self.options)
        await self.background.begin(session.id)
        self._beside(self.background.watch(session.id))
        if self.model is not None:
            await self.acting()
        self.stand()

    async def _leave_session(self, next_id: str = "") -> None:
        """Close the session. One that began here and in which nothing was said is not kept."""
        if self._is_new and not self.session.messages and self.session.id != next_id:
            with suppress(TreadleError):  # another process has it: it is theirs now
                await self.session.delete(purge=True)
        self._acting = None
        await self._open_tools.aclose()
        await self._stack.aclose()

    def stand(self) -> None:
        """Bring the status line up to date."""
        state = self.session.state.run
        standing = self.face.standing
        standing.model = self.model or "no model"
        standing.mode = self.session.mode
        standing.budget = self.settings.budget
        standing.window = self._window()
        cost, standing.turns = (Decimal(0), 0) if state is None else (state.spent.cost, state.spent.model_turns)
        has_price = self.model is not None and self.agent.model.price is not None
        standing.cost = cost if has_price or cost else None
        if self._board is not None and self._board.context_tokens:
            standing.context_tokens = self._board.context_tokens
        standing.branch = branch_of(self.settings.root.resolve())
        standing.sandbox = (
            self._sandbox if self.session.mode != "bypass" or self.settings.sandbox != "auto" else "no sandbox"
        )
        standing.todos = todos_of({"items": self.session.state.facts.values.get("todos")})
        self.face.refresh()

    async def _look_for_sandbox(self) -> None:
        """Say in the status line whether commands are confined. To find out runs a program."""
        with suppress(TreadleError):  # one is demanded and none works: a command says so
            found = await asyncio.to_thread(sandbox_of, self.settings)
            self._sandbox = "no sandbox" if found is None else "sandbox"
            self.stand()

    def _window(self) -> int | None:
        """Return the window of the model, as far as it is configured or known."""
        return None if self.model is None else window_of(self.agent.model)

    @property
    def agent(self) -> Agent:
        """Who acts. Made when it is first needed, and anew after a change of the model.

        Raises:
            ConfigurationError: The model, its key, a tool or a rule is wrong.
        """
        if self._agent is None:
            self._agent = make_agent(
                self.settings,
                self.model,
                tools=self._tools,
                policy=interactive_policy(self.settings, self.grants),
                instructions=_INSTRUCTIONS,
                options=self.options,
                snapshots=self.snapshots,
            )
        return self._agent

    async def acting(self) -> Agent:
        """Return who acts, with toolsets that stay open from message to message. They open in the background.

        Raises:
            ConfigurationError: As `agent`.
        """
        if self._acting is None:
            opening = self.agent.open(session=self.session, in_background=True)
            self._acting = await self._open_tools.enter_async_context(opening)
        return self._acting

    def use_model(self, name: str) -> None:
        """Let another model continue.

        Raises:
            ConfigurationError: There is no such model, or its key lacks. The one before stays.
        """
        before, self.model, self._agent = (self.model, self._agent), name, None
        try:
            _ = self.agent
        except TreadleError:
            self.model, self._agent = before
            raise
        if self._acting is not None:  # what is open stays open
            self._acting = self._acting.replace(model=self.agent.model)
        self.stand()

    # --- what the person does

    def _act(self, entry: Entry) -> bool:
        """Act on an entry, without waiting. Return whether the program ends."""
        self._notifier.attend()
        match entry:
            case Typed(text=text):
                self._typed(text)
            case Interrupted(is_insistent=False):
                self._interrupt()
            case Interrupted():
                return self._insist()
            case Cleared():
                self._insisted_at = time.monotonic()
            case ModeCycled():
                self._beside(self._cycle_mode())
            case Unfolded():
                self.face.unfold(self._last) if self._last else self.face.tell("There is no result to unfold yet.")
            case _:
                pass
        return False

    @property
    def is_working(self) -> bool:
        """Whether a run or a command is under way."""
        return self._work is not None and not self._work.done()

    def _typed(self, text: str) -> None:
        if text.startswith("/") and not text.startswith("//"):
            self.face.said(text)
            self._command(text)
        elif self.is_working:
            self._steer(text)
        elif text.startswith("!"):
            self._begin(self._shell(text[1:].strip()))
        else:
            self._begin(self._task(text))

    def _command(self, text: str) -> None:
        if self.is_working:
            self._beside(self._command_beside(text))
        else:
            self._begin(carry_out(self, text, is_working=False))

    async def _command_beside(self, text: str) -> None:
        """Carry out a command that was entered while a run was under way; it may end in this moment, its answer shown already."""
        if self._work is not None and must_wait(self, text):
            await asyncio.wait([self._work], timeout=_ENDING_SECONDS)
        if self.is_working:
            await carry_out(self, text, is_working=True)
        else:
            self._command(text)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        self._doing = "command"
        self._work = asyncio.create_task(self._worked(work))

    async def _worked(self, work: Coroutine[Any, Any, None]) -> None:
        await self._told(self._in_a_row(work))
        if not self._is_leaving:
            self.face.rest()

    async def _in_a_row(self, work: Coroutine[Any, Any, None]) -> None:
        """Do what was entered, then what was entered meanwhile: it is the next task. Where something fails it waits for the next message."""
        await work
        while not self._is_leaving and (text := await self._queued.taken(self.session, self.journal)) is not None:
            await self._task(text)

    def _beside(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something short while a run may be under way."""
        task = asyncio.create_task(self._told(work))
        self._stack.callback(task.cancel)

    async def _told(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something, and tell what goes wrong in one sentence."""
        try:
            await work
        except TreadleError as exc:
            self.face.tell(f"treadle: {one_record(for_terminal(str(exc)))}", is_bad=True)
        except asyncio.CancelledError:
            raise
        except Exception as exc:  # noqa: BLE001 - a conversation outlives a fault of ours
            self.face.tell(f"treadle: unexpected {type(exc).__name__}: {one_line(str(exc), 500)}", is_bad=True)

    def _interrupt(self) -> None:
        if self._run is not None:
            self._run.cancel(by=person(self.options))
        elif self.is_working and self._work is not None:
            self._work.cancel()

    def _insist(self) -> bool:
        now, before = time.monotonic(), self._insisted_at
        self._insisted_at = now
        if now - before < _TWICE_SECONDS:
            self.code = 130 if self.is_working or self._has_cut else 0
            return True
        self._has_cut = self.is_working
        if self.is_working:
            self._interrupt()
            self.face.tell(
                f"Stopping the {self._doing}. Press Ctrl+C again within two seconds to quit; the session is saved."
            )
        else:
            self.face.tell("Press Ctrl+C again within two seconds to quit, or Ctrl+D.")
        return False

    async def _stop_work(self) -> None:
        """End what is under way, recorded in full."""
        self._is_leaving = True
        if self._work is None:
            return
        self._interrupt()
        with suppress(asyncio.CancelledError):
            await asyncio.wait([self._work], timeout=10)
            self._work.cancel()

    async def _cycle_mode(self) -> None:
        async with self._cycling:  # each press begins where the one before ended
            now = self.session.mode
            mode = _MODES[(_MODES.index(now) + 1) % len(_MODES)] if now in _MODES else _MODES[0]
            await self.session.set_mode(mode, by=person(self.options))  # type: ignore[arg-type]  # one of the literals
            self.stand()

    # --- tasks

    async def give(self, text: str) -> None:
        """Give the model a text that stands for the command that the person has entered."""
        await self._task(text, is_shown=True)

    async def _task(self, text: str, *, is_shown: bool = False) -> None:
        """Give the model a task, or the answer that its run waits for.

        Args:
            is_shown: Whether what the person entered for it is on the screen.
        """
        if (asked := self.session.state.question) is not None and await self._replied(asked.call.id, text):
            return
        root = self.settings.root
        attached, ran = self._attached, self._shell_output
        files = [*mentioned(text, root), *attached]
        try:
            task = message_of(self._with_shell(text), files, root)
        except UsageError:
            self.face.prefill(text)
            raise
        self._attached = []
        self._shell_output = self.note = ""
        agent = await self.acting()
        if not is_shown:
            self.face.said(text)
        self._say_what_is_attached(text, files)
        run = agent.stream(task, session=self.session, budget=self.settings.budget, deadline=self.options.deadline)
        run.remember(origin_of(self.settings, self.model, self.options))
        before = len(self.session.messages)
        try:
            await self._see_through(run)
        except TreadleError:
            if len(self.session.messages) == before:  # refused before it began: nothing that the person wrote is lost
                self.face.prefill(text)
                self._attached, self._shell_output = attached, ran
            raise

    def _say_what_is_attached(self, text: str, files: list[Attached]) -> None:
        if files:
            self.face.tell(f"Attached: {', '.join(one_line(file.shown(self.settings.root), 200) for file in files)}")
        for note in not_attached(text, self.settings.root):
            self.face.tell(f"note: {note}")

    async def _replied(self, call_id: str, text: str) -> bool:
        """Answer a call that waits, and continue its run; return False if it was cancelled: the text is a task."""
        check_tools(self.agent, self.session)
        try:
            await self.session.input(call_id, self._with_shell(text), by=person(self.options))
        except UnknownInput:
            return await self._continued_elsewhere(text)
        self._shell_output = self.note = ""
        self.face.said(text)
        await self.go_on()
        return True

    async def _continued_elsewhere(self, text: str) -> bool:
        """Return a late answer to the person: the first one counts, and its run continues. Return False if the run was cancelled."""
        if any(left.kind == "cancel" for left in await self.journal.inbox(self.session.id)):
            return False
        self.face.tell("Not sent: the question was answered from elsewhere. What you entered is in the input line.")
        self.face.prefill(text)
        if self.session.state.question is not None:
            await self.go_on()
        return True

    async def go_on(self) -> None:
        """Resume the session's run, where one was paused, stopped or broke off."""
        self.session.check_resumable()
        check_agent(self.session, accepts_change=self.options.accepts_change)
        check_tools(self.agent, self.session)
        await self._see_through(await self._resumed())

    async def _resumed(self) -> Run:
        agent = await self.acting()
        run = agent.stream_resume(self.session, budget=resumed_budget(self.session, self.settings))
        run.remember(origin_of(self.settings, self.model, self.options))
        return run

    def _with_shell(self, text: str) -> str:
        ran, text = self._shell_output, f"{self.note}\n\n{text}" if self.note else text
        return f"{text}\n\n# Commands that the person ran\n\n{ran}" if ran else text

    async def _see_through(self, run: Run) -> None:
        """Show a run until its end, ask what it asks, and continue it."""
        self._doing = "run"
        current: Run | None = run
        while current is not None:
            result = await self._watched(current)
            current = await self._after(result)
            if current is None:
                self._notifier.notify(f"the run has ended ({result.reason})")

    async def _watched(self, run: Run) -> RunResult:
        before, board = self._board, Board(self.terminal.redactor, asyncio.get_running_loop().time)
        self._board = board
        board.shows_thinking = self.shows_thinking
        board.opening = lambda: () if self._acting is None else self._acting.opening
        for state in self.session.state.open.values():
            if state.result is None:
                board.know(state.call, state.decision, state.approval is not None and state.approval.answer is None)
        if before is not None:
            board.take_over(before)
        self._run = run
        run.subscribe(lambda event: self._see_below(board, event), children=True)
        self.face.watch(board)
        try:
            async with run:
                async for event in run:
                    self._see(board, event)
            return run.result
        finally:
            self._run = None
            self._show(board.flush())
            self.face.watch(None)
            self.stand()

    def _see(self, board: Board, event: AnyEvent) -> None:
        if isinstance(event, ToolsetFailed) and event.phase == "open":
            if (failed := (event.toolset, event.message)) in self._failed:
                return
            self._failed.add(failed)
        self._show(board.on_event(event))
        if isinstance(event, ModelFinished | ToolFinished | RunFinished | RunPaused | MessageAdded):
            self.stand()
        else:
            self.face.refresh()
        if isinstance(event, ToolFinished) and is_started(event.result.data):
            self._beside(self.background.watch(self.session.id))
        if isinstance(event, ModelFinished) and event.act is None and event.message.calls:
            assert self._run is not None
            self._queued.pass_on(self._run)

    def _see_below(self, board: Board, event: AnyEvent) -> None:
        if board.on_any_event(event):
            self.face.refresh()

    def _show(self, items: list[Any]) -> None:
        for item in items:
            if isinstance(item, Group):
                self._last = item.calls
            self.face.show(item)

    async def _after(self, result: RunResult) -> Run | None:
        """Say how a run ended where its answer does not; return the run that continues it, where a person has answered."""
        if result.reason is StopReason.APPROVAL_REQUIRED:
            await self._consulting.ask_about(self.session, result.approvals)
            return await self._resumed()
        if result.denials:
            names = ", ".join(dict.fromkeys(one_line(one.tool, 60) for one in result.denials))
            self.face.tell(f"Denied: {counted(len(result.denials), 'call')} ({names}).")
        if result.reason is StopReason.CANCELLED:
            queued = await self._queued.taken(self.session, self.journal)
            self.face.tell("Interrupted. What was done is recorded. Type what to do instead.")
            if queued is not None:  # a message that comes after this line is the next task
                self.face.tell("What you entered meanwhile was not sent: it is in the input line.")
                self.face.prefill(queued)
        elif result.reason is StopReason.INPUT_REQUIRED and self.session.state.question is not None:
            self.face.tell(f"{result.message} Type the answer.")
        elif not result.completed:
            words = for_terminal(f"{result.message} {result.next_step}")
            self.face.tell(f"{result.status} ({result.reason}): {words}", is_bad=True)
        self._say_what_it_took(result)
        if result.unstored:
            self.face.tell(f"The journal is missing {counted(result.unstored, 'event')} of this session.", is_bad=True)
        return None

    def _say_what_it_took(self, result: RunResult) -> None:
        spent = result.spent
        tokens = counted(spent.usage.input_tokens + spent.usage.output_tokens, "token")
        parts = (
            counted(spent.model_turns, "step"),
            shown_span(spent.wall_seconds),
            tokens,
            f"${spent.cost:.4f}" if spent.cost else "",
        )
        self.face.show(Note(" · ".join(filter(None, parts))))

    # --- messages for a run under way

    def _steer(self, text: str) -> None:
        if self._run is not None and self._board is not None and self._board.calls:
            self._queued.leave(self._run, text)
        else:
            self._queued.hold(text)

    # --- the person's own commands

    async def _shell(self, command: str) -> None:
        """Run a line in the person's shell, and show what it writes."""
        if not command:
            self.face.tell("Write a command after the exclamation mark, such as !git status.")
            return
        self.face.said(f"!{command}")
        board = Board(self.terminal.redactor, asyncio.get_running_loop().time)
        board.doing = f"running {one_line(command, 60)}"
        self.face.watch(board)
        try:
            code, text = await run_line(command, self.settings.root)
        except asyncio.CancelledError:
            self.face.tell("Interrupted.")
            if (task := asyncio.current_task()) is not None:
                task.uncancel()  # what was entered meanwhile continues
            return
        finally:
            self.face.watch(None)
        if text.strip():
            self.face.quote(text)
        self.face.tell(
            f"exit code {code}. The output is sent with your next message."
            if code
            else "The output is sent with your next message."
        )
        kept = text if len(text) <= _SHELL_CHARS else f"{text[: _SHELL_CHARS // 2]}\n...\n{text[-_SHELL_CHARS // 2 :]}"
        self._shell_output += f"$ {command}\n{kept}\nexit code {code}\n"


# --- Greeting: what a conversation begins with: where it is, and what an earlier one left.


async def talk(
    face: Face,
    journal: Journal,
    session_id: str | None,
    *,
    settings: Settings,
    options: ChatOptions,
    terminal: Terminal,
    examine: Callable[[], object],
) -> int:
    """Talk until the person leaves; return the exit code.

    Raises:
        TreadleError: The session, the model, its key or a tool is wrong; nothing was asked then.
    """

    async def begun(settings: Settings) -> Chat:
        chat = Chat(face, journal, settings=settings, options=options, terminal=terminal, examine=examine)
        _ = chat.agent  # what is wrong is reported before anything is shown
        await chat.open(session_id)
        return chat

    asks_about_folder = session_id is None and is_new_folder(settings)
    use_stored_keys()
    settings, says = with_only_key(with_answered_mode(settings))
    chat = None if settings.model is None or asks_about_folder else await begun(settings)
    async with face.opened():
        if chat is None:
            if asks_about_folder:
                await ask_about_folder(face, settings)
                settings, _ = with_only_key(with_answered_mode(settings_of(options)))
            model = settings.model or await chosen_model(face, settings)
            if model is None:
                return 0
            chat = await begun(msgspec.structs.replace(settings, model=model))
        await _greet(chat, face)
        if says:
            face.tell(says)
        face.rest()
        code = await chat.run(options.task)
    if chat.session.messages:
        terminal.say(f"session: {chat.session.id}. Continue with: treadle chat --session {chat.session.id}")
    return code


async def _greet(chat: Chat, face: Face) -> None:
    """Say where the conversation stands, and what an earlier one left."""
    settings = chat.settings
    folder = one_line(str(settings.root.resolve()), 200)
    face.show(Greeting(version("treadle"), one_line(chat.model or "", 60), folder))
    for note in (*settings.notes, *guidance_of(settings).notes, *found_subagents(settings).notes):
        face.tell(f"note: {note}")
    for warning in idle_rules(unmatched_in(settings)) if chat.model else ():
        face.tell(warning)
    if not chat.session.messages:
        return
    if says := other_folder(chat.session, settings.root):
        face.tell(f"note: {says}")
    face.tell(f"Session {chat.session.id}: {counted(len(chat.session.messages), 'message')}.")
    await recall(chat)
    run = chat.session.state.run
    if run is not None and run.status in ("paused", "running"):
        face.tell(
            f"Its last run did not finish. /resume {chat.session.id[:8]} continues it; a new message starts a new task."
        )
