"""The report of a batch as a browser lays it out: on a phone and at a desk, light and dark."""

from pathlib import Path
from shutil import which

import pytest
from playwright.async_api import async_playwright

from treadle.batch import BatchRow, report_page

CHROMIUM = which("chromium")
NAMES = [f"fetch_the_page_of_a_customer_with_a_very_long_name_{n}: failed" for n in range(3)]
ROWS = [
    BatchRow(
        id=f"q{n}",
        task="x",
        status="completed" if n % 4 else "stopped",
        reason="completed" if n % 4 else "step_limit_reached",
        passed=n % 3 == 0,
        cost=f"0.00{n % 7}",
        steps=1 + n % 9,
        seconds=n**1.5,
        tool_failures={NAMES[n % 3]: 1},
    )
    for n in range(60)
]


@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
async def test_the_report_fits_on_a_phone_has_readable_words_and_is_dark_where_the_reader_prefers_it(
    tmp_path: Path,
) -> None:
    (tmp_path / "report.html").write_text(report_page(ROWS))
    backs = []
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for width, scheme in ((390, "light"), (1280, "dark")):
            page = await browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
            await page.goto((tmp_path / "report.html").as_uri())
            assert await page.evaluate("document.documentElement.scrollWidth") == width
            sizes = "[...document.querySelectorAll('body *')].map(one => parseFloat(getComputedStyle(one).fontSize))"
            assert min(await page.evaluate(sizes)) >= 15
            assert await page.evaluate("[...document.querySelectorAll('.stack i')].every(one => one.offsetWidth > 1)")
            backs.append(await page.evaluate("getComputedStyle(document.body).backgroundColor"))
        await browser.close()
    assert backs == ["rgb(255, 255, 255)", "rgb(20, 24, 31)"]
