"""HTTP answers: what a service's status means for a tool that calls it, as the exception to raise. Sends nothing."""

from typing import Any

from treadle.errors import ConfigurationError, Rejected, Transient, shown
from treadle.fields import checked

__all__ = ["http_rejection"]

_CODES = {
    400: "invalid_request",
    401: "auth_expired",
    403: "forbidden",
    404: "not_found",
    409: "conflict",
    410: "not_found",
    412: "conflict",
    422: "invalid_request",
    429: "rate_limited",
}


@checked
def http_rejection(
    status: int, body: Any, *, retry_after_seconds: float | None = None, retry: bool = False
) -> Rejected | Transient:
    """Return the exception to raise for an HTTP status of 400 or more.

    The codes are `auth_expired`, `forbidden`, `not_found`, `conflict`, `rate_limited`, `invalid_request`, `rejected` for other
    refusals, and `internal_error`. A refusal reaches the model with the service's own body. After a server's error nobody knows
    what was done: it is passing, and tried again unless the tool is `unsafe`.

    Example:
        if response.status >= 400:
            raise http_rejection(response.status, await response.json())

    Args:
        body: The service's own words: any JSON value.
        retry_after_seconds: What the service asked to wait, or None.
        retry: Whether the runtime may try again after 429; else the model decides.

    Raises:
        ConfigurationError: The status is not a failure.
    """
    if not 400 <= status <= 599:
        raise ConfigurationError(f"An HTTP status of 400 to 599 is a failure; got {shown(status)}.")
    code = _CODES.get(status, "rejected" if status < 500 else "internal_error")
    if code == "internal_error" or (code == "rate_limited" and retry):
        return Transient(f"the service answered {status}", retry_after_seconds=retry_after_seconds, code=code)
    return Rejected(body, code=code)
