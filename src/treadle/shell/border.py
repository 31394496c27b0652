"""Border: what of the sandbox's border a line of shell needs lifted, by the programs that it starts."""

import re
from collections.abc import Iterator

from msgspec import structs

from treadle.errors import InvalidArguments
from treadle.shell.judging import NAMING_HOSTS, analyse, hosts_of, known, plain_words
from treadle.shell.programs import MODULE_RUNNERS, PROGRAMS, program_name
from treadle.shell.reading import Invocation
from treadle.tools.needs import GIT, UNCONFINED, Need, parse_need

__all__ = ["border_of", "lifted_by_rules"]

_EVERY_HOST = Need("network", "*")
_WRITING_GIT = frozenset(
    (one,)
    for one in "worktree submodule bisect notes gc am update-index update-ref sparse-checkout subtree replace repack prune".split()
)
"""Subcommands that write the history and whose options no table knows."""


_BY_SOCKET = frozenset("psql pg_dump pg_restore pg_isready createdb dropdb mysql mysqldump mysqladmin mariadb".split())
"""Programs that reach a database of this machine by a socket in the file system, unless they are given a host."""
_NAMED_HOST = re.compile(r"(?:\0-h\0?|\0--host[=\0]|(?i:host=))[^/\0]|://[^/]")


def border_of(line: str) -> tuple[Need, ...]:
    """Return what a line of shell needs lifted, such as `git` for `git commit`; nothing for one that can run confined.

    What a program does by itself (tests that fetch something) is not known here: the sandbox refuses it, and the model may ask.
    """
    found = dict.fromkeys(need for one in analyse(line).invocations for need in _needs(one))
    return (UNCONFINED,) if UNCONFINED in found else tuple(found)


def lifted_by_rules(line: str) -> tuple[Need, ...]:
    """Return what rules that allow the commands of a line lift together; nothing where a command that runs code does not need it itself.

    `docker ps; python x.py` would run the script outside of the sandbox, though no rule says so of it.
    """
    needed = border_of(line)
    acting = [one for one in analyse(line).invocations if not one.via and known(one).does == "acts"]
    kinds = [{need.kind for need in _needs(one)} for one in acting]
    return needed if all(need.kind in one for need in needed for one in kinds) else ()


def _needs(one: Invocation) -> Iterator[Need]:
    if program_name(one.program) in MODULE_RUNNERS and one.words[1:3] == ("-m", "pip"):
        one = structs.replace(one, words=one.words[2:])
    name, about = program_name(one.program), known(one)
    program = about.program or PROGRAMS.get(name)
    if program is None and plain_words(one.words)[:1] == ("git",) and plain_words(one.words)[1:2] in _WRITING_GIT:
        yield GIT
    for kind in program.needs if program is not None and about.does != "reads" else ():
        match kind:
            case "git":
                yield GIT
            case "network":
                hosts = hosts_of(one) if name in NAMING_HOSTS else ()
                is_local = name in ("rsync", "scp") and not any(":" in word for word in one.arguments)
                by_socket = name in _BY_SOCKET and not _NAMED_HOST.search("\0".join((*one.before, *one.words)))
                elsewhere = () if is_local else (UNCONFINED,) if by_socket else (_EVERY_HOST,)
                yield from map(_reaching, hosts) if hosts else elsewhere
            case _:
                yield UNCONFINED


def _reaching(host: str) -> Need:
    try:
        return parse_need(f"network {host}")
    except InvalidArguments:  # no port has its number
        return Need("network", host.partition(":")[0])
