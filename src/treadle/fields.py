"""Fields: what is declared of a value. `help(...)` shows the sentence below each field; `checked` refuses what does not fit.

`Documented` is public; the rest is for borders, where values of strangers come in.
"""

import ast
import functools
import inspect
import math
import sys
import types
import typing
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, ParamSpec, SupportsIndex, TypeVar

import msgspec
import typing_extensions

from treadle.errors import ConfigurationError, TreadleError, check_options, shown

__all__ = ["Documented"]


# --- Kinds: which values an annotation accepts, and the words for them. Refuses nothing.


class Kind(NamedTuple):
    """A test, and the words for what passes it."""

    fits: Callable[[Any], bool]  # Any: values of strangers
    description: str


ANYTHING = Kind(lambda _: True, "anything")


_LARGEST = 1.7e308
"""Below the largest number that a float can hold."""


def kind_of(annotation: Any) -> Kind:  # Any: any annotation
    """Return what values an annotation accepts."""
    if _is_hashable(annotation) and annotation in _SIMPLE:
        return _SIMPLE[annotation]
    if isinstance(annotation, TypeVar | typing_extensions.TypeVar):
        return ANYTHING if annotation.__bound__ is None else kind_of(annotation.__bound__)
    if isinstance(annotation, typing_extensions.TypeAliasType):
        return kind_of(annotation.__value__)
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    return _FORMS[origin](inner) if origin in _FORMS else _of_class(origin or annotation, inner)


def _literal(values: tuple[Any, ...]) -> Kind:  # Any: texts, numbers, None
    return Kind(
        lambda value: any(type(value) is type(one) and value == one for one in values),
        " or ".join(repr(one) for one in values),
    )


def _one_of(annotations: tuple[Any, ...]) -> Kind:  # Any: any annotations
    kinds = [kind_of(one) for one in annotations]
    names = list(dict.fromkeys(kind.description for kind in kinds))
    tests = tuple(kind.fits for kind in kinds)

    def fits(value: object) -> bool:
        for test in tests:  # noqa: SIM110 - a generator costs more, at every border
            if test(value):
                return True
        return False

    return Kind(fits, " or ".join([*names[:_MANY], "..."][: len(names)]))


def _of_class(kind: Any, inner: tuple[Any, ...]) -> Kind:  # Any: a class, or what stands for one
    if not isinstance(kind, type):
        return ANYTHING
    if getattr(kind, "_is_protocol", False):
        return _with_members(kind)
    if issubclass(kind, Mapping):
        return _mapping(kind, inner)
    if issubclass(kind, Collection) and not issubclass(kind, str | bytes):
        return _collection(kind, inner)
    return Kind(lambda value: isinstance(value, kind), f"{_article(kind.__name__)} {kind.__name__}")


def _mapping(kind: type, inner: tuple[Any, ...]) -> Kind:
    base = dict if kind is dict else Mapping
    if len(inner) != 2:
        return Kind(lambda value: isinstance(value, base), "a mapping")
    key, item = (kind_of(one) for one in inner)
    if item is ANYTHING:
        return Kind(lambda value: isinstance(value, base) and all(map(key.fits, value)), "a mapping")
    text = f"a mapping from {_many(key)} to {_many(item)}"
    return Kind(
        lambda value: isinstance(value, base) and all(key.fits(k) and item.fits(v) for k, v in value.items()), text
    )


def _collection(kind: type, inner: tuple[Any, ...]) -> Kind:
    """A list serves wherever a tuple or another sequence does; a text serves nowhere as a list of strings."""
    if kind is tuple and inner and inner[-1] is not ...:
        return _tuple_of([kind_of(one) for one in inner])
    is_set = issubclass(kind, AbstractSet)
    bases: tuple[type, ...] = (kind, set, frozenset) if is_set else (kind, list, tuple)
    item = kind_of(inner[0]) if inner else ANYTHING
    noun = "a set" if is_set else "a list"
    fits = item.fits

    def is_list(value: Any) -> bool:  # Any: values of strangers
        if not isinstance(value, bases) or isinstance(value, _NO_LISTS):
            return False
        items: Iterable[Any] = value  # type: ignore[assignment]  # each of the bases is one
        return all(map(fits, items))

    return Kind(
        is_list,
        noun if item is ANYTHING else f"{noun} of {_many(item)}",
    )


def _tuple_of(parts: Sequence[Kind]) -> Kind:
    def fits(value: Any) -> bool:  # Any: values of strangers
        return (
            isinstance(value, tuple)
            and len(value) == len(parts)
            and all(part.fits(one) for part, one in zip(parts, value, strict=True))
        )

    return Kind(fits, "a tuple of " + ", ".join(part.description for part in parts))


def _with_members(port: Any) -> Kind:  # Any: a Protocol
    """A port is whatever has its members, but not the class that makes one.

    Of a port with many members, most are enough: a port may have grown since the object of a stranger was written.
    """
    members = typing_extensions.get_protocol_members(port)
    methods = {name for name in members if callable(getattr(port, name, None))}
    names = methods or members

    wanted = len(names) if len(names) <= _FEW else len(names) // 2 + 1
    known: set[type] = set()  # one look at each class

    def fits(value: object) -> bool:
        if type(value) in known:
            return True
        if isinstance(value, type):
            return False
        if sum(hasattr(type(value), name) for name in names) >= wanted:
            known.add(type(value))
            return True
        return sum(hasattr(value, name) for name in names) >= wanted

    shown_members = ", ".join(sorted(names)[:_MANY])
    more = " and more" if len(names) > _MANY else ""
    return Kind(fits, f"{_article(port.__name__)} {port.__name__}, which has {shown_members}{more}")


def _many(kind: Kind) -> str:
    return {"a string": "strings", "a whole number": "whole numbers", "a number": "numbers", "bytes": "bytes"}.get(
        kind.description, f"values, each {kind.description}"
    )


def _article(name: str) -> str:
    return "an" if name[:1] in "AEIO" else "a"


def _is_hashable(annotation: object) -> bool:
    try:
        hash(annotation)
    except TypeError:
        return False
    return True


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:  # Any: whatever a stranger gives
    """Return whether it is a number that a float holds. NaN does not count: no comparison with it holds."""
    if isinstance(value, float):
        return value == value  # noqa: PLR0124 - NaN alone is not equal to itself
    return _is_whole(value) and -_LARGEST < value < _LARGEST


def _iterable(inner: tuple[Any, ...]) -> Kind:  # Any: any annotations
    """What can be run through but once is not looked into."""
    as_list = _collection(list, inner)

    def fits(value: object) -> bool:
        if isinstance(value, list | tuple):
            return as_list.fits(value)
        return isinstance(value, Iterable) and not isinstance(value, _NO_LISTS)

    return Kind(fits, as_list.description)


_NO_LISTS = (str, bytes, bytearray, Mapping)
_MANY = 4
_FEW = 5

_FORMS: dict[Any, Callable[[tuple[Any, ...]], Kind]] = {
    typing.Union: _one_of,
    types.UnionType: _one_of,
    Literal: _literal,
    typing.Annotated: lambda inner: kind_of(inner[0]),
    Callable: lambda _: Kind(callable, "a function"),
    type: lambda _: Kind(lambda value: isinstance(value, type), "a class"),
    Iterable: _iterable,
}
"""By the origin of an annotation: what makes its kind of what is in its brackets."""

_SIMPLE: dict[Any, Kind] = {
    Any: ANYTHING,
    object: ANYTHING,
    typing.Self: ANYTHING,
    typing_extensions.Self: ANYTHING,
    inspect.Parameter.empty: ANYTHING,
    None: Kind(lambda value: value is None, "None"),
    type(None): Kind(lambda value: value is None, "None"),
    str: Kind(lambda value: isinstance(value, str), "a string"),
    bytes: Kind(lambda value: isinstance(value, bytes), "bytes"),
    bool: Kind(lambda value: isinstance(value, bool), "True or False"),
    int: Kind(_is_whole, "a whole number"),
    float: Kind(_is_number, "a number"),
}


# --- Borders: `checked` and its like refuse, where values of strangers come in, what is not declared. Read annotations
# at the first call.

_P = ParamSpec("_P")
_R = TypeVar("_R")


def checked(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Refuse arguments that a function does not declare to take, before it begins. For what is called now and then.

    Raises:
        ConfigurationError: From the function: the name of the argument, its value, and what is accepted.
    """
    return checked_but()(function)


def checked_but(*own: str) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Do as `checked` does, but for the arguments so named: the function checks those in its own words."""
    return lambda function: _bordered(function, _Border(function, own), is_late=False)


def explained(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Look at the arguments only after a function has failed: for what runs at every step, and fails before it does anything.

    Raises:
        ConfigurationError: From the function, as `checked` says, where an argument does not fit; else what it raised.
    """
    return _bordered(function, _Border(function), is_late=True)


def _bordered(function: Callable[_P, _R], border: "_Border", *, is_late: bool) -> Callable[_P, _R]:
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def awaited(*values: _P.args, **options: _P.kwargs) -> Any:  # Any: what the function returns
            if not is_late:
                border.check(values, options)
            try:
                return await function(*values, **options)
            except Exception as exc:
                if is_late:
                    border.explain(exc, values, options)
                raise

        return awaited  # type: ignore[return-value]  # a coroutine function, as the one that it wraps

    @functools.wraps(function)
    def called(*values: _P.args, **options: _P.kwargs) -> _R:
        if not is_late:
            border.check(values, options)
        try:
            return function(*values, **options)
        except Exception as exc:
            if is_late:
                border.explain(exc, values, options)
            raise

    return called


class NamedOptions(msgspec.StructMeta):
    """The class of structs that people write by hand: a misspelt field gets a suggestion, a value of a wrong kind is refused.

    What is read back from a journal is not looked at again.
    """

    if not TYPE_CHECKING:  # a type checker finds a misspelt field by the struct's own signature

        def __call__(self, *values: Any, **options: Any) -> Any:
            if options.keys() - set(self.__struct_fields__):
                options = _under_new_names(self, options)
                check_options(self.__name__, options, self.__struct_fields__)
            made = super().__call__(*values, **options)
            check_fields(self.__name__, made)
            return made


def _under_new_names(
    kind: Any, options: dict[str, Any]
) -> dict[str, Any]:  # Any: a struct's class, and values of strangers
    """Return the options with those renamed that had another name in the version before."""
    renamed: Mapping[str, str] = getattr(kind, "renamed", {})
    for name in renamed.keys() & options.keys():
        message = f"Write {kind.__name__}({renamed[name]}=...): `{name}` goes."
        warnings.warn(message, DeprecationWarning, stacklevel=3)
    return {renamed.get(name, name): value for name, value in options.items()}


def check_fields(owner: str, struct: Any) -> None:  # Any: a struct of any class
    """Refuse a struct that holds in a field what the field does not declare to take: nothing looks when it is made.

    Raises:
        ConfigurationError: A field holds another kind of value.
    """
    for name, kind in _kinds_of_fields(type(struct)).items():
        _refuse(f"{owner} {name}", getattr(struct, name), kind)


def check_least(owner: str, struct: Any, names: Iterable[str], least: int) -> None:  # Any: as above
    """Refuse a struct in which one of these numbers is below the least that it may be, or not finite. None is allowed.

    Raises:
        ConfigurationError: One is.
    """
    for name in names:
        value = getattr(struct, name)
        is_number = value == value  # noqa: PLR0124 - NaN alone is not equal to itself
        if value is not None and not (is_number and least <= value < math.inf):
            raise ConfigurationError(
                f"{owner} {name} must be a number of {least} or more, and finite; got {shown(value)}."
            )


_known: dict[type, Mapping[str, Kind]] = {}


def _kinds_of_fields(owner: type) -> Mapping[str, Kind]:
    if owner in _known:
        return _known[owner]
    hints = typing.get_type_hints(owner, include_extras=True)
    fields: tuple[str, ...] = getattr(owner, "__struct_fields__", ())
    _known[owner] = {name: kind_of(hints[name]) for name in fields}
    return _known[owner]


class _Border:
    """The parameters of one function with their kinds. Made from its annotations at its first call."""

    def __init__(self, function: Callable[..., Any], own: Collection[str] = ()) -> None:
        self._function = function
        self._own = own
        owner, _, name = function.__qualname__.rpartition(".")
        self._owner = f"{owner.rpartition('.')[2]} " if name == "__init__" else ""
        self._named: dict[str, Kind] | None = None
        self._in_order: list[tuple[str, Kind]] = []
        self._others: tuple[str, Kind] | None = None
        self._takes_any = False

    def check(self, values: Sequence[object], options: Mapping[str, object]) -> None:
        if self._named is None:
            self._named = self._read()
        if not self._takes_any and not options.keys() <= self._named.keys():
            check_options(
                self._owner.strip() or self._function.__name__, options, [one for one in self._named if one != "self"]
            )
        for (name, kind), value in zip(self._in_order, values, strict=False):
            if kind is not ANYTHING:
                _refuse(self._owner + name, value, kind)
        if self._others is not None:
            for value in values[len(self._in_order) :]:
                _refuse(self._owner + self._others[0], value, self._others[1])
        for name, value in options.items():
            if self._named.get(name, ANYTHING) is not ANYTHING:
                _refuse(self._owner + name, value, self._named[name])

    def explain(self, error: Exception, values: Sequence[object], options: Mapping[str, object]) -> None:
        """Say which argument made a function fail; nothing where it failed on purpose, or where all fit."""
        if not isinstance(error, TreadleError):
            self.check(values, options)

    def _read(self) -> dict[str, Kind]:
        named = {}
        for one in inspect.signature(self._function).parameters.values():
            kind = ANYTHING if one.name in self._own else kind_of(_resolved(self._function, one.annotation))
            if one.kind is one.VAR_POSITIONAL:
                self._others = (one.name, kind)
            elif one.kind is one.VAR_KEYWORD:
                self._takes_any = True
            else:
                named[one.name] = kind
                if one.kind is not one.KEYWORD_ONLY:
                    self._in_order.append((one.name, kind))
        return named


def _refuse(name: str, value: object, kind: Kind) -> None:
    try:
        fits = kind.fits(value)
    except Exception:  # noqa: BLE001 - a value whose own methods fail is not of that kind
        fits = False
    if not fits:
        hint = f" Write [{shown(value)}]." if isinstance(value, str) and kind.description.startswith("a list") else ""
        raise ConfigurationError(
            f"{name} must be {kind.description}; got {_shown_unless_secret(name, value)}.{hint}"
        ) from None


def _shown_unless_secret(name: str, value: object) -> str:
    """Show a value; of one that may hold a key or a password, its kind."""
    return f"a value of type {type(value).__name__}" if name.rsplit(" ", maxsplit=1)[-1] in _SECRET else shown(value)


_SECRET = ("api_key", "base_url", "env", "environment", "headers", "journal", "url")


def _resolved(function: Callable[..., Any], annotation: Any) -> Any:  # Any: any annotation
    """Return an annotation without quotation marks. One whose module is known to type checkers only says nothing here."""
    if annotation is inspect.Parameter.empty:
        return Any
    if not isinstance(annotation, str):
        return annotation
    try:
        return typing.get_type_hints(
            types.SimpleNamespace(__annotations__={"one": annotation}), getattr(function, "__globals__", {})
        )["one"]
    except (NameError, TypeError):
        return Any


# --- Documented: `help(...)` shows the sentence below each field of a struct. Reads sources only when they are first
# needed.


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


class BelowIt(str):
    """The documentation of a method that another one makes: what is below it in its class. Read when somebody first looks."""

    __slots__ = ("_place",)
    _place: tuple[str, str, str]

    def __new__(cls, module: str, owner: str, name: str) -> typing.Self:
        made = super().__new__(cls, f"See {owner}.{name} in {module}.")
        made._place = (module, owner, name)
        return made

    def expandtabs(self, tabsize: SupportsIndex = 8) -> str:
        """Return all of it: `help` expands the tabs of what it shows."""
        module, owner, name = self._place
        return _sentences(module).get(owner, {}).get(name, str(self)).expandtabs(tabsize)


def _with_fields(text: str, owner: type) -> str:
    fields: tuple[str, ...] = getattr(owner, "__struct_fields__", ())
    found: dict[str, str] = {}
    for one in reversed(owner.__mro__):
        found |= _sentences(one.__module__).get(one.__qualname__, {})
    lines = [line for name in fields if name in found for line in _entry(name, found[name])]
    head = inspect.cleandoc(text)
    return "\n".join([head, "", "Attributes:", *lines]) if lines else head


def _entry(name: str, sentence: str) -> list[str]:
    first, *rest = sentence.splitlines() or [""]
    return [f"    {name}: {first}", *(f"        {line}".rstrip() for line in rest)]


@functools.cache
def _sentences(module: str) -> dict[str, dict[str, str]]:
    """Return what is below the attributes of each class of a module; nothing where there is no source."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except (KeyError, OSError, TypeError, SyntaxError):
        return {}
    return {name: dict(_sentences_in(body)) for name, body in _classes(tree, "")}


def _classes(node: Any, within: str) -> Iterator[tuple[str, list[Any]]]:  # Any: nodes of a syntax tree
    for one in getattr(node, "body", ()):
        name = f"{within}{getattr(one, 'name', '')}"
        if isinstance(one, ast.ClassDef):
            yield name, one.body
        yield from _classes(one, f"{name}." if isinstance(one, ast.ClassDef) else f"{name}.<locals>.")


def _sentences_in(body: list[Any]) -> Iterator[tuple[str, str]]:
    for field, below in pairwise(body):
        match field, below:
            case (
                ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]),
                ast.Expr(value=ast.Constant(value=str(sentence))),
            ):
                yield name, inspect.cleandoc(sentence)
            case _:
                continue
