"""Refusals: what an HTTP status of a server means for a request: who must act, and whether the server can have begun. Sends nothing."""

import re
from typing import Any

import msgspec

__all__ = ["Refusal", "noted", "refusal_in"]

_KEY = "treadle/refusal"
"""Where the data of an error has its refusal: the package passes data on, and knows no status."""
_SESSION_LOST = {
    400: re.compile(r"session|not initialized", re.IGNORECASE),
    401: re.compile(r"session not found", re.IGNORECASE),
    404: re.compile(r""),
    410: re.compile(r""),
}
"""Statuses and words by which a server says that it does not know a request's session. By the protocol that is 404; the example servers of
the TypeScript package say 400, and early ones of the Rust package 401."""
_REFUSED = frozenset({401, 403, 404, 410, 429})
"""Statuses of a request that was not carried out, whatever else the answer says."""
_WORDS = {
    401: "it wants a valid sign-in: the token or key is missing, wrong or has expired",
    403: "the token or key does not allow it, or has expired",
    404: "nothing answers at this address",
    410: "nothing answers at this address any more",
    429: "it is busy: too many requests",
    502: "its gateway got no answer",
    503: "it is busy or down",
    504: "its gateway got no answer in time",
}
_CODES = {401: "auth_expired", 403: "auth_expired", 429: "rate_limited"}


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """An answer to a request by HTTP that was an error."""

    status: int | None = None
    """None where nobody was reached."""
    said: str = ""
    retry_after: str = ""
    has_session: bool = False
    """Whether the request named a session."""

    @property
    def never_began(self) -> bool:
        """Whether the request may be repeated over a new connection: nobody was reached, or the server has forgotten the session."""
        words = _SESSION_LOST.get(self.status or 0)
        return self.status is None or (self.has_session and words is not None and words.search(self.said) is not None)

    @property
    def not_done(self) -> bool:
        """Whether the request was surely not carried out, whatever the error's code."""
        return self.status is None or self.status in _REFUSED

    @property
    def code(self) -> str:
        """What the model and rules know it by."""
        return _CODES.get(self.status or 0, "mcp_error")

    @property
    def words(self) -> str:
        """What happened, for a person."""
        if self.status is None:
            return "nobody answers at its address"
        about = _WORDS.get(self.status)
        wait = f"; it asks to wait {self.retry_after[:40]} s" if self.retry_after.isdecimal() else ""
        return f"HTTP status {self.status}{f' ({about}{wait})' if about else wait}"


def noted(refusal: Refusal, data: Any) -> dict[str, Any]:
    """Return an error's data with its refusal."""
    return {**(data if isinstance(data, dict) else {}), _KEY: msgspec.to_builtins(refusal)}


def refusal_in(data: Any) -> Refusal | None:
    """Return the refusal of an error's data; None where it did not come by an HTTP error."""
    try:
        return msgspec.convert(data[_KEY], Refusal) if isinstance(data, dict) and _KEY in data else None
    except msgspec.ValidationError:  # the server's own words under our key
        return None
