"""SQLite: a journal in one file."""

from treadle.journals.sqlite.journal import SqliteJournal, open_sqlite

__all__ = ["SqliteJournal", "open_sqlite"]
