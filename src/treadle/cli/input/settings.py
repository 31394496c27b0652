"""Settings: what holds for this call, put together from flags, environment and files, each value with its origin.

Flags override the environment, that overrides the file of `--config`, that the person's file, and that the
project's: what comes with a folder never outranks what its reader has said. Runs nothing.
"""

import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_type_hints

import msgspec

from treadle import Budget, Effect, Price, TreadleError
from treadle.budgets import Guards
from treadle.cli.exits import UsageError
from treadle.cli.input.config import EACH, KEYS, NOTIFY_WORDS, SERVER_KEYS, Layer, Owner, Profile, Redaction, read_layer
from treadle.cli.input.mcp import ListedServer, listed_servers
from treadle.cli.input.options import Mode, OnApproval, OnLimit, Options, Sandbox
from treadle.cli.input.places import default_journal, hooks_file, journal_file, project_config, rules_file, user_config
from treadle.cli.input.rules import Kind, SourcedRule, all_rules, folder_rules
from treadle.cli.input.trust import Held, brought_by, changes, held, in_words, trusted_folders
from treadle.ports import ErrorForm, ModelFacts, TextCalls
from treadle.workers import Limit

__all__ = ["Settings", "ToolSource", "config_schema", "profile_names", "settings_of", "worker_limit"]


# --- Profiles: the layers of a profile that is asked for, and what a project's file may tighten. Reads no file.

_STRICTNESS = {
    "mode": {"plan": 0, "deny-unlisted": 0, "ask": 1, "accept-edits": 2, "auto": 3, "bypass": 4},
    "sandbox": {"on": 0, "auto": 1, "network": 2, "off": 3},
}
"""Smaller is stricter. What is equal replaces nothing."""


def check_profile(name: str | None, layers: Sequence[Layer]) -> None:
    """Refuse a profile that no file has.

    Raises:
        UsageError: There is none by this name.
    """
    if name is not None and not any(name in layer.profiles for layer in layers):
        known = ", ".join(sorted({known for layer in layers for known in layer.profiles})) or "none"
        raise UsageError(f"No configuration has a profile {name!r}. Known: {known}.")


def with_profile(name: str | None, layers: Sequence[Layer], *, is_remembered: bool) -> list[Layer]:
    """Return the layers with those of a profile: the person's in front of all, a project's in front of its own file.

    Args:
        is_remembered: Whether a session names the profile, and not the person: then it permits nothing.
    """
    own = [_layer(name, layer) for layer in layers if layer.owner == "person" and name in layer.profiles]
    if is_remembered:
        own = [msgspec.structs.replace(layer, allow=(), mode=None, sandbox=None) for layer in own]
    found = list(own)
    for layer in layers:
        found += [_layer(name, layer)] if layer.owner == "project" and name in layer.profiles else []
        found.append(layer)
    return found


def _layer(name: str | None, layer: Layer) -> Layer:
    """Return a profile as a layer of its own. Its limits are left out: they are put together with those of the files."""
    assert name is not None
    profile = layer.profiles[name]
    values = {field: getattr(profile, field) for field in profile.__struct_fields__ if field != "budget"}
    is_own = layer.owner == "person"
    return Layer(
        **values,
        origin=f"profile {name}" if is_own else layer.origin,
        folder=layer.folder,
        owner=layer.owner,
        is_profile=is_own,
    )


def is_tighter(name: str, asked: str, holds: str) -> bool:
    """Whether a mode or a sandbox permits less than what holds."""
    return _STRICTNESS[name][asked] < _STRICTNESS[name][holds]


def refusal(origin: str, name: str, value: Any, holds: Any) -> str:
    """Say what a project's file asks for and does not get."""
    asked = "none" if value is None else value
    return (
        f"{origin} asks for {name} = {asked}, which is more than {holds}: a project can only lower a limit. "
        f"Set it by a flag or in your own file if you want it."
    )


# --- Settings: what holds for this call, put together from flags, environment and files, each value with its origin.

T = TypeVar("T")

_APPROVAL_SECONDS = 7 * 86400.0
"""How long a person may take to answer where nothing else is said, as for `Agent`."""
_FLAG = "flag"
_DEFAULT = "default"
_BELL: str | tuple[str, ...] = "bell"


class ToolSource(msgspec.Struct, frozen=True, kw_only=True):
    """Where tools come from: built-in names, a Python file, or module:attribute."""

    text: str
    folder: Path
    """Where the path of a file begins."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What holds for one call of the program."""

    root: Path
    journal: str
    model: str | None
    base_url: str | None
    system: str | None
    """Instructions for the model, or `@` and a file; None for none."""
    mode: Mode
    """Of a new session, and of any where `is_mode_asked`."""
    is_mode_asked: bool
    """Whether the mode was asked for with this very call."""
    model_options: dict[str, Any]
    text_calls: TextCalls | None
    error_form: ErrorForm | None
    first_byte_seconds: float | None
    idle_seconds: float | None
    """Fields of each request to the model."""
    sandbox: Sandbox
    """Whether commands are confined."""
    sandbox_read: tuple[str, ...]
    sandbox_hide: tuple[str, ...]
    """What confined commands may read besides the system's own folders, by whole paths."""
    price: Price | None
    facts: ModelFacts | None
    budget: Budget
    overriding: dict[str, Any]
    """The limits that were given for this very call, by flag or profile: they also change a run that is resumed."""
    profile: str | None
    guards: Guards
    on_limit: OnLimit
    on_approval: OnApproval
    approval_seconds: float
    """How long a person may take to answer a call that waits."""
    notify: str | tuple[str, ...]
    """The sign for a person who looks elsewhere: `bell`, `osc9`, `off`, or a program with its arguments."""
    notify_after_seconds: float
    """After so long a person may look elsewhere."""
    config: str | None
    """The file of `--config`."""
    rules: tuple[SourcedRule, ...]
    """All that hold, of every scope."""
    tools: tuple[ToolSource, ...]
    """Empty for the four file tools."""
    origins: dict[str, str]
    """Where each value comes from, by its name."""
    redaction: Redaction = Redaction()
    hooks: tuple[Path, ...] = ()
    """Files of hooks that count: the person's own, and those of a trusted folder."""
    held: Held = Held()
    """What came with the folder, where it is trusted: of its files nothing is read anew."""
    is_bare: bool = False
    """Whether instruction files, skills and built-in instructions are left out."""
    mcp: tuple[ListedServer, ...] = ()
    """MCP servers, whether they are used or wait for approval."""
    worker_limits: tuple[Limit, ...] = ()
    """Limits over all workers, as the files have them."""
    notes: tuple[str, ...] = ()
    """What a project's file asks for and does not get: each a sentence."""

    def texts(self, kind: Kind) -> tuple[str, ...]:
        """Return the rules of one kind, as people wrote them."""
        return tuple(rule.text for rule in self.rules if rule.kind == kind)


def settings_of(options: Options, environment: Mapping[str, str] = os.environ) -> Settings:
    """Put the settings together.

    Raises:
        UsageError: A folder, file, profile or rule is wrong.
    """
    root = _root(options.folder or ".")
    notes: list[str] = []
    trusted = Held() if options.is_bare else _held(root, environment, notes)
    layers = _layers(options, root, environment, trusted)
    if not notes:  # else it has been said
        notes += _untrusted(layers, root)
    check_profile(options.profile, layers)
    is_remembered = "profile" in options.remembered
    project = next((layer for layer in layers if layer.owner == "project"), None)
    files, layers = layers, with_profile(options.profile, layers, is_remembered=is_remembered)
    choice = _Choice(layers)
    servers = _servers(root, environment, files, notes)
    limits = _limits(options, files, choice.origins)
    _tighten_limits(limits, project, options, choice.origins, notes)
    saved_in = rules_file(environment)
    rules = all_rules(options, layers, folder_rules(saved_in, root), saved_in=saved_in, environment=environment)
    _note_rules(rules, choice.origins)
    return Settings(
        root=root,
        journal=_journal(options, environment, choice),
        model=choice.of("model", options.model, lambda one: one.model, None, environment.get("TREADLE_MODEL")),
        base_url=choice.of("base_url", options.base_url, lambda one: one.base_url, None),
        system=choice.of("system", options.system, lambda one: one.system, None),
        mode=_tightened("mode", options, "ask", layers, choice, notes),
        model_options=_model_options(options.model_options, layers, choice.origins),
        text_calls=choice.of("text_calls", options.text_calls, lambda one: one.text_calls, None),
        error_form=choice.of("error_form", options.error_form, lambda one: one.error_form, None),
        first_byte_seconds=choice.of(
            "first_byte_seconds", options.first_byte_seconds, lambda one: one.first_byte_seconds, None
        ),
        idle_seconds=choice.of("idle_seconds", options.idle_seconds, lambda one: one.idle_seconds, None),
        is_mode_asked=options.mode is not None or choice.origins["mode"] == f"profile {options.profile}",
        sandbox=_tightened("sandbox", options, "auto", layers, choice, notes),
        sandbox_read=tuple(dict.fromkeys(path for layer in layers for path in layer.sandbox_read)),
        sandbox_hide=tuple(dict.fromkeys(path for layer in layers for path in layer.sandbox_hide)),
        price=choice.of("price", None, lambda one: one.price, None),
        facts=choice.of("facts", None, lambda one: one.facts, None),
        budget=Budget(**limits),
        overriding=options.limits if is_remembered else _profile_limits(options.profile, files) | options.limits,
        profile=options.profile,
        guards=_guards(layers, choice.origins, notes),
        on_limit=choice.of("on_limit", options.on_limit, lambda one: one.on_limit, "summarize"),
        on_approval=choice.of("on_approval", options.on_approval, lambda one: one.on_approval, "pause"),
        approval_seconds=_approval_seconds(options, layers, choice, notes),
        notify=choice.of("notify", None, lambda one: one.notify, _BELL),
        notify_after_seconds=choice.of("notify_after_seconds", None, lambda one: one.notify_after_seconds, 10.0),
        config=options.config,
        rules=rules,
        tools=_tools(options.tools, layers, choice.origins, uses_servers=any(one.is_used for one in servers)),
        origins=choice.origins,
        redaction=_redaction(layers, choice.origins),
        hooks=() if options.is_bare else _hook_files(root, environment, trusted),
        held=trusted,
        is_bare=options.is_bare,
        mcp=servers,
        worker_limits=_worker_limits(files, choice.origins, notes),
        notes=tuple(notes),
    )


def _untrusted(layers: Sequence[Layer], root: Path) -> list[str]:
    """Return what is said of files that set what counts in trusted folders only."""
    return [
        f"{layer.origin} sets {' and '.join(layer.untrusted)}, which does not count: the folder is not trusted. Review it, then run: treadle trust approve {shlex.quote(os.path.realpath(root))}"
        for layer in layers
        if layer.untrusted
    ]


def profile_names(options: Options, environment: Mapping[str, str] = os.environ) -> list[str]:
    """Return the profiles that `--profile` may name, in order.

    Raises:
        UsageError: A folder or a file is wrong.
    """
    root = _root(options.folder or ".")
    layers = _layers(options, root, environment, _held(root, environment, []))
    return sorted({name for layer in layers for name in layer.profiles})


def _approval_seconds(options: Options, layers: Sequence[Layer], choice: "_Choice", notes: list[str]) -> float:
    """Return how long a person may take. A project's file may only shorten what holds without it."""
    name = "approval_seconds"
    holds = choice.of(
        name,
        options.approval_seconds,
        lambda one: None if one.owner == "project" else one.approval_seconds,
        _APPROVAL_SECONDS,
    )
    for project in (one for one in layers if one.owner == "project"):
        asked = project.approval_seconds
        if asked is not None and asked > holds:
            notes.append(refusal(project.origin, name, asked, holds))
        elif asked is not None and choice.origins[name] == _DEFAULT:
            holds, choice.origins[name] = asked, project.origin
    return holds


def _tightened(
    name: Literal["mode", "sandbox"],
    options: Options,
    default: str,
    layers: Sequence[Layer],
    choice: "_Choice",
    notes: list[str],
) -> Any:
    """Return a mode or a sandbox. What a project's file or a session says may only make it stricter than what the person has said."""
    is_remembered = name in options.remembered
    flag = None if is_remembered else getattr(options, name)
    holds: str = choice.of(name, flag, lambda one: None if one.owner == "project" else getattr(one, name), default)
    for project in (one for one in layers if one.owner == "project"):
        asked = getattr(project, name)
        if asked is None or asked == holds or choice.origins[name] == _FLAG:
            continue
        if is_tighter(name, asked, holds):
            holds, choice.origins[name] = asked, project.origin
        else:
            notes.append(
                f"{project.origin} asks for {name} = {asked}: a project can only set a stricter one than {holds}. "
                f"Set it by a flag or in your own file if you want it."
            )
    if is_remembered and is_tighter(name, getattr(options, name), holds):
        holds, choice.origins[name] = getattr(options, name), "session"
    return holds


def _redaction(layers: Sequence[Layer], origins: dict[str, str]) -> Redaction:
    """Patterns of all files hold together; whether forms are looked for, the strongest file says."""
    enabled = next((layer.redaction.enabled for layer in layers if layer.redaction.enabled is not None), True)
    patterns = tuple(pattern for layer in layers for pattern in layer.redaction.patterns)
    by = next((layer.origin for layer in layers if layer.redaction.enabled is not None), _DEFAULT)
    origins |= {"redaction.enabled": by, "redaction.patterns": "files" if patterns else _DEFAULT}
    return Redaction(enabled=enabled, patterns=patterns)


def _root(folder: str) -> Path:
    path = Path(folder)
    try:
        is_folder = path.is_dir()
    except (OSError, ValueError):
        is_folder = False
    if not is_folder:
        raise UsageError(f"The folder {folder!r} does not exist, or is not a folder. Name another with -C.")
    if not os.access(path, os.R_OK | os.X_OK):
        raise UsageError(f"The folder {folder!r} cannot be read: permission denied. Name another with -C.")
    return path


def _layers(options: Options, root: Path, environment: Mapping[str, str], trusted: Held) -> list[Layer]:
    """Read the files, the strongest first. One that is named must be there; the others may be missing."""
    found: list[tuple[Path, Owner]] = [(user_config(environment), "person")]
    if not options.is_bare:
        found.append((project_config(root), "project"))
    named = [] if options.config is None else [read_layer(Path(options.config), "person")]
    if (
        "config" in options.remembered
    ):  # what allows is said anew each time: a session that was imported may name any file
        named = [msgspec.structs.replace(layer, allow=()) for layer in named]
    return [
        *named,
        *(
            read_layer(path, owner, trusted=trusted.content_of(path) if owner == "project" else None)
            for path, owner in found
            if _is_there(path) or trusted.has(path)
        ),
    ]


def _held(root: Path, environment: Mapping[str, str], notes: list[str]) -> Held:
    """Return what comes with the folder, where a person has approved it as it is now. Says what does not count where nobody has."""
    has_files = _is_there(hooks_file(project_config(root))) or _is_there(project_config(root))
    if not has_files and not _was_trusted(root, environment):
        return Held()
    try:
        brought = brought_by(root)
    except UsageError as error:
        notes.append(f"{error} Its hooks and allow rules are ignored.")
        return Held()
    known = trusted_folders(environment).get(brought.folder)
    if known is not None and known.digest == brought.digest:
        return held(brought, root)
    if known is not None:
        before = {name: known.digests[name] for name in known.files if name in known.digests}
        notes.append(
            f"the folder {brought.folder} has changed since you trusted it{in_words(changes(before, brought.digests))}: its hooks, allow rules and configured instructions are ignored. To review and approve it, run: treadle trust approve {shlex.quote(brought.folder)}"
        )
    elif _is_there(hooks_file(project_config(root))):
        notes.append(
            f"the folder {brought.folder} has hooks and is not trusted: its hooks and allow rules are ignored. Review {brought.folder}/.treadle, then run: treadle trust approve {shlex.quote(brought.folder)}"
        )
    return Held()


def _was_trusted(root: Path, environment: Mapping[str, str]) -> bool:
    """Whether a person has approved files of a folder: that all of them are gone is a change too."""
    known = trusted_folders(environment).get(os.path.realpath(root))
    return known is not None and bool(known.files)


def _servers(
    root: Path, environment: Mapping[str, str], layers: Sequence[Layer], notes: list[str]
) -> tuple[ListedServer, ...]:
    """Return the MCP servers. Says which wait for the person, or why a file of them does not count."""
    try:
        servers = listed_servers(root, environment, layers)
    except TreadleError as error:
        notes.append(f"{error} Its MCP servers are not used.")
        return ()
    waiting = [one for one in servers if one.is_waiting]
    if waiting:
        names = ", ".join(
            f"{one.entry.name} (changed since you approved it)" if one.state == "changed" else one.entry.name
            for one in waiting
        )
        notes.append(
            f"MCP servers of {waiting[0].origin} are not used until you approve them: {names}. To see what each would start, run: treadle mcp -C {shlex.quote(str(root.absolute()))}"
        )
    return tuple(servers)


def _hook_files(root: Path, environment: Mapping[str, str], trusted: Held) -> tuple[Path, ...]:
    own, brought = hooks_file(user_config(environment)), hooks_file(project_config(root))
    return (*((own,) if _is_there(own) else ()), *((brought,) if trusted.has(brought) else ()))


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # a folder on the way cannot be read: reading the file will say so
        return True


class _Choice:
    """Takes the first of several values, and notes where it came from."""

    def __init__(self, layers: Sequence[Layer]) -> None:
        self._layers = layers
        self.origins: dict[str, str] = {}

    def of(
        self, name: str, flag: T | None, get: Callable[[Layer], T | None], default: T, variable: T | None = None
    ) -> T:
        given: list[tuple[T | None, str]] = [(flag, _FLAG)]
        given += [(get(layer), layer.origin) for layer in self._layers if layer.is_profile]
        given += [(variable or None, f"TREADLE_{name.upper()}")]
        given += [(get(layer), layer.origin) for layer in self._layers if not layer.is_profile]
        for value, origin in given:
            if value is not None:
                self.origins[name] = origin
                return value
        self.origins[name] = _DEFAULT
        return default


def _journal(options: Options, environment: Mapping[str, str], choice: _Choice) -> str:
    given = choice.of("journal", options.journal, lambda _: None, None, environment.get("TREADLE_JOURNAL"))
    if given is None:
        return str(default_journal(environment))
    if not given.strip():
        raise UsageError("--journal needs the path of a file, or postgresql://...")
    if "://" in given and journal_file(given) is not None:  # quoted in part only: the rest may hold a password
        scheme = given.partition("://")[0]
        raise UsageError(f"There is no kind of journal for {scheme[:20]}://. Write a file's path, or postgresql://...")
    return given


def _profile_limits(name: str | None, layers: Sequence[Layer]) -> dict[str, Any]:
    """Return the limits of a profile in the person's own files, put together."""
    found = [layer.profiles[name] for layer in reversed(layers) if layer.owner == "person" and name in layer.profiles]
    return {limit: value for profile in found for limit, value in profile.budget.items()}


def _limits(options: Options, layers: Sequence[Layer], origins: dict[str, str]) -> dict[str, Any]:
    sources = [(layer.budget, layer.origin) for layer in reversed(layers) if layer.owner == "person"]
    sources.append((_profile_limits(options.profile, layers), f"profile {options.profile}"))
    limits: dict[str, Any] = {}
    origins.update(dict.fromkeys(Budget.__struct_fields__, _DEFAULT))
    for budget, origin in [*sources, (options.limits, _FLAG)]:
        limits.update(budget)
        origins.update(dict.fromkeys(budget, origin))
    return limits


def _tighten_limits(
    limits: dict[str, Any], project: Layer | None, options: Options, origins: dict[str, str], notes: list[str]
) -> None:
    """Take over what a project's file lowers: its profile below whatever holds, its budget where the person said nothing."""
    if project is None:
        return
    theirs = project.profiles.get(options.profile) if options.profile is not None else None
    said = {name for name, origin in origins.items() if origin != _DEFAULT}
    asked = {name: value for name, value in project.budget.items() if name not in said}
    if theirs is not None:
        asked |= {name: value for name, value in theirs.budget.items() if name not in options.limits}
    for name, value in asked.items():
        holds = limits.get(name, getattr(_NO_BUDGET, name))
        if _is_at_most(value, holds):
            limits[name], origins[name] = value, project.origin
        else:
            notes.append(refusal(project.origin, name, value, holds))


def _guards(layers: Sequence[Layer], origins: dict[str, str], notes: list[str]) -> Guards:
    guards: dict[str, Any] = {}
    origins.update({f"guards.{name}": _DEFAULT for name in Guards.__struct_fields__})
    for layer in reversed(layers):  # the weakest, that of a project, comes first: it is held against the defaults
        for name, value in layer.guards.items():
            holds = getattr(_NO_GUARDS, name)
            if layer.owner == "project" and not _is_at_most(value, holds):
                notes.append(refusal(layer.origin, f"guards.{name}", value, holds))
                continue
            guards[name], origins[f"guards.{name}"] = value, layer.origin
    return Guards(**guards)


_NO_BUDGET = Budget()
_NO_GUARDS = Guards()


def _is_at_most(value: Any, holds: Any) -> bool:
    """Whether a limit lifts nothing. None is no limit at all, and a list of finish reasons that end a run may only grow."""
    if holds is None:
        return True
    if isinstance(holds, tuple):
        return set(holds) <= set(value)
    numbers = int | float | Decimal
    return isinstance(value, numbers) and isinstance(holds, numbers) and value <= holds


def _worker_limits(layers: Sequence[Layer], origins: dict[str, str], notes: list[str]) -> tuple[Limit, ...]:
    """Return the limits that hold. A project's file adds some, and changes none of the person's."""
    limits: dict[str, Limit] = {}
    where: dict[str, str] = {}
    weakest_first = layers[::-1]
    for layer in sorted(weakest_first, key=lambda layer: layer.owner == "project"):
        for name, limit in layer.worker_limits.items():
            if layer.owner == "project" and limits.get(name, limit) != limit:
                notes.append(
                    f"{layer.origin} cannot change workers.limits.{name}, which {where[name]} sets. Give its limit a name of its own."
                )
            elif layer.owner != "project" or name not in limits:
                limits[name], where[name] = limit, layer.origin
    origins.update({f"workers.limits.{name}": origin for name, origin in where.items()})
    return tuple(limits.values())


def _note_rules(rules: Sequence[SourcedRule], origins: dict[str, str]) -> None:
    """Note where the rules of each kind come from. Those of all origins hold together."""
    for kind in get_args(Kind):
        found = {"flag" if rule.origin == _FLAG else "files" for rule in rules if rule.kind == kind}
        origins[kind] = " and ".join(sorted(found)) or _DEFAULT


def _model_options(given: Mapping[str, Any], layers: Sequence[Layer], origins: dict[str, str]) -> dict[str, Any]:
    """Return what each origin says, the strongest last: a flag replaces one field and leaves the others."""
    options: dict[str, Any] = {}
    for origin, said in (*((one.origin, one.model_options) for one in reversed(layers)), (_FLAG, given)):
        options.update(said)
        origins.update({f"model_options.{name}": origin for name in said})
    return options


def _tools(
    given: Sequence[str], layers: Sequence[Layer], origins: dict[str, str], *, uses_servers: bool
) -> tuple[ToolSource, ...]:
    """Return what is named. A list of a file says which tools there are beside those of the servers, which it never switches off."""
    if given:
        origins["tools"] = _FLAG
        return tuple(ToolSource(text=text, folder=Path()) for text in given)
    for layer in layers:
        if layer.tools is not None:
            origins["tools"] = layer.origin
            are_named = any("mcp" in text.split(",") for text in layer.tools)
            texts = (*layer.tools, "mcp") if layer.tools and uses_servers and not are_named else layer.tools
            return tuple(ToolSource(text=text, folder=layer.folder) for text in texts)
    origins["tools"] = _DEFAULT
    return ()


# --- The schema of configuration files, as JSON Schema, for editors and checks. Made of the same types that read them.

_TEXT = {"type": "string", "minLength": 1}
_TEXTS = {"type": "array", "items": _TEXT}
_NONE = {"const": "none", "description": "no limit"}
_MONEY = {"type": "number", "minimum": 0}


def config_schema() -> dict[str, Any]:
    """Return the schema of `config.toml`."""
    budget = _table(_limits_schema(Budget))
    known: Mapping[str, Any] = {
        **_common(),
        "sandbox": _sandbox(),
        "approval_seconds": {"type": "number", "exclusiveMinimum": 0},
        "notify": {
            "anyOf": [{"enum": list(NOTIFY_WORDS)}, _TEXTS | {"minItems": 1}],
            "default": "bell",
            "description": "How to notify you when a long run needs you or has ended: a word, or a program with its arguments.",
        },
        "notify_after_seconds": {"type": "number", "exclusiveMinimum": 0, "default": 10},
        "budget": budget,
        "guards": _table(_limits_schema(Guards)),
        "profiles": {"type": "object", "additionalProperties": _table(_profile(budget))},
        "mcp": _table({"servers": {"type": "object", "additionalProperties": _server()}}),
        "workers": _table({"limits": {"type": "object", "additionalProperties": worker_limit()}}),
        "redaction": _table({"enabled": {"type": "boolean"}, "patterns": _TEXTS}),
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Configuration of Treadle (config.toml)",
        **_table({name: known[name] for name in KEYS}),
    }


def _sandbox() -> dict[str, Any]:
    mode = _common()["sandbox"]
    read = _TEXTS | {"description": "Private places that commands in the sandbox may read."}
    hide = _TEXTS | {"description": "Files and folders that they may not read, as paths or globs."}
    return {"anyOf": [mode, _table({"mode": mode, "read": read, "hide": hide})]}


def worker_limit() -> dict[str, Any]:
    """Return what can be said of a limit over all workers."""
    count = {"type": "integer", "minimum": 1}
    known = {
        "sessions": count | {"description": "How many sessions may run in parallel."},
        "requests": count | {"description": "How many model requests may start in any 60 seconds."},
        "tokens": count
        | {"description": "How many tokens the last 60 seconds may have used before the next request starts."},
        "each": {"enum": list(EACH), "description": "What gets a limit of its own; without it, all share one."},
        **{name: _TEXTS | {"description": f"Only these {name}."} for name in ("tenants", "agents", "models")},
    }
    needs = [{"required": [name]} for name in ("sessions", "requests", "tokens")]
    return {**_table(known), "anyOf": needs}


def _server() -> dict[str, Any]:
    """Return what can be said of an MCP server: a program, or an address."""
    texts = {"type": "object", "additionalProperties": {"type": "string"}}
    known: dict[str, Any] = {
        "command": _TEXT | {"description": "The program to start."},
        "args": {"type": "array", "items": {"type": "string"}},
        "env": texts | {"description": "Environment variables of the program; ${NAME} copies one of yours."},
        "cwd": _TEXT | {"description": "The folder to start it in."},
        "type": {"enum": ["stdio", "http", "streamable-http"]},
        "url": _TEXT | {"description": "The address of a server that is already running."},
        "headers": texts
        | {"description": "Headers of each request; ${NAME} copies one of your environment variables."},
        "trusted": {"type": "boolean", "description": "Whether to trust the server's hints about its tools."},
        "effects": {"type": "object", "additionalProperties": {"enum": [str(one) for one in Effect]}},
        "timeout": {"type": "number", "exclusiveMinimum": 0, "description": "Time limit of a call, in seconds."},
    }
    kinds = [{"required": ["command"]}, {"required": ["url"]}]
    return {**_table({name: known[name] for name in SERVER_KEYS}), "oneOf": kinds}


def _common() -> dict[str, Any]:
    """Return what a file and each of its profiles can say."""
    return {
        "model": _TEXT | {"description": "The model, such as openai-chat:gpt-5-mini."},
        "base_url": _TEXT | {"description": "The provider's base URL."},
        "model_options": {"type": "object", "description": "Fields of each model request, such as temperature."},
        "system": _TEXT | {"description": "Instructions for the model, or @FILE with a path relative to this file."},
        "mode": {"enum": list(get_args(Mode)), "description": "Which calls run without asking you."},
        "sandbox": {"enum": list(get_args(Sandbox)), "description": "Whether commands run in a sandbox."},
        "on_limit": {"enum": list(get_args(OnLimit)), "description": "What happens at a turn or call limit."},
        "on_approval": {
            "enum": list(get_args(OnApproval)),
            "description": "What happens to a call that needs approval.",
        },
        "text_calls": {
            "enum": list(get_args(TextCalls)),
            "description": "What happens to calls in the text of an answer.",
        },
        "error_form": {"enum": list(get_args(ErrorForm)), "description": "What the model reads of a tool's error."},
        "first_byte_seconds": {
            "type": "number",
            "exclusiveMinimum": 0,
            "description": "How long the model may read before it answers.",
        },
        "idle_seconds": {
            "type": "number",
            "exclusiveMinimum": 0,
            "description": "How long it may pause in its answer.",
        },
        "price": _table(dict.fromkeys(Price.__struct_fields__, _MONEY), required=["input", "output"]),
        "facts": _table(_facts()),
        "tools": _TEXTS | {"description": "Built-in tools by name, Python files, or module:attribute."},
        "allow": _TEXTS | {"description": "Rules for calls that are allowed."},
        "ask": _TEXTS | {"description": "Rules for calls that need approval; they override `allow`."},
        "deny": _TEXTS | {"description": "Rules for calls that are denied; they override `allow` and `ask`."},
    }


def _table(fields: Mapping[str, Any], *, required: list[str] | None = None) -> dict[str, Any]:
    needs = {"required": required} if required else {}
    return {"type": "object", "properties": dict(fields), "additionalProperties": False, **needs}


def _limits_schema(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the fields of budgets or guards: whole numbers or numbers, or the word `none`."""
    hints = get_type_hints(kind)
    fields: dict[str, Any] = {}
    for field in msgspec.structs.fields(kind):
        hint = str(hints[field.name])
        value = field.default
        value = "none" if value is None else list(value) if isinstance(value, tuple) else value
        default = {} if value is msgspec.NODEFAULT else {"default": value}
        if "tuple" in hint:
            fields[field.name] = _TEXTS | default
            continue
        number = "number" if "float" in hint or "Decimal" in hint else "integer"
        fields[field.name] = {"anyOf": [{"type": number, "minimum": 0}, _NONE], **default}
    return fields


def _facts() -> dict[str, Any]:
    hints = get_type_hints(ModelFacts)
    kinds: dict[str, Any] = {}
    for name in ModelFacts.__struct_fields__:
        if name == "price":
            continue
        if name == "error_form":
            kinds[name] = {"enum": list(get_args(ErrorForm))}
            continue
        hint = str(hints[name])
        kinds[name] = (
            {"type": "boolean"}
            if "bool" in hint
            else {"type": "integer", "minimum": 1}
            if "int" in hint
            else {"type": "array", "items": {"enum": ["text", "image", "pdf", "audio", "video"]}}
        )
    return kinds


def _profile(budget: dict[str, Any]) -> dict[str, Any]:
    known = {"budget": budget, **_common()}
    return {name: known[name] for name in Profile.__struct_fields__}
