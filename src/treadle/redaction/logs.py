"""Logs: errors and lines of the log, bounded and without secrets: a library may quote an address or a header in them."""

import logging
import traceback

from treadle.redaction.redactor import Redactor

__all__ = ["redacted_logger", "shown_error"]

_LONGEST_WORDS = 16_000
"""Characters of an error or of a line of the log."""
_MAX_CAUSES = 5
_MAX_FRAMES = 50


def shown_error(error: BaseException) -> str:
    """Return what an error says, without secrets: a library may quote an address or a header in it."""
    return Redactor().text(_shortened(_message_of(error)))


def _traceback(error: BaseException | None) -> str:
    """Return the last frames and the words of an error and of its causes, all bounded."""
    reported: list[str] = []
    while error is not None and len(reported) < _MAX_CAUSES:
        frames = "".join(traceback.format_tb(error.__traceback__, limit=-_MAX_FRAMES))
        head = "Traceback (most recent call last):\n" if frames else ""
        reported.append(f"{head}{frames}{type(error).__name__}: {_shortened(_message_of(error))}")
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return "\n\nThe exception above led to this one:\n\n".join(reversed(reported))


def _message_of(error: BaseException) -> str:
    try:
        return str(error)
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - an error whose text raises, SystemExit too, must not take the run with it
        return ""


def _shortened(text: str) -> str:
    """Cut what an error or a log line says, so that looking through it holds nobody up."""
    if len(text) <= _LONGEST_WORDS:
        return text
    half = _LONGEST_WORDS // 2
    return f"{text[:half]} [... {len(text) - 2 * half} characters left out ...] {text[-half:]}"


class _Redacting(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        redactor = Redactor()
        record.msg, record.args = redactor.text(_shortened(record.getMessage())), None
        if record.exc_info and not record.exc_text:  # formatted here, so that no handler formats it as it is
            record.exc_text = redactor.text(_traceback(record.exc_info[1]))
        return True


def redacted_logger(name: str) -> logging.Logger:
    """Return a module's logger, which redacts: the errors of tools and servers may quote anything."""
    logger = logging.getLogger(name)
    logger.addFilter(_Redacting())
    return logger
