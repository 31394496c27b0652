"""Documented: `help(...)` shows the sentence below each field of a struct. Reads sources only when they are first needed."""

import inspect
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, SupportsIndex

__all__ = ["Documented"]


class Documented:
    """A struct whose documentation names its fields, each with the sentence below it in the source.

    Example:
        class Reading(msgspec.Struct, Documented, frozen=True):
            celsius: float
            \"\"\"Degrees Celsius.\"\"\"
    """

    __slots__ = ()

    def __init_subclass__(cls, **options: Any) -> None:  # Any: what other bases take
        super().__init_subclass__(**options)
        documentation = _Documentation(cls.__dict__.get("__doc__") or "")
        documentation.owner = cls
        cls.__doc__ = documentation


class _Documentation(str):
    """The documentation of one class. The sentences of its fields are read when somebody first looks."""

    __slots__ = ("_whole", "owner")
    owner: type
    _whole: str

    def __get__(self, instance: object, owner: type) -> str:
        """Return all of it: Python asks this for `owner.__doc__`."""
        if not hasattr(self, "_whole"):
            self._whole = _with_fields(str(self), self.owner)
        return self._whole

    def expandtabs(self, tabsize: SupportsIndex = 8) -> str:
        """Return all of it: `help` takes this text out of the class and expands its tabs."""
        return self.__get__(None, self.owner).expandtabs(tabsize)


def _with_fields(text: str, owner: type) -> str:
    fields: tuple[str, ...] = getattr(owner, "__struct_fields__", ())
    found = {name: sentence for one in reversed(owner.__mro__) for name, sentence in _sentences(one)}
    lines = [line for name in fields if name in found for line in _entry(name, found[name])]
    head = inspect.cleandoc(text)
    return "\n".join([head, "", "Attributes:", *lines]) if lines else head


def _entry(name: str, sentence: str) -> list[str]:
    first, *rest = sentence.splitlines() or [""]
    return [f"    {name}: {first}", *(f"        {line}".rstrip() for line in rest)]


def _sentences(one: type) -> Iterator[tuple[str, str]]:
    """Yield what stands below each attribute of a class; nothing where there is no source."""
    import ast  # noqa: PLC0415 - only for whoever reads documentation
    import textwrap  # noqa: PLC0415 - as above

    try:
        body = ast.parse(textwrap.dedent(inspect.getsource(one))).body[0]
    except (OSError, TypeError, SyntaxError):
        return
    members = body.body if isinstance(body, ast.ClassDef) else []
    for field, below in pairwise(members):
        match field, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(sentence))):
                yield name, inspect.cleandoc(sentence)
            case _:
                continue
