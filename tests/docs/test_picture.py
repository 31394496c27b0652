"""The picture of the README shows the demo as it is."""

import re

from house import PROJECT
from picture import PICTURE, drawn, printed


def shown(picture: str) -> list[str]:
    return sorted(re.findall(r"<text[^>]*>(.*?)</text>", picture))  # calls that run in parallel end in any order


def test_the_picture_shows_what_the_demo_prints():
    assert shown(PICTURE.read_text()) == shown(drawn(printed())), "say: make picture"


def test_the_readme_fits_on_a_screen_and_shows_the_picture():
    text = (PROJECT / "README.md").read_text()

    assert len(text.splitlines()) <= 70
    assert "(docs/demo.svg)" in text
