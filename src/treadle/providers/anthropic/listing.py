"""Anthropic's list of models, in pages."""

from typing import Any

from treadle.ports import ModelFacts
from treadle.providers.http.listings import Listing, Page, number, objects

__all__ = ["LISTING"]


def _read(value: Any) -> Page | None:
    listed = objects(value.get("data")) if isinstance(value, dict) else None
    if listed is None:
        return None
    last = value.get("last_id") if value.get("has_more") else None
    return Page(
        {
            one["id"]: ModelFacts(window=number(one.get("max_input_tokens")), output=number(one.get("max_tokens")))
            for one in listed
            if isinstance(one.get("id"), str)
        },
        {"after_id": last} if isinstance(last, str) and last else None,
    )


LISTING = Listing(
    read=_read,
    query={"limit": "1000"},
    key_header="x-api-key",
    key_prefix="",
    headers={"anthropic-version": "2023-06-01"},
)
