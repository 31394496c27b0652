"""Azure: where the deployments of OpenAI's models are, and who asks there: a key, or an Entra identity, as tokens that expire.

Entra's identities are those of azure-identity (the extra `azure`), loaded with the first request.
"""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from treadle.errors import ConfigurationError, ModelRejected, ModelUnavailable
from treadle.providers.clouds.fetching import Asked, Reached, Token, TokenCredentials, given_token, need, text_option
from treadle.providers.http.client import CloudEndpoint

__all__ = ["chat_endpoint", "responses_endpoint"]

_VERSION_VARIABLES = ("AZURE_OPENAI_API_VERSION", "OPENAI_API_VERSION")
_ADDRESS_VARIABLES = ("AZURE_OPENAI_ENDPOINT",)
_VERSION = re.compile(r"[a-zA-Z0-9.-]{1,40}")
_HOSTS = re.compile(r"\.azure\.(com|us|cn)\.?$")
_HINTS = (
    *("AZURE_CLIENT_ID", "AZURE_TENANT_ID", "AZURE_FEDERATED_TOKEN_FILE"),
    *("IDENTITY_ENDPOINT", "MSI_ENDPOINT", "AZURE_TOKEN_CREDENTIALS"),
)
"""Variables that say that there is an Entra identity."""
_ADVICE = "Check the Entra login (`az login`), and that it has the role `Cognitive Services OpenAI User` on the resource; or set AZURE_API_KEY."


def chat_endpoint(asked: Asked) -> Reached:
    """Find the way to a deployment in Chat Completions.

    Raises:
        ConfigurationError: The address is missing, or an option is wrong.
        MissingCredential: There is no key, and no identity to ask as.
    """
    return _reached(asked, is_deployments=True)


def responses_endpoint(asked: Asked) -> Reached:
    """Find the way to a deployment in Responses, which has no place below a deployment: the body names it. Raises as `chat_endpoint`."""
    return _reached(asked, is_deployments=False)


def _reached(asked: Asked, *, is_deployments: bool) -> Reached:
    given = asked.base_url or next((url for name in _ADDRESS_VARIABLES if (url := asked.environment.get(name))), None)
    if given is None:
        raise ConfigurationError(
            f"{asked.name} has no address of its own: set AZURE_BASE_URL, or base_url, to the resource "
            "(https://NAME.openai.azure.com) or to one of its deployments."
        )
    version = text_option(asked.options, "api_version", "2025-04-01-preview")
    base_url = _address(given, asked, version=version, is_deployments=is_deployments)
    key = asked.api_key if isinstance(asked.api_key, str) and asked.api_key else None
    return Reached(
        base_url=base_url,
        api_key=key,
        cloud_endpoint=CloudEndpoint(
            name=asked.name,
            credentials=None if key or asked.proves_itself else _credentials(asked, base_url),
            key_header="api-key",
            key_variable="AZURE_API_KEY",
        ),
        options={name: value for name, value in asked.options.items() if name != "api_version"},
        is_vendors=bool(_HOSTS.search(urlsplit(base_url).hostname or "")),
    )


def _address(base_url: str, asked: Asked, *, version: str | None, is_deployments: bool) -> str:
    """Return the address up to the dialect's own path.

    A resource alone is completed: with an API version to the form of deployments, and else to `/openai/v1`, which needs none. Any other
    path is taken as it is: a deployment's, a gateway's.
    """
    parts = urlsplit(base_url.strip())
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    path = parts.path.rstrip("/")
    if path in ("", "/openai"):
        version = version or query.get("api-version") or _first(asked.environment)
        if version is None:
            path = "/openai/v1"
        else:
            path = f"/openai/deployments/{quote(asked.model, safe='')}" if is_deployments else "/openai"
    if version is not None and "/openai/v1" not in path:
        if not _VERSION.fullmatch(version):
            raise ConfigurationError(
                f"{version!r:.60} is not an API version of Azure. Write it as '2025-04-01-preview'."
            )
        query = {**query, "api-version": version}
    return urlunsplit(parts._replace(path=path, query=urlencode(query)))


def _first(environment: Mapping[str, str]) -> str | None:
    return next((environment[name] for name in _VERSION_VARIABLES if environment.get(name)), None)


def _credentials(asked: Asked, base_url: str) -> TokenCredentials | None:
    """Return who asks; None for a server of one's own, where nothing says that there is an identity."""
    host = urlsplit(base_url).hostname or ""
    if callable(fetch := asked.api_key):
        return TokenCredentials(given_token(fetch), advice=_ADVICE, what="The Entra token")
    is_azure = _HOSTS.search(host) is not None
    if not is_azure and not any(asked.environment.get(name) for name in _HINTS):
        return None
    need("azure.identity", extra="azure", why=f"{asked.name} without AZURE_API_KEY asks as an Entra identity, and")
    found = _HOSTS.search(host)
    cloud = found[1] if found else "com"
    return TokenCredentials(
        _Entra(f"https://cognitiveservices.azure.{cloud}/.default").fetch, advice=_ADVICE, what="The Entra token"
    )


class _Entra:
    """The identity of the environment: a service principal, a workload, the machine's own, or the person's login."""

    def __init__(self, scope: str) -> None:
        self._scope = scope
        self._found: Any = None  # Any: the library's credential, loaded late

    def fetch(self) -> Token:
        """Fetch a token. Runs in a thread: it may read files, start programs and ask servers."""
        from azure.core import exceptions as refused  # noqa: PLC0415 - an extra, loaded with the first request
        from azure.identity import DefaultAzureCredential  # noqa: PLC0415 - the same

        try:
            if self._found is None:
                self._found = DefaultAzureCredential()
            token = self._found.get_token(self._scope)
        except (refused.ServiceRequestError, refused.ServiceResponseError) as exc:
            raise ModelUnavailable("The server that gives Entra tokens cannot be reached.") from exc
        except (refused.AzureError, ValueError, OSError) as exc:
            said = " ".join(str(exc).split())[:200]
            raise ModelRejected(f"Entra refuses the login ({said}). {_ADVICE}") from None
        return Token(value=token.token, expires_at=float(token.expires_on))
