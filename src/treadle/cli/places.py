"""Places: where state and configuration live, and how a place is shown. Makes nothing and opens nothing."""

import re
from collections.abc import Mapping
from pathlib import Path

__all__ = ["default_journal", "journal_file", "project_config", "shown_journal", "user_config"]

_DATABASE = ("postgresql:", "postgres:")


def default_journal(environment: Mapping[str, str]) -> Path:
    """Return the journal's place where nobody names one: all state is in TREADLE_HOME where that is set."""
    if home := environment.get("TREADLE_HOME"):
        return Path(home) / "journal.db"
    import platformdirs  # noqa: PLC0415 - most calls name their places

    return Path(platformdirs.user_state_dir("treadle", appauthor=False)) / "journal.db"


def user_config(environment: Mapping[str, str]) -> Path:
    """Return the place of the person's own configuration."""
    if home := environment.get("TREADLE_HOME"):
        return Path(home) / "config.toml"
    import platformdirs  # noqa: PLC0415 - as above

    return Path(platformdirs.user_config_dir("treadle", appauthor=False)) / "config.toml"


def project_config(folder: Path) -> Path:
    """Return the place of a project's configuration."""
    return folder / ".treadle" / "config.toml"


def journal_file(journal: str) -> Path | None:
    """Return the file of a journal; None for one that is none: `memory:`, or a database's address."""
    return None if journal == "memory:" or journal.startswith(_DATABASE) else Path(journal)


def shown_journal(journal: str) -> str:
    """Return a journal's place as people may see it: of a database's address neither password nor options.

    Example:
        >>> shown_journal("postgresql://ada:secret@db.example/agents?sslpassword=secret")
        'postgresql://ada:***@db.example/agents?***'
    """
    if not journal.startswith(_DATABASE):
        return journal
    # Up to the last @, because a password that was not encoded may hold any of these characters.
    address, question, _ = re.sub(r"(://[^:@]*):.*@", r"\1:***@", journal, flags=re.DOTALL).partition("?")
    return f"{address}?***" if question else address
