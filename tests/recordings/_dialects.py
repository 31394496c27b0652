"""Recordings of `dialects/`: their bodies as bytes, and the conversations in them. Reads event streams by means of its own."""

import base64
import json
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import pytest
from _replay import ABSENT, RECORDINGS, Exchange, Oracle, Stretch

from treadle.tools import JsonObject

__all__ = ["Bodied", "Conversation", "exchanges", "frames", "loops", "text_of"]


@dataclass(frozen=True)
class Bodied:
    """One recorded exchange whose body may be no text."""

    name: str
    path: str
    request: JsonObject
    status: int
    content: bytes

    @property
    def model(self) -> str:
        named: str = self.request.get("model") or unquote(self.path.split("/")[2])
        return named

    @property
    def is_stream(self) -> bool:
        says_so = "stream" in self.path.rpartition("/")[2].lower().rpartition(":")[2]
        return self.status == 200 and (says_so or self.request.get("stream") is True)

    def with_body(self, body: str) -> Exchange:
        """Return the exchange with its body as text, for an oracle."""
        return Exchange("", self.path, self.request, self.status, {}, body)

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Conversation:
    """Exchanges of which each continues where the one before ended."""

    exchanges: tuple[Bodied, ...]

    def __str__(self) -> str:
        return self.exchanges[0].name

    def played(
        self,
        vendor: str,
        oracle: Oracle,
        whole: Callable[[Bodied], JsonObject],
        events: Callable[[JsonObject], bytes],
        *,
        in_other_form: bool,
    ) -> Stretch:
        """Return how it is played: as recorded, or what was streamed whole and the other way round. A refusal has but one form."""
        was_streamed = self.exchanges[0].is_stream
        answers = [None if one.status != 200 else whole(one) for one in self.exchanges]
        as_text = [
            one.content.decode() if answer is None else json.dumps(answer)
            for one, answer in zip(self.exchanges, answers, strict=True)
        ]
        other = [
            body if was_streamed or answer is None else events(answer)
            for body, answer in zip(as_text, answers, strict=True)
        ]
        return Stretch(
            exchanges=tuple(one.with_body(body) for one, body in zip(self.exchanges, as_text, strict=True)),
            oracle=oracle,
            model=f"{vendor}:{self.exchanges[0].model}",
            stream=was_streamed is not in_other_form,
            bodies=other if in_other_form else [one.content for one in self.exchanges],
        )


def exchanges(folder: str, *needed: str) -> list[Any]:
    """Return the recorded exchanges of a folder whose requests hold these fields; one loud skip where there are none."""
    found = list(_read(folder, needed))
    return found or [pytest.param(None, marks=pytest.mark.skip(reason=ABSENT))]


def loops(folder: str, *needed: str) -> list[Any]:
    """Return the conversations of a folder that came to an end: an answer that a limit cut is asked to continue, which nobody recorded."""
    found = [one for one in _conversations(folder, *needed) if not _is_cut(one.exchanges[-1])]
    return found or [pytest.param(None, marks=pytest.mark.skip(reason=ABSENT))]


def _conversations(folder: str, *needed: str) -> list[Conversation]:
    """Return the recorded conversations of a folder."""
    chains: list[list[Bodied]] = []
    for one in _read(folder, needed):
        if chains and _goes_on(chains[-1][-1], one):
            chains[-1].append(one)
        else:
            chains.append([one])
    return [Conversation(tuple(chain)) for chain in chains]


def frames(content: bytes) -> Iterator[tuple[dict[str, str], bytes]]:
    """Yield the headers and the payload of each message of an event stream."""
    while content:
        size, head = struct.unpack_from(">II", content)
        headers, place = {}, 12
        while place < 12 + head:
            name_ends = place + 1 + content[place]
            length = int.from_bytes(content[name_ends + 1 : name_ends + 3], "big")
            value = content[name_ends + 3 : name_ends + 3 + length]
            headers[content[place + 1 : name_ends].decode()] = value.decode()
            place = name_ends + 3 + length
        yield headers, content[12 + head : size - 4]
        content = content[size:]


def _read(folder: str, needed: tuple[str, ...]) -> Iterator[Bodied]:
    for path in sorted((RECORDINGS / "dialects" / folder).glob("*.json")):
        for number, one in enumerate(json.loads(path.read_text(encoding="utf-8"))["interactions"]):
            if isinstance(one["request"], dict) and all(name in one["request"] for name in needed):
                content = _content(one)
                yield Bodied(f"{path.stem}-{number}", one["path"], one["request"], one["status"], content)


def _content(one: JsonObject) -> bytes:
    if one.get("body_base64"):
        return base64.b64decode(one["body_base64"])
    body = one.get("body") or ""
    is_hex = "stream" in one["path"].rpartition("/")[2] and one["status"] == 200 and body.startswith("0000")
    return bytes.fromhex(body) if is_hex else body.encode()


def _goes_on(before: Bodied, after: Bodied) -> bool:
    earlier, later = before.request["messages"], after.request["messages"]
    is_same = before.name.rpartition("-")[0] == after.name.rpartition("-")[0] and before.path == after.path
    is_more = len(later) == len(earlier) + 2 or (len(later) > len(earlier) and later[: len(earlier)] == earlier)
    return is_same and before.status == 200 and is_more


def _is_cut(one: Bodied) -> bool:
    return one.status == 200 and "max_tokens" in (one.content.decode(errors="replace") + text_of(one))


def text_of(one: Bodied) -> str:
    """Return an answer as Anthropic's dialect writes it: without what Bedrock puts around its events."""
    if not one.content.startswith(b"\0"):
        return one.content.decode()
    payloads = [json.loads(payload) for _, payload in frames(one.content)]
    held = [base64.b64decode(payload["bytes"]).decode() for payload in payloads if "bytes" in payload]
    return "event: any\n" + "".join(f"data: {event}\n\n" for event in held)
