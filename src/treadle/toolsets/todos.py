"""Todos: the tool by which the model keeps its list of what is to be done. The list is a fact of the session; this writes no file."""

from treadle.errors import ConfigurationError, Rejected, shown
from treadle.fields import checked
from treadle.tools import JsonObject, Tool, ToolContext, ToolOutput

__all__ = ["todo_tool"]

_STATES = ("pending", "in_progress", "done")
_TEXT_CHARS = 300

_DESCRIPTION = """\
Keep the to-do list of this session. Use it for work of three or more steps: write the whole list before you start, mark one item `in_progress` while you work on it, and `done` as soon as it is finished. Not for a single step, and not for things to remember.

Each call replaces the whole list: pass every item again, including finished ones. An empty list removes it. At most one item can be `in_progress`. The list is kept when older messages are removed, and is shown to you again while items are open."""


@checked
def todo_tool(*, max_items: int = 30) -> Tool:
    """Return the tool `todo`, with which the model keeps a list of what is to be done.

    The list is the fact `todos` of the session: it is folded, forked, rewound and resumed with it, stays after a compaction, and
    `treadle sessions show` lists it. While items are open, the runtime shows it to the model again every ten steps, at the end of what
    the model sees.

    Example:
        Agent(model, tools=[*file_tools("."), *writing_tools("."), todo_tool()])

    Args:
        max_items: Items that a list may have. A longer one is refused, and the model reads why.

    Raises:
        ConfigurationError: `max_items` is invalid.
    """
    if type(max_items) is not int or not 1 <= max_items <= 200:
        raise ConfigurationError(f"max_items must be a whole number from 1 to 200; got {shown(max_items)}.")
    return Tool(
        name="todo",
        description=_DESCRIPTION,
        parameters=_parameters(max_items),
        effect="read",
        run=_write,
        examples=(
            {
                "items": [
                    {"text": "Read the failing test", "state": "done"},
                    {"text": "Fix it", "state": "in_progress"},
                ]
            },
        ),
    )


def _parameters(max_items: int) -> JsonObject:
    item = {
        "type": "object",
        "properties": {
            "text": {
                "type": "string",
                "minLength": 1,
                "maxLength": _TEXT_CHARS,
                "description": "What to do, in one sentence.",
            },
            "state": {"type": "string", "enum": list(_STATES), "description": "The state of the item."},
        },
        "required": ["text", "state"],
        "additionalProperties": False,
    }
    items = {"type": "array", "items": item, "maxItems": max_items, "description": "The whole list, in order."}
    return {"type": "object", "properties": {"items": items}, "required": ["items"], "additionalProperties": False}


def _write(arguments: JsonObject, ctx: ToolContext) -> ToolOutput:
    items = arguments["items"]
    counts = {state: sum(one["state"] == state for one in items) for state in _STATES}
    if counts["in_progress"] > 1:
        message = f"{counts['in_progress']} items are in_progress. Mark only one; the list is unchanged."
        raise Rejected({"error": message}, code="several_in_progress")
    before = ctx.facts.get("todos")
    message = "The list is removed." if not items else "The list is kept."
    if items and items == before:
        message = "Nothing has changed."
    return ToolOutput(data={"message": message, **counts}, facts={"todos": items or None})
