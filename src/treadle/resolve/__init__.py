"""Resolve: from names and addresses to models, journals and sessions. The one composition root."""

from treadle.resolve.journals import JournalOpening, open_journal
from treadle.resolve.models import (
    check_model_name,
    driver_for,
    known_facts,
    known_models,
    local_servers,
    resolve_model,
    with_fallback,
)
from treadle.resolve.offers import offered_models
from treadle.resolve.sessions import memory_session, open_session

__all__ = [
    "JournalOpening",
    "check_model_name",
    "driver_for",
    "known_facts",
    "known_models",
    "local_servers",
    "memory_session",
    "offered_models",
    "open_journal",
    "open_session",
    "resolve_model",
    "with_fallback",
]
