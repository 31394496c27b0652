"""A dataset of pydantic-evals, evaluated for real with an agent and a scripted model."""

import pytest
from pydantic_evals import Case, Dataset
from pydantic_evals.evaluators import EqualsExpected

from treadle import Agent, ConfigurationError, Price, tool
from treadle.errors import ModelRejected
from treadle.integrations.pydantic_evals import Exact, task
from treadle.messages import Usage
from treadle.testing import ScriptedModel, Turn, call, called, effects_done, never_called, no_doubt


@tool(effect="unsafe", permission="allow")
def pay(invoice: int) -> str:
    """Pay an invoice."""
    return "paid"


def payer(*turns):
    return Agent(ScriptedModel(turns, price=Price(input=1, output=1)), tools=[pay], name="payer")


SEVEN = Case(name="seven", inputs="Pay 7", expected_output="Paid.")


async def evaluated(agent, *checks, cases=(SEVEN,), **options):
    dataset = Dataset(name="shop", cases=list(cases), evaluators=[EqualsExpected(), Exact(*checks)])
    return await dataset.evaluate(task(agent, **options), progress=False, max_concurrency=1)


async def test_a_report_has_the_agents_answer_its_costs_and_its_calls():
    usage = Usage(input_tokens=1_000_000, output_tokens=500_000)
    report = await evaluated(payer(call("pay", invoice=7), Turn(text="Paid.", usage=usage)))

    case = report.cases[0]
    assert case.output == "Paid."
    assert case.assertions["EqualsExpected"].value is True
    assert case.metrics["model_turns"] == 2
    assert case.metrics["tool_calls"] == 1
    assert case.metrics["cost"] >= 1.5
    assert float(case.attributes["cost"]) == case.metrics["cost"]
    assert case.attributes["tool_calls"] == ["pay(invoice=7) ok"]
    assert case.attributes["reason"] == "completed"
    assert "Evaluation Summary: payer" in report.render(include_reasons=True)


async def test_exact_checks_are_assertions_with_reasons():
    report = await evaluated(
        payer(call("pay", invoice=8), "Paid."),
        called("pay", {"invoice": 7}),
        effects_done(("pay", {"invoice": 8})),
        never_called("refund"),
        no_doubt(),
    )

    found = {name: (one.value, one.reason) for name, one in report.cases[0].assertions.items()}
    assert found["called pay(invoice=7)"] == (
        False,
        "No such call was carried out. Calls of pay: pay(invoice=8) ok.",
    )
    assert found["effects done: pay(invoice=8)"][0] is True
    assert found["never called refund"][0] is True
    assert found["no doubt"][0] is True


async def test_each_case_is_a_session_that_a_journal_keeps(tmp_path):
    cases = [Case(name=name, inputs={"bill": name}) for name in ("a", "b")]

    report = await evaluated(
        payer("Paid."), cases=cases, journal=str(tmp_path / "evals.db"), prompt=lambda inputs: f"Pay {inputs['bill']}"
    )

    assert len({case.attributes["session_id"] for case in report.cases}) == 2


async def test_a_run_that_fails_is_a_failure_of_the_report():
    report = await evaluated(payer(ModelRejected("No such model.")))

    assert report.cases == []
    assert "No such model." in report.failures[0].error_message


async def test_inputs_that_are_no_text_need_a_prompt():
    report = await evaluated(payer("Paid."), cases=[Case(inputs={"bill": 7})])

    assert "give task() a `prompt` function" in report.failures[0].error_message


async def test_exact_without_task_says_what_to_do():
    dataset = Dataset(name="shop", cases=[Case(inputs="x")], evaluators=[Exact(no_doubt())])

    async def other(inputs):
        return inputs

    report = await dataset.evaluate(other, progress=False)

    assert "evaluate the dataset with task(agent)" in report.cases[0].evaluator_failures[0].error_message


def test_a_check_that_is_none_is_refused():
    with pytest.raises(ConfigurationError, match="checks"):
        Exact("no doubt")
