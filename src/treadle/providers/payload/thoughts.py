"""Thoughts: reasoning that a server leaves in the text, between tags, taken out of it. Knows no dialect; sees text only.

Only tags at the beginning of a response count: what a model writes about tags elsewhere is its answer.
"""

from typing import Literal, TypeAlias

import msgspec

from treadle.messages import Part, Text, Thinking
from treadle.ports import ModelEnd, ModelPart, TextDelta, ThinkingDelta

__all__ = ["ThinkingTags", "ThoughtText"]

ThinkingTags: TypeAlias = Literal["both", "closing", "off"]
"""`both`: what stands between an opening and a closing tag is reasoning. `closing`: the opening tag may be missing. `off`: all is text."""

_TAGS = {
    "<think>": "</think>",  # DeepSeek-R1, QwQ, Qwen3, GLM, MiniMax: docs.vllm.ai/features/reasoning_outputs
    "<thinking>": "</thinking>",  # Amazon Nova: docs.aws.amazon.com/nova/latest/userguide
    "<thought>": "</thought>",  # Gemini's compatible endpoint, EXAONE
    "<seed:think>": "</seed:think>",  # Seed-OSS
    "[THINK]": "[/THINK]",  # Magistral: docs.mistral.ai/capabilities/reasoning
    "◁think▷": "◁/think▷",  # Kimi-VL
    "<|START_THINKING|>": "<|END_THINKING|>",  # Command A: docs.cohere.com
}
_MISSING = {"</think>": "<think>", "◁/think▷": "◁think▷"}
"""Closing tags whose opening one some templates put into the prompt, so that no server sends it: DeepSeek-R1, QwQ."""
_QUOTES = "`'\""


class ThoughtText:
    """Takes the reasoning out of the text of one response.

    Args:
        tags: What counts as reasoning.
    """

    def __init__(self, tags: ThinkingTags) -> None:
        self._tags = tags
        self._split = _Split(is_done=tags == "off")

    def shown(self, parts: list[ModelPart]) -> list[ModelPart]:
        """Return the pieces of a stream, those between tags as thinking. A piece that may be half a tag is kept for the next."""
        if self._split.is_done:
            return parts
        found: list[ModelPart] = []
        for part in parts:
            found += self._split.feed(part.text) if type(part) is TextDelta else [part]
        return found

    def rest(self) -> list[ModelPart]:
        """Return what was kept when the stream ended."""
        return self._split.finish()

    def ended(self, end: ModelEnd) -> ModelEnd:
        """Return the whole message, with the reasoning that stood in its first text as a part of its own."""
        at = next((at for at, part in enumerate(end.parts) if isinstance(part, Text)), None)
        if self._tags == "off" or at is None:
            return end
        text = end.parts[at]
        assert isinstance(text, Text)
        thought, said = self._parted(text.text)
        if said == text.text:
            return end
        kept: list[Part] = []
        is_told = any(isinstance(part, Thinking) and part.text.strip() == thought for part in end.parts)
        if thought and not is_told:
            kept.append(Thinking(text=thought))
        if said:
            kept.append(msgspec.structs.replace(text, text=said))
        return msgspec.structs.replace(end, parts=(*end.parts[:at], *kept, *end.parts[at + 1 :]))

    def _parted(self, text: str) -> tuple[str, str]:
        """Return the reasoning of a whole text, and the text without it."""
        if self._tags == "closing":
            text = _with_opening(text)
        split = _Split()
        parts = [*split.feed(text), *split.finish()]
        thoughts = "".join(part.text for part in parts if isinstance(part, ThinkingDelta))
        return thoughts.strip(), "".join(part.text for part in parts if isinstance(part, TextDelta))


def _with_opening(text: str) -> str:
    """Return a text with the opening tag that its server left out; as it is where none is missing, or a tag is only quoted."""
    for closing, opening in _MISSING.items():
        before, found, after = text.partition(closing)
        is_quoted = before[-1:] in _QUOTES and after[:1] in _QUOTES and bool(before)
        if found and opening not in before and not is_quoted:
            return opening + text
    return text


class _Split:
    """Tells pieces of text apart: reasoning between tags, and the answer after it."""

    def __init__(self, *, is_done: bool = False) -> None:
        self.is_done = is_done
        """Whether all that follows is the answer."""
        self._held = ""
        self._closing = ""
        """The tag that ends the reasoning that is open; empty where none is."""
        self._has_thought = False

    def feed(self, text: str) -> list[ModelPart]:
        """Return what a piece makes certain."""
        if self.is_done:
            return [TextDelta(text)] if text else []
        self._held += text
        return self._inside() if self._closing else self._before()

    def finish(self) -> list[ModelPart]:
        """Return what is left at the end. Reasoning that was never closed stays reasoning."""
        held, self._held, self.is_done = self._held, "", True
        if self._closing:
            return [ThinkingDelta(held)] if held else []
        held = held.lstrip() if self._has_thought else held
        return [TextDelta(held)] if held else []

    def _before(self) -> list[ModelPart]:
        """Look for an opening tag, where only blanks stood before."""
        text = self._held.lstrip()
        for opening, closing in _TAGS.items():
            if text.startswith(opening):
                self._held, self._closing, self._has_thought = text[len(opening) :], closing, True
                return self._inside()
        if any(opening.startswith(text) for opening in _TAGS):  # half a tag, or nothing yet
            return []
        return self.finish()

    def _inside(self) -> list[ModelPart]:
        """Look for the closing tag; keep the end of what may be its beginning."""
        thought, found, after = self._held.partition(self._closing)
        if found:
            self._held, self._closing = after, ""
            return [*([ThinkingDelta(thought)] if thought.strip() else []), *self._before()]
        size = next((n for n in range(len(self._closing) - 1, 0, -1) if thought.endswith(self._closing[:n])), 0)
        self._held = thought[len(thought) - size :]
        said = thought[: len(thought) - size]
        return [ThinkingDelta(said)] if said else []
