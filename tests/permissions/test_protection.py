"""A question about a protected file: it stands in place of any decision that lets it be written, and lifts no sandbox."""

from typing import Any

import msgspec
import pytest

from pipeline_tools import Recorder, tool_of
from treadle.messages import ToolCall
from treadle.permissions.modes import with_protection
from treadle.ports import Decision
from treadle.tools import CheckedCall


@pytest.mark.parametrize(
    ("kind", "boxed", "effect", "found"),
    [
        ("allow", "allow", "unsafe", ("ask", "allow")),
        ("sandbox", "allow", "unsafe", ("ask", "sandbox")),
        ("ask", "sandbox", "unsafe", ("ask", "sandbox")),
        ("ask", "allow", "unsafe", ("ask", "allow")),
        ("deny", "allow", "unsafe", ("deny", "allow")),
        ("allow", "allow", "read", ("allow", "allow")),
    ],
)
def test_a_question_about_a_protected_file_lifts_no_sandbox(kind: Any, boxed: Any, effect: str, found: Any) -> None:
    tool = tool_of(Recorder(), "save", effect=effect)
    save = CheckedCall(
        call=ToolCall(id="c", name="save", arguments="{}"), tool=tool, arguments={"path": ".env"}, values={},
        effect=tool.effect_of({}), position=0, digest="", key="",
    )  # fmt: skip
    decision = Decision(kind=kind, rule="r", scope="user", by="eve", consent=boxed)
    after = with_protection(decision, save, {})

    assert (after.kind, after.consent) == found
    if found[0] == "ask":
        assert (after.rule, after.scope, after.by) == ("protected file", "runtime", "runtime")
        assert after.reason.startswith(".env is protected: it controls what runs later")
    else:
        assert after == decision
    other = msgspec.structs.replace(save, arguments={"path": "notes.txt"})
    assert with_protection(decision, other, {}) == decision
