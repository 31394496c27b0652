"""Names: write a tool's name and a call's id in the letters that a provider takes, and the name back. Knows no dialect."""

import hashlib
import re
from collections.abc import Callable, Iterable

from treadle.errors import ConfigurationError, shown

__all__ = ["id_pattern", "own_names", "wire_id", "wire_name"]

_PLAIN_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_STRANGE = re.compile(r"[^a-zA-Z0-9_-]+")
_PLAIN_ID = re.compile(r"[!-~]{1,40}")


def wire_name(name: str) -> str:
    """Return the name itself where providers take it, else its letters and a digest of the whole: the same for the same name."""
    if _PLAIN_NAME.fullmatch(name):
        return name
    return f"{_STRANGE.sub('_', name)[:51]}_{_digest(name)[:12]}"


def own_names(names: Iterable[str], write: Callable[[str], str] = wire_name) -> dict[str, str]:
    """Return the way back for those names that `write` changes."""
    return {wire: name for name in names if (wire := write(name)) != name}


def wire_id(call_id: str, *, plain: re.Pattern[str] = _PLAIN_ID) -> str:
    """Return the id itself where providers take it, else a digest of it.

    Ids of another server may be longer, and no answer ever names one: calls and results only have to agree.

    Args:
        plain: What the dialect or the server takes; by default OpenAI's: up to 40 visible characters.
    """
    return call_id if plain.fullmatch(call_id) else _made_id(call_id, plain)


def id_pattern(written: str | None) -> re.Pattern[str]:
    """Return the pattern of a server's ids; OpenAI's where it has no own.

    Raises:
        ConfigurationError: It is not a regular expression, or fits nothing that could be made here.
    """
    if written is None:
        return _PLAIN_ID
    try:
        plain = re.compile(written)
        _made_id("", plain)
    except (re.error, StopIteration) as exc:
        raise ConfigurationError(
            f"call_id must be a regular expression that up to 40 hexadecimal digits fit, such as '[a-zA-Z0-9]{{9}}'; got {shown(written)}."
        ) from exc
    return plain


def _made_id(call_id: str, plain: re.Pattern[str]) -> str:
    """Return the longest digest that fits."""
    digest = _digest(call_id)
    made = (f"call_{digest[:32]}", *(digest[:length] for length in range(40, 0, -1)))
    return next(filter(plain.fullmatch, made))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
