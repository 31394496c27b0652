"""The address of a PostgreSQL journal: what the driver needs, and what people may see of it. Connects to nothing."""

import re
from collections.abc import Mapping
from urllib.parse import quote

import msgspec
import psycopg
from psycopg.conninfo import conninfo_to_dict

from treadle.errors import ConfigurationError
from treadle.redaction import remember

__all__ = ["Address", "parse_address"]

_DEFAULTS = {
    "application_name": "treadle",
    "connect_timeout": "5",
    # A server that vanished without a word is noticed within a minute; the system's own default is two hours.
    "keepalives_idle": "20",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "50000",
}
_ALWAYS = {"client_encoding": "utf8"}


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """Where a journal's server is, and as whom to go there."""

    parameters: Mapping[str, str]
    """For the driver; the password among them."""
    location: str
    """For people: without secrets."""
    search_path: str = ""
    """The search path that the options ask for; empty where they ask for none."""
    secrets: tuple[str, ...] = ()
    """Texts that no message may hold."""

    def __repr__(self) -> str:
        return f"Address({self.location!r})"

    def cleaned(self, text: str) -> str:
        """Return a message on one line, without secrets."""
        for secret in self.secrets:
            text = text.replace(secret, "***")
        return " ".join(text.split())


def parse_address(url: str) -> Address:
    """Take a URL such as `postgresql://user:password@host:5432/database` apart.

    Raises:
        ConfigurationError: It is invalid. The message quotes nothing of it: a mistyped URL shows its password elsewhere.
    """
    try:
        given = {name: str(value) for name, value in conninfo_to_dict(url).items() if value is not None}
    except (psycopg.Error, UnicodeError):
        raise _unreadable() from None  # the cause quotes the URL
    # An @ or / of a password that is not encoded ends up in these.
    if "@" in given.get("host", "") + given.get("dbname", "") or not _is_port(given.get("port", "")):
        raise _unreadable()
    found = [value for name, value in given.items() if value and ("password" in name or "secret" in name)]
    secrets = {form for secret in found for form in (secret, quote(secret, safe=""))}
    remember(secrets)
    return Address(
        parameters={**_DEFAULTS, **given, **_ALWAYS},
        location=_location(given),
        search_path=_search_path(given.get("options", "")),
        secrets=tuple(sorted(secrets, key=len, reverse=True)),
    )


def _search_path(options: str) -> str:
    found = re.findall(r"(?:-c\s*|--)search[_-]path=((?:\\.|\S)*)", options)
    return re.sub(r"\\(.)", r"\1", found[-1]) if found else ""


def _is_port(port: str) -> bool:
    return all(number == "" or (number.isascii() and number.isdecimal()) for number in port.split(","))


def _location(given: Mapping[str, str]) -> str:
    user = f"{quote(given['user'], safe='')}@" if given.get("user") else ""
    host, port = given.get("host", ""), given.get("port", "")
    is_socket = host.startswith("/")
    place = "" if is_socket else _hosts(host, port)
    query = f"?host={host}" + (f"&port={port}" if port else "") if is_socket else ""
    return f"postgresql://{user}{place}/{quote(given.get('dbname', ''), safe='')}{query}"


def _hosts(host: str, port: str) -> str:
    hosts, ports = host.split(","), port.split(",")
    if len(ports) != len(hosts):
        ports = ports[:1] * len(hosts)
    shown = (f"[{name}]" if ":" in name else name for name in hosts)
    return ",".join(f"{name}:{number}" if number else name for name, number in zip(shown, ports, strict=True))


def _unreadable() -> ConfigurationError:
    return ConfigurationError(
        "The journal's address is not a PostgreSQL URL. Write it as postgresql://USER:PASSWORD@HOST:PORT/DATABASE, with "
        "special characters of the password percent-encoded (@ as %40, / as %2F)."
    )
