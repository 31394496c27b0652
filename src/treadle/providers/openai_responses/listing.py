"""OpenAI's list of models, for those that are asked by Responses."""

from typing import Any

from treadle.ports import ModelFacts
from treadle.providers.http.listings import Listing, Page, objects

__all__ = ["LISTING"]


def _read(value: Any) -> Page | None:
    listed = objects(value.get("data")) if isinstance(value, dict) else None
    if listed is None:
        return None
    return Page({one["id"]: ModelFacts() for one in listed if isinstance(one.get("id"), str)})


LISTING = Listing(read=_read)
