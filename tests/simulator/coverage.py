"""Which faults came while which features were in action: the product of ../shared/faults.md, "Where features meet"."""

from collections import Counter, deque

from treadle.events import (
    ActionDecided,
    AnyEvent,
    ApprovalRequested,
    BudgetReached,
    CallDecided,
    ContextCompacted,
    HookActed,
    MessageAdded,
    ModeChanged,
    ModelFailed,
    ModelFinished,
    ModelStarted,
    RepeatNoticed,
    RunFinished,
    RunPaused,
    RunResumed,
    RunStarted,
    ToolFinished,
    ToolStarted,
    ToolSuspended,
)

__all__ = ["FAULTS", "FEATURES", "Watcher"]

FEATURES = (
    "early_start",
    "parallel_batch",
    "approval_pending",
    "agent_as_tool",
    "retry",
    "fallback",
    "closing_turn",
    "structured_answer",
    "steering",
    "polling",
    "business_key",
    "nested_agent",
    "interceptor",
    "progress",
    "done_when",
    "own_action",
    "batch_time",
    "mode",
    "toolset",
    "changed_arguments",
    "interrupt_decision",
    "compaction",
    "input",
    "hook",
)
FAULTS = (
    "kill",
    "cancel",
    "lease_lost",
    "store_gone",
    "store_hanging",
    "fork",
    "move",
    "other_clock",
    "budget_reached",
    "guard_tripped",
    "resolve",
    "suspend",
    "rewind",
    "purge",
    "hand_over",
    "service",
)

_GUARDS = frozenset({"repeated_tool_call", "repeated_failures", "invalid_call_limit"})
_OF_A_CALL = (
    "early_start", "approval_pending", "agent_as_tool", "business_key", "nested_agent", "interceptor", "done_when",
    "own_action", "batch_time", "mode", "toolset", "changed_arguments", "input",
)  # fmt: skip
"""Features that are in action from a moment in a call until its result."""
_BY_TOOL = {
    "delegate": "agent_as_tool", "sub": "nested_agent", "invoice": "business_key", "buy": "toolset", "browse": "toolset",
}  # fmt: skip

_MEMORY = 16
"""Events after which a feature that is over no longer counts as near."""


class Watcher:
    """Follows which features are in action, from the events as they are told."""

    def __init__(self) -> None:
        self.pairs: Counter[tuple[str, str]] = Counter()
        self._on: dict[str, set[str]] = {feature: set() for feature in FEATURES}
        self._running: set[str] = set()
        self._recent: deque[frozenset[str]] = deque(maxlen=_MEMORY)
        self.is_structured = False
        self.always: tuple[str, ...] = ()
        """Features of this life that every call has."""

    @property
    def active(self) -> set[str]:
        """Features that are in action now."""
        return {feature for feature, marks in self._on.items() if marks}

    @property
    def near(self) -> set[str]:
        """Features in action now, or within the last sixteen events."""
        return self.active.union(*self._recent)

    def fault(self, kind: str) -> None:
        for feature in self.near:
            self.pairs[(feature, kind)] += 1

    def set(self, feature: str, is_on: bool) -> None:
        (self._on[feature].add if is_on else self._on[feature].discard)("")

    def died(self) -> None:
        """A process died: what only it knew is over."""
        self._recent.append(frozenset(self.active))
        for feature, marks in self._on.items():
            if feature not in ("approval_pending", "structured_answer", "steering", "polling", "input"):
                marks.clear()
        self._running.clear()

    def see_child(self, event: AnyEvent) -> None:
        """Take in one event of an agent that carries out a call."""
        match event:
            case ToolStarted(call_id=str(call_id)) if event.tool in _BY_TOOL:
                self._on[_BY_TOOL[event.tool]].add(call_id)
            case ToolFinished(call_id=str(call_id)):
                for feature in _OF_A_CALL:
                    self._on[feature].discard(call_id)
            case _:
                return
        self._recent.append(frozenset(self.active))

    def see(self, event: AnyEvent) -> None:
        """Take in one event of a process."""
        self._apply(event)
        if not event.is_live:
            self._recent.append(frozenset(self.active))
        match event:
            case BudgetReached():
                self.fault("budget_reached")
            case RunFinished():
                if event.reason == "budget_exceeded":
                    self.fault("budget_reached")
                if event.reason in _GUARDS:
                    self.fault("guard_tripped")
                self._end()
            case _:
                pass

    def _apply(self, event: AnyEvent) -> None:
        on = self._on
        match event:
            case ToolStarted(call_id=str(call_id)):
                self._started(event, call_id)
            case ToolFinished(call_id=str(call_id)):
                for feature in _OF_A_CALL:
                    on[feature].discard(call_id)
                self._running.discard(call_id)
                on["parallel_batch"] = {"x"} if len(self._running) > 1 else set()
            case CallDecided() | ActionDecided() | ApprovalRequested() | RepeatNoticed():
                self._decided(event)
            case ModelStarted() | ModelFailed() | ModelFinished():
                self._asked(event)
            case MessageAdded(source="steer"):
                on["steering"] = {"x"}
            case ModeChanged() | ContextCompacted() | ToolSuspended() | HookActed():
                self._around(event)
            case RunStarted() | RunResumed() | RunPaused():
                self._running.clear()
            case _:
                pass

    def _asked(self, event: ModelStarted | ModelFailed | ModelFinished) -> None:
        on = self._on
        match event:
            case ModelStarted() if event.act is not None:
                on["compaction"] = {"x"}
            case ModelStarted():
                on["closing_turn"] = {"x"} if event.closing else set()
                on["structured_answer"] = {"x"} if self.is_structured else set()
            case ModelFailed():
                on["retry"] = set() if event.retry_in_seconds is None else {"x"}
            case ModelFinished():
                for feature in ("retry", "steering", "polling", "compaction", "hook"):
                    on[feature].clear()

    def _decided(self, event: CallDecided | ActionDecided | ApprovalRequested | RepeatNoticed) -> None:
        call_id = event.call_id or ""
        match event:
            case CallDecided():
                if "interceptor" in self.always:
                    self._on["interceptor"].add(call_id)
                marks = {
                    "mode": event.mode not in ("", "ask"),
                    "changed_arguments": event.arguments is not None and "changed_arguments" in self.always,
                }
                for feature, is_on in marks.items():
                    if is_on:
                        self._on[feature].add(call_id)
                if event.interrupt:
                    self._on["interrupt_decision"] = {"x"}
            case ActionDecided():
                self._on["own_action"].add(call_id)
            case RepeatNoticed():
                self._on["progress"] = {"x"}
            case ApprovalRequested():
                self._on["approval_pending"].add(call_id)

    def _around(self, event: ModeChanged | ContextCompacted | ToolSuspended | HookActed) -> None:
        match event:
            case ModeChanged():
                self._on["mode"] = {"x"}
            case ContextCompacted():
                self._on["compaction"] = {"x"}
            case HookActed():
                self._on["hook"] = {"x"}
            case ToolSuspended():
                if event.tool == "form":
                    self._on["input"].add(event.call_id or "")

    def _started(self, event: ToolStarted, call_id: str) -> None:
        self._on["approval_pending"].discard(call_id)
        self._running.add(call_id)
        if event.early:
            self._on["early_start"].add(call_id)
        if (feature := _BY_TOOL.get(event.tool)) is not None:
            self._on[feature].add(call_id)
        for feature in self.always:
            if feature != "changed_arguments":
                self._on[feature].add(call_id)
        if event.tool in ("start_transfer", "check_transfer"):
            self._on["polling"] = {"x"}
        if len(self._running) > 1:
            self._on["parallel_batch"] = {"x"}

    def _end(self) -> None:
        for marks in self._on.values():
            marks.clear()
        self._running.clear()
