"""Calls that a server leaves in the text: they run like any others, or the model is told; never are they an answer."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from treadle import Agent, Budget, RunResult, Tool, deny, resolve_model
from treadle.drivers.text_calls import calls_in_text
from treadle.events import ModelFinished
from treadle.ports import ToolSpec
from treadle.testing import MockProvider, ScriptedModel, Turn, call, text
from treadle.tools import JsonObject

SCHEMA: JsonObject = {"type": "object", "properties": {"a": {"type": "integer"}, "s": {"type": "string"}}, "additionalProperties": False}  # fmt: skip
ADD = ToolSpec(name="add", description="Add.", parameters=SCHEMA)
DOTTED = ToolSpec(name="fs.read", description="Read.", parameters=SCHEMA)
ONE = {"a": 1, "s": "2"}
JSON = '{"name": "add", "arguments": {"a": 1, "s": "2"}}'
ARGS = '{"a": 1, "s": "2"}'
PARAMETERS = '<parameter name="a">1</parameter>\n<parameter name="s">2</parameter>'

MARKUPS = {
    "Hermes": f"<tool_call>\n{JSON}\n</tool_call>",
    "Hermes, not closed": f"\n\n<tool_call>\n{JSON}\n",
    "Hermes, parameters": '<tool_call>{"name": "add", "parameters": {"a": 1, "s": "2"}}</tool_call>',
    "Hermes, arguments as a text": f"<tool_call>{json.dumps({'name': 'add', 'arguments': ARGS})}</tool_call>",
    "Qwen XML": "<tool_call>\n<function=add>\n<parameter=a>\n1\n</parameter>\n<parameter=s>\n2\n</parameter>\n</function>\n</tool_call>",
    "Qwen XML, without its frame": "<function=add>\n<parameter=a>\n1\n</parameter>\n<parameter=s>2</parameter>\n</function>\n</tool_call>",
    "Mistral, old": f"[TOOL_CALLS][{JSON}]",
    "Mistral, spaced": f"[TOOL_CALLS] [{JSON}]</s>",
    "Mistral, new": f"[TOOL_CALLS]add[ARGS]{ARGS}",
    "Mistral, with an id": f"[TOOL_CALLS]add[CALL_ID]abc123[ARGS]{ARGS}",
    "Llama": f"<function=add>{ARGS}</function>",
    "Llama, python tag": '<|python_tag|>{"name": "add", "parameters": {"a": 1, "s": "2"}}<|eom_id|>',
    "DeepSeek V3": f"<\uff5ctool\u2581calls\u2581begin\uff5c><\uff5ctool\u2581call\u2581begin\uff5c>function<\uff5ctool\u2581sep\uff5c>add\n```json\n{ARGS}\n```<\uff5ctool\u2581call\u2581end\uff5c><\uff5ctool\u2581calls\u2581end\uff5c>",
    "DeepSeek V3.1": f"<\uff5ctool\u2581calls\u2581begin\uff5c><\uff5ctool\u2581call\u2581begin\uff5c>add<\uff5ctool\u2581sep\uff5c>{ARGS}<\uff5ctool\u2581call\u2581end\uff5c><\uff5ctool\u2581calls\u2581end\uff5c>",
    "DeepSeek V3.2": '<\uff5cDSML\uff5cfunction_calls>\n<\uff5cDSML\uff5cinvoke name="add">\n<\uff5cDSML\uff5cparameter name="a" string="false">1</\uff5cDSML\uff5cparameter>\n<\uff5cDSML\uff5cparameter name="s" string="true">2</\uff5cDSML\uff5cparameter>\n</\uff5cDSML\uff5cinvoke>\n</\uff5cDSML\uff5cfunction_calls>',
    "Kimi": f"<|tool_calls_section_begin|><|tool_call_begin|>functions.add:0<|tool_call_argument_begin|>{ARGS}<|tool_call_end|><|tool_calls_section_end|>",
    "GLM": "<tool_call>add\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n<arg_key>s</arg_key>\n<arg_value>2</arg_value>\n</tool_call>",
    "invoke": f'<invoke name="add">\n{PARAMETERS}\n</invoke>',
    "invoke, framed": f'<function_calls>\n<invoke name="add">\n{PARAMETERS}\n</invoke>\n</function_calls>',
    "MiniMax": f'<minimax:tool_call>\n<invoke name="add">\n{PARAMETERS}\n</invoke>\n</minimax:tool_call>',
    "Granite": f"<|tool_call|>[{JSON}]",
    "Phi": f"<|tool_call|>[{JSON}]<|/tool_call|>",
    "Nemotron": f"<TOOLCALL>[{JSON}]</TOOLCALL>",
    "Command": '<|START_ACTION|>[{"tool_call_id": "0", "tool_name": "add", "parameters": {"a": 1, "s": "2"}}]<|END_ACTION|>',
    "Hunyuan, in words": f"<tool_calls><tool_call>add\n```json\n{ARGS}\n```</tool_call></tool_calls>",
    "LongCat": f"<longcat_tool_call>{JSON}</longcat_tool_call>",
    "InternLM": f"<|action_start|><|plugin|>{JSON}<|action_end|>",
    "gpt-oss": f"<|channel|>commentary to=functions.add <|constrain|>json<|message|>{ARGS}<|call|>",
    "gpt-oss, with its start": f"<|start|>assistant<|channel|>commentary to=functions.add<|message|>{ARGS}<|call|>",
    "Hunyuan": f"<tool_calls>[{JSON}]</tool_calls>",
}  # fmt: skip


@pytest.mark.parametrize("said", MARKUPS.values(), ids=MARKUPS)
def test_a_text_that_is_nothing_but_a_call_is_recognised_in_every_markup(said):
    (found,) = calls_in_text(said, [DOTTED, ADD])

    assert (found.call.name, json.loads(found.call.arguments), found.is_whole) == ("add", ONE, True)


@pytest.mark.parametrize(
    ("said", "names"),
    [
        (f"<tool_call>\n{JSON}\n</tool_call>\n<tool_call>\n{JSON}\n</tool_call>", ["add", "add"]),
        (f"<tool_call>{JSON}\n{JSON}</tool_call>", ["add", "add"]),
        (f"[TOOL_CALLS][{JSON}, {JSON}]", ["add", "add"]),
        (f"[TOOL_CALLS]add{ARGS}[TOOL_CALLS]add{ARGS}", ["add", "add"]),
        (f"<|python_tag|>{JSON}; {JSON}", ["add", "add"]),
        (f'<invoke name="add">{PARAMETERS}</invoke>\n<invoke name="add"></invoke>', ["add", "add"]),
        ("<tool_call>add</tool_call>", ["add"]),
        ('<tool_call>{"name": "add"}</tool_call>', ["add"]),
        ('<tool_call>{"name": "fs_read", "arguments": {}}</tool_call>', ["fs.read"]),
        ('<tool_call>{"name": "add", "arguments": {"a": 1}</tool_call>', ["add"]),  # broken inside, and a call all the same
        ("<tool_call>{'name': 'add', 'arguments': {}}</tool_call>", []),
    ],
)  # fmt: skip
def test_several_calls_and_broken_ones_are_recognised(said, names):
    assert [one.call.name for one in calls_in_text(said, [DOTTED, ADD])] == names


PROSE = {
    "before": f"I add.\n<tool_call>{JSON}</tool_call>",
    "after": f"<tool_call>{JSON}</tool_call>\nThat adds.",
    "between": f"<tool_call>{JSON}</tool_call> and <tool_call>{JSON}</tool_call>",
    "fenced": f"```\n<tool_call>{JSON}</tool_call>\n```",
    "quoted": f'"<tool_call>{JSON}</tool_call>"',
    "an unknown tool": f"<tool_call>{JSON.replace('add', 'subtract')}</tool_call>",
    "one unknown tool of two": f"<tool_call>{JSON}</tool_call><tool_call>{JSON.replace('add', 'sub')}</tool_call>",
    "bare JSON with more in it": '{"name": "add", "arguments": {}, "age": 3}',
    "bare JSON without arguments": '{"name": "add"}',
    "bare JSON in a sentence": f"I call {JSON}.",
    "two fences": f"```json\n{JSON}\n```\nor\n```json\n{JSON}\n```",
    "a fence of code": "```python\nadd(1)\n```",
    "no call in it": "<tool_call>",
    "another object": '<tool_call>{"a": 1}</tool_call>',
    "another tag": '<call name="add"></call>',
    "XML": "<answer>add</answer>",
    "a list": "[1, 2]",
    "a name alone": "<function=add>",
    "a place": '<invoke name="add"> is how the model calls the tool.',
}


@pytest.mark.parametrize("said", PROSE.values(), ids=PROSE)
async def test_a_text_with_anything_else_is_an_answer(said):
    model = ScriptedModel([text(said)])

    result = await Agent(model, tools=[add([])]).run("go")

    assert (result.completed, result.text, len(model.requests)) == (True, said, 1)


def test_half_markup_of_any_length_is_read_in_a_moment():
    for piece in ("<tool_call>", "[TOOL_CALLS]", "<parameter=a>", "[" * 9, '<invoke name="add">', "<tool_calls> "):
        assert calls_in_text(piece * 20_000, [ADD]) == ()


# --- what comes of it


def add(ran: list[Any], *, closed: bool = True) -> Tool:
    async def run(arguments: JsonObject, ctx: Any) -> str:
        ran.append(arguments)
        return "3"

    schema = {**SCHEMA, "additionalProperties": not closed}
    return Tool(name="add", description="Add.", run=run, parameters=schema, effect="unsafe", permission="allow")


LEAKED = f"<tool_call>\n{JSON}\n</tool_call>"


@pytest.mark.parametrize("said", MARKUPS.values(), ids=MARKUPS)
async def test_such_a_text_is_a_call_like_any_other(said):
    ran: list[Any] = []
    events: list[Any] = []
    model = ScriptedModel([text(said), text("3")])

    result = await Agent(model, tools=[add(ran)], subscribers=[events.append]).run("go")

    (first, _) = [event for event in events if isinstance(event, ModelFinished)]
    assert (result.completed, result.text, ran) == (True, "3", [ONE])
    assert (first.from_text, first.message.text, [one.name for one in first.message.calls]) == (said, "", ["add"])
    assert [message.role for message in model.requests[1].messages] == ["user", "assistant", "tool"]
    assert "no parser" in result.advice
    assert result.report()["advice"] == result.advice


async def test_it_is_validated_decided_and_counted():
    ran: list[Any] = []
    unfit = '<tool_call>{"name": "add", "arguments": {"a": [], "b": 2}}</tool_call>'
    broken = "<tool_call>add\n{'a': 1}</tool_call>"

    denied = await Agent(ScriptedModel([text(LEAKED), text("no")]), tools=[add(ran)], policy=deny("add")).run("go")
    invalid = await Agent(ScriptedModel([text(unfit), text("no")]), tools=[add(ran)]).run("go")
    counted = await Agent(
        ScriptedModel([text(LEAKED)]), tools=[add(ran)], budget=Budget(max_tool_calls=0), on_limit="report"
    ).run("go")
    none = await Agent(ScriptedModel([text(LEAKED), text("no")]), tools=[add(ran)], tool_choice="none").run("go")
    lost = await Agent(ScriptedModel([text(broken), text("no")]), tools=[add(ran)]).run("go")

    statuses = [[one.status for one in result.tool_calls] for result in (denied, invalid, counted, none, lost)]
    assert statuses == [["denied"], ["invalid_arguments"], ["skipped"], ["skipped"], []]
    assert ran == []


async def test_two_calls_have_ids_of_their_own_in_every_step():
    ran: list[Any] = []
    two = f"{LEAKED}\n{LEAKED.replace('1', '2')}"
    result = await Agent(ScriptedModel([text(two), text(two.replace("1", "3")), text("3")]), tools=[add(ran)]).run("go")

    assert len({one.id for one in result.tool_calls}) == len(ran) == 4


@pytest.mark.parametrize(
    "said",
    [
        '<tool_call>{"name": "add", "arguments": {"a": 1}</tool_call>',
        '<tool_call>{"tool": {"name": "add"}, "a": 1}</tool_call>',
        '<tool_call>{"name": "add", "arguments": {"a": 1, "a": 2}}</tool_call>',
        "<function=add><parameter=a>1</parameter>",
        "<tool_call>\n<function=add>\n<parameter=a>\n1\n</parameter>",
    ],
)
async def test_a_call_that_is_not_whole_never_runs(said):
    ran: list[Any] = []
    model = ScriptedModel([text(said), text(said.replace("1", "2")), text(said)])

    result = await Agent(model, tools=[add(ran, closed=False)]).run("go")

    assert (result.reason, result.completed, len(model.requests), ran) == ("no_final_answer_or_tool_call", False, 3, [])
    assert "Write the whole call again" in model.requests[1].messages[-1].text


QUOTES = {
    "as it is": LEAKED,
    "in a file": f"# notes.md\n\n{LEAKED}\n",
    "in JSON": json.dumps({"output": LEAKED}),
    "in JSON in JSON": json.dumps({"output": json.dumps({"text": LEAKED}, ensure_ascii=True)}),
    "in HTML": "&lt;tool_call&gt;{&quot;name&quot;: &quot;add&quot;, &quot;arguments&quot;: {&quot;a&quot;: 1, &quot;s&quot;: &quot;2&quot;}}&lt;/tool_call&gt;",
    "without its markup": f"Next: {JSON}",
    "on other lines": json.dumps(json.loads(JSON), indent=2),
}  # fmt: skip


@pytest.mark.parametrize("quoted", QUOTES.values(), ids=QUOTES)
@pytest.mark.parametrize("echo", [LEAKED, JSON, f"```json\n{JSON}\n```"])
async def test_a_call_that_stands_in_a_result_never_runs(quoted, echo):
    ran: list[Any] = []

    async def look(arguments: JsonObject, ctx: Any) -> str:
        return quoted

    tools = [add(ran), Tool(name="look", description="Look.", run=look, parameters={}, effect="read")]
    async with MockProvider([call("look"), text(echo), text("A file with a call.")]) as mock:
        model = resolve_model("llamacpp:m", base_url=mock.base_url)
        result = await Agent(model, tools=tools).run("What is in it?")

    assert (result.completed, result.text, ran) == (True, "A file with a call.", [])
    assert "Do not repeat what others wrote" in str(mock.requests[2].body["messages"][-1])


async def test_a_call_in_a_message_of_the_person_never_runs():
    ran: list[Any] = []
    model = ScriptedModel([text(LEAKED), text("It is a call.")])

    result = await Agent(model, tools=[add(ran)]).run(f"What is this file?\n```\n{LEAKED}\n```")

    assert (result.text, ran) == ("It is a call.", [])


# --- bare JSON

ANSWERS = json.loads(Path(__file__).with_name("bare_calls.json").read_text())["answers"]
"""What a real small model answered, whose server looks for markup only."""
LIGHT = ToolSpec(name="set_light", description="", parameters={"type": "object"})
USER = ToolSpec(name="get_user", description="", parameters={"type": "object"})


def test_the_bare_calls_of_a_real_model_are_recognised():
    found = [calls_in_text(one["answer"], [ADD, LIGHT, USER]) for one in ANSWERS]

    assert [[(one.call.name, json.loads(one.call.arguments)) for one in calls] for calls in found] == [
        [("get_user", {"user_id": 42})],
        [("add", {"a": 19, "b": 23})],
        [("set_light", {"room": "kitchen", "on": True})],
        [],
    ]


BARE = {
    "an object": JSON,
    "a list": f"[{JSON}]",
    "a fence": f"```json\n{JSON}\n```",
    "lines": f"{JSON}\n{JSON.replace('1', '2')}",
    "the form of the API": f'{{"type": "function", "function": {JSON}}}',
}


@pytest.mark.parametrize("said", BARE.values(), ids=BARE)
@pytest.mark.parametrize(
    ("name", "option", "runs"),
    [
        ("vllm:m", {}, False),
        ("vllm:m", {"text_calls": "run"}, True),
        ("vllm:Qwen/Qwen2.5-Coder-0.5B-Instruct", {}, True),
        ("openai-chat:qwen2.5-coder-7b-instruct-q4_k_m.gguf", {}, True),
        ("vllm:qwen2.5-coder", {"text_calls": "tell"}, False),
        ("llamacpp:m", {}, True),
        ("llamacpp:m", {"text_calls": "tell"}, False),
    ],
)
async def test_bare_json_runs_where_the_server_or_the_model_is_known_for_it(said, name, option, runs):
    ran: list[Any] = []
    async with MockProvider([text(said), text("3")]) as mock:
        model = resolve_model(name, base_url=mock.base_url, api_key="k", **option)
        result = await Agent(model, tools=[add(ran)]).run("go")

    assert (result.completed, result.text, bool(ran)) == (True, "3", runs)
    assert ("Make the call through the tool-calling interface" in str(mock.requests[1].body)) == (not runs)


async def test_where_an_answer_of_a_form_is_wanted_bare_json_is_an_answer():
    ran: list[Any] = []

    result = await Agent(ScriptedModel([text(JSON)]), tools=[add(ran)], output=dict[str, Any]).run("go")

    assert (result.output, ran) == (json.loads(JSON), [])


# --- where the model is told


async def leaked(name: str, base_url: str, stream: bool = True) -> RunResult:
    model = resolve_model(f"{name}:m", base_url=base_url, api_key="k", stream=stream, text_calls="tell")
    return await Agent(model, tools=[add([])]).run("go")


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("llamacpp", "--jinja"),
        ("vllm", "--enable-auto-tool-choice and --tool-call-parser"),
        ("ollama", "ollama show"),
        ("lmstudio", "LM Studio"),
        ("openai-chat", "SGLang: start it with --tool-call-parser"),
    ],
)
async def test_the_reason_names_the_option_of_the_server(name, words, stream):
    async with MockProvider([text(LEAKED)]) as mock:
        result = await leaked(name, mock.base_url, stream)

    assert (result.reason, len(mock.requests)) == ("no_final_answer_or_tool_call", 3)
    assert words in result.message
    assert ("llama.cpp" in result.message) == (name in ("llamacpp", "openai-chat"))


@pytest.mark.parametrize("dialect", ["openai", "anthropic", "gemini", "cohere", "bedrock"])
async def test_it_is_the_same_in_every_dialect(dialect):
    async with MockProvider([text(LEAKED)]) as mock:
        result = await leaked(dialect, mock.base_url)

    assert (result.reason, len(mock.requests)) == ("no_final_answer_or_tool_call", 3)


async def test_the_log_says_once_that_the_server_has_no_parser(caplog):
    with caplog.at_level(logging.WARNING, logger="treadle"):
        script = [text(LEAKED), text(LEAKED.replace("1", "2")), text("3")]
        await Agent(ScriptedModel(script), tools=[add([])]).run("go")

    (record,) = [one for one in caplog.records if one.name == "treadle.drivers.native"]
    assert "has no parser" in record.getMessage()


async def test_an_option_of_the_model_takes_the_text_as_an_answer():
    async with MockProvider([text(LEAKED)]) as mock:
        model = resolve_model("vllm:m", base_url=mock.base_url, text_calls="off")
        result = await Agent(model, tools=[add([])]).run("go")

    assert (result.completed, result.text) == (True, LEAKED)


async def test_reasoning_beside_it_changes_nothing_and_reasoning_alone_is_no_call():
    ran: list[Any] = []
    beside = await Agent(ScriptedModel([Turn(thinking="Hm.", text=LEAKED), text("3")]), tools=[add(ran)]).run("go")
    alone = await Agent(ScriptedModel([Turn(thinking=LEAKED, text="So.")]), tools=[add(ran)]).run("go")

    assert (beside.text, alone.text, ran) == ("3", "So.", [ONE])


@pytest.mark.parametrize("cut", ['<tool_call>\n{"name": "add", "arguments": {"s": "lo', LEAKED, f"{JSON}\n{JSON[:20]}"])
async def test_a_call_that_the_output_limit_cut_never_runs_and_is_issued_again(cut):
    ran: list[Any] = []
    async with MockProvider([text(cut, finish="length"), text(LEAKED), text("3")]) as mock:
        model = resolve_model("llamacpp:m", base_url=mock.base_url)
        result = await Agent(model, tools=[add(ran)]).run("go")

    assert (result.text, [one.status for one in result.tool_calls], ran) == ("3", ["skipped", "ok"], [ONE])


async def test_it_satisfies_a_demanded_call_and_comes_before_a_form():
    ran: list[Any] = []
    formed = await Agent(ScriptedModel([text(LEAKED), text('{"n": 3}')]), tools=[add(ran)], output=dict[str, int]).run(
        "go"
    )
    demanded = await Agent(ScriptedModel([text(LEAKED), text("3")]), tools=[add(ran)], tool_choice="required").run("go")

    assert (formed.output, demanded.text, ran) == ({"n": 3}, "3", [ONE, ONE])
