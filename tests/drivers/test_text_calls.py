"""Calls that a server leaves in the text: never run and never an answer; the model is told, and then the person why."""

import json
import logging
from typing import Any

import pytest

from treadle import Agent, RunResult, Tool, resolve_model
from treadle.drivers.text_calls import calls_in_text
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

    assert (found.name, json.loads(found.arguments)) == ("add", ONE)


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
    assert [one.name for one in calls_in_text(said, [DOTTED, ADD])] == names


PROSE = {
    "before": f"I add.\n<tool_call>{JSON}</tool_call>",
    "after": f"<tool_call>{JSON}</tool_call>\nThat adds.",
    "between": f"<tool_call>{JSON}</tool_call> and <tool_call>{JSON}</tool_call>",
    "fenced": f"```\n<tool_call>{JSON}</tool_call>\n```",
    "quoted": f'"<tool_call>{JSON}</tool_call>"',
    "an unknown tool": f"<tool_call>{JSON.replace('add', 'subtract')}</tool_call>",
    "one unknown tool of two": f"<tool_call>{JSON}</tool_call><tool_call>{JSON.replace('add', 'sub')}</tool_call>",
    "bare JSON": JSON,
    "a list of bare JSON": f"[{JSON}]",
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


def add(ran: list[Any]) -> Tool:
    async def run(arguments: JsonObject, ctx: Any) -> str:
        ran.append(arguments)
        return "3"

    return Tool(name="add", description="Add.", run=run, parameters=SCHEMA, effect="unsafe", permission="allow")


LEAKED = f"<tool_call>\n{JSON}\n</tool_call>"


@pytest.mark.parametrize("said", MARKUPS.values(), ids=MARKUPS)
async def test_such_a_text_runs_nothing_and_ends_the_run_after_two_corrections(said):
    ran: list[Any] = []
    model = ScriptedModel([text(said)])

    result = await Agent(model, tools=[add(ran)]).run("go")

    assert (result.reason, result.completed, len(model.requests), ran) == ("no_final_answer_or_tool_call", False, 3, [])
    assert result.stop.details == {"class": "calls_in_text", "tools": ["add"], "attempts": 3}
    assert "no parser" in result.message
    assert "did not arrive as a call" in model.requests[1].messages[-1].text


async def test_a_model_that_then_calls_goes_on():
    ran: list[Any] = []
    model = ScriptedModel([text(LEAKED), call("add", a=1), text("3")])

    result = await Agent(model, tools=[add(ran)]).run("go")

    assert (result.completed, result.text, ran) == (True, "3", [{"a": 1}])


async def leaked(name: str, base_url: str, stream: bool = True) -> RunResult:
    model = resolve_model(f"{name}:m", base_url=base_url, api_key="k", stream=stream)
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
        await Agent(ScriptedModel([text(LEAKED)]), tools=[add([])]).run("go")

    (record,) = [one for one in caplog.records if one.name == "treadle.drivers.native"]
    assert "has no parser" in record.getMessage()


async def test_an_option_of_the_model_takes_the_text_as_an_answer():
    async with MockProvider([text(LEAKED)]) as mock:
        model = resolve_model("vllm:m", base_url=mock.base_url, text_calls="off")
        result = await Agent(model, tools=[add([])]).run("go")

    assert (result.completed, result.text) == (True, LEAKED)


async def test_reasoning_beside_it_changes_nothing_and_reasoning_alone_is_no_call():
    beside = await Agent(ScriptedModel([Turn(thinking="Hm.", text=LEAKED)]), tools=[add([])]).run("go")
    alone = await Agent(ScriptedModel([Turn(thinking=LEAKED, text="So.")]), tools=[add([])]).run("go")

    assert (beside.reason, alone.text) == ("no_final_answer_or_tool_call", "So.")


async def test_a_call_that_the_output_limit_cut_is_told_too_and_not_continued():
    cut = '<tool_call>\n{"name": "add", "arguments": {"s": "lo'
    model = ScriptedModel([text(cut, finish="length")])

    result = await Agent(model, tools=[add([])]).run("go")

    assert (result.stop.details or {})["class"] == "calls_in_text"


async def test_it_is_told_before_a_form_or_a_demanded_call_is():
    formed = await Agent(ScriptedModel([text(LEAKED)]), tools=[add([])], output=dict[str, int]).run("go")
    demanded = await Agent(ScriptedModel([text(LEAKED)]), tools=[add([])], tool_choice="required").run("go")

    assert [(one.stop.details or {})["class"] for one in (formed, demanded)] == ["calls_in_text"] * 2
