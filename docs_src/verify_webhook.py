"""Check that a notice comes from `treadle notify`: it is signed as Standard Webhooks says, whose libraries do the same."""

import base64
import hmac
import time
from collections.abc import Mapping


def is_genuine(secret: str, headers: Mapping[str, str], body: bytes) -> bool:
    """Whether the sender has the secret, and sent this within the last five minutes.

    Args:
        secret: What `treadle notify` has in TREADLE_WEBHOOK_SECRET.
        headers: Of the request, by lower-case names.
        body: The body as it came, before anything has read it as JSON.
    """
    sent_at = headers["webhook-timestamp"]
    key = base64.b64decode(secret.removeprefix("whsec_"))
    signed = f"{headers['webhook-id']}.{sent_at}.".encode() + body
    wanted = "v1," + base64.b64encode(hmac.digest(key, signed, "sha256")).decode()
    is_recent = abs(time.time() - int(sent_at)) < 300
    return is_recent and any(hmac.compare_digest(one, wanted) for one in headers["webhook-signature"].split())
