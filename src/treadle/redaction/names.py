"""Names: which fields, variables and parts of an address hold a secret, by their names."""

import re
from collections.abc import Mapping
from urllib.parse import unquote

__all__ = ["is_secret_name", "known", "secrets_of_address"]

_NAMES = frozenset(
    {
        "authorization",
        "awsbearertokenbedrock",
        "bearer",
        "cookie",
        "passphrase",
        "passwd",
        "proxyauthorization",
        "setcookie",
    }
)
_QUERY_NAMES = frozenset({"auth", "code", "key", "sig", "signature", "subscription-key"})
_ENDINGS = ("auth", "password", "secret", "apikey", "accesskey", "secretkey", "privatekey", "token", "credentials")
_USERINFO = re.compile(r"""://([^\s/@"'<>\\]{1,512})@""")


def is_secret_name(name: str) -> bool:
    """Whether a field or variable by this name holds a secret: `api_key`, `DB_PASSWORD`, `client-secret`."""
    plain = re.sub("[^a-z0-9]", "", name[-100:].lower())
    return plain in _NAMES or plain.endswith(_ENDINGS)


def known(environment: Mapping[str, str]) -> list[str]:
    """Return the values of an environment that are secrets: by the variable's name, and those inside addresses."""
    named = [value for name, value in environment.items() if is_secret_name(name)]
    return named + [secret for value in environment.values() if "://" in value for secret in secrets_of_address(value)]


def secrets_of_address(address: str) -> list[str]:
    """Return what of an address is secret: its password (of the web the user, too), and its query where that holds a key."""
    is_web = address.strip()[:4].lower() == "http"
    found = [one.partition(":")[2] or (one if is_web else "") for one in _USERINFO.findall(address)]
    query = address.partition("?")[2].partition("#")[0]
    for pair in query.split("&")[:50]:
        name, _, value = pair.partition("=")
        if is_secret_name(name) or name.lower() in _QUERY_NAMES:
            found.append(value)
    return [form for one in found for form in (one, unquote(one)) if form]
