"""Planning: the tool by which the model proposes a plan. A person allows it, which ends the mode `plan`. Changes nothing itself."""

from treadle.canonical import digest
from treadle.tools import JsonObject, Preview, Review, Tool, ToolContext, ToolOutput

__all__ = ["exit_plan_tool"]

_DESCRIPTION = "Propose your finished plan to the person, and wait for their approval. Use it in plan mode, where nothing can be changed: say which files you would change, how, and how you would verify the result. If the plan is allowed, carry it out as it is; if you change it afterwards, propose it again. If it is denied, the reason says what to do instead."
_PARAMETERS: JsonObject = {
    "type": "object",
    "properties": {
        "plan": {"type": "string", "minLength": 1, "maxLength": 50_000, "description": "The whole plan, as Markdown."}
    },
    "required": ["plan"],
    "additionalProperties": False,
}


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
        description=_DESCRIPTION,
        parameters=_PARAMETERS,
        effect="read",
        requires_approval=True,
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
