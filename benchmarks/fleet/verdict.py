"""What became of the tasks of a fleet whose workers died: what was lost, what was done twice, and how long a takeover took."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from fleet.fleet import Fleet, quantiles, reading
from fleet.member import EFFECTS, Act

from treadle.events import AnyEvent, RunFinished, RunResumed, ToolFinished, ToolStarted
from treadle.tools import CallStatus


async def verdict(fleet: Fleet, ids: Collection[str], deaths: Iterable[tuple[float, str]]) -> dict[str, Any]:
    """Return the counts, from what the workers did and from what the journal says.

    Args:
        deaths: When each worker was killed or stopped, and its name.
    """
    by_session: defaultdict[str, list[Act]] = defaultdict(list)
    for act in sorted(fleet.look(), key=lambda one: one.at):
        by_session[act.session].append(act)
    found: Counter[str] = Counter()
    for session_id in sorted(ids):
        events = await reading(lambda one=session_id: fleet.journal.read(one))
        found += judge(by_session[session_id], events)
    takeovers = list(taken_over(by_session, deaths))
    return {
        "tasks": len(ids),
        "completed": found["completed"],
        "lost": len(ids) - found["completed"] + found["lost"],
        "duplicated": found["duplicated"],
        "unknown_outcomes_reported": found["reported"],
        "acts_after_fencing": found["fenced"],
        "takeovers": {"count": len(takeovers), **quantiles(takeovers)},
    }


def judge(acts: list[Act], events: Sequence[AnyEvent]) -> Counter[str]:
    """Count what happened to one task of the agent `payer`."""
    ends = [event for event in events if isinstance(event, RunFinished)]
    finished = {event.call_id: event for event in events if isinstance(event, ToolFinished)}
    unknown = sum(one.result.status is CallStatus.OUTCOME_UNKNOWN for one in finished.values())
    done = Counter(act.what for act in acts)
    keys = {effect: {act.key for act in acts if act.what == effect} for effect in EFFECTS}
    found = Counter(
        completed=int(bool(ends) and ends[-1].completed),
        lost=int(bool(ends) and not done["unsafe"] and not unknown),
        duplicated=max(0, done["unsafe"] - 1) + sum(len(keys[one]) > 1 for one in ("idempotent", "keyed")),
        reported=unknown,
    )
    resumed = [event.at for event in events if isinstance(event, RunResumed)]
    intents = {event.key: event.at for event in reversed(events) if isinstance(event, ToolStarted)}
    found["fenced"] = len(after_fencing(acts, resumed, intents))
    return found


def after_fencing(acts: list[Act], resumed: list[float], intents: Mapping[str, float]) -> list[Act]:
    """Return the calls of workers that had lost the session: another had resumed its run, and they had not resumed it again.

    A call whose intent was stored before that was under way when its worker was suspended: nobody can keep it from acting.

    Args:
        intents: By key: when a call was first recorded as started.
    """
    found, holder = [], acts[0] if acts else None
    for act in acts[1:]:
        assert holder is not None
        if act.worker == holder.worker or any(holder.at < at <= act.at for at in resumed):
            holder = act
        elif act.what in EFFECTS:
            taken_at = max((at for at in resumed if at <= act.at), default=0.0)
            if intents.get(act.key, act.at) >= taken_at:
                found.append(act)
    return found


def taken_over(by_session: dict[str, list[Act]], deaths: Iterable[tuple[float, str]]) -> Iterable[float]:
    """Give for each session that a worker left unfinished how many seconds passed until another did something in it."""
    for at, worker in deaths:
        for acts in by_session.values():
            before = [act for act in acts if act.at <= at]
            after = [act for act in acts if act.at > at]
            if before and after and before[-1].worker == worker != after[0].worker and before[-1].what != "end":
                yield after[0].at - at
