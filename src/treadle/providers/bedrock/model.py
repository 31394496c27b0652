"""Bedrock's Converse and ConverseStream. One request, one response; retries and budgets are the runtime's."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from treadle.fields import checked
from treadle.ports import Pricing, TextCalls
from treadle.providers.bedrock.request import BedrockRequests
from treadle.providers.bedrock.response import ConverseResponse
from treadle.providers.http.client import CloudEndpoint
from treadle.providers.http.endpoint import Timeouts
from treadle.providers.http.model import DialectModel
from treadle.providers.http.server import DEFAULT_TIMEOUTS, Key, Server, model_name
from treadle.providers.payload import ThinkingTags

__all__ = ["Bedrock", "Timeouts"]


class Bedrock(DialectModel):
    """A model behind Bedrock's Converse dialect.

    Example:
        Bedrock("us.amazon.nova-lite-v1:0", base_url="https://bedrock-runtime.us-east-1.amazonaws.com", api_key="...")

    Options are further fields of each request's body, such as `guardrailConfig`; one that is None removes a field. Some mean more:
    those of `inferenceConfig`, such as `maxTokens`, may stand by themselves; `cachePoint` is what our cache points say
    (`{"type": "default", "ttl": "1h"}`), and None sets none; `strict_tools: True` has the vendor hold the model to the schemas of those
    tools that its strict subset can express; `server_tools` are the vendor's own, such as `{"systemTool": {"name": "nova_grounding"}}`.

    Args:
        model: The id of a model or of an inference profile, or an ARN.
        base_url: Where the runtime of Bedrock is.
        api_key: A bearer key of Bedrock; None where the cloud endpoint has credentials, or nobody asks for any.
        price: What it costs, or None when nobody knows.
        stream: Whether to ask for a stream. Either form of answer is understood.
        options: See above.
        headers: Further headers of each request.
        timeouts: How long one call may take.
        thinking_tags: Reasoning that the server leaves in the text: `both` for what is between two tags at its beginning, such as
            `<think>` and `</think>`; `closing` where the opening one may be missing; `off` where all of it is the answer.
        text_calls: Calls that the server leaves in the text: `run` carries them out like any others; `tell` tells the model that they did
            not arrive; `off` takes them as the answer. None runs those in a model's markup, and tells the model of bare JSON.
        cloud_endpoint: Who asks, such as an AWS identity; None for a key.

    Raises:
        ConfigurationError: One of these cannot be used.
    """

    @checked
    def __init__(
        self,
        model: str,
        *,
        base_url: str,
        api_key: str | None,
        price: Pricing | None = None,
        stream: bool = True,
        options: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        timeouts: Timeouts = DEFAULT_TIMEOUTS,
        thinking_tags: ThinkingTags = "both",
        text_calls: TextCalls | None = None,
        cloud_endpoint: CloudEndpoint | None = None,
    ) -> None:
        cloud_endpoint = CloudEndpoint(name="bedrock") if cloud_endpoint is None else cloud_endpoint
        name = model_name(cloud_endpoint.name, model)
        path = f"model/{quote(model, safe='')}/{'converse-stream' if stream else 'converse'}"
        server = Server(
            base_url,
            path,
            key=Key(value=api_key, header="Authorization", prefix="Bearer ", variable="AWS_BEARER_TOKEN_BEDROCK"),
            headers=headers,
            timeouts=timeouts,
            cloud_endpoint=CloudEndpoint(name=cloud_endpoint.name, path=path, credentials=cloud_endpoint.credentials),
        )
        super().__init__(
            name,
            price,
            server,
            requests=BedrockRequests(model, origin=name, options=options or {}),
            reader=ConverseResponse,
            options=options,
            stream=stream,
            thinking_tags=thinking_tags,
            text_calls=text_calls,
        )
