"""What a journal holds of one session, field by field: a record that loses one of them explains less, and resumes worse."""

from functools import partial
from typing import Any

import msgspec
import pytest

from pipeline_tools import DyingJournal, Recorder, act, on_fake_clock, read, tool_of
from treadle import Agent, Budget, Done, Price, Session, deny, open_session
from treadle.errors import JournalError
from treadle.events import AnyEvent
from treadle.testing import FakeClock, FixedRandomness, Gate, ScriptedModel, Turn, call, text

N = {"type": "object", "properties": {"n": {"type": "integer", "maximum": 12}}, "required": ["n"]}

LEFT_OUT = frozenset({
    *("type", "session_id", "run_id", "seq", "at"),
    *("usage", "cost", "content", "data", "message", "call"),
})  # fmt: skip
"""The place of an event, and what other tests look at: amounts, and the texts for the model."""


async def record(session: Session) -> list[AnyEvent]:
    """Record a session that reads early, retries, refuses, asks, continues and reaches a limit."""
    begun = Gate()
    broken = Turn(text="I", calls=(call("look", n=1),), cut="before-terminal", gate=begun, hold_after_call=0)
    several = [call("look", n=1), call("look", n=99), call("nope"), call("rm"), call("pay", n=2)]
    words: Any = {
        "tools": [
            read(Recorder("seen"), parameters=N),
            tool_of(Recorder(), "rm", effect="unsafe"),
            tool_of(Recorder({"receipt": 7}), "pay", effect="keyed", parameters=N, timeout=9.0),
        ],
        "policy": deny("rm", reason="read only"),
        "subscribers": [lambda event: begun.open() if event.type == "tool.started" else None],
        "profile": "tests",
        "budget": Budget(max_model_turns=3),
        "on_limit": "report",
    }
    price = Price(input=1, output=2)
    paused = await Agent(ScriptedModel([broken, several], price=price), **words).run("go", session=session)
    await session.answer(paused.approvals[0].id, "allow", by="ada", reason="fine")
    await Agent(ScriptedModel([call("look", n=3)], price=price), **words).resume(session)
    return list(await session.events())


def shown(event: AnyEvent, names: dict[str, str]) -> str:
    """Return in one line what an event says beyond its place; digests, keys and ids are named in the order in which they come."""
    fields: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(event))
    fields |= fields.pop("result", {})
    for name in ("digest", "key", "approval_id"):
        if name in fields:
            fields[name] = names.setdefault(fields[name], f"{name}-{len(names) + 1}")
    fields |= {"prefix": "PREFIX"} if "prefix" in fields else {}
    words = [f"{name}={value}" for name, value in fields.items() if name not in LEFT_OUT]
    return " ".join([event.type, *words]).replace(fields["run_id"], "RUN")


@pytest.mark.row("E07", "Q02", "E01")
async def test_every_record_of_a_session_has_all_its_fields():
    async with on_fake_clock() as session:
        events = await record(session)

    names: dict[str, str] = {}
    assert [shown(event, names) for event in events] == RECORDS.replace("\n    ", " ").splitlines()
    assert {(event.session_id, event.run_id) for event in events} == {(session.id, events[0].run_id)}
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert [event.at for event in events] == [NOW] * 8 + [NOW + 0.5] * (len(events) - 8)
    assert all(event.cost for event in events if event.type in ("model.finished", "model.failed"))
    assert [event.call.id for event in events if event.type == "tool.started" and event.early] == ["call_1"]


async def keep(journal: DyingJournal) -> Session:
    """Break a session off in mid-call, resolve the doubt, continue, and do with it what people do between runs."""
    tool = act(Recorder(), parameters=N, timeout=9.0, key=lambda arguments: arguments["n"])
    clock, randomness = FakeClock(), FixedRandomness([0.5])
    opened: Any = partial(open_session, journal, id="s", clock=clock, randomness=randomness)
    async with opened() as session:
        with pytest.raises(JournalError, match="gone"):
            await Agent(ScriptedModel([call("act", n=1)]), tools=[tool], instructions="Be brief.").run(
                "go", session=session
            )
    journal.dies = False
    async with opened() as session:
        await session.resolve("call_1", Done("paid"), by="ada", reason="seen")
        await session.steer("Hurry up")
        await Agent(ScriptedModel([text("Done.")]), tools=[tool]).resume(session)
        await session.mark("here")
        await Agent(ScriptedModel([call("act", n=2), text("Again.")]), tools=[tool]).run("more", session=session)
        await session.rewind("here")
        await session.change(metadata={"tier": "gold"}, reason="sold", by="eve")
        await session.change(status="suspended", reason="closed for the night", by="eve")
    return session


@pytest.mark.row("E08", "Q02", "ST10")
async def test_every_record_of_what_people_do_has_all_its_fields():
    session = await keep(DyingJournal())
    names: dict[str, str] = {}

    assert [shown(event, names) for event in await session.events()] == KEPT.replace("\n    ", " ").splitlines()


NOW = 1_700_000_000.0

RECORDS = """\
run.started task=go model=scripted profile=tests tools=['look', 'pay', 'rm']
message.added
model.started step=1 model=scripted tools=['look', 'pay', 'rm'] messages=1 prefix=PREFIX
call.decided step=1 call_id=call_1 tool=look decision=allow rule=default for read effect=read digest=digest-1 key=key-2
    early=True scope=default by=default mode=ask risk=read_only
tool.started step=1 call_id=call_1 tool=look key=key-2 execution_id=RUN.1.call_1 effect=read early=True digest=digest-1
    decision=allow rule=default for read scope=default by=default mode=ask
model.failed step=1 error=IncompleteStream retry_in_seconds=0.5
model.discarded step=1 reason=The stream ended without its terminal event. calls=['call_1']
tool.finished step=1 call_id=call_1 name=look status=ok attempts=1 duration_seconds=0.0 execution_id=RUN.1.call_1
model.started step=1 attempt=2 model=scripted tools=['look', 'pay', 'rm'] messages=1 prefix=PREFIX
model.finished step=1 finish=calls attempt=2 duration_seconds=0.0 first_token_seconds=0.0
call.decided step=1 call_id=call_2 tool=look decision=allow rule=default for read effect=read digest=digest-1 key=key-2
    scope=default by=default mode=ask risk=read_only
call.decided step=1 call_id=call_3 tool=look decision=none rule=invalid_arguments position=1
tool.finished step=1 call_id=call_3 failure_class=invalid_arguments name=look status=invalid_arguments
    execution_id=RUN.1.call_3
call.decided step=1 call_id=call_4 tool=nope decision=none rule=unknown_tool position=2
tool.finished step=1 call_id=call_4 failure_class=unknown_tool name=nope status=unknown_tool execution_id=RUN.1.call_4
call.decided step=1 call_id=call_5 tool=rm decision=deny rule=deny rm reason=read only effect=unsafe digest=digest-3 key=key-4
    position=3 scope=agent by=policy mode=ask risk=write_external
tool.finished step=1 call_id=call_5 failure_class=denied name=rm status=denied code=permission_denied
    execution_id=RUN.1.call_5
call.decided step=1 call_id=call_6 tool=pay decision=ask rule=default for keyed effect=keyed digest=digest-5 key=key-6
    position=4 scope=default by=default mode=ask risk=write_external
approval.requested step=1 call_id=call_6 approval_id=approval_id-8 tool=pay arguments={'n': 2} digest=digest-7 effect=keyed
    expires_at=1700604800.5 rule=default for keyed reason=No rule allows this call yet. action=Call pay risk=write_external preview={'kind': 'arguments', 'text':
    '{\\n  "n": 2\\n}', 'is_whole': True} expected_result=The change is made once: the service recognizes a repeated call by its key.
    rollback=Unknown: the tool does not say how to undo it.
tool.finished step=1 call_id=call_2 reused_from=call_1 name=look status=ok attempts=1 duration_seconds=0.0
    execution_id=RUN.1.call_2
run.paused step=1 reason=approval_required wall_seconds=0.5
run.resumed step=1 profile=tests model=scripted
approval.answered step=1 call_id=call_6 approval_id=approval_id-8 answer=allow reason=fine approved_by=ada
    given_at=1700000000.5 expires_at=1700604800.5
call.decided step=1 call_id=call_6 tool=pay decision=allow rule=approval ap_0000000000000003 reason=fine effect=keyed
    digest=digest-5 key=key-6 position=4 scope=call by=ada mode=ask risk=write_external
tool.started step=1 call_id=call_6 tool=pay key=key-6 execution_id=RUN.1.call_6 position=4 effect=keyed digest=digest-5
    timeout=9.0 decision=allow rule=approval ap_0000000000000003 scope=call by=ada mode=ask
tool.finished step=1 call_id=call_6 name=pay status=ok attempts=1 duration_seconds=0.0 execution_id=RUN.1.call_6
model.started step=2 model=scripted tools=['look', 'pay', 'rm'] messages=3 prefix=PREFIX
model.finished step=2 finish=calls duration_seconds=0.0 first_token_seconds=0.0
call.decided step=2 call_id=call_2_1 tool=look decision=allow rule=default for read effect=read digest=digest-9 key=key-10
    scope=default by=default mode=ask risk=read_only
tool.started step=2 call_id=call_2_1 tool=look key=key-10 execution_id=RUN.2.call_2_1 effect=read digest=digest-9
    decision=allow rule=default for read scope=default by=default mode=ask
tool.finished step=2 call_id=call_2_1 name=look status=ok attempts=1 duration_seconds=0.0 execution_id=RUN.2.call_2_1
model.started step=3 model=scripted tools=['look', 'pay', 'rm'] messages=5 prefix=PREFIX
model.finished step=3 finish=calls duration_seconds=0.0 first_token_seconds=0.0
repeat.noticed step=3 call_id=call_3_1 tool=look digest=digest-9 count=2
call.decided step=3 call_id=call_3_1 tool=look decision=allow rule=default for read effect=read digest=digest-9 key=key-11
    scope=default by=default mode=ask risk=read_only
tool.started step=3 call_id=call_3_1 tool=look key=key-11 execution_id=RUN.3.call_3_1 effect=read digest=digest-9
    decision=allow rule=default for read scope=default by=default mode=ask
tool.finished step=3 call_id=call_3_1 name=look status=ok attempts=1 duration_seconds=0.0 execution_id=RUN.3.call_3_1
budget.reached step=3 budget=max_model_turns used=3 limit=3 profile=tests
run.finished step=3 reason=step_limit_reached status=stopped completed=False profile=tests budget=max_model_turns used=3
    limit=3 wall_seconds=0.5
"""

KEPT = """\
run.started task=go model=scripted tools=['act'] instructions=fecef222d7732bb717f79edfbfe005707890d72608deefc4dd8171a5980dd5d0
message.added
model.started step=1 model=scripted tools=['act'] messages=1 prefix=PREFIX
model.finished step=1 finish=calls duration_seconds=0.0 first_token_seconds=0.0
call.decided step=1 call_id=call_1 tool=act decision=allow rule=tool act permission effect=unsafe digest=digest-1 key=key-2
    scope=tool by=tool mode=ask risk=write_external
tool.started step=1 call_id=call_1 tool=act key=key-2 execution_id=RUN.1.call_1 digest=digest-1 business_key=1 timeout=9.0
    decision=allow rule=tool act permission scope=tool by=tool mode=ask
tool.resolved step=1 call_id=call_1 tool=act outcome=done by=ada reason=seen key=key-2 value=paid
run.resumed step=1 model=scripted
tool.in_doubt step=1 call_id=call_1 tool=act key=key-2 asked=person answer=done
tool.finished step=1 call_id=call_1 name=act status=ok attempts=1 execution_id=RUN.1.call_1
message.added step=1 source=steer message_id=m_0000000000000002
model.started step=2 model=scripted tools=['act'] messages=4 prefix=PREFIX prefix_changed=['restart']
model.finished step=2 finish=stop duration_seconds=0.0 first_token_seconds=0.0
run.finished step=2 reason=completed status=completed completed=True text=Done. wall_seconds=0.0
session.marked step=2 name=here
run.started step=2 task=more model=scripted tools=['act']
message.added step=2
model.started step=3 model=scripted tools=['act'] messages=6 prefix=PREFIX
model.finished step=3 finish=calls duration_seconds=0.0 first_token_seconds=0.0
call.decided step=3 call_id=call_3_1 tool=act decision=allow rule=tool act permission effect=unsafe digest=digest-3 key=key-4
    scope=tool by=tool mode=ask risk=write_external
tool.started step=3 call_id=call_3_1 tool=act key=key-4 execution_id=RUN.3.call_3_1 digest=digest-3 business_key=2 timeout=9.0
    decision=allow rule=tool act permission scope=tool by=tool mode=ask
tool.finished step=3 call_id=call_3_1 name=act status=ok attempts=1 duration_seconds=0.0 execution_id=RUN.3.call_3_1
model.started step=4 model=scripted tools=['act'] messages=8 prefix=PREFIX
model.finished step=4 finish=stop duration_seconds=0.0 first_token_seconds=0.0
run.finished step=4 reason=completed status=completed completed=True text=Again. wall_seconds=0.0
session.rewound step=4 to=14 mark=here effects=['act (call_3_1)']
message.added step=4 source=runtime
session.changed step=4 metadata={'tier': 'gold'} by=eve reason=sold
session.changed step=4 status=suspended by=eve reason=closed for the night
"""
