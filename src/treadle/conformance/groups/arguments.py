"""Arguments: what a model writes that is not JSON, is cut off, or says one thing twice."""

from treadle.conformance.checks import answered, ran_with, told_failure
from treadle.conformance.scenario import DialectName, Scenario, tool
from treadle.testing import ScriptedCall, call

__all__ = ["SCENARIOS"]

_TEXTS: tuple[DialectName, ...] = ("chat", "responses", "anthropic")
"""The dialects in which arguments are a text that may be anything."""
_PAY = tool("pay", {"invoice": {"type": "integer"}, "note": {"type": "string"}}, effect="write", required=["invoice"])


def _broken(name: str, failure: str, arguments: str, source: str) -> Scenario:
    """Arguments that are not JSON; the model then corrects itself."""
    return Scenario(
        id=f"arguments/{name}",
        failure=failure,
        promise="Nothing runs. The model reads what is wrong, as the result of that call, and may correct it.",
        source=source,
        severity="harm",
        dialects=_TEXTS,
        tools=(_PAY,),
        turns=(
            ScriptedCall(name="pay", arguments=arguments, id="call_1"),
            call("pay", invoice=7, id="call_2"),
            "All paid.",
        ),
        right=(told_failure("call_1"), ran_with("pay", {"invoice": 7}), answered("All paid.")),
    )


_SEED = "seed 000 (Tool Loops), failure 1: the arguments are not valid JSON"

SCENARIOS = (
    _broken("cut-off", "The text of the arguments ends in the middle.", '{"invoice": 7, "note": "fir', _SEED),
    _broken("trailing-comma", "A comma stands behind the last value.", '{"invoice": 7,}', _SEED),
    _broken("single-quotes", "The text is Python's, not JSON.", "{'invoice': 7}", _SEED),
    _broken("two-objects", "Two objects follow each other.", '{"invoice": 7}{"invoice": 8}', _SEED),
    _broken("prose", "The text is a sentence.", "Please pay invoice 7.", _SEED),
    _broken("not-an-object", "The JSON is a list.", "[7]", "JSON Schema of the tool: an object"),
)
