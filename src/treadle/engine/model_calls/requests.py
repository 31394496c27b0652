"""Requests: what the model is asked in each step of one run: history, instructions, tools, choice. Asks nobody itself."""

from collections.abc import Sequence

from treadle.context.compilers import instructions_with_guidance
from treadle.context.repair import Healer
from treadle.engine.model_calls.answers import has_ignored_choice
from treadle.engine.spec import AgentSpec
from treadle.events import HistoryRepaired
from treadle.ports import ModelRequest, SessionView, ToolSpec
from treadle.sessions.ledger import Ledger
from treadle.tools import Tool

__all__ = ["Requests"]


class Requests:
    """Makes the requests of one run."""

    def __init__(self, about: AgentSpec, *, ledger: Ledger, session: SessionView, is_parallel: bool) -> None:
        self._about = about
        self._ledger = ledger
        self._session = session
        self._output_schema = None if about.output is None else about.output.schema
        self._is_parallel = is_parallel
        self._healer = Healer()
        # What follows from the tools that are offered is made anew only when others are.
        self._tools: Sequence[Tool] | None = None
        self._specs: tuple[ToolSpec, ...] = ()
        self._instructions: str | None = None

    async def make(self, *, closing: bool) -> ModelRequest:
        """Return the next request, over a history that every provider accepts. What had to be healed is recorded.

        Args:
            closing: Whether it is the one after a limit, which may call nothing.
        """
        session, run = self._session, self._ledger.state.run
        self._look_at_tools()
        compiled = self._about.compiler.compile(session)
        messages, repairs = self._healer.heal(compiled, is_stored=compiled is session.messages)
        if repairs:
            await self._ledger.record(HistoryRepaired(repairs=repairs))
        return ModelRequest(
            messages=messages,
            instructions=self._instructions,
            tools=self._specs,
            tool_choice="none" if closing else self._tool_choice(),
            output_schema=self._output_schema,
            parallel_tool_calls=self._is_parallel,
            raise_output_limit=run is not None and run.was_cut,
            session_id=session.id,
        )

    def _look_at_tools(self) -> None:
        tools = self._about.toolbox.visible(self._session)
        if tools is not self._tools:
            self._tools = tools
            self._specs = self._about.toolbox.specs(tools)
            self._instructions = instructions_with_guidance(self._about.instructions, tools)

    def _tool_choice(self) -> str:
        """A forced choice holds for the first request only: for ever, it would never let the model answer."""
        choice = self._about.tool_choice
        if choice in ("auto", "none"):
            return choice
        run = self._ledger.state.run
        is_first = run is None or run.spent.model_turns == 0 or has_ignored_choice(self._session.messages)
        return choice if is_first else "auto"
