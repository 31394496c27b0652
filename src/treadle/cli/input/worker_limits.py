"""Limits over all workers, as `[workers.limits.NAME]` of a configuration file has them. Does not know flags."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, get_args, get_type_hints

from treadle import Limit
from treadle.cli.input.page import Page

__all__ = ["COUNTS", "EACH", "LIMIT_WORDS", "merged_limits", "worker_limits"]

COUNTS = ("sessions", "requests_per_minute", "tokens_per_minute")
LIMIT_WORDS = {
    "sessions": "sessions",
    "requests": "requests_per_minute",
    "tokens": "tokens_per_minute",
    **{same: same for same in ("each", "tenants", "agents", "models")},
}
"""The words of a limit, in files and in `--limit`, and which field of a limit each is."""
EACH = tuple(word for word in get_args(get_type_hints(Limit)["each"]) if word)
_WHERE = ("workers", "limits")
_LONGEST_NAME = 100
_Said = TypeVar("_Said")


def worker_limits(page: Page, workers: Mapping[str, Any]) -> dict[str, Limit]:
    """Return the limits of a file's `[workers]`, by name.

    Raises:
        UsageError: A key or a value is wrong; with file and line.
    """
    page.check_names(workers, ("limits",), ("workers",))
    return {name: _limit(page, said, name) for name, said in page.table(workers, "limits", ("workers",)).items()}


def _limit(page: Page, said: Any, name: str) -> Limit:
    here = (*_WHERE, name)
    if not isinstance(said, dict):
        page.fail(f"limit {name!r:.120} must be a table: write [workers.limits.NAME].", _WHERE, name)
    if not 0 < len(name) <= _LONGEST_NAME or not name.isprintable():
        page.fail(f"the name of a limit has 1 to 100 printable characters; got {name!r:.120}.", _WHERE, name)
    page.check_names(said, LIMIT_WORDS, here)
    values: dict[str, Any] = {"each": page.word(said, "each", EACH, here) or ""}
    for word in ("tenants", "agents", "models"):
        values[word] = page.texts(said, word, here)
    for word in ("sessions", "requests", "tokens"):
        count = said.get(word)
        if count is not None and (type(count) is not int or count < 1):
            page.fail(f"{word!r} must be a whole number above 0; got {count!s:.60}.", here, word)
        values[LIMIT_WORDS[word]] = count
    if all(values[field] is None for field in COUNTS):
        page.fail(f"the limit {name!r} limits nothing. Set one of: sessions, requests, tokens.", _WHERE, name)
    return Limit(name=name, **values)


def merged_limits(
    own: Sequence[tuple[str, Mapping[str, _Said]]], project: tuple[str, Mapping[str, _Said]] | None
) -> tuple[dict[str, _Said], dict[str, str], list[str]]:
    """Return the limits that hold, where each comes from, and what a project's file asks for and does not get.

    Args:
        own: Origins and limits of the person's files, the strongest last: one of the same name replaces that before it.
        project: The project's: it adds limits, and changes none of the person's.
    """
    limits: dict[str, _Said] = {}
    origins: dict[str, str] = {}
    for origin, said in own:
        limits.update(said)
        origins.update(dict.fromkeys(said, origin))
    origin, said = project or ("", {})
    taken = [name for name, limit in said.items() if name in limits and limits[name] != limit]
    added = {name: limit for name, limit in said.items() if name not in limits}
    notes = [
        f"{origin} cannot change workers.limits.{name}, which {origins[name]} sets. Give its limit a name of its own."
        for name in taken
    ]
    return {**limits, **added}, {**origins, **dict.fromkeys(added, origin)}, notes
