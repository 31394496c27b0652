"""The purse: what the world saw each run use up, children together with their parent, against the run's limits."""

from typing import TYPE_CHECKING

import msgspec

from treadle.budgets import Budget, budget_from
from treadle.events import AnyEvent, ModelFinished, RunFinished, RunPaused, RunResumed, RunStarted
from treadle.messages import Usage

if TYPE_CHECKING:
    from simulator.life import Life
    from simulator.process import Process

__all__ = ["Purse"]


class _Account(msgspec.Struct, kw_only=True):
    """What one run may use, and what it has used."""

    session_id: str
    limits: Budget = Budget()
    turns: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    calls: set[tuple[str, str]] = msgspec.field(default_factory=set)
    beyond: int = 0
    """Whole responses that came after a limit had been reached."""
    closings: int = 0
    """So many of these may be answers to closing requests: one for each time that the run began or went on."""
    is_live: bool = False
    is_judged: bool = True
    """False after a crash with children: what they had used and not stored is not known to the run that goes on."""

    def reached(self) -> str | None:
        for name, used in (
            ("max_model_turns", self.turns),
            ("max_input_tokens", self.input_tokens),
            ("max_output_tokens", self.output_tokens),
        ):
            limit = getattr(self.limits, name)
            if limit is not None and used >= limit:
                return f"{used} of {name}={limit}"
        return None


class Purse:
    """Keeps the accounts of one life, by run."""

    def __init__(self, life: "Life") -> None:
        self._life = life
        self._accounts: dict[tuple[str, str], _Account] = {}
        """By session and run: a fork goes on with a run of the same id, in an account of its own."""
        self._at: dict[str, _Account] = {}
        """The run that each process is at, by the name of the process."""

    def heard(self, process: "Process", event: AnyEvent) -> None:
        """A process tells of an event; runs of children are in the account of the run above them."""
        if event.parent is not None:
            return
        match event:
            case RunStarted() | RunResumed():
                self._begin(process, event)
            case RunPaused() | RunFinished() if (event.session_id, event.run_id) in self._accounts:
                self._accounts[(event.session_id, event.run_id)].is_live = False
            case _:
                pass

    def _begin(self, process: "Process", event: RunStarted | RunResumed) -> None:
        account = self._accounts.setdefault((event.session_id, event.run_id), _Account(session_id=event.session_id))
        if account.is_live:
            self._take_back(process, event.run_id, account)
        if event.budget is not None:
            before, account.limits = account.limits, budget_from(event.budget)
            if isinstance(event, RunResumed) and before.max_tool_calls and account.limits.max_tool_calls:
                # A call that was proposed and counted under the larger limit may still be carried out.
                calls = max(before.max_tool_calls, account.limits.max_tool_calls)
                account.limits = msgspec.structs.replace(account.limits, max_tool_calls=calls)
        account.closings += 1
        account.is_live = True
        self._at[process.name] = account

    def _take_back(self, process: "Process", run_id: str, account: _Account) -> None:
        """What a process that died had used and not stored, the run that goes on cannot know."""
        if self._life.plan.agent["has_child"]:
            account.is_judged = False
        events = [
            event
            for event in process.store.shelves[account.session_id].events
            if isinstance(event, ModelFinished) and event.run_id == run_id
        ]
        account.turns = min(account.turns, sum(event.turns for event in events))
        account.input_tokens = min(account.input_tokens, sum(event.usage.input_tokens or 0 for event in events))
        account.output_tokens = min(account.output_tokens, sum(event.usage.output_tokens or 0 for event in events))

    def responded(self, process: "Process", usage: Usage | None) -> None:
        """A model has given a whole response to a process."""
        account = self._at.get(process.name)
        if account is None or process.journal.is_fenced(account.session_id):
            return
        if (reached := account.reached()) is not None:
            account.beyond += 1
            # A child may sum up at the common limit, as its caller may.
            allowed = account.closings * (2 if self._life.plan.agent["has_child"] else 1)
            if account.beyond > allowed and account.is_judged:
                self._life.judge.blame(
                    f"a model was asked {account.beyond} times after {reached}, in {account.closings} stretches of the run"
                )
        account.turns += 1
        if usage is not None:
            account.input_tokens += usage.input_tokens or 0
            account.output_tokens += usage.output_tokens or 0

    def sent(self, process: "Process", place: tuple[str, str]) -> None:
        """A call that acts reaches the world. One that is sent again is one call."""
        account = self._at.get(process.name)
        if account is None:
            return
        account.calls.add(place)
        limit = account.limits.max_tool_calls
        if limit is not None and len(account.calls) > limit:
            self._life.judge.blame(f"{len(account.calls)} calls were sent in a run with max_tool_calls={limit}")
