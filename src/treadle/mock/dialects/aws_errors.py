"""AWS's errors: their classes by status, and the body that tells one. Knows no dialect."""

from treadle.mock.dialects.rendering import json_bytes
from treadle.tools import JsonObject

__all__ = ["aws_error", "aws_exception"]

_CLASSES = {
    400: "ValidationException",
    401: "UnrecognizedClientException",
    403: "AccessDeniedException",
    404: "ResourceNotFoundException",
    408: "ModelTimeoutException",
    424: "ModelErrorException",
    429: "ThrottlingException",
    503: "ServiceUnavailableException",
}


def aws_error(status: int, error: str | JsonObject) -> bytes:
    """Return the body of an error: a message, or the object as it stands. The class, which AWS tells in a header, stands in it."""
    said = {"message": error} if isinstance(error, str) else error.get("error", error)
    said = said if isinstance(said, dict) else {"message": said}
    kind = _CLASSES.get(status, "ValidationException" if 400 <= status < 500 else "InternalServerException")
    return json_bytes({"__type": kind, **said})


def aws_exception(status: int, error: str | JsonObject) -> tuple[str, bytes]:
    """Return type and payload of an exception inside a stream. An error without a status is one of the model's stream."""
    said = {"message": error} if isinstance(error, str) else error
    named = said.get("type")
    kind = _CLASSES.get(status, "InternalServerException") if status >= 400 else "ModelStreamErrorException"
    kind = named if isinstance(named, str) else kind[0].lower() + kind[1:]
    return kind, json_bytes({name: value for name, value in said.items() if name != "type"})
