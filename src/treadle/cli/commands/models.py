"""`treadle models`: what is known of models: windows, limits, inputs, prices; with `--offered`, what a server offers."""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from treadle import ConfigurationError, Price
from treadle.cli.exits import UsageError
from treadle.cli.input.commands import ModelsOptions
from treadle.cli.input.near import hint_for
from treadle.cli.output.terminal import Terminal
from treadle.cli.output.text import columns, shown_name
from treadle.ports import ModelFacts
from treadle.resolve import known_facts, known_models, offered_models, probe_model

__all__ = ["models"]


def models(options: ModelsOptions, terminal: Terminal) -> int:
    """List what is known: of one model, of a vendor's, or of all; or the models that a vendor's server offers; or probe a model."""
    if options.name == "probe":
        return _probe(options, terminal)
    if options.model is not None:
        raise UsageError(f"Name one model. To probe one: treadle models probe {shown_name(options.model)}")
    rows = _offered(options) if options.is_offered else _rows(options.name, terminal)
    if options.as_json:
        terminal.data([_described(name, facts) for name, facts in rows.items()])
        return 0
    if rows:
        _show(rows, terminal)
    return 0


def _probe(options: ModelsOptions, terminal: Terminal) -> int:
    if options.model is None:
        raise UsageError("Name the model to probe: treadle models probe llamacpp:NAME")
    found = asyncio.run(probe_model(options.model, base_url=options.base_url))
    values = {name: getattr(found, name) for name in found.__struct_fields__}
    if options.as_json:
        terminal.data({"model": options.model, **values})
        return 0
    for name, value in values.items():
        terminal.line(f"{name.replace('_', ' '):<25} {_answer(value)}")
    terminal.say(f"Kept for -m {shown_name(options.model)} at this address.")
    return 0


def _answer(value: object) -> str:
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case _:
            return str(value)


_COLUMNS = ("model", "window", "output", "$ in", "$ out", "inputs")


def _show(rows: Mapping[str, ModelFacts], terminal: Terminal) -> None:
    """Show a table: tokens, and prices per million tokens."""
    table = [_COLUMNS, *(_row(name, facts) for name, facts in rows.items())]
    for line in columns(table, left=(0, len(_COLUMNS) - 1)):
        terminal.line(line)


def _row(name: str, facts: ModelFacts) -> tuple[str, ...]:
    price = facts.price
    asked = (str(price.input), str(price.output)) if isinstance(price, Price) else ("-", "-")
    return (
        shown_name(name),
        _tokens(facts.window),
        _tokens(facts.output),
        *asked,
        ", ".join(_inputs(facts)) or "-",
    )


def _offered(options: ModelsOptions) -> Mapping[str, ModelFacts]:
    if not options.name:
        raise ConfigurationError("Name the vendor whose server to ask: `treadle models openai --offered`.")
    return asyncio.run(offered_models(options.name, base_url=options.base_url))


def _rows(name: str | None, terminal: Terminal) -> Mapping[str, ModelFacts]:
    """Return the facts by model: of a vendor's, or of those whose name holds a text. `vendor:model` has a row even if nothing is known.

    Raises:
        UsageError: No vendor has the name, and no model.
    """
    vendor, _, model = (name or "").partition(":")
    if model:
        return {f"{vendor}:{model}": known_facts(f"{vendor}:{model}")}
    every = known_models()
    found = {one: facts for one, facts in every.items() if not vendor or one.startswith(f"{vendor}:")}
    found = found or {one: facts for one, facts in every.items() if vendor.casefold() in one.partition(":")[2]}
    if not found:
        _check_vendor(vendor, every)
        terminal.say(
            f"Nothing is known of the models of {vendor}. To ask its server: treadle models {vendor} --offered"
        )
    return found


def _check_vendor(name: str, known: Iterable[str]) -> None:
    try:
        known_facts(f"{name}:any")
    except ConfigurationError:
        ids = [one.partition(":")[2] for one in known]
        raise UsageError(
            f"No vendor and no known model is named {name!r:.80}.{hint_for(name, ids)} `treadle models` lists what is known; "
            "`treadle models VENDOR --offered` asks a server."
        ) from None


def _described(name: str, facts: ModelFacts) -> dict[str, Any]:
    price = facts.price
    return {
        "model": name,
        **{name: getattr(facts, name) for name in ("window", "output", "tools", "strict", "parallel", "thinking")},
        "inputs": None if facts.inputs is None else _inputs(facts),
        "price": {name: str(value) for name in price.__struct_fields__ if (value := getattr(price, name)) is not None}
        if isinstance(price, Price)
        else None,
    }


def _inputs(facts: ModelFacts) -> list[str]:
    return sorted(facts.inputs or (), key=lambda one: (one != "text", one))


def _tokens(number: int | None) -> str:
    return "-" if number is None else f"{number:,}"
