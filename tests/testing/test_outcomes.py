"""What `observe` reads of a session, and the exact checks of it."""

import pytest

from treadle import Agent, Budget, Done, Price, Suspended, ask, deny, open_session, tool
from treadle.errors import ConfigurationError
from treadle.messages import Usage
from treadle.testing import (
    ScriptedCall,
    ScriptedModel,
    Turn,
    call,
    called,
    effects_done,
    never_called,
    no_doubt,
    observe,
    text,
    within,
)


@tool(effect="read")
def look(place: str) -> str:
    """Look at a place."""
    return f"{place} is empty."


@tool(effect="unsafe", permission="allow")
def pay(invoice: int, note: str = "") -> str:
    """Pay an invoice."""
    return "paid"


@tool(effect="unsafe", permission="allow", timeout=0.05)
async def transfer(amount: int) -> str:
    """Transfer an amount, and never say how it went."""
    import asyncio

    await asyncio.Event().wait()
    return "never"


async def seen_of(agent, task="Pay"):
    return await observe((await agent.run(task)).session)


def paying(*turns):
    return Agent(ScriptedModel([*turns, text("Done.")]), tools=[look, pay, transfer])


async def test_a_call_that_was_carried_out_is_found_by_its_exact_arguments():
    seen = await seen_of(paying(call("pay", invoice=7)))

    assert called("pay")(seen)
    assert called("pay", {"invoice": 7})(seen)
    assert called("pay", {"invoice": 7}, times=1)(seen)
    assert called("pay", {})(seen)
    assert not called("pay", {"invoice": 7, "note": ""})(seen)
    assert not called("pay", {"invoice": True})(seen)
    assert not called("pay", {"invoice": 8})(seen)
    assert not called("pay", times=2)(seen)
    assert called("look", times=0)(seen)


async def test_a_finding_that_is_not_met_says_which_calls_there_were():
    seen = await seen_of(paying(call("pay", invoice=8)))

    found = called("pay", {"invoice": 7})(seen)

    assert not found
    assert found.reason == "No such call was carried out. Calls of pay: pay(invoice=8) ok."


async def test_never_called_counts_what_was_denied_too():
    agent = paying(call("pay", invoice=7)).replace(policy=deny("pay"))

    seen = await seen_of(agent)

    assert not never_called("pay")(seen)
    assert never_called("look", "delete")(seen)
    assert not called("pay")(seen)
    assert effects_done()(seen)


async def test_effects_done_wants_each_effect_once_and_no_other():
    seen = await seen_of(paying([call("look", place="here"), call("pay", invoice=7)], call("pay", invoice=8)))

    assert effects_done("pay", ("pay", {"invoice": 7}))(seen)
    assert effects_done(("pay", {"invoice": 8}), ("pay", {"invoice": 7}))(seen)
    assert effects_done("pay")(seen).reason == "Not expected: pay(invoice=8) ok."
    assert effects_done("pay", "pay", "send")(seen).reason == "Missing: send."
    assert not effects_done()(seen)


async def test_effects_are_paired_so_that_as_many_as_possible_fit():
    seen = await observe(
        (await paying([call("pay", invoice=7, note="a"), call("pay", invoice=7, note="b")]).run("Pay")).session
    )

    assert effects_done(("pay", {"invoice": 7}), ("pay", {"note": "a"}))(seen)
    assert not effects_done(("pay", {"note": "a"}), ("pay", {"note": "a"}))(seen)


async def test_a_call_whose_outcome_nobody_knows_is_in_doubt_and_no_effect_until_a_person_says_so():
    async with open_session("memory:") as session:
        await paying(call("transfer", amount=5)).run("Transfer", session=session)

        before = await observe(session)
        await session.resolve(before.doubts[0].call_id, Done("sent"))
        after = await observe(session)

    assert no_doubt()(before).reason == "In doubt: transfer(amount=5)."
    assert effects_done()(before)
    assert no_doubt()(after)
    assert effects_done(("transfer", {"amount": 5}))(after)


async def test_all_runs_of_a_session_count():
    async with open_session("memory:") as session:
        await paying(call("pay", invoice=7)).run("Pay 7", session=session)
        await paying(call("pay", invoice=8)).run("Pay 8", session=session)
        seen = await observe(session)

    assert effects_done(("pay", {"invoice": 7}), ("pay", {"invoice": 8}))(seen)
    assert seen.spent.model_turns == 4
    assert within(Budget(max_model_turns=4, max_tool_calls=2))(seen)
    assert within(Budget(max_model_turns=3))(seen).reason == "max_model_turns is 3; used: 4."


async def test_calls_of_an_agent_that_is_a_tool_are_listed_and_its_own_call_is_no_effect():
    payer = paying(call("pay", invoice=7)).as_tool("payer", "Pays.", effect="read")
    caller = Agent(ScriptedModel([call("payer", task="Pay 7"), text("Done.")]), tools=[payer])

    seen = await seen_of(caller, "Have it paid")

    assert [one.tool for one in seen.calls] == ["payer", "pay"]
    assert effects_done(("pay", {"invoice": 7}))(seen)
    assert seen.spent.model_turns == 4


async def test_edited_arguments_are_those_of_the_call():
    agent = paying(call("pay", invoice=7)).replace(policy=ask("pay"))
    async with open_session("memory:") as session:
        paused = await agent.run("Pay", session=session)
        await session.answer(paused.approvals[0].id, "allow", arguments={"invoice": 9})
        await agent.resume(session)
        seen = await observe(session)

    assert effects_done(("pay", {"invoice": 9}))(seen)


async def test_a_suspended_call_has_no_result():
    @tool(effect="unsafe", permission="allow")
    def order() -> str:
        """Order, once a person has said what."""
        raise Suspended("What?")

    seen = await seen_of(paying(call("order")).replace(tools=[order]), "Order")

    assert [str(one) for one in seen.calls] == ["order() without a result"]
    assert effects_done()(seen)


async def test_a_read_that_answers_a_repeated_response_is_one_call():
    broken = Turn(calls=(call("look", place="here"), call("look", place="there")), cut="mid-arguments")
    agent = paying(broken, [call("look", place="here"), call("look", place="there")])

    seen = await seen_of(agent, "Look")

    assert called("look", {"place": "here"}, times=1)(seen)
    assert called("look", times=2)(seen)


async def test_a_cost_that_nobody_knows_is_not_within_a_limit():
    usage = Usage(input_tokens=10, output_tokens=10)
    priced = ScriptedModel([Turn(text="Hi", usage=usage)], price=Price(input=1_000, output=0))
    seen = await seen_of(Agent(priced), "Hi")

    assert within(Budget(max_total_cost=0.01))(seen)
    assert within(Budget(max_total_cost=0.005))(seen).reason == "max_total_cost is 0.005; used: 0.01."


async def test_what_a_model_writes_that_is_no_object_has_no_arguments():
    agent = paying(Turn(calls=(ScriptedCall(name="pay", arguments="{broken"),)))
    seen = await seen_of(agent)

    assert seen.calls[0].arguments == {}
    assert seen.calls[0].status == "invalid_json"


def test_wrong_words_are_refused_with_what_to_write():
    with pytest.raises(ConfigurationError, match="never_called"):
        never_called()
    with pytest.raises(ConfigurationError, match="arguments must be a JSON object"):
        called("pay", {"invoice": object()})
