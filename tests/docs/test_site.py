"""The site of the manual: built strictly, complete, and asking no other host for anything."""

import json
import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import treadle
from house import PROJECT
from manual.names import documented
from treadle import events

VENDORS_SDKS = {"anthropic", "google-genai", "openai"}


@pytest.mark.row("M-SITE")
def test_the_site_asks_no_other_host_for_anything(site):
    asked = {
        (page.name, address)
        for page in site.rglob("*.html")
        for address in re.findall(r'<(?:script|img|iframe|source)[^>]+src="?(https?:[^">\s]+)', page.read_text())
        + re.findall(r'<link[^>]+href="?(https?:[^">\s]+)', page.read_text())
    }
    styles = {
        (style.name, address)
        for style in site.rglob("*.css")
        for address in re.findall(r"url\(\"?(https?:[^)\"]+)", style.read_text())
    }

    assert asked == set()
    assert styles == set()


@pytest.mark.row("M-SITE")
def test_a_flag_in_running_text_is_not_broken_at_its_hyphens(site):
    page = (site / "use" / "cli-runs.html").read_text()
    styles = (site / "assets" / "site.css").read_text()

    assert '<code class="short">--approval-seconds N</code>' in page
    assert re.search(r"code\.short \{\s*white-space: nowrap;", styles)
    assert "<code>treadle approve ID</code>" not in page


@pytest.mark.row("M-SITE")
def test_search_finds_every_public_name(site):
    index = json.loads((site / "search" / "search_index.json").read_text())
    titles = " ".join(entry["title"] for entry in index["docs"])
    places = {entry["location"] for entry in index["docs"]}

    face = [name for name, page in documented().items() if page != "reference/events.md"]
    assert [name for name in face if name not in titles] == []
    assert [name for name in events.__all__ if f"reference/events.html#treadle.events.{name}" not in places] == []


@pytest.mark.row("M-SITE")
def test_a_browser_that_opened_the_site_from_a_folder_can_search_it(site):
    page = (site / "index.html").read_text()

    assert (site / "search" / "search_index.js").read_text().startswith("var __index = ")
    assert 'src="assets/iframe-worker.js"' in page
    assert (site / "assets" / "iframe-worker.js").is_file()


@pytest.mark.row("M-SITE")
def test_the_texts_for_machines_have_every_page_and_every_name(site):
    whole = (site / "llms-full.txt").read_text()
    listed = (site / "llms.txt").read_text()
    pages = [
        path.relative_to(site).with_suffix(".md").as_posix()
        for path in (site / "index.html", *site.glob("*/**/*.html"))
        if not (PROJECT / "docs" / path.relative_to(site)).exists()  # a page that is HTML already, with evidence
    ]

    assert [page for page in pages if f"<!-- {page} -->" not in whole] == []
    assert [page for page in pages if page.replace(".md", ".html") not in listed] == []
    assert [
        name for name in treadle.__all__ if f"\n## treadle.{name}\n" not in whole and name not in events.__all__
    ] == []
    assert ":::" not in whole
    assert "[positional" not in whole  # a signature reads as it is written


@pytest.mark.row("M-SITE")
def test_an_address_of_before_the_three_books_leads_to_its_page(site):
    for old, now in {"approvals": "use/approvals", "writing-tools": "use/tools", "backup": "run/backup"}.items():
        assert f'content="0; url={now}.html"' in (site / f"{old}.html").read_text()
        assert (site / f"{now}.html").is_file()


@pytest.mark.row("M-SITE")
def test_a_link_of_a_page_to_another_book_leads_there(site):
    dead, followed = [], 0
    for source in (PROJECT / "docs").rglob("*.md"):
        page = source.relative_to(PROJECT / "docs")
        built = (site / page.with_suffix(".html")).read_text()
        for link in re.findall(r"\]\((\.\./[^)\s#]+)", source.read_text()):
            place = os.path.normpath(page.parent / link)
            address = link.replace(".md", ".html")
            if not place.startswith(".."):
                followed += 1
                dead += [] if re.search(rf'(?:href|src)="?{re.escape(address)}', built) else [f"{page}: {link}"]

    assert dead == []
    assert followed > 100


@pytest.mark.row("M-SITE")
def test_a_broken_link_fails_the_build(tmp_path):
    mkdocs = Path(sys.executable).with_name("mkdocs")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("# Start\n\n[nowhere](nowhere.md)\n")
    settings = (PROJECT / "mkdocs.yml").read_text()
    validation = settings[settings.index("\nvalidation:") : settings.index("\nnav:")]
    (tmp_path / "mkdocs.yml").write_text(f"site_name: T\nstrict: true\n{validation}\n")

    built = subprocess.run([mkdocs, "build"], cwd=tmp_path, capture_output=True, text=True, timeout=60)

    assert built.returncode != 0
    assert "nowhere.md" in built.stderr


# --- what the first run installs -------------------------------------------------------------------------------------


def closure(name: str, seen: set[str], extra: str = "") -> set[str]:
    """Return a distribution and all that it needs here, with one of its extras or none."""
    key = re.sub(r"[-_.]+", "-", name).lower()
    if key not in seen:
        seen.add(key)
        for line in distribution(name).requires or []:
            need = Requirement(line)
            if need.marker is None or need.marker.evaluate({"extra": extra}):
                closure(need.name, seen)
    return seen


@pytest.mark.row("M-FIRST-RUN")
def test_the_demo_needs_at_most_twenty_distributions_and_no_vendors_sdk():
    makefile = (PROJECT / "Makefile").read_text()
    installed = re.findall(r"pip install [^\n]* -e '\.(?:\[(\w+)\])?'", makefile)
    needed = closure("treadle", set(), extra=installed[0])

    assert len(installed) == 1
    assert len(needed) <= 20, sorted(needed)
    assert needed & VENDORS_SDKS == set()


@pytest.mark.row("M-FIRST-RUN")
def test_the_demo_installs_the_project_alone_and_make_test_the_developers_tools(tmp_path):
    def planned(target: str) -> str:
        inherited = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL")}
        arguments = ["make", "--dry-run", target, f"VENV={tmp_path / 'venv'}"]
        return subprocess.run(
            arguments, cwd=PROJECT, env=inherited, capture_output=True, text=True, timeout=60, check=True
        ).stdout

    assert planned("demo").count("pip install") == 1
    assert "dev-requirements" not in planned("demo")
    assert "dev-requirements" in planned("test")


def test_the_tools_of_the_site_are_pinned():
    groups = tomllib.loads((PROJECT / "pyproject.toml").read_text())["dependency-groups"]

    assert [one for one in groups["docs"] if not re.fullmatch(r"[\w-]+==[\d.]+", one)] == []
