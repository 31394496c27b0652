"""What a model is told of where it works, and which files a folder has."""

import os
import subprocess
from datetime import date
from pathlib import Path

import pytest

from treadle import ConfigurationError
from treadle.toolsets import folder_changes, folder_files, folder_surroundings


def git(folder: Path, *words: str) -> None:
    subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=folder, check=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q", "-b", "main")
    (tmp_path / ".gitignore").write_text("build/\n*.log\n")
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").write_text("x = 1\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "x")
    return tmp_path


def test_the_surroundings_say_folder_branch_changes_system_shell_and_date(repository: Path) -> None:
    said = folder_surroundings(repository)

    assert f"Folder: {repository} (git branch main, no changes when this began)\n" in said
    assert f"System: {os.uname().sysname} " in said
    assert "Shell: bash." in said
    assert f"Date: {date.today().isoformat()}." in said
    assert len(said) < 200 + len(str(repository))


def test_changed_and_new_files_are_counted(repository: Path) -> None:
    (repository / "src" / "a.py").write_text("x = 2\n")
    (repository / "new.py").write_text("")
    (repository / "gone.log").write_text("ignored")

    assert "(git branch main, 2 changed or new files when this began)" in folder_surroundings(repository)


def test_a_folder_without_git_is_named_alone(tmp_path: Path) -> None:
    assert f"Folder: {tmp_path}\n" in folder_surroundings(tmp_path)
    with pytest.raises(ConfigurationError):
        folder_surroundings(tmp_path / "nothing")


def test_a_repository_that_would_have_git_run_a_program_is_only_named(repository: Path) -> None:
    ran = repository / "ran"
    git(repository, "config", "filter.x.clean", f"touch {ran}")
    (repository / ".gitattributes").write_text("* filter=x\n")
    (repository / "src" / "a.py").write_text("x = 3\n")

    assert "(a git repository)" in folder_surroundings(repository)
    assert folder_files(repository) == [".gitattributes", ".gitignore", "src/a.py"]
    with pytest.raises(ConfigurationError, match="Run `git diff` yourself"):
        folder_changes(repository)
    assert not ran.exists()


def test_what_differs_from_the_last_commit_is_shown(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    assert folder_changes(repository) == ""
    (repository / "src" / "a.py").write_text("x = 2\n")
    assert "-x = 1\n+x = 2\n" in folder_changes(repository / "src")
    with pytest.raises(ConfigurationError, match="in no git repository"):
        folder_changes(tmp_path_factory.mktemp("plain"))


def test_files_that_git_ignores_are_left_out(repository: Path) -> None:
    (repository / "build").mkdir()
    (repository / "build" / "out.py").write_text("")
    (repository / "one.log").write_text("")
    (repository / "new file.py").write_text("")

    assert folder_files(repository) == [".gitignore", "new file.py", "src/a.py"]
    assert folder_files(repository / "src") == ["a.py"]


def test_files_of_a_folder_without_git_are_found_except_hidden_and_brought_ones(tmp_path: Path) -> None:
    for name in ("b/c.txt", "a.txt", ".hidden/x", "node_modules/y.js"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")

    assert folder_files(tmp_path) == ["a.txt", "b/c.txt"]
