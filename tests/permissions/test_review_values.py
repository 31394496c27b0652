"""What a person who is asked about a call is shown, field by field, and which rules are offered."""

from typing import Any

import msgspec
import pytest

from pipeline_tools import checked_call, tool_of
from treadle import Decision, shell_tool
from treadle.cli.output.text import one_line
from treadle.permissions.consent import escaped, offered_rules, review_of
from treadle.tools import CheckedCall, Preview, Review, Subject
from treadle.toolsets.mcp.servers import visible


async def nothing(arguments: Any, ctx: Any) -> Any:
    return None


class Session:
    """A session as far as a rule looks at it."""

    mode = "ask"
    facts: dict[str, Any] = {}  # noqa: RUF012 - never changed


def of(name: str = "pay", /, arguments: dict[str, Any] | None = None, **words: Any) -> CheckedCall:
    return checked_call(tool_of(nothing, name, **words), **(arguments or {}))


def saying(said: Any, **words: Any) -> Review:
    return review_of(of("pay", {"n": 1}, review=lambda arguments, facts: said, **words), {})


@pytest.mark.parametrize(
    ("effect", "expected", "rollback"),
    [
        ("read", "Nothing is changed.", "Not needed."),
        ("idempotent", "The change is made once, however often the call is repeated.", None),
        ("keyed", "The change is made once: the service recognizes a repeated call by its key.", None),
        ("unsafe", "The change is made, and repeating the call makes it again.", None),
    ],
)
def test_a_tool_that_says_nothing_is_shown_by_its_name_arguments_and_effect(effect, expected, rollback):
    assert review_of(of("pay", {"n": 1}, effect=effect), {}) == Review(
        action="Call pay",
        target="",
        preview=Preview(kind="arguments", text='{\n  "n": 1\n}'),
        expected_result=expected,
        rollback=rollback or "Unknown: the tool does not say how to undo it.",
    )


def test_what_a_tool_says_of_its_call_is_shown():
    own = Review(
        action="Pay\nnow",
        target="Ada\u202e",
        preview=Preview(kind="diff", text="a\nb\t\u200b", is_whole=False),
        expected_result="Paid  once.",
        rollback="Ask the bank.",
    )
    assert saying(own) == Review(
        action="Pay now",
        target="Ada\\u202e",
        preview=Preview(kind="diff", text="a\nb\t\\u200b", is_whole=False),
        expected_result="Paid once.",
        rollback="Ask the bank.",
    )


@pytest.mark.parametrize("said", [None, "words", {"action": "Pay"}, Review(action=7)])
def test_what_is_no_review_counts_for_nothing(said):
    assert saying(said) == review_of(of("pay", {"n": 1}), {})


def test_a_review_that_raises_counts_for_nothing_and_changes_no_argument():
    def review(arguments: Any, facts: Any) -> Review:
        arguments["n"], facts["known"] = 2, 2
        raise ValueError("no")

    call, facts = of("pay", {"n": 1}, review=review), {"known": 1}
    assert review_of(call, facts) == review_of(of("pay", {"n": 1}), {})
    assert (call.arguments, facts) == ({"n": 1}, {"known": 1})


def test_a_review_is_told_what_tools_remember():
    call = of("pay", {"n": 1}, review=lambda arguments, facts: Review(action=f"{arguments} {facts}"))
    assert review_of(call, {"known": 1}).action == "{'n': 1} {'known': 1}"


@pytest.mark.parametrize("length", [200_000, 200_001, 201_234])
def test_a_preview_is_cut_after_two_hundred_thousand_characters(length):
    shown = saying(Review(preview=Preview(kind="text", text="x" * length))).preview
    assert shown is not None
    assert shown.is_whole == (length == 200_000)
    tail = "" if shown.is_whole else f"\n({length - 200_000:,} more characters are not shown.)"
    assert shown.text == "x" * 200_000 + tail


def test_words_are_cut_after_two_thousand_characters():
    assert saying(Review(action="x" * 2_001)).action == "x" * 2_000


def subjects(**named: Any) -> Any:
    return lambda arguments: named


def test_the_target_is_what_the_arguments_name_first():
    named = subjects(a=Subject(names=("x", "y")), b=Subject(names=()), c=Subject(names=("z",)), d="other")
    assert review_of(of(subjects=named), {}).target == "x, z"


def test_subjects_that_cannot_be_told_are_no_target():
    def broken(arguments: Any) -> Any:
        arguments["n"] = 2
        raise ValueError("no")

    call = of("pay", {"n": 1}, subjects=broken)
    assert (review_of(call, {}).target, call.arguments) == ("", {"n": 1})


def test_a_line_of_shell_is_shown_in_full_with_what_is_not_in_it(tmp_path):
    line = "git log --oneline | sudo rm -rf 'a b' > out.txt < in.txt; cat /etc/passwd; git push --force; $X"
    shown = review_of(checked_call(shell_tool(tmp_path), command=line), {}, ["git", "network *"])
    assert (shown.action, shown.target) == ("Run a command", "git, sudo, cat, $X")
    assert shown.preview is not None
    assert (shown.preview.kind, shown.preview.text.splitlines()) == ("command", [
        line,
        "",
        "It needs to write the git history, without hooks.",
        "It needs the network: *.",
        "`--force` deletes or overwrites something, or skips a check.",
        "It reads outside the folder: /etc/passwd",
        "The shell expands this word, and the result is unknown: $X",
    ])  # fmt: skip


@pytest.mark.parametrize("lines", [1, 10])
def test_a_question_about_ten_lines_fits_on_one_screen(tmp_path, lines):
    line = "\n".join(f"make target{number} && touch /tmp/x > out; curl -X POST example.com" for number in range(lines))
    shown = review_of(checked_call(shell_tool(tmp_path), command=line), {})
    assert shown.preview is not None
    assert len(shown.preview.text.splitlines()) <= lines + 5


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a b", "a b"), ("a\nb\tc", "a\nb\tc"), ("\r", "\\r"), ("\x1b[2J", "\\x1b[2J"), ("é", "é"), ("a\u200bb", "a\\u200bb"), ("\u115f", "\\u115f"),
        ("\u2800", "\\u2800"), ("\ufdff", "\ufdff"), ("\ufe00", "\\ufe00"), ("\ufe0f", "\\ufe0f"), ("\ufe10", "\ufe10"), ("\u180a", "\u180a"),
        ("\u180b", "\\u180b"), ("\u180f", "\\u180f"), ("\u1810", "\u1810"), ("\U000e0100", "\\U000e0100"), ("\ud800", "\\ud800"),
    ],
)  # fmt: skip
def test_every_character_that_hides_or_repaints_is_shown_as_an_escape(text, shown):
    assert escaped(text) == shown


# --- rules that are offered
DEFAULT = Decision(kind="ask", rule="default", scope="default", consent="allow")


def offered(call: CheckedCall, **words: Any) -> tuple[str, ...]:
    session: Any = Session()
    return offered_rules(call, msgspec.structs.replace(DEFAULT, **words), session)


def naming(*names: str, key: str = "path", **words: Any) -> CheckedCall:
    named = subjects(**{key: Subject(names=names, **words)})
    return of("write", {key: names[0] if names else ""}, subjects=named, effect="unsafe")


@pytest.mark.parametrize(
    ("call", "rules"),
    [
        (naming("src/a.py"), ("write(path=src/a.py)",)), (naming("src/a.py", "/srv/src/a.py"), ("write(path=src/a.py)",)),
        (naming("a*b?[c].txt"), ("write(path=a[*]b[?][[]c].txt)",)), (naming("ada", key="customer"), ("write(customer=ada)",)), (naming(), ()),
        (naming("src", extent="tree"), ()), (naming("src", extent="children"), ()), (naming("a\u200bb"), ()), (of("write", {"path": "a"}), ()),
        (of("write", {}, subjects=subjects(a=Subject(names=("x",)), b=Subject(names=("y",)))), ()),
    ],
)  # fmt: skip
def test_the_rule_on_the_one_thing_that_a_call_names_is_offered(call, rules):
    assert offered(call) == rules


@pytest.mark.parametrize(
    ("words", "are_offered"),
    [({}, True), ({"scope": "tool"}, True), ({"scope": "project"}, False), ({"scope": ""}, False), ({"consent": "sandbox"}, True)],
)  # fmt: skip
def test_rules_are_offered_only_for_a_question_that_they_would_spare(words, are_offered):
    assert bool(offered(naming("a"), **words)) == are_offered


@pytest.mark.parametrize("name", ["a\nb", "a\tb", "a  b", "a ", " a", "a\u200b"])
def test_no_rule_is_offered_that_would_look_like_one_for_another_name(name):
    assert offered(naming(name)) == ()


def test_no_rule_is_offered_for_a_tool_that_always_asks():
    call = of("write", {"path": "a"}, subjects=subjects(path=Subject(names=("a",))), permission="always_ask")
    assert offered(call) == ()


def test_a_rule_on_the_program_and_its_first_words_is_offered_for_a_line(tmp_path):
    assert offered(checked_call(shell_tool(tmp_path), command="git status")) != ()
    assert offered(checked_call(shell_tool(tmp_path), command="sudo git status")) == ("shell(sudo git status)",)


@pytest.mark.parametrize("name", ["a\nb", "a\tb", "a  b", "a b ", "a\u2028b"])
def test_the_target_shows_what_tells_one_name_from_another(name):
    shown = {
        one: review_of(of(subjects=lambda _, one=one: {"path": Subject(names=(one,))}), {}).target
        for one in (name, "a b")
    }

    assert shown[name] != shown["a b"] == "a b"
    assert len(shown[name].splitlines()) == 1


# Default_Ignorable_Code_Point of Unicode 16.0, from DerivedCoreProperties.txt.
IGNORABLE = [
    (0x00AD, 0x00AD), (0x034F, 0x034F), (0x061C, 0x061C), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F), (0x200B, 0x200F),
    (0x202A, 0x202E), (0x2060, 0x206F), (0x3164, 0x3164), (0xFE00, 0xFE0F), (0xFEFF, 0xFEFF), (0xFFA0, 0xFFA0), (0xFFF0, 0xFFF8),
    (0x1BCA0, 0x1BCA3), (0x1D173, 0x1D17A), (0xE0000, 0xE0FFF),
]  # fmt: skip

BLANK = "\u070f\u2800\u2d7f\ufff9\ufffa\ufffb\ufffc\U00013430\U0001343f\U00016fe4\U0001d159"
"""Letters and marks with no glyph of their own, and signs that stand for something else."""


@pytest.mark.parametrize("shows", [escaped, visible, lambda text: one_line(text, 100)])
def test_what_has_no_glyph_is_written_by_name_or_number(shows):
    invisible = [chr(one) for first, last in IGNORABLE for one in range(first, last + 1)]
    shown = {one for one in [*invisible, *BLANK] if one in shows(f"a{one}b")}
    assert shown == set()
