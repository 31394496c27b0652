"""Guards: how often a model may repeat itself or fail in a row before the run stops. Values only."""

import msgspec

from treadle.errors import ConfigurationError

__all__ = ["Guards"]


class Guards(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits on behaviour that leads nowhere. None switches a guard off.

    Example:
        Agent(model, guards=Guards(repeats=2))
    """

    repeats: int | None = 3
    """The so-manieth equal call in a row is not run and ends the run."""
    failures: int | None = 5
    """So many failed calls in a row, of any tool, end the run."""
    invalid_json: int | None = 3
    """So many calls in a row whose arguments are no JSON end the run."""
    invalid_arguments: int | None = 3
    """So many calls in a row whose arguments break the schema end the run."""
    finish_reasons: tuple[str, ...] = ()
    """Words of a provider for why its response ended, such as `recitation`, that end the run as `refused`."""

    def __post_init__(self) -> None:
        _check_words(self.finish_reasons)
        for name in self.__struct_fields__[:-1]:
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise ConfigurationError(f"Guard {name} must be a whole number of 1 or more, or None; got {value!r}.")


def _check_words(words: object) -> None:
    if not isinstance(words, tuple | list) or not all(isinstance(word, str) and word for word in words):
        raise ConfigurationError(f"Guard finish_reasons must be words such as ('recitation',); got {words!r:.80}.")
