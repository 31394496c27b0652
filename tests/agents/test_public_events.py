"""What a browser may see of a run: texts, names, progress, questions and the end, and nothing that was not meant for people."""

import itertools
import json
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from ag_ui.core import Event as AgUiEvent
from pydantic import TypeAdapter

from treadle import Agent, Budget, ConfigurationError, Rejected, Session, ToolContext, ToolOutput, open_session, tool
from treadle.budgets import Guards
from treadle.events import (
    AnyPublicEvent,
    PublicCall,
    PublicEnd,
    PublicQuestion,
    PublicReasoning,
    PublicResult,
    PublicText,
    encode_event,
    public_events,
)
from treadle.serve import serve_ag_ui
from treadle.testing import ScriptedModel, Turn, call, text

SECRETS = ["/srv/shop/prices.py", "Traceback", "sk-live-4711abcd", "ada@example.com", "Margin rule 7"]
"""A path, a traceback, a key, an argument, a rule: none is for a browser."""
ARGUMENT = "ada@example.com"


@tool(effect="read")
async def find(email: str, ctx: ToolContext) -> ToolOutput:
    """Find a customer."""
    ctx.progress("Looking", done=1, total=2)
    return ToolOutput(data={"path": "/srv/shop/prices.py"}, display="One customer")


@tool(effect="unsafe")
async def refund(email: str) -> str:
    """Refund a customer."""
    return f"refunded {email}"


async def public(events: Any, **options: Any) -> list[AnyPublicEvent]:
    return [event async for event in public_events(events, **options)]


async def test_a_browser_sees_texts_names_progress_questions_usage_and_the_end():
    model = ScriptedModel(
        [Turn(text="I look.", thinking="Hm.", calls=(call("find", email=ARGUMENT),)), call("refund", email=ARGUMENT)]
    )
    async with Agent(model, tools=[find, refund]).stream("Refund Ada") as run:
        seen = await public(run)

    names = [one.type for one in seen if one.type != "text"]
    assert names == ["start", "message", "call", "usage", "progress", "result", "call", "usage", "question", "end"]
    assert "".join(one.text for one in seen if isinstance(one, PublicText)) == "I look."
    (result,) = [one for one in seen if isinstance(one, PublicResult)]
    assert (result.status, result.text, result.content) == ("ok", "One customer", None)
    (question,) = [one for one in seen if isinstance(one, PublicQuestion)]
    assert (question.id, question.tool, question.arguments) == (run.result.approvals[0].id, "refund", None)
    assert [(one.status, one.reason) for one in seen if isinstance(one, PublicEnd)] == [("paused", "approval_required")]
    assert not [secret for secret in SECRETS if secret in b"".join(map(encode_event, seen)).decode()]


async def test_what_is_asked_for_is_shown_too():
    model = ScriptedModel([Turn(thinking="Hm.", calls=(call("find", email=ARGUMENT),)), call("refund", email=ARGUMENT)])
    async with Agent(model, tools=[find, refund]).stream("Refund Ada") as run:
        seen = await public(run, show=["reasoning", "arguments", "results", "rules"])

    assert "".join(one.text for one in seen if isinstance(one, PublicReasoning)) == "Hm."
    assert [json.loads(one.arguments or "") for one in seen if isinstance(one, PublicCall)] == [{"email": ARGUMENT}] * 2
    assert [one.content for one in seen if isinstance(one, PublicResult)] == ['{"path":"/srv/shop/prices.py"}']
    (question,) = [one for one in seen if isinstance(one, PublicQuestion)]
    assert question.arguments == {"email": ARGUMENT}
    assert question.rule
    with pytest.raises(ConfigurationError, match="show must be a list of values, each 'reasoning' or"):
        await public(run, show=["argument"])


async def test_a_client_that_comes_back_can_put_the_pieces_of_a_text_in_their_place():
    model = ScriptedModel(
        [
            Turn(text="One. Two. Three.", pieces=4, cut="before-terminal"),
            Turn(text="One. Two. Four.", pieces=3),
            text("More."),
        ]
    )
    agent, shown = Agent(model), dict[str, str]()
    async with agent.stream("Count") as run:
        live = await public(run)
    session = run.result.session
    await agent.run("Go on", session=session)

    for event in [
        *live,
        *await public(session.events()),
    ]:  # who has the pieces reads the session again from its beginning
        if isinstance(event, PublicText):
            shown[event.message_id] = shown.get(event.message_id, "")[: event.offset] + event.text
    assert list(shown.values()) == ["One. Two. Four.", "More."]


def failing_runs() -> Iterable[Agent]:
    """A hundred agents whose runs fail, each in another way or at another place."""

    def raising(error: Callable[[], BaseException]) -> Any:
        @tool(effect="read", name="find")
        async def failing(email: str) -> str:
            """Find a customer."""
            raise error()

        return failing

    words = " ".join(SECRETS)
    errors = [
        lambda kind=kind: kind(words)
        for kind in (ValueError, OSError, KeyError, ConnectionError, TimeoutError, RuntimeError)
    ]
    errors += [lambda: Rejected({"error": words}), lambda: SystemExit(words)]  # type: ignore[list-item]  # as the others
    bad = [call("find", email=ARGUMENT), call("find", email=7, path=SECRETS[0]), call("gone", email=ARGUMENT)]
    ends = [
        text("No."),
        Turn(status=500, error=words),
        Turn(status=400, error=words),
        Turn(refusal="No"),
        Turn(text="N", cut="before-terminal"),
    ]
    for error, first, last in itertools.product(errors, bad, ends):
        guards = Guards(failures=1) if isinstance(last, Turn) else None
        budget = Budget(max_retries_per_model_call=0, max_retries_per_tool_call=0)
        yield Agent(
            ScriptedModel([first, last]), tools=[raising(error)], guards=guards, budget=budget, failure_text="whole"
        )


async def test_no_failing_run_shows_a_browser_a_traceback_a_path_a_key_or_an_argument():
    count = 0
    for agent in itertools.islice(failing_runs(), 100):
        async with agent.stream("Refund her") as run:
            seen = b"".join([encode_event(one) for one in await public(run)])
        stored = await public(run.result.session.events())
        seen += b"".join(map(encode_event, stored)) + await replied(agent, run.result.session, "Again")
        assert not [secret for secret in SECRETS if secret in seen.decode()]
        count += 1
    assert count == 100


def request(task: str | None = None, **more: Any) -> bytes:
    messages = [] if task is None else [{"id": "u1", "role": "user", "content": task}]
    return json.dumps({"threadId": "t", "runId": "r", "messages": messages} | more).encode()


async def replied(agent: Agent, session: Session, task: str | None = None, **more: Any) -> bytes:
    options = {name: more.pop(name) for name in ("show", "state") if name in more}
    return b"".join([piece async for piece in serve_ag_ui(agent, session, request(task, **more), **options)])


def parsed(body: bytes) -> list[Any]:
    adapter = TypeAdapter(AgUiEvent)
    return [adapter.validate_json(one.removeprefix(b"data: ")) for one in body.split(b"\n\n") if one]


async def test_an_ag_ui_client_gets_a_paused_run_as_interrupts_and_resumes_it_with_their_answers():
    model = ScriptedModel([[call("refund", email="a"), call("refund", email="b")], text("Done.")])
    agent = Agent(model, tools=[refund])
    async with open_session("memory:") as session:
        paused = parsed(await replied(agent, session, "Refund both", state=lambda one: one.state.run_status))
        first, second = paused[-1].outcome.interrupts
        answers = [
            {"interruptId": first.id, "status": "resolved", "payload": {"approved": True}},
            {"interruptId": second.id, "status": "cancelled"},
        ]
        ended = parsed(await replied(agent, session, resume=answers))
        events = await session.events()

    assert [one.snapshot for one in paused if one.type == "STATE_SNAPSHOT"] == ["active", "paused"]
    assert sorted(one.content for one in ended if one.type == "TOOL_CALL_RESULT") == ["denied", "ok"]
    assert ended[-1].outcome.type == "success"
    assert [(one.answer, one.approved_by) for one in events if one.type == "approval.answered"] == [
        ("allow", "person"),
        ("deny", "person"),
    ]


async def test_an_ag_ui_client_sends_images_and_files_with_its_task():
    sources = [
        {"type": "data", "value": "aGk=", "mimeType": "image/png"},
        {"type": "url", "value": "https://example.com/a.pdf"},
    ]
    content = [
        {"type": "text", "text": "Look"},
        *({"type": kind, "source": one} for kind, one in zip(("image", "document"), sources, strict=True)),
    ]
    model = ScriptedModel([text("I see.")])
    async with open_session("memory:") as session:
        await replied(Agent(model), session, messages=[{"id": "u1", "role": "user", "content": content}])
    looked, image, document = model.requests[0].messages[0].parts
    assert (looked.text, image.base64, image.media_type) == ("Look", "aGk=", "image/png")
    assert (document.url, document.media_type) == ("https://example.com/a.pdf", "document/*")


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (request("Hi"), "ConnectionError"),
        (request(resume=[{"interruptId": "none", "status": "resolved"}]), "UnknownApproval"),
    ],
)
async def test_an_ag_ui_client_reads_of_a_failure_its_code_and_no_words_of_it(body: bytes, code: str):
    agent = Agent(ScriptedModel([ConnectionError(SECRETS[0])]), budget=Budget(max_retries_per_model_call=0))
    async with open_session("memory:") as session:
        pieces, raised = list[bytes](), False
        try:
            async for piece in serve_ag_ui(agent, session, body):
                pieces.append(piece)
        except ConnectionError:
            raised = True
    end = parsed(b"".join(pieces))[-1]
    assert raised == (code == "ConnectionError")  # for the operator
    assert (end.type, end.code) == ("RUN_ERROR", code)
    assert SECRETS[0] not in end.message


async def test_a_body_that_is_no_ag_ui_request_is_refused_with_the_place():
    async with open_session("memory:") as session:
        with pytest.raises(ConfigurationError, match="not a RunAgentInput of AG-UI: threadId: Field required"):
            await anext(serve_ag_ui(Agent(ScriptedModel([text("Hi")])), session, b'{"runId": "r", "messages": []}'))
