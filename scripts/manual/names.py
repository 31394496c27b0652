"""Names: what Treadle offers in public, and which page of the reference describes it. Reads code; writes nothing."""

import importlib
from functools import cache
from pathlib import Path

import griffe
import msgspec

__all__ = ["FURTHER", "PROJECT", "Page", "documented", "find", "module_names", "pages", "sentence"]

PROJECT = Path(__file__).resolve().parents[2]


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """One page of the reference that describes Python names."""

    path: str
    """Below `docs`, such as `reference/agents.md`."""
    title: str
    intro: str
    names: tuple[str, ...]
    """Dotted, as a person imports them."""


_FACE = (
    ("agents", "Agents and runs", "Describe an agent, run it, watch it.", ("agents", "engine.reports")),
    (
        "tools",
        "Tools",
        "Make tools, and what a tool gets and returns.",
        (
            "tools",
            "contexts",
            "fields",
            "tooling",
            "effects",
            "toolsets",
            "hooks",
            "sandboxes",
            "commands",
            "state.Suspended",
        ),
    ),
    ("policies", "Policies", "Who decides whether a call may run.", ("permissions", "ports", "decisions")),
    (
        "sessions",
        "Sessions",
        "Conversations that last.",
        ("sessions", "state", "sync", "resolve.archives", "resolve.sessions"),
    ),
    ("budgets", "Budgets and stops", "What bounds a run, and how it ends.", ("budgets", "stops")),
    ("models", "Models", "From names to models.", ("resolve", "providers", "messages")),
    ("context", "Context and drivers", "What the model sees, and how a step is obtained.", ("context", "drivers")),
    ("redaction", "Redaction", "Keep secrets out of what people read.", ("redaction",)),
    ("errors", "Errors", "What is raised.", ("errors",)),
)
"""Pages of the root and of the packages below: file, title, sentence, and the rooms whose names it has. The first page that fits has a name."""

FURTHER = tuple(
    f"treadle.{name}"
    for name in [
        "agents",
        "context",
        "drivers",
        "hooks",
        "permissions",
        "providers",
        "redaction",
        "resolve",
        "resolve.archives",
        "resolve.command_hooks",
        "sandboxes",
        "sessions",
        "sync",
        "tooling",
        "toolsets",
    ]
)
"""Packages whose names are on the same pages."""

_MODULES = (
    ("testing", "treadle.testing", "Doubles for tests of agents.", ("treadle.testing",)),
    ("otel", "treadle.otel", "Spans and metrics for OpenTelemetry.", ("treadle.otel",)),
    ("ports", "treadle.ports", "The protocols behind which you can put parts of your own.", ("treadle.ports",)),
    (
        "values",
        "Values",
        "Values that the other modules exchange: messages, results, states and limits.",
        (
            *(f"treadle.{path.stem}" for path in sorted((PROJECT / "src" / "treadle").glob("[a-z]*.py"))),
            "treadle.budgets",
            "treadle.state",
            "treadle.tools",
        ),
    ),
    (
        "adapters",
        "Adapters and tool sets",
        "Parts that you import by their own module: adapters of providers, journals, wrappers of tools.",
        (
            "treadle.integrations.inspect",
            "treadle.integrations.pydantic_evals",
            "treadle.journals.postgres",
            "treadle.journals.stores",
            "treadle.providers.anthropic",
            "treadle.providers.bedrock",
            "treadle.providers.cohere",
            "treadle.providers.gemini",
            "treadle.providers.openai_chat",
            "treadle.providers.openai_responses",
            "treadle.toolsets.shell",
            "treadle.toolsets.wrappers",
            "treadle.workers",
        ),
    ),
)


@cache
def _package() -> griffe.Object:
    return griffe.load("treadle", search_paths=[str(PROJECT / "src")], docstring_parser="google", resolve_aliases=True)  # type: ignore[return-value]  # a package is an object


@cache
def find(name: str) -> griffe.Object:
    """Return what a dotted name stands for, whichever module defines it."""
    found = _package()[name.removeprefix("treadle.")]
    return found.final_target if isinstance(found, griffe.Alias) else found


def module_names(module: str) -> list[str]:
    """Return the public names of a module, dotted."""
    return [f"{module}.{name}" for name in sorted(importlib.import_module(module).__all__, key=str.lower)]


def _page_of(name: str) -> str:
    home = find(name).path.removeprefix("treadle.")
    for file, _, _, rooms in _FACE:
        if any(home == room or home.startswith(f"{room}.") for room in rooms if "." in room) or any(
            home.partition(".")[0] == room for room in rooms if "." not in room
        ):
            return file
    return "values"


@cache
def pages() -> tuple[Page, ...]:
    """Return the pages of Python names. Each name stands on one page only: the face has the first choice."""
    face: dict[str, str] = {}
    seen: set[str] = set()
    for name in (name for module in ("treadle", *FURTHER) for name in module_names(module)):
        if find(name).path not in seen:
            seen.add(find(name).path)
            face[name] = _page_of(name)
    found = [
        Page(
            path=f"reference/{file}.md",
            title=title,
            intro=f"{intro} Each name is shown with the module from which you import it.",
            names=tuple(name for name, page in face.items() if page == file),
        )
        for file, title, intro, _ in _FACE
    ]
    for file, title, intro, modules in _MODULES:
        names = [name for name, page in face.items() if page == file]
        for name in (name for module in modules for name in module_names(module)):
            if find(name).path not in seen:
                seen.add(find(name).path)
                names.append(name)
        found.append(Page(path=f"reference/{file}.md", title=title, intro=intro, names=tuple(names)))
    return tuple(found)


def documented() -> dict[str, str]:
    """Return every public name with the page that describes it; events have a page of their own."""
    named = {name: page.path for page in pages() for name in page.names}
    return {**named, **dict.fromkeys(module_names("treadle.events"), "reference/events.md")}


def sentence(one: griffe.Object | griffe.Alias) -> str:
    """Return the first sentence of a docstring, in one line; empty where there is none."""
    text = one.docstring.value if one.docstring else ""
    return " ".join(text.partition("\n\n")[0].split())
