"""Recorded traffic of Claude on Vertex: through the public face as recorded, and once more in the other form."""

import json
import re

import pytest
from _dialects import Bodied, Conversation, exchanges, loops
from _oracle_anthropic import ORACLE, events_of, message_of
from _replay import Stretch, heard, play
from test_loops_anthropic import assert_same

FORMS = pytest.mark.parametrize("in_other_form", [False, True], ids=["as-recorded", "synthetic-other-form"])


def model_of(one: Bodied) -> str:
    found = re.search(r"/models/([^:]+):", one.path)
    assert found is not None
    return f"vertex:{found[1]}"


@pytest.mark.row("P-VERTEX", "W03")
@FORMS
@pytest.mark.parametrize("loop", loops("vertex_claude"), ids=str)
async def test_a_recorded_loop_goes_as_recorded(loop: Conversation, in_other_form: bool) -> None:
    was_streamed = loop.exchanges[0].is_stream
    every = tuple(one.with_body(one.content.decode()) for one in loop.exchanges)
    other: list[str | bytes] = [json.dumps(message_of(one.body)) if was_streamed else events_of(one) for one in every]
    played = await play(
        Stretch(
            exchanges=every,
            oracle=ORACLE,
            model=model_of(loop.exchanges[0]),
            stream=was_streamed is not in_other_form,
            bodies=other if in_other_form else None,
        )
    )

    played.check()
    recorded = loop.exchanges[0].path.partition("/publishers/")[2].partition(":")[0]
    assert {one.path.partition("/publishers/")[2].partition(":")[0] for one in played.requests} == {recorded}


@pytest.mark.row("P-VERTEX")
@pytest.mark.parametrize("one", exchanges("vertex_claude"), ids=str)
async def test_each_recorded_answer_is_what_an_independent_reader_makes_of_it(one: Bodied) -> None:
    parts = await heard(model_of(one), one.content, status=one.status, stream=one.is_stream)

    assert_same(parts, message_of(one.content.decode()))
