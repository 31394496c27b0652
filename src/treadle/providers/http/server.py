"""Server: where one model is asked, as whom, and what it means when the server says no. Knows no dialect and no model."""

from collections.abc import Mapping
from contextlib import closing

import msgspec

from treadle.errors import ConfigurationError, check_kind
from treadle.providers.http.answer import Answer
from treadle.providers.http.client import CloudEndpoint, Credentials, Outgoing, shared_client
from treadle.providers.http.endpoint import Endpoint, Timeouts, secrets_of
from treadle.providers.http.failures import read_failure

__all__ = ["DEFAULT_TIMEOUTS", "Key", "Server", "model_name"]

DEFAULT_TIMEOUTS = Timeouts()


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """An API key, and how a vendor wants it."""

    value: str | None
    """As the person gave it; None for a server that wants none."""
    header: str
    """What carries it."""
    prefix: str = ""
    """What comes before it there."""
    variable: str
    """Where people set it, for advice; empty where there is no such place."""


class Server:
    """Where the requests of one model go, and with whose key.

    Args:
        base_url: As the person gave it.
        path: What the dialect adds to it, such as `chat/completions`; not added twice.
        own_headers: Headers of the dialect.
        headers: Headers of the person, which replace those of the dialect and the key's.
        timeouts: Of every request.
        cloud_endpoint: What a cloud's own address has otherwise; None for the dialect's own.
        version: What the dialect's own addresses end in, for advice.

    Raises:
        ConfigurationError: The URL, the key or a header cannot be used.
    """

    def __init__(
        self,
        base_url: str,
        path: str,
        *,
        key: Key,
        own_headers: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None,
        timeouts: Timeouts,
        cloud_endpoint: CloudEndpoint | None = None,
        version: str = "/v1",
    ) -> None:
        check_kind("base_url", base_url, str, "an address, such as https://api.example.org/v1")
        check_kind("cloud_endpoint", cloud_endpoint, (CloudEndpoint, type(None)), "a CloudEndpoint or None")
        cloud_endpoint = CloudEndpoint(name="") if cloud_endpoint is None else cloud_endpoint
        key = _key_at(cloud_endpoint, key)
        value = key.value.strip() if key.value else ""
        made = {"Content-Type": "application/json", **(own_headers or {})}
        if value:
            made[key.header] = key.prefix + value
        self.endpoint = Endpoint(
            base_url,
            path if cloud_endpoint.path is None else cloud_endpoint.path,
            headers={**made, **(headers or {})},
            timeouts=timeouts,
            secrets=secrets_of(value, headers),
            is_encoded=cloud_endpoint.path is not None,
            version=version if cloud_endpoint.path is None else "",
        )
        self._credentials = cloud_endpoint.credentials
        self._own_headers = frozenset(name.lower() for name in headers or {})
        self._key_advice = _advice(key.variable, has_key=bool(value))

    async def ask(self, body: bytes) -> Answer:
        """Send one request; return its answer, which is a success and has to be closed.

        Raises:
            ModelError: There was no answer, or the server said no; the class says whether another attempt may help.
        """
        credentials = self._credentials
        auth_headers = None if credentials is None else await self._auth_headers(credentials, body)
        answer = await shared_client.send(self.endpoint, body, headers=auth_headers)
        if answer.status == 401 and credentials is not None and credentials.renew():
            answer.close()
            answer = await shared_client.send(self.endpoint, body, headers=await self._auth_headers(credentials, body))
        if 200 <= answer.status < 300:
            return answer
        with closing(answer):
            raise await read_failure(answer, key_advice=self._key_advice if credentials is None else credentials.advice)

    async def _auth_headers(self, credentials: Credentials, body: bytes) -> Mapping[str, str]:
        """Return the headers that prove who asks; none of those that the person set."""
        endpoint = self.endpoint
        content_type = endpoint.headers.get("Content-Type", "")
        auth_headers = await credentials.auth_headers(
            Outgoing(url=str(endpoint.url), content_type=content_type, body=body)
        )
        endpoint.hide(auth_headers.secrets)
        return {name: value for name, value in auth_headers.headers.items() if name.lower() not in self._own_headers}


def model_name(dialect: str, model: str) -> str:
    """Return the name of a model with its dialect, such as `openai-chat:gpt-5-mini`.

    Raises:
        ConfigurationError: It is empty.
    """
    check_kind("model", model, str, "the name of a model, as text")
    if not model.strip() or not model.isprintable():
        raise ConfigurationError(
            f"The model's name is empty, or is not text on one line. Write {dialect}:NAME, with the name that the server knows."
        )
    return f"{dialect}:{model}"


def _key_at(cloud_endpoint: CloudEndpoint, key: Key) -> Key:
    """Return the key as a cloud wants it."""
    if cloud_endpoint.key_header is not None:
        prefix = "Bearer " if cloud_endpoint.key_header.lower() == "authorization" else ""
        key = msgspec.structs.replace(key, header=cloud_endpoint.key_header, prefix=prefix)
    return (
        key
        if cloud_endpoint.key_variable is None
        else msgspec.structs.replace(key, variable=cloud_endpoint.key_variable)
    )


def _advice(variable: str, *, has_key: bool) -> str:
    """Return what to check where the key is refused."""
    if has_key:
        read_from = f", or the variable that it was read from, such as {variable}" if variable else ""
        return f"Check the API key (api_key={read_from}) and what it may use."
    return f"No API key was sent: set api_key={f', or {variable}' if variable else ''}."
