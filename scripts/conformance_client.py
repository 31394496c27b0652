"""The client that the MCP conformance suite starts, with a server's address: Treadle, in a run that makes the scenario's call.

Not part of Treadle: a person who signs in, and the place where tokens are kept. The scenarios on signing in need both.
"""

import asyncio
import json
import os
import sys
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
from mcp.client.auth import OAuthClientProvider
from mcp.client.auth.extensions.client_credentials import (
    ClientCredentialsOAuthProvider,
    PrivateKeyJWTOAuthProvider,
    SignedJWTParameters,
)
from mcp.client.auth.extensions.identity_assertion import IdentityAssertionOAuthProvider
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthClientMetadata, OAuthToken

from treadle import Agent, ToolCall, allow, mcp_server
from treadle.testing import ScriptedModel, call, text

__all__ = ["CALLS", "main"]

CALLS: dict[str, ToolCall | None] = {
    "initialize": None,
    "tools_call": call("mcp__suite__add_numbers", a=2, b=3),
    "elicitation-sep1034-client-defaults": call("mcp__suite__test_client_elicitation_defaults"),
    "sse-retry": call("mcp__suite__test_reconnection"),
}
"""What the model asks for, by the scenario; None where a connection is all. Those on signing in have one tool."""
_SIGNED_IN = call("mcp__suite__test-tool")
_RETURN_TO = "http://localhost:3030/callback"
_METADATA = "https://conformance-test.local/client-metadata.json"


async def main(scenario: str, url: str) -> int:
    """Run one scenario; return 0 where the run completed and its call succeeded."""
    is_signed = scenario.startswith("auth/")
    asked = _SIGNED_IN if is_signed else CALLS[scenario]
    server = mcp_server("suite", url=url, ask=_accept, auth=_provider(url) if is_signed else None)
    model = ScriptedModel([*([] if asked is None else [asked]), text("Done.")])
    result = await Agent(model, tools=[server], policy=allow("*"), subscribers=[_say]).run("Go")
    answers = [one for message in result.messages for one in message.results]
    return 0 if result.completed and not any(one.is_error for one in answers) else 1


def _say(event: Any) -> None:
    if event.type in ("toolset.failed", "tool.finished"):
        print(event, file=sys.stderr)


async def _accept(question: str, schema: dict[str, Any]) -> dict[str, Any]:
    """Answer a form as a person does who changes nothing in it."""
    return {}


# --- a person who signs in


class _Kept:
    """Tokens, for as long as this process."""

    def __init__(self, client: OAuthClientInformationFull | None = None) -> None:
        self._tokens: OAuthToken | None = None
        self._client = client

    async def get_tokens(self) -> OAuthToken | None:
        return self._tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self._tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self._client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self._client = client_info


class _Person:
    """Opens the page that the server names, and is sent back with a code."""

    def __init__(self) -> None:
        self._returned: dict[str, list[str]] = {}

    async def sign_in(self, url: str) -> None:
        async with httpx2.AsyncClient() as browser:
            answer = await browser.get(url)
        self._returned = parse_qs(urlsplit(answer.headers["location"]).query)

    async def returned(self) -> AuthorizationCodeResult:
        first = {name: values[0] for name, values in self._returned.items()}
        return AuthorizationCodeResult(code=first["code"], state=first.get("state"), iss=first.get("iss"))


def _provider(url: str) -> httpx2.Auth:
    known = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
    match known:
        case {"idp_token_endpoint": _}:
            return _of_company(url, known)
        case {"client_id": client_id, "private_key_pem": key, "signing_algorithm": algorithm}:
            signing = SignedJWTParameters(
                issuer=client_id, subject=client_id, signing_key=key, signing_algorithm=algorithm
            )
            return PrivateKeyJWTOAuthProvider(
                url, _Kept(), client_id, assertion_provider=signing.create_assertion_provider()
            )
        case {"client_id": client_id, "client_secret": secret} if _is_machine():
            return ClientCredentialsOAuthProvider(url, _Kept(), client_id, secret)
    metadata = {"client_name": "treadle", "redirect_uris": [_RETURN_TO]}
    registered = {name: known[name] for name in ("client_id", "client_secret") if name in known}
    how = {"token_endpoint_auth_method": "client_secret_basic"}
    client = OAuthClientInformationFull.model_validate({**metadata, **how, **registered}) if registered else None
    person = _Person()
    return OAuthClientProvider(
        url,
        OAuthClientMetadata.model_validate(metadata),
        _Kept(client),
        redirect_handler=person.sign_in,
        callback_handler=person.returned,
        client_metadata_url=_METADATA,
    )


def _of_company(url: str, known: dict[str, str]) -> IdentityAssertionOAuthProvider:
    """Return what signs in with the identity that a company's own service has vouched for."""
    place = urlsplit(url)
    about = httpx2.get(f"{place.scheme}://{place.netloc}/.well-known/oauth-protected-resource{place.path}").json()

    async def vouched(audience: str, resource: str) -> str:
        kind = "urn:ietf:params:oauth:token-type"
        form = {
            "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
            "requested_token_type": f"{kind}:id-jag",
            "subject_token_type": f"{kind}:id_token",
            "subject_token": known["idp_id_token"],
            "client_id": known["idp_client_id"],
            "audience": audience,
            "resource": resource,
        }
        async with httpx2.AsyncClient() as company:
            answer = await company.post(known["idp_token_endpoint"], data=form)
        return str(answer.json()["access_token"])

    return IdentityAssertionOAuthProvider(
        url,
        _Kept(),
        known["client_id"],
        known["client_secret"],
        issuer=about["authorization_servers"][0],
        assertion_provider=vouched,
        token_endpoint_auth_method="client_secret_basic",
    )


def _is_machine() -> bool:
    return "client-credentials" in os.environ["MCP_CONFORMANCE_SCENARIO"]


if __name__ == "__main__":
    sys.exit(asyncio.run(main(os.environ["MCP_CONFORMANCE_SCENARIO"], sys.argv[1])))
