"""What is asked beside the steps, sent and recorded field by field."""

from collections.abc import AsyncIterator

from pipeline_tools import Recorder, on_fake_clock, read
from treadle import Agent, Price
from treadle.events import AnyEvent, ModelFailed, ModelFinished, ModelStarted
from treadle.messages import Finish, Text, ToolCall, Usage, user_message
from treadle.ports import CheckView, ModelEnd, ModelPart, ModelRequest


class Judge:
    """A model that calls a tool, and answers a check with these ends in turn; None for a response without an end."""

    name = "judge"
    price = Price(input=1_000_000, output=1_000_000)

    def __init__(self, *ends: ModelEnd | None) -> None:
        self._ends = list(ends)
        self.asked: list[ModelRequest] = []

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelPart]:
        if request.tool_choice != "none":
            yield ModelEnd(parts=(ToolCall(id="c", name="look", arguments="{}"),), finish=Finish.CALLS)
            return
        self.asked.append(request)
        if (end := self._ends.pop(0)) is not None:
            yield end


def said(words: str, finish: Finish = Finish.STOP) -> ModelEnd:
    return ModelEnd(parts=(Text(words),), finish=finish, usage=Usage(input_tokens=10, output_tokens=2))


async def checked(model: Judge) -> tuple[list[str], list[AnyEvent]]:
    """Run a task whose condition asks the model. Return the answers, and what was recorded of them."""
    answers: list[str] = []

    async def is_done(session: CheckView) -> bool:
        answers.append(await session.ask([user_message("Is it done?")], instructions="Say yes or no."))
        return True

    async with on_fake_clock() as session:
        await Agent(model, tools=[read(Recorder())], done_when=is_done).run("go", session=session)
        events = [event for event in await session.events() if event.act is not None]
    return answers, events


async def test_a_question_beside_the_steps_is_sent_without_tools_and_recorded_with_its_cost():
    model = Judge(said("yes"))

    answers, events = await checked(model)
    [request] = model.asked
    started, finished = events

    assert answers == ["yes"]
    assert ([message.text for message in request.messages], request.instructions) == (["Is it done?"], "Say yes or no.")
    assert (request.tools, request.tool_choice, request.session_id) == ((), "none", started.session_id)
    assert isinstance(started, ModelStarted)
    assert (started.model, started.messages, started.tool_choice) == ("judge", 1, "none")
    assert isinstance(finished, ModelFinished)
    assert (finished.message.text, finished.message.origin, finished.finish) == ("yes", "judge", "stop")
    assert (finished.usage, finished.cost, finished.turns) == (Usage(input_tokens=10, output_tokens=2), "12", 0)
    assert started.act == finished.act


async def test_a_response_without_an_end_is_asked_for_again_and_counts_what_was_sent():
    model = Judge(None, said("yes"))

    answers, events = await checked(model)

    assert answers == ["yes"]
    assert [(type(event), event.attempt) for event in events if isinstance(event, ModelStarted | ModelFailed | ModelFinished)] == [
        (ModelStarted, 1), (ModelFailed, 1), (ModelStarted, 2), (ModelFinished, 2),
    ]  # fmt: skip
    failed = events[1]
    assert isinstance(failed, ModelFailed)
    assert (failed.error, failed.usage is not None and failed.usage.estimated) == ("IncompleteStream", True)
    assert failed.retry_in_seconds is not None


async def test_an_answer_that_is_cut_off_is_asked_for_again_with_a_higher_limit_and_then_marked():
    model = Judge(said("It is", Finish.LENGTH), said("It is not", Finish.LENGTH))

    answers, _ = await checked(model)

    assert [request.raise_output_limit for request in model.asked] == [False, True]
    assert answers[0].startswith("It is not\n")
