"""Todos: the tool by which the model keeps its list of what is to be done. The list is a fact of the session; this writes no file."""

from treadle.canonical import digest
from treadle.errors import ConfigurationError, Rejected, shown
from treadle.fields import checked
from treadle.state import Suspended
from treadle.tools import JsonObject, Preview, Review, Tool, ToolContext, ToolOutput
from treadle.tools.tool import closed_schema

__all__ = ["ask_user_tool", "exit_plan_tool", "todo_tool"]

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
    if not 1 <= max_items <= 200:
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
    item = closed_schema(
        ["text", "state"],
        text={
            "type": "string",
            "minLength": 1,
            "maxLength": _TEXT_CHARS,
            "description": "What to do, in one sentence.",
        },
        state={"type": "string", "enum": list(_STATES), "description": "The state of the item."},
    )
    items = {"type": "array", "items": item, "maxItems": max_items, "description": "The whole list, in order."}
    return closed_schema(["items"], items=items)


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


# --- Planning: the tool by which the model proposes a plan. A person allows it, which ends the mode `plan`. Changes
# nothing itself.

_PLAN_DESCRIPTION = "Propose your finished plan to the person, and wait for their approval. Use it in plan mode, where nothing can be changed: say which files you would change, how, and how you would verify the result. If the plan is allowed, carry it out as it is; if you change it afterwards, propose it again. If it is denied, the reason says what to do instead."
_PLAN_PARAMETERS: JsonObject = closed_schema(
    ["plan"],
    plan={"type": "string", "minLength": 1, "maxLength": 50_000, "description": "The whole plan, as Markdown."},
)


def exit_plan_tool() -> Tool:
    """Return the tool `exit_plan`, the one way out of plan mode that a model can propose.

    Each call pauses the run with the plan. Where a person allows it, the session's mode changes from `plan` to `ask` in the same commit as
    the answer (that of an edited plan once the edits are valid); no policy, rule or approver of the program does that. In any other mode a call asks too, and changes no mode.

    The plan that was allowed is the fact `plan` of the session, with a version that follows from its words. A compaction keeps it.

    Example:
        agent = Agent(model, tools=[*file_tools("."), *writing_tools("."), exit_plan_tool()])
    """
    return Tool(
        name="exit_plan",
        description=_PLAN_DESCRIPTION,
        parameters=_PLAN_PARAMETERS,
        effect="read",
        permission="always_ask",
        ends_plan=True,
        review=_review,
        run=_exit,
        examples=({"plan": "1. Fix the bound in src/pages.py.\n2. Run make test."},),
    )


def _review(arguments: JsonObject, _: JsonObject) -> Review:
    return Review(
        action="Leave plan mode and carry out this plan",
        preview=Preview(kind="text", text=arguments["plan"]),
        expected_result="The mode of the session is `ask`, and the model carries out the plan.",
        rollback="Set the mode to `plan` again.",
    )


def _exit(arguments: JsonObject, ctx: ToolContext) -> ToolOutput:
    text = arguments["plan"]
    version = digest(text)[:12]
    answer = {"plan": text, "version": version, "message": "The plan is allowed. Carry it out as it is."}
    return ToolOutput(data=answer, facts={"plan": {"text": text, "version": version, "state": "allowed"}})


# --- Asking: the tool by which the model asks a person, whose answer becomes the call's result. Reads no terminal, and
# holds no process.

_ASK_DESCRIPTION = "Ask the person a question whose answer you need to continue, and wait for it. Use it when only the person can decide or knows the answer; not for what a tool can find out, and not for permission to make a call, which is requested automatically. Ask one thing at a time."

_ASK_PARAMETERS: JsonObject = closed_schema(
    ["question"],
    question={
        "type": "string",
        "minLength": 1,
        "maxLength": 2000,
        "description": "The question. It must be understandable on its own.",
    },
    choices={
        "type": "array",
        "items": {"type": "string", "minLength": 1, "maxLength": 200},
        "maxItems": 10,
        "description": "Suggested answers, if there are only a few. The person may give another answer.",
    },
)


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
        description=_ASK_DESCRIPTION,
        parameters=_ASK_PARAMETERS,
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
    form = {"type": "string", "examples": choices} if choices else None  # an answer in other words counts too
    raise Suspended(arguments["question"] + (f" ({', '.join(choices)})" if choices else ""), form=form)
