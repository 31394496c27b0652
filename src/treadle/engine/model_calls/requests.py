"""Requests: what the model is asked in each attempt of one run: history, instructions, tools, choice. Asks nobody itself."""

import inspect

import msgspec

from treadle.context.accepted import Accepted
from treadle.context.compilers import instructions_with_guidance
from treadle.context.repair import Healer
from treadle.engine.hooks import Hooks
from treadle.engine.interrupts import Interrupt
from treadle.engine.model_calls.answers import has_ignored_choice
from treadle.engine.model_calls.bounding import Bounding
from treadle.engine.model_calls.compacting import Compacting
from treadle.engine.model_calls.usage import estimate
from treadle.engine.offering import Offering
from treadle.engine.rules.endings import lacking_stop
from treadle.engine.spec import AgentSpec
from treadle.events import HistoryRepaired
from treadle.messages import Message
from treadle.ports import Model, ModelRequest, RequestNeed, asked_model, window_of
from treadle.sessions.ledger import Ledger
from treadle.sessions.views import CompiledView
from treadle.tooling.toolbox import Offer

__all__ = ["Requests"]


class Requests:
    """Makes the requests of one run.

    Args:
        compacting: What makes requests shorter permanently.
    """

    def __init__(
        self,
        about: AgentSpec,
        *,
        ledger: Ledger,
        offering: Offering,
        is_parallel: bool,
        interrupt: Interrupt,
        hooks: Hooks,
        compacting: Compacting,
    ) -> None:
        self.hooks = hooks
        self._about = about
        self._ledger = ledger
        self._offering = offering
        self._session = offering.session
        self._interrupt = interrupt
        self._compacting = compacting
        self._output_schema = None if about.output is None else about.output.schema
        self._is_parallel = is_parallel
        self._compiled_view = CompiledView(ledger.state, offering.session)
        self._healer = Healer()
        self._bounding = Bounding(ledger, about.step_result_chars)
        self._repairs: tuple[str, ...] = ()
        # What follows from the tools that are offered is made anew only when others are.
        self._offer: Offer | None = None
        self._instructions: str | None = None
        self._fixed_tokens = 0
        self._accepted: Accepted | None = None

    async def make(self, model: Model, need: RequestNeed) -> ModelRequest | None:
        """Return the request of one attempt, over a history that every provider accepts. What had to be healed is recorded.

        Args:
            model: What will be asked; of several, the request is made for the one whose turn it is.

        Returns:
            The request; None where the run was interrupted meanwhile.
        """
        asked = asked_model(model)
        if self._accepted is None or self._accepted.model is not asked:
            self._accepted = Accepted(asked)
        await self._look_at_tools()
        if self._offering.required and (lacking := self._offering.lacking()) is not None:
            self._interrupt.trip(lacking_stop(*lacking))
            return None
        need = msgspec.structs.replace(need, model=asked.name, window=window_of(asked), fixed_tokens=self._fixed_tokens)
        await self._bounding.hold(need)
        made_for = "" if asked is model else asked.name
        request = await self._made(need, made_for)
        if request is None or not self._compacting.may_be_due:
            return request
        if self._compacting.is_due(need, _tokens(request)):
            return await self._shorter(request, need, made_for)
        return request

    async def _shorter(self, request: ModelRequest, need: RequestNeed, made_for: str) -> ModelRequest | None:
        """Return a shorter request, or the same. One that is longer than the window is made shorter again, as long as that helps."""
        made: ModelRequest | None = request
        while made is not None and await self._compacting.compact(need, made):
            made = await self._made(need, made_for)
            if made is None or need.window is None or _tokens(made) <= need.window:
                return made
        return None if self._interrupt.stop is not None else made

    async def _made(self, need: RequestNeed, made_for: str) -> ModelRequest | None:
        messages = await self._compiled(need)
        if messages is None:
            return None
        run = self._ledger.state.run
        return ModelRequest(
            messages=messages,
            instructions=self._instructions,
            tools=self._offering.current.specs,
            tool_choice="none" if need.closing else self._tool_choice(),
            output_schema=self._output_schema,
            parallel_tool_calls=self._is_parallel,
            raise_output_limit=run is not None and run.was_cut,
            session_id=self._session.id,
            model=made_for,
        )

    async def _compiled(self, need: RequestNeed) -> tuple[Message, ...] | None:
        """Return the messages, healed; None where the run was interrupted meanwhile."""
        view = self._compiled_view
        view.need = need
        found, compiled = self._about.compiler.compile(view), None
        if inspect.isawaitable(found):
            with self._interrupt.cancel_scope():
                compiled = await found
            if compiled is None:
                return None
        else:
            compiled = found
        is_stored = compiled is view.messages and not self._ledger.state.compactions.made
        messages, repairs = self._healer.heal(compiled, is_stored=is_stored)
        if repairs and (repairs != self._repairs or need.attempt == 1):
            await self._ledger.record(HistoryRepaired(repairs=repairs))
        self._repairs = repairs
        return messages if self._accepted is None else self._accepted.of(messages, task=self._task)

    @property
    def _task(self) -> Message | None:
        """The message with which the run begins, as it is stored."""
        state = self._ledger.state
        at = len(state.messages) if state.run is None else state.run.first_message
        return state.messages[at] if at < len(state.messages) else None

    async def _look_at_tools(self) -> None:
        offer = await self._offering.renew()
        if offer is not self._offer:
            self._offer = offer
            own = self._about.instructions
            self._instructions = instructions_with_guidance(own, offer.tools, unavailable=offer.unavailable)
            fixed = ModelRequest(messages=(), instructions=self._instructions, tools=offer.specs)
            self._fixed_tokens = _tokens(fixed)

    def _tool_choice(self) -> str:
        """A forced choice holds for the first request only: for ever, it would never let the model answer."""
        choice, run = self._about.tool_choice, self._ledger.state.run
        if run is not None and run.single_turn and run.spent.model_turns > 0:
            return "none"
        if choice in ("auto", "none"):
            return choice
        if choice != "required" and self._offering.current.find(choice) is None:
            return "auto"  # providers refuse a choice that is not offered
        is_first = run is None or run.spent.model_turns == 0 or has_ignored_choice(self._ledger.state.messages)
        return choice if is_first else "auto"


def _tokens(request: ModelRequest) -> int:
    return estimate(request, ()).input_tokens
