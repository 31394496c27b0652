"""Options: a misspelt option of a class is answered with the name that was meant. Checks names only, never values."""

import difflib
import inspect
from collections.abc import Collection
from typing import Any

import msgspec

__all__ = ["NamedOptions", "check_options", "parameters_of"]


class NamedOptions(msgspec.StructMeta):
    """The class of structs that people write by hand: a misspelt field gets a suggestion."""

    def __call__(self, *values: Any, **options: Any) -> Any:  # Any: a struct's own signature is checked by mypy
        if options.keys() - set(self.__struct_fields__):
            check_options(self.__name__, options, self.__struct_fields__)
        return super().__call__(*values, **options)


def check_options(owner: str, given: Collection[str], known: Collection[str]) -> None:
    """Refuse options that do not exist.

    Raises:
        TypeError: One of them is unknown; the message has the nearest that is known.
    """
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
            hint = f" Did you mean {near[0]!r}?" if near else f" Its options are: {', '.join(known)}."
            raise TypeError(f"{owner} has no option {name!r}.{hint}")


def parameters_of(function: Any) -> tuple[str, ...]:  # Any: any callable
    """Return the names of a function's parameters but `self`."""
    return tuple(name for name in inspect.signature(function).parameters if name != "self")
