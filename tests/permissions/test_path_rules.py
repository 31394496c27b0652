"""Rules on paths see what a path really is: no spelling of it passes a denial, and none slips under a permission."""

import os
from pathlib import Path
from typing import Any

import pytest

from pipeline_tools import run_calls, statuses
from treadle import Agent, Tool, allow, deny, file_tools, first_of
from treadle.testing import ScriptedModel, call, text
from treadle.tools import Subject
from treadle.toolsets import Prefixed


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "root"
    for name in ("secret/x", "secret/deep/y", "docs/a.md", "Caf\u00e9/x", "other/z"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("canary\n")
    (folder / "link").symlink_to("secret")
    (folder / "docs" / "file-link").symlink_to("../secret/x")
    (folder / "absolute").symlink_to(folder / "secret" / "x")
    return folder


async def status_of(root: Path, policy: Any, tool: str, arguments: dict[str, Any]) -> str:
    model = ScriptedModel([call(tool, **arguments), text("Done.")])
    result = await Agent(model, tools=file_tools(root), policy=policy).run("Look")
    (one,) = result.tool_calls
    return str(one.status)


SPELLINGS = [
    "secret/x", "./secret/x", "secret//x", "secret/./x", "docs/../secret/x", "secret/x/", "link/x", "docs/file-link", "absolute",
    "{root}/secret/x", "{root}/docs/../secret/x", "{root}//secret/x", "{root}/link/x", "SECRET/x", "secret/X", "secret/deep/y", "./link/deep/../x", "secret/none", "link/none",
]  # fmt: skip


@pytest.mark.row("H20", "AT-PATHS-DENIED")
@pytest.mark.parametrize("path", SPELLINGS)
@pytest.mark.parametrize("rule", ["secret/*", "./secret/*", "secret//**", "{root}/secret/*", "**/secret/*"])
async def test_no_spelling_of_a_path_passes_a_denial(root, path, rule):
    policy = deny(f"read(path={rule.format(root=root)})")

    assert await status_of(root, policy, "read", {"path": path.format(root=root)}) == "denied"


@pytest.mark.row("H20")
@pytest.mark.parametrize("path", ["docs/a.md", "./docs/a.md", "other/z", "{root}/other/z", "secret/../other/z"])
async def test_what_a_denial_does_not_name_is_read(root, path):
    assert await status_of(root, deny("read(path=secret/*)"), "read", {"path": path.format(root=root)}) == "ok"


@pytest.mark.row("H20")
async def test_composed_and_decomposed_characters_are_one_path(root):
    policy = deny("read(path=Cafe\u0301/*)")

    assert await status_of(root, policy, "read", {"path": "Caf\u00e9/x"}) == "denied"


@pytest.mark.row("H20", "AT-PATHS-DENIED")
@pytest.mark.parametrize(
    ("tool", "arguments", "status"),
    [
        ("grep", {"pattern": "c", "path": "."}, "denied"), ("grep", {"pattern": "c"}, "denied"), ("grep", {"pattern": "c", "path": "link"}, "denied"),
        ("grep", {"pattern": "c", "path": "secret/x"}, "denied"), ("grep", {"pattern": "c", "path": ".", "include": "secret/*"}, "denied"),
        ("grep", {"pattern": "c", "path": ".", "include": "docs/*.md"}, "ok"), ("grep", {"pattern": "c", "path": "docs"}, "ok"),
        ("glob", {"pattern": "**/*"}, "denied"), ("glob", {"pattern": "secret/*"}, "denied"), ("glob", {"pattern": "s*/*"}, "denied"),
        ("glob", {"pattern": "*", "path": "link"}, "denied"), ("glob", {"pattern": "*.md", "path": "docs"}, "ok"), ("glob", {"pattern": "docs/*.md"}, "ok"),
        ("list", {"path": "secret"}, "denied"), ("list", {"path": "secret/"}, "denied"), ("list", {"path": "link"}, "denied"),
        ("list", {"path": "docs/../secret"}, "denied"), ("list", {"path": "docs"}, "ok"), ("list", {}, "ok"),
    ],
)  # fmt: skip
async def test_a_search_or_a_listing_that_reaches_what_is_denied_is_denied(root, tool, arguments, status):
    assert await status_of(root, deny("*(path=secret/*)"), tool, arguments) == status


@pytest.mark.row("H20")
@pytest.mark.parametrize(("rule", "status"), [("docs?", "ok"), ("docs?*", "denied"), ("docs?a.md", "denied")])
async def test_a_listing_is_denied_where_something_in_the_folder_can_fit_the_rule(root, rule, status):
    assert await status_of(root, deny(f"list(path={rule})"), "list", {"path": "docs"}) == status


@pytest.mark.row("H20")
@pytest.mark.parametrize("path", ["docs/../secret/x", "docs/file-link", "./docs/../secret/x"])
async def test_a_permission_holds_for_what_a_path_is_and_not_for_how_it_is_spelled(root, path):
    policy = first_of(allow("read(path=docs/*)"), deny("*"))

    assert await status_of(root, policy, "read", {"path": path}) == "denied"
    assert await status_of(root, policy, "read", {"path": "docs/a.md"}) == "ok"
    assert await status_of(root, policy, "read", {"path": f"{root}/docs/a.md"}) == "ok"
    assert await status_of(root, policy, "read", {"path": "secret/../docs/a.md"}) == "ok"


@pytest.mark.row("H20")
async def test_a_link_to_the_root_itself_is_no_way_around(root, tmp_path):
    (tmp_path / "alias").symlink_to(root)

    for path in (f"{tmp_path}/alias/secret/x", f"{os.path.realpath(root)}/secret/x"):
        assert await status_of(tmp_path / "alias", deny("read(path=secret/*)"), "read", {"path": path}) == "denied"


# --- tools of one's own ----------------------------------------------------------------------------------------------
def own_tool(subjects: Any = None) -> Tool:
    schema = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
    return Tool(
        name="open",
        description="Open.",
        parameters=schema,
        effect="read",
        run=lambda arguments, ctx: "ok",
        subjects=subjects,
    )


async def own_status(tool: Tool, policy: Any, path: str | list[str]) -> str:
    result = await Agent(ScriptedModel([call("open", path=path), text("x")]), tools=[tool], policy=policy).run("Open")
    return str(result.tool_calls[0].status)


@pytest.mark.row("H20")
@pytest.mark.parametrize("path", ["secret/x", "./secret/x", "a/../secret/x", "secret//x", "SECRET/x"])
async def test_a_tool_that_resolves_nothing_is_matched_by_the_text_without_its_detours(path):
    assert await own_status(own_tool(), deny("open(path=secret/*)"), path) == "denied"
    assert await own_status(own_tool(), first_of(allow("open(path=docs/*)"), deny("*")), f"docs/../{path}") == "denied"


@pytest.mark.row("H20")
async def test_a_tool_says_what_its_argument_names():
    tool = own_tool(lambda arguments: {"path": Subject(names=("inbox/7",))})

    assert await own_status(tool, deny("open(path=inbox/*)"), "latest") == "denied"
    assert await own_status(tool, first_of(allow("open(path=inbox/*)"), deny("*")), "latest") == "ok"
    assert await own_status(tool, first_of(allow("open(path=latest)"), deny("*")), "latest") == "denied"


@pytest.mark.row("H20")
@pytest.mark.parametrize(
    "broken", [lambda arguments: 1 / 0, lambda arguments: {"path": "secret"}, lambda arguments: None]
)
async def test_where_a_tool_cannot_say_it_every_denial_holds_and_no_permission_does(broken):
    tool = own_tool(broken)

    assert await own_status(tool, deny("open(path=secret/*)"), "docs/a") == "denied"
    assert await own_status(tool, first_of(allow("open(path=docs/*)"), deny("*")), "docs/a") == "denied"


@pytest.mark.row("H20")
@pytest.mark.parametrize("rule", ["secret/", " secret/*", "secret/* ", "docs/../secret/*", "./secret//", "**/secret/"])
@pytest.mark.parametrize("path", ["secret/x", "secret/deep/y", "link/x", "docs/../secret/x"])
async def test_no_spelling_of_a_denial_denies_nothing(root, rule, path):
    assert await status_of(root, deny(f"read(path={rule})"), "read", {"path": path}) == "denied"
    assert await status_of(root, deny(f"read(path={rule})"), "read", {"path": "other/z"}) == "ok"


@pytest.mark.row("H20")
async def test_a_list_of_paths_is_held_to_rules_path_by_path():
    schema = {"type": "object", "properties": {"path": {"type": "array", "items": {"type": "string"}}}}
    tool = Tool(name="open", description="Open.", parameters=schema, effect="read", run=lambda arguments, ctx: "ok")
    only_docs = first_of(allow("open(path=docs/*)"), deny("*"))

    assert await own_status(tool, deny("open(path=secret/*)"), ["docs/a", "./secret/x"]) == "denied"
    assert await own_status(tool, deny("open(path=secret/*)"), ["docs/a"]) == "ok"
    assert await own_status(tool, only_docs, ["docs/a", "docs/b"]) == "ok"
    assert await own_status(tool, only_docs, ["docs/a", "docs/../secret/x"]) == "denied"
    assert await own_status(tool, only_docs, []) == "denied"


@pytest.mark.row("H20")
@pytest.mark.parametrize(
    "rule", ["secret", "./secret", "{root}/secret", "secr?t", "docs/../secret", "**/secret", "SECRET"]
)
@pytest.mark.parametrize("path", ["secret/x", "secret/deep/y", "link/x", "./secret/none"])
async def test_a_denial_of_a_folder_covers_what_is_below_it(root, rule, path):
    policy = deny(f"read(path={rule.format(root=root)})")

    assert await status_of(root, policy, "read", {"path": path}) == "denied"
    assert await status_of(root, policy, "read", {"path": "other/z"}) == "ok"


@pytest.mark.row("H20")
async def test_a_denial_of_a_folder_holds_for_tools_that_resolve_nothing():
    assert await own_status(own_tool(), deny("open(path=secret)"), "secret/x") == "denied"
    assert await own_status(own_tool(), deny("open(path=secret)"), "secrets/x") == "ok"


@pytest.mark.row("H20")
@pytest.mark.parametrize(
    "rule", ["link", "link/", "link/*", "link/x", "./link/**", "{root}/link/*", "docs/file-link", "absolute"]
)
@pytest.mark.parametrize("path", ["secret/x", "link/x", "{root}/secret/x"])
async def test_a_rule_on_a_link_holds_for_what_it_points_to(root, rule, path):
    policy = deny(f"read(path={rule.format(root=root)})")

    assert await status_of(root, policy, "read", {"path": path.format(root=root)}) == "denied"
    assert await status_of(root, policy, "read", {"path": "other/z"}) == "ok"


@pytest.mark.row("H20")
async def test_a_rule_on_a_link_to_a_folder_with_wildcards_in_its_name_means_that_folder_only(root):
    (root / "a[b]").mkdir()
    (root / "a[b]" / "x").write_text("canary")
    (root / "ab").mkdir()
    (root / "ab" / "x").write_text("canary")
    (root / "odd").symlink_to("a[b]")

    assert await status_of(root, deny("read(path=odd/*)"), "read", {"path": "a[b]/x"}) == "denied"
    assert await status_of(root, deny("read(path=odd/*)"), "read", {"path": "ab/x"}) == "ok"


@pytest.mark.row("H20")
async def test_a_rule_that_names_a_file_holds_for_its_hard_links(root):
    os.link(root / "secret" / "x", root / "other" / "hard")

    assert await status_of(root, deny("read(path=secret/x)"), "read", {"path": "other/hard"}) == "denied"
    assert await status_of(root, deny("read(path=secret/x)"), "read", {"path": "other/z"}) == "ok"
    assert (
        await status_of(root, first_of(allow("read(path=secret/x)"), deny("*")), "read", {"path": "other/hard"})
        == "denied"
    )


@pytest.mark.row("H20")
async def test_a_rule_that_cannot_be_resolved_stands_as_it_is_written():
    def fails(path: str) -> list[str]:
        raise OSError("gone")

    tool = own_tool(lambda arguments: {"path": Subject(names=("inbox/7",), resolve=fails)})

    assert await own_status(tool, deny("open(path=inbox/*)"), "x") == "denied"
    assert await own_status(tool, deny("open(path=outbox/*)"), "x") == "ok"


@pytest.mark.row("AT-PATHS-DENIED")
@pytest.mark.parametrize("rule", ["secret/**/x", "**/secret/**/x", "secret/**/**/x", "link/**/x", "{root}/secret/**/x"])
@pytest.mark.parametrize("path", ["secret/x", "docs/file-link", "absolute"])
async def test_any_number_of_folders_in_a_denial_may_be_none(root, rule, path):
    rules = deny(f"read(path={rule.format(root=root)})")

    assert await status_of(root, rules, "read", {"path": path}) == "denied"
    assert await status_of(root, rules, "grep", {"pattern": "canary", "path": "secret"}) == "denied"


@pytest.mark.row("AT-PATHS-DENIED")
@pytest.mark.parametrize("rule", ["fs_read(path=secret/**)", "*read(path=secret/**)"])
async def test_what_a_tool_with_a_prefix_may_not_read_the_one_with_the_same_prefix_may_not_search(root, rule):
    model = ScriptedModel([call("fs_grep", pattern="canary"), call("fs_read", path="link/x"), text("Done.")])

    result = await Agent(model, tools=[Prefixed(file_tools(root), "fs_")], policy=deny(rule)).run("Look")

    assert [one.status for one in result.tool_calls] == ["denied", "denied"]


@pytest.mark.row("H20")
@pytest.mark.parametrize("pattern", ["s*/key", "sr*/key", "src*/key", "*/key", "src/k*", "src/key"])
async def test_a_folder_is_not_searched_in_which_a_pattern_denies_a_file(tmp_path, pattern):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "key").write_text("x")

    result = await run_calls(
        call("grep", pattern="x", path="src"),
        tools=file_tools(tmp_path),
        policy=first_of(deny(f"read(path={pattern})"), allow("*")),
    )

    assert statuses(result) == ["denied"]
