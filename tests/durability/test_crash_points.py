"""Kill -9 at each crash point of faults.md, for each effect; then resume, then resume again. Effects are counted outside."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from crash_child import Job
from crashing import EFFECTS, Children, World, answer_all, children, stored, world

from invariants import check_events, check_pairs

BEFORE_ANY_ACT = ("CP1", "CP2", "CP3", "CP3:early", "CP4", "CP5", "CP6", "CP8")
AROUND_AN_ACT = ("CP9", "CP10", "CP11")
AFTER_AN_ACT = ("CP12", "CP13", "CP15:before", "CP15:after")


@pytest.fixture
async def mother() -> AsyncIterator[Children]:
    async with children() as found:
        yield found


@pytest.fixture
async def outside(tmp_path: Path) -> AsyncIterator[World]:
    async with world(tmp_path / "acts") as found:
        yield found


def job(tmp_path: Path, outside: World, **words: object) -> Job:
    return Job(journal=str(tmp_path / "a.db"), port=outside.port, out=str(tmp_path / "out"), **words)  # type: ignore[arg-type]


async def check_whole(path: Path) -> dict[str, str]:
    """Assert that the session is whole. Return the status of each call's one result."""
    events, state = await stored(path / "a.db")
    check_events(events)
    check_pairs(state.messages, open_ids=set(state.open))
    return {event.call_id or "": event.result.status.value for event in events if event.type == "tool.finished"}


@pytest.mark.row("CP1", "CP2", "CP3", "CP4", "CP5", "CP6", "CP8", "Q04")
@pytest.mark.parametrize("effect", EFFECTS)
@pytest.mark.parametrize("point", BEFORE_ANY_ACT)
async def test_killed_before_any_act_nothing_was_done_and_resume_does_all_once(
    tmp_path: Path, mother: Children, outside: World, point: str, effect: str
) -> None:
    died = await mother.run(job(tmp_path, outside, effect=effect, point=point))
    assert died.was_killed, f"never reached {point}: {died}"
    if effect != "read":
        assert outside.acts() == []

    ended = await mother.run(job(tmp_path, outside, effect=effect, act="again"))

    assert (ended.code, ended.report.get("reason")) == (0, "completed"), ended
    statuses = await check_whole(tmp_path)
    assert outside.duplicates() == []
    # What had started early stays on record; the response that comes instead has its calls under fresh ids.
    assert (statuses["act_1"], statuses["act_2"]) == ("ok", "ok") or effect == "read"
    assert list(statuses.values()).count("ok") >= 3
    if effect != "read":
        assert outside.requests() == {1: 1, 2: 1}


@pytest.mark.row("CP9", "CP10", "CP11", "R04", "R05")
@pytest.mark.parametrize("effect", EFFECTS)
@pytest.mark.parametrize("point", AROUND_AN_ACT)
async def test_killed_around_an_act_an_unsafe_one_is_never_repeated_and_any_other_keeps_its_key(
    tmp_path: Path, mother: Children, outside: World, point: str, effect: str
) -> None:
    died = await mother.run(job(tmp_path, outside, effect=effect, point=point))
    assert died.was_killed, f"never reached {point}: {died}"
    before = outside.requests()

    ended = await mother.run(job(tmp_path, outside, effect=effect, act="again"))

    assert (ended.code, ended.report.get("reason")) == (0, "completed"), ended
    statuses = await check_whole(tmp_path)
    assert outside.duplicates() == []
    if effect == "unsafe":
        # At CP10 the request was under way when the process died: it may arrive after that, and once at most.
        assert all(count == 1 for count in outside.requests().values())
        assert point == "CP10" or outside.requests() == before
        assert statuses["act_1"] == "outcome_unknown"
        events, _ = await stored(tmp_path / "a.db")
        assert {event.call_id for event in events if event.type == "tool.in_doubt"} >= {"act_1"}
    elif effect == "read":  # it had started early, and its response was lost
        assert list(statuses.values()).count("ok") >= 3
    else:
        assert statuses["act_1"] == statuses["act_2"] == "ok"


@pytest.mark.row("CP12", "CP13", "CP15", "R04")
@pytest.mark.parametrize("effect", EFFECTS)
@pytest.mark.parametrize("point", AFTER_AN_ACT)
async def test_killed_after_a_stored_result_no_finished_call_runs_again(
    tmp_path: Path, mother: Children, outside: World, point: str, effect: str
) -> None:
    died = await mother.run(job(tmp_path, outside, effect=effect, point=point))
    assert died.was_killed, f"never reached {point}: {died}"

    ended = await mother.run(job(tmp_path, outside, effect=effect, act="again"))

    if point == "CP15:after":
        assert ended.report["error"].startswith("NothingToResume"), ended
    else:
        assert (ended.code, ended.report.get("reason")) == (0, "completed"), ended
    statuses = await check_whole(tmp_path)
    assert outside.duplicates() == []
    if effect == "read":  # a read's result is not synced: it may be read again
        return
    assert (outside.requests()[1], statuses["act_1"]) == (1, "ok")
    is_lost = point == "CP12" and effect == "unsafe"
    assert (outside.requests().get(2, 0), statuses["act_2"]) == ((0, "outcome_unknown") if is_lost else (1, "ok"))


@pytest.mark.row("CP7", "CP8", "P06", "P08")
@pytest.mark.parametrize("point", ["CP7", "CP7:paused"])
async def test_killed_while_it_asks_the_question_stays_and_is_asked_once(
    tmp_path: Path, mother: Children, outside: World, point: str
) -> None:
    died = await mother.run(job(tmp_path, outside, consent=True, point=point))
    assert died.was_killed, f"never reached {point}: {died}"

    again = await mother.run(job(tmp_path, outside, consent=True, act="resume"))
    assert again.report["reason"] == "approval_required"
    assert await answer_all(tmp_path / "a.db") == 2
    killed = await mother.run(job(tmp_path, outside, consent=True, act="resume", point="CP8"))
    assert killed.was_killed
    assert outside.acts() == []
    done = await mother.run(job(tmp_path, outside, consent=True, act="again"))

    assert (done.code, done.report.get("reason")) == (0, "completed"), done
    assert outside.requests() == {1: 1, 2: 1}
    events, _ = await stored(tmp_path / "a.db")
    assert sum(event.type == "approval.requested" for event in events) == 2
    assert await check_whole(tmp_path) == dict.fromkeys(("look", "act_1", "act_2"), "ok")


@pytest.mark.row("CP9", "CP10", "R05")
async def test_a_person_who_had_consented_is_asked_about_a_call_in_doubt(
    tmp_path: Path, mother: Children, outside: World
) -> None:
    await mother.run(job(tmp_path, outside, consent=True))
    await answer_all(tmp_path / "a.db")
    killed = await mother.run(job(tmp_path, outside, consent=True, act="resume", point="CP9"))
    assert killed.was_killed

    asked = await mother.run(job(tmp_path, outside, consent=True, act="resume"))

    assert asked.report["reason"] == "approval_required"
    assert outside.acts() == []
    await answer_all(tmp_path / "a.db")
    killed = await mother.run(job(tmp_path, outside, consent=True, act="resume", point="CP9"))
    assert killed.was_killed, "allowed, it runs again"
    asked = await mother.run(job(tmp_path, outside, consent=True, act="resume"))
    assert asked.report["reason"] == "approval_required", "one answer serves for one start"
    assert outside.acts() == []
    await answer_all(tmp_path / "a.db", "deny")
    done = await mother.run(job(tmp_path, outside, consent=True, act="again"))
    assert (done.code, done.report.get("reason")) == (0, "completed"), done
    assert await check_whole(tmp_path) == {"look": "ok", "act_1": "outcome_unknown", "act_2": "outcome_unknown"}
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
    tmp_path: Path, mother: Children, outside: World, point: str, check: str, status: str, requests: dict[int, int]
) -> None:
    killed = await mother.run(job(tmp_path, outside, point=point))
    assert killed.was_killed

    done = await mother.run(job(tmp_path, outside, check=check, act="again"))

    assert (done.code, done.report.get("reason")) == (0, "completed"), done
    assert await check_whole(tmp_path) == {"look": "ok", "act_1": status, "act_2": status}
    assert (outside.requests(), outside.duplicates()) == (requests, [])


@pytest.mark.row("Q04", "CP3", "CP15")
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("effect", ["keyed", "unsafe"])
async def test_killed_at_every_single_append_nothing_is_lost_and_nothing_done_twice(
    tmp_path: Path, mother: Children, effect: str, when: str
) -> None:
    for n in range(1, 40):
        folder = tmp_path / str(n)
        folder.mkdir()
        async with world(folder / "acts") as outside:
            died = await mother.run(job(folder, outside, effect=effect, point=f"append:{n}:{when}"))
            if not died.was_killed:
                assert died.report["reason"] == "completed"
                assert n > 5
                return
            ended = await mother.run(job(folder, outside, effect=effect, act="again"))
            assert ended.report.get("completed") or "NothingToResume" in ended.report["error"], ended
            await check_whole(folder)
            assert outside.duplicates() == []
    pytest.fail("no run without a crash in 40 tries")


@pytest.mark.row("Q04")
async def test_killed_again_and_again_in_its_resumes_a_session_still_ends_whole(
    tmp_path: Path, mother: Children, outside: World
) -> None:
    points = ["CP1", "CP4", "CP9", "append:2:after", "CP13", "CP15:before"]
    for point in points:
        died = await mother.run(job(tmp_path, outside, point=point))
        assert died.was_killed, f"never reached {point}: {died}"
    ended = await mother.run(job(tmp_path, outside, act="again"))
    assert (ended.code, ended.report.get("reason")) == (0, "completed"), ended
    await check_whole(tmp_path)
    assert outside.duplicates() == []
