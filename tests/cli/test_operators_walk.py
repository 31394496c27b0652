"""An operator's walk: a payment in doubt is found, looked into, ended with the receipt in hand, and the model continues from there."""

import json
import re
from typing import Any

import pytest

PAYING = """
import os, signal
from pathlib import Path
from treadle import Tool

BANK = Path(__file__).with_name("bank.txt")

def _pay(arguments, ctx):
    with BANK.open("a") as file:
        file.write(f"{ctx.idempotency_key} {arguments['invoice']}\\n")
    if arguments.get("note") != "calmly":
        os.kill(os.getpid(), signal.SIGKILL)
    return {"receipt": 1}

pay = Tool(
    name="pay",
    description="Pay an invoice.",
    parameters={"type": "object", "properties": {"invoice": {"type": "string"}, "note": {"type": "string"}}},
    effect="unsafe",
    key=lambda arguments: arguments["invoice"],
    run=_pay,
)
"""

PAY_7 = {"calls": [{"name": "pay", "arguments": {"invoice": "7"}, "id": "p"}]}


on_each_store = pytest.mark.parametrize("bank", ["sqlite", "postgres"], indirect=True)


@pytest.fixture
def bank(request: pytest.FixtureRequest, treadle: Any) -> Any:
    """With session `s`, whose process was killed in the middle of a payment."""
    if getattr(request, "param", "sqlite") == "postgres":
        treadle.environment["TREADLE_JOURNAL"] = request.getfixturevalue("postgres_url")
    (treadle.folder / "paying.py").write_text(PAYING)
    script(treadle, PAY_7, {"text": "As you say."}, {"text": "Good."})
    treadle("run", "--session", "s", *world(), "--allow", "pay", "Pay invoice 7", code=-9, is_apart=True)
    while not treadle.json("doubts", "--json"):  # on a server the lease of the dead holds for some seconds
        pass
    return treadle


def world() -> list[str]:
    return ["-m", "script:s.json", "--tools", "paying.py"]


def script(treadle: Any, *turns: object) -> None:
    (treadle.folder / "s.json").write_text(json.dumps(turns))


def paid(treadle: Any) -> list[str]:
    return (treadle.folder / "bank.txt").read_text().splitlines()


def told(treadle: Any) -> str:
    """Everything that the model was told after its calls."""
    messages = treadle.json("sessions", "show", "s", "--json")["messages"]
    return json.dumps([message for message in messages if message["role"] != "assistant"])


@on_each_store
@pytest.mark.row("ST10", "HF3")
def test_a_payment_in_doubt_is_found_looked_into_and_ended_with_the_receipt(bank: Any) -> None:
    # Found: in the queue of doubts, beside the approvals, in the list of sessions.
    [doubt] = bank.json("doubts", "--json")
    listed = bank("doubts", code=0)
    assert (doubt["session_id"], doubt["call_id"], doubt["tool"]) == ("s", "p", "pay")
    assert 'pay(invoice="7")' in listed.stdout
    assert "treadle resolve" in listed.stderr
    assert "1 call has an unknown outcome" in bank("approvals", code=0).stderr
    assert "1 IN DOUBT" in bank("sessions", code=0).stdout
    assert [one["in_doubt"] for one in bank.json("sessions", "--json", "--status", "in-doubt")] == [1]

    # Looked into: the key is what the bank knows the payment by.
    assert doubt["key"] in paid(bank)[0]

    # Ended, with the receipt in hand.
    ended = bank(
        "resolve", doubt["key"][:12], "--done", '{"receipt": 4711}', "--by", "ada", "--reason", "On the list", code=0
    )
    assert "Resolved by ada as done" in ended.stderr
    assert bank.json("doubts", "--json") == []
    again = bank("resolve", "p", "--session", "s", "--not-done", code=2)
    assert "resolved already: done, by ada" in again.stderr

    # Who said so, when and what is shown.
    said = r'resolved as done with \{"receipt": ?4711\} by ada at 20\d\d-\d\d-\d\d \d\d:\d\d: On the list'
    assert re.search(said, bank("sessions", "explain", "s", code=0).stdout)
    assert re.search(said, bank("sessions", "show", "s", code=0).stdout)
    [resolved] = bank.json("sessions", "explain", "s", "--json")["resolved"]
    [shown] = bank.json("sessions", "show", "s", "--json")["calls"][0]["resolutions"]
    for one in (resolved, shown):
        assert (one["by"], one["outcome"], one["reason"], one["value"]) == (
            "ada",
            "done",
            "On the list",
            {"receipt": 4711},
        )
        assert one["at"] > 0

    # The model continues from there.
    done = bank("resume", "s", *world(), code=0)
    assert done.stdout == "As you say.\n"
    assert "4711" in told(bank)
    assert len(paid(bank)) == 1


@pytest.mark.row("ST10")
def test_a_key_may_be_shortened_as_far_as_it_fits_one_doubt_and_the_id_of_a_call_may_not(bank: Any) -> None:
    script(bank, {"calls": [{"name": "pay", "arguments": {"invoice": "8"}, "id": "p1"}]})
    bank("run", "--session", "t", *world(), "--allow", "pay", "Pay invoice 8", code=-9, is_apart=True)
    keys = {one["call_id"]: one["key"] for one in bank.json("doubts", "--json")}

    pairs = list(zip(*keys.values(), strict=True))
    same = keys["p"][: next(place for place, (one, other) in enumerate(pairs) if one != other)]
    if same:
        assert "fits several calls in doubt" in bank("resolve", same, "--unknown", code=2).stderr
    assert "No call" in bank("resolve", keys["p"][1:], "--unknown", code=2).stderr
    bank("resolve", "p", "--not-done", code=0)
    assert "No call 'p'" in bank("resolve", "p", "--not-done", code=2).stderr
    bank("resolve", keys["p1"][: len(same) + 1], "--not-done", code=0)
    assert bank.json("doubts", "--json") == []


@on_each_store
@pytest.mark.row("ST10", "HF3")
def test_after_the_model_was_told_unknown_the_exit_code_says_so_and_the_receipt_still_counts(bank: Any) -> None:
    done = bank("resume", "s", *world(), "--json", code=18)
    report = json.loads(done.stdout)
    assert (report["status"], report["in_doubt"][0]["call_id"]) == ("completed", "p")
    assert "treadle resolve" in done.stderr
    assert "None needed" not in report["next_safe_action"]
    assert report["tool_calls"][0]["attempts"] == 1

    key = report["in_doubt"][0]["key"]
    assert "treadle run --session s" in bank("resolve", key, "--done", '"receipt 4711"', code=0).stderr
    bank("run", "--session", "s", *world(), "And now?", code=0)
    assert "receipt 4711" in told(bank)
    assert len(paid(bank)) == 1


@pytest.mark.row("ST10")
def test_what_was_not_done_runs_and_what_stays_unknown_is_listed_no_longer(bank: Any) -> None:
    bank("resolve", "--last", "--unknown", code=0)
    assert bank("doubts", code=0).stderr == "No call is in doubt.\n"
    bank("resume", "s", *world(), code=0)
    assert "outcome_unknown" in told(bank)

    again = {"calls": [{"name": "pay", "arguments": {"invoice": "7", "note": "calmly"}, "id": "q"}]}
    script(bank, PAY_7, {"text": "As you say."}, again, {"text": "Paid."})
    asked = bank("run", "--session", "s", *world(), "--allow", "pay", "Pay it again", code=11)
    assert "treadle approve" in asked.stderr
    assert len(paid(bank)) == 1


@pytest.mark.row("ST10")
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["resolve", "p"], "--done JSON with its result"),
        (["resolve", "p", "--done", "{", "--by", "a"], "--done must be JSON"),
        (["resolve", "p", "--done", '{"n": 1, "n": 2}', "--by", "a"], "the key 'n' occurs twice"),
        (["resolve", "p", "--unknown", "--not-done"], "Say how the call ended"),
        (["resolve", "nobody", "--unknown"], "treadle doubts"),
        (["resolve", "--unknown"], "Name one"),
        (["resolve", "p", "--last", "--unknown"], "Name one"),
    ],
)
def test_a_resolution_that_says_nothing_is_told_what_to_write(bank: Any, words: list[str], says: str) -> None:
    assert says in bank(*words, code=2).stderr
    assert len(bank.json("doubts", "--json")) == 1


@pytest.mark.row("ST04", "HF2", "H18")
def test_a_crashed_run_is_cancelled_from_the_command_line_and_pays_nothing_more(bank: Any) -> None:
    assert "Cancelled s" in bank("cancel", "--last", code=0).stderr
    done = bank("resume", "s", *world(), "--allow", "pay", code=1)
    assert "cancelled" in done.stderr
    assert len(paid(bank)) == 1
    assert "no run to cancel" in bank("cancel", "s", code=2).stderr


def test_a_name_that_fits_no_call_in_doubt_or_several_resolves_none(bank: Any) -> None:
    bank("resume", "s", *world(), code=18)
    bank("sessions", "fork", "s", code=0)
    doubts = bank.json("doubts", "--json")
    assert len(doubts) == 2

    for wrong in (
        "",
        " ",
        "x",
        "p",
        doubts[0]["key"],
        doubts[0]["key"][:4],
    ):  # a fork's call has the key of the first one
        bank("resolve", wrong, "--not-done", code=2)
    assert "fits several calls in doubt" in bank("resolve", "p", "--unknown", code=2).stderr
    assert bank.json("doubts", "--json") == doubts
    bank("resolve", "p", "--session", doubts[0]["session_id"], "--not-done", code=0)
    assert bank.json("doubts", "--json") == doubts[1:]


@pytest.mark.row("ST10", "H12")
@pytest.mark.parametrize(("said", "outcome"), [(("--done", '{"receipt": 7}'), "done"), (("--not-done",), "not_done"), (("--unknown",), "unknown")])  # fmt: skip
@pytest.mark.parametrize("is_told", [True, False])
def test_who_ended_a_doubt_and_how_is_shown_and_explained(bank, said, outcome, is_told):
    if is_told:
        bank("resume", "s", *world(), code=18)
    bank("resolve", "--last", *said, "--by", "bob", "--reason", "asked the bank", code=0)

    shown = bank("sessions", "show", "s").stdout
    assert f"\n  resolved as {outcome.replace('_', ' ')}" in shown
    assert " by bob at " in shown
    assert ": asked the bank\n" in shown
    explained = bank("sessions", "explain", "s").stdout
    assert f"pay resolved as {outcome} by bob: asked the bank" in explained
    about = bank.json("sessions", "explain", "s", "--json")
    assert [(one["decision"], one["by"]) for one in about["approved"]][-1] == (f"resolved as {outcome}", "bob")
    changed = [(one["is_certain"], one["resolution"]) for one in about["changed"]]
    assert changed == ([] if outcome == "not_done" else [(outcome == "done", outcome)])
    assert (outcome == "not_done") is about["rerun"]["is_safe"]


@pytest.mark.row("ST10")
def test_a_business_key_is_listed_as_a_person_writes_it(bank):
    assert ", about 7; " in bank("doubts", code=0).stdout.replace('"', "")
    assert "\\" not in bank("doubts", code=0).stdout


def test_a_task_that_no_worker_has_begun_is_withdrawn_in_plain_words(treadle):
    (session,) = treadle("submit", "Pay", code=0).stdout.split()
    assert treadle("cancel", session, code=0).stderr == f"Cancelled {session}: no worker begins its task.\n"
