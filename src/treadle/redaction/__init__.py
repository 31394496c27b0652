"""Redaction: takes secrets out of text and JSON that people or programs read. Changes nothing that is executed.

Three kinds of secrets are found: values that this process uses itself (`remember`), well-known forms such as `ghp_...` or
a private key, and fields by name such as `password=...`.
"""

from treadle.redaction.known_values import KNOWN, MARK, remember, scrubbed, without_known
from treadle.redaction.logs import redacted_logger, shown_error
from treadle.redaction.names import is_secret_name, known, secrets_of_address
from treadle.redaction.redactor import Redactor

__all__ = [
    "KNOWN",
    "MARK",
    "Redactor",
    "is_secret_name",
    "known",
    "redacted_logger",
    "remember",
    "scrubbed",
    "secrets_of_address",
    "shown_error",
    "without_known",
]
