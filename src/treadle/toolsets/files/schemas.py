"""The contracts that the file tools share: the form of their results and of their errors. Values only."""

from treadle.tools import JsonObject

__all__ = ["ERROR_SCHEMA", "FOLDER_ROOTED", "PATH_NAMES", "PATTERN", "listing_schema"]

FOLDER_ROOTED = "Paths are relative to the root folder and must stay in it; `~` and variables are not expanded."

PATH_NAMES = {"file_path": "path"}
"""How other programs call the one parameter that names a file: models that have learned those names use them here, too."""

PATTERN: JsonObject = {"type": "string", "minLength": 1, "maxLength": 500}

ERROR_SCHEMA: JsonObject = {
    "type": "object",
    "properties": {
        "error": {"type": "string"},
        "did_you_mean": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["error"],
    "additionalProperties": False,
}


def listing_schema(**more: JsonObject) -> JsonObject:
    """Return the schema of `{"output": ..., "count": ...}`: lines as text, their number, and what a tool adds."""
    return {
        "type": "object",
        "properties": {
            "output": {"type": "string"},
            "count": {"type": "integer", "minimum": 0},
            "truncated": {"const": True},
            "hint": {"type": "string"},
            **more,
        },
        "required": ["output", "count"],
        "additionalProperties": False,
    }
