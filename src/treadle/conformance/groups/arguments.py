"""Arguments: what a model writes that is not JSON, is cut off, or says one thing twice."""

from treadle.conformance.checks import answered, any_of, ran_with, told_failure
from treadle.conformance.groups.common import LOOK, PAY, SEED_LOOPS, TEXTS, pay
from treadle.conformance.scenario import Scenario, tool
from treadle.testing import ScriptedCall

__all__ = ["SCENARIOS"]

_FAILURE_1 = f"{SEED_LOOPS}, failure 1: the arguments are not valid JSON"
_VENDOR = "github.com/openai/openai-agents-js/pull/887: malformed arguments crash the agent"


def _broken(name: str, failure: str, arguments: str, source: str = _FAILURE_1, *, is_plain: bool = False) -> Scenario:
    """Arguments that cannot be taken; the model then corrects itself. If it is plain what they mean, a loop may repair them."""
    told = (told_failure("call_1"), ran_with("pay", {"invoice": 7}))
    repaired = ran_with("pay", {"invoice": 8}, {"invoice": 7})
    return Scenario(
        id=f"arguments/{name}",
        failure=failure,
        promise="Nothing runs. The model reads what is wrong, as the result of that call, and may correct it."
        + (" Or the call runs with what was plainly meant." if is_plain else ""),
        source=source,
        severity="harm",
        dialects=TEXTS,
        tools=(PAY,),
        turns=(ScriptedCall(name="pay", arguments=arguments, id="call_1"), pay(7, "call_2"), "All paid."),
        right=(*(any_of(one, repaired) if is_plain else one for one in told), answered("All paid.")),
    )


SCENARIOS = (
    _broken("cut-off", "The text of the arguments ends in the middle.", '{"invoice": 7, "note": "fir'),
    _broken("trailing-comma", "A comma stands behind the last value.", '{"invoice": 8,}', is_plain=True),
    _broken("single-quotes", "The text is Python's, not JSON.", "{'invoice': 8}", is_plain=True),
    _broken("two-objects", "Two objects follow each other.", '{"invoice": 8}{"invoice": 9}', _VENDOR),
    _broken("prose", "The text is a sentence.", "Please pay invoice 8.", _VENDOR),
    _broken(
        "fenced", "The object is in a code block of Markdown.", '```json\n{"invoice": 8}\n```', _VENDOR, is_plain=True
    ),
    _broken("not-an-object", "The JSON is a list.", "[8]", f"{SEED_LOOPS}, failure 2: the arguments break the schema"),
    _broken("not-a-number", "The number is NaN, which JSON does not have.", '{"invoice": NaN}', "RFC 8259, section 6"),
    _broken(
        "too-deep",
        "The text opens 5,000 brackets.",
        '{"invoice": ' + "[" * 5_000 + "]" * 5_000 + "}",
        "RFC 8259, section 9: depth",
    ),
    Scenario(
        id="arguments/duplicate-key",
        failure="A key occurs twice, with two values.",
        promise="Nothing runs: which of the two the model meant is unknown.",
        source="RFC 8259, section 4: the names within an object should be unique",
        severity="harm",
        dialects=TEXTS,
        tools=(PAY,),
        turns=(
            ScriptedCall(name="pay", arguments='{"invoice": 8, "invoice": 9}', id="call_1"),
            pay(7, "call_2"),
            "All paid.",
        ),
        right=(told_failure("call_1"), ran_with("pay", {"invoice": 7}), answered("All paid.")),
    ),
    Scenario(
        id="arguments/empty-text",
        failure="A tool without parameters is called with an empty text in place of {}.",
        promise="The tool runs, with no arguments.",
        source="github.com/camel-ai/camel/issues/4338: servers send an empty text for tools without parameters",
        severity="wrong",
        dialects=("chat", "responses", "anthropic"),
        tools=(tool("list_all", describes="List everything."),),
        turns=(ScriptedCall(name="list_all", arguments="", id="call_1"), "Listed."),
        right=(ran_with("list_all", {}), answered("Listed.")),
    ),
    Scenario(
        id="arguments/twice-encoded",
        failure="The arguments are a JSON text that holds the object's JSON.",
        promise="The tool runs with the object, or the model reads that it was not one. Nothing else runs.",
        source="vLLM and other servers of open models, whose parsers encode arguments twice",
        severity="wrong",
        dialects=TEXTS,
        tools=(LOOK,),
        turns=(ScriptedCall(name="look", arguments='"{\\"key\\": \\"a\\"}"', id="call_1"), "Seen."),
        right=(any_of(ran_with("look", {"key": "a"}), told_failure("call_1")), answered("Seen.")),
    ),
    Scenario(
        id="arguments/exact",
        failure="The arguments hold characters of many kinds: quotes, newlines, escapes, accents, symbols outside the first plane.",
        promise="The tool gets exactly these characters.",
        source="RFC 8259, section 7: strings",
        severity="wrong",
        tools=(LOOK,),
        turns=(
            ScriptedCall(name="look", arguments='{"key": "a\\"b\\\\c\\n\\u00e9\\ud83d\\ude00 <b>&amp;"}', id="call_1"),
            "Seen.",
        ),
        right=(ran_with("look", {"key": 'a"b\\c\né\U0001f600 <b>&amp;'}), answered("Seen.")),
    ),
)
