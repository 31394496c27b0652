"""Text calls: recognise a text that is nothing but calls in the markup of a model, which its server should have read. Runs nothing.

All markups stand in one table, and one function reads them. Whatever else is in the text (prose, a fence, an unknown tool), it is an
answer.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from treadle.messages import ToolCall
from treadle.ports import ToolSpec
from treadle.tools import JsonObject

__all__ = ["calls_in_text", "parser_advice"]

_NAME = r"(?P<name>[\w.:-]+)"

_decoder = json.JSONDecoder()


class _Found(NamedTuple):
    name: str
    arguments: str | dict[str, str]
    """As JSON text, or the texts of parameters by name."""


class _Markup(NamedTuple):
    """One form of a call."""

    begin: re.Pattern[str]
    """What it begins with; may have the tool's `name`."""
    read: "Callable[[str, int, str], tuple[list[_Found], int] | None]"
    """Reads what is inside, from a place on, for a tool named in the beginning; None where it is something else."""
    end: re.Pattern[str]
    """What it ends with. May be missing: servers take it as the end of the text."""


def calls_in_text(text: str, tools: Sequence[ToolSpec], *, is_cut: bool = False) -> tuple[ToolCall, ...]:
    """Return the calls that a text consists of; none where it has anything else, or calls a tool that is not offered.

    Args:
        tools: Those that are offered.
        is_cut: Whether the output limit cut the text: its last call then may be unfinished.
    """
    text = text.strip()
    if text[:1] not in ("<", "["):
        return ()
    offered = {_plain(spec.name): spec for spec in tools}
    calls = []
    for one in _all(text, is_cut=is_cut):
        spec = None if one is None else offered.get(_plain(one.name))
        if one is None or spec is None:
            return ()
        arguments = one.arguments if isinstance(one.arguments, str) else _typed(one.arguments, spec.parameters)
        calls.append(ToolCall(id="", name=spec.name, arguments=arguments))
    return tuple(calls)


def parser_advice(model: str) -> str:
    """Return which option makes a model's server read its calls.

    Args:
        model: Its name, with the dialect before it.
    """
    own = _OPTIONS.get(model.partition(":")[0])
    options = own or f"On a server of your own, turn it on. {'; '.join(_OPTIONS.values())}"
    return f"The server has no parser for the calls of this model, or it is off. {options}."


_OPTIONS = {
    "llamacpp": "llama.cpp: start llama-server with --jinja",
    "vllm": "vLLM: start it with --enable-auto-tool-choice and --tool-call-parser NAME",
    "sglang": "SGLang: start it with --tool-call-parser NAME",
    "ollama": "Ollama: use a model whose template takes tools (`ollama show MODEL` lists `tools`)",
    "lmstudio": "LM Studio: load a model with native tool use, in its newest version",
}


def _all(text: str, *, is_cut: bool) -> Iterator[_Found | None]:
    """Yield the calls of a text one after the other; None, and nothing more, where something else is between them."""
    at = _past(_FRAMES, text, 0)
    while at < len(text):
        read = next(filter(None, (_one(text, at, markup, is_cut=is_cut) for markup in _MARKUPS)), None)
        if read is None:
            yield None
            return
        found, at = read
        yield from found
        at = _past(_FRAMES, text, at)


def _one(text: str, at: int, markup: _Markup, *, is_cut: bool) -> tuple[list[_Found], int] | None:
    """Return the calls of one markup at a place, and where they end."""
    begin = markup.begin.match(text, at)
    if begin is None:
        return None
    name = begin.groupdict().get("name") or ""
    read = markup.read(text, begin.end(), name)
    if read is not None:
        found, stop = read
        end = markup.end.match(text, stop)
        if end is not None or all(one.arguments for one in found):
            return found, stop if end is None else end.end()
    return _broken(text, begin.end(), name, markup.end, is_cut=is_cut)


def _broken(text: str, at: int, name: str, end: re.Pattern[str], *, is_cut: bool) -> tuple[list[_Found], int] | None:
    """Return the one call between the two ends of a markup, whatever is there, or up to where the text was cut."""
    ends = end.search(text, at)
    if ends is None or ends.start() == ends.end():
        if not is_cut:
            return None
        inside, stop = text[at:], len(text)
    else:
        inside, stop = text[at : ends.start()], ends.end()
    named = _NAMED.search(inside)
    name = name or (named[1] if named else "")
    return ([_Found(name, inside.strip())], stop) if name else None


# --- what is inside a markup


def _objects(text: str, at: int, _name: str) -> tuple[list[_Found], int] | None:
    """Read objects that name a tool and its arguments: one, several, or a list of them."""
    found: list[_Found] = []
    while (value := _value(text, at)) is not None:
        inside, at = value
        for one in inside if isinstance(inside, list) else [inside]:
            call = _named(one)
            if call is None:
                return None
            found.append(call)
        at = _past(_BETWEEN, text, at)
    return (found, at) if found else None


def _arguments(text: str, at: int, name: str) -> tuple[list[_Found], int] | None:
    """Read one object of arguments, fenced or not."""
    at = _past(_FENCE, text, at)
    value = _value(text, at)
    if value is None or not isinstance(value[0], dict):
        return None
    end = _past(_FENCE_END, text, value[1])
    return [_Found(name, text[at : value[1]].strip())], end


def _parameters(text: str, at: int, name: str) -> tuple[list[_Found], int] | None:
    """Read parameters, each between tags of its own."""
    values: dict[str, str] = {}
    while (one := _PARAMETER.match(text, at)) is not None:
        values[(one["name"] or one["key"]).strip()] = one["value"] if one["name"] else one["said"]
        at = one.end()
    return [_Found(name, values)], at


def _past(pattern: re.Pattern[str], text: str, at: int) -> int:
    """Return the place after what a pattern matches here, which may be nothing."""
    found = pattern.match(text, at)
    return at if found is None else found.end()


def _value(text: str, at: int) -> tuple[Any, int] | None:
    """Return the JSON object or list at a place, and where it ends."""
    while text[at : at + 1].isspace():
        at += 1
    if text[at : at + 1] not in ("{", "["):
        return None
    try:
        return _decoder.raw_decode(text, at)
    except (ValueError, RecursionError):
        return None


def _named(value: Any) -> _Found | None:
    """Return the call that an object of the usual fields is."""
    if not isinstance(value, dict):
        return None
    inner = value.get("function")
    value = inner if isinstance(inner, dict) else value
    name = value.get("name") or value.get("tool_name")
    arguments: Any = next((value[key] for key in ("arguments", "parameters") if key in value), {})
    if not isinstance(name, str):
        return None
    return _Found(name, arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False))


def _typed(values: Mapping[str, str], schema: JsonObject) -> str:
    """Return parameters as JSON: a text where the tool takes one, else the value that the text is the JSON of."""
    declared = schema.get("properties")
    properties = declared if isinstance(declared, dict) else {}
    typed: dict[str, Any] = {}
    for name, said in values.items():
        text = said.removeprefix("\n").removesuffix("\n")
        kinds = properties[name].get("type") if isinstance(properties.get(name), dict) else None
        typed[name] = text if kinds == "string" or (isinstance(kinds, list) and "string" in kinds) else _json_or(text)
    return json.dumps(typed, ensure_ascii=False)


def _json_or(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _plain(name: str) -> str:
    """Return a name in the letters that it has on the wire."""
    return re.sub(r"[^a-zA-Z0-9_-]+", "_", name)


# --- the table


def _markup(begin: str, read: "Callable[[str, int, str], tuple[list[_Found], int] | None]", end: str) -> _Markup:
    return _Markup(re.compile(rf"\s*{begin}\s*"), read, re.compile(rf"\s*{end}"))


_DEEPSEEK = r"<[\uff5c|]tool[\u2581_]"

_MARKUPS = (
    # Hermes, Qwen2.5 and Qwen3, ERNIE: huggingface.co/NousResearch/Hermes-2-Pro-Llama-3-8B
    _markup(r"<tool_call>(?=\s*[{\[])", _objects, r"</tool_call>"),
    # GLM-4.5 and later: huggingface.co/zai-org/GLM-4.5, chat_template
    _markup(rf"<tool_call>\s*{_NAME}(?=\s*(?:<arg_key>|</tool_call>))", _parameters, r"</tool_call>"),
    # Hunyuan: huggingface.co/tencent/Hunyuan-A13B-Instruct, chat_template
    _markup(rf"<tool_call>\s*{_NAME}(?=\s*(?:```(?:json)?\s*)?\{{)", _arguments, r"</tool_call>"),
    # Llama 3.1: llama.com/docs/model-cards-and-prompt-formats/llama3_1
    _markup(rf"<function={_NAME}>(?=\s*\{{)", _arguments, r"</function>"),
    _markup(r"<\|python_tag\|>", _objects, r"(?:<\|eom_id\|>|<\|eot_id\|>|$)"),
    # Qwen3-Coder, Seed-OSS: huggingface.co/Qwen/Qwen3-Coder-480B-A35B-Instruct, qwen3coder_tool_parser.py
    _markup(rf"<function={_NAME}>", _parameters, r"</function>"),
    # Claude's form, which MiniMax-M2, Step3 and DeepSeek-V3.2 have too: huggingface.co/MiniMaxAI/MiniMax-M2, docs/tool_calling_guide.md
    _markup(
        rf"<(?:\w+:|\uff5cDSML\uff5c)?invoke name=\"{_NAME}\">", _parameters, r"</(?:\w+:|\uff5cDSML\uff5c)?invoke>"
    ),
    # Mistral: docs.mistral.ai, mistral-common's tokenizers v3, v11 and v13
    _markup(r"\[TOOL_CALLS\](?=\s*[{\[])", _objects, r"(?:</s>|$)"),
    _markup(rf"\[TOOL_CALLS\]\s*{_NAME}(?:\[CALL_ID\]\w+)?(?:\[ARGS\])?(?=\s*\{{)", _arguments, r"(?:</s>)?"),
    # Kimi K2: huggingface.co/moonshotai/Kimi-K2-Instruct, docs/tool_call_guidance.md
    _markup(
        r"<\|tool_call_begin\|>\s*(?:functions\.)?(?P<name>[\w.-]+)(?::\d+)?\s*<\|tool_call_argument_begin\|>",
        _arguments,
        r"<\|tool_call_end\|>",
    ),
    # DeepSeek-V3, -R1 and -V3.1: huggingface.co/deepseek-ai/DeepSeek-V3.1, assets
    _markup(
        rf"{_DEEPSEEK}call[\u2581_]begin[\uff5c|]>(?:function{_DEEPSEEK}sep[\uff5c|]>)?{_NAME}(?:{_DEEPSEEK}sep[\uff5c|]>)?",
        _arguments,
        rf"{_DEEPSEEK}call[\u2581_]end[\uff5c|]>",
    ),
    # Granite, Phi-4-mini; Nemotron; Command R and A; Hunyuan, MiniMax-M1 and xLAM: docs.vllm.ai/features/tool_calling
    _markup(r"<\|tool_call\|>", _objects, r"(?:<\|/tool_call\|>|$)"),
    _markup(r"<TOOLCALL>", _objects, r"</TOOLCALL>"),
    _markup(r"<\|START_ACTION\|>", _objects, r"<\|END_ACTION\|>"),
    _markup(r"<tool_calls>(?=\s*[{\[])", _objects, r"</tool_calls>"),
    _markup(r"<longcat_tool_call>", _objects, r"</longcat_tool_call>"),
    _markup(r"<\|action_start\|>\s*<\|plugin\|>", _objects, r"(?:<\|action_end\|>|$)"),
    # gpt-oss: cookbook.openai.com/articles/openai-harmony
    _markup(
        rf"(?:<\|start\|>assistant)?<\|channel\|>(?:commentary|analysis) to=(?:functions\.)?{_NAME}\s*(?:<\|constrain\|>\s*json)?\s*<\|message\|>",
        _arguments,
        r"(?:<\|call\|>|$)",
    ),
    # FunctionGemma, by ai.google.dev/gemma/docs/functiongemma
    _markup(rf"<start_function_call>\s*call:{_NAME}", _arguments, r"<end_function_call>"),
)

_FRAMES = re.compile(
    r"(?:\s|;|</?tool_calls?>(?=\s*(?:<|$))|</?(?:\w+:)?(?:function_calls|tool_calls?)>(?=\s*(?:<|$))|</?\uff5cDSML\uff5cfunction_calls>"
    rf"|{_DEEPSEEK}calls[\u2581_](?:begin|end)[\uff5c|]>|<\|tool_calls_section_(?:begin|end)\|>"
    r"|<[\uff5c|]end[\u2581_]of[\u2581_]sentence[\uff5c|]>|<\|im_end\|>)*"
)
"""What is around calls and between them."""
_BETWEEN = re.compile(r"[\s;,]*")
_FENCE = re.compile(r"\s*(?:```(?:json)?\s*)?")
_FENCE_END = re.compile(r"\s*(?:```)?")
_NAMED = re.compile(r'"(?:tool_)?name"\s*:\s*"([^"]+)"')
_PARAMETER = re.compile(
    r"\s*(?:<(?:\w+:|\uff5cDSML\uff5c)?parameter(?:=| name=\"?)(?P<name>[^\s\">]+)\"?[^>]*>(?P<value>.*?)</(?:\w+:|\uff5cDSML\uff5c)?parameter>"
    r"|<arg_key>(?P<key>.*?)</arg_key>\s*<arg_value>(?P<said>.*?)</arg_value>)",
    re.DOTALL,
)
