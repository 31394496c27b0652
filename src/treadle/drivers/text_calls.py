"""Text calls: recognise a text that is nothing but calls, in the markup of a model or as bare JSON, which its server should have read.
Runs nothing.

All markups stand in one table, and one function reads them. Whatever else is in the text (prose, an unknown tool), it is an answer.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import unescape
from typing import Any, NamedTuple

from treadle.messages import Message, Result, Text, ToolCall
from treadle.ports import ToolSpec
from treadle.tools import JsonObject

__all__ = ["TextCall", "calls_in_text", "is_quoted", "parser_advice"]

_NAME = r"(?P<name>[\w.:-]+)"


def _object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object. One that has a key twice cannot be read, as everywhere else."""
    if len(found := dict(pairs)) < len(pairs):
        raise ValueError("a key twice")
    return found


_decoder = json.JSONDecoder(object_pairs_hook=_object)


class TextCall(NamedTuple):
    """One call that was found in a text."""

    call: ToolCall
    text: str
    """What it was read from, with the others of the same markup."""
    is_bare: bool
    """Whether no markup is around it."""
    is_whole: bool
    """Whether nothing of it can be missing, and nothing was guessed."""


class _Found(NamedTuple):
    name: str
    arguments: str | dict[str, str]
    """As JSON text, or the texts of parameters by name."""
    is_whole: bool = True


class _Markup(NamedTuple):
    """One form of a call."""

    begin: re.Pattern[str]
    """What it begins with; may have the tool's `name`."""
    read: "Callable[[str, int, str], tuple[list[_Found], int] | None]"
    """Reads what is inside, from a place on, for a tool named in the beginning; None where it is something else."""
    end: re.Pattern[str]
    """What it ends with. May be missing: servers take it as the end of the text."""


def calls_in_text(text: str, tools: Sequence[ToolSpec], *, is_cut: bool = False) -> tuple[TextCall, ...]:
    """Return the calls that a text consists of; none where it has anything else, or calls a tool that is not offered.

    Args:
        tools: Those that are offered.
        is_cut: Whether the output limit cut the text: its last call then may be unfinished.
    """
    text = text.strip()
    if text[:1] not in ("<", "[", "{", "`"):
        return ()
    offered = {_plain(spec.name): spec for spec in tools}
    bare = _bare(text, is_cut=is_cut)
    calls: list[TextCall] = []
    for one, said in bare or _all(text, is_cut=is_cut):
        spec = None if one is None else offered.get(_plain(one.name))
        if one is None or spec is None:
            return ()
        arguments = one.arguments if isinstance(one.arguments, str) else _typed(one.arguments, spec.parameters)
        call = ToolCall(id=f"text_{len(calls) + 1}", name=spec.name, arguments=arguments)
        calls.append(TextCall(call=call, text=said, is_bare=bool(bare), is_whole=one.is_whole))
    return tuple(calls)


def is_quoted(found: TextCall, messages: Sequence[Message]) -> bool:
    """Whether a call stands in what the model has read: a tool's result, or a message of the person. Then others have written it."""
    own = _letters(found.text)
    arguments = _letters(found.call.arguments)
    for message in messages:
        for part in message.parts:
            match part:
                case Text(text=text) if message.role == "user" and own in _letters(text):
                    return True
                case Result(content=content):
                    read = _letters(content)
                    is_named = f"name:{found.call.name}" in read
                    if own in read or (is_named and any(f"{word}:{arguments}" in read for word in _ARGUMENTS)):
                        return True
                case _:
                    pass
    return False


def _letters(text: str) -> str:
    """Return a text without what tells it from the same text inside JSON, at any depth, or HTML: escapes, quotes and blanks."""
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)) if found[1] else "", unescape(text))


_ESCAPED = re.compile(r"\\+(?:[bfnrt]|u([0-9a-fA-F]{4}))|[\s\\\"']+")


def parser_advice(model: str, *, is_bare: bool) -> str:
    """Return what makes a model's server read its calls.

    Args:
        model: Its name, with the dialect before it.
        is_bare: Whether the model writes them without markup.
    """
    if is_bare:
        return "The model writes its calls as bare JSON, without the markup that the parser of its server reads."
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


def _bare(text: str, *, is_cut: bool) -> list[tuple[_Found | None, str]]:
    """Return the calls of a text that is JSON, in a fence or not, and says of each only its tool and its arguments."""
    fence = _WHOLE_FENCE.fullmatch(text)
    inside = text if fence is None else fence["inside"].strip()
    at, found = 0, list[tuple[_Found | None, str]]()
    while (value := _value(inside, at)) is not None:
        said, at = value
        for one in said if isinstance(said, list) else [said]:
            call = _named(one) if _says_a_call(one) else None
            if call is None:
                return []
            found.append((call, inside))
        at = _past(_BETWEEN, inside, at)
    return found if at == len(inside) or is_cut else []


def _says_a_call(value: Any) -> bool:
    own = value.get("function", value) if isinstance(value, dict) else None
    if not isinstance(own, dict) or not own.keys() <= {"id", "type", "name", *_ARGUMENTS}:
        return False
    return any(isinstance(own.get(word), dict) for word in _ARGUMENTS)


_ARGUMENTS = ("arguments", "parameters")
_WHOLE_FENCE = re.compile(r"```(?:json)?[ \t]*\n(?P<inside>[^`]*)```")


def _all(text: str, *, is_cut: bool) -> Iterator[tuple[_Found | None, str]]:
    """Yield the calls of a text one after the other; None, and nothing more, where something else is between them."""
    at = _past(_FRAMES, text, 0)
    while at < len(text):
        read = next(filter(None, (_one(text, at, markup, is_cut=is_cut) for markup in _MARKUPS)), None)
        if read is None:
            yield None, ""
            return
        begin = at
        found, at = read
        yield from [(one, text[begin:at]) for one in found]
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
        if end is not None:
            return found, end.end()
        if all(one.arguments for one in found):  # an object says by itself where it ends, and parameters do not
            return [one._replace(is_whole=isinstance(one.arguments, str)) for one in found], stop
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
    return ([_Found(name, inside.strip(), is_whole=False)], stop) if name else None


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
    arguments: Any = next((value[key] for key in _ARGUMENTS if key in value), {})
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
