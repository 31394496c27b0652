"""Rewinding: put the files of a folder back to before a message, and say what that cannot undo. Asks nobody, and prints nothing."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from treadle.cli.input.places import journal_file, snapshots_folder
from treadle.cli.input.settings import Settings
from treadle.cli.output.text import counted, one_line
from treadle.cli.snapshots import Change, Comparison, Snapshots
from treadle.events import AnyEvent, CallDecided, RunStarted, ToolStarted

__all__ = ["changes_since", "diff_of", "listed", "not_covered", "snapshots_of", "undone_calls"]

_FILE_TOOLS = ("write", "edit")
_MAX_LISTED = 20


def snapshots_of(settings: Settings, folder: Path | None = None) -> Snapshots:
    """Return the snapshots of a folder, or of that of the settings. They are in Treadle's state, wherever the journal is."""
    store, journal = snapshots_folder(os.environ), journal_file(settings.journal)
    apart = (store.parent, *(() if journal is None else (journal,)))
    return Snapshots(settings.root if folder is None else folder, store, apart)


def changes_since(snapshots: Snapshots, session_id: str, events: Iterable[AnyEvent], seq: int) -> Comparison | None:
    """Return how the folder has changed since before the first run after an event; None where no run changed it since."""
    runs = {event.run_id for event in events if isinstance(event, RunStarted) and event.seq > seq}
    first = next((one.run for one in snapshots.points(session_id) if one.run in runs), None)
    return None if first is None else snapshots.since(session_id, first)


def undone_calls(events: Sequence[AnyEvent], seq: int) -> tuple[str, ...]:
    """Return the calls after an event that can have changed the folder only: edits, and commands that ran confined."""
    lifted = {one.call_id for one in events if isinstance(one, CallDecided) and one.lifted}
    started = [one for one in events if isinstance(one, ToolStarted) and one.seq > seq and one.call_id not in lifted]
    return tuple(one.call_id or "" for one in started if one.tool in _FILE_TOOLS or one.decision == "sandbox")


def listed(changes: Sequence[Change]) -> list[str]:
    """Return what would be done to each file, a line each."""
    words = {"created": "delete", "deleted": "restore", "changed": "change back"}
    lines = [f"  {words[one.kind]:<12} {one_line(one.shown, 200)}" for one in changes[:_MAX_LISTED]]
    return lines + [f"  and {counted(len(changes) - _MAX_LISTED, 'more')}"] * (len(changes) > _MAX_LISTED)


def not_covered(comparison: Comparison) -> list[str]:
    """Say what putting the files back leaves as it is."""
    lost = [one.shown for one in comparison.changes if not one.is_stored]
    notes = [f"Too large to be kept, and left as they are: {one_line(', '.join(lost), 500)}"] * bool(lost)
    folders = [f"Not looked into: {one_line(', '.join(comparison.left_out), 500)}"] * bool(comparison.left_out)
    return notes + folders + ["The folder has too many files: some were not looked at."] * (not comparison.is_whole)


def diff_of(snapshots: Snapshots, comparison: Comparison) -> str:
    """Return all changes as one unified diff."""
    return "".join(map(snapshots.diff, comparison.changes))
