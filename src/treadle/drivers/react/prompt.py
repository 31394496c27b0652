"""Prompt: the words in which a ReAct driver describes tools and decisions. The same for the same tools, byte for byte."""

from collections.abc import Sequence

import msgspec

from treadle.ports import ToolSpec
from treadle.tools import JsonObject

__all__ = ["REWORD", "note", "react_instructions", "rejection"]

REWORD = (
    "Now write the final answer to the task in full, for the person who asked. Use all of the conversation above. "
    "Write the answer itself, not a decision."
)

_RULES = """\
You work in steps: think, act, observe. In each step answer with exactly one JSON object and nothing else.
- To use a tool: "type": "call_tool", with "tool" its name and "args" an object with its arguments. "answer" is null.
- To end: "type": "final_answer", with "answer" the whole answer to the task. "tool" and "args" are null.
- "thought" says why, in a sentence or two.
One tool a step. Its result comes back as a message that begins with "Observation:". Never write an observation yourself."""

_OWN_RULES = """\
You work in steps: think, act, observe. In each step answer with exactly one JSON object of the schema below and nothing else.
The result of a tool comes back as a message that begins with "Observation:". Never write an observation yourself."""


def react_instructions(
    instructions: str | None,
    tools: Sequence[ToolSpec],
    schema: JsonObject,
    *,
    answer: JsonObject | None = None,
    is_own: bool = False,
) -> str:
    """Return the instructions with the rules of a decision and the tools behind them.

    Args:
        schema: Of a decision.
        answer: Of a structured final answer; None for text.
        is_own: Whether the decision is of the user's own type, which its schema describes alone.
    """
    pieces = [instructions] if instructions else []
    pieces.append(_OWN_RULES if is_own else _RULES)
    if answer is not None:
        pieces.append(f"The answer is a JSON value of this schema:\n{_json(answer)}")
    pieces.append(f"JSON Schema of the object:\n{_json(schema)}")
    pieces.append("Tools:\n" + "\n".join(map(_described, tools)) if tools else "There are no tools.")
    return "\n\n".join(pieces)


def note(tool_choice: str) -> str | None:
    """Return what the model is told beside the conversation where its choice is not free."""
    match tool_choice:
        case "auto":
            return None
        case "none":
            return 'No tool may be called any more. Answer now with "type": "final_answer" and what you have so far.'
        case "required":
            return 'Call one of the tools in this step: "type": "call_tool".'
        case name:
            return f'Call the tool {name} in this step: "type": "call_tool".'


def rejection(problem: str) -> str:
    """Return what the model reads about a decision that was not accepted."""
    return f"Your decision was not accepted. {problem} Answer again with one JSON object and nothing else."


def _described(spec: ToolSpec) -> str:
    description = spec.description.strip().replace("\n", "\n  ")
    return f"- {spec.name}: {description}\n  args: {_json(spec.parameters)}"


def _json(value: JsonObject) -> str:
    return msgspec.json.encode(value).decode()
