"""The manual as a reader sees it: laid out by a real browser for a phone and a desk, in light and in dark, without a network."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import Browser, browsing, find_browser

from house import PROJECT

PHONE = (390, 844)
DESK = (1360, 900)
PARTS = 8
"""Several processes divide the pages between them."""

TOO_WIDE = """
[...document.querySelectorAll('.md-content table, .md-content p, .md-content li, .md-content :is(h1, h2, h3, h4), .md-content picture, .md-content :not(picture) > img')]
  .filter(one => one.getBoundingClientRect().right > document.documentElement.clientWidth + 1)
  .map(one => one.tagName + ': ' + one.textContent.slice(0, 60))
"""
CUT = """
[...document.querySelectorAll('.md-content :is(p, li, td, h1, h2, h3, h4)')]
  .filter(one => one.scrollWidth > one.clientWidth + 1 && getComputedStyle(one).overflowX !== 'visible')
  .map(one => one.tagName + ': ' + one.textContent.slice(0, 60))
"""
FOUND = """
new Promise((done, fail) => {
  const until = performance.now() + 60000;
  (function look() {
    const found = [...document.querySelectorAll('.md-search-result__link')].map(one => one.getAttribute('href'));
    if (found.length) done(found);
    else if (performance.now() > until) fail(new Error('nothing found'));
    else requestAnimationFrame(look);
  })();
})
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    program = find_browser()
    if program is None:
        pytest.skip("the manual in a browser needs one: apt-get install chromium")
    with browsing(program, tmp_path_factory.mktemp("profile")) as one:
        yield one


@pytest.mark.row("M-SITE")
@pytest.mark.parametrize("part", range(PARTS))
def test_each_page_fits_on_a_phone_has_one_title_and_asks_no_host(part, site: Path, browser):
    browser.show_as(*PHONE)
    pages = [site / "index.html", *sorted(site.glob("*/**/*.html"))]
    assert len(pages) > len(list((PROJECT / "docs").rglob("*.md")))

    wrong = {path.name: found for path in pages[part::PARTS] if (found := problems(browser, path))}

    assert wrong == {}


def problems(browser: Browser, page: Path) -> list[object]:
    browser.open(page)
    titles = browser.evaluate("document.querySelectorAll('h1').length")
    width = browser.evaluate("document.documentElement.scrollWidth")
    hosts = [one for one in browser.requests if not one.startswith(("file:", "data:", "about:", "blob:"))]
    return [
        *([f"{titles} titles"] if titles != 1 else []),
        *([f"{width} pixels wide"] if width > PHONE[0] else []),
        *browser.evaluate(TOO_WIDE),
        *browser.evaluate(CUT),
        *hosts,
        *browser.errors,
    ]


@pytest.mark.row("M-SITE")
@pytest.mark.parametrize(("scheme", "expected"), [("dark", "slate"), ("light", "default")])
def test_the_site_is_dark_where_the_reader_prefers_it_and_follows_when_that_changes(scheme, expected, site, browser):
    other = "light" if scheme == "dark" else "dark"
    browser.show_as(*DESK, scheme=other)
    browser.open(site / "index.html")
    browser.show_as(*DESK, scheme=scheme)

    browser.open(site / "use" / "quickstart.html")

    assert browser.evaluate("document.body.getAttribute('data-md-color-scheme')") == expected


@pytest.mark.row("M-SITE")
@pytest.mark.parametrize("screen", [PHONE, DESK], ids=["phone", "desk"])
def test_search_answers_in_a_site_that_was_opened_from_a_folder(screen, site, browser):
    browser.show_as(*screen)
    browser.open(site / "index.html")

    browser.evaluate("document.querySelector('#__search').click()")
    browser.evaluate("document.querySelector('.md-search__input').focus()")
    browser.send("Input.insertText", text="open_session")
    browser.send("Input.dispatchKeyEvent", type="keyUp", key="n")

    assert any("/sessions.html" in address for address in browser.evaluate(FOUND))


@pytest.mark.row("M-SITE")
def test_the_pages_are_reached_from_a_phones_menu(site, browser):
    browser.show_as(*PHONE)
    browser.open(site / "index.html")

    browser.evaluate("document.querySelector('label[for=__drawer].md-header__button').click()")

    drawn = "getComputedStyle(document.querySelector('.md-sidebar--primary')).transform !== 'none'"
    assert browser.evaluate("document.querySelector('#__drawer').checked") is True
    assert browser.evaluate(drawn) is True


@pytest.mark.row("M-SITE")
def test_a_picture_of_a_terminal_keeps_the_spaces_of_its_lines(browser):
    browser.show_as(*DESK)

    for name in ("demo.svg", "chat.svg"):
        browser.open(PROJECT / "docs" / name)
        spaces = (
            "[...new Set([...document.querySelectorAll('text')].map(one => getComputedStyle(one).whiteSpaceCollapse))]"
        )
        assert browser.evaluate(spaces) == ["preserve"], name
