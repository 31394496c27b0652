"""A bare tool loop that is right, in Chat Completions, and loops that are the same but for one bug. Subjects of the suite's own tests.

The history is a list of messages in a file of the state folder, written before and after each call.
"""

import codecs
import http.client
import json
import queue
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import jsonschema_rs

from treadle.conformance.host import Job, JobTool

TRANSIENT = {408, 409, 429, 500, 502, 503, 504, 529}
OFFERS = (
    "chat",
    "stream",
    "max_steps",
    "retries",
    "tool_timeout",
    "model_timeout",
    "effects",
    "sessions",
    "cancel",
    "resume",
)
OFFERS += ("approvals", "usage", "result_limit")


class Broken(Exception):
    """The response did not arrive whole."""


class Loop:
    """The loop that is right. A bug overrides one method or one constant."""

    retried: set[int] = TRANSIENT
    has_end = True
    """Whether a run ends at its limit of steps."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.tools = {tool.name: tool for tool in job.tools}
        self.file = Path(job.state) / "history.json"
        saved = json.loads(self.file.read_text()) if self.file.exists() else {}
        self.messages = saved.get("messages", [{"role": "system", "content": job.system}])
        self.started = set(saved.get("started", ()))
        self.waiting = saved.get("waiting", [])
        self.steps = saved.get("steps", 0)
        self.used = {"input_tokens": 0, "output_tokens": 0}

    # --- The loop.

    def run(self) -> dict[str, Any]:
        if self.job.action == "start":
            self.settle_open_calls()
            self.messages.append({"role": "user", "content": self.job.prompt})
            self.steps = 0
        elif self.messages[-1]["role"] == "assistant" and not self.messages[-1].get("tool_calls"):
            return self.ended(self.messages[-1]["content"])
        self.save()
        try:
            return self.go_on()
        except KeyboardInterrupt:
            self.settle_open_calls()
            self.save()
            raise

    def go_on(self) -> dict[str, Any]:
        while True:
            self.execute_open_calls()
            if self.waiting:
                shown = [
                    {"tool": call["function"]["name"], "arguments": json.loads(call["function"]["arguments"])}
                    for call in self.waiting
                ]
                return {"answer": None, "completed": False, "waiting": shown}
            if self.has_end and self.steps >= self.job.max_steps:
                return self.at_the_limit()
            answer = self.response()
            self.steps += 1
            self.take(answer)
            if self.is_final(answer):
                return self.end_of(answer)

    def take(self, answer: SimpleNamespace) -> None:
        message = {"role": "assistant", "content": self.kept_text(answer) or None}
        if answer.calls:
            message["tool_calls"] = answer.calls
        if message["content"] or answer.calls:
            self.messages.append(message)
            self.save()

    def kept_text(self, answer: SimpleNamespace) -> str:
        return answer.text

    def is_final(self, answer: SimpleNamespace) -> bool:
        return not answer.calls

    def end_of(self, answer: SimpleNamespace) -> dict[str, Any]:
        if not answer.text or answer.finish in ("length", "content_filter"):
            return {"answer": answer.text, "completed": False, "reason": f"the response ended as {answer.finish}"}
        return self.ended(answer.text)

    def ended(self, text: str) -> dict[str, Any]:
        return {"answer": text, "completed": True, "usage": self.used}

    def at_the_limit(self) -> dict[str, Any]:
        return {"answer": None, "completed": False, "reason": "the limit of steps is reached"}

    def save(self) -> None:
        if not self.job.keeps_state:
            return
        state = {
            "messages": self.messages,
            "started": sorted(self.started),
            "waiting": self.waiting,
            "steps": self.steps,
        }
        new = self.file.with_suffix(".new")
        new.write_text(json.dumps(state))
        new.replace(self.file)

    # --- Calls.

    def open_calls(self) -> list[dict[str, Any]]:
        """The calls of the last response that have no result."""
        at = max((at for at, one in enumerate(self.messages) if one["role"] == "assistant"), default=-1)
        answered = {one.get("tool_call_id") for one in self.messages[at + 1 :]}
        return (
            [call for call in self.messages[at].get("tool_calls", ()) if call["id"] not in answered] if at >= 0 else []
        )

    def settle_open_calls(self) -> None:
        for call in self.open_calls():
            self.add_result(call, "Error: the call was cancelled; whether it acted is unknown.")
        self.waiting = []

    def execute_open_calls(self) -> None:
        self.waiting = []
        decided = list(self.job.decisions)
        self.job.decisions = []
        results = {}
        calls = self.open_calls()
        for call in calls:
            results[call["id"]] = self.outcome(call, decided)
            self.keep_results(calls, results)
        self.keep_results(calls, results)
        if self.waiting:
            self.save()

    def keep_results(self, calls: list[dict[str, Any]], results: dict[str, str | None]) -> None:
        """Add the results that are known, in the order of the calls, up to the first that waits."""
        for call in calls:
            if call["id"] in results and results[call["id"]] is not None and call in self.open_calls():
                self.add_result(call, results[call["id"]])

    def add_result(self, call: dict[str, Any], text: str) -> None:
        self.messages.append({"role": "tool", "tool_call_id": call["id"], "content": text})
        self.save()

    def outcome(self, call: dict[str, Any], decided: list[dict[str, Any]]) -> str | None:
        """The result of one call; None if it waits for a person."""
        tool = self.tools.get(call["function"]["name"])
        if tool is None:
            return self.of_unknown_tool(call)
        try:
            arguments = self.parsed(call["function"]["arguments"])
            self.check(tool, arguments)
        except (ValueError, RecursionError) as exc:
            return self.of_invalid_arguments(exc)
        if call["id"] in self.started:
            return self.of_crashed_call(tool, arguments)
        if tool.needs_approval and not (answer := self.consent(tool, arguments, decided)):
            if answer is None:
                self.waiting.append(call)
                return None
            return "Error: the person denied the call."
        self.started.add(call["id"])
        self.save()
        return self.executed(tool, arguments)

    def of_unknown_tool(self, call: dict[str, Any]) -> str:
        return f"Error: there is no tool {call['function']['name']!r}."

    def of_invalid_arguments(self, exc: Exception) -> str:
        return f"Error: the arguments are invalid: {exc}"[:2000]

    def of_crashed_call(self, tool: JobTool, arguments: dict[str, Any]) -> str:
        if tool.effect == "read":
            return self.executed(tool, arguments)
        return "Error: the process died during the call; whether it acted is unknown."

    def consent(self, tool: JobTool, arguments: dict[str, Any], decided: list[dict[str, Any]]) -> bool | None:
        for one in decided:
            if one["tool"] == tool.name and one["arguments"] == arguments:
                decided.remove(one)
                return one["allow"]
        return None

    def parsed(self, text: str) -> dict[str, Any]:
        if not text:
            return {}
        return json.loads(text, object_pairs_hook=no_duplicates, parse_constant=no_constant)

    def check(self, tool: JobTool, arguments: Any) -> None:
        if not isinstance(arguments, dict):
            raise ValueError("they must be an object")
        jsonschema_rs.validate(tool.parameters, arguments)

    def executed(self, tool: JobTool, arguments: dict[str, Any]) -> str:
        try:
            return self.shown(self.within_time(tool, arguments))
        except TimeoutError as exc:
            return f"Error: timed out; whether the call acted is unknown. {exc}"
        except (Exception, SystemExit) as exc:  # noqa: BLE001 - whatever a tool raises is its result
            return self.of_failed_tool(tool, arguments, exc)

    def of_failed_tool(self, tool: JobTool, arguments: dict[str, Any], exc: BaseException) -> str:
        return f"Error: {type(exc).__name__}: {exc}"

    def within_time(self, tool: JobTool, arguments: dict[str, Any]) -> Any:
        ended: queue.Queue[Any] = queue.Queue()

        def work() -> None:
            try:
                ended.put((True, tool.run(arguments)))
            except BaseException as exc:  # noqa: BLE001 - raised again where the call is awaited
                ended.put((False, exc))

        threading.Thread(target=work, daemon=True).start()
        try:
            is_done, value = ended.get(timeout=self.job.tool_timeout)
        except queue.Empty:
            raise TimeoutError(f"It took over {self.job.tool_timeout} s.") from None
        if not is_done:
            raise value
        return value

    def shown(self, value: Any) -> str:
        text = value if isinstance(value, str) else json.dumps(value, allow_nan=False)
        limit = self.job.max_result_chars
        text = text if limit is None or len(text) <= limit else text[:limit] + " (shortened)"
        return text.encode("utf-8", "replace").decode()

    # --- The provider.

    def response(self) -> SimpleNamespace:
        for attempt in range(self.job.max_attempts):
            try:
                status, answer = self.ask()
            except (OSError, http.client.HTTPException, ValueError, KeyError, Broken) as exc:
                error: str = f"{type(exc).__name__}: {exc}"
                is_last = False
            else:
                if status == 200:
                    return answer
                error, is_last = answer, not self.is_transient(status, answer)
            if is_last:
                break
            time.sleep(0.001 * 2**attempt)  # sleep: the pause between attempts that every client makes
        raise RuntimeError(f"the provider cannot be asked: {error}")

    def is_transient(self, status: int, error: str) -> bool:
        return status in self.retried and "insufficient_quota" not in error

    def ask(self) -> tuple[int, Any]:
        address = urlsplit(self.job.base_url)
        connection = http.client.HTTPConnection(address.hostname, address.port, timeout=self.job.model_timeout)
        body: dict[str, Any] = {
            "model": self.job.model,
            "messages": self.told(),
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if self.tools:
            body["tools"] = [
                {
                    "type": "function",
                    "function": {"name": tool.name, "description": tool.description, "parameters": tool.parameters},
                }
                for tool in self.tools.values()
            ]
        headers = {"authorization": f"Bearer {self.job.api_key}", "content-type": "application/json"}
        connection.request("POST", f"{address.path}/chat/completions", json.dumps(body), headers)
        response = connection.getresponse()
        if response.status != 200:
            return response.status, response.read().decode(errors="replace")
        answer = self.assembled(self.events(response))
        connection.close()
        return 200, answer

    def told(self) -> list[dict[str, Any]]:
        return self.messages

    def events(self, response: http.client.HTTPResponse) -> Any:
        decode = self.decoder()
        text = ""
        while content := response.read1(65_536):
            text += decode(content)
            *lines, text = text.replace("\r\n", "\n").split("\n")
            for line in lines:
                if line.startswith("data:"):
                    yield line[5:].strip()

    def decoder(self) -> Any:
        return codecs.getincrementaldecoder("utf-8")().decode

    def assembled(self, events: Any) -> SimpleNamespace:
        """Put one response together from its events."""
        answer = SimpleNamespace(text="", calls=[], finish=None)
        pieces: dict[Any, dict[str, Any]] = {}
        for event in events:
            if event == "[DONE]":
                break
            chunk = json.loads(event)
            if "error" in chunk:
                raise Broken(str(chunk["error"]))
            if chunk.get("usage"):
                self.count(chunk["usage"])
            for choice in chunk["choices"]:
                answer.text += choice["delta"].get("content") or ""
                answer.finish = choice["finish_reason"] or answer.finish
                for delta in choice["delta"].get("tool_calls") or ():
                    self.piece(pieces, delta)
        self.check_end(answer)
        if answer.finish == "length":
            pieces = {}
        answer.calls = self.told_once([self.as_call(one, number) for number, one in enumerate(pieces.values())])
        return answer

    def piece(self, pieces: dict[Any, dict[str, Any]], delta: dict[str, Any]) -> None:
        """Add one piece to the call at its index. Another id at the same index begins another call."""
        at = [key for key in pieces if key[0] == delta["index"]]
        key = at[-1] if at else (delta["index"], 0)
        if at and delta.get("id") and pieces[key]["id"] not in (None, delta["id"]):
            key = (delta["index"], len(at))
        call = pieces.setdefault(key, {"id": None, "name": "", "arguments": ""})
        call["id"] = delta.get("id") or call["id"]
        self.name_piece(call, delta["function"].get("name") or "")
        call["arguments"] += delta["function"].get("arguments") or ""

    def name_piece(self, call: dict[str, Any], name: str) -> None:
        call["name"] = name or call["name"]

    def as_call(self, piece: dict[str, Any], number: int) -> dict[str, Any]:
        call_id = piece["id"] or f"made_{len(self.messages)}_{number}"
        return {
            "id": call_id,
            "type": "function",
            "function": {"name": piece["name"], "arguments": piece["arguments"] or "{}"},
        }

    def told_once(self, calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Leave out a call that came twice, and give an id of its own to one that shares it, also with an earlier response."""
        kept: list[dict[str, Any]] = []
        used = {call["id"] for message in self.messages for call in message.get("tool_calls", ())}
        for call in calls:
            if call in kept:
                continue
            is_taken = call["id"] in used | {one["id"] for one in kept}
            call_id = f"{call['id']}_{len(self.messages)}_{len(kept)}" if is_taken else call["id"]
            kept.append({**call, "id": call_id})
        return kept

    def check_end(self, answer: SimpleNamespace) -> None:
        if answer.finish is None:
            raise Broken("the response has no end")

    def count(self, usage: dict[str, Any]) -> None:
        self.used["input_tokens"] += usage["prompt_tokens"]
        self.used["output_tokens"] += usage["completion_tokens"]


def no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a key occurs twice")
    return dict(pairs)


def no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


class Renaming(Loop):
    """It is right too: it gives each call an id of its own, as libraries do that serve many vendors."""

    def as_call(self, piece: dict[str, Any], number: int) -> dict[str, Any]:
        return super().as_call({**piece, "id": piece["id"] and f"own_{len(self.messages)}_{piece['id']}"}, number)


class Texting(Loop):
    """It is right too: it tells the model calls and results as texts."""

    def told(self) -> list[dict[str, Any]]:
        return [
            {"role": "user", "content": f"Result: {one['content']}"}
            if one["role"] == "tool"
            else {"role": one["role"], "content": one["content"] or str(one["tool_calls"])}
            for one in self.messages
        ]


def adapter_of(kind: type[Loop]) -> Any:
    def adapter(job: Job) -> dict[str, Any]:
        return kind(job).run()

    adapter.name = kind.__name__
    adapter.offers = OFFERS
    return adapter


right = adapter_of(Loop)
renaming = adapter_of(Renaming)
texting = adapter_of(Texting)
FORMED = ("-contents/forged-roles", "-parallel/three", "-parallel/fifty", "-parallel/steps")
"""What is about the form in which a dialect tells calls and results."""
texting.offers = (*OFFERS, "texts", "-histories", *FORMED)
