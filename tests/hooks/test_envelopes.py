"""Envelopes: every good result in one configured form, whatever it was; errors keep their own."""

import pytest

from invariants import check_session
from pipeline_tools import read, results, run_calls
from treadle import ToolOutput
from treadle.errors import ConfigurationError
from treadle.hooks import envelope
from treadle.messages import Media
from treadle.testing import call

VALUES = [None, "text", 0, [], [1, 2], {"a": 1}, b"\xff", Media(media_type="image/png", base64="AAAA")]
PLAIN = [None, "text", 0, [], [1, 2], {"a": 1}, {"base64": "/w==", "size": 1}, {"media_type": "image/png", "name": None}]  # fmt: skip


async def wrapped(form, **words):
    async def run(arguments, ctx):
        return VALUES[arguments["n"]]

    calls = [call("look", n=n) for n in range(len(VALUES))]
    run_result = await run_calls(*calls, tools=[read(run, **words)], interceptors=[envelope(form)])
    await check_session(run_result.session)
    return run_result


@pytest.mark.row("M11")
async def test_the_data_envelope_holds_every_kind_of_value_without_loss():
    run = await wrapped("data")

    assert results(run) == [{"success": True, "data": value} for value in PLAIN]
    assert run.messages[2].results[-1].media == (VALUES[-1],)


@pytest.mark.row("M11")
async def test_the_status_envelope_lists_items_and_says_how_many():
    run = await wrapped("status")

    told = results(run)
    assert [one["items"] for one in told] == [[], ["text"], [0], [], [1, 2], [{"a": 1}], [PLAIN[6]], [PLAIN[7]]]
    assert told[4] == {"status": "ok", "summary": "look: 2 items", "items": [1, 2], "next_valid_actions": []}


@pytest.mark.row("M11")
async def test_errors_and_limits_are_kept():
    async def run(arguments, ctx):
        if arguments.get("fails"):
            raise ValueError("no")
        return ToolOutput(data="x" * 10_000, display="Many.")

    result = await run_calls(
        call("look", fails=True), call("look"), tools=[read(run, result_limit=500)], interceptors=[envelope("data")]
    )

    assert results(result)[0]["type"] == "failed"
    told = result.messages[2].results[1].content
    assert len(told) <= 500
    assert "truncated" in told


def test_a_form_that_is_none_is_refused():
    with pytest.raises(ConfigurationError, match="'data' or 'status'"):
        envelope("xml")
