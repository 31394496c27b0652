"""Offers: what a server lists, as tools of ours. Its words on itself are hints: they never allow a call."""

import json
from collections.abc import Awaitable, Callable, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import mcp_types as types

from treadle.errors import ToolDefinitionError
from treadle.redaction import redacted_logger
from treadle.tools import Effect, JsonObject, Risk, Tool, ToolContext, ToolOutput
from treadle.toolsets.mcp.servers import McpServer, fit_schema, shortened, tool_name, visible
from treadle.validation.schema import Schema, corrected

__all__ = ["Offers"]

logger = redacted_logger(__name__)

_LONGEST_DESCRIPTION = 4_000
_Call: TypeAlias = Callable[[str, JsonObject, ToolContext, bool], Awaitable[ToolOutput]]


class Offers:
    """The tools of one server, made of what it lists. An equal listing gives the same tools.

    Args:
        call: Called with the server's name of a tool, the arguments, the context, and whether the call only reads.
    """

    def __init__(self, server: McpServer, call: _Call) -> None:
        self._server = server
        self._call = call
        self._made: dict[str, Tool] = {}
        self.left_out: dict[str, str] = {}
        """Why tools cannot be offered, by the server's name of each."""
        self.notes: dict[str, list[str]] = {}
        """What is odd about tools that are offered, by our name of each."""

    def tools(self, listed: Sequence[types.Tool]) -> list[Tool]:
        """Return the tools of a listing."""
        made: dict[str, Tool] = {}
        found: list[Tool] = []
        for one in listed:
            key = json.dumps(one.model_dump(mode="json", by_alias=True, exclude_none=True), sort_keys=True)
            try:
                tool = made.get(key) or self._made.get(key) or self._tool(one)
            except (ToolDefinitionError, ValueError) as error:
                self.leave_out(one.name, str(error))
                continue
            if key not in made:  # listed twice with the same words, it is one tool
                made[key] = tool
                found.append(tool)
        self._made = made
        return found

    def leave_out(self, name: str, why: str) -> None:
        """Note that a tool cannot be offered. The run reports it."""
        self.left_out[shortened(visible(name), 100)] = shortened(visible(why), 300)

    def note(self, name: str, said: str) -> None:
        """Note and report what is odd about a tool that is offered, by the server's name of it."""
        _warn_once(tool_name(self._server.name, name), self._add_note(name, said))

    def _add_note(self, name: str, said: str) -> str:
        sentence = shortened(visible(said), 300)
        told = self.notes.setdefault(tool_name(self._server.name, name), [])
        told += [] if sentence in told else [sentence]
        return sentence

    def _tool(self, listed: types.Tool) -> Tool:
        """Raises ValueError or ToolDefinitionError: It cannot be offered."""
        server, name = self._server, listed.name
        if not name:
            raise ValueError("it has no name")
        declared = server.effects.get(name)
        effect = declared or _effect_of(listed.annotations, is_trusted=server.trusted)
        is_read = effect.is_read

        async def run(arguments: JsonObject, ctx: ToolContext) -> ToolOutput:
            return await self._call(name, arguments, ctx, is_read)

        tool = Tool(
            name=tool_name(server.name, name),
            description=shortened(visible(listed.description or listed.title or ""), _LONGEST_DESCRIPTION),
            parameters=self._schema(name, "parameters", listed.input_schema),
            output_schema=None if listed.output_schema is None else self._schema(name, "result", listed.output_schema),
            effect=effect,
            # What the server says never allows a call: only a rule, a person, or `effects` does.
            permission=None if declared is not None else "ask",
            risk=None if declared is not None else _risk_of(listed.annotations, effect),
            timeout=server.timeout,
            run=run,
        )
        for unfit in Schema(tool.parameters, where="parameters").unfit_defaults():
            problem = f"`{unfit['field']}`: expected {unfit['constraint']}; got {json.dumps(unfit['value'])}"
            self._add_note(name, f"a default does not fit and is not filled in: {problem}.")  # the run reports it
        return tool

    def _schema(self, tool: str, what: str, declared: JsonObject) -> JsonObject:
        """Return a schema that can be used. One that is invalid by a slip, such as `required: null`, is read as it must be meant.

        Raises:
            ToolDefinitionError: It cannot be used.
            ValueError: As of `fit_schema`.
        """
        fit = fit_schema(declared)
        try:
            Schema(fit, where=f"schema of its {what}")
        except ToolDefinitionError as error:
            meant = corrected(fit)
            try:
                Schema(meant, where=f"schema of its {what}")
            except ToolDefinitionError:
                raise error from None
            self.note(tool, str(error).replace(" cannot be used: ", " was corrected: "))
            return meant
        return fit


@lru_cache(maxsize=10_000)
def _warn_once(tool: str, sentence: str) -> None:
    """Report something about a tool once in a process: each run lists the tools anew."""
    logger.warning("Tool %s: %s", tool, sentence)


def _effect_of(hints: types.ToolAnnotations | None, *, is_trusted: bool) -> Effect:
    """Return what a call does to the world. Hints that contradict each other are not believed."""
    if not is_trusted or hints is None:
        return Effect.UNSAFE
    if hints.read_only_hint:
        return Effect.UNSAFE if hints.destructive_hint else Effect.READ
    return Effect.IDEMPOTENT if hints.idempotent_hint else Effect.UNSAFE


def _risk_of(hints: types.ToolAnnotations | None, effect: Effect) -> Risk:
    if effect.is_read:
        is_closed = hints is not None and hints.open_world_hint is False
        return Risk.READ_ONLY if is_closed else Risk.NETWORK_OPEN_WORLD
    destroys: Any = hints is not None and hints.destructive_hint
    return Risk.DESTRUCTIVE if destroys else Risk.WRITE_EXTERNAL
