"""Schemas: arguments that break the tool's schema, and tools that do not exist."""

from typing import Any

from treadle.conformance.checks import answered, any_of, never_ran, offered, ran, ran_with, result_says, told_failure
from treadle.conformance.groups.common import LOOK, PAY, SEED_LOOPS, SEED_PRACTICE
from treadle.conformance.scenario import Scenario, tool
from treadle.testing import Turn, call

__all__ = ["SCENARIOS"]

_FAILURE_2 = f"{SEED_LOOPS}, failure 2: the arguments break the schema"
_ORDER = tool(
    "order",
    {
        "product": {"type": "string", "enum": ["teapot", "cup"]},
        "quantity": {"type": "integer", "minimum": 1, "maximum": 12},
        "address": {
            "type": "object",
            "properties": {"town": {"type": "string"}, "street": {"type": "string"}},
            "required": ["town"],
            "additionalProperties": False,
        },
        "notes": {"type": "array", "items": {"type": "string"}},
    },
    required=["product", "quantity"],
    effect="write",
    describes="Order a product.",
)
_GOOD = {"product": "cup", "quantity": 2}


def _breaks(name: str, failure: str, **arguments: Any) -> Scenario:
    """One call that breaks the schema, then one that does not."""
    return Scenario(
        id=f"schemas/{name}",
        failure=failure,
        promise="Nothing runs. The model reads which argument is wrong, as the result of that call, and may correct it.",
        source=_FAILURE_2,
        severity="harm",
        tools=(_ORDER,),
        turns=(
            call("order", id="call_1", arguments=arguments),
            call("order", id="call_2", arguments=_GOOD),
            "Ordered.",
        ),
        right=(told_failure("call_1"), ran_with("order", _GOOD), answered("Ordered.")),
    )


def _unknown(name: str, failure: str, called: str) -> Scenario:
    return Scenario(
        id=f"schemas/{name}",
        failure=failure,
        promise="Nothing runs. The model reads that there is no such tool, as the result of that call, and continues.",
        source="github.com/openai/openai-agents-python/pull/3402: one invented name ends the whole run",
        severity="wrong",
        tools=(PAY, LOOK),
        turns=(call(called, id="call_1", arguments={"invoice": 7}), "I cannot."),
        right=(told_failure("call_1"), never_ran(), answered("I cannot.")),
    )


SCENARIOS = (
    _breaks("wrong-type", "A text is given for an integer.", product="cup", quantity="many"),
    _breaks("missing", "A required argument is missing.", product="cup"),
    _breaks("null", "A required argument is null.", product="cup", quantity=None),
    _breaks("not-in-enum", "A value is not one of those that the schema lists.", product="saucer", quantity=1),
    _breaks("above-maximum", "A number is above the maximum.", product="cup", quantity=1_000),
    _breaks("below-minimum", "A number is below the minimum.", product="cup", quantity=-1),
    _breaks("fraction", "A fraction is given for an integer.", product="cup", quantity=1.5),
    _breaks("extra", "An argument is given that the schema does not know.", product="cup", quantity=1, express=True),
    _breaks(
        "nested", "A value inside of an object has the wrong type.", product="cup", quantity=1, address={"town": 7}
    ),
    _breaks(
        "nested-missing",
        "A required value inside of an object is missing.",
        product="cup",
        quantity=1,
        address={"street": "A"},
    ),
    _breaks("item", "An item of a list has the wrong type.", product="cup", quantity=1, notes=["fragile", {"no": 1}]),
    Scenario(
        id="schemas/shown",
        failure="What the model is shown of a tool differs from what the tool needs.",
        promise="The model is shown the names, the types, the limits and the choices of the schema.",
        source="seed 003, The Tool Use Loop: the model sees the same schema that checks the call",
        severity="wrong",
        tools=(_ORDER,),
        turns=("Nothing to order.",),
        right=(
            offered("order", "teapot"),
            offered("order", "quantity"),
            offered("order", "maximum"),
            offered("order", "street"),
            answered(),
        ),
    ),
    Scenario(
        id="schemas/quoted-number",
        failure="A number is given in quotes.",
        promise="The tool runs with the number, or the model reads that it must be one. It never runs with a text.",
        source=_FAILURE_2,
        severity="wrong",
        tools=(PAY,),
        turns=(call("pay", id="call_1", arguments={"invoice": "7"}), "Seen."),
        right=(any_of(ran_with("pay", {"invoice": 7}), told_failure("call_1")), ran("pay", 0, 1), answered("Seen.")),
    ),
    _unknown("unknown-tool", "The model calls a tool that does not exist.", "transfer"),
    _unknown("wrong-case", "The model calls a tool by its name in other case.", "PAY"),
    _unknown("longer-name", "The model calls a name that begins with that of a tool.", "pay_now"),
    Scenario(
        id="schemas/no-tools",
        failure="The model calls a tool although none was offered.",
        promise="Nothing runs; the model reads that there is no such tool, or the run ends without a success.",
        source=f"{SEED_PRACTICE}: unknown tools",
        severity="wrong",
        turns=(call("pay", id="call_1", arguments={"invoice": 7}), "I cannot."),
        right=(
            never_ran(),
            any_of(
                answered("I cannot."), lambda evidence: "It claims success." if evidence.last.is_completed else None
            ),
        ),
    ),
    Scenario(
        id="schemas/unknown-among-known",
        failure="One response calls a tool that exists and one that does not.",
        promise="The one that exists runs; the other's result says that it does not exist.",
        source=f"{SEED_LOOPS}: every call is validated by itself",
        severity="wrong",
        tools=(LOOK,),
        turns=(
            Turn(calls=(call("look", key="a", id="call_1"), call("peek", key="b", id="call_2"))),
            "Seen.",
        ),
        right=(
            ran_with("look", {"key": "a"}),
            result_says("call_1", "look ran"),
            told_failure("call_2"),
            answered("Seen."),
        ),
    ),
)
