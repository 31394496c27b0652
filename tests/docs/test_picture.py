"""The picture of the README shows the demo as it is."""

import re

import drawings
from house import PROJECT
from picture import PICTURE, drawn, printed


def shown(picture: str) -> list[str]:
    return sorted(re.findall(r"<text[^>]*>(.*?)</text>", picture))  # calls that run in parallel end in any order


def test_the_picture_shows_what_the_demo_prints():
    assert shown(PICTURE.read_text()) == shown(drawn(printed())), "say: make picture"


def test_the_readme_shows_the_picture():
    assert "(docs/demo.svg)" in (PROJECT / "README.md").read_text()


def test_the_drawings_are_what_the_script_draws_and_each_is_on_a_page_in_both_themes():
    pages = " ".join(path.read_text() for path in (PROJECT / "docs").rglob("*.md"))

    drawn = {path.name: path.read_text() for path in drawings.FOLDER.glob("*.svg")}
    assert drawn == drawings.drawn(), "say: make picture"
    assert [path.name for path in drawings.FOLDER.iterdir() if f"pictures/{path.name}" not in pages] == []
