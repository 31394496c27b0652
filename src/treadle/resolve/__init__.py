"""Resolve: from names and addresses to models, journals and sessions. The one composition root."""

from treadle.resolve.importing import import_messages
from treadle.resolve.journals import JournalOpening, memory_session, open_journal, open_session
from treadle.resolve.models import (
    check_model_name,
    driver_for,
    known_facts,
    known_models,
    local_servers,
    offered_models,
    probe_model,
    resolve_model,
    with_fallback,
)

__all__ = [
    "JournalOpening",
    "check_model_name",
    "driver_for",
    "import_messages",
    "known_facts",
    "known_models",
    "local_servers",
    "memory_session",
    "offered_models",
    "open_journal",
    "open_session",
    "probe_model",
    "resolve_model",
    "with_fallback",
]
