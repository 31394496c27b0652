"""Chat: one conversation: what a person enters becomes tasks, messages for a run under way, answers and commands. Draws nothing."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack, suppress
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

from treadle import (
    Agent,
    ModelFacts,
    Run,
    RunResult,
    Session,
    StopReason,
    TreadleError,
    UnknownInput,
    known_facts,
    open_session,
)
from treadle.cli.attachments import mentioned, message_of, named_in, not_attached
from treadle.cli.consent import interactive_policy
from treadle.cli.input.options import Options
from treadle.cli.input.settings import Settings
from treadle.cli.making import make_agent, resumed_budget
from treadle.cli.origins import check_agent, check_tools, origin_of
from treadle.cli.output.notifying import Notifier
from treadle.cli.output.terminal import Terminal
from treadle.cli.output.text import counted, one_line, one_record
from treadle.cli.output.wording import for_terminal
from treadle.cli.sessions import apply_mode, person
from treadle.cli.terminal.board import Board, CallView, Group
from treadle.cli.terminal.consulting import Consulting
from treadle.cli.terminal.faces import Cleared, Ended, Entry, Face, Interrupted, ModeCycled, Typed, Unfolded
from treadle.cli.terminal.grants import Grants
from treadle.cli.terminal.own_shell import run_line
from treadle.cli.terminal.queued import Queued
from treadle.cli.terminal.slash import carry_out, must_wait
from treadle.cli.tool_sources import load_tools
from treadle.events import AnyEvent, MessageAdded, ModelFinished, RunFinished, RunPaused, ToolFinished
from treadle.ports import Journal

__all__ = ["Chat"]

_MODES = ("ask", "accept-edits", "plan")
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
        options: Options,
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
        self._tools = load_tools(settings, may_write=True)
        self.session: Session
        self.code = 0
        self._agent: Agent | None = None
        self._stack = AsyncExitStack()
        self._board: Board | None = None
        self._run: Run | None = None
        self._work: asyncio.Task[None] | None = None
        self._queued = Queued(face)
        self._is_leaving = False
        self._attached = [Path(file) for file in options.attached]
        """Files that go along with the first message."""
        self._shell_output = ""
        """What `!` commands wrote since the last message: they are sent with the next one."""
        self._notifier = Notifier(
            settings.notify, settings.notify_after_seconds, terminal.out, asyncio.get_running_loop().time
        )
        self._consulting = Consulting(face, journal, self.grants, self._notifier, settings=settings, options=options)
        self._last: tuple[CallView, ...] = ()
        """The calls that were shown last."""
        self._insisted_at = float("-inf")
        self._doing: Literal["run", "command"] = "command"
        """What is under way, where something is."""
        self._has_cut = False  # whether the last Ctrl+C stopped something

    # --- its life

    async def run(self, first: str | None = None) -> int:
        """Continue until the person leaves, and return the exit code.

        Args:
            first: The first message, where there is one.
        """
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
            await self._stack.aclose()
        return self.code

    async def open(self, session_id: str | None) -> None:
        """Continue in another session, or in a new one.

        Raises:
            TreadleError: It cannot be opened, or no run may begin in it.
        """
        stack = AsyncExitStack()
        session = await stack.enter_async_context(open_session(self.journal, id=session_id, on_store_failure="degrade"))
        await self._stack.aclose()
        self._stack, self.session = stack, session
        self._last = ()
        await apply_mode(session, self.settings, self.options)
        self.stand()

    def stand(self) -> None:
        """Bring the status line up to date."""
        state = self.session.state.run
        standing = self.face.standing
        standing.model = self.model or "no model"
        standing.mode = self.session.mode
        standing.budget = self.settings.budget
        known = self._known()
        standing.window = known.window
        cost, standing.turns = (Decimal(0), 0) if state is None else (state.spent.cost, state.spent.model_turns)
        standing.cost = None if known.price is None and not cost else cost
        if self._board is not None and self._board.context_tokens:
            standing.context_tokens = self._board.context_tokens
        self.face.refresh()

    def _known(self) -> ModelFacts:
        """Return the window and the price of the model, as far as they are configured or known."""
        given, known = self.settings.facts or ModelFacts(), ModelFacts()
        with suppress(TreadleError):
            known = ModelFacts() if self.model is None else known_facts(self.model)
        return ModelFacts(
            window=known.window if given.window is None else given.window,
            price=self.settings.price or given.price or known.price,
        )

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
            )
        return self._agent

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
        if self._work is not None and must_wait(text):
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
        now = self.session.mode
        mode = _MODES[(_MODES.index(now) + 1) % len(_MODES)] if now in _MODES else _MODES[0]
        await self.session.set_mode(mode, by=person(self.options))  # type: ignore[arg-type]  # one of the literals
        self.stand()

    # --- tasks

    async def _task(self, text: str) -> None:
        """Give the model a task, or the answer that its run waits for."""
        if (asked := self.session.state.question) is not None and await self._replied(asked.call.id, text):
            return
        root = self.settings.root
        files = [*mentioned(text, root), *self._attached]
        self._attached = []
        task = message_of(self._with_shell(text), files, root)
        self._shell_output = ""
        agent = self.agent
        self.face.said(text)
        self._say_what_is_attached(text, files)
        run = agent.stream(task, session=self.session, budget=self.settings.budget, deadline=self.options.deadline)
        run.remember(origin_of(self.settings, self.model, self.options))
        await self._see_through(run)

    def _say_what_is_attached(self, text: str, files: list[Path]) -> None:
        if files:
            self.face.tell(
                f"Attached: {', '.join(one_line(named_in(file, self.settings.root), 200) for file in files)}"
            )
        for note in not_attached(text, self.settings.root):
            self.face.tell(f"note: {note}")

    async def _replied(self, call_id: str, text: str) -> bool:
        """Answer a call that waits, and continue its run; return False if it was cancelled: the text is a task."""
        check_tools(self.agent, self.session)
        try:
            await self.session.input(call_id, self._with_shell(text), by=person(self.options))
        except UnknownInput:
            return await self._continued_elsewhere(text)
        self._shell_output = ""
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
        await self._see_through(self._resumed())

    def _resumed(self) -> Run:
        run = self.agent.stream_resume(self.session, budget=resumed_budget(self.session, self.settings))
        run.remember(origin_of(self.settings, self.model, self.options))
        return run

    def _with_shell(self, text: str) -> str:
        ran = self._shell_output
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
        self._show(board.on_event(event))
        if isinstance(event, ModelFinished | ToolFinished | RunFinished | RunPaused | MessageAdded):
            self.stand()
        else:
            self.face.refresh()
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
            return self._resumed()
        if result.denials:
            names = ", ".join(dict.fromkeys(one_line(one.tool, 60) for one in result.denials))
            self.face.tell(f"Denied: {counted(len(result.denials), 'call')} ({names}).")
        if result.reason is StopReason.CANCELLED:
            self.face.tell("Interrupted. What was done is recorded. Type what to do instead.")
            if (queued := await self._queued.taken(self.session, self.journal)) is not None:
                self.face.tell("What you entered meanwhile was not sent: it is in the input line.")
                self.face.prefill(queued)
        elif result.reason is StopReason.INPUT_REQUIRED and self.session.state.question is not None:
            self.face.tell(f"{result.message} Type the answer.")
        elif not result.completed:
            words = for_terminal(f"{result.message} {result.next_step}")
            self.face.tell(f"{result.status} ({result.reason}): {words}", is_bad=True)
        if result.unstored:
            self.face.tell(f"The journal is missing {counted(result.unstored, 'event')} of this session.", is_bad=True)
        return None

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
