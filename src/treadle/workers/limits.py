"""Limits over all workers that share a journal: on sessions side by side, and on requests and tokens a minute.

A session under way holds a place: a lease in the journal, which ends with its worker. Requests and tokens are counted in the
journal too, under a lease that is held for a moment. Nothing here knows a queue or runs a session.
"""

import asyncio
import hashlib
from collections import Counter
from collections.abc import AsyncIterator, Collection, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from contextvars import ContextVar
from typing import Any, Literal

import msgspec

from treadle.errors import ConfigurationError, JournalError, ModelError, shown
from treadle.fields import Documented, NamedOptions
from treadle.ports import Clock, Journal, Lease, Model, ModelEnd, ModelPart, ModelRequest
from treadle.redaction import redacted_logger
from treadle.sessions.counting import SharedCounts

__all__ = ["Limit", "LimitReachedNow", "LimitedModel", "Limits", "Subject"]

logger = redacted_logger(__name__)

_MINUTE = 60.0
_SLOT_SECONDS = 5.0
"""Requests are counted in spans of so many seconds: the last minute is the spans that touch it."""
_LONGEST_WAIT_SECONDS = 5.0
"""How long a request waits at most until the count is looked at again."""


class Subject(msgspec.Struct, frozen=True):
    """What a limit may be about."""

    tenant: str = ""
    agent: str = ""
    model: str = ""


_SUBJECT: ContextVar[Subject] = ContextVar("treadle_worker_subject", default=Subject())  # noqa: B039 - it is frozen


class Limit(msgspec.Struct, Documented, frozen=True, kw_only=True, metaclass=NamedOptions):
    """A limit that all workers of a journal share by its name. All fields that are set apply.

    Example:
        Limit(name="openai key 1", requests_per_minute=500, models=["openai:*"])
        Limit(name="fair", sessions=20, each="tenant")
    """

    name: str
    """The name by which workers share it, such as the name of a provider's key."""
    sessions: int | None = None
    """How many sessions may run in parallel."""
    requests_per_minute: int | None = None
    """How many requests to a model may begin in any 60 seconds."""
    tokens_per_minute: int | None = None
    """How many tokens, of requests and answers, may be counted in 60 seconds before the next request begins. Running requests may exceed it."""
    each: Literal["", "tenant", "agent", "model"] = ""
    """Whether each tenant, agent or model has this limit for itself; empty if all share it."""
    tenants: Collection[str] | None = None
    """Only sessions of these tenants; None for all."""
    agents: Collection[str] | None = None
    """Only sessions of these agents; None for all."""
    models: Collection[str] | None = None
    """Only these models, by name; a name that ends with `*` is a prefix. None for all."""


class LimitReachedNow(Exception):
    """A session cannot begin or continue now, because a limit is reached. The message says which."""


class _Counts(msgspec.Struct):
    """What was counted, by spans of time."""

    requests: dict[int, int] = {}
    tokens: dict[int, int] = {}
    until: float = 0.0
    """When the provider that said that there are too many requests may be asked again, in seconds since 1970."""

    def wait(self, limit: Limit, now: float) -> float:
        """Return for how many seconds no request may begin; 0 for none."""
        span = int(now // _SLOT_SECONDS)
        oldest = span - int(_MINUTE // _SLOT_SECONDS)
        for counted in (self.requests, self.tokens):
            for past in [one for one in counted if one < oldest]:
                del counted[past]
        is_full = False
        for counted, most in ((self.requests, limit.requests_per_minute), (self.tokens, limit.tokens_per_minute)):
            is_full = is_full or (most is not None and sum(counted.values()) >= most)
        first = min([*self.requests, *self.tokens], default=span)
        free_at = (first + 1) * _SLOT_SECONDS + _MINUTE if is_full else 0.0
        return max(0.0, self.until - now, free_at - now)


class Limits:
    """The limits of one worker, counted with those of all others in the journal."""

    def __init__(self, journal: Journal, limits: Iterable[Limit], clock: Clock) -> None:
        self._limits = tuple(limits)
        self._shared = SharedCounts(journal, clock, "limit", _Counts)
        self.waiting: Counter[str] = Counter()
        """How many sessions and requests wait here, by reason."""

    # --- sessions side by side

    @asynccontextmanager
    async def place(self, subject: Subject) -> AsyncIterator[None]:
        """Hold a place of every limit on sessions that holds for a session. Raises LimitReachedNow: one has no place left."""
        token = _SUBJECT.set(subject)
        try:
            async with AsyncExitStack() as stack:
                for limit in self._limits:
                    if limit.sessions is not None and _holds_for(limit, subject):
                        lease = await self._free_place(f"{_id_for(limit, subject)}/", limit.sessions)
                        if lease is None:
                            raise LimitReachedNow(_reason(limit, subject))
                        stack.push_async_callback(lease.release)
                yield
        finally:
            _SUBJECT.reset(token)

    async def _free_place(self, prefix: str, count: int) -> Lease | None:
        for n in range(count):
            lease = await self._shared.taken(f"{prefix}{n}")
            if lease is not None:
                return lease
        return None

    # --- requests and tokens

    def limiting(self, model: Model) -> Model:
        """Return the model, whose requests wait for their turn; the model itself where nothing limits it."""
        is_limited = any(one.requests_per_minute or one.tokens_per_minute for one in self._limits)
        return LimitedModel(model, self) if is_limited else model

    async def admit(self, model: str) -> tuple[Limit, ...]:
        """Wait until a request to a model may begin, and count it. Return the limits that hold for it."""
        subject = msgspec.structs.replace(_SUBJECT.get(), model=model)
        holding = tuple(
            one
            for one in self._limits
            if (one.requests_per_minute or one.tokens_per_minute) and _holds_for(one, subject)
        )
        for limit in holding:
            reason = _reason(limit, subject)
            while (seconds := await self._try(limit, subject)) > 0:
                self.waiting[reason] += 1
                try:
                    await asyncio.sleep(min(seconds, _LONGEST_WAIT_SECONDS))
                finally:
                    self.waiting -= Counter([reason])
        return holding

    async def _try(self, limit: Limit, subject: Subject) -> float:
        """Count one request, or return for how many seconds none may begin."""
        async with self._shared.counting(_id_for(limit, subject)) as (counts, now):
            if (seconds := counts.wait(limit, now)) > 0:
                return seconds
            span = int(now // _SLOT_SECONDS)
            counts.requests[span] = counts.requests.get(span, 0) + 1
        return 0.0

    async def spent(self, holding: tuple[Limit, ...], model: str, tokens: int) -> None:
        """Count the tokens of a request that has ended."""
        subject = msgspec.structs.replace(_SUBJECT.get(), model=model)
        for limit in holding:
            if limit.tokens_per_minute is not None and tokens:
                async with self._shared.counting(_id_for(limit, subject)) as (counts, now):
                    span = int(now // _SLOT_SECONDS)
                    counts.tokens[span] = counts.tokens.get(span, 0) + tokens

    async def slow(self, holding: tuple[Limit, ...], model: str, seconds: float) -> None:
        """Let all workers that share a limit wait: the provider has said that there are too many requests."""
        subject = msgspec.structs.replace(_SUBJECT.get(), model=model)
        for limit in holding:
            async with self._shared.counting(_id_for(limit, subject)) as (counts, now):
                counts.until = max(counts.until, now + seconds)
                logger.warning("Requests under the limit %r wait for %g s: the provider says so.", limit.name, seconds)


class LimitedModel:
    """A model whose requests wait for their turn among all workers. Everything else is the model's own."""

    def __init__(self, model: Model, limits: Limits) -> None:
        self._model = model
        self._limits = limits

    def __getattr__(self, name: str) -> Any:  # Any: as the model's own
        return getattr(self._model, name)

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelPart]:
        name = self._model.name
        holding = await self._limits.admit(name)
        stream = self._model.stream(request)
        try:
            async for part in stream:
                yield part
                if isinstance(part, ModelEnd) and part.usage is not None:
                    await self._told(
                        self._limits.spent(holding, name, part.usage.input_tokens + part.usage.output_tokens)
                    )
        except ModelError as error:
            if error.status == 429 and error.retry_after_seconds:
                await self._told(self._limits.slow(holding, name, error.retry_after_seconds))
            raise
        finally:
            if (close := getattr(stream, "aclose", None)) is not None:
                await close()

    async def _told(self, telling: Any) -> None:
        """Count what cannot be refused any more; a journal that fails then stops the run by itself."""
        try:
            await telling
        except JournalError as error:
            logger.warning("What a request has used could not be counted: %s", error)


def checked_limit(limit: Limit) -> Limit:
    """Return a limit whose values have a meaning. Raises ConfigurationError: says which, and what it may be."""
    if not isinstance(limit.name, str) or not 0 < len(limit.name) <= 100 or not limit.name.isprintable():
        raise ConfigurationError(f"Limit(name=...) has 1 to 100 printable characters; got {shown(limit.name)}.")
    counts = ("sessions", "requests_per_minute", "tokens_per_minute")
    for field in counts:
        value = getattr(limit, field)
        if value is not None and (type(value) is not int or value < 1):
            raise ConfigurationError(f"Limit({field}=...) is a whole number above 0; got {shown(value)}.")
    if all(getattr(limit, field) is None for field in counts):
        raise ConfigurationError(f"The limit {limit.name!r} limits nothing. Set one of: {', '.join(counts)}.")
    if limit.each not in ("", "tenant", "agent", "model"):
        raise ConfigurationError(f"Limit(each=...) is 'tenant', 'agent' or 'model'; got {shown(limit.each)}.")
    for field in ("tenants", "agents", "models"):
        value = getattr(limit, field)
        if isinstance(value, str) or not (value is None or all(isinstance(one, str) for one in value)):
            raise ConfigurationError(f"Limit({field}=...) is a list of names; got {shown(value)}.")
    return limit


def _holds_for(limit: Limit, subject: Subject) -> bool:
    """Say whether a session is among those that it limits."""
    return (
        (limit.tenants is None or subject.tenant in limit.tenants)
        and (limit.agents is None or subject.agent in limit.agents)
        and (limit.models is None or any(_matches(subject.model, one) for one in limit.models))
    )


def _id_for(limit: Limit, subject: Subject) -> str:
    """Return by which id the journal keeps what is counted."""
    own = getattr(subject, limit.each) if limit.each else ""
    return f"limit/{hashlib.sha256(f'{len(limit.name)}:{limit.name}{limit.each}:{own}'.encode()).hexdigest()[:24]}"


def _reason(limit: Limit, subject: Subject) -> str:
    whose = f" of {limit.each} {getattr(subject, limit.each)!r}" if limit.each else ""
    return f"the limit {limit.name!r}{whose} is reached"


def _matches(model: str, pattern: str) -> bool:
    return model.startswith(pattern[:-1]) if pattern.endswith("*") else model == pattern
