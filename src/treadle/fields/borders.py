"""Borders: `checked` and its like refuse, where values of strangers come in, what is not declared. Read annotations at the first call."""

import functools
import inspect
import types
import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import msgspec

from treadle.errors import ConfigurationError, TreadleError, check_options, shown
from treadle.fields.kinds import ANYTHING, Kind, kind_of

__all__ = ["NamedOptions", "check_fields", "checked", "checked_but", "explained"]

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

    def decorated(function: Callable[_P, _R]) -> Callable[_P, _R]:
        border = _Border(function, own)
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def awaited(*values: _P.args, **options: _P.kwargs) -> Any:  # Any: what the function returns
                border.check(values, options)
                return await function(*values, **options)

            return awaited  # type: ignore[return-value]  # a coroutine function, as the one that it wraps

        @functools.wraps(function)
        def called(*values: _P.args, **options: _P.kwargs) -> _R:
            border.check(values, options)
            return function(*values, **options)

        return called

    return decorated


def explained(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Look at the arguments only after a function has failed: for what runs at every step, and fails before it does anything.

    Raises:
        ConfigurationError: From the function, as `checked` says, where an argument does not fit; else what it raised.
    """
    border = _Border(function)
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def awaited(*values: _P.args, **options: _P.kwargs) -> Any:  # Any: what the function returns
            try:
                return await function(*values, **options)
            except Exception as exc:
                border.explain(exc, values, options)
                raise

        return awaited  # type: ignore[return-value]  # a coroutine function, as the one that it wraps

    @functools.wraps(function)
    def called(*values: _P.args, **options: _P.kwargs) -> _R:
        try:
            return function(*values, **options)
        except Exception as exc:
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
                check_options(self.__name__, options, self.__struct_fields__)
            made = super().__call__(*values, **options)
            check_fields(self.__name__, made)
            return made


def check_fields(owner: str, struct: Any) -> None:  # Any: a struct of any class
    """Refuse a struct that holds in a field what the field does not declare to take: nothing looks when it is made.

    Raises:
        ConfigurationError: A field holds another kind of value.
    """
    for name, kind in _kinds_of_fields(type(struct)).items():
        _refuse(f"{owner} {name}", getattr(struct, name), kind)


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

    def check(self, values: Sequence[object], options: Mapping[str, object]) -> None:
        if self._named is None:
            self._named = self._read()
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
            elif one.kind is not one.VAR_KEYWORD:
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
        return typing.get_type_hints(types.SimpleNamespace(__annotations__={"one": annotation}), _names_of(function))[
            "one"
        ]
    except (NameError, TypeError):
        return Any


def _names_of(function: Callable[..., Any]) -> dict[str, Any]:
    return getattr(function, "__globals__", {})
