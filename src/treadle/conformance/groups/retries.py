"""Retries: status codes, when the provider is asked again, and what is not done again because of it."""

from typing import Any

from treadle.conformance.checks import answered, any_of, at_most_requests, not_completed, ran, requests, sent
from treadle.conformance.groups.common import PAY, SEED_PRACTICE, pay
from treadle.conformance.scenario import DIALECTS, Check, DialectName, Scenario
from treadle.testing import Turn

__all__ = ["SCENARIOS"]

_RETRIES = frozenset({"retries"})
_WHITELIST = f"{SEED_PRACTICE}: retry transient errors of the model's API; never those of the request"


def _transient(name: str, failure: str, *, dialects: tuple[DialectName, ...] = DIALECTS, **fault: Any) -> Scenario:
    """One failure that passes."""
    return Scenario(
        id=f"retries/{name}",
        failure=failure,
        promise="The same request is made again, and the answer is the answer.",
        source=_WHITELIST,
        severity="waste",
        needs=_RETRIES,
        dialects=dialects,
        turns=(Turn(**fault), "The answer."),
        right=(
            requests(2),
            sent(
                "both requests say the same", lambda evidence: len({str(one.items) for one in evidence.requests}) == 1
            ),
            answered("The answer."),
        ),
    )


def _final(
    name: str, failure: str, status: int, *right: Check, dialects: tuple[DialectName, ...] = DIALECTS, error: Any = None
) -> Scenario:
    """A failure that the same request meets again."""
    return Scenario(
        id=f"retries/{name}",
        failure=failure,
        promise="The request is not made again, and the run ends without a success.",
        source=_WHITELIST,
        severity="waste",
        dialects=dialects,
        turns=(Turn(status=status, error=error), "The answer."),
        right=(requests(1), not_completed, *right),
    )


SCENARIOS = (
    _transient("rate-limit", "429, with the time after which to ask again.", status=429, headers={"retry-after": "0"}),
    _transient("server-error", "500, once.", status=500),
    _transient("unavailable", "503, once.", status=503),
    _transient("overloaded", "529, once.", status=529, dialects=("anthropic",)),
    _transient(
        "bad-gateway",
        "502, with a page of HTML as its body.",
        status=502,
        body=b"<html><body>Bad Gateway</body></html>",
    ),
    _final("bad-request", "400: the request is wrong.", 400),
    _final("wrong-key", "401: the key is wrong.", 401),
    _final("forbidden", "403: the key may not.", 403),
    _final("no-model", "404: there is no such model.", 404),
    _final(
        "no-credit",
        "429, because the account has no credit.",
        429,
        dialects=("chat", "responses"),
        error={
            "message": "You exceeded your current quota, please check your plan and billing details.",
            "type": "insufficient_quota",
            "code": "insufficient_quota",
            "param": None,
        },
    ),
    Scenario(
        id="retries/bounded",
        failure="503, for ever.",
        promise="The provider is asked as often as was set, and the run ends without a success.",
        source=f"{SEED_PRACTICE}: max_retries_per_model_call; hidden retries of the vendor's library count as well",
        severity="waste",
        needs=_RETRIES,
        options={"max_attempts": 3},
        turns=(Turn(status=503, headers={"retry-after": "0"}),),
        right=(at_most_requests(3), not_completed),
    ),
    Scenario(
        id="retries/after-payment",
        failure="503, for the request that has the result of a payment.",
        promise="Only the request is made again. The payment is not.",
        source=f"{SEED_PRACTICE}: never retry payments",
        severity="harm",
        tools=(PAY,),
        turns=(pay(7), Turn(status=503, headers={"retry-after": "0"}), "Paid."),
        right=(ran("pay", 1), any_of(answered("Paid."), not_completed)),
    ),
    Scenario(
        id="retries/not-json",
        failure="200, with a page of HTML as its body.",
        promise="The request is made again, or the run ends without a success. The page is not the answer.",
        source="Proxies and login pages answer with 200",
        severity="wrong",
        turns=(Turn(body=b"<html><body>Please log in.</body></html>"), "The answer."),
        right=(any_of(answered("The answer."), not_completed),),
    ),
    Scenario(
        id="retries/too-long",
        failure="400, because the conversation has become too long, for the request that has a result.",
        promise="A shorter and valid request is made, or the run ends without a success.",
        source="OpenAI: context_length_exceeded; Anthropic: prompt is too long",
        severity="wrong",
        dialects=("chat", "responses"),
        tools=(PAY,),
        turns=(
            pay(7),
            Turn(
                status=400,
                error={
                    "message": "This model's maximum context length is 8192 tokens.",
                    "type": "invalid_request_error",
                    "code": "context_length_exceeded",
                    "param": "messages",
                },
            ),
            "Paid.",
        ),
        right=(ran("pay", 1), any_of(answered("Paid."), not_completed), at_most_requests(4)),
    ),
)
