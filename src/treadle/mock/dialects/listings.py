"""Listings: the mock's one model, in the list of the dialect that asks. Decides nothing else."""

from collections.abc import Mapping
from urllib.parse import parse_qs

from treadle.mock.dialects.rendering import json_bytes
from treadle.tools import JsonObject

__all__ = ["is_listing", "model_list"]

_WINDOW = 32_768
_OUTPUT = 4_096


def is_listing(method: str, path: str) -> bool:
    """Whether a request asks for the list of models."""
    return method == "GET" and path.endswith("/models")


def model_list(query: str, headers: Mapping[str, str]) -> bytes:
    """Return the list, in the form of the dialect whose query or headers the request has; else in OpenAI's."""
    return json_bytes(_listed(parse_qs(query), headers))


def _listed(query: Mapping[str, list[str]], headers: Mapping[str, str]) -> JsonObject:
    if "anthropic-version" in headers:
        model = {"id": "mock", "type": "model", "display_name": "Mock", "max_input_tokens": _WINDOW}
        return {"data": [model], "first_id": "mock", "last_id": "mock", "has_more": False}
    if "pageSize" in query or "x-goog-api-key" in headers:
        methods = {"supportedGenerationMethods": ["generateContent"]}
        return {"models": [{"name": "models/mock", "inputTokenLimit": _WINDOW, "outputTokenLimit": _OUTPUT, **methods}]}
    if "endpoint" in query:
        return {"models": [{"name": "mock", "endpoints": query["endpoint"], "context_length": _WINDOW}]}
    return {"object": "list", "data": [{"id": "mock", "object": "model"}]}
