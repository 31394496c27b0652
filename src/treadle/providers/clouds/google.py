"""Google: where the models of Vertex AI are, and who asks there: the credentials of the environment, as tokens that expire.

The credentials are those of google-auth (the extra `vertex`), loaded with the first request.
"""

import json
import re
from collections.abc import Mapping
from datetime import UTC
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from treadle.errors import ConfigurationError, MissingCredential, ModelError, ModelRejected, ModelUnavailable
from treadle.providers.clouds.fetching import Asked, Reached, Token, TokenCredentials, given_token, need, text_option
from treadle.providers.http.client import CloudEndpoint

__all__ = ["claude_endpoint", "gemini_endpoint"]

_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_CLAUDE_VERSION = "vertex-2023-10-16"
_PROJECT_VARIABLES = ("GOOGLE_CLOUD_PROJECT", "GOOGLE_VERTEX_PROJECT", "ANTHROPIC_VERTEX_PROJECT_ID", "GCLOUD_PROJECT")
_LOCATION_VARIABLES = ("GOOGLE_CLOUD_LOCATION", "GOOGLE_VERTEX_LOCATION", "CLOUD_ML_REGION", "GOOGLE_CLOUD_REGION")
_LOCATION = re.compile(r"[a-z0-9-]{1,63}")
_PROJECT = re.compile(r"[a-z0-9:.-]{1,100}")
_HINTS = ("GOOGLE_APPLICATION_CREDENTIALS", "GCE_METADATA_HOST", "GCE_METADATA_IP", "K_SERVICE", "GAE_SERVICE")
"""Variables that say that there are credentials to be found."""
_MAKER = "/sys/devices/virtual/dmi/id/product_name"
"""Where a machine says who runs it."""
_EDITIONS = frozenset({"eu", "us"})
"""Locations of several regions: they have hosts of another form."""

_ADVICE = (
    "Check the Google credentials (`gcloud auth application-default print-access-token`), the project, and that it may use "
    "Vertex AI and this model."
)


def gemini_endpoint(asked: Asked) -> Reached:
    """Find the way to Gemini on Vertex.

    Raises:
        ConfigurationError: The project or the location is missing or invalid.
        MissingCredential: There is nobody to ask as.
    """
    return _reached(asked, "google", "streamGenerateContent" if asked.stream else "generateContent", {})


def claude_endpoint(asked: Asked) -> Reached:
    """Find the way to Claude on Vertex, which speaks Anthropic's dialect. Raises as `gemini_endpoint` does."""
    fields = {"model": None, "stream": asked.stream or None, "anthropic_version": _CLAUDE_VERSION}
    return _reached(asked, "anthropic", "streamRawPredict" if asked.stream else "rawPredict", fields)


def _reached(asked: Asked, publisher: str, method: str, fields: Mapping[str, Any]) -> Reached:
    key = asked.api_key if isinstance(asked.api_key, str) and asked.api_key else None
    location = _location(asked)
    if asked.model.startswith("projects/"):  # a tuned model, at an endpoint of its own
        path = quote(asked.model, safe="/@:")
    else:
        model = quote(asked.model.removeprefix(f"publishers/{publisher}/models/"), safe="@")
        path = f"{_place(asked, needs_one=key is None)}publishers/{publisher}/models/{model}"
    cloud_endpoint = CloudEndpoint(
        name=asked.name,
        path=f"{path}:{method}",
        fields=fields,
        credentials=None if key or asked.proves_itself else _credentials(asked),
        key_header="x-goog-api-key",
        key_variable="VERTEX_API_KEY",
    )
    return Reached(
        base_url=_with_version(asked.base_url) if asked.base_url else _address(location),
        api_key=key,
        cloud_endpoint=cloud_endpoint,
        options={name: value for name, value in asked.options.items() if name not in ("project", "location")},
        is_vendors=asked.base_url is None,
    )


def _place(asked: Asked, *, needs_one: bool) -> str:
    """Return the part of the path that names project and location; nothing for a key, which belongs to a project, or where the
    address names them."""
    if asked.base_url is not None and "/projects/" in asked.base_url:
        return ""
    project = text_option(asked.options, "project", "my-project") or _first(asked.environment, _PROJECT_VARIABLES)
    if project is None and needs_one:
        project = _project_of_file(asked.environment)
    if project is None:
        if needs_one and asked.base_url is None:
            raise ConfigurationError(
                f"{asked.name}: the Google Cloud project is missing. Set GOOGLE_CLOUD_PROJECT (export GOOGLE_CLOUD_PROJECT=my-project), or "
                "give the model options={'project': 'my-project'}."
            )
        return ""
    if not _PROJECT.fullmatch(project):
        raise ConfigurationError(f"{project!r:.120} is not the id of a Google Cloud project. Write it as 'my-project'.")
    return f"projects/{quote(project, safe=':')}/locations/{_location(asked)}/"


def _location(asked: Asked) -> str:
    """Return the location. `global` serves from everywhere."""
    given = text_option(asked.options, "location", "us-central1")
    location = given or _first(asked.environment, _LOCATION_VARIABLES) or "global"
    if not _LOCATION.fullmatch(location):
        raise ConfigurationError(
            f"{location!r:.60} is not a location of Google Cloud. Write it as 'us-central1' or 'global'."
        )
    return location


def _address(location: str) -> str:
    if location == "global":
        return "https://aiplatform.googleapis.com/v1"
    if location in _EDITIONS:
        return f"https://aiplatform.{location}.rep.googleapis.com/v1"
    return f"https://{location}-aiplatform.googleapis.com/v1"


def _with_version(base_url: str) -> str:
    """Return the address with the API's version: people and the vendor's SDKs write the host alone."""
    return base_url if urlsplit(base_url).path.strip("/") else f"{base_url.rstrip('/')}/v1"


def _credentials(asked: Asked) -> TokenCredentials | None:
    """Return who asks; None for a server of one's own, where nothing says that there is an identity."""
    fetch = asked.api_key
    if callable(fetch):
        return TokenCredentials(given_token(fetch), advice=_ADVICE, what="The Google token")
    if not _is_somebody(asked.environment):
        if asked.base_url is not None:
            return None
        raise MissingCredential(
            "No Google credentials were found. Log in with `gcloud auth application-default login`, set "
            "GOOGLE_APPLICATION_CREDENTIALS to the file of a service account, or set VERTEX_API_KEY."
        )
    need("google.auth", extra="vertex", why=f"{asked.name} with Google credentials (instead of VERTEX_API_KEY)")
    return TokenCredentials(_Environment().fetch, advice=_ADVICE, what="The Google token")


def _first(environment: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    return next((environment[name] for name in names if environment.get(name)), None)


def _file(environment: Mapping[str, str]) -> Path:
    """Return the file of the environment's credentials, whether it exists or not."""
    if named := environment.get("GOOGLE_APPLICATION_CREDENTIALS"):
        return Path(named)
    folder = environment.get("CLOUDSDK_CONFIG")
    home = Path(environment.get("HOME") or Path.home())
    return (Path(folder) if folder else home / ".config" / "gcloud") / "application_default_credentials.json"


def _project_of_file(environment: Mapping[str, str]) -> str | None:
    """Return the project that the credentials belong to, where their file says it."""
    try:
        held = json.loads(_file(environment).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    named = (held.get(name) for name in ("project_id", "quota_project_id")) if isinstance(held, dict) else ()
    return next((name for name in named if isinstance(name, str) and name), None)


def _is_somebody(environment: Mapping[str, str]) -> bool:
    """Return whether anything says that there are credentials, without asking for them."""
    if any(environment.get(name) for name in _HINTS) or _file(environment).is_file():
        return True
    try:
        return "Google" in Path(_MAKER).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False


class _Environment:
    """The credentials of the environment: a service account's file, a person's login, the machine's own."""

    def __init__(self) -> None:
        self._found: Any = None  # Any: the library's credentials, of many classes

    def fetch(self) -> Token:
        """Fetch a token. Runs in a thread: it may read files and ask servers."""
        import google.auth  # noqa: PLC0415 - an extra, loaded with the first request
        from google.auth import exceptions as refused  # noqa: PLC0415 - the same
        from google.auth.transport.requests import Request  # noqa: PLC0415 - the same

        try:
            if self._found is None:
                self._found, _ = google.auth.default(scopes=[_SCOPE])
            self._found.refresh(Request())
        except refused.TransportError as exc:
            raise ModelUnavailable("The server that gives Google tokens cannot be reached.") from exc
        except refused.GoogleAuthError as exc:
            raise _refusal(exc) from None  # its words may hold the answer of a token server
        except (OSError, ValueError) as exc:
            raise ModelRejected(f"The Google credentials cannot be read: {type(exc).__name__}. {_ADVICE}") from exc
        expiry = self._found.expiry
        expires_at = None if expiry is None else expiry.replace(tzinfo=UTC).timestamp()
        return Token(value=self._found.token, expires_at=expires_at)


def _refusal(exc: Any) -> ModelError:
    """Return what a refusal of Google's library means: the class says whether to wait."""
    if getattr(exc, "retryable", False):
        return ModelUnavailable("The server that gives Google tokens is failing at the moment.")
    said = next((arg for arg in exc.args if isinstance(arg, str)), type(exc).__name__)
    return ModelRejected(f"Google refuses the login ({' '.join(said.split())[:200]}). {_ADVICE}")
