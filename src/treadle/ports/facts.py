"""Facts: what a model can do and accept, as far as it is known."""

from collections.abc import Collection, Mapping
from typing import Protocol, runtime_checkable

import msgspec

from treadle.errors import ConfigurationError, shown
from treadle.fields import Documented, NamedOptions, checked, explained
from treadle.messages import Media
from treadle.ports.models import HasWindow, Model, Pricing

__all__ = ["INPUTS", "HasFacts", "ModelFacts", "facts_of", "input_of"]

INPUTS = ("text", "image", "pdf", "audio", "video")
"""The kinds of input that a model may accept."""


class ModelFacts(msgspec.Struct, Documented, frozen=True, kw_only=True, metaclass=NamedOptions):
    """What is known about a model. None means unknown.

    Example:
        resolve_model("vllm:my-model", facts=ModelFacts(window=32_768, inputs=["text"]))

    Raises:
        ConfigurationError: A fact is of the wrong kind.
    """

    window: int | None = None
    """Tokens of request and response together."""
    output: int | None = None
    """Tokens that it can write in one response, including its thinking."""
    inputs: Collection[str] | None = None
    """What it accepts: text, image, pdf, audio, video. A task with any other kind is refused. Other media, from earlier tasks or from
    tools, are left out of the request, and the model is told."""
    tools: bool | None = None
    """Whether it can call tools. If not, it is driven by ReAct."""
    strict: bool | None = None
    """Whether it enforces the schema of a call's arguments."""
    parallel: bool | None = None
    """Whether it can call several tools in one response."""
    thinking: bool | None = None
    """Whether it can think before it answers."""
    price: Pricing | None = None
    """Its price."""

    def __post_init__(self) -> None:
        for name in ("window", "output"):
            value = getattr(self, name)
            if value is not None and (type(value) is not int or value < 1):
                raise ConfigurationError(f"The fact {name!r} is a whole number of tokens above 0; got {shown(value)}.")
        for name in ("tools", "strict", "parallel", "thinking"):
            if not isinstance(getattr(self, name), bool | None):
                raise ConfigurationError(f"The fact {name!r} is true or false; got {shown(getattr(self, name))}.")
        if self.inputs is not None:
            is_list = isinstance(self.inputs, Collection) and not isinstance(self.inputs, str | bytes | Mapping)
            if not is_list or any(one not in INPUTS for one in self.inputs):
                raise ConfigurationError(
                    f"The fact 'inputs' is a list of {', '.join(INPUTS)}; got {shown(self.inputs)}."
                )
            msgspec.structs.force_setattr(self, "inputs", frozenset(self.inputs))

    @checked
    def over(self, others: "ModelFacts") -> "ModelFacts":
        """Return these facts, and the others' where these say nothing."""
        own = {name: value for name in self.__struct_fields__ if (value := getattr(self, name)) is not None}
        return msgspec.structs.replace(others, **own)


@runtime_checkable
class HasFacts(Protocol):
    """A model that says what is known about it."""

    @property
    def facts(self) -> ModelFacts:
        """The same for the model's whole life."""
        ...


@explained
def facts_of(model: Model) -> ModelFacts:
    """Return what is known about a model."""
    if isinstance(model, HasFacts):
        return model.facts
    return ModelFacts(window=model.window, price=model.price) if isinstance(model, HasWindow) else ModelFacts()


@explained
def input_of(media: Media) -> str | None:
    """Return which kind of input a medium is; None for one that nobody has a word for."""
    start = media.media_type.partition("/")[0].lower()
    if media.media_type.lower() == "application/pdf":
        return "pdf"
    return start if start in INPUTS else None
