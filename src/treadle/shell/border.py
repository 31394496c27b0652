"""Border: what of the sandbox's border a line of shell needs lifted, by the programs that it starts."""

from collections.abc import Iterator

from treadle.shell.judging import analyse, hosts_of, known
from treadle.shell.programs import PROGRAMS, program_name
from treadle.shell.reading import Invocation
from treadle.tools.needs import GIT, UNCONFINED, Need

__all__ = ["border_of"]

_EVERY_HOST = Need("network", "*")


def border_of(line: str) -> tuple[Need, ...]:
    """Return what a line of shell needs lifted, such as `git` for `git commit`; nothing for one that can run confined.

    What a program does by itself (tests that fetch something) is not known here: the sandbox refuses it, and the model may ask.
    """
    found = dict.fromkeys(need for one in analyse(line).invocations for need in _needs(one))
    return (UNCONFINED,) if UNCONFINED in found else tuple(found)


def _needs(one: Invocation) -> Iterator[Need]:
    about = known(one)
    program = about.program or PROGRAMS.get(program_name(one.program))
    for kind in program.needs if program is not None and about.does != "reads" else ():
        match kind:
            case "git":
                yield GIT
            case "network":
                hosts = hosts_of(one) if program_name(one.program) in ("curl", "wget") else ()
                yield from (Need("network", host.partition(":")[0]) for host in hosts) if hosts else (_EVERY_HOST,)
            case _:
                yield UNCONFINED
