"""What a survey of mutations showed that no test noticed: a search is denied by a rule whose pattern begins with few letters."""

from pathlib import Path

import pytest

from pipeline_tools import run_calls, statuses
from treadle import allow, deny, file_tools, first_of
from treadle.permissions.policies import NameIndex
from treadle.testing import call


@pytest.mark.row("H20")
@pytest.mark.parametrize("pattern", ["s*/key", "sr*/key", "src*/key", "*/key", "src/k*", "src/key"])
async def test_a_folder_is_not_searched_in_which_a_pattern_denies_a_file(tmp_path: Path, pattern: str) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "key").write_text("x")

    result = await run_calls(
        call("grep", pattern="x", path="src"),
        tools=file_tools(tmp_path),
        policy=first_of(deny(f"read(path={pattern})"), allow("*")),
    )

    assert statuses(result) == ["denied"]


@pytest.mark.parametrize("glob", ["s*/key", "sr*/key", "src*/key", "*/key", "src/k*", "src/key"])
def test_the_index_finds_the_patterns_that_mean_something_below_a_folder(glob: str) -> None:
    assert NameIndex({0: glob, 1: "docs/key"})._reached(frozenset({"src"}), is_deep=True) == (0,)
