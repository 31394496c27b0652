"""Known: what is known of a vendor's models: window, output limit, inputs, abilities, price. Asks no server and guesses nothing.

The data is `known_models.toml` next to this file, which says what its fields mean. Read when the first model is looked up.
"""

import re
from collections.abc import Mapping
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any

import msgspec

from treadle.budgets import Price
from treadle.ports import ErrorForm, ModelFacts, TextCalls

__all__ = ["Family", "family_of", "known_facts", "known_models"]

_DATED = re.compile(r"(?:-v\d+)?(?:[-@](?:\d{8}|\d{4}-\d{2}-\d{2}|latest))?(?:-v\d+(?::\d+)?)?")
"""What may stand behind an id: a date, as the vendors write it, and a version, as Bedrock does."""


class _Reseller(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    names: frozenset[str]
    vendor: str
    before: str = ""
    has_prices: bool = False


class _Model(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    vendor: str
    ids: tuple[str, ...]
    window: int | None = None
    output: int | None = None
    inputs: frozenset[str] | None = None
    tools: bool | None = None
    strict: bool | None = None
    parallel: bool | None = None
    thinking: bool | None = None
    price: Price | None = None

    @property
    def facts(self) -> ModelFacts:
        own = {name: getattr(self, name) for name in self.__struct_fields__ if name not in ("vendor", "ids")}
        return ModelFacts(**own)


class Family(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is known of open models, whoever serves them."""

    name: str
    text_calls: TextCalls | None = None
    small: bool | None = None
    error_form: ErrorForm | None = None

    @property
    def facts(self) -> ModelFacts:
        return ModelFacts(small=self.small, error_form=self.error_form)


class _Data(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    reseller: tuple[_Reseller, ...]
    family: tuple[Family, ...]
    model: tuple[_Model, ...]


@lru_cache(maxsize=256)
def known_facts(name: str, model: str) -> ModelFacts:
    """Return what is known of a model: each fact that nobody knows is None.

    Args:
        name: The name before the colon, such as `openai-chat`.
        model: Its id, dated or not.
    """
    for vendor, own, has_prices in _meant(name, model):
        facts = _by_id(vendor, own)
        if facts is not None:
            return facts if has_prices else msgspec.structs.replace(facts, price=None)
    return ModelFacts()


def family_of(model: str) -> Family | None:
    """Return the family of an open model, by its name at whatever server."""
    name = model.lower()
    return next((one for one in _data().family if re.search(one.name, name)), None)


def known_models() -> Mapping[str, ModelFacts]:
    """Return what is known of every model, by vendor and id, such as `anthropic:claude-sonnet-4-5`."""
    return {f"{model.vendor}:{own}": model.facts for model in _data().model for own in model.ids}


def _meant(name: str, model: str) -> list[tuple[str, str, bool]]:
    """Return whose models a name and an id may mean, the ids as those vendors write them, and whether prices hold."""
    found = [(name, model, True)]
    for reseller in _data().reseller:
        start = re.match(reseller.before, model) if name in reseller.names else None
        if start is not None:
            found.append((reseller.vendor, model[start.end() :], reseller.has_prices))
    return found


def _by_id(vendor: str, model: str) -> ModelFacts | None:
    table = _ids()
    exact = table.get((vendor, model))
    if exact is not None:
        return exact.facts
    for own in sorted((own for of, own in table if of == vendor and model.startswith(own)), key=len, reverse=True):
        if _DATED.fullmatch(model[len(own) :]):
            return table[vendor, own].facts
    return None


@cache
def _ids() -> dict[tuple[str, str], _Model]:
    return {(model.vendor, own): model for model in _data().model for own in model.ids}


@cache
def _data() -> _Data:
    import tomllib  # noqa: PLC0415 - loaded when the first model is looked up

    text = files("treadle.providers").joinpath("known_models.toml").read_text(encoding="utf-8")
    read: Any = tomllib.loads(text)
    return msgspec.convert(read, _Data)
