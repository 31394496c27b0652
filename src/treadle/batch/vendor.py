"""Vendor: the requests of many tasks as one batch of OpenAI or Anthropic, at half the price. Knows no task and no row.

A file says what was submitted, so that a process that continues finds its batches again and submits none of them twice.
"""

import asyncio
import contextlib
import copy
import fcntl
import hashlib
import os
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import msgspec

from treadle.errors import ConfigurationError, ModelError, ModelRejected, ModelResponseInvalid
from treadle.messages import Usage
from treadle.ports import Clock, HasCapabilities, Model, Pricing, Timer, asked_model, facts_of
from treadle.providers.capable import CapableModel
from treadle.providers.http.answer import Answer, kept_answer
from treadle.providers.http.client import HttpClient
from treadle.providers.http.endpoint import Endpoint
from treadle.providers.http.failures import read_failure
from treadle.providers.http.model import DialectModel
from treadle.redaction import redacted_logger

__all__ = ["VendorBatches", "VendorModel"]

logger = redacted_logger(__name__)

_MOST_REQUESTS = 10_000
"""Requests of one batch: the vendors take more, and a failed batch then costs more."""
_MOST_BYTES = 48 * 1024 * 1024
_MOST_RESULT_BYTES = 1024 * 1024 * 1024
_FIRST_POLL_SECONDS, _LAST_POLL_SECONDS = 0.25, 60.0
_TRIES = 6
"""How often a request about a batch is made before it counts as failed."""
_QUIET_SECONDS = 5.0
"""How long no request comes before those that were gathered are submitted."""
_CLOCK_SECONDS = 600
"""By how much the vendor's clock may be behind ours."""

_UNANSWERED = b'{"error":{"message":"The batch ended without an answer to this request."}}'

_session: ContextVar[str] = ContextVar("_session")


class _Finished(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to one request of a batch."""

    status: int
    body: bytes


class _Lot:
    """Requests that were, or may have been, submitted together."""

    def __init__(self, key: str, at: float, ids: Sequence[str], batch: str | None = None) -> None:
        self.key, self.at, self.batch = key, at, batch
        self.ids = frozenset(ids)
        self.waiting: dict[str, asyncio.Future[_Finished]] = {}
        self.finished: dict[str, _Finished] | None = None
        self.collecting: asyncio.Task[None] | None = None
        self.settling = asyncio.Lock()
        self.is_gone = False
        """Whether it never arrived, or was refused."""


class VendorModel(CapableModel):
    """A model whose requests go into batches, at half its price."""

    def __init__(self, model: Model, batches: "VendorBatches") -> None:
        inner = asked_model(model)
        if not isinstance(inner, DialectModel) or inner.name.partition(":")[0] not in _SERVICES:
            raise ConfigurationError(
                f"Vendor batches need a model of {', '.join(one + ':' for one in _SERVICES)}; got {model.name!r}."
            )
        through = inner.through(_Door(inner.endpoint, inner.name.partition(":")[0], batches))
        own = model.capabilities if isinstance(model, HasCapabilities) else frozenset()
        super().__init__(through, own, facts=facts_of(model))
        self._price = None if model.price is None else _HalfPrice(model.price)

    @property
    def price(self) -> Pricing | None:
        return self._price


class _HalfPrice:
    """What both vendors take for a batch."""

    def __init__(self, price: Pricing) -> None:
        self._price = price

    def cost(self, usage: Usage) -> Decimal:
        return self._price.cost(usage) / 2


class _Door:
    """Where a model asks: in place of its server."""

    def __init__(self, endpoint: Endpoint, dialect: str, batches: "VendorBatches") -> None:
        self.endpoint = endpoint
        self._service = _SERVICES[dialect](endpoint)
        self._batches = batches

    async def ask(self, body: bytes) -> Answer:
        """Return the answer to a request once its batch has ended.

        Raises:
            ModelError: It has none.
        """
        found = await self._batches.ask(self._service, body)
        answer = kept_answer(self.endpoint, found.status, found.body)
        if 200 <= found.status < 300:
            return answer
        with contextlib.closing(answer):
            raise await read_failure(answer, key_advice="Check the API key.")


class VendorBatches:
    """Collects requests. Submits them once every task under way waits for the model, or no further one has come for some seconds.

    Args:
        path: Where is written what was submitted. One process at a time has it.
        count_running: Returns how many tasks are under way.
        clock: Says when some seconds have passed.
    """

    def __init__(self, path: Path, count_running: Callable[[], int], clock: Clock) -> None:
        self._path = path
        self._count_running = count_running
        self._clock = clock
        self._timer: Timer | None = None
        self._waiting: set[_Lot] = set()
        self._lots: dict[str, _Lot] = {}  # by the id of a request
        self._gathered: dict[str, tuple[dict[str, Any], asyncio.Future[_Finished]]] = {}
        self._served = set[str]()
        self._tasks: set[asyncio.Task[None]] = set()
        self._service: _Service | None = None
        self._file: BinaryIO | None = None

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Take the file. What is under way here ends at the close; the batches continue at the vendor."""
        try:
            self._file = self._path.open("a+b")
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise ConfigurationError(f"{str(self._path)!r} cannot be written: {error.strerror}.") from error
        try:
            self._read()
            yield
        finally:
            if self._timer is not None:
                self._timer.cancel()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            self._file.close()

    @staticmethod
    def ask_for(session_id: str) -> None:
        """Say for which session this asyncio task makes its requests from now on."""
        _session.set(session_id)

    async def ask(self, service: "_Service", body: bytes) -> _Finished:
        """Return the answer to a request.

        Raises:
            ModelError: It has none.
        """
        self._service = service
        fields = msgspec.json.decode(body)
        fields.pop("stream", None)
        fields.pop("stream_options", None)
        name = self._name(fields)
        if name in self._served:  # what it was answered with was of no use
            self._served.discard(name)
            del self._lots[name]
        while (lot := self._lots.get(name)) is not None and lot.batch is None:
            await self._settle(lot)
        future: asyncio.Future[_Finished] = asyncio.get_running_loop().create_future()
        if lot is None:
            self._gathered[name] = fields, future
        else:
            lot.waiting[name] = future
            self._waiting.add(lot)
            self._deliver(lot)
        self._wind()
        self.look()
        found = await future
        if 200 <= found.status < 300:
            self._served.add(name)
        else:
            self._write({"failed": name})
            del self._lots[name]
        return found

    def _wind(self) -> None:
        """Submit what was gathered in some seconds: a task may wait for something else than the model, such as a tool or a budget."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._clock.call_later(_QUIET_SECONDS, self._submit_gathered)

    def look(self) -> None:
        """Submit what was gathered, if no other request can come before an answer does."""
        running = self._count_running()
        if len(self._gathered) + sum(len(lot.waiting) for lot in self._waiting) < running:
            return
        waiting = sum(not one.done() for lot in self._waiting for one in lot.waiting.values())
        if sum(not one[1].done() for one in self._gathered.values()) + waiting >= running:
            self._submit_gathered()

    def _submit_gathered(self) -> None:
        gathered = {name: one for name, one in self._gathered.items() if not one[1].done()}
        self._gathered = {}
        for ids in _parted(gathered):
            lot = _Lot(os.urandom(8).hex(), time.time(), ids)
            lot.waiting = {name: gathered[name][1] for name in ids}
            self._waiting.add(lot)
            self._lots |= dict.fromkeys(ids, lot)
            self._start(self._submit(lot, {name: gathered[name][0] for name in ids}), lot)

    def _name(self, fields: Mapping[str, Any]) -> str:
        """Return what names a request in every process: its session, and its place in the conversation."""
        messages = fields.get("messages", fields.get("input", ()))
        place = f"{_session.get('')}/{len(messages)}"
        while (name := "t" + hashlib.sha256(place.encode()).hexdigest()[:40]) in self._gathered or (
            (lot := self._lots.get(name)) is not None and name in lot.waiting
        ):
            place += "+"  # an agent of the same session asks at the same time
        return name

    def _start(self, work: Any, lot: _Lot) -> asyncio.Task[None]:  # Any: a coroutine
        task: asyncio.Task[None] = asyncio.create_task(self._guarded(work, lot))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _guarded(self, work: Any, lot: _Lot) -> None:  # Any: as above
        """Tell those who wait if it fails."""
        try:
            await work
        except Exception as error:  # noqa: BLE001 - each of those who wait raises it
            waiting, lot.waiting, lot.collecting = lot.waiting, {}, None
            self._waiting.discard(lot)
            if isinstance(error, ModelRejected):
                self._forget(lot)
            for future in waiting.values():
                if not future.done():
                    future.set_exception(_again(error))

    # --- One lot: submitted, found again, collected.

    async def _submit(self, lot: _Lot, requests: Mapping[str, dict[str, Any]]) -> None:
        assert self._service is not None
        self._write({"lot": lot.key, "at": lot.at, "requests": sorted(lot.ids)})
        for tries_left in reversed(range(_TRIES)):
            try:
                batch = await self._service.submit(lot.key, requests)
            except ModelRejected:
                raise
            except ModelError as error:
                await asyncio.sleep(error.retry_after_seconds or 2.0 ** (_TRIES - tries_left))
                found = await self._found(lot)  # it may have arrived, or not
                if found is None and not tries_left:
                    self._forget(lot)
                    raise
                if found is None:
                    continue
                batch = found
            self._take(lot, batch)
            self._deliver(lot)
            return

    async def _settle(self, lot: _Lot) -> None:
        """Find out whether a lot has arrived that was being submitted when the process died."""
        async with lot.settling:
            if lot.batch is not None or lot.is_gone:
                return
            if lot.waiting:  # it is being submitted here
                await asyncio.sleep(_FIRST_POLL_SECONDS)
                return
            if (batch := await self._found(lot)) is None:
                self._forget(lot)
            else:
                self._take(lot, batch)

    async def _found(self, lot: _Lot) -> str | None:
        """Return the vendor's batch of a lot; None if the lot never arrived."""
        assert self._service is not None
        taken = {one.batch for one in self._lots.values()}
        since = lot.at - _CLOCK_SECONDS
        found: str | None = await self._patiently(lambda service: service.find(lot.key, since, lot.ids, taken))
        return found

    def _take(self, lot: _Lot, batch: str) -> None:
        self._write({"lot": lot.key, "batch": batch})
        lot.batch = batch

    def _forget(self, lot: _Lot) -> None:
        self._write({"lot": lot.key, "batch": ""})
        self._drop(lot)

    def _drop(self, lot: _Lot) -> None:
        lot.is_gone = True
        self._lots = {name: one for name, one in self._lots.items() if one is not lot}

    def _deliver(self, lot: _Lot) -> None:
        """Give those who wait what has come; ask for it if nothing has."""
        if lot.finished is None:
            if lot.collecting is None:
                lot.collecting = self._start(self._collect(lot), lot)
            return
        waiting, lot.waiting = lot.waiting, {}
        self._waiting.discard(lot)
        for name, future in waiting.items():
            found = lot.finished.pop(name, None)
            if future.done():
                continue
            future.set_result(found or _Finished(status=503, body=_UNANSWERED))

    async def _collect(self, lot: _Lot) -> None:
        pause = _FIRST_POLL_SECONDS
        while (found := await self._patiently(lambda service: service.results(lot.batch or ""))) is None:
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LAST_POLL_SECONDS)
        lot.finished = found
        self._deliver(lot)

    async def _patiently(self, ask: Callable[["_Service"], Any]) -> Any:  # Any: what the request is answered with
        assert self._service is not None
        for tries_left in reversed(range(_TRIES)):
            try:
                return await ask(self._service)
            except ModelError as error:
                if not (error.may_retry and tries_left):
                    raise
                await asyncio.sleep(error.retry_after_seconds or 2.0 ** (_TRIES - tries_left))
        raise AssertionError("unreachable")

    # --- The file: a lot before it is submitted, and its batch afterwards.

    def _read(self) -> None:
        assert self._file is not None
        self._file.seek(0)
        lots: dict[str, _Lot] = {}
        whole = 0
        for line in self._file:
            if not line.endswith(b"\n"):
                break
            whole += len(line)
            found = _object(line)
            if "failed" in found:
                self._lots.pop(found["failed"], None)
            elif "requests" in found:
                lots[found["lot"]] = lot = _Lot(found["lot"], found["at"], found["requests"])
                self._lots |= dict.fromkeys(lot.ids, lot)
            elif found["batch"]:
                lots[found["lot"]].batch = found["batch"]
            else:
                self._drop(lots[found["lot"]])
        self._file.truncate(whole)  # a line that a kill has cut off

    def _write(self, line: Mapping[str, Any]) -> None:
        assert self._file is not None
        self._file.write(msgspec.json.encode(line) + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())


def _parted(gathered: Mapping[str, tuple[dict[str, Any], Any]]) -> Iterator[list[str]]:
    """Yield the names of requests that go into one batch."""
    part, size = list[str](), 0
    for name, (fields, _) in gathered.items():
        own = len(msgspec.json.encode(fields)) + 200
        if part and (len(part) == _MOST_REQUESTS or size + own > _MOST_BYTES):
            yield part
            part, size = [], 0
        part.append(name)
        size += own
    if part:
        yield part


def _again(error: Exception) -> Exception:
    """Return an error of its own for each of those who wait."""
    made = copy.copy(error)
    made.__cause__ = error
    return made


# --- The vendors.


class _Service(Protocol):
    """The batches of one vendor."""

    async def submit(self, key: str, requests: Mapping[str, dict[str, Any]]) -> str:
        """Submit requests, and return the id of their batch."""
        ...

    async def find(self, key: str, since: float, ids: frozenset[str], taken: set[str | None]) -> str | None:
        """Return the batch with these requests among those since a time; None if there is none."""
        ...

    async def results(self, batch: str) -> dict[str, _Finished] | None:
        """Return the answers by the names of requests; None while the batch is under way."""
        ...


class _Http:
    """Requests to a vendor, beside those of the model."""

    def __init__(self, endpoint: Endpoint, steps_up: int) -> None:
        self._endpoint = endpoint
        url = endpoint.url
        for _ in range(steps_up):
            url = url.parent.with_query(url.query)
        self._base = url

    async def json(self, path: str, body: Any = None, **query: str) -> dict[str, Any]:
        answer = await self.bytes(path, None if body is None else msgspec.json.encode(body), query=query)
        return _object(answer)

    async def bytes(
        self, path: str, body: bytes | None = None, *, query: Mapping[str, str] | None = None, kind: str = ""
    ) -> bytes:
        endpoint = copy.copy(self._endpoint)
        query = {**self._base.query, **(query or {})}
        endpoint.url = self._base.joinpath(*path.split("/")).with_query(query or None)
        client = HttpClient()  # of its own: on a kept connection a request may go out twice
        try:
            answer = await client.send(
                endpoint, body, headers={"Content-Type": kind} if kind else None, max_bytes=_MOST_RESULT_BYTES
            )
            with contextlib.closing(answer):
                if 200 <= answer.status < 300:
                    return await answer.read_rest()
                raise await read_failure(answer, key_advice="Check the API key.")
        finally:
            await client.close()

    async def listed(self, path: str, after: str) -> AsyncIterator[dict[str, Any]]:
        """Yield the objects of a list, the newest first."""
        query = {"limit": "100"}
        while True:
            page = await self.json(path, **query)
            for one in page["data"]:
                yield one
            if not page.get("has_more") or not page["data"]:
                return
            query[after] = page["data"][-1]["id"]


class _OpenAI:
    def __init__(self, endpoint: Endpoint, path: str) -> None:
        self._path = path
        self._http = _Http(endpoint, path.count("/"))

    async def submit(self, key: str, requests: Mapping[str, dict[str, Any]]) -> str:
        url = f"/v1{self._path}"
        lines = [{"custom_id": name, "method": "POST", "url": url, "body": body} for name, body in requests.items()]
        file = await self._http.bytes(
            "files",
            _form(key, b"".join(msgspec.json.encode(line) + b"\n" for line in lines)),
            kind=f"multipart/form-data; boundary={key}",
        )
        made = await self._http.json(
            "batches",
            {
                "input_file_id": _object(file)["id"],
                "endpoint": url,
                "completion_window": "24h",
                "metadata": {"treadle": key},
            },
        )
        return _id(made)

    async def find(self, key: str, since: float, ids: frozenset[str], taken: set[str | None]) -> str | None:
        async for one in self._http.listed("batches", "after"):
            if one["created_at"] < since:
                return None
            if (one.get("metadata") or {}).get("treadle") == key:
                return _id(one)
        return None

    async def results(self, batch: str) -> dict[str, _Finished] | None:
        state = await self._http.json(f"batches/{batch}")
        if state["status"] == "failed":
            said = "; ".join(str(one.get("message")) for one in (state.get("errors") or {}).get("data", ()))
            raise ModelRejected(f"The vendor refused the batch: {said}")
        if state["status"] not in ("completed", "expired", "cancelled"):
            return None
        found: dict[str, _Finished] = {}
        for place in ("output_file_id", "error_file_id"):
            if state.get(place):
                for line in _lines(await self._http.bytes(f"files/{state[place]}/content")):
                    if (answer := line.get("response")) is not None:
                        found[line["custom_id"]] = _Finished(
                            status=answer["status_code"], body=msgspec.json.encode(answer["body"])
                        )
        return found


class _Anthropic:
    def __init__(self, endpoint: Endpoint) -> None:
        self._http = _Http(endpoint, 0)

    async def submit(self, key: str, requests: Mapping[str, dict[str, Any]]) -> str:
        made = [{"custom_id": name, "params": fields} for name, fields in requests.items()]
        return _id(await self._http.json("batches", {"requests": made}))

    async def find(self, key: str, since: float, ids: frozenset[str], taken: set[str | None]) -> str | None:
        """The vendor keeps no note of ours, so the results of each batch that may be it tell."""
        async for one in self._http.listed("batches", "after_id"):
            if _seconds(one["created_at"]) < since:
                return None
            if _id(one) in taken or sum(one["request_counts"].values()) != len(ids):
                continue
            pause = _FIRST_POLL_SECONDS
            while (found := await self.results(_id(one))) is None:
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LAST_POLL_SECONDS)
            if not ids.isdisjoint(found):
                return _id(one)
        return None

    async def results(self, batch: str) -> dict[str, _Finished] | None:
        state = await self._http.json(f"batches/{batch}")
        if state["processing_status"] != "ended":
            return None
        found: dict[str, _Finished] = {}
        for line in _lines(await self._http.bytes(f"batches/{batch}/results")):
            result = line["result"]
            if result["type"] == "succeeded":
                found[line["custom_id"]] = _Finished(status=200, body=msgspec.json.encode(result["message"]))
            elif result["type"] == "errored":
                error = result["error"]
                kind = error.get("error", error).get("type", "")
                found[line["custom_id"]] = _Finished(status=_STATUSES.get(kind, 500), body=msgspec.json.encode(error))
            else:  # expired or canceled: another attempt may help
                found[line["custom_id"]] = _Finished(
                    status=503, body=msgspec.json.encode({"error": {"message": f"The request was {result['type']}."}})
                )
        return found


_STATUSES = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "timeout_error": 504,
    "overloaded_error": 529,
}

_SERVICES: dict[str, Callable[[Endpoint], _Service]] = {
    "openai": lambda endpoint: _OpenAI(endpoint, "/responses"),
    "openai-chat": lambda endpoint: _OpenAI(endpoint, "/chat/completions"),
    "anthropic": _Anthropic,
}


def _form(key: str, content: bytes) -> bytes:
    """Return a file to upload, as HTML forms send one."""
    head = (
        f'--{key}\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
        f'--{key}\r\nContent-Disposition: form-data; name="file"; filename="{key}.jsonl"\r\n'
        "Content-Type: application/jsonl\r\n\r\n"
    )
    return head.encode() + content + f"\r\n--{key}--\r\n".encode()


def _lines(content: bytes) -> Iterator[dict[str, Any]]:
    return (_object(line) for line in content.splitlines() if line.strip())


def _object(content: bytes) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ModelResponseInvalid(f"The vendor's answer about a batch is not JSON: {error}.") from error
    if not isinstance(found, dict):
        raise ModelResponseInvalid("The vendor's answer about a batch is not an object.")
    return found


def _id(batch: Mapping[str, Any]) -> str:
    found = batch.get("id")
    if not isinstance(found, str) or not re.fullmatch(r"[\w.-]{1,200}", found):
        raise ModelResponseInvalid("The vendor's answer about a batch has no id.")
    return found


def _seconds(text: str) -> float:
    return msgspec.convert(text, datetime).timestamp()
