"""Loops that are the bare loop but for one bug, each with the scenarios that show it."""

import contextlib
import json
from types import SimpleNamespace
from typing import Any

import jsonschema_rs
from bare_loop import OFFERS, TRANSIENT, Job, JobTool, Loop

LOOPS: dict[str, type[Loop]] = {}
"""The loops by their names."""
BUGS: dict[str, set[str]] = {}
"""The ids of the scenarios that each loop fails."""


def shown_by(*groups: str) -> Any:
    """Say which scenarios a loop fails: each text is a group with names in it."""

    def made(kind: type[Loop]) -> type[Loop]:
        parts = [text.partition(": ") for text in groups]
        LOOPS[kind.__name__] = kind
        BUGS[kind.__name__] = {f"{group}/{name}" for group, _, names in parts for name in names.split()}
        return kind

    return made


def adapter(job: Job) -> dict[str, Any]:
    """Run the loop that the job names as its model."""
    return LOOPS[job.model](job).run()


adapter.offers = OFFERS


@shown_by("identity: told-twice")
class RunsARepeatedCall(Loop):
    """It takes a call that comes twice for two calls."""

    def told_once(self, calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return super().told_once([{**call, "type": f"function{at}"} for at, call in enumerate(calls)])

    def take(self, answer: SimpleNamespace) -> None:
        answer.calls = [{**call, "type": "function"} for call in answer.calls]
        super().take(answer)


@shown_by("identity: same-id")
class KeepsIdsAsTheyCome(Loop):
    """It sends ids back that are not unique."""

    def told_once(self, calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [call for at, call in enumerate(calls) if call not in calls[:at]]


@shown_by("schemas: unknown-tool wrong-case longer-name no-tools unknown-among-known", "limits: unknown-for-ever")
class ForgetsUnknownTools(Loop):
    """It gives no result for a tool that does not exist."""

    def outcome(self, call: dict[str, Any], decided: list[dict[str, Any]]) -> str | None:
        return super().outcome(call, decided) if call["function"]["name"] in self.tools else None


@shown_by("schemas: unknown-tool wrong-case longer-name unknown-among-known")
class DiesOfUnknownTools(Loop):
    """It raises when a tool does not exist."""

    def of_unknown_tool(self, call: dict[str, Any]) -> str:
        raise KeyError(call["function"]["name"])


@shown_by("schemas: wrong-case longer-name")
class FindsToolsByPrefix(Loop):
    """It takes a tool whose name is nearly the one that was called."""

    def outcome(self, call: dict[str, Any], decided: list[dict[str, Any]]) -> str | None:
        name = call["function"]["name"].lower()
        near = next((one for one in self.tools if name.startswith(one)), call["function"]["name"])
        return super().outcome({**call, "function": {**call["function"], "name": near}}, decided)


@shown_by(
    "schemas: unknown-among-known",
    "parallel: own-result one-fails one-invalid",
    "timeouts: sibling",
    "approvals: sibling",
)
class SwapsResults(Loop):
    """It pairs the results of a response with its calls from the end."""

    def keep_results(self, calls: list[dict[str, Any]], results: dict[str, str | None]) -> None:
        if len(results) == len(calls):
            swapped = dict(zip(results, reversed(results.values()), strict=True))
            super().keep_results(calls, swapped)


@shown_by("schemas: unknown-among-known", "parallel: one-fails one-invalid", "timeouts: sibling")
class DropsTheRestOfABatch(Loop):
    """When one call of a response fails, the others lose their results."""

    def keep_results(self, calls: list[dict[str, Any]], results: dict[str, str | None]) -> None:
        if len(results) == len(calls):
            failed = [one for one in results.values() if one and one.startswith("Error")]
            super().keep_results(calls, dict.fromkeys(results, failed[0]) if failed else results)


@shown_by("timeouts: write sibling own-timeout")
class PaysAgainAfterATimeout(Loop):
    """It runs a call again that timed out, whatever it does."""

    def within_time(self, tool: JobTool, arguments: dict[str, Any]) -> Any:
        with contextlib.suppress(TimeoutError):
            return super().within_time(tool, arguments)
        return super().within_time(tool, arguments)


@shown_by("timeouts: lost-connection")
class PaysAgainAfterAnError(Loop):
    """It runs a call again whose connection was lost."""

    def of_failed_tool(self, tool: JobTool, arguments: dict[str, Any], exc: BaseException) -> str:
        if isinstance(exc, ConnectionError):
            return self.shown(self.within_time(tool, arguments))
        return super().of_failed_tool(tool, arguments, exc)


@shown_by(
    "contents: nan not-serialisable bytes cycle exception",
    "parallel: one-fails",
    "timeouts: failing-read",
)
class DiesOfFailingTools(Loop):
    """It raises what a tool raises."""

    def of_failed_tool(self, tool: JobTool, arguments: dict[str, Any], exc: BaseException) -> str:
        raise exc


@shown_by("identity: interleaved no-ids")
class AssemblesByArrival(Loop):
    """It adds each piece of arguments to the call that began last."""

    def piece(self, pieces: dict[Any, dict[str, Any]], delta: dict[str, Any]) -> None:
        if not delta.get("id") and pieces:
            list(pieces.values())[-1]["arguments"] += delta["function"].get("arguments") or ""
        else:
            super().piece(pieces, delta)


@shown_by("identity: begun-twice name-in-each-piece")
class JoinsNames(Loop):
    """It puts the name of a call together from all pieces."""

    def name_piece(self, call: dict[str, Any], name: str) -> None:
        call["name"] += name


@shown_by("streams: ends-early")
class TakesAnyEndForTheEnd(Loop):
    """It takes a response that broke off for a whole one."""

    def check_end(self, answer: SimpleNamespace) -> None:
        pass


@shown_by("streams: finish-stop finish-unknown finish-calls")
class TrustsTheFinish(Loop):
    """It looks for calls only when the response says that it ended because of them."""

    def take(self, answer: SimpleNamespace) -> None:
        if answer.finish != "tool_calls":
            answer.calls = []
        super().take(answer)

    def is_final(self, answer: SimpleNamespace) -> bool:
        return answer.finish != "tool_calls"


@shown_by("arguments: cut-off")
class MendsArguments(Loop):
    """It closes what is open in broken arguments, and runs the call."""

    def parsed(self, text: str) -> dict[str, Any]:
        for end in ("", '"}', "}", '"]}', "]}"):
            with contextlib.suppress(ValueError):
                return super().parsed(text + end)
        return super().parsed(text)


@shown_by(
    "arguments: cut-off trailing-comma single-quotes two-objects prose fenced not-an-object not-a-number too-deep duplicate-key twice-encoded",
    "schemas: wrong-type missing null not-in-enum above-maximum below-minimum fraction extra nested nested-missing item quoted-number",
    "parallel: one-invalid",
    "approvals: invalid",
)
class DiesOfBrokenArguments(Loop):
    """It raises when arguments are not valid."""

    def of_invalid_arguments(self, exc: Exception) -> str:
        raise exc


@shown_by("arguments: duplicate-key")
class ReadsLooseJson(Loop):
    """It takes NaN, and the last of two values of one key."""

    def parsed(self, text: str) -> dict[str, Any]:
        return json.loads(text or "{}")


@shown_by(
    "schemas: wrong-type null not-in-enum above-maximum below-minimum fraction extra nested nested-missing item quoted-number",
    "parallel: one-invalid",
    "limits: invalid-for-ever",
    "approvals: invalid",
)
class ChecksRequiredOnly(Loop):
    """It checks that required arguments are there, and nothing else of the schema."""

    def check(self, tool: JobTool, arguments: Any) -> None:
        jsonschema_rs.validate({"type": "object", "required": tool.parameters["required"]}, arguments)


@shown_by("retries: bad-request wrong-key forbidden no-model")
class RetriesEverything(Loop):
    """It repeats requests that can only fail again."""

    retried = TRANSIENT | {400, 401, 403, 404}


@shown_by("retries: rate-limit server-error unavailable bad-gateway")
class NeverRetries(Loop):
    """It gives up at the first failure of the provider."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        job.max_attempts = 1


@shown_by("retries: after-payment")
class RunsTheStepAgain(Loop):
    """When a request fails, it begins with the calls before it."""

    def ask(self) -> tuple[int, Any]:
        status, answer = super().ask()
        if status == 503 and self.messages[-1]["role"] == "tool":
            self.messages.pop()
            self.started.clear()
            self.execute_open_calls()
        return status, answer


@shown_by("limits: endless same-call unknown-for-ever invalid-for-ever call-in-last-answer")
class NeverStops(Loop):
    """It has no limit of steps."""

    has_end = False


@shown_by("limits: endless same-call unknown-for-ever invalid-for-ever last-answer call-in-last-answer")
class ClaimsSuccessAtTheLimit(Loop):
    """It says that the task is done when its steps are used up."""

    def at_the_limit(self) -> dict[str, Any]:
        return self.ended("Here is what I have so far.")


@shown_by("histories: text-with-call")
class DropsTheTextOfCalls(Loop):
    """It leaves out what the model says before a call."""

    def kept_text(self, answer: SimpleNamespace) -> str:
        return "" if answer.calls else answer.text


@shown_by("limits: usage")
class CountsTheLastResponse(Loop):
    """It reports the usage of the last response."""

    def count(self, usage: dict[str, Any]) -> None:
        self.used = {"input_tokens": usage["prompt_tokens"], "output_tokens": usage["completion_tokens"]}


@shown_by("identity: single-bytes")
class DecodesEachPiece(Loop):
    """It decodes what comes without regard to characters that are split."""

    def decoder(self) -> Any:
        return lambda content: content.decode(errors="replace")


@shown_by("crashes: before-effect after-effect tells-the-model siblings twice")
class RunsCrashedCallsAgain(Loop):
    """After a crash it runs the call again that was under way."""

    def of_crashed_call(self, tool: JobTool, arguments: dict[str, Any]) -> str:
        return self.executed(tool, arguments)


@shown_by("histories: after-cancel after-kill")
class LeavesOpenCalls(Loop):
    """It takes up a conversation with a call that has no result."""

    def settle_open_calls(self) -> None:
        self.waiting = []

    def execute_open_calls(self) -> None:
        if self.messages[-1]["role"] != "user":
            super().execute_open_calls()


@shown_by("approvals: other-arguments same-call-again")
class ApprovesByName(Loop):
    """It takes consent to one call for consent to the tool."""

    def consent(self, tool: JobTool, arguments: dict[str, Any], decided: list[dict[str, Any]]) -> bool | None:
        allowed = self.file.with_name("allowed")
        if any(one["tool"] == tool.name and one["allow"] for one in decided):
            allowed.write_text(tool.name)
        if allowed.exists() and allowed.read_text() == tool.name:
            return True
        return super().consent(tool, arguments, decided)


@shown_by("approvals: asks denied other-arguments same-call-again no-answer forged")
class AsksNobody(Loop):
    """It runs what needs a person."""

    def consent(self, tool: JobTool, arguments: dict[str, Any], decided: list[dict[str, Any]]) -> bool | None:
        return True


@shown_by("contents: long-result")
class ShowsAll(Loop):
    """It shows the model results of any length."""

    def shown(self, value: Any) -> str:
        self.job.max_result_chars = None
        return super().shown(value)
