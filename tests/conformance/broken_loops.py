"""Loops that are the bare loop but for one bug, each with the scenarios that show it."""

import contextlib
import json
from types import SimpleNamespace
from typing import Any

import jsonschema_rs
from bare_loop import TRANSIENT, Job, JobTool, Loop, adapter_of

BUGS: dict[str, set[str]] = {}
"""The ids of the scenarios that each loop fails, by the name of its adapter."""


def shown_by(*scenarios: str) -> Any:
    """Make a loop an adapter of this module, which fails just these scenarios."""

    def made(kind: type[Loop]) -> type[Loop]:
        name = f"{kind.__name__}_loop"
        globals()[name] = adapter_of(kind)
        BUGS[name] = set(scenarios)
        return kind

    return made


@shown_by()
class RunsARepeatedCall(Loop):
    """It takes a call that comes twice for two calls."""

    def told_once(self, calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return super().told_once([{**call, "type": f"function{at}"} for at, call in enumerate(calls)])

    def take(self, answer: SimpleNamespace) -> None:
        answer.calls = [{**call, "type": "function"} for call in answer.calls]
        super().take(answer)


@shown_by()
class KeepsIdsAsTheyCome(Loop):
    """It sends ids back that are not unique."""

    def told_once(self, calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [call for at, call in enumerate(calls) if call not in calls[:at]]


@shown_by()
class ForgetsUnknownTools(Loop):
    """It gives no result for a tool that does not exist."""

    def outcome(self, call: dict[str, Any], decided: list[dict[str, Any]]) -> str | None:
        return super().outcome(call, decided) if call["function"]["name"] in self.tools else None


@shown_by()
class DiesOfUnknownTools(Loop):
    """It raises when a tool does not exist."""

    def of_unknown_tool(self, call: dict[str, Any]) -> str:
        raise KeyError(call["function"]["name"])


@shown_by()
class FindsToolsByPrefix(Loop):
    """It takes a tool whose name is nearly the one that was called."""

    def outcome(self, call: dict[str, Any], decided: list[dict[str, Any]]) -> str | None:
        name = call["function"]["name"].lower()
        near = next((one for one in self.tools if name.startswith(one)), call["function"]["name"])
        return super().outcome({**call, "function": {**call["function"], "name": near}}, decided)


@shown_by()
class SwapsResults(Loop):
    """It pairs the results of a response with its calls from the end."""

    def keep_results(self, calls: list[dict[str, Any]], results: dict[str, str | None]) -> None:
        if len(results) == len(calls):
            swapped = dict(zip(results, reversed(results.values()), strict=True))
            super().keep_results(calls, swapped)


@shown_by()
class DropsTheRestOfABatch(Loop):
    """When one call of a response fails, the others lose their results."""

    def keep_results(self, calls: list[dict[str, Any]], results: dict[str, str | None]) -> None:
        if len(results) == len(calls):
            failed = [one for one in results.values() if one and one.startswith("Error")]
            super().keep_results(calls, dict.fromkeys(results, failed[0]) if failed else results)


@shown_by()
class PaysAgainAfterATimeout(Loop):
    """It runs a call again that timed out, whatever it does."""

    def within_time(self, tool: JobTool, arguments: dict[str, Any]) -> Any:
        with contextlib.suppress(TimeoutError):
            return super().within_time(tool, arguments)
        return super().within_time(tool, arguments)


@shown_by()
class PaysAgainAfterAnError(Loop):
    """It runs a call again whose connection was lost."""

    def of_failed_tool(self, tool: JobTool, arguments: dict[str, Any], exc: BaseException) -> str:
        if isinstance(exc, ConnectionError):
            return self.shown(self.within_time(tool, arguments))
        return super().of_failed_tool(tool, arguments, exc)


@shown_by()
class DiesOfFailingTools(Loop):
    """It raises what a tool raises."""

    def of_failed_tool(self, tool: JobTool, arguments: dict[str, Any], exc: BaseException) -> str:
        raise exc


@shown_by()
class AssemblesByArrival(Loop):
    """It adds each piece of arguments to the call that began last."""

    def piece(self, pieces: dict[Any, dict[str, Any]], delta: dict[str, Any]) -> None:
        if not delta.get("id") and pieces:
            list(pieces.values())[-1]["arguments"] += delta["function"].get("arguments") or ""
        else:
            super().piece(pieces, delta)


@shown_by()
class JoinsNames(Loop):
    """It puts the name of a call together from all pieces."""

    def name_piece(self, call: dict[str, Any], name: str) -> None:
        call["name"] += name


@shown_by()
class KnowsOneCallAnIndex(Loop):
    """It takes two ids at one index for one call."""

    def piece(self, pieces: dict[Any, dict[str, Any]], delta: dict[str, Any]) -> None:
        call = pieces.setdefault((delta["index"], 0), {"id": None, "name": "", "arguments": ""})
        call["id"] = delta.get("id") or call["id"]
        call["name"] = delta["function"].get("name") or call["name"]
        call["arguments"] += delta["function"].get("arguments") or ""


@shown_by()
class TakesAnyEndForTheEnd(Loop):
    """It takes a response that broke off for a whole one."""

    def check_end(self, answer: SimpleNamespace) -> None:
        pass


@shown_by()
class TrustsTheFinish(Loop):
    """It looks for calls only when the response says that it ended because of them."""

    def take(self, answer: SimpleNamespace) -> None:
        if answer.finish != "tool_calls":
            answer.calls = []
        super().take(answer)

    def is_final(self, answer: SimpleNamespace) -> bool:
        return answer.finish != "tool_calls"


@shown_by()
class MendsArguments(Loop):
    """It closes what is open in broken arguments, and runs the call."""

    def parsed(self, text: str) -> dict[str, Any]:
        for end in ("", '"}', "}", '"]}', "]}"):
            with contextlib.suppress(ValueError):
                return super().parsed(text + end)
        return super().parsed(text)


@shown_by()
class DiesOfBrokenArguments(Loop):
    """It raises when arguments are not valid."""

    def of_invalid_arguments(self, exc: Exception) -> str:
        raise exc


@shown_by()
class ReadsLooseJson(Loop):
    """It takes NaN, and the last of two values of one key."""

    def parsed(self, text: str) -> dict[str, Any]:
        return json.loads(text or "{}")


@shown_by()
class ChecksRequiredOnly(Loop):
    """It checks that required arguments are there, and nothing else of the schema."""

    def check(self, tool: JobTool, arguments: Any) -> None:
        jsonschema_rs.validate({"type": "object", "required": tool.parameters["required"]}, arguments)


@shown_by()
class RetriesEverything(Loop):
    """It repeats requests that can only fail again."""

    retried = TRANSIENT | {400, 401, 403, 404}


@shown_by()
class NeverRetries(Loop):
    """It gives up at the first failure of the provider."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        job.max_attempts = 1


@shown_by()
class RunsTheStepAgain(Loop):
    """When a request fails, it begins with the calls before it."""

    def response(self) -> SimpleNamespace:
        try:
            self.job.max_attempts, before = 1, self.job.max_attempts
            return super().response()
        except RuntimeError:
            while self.messages[-1]["role"] == "tool":
                self.messages.pop()
            self.started.clear()
            self.execute_open_calls()
            self.job.max_attempts = before
            return super().response()


@shown_by()
class NeverStops(Loop):
    """It has no limit of steps."""

    has_end = False


@shown_by()
class ClaimsSuccessAtTheLimit(Loop):
    """It says that the task is done when its steps are used up."""

    def at_the_limit(self) -> dict[str, Any]:
        return self.ended("Here is what I have so far.")


@shown_by()
class DropsTheTextOfCalls(Loop):
    """It leaves out what the model says before a call."""

    def kept_text(self, answer: SimpleNamespace) -> str:
        return "" if answer.calls else answer.text


@shown_by()
class CountsTheLastResponse(Loop):
    """It reports the usage of the last response."""

    def count(self, usage: dict[str, Any]) -> None:
        self.used = {"input_tokens": usage["prompt_tokens"], "output_tokens": usage["completion_tokens"]}


@shown_by()
class DecodesEachPiece(Loop):
    """It decodes what comes without regard to characters that are split."""

    def decoder(self) -> Any:
        return lambda content: content.decode(errors="replace")


@shown_by()
class RunsCrashedCallsAgain(Loop):
    """After a crash it runs the call again that was under way."""

    def of_crashed_call(self, tool: JobTool, arguments: dict[str, Any]) -> str:
        return self.executed(tool, arguments)


@shown_by()
class LeavesOpenCalls(Loop):
    """It takes up a conversation with a call that has no result."""

    def settle_open_calls(self) -> None:
        self.waiting = []

    def execute_open_calls(self) -> None:
        if self.messages[-1]["role"] != "user":
            super().execute_open_calls()


@shown_by()
class ApprovesByName(Loop):
    """It takes consent to one call for consent to the tool."""

    def consent(self, tool: JobTool, arguments: dict[str, Any], decided: list[dict[str, Any]]) -> bool | None:
        allowed = self.file.with_name("allowed")
        if any(one["tool"] == tool.name and one["allow"] for one in decided):
            allowed.write_text(tool.name)
        if allowed.exists() and allowed.read_text() == tool.name:
            return True
        return super().consent(tool, arguments, decided)


@shown_by()
class AsksNobody(Loop):
    """It runs what needs a person."""

    def consent(self, tool: JobTool, arguments: dict[str, Any], decided: list[dict[str, Any]]) -> bool | None:
        return True


@shown_by()
class WritesNanOnTheWire(Loop):
    """It writes results with Python's JSON, which has NaN, and dies of what has no JSON."""

    def shown(self, value: Any) -> str:
        return value if isinstance(value, str) else json.dumps(value, default=None)
