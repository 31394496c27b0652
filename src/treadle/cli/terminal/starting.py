"""Starting: what a person is asked before their first conversation: which model answers. Runs no task."""

import asyncio
import os
from collections.abc import Mapping

import msgspec

from treadle import Agent, Budget, TreadleError, local_servers, resolve_model
from treadle.cli.input.keys import VENDORS, KeyVendor, save_key
from treadle.cli.input.places import shown_address, user_config
from treadle.cli.input.saving import save_value
from treadle.cli.input.settings import Settings
from treadle.cli.output.text import for_terminal, one_line
from treadle.cli.terminal.faces import Face, Option

__all__ = ["chosen_model", "with_only_key"]

_MOST_OF_A_SERVER = 4
"""Models of one server that are offered."""
_TRIED = Budget(max_model_turns=1, max_wall_time_seconds=60)


class _Way(msgspec.Struct, frozen=True, kw_only=True):
    """One way to a model."""

    option: Option
    model: str
    vendor: KeyVendor | None = None
    """Whose key has to be entered first."""


def with_only_key(settings: Settings, environment: Mapping[str, str] = os.environ) -> tuple[Settings, str]:
    """Return the settings with the usual model of the one vendor whose key is set, and a sentence that says so.

    The settings are as they were, and the sentence is empty, where a model is named, or no key or several are set.
    """
    found = [one for one in VENDORS if one.is_set(environment)]
    if settings.model is not None or len(found) != 1:
        return settings, ""
    variable = next(name for name in found[0].variables if environment.get(name))
    model = found[0].model
    says = f"No model is named: {model} answers, since {variable} is set. /model changes it; to keep one: treadle config set model NAME"
    origins = {**settings.origins, "model": variable}
    return msgspec.structs.replace(settings, model=model, origins=origins), says


async def chosen_model(face: Face, settings: Settings, environment: Mapping[str, str] = os.environ) -> str | None:
    """Let the person choose a model, try it with one request, and keep the choice; None where they leave.

    Raises:
        UsageError: The choice cannot be written.
    """
    face.tell("Welcome. Treadle needs a model. This is what was found here, and what needs a key:")
    ways = await _ways(environment)
    while True:
        place = await face.choose("Which model shall answer?", [one.option for one in ways])
        if place is None:
            return None
        way = ways[place]
        key = None
        if way.vendor is not None:
            key = await face.secret(f"Your key of {way.vendor.label}, from {way.vendor.page} (it is not shown):")
            if not key:
                continue
        if fault := await _fault(way.model, key, settings):
            face.tell(f"{way.model} did not answer: {fault}", is_bad=True)
            continue
        if way.vendor is not None and key:
            face.tell(f"The key is stored in {save_key(way.vendor, key, environment)}.")
        path = user_config(environment)
        save_value(path, "model", way.model)
        face.tell(f"{way.model} answers. The choice is kept in {path}; /model changes it for a conversation.")
        return way.model


async def _ways(environment: Mapping[str, str]) -> list[_Way]:
    """Return what can be chosen: what is ready first."""
    ready = [
        _Way(option=Option(one.model, f"{one.label}: the key is set"), model=one.model)
        for one in VENDORS
        if one.is_set(environment)
    ]
    entered = [
        _Way(option=Option(one.label, f"enter a key, from {one.page}"), model=one.model, vendor=one)
        for one in VENDORS
        if not one.is_set(environment)
    ]
    demo = _Way(option=Option("demo", "shows how it works; needs no key and no network"), model="demo")
    return [*ready, *await _local(), *entered, demo]


async def _local() -> list[_Way]:
    """Return the models that servers on this machine serve."""
    from treadle.cli.commands.doctor import find_models  # noqa: PLC0415 - loads aiohttp, which other starts do without

    servers = local_servers()
    return [
        _Way(
            option=Option(
                f"{name}:{one_line(model, 60)}", f"on this machine, at {one_line(shown_address(servers[name]))}"
            ),
            model=f"{name}:{model}",
        )
        for name, models in (await find_models(servers)).items()
        for model in models[:_MOST_OF_A_SERVER]
    ]


async def _fault(name: str, key: str | None, settings: Settings) -> str:
    """Ask a model for one word. Return what is wrong; nothing where it answers."""
    try:
        model = await asyncio.to_thread(resolve_model, name, api_key=key, options=settings.model_options)
        result = await Agent(model, budget=_TRIED).run("Answer with the one word: ready")
    except TreadleError as exc:
        return for_terminal(one_line(str(exc), 500))
    return "" if result.completed else for_terminal(one_line(result.message, 500))
