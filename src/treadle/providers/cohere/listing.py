"""Cohere's list of models, in pages: those that chat. The vendor has it in version 1 of its API only."""

import re
from typing import Any

from treadle.ports import ModelFacts
from treadle.providers.http.endpoint import with_version
from treadle.providers.http.listings import Listing, Page, number, objects

__all__ = ["LISTING"]


def _read(value: Any) -> Page | None:
    listed = objects(value.get("models")) if isinstance(value, dict) else None
    if listed is None:
        return None
    rest = value.get("next_page_token")
    return Page(
        {
            one["name"]: ModelFacts(window=number(one.get("context_length")))
            for one in listed
            if isinstance(one.get("name"), str)
        },
        {"page_token": rest} if isinstance(rest, str) and rest else None,
    )


def _address(base_url: str) -> str:
    return re.sub(r"/v2(?=/?(\?|$))", "/v1", with_version(base_url, "/v2"))


LISTING = Listing(read=_read, address=_address, query={"endpoint": "chat", "page_size": "1000"})
