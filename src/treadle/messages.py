"""Messages: what was said in a session, independent of any provider. Values only; knows no wire format."""

from enum import StrEnum
from typing import Any, Literal, TypeAlias

import msgspec

from treadle.fields import Documented, checked, explained

__all__ = [
    "ErrorForm",
    "Finish",
    "Media",
    "Message",
    "Opaque",
    "Part",
    "Result",
    "Text",
    "TextCalls",
    "Thinking",
    "ToolCall",
    "Usage",
    "user_message",
]

ErrorForm: TypeAlias = Literal["sentence", "json"]
"""What a model reads of a tool's error: one sentence, or the JSON object with all fields."""

TextCalls: TypeAlias = Literal["run", "tell", "off"]
"""What happens to a response whose text is nothing but calls: they are its calls, the model is told that they did not arrive, or the text
is an answer."""


class Text(msgspec.Struct, Documented, frozen=True, tag="text", tag_field="kind", gc=False):
    """Text that a person may read."""

    text: str
    """The text."""
    signature: str | None = None
    """The provider's proof of origin, which must be sent back with this part, or None."""


class Thinking(msgspec.Struct, Documented, frozen=True, kw_only=True, tag="thinking", tag_field="kind", gc=False):
    """A model's reasoning. Never shown as text; sent back unchanged to the provider that created it."""

    text: str = ""
    """The reasoning, as far as the provider shows it."""
    signature: str | None = None
    """The provider's signature over the text, or None."""
    payload: Any = None
    """The provider's own block (a JSON value), if it must be sent back exactly as it was received."""


class ToolCall(msgspec.Struct, Documented, frozen=True, kw_only=True, tag="call", tag_field="kind", gc=False):
    """One call that the model proposes, as received."""

    id: str
    """Unique in its session. A provider's repeated or missing id is replaced."""
    name: str
    """Name of the tool, as the model wrote it."""
    arguments: str
    """The raw text of the arguments, as the model wrote it; not yet known to be JSON."""
    signature: str | None = None
    """The provider's proof of origin, which must be sent back with this call, or None."""


class Media(msgspec.Struct, Documented, frozen=True, kw_only=True, tag="media", tag_field="kind", gc=False):
    """An image, a sound or a file."""

    media_type: str
    """The MIME type, such as `image/png`."""
    base64: str | None = None
    """The content, or None if `url` has it."""
    url: str | None = None
    """Where the content is, or None if `base64` has it."""
    name: str | None = None
    """File name; None without one."""


class Opaque(msgspec.Struct, Documented, frozen=True, kw_only=True, tag="opaque", tag_field="kind", gc=False):
    """An item that only its provider understands (a block of a server-side tool). Sent back unchanged, never executed."""

    provider: str
    """The dialect that it belongs to."""
    payload: Any
    """The item: a JSON value."""


class Result(msgspec.Struct, Documented, frozen=True, kw_only=True, tag="result", tag_field="kind", gc=False):
    """What the model is told about one call."""

    call_id: str
    """Id of the call."""
    name: str
    """Name of the tool."""
    content: str
    """What the model sees: text, or JSON if the value is not text."""
    is_error: bool = False
    """Whether the call failed."""
    execution_id: str = ""
    """Ties the message to the events of the execution that made it."""
    media: tuple[Media, ...] = ()
    """Images and files for the model."""


Part: TypeAlias = Text | Thinking | ToolCall | Media | Opaque | Result
"""One piece of a message."""


class Message(msgspec.Struct, Documented, frozen=True, kw_only=True, weakref=True):
    """One message of the transcript. A `tool` message has all results of one step, in call order."""

    role: Literal["user", "assistant", "tool"]
    """Who speaks: `user`, `assistant` (the model) or `tool` (results)."""
    parts: tuple[Part, ...]
    """Its content: text, reasoning, calls, media or results, in order."""
    origin: str | None = None
    """The dialect and model that wrote it, such as `openai-chat:gpt-5-mini`; None for people and tools."""

    @property
    def text(self) -> str:
        return "".join([part.text for part in self.parts if isinstance(part, Text)])

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        return tuple([part for part in self.parts if isinstance(part, ToolCall)])

    @property
    def results(self) -> tuple[Result, ...]:
        return tuple([part for part in self.parts if isinstance(part, Result)])


@checked
def user_message(text: str) -> Message:
    """Make a user's message of plain text."""
    return Message(role="user", parts=(Text(text),))


class Finish(StrEnum):
    """Why the model's response ended, independent of the provider. It never decides whether a run continues: the calls do."""

    STOP = "stop"
    """The answer is complete."""
    CALLS = "calls"
    """It proposes calls."""
    LENGTH = "length"
    """The output limit cut it off."""
    REFUSED = "refused"
    """The model or its vendor refused."""
    UNKNOWN = "unknown"
    """The server gave no reason, or an unknown one."""


class Usage(msgspec.Struct, Documented, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Tokens of one or more model calls."""

    input_tokens: int = 0
    """Prompt tokens, including those read from the provider's cache or written to it."""
    output_tokens: int = 0
    """Completion tokens, including reasoning tokens."""
    cached_input_tokens: int = 0
    """Prompt tokens that were read from the provider's cache."""
    cache_written_tokens: int = 0
    """Prompt tokens that were written to the provider's cache, if it charges for that."""
    reasoning_tokens: int = 0
    """Completion tokens that the model spent on reasoning."""
    estimated: bool = False
    """Whether any of it is our estimate, because the server sent no count."""

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cached_input_tokens=self.cached_input_tokens + other.cached_input_tokens,
            cache_written_tokens=self.cache_written_tokens + other.cache_written_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
            estimated=self.estimated or other.estimated,
        )

    @explained
    def minus(self, before: "Usage") -> "Usage":
        """Return what was added since an earlier sum."""
        return Usage(
            input_tokens=self.input_tokens - before.input_tokens,
            output_tokens=self.output_tokens - before.output_tokens,
            cached_input_tokens=self.cached_input_tokens - before.cached_input_tokens,
            cache_written_tokens=self.cache_written_tokens - before.cache_written_tokens,
            reasoning_tokens=self.reasoning_tokens - before.reasoning_tokens,
            estimated=self.estimated,
        )
