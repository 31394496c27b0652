"""AWS: where the runtime of Bedrock is, and who asks there: a bearer key, or an identity of AWS's chain, whose requests are signed.

The signer and the chain are botocore's own (the extra `bedrock`), loaded with the first request.
"""

import configparser
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from treadle.errors import ConfigurationError, MissingCredential, ModelRejected, ModelUnavailable
from treadle.providers.clouds.fetching import Asked, Reached, Shared, TokenCredentials, given_token, need, text_option
from treadle.providers.http.client import AuthHeaders, CloudEndpoint, Credentials, Outgoing

__all__ = ["AwsSignatures", "converse_endpoint", "invoke_endpoint"]

_KEY_VARIABLE = "AWS_BEARER_TOKEN_BEDROCK"
_INVOKE_VERSION = "bedrock-2023-05-31"
_REGION = re.compile(r"[a-z]{2}(-[a-z]+)+-\d+")
_ARN = re.compile(r"arn:aws[^:]*:[^:]*:(?P<region>[a-z0-9-]+):")
_ENDPOINT_VARIABLES = ("AWS_ENDPOINT_URL_BEDROCK_RUNTIME", "AWS_ENDPOINT_URL")
_HINTS = (
    *("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_WEB_IDENTITY_TOKEN_FILE"),
    *(
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
        "AWS_EC2_METADATA_SERVICE_ENDPOINT",
    ),
)
"""Variables that say that there are credentials to be found."""
_MAKERS = ("/sys/devices/virtual/dmi/id/sys_vendor", "/sys/devices/virtual/dmi/id/bios_vendor")
"""Where a machine says who runs it."""

_ADVICE = (
    "Check the AWS credentials (`aws sts get-caller-identity`), the region, and whether the account may use this model "
    "(Bedrock > Model access)."
)


def converse_endpoint(asked: Asked) -> Reached:
    """Find the way to a model of Bedrock in the Converse dialect.

    Raises:
        ConfigurationError: The region is missing, or an option is wrong.
        MissingCredential: There is no key, and no identity to sign with.
    """
    return _reached(asked, CloudEndpoint(name=asked.name))


def invoke_endpoint(asked: Asked) -> Reached:
    """Find the way to Claude at Bedrock's InvokeModel, which speaks Anthropic's dialect. Raises as `converse_endpoint` does."""
    way = "invoke-with-response-stream" if asked.stream else "invoke"
    return _reached(
        asked,
        CloudEndpoint(
            name=asked.name,
            path=f"model/{quote(asked.model, safe='')}/{way}",
            fields={"model": None, "stream": None, "anthropic_version": _INVOKE_VERSION},
            is_framed=True,
            key_header="Authorization",
            key_variable=_KEY_VARIABLE,
        ),
    )


def _region_of(asked: Asked) -> str | None:
    """Return the region: of the option, of the model's ARN, of the environment, or of the profile; None where nobody says."""
    environment = asked.environment
    found = _ARN.match(asked.model)
    region = (
        text_option(asked.options, "region", "us-east-1")
        or (found["region"] if found else None)
        or environment.get("AWS_REGION")
        or environment.get("AWS_DEFAULT_REGION")
        or _profile(asked).get("region")
    )
    if region is not None and not _REGION.fullmatch(region):
        raise ConfigurationError(f"{region!r:.60} is not a region of AWS. Write it as 'us-east-1'.")
    return region


def _reached(asked: Asked, cloud_endpoint: CloudEndpoint) -> Reached:
    region = _region_of(asked)
    base_url = asked.base_url or next(
        (url for name in _ENDPOINT_VARIABLES if (url := asked.environment.get(name))), None
    )
    if base_url is None and region is None:
        raise ConfigurationError(
            f"{asked.name}: the AWS region is missing. Set AWS_REGION (export AWS_REGION=us-east-1), give the model options={{'region': "
            "'us-east-1'}, or set a region in the profile."
        )
    key = None if callable(asked.api_key) else asked.api_key
    credentials: Credentials | None = None
    if callable(asked.api_key):
        credentials = TokenCredentials(given_token(asked.api_key), advice=_ADVICE, what="The Bedrock token")
    elif not key and not asked.proves_itself:
        credentials = _signatures(asked, region, is_own=base_url is not None)
    return Reached(
        base_url=base_url or _address(region or ""),
        api_key=key,
        cloud_endpoint=msgspec.structs.replace(cloud_endpoint, credentials=credentials),
        options={name: value for name, value in asked.options.items() if name not in ("region", "profile")},
        is_vendors=base_url is None,
    )


def _address(region: str) -> str:
    return f"https://bedrock-runtime.{region}.amazonaws.com{'.cn' if region.startswith('cn-') else ''}"


def _signatures(asked: Asked, region: str | None, *, is_own: bool) -> "AwsSignatures | None":
    """Return who signs; None for a server of one's own, where nothing says that there is an identity."""
    profile = text_option(asked.options, "profile", "default")
    if not profile and not _is_somebody(asked.environment):
        if is_own:
            return None
        raise MissingCredential(
            f"No AWS credentials were found. Set {_KEY_VARIABLE} to a Bedrock API key, set AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY, or log in with `aws configure` or `aws sso login`."
        )
    need("botocore", extra="bedrock", why=f"{asked.name} with AWS credentials (instead of {_KEY_VARIABLE})")
    if region is None:
        raise ConfigurationError(
            f"{asked.name}: a request cannot be signed without a region. Set AWS_REGION (export AWS_REGION=us-east-1)."
        )
    return AwsSignatures(region=region, profile=profile)


def _is_somebody(environment: Mapping[str, str]) -> bool:
    """Return whether anything says that there are credentials, without asking for them."""
    if any(environment.get(name) for name in _HINTS) or any(path.is_file() for path in _files(environment)):
        return True
    is_off = environment.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true"
    return not is_off and any(_first_line(place).startswith("Amazon") for place in _MAKERS)


def _files(environment: Mapping[str, str]) -> list[Path]:
    home = Path(environment.get("HOME") or Path.home())
    named = (("AWS_SHARED_CREDENTIALS_FILE", "credentials"), ("AWS_CONFIG_FILE", "config"))
    return [Path(environment.get(name) or home / ".aws" / file).expanduser() for name, file in named]


def _profile(asked: Asked) -> Mapping[str, str]:
    """Return what the file of AWS's tools says of the profile; nothing where there is none."""
    environment = asked.environment
    name = asked.options.get("profile") or environment.get("AWS_PROFILE") or environment.get("AWS_DEFAULT_PROFILE")
    parser = configparser.RawConfigParser()
    try:
        parser.read(_files(environment)[1], encoding="utf-8")
    except (configparser.Error, OSError, UnicodeError):
        return {}
    section = "default" if name in (None, "default") else f"profile {name}"
    return dict(parser[section]) if parser.has_section(section) else {}


def _first_line(place: str) -> str:
    try:
        return Path(place).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


class AwsSignatures:
    """Signs requests with an identity of AWS's chain: keys, a profile, SSO, a role, the machine's own.

    Args:
        region: The region that answers.
        profile: Of the files of AWS's tools; None for what the environment says.
        service: What the vendor calls the service in a signature.
    """

    advice = _ADVICE

    def __init__(self, *, region: str, profile: str | None = None, service: str = "bedrock") -> None:
        self._region = region
        self._profile = profile
        self._service = service
        self._found: Any = None  # Any: the library has no types; its credentials, which replace themselves in time
        self._frozen = Shared(self._freeze, what="AWS credentials")

    async def auth_headers(self, request: Outgoing) -> AuthHeaders:
        """Return the headers of a signed request.

        Raises:
            ModelRejected: There are no credentials.
            ModelUnavailable: They could not be had just now.
        """
        frozen = await self._frozen.get() if self._is_due() else self._found.get_frozen_credentials()
        from botocore.auth import SigV4Auth  # noqa: PLC0415 - an extra, loaded with the first request
        from botocore.awsrequest import AWSRequest  # noqa: PLC0415 - the same

        signed = AWSRequest(
            method="POST", url=request.url, data=request.body, headers={"Content-Type": request.content_type}
        )
        SigV4Auth(frozen, self._service, self._region).add_auth(signed)
        return AuthHeaders(headers=dict(signed.headers.items()), secrets=(frozen.token or "", frozen.secret_key or ""))

    def renew(self) -> bool:
        """Return False: the library replaces its credentials itself."""
        return False

    def _is_due(self) -> bool:
        """Whether the credentials must be found or replaced, which may ask a server."""
        found = self._found
        return found is None or (hasattr(found, "refresh_needed") and bool(found.refresh_needed()))

    def _freeze(self) -> Any:
        """Return the credentials as they are now. Runs in a thread: the chain may read files, ask servers and start programs."""
        from botocore import exceptions as refused  # noqa: PLC0415 - an extra, loaded with the first request

        passing = (refused.ConnectionError, refused.HTTPClientError, refused.MetadataRetrievalError)
        lasting = (refused.BotoCoreError, refused.ClientError, ValueError, OSError)
        try:
            found = self._found or self._first()
            frozen = found.get_frozen_credentials() if found is not None else None
        except passing as exc:
            raise ModelUnavailable(f"AWS cannot check the login at the moment ({type(exc).__name__}).") from exc
        except lasting as exc:
            raise ModelRejected(f"AWS refuses the login ({exc}). {self.advice}") from exc
        if frozen is None:
            raise ModelRejected(f"No AWS credentials were found. {self.advice}")
        self._found = found
        return frozen

    def _first(self) -> Any:
        from botocore.session import Session  # noqa: PLC0415 - an extra, loaded with the first request

        return Session(profile=self._profile).get_credentials()
