"""Asking: the tool by which the model asks a person, whose answer becomes the call's result. Reads no terminal, and holds no process."""

from treadle.state import Suspended
from treadle.tools import JsonObject, Tool, ToolContext

__all__ = ["ask_user_tool"]

_DESCRIPTION = "Ask the person a question whose answer you need to continue, and wait for it. Use it when only the person can decide or knows the answer; not for what a tool can find out, and not for permission to make a call, which is requested automatically. Ask one thing at a time."

_PARAMETERS: JsonObject = {
    "type": "object",
    "properties": {
        "question": {
            "type": "string",
            "minLength": 1,
            "maxLength": 2000,
            "description": "The question. It must be understandable on its own.",
        },
        "choices": {
            "type": "array",
            "items": {"type": "string", "minLength": 1, "maxLength": 200},
            "maxItems": 10,
            "description": "Suggested answers, if there are only a few. The person may give another answer.",
        },
    },
    "required": ["question"],
    "additionalProperties": False,
}


def ask_user_tool() -> Tool:
    """Return the tool `ask_user`. A question pauses the run as `input_required`; the answer becomes the call's result.

    Any process may answer, also after a restart, and `resume` continues.

    Example:
        agent = Agent(model, tools=[ask_user_tool()])
        await agent.run("Book a table", session=session)
        await session.input(session.state.question.call.id, "At seven, for two.")
        result = await agent.resume(session)
    """
    return Tool(
        name="ask_user",
        description=_DESCRIPTION,
        parameters=_PARAMETERS,
        effect="read",
        timeout=None,
        resumes=True,
        run=_ask,
        examples=({"question": "Which of the two branches shall I fix?", "choices": ["main", "next"]},),
    )


async def _ask(arguments: JsonObject, ctx: ToolContext) -> JsonObject:
    if ctx.inputs:
        return {"answer": ctx.inputs[-1]}
    choices = arguments.get("choices", [])
    raise Suspended(arguments["question"] + (f" ({', '.join(choices)})" if choices else ""))
