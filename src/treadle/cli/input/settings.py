"""Settings: what holds for this call, put together from flags, environment and files, each value with its origin.

Flags override the environment, that overrides the file of `--config`, that the person's file, and that the
project's: what comes with a folder never outranks what its reader has said. Runs nothing.
"""

import os
import shlex
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec

from treadle import Budget, Price, TreadleError
from treadle.budgets import Guards
from treadle.cli.exits import UsageError
from treadle.cli.input.config import Layer, Owner, Redaction, read_layer
from treadle.cli.input.mcp import ListedServer, listed_servers
from treadle.cli.input.options import Mode, OnApproval, OnLimit, Options, Sandbox
from treadle.cli.input.places import default_journal, hooks_file, journal_file, project_config, rules_file, user_config
from treadle.cli.input.rules import Kind, SourcedRule, all_rules, folder_rules
from treadle.cli.input.trust import Held, brought_by, changes, held, in_words, trusted_folders
from treadle.ports import ErrorForm, ModelFacts, TextCalls
from treadle.workers import Limit

__all__ = ["Settings", "ToolSource", "profile_names", "settings_of"]


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

_APPROVAL_SECONDS = 7 * 86400.0
"""How long a person may take to answer where nothing else is said, as for `Agent`."""
_FLAG = "flag"
_DEFAULT = "default"


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
    files = _layers(options, root, environment, trusted)
    if not notes:  # else it has been said
        notes += _untrusted(files, root)
    check_profile(options.profile, files)
    is_remembered = "profile" in options.remembered
    layers = with_profile(options.profile, files, is_remembered=is_remembered)
    choice = _Choice(options, files, layers, notes)
    servers = _servers(root, environment, files, notes)
    saved_in = rules_file(environment)
    rules = all_rules(options, layers, folder_rules(saved_in, root), saved_in=saved_in, environment=environment)
    choice.note_rules(rules)
    return Settings(
        **{name: choice.of(name, default, getattr(options, name)) for name, default in _BY_FLAG.items()},
        **{name: choice.of(name, default) for name, default in _BY_FILE.items()},
        root=root,
        budget=Budget(**choice.limits()),
        journal=_journal(choice.of("journal", None, options.journal, environment.get("TREADLE_JOURNAL")), environment),
        model=choice.of("model", None, options.model, environment.get("TREADLE_MODEL")),
        mode=choice.tightened("mode", "ask"),
        model_options=choice.model_options(),
        is_mode_asked=options.mode is not None or choice.origins["mode"] == f"profile {options.profile}",
        sandbox=choice.tightened("sandbox", "auto"),
        sandbox_read=tuple(dict.fromkeys(path for layer in layers for path in layer.sandbox_read)),
        sandbox_hide=tuple(dict.fromkeys(path for layer in layers for path in layer.sandbox_hide)),
        overriding=options.limits if is_remembered else choice.profile_limits() | options.limits,
        profile=options.profile,
        guards=choice.guards(),
        approval_seconds=choice.approval_seconds(),
        config=options.config,
        rules=rules,
        tools=choice.tools(uses_servers=any(one.is_used for one in servers)),
        origins=choice.origins,
        redaction=choice.redaction(),
        hooks=() if options.is_bare else _hook_files(root, environment, trusted),
        held=trusted,
        is_bare=options.is_bare,
        mcp=servers,
        worker_limits=choice.worker_limits(),
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


def _journal(given: str | None, environment: Mapping[str, str]) -> str:
    if given is None:
        return str(default_journal(environment))
    if not given.strip():
        raise UsageError("--journal needs the path of a file, or postgresql://...")
    if "://" in given and journal_file(given) is not None:  # quoted in part only: the rest may hold a password
        scheme = given.partition("://")[0]
        raise UsageError(f"There is no kind of journal for {scheme[:20]}://. Write a file's path, or postgresql://...")
    return given


_BY_FLAG: Mapping[str, Any] = {
    "base_url": None,
    "system": None,
    "text_calls": None,
    "error_form": None,
    "first_byte_seconds": None,
    "idle_seconds": None,
    "on_limit": "summarize",
    "on_approval": "pause",
}
"""Settings of which the first origin that has one says all, with their defaults."""
_BY_FILE: Mapping[str, Any] = {"price": None, "facts": None, "notify": "bell", "notify_after_seconds": 10.0}
"""The same of those that no flag sets."""
_NO_BUDGET = Budget()
_NO_GUARDS = Guards()


class _Choice:
    """Chooses what holds of what the origins say, and notes for each value where it came from.

    Args:
        files: The layers of files alone.
        layers: With those of the profile that is asked for, the strongest first.
        notes: Gets what a project's file asks for and does not get.
    """

    def __init__(self, options: Options, files: Sequence[Layer], layers: Sequence[Layer], notes: list[str]) -> None:
        self._options = options
        self._files = files
        self._layers = layers
        self._notes = notes
        self._projects = [layer for layer in layers if layer.owner == "project"]
        self.origins: dict[str, str] = {}

    def of(
        self, name: str, default: Any, flag: Any = None, variable: str | None = None, *, by_project: bool = True
    ) -> Any:  # Any: of the setting
        """Return the first value of a setting.

        Args:
            by_project: Whether what a project's file says counts.
        """
        layers = [one for one in self._layers if name in one.__struct_fields__]
        said = [(getattr(one, name), one) for one in layers if by_project or one.owner != "project"]
        given = [(flag, _FLAG)]
        given += [(value, layer.origin) for value, layer in said if layer.is_profile]
        given += [(variable or None, f"TREADLE_{name.upper()}")]
        given += [(value, layer.origin) for value, layer in said if not layer.is_profile]
        found, self.origins[name] = next((one for one in given if one[0] is not None), (default, _DEFAULT))
        return found

    def approval_seconds(self) -> float:
        """Return how long a person may take. A project's file may only shorten what holds without it."""
        name = "approval_seconds"
        holds: float = self.of(name, _APPROVAL_SECONDS, self._options.approval_seconds, by_project=False)
        for project in self._projects:
            asked = project.approval_seconds
            if asked is not None and asked > holds:
                self._notes.append(refusal(project.origin, name, asked, holds))
            elif asked is not None and self.origins[name] == _DEFAULT:
                holds, self.origins[name] = asked, project.origin
        return holds

    def tightened(self, name: Literal["mode", "sandbox"], default: str) -> Any:  # Any: a literal
        """Return a mode or a sandbox. What a project's file or a session says may only make it stricter than what the person has said."""
        is_remembered, said = name in self._options.remembered, getattr(self._options, name)
        holds: str = self.of(name, default, None if is_remembered else said, by_project=False)
        for project in self._projects:
            asked = getattr(project, name)
            if asked is None or asked == holds or self.origins[name] == _FLAG:
                continue
            if is_tighter(name, asked, holds):
                holds, self.origins[name] = asked, project.origin
            else:
                self._notes.append(
                    f"{project.origin} asks for {name} = {asked}: a project can only set a stricter one than {holds}. "
                    f"Set it by a flag or in your own file if you want it."
                )
        if is_remembered and is_tighter(name, said, holds):
            holds, self.origins[name] = said, "session"
        return holds

    def redaction(self) -> Redaction:
        """Patterns of all files hold together; whether forms are looked for, the strongest file says."""
        said = [(one.redaction.enabled, one.origin) for one in self._layers if one.redaction.enabled is not None]
        enabled, by = said[0] if said else (True, _DEFAULT)
        patterns = tuple(pattern for layer in self._layers for pattern in layer.redaction.patterns)
        self.origins |= {"redaction.enabled": by, "redaction.patterns": "files" if patterns else _DEFAULT}
        return Redaction(enabled=enabled, patterns=patterns)

    def profile_limits(self) -> dict[str, Any]:
        """Return the limits of the profile in the person's own files, put together."""
        name, own = self._options.profile, [layer for layer in reversed(self._files) if layer.owner == "person"]
        return {
            limit: value
            for layer in own
            if name in layer.profiles
            for limit, value in layer.profiles[name].budget.items()
        }

    def limits(self) -> dict[str, Any]:
        """Return the budgets: the person's, lowered by what a project's file says."""
        sources = [(layer.budget, layer.origin) for layer in reversed(self._files) if layer.owner == "person"]
        sources += [(self.profile_limits(), f"profile {self._options.profile}"), (self._options.limits, _FLAG)]
        limits: dict[str, Any] = {}
        self.origins.update(dict.fromkeys(Budget.__struct_fields__, _DEFAULT))
        for budget, origin in sources:
            limits.update(budget)
            self.origins.update(dict.fromkeys(budget, origin))
        for project in [layer for layer in self._files if layer.owner == "project"]:
            self._tighten(limits, project)
        return limits

    def _tighten(self, limits: dict[str, Any], project: Layer) -> None:
        """Take over what a project's file lowers: its profile below whatever holds, its budget where the person said nothing."""
        theirs = project.profiles.get(self._options.profile) if self._options.profile is not None else None
        asked = {name: value for name, value in project.budget.items() if self.origins[name] == _DEFAULT}
        if theirs is not None:
            asked |= {name: value for name, value in theirs.budget.items() if name not in self._options.limits}
        for name, value in asked.items():
            holds = limits.get(name, getattr(_NO_BUDGET, name))
            if _is_at_most(value, holds):
                limits[name], self.origins[name] = value, project.origin
            else:
                self._notes.append(refusal(project.origin, name, value, holds))

    def guards(self) -> Guards:
        guards: dict[str, Any] = {}
        self.origins.update({f"guards.{name}": _DEFAULT for name in Guards.__struct_fields__})
        for layer in reversed(
            self._layers
        ):  # the weakest, that of a project, comes first: it is held against the defaults
            for name, value in layer.guards.items():
                holds = getattr(_NO_GUARDS, name)
                if layer.owner == "project" and not _is_at_most(value, holds):
                    self._notes.append(refusal(layer.origin, f"guards.{name}", value, holds))
                    continue
                guards[name], self.origins[f"guards.{name}"] = value, layer.origin
        return Guards(**guards)

    def worker_limits(self) -> tuple[Limit, ...]:
        """Return the limits over all workers. A project's file adds some, and changes none of the person's."""
        limits: dict[str, Limit] = {}
        where: dict[str, str] = {}
        weakest_first = self._files[::-1]
        for layer in sorted(weakest_first, key=lambda layer: layer.owner == "project"):
            for name, limit in layer.workers.items():
                if layer.owner == "project" and limits.get(name, limit) != limit:
                    self._notes.append(
                        f"{layer.origin} cannot change workers.limits.{name}, which {where[name]} sets. Give its limit a name of its own."
                    )
                elif layer.owner != "project" or name not in limits:
                    limits[name], where[name] = limit, layer.origin
        self.origins.update({f"workers.limits.{name}": origin for name, origin in where.items()})
        return tuple(limits.values())

    def note_rules(self, rules: Sequence[SourcedRule]) -> None:
        """Note where the rules of each kind come from. Those of all origins hold together."""
        for kind in get_args(Kind):
            found = {"flag" if rule.origin == _FLAG else "files" for rule in rules if rule.kind == kind}
            self.origins[kind] = " and ".join(sorted(found)) or _DEFAULT

    def model_options(self) -> dict[str, Any]:
        """Return what each origin says, the strongest last: a flag replaces one field and leaves the others."""
        options: dict[str, Any] = {}
        files = ((one.origin, one.model_options) for one in reversed(self._layers))
        for origin, said in (*files, (_FLAG, self._options.model_options)):
            options.update(said)
            self.origins.update({f"model_options.{name}": origin for name in said})
        return options

    def tools(self, *, uses_servers: bool) -> tuple[ToolSource, ...]:
        """Return what is named. A list of a file says which tools there are beside those of the servers, which it never switches off."""
        if given := self._options.tools:
            self.origins["tools"] = _FLAG
            return tuple(ToolSource(text=text, folder=Path()) for text in given)
        for layer in self._layers:
            if layer.tools is not None:
                self.origins["tools"] = layer.origin
                are_named = any("mcp" in text.split(",") for text in layer.tools)
                texts = (*layer.tools, "mcp") if layer.tools and uses_servers and not are_named else layer.tools
                return tuple(ToolSource(text=text, folder=layer.folder) for text in texts)
        self.origins["tools"] = _DEFAULT
        return ()


def _is_at_most(value: Any, holds: Any) -> bool:
    """Whether a limit lifts nothing. None is no limit at all, and a list of finish reasons that end a run may only grow."""
    if holds is None:
        return True
    if isinstance(holds, tuple):
        return set(holds) <= set(value)
    numbers = int | float | Decimal
    return isinstance(value, numbers) and isinstance(holds, numbers) and value <= holds
