"""Hooks of the site: the generated reference goes in as pages, and `llms.txt` and `llms-full.txt` come out beside it.

mkdocs calls them; mkdocs.yml names this file.
"""

import posixpath
import re
from itertools import cycle
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.nav import Navigation
from mkdocs.structure.pages import Page

from manual.texts import reference, written_out

__all__ = ["on_files", "on_nav", "on_page_content", "on_page_markdown", "on_post_build"]

_MADE: dict[str, str] = {}
_ORDER: list[Page] = []
_TEXTS: dict[str, str] = {}

_UPWARD = re.compile(r"\[(?P<text>[^\]]+)\]\((?P<path>\.\./[^)]+)\)")


_FOR_USERS = ("use/", "run/")

_CODE = re.compile(r"`[^`\n]+`")

# Short code in running text, such as a flag, which a browser would break at its hyphens. 30 characters fit on a phone.
_SHORT_CODE = re.compile(r"<code>(?P<text>(?:[^<>&]|&\w+;){1,30})</code>")
_TABLE = re.compile(r"<table>.*?</table>", re.DOTALL)
_HEAD = re.compile(r"<th\b[^>]*>(.*?)</th>", re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    _MADE.clear()
    _MADE.update(reference())
    for path, text in _MADE.items():
        files.append(File.generated(config, path, content=text))
    return files


def on_nav(nav: Navigation, **_: Any) -> Navigation:
    _ORDER[:] = nav.pages
    return nav


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    _TEXTS[page.file.src_uri] = markdown
    if page.file.src_uri.startswith(_FOR_USERS):
        page.meta.setdefault("search", {"boost": 1000})  # a guide comes before the reference that has the same words
    if page.file.src_uri in _MADE:
        return markdown
    folder = posixpath.dirname(page.file.src_uri)
    return _UPWARD.sub(lambda link: _within_the_site(link, folder), _with_plain_bars(markdown))


def _within_the_site(link: re.Match[str], folder: str) -> str:
    """Return a link as it is, or the name of a file of the repository that is no part of the site."""
    place = posixpath.normpath(posixpath.join(folder, link["path"]))
    return f"{link['text']} (`{place.removeprefix('../')}`)" if place.startswith("../") else link[0]


def on_page_content(html: str, **_: Any) -> str:
    return _TABLE.sub(_with_columns, _SHORT_CODE.sub(r'<code class="short">\g<text></code>', html))


def _with_columns(table: re.Match[str]) -> str:
    """Return a table whose rows are lists on a phone; its cells say their column, where there are more than two."""
    columns = [" ".join(re.sub(r"<[^>]+>", "", one).split()) for one in _HEAD.findall(table[0])]
    if len(columns) < 2:
        return table[0]
    names = cycle(columns)
    named = re.sub(r"<td\b", lambda _: f'<td data-column="{next(names)}"', table[0]) if len(columns) > 2 else table[0]
    return f'<div class="wide">{named}</div>'


def _with_plain_bars(markdown: str) -> str:
    """Return a page whose tables hold bars in code as they are: other renderers want them escaped, this one shows the escape."""
    return "\n".join(
        _CODE.sub(lambda code: code[0].replace("\\|", "|"), line) if line.startswith("|") else line
        for line in markdown.split("\n")
    )


_RENAMED = {
    "acp": "editor",
    "agents-as-tools": "subagents",
    "vendors": "models",
    "whole-program": "tutorial-1-chat",
    "writing-tools": "tools",
}
"""Names of pages that have another name now."""

_ELSEWHERE = '<!doctype html><meta charset="utf-8"><title>Moved</title><meta http-equiv="refresh" content="0; url={0}"><a href="{0}">{0}</a>\n'


def _lead_from_old_addresses(site: Path) -> None:
    """Every page was at the root once: what is there now leads to where it is."""
    places = {
        path.stem: f"{book}/{path.name}" for book in ("use", "run", "know") for path in (site / book).glob("*.html")
    }
    for name, place in {**places, **{old: places[new] for old, new in _RENAMED.items()}}.items():
        (site / f"{name}.html").write_text(_ELSEWHERE.format(place), encoding="utf-8")


def on_post_build(config: MkDocsConfig) -> None:
    site = Path(config.site_dir)
    _lead_from_old_addresses(site)
    whole, lines = [], [f"# {config.site_name}\n", f"> {config.site_description}\n"]
    section = None
    for page in _ORDER:
        text = written_out(_TEXTS[page.file.src_uri])
        top = page.ancestors[-1].title if page.ancestors else "Start"
        if top != section:
            section = top
            lines.append(f"\n## {section}\n")
        lines.append(f"- [{page.title}]({page.file.dest_uri}): {_first_sentence(text)}")
        whole.append(f"<!-- {page.file.src_uri} -->\n\n{text.strip()}\n")
    (site / "llms.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (site / "llms-full.txt").write_text("\n".join(whole), encoding="utf-8")


def _first_sentence(text: str) -> str:
    for block in re.sub(r"^#.*$", "", text, flags=re.MULTILINE).split("\n\n"):
        plain = " ".join(re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", block).split())
        if plain and plain[0] not in "|`<>-!":
            return re.split(r"(?<=[.:])\s", plain)[0]
    return ""
