"""Gemini, outward: from a neutral request to the bytes of its body. Sends nothing, keeps no session."""

from collections.abc import Mapping
from typing import Any, TypeAlias

from treadle.errors import ConfigurationError
from treadle.ports import ModelRequest, ToolChoice, ToolSpec
from treadle.providers.gemini.contents import GeminiContents
from treadle.providers.gemini.names import gemini_name, is_third_generation
from treadle.providers.gemini.schema import gemini_parameters, gemini_schema
from treadle.providers.payload.bodies import ToolSets, opening, server_tools
from treadle.providers.payload.encoded import to_json
from treadle.providers.payload.schemas import with_schema

__all__ = ["GeminiRequests"]

_Wire: TypeAlias = dict[str, Any]  # Any: a JSON object on its way out

_OURS = frozenset({"contents", "model", "systemInstruction", "tools"})
"""Fields of the body that come from the request; an option may not replace them."""

_GENERATION = frozenset(
    {
        *("candidateCount", "enableEnhancedCivicAnswers", "frequencyPenalty", "logprobs", "maxOutputTokens"),
        *("mediaResolution", "presencePenalty", "responseLogprobs", "responseModalities", "seed", "speechConfig"),
        *("stopSequences", "temperature", "thinkingConfig", "topK", "topP", "imageConfig"),
    }
)
"""Options that the vendor wants inside `generationConfig`."""

_MODES = {"auto": "AUTO", "required": "ANY", "none": "NONE"}


class GeminiRequests:
    """Writes request bodies for one model.

    Args:
        model: As the server knows it.
        origin: What messages of this model are marked with; signatures and thinking go back to no other.
        options: Further fields of the body; those of `generationConfig` may stand in it or by themselves. `server_tools` are the
            vendor's own tools, such as `{"googleSearch": {}}`, beside ours; `toolConfig` is joined with ours.

    Raises:
        ConfigurationError: An option is not valid JSON, or names a field that the request itself fills.
    """

    def __init__(self, model: str, *, origin: str, options: Mapping[str, Any]) -> None:
        self._is_third_generation = is_third_generation(model)
        self._fields = {name: value for name, value in options.items() if name not in _GENERATION}
        self._generation = _generation_config(options, self._fields.pop("generationConfig", None))
        self._server_tools = server_tools(
            self._fields.pop("server_tools", None),
            example="{'googleSearch': {}}",
            is_function=lambda tool: not {"functionDeclarations", "function_declarations"}.isdisjoint(tool),
        )
        self._tool_config = _tool_config_option(self._fields.pop("toolConfig", None))
        self._opening = self._open(self._generation)
        self._contents = GeminiContents(origin=origin, is_third_generation=self._is_third_generation)
        self._tools = ToolSets(_tool, name=gemini_name)

    def body(self, request: ModelRequest) -> bytes:
        """Return the body. What changes least stands first, and the contents last: the bytes of one step begin those of the next."""
        pieces = [self._opening_of(request)]
        if tools := self._tools_of(request):
            pieces.append(b',"tools":' + tools)
        if config := self._tool_config_of(request):
            pieces.append(b',"toolConfig":' + to_json(config))
        if instructions := self._instructions_of(request):
            pieces.append(b',"systemInstruction":' + to_json({"parts": [{"text": instructions}]}))
        return b"".join((*pieces, b',"contents":[', self._contents.write(request.messages), b"]}"))

    def own_names(self, request: ModelRequest) -> Mapping[str, str]:
        """Return our names of those tools that had to be renamed for the wire."""
        return self._tools.of(request.tools).own_names if request.tools else {}

    def _open(self, generation: Mapping[str, Any]) -> bytes:
        return opening({}, {**self._fields, "generationConfig": dict(generation)}, ours=_OURS)

    def _opening_of(self, request: ModelRequest) -> bytes:
        if request.output_schema is None or self._tells_schema(request):
            return self._opening
        form = {"responseMimeType": "application/json", "responseJsonSchema": gemini_schema(request.output_schema)}
        return self._open({**self._generation, **form})

    def _tells_schema(self, request: ModelRequest) -> bool:
        """Return whether the schema goes into the instructions: before Gemini 3 the vendor refuses it beside tools."""
        return not self._is_third_generation and bool(request.tools or self._server_tools)

    def _instructions_of(self, request: ModelRequest) -> str:
        told = request.output_schema if self._tells_schema(request) else None
        return with_schema(request.instructions or "", told)

    def _tools_of(self, request: ModelRequest) -> bytes:
        ours = [b'{"functionDeclarations":' + self._tools.of(request.tools).encoded + b"}"] if request.tools else []
        tools = [*ours, self._server_tools] if self._server_tools else ours
        return b"[" + b",".join(tools) + b"]" if tools else b""

    def _tool_config_of(self, request: ModelRequest) -> _Wire:
        if not request.tools:
            return self._tool_config
        return {**self._tool_config, "functionCallingConfig": _function_calling(request.tool_choice)}


def _generation_config(options: Mapping[str, Any], given: Any) -> _Wire:
    flat = {name: value for name, value in options.items() if name in _GENERATION}
    if not isinstance(given, dict | None):
        raise ConfigurationError("The option generationConfig must be an object.")
    return {name: value for name, value in {**(given or {}), **flat}.items() if value is not None}


def _tool_config_option(given: Any) -> _Wire:
    if not isinstance(given, dict | None) or "functionCallingConfig" in (given or {}):
        raise ConfigurationError(
            "The option toolConfig must be an object without functionCallingConfig: use tool_choice."
        )
    opening({}, {"toolConfig": given}, ours=frozenset())  # refuses what is not valid JSON
    return given or {}


def _tool(spec: ToolSpec) -> _Wire:
    schema = gemini_parameters(spec.parameters)
    return {"name": gemini_name(spec.name), "description": spec.description, "parametersJsonSchema": schema}


def _function_calling(choice: ToolChoice) -> _Wire:
    """Return the choice in the vendor's words. There is no way to say one call at a time: the runtime orders them anyway."""
    if mode := _MODES.get(choice):
        return {"mode": mode}
    return {"mode": "ANY", "allowedFunctionNames": [gemini_name(choice)]}
