"""Models: the dump of a large pydantic model in parts, because a whole one is a single step that cannot be interrupted.

Only where the parts are sure to make the same: a model that serializes by code of its own is dumped whole.
"""

import sys
from collections.abc import Generator
from itertools import islice
from typing import Any, get_origin

from treadle.validation.amounts import has_own_dump
from treadle.validation.large import Keep

__all__ = ["Rows", "dumped"]

_PART = 1000
"""Items of an object that are dumped at once; a list with more is dumped while it is read."""


class Rows:
    """The dump of a long list of a model, made slice by slice as it is read: nobody holds the whole of it.

    Args:
        part: A copy of the model, which is given one slice of the list after the other.
        keep: Is given what each slice was made of, so that not all of it is freed at once.
    """

    def __init__(self, part: Any, name: str, items: list[Any], keep: Keep | None) -> None:
        self._part = part
        self._name = name
        self._items = items
        self._keep = keep

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, place: slice) -> list[Any]:
        some = self._items[place]
        if self._keep is not None:
            self._keep(tuple(some))
        self._part.__dict__[self._name] = some
        ((_, made),) = self._part.model_dump(by_alias=True, include={self._name}).items()
        return list(made)


def dumped(model: Any, keep: Keep | None = None) -> Generator[None, None, Any]:  # Any: a pydantic model, and its dump
    """Return what `model_dump(by_alias=True)` makes of a pydantic model, with a pause after each part, and `Rows` for long lists.

    Args:
        keep: Is given what the long lists and dicts of the model hold, a part at a time, so that not all of it is freed at once.
    """
    if not _has_plain_dump(model):
        return model.model_dump(by_alias=True)
    made: dict[str, Any] = {}
    for name, field in type(model).model_fields.items():
        value = model.__dict__.get(name)
        if _is_plain_collection(field, value):
            made |= yield from _in_parts(model, name, value, keep)
        elif _is_plain_model(field, value):
            made[field.serialization_alias or name] = yield from dumped(value, keep)
        else:
            made |= model.model_dump(by_alias=True, include={name})
        yield
    extra = model.__pydantic_extra__ or {}
    return made | (model.model_dump(by_alias=True, include=set(extra)) if extra else {})


def _in_parts(model: Any, name: str, value: Any, keep: Keep | None) -> Generator[None, None, dict[str, Any]]:
    """Dump one field: a model that differs from this one by holding only a part of it, again and again."""
    part = sys.modules["pydantic"].BaseModel.__copy__(model)
    part.__dict__[name] = type(value)()
    made: dict[str, Any] = part.model_dump(by_alias=True, include={name})
    if isinstance(value, list):
        return dict.fromkeys(made, Rows(part, name, value, keep))
    items = iter(value.items())
    while made and (some := dict(islice(items, _PART))):
        if keep is not None:
            keep(tuple(some.items()))
        part.__dict__[name] = some
        for key, more in part.model_dump(by_alias=True, include={name}).items():
            made[key].update(more)
        yield
    return made


def _has_plain_dump(model: Any) -> bool:
    """Whether nothing but the types of its fields says how a model is dumped."""
    kind = type(model)
    own = kind.__pydantic_decorators__
    has_own = own.field_serializers or own.model_serializers or own.computed_fields or has_own_dump(model)
    is_known = "__get_pydantic_core_schema__" not in vars(kind) and not kind.__pydantic_root_model__
    return not has_own and is_known


def _is_plain_field(field: Any) -> bool:
    return not (field.metadata or field.exclude or getattr(field, "exclude_if", None))


def _is_plain_collection(field: Any, value: Any) -> bool:
    kind = type(value)
    is_long = kind in (list, dict) and len(value) > _PART
    return is_long and get_origin(field.annotation) is kind and _is_plain_field(field)


def _is_plain_model(field: Any, value: Any) -> bool:
    is_model = isinstance(value, sys.modules["pydantic"].BaseModel)
    return is_model and type(value) is field.annotation and _is_plain_field(field)
