"""Schema: one compiled JSON Schema, and every way in which a value breaks it. Knows no tool and changes no value."""

from collections.abc import Generator, Iterable, Iterator, Sequence
from itertools import count
from typing import Any, TypeAlias

import jsonschema_rs
import msgspec
from jsonschema_rs import ValidationError
from jsonschema_rs import ValidationErrorKind as Kind

from treadle.canonical import MAX_SCHEMA_VALUES, copied, find_unencodable
from treadle.errors import ToolDefinitionError
from treadle.tools import JsonObject
from treadle.validation.compiling import Validator, compiled
from treadle.validation.defaults import Defaults
from treadle.validation.parts import divided
from treadle.validation.references import lookup, resolved
from treadle.validation.rows import Row, bounded, field_path, placed, row
from treadle.validation.shapes import phrase

__all__ = ["Schema"]

Path: TypeAlias = tuple[str | int, ...]

_MAX_ROWS = 50
_MAX_NAMES = 20
# jsonschema-rs makes every error before it gives the first: a hostile array of 300,000 wrong items takes seconds.
_MAX_NODES_FOR_ALL = 5_000

_SLICE = 2000
"""Values between two pauses."""

_encoder = msgspec.json.Encoder()


class Schema:
    """A JSON Schema (draft 2020-12 unless it names another) as a gate.

    Example:
        Schema({"type": "object", "properties": {"name": {"type": "string"}}}, where="parameters of tool 'greet'")

    Args:
        schema: The schema. Formats are checked; no remote `$ref` is fetched.
        where: What it belongs to, for messages to the programmer.

    Raises:
        ToolDefinitionError: It is not a valid schema, or refers to something outside of itself.
    """

    def __init__(self, schema: JsonObject, *, where: str) -> None:
        problem = find_unencodable(schema, max_values=MAX_SCHEMA_VALUES)  # an encoder writes NaN as null
        if problem is not None:
            raise ToolDefinitionError(f"The {where} cannot be used: it cannot be written as JSON: {problem}.")
        self._schema: JsonObject = copied(
            schema
        )  # a tool's own is read-only: each look at a part of it makes a new object
        self._validator: Validator = compiled(self._schema, where=where)
        self._defaults = Defaults(self._schema)
        self._may_want_integers = b'"integer"' in _encoder.encode(schema)

    def violations(self, value: Any) -> list[Row]:
        """Return every violation (the first 50), one row for one wrong field; none when the value fits.

        A row is {"field": "items[0].quantity", "constraint": "integer 1..12", "value": "many"}.
        """
        found: list[Row] = []
        for _ in self._violating(value, found):
            pass
        return found

    def check_result(self, value: Any) -> list[Row]:
        """Return the violations of a tool's result. Stricter: 3.0 is not an integer."""
        found: list[Row] = []
        for _ in self.checking_result(value, found):
            pass
        return found

    def checking_result(
        self, value: Any, found: list[Row], *, has_whole_floats: bool = True, is_heavy: bool = False
    ) -> Generator[None]:
        """Check a tool's result in slices, and add its violations to `found`.

        Args:
            has_whole_floats: Whether the value may hold a float such as 3.0.
            is_heavy: Whether it holds so much that it is divided, where the schema allows that. Then the violations of the first
                part that has any are all that is reported.
        """
        if is_heavy:
            yield from self._checking_parts(value, found, has_whole_floats=has_whole_floats)
        else:
            yield from self._checking(value, found, has_whole_floats=has_whole_floats)

    def _checking_parts(self, value: Any, found: list[Row], *, has_whole_floats: bool) -> Generator[None]:
        known: dict[int, tuple[Any, Schema]] = {}  # by the identity of a schema, which is kept so that no other gets it
        for part in divided(self._schema, value):
            if id(part.schema) not in known:
                whole = part.schema if isinstance(part.schema, dict) else {"allOf": [part.schema]}
                known[id(part.schema)] = part.schema, Schema(whole, where="part of a schema")
            rows: list[Row] = []
            _, gate = known[id(part.schema)]
            yield from gate.checking_result(part.value, rows, has_whole_floats=has_whole_floats)
            if rows:
                found += [placed(row, part.path, part.start) for row in rows]
                return
            yield

    def _checking(self, value: Any, found: list[Row], *, has_whole_floats: bool) -> Generator[None]:
        yield from self._violating(value, found)
        if found or not self._may_want_integers or not has_whole_floats:
            return
        yield
        nudged: set[Path] = set()
        changed = yield from _nudge(value, (), nudged, count(1))
        if nudged:
            strict = [error for error in self._errors(changed) if _wants_integer(error, nudged)]
            found += self._explained(strict, value)

    def _violating(self, value: Any, found: list[Row]) -> Generator[None]:
        try:
            _encoder.encode(value)  # finds in C what the validator would misread: integers beyond 4,300 digits, for one
            yield
            if self._validator.is_valid(value):
                return
        except (TypeError, ValueError, RecursionError):
            found.append(_unfit(value))
            return
        yield
        found += self._explained(self._errors(value), value)

    def with_defaults(self, arguments: JsonObject, *, nested: bool = True) -> JsonObject:
        """Return valid arguments with the defaults of absent properties that fit. Its input stays as it is.

        Args:
            nested: Whether objects inside get theirs too. Those of a Python type are the type's own business.
        """
        return self._defaults.fill(arguments, nested=nested) if self._defaults.declares_any else arguments

    def unfit_defaults(self, *, nested: bool = True) -> list[Row]:
        """Return the violations of every declared default that breaks its own schema; a row's field begins at its property."""
        unfit = self._defaults.unfit(nested=nested)
        return [found for value, own in unfit for found in Schema(own, where="defaults").violations(value)]

    def _errors(self, value: Any) -> Iterable[ValidationError]:
        if not _is_larger(value, _MAX_NODES_FOR_ALL):
            return self._validator.iter_errors(value)
        try:
            self._validator.validate(value)
        except jsonschema_rs.ValidationError as error:
            return [error]
        return []

    def _explained(self, errors: Iterable[ValidationError], value: Any) -> list[Row]:
        by_field: dict[str, Row] = {}
        for error in errors:
            for found in self._rows(error, value):
                _merge(by_field, found)
            if len(by_field) >= _MAX_ROWS:
                break
        return list(by_field.values())[:_MAX_ROWS]

    def _rows(self, error: ValidationError, value: Any) -> Iterator[Row]:
        path = error.instance_path
        match error.kind:
            case Kind.Required(property=name):
                yield row(field_path([*path, name]), self._why_required(error, name), None)
            case Kind.AdditionalProperties(unexpected=names) | Kind.UnevaluatedProperties(unexpected=names):
                for name in names:
                    yield row(field_path([*path, name]), self._known(error), bounded(_at(value, [*path, name])))
            case Kind.PropertyNames(error=inner):
                name = str(inner.instance)
                yield row(field_path([*path, name]), f"a property name: {self._phrase(error)}", bounded(name))
            case Kind.AnyOf(context=branches) | Kind.OneOfNotValid(context=branches):
                meant = _meant(branches, error, value)
                for inner in meant:
                    yield from self._rows(inner, value)
                if not meant:
                    yield row(field_path(path), self._phrase(error), bounded(_at(value, path)))
            case Kind.OneOfMultipleValid():
                constraint = f"only one of these, not several: {self._phrase(error)}"
                yield row(field_path(path), constraint, bounded(_at(value, path)))
            case Kind.FalseSchema():
                yield row(field_path(path), "not allowed here", bounded(_at(value, path)))
            case _:
                yield row(field_path(path), self._phrase(error), bounded(_at(value, path)))

    def _phrase(self, error: ValidationError) -> str:
        return phrase(lookup(self._schema, error.schema_path[:-1]), self._schema)

    def _why_required(self, error: ValidationError, name: str) -> str:
        if error.schema_path[-1:] not in (["dependentRequired"], ["dependencies"]):
            return "required"
        rules = lookup(self._schema, error.schema_path)
        causes = [cause for cause, needs in rules.items() if isinstance(needs, list) and name in needs]
        return f"required together with {' or '.join(causes)}"

    def _known(self, error: ValidationError) -> str:
        owner = resolved(lookup(self._schema, error.schema_path[:-1]), self._schema)
        names = list(owner.get("properties", ()))
        more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
        return f"no such property (known: {', '.join(names[:_MAX_NAMES]) or 'none'}{more})"


def _unfit(value: Any) -> Row:
    problem = find_unencodable(value, max_depth=200)
    return row("", "plain JSON", problem or "a value that cannot be checked")


def _merge(by_field: dict[str, Row], found: Row) -> None:
    """Keep one row for one field: a second constraint joins the first."""
    known = by_field.setdefault(found["field"], found)
    constraint = found["constraint"]
    # A property that is wrong counts as unevaluated too, and there is no more to say of it.
    if known is not found and constraint not in known["constraint"] and not constraint.startswith("no such property"):
        known["constraint"] = f"{known['constraint']}; {constraint}"


def _at(value: Any, path: Iterable[str | int]) -> Any:
    for part in path:
        value = value[part]
    return value


def _is_larger(value: Any, nodes: int) -> bool:
    """Whether a value holds more than so many values. Stops counting there."""
    pending, count = [value], 0
    while pending and count <= nodes:
        node = pending.pop()
        count += 1
        if isinstance(node, dict):
            pending.extend(node.values())
        elif isinstance(node, list | tuple):
            pending.extend(node)
    return count > nodes


# --- alternatives ----------------------------------------------------------------------------------------------------


def _meant(
    branches: Sequence[Sequence[ValidationError]], error: ValidationError, value: Any
) -> Sequence[ValidationError]:
    """Return the errors of the one alternative that an object or array was meant to be; none when that is not clear."""
    here = error.instance_path
    if not isinstance(_at(value, here), dict | list):
        return ()
    likely = [branch for branch in branches if not any(_is_other_kind(inner, here) for inner in branch)]
    if len(likely) > 1:
        likely = [branch for branch in likely if not any(_is_other_tag(inner, here) for inner in branch)]
    return likely[0] if len(likely) == 1 else ()


def _is_other_kind(error: ValidationError, here: list[str | int]) -> bool:
    return error.instance_path == here and isinstance(error.kind, Kind.Type | Kind.Enum | Kind.Constant)


def _is_other_tag(error: ValidationError, here: list[str | int]) -> bool:
    """Whether a property that tells the alternatives apart says that it is another one."""
    return error.instance_path[:-1] == here and isinstance(error.kind, Kind.Enum | Kind.Constant)


# --- strict results --------------------------------------------------------------------------------------------------


def _nudge(value: Any, path: Path, nudged: set[Path], pace: Iterator[int]) -> Generator[None, None, Any]:
    """Copy a value with every whole float made a fraction, so that a validator who takes 3.0 for 3 sees a float."""
    if next(pace) % _SLICE == 0:
        yield
    match value:
        case float() if value.is_integer():
            nudged.add(path)
            return 0.5 if abs(value) >= 2**51 else value + 0.5
        case dict():
            changed: dict[str, Any] = {}
            for key, item in value.items():
                changed[key] = yield from _nudge(item, (*path, key), nudged, pace)
            return changed
        case list() | tuple():
            items: list[Any] = []
            for index, item in enumerate(value):
                items.append((yield from _nudge(item, (*path, index), nudged, pace)))
            return items
        case _:
            return value


def _wants_integer(error: ValidationError, nudged: set[Path]) -> bool:
    """Whether an error is about a float where an integer belongs, and not about the nudge."""
    match error.kind:
        case Kind.Type():
            return tuple(error.instance_path) in nudged
        case Kind.AnyOf(context=branches) | Kind.OneOfNotValid(context=branches):
            return all(any(_is_real(inner, nudged) for inner in branch) for branch in branches)
        case _:
            return False


def _is_real(error: ValidationError, nudged: set[Path]) -> bool:
    if isinstance(error.kind, Kind.AnyOf | Kind.OneOfNotValid | Kind.Type):
        return isinstance(error.kind, Kind.Type) or _wants_integer(error, nudged)
    here = tuple(error.instance_path)
    return not any(path[: len(here)] == here for path in nudged)
