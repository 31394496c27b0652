"""The guard against slow decay: what fixed scenarios cost, in calls and memory, stays near the recorded numbers. Asserts on no time."""

import json
import sys
from types import FrameType
from typing import Protocol

import counts
import pytest
from scenarios import NAMES

from treadle import Agent, open_session, tool
from treadle.testing import ScriptedModel, call, text

PROTOCOL_CHECK = type(Protocol).__instancecheck__.__code__


@tool(effect="read", permission="allow")
async def look() -> str:
    """Look."""
    return "seen"


RECORDED = {"3.11": {"turn": {"calls": 2_000, "blocks": 1_000}}}


@pytest.mark.row("R-DECAY")
@pytest.mark.parametrize("name", NAMES)
def test_a_scenario_costs_no_more_than_recorded(name):
    assert counts.complaints(name, counts.count(name), counts.load()) == []


@pytest.mark.row("R-DECAY")
def test_a_scenario_within_its_bound_passes():
    assert counts.complaints("turn", {"calls": 2_200, "blocks": 1_150}, RECORDED, "3.11") == []


@pytest.mark.row("R-DECAY")
def test_a_scenario_that_grew_is_reported_with_its_growth_and_the_command_that_records_it():
    (complaint,) = counts.complaints("turn", {"calls": 2_500, "blocks": 1_000}, RECORDED, "3.11")

    assert complaint == (
        "turn: calls grew by 25.0 %, from 2,000 (recorded for Python 3.11) to 2,500; at most 2,240 are allowed. "
        "Find the change that costs so much, or record the new number on purpose: "
        "python tests/benchmarks/counts.py --record turn"
    )


def test_each_unit_has_its_own_bound():
    grown = counts.complaints("turn", {"calls": 2_241, "blocks": 1_191}, RECORDED, "3.11")

    assert [fault.partition(" grew")[0] for fault in grown] == ["turn: calls", "turn: blocks"]


def test_a_python_without_recorded_numbers_is_compared_with_the_nearest_at_a_wider_bound():
    recorded = {**RECORDED, "3.13": {"turn": {"calls": 1_000, "blocks": 1_000}}}

    assert counts.complaints("turn", {"calls": 1_240, "blocks": 1_000}, recorded, "3.14") == []
    (fault,) = counts.complaints("turn", {"calls": 1_241, "blocks": 1_000}, recorded, "3.14")
    assert "recorded for Python 3.13" in fault


def test_a_scenario_without_recorded_numbers_is_reported():
    assert counts.complaints("new", {"calls": 1}, RECORDED, "3.11") == [
        "The scenario new has no recorded numbers. Record them: python tests/benchmarks/counts.py --record new"
    ]


def test_each_version_has_a_number_for_each_scenario():
    recorded = json.loads(counts.RECORDED.read_text(encoding="utf-8"))

    assert {version: set(named) for version, named in recorded.items()} == {version: set(NAMES) for version in recorded}


@pytest.mark.parametrize("place", ["memory", "file"])
async def test_no_run_compares_an_object_with_a_runtime_protocol(place, tmp_path):
    """`isinstance` reads all members of the protocol each time: one such check is a twentieth of a short run on Python 3.11."""
    asked = []

    def see(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code is PROTOCOL_CHECK and frame.f_back is not None:
            asked.append(f"{frame.f_back.f_code.co_qualname} ({frame.f_back.f_code.co_filename})")

    agent = Agent(ScriptedModel([call("look"), text("done"), call("look"), text("done")]), tools=[look])
    async with open_session(":memory:" if place == "memory" else tmp_path / "agent.db") as session:
        await agent.run("Look", session=session)
        sys.setprofile(see)
        try:
            result = await agent.run("Look again", session=session)
        finally:
            sys.setprofile(None)

    assert (result.text, asked) == ("done", [])
