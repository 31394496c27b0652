"""Kill -9 at each crash point of faults.md, for each effect; then resume, then resume again. Effects are counted outside."""

from itertools import product
from pathlib import Path
from typing import Any

import pytest
from crashing import EFFECTS, Children, Scene, World, check_whole, often, stored, world

from treadle import open_journal, open_session
from treadle.events import ChildStarted, ToolStarted

BEFORE_ANY_ACT = ("CP1", "CP2", "CP3", "CP3:early", "CP4", "CP5", "CP6", "CP8")
AROUND_AN_ACT = ("CP9", "CP10", "CP11")
AFTER_AN_ACT = ("CP12", "CP13", "CP15:before", "CP15:after")
UNSAFE_AND_EARLY = [*((point, "unsafe") for point in BEFORE_ANY_ACT), ("CP3:early", "read")]
EACH_AROUND = [("CP9", "unsafe"), ("CP10", "keyed"), ("CP11", "idempotent"), ("CP11", "read"), ("CP11", "unsafe")]
EACH_AFTER = [
    ("CP12", "unsafe"),
    ("CP12", "read"),
    ("CP13", "keyed"),
    ("CP15:before", "unsafe"),
    ("CP15:after", "unsafe"),
]


@pytest.mark.row("CP1", "CP2", "CP3", "CP4", "CP5", "CP6", "CP8", "Q04")
@pytest.mark.parametrize(("point", "effect"), often(product(BEFORE_ANY_ACT, EFFECTS), *UNSAFE_AND_EARLY))
async def test_killed_before_any_act_nothing_was_done_and_resume_does_all_once(
    scene: Scene, outside: World, point: str, effect: str
) -> None:
    await scene.kill(point, effect=effect)
    if effect != "read":
        assert outside.acts() == []

    statuses = await scene.complete(effect=effect)

    # What had started early stays on record; the response that comes instead has its calls under fresh ids.
    assert (statuses["act_1"], statuses["act_2"]) == ("ok", "ok") or effect == "read"
    assert list(statuses.values()).count("ok") >= 3
    if effect != "read":
        assert outside.requests() == {1: 1, 2: 1}


@pytest.mark.row("CP9", "CP10", "CP11", "R04", "R05")
@pytest.mark.parametrize(("point", "effect"), often(product(AROUND_AN_ACT, EFFECTS), *EACH_AROUND))
async def test_killed_around_an_act_an_unsafe_one_is_never_repeated_and_any_other_keeps_its_key(
    scene: Scene, outside: World, point: str, effect: str
) -> None:
    await scene.kill(point, effect=effect)
    before = outside.requests()

    statuses = await scene.complete(effect=effect)

    if effect == "unsafe":
        # At CP10 the request was under way when the process died: it may arrive after that, and once at most.
        assert all(count == 1 for count in outside.requests().values())
        assert point == "CP10" or outside.requests() == before
        assert statuses["act_1"] == "outcome_unknown"
        events, _ = await stored(scene.place)
        assert {event.call_id for event in events if event.type == "tool.in_doubt"} >= {"act_1"}
    elif effect == "read":  # it had started early, and its response was lost
        assert list(statuses.values()).count("ok") >= 3
    else:
        assert statuses["act_1"] == statuses["act_2"] == "ok"


@pytest.mark.row("CP12", "CP13", "CP15", "R04")
@pytest.mark.parametrize(("point", "effect"), often(product(AFTER_AN_ACT, EFFECTS), *EACH_AFTER))
async def test_killed_after_a_stored_result_no_finished_call_runs_again(
    scene: Scene, outside: World, point: str, effect: str
) -> None:
    await scene.kill(point, effect=effect)

    ended = await scene.run(effect=effect, act="again")

    is_over = ended.report.get("error", "").startswith("NothingToResume")
    assert is_over if point == "CP15:after" else ended.is_completed, ended
    statuses = await check_whole(scene.place)
    assert outside.duplicates() == []
    if effect == "read":  # a read's result is not synced: it may be read again
        return
    assert (outside.requests()[1], statuses["act_1"]) == (1, "ok")
    is_lost = point == "CP12" and effect == "unsafe"
    assert (outside.requests().get(2, 0), statuses["act_2"]) == ((0, "outcome_unknown") if is_lost else (1, "ok"))


@pytest.mark.row("CP7", "CP8", "P06", "P08")
@pytest.mark.parametrize("point", ["CP7", "CP7:paused"])
async def test_killed_while_it_asks_the_question_stays_and_is_asked_once(
    scene: Scene, outside: World, point: str
) -> None:
    await scene.kill(point, consent=True)
    assert (await scene.run(consent=True, act="resume")).report["reason"] == "approval_required"
    assert await scene.answer() == 2
    await scene.kill("CP8", consent=True, act="resume")
    assert outside.acts() == []

    assert await scene.complete(consent=True) == dict.fromkeys(("look", "act_1", "act_2"), "ok")

    assert outside.requests() == {1: 1, 2: 1}
    events, _ = await stored(scene.place)
    assert sum(event.type == "approval.requested" for event in events) == 2


@pytest.mark.row("CP9", "CP10", "R05")
async def test_a_person_who_had_consented_is_asked_about_a_call_in_doubt(scene: Scene, outside: World) -> None:
    await scene.run(consent=True)
    for _ in range(2):  # one answer serves for one start: allowed, it runs again, and is asked about again
        await scene.answer()
        await scene.kill("CP9", consent=True, act="resume")
        assert (await scene.run(consent=True, act="resume")).report["reason"] == "approval_required"
        assert outside.acts() == []
    await scene.answer("deny")

    statuses = await scene.complete(consent=True)

    assert statuses == {"look": "ok", "act_1": "outcome_unknown", "act_2": "outcome_unknown"}
    assert outside.acts() == []


@pytest.mark.row("CP9", "CP11", "R05")
@pytest.mark.parametrize(
    ("point", "check", "status", "requests"),
    [
        ("CP9", "service", "ok", {1: 1, 2: 1}),
        ("CP11", "service", "ok", {1: 1, 2: 1}),
        ("CP9", "unknown", "outcome_unknown", {}),
    ],
)
async def test_a_check_that_knows_ends_the_doubt(
    scene: Scene, outside: World, point: str, check: str, status: str, requests: dict[int, int]
) -> None:
    await scene.kill(point)
    assert await scene.complete(check=check, timeout=0.5) == {"look": "ok", "act_1": status, "act_2": status}
    assert outside.requests() == requests


@pytest.mark.row("Q04", "CP3", "CP15")
@pytest.mark.parametrize(
    ("effect", "when"),
    often(product(["keyed", "unsafe"], ["before", "after"]), ("keyed", "before"), ("unsafe", "after")),
)
async def test_killed_at_every_single_append_nothing_is_lost_and_nothing_done_twice(
    tmp_path: Path, mother: Children, effect: str, when: str
) -> None:
    for n in range(1, 40):
        async with world() as outside:
            scene = Scene(mother, outside, str(tmp_path / f"{n}.db"), tmp_path)
            died = await scene.run(effect=effect, point=f"append:{n}:{when}")
            if not died.was_killed:
                assert died.is_completed
                assert n > 5
                return
            ended = await scene.run(effect=effect, act="again")
            assert ended.report.get("completed") or "NothingToResume" in ended.report["error"], ended
            await check_whole(scene.place)
            assert outside.duplicates() == []
    pytest.fail("no run without a crash in 40 tries")


@pytest.mark.row("Q04")
async def test_killed_again_and_again_in_its_resumes_a_session_still_ends_whole(scene: Scene) -> None:
    for point in ("CP1", "CP4", "CP9", "append:2:after", "CP13", "CP15:before"):
        await scene.kill(point)
    await scene.complete()


# --- inside an agent that is another's tool: the caller is resumed, and the child continues under one key

IN_A_CHILD = ("CP1", "CP4", "CP6", "CP8", "CP9", "CP10", "CP11", "CP12", "CP13", "CP15:before", "CP15:after")
DEPTHS = [(point, 1) for point in IN_A_CHILD] + [("CP10", 2), ("CP11", 2), ("CP15:after", 2)]
IN_CHILDREN = [(*case, effect) for case, effect in product(DEPTHS, ["keyed", "unsafe"])]
EACH_IN_CHILDREN = [("CP6", 1, "unsafe"), ("CP10", 1, "keyed"), ("CP11", 2, "unsafe"), ("CP15:after", 1, "keyed")]


@pytest.mark.row("N07")
@pytest.mark.parametrize(("point", "depth", "effect"), often(IN_CHILDREN, *EACH_IN_CHILDREN))
async def test_killed_inside_the_child_nothing_is_done_twice_and_the_caller_goes_on(
    scene: Scene, outside: World, point: str, depth: int, effect: str
) -> None:
    await scene.kill(point, effect=effect, depth=depth)

    statuses = await scene.complete(effect=effect, depth=depth)

    assert statuses["clerk"] == "ok"
    is_lost = effect == "unsafe" and point in ("CP9", "CP10", "CP11")
    assert statuses["act_1"] == ("outcome_unknown" if is_lost else "ok")
    if effect == "keyed":
        assert statuses["act_2"] == "ok"
    _, state = await stored(scene.place)
    assert state.run is not None
    assert state.run.spent.usage.input_tokens > 0
    assert state.run.spent.model_turns == 2 * (depth + 1)  # each asks twice: for the call, and for the answer


@pytest.mark.row("N07")
@pytest.mark.parametrize("point", ["CP7", "CP7:paused"])
async def test_killed_while_the_child_asks_the_question_stays_and_is_answered_at_the_caller(
    scene: Scene, outside: World, point: str
) -> None:
    await scene.kill(point, consent=True, depth=1)
    waits = await scene.run(consent=True, depth=1)
    assert (waits.report["reason"], len(waits.report["approvals"])) == ("approval_required", 2)
    assert await scene.answer() == 2

    assert await scene.complete(consent=True, depth=1) == dict.fromkeys(("clerk", "look", "act_1", "act_2"), "ok")
    assert outside.requests() == {1: 1, 2: 1}


@pytest.mark.row("N07")
async def test_a_payment_in_doubt_in_the_child_asks_the_person_who_resumes_the_caller(
    scene: Scene, outside: World
) -> None:
    words: dict[str, Any] = {"effect": "unsafe", "in_doubt": "ask", "depth": 1}
    await scene.kill("CP11", **words)
    waits = await scene.run(**words)
    assert waits.report["reason"] == "approval_required"
    asked = [one["call_id"] for one in waits.report["approvals"]]
    assert asked in (["act_1"], ["act_1", "act_2"])  # the two ran side by side, and the second may have ended
    before = outside.requests()
    assert await scene.answer("deny") == len(asked)

    assert (await scene.complete(**words))["act_1"] == "outcome_unknown"
    assert outside.requests() == before


@pytest.mark.row("N07")
@pytest.mark.parametrize("number", often(zip(range(1, 20)), (4,), (9,), (14,)))
async def test_killed_around_any_commit_of_the_family_it_goes_on(scene: Scene, outside: World, number: int) -> None:
    died = ended = await scene.run(effect="keyed", point=f"append:{number}:after", depth=1)
    if died.was_killed:
        ended = await scene.run(effect="keyed", act="again", depth=1)
        if ended.report.get("error", "").startswith("NothingToResume"):
            return  # its last commit was the caller's end
    assert ended.is_completed, ended
    assert (await check_whole(scene.place))["clerk"] == "ok"
    assert outside.duplicates() == []


@pytest.mark.row("N07")
@pytest.mark.parametrize("point", ["CP6", "CP9", "CP11", "CP7:paused"])
async def test_a_caller_that_is_cancelled_after_the_crash_ends_its_child_without_another_act(
    scene: Scene, outside: World, point: str
) -> None:
    consents = point == "CP7:paused"
    await scene.kill(point, depth=1, consent=consents)
    events, _ = await stored(scene.place)
    (child,) = {event.child_id for event in events if isinstance(event, ChildStarted)}
    before, _ = await stored(scene.place, child)
    async with open_session(scene.place, id="s") as session:
        assert await session.cancel()
    async with open_journal(scene.place) as journal:
        assert await journal.approvals() == ()  # what the child asked is withdrawn with it

    ended = await scene.run(depth=1, consent=consents)

    assert (ended.code, ended.report.get("reason")) == (0, "cancelled"), ended
    assert (await check_whole(scene.place))["clerk"] == "outcome_unknown"
    events, _ = await stored(scene.place)
    below, state = await stored(scene.place, child)
    # Not by what the world has seen so far: an act that the dead process had begun may reach it late.
    assert not [event for event in below[len(before) :] if isinstance(event, ToolStarted)]
    assert set(outside.requests().values()) <= {1}
    assert state.run is not None
    assert (state.run.status, state.run.reason, state.open) == ("stopped", "cancelled", {})
    assert below[-1].at <= events[-1].at


@pytest.mark.row("N07")
@pytest.mark.parametrize("place", ["postgres"], indirect=True)
async def test_killed_inside_a_childs_payment_on_postgresql_it_goes_on_under_the_same_key(
    scene: Scene, outside: World
) -> None:
    await scene.kill("CP11", effect="keyed", depth=1, lease_seconds=2.0)
    await scene.complete(effect="keyed", depth=1, lease_seconds=40.0)  # so long that a busy machine keeps it
    assert outside.requests()[1] == 2  # asked twice under one key: the service pays once
