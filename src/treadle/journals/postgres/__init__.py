"""PostgreSQL: a journal that several machines share."""

from treadle.journals.postgres.journal import PostgresJournal, open_postgres

__all__ = ["PostgresJournal", "open_postgres"]
