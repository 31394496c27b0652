"""Gemini's list of models, in pages: those that generate content."""

from typing import Any

from treadle.ports import ModelFacts
from treadle.providers.http.endpoint import with_version
from treadle.providers.http.listings import Listing, Page, number, objects

__all__ = ["LISTING"]


def _read(value: Any) -> Page | None:
    listed = objects(value.get("models", [])) if isinstance(value, dict) and "error" not in value else None
    if listed is None:
        return None
    rest = value.get("nextPageToken")
    return Page(
        {
            one["name"].removeprefix("models/"): ModelFacts(
                window=number(one.get("inputTokenLimit")), output=number(one.get("outputTokenLimit"))
            )
            for one in listed
            if isinstance(one.get("name"), str) and _generates(one)
        },
        {"pageToken": rest} if isinstance(rest, str) and rest else None,
    )


def _generates(model: dict[str, Any]) -> bool:
    methods = model.get("supportedGenerationMethods")
    return not isinstance(methods, list) or "generateContent" in methods


def _address(base_url: str) -> str:
    return with_version(base_url, "/v1beta")


LISTING = Listing(read=_read, address=_address, query={"pageSize": "1000"}, key_header="x-goog-api-key", key_prefix="")
