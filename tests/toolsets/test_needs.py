"""Needs: what a call asks to be lifted of the sandbox's border, as texts and values."""

import pytest

from treadle.errors import InvalidArguments
from treadle.tools import Need, parse_need, parse_needs


@pytest.mark.parametrize(
    ("text", "need"),
    [
        ("git", Need("git")),
        ("unconfined", Need("unconfined")),
        ("network API.example.com.", Need("network", "api.example.com")),
        ("network 127.1", Need("network", "127.0.0.1")),
        ("network *.example.com", Need("network", "*.example.com")),
        ("network *", Need("network", "*")),
        ("network LOCALHOST:8000", Need("network", "localhost:8000")),
        ("network 127.1:080", Need("network", "127.0.0.1:80")),
        ("network [::1]:80", Need("network", "[::1]:80")),
        ("network ::1", Need("network", "::1")),
        ("write ~/.cache/x", Need("write", "~/.cache/x")),
        ("  write  /var/x y ", Need("write", "/var/x y")),
    ],
)
def test_a_need_is_read_from_its_text_and_written_in_its_canonical_spelling(text: str, need: Need):
    assert parse_need(text) == need
    assert parse_need(need.text) == need


@pytest.mark.parametrize(
    "text",
    ["", "all", "git push", "network", "network a b", "network a:0", "network a:65536", "network a\tb", "write", "write build", "write ../x", "write /a\nb", "unconfined now"],
)  # fmt: skip
def test_a_text_that_names_no_need_is_refused_with_the_forms_that_do(text: str):
    with pytest.raises(InvalidArguments, match=r"`write|`git`"):
        parse_need(text)


def test_needs_that_are_named_twice_count_once():
    assert parse_needs(["git", " git", "network A.example"]) == (Need("git"), Need("network", "a.example"))
