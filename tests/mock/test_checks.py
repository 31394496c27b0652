"""The strict checks of the mock: what each dialect refuses and takes, in one body, and the vendors' own types as judges of it."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import botocore.session
import pydantic
import pytest
import test_mock_anthropic as anthropic
import test_mock_bedrock as bedrock
import test_mock_cohere as cohere
import test_mock_gemini as gemini
import test_mock_responses as responses
from anthropic.types.beta import BetaMessageParam
from anthropic.types.beta.message_create_params import MessageCreateParams
from botocore.validate import ParamValidator
from google.genai.types import Content
from openai.types.chat import ChatCompletionMessageParam
from openai.types.responses import ResponseInputParam

from treadle.mock.dialects.anthropic import check_anthropic_request
from treadle.mock.dialects.bedrock import check_converse_request
from treadle.mock.dialects.cohere import check_cohere_request
from treadle.mock.dialects.gemini import check_gemini_request
from treadle.mock.dialects.openai_responses import check_responses_request
from treadle.testing import (
    Refusal,
    check_anthropic_history,
    check_chat_history,
    check_cohere_history,
    check_converse_history,
    check_gemini_history,
    check_responses_history,
)

# --- Chat Completions; the other dialects' cases are in the files of their tests

USER = {"role": "user", "content": "go"}
RECORDINGS = Path(__file__).parents[3] / "shared" / "recordings"


def made(*calls, **more):
    return {"role": "assistant", "content": None, "tool_calls": list(calls), **more}


def one(call_id="call_1", name="look", arguments="{}", **more):
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}, **more}


def result(call_id="call_1", content="ok", **more):
    return {"role": "tool", "tool_call_id": call_id, "content": content, **more}


def without(message, *keys):
    return {key: value for key, value in message.items() if key not in keys}


NOT_ANSWERED = "did not have response messages: "
INVALID = {
    "not a list": ({"role": "user"}, "expected an array of objects, but got an object"),
    "no message": ([], "Invalid 'messages': empty array"),
    "a message that is text": (["go"], "Invalid type for 'messages[0]'"),
    "a message without a role": ([{"content": "go"}], "Missing required parameter: 'messages[0].role'"),
    "an unknown role": ([{"role": "robot", "content": "go"}], "Invalid value: 'robot'"),
    "a role that is not text": ([{"role": ["user"], "content": "go"}], "Invalid type for 'messages[0].role'"),
    "a user without content": ([{"role": "user"}], "Missing required parameter: 'messages[0].content'"),
    "a user with content null": ([{"role": "user", "content": None}], "but got null instead"),
    "a user with a number": ([{"role": "user", "content": 1}], "but got an integer instead"),
    "a user with an empty list of parts": ([{"role": "user", "content": []}], "'messages[0].content': empty array"),
    "a part that is text": ([{"role": "user", "content": ["go"]}], "Invalid type for 'messages[0].content[0]'"),
    "a part of an unknown type": ([{"role": "user", "content": [{"type": "tool_result"}]}], "Invalid value: 'tool_result'"),
    "a text part without text": ([{"role": "user", "content": [{"type": "text"}]}], "'messages[0].content[0].text'"),
    "an image in a system message": (
        [{"role": "system", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}],
        "Invalid value: 'image_url'",
    ),
    "an assistant with neither content nor calls": ([USER, {"role": "assistant"}], "expected a string, got null"),
    "an assistant with content null and no calls": ([USER, {"role": "assistant", "content": None}], "got null"),
    "an assistant with an empty list of calls": ([USER, made(content="hm")], "'messages[1].tool_calls': empty array"),
    "calls that are not list": ([USER, made() | {"tool_calls": one()}], "'messages[1].tool_calls': expected an array"),
    "a call that is text": ([USER, made("look")], "Invalid type for 'messages[1].tool_calls[0]'"),
    "a call that nobody answered, at the end": ([USER, made(one())], NOT_ANSWERED + "call_1"),
    "a call that nobody answered, before a user": ([USER, made(one()), USER], NOT_ANSWERED + "call_1"),
    "a call that nobody answered, before an assistant": ([USER, made(one()), {"role": "assistant", "content": "done"}], NOT_ANSWERED + "call_1"),
    "one of two calls unanswered": ([USER, made(one("a"), one("b")), result("a"), USER], NOT_ANSWERED + "b"),
    "the last of three calls unanswered at the end": ([USER, made(one("a"), one("b"), one("c")), result("c"), result("a")], NOT_ANSWERED + "b"),
    "a result after a user message": ([USER, made(one()), USER, result()], NOT_ANSWERED + "call_1"),
    "a user between two results": ([USER, made(one("a"), one("b")), result("a"), USER, result("b")], NOT_ANSWERED + "b"),
    "a system message before the result": ([USER, made(one()), {"role": "system", "content": "hurry"}, result()], NOT_ANSWERED + "call_1"),
    "a result that comes first": ([result()], "must be a response to a preceeding message with 'tool_calls'"),
    "a result after a user, no call": ([USER, result()], "must be a response to a preceeding message"),
    "a result after an assistant without calls": (
        [USER, {"role": "assistant", "content": "hi"}, result()],
        "must be a response to a preceeding message",
    ),
    "a result of an earlier, answered step": (
        [USER, made(one()), result(), {"role": "assistant", "content": "hi"}, result()],
        "must be a response to a preceeding message",
    ),
    "a result before its call": ([USER, result(), made(one())], "must be a response to a preceeding message"),
    "a result for another id": ([USER, made(one("a")), result("b")], "'tool_call_id' of 'b' not found"),
    "a result for the id of the step before": (
        [USER, made(one("a")), result("a"), made(one("b")), result("a"), result("b")],
        "'tool_call_id' of 'a' not found",
    ),
    "two results for one call": ([USER, made(one("a")), result("a"), result("a")], "Duplicate value for 'tool_call_id' of 'a'"),
    "two results for one call of two": ([USER, made(one("a"), one("b")), result("a"), result("a")], "Duplicate value for 'tool_call_id' of 'a'"),
    "two calls with one id": ([USER, made(one("a"), one("a")), result("a")], "Duplicate value for 'id' of 'a'"),
    "a call without an id": ([USER, made(without(one(), "id")), result()], "'messages[1].tool_calls[0].id'"),
    "a call with an empty id": ([USER, made(one("")), result("")], "'messages[1].tool_calls[0].id': empty string"),
    "a call with a numeric id": ([USER, made(one(7)), result(7)], "expected a string, but got an integer"),
    "a call with an id of 41 characters": ([USER, made(one("x" * 41)), result("x" * 41)], "with length 41 instead"),
    "a call without a type": ([USER, made(without(one(), "type")), result()], "'messages[1].tool_calls[0].type'"),
    "a call of an unknown type": ([USER, made(one() | {"type": "tool"}), result()], "Invalid value: 'tool'"),
    "a call without a function": ([USER, made(without(one(), "function")), result()], "tool_calls[0].function'"),
    "a call with an empty name": ([USER, made(one(name="")), result()], "function.name': empty string"),
    "a call whose name has a space": ([USER, made(one(name="look up")), result()], "does not match pattern"),
    "a call whose name ends in a newline": ([USER, made(one(name="look\n")), result()], "does not match pattern"),
    "a call whose name is too long": ([USER, made(one(name="x" * 65)), result()], "maximum length 64"),
    "arguments that are an object": ([USER, made(one(arguments={})), result()], "function.arguments': expected a string"),
    "arguments cut off": ([USER, made(one(arguments='{"a": ')), result()], "function.arguments': the string is not valid JSON"),
    "arguments with NaN": ([USER, made(one(arguments='{"a": NaN}')), result()], "is not valid JSON"),
    "arguments that are empty": ([USER, made(one(arguments="")), result()], "function.arguments': empty string"),
    "arguments nested too deeply": ([USER, made(one(arguments="[" * 100_000)), result()], "is not valid JSON"),
    "a result without an id": ([USER, made(one()), without(result(), "tool_call_id")], "'messages[2].tool_call_id'"),
    "a result with an empty id": ([USER, made(one()), result("")], "'messages[2].tool_call_id': empty string"),
    "a result without content": ([USER, made(one()), without(result(), "content")], "'messages[2].content'"),
    "a result with content null": ([USER, made(one()), result(content=None)], "but got null instead"),
    "a result that is an object": ([USER, made(one()), result(content={"a": 1})], "but got an object instead"),
    "a result with an image part": (
        [USER, made(one()), result(content=[{"type": "image_url", "image_url": {"url": "x"}}])],
        "Invalid value: 'image_url'",
    ),
    "a user with calls": ([{**USER, "tool_calls": [one()]}], "Invalid type for 'messages[0].tool_calls'"),
    "a fault far down a long history": (
        [USER, *([made(one("a")), result("a")] * 50), made(one("a")), result("b")],
        "'tool_call_id' of 'b' not found",
    ),
}  # fmt: skip
VALID = {
    "a question": [USER],
    "instructions of both kinds": [{"role": "system", "content": "s"}, {"role": "developer", "content": "d"}, USER],
    "one call and its result": [USER, made(one()), result()],
    "calls with words": [USER, made(one(), content="I look."), result()],
    "calls without a content key": [USER, without(made(one()), "content"), result()],
    "results in another order": [USER, made(one("a"), one("b")), result("b"), result("a")],
    "an id used again in a later step": [USER, made(one()), result(), made(one()), result()],
    "a user after the results": [USER, made(one()), result(), USER],
    "an answer after the results": [USER, made(one()), result(), {"role": "assistant", "content": "done"}],
    "an empty result": [USER, made(one()), result(content="")],
    "a result in parts": [USER, made(one()), result(content=[{"type": "text", "text": "a"}])],
    "a user with an image": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}],
    "a refusal": [USER, {"role": "assistant", "content": None, "refusal": "No."}, USER],
    "an id of 40 characters": [USER, made(one("x" * 40)), result("x" * 40)],
    "calls null": [USER, {"role": "assistant", "content": "hi", "tool_calls": None}],
    "arguments that are a list": [USER, made(one(arguments="[1]")), result()],
    "128 calls at once": [USER, made(*(one(f"c{n}") for n in range(128))), *(result(f"c{n}") for n in range(128))],
}


# --- every dialect

Check = Callable[[Any], object]
Table = Mapping[str, Any] | Sequence[Any]
REFUSED: list[tuple[str, Check, Table]] = [
    ("chat", check_chat_history, INVALID),
    ("responses", check_responses_history, responses.INVALID),
    ("responses", check_responses_request, responses.BAD_REQUESTS),
    ("anthropic", check_anthropic_history, anthropic.INVALID),
    ("anthropic", check_anthropic_request, anthropic.REFUSED),
    ("converse", check_converse_history, bedrock.HISTORIES),
    ("converse", check_converse_request, bedrock.BODIES),
    ("gemini", check_gemini_history, gemini.INVALID),
    ("gemini", check_gemini_request, gemini.BAD_REQUESTS),
    ("cohere", check_cohere_history, cohere.INVALID),
    ("cohere", check_cohere_request, cohere.BAD_REQUESTS),
]
TAKEN: list[tuple[str, Check, Table]] = [
    ("chat", check_chat_history, VALID),
    ("responses", check_responses_history, responses.VALID),
    ("responses", check_responses_request, responses.GOOD_REQUESTS),
    ("anthropic", check_anthropic_history, anthropic.VALID),
    ("anthropic", check_anthropic_request, anthropic.TAKEN),
    ("gemini", check_gemini_history, gemini.VALID),
    ("gemini", check_gemini_request, gemini.GOOD_REQUESTS),
    ("cohere", check_cohere_history, cohere.VALID),
]


def cases(tables: Iterable[tuple[str, Any, Table]]) -> list[Any]:
    return [
        pytest.param(check, case, id=f"{dialect}: {name}")
        for dialect, check, table in tables
        for name, case in (table.items() if isinstance(table, Mapping) else enumerate(table))
    ]


@pytest.mark.row("Z01", "W03", "W04", "W05", "W08", "D04", "V15", "P-MOCK", "P-COHERE")
@pytest.mark.parametrize(("check", "case"), cases(REFUSED))
def test_what_the_vendor_refuses_is_refused_and_its_place_is_named(check: Check, case: tuple[Any, str]) -> None:
    value, words = case

    with pytest.raises(Refusal) as refused:
        check(value)

    assert words in refused.value.message
    assert refused.value.status in (400, 422)


@pytest.mark.row("Z01", "W04", "P-MOCK", "P-COHERE")
@pytest.mark.parametrize(("check", "value"), cases(TAKEN))
def test_what_the_vendor_takes_is_taken_and_unchanged(check: Check, value: Any) -> None:
    before = json.dumps(value)

    check(value)

    assert json.dumps(value) == before


@pytest.mark.parametrize("check", dict.fromkeys(check for _, check, _ in REFUSED), ids=lambda check: check.__name__)
def test_a_body_of_any_depth_and_with_half_characters_is_refused_like_any_other(check: Check) -> None:
    deep: Any = []
    for _ in range(20_000):
        deep = [deep]

    for value in (deep, {"\ud800": 1}, {"messages": deep, "contents": deep, "input": deep}):
        with pytest.raises(Refusal):
            check(value)


JUDGES: list[tuple[str, pydantic.TypeAdapter[Any], Table]] = [
    (
        "chat",
        pydantic.TypeAdapter(list[ChatCompletionMessageParam]),
        {name: case for name, case in VALID.items() if name != "calls null"},
    ),
    ("responses", pydantic.TypeAdapter(str | ResponseInputParam), responses.VALID),
    ("anthropic", pydantic.TypeAdapter(list[BetaMessageParam]), anthropic.VALID),
    ("anthropic", pydantic.TypeAdapter(MessageCreateParams), anthropic.TAKEN),
    ("gemini", pydantic.TypeAdapter(list[Content]), gemini.VALID),
]


@pytest.mark.parametrize(("judge", "value"), cases(JUDGES))
def test_what_is_taken_is_of_the_vendors_own_type(judge: pydantic.TypeAdapter[Any], value: Any) -> None:
    read_all(judge.validate_python(value))


def read_all(value: Any) -> None:
    """Read what the vendor's types declare as iterables: pydantic looks at an item when it is read."""
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        for item in value.values() if isinstance(value, Mapping) else value:
            read_all(item)


def test_what_converse_takes_is_of_the_vendors_own_type() -> None:
    service = botocore.session.Session().get_service_model("bedrock-runtime")
    body = bedrock.TAKEN | {"modelId": "m"}

    assert not ParamValidator().validate(body, service.operation_model("Converse").input_shape).has_errors()


def test_broken_arguments_are_taken_when_the_server_is_lenient_about_them():
    check_chat_history([USER, made(one(arguments='{"a": ')), result()], lenient_arguments=True)


def test_histories_that_the_vendor_took_are_taken():
    files = sorted(RECORDINGS.glob("loops/openai-chat/*openai*.json"))
    if not files:
        pytest.skip("SKIPPED, NOT PROVED: the recordings are not beside the project (../shared/recordings)")
    for file in files:
        for exchange in json.loads(file.read_text(encoding="utf-8"))["interactions"]:
            if exchange["status"] == 200 and "messages" in exchange["request"]:
                check_chat_history(exchange["request"]["messages"])
