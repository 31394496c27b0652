"""Decisions under any text: one is found, or a typed refusal says why; nothing else ever happens."""

import json

import pytest
from driver_tools import NUMBER
from hypothesis import example, given
from hypothesis import strategies as st

from loop_tools import ANYTHING
from treadle.drivers.react import (
    DecisionForm,
    DecisionUnfit,
    OutputMode,
    ReActDecision,
    Transcript,
    check_decision,
    observed,
)
from treadle.messages import Media, Message, Result, Text, ToolCall, user_message
from treadle.ports import ToolSpec

TOOLS = (ToolSpec(name="echo", description="", parameters=ANYTHING), ToolSpec(name="add", description="", parameters=NUMBER))  # fmt: skip
MODES: tuple[OutputMode, ...] = ("json", "json_schema", "text")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "thought": JSON,
        "type": st.sampled_from(["call_tool", "final_answer"]) | JSON,
        "tool": st.sampled_from(["echo", "add", "none"]) | JSON,
        "args": JSON,
        "answer": JSON,
    },
)


@pytest.mark.row("D08", "D09", "D10")
@given(
    text=st.text() | FIELDS.map(json.dumps),
    mode=st.sampled_from(MODES),
    choice=st.sampled_from(["auto", "none", "add"]),
)
@example(text='{"a":' * 100_000, mode="text", choice="auto")
@example(text="{" * 100_000, mode="text", choice="auto")
@example(text="```json\n```", mode="json", choice="auto")
@example(text='{"type": "call_tool", "tool": "' + "x" * 100_000 + '"}', mode="json", choice="auto")
def test_any_text_is_a_decision_or_a_refusal_that_a_model_can_read(text, mode, choice):
    decision, refusal = _read(text, mode, choice)
    if decision is None:
        assert 0 < len(refusal) < 2000
        return
    if decision.type == "call_tool":
        assert decision.tool in {"echo", "add"}
        assert isinstance(decision.args, dict | None)
    else:
        assert decision.answer_text.strip()


def _read(text: str, mode: OutputMode, choice: str) -> tuple[ReActDecision | None, str]:
    try:
        decision = DecisionForm(mode).extract(text)
        check_decision(decision, TOOLS, choice)
    except DecisionUnfit as unfit:
        return None, str(unfit)
    return decision, ""


@pytest.mark.row("D08")
@given(args=st.dictionaries(st.text(alphabet=st.characters(exclude_categories=["Cs"])), st.integers() | st.booleans()))
def test_what_a_model_writes_is_what_is_proposed(args):
    whole = {"thought": "t", "type": "call_tool", "tool": "echo", "args": args, "answer": None}

    for mode in MODES:
        found = DecisionForm(mode).extract(json.dumps(whole))
        assert found == ReActDecision(thought="t", type="call_tool", tool="echo", args=args)


# --- the transcript --------------------------------------------------------------------------------------------------


@pytest.mark.row("M08")
def test_images_of_results_follow_the_observation():
    image = Media(media_type="image/png", base64="AA==")
    results = (
        Result(call_id="1", name="a", content="one", media=(image,)),
        Result(call_id="2", name="b", content="two", is_error=True),
    )

    told = observed(Message(role="tool", parts=results))

    assert told == Message(role="user", parts=(Text("Observation: one\nObservation: ERROR - two"), image))


@pytest.mark.row("M08")
def test_messages_are_rendered_once_and_never_changed():
    task, spoken = user_message("go"), Message(role="assistant", parts=(ToolCall(id="1", name="a", arguments=""),))
    transcript = Transcript()

    first = transcript.of([task, spoken])
    second = transcript.of([task, spoken, task])

    assert [id(message) for message in second[:2]] == [id(message) for message in first]
    assert second[2] is task
    assert first[1].text == '{"tool": "a", "args": {}}'
    assert spoken.calls
