"""Names that have moved: each works where it was for one version, and says where it is now."""

import importlib

import pytest

import treadle
from treadle import Agent, open_journal, open_session
from treadle.ports import SessionFilter
from treadle.testing import ScriptedModel, text


def moved() -> list[tuple[str, str]]:
    return [(name, f"treadle.{home}") for home, names in treadle._MOVED.items() for name in names.split()]


def test_a_name_that_has_moved_works_and_says_where_it_is_now() -> None:
    assert len(moved()) > 100
    for name, home in moved():
        with pytest.warns(DeprecationWarning, match=rf"^Write `from {home} import {name}`"):
            old = getattr(treadle, name)
        assert old is getattr(importlib.import_module(home), name)
        assert name not in treadle.__all__


def test_a_name_that_never_was_is_an_error() -> None:
    with pytest.raises(AttributeError, match="module 'treadle' has no attribute 'Hok'"):
        _ = treadle.Hok


async def test_a_method_that_became_an_option_says_so() -> None:
    agent = Agent(ScriptedModel([text("Hello.")]))

    with pytest.warns(DeprecationWarning, match="single_turn=True"):
        result = await agent.single_turn("Hi")

    assert result.text == "Hello."


async def test_the_words_for_the_status_of_a_session_and_of_a_run_that_were_phase_before_still_work() -> None:
    async with open_journal("memory:") as journal, open_session(journal) as session:
        await Agent(ScriptedModel([text("Hello.")])).run("Hi", session=session)
        with pytest.warns(DeprecationWarning, match=r"^Write SessionFilter\(run_statuses=...\)"):
            (info,) = await journal.sessions(SessionFilter(phases=("completed",)))  # type: ignore[call-arg]  # the old name

    for one in (info, session.state, session.state.run):
        with pytest.warns(DeprecationWarning, match="`phase` goes"):
            assert one.phase == "completed"
