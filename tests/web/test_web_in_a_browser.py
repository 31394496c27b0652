"""The page as people use it: in a real browser, with the mouse, on a phone, and with the keyboard alone."""

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator

import pytest
from playwright.async_api import Browser, Page, async_playwright, expect
from starlette.applications import Starlette
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.responses import HTMLResponse
from starlette.routing import Mount, Route
from web_site import HOSTILE, PAYS, Site, calls, served, site_of

from treadle import open_journal, submit
from treadle.web import Access, new_token, web

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="the page in a browser needs one: apt-get install chromium")

expect.set_options(timeout=30_000)

QUIET = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
)


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=list(QUIET))
        yield browser
        await browser.close()


async def enter(browser: Browser, site: Site, name: str = "ada", *, width: int = 1280, scheme: str = "light") -> Page:
    """Open the page as a person of its own, and collect what goes wrong in it."""
    context = await browser.new_context(viewport={"width": width, "height": 850}, color_scheme=scheme)
    page = await context.new_page()
    page.set_default_timeout(30_000)
    page.harm = []
    page.on("pageerror", lambda error: page.harm.append(str(error)))
    page.on("dialog", lambda dialog: page.harm.append(dialog.message))
    await page.goto(site.link(name))
    return page


async def test_a_person_allows_denies_edits_answers_and_resolves_on_the_page(browser, site, in_doubt):
    for task in ("Pay the first", "Pay the second", "Pay the third"):
        await site.run(PAYS, task, agent="elsewhere")
    await site.run(
        [{"calls": [calls("ask_user", question="Which branch?", choices=["main", "next"])]}],
        "Fix it",
        agent="elsewhere",
    )
    page = await enter(browser, site)

    first, second, third = [
        page.locator(".item", has_text=task) for task in ("Pay the first", "Pay the second", "Pay the third")
    ]
    await expect(page.locator("#badge")).to_have_text("5")
    await first.get_by_role("button", name="Allow once").click()
    await expect(first).to_have_count(0)
    await second.get_by_placeholder("Reason").fill("Paid already.")
    await second.get_by_role("button", name="Deny").click()
    await expect(second).to_have_count(0)
    await third.get_by_text("Edit the arguments").click()
    await third.get_by_role("textbox", name="Arguments").fill('{"account": "DE02", "amount": 7}')
    await third.get_by_role("button", name="Allow once").click()
    await expect(third).to_have_count(0)
    question = page.locator(".item-question")
    await question.get_by_role("button", name="next").click()
    await question.get_by_role("button", name="Answer").click()
    await expect(question).to_have_count(0)
    await page.locator(".item-doubt").get_by_role("button", name="It was not done").click()

    await expect(page.get_by_text("All answered.")).to_be_visible()
    await expect(page.locator("#badge")).to_be_hidden()
    assert page.harm == []


async def test_two_people_see_at_once_who_was_first_and_what_is_written_is_kept(browser, site):
    asked = await site.run(PAYS, "Pay invoice 7", agent="elsewhere")
    await site.run(PAYS, "Pay invoice 8", agent="elsewhere")
    ada, bo = await enter(browser, site, "ada"), await enter(browser, site, "bo")
    async with site.browser() as somebody:
        item = next(one for one in await somebody.inbox() if one["session"] == asked)
    await bo.goto(f"{site.url}/request?session={asked}&id={item['id']}")
    writing = ada.locator(".item", has_text="invoice 8").get_by_placeholder("Reason")
    await writing.fill("I am still")

    other = await enter(browser, site, "cy")
    await other.locator(".item", has_text="invoice 7").get_by_role("button", name="Deny").click()

    await expect(bo.get_by_text("Denied by cy (link)")).to_be_visible()
    await expect(ada.locator(".item", has_text="invoice 7")).to_have_count(0)
    await expect(writing).to_have_value("I am still")
    await expect(writing).to_be_focused()


async def test_an_answer_on_its_way_takes_nothing_from_what_is_written_meanwhile(browser, site):
    for number in range(2):
        await site.run(PAYS, f"Pay invoice {number}", agent="elsewhere")
    page = await enter(browser, site)
    answered = asyncio.Event()

    async def hold(route):
        response = await route.fetch()
        await answered.wait()
        await route.fulfill(response=response)

    await page.route("**/api/v1/approvals", hold)
    await page.get_by_role("button", name="Allow").first.click()
    await page.locator(".reason").last.click()
    await page.keyboard.type("No")
    answered.set()
    await expect(page.locator("#toast")).to_contain_text("recorded")
    await page.keyboard.type(", never")
    await expect(page.locator(".item")).to_have_count(1)
    await expect(page.locator(".reason")).to_have_value("No, never")


async def test_everything_is_done_with_the_keyboard_alone(browser, site):
    for number in range(3):
        await site.run(PAYS, f"Pay invoice {number}", agent="elsewhere")
    page = await enter(browser, site)
    await expect(page.locator(".item")).to_have_count(3)

    await page.keyboard.press("j")
    await page.keyboard.press("a")
    await expect(page.locator(".item")).to_have_count(2)
    await page.keyboard.press("j")
    await page.keyboard.press("d")
    await page.keyboard.type("No.")
    await page.keyboard.press("Enter")
    await expect(page.locator(".item")).to_have_count(1)
    await page.keyboard.press("j")
    await page.keyboard.press("x")
    await expect(page.get_by_text("1 selected")).to_be_visible()
    await page.keyboard.press("g")
    await page.keyboard.press("s")
    await expect(page.get_by_role("heading", name="Sessions")).to_be_visible()
    await page.wait_for_load_state("load")
    await page.keyboard.press("/")
    await page.keyboard.type("invoice 2")
    await expect(page.locator("tbody tr")).to_have_count(1)
    await page.keyboard.press("Escape")
    await page.keyboard.press("j")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", name="Pay invoice 2")).to_be_visible()


async def test_several_requests_are_denied_together(browser, site):
    for number in range(3):
        await site.run(PAYS, f"Pay invoice {number}", agent="elsewhere")
    page = await enter(browser, site)
    for box in await page.locator("[data-pick]").all():
        await box.check()

    await page.get_by_role("button", name="Deny all").click()
    await page.locator("#ask textarea").fill("Not this month.")
    await page.locator("#ask").get_by_role("button", name="Deny all").click()

    await expect(page.get_by_text("All answered.")).to_be_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_on_a_phone_nothing_is_wider_than_the_screen_and_an_answer_can_be_given(browser, site, in_doubt, scheme):
    session_id = await site.run(PAYS, "Pay " + "a-very-long-word" * 20, tenant="acme", agent="elsewhere")
    page = await enter(browser, site, width=390, scheme=scheme)
    await expect(page.locator(".item")).to_have_count(2)

    for path in (
        "/inbox",
        "/sessions",
        f"/session?id={session_id}",
        f"/session?id={session_id}&tab=timeline",
        "/fleet",
        "/login",
    ):
        await page.goto(site.url + path)
        wider = await page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert wider <= 0, f"{path} is {wider} pixels wider than the screen"
    await page.goto(f"{site.url}/inbox")
    await page.get_by_role("button", name="Allow once").click()
    await expect(page.locator(".item-approval")).to_have_count(0)


async def test_what_models_and_tools_write_is_text(browser, site):
    turns = [
        {"text": HOSTILE, "calls": [calls("look_up", customer=HOSTILE)]},
        {"calls": [calls("pay", account=HOSTILE, amount=1)]},
        {"text": "Done."},
    ]
    session_id = await site.run(turns, HOSTILE, tenant=HOSTILE, agent="elsewhere")
    page = await enter(browser, site)
    for path in ("/inbox", "/sessions", f"/session?id={session_id}", f"/session?id={session_id}&tab=events"):
        await page.goto(site.url + path)
        await expect(page.locator("#main")).to_contain_text("onerror")
        for summary in await page.locator("details summary").all():
            await summary.click(timeout=2000) if await summary.is_visible() else None
        assert await page.evaluate("window.harm") is None
        assert await page.locator("a[href^=javascript]").count() == 0
    assert page.harm == []


async def test_a_session_is_steered_forked_and_removed_with_its_consequence_said_before(browser, site):
    session_id = await site.run(PAYS, "Pay invoice 7", agent="elsewhere")
    page = await enter(browser, site)
    await page.goto(f"{site.url}/session?id={session_id}")

    async def act(button: str, consequence: str, text: str | None = None) -> None:
        await page.locator(".acts").get_by_role("button", name=button, exact=True).click()
        dialog = page.locator("#ask")
        await expect(dialog).to_contain_text(consequence)
        if text is not None:
            await dialog.locator("textarea").fill(text)
        await dialog.get_by_role("button", name=button).click()

    await act("Send a message", "after the step that is under way", "Wait for me.")
    await act("Suspend", "No new run begins", "I look first.")
    await expect(page.get_by_text("suspended by ada (link): I look first.")).to_be_visible()
    await act("Activate", "Runs may begin")
    await act("Cancel", "ends as cancelled")
    await expect(page.locator(".item")).to_have_count(0)
    await act("Remove permanently", "Only a record of the deletion stays.")
    await expect(page.locator(".state-deleted").first).to_be_visible()


async def test_five_thousand_sessions_are_listed_searched_and_kept_up_to_date_without_losing_what_is_typed(browser):
    async with open_journal("memory:") as journal, site_of(journal) as site:
        for number in range(5000):
            await submit(journal, f"agent{number % 5}", f"Look into ticket {number}", tenant=f"t{number % 3}")
        page = await enter(browser, site)
        await page.goto(f"{site.url}/sessions")
        await expect(page.locator("tbody tr")).to_have_count(50)
        await expect(page.get_by_text("5\u202f000 sessions")).to_be_visible()

        await page.locator("#search").fill("ticket 4321")
        await expect(page.locator("tbody tr")).to_have_count(1)
        await submit(journal, "agent1", "Look again into ticket 4321")
        await expect(page.locator("tbody tr")).to_have_count(2)
        await expect(page.locator("#search")).to_be_focused()
        await page.goto(f"{site.url}/sessions?agent=agent1&tenant=t2")
        await expect(page.get_by_text("Page 1 of 7")).to_be_visible()
        await page.get_by_role("link", name="Older").click()
        await expect(page.get_by_text("Page 2 of 7")).to_be_visible()


AGENTS = """
import asyncio
from treadle import Agent, tool
from treadle.testing import ScriptedModel

@tool(effect="read", timeout=None)
async def wait() -> str:
    "Wait for ever."
    await asyncio.Event().wait()

agent = Agent(ScriptedModel([{"calls": [{"name": "wait", "arguments": {}}]}]), tools=[wait], name="slow")
"""


async def test_a_worker_that_is_killed_while_its_session_is_watched_is_seen(browser, tmp_path):
    file, agents = tmp_path / "agent.db", tmp_path / "agents.py"
    agents.write_text(AGENTS)
    async with open_journal(file) as journal, site_of(journal) as site:
        session_id = await submit(journal, "slow", "Take your time")
        page = await enter(browser, site)
        await page.goto(f"{site.url}/session?id={session_id}")
        await expect(page.locator(".state").first).to_contain_text("stranded")

        command = (
            sys.executable,
            "-m",
            "treadle",
            "worker",
            "--agents",
            str(agents),
            "--journal",
            str(file),
            "--name",
            "w1",
        )
        home = {**os.environ, "HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state")}
        worker = await asyncio.create_subprocess_exec(
            *command, cwd=tmp_path, env=home, stderr=asyncio.subprocess.DEVNULL
        )
        try:
            await expect(page.locator(".state").first).to_contain_text("running")
            await expect(page.locator(".call")).to_contain_text("wait")
            await expect(page.locator(".acts")).not_to_contain_text("Resume")
            await page.goto(f"{site.url}/fleet")
            await expect(page.locator("table", has_text="Waits for limits")).to_contain_text("w1")
            await page.goto(f"{site.url}/session?id={session_id}")
        finally:
            worker.send_signal(signal.SIGKILL)
            await worker.wait()

        await expect(page.locator(".state").first).to_contain_text("stranded")
        await expect(page.locator(".acts")).to_contain_text("Resume")
        await page.goto(f"{site.url}/fleet")
        await expect(page.locator("table", has_text="Waits for limits")).to_contain_text("ended")
        await expect(page.locator("table", has_text="Why")).to_contain_text("Take your time")
        await page.goto(f"{site.url}/sessions?status=running")
        await expect(page.get_by_role("heading", name="Sessions")).to_be_visible()
        await expect(page.locator("tbody tr")).to_have_count(0)


async def test_a_token_lets_a_person_into_a_page_below_a_path_of_another_application_and_out_again(browser, site):
    await site.run(PAYS, "Pay invoice 7", agent="elsewhere")
    token, secret = new_token("bo", role="answer")
    app = Starlette(routes=[Mount("/treadle", web(site.journal, access=Access(tokens=[token])))])
    app.add_middleware(BaseHTTPMiddleware, dispatch=lambda request, call_next: call_next(request))
    async with served(app) as url:
        page = await (await browser.new_context()).new_page()
        await page.goto(f"{url}/treadle/")
        await page.get_by_label("Token").fill(secret)
        await page.keyboard.press("Enter")
        await expect(page.locator(".live-text")).to_have_text("live")
        await page.get_by_role("button", name="Allow").first.click()
        await expect(page.locator(".item")).to_have_count(0)
        await page.get_by_text("bo", exact=True).first.click()
        await page.get_by_role("button", name="Log out").click()
        await expect(page.get_by_label("Token")).to_be_visible()


async def test_a_link_in_a_message_on_another_site_leads_whoever_is_logged_in_to_the_request(browser, site):
    await site.run(PAYS, "Pay invoice 7", agent="elsewhere")
    page = await enter(browser, site)
    address = await page.get_by_role("link", name="link", exact=True).get_attribute("href")
    mail = HTMLResponse(f'<a href="{site.url}{address}">Approve</a>')
    async with served(Starlette(routes=[Route("/", lambda request: mail)])) as url:
        await page.goto(url.replace("127.0.0.1", "localhost"))
        await page.get_by_role("link", name="Approve").click()
        await expect(page.get_by_role("button", name="Allow").first).to_be_visible()


async def test_an_open_page_says_that_its_journal_cannot_be_read_until_it_can_be_read_again(browser, postgres):
    async with open_journal(postgres.new_url()) as journal, site_of(journal) as site:
        await site.run(PAYS, "Pay invoice 7", agent="elsewhere")
        page = await enter(browser, site)
        await expect(page.locator(".live-text")).to_have_text("live")
        await asyncio.to_thread(postgres.crash)
        try:
            await expect(page.locator("#fault")).to_contain_text("cannot be reached")
        finally:
            await asyncio.to_thread(postgres.restart)
        await expect(page.locator("#fault")).to_be_hidden()
        await page.get_by_role("button", name="Allow").first.click()
        await expect(page.locator(".item")).to_have_count(0)
