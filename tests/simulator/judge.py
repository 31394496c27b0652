"""The judge of a life: what was done in the world, against what the journal says and what the model and people were told.

It keeps its own books. A broken promise is noted as a sentence; it never stops the life.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from invariants import find_violations
from simulator.around import DENIES_CALL, INTERRUPTS, rewritten
from simulator.histories import Limits, faults_of
from simulator.tools import AFTER_RAISES, BEFORE_DENIES, PROGRESS, guards_of, is_done
from simulator.world import ACTING, SideEffect, canonical
from treadle.engine.spec import RunResult
from treadle.events import (
    ActionDecided,
    AnyEvent,
    ApprovalAnswered,
    CallDecided,
    MessageAdded,
    ModelFinished,
    RunFinished,
    RunPaused,
    RunResumed,
    RunStarted,
    SessionChanged,
    ToolFinished,
    ToolInDoubt,
    ToolResolved,
    ToolStarted,
    ToolSuspended,
)
from treadle.messages import Finish, ToolCall
from treadle.ports import ModelRequest
from treadle.sessions.maintenance import fold
from treadle.state import IN_DOUBT, Approval
from treadle.stops import Status, StopReason
from treadle.tools import CallStatus, Effect, ToolContext, ToolResult

if TYPE_CHECKING:
    from simulator.life import Life
    from simulator.process import Process
    from simulator.store import Shelf, SimStore

__all__ = ["Judge"]

_STORE_SECONDS = 0.02
"""How long a slow store may take between the engine's last look at the clock and the request."""


class Judge:
    """Watches one life."""

    def __init__(self, life: "Life") -> None:
        self._life = life
        self.violations: list[str] = []
        self._proposed: Counter[tuple[str, str]] = Counter()
        """How often a model meant an action, by tool and arguments, in responses that came whole."""
        self._allowed: dict[tuple[str, str], set[str]] = {}
        """What people allowed: session and call, and the arguments in full."""
        self._edited: set[tuple[str, str]] = set()
        self._denied: dict[tuple[str, str], bool] = {}
        self._reruns: Counter[tuple[str, str]] = Counter()
        self._called_off: set[tuple[str, str]] = set()
        self._first_sent: dict[tuple[str, int, int], float] = {}
        """By session, stretch of running and step: when its first call that acts was sent."""
        self._hooked: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
        """By process and session: beginnings and ends that hooks were told of, since a run returned last."""
        self._given: dict[tuple[str, str], list[Any]] = {}
        """By session and call: the inputs that people left and that were accepted."""
        self._equal_looks: dict[tuple[str, int], set[int]] = {}
        """By session and stretch: steps in which the call ran that a model repeats again and again."""

    def blame(self, sentence: str) -> None:
        if sentence not in self.violations:
            self._life.trace(None, f"VIOLATION {sentence}")
            self.violations.append(sentence)

    # --- what the model says and is told

    def proposed(self, request: ModelRequest, calls: Sequence[ToolCall], finish: Finish, cut: frozenset[str]) -> None:
        """A whole response proposes calls. One call that is told twice under one id is one call; what was not offered is none."""
        if finish in (Finish.LENGTH, Finish.REFUSED):
            return
        offered = {spec.name for spec in request.tools}
        plan = self._life.plan
        is_changed = plan.intercepts or "changed_arguments" in plan.around
        seen: set[tuple[str, str, str]] = set()
        for call in calls:
            mark = (call.id, call.name, call.arguments)
            if call.id in cut or (call.id and mark in seen):
                continue
            if request.tool_choice not in ("auto", "required", call.name) or call.name not in offered:
                continue
            seen.add(mark)
            try:
                arguments = json.loads(call.arguments)
            except ValueError:
                continue
            meant = rewritten(arguments) if is_changed else arguments
            self._proposed[(call.name, canonical(meant))] += 1

    def asked(self, process: "Process", request: ModelRequest) -> None:
        """A request reaches a model: its history must be one that every provider accepts, and true."""
        messages = request.messages
        waiting: tuple[str, ...] = ()
        for message in messages:
            results = tuple(result.call_id for result in message.results)
            if results != waiting:
                self.blame(f"a request has results {results} where {waiting} are due")
                return
            waiting = tuple(call.id for call in message.calls)
        if waiting:
            self.blame(f"a request ends with calls {waiting} and no results")
        if messages and messages[-1].role == "assistant":
            self.blame("a request ends with the model's own words")
        self._check_done(process, request)

    def _check_done(self, process: "Process", request: ModelRequest) -> None:
        """No model is asked once the condition of `done_when` holds, but where the process died before it had said so."""
        life = self._life
        shelf = process.store.shelves.get(request.session_id)
        if not life.plan.has_done or life.is_degraded or shelf is None or not is_done(request.messages):
            return
        if request.session_id.startswith("c_") or process.journal.is_fenced(request.session_id):
            return
        for event in reversed(shelf.events):
            if isinstance(event, RunStarted | RunResumed):
                return
            if isinstance(event, ToolFinished):
                self.blame(f"a model was asked although the work was done by {event.call_id}")
                return

    # --- what is sent

    def sending(self, process: "Process", ctx: ToolContext, tool: str, arguments: Any) -> None:
        """A tool that changes the world sends its request now: a decision and an intent must be stored, and nothing be over."""
        session_id, call_id = ctx.session.id, ctx.call.id
        place = (session_id, call_id)
        shelf = process.store.shelves.get(session_id)
        keys = self._life.world.requests.setdefault(place, set())
        keys.add(ctx.idempotency_key)
        if len(keys) > 1 and place not in self._edited:
            self.blame(f"{tool} of {place} was sent under {len(keys)} keys")
        if shelf is None:
            self.blame(f"{tool} of {place} is sent from a session that is in no journal")
            return
        if process.journal.is_fenced(session_id):
            self._life.world.excused.add(place)
            return
        self._life.reservations.sent(process, place)
        intent = shelf.started.get(call_id)
        if intent is None or intent[0] > shelf.synced:
            self.blame(f"{tool} of {place} is sent before its intent is stored")
        if place in self._called_off:
            self.blame(f"{tool} of {place} is sent after a person said that it was not done, and cancelled")
        if call_id in shelf.finished:
            self.blame(f"{tool} of {place} is sent after its result was stored")
        if (end := _last_turn(shelf)) is not None:
            self.blame(f"{tool} of {place} is sent after {end}")
        self._check_consent(place, tool, canonical(arguments), _mode_of(shelf, call_id))
        self._check_changes(place, tool, arguments)
        self._check_around(process, place, tool)
        self._check_batch_time(process, ctx, shelf)
        if intent is not None and tool != "write":
            self._check_equal_doubt(place, shelf, intent[1], canonical(arguments))

    def _check_changes(self, place: tuple[str, str], tool: str, arguments: Any) -> None:
        plan = self._life.plan
        if plan.intercepts and (arguments["to"] == "bob" or arguments["ref"] % BEFORE_DENIES == 0):
            self.blame(f"{tool} of {place} is sent with {arguments} past the interceptor")
        if "changed_arguments" in plan.around and arguments["to"] == "bob":
            self.blame(f"{tool} of {place} is sent with {arguments} past the policy that changes them")
        if "hook" in plan.around and arguments["ref"] % DENIES_CALL == 0:
            self.blame(f"{tool} of {place} is sent with {arguments} past the hook that fails")
        if "interrupt_decision" in plan.around and arguments["ref"] % INTERRUPTS == 0:
            self.blame(f"{tool} of {place} is sent with {arguments} past the policy that interrupts")

    def _check_around(self, process: "Process", place: tuple[str, str], tool: str) -> None:
        if tool == "buy" and not process.open_shops:
            self.blame(f"{tool} of {place} is sent although its toolset is closed")
        if self._hooked.get((process.name, place[0]), [0, 0])[1]:
            self.blame(f"{tool} of {place} is sent after hooks were told of the end of its run")

    def hook_began(self, process: "Process", session_id: str) -> None:
        self._hooked[(process.name, session_id)][0] += 1

    def hook_ended(self, process: "Process", session_id: str) -> None:
        self._hooked[(process.name, session_id)][1] += 1

    def _check_hooks(self, process: "Process", session_id: str) -> None:
        """A run that has returned has told its hooks of its beginning and of its end, once."""
        told = self._hooked.pop((process.name, session_id), [0, 0])
        if "hook" in self._life.plan.around and told != [1, 1]:
            self.blame(f"a run returned and had told its hooks {told[0]} beginnings and {told[1]} ends")

    def filled_in(self, process: "Process", ctx: ToolContext) -> None:
        """A call that had waited for a person's input continues: it must have what was left for it, and only that."""
        place = (ctx.session.id, ctx.call.id)
        if [*ctx.inputs] != self._given.get(place, []) and not process.journal.is_fenced(ctx.session.id):
            self.blame(f"form of {place} continues with {ctx.inputs}; people gave {self._given.get(place, [])}")

    def given(self, process: "Process", place: tuple[str, str], value: Any, *, waits: int) -> None:
        """A person gives a call its input. Each suspension takes one.

        Args:
            waits: How often it has been suspended as its own process knows, whose store may be away.
        """
        given = self._given.setdefault(place, [])
        given.append(value)
        events = process.store.shelves[place[0]].events
        waits = max(waits, sum(isinstance(event, ToolSuspended) and event.call_id == place[1] for event in events))
        if len(given) > waits:
            self.blame(f"call {place} was given its input {len(given)} times")

    def _check_batch_time(self, process: "Process", ctx: ToolContext, shelf: "Shelf") -> None:
        """The calls of one response start within its time, where nothing but they themselves took it."""
        limit = self._life.plan.agent["batch_seconds"]
        if limit is None or ctx.session.id.startswith("c_"):
            return
        now = self._life.timeline.now
        first = self._first_sent.setdefault((ctx.session.id, shelf.stretches, ctx.session.step), now)
        if now > first + limit + _STORE_SECONDS and first >= max(process.woken_at, process.store.hangs_until):
            self.blame(f"{ctx.call.name} of {ctx.call.id} is sent {now - first:.2f} s after the first of its response")

    def _check_equal_doubt(self, place: tuple[str, str], shelf: "Shelf", intent: ToolStarted, arguments: str) -> None:
        """A call that means what a call of unknown outcome meant needs a person's word."""
        for call_id, (_, event) in shelf.finished.items():
            if event.result.status is not CallStatus.OUTCOME_UNKNOWN or call_id == place[1]:
                continue
            started = shelf.started.get(call_id)
            if started is None or started[1].tool != intent.tool or shelf.resolved.get(call_id, "unknown") != "unknown":
                continue
            key = intent.business_key
            is_equal = started[1].digest == intent.digest or (key != "" and started[1].business_key == key)
            if is_equal and arguments not in self._allowed.get(place, ()):
                self.blame(f"{intent.tool} of {place} is sent unasked although {call_id}, which it equals, is in doubt")

    def own_action(self, process: "Process", ctx: ToolContext, arguments: Any) -> None:
        """A tool may carry out an action of its own: policy must allow that, and the decision must be stored."""
        place = (ctx.session.id, ctx.call.id)
        shelf = process.store.shelves.get(ctx.session.id)
        if shelf is None or process.journal.is_fenced(ctx.session.id):
            return
        decided = [
            event
            for event in shelf.events[: shelf.synced]
            if isinstance(event, ActionDecided) and event.call_id == ctx.call.id
        ]
        if not any(event.decision == "allow" and event.arguments == arguments for event in decided):
            self.blame(f"an action of {place} is allowed and the decision is not stored")
        elif (word := self._life.word_on("pay", decided[-1].mode)) != "allow":
            self.blame(f"an action of {place} is allowed although policy says {word} in mode {decided[-1].mode}")

    def _check_consent(self, place: tuple[str, str], tool: str, arguments: str, mode: str) -> None:
        word = self._life.word_on(tool, mode)
        allowed = self._allowed.get(place, set())
        if word == "deny":
            self.blame(f"{tool} of {place} is sent although policy denies it")
        elif word == "ask" and arguments not in allowed:
            self.blame(f"{tool} of {place} is sent with {arguments}; people allowed {sorted(allowed)}")

    def looking(self, process: "Process", ctx: ToolContext) -> None:
        """A read starts: nobody may read for a run that is over."""
        shelf = process.store.shelves.get(ctx.session.id)
        if shelf is None or process.journal.is_fenced(ctx.session.id) or self._life.is_degraded:
            return
        if (end := _last_turn(shelf)) is not None:
            self.blame(f"a read of {ctx.call.id} starts after {end}")
        if self._life.plan.stuck == "progress" and ctx.call.name == "look" and '"ref": 0' in ctx.call.arguments:
            steps = self._equal_looks.setdefault((ctx.session.id, shelf.stretches), set())
            steps.add(ctx.session.step)
            if len(steps) >= PROGRESS and not self._life.plan.has_fallback:
                self.blame(f"an equal call ran in {len(steps)} responses of one run; the limit is {PROGRESS}")

    def done(self, side_effect: SideEffect) -> None:
        """Something was done. Whether it was one too many is told at once, so that the trace shows where."""
        place = (side_effect.session_id, side_effect.call_id)
        world = self._life.world
        if side_effect.tool == "write" or place in world.excused:
            return
        count = len(world.by_call[place])
        if count > 1 + self._reruns[place]:
            self.blame(f"{side_effect.tool} of {place} was done {count} times")
        mark = (side_effect.tool, side_effect.arguments)
        if place in self._edited:
            return
        if not self._proposed[mark]:
            self.blame(
                f"{side_effect.tool} {side_effect.arguments} was done although no whole response that may call it says so"
            )
        elif side_effect.tool != "order":
            counts = Counter(
                (one.session_id, one.call_id) for one in world.side_effects if (one.tool, one.arguments) == mark
            )
            same = sum(1 if where in world.excused else count for where, count in counts.items())
            reruns = sum(self._reruns.values())
            if same > self._proposed[mark] + reruns:
                self.blame(
                    f"{side_effect.tool} {side_effect.arguments} was done {same} times; models meant it {self._proposed[mark]}"
                )

    # --- what people say

    def answered(self, request: Approval, answer: str, arguments: Any) -> None:
        """A person answers. Noted before it is stored: from then on it may count."""
        place = (request.session_id, request.call_id)
        if answer != "allow":
            return
        if arguments is not None:
            self._edited.add(place)
        meant = canonical(arguments if arguments is not None else request.arguments)
        self._allowed.setdefault(place, set()).add(meant)
        if request.rule == IN_DOUBT:
            self._reruns[place] += 1

    def called_off(self, place: tuple[str, str]) -> None:
        """A person has said that a call was not done, and has cancelled its run: it must never be sent again."""
        self._called_off.add(place)

    # --- what comes of a run

    def concluded(self, process: "Process", result: RunResult) -> None:
        """A run returned: its report must agree with what is stored."""
        report = result.report()
        json.dumps(report)
        state = result.session.state
        if result.status is Status.PAUSED and not report["approvals"] and not state.suspended:
            self.blame("a paused run waits for nobody")
        if result.status is not Status.PAUSED and state.has_open_calls:
            self.blame(f"a run ended as {result.reason} with open calls {[*state.open]}")
        if result.completed != (result.status is Status.COMPLETED):
            self.blame("completed and status disagree")
        if self._life.plan.stuck == "polls" and result.reason is StopReason.REPEATED_TOOL_CALL:
            self.blame("a run ended as repetition although its model only polled")
        self._check_hooks(process, result.session_id)
        if process.open_shops:
            self.blame(f"a run returned and left {process.open_shops} toolsets open")
        listed = [call["id"] for call in report["tool_calls"]]
        if len(listed) != len(set(listed)):
            self.blame("the report lists a call twice")

    def ended(self, process: "Process", error: BaseException) -> None:
        """A run raised. Only what the store or another process has done to it may be the reason."""
        name = type(error).__name__
        if self._life.excuses.isdisjoint(kind.__name__ for kind in type(error).__mro__):
            self.blame(f"a run raised {name}: {error}"[:300])

    # --- the whole

    def sum_up(self, stores: "Sequence[SimStore]") -> None:
        """Compare every stored session with the world, at the end of a life."""
        for store in stores:
            for session_id, shelf in store.shelves.items():
                if shelf.moved is not None:
                    self._sum_up_source(session_id, shelf, stores[-1].shelves[session_id])
                elif not shelf.is_purged and not shelf.is_left:
                    self._sum_up(store.name, session_id, shelf)

    def _sum_up_source(self, session_id: str, shelf: "Shelf", there: "Shelf") -> None:
        """A session that continues elsewhere: nothing was added here, and nothing of it was lost on the way."""
        if shelf.head != shelf.moved:
            self.blame(f"session {session_id} changed at its source after it continued elsewhere")
        if not there.is_purged and there.events[: shelf.head] != shelf.events:
            self.blame(f"session {session_id} lost events when it was moved")

    def _sum_up(self, store: str, session_id: str, shelf: "Shelf") -> None:
        self._check_results(store, session_id, shelf)
        by_call = self._life.world.by_call
        for place, side_effects in by_call.items():
            if place[0] == session_id and place[1] not in shelf.started:
                self.blame(f"{side_effects[0].tool} of {place} was done and has no intent in the journal")
        for message_id, count in _steered(shelf.events).items():
            if count > 1:
                self.blame(f"session {session_id}: the steered message {message_id} was added {count} times")
        state = fold(session_id, shelf.events)
        if state.status != "deleted" and (unanswered := [*state.unanswered]):
            self.blame(f"session {session_id} is at rest and has open calls {[one.call.id for one in unanswered]}")
        self._look_through(session_id, shelf.events)

    def _look_through(self, session_id: str, events: Sequence[AnyEvent]) -> None:
        """Look for what a history must never show."""
        for sentence in find_violations(events):
            self.blame(f"the checker says of {session_id}: {sentence}")
        is_child = session_id.startswith("c_")
        around = self._life.plan.around
        for fault in (*_doubts(events), *faults_of(events, self._limits(session_id), around, is_child=is_child)):
            self.blame(f"session {session_id}: {fault}")

    def _limits(self, session_id: str) -> Limits | None:
        plan = self._life.plan
        if plan.intercepts or "changed_arguments" in plan.around:
            return None
        is_child = session_id.startswith("c_")
        words = {"has_tight_guards": False, "stuck": None} if is_child else {**plan.agent, "stuck": plan.stuck}
        guards = guards_of(has_tight_guards=words["has_tight_guards"], stuck=words["stuck"])
        return Limits(guards.repeats or 0, guards.repeats_with_progress or 0, guards.failures or 0, guards.denials or 0)

    def _check_results(self, store: str, session_id: str, shelf: "Shelf") -> None:
        """Compare each result with what was really done."""
        world = self._life.world
        for call_id, (seq, event) in shelf.finished.items():
            started = shelf.started.get(call_id)
            result = event.result
            place = (self._life.owner(store, session_id, seq), call_id)
            if place in world.excused:
                continue  # whoever took the session over asked the world before the stalled process sent it
            side_effects = world.by_call.get(place, ())
            effect = Effect.READ if started is None else started[1].effect
            is_read = result.name == "look" and result.status is CallStatus.OK
            if (
                is_read
                and self._life.plan.intercepts
                and result.display is None
                and _ref_of(shelf, call_id) % AFTER_RAISES
            ):
                self.blame(f"the result of {(session_id, call_id)} has not passed the interceptor")
            if (fault := _lie(result, len(side_effects), effect)) is not None:
                self.blame(f"{result.name} of {(session_id, call_id)} {fault}")


def _mode_of(shelf: "Shelf", call_id: str) -> str:
    """Return the mode in which a call was decided on last."""
    for event in reversed(shelf.events):
        if isinstance(event, CallDecided) and event.call_id == call_id:
            return event.mode or "ask"
    return "ask"


def _ref_of(shelf: "Shelf", call_id: str) -> int:
    """Return the `ref` of a call, as a person has edited it or as it was proposed; 0 where it has none that can be read."""
    for event in reversed(shelf.events):
        if isinstance(event, ApprovalAnswered) and event.call_id == call_id and event.arguments is not None:
            return int(event.arguments.get("ref", 0))
        if isinstance(event, ModelFinished):
            for call in event.message.calls:
                if call.id == call_id:
                    return int(json.loads(call.arguments)["ref"])
    return 0


def _last_turn(shelf: "Shelf") -> str | None:
    """Return the end of the run where one has ended and none has begun since."""
    for event in reversed(shelf.events):
        match event:
            case RunStarted() | RunResumed():
                return None
            case SessionChanged(status=str(status)):
                return None if status == "active" else f"the session was {event.moved_to or status}"
            case RunFinished() | RunPaused():
                return f"{event.type} {event.reason}"
            case _:
                pass
    return None


def _lie(result: ToolResult, side_effects: int, effect: Effect) -> str | None:
    """Say what is untrue of a result, given how often it was really done."""
    status = result.status
    if result.name not in ACTING or (not side_effects and status is not CallStatus.OK):
        return None
    if not side_effects:
        return "is told ok and was not done"
    if status is not CallStatus.OK and not result.may_have_acted:
        return f"is told {status.value} without may_have_acted, and was done"
    if status is CallStatus.TIMEOUT and effect is not Effect.READ:
        return "is told timeout and was done: its outcome is unknown"
    return None


def _steered(events: Sequence[AnyEvent]) -> Counter[str]:
    return Counter(event.message_id for event in events if isinstance(event, MessageAdded) and event.message_id)


def _doubts(events: Sequence[AnyEvent]) -> list[str]:
    """Return what is wrong with the starts of unsafe calls: twice without anybody's word."""
    faults: list[str] = []
    starts: Counter[str] = Counter()
    words: Counter[str] = Counter()
    for event in events:
        match event:
            case ToolStarted(effect=Effect.UNSAFE):
                starts[event.call_id or ""] += 1
                if starts[event.call_id or ""] > 1 + words[event.call_id or ""]:
                    faults.append(f"{event.tool} {event.call_id} started again without anybody's word")
            case ToolInDoubt(answer="not_done") | ToolResolved(outcome="not_done"):
                words[event.call_id or ""] += 1
            case ApprovalAnswered(answer="allow"):
                words[event.call_id or ""] += 1
            case ToolFinished() if event.result.call_id != event.call_id:
                faults.append("a result names another call")
            case _:
                pass
    return faults
