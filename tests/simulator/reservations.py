"""The purse: what the world saw each run use up, children together with their parent, against the run's limits."""

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from treadle.budgets import Budget, budget_from
from treadle.events import AnyEvent, ModelFinished, RunFinished, RunPaused, RunResumed, RunStarted, ToolStarted
from treadle.messages import Usage
from treadle.ports import ModelRequest

if TYPE_CHECKING:
    from simulator.life import Life
    from simulator.process import Process

__all__ = ["Reservations"]


class _Account(msgspec.Struct, kw_only=True):
    """What one run may use, and what it has used."""

    session_id: str
    limits: Budget = Budget()
    turns: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    calls: set[tuple[str, str]] = msgspec.field(default_factory=set)
    said: dict[str, Usage | None] = msgspec.field(default_factory=dict)
    """By session: a whole response that its run has not told of yet."""
    stretches: Counter[str] = msgspec.field(default_factory=Counter)
    """By session: how often its run began or continued. Each time it may sum up once at a limit of turns or calls."""
    closings: Counter[str] = msgspec.field(default_factory=Counter)
    """By session: closing requests that were answered."""
    closes: set[str] = msgspec.field(default_factory=set)
    """Sessions whose last request was a closing one."""
    is_live: bool = False
    is_judged: bool = True
    """False after a crash with children: what they had used and not stored is not known to the run that continues."""

    def reached(self) -> str | None:
        for name, used in (
            ("max_input_tokens", self.input_tokens),
            ("max_output_tokens", self.output_tokens),
            ("max_model_turns", self.turns),
        ):
            limit = getattr(self.limits, name)
            if limit is not None and used >= limit:
                return f"{used} of {name}={limit}"
        return None

    def add(self, usage: Usage | None, *, turns: int) -> None:
        """Add a response; one to a closing request is not a turn."""
        self.turns += turns
        if usage is not None:
            self.input_tokens += usage.input_tokens or 0
            self.output_tokens += usage.output_tokens or 0


class Reservations:
    """Keeps the accounts of one life, by run."""

    def __init__(self, life: "Life") -> None:
        self._life = life
        self._accounts: dict[tuple[str, str], _Account] = {}
        """By session and run: a fork resumes a run of the same id, in an account of its own."""
        self._at: dict[str, _Account] = {}
        """The run that each process is at, by the name of the process."""

    def heard(self, process: "Process", event: AnyEvent) -> None:
        """A process reports an event; runs of children are in the account of the run above them."""
        kind = type(event)
        if kind is ModelFinished:
            account = self._at.get(process.name)
            if account is not None and event.session_id in account.said:
                account.add(account.said.pop(event.session_id), turns=0 if event.closing or event.act else 1)
        elif kind is RunStarted or kind is RunResumed:
            if event.parent is None:
                self._begin(process, event)  # type: ignore[arg-type]
            if (account := self._at.get(process.name)) is not None:
                account.stretches[event.session_id] += 1
        elif event.parent is None and (kind is RunPaused or kind is RunFinished):
            account = self._accounts.get((event.session_id, event.run_id or ""))
            if account is not None:
                account.is_live = False

    def _begin(self, process: "Process", event: RunStarted | RunResumed) -> None:
        place = (event.session_id, event.run_id or "")
        account = self._accounts.setdefault(place, _Account(session_id=event.session_id))
        account.said.clear()
        account.closes.clear()
        if account.is_live or self._life.is_degraded:
            self._take_back(process, event.run_id or "", account)
        account.limits = _limits_of(process, event)
        account.is_live = True
        self._at[process.name] = account

    def _take_back(self, process: "Process", run_id: str, account: _Account) -> None:
        """What a process had used and not stored, because it died or its store was gone, the run that continues cannot know."""
        if len(account.stretches) > 1:
            account.is_judged = False
        events = [
            event
            for event in process.store.shelves[account.session_id].events
            if isinstance(event, ModelFinished) and event.run_id == run_id
        ]
        account.turns = min(account.turns, sum(event.turns for event in events))
        account.input_tokens = min(account.input_tokens, sum(event.usage.input_tokens or 0 for event in events))
        account.output_tokens = min(account.output_tokens, sum(event.usage.output_tokens or 0 for event in events))
        name = account.session_id
        account.closings[name] = min(account.closings[name], sum(event.closing for event in events))

    def asked(self, process: "Process", request: ModelRequest) -> None:
        """A request reaches a model: at a limit of turns it may only be one that asks for a summary, at one of tokens none."""
        account = self._judged(process)
        if account is None:
            return
        account.closes.discard(request.session_id)
        if (reached := account.reached()) is None:
            return
        if not request.tools and "max_model_turns" in reached:  # beside the steps: no turn of the run
            return
        account.closes.add(request.session_id)
        is_summary = (
            request.tool_choice == "none" and "max_model_turns" in reached and self._may_sum_up(account, request)
        )
        if not is_summary:
            self._life.judge.blame(f"a model was asked, tool_choice {request.tool_choice}, after {reached}")

    def _may_sum_up(self, account: _Account, request: ModelRequest) -> bool:
        is_child = request.session_id != account.session_id
        return is_child or self._life.plan.agent["on_limit"] == "summarize"

    def responded(self, process: "Process", request: ModelRequest, usage: Usage | None) -> None:
        """A model has given a whole response to a process."""
        account = self._judged(process)
        if account is None:
            return
        session_id = request.session_id
        account.said[session_id] = usage
        if session_id in account.closes:
            account.closings[session_id] += 1
            if account.closings[session_id] > account.stretches[session_id]:
                self._life.judge.blame(
                    f"{account.closings[session_id]} closing requests of {session_id} were answered, in "
                    f"{account.stretches[session_id]} stretches of its run"
                )

    def _judged(self, process: "Process") -> _Account | None:
        account = self._at.get(process.name)
        if account is None or not account.is_judged or process.journal.is_fenced(account.session_id):
            return None
        return account

    def sent(self, process: "Process", place: tuple[str, str]) -> None:
        """A call that acts reaches the world. One that is sent again is one call."""
        account = self._at.get(process.name)
        if account is None or place in account.calls:
            return
        account.calls.add(place)
        limit = account.limits.max_tool_calls
        if limit is not None and len(account.calls) > limit and account.is_judged and not _began_before(process, place):
            self._life.judge.blame(f"{len(account.calls)} calls were sent in a run with max_tool_calls={limit}")


def _limits_of(process: "Process", event: RunStarted | RunResumed) -> Budget:
    """Return the limits that hold for a run: its last ones. A process may have stored them and died before it told anybody."""
    stored = process.store.shelves[event.session_id].events
    of_run = (
        one for one in reversed(stored) if isinstance(one, RunStarted | RunResumed) and one.run_id == event.run_id
    )
    given = (one.budget for one in (event, *of_run) if one.budget is not None)
    return budget_from(next(given, {}))


def _began_before(process: "Process", place: tuple[str, str]) -> bool:
    """Whether a call had started before its run continued: then it was counted under the budget of that time."""
    has_gone_on = False
    for event in reversed(process.store.shelves[place[0]].events):
        has_gone_on = has_gone_on or isinstance(event, RunResumed)
        if has_gone_on and isinstance(event, ToolStarted) and event.call_id == place[1]:
            return True
    return False
