"""Goals: one objective, refused where it is unclear, and reached only when its validation passes, whatever the model says."""

import random
from pathlib import Path
from typing import Any

import pytest

from pipeline_tools import Recorder, act, read
from treadle import Agent, Agents, Budget, ConfigurationError, Tool, ToolContext, allow, open_session
from treadle.agents import Goal, StopRules, load_goal, run_goal
from treadle.errors import AgentChanged
from treadle.events import GoalChecked, GoalSet
from treadle.testing import ScriptedModel, call, text
from treadle.tools import JsonObject
from treadle.toolsets import ask_user_tool

FILE = """
objective = "The file out.txt says ready"
done_condition = "grep finds the word ready in out.txt"
validation = "grep -q ready out.txt"
checkpoint_every = 3
plan = ["Look at out.txt", "Write the word"]
forbidden_actions = ["erase"]
approval_required_for = ["send"]

[budget]
max_model_turns = 30

[stop_rules]
false_claims = 4
"""


def goal(**changes: Any) -> Goal:
    words: dict[str, Any] = {
        "objective": "The file out.txt says ready",
        "done_condition": "grep finds the word ready in out.txt",
        "validation": "grep -q ready out.txt",
        "checkpoint_every": 3,
        "plan": ["Look at out.txt"],
        "budget": Budget(max_model_turns=30),
        "stop_rules": StopRules(false_claims=4),
    }
    return Goal(**{**words, **changes})


def writing(folder: Path) -> Tool:
    async def run(arguments: JsonObject, ctx: ToolContext) -> str:
        (folder / "out.txt").write_text(str(arguments["text"]), encoding="utf-8")
        return "written"

    return act(run, "put", parameters={"type": "object", "required": ["text"]})


def checks(events: Any) -> list[GoalChecked]:
    return [event for event in events if isinstance(event, GoalChecked)]


@pytest.mark.row("G03")
def test_a_goal_is_read_from_a_file(tmp_path):
    path = tmp_path / "goal.toml"
    path.write_text(FILE, encoding="utf-8")
    found = load_goal(path)

    assert found == goal(
        plan=["Look at out.txt", "Write the word"], forbidden_actions=["erase"], approval_required_for=["send"]
    )


@pytest.mark.row("G03")
@pytest.mark.parametrize(
    "part", ["objective", "done_condition", "validation", "checkpoint_every", "plan", "[budget]", "[stop_rules]"]
)
def test_a_goal_that_lacks_a_part_is_refused_by_its_name(tmp_path, part):
    path = tmp_path / "goal.toml"
    head, _, tail = FILE.partition(part)
    rest = tail.partition("\n\n" if part.startswith("[") else "\n")[2]
    path.write_text(f"{head}{rest}", encoding="utf-8")

    with pytest.raises(ConfigurationError, match=part.strip("[]")):
        load_goal(path)


@pytest.mark.row("G03")
@pytest.mark.parametrize(
    ("part", "words"),
    [
        ("objective", "Improve things"),
        ("objective", "Make the code better and so on"),
        ("done_condition", "When it is TBD by somebody"),
        ("done_condition", "done"),
        ("objective", "x y z"),
        ("objective", "Tidy up the code"),
        ("objective", "Handle all open issues"),
        ("objective", "Do what is needed"),
        ("objective", "Keep going until everything works"),
        ("objective", "Improve the quality of the code"),
        ("done_condition", "The parser works correctly"),
        ("objective", "  "),
        ("plan", []),
        ("checkpoint_every", 0),
        ("stop_rules", StopRules()),
        ("validation", ""),
    ],
)
def test_a_vague_or_empty_part_is_refused(part, words):
    with pytest.raises(ConfigurationError, match=part.replace("stop_rules", "stop rules")):
        goal(**{part: words})


@pytest.mark.row("G07")
@pytest.mark.parametrize(
    "words",
    [
        "Fix the login bug and redesign the homepage", "Migrate the database; write the newsletter", "- mend the parser\n- mend the lexer",
        "Mend the parser. Then publish the release notes.", "Migrate the database and afterwards notify the users",
        "Ship the release & notify the users", "Fix bug 12 / fix bug 13", "All tests pass and the docs are complete",
        "1) mend the parser 2) mend the lexer", "Mend the parser\nMend the lexer",
    ],
)  # fmt: skip
def test_two_objectives_are_refused(words):
    with pytest.raises(ConfigurationError, match="more than one objective"):
        goal(objective=words)


@pytest.mark.row("G07")
@pytest.mark.parametrize(
    "words",
    [
        "The file out.txt exists and is valid JSON", "The file exists and its content is valid", "All tests of the parser and the lexer pass",
        "Rename get_user to find_user in src/, tests/ and docs/", "The ratio read/write is above 3", "Every invoice of May/June is paid",
        "Coverage of src/parser.py is above 90 %",
    ],
)  # fmt: skip
def test_one_objective_in_more_words_is_one(words):
    assert goal(objective=words).objective == words


@pytest.mark.row("G05")
async def test_a_validation_whose_first_program_fails_has_failed_whatever_the_last_one_says(tmp_path):
    work = goal(validation="grep -r ready out.txt | tail -n 5", stop_rules=StopRules(false_claims=2))

    result = await run_goal(Agent(ScriptedModel([text("All is done.")])), work, root=tmp_path)

    assert result.status == "blocked"
    assert [one.passed for one in result.checks] == [False, False]


@pytest.mark.row("G05")
async def test_a_claim_that_the_validation_denies_goes_on_with_what_it_says(tmp_path):
    model = ScriptedModel([text("All is done."), call("put", text="ready"), text("Now it is.")])
    validation = "cat out.txt; grep -q ready out.txt"
    result = await run_goal(Agent(model, tools=[writing(tmp_path)]), goal(validation=validation), root=tmp_path)

    assert (result.status, result.completed) == ("completed", True)
    assert [(one.trigger, one.passed, one.exit_code) for one in result.checks] == [
        ("claim", False, 2), ("claim", True, 0)
    ]  # fmt: skip
    assert "No such file" in model.requests[1].messages[-1].text
    assert "not been reached" in model.requests[1].messages[-1].text
    assert result.checks[1].evidence == ('put {"text": "ready"}',)


@pytest.mark.row("G05")
@pytest.mark.parametrize("passes", [False, True])
async def test_a_secret_that_a_validation_prints_is_neither_recorded_nor_shown_to_the_model(tmp_path, passes):
    secret = "hunter2hunter2"
    end = "true" if passes else "false"
    validation = f"echo api_key=hun''ter2hunter2; echo wrong >&2; {end}"
    model = ScriptedModel([call("put", text="ready", password=secret), text("All is done."), text("It is.")])
    work = goal(validation=validation, stop_rules=StopRules(false_claims=2))
    async with open_session(tmp_path / "j.db", id="s") as session:
        result = await run_goal(Agent(model, tools=[writing(tmp_path)]), work, session=session, root=tmp_path)
        recorded = [event for event in await session.events() if isinstance(event, GoalChecked)]

    assert result.checks[-1].output.startswith("api_key=[redacted]")
    assert "wrong" in result.checks[-1].output
    assert secret not in f"{recorded} {result.checks} {result.message}"
    assert not [one for one in model.requests if secret in one.messages[-1].text]


@pytest.mark.row("G05")
@pytest.mark.parametrize("seed", [*range(8), *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(8, 100))])
async def test_no_lie_is_ever_reported_as_done(tmp_path, seed):
    """Models that claim, in all ways they have, what is not so."""
    chance = random.Random(seed)
    lies = (
        "Done.",
        "All tests pass.",
        "```\nexit code 0\n```",
        "The objective is reached: grep passed.",
        '{"passed": true}',
    )
    finish = read(Recorder("The goal is reached."), "finish", ends_run=True)

    def turn(_: Any) -> Any:
        kind = chance.randrange(4)
        if kind == 0:
            return call("put", text=f"not yet {chance.random()}")
        return call("finish") if kind == 1 else text(chance.choice(lies))

    rules = StopRules(false_claims=chance.randrange(2, 6)) if seed % 2 else StopRules(unchanged_checks=50)
    aim = goal(budget=Budget(max_model_turns=8), stop_rules=rules, checkpoint_every=chance.randrange(1, 4))
    on_limit: Any = chance.choice(["summarize", "report"])
    agent = Agent(ScriptedModel([turn] * 40), tools=[writing(tmp_path), finish], on_limit=on_limit)
    result = await run_goal(agent, aim, root=tmp_path)

    assert result.status == "blocked", result.message
    assert result.run is not None
    assert not result.run.completed
    assert not any(one.passed for one in result.checks)


@pytest.mark.row("G05")
@pytest.mark.parametrize(
    "validate", [lambda: "yes", lambda: 1, lambda: None, lambda: 1 / 0, lambda: ("true", "yes")], ids=range(5)
)
async def test_whatever_is_not_a_plain_yes_is_a_no(validate):
    model = ScriptedModel([text("Done.")] * 9)
    result = await run_goal(Agent(model), goal(), validate=validate)

    assert result.status == "blocked"
    assert result.run is not None
    assert result.run.reason == "repeated_failures"
    assert len(model.requests) == 4  # false_claims


@pytest.mark.row("G04")
async def test_the_six_questions_are_answered_at_each_checkpoint(tmp_path):
    calls = [call("put", text=f"draft {n}") for n in range(7)]
    model = ScriptedModel([*calls, call("put", text="ready"), call("put", text="ready "), text("never")])
    result = await run_goal(Agent(model, tools=[writing(tmp_path)]), goal(), root=tmp_path)

    assert result.status == "completed"
    assert result.run is not None
    assert result.run.reason == "done_condition_satisfied"
    assert [(one.step, one.trigger, one.passed) for one in result.checks] == [
        (3, "checkpoint", False), (6, "checkpoint", False), (9, "checkpoint", True)
    ]  # fmt: skip
    for one in result.checks:
        assert one.is_valid
        assert len(one.evidence) == 3
        assert one.is_in_budget
        assert one.left["max_model_turns"] == str(30 - one.step)
        assert (one.needs_approval, one.should_compact) == (False, False)


@pytest.mark.row("G06")
async def test_the_work_goes_on_in_another_process_and_a_goal_that_is_reached_asks_nobody(tmp_path):
    store, aim = tmp_path / "j.db", goal()
    async with open_session(store, id="g") as session:
        model = ScriptedModel([call("put", text="draft"), call("ask_user", question="Which word?")])
        agent = Agent(model, tools=[writing(tmp_path), ask_user_tool()])
        first = await run_goal(agent, aim, session=session, root=tmp_path)
        assert first.run is not None
    assert first.status == "paused"
    async with open_session(store, id="g") as session:
        (waiting,) = session.state.suspended
        await session.input(waiting.call.id, "ready")
        model = ScriptedModel([call("put", text="ready"), text("Done.")])
        agent = Agent(model, tools=[writing(tmp_path), ask_user_tool()])
        second = await run_goal(agent, aim, session=session, root=tmp_path)
        events = await session.events()
    assert second.status == "completed"
    assert "ready" in model.requests[0].messages[-1].results[0].content
    assert len([one for one in events if isinstance(one, GoalSet)]) == 1
    assert [(one.step, one.passed) for one in checks(events)] == [(one.step, one.passed) for one in second.checks]
    async with open_session(store, id="g") as session:
        third = await run_goal(Agent(ScriptedModel([text("never")]), tools=[]), aim, session=session, root=tmp_path)
        assert (third.status, third.run, len(third.checks)) == ("completed", None, len(second.checks))
        with pytest.raises(ConfigurationError, match="another goal"):
            await run_goal(
                Agent(ScriptedModel([text("never")])), goal(objective="The file in.txt says ready"), session=session
            )


@pytest.mark.row("G08")
async def test_forbidden_actions_are_denied_and_others_are_asked_about_in_children_too(tmp_path):
    erased, sent = Recorder(), Recorder()
    tools = [act(erased, "erase"), act(sent, "send")]
    child = Agent(ScriptedModel([call("erase"), text("erased")]), tools=tools).as_tool("helper", "Help.", effect="read")
    model = ScriptedModel([call("erase"), call("helper", task="erase it"), call("send")])
    aim = goal(forbidden_actions=["erase"], approval_required_for=["send"])
    result = await run_goal(Agent(model, tools=[*tools, child]), aim, root=tmp_path)

    assert result.status == "paused"
    assert result.run is not None
    assert result.run.reason == "approval_required"
    assert [one.tool for one in result.run.approvals] == ["send"]
    assert (erased.runs, sent.runs) == (0, 0)


@pytest.mark.row("G08")
async def test_a_goals_run_is_not_resumed_without_the_rules_of_the_goal(tmp_path):
    erased, sent = Recorder(), Recorder()
    tools = [act(erased, "erase"), act(sent, "send")]
    aim = goal(forbidden_actions=["erase"], approval_required_for=["send"])
    model = ScriptedModel([call("send"), call("erase"), text("Done.")])
    agent = Agent(model, name="worker", tools=tools, policy=allow("erase"))
    async with open_session(tmp_path / "j.db", id="g") as session:
        paused = await run_goal(agent, aim, session=session, root=tmp_path)
        assert paused.run is not None
        await session.answer(paused.run.approvals[0].id, "allow")

        with pytest.raises(AgentChanged, match="works on a goal"):
            await agent.resume(session)
        with pytest.raises(AgentChanged, match="Changed: goal"):
            await Agents([agent]).resume(tmp_path / "j.db", "g")
        assert (erased.runs, sent.runs) == (0, 0)

        await run_goal(agent, aim, session=session, root=tmp_path)
    assert (erased.runs, sent.runs) == (0, 1)


@pytest.mark.row("L16")
async def test_a_question_pauses_the_run_and_the_answer_becomes_its_result(tmp_path):
    store = tmp_path / "j.db"
    async with open_session(store, id="s") as session:
        model = ScriptedModel([call("ask_user", question="Which branch?", choices=["main", "next"])])
        result = await Agent(model, tools=[ask_user_tool()]).run("Go", session=session)
        assert (result.reason, result.status) == ("input_required", "paused")
        assert "Which branch? (main, next)" in result.next_safe_action
    async with open_session(store, id="s") as session:
        (waiting,) = session.state.suspended
        await session.input(waiting.call.id, "main")
        model = ScriptedModel([text("It is main.")])
        result = await Agent(model, tools=[ask_user_tool()]).resume(session)

    assert result.completed
    assert model.requests[0].messages[-1].results[0].content == '{"answer":"main"}'
