"""Starting: what a person is asked before their first conversation, and before the first in a folder: which model answers, and how much is trusted. Runs no task."""

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from treadle import Agent, Budget, TreadleError, resolve_model
from treadle.cli.exits import UsageError
from treadle.cli.guidance import guidance_in
from treadle.cli.input.keys import VENDORS, KeyVendor, save_key, use_stored_keys
from treadle.cli.input.places import shown_address, user_config
from treadle.cli.input.saving import save_value
from treadle.cli.input.settings import Settings
from treadle.cli.input.trust import brought_by, read_own_json, trusted_folders, with_trust, write_own
from treadle.cli.output.text import for_terminal, one_line
from treadle.cli.running import timeouts_of
from treadle.cli.terminal.faces import Face, Option
from treadle.resolve import local_servers

__all__ = ["ask_about_folder", "chosen_model", "is_new_folder", "with_answered_mode", "with_only_key"]

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
            use_stored_keys()
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
    from treadle.cli.model_servers import find_models  # noqa: PLC0415 - loads aiohttp, which other starts do without

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
        model = await asyncio.to_thread(
            resolve_model, name, api_key=key, options=settings.model_options, timeouts=timeouts_of(name, settings)
        )
        result = await Agent(model, budget=_TRIED).run("Answer with the one word: ready")
    except TreadleError as exc:
        return for_terminal(one_line(str(exc), 500))
    return "" if result.completed else for_terminal(one_line(result.message, 500))


# --- The folder: whether what comes with it counts, and the mode of its conversations. Asked once.

FolderMode: TypeAlias = Literal["ask", "auto"]
_ASKS = "ask before edits and commands"
_RUNS = "let edits and confined commands run (mode auto)"
_MOST_NAMED = 4


class _Folder(msgspec.Struct):
    """What a person has answered about a folder."""

    mode: FolderMode


def with_answered_mode(settings: Settings) -> Settings:
    """Return the settings with the mode that the person chose for the folder, where nothing else names one."""
    answered = _answered().get(os.path.realpath(settings.root))
    if answered is None or settings.origins["mode"] != "default":
        return settings
    return msgspec.structs.replace(
        settings, mode=answered.mode, origins={**settings.origins, "mode": str(_place_of_answers())}
    )


def is_new_folder(settings: Settings) -> bool:
    """Whether there is something to ask about the folder, and nobody has been asked."""
    if os.path.realpath(settings.root) in _answered():
        return False
    return settings.origins["mode"] == "default" or _brings(settings)


async def ask_about_folder(face: Face, settings: Settings) -> None:
    """Ask whether what comes with the folder counts, and how much runs without a question; keep the answer.

    Without an answer nothing is trusted, and the next conversation asks again.

    Raises:
        UsageError: The answer cannot be kept.
    """
    chooses_mode = settings.origins["mode"] == "default"
    if not _brings(settings):
        modes: tuple[FolderMode, ...] = ("ask", "auto")
        options = [Option(one[:1].upper() + one[1:]) for one in (_ASKS, _RUNS)]
        place = await face.choose("You are new in this folder. How shall Treadle work here?", options)
        if place is not None:
            _keep(settings, modes[place])
        return
    brought = brought_by(settings.root)
    guidance = guidance_in(brought.folder)
    names = [*brought.files, *guidance.digests]
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    title = f"This folder brings {one_line(', '.join(names[:_MOST_NAMED]), 200)}{more}. Do you trust it?"
    answers: list[tuple[Option, bool, FolderMode]] = [
        (Option("No: it may inform the model, but its rules and hooks do not count"), False, "ask"),
        (Option(f"Yes, and {_ASKS}" if chooses_mode else "Yes: its rules, hooks and instructions count"), True, "ask"),
    ]
    if chooses_mode:
        answers.append((Option(f"Yes, and {_RUNS}"), True, "auto"))
    show = Option("Show what it brings first")
    while (place := await face.choose(title, [*(one for one, _, _ in answers), show])) == len(answers):
        for name, content in zip(brought.files, brought.contents, strict=True):
            face.quote(f"--- {name}\n{content.decode('utf-8', 'replace')}")
        skills = (f"{one.description}\n\n{one.text}" for one in guidance.brought)
        commands = (f"--- {one.path}\n{one.text}" for one in guidance.commands)
        for told in filter(None, (guidance.instructions.text, *skills, *commands)):
            face.quote(told)
    if place is None:
        return
    _, is_trusted, mode = answers[place]
    if is_trusted:  # as it was shown: what has changed meanwhile is not trusted
        with_trust(brought, os.environ, guidance=guidance.digest, guides=guidance.digests)
        guidance_in.cache_clear()
    _keep(settings, mode)


def _brings(settings: Settings) -> bool:
    """Whether the folder brings files that nobody has decided on. One that cannot be trusted is reported by a note."""
    if settings.is_bare:
        return False
    real = os.path.realpath(settings.root)
    try:
        return real not in trusted_folders(os.environ) and bool(
            brought_by(settings.root).digest or guidance_in(real).digest
        )
    except UsageError:
        return False


def _place_of_answers() -> Path:
    return user_config(os.environ).with_name("folders.json")


def _answered() -> dict[str, _Folder]:
    found: dict[str, _Folder] | None = read_own_json(_place_of_answers(), dict[str, _Folder], "answer again")
    return found or {}


def _keep(settings: Settings, mode: FolderMode) -> None:
    known = {**_answered(), os.path.realpath(settings.root): _Folder(mode=mode)}
    write_own(_place_of_answers(), msgspec.json.encode(known))
