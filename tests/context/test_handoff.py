"""Handoff: long work outgrows its window, and whoever continues still knows the task, the approvals and what was done."""

import json
import random
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from compaction_tools import DIALECTS, TOO_LONG, compactions, look, looks
from treadle import Agent, Budget, Tool, ToolContext, open_session, resolve_model
from treadle.budgets import Guards
from treadle.context import ClearResults, Handoff, Tiers
from treadle.context.handoff import SECTIONS
from treadle.errors import ModelRejected
from treadle.events import ModelFailed
from treadle.ports import ModelRequest
from treadle.testing import MockProvider, ScriptedModel, Turn, call, text
from treadle.tools import JsonObject
from treadle.toolsets import artifact_tool

WORDS = "## Constraints\nOnly the north wing.\n## Approvals\nEverything was allowed.\n## Next steps\nLook further."


def write() -> Tool:
    async def run(arguments: JsonObject, ctx: ToolContext) -> str:
        return "written " + "y" * 300

    return Tool(name="write", description="Write.", parameters={"type": "object"}, effect="unsafe", run=run)


def handoff_of(request: ModelRequest) -> str:
    return next(one.text for one in request.messages if one.text.startswith("Handoff of the work"))


def section(handoff: str, name: str) -> str:
    """Return what stands below a heading."""
    return handoff.partition(f"## {name}")[2].partition("\n## ")[0]


def answers_summaries(request: ModelRequest) -> Turn:
    assert not request.tools
    return text(WORDS)


@pytest.mark.row("C02")
async def test_a_handoff_has_its_sections_and_the_recorded_ones_come_from_the_journal(tmp_path):
    model = ScriptedModel([call("write", path="a.py", content="z" * 500)])
    tools = [look(), write()]
    async with open_session(tmp_path / "j.db", id="s") as session:
        result = await Agent(model, tools=tools).run("Mend the north wing, touch nothing else.", session=session)
        await session.answer(result.approvals[0].id, "allow", reason="it is planned")
        model = ScriptedModel([*looks(8), TOO_LONG, text(WORDS), text("done")])
        result = await Agent(model, tools=tools, compactor=Handoff(keep=2)).resume(session)
        events = await session.events()

    assert result.completed, result.message
    (event,) = compactions(events)
    found = handoff_of(model.requests[-1])
    assert (event.tier, event.summary) == ("handoff", found)
    assert [line[3:].removesuffix(" (recorded)") for line in found.splitlines() if line.startswith("## ")] == [
        *SECTIONS
    ]
    assert "Mend the north wing, touch nothing else." in section(found, "Objective")
    assert section(found, "Approvals").splitlines()[1:2] == [
        '- allow by person: write(path="a.py", content=...) (it is planned)'
    ]
    assert "Everything was allowed" not in found  # what the model claims there is not used
    assert 'write(path="a.py", content=...)' in section(found, "Changed artifacts")
    assert 'done: write(path="a.py"' in section(found, "Do not redo")
    assert "Only the north wing." in section(found, "Constraints")
    assert "Look further." in section(found, "Next steps")


@pytest.mark.row("C03", "C08")
async def test_the_last_exchanges_stay_exact_and_the_handoff_stays_the_same_afterwards():
    model = ScriptedModel([*interleaved(looks(60)), text("done")], window=3_000)
    agent = Agent(model, tools=[look()], compactor=Handoff(keep=3), guards=Guards(budget_warning=None))
    result = await agent.run("Go")

    made = compactions(await result.session.events())
    shown = [request.messages for request in model.requests if request.tools]
    breaks = [(before, later) for before, later in pairwise(shown) if later[: len(before)] != before]
    assert len(made) > 1
    assert len(breaks) == len(made)
    stored = result.session.messages
    for _, later in breaks:
        assert [one.role for one in later[:2]] == ["user", "user"]
        assert tuple(later[2:]) == tuple(stored[stored.index(later[2]) : stored.index(later[2]) + len(later) - 2])
        assert len(later) - 2 >= 6


def interleaved(calls: list[Any]) -> list[Any]:
    """A model that answers a request for a handoff with one, and else continues with its calls."""
    left = iter([*calls, text("done")])

    def reply(request: ModelRequest) -> Any:
        return next(left) if request.tools else text(WORDS)

    return [reply] * (3 * len(calls))


@pytest.mark.row("C05", "C01")
async def test_the_tiers_are_taken_cheapest_first_and_the_requests_become_shorter():
    calls = [[call("look", n=n), call("look", n=n + 1000)] for n in range(60)]
    model = ScriptedModel(interleaved(calls), window=12_000)
    compactor = Tiers(ClearResults(keep=2), Handoff(keep=2))
    result = await Agent(model, tools=[look(2_400)], compactor=compactor, step_result_chars=3_200).run("Go")

    events = await result.session.events()
    tiers = [one.tier for one in compactions(events)]
    assert {"limits", "results", "handoff"} == set(tiers)
    assert tiers.index("limits") < tiers.index("results") < tiers.index("handoff")
    assert not [one for one in events if isinstance(one, ModelFailed)]
    assert all(sum(len(json.dumps(str(one))) for one in request.messages) < 80_000 for request in model.requests)
    assert result.session.state.run is not None
    assert result.session.state.run.spent.model_turns == 61 or result.reason != "completed"


@pytest.mark.row("C05", "C07")
async def test_old_results_are_cleared_only_where_that_gains_room_for_many_steps():
    model = ScriptedModel(interleaved(looks(120)), window=12_000)
    compactor = Tiers(ClearResults(), Handoff())
    agent = Agent(model, tools=[look(1_500)], compactor=compactor, budget=Budget(max_model_turns=200))
    result = await agent.run("Go")

    made = compactions(await result.session.events())
    assert {one.tier for one in made} == {"results", "handoff"}
    assert all(one.tokens_after < one.tokens_before // 2 for one in made)
    steps = [one.step for one in made]
    assert min(later - before for before, later in pairwise(steps)) >= 12, steps  # of 22 that fit into the whole room


@pytest.mark.row("C05", "C07")
async def test_results_are_cleared_where_the_handoff_that_would_gain_more_fails():
    def reply(request: ModelRequest) -> Any:
        return call("look", n=len(request.messages)) if request.tools else ModelRejected("No.", status=400)

    model = ScriptedModel([reply] * 90, window=3_000)
    compactor = Tiers(ClearResults(), Handoff())
    result = await Agent(model, tools=[look(300)], compactor=compactor, budget=Budget(max_model_turns=25)).run("Go")

    made = compactions(await result.session.events())
    assert made
    assert {one.tier for one in made} == {"results"}


@pytest.mark.row("C02")
async def test_of_very_many_changes_none_is_listed_twice_and_none_must_be_made_again():
    def reply(request: ModelRequest) -> Any:
        return call("write", path=f"{len(request.messages)}.py") if request.tools else text(WORDS)

    model = ScriptedModel([reply] * 200, window=8_000)
    tools = [msgspec.structs.replace(write(), permission="allow")]
    agent = Agent(model, tools=tools, compactor=Handoff(), budget=Budget(max_model_turns=90))
    result = await agent.run("Go")

    last = compactions(await result.session.events())[-1].summary
    assert "earlier ones are in the journal" in section(last, "Changed artifacts")
    assert section(last, "Changed artifacts").count("write(path=") > 5
    assert section(last, "Do not redo").strip().splitlines()[1:] == [
        "- done: all calls under Changed artifacts; the earlier ones, too"
    ]


@pytest.mark.row("C09")
async def test_what_outgrows_the_window_goes_to_a_buffer_without_its_results_and_then_to_a_summary():
    model = ScriptedModel(interleaved(looks(120)), window=12_000)
    compactor, budget = Tiers(ClearResults(), Handoff()), Budget(max_model_turns=80)
    guards = Guards(budget_warning=None)
    agent = Agent(model, tools=[look(1_500)], compactor=compactor, budget=budget, guards=guards)
    result = await agent.run("Mend the north wing.")

    kinds = [kinds_of(request) for request in model.requests if request.tools]
    assert kinds[0] == ["task"]
    orders = {tuple(dict.fromkeys(one)) for one in kinds[1:]}
    assert ("task", "summary", "buffer", "exact") in orders
    assert orders <= {
        ("task", "exact"), ("task", "buffer", "exact"), ("task", "summary", "exact"), ("task", "summary", "buffer", "exact")
    }  # fmt: skip
    assert max(one.count("summary") for one in kinds) == 1
    summaries = [one.summary for one in compactions(await result.session.events()) if one.tier == "handoff"]
    assert len(summaries) > 1
    assert len({section(one, "Objective") for one in summaries}) == 1  # no summary of a summary drifts
    assert max(map(len, summaries)) < 8_000


def kinds_of(request: ModelRequest) -> list[str]:
    """Return what each exchange of a request is: the task, the summary, one without its result, or an exact one."""
    kinds = []
    for message in request.messages:
        if message.role == "tool":
            kinds[-1] = "buffer" if "cleared; kept as artifact" in message.results[0].content else "exact"
        elif message.text.startswith("Handoff of the work"):
            kinds.append("summary")
        else:
            kinds.append("task" if message.text == "Mend the north wing." else "exact")
    return kinds


@pytest.mark.row("C05", "C10")
async def test_a_cleared_result_names_its_artifact_and_can_be_read_again():
    names: list[str] = []

    def read_again(request: ModelRequest) -> Any:
        content = request.messages[2].results[0].content
        names.append(content.partition("artifact ")[2].removesuffix(".]"))
        return call("read_artifact", artifact=names[0], length=7)

    model = ScriptedModel([*looks(5), TOO_LONG, read_again, text("done")])
    agent = Agent(model, tools=[look(), artifact_tool()], compactor=ClearResults(keep=2))
    result = await agent.run("Go")

    assert result.completed, result.message
    assert json.loads(result.session.messages[-2].results[0].content)["text"] == "found 1"


@pytest.mark.row("C06")
async def test_a_compaction_is_due_before_the_room_for_an_answer_is_touched():
    model = ScriptedModel(interleaved(looks(40)), window=4_000)
    result = await Agent(model, tools=[look()], compactor=Handoff()).run("Go")

    made = compactions(await result.session.events())
    assert {one.reason for one in made} == {"window"}
    assert all(3_250 < one.tokens_before < 3_450 for one in made)  # of 4,000, less an eighth, less a sixteenth
    assert all(one.tokens_after < one.tokens_before for one in made)


@pytest.mark.row("C07")
async def test_a_model_that_writes_far_too_much_is_asked_three_times_and_no_more():
    asked = []

    def reply(request: ModelRequest) -> Any:
        if not request.tools:
            asked.append(request)
            return text("x" * 200_000)
        return call("look", n=len(request.messages))

    model = ScriptedModel([reply] * 40, window=4_000)
    result = await Agent(model, tools=[look()], compactor=Handoff()).run("Go")

    assert len(asked) == 3
    assert not compactions(await result.session.events())


@pytest.mark.row("C06", "C07")
async def test_what_is_summed_up_fits_into_a_request_of_its_own():
    numbers = iter(range(1_000))

    def reply(request: ModelRequest) -> Any:
        if not request.tools:
            assert sum(len(one.text) for one in request.messages) < 3 * 4_000
            return text(WORDS)
        return [call("look", n=next(numbers)) for _ in range(4)]

    model = ScriptedModel([reply] * 60, window=4_000)
    result = await Agent(model, tools=[look(2_500)], compactor=Handoff(keep=1), step_result_chars=None).run("Go")

    assert [one.tier for one in compactions(await result.session.events())].count("handoff") > 1
    assert result.reason == "step_limit_reached"


@pytest.mark.row("C03")
@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in (1, 2))])
async def test_random_histories_are_never_refused_by_a_strict_vendor(dialect, seed):
    """The mock vendor refuses a history in which a call and its result are divided."""
    chance = random.Random(seed)
    numbers = iter(range(100))
    turns: list[Any] = []
    for _ in range(3):
        for _ in range(chance.randrange(5, 9)):
            calls = tuple(call("look", n=next(numbers)) for _ in range(chance.randrange(1, 4)))
            turns.append(Turn(text=chance.choice(["", "I look."]), calls=calls))
        turns += [DIALECTS[dialect], text(WORDS)]

    async with MockProvider([*turns, text("done")]) as mock:
        model = resolve_model(f"{dialect}:m", base_url=mock.base_url, api_key="k")
        agent = Agent(model, tools=[look(chance.randrange(300, 900))], compactor=Handoff(keep=chance.randrange(1, 4)))
        result = await agent.run("Mend the north wing.")
        last = json.dumps(mock.requests[-1].body)

    assert result.completed, result.message
    assert [one.tier for one in compactions(await result.session.events())] == ["handoff"] * 3
    assert last.count("## Do not redo") == 1
    assert "Mend the north wing." in last
