"""Groups: all scenarios, a module a group."""

from collections.abc import Mapping, Sequence

from treadle.conformance.groups import (
    approvals,
    arguments,
    contents,
    crashes,
    histories,
    identity,
    limits,
    parallel,
    retries,
    schemas,
    streams,
    timeouts,
)
from treadle.conformance.scenario import Scenario
from treadle.errors import ConfigurationError

__all__ = ["GROUPS", "SCENARIOS", "scenarios_of"]

_MODULES = (
    *(arguments, schemas, contents, parallel, identity, streams),
    *(retries, timeouts, limits, histories, crashes, approvals),
)

SCENARIOS: tuple[Scenario, ...] = tuple(one for module in _MODULES for one in module.SCENARIOS)
"""All scenarios, in the order of their groups."""

GROUPS: Mapping[str, str] = {
    module.__name__.rpartition(".")[2]: (module.__doc__ or "").partition(": ")[2].strip() for module in _MODULES
}
"""What each group is about, by its name."""


def scenarios_of(names: Sequence[str]) -> tuple[Scenario, ...]:
    """Return the scenarios of these groups, or with these ids; all for no name.

    Raises:
        ConfigurationError: There is no group or scenario of a name.
    """
    known = {*GROUPS, *(one.id for one in SCENARIOS)}
    for name in names:
        if name not in known:
            raise ConfigurationError(
                f"There is no group or scenario {name!r:.80}. The groups are {', '.join(GROUPS)}; "
                "`treadle conformance --list` prints the scenarios."
            )
    return tuple(one for one in SCENARIOS if not names or one.group in names or one.id in names)
