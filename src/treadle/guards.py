"""Guards: how often a model may repeat itself or fail in a row before the run stops. Values only."""

import msgspec

from treadle.errors import ConfigurationError
from treadle.options import NamedOptions

__all__ = ["Guards"]


class Guards(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, metaclass=NamedOptions):
    """Limits on behaviour that leads nowhere. None switches a guard off.

    They count tries, and a try is one response of the model, however many calls it holds. A resumed run begins anew.

    Example:
        Agent(model, guards=Guards(repeats=2))
    """

    repeats: int | None = 3
    """This many equal responses in a row end the run if their results were equal too; the calls of the last are not run.
    The same holds for a cycle of two to four responses. None also switches off `repeats_with_progress`."""
    repeats_with_progress: int | None = 10
    """The same limit where the results differ; never below `repeats`."""
    failures: int | None = 5
    """This many responses in a row with failed calls and no successful one end the run."""
    invalid_json: int | None = 3
    """This many responses in a row with arguments that are not valid JSON, and no successful call, end the run."""
    invalid_arguments: int | None = 3
    """This many responses in a row with arguments that do not fit the schema, and no successful call, end the run."""
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
