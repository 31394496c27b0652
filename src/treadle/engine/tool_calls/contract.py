"""Contract: what a tool returned, held to what it promised, and made the call's result within its bounds. Calls no tool."""

import base64
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec

from treadle.canonical import artifact_id, copied, find_unencodable
from treadle.concurrency.threads import Threads
from treadle.concurrency.turns import Keep, LettingGo, in_turns
from treadle.engine.rules.bounds import bound, bound_encoded
from treadle.engine.rules.failures import describe
from treadle.errors import Rejected, shown
from treadle.events import ContractViolated
from treadle.messages import Media
from treadle.redaction import without_known
from treadle.sessions.ledger import Ledger
from treadle.tooling.toolbox import Contracts, Plain
from treadle.tools import CallStatus, CheckedCall, JsonObject, ToolOutput, ToolResult, Unfinished
from treadle.tools.results import failed_result

__all__ = ["Contract"]

_threads = Threads()
_ATOMS = (str, int, float, type(None))
_MANY_BYTES = 1024 * 1024
_SLICE_CHARS = 1024 * 1024
_SLICE_BYTES = 3 * 256 * 1024
"""Bytes that are written as text without a pause: a multiple of three, so that the texts of slices are one text."""
_MAX_RESULT_BYTES = 200_000_000
_MANY_VALUES = 25_000


class Contract:
    """Makes the results of one run's calls from what their tools returned.

    Large values are looked at in slices, so that they do not hold the event loop.

    Args:
        max_chars: Characters of a result that the model is shown; None for no limit.
    """

    def __init__(self, *, ledger: Ledger, contracts: Contracts, max_chars: int | None) -> None:
        self._ledger = ledger
        self._contracts = contracts
        self._max_chars = max_chars

    async def returned(self, call: CheckedCall, value: Any) -> ToolResult:
        """Return the result of a call whose tool returned a value. Whoever holds that lets go of it then."""
        if issubclass(type(value), _ATOMS):  # not isinstance(), which asks the value itself
            return await self._of_returned(call, value, None)
        with LettingGo() as holding:
            return await self._of_returned(call, value, holding.keep)

    async def _of_returned(self, call: CheckedCall, value: Any, keep: Keep | None) -> ToolResult:
        output, problem = _faces_of(value)
        has_schema = call.tool.output_schema is not None or call.tool.error_schema is not None
        text_from = None if has_schema else _text_from(self.limit(call))  # a schema looks at values
        data, unread = await _data_of(output.data)
        plain = await self._contracts.plain(data, text_from=text_from, keep=keep)
        problem = problem or unread or plain.problem or _fault_of(output)
        if problem is not None:
            row = {"field": "", "constraint": "plain JSON", "value": problem}
            return await self._violated(call, [row], f"It is not JSON: {problem}.", None)
        if violations := await self._contracts.result_violations(call.tool, plain):
            if self._contracts.fits_error_schema(call.tool, plain.data):
                return await self._refused(call, plain, None)
            pieces, _ = await plain.encoded()
            artifact = await self._ledger.journal.put_blob(await _without_keys(await _joined(pieces)))
            shape = self._contracts.shape_mismatch(call.tool, plain.data)
            return await self._violated(call, violations, shape, artifact)
        return await self._ok(call, plain, output)

    async def rejected(self, call: CheckedCall, body: Any, code: str | None) -> ToolResult:
        """Return the result of a call that its service refused: the service's own body, unchanged (F04)."""
        plain = await self._contracts.plain(body, text_from=_text_from(self.limit(call)))
        if plain.problem is not None:
            plain = Plain(data=describe(Rejected(body)))
        return await self._refused(call, plain, code)

    def limit(self, call: CheckedCall) -> int | None:
        """Return how many characters of a call's result the model is shown; None for no limit."""
        ours, own = self._max_chars, call.tool.result_limit
        return min(ours, own) if ours and own else ours or own or None

    async def _ok(self, call: CheckedCall, plain: Plain, output: ToolOutput) -> ToolResult:
        content, artifact = await self._bounded(plain, self.limit(call))
        is_whole = artifact is None
        if output.artifact is not None and is_whole:
            artifact = await self._keep(output.artifact)
            content = _with_artifact(content, artifact_id(artifact))
        return ToolResult(
            call_id=call.id,
            name=call.name,
            status=CallStatus.OK,
            content=content,
            data=plain.data if is_whole else None,
            display=output.display,
            media=tuple(output.media),
            artifact=artifact,
            facts=copied(output.facts) or None,
        )

    async def _bounded(self, plain: Plain, limit: int | None) -> tuple[str, str | None]:
        """Return the text for the model and, where that had to be shortened, the digest of the whole, which is kept."""
        data = plain.data
        if isinstance(data, str):
            if limit is None or len(data) <= limit:
                return data, None
            digest = await self._keep(await _encoded(data))
            return bound(data, data, limit, artifact=artifact_id(digest))[0], digest
        pieces, chars = await plain.encoded()
        whole = await _joined(pieces)
        if limit is not None and plain.is_heavy and chars > limit:
            digest = await self._keep(whole)
            return bound_encoded(data, pieces, limit, total_chars=chars, artifact=artifact_id(digest)), digest
        text = whole.decode()
        if limit is None or len(text) <= limit:
            return text, None
        digest = await self._keep(whole)
        return bound(data, text, limit, artifact=artifact_id(digest))[0], digest

    async def _keep(self, whole: bytes) -> str:
        """Keep what the model is shown a part of, and return its digest."""
        return await self._ledger.journal.put_blob(await _without_keys(whole))

    async def reshaped(self, call: CheckedCall, result: ToolResult) -> ToolResult:
        """Return a result as an interceptor has changed it, within its bounds."""
        limit, content = self.limit(call), result.content
        if limit is None or len(content) <= limit:
            return result
        digest = await self._keep(await _encoded(content))
        content, _ = bound(content, content, limit, artifact=artifact_id(digest))
        return msgspec.structs.replace(result, content=content, artifact=digest)

    async def _refused(self, call: CheckedCall, plain: Plain, code: str | None) -> ToolResult:
        message = f"{call.name} refused the call: see `details`. It was not retried."
        reported, artifact = await self._failure_details(call, plain)
        result = failed_result(call, CallStatus.REJECTED, message, code=code, details=[reported])
        return await self._shortened(call, result, reported, artifact)

    async def unfinished(self, call: CheckedCall, error: Unfinished) -> ToolResult:
        """Return the result of a call that ended without a value, and that says itself what happened to it."""
        plain = await self._contracts.plain(error.body, text_from=_text_from(self.limit(call)))
        reported, artifact = (None, None) if plain.problem is not None else await self._failure_details(call, plain)
        acted = error.may_have_acted
        result = failed_result(
            call,
            error.status,
            error.message,
            code=error.code,
            details=[] if reported is None else [reported],
            extra={"may_have_acted": acted},
            may_have_acted=acted,
        )
        return await self._shortened(call, result, reported, artifact)

    async def _failure_details(self, call: CheckedCall, plain: Plain) -> tuple[Any, str | None]:
        """Return what a failed call has to say, cut where it is heavy, and the digest of the whole then."""
        limit = self.limit(call)
        if limit is None or not plain.is_heavy:
            return plain.data, None
        content, digest = await self._bounded(plain, limit // 2)
        return (plain.data, None) if digest is None else (content, digest)

    async def _shortened(self, call: CheckedCall, result: ToolResult, reported: Any, digest: str | None) -> ToolResult:
        """Return a failed call's result within its bounds.

        Args:
            digest: Of the whole of what it has to say, where that is kept already.
        """
        limit, whole = self.limit(call), result.content
        is_long = limit is not None and len(whole) > limit
        if is_long and digest is None:
            digest = await self._keep(await _encoded(whole))
        named = None if digest is None else artifact_id(digest)
        content, _ = bound(msgspec.json.decode(whole), whole, limit, artifact=named)
        return msgspec.structs.replace(result, content=content, data=None if is_long else reported, artifact=digest)

    async def _violated(
        self, call: CheckedCall, violations: list[JsonObject], shape: str, artifact: str | None
    ) -> ToolResult:
        """The tool broke its own contract: the raw value is kept for operators, hidden from the model (F06)."""
        message = f"{call.name} ran, but its result has an unexpected shape and was withheld. {shape}"
        reported = [{"field": row.get("field", ""), "constraint": row.get("constraint", "")} for row in violations]
        await self._ledger.record(
            ContractViolated(call_id=call.id, tool=call.name, details=tuple(violations), artifact=artifact)
        )
        acted = not call.effect.is_read
        result = failed_result(
            call,
            CallStatus.UNEXPECTED_RESULT_SHAPE,
            message,
            details=reported,
            may_have_acted=acted,
            extra={"may_have_acted": acted},
        )
        return msgspec.structs.replace(result, artifact=artifact)


def _with_artifact(content: str, name: str) -> str:
    """Name the artifact that a tool has given beside its value."""
    if content.startswith("{"):
        with suppress(msgspec.DecodeError):  # else it is text that only begins like an object
            return msgspec.json.encode({**msgspec.json.decode(content), "artifact": name}).decode()
    return f"{content}\n[The whole is the artifact {name}.]"


def _text_from(limit: int | None) -> int | None:
    """Return how many values a result must hold that is surely longer than the limit: each is two characters at least."""
    return None if limit is None else max(limit // 2 + 2, _MANY_VALUES)


async def _without_keys(content: bytes) -> bytes:
    return await _joined(await in_turns(without_known(content)))


async def _encoded(text: str) -> bytes:
    starts = range(0, len(text), _SLICE_CHARS)
    return await _joined(await in_turns(text[start : start + _SLICE_CHARS].encode() for start in starts))


async def _joined(pieces: Sequence[bytes]) -> bytes:
    """Join bytes: many of them in a thread, where Python lets others continue meanwhile."""
    if sum(map(len, pieces)) < _MANY_BYTES:
        return b"".join(pieces)
    whole: bytes = await _threads.submit(partial(b"".join, pieces))
    return whole


# --- the faces of what a tool returned: data, media, words for people


def _faces_of(value: Any) -> tuple[ToolOutput, str | None]:
    """Give every value its faces: bytes become an object that holds them whole and says their size (M11).

    Returns:
        The faces, and why they cannot be read, or None. Never raises: looking at a stranger's object may raise anything.
    """
    try:
        return _output_of(value), None
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - as said above
        return ToolOutput(), f"$ cannot be read ({type(error).__name__})"


def _output_of(value: Any) -> ToolOutput:
    match value:
        case ToolOutput():
            return value
        case Media():
            return ToolOutput(data={"media_type": value.media_type, "name": value.name}, media=(value,))
        case _:
            return ToolOutput(data=value)


async def _data_of(value: Any) -> tuple[Any, str | None]:
    """Return what a value is as data, and why it cannot be read, or None: bytes are an object that holds them whole as text."""
    if not issubclass(type(value), (bytes, bytearray, memoryview)):
        return value, None
    try:
        view = memoryview(value)
        if view.nbytes > _MAX_RESULT_BYTES:
            return None, f"$ has more than {_MAX_RESULT_BYTES} bytes: store them, and return where they are"
        content = view.cast("B") if view.c_contiguous else memoryview(view.tobytes())
    except (TypeError, ValueError, BufferError) as error:  # such as a view that has been released
        return None, f"$ cannot be read ({type(error).__name__})"
    starts = range(0, len(content), _SLICE_BYTES)
    pieces = await in_turns(base64.b64encode(content[start : start + _SLICE_BYTES]) for start in starts)
    return {"base64": (await _joined(pieces)).decode(), "size": len(content)}, None


def _fault_of(output: ToolOutput) -> str | None:
    """Say what is wrong with the faces beside the data, or None. A journal must be able to read them again."""
    if output.facts is not None and (fault := _fault_in_facts(output.facts)) is not None:
        return f"facts must be a JSON object: {fault}"
    artifact: object = output.artifact  # a stranger's
    if artifact is not None and not isinstance(artifact, bytes):
        return f"artifact must be bytes: got {shown(artifact)}"
    if output.display is None and output.media is _NO_MEDIA:
        return None
    try:
        msgspec.json.decode(msgspec.json.encode((output.display, output.media)), type=_Faces)
    except (msgspec.MsgspecError, TypeError, ValueError, RecursionError) as error:
        return f"display must be text and media a tuple of Media: {error}"
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - strangers' objects may raise anything
        return f"display must be text and media a tuple of Media: they cannot be read ({type(error).__name__})"
    return None


def _fault_in_facts(facts: object) -> str | None:
    if not isinstance(facts, dict):
        return f"got {shown(facts)}"
    return find_unencodable(facts)


_NO_MEDIA: tuple[Media, ...] = ()
_Faces = tuple[str | None, tuple[Media, ...]]
