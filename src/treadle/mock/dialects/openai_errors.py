"""OpenAI's errors: the object that both of its dialects put into an error body or event. Decides nothing."""

from treadle.tools import JsonObject

__all__ = ["openai_error"]

_KINDS = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}


def openai_error(
    status: int, error: str | JsonObject, *, param: str | None = None, code: str | None = None
) -> JsonObject:
    """Return the vendor's error object: the message in its envelope, or the object as it stands."""
    body = {"message": error} if isinstance(error, str) else error.get("error", error)
    kind = "server_error" if status >= 500 or status < 400 else _KINDS.get(status, "invalid_request_error")
    return {
        "message": "",
        "type": kind,
        "param": param,
        "code": code,
        **(body if isinstance(body, dict) else {"message": body}),
    }
