"""Batches: the endpoints of OpenAI and Anthropic that take many requests at once and answer them later. Plays no request itself."""

import itertools
import json
import re
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qs

import msgspec

from treadle.mock.dialects.shared import Refusal, json_bytes
from treadle.tools import JsonObject

__all__ = ["MockBatches", "Play"]

Play = Callable[[str, JsonObject], Awaitable[tuple[int, bytes]]]
"""Answers one request, by the path of its dialect."""

_MOST = {"openai": 50_000, "anthropic": 100_000}
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_ROUTE = re.compile(r".*?/(?P<what>messages/batches|batches|files)(?:/(?P<id>[\w.-]+))?(?:/(?P<part>\w+))?$")
_ENDPOINTS = ("/v1/responses", "/v1/chat/completions")


class _Batch(msgspec.Struct, kw_only=True):
    """A batch, and what is known of it."""

    id: str
    at: float
    requests: list[tuple[str, JsonObject]]
    endpoint: str
    metadata: JsonObject = {}
    file: str = ""
    answers: list[tuple[str, int, bytes]] | None = None
    polls: int = 0


class MockBatches:
    """What was submitted. A batch is under way until it is asked about the second time.

    Args:
        play: Answers each request.
    """

    def __init__(self, play: Play) -> None:
        self._play = play
        self._numbers = itertools.count(1)
        self._files: dict[str, bytes] = {}
        self._batches: dict[str, list[_Batch]] = {"openai": [], "anthropic": []}

    @staticmethod
    def is_own(path: str) -> bool:
        """Whether a path belongs to batches."""
        return _ROUTE.match(path) is not None

    async def reply(self, method: str, path: str, query: str, headers: dict[str, str], body: bytes) -> bytes:
        """Return the body of an answer.

        Raises:
            Refusal: The vendor refuses the request.
        """
        found = _ROUTE.match(path)
        assert found is not None
        what, name, part = found["what"], found["id"], found["part"]
        vendor = "anthropic" if what == "messages/batches" else "openai"
        match (method, what, name, part):
            case ("POST", "files", None, None):
                made = self._upload(headers, body)
            case ("GET", "files", str(), "content") if name in self._files:
                made = self._files[name]
            case ("POST", "batches", None, None):
                made = json_bytes(_openai(self._create_openai(_json(body))))
            case ("POST", "messages/batches", None, None):
                made = json_bytes(_anthropic(self._create_anthropic(_json(body))))
            case ("GET", "batches" | "messages/batches", None, None):
                made = json_bytes(self._listed(vendor, query))
            case ("GET", "batches", str(), None):
                made = json_bytes(_openai(await self._polled(vendor, name), self._files))
            case ("GET", "messages/batches", str(), None):
                made = json_bytes(_anthropic(await self._polled(vendor, name)))
            case ("GET", "messages/batches", str(), "results"):
                made = _results(self._named(vendor, name))
            case _:
                raise Refusal(f"Unknown request URL: {method} {path}.", code="unknown_url", status=404)
        return made

    def _upload(self, headers: dict[str, str], body: bytes) -> bytes:
        boundary = headers.get("content-type", "").partition("boundary=")[2]
        fields = {}
        for piece in body.split(f"--{boundary}".encode())[1:-1]:
            head, _, content = piece.partition(b"\r\n\r\n")
            if field := re.search(rb'name="([^"]*)"', head):
                fields[field[1]] = content.removesuffix(b"\r\n")
        if not boundary or fields.get(b"purpose") != b"batch" or not fields.get(b"file"):
            raise Refusal("Expected multipart form data with `purpose` and `file`.", param="file")
        name = f"file-{next(self._numbers)}"
        self._files[name] = fields[b"file"]
        return json_bytes({"id": name, "object": "file", "purpose": "batch", "bytes": len(fields[b"file"])})

    def _create_openai(self, made: JsonObject) -> _Batch:
        file, endpoint = made.get("input_file_id"), made.get("endpoint")
        if file not in self._files or endpoint not in _ENDPOINTS or made.get("completion_window") != "24h":
            raise Refusal("Invalid batch: it needs `input_file_id`, `endpoint` and the completion window `24h`.")
        requests = []
        for line in self._files[file].splitlines():
            one = _json(line)
            if one.get("method") != "POST" or one.get("url") != endpoint:
                raise Refusal("The URL of each request must be the batch's endpoint.", param="url")
            requests.append((one.get("custom_id"), one.get("body")))
        batch = self._kept("openai", "batch", requests, endpoint)
        batch.metadata, batch.file = made.get("metadata") or {}, file
        return batch

    def _create_anthropic(self, made: JsonObject) -> _Batch:
        requests = made.get("requests")
        if not isinstance(requests, list):
            raise Refusal("requests: Field required")
        pairs = [(one.get("custom_id"), one.get("params")) for one in requests]
        return self._kept("anthropic", "msgbatch", pairs, "/v1/messages")

    def _kept(self, vendor: str, prefix: str, requests: list[tuple[Any, Any]], endpoint: str) -> _Batch:
        names = [name for name, _ in requests]
        if not 0 < len(requests) <= _MOST[vendor] or len(set(names)) < len(names):
            raise Refusal("A batch has 1 to 100,000 requests, each with a `custom_id` of its own.", param="custom_id")
        for name, body in requests:
            if not isinstance(name, str) or not _NAME.fullmatch(name) or not isinstance(body, dict):
                raise Refusal(f"custom_id: {name!r:.80} does not match ^[a-zA-Z0-9_-]{{1,64}}$.", param="custom_id")
            if body.get("stream"):
                raise Refusal("Streaming is not supported in batches.", param="stream")
        batch = _Batch(
            id=f"{prefix}_{next(self._numbers)}", at=datetime.now(UTC).timestamp(), requests=requests, endpoint=endpoint
        )
        self._batches[vendor].insert(0, batch)
        return batch

    def _listed(self, vendor: str, query: str) -> JsonObject:
        asked = parse_qs(query)
        after = next((asked[name][0] for name in ("after", "after_id") if name in asked), None)
        known = self._batches[vendor]
        start = 0 if after is None else next(n for n, one in enumerate(known, 1) if one.id == after)
        limit = int(asked.get("limit", ["20"])[0])
        page = known[start : start + limit]
        shown = _openai if vendor == "openai" else _anthropic
        return {"object": "list", "data": [shown(one) for one in page], "has_more": start + limit < len(known)}

    async def _polled(self, vendor: str, name: str) -> _Batch:
        batch = self._named(vendor, name)
        batch.polls += 1
        if batch.answers is None and batch.polls > 1:
            batch.answers = []
            for own, body in batch.requests:
                batch.answers.append((own, *await self._play(batch.endpoint, body)))
            if vendor == "openai":
                self._store(batch)
        return batch

    def _store(self, batch: _Batch) -> None:
        """Write the files of answers and of errors."""
        for kind, is_good in (("output", True), ("error", False)):
            lines = [
                {
                    "id": f"batch_req_{name}",
                    "custom_id": name,
                    "response": {"status_code": status, "request_id": f"req_{name}", "body": json.loads(answer)},
                    "error": None,
                }
                for name, status, answer in batch.answers or ()
                if (status < 300) == is_good
            ]
            if lines:
                self._files[f"file-{kind}-{batch.id}"] = b"".join(json_bytes(line) + b"\n" for line in lines)

    def _named(self, vendor: str, name: str) -> _Batch:
        for one in self._batches[vendor]:
            if one.id == name:
                return one
        raise Refusal(f"No batch found with id '{name}'.", status=404)


def _json(content: bytes) -> JsonObject:
    try:
        found = json.loads(content)
    except ValueError as error:
        raise Refusal("We could not parse the JSON body of your request.") from error
    if not isinstance(found, dict):
        raise Refusal("The body must be an object.")
    return found


def _openai(batch: _Batch, files: dict[str, bytes] | None = None) -> JsonObject:
    has_ended = batch.answers is not None
    places = {
        f"{kind}_file_id": name
        for kind in ("output", "error")
        if has_ended and (name := f"file-{kind}-{batch.id}") in (files or {})
    }
    return {
        "id": batch.id,
        "object": "batch",
        "endpoint": batch.endpoint,
        "errors": None,
        "input_file_id": batch.file,
        "completion_window": "24h",
        "status": "completed" if has_ended else "in_progress",
        "output_file_id": None,
        "error_file_id": None,
        "created_at": int(batch.at),
        "metadata": batch.metadata,
        **places,
    }


def _anthropic(batch: _Batch) -> JsonObject:
    has_ended = batch.answers is not None
    good = sum(status < 300 for _, status, _ in batch.answers or ())
    counts = {"processing": 0 if has_ended else len(batch.requests), "succeeded": good, "canceled": 0, "expired": 0}
    counts["errored"] = len(batch.answers or ()) - good
    return {
        "id": batch.id,
        "type": "message_batch",
        "processing_status": "ended" if has_ended else "in_progress",
        "request_counts": counts,
        "created_at": datetime.fromtimestamp(batch.at, UTC).isoformat(),
        "results_url": f"/v1/messages/batches/{batch.id}/results" if has_ended else None,
    }


def _results(batch: _Batch) -> bytes:
    if batch.answers is None:
        raise Refusal("The batch has no results yet.", status=404)
    lines = []
    for name, status, answer in batch.answers:
        value = json.loads(answer)
        kept = {"type": "succeeded", "message": value} if status < 300 else {"type": "errored", "error": value}
        lines.append(json_bytes({"custom_id": name, "result": kept}) + b"\n")
    return b"".join(lines)
