"""Looking: what grep, glob, read and list have in common as tools. Opens nothing itself."""

from typing import Any

from treadle.tools import Tool
from treadle.toolsets.files.root import Root
from treadle.toolsets.files.schemas import ERROR_SCHEMA, PATH_NAMES

__all__ = ["looking"]


def looking(root: Root, **own: Any) -> Tool:  # Any: the fields in which the four differ
    """Return a tool that only looks at what its path names, or at the root folder where it names nothing."""
    return Tool(
        error_schema=ERROR_SCHEMA,
        effect="read",
        timeout=60.0,
        aliases=PATH_NAMES,
        validate=lambda given: root.check(given.get("path", ".")),
        **own,
    )
