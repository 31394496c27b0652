"""Places: where state and configuration live, and how a place is shown. Makes nothing and opens nothing."""

import os
import re
import shlex
import stat
from collections.abc import Mapping
from pathlib import Path

from treadle.cli.input.options import Options

__all__ = [
    "absolute",
    "default_journal",
    "has_piped_input",
    "hooks_file",
    "journal_file",
    "managed_configs",
    "names_file",
    "project_config",
    "rules_file",
    "same_journal",
    "same_world",
    "shown_address",
    "shown_journal",
    "snapshots_folder",
    "user_config",
]

_DATABASE = ("postgresql:", "postgres:")


def has_piped_input() -> bool:
    """Whether standard input is a pipe, a socket, or a file with content: something that a task may come from."""
    try:
        found = os.fstat(0)
    except OSError:  # closed
        return False
    if stat.S_ISREG(found.st_mode):
        return found.st_size > 0
    return stat.S_ISFIFO(found.st_mode) or stat.S_ISSOCK(found.st_mode)


def default_journal(environment: Mapping[str, str]) -> Path:
    """Return the journal's place where nobody names one: all state is in TREADLE_HOME where that is set."""
    if home := environment.get("TREADLE_HOME"):
        return Path(home) / "journal.db"
    import platformdirs  # noqa: PLC0415 - most calls name their places

    return Path(platformdirs.user_state_dir("treadle", appauthor=False)) / "journal.db"


def snapshots_folder(environment: Mapping[str, str]) -> Path:
    """Return the place of the snapshots of all folders."""
    return default_journal(environment).with_name("snapshots")


def user_config(environment: Mapping[str, str]) -> Path:
    """Return the place of the person's own configuration."""
    if home := environment.get("TREADLE_HOME"):
        return Path(home) / "config.toml"
    import platformdirs  # noqa: PLC0415 - as above

    return Path(platformdirs.user_config_dir("treadle", appauthor=False)) / "config.toml"


def rules_file(environment: Mapping[str, str]) -> Path:
    """Return the place of the rules that a person has saved at a question."""
    return user_config(environment).with_name("rules.toml")


def managed_configs(environment: Mapping[str, str]) -> tuple[Path, ...]:
    """Return the places of an organisation's rules. A variable can add a file, and take none away."""
    named = environment.get("TREADLE_MANAGED")
    return (Path("/etc/treadle/managed.toml"), *((Path(named),) if named else ()))


def project_config(folder: Path) -> Path:
    """Return the place of a project's configuration."""
    return folder / ".treadle" / "config.toml"


def hooks_file(config: Path) -> Path:
    """Return the place of the hooks that belong to a configuration: beside it."""
    return config.with_name("hooks.json")


def journal_file(journal: str) -> Path | None:
    """Return the file of a journal; None for a journal without one: `memory:`, or a database's address."""
    return None if journal == "memory:" or journal.startswith(_DATABASE) else Path(journal)


_SECRET = re.compile("password|secret", re.IGNORECASE)
"""In the name of a parameter of a database's address whose value nobody may see."""


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


def shown_address(address: str) -> str:
    """Return an address as people may see it: neither user, password, query nor fragment, each of which may be a key.

    Example:
        >>> shown_address("https://ada:secret@llm.example/v1?key=abc#x")
        'https://***@llm.example/v1?***'
    """
    place, question, _ = address.partition("?")
    scheme, slashes, rest = place.partition("#")[0].rpartition("://")
    if "@" in rest:  # up to the last one: a password that was not encoded may hold any of these characters
        rest = f"***@{rest.rpartition('@')[2]}"
    return f"{scheme}{slashes}{rest}{'?***' if question else ''}"


def names_file(source: str) -> bool:
    """Whether a source of tools is a file or folder: Python, or definitions of subagents."""
    return "/" in source or source.endswith((".py", ".md", ".yaml", ".yml", ".json"))


def absolute(path: str) -> str:
    """Return a path that means the same from any folder."""
    return str(Path(path).absolute())


def same_journal(options: Options) -> str:
    """Return the flag with which another command finds the same journal from any folder, a blank before it; "" where it needs none.

    Of a database's address the secrets are left out, with a warning: what is returned here is read on screens and in logs.
    """
    named = options.journal
    if named is None and os.environ.get("TREADLE_JOURNAL"):  # a relative path means another file elsewhere
        variable = os.environ["TREADLE_JOURNAL"]
        named = None if journal_file(variable) is None or Path(variable).is_absolute() else variable
    if named is None:
        return ""
    shown = absolute(named) if journal_file(named) is not None else _without_secrets(named)
    if shown != named and journal_file(named) is None:  # the terminal shows a warning once
        import logging  # noqa: PLC0415 - help and version do without

        logging.getLogger("treadle.places").warning(
            "Commands shown here leave out the password of the journal's address: set PGPASSWORD, or write it in."
        )
    return f" --journal {shlex.quote(shown)}"


def _without_secrets(address: str) -> str:
    """Return an address by which a person who has its password elsewhere, as in PGPASSWORD, finds the same journal."""
    place, _, query = re.sub(r"(://[^:@]*):.*@", r"\1@", address, flags=re.DOTALL).partition("?")
    given = [one for one in query.split("&") if one and not _SECRET.search(one.partition("=")[0])]
    return f"{place}?{'&'.join(given)}" if given else place


def same_world(options: Options) -> str:
    """Return the flags with which `resume` finds the same journal, model server, tools and folder, from any folder.

    The session remembers all but the journal; the flags say it to whoever reads the line.
    """
    address = options.base_url
    given = [("--base-url", address)] if address is not None and shown_address(address) == address else []
    given += [("--tools", absolute(source) if names_file(source) else source) for source in options.tools]
    given += [("-C", absolute(options.folder))] if options.folder is not None else []
    return same_journal(options) + "".join(f" {flag} {shlex.quote(value)}" for flag, value in given)
