"""One life: a session from its first task to its last, with people, several processes, faults; all of it from one seed."""

import asyncio
from collections.abc import Sequence
from copy import copy
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple
from zlib import crc32

import msgspec

from simulator.coverage import Watcher
from simulator.judge import Judge
from simulator.mind import CHILDREN, Mind, SimModel
from simulator.people import People
from simulator.plan import Plan, plan_of
from simulator.process import Process
from simulator.reservations import Reservations
from simulator.store import SimJournal, SimStore
from simulator.timeline import Deadlock, Livelock, ProcessLoop, Timeline
from simulator.tools import agent_of
from simulator.world import World
from treadle import Agent
from treadle.events import AnyEvent, SessionForked, ToolStarted, encode_event
from treadle.ports import ModelRequest
from treadle.providers.fallback import FallbackModel

if TYPE_CHECKING:
    from simulator.disk import Disk

__all__ = ["Incident", "Life", "Outcome", "live"]


class Outcome(NamedTuple):
    """What came of one life."""

    seed: int
    violations: tuple[str, ...]
    pairs: dict[tuple[str, str], int]
    """Features in action when a fault came."""
    lines: list[str]
    """The trace; empty where nobody asked for it."""
    steps: int
    digest: int
    """Of all that happened, so that two replays can be compared."""
    has_power_cut: bool
    """Whether a power cut took what was not synced."""


class Incident:
    """A fault that waits for its moment: the n-th operation, event or commit from a feature on, or a time."""

    def __init__(self, kind: str, *, where: str, after: int, feature: str | None) -> None:
        self.kind = kind
        self.where = where
        self.after = after
        self.feature = feature

    def is_due(self, where: str, active: Any) -> bool:
        """Count one operation, event or commit; return whether this is the one."""
        if where != self.where:
            return False
        if self.feature is not None:
            if self.feature not in active:
                return False
            self.feature = None
        self.after -= 1
        return self.after < 0


class Life:
    """Everything that one life needs, and what happens in it."""

    def __init__(self, seed: int, *, is_verbose: bool = False, disk: "Disk | None" = None) -> None:
        self.seed = seed
        self.chance = Random(seed)
        self.plan: Plan = plan_of(seed, self.chance)
        self.timeline = Timeline(Random(seed + 1))
        self.judge = Judge(self)
        self.reservations = Reservations(self)
        self.world = World(self)
        self.watcher = Watcher()
        self.watcher.is_structured = self.plan.is_structured
        has = {"done_when": self.plan.has_done, "interceptor": self.plan.intercepts}
        has["batch_time"] = self.plan.agent["batch_seconds"] is not None
        has["changed_arguments"] = "changed_arguments" in self.plan.around
        self.watcher.always = tuple(name for name, is_there in has.items() if is_there)
        self.stores = [SimStore("store-1", encodes=self.plan.encodes)]
        self.processes: list[Process] = []
        self.incidents: list[Incident] = []
        self.excuses = {"NothingToResume", "SessionHeld"}
        self.tokens = 0
        self.is_degraded = False
        self.is_healed = False
        self.lines: list[str] = []
        self.digest = seed
        self._is_verbose = is_verbose
        self._disk = disk
        self.has_power_cut = False
        self._refs = 0
        self._minds: dict[str, Mind] = {}
        self._parents: dict[tuple[str, str], tuple[str, int]] = {}
        self._director = ProcessLoop(self.timeline, None)
        self._ends: dict[Process, asyncio.Future[None]] = {}
        self.people = People(self)

    def run(self) -> Outcome:
        """Live this life to its end."""
        asyncio._set_running_loop(self._director)
        whole = self._director.create_task(self.people.direct())
        try:
            self.timeline.run(whole)
            whole.result()
        except (Deadlock, Livelock) as error:
            self.judge.blame(f"{type(error).__name__}: {error} {self._under_way()}")
        except Exception as error:  # noqa: BLE001 - whatever escapes is a broken promise
            self.judge.blame(f"{type(error).__name__} escaped: {error}"[:300])
        except (SystemExit, KeyboardInterrupt) as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            self.judge.blame(f"{type(error).__name__} escaped")
        self.judge.sum_up(self.stores)
        for process in self.processes:
            for fault in process.loop.faults:
                self.judge.blame(f"nobody caught: {fault}"[:300])
        for loop in (*(process.loop for process in self.processes), self._director):
            loop.dispose()
        for process in self.processes:
            process.dispose()
        steps = self.timeline.steps
        return Outcome(
            self.seed,
            tuple(self.judge.violations),
            dict(self.watcher.pairs),
            self.lines,
            steps,
            self.digest,
            self.has_power_cut,
        )

    def _under_way(self) -> str:
        return ", ".join(
            f"{process.name} runs" for process in self.processes if not process.is_dead and process.is_busy
        )

    # --- processes

    def journal_for(self, store: SimStore, process: Process) -> SimJournal:
        """Return the journal of a process; over a real file where the life is lived on a disk."""
        if self._disk is None:
            return SimJournal(store, process)
        from simulator.disk import FileJournal

        return FileJournal(store, process, self._disk)

    def new_process(self, *, offset: float = 0.0, store: SimStore | None = None) -> Process:
        process = Process(self, f"p{len(self.processes) + 1}", store or self.stores[-1], offset=offset)
        self.processes.append(process)
        return process

    async def wait_until_recorded(self, process: Process, task: "asyncio.Task[Any]") -> None:
        """Wait, outside of it, until a process has done its work or died."""
        end: asyncio.Future[None] = self._director.create_future()
        self._ends[process] = end
        process.is_busy = True
        task.add_done_callback(lambda _: end.done() or end.set_result(None))
        if process.is_dead and not end.done():
            end.set_result(None)
        await end
        process.is_busy = False
        if task.done() and not task.cancelled() and (error := task.exception()) is not None:
            self.judge.blame(f"{type(error).__name__} escaped from {process.name}: {error}"[:300])

    async def pause(self, seconds: float) -> None:
        """Let time pass, outside of every process."""
        future: asyncio.Future[None] = self._director.create_future()
        self._director.call_later(seconds, lambda: future.done() or future.set_result(None))
        await future

    def died(self, process: Process) -> None:
        self.watcher.died()
        if (end := self._ends.get(process)) is not None and not end.done():
            end.set_result(None)

    # --- moments at which something may happen

    def operation(self, process: Process, name: str) -> None:
        self._moment("operation", process)

    def stored(self, process: Process, events: Any, *, durable: bool) -> None:
        for event in events:
            if (
                event.parent is not None
            ):  # of an agent that carries out a call: its events reach no subscriber of the caller
                self.watcher.see_child(event)
                self.reservations.heard(process, event)
            self.digest = crc32(encode_event(event), self.digest)
            if self._is_verbose:
                self.trace(process, f"stored{' durably' if durable else ''} {_line(event)}")
        self._moment("commit", process)

    def heard(self, process: Process, event: AnyEvent) -> None:
        """An event is told to a subscriber in a process."""
        if process.is_dead:
            return
        self.watcher.see(event)
        self.reservations.heard(process, event)
        self._moment("event", process)

    def _moment(self, where: str, process: Process) -> None:
        if not self.incidents:
            return
        active = self.watcher.active
        for incident in [*self.incidents]:
            if incident.is_due(where, active):
                self.incidents.remove(incident)
                self.people.strike(incident.kind, process)

    def happened(self, kind: str) -> None:
        """A fault has come."""
        self.watcher.fault(kind)

    def trace(self, process: Process | None, line: str) -> None:
        if self._is_verbose:
            name = "-" if process is None else process.name
            self.lines.append(f"{self.timeline.now:12.4f}  {name:>4}  {line}")

    # --- what is drawn

    def mind(self, role: str) -> Mind:
        if role not in self._minds:
            turns = self.plan.turns if role not in CHILDREN else 2
            self._minds[role] = Mind(self, role, turns)
        if role not in CHILDREN:
            self.watcher.set("fallback", role == "backup")
        return self._minds[role]

    def calm(self) -> None:
        """No more faults: from now on everything works, and models only answer."""
        self.is_healed = True
        self.incidents.clear()
        for mind in self._minds.values():
            mind.turns = 0
        self.plan.turns = 0
        for store in self.stores:
            store.gone_until = store.hangs_until = 0.0

    def latency(self) -> float:
        draw = self.chance.random()
        return draw * 0.05 if draw < 0.7 else (draw - 0.6) * 8.0

    def fate(self, tool: str) -> str:
        if self.is_healed:
            return "ok"
        draw = self.chance.random()
        if tool == "look":
            if self.plan.stuck is not None and draw < 0.9:
                return "at_once"
            return "at_once" if draw < 0.4 else "ok" if draw < 0.75 else self.chance.choice(_READ_FATES)
        return "ok" if draw < (0.3 if self.plan.fault == "resolve" else 0.62) else self.chance.choice(_FATES)

    def next_ref(self) -> int:
        self._refs += 1
        return self._refs

    def break_at(self, parts: int, *, is_backup: bool) -> int:
        """Draw where a response breaks off; -1 for one that comes whole."""
        if self.is_healed or self.chance.random() >= self.plan.break_rate * (0.3 if is_backup else 1.0):
            return -1
        return self.chance.randrange(parts)

    def favourite(self, request: ModelRequest) -> str:
        """Draw the tool that a model calls, mostly one that this life is about."""
        names = [spec.name for spec in request.tools]
        wanted = [name for name in self.plan.favourites if name in names]
        if wanted and self.chance.random() < 0.7:
            return self.chance.choice(wanted)
        return self.chance.choice(names)

    # --- what holds in this life

    def agent(self, process: Process) -> Agent:
        plan = self.plan
        agent = agent_of(**plan.agent, stuck=plan.stuck, has_done=plan.has_done)
        if not plan.has_fallback:
            return agent
        if process.fallback is None:
            model = FallbackModel([SimModel("lead"), SimModel("backup")], clock=process.clock, failures=2)
            process.fallback = _with_model(agent, model)
        return process.fallback

    def changed_agent(self, process: Process) -> Agent:
        """Return the agent of a process after a deploy has changed the form of its answers, as far as its fingerprint says."""
        agent = copy(self.agent(process))
        agent._spec = msgspec.structs.replace(agent._spec, fingerprint={**agent.fingerprint, "answer": "another"})
        return agent

    def word_on(self, tool: str, mode: str = "ask") -> str:
        """Return what policy says of a tool that acts, in a mode of its session."""
        word = self._word_of_policy(tool)
        if word == "deny" or mode == "plan":
            return "deny"
        if word == "ask" and mode == "deny-unlisted":
            return "deny"
        return "allow" if mode == "bypass" else word

    def _word_of_policy(self, tool: str) -> str:
        match self.plan.agent["policy"]:
            case "allow":
                return "allow"
            case "mixed":
                return "deny" if tool == "order" else "allow" if tool in ("pay", "wire") else "ask"
            case _:
                return "ask"

    def owner(self, store: str, session_id: str, seq: int) -> str:
        """Return the session in which this event of a store happened: a fork shares what its parent did before."""
        parent, shared = self._parents.get((store, session_id), ("", 0))
        return self.owner(store, parent, seq) if seq <= shared else session_id

    def made(self, store: str, session_id: str, events: Sequence[AnyEvent]) -> None:
        """Note of a session that begins with these events in a store whether it shares those before its fork with another."""
        fork = next((one for one in reversed(events) if isinstance(one, SessionForked)), None)
        if fork is None:
            self._parents.pop((store, session_id), None)  # of a fork that an earlier move had brought
        else:
            self._parents[store, session_id] = (fork.parent_id, fork.seq - 1)


def _with_model(agent: Agent, model: Any) -> Agent:
    """Return the agent with another model; making one anew would compile its tools again."""
    other = object.__new__(Agent)
    other.__dict__.update(agent.__dict__)
    other.__dict__.update(_model=model, _found=model)
    return other


def _line(event: AnyEvent) -> str:
    extra = ""
    for name in ("call_id", "reason", "decision", "answer", "attempt", "early", "closing", "error", "tool_choice"):
        value = getattr(event, name, None)
        if value not in (None, "", False):
            extra += f" {name}={value}"
    result = getattr(event, "result", None)
    if result is not None:
        extra += f" status={result.status.value} {result.content[:100]}"
    if isinstance(event, ToolStarted):
        extra += f" {event.tool} {event.effect.value}"
    message = getattr(event, "message", None)
    if message is not None and not isinstance(message, str):
        extra += f" {message.role} {message.text[:60]!r} {[(c.id, c.name, c.arguments) for c in message.calls]}"
    return f"{event.session_id}#{event.seq} {event.type}{extra}"


_READ_FATES = ("raises", "breaks", "transient", "rejected", "hangs", "late", "exits", "large")
_FATES = (
    "raises", "raises_done", "lost", "breaks", "transient", "transient_done", "rejected", "hangs", "late", "exits",
    "misshapen",
)  # fmt: skip


def live(seed: int, *, is_verbose: bool = False, disk: "Disk | None" = None) -> Outcome:
    """Live the life of a seed, in memory or on real files."""
    return Life(seed, is_verbose=is_verbose, disk=disk).run()
