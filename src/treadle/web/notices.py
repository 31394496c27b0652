"""Notices: what waits for a person, is in doubt, was set aside or is over budget is told to a webhook or a command, at least once.

What was told is kept in the journal. Nothing is answered or changed here.
"""

import asyncio
import base64
import binascii
import hashlib
import hmac
import logging
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import quote, urlsplit

import aiohttp
import msgspec

from treadle import ConfigurationError, TreadleError
from treadle.fields import checked
from treadle.ports import Journal
from treadle.redaction import Redactor
from treadle.web.snapshot import Snapshot
from treadle.workers import shared_set

__all__ = ["Notice", "Notifier"]

logger = logging.getLogger("treadle.web.notices")
_redactor = Redactor()

_MOST_AT_ONCE = 50
_MOST_CHARS = 200
_ANSWER_SECONDS = 30.0
_LONGEST_WAIT_SECONDS = 300.0
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_BEGUN = "begun"
"""Is in the set of what was told, from the first time on."""
_WORDS = {
    "approval": "Waits for approval",
    "question": "Waits for an answer",
    "doubt": "In doubt",
    "set_aside": "Set aside",
    "over_budget": "Over budget",
}


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that somebody should look at."""

    kind: str
    """`approval`, `question`, `doubt`, `set_aside` or `over_budget`."""
    key: str
    """Names it: a notice that is delivered twice has the same key."""
    session: str
    """The session."""
    id: str
    """Of the request or the call; empty for a session that was set aside or is over budget."""
    title: str
    """What it is about, in one line, without secrets."""
    tenant: str
    """Whose it is; empty for nobody's."""
    agent: str
    """The agent; empty for one without a name."""
    since: float
    """Since when, in seconds since 1970."""
    link: str
    """Where it is on the page."""

    @property
    def text(self) -> str:
        """One line for people."""
        whose = ", ".join(one for one in (self.agent, self.tenant) if one)
        return f"{_WORDS[self.kind]}: {self.title}{f' ({whose})' if whose else ''} {self.link}"


class Notifier:
    """Tells a webhook or a command what somebody should look at, each thing at least once.

    Example:
        await Notifier(journal, page="https://ops.example.com", webhook="https://chat.example.com/in", secret="whsec_...").run()

    Args:
        journal: Where the sessions are.
        page: The address of the web page, to which the links lead.
        webhook: An address that gets a POST with JSON, signed as Standard Webhooks says.
        secret: What the webhook is signed with: `whsec_` and at least 24 bytes in Base64.
        command: A program and its arguments, in place of a webhook: it gets the JSON as its input, and the text as its last argument.
        retry_seconds: How long to wait after a first failure. Each further one doubles it, up to five minutes.

    Raises:
        ConfigurationError: An argument is invalid.
    """

    @checked
    def __init__(
        self,
        journal: Journal,
        *,
        page: str,
        webhook: str = "",
        secret: str = "",
        command: Sequence[str] = (),
        retry_seconds: float = 5.0,
    ) -> None:
        if bool(webhook) == bool(command):
            raise ConfigurationError("A Notifier has either a webhook or a command.")
        self._page = _address("page", page).rstrip("/")
        self._webhook = _address("webhook", webhook) if webhook else ""
        self._secret = _secret(secret) if webhook else b""
        self._command = tuple(command)
        self._snapshot = Snapshot(journal)
        self._place = " ".join(["notices", self._webhook, *self._command])
        self._told: set[str] = set()
        self._failures: Counter[str] = Counter()
        self._retry_seconds = retry_seconds

    async def run(self) -> None:
        """Tell what is there and what comes, until it is cancelled."""
        failures = 0
        try:
            async for _ in self._snapshot.versions():
                if self._snapshot.unread or self._snapshot.fault:
                    continue
                while not await self._is_told():
                    await asyncio.sleep(min(self._retry_seconds * 2**failures, _LONGEST_WAIT_SECONDS))
                    failures = min(failures + 1, 20)
                    await self._snapshot.refresh()
                failures = 0
        finally:
            await self._snapshot.close()

    async def _is_told(self) -> bool:
        """Deliver what was not. Return whether nothing is left."""
        while not set(self._open()) <= self._told:
            try:
                async with shared_set(self._snapshot.journal, self._place) as told:
                    is_well = await self._deliver_next(told)
                    self._told = set(told)
            except TreadleError as error:
                logger.warning("The journal does not say what was told: %s", error)
                is_well = False
            if not is_well:
                return False
        return True

    async def _deliver_next(self, told: set[str]) -> bool:
        """Deliver one lot of what was not told. Return whether it has arrived."""
        is_first = _BEGUN not in told
        found = self._open()
        told.intersection_update([*found, _BEGUN])
        told.add(_BEGUN)
        if is_first:  # what was over budget before anybody asked to be told is history
            told.update(key for key, one in found.items() if one.kind == "over_budget")
        new = sorted((one for key, one in found.items() if key not in told), key=self._turn)[:_MOST_AT_ONCE]
        if not new:
            return True
        try:
            await self._deliver(new)
        except (OSError, TimeoutError, aiohttp.ClientError) as error:
            self._failures.update(one.key for one in new)
            logger.warning("%s not told, and tried again: %s", _counted(len(new)), str(error) or "no answer in time")
            return False
        told.update(one.key for one in new)
        logger.info("%s told.", _counted(len(new)))
        return True

    def _turn(self, notice: Notice) -> tuple[int, float]:
        """What has failed least comes first: what is never taken holds nothing else up."""
        return self._failures[notice.key], notice.since

    # --- what there is to tell

    def _open(self) -> dict[str, Notice]:
        return {one.key: one for one in self._found()}

    def _found(self) -> Iterator[Notice]:
        snapshot = self._snapshot
        for approval in snapshot.approvals:
            title = f"{approval.action or f'Call {approval.tool}'} {approval.target}"
            yield self._notice("approval", approval.session_id, approval.id, title, approval.requested_at)
        for question in snapshot.questions:
            yield self._notice("question", question.session_id, question.call_id, question.text, question.since)
        for doubt in snapshot.doubts:
            yield self._notice("doubt", doubt.session_id, doubt.call_id, f"Was {doubt.tool} done?", doubt.since)
        for card in snapshot.cards.values():
            if card.set_aside:
                yield self._notice("set_aside", card.id, "", f"{card.task}: {card.why}", card.since)
            elif card.over_budget and card.root_id == card.id and card.own_status == "active":
                yield self._notice("over_budget", card.id, "", f"{card.task}: {card.over_budget}", card.since)

    def _notice(self, kind: str, session_id: str, item_id: str, title: str, since: float) -> Notice:
        card = self._snapshot.cards.get(self._snapshot.top_of(session_id))
        path = (
            f"request?session={quote(session_id)}&id={quote(item_id)}" if item_id else f"session?id={quote(session_id)}"
        )
        named = f"{kind} {session_id} {item_id or since}"
        return Notice(
            kind=kind,
            key=hashlib.sha256(named.encode()).hexdigest()[:20],
            session=session_id,
            id=item_id,
            title=_line(title),
            tenant=_line(self._snapshot.tenant_of(session_id)),
            agent="" if card is None else _line(card.agent),
            since=since,
            link=f"{self._page}/{path}",
        )

    # --- how it is told

    async def _deliver(self, notices: Sequence[Notice]) -> None:
        """Tell some things at once. Raises OSError, ClientError or TimeoutError: nobody knows whether it has arrived."""
        text = notices[0].text
        if len(notices) > 1:
            kinds = Counter(_WORDS[one.kind].lower() for one in notices)
            said = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
            text = "\n".join([f"{said}: {self._page}/inbox", *(one.text for one in notices[:10])])
        body = msgspec.json.encode({"type": "treadle.notices", "text": text, "notices": notices})
        async with asyncio.timeout(_ANSWER_SECONDS):
            await (self._post(body, notices) if self._webhook else self._run(body, text))

    async def _post(self, body: bytes, notices: Sequence[Notice]) -> None:
        name = "n_" + hashlib.sha256(" ".join(one.key for one in notices).encode()).hexdigest()[:20]
        headers = {"Content-Type": "application/json", **_signed(self._secret, name, int(time.time()), body)}
        async with (
            aiohttp.ClientSession() as http,
            http.post(self._webhook, data=body, headers=headers, allow_redirects=False) as answer,
        ):
            if not 200 <= answer.status < 300:
                raise ConnectionError(f"the webhook has answered with status {answer.status}")

    async def _run(self, body: bytes, text: str) -> None:
        program = await asyncio.create_subprocess_exec(
            *self._command, text, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.DEVNULL
        )
        try:
            await program.communicate(body)
        finally:
            with suppress(ProcessLookupError):
                program.kill()
        if program.returncode:
            raise ConnectionError(f"{self._command[0]} has ended with code {program.returncode}")


def _signed(secret: bytes, name: str, at: int, body: bytes) -> dict[str, str]:
    """Return the headers of Standard Webhooks."""
    signature = hmac.digest(secret, f"{name}.{at}.".encode() + body, "sha256")
    return {
        "webhook-id": name,
        "webhook-timestamp": str(at),
        "webhook-signature": f"v1,{base64.b64encode(signature).decode()}",
    }


def _address(what: str, address: str) -> str:
    try:
        parts = urlsplit(address)
        is_plain = parts.scheme == "http" and (what == "page" or parts.hostname in _LOOPBACK)
        if (parts.scheme == "https" or is_plain) and parts.hostname and not parts.username:
            return address
    except ValueError:
        pass
    example = "https://ops.example.com" if what == "page" else "https://chat.example.com/in"
    raise ConfigurationError(f"{what} is an address such as {example}, without a password; only loopback may be http.")


def _secret(secret: str) -> bytes:
    try:
        found = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    except (binascii.Error, ValueError):
        found = b""
    if not secret.startswith("whsec_") or len(found) < 24:
        raise ConfigurationError(
            "A webhook is signed with a secret of the form whsec_..., at least 24 bytes in Base64. "
            'To make one: echo "whsec_$(openssl rand -base64 32)"'
        )
    return found


def _line(text: str) -> str:
    """Return a text of somebody else's in one line, without secrets, and without what is invisible."""
    shown: Any = _redactor.text(text[: _MOST_CHARS * 4])
    plain = " ".join("".join(one if one.isprintable() else " " for one in shown).split())
    return plain if len(plain) <= _MOST_CHARS else f"{plain[: _MOST_CHARS - 3]}..."


def _counted(count: int) -> str:
    return "1 notice was" if count == 1 else f"{count} notices were"
