"""Border: what of the sandbox's border a line of shell needs lifted, by the programs that it starts."""

from treadle.tools.needs import Need

__all__ = ["border_of"]


def border_of(line: str) -> tuple[Need, ...]:
    """Return what a line of shell needs lifted, such as `git` for `git commit`; nothing for one that can run confined."""
    return ()
