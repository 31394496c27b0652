"""Places: where state and configuration live on this machine. Makes nothing and opens nothing."""

from collections.abc import Mapping
from pathlib import Path

__all__ = ["default_journal", "project_config", "user_config"]


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
