"""Access: who a request comes from, and what they may do. Holds no session of Treadle and reads no journal."""

import hashlib
import hmac
import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, TypeAlias

import msgspec

from treadle import ConfigurationError

__all__ = ["ROLES", "Access", "Login", "Person", "Token", "new_token"]

Role: TypeAlias = Literal["see", "answer", "operate"]
ROLES: tuple[Role, ...] = ("see", "answer", "operate")
"""Each may do what those before it may: look; answer what waits for a person; change sessions."""

_LINK_SECONDS = 600.0
_LOGIN_SECONDS = 12 * 3600.0
_MOST_LOGINS = 1000
_PROOFS = ("link", "token", "proxy")


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """A named token. Only its hash is kept.

    Example:
        token, secret = new_token("ada", role="answer", tenants=["acme"])
        app = web(journal, access=Access(tokens=[token]))
    """

    name: str
    """Who has it: the name that is recorded with each answer."""
    sha256: str
    """SHA-256 of the secret, in hexadecimal."""
    role: Role = "see"
    """`see`, `answer` or `operate`."""
    tenants: tuple[str, ...] | None = None
    """The tenants whose sessions it shows; None for all."""


def new_token(name: str, *, role: Role = "see", tenants: Iterable[str] | None = None) -> tuple[Token, str]:
    """Make a token, and the secret that its owner sends. The secret is kept nowhere.

    Raises:
        ConfigurationError: The name or the role is invalid.
    """
    secret = "tw_" + secrets.token_urlsafe(32)
    of_tenants = None if tenants is None else _texts("tenants", tenants)
    return checked_token(Token(name=name, sha256=_hashed(secret), role=role, tenants=of_tenants)), secret


def checked_token(token: Token) -> Token:
    """Return a token. Raises ConfigurationError: its name or its role is invalid."""
    if not isinstance(token, Token):
        raise ConfigurationError(f"A token is made by new_token(); got {token!r:.80}.")
    _check_text("A token's name", token.name)
    if not token.name.isprintable() or not 0 < len(token.name) <= 100 or token.name.endswith(")"):
        raise ConfigurationError(
            f"A token's name has 1 to 100 printable characters and does not end with ')'; got {token.name!r:.120}."
        )
    if not isinstance(token.role, str) or token.role not in ROLES:
        raise ConfigurationError(f"A token's role is one of {', '.join(ROLES)}; got {token.role!r:.80}.")
    return token


class Person(msgspec.Struct, frozen=True, kw_only=True):
    """Who asks."""

    name: str
    """The name, as it is recorded."""
    role: Role
    """What they may do."""
    proof: str
    """How the name was proven: `link`, `token` or `proxy`."""
    tenants: tuple[str, ...] | None = None
    """The tenants whose sessions they see; None for all."""

    @property
    def signature(self) -> str:
        """The name for the journal, with how it was proven. The command line refuses such a name, so nobody can claim one."""
        return f"{self.name} ({self.proof})"

    def may(self, role: Role) -> bool:
        """Whether they may do what this role may."""
        return ROLES.index(self.role) >= ROLES.index(role)

    def sees(self, tenant: str) -> bool:
        """Whether sessions of this tenant are shown to them."""
        return self.tenants is None or tenant in self.tenants


def is_proven(by: str) -> bool:
    """Whether a name of the journal was proven on the web page, and not only claimed."""
    return any(by.endswith(f" ({proof})") for proof in _PROOFS)


class Login(msgspec.Struct, frozen=True, kw_only=True):
    """A browser that has shown who uses it."""

    person: Person
    """Who uses it."""
    csrf: str
    """What its pages send with each change. Another site cannot read it."""
    until: float
    """When it ends, in seconds since 1970."""


class Access:
    """Who may use the web page.

    Without tokens and without a proxy, only one-time links let somebody in.

    Args:
        tokens: Named tokens: see `new_token`.
        proxy_header: A header in which a proxy in front of this page writes the name of a person whom it knows, such as
            `X-Forwarded-User`. Give it only if nobody can reach this page without that proxy: who sends the header is believed.
        proxy_role: What people of the proxy may do.
        hosts: The names under which the page is reached, such as `ops.example.com`, in addition to this machine's loopback names.

    Raises:
        ConfigurationError: A value is invalid.
    """

    def __init__(
        self,
        *,
        tokens: Sequence[Token] = (),
        proxy_header: str = "",
        proxy_role: Role = "answer",
        hosts: Sequence[str] = (),
    ) -> None:
        if not isinstance(proxy_role, str) or proxy_role not in ROLES:
            raise ConfigurationError(f"proxy_role is one of {', '.join(ROLES)}; got {proxy_role!r:.80}.")
        if not isinstance(tokens, Iterable):
            raise ConfigurationError(f"tokens are made by new_token(); got {tokens!r:.80}.")
        _check_text("proxy_header", proxy_header)
        self.tokens = tuple(checked_token(token) for token in tokens)
        self.proxy_header = proxy_header.lower()
        self._proxy_role: Role = proxy_role
        self.hosts = frozenset(host.lower() for host in _texts("hosts", hosts))
        self._links: dict[str, tuple[Person, float]] = {}
        self._logins: dict[str, Login] = {}

    @staticmethod
    def new_csrf() -> str:
        """Return what no other site can guess."""
        return secrets.token_urlsafe(24)

    # --- ways in

    def new_link(self, name: str, *, role: Role = "operate") -> str:
        """Return a key that lets one browser in, once, within ten minutes."""
        _check_text("A name", name)
        if not isinstance(role, str) or role not in ROLES:
            raise ConfigurationError(f"A role is one of {', '.join(ROLES)}; got {role!r:.80}.")
        key = secrets.token_urlsafe(24)
        self._links[_hashed(key)] = (Person(name=name, role=role, proof="link"), time.time() + _LINK_SECONDS)
        return key

    def take_link(self, key: str) -> str | None:
        """Return the cookie of a new login for a one-time key; None where it is unknown, used or too old."""
        person, until = self._links.pop(_hashed(key), (None, 0.0))
        return None if person is None or time.time() > until else self.log_in(person)

    def log_in(self, person: Person) -> str:
        """Return the cookie of a new login."""
        if not isinstance(person, Person):
            raise ConfigurationError(f"A login is of a Person; got {person!r:.80}.")
        now = time.time()
        self._logins = {key: one for key, one in self._logins.items() if one.until > now}
        while len(self._logins) >= _MOST_LOGINS:
            del self._logins[next(iter(self._logins))]
        cookie = secrets.token_urlsafe(32)
        self._logins[_hashed(cookie)] = Login(person=person, csrf=self.new_csrf(), until=now + _LOGIN_SECONDS)
        return cookie

    def log_out(self, cookie: str) -> None:
        """End a login."""
        self._logins.pop(_hashed(cookie), None)

    # --- who it is

    def of_cookie(self, cookie: str) -> Login | None:
        """Return the login of a cookie; None where there is none, or where it has ended."""
        found = self._logins.get(_hashed(cookie)) if cookie else None
        return found if found is not None and found.until > time.time() else None

    def of_secret(self, secret: str) -> Person | None:
        """Return whose token this is; None for nobody's."""
        hashed = _hashed(secret)
        found = [token for token in self.tokens if hmac.compare_digest(token.sha256.lower(), hashed)]
        if not found:
            return None
        return Person(name=found[0].name, role=found[0].role, proof="token", tenants=found[0].tenants)

    def of_proxy(self, headers: Mapping[str, str]) -> Person | None:
        """Return whom the proxy names; None without one."""
        if not isinstance(headers, Mapping):
            raise ConfigurationError(f"Headers are a mapping; got {headers!r:.80}.")
        name = headers.get(self.proxy_header, "").strip() if self.proxy_header else ""
        if not name or not name.isprintable() or len(name) > 100 or name.endswith(")"):
            return None
        return Person(name=name, role=self._proxy_role, proof="proxy")


def _hashed(secret: str) -> str:
    _check_text("A secret", secret)
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def _texts(what: str, values: object) -> tuple[str, ...]:
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise ConfigurationError(f"{what} are several texts; got {values!r:.80}.")
    found = tuple(values)
    for one in found:
        _check_text(f"Each of {what}", one)
    return found


def _check_text(what: str, value: object) -> None:
    if not isinstance(value, str):
        raise ConfigurationError(f"{what} is text; got {value!r:.80}.")
