"""Faces: every public callable with its parameters, found by itself. A new public name falls under the sweep without a word here."""

import dataclasses
import enum
import importlib
import inspect
import re
import types
import typing
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import msgspec

import treadle
from house import NOUNS, PACKAGES, PROJECT

__all__ = ["Face", "Parameter", "faces", "public_modules"]


@dataclasses.dataclass(frozen=True)
class Parameter:
    """One parameter, or one field of a struct."""

    name: str
    annotation: Any
    is_required: bool
    kind: Any


@dataclasses.dataclass(frozen=True)
class Face:
    """One public callable: a function, a class that is called, or a method."""

    name: str
    """As a user writes it, such as `Session.answer`."""
    owner: type | None
    """The class of a method; None where no instance is needed."""
    member: str
    """Its name there; empty for what stands alone."""
    callable: Any
    parameters: tuple[Parameter, ...]
    module: str = ""
    """The first public module that names it."""

    def __str__(self) -> str:
        return self.name


MADE_BY_TREADLE = {"Run"}
"""Classes that only Treadle makes: their methods are public, their constructors are not."""


_DIALECTS = ("anthropic", "bedrock", "cohere", "gemini", "openai_chat", "openai_responses")
_PATHS = (
    "treadle.journals.postgres",
    "treadle.toolsets.shell",
    "treadle.toolsets.wrappers",
    *(f"treadle.providers.{dialect}" for dialect in _DIALECTS),
)
"""Further paths that the change log calls public."""


@cache
def public_modules() -> tuple[str, ...]:
    """Return the root, the nouns, the doubles, and whatever else the documentation tells people to import."""
    pages = [*PROJECT.glob("docs/*.md"), *PROJECT.glob("docs_src/**/*.py"), PROJECT / "README.md"]
    told = {
        name
        for page in pages
        for name in re.findall(r"^\s*from (treadle[\w.]*) import", page.read_text(), re.MULTILINE)
    }
    nouns = {f"treadle.{noun}" for noun in (*NOUNS, *PACKAGES) if importlib.util.find_spec(f"treadle.{noun}")}
    return tuple(sorted(told | nouns | {"treadle", "treadle.testing", *_PATHS}))


@cache
def faces() -> list[Face]:
    found: dict[str, Face] = {}
    seen: set[int] = set()
    for module_name in sorted(public_modules(), key=lambda name: (name != "treadle", name != "treadle.testing", name)):
        module = importlib.import_module(module_name)
        for name in _public_in(module):
            value = getattr(module, name)
            if id(value) in seen:
                continue
            seen.add(id(value))
            for face in _faces_of(name, value):
                where = face.name if face.name not in found else f"{module_name}.{face.name}"
                found[where] = dataclasses.replace(face, name=where, module=module_name)
    return [face for face in found.values() if face.parameters and face.name not in MADE_BY_TREADLE]


def _public_in(module: types.ModuleType) -> list[str]:
    """Return the names of a module that are public. Of the modules with names of the root, a few have others, which are the house's own."""
    name = module.__name__.removeprefix("treadle.")
    if name not in PACKAGES or hasattr(module, "__getattr__"):
        return list(module.__all__)
    return [one for one in module.__all__ if one in treadle._MOVED.get(name, "").split() or one in treadle.__all__]


def _faces_of(name: str, value: Any) -> Iterator[Face]:
    if inspect.isclass(value) and not isinstance(value, types.GenericAlias):
        if issubclass(value, enum.Enum) or getattr(value, "_is_protocol", False):
            return
        yield Face(name, None, "", value, _of_class(value))
        for member, raw in _members(value):
            if isinstance(raw, classmethod | staticmethod):
                yield Face(f"{name}.{member}", None, member, getattr(value, member), _of_function(raw.__func__))
            else:
                yield Face(f"{name}.{member}", value, member, raw, _of_function(raw))
    elif inspect.isfunction(value):
        yield Face(name, None, "", value, _of_function(value))


def struct_face(owner: type) -> Face:
    """Return the face of a struct that has no public name of its own."""
    return Face(owner.__name__, None, "", owner, _of_class(owner))


def _members(owner: type) -> Iterator[tuple[str, Any]]:
    done: set[str] = set()
    for one in owner.__mro__:
        if not one.__module__.startswith("treadle"):
            continue
        for member, raw in vars(one).items():
            is_callable = inspect.isfunction(raw) or isinstance(raw, classmethod | staticmethod)
            is_callable &= not hasattr(raw, "__deprecated__")
            if is_callable and not member.startswith("_") and member not in done and not inspect.isabstract(owner):
                done.add(member)
                yield member, raw


def _of_class(owner: type) -> tuple[Parameter, ...]:
    if issubclass(owner, msgspec.Struct):
        hints = typing.get_type_hints(owner, localns=_names_of(owner))
        first_default = len(owner.__struct_fields__) - len(owner.__struct_defaults__)
        return tuple(
            Parameter(
                field,
                hints[field],
                index < first_default or owner.__struct_defaults__[index - first_default] is msgspec.NODEFAULT,
                inspect.Parameter.KEYWORD_ONLY,
            )
            for index, field in enumerate(owner.__struct_fields__)
        )
    init = owner.__init__
    if not inspect.isfunction(init):
        return ()
    return _of_function(init)


def _of_function(function: Callable[..., Any]) -> tuple[Parameter, ...]:
    function = inspect.unwrap(function)
    try:
        hints = typing.get_type_hints(function, localns=_names_of(function))
    except (NameError, TypeError):  # a name that is known to type checkers only
        hints = {}
    return tuple(
        Parameter(one.name, hints.get(one.name, Any), one.default is inspect.Parameter.empty, one.kind)
        for one in inspect.signature(function).parameters.values()
        if one.name not in ("self", "cls")
    )


def _names_of(_value: Any) -> dict[str, Any]:
    """Return names that a module imports for its types only."""
    from treadle.providers.http.endpoint import Timeouts

    return {"Timeouts": Timeouts}
